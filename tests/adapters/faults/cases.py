"""What can go wrong with a provider; ``outcomes.toml`` says what becomes of each case."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from typing import Literal

import attrs

from promptgraft.adapters.calling.sdk import LONGEST_BODY
from promptgraft.ground.serde import Json
from servers.batches import Fate
from servers.behaviour import (
    WELL,
    Answer,
    Behaviour,
    Break,
    Call,
    Fault,
    JsonObject,
    Script,
    Stop,
    always,
    in_turn,
)

FINE = "fine"
"""What the model says when nothing goes wrong."""

KEY = "sk-loopback-0123456789"
MODEL = "test-1"
INVALID = "invalid_request_error"


@attrs.frozen(kw_only=True)
class Case:
    """How a server behaves, and what is asked.

    Attributes:
        script: to all, unless those below differ.
        chat: to Chat Completions.
        responses: to OpenAI's Responses, unless it is the same as ``chat``.
        model: that is asked.
        key: that is sent.
        listens: whether anybody listens at the address.
        scheme: of the address; the server speaks no TLS.
        base_path: added to the address.
        tools: whether the prompt has tools.
        choice: whether the answer must be one of two words.
        text: the answer, if there is one.
        timeout: seconds for one request.
        seconds: the time that the run has; None for no deadline.
        stops: whether the run is stopped as soon as the first request arrives.
    """

    script: Script
    chat: Script | None = None
    responses: Script | None = None
    model: str = MODEL
    key: str = KEY
    listens: bool = True
    scheme: Literal["http", "https"] = "http"
    base_path: str = ""
    tools: bool = False
    choice: bool = False
    text: str = FINE
    timeout: float = 10.0
    seconds: float | None = None
    stops: bool = False

    def script_for(self, wire: str) -> Script:
        """Return how the server that speaks a wire format behaves."""
        chat = self.chat or self.script
        scripts = {"openai": chat, "responses": self.responses or chat}
        return scripts.get(wire, self.script)


@attrs.frozen(kw_only=True)
class BatchCase:
    """What comes of a call in a batch.

    Attributes:
        fates: of the call, each time that it is sent; the last one again and again.
        refusals: statuses that the first batches to be made are refused with.
    """

    fates: tuple[Fate, ...] = ("answered",)
    refusals: tuple[int, ...] = ()


def _status(status: int, **headers: str) -> Case:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Case(script=always(Behaviour(status=status, headers=named)))


def _fault(anthropic: Fault, openai: Fault) -> Case:
    return Case(
        script=always(Behaviour(status=anthropic.status, fault=anthropic)),
        chat=always(Behaviour(status=openai.status, fault=openai)),
    )


def _body(body: bytes, content_type: str = "application/json", status: int = 200) -> Case:
    return Case(script=always(Behaviour(status=status, body=body, content_type=content_type)))


def _breaks(breaks: Break, timeout: float = 10.0) -> Case:
    return Case(script=always(Behaviour(breaks=breaks)), timeout=timeout)


def _answers(answer: Answer) -> Case:
    return Case(script=always(Behaviour(answer=answer)))


def _calls(*calls: Call) -> Case:
    return Case(script=in_turn(Behaviour(answer=Answer(calls=calls))), tools=True)


def _recovers(*behaviours: Behaviour) -> Case:
    return Case(script=in_turn(*behaviours))


OVERLOADED = Fault(status=529, kind="overloaded_error", message="Overloaded")
ENGINE_OVERLOADED = Fault(
    status=503, kind="server_error", message="The engine is overloaded", code="503"
)
TOO_MANY = Fault(status=429, kind="rate_limit_error", message="Too many requests")
TOO_MANY_CHAT = Fault(
    status=429, kind="requests", message="Too many requests", code="rate_limit_exceeded"
)
TOO_LONG = Fault(
    status=400, kind=INVALID, message="prompt is too long: 208310 tokens > 200000 maximum"
)
TOO_LONG_CHAT = Fault(
    status=400,
    kind=INVALID,
    message="This model's maximum context length is 128000 tokens.",
    code="context_length_exceeded",
    param="messages",
)
NO_CREDIT = Fault(
    status=400, kind=INVALID, message="Your credit balance is too low to access the API."
)
NO_QUOTA = Fault(
    status=429,
    kind="insufficient_quota",
    message="You exceeded your current quota.",
    code="insufficient_quota",
)
FILTERED = Fault(status=400, kind=INVALID, message="Output blocked by content filtering policy")
FILTERED_CHAT = Fault(
    status=400,
    kind=INVALID,
    message="The response was filtered due to the prompt.",
    code="content_filter",
)
TOO_LARGE = Fault(
    status=429,
    kind="tokens",
    message="Request too large for test-1 on tokens per min (TPM): Limit 30000, Requested 40000.",
)
OTHER_API, OTHER_API_CHAT, OTHER_API_RESPONSES = (
    Fault(status=404, kind=INVALID, message=f"This model is only supported in v1/{path}.")
    for path in ("complete", "responses", "chat/completions")
)
GATEWAY = b"<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
PORTAL = b"<html><head><title>Sign in</title></head><body>Welcome</body></html>"
USED_UP = {
    "anthropic-ratelimit-requests-remaining": "0",
    "anthropic-ratelimit-requests-reset": "2126-11-21T00:00:00Z",
    "x-ratelimit-remaining-requests": "0",
    "x-ratelimit-reset-requests": "60m0s",
}
PATH = '{"path": "a.txt"}'
CHAT_CALL = {"id": "1", "type": "function", "function": {"name": "read_file", "arguments": "{"}}
RESET = Behaviour(breaks=Break.BEFORE_HEADERS)
CUT = Behaviour(body=b'{"id": "1", "content": [{"ty')


def _json(
    anthropic: object,
    openai: object,
    responses: object = None,
    *,
    once: bool = False,
    raw: bytes = b"#",
) -> Case:
    """Return the case of these bodies, with the bytes ``raw`` in place of each ``#``."""
    wrap = in_turn if once else always
    script, chat, other = (
        wrap(Behaviour(body=json.dumps(body).encode().replace(b"#", raw)))
        for body in (anthropic, openai, responses or openai)
    )
    return Case(script=script, chat=chat, responses=other)


