"""Better answers of earlier candidates are shown to the reflector, and only those."""

from __future__ import annotations

import re

from optimizers.worlds import RULES, Run, bound, config, instruction, optimize
from promptgraft.algorithms.gepa import RolloutFeedback, RolloutRecord
from promptgraft.algorithms.gepa.additions.history import Answers, remember
from promptgraft.algorithms.gepa.reflect import better_answers
from promptgraft.journal import MemoryJournal
from promptgraft.prompt import RenderedPrompt
from promptgraft.search.scores import Scorer


def record(score: float | None, output: str, example: str = "e1") -> RolloutRecord:
    return RolloutRecord(
        example_id=example,
        inputs_repr="",
        output_repr=output,
        tool_trace_repr="",
        feedback=None if score is None else RolloutFeedback(score=score, feedback=""),
    )


def test_only_better_answers_are_shown_the_best_first_and_each_once() -> None:
    remembered: dict[str, Answers] = {}
    for score, output in [(0.2, "a"), (0.9, "b"), (0.9, "b"), (None, "c"), (0.5, "d"), (0.9, "e")]:
        remember(remembered, [record(score, output)], most=2, scorer=Scorer({}))
    shown = better_answers(
        remembered, [record(0.5, "x"), record(0.0, "y", "e2"), record(None, "z")], Scorer({})
    )
    better = better_answers(remembered, [record(0.5, "x")], Scorer({}))["e1"]
    assert [one.output_repr for one in better] == ["b", "e"]
    assert shown["e2"] == ()


def test_an_unscored_answer_has_no_better_ones() -> None:
    best: dict[str, Answers] = {}
    remember(best, [record(1.0, "a")], most=2, scorer=Scorer({}))
    assert better_answers(best, [record(None, "z")], Scorer({}))["e1"] == ()


def one_word_only(rendered: RenderedPrompt[object]) -> str:
    """Propose rules that know the missing word and forget all others."""
    missing = re.search(r"missing (\w+)", bound(rendered, "examples"))
    return instruction(f"Known words: {missing[1] if missing else 'nothing'}")


def questions(top_k: int) -> list[str]:
    settings = config(
        target_section_paths=(RULES,), history_top_k=top_k, minibatch_size=5, rollout_budget=400
    )
    run = Run(settings, reflection=one_word_only)
    run.start()
    return [bound(request, "examples") for request in run.reflection.requests]


def test_reflectors_see_better_answers_to_training_examples_only() -> None:
    shown = questions(1)
    better = "**A better answer of another version** (score 1):\n\n```\nok\n```"
    assert better not in shown[0]
    assert better in "".join(shown)
    ids = set(re.findall(r"### Example (\S+)", "".join(shown)))
    assert all(name.endswith("-again") for name in ids)
    assert "A better answer" not in "".join(questions(0))


def test_a_run_with_a_history_is_resumed() -> None:
    settings = config(history_top_k=2)
    journal = MemoryJournal()
    whole = optimize(settings)
    assert Run(settings, journal=journal).start() == whole
    again = Run(settings, journal=journal)
    assert again.start() == whole
    assert again.task.calls == again.reflection.calls == 0
