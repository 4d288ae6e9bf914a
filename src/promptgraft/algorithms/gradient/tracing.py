"""Tracing failures back along the steps of rollouts to the parts that led to them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import attrs
from msgspec.structs import replace

from promptgraft.algorithms.gradient import stages
from promptgraft.algorithms.gradient.inquiries import Blames, Inquiries, Inquiry, read_blame
from promptgraft.algorithms.gradient.prompts import BlameParams, QuestionKey
from promptgraft.evals.spending import Role
from promptgraft.evals.types import Step
from promptgraft.ground.serde import digest_text
from promptgraft.ground.text import clip, fenced
from promptgraft.search.asks import Asking, Together
from promptgraft.search.events import Emit
from promptgraft.search.place import named
from promptgraft.search.round_events import (
    Blame,
    Loss,
    Problem,
    QuestionUnanswered,
    Severity,
    StepBlamed,
)
from promptgraft.targets.base import Target
from promptgraft.targets.formatting import fenced_part, in_one_line
from promptgraft.targets.part import beside
from promptgraft.targets.types import Candidate, Module, RolloutRecord

_MAX_STEP_CHARS = 6_000
_MAX_STEP_OF_TRACE_CHARS, _MAX_STEP_ALONE_CHARS = 2_000, 12_000


Failure = tuple[RolloutRecord, tuple[Loss, ...]]
"""A rollout that failed, and its losses."""


@attrs.frozen(kw_only=True)
class Gradient:
    """The blame of one failure on one part."""

    case: str
    module: Module
    severity: Severity
    text: str

    @property
    def problem(self) -> Problem:
        """The same without its case and its part."""
        return Problem(severity=self.severity, text=self.text)


@attrs.frozen(kw_only=True)
class _Signal:
    """A problem that was passed to a step, by a metric or by a later step."""

    severity: Severity
    source: str
    text: str


@attrs.define(kw_only=True)
class _Trace:
    """The steps of one failure, and the problems passed to each of them so far."""

    case: str
    steps: Mapping[str, Step]
    heights: Mapping[str, int]
    incoming: dict[str, list[_Signal]] = attrs.field(factory=lambda: defaultdict(list))

    def before(self, step: Step) -> list[Step]:
        return [self.steps[earlier] for earlier in step.after if earlier in self.steps]


_Asked = tuple[_Trace, StepBlamed, Inquiry[Blames]]
"""A question about a trace, with the event that its reply completes."""


@attrs.frozen(kw_only=True)
class Tracer:
    """Finds out which parts led to failures.

    Attributes:
        target: the target whose parts may be blamed.
        inquiries: asks questions.
        emit: receives events.
        by_trace: whether to ask about all steps of a failure at once, rather than one by one.
        backward: blames parts in place of the questions; None for the questions.
    """

    target: Target
    inquiries: Inquiries
    emit: Emit
    by_trace: bool
    backward: stages.Backward | None = None

    def trace(
        self, number: int, candidate: Candidate, failures: Sequence[Failure]
    ) -> Asking[list[Gradient]]:
        """Return the gradients of the failures of a round."""
        all_parts = _Parts(self.target, candidate)
        traces = [_trace_of(failure, all_parts) for failure in failures]
        if self.backward is not None:
            return (yield from self._by_stage(number, failures, traces, all_parts))
        if self.by_trace:
            inquiries = [_trace_inquiry(number, trace, all_parts) for trace in traces]
            blames = [StepBlamed(step=number, case=trace.case) for trace in traces]
            return (
                yield from self._ask(list(zip(traces, blames, inquiries, strict=True)), all_parts)
            )
        gradients: list[Gradient] = []
        # From the ends: a step is asked about once all later ones have passed problems back.
        for wave in range(1 + max((max(trace.heights.values()) for trace in traces), default=-1)):
            waiting = [
                (trace, step)
                for trace in traces
                for step in trace.steps.values()
                if trace.heights[step.id] == wave and step.id in trace.incoming
            ]
            gradients += yield from self._ask_wave(number, waiting, all_parts)
        return gradients

    def _by_stage(
        self, number: int, failures: Sequence[Failure], traces: Sequence[_Trace], parts: _Parts
    ) -> Asking[list[Gradient]]:
        """Return the gradients by the user's own stage."""
        requests = []
        for (_, losses), trace in zip(failures, traces, strict=True):
            applied = {name for step in trace.steps.values() for name in parts.of(step)}
            requests.append(
                stages.BackwardRequest(
                    position=f"round/{number}/backward/{named(trace.case)}",
                    case=trace.case,
                    losses=losses,
                    steps=tuple(trace.steps.values()),
                    texts={name: text for name, text in parts.texts.items() if name in applied},
                )
            )
        results = yield from Together(
            [stages.staged("backward", self.backward, request) for request in requests]
        )
        gradients: list[Gradient] = []
        for request, result in zip(requests, results, strict=True):
            blames = stages.results_of(Blame, result, name="backward", position=request.position)
            stages.check_blames(blames, request)
            self.emit(StepBlamed(step=number, case=request.case, blamed=blames))
            gradients += _gradients(request.case, blames, parts)
        return gradients

    def _ask_wave(
        self, number: int, waiting: Sequence[tuple[_Trace, Step]], parts: _Parts
    ) -> Asking[list[Gradient]]:
        """Ask about steps of all cases in parallel, and pass problems back to preceding steps."""
        questions: list[_Asked] = []
        for trace, step in waiting:
            before = trace.before(step)
            if not parts.of(step) and len(before) == 1:
                # It has no text to blame, so the problem belongs to the only preceding step.
                trace.incoming[before[0].id] += trace.incoming[step.id]
            elif parts.of(step) or before:
                blame = StepBlamed(step=number, case=trace.case, at=step.id, node=step.node)
                inquiry = _step_inquiry(f"round/{number}", trace, step, parts)
                questions.append((trace, blame, inquiry))
        return (yield from self._ask(questions, parts))

    def _ask(self, inquiries: Sequence[_Asked], parts: _Parts) -> Asking[list[Gradient]]:
        outcomes = yield from self.inquiries.ask([inquiry for _, _, inquiry in inquiries])
        gradients: list[Gradient] = []
        for (trace, blame, inquiry), outcome in zip(inquiries, outcomes, strict=True):
            if outcome.found is None:
                place, detail = inquiry.positions[0], outcome.refusals[-1].error.detail
                self.emit(QuestionUnanswered(step=blame.step, position=place, detail=detail))
                continue
            blamed, handed_on = outcome.found
            self.emit(replace(blame, blamed=blamed, handed_on=handed_on))
            for handed_signal in handed_on:
                source = f"step {blame.node}"
                signal = _Signal(
                    severity=handed_signal.severity, source=source, text=handed_signal.text
                )
                trace.incoming[handed_signal.to].append(signal)
            gradients += _gradients(trace.case, blamed, parts)
        return gradients


