"""Calls of a function with the arguments of a test, by its own client or by a model."""

from __future__ import annotations

import asyncio
import mimetypes
import os
import time
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import attrs
import msgspec

from promptgraft.adapters.anthropic import AnthropicAdapter
from promptgraft.adapters.base import Usage
from promptgraft.adapters.calling.access import redacted_line
from promptgraft.adapters.calling.adapter import ModelAdapter
from promptgraft.adapters.calling.caller import Caller
from promptgraft.adapters.calling.retrying import RetryPolicy
from promptgraft.adapters.calling.turns import Finish, NothingReceivedError, Received, Turn, read_as
from promptgraft.adapters.responses import ResponsesWire
from promptgraft.agents.call import AgentAnswer, AgentCall
from promptgraft.bridges.baml.functions import ASK, KEYS_OF, BamlFunction
from promptgraft.bridges.baml.judging import Judged, judged
from promptgraft.bridges.baml.runtime import CompiledProject, UnreadableAnswerError, error_text
from promptgraft.bridges.baml.scanner import Declaration, words_of
from promptgraft.bridges.baml.tests import BamlTest
from promptgraft.errors import ConfigError, DataFormatError, MissingHereError
from promptgraft.ground.content import File, Image, Input, from_base64
from promptgraft.ground.secrets import SENSITIVE
from promptgraft.ground.serde import Json, digest, looks_like_a_key
from promptgraft.prompt.rendered import RenderedPrompt
from promptgraft.prompt.schema import JsonObject
from promptgraft.runtime.session import NOTHING

if TYPE_CHECKING:
    from baml_py import ClientRegistry
    from baml_py.baml_py import FunctionLog, FunctionResult, LLMCall, LLMStreamCall

    from promptgraft.bridges.baml.runtime import Told


T = TypeVar("T")

_MEDIA = {
    "image": ("Image", "image/png"),
    "audio": ("Audio", "audio/mpeg"),
    "pdf": ("Pdf", "application/pdf"),
    "video": ("Video", "video/mp4"),
}
_WAYS = ("file", "url", "base64")


def arguments_of(function: BamlFunction, test: BamlTest) -> dict[str, object]:
    """Return the arguments of a call, with files read.

    Raises:
        ConfigError: a file cannot be read, or is outside the parent folder of the BAML project.
    """
    return _Arguments(function, test, _media).all()


def inputs_of(function: BamlFunction, test: BamlTest) -> dict[str, Input]:
    """Return the arguments of a test as the input of a case, with images and files as values.

    Raises as :func:`arguments_of` does.
    """
    return _Arguments(function, test, _file_or_value).all()


class _Arguments(Generic[T]):
    """Converts the arguments of a test; ``make`` gets each media value, its kind, and its file."""

    def __init__(
        self,
        function: BamlFunction,
        test: BamlTest,
        make: Callable[[Mapping[str, Json], str, File | None], T],
    ) -> None:
        self._function, self._test, self._make = function, test, make

    def all(self) -> dict[str, Any]:
        types = self._function.block.inputs
        return {
            name: self._value(value, types.get(name, "")) for name, value in self._test.args.items()
        }

    def _value(self, value: Json, kind: str) -> object:
        """Convert a value to a type, which is recognized by the words in it."""
        if isinstance(value, list):
            return [self._value(item, kind) for item in value]
        if not isinstance(value, dict):
            return value
        words = self._words(kind)
        media = next((word for word in _MEDIA if word in words), "")
        if media and len([way for way in _WAYS if way in value]) == 1:
            return self._make(value, media, self._file(value, media))
        fields = self._fields(words)
        return {name: self._value(item, fields.get(name, kind)) for name, item in value.items()}

    def _words(self, kind: str) -> frozenset[str]:
        """Return the words in a type, with those of the types that it is an alias of."""
        words = words_of(kind)
        return words.union(
            *(type_block.words for type_block in self._named(words) if type_block.kind == "type")
        )

    def _fields(self, words: frozenset[str]) -> Mapping[str, str]:
        classes = (class_block for class_block in self._named(words) if class_block.kind == "class")
        return {member.name: member.type for block in classes for member in block.members}

    def _named(self, words: frozenset[str]) -> list[Declaration]:
        return [type_block for name, type_block in self._function.types.items() if name in words]

    def _file(self, value: Mapping[str, Json], kind: str) -> File | None:
        """Return a media value as a file; None for an address that is not read over HTTP."""
        stated = value.get("media_type")
        media_type = stated if isinstance(stated, str) else ""
        make = Image if kind == "image" else File
        if isinstance(url := value.get("url"), str):
            is_web = url.startswith(("https://", "http://"))
            return make(url=url, media_type=media_type) if is_web else None
        try:
            if isinstance(name := value.get("file"), str):
                named = media_type or mimetypes.guess_type(name)[0] or _MEDIA[kind][1]
                return make(self._path(name), media_type=named)
            data = from_base64(str(value.get("base64")))
            return make(data=data, media_type=media_type or _MEDIA[kind][1], name=kind)
        except DataFormatError as error:
            raise ConfigError(f"{self._test.origin}: {error}") from error

    def _path(self, name: str) -> Path:
        path = (self._test.file.parent / name).resolve()
        # A test file from elsewhere must not send other files of this machine to a provider.
        if not path.is_relative_to(self._function.folder.resolve().parent):
            raise ConfigError(
                f"{self._test.origin}: {name} is outside of the folder around "
                f"{self._function.folder}; copy it there"
            )
        return path


