"""Rollouts of prompts: one example, evaluated and judged in a session of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, Protocol, runtime_checkable

import attrs

from promptgraft import errors
from promptgraft.adapters.base import (
    PromptExecuted,
    PromptResponse,
    ProviderAdapter,
    adapter_identity,
    evaluated,
)
from promptgraft.evals.causes import compares_expected
from promptgraft.evals.metrics.base import is_hidden
from promptgraft.evals.metrics.judging import feedback_text
from promptgraft.evals.spending import AbandonedRolloutError, Role, Spending, spent_on
from promptgraft.evals.types import Case, Step, Verdict
from promptgraft.ground.frozenmap import isolated
from promptgraft.ground.functions import raised_at
from promptgraft.ground.serde import shown
from promptgraft.ground.under_way import doing
from promptgraft.overrides.base_store import InMemoryPromptOverridesStore
from promptgraft.overrides.parts.descriptors import PromptDescriptor, section_part, summary_part
from promptgraft.overrides.types import PromptOverride
from promptgraft.prompt.rendered import PromptRendered, RenderedPrompt
from promptgraft.prompt.template import Prompt
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.event_loop import awaited
from promptgraft.runtime.session import Session, Watch
from promptgraft.targets.formatting import (
    default_example_formatter,
    default_trace_formatter,
    expected_text,
)
from promptgraft.targets.judging import metrics_of
from promptgraft.targets.part import named_in
from promptgraft.targets.types import (
    Candidate,
    ExampleFormatter,
    FeedbackFn,
    GepaExample,
    RolloutFeedback,
    RolloutRecord,
    TraceFormatter,
)

OnError = Literal["unscored", "zero"]

_CACHED_PROMPTS = 64  # candidates


@attrs.frozen(kw_only=True)
class Scoring:
    """How rollouts are judged and shown.

    Attributes:
        feedback_fn: the user's.
        example_formatter: shows input and answer.
        trace_formatter: shows what happened.
        max_example_chars: how much of another part of the prompt is shown.
        on_error: how a rollout counts if its provider fails.
    """

    feedback_fn: FeedbackFn
    example_formatter: ExampleFormatter = default_example_formatter
    trace_formatter: TraceFormatter = default_trace_formatter
    max_example_chars: int
    on_error: OnError = "unscored"


@attrs.frozen
class FeedbackStarted:
    """The answer of a rollout is complete and is now judged."""


class Flow(Protocol):
    """Answers an example with several prompts; must be picklable to run in processes."""

    def __call__(
        self,
        prompts: Mapping[str, Prompt[object]],
        example: GepaExample,
        *,
        session: Session,
        deadline: Deadline | None,
    ) -> PromptResponse[object]:
        """Return the answer.

        Args:
            prompts: those of one candidate, by ``namespace/key``.
            example: the example.
            session: where prompts are evaluated, so that their cost is counted.
            deadline: when to stop.

        Raises:
            CandidateError: the answer is unusable and scores 0.
            ProviderError, LimitReachedError: from the adapter.
        """
        ...


@runtime_checkable
class CheckedFlow(Protocol):
    """A flow that can tell before a call whether it takes the parameters of an example."""

    def check(self, prompts: Mapping[str, Prompt[object]], params: Sequence[object]) -> None:
        """Raise a ``ConfigError`` for parameters or prompts that cannot be answered."""
        ...


@runtime_checkable
class NodeFlow(Protocol):
    """A flow of nodes that ask one prompt each."""

    @property
    def nodes(self) -> Mapping[str, tuple[str, ProviderAdapter]]:
        """``namespace/key`` of the prompt, and the adapter, of each node by its name."""
        ...

    @property
    def max_steps(self) -> int:
        """Limit on the steps of an answer."""
        ...


@runtime_checkable
class CheckedFunction(Protocol):
    """An adapter on a function, which can tell before a call whether it takes a bound prompt."""

    def check_bound(self, prompt: Prompt[object]) -> None:
        """Raise a ``ConfigError`` for a prompt, or parameters, that cannot be answered."""
        ...


class _PromptCache(dict[str, Mapping[str, Prompt[object]]]):
    """Prompts of recent candidates; never pickled, because stores hold locks."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[_PromptCache], tuple[()]]:
        return type(self), ()

    def put(self, key: str, prompts: Mapping[str, Prompt[object]]) -> None:
        # Two threads that evict at once could pick the same entry; a lookup needs no lock.
        with self._lock:
            while len(self) >= _CACHED_PROMPTS:
                # The oldest: a search has moved on from it.
                self.pop(next(iter(self)))
            self[key] = prompts