def _gradients(case: str, blames: Sequence[Blame], parts: _Parts) -> list[Gradient]:
    return [
        Gradient(
            case=case, module=parts.modules[blame.to], severity=blame.severity, text=blame.text
        )
        for blame in blames
    ]


class _Parts:
    """The parts of a candidate as questions show them."""

    def __init__(self, target: Target, candidate: Candidate) -> None:
        self.node = target.identity.name
        # A part that is still to be added has led to no failure.
        self.modules = {module.name: module for module in target.modules if not module.is_new}
        self._described = {
            name: target.describe(module, candidate) for name, module in self.modules.items()
        }
        self.texts = {name: description.text for name, description in self._described.items()}

    def of(self, step: Step) -> list[str]:
        """Return the parts of a step that may change."""
        return [name for name in self.modules if name in step.parts]

    def show(self, handles: Mapping[str, str], *, digested: bool = False) -> tuple[str, str]:
        """Return the texts of the parts with handles, and the other texts."""
        described = [self._described[name] for name in handles.values()]
        if digested:
            described = [description.as_digested for description in described]
        shown_parts = "\n\n".join(
            f"**{handle}:** {in_one_line(part.name)}\n\n"
            f"{fenced_part(part.written.text or part.text)}"
            for handle, part in zip(handles, described, strict=True)
        )
        return shown_parts, _shown_texts(beside(described))

    def formerly_beside(self, names: Sequence[str]) -> str:
        """Return the other texts as questions on graphs once showed them, without their nodes."""
        texts_beside = {
            name: text
            for part in names
            for name, text in self._described[part].neighbours
            if name not in names
        }
        return _shown_texts(texts_beside.items())


