"""From the files of a run to the candidate that is handed over."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from promptgraft.errors import ConfigError
from promptgraft.frozenmap import FrozenMap
from promptgraft.journal.records import decode_record, record_key
from promptgraft.overrides import OverrideAddress, PromptOverride, Provenance
from promptgraft.overrides.documents import read_entries
from promptgraft.project.applying.winner import Winner
from promptgraft.runs import RunFolder, RunRecord, State
from promptgraft.runs.comparing import held_out_means
from promptgraft.search.events import CandidateAdded

_BASE = "base"


@attrs.frozen(kw_only=True)
class Chosen:
    """The candidate of a run that is meant.

    Attributes:
        candidate: its number; None when the run found nothing better than its baseline.
        why_not: why there is none; empty when there is one.
    """

    candidate: int | None
    why_not: str = ""


def choose(run: RunRecord, candidate: int | None) -> Chosen:
    """Return the candidate that is meant: the one named, or else the winner of the run.

    Raises:
        ConfigError: the run has no such candidate, or has not ended.
    """
    if candidate == 0:
        raise ConfigError("--candidate: 0 is the baseline, there is nothing to apply; name another")
    if candidate is not None:
        return Chosen(candidate=_checked(run, candidate))
    if run.ended is None:
        raise ConfigError(f"run {run.id} has no winner yet: {_unfinished(run)}")
    if run.ended.improved:
        return Chosen(candidate=_checked(run, run.ended.best))
    return Chosen(candidate=None, why_not=f"nothing beat the baseline ({run.ended.stop_detail})")


def _unfinished(run: RunRecord) -> str:
    if run.state is State.RUNNING:
        return "it goes on; wait for its end, or name one of its candidates with --candidate"
    return (
        f"it was interrupted; go on with `promptgraft resume {run.id}`, or name one of its "
        "candidates with --candidate"
    )


def _checked(run: RunRecord, candidate: int) -> int:
    last = len(run.candidates) - 1
    if 0 < candidate <= last:
        return candidate
    there = f"1 to {last}" if last > 0 else "none but the baseline"
    raise ConfigError(
        f"run {run.id} has no candidate {candidate}; it has {there}: `promptgraft show {run.id}`"
    )


def winner_of(run: RunRecord, candidate: int, address: OverrideAddress) -> Winner:
    """Return a candidate as something to hand over.

    Args:
        run: the run.
        candidate: its number; 0 is the baseline.
        address: the prompt, and the tag that the run began with.

    Raises:
        ConfigError: the run is of another prompt, or its journal does not say what it began with.
        DataFormatError, JournalError: a file of the run is not what a run writes.
        OSError: a file cannot be read.
    """
    prompt = f"{address.ns}/{address.prompt_key}"
    if prompt != run.prompt:
        raise ConfigError(
            f"run {run.id} is of prompt `{run.prompt}`, the source is `{prompt}`; name the project "
            "or the job that it was made of"
        )
    empty = address.empty()
    chosen = run.candidates[candidate]
    where = f"{run.folder.events}: candidate {candidate}: entries"
    return Winner(
        run=run.id,
        candidate=candidate,
        base=_base(run.folder, empty),
        changes=read_entries(chosen.entries, empty, where=where),
        provenance=Provenance(run_id=run.id, note=_note(run, chosen), scores=_scores(run, chosen)),
    )


def _base(folder: RunFolder, empty: PromptOverride) -> PromptOverride:
    """Return what the tag held when the run began, out of the journal, without its lock."""
    with folder.journal.open("rb") as file:
        next(file, None)  # the header
        for line in file:
            if line.endswith(b"\n") and record_key(line) == _BASE:
                where = f"{folder.journal}: {_BASE}"
                return read_entries(decode_record(line).answer, empty, where=where)
    raise ConfigError(f"{folder.journal} does not say what the run began with; restore the journal")


def _note(run: RunRecord, chosen: CandidateAdded) -> str:
    return f"candidate {chosen.candidate}, {run.rollouts} rollouts, seed {run.seed}"


def _scores(run: RunRecord, chosen: CandidateAdded) -> FrozenMap[str, float]:
    found = {"baseline": run.candidates[0].mean, "best": chosen.mean, **_held_out(run, chosen)}
    return FrozenMap((name, mean) for name, mean in found.items() if mean is not None)


def _held_out(run: RunRecord, chosen: CandidateAdded) -> Mapping[str, float | None]:
    """Return the means on the held-out examples: they are known of the winner only."""
    means = held_out_means(run)
    if means is None or run.best != chosen.candidate:
        return {}
    return {"held_out_baseline": means[0], "held_out_best": means[1]}


def tag_of(run: RunRecord) -> str | None:
    """Return the tag that an ended run began with; None of another."""
    return run.ended.tag if run.ended else None
