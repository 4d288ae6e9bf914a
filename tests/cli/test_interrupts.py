"""Ctrl+C while a command is starting."""

from __future__ import annotations

import subprocess
import sys

import pytest

COMMAND = """
import runpy, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
sys.argv = ["promptgraft", "demo"]
{start}
"""
MODULE = 'runpy.run_module("promptgraft", run_name="__main__")'
SCRIPT = "from promptgraft.__main__ import main; main()"


# Each of both starts before and after the first import of promptgraft's command line.
@pytest.mark.parametrize(
    ("module", "start"),
    [
        ("click", MODULE),
        ("click", SCRIPT),
        ("promptgraft.cli.output", SCRIPT),
        ("promptgraft.cli.demo_run", MODULE),
    ],
)
def test_an_interrupt_while_modules_are_imported_is_one_line(module: str, start: str) -> None:
    code = COMMAND.format(module=module, start=start)
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "", "promptgraft: interrupted\n")


def test_an_interrupt_that_is_ignored_stays_ignored() -> None:
    code = COMMAND.format(
        module="click", start=f"signal.signal(signal.SIGINT, signal.SIG_IGN)\n{MODULE}"
    )
    code = code.replace('"demo"]', '"--version"]')
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
