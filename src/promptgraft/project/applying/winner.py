"""The winner of a run, read from the run's files and compared with the current source.

Each entry of a winner is fresh (it applies), settled (the source says the same by now) or stale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from promptgraft.errors import ConfigError, HashMismatchError
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.serde import shown
from promptgraft.ground.text import counted, listed
from promptgraft.overrides import (
    OverrideAddress,
    PromptLike,
    PromptOverride,
    Provenance,
    SkippedOverride,
)
from promptgraft.overrides.parts.entry import Entry, SkipReason
from promptgraft.overrides.parts.validation import shown_hash
from promptgraft.overrides.resolution import resolve_override
from promptgraft.runs import RunRecord, State
from promptgraft.runs.comparing import held_out_gain
from promptgraft.runs.reading import base_of
from promptgraft.search.stopping import stop_detail
from promptgraft.targets.types import Change, read_changes


@attrs.frozen(kw_only=True)
class Winner:
    """A candidate of a run, to be applied.

    Attributes:
        base: the overrides under the tag of the run when the run began.
        changes: the entries in which the candidate differs from ``base``.
        candidates: the changes of every candidate of the run, any of which may have been applied.
        provenance: its origin, for the store.
    """

    base: PromptOverride
    changes: PromptOverride
    candidates: tuple[PromptOverride, ...] = ()
    provenance: Provenance

    @property
    def of(self) -> str:
        """The name of the prompt: ``namespace/key``."""
        return f"{self.base.ns}/{self.base.prompt_key}"

    @property
    def whole(self) -> PromptOverride:
        """The overrides that were evaluated: the base with the changes."""
        return self.base.merged_with(self.changes)

    @property
    def touched(self) -> PromptOverride:
        """The changes as a store holds them: merged with what the base says of the same tools."""
        whole = self.whole
        return whole.holding(filter(None, (whole.find(entry) for entry in self.changes.entries())))

    def beside(self, present: PromptOverride) -> PromptOverride:
        """Return the overrides under a tag that differ from the winner's."""
        whole = self.whole
        return present.holding(entry for entry in present.entries() if whole.find(entry) != entry)

    @property
    def untouched(self) -> PromptOverride:
        """The entries of the base that the winner does not change."""
        rest = [entry for entry in self.base.entries() if self.changes.find(entry) is None]
        return self.base.holding(rest)


@attrs.frozen(kw_only=True)
class Chosen:
    """The number of the chosen candidate; or None, and why there is none."""

    candidate: int | None
    why_not: str = ""


def choose(run: RunRecord, candidate: int | None, *, keep_anyway: bool) -> Chosen:
    """Choose the candidate of a number, or else the winner of the run.

    A winner that held-out examples do not confirm is chosen only with ``keep_anyway``.

    Raises:
        ConfigError: the run has no such candidate, or has not ended.
    """
    if candidate == 0:
        raise ConfigError(
            "--candidate: 0 is your prompt itself, there is nothing to apply; name another"
        )
    if candidate is not None:
        return _checked(run, candidate)
    if run.ended is None:
        raise ConfigError(f"run {run.id} has no winner yet: {_unfinished(run)}")
    best, verdict = run.ended.best, run.ended.verdict
    if run.ended.improved or (best and keep_anyway):
        return _checked(run, best)
    if not best:
        ended = stop_detail(run.ended.stop_reason, run.ended.stop_detail)
        why = f"no rewrite beat your prompt ({ended})"
        return Chosen(candidate=None, why_not=why)
    why = f"its best rewrite is {verdict}; --keep-anyway applies it"
    return Chosen(candidate=None, why_not=why)


def _unfinished(run: RunRecord) -> str:
    if run.state is State.RUNNING:
        return "it is still running; wait, or name one of its rewrites with --candidate"
    return (
        f"it was interrupted; continue it with `promptgraft resume {run.id}`, or name one of "
        "its rewrites with --candidate"
    )


def _checked(run: RunRecord, candidate: int) -> Chosen:
    last = len(run.candidates) - 1
    if 0 < candidate <= last:
        return Chosen(candidate=candidate)
    there = "none" if last < 1 else "1" if last == 1 else f"1 to {last}"
    raise ConfigError(
        f"--candidate: run {run.id} has no rewrite {candidate}; it has {there}: "
        f"`promptgraft show {run.id}`"
    )


