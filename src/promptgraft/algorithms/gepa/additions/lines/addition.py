"""Carries lines that helped, drops those that do not work, and moves those in the wrong part.

A child with a good line is lost if another of its lines does harm, or if it loses its race by
chance. The line need not be discovered again: it is added to the following children, and tested
with them, until the parent contains it. A line that does not work, often because it stands in the
wrong part, comes along with others that do. The following children do without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

import attrs

from promptgraft.algorithms.gepa.additions.base import Addition
from promptgraft.algorithms.gepa.additions.lines import credit
from promptgraft.algorithms.gepa.additions.lines.credit import AddedLine, Place, Rule
from promptgraft.algorithms.gepa.additions.lines.relocate import (
    MisplacedRule,
    MisplacedRules,
    Relocation,
)
from promptgraft.algorithms.gepa.attempt import Attempt, Changes, Proposer
from promptgraft.ground.text import folded_words
from promptgraft.search.asks import Asking
from promptgraft.search.scores import Scorer
from promptgraft.targets.base import InvalidProposalError, Target
from promptgraft.targets.text_lines import Line, extended, lines_of, without
from promptgraft.targets.types import Candidate, Module, RolloutRecord

_MOST_TRIES = 12
"""How many children a line is carried into, or dropped from: few answers have judged it."""
_MOST_LINES = 1_000  # of which counts are kept, so that a long search does not grow
_MOST_COMPLAINTS = 8
"""How many complaints about the answers to an example are remembered."""
_CARRIED = "lines that helped in an earlier child"
_DROPPED = "without lines that do not work"


@attrs.frozen
class LinePlan:
    """What an attempt does with lines that earlier children have tried, fixed when it begins.

    Attributes:
        carried: lines to add to its child.
        idle: lines of the parent to drop.
        misplaced: the lines that it tries in other parts, instead of a reflection.
        stop_words: words that are too frequent to identify a complaint.
    """

    carried: tuple[Rule, ...] = ()
    idle: tuple[Place, ...] = ()
    misplaced: Sequence[MisplacedRule] = ()
    stop_words: frozenset[str] = frozenset()


@attrs.define
class LineHistory:
    """How the lines of all children have done."""

    target: Target
    scorer: Scorer
    _tries: Counter[Rule] = attrs.field(factory=Counter, init=False)
    _drops: Counter[Place] = attrs.field(factory=Counter, init=False)
    _credits: Counter[Place] = attrs.field(factory=Counter, init=False)
    """How often each line helped, minus the failures that complained of it."""
    _complaints: dict[str, dict[frozenset[str], None]] = attrs.field(factory=dict, init=False)
    """By example id, the last complaints about answers to it, in the order of their discovery."""
    _first: Mapping[Module, frozenset[str]] = attrs.field(init=False)
    """The keys of the lines that free texts begin with."""

    def __attrs_post_init__(self) -> None:
        target = self.target
        baseline = target.baseline()
        self._first = {
            module: frozenset(line.key for line in lines_of(target.text(module, baseline)))
            for module in target.modules
            if not (module.is_example or target.describe(module, baseline).as_json)
        }

    def note(self, plan: LinePlan, lines: Iterable[AddedLine]) -> None:
        """Record the outcome of a child.

        Args:
            plan: what it did with earlier lines.
            lines: the lines that it has and its parent lacks.
        """
        self._drops.update(plan.idle)
        self._tries.update(plan.carried)
        for line in lines:
            if line.helped:
                self._tries.setdefault(line.rule, 0)  # from now on it may be carried
                self._credits[line.rule.place] += 1
        for counts in (self._tries, self._drops, self._credits):  # in the order of their discovery
            for oldest in [*counts][:-_MOST_LINES]:
                del counts[oldest]

    def learn(
        self, candidate: Candidate, records: Iterable[RolloutRecord], stop_words: frozenset[str]
    ) -> None:
        """Judge the lines of a candidate by the examples whose complaints they address.

        A line loses credit if a failure complains of what it says. It gains credit if the example
        complained of that earlier and does no longer, and no other line of the candidate says it.

        Args:
            candidate: the candidate.
            records: new rollouts of it.
            stop_words: words that are too frequent to identify a complaint.
        """
        lines = credit.telling_words(self._lines(candidate))
        for record in records:
            if (score := self.scorer.score(record)) is None:
                continue
            earlier = self._complaints.setdefault(record.example_id, {})
            is_perfect = score >= self.scorer.perfect
            complaint = frozenset[str]()
            if not is_perfect:
                complaint = credit.feedback_words(record) - stop_words
            words = frozenset(folded_words(record.inputs_repr))
            blamed = credit.addressing(lines, complaint, words)
            self._credits.subtract(blamed)  # the prompt said so, and it did not work
            if is_perfect or complaint:
                answering = (credit.addressing(lines, complaint, words) for complaint in earlier)
                alone = dict.fromkeys(places[0] for places in answering if len(places) == 1)
                self._credits.update([place for place in alone if place not in blamed])
            if complaint:
                earlier[complaint] = None
                for oldest in [*earlier][:-_MOST_COMPLAINTS]:
                    del earlier[oldest]

    def of(self, parent: Candidate) -> LinePlan:
        """Return what the next child of a parent does with the lines."""
        lines = self._lines(parent)
        places = dict.fromkeys((module, line.key) for module in lines for line in lines[module])
        defining = {(module, line.key) for module in lines for line in lines[module] if line.label}
        # A line with less credit than an equal one in another part is idle.
        most: dict[str, int] = {}
        for place in places:
            most[_content(place)] = max(self._credits[place], most.get(_content(place), 0))
        idle = (
            place
            for place in places
            if self._credits[place] < most[_content(place)]
            and self._drops[place] < _MOST_TRIES
            and place[1] not in self._first[place[0]]  # what users wrote stays
            and place not in defining
        )
        return LinePlan(self._carried_into(places), tuple(idle))

    def _carried_into(self, places: Iterable[Place]) -> tuple[Rule, ...]:
        """Return the lines to carry into the next child of a parent that lacks them.

        Of equal lines for several parts only the one with the most credit is carried, and none if
        the parent has it in a part where it has as much.
        """
        holders: dict[str, list[Place]] = {}
        for place in places:
            holders.setdefault(_content(place), []).append(place)
        rules: dict[str, Rule] = {}
        for rule, tries in self._tries.items():
            content, credit = _content(rule.place), self._credits[rule.place]
            rivals = holders.get(content, [])
            if content in rules:
                rivals = [*rivals, rules[content].place]
            if (
                tries < _MOST_TRIES
                and credit >= 0
                and rule.place not in rivals
                and all(self._credits[rival] < credit for rival in rivals)
            ):
                rules[content] = rule
        return tuple(rules.values())

    def _lines(self, candidate: Candidate) -> dict[Module, list[Line]]:
        return {module: lines_of(self.target.text(module, candidate)) for module in self._first}


def _content(place: Place) -> str:
    """Return what a line says, whichever heading it stands below."""
    return place[1].partition("\n")[2]


@attrs.define(slots=False)
class Lines(Addition):
    """Learns from every child which of its lines helped.

    It does nothing if the acceptance policy repeats trials: two answers or three decide on these,
    too few for a test that asks for more.
    """

    name: ClassVar[str] = "lines"
    version: ClassVar[int] = 3

    _terms: credit.FeedbackTerms = attrs.field(init=False, repr=False, eq=False)
    _history: LineHistory = attrs.field(init=False, repr=False, eq=False)
    _misplaced: MisplacedRules = attrs.field(init=False, repr=False, eq=False)

    def start(self) -> None:
        tools = self.tools
        self._terms = credit.FeedbackTerms()
        self._history = LineHistory(tools.kit.target, tools.kit.scorer)
        self._misplaced = MisplacedRules(tools.kit, tools.trial_size)

    def begin(self, attempt: Attempt) -> Proposer | None:
        if self.tools.config.acceptance.max_repeats:
            return None
        misplaced, stop_words = self._misplaced.take(), self._terms.stop_words
        plan = self._history.of(attempt.candidate)
        attempt.notes[self.name] = attrs.evolve(plan, misplaced=misplaced, stop_words=stop_words)
        if not misplaced:
            return None
        attempt.is_reflection = False
        attempt.minibatch = tuple(dict.fromkeys(rule.example for rule in misplaced))
        return self._relocate

    def _relocate(self, attempt: Attempt) -> Asking[Changes]:
        """Try lines in other parts; parent and child are compared on their examples."""
        plan: LinePlan = attempt.notes[self.name]
        relocation = Relocation(self.tools.kit, attempt, plan.stop_words)
        changes, about = yield from relocation.run(plan.misplaced)
        if not changes or self.tools.reflector.was_tried(attempt, changes[-1].candidate):
            return ()
        attempt.minibatch = about
        return changes

    def revise(self, attempt: Attempt, changes: Changes) -> Changes:
        plan: LinePlan | None = attempt.notes.get(self.name)
        if plan is None:
            return changes
        target = self.tools.kit.target
        for module in dict.fromkeys(module for module, _ in plan.idle):
            text = target.text(module, changes[-1].candidate)
            idle = [line for line in lines_of(text) if (module, line.key) in plan.idle]
            shortened = without(text, idle)
            if shortened != text:
                changes = self._with_text(attempt, changes, module, shortened, reason=_DROPPED)
        for rule in plan.carried:
            before = target.text(rule.module, changes[-1].candidate)
            text = extended(before, rule.text, label=rule.label, replaces=rule.replaces)
            if text != before:
                changes = self._with_text(attempt, changes, rule.module, text, reason=_CARRIED)
        return changes

    def _with_text(
        self, attempt: Attempt, changes: Changes, module: Module, text: str, *, reason: str
    ) -> Changes:
        """Return the changes of a child with another text of a module, if that can be used."""
        reflector = self.tools.reflector
        part = module, self.tools.kit.target.describe(module, attempt.candidate)
        try:
            change = reflector.graft(attempt, changes[-1].candidate, part, text)
        except InvalidProposalError:  # the child is tried without the line
            return changes
        reasons = [change.reason for change in changes if change.module == module]
        elsewhere = (change for change in changes if change.module != module)
        return (*elsewhere, attrs.evolve(change, reason=reasons[0] if reasons else reason))

    def learn(self, attempt: Attempt) -> None:
        """Learn from a child which lines to carry on, to drop, and to try in other parts."""
        plan: LinePlan | None = attempt.notes.get(self.name)
        if plan is None:
            return
        if plan.misplaced:
            self._misplaced.moved(gained=attempt.accepted)
        if attempt.compared is None:
            return
        before, after = attempt.compared.batches[0], attempt.compared.batches[-1]
        self._terms.learn([*before, *after])
        stop_words, history = self._terms.stop_words, self._history
        kit, changes = self.tools.kit, attempt.changes
        added = tuple(credit.added_lines(kit, changes, before, after, stop_words=stop_words))
        history.note(plan, added)
        new = [record for record in before if record.example_id not in attempt.reused]
        history.learn(attempt.candidate, new, stop_words)
        history.learn(attempt.child, after, stop_words)
        if not plan.misplaced:
            carried = {rule.place for rule in plan.carried}
            written = [line for line in added if line.rule.place not in carried]
            self._misplaced.note(written, before, attempt.minibatch)
