"""The example of a support agent, as users run it: two files and a callback."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from programs import Programs

EXAMPLE = Path(__file__).parents[2] / "examples" / "support_agent"


def checked_output(programs: Programs, folder: Path, *words: str) -> str:
    return programs.output("-W", "error", "-m", "promptgraft", *words, folder=folder)


@pytest.fixture(scope="module")
def improved(tmp_path_factory: pytest.TempPathFactory, programs: Programs) -> tuple[Path, str]:
    """A copy of the example after a run, and what the run has said."""
    folder = tmp_path_factory.mktemp("example") / "support_agent"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("runs", "__pycache__"))
    return folder, checked_output(programs, folder, "optimize")


def test_it_gains_on_cases_that_the_search_never_saw(improved: tuple[Path, str]) -> None:
    folder, said = improved
    [result] = folder.glob("runs/*/result.json")
    found = json.loads(result.read_text("utf-8"))
    assert found["improved"]
    assert found["scores"]["held_out"]["gain"] >= 0.2
    rates = [found["metrics"]["held_out"][side]["pass_rate"] for side in ("baseline", "best")]
    assert rates[1] - rates[0] >= 0.2
    [page] = (EXAMPLE / "README.md").read_text("utf-8").split("```text\n")[1:]
    assert page.split("```")[0] in said


def test_the_run_keeps_every_text_before_and_after(improved: tuple[Path, str]) -> None:
    folder, _ = improved
    [run] = folder.glob("runs/*")
    for name in ("router", "writer", "tone"):
        before = (run / "baseline_prompts" / f"{name}.md").read_text("utf-8")
        after = (run / "best_prompts" / f"{name}.md").read_text("utf-8")
        assert after.startswith(before)
        assert len(after) > len(before)
    assert (folder / "prompts/writer.md").read_text("utf-8") == "Write a short reply.\n"


def test_a_step_shows_what_was_asked(improved: tuple[Path, str], programs: Programs) -> None:
    folder, _ = improved
    shown = checked_output(programs, folder, "show", "latest", "--step", "1")
    assert "lacks: " in shown
    assert "Write a short reply." in shown


def test_the_winner_is_written_where_the_texts_came_from(
    improved: tuple[Path, str], programs: Programs
) -> None:
    folder, _ = improved
    [run] = folder.glob("runs/*")
    best = {path.stem: path.read_text("utf-8") for path in (run / "best_prompts").iterdir()}
    checked_output(programs, folder, "apply", "--to-source")
    for name in ("router", "writer"):
        assert (folder / f"prompts/{name}.md").read_text("utf-8") == f"{best[name]}\n"
    assert json.loads((folder / "data/service.json").read_text("utf-8")) == {"tone": best["tone"]}
    least = ("--fail-under", "0.9", "--min-pass-rate", "0.5")
    checked_output(programs, folder, "eval", "--source", *least)
