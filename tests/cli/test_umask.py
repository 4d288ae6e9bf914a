"""Every file and folder has the permissions that the umask leaves, from `init` to `apply`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, sys
from promptgraft.cli.main import run
os.umask(int(sys.argv[1]))
assert run(["init", "demo"]) == 0
os.chdir("demo")
assert run(["optimize", "-q", "--budget", "300"]) in (0, 1)
for target in ([], ["--to-source"]):
    assert run(["apply", "--candidate", "1", "--keep-anyway", *target]) == 0
assert run(["eval", "-q", "--save-baseline", "baseline.json", "--junit", "gate.xml"]) == 0
"""


# Takes nothing away from the group, so that permissions that somebody wrote down show.
MASK = 0o002


def test_files_and_folders_have_what_the_umask_leaves(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-c", PROGRAM, str(MASK)], cwd=tmp_path, check=True, capture_output=True
    )
    found = list((tmp_path / "demo").rglob("*"))
    names = {path.name for path in found}
    assert {".promptgraft", "journal.jsonl", "summary.md", "baseline.json", "gate.xml"} <= names
    assert any(path.suffix == ".lock" for path in found)
    wrong = {
        str(path): oct(path.stat().st_mode & 0o777)
        for path in found
        if path.stat().st_mode & 0o777 != (0o777 if path.is_dir() else 0o666) & ~MASK
    }
    assert not wrong
