"""Systems written for gepa, with the real package; skipped if it is missing."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from promptgraft import (
    Data,
    GepaConfig,
    GepaExample,
    GepaOptimizer,
    OptimizationContext,
)
from promptgraft.adapters import FunctionAdapter, PromptResponse
from promptgraft.bridges import gepa as bridge
from promptgraft.errors import CallerError, ConfigError
from promptgraft.ground.functions import function_identity
from promptgraft.runtime import Session
from promptgraft.search import RunResult
from promptgraft.targets import Texts

if importlib.util.find_spec("gepa") is None:
    pytest.skip("gepa is not installed", allow_module_level=True)

from gepa.adapters.default_adapter.default_adapter import (
    ChatMessage,
    DefaultAdapter,
    DefaultDataInst,
)
from gepa.core.adapter import EvaluationBatch, GEPAAdapter

SEED = {"system_prompt": "You are a helpful assistant."}


def rows(first: int, count: int) -> list[DefaultDataInst]:
    return [
        {"input": f"{n} + 1 = ?", "additional_context": {"hint": "count"}, "answer": f"= {n + 1}"}
        for n in range(first, first + count)
    ]


def answer(messages: Sequence[ChatMessage]) -> str:
    system, user = (message["content"] for message in messages)
    return f"= {int(user.split()[0]) + 1}" if "equals sign" in system else "no idea"


def evaluated(candidate: str, row: DefaultDataInst) -> tuple[float, dict[str, object]]:
    messages = {"system": candidate, "user": row["input"]}.items()
    output = answer([{"role": role, "content": content} for role, content in messages])
    right = output == row["answer"]
    return float(right), {"Output": output, "Feedback": f"expected {row['answer']}"}


def optimized(texts: Texts, reply: str) -> tuple[RunResult, list[str]]:
    """Improve the texts of a system; return the result and the questions that were asked."""
    questions = list[str]()

    def reflect(question: str) -> str:
        questions.append(question)
        return reply

    examples = [GepaExample(id=str(n), params=(row,)) for n, row in enumerate(rows(0, 24))]
    config = GepaConfig(
        rollout_budget=80,
        minibatch_size=2,
        pareto_set_size=8,
        training_examples=examples[:16],
        data=Data(held_out=examples[16:]),
        feedback_fn=bridge.feedback,
    )
    context = OptimizationContext(reflection_adapter=FunctionAdapter(reflect))
    return GepaOptimizer(context, config).optimize(texts), questions


def feedback_of(texts: Texts, row: object) -> tuple[str, Any]:
    """Return the answer to one example, and its verdict."""
    example, session = GepaExample(id="a", params=(row,)), Session(bus=None)
    response = texts.adapter.evaluate(texts.prompt.bind(row), session=session)
    assert isinstance(response, PromptResponse)
    return response.text, bridge.feedback(example, response, session)


def test_a_system_behind_an_adapter_is_improved() -> None:
    result, questions = optimized(
        bridge.texts_of(DefaultAdapter(answer), SEED), "```\nUse an equals sign.\n```"
    )
    assert result.improved
    assert bridge.best_candidate(result, SEED) == {"system_prompt": "Use an equals sign."}
    assert "The correct answer is '= " in questions[0]
    assert "no idea" in questions[0]


class TwoComponents(GEPAAdapter[str, str, dict[str, str]]):
    """Each component has records of its own."""

    def evaluate(
        self, batch: list[str], candidate: dict[str, str], capture_traces: bool = False
    ) -> EvaluationBatch[str, dict[str, str]]:
        assert capture_traces
        return EvaluationBatch(
            outputs=[{"reply": f"{candidate['Find']} {row}"} for row in batch],
            scores=[7.5 for _ in batch],
            trajectories=[*batch],
            objective_scores=[{"brevity": 0.25} for _ in batch],
        )

    def make_reflective_dataset(
        self,
        candidate: dict[str, str],
        eval_batch: EvaluationBatch[str, dict[str, str]],
        components_to_update: list[str],
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        [name] = components_to_update
        records = [{"Inputs": row, "Feedback": f"{name} was slow"} for row in "xy"]
        return {name: records[: 1 + (name == "Find")]}


def test_the_code_of_the_user_is_named_and_bound() -> None:
    systems = [
        bridge.texts_of(TwoComponents(), SEED),
        bridge.texts_of_evaluator(evaluated, "Be kind."),
        bridge.texts_of_evaluator(lambda candidate, row: 1.0, "Be kind."),
    ]
    names = [function_identity(texts.run) for texts in systems]
    assert names[0].startswith("function test_gepa.TwoComponents.evaluate ")
    assert names[1].startswith("function test_gepa.evaluated ")
    assert len({name.rpartition(" ")[2] for name in names}) == 3


def test_each_component_has_its_records_objectives_and_a_key() -> None:
    texts = bridge.texts_of(TwoComponents(), {"Find": "Look for", "write.reply": "Write"})
    assert [*texts.texts] == ["find", "write-reply"]
    text, verdict = feedback_of(texts, "ice")
    assert text == '{\n  "reply": "Look for ice"\n}'
    assert (verdict.score, verdict.objectives) == (7.5, {"brevity": 0.25})
    assert verdict.feedback.splitlines() == [
        *("Find:", "Inputs: x", "Feedback: Find was slow"),
        *("Find:", "Inputs: y", "Feedback: Find was slow"),
        *("write.reply:", "Inputs: x", "Feedback: write.reply was slow"),
    ]


def test_an_evaluator_of_optimize_anything_is_improved() -> None:
    texts = bridge.texts_of_evaluator(evaluated, "You are a helpful assistant.")
    result, questions = optimized(texts, "```\nUse an equals sign.\n```")
    assert bridge.best_candidate(result, texts.texts) == {"text": "Use an equals sign."}
    assert "expected = " in questions[0]


@pytest.mark.parametrize(
    ("outcome", "text", "feedback", "objectives"),
    [
        ((0.5, None), "", "", {}),
        (0.5, "", "", {}),
        ((0.5, {"Error": "line 3", "Hint": ["a"]}), "", 'Error: line 3\nHint: [\n  "a"\n]', {}),
        ((0.5, {"Output": 3, "scores": {"speed": 2}}), "3", "", {"speed": 2.0}),
        (
            (0.5, {"Log": "ok", "a_specific_info": {"Tone": "cold"}}),
            "",
            "a:\nLog: ok\nTone: cold\nb:\nLog: ok",
            {},
        ),
    ],
)
def test_side_information_is_feedback(
    outcome: object, text: str, feedback: str, objectives: Mapping[str, float]
) -> None:
    texts = bridge.texts_of_evaluator(lambda candidate, row: outcome, {"a": "A", "b": "B"})
    found, verdict = feedback_of(texts, "row")
    assert (found, verdict.score) == (text, 0.5)
    assert (verdict.feedback, dict(verdict.objectives)) == (feedback, objectives)


def test_two_components_cannot_share_a_key() -> None:
    with pytest.raises(
        ConfigError, match=r"'a b' and 'A\.B' become the same key, `a-b`; rename one"
    ):
        bridge.texts_of(TwoComponents(), {"a b": "A", "A.B": "B"})


def test_feedback_needs_an_answer_of_such_a_system() -> None:
    with pytest.raises(CallerError, match="expected an answer of `texts_of` or"):
        bridge.feedback(
            GepaExample(id="a", params=()), PromptResponse(text="x", output=None), Session(bus=None)
        )
