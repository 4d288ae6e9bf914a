"""How the winner of a run gets where it is used: into the store, or back into its source.

It is read from the run's files and compared with the current source. Each entry of a winner is
fresh (it applies), settled (the source says the same by now) or stale.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath, PurePosixPath

import attrs

from promptgraft.agents.writing import CallbackSource, SourceWriter, WrittenText
from promptgraft.errors import ConfigError, HashMismatchError
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.serde import digest, shown
from promptgraft.ground.text import counted, listed
from promptgraft.overrides import (
    OverrideAddress,
    PartDiff,
    PromptLike,
    PromptOverride,
    Provenance,
    Revision,
    RevisionedStore,
    SkippedOverride,
    VisibilityOverride,
    diff_override,
    diff_revisions,
)
from promptgraft.overrides.differences import lines_in
from promptgraft.overrides.parts.descriptors import PromptDescriptor
from promptgraft.overrides.parts.entry import Entry, SkipReason
from promptgraft.overrides.parts.validation import shown_hash
from promptgraft.overrides.resolution import (
    check_names,
    checked_entry,
    is_fresh,
    left_by,
    resolve_override,
    uncovered,
)
from promptgraft.project.agents import TextsSource
from promptgraft.project.files import FILE_NAME as PROJECT_FILE
from promptgraft.project.files import FileChange
from promptgraft.project.markdown import MarkdownSource
from promptgraft.project.origins import RunTarget
from promptgraft.project.parts import ForeignSource
from promptgraft.project.project_prompt import ProjectPrompt
from promptgraft.runs import RunRecord, State
from promptgraft.runs.comparing import held_out_gain
from promptgraft.runs.reading import base_of
from promptgraft.search.stopping import stop_detail
from promptgraft.targets.part import named_in, prompt_of
from promptgraft.targets.part_names import name_among
from promptgraft.targets.types import Change, read_changes


@attrs.frozen(kw_only=True)
class Winner:
    """A candidate of a run, to be applied.

    Attributes:
        base: the overrides under the tag of the run when the run began.
        changes: the entries in which the candidate differs from ``base``.
        candidates: the changes of every candidate of the run, any of which may have been applied.
        parts: the names of all parts that the run could change.
        provenance: its origin, for the store.
    """

    base: PromptOverride
    changes: PromptOverride
    candidates: tuple[PromptOverride, ...] = ()
    parts: Collection[str] = ()
    provenance: Provenance

    @property
    def of(self) -> str:
        """The name of the prompt: ``namespace/key``."""
        return f"{self.base.ns}/{self.base.prompt_key}"

    def name_of(self, part: str) -> str:
        """Return what the run calls a part of the prompt."""
        # What no candidate has changed may be a part that the run could not change.
        if any(part == entry.part for changes in self.candidates for entry in changes.entries()):
            return name_among(self.parts, self.of, part)
        return named_in(self.of, part) if any(map(prompt_of, self.parts)) else part

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
        why = f"no candidate beat your prompt ({ended})"
        return Chosen(candidate=None, why_not=why)
    why = f"its best candidate is {verdict}; --keep-anyway applies it"
    return Chosen(candidate=None, why_not=why)


def _unfinished(run: RunRecord) -> str:
    if run.state is State.RUNNING:
        return "it is still running; wait, or name one of its candidates with --candidate"
    return (
        f"it was interrupted; continue it with `promptgraft resume {run.id}`, or name one of "
        "its candidates with --candidate"
    )


def _checked(run: RunRecord, candidate: int) -> Chosen:
    last = len(run.candidates) - 1
    if 0 < candidate <= last:
        return Chosen(candidate=candidate)
    there = "none" if last < 1 else "1" if last == 1 else f"1 to {last}"
    raise ConfigError(
        f"--candidate: run {run.id} has no candidate {candidate}; it has {there}: "
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
    note = f"candidate {candidate}, {counted(run.rollouts, 'test call')}, seed {run.seed}"
    provenance = Provenance(run_id=run.id, note=note, scores=_scores(run, candidate))
    return tuple(
        Winner(
            base=_override(base, name, where=str(run.folder.journal)),
            changes=_override(changes[candidate], name, where=where),
            candidates=tuple(_override(change, name, where=where) for change in changes),
            parts=tuple(run.candidates[0].texts),
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


def check_source(
    prompt: PromptLike, entries: PromptOverride, name_of: Callable[[str], str] = str
) -> AgainstSource:
    """Compare ``entries`` with the current source of the prompt.

    ``name_of`` returns what lines call a part.
    """
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
            f"{name_of(part)}: {_stale_source(skipped_part)}"
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


def _stale_source(skipped: SkippedOverride) -> str:
    now = (
        "no longer there" if skipped.found_hash is None else f"now {shown_hash(skipped.found_hash)}"
    )
    return (
        f"{skipped.reason}: the winner was made for source "
        f"{shown_hash(skipped.expected_hash)}, the source is {now}; {_MENDS[skipped.reason]}"
    )


class StaleWinnerError(HashMismatchError):
    """The source, the tag or a file has changed since the run; ``faults`` has a line per part."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults

    # By default, the message would be passed in place of the lines when it is unpickled.
    def __reduce__(self) -> tuple[type[StaleWinnerError], tuple[tuple[str, ...]]]:
        return type(self), (self.faults,)


