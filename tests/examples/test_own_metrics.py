"""The example of metrics of one's own, as users run it."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from programs import Programs

FOLDER = Path(__file__).parents[2] / "examples" / "own_metrics"
SCRIPT = FOLDER / "own_metrics.py"


def shown() -> list[str]:
    """Return the outputs that the page of the example shows."""
    page = (FOLDER / "README.md").read_text("utf-8")
    return re.findall(r"^```text\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


def test_a_gain_on_unseen_messages_is_reported_and_nothing_is_left_behind(
    tmp_path: Path, programs: Programs
) -> None:
    done = programs("-W", "error", SCRIPT, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == shown()[0]
    assert done.stdout.splitlines()[-1].startswith("improved: gain +")
    assert list(tmp_path.iterdir()) == []


def test_what_may_be_luck_is_no_improvement(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(SCRIPT))["main"](100, 6)
    output = capsys.readouterr().out
    assert output == shown()[1]
    assert output.splitlines()[-1].startswith("not shown: gain +")
