"""Meta-prompts as files: written out, edited, read back with every check."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from optimizers.worlds import Run, config
from promptgraft.algorithms.gepa.prompts import META_PROMPTS
from promptgraft.errors import DataFormatError
from promptgraft.ground.serde import HexDigest
from promptgraft.overrides import InMemoryPromptOverridesStore, OverrideAddress, SectionOverride
from promptgraft.project.meta_prompts import (
    SHIPPED,
    checked_edits,
    empty,
    meta_text,
    read_copies,
)
from promptgraft.targets.types import MetaPrompt

SECTION = META_PROMPTS[MetaPrompt.SECTION]


def lay_out(folder: Path) -> Path:
    for name, template in SHIPPED.items():
        (folder / f"{name}.md").write_text(meta_text(template, None), "utf-8")
    return folder


def edit(folder: Path, name: str, before: str, after: str) -> None:
    path = folder / f"{name}.md"
    text = path.read_text("utf-8")
    assert text.count(before) == 1
    path.write_text(text.replace(before, after), "utf-8")


def faults_in(folder: Path) -> list[str]:
    with pytest.raises(DataFormatError) as caught:
        checked_edits(read_copies(folder))
    assert not any("\n" in fault for fault in caught.value.faults)
    return [fault.removeprefix(f"{folder}/") for fault in caught.value.faults]


def test_copies_that_nobody_edited_change_nothing(tmp_path: Path) -> None:
    copies = read_copies(lay_out(tmp_path))

    assert {copy.template.key for copy in copies} >= {*META_PROMPTS}
    assert not any(copy.outdated or copy.edits for copy in copies)


def test_the_hashes_in_a_copy_are_those_that_overrides_are_bound_to() -> None:
    for template in SHIPPED.values():
        text = meta_text(template, None)
        for section in template.descriptor.sections:
            assert f'  {section.path[0]}: "{section.content_hash}"\n' in text


bodies = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=60).filter(
    lambda text: text.strip("\n") == text and text.strip() != ""
)


@settings(max_examples=40)
@example(body="## A heading {of its own}\n\n# Another\n---\n```\n# fenced\n```")
@example(body="- a\n---\nprompt: x")
@given(body=bodies)
def test_any_text_comes_back_from_a_copy_as_it_was_written(
    body: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    role = SECTION.descriptor.section(("role",))
    assert role is not None
    entry = SectionOverride(path=("role",), expected_hash=role.content_hash, body=body)
    stored = empty(SECTION).holding([entry])
    folder = tmp_path_factory.mktemp("meta")
    (folder / "any.md").write_text(meta_text(SECTION, stored), "utf-8")

    (copy,) = read_copies(folder)

    assert checked_edits([copy]) == (stored,)


def test_windows_line_ends_are_no_edit(tmp_path: Path) -> None:
    path = lay_out(tmp_path) / "reflect-section.md"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    copies = read_copies(tmp_path)
    assert len(copies) == len(SHIPPED)
    assert not any(copy.edits for copy in copies)


def test_an_edit_is_an_override_of_that_section_only(tmp_path: Path) -> None:
    edit(lay_out(tmp_path), "reflect-section", "Keep what already works.", "Be bold.")

    edits = {found.prompt_key: found for found in checked_edits(read_copies(tmp_path)) if found}

    (entry,) = edits["reflect-section"].entries()
    assert isinstance(entry, SectionOverride)
    assert entry.path == ("task",)
    assert "Be bold." in entry.body
    assert list(edits) == ["reflect-section"]
    # What is in the store is what the next copy starts from.
    assert "Be bold." in meta_text(SECTION, edits["reflect-section"])


def test_every_fault_of_every_file_is_a_line_with_its_place(tmp_path: Path) -> None:
    folder = lay_out(tmp_path)
    edit(folder, "reflect-section", "$current\n", "\n")
    edit(folder, "reflect-section", "# Types {#schema}\n\n$schema\n", "")
    edit(folder, "reflect-tool", "{#problem}", "{#problems}")
    edit(folder, "reflect-tool", "# Task {#task}", "# Role {#role}")
    edit(folder, "reflect-tool-example", "prompt: promptgraft/gepa/", "prompt: promptgraft/gepa/x")
    edit(folder, "reflect-task-example", "\n# Role {#role}", "Hello.\n# Role {#role}")
    edit(folder, "reflect-output-field", "---\n\n# Role", "\n\n# Role")
    edit(folder, "generate-task-example", "  role: ", "  rule: ")

    with pytest.raises(DataFormatError) as caught:
        read_copies(folder)

    faults = [fault.removeprefix(f"{folder}/") for fault in caught.value.faults]
    expected = """
