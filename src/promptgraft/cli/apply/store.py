"""``promptgraft apply`` into a store."""

from __future__ import annotations

import shlex
from pathlib import Path

import attrs

from promptgraft.cli.apply.target import Target
from promptgraft.cli.apply.told import Asked, print_origin, scores_json
from promptgraft.cli.diff import print_parts
from promptgraft.cli.output import Screen
from promptgraft.cli.stored import override_file, revision_json_or_none, short
from promptgraft.overrides import LocalPromptOverridesStore
from promptgraft.overrides.diff import parts_json
from promptgraft.project.applying.handover import winner_of
from promptgraft.project.applying.storing import Stored, store_winner
from promptgraft.project.applying.winner import Winner


@attrs.frozen(kw_only=True)
class StoreAnswer:
    """What became of a candidate in a store."""

    asked: Asked
    winner: Winner
    store: LocalPromptOverridesStore
    stored: Stored

    @property
    def file(self) -> Path:
        """The file of the tag."""
        return override_file(self.store, self.stored.address)

    def document(self) -> dict[str, object]:
        """Return the answer for machines."""
        stored = self.stored
        return self.asked.document(
            "store",
            "applied" if stored.parts else "already applied",
            scores=scores_json(self.winner),
            store=str(self.store.root_path),
            tag=stored.address.tag,
            file=str(self.file),
            **{"from": revision_json_or_none(stored.before)},
            to=revision_json_or_none(stored.after),
            parts=parts_json(stored.parts, checked=False),
        )

    def print(self, screen: Screen) -> None:
        """Print the answer for people."""
        asked, stored = self.asked, self.stored
        print_origin(screen, asked, self.winner)
        tag = stored.address.tag
        rows = [("prompt", f"{asked.run.prompt}, tag `{tag}`"), ("from", short(stored.before))]
        if not stored.parts:
            screen.fields(rows[:1])
            screen.line(f"already applied: tag `{tag}`, or the source, says just that")
            return
        rows.append(("to", "a new revision" if asked.dry else short(stored.after)))
        screen.fields([*rows, ("file", str(self.file))])
        print_parts(screen, stored.parts)
        screen.line()
        if asked.dry:
            screen.line("a dry run: nothing was written")
            return
        named = f"{asked.run.prompt} --tag {tag}"
        if self.store.root_path != LocalPromptOverridesStore().root_path:
            named += f" --store {shlex.quote(str(self.store.root_path))}"
        screen.line("Take it back:", bold=True)
        screen.body(f"promptgraft rollback {named}")


def apply_to_store(asked: Asked, target: Target, tag: str | None) -> StoreAnswer:
    """Let a tag hold the candidate.

    Raises:
        StaleWinnerError: a part has changed since the run began.
        StoreError: the store cannot be read or written.
    """
    winner = winner_of(asked.run, asked.candidate, target.address)
    stored = store_winner(target.store, winner, target.prompt, tag or target.tag, dry=asked.dry)
    return StoreAnswer(asked=asked, winner=winner, store=target.store, stored=stored)
