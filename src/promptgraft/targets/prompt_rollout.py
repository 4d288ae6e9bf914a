"""One prompt tried on one example, in a session of its own."""

from __future__ import annotations

import threading
from typing import Literal

import attrs

from promptgraft.adapters.base import PromptExecuted, PromptResponse, ProviderAdapter, evaluated
from promptgraft.errors import (
    CandidateError,
    FeedbackError,
    LimitReachedError,
    PermanentProviderError,
    PromptgraftError,
    ProviderError,
)
from promptgraft.overrides.memory_store import InMemoryPromptOverridesStore
from promptgraft.overrides.overlay_store import overlaid
from promptgraft.overrides.types import PromptOverride
from promptgraft.parts.descriptors import PromptDescriptor, section_part
from promptgraft.prompt.rendered import PromptRendered
from promptgraft.prompt.template import Prompt
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.event_loop import awaited
from promptgraft.runtime.session import Session, Watch
from promptgraft.serde import shown
from promptgraft.targets.formatting import (
    clip,
    default_example_formatter,
    default_trace_formatter,
)
from promptgraft.targets.spending import AbandonedRolloutError, Role, Spending, spent_on
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

_CACHED_PROMPTS = 64


@attrs.frozen(kw_only=True)
class Scoring:
    """How rollouts are judged and shown.

    Attributes:
        feedback_fn: the user's.
        example_formatter: shows input and answer.
        trace_formatter: shows what happened.
        max_example_chars: longest input or answer that is shown.
        max_trace_chars: longest trace or evaluation log that is shown.
        on_error: what a provider's fault becomes.
    """

    feedback_fn: FeedbackFn
    example_formatter: ExampleFormatter = default_example_formatter
    trace_formatter: TraceFormatter = default_trace_formatter
    max_example_chars: int
    max_trace_chars: int
    on_error: OnError = "unscored"


@attrs.frozen
class FeedbackStarted:
    """The answer of a rollout is complete and is now judged."""


class _PromptCache:
    """Prompts of recent candidates; never pickled, because stores hold locks."""

    def __init__(self) -> None:
        self._prompts: dict[str, Prompt[object]] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[_PromptCache], tuple[()]]:
        return type(self), ()

    def get(self, key: str) -> Prompt[object] | None:
        return self._prompts.get(key)

    def put(self, key: str, prompt: Prompt[object]) -> None:
        with self._lock:
            while len(self._prompts) >= _CACHED_PROMPTS:
                self._prompts.pop(next(iter(self._prompts)))
            self._prompts[key] = prompt


