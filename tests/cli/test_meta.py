"""``promptgraft meta``: meta-prompts are written out, changed and reset."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.console import Console
from promptgraft.algorithms.gepa.prompts import META_PROMPTS
from promptgraft.algorithms.gradient.prompts import QUESTIONS
from promptgraft.ground.serde import HexDigest
from promptgraft.overrides import LocalPromptOverridesStore, OverrideAddress, SectionOverride
from promptgraft.targets.part_questions import REFLECT_ON_SECTION

NAMES = [*META_PROMPTS, *QUESTIONS, "reflect-visibility", "simulated-user"]
ADDRESS = OverrideAddress("promptgraft/gepa", "reflect-section", "latest")


@pytest.fixture
def copies(project: Path, console: Console) -> Path:
    """Copies of all meta-prompts, one of them edited."""
    assert console("meta", "write", "meta").code == 0
    path = project / "meta" / "reflect-section.md"
    text = path.read_text("utf-8")
    path.write_text(text.replace("Keep what already works.", "Be bold."), "utf-8")
    return project / "meta"


def held(project: Path) -> str:
    """Return what a run would ask with."""
    found = LocalPromptOverridesStore(project).resolve(REFLECT_ON_SECTION.descriptor)
    section = found.sections.get(("task",)) if found else None
    return section.body if section else ""


def test_list_names_every_meta_prompt_and_what_is_overridden(
    console: Console, project: Path, copies: Path
) -> None:
    shipped = console("meta", "list")
    assert shipped.code == 0
    assert shipped.out.count("as shipped") == len(NAMES)
    assert all(f"\n{name} " in shipped.out for name in NAMES)

    console("meta", "apply", "meta")

    assert (
        "reflect-section            1 section overridden, revision 1 ("
        in console("meta", "list").out
    )
    listed = json.loads(console("meta", "list", "--json").out)["prompts"]
    assert [found["overridden"] for found in listed] == [["section task"], *[[]] * (len(NAMES) - 1)]


def test_write_replaces_no_file_that_says_something_else(
    console: Console, project: Path, copies: Path
) -> None:
    edited = (copies / "reflect-section.md").read_bytes()

    again = console("meta", "write", "meta")

    assert again.code == 2
    assert again.err == (
        "promptgraft: meta/reflect-section.md: exists and differs; name another folder, or delete "
        "what you do not need\n"
    )
    assert (copies / "reflect-section.md").read_bytes() == edited
    written = json.loads(console("meta", "write", "--json").out)
    assert written["files"] == [f"meta-prompts/{name}.md" for name in NAMES]
    assert console("meta", "write").code == 0  # the same texts once more


def test_diff_shows_edits_of_the_copies_and_of_the_store(
    console: Console, project: Path, copies: Path
) -> None:
    ended = console("meta", "diff", "meta")
    assert ended.code == 0
    assert "meta/reflect-section.md\n\n--- section task (before)\n" in ended.out
    assert "Be bold." in ended.out
    assert "reflect-tool" not in ended.out
    assert console("meta", "diff").out == "every meta-prompt is as shipped\n"

    console("meta", "apply", "meta")

    (found,) = json.loads(console("meta", "diff", "--json").out)["prompts"]
    assert (found["name"], found["parts"][0]["status"]) == ("reflect-section", "applied")
    assert found["parts"][0]["before"] == REFLECT_ON_SECTION.section_body(("task",))
    assert "Be bold." in console("meta", "diff").out


def test_apply_takes_edits_into_the_store_and_takes_them_back_with_the_copy(
    console: Console, project: Path, copies: Path
) -> None:
    ended = console("meta", "apply", "meta")
    assert ended.code == 0
    assert "reflect-section: revision 1 (" in ended.out
    assert "+Write a better text for this part." in ended.out
    assert "Be bold." in held(project)
    assert "reflect-section: nothing changed\n" in console("meta", "apply", "meta").out

    path = copies / "reflect-section.md"
    path.write_text(
        path.read_text("utf-8").replace("Be bold.", "Keep what already works."), "utf-8"
    )
    assert "section task: as shipped again\n" in console("meta", "apply", "meta").out
    assert held(project) == ""


def test_a_lost_placeholder_refuses_every_copy_with_a_line_for_each_fault(
    console: Console, project: Path, copies: Path
) -> None:
    for name in ("reflect-tool", "reflect-tool-example"):
        path = copies / f"{name}.md"
        path.write_text(path.read_text("utf-8").replace("$examples", "none"), "utf-8")

    ended = console("meta", "apply", "meta")

    assert (ended.code, ended.out) == (2, "")
    assert ended.err == (
        "promptgraft: meta/reflect-tool-example.md: section examples lost the placeholder "
        "`$examples`; keep it in the body\n"
        "promptgraft: meta/reflect-tool.md: section examples lost the placeholder `$examples`; "
        "keep it in the body\n"
    )
    assert held(project) == ""


def test_an_outdated_copy_is_noticed_by_diff_and_apply(
    console: Console, project: Path, copies: Path
) -> None:
    path = copies / "reflect-section.md"
    task = REFLECT_ON_SECTION.descriptor.section(("task",))
    assert task is not None
    path.write_text(path.read_text("utf-8").replace(task.content_hash, "f" * 64), "utf-8")

    assert "section task: the shipped text has changed since" in console("meta", "diff", "meta").out
    refused = console("meta", "apply", "meta")
    assert refused.code == 2
    assert "section `task`: the shipped text has changed since" in refused.err


def stale_override(project: Path) -> None:
    """Let the store hold an override of an older shipped text."""
    old = SectionOverride(path=("task",), expected_hash=HexDigest("f" * 64), body="$limits")
    store = LocalPromptOverridesStore(project)
    store.mutate(ADDRESS, lambda present: present.holding([old]))


def test_list_names_an_override_of_an_older_shipped_text(console: Console, project: Path) -> None:
    stale_override(project)

    ended = console("meta", "list")

    assert "reflect-section: section task is not applied: stale\n" in ended.out
    assert json.loads(console("meta", "list", "--json").out)["prompts"][0]["stale"] == [
        "section task"
    ]
    # What is not in force is not what one goes on from.
    console("meta", "write", "meta")
    text = (project / "meta" / "reflect-section.md").read_text("utf-8")
    assert META_PROMPTS["reflect-section"].section_body(("task",)) in text


def test_reset_uses_the_shipped_ones_again_and_keeps_the_revisions(
    console: Console, project: Path, copies: Path
) -> None:
    console("meta", "apply", "meta")

    ended = console("meta", "reset", "reflect-section")

    assert ended.code == 0
    assert held(project) == ""
    rollback = ended.out.splitlines()[1].split()
    assert rollback[:2] == ["promptgraft", "rollback"]
    assert console(*rollback[1:]).code == 0
    assert "Be bold." in held(project)
    assert [
        found["name"] for found in json.loads(console("meta", "reset", "--json").out)["prompts"]
    ]
    assert console("meta", "reset").out == "every meta-prompt is as shipped already\n"


def test_wrong_use_is_one_line(console: Console, project: Path) -> None:
    unknown = console("meta", "reset", "reflect-secton")
    missing = console("meta", "apply", "nowhere")

    assert (unknown.code, missing.code) == (2, 2)
    assert "there is no meta-prompt `reflect-secton` (did you mean `reflect-section`?)" in (
        unknown.err
    )
    assert missing.err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            ("list", "--store", ".", "--project", "x"),
            "--project and --store: both say where the store is",
        ),
        (
            ("reset", "--store", ".", "--project", "x"),
            "--project and --store: both say where the store is",
        ),
        (("diff", "meta-prompts", "--store", "."), "--store: the files of DIR are not compared"),
        (
            ("diff", "meta-prompts", "--project", "x"),
            "--project: the files of DIR are not compared",
        ),
    ],
)
def test_an_option_that_would_not_be_looked_at_is_refused(
    console: Console, project: Path, options: tuple[str, ...], says: str
) -> None:
    ended = console("meta", *options)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"promptgraft: {says}")
    assert ended.err.endswith("; leave one out\n")