@attrs.frozen(kw_only=True)
class PromptRollout:
    """Evaluates candidates of prompts. Can be pickled if adapter and functions can.

    Attributes:
        prompts: the sources by ``namespace/key``, with the parameters that all examples share;
            their own stores are not used.
        base: the overrides in force when the run began, by ``namespace/key``; candidates apply on
            top of them.
        adapter: the adapter that answers.
        flow: answers with several prompts; None for one prompt, which is bound to the parameters
            of the example.
        scoring: how rollouts are judged and shown.
        watch: budget and notices of the run.
        max_steps: steps that an answer may take; 0 if there are none.
        max_step_chars: longest text of a step that a record keeps; 0 if there are none.
        max_prompt_chars: maximum length of each of several prompts when it is evaluated; None for
            no limit. A longer baseline ends the run; an answer of another candidate scores 0.
    """

    prompts: Mapping[str, Prompt[object]]
    base: Mapping[str, PromptOverride]
    adapter: ProviderAdapter
    flow: Flow | None = None
    scoring: Scoring
    watch: Watch = attrs.field(factory=Watch)
    max_steps: int = 0
    max_step_chars: int = 0
    max_prompt_chars: int | None = None
    _recent: _PromptCache = attrs.field(factory=_PromptCache, init=False, repr=False, eq=False)

    def __call__(
        self, candidate: Candidate, example: GepaExample, deadline: Deadline | None
    ) -> RolloutRecord:
        """Make one rollout; see :meth:`promptgraft.targets.base.Target.rollout`."""
        tags = {"scope": "rollout", "example": example.id}
        session = self.watch.session(tags=tags, deadline=deadline)
        try:
            return self._try(candidate, example, session, deadline)
        except errors.PromptgraftError as error:
            # The session ends here, perhaps in another process; its calls must still be counted.
            if spent := self._spent(session):
                raise AbandonedRolloutError(error, spent) from error
            raise

    def _try(
        self,
        candidate: Candidate,
        example: GepaExample,
        session: Session,
        deadline: Deadline | None,
    ) -> RolloutRecord:
        response: PromptResponse[object] | None = None
        fault: str | None = None
        try:
            answer = self._answer(candidate, example, session, deadline)
            session.dispatch(FeedbackStarted())
            if session.calls is not None:
                session.calls = session.calls.within("judge")
            feedback: RolloutFeedback | None = feedback_from(
                lambda: self.scoring.feedback_fn(example, answer, session),
                example,
                deadline=session.deadline,
            )
            response = answer
        except errors.CandidateError as error:
            fault = error.located if isinstance(error, errors.AgentFaultError) else str(error)
            # Hints for single metrics are left out, because none of them judges.
            hints = feedback_text(example.label, ()) if isinstance(example.label, Case) else ""
            metrics = [each for each in metrics_of(self.scoring.feedback_fn) if not is_hidden(each)]
            reference = expected_text(example) if compares_expected(metrics) else ""
            expectation = f"what was expected: {reference}" if reference else ""
            texts = filter(None, (f"The answer could not be used: {error}", expectation, hints))
            feedback = RolloutFeedback(score=0.0, feedback="\n".join(texts))
        # Ends the run, whatever `on_error` says.
        except errors.PermanentProviderError:
            raise
        except errors.ProviderError as error:
            fault = str(error)
            zero = RolloutFeedback(score=0.0, feedback=f"The model's provider failed: {error}")
            # A judge that fails says nothing of the answer: that is never a zero.
            answered = session.latest(FeedbackStarted) is not None
            feedback = zero if self.scoring.on_error == "zero" and not answered else None
        # An answer that was refused shows the reflection model what is wrong with it.
        if fault is not None and (executed := session.latest(PromptExecuted)) is not None:
            response = executed.response
        inputs, output, trace = self._shown(example, response, session)
        return RolloutRecord(
            example_id=example.id,
            inputs_repr=inputs,
            output_repr=output,
            expected_repr=expected_text(example),
            tool_trace_repr=trace,
            feedback=feedback,
            fault=fault or "",
            hidden=self._hidden(session),
            spent=self._spent(session),
            verdicts=session.select_all(Verdict),
            steps=tuple(step.clipped(self.max_step_chars) for step in session.select_all(Step)),
        )

    def _answer(
        self,
        candidate: Candidate,
        example: GepaExample,
        session: Session,
        deadline: Deadline | None,
    ) -> PromptResponse[object]:
        """Return the answer to an example; refuse one of a prompt that was too long with values."""
        prompts = self.prompts_of(candidate)
        if self.flow is None:
            [prompt] = prompts.values()
            bound = prompt.bind(*example.params)
            return evaluated(self.adapter, bound, session=session, deadline=deadline)
        answer = self.flow(prompts, example, session=session, deadline=deadline)
        for event in session.select_all(PromptRendered):
            rendered = event.prompt
            fault = too_long(rendered, self.max_prompt_chars)
            if fault and f"{rendered.ns}/{rendered.key}" in self.prompts:
                # No proposal is to blame for a baseline that is too long.
                if candidate.parents:
                    raise errors.CandidateError(fault)
                raise errors.ConfigError(f"guards.max_prompt_chars: {fault}")
        return answer

    def prompts_of(self, candidate: Candidate) -> Mapping[str, Prompt[object]]:
        """Return the prompts of ``candidate``, by ``namespace/key``.

        Their parameters are copies.

        Raises:
            ConfigError: parameters cannot be copied.
        """
        prompts = self._recent.get(candidate.digest)
        if prompts is None:
            changes, prompts = candidate.overrides, dict[str, Prompt[object]]()
            for address, prompt in self.prompts.items():
                # Merged once and cached, because neither of them changes.
                base = self.base[address]
                store = InMemoryPromptOverridesStore([base.merged_with(changes[address])])
                prompts[address] = attrs.evolve(
                    prompt, overrides_store=store, overrides_tag=base.tag
                )
            self._recent.put(candidate.digest, prompts)
        return {
            address: _isolated(prompt) if prompt.params else prompt
            for address, prompt in prompts.items()
        }

    def _hidden(self, session: Session) -> tuple[str, ...]:
        """Return the sections and tools that the model did not see; all of unused prompts."""
        rendered = {
            f"{event.prompt.ns}/{event.prompt.key}": event.prompt
            for event in session.select_all(PromptRendered)
        }
        if rendered.keys().isdisjoint(self.prompts):
            return ()
        unseen = (
            (address, part)
            for address, prompt in self.prompts.items()
            for part in unseen_parts(prompt.descriptor, rendered.get(address))
        )
        alone = self.flow is None
        return tuple(part if alone else named_in(address, part) for address, part in unseen)

    def _spent(self, session: Session) -> tuple[Spending, ...]:
        """Return the cost of the rollout: the task's calls, then the feedback function's."""
        events = session.select_all(object)
        # Feedback functions may call models through the same session, so only the order of events
        # tells their calls from those of the task.
        kinds = tuple(map(type, events))
        judged = kinds.index(FeedbackStarted) if FeedbackStarted in kinds else len(events)
        return (
            *spent_on(Role.TASK, events[:judged], adapter_identity(self.adapter)),
            *spent_on(Role.JUDGE, events[judged:], "unknown"),
        )

    def _shown(
        self, example: GepaExample, response: PromptResponse[object] | None, session: Session
    ) -> tuple[str, str, str]:
        """Return input, answer and trace, formatted by the user's formatters."""
        format_example, format_trace = self.scoring.example_formatter, self.scoring.trace_formatter
        on = f"on example `{example.id}`"
        texts = _given(
            f"example_formatter {on}", session, lambda: format_example(example, response)
        )
        trace = _given(f"trace_formatter {on}", session, lambda: format_trace(session))
        match texts:
            case (str(inputs), str(output)) if isinstance(trace, str):
                return inputs, output, trace
            case (str(), str()):
                raise errors.FeedbackError(
                    f"trace_formatter {on}: expected a text, found {shown(trace)}"
                )
        raise errors.FeedbackError(
            f"example_formatter {on}: expected input and answer as two texts, found {shown(texts)}"
        )


