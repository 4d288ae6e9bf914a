"""The loop between a model and its tools, with a wire of plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from promptgraft.adapters.base import PromptExecuted, PromptResponse, ToolInvoked, Usage
from promptgraft.adapters.calling.conversation import converse
from promptgraft.adapters.calling.turns import Finish, ToolAnswer, ToolRequest, Turn
from promptgraft.errors import (
    DeadlineExceededError,
    EmptyAnswerError,
    OutputError,
    RefusedAnswerError,
    ToolRoundsError,
    TruncatedAnswerError,
)
from promptgraft.ground.serde import Json
from promptgraft.prompt import MarkdownSection, Prompt, PromptTemplate, RenderedPrompt, Tool
from promptgraft.prompt.schema import JsonObject
from promptgraft.runtime import Deadline, Session
from promptgraft.testing import FakeClock


@attrs.frozen
class Step:
    name: str


class Notes:
    """A wire whose bodies are lists of what was said, and a handler that takes its time."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.done: list[str] = []

    def open(self, rendered: RenderedPrompt[object]) -> JsonObject:
        return {"said": [rendered.text]}

    def read(self, body: JsonObject) -> Turn:
        raise NotImplementedError

    def counted(self, body: JsonObject) -> tuple[Usage, int]:
        raise NotImplementedError

    def stable(self, body: JsonObject) -> Json:
        raise NotImplementedError

    def extend(self, request: JsonObject, turn: Turn, answers: Sequence[ToolAnswer]) -> JsonObject:
        before = request["said"]
        assert isinstance(before, list)
        return {"said": [*before, turn.text, *(answer.content for answer in answers)]}

    def handle(self, step: Step) -> str:
        self.done.append(step.name)
        self.clock.advance(1)
        return f"did {step.name}"


def says(text: str, finish: Finish = Finish.DONE, *calls: str) -> Turn:
    return Turn(
        text=text,
        requests=tuple(
            ToolRequest(id=name, name="step", arguments=f'{{"name": "{name}"}}') for name in calls
        ),
        finish=finish,
        finish_reason=f"because {finish}",
        usage=Usage(input_tokens=10, output_tokens=2, cached_tokens=4),
        model="m-1",
        messages=(),
    )


class World:
    """One conversation, with what the model was sent."""

    def __init__(self, *turns: Turn, output_type: Any = None) -> None:
        self.notes = Notes()
        self.session = Session()
        self.sent: list[JsonObject] = []
        self._turns = iter(turns)
        tool = Tool(
            name="step",
            description="Does it.",
            params_type=Step,
            result_type=str,
            handler=self.notes.handle,
        )
        section = MarkdownSection(title="T", key="t", template="Go.", tools=[tool])
        template = PromptTemplate(ns="n", key="k", sections=[section], output_type=output_type)
        self.rendered: RenderedPrompt[Any] = Prompt(template).render()

    def respond(self, *, rounds: int = 8, deadline: Deadline | None = None) -> PromptResponse[Any]:
        return converse(
            self.rendered,
            wire=self.notes,
            ask=self._ask,
            read=str.strip,
            session=self.session,
            deadline=deadline,
            max_tool_rounds=rounds,
        )

    def _ask(self, body: JsonObject) -> Turn:
        self.sent.append(body)
        return next(self._turns)


def test_an_answer_ends_the_conversation_and_is_dispatched() -> None:
    world = World(says(" fine "))
    response = world.respond()
    assert response == PromptResponse(
        text="fine",
        usage=Usage(input_tokens=10, output_tokens=2, cached_tokens=4),
        finish_reason="because done",
    )
    assert world.session.latest(PromptExecuted) == PromptExecuted(response=response)


def test_parallel_calls_are_made_in_order_and_told_together() -> None:
    world = World(says("hm", Finish.TOOLS, "a", "b"), says("", Finish.TOOLS, "c"), says("done"))
    response = world.respond()
    assert world.notes.done == ["a", "b", "c"]
    assert world.sent[-1] == {"said": ["## T\n\nGo.", "hm", "did a", "did b", "", "did c"]}
    assert response.text == "done"
    assert response.usage == Usage(input_tokens=30, output_tokens=6, cached_tokens=12)
    assert [found.result for found in world.session.select_all(ToolInvoked)] == [
        "did a",
        "did b",
        "did c",
    ]


def test_a_paused_turn_goes_on_and_its_text_is_part_of_the_answer() -> None:
    world = World(says("one, ", Finish.PAUSED), says("two"))
    assert world.respond().text == "one, two"
    assert len(world.sent) == 2


@pytest.mark.parametrize(
    ("turn", "error", "message"),
    [
        (
            says("half an ans", Finish.LENGTH),
            TruncatedAnswerError,
            "`m-1` stopped after 2 tokens (because length) before its answer was complete",
        ),
        (
            says("", Finish.LENGTH, "a"),
            TruncatedAnswerError,
            "`m-1` stopped after 2 tokens",
        ),
        (
            says("I won't.", Finish.REFUSED),
            RefusedAnswerError,
            '`m-1` refused to answer (because refused), saying "I won\'t."',
        ),
        (says(" \n", Finish.DONE), EmptyAnswerError, "`m-1` answered without a text"),
    ],
)
def test_what_is_no_whole_answer_is_an_error_and_is_seen_in_the_session(
    turn: Turn, error: type[OutputError], message: str
) -> None:
    world = World(turn, output_type=str)
    with pytest.raises(error) as caught:
        world.respond()
    assert message in str(caught.value)
    assert world.notes.done == []
    seen = world.session.latest(PromptExecuted)
    assert seen is not None
    assert (seen.response.text, seen.response.output) == (turn.text, None)
    assert seen.response.finish_reason == turn.finish_reason
    assert seen.response.usage == turn.usage


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n{"name": "step"}\n</tool_call>',
        '<think>Hm.</think>[TOOL_CALLS] [{"name": "step"}]',
        "<function=step>{}</function>",
        '<|python_tag|>{"name": "step"}',
    ],
)
def test_a_call_that_a_server_leaves_in_the_text_is_no_answer(text: str) -> None:
    world = World(says(text))
    with pytest.raises(OutputError, match="turn on tool calls in the server"):
        world.respond()
    assert World(says(f"As in {text}")).respond().text.startswith("As in")
    without = World(says(text))
    without.rendered = attrs.evolve(without.rendered, tools=())
    assert without.respond().text


def test_endless_tool_rounds_end() -> None:
    asks = says("again", Finish.TOOLS, "a")
    world = World(*[asks] * 3)
    with pytest.raises(ToolRoundsError, match="after 2 rounds of tool calls and asks for step"):
        world.respond(rounds=2)
    assert world.notes.done == ["a", "a"]
    assert len(world.sent) == 3


def test_the_last_round_may_be_followed_by_an_answer() -> None:
    world = World(says("", Finish.TOOLS, "a"), says("done"))
    assert world.respond(rounds=1).text == "done"


def test_endless_pauses_end() -> None:
    world = World(*[says("", Finish.PAUSED)] * 3)
    with pytest.raises(ToolRoundsError, match="after 2 rounds of tool calls; raise"):
        world.respond(rounds=2)


def test_no_tool_is_called_after_the_deadline() -> None:
    world = World(says("", Finish.TOOLS, "a", "b"))
    deadline = Deadline.after(1, clock=world.notes.clock)
    with pytest.raises(DeadlineExceededError):
        world.respond(deadline=deadline)
    assert world.notes.done == ["a"]
