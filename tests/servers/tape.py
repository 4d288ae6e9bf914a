"""A brain that says what the embedded offline model says, tools included."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TypeVar

import attrs
import jsonschema

from promptgraft import OfflineAdapter
from promptgraft.adapters.base import (
    PromptExecuted,
    PromptResponse,
    ProviderAdapter,
    ToolInvoked,
    adapter_identity,
    evaluated,
)
from promptgraft.errors import CandidateError, DataFormatError
from promptgraft.ground.serde import Json, canonical_json, parse_json
from promptgraft.prompt.rendered import PromptRendered, RenderedPrompt
from promptgraft.prompt.template import Prompt
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.session import Session, SessionProtocol
from servers.behaviour import Answer, Asked, Call, JsonObject

OutputT = TypeVar("OutputT")

_Lines = tuple[str, ...]


@attrs.frozen
class _Recorded:
    said: frozenset[str]
    calls: tuple[Call, ...]
    text: str


class Tape:
    """Knows by heart what the offline model answers to the prompts that it was taught.

    A request is recognised by its texts, and by what it says of tools and fields, wherever
    an adapter puts them. Calls of tools are asked for one after the other.

    Args:
        model: what is asked for the answers.
    """

    def __init__(self, model: ProviderAdapter | None = None) -> None:
        self._model = model or OfflineAdapter()
        self._known: dict[_Lines, dict[frozenset[str], _Recorded]] = {}
        self._lock = threading.Lock()

    def learn(self, prompt: Prompt[OutputT]) -> None:
        """Learn the answer to a prompt; nothing is learned of one that does not render."""
        session = Session()
        with contextlib.suppress(CandidateError):
            self._model.evaluate(prompt, session=session)
        rendered, executed = session.latest(PromptRendered), session.latest(PromptExecuted)
        if rendered is None or executed is None:
            return
        calls = tuple(
            Call(event.name, canonical_json(event.params))
            for event in session.select_all(ToolInvoked)
        )
        said = _said_in(rendered.prompt)
        with self._lock:
            same_text = self._known.setdefault(_lines(rendered.prompt.text), {})
            same_text[said] = _Recorded(said, calls, executed.response.text)

    def __call__(self, asked: Asked) -> Answer:
        """Return the next call of a tool, or the answer.

        Raises:
            LookupError: nobody taught it that prompt.
        """
        with self._lock:
            same_text = tuple(self._known.get(_lines(*asked.texts), {}).values())
        if not same_text:
            raise LookupError(f"the tape does not know this prompt: {canonical_json(asked.body)}")
        said = frozenset(_descriptions(asked.body))
        recorded = min(same_text, key=lambda one: len(one.said ^ said))
        made = len(asked.results)
        if made < len(recorded.calls):
            return Answer(calls=(recorded.calls[made],))
        return Answer(text=_held_to(asked.schema, recorded.text))


class Taught:
    """An adapter that teaches a tape each prompt before it sends it to the tape's server."""

    def __init__(self, adapter: ProviderAdapter, tape: Tape) -> None:
        self._adapter = adapter
        self._tape = tape

    @property
    def identity(self) -> str:
        return adapter_identity(self._adapter)

    def evaluate(
        self,
        prompt: Prompt[OutputT],
        *,
        session: SessionProtocol,
        deadline: Deadline | None = None,
    ) -> PromptResponse[OutputT]:
        self._tape.learn(prompt)
        return evaluated(self._adapter, prompt, session=session, deadline=deadline)


def _held_to(schema: JsonObject | None, text: str) -> str:
    """Return an answer as a model writes it that is held to a schema.

    Raises:
        LookupError: it does not fit.
    """
    if schema is None:
        return text
    fits = jsonschema.Draft202012Validator(schema).is_valid
    for written in (text, canonical_json({"answer": text})):
        with contextlib.suppress(DataFormatError):
            if fits(parse_json(written, where="answer")):
                return written
    raise LookupError(f"the tape cannot say {text!r} as {canonical_json(schema)}")


def _lines(*texts: str) -> _Lines:
    lines = (line.strip() for text in texts for line in text.splitlines())
    return tuple(sorted(line for line in lines if line))


def _said_in(rendered: RenderedPrompt[object]) -> frozenset[str]:
    """Return what a prompt says of its tools and fields."""
    tools: list[Json] = [
        {"description": tool.description, "schema": tool.params_schema} for tool in rendered.tools
    ]
    return frozenset(_descriptions([*tools, rendered.output_schema]))


def _descriptions(value: Json) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _descriptions(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key == "description" and isinstance(item, str):
                yield item
            yield from _descriptions(item)
