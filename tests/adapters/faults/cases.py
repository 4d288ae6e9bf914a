"""What can go wrong with a provider, by the names of the table in ``specs/adapters.md``."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping

import attrs

from promptgraft.adapters.calling.sdk import LONGEST_BODY
from servers.behaviour import (
    WELL,
    Answer,
    Behaviour,
    Break,
    Call,
    Fault,
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
        base_path: added to the address.
        tools: whether the prompt has tools.
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
    base_path: str = ""
    tools: bool = False
    timeout: float = 10.0
    seconds: float | None = None
    stops: bool = False

    def script_for(self, wire: str) -> Script:
        """Return how the server that speaks a wire format behaves."""
        chat = self.chat or self.script
        scripts = {"openai": chat, "responses": self.responses or chat}
        return scripts.get(wire, self.script)


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
GATEWAY = b"<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
PORTAL = b"<html><head><title>Sign in</title></head><body>Welcome</body></html>"
USED_UP = {
    "anthropic-ratelimit-requests-remaining": "0",
    "anthropic-ratelimit-requests-reset": "2126-11-21T00:00:00Z",
    "x-ratelimit-remaining-requests": "0",
    "x-ratelimit-reset-requests": "60m0s",
}
PATH = '{"path": "a.txt"}'
RESET = Behaviour(breaks=Break.BEFORE_HEADERS)
CUT = Behaviour(body=b'{"id": "1", "content": [{"ty')


def _json(anthropic: object, openai: object, responses: object = None) -> Case:
    script, chat, other = (
        always(Behaviour(body=json.dumps(body).encode()))
        for body in (anthropic, openai, responses or openai)
    )
    return Case(script=script, chat=chat, responses=other)


def _said(text: str | None = FINE, *, sent: object = 10, received: object = 5) -> Case:
    """Return the case of a whole answer with these parts."""
    block = {"type": "text"} if text is None else {"type": "text", "text": text}
    message = {"role": "assistant", "content": text}
    return _json(
        {
            "type": "message",
            "model": MODEL,
            "content": [block],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": sent, "output_tokens": received},
        },
        {
            "model": MODEL,
            "choices": [{"message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": sent, "completion_tokens": received},
        },
        {
            "model": MODEL,
            "status": "completed",
            "output": [
                {"type": "message", "content": [{"type": "output_text", "text": text}]},
            ],
            "usage": {"input_tokens": sent, "output_tokens": received},
        },
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


LIMITS: Mapping[str, Case] = {
    "rate limit": _status(429),
    "rate limit, seconds": _status(429, retry_after="0.01"),
    "rate limit, milliseconds": _status(429, retry_after_ms="5"),
    "rate limit, past date": _status(429, retry_after="Sat, 21 Nov 2015 00:00:00 GMT"),
    "rate limit, far date": _status(429, retry_after="Thu, 21 Nov 2126 00:00:00 GMT"),
    "rate limit, an hour": _status(429, retry_after="3600"),
    "rate limit, headers": Case(script=always(Behaviour(status=429, headers=USED_UP))),
    "rate limit inside a 200": _inside(TOO_MANY, TOO_MANY_CHAT),
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
}
CONNECTIONS: Mapping[str, Case] = {
    "nobody listens": Case(script=always(WELL), listens=False),
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
    "empty body": _body(b""),
    "a list": _body(b"[]"),
    "another object": _body(b'{"object": "list", "data": []}'),
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
}
ANSWERS: Mapping[str, Case] = {
    "wrong content type": Case(script=always(Behaviour(content_type="text/plain"))),
    "empty content": _answers(Answer()),
    "blank content": _answers(Answer(text=" \n")),
    "refusal": _answers(Answer(text="I cannot help with that.", stop=Stop.REFUSED)),
    "content filter": _answers(Answer(text="Well", stop=Stop.FILTERED)),
    "length stop": _answers(Answer(text="fin", stop=Stop.LENGTH, output_tokens=3)),
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
