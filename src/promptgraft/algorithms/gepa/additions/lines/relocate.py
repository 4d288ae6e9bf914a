"""Moves lines that did not help where a reflection put them to the part where they do.

A rule in the wrong part of a prompt often has no effect, and models often misplace rules. A line
that did not help with the failure that it concerns is tried on that failure alone, by binary
search: in all other parts at once, then in half of them, until one is left. This takes a few
rollouts and no reflection.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import attrs

from promptgraft.algorithms.gepa.additions.lines.credit import AddedLine, Effect
from promptgraft.algorithms.gepa.attempt import Attempt
from promptgraft.search.acceptance import Change
from promptgraft.search.algorithm import Kit
from promptgraft.search.asks import Asking, Records, Rollouts, Together
from promptgraft.targets.base import InvalidProposalError
from promptgraft.targets.part import passing
from promptgraft.targets.text_lines import lines_of, without
from promptgraft.targets.types import Candidate, GepaExample, Module, RolloutRecord

_FEW = 3
"""Relocations in a row without a gain after which fewer are tried."""


@attrs.frozen(kw_only=True)
class MisplacedRule:
    """A line that did not help where it stands.

    Attributes:
        line: the line, and what must be exceeded for it to count as helpful.
        others: the parts in which it may belong.
        example: the training example that it concerns.
    """

    line: AddedLine
    others: tuple[Module, ...]
    example: GepaExample

    @property
    def cost(self) -> int:
        """Most rollouts that finding its part can take: parent, binary search, child."""
        return 3 + math.ceil(math.log2(len(self.others)))


@attrs.define
class MisplacedRules:
    """The queue of lines to be tried in other parts.

    Attributes:
        kit: what the search works with.
        most: rollouts that one proposal may use.
    """

    kit: Kit
    most: int
    _waiting: deque[tuple[MisplacedRule, ...]] = attrs.field(factory=deque, init=False)
    _without_gain: int = attrs.field(default=0, init=False)
    _rests: int = attrs.field(default=0, init=False)

    def take(self) -> tuple[MisplacedRule, ...]:
        """Return the lines that the next proposal tries to move; empty if it is to reflect."""
        return self._waiting.popleft() if self._waiting else ()

    def moved(self, *, gained: bool) -> None:
        """Record a relocation; the longer none has helped, the fewer are tried."""
        self._without_gain = 0 if gained else self._without_gain + 1
        self._rests = max(0, self._without_gain - _FEW)

    def note(
        self, lines: Iterable[AddedLine], before: Records, about: Sequence[GepaExample]
    ) -> None:
        """Queue the lines of a proposal that did not help."""
        if self._rests:  # lines mostly stand in the right part
            self._rests -= 1
            return
        remaining, misplaced = self.most, list[MisplacedRule]()
        for line in lines:
            # A definition, or another wording of a line, is missing where it was if it is moved.
            stays = line.helped or line.rule.label or line.rule.is_rewording
            neighbours = () if stays else self._others(line.rule.module, before[line.failure])
            if not neighbours:
                continue
            rule = MisplacedRule(line=line, others=neighbours, example=about[line.failure])
            if rule.cost <= remaining:  # a cheaper one may still fit
                remaining -= rule.cost
                misplaced.append(rule)
        if misplaced:
            self._waiting.append(tuple(misplaced))

    def _others(self, module: Module, record: RolloutRecord) -> tuple[Module, ...]:
        """Return the parts of the same kind that the model was shown in that rollout."""
        return tuple(
            neighbour
            for neighbour in self.kit.target.modules
            if neighbour.kind == module.kind
            and neighbour != module
            and neighbour.owner not in record.hidden
            and passing([record], [neighbour])
        )


@attrs.define(eq=False)
class _PlaceSearch:
    """State of the binary search for the part of one line.

    Attributes:
        rule: the line.
        places: the parts that are still possible.
        tried: those of them to be tried next.
        helps: whether the line has helped in any of them.
    """

    rule: MisplacedRule
    places: tuple[Module, ...]
    tried: tuple[Module, ...]
    helps: bool = False

    def learn(self, *, helped: bool) -> None:
        """Narrow the search, given whether the line helped in ``tried``."""
        if helped:
            self.helps, self.places = True, self.tried
        else:
            # If it has helped in all of them together, it is the other half that does.
            untried = (place for place in self.places if place not in self.tried)
            self.places = tuple(untried) if self.helps else ()
        self.tried = self.places[: len(self.places) // 2]


@attrs.frozen
class Relocation:
    """Moves lines of a candidate to other parts.

    Attributes:
        kit: what the search works with.
        attempt: its parent is the candidate, its minibatch the examples that the lines concern.
        stop_words: words that are too frequent to identify a complaint.
    """

    kit: Kit
    attempt: Attempt
    stop_words: frozenset[str]

    def run(
        self, rules: Sequence[MisplacedRule]
    ) -> Asking[tuple[tuple[Change, ...], tuple[GepaExample, ...]]]:
        """Return the changes that move lines to where they help, and these lines' examples."""
        parent = self.attempt.candidate
        before = {record.example_id: record for record in self.attempt.records}
        scores = {name: self.kit.scorer.score(record) for name, record in before.items()}
        searches = [
            _PlaceSearch(rule, rule.others, rule.others)
            for rule in rules
            if (score := scores[rule.example.id]) is not None and score <= rule.line.enough
        ]
        count, waiting = 0, searches
        while waiting:
            pairs = []
            for search in waiting:
                child = self._with(parent, search.rule, search.tried)
                if child is not None:
                    where = f"{self.attempt.position}/move/{count}"
                    examples = [search.rule.example]
                    rollouts = Rollouts(position=where, candidate=child, examples=examples)
                    pairs.append((search, rollouts))
                    count += 1
            answers = yield from Together([rollouts for _, rollouts in pairs])  # side by side
            for (search, _), [after] in zip(pairs, answers, strict=True):
                rule = search.rule
                search.learn(helped=self._helped(rule, before[rule.example.id], after))
            waiting = [search for search, _ in pairs if search.tried]
        child, moved = parent, set[str]()
        for search in searches:
            if not search.helps:
                continue
            with_line = self._with(child, search.rule, search.places)
            if with_line is not None:
                child = with_line
                moved.add(search.rule.example.id)
        about = tuple(example for example in self.attempt.minibatch if example.id in moved)
        return tuple(self._changes(child)), about

    def _helped(self, rule: MisplacedRule, before: RolloutRecord, after: RolloutRecord) -> bool:
        effect = Effect.of(self.kit.scorer, before, after, stop_words=self.stop_words)
        line = rule.line
        return effect is not None and effect.is_help_of(line.words, enough=line.enough)

    def _changes(self, child: Candidate) -> Iterator[Change]:
        target, parent = self.kit.target, self.attempt.candidate
        for module in target.modules:
            text = target.text(module, child)
            if not module.is_example and text != target.text(module, parent):
                before = target.describe(module, parent)
                yield Change(module, before, text, child, "lines moved to where they help")

    def _with(
        self, onto: Candidate, rule: MisplacedRule, places: Sequence[Module]
    ) -> Candidate | None:
        """Return a candidate with the line moved to other parts; None if it is not valid."""
        target, moved = self.kit.target, rule.line.rule
        texts = {module: target.text(module, onto) for module in (*places, moved.module)}
        for module, text in texts.items():
            same_lines = [line for line in lines_of(text) if line.key == moved.key]
            if module == moved.module:
                texts[module] = without(text, same_lines)
            elif not same_lines:
                texts[module] = f"{text}\n{moved.text}"
        position, minibatch = self.attempt.step.parent, self.attempt.minibatch
        try:
            for module, text in texts.items():
                if text != target.text(module, onto):
                    onto = target.graft(onto, module, text, parents=(position,), examples=minibatch)
        except InvalidProposalError:
            return None
        return onto
