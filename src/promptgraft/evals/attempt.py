"""One case answered once, and judged."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

import attrs

from promptgraft.adapters.base import (
    NO_USAGE,
    ModelCalled,
    PromptExecuted,
    PromptResponse,
    ProviderAdapter,
    ToolInvoked,
    evaluated,
)
from promptgraft.errors import (
    CandidateError,
    DataFormatError,
    LimitReachedError,
    PermanentProviderError,
    ProviderError,
)
from promptgraft.evals.aggregate import Aggregation, CaseOutcome, crashed, judged, unscored
from promptgraft.evals.metrics.judging import judge_case
from promptgraft.evals.trace import Step
from promptgraft.evals.types import Answer, Case, Metric, ToolUse, TurnAnswered
from promptgraft.prompt.template import Prompt
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.session import Session, SessionProtocol
from promptgraft.serde import Json, shown, unstructure


class AsideSession(Session):
    """A session beside another one (None for none), which pays for it and sees its model calls.

    Calls and notices reach the other session, and its budget and deadline hold. Prompts do not:
    that of a judge is none of what is judged.
    """

    def __init__(
        self,
        run: SessionProtocol | None,
        *,
        tags: Mapping[str, str],
        deadline: Deadline | None = None,
    ) -> None:
        if deadline is None and run is not None:
            deadline = run.deadline
        super().__init__(
            tags=tags, budget=run.budget if run is not None else None, deadline=deadline
        )
        self._run = run

    def notify(self, notice: object) -> None:
        if self._run is not None:
            self._run.notify(notice)

    def dispatch(self, event: object) -> None:
        super().dispatch(event)
        if self._run is not None and isinstance(event, ModelCalled):
            self._run.dispatch(event)


@attrs.frozen(kw_only=True)
class Attempt:
    """One answer to a case in one ``run`` (from 0), with its outcome.

    ``task_calls`` were made for the answer, ``judge_calls`` to judge it. ``stopped`` names the
    limit that ended it, if one did.
    """

    case_id: str
    run: int
    outcome: CaseOutcome
    answer: Answer | None = None
    task_calls: tuple[ModelCalled, ...] = ()
    judge_calls: tuple[ModelCalled, ...] = ()
    stopped: str = ""


def attempted(
    case: Case,
    prompt: Prompt[object],
    run: int,
    *,
    adapter: ProviderAdapter,
    metrics: tuple[Metric, ...],
    aggregation: Aggregation | None,
    whole: SessionProtocol | None,
    deadline: Deadline | None,
) -> Attempt:
    """Answer a case once, unless its answer is recorded, and judge it.

    ``whole`` is the session of the evaluation: it pays for calls and gets an event for each.

    Raises ``PermanentProviderError`` when a model refuses for good, and ``CallerError`` when a
    metric cannot judge the case.
    """
    tags = {"scope": "case", "case": case.id}
    session = AsideSession(whole, tags=tags, deadline=deadline)
    answer, stopped = case.recorded, ""
    asked: int | None = None  # calls of models until there was an answer
    try:
        if answer is None:
            if session.deadline is not None:
                session.deadline.check()
            said = evaluated(adapter, prompt, session=session, deadline=session.deadline)
            answer = answer_of(said, session)
        asked = len(session.select_all(ModelCalled))
        verdicts = judge_case(metrics, case, answer, session=session)
        outcome = judged(case.id, verdicts, metrics, aggregation)
    except LimitReachedError as error:
        stopped = str(error)
        what = "answered" if answer is None else "judged"
        outcome = unscored(case.id, f"not {what}: {error}")
    except (CandidateError, ProviderError) as error:
        # Judging tells such errors in its verdicts; one that comes through is no answer's.
        if answer is not None or isinstance(error, PermanentProviderError):
            raise
        if isinstance(error, ProviderError):
            outcome = unscored(case.id, f"the model's provider failed: {error}")
        else:
            outcome = crashed(case.id, f"the answer could not be used: {error}")
            executed = session.latest(PromptExecuted)
            answer = None if executed is None else answer_of(executed.response, session)
    calls = session.select_all(ModelCalled)
    return Attempt(
        case_id=case.id,
        run=run,
        outcome=outcome,
        answer=answer,
        task_calls=calls[:asked],
        judge_calls=() if asked is None else calls[asked:],
        stopped=stopped,
    )


def answer_of(response: PromptResponse[object], session: SessionProtocol) -> Answer:
    """Return the answer as metrics see it: with the tools that the session saw, and the bill."""
    calls = session.select_all(ModelCalled)
    costs = [call.cost for call in calls if call.cost is not None]
    return Answer(
        text=response.text,
        output=plain_output(response.output),
        tools=tuple(map(_tool_use, session.select_all(ToolInvoked))),
        usage=sum((call.usage for call in calls), NO_USAGE) if calls else response.usage,
        # One call of unknown cost makes the whole unknown.
        cost=sum(costs, Decimal(0)) if costs and len(costs) == len(calls) else None,
        seconds=sum(call.seconds for call in calls) if calls else None,
        steps=session.select_all(Step),
        turns=session.select_all(TurnAnswered),
    )


def plain_output(output: object) -> Json:
    """Return what an answer is as data, in plain form; None for a text and for nothing."""
    return None if output is None or type(output) is str else _plain(output)


def _tool_use(call: ToolInvoked) -> ToolUse:
    arguments = _plain(call.params)
    return ToolUse(
        name=call.name,
        arguments=arguments if isinstance(arguments, dict) else {"value": arguments},
        result={"error": call.error} if call.error else _plain(call.result),
    )


def _plain(value: object) -> Json:
    try:
        return unstructure(value)
    except DataFormatError:
        return shown(value)
