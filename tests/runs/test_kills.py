"""A run that is killed at any point leaves whole files, and resumes to the same end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from further import thorough
from programs import Programs

SERVER = Path(__file__).parent / "kill_server.py"
PARTS = 6


@pytest.mark.parametrize("part", [0, *thorough(range(1, PARTS))])
def test_a_run_killed_at_any_named_moment_leaves_whole_files_and_ends_the_same(
    tmp_path: Path, programs: Programs, part: int
) -> None:
    asked = {"seed": 0, "part": part, "parts": PARTS}
    done = programs(SERVER, tmp_path / "runs", given=json.dumps(asked))
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
    assert [trial["kind"] for trial in found] == whole["kinds"][part::PARTS]
    for trial in found:
        assert trial["killed"], trial
        assert trial["runs"] == 1, trial
        assert trial["faults"] == [], trial
