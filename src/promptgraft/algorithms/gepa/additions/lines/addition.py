"""Carries lines that helped, drops those that do not work, and moves those in the wrong part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import attrs

from promptgraft.algorithms.gepa.additions.base import Addition
from promptgraft.algorithms.gepa.additions.lines.carry import LineHistory, LinePlan
from promptgraft.algorithms.gepa.additions.lines.credit import FeedbackTerms, added_lines
from promptgraft.algorithms.gepa.additions.lines.relocate import (
    MisplacedRule,
    MisplacedRules,
    Relocation,
)
from promptgraft.algorithms.gepa.attempt import Attempt, Changes, Proposer
from promptgraft.search.asks import Asking


@attrs.frozen
class _Note:
    """What an attempt does with lines, fixed when it begins.

    Attributes:
        plan: the lines to carry into its child, and those to drop.
        misplaced: the lines that it tries in other parts, instead of a reflection.
        stop_words: words that are too frequent to identify a complaint.
    """

    plan: LinePlan
    misplaced: Sequence[MisplacedRule]
    stop_words: frozenset[str]


@attrs.define(slots=False)
class Lines(Addition):
    """Learns from every child which of its lines helped.

    It does nothing if the acceptance policy repeats trials: two answers or three decide on these,
    too few for a test that asks for more.
    """

    name: ClassVar[str] = "lines"
    version: ClassVar[int] = 3

    _terms: FeedbackTerms = attrs.field(init=False, repr=False, eq=False)
    _history: LineHistory = attrs.field(init=False, repr=False, eq=False)
    _misplaced: MisplacedRules = attrs.field(init=False, repr=False, eq=False)

    def start(self) -> None:
        tools = self.tools
        self._terms = FeedbackTerms()
        self._history = LineHistory(tools.kit.target, tools.kit.scorer)
        self._misplaced = MisplacedRules(tools.kit, tools.trial_size)

    def begin(self, attempt: Attempt) -> Proposer | None:
        if self.tools.config.acceptance.max_repeats:
            return None
        plan, misplaced = self._history.of(attempt.candidate), self._misplaced.take()
        attempt.notes[self.name] = _Note(plan, misplaced, self._terms.stop_words)
        if not misplaced:
            return None
        attempt.is_reflection = False
        attempt.minibatch = tuple(dict.fromkeys(rule.example for rule in misplaced))
        return self._relocate

    def _relocate(self, attempt: Attempt) -> Asking[Changes]:
        """Try lines in other parts; parent and child are compared on their examples."""
        note: _Note = attempt.notes[self.name]
        relocation = Relocation(self.tools.kit, attempt, note.stop_words)
        changes, about = yield from relocation.run(note.misplaced)
        if not changes or self.tools.reflector.was_tried(attempt, changes[-1].candidate):
            return ()
        attempt.minibatch = about
        return changes

    def revise(self, attempt: Attempt, changes: Changes) -> Changes:
        note: _Note | None = attempt.notes.get(self.name)
        if note is None:
            return changes
        return note.plan.applied(changes, attempt, self.tools.reflector)

    def learn(self, attempt: Attempt) -> None:
        """Learn from a child which lines to carry on, to drop, and to try in other parts."""
        note: _Note | None = attempt.notes.get(self.name)
        if note is None:
            return
        if note.misplaced:
            self._misplaced.moved(gained=attempt.accepted)
        if attempt.compared is None:
            return
        before, after = attempt.compared.batches[0], attempt.compared.batches[-1]
        self._terms.learn([*before, *after])
        stop_words, history = self._terms.stop_words, self._history
        kit, changes = self.tools.kit, attempt.changes
        added = tuple(added_lines(kit, changes, before, after, stop_words=stop_words))
        history.note(note.plan, added)
        new = [record for record in before if record.example_id not in attempt.reused]
        history.learn(attempt.candidate, new, stop_words)
        history.learn(attempt.child, after, stop_words)
        if not note.misplaced:
            carried = {rule.place for rule in note.plan.carried}
            written = [line for line in added if line.rule.place not in carried]
            self._misplaced.note(written, before, attempt.minibatch)
