"""``promptgraft report``."""

from __future__ import annotations

import json
from pathlib import Path

from cli.console import Console
from runs.toy_runs import kept_run


def test_a_report_is_written_and_named(console: Console, project: Path) -> None:
    folder = kept_run(project / "runs")
    written = folder.report.read_bytes()
    folder.report.unlink()

    ended = console("report")

    assert (ended.code, ended.err) == (0, "")
    assert ended.out == f"runs/{folder.id}/report.html\n"
    assert folder.report.read_bytes() == written

    ended = console("report", folder.id[:11], "--runs", "runs", "--out", "night.html", "--json")
    assert json.loads(ended.out) == {
        "run": folder.id,
        "report": str(project / "night.html"),
        "bytes": len(written),
    }
    assert (project / "night.html").read_bytes() == written

    ended = console("report", "--out", "of/last/night.html")
    assert (ended.code, ended.out) == (0, "of/last/night.html\n")
    assert (project / "of" / "last" / "night.html").read_bytes() == written
    ended = console("report", "--out", "runs")
    assert (ended.code, ended.err) == (
        2,
        "promptgraft: runs: expected a file to write, found a folder; name a file in it\n",
    )
    ended = console("report", "--out", "night.html/new.html")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert ended.err.startswith("promptgraft: night.html: ")


def test_a_run_that_is_not_there_is_named(console: Console, project: Path) -> None:
    ended = console("report", "20300101")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("promptgraft: there are no runs in runs")
