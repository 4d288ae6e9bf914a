"""OpenTelemetry spans of runs, their steps, rollouts and questions, and model calls.

Needs ``pip install "promptgraft[otel]"``. Has no effect without a tracer provider.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar, Token
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from promptgraft.adapters.base import (
    ModelCalled,
    PromptAsked,
    PromptExecuted,
    Usage,
    adapter_identity,
)
from promptgraft.adapters.calling.access import is_address
from promptgraft.errors import DataFormatError
from promptgraft.ground.environment import check_package
from promptgraft.ground.strict.checks import Kind, Reach, check
from promptgraft.ground.strict.kinds import record_of
from promptgraft.project.adding import Tracker
from promptgraft.prompt.by_role import by_role
from promptgraft.prompt.rendered import PromptRendered
from promptgraft.runtime.session import CallsInFlight, EventBus
from promptgraft.search.events import CandidateAdded, MutationRejected, RunEnded, RunStarted
from promptgraft.search.place import QUESTIONS, Place
from promptgraft.search.round_events import RoundEnded
from promptgraft.targets.types import RolloutRecord

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer, TracerProvider

CONTENT_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The environment variable by which users request prompts and answers in spans."""

_AT_LEAST = "1.30"
_NANOSECONDS = 1_000_000_000
_Plain = str | bool | int | float | Sequence[str]


_ENDPOINT = check(
    "the address of a collector, such as `http://localhost:4318`",
    lambda value: (
        value if isinstance(value, str) and is_address(value) and "@" not in value else None
    ),
    {"type": "string"},
    hidden=True,
    mend="keys for it stand in OTEL_EXPORTER_OTLP_HEADERS",
).reaching(Reach.ADDRESS)


def _check_exporter() -> None:
    package = "opentelemetry-exporter-otlp-proto-http"
    check_package(package, "1.30", extra="otel", what="sending spans")


@attrs.frozen(kw_only=True)
class TelemetryTracker(Tracker):
    """Reports each run as a span, with the spans of its calls below it.

    Attributes:
        endpoint: The OTLP collector; by default, that of the environment or of the instrumented
            process.
        content: Whether the spans contain what was sent and received.
    """

    endpoint: str | None = None
    content: bool | None = None

    @classmethod
    def kind(cls) -> Kind[TelemetryTracker]:
        return record_of(cls, special={"endpoint": _ENDPOINT})

    def check(self) -> None:
        _check_exporter()

    def reported(
        self, bus: EventBus, *, key: str, folder: Path | None
    ) -> contextlib.AbstractContextManager[None]:
        return exported(bus, endpoint=self.endpoint, content=self.content)

    @classmethod
    def joined(cls, bus: EventBus) -> contextlib.AbstractContextManager[None]:
        return traced(bus)


@contextlib.contextmanager
def traced(
    bus: EventBus, *, content: bool | None = None, tracer_provider: TracerProvider | None = None
) -> Iterator[None]:
    """Make spans of the runs that publish to ``bus``, one run at a time.

    The span that is current when a run starts is the parent of the run's span.

    Args:
        bus: the event bus of the runs.
        content: whether spans of calls contain prompts and answers; by default whether the
            environment variable named by :data:`CONTENT_VARIABLE` is ``true``.
        tracer_provider: makes the spans; by default that of the process.

    Raises:
        ConfigError: ``opentelemetry-api`` is missing or too old.
    """
    check_package("opentelemetry-api", _AT_LEAST, extra="otel", what="tracing")
    from opentelemetry import trace

    if content is None:
        content = os.environ.get(CONTENT_VARIABLE, "").strip().lower() == "true"
    tracer = trace.get_tracer("promptgraft", tracer_provider=tracer_provider)
    spans = _Spans(tracer, content)
    stop = bus.subscribe(object, spans.on_event)
    try:
        yield
    finally:
        stop()
        spans.close()


@contextlib.contextmanager
def exported(
    bus: EventBus, *, endpoint: str | None = None, content: bool | None = None
) -> Iterator[None]:
    """Send spans of the runs that publish to ``bus`` over OTLP while the context is open.

    If the process has a tracer provider, that one is used instead.

    Args:
        bus: the event bus of the runs.
        endpoint: the address of the collector; by default that of the environment.
        content: as in :func:`traced`.

    Raises:
        ConfigError: a package is missing or too old.
    """
    _check_exporter()
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # An instrumented process has already said where its spans go.
    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        with traced(bus, content=content):
            yield
        return
    service = os.environ.get("OTEL_SERVICE_NAME") or "promptgraft"
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    address = None if endpoint is None else f"{endpoint.rstrip('/')}/v1/traces"
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=address)))
    try:
        with traced(bus, content=content, tracer_provider=provider):
            yield
    finally:
        # Flushes: a batch processor holds spans back for seconds.
        provider.shutdown()


