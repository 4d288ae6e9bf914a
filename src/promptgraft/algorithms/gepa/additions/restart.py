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
from promptgraft.search.scores import paired_means
from promptgraft.targets.evidence import MOST_FAILURES

_LEAST_GAIN = 0.1
"""Gain in mean score that counts as progress: smaller ones are often luck on a few examples."""


@attrs.define(slots=False)
class Restart(Addition):
    """Asks for an instruction as if there were none, which no sentence of the old one can spoil.

    Attributes:
        after: steps without a gain of 0.1 on the validation examples that both leaders were
            evaluated on, at least 1.
    """

    name: ClassVar[str] = "restart"

    after: int = attrs.field(default=8, validator=COUNT)
    _leader: int = attrs.field(default=0, init=False, repr=False, eq=False)
    _since: int = attrs.field(default=0, init=False, repr=False, eq=False)

    def begin(self, attempt: Attempt) -> Proposer | None:
        if attempt.step.number - self._since <= self.after:
            return None
        self._since = attempt.step.number
        records = self.tools.training_rollouts.of(attempt.candidate).values()
        failures, _ = self.tools.kit.scorer.parted(records)
        return partial(self._propose, earlier=failures)

    def _propose(self, attempt: Attempt, *, earlier: Records) -> Asking[Changes | None]:
        reflector, target = self.tools.reflector, self.tools.kit.target
        modules = [module for module in reflector.turn(attempt).first if not module.is_example]
        if not modules:
            return None
        module = modules[0]
        attempt.modules = (module,)
        described = target.describe(module, attempt.candidate)
        part = module, attrs.evolve(described, text="")
        ids = {record.example_id for record in attempt.records}
        failures = [record for record in earlier if record.example_id not in ids]
        room = max(0, MOST_FAILURES - len(attempt.records))
        evidence = (*attempt.records, *failures[::-1][:room])
        draft = Draft(reflector=reflector, attempt=attempt, parts=(part,), records=evidence)
        yield from reflector.ask(attempt, [draft])
        return tuple(attrs.evolve(change, before=described) for change in draft.changes)

    def learn(self, attempt: Attempt) -> None:
        pool = self.tools.kit.population.pool
        after, before = paired_means(pool.scores[pool.best], pool.scores[self._leader])
        if after is not None and before is not None and after - before >= _LEAST_GAIN:
            self._leader, self._since = pool.best, attempt.step.number
