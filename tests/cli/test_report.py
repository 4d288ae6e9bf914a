"""``promptgraft report``."""

from __future__ import annotations

import json
from pathlib import Path

from cli.console import Console
from programs import Programs
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
    assert ended.err.startswith(f"promptgraft: there are no runs in {Path.cwd()}/runs")


def test_a_report_is_opened_in_the_browser_that_is_named(project: Path, programs: Programs) -> None:
    folder = kept_run(project / "runs")
    browser = project / "browser"
    browser.write_text('#!/bin/sh\nprintf "%s\\n" "$@" > "$SEEN"\n')
    browser.chmod(0o755)
    seen = project / "seen"

    named = {"BROWSER": str(browser), "SEEN": str(seen)}
    ended = programs.promptgraft("report", "--open", folder=project, environment=named)

    where = f"runs/{folder.id}/report.html"
    assert (ended.returncode, ended.stdout) == (0, f"{where}\n")
    assert seen.read_text() == f"{folder.report.resolve().as_uri()}\n"

    none = {"BROWSER": "/bin/false", "PATH": "", "DISPLAY": "", "WAYLAND_DISPLAY": ""}
    ended = programs.promptgraft("report", "--open", folder=project, environment=none)
    assert (ended.returncode, ended.stdout) == (2, f"{where}\n")
    assert ended.stderr == (
        f"promptgraft: --open: no browser can be started; open {where} yourself, or name a "
        "browser in BROWSER\n"
    )


def test_pages_over_several_runs_are_written_and_named(console: Console, project: Path) -> None:
    folder = kept_run(project / "runs")

    ended = console("compare", folder.id, "--html", "of/last/both.html")
    assert (ended.code, ended.out, ended.err) == (0, "of/last/both.html\n", "")
    page = (project / "of" / "last" / "both.html").read_text("utf-8")
    assert page.count(f"<code>{folder.id}</code>") == 2

    ended = console("runs", "--html", "history.html", "--json")
    written = project / "history.html"
    size = written.stat().st_size
    assert json.loads(ended.out) == {"page": str(written), "bytes": size}
    assert folder.id in written.read_text("utf-8")
    refused = console("runs", "--html", "runs")
    assert (refused.code, refused.out) == (2, "")
    refused = console("runs", "--html", "x.html", "rm", folder.id)
    assert (refused.code, refused.err.count("\n")) == (2, 1)
