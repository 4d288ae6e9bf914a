"""A run that is killed at any point leaves whole files, and resumes to the same end."""

from __future__ import annotations

import json
from pathlib import Path

from programs import Programs

SERVER = Path(__file__).parent / "kill_server.py"


def test_a_run_killed_at_any_named_moment_leaves_whole_files_and_ends_the_same(
    tmp_path: Path, programs: Programs
) -> None:
    done = programs(SERVER, tmp_path / "runs", given=json.dumps({"seed": 0}))
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
