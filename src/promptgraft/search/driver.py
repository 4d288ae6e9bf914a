"""The engine of a run: finds the answers that a search asks for.

A run is a replay. Each answer is looked up in the journal, obtained only if it is missing, and
recorded before the search sees it. A search receives answers in the order in which it asked for
them, however many are obtained in parallel, so it takes the same path with one worker, with
sixteen, and after a resume.

The search runs entirely in the thread that calls :meth:`Driver.run`; workers only make calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, TypeVar

import attrs

from promptgraft import errors
from promptgraft.ground.functions import raised_at
from promptgraft.search import asks
from promptgraft.search.answers import Answers
from promptgraft.search.batches import AnswerSources, QuestionBatch, RolloutBatch
from promptgraft.search.calls import Calls, Made, Strand, Waits
from promptgraft.search.events import Emit, RolloutCompleted
from promptgraft.search.ledger import Ledger
from promptgraft.search.stopping import RunStoppedError, StopReason
from promptgraft.search.stops import FaultyStretch

T = TypeVar("T")


@attrs.define(eq=False, kw_only=True)
class Driver:
    """Runs one search.

    Attributes:
        sources: where answers come from.
        answers: accounts of the search and of the branches that it has joined. The whole of its
            ledger also counts branches that are still running.
        calls: obtains missing answers.
        max_unscored_share: share of the rollouts that may stay unscored, 0 to 1.
        look: returns at each checkpoint whether there is a reason to stop.
        publish: receives every event.
        author: what of the search promptgraft has not written; an unexpected exception is then
            reported as its fault. One of our own is a bug, and keeps its traceback.
    """

    _sources: AnswerSources
    _answers: Answers
    _calls: Calls
    _max_unscored_share: float = 1.0
    _look: Callable[[asks.Standing], asks.Outlook]
    _publish: Emit
    _author: str = ""
    _whole: Ledger = attrs.field(init=False)
    _main: Strand[Any] = attrs.field(init=False)
    _current: Strand[Any] = attrs.field(init=False)
    _branches: list[Strand[Any]] = attrs.field(factory=list, init=False)  # not joined, in order
    _branches_ended: int = attrs.field(default=0, init=False)
    _rollouts_published: int = attrs.field(default=0, init=False)
    _waiting: list[tuple[Callable[[], bool], Strand[Any], Waits[None]]] = attrs.field(
        factory=list, init=False
    )

    def __attrs_post_init__(self) -> None:
        self._whole = self._answers.ledger.whole or self._answers.ledger
        self._main = Strand((), self._answers, FaultyStretch(self._max_unscored_share))
        self._current = self._main

    def run(self, search: asks.Asking[T]) -> T:
        """Run a search to its end and return its result.

        Exceptions of the search are raised. Calls in flight at that moment are awaited and
        recorded, because they are paid for.
        """
        main: Strand[T] = self._main
        try:
            with self._calls:
                self._continue(main, self._drive(main, search))
                while not main.has_ended:
                    if not self._continue_waiting():
                        self._calls.collect()
            if main.error is not None:
                raise main.error
        except errors.JournalError as error:
            # Not for other subclasses: a damaged file is not the fault of the algorithm.
            if self._author and type(error) in (errors.JournalError, errors.JournalMismatchError):
                mend = "asks for two things there: give each a position of its own"
                message = f"{error}; in a new run, {self._author} {mend}"
                raise type(error)(message) from error
            raise
        return main.value

    # Scheduling: a strand runs until it has to wait.

    def _drive(self, strand: Strand[T], search: asks.Asking[T]) -> Waits[None]:
        answer: object = None
        error: errors.PromptgraftError | None = None
        while True:
            # Set each time, because other strands have run while this one waited.
            self._current = strand
            try:
                ask = search.send(answer) if error is None else search.throw(error)
            except StopIteration as end:
                strand.has_ended, strand.value = True, end.value
                return
            except errors.PromptgraftError as strand_error:
                strand.has_ended, strand.error = True, strand_error
                return
            except Exception as strand_error:
                if not self._author:
                    raise
                blamed = errors.CallerError(f"{self._author} raised {raised_at(strand_error)}")
                blamed.__cause__ = strand_error
                strand.has_ended, strand.error = True, blamed
                return
            answer = error = None
            try:
                answer = yield from self._answer(strand, ask)
            except errors.PromptgraftError as strand_error:
                # Thrown into the search at its ask, so that `try` and `finally` work there.
                error = strand_error

    def _continue(self, strand: Strand[Any], work: Waits[None]) -> None:
        for is_ready in work:
            if not is_ready():
                self._waiting.append((is_ready, strand, work))
                return
        if strand is not self._main:
            self._branches_ended += 1

    def _continue_waiting(self) -> bool:
        """Continue every strand that need not wait any longer; return whether there was one."""
        # Older strands first, because younger ones wait until they are joined.
        waiting, self._waiting = sorted(self._waiting, key=lambda wait: wait[1].number), []
        moved = False
        for is_ready, strand, work in waiting:
            if strand.is_given_up or self._main.has_ended:  # nobody waits for it
                continue
            if is_ready():
                moved = True
                self._continue(strand, work)
            else:
                self._waiting.append((is_ready, strand, work))
        return moved

    def _answer(self, strand: Strand[Any], ask: asks.Ask[Any]) -> Waits[object]:
        match ask:
            case asks.Rollouts():
                return (yield from self._make_rollouts(strand, [ask]))[0]
            case asks.Question():
                return (yield from self._ask_questions(strand, [ask]))[0]
            case asks.Together():
                return (yield from self._together(strand, ask))
            case asks.Start():
                return self._start(strand, ask)
            case asks.Release():
                self._release(ask.branch)
                return None
            case asks.Join():
                return (yield from self._join(strand, ask))
            case asks.AnyEnded():
                before = self._branches_ended
                yield lambda: self._branches_ended > before
                return None
            case asks.GiveUp():
                return (yield from self._give_up_branches())
            case asks.Checkpoint():
                self._main.answers.journal.sync()
                return self._look(ask.standing)
        raise errors.CallerError(f"expected something to ask for, such as Rollouts, found {ask!r}")

    def _together(self, strand: Strand[Any], ask: asks.Together[Any]) -> Waits[object]:
        parts = ask.parts
        rollouts = [part for part in parts if isinstance(part, asks.Rollouts)]
        if len(rollouts) == len(parts):
            return (yield from self._make_rollouts(strand, rollouts, in_turns=ask.in_turns))
        questions = [part for part in parts if isinstance(part, asks.Question)]
        if len(questions) == len(parts):
            return (yield from self._ask_questions(strand, questions))
        branches = [self._start(strand, asks.Start(iter(part))) for part in parts]
        answers: list[object] = []
        for branch in branches:
            value: object = yield from self._join(strand, asks.Join(branch))
            answers.append(value)
        return answers

    # Branches.

    def _start(self, parent: Strand[Any], ask: asks.Start[Any]) -> Strand[Any]:
        # The copy of the stretch below must count the search's own rollouts since its last join.
        self._main.stretch.add(self._main.batches)
        self._main.batches = []
        parent.started += 1
        strand: Strand[Any] = Strand(
            (*parent.number, parent.started),
            attrs.evolve(
                parent.answers, deferred=list(parent.answers.deferred), ledger=self._whole.part()
            ),
            copy(self._main.stretch),
            # The lists themselves: they grow until the branches end, and are read after that.
            earlier=[branch.batches for branch in self._branches],
            most_questions=ask.most_questions,
        )
        self._branches.append(strand)
        work = self._drive(strand, ask.part)
        if ask.released:
            self._continue(strand, work)
        else:
            strand.unreleased = work
        return strand

    def _release(self, branch: asks.Branch[Any]) -> None:
        assert isinstance(branch, Strand)  # noqa: S101 - what Start is answered with
        work, branch.unreleased = branch.unreleased, None
        if work is None:
            return
        if self._calls.are_side_by_side:
            # Calls are made in the order in which they are asked for. Other steps wait for what
            # the releasing strand asks for next, such as a race, so that goes first.
            self._waiting.append((lambda: True, branch, work))
        else:
            self._continue(branch, work)

    def _join(self, parent: Strand[Any], ask: asks.Join[T]) -> Waits[T]:
        strand = ask.branch
        assert isinstance(strand, Strand)  # noqa: S101 - what Start is answered with
        yield lambda: strand.has_ended
        self._branches.remove(strand)
        for event in strand.emitted:
            self.emit(event, parent)
        parent.answers.ledger.take(strand.answers.ledger)
        faults, joined = parent.answers.deferred, strand.answers.deferred
        # A branch begins with a copy of the faults of its parent.
        faults += [fault for fault in joined if fault not in faults and not fault.is_recorded]
        if parent is self._main:
            parent.stretch.add(parent.batches + strand.batches)
            parent.batches = []
        else:
            parent.batches += strand.batches
        if strand.error is not None:
            raise strand.error
        value: T = strand.value
        return value

    def _give_up_branches(self) -> Waits[int]:
        given_up, self._branches = self._branches, []
        for strand in given_up:
            strand.is_given_up = True
        pending = [call for call in self._calls.pending if call.owner in given_up]
        for call in pending:
            call.cancel()
        # Calls that have begun are paid for, so they are awaited and recorded.
        yield lambda: all(call.is_over for call in pending)
        return sum(strand.rollouts for strand in given_up)

    def _before(self, strand: Strand[Any]) -> list[Strand[Any]]:
        """Return the branches that precede a strand, except those that it belongs to."""
        return [
            branch
            for branch in self._branches
            if branch.number < strand.number
            and branch.number != strand.number[: len(branch.number)]
        ]

    def emit(self, event: object, strand: Strand[Any] | None = None) -> None:
        """Publish an event of the search; those of a branch are held until it is joined."""
        strand = strand or self._current
        if strand is not self._main:
            strand.emitted.append(event)
        elif isinstance(event, Made):
            self._rollouts_published += 1
            self._publish(
                RolloutCompleted(
                    position=event.position,
                    record=event.record,
                    total_rollouts=self._rollouts_published,
                )
            )
        else:
            self._publish(event)

    # Rollouts.

    def _make_rollouts(
        self, strand: Strand[Any], requests: Sequence[asks.Rollouts], *, in_turns: bool = False
    ) -> Waits[list[asks.Records]]:
        wanted = sum(len(request.examples) for request in requests)
        # Rollouts in flight are not in the ledger yet, but count towards the budget.
        in_flight = (call for call in self._calls.pending if isinstance(call.batch, RolloutBatch))
        used = self._whole.rollouts + sum(batch.left for batch in in_flight)
        # Also for algorithms of other authors, which need not check the budget themselves.
        if used + wanted > self._whole.rollout_budget:
            raise RunStoppedError(
                StopReason.BUDGET, f"{wanted} more rollouts are more than the budget has left"
            )
        batch = RolloutBatch(requests, self._sources, strand.answers, in_turns=in_turns)
        yield from self._calls.make(strand, batch, order=strand.number)
        answers: list[asks.Records] = []
        latest_fault: str | None = None
        for rollouts in batch.requested:
            # By place, because records are kept in the order in which calls ended.
            records = tuple([rollouts.records[place] for place in range(len(rollouts.keys))])
            answers.append(records)
            for key, record in zip(rollouts.keys, records, strict=True):
                self.emit(Made(key, record), strand)
                if record.feedback is None:
                    latest_fault = record.fault
            strand.batches.append(tuple([record.feedback is None for record in records]))
        if latest_fault is not None:
            yield from self._check_faults(strand, latest_fault)
        return answers

    def _check_faults(self, strand: Strand[Any], latest: str) -> Waits[None]:
        """End the run if too many of the latest rollouts are unscored.

        Waits for preceding branches, so that each batch is judged once and in order: what was
        tolerated before is tolerated again when the run is resumed.
        """
        before = self._before(strand)
        yield lambda: all(branch.has_ended for branch in before)
        stretch = copy(strand.stretch)
        for batches in (*strand.earlier, strand.batches):
            stretch.add(batches)
        if stretch.is_too_faulty:
            raise RunStoppedError(
                StopReason.PROVIDER_FAILED,
                f"{stretch.unscored} of the latest {stretch.rollouts} rollouts stayed unscored; "
                f"the last: {latest}",
            )

    # Questions.

    def _ask_questions(
        self, strand: Strand[Any], questions: Sequence[asks.Question]
    ) -> Waits[list[asks.Reply]]:
        """Ask as many questions as ``max_reflections`` allows; then raise if some are left."""
        batch = QuestionBatch(sources=self._sources, answers=strand.answers)
        limit: errors.BudgetExhaustedError | None = None
        for question in questions:
            try:
                if self._whole.max_reflections is not None:
                    yield from self._reserve(strand, batch.missing, self._whole.max_reflections)
            except errors.BudgetExhaustedError as error:
                limit = error
                break
            batch.add(question)
        yield from self._calls.make(strand, batch, order=strand.number)
        if limit is not None:
            raise limit
        return [batch.replies[place] for place in sorted(batch.replies)]

    def _reserve(self, strand: Strand[Any], in_batch: int, limit: int) -> Waits[None]:
        """Wait until preceding branches cannot use up the limit, or have ended."""
        before = self._before(strand)

        def used() -> int | None:
            """Return how many questions can precede the next one; None if that is unbounded."""
            reflections = self._main.answers.ledger.reflections + in_batch
            if strand is not self._main:
                reflections += strand.answers.ledger.reflections
            for branch in before:
                if branch not in self._branches:
                    continue  # joined meanwhile, and counted with the search
                most = (
                    branch.answers.ledger.reflections if branch.has_ended else branch.most_questions
                )
                if most is None:
                    return None
                reflections += most
            return reflections

        def is_settled() -> bool:
            amount = used()
            allowed = amount is not None and amount < limit
            return allowed or all(branch.has_ended for branch in before)

        yield is_settled
        if (amount := used() or 0) >= limit:
            raise errors.BudgetExhaustedError(
                f"max_reflections: {amount} of {limit} are used", limit="max_reflections"
            )
