"""A BAML function as an agent that answers the cases of its tests.

A function may be a flow in BAML's expression language, which calls functions that a model answers.
BAML does not tell what a flow sends and receives, so the clients of those functions are replaced by
one at an address of this process: each call arrives here as messages, is answered like any other
call (counted, retried, kept in the journal), and returns to BAML as a text.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import json
import re
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property, partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, cast

import attrs

from promptgraft.adapters.base import NO_USAGE, ProviderAdapter, Usage, adapter_identity
from promptgraft.adapters.calling.adapter import ModelAdapter
from promptgraft.adapters.calling.retrying import RetryPolicy
from promptgraft.adapters.calling.turns import Turn
from promptgraft.agents.call import AgentAnswer, AgentCall
from promptgraft.bridges.baml.calls import (
    BamlCall,
    Environment,
    InnerCall,
    arguments_of,
    messages_of,
    told_of,
)
from promptgraft.bridges.baml.functions import PASSED, PASSED_TO, BamlFunction
from promptgraft.bridges.baml.judging import check_rules
from promptgraft.bridges.baml.runtime import CompiledProject, error_text, reasons_of
from promptgraft.bridges.baml.tests import BamlTest
from promptgraft.errors import AgentFaultError, ConfigError, DataFormatError
from promptgraft.evals.types import ToolUse
from promptgraft.ground.serde import Json, canonical_json, digest, parse_json
from promptgraft.ground.text import listed
from promptgraft.prompt.schema import JsonObject
from promptgraft.runtime.event_loop import GRACE, awaited

if TYPE_CHECKING:
    import asyncio

    from baml_py.baml_py import FunctionResult

_CLIENT_FAILED = f'LLM client "{PASSED}'
_UNREACHABLE = "BAML cannot reach this process; set NO_PROXY=127.0.0.1 beside HTTP_PROXY"

Reply = Callable[[bytes], str | None]
"""Answers the body of a request with a text; None if it cannot."""


@attrs.define
class FlowCall:
    """A call of a flow with the arguments of a test.

    Attributes:
        send: obtains the reply to a call that the flow makes.
        tools: the calls that the flow has made, in order.
        usage: their tokens.
        error: why a call of the flow failed; None if none did.
    """

    call: BamlCall
    send: Callable[[BamlCall], Turn]
    tools: list[ToolUse] = attrs.field(factory=list, init=False)
    usage: Usage = attrs.field(default=NO_USAGE, init=False)
    error: BaseException | None = attrs.field(default=None, init=False)

    def answer(self) -> AgentAnswer:
        """Run the flow, and judge what it returns by the rules of its test.

        Raises:
            ConfigError: BAML refuses the arguments.
            Exception: a call of the flow failed.
        """
        began = time.perf_counter()
        with _served(self._reply) as address:
            value, fault = self._run(address)
        output = self.call.judged(value, fault, round(1000 * (time.perf_counter() - began)))
        return AgentAnswer(
            text=value if isinstance(value, str) else canonical_json(value),
            output=output,
            tools=tuple(self.tools),
            usage=self.usage,
            counted=True,
        )

    def _run(self, address: str) -> tuple[Json, str]:
        """Return the value of the flow, or why BAML could not read an answer inside it."""
        from baml_py.errors import BamlError

        try:
            flow: object = self._flow(address)
            value = awaited(flow, deadline=self.call.asked.deadline)
        except BamlError as error:
            if self.error is not None:
                raise self.error from None
            if address in str(error) or _CLIENT_FAILED in str(error):
                raise self.call.refusal(_UNREACHABLE) from None
            if not self.tools:
                raise self.call.refusal(error_text(error)) from None
            return None, reasons_of(str(error))
        return cast("Json", value), ""

    async def _flow(self, address: str) -> Json:
        import asyncio

        call = self.call
        arguments = told_of(call.function, call.compiled, call.test)
        future: asyncio.Future[FunctionResult] = asyncio.ensure_future(
            call.compiled.runtime.call_function(*arguments, [], {PASSED_TO: address}, None)
        )
        try:
            await asyncio.wait((future,))
        finally:
            # BAML panics if a flow is cancelled during a call; the deadline ends that call too.
            await asyncio.wait((future,), timeout=GRACE)
            if not future.cancel():
                future.exception()  # asyncio logs exceptions that were never retrieved
        return call.compiled.output(future.result())

    def _reply(self, body: bytes) -> str | None:
        try:
            return self._call(_inner_call(parse_json(body, where="a call of the flow")))
        # Whatever ended the call ends the flow: `answer` raises it where the flow is awaited.
        except BaseException as error:  # noqa: BLE001
            self.error = error
            return None

    def _call(self, inner: InnerCall) -> str:
        turn = self.send(attrs.evolve(self.call, inner=inner))
        prompt = "\n\n".join(message["content"] for message in inner.messages)
        use = ToolUse(name=inner.function, arguments={"messages": prompt}, result=turn.text)
        self.tools.append(use)
        self.usage += turn.usage
        return turn.text


def _inner_call(body: Json) -> InnerCall:
    match body:
        case {"model": str(function), "messages": list(messages)}:
            return InnerCall(function, tuple(_message(function, message) for message in messages))
    raise DataFormatError("expected a call of a flow, found another request")


def _message(function: str, message: Json) -> dict[str, str]:
    match message:
        case {"role": str(role), "content": str(text)}:
            return {"role": role, "content": text}
        case {"role": str(role), "content": list(parts)}:
            texts = [part.get("text") for part in parts if isinstance(part, dict)]
            if len(texts) == len(parts) and all(isinstance(text, str) for text in texts):
                return {"role": role, "content": "\n".join(map(str, texts))}
    raise ConfigError(f"{function}: a call inside a flow sends text only, found another content")


class _ReplyServer(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Print nothing: BAML has left, or another program has sent what is no request."""


