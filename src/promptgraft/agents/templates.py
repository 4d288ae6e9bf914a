"""Templates of requests and command lines, and reading replies."""

from __future__ import annotations

import contextlib
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property

import attrs

from promptgraft.adapters.calling.access import blanked
from promptgraft.adapters.calling.parts import chat_content
from promptgraft.agents.call import LONGEST_SHOWN, AgentAnswer, AgentCall, answer_of_data
from promptgraft.errors import (
    AgentFaultError,
    ConfigError,
    DataFormatError,
    PermanentProviderError,
    PromptEvaluationError,
)
from promptgraft.evals.field_kinds import TOOL_USES, USE_ALIASES, USE_KEYS, defines_tool
from promptgraft.evals.foreign import call_in_usual_form
from promptgraft.evals.histories import is_history, since_last_question, tools_of_history
from promptgraft.evals.metrics.reading import parse_path, places
from promptgraft.evals.types import ToolUse
from promptgraft.ground.content import File, in_words
from promptgraft.ground.environment import Secret
from promptgraft.ground.folders import temporary_folder
from promptgraft.ground.serde import (
    Json,
    canonical_json,
    did_you_mean,
    map_texts,
    parse_json,
    shown,
    unstructure,
)
from promptgraft.ground.strict.checks import STRING
from promptgraft.ground.strict.nodes import Source
from promptgraft.ground.text import clip, listed

_PLACE = re.compile(r"(?<!\$)\{([a-z_]+)(?:\.([^{}\s]+))?\}")
_VALUES: Mapping[str, Callable[[str, AgentCall], Json]] = {
    "query": lambda query, _: query,
    "folder": lambda _, call: "" if call.folder is None else str(call.folder),
    "session_id": lambda _, call: call.session_id,
    "turn": lambda _, call: call.turn,
    "example": lambda _, call: call.example,
    "history": lambda _, call: [unstructure(one) for one in call.history],
    "context": lambda _, call: [
        {"speaker": message.speaker.value, "text": in_words(message.text)}
        for message in call.context
    ],
    "input": lambda _, call: call.input,
    "content": lambda _, call: chat_content(call.content),
    "files": lambda _, call: [file.path or file.url for file in call.files],
    "state": lambda _, call: unstructure(call.state),
}
_IN_DOCUMENT = re.compile(rf'"(?:[^"\\]|\\.)*"|{_PLACE.pattern}')
"""A string of JSON, or a place outside of strings."""
_LINES = re.compile(r"^(?:[{\[]\r?\n(?:[ \t].*\n)+[}\]]\r?$|.+$)", re.MULTILINE)
"""A line, or the lines of a value that is indented."""
_TEXTS, _INPUT = "texts", "input"
_FILES = ("content", "files")
_ASKED = ("query", _INPUT, *_FILES)


