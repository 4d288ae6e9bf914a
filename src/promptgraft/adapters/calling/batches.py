"""Calls answered in batches: gathered while they wait, sent together, fetched by custom id.

Imports the HTTP client, so this module is imported only for the first call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

import attrs

from promptgraft.adapters.base import CallWaiting
from promptgraft.adapters.calling import batch_forms
from promptgraft.adapters.calling.access import Access
from promptgraft.adapters.calling.faults import Fault
from promptgraft.adapters.calling.gathering import PAUSED, BatchExecutor, Intended, seat
from promptgraft.adapters.calling.sdk import LONGEST_RESULTS, SdkEndpoint
from promptgraft.adapters.calling.turns import Files, NothingReceivedError, Received
from promptgraft.errors import CallerError, PromptgraftError, RunPausedError
from promptgraft.ground.serde import digest
from promptgraft.prompt.schema import JsonObject
from promptgraft.runtime import event_loop

_FRAME = 200
"""Most bytes of the envelope around a request."""
# Characters of the digest in a custom id; with the place it stays below Anthropic's limit of 64.
_KEY = 40


@attrs.define(eq=False)
class _Request:
    """A call that waits for its answer; ``key`` is a digest of position and body."""

    key: str
    body: JsonObject
    size: int
    answer: asyncio.Future[batch_forms.Outcome]


@attrs.define(eq=False)
class _Batch:
    """A batch at the provider.

    Attributes:
        waiting: the pending answers, by custom id.
        outcome: returns the outcome of a custom id; None while the batch is in progress.
        is_followed: whether a task polls it.
    """

    id: str
    waiting: dict[str, asyncio.Future[batch_forms.Outcome]] = attrs.field(factory=dict)
    outcome: Callable[[str], batch_forms.Outcome] | None = None
    is_followed: bool = False


class _Gathering:
    """The calls of one model in one ``BatchExecutor``; used in the event loop only."""

    def __init__(self, executor: BatchExecutor, endpoint: BatchEndpoint) -> None:
        self._executor = executor
        self._own = endpoint
        self._loop = asyncio.get_running_loop()
        self._pending: list[_Request] = []
        self._batches: dict[str, _Batch] = {}
        self._kept: dict[str, list[tuple[str, str]]] = {}
        self._lost: list[Intended] = []
        self._finding = asyncio.Lock()
        for intended in executor.kept(endpoint.who):
            if intended.batch is None:
                self._lost.append(intended)
            else:
                self._know(intended.batch, intended.requests)

    def wake(self) -> None:
        if not self._loop.is_closed():
            # Called from any thread; everything else here runs in the loop.
            self._loop.call_soon_threadsafe(self._woken)

    def _woken(self) -> None:
        if self._executor.is_paused:
            requests = [
                request for batch in self._batches.values() for request in batch.waiting.values()
            ]
            _fail(
                (*requests, *(request.answer for request in self._pending)), RunPausedError(PAUSED)
            )
        if self._executor.all_wait:
            self.flush()

    async def answer(self, body: JsonObject, position: str) -> batch_forms.Outcome:
        """Return the answer to a request, from a batch of an earlier process if there is one.

        Faults in earlier batches are not reused: the request may succeed now.
        """
        if self._executor.is_paused:
            raise RunPausedError(PAUSED)
        # One search at a time: two calls would otherwise look for the same batch and keep it twice.
        async with self._finding:
            await self._find_lost()
        key = digest([position, body])[:_KEY]
        while kept_answer := self._kept.get(key):
            batch_id, request = kept_answer.pop(0)
            with self._executor.waiting():
                reply = await self._answer_in(self._batches[batch_id], request)
            if not isinstance(batch_forms.judged(reply), Fault):
                return reply
        answer: asyncio.Future[batch_forms.Outcome] = self._loop.create_future()
        self._pending.append(_Request(key, body, len(batch_forms.encoded(body)) + _FRAME, answer))
        with self._executor.waiting():
            return await answer

    def _know(self, batch: str, requests: Iterable[str]) -> None:
        self._batches[batch] = _Batch(batch)
        for request in requests:
            self._kept.setdefault(request[:_KEY], []).append((batch, request))

    async def _find_lost(self) -> None:
        """Find the batches of an earlier process that died before it recorded their ids."""
        endpoint = self._own
        while self._lost:
            intended = self._lost.pop()
            if batch := await batch_forms.created_batch(
                endpoint.ask, endpoint.form, intended, self._batches.keys()
            ):
                self._executor.keep(endpoint.who, batch, intended)
                self._know(batch, intended.requests)

    async def _answer_in(self, batch: _Batch, request: str) -> batch_forms.Outcome:
        if batch.outcome is not None:
            return batch.outcome(request)
        batch.waiting[request] = self._loop.create_future()
        if not batch.is_followed:
            self._start(self._follow(batch))
        return await batch.waiting[request]

    def _start(self, work: Awaitable[None]) -> None:
        async def working() -> None:
            await work

        event_loop.finish(asyncio.run_coroutine_threadsafe(working(), self._loop))

    def flush(self) -> None:
        """Send the waiting calls, in as many batches as the provider's limits require."""
        form, size = self._own.form, 0
        batch: list[_Request] = []
        pending, self._pending = self._pending, []
        for request in pending:
            # Counting it would send, and pay for, a request that nobody waits for.
            if request.answer.done():  # its call was given up
                continue
            if batch and (len(batch) == form.most or size + request.size > form.longest):
                self._start(self._send(batch))
                batch, size = [], 0
            batch.append(request)
            size += request.size
        if batch:
            self._start(self._send(batch))

    async def _send(self, requests: Sequence[_Request]) -> None:
        # The place keeps equal requests apart: custom ids must be unique within a batch.
        named = {f"{request.key}-{place}": request for place, request in enumerate(requests)}
        waiting = {name: request.answer for name, request in named.items()}
        bodies = {name: request.body for name, request in named.items()}
        batch: _Batch | None = None
        try:
            intended = self._executor.intend(self._own.who, tuple(named))
            batch_id = await self._own.form.create(self._own.ask, bodies, intended.mark)
            batch = _Batch(batch_id, waiting)
            self._executor.keep(self._own.who, batch_id, intended)
        except batch_forms.UnusableError as error:
            # The fault of each request, as if it had been sent alone; retries make the next batch.
            for answer in waiting.values():
                _resolve(answer, error.outcome)
            return
        except PromptgraftError as error:
            _fail(waiting.values(), error)
            # Created but not recorded: no later process could fetch it.
            if batch is not None:
                await self._cancel(batch)
            return
        self._batches[batch.id] = batch
        await self._follow(batch)

    async def _follow(self, batch: _Batch) -> None:
        """Poll a batch until it has results, or until no call waits for them."""
        endpoint, batch.is_followed = self._own, True
        reason = f"the results of batch `{batch.id}` are not there yet"
        self._executor.announce(
            CallWaiting(model=endpoint.model, seconds=endpoint.poll, reason=reason)
        )
        try:
            while waiting := [request for request in batch.waiting.values() if not request.done()]:
                if outcome := await self._outcome(batch):
                    batch.outcome = outcome
                    for name, answer in batch.waiting.items():
                        _resolve(answer, outcome(name))
                    return
                await asyncio.wait(waiting, timeout=endpoint.poll)
                self._woken()  # not every pause wakes its listeners
            if self._executor.gives_up:
                await self._cancel(batch)
        finally:
            batch.is_followed = False

    async def _outcome(self, batch: _Batch) -> Callable[[str], batch_forms.Outcome] | None:
        try:
            outcomes = await self._own.form.results(self._own.ask, batch.id)
        except batch_forms.UnusableError as error:
            outcome, fault = error.outcome, batch_forms.judged(error.outcome)
            return None if isinstance(fault, Fault) and fault.retried else lambda _: outcome
        if outcomes is None:
            return None
        # A transient fault, so that the next batch asks again.
        nothing = NothingReceivedError(f"the results of batch `{batch.id}` have no line for it")
        results = outcomes
        return lambda name: results.get(name, nothing)

    async def _cancel(self, batch: _Batch) -> None:
        try:
            await self._own.ask("POST", f"{self._own.form.path}/{batch.id}/cancel")
        except batch_forms.UnusableError:
            return  # it ends by itself within a day