@attrs.define(eq=False)
class _OpenSpan:
    """An open span, and the end of the latest call inside it, in nanoseconds."""

    span: Span
    ended: int = 0
    reported: set[int] = attrs.field(factory=set)  # the `id` of model calls that have a span
    token: Token[Context] | None = None


# The call of this thread or task; threads that a rollout starts have a copy of its context.
_under_way: ContextVar[_OpenSpan | None] = ContextVar("promptgraft_span", default=None)


class _Spans:
    """The open spans of a run. Its methods run in the threads that publish events."""

    def __init__(self, tracer: Tracer, content: bool) -> None:
        self._tracer = tracer
        self._content = content
        self._lock = threading.Lock()
        self._run: Span | None = None
        self._steps: dict[int, _OpenSpan] = {}

    def on_event(self, event: object) -> None:
        if isinstance(event, PromptAsked):
            self._asked(event)
        elif isinstance(event, CallsInFlight) and event.change > 0:
            self._begin_call(event.position)
        elif isinstance(event, CallsInFlight):
            self._end_call(event)
        elif isinstance(event, RunStarted):
            self._begin_run(event)
        elif isinstance(event, (CandidateAdded, MutationRejected, RoundEnded)):
            self._decided(event)
        elif isinstance(event, RunEnded):
            self._end_run(event)

    def close(self) -> None:
        """End the open spans of an interrupted run."""
        with self._lock:
            self._end_steps()
            if self._run is not None:
                _fail(self._run, "the run was interrupted")
                self._run.end()
                self._run = None

    def _begin_run(self, event: RunStarted) -> None:
        self.close()
        self._run = self._tracer.start_span(f"optimize {event.prompt}")
        attributes: dict[str, _Plain | None] = {
            "promptgraft.run.id": event.run_id,
            "promptgraft.prompt": event.prompt,
            "promptgraft.seed": event.seed,
        }
        _set(self._run, attributes)

    def _end_run(self, event: RunEnded) -> None:
        with self._lock:
            self._end_steps()
            run, self._run = self._run, None
        if run is None:
            return
        total = sum((entry.usage for entry in event.ledger), Usage())
        _set(
            run,
            {
                "promptgraft.stop_reason": event.stop_reason,
                "promptgraft.verdict": event.verdict.value,
                "promptgraft.baseline.score": event.baseline_mean,
                "promptgraft.best.score": event.best_mean,
                "promptgraft.best.candidate": event.best,
                "promptgraft.candidates": event.candidates,
                "promptgraft.steps": event.steps,
                "promptgraft.rollouts": event.rollouts,
                "promptgraft.reflections": event.reflections,
                "promptgraft.cost_usd": None if event.cost is None else float(event.cost),
                "gen_ai.usage.input_tokens": total.input_tokens,
                "gen_ai.usage.output_tokens": total.output_tokens,
            },
        )
        run.end()

    def _begin_call(self, position: str) -> None:
        """Open the span of a rollout or a question. Runs in the thread that makes the call."""
        from opentelemetry import context, trace

        place = Place.of_rollout(position)
        question = None if place is not None else _question(position)
        step = (place or question or Place.of_step(0)).step
        name = question.phase.value if question is not None else "rollout"
        with self._lock:
            above = self._step(step).span if step else self._run
        attributes = {"promptgraft.position": position} if position else {}
        inside = None if above is None else trace.set_span_in_context(above)
        opened = _OpenSpan(self._tracer.start_span(name, context=inside, attributes=attributes))
        # Attached, so that spans of instrumented clients inside the call hang below it.
        opened.token = context.attach(trace.set_span_in_context(opened.span))
        _under_way.set(opened)

    def _step(self, number: int) -> _OpenSpan:
        from opentelemetry import trace

        if number not in self._steps:
            inside = None if self._run is None else trace.set_span_in_context(self._run)
            attributes = {"promptgraft.step": number}
            span = self._tracer.start_span(f"step {number}", context=inside, attributes=attributes)
            self._steps[number] = _OpenSpan(span)
        return self._steps[number]

    def _end_call(self, event: CallsInFlight) -> None:
        from opentelemetry import context

        opened = _under_way.get()
        if opened is None or opened.token is None:
            return
        _under_way.set(None)
        context.detach(opened.token)
        outcome = event.outcome
        if isinstance(outcome, RolloutRecord):
            attributes = {
                "promptgraft.example": outcome.example_id,
                "promptgraft.score": outcome.score,
            }
            _set(opened.span, attributes)
            if outcome.fault:
                # A fault may quote the answer, which is content.
                _fail(opened.span, outcome.fault if self._content else "no answer could be used")
        elif outcome is None:
            _fail(opened.span, "the call raised")
        now = time.time_ns()
        opened.span.end(end_time=now)
        place = Place.of_rollout(event.position) or _question(event.position)
        with self._lock:
            if place is not None and place.step in self._steps:
                self._steps[place.step].ended = now

    def _decided(self, event: CandidateAdded | MutationRejected | RoundEnded) -> None:
        """Record the outcome of a step, and end all steps before it."""
        with self._lock:
            if (step := self._steps.get(event.step)) is not None:
                _set(step.span, _decision(event))
            self._end_steps(before=event.step)

    def _end_steps(self, *, before: int | None = None) -> None:
        for number in sorted(self._steps):
            if before is None or number < before:
                step = self._steps.pop(number)
                # Its last call, which is before the event that closes the step.
                step.span.end(end_time=step.ended or None)

    def _asked(self, prompt_asked: PromptAsked) -> None:
        """Add a span for each model call; the calls are laid end to end up to now."""
        calls = [event for event in prompt_asked.events if isinstance(event, ModelCalled)]
        if (above := _under_way.get()) is not None:
            # An adapter that wraps others reports calls that these have already reported.
            calls = [call for call in calls if id(call) not in above.reported]
            above.reported |= {id(call) for call in calls}
        ended = time.time_ns() - round(sum(call.seconds for call in calls) * _NANOSECONDS)
        for number, call in enumerate(calls, start=1):
            began, ended = ended, ended + round(call.seconds * _NANOSECONDS)
            last = number == len(calls)
            self._add_call(prompt_asked, call, began=began, ended=ended, last=last)

    def _add_call(
        self, prompt_asked: PromptAsked, call: ModelCalled, *, began: int, ended: int, last: bool
    ) -> None:
        from opentelemetry.trace import SpanKind

        answers = [event for event in prompt_asked.events if isinstance(event, PromptExecuted)]
        attributes: dict[str, _Plain | None] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": adapter_identity(prompt_asked.adapter).partition("/")[0],
            "gen_ai.request.model": call.model,
            "gen_ai.usage.input_tokens": call.usage.input_tokens,
            "gen_ai.usage.output_tokens": call.usage.output_tokens,
            "gen_ai.usage.cache_read.input_tokens": call.usage.cached_tokens or None,
            "promptgraft.requests": call.requests,
            "promptgraft.cost_usd": None if call.cost is None else float(call.cost),
        }
        if last and answers:
            attributes["gen_ai.response.finish_reasons"] = [answers[-1].response.finish_reason]
        # Only the last call: the events do not say which text belongs to an earlier one.
        if last and self._content:
            attributes |= _content(prompt_asked.events)
        span = self._tracer.start_span(f"chat {call.model}", kind=SpanKind.CLIENT, start_time=began)
        _set(span, attributes)
        if call.fault or not answers:
            _set(span, {"error.type": "no_answer"})
            _fail(span, call.fault or "no answer")
        span.end(end_time=ended)


