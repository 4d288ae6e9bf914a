"""A run that is killed at any point leaves whole files, and resumes to the same end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SERVER = Path(__file__).parent / "kill_server.py"


def test_a_run_killed_at_any_named_moment_leaves_whole_files_and_ends_the_same(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, str(SERVER), str(tmp_path / "runs")],
        input=json.dumps({"seed": 0}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    whole, *found = map(json.loads, done.stdout.splitlines())

    kinds = set(whole["kinds"])
    for file in ("config.json", "#.md", "#-#.md", "result.json", "frontier.json", "ledger.json"):
        assert f"replace .{file}.tmp" in kinds
    assert {"replace .summary.md.tmp", "replace .report.html.tmp", "rename .new"} <= kinds
    assert {
        "write .tmp",
        "write events.jsonl",
        "write journal.jsonl",
        "fsync journal.jsonl",
    } <= kinds
    assert [trial["kind"] for trial in found] == whole["kinds"]
    for trial in found:
        assert trial["killed"], trial
        assert trial["runs"] == 1, trial
        assert trial["faults"] == [], trial
