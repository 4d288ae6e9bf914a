"""Judging cases: the checks before the first call, conversations, verdicts and their feedback."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Protocol, runtime_checkable

import attrs

from promptgraft.errors import ConfigError, OutputError
from promptgraft.evals.metrics.base import (
    ChecksCases,
    Needed,
    NeedsValues,
    ends_case,
    hold_metrics,
    is_hidden,
    judges_tools,
    reason,
    verdict_of,
)
from promptgraft.evals.metrics.reading import Folding
from promptgraft.evals.rows import CaseFaults, advice_for, in_one_line
from promptgraft.evals.types import (
    Answer,
    Case,
    Message,
    Metric,
    Speaker,
    TaughtCase,
    Turn,
    Verdict,
    cases_of,
)
from promptgraft.ground.content import Content
from promptgraft.ground.serde import did_you_mean, shown
from promptgraft.ground.strict.checks import reaches
from promptgraft.ground.text import clip, listed
from promptgraft.prompt.answers import read_output
from promptgraft.prompt.fields import options_at
from promptgraft.runtime.session import SessionProtocol

# Lengths in characters; a conversation has a reason for each of its turns.
LONGEST_FEEDBACK = 50_000
_LONGEST_TURN_REASON, _LONGEST_TURN_REASONS = 400, 4_000


def check_metrics(metrics: Sequence[Metric]) -> None:
    """Raise a ``ConfigError`` unless there are metrics, and all have different names."""
    hold_metrics(metrics)
    names = [metric.name for metric in metrics]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"metrics: two metrics have the name `{name}`; give one of them another `name`"
            )
    if all(map(is_hidden, metrics)):
        raise ConfigError(
            f"metrics: all are hidden ({listed(names)}), so that nothing would count; leave "
            "`hidden` out of one"
        )


@runtime_checkable
class CaseAdapter(Protocol):
    """An adapter that is called with whole cases, such as that of an agent."""

    @property
    def identity(self) -> str: ...

    @property
    def reports_tools(self) -> bool: ...

    def check_case(self, case: Case) -> None: ...


def check_asked(adapter: object, cases: Iterable[Case], metrics: Sequence[Metric]) -> None:
    """Raise a ``ConfigError`` for cases and metrics that an agent does not support.

    An agent may not accept the input of a case, and may not report tool calls, which metrics of
    tools need. Adapters of prompts support everything.
    """
    if not isinstance(adapter, CaseAdapter):
        return
    faults = in_one_line()
    for case in cases:
        try:
            # A recorded answer needs no agent that could play the case.
            if case.recorded is None:
                adapter.check_case(case)
        except ConfigError as error:
            faults.add_of(case, str(error))
    faults.refuse()
    if adapter.reports_tools:
        return
    for metric in metrics:
        if judges_tools(metric):
            raise ConfigError(
                f"metric `{metric.name}` judges tools, and the {adapter.identity} "
                "does not say which it called; return an AgentAnswer with `tools` and annotate "
                "the function so, set `reports_tools` if it returns the reply of a framework, name "
                "where `tools` stand in a reply, or leave the metric out"
            )


def check_cases(
    metrics: Sequence[Metric],
    cases: Iterable[Case],
    output_type: object = None,
    *,
    by_turn: bool = False,
    noted: CaseFaults | None = None,
) -> None:
    """Raise one ``ConfigError`` that lists all cases that the metrics cannot judge.

    A case is also refused if no answer of ``output_type`` can have its expected values. With
    ``by_turn``, a metric needs to be able to judge only one turn of a conversation. With
    ``noted``, faults are added there and nothing is raised.
    """
    faults, cases = in_one_line() if noted is None else noted, cases_of(cases)
    checking = [
        (metric, metric.needed if isinstance(metric, NeedsValues) else None)
        for metric in metrics
        if isinstance(metric, ChecksCases)
    ]
    origin = None if noted is not None or not cases else cases[0].origin
    columns_hint = functools.cache(lambda field: advice_for(origin).answer(field, cases))
    for case in cases:
        for fault in _hint_faults(case, metrics) if metrics else ():
            faults.add_of(case, fault)
        for metric, needed in checking:
            played = by_turn or (case.recorded is not None and case.recorded.turns)
            if played and any(can_judge(metric, turn) for turn in turn_cases(case)):
                continue
            try:
                metric.check(case)
                if needed and case.recorded is None:
                    _check_values(metric, needed(case), output_type)
            except ConfigError as error:
                field = "tools" if judges_tools(metric) else "expected"
                faults.add_of(case, f"{error}{columns_hint(field)}")
    if noted is None:
        faults.refuse()


_SEVERITY = re.compile(r"P(?P<number>[0-9]+):", re.IGNORECASE)
_SEVERITIES = ("P0", "P1", "P2", "P3")


def _hint_faults(case: Case, metrics: Sequence[Metric]) -> Iterator[str]:
    """Yield a line for each hint for an unknown metric, or with an unknown severity."""
    names = [metric.name for metric in metrics]
    for name, hint in case.hints.items():
        if name and name not in names:
            near = did_you_mean(name, names)
            yield f"hints: no metric is called {shown(name)}{near}; metrics: {listed(names)}"
        severity = _SEVERITY.match(hint)
        if severity and severity[0][:-1] not in _SEVERITIES:
            yield f"hints: expected a severity from P0 to P3, found {shown(severity[0][:-1])}"


def _check_values(metric: Metric, values: Iterable[Needed], output_type: object) -> None:
    """Raise a ``ConfigError`` if no answer of the output type has the needed values."""
    fold = metric.fold if isinstance(metric, Folding) else _folded
    for needed in values:
        keys = [key for key in needed.place if isinstance(key, str)]
        if why := needed.misfit(output_type):
            raise ConfigError(f"metric `{metric.name}`: {why}")
        options = options_at(output_type, keys)
        wanted_texts = [value for value in needed.values if isinstance(value, str)]
        if wanted_texts and options and {*map(fold, options)}.isdisjoint(map(fold, wanted_texts)):
            near = did_you_mean(wanted_texts[0], list(options))
            mend = ""
            if same := {_folded(option): option for option in options}.get(
                _folded(wanted_texts[0])
            ):
                near = f" (did you mean `{same}`?)"
                mend = "; or set `ignore_case: true` and `ignore_space: true`"
            raise ConfigError(
                f"metric `{metric.name}`: the expected {shown(wanted_texts[0])} is no option of "
                f"the prompt's answer{near}; options: {listed(options)}{mend}"
            )
        if (
            wanted_texts
            and not (options or needed.place)
            and (why := _unreadable(wanted_texts, output_type))
        ):
            raise ConfigError(f"metric `{metric.name}`: {why}")


def _unreadable(texts: Sequence[str], output_type: object) -> str:
    """Return why the prompt's answer is none of several texts; empty if it may be one."""
    fault = ""
    for text in texts:
        try:
            read_output(output_type, text)
        except OutputError as error:
            fault = fault or str(error).removeprefix("answer: ")
        else:
            return ""
    is_data = fault.startswith("answer:")  # a place in JSON
    why = "it is no JSON; `json_match` compares objects and lists" if is_data else fault
    return f"the expected {shown(texts[0])} is no answer of the prompt: {why}"


