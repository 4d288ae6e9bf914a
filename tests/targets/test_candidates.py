"""Digest and merge of candidates of several prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgraft import (
    MarkdownSection,
    Prompt,
    PromptResponse,
    PromptTemplate,
    RolloutFeedback,
    ScriptedAdapter,
)
from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.overrides import OverrideAddress
from promptgraft.targets import (
    Candidate,
    PartOf,
    PromptRollout,
    PromptTarget,
    Scoring,
    SectionModule,
)
from promptgraft.targets.types import plain_changes, read_changes

# Sections of one path in all prompts, and addresses of which one begins another.
ADDRESSES = ("team/a", "team/a/b", "team/c")
PATHS = (("rules",), ("tone",))
PARTS = tuple(PartOf(at, SectionModule(path)) for at in ADDRESSES for path in PATHS)
TEXTS = ("Be brief.", "Be kind.", "List facts.\nThen stop.")


def _prompt(address: str) -> Prompt[Any]:
    ns, _, key = address.rpartition("/")
    sections = [
        MarkdownSection(title="Rules", key="rules", template="Rules."),
        MarkdownSection(title="Tone", key="tone", template="Tone."),
    ]
    return Prompt(PromptTemplate[Any](ns=ns, key=key, sections=sections))


def _flow(*_: Any, **__: Any) -> PromptResponse[object]:
    raise AssertionError


def target_of(addresses: Sequence[str] = ADDRESSES) -> PromptTarget:
    prompts = {address: _prompt(address) for address in addresses}
    base = {}
    for address in addresses:
        ns, _, key = address.rpartition("/")
        base[address] = OverrideAddress(ns, key, "latest").empty()
    return PromptTarget(
        rollout=PromptRollout(
            prompts=prompts,
            base=base,
            adapter=ScriptedAdapter([]),
            flow=_flow,
            scoring=Scoring(
                feedback_fn=lambda *_: RolloutFeedback(score=0, feedback=""),
                max_example_chars=100,
            ),
        ),
        modules=tuple(part for part in PARTS if part.address in addresses),
        max_part_chars=100,
        max_task_examples=5,
        store=None,
    )


TARGET = target_of()
CHANGES = st.dictionaries(st.sampled_from(PARTS), st.sampled_from(TEXTS))


def made(changes: Mapping[PartOf, str], onto: Candidate | None = None) -> Candidate:
    """Return a candidate with changes that are made in their order."""
    found = onto or TARGET.baseline()
    for part, text in changes.items():
        if TARGET.text(part, found) != text:
            found = TARGET.graft(found, part, text, parents=(0,), examples=())
    return found


def merged(base: Candidate, first: Candidate, second: Candidate) -> Candidate:
    return TARGET.merge(base, first, second, parents=(1, 2), examples=())


def texts(candidate: Candidate) -> dict[str, str]:
    return {part.name: TARGET.text(part, candidate) for part in PARTS}


@given(changes=CHANGES, chance=st.randoms(use_true_random=False))
def test_the_digest_does_not_depend_on_the_order_of_changes(
    changes: dict[PartOf, str], chance: Any
) -> None:
    mixed = list(changes.items())
    chance.shuffle(mixed)
    first, second = made(changes), made(dict(mixed))
    assert first.digest == second.digest
    assert first.changes == second.changes
    assert list(first.changes) == sorted(ADDRESSES)


@given(one=CHANGES, other=CHANGES)
def test_digests_are_equal_for_equal_texts_only(
    one: dict[PartOf, str], other: dict[PartOf, str]
) -> None:
    first, second = made(one), made(other)
    assert (first.digest == second.digest) is (texts(first) == texts(second))


@given(changes=CHANGES, sides=st.lists(st.booleans(), min_size=len(PARTS), max_size=len(PARTS)))
def test_disjoint_changes_always_merge_whichever_comes_first(
    changes: dict[PartOf, str], sides: list[bool]
) -> None:
    base, whole = TARGET.baseline(), made(changes)
    mine = dict(zip(PARTS, sides, strict=True))
    first = made({part: text for part, text in changes.items() if mine[part]})
    second = made({part: text for part, text in changes.items() if not mine[part]})
    for found in (merged(base, first, second), merged(base, second, first)):
        assert found.digest == whole.digest
        assert found.changes == whole.changes


@given(before=CHANGES, one=CHANGES, other=CHANGES)
def test_each_part_is_as_the_side_has_it_that_changed_it(
    before: dict[PartOf, str], one: dict[PartOf, str], other: dict[PartOf, str]
) -> None:
    base = made(before)
    first, second = made(one, base), made(other, base)
    found, (old, mine, theirs) = merged(base, first, second), map(texts, (base, first, second))
    for name, text in texts(found).items():
        assert text == (theirs[name] if mine[name] == old[name] else mine[name])


@given(part=st.sampled_from(PARTS), text=st.sampled_from(TEXTS))
def test_a_change_of_one_part_leaves_its_namesakes_alone(part: PartOf, text: str) -> None:
    child = made({part: text})
    before, after = texts(TARGET.baseline()), texts(child)
    assert {name for name in before if before[name] != after[name]} == {part.name}
    assert [at for at, override in child.overrides.items() if override] == [part.address]
    assert child.changed == part.name


@given(changes=CHANGES)
def test_changes_survive_being_written_and_read(changes: dict[PartOf, str]) -> None:
    found = made(changes).changes
    assert read_changes(plain_changes(found), "latest", where="x") == found


@given(texts=st.dictionaries(st.text(), st.text()))
def test_texts_survive_being_written_and_read(texts: dict[str, str]) -> None:
    found = Candidate(changes=texts)
    assert read_changes(plain_changes(found.changes), "latest", where="x") == found.changes
    assert found.digest == Candidate(changes=dict(reversed(texts.items()))).digest


@pytest.mark.parametrize("data", [[], "x", None, {"a/b": 1}, {"a/b": {"x": []}}, {"a b": {}}])
def test_what_are_no_changes_is_refused(data: object) -> None:
    with pytest.raises(DataFormatError, match=r"^entries"):
        read_changes(data, "latest", where="entries")


def test_all_names_are_different_and_those_of_one_prompt_have_no_address() -> None:
    assert len({part.name for part in PARTS}) == len(PARTS)
    assert PARTS[0].name == "team/a#section rules"
    assert PARTS[0].owner == "team/a#section rules"


def test_the_one_override_of_several_is_refused_with_their_addresses() -> None:
    with pytest.raises(ConfigError, match="team/a, team/a/b, team/c"):
        _ = TARGET.baseline().override
    assert target_of(["team/c"]).baseline().override.prompt_key == "c"


def test_a_part_of_another_prompt_is_no_part() -> None:
    alone = target_of(["team/c"])
    baseline = alone.baseline()
    with pytest.raises(TypeError, match="expected a part of team/c"):
        alone.text(PARTS[0], baseline)


def test_a_candidate_has_its_parent_and_changes_by_the_names_of_the_specification() -> None:
    alone = target_of(["team/c"])
    baseline = alone.baseline()
    child = alone.graft(baseline, alone.modules[0], "Other.", parents=(3,), examples=())
    assert (baseline.parent_index, child.parent_index) == (None, 3)
    assert baseline.section_overrides == {}
    assert child.section_overrides == child.section_bodies != {}
    assert child.generated_examples == ()
