"""An agent that is an HTTP service."""

from __future__ import annotations

import contextlib
import functools
import json
import re
import socket
import threading
import zlib
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import attrs

from promptgraft.adapters.base import CallWaiting
from promptgraft.adapters.calling.access import is_address
from promptgraft.adapters.calling.faults import retry_after
from promptgraft.adapters.calling.retrying import ANNOUNCED_WAIT, Availability, RetryPolicy
from promptgraft.agents.call import (
    LONGEST_SHOWN,
    AgentAnswer,
    AgentCall,
    refusal_of,
    too_late,
)
from promptgraft.agents.templates import Template, Templated, a_path, hidden
from promptgraft.errors import (
    AgentFaultError,
    ConfigError,
    PermanentProviderError,
    TransientProviderError,
)
from promptgraft.ground.environment import Secret
from promptgraft.ground.serde import Json, digest, is_unicode, shown
from promptgraft.ground.strict.checks import SECONDS, STRING
from promptgraft.ground.text import clip_line
from promptgraft.runtime.deadline import LONGEST_WAIT, Deadline, rest, sooner

if TYPE_CHECKING:
    from ssl import SSLContext


_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_KINDS = {"Content-Type": "application/json", "Accept": "application/json"}
_OK, _REDIRECT = 200, 300
_TOO_MANY, _UNAVAILABLE = 429, 503
_BUSY = frozenset({_TOO_MANY, _UNAVAILABLE})
_STREAM = "text/event-stream"
_PAGE = "text/html"
_RETRIES = RetryPolicy()


def _an_address(_: object, field: attrs.Attribute[str], value: str) -> None:
    STRING.hold(field.name, value)
    if not _is_usable(value):
        raise ConfigError(
            f"url: expected an address such as http://localhost:8000/ask, found {shown(value)}"
        )
    # The address is the agent's name in reports and messages.
    if "@" in urlsplit(value).netloc:
        raise ConfigError("url: give user and password as a header, not in the address")


def _is_usable(url: str) -> bool:
    return is_address(url.partition("?")[0]) and _is_sendable(url) and " " not in url


def _default_body() -> Json:
    return {"query": "{query}"}


def _some_headers(_: object, __: object, headers: object) -> None:
    """Refuse what no request can carry; values may hold secrets and are not shown."""
    if not isinstance(headers, Mapping):
        raise ConfigError(f"headers: expected values by name, found {shown(headers)}")
    for name, value in headers.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise ConfigError(
                f"headers: expected the name of a header such as X-Team, found {shown(name)}"
            )
        if not isinstance(value, str) or not _is_sendable(value):
            raise ConfigError(
                f"headers.{name}: expected printable ASCII characters, found others (not shown)"
            )


def _is_sendable(value: str) -> bool:
    return value.isprintable() and value.isascii()


