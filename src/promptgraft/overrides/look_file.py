"""The record of looks at held-out cases beside a local store, in one file."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path

import attrs

from promptgraft.errors import StoreError
from promptgraft.ground.serde import canonical_json
from promptgraft.overrides.looks import Look, is_known
from promptgraft.overrides.revision_files import locked, refuse_foreign_links

_logger = logging.getLogger("promptgraft")

FILE = Path(".promptgraft", "looks.jsonl")
"""The record of a local store, below its root."""

VERSION = 1
_SECONDS = 5.0
_MOST_BYTES = 64_000_000


class LookFile:
    """Keeps looks in a file, one JSON object on a line.

    Lines that cannot be read are skipped, and kept. Threads and processes may write at once.

    Args:
        root: the folder that holds ``.promptgraft``.
    """

    def __init__(self, root: Path) -> None:
        self._root, self._path = root, root / FILE

    def looks(self) -> Sequence[Look]:
        try:
            refuse_foreign_links(self._root, [self._path])
            with self._path.open("rb") as file:
                # The latest ones; a line that this cuts is skipped like any damaged one.
                file.seek(max(0, os.fstat(file.fileno()).st_size - _MOST_BYTES))
                lines = file.read().split(b"\n")
        except FileNotFoundError:
            return ()
        except (OSError, StoreError) as error:
            _logger.warning("how often the test cases were used is not known: %s", error)
            return ()
        return tuple(look for line in lines if (look := _read(line)) is not None)

    def remember_look(self, look: Look) -> None:
        line = canonical_json({"version": VERSION, **attrs.asdict(look)}).encode()
        try:
            refuse_foreign_links(self._root, [self._path])
            with locked(self._path.with_name(".looks.lock"), _SECONDS):
                if is_known(look, self.looks()):
                    return
                with self._path.open("a+b") as file:
                    # A line that a killed process has left unfinished is ended first.
                    file.seek(0, os.SEEK_END)
                    if file.tell():
                        file.seek(-1, os.SEEK_END)
                        line = line if file.read(1) == b"\n" else b"\n" + line
                    file.write(line + b"\n")
        except (OSError, StoreError) as error:
            _logger.warning("this use of the test cases is not remembered: %s", error)


def _read(line: bytes) -> Look | None:
    """Return the look of a line; None for a damaged one, or one of a later version."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or data.get("version") != VERSION:
        return None
    run, prompt, time = (data.get(name) for name in ("run", "prompt", "time"))
    cases = data.get("cases")
    if not all(isinstance(text, str) for text in (run, prompt, time)):
        return None
    if not isinstance(cases, list) or not all(isinstance(case, str) for case in cases):
        return None
    return Look(run=str(run), prompt=str(prompt), time=str(time), cases=tuple(cases))