def _folded(text: str) -> str:
    return text.strip().casefold()


def can_judge(metric: Metric, case: Case) -> bool:
    """Return whether a case has what a metric needs."""
    try:
        if isinstance(metric, ChecksCases):
            metric.check(case)
    except ConfigError:
        return False
    return True


def judge_case(
    metrics: Sequence[Metric], case: Case, answer: Answer, *, session: SessionProtocol | None = None
) -> tuple[Verdict, ...]:
    """Return the verdict of every metric on one answer, in the order of the metrics.

    Metrics that end a case run first. If one fails, the others are neither run nor paid for: each
    scores 0 with the same reason. A conversation is judged turn by turn, by each metric on the
    turns that have what it needs.

    Raises:
        ConfigError: a metric cannot judge the case.
    """
    verdicts: dict[str, Verdict] = {}
    ended = ""
    # The sort is stable, so the order of the metrics is kept otherwise.
    for metric in sorted(metrics, key=lambda metric: not ends_case(metric)):
        if ended:
            verdict = Verdict(metric=metric.name, score=0.0, passed=False, reason=ended)
        else:
            verdict = _over_all(metric, case, answer, session=session)
            if ends_case(metric) and verdict.passed is False:
                ended = reason(f"not judged: `{metric.name}` ended the case; {verdict.reason}")
        verdicts[metric.name] = verdict
    return tuple(verdicts[metric.name] for metric in metrics)


def _over_all(
    metric: Metric, case: Case, answer: Answer, *, session: SessionProtocol | None
) -> Verdict:
    turns = [turn for turn in judged_turns(case, answer) if can_judge(metric, turn[1])]
    if not turns:
        return verdict_of(metric, case, answer, session=session)
    verdicts = [
        (number, verdict_of(metric, turn, answer_of_turn, session=session))
        for number, turn, answer_of_turn in turns
    ]
    return over_turns(verdicts, threshold=metric.threshold)