@attrs.frozen(kw_only=True, slots=False)
class Template:
    """Plain data with places such as ``{query}`` and ``{texts.NAME}``.

    ``${NAME}`` is replaced by an environment variable. Values that are filled in are not expanded
    again.

    Attributes:
        value: the data.
        where: its name in messages.
    """

    value: Json = attrs.field(hash=False)
    where: str

    @cached_property
    def places(self) -> tuple[tuple[str, str], ...]:
        """Names in braces, each with the part after the dot; unknown names are literal text."""
        places_named = dict.fromkeys(
            place for text in _texts_in(self.value) for place in _PLACE.findall(text)
        )
        return tuple(places_named)

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """The environment variables that it uses."""
        texts = _texts_in(self.value)
        return tuple(dict.fromkeys(name for text in texts for name in Secret(text).names))

    def names(self, place: str) -> bool:
        """Return whether it contains a place."""
        return any(name == place for name, _ in self.places)

    def check(self, texts: Collection[str], *, folder: bool) -> None:
        """Check that every place has a value.

        Raises:
            ConfigError: there is no such text or no folder, or a name is probably misspelled.
        """
        for name, rest in self.places:
            if name == _TEXTS and rest not in texts:
                raise ConfigError(
                    f"{self.where}: there is no text `{rest}`{did_you_mean(rest, list(texts))}; "
                    f"texts: {listed(texts)}"
                )
            if name == "folder" and not folder:
                raise ConfigError(
                    f"{self.where}: `{{folder}}` is the copy that the delivery `folder` makes; "
                    "choose it, or leave the place out"
                )
            near = did_you_mean(name, [*_VALUES, _TEXTS])
            if near and name not in _VALUES and name != _TEXTS:
                raise ConfigError(f"{self.where}: there is no place `{{{name}}}`{near}")

    def filled(self, query: str, call: AgentCall) -> Json:
        """Return the data with all places filled in."""

        def plain(match: re.Match[str]) -> str:
            value = self._value(match, query, call)
            return value if isinstance(value, str) else canonical_json(value)

        def in_document(match: re.Match[str]) -> str:
            text = match[0]
            if match[1]:
                return plain(match)
            has_places = _PLACE.search(text) or Secret(text).names
            # A quote or a line break in a query would end the string.
            return json.dumps(fill(json.loads(text)), ensure_ascii=False) if has_places else text

        def fill(value: Json) -> Json:
            if isinstance(value, dict):
                return {name: fill(item) for name, item in value.items()}
            if isinstance(value, list):
                return [fill(item) for item in value]
            if not isinstance(value, str):
                return value
            if whole := _PLACE.fullmatch(value):
                return self._value(whole, query, call)
            if _is_document(value):
                return _IN_DOCUMENT.sub(in_document, value)
            # Expand variables first: a value that is filled in may look like one.
            return _PLACE.sub(plain, Secret(value).reveal())

        return fill(self.value)

    def _value(self, place: re.Match[str], query: str, call: AgentCall) -> Json:
        name, rest = place[1], place[2]
        if rest and name == _TEXTS:
            return call.texts[rest]
        if rest and name == _INPUT:
            return field_of(call.input, rest, self.where)
        make = _VALUES.get(name)
        return place[0] if make is None or rest else make(query, call)

    def text(self, query: str, call: AgentCall) -> str:
        """Return the filled-in data as text."""
        text_filled = self.filled(query, call)
        return text_filled if isinstance(text_filled, str) else canonical_json(text_filled)


def field_of(message: Json, name: str, where: str) -> Json:
    """Return a field of a message, which ``{input.NAME}`` in ``where`` names.

    Raises:
        ConfigError: the message has no such field.
    """
    fields = message if isinstance(message, dict) else {}
    if name not in fields:
        there = f"has {listed(fields)}" if fields else "is no object"
        near = did_you_mean(name, list(fields))
        raise ConfigError(f"{where} names the field `{name}` of the input, which {there}{near}")
    return fields[name]


def _is_document(text: str) -> bool:
    """Return whether a text is an object or a list in JSON if its places are values."""
    if text.lstrip()[:1] not in {"{", "["}:
        return False
    with contextlib.suppress(DataFormatError):
        parse_json(_IN_DOCUMENT.sub(lambda found: "0" if found[1] else found[0], text), where="")
        return True
    return False


def _texts_in(value: Json) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in inner for text in _texts_in(item)]


