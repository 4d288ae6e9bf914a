"""A function of the user in place of a model."""

from __future__ import annotations

from functools import partial
from string import Template
from typing import Any, Literal

import pytest

import promptgraft as pg
from agent_world import TEMPLATE, Question
from image_files import picture
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


def test_a_function_is_asked_nothing_that_a_text_cannot_hold() -> None:
    texts: list[str] = []
    adapter = FunctionAdapter(texts.append)
    blind = Prompt(COLOURS).bind({"thing": picture("engine.png")})
    with pytest.raises(ConfigError, match=r"takes only a text, .* has the image `engine.png`"):
        adapter.check_prompt(blind.render())
    for prompt in (blind, Prompt(TEMPLATE).bind(Question("?"))):
        with pytest.raises(ConfigError, match="takes only a text"):
            adapter.evaluate(prompt, session=Session())
    assert texts == []


def of_a_library(model: str) -> Ask:
    """Return a method of an object that is not the user's, as of a client with a model."""
    client: Any = Template("red")
    client.model = model
    method: Ask = client.substitute
    return method


class Client:
    def __init__(self, model: str) -> None:
        self.model = model

    def ask(self, text: str) -> str:
        return self.model


def ask_model(model: str, text: str) -> str:
    return model


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (partial(ask_model, "small"), partial(ask_model, "large")),
        (Client("small").ask, Client("large").ask),
        (of_a_library("small"), of_a_library("large")),
        (
            lambda _: "red",
            lambda _: "blue",
        ),
    ],
)
def test_functions_that_ask_other_models_have_other_identities(first: Ask, second: Ask) -> None:
    identity = FunctionAdapter(first).identity
    assert identity.startswith("function ")
    assert identity == FunctionAdapter(first).identity != FunctionAdapter(second).identity
    assert FunctionAdapter(second, identity=identity).identity == identity


def test_a_limit_of_cost_is_refused_for_a_function() -> None:
    cases = [(f"thing {number}", "red") for number in range(20)]
    with pytest.raises(ConfigError, match=r"max_cost: no price is known for `function .*late"):
        pg.optimize("Name: $input", cases, "exact", model=late, limits=pg.Limits(max_cost=1))


def test_a_limit_of_tokens_warns_that_it_counts_none_of_a_function(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cases = [(f"thing {number}", "red") for number in range(20)]
    for limits in (pg.Limits(), pg.Limits(max_tokens=9)):
        caplog.clear()
        pg.optimize("Name: $input", cases, "exact", model=late, rollout_budget=40, limits=limits)
        warned = [text for text in caplog.messages if "counts no tokens of `function" in text]
        assert len(warned) == (limits.max_tokens is not None)


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


def test_a_context_says_how_a_function_becomes_an_adapter() -> None:
    with pytest.raises(ConfigError, match=r"`FunctionAdapter\(f\)` of promptgraft\.adapters"):
        pg.OptimizationContext(late)  # type: ignore[arg-type]
