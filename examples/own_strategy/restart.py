"""An addition of one's own: begin anew from an empty text when nothing has improved for long."""

from typing import ClassVar

import attrs

from promptgraft.algorithms.gepa import Addition, Attempt, Changes, Proposer
from promptgraft.ground.strict.checks import COUNT
from promptgraft.search import Asking


@attrs.define(slots=False)
class Restart(Addition):
    """Asks for a text as if there were none, after some steps without a better candidate.

    Attributes:
        after: how many steps.
    """

    name: ClassVar[str] = "restart"

    after: int = attrs.field(default=10, validator=COUNT)

    def start(self) -> None:
        """Count from the first step."""
        self.best: int = 0
        self.last: int = 0

    def begin(self, attempt: Attempt) -> Proposer | None:
        """Decide when the step begins, so that overlapping steps take the same path."""
        if attempt.step.number - self.last <= self.after:
            return None
        self.last = attempt.step.number
        return self.propose

    def propose(self, attempt: Attempt) -> Asking[Changes]:
        """Reflect on the module whose turn it is, shown without its text."""
        reflector = self.tools.reflector
        [module, *_] = attempt.turn.first
        described = self.tools.kit.target.describe(module, attempt.candidate)
        empty = attrs.evolve(described, text="")
        attempt.modules = (module,)
        draft = reflector.draft(attempt, ((module, empty),), attempt.records)
        yield from reflector.ask(attempt, [draft])
        return draft.changes

    def learn(self, attempt: Attempt) -> None:
        """Begin to count again where there is a new best candidate."""
        best = self.tools.kit.population.pool.best
        if best != self.best:
            self.best, self.last = best, attempt.step.number