def _file_or_value(value: Mapping[str, Json], kind: str, file: File | None) -> Input:
    del kind
    return value if file is None else file


def _media(value: Mapping[str, Json], kind: str, file: File | None) -> object:
    """Return a media value of BAML."""
    import baml_py

    make = getattr(baml_py, _MEDIA[kind][0])
    if file is None or file.url is not None:
        return make.from_url(str(value.get("url")))
    # A PDF of `baml_py` takes no media type.
    named = () if kind == "pdf" else (file.media_type,)
    return make.from_base64(*named, file.base64)


_MESSAGES = ("system", "messages", "instructions", "input")
"""The fields of a request that hold its messages, in the forms of all providers."""


def messages_of(
    function: BamlFunction,
    compiled: CompiledProject,
    test: BamlTest,
    *,
    provider: str = "openai-generic",
    inner: InnerCall | None = None,
) -> JsonObject:
    """Return the messages that BAML would send to a provider for a test, without sending them.

    ``system`` is separate for providers that take it so. With ``inner``, those of a call in a flow.

    Raises:
        ConfigError: the arguments do not fit.
    """
    from baml_py import ClientRegistry

    clients = ClientRegistry()
    # Nothing is sent to this address: the client is only used to render the messages.
    clients.add_llm_client("model", provider, {"base_url": "http://localhost", "model": "any"})
    clients.set_primary("model")
    try:
        body = compiled.request(told_of(function, compiled, test, clients=clients, inner=inner))
    except ConfigError as error:
        raise _refusal(test, str(error)) from None
    return {name: body[name] for name in _MESSAGES if name in body}


@attrs.frozen
class InnerCall:
    """A call that a flow makes.

    Attributes:
        function: the function that it calls.
        messages: what that function sends: objects with ``role`` and ``content``, a text.
    """

    function: str
    messages: tuple[Mapping[str, str], ...] = attrs.field(hash=False)


def told_of(
    function: BamlFunction,
    compiled: CompiledProject,
    test: BamlTest,
    *,
    clients: ClientRegistry | None = None,
    inner: InnerCall | None = None,
) -> Told:
    """Return what BAML is told for a test, or for a call inside it.

    Raises:
        ConfigError: the arguments do not fit.
    """
    return (
        function.name if inner is None else f"{ASK}{inner.function}",
        arguments_of(function, test) if inner is None else {"messages": [*inner.messages]},
        compiled.runtime.create_context_manager(),
        compiled.type_builder(test.types),
        clients,
    )


def _refusal(test: BamlTest, message: str) -> ConfigError:
    return ConfigError(f"{test.origin}: test {test.name}: {message}")


# Characters; shorter values would be blanked inside ordinary words too.
_SHORTEST_SECRET = 8
_OK, _NO_SUCCESS = 200, 300
_NO_SECTIONS: RenderedPrompt[object] = RenderedPrompt(
    ns="baml", key="function", sections=(), output_type=None, applied=(), skipped=()
)


