"""Calls of tools: which one, with what by analogy, and what comes back."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import attrs

from promptgraft.adapters.calling.tools import call_tool
from promptgraft.adapters.offline.agent_names import counterparts, names_in, own_words, replaced
from promptgraft.adapters.offline.agent_patterns import Call
from promptgraft.adapters.offline.words import content_words
from promptgraft.prompt.rendered import RenderedTool
from promptgraft.runtime.session import SessionProtocol
from promptgraft.serde import Json

Path = tuple[str | int, ...]
"""Keys and positions from the top of a JSON value down to a leaf."""

_MOST_LEAVES = 2_000


class NothingThereError(LookupError):
    """What an analogy asks for is not in the results."""


@attrs.frozen(kw_only=True)
class Made:
    """A call that was made.

    Attributes:
        tool: name of the tool.
        input: the parameters.
        output: the result; None when it failed.
    """

    tool: str
    input: Json
    output: Json


@attrs.frozen(kw_only=True)
class Analogy:
    """From a text that the prompt shows, and what was done about it, to a new text.

    Attributes:
        before: the text that the prompt shows: an objective, or why a call is made.
        after: the new text.
        shown: the calls that the prompt shows, as far as they have been followed.
        made: what was made of each; None where nothing was.
    """

    before: str
    after: str
    shown: Sequence[Call] = ()
    made: Sequence[Made | None] = ()

    def of(self, value: Json) -> Json:
        """Return what answers to ``value``.

        Names of the text before become the names at the same place of the text after. A text
        that stands somewhere in a shown result becomes what stands there in the real one.
        Plain words that only the text before has become those that only the text after has.
        Everything else stays.

        Raises:
            NothingThereError: the real result holds nothing at that place.
        """
        match value:
            case str():
                return self._of_text(value)
            case list():
                return [self.of(item) for item in value]
            case dict():
                return {key: self.of(item) for key, item in value.items()}
            case bool() | None:
                return value
        number = counterparts(self.before, self.after).get(str(value))
        return int(number) if number is not None and number.isdigit() else value

    def from_results(self, value: Json) -> Json:
        """Return what stands in the real results where ``value`` stands in the shown ones.

        Raises:
            NothingThereError: no shown result holds ``value``, or the real one nothing there.
        """
        for call, made in zip(self.shown, self.made, strict=False):
            for path, leaf in leaves(call.output):
                if leaf == value and type(leaf) is type(value):
                    return at(made.output if made else None, path)
        raise NothingThereError

    def _of_text(self, value: str) -> Json:
        named = replaced(value, counterparts(self.before, self.after))
        if named != value:
            return named
        if value and any(leaf == value for call in self.shown for _, leaf in leaves(call.output)):
            return self.from_results(value)
        return replaced(value, own_words(self.before, self.after))


def leaves(value: Json) -> Iterator[tuple[Path, Json]]:
    """Yield texts, numbers and truth values of a JSON value with their places, in order."""
    return itertools.islice(_leaves(value), _MOST_LEAVES)


def _leaves(value: Json) -> Iterator[tuple[Path, Json]]:
    waiting: list[tuple[Path, Json]] = [((), value)]
    while waiting:
        path, found = waiting.pop()
        if isinstance(found, dict):
            waiting.extend(((*path, key), item) for key, item in reversed(found.items()))
        elif isinstance(found, list):
            places = range(min(len(found), _MOST_LEAVES) - 1, -1, -1)
            waiting.extend(((*path, place), found[place]) for place in places)
        elif found is not None:
            yield path, found


def at(value: Json, path: Path) -> Json:
    """Return what stands at a place.

    Raises:
        NothingThereError: nothing does.
    """
    for key in path:
        match value:
            case dict() if isinstance(key, str) and key in value:
                value = value[key]
            case list() if isinstance(key, int) and key < len(value):
                value = value[key]
            case _:
                raise NothingThereError
    if value is None:
        raise NothingThereError
    return value


def make(tool: RenderedTool, given: Json, session: SessionProtocol) -> Made:
    """Call a tool and tell the session of it. A call that fails has no result."""
    called = call_tool(tool, given, session)
    return Made(tool=tool.name, input=given, output=called.output)


def first_guess(tool: RenderedTool, text: str) -> Json:
    """Return parameters for a tool of which no call is shown.

    Texts are the names in the input, one after the other, and then its words; numbers are 1;
    what need not be given is not.
    """
    found = [name.value for name in names_in(text) if name.kind != "number"]
    texts = iter([*found, *content_words(text)])
    schema = tool.params_schema
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict) or not isinstance(required, list):
        return {}
    return {name: _guess(kind, texts) for name, kind in properties.items() if name in required}


def _guess(kind: Json, texts: Iterator[str]) -> Json:
    if not isinstance(kind, dict):
        return None
    options = kind.get("enum")
    if isinstance(options, list) and options:
        return options[0]
    simple: dict[str, Json] = {"integer": 1, "number": 1, "boolean": False, "array": []}
    name = kind.get("type")
    if isinstance(name, str) and name in simple:
        return simple[name]
    return next(texts, "") if name == "string" else {}
