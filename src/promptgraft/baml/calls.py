"""Who answers a function: the client that the BAML project names, or a model of promptgraft."""

from __future__ import annotations

import json
import os
import time
from itertools import chain
from typing import TYPE_CHECKING, Any

import attrs

from promptgraft.adapters.anthropic import AnthropicAdapter
from promptgraft.adapters.base import Usage
from promptgraft.adapters.calling.access import SENSITIVE, one_line
from promptgraft.adapters.calling.adapter import ModelAdapter
from promptgraft.adapters.calling.caller import Caller
from promptgraft.adapters.calling.retrying import RetryPolicy
from promptgraft.adapters.calling.turns import (
    Finish,
    NothingReceivedError,
    Received,
    Turn,
    read_as,
)
from promptgraft.baml.arguments import arguments_of
from promptgraft.baml.functions import KEYS_OF, BamlFunction
from promptgraft.baml.runtime import Compiled, said_by
from promptgraft.baml.tests import BamlTest
from promptgraft.errors import ConfigError
from promptgraft.prompt.rendered import RenderedPrompt
from promptgraft.prompt.schema import JsonObject
from promptgraft.runtime.budget import NOTHING
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.session import SessionProtocol
from promptgraft.serde import digest, looks_like_a_key

if TYPE_CHECKING:
    from baml_py import ClientRegistry
    from baml_py.baml_py import FunctionLog, RuntimeContextManager

    Told = tuple[str, dict[str, object], RuntimeContextManager, Any, ClientRegistry | None]

_SHORTEST_SECRET = 8
_OK, _NO_SUCCESS = 200, 300
_NO_SECTIONS: RenderedPrompt[object] = RenderedPrompt(
    ns="baml", key="function", sections=(), output_type=None, applied=(), skipped=()
)


@attrs.frozen(kw_only=True)
class BamlAnswer:
    """What a model said; ``milliseconds`` is how long that took."""

    text: str
    usage: Usage
    milliseconds: int


@attrs.frozen(kw_only=True)
class BamlCall:
    """A function that is called with the arguments of a test.

    Attributes:
        compiled: the function with the texts of a candidate.
        session: where its calls are counted.
        deadline: until when; None without a limit.
        secrets: the values of variables that no message may hold.
    """

    function: BamlFunction
    compiled: Compiled
    test: BamlTest
    session: SessionProtocol = attrs.field(repr=False)
    deadline: Deadline | None
    secrets: tuple[str, ...] = attrs.field(repr=False)

    def by_own_client(self, policy: RetryPolicy) -> BamlAnswer:
        """Have the client of the project answer; raises what :meth:`Caller.call` does.

        Raises:
            ConfigError: the arguments do not fit, or a variable of the environment is not set.
        """
        for name in self.function.variables:
            if not os.environ.get(name):
                raise ConfigError(f"the environment variable {name} is not set; export it first")
        endpoint = _OwnClient(
            self,
            self._told(None),
            account=f"baml {self.function.client} {digest(self.secrets)}",
            secrets=self.secrets,
            blanked=self.secrets,
        )
        turn = Caller(endpoint, policy=policy, call_timeout=policy.timeout).call(
            {},
            read=_read,
            price=lambda _: None,
            model=self.function.client,
            expected=NOTHING,
            session=self.session,
            deadline=self.deadline,
        )
        return read_as(BamlAnswer, turn.message)

    def by_model(self, model: ModelAdapter) -> BamlAnswer:
        """Have a model answer what BAML would send; raises what :meth:`ModelAdapter.ask` does.

        Raises:
            ConfigError: the arguments do not fit.
        """
        from baml_py import ClientRegistry
        from baml_py.errors import BamlError

        clients = ClientRegistry()
        provider = "anthropic" if isinstance(model, AnthropicAdapter) else "openai-generic"
        # Nothing is sent there: only the messages are taken.
        clients.add_llm_client("model", provider, {"base_url": "http://localhost", "model": "any"})
        clients.set_primary("model")
        try:
            request = self.compiled.runtime.build_request_sync(*self._told(clients), {}, False)
        except BamlError as error:
            raise self.refusal(said_by(error)) from None
        body = request.body.json()
        said: JsonObject = {name: body[name] for name in ("system", "messages") if name in body}
        began = time.perf_counter()
        asked = {**model.wire.open(_NO_SECTIONS), **said}
        turn = model.ask(asked, session=self.session, deadline=self.deadline)
        took = round(1000 * (time.perf_counter() - began))
        return BamlAnswer(text=turn.text, usage=turn.usage, milliseconds=took)

    def refusal(self, said: str) -> ConfigError:
        """Return what becomes of arguments that BAML refuses before it has sent anything."""
        return ConfigError(f"{self.test.origin}: test {self.test.name}: {said}")

    def _told(self, clients: ClientRegistry | None) -> Told:
        return (
            self.function.name,
            arguments_of(self.function, self.test),
            self.compiled.runtime.create_context_manager(),
            self.compiled.type_builder(self.test.types),
            clients,
        )


