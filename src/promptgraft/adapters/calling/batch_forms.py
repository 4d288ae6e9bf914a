"""The batch APIs of OpenAI and Anthropic: encoding requests and decoding results."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Set
from datetime import UTC, datetime
from typing import Protocol, TypeAlias

import attrs

from promptgraft.adapters.calling.faults import Fault, judge
from promptgraft.adapters.calling.gathering import Intended
from promptgraft.adapters.calling.turns import (
    Files,
    NothingReceivedError,
    Received,
    UselessReplyError,
)
from promptgraft.errors import DataFormatError
from promptgraft.ground.serde import Json, parse_json
from promptgraft.prompt.schema import JsonObject

Outcome: TypeAlias = Received | NothingReceivedError

_MARK = "promptgraft"
_RESULTS = ("output_file_id", "error_file_id")
_ID = re.compile(r"[\w.-]{1,200}", re.ASCII)


class UnusableError(Exception):
    """A request to the batch API failed with this outcome."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome


class Ask(Protocol):
    """Sends one request to a batch API."""

    async def __call__(
        self, method: str, path: str, *, body: JsonObject | None = None, files: Files | None = None
    ) -> Received: ...


class BatchForm(Protocol):
    """The batch API of a provider.

    Attributes:
        most: most requests per batch.
        longest: most bytes per batch.
        path: path of its batches.
    """

    most: int
    longest: int
    path: str

    async def create(self, ask: Ask, requests: Mapping[str, JsonObject], mark: str) -> str:
        """Create a batch of requests, by custom id, and return the id of the batch."""
        ...

    def is_of(self, listed_batch: JsonObject, intended: Intended) -> bool:
        """Return whether a batch in the provider's list may be the intended one."""
        ...

    async def results(self, ask: Ask, batch: str) -> Mapping[str, Outcome] | None:
        """Return the outcomes of a batch, by custom id; None while it is in progress."""
        ...


class AnthropicBatches:
    """Anthropic's Message Batches."""

    most = 100_000
    # Anthropic allows 256 MB for the whole request, of which the envelopes take a part.
    longest = 250_000_000
    path = "/v1/messages/batches"

    async def create(self, ask: Ask, requests: Mapping[str, JsonObject], mark: str) -> str:
        # Without the mark, for these batches have no metadata.
        listed: list[Json] = [
            {"custom_id": name, "params": params} for name, params in requests.items()
        ]
        return _id_in(_read(await ask("POST", self.path, body={"requests": listed})))

    def is_of(self, listed_batch: JsonObject, intended: Intended) -> bool:
        match listed_batch:
            case {"created_at": str(created), "request_counts": dict(counts)}:
                many = sum(count for count in counts.values() if isinstance(count, int))
                # The size and the time are all that tells these batches apart in the list.
                return (
                    many == len(intended.requests)
                    and datetime.fromisoformat(created) >= intended.since
                )
        return False

    async def results(self, ask: Ask, batch: str) -> Mapping[str, Outcome] | None:
        batch_body = _read(await ask("GET", f"{self.path}/{batch}"))
        if batch_body.get("processing_status") != "ended":
            return None
        lines = _lines(await ask("GET", f"{self.path}/{batch}/results"))
        return {name: self._outcome(line.get("result")) for name, line in lines}

    def _outcome(self, result: Json | None) -> Outcome:
        match result:
            case {"type": "succeeded", "message": dict(message)}:
                return _received(200, message)
            case {"type": "errored", "error": dict(error)}:
                return _received(200, error)
            case {"type": str(kind)}:
                return NothingReceivedError(f"the request is {kind} in its batch")
        return NothingReceivedError("the results of the batch hold something else")