def _handles(names: Iterable[str]) -> dict[str, str]:
    return {f"T{number}": name for number, name in enumerate(names, start=1)}


def _shown_texts(texts: Iterable[tuple[str, str]]) -> str:
    return "\n\n".join(f"{in_one_line(name)}:\n\n{fenced_part(text)}" for name, text in texts)


def _trace_of(failure: Failure, parts: _Parts) -> _Trace:
    """Return the steps of a failure, with its losses as problems of the steps where they enter.

    A loss enters at the last step of the judged node, or else at every step that none follows.
    """
    record, losses = failure
    steps = {step.id: step for step in record.steps or (_only_step(record, parts),)}
    trace = _Trace(case=record.example_id, steps=steps, heights=_heights(steps))
    ends = [step for step, height in trace.heights.items() if height == 0]
    for loss in losses:
        source = f"metric {loss.metric}" if loss.metric else "the judgement"
        signal = _Signal(severity=loss.severity, source=source, text=loss.reason)
        judged = [step.id for step in steps.values() if loss.node and step.node == loss.node]
        for step in judged[-1:] or ends:
            trace.incoming[step].append(signal)
    return trace


def _only_step(record: RolloutRecord, parts: _Parts) -> Step:
    """Return the rollout of a target without steps as a single step."""
    hidden = [name for name, module in parts.modules.items() if module.owner in record.hidden]
    return Step(
        id="1",
        node=parts.node,
        kind="prompt",
        input=record.inputs_repr,
        output="\n\n".join(filter(None, (record.tool_trace_repr, record.output_repr))),
        error=record.fault,
        parts={name: digest_text(text) for name, text in parts.texts.items() if name not in hidden},
    )


def _heights(steps: Mapping[str, Step]) -> dict[str, int]:
    """Return the length of the longest chain of steps after each one; 0 if none follows."""
    heights = dict.fromkeys(steps, 0)
    # Steps are in the order of the flow, so later steps come after the ones they depend on.
    for step in reversed(list(steps.values())):
        for before in step.after:
            if before in heights:
                heights[before] = max(heights[before], heights[step.id] + 1)
    return heights


def _step_inquiry(where: str, trace: _Trace, step: Step, all_parts: _Parts) -> Inquiry[Blames]:
    handles = _handles(all_parts.of(step))
    parts, neighbours = all_parts.show(handles, digested=True)
    earlier = {
        f"S{number}": earlier_step
        for number, earlier_step in enumerate(trace.before(step), start=1)
    }
    position = f"{where}/backward/{named(trace.case)}/{step.id}"
    digested = BlameParams(
        steps=_shown_step(step, _MAX_STEP_CHARS),
        parts=parts,
        others=neighbours,
        before="\n\n".join(
            f"**{handle}:** {in_one_line(step.node)}\n\n"
            f"{fenced(clip(step.error or step.output, _MAX_STEP_CHARS))}"
            for handle, step in earlier.items()
        ),
        losses=_shown_signals(trace.incoming[step.id]),
    )
    parts, neighbours = all_parts.show(handles)
    return Inquiry(
        positions=(position, f"{position}/repair"),
        key=QuestionKey.STEP,
        params=attrs.evolve(digested, parts=parts, others=neighbours),
        digested=digested,
        role=Role.BACKWARD,
        read=partial(
            read_blame, parts=handles, before={handle: step.id for handle, step in earlier.items()}
        ),
    )


