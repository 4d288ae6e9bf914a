"""Calls on the workers of a dask cluster. Needs ``pip install "promptgraft[dask]"``.

A call is sent in separately pickled parts. A part of more than ``INLINE`` bytes, such as prompts
with their functions, is sent as its digest; a worker that lacks it asks for it and gets it once.
All decisions, records and counts are made by the submitting process.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib
import io
import logging
import pickle
import re
import sys
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Executor, Future
from concurrent.futures import wait as wait_for
from functools import cache, lru_cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import attrs

from promptgraft.errors import (
    CallerError,
    ConfigError,
    LimitReachedError,
    PermanentProviderError,
    PromptgraftError,
    TransientProviderError,
)
from promptgraft.ground.environment import check_package
from promptgraft.ground.functions import is_own, raised_at
from promptgraft.ground.strict.checks import Check, Kind, check
from promptgraft.ground.strict.nodes import Node
from promptgraft.ground.text import raised
from promptgraft.project.adding import Workers
from promptgraft.runtime import event_loop
from promptgraft.runtime.deadline import GRACE, Deadline

P = ParamSpec("P")
T = TypeVar("T")

INLINE = 8_192
"""Bytes; larger parts do not travel with every call."""

CONNECT_SECONDS = 10.0
"""Seconds to wait for a cluster."""

_KEPT = 64  # large parts
_CALLS_PER_THREAD = 2  # the next call is already there when one ends


@cache
def versions() -> str:
    """Return the versions that must be the same on all machines."""
    versions_here = [f"Python {sys.version_info.major}.{sys.version_info.minor}"]
    for package in ("promptgraft", "cloudpickle", "genai-prices"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions_here.append(f"{package} {metadata.version(package)}")
    return ", ".join(versions_here)


def _check(worker: str, installed: str, needed: str) -> None:
    if installed != needed:
        raise ConfigError(
            f"executor: dask: worker {worker} has {installed}, the run {needed}; "
            "install the same there"
        )


@attrs.frozen(repr=False)
class _DaskTask:
    """A call: function, arguments and keyword arguments, pickled, or the digest of a large part.

    dask logs its ``repr``, which therefore shows nothing. ``sent`` are large parts by digest.
    """

    needs: str
    parts: tuple[bytes | str, ...]
    sent: Mapping[str, bytes] = attrs.field(factory=dict)


@lru_cache(maxsize=_KEPT)
def _place_of(_digest: str) -> list[object]:
    """Return the place where a worker keeps a large part: empty until it was sent."""
    return []


def _executed(task: _DaskTask) -> bytes | tuple[str, list[str]]:
    """Make a call on a worker; return a pickled pair of value and error, one of them None.

    A worker that lacks large parts returns its address and their digests instead.
    """
    worker: str = importlib.import_module("distributed").get_worker().address
    try:
        # With every call, because workers may join after the run has begun.
        _check(worker, versions(), task.needs)
        parts, lacking = list[Any](), list[str]()
        for part in task.parts:
            if isinstance(part, bytes):
                parts.append(pickle.loads(part))  # noqa: S301 - what a driver sends is run
                continue
            place = _place_of(part)
            if not place and part in task.sent:
                place.append(pickle.loads(task.sent[part]))  # noqa: S301 - the same
            parts += place[:1]
            lacking += [] if place else [part]
        if lacking:
            return worker, lacking
        function, *arguments, named = parts
        return pickle.dumps((function(*arguments, **named), None))
    except PromptgraftError as error:
        return pickle.dumps((None, error))
    except Exception as error:  # noqa: BLE001 - raised where the answer is waited for
        return pickle.dumps((None, CallerError(f"worker {worker}: {raised_at(error)}")))


def _pickled(value: object) -> bytes:
    cloudpickle: Any = importlib.import_module("cloudpickle")

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, obj: object) -> object:
            # msgspec caches on the class; the cache does not pickle and is rebuilt on demand.
            if isinstance(obj, type) and "__msgspec_cache__" in vars(obj):
                type.__delattr__(obj, "__msgspec_cache__")
            return super().reducer_override(obj)

    try:
        Pickler(buffer := io.BytesIO()).dump(value)
    except Exception as error:  # noqa: BLE001 - of the user's objects
        raise ConfigError(f"executor: dask: a call cannot be pickled: {raised(error)}") from None
    return buffer.getvalue()


def _is_news(record: logging.LogRecord) -> bool:
    # dask logs the loss of a scheduler with tracebacks; the run reports it in one line.
    lost = isinstance((record.exc_info or (0, 0))[1], (OSError, asyncio.CancelledError))
    return not lost and not str(record.msg).startswith("Failed to reconnect")


class DaskExecutor(Executor):
    """Makes calls on the workers of a dask cluster, in the order of submission.

    Two calls per worker thread are under way at a time and cannot be cancelled. Calls of a lost
    worker are repeated; one that lost several workers (four by default in dask) raises
    ``TransientProviderError``. If the scheduler is lost, all raise ``PermanentProviderError``. A
    large argument is pickled once: workers do not see later changes to it.

    Args:
        cluster: ``tcp://HOST:PORT`` of a scheduler, or a ``distributed.Client``.
        at_once: maximum of calls under way; None for as many as the cluster takes.
        code: a folder with modules that workers do not have; their functions are sent by value.
        say: called in another thread with a line about each lost worker; by default a logger.
        timeout: seconds to wait for the cluster.

    Attributes:
        made_again: calls that were repeated because their worker was lost.

    Raises:
        ConfigError: dask is missing, nothing answers, or a worker has other :func:`versions`.
    """

    def __init__(
        self,
        cluster: object,
        *,
        at_once: int | None = None,
        code: Path | None = None,
        say: Callable[[str], object] | None = None,
        timeout: float | None = None,
    ) -> None:
        timeout = CONNECT_SECONDS if timeout is None else timeout
        check_package("distributed", "2025.1", extra="dask", what="an executor of dask")
        self._dask: Any = importlib.import_module("distributed")
        self._pickle: Any = importlib.import_module("cloudpickle")
        self.made_again = 0
        self._say, self._modules = say or logging.getLogger(__name__).warning, list[Any]()
        self._code = () if code is None else (f"{code.absolute()}/", f"{code.resolve()}/")
        self._large = dict[int, tuple[object, bytes]]()
        self._calls = dict[Future[None], Future[Any]]()
        self._keys, self._is_shut_down = set[str](), False
        self._client: Any = None
        client = cluster if isinstance(cluster, self._dask.Client) else None
        self._address: str = client.scheduler.address if client else str(cluster)
        security = client.security if client else None
        try:
            threads = event_loop.run(self._connect(security), deadline=Deadline.after(timeout))
        except (OSError, ValueError) as error:
            self._close()
            # A ConfigError is a ValueError.
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(
                f"executor: dask: no scheduler with a worker answers at {self._address} within "
                f"{timeout:g} s ({type(error).__name__}); start `dask scheduler` and "
                f"`dask worker {self._address}`"
            ) from None
        self._room = asyncio.Semaphore(min(at_once or sys.maxsize, _CALLS_PER_THREAD * threads))

    async def _connect(self, security: object) -> int:
        """Open the connection and check the workers; return the number of their threads."""
        self._loop = asyncio.get_running_loop()
        for name in ("distributed.batched", "distributed.client"):
            logging.getLogger(name).addFilter(_is_news)
        # Not the default, which the user's own dask code would then use.
        self._client = self._dask.Client(
            self._address, security=security, asynchronous=True, set_as_default=False
        )
        await self._client
        await self._client.wait_for_workers(1)
        versions_there = await self._client.run(versions, on_error="return")
        for worker, has in versions_there.items():
            if not isinstance(has, OSError):  # lost in the meantime
                _check(worker, has if isinstance(has, str) else raised(has), versions())
        self._client.subscribe_topic("all", self._note)
        return sum((await self._client.nthreads()).values())

    def _close(self) -> None:
        async def closing() -> None:
            if self._client is not None:
                with contextlib.suppress(ValueError):  # it was never subscribed
                    if self._client.status != "closed":  # as it is once the scheduler is gone
                        self._client.unsubscribe_topic("all")
                await self._client.close()

        with contextlib.suppress(LimitReachedError):
            event_loop.run(closing(), deadline=Deadline.after(GRACE))

    def _note(self, event: tuple[float, Mapping[str, Any]]) -> None:
        message = event[1]
        if message.get("action") == "remove-worker":
            lost = self._keys & {*message["processing-tasks"], *message["lost-computed-tasks"]}
            self.made_again += len(lost)
            self._say(f"dask worker {message['worker']} was lost; {len(lost)} calls are made again")

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        if self._is_shut_down:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[T] = Future()
        submitted = self._call(partial(fn, *args, **kwargs), future)
        call = asyncio.run_coroutine_threadsafe(submitted, self._loop)
        self._calls[call] = future
        call.add_done_callback(self._calls.pop)
        return future

    def _packed(self, call: partial[T]) -> tuple[_DaskTask, dict[str, bytes]]:
        """Return a call in the form that is sent, and its large parts by digest."""
        # Before every call, because modules may have been imported since the last.
        self._register_code()
        parts, large = list[bytes | str](), dict[str, bytes]()
        for value in (call.func, *call.args, call.keywords):
            # Keeps the value alive, because its id could be reused.
            large_value = self._large.pop(id(value), None) or (value, _pickled(value))
            if len(large_value[1]) <= INLINE:
                parts.append(large_value[1])
                continue
            self._large[id(value)] = large_value
            parts.append(digest := hashlib.sha256(large_value[1]).hexdigest())
            large[digest] = large_value[1]
        # Parts are put back whenever they are used, so the first were used longest ago.
        for oldest in list(self._large)[:-_KEPT]:
            del self._large[oldest]
        return _DaskTask(versions(), tuple(parts)), large

    def _register_code(self) -> None:
        for module in list(sys.modules.values()) if self._code else ():
            file = getattr(module, "__file__", None) or ""
            if file.startswith(self._code) and is_own(file) and module not in self._modules:
                self._pickle.register_pickle_by_value(module)
                self._modules.append(module)

    async def _call(self, call: partial[T], future: Future[T]) -> None:
        async with self._room:
            if not future.set_running_or_notify_cancel():
                return
            try:
                task, large = self._packed(call)
                answer = await self._answer(task, None)
                while isinstance(answer, tuple):
                    sent = {digest: large[digest] for digest in answer[1]}
                    answer = await self._answer(attrs.evolve(task, sent=sent), answer[0])
                value, error = pickle.loads(answer)  # noqa: S301 - of a worker
            except asyncio.CancelledError:
                # A future that runs cannot be cancelled any more.
                future.set_exception(CancelledError())
                raise
            except Exception as fault:  # noqa: BLE001 - raised where the answer is waited for
                future.set_exception(fault)
            else:
                future.set_result(value) if error is None else future.set_exception(error)

    async def _answer(self, task: _DaskTask, worker: str | None) -> bytes | tuple[str, list[str]]:
        # A key of its own: by default dask answers calls with equal arguments once.
        key = f"promptgraft-{uuid.uuid4().hex}"
        self._keys.add(key)
        # At the worker that asked for parts, if any; another may take it if that one is lost.
        request = self._client.submit(
            _executed, task, key=key, workers=worker, allow_other_workers=worker is not None
        )
        try:
            answer: list[bytes | tuple[str, list[str]]] = await self._client.gather([request])
        except self._dask.KilledWorker:
            raise TransientProviderError("the dask workers that made the call were lost") from None
        except (CancelledError, OSError):
            raise PermanentProviderError(
                f"the dask scheduler {self._address} was lost; start it and resume the run"
            ) from None
        except Exception as error:  # noqa: BLE001 - of dask, such as what a worker cannot import
            raise CallerError(f"a dask worker could not make the call: {raised(error)}") from None
        finally:
            self._keys.discard(key)
            request.release()  # else dask repeats a finished, paid call when its worker is lost
        return answer[0]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Close the connection when all calls have ended; with ``wait`` False abandon them."""
        if self._is_shut_down:
            return
        self._is_shut_down = True
        calls = dict(self._calls)
        for future in calls.values() if cancel_futures or not wait else ():
            future.cancel()
        wait_for(calls, timeout=None if wait else 0)
        for call in calls:
            call.cancel()
        wait_for(calls, timeout=GRACE)
        self._close()
        for module in self._modules:
            self._pickle.unregister_pickle_by_value(module)


_CLUSTER = r"^[a-z]+://[^\s/@]+:[0-9]+$"
_ADDRESS: Check[str] = check(
    "the address of a dask scheduler such as `tcp://10.0.0.5:8786`",
    lambda value: value if isinstance(value, str) and re.search(_CLUSTER, value) else None,
    {"type": "string", "pattern": _CLUSTER},
)


@attrs.frozen
class DaskWorkers(Workers):
    """Address of the scheduler of a dask cluster."""

    address: str

    @classmethod
    def kind(cls) -> Kind[DaskWorkers]:
        def read(node: Node) -> DaskWorkers | None:
            address = _ADDRESS.read(node)
            return None if address is None else cls(address)

        return Kind(read, _ADDRESS.schema)

    def connected(
        self, *, code: Path | None, at_once: int | None, say: Callable[[str], object] | None
    ) -> Executor:
        return DaskExecutor(self.address, at_once=at_once, code=code, say=say)