@attrs.frozen
class OpenAIBatches:
    """OpenAI's Batch API; ``endpoint`` is the path that answers each request."""

    endpoint: str

    most = 50_000
    longest = 200_000_000
    path = "/batches"

    async def create(self, ask: Ask, requests: Mapping[str, JsonObject], mark: str) -> str:
        lines = [
            encoded({"custom_id": name, "method": "POST", "url": self.endpoint, "body": body})
            for name, body in requests.items()
        ]
        file = ("batch.jsonl", b"\n".join(lines) + b"\n", "application/jsonl")
        sent = await ask("POST", "/files", body={"purpose": "batch"}, files=[("file", file)])
        batch_request: JsonObject = {
            "input_file_id": _id_in(_read(sent)),
            "endpoint": self.endpoint,
            "completion_window": "24h",
            "metadata": {_MARK: mark},
        }
        return _id_in(_read(await ask("POST", self.path, body=batch_request)))

    def is_of(self, listed_batch: JsonObject, intended: Intended) -> bool:
        match listed_batch:
            case {"metadata": dict(metadata)}:
                return metadata.get(_MARK) == intended.mark
        return False

    async def results(self, ask: Ask, batch: str) -> Mapping[str, Outcome] | None:
        batch_body = _read(await ask("GET", f"{self.path}/{batch}"))
        if batch_body.get("status") == "failed":
            raise UnusableError(_refused(batch_body.get("errors")))
        # An expired or cancelled batch still has the results of what was answered by then.
        if batch_body.get("status") not in {"completed", "expired", "cancelled"}:
            return None
        names = [names for names in _RESULTS if batch_body.get(names) is not None]
        if batch_body.get("status") == "completed" and not names:
            # To look again, or to pay for the same batch again, would bring the same.
            raise UnusableError(UselessReplyError("the batch is completed without any results"))
        outcomes: dict[str, Outcome] = {}
        for name in names:
            path = f"/files/{_id_in(batch_body, name)}/content"
            lines = _lines(await ask("GET", path))
            outcomes.update({name: self._outcome(line) for name, line in lines})
        return outcomes

    def _outcome(self, line: JsonObject) -> Outcome:
        match line:
            case {"response": {"status_code": int(status), "body": dict(body)}}:
                return _received(status, body)
            case {"error": {"code": code, "message": message}}:
                return NothingReceivedError(f"{code} in its batch: {message}")
        return NothingReceivedError("the results of the batch hold something else")


FORMS: Mapping[str, Callable[[str], BatchForm]] = {
    "anthropic": lambda _: AnthropicBatches(),
    "openai": lambda path: OpenAIBatches(f"/v1{path}"),
}
"""Make the batch API of a provider, for the path of its ordinary requests below the address."""


async def created_batch(
    ask: Ask, form: BatchForm, intended: Intended, known_ids: Set[str]
) -> str | None:
    """Return the id of the intended batch if exactly one unknown among the latest 100 fits."""
    try:
        rows = _read(await ask("GET", f"{form.path}?limit=100")).get("data")
        listed = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
        batch_ids = {_id_in(row) for row in listed if form.is_of(row, intended)} - known_ids
    except (UnusableError, ValueError, TypeError):  # a compatible server may have no such list
        return None
    return batch_ids.pop() if len(batch_ids) == 1 else None


def _refused(errors: Json | None) -> Received:
    """Return the error of an OpenAI batch that failed validation, as a response."""
    first: JsonObject = {"message": "the batch has failed"}
    match errors:
        case {"data": [dict(first_error), *_]}:
            first = first_error
    # Too many tokens are enqueued at present, so the same batch may be accepted later.
    status = 429 if first.get("code") == "token_limit_exceeded" else 400
    return _received(status, {"error": first})


def encoded(value: JsonObject) -> bytes:
    """Return the bytes that ``value`` takes in a batch, without its envelope."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _received(status: int, body: JsonObject) -> Received:
    return Received(status=status, headers={}, content=json.dumps(body))


def judged(outcome: Outcome) -> JsonObject | Fault:
    """Return the body of a good outcome, or its fault."""
    return judge(outcome, now=datetime.now(UTC))


def _read(received: Received) -> JsonObject:
    """Return the body of a good response, or raise :class:`UnusableError`."""
    answered = judged(received)
    if isinstance(answered, Fault):
        raise UnusableError(received)
    return answered


def _id_in(batch_body: JsonObject, name: str = "id") -> str:
    value = batch_body.get(name)
    if isinstance(value, str) and _ID.fullmatch(value):  # it becomes part of a path
        return value
    raise UnusableError(UselessReplyError(f"the batch has no usable `{name}`"))


def _lines(received: Received) -> list[tuple[str, JsonObject]]:
    """Return the lines of results with their custom ids; unreadable lines are skipped."""
    if received.status != 200:
        raise UnusableError(received)
    rows: list[tuple[str, JsonObject]] = []
    for text in received.content.split("\n"):
        try:
            line = parse_json(text, where="the results") if text.strip() else None
        # One damaged line must not cost the answers of all others; its request counts as missing.
        except DataFormatError:
            continue
        if isinstance(line, dict) and isinstance(name := line.get("custom_id"), str):
            rows.append((name, line))
    return rows
