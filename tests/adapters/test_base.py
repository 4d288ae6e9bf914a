"""What every adapter does with the text of an answer."""

from __future__ import annotations

from typing import Literal

import attrs
import pytest

from promptgraft.adapters.base import PromptExecuted, PromptResponse, Usage, answered
from promptgraft.errors import OutputError
from promptgraft.prompt import Prompt, PromptTemplate, RenderedPrompt
from promptgraft.runtime import EventBus, Session

Choice = Literal["yes", "no"]


def rendered(output_type: type[str] | None) -> RenderedPrompt[str]:
    return Prompt(PromptTemplate(ns="tests", key="base", output_type=output_type)).render()


CHOICE: RenderedPrompt[str] = rendered(Choice)  # type: ignore[arg-type]


def test_an_answer_is_parsed_and_told_to_the_session() -> None:
    session = Session()
    usage = Usage(input_tokens=10, output_tokens=2, cached_tokens=5)
    response = answered(CHOICE, "Yes!", session=session, usage=usage, finish_reason="length")
    assert response == PromptResponse(
        text="Yes!", output="yes", usage=usage, finish_reason="length"
    )
    assert session.select_all(object) == (PromptExecuted(response=response),)


def test_an_answer_that_does_not_fit_is_told_to_the_session_all_the_same() -> None:
    session = Session()
    usage = Usage(input_tokens=10, output_tokens=2)
    with pytest.raises(OutputError, match="expected one of yes, no; found 'perhaps'"):
        answered(CHOICE, "perhaps", session=session, usage=usage, finish_reason="length")
    expected = PromptResponse[object](text="perhaps", usage=usage, finish_reason="length")
    assert session.select_all(object) == (PromptExecuted(response=expected),)


@pytest.mark.parametrize(("output_type", "output"), [(None, None), (str, "Yes!")])
def test_text_needs_no_parsing(output_type: type[str] | None, output: str | None) -> None:
    session = Session()
    response = answered(rendered(output_type), "Yes!", session=session)
    assert response == PromptResponse(text="Yes!", output=output, usage=Usage())
    assert session.latest(PromptExecuted) == PromptExecuted(response=response)


def test_handlers_of_the_session_hear_of_every_answer_once() -> None:
    bus = EventBus()
    heard: list[str] = []
    bus.subscribe(PromptExecuted, lambda event: heard.append(event.response.text))
    session = Session(bus=bus)
    answered(CHOICE, "no", session=session)
    with pytest.raises(OutputError):
        answered(CHOICE, "", session=session)
    assert heard == ["no", ""]


def test_usage_is_nothing_unless_it_is_known() -> None:
    assert (Usage().input_tokens, Usage().output_tokens, Usage().cached_tokens) == (0, 0, 0)
    assert PromptResponse[str](text="a").usage == Usage()
    assert PromptResponse[str](text="a").finish_reason == "stop"


def test_what_was_answered_does_not_change() -> None:
    response = PromptResponse[str](text="a")
    for value, name in (
        (response, "text"),
        (response.usage, "input_tokens"),
        (PromptExecuted(response=response), "response"),
    ):
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            setattr(value, name, None)
