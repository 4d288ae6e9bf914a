"""The batch interfaces of both providers on loopback, beside their ordinary ones."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email import message_from_bytes
from typing import Any, Literal

import attrs

from promptgraft.ground.serde import canonical_json
from servers.anthropic_messages import AnthropicMessages
from servers.behaviour import Answer, Asked, Brain, JsonObject
from servers.loopback import KEY
from servers.openai_chat import OpenAIChat
from servers.openai_responses import OpenAIResponses
from servers.provider import Provider, Tokens
from servers.threaded import QuietHandler, ThreadedServer

Fate = Literal["answered", "errored", "expired", "canceled", "forgotten"]
"""What comes of a request of a batch."""

TOKENS = Tokens(sent=100, received=10)
PROVIDERS: Mapping[str, Callable[[], Provider]] = {
    "openai": OpenAIChat,
    "responses": OpenAIResponses,
    "anthropic": AnthropicMessages,
}
"""Made when a server starts: their documented shapes take longer to read than most modules."""


@attrs.define(eq=False, kw_only=True)
class Batch:
    """A batch that was made.

    Attributes:
        id: its id.
        requests: bodies by custom id, in order.
        is_cancelled: whether it was asked to be cancelled.
        looks: how often it was looked at.
    """

    id: str
    requests: Mapping[str, JsonObject]
    metadata: JsonObject = attrs.field(factory=dict)
    created: str = attrs.field(factory=lambda: datetime.now(UTC).isoformat())
    is_cancelled: bool = False
    looks: int = 0


@attrs.frozen
class _Reply:
    status: int
    body: bytes

    @classmethod
    def of(cls, body: JsonObject, status: int = 200) -> _Reply:
        return cls(status, json.dumps(body).encode())


class BatchServer(ThreadedServer):
    """Answers batches, and ordinary calls; a context manager.

    Results come in the reverse order of the requests. Safe to look at from the test's thread.

    Args:
        name: a key of :data:`PROVIDERS`.
        brain: what answers.
        fate: what comes of the n-th request of all batches, from 0.
        refusals: statuses that the first batches to be made are refused with.

    Attributes:
        batches: what was made.
        calls: ordinary calls.
        lost: ids of batches that are no longer known.
        names: makes the id of the n-th batch.
        on_look: is called when a batch is looked at.
        on_made: is called when a batch is made, before that is answered.
        damage: fields that replace those of a batch of OpenAI that has ended.
    """

    def __init__(
        self,
        name: str,
        brain: Brain,
        *,
        fate: Callable[[int], Fate] = lambda _: "answered",
        refusals: tuple[int, ...] = (),
    ) -> None:
        self.name = name
        self.provider = PROVIDERS[name]()
        self.batches: list[Batch] = []
        self.calls: list[Asked] = []
        self.lost: set[str] = set()
        self.names: Callable[[int], str] = lambda number: f"batch_{number}"
        self.on_look: Callable[[], None] = lambda: None
        self.on_made: Callable[[], None] = lambda: None
        self.damage: JsonObject = {}
        self._brain = brain
        self._fate = fate
        self._refusals = list(refusals)
        self._files: dict[str, bytes] = {}
        self._fates: dict[str, Fate] = {}
        self._is_held = False
        self._news = threading.Condition()
        super().__init__(self._handler())

    @property
    def base_url(self) -> str:
        """What the provider's SDK takes as its ``base_url``."""
        return f"{self.origin}{self.provider.base_path}"

    @property
    def sizes(self) -> list[int]:
        """How many requests each batch has."""
        return [len(batch.requests) for batch in self.batches]

    def hold(self) -> None:
        """Let no batch end before :meth:`release`."""
        self._is_held = True

    def release(self) -> None:
        """Let batches end."""
        self._is_held = False

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds; looked at after every request."""
        with self._news:
            assert self._news.wait_for(holds, 20)

    def _handler(self) -> type[QuietHandler]:
        server = self

        class Handler(QuietHandler):
            def do_GET(self) -> None:  # noqa: N802 - the name of http.server
                self._answer(b"")

            def do_POST(self) -> None:  # noqa: N802 - the name of http.server
                self._answer(self.rfile.read(int(self.headers.get("content-length", "0"))))

            def _answer(self, body: bytes) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                with server._news:
                    reply = server._reply(self.command, self.path, headers, body)
                    server._news.notify_all()
                self.send_response(reply.status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)

        return Handler

    def _reply(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> _Reply:
        provider = self.provider
        if provider.key_of(headers) != KEY:
            fault = provider.wrong_key(provider.key_of(headers))
            return _Reply.of(provider.fault_body(fault, "req_0"), 401)
        if (method, path) == ("POST", provider.path):
            asked = provider.read(json.loads(body), headers, len(self.calls))
            self.calls.append(asked)
            return _Reply.of(provider.answer_body(asked, self._brain(asked), TOKENS))
        if (method, path) == ("POST", "/v1/files"):
            return self._uploaded(headers["content-type"], body)
        if found := re.fullmatch(r"/v1/files/([\w-]+)/content", path):
            return _Reply(200, self._files[found[1]])
        if method == "POST" and path in {"/v1/batches", "/v1/messages/batches"}:
            return self._made(json.loads(body), headers)
        if method == "GET" and path.partition("?")[0] in {"/v1/batches", "/v1/messages/batches"}:
            return _Reply.of({"data": [self._state(one) for one in reversed(self.batches)]})
        if found := re.fullmatch(r"/v1/(?:messages/)?batches/([\w-]+)(/\w+)?", path):
            known = [one for one in self.batches if one.id == found[1] and one.id not in self.lost]
            if known:
                return self._seen(known[0], found[2] or "")
        return _Reply.of(provider.fault_body(provider.fault(404), "req_0"), 404)

    def _uploaded(self, kind: str, body: bytes) -> _Reply:
        form: Any = message_from_bytes(f"content-type: {kind}\r\n\r\n".encode() + body)
        named = ((one.get_param("name", header="content-disposition"), one) for one in form.walk())
        parts = dict(named)
        assert parts["purpose"].get_payload() == "batch"
        name = f"file_{len(self._files)}"
        self._files[name] = parts["file"].get_payload(decode=True)
        return _Reply.of({"id": name, "object": "file", "purpose": "batch"})

    def _made(self, wanted: Any, headers: Mapping[str, str]) -> _Reply:
        if self._refusals:
            status = self._refusals.pop(0)
            body = self.provider.fault_body(self.provider.fault(status), "req_0")
            return _Reply.of(body, status)
        if "input_file_id" in wanted:
            assert wanted["endpoint"] == self.provider.path
            assert wanted["completion_window"] == "24h"
            lines = self._files[wanted["input_file_id"]].decode().splitlines()
            parsed = [json.loads(line) for line in lines]
            assert {line["url"] for line in parsed} == {self.provider.path}
            requests = [(line["custom_id"], line["body"]) for line in parsed]
        else:
            requests = [(one["custom_id"], one["params"]) for one in wanted["requests"]]
        for name, body in requests:
            assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name)
            assert self.provider.check(body, headers) is None
        assert len({name for name, _ in requests}) == len(requests)
        name, metadata = self.names(len(self.batches)), wanted.get("metadata", {})
        batch = Batch(id=name, requests=dict(requests), metadata=metadata)
        known = sum(self.sizes)
        for place, name in enumerate(batch.requests):
            self._fates[f"{batch.id} {name}"] = self._fate(known + place)
        self.batches.append(batch)
        self.on_made()
        return _Reply.of(self._state(batch))

    def _seen(self, batch: Batch, what: str) -> _Reply:
        if what == "/cancel":
            batch.is_cancelled = True
        elif what == "/results":
            return _Reply(200, _jsonl(self._results(batch)))
        else:
            batch.looks += 1
            self.on_look()
        return _Reply.of(self._state(batch))

    def _state(self, batch: Batch) -> JsonObject:
        is_done = not self._is_held and batch.looks > 1
        if isinstance(self.provider, AnthropicMessages):
            status = "ended" if is_done else "canceling" if batch.is_cancelled else "in_progress"
            counts: JsonObject = {"processing": 0 if is_done else len(batch.requests)}
            counts["succeeded"] = len(batch.requests) if is_done else 0
            about: JsonObject = {"created_at": batch.created, "request_counts": counts}
            return {"id": batch.id, "processing_status": status, **about}
        state: JsonObject = {"id": batch.id, "object": "batch", "status": "in_progress"}
        state["metadata"] = batch.metadata
        if is_done:
            state["status"] = "completed"
            results = self._results(batch)
            for field, ok in (("output_file_id", True), ("error_file_id", False)):
                lines = [one for one in results if (one["error"] is None) is ok]
                name = f"file_{batch.id}_{field}"
                self._files[name] = _jsonl(lines)
                state[field] = name if lines else None
            state |= self.damage
        return state

    def _results(self, batch: Batch) -> list[JsonObject]:
        lines = [self._line(batch, name, body) for name, body in batch.requests.items()]
        return [line for line in reversed(lines) if line is not None]

    def _line(self, batch: Batch, name: str, body: JsonObject) -> JsonObject | None:
        fate, provider = self._fates[f"{batch.id} {name}"], self.provider
        if fate == "forgotten":
            return None
        asked = provider.read(body, {}, 0)
        answer = provider.answer_body(asked, self._brain(asked), TOKENS)
        refused = provider.fault_body(provider.fault(400), "req_0")
        if isinstance(provider, AnthropicMessages):
            results: dict[str, JsonObject] = {
                "answered": {"type": "succeeded", "message": answer},
                "errored": {"type": "errored", "error": refused},
            }
            return {"custom_id": name, "result": results.get(fate, {"type": str(fate)})}
        line: JsonObject = {"id": f"line_{name}", "custom_id": name, "error": None}
        if fate in {"answered", "errored"}:
            sent: JsonObject = {"status_code": 200, "body": answer}
            failed: JsonObject = {"status_code": 400, "body": refused}
            return {**line, "response": sent if fate == "answered" else failed}
        error: JsonObject = {"code": f"batch_{fate}", "message": "It was not executed in time."}
        return {**line, "response": None, "error": error}


def _jsonl(lines: list[JsonObject]) -> bytes:
    return b"".join(canonical_json(line).encode() + b"\n" for line in lines)


def echo(asked: Asked) -> Answer:
    """Say the last word of what was asked."""
    return Answer(text=asked.texts[-1].split()[-1])
