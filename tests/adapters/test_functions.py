"""A function of the user in place of a model."""

from __future__ import annotations

from typing import Literal

import pytest

import promptgraft as pg
from agent_world import TEMPLATE, Question
from promptgraft.adapters import FunctionAdapter
from promptgraft.adapters.base import Ask, ProviderAdapter
from promptgraft.errors import AdapterError, ConfigError, TransientProviderError
from promptgraft.prompt import MarkdownSection, Prompt, PromptTemplate
from promptgraft.runtime import Session

RULES = MarkdownSection(title="Rules", key="rules", template="Name the colour.")
ASKED = MarkdownSection(title="Asked", key="asked", template="$thing")
COLOURS: PromptTemplate[object] = PromptTemplate(
    ns="tests", key="colours", sections=(RULES, ASKED), output_type=Literal["red", "blue"]
)


def ask(adapter: ProviderAdapter) -> object:
    bound = Prompt(COLOURS).bind({"thing": "A fire engine."})
    return adapter.evaluate(bound, session=Session())


async def late(text: str) -> str:
    return "red" if "fire" in text else "blue"


def unasked() -> str:
    return "red"


@pytest.mark.parametrize("reply", [late, lambda _: "red", lambda _: ["red"]])
def test_a_function_answers_with_a_text_now_or_later(reply: Ask) -> None:
    response = ask(FunctionAdapter(reply))
    assert isinstance(response, pg.PromptResponse)
    assert response.output == "red"


def test_a_function_is_told_the_form_of_the_answer() -> None:
    texts: list[str] = []

    def note(text: str) -> str:
        texts.append(text)
        return "red"

    ask(FunctionAdapter(note))
    [text] = texts
    assert "Name the colour." in text
    assert "exactly one of these and nothing else: blue, red" in text
    assert text.endswith("A fire engine.")


def test_what_a_function_cannot_do_is_said_before_a_call() -> None:
    with pytest.raises(ConfigError, match="cannot be called with"):
        FunctionAdapter(unasked)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"takes only a text, .* has the tool `search_code`"):
        FunctionAdapter(late).check_prompt(Prompt(TEMPLATE).bind(Question("?")).render())
    with pytest.raises(AdapterError, match="expected a text, found None"):
        ask(FunctionAdapter(lambda _: None))


def test_a_service_that_is_down_is_no_fault_of_the_function() -> None:
    def down(text: str) -> str:
        raise ConnectionError("refused")

    with pytest.raises(TransientProviderError, match="refused"):
        ask(FunctionAdapter(down))


def test_optimize_takes_functions_as_models() -> None:
    cases = [(f"thing {number}: {word}", word) for number in range(20) for word in ("red", "blue")]

    def answer(text: str) -> str:
        return text.rsplit(maxsplit=1)[-1] if "Read the colour" in text else "green"

    result = pg.optimize(
        "Name the colour: $input",
        cases,
        "exact",
        model=answer,
        reflection_model=lambda _: "```instruction\nRead the colour: $input\n```",
        rollout_budget=120,
    )
    assert result.found_better
    assert result.text == "Read the colour: $input"