def feedback_from(
    give: Callable[[], object], example: GepaExample, *, deadline: Deadline | None
) -> RolloutFeedback:
    """Return the result of a user's feedback function, plain or ``async``.

    Raises:
        FeedbackError: it raised, or returned something else.
        ProviderError, LimitReachedError: raised by a judge that it asks.
    """
    where = f"feedback function on example `{example.id}`"
    try:
        with doing(where):
            feedback = awaited(give(), deadline=deadline)
    except (errors.FeedbackError, errors.ProviderError, errors.LimitReachedError) as error:
        if not isinstance(error, errors.FeedbackError) or f"`{example.id}`" in str(error):
            raise
        raise errors.FeedbackError(f"{where}: {error}") from None
    except errors.user_errors() as error:
        raise errors.FeedbackError(f"{where} raised {raised_at(error)}") from error
    if not isinstance(feedback, RolloutFeedback):
        raise errors.FeedbackError(f"{where}: expected a RolloutFeedback, found {shown(feedback)}")
    return feedback


def too_long(rendered: RenderedPrompt[object], longest: int | None) -> str:
    """Return a message if one of several prompts is too long; empty if it is not."""
    length = len(rendered.text)
    if longest is None or length <= longest:
        return ""
    return (
        f"prompt `{rendered.ns}/{rendered.key}` has {length} characters; at most {longest} are "
        f"allowed, so shorten it by {length - longest}"
    )