def _question(position: str) -> Place | None:
    """Return the place of a question; None for other positions."""
    try:
        place = Place.parse(position)
    except DataFormatError:
        return None
    return place if place.phase in QUESTIONS else None


def _decision(event: CandidateAdded | MutationRejected | RoundEnded) -> dict[str, _Plain | None]:
    if isinstance(event, CandidateAdded):
        return {
            "promptgraft.step.outcome": "accepted",
            "promptgraft.candidate": event.candidate,
            "promptgraft.score": event.mean,
        }
    if isinstance(event, MutationRejected):
        return {"promptgraft.step.outcome": f"rejected: {event.reason.value}"}
    return {"promptgraft.step.outcome": event.decided.value}


def _content(events: Sequence[object]) -> dict[str, _Plain | None]:
    """Return prompts and answers in the form of the GenAI semantic conventions."""
    attributes: dict[str, _Plain | None] = {}
    for event in events:
        if isinstance(event, PromptRendered):
            content = by_role(event.prompt, say_format=False)
            attributes["gen_ai.input.messages"] = _messages("user", content.user)
            if content.system:
                parts = [{"type": "text", "content": content.system}]
                attributes["gen_ai.system_instructions"] = json.dumps(parts, ensure_ascii=False)
        elif isinstance(event, PromptExecuted):
            reason = event.response.finish_reason
            attributes["gen_ai.output.messages"] = _messages(
                "assistant", event.response.text, finish_reason=reason
            )
    return attributes


def _messages(role: str, text: str, **further: str) -> str:
    message = {"role": role, "parts": [{"type": "text", "content": text}], **further}
    return json.dumps([message], ensure_ascii=False)


def _set(span: Span, attributes: Mapping[str, _Plain | None]) -> None:
    span.set_attributes({name: value for name, value in attributes.items() if value is not None})


def _fail(span: Span, why: str) -> None:
    from opentelemetry.trace import StatusCode

    span.set_status(StatusCode.ERROR, why)