@attrs.frozen(kw_only=True)
class PromptRollout:
    """Evaluates candidates of one prompt. Pickles when adapter and functions do.

    Attributes:
        prompt: the source with what is bound for every example; its own store is not used.
        base: the overrides in force when the run began; candidates lie over them.
        adapter: answers.
        scoring: how rollouts are judged and shown.
        watch: budget and notices of the run.
    """

    prompt: Prompt[object]
    base: PromptOverride
    adapter: ProviderAdapter
    scoring: Scoring
    watch: Watch = attrs.field(factory=Watch)
    _prompts: _PromptCache = attrs.field(factory=_PromptCache, init=False, repr=False, eq=False)

    def __call__(
        self, candidate: Candidate, example: GepaExample, deadline: Deadline | None
    ) -> RolloutRecord:
        """Make one rollout; see :meth:`promptgraft.targets.base.Target.rollout`."""
        tags = {"scope": "rollout", "example": example.id}
        session = self.watch.session(tags=tags, deadline=deadline)
        prompt = self.prompt_of(candidate).bind(*example.params)
        try:
            return self._try(prompt, example, session, deadline)
        except PromptgraftError as error:
            if spent := self._spent(session):
                raise AbandonedRolloutError(error, spent) from error
            raise

    def _try(
        self,
        prompt: Prompt[object],
        example: GepaExample,
        session: Session,
        deadline: Deadline | None,
    ) -> RolloutRecord:
        try:
            response = evaluated(self.adapter, prompt, session=session, deadline=deadline)
            session.dispatch(FeedbackStarted())
            feedback = self._feedback(example, response, session)
        except CandidateError as error:
            failed = RolloutFeedback(score=0.0, feedback=f"The answer could not be used: {error}")
            return self._record(
                example, _last_response(session), session, feedback=failed, fault=str(error)
            )
        except PermanentProviderError:
            raise
        except ProviderError as error:
            zero = RolloutFeedback(score=0.0, feedback=f"The model's provider failed: {error}")
            # A judge that fails says nothing of the answer: that is never a zero.
            answered = session.latest(FeedbackStarted) is not None
            scored = zero if self.scoring.on_error == "zero" and not answered else None
            return self._record(
                example, _last_response(session), session, feedback=scored, fault=str(error)
            )
        return self._record(example, response, session, feedback=feedback)

    def prompt_of(self, candidate: Candidate) -> Prompt[object]:
        """Return the prompt as ``candidate`` has it."""
        found = self._prompts.get(candidate.digest)
        if found is None:
            # Laid over each other once: nobody writes to either while the candidate is tried.
            visible = overlaid(self.prompt.descriptor, self.base, candidate.override)
            found = attrs.evolve(
                self.prompt,
                overrides_store=InMemoryPromptOverridesStore([visible]),
                overrides_tag=self.base.tag,
            )
            self._prompts.put(candidate.digest, found)
        return found

    def _feedback(
        self, example: GepaExample, response: PromptResponse[object], session: Session
    ) -> RolloutFeedback:
        where = f"feedback function on example `{example.id}`"
        try:
            given = self.scoring.feedback_fn(example, response, session)
            feedback = awaited(given, deadline=session.deadline)
        except FeedbackError as error:
            raise FeedbackError(f"{where}: {error}") from None
        except (ProviderError, LimitReachedError):
            raise
        except Exception as error:
            raise FeedbackError(f"{where} raised {type(error).__name__}: {error}") from error
        if not isinstance(feedback, RolloutFeedback):
            raise FeedbackError(f"{where}: expected a RolloutFeedback, found {shown(feedback)}")
        return feedback

    def _record(
        self,
        example: GepaExample,
        response: PromptResponse[object] | None,
        session: Session,
        *,
        feedback: RolloutFeedback | None,
        fault: str = "",
    ) -> RolloutRecord:
        scoring = self.scoring
        inputs, output, trace = self._shown(example, response, session)
        if feedback is not None and feedback.eval_trace:
            log = clip(feedback.eval_trace, scoring.max_trace_chars)
            feedback = attrs.evolve(feedback, eval_trace=log)
        return RolloutRecord(
            example_id=example.id,
            inputs_repr=clip(inputs, scoring.max_example_chars),
            output_repr=clip(output, scoring.max_example_chars),
            tool_trace_repr=clip(trace, scoring.max_trace_chars),
            feedback=feedback,
            fault=fault,
            hidden=_hidden(self.prompt.descriptor, session),
            spent=self._spent(session),
        )

    def _spent(self, session: Session) -> tuple[Spending, ...]:
        """Return what the rollout took: the task's calls, then those of the feedback function."""
        events = session.select_all(object)
        kinds = tuple(map(type, events))
        judged = kinds.index(FeedbackStarted) if FeedbackStarted in kinds else len(events)
        return (
            *spent_on(Role.TASK, events[:judged], self.adapter.identity),
            *spent_on(Role.JUDGE, events[judged:], "unknown"),
        )

    def _shown(
        self, example: GepaExample, response: PromptResponse[object] | None, session: Session
    ) -> tuple[str, str, str]:
        """Return input, answer and trace as the user's formatters show them."""
        scoring = self.scoring
        deadline = session.deadline
        where = f"formatters on example `{example.id}`"
        try:
            texts: object = (
                *awaited(scoring.example_formatter(example, response), deadline=deadline),
                awaited(scoring.trace_formatter(session), deadline=deadline),
            )
        except Exception as error:
            raise FeedbackError(f"{where} raised {type(error).__name__}: {error}") from error
        match texts:
            case (str(inputs), str(output), str(trace)):
                return inputs, output, trace
        raise FeedbackError(
            f"{where}: expected input and answer as two texts, and the trace as one, "
            f"found {shown(texts)}"
        )


def _hidden(descriptor: PromptDescriptor, session: Session) -> tuple[str, ...]:
    """Return the sections and tools that the model was not shown."""
    rendered = session.latest(PromptRendered)
    if rendered is None:
        return ()
    prompt = rendered.prompt
    shown = {section.path for section in prompt.sections if not section.summarized}
    offered = {tool.name for tool in prompt.tools}
    sections = [
        section_part(section.path) for section in descriptor.sections if section.path not in shown
    ]
    return (
        *sections,
        *(f"tool {tool.name}" for tool in descriptor.tools if tool.name not in offered),
    )


def _last_response(session: Session) -> PromptResponse[object] | None:
    executed = session.latest(PromptExecuted)
    return None if executed is None else executed.response