def fresh_entries(winner: Winner, prompt: PromptLike, tag: str) -> tuple[Entry, ...]:
    """Return the entries of a winner to write under a tag.

    Settled entries are left out. For another tag than the run's, the applicable entries of the
    base are included, because the winner was evaluated with them.

    Raises:
        StaleWinnerError: the source has changed in a part that the winner changes.
    """
    resolution = check_source(prompt, winner.touched, winner.name_of)
    if resolution.stale:
        raise StaleWinnerError(resolution.stale)
    if tag == winner.base.tag:
        return resolution.fresh
    return (*resolution.fresh, *check_source(prompt, winner.untouched).fresh)


def check_tag_contents(
    winner: Winner, entries: Iterable[Entry], present: PromptOverride
) -> tuple[str, ...]:
    """Return a line for each part that has changed under the tag since the run began.

    A part may equal the base or the winner; under another tag than the run's it may also be
    missing.
    """
    return tuple(
        _stale_tag(winner, entry, present)
        for entry in entries
        if present.find(entry) not in (entry, winner.base.find(entry))
        and not (present.tag != winner.base.tag and present.find(entry) is None)
    )


def _stale_tag(winner: Winner, entry: Entry, present: PromptOverride) -> str:
    return (
        f"{winner.name_of(entry.part)}: tag `{present.tag}` has changed since the run began: "
        f"expected {_named(winner.base.find(entry))}, found {_named(present.find(entry))}; see "
        "`promptgraft history`, then roll back, or run `promptgraft optimize` again"
    )


def _named(entry: Entry | None) -> str:
    return "no override" if entry is None else f"override {shown_hash(digest(entry.plain()))}"


def merged_into(
    present: PromptOverride, entries: Iterable[Entry], descriptor: PromptDescriptor
) -> PromptOverride:
    """Return the overrides of a tag with ``entries`` added or replaced.

    Raises:
        UnknownPartError, HashMismatchError, InvalidOverrideError: an entry does not fit the
            prompt, or contradicts another override.
    """
    written = present.holding(
        entry if present.find(entry) == entry else checked_entry(descriptor, entry)
        for entry in entries
    )
    merged = present.merged_with(written)
    check_names(descriptor, written, merged)
    return merged


@attrs.frozen(kw_only=True)
class Stored:
    """The revision of a tag before and after a write, and how the prompt changes."""

    address: OverrideAddress
    before: Revision | None
    after: Revision | None
    parts: tuple[PartDiff, ...]


def store_winners(
    store: RevisionedStore, winners: Sequence[tuple[Winner, PromptLike]], tag: str, *, dry: bool
) -> tuple[Stored, ...]:
    """Write the winner of each prompt to a tag, keeping the other overrides under it.

    This is one atomic write of at most one revision of each prompt, checked under the lock of the
    store. ``dry`` only checks.

    Raises:
        StaleWinnerError: a part that the winner changes has changed since the run began, in its
            source or under the tag.
        InvalidOverrideError: the winner contradicts another override under the tag.
        StoreError: the store cannot be read or written.
    """
    writes = [_Write(winner, prompt, tag) for winner, prompt in winners]
    before = [store.current_at(write.address) for write in writes]
    if dry:
        for write, revision in zip(writes, before, strict=True):
            write.change(revision.override if revision else write.address.empty())
    else:
        store.mutate_all(
            {write.address: write.change for write in writes}, provenance=winners[0][0].provenance
        )
    return tuple(
        Stored(
            address=write.address,
            before=revision,
            after=revision if dry else store.current_at(write.address),
            parts=tuple(write.told),
        )
        for write, revision in zip(writes, before, strict=True)
    )