@attrs.frozen(kw_only=True)
class Environment:
    """The environment variables that clients see.

    Attributes:
        variables: all variables of the process.
        secrets: the values that are secret, by the name of their variable or by their form.
        account: identifies the account whose requests share a limit.
    """

    variables: dict[str, str] = attrs.field(repr=False, hash=False)
    secrets: tuple[str, ...] = attrs.field(repr=False)
    account: str

    @classmethod
    def of(cls, function: BamlFunction) -> Environment:
        """Return the current environment for a function.

        Raises:
            ConfigError: a variable that the function needs is not set.
        """
        variables = dict(os.environ)
        for name in function.variables:
            if not variables.get(name):
                raise MissingHereError(
                    f"the environment variable {name} is not set; export it first"
                )
        secrets = tuple(
            value
            for name in sorted({*function.variables, *chain.from_iterable(KEYS_OF.values())})
            if len(value := variables.get(name, "")) >= _SHORTEST_SECRET
            and (SENSITIVE.search(name) or looks_like_a_key(value))
        )
        account = f"baml {function.client} {digest(secrets)}"
        return cls(variables=variables, secrets=secrets, account=account)


@attrs.frozen(kw_only=True)
class BamlCall:
    """A call of a function with the arguments of a test.

    Attributes:
        compiled: the function with the texts of a candidate.
        asked: the call of the agent.
        inner: the call that a flow makes, to be answered in place of the function; None for itself.
    """

    function: BamlFunction
    compiled: CompiledProject
    test: BamlTest
    asked: AgentCall
    inner: InnerCall | None = None

    def by_own_client(self, environment: Environment, policy: RetryPolicy) -> AgentAnswer:
        """Let the client of the BAML project answer; raises what :meth:`Caller.call` does.

        Raises:
            ConfigError: the arguments do not fit.
        """
        turn, endpoint = self._turn_of_client(environment, policy)
        # BAML has parsed the answer already, but before secrets were blanked.
        result = endpoint.result if endpoint.text == turn.text else None
        return self._answer(turn, endpoint.milliseconds, result)

    def turn_of_client(self, environment: Environment, policy: RetryPolicy) -> Turn:
        """Return the reply of the client of the BAML project; raises as the above does."""
        return self._turn_of_client(environment, policy)[0]

    def _turn_of_client(
        self, environment: Environment, policy: RetryPolicy
    ) -> tuple[Turn, _OwnClient]:
        client = self.function.client
        if self.inner is not None:
            client = self.function.asked[self.inner.function].word("client")
        endpoint = _OwnClient(
            self,
            told_of(self.function, self.compiled, self.test, inner=self.inner),
            environment.variables,
            account=environment.account,
            secrets=environment.secrets,
            blanked=environment.secrets,
        )
        turn = Caller(endpoint, policy=policy, call_timeout=policy.timeout).call(
            {},
            read=_read,
            price=lambda _: None,
            model=client,
            expected=NOTHING,
            session=self.asked.session,
            deadline=self.asked.deadline,
        )
        return turn, endpoint

    def by_model(self, model: ModelAdapter) -> AgentAnswer:
        """Let a model answer what BAML would send; raises what :meth:`ModelAdapter.ask` does.

        Raises:
            ConfigError: the arguments do not fit.
        """
        began = time.perf_counter()
        turn = self.turn_of_model(model)
        return self._answer(turn, round(1000 * (time.perf_counter() - began)), None)

    def turn_of_model(self, model: ModelAdapter) -> Turn:
        """Return the reply of a model; raises as :meth:`by_model` does."""
        wire = model.wire
        provider = "anthropic" if isinstance(model, AnthropicAdapter) else "openai-generic"
        if isinstance(wire, ResponsesWire):
            provider = "openai-responses"
        messages = messages_of(
            self.function, self.compiled, self.test, provider=provider, inner=self.inner
        )
        # The model's own options with BAML's messages, so that the output is prompted by BAML
        # alone.
        request = {**wire.open(_NO_SECTIONS), **messages}
        return model.ask(request, session=self.asked.session, deadline=self.asked.deadline)

    def refusal(self, message: str) -> ConfigError:
        """Return the error for arguments that BAML refuses before sending a request."""
        return _refusal(self.test, message)

    def _answer(self, turn: Turn, milliseconds: int, result: FunctionResult | None) -> AgentAnswer:
        value, fault = None, ""
        try:
            if result is not None and result.is_ok():
                value = self.compiled.output(result)
            else:
                value = self.compiled.parsed(self.function.name, turn.text, self.test.types)
        except UnreadableAnswerError as error:
            fault = str(error)
        output = self.judged(value, fault, milliseconds)
        return AgentAnswer(text=turn.text, output=output, usage=turn.usage, counted=True)

    def judged(self, value: Json, fault: str, milliseconds: int) -> Json:
        """Return a value with what the rules of the test say of it, or why there is none."""
        judged_rules: tuple[Judged, ...] = ()
        if not fault:
            args = self.test.args
            judged_rules = judged(self.test.rules, value, args=args, latency_ms=milliseconds)
        rules: list[Json] = [
            {
                "name": judged_rule.rule.name,
                "rule": judged_rule.rule.expression,
                "assert": judged_rule.rule.is_assert,
                "held": judged_rule.held,
                "why": judged_rule.why,
            }
            for judged_rule in judged_rules
        ]
        return {"value": value, "fault": fault, "rules": rules, "latency_ms": milliseconds}


