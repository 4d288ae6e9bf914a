"""System-aware merge (algorithm 4): which pairs are merged, how merges are tested, what is kept."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from operator import itemgetter

import attrs

from promptgraft.algorithms.gepa.settings import GepaSettings
from promptgraft.ground.text import counted
from promptgraft.search.algorithm import Kit
from promptgraft.search.asks import Asking, Rollouts
from promptgraft.search.events import MergeAccepted, MergeAttempted, MergeRejected
from promptgraft.search.population import Pool, Seen
from promptgraft.search.scores import Score, beats, paired_gains, total_of
from promptgraft.search.validation import Entrant, Validator
from promptgraft.targets.base import InvalidProposalError, RejectionReason
from promptgraft.targets.types import Candidate, RolloutRecord

_SUBSAMPLE = 5
"""Validation examples of the first test of a merge, as many as gepa takes."""


@attrs.define(kw_only=True, eq=False)
class Merger:
    """Merges candidates of the frontier.

    Attributes:
        config: the settings.
        kit: what the search works with.
        seen: the candidates tried so far; merges are added to it.
        validator: adds merges that are kept to the population.
        largest: most rollouts that the next merge can use.
    """

    _config: GepaSettings
    _kit: Kit
    _seen: Seen
    _validator: Validator
    _seen_triples: set[Triple] = attrs.field(factory=set, init=False)
    _attempts: int = attrs.field(default=0, init=False)
    _random: random.Random = attrs.field(init=False)
    largest: int = attrs.field(init=False)

    @_random.default
    def _own_stream(self) -> random.Random:
        return random.Random(f"{self._config.seed}/merges")

    @largest.default
    def _first_largest(self) -> int:
        return len(self._kit.validation)

    def attempt(self, pool: Pool, step: int) -> Asking[None]:
        """Merge one pair that has not been merged yet, if there is one.

        The merge is evaluated on a few examples on which its parents differ, then on the rest of
        the validation set. It joins the pool if neither parent beats it on either.
        """
        most = self._config.strategy.max_merge_invocations
        chosen = self._next(pool) if self._attempts < most else None
        if chosen is None:
            return
        self._kit.budget.require(
            len(self._kit.validation) + self._validator.overhead, "two candidates are to be merged"
        )
        triple, merged = chosen
        self._attempts += 1
        # No later merge: what was reserved for one is free for further steps.
        if self._attempts == most:
            self.largest = 0
        self._seen.add(merged.digest)
        better, worse = merged.parents
        self._kit.emit(
            MergeAttempted(step=step, ancestor=triple.ancestor, better=better, other=worse)
        )
        yield from self._try(pool, merged, step)

    def _next(self, pool: Pool) -> tuple[Triple, Candidate] | None:
        untried = [
            triple
            for triple in triples(pool.candidates, pool.frontier())
            if triple not in self._seen_triples
        ]
        for triple in self._random.sample(untried, len(untried)):
            self._seen_triples.add(triple)
            pair = pool.scores[triple.first], pool.scores[triple.second]
            if not have_gained(pool.scores[triple.ancestor], pair):
                continue
            better, worse = triple.first, triple.second
            if beats(pair[1], pair[0]):  # the elder wins a tie
                better, worse = worse, better
            if len(self._validator.common(*pair)) < self._config.strategy.merge_overlap:
                continue
            base, first, second = (pool.candidates[at] for at in (triple.ancestor, better, worse))
            try:
                merged = self._kit.target.merge(
                    base, first, second, parents=(better, worse), examples=self._kit.validation
                )
            except InvalidProposalError:
                continue
            if merged.digest not in self._seen:
                return triple, merged
        return None

    def _try(self, pool: Pool, merged: Candidate, step: int) -> Asking[None]:
        better, worse = merged.parents
        parent_scores = (pool.scores[better], pool.scores[worse])
        common = self._validator.common(*parent_scores)
        first = self._subsample(common, *parent_scores)
        rest = [position for position in common if position not in first]
        records: dict[int, RolloutRecord] = {}
        # On a few examples first, because most merges fail there.
        for name, where, compared in (("merge", first, first), ("merge/rest", rest, common)):
            examples = [self._kit.validation[place] for place in where]
            rollouts = yield from Rollouts(
                position=f"step/{step}/{name}", candidate=merged, examples=examples
            )
            records.update(zip(where, rollouts, strict=True))
            scores = self._kit.population.scores([records[place] for place in compared])
            if fault := _fault(scores, parent_scores, compared):
                self._kit.emit(
                    MergeRejected(
                        step=step,
                        parents=(better, worse),
                        reason=RejectionReason.NOT_BETTER,
                        detail=fault,
                    )
                )
                return
        entry = self._validator.begin(alone=True)
        entrant = Entrant(candidate=merged, step=step, entry=entry, records=records)
        position = yield from self._validator.validate(f"step/{step}/merge/race", entrant)
        self._kit.emit(
            MergeAccepted(
                step=step,
                candidate=position,
                parents=(better, worse),
                pareto_mean=pool.estimate(position),
                best_pareto_mean=pool.estimate(pool.best),
            )
        )

    def _subsample(
        self, common: Sequence[int], first: Sequence[Score], second: Sequence[Score]
    ) -> list[int]:
        """Choose a few of the ``common`` examples, balanced between wins, losses and ties."""
        chosen: list[int] = []
        for group in won_lost_tied(common, first, second):
            free = min(-(-_SUBSAMPLE // 3), _SUBSAMPLE - len(chosen))  # a third, rounded up
            chosen += self._random.sample(group, min(free, len(group)))
        unchosen = [position for position in common if position not in chosen]
        free = min(_SUBSAMPLE - len(chosen), len(unchosen))
        return sorted(chosen + self._random.sample(unchosen, free))


def _fault(
    scores: Sequence[Score], parents: tuple[Sequence[Score], Sequence[Score]], places: Sequence[int]
) -> str:
    """Return why a merge with these scores at some places is not kept; empty if it is."""
    examples = counted(len(places), "validation example")
    if all(score is None for score in scores):
        return f"no score on {examples}"
    if any(beats([parent[place] for place in places], scores) for parent in parents):
        return f"a parent scores higher on {examples}"
    return ""


_MAX_PARTNERS = 20
"""Members of the frontier that are paired; pairs, and the search for ancestors, grow with it."""


@attrs.frozen
class Triple:
    """Two candidates and the ancestor that they share.

    Attributes:
        ancestor: position of the ancestor; neither of the two.
        first: position of the elder.
        second: position of the younger.
    """

    ancestor: int
    first: int
    second: int


def ancestors_of(candidates: Sequence[Candidate], position: int) -> frozenset[int]:
    """Return the positions of all ancestors, without the candidate itself."""
    ancestors: set[int] = set()
    waiting = list(candidates[position].parents)
    while waiting:
        ancestor = waiting.pop()
        if ancestor not in ancestors:
            ancestors.add(ancestor)
            waiting.extend(candidates[ancestor].parents)
    return frozenset(ancestors)


def triples(candidates: Sequence[Candidate], frontier: Mapping[int, int]) -> Iterator[Triple]:
    """Yield the pairs of the frontier that may be merged, with each of their common ancestors.

    Neither of a pair descends from the other. Of a large frontier, the members with the
    greatest weights take part, the elder first.
    """
    heaviest = sorted(frontier.items(), key=itemgetter(1), reverse=True)[:_MAX_PARTNERS]
    lines = {position: ancestors_of(candidates, position) for position, _ in heaviest}
    for first, second in combinations(sorted(lines), 2):  # by age, whatever their weights
        if first not in lines[second]:
            for ancestor in sorted(lines[first] & lines[second], reverse=True):  # youngest first
                yield Triple(ancestor, first, second)


def have_gained(ancestor: Sequence[Score], pair: Sequence[Sequence[Score]]) -> bool:
    """Return whether neither of a pair has a lower mean than their ancestor.

    Each is compared with it on the examples that both have scores for. One that has none in common
    with it has not shown a gain, unless the ancestor has no score at all.
    """
    is_scored = any(score is not None for score in ancestor)
    common = [paired_gains(ancestor, scores) for scores in pair]
    return not is_scored or all(gains and total_of(gains) >= 0 for gains in common)


def won_lost_tied(
    places: Iterable[int], first: Sequence[Score], second: Sequence[Score]
) -> tuple[list[int], list[int], list[int]]:
    """Return the examples on which the first of two candidates is better, worse and as good.

    Both have a score for each of ``places``.
    """
    won, lost, tied = list[int](), list[int](), list[int]()
    for place in places:
        gain = (first[place] or 0.0) - (second[place] or 0.0)
        (won if gain > 0 else lost if gain < 0 else tied).append(place)
    return won, lost, tied