@attrs.frozen(kw_only=True, slots=False)
class HttpAgent(Templated):
    """An agent that is an HTTP service, called with a ``POST`` of JSON.

    In ``json`` and ``headers``, ``{query}``, ``{texts.NAME}``, ``{session_id}``, ``{turn}``,
    ``{history}``, ``{context}``, ``{state}``, ``{folder}`` and ``{example}`` are replaced by
    their values, ``{content}`` by the query with its images in the form of Chat Completions,
    ``{files}`` by a list of their paths, and ``${NAME}`` by an environment variable, whose value is
    blanked in answers and messages. Redirects are not followed. After a status 429 or 503 the
    service is asked again, when it says so or with growing pauses, as long as ``timeout`` allows.
    These statuses, other 5xx, and an ``error`` in place of the answer leave a rollout unscored;
    redirects, pages of HTML, 401, 403, 404 and the like end the run; other statuses are the fault
    of the agent.

    Attributes:
        url: the address of the service.
        json: the body of a request.
        headers: additional headers of a request.
        answer: path of the answer in a JSON reply, such as ``$.final_text``; by default the whole
            body is the answer.
        tools: path of the list of called tools.
        timeout: seconds for one answer, with all requests for it.
        version: version of the agent; change it when its answers change, which nothing else shows.

    Raises:
        ConfigError: an argument is invalid.
    """

    url: str = attrs.field(validator=_an_address)
    json: Json = attrs.field(factory=_default_body, hash=False)
    headers: Mapping[str, str] = attrs.field(factory=dict, validator=_some_headers, repr=False)
    answer: str | None = attrs.field(default=None, validator=a_path)
    tools: str | None = attrs.field(default=None, validator=a_path)
    timeout: float = attrs.field(default=120.0, validator=SECONDS)
    version: str = attrs.field(default="", validator=STRING)

    @property
    def name(self) -> str:
        parts = urlsplit(self.url)
        # Without the query, which may hold a key.
        return f"{parts.netloc}{parts.path}"

    @property
    def identity(self) -> str:
        what = digest([self.url, self.json, sorted(self.headers.items()), self.answer])[:12]
        return f"{self.name} {what} {self.version}".rstrip()

    @cached_property
    def _body(self) -> Template:
        return Template(value=self.json, where="json")

    @cached_property
    def _availability(self) -> Availability:
        return Availability()

    @cached_property
    def _headers(self) -> Mapping[str, Template]:
        return {
            name: Template(value=value, where=f"headers.{name}")
            for name, value in self.headers.items()
        }

    @property
    def _templates(self) -> tuple[Template, ...]:
        return (self._address, self._body, *self._headers.values())

    @property
    def _address(self) -> Template:
        return Template(value=self.url, where="url")

    def check(self, delivery: str, names: Collection[str]) -> None:
        if self._address.places:
            raise ConfigError("url: places such as `{query}` are for `json` and `headers`")
        needed = {"folder": "folder", "live": ""}.get(delivery, "texts")
        self._check_places(names, "json: nothing in it", needed)

    def ask(self, query: str, call: AgentCall) -> AgentAnswer:
        secrets = self._secrets
        with self._with_paths(call) as call_with_paths:
            return self._asked(query, call_with_paths, secrets)

    def _asked(self, query: str, call: AgentCall, secrets: tuple[str, ...]) -> AgentAnswer:
        body = self._body.filled(query, call)
        headers = {name: header.text(query, call) for name, header in self._headers.items()}
        if not is_unicode(body):
            raise AgentFaultError("a request cannot contain a lone surrogate")
        for name, value in headers.items():
            if not _is_sendable(value):
                raise AgentFaultError(
                    f"the header `{name}` may contain only printable ASCII characters"
                )
        ends = sooner(call.deadline, self.timeout)
        try:
            # Variables in the address are revealed only here, so that no message can show them.
            url = Secret(self.url).reveal()
            if not _is_usable(url):
                raise ConfigError(
                    f"agent `{self.name}`: url: with its variables it is no address in ASCII "
                    "(not shown); set them again"
                )
            data, headers = json.dumps(body).encode(), {**_KINDS, **headers}
            reply = self._accepted(lambda: post(url, data, headers, ends), call, ends)
        except OSError as error:
            if call.deadline is not None:
                call.deadline.check()
            if ends.expired:
                raise too_late(self.name, self.timeout) from None
            message = hidden(f"{type(error).__name__}: {error}", secrets)
            raise TransientProviderError(
                f"agent `{self.name}` cannot be reached: {message}; start it, or mend its `url`"
            ) from None
        if len(reply.body) > LONGEST_BODY:
            raise AgentFaultError(f"the agent answered with more than {LONGEST_BODY:,} bytes")
        text = hidden(_text_of(reply), secrets)
        if not _OK <= reply.status < _REDIRECT:
            message = clip_line(text, LONGEST_SHOWN)
            raise refusal_of(self.name, reply.status, message)
        kind = reply.headers.get("content-type", "").lower()
        if kind.startswith(_PAGE):  # of a sign-in or a proxy, for every case
            raise PermanentProviderError(
                f"agent `{self.name}` answered with a page of HTML: {shown(text)}; check its "
                "`url` and `headers`; an answer in HTML must be sent as JSON or plain text"
            )
        if kind.startswith(_STREAM):
            raise AgentFaultError(
                f"expected a whole reply, found a stream of events: {shown(text)}; turn it off, "
                "often with `stream: false` in `json`"
            )
        return self._answer_in(text, turn=call.turn, error_class=TransientProviderError)

    def _accepted(
        self, send: Callable[[], HttpReply], call: AgentCall, ends: Deadline
    ) -> HttpReply:
        """Return the first reply to a request that the service does not turn away as too busy.

        A service that turns a request away has not begun to answer it, so asking again repeats
        nothing.
        """
        reply, sent, policy = send(), 1, self._availability.bounded(_RETRIES)
        while reply.status in _BUSY and sent < policy.attempts:
            # A service that says 0 seconds may say it to all.
            wait = retry_after(reply.headers, now=ends.clock.now()) or policy.backoff(sent)
            if wait >= ends.remaining:
                break
            if wait > ANNOUNCED_WAIT:
                reason, model = f"status {reply.status}", f"agent {self.name}"
                call.session.notify(CallWaiting(model=model, seconds=wait, reason=reason))
            rest(wait, ends)
            reply, sent = send(), sent + 1
        if reply.status != _TOO_MANY:
            self._availability.note(answered=reply.status != _UNAVAILABLE)
        return reply