def _resolve(answer: asyncio.Future[batch_forms.Outcome], outcome: batch_forms.Outcome) -> None:
    if not answer.done():
        answer.set_result(outcome)


def _fail(answers: Iterable[asyncio.Future[batch_forms.Outcome]], error: PromptgraftError) -> None:
    for answer in answers:
        if not answer.done():
            answer.set_exception(error)


class BatchEndpoint(SdkEndpoint):
    """An endpoint for threads of a ``BatchExecutor``: requests are answered in batches.

    Args:
        access: how to reach the provider.
        model: the model; a batch has only one.
        poll: seconds between two checks of a batch.
        seconds: wall time of one request to the batch API.
    """

    def __init__(self, access: Access, *, model: str, poll: float, seconds: float) -> None:
        super().__init__(access, longest=LONGEST_RESULTS)
        self.form: batch_forms.BatchForm = batch_forms.FORMS[access.api.provider](access.api.path)
        self.model = model
        self.poll = poll
        self._seconds = seconds
        # Identifies the batches of this model and host in a journal.
        self.who: str = f"{access.api.provider} {access.host or 'default'} {model}"

    async def ask(
        self, method: str, path: str, *, body: JsonObject | None = None, files: Files | None = None
    ) -> Received:
        """Send one request to the batch API."""
        try:
            return await self.exchange(method, path, body=body, files=files, seconds=self._seconds)
        except NothingReceivedError as error:
            raise batch_forms.UnusableError(error) from None

    async def send(self, body: JsonObject, *, seconds: float) -> Received:
        """Wait for the answer in the results of a batch; the caller limits the ``seconds``."""
        here = seat()
        if here is None:
            raise CallerError("a call of a batch was made outside of a BatchExecutor")
        name = (self.account, self.who)
        gathering = here.executor.gatherer(name, partial(_Gathering, here.executor, self))
        assert isinstance(gathering, _Gathering)  # noqa: S101 - made by the line above
        outcome = await gathering.answer(body, here.position)
        if isinstance(outcome, NothingReceivedError):
            raise outcome
        return outcome
