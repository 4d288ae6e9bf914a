"""One attempt at a case: its answer is obtained and judged."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

import attrs

from promptgraft import errors
from promptgraft.adapters.base import (
    NO_USAGE,
    ModelCalled,
    PromptExecuted,
    PromptResponse,
    ProviderAdapter,
    ToolInvoked,
    evaluated,
)
from promptgraft.evals.aggregate import Aggregation, CaseOutcome, crashed, judged, unscored
from promptgraft.evals.metrics.judging import judge_case
from promptgraft.evals.types import Answer, Case, Metric, Step, ToolUse, TurnAnswered
from promptgraft.ground.serde import Json, canonical_json, shown, unstructure
from promptgraft.prompt.answers import answer_text
from promptgraft.prompt.rendered import PromptRendered
from promptgraft.prompt.template import Prompt
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.session import Session, SessionProtocol, places_of

UNUSABLE = "the answer could not be used: "
UNANSWERED = "the model's provider failed: "
"""How errors of answers begin: where the candidate is to blame, and where the model or agent."""


class AsideSession(Session):
    """A session whose model calls are charged to another session, if there is one.

    Model calls and notices are forwarded to the other session; its budget and deadline apply.
    Other events, such as the prompt of a judge, are not: they are no part of what is judged.
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
            tags=tags,
            budget=run.budget if run is not None else None,
            deadline=deadline,
            calls=places_of(run),
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
class CaseAttempt:
    """One answer to a case, with its outcome.

    Attributes:
        run: the number of the run, from 0.
        answer: None if the case was not answered.
        task_calls: the model calls that made the answer.
        judge_calls: the model calls that judged it.
        stopped: the limit that ended the attempt; empty if none did.
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
) -> CaseAttempt:
    """Answer a case once, unless its answer is recorded, and judge the answer.

    ``whole`` is the session of the evaluation: it pays for calls and receives an event for each.

    Raises:
        PermanentProviderError: a model refuses permanently.
        CallerError: a metric cannot judge the case.
    """
    session = AsideSession(whole, tags={"scope": "case", "case": case.id}, deadline=deadline)
    answer, stopped = case.recorded, ""
    call_count: int | None = None  # number of model calls that made the answer
    try:
        if answer is None:
            if session.deadline is not None:
                session.deadline.check()
            response = evaluated(adapter, prompt, session=session, deadline=session.deadline)
            answer = answer_of(response, session)
        call_count = len(session.select_all(ModelCalled))
        verdicts = judge_case(metrics, case, answer, session=session)
        outcome = judged(case.id, verdicts, metrics, aggregation)
    except errors.LimitReachedError as error:
        stopped = str(error)
        what = "answered" if answer is None else "judged"
        outcome = unscored(case.id, f"not {what}: {error}")
    except (errors.CandidateError, errors.ProviderError) as error:
        # Metrics report such errors of judges in their verdicts, so one that gets here after the
        # answer is not an error of the candidate.
        if answer is not None or isinstance(error, errors.PermanentProviderError):
            raise
        if isinstance(error, errors.ProviderError):
            outcome = unscored(case.id, f"{UNANSWERED}{error}")
        else:
            outcome = crashed(case.id, f"{UNUSABLE}{error}")
            executed = session.latest(PromptExecuted)
            answer = None if executed is None else answer_of(executed.response, session)
    calls = session.select_all(ModelCalled)
    return CaseAttempt(
        case_id=case.id,
        run=run,
        outcome=outcome,
        answer=answer,
        # With None, all of them: no answer was reached, so that no judge was asked.
        task_calls=calls[:call_count],
        judge_calls=() if call_count is None else calls[call_count:],
        stopped=stopped,
    )


def answer_of(response: PromptResponse[object], session: SessionProtocol) -> Answer:
    """Return the answer as metrics see it, with the tools and costs recorded in the session."""
    calls = session.select_all(ModelCalled)
    costs = [call.cost for call in calls if call.cost is not None]
    return Answer(
        text=_judged_text(response, session),
        output=plain_output(response.output),
        tools=tuple(map(_tool_use, session.select_all(ToolInvoked))),
        usage=sum((call.usage for call in calls), NO_USAGE) if calls else response.usage,
        # One call of unknown cost makes the total unknown.
        cost=sum(costs, Decimal(0)) if costs and len(costs) == len(calls) else None,
        seconds=sum(call.seconds for call in calls) if calls else None,
        steps=session.select_all(Step),
        turns=session.select_all(TurnAnswered),
        notes=response.notes,
    )


def _judged_text(response: PromptResponse[object], session: SessionProtocol) -> str:
    """Return the text that metrics judge.

    Where the prompt has a type of single values, it is the value that the program gets: a choice
    that is answered as ``**Travel**.`` is judged as `travel`. An object keeps the text in which it
    was answered; an agent has no such type, so its own text counts.
    """
    rendered, output = session.latest(PromptRendered), response.output
    if rendered is None or rendered.prompt.output_type is None or output is None:
        return answer_text(response.text)
    value = _plain(output)
    if isinstance(value, (dict, list)):
        return answer_text(response.text)
    return value if isinstance(value, str) else canonical_json(value)


def plain_output(output: object) -> Json:
    """Return the output of an answer as plain data; None for a text."""
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
    except errors.DataFormatError:
        return shown(value)