class Templated(ABC):
    """An agent whose requests are templates and whose replies are read as text or JSON."""

    answer: str | None
    tools: str | None

    @property
    @abstractmethod
    def name(self) -> str:
        """What messages call it."""

    @property
    @abstractmethod
    def _templates(self) -> tuple[Template, ...]: ...

    @property
    def reports_tools(self) -> bool:
        return self.tools is not None

    @property
    def takes_files(self) -> bool:
        """Whether it is given the images and files of a query, and not only their names."""
        return any(template.names(place) for template in self._templates for place in _FILES)

    def check_message(self, message: Json) -> None:
        """Raise a ``ConfigError`` if a message lacks a field that a request names."""
        for template in self._templates:
            for name, field in template.places:
                if name == _INPUT and field:
                    field_of(message, field, template.where)

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables that it needs."""
        return self._secret_names

    @property
    def _secret_names(self) -> tuple[str, ...]:
        """The variables whose values are blanked in messages and answers."""
        return tuple(
            dict.fromkeys(name for template in self._templates for name in template.variables)
        )

    @property
    def _secrets(self) -> tuple[str, ...]:
        return tuple(filter(None, map(os.environ.get, self._secret_names)))

    @contextlib.contextmanager
    def _with_paths(self, call: AgentCall) -> Iterator[AgentCall]:
        """Give the files of a call that are in memory a path until its end, if paths are named."""
        in_memory = [file for file in call.files if file.data is not None]
        if not in_memory or not any(template.names("files") for template in self._templates):
            yield call
            return
        with temporary_folder() as folder:
            paths: dict[str, File] = {}
            for number, file in enumerate(in_memory):
                path = folder / f"{number}-{file.name}"  # two files may have one name
                path.write_bytes(file.read())
                paths[str(file)] = type(file)(path, name=file.name, media_type=file.media_type)
            content = tuple(paths.get(str(piece), piece) for piece in call.content)
            yield attrs.evolve(call, content=content)

    def _check_places(
        self, names: Collection[str], where: str, needed: str, *, is_reached: bool = False
    ) -> None:
        """Check that the templates contain what is asked, and the place ``needed`` if not empty.

        With ``is_reached`` the texts reach the agent in another way too.

        Raises:
            ConfigError: a place is missing; the message begins with ``where``.
        """
        for template in self._templates:
            template.check(names, folder=needed == "folder")
        if not any(template.names(place) for template in self._templates for place in _ASKED):
            raise ConfigError(
                f"{where} contains `{{query}}`, or `{{input.NAME}}` for a field of the input, so "
                "every request would be the same; add it"
            )
        if (
            needed
            and not is_reached
            and not any(template.names(needed) for template in self._templates)
        ):
            place = "{folder}" if needed == "folder" else "{texts.NAME}"
            raise ConfigError(
                f"{where} contains `{place}`, so the texts of a candidate never reach the agent; "
                "add it, or choose another delivery"
            )

    def _answer_in(
        self,
        reply: str,
        *,
        turn: int = 0,
        is_output: bool = False,
        error_class: type[PromptEvaluationError] = AgentFaultError,
    ) -> AgentAnswer:
        """Return the answer in a reply in which secrets are blanked already.

        Secrets are blanked again in the parsed JSON, where escapes may have hidden them. The output
        of a command may have other lines than the answer: a log, or events.

        Raises:
            AgentFaultError: the reply has another form.
            error_class: it has an ``error`` and no answer.
        """
        if self.answer is None and self.tools is None:
            if place := _text_of_model(reply):
                raise AgentFaultError(
                    f"the whole reply of a model would be the answer; write `answer: {place}`"
                )
            return AgentAnswer(text=reply)
        try:
            data = parse_json(reply, where="reply")
        except DataFormatError:
            values = _values_in(reply)
            if not is_output or not values:
                raise _not_json(reply, is_stream=len(values) > 1) from None
            path = parse_path(self.answer or "$")
            data = next((value for value in values if any(places(value, path))), values[0])
        secrets = self._secrets
        data = map_texts(data, lambda text: hidden(text, secrets))
        answers = [value for _, value in places(data, parse_path(self.answer or "$"))]
        if isinstance(data, dict) and data.get("error") and answers in ([], [None], [""]):
            error_shown = shown(clip(canonical_json(data["error"]), LONGEST_SHOWN, around=" "))
            raise error_class(f"the agent answered with an error: {error_shown}")
        tools = None if self.tools is None else self._tools_in(data, self.tools, turn)
        return answer_of_data(_at(data, self.answer or "$"), tools)

    def _tools_in(self, data: Json, path: str, turn: int) -> tuple[ToolUse, ...]:
        """Return the calls at a path of a reply; APIs leave them out, or null, if there are none.

        Of a history, they are those of the turn, with what the tools answered.

        Raises:
            AgentFaultError: their arguments are no JSON, as models write them.
            PermanentProviderError: the service has something else there, whatever the candidate.
        """
        values: list[Json] = [
            value for _, value in places(data, parse_path(path)) if value is not None
        ]
        match values:
            case [[*calls]]:
                values = calls
        if is_history(values):
            return tools_of_history(since_last_question(values) if turn else values)
        uses: list[Json] = []
        for value in values:
            call = call_in_usual_form(value)
            is_named = isinstance(call, dict) and isinstance(call.get("name"), str)
            if not isinstance(call, dict) or not is_named or defines_tool(value):
                value_shown = shown(clip(canonical_json(value), LONGEST_SHOWN, around=" "))
                raise PermanentProviderError(
                    f"agent `{self.name}`: expected calls of tools at `{path}` of its replies, "
                    f'such as `{{"name": "search", "arguments": {{}}}}`, found {value_shown}; mend '
                    "the path in `tools`"
                )
            uses.append({key: call[key] for key in (*USE_KEYS, *USE_ALIASES) if key in call})
        source = Source.of(uses)
        tools = TOOL_USES.read(source.root)
        if tools is None:
            raise AgentFaultError(f"the tools in the agent's reply: {'; '.join(source.faults)}")
        return tools


def a_path(_: object, field: attrs.Attribute[str | None], value: str | None) -> None:
    """Raise ``ConfigError`` for an invalid path into a reply."""
    STRING.or_none.hold(field.name, value)
    try:
        parse_path(value or "")
    except ConfigError as error:
        raise ConfigError(f"{field.name}: {error}") from None


def hidden(text: str, secrets: Collection[str]) -> str:
    """Return ``text`` with secrets blanked."""
    if not secrets:
        return text
    [text_blanked] = blanked({"": text}, secrets).values()
    return str(text_blanked)


def _values_in(reply: str) -> list[Json]:
    """Return the JSON values in lines of their own, indented or not, the last one first."""
    values: list[Json] = []
    # No `splitlines`: JSON may have a U+2028 in its texts, which ends no line.
    for line in _LINES.finditer(reply):
        with contextlib.suppress(DataFormatError):
            values.append(parse_json(line[0], where=""))
    return values[::-1]


def _not_json(reply: str, *, is_stream: bool) -> AgentFaultError:
    reply_shown = shown(clip(reply, LONGEST_SHOWN, around=" "))
    if is_stream:
        return AgentFaultError(
            f"expected a whole reply, found a stream of lines: {reply_shown}; turn it off, "
            "often with `stream: false` in `json`"
        )
    return AgentFaultError(
        f"expected JSON from the agent, found {reply_shown}; without `answer`, the whole reply is "
        "the answer"
    )


def _at(data: Json, place: str) -> Json:
    values = [value for _, value in places(data, parse_path(place))]
    # A path with a wildcard may match several values, of which none is the answer.
    if len(values) != 1:
        what = f"{len(values)} of them in " if values else ""
        data_shown = shown(clip(canonical_json(data), LONGEST_SHOWN, around=" "))
        raise AgentFaultError(
            f"expected one value at `{place}` of the agent's reply, found {what}{data_shown}"
        )
    return values[0]


def _text_of_model(reply: str) -> str:
    """Return where the text is in a reply that a model's API has given; empty for others."""
    if not reply.lstrip().startswith("{"):
        return ""
    try:
        data = parse_json(reply, where="")
    except DataFormatError:
        return ""
    match data:
        case {"object": "chat.completion", "choices": list()}:
            return "$.choices[0].message.content"
        case {"object": "response", "output": list()}:
            return "$.output[-1].content[0].text"
        case {"type": "message", "role": "assistant", "content": list()}:
            return "$.content[0].text"
    return ""
