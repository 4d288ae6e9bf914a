"""Damaged files and killed runs: refused by name, or the same as if nothing had happened."""

from __future__ import annotations

import contextlib
import functools
import json
import random
import tempfile
from collections.abc import Mapping
from pathlib import Path

from killing import Killer, killed_by
from promptgraft.errors import JournalError, StoreError
from promptgraft.overrides import LocalPromptOverridesStore, PromptOverride
from promptgraft.runs import RunFolder
from promptgraft.testing.prompts import PROMPT, RULES, TONE
from runs.toy_runs import carry_out, files_of, make_tiny_job, new_folder
from soak.hostile import damaged


@functools.cache
def _whole() -> tuple[Mapping[str, bytes], bytes]:
    """Return the files that an uninterrupted run leaves, and its journal."""
    with tempfile.TemporaryDirectory() as name:
        folder = new_folder(Path(name), make_tiny_job())
        carry_out(folder, make_tiny_job())
        return _comparable(folder), folder.journal.read_bytes()


def _comparable(folder: RunFolder) -> Mapping[str, bytes]:
    files = {name: data for name, data in files_of(folder).items() if name.endswith(".json")}
    found = {name: json.loads(data) for name, data in files.items() if name != "config.json"}
    return {name: json.dumps(document, sort_keys=True).encode() for name, document in found.items()}


def journals(chance: random.Random, folder: Path) -> None:
    """Resume a run whose journal is damaged: refused, or the same end."""
    whole, journal = _whole()
    run = new_folder(folder, make_tiny_job())
    run.journal.write_bytes(damaged(journal, chance))
    try:
        carry_out(run, make_tiny_job())
    except JournalError:
        return
    assert _comparable(run) == whole


def kills(chance: random.Random, folder: Path) -> None:
    """Kill a run at any of its effects on files, up to three times, and let it end."""
    whole, _ = _whole()
    run = new_folder(folder, make_tiny_job())
    for _ in range(chance.randint(1, 3)):
        killer = Killer(chance.choice(("before", "after", "inside")), chance.randint(1, 150))
        killed_by(lambda: carry_out(run, make_tiny_job()), killer)
    carry_out(run, make_tiny_job())
    assert _comparable(run) == whole


def stores(chance: random.Random, folder: Path) -> None:
    """Read a store of which a file is damaged: refused, or what was written once."""
    store = LocalPromptOverridesStore(folder)
    written: list[PromptOverride | None] = [None]
    for number in range(chance.randint(1, 3)):
        path = chance.choice((TONE, RULES))
        store.set_section_override(PROMPT, path=path, body=f"Be brief, {number}.")
        written.append(store.resolve(PROMPT.descriptor))
    victim = chance.choice(sorted(path for path in folder.rglob("*.json") if path.is_file()))
    victim.write_bytes(damaged(victim.read_bytes(), chance))
    with contextlib.suppress(StoreError):
        assert LocalPromptOverridesStore(folder).resolve(PROMPT.descriptor) in written
