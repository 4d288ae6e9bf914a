"""Flows: functions in BAML's expression language, which call functions that a model answers.

BAML runs a flow. It does not tell what is sent and received meanwhile, so the clients of the
functions are replaced by one at an address of this process: each call arrives here as messages, is
answered like any other call (counted, retried, kept in the journal), and returns to BAML as a text.
"""

from __future__ import annotations

import contextlib
import contextvars
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, cast

import attrs

from promptgraft.adapters.base import NO_USAGE, Usage
from promptgraft.adapters.calling.turns import Turn
from promptgraft.agents.call import AgentAnswer
from promptgraft.bridges.baml.calls import BamlCall, InnerCall, told_of
from promptgraft.bridges.baml.functions import PASSED, PASSED_TO
from promptgraft.bridges.baml.runtime import error_text, reasons_of
from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.evals.types import ToolUse
from promptgraft.ground.serde import Json, canonical_json, parse_json
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
        call: the call.
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
        except BaseException as error:  # noqa: BLE001 - raised where the flow ends
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
