"""The outcome of a job that was run: its result, and what became of its winner."""

from __future__ import annotations

import attrs

from promptgraft.errors import PromptgraftError
from promptgraft.ground.serde import Json
from promptgraft.overrides import OverrideAddress, PartDiff, Revision, RevisionedStore
from promptgraft.runs import RunFolder
from promptgraft.runs.documents import changed_parts, result_document, warnings_of
from promptgraft.search import OptimizationJob, RunResult


@attrs.frozen(kw_only=True)
class RunOutcome:
    """A job that was run.

    Attributes:
        job: the job.
        dry: whether it ran on the embedded offline model, unrecorded.
        error: the error that ended the run or prevented storing its winner, if any.
        folder: the run directory; None for a dry run.
        failure: why files of the folder are missing; empty if none are.
        seconds: wall time of this process; 0 if it was not measured.
        is_replay: whether the journal had every answer, so that nothing was asked.
    """

    job: OptimizationJob
    dry: bool = False
    result: RunResult
    error: PromptgraftError | None = None
    folder: RunFolder | None = None
    failure: str = ""
    seconds: float = 0.0
    is_replay: bool = False

    @property
    def address(self) -> OverrideAddress | None:
        """The prompt and tag; None unless the job has exactly one prompt."""
        prompts = list(self.job.prompts.values())
        if len(prompts) != 1:
            return None
        descriptor = prompts[0].descriptor
        return OverrideAddress(descriptor.ns, descriptor.key, self.result.tag)

    @property
    def parts(self) -> tuple[PartDiff, ...]:
        """The differences between the winner and the source."""
        result = self.result
        before, after = result.candidates[0].changes, result.best.changes
        names = {module.name for candidate in result.candidates for module in candidate.modules}
        return changed_parts(self.job.prompts, before, after, names)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Doubts about the run and its winner, one line each."""
        return warnings_of(self.result.remarks, self.job.prompts, self.parts)

    @property
    def store(self) -> RevisionedStore | None:
        """The store that holds the winner, if there is one and it keeps revisions."""
        store = self.job.context.overrides_store
        if isinstance(store, RevisionedStore) and self.result.persisted:
            return store
        return None

    @property
    def revision(self) -> Revision | None:
        """The stored revision of the winner; None unless there is exactly one."""
        store, address = self.store, self.address
        return None if store is None or address is None else store.current_at(address)

    @property
    def unstored(self) -> str:
        """Why no winner was stored; empty if one was."""
        if self.result.persisted:
            return ""
        if not self.result.found_better:
            return "no new text was better than yours"
        if self.dry:
            return "a dry run stores nothing"
        if not (self.result.improved or self.job.config.keep_anyway):
            return f"it is {self.result.verdict}; with `keep_anyway` it is stored anyway"
        if self.error is not None:
            return str(self.error)
        if not self.job.config.persist:
            return "the job has `persist=False`"
        return "the job has no `overrides_store`"

    def document(self) -> dict[str, Json]:
        """Return the contents of ``result.json``, without whole prompts."""
        result = self.result
        return result_document(
            result.ended,
            self.job.name,
            result.best.changes,
            self.parts,
            warnings=self.warnings,
            seed=self.job.config.seed,
            budget=self.job.config.budget,
            kept_rewrites=self.result.kept_rewrites,
            examples=len(result.pareto_ids),
        )