def _given(where: str, session: Session, call: Callable[[], object]) -> object:
    """Return the result of a user's function, plain or ``async``; ``where`` names it."""
    try:
        return awaited(call(), deadline=session.deadline)
    except errors.user_errors() as error:
        raise errors.FeedbackError(f"{where} raised {raised_at(error)}") from error


def _isolated(prompt: Prompt[object]) -> Prompt[object]:
    where = f"prompt `{prompt.descriptor.ns}/{prompt.descriptor.key}`: bound parameters"
    params = isolated(prompt.params, where=where)
    return prompt if params is prompt.params else attrs.evolve(prompt, params=params)


def unseen_parts(
    descriptor: PromptDescriptor, rendered: RenderedPrompt[object] | None
) -> Iterator[str]:
    """Yield the sections, summaries and tools that a rendering does not show; all without one."""
    sections = rendered.sections if rendered else ()
    shown_paths = {(section.path, section.summarized) for section in sections}
    offered = {tool.name for tool in rendered.tools} if rendered else ()
    for section in descriptor.sections:
        if (section.path, False) not in shown_paths:
            yield section_part(section.path)
        if section.summary is not None and (section.path, True) not in shown_paths:
            yield summary_part(section.path)
    for tool in descriptor.tools:
        if tool.name not in offered:
            yield f"tool {tool.name}"
