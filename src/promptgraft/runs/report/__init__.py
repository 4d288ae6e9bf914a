"""The report of a run: one HTML file that needs nothing else."""

from __future__ import annotations

from pathlib import Path

from promptgraft.runs.folder import RunFolder, write_text

__all__ = ["write_report"]


def write_report(folder: RunFolder, out: Path | None = None) -> Path:
    """Write the report of a run, ended or not, and return where: by default ``report.html`` in it.

    Raises:
        DataFormatError, JournalCorruptError: a file is not what a run writes.
    """
    from promptgraft.runs.report.data import gather
    from promptgraft.runs.report.page import render

    target = folder.report if out is None else out
    write_text(target, render(gather(folder)))
    return target
