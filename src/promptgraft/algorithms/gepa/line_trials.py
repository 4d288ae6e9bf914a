"""Trials that leave out one line of a candidate each, on examples where the loss could hurt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

import attrs

from promptgraft.algorithms.gepa.redundant import Line
from promptgraft.search.asks import Asking, Rollouts, Together
from promptgraft.search.scores import Score, Scorer
from promptgraft.targets.types import Candidate, GepaExample, Module

TRIALS = 3
"""Most training examples that leaving out a line is tried on."""
_STAGES = (slice(1), slice(1, TRIALS))
"""Which of them at a time: a line that fails the first needs no other, and each stage waits."""


@attrs.define(eq=False)
class Spare:
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

    @property
    def name(self) -> tuple[str, str]:
        """The same for the same line in the same part of other candidates."""
        module, line = self.at
        return module.name, line.key


Verdicts = Mapping[tuple[str, str], bool]
"""Whether lines can be left out, by their part and key."""

_Pairs = Sequence[tuple[Spare, GepaExample]]
"""Lines, each with the example that it is tried on."""


@attrs.define(kw_only=True)
class LineTrials:
    """Trials of lines of a candidate. They depend on nothing that the search learns meanwhile.

    Attributes:
        position: where in the run.
        parent: the candidate.
        spares: the lines.
        known: its scores on training examples, by example.
        lowest: the lowest score seen.
        chance: the loss up to which chance is assumed.
        room: rollouts that the trials may still use.
        scorer: reads the scores of answers.
        found: scores of the candidate on examples that it was not known for.
    """

    position: str
    parent: Candidate
    spares: Sequence[Spare]
    known: Mapping[str, float]
    lowest: float
    chance: float
    room: int
    scorer: Scorer
    found: dict[str, float] = attrs.field(factory=dict, init=False)

    def run(self) -> Asking[Verdicts]:
        """Try the lines, as many as there is room for; return which can be left out.

        The result has the lines that were tried. If the candidate fails all
        examples of a line, nothing is known about it, and it stays.
        """
        tried: list[Spare] = []
        left = self.spares
        for stage in _STAGES:
            asked = self._affordable(left, stage)
            if not stage.start:
                tried = left = [one for one in left if any(one is each for each, _ in asked)]
            hurt = yield from self._try(asked)
            left = [one for one in left if one not in hurt]
        return {one.name: one in left and one.is_proven for one in tried}

    def _affordable(self, spares: Sequence[Spare], stage: slice) -> _Pairs:
        asked: list[tuple[Spare, GepaExample]] = []
        lacking = set[str]()
        for one in spares:
            for example in one.examples[stage]:
                more = set() if self._score(example) is not None else {example.id}
                if len(asked) + 1 + len(lacking | more) <= self.room:
                    asked.append((one, example))
                    lacking |= more
        self.room -= len(asked) + len(lacking)
        return asked

    def _try(self, asked: _Pairs) -> Asking[list[Spare]]:
        """Return the lines whose loss hurts, or may, on the examples that they are tried on."""
        lacking = {one.id: one for _, one in asked if self._score(one) is None}
        own, *made = yield from Together(
            [
                on(f"{self.position}/0/best", self.parent, *lacking.values()),
                *(
                    on(f"{self.position}/{one.number}/line", one.candidate, example)
                    for one, example in asked
                ),
            ]
        )
        scores = zip(lacking, map(self.scorer.score, own), strict=True)
        self.found.update({name: score for name, score in scores if score is not None})
        hurt = []
        for (one, example), (record,) in zip(asked, made, strict=True):
            before, after = self._score(example), self.scorer.score(record)
            if before is None or after is None or before - after > self.chance:
                hurt.append(one)
            else:
                # There was something to lose.
                one.is_proven |= before > self.lowest + self.chance
        return hurt

    def _score(self, example: GepaExample) -> Score:
        return self.found.get(example.id, self.known.get(example.id))


def holding(verdicts: Verdicts, lines: Set[tuple[str, str]]) -> Verdicts:
    """Return what is true of the lines of another candidate too: all of it, or nothing.

    A line that was not needed beside another may be needed where the other is missing.
    """
    return verdicts if verdicts.keys() <= lines else {}


def on(position: str, candidate: Candidate, *examples: GepaExample) -> Rollouts:
    """Return rollouts on examples that may be others when a run is resumed."""
    # Keyed by example, since another budget may ask for other examples at this position.
    return Rollouts(position=position, candidate=candidate, examples=examples, by_example=True)