def winners_of(
    run: RunRecord, candidate: int, addresses: Sequence[OverrideAddress]
) -> tuple[Winner, ...]:
    """Return a candidate as a winner, for each prompt of the run.

    Args:
        run: the run.
        candidate: its number; 0 is the baseline.
        addresses: the prompts, and the tag that the run started from.

    Raises:
        ConfigError: the run is of other prompts, or its journal does not record its base.
        DataFormatError, JournalError: a file of the run is malformed.
        OSError: a file cannot be read.
    """
    names = [f"{at.ns}/{at.prompt_key}" for at in addresses]
    of = run.candidates[candidate].entries
    if not names or {*names} != of.keys():
        raise ConfigError(
            f"run {run.id} is of prompt {listed(of) or 'none'}, the source is "
            f"{listed(names) or 'none'}; "
            "name the project or the job that it was made of"
        )
    tag = addresses[0].tag
    # From the journal, because the store may hold other overrides by now.
    where, base = f"{run.folder.events}: candidate", base_of(run.folder, tag)
    changes = [
        read_changes(
            changes_of_run.entries, tag, where=f"{where} {changes_of_run.candidate}: entries"
        )
        for changes_of_run in run.candidates
    ]
    note = f"rewrite {candidate}, {counted(run.rollouts, 'test call')}, seed {run.seed}"
    provenance = Provenance(run_id=run.id, note=note, scores=_scores(run, candidate))
    return tuple(
        Winner(
            base=_override(base, name, where=str(run.folder.journal)),
            changes=_override(changes[candidate], name, where=where),
            candidates=tuple(_override(change, name, where=where) for change in changes),
            provenance=provenance,
        )
        for name in names
    )


def _override(changes: Mapping[str, Change], name: str, *, where: str) -> PromptOverride:
    entries = changes.get(name)
    if not isinstance(entries, PromptOverride):
        raise ConfigError(f"{where}: expected overrides of prompt `{name}`, found {shown(entries)}")
    return entries


def _scores(run: RunRecord, candidate: int) -> FrozenMap[str, float]:
    """Return the means on the validation set and, for the winner, on the held-out set."""
    scores = {"baseline": run.candidates[0].mean, "best": run.candidates[candidate].mean}
    if run.best == candidate and (gain := held_out_gain(run)) is not None:
        scores |= {"held_out_baseline": gain.mean_before, "held_out_best": gain.mean_after}
    return FrozenMap((name, mean) for name, mean in scores.items() if mean is not None)


@attrs.frozen(kw_only=True)
class AgainstSource:
    """Entries classified by the current source.

    Attributes:
        fresh: those that apply.
        settled: those that the source says itself, word for word.
        stale: a line for each of the others.
    """

    fresh: tuple[Entry, ...]
    settled: tuple[Entry, ...]
    stale: tuple[str, ...]


def check_source(prompt: PromptLike, entries: PromptOverride) -> AgainstSource:
    """Compare ``entries`` with the current source of the prompt."""
    # A settled entry is skipped as well: the hash that it expects is of the source as it was.
    skipped = {
        skipped_part.part: skipped_part
        for skipped_part in resolve_override(prompt.descriptor, entries).skipped
    }
    settled = tuple(
        entry for entry in entries.entries() if entry.part in skipped and entry.is_same_in(prompt)
    )
    settled_parts = {entry.part for entry in settled}
    return AgainstSource(
        fresh=tuple(entry for entry in entries.entries() if entry.part not in skipped),
        settled=settled,
        stale=tuple(
            _stale_source(skipped_part)
            for part, skipped_part in skipped.items()
            if part not in settled_parts
        ),
    )


_MENDS = {
    SkipReason.STALE: "run `promptgraft optimize` on the new source, or restore the old one",
    SkipReason.UNKNOWN_PART: "the prompt no longer has this part; restore it, or run "
    "`promptgraft optimize` again",
    SkipReason.NOT_OVERRIDABLE: "the source no longer allows overrides of it; run "
    "`promptgraft optimize` again",
    SkipReason.LOST_PLACEHOLDER: "it loses a placeholder of the source; run "
    "`promptgraft optimize` again",
    SkipReason.KEY_TAKEN: "the source has an example of that name now; rename one of them",
    SkipReason.NAME_TAKEN: "another field has that name now; rename one of them",
}


def _stale_source(found: SkippedOverride) -> str:
    now = "no longer there" if found.found_hash is None else f"now {shown_hash(found.found_hash)}"
    return (
        f"{found.part}: {found.reason}: the winner was made for source "
        f"{shown_hash(found.expected_hash)}, the source is {now}; {_MENDS[found.reason]}"
    )


class StaleWinnerError(HashMismatchError):
    """The source, the tag or a file has changed since the run; ``faults`` has a line per part."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults

    # By default, the message would be passed in place of the lines when it is unpickled.
    def __reduce__(self) -> tuple[type[StaleWinnerError], tuple[tuple[str, ...]]]:
        return type(self), (self.faults,)


def fresh_entries(
    winner: Winner, prompt: PromptLike, tag: str, *, of: str = ""
) -> tuple[Entry, ...]:
    """Return the entries of a winner to write under a tag.

    Settled entries are left out. For another tag than the run's, the applicable entries of the
    base are included, because the winner was evaluated with them. ``of`` is put before each line
    about a part, to name one of several prompts.

    Raises:
        StaleWinnerError: the source has changed in a part that the winner changes.
    """
    resolution = check_source(prompt, winner.touched)
    if resolution.stale:
        raise StaleWinnerError(tuple(f"{of}{fault}" for fault in resolution.stale))
    if tag == winner.base.tag:
        return resolution.fresh
    return (*resolution.fresh, *check_source(prompt, winner.untouched).fresh)
