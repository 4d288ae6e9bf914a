"""Reflections on the parts that feedback blames."""

from __future__ import annotations

import random
import re

from optimizers.several_world import NAMES, Rendered, prompt_of, several
from optimizers.worlds import Run, asked, bound, current_text, instruction
from promptgraft.adapters.base import PromptResponse
from promptgraft.algorithms.gepa import GepaExample, RolloutFeedback
from promptgraft.runtime import SessionProtocol


def reworded(rendered: Rendered) -> str:
    """Return a new text for whatever part is asked about."""
    return instruction(f"{current_text(rendered)} {random.Random(rendered.text).random()}")


def test_a_reflection_on_a_blamed_module_sees_only_what_blames_it() -> None:
    def one_is_lacking(rendered: Rendered) -> str:
        return NAMES[int(asked(rendered)[1:]) % 2]

    questions: list[tuple[str, set[str]]] = []

    def reply(rendered: Rendered) -> str:
        part = bound(rendered, "part").removeprefix("section ")
        questions.append((part, set(re.findall(r"(\w+): missing", bound(rendered, "examples")))))
        return reworded(rendered)

    settings = several(minibatch_size=6, rollout_budget=400)
    Run(settings, task=one_is_lacking, reflection=reply, prompt=prompt_of(NAMES[:2])).start()
    assert {part for part, _ in questions} == set(NAMES[:2])
    assert any(blamed == {part} for part, blamed in questions)
    # One that is blamed by nothing has its turn too, and sees everything.
    assert all(blamed == {part} or part not in blamed for part, blamed in questions)


def test_a_name_that_perfect_rollouts_say_too_hides_no_rollout() -> None:
    """The section is called like a word of every feedback: nothing blames it."""
    shown_examples: list[str] = []

    def reply(rendered: Rendered) -> str:
        shown_examples.append(bound(rendered, "examples"))
        return reworded(rendered)

    def says_its_name(
        example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> RolloutFeedback:
        right = int(str(example.label)[1:]) % 2
        return RolloutFeedback(score=float(right), feedback=f"{NAMES[0]}: {'right' * right}")

    settings = several(NAMES[:1], minibatch_size=6, feedback_fn=says_its_name)
    Run(settings, task=lambda _: "", reflection=reply, prompt=prompt_of(NAMES[:1])).start()
    assert any("right" in examples for examples in shown_examples)