generate-task-example.md:5: shipped.role: expected the hash of the shipped text, found nothing; wri
reflect-output-field.md:1: expected a line `---` that ends the front matter
reflect-section.md: section `schema` is missing; restore its heading `# … {#schema}` and its text
reflect-task-example.md:19: text before the first heading belongs to no section; move it into one
reflect-tool-example.md:4: prompt: there is no meta-prompt `xreflect-tool-example` (did you mean
reflect-tool.md: section `problem` is missing; restore its heading `# … {#problem}` and its text
reflect-tool.md: section `task` is missing; restore its heading `# … {#task}` and its text
reflect-tool.md:70: section `problems` is not in the meta-prompt (did you mean `problem`?); it has
reflect-tool.md:78: section `role` appears twice; remove one of them
"""
    for fault, start in zip(faults, expected.strip().split("\n"), strict=True):
        assert fault.startswith(start)


def test_a_lost_placeholder_and_an_empty_section_are_refused_together(tmp_path: Path) -> None:
    folder = lay_out(tmp_path)
    edit(folder, "reflect-section", "\n$current\n", "\n")
    edit(folder, "reflect-tool", "$examples", "")

    lost, emptied = faults_in(folder)

    assert lost.startswith("reflect-section.md: section current lost the placeholder `$current`")
    assert emptied.startswith("reflect-tool.md: section examples")


def test_two_copies_of_one_meta_prompt_are_refused(tmp_path: Path) -> None:
    folder = lay_out(tmp_path)
    (folder / "zz.md").write_bytes((folder / "reflect-tool.md").read_bytes())
    (fault,) = faults_in(folder)
    assert fault.startswith("zz.md: a copy of the same meta-prompt as")


def test_other_markdown_files_are_passed_over(tmp_path: Path) -> None:
    folder = lay_out(tmp_path)
    (folder / "README.md").write_text("# Read me {#role}\n", "utf-8")
    (folder / "prompt.md").write_text("---\nns: support\n---\n# Rules\n", "utf-8")
    assert len(read_copies(folder)) == len(SHIPPED)


def test_a_folder_without_copies_says_how_to_make_them(tmp_path: Path) -> None:
    (fault,) = faults_in(tmp_path)
    assert "`promptgraft meta write" in fault


def outdate(folder: Path, name: str, section: str) -> None:
    """Let a copy look as if it had been written from an older shipped text."""
    path = folder / f"{name}.md"
    lines = path.read_text("utf-8").split("\n")
    place = next(at for at, line in enumerate(lines) if line.startswith(f"  {section}: "))
    lines[place] = f'  {section}: "{"0" * 64}"'
    path.write_text("\n".join(lines), "utf-8")


def test_an_edit_of_an_older_shipped_text_is_refused_and_named(tmp_path: Path) -> None:
    outdate(lay_out(tmp_path), "reflect-section", "task")

    (copy,) = (copy for copy in read_copies(tmp_path) if copy.template is SECTION)
    assert copy.outdated == ("task",)
    (fault,) = faults_in(tmp_path)
    assert fault.startswith(
        "reflect-section.md: section `task`: the shipped text has changed since the copy was "
        "written; write new copies to another folder with `promptgraft meta write`"
    )


def test_a_plan_warns_of_a_meta_prompt_whose_shipped_text_has_changed() -> None:
    store = InMemoryPromptOverridesStore()
    before = Run(config(), overrides_store=store).plan().warnings
    old = SectionOverride(path=("task",), expected_hash=HexDigest("0" * 64), body="$limits")
    address = OverrideAddress(SECTION.ns, SECTION.key, "latest")
    store.mutate(address, lambda present: present.holding([old]))

    [warning] = set(Run(config(), overrides_store=store).plan().warnings) - {*before}
    assert warning == (
        "meta-prompt `reflect-section`: section task (stale): the override is not applied, because "
        "the shipped text is another one now; see `promptgraft meta diff`, then "
        "`promptgraft meta reset reflect-section`"
    )