@contextlib.contextmanager
def _served(reply: Reply) -> Iterator[str]:
    """Serve ``reply`` to BAML in this process while the context is open; yields the address."""
    context = contextvars.copy_context()
    # Any program of this machine may send requests to the port, but only BAML knows the path.
    path = f"/{secrets.token_urlsafe(16)}"

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, content = 404, b""
            if self.path.startswith(f"{path}/"):
                status, content = _answered(context.copy(), reply, body)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = _ReplyServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}{path}"
    finally:
        server.shutdown()
        server.server_close()


def _answered(context: contextvars.Context, reply: Reply, body: bytes) -> tuple[int, bytes]:
    """Return status and body of a response in the form of OpenAI's Chat Completions."""
    text = context.run(reply, body)
    if text is None:
        return 500, b'{"error": {"message": "the call failed"}}'
    message = {"role": "assistant", "content": text}
    choices = [{"index": 0, "finish_reason": "stop", "message": message}]
    usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    document = {"id": "1", "object": "chat.completion", "created": 0, "model": "any"}
    return 200, json.dumps({**document, "choices": choices, "usage": usage}).encode()


_DIGITS = 12
_OUTPUT_FORMAT = re.compile(r"\{\{-?\s*ctx\.output_format\b")


@attrs.frozen(kw_only=True)
class BamlAgent:
    """Calls a function with the arguments of its tests, and has BAML check the answers.

    Attributes:
        function: the function with its files.
        tests: the tests that serve as cases, by name.
        model: makes the model that answers; None for the client of the BAML project.
        policy: retries of calls by the client of the BAML project.
    """

    function: BamlFunction
    tests: Mapping[str, BamlTest]
    model: Callable[[], ProviderAdapter] | None = None
    policy: RetryPolicy = attrs.field(factory=RetryPolicy)

    @property
    def name(self) -> str:
        return f"BAML function {self.function.name}"

    @property
    def identity(self) -> str:
        # Without the texts, so that applying a winner does not change the identity.
        blank = {part.key: part.key.replace("-", "_") for part in self.function.parts}
        model_identity = f" {model.identity}" if (model := self._made()) else ""
        return f"{self.name} {digest(self.function.sources(blank))[:_DIGITS]}{model_identity}"

    @property
    def reports_tools(self) -> bool:
        # A flow reports its calls, as other agents do those of tools.
        return self.function.is_flow

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables that it needs."""
        return self.function.variables if self.model is None else ()

    def check(self, delivery: str, names: Collection[str]) -> None:
        if delivery != "argument":
            raise ConfigError(
                "delivery: expected none, a BAML function gets its texts in memory; leave it out"
            )

    def faults(self) -> tuple[str, ...]:
        """Return a line for each fault of the function, with file and line."""
        try:
            self._compiled(frozenset())
        except DataFormatError as error:
            return error.faults
        except AgentFaultError as error:
            return (f"{self.function.folder}: {error}",)
        return ()

    def test_faults(self) -> tuple[str, ...]:
        """Return a line for each fault of the tests of a function without faults of its own."""
        compiled = self._compiled(frozenset())
        lines = [line for test in self.tests.values() for line in self._faults_of(test, compiled)]
        return tuple(lines) or self._refused_tests()

    def _faults_of(self, test: BamlTest, compiled: CompiledProject) -> Iterator[str]:
        yield from (f"{test.origin}: {line}" for line in check_rules(test.rules, test.args))
        try:
            compiled.type_builder(test.types)
            arguments_of(self.function, test)
        except ConfigError as error:
            line = str(error)
            yield line if line.startswith(test.origin) else f"{test.origin}: {line}"

    def _refused_tests(self) -> tuple[str, ...]:
        """Return the faults that BAML finds in tests: a single ``@assert`` would judge nothing."""
        sources = self.function.sources({}, tests=self.tests.values())
        try:
            CompiledProject.of(sources, folder=self.function.folder)
        except DataFormatError as error:
            return error.faults
        return ()

    def ask(self, query: str, call: AgentCall) -> AgentAnswer:
        """Answer the test that belongs to the case of a call.

        Raises what :meth:`Agent.ask` does, and ``ConfigError`` if the arguments do not fit.
        """
        baml_call = BamlCall(
            function=self.function,
            compiled=self._candidate(call.texts),
            test=self.tests[call.example],
            asked=call,
        )
        model = self._made()
        if self.function.is_flow:
            return FlowCall(baml_call, partial(self._turn, model)).answer()
        if model:
            return baml_call.by_model(model)
        return baml_call.by_own_client(self._environment, self.policy)

    def _turn(self, model: ModelAdapter | None, baml_call: BamlCall) -> Turn:
        if model is None:
            return baml_call.turn_of_client(self._environment, self.policy)
        return baml_call.turn_of_model(model)

    def messages(
        self, texts: Mapping[str, str], test: str, *, provider: str = "openai-generic"
    ) -> JsonObject:
        """Return the messages that BAML would send for a test, without sending them.

        Raises:
            AgentFaultError: the texts do not compile.
            ConfigError: the arguments do not fit, or the function is a flow.
        """
        if self.function.is_flow:
            raise ConfigError(
                f"{self.name} is a flow: what its functions send depends on their answers; "
                f"render one of {listed(self.function.asked)}"
            )
        compiled = self._candidate(texts)
        return messages_of(self.function, compiled, self.tests[test], provider=provider)

    def answers(self, texts: Mapping[str, str]) -> str:
        """Return what the function declares of its answers, and how its prompt describes them."""
        declared = self.function.declared(texts)
        output_format = self._output_format(texts)
        return (
            f"{declared}\nThe prompt describes it as:\n\n{output_format}\n"
            if output_format
            else declared
        )

    def _output_format(self, texts: Mapping[str, str]) -> str:
        """Return the output format as BAML writes it; empty if the prompt does not show it."""
        prompt = self.function.parts[0]
        tag = next((tag_text for tag_text in prompt.tags if _OUTPUT_FORMAT.match(tag_text)), "")
        if not tag or not self.tests or self.function.is_flow:
            return ""
        try:
            messages = self.messages({**texts, prompt.key: tag}, next(iter(self.tests)))
        except (AgentFaultError, ConfigError):  # rollouts of the texts say why
            return ""
        match messages.get("messages"):
            case [{"content": str(text)}] | [{"content": [{"text": str(text)}]}]:
                return text.strip()
        return ""

    def _made(self) -> ModelAdapter | None:
        adapter = None if self.model is None else self.model()
        if adapter is None or isinstance(adapter, ModelAdapter):
            return adapter
        raise ConfigError(
            f"models.task: expected a model over HTTP in place of the client of {self.name}, found "
            f"{adapter_identity(adapter)}"
        )

    @cached_property
    def _environment(self) -> Environment:
        return Environment.of(self.function)

    @cached_property
    def _compiled(self) -> Callable[[frozenset[tuple[str, str]]], CompiledProject]:
        @functools.lru_cache(maxsize=64)
        def compiled(texts: frozenset[tuple[str, str]]) -> CompiledProject:
            self._check_aliases(dict(texts))
            sources = self.function.sources(dict(texts))
            return CompiledProject.of(sources, folder=self.function.folder)

        return compiled

    def _candidate(self, texts: Mapping[str, str]) -> CompiledProject:
        try:
            return self._compiled(frozenset(texts.items()))
        except DataFormatError as error:
            # File names are of no use to the reflection model.
            message = error.faults[0].partition(": ")[2]
            raise AgentFaultError(f"BAML does not compile the texts: {message}") from error

    def _check_aliases(self, texts: Mapping[str, str]) -> None:
        """Refuse two members with the same alias, which BAML accepts silently."""
        owners: dict[tuple[str, str], str] = {}
        for part in self.function.parts:
            if not part.own:
                continue
            text = texts.get(part.key, part.text)
            if (other_key := owners.setdefault((part.owner, text), part.key)) != part.key:
                raise AgentFaultError(
                    f"`{part.key}` and `{other_key}` are the same alias, `{text}`"
                )
