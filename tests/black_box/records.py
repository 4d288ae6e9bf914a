"""Records of interrupted writes, as promptgraft leaves them and as others plant them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from promptgraft.agents.writing import RECORD, seal_of


def leave_record(folder: Path, document: Mapping[str, Any]) -> Path:
    """Leave the record of a write that was made in a folder and interrupted."""
    plain = {**document, "version": 1, "seal": ""}
    return plant_record(folder, {**plain, "seal": seal_of(folder, plain)})


def plant_record(folder: Path, document: Mapping[str, Any]) -> Path:
    """Put a record into a folder as it is."""
    record = folder / RECORD
    record.parent.mkdir(exist_ok=True)
    record.write_text(json.dumps(document))
    return record


def seal_again(folder: Path) -> None:
    """Make a record that was copied one of the folder that it is in now."""
    leave_record(folder, json.loads((folder / RECORD).read_text()))
