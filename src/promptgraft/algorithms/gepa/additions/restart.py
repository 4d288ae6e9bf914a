"""Begins anew from an empty text where the search is stuck."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import attrs

from promptgraft.algorithms.gepa.additions.base import Addition
from promptgraft.algorithms.gepa.attempt import Attempt, Changes, Proposer
from promptgraft.algorithms.gepa.reflect import Draft
from promptgraft.ground.strict.checks import COUNT
from promptgraft.search.asks import Asking, Records
from promptgraft.search.scores import mean_score, paired_gains, total_of
from promptgraft.targets.evidence import MOST_FAILURES, Evidence

_LEAST_GAIN = 0.1
"""Gain, as a share of the highest score, that counts as progress: smaller ones are often luck."""
_MOST_KNOWN = 0.5
"""Share of the highest score above which a text says too much to be written anew."""
_ANEW = Evidence(
    tried="Changes of this part gained little, so it is written anew; the outputs are those of "
    "its former text. Do not say or define again what the rest of the prompt does."
)


@attrs.define(slots=False)
class Restart(Addition):
    """Asks for an instruction as if there were none, which no sentence of the old one can spoil.

    It does so where the search is stuck at less than half of the highest score.

    Attributes:
        after: steps without a gain of a tenth of that score, at least 1.
    """

    name: ClassVar[str] = "restart"
    version: ClassVar[int] = 3

    after: int = attrs.field(default=8, validator=COUNT)
    _leader: int = attrs.field(default=0, init=False, repr=False, eq=False)
    _since: int = attrs.field(default=0, init=False, repr=False, eq=False)

    def begin(self, attempt: Attempt) -> Proposer | None:
        pool, scorer = self.tools.kit.population.pool, self.tools.kit.scorer
        gains = paired_gains(pool.scores[self._leader], pool.scores[pool.best])
        if gains and total_of(gains) >= _LEAST_GAIN * scorer.perfect * len(gains):
            self._leader, self._since = pool.best, attempt.step.number - 1
        if attempt.step.number - self._since <= self.after:
            return None
        records = self.tools.training_rollouts.of(attempt.candidate).values()
        mean = mean_score([scorer.score(record) for record in records])
        if mean is not None and mean > _MOST_KNOWN * scorer.perfect:
            return None
        self._since = attempt.step.number
        return partial(self._propose, earlier=scorer.split(records).failures)

    def _propose(self, attempt: Attempt, *, earlier: Records) -> Asking[Changes | None]:
        reflector, target = self.tools.reflector, self.tools.kit.target
        module = next((part for part in reflector.turn(attempt).first if not part.is_example), None)
        if module is None:
            return None
        attempt.modules = (module,)
        described = target.describe(module, attempt.candidate)
        part = module, attrs.evolve(described, text="")
        ids = {record.example_id for record in attempt.records}
        further = [record for record in earlier[::-1] if record.example_id not in ids]
        room = max(0, MOST_FAILURES - len(ids))
        records = (*attempt.records, *further[:room])
        draft = Draft(
            reflector=reflector,
            attempt=attempt,
            parts=(part,),
            records=records,
            evidence=_ANEW,
            shows_all=True,
        )
        yield from reflector.ask(attempt, [draft])
        return tuple(attrs.evolve(change, before=described) for change in draft.changes)
