"""An addition of one's own: try texts that somebody has written before asking for new ones."""

from collections.abc import Sequence
from typing import ClassVar

import attrs

from promptgraft.algorithms.gepa import Addition, Attempt, Changes, Proposer
from promptgraft.errors import ConfigError
from promptgraft.search import Asking
from promptgraft.search.asks import answered
from promptgraft.targets.base import InvalidProposalError


@attrs.define(slots=False)
class Drafts(Addition):
    """Tries drafts of a part, one in each of the first steps.

    Attributes:
        part: the name of the part, such as ``section bins``; by default the first that may change.
        texts: the drafts, in order.
    """

    name: ClassVar[str] = "drafts"

    part: str = ""
    texts: Sequence[str] = ()

    def start(self) -> None:
        """Find the part."""
        modules = {module.name: module for module in self.tools.kit.target.modules}
        name = self.part or next(iter(modules))
        if name not in modules:
            raise ConfigError(f"drafts.part: expected one of {', '.join(modules)}, found '{name}'")
        self.module = modules[name]

    def begin(self, attempt: Attempt) -> Proposer | None:
        """Decide by the number of the attempt, so that overlapping steps take the same path."""
        if attempt.number > len(self.texts):
            return None
        attempt.is_reflection = False
        return self.propose

    def propose(self, attempt: Attempt) -> Asking[Changes]:
        """Return the draft, checked like a text of the reflection model."""
        described = self.tools.kit.target.describe(self.module, attempt.candidate)
        draft = self.texts[attempt.number - 1]
        try:
            part = self.module, described
            change = self.tools.reflector.graft(attempt, attempt.candidate, part, draft)
        except InvalidProposalError as error:
            attempt.rejections.add(self.module.name, described.text, error, text=draft)
            return answered(())
        attempt.modules = (self.module,)
        return answered((change,))
