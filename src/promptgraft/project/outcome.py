"""What came of a job that was carried out, and where its winner is."""

from __future__ import annotations

import attrs

from promptgraft.errors import PromptgraftError
from promptgraft.overrides import OverrideAddress, PartDiff, Revision, RevisionedStore
from promptgraft.runs import RunFolder
from promptgraft.runs.documents import changed_parts, result_document, warnings_of
from promptgraft.search.job import OptimizationJob
from promptgraft.search.result import RunResult
from promptgraft.serde import Json


@attrs.frozen(kw_only=True)
class Outcome:
    """A job that was carried out.

    Attributes:
        job: the job, as it was run.
        dry: whether the embedded offline model answered, and nothing was kept.
        error: what ended the run, or refused its winner; None when nothing did.
        folder: where the run is kept; None for a dry run.
        failure: why files of the folder are missing; empty when none is.
        seconds: wall time, without what an earlier process took; 0 when it was not measured.
    """

    job: OptimizationJob
    dry: bool = False
    result: RunResult
    error: PromptgraftError | None = None
    folder: RunFolder | None = None
    failure: str = ""
    seconds: float = 0.0

    @property
    def address(self) -> OverrideAddress | None:
        """Prompt and tag; None when there is not one prompt."""
        if len(self.job.prompts) != 1:
            return None
        descriptor = self.job.prompt.descriptor
        return OverrideAddress(descriptor.ns, descriptor.key, self.result.tag)

    @property
    def parts(self) -> tuple[PartDiff, ...]:
        """How the winner differs from the source."""
        result = self.result
        return changed_parts(self.job.prompts, result.candidates[0].changes, result.best.changes)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is doubtful about the run and its winner, a line each."""
        return warnings_of(self.result.remarks, self.job.prompts, self.parts)

    @property
    def store(self) -> RevisionedStore | None:
        """The store with a history that holds the winner; None when there is no such thing."""
        store = self.job.context.overrides_store
        if isinstance(store, RevisionedStore) and self.result.persisted:
            return store
        return None

    @property
    def revision(self) -> Revision | None:
        """What the tag points at since the winner was stored; None where there is not one tag."""
        store, address = self.store, self.address
        return None if store is None or address is None else store.current_at(address)

    @property
    def unstored(self) -> str:
        """Why no winner is in the store; empty when one is."""
        if self.result.persisted:
            return ""
        if not self.result.found_better:
            return "nothing beat the baseline"
        if self.dry:
            return "a dry run stores nothing"
        if not (self.result.improved or self.job.config.keep_anyway):
            return f"it is {self.result.verdict}; with `keep_anyway` it is kept all the same"
        if self.error is not None:
            return str(self.error)
        if not self.job.config.persist:
            return "the job has `persist=False`"
        return "the job has no `overrides_store`"

    def document(self) -> dict[str, Json]:
        """Return what ``result.json`` says of the run, but for whole prompts."""
        result = self.result
        return result_document(
            result.ended,
            self.job.name,
            result.best.changes,
            self.parts,
            warnings=self.warnings,
            seed=self.job.config.seed,
            budget=self.job.config.budget,
            examples=len(result.pareto_ids),
        )
