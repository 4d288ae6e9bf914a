"""The example of a function of one's own, as users run it."""

from __future__ import annotations

import ast
import json
import re
import shutil
from pathlib import Path

from programs import Programs

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_function"


def checked_output(programs: Programs, folder: Path, *words: str) -> str:
    return programs.output("-W", "error", "-m", "promptgraft", *words, folder=folder)


def copied(folder: Path) -> Path:
    folder.mkdir()
    shutil.copy(EXAMPLE / "desk.py", folder)
    return folder


def winner(folder: Path) -> object:
    [result] = folder.glob("runs/*/result.json")
    found = json.loads(result.read_text("utf-8"))
    return [found[name] for name in ("candidates", "means", "held_out", "rollouts")]


def test_it_is_at_most_forty_lines_of_code() -> None:
    text = (EXAMPLE / "desk.py").read_text("utf-8")
    documented = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr)]
    docstrings = [node for node in documented if isinstance(node.value, ast.Constant)]
    lines = [line for line in text.splitlines() if line.strip()]
    assert len(lines) - len(docstrings) <= 40


def test_two_texts_are_improved_resumed_and_used_by_another_process(
    tmp_path: Path, programs: Programs
) -> None:
    whole, stopped = copied(tmp_path / "whole"), copied(tmp_path / "stopped")
    said = checked_output(programs, whole, "optimize", "desk.py:job")
    checked_output(programs, stopped, "optimize", "desk.py:job", "--budget", "74")
    assert winner(stopped) != winner(whole)
    resumed = checked_output(programs, stopped, "resume", "--budget", "136")
    outcomes = [re.sub(r" in \d+ s$", "", text, flags=re.MULTILINE) for text in (resumed, said)]
    assert outcomes[0].splitlines()[:8] == outcomes[1].splitlines()[:8]
    assert winner(stopped) == winner(whole)
    [page] = (EXAMPLE / "README.md").read_text("utf-8").split("```text\n")[1:]
    assert page.split("```")[0] in said
    assert "changed: section router\n" in said
    assert "changed: section writer\n" in said

    use = (
        "import asyncio, desk, promptgraft as pg\n"
        "now = desk.DESK.current(pg.LocalPromptOverridesStore())\n"
        "print(asyncio.run(desk.answer(now, 'Hello, my refund')))"
    )
    assert programs.output("-c", use, folder=stopped) == "support: Dear Ada,\n"
    checked_output(programs, stopped, "apply")
    assert programs.output("-c", use, folder=stopped) == "billing: Dear Ada,\nticket\n"
