"""An agent that is a service, asked over HTTP."""

from __future__ import annotations

import contextlib
import functools
import json
import socket
import threading
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import attrs

from promptgraft.adapters.calling.access import is_address
from promptgraft.agents.call import (
    LONGEST_SHOWN,
    AgentAnswer,
    AgentCall,
    refusal_of,
    sooner,
    too_late,
)
from promptgraft.agents.templates import Template, Templated, a_path, hidden
from promptgraft.environment import Secret
from promptgraft.errors import AgentFaultError, ConfigError, TransientProviderError
from promptgraft.runtime.deadline import LONGEST_WAIT, Deadline
from promptgraft.serde import Json, digest, is_unicode, shown
from promptgraft.strict.checks import SECONDS, STRING
from promptgraft.text import clip

if TYPE_CHECKING:
    from ssl import SSLContext


_KINDS = {"Content-Type": "application/json", "Accept": "application/json"}
_OK, _REDIRECT = 200, 300


def _an_address(_: object, field: attrs.Attribute[str], value: str) -> None:
    STRING.hold(field.name, value)
    if not is_address(value.partition("?")[0]):
        raise ConfigError(
            f"url: expected an address such as http://localhost:8000/ask, found {shown(value)}"
        )
    if "@" in urlsplit(value).netloc:
        raise ConfigError("url: give user and password as a header, not in the address")


def _default_body() -> Json:
    return {"query": "{query}"}


@attrs.frozen(kw_only=True, slots=False)
class HttpAgent(Templated):
    """An agent that is a service, asked over HTTP with a ``POST`` of JSON.

    In ``json`` and ``headers`` ``{query}``, ``{texts.NAME}``, ``{session_id}``, ``{turn}``,
    ``{history}``, ``{context}``, ``{state}``, ``{folder}`` and ``{example}`` stand for what it is
    asked, and ``${NAME}`` for a variable of the environment, whose value reaches no answer and no
    message. Redirects are not followed. The statuses 429 and 5xx leave a rollout unscored; a
    redirect, 401, 403, 404 and such end the run; other statuses are the agent's fault.

    Attributes:
        url: where it is asked.
        json: the body of a request.
        headers: further headers of a request.
        answer: where the answer stands in the JSON of a reply: ``$.final_text``; by default the
            whole body is the answer.
        tools: where the list of the tools stands that it called.
        timeout: seconds for one answer.
        version: of the agent, to be changed when its answers do: nothing else tells.

    Raises:
        ConfigError: an argument is not what it must be.
    """

    url: str = attrs.field(validator=_an_address)
    json: Json = attrs.field(factory=_default_body)
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    answer: str | None = attrs.field(default=None, validator=a_path)
    tools: str | None = attrs.field(default=None, validator=a_path)
    timeout: float = attrs.field(default=120.0, validator=SECONDS)
    version: str = attrs.field(default="", validator=STRING)

    @property
    def name(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.netloc}{parts.path}"

    @property
    def identity(self) -> str:
        what = digest([self.url, self.json, sorted(self.headers.items()), self.answer])[:12]
        return f"{self.name} {what} {self.version}".rstrip()

    @cached_property
    def _body(self) -> Template:
        return Template(value=self.json, where="json")

    @cached_property
    def _headers(self) -> Mapping[str, Template]:
        return {
            name: Template(value=one, where=f"headers.{name}") for name, one in self.headers.items()
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
        body = self._body.filled(query, call)
        headers = {name: one.text(query, call) for name, one in self._headers.items()}
        if not is_unicode(body):
            raise AgentFaultError("a request cannot hold half of a character")
        for name, value in headers.items():
            if not (value.isprintable() and value.isascii()):
                raise AgentFaultError(
                    f"the header `{name}` cannot hold line breaks and other characters than ASCII"
                )
        ends = sooner(call.deadline, self.timeout)
        try:
            url = Secret(self.url).reveal()
            status, reply = post(url, json.dumps(body).encode(), {**_KINDS, **headers}, ends)
        except OSError as error:
            if call.deadline is not None:
                call.deadline.check()
            if ends.expired:
                raise too_late(self.name, self.timeout) from None
            said = hidden(f"{type(error).__name__}: {error}", secrets)
            raise TransientProviderError(f"agent `{self.name}` cannot be reached: {said}") from None
        if len(reply) > LONGEST_BODY:
            raise AgentFaultError(f"the agent answered with more than {LONGEST_BODY:,} bytes")
        text = hidden(reply.decode("utf-8", "replace"), secrets)
        if _OK <= status < _REDIRECT:
            return self._answer_in(text)
        said = clip(" ".join(text.split()), LONGEST_SHOWN, around=" ")
        raise refusal_of(self.name, status, said)


LONGEST_BODY = 10_000_000
"""Bytes that a reply may have; of a longer one there is none."""


def post(url: str, body: bytes, headers: Mapping[str, str], ends: Deadline) -> tuple[int, bytes]:
    """Send a request and return status and body of the reply; redirects are not followed.

    Raises:
        OSError: the other end is at fault.
        LimitReachedError: there is no time left.
    """
    from http.client import (  # takes its time
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
        # A time limit of the socket begins again with each byte that comes.
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
                reply = response.read(LONGEST_BODY + 1)
                if response.length and len(reply) <= LONGEST_BODY:
                    raise IncompleteRead(reply, response.length)
        except HTTPException as error:
            raise ConnectionError(f"{type(error).__name__}: {error}") from error
        ends.check()  # interrupted, a reply without a length only seems to be whole
        return response.status, reply


def _interrupt(wire: socket.socket) -> None:
    """End a wait in another thread."""
    with contextlib.suppress(OSError):
        wire.shutdown(socket.SHUT_RDWR)


@functools.cache
def _trusting() -> SSLContext:
    import ssl

    return ssl.create_default_context()
