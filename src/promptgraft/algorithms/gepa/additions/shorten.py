"""Shortens the best candidate at the end of a search by dropping lines that it does not need.

Each line that the search added is first left out alone, on training examples where that could hurt;
redundant lines are out from the start. These and the lines whose loss did not hurt are then left
out together, again on such examples, and those that concern an example that got worse are restored.
The result races the best candidate and replaces it unless it is worse by more than a margin; if it
is, half of the lines are tried instead.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import ClassVar

import attrs

from promptgraft.algorithms.gepa.additions.base import Addition
from promptgraft.algorithms.gepa.attempt import Attempt
from promptgraft.ground.strict.checks import SHARE
from promptgraft.ground.text import folded_words
from promptgraft.search.asks import Asking, Rollouts, Together
from promptgraft.search.scores import Score, Scorer, is_behind, paired_gains
from promptgraft.search.validation import PoolEntry
from promptgraft.targets.base import InvalidProposalError
from promptgraft.targets.text_lines import Line, inverse_frequencies, lines_of, replaced, without
from promptgraft.targets.types import Candidate, GepaExample, Module

_NOTHING_UP_TO = 1_000
"""Rollouts of the budget of which none are reserved."""
_ONE_IN = 6
"""One of this many further rollouts is reserved."""
_MOST = 300
"""Most rollouts that are reserved, besides those of a race."""
_CHANCE = 0.15
"""Share of the score range below which a loss counts as chance."""
_TRIALS = 3
"""Most training examples that leaving out a line is tried on."""
_STAGES = (slice(1), slice(1, _TRIALS))
"""Which of them at a time: a line that fails the first needs no other, and each stage waits."""
_ROUNDS = 3
"""Most times that lines are left out together before the result races."""

_Dropped = Sequence[tuple[Module, Line]]


@attrs.define
class _Tried:
    """What is known about a training example.

    Attributes:
        words: the words of its input and of the feedback to all of its answers.
        scores: the scores of its answers with the digests of their candidates, in order.
    """

    words: set[str] = attrs.field(factory=set)
    scores: list[tuple[str, float]] = attrs.field(factory=list)


@attrs.define(eq=False)
class RemovableLine:
    """A line that a candidate may not need.

    Attributes:
        number: its index among all of them.
        at: the part that contains it, and the line.
        examples: training examples where its loss could hurt, the most likely first.
        candidate: the candidate without it and without the redundant lines.
        is_proven: whether its loss did not hurt on an example that was answered well.
    """

    number: int
    at: tuple[Module, Line]
    examples: Sequence[GepaExample]
    candidate: Candidate
    is_proven: bool = False


_Pairs = Sequence[tuple[RemovableLine, GepaExample]]
"""Lines, each with the example that it is tried on."""


@attrs.define(kw_only=True)
class LineTrials:
    """Trials that leave out one line of a candidate each, where the loss could hurt.

    Attributes:
        position: where in the run.
        parent: the candidate.
        examples: what is known about training examples, by id; trials add scores that it lacks.
        lowest: the lowest score seen.
        chance: the loss up to which chance is assumed.
        room: rollouts that the trials may still use.
        scorer: reads the scores of answers.
    """

    position: str
    parent: Candidate
    examples: Mapping[str, _Tried]
    lowest: float
    chance: float
    room: int
    scorer: Scorer

    def run(self, lines: Sequence[RemovableLine]) -> Asking[list[RemovableLine]]:
        """Try the lines, as many as there is room for; return those that can be left out.

        If the candidate fails all examples of a line, nothing is known about it, and it stays.
        """
        for stage in _STAGES:
            pairs = self._affordable(lines, stage)
            if not stage.start:
                affordable = [line for line, _ in pairs]
                lines = [line for line in lines if line in affordable]
            hurt = yield from self._try(pairs)
            lines = [line for line in lines if line not in hurt]
        return [line for line in lines if line.is_proven]

    def _affordable(self, lines: Sequence[RemovableLine], stage: slice) -> _Pairs:
        pairs: list[tuple[RemovableLine, GepaExample]] = []
        lacking = set[str]()
        for line in lines:
            for example in line.examples[stage]:
                more = set() if self._score(example) is not None else {example.id}
                if len(pairs) + 1 + len(lacking | more) <= self.room:
                    pairs.append((line, example))
                    lacking |= more
        self.room -= len(pairs) + len(lacking)
        return pairs

    def _try(self, pairs: _Pairs) -> Asking[list[RemovableLine]]:
        """Return the lines whose loss hurts, or may, on the examples that they are tried on."""
        lacking = {example.id: example for _, example in pairs if self._score(example) is None}
        whole, *parts = yield from Together(
            [
                _on(f"{self.position}/0/best", self.parent, *lacking.values()),
                *(
                    _on(f"{self.position}/{line.number}/line", line.candidate, example)
                    for line, example in pairs
                ),
            ]
        )
        for name, score in zip(lacking, map(self.scorer.score, whole), strict=True):
            if score is not None:
                self.examples[name].scores.append((self.parent.digest, score))
        hurt = []
        for (line, example), (record,) in zip(pairs, parts, strict=True):
            before, after = self._score(example), self.scorer.score(record)
            if before is None or after is None or before - after > self.chance:
                hurt.append(line)
            else:
                # There was something to lose.
                line.is_proven |= before > self.lowest + self.chance
        return hurt

    def _score(self, example: GepaExample) -> Score:
        latest = reversed(self.examples[example.id].scores)
        return next((score for by, score in latest if by == self.parent.digest), None)


@attrs.define(slots=False)
class Shorten(Addition):
    """Drops the lines that the best candidate does not need, at the end of the search.

    Attributes:
        margin: how much worse than the best candidate a shorter one may be, and take its place, 0
            to 1.
    """

    name: ClassVar[str] = "shorten"

    margin: float = attrs.field(default=0.01, validator=SHARE)
    _kept: int = attrs.field(default=0, init=False, repr=False, eq=False)
    _tried: dict[str, _Tried] = attrs.field(factory=dict, init=False, repr=False, eq=False)
    _keys: dict[str, frozenset[tuple[str, str]]] = attrs.field(
        factory=dict, init=False, repr=False, eq=False
    )
    _entry: PoolEntry = attrs.field(init=False, repr=False, eq=False)
    _modules: list[Module] = attrs.field(init=False, repr=False, eq=False)

    def reserve(self, rollouts: int, *, least: int, validation: int) -> int:
        beyond = max(0, rollouts - max(least, _NOTHING_UP_TO))
        return min(beyond // _ONE_IN, _MOST + validation)

    def start(self) -> None:
        config = self.tools.config
        self._kept = self.reserve(
            config.budget, least=config.least_budget, validation=config.pareto_set_size
        )
        modules = self.tools.kit.target.modules
        self._modules = [module for module in modules if not module.is_example]

    def learn(self, attempt: Attempt) -> None:
        """Record its rollouts, which show where the loss of a line could hurt."""
        if attempt.compared is None:
            return
        for number, records in enumerate(attempt.compared.batches):
            candidate = attempt.child if number % 2 else attempt.candidate  # they take turns
            if candidate.digest not in self._keys:
                self._keys[candidate.digest] = self._keys_of(candidate)
            for record in records:
                score, feedback = self.tools.kit.scorer.score(record), record.feedback
                # Counted when it was made.
                is_old = number == 0 and record.example_id in attempt.reused
                if score is not None and feedback is not None and not is_old:
                    tried = self._tried.setdefault(record.example_id, _Tried())
                    tried.words.update(folded_words(f"{record.inputs_repr} {feedback.feedback}"))
                    tried.scores.append((candidate.digest, score))

    def gives_back(self) -> bool:
        """Release reserve beyond the need of the best candidate; return whether there was any."""
        lines = len(self._added(self._parent))
        # Two sides of a race, and what lines take on average: most fail their first trial.
        needed = 2 * len(self.tools.kit.validation) + _TRIALS * lines if lines else 0
        surplus = max(0, self._kept - needed)
        self._kept -= surplus
        self.tools.kit.budget.release(surplus)
        return surplus > 0

    def finish(self, steps: int) -> Asking[None]:
        """Shorten the best candidate, as far as the budget allows."""
        kit = self.tools.kit
        kit.budget.release(self._kept)
        if not kit.population.pool.best or not self._tried:
            return
        self._entry = self.tools.validator.begin(alone=True)
        parent = self._parent
        redundant, necessary = self._split(parent)
        lowest, chance = self._bounds()
        trials = LineTrials(
            position=f"step/{steps}/shorten/{kit.population.pool.best}",
            parent=parent,
            examples=self._tried,
            lowest=lowest,
            chance=chance,
            room=kit.budget.left - self._room,
            scorer=kit.scorer,
        )
        removable = yield from trials.run(necessary)
        spared = yield from self._try_together([*redundant, *removable], parent, trials.position)
        yield from self._drop(parent, [line.at for line in spared], steps)

    @property
    def _parent(self) -> Candidate:
        pool = self.tools.kit.population.pool
        return pool.candidates[pool.best]

    def _split(self, parent: Candidate) -> tuple[list[RemovableLine], list[RemovableLine]]:
        """Return the redundant lines of a candidate, and the others that may be left out."""
        added = self._added(parent)
        redundant = {
            line
            for module in self._modules
            for line in replaced([line for owner, line in added if owner == module])
        }
        # Trying these before the others would be one more wait for the slowest call.
        presumed = self._removable(parent, [at for at in added if at[1] in redundant])
        gone = [line.at for line in presumed]
        return presumed, self._removable(parent, [at for at in added if at not in gone], gone)

    def _removable(
        self, parent: Candidate, lines: _Dropped, removed: _Dropped = ()
    ) -> list[RemovableLine]:
        """Return the lines that may be left out, each alone in addition to those already gone."""
        best = self.tools.kit.population.pool.best
        return [
            RemovableLine(len(removed) + number, at, self._examples_of(*at), child)
            for number, at in enumerate(lines)
            if (child := self._without(parent, [*removed, at], best)) is not None
        ]

    def _try_together(
        self, lines: list[RemovableLine], parent: Candidate, position: str
    ) -> Asking[list[RemovableLine]]:
        """Return the lines that can be left out together, judged by an example of each."""
        scores, used = self.tools.kit.population.scores, set[str]()
        best, (_, chance) = self.tools.kit.population.pool.best, self._bounds()
        for _ in range(_ROUNDS):
            examples: dict[str, GepaExample] = {}
            for line in lines:
                new = (each for each in line.examples if each.id not in {*used, *examples})
                examples |= {each.id: each for each in islice(new, 1)}
            while examples and not self.tools.kit.budget.affords(self._room + 2 * len(examples)):
                examples.popitem()
            child = self._without(parent, [line.at for line in lines], best) if examples else None
            if child is None:
                break
            used.update(examples)
            before, after = yield from Together(
                [
                    _on(f"{position}/{_number(child)}/{leg}", tried_candidate, *examples.values())
                    for leg, tried_candidate in (("best", parent), ("line", child))
                ]
            )
            gains = zip(examples, scores(before), scores(after), strict=True)
            back = {
                line.number
                for name, with_it, without_it in gains
                if with_it is not None and without_it is not None and with_it - without_it > chance
                for line in self._about(name, lines)
            }
            lines = [line for line in lines if line.number not in back]
            if not back:
                break
        return lines

    def _about(self, name: str, lines: Sequence[RemovableLine]) -> list[RemovableLine]:
        """Return the lines that share the most, weighted by rarity, with an example."""
        weights = inverse_frequencies([example.words for example in self._tried.values()])
        words = self._tried[name].words
        near = [
            math.fsum(map(weights.__getitem__, words.intersection(line.at[1].words)))
            for line in lines
        ]
        return [
            line
            for line, nearness in zip(lines, near, strict=True)
            if nearness and 2 * nearness >= max(near)  # as near as half of the nearest
        ]

    def _drop(self, parent: Candidate, spared: _Dropped, step: int) -> Asking[None]:
        """Drop as many lines as races allow: all of them, else by halves (delta debugging)."""
        pool = self.tools.kit.population.pool
        best, gone, groups = pool.best, list[tuple[Module, Line]](), [spared]
        while groups:
            group = groups.pop(0)
            child = self._without(parent, [*gone, *group], best) if group else None
            if child is None or child.digest in self.tools.seen:
                continue
            if not self.tools.kit.budget.affords(self._room):
                return
            if (yield from self._race(child, parent, step)):
                gone += group
            elif len(group) > 1:
                groups += [group[: len(group) // 2], group[len(group) // 2 :]]

    @property
    def _room(self) -> int:
        """Rollouts that a race takes."""
        return 2 * len(self._entry.order)

    def _bounds(self) -> tuple[float, float]:
        """Return the lowest score seen, and the loss up to which chance is assumed."""
        scores = [score for tried in self._tried.values() for _, score in tried.scores]
        return min(scores), _CHANCE * (max(scores) - min(scores))

    def _keys_of(self, candidate: Candidate) -> frozenset[tuple[str, str]]:
        texts = (
            (module.name, self.tools.kit.target.text(module, candidate)) for module in self._modules
        )
        return frozenset((name, line.key) for name, text in texts for line in lines_of(text))

    def _added(self, parent: Candidate) -> list[tuple[Module, Line]]:
        """Return the lines that are not in the source; what users wrote is kept.

        So is what they defined, in whatever words.
        """
        baseline = self.tools.kit.population.pool.candidates[0]
        source = self._keys_of(baseline)
        texts = [self.tools.kit.target.text(module, baseline) for module in self._modules]
        defined = {line.label for text in texts for line in lines_of(text) if line.label}
        described = [
            (module, self.tools.kit.target.describe(module, parent)) for module in self._modules
        ]
        return [
            (module, line)
            for module, description in described
            if not description.as_json
            for line in lines_of(description.text, description.placeholders)
            if (module.name, line.key) not in source and line.label not in defined
        ]

    def _examples_of(self, module: Module, line: Line) -> list[GepaExample]:
        """Return the examples where the loss of a line could hurt, the most likely first.

        They are ranked by the rare words that they share with the line, then by how well they were
        answered with the line, then by how much better than without it.
        """
        shared = {name: tried.words.intersection(line.words) for name, tried in self._tried.items()}
        weights = inverse_frequencies(shared.values())
        named_line = (module.name, line.key)
        holders = {digest for digest, keys in self._keys.items() if named_line in keys}
        ranked = []
        for name, tried in self._tried.items():
            sides: tuple[list[float], list[float]] = ([], [])  # without the line, and with it
            for digest, score in tried.scores:
                sides[digest in holders].append(score)
            lacking, having = sides
            last = having[-1] if having else lacking[-1]
            gain = last - math.fsum(lacking) / len(lacking) if lacking else 0.0
            near = math.fsum(map(weights.__getitem__, shared[name]))
            if near or gain > 0:
                ranked.append((-near, -last, -gain, name))
        examples = {example.id: example for example in self.tools.kit.training}
        return [examples[name] for *_, name in sorted(ranked)[:_TRIALS]]

    def _without(self, parent: Candidate, dropped: _Dropped, position: int) -> Candidate | None:
        """Return a candidate without some lines; None if one of its texts is not valid."""
        target = self.tools.kit.target
        shortened, modules = parent, tuple(dict.fromkeys(module for module, _ in dropped))
        try:
            for module in modules:
                lines = (line for owner, line in dropped if owner == module)
                text = without(target.text(module, parent), lines)
                shortened = target.graft(
                    shortened, module, text, parents=(position,), examples=self.tools.kit.validation
                )
        except InvalidProposalError:
            return None
        before, after = (
            sum(len(target.text(module, candidate)) for module in self._modules)
            for candidate in (parent, shortened)
        )
        return attrs.evolve(shortened, modules=modules, shortened=1 - after / before)

    def _race(self, child: Candidate, parent: Candidate, step: int) -> Asking[bool]:
        """Return whether a shorter candidate replaces the best one.

        Both are evaluated afresh, side by side: the best one was selected for its earlier scores,
        which are therefore biased upwards.
        """
        self.tools.seen.add(child.digest)
        population, order = self.tools.kit.population, self._entry.order
        position = f"step/{step}/shorten/{len(population.pool)}/{_number(child)}/race"
        examples = [self.tools.kit.validation[place] for place in order]
        before, after = yield from Together(
            [
                Rollouts(position=f"{position}/{leg}", candidate=candidate, examples=examples)
                for leg, candidate in (("best", parent), ("first", child))
            ]
        )
        gains = paired_gains(population.scores(before), population.scores(after))
        records = dict(zip(order, after, strict=True))
        wins = bool(gains) and not is_behind(gains, margin=self.margin)
        wins &= population.beats_baseline(records)
        joined = population.join(child, records, step=step, becomes_best=wins)
        return population.pool.best == joined


def _number(candidate: Candidate) -> int:
    return int(candidate.digest[:8], 16)  # of a position: the same in a resumed run


def _on(position: str, candidate: Candidate, *examples: GepaExample) -> Rollouts:
    """Return rollouts on examples that may be others when a run is resumed."""
    # Keyed by example, since another budget may ask for other examples at this position.
    return Rollouts(position=position, candidate=candidate, examples=examples, by_example=True)