@attrs.define
class _OwnClient:
    """The client of a BAML project, as an endpoint that repeats one call.

    Attributes:
        text: the last answer.
        result: the last answer, parsed by BAML.
        milliseconds: the duration of the last request.
    """

    call: BamlCall
    told: Told = attrs.field(repr=False)
    variables: dict[str, str] = attrs.field(repr=False)
    account: str = attrs.field(kw_only=True)
    secrets: tuple[str, ...] = attrs.field(kw_only=True, repr=False)
    blanked: tuple[str, ...] = attrs.field(kw_only=True, repr=False)
    text: str = attrs.field(init=False, default="", repr=False)
    result: FunctionResult | None = attrs.field(init=False, default=None, repr=False)
    milliseconds: int = attrs.field(init=False, default=0)

    async def send(self, body: JsonObject, *, seconds: float) -> Received:
        from baml_py import Collector
        from baml_py.errors import BamlError

        collector, runtime = Collector("promptgraft"), self.call.compiled.runtime
        try:
            async with asyncio.timeout(seconds):
                self.result = await runtime.call_function(
                    *self.told, [collector], self.variables, None
                )
        except BamlError as error:
            raise self.call.refusal(redacted_line(error_text(error), self.secrets)) from None
        log = collector.last
        if log is None or not (calls := log.calls):
            raise self.call.refusal("BAML has sent nothing")
        if (text := log.raw_llm_response) is None:
            return _refused(calls[-1], len(calls))
        self.text = text
        self.milliseconds = max(call.timing.duration_ms or 0 for call in calls)
        content = msgspec.json.encode(_AnswerBody(text=text, usage=_usage(log))).decode()
        return Received(status=_OK, headers={}, content=content, requests=len(calls))


def _refused(call: LLMCall | LLMStreamCall, requests: int) -> Received:
    response = call.http_response
    if response is None:
        raise NothingReceivedError("nothing was received")
    text, headers = response.body.text(), response.headers
    # BAML reports a failed connection as a response without headers.
    if not headers:
        raise NothingReceivedError(text, unreachable="Connect" in text)
    if response.status < _NO_SUCCESS:
        raise NothingReceivedError("a reply that BAML cannot read")
    headers_by_name = {name.lower(): str(value) for name, value in headers.items()}
    return Received(
        status=response.status, headers=headers_by_name, content=text, requests=requests
    )


@attrs.frozen(kw_only=True)
class _AnswerBody:
    """The body of an answer; secrets in it are blanked before it is read."""

    text: str
    usage: Usage


def _usage(log: FunctionLog) -> Usage:
    used = log.usage
    return Usage(
        input_tokens=used.input_tokens or 0,
        output_tokens=used.output_tokens or 0,
        cached_tokens=used.cached_input_tokens or 0,
    )


def _read(body: JsonObject) -> Turn:
    answer_body = read_as(_AnswerBody, body)
    return Turn(
        text=answer_body.text,
        finish=Finish.DONE,
        finish_reason="stop",
        usage=answer_body.usage,
        model="",
        messages=(body,),
    )
