"""The bridge to weakincentives, in a newer Python that has the real package."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from promptgraft.bridges.weakincentives import WeakIncentivesTarget
from promptgraft.errors import ConfigError
from promptgraft.ground.locks import locked

ROOT = Path(__file__).parents[2]
CHECKS = Path(__file__).parent / "elsewhere" / "weakincentives_checks.py"
NEW_ENOUGH = "import sys; sys.exit(not (3, 12, 2) <= sys.version_info[:3])"


def newer_python() -> str | None:
    """Return a Python that weakincentives runs on; None where the machine has none."""
    named = [sys.executable, "python3.14", "python3.13", "python3.12"]
    kept = sorted(Path.home().glob(".pyenv/versions/3.1[2-9]*/bin/python"), reverse=True)
    for python in (*named, *map(str, kept)):
        with contextlib.suppress(OSError):
            if not subprocess.run(
                [python, "-c", NEW_ENOUGH], check=False, capture_output=True
            ).returncode:
                return python
    return None


def installer(python: str) -> list[str]:
    """Return the command that installs into the environment of a Python; uv is ten times faster."""
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    uv = shutil.which("uv", path=beside)
    if uv is not None:
        return [uv, "pip", "install", "--quiet", "--system-certs", "--python", python]
    return [sys.executable, "-m", "pip", "--python", python, "--quiet", "install", "--no-compile"]


@pytest.fixture(scope="module")
def python() -> Iterator[str]:
    """Yield the Python of an environment with weakincentives, made once."""
    newer = newer_python()
    if newer is None:
        pytest.skip("no Python 3.12.2 or newer was found for weakincentives")
    home = Path(sys.prefix) / "weakincentives"
    done = home / "installed"
    with locked(Path(f"{home}.lock")):
        if not done.exists():
            subprocess.run([newer, "-m", "venv", "--clear", "--without-pip", str(home)], check=True)
            wanted = ["pytest", "--editable", f"{ROOT}[weakincentives]"]
            made = subprocess.run(
                [*installer(str(home / "bin/python")), *wanted],
                check=False,
                capture_output=True,
                text=True,
            )
            if made.returncode:
                pytest.skip(f"weakincentives cannot be installed: {made.stderr[-200:]}")
            done.touch()
    # What runs in another Python is compiled once for all tests.
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        yield str(home / "bin/python")


@pytest.mark.thorough
def test_prompts_of_weakincentives_are_improved(python: str) -> None:
    found = {"PYTHONPATH": str(ROOT / "examples" / "weakincentives_desk")}
    command = [python, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(CHECKS.parent)]
    done = subprocess.run(
        [*command, "--noconftest", "-p", "no:cacheprovider", "-p", "no:promptgraft", str(CHECKS)],
        env={**os.environ, **found},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.thorough
def test_the_example_gains_from_the_command_line(python: str, tmp_path: Path) -> None:
    job = ROOT / "examples" / "weakincentives_desk" / "desk.py"
    command = [python, "-m", "promptgraft", "optimize", f"{job}:job"]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "desk/teams: improved\n" in done.stdout
    assert "stored      by WeakIncentivesTarget\n" in done.stdout


@pytest.mark.skipif(sys.version_info >= (3, 12, 2), reason="this Python is new enough")
def test_an_older_python_is_named() -> None:
    found = ".".join(map(str, sys.version_info[:3]))
    with pytest.raises(ConfigError, match=f"needs Python 3.12.2 or newer, found {found}"):
        WeakIncentivesTarget(None, None, feedback_fn=lambda *_: None)  # type: ignore[arg-type]


@pytest.mark.skipif(sys.version_info < (3, 12, 2), reason="this Python is too old for it")
def test_a_missing_package_is_named() -> None:
    with contextlib.suppress(PackageNotFoundError):
        pytest.skip(f"weakincentives {version('weakincentives')} is installed")
    with pytest.raises(ConfigError, match=r"needs `weakincentives` 0\.27 or newer, found none"):
        WeakIncentivesTarget(None, None, feedback_fn=lambda *_: None)  # type: ignore[arg-type]