@attrs.define
class _OwnClient:
    """The client that a project names, as an endpoint that makes one call, whatever is asked."""

    call: BamlCall
    told: Told = attrs.field(repr=False)
    account: str = attrs.field(kw_only=True)
    secrets: tuple[str, ...] = attrs.field(kw_only=True, repr=False)
    blanked: tuple[str, ...] = attrs.field(kw_only=True, repr=False)

    async def send(self, body: JsonObject, *, seconds: float) -> Received:
        del body
        from baml_py import AbortController, Collector
        from baml_py.errors import BamlError

        collector = Collector("promptgraft")
        until = AbortController(timeout_ms=max(1, int(1000 * seconds)))
        runtime = self.call.compiled.runtime
        try:
            await runtime.call_function(*self.told, [collector], dict(os.environ), None, until)
        except BamlError as error:
            raise self.call.refusal(one_line(said_by(error), self.secrets)) from None
        finally:
            until.abort()
        if collector.last is None or not collector.last.calls:
            raise self.call.refusal("BAML has sent nothing")
        return _received(collector.last, seconds)


def _received(log: FunctionLog, seconds: float) -> Received:
    response = log.calls[-1].http_response
    if response is None:
        raise NothingReceivedError(f"nothing within {seconds:g} s", timed_out=True)
    text, headers = response.body.text(), response.headers
    status = response.status
    if log.raw_llm_response is not None:
        status, text = _OK, _body(log)
    elif not headers:
        raise NothingReceivedError(text, unreachable="Connect" in text)
    elif status < _NO_SUCCESS:
        raise NothingReceivedError("a reply that BAML cannot read")
    return Received(
        status=status,
        headers={name.lower(): str(value) for name, value in headers.items()},
        content=text,
        requests=len(log.calls),
    )


def _body(log: FunctionLog) -> str:
    """Return an answer as a body, in which secrets are blanked before it is read."""
    used = log.usage
    usage = Usage(
        input_tokens=used.input_tokens or 0,
        output_tokens=used.output_tokens or 0,
        cached_tokens=used.cached_input_tokens or 0,
    )
    took = max(one.timing.duration_ms or 0 for one in log.calls)
    answer = BamlAnswer(text=log.raw_llm_response or "", usage=usage, milliseconds=took)
    return json.dumps(attrs.asdict(answer))


def _read(body: JsonObject) -> Turn:
    answer = read_as(BamlAnswer, body)
    return Turn(
        text=answer.text,
        finish=Finish.DONE,
        finish_reason="stop",
        usage=answer.usage,
        model="",
        message=body,
    )


def secrets_of(function: BamlFunction) -> tuple[str, ...]:
    """Return the values of variables of a function that are secrets, by name or by look."""
    names = {*function.variables, *chain.from_iterable(KEYS_OF.values())}
    given = ((name, os.environ.get(name, "")) for name in sorted(names))
    return tuple(
        value
        for name, value in given
        if len(value) >= _SHORTEST_SECRET and (SENSITIVE.search(name) or looks_like_a_key(value))
    )
