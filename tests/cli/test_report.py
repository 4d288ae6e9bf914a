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

    ended = console("report", "--out", "nowhere/night.html")
    assert ended.code == 2
    assert ended.err == (
        "promptgraft: --out: there is no folder nowhere; name a file in a folder that exists\n"
    )
    assert console("report", "--out", "runs").err.startswith("promptgraft: --out: runs is a folder")


def test_a_run_that_is_not_there_is_named(console: Console, project: Path) -> None:
    ended = console("report", "20300101")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("promptgraft: there are no runs in runs")
