"""The questions of a run to its teacher.

They are asked before the first rollout, and the answers are recorded like all others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Any

import attrs

from promptgraft import errors
from promptgraft.adapters.base import PromptResponse, ProviderAdapter, adapter_identity, evaluated
from promptgraft.evals.attempt import answer_of
from promptgraft.evals.binding import params_of_cases
from promptgraft.evals.metrics.judging import check_cases
from promptgraft.evals.spending import Role, Spending, spent_from_json, spent_on, spent_to_json
from promptgraft.evals.types import Case, TaughtCase, ToolUse
from promptgraft.ground.serde import HexDigest, Json, digest
from promptgraft.ground.text import clip
from promptgraft.journal.records import Record
from promptgraft.prompt.template import Prompt
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.session import Session, Watch
from promptgraft.search.answers import Answers, Working
from promptgraft.search.batches import Batch
from promptgraft.search.calls import Calls
from promptgraft.search.config import RunConfig
from promptgraft.search.events import CaseTaught, Emit
from promptgraft.search.place import Phase, named
from promptgraft.search.teacher import Teacher
from promptgraft.targets.formatting import show_value
from promptgraft.targets.judging import metrics_of
from promptgraft.targets.types import GepaExample

_AT_ONCE = 8  # questions to the teacher
_MAX_SHOWN_CHARS = 2_000


class Teaching:
    """The questions of a run to its teacher.

    Args:
        config: the settings of the run, with its cases.
        digests: SHA-256 of each example, by id.

    Attributes:
        questions: the question about each case without ``expected``, by the id of its example.

    Raises:
        ConfigError: cases do not fit the teacher's prompt; names them.
    """

    def __init__(
        self, teacher: Teacher, config: RunConfig, digests: Mapping[str, HexDigest]
    ) -> None:
        examples = (*config.training_examples, *(config.data.held_out or ()))
        # By the id of the example: users may give the same case to several.
        cases = {
            example.id: attrs.evolve(case, id=example.id)
            for example in examples
            if isinstance(case := example.label, Case) and case.expected is None
        }
        self.teacher = teacher
        try:
            bound = params_of_cases(teacher.prompt, [*cases.values()], teacher.params)
        except errors.ConfigError as error:
            raise errors.ConfigError(f"teacher: {error}") from error
        self.questions: dict[str, _TeacherQuestion] = {
            id_: _TeacherQuestion(
                case=case,
                prompt=teacher.prompt.bind(*bound[id_]),
                key=f"{Phase.TEACHER}/{named(id_)}",
                digest=digest([teacher.identity, digests[id_]]),
            )
            for id_, case in cases.items()
        }

    def complete(
        self,
        config: RunConfig,
        answers: Answers,
        *,
        watch: Watch,
        executor: Executor | None,
        deadline: Deadline | None,
        working: Working | None,
        emit: Emit,
    ) -> RunConfig:
        """Have the teacher answer, and return the settings with completed cases.

        Args:
            config: the settings.
            answers: the journal, which has earlier answers, and the ledger.
            watch: budget and notices of the run.
            executor: if there is one, cases are answered in parallel.
            deadline: nothing is asked after it.
            working: reports progress as answers arrive.
            emit: receives an event for each case.

        Raises:
            ConfigError: an answer cannot be used; names the case.
            ProviderError: the teacher's provider failed; answers so far are recorded.
            LimitReachedError: time or money is used up.
        """
        batch = _TeacherBatch(
            questions=[*self.questions.values()],
            asked=self.teacher.asked,
            answers=answers,
            watch=watch,
            deadline=deadline,
            working=working,
        )
        self._ask(batch, parallel=executor is not None)
        name = self.teacher.name
        cases = {
            id_: TaughtCase.of(
                question.case, expected=question.expected, tools=question.tools, teacher=name
            )
            for id_, question in self.questions.items()
        }
        check_cases(metrics_of(config.feedback_fn), cases.values())
        for id_, case in cases.items():
            expected = (
                case.expected if isinstance(case.expected, str) else show_value(case.expected)
            )
            emit(CaseTaught(case=id_, teacher=name, expected=clip(expected, _MAX_SHOWN_CHARS)))
        return _with_cases(config, cases)

    def _ask(self, batch: _TeacherBatch, *, parallel: bool) -> None:
        # Not the executor of the run: sessions are read here after a call, so it cannot be in
        # another process.
        threads = ThreadPoolExecutor(_AT_ONCE, "promptgraft-teacher") if parallel else None
        deadline = batch.deadline or Deadline()
        try:
            with Calls(batch.answers.journal, executor=threads, deadline=deadline) as calls:
                for is_over in calls.make(self, batch):
                    while not is_over():
                        calls.collect()
        finally:
            if threads is not None:
                # A call that was left behind at the deadline may never end.
                threads.shutdown(wait=False, cancel_futures=True)


def _with_cases(config: RunConfig, cases: Mapping[str, Case]) -> RunConfig:
    """Return the settings with ``cases`` in place of those with the same ids."""

    def completed(examples: Sequence[GepaExample]) -> list[GepaExample]:
        return [
            attrs.evolve(example, label=cases.get(example.id, example.label))
            for example in examples
        ]

    held_out = config.data.held_out
    return attrs.evolve(
        config,
        training_examples=completed(config.training_examples),
        data=attrs.evolve(config.data, held_out=held_out and completed(held_out)),
    )


@attrs.define(eq=False, kw_only=True)
class _TeacherQuestion:
    case: Case
    prompt: Prompt[Any]
    key: str
    digest: HexDigest
    expected: Json = None
    tools: tuple[ToolUse, ...] | None = None


@attrs.define(eq=False, kw_only=True)
class _TeacherBatch(Batch):
    """The questions to a teacher; those with a recorded answer are not asked again."""

    stops_at_failure = True

    _questions: Sequence[_TeacherQuestion]
    _asked: ProviderAdapter
    answers: Answers
    _watch: Watch
    deadline: Deadline | None
    _working: Working | None
    _missing: list[_TeacherQuestion] = attrs.field(init=False)
    _sessions: dict[int, Session] = attrs.field(factory=dict, init=False)
    _left: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._missing = [question for question in self._questions if not self._recall(question)]
        self.missing = self._left = len(self._missing)
        self.first_key = self._missing[0].key if self._missing else ""
        self._report()

    def _recall(self, question: _TeacherQuestion) -> bool:
        answers, key = self.answers, question.key
        match answers.recall(key, question.digest):
            case None:
                answers.count_recorded([key], {})
                return False
            case {"expected": expected, "spent": list(spent), **more}:
                question.expected = expected
                # Records of earlier versions have none.
                question.tools = _calls_from_json(more.get("tools"))
                answers.count_recorded([key], {key: spent_from_json(spent, key)})
                return True
        raise errors.JournalCorruptError(
            f"the journal's record `{key}` is no answer of a teacher; restore the journal"
        )

    def _report(self) -> None:
        if self._working is not None and (count := len(self._questions)):
            self._working(Phase.TEACHER.value, count - self._left, count)

    def work(self, number: int) -> Callable[[], object]:
        question = self._missing[number]
        tags = {"scope": "teacher", "case": question.case.id}
        watch = self._watch.at(question.key)
        session = self._sessions[number] = watch.session(tags=tags, deadline=self.deadline)
        return partial(
            watch.call,
            evaluated,
            self._asked,
            question.prompt,
            session=session,
            deadline=self.deadline,
        )

    def take(self, number: int, outcome: Callable[[], object]) -> Record | None:
        question, answers = self._missing[number], self.answers
        try:
            response = outcome()
        except errors.PromptgraftError as error:
            answers.record_failed(question.key, question.digest, self._spent(number))
            raise _placed(error, question.case) from error
        assert isinstance(response, PromptResponse)  # noqa: S101 - what adapters return
        answer, spent = answer_of(response, self._sessions[number]), self._spent(number)
        question.expected = answer.text if answer.output is None else answer.output
        if answer.tools or question.prompt.descriptor.tools:
            # Without results, which may differ from time to time.
            question.tools = tuple(attrs.evolve(call, result=None) for call in answer.tools)
        answers.ledger.count(answers.newly_paid(question.key, spent))
        self._left -= 1
        self._report()
        content: dict[str, Json] = {"expected": question.expected, "spent": spent_to_json(spent)}
        if question.tools is not None:
            content["tools"] = [[call.name, dict(call.arguments)] for call in question.tools]
        return Record(question.key, question.digest, "teacher", content)

    def _spent(self, number: int) -> tuple[Spending, ...]:
        events = self._sessions[number].select_all(object)
        return spent_on(Role.TEACHER, events, adapter_identity(self._asked))


def _calls_from_json(calls: object) -> tuple[ToolUse, ...] | None:
    if not isinstance(calls, list):
        return None
    return tuple(
        ToolUse(name=name, arguments=arguments)
        for name, arguments in (call for call in calls if isinstance(call, list))
        if isinstance(name, str) and isinstance(arguments, dict)
    )


def _placed(error: errors.PromptgraftError, case: Case) -> errors.PromptgraftError:
    """Return a teacher's error with the name of the case, and how to mend it."""
    where = f"{case.origin}: " if case.origin else ""
    message = f"{where}teacher: case `{case.id}`: {error}"
    mend = "give the case `expected`, leave it out, or resume the run to ask again"
    match error:
        case errors.CandidateError():
            return errors.ConfigError(f"{message}; {mend}")
        case errors.PermanentProviderError():
            return errors.PermanentProviderError(message)
        case errors.ProviderError():
            return errors.TransientProviderError(f"{message}; {mend}")
    return error