def turn_cases(case: Case) -> Iterator[Case]:
    """Yield each turn as a case; its context holds the expected answers of earlier turns."""
    context = case.context
    for number, turn in enumerate(case.turns, 1):
        yield _as_case(case, turn, context, is_last=number == len(case.turns))
        context = (*context, *_exchange(turn.user, turn.expected or ""))


def judged_turns(case: Case, answer: Answer) -> list[tuple[int, Case, Answer]]:
    """Return the number, the case and the answer of each turn that is judged.

    Only the last turn of a conversation with a simulated user is judged, with the earlier ones
    as context.
    """
    judged = []
    context = case.context
    for number, played in enumerate(answer.turns, 1):
        turn = case.turns[number - 1] if number <= len(case.turns) else Turn(user=played.query)
        if case.turns or number == len(answer.turns):
            is_last = number == len(case.turns)
            judged.append((number, _as_case(case, turn, context, is_last=is_last), played.answer))
        # The real answer, not the expected one: later turns refer to it.
        context = (*context, *_exchange(played.query, played.answer.text))
    return judged


def over_turns(verdicts: Sequence[tuple[int, Verdict]], *, threshold: float) -> Verdict:
    """Return the mean of the verdicts on the turns; unscored if any turn is."""
    first = verdicts[0][1]
    if len(verdicts) == 1:
        return first
    scores = [verdict.score for _, verdict in verdicts if verdict.score is not None]
    score = fmean(scores) if len(scores) == len(verdicts) else None
    amounts = [verdict.amount for _, verdict in verdicts if verdict.amount is not None]
    passed = sum(verdict.passed is True for _, verdict in verdicts)
    longest = max(_LONGEST_TURN_REASON, _LONGEST_TURN_REASONS // len(verdicts))
    turns = (_line(number, verdict, longest) for number, verdict in verdicts)
    lines = [f"{passed} of {len(verdicts)} turns pass", *turns]
    return attrs.evolve(
        first,
        score=score,
        passed=None if score is None else reaches(score, threshold),
        reason="\n".join(lines),
        amount=sum(amounts) if amounts else None,
    )


def _line(number: int, verdict: Verdict, longest: int) -> str:
    word = {True: "passed", False: "failed", None: "unscored"}[verdict.passed]
    score = "" if verdict.score is None else f" {verdict.score:.4g}"
    why = clip(" ".join(verdict.reason.split()), longest, around=" ")
    return f"turn {number} {word}{score}: {why}"


def _as_case(case: Case, turn: Turn, context: tuple[Message, ...], *, is_last: bool) -> Case:
    # The case itself may expect more of the last turn than a text, or something from a teacher.
    of_case = case if is_last else turn
    return attrs.evolve(
        case,
        input=turn.user,
        expected=turn.expected if of_case.expected is None else of_case.expected,
        tools=turn.tools if of_case.tools is None else of_case.tools,
        turns=(),
        context=context,
    )


def _exchange(query: str | Content, answer: str) -> tuple[Message, Message]:
    return Message(Speaker.USER, query), Message(Speaker.ASSISTANT, answer)


def feedback_text(case: Case, verdicts: Sequence[Verdict], *, notes: Iterable[str] = ()) -> str:
    """Return the verdicts with their reasons, the user's hints, and the origin of a taught answer.

    ``notes`` say how the answer was repaired.

    Failed metrics come first, then unscored ones, then those that passed.
    """
    rank = {False: 0, None: 1, True: 2}
    parts = [
        _said(verdict, case.hints) for verdict in sorted(verdicts, key=lambda v: rank[v.passed])
    ]
    if general := case.hints.get(""):
        parts.append(f"hint: {_plain(general)}")
    if case.scenario is not None:
        parts.append(f"what the user had in mind: {case.scenario.conversation_plan}")
    if isinstance(case, TaughtCase):
        parts.append(case.remark)
    parts += [f"the answer was repaired: {note}" for note in notes]
    return clip("\n".join(parts), LONGEST_FEEDBACK)


def _said(verdict: Verdict, hints: Mapping[str, str]) -> str:
    if verdict.score is None:
        head = f"[unscored] {verdict.metric}"
    else:
        head = f"[{'passed' if verdict.passed else 'failed'}] {verdict.metric} {verdict.score:.4g}"
    if verdict.node:
        head += f" (output of {verdict.node})"
    hint = hints.get(verdict.metric)
    lines = [f"{head}: {verdict.reason}", *([f"hint: {_plain(hint)}"] if hint else [])]
    return "\n  ".join(line for text in lines for line in text.splitlines())


def _plain(hint: str) -> str:
    """Return a hint without its severity, which only a gradient search explains."""
    severity = _SEVERITY.match(hint)
    return hint[severity.end() :].strip() if severity else hint