def _trace_inquiry(number: int, trace: _Trace, all_parts: _Parts) -> Inquiry[Blames]:
    applied = {name for step in trace.steps.values() for name in all_parts.of(step)}
    handles = _handles(name for name in all_parts.modules if name in applied)
    parts, neighbours = all_parts.show(handles, digested=True)
    by_name = {name: handle for handle, name in handles.items()}
    shown_steps: list[str] = []
    former_steps: list[str] = []
    first_with: dict[str, str] = {}
    for step in trace.steps.values():
        texts = ", ".join(by_name[name] for name in all_parts.of(step)) or "none that may change"
        after = ", ".join(step.after) or "nothing"
        head = f"### Step {step.id}\n\n**After:** {after}\n**Texts:** {texts}\n"
        twin = first_with.get(step.input, "")
        shown_steps.append(head + _shown_step(step, _MAX_STEP_OF_TRACE_CHARS, twin))
        former_steps.append(head + _shown_step(step, _MAX_STEP_OF_TRACE_CHARS))
        first_with.setdefault(step.input, step.id)
    # A loss that enters at several steps is shown once.
    signals = {
        signal: None for signals_of_step in trace.incoming.values() for signal in signals_of_step
    }
    position = f"round/{number}/backward/{named(trace.case)}"
    digested = BlameParams(
        steps="\n\n".join(shown_steps),
        parts=parts,
        others=neighbours,
        losses=_shown_signals(list(signals)),
    )
    former = attrs.evolve(
        digested,
        steps="\n\n".join(former_steps),
        others=all_parts.formerly_beside([*handles.values()]),
    )
    parts, neighbours = all_parts.show(handles)
    params = attrs.evolve(digested, parts=parts, others=neighbours)
    if len(trace.steps) == 1:
        # Alone, a step has room for all that is known of it. The digest stays that of the short
        # form, which journals of earlier versions have.
        [step] = trace.steps.values()
        brief = _shown_step(step, _MAX_STEP_OF_TRACE_CHARS)
        whole = params.steps.replace(brief, _shown_step(step, _MAX_STEP_ALONE_CHARS))
        params = attrs.evolve(params, steps=whole)
    return Inquiry(
        positions=(position, f"{position}/repair"),
        key=QuestionKey.TRACE,
        params=params,
        role=Role.BACKWARD,
        read=partial(read_blame, parts=handles, before=None),
        digested=digested,
        former=former,
    )


def _shown_step(step: Step, limit: int, twin: str = "") -> str:
    """Return a step as a question shows it; ``twin`` is an earlier one with the same input."""
    input_shown = f" as of step {twin}" if twin else f"\n\n{fenced(clip(step.input, limit))}"
    lines = [
        f"**Node:** {in_one_line(step.node)}, {in_one_line(step.kind)}",
        f"**Input:**{input_shown}",
        f"**Output:**\n\n{fenced(clip(step.output, limit))}",
    ]
    if step.tools:
        lines.append(f"**Tools:**\n\n{fenced(clip(chr(10).join(step.tools), limit))}")
    if step.error:
        lines.append(f"**Error:**\n\n{fenced(clip(step.error, limit))}")
    return "\n\n".join(lines)


def _shown_signals(signals: Sequence[_Signal]) -> str:
    ordered = sorted(signals, key=lambda one: one.severity)
    return "\n\n".join(
        f"**{signal.severity}:** from {in_one_line(signal.source)}\n\n"
        f"{fenced(clip(signal.text, _MAX_STEP_CHARS))}"
        for signal in ordered
    )