def _said(
    text: str | None = FINE,
    *,
    sent: object = 10,
    received: object = 5,
    model: object = MODEL,
    raw: bytes = b"#",
) -> Case:
    """Return the case of a whole answer with these parts."""
    block = {"type": "text"} if text is None else {"type": "text", "text": text}
    message = {"role": "assistant", "content": text}
    return _json(
        {
            "type": "message",
            "model": model,
            "content": [block],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": sent, "output_tokens": received},
        },
        {
            "model": model,
            "choices": [{"message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": sent, "completion_tokens": received},
        },
        {
            "model": model,
            "status": "completed",
            "output": [
                {"type": "message", "content": [{"type": "output_text", "text": text}]},
            ],
            "usage": {"input_tokens": sent, "output_tokens": received},
        },
        raw=raw,
    )


def _packed(body: bytes, coding: str) -> Case:
    headers = {"content-encoding": coding}
    return Case(script=always(Behaviour(body=body, headers=headers)))


def _inside(anthropic: Fault, openai: Fault, *, once: bool = False) -> Case:
    wrap = in_turn if once else always
    return Case(
        script=wrap(Behaviour(status=200, fault=anthropic)),
        chat=wrap(Behaviour(status=200, fault=openai)),
    )


def _whole(content: object, choices: object, output: object, *, ended: bool = True) -> Case:
    """Return the case of an answer that holds these things, with the reason of its end or none."""
    return _json(
        {"type": "message", "content": content, "stop_reason": "end_turn" if ended else None},
        {"choices": choices},
        {"status": "completed" if ended else "in_progress", "output": output},
    )


def _used(usage: object) -> Case:
    """Return the case of a good answer with a usage of another shape."""
    message = {"role": "assistant", "content": FINE}
    part = {"type": "output_text", "text": FINE}
    return _json(
        {
            "type": "message",
            "content": [{"type": "text", "text": FINE}],
            "stop_reason": "end_turn",
            "usage": usage,
        },
        {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage},
        {
            "status": "completed",
            "output": [{"type": "message", "content": [part]}],
            "usage": usage,
        },
    )


def _called(
    anthropic: JsonObject, openai: JsonObject, responses: JsonObject, *, once: bool = False
) -> Case:
    """Return the case of an answer with a call as the formats write it."""
    call: Json = {"type": "function", **openai}
    message: Json = {"role": "assistant", "content": None, "tool_calls": [call]}
    case = _json(
        {
            "type": "message",
            "content": [{"type": "tool_use", **anthropic}],
            "stop_reason": "tool_use",
        },
        {"choices": [{"message": message, "finish_reason": "tool_calls"}]},
        {"status": "completed", "output": [{"type": "function_call", **responses}]},
        once=once,
    )
    return attrs.evolve(case, tools=True)


def _read(arguments: Json, text: str) -> Case:
    """Return the case of a call of ``read_file``, and then an answer."""
    return _called(
        {"id": "1", "name": "read_file", "input": arguments},
        {"id": "1", "function": {"name": "read_file", "arguments": text}},
        {"call_id": "1", "name": "read_file", "arguments": text},
        once=True,
    )


def _chosen(answer: Answer) -> Case:
    return attrs.evolve(_answers(answer), choice=True)


LIMITS: Mapping[str, Case] = {
    "rate limit": _status(429),
    "rate limit, seconds": _status(429, retry_after="0.01"),
    "rate limit, milliseconds": _status(429, retry_after_ms="5"),
    "rate limit, past date": _status(429, retry_after="Sat, 21 Nov 2015 00:00:00 GMT"),
    "rate limit, far date": _status(429, retry_after="Thu, 21 Nov 2126 00:00:00 GMT"),
    "rate limit, an hour": _status(429, retry_after="3600"),
    "rate limit, headers": Case(script=always(Behaviour(status=429, headers=USED_UP))),
    "rate limit inside a 200": _inside(TOO_MANY, TOO_MANY_CHAT),
    "rate limit, a wait that is no number": _status(429, retry_after="soon"),
    "rate limit, a wait below 0": _status(429, retry_after="-5"),
    "rate limit, a wait without end": _status(429, retry_after="inf"),
    "request larger than the limit": _fault(TOO_LARGE, TOO_LARGE),
    "rate limit, then fine": _recovers(Behaviour(status=429)),
}
STATUSES: Mapping[str, Case] = {
    "bad request": _status(400),
    "wrong key": Case(script=always(WELL), key="sk-wrong-0123456789"),
    "no credit": _status(402),
    "credit used up": _fault(NO_CREDIT, NO_QUOTA),
    "forbidden": _status(403),
    "unknown model": Case(script=always(WELL), model="test-0"),
    "wrong address": Case(script=always(WELL), base_path="/elsewhere"),
    "wrong method": _status(405),
    "timeout of the provider": _status(408),
    "conflict": _status(409),
    "request too large": _status(413),
    "context too long": _fault(TOO_LONG, TOO_LONG_CHAT),
    "unprocessable": _status(422),
    "too early": _status(425),
    "server error": _status(500),
    "server error, told not to retry": _status(500, x_should_retry="false"),
    "server error, empty": _body(b"", status=500),
    "bad gateway": _body(GATEWAY, "text/html", status=502),
    "unavailable": _status(503),
    "unavailable for an hour": _status(503, retry_after="3600"),
    "gateway timeout": _status(504),
    "overloaded": _status(529),
    "overloaded inside a 200": _inside(OVERLOADED, ENGINE_OVERLOADED),
    "filtered request": _fault(FILTERED, FILTERED_CHAT),
    "model of another API": Case(
        script=always(Behaviour(status=404, fault=OTHER_API)),
        chat=always(Behaviour(status=404, fault=OTHER_API_CHAT)),
        responses=always(Behaviour(status=404, fault=OTHER_API_RESPONSES)),
    ),
    "unknown status": _body(b"{}", status=418),
    "error that is a text": _body(b'{"error": "no such thing"}', status=400),
    "error in `detail`": _body(b'{"detail": [{"msg": "field required"}]}', status=422),
    "error in a list": _body(b'[{"error": {"code": 400, "message": "No."}}]', status=400),
    "error in an error": _body(b'{"error": {"error": {"message": "No."}}}', status=400),
    "error that is a number": _body(b'{"error": 7}', status=400),
    "error as plain text": _body(b"upstream failed", "text/plain", status=500),
    "error inside a 200, a text": _body(b'{"error": "no such thing"}'),
}
CONNECTIONS: Mapping[str, Case] = {
    "nobody listens": Case(script=always(WELL), listens=False),
    "no TLS": Case(script=always(WELL), scheme="https"),
    "reset before the headers": _breaks(Break.BEFORE_HEADERS),
    "reset in the headers": _breaks(Break.IN_HEADERS),
    "reset after the headers": _breaks(Break.AFTER_HEADERS),
    "reset in the body": _breaks(Break.IN_BODY),
    "closed in the body": _breaks(Break.ENDS_EARLY),
    "hang": _breaks(Break.HANGS, timeout=0.2),
    "hang after the headers": _breaks(Break.HANGS_AFTER_HEADERS, timeout=0.2),
    "slow drip": _breaks(Break.DRIPS, timeout=0.2),
    "hang at the deadline": attrs.evolve(_breaks(Break.HANGS), seconds=0.3),
    "hang of a run that is stopped": attrs.evolve(_breaks(Break.HANGS), stops=True),
}
BODIES: Mapping[str, Case] = {
    "truncated JSON": Case(script=always(CUT)),
    "invalid JSON": _body(b"{'single': 'quotes'}"),
    "HTML in a 200": _body(PORTAL, "text/html"),
    "HTML that is called JSON": _body(PORTAL),
    "empty body": _body(b""),
    "a list": _body(b"[]"),
    "another object": _body(b'{"object": "list", "data": []}'),
    "nothing in the answer": _whole([], [], []),
    "null in the answer": _whole([None], [None], [None]),
    "text in place of the answer": _whole(FINE, FINE, FINE),
    "answer that has not ended": _whole(
        [{"type": "text", "text": FINE}],
        [{"message": {"content": FINE}}],
        [{"type": "message", "content": [{"type": "output_text", "text": FINE}]}],
        ended=False,
    ),
    "half of a character": attrs.evolve(_said("a#", raw=b"\xc3"), text="a\ufffd"),
    "half of a pair": attrs.evolve(_said("a#", raw=b"\\ud83d"), text="a\ufffd"),
    "lists without end": _body(b"[" * 100_000),
}
HOSTILE: Mapping[str, Case] = {
    "redirect": _status(307, location=f"http://127.0.0.1:9/v1?key={KEY}"),
    "redirect to nowhere": Case(script=always(Behaviour(status=302, body=b""))),
    "page of titles": _body(b"<title>" * 100_000, "text/html", status=502),
    "endless body": _body(b" " * (LONGEST_BODY + 1)),
    "packed body without end": _packed(gzip.compress(b" " * (LONGEST_BODY + 1)), "gzip"),
    "packed twice": _packed(gzip.compress(gzip.compress(b"{}")), "gzip, gzip"),
    "packed in an unknown way": _packed(b"{}", "zstd"),
    "packed badly": _packed(b"{}", "gzip"),
    "charset of another kind": _body(b"7b7d", "application/json; charset=hex", status=500),
    "text in UTF-16": _body("{}".encode("utf-16-le"), "application/json; charset=utf-16"),
    "negative tokens": _said(sent=-10),
    "absurd tokens": _said(received=10**30),
    "huge error code": _json(
        {"type": "error", "error": {"type": "x", "code": "5" * 4400, "message": "Oops"}},
        {"error": {"type": "x", "code": "5" * 4400, "message": "Oops"}},
    ),
    "huge number": _body(b'{"error": {"code": ' + b"5" * 5000 + b"}}"),
    "text without a text": _said(None),
    "tokens not counted": _said(sent=None, received=None),
    "tokens as texts": _said(sent="10"),
    "tokens as fractions": _said(received=5.5),
    "no usage": _used(None),
    "usage that is a list": _used([10, 5]),
    "more cached than sent": _used(
        {
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 20},
            "input_tokens": 10,
            "output_tokens": 5,
            "input_tokens_details": {"cached_tokens": 20},
            "cache_read_input_tokens": -20,
        }
    ),
    "another model": _said(model="test-9"),
    "model that is a number": _said(model=9),
}
ANSWERS: Mapping[str, Case] = {
    "wrong content type": Case(script=always(Behaviour(content_type="text/plain"))),
    "empty content": _answers(Answer()),
    "blank content": _answers(Answer(text=" \n")),
    "refusal": _answers(Answer(text="I cannot help with that.", stop=Stop.REFUSED)),
    "content filter": _answers(Answer(text="Well", stop=Stop.FILTERED)),
    "length stop": _answers(Answer(text="fin", stop=Stop.LENGTH, output_tokens=3)),
    "choice, refused": _chosen(Answer(text="No.", stop=Stop.REFUSED)),
    "choice, filtered": _chosen(Answer(text="f", stop=Stop.FILTERED)),
    "choice, cut": _chosen(Answer(text='{"answer": "fi', stop=Stop.LENGTH, output_tokens=3)),
    "choice of another word": _chosen(Answer(text="splendid")),
    "choice of another shape": _chosen(Answer(text='{"answer": {"word": 7}}')),
    "choice in a sentence": _chosen(Answer(text="I would say it is all in all.")),
}
TOOLS: Mapping[str, Case] = {
    "unknown tool": _calls(Call("read_fil", PATH)),
    "invalid tool arguments": Case(
        script=in_turn(Behaviour(answer=Answer(calls=(Call("read_file", '{"path": 7}'),)))),
        chat=in_turn(Behaviour(answer=Answer(calls=(Call("read_file", '{"path": '),)))),
        tools=True,
    ),
    "missing tool arguments": _calls(Call("read_file", "{}")),
    "raising tool": _calls(Call("read_file", '{"path": "none.txt"}')),
    "one good and one bad call": _calls(Call("read_file", PATH), Call("nothing", "{}")),
    "endless tool rounds": attrs.evolve(
        _answers(Answer(calls=(Call("read_file", PATH),))), tools=True
    ),
    "cut with a call": attrs.evolve(
        _json(
            {
                "type": "message",
                "content": [{"type": "tool_use", "id": "1", "name": "read_file", "input": {}}],
                "stop_reason": "max_tokens",
            },
            {"choices": [{"message": {"tool_calls": [CHAT_CALL]}, "finish_reason": "length"}]},
            {
                "status": "incomplete",
                "incomplete_details": {"reason": "max_output_tokens"},
                "output": [{"type": "function_call", "call_id": "1", "name": "read_file"}],
            },
        ),
        tools=True,
    ),
    "arguments that are a list": _read(["a.txt"], '["a.txt"]'),
    "no arguments": _read(None, ""),
    "arguments with half of a pair": _read({"path": "\ud800"}, '{"path": "\\ud800"}'),
    "call without a name": _called(
        {"id": "1", "input": {}},
        {"id": "1", "function": {"arguments": "{}"}},
        {"call_id": "1", "arguments": "{}"},
    ),
    "call without an id": _called(
        {"name": "read_file", "input": {}},
        {"function": {"name": "read_file", "arguments": "{}"}},
        {"name": "read_file", "arguments": "{}"},
    ),
    "call where there are no tools": attrs.evolve(_read({}, "{}"), tools=False),
    "fault between tool rounds": Case(
        script=in_turn(
            Behaviour(answer=Answer(calls=(Call("nothing", "{}"),))), Behaviour(status=529)
        ),
        tools=True,
    ),
}
RECOVERIES: Mapping[str, Case] = {
    "two server errors, then fine": _recovers(Behaviour(status=500), Behaviour(status=503)),
    "overloaded, then fine": _recovers(Behaviour(status=529)),
    "overloaded inside a 200, then fine": _inside(OVERLOADED, ENGINE_OVERLOADED, once=True),
    "reset, then fine": _recovers(RESET),
    "closed in the body, then fine": _recovers(Behaviour(breaks=Break.ENDS_EARLY)),
    "hang, then fine": attrs.evolve(_recovers(Behaviour(breaks=Break.HANGS)), timeout=0.5),
    "truncated JSON, then fine": _recovers(CUT),
    "rate limit, server error, then fine": _recovers(Behaviour(status=429), Behaviour(status=500)),
    "nothing, reset, then nothing": Case(
        script=in_turn(Behaviour(body=b"{}"), RESET, Behaviour(body=b"{}"))
    ),
    "reset, then unknown model": Case(
        script=in_turn(RESET, Behaviour(status=404)),
    ),
}
CASES: Mapping[str, Case] = {
    **STATUSES,
    **LIMITS,
    **CONNECTIONS,
    **BODIES,
    **HOSTILE,
    **ANSWERS,
    **TOOLS,
    **RECOVERIES,
}
BATCHES: Mapping[str, BatchCase] = {
    "batch, expired": BatchCase(fates=("expired",)),
    "batch, canceled": BatchCase(fates=("canceled",)),
    "batch, without a line for the call": BatchCase(fates=("forgotten",)),
    "batch, an error for the call": BatchCase(fates=("errored",)),
    "batch, refused": BatchCase(refusals=(400,)),
    "batch, wrong key": BatchCase(refusals=(401,)),
    "batch, unavailable, then fine": BatchCase(refusals=(503,)),
    "batch, expired, then fine": BatchCase(fates=("expired", "answered")),
}
