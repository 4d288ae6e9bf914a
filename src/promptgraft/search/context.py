"""The context of a run, and the base class of optimizers."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Executor
from copy import copy
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

import attrs

from promptgraft.adapters.base import ProviderAdapter, adapter_identity, check_adapter
from promptgraft.errors import ConfigError
from promptgraft.ground.clock import Clock
from promptgraft.ground.serde import shown
from promptgraft.ground.strict.checks import instance
from promptgraft.journal.base import Journal
from promptgraft.overrides.parts.validation import check_store, check_tag
from promptgraft.overrides.store import DEFAULT_TAG, PromptOverridesStore
from promptgraft.prompt.template import Prompt, PromptTemplate
from promptgraft.runtime import event_loop
from promptgraft.runtime.deadline import Cancellation, Deadline, StopFileCancellation
from promptgraft.runtime.session import EventBus, SessionProtocol
from promptgraft.search.teacher import Teacher
from promptgraft.targets.base import Subject, Target
from promptgraft.targets.prompts import Improvable, PromptSet

AnswerT = TypeVar("AnswerT")
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


@attrs.frozen
class OptimizationContext:
    """The context of a run: models, stores, events, limits.

    Attributes:
        adapter: answers the prompts that are optimized; None if the subject of the run has an
            adapter, as ``Texts`` does, or is a target, which answers itself.
        overrides_store: holds the overrides in force, and receives the winner. Without one, the
            overrides of a prompt's own store are in force, and the winner is only in the result.
        overrides_tag: the tag for both.
        reflection_adapter: proposes new texts; None for ``adapter``. Called from several threads
            if there is an executor.
        event_bus: receives every event of the run.
        deadline: when the run stops.
        cancellation: stops the run when set, from any thread; calls in flight are ended.
        pause: pauses the run when set, from any thread: calls in flight are finished, and the run
            ends as *paused* after its step. It can be resumed with its journal.
        executor: makes rollouts in parallel; with None, one at a time. The result does not depend
            on it.
        journal: keeps every answer, so that the run can be resumed; None keeps nothing.
        reuse_scores: allows a run to be resumed after its functions were changed, such as the
            feedback function: answers in the journal keep their scores.
        teacher: answers the cases that have no ``expected``, once, before the first rollout.
        remember_looks: whether it is remembered beside the store which held-out cases have judged
            the run.
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
    remember_looks: bool = attrs.field(default=True, kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_tag(self.overrides_tag)
        for name in ("adapter", "reflection_adapter"):
            if getattr(self, name) is not None:
                check_adapter(getattr(self, name), name)
        for name, kind in _KINDS:
            instance(kind).or_none.hold(name, getattr(self, name))
        if self.cancellation is not None and self.deadline and self.deadline.cancellation:
            raise ConfigError(
                "cancellation: the deadline has a cancellation already; give it "
                "`Cancellation(parent)` with the other one as its parent"
            )
        if self.overrides_store is not None:
            check_store(self.overrides_store)

    def around(self, subject: Improvable) -> OptimizationContext:
        """Return the context for ``subject``, with the subject's own adapter if it has one.

        The context's adapter then only proposes new texts, as it does for a target.

        Raises:
            ConfigError: no adapter can propose new texts, or ``subject`` cannot be improved.
        """
        subject_object: object = subject
        if isinstance(subject_object, PromptTemplate):
            raise ConfigError(
                f"prompt: expected a Prompt, found the template "
                f"`{subject_object.ns}/{subject_object.key}`; write Prompt(template)"
            )
        if not isinstance(subject_object, (Prompt, PromptSet, Subject, Target)):
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
        """The adapter that answers the prompt.

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
        """The adapter that proposes new texts.

        Raises:
            ConfigError: there is none.
        """
        return self.reflection_adapter or self.task_adapter

    @property
    def clock(self) -> Clock:
        """The clock of the run: that of the deadline, or the machine's."""
        return (self.deadline or Deadline()).clock

    @property
    def present_cancellation(self) -> Cancellation | None:
        """The cancellation of the run: ``cancellation``, or that of the deadline."""
        return self.cancellation or (self.deadline or Deadline()).cancellation

    def run_deadline(
        self, timeout: float | None, *, stop_files: Sequence[Path] = ()
    ) -> Deadline | None:
        """Return the deadline of a run that begins now and may take ``timeout`` seconds.

        Any of ``stop_files`` ends the run as soon as it exists.
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


class BasePromptOptimizer(ABC, Generic[AnswerT, ResultT]):
    """An algorithm that improves prompts with answers of a type, or subjects with an adapter."""

    def __init__(self, context: OptimizationContext) -> None:
        instance(OptimizationContext).hold("context", context)
        self._context = context

    @abstractmethod
    def optimize(self, prompt: Improvable, *, session: SessionProtocol | None = None) -> ResultT:
        """Improve ``prompt`` and return the result; events go to ``session`` too."""

    async def aoptimize(
        self, prompt: Improvable, *, session: SessionProtocol | None = None
    ) -> ResultT:
        """Improve ``prompt`` as :meth:`optimize` does, without blocking the running loop.

        The ``async`` adapters, feedback functions and metrics of the run are called in the running
        loop, so clients created in it work. Everything else, including handlers of the event bus,
        is called in other threads.

        When the task is cancelled, so is the run: calls in flight are ended, answers so far are
        recorded, and then ``CancelledError`` is raised.
        """
        stop = Cancellation(self._context.present_cancellation)
        # A copy: subclasses have other constructors, and the caller may run the optimizer again.
        optimizer = copy(self)
        deadline = self._context.deadline
        optimizer._context = attrs.evolve(  # noqa: SLF001
            self._context,
            deadline=deadline and attrs.evolve(deadline, cancellation=None),
            cancellation=stop,
        )
        return await event_loop.beside(
            partial(optimizer.optimize, prompt, session=session), stop=stop
        )
