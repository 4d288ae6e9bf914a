"""Packages that import what they export on first use."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

PACKAGE = """
from typing import TYPE_CHECKING

from promptgraft.ground.lazy import lazy_exports

if TYPE_CHECKING:
    from toy.part import made as first

    second = first

__all__ = ["first", "second"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__)
"""
PROGRAM = """
import sys, toy
assert "toy.part" not in sys.modules
print(toy.second, toy.first, dir(toy), toy.__file__.endswith(".pyc"))
"""


def test_names_are_found_where_only_compiled_code_is_installed(tmp_path: Path) -> None:
    toy = tmp_path / "source" / "toy"
    toy.mkdir(parents=True)
    (toy / "__init__.py").write_text(PACKAGE, "utf-8")
    (toy / "part.py").write_text("made = 'a value'\n", "utf-8")
    archive = tmp_path / "toy.zip"
    with zipfile.PyZipFile(str(archive), "w") as file:
        file.writepy(str(toy))
        assert {name.rpartition(".")[2] for name in file.namelist()} == {"pyc"}
        file.extractall(tmp_path / "folder")
    for place in (archive, tmp_path / "folder"):
        ended = subprocess.run(
            [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(place)!r}){PROGRAM}"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert ended.stdout == "a value a value ['first', 'second'] True\n"
