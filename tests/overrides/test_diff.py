"""What overrides change, as people read it."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgraft.errors import InvalidOverrideError
from promptgraft.overrides import SkipReason, diff_bodies, diff_override, diff_revisions
from promptgraft.testing.prompts import LICENCE, PROMPT, RULES, TASK, TONE, entry, override_of

NO_NEWLINE = "\\ No newline at end of text\n"

lines = st.lists(st.sampled_from(["a", "b", "+c", "-d", "", "\\", "\r", "\u2028x", "@@"]))
texts = st.builds(lambda parts, end: "\n".join(parts) + end, lines, st.sampled_from(["", "\n"]))


def patched(before: str, diff: str) -> str:
    """Apply a unified diff whose every hunk is checked."""
    old = before.split("\n")
    old_lines = [f"{line}\n" for line in old[:-1]] + ([old[-1]] if old[-1] else [])
    new_lines: list[str] = []
    at = 0
    body = diff.split("\n")[2:-1]
    for index, line in enumerate(body):
        sign, text = line[:1], line[1:]
        last = index + 1 < len(body) and body[index + 1] == NO_NEWLINE[:-1]
        whole = text if last else f"{text}\n"
        if line.startswith("@@ -"):
            start, _, count = line.split(" ")[1][1:].partition(",")
            first = int(start) - (0 if count == "0" else 1)
            new_lines += old_lines[at:first]
            at = first
        elif sign in " -":
            assert old_lines[at] == whole
            at += 1
            new_lines += [whole] if sign == " " else []
        elif sign == "+":
            new_lines.append(whole)
        else:
            assert line == NO_NEWLINE[:-1]
    return "".join(new_lines + old_lines[at:])


def test_a_diff_names_the_part_and_shows_lines() -> None:
    diff = diff_bodies("Be kind.\nBe brief.\n", "Be kind.\nBe exact.\n", part="section tone")

    assert diff == (
        "--- section tone (before)\n"
        "+++ section tone (after)\n"
        "@@ -1,2 +1,2 @@\n"
        " Be kind.\n"
        "-Be brief.\n"
        "+Be exact.\n"
    )


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        ("a", "b", f"-a\n{NO_NEWLINE}+b\n{NO_NEWLINE}"),
        ("a\n", "a", f"-a\n+a\n{NO_NEWLINE}"),
        ("a", "a\n", f"-a\n{NO_NEWLINE}+a\n"),
        ("a", "a\nb", f"-a\n{NO_NEWLINE}+a\n+b\n{NO_NEWLINE}"),
        ("", "a", f"+a\n{NO_NEWLINE}"),
        ("a\n", "", "-a\n"),
        ("", "\n", "+\n"),
        ("a\r\n", "a\n", "-a\r\n+a\n"),
    ],
)
def test_a_missing_last_newline_is_said(before: str, after: str, changes: str) -> None:
    diff = diff_bodies(before, after, part="x")
    assert diff.split("@@\n", 1)[1] == changes


def test_equal_bodies_have_no_diff() -> None:
    assert diff_bodies("a", "a", part="x") == ""


@given(texts, texts)
def test_a_diff_applied_to_the_one_body_gives_the_other(before: str, after: str) -> None:
    diff = diff_bodies(before, after, part="x")
    assert diff.endswith("\n") or not diff
    assert (patched(before, diff) if diff else before) == after


def test_an_override_is_compared_with_the_source_in_the_order_of_the_prompt() -> None:
    override = override_of(
        PROMPT, entry(PROMPT, TONE, "Be exact."), entry(PROMPT, TASK, PROMPT.section_body(TASK))
    )
    same, changed = diff_override(PROMPT, override)

    assert (same.part, same.before, same.after, same.text, same.state) == (
        "section task",
        PROMPT.section_body(TASK),
        PROMPT.section_body(TASK),
        "",
        None,
    )
    assert (changed.part, changed.before, changed.after) == (
        "section tone",
        "Be kind.",
        "Be exact.",
    )
    assert "-Be kind.\n" in changed.text
    assert "+Be exact.\n" in changed.text


def test_entries_that_do_not_apply_say_why_and_those_of_lost_parts_come_last() -> None:
    override = override_of(
        PROMPT,
        entry(PROMPT, RULES, "gone"),
        entry(PROMPT, LICENCE, "fixed"),
        entry(PROMPT, TONE, "stale"),
        entry(PROMPT, TASK, "lost"),
    )
    changed = PROMPT.without(RULES).edited(TONE, "Be kinder.")

    assert [(diff.part, diff.before, diff.state) for diff in diff_override(changed, override)] == [
        ("section task", PROMPT.section_body(TASK), SkipReason.LOST_PLACEHOLDER),
        ("section tone", "Be kinder.", SkipReason.STALE),
        ("section licence", "Fixed.", SkipReason.NOT_OVERRIDABLE),
        ("section task/rules", None, SkipReason.UNKNOWN_PART),
    ]
    assert diff_override(changed, override)[-1].text.endswith(f"+gone\n{NO_NEWLINE}")


def test_nothing_kept_differs_in_nothing() -> None:
    assert diff_override(PROMPT, None) == ()
    assert diff_override(PROMPT, override_of(PROMPT)) == ()


def test_an_override_is_not_compared_with_another_prompt() -> None:
    other = attrs.evolve(PROMPT, key="other")
    with pytest.raises(InvalidOverrideError, match="tests/stores/other"):
        diff_override(other, override_of(PROMPT, entry(PROMPT, TONE, "x")))


def test_two_revisions_differ_in_what_was_added_removed_changed_or_bound_anew() -> None:
    changed = PROMPT.edited(TASK, "$question, please")
    before = override_of(
        PROMPT,
        entry(PROMPT, TONE, "old"),
        entry(PROMPT, RULES, "same"),
        entry(PROMPT, TASK, "$question!"),
    )
    after = override_of(
        PROMPT,
        entry(PROMPT, RULES, "same"),
        entry(PROMPT, LICENCE, "new"),
        entry(changed, TASK, "$question!"),
    )
    found = diff_revisions(before, after)

    assert [(diff.part, diff.before, diff.after, diff.state) for diff in found] == [
        ("section licence", None, "new", None),
        ("section task", "$question!", "$question!", None),
        ("section tone", "old", None, None),
    ]
    assert found[1].text == ""
    assert diff_revisions(before, before) == ()
