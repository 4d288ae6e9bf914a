"""Winners into the sources of their prompts: Markdown and BAML files, and texts of agents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs

from promptgraft.agents.sources import CallbackSource
from promptgraft.agents.writing import HeldText, SourceWriter
from promptgraft.errors import ConfigError
from promptgraft.overrides import PartDiff, PromptLike, PromptOverride, diff_override
from promptgraft.project.applying.files import planned
from promptgraft.project.applying.winner import (
    StaleWinnerError,
    Winner,
    fresh_entries,
    winners_of,
)
from promptgraft.project.baml import BamlSource
from promptgraft.project.files import FileChange
from promptgraft.project.markdown.prompts import MarkdownSource
from promptgraft.project.origins import Target
from promptgraft.project.parts import ProjectPrompt
from promptgraft.project.sources import TextsSource
from promptgraft.runs import RunRecord


@attrs.frozen(kw_only=True)
class Rewritten:
    """A candidate against the sources of today.

    ``entries`` has what its parts are named after; ``changes`` are those of the files of Markdown
    prompts, ``texts`` those of the texts of agents, of which ``callbacks`` store some.
    """

    winner: Winner
    entries: Sequence[tuple[PromptLike, PromptOverride, str]]
    changes: Sequence[FileChange]
    texts: Sequence[HeldText]
    callbacks: Mapping[str, CallbackSource]

    @classmethod
    def of(cls, run: RunRecord, candidate: int, target: Target) -> Rewritten:
        """Return a candidate against the sources of today.

        Raises:
            ConfigError: a prompt that it changes is written in Python.
            StaleWinnerError: a source has changed since; says where, if that is known.
        """
        winners = winners_of(run, candidate, target.addresses)
        entries: list[tuple[PromptLike, PromptOverride, str]] = []
        changes: list[FileChange] = []
        texts: list[HeldText] = []
        callbacks: dict[str, CallbackSource] = {}
        for winner, found in zip(winners, target.files, strict=True):
            if found.source is None and winner.changes:
                raise ConfigError(
                    f"prompt `{winner.of}` is written in Python: only Markdown prompts and texts "
                    "in files or callbacks of a project can be written back; leave --to-source "
                    "and --patch out to use the store"
                )
            of = f"{winner.of}#" if len(winners) > 1 else ""
            try:
                fresh = fresh_entries(winner, found.prompt, target.tag, of=of)
            except StaleWinnerError as error:
                raise StaleWinnerError((*error.faults, *_places(run, winner, found))) from None
            override = winner.base.holding(fresh)
            entries.append((found.prompt, override, of))
            if isinstance(found.source, TextsSource):
                texts += found.source.changes(override)
                callbacks.update(found.source.sources.callbacks)
            elif isinstance(found.source, (MarkdownSource, BamlSource)) and override:
                changes += found.source.rewritten(override)
        return cls(
            winner=winners[0], entries=entries, changes=changes, texts=texts, callbacks=callbacks
        )

    def write(self, run: RunRecord, candidate: int, target: Target, *, dry: bool) -> list[str]:
        """Write the candidate, all or nothing, and return what was written."""
        texts = (*planned(target.folder, self.changes), *self.texts)
        if texts and not dry:
            writer = SourceWriter(target.folder.resolve(), self.callbacks)
            with writer.held():
                writer.write(texts, by=f"the write of candidate {candidate} of run {run.id}")
        return [text.where for text in texts]

    @property
    def parts(self) -> list[PartDiff]:
        """How the parts differ from the files."""
        return [
            attrs.evolve(diff, part=f"{of}{diff.part}")
            for prompt, override, of in self.entries
            for diff in diff_override(prompt, override)
        ]

    def left_behind(self, target: Target) -> list[str]:
        """Return the parts that the tag overrides and that now stand in the source."""
        parts = []
        for (_, override, of), address in zip(self.entries, target.addresses, strict=True):
            held = target.store.current_at(address)
            kept = held.override if held else address.empty()
            parts += [f"{of}{entry.part}" for entry in override.entries() if kept.find(entry)]
        return parts


def _places(run: RunRecord, winner: Winner, found: ProjectPrompt) -> Iterator[str]:
    """Yield where texts differ from what they were when the run began, if that is known."""
    if run.started is not None and isinstance(found.source, TextsSource):
        yield from found.source.changed_since(run.started.texts, winner.base)
