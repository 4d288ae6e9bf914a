"""Who becomes a parent, what is mutated, and what it is tried on."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from further import thorough
from optimizers.worlds import NOTES, QUESTION, RULES, config, examples, optimize
from promptgraft.algorithms.gepa import (
    GepaConfig,
    GepaExample,
    GepaMutationProposed,
    GepaRolloutCompleted,
)
from promptgraft.algorithms.gepa.select import MinibatchChoice, Minibatches, TrainingRollouts, Turns
from promptgraft.ground.serde import digest_text
from promptgraft.overrides import PromptOverride
from promptgraft.runtime import Session
from promptgraft.search.frontier import dominates, drawn
from promptgraft.search.population import Pool
from promptgraft.search.scores import Score, Scorer, mean_score
from promptgraft.targets.part_kinds import SectionModule
from promptgraft.targets.types import Candidate, Module

Row = tuple[Score, ...]

MODULES = tuple(SectionModule(path) for path in (RULES, QUESTION, NOTES))


def candidate(number: int) -> Candidate:
    override = PromptOverride(ns="toy", prompt_key="words", tag="latest", sections={})
    return Candidate(changes={"a/b": override}, digest=digest_text(str(number)))


def pool_of(rows: Sequence[Row]) -> Pool:
    pool = Pool()
    for number, row in enumerate(rows):
        assert pool.add(candidate(number), row) == number
    return pool


def expected_frontier(rows: Sequence[Row]) -> tuple[tuple[int, int], ...]:
    """Algorithm 2 of GEPA, as it is written: from all scores, every time."""
    leaders: list[set[int]] = []
    for column in zip(*rows, strict=True):
        scored = [score for score in column if score is not None]
        best = max(scored) if scored else None
        leaders.append({k for k, score in enumerate(column) if scored and score == best})
    union = set().union(*leaders)
    kept = {
        k
        for k in union
        if not any(is_better_everywhere(rows[other], rows[k]) for other in union - {k})
    }
    weights = {k: sum(k in group for group in leaders) for k in kept}
    return tuple(sorted(weights.items())) or ((0, 1),)


def is_better_everywhere(first: Row, second: Row) -> bool:
    numbers = [
        (float("-inf") if one is None else one, float("-inf") if other is None else other)
        for one, other in zip(first, second, strict=True)
    ]
    return all(one >= other for one, other in numbers) and any(
        one > other for one, other in numbers
    )


def expected_best(rows: Sequence[Row]) -> int:
    best = 0
    for k, row in enumerate(rows):
        higher = mean_or_lowest(row) > mean_or_lowest(rows[best])
        common = [pair for pair in zip(row, rows[0], strict=True) if None not in pair]
        ahead = sum((one or 0.0) - (other or 0.0) for one, other in common)
        if higher and ahead > 0:
            best = k
    return best


def mean_or_lowest(row: Row) -> float:
    scored = [score for score in row if score is not None]
    return sum(scored) / len(scored) if scored else float("-inf")


# Quarters have exact sums, so that the order of adding up does not decide a test.
scores = st.sampled_from((None, 0.0, 0.25, 0.5, 0.5, 0.75, 1.0, 1.0))
matrices = st.integers(1, 6).flatmap(
    lambda width: (
        st.lists(st.tuples(*[scores] * width), min_size=1, max_size=14)
        | st.lists(st.tuples(*[scores] * width), min_size=17, max_size=26)
    )
)


@given(matrices)
@settings(max_examples=50, deadline=None)
def test_the_pool_keeps_the_frontier_and_the_best_as_if_computed_anew(rows: list[Row]) -> None:
    pool = Pool()
    for count, row in enumerate(rows, start=1):
        pool.add(candidate(count), row)
        assert tuple(pool.frontier().items()) == expected_frontier(rows[:count])
        assert pool.best == expected_best(rows[:count])
    assert tuple(pool.scores) == tuple(rows)
    assert len(pool) == len(pool.candidates) == len(rows)


@given(st.lists(st.tuples(*[st.floats(-10, 10, allow_nan=False)] * 3), min_size=1, max_size=10))
@settings(max_examples=100, deadline=None)
def test_with_every_score_known_the_best_has_the_highest_mean_and_elders_win_ties(
    rows: list[Row],
) -> None:
    pool = pool_of(rows)
    means = [pool.means[k] for k in range(len(rows))]
    assert means == [mean_score(row) for row in rows]
    known = [mean for mean in means if mean is not None]
    assert pool.best == known.index(max(known))


def test_a_frontier_of_thousands_is_as_if_computed_anew() -> None:
    chance, width = random.Random(4), 7
    levels = [(0.0, 0.25, 0.5)] * 1_500 + [(0.0, 0.25, 0.5, 0.5, 0.5, 0.75)] * 700
    rows = [tuple(chance.choices(level, k=width)) for level in levels]
    pool = Pool()
    for count, row in enumerate(rows, start=1):
        pool.add(candidate(count), row)
        if count in (1_023, 1_025, 1_500, 1_501, 2_200):
            assert tuple(pool.frontier().items()) == expected_frontier(rows[:count])


def test_everybody_in_a_large_frontier_is_drawn_as_its_weight_says() -> None:
    members = {number: 1 + number % 3 for number in range(300)}
    places = [number for number, weight in members.items() for _ in range(weight)]
    total = len(places)
    assert [drawn(members, (at + 0.5) / total) for at in range(total)] == places
    assert drawn(members, 0.0) == 0


def test_the_elder_of_two_equals_is_the_best() -> None:
    assert pool_of([(0.0, 1.0), (1.0, 0.0), (0.5, 0.5)]).best == 0
    assert pool_of([(0.0, 0.0), (1.0, 0.0), (0.0, 1.0)]).best == 1


def test_a_candidate_that_another_one_dominates_is_no_parent() -> None:
    # 1 leads on the first example only, together with 2, which is better elsewhere.
    pool = pool_of([(0.0, 0.0, 0.9), (1.0, 0.0, 0.0), (1.0, 0.5, 0.0)])
    assert tuple(pool.frontier().items()) == ((0, 1), (2, 2))


def test_a_specialist_with_a_low_mean_stays_a_parent() -> None:
    pool = pool_of([(0.9, 0.9, 0.0), (1.0, 1.0, 0.0), (0.0, 0.0, 0.1)])
    assert tuple(pool.frontier().items()) == ((1, 2), (2, 1))
    assert pool.best == 1


def test_the_baseline_is_the_only_parent_while_nothing_is_scored() -> None:
    assert pool_of([(None, None)]).frontier() == {0: 1}
    assert pool_of([(None, None), (None, None)]).frontier() == {0: 1}
    assert pool_of([(None, None)]).means[0] is None


def test_dominance_needs_to_be_better_somewhere_and_counts_unscored_as_worst() -> None:
    assert dominates((1.0, 0.5), (1.0, 0.0))
    assert not dominates((1.0, 0.5), (1.0, 0.5))
    assert not dominates((1.0, 0.0), (0.0, 1.0))
    assert dominates((1.0, -5.0), (1.0, None))
    assert not dominates((1.0, None), (0.5, 0.0))
    assert not dominates((None,), (None,))
    assert not dominates((0.0,), (-0.0,))


def test_parents_are_chosen_as_often_as_they_lead() -> None:
    chance = random.Random(7)
    draws = Counter(drawn({0: 1, 3: 5, 4: 2}, chance.random()) for _ in range(8000))
    assert set(draws) == {0, 3, 4}
    for parent, share in ((0, 1000), (3, 5000), (4, 2000)):
        assert abs(draws[parent] - share) < 200


@pytest.mark.parametrize(
    ("rows", "shares"),
    [
        ([(0.4, 0.2)], {0: 1.0}),
        ([(0.5, 0.5), (0.5, 0.5), (0.5, 0.5)], {0: 1 / 3, 1: 1 / 3, 2: 1 / 3}),
        # 1 leads on two examples, 2 on three (on one of them with 1), and 0 nowhere.
        ([(0, 0, 0, 0), (1, 1, 0, 0), (0, 1, 1, 1)], {1: 0.4, 2: 0.6}),
        # 1 leads on the first example, where 2 leads too and is better elsewhere.
        ([(0, 0, 9), (1, 0, 0), (1, 5, 0)], {0: 1 / 3, 2: 2 / 3}),
    ],
)
def test_scores_decide_how_often_each_candidate_becomes_a_parent(
    rows: Sequence[Row], shares: dict[int, float]
) -> None:
    chance, frontier = random.Random(7), pool_of(rows).frontier()
    draws = Counter(drawn(frontier, chance.random()) for _ in range(3000))
    assert set(draws) == set(shares)
    for parent, share in shares.items():
        assert abs(draws[parent] / 3000 - share) < 0.04


def test_of_candidates_with_the_same_scores_the_eldest_is_the_best() -> None:
    assert pool_of([(0.5, 0.5)] * 4).best == 0
    assert pool_of([(0.4, 0.5), *[(0.5, 0.5)] * 4]).best == 1


def test_modules_take_turns_and_the_first_one_begins() -> None:
    turns = Turns(7, MODULES, example_rate=0.3)
    assert [take_turn(turns) for _ in range(7)] == [*MODULES, *MODULES, MODULES[0]]


def take_turn(turns: Turns) -> Module:
    turn = turns.at(0)
    module = turn.all[0]
    turns.took(turn, [module])
    return module


def test_steps_under_way_have_turns_of_their_own() -> None:
    turns = Turns(7, MODULES, example_rate=0.3)
    begun = [turns.at(ahead) for ahead in range(2)]
    chosen: list[Module] = []
    for _ in range(7):
        chosen.append(begun[0].all[0])
        turns.took(begun.pop(0), chosen[-1:])
        begun.append(turns.at(1))
    assert chosen == [*MODULES, *MODULES, MODULES[0]]


def test_a_run_mutates_its_targets_in_the_order_in_which_they_are_named() -> None:
    for targets in ((RULES, NOTES), (NOTES, RULES)):
        session = Session()
        optimize(config(target_section_paths=targets), session=session)
        proposed = session.select_all(GepaMutationProposed)
        names = [f"section {path[0]}" for path in targets]
        assert [event.module for event in proposed] == [
            names[(event.step - 1) % 2] for event in proposed
        ]
        assert proposed[0].module == names[0]


def by_id(data: Sequence[GepaExample]) -> dict[str, GepaExample]:
    return {example.id: example for example in data}


def minibatches(
    seed: int, data: Sequence[GepaExample], size: int, choice: MinibatchChoice
) -> Iterator[tuple[GepaExample, ...]]:
    """Yield the minibatches of a candidate that never failed, one after the other."""
    training_rollouts = TrainingRollouts(Scorer({}, perfect_score=1.0))
    drawing = Minibatches(
        seed=seed,
        examples=by_id(data),
        size=size,
        growth=1,
        choice=choice,
        reuses=False,
        training_rollouts=training_rollouts,
    )
    while True:
        yield drawing.draw(candidate(0), ())[0]


@given(seed=st.integers(0, 2**32), size=st.integers(1, 9))
@settings(max_examples=40, deadline=None)
def test_a_minibatch_holds_each_example_once(seed: int, size: int) -> None:
    data = examples(9)
    for minibatch in islice(minibatches(seed, data, size, "random"), 5):
        assert len({example.id for example in minibatch}) == len(minibatch) == size
        assert set(minibatch) <= set(data)


@given(
    scores=st.lists(st.none() | st.floats(0, 1), max_size=30),
    size=st.integers(1, 9),
    growth=st.integers(1, 5),
    count=st.integers(9, 60),
)
def test_minibatches_grow_as_the_parent_gets_better(
    scores: list[float | None], size: int, growth: int, count: int
) -> None:
    drawing = Minibatches(
        seed=1,
        examples=by_id(examples(count)),
        size=size,
        growth=growth,
        choice="teaching",
        reuses=True,
        training_rollouts=TrainingRollouts(Scorer({}, perfect_score=0.9)),
    )

    def drawn(scores: Sequence[float | None]) -> int:
        return len(drawing.draw(candidate(0), scores)[0])

    usual = drawn(scores)
    assert size <= usual <= min(growth * size, count)
    if any(score is not None for score in scores):
        assert drawn([*scores, 1.0]) >= usual >= drawn([*scores, 0.0])
    else:
        assert usual == size
    assert drawn([0.0] * 30) == size
    assert drawn([0.9] * 60) == min(growth * size, count)


def test_minibatches_reach_every_example() -> None:
    data = examples(9)
    drawn_batches = islice(minibatches(7, data, 3, "random"), 900)
    seen = Counter(example.id for minibatch in drawn_batches for example in minibatch)
    assert set(seen) == {example.id for example in data}
    assert all(abs(count - 300) < 60 for count in seen.values())


@given(seed=st.integers(0, 2**32), count=st.integers(1, 12), size=st.integers(1, 12))
@settings(max_examples=40, deadline=None)
def test_epochs_take_every_example_once_before_any_again(seed: int, count: int, size: int) -> None:
    size, data = min(size, count), examples(count)
    drawn: list[str] = []
    for batch in islice(minibatches(seed, data, size, "epochs"), 2 * count):
        minibatch = [example.id for example in batch]
        assert len(set(minibatch)) == len(minibatch) == size
        drawn += minibatch
        # However many there were, nobody is more than an epoch ahead.
        counts = Counter(drawn)
        assert max(counts.values()) - min(counts[example.id] for example in data) <= 1


def test_every_epoch_has_an_order_of_its_own() -> None:
    data = examples(9)
    batches = minibatches(7, data, 3, "epochs")
    epochs = [
        tuple(example.id for batch in islice(batches, 3) for example in batch) for _ in range(5)
    ]
    assert all(set(epoch) == {example.id for example in data} for epoch in epochs)
    assert len(set(epochs)) == 5


@pytest.mark.parametrize("choice", ["random", "epochs"])
def test_a_run_takes_the_minibatches_that_it_is_told_to(choice: str) -> None:
    session = Session()
    optimize(config(minibatches=choice, rollout_budget=60), session=session)
    tried = [
        event.record.example_id
        for event in session.select_all(GepaRolloutCompleted)
        if "/parent/" in event.position
    ]
    pairs = [set(tried[start : start + 6]) for start in range(0, len(tried) - 5, 6)]
    assert len(pairs) > 1
    # Two minibatches of 3 are all 6 examples to learn from.
    assert all(len(pair) == 6 for pair in pairs) == (choice == "epochs")


def path_of(settings: GepaConfig) -> list[tuple[int, object, object]]:
    """Return the steps with their minibatches and the parts that they change."""
    session = Session()
    optimize(settings, session=session)
    batches: dict[int, list[str]] = {}
    for event in session.select_all(GepaRolloutCompleted):
        if "/parent/" in event.position:
            batches.setdefault(int(event.position.split("/")[1]), []).append(
                event.record.example_id
            )
    changed = {event.step: event.module for event in session.select_all(GepaMutationProposed)}
    return [(step, batch, changed.get(step)) for step, batch in batches.items()]


def test_choices_of_one_kind_do_not_disturb_those_of_another() -> None:
    """Parents that are drawn take no random numbers from the minibatches."""
    drawn_parents, best_parents = (
        path_of(config(exploration=share, minibatches="random")) for share in (1.0, 0.0)
    )
    count = min(len(drawn_parents), len(best_parents))
    assert count > 3
    assert [batch for _, batch, _ in drawn_parents[:count]] == [
        batch for _, batch, _ in best_parents[:count]
    ]


def test_the_seed_decides_the_path() -> None:
    assert path_of(config(seed=1)) == path_of(config(seed=1))
    assert path_of(config(seed=1)) != path_of(config(seed=2))


def sets_of(**changes: Any) -> list[tuple[GepaExample, ...]]:
    """Return validation set, training set and held-out set of ten examples or more."""
    found = config(**{"pareto_set_size": 4, "training_examples": examples(10), **changes})
    return [*found.split, found.held_out]


def test_examples_are_split_in_their_order() -> None:
    data = examples(10)
    assert sets_of() == [data[:4], data[4:], ()]


@pytest.mark.parametrize("seed", range(10))
def test_shuffled_examples_are_split_without_loss(seed: int) -> None:
    data = examples(10)
    validation, training, _ = sets_of(shuffle=True, seed=seed)
    assert len(validation) == 4
    assert sorted((*validation, *training), key=lambda e: int(e.id[1:])) == list(data)
    assert (validation, training) != (data[:4], data[4:])
    assert sets_of(shuffle=True, seed=seed) == [validation, training, ()]
    assert data == examples(10)


@given(
    st.integers(6, 200), st.integers(1, 5), st.integers(30, 2000) | st.just("light"), st.booleans()
)
@settings(max_examples=60, deadline=None)
def test_where_nothing_is_said_a_share_is_held_out_that_the_budget_pays_for(
    count: int, pareto: int, budget: Any, shuffle: bool
) -> None:
    given = {"pareto_set_size": pareto, "training_examples": examples(count), "shuffle": shuffle}
    found = config(**given, held_out=None, rollout_budget=budget)
    sets = [*found.split, found.held_out]
    assert {one.id for part in sets for one in part} == {one.id for one in examples(count)}
    held = len(sets[2])
    assert held == 0 or 8 <= held <= min(0.3 * count, len(sets[1]) + 1)
    assert found.following_size == 2 * held
    assert found.least_budget <= found.budget
    if count >= 40 and (budget == "light" or budget >= 1000):
        assert held == int(0.3 * count)


@pytest.mark.filterwarnings("ignore:there are only", "ignore:minibatch_size")
@pytest.mark.parametrize("preset", ["lean", *thorough(["paper"])])
def test_a_minibatch_is_no_larger_than_what_is_left_to_learn_from(preset: str) -> None:
    settings = config(
        training_examples=examples(30),
        pareto_set_size=4,
        minibatch_size=20,
        held_out=None,
        rollout_budget=900,
        preset=preset,
    )
    assert settings.batch_size == len(settings.split[1]) == 30 - 4 - len(settings.held_out) < 20
    assert optimize(settings).steps > 0


def test_candidates_with_equal_overrides_have_equal_digests() -> None:
    first, second = optimize(), optimize(config(persist=False))
    assert [c.digest for c in first.candidates] == [c.digest for c in second.candidates]
    assert len({c.digest for c in first.candidates}) == len(first.candidates)
    assert attrs.evolve(first.candidates[1], parents=(5,)).digest == first.candidates[1].digest


@given(matrices, st.data())
@settings(max_examples=30, deadline=None)
def test_scores_that_come_later_change_the_frontier_as_if_computed_anew(
    rows: list[Row], data: st.DataObject
) -> None:
    pool = Pool(ranks=False)
    known: list[Row] = []
    for number, row in enumerate(rows):
        known.append(tuple(data.draw(st.sampled_from((None, score))) for score in row))
        pool.add(candidate(number), known[-1], [None] * len(row))
    for number in data.draw(st.permutations(range(len(rows)))):
        later = {
            place: (score, None)
            for place, score in enumerate(rows[number])
            if score is not None and known[number][place] is None
        }
        if later:
            pool.fill(number, later)
            known[number] = rows[number]
        assert tuple(pool.frontier().items()) == expected_frontier(known)
