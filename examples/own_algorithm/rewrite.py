"""An algorithm of one's own: rewrite a text a few times, and keep what does best."""

from collections.abc import Mapping
from typing import ClassVar

import attrs

from promptgraft import PromptTemplate
from promptgraft.search import (
    PART_QUESTIONS,
    Asking,
    BaseSearch,
    InvalidProposalError,
    Kit,
    Rollouts,
    RunConfig,
    new_text,
    question_on,
)


class Rewriting(BaseSearch):
    """Asks for another text of the best candidate, again and again."""

    def __init__(self, kit: Kit, rewrites: int) -> None:
        """Keep the settings."""
        super().__init__(kit)
        self.rewrites = rewrites

    def run(self) -> Asking[None]:
        """Whether answers come from a model or from the journal makes no difference here."""
        kit, pool = self.kit, self.population.pool
        [module] = kit.target.modules
        yield from self.validate(kit.target.baseline())
        for step in range(1, self.rewrites + 1):
            best, parent = pool.best, pool.candidates[pool.best]
            records = yield from Rollouts(
                position=f"step/{step}/parent", candidate=parent, examples=kit.training
            )
            about = kit.target.describe(module, parent)
            reply = yield from question_on(
                f"step/{step}/reflect/0", about, records, meta_prompts=kit.questions
            )
            try:
                text = new_text(reply.text, about.text).text
                child = kit.target.graft(
                    parent, module, text, parents=(best,), examples=kit.validation
                )
            except InvalidProposalError:
                continue
            yield from self.validate(child, step=step)
            yield from self.end_step(step)


@attrs.frozen(kw_only=True)
class Rewrite(RunConfig):
    """Its settings, beside those that every run has.

    Attributes:
        rewrites: how often the text is rewritten.
    """

    algorithm: ClassVar[str] = "rewrite"
    questions: ClassVar[Mapping[str, PromptTemplate[object]]] = PART_QUESTIONS  # as they are
    rewrites: int = 3

    def search(self, kit: Kit) -> Rewriting:
        """Return a search."""
        return Rewriting(kit, self.rewrites)
