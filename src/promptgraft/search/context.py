"""What an optimizer is given, and what all of them share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Executor
from copy import copy
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

import attrs

from promptgraft.adapters.base import ProviderAdapter, adapter_identity, check_adapter
from promptgraft.clock import Clock
from promptgraft.errors import ConfigError
from promptgraft.journal.base import Journal
from promptgraft.overrides.store import DEFAULT_TAG, PromptOverridesStore
from promptgraft.parts.validation import check_tag
from promptgraft.prompt.template import Prompt, PromptTemplate
from promptgraft.runtime import event_loop
from promptgraft.runtime.deadline import Cancellation, Deadline, StopFileCancellation
from promptgraft.runtime.session import EventBus, SessionProtocol
from promptgraft.search.teacher import Teacher
from promptgraft.serde import shown
from promptgraft.strict.checks import instance
from promptgraft.targets.base import Subject, Target
from promptgraft.targets.prompts import Improvable, PromptSet

ResultT = TypeVar("ResultT")


_KINDS = (
    ("event_bus", EventBus),
    ("deadline", Deadline),
    ("cancellation", Cancellation),
    ("pause", Cancellation),
    ("executor", Executor),
    ("journal", Journal),
    ("teacher", Teacher),
)


class PersistenceScope(StrEnum):
    """Where a winner goes.

    ``GLOBAL``: into the context's override store. ``SESSION``: only into the session given
    to ``optimize``, as a ``PromptOverride`` event; refused without a session.
    """

    GLOBAL = "global"
    SESSION = "session"


@attrs.frozen
class OptimizationContext:
    """The surroundings of a run.

    Attributes:
        adapter: answers the prompts that are optimized; None when the subject of the run brings
            an adapter, as ``Texts`` does, or is a target, which answers itself.
        overrides_store: what is in force now, and where the winner goes. Without one, what a
            prompt's own store holds is in force, and the winner is only in the result.
        overrides_tag: the tag for both.
        reflection_adapter: proposes new texts; ``adapter`` does when it is None. Called from
            several threads when there is an executor.
        event_bus: gets every event of the run.
        deadline: when the run stops.
        cancellation: stops the run when it is set, from any thread; what is in flight is ended.
        pause: pauses the run when it is set, from any thread: what is in flight is finished,
            and the run ends as *paused* after its step. With its journal it can be resumed.
        executor: runs rollouts side by side; None runs them in turn. The result does not
            depend on it.
        journal: keeps every answer, so that the run can be resumed; None keeps nothing.
        reuse_scores: lets a run be resumed after its functions were changed, such as the feedback
            function: the answers in the journal keep the scores that they have.
        teacher: answers the cases that have no ``expected``, once, before the first rollout.
    """

    adapter: ProviderAdapter | None = None
    overrides_store: PromptOverridesStore | None = attrs.field(default=None, kw_only=True)
    overrides_tag: str = attrs.field(default=DEFAULT_TAG, kw_only=True)
    reflection_adapter: ProviderAdapter | None = attrs.field(default=None, kw_only=True)
    event_bus: EventBus | None = attrs.field(default=None, kw_only=True)
    deadline: Deadline | None = attrs.field(default=None, kw_only=True)
    cancellation: Cancellation | None = attrs.field(default=None, kw_only=True)
    pause: Cancellation | None = attrs.field(default=None, kw_only=True)
    executor: Executor | None = attrs.field(default=None, kw_only=True)
    journal: Journal | None = attrs.field(default=None, kw_only=True)
    reuse_scores: bool = attrs.field(default=False, kw_only=True)
    teacher: Teacher | None = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_tag(self.overrides_tag)
        for name in ("adapter", "reflection_adapter"):
            if getattr(self, name) is not None:
                check_adapter(getattr(self, name), name)
        for name, kind in _KINDS:
            instance(kind).or_none.hold(name, getattr(self, name))
        store = self.overrides_store
        if store is not None and not callable(getattr(store, "resolve", None)):
            raise ConfigError(
                f"overrides_store: expected a store of overrides, found {shown(store)}"
            )

    def around(self, subject: Improvable) -> OptimizationContext:
        """Return these surroundings for ``subject``: one that brings its adapter is answered by it.

        An adapter of the surroundings then only proposes new texts, as it does for a target.

        Raises:
            ConfigError: there is nothing that proposes new texts, or ``subject`` is nothing that
                can be improved.
        """
        given: object = subject
        if isinstance(given, PromptTemplate):
            raise ConfigError(
                f"prompt: expected a Prompt, found the template `{given.ns}/{given.key}`; "
                "write Prompt(template)"
            )
        if not isinstance(given, (Prompt, PromptSet, Subject, Target)):
            raise ConfigError(
                "prompt: expected a Prompt, Texts, Prompts, a Graph or a target of your own, found "
                f"{shown(subject)}"
            )
        if isinstance(subject, (Prompt, PromptSet)):
            return self
        if isinstance(subject, Target):
            adapter, answers = None, subject.identity.name
        else:
            adapter, answers = subject.adapter, adapter_identity(subject.adapter)
        proposing = self.reflection_adapter or self.adapter
        if proposing is None:
            raise ConfigError(
                "reflection_adapter: expected a model that proposes new texts, found None; "
                f"`{answers}` only answers"
            )
        return attrs.evolve(self, adapter=adapter, reflection_adapter=proposing)

    @property
    def task_adapter(self) -> ProviderAdapter:
        """What answers the prompt that is optimized.

        Raises:
            ConfigError: there is none.
        """
        if self.adapter is None:
            raise ConfigError(
                "adapter: expected what answers the prompt, found None; give the "
                "OptimizationContext an adapter"
            )
        return self.adapter

    @property
    def proposing_adapter(self) -> ProviderAdapter:
        """What proposes new texts.

        Raises:
            ConfigError: as :attr:`task_adapter`.
        """
        return self.reflection_adapter or self.task_adapter

    @property
    def clock(self) -> Clock:
        """What the run takes the time from: the deadline's clock, or this machine's."""
        return (self.deadline or Deadline()).clock

    @property
    def present_cancellation(self) -> Cancellation | None:
        """What cancels the run: ``cancellation``, or that of the deadline."""
        return self.cancellation or (self.deadline or Deadline()).cancellation

    def run_deadline(
        self, timeout: float | None, *, stop_files: Sequence[Path] = ()
    ) -> Deadline | None:
        """Return when a run ends that begins now and may take ``timeout`` seconds.

        Any of ``stop_files`` ends it too, as soon as it is there.
        """
        base = self.deadline or Deadline()
        expires_at = base.expires_at
        if timeout is not None:
            expires_at = min(expires_at, base.clock.monotonic() + timeout)
        cancellation = self.present_cancellation
        if stop_files:
            cancellation = StopFileCancellation(stop_files, cancellation)
        if expires_at == math.inf and cancellation is None:
            return None
        return Deadline(clock=base.clock, expires_at=expires_at, cancellation=cancellation)


class BasePromptOptimizer(ABC, Generic[ResultT]):
    """An algorithm that improves a prompt, or a subject that brings its own adapter."""

    def __init__(self, context: OptimizationContext) -> None:
        instance(OptimizationContext).hold("context", context)
        self._context = context

    @abstractmethod
    def optimize(self, prompt: Improvable, *, session: SessionProtocol | None = None) -> ResultT:
        """Improve ``prompt`` and return what was found; events go to ``session`` too."""

    async def aoptimize(
        self, prompt: Improvable, *, session: SessionProtocol | None = None
    ) -> ResultT:
        """Improve ``prompt`` as :meth:`optimize` does, without blocking the running loop.

        The running loop is the one in which ``async`` adapters, feedback functions and metrics
        of the run are called, so clients that were made in it work. Everything else of the run,
        handlers of the event bus included, is called in other threads.

        When the task is cancelled, the run is cancelled: what is in flight is ended, what was
        answered is recorded, and then ``CancelledError`` is raised.
        """
        stop = Cancellation(self._context.present_cancellation)
        optimizer = copy(self)
        optimizer._context = attrs.evolve(self._context, cancellation=stop)  # noqa: SLF001
        return await event_loop.beside(
            partial(optimizer.optimize, prompt, session=session), stop=stop
        )
