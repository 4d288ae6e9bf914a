"""Shortens the best candidate at the end of a search by dropping lines that it does not need.

Each line that the search added is first left out alone, on training examples where that could hurt;
redundant lines are out from the start. These and the lines whose loss did not hurt are then left
out together, again on such examples, and those that concern an example that got worse are restored.
The result races the best candidate and replaces it unless it is worse by more than a margin; if it
is, half of the lines are tried instead.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import islice

import attrs

from promptgraft.algorithms.gepa.line_trials import TRIALS, LineTrials, Spare, Verdicts, holding, on
from promptgraft.algorithms.gepa.proposal import Proposal
from promptgraft.algorithms.gepa.redundant import Line, lines_of, replaced, without
from promptgraft.search.algorithm import Kit
from promptgraft.search.asks import Asking, Branch, Join, Rollouts, Start, Together
from promptgraft.search.population import Seen
from promptgraft.search.scores import Score, is_behind, paired_gains
from promptgraft.search.validation import Entry, Validator
from promptgraft.targets.base import InvalidProposalError
from promptgraft.targets.types import Candidate, GepaExample, Module
from promptgraft.text import folded_words

_CHANCE = 0.15
"""Share of the score range below which a loss counts as chance."""

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

    def score_of(self, candidate: Candidate) -> Score:
        """Return the latest score of a candidate; None without one."""
        return next((one for by, one in reversed(self.scores) if by == candidate.digest), None)


@attrs.define(kw_only=True)
class Shortener:
    """Makes the best candidate shorter.

    Attributes:
        margin: how much worse a shorter text may be; None to shorten nothing.
        kept: rollouts of the budget that are reserved for shortening.
        kit: what the search works with.
        seen: the candidates tried so far; shortened ones are added to it.
        validator: adds shortened candidates to the population.
        is_early: whether single lines are tried before it is certain which candidate is the best:
            this takes less time, and more rollouts if another one is.
    """

    margin: float | None
    kept: int
    kit: Kit
    seen: Seen
    validator: Validator
    is_early: bool = False
    _tried: dict[str, _Tried] = attrs.field(factory=dict, init=False)
    _can_go: Verdicts = attrs.field(factory=dict, init=False)
    _begun: tuple[LineTrials, Branch[Verdicts]] | None = attrs.field(default=None, init=False)
    _entry: Entry = attrs.field(init=False)
    _keys: dict[str, frozenset[tuple[str, str]]] = attrs.field(factory=dict, init=False)

    def learn(self, proposal: Proposal) -> None:
        """Record the rollouts of a proposal, which show where the loss of a line could hurt."""
        if proposal.compared is None:
            return
        lesson = proposal.known.lesson
        for number, records in enumerate(proposal.compared.batches):
            candidate = proposal.child if number % 2 else lesson.candidate
            if candidate.digest not in self._keys:
                self._keys[candidate.digest] = self._keys_of(candidate)
            for record in records:
                score, found = self.kit.scorer.score(record), record.feedback
                is_old = number == 0 and record.example_id in lesson.known
                if score is not None and found is not None and not is_old:
                    tried = self._tried.setdefault(record.example_id, _Tried())
                    tried.words.update(folded_words(f"{record.inputs_repr} {found.feedback}"))
                    tried.scores.append((candidate.digest, score))

    def gives_back(self) -> bool:
        """Release reserve beyond the need of the best candidate; return whether there was any."""
        if self._begun is not None:
            return False
        lines = len(self._added(self._parent))
        # Two sides of a race, and what lines take on average: most fail their first trial.
        needed = 2 * len(self.kit.validation) + TRIALS * lines if lines else 0
        surplus = max(0, self.kept - needed)
        self.kept -= surplus
        self.kit.budget.release(surplus)
        return surplus > 0

    def begin(self, step: int) -> Asking[None]:
        """Start trials of single lines beside the rest of the search, as far as reserved."""
        if self.is_early and self._begun is None and self._is_wanted:
            self.gives_back()
            # The rest is for the race.
            room = self.kept - 2 * len(self.kit.validation)
            if room > 0:
                _, others = self._split(self._parent)
                trials = self._trials(step, others, room)
                self._begun = trials, (yield from Start(trials.run(), most_questions=0))

    def end(self) -> Asking[None]:
        """Wait for the trials that were started."""
        if self._begun is None:
            return
        (trials, branch), self._begun = self._begun, None
        self._learn_of(trials, (yield from Join(branch)))
        # The search has counted them by now.
        self.kept -= branch.rollouts
        self.kit.budget.release(branch.rollouts)

    def give_up(self) -> None:
        """Forget trials that were started and given up, because the search ended early."""
        self._begun = None

    def finish(self, step: int) -> Asking[None]:
        """Shorten the best candidate, as far as the budget allows."""
        yield from self.end()
        self.kit.budget.release(self.kept)
        if not self._is_wanted:
            return
        self._entry = self.validator.begin(alone=True)
        parent = self._parent
        presumed, others = self._split(parent)
        trials = self._trials(step, others, self.kit.budget.left - self._room)
        self._learn_of(trials, (yield from trials.run()))
        proven = [*presumed, *(one for one in others if self._can_go.get(one.name))]
        spared = yield from self._try_together(proven, parent, trials.position)
        yield from self._drop(parent, [one.at for one in spared], step)

    @property
    def _is_wanted(self) -> bool:
        return self.margin is not None and self.kit.population.pool.best > 0 and bool(self._tried)

    @property
    def _parent(self) -> Candidate:
        pool = self.kit.population.pool
        return pool.candidates[pool.best]

    def _trials(self, step: int, lines: Sequence[Spare], room: int) -> LineTrials:
        """Return trials of those lines of the best candidate that were not tried yet."""
        parent, (lowest, chance) = self._parent, self._bounds()
        names = {(module.name, line.key) for module, line in self._added(parent)}
        self._can_go = holding(self._can_go, names)
        known = ((name, tried.score_of(parent)) for name, tried in self._tried.items())
        return LineTrials(
            position=f"step/{step}/shorten/{self.kit.population.pool.best}",
            parent=parent,
            spares=[one for one in lines if one.name not in self._can_go],
            known={name: score for name, score in known if score is not None},
            lowest=lowest,
            chance=chance,
            room=room,
            scorer=self.kit.scorer,
        )

    def _learn_of(self, trials: LineTrials, can_go: Verdicts) -> None:
        self._can_go = {**self._can_go, **can_go}
        for name, score in trials.found.items():
            self._tried[name].scores.append((trials.parent.digest, score))

    def _split(self, parent: Candidate) -> tuple[list[Spare], list[Spare]]:
        """Return the redundant lines of a candidate, and the others that may be left out."""
        added = self._added(parent)
        redundant = {
            line
            for module in self._modules
            for line in replaced([line for one, line in added if one == module])
        }
        # Trying these before the others would be one more wait for the slowest call.
        presumed = self._spares(parent, [at for at in added if at[1] in redundant])
        gone = [one.at for one in presumed]
        return presumed, self._spares(parent, [at for at in added if at not in gone], gone)

    def _spares(self, parent: Candidate, lines: _Dropped, gone: _Dropped = ()) -> list[Spare]:
        """Return the lines that may be left out, each alone in addition to those already gone."""
        best = self.kit.population.pool.best
        return [
            Spare(len(gone) + number, at, self._examples_of(*at), child)
            for number, at in enumerate(lines)
            if (child := self._without(parent, [*gone, at], best)) is not None
        ]

    def _try_together(
        self, spares: list[Spare], parent: Candidate, position: str
    ) -> Asking[list[Spare]]:
        """Return the lines that can be left out together, judged by an example of each."""
        scores, used = self.kit.population.scores, set[str]()
        best, (_, chance) = self.kit.population.pool.best, self._bounds()
        for _ in range(_ROUNDS):
            examples: dict[str, GepaExample] = {}
            for one in spares:
                new = (each for each in one.examples if each.id not in {*used, *examples})
                examples |= {each.id: each for each in islice(new, 1)}
            while examples and not self.kit.budget.affords(self._room + 2 * len(examples)):
                examples.popitem()
            child = self._without(parent, [one.at for one in spares], best) if examples else None
            if child is None:
                break
            used.update(examples)
            before, after = yield from Together(
                [
                    on(f"{position}/{_number(child)}/{leg}", one, *examples.values())
                    for leg, one in (("best", parent), ("line", child))
                ]
            )
            gains = zip(examples, scores(before), scores(after), strict=True)
            back = {
                one.number
                for name, with_it, without_it in gains
                if with_it is not None and without_it is not None and with_it - without_it > chance
                for one in self._about(name, spares)
            }
            spares = [one for one in spares if one.number not in back]
            if not back:
                break
        return spares

    def _about(self, name: str, spares: Sequence[Spare]) -> list[Spare]:
        """Return the lines that share the most, weighted by rarity, with an example."""
        counts = Counter(word for tried in self._tried.values() for word in tried.words)
        words, every = self._tried[name].words, 1 + len(self._tried)
        near = [
            math.fsum(
                math.log(every / counts[word]) for word in words.intersection(one.at[1].words)
            )
            for one in spares
        ]
        return [
            one for one, found in zip(spares, near, strict=True) if found and 2 * found >= max(near)
        ]

    def _drop(self, parent: Candidate, spared: _Dropped, step: int) -> Asking[None]:
        """Drop as many lines as races allow: all of them, else by halves (delta debugging)."""
        pool = self.kit.population.pool
        best, gone, groups = pool.best, list[tuple[Module, Line]](), [spared]
        while groups:
            group = groups.pop(0)
            child = self._without(parent, [*gone, *group], best) if group else None
            if child is None or child.digest in self.seen:
                continue
            if not self.kit.budget.affords(self._room):
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
        seen = [score for tried in self._tried.values() for _, score in tried.scores]
        return min(seen), _CHANCE * (max(seen) - min(seen))

    @property
    def _modules(self) -> list[Module]:
        return [one for one in self.kit.target.modules if not one.is_example]

    def _keys_of(self, candidate: Candidate) -> frozenset[tuple[str, str]]:
        texts = ((one.name, self.kit.target.text(one, candidate)) for one in self._modules)
        return frozenset((name, line.key) for name, text in texts for line in lines_of(text))

    def _added(self, parent: Candidate) -> list[tuple[Module, Line]]:
        """Return the lines that are not in the source; what users wrote is kept."""
        source = self._keys_of(self.kit.population.pool.candidates[0])
        described = [(one, self.kit.target.describe(one, parent)) for one in self._modules]
        return [
            (module, line)
            for module, found in described
            if not found.as_json
            for line in lines_of(found.text, found.placeholders)
            if (module.name, line.key) not in source
        ]

    def _examples_of(self, module: Module, line: Line) -> list[GepaExample]:
        """Return the examples where the loss of a line could hurt, the most likely first.

        They are ranked by the rare words that they share with the line, then by how well they were
        answered with the line, then by how much better than without it.
        """
        shared = {name: tried.words.intersection(line.words) for name, tried in self._tried.items()}
        counts = Counter(word for found in shared.values() for word in found)
        said = (module.name, line.key)
        holders = {digest for digest, keys in self._keys.items() if said in keys}
        ranked = []
        for name, tried in self._tried.items():
            sides: tuple[list[float], list[float]] = ([], [])
            for digest, score in tried.scores:
                sides[digest in holders].append(score)
            lacking, having = sides
            last = having[-1] if having else lacking[-1]
            gain = last - math.fsum(lacking) / len(lacking) if lacking else 0.0
            near = math.fsum(math.log((1 + len(shared)) / counts[word]) for word in shared[name])
            if near or gain > 0:
                ranked.append((-near, -last, -gain, name))
        examples = {example.id: example for example in self.kit.training}
        return [examples[name] for *_, name in sorted(ranked)[:TRIALS]]

    def _without(self, parent: Candidate, dropped: _Dropped, position: int) -> Candidate | None:
        """Return a candidate without some lines; None if one of its texts is not valid."""
        target = self.kit.target
        found, modules = parent, tuple(dict.fromkeys(module for module, _ in dropped))
        try:
            for module in modules:
                lines = (line for one, line in dropped if one == module)
                text = without(target.text(module, parent), lines)
                found = target.graft(
                    found, module, text, parents=(position,), examples=self.kit.validation
                )
        except InvalidProposalError:
            return None
        before, after = (
            sum(len(target.text(module, one)) for module in self._modules)
            for one in (parent, found)
        )
        return attrs.evolve(found, modules=modules, shortened=1 - after / before)

    def _race(self, child: Candidate, parent: Candidate, step: int) -> Asking[bool]:
        """Return whether a shorter candidate replaces the best one.

        Both are evaluated afresh, side by side: the best one was selected for its earlier scores,
        which are therefore biased upwards.
        """
        self.seen.add(child.digest)
        population, order = self.kit.population, self._entry.order
        position = f"step/{step}/shorten/{len(population.pool)}/{_number(child)}/race"
        before, after = yield from Together(
            [
                Rollouts(
                    position=f"{position}/{leg}",
                    candidate=candidate,
                    examples=[self.kit.validation[place] for place in order],
                )
                for leg, candidate in (("best", parent), ("first", child))
            ]
        )
        gains = paired_gains(population.scores(before), population.scores(after))
        wins = bool(gains) and not is_behind(gains, margin=self.margin or 0.0)
        joined = yield from self.validator.take_in(
            position,
            child,
            dict(zip(order, after, strict=True)),
            step=step,
            entry=self._entry,
            crowned=wins,
        )
        return population.pool.best == joined


def _number(candidate: Candidate) -> int:
    return int(candidate.digest[:8], 16)