LONGEST_BODY = 10_000_000
"""Largest reply in bytes."""
_CHARSET = re.compile(r"charset=[\"']?([\w.:-]+)", re.IGNORECASE)
# Codecs that are no character sets: they raise, or take very long.
_PYTHON_ONLY = ("idna", "punycode", "undefined")


@attrs.frozen
class HttpReply:
    """What a service replied; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def _text_of(reply: HttpReply) -> str:
    """Return the body of a reply as text."""
    body, coding = reply.body, reply.headers.get("content-encoding", "").lower()
    # Nobody has asked for compression, but some services compress all that they send.
    if coding in ("gzip", "x-gzip"):
        unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        with contextlib.suppress(zlib.error):
            body = unpacker.decompress(body, LONGEST_BODY)
        if not unpacker.eof:
            raise AgentFaultError(
                f"expected a reply in gzip, whole and of at most {LONGEST_BODY:,} bytes"
            )
    elif coding not in ("", "identity"):
        raise AgentFaultError(f"the reply is compressed as {shown(coding)}; turn that off")
    named = _CHARSET.search(reply.headers.get("content-type", ""))
    charset = named[1].lower() if named and named[1].lower() not in _PYTHON_ONLY else "utf-8"
    try:
        text = body.decode(charset, "replace")
    except LookupError:
        text = body.decode("utf-8", "replace")
    return text.removeprefix("\ufeff")


def post(url: str, body: bytes, headers: Mapping[str, str], ends: Deadline) -> HttpReply:
    """Send a request and return the reply; follows no redirects.

    Raises:
        OSError: the connection failed, or the reply is not HTTP.
        LimitReachedError: time ran out.
    """
    from http.client import (  # slow to import
        HTTPConnection,
        HTTPException,
        HTTPSConnection,
        IncompleteRead,
    )

    ends.check()
    parts = urlsplit(url)
    path = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
    host, seconds = parts.hostname or "", min(ends.remaining, LONGEST_WAIT)
    connection = (
        HTTPSConnection(host, parts.port, timeout=seconds, context=_trusting())
        if parts.scheme == "https"
        else HTTPConnection(host, parts.port, timeout=seconds)
    )
    with contextlib.closing(connection), contextlib.ExitStack() as stack:
        connection.connect()
        # The timeout of a socket restarts with every byte received.
        interrupt = functools.partial(_interrupt, connection.sock)
        timer = threading.Timer(seconds, interrupt)
        timer.daemon = True
        timer.start()
        stack.callback(timer.cancel)
        if ends.cancellation is not None:
            stack.callback(ends.cancellation.listen(interrupt))
        try:
            connection.request("POST", path, body, {**headers, "Connection": "close"})
            with connection.getresponse() as response:
                # One byte more than allowed tells a longer reply from one of exactly that length.
                reply = response.read(LONGEST_BODY + 1)
                # `read` with a limit does not raise for a body that ends early.
                if response.length and len(reply) <= LONGEST_BODY:
                    raise IncompleteRead(reply, response.length)
        except HTTPException as error:
            # A reply that is not HTTP is a fault of the connection, like those that are an OSError.
            raise ConnectionError(f"{type(error).__name__}: {error}") from error
        ends.check()  # a reply without a length looks complete when it is interrupted
        headers = {name.lower(): value for name, value in response.getheaders()}
        return HttpReply(response.status, headers, reply)


def _interrupt(wire: socket.socket) -> None:
    """Unblock a thread that waits for the socket."""
    with contextlib.suppress(OSError):
        wire.shutdown(socket.SHUT_RDWR)


@functools.cache
def _trusting() -> SSLContext:
    import ssl

    return ssl.create_default_context()
