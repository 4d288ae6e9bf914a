"""A request as handlers see it, what they answer, and the table of routes."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import attrs

from promptgraft.errors import ConfigError
from promptgraft.frozenmap import FrozenMap
from promptgraft.jobs import Job, JobManager, JobNotFoundError
from promptgraft.serde import Json, is_deeper, parse_json, shown
from promptgraft.server.access import Caller, Scope
from promptgraft.server.problems import Problem
from promptgraft.server.views import JobView, JobViews
from promptgraft.strict.checks import Kind
from promptgraft.strict.nodes import Source

T = TypeVar("T")

MOST_BODY_BYTES = 262_144
MOST_DEPTH = 32

_NO_TEXTS: Mapping[str, str] = FrozenMap()
_PLACEHOLDER = re.compile(r"{(\w+)}")


@attrs.frozen(kw_only=True)
class Call:
    """One request.

    Attributes:
        manager: the jobs.
        mirrors: the folder in which jobs are mirrored for reports and archives.
        mirroring: held while a mirror is written and read.
        views: what pages show of jobs.
        streams: how many streams of events there are now.
        caller: who asks.
        path: the values of the placeholders of the path.
        query: the parameters behind the question mark.
        headers: by lower-case name.
        body: what was sent; empty for nothing.
    """

    manager: JobManager
    mirrors: Path
    mirroring: threading.Lock
    views: JobViews
    streams: int
    caller: Caller
    path: Mapping[str, str] = _NO_TEXTS
    query: Mapping[str, str] = _NO_TEXTS
    headers: Mapping[str, str] = _NO_TEXTS
    body: bytes = b""

    @property
    def job(self) -> Job:
        """The job that the path names, if the caller may know of it.

        Raises:
            JobNotFoundError: there is none.
        """
        job = self.manager.get(self.path["job"])
        if not self.caller.sees(job.project):
            raise JobNotFoundError(f"no job has an id that begins with `{self.path['job'][:40]}`")
        return job

    @property
    def view(self) -> JobView:
        """The job that the path names as its events tell it.

        Raises:
            JobNotFoundError: there is none.
        """
        return self.views.of(self.manager, self.job)

    def project(self, name: str) -> str:
        """Return the name of a project, if the caller may know of it.

        Raises:
            ConfigError: it may not.
        """
        if not self.caller.sees(name):
            raise ConfigError(f"there is no project `{name}` for this token")
        return name

    def read(self, kind: Kind[T]) -> T:
        """Return the body.

        Raises:
            Problem: 400, 413, 415: it is no JSON that is read at all.
            DataFormatError: with the path of each fault.
        """
        source = Source.of(self._document())
        found = kind.read(source.root)
        source.raise_all()
        assert found is not None  # noqa: S101 - what has no fault is read
        return found

    def object(self) -> dict[str, Json]:
        """Return the body as it is: what it names counts, even if that is a default.

        Raises:
            Problem: as :meth:`read`.
            ConfigError: it is no object.
        """
        value = self._document()
        if not isinstance(value, dict):
            raise ConfigError(f"body: expected an object, found {shown(value)}")
        return value

    def _document(self) -> Json:
        media = self.headers.get("content-type", "application/json").partition(";")[0]
        if media.strip().lower() != "application/json":
            raise Problem(415, f"expected application/json, found {media[:100]}")
        try:
            value = parse_json(self.body or b"{}", where="body")
        except ConfigError as error:
            raise Problem(400, str(error)) from None
        except ValueError as error:
            raise Problem(400, str(error)) from None
        if is_deeper(value, MOST_DEPTH):
            raise Problem(400, f"body: nested more than {MOST_DEPTH} deep")
        return value

    def integer(self, name: str, default: int, *, least: int, most: int) -> int:
        """Return a parameter of the query that is an integer.

        Raises:
            Problem: 422: it is none, or out of range.
        """
        given = self.query.get(name)
        if given is None:
            return default
        number = natural(given)
        if number is not None and least <= number <= most:
            return number
        raise Problem(
            422, f"{name}: expected an integer from {least} to {most}, found {given[:40]!r}"
        )


def natural(given: str) -> int | None:
    """Return the natural number that a text is; None for other texts, and for huge numbers."""
    return int(given) if given.isascii() and given.isdigit() and len(given) < 12 else None


@attrs.frozen(kw_only=True)
class Reply:
    """What a handler answers.

    Attributes:
        status: the HTTP status.
        content: the bytes.
        media: what they are.
        headers: of the answer.
        job: id of a job that is to end or to be paused first, and to be answered then.
        seconds: how long that may take.
    """

    status: int = 200
    content: bytes = b""
    media: str = "application/json"
    headers: Mapping[str, str] = _NO_TEXTS
    job: str = ""
    seconds: float = 0.0


def reply(document: Json, status: int = 200, **headers: str) -> Reply:
    """Return plain data as an answer."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status=status, content=json.dumps(document).encode(), headers=named)


@attrs.frozen
class Route:
    """What is done at a method and a path; one row makes handler, scope and documentation.

    Attributes:
        at: the method of HTTP, and the path behind the prefix, such as ``GET /jobs/{job}``.
        scope: what a token needs.
        handler: answers.
        query: parameters, with their JSON Schemas.
        headers: the same for headers that decide what is answered.
        body: what is sent; None for nothing.
        statuses: how it may succeed.
        media: what it answers.
    """

    at: str
    scope: Scope
    handler: Callable[[Call], Reply]
    query: Mapping[str, Mapping[str, Json]] = attrs.field(default=FrozenMap(), kw_only=True)
    headers: Mapping[str, Mapping[str, Json]] = attrs.field(default=FrozenMap(), kw_only=True)
    body: Kind[object] | None = attrs.field(default=None, kw_only=True)
    statuses: tuple[int, ...] = attrs.field(default=(200,), kw_only=True)
    media: str = attrs.field(default="application/json", kw_only=True)

    @property
    def method(self) -> str:
        """The method of HTTP."""
        return self.at.partition(" ")[0]

    @property
    def path(self) -> str:
        """The path behind the prefix, with placeholders."""
        return self.at.partition(" ")[2]

    @property
    def summary(self) -> str:
        """One line for the documentation: that of the handler."""
        return (self.handler.__doc__ or "").splitlines()[0]

    @property
    def placeholders(self) -> tuple[str, ...]:
        """The names in the path."""
        return tuple(_PLACEHOLDER.findall(self.path))
