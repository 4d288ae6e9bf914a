"""``show``, ``diff``, ``history`` and ``rollback`` on a store with two revisions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.console import FIRST, SECOND, TEMPLATE, Console, write
from promptgraft.overrides import LocalPromptOverridesStore, Revision
from promptgraft.testing import FakeClock
from promptgraft.testing.prompts import JUDGE, PROMPT, TONE, WRITER, set_all

NAME = "support/triage"
SOURCE = "prompts.py:TEMPLATE"
WHEN = "2026-01-01 00:00:00Z"
Revisions = tuple[Revision, Revision]


def test_show_lists_prompts_and_tags(console: Console, project: Path, revisions: Revisions) -> None:
    write(project, FIRST, tag="stable")

    ended = console("show")

    other = LocalPromptOverridesStore(project).current(
        ns="support", prompt_key="triage", tag="stable"
    )
    assert other is not None
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == (
        f"store {project}\n"
        "\n"
        "support/triage\n"
        "  canary\n"
        f"    revision 2 ({revisions[1].id[:12]}) of 2, 2 overrides, {WHEN}\n"
        "  stable\n"
        f"    revision 1 ({other.id[:12]}) of 1, 1 override, {WHEN}\n"
    )
    assert "canary" not in console("show", "--tag", "stable").out


def test_show_prints_the_text_of_each_override(
    console: Console, project: Path, revisions: Revisions
) -> None:
    first, second = revisions

    ended = console("show", NAME)

    assert ended.code == 0
    assert ended.out == (
        "prompt    support/triage\n"
        "tag       canary\n"
        f"revision  2 ({second.id[:12]}) of {WHEN}, made from {first.id[:12]}\n"
        "from      run 0123456789ab: GEPA, 120 rollouts, seed 0\n"
        "scores    validation 0.500 -> 0.750 (+0.250)\n"
        f"file      {project}/.promptgraft/overrides/support/triage/canary.json\n"
        "\n"
        "section rules\n"
        "  Choose the queue for $subject.\n"
        "  Think twice.\n"
        "\n"
        "section tone\n"
        "  Be warm.\n"
    )


def test_show_with_the_source_tells_what_is_stale(
    console: Console, project: Path, revisions: Revisions
) -> None:
    source = project / "prompts.py"
    source.write_text(source.read_text("utf-8").replace("Be kind.", "Be brief."), "utf-8")

    ended = console("show", NAME, "--template", SOURCE)

    assert ended.code == 0
    assert "section rules: applied\n" in ended.out
    assert (
        f"section tone: not applied, stale: written for source {_hash('tone')[:12]}, "
        "the source is now "
    ) in ended.out


def test_show_with_a_source_that_lost_a_section_says_so(
    console: Console, project: Path, revisions: Revisions
) -> None:
    source = project / "prompts.py"
    source.write_text(source.read_text("utf-8").replace('key="tone"', 'key="voice"'), "utf-8")

    ended = console("show", NAME, "--template", "prompts:TEMPLATE")

    assert ended.code == 0
    assert "section tone: not applied, unknown part\n" in ended.out


def test_diff_compares_the_current_revision_with_its_parent(
    console: Console, revisions: Revisions
) -> None:
    ended = console("diff", NAME)

    assert ended.code == 0
    assert ended.out == (
        "prompt `support/triage`, tag `canary`\n"
        f"from  revision 1 ({revisions[0].id[:12]})\n"
        f"to    revision 2 ({revisions[1].id[:12]})\n"
        "\n"
        "--- section rules (before)\n"
        "+++ section rules (after)\n"
        "@@ -1,2 +1,2 @@\n"
        " Choose the queue for $subject.\n"
        "-Think first.\n"
        "+Think twice.\n"
        "\n"
        "--- section tone (before)\n"
        "+++ section tone (after)\n"
        "@@ -0,0 +1 @@\n"
        "+Be warm.\n"
    )


def test_diff_compares_any_two_revisions(console: Console, revisions: Revisions) -> None:
    first, second = revisions

    backwards = console("diff", NAME, "--from", second.id[:6], "--to", first.id[:6])
    from_nothing = console("diff", NAME, "--to", first.id)

    assert "-Think twice.\n+Think first.\n" in backwards.out
    assert "from  the source\n" in from_nothing.out
    assert "+Think first.\n" in from_nothing.out


def test_diff_compares_the_source_with_a_revision(
    console: Console, project: Path, revisions: Revisions
) -> None:
    current = console("diff", NAME, "--template", SOURCE)
    first = console("diff", NAME, "--template", SOURCE, "--to", revisions[0].id)

    assert "from  prompts.py:TEMPLATE\n" in current.out
    assert "-Be kind.\n+Be warm.\n" in current.out
    assert "Be kind" not in first.out

    source = project / "prompts.py"
    source.write_text(source.read_text("utf-8").replace("Be kind.", "Be brief."), "utf-8")
    stale = console("diff", NAME, "--template", SOURCE)
    assert "section tone is not applied: stale\n--- section tone (before)\n" in stale.out


def test_diff_has_an_exit_code_only_when_asked(console: Console, revisions: Revisions) -> None:
    same = ("--from", revisions[1].id, "--to", revisions[1].id)

    assert console("diff", NAME).code == 0
    assert console("diff", NAME, "--exit-code").code == 1
    assert console("diff", NAME, "--exit-code", *same).code == 0
    assert console("diff", NAME, *same).out.endswith("\nno differences\n")


def test_a_text_for_another_source_is_no_empty_diff(
    console: Console, project: Path, revisions: Revisions
) -> None:
    from promptgraft.prompt import MarkdownSection, PromptTemplate

    newer = PromptTemplate[object](
        ns="support",
        key="triage",
        sections=(MarkdownSection(title="Tone", key="tone", template="Be quick."),),
    )
    write(project, {("tone",): "Be warm."}, template=newer)

    ended = console("diff", NAME)

    assert ended.out.endswith("\nsection tone: the same text, written for another source\n")


def test_a_text_that_only_gets_a_line_break_says_so_in_words(
    console: Console, project: Path
) -> None:
    write(project, {("tone",): "Be warm."})
    write(project, {("tone",): "Be warm.\n"})

    ended = console("diff", NAME)

    same = "section tone: the same text, with other line breaks at its end"
    assert ended.out.endswith(f"\n{same}\n")


def test_a_line_that_stays_is_no_difference_because_others_follow_it(
    console: Console, project: Path
) -> None:
    write(project, {("tone",): "Be warm."})
    write(project, {("tone",): "Be warm.\nBe brief."})

    ended = console("diff", NAME)

    assert ended.out.endswith("@@ -1 +1,2 @@\n Be warm.\n+Be brief.\n")


def test_history_lists_revisions_and_marks_the_one_in_force(
    console: Console, revisions: Revisions
) -> None:
    first, second = (revision.id[:12] for revision in revisions)

    ended = console("history", NAME)

    assert ended.code == 0
    assert ended.out == (
        "prompt `support/triage`, tag `canary`\n"
        f"* 2  {second}  {WHEN}  from {first}\n"
        "    2 overrides; validation 0.500 -> 0.750 (+0.250)\n"
        "    run 0123456789ab: GEPA, 120 rollouts, seed 0\n"
        "    ~ section rules\n"
        "    + section tone\n"
        f"  1  {first}  {WHEN}\n"
        "    1 override\n"
        "    + section rules\n"
    )


def test_rollback_goes_back_and_forward_and_to_nothing(
    console: Console, project: Path, revisions: Revisions
) -> None:
    first, second = (revision.id[:12] for revision in revisions)
    title = "prompt `support/triage`, tag `canary`\n"

    back = console("rollback", NAME)
    assert back.out == f"{title}from  revision 2 ({second})\nto    revision 1 ({first})\n"
    assert _bodies(project) == FIRST

    forward = console("rollback", NAME, "--to", second[:4])
    assert forward.out == f"{title}from  revision 1 ({first})\nto    revision 2 ({second})\n"
    assert _bodies(project) == SECOND

    console("rollback", NAME, "--to", first)
    nothing = console("rollback", NAME)
    assert nothing.out == (
        f"{title}from  revision 1 ({first})\nto    the source\n"
        "no override is in force now: the plain source is rendered\n"
    )
    assert _bodies(project) is None
    assert console("history", NAME, "--tag", "canary").out.endswith(
        "no revision is in force: the first one was rolled back\n"
    )
    assert console("rollback", NAME, "--tag", "canary", "--to", second).code == 0
    assert _bodies(project) == SECOND


def test_a_rollback_names_the_other_prompts_of_a_step(console: Console, project: Path) -> None:
    store = LocalPromptOverridesStore(project, clock=FakeClock())
    set_all(store, PROMPT, WRITER, JUDGE, path=TONE, body="one step")
    store.set_section_override(JUDGE, path=TONE, body="moved on")
    revision = store.current(ns=PROMPT.ns, prompt_key=PROMPT.key)
    assert revision is not None
    assert revision.step is not None

    told = f"    written with other tags, step {revision.step[:12]}\n"
    assert told in console("history", "tests/stores/support").out
    assert console("rollback", "tests/stores/support").out.endswith(
        "written in one step with it and still in force: "
        "prompt `tests/stores/writer`, tag `latest`\n"
    )
    forward = console("rollback", "tests/stores/writer", "--to", revision.id[:12])
    assert forward.code != 0
    again = console("rollback", "tests/stores/support", "--to", revision.id, "--json")
    assert json.loads(again.out)["to"]["step"] == revision.step
    last = json.loads(console("rollback", "tests/stores/support", "--json").out)
    assert last["written_with"] == ["prompt `tests/stores/writer`, tag `latest`"]


def test_a_store_is_found_from_a_folder_inside_and_named_in_two_ways(
    console: Console, project: Path, revisions: Revisions, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = project / "docs" / "deep"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)

    assert "canary" in console("show").out
    assert "canary" in console("show", "--store", str(project)).out
    assert "canary" in console("show", "--store", f"{project}/.promptgraft").out


def test_a_store_is_read_beside_faults_elsewhere_in_the_project(
    console: Console, project: Path, revisions: Revisions
) -> None:
    del revisions
    inside = project / "inside"
    inside.mkdir()
    file = inside / "promptgraft.yaml"
    file.write_text("prompts: 7\nstore: {path: ..}\n", "utf-8")
    for words in (("show",), ("history", NAME), ("diff", NAME)):
        ended = console(*words, "--project", str(inside))
        assert (ended.code, ended.err) == (0, "")
    assert "support/triage" in console("show", "--project", str(inside)).out

    file.write_text("prompts: 7\nstore: {path: .., tags: x}\n", "utf-8")
    refused = console("show", "--project", str(inside))
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "promptgraft.yaml:2: store.tags" in refused.err


def test_an_empty_store_is_no_mistake(console: Console, project: Path) -> None:
    assert (
        console("show").out
        == f"nothing is stored in {project}; `promptgraft apply` stores the winner of a run\n"
    )
    assert json.loads(console("show", "--json").out) == {"store": str(project), "tags": []}


def test_json_of_each_command(console: Console, project: Path, revisions: Revisions) -> None:
    tag = {
        "store": str(project),
        "prompt": NAME,
        "tag": "canary",
        "file": f"{project}/.promptgraft/overrides/support/triage/canary.json",
    }
    first, second = (_revision_json(revision) for revision in revisions)

    assert json.loads(console("show", "--json").out) == {
        "store": str(project),
        "tags": [{**tag, "revisions": 2, "current": second, "overrides": 2}],
    }
    shown = json.loads(console("show", NAME, "--json").out)
    assert shown == {**tag, "revisions": 2, "current": second, "parts": shown["parts"]}
    assert shown["parts"] == [
        _section_json(path, body, status=None) for path, body in SECOND.items()
    ]
    checked = json.loads(console("show", NAME, "--json", "--template", SOURCE).out)
    assert checked["parts"] == [
        _section_json(path, body, status="applied") for path, body in SECOND.items()
    ]
    history = json.loads(console("history", NAME, "--json").out)
    compared = json.loads(console("diff", NAME, "--json").out)
    (added,) = history["revisions"][0]["parts"]
    assert (added["part"], added["before"], added["after"]) == (
        "section rules",
        None,
        "Choose the queue for $subject.\nThink first.",
    )
    assert history == {
        **tag,
        "revisions": [
            {**first, "current": False, "overrides": 1, "parts": [added]},
            {**second, "current": True, "overrides": 2, "parts": compared["parts"]},
        ],
    }
    assert compared == {
        **tag,
        "template": None,
        "source": False,
        "from": first,
        "to": second,
        "parts": compared["parts"],
    }
    assert compared["parts"][1] == {
        "kind": "section",
        "part": "section tone",
        "status": None,
        "reason": None,
        "before": None,
        "after": "Be warm.",
        "diff": "--- section tone (before)\n+++ section tone (after)\n@@ -0,0 +1 @@\n+Be warm.\n"
        "\\ No newline at end of text\n",
    }
    assert json.loads(console("rollback", NAME, "--json").out) == {
        **tag,
        "from": second,
        "to": first,
        "written_with": [],
    }
    assert json.loads(console("rollback", NAME, "--json").out)["to"] is None


def _revision_json(revision: Revision) -> dict[str, object]:
    return {
        "id": revision.id,
        "number": revision.number,
        "parent": revision.parent,
        "step": revision.step,
        "time": "2026-01-01T00:00:00+00:00",
        "run_id": revision.provenance.run_id,
        "note": revision.provenance.note,
        "scores": dict(revision.provenance.scores),
    }


def _section_json(path: tuple[str, ...], body: str, *, status: str | None) -> dict[str, object]:
    return {
        "kind": "section",
        "part": f"section {path[0]}",
        "status": status,
        "reason": None,
        "expected_hash": _hash(path[0]),
        "found_hash": None,
        "content": {"path": list(path), "body": body},
    }


def _hash(key: str) -> str:
    section = TEMPLATE.descriptor.section((key,))
    assert section is not None
    return section.content_hash


def _bodies(project: Path) -> dict[tuple[str, ...], str] | None:
    found = LocalPromptOverridesStore(project).resolve(TEMPLATE.descriptor, "canary")
    if found is None:
        return None
    return {path: section.body for path, section in found.sections.items()}