class _Write:
    """The write of a winner to the tag of one prompt."""

    def __init__(self, winner: Winner, prompt: PromptLike, tag: str) -> None:
        self.address = OverrideAddress(winner.base.ns, winner.base.prompt_key, tag)
        self._winner = winner
        self._prompt = prompt
        self._entries = fresh_entries(winner, prompt, tag)
        self.told: list[PartDiff] = []

    def change(self, present: PromptOverride) -> PromptOverride:
        winner, descriptor = self._winner, self._prompt.descriptor
        # Another candidate of the run may have been applied before: undo it, so that the tag
        # holds only what was evaluated together.
        base = left_by(winner.candidates, winner.base, winner.beside(present))
        given_back = uncovered(descriptor, winner.base, base).entries()
        freed = present.without(*base.entries()).with_entries(given_back)
        if stale := check_tag_contents(winner, self._entries, freed):
            raise StaleWinnerError(stale)
        after = merged_into(freed, self._entries, descriptor)
        gone = base.holding(entry for entry in base.entries() if after.find(entry) is None)
        # Replaced and not extended: a store may call `change` again after a conflict.
        changes = in_force_changes(self._prompt, present, (*given_back, *self._entries))
        backs = (diff.reversed for diff in diff_override(self._prompt, gone))
        self.told[:] = (
            attrs.evolve(diff, part=winner.name_of(diff.part)) for diff in (*changes, *backs)
        )
        return after


def in_force_changes(
    prompt: PromptLike, present: PromptOverride, entries: Iterable[Entry]
) -> Iterator[PartDiff]:
    """Yield how each entry differs from the override in force, or else from the source."""
    for entry in entries:
        current = present.find(entry)
        written = present.holding([entry])
        if current is not None and is_fresh(prompt.descriptor, current):
            yield from diff_revisions(present.holding([current]), written, prompt)
        else:
            yield from diff_override(prompt, written)


_SUFFIXES = {".baml", ".json", ".md", ".yaml", ".yml"}
_ESCAPES = dict(zip('\a\b\t\n\v\f\r"\\', 'abtnvfr"\\', strict=True))
"""The letters with which git escapes characters of a quoted path."""
_NEEDS_QUOTES = re.compile(r'[^ -~]|["\\]')
_NO_NEWLINE = "\n\\ No newline at end of file\n"


def may_hold_a_prompt(path: PurePath) -> bool:
    """Return whether a file may belong to a prompt; files that configure code may not."""
    hidden = any(part.startswith(".") for part in path.parts)
    return not hidden and path.suffix in _SUFFIXES and path.name != PROJECT_FILE


def planned(folder: Path, changes: Iterable[FileChange]) -> tuple[WrittenText, ...]:
    """Return the file changes of a project for the writer, without files that stay the same.

    Raises:
        ConfigError: a file is outside the project's folder, or a link leads out of it; its name is
            not that of a prompt file; or two changes are of one file.
    """
    plans: dict[str, WrittenText] = {}
    root = folder.resolve()
    for change in changes:
        real = change.path.resolve()
        if change.before == change.after:
            continue
        if not real.is_relative_to(root):
            raise ConfigError(
                f"{change.path}: leads out of the project's folder {root}, to {real}; only files "
                "in it are written; move the file there, or use --patch"
            )
        relative = real.relative_to(root)
        if not may_hold_a_prompt(relative):
            raise ConfigError(
                f"{change.path}: expected a file whose name ends in .md, .json, .yaml, .yml or "
                ".baml, in no hidden folder, found another, which is not written; rename it, or "
                "use --patch"
            )
        path = relative.as_posix()
        # Each change is the whole file, so that the second would write over the first.
        if path in plans:
            raise ConfigError(f"{change.path}: two parts of the prompt change the file in two ways")
        plans[path] = WrittenText(name=path, path=path, old=change.before, new=(change.after,))
    return tuple(plans.values())


def patch_root(folder: Path) -> Path:
    """Return the base of paths in a patch: the root of the git repository, or ``folder``."""
    real = folder.resolve()
    for parent in (real, *real.parents):
        if (parent / ".git").exists():
            return parent
    return real


def patch_of(changes: Iterable[FileChange], *, root: Path) -> str:
    """Return a unified patch of all changes.

    Paths in it are relative to ``root``, which must not contain links.

    Raises:
        ValueError: a file is not below ``root``.
    """
    return "".join(
        _patch(change, PurePosixPath(change.path.resolve().relative_to(root)).as_posix())
        for change in changes
        if change.before != change.after
    )


