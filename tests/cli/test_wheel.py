"""The command line from an installed wheel, far from the checkout."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

ROOT = Path(__file__).parents[2]


@attrs.frozen
class Installed:
    """A wheel of this checkout, unpacked by pip where only it is found."""

    site: Path
    folder: Path

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run its console script in an empty folder."""
        return subprocess.run(
            [sys.executable, str(self.site / "bin" / "promptgraft"), *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(self.site)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    place = tmp_path_factory.mktemp("wheel")
    wheels, site, folder = place / "wheels", place / "site", place / "elsewhere"
    folder.mkdir()
    if importlib.util.find_spec("hatchling") is not None:
        command = ["build", "--wheel", "--no-isolation", "--outdir", str(wheels), str(ROOT)]
    else:  # pip fetches what builds it
        command = ["pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(wheels), str(ROOT)]
    python(*command)
    (wheel,) = wheels.glob("promptgraft-*.whl")
    # What it depends on comes from the environment of the tests.
    python(
        "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(site), str(wheel)
    )
    return Installed(site, folder)


def python(*module_and_arguments: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", *module_and_arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr


def test_the_wheel_answers(installed: Installed) -> None:
    assert installed("--help").stdout.startswith("Usage: promptgraft ")
    ended = installed("show")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert str(installed.folder) in ended.stdout


def test_a_project_from_the_wheel_is_right(installed: Installed) -> None:
    assert installed("init", "mine", "--template", "agent").returncode == 0
    ended = installed("check", "--project", "mine/promptgraft.yaml")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_demo_runs_from_the_wheel(installed: Installed) -> None:
    ended = installed("demo", "--json", "--quiet", "--budget", "600")

    assert ended.stderr == ""
    assert ended.returncode in (0, 1)
    document = json.loads(ended.stdout)
    assert document["prompt"]
    assert str(installed.site / "promptgraft" / "examples" / "triage") in "\n".join(document["use"])
    assert document["stored"]["store"] == str(installed.folder)
