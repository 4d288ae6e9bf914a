"""Lines that a test expects, kept in a file beside its input."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

REWRITE = "PROMPTGRAFT_REWRITE_EXPECTED"


def check_lines(lines: Sequence[str], kept: Path) -> None:
    """Compare lines with the kept ones, which ``make expected`` writes anew after a rewording."""
    if os.environ.get(REWRITE):
        kept.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    assert list(lines) == kept.read_text("utf-8").splitlines()
