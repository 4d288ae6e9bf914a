"""``promptgraft tag``: tags move, revisions stay."""

from __future__ import annotations

import json
from pathlib import Path

from cli.console import FIRST, SECOND, Console, write
from promptgraft.overrides import LocalPromptOverridesStore, Revision

NAME = "support/triage"
Revisions = tuple[Revision, Revision]


def history(folder: Path, tag: str) -> tuple[Revision, ...]:
    store = LocalPromptOverridesStore(folder)
    return store.history(ns="support", prompt_key="triage", tag=tag)


def bodies(folder: Path, tag: str) -> dict[tuple[str, ...], str]:
    current = LocalPromptOverridesStore(folder).current(ns="support", prompt_key="triage", tag=tag)
    sections = current.override.sections if current else {}
    return {path: entry.body for path, entry in sections.items()}


def test_a_tag_gets_what_another_one_holds_as_a_revision_of_its_own(
    console: Console, project: Path, revisions: Revisions
) -> None:
    ended = console("tag", NAME, "stable")

    (made,) = history(project, "stable")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith(
        "prompt `support/triage`, tag `stable`\n"
        f"of    tag `canary`, revision 2 ({revisions[1].id[:12]})\n"
        "from  the source\n"
        f"to    revision 1 ({made.id[:12]})\n"
        "\n"
        "--- section rules (before)\n"
    )
    assert bodies(project, "stable") == SECOND
    assert made.provenance.run_id == "0123456789ab"
    assert made.provenance.scores == {"baseline": 0.5, "best": 0.75}
    assert made.provenance.note == f"revision 2 ({revisions[1].id[:12]}) of tag canary"
    assert history(project, "canary") == revisions


def test_an_earlier_revision_replaces_everything_that_the_tag_held(
    console: Console, project: Path, revisions: Revisions
) -> None:
    console("tag", NAME, "stable")

    ended = console("tag", NAME, "stable", "--of", "canary", "--revision", revisions[0].id[:6])

    assert ended.code == 0
    assert bodies(project, "stable") == FIRST
    assert len(history(project, "stable")) == 2
    assert "section tone" in ended.out


def test_rollback_and_history_know_where_a_tag_was_before(
    console: Console, project: Path, revisions: Revisions
) -> None:
    console("tag", NAME, "stable", "--revision", revisions[0].id[:6])
    console("tag", NAME, "stable", "--of", "canary")
    assert bodies(project, "stable") == SECOND

    assert console("rollback", NAME, "--tag", "stable").code == 0

    assert bodies(project, "stable") == FIRST
    told = console("history", NAME, "--tag", "stable").out
    assert f"    run 0123456789ab: revision 2 ({revisions[1].id[:12]}) of tag canary\n" in told
    assert bodies(project, "canary") == SECOND


def test_a_tag_that_holds_it_already_gets_no_revision(
    console: Console, project: Path, revisions: Revisions
) -> None:
    console("tag", NAME, "stable")

    ended = console("tag", NAME, "stable", "--of", "canary")

    assert ended.code == 0
    assert ended.out.endswith("the tag points there already: nothing was written\n")
    assert len(history(project, "stable")) == 1


def test_the_document_has_both_tags(console: Console, project: Path, revisions: Revisions) -> None:
    document = json.loads(console("tag", NAME, "stable", "--json").out)

    assert (document["tag"], document["of"]["tag"]) == ("stable", "canary")
    assert document["of"]["revision"]["id"] == revisions[1].id
    assert document["from"] is None
    assert document["to"]["id"] == history(project, "stable")[0].id
    assert [part["part"] for part in document["parts"]] == ["section rules", "section tone"]
    assert document["file"] == f"{project}/.promptgraft/overrides/support/triage/stable.json"


def test_wrong_use_is_one_line_that_says_what_there_is(
    console: Console, project: Path, revisions: Revisions
) -> None:
    write(project, FIRST, tag="beta")

    several = console("tag", NAME, "stable")
    unknown = console("tag", NAME, "stable", "--of", "canari")
    revision = console("tag", NAME, "stable", "--of", "canary", "--revision", "00000000")
    name = console("tag", NAME, "No Tag", "--of", "canary")

    assert {ended.code for ended in (several, unknown, revision, name)} == {2}
    assert several.err == (
        "promptgraft: prompt `support/triage` has the tags `beta`, `canary`; choose one with --of\n"
    )
    assert "has no tag `canari` (did you mean `canary`?)" in unknown.err
    assert "has no revision `00000000`" in revision.err
    assert "NAME: expected 1 to 64 lower-case letters" in name.err
    assert history(project, "stable") == ()
