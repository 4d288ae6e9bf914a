"""What a run says of its winner is decided on held-out answers, side by side and in turns."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizers.worlds import PROMPT, Run, answer, asked, config, examples, optimize, twin
from promptgraft import GepaResult, InMemoryPromptOverridesStore, MemoryJournal
from promptgraft.algorithms.gepa import GepaExample, RolloutFeedback
from promptgraft.evals.gains import Outcome, spent_error
from promptgraft.prompt import RenderedPrompt
from promptgraft.search.verdict import HeldOut, RunVerdict, verdict_of


def unseen(copies: int, words: int = 6, first: int = 0) -> tuple[GepaExample, ...]:
    return tuple(
        twin(one, f"{one.id}-unseen-{copy}")
        for copy in range(copies)
        for one in examples(words, first=first)
    )


def finished(**changes: Any) -> tuple[GepaResult, InMemoryPromptOverridesStore]:
    store = InMemoryPromptOverridesStore()
    settings = {"keep_anyway": False, "rollout_budget": 300, **changes}
    return optimize(config(**settings), overrides_store=store), store


def is_stored(store: InMemoryPromptOverridesStore) -> bool:
    return store.resolve(PROMPT.descriptor) is not None


def test_a_gain_that_is_shown_is_improved_and_stored() -> None:
    result, store = finished(held_out=unseen(2))
    assert (result.verdict, result.improved, result.persisted) == (RunVerdict.IMPROVED, True, True)
    assert is_stored(store)


@pytest.mark.parametrize(
    ("held_out", "verdict"),
    [
        ((), RunVerdict.NOT_CHECKED),
        (unseen(3, first=90), RunVerdict.NOT_SHOWN),
        (unseen(1, words=5), RunVerdict.NOT_SHOWN),
    ],
    ids=["nothing held out", "nothing gained", "too few"],
)
def test_what_is_not_shown_is_not_stored_unless_it_is_to_be_kept_anyway(
    held_out: tuple[GepaExample, ...], verdict: RunVerdict
) -> None:
    result, store = finished(held_out=held_out)
    assert (result.verdict, result.found_better) == (verdict, True)
    assert [result.improved, result.persisted, is_stored(store)] == [False] * 3

    kept, store = finished(held_out=held_out, keep_anyway=True)
    assert (kept.verdict, kept.persisted) == (verdict, True)
    assert is_stored(store)


def test_a_winner_that_loses_what_is_held_out_is_called_worse() -> None:
    def forgets(rendered: RenderedPrompt[object]) -> str:
        """Know what is held out until the rules say anything else."""
        if int(asked(rendered)[1:]) >= 90:
            return "ok" if answer(rendered) != "ok" and "w0" not in rendered.text else "no"
        return answer(rendered)

    settings = config(held_out=unseen(3, first=90), rollout_budget=300)
    result = optimize(settings, task=forgets)
    assert result.verdict is RunVerdict.WORSE
    assert not result.improved


def test_baseline_and_winner_take_turns_so_that_drift_hits_both() -> None:
    turns: list[tuple[str, bool]] = []

    def noting(rendered: RenderedPrompt[object]) -> str:
        if int(asked(rendered)[1:]) >= 90:
            turns.append((asked(rendered), "w0" in rendered.text))
        return answer(rendered)

    # Words that nobody learns, each once.
    optimize(config(held_out=unseen(1, words=40, first=90), rollout_budget=280), task=noting)
    pairs = [turns[place : place + 2] for place in range(0, 80, 2)]
    assert all(one[0] == other[0] and one[1] != other[1] for one, other in pairs)
    firsts = [one[1] for one, _ in pairs]
    assert abs(sum(firsts) - 20) <= 1
    assert [word for [(word, _), _] in pairs] != [f"w{n}" for n in range(90, 130)]


def test_a_clear_gain_gives_the_second_half_back() -> None:
    run = Run(config(held_out=unseen(8), rollout_budget=400))
    result = run.start()
    assert result.held_out is not None
    assert (len(result.held_out.ids), result.held_out.rollouts) == (24, 48)
    assert result.verdict is RunVerdict.IMPROVED
    assert result.total_rollouts == run.task.calls


def test_unclear_scores_are_asked_again_while_rollouts_are_left_over() -> None:
    chance = random.Random(1)

    def noisy(example: GepaExample, response: Any, session: object) -> RolloutFeedback:
        if "unseen" in example.id:
            return RolloutFeedback(score=float(chance.random() < 0.5), feedback="by chance")
        right = response.text == "ok"
        return RolloutFeedback(score=float(right), feedback=f"missing {example.label}")

    calls = iter(range(10**6))
    given = config(held_out=unseen(2), feedback_fn=noisy, rollout_budget=400)
    # Other answers each time, so that they cannot be taken for those of a cache.
    journal = MemoryJournal()
    result = optimize(given, journal=journal, task=lambda asked: vary(answer(asked), next(calls)))
    assert result.held_out is not None
    assert result.held_out.rollouts == 5 * 2 * 12
    assert result.held_out.answers == (5,) * 12
    assert "on 12 cases never seen before, each answered 5 times" in str(result)
    assert not result.held_out.is_fixed
    assert result.total_rollouts <= 400
    assert optimize(given, journal=journal) == result  # every answer is in the journal


@pytest.mark.parametrize(
    ("scores", "asked_of_both", "lost"),
    [
        ([0.0], 3, True),
        ([0.0, 1.0], 2, False),
        ([0.0, 0.0, 1.0], 3, False),
    ],
)
def test_a_critical_example_is_asked_again_before_it_makes_a_winner_worse(
    scores: list[float], asked_of_both: int, lost: bool
) -> None:
    critical, count = attrs.evolve(unseen(1, words=1, first=90)[0], critical=True), Counter[bool]()

    def spoils(example: GepaExample, response: Any, session: object) -> RolloutFeedback:
        if example.critical:
            is_winner = "w0" in response.text
            count[is_winner] += 1
            score = scores[min(count[True], len(scores)) - 1] if is_winner else 1.0
            return RolloutFeedback(score=score, feedback="spoiled")
        right = response.text.startswith("ok")
        return RolloutFeedback(score=float(right), feedback=f"missing {example.label}")

    given = config(held_out=(critical, *unseen(8)), feedback_fn=spoils, rollout_budget=450)
    result = optimize(given, task=lambda asked: f"{answer(asked)} {asked.text}")

    assert result.held_out is not None
    assert result.held_out.gain is not None
    assert result.held_out.gain.verdict is Outcome.IMPROVED
    assert (count[False], count[True]) == (asked_of_both, asked_of_both)
    assert result.held_out.lost == ((critical.id,) if lost else ())
    assert result.verdict is (RunVerdict.LOST_CRITICAL if lost else RunVerdict.IMPROVED)
    said = f"critical cases got worse: `{critical.id}`"
    assert result.remarks == ((said,) if lost else ())
    assert result.total_rollouts <= 450


def test_rollouts_are_kept_to_ask_critical_held_out_examples_again() -> None:
    critical = tuple(attrs.evolve(one, critical=True) for one in unseen(1))
    assert config(held_out=critical).following_size == 2 * 3 * len(critical)
    assert config(held_out=unseen(1)).following_size == 2 * len(critical)


def test_what_is_kept_for_critical_examples_is_used_for_them() -> None:
    """The budget covers one round and the repeats, and nothing else."""
    critical, count = attrs.evolve(unseen(1, words=1, first=90)[0], critical=True), Counter[bool]()

    def unlucky(example: GepaExample, response: Any, session: object) -> RolloutFeedback:
        if example.critical:
            is_winner = "w0" in response.text
            count[is_winner] += 1
            score = float(not is_winner or count[True] > 1)
            return RolloutFeedback(score=score, feedback="spoiled once")
        return RolloutFeedback(score=float(response.text.startswith("ok")), feedback="missing w0")

    given = config(held_out=(critical, *unseen(1)), feedback_fn=unlucky, rollout_budget=100)
    given = attrs.evolve(given, rollout_budget=given.least_budget)
    result = optimize(given, task=lambda asked: f"{answer(asked)} {asked.text}")
    assert result.held_out is not None
    assert result.held_out.lost == ()
    assert count == {True: 2, False: 2}
    assert result.total_rollouts <= given.least_budget


def vary(text: str, number: int) -> str:
    return text if text == "ok" else f"{text} {number}"


def test_answers_that_never_change_are_counted_once() -> None:
    result = optimize(config(held_out=unseen(2, first=90), rollout_budget=400))
    assert result.held_out is not None
    assert result.held_out.is_fixed
    assert (result.held_out.rollouts, result.held_out.answers) == (2 * 12 * 2, (2,) * 12)
    assert "each answered" not in str(result)


@given(st.floats(0.001, 0.4), st.lists(st.floats(0.01, 1), min_size=1, max_size=6))
def test_looks_together_spend_the_error_and_no_more(error: float, fractions: list[float]) -> None:
    spent = [spent_error(error, fraction) for fraction in sorted(fractions)]
    assert spent == sorted(spent)
    assert all(0 <= one <= error * (1 + 1e-9) for one in spent)
    assert spent_error(error, 1.0) == pytest.approx(error)


SCORES = st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=40)


@given(SCORES, st.randoms(use_true_random=False), st.sampled_from([0.001, 0.01, 0.025]))
@settings(max_examples=6, deadline=None)
def test_the_verdict_is_the_side_of_zero_on_which_the_interval_lies(
    before: list[float], chance: random.Random, spent: float
) -> None:
    after = [chance.choice([0.0, 0.5, 1.0]) for _ in before]
    ids = tuple(map(str, range(len(before))))
    found = HeldOut(ids=ids, baseline_scores=tuple(before), winner_scores=tuple(after), spent=spent)
    gain = found.gain
    assert gain is not None
    assert gain.low is not None
    assert gain.high is not None
    wanted = (
        RunVerdict.IMPROVED
        if gain.low > 0
        else RunVerdict.WORSE
        if gain.high < 0
        else RunVerdict.NOT_SHOWN
    )
    assert verdict_of(1, found) is wanted
    assert verdict_of(0, found) is RunVerdict.NOT_IMPROVED
