"""Merges: what two specialists know ends up in one candidate, or nowhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgraft import (
    Data,
    EventBus,
    GepaConfig,
    GepaExample,
    GepaOptimizer,
    GepaResult,
    Limits,
    MarkdownSection,
    MemoryJournal,
    OptimizationContext,
    Prompt,
    PromptResponse,
    PromptTemplate,
    RenderedPrompt,
    RolloutFeedback,
    ScriptedAdapter,
    Strategy,
)
from promptgraft.adapters.scripted import Reply
from promptgraft.algorithms.gepa import (
    GepaMergeAccepted,
    GepaMergeAttempted,
    GepaMergeRejected,
    GepaMutationProposed,
    GepaRolloutCompleted,
)
from promptgraft.algorithms.gepa.merge import ancestors_of, have_gained, triples, won_lost_tied
from promptgraft.ground.serde import HexDigest, digest
from promptgraft.overrides import (
    AddedTaskExample,
    PromptOverride,
    RemovedTaskExample,
    SectionOverride,
    TaskExampleOverride,
    ToolExampleOverride,
)
from promptgraft.overrides.parts.entry import Entry
from promptgraft.runtime import SessionProtocol
from promptgraft.search.scores import Score
from promptgraft.targets.prompt_target import merged_entries
from promptgraft.targets.types import Candidate

EMPTY = PromptOverride(ns="n", prompt_key="k", tag="t")
HASH = HexDigest("0" * 64)
TEMPLATE: PromptTemplate[object] = PromptTemplate(
    ns="tests",
    key="merge",
    sections=(
        MarkdownSection(title="Left", key="left", template="Nothing."),
        MarkdownSection(title="Right", key="right", template="Nothing."),
        MarkdownSection(title="Ask", key="ask", template="$side"),
    ),
)


@attrs.frozen
class Asked:
    side: str
    number: int


# What only the source answers keeps it on the frontier, so that both specialists descend from it.
SIDES = ("left", "right", "left", "right", "plain")
EXAMPLES = tuple(
    GepaExample(id=f"e{number}", params=(Asked(SIDES[number % 5], number),)) for number in range(30)
)


def bodies(**texts: str) -> PromptOverride:
    return EMPTY.holding(
        SectionOverride(path=(name,), expected_hash=HASH, body=text) for name, text in texts.items()
    )


def holding(*entries: Entry) -> PromptOverride:
    return EMPTY.holding(entries)


def candidate(*parents: int, **texts: str) -> Candidate:
    return Candidate(changes={"a/b": bodies(**texts)}, parents=parents, digest=digest(texts))


def texts(override: PromptOverride) -> dict[str, str]:
    return {path[0]: section.body for path, section in override.sections.items()}


def test_a_part_is_taken_from_the_side_that_changed_it() -> None:
    before = bodies(a="0", b="0", c="0", d="0")
    better = bodies(a="1", b="0", c="1", d="0")
    other = bodies(a="0", b="2", c="2", d="0")
    merged = EMPTY.holding(merged_entries(before, better, other))
    assert texts(merged) == {"a": "1", "b": "2", "c": "1", "d": "0"}


def test_a_side_that_goes_back_to_the_source_has_changed_the_part() -> None:
    merged = EMPTY.holding(
        merged_entries(bodies(a="0", b="0"), bodies(b="0"), bodies(a="0", b="2"))
    )
    assert texts(merged) == {"b": "2"}


def test_examples_of_every_kind_are_merged_like_sections() -> None:
    def call(index: int, text: str) -> ToolExampleOverride:
        return ToolExampleOverride(
            tool_name="search", example_index=index, expected_hash=HASH, description=text
        )

    def task(key: str, text: str) -> TaskExampleOverride:
        return TaskExampleOverride(path=("cases", key), expected_hash=HASH, objective=text)

    def added(key: str) -> AddedTaskExample:
        return AddedTaskExample(
            container_path=("cases",),
            example_key=key,
            expected_hash=HASH,
            objective=key,
            outcome_json='""',
            steps_json="[]",
        )

    removed = RemovedTaskExample(path=("cases", "old"), expected_hash=HASH)
    before = holding(call(0, "0"), call(1, "0"), task("a", "0"), task("b", "0"), added("there"))
    better = holding(
        call(0, "1"), call(1, "0"), task("a", "0"), task("b", "1"), added("there"), added("x")
    )
    other = holding(call(0, "0"), call(1, "2"), task("a", "2"), task("b", "2"), added("y"), removed)
    merged = merged_entries(before, better, other)
    assert holding(*merged) == holding(
        call(0, "1"), call(1, "2"), task("a", "2"), task("b", "1"), added("x"), added("y"), removed
    )


sides = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("012"))


@given(before=sides, better=sides, other=sides)
def test_a_merge_holds_nothing_that_no_side_holds(
    before: dict[str, str], better: dict[str, str], other: dict[str, str]
) -> None:
    merged = texts(
        EMPTY.holding(merged_entries(bodies(**before), bodies(**better), bodies(**other)))
    )
    for name in "abcd":
        now = merged.get(name)
        assert now in {better.get(name), other.get(name)}
        if better.get(name) == other.get(name):
            assert now == better.get(name)


def test_ancestors_are_found_through_both_parents() -> None:
    pool = [candidate(), candidate(0), candidate(0), candidate(1, 2), candidate(3)]
    assert ancestors_of(pool, 4) == {0, 1, 2, 3}
    assert ancestors_of(pool, 0) == frozenset()


def test_a_long_line_of_ancestors_is_walked_without_recursion() -> None:
    pool = [candidate(), *(candidate(number) for number in range(5_000))]
    assert len(ancestors_of(pool, 5_000)) == 5_000


def test_only_pairs_with_a_common_ancestor_that_neither_is_are_merged() -> None:
    pool = [candidate(), candidate(0), candidate(0), candidate(1)]
    frontier = dict.fromkeys(range(4), 1)
    found = {(triple.ancestor, triple.first, triple.second) for triple in triples(pool, frontier)}
    assert found == {(0, 1, 2), (0, 2, 3)}


def test_a_pair_is_merged_over_each_of_its_ancestors() -> None:
    pool = [candidate(), candidate(0), candidate(1), candidate(1)]
    found = [triple.ancestor for triple in triples(pool, {2: 1, 3: 1})]
    assert found == [1, 0]


def test_examples_are_told_by_which_of_two_candidates_is_better() -> None:
    first, second = [1.0, 0.0, 0.5, 0.2, 0.9], [0.0, 1.0, 0.5, 0.1, 0.1]
    assert won_lost_tied([0, 1, 2, 3], first, second) == ([0, 3], [1], [2])


def test_a_merge_is_first_tried_on_wins_of_both_sides_and_on_ties() -> None:
    tried = [
        event.record.example_id
        for event in Run(merge=True).events
        if isinstance(event, GepaRolloutCompleted) and "/merge/" in event.position
    ]
    sides = Counter(SIDES[int(name[1:]) % 5] for name in tried[:5])
    assert sides == {"left": 2, "right": 2, "plain": 1}


@pytest.mark.parametrize(
    ("ancestor", "pair", "gained"),
    [
        ((0.5, 0.5), ((0.5, 0.5), (0.6, 0.6)), True),
        ((0.5, 0.5), ((0.4, 0.4), (0.9, 0.9)), False),
        ((0.5, 0.5), ((0.9, 0.9), (None, None)), False),
        ((None, None), ((None, None), (0.1, 0.1)), True),
        # Evaluated on different examples: the easy ones of the ancestor say nothing of the pair.
        ((1.0, 0.0), ((None, 0.5), (None, 0.5)), True),
        ((0.0, 1.0), ((None, 0.5), (None, 1.0)), False),
        ((1.0, None), ((None, 1.0), (1.0, None)), False),
    ],
)
def test_nothing_is_merged_over_an_ancestor_that_is_better_on_the_same_examples(
    ancestor: Sequence[Score], pair: Sequence[Sequence[Score]], gained: bool
) -> None:
    assert have_gained(ancestor, pair) is gained


def feedback(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    del example, session
    return RolloutFeedback(score=float(response.text == "yes"), feedback="no")


def answer(rendered: RenderedPrompt[object]) -> str:
    side = rendered.sections[2].text
    if side == "plain":
        return "no" if "All about" in rendered.text else "yes"
    known = rendered.sections[0 if side == "left" else 1].text
    return "yes" if known == f"All about {side}." else "no"


def reflect(rendered: RenderedPrompt[object]) -> str:
    """Know one side at a time: what the other side has learned makes it forget its own."""
    side = "left" if "section left" in rendered.sections[1].text else "right"
    if "All about" in rendered.text:
        return "I have nothing to add."
    return f"```instruction\nAll about {side}.\n```"


class Run:
    """One run of two specialists."""

    def __init__(
        self,
        *,
        merge: bool,
        budget: int = 400,
        journal: MemoryJournal | None = None,
        seed: int = 0,
        overlap: int = 0,
        reply: Reply = answer,
        reflection: Reply = reflect,
    ) -> None:
        self.events: list[object] = []
        self.task = ScriptedAdapter(reply)
        bus = EventBus()
        bus.subscribe(object, self.events.append)
        context = OptimizationContext(
            self.task,
            reflection_adapter=ScriptedAdapter(reflection),
            event_bus=bus,
            journal=journal,
        )
        config = GepaConfig(
            rollout_budget=budget,
            minibatch_size=6,
            pareto_set_size=10,
            target_section_paths=(("left",), ("right",)),
            training_examples=EXAMPLES,
            feedback_fn=feedback,
            enable_merge=merge,
            seed=seed,
            data=Data(held_out=()),
            strategy=Strategy(preset="paper", published_question=False, merge_overlap=overlap),
            limits=Limits(max_failed_reflections=100),
        )
        self.result: GepaResult = GepaOptimizer(context, config).optimize(Prompt(TEMPLATE))

    def told(self, kind: type) -> int:
        return sum(isinstance(event, kind) for event in self.events)


def test_two_specialists_are_merged_into_one_that_knows_both() -> None:
    run = Run(merge=True)
    result = run.result
    assert result.best_pareto_mean == 0.8
    assert len(result.parents[result.best_index]) == 2
    assert result.accepted_merges == 1
    assert result.gains["merge"] > 0
    assert run.told(GepaMergeAttempted) == run.told(GepaMergeAccepted) == 1
    assert run.task.calls == result.total_rollouts


def test_without_merging_nobody_knows_both() -> None:
    run = Run(merge=False)
    assert run.result.best_pareto_mean == 0.4
    assert run.result.accepted_merges == 0
    assert run.told(GepaMergeAttempted) == 0


def test_merges_stay_within_the_budget_and_replay_the_same() -> None:
    for budget in range(40, 180, 60):
        journal = MemoryJournal()
        first = Run(merge=True, budget=budget, journal=journal)
        assert first.task.calls == first.result.total_rollouts <= budget
        again = Run(merge=True, budget=budget, journal=journal)
        assert again.result == first.result
        assert again.task.calls == 0
        assert first.told(GepaMergeAttempted) == first.told(GepaMergeAccepted) + first.told(
            GepaMergeRejected
        )


def test_a_combination_is_tried_once_whether_a_mutation_or_a_merge_comes_upon_it() -> None:
    """Both specialists find each other's text, so mutations reach what merges would make."""

    def propose(rendered: RenderedPrompt[object]) -> str:
        side = "left" if "section left" in rendered.sections[1].text else "right"
        return f"```instruction\nAll about {side}.\n```"

    def both_are_wrong(rendered: RenderedPrompt[object]) -> str:
        return "no" if rendered.text.count("All about") == 2 else answer(rendered)

    for seed, by_merge in ((0, False), (3, True)):
        run = Run(merge=True, budget=200, seed=seed, reply=both_are_wrong, reflection=propose)
        proposed = sum(
            isinstance(event, GepaMutationProposed) and texts_before(run, event) == 1
            for event in run.events
        )
        assert (proposed, run.told(GepaMergeAttempted)) == ((0, 1) if by_merge else (1, 0))


def texts_before(run: Run, event: GepaMutationProposed) -> int:
    """Return how many sides the parent of a proposal knows."""
    return len(run.result.candidates[event.parent].override.sections)