def _patch(change: FileChange, path: str) -> str:
    old, new = _quoted(f"a/{path}"), _quoted(f"b/{path}")
    # git writes a tab after a name with a space, to mark its end.
    end = "\t" if " " in path else ""
    before, after = lines_in(change.before), lines_in(change.after)
    hunks = list(difflib.unified_diff(before, after))[2:]
    header = f"diff --git {old} {new}\n--- {old}{end}\n+++ {new}{end}\n"
    return header + "".join(line if line.endswith("\n") else line + _NO_NEWLINE for line in hunks)


def _quoted(path: str) -> str:
    """Return a path quoted as git does, with other bytes than ASCII in octal."""
    if not _NEEDS_QUOTES.search(path):
        return path
    return '"' + "".join(map(_escaped, path)) + '"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return f"\\{_ESCAPES[character]}"
    if " " <= character <= "~":
        return character
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", "surrogateescape"))


@attrs.frozen(kw_only=True)
class Rewritten:
    """A candidate, to be written into the current sources.

    Attributes:
        winner: the candidate, for the first prompt.
        entries: for each prompt, the candidate, the source and the overrides to write.
        changes: the changes of Markdown and BAML files.
        texts: the changes of texts of agents.
        callbacks: the callbacks that store some of these texts.
    """

    winner: Winner
    entries: Sequence[tuple[Winner, PromptLike, PromptOverride]]
    changes: Sequence[FileChange]
    texts: Sequence[WrittenText]
    callbacks: Mapping[str, CallbackSource]

    @classmethod
    def of(cls, run: RunRecord, candidate: int, target: RunTarget) -> Rewritten:
        """Prepare a candidate for writing, without writing it.

        Raises:
            ConfigError: a prompt that it changes is written in Python.
            StaleWinnerError: a source has changed since the run; with the place, if known.
        """
        winners = winners_of(run, candidate, target.addresses)
        entries: list[tuple[Winner, PromptLike, PromptOverride]] = []
        changes: list[FileChange] = []
        texts: list[WrittenText] = []
        callbacks: dict[str, CallbackSource] = {}
        for winner, winner_texts in zip(winners, target.files, strict=True):
            if winner_texts.source is None and winner.changes:
                raise ConfigError(
                    f"prompt `{winner.of}` is written in Python: only Markdown prompts and texts "
                    "in files or callbacks of a project can be written back; leave --to-source "
                    "and --patch out to use the store"
                )
            try:
                fresh = fresh_entries(winner, winner_texts.prompt, target.tag)
            except StaleWinnerError as error:
                raise StaleWinnerError(
                    (*error.faults, *_places(run, winner, winner_texts))
                ) from None
            override = winner.base.holding(fresh)
            entries.append((winner, winner_texts.prompt, override))
            if isinstance(winner_texts.source, TextsSource):
                texts += winner_texts.source.changes(override)
                callbacks.update(winner_texts.source.sources.callbacks)
            elif isinstance(winner_texts.source, (MarkdownSource, ForeignSource)) and override:
                changes += winner_texts.source.rewritten(override)
        return cls(
            winner=winners[0], entries=entries, changes=changes, texts=texts, callbacks=callbacks
        )

    def write(self, run: RunRecord, candidate: int, target: RunTarget, *, dry: bool) -> list[str]:
        """Write the candidate, all or nothing, and return the names of what was written."""
        texts = (*planned(target.folder, self.changes), *self.texts)
        if texts and not dry:
            writer = SourceWriter(target.folder.resolve(), self.callbacks)
            with writer.held():
                writer.write(texts, by=f"the write of candidate {candidate} of run {run.id}")
        return [text.where for text in texts]

    @property
    def parts(self) -> list[PartDiff]:
        """The differences between the candidate and the sources."""
        return [
            attrs.evolve(diff, part=winner.name_of(diff.part))
            for winner, prompt, override in self.entries
            for diff in diff_override(prompt, override)
        ]

    def left_behind(self, target: RunTarget) -> list[str]:
        """Return the parts whose overrides under the tag are stale after the write."""
        parts = []
        for (winner, _, override), address in zip(self.entries, target.addresses, strict=True):
            current = target.store.current_at(address)
            override_now = current.override if current else address.empty()
            parts += [
                winner.name_of(entry.part)
                for entry in override.entries()
                # Visibilities are bound to texts that such a write does not change.
                if override_now.find(entry) and not isinstance(entry, VisibilityOverride)
            ]
        return parts


def _places(run: RunRecord, winner: Winner, prompt: ProjectPrompt) -> Iterator[str]:
    """Yield a line for each text that has changed since the run began, if that is known."""
    if run.started is not None and isinstance(prompt.source, TextsSource):
        yield from prompt.source.changed_since(run.started.texts, winner.base)
