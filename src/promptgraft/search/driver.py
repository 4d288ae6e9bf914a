"""The engine of a run: finds the answers that a search asks for.

A run is a replay: every answer is looked for in the journal first, asked for only if it is not
there, and recorded before the search sees it. A search sees answers in the order in which it asks
for them, however many are found side by side; so it takes the same path with one worker, with
sixteen, and when it is resumed.

All of a search runs in the thread that calls :meth:`Driver.run`; workers only make calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, TypeVar

import attrs

from promptgraft.errors import (
    BudgetExhaustedError,
    CallerError,
    JournalError,
    JournalMismatchError,
    PromptgraftError,
)
from promptgraft.search.answers import Answers
from promptgraft.search.asks import (
    AnyEnded,
    Ask,
    Asking,
    Branch,
    Checkpoint,
    GiveUp,
    Join,
    Outlook,
    Question,
    Records,
    Release,
    Reply,
    Rollouts,
    Standing,
    Start,
    Together,
)
from promptgraft.search.batches import Books, QuestionBatch, RolloutBatch, Sources
from promptgraft.search.calls import Calls, Line, Made, Waits
from promptgraft.search.events import Emit, RolloutCompleted
from promptgraft.search.ledger import Ledger
from promptgraft.search.stopping import RunStoppedError, StopReason
from promptgraft.search.stops import FaultyStretch
from promptgraft.text import raised_at

T = TypeVar("T")


@attrs.define(eq=False, kw_only=True)
class Driver:
    """Runs one search.

    Attributes:
        sources: where answers come from.
        books: take account of the search and of the branches that it has joined.
        whole: counts everything that is used, branches under way included.
        calls: have the missing answers found.
        max_unscored_share: share of the rollouts that may stay unscored, 0 to 1.
        look: is called at each checkpoint for a reason to stop.
        publish: is called with every event.
        author: name of the algorithm, where it is not one of promptgraft's: what it raises is a
            fault of its caller then.
    """

    _sources: Sources
    _books: Books
    _whole: Ledger
    _calls: Calls
    _max_unscored_share: float = 1.0
    _look: Callable[[Standing], Outlook]
    _publish: Emit
    _author: str = ""
    _main: Line[Any] = attrs.field(init=False)
    _current: Line[Any] = attrs.field(init=False)
    _branches: list[Line[Any]] = attrs.field(factory=list, init=False)  # not joined yet, in order
    _branches_ended: int = attrs.field(default=0, init=False)
    _rollouts_told: int = attrs.field(default=0, init=False)
    _waiting: list[tuple[Callable[[], bool], Line[Any], Waits[None]]] = attrs.field(
        factory=list, init=False
    )

    def __attrs_post_init__(self) -> None:
        self._main = Line((), self._books, FaultyStretch(self._max_unscored_share))
        self._current = self._main

    def run(self, search: Asking[T]) -> T:
        """Run a search to its end and return what it has come to.

        What it raises is raised. Calls that are in flight then are waited for and recorded:
        they are paid for.
        """
        main: Line[T] = self._main
        try:
            with self._calls:
                self._continue(main, self._driven(main, search))
                while not main.has_ended:
                    if not self._continue_waiting():
                        self._calls.collect()
            if main.error is not None:
                raise main.error
        except JournalError as error:
            if self._author and type(error) in (JournalError, JournalMismatchError):
                mend = "asks for two things there: give each a position of its own"
                error.args = (f"{error}; in a new run, algorithm `{self._author}` {mend}",)
            raise
        return main.value

    # Lines: each is run as far as it goes without waiting.

    def _driven(self, line: Line[T], search: Asking[T]) -> Waits[None]:
        answer: object = None
        error: PromptgraftError | None = None
        while True:
            self._current = line
            try:
                ask = search.send(answer) if error is None else search.throw(error)
            except StopIteration as end:
                line.has_ended, line.value = True, end.value
                return
            except PromptgraftError as found:
                line.has_ended, line.error = True, found
                return
            except Exception as found:
                if not self._author:
                    raise
                line.has_ended, line.error = (
                    True,
                    CallerError(f"algorithm `{self._author}` raised {raised_at(found)}"),
                )
                line.error.__cause__ = found
                return
            answer = error = None
            try:
                answer = yield from self._answer(line, ask)
            except PromptgraftError as found:
                error = found

    def _continue(self, line: Line[Any], work: Waits[None]) -> None:
        for holds in work:
            if not holds():
                self._waiting.append((holds, line, work))
                return
        if line is not self._main:
            self._branches_ended += 1

    def _continue_waiting(self) -> bool:
        """Run every line that has what it waits for; return whether there was one."""
        # Earlier lines first: later ones wait for them to be joined.
        waiting, self._waiting = sorted(self._waiting, key=lambda one: one[1].number), []
        moved = False
        for holds, line, work in waiting:
            if line.is_given_up or self._main.has_ended:
                continue
            if holds():
                moved = True
                self._continue(line, work)
            else:
                self._waiting.append((holds, line, work))
        return moved

    def _answer(self, line: Line[Any], ask: Ask[Any]) -> Waits[object]:
        match ask:
            case Rollouts():
                return (yield from self._roll_out(line, [ask]))[0]
            case Question():
                return (yield from self._ask(line, [ask]))[0]
            case Together():
                return (yield from self._together(line, ask))
            case Start():
                return self._start(line, ask)
            case Release():
                self._release(ask.branch)
                return None
            case Join():
                return (yield from self._join(line, ask))
            case AnyEnded():
                before = self._branches_ended
                yield lambda: self._branches_ended > before
                return None
            case GiveUp():
                return (yield from self._give_up_branches())
            case Checkpoint():
                self._main.books.answers.journal.sync()
                return self._look(ask.standing)
        raise CallerError(f"expected something to ask for, such as Rollouts, found {ask!r}")

    def _together(self, line: Line[Any], ask: Together[Any]) -> Waits[object]:
        parts = ask.parts
        rollouts = [part for part in parts if isinstance(part, Rollouts)]
        if len(rollouts) == len(parts):
            return (yield from self._roll_out(line, rollouts, in_turns=ask.in_turns))
        questions = [part for part in parts if isinstance(part, Question)]
        if len(questions) == len(parts):
            return (yield from self._ask(line, questions))
        branches = [self._start(line, Start(iter(part))) for part in parts]
        answers: list[object] = []
        for branch in branches:
            found: object = yield from self._join(line, Join(branch))
            answers.append(found)
        return answers

    # Branches.

    def _start(self, parent: Line[Any], ask: Start[Any]) -> Line[Any]:
        parent.books.answers.accept_faults()
        self._main.stretch.add(self._main.batches)
        self._main.batches = []
        parent.started += 1
        line: Line[Any] = Line(
            (*parent.number, parent.started),
            Books(Answers(parent.books.answers.journal), self._whole.part()),
            copy(self._main.stretch),
            earlier=[other.batches for other in self._branches],
            most_questions=ask.most_questions,
        )
        self._branches.append(line)
        work = self._driven(line, ask.part)
        if ask.held:
            line.held = work
        else:
            self._continue(line, work)
        return line

    def _release(self, line: Branch[Any]) -> None:
        assert isinstance(line, Line)  # noqa: S101 - what Start is answered with
        work, line.held = line.held, None
        if work is None:
            return
        if self._calls.are_side_by_side:
            # Calls are made in the order in which they are asked for. Others wait for what the
            # releasing line asks for next, such as a race, so that goes first.
            self._waiting.append((lambda: True, line, work))
        else:
            self._continue(line, work)

    def _join(self, parent: Line[Any], ask: Join[T]) -> Waits[T]:
        line = ask.branch
        assert isinstance(line, Line)  # noqa: S101 - what Start is answered with
        yield lambda: line.has_ended
        self._branches.remove(line)
        for event in line.emitted:
            if ask.amend is None or isinstance(event, Made):
                self.emit(event, parent)
            else:
                self.emit(ask.amend(event), parent)
        parent.books.ledger.take(line.books.ledger)
        parent.books.answers.held |= line.books.answers.held
        if parent is self._main:
            parent.stretch.add(parent.batches + line.batches)
            parent.batches = []
        else:
            parent.batches += line.batches
        if line.error is not None:
            raise line.error
        found: T = line.value
        return found

    def _give_up_branches(self) -> Waits[int]:
        given_up, self._branches = self._branches, []
        for line in given_up:
            line.is_given_up = True
        pending = [one for one in self._calls.pending if one.owner in given_up]
        for one in pending:
            one.cancel()
        yield lambda: all(one.is_over for one in pending)
        return sum(line.rollouts for line in given_up)

    def _before(self, line: Line[Any]) -> list[Line[Any]]:
        """Return the branches that come before a line; those that wait for it do not."""
        return [
            other
            for other in self._branches
            if other.number < line.number and other.number != line.number[: len(other.number)]
        ]

    def emit(self, event: object, line: Line[Any] | None = None) -> None:
        """Publish an event of the search, or of a line; those of a branch wait for its joining."""
        line = line or self._current
        if line is not self._main:
            line.emitted.append(event)
        elif isinstance(event, Made):
            self._rollouts_told += 1
            self._publish(
                RolloutCompleted(
                    position=event.position, record=event.record, total_rollouts=self._rollouts_told
                )
            )
        else:
            self._publish(event)

    # Rollouts.

    def _roll_out(
        self, line: Line[Any], asked: Sequence[Rollouts], *, in_turns: bool = False
    ) -> Waits[list[Records]]:
        books = line.books
        books.answers.accept_faults()
        wanted = sum(len(ask.examples) for ask in asked)
        # Other branches may wait for rollouts that the ledger does not have yet.
        under_way = (one for one in self._calls.pending if isinstance(one.batch, RolloutBatch))
        used = self._whole.rollouts + sum(one.left for one in under_way)
        if used + wanted > self._whole.rollout_budget:
            raise RunStoppedError(
                StopReason.BUDGET, f"{wanted} more rollouts are more than the budget has left"
            )
        batch = RolloutBatch(asked, self._sources, books, in_turns=in_turns)
        yield from self._calls.make(line, batch)
        answers = [tuple(map(one.records.__getitem__, range(len(one.keys)))) for one in batch.asked]
        for one, records in zip(batch.asked, answers, strict=True):
            for key, record in zip(one.keys, records, strict=True):
                self.emit(Made(key, record), line)
            line.batches.append(tuple([record.feedback is None for record in records]))
        faults = [record.fault for of in answers for record in of if record.feedback is None]
        if faults:
            yield from self._judge(line, faults[-1])
        return answers

    def _judge(self, line: Line[Any], latest: str) -> Waits[None]:
        """Judge the latest rollouts, in the order of lines, before a line continues without them.

        Each batch is judged once, so what was found bearable is so when the run is resumed.
        """
        before = self._before(line)
        yield lambda: all(other.has_ended for other in before)
        stretch = copy(line.stretch)
        for batches in (*line.earlier, line.batches):
            stretch.add(batches)
        if stretch.is_too_faulty:
            raise RunStoppedError(
                StopReason.PROVIDER_FAILED,
                f"{stretch.unscored} of the latest {stretch.rollouts} rollouts stayed unscored; "
                f"the last: {latest}",
            )

    # Questions.

    def _ask(self, line: Line[Any], questions: Sequence[Question]) -> Waits[list[Reply]]:
        """Ask those that the limit allows, side by side; then raise if it did not allow all."""
        line.books.answers.accept_faults()
        batch = QuestionBatch(sources=self._sources, books=line.books)
        limit: BudgetExhaustedError | None = None
        for question in questions:
            try:
                if self._whole.max_reflections is not None:
                    yield from self._allow(line, batch.missing, self._whole.max_reflections)
            except BudgetExhaustedError as error:
                limit = error
                break
            batch.add(question)
        yield from self._calls.make(line, batch)
        if limit is not None:
            raise limit
        return [batch.replies[place] for place in sorted(batch.replies)]

    def _allow(self, line: Line[Any], own: int, limit: int) -> Waits[None]:
        """Wait until the lines before have asked few enough questions, or have ended."""
        before = self._before(line)

        def used() -> int | None:
            """Return the questions asked before the next one at most; None for any number."""
            found = self._main.books.ledger.reflections + own
            if line is not self._main:
                found += line.books.ledger.reflections
            for other in before:
                if other not in self._branches:
                    continue  # joined by now: counted with the search
                most = other.books.ledger.reflections if other.has_ended else other.most_questions
                if most is None:
                    return None
                found += most
            return found

        def is_settled() -> bool:
            found = used()
            allowed = found is not None and found < limit
            return allowed or all(other.has_ended for other in before)

        yield is_settled
        if (asked := used() or 0) >= limit:
            raise BudgetExhaustedError(
                f"max_reflections: {asked} of {limit} are used", limit="max_reflections"
            )
