"""Answers that are wanted together: looked up in the journal, obtained, recorded and counted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import attrs
import msgspec

from promptgraft import errors
from promptgraft.adapters.base import PromptResponse, ProviderAdapter, adapter_identity, evaluated
from promptgraft.adapters.calling.gathering import positioned
from promptgraft.evals import spending
from promptgraft.ground.functions import raised_at
from promptgraft.ground.serde import HexDigest, Json, digest_all, digest_text, shown
from promptgraft.ground.text import clip, joined
from promptgraft.journal.base import Journal
from promptgraft.journal.records import Record
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.session import Session, Watch
from promptgraft.search.answers import (
    READER,
    Answers,
    DeferredFault,
    RolloutFn,
    Working,
    record_from_json,
    record_to_json,
)
from promptgraft.search.asks import Question, Reply, Rollouts
from promptgraft.search.events import QuestionAsked
from promptgraft.search.place import MINIBATCHES, Place
from promptgraft.search.reflection import ShownImages
from promptgraft.search.scores import Scorer
from promptgraft.targets.formatting import clip_record
from promptgraft.targets.types import RolloutRecord

_MAX_FAULT_CHARS = 2_000
_MAX_WORD_CHARS = 200
_MAX_REPLY_CHARS = 1_000_000
"""How much of a reply is kept: no store accepts a longer text."""


@attrs.frozen(kw_only=True)
class AnswerSources:
    """Where answers come from.

    Attributes:
        rollout: makes one rollout; called in workers.
        example_digests: SHA-256 of each example, by id.
        reflection: the model that answers questions.
        watch: budget and notices of the run.
        deadline: passed to every call.
        working: reports progress when answers are awaited and as they arrive; None if nothing
            displays it.
        scorer: rejects impossible scores.
        in_batches: whether a model of the run answers in provider batches.
        max_example_chars: longest input, answer, feedback or fault of a rollout that is kept.
        max_trace_chars: longest trace or evaluation log that is kept.
        shown_images: the images that questions show; None if they show none.
    """

    rollout: RolloutFn
    example_digests: Mapping[str, HexDigest]
    reflection: ProviderAdapter
    watch: Watch = attrs.field(factory=Watch)
    deadline: Deadline | None = None
    working: Working | None = None
    scorer: Scorer = attrs.field(factory=lambda: Scorer({}))
    in_batches: bool = False
    max_example_chars: int = 6_000
    max_trace_chars: int = 6_000
    shown_images: ShownImages | None = None


class Batch(ABC):
    """Answers that a part of a search waits for together.

    Attributes:
        missing: how many are not recorded yet.
        first_key: the key of the first of them.
        earlier: the faults that were held back when it was asked for.
        stops_at_failure: whether a failed call cancels the remaining ones.
        is_patient: whether it evaluates a whole set, which may take a day in provider batches.
    """

    missing: int = 0
    first_key: str = ""
    earlier: Sequence[DeferredFault] = ()
    stops_at_failure = False
    is_patient = False

    @abstractmethod
    def work(self, number: int) -> Callable[[], object]:
        """Return the call that obtains one of the missing answers; it runs in a worker."""

    @abstractmethod
    def take(self, number: int, outcome: Callable[[], object]) -> Record | None:
        """Process the outcome of a call, and return the record for the journal if there is one.

        Raises:
            Exception: the run cannot continue without the answer.
        """


@attrs.define(eq=False)
class RequestedRollouts:
    """A request with the keys and digests of its answers, and the records by place."""

    request: Rollouts
    keys: Sequence[str]
    digests: Sequence[HexDigest]
    records: dict[int, RolloutRecord]


class RolloutBatch(Batch):
    """Rollouts; those in the journal are not made again.

    Args:
        requests: the requested rollouts.
        sources: make the missing rollouts.
        answers: account for them.
        in_turns: whether the requests take turns, example by example.

    Attributes:
        requested: the requests with their records.
    """

    stops_at_failure = True

    def __init__(
        self,
        requests: Sequence[Rollouts],
        sources: AnswerSources,
        answers: Answers,
        *,
        in_turns: bool = False,
    ) -> None:
        self._sources = sources
        self._answers = answers
        self.earlier: tuple[DeferredFault, ...] = tuple(answers.deferred)
        self.requested: list[RequestedRollouts] = [self._recall(request) for request in requests]
        self._missing = [
            (rollouts, place)
            for rollouts in self.requested
            if len(rollouts.records) < len(rollouts.keys)
            for place in range(len(rollouts.keys))
            if place not in rollouts.records
        ]
        if in_turns:
            # The sort is stable: for each example, requests keep their order.
            self._missing.sort(key=lambda missing: missing[1])
        self.missing: int = len(self._missing)
        if self._missing:
            rollouts, place = self._missing[0]
            self.first_key: str = rollouts.keys[place]
        if sources.in_batches:
            places = [Place.of_rollout(f"{request.position}/0") for request in requests]
            self.is_patient: bool = all(
                place is not None and place.phase not in MINIBATCHES for place in places
            )
        for rollouts in dict.fromkeys(rollouts for rollouts, _ in self._missing):
            self._report(rollouts)

    def _report(self, rollouts: RequestedRollouts) -> None:
        if self._sources.working is not None:
            done, total = len(rollouts.records), len(rollouts.keys)
            self._sources.working(rollouts.request.position, done, total)

    def _recall(self, request: Rollouts) -> RequestedRollouts:
        answers, sources = self._answers, self._sources
        try:
            contents = [sources.example_digests[example.id] for example in request.examples]
        except KeyError as missing:
            raise errors.CallerError(
                f"the run has no example {missing}, which is asked for at `{request.position}`"
            ) from None
        if request.by_example:
            pairs = zip(contents, request.examples, strict=True)
            # With the id, because two examples may have the same content.
            names = [digest_text(f"{content}:{example.id}")[:12] for content, example in pairs]
        else:
            names = [str(place) for place in range(len(contents))]
        keys = [f"{request.position}/{name}" for name in names]
        digests = digest_all(f"{request.candidate.digest}:", contents)
        records: dict[int, RolloutRecord] = {}
        for place, text in enumerate(answers.journal.find_texts(keys, digests)):
            if text is None:
                continue
            key = keys[place]
            try:
                records[place] = READER.decode(text)
            except (msgspec.MsgspecError, errors.FeedbackError):
                # The slow reader takes what the fast one cannot, or says what is wrong.
                records[place] = record_from_json(answers.recall(key, digests[place]), key)
        answers.count_recorded(
            keys,
            {keys[place]: record.spent for place, record in records.items()},
            rollouts=len(records),
            unscored=[record.feedback for record in records.values()].count(None),
        )
        return RequestedRollouts(request, keys, digests, records)

    def work(self, number: int) -> Callable[[], object]:
        rollouts, place = self._missing[number]
        key, sources = rollouts.keys[place], self._sources
        # A copy, because agents, tools and feedback functions may modify their arguments.
        example = rollouts.request.examples[place].copy()
        arguments = rollouts.request.candidate, example, sources.deadline
        rollout = partial(sources.watch.at(key).call, sources.rollout, *arguments)
        return partial(positioned, key, rollout) if sources.in_batches else rollout

    def take(self, number: int, outcome: Callable[[], object]) -> Record | None:
        rollouts, place = self._missing[number]
        key, digest, answers = rollouts.keys[place], rollouts.digests[place], self._answers
        try:
            record = _record_of(outcome, rollouts.request.examples[place].id)
        except spending.AbandonedRolloutError as error:
            answers.record_failed(key, digest, error.spent)
            cause = error.cause
            raise (cause.at(key) if isinstance(cause, errors.CallerError) else cause) from None
        except errors.CallerError as error:
            raise error.at(key) from error.__cause__
        try:
            self._sources.scorer.check(record)
        except errors.FeedbackError:
            answers.record_failed(key, digest, record.spent)
            raise
        # Clipped before the search sees it, which gets the same from the journal when resumed.
        record = clip_record(
            record, texts=self._sources.max_example_chars, traces=self._sources.max_trace_chars
        )
        entry = None
        if record.feedback is None:
            answers.record_failed(key, digest, record.spent)
            # Recorded apart above, because the fault may never be; both would count twice.
            record = attrs.evolve(record, spent=())
            answers.defer(key, digest, record_to_json(record))
        else:
            entry = Record(key, digest, "rollout", record_to_json(record))
        paid = answers.newly_paid(key, record.spent)
        answers.ledger.count(paid, rollouts=1, unscored=record.feedback is None)
        rollouts.records[place] = record
        self._report(rollouts)
        return entry


def _record_of(outcome: Callable[[], object], example_id: str) -> RolloutRecord:
    """Return the record that a target has made of an example.

    Raises:
        CallerError: the target raised something else than promptgraft's errors, or its record is
            not one of the example.
    """
    where = f"the target's rollout of example `{example_id}`"
    try:
        record = outcome()
    except errors.TransientProviderError as error:  # the worker itself was lost
        return RolloutRecord(example_id=example_id, fault=str(error))
    except errors.PromptgraftError:
        raise
    except errors.user_errors() as error:
        raise errors.CallerError(f"{where} raised {raised_at(error)}") from error
    if not isinstance(record, RolloutRecord):
        raise errors.CallerError(f"{where}: expected a RolloutRecord, found {shown(record)}")
    if record.example_id != example_id:
        other_id = shown(record.example_id)
        raise errors.CallerError(f"{where}: the record is of example {other_id}")
    return record


def _as_recorded(question: Question, journal: Journal) -> Question:
    """Return a question with the digest that the journal has, if an earlier version asked."""
    record, former = journal.record(question.position), question.former
    if record is None or former is None or record.digest != former:
        return question
    return attrs.evolve(question, digest=former)


@attrs.define(eq=False, kw_only=True)
class QuestionBatch(Batch):
    """Questions; those with a recorded reply are not asked again.

    Attributes:
        sources: answer the remaining questions.
        answers: account for the replies.
        missing: how many have no reply yet, beginning with that of ``first_key``.
        replies: the replies by the place of their question.
    """

    sources: AnswerSources
    answers: Answers
    missing: int = attrs.field(default=0, init=False)
    first_key: str = attrs.field(default="", init=False)
    earlier: Sequence[DeferredFault] = attrs.field(
        init=False,
        default=attrs.Factory(lambda batch: tuple(batch.answers.deferred), takes_self=True),
    )
    replies: dict[int, Reply] = attrs.field(factory=dict, init=False)
    _missing: list[tuple[int, Question, Session]] = attrs.field(factory=list, init=False)

    def add(self, question: Question) -> None:
        """Add a question, with its recorded reply if there is one; before any call is made."""
        answers, key = self.answers, question.position
        if question.former is not None:
            question = _as_recorded(question, answers.journal)
        if (bus := self.sources.watch.notices) is not None:
            bus.publish(QuestionAsked(position=key, question=question.prompt))
        answer = answers.recall(key, question.digest)
        place = len(self.replies) + len(self._missing)
        recorded: dict[str, Sequence[spending.Spending]] = {}
        if answer is None:
            session = self.sources.watch.at(key).session(tags={"scope": "reflection"})
            self._missing.append((place, question, session))
            self.first_key = self.first_key or key
            if self.sources.working is not None:
                self.sources.working(key, 0, 1)
        else:
            self.replies[place], recorded[key] = _read(answer, key)
        answers.count_recorded([key], recorded, reflections=len(recorded))
        self.missing = len(self._missing)

    def work(self, number: int) -> Callable[[], object]:
        (_, question, session), images = self._missing[number], self.sources.shown_images
        return partial(
            self.sources.watch.at(question.position).call,
            evaluated,
            self.sources.reflection,
            question.prompt if images is None else images.in_question(question),
            session=session,
            deadline=self.sources.deadline,
        )

    def take(self, number: int, outcome: Callable[[], object]) -> Record | None:
        (place, question, session), answers = self._missing[number], self.answers
        key, digest = question.position, question.digest
        response: object = None
        error: errors.PromptgraftError | None = None
        try:
            response = outcome()
        except errors.PromptgraftError as call_error:
            error = call_error
        events, model = session.select_all(object), self.sources.reflection
        spent = spending.spent_on(question.role, events, adapter_identity(model))
        if error is None:
            assert isinstance(response, PromptResponse)  # noqa: S101 - what adapters return
            text, finish_reason = joined(response.text), response.finish_reason[:_MAX_WORD_CHARS]
            if len(text) > _MAX_REPLY_CHARS:
                # A reply that is cut here is treated like one that the model did not finish.
                text, finish_reason = text[:_MAX_REPLY_CHARS], "length"
            reply = Reply(text=text, finish_reason=finish_reason)
        else:
            answers.record_failed(key, digest, spent)
            reply, spent = _failed_reply(error, key), ()
        self.replies[place] = reply
        answers.ledger.count(answers.newly_paid(key, spent), reflections=1)
        answer: Json = {**attrs.asdict(reply), "spent": spending.spent_to_json(spent)}
        if reply.fault:
            answers.defer(key, digest, answer)
            return None
        return Record(key, digest, "reflection", answer)


def _failed_reply(error: errors.PromptgraftError, position: str) -> Reply:
    """Return the reply to a question whose call failed, or raise the error if it ends the run."""
    if isinstance(error, errors.CallerError):
        error.at(position)
    # After a permanent fault, every further question would fail for the same reason.
    ends_run = isinstance(error, errors.PermanentProviderError)
    if ends_run or not isinstance(error, errors.ProviderError | errors.CandidateError):
        raise error
    fault = clip(joined(str(error)), _MAX_FAULT_CHARS, around=" ") or "no reason given"
    return Reply(text="", finish_reason="", fault=fault)


def _read(answer: Json, position: str) -> tuple[Reply, tuple[spending.Spending, ...]]:
    match answer:
        case {
            "text": str(text),
            "finish_reason": str(finish_reason),
            "fault": str(fault),
            "spent": list(spent),
        }:
            reply = Reply(text=text, finish_reason=finish_reason, fault=fault)
            return reply, spending.spent_from_json(spent, position)
    raise errors.JournalCorruptError(
        f"the journal's record `{position}` is no reflection; restore the journal"
    )
