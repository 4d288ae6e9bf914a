"""What became of a job."""

from __future__ import annotations

from pathlib import Path

import attrs

from promptgraft.cli.stored import override_file, revision_json_or_none
from promptgraft.overrides import (
    LocalPromptOverridesStore,
    OverrideAddress,
    PartDiff,
    Revision,
    diff_override,
)
from promptgraft.runs import RunFolder
from promptgraft.runs.documents import result_document
from promptgraft.search import PersistenceScope
from promptgraft.search.job import OptimizationJob
from promptgraft.search.result import RunResult
from promptgraft.serde import Json


@attrs.frozen(kw_only=True)
class Outcome:
    """A job that was carried out.

    Attributes:
        job: the job, as it was run.
        dry: whether it was a dry run.
        result: what the run found.
        problem: why the store refused the winner; empty when it did not.
        folder: where the run is kept; None for a dry run.
        seconds: wall time of the command; what an earlier one took is not in it.
    """

    job: OptimizationJob
    dry: bool
    result: RunResult
    problem: str
    folder: RunFolder | None = None
    seconds: float

    @property
    def prompt(self) -> str:
        """The prompt as the command line names it."""
        return f"{self.address.ns}/{self.address.prompt_key}"

    @property
    def address(self) -> OverrideAddress:
        """Prompt and tag."""
        descriptor = self.job.prompt.descriptor
        return OverrideAddress(descriptor.ns, descriptor.key, self.job.context.overrides_tag)

    @property
    def parts(self) -> tuple[PartDiff, ...]:
        """How the winner differs from the source."""
        return diff_override(self.job.prompt, self.result.best_override)

    @property
    def local_store(self) -> LocalPromptOverridesStore | None:
        """The store on disk that holds the winner; None when there is no such thing."""
        store = self.job.context.overrides_store
        kept = self.result.persisted and isinstance(store, LocalPromptOverridesStore)
        return store if kept and isinstance(store, LocalPromptOverridesStore) else None

    @property
    def file(self) -> Path | None:
        """The file of the store that holds the winner; None without a store on disk."""
        store = self.local_store
        return None if store is None else override_file(store, self.address)

    @property
    def revision(self) -> Revision | None:
        """What the tag points at since the winner was stored; None without a store on disk."""
        if self.local_store is None:
            return None
        address = self.address
        return self.local_store.current(
            ns=address.ns, prompt_key=address.prompt_key, tag=address.tag
        )

    @property
    def unstored(self) -> str:
        """Why no winner is in the store; empty when one is."""
        if self.result.persisted:
            return ""
        if not self.result.improved:
            return "nothing beat the baseline"
        if self.dry:
            return "a dry run stores nothing"
        if self.problem:
            return self.problem
        config = self.job.config
        if not config.persist:
            return "the job has `persist=False`"
        if config.persist_scope is PersistenceScope.SESSION:
            return "the job keeps it in a session only"
        return "the job has no `overrides_store`"


def outcome_json(outcome: Outcome) -> dict[str, Json]:
    """Return the outcome for machines; money is a decimal number as text."""
    document = result_document(
        outcome.result.ended,
        outcome.job.prompt,
        outcome.result.best_override,
        seed=outcome.job.config.seed,
        budget=outcome.job.config.rollout_budget,
        examples=len(outcome.result.pareto_ids),
    )
    return {
        **document,
        "dry_run": outcome.dry,
        "stored": _stored_json(outcome, outcome.local_store),
    }


def _stored_json(outcome: Outcome, store: LocalPromptOverridesStore | None) -> dict[str, Json]:
    return {
        "tag": outcome.address.tag,
        "persisted": outcome.result.persisted,
        "store": None if store is None else str(store.root_path),
        "file": None if outcome.file is None else str(outcome.file),
        "revision": revision_json_or_none(outcome.revision),
        "problem": outcome.unstored or None,
    }
