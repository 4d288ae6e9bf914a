"""Which overrides apply to a source, and why the others do not."""

from __future__ import annotations

import attrs
import pytest

from promptgraft.errors import InvalidOverrideError
from promptgraft.overrides import PromptOverride, SectionPath, SkipReason
from promptgraft.overrides.resolution import is_fresh, resolve_override
from promptgraft.testing import FakePrompt
from promptgraft.testing.prompts import LICENCE, PROMPT, RULES, TASK, TONE, entry, override_of


def test_nothing_applies_where_nothing_is_kept() -> None:
    for nothing in (None, override_of(PROMPT)):
        resolution = resolve_override(PROMPT.descriptor, nothing)
        assert (resolution.sections, resolution.applied, resolution.skipped) == ({}, (), ())


def test_a_fresh_override_applies() -> None:
    fresh = entry(PROMPT, TONE, "fresh")
    resolution = resolve_override(PROMPT.descriptor, override_of(PROMPT, fresh))

    assert resolution.sections == {TONE: fresh}
    assert [(applied.part, applied.expected_hash) for applied in resolution.applied] == [
        ("section tone", fresh.expected_hash)
    ]
    assert resolution.skipped == ()
    assert is_fresh(PROMPT.descriptor, fresh)


@pytest.mark.parametrize(
    ("prompt", "path", "body", "reason"),
    [
        pytest.param(PROMPT.edited(TONE, "new"), TONE, "x", SkipReason.STALE, id="stale"),
        pytest.param(PROMPT.without(RULES), RULES, "x", SkipReason.UNKNOWN_PART, id="gone"),
        pytest.param(PROMPT, LICENCE, "x", SkipReason.NOT_OVERRIDABLE, id="not overridable"),
        pytest.param(PROMPT, TASK, "$$question", SkipReason.LOST_PLACEHOLDER, id="placeholder"),
    ],
)
def test_an_override_that_does_not_fit_is_skipped_with_the_reason(
    prompt: FakePrompt, path: SectionPath, body: str, reason: SkipReason
) -> None:
    unfit = entry(PROMPT, path, body)
    fresh = entry(PROMPT, TONE, "fresh")
    kept = override_of(PROMPT, unfit) if path == TONE else override_of(PROMPT, unfit, fresh)
    resolution = resolve_override(prompt.descriptor, kept)

    (skipped,) = resolution.skipped
    section = prompt.descriptor.section(path)
    assert skipped.part == f"section {'/'.join(path)}"
    assert skipped.reason is reason
    assert skipped.expected_hash == unfit.expected_hash
    assert skipped.found_hash == (section and section.content_hash)
    assert path not in resolution.sections
    assert (TONE in resolution.sections) == (path != TONE)
    assert not is_fresh(prompt.descriptor, unfit)


def test_an_override_is_filed_under_its_own_path() -> None:
    with pytest.raises(InvalidOverrideError, match=r"section tone is filed under \('task',\)"):
        PromptOverride(ns="a", prompt_key="b", tag="c", sections={TASK: entry(PROMPT, TONE, "x")})


def test_the_syntax_is_part_of_what_an_override_is_bound_to() -> None:
    dollar = FakePrompt(bodies={TONE: "Be kind."})
    other = [syntax for syntax in type(dollar.syntax) if syntax is not dollar.syntax]
    jinja = attrs.evolve(dollar, syntax=other[0])

    assert not is_fresh(jinja.descriptor, entry(dollar, TONE, "x"))
