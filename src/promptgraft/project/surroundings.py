"""What names in a project file refer to: files beside it, and objects in Python."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TypeVar

import attrs

from promptgraft.errors import CallerError, DataFormatError
from promptgraft.ground.files import is_file
from promptgraft.ground.strict.nodes import Source, spelled
from promptgraft.ground.yaml_text import YamlPath
from promptgraft.project.python_source import FUNCTION, ObjectKind, PythonSource

T = TypeVar("T")


@attrs.frozen
class Surroundings:
    """Resolves names in a project file: against the file, its folder and its Python code."""

    file: Source
    folder: Path
    python: PythonSource

    def refusal(self, path: YamlPath, why: str | CallerError) -> DataFormatError:
        """Return an error that names ``path`` and its line in the project file."""
        line = self.file.line(path, str(why).removeprefix(f"{spelled(path)}: "))
        return DataFormatError(line, (line,))

    @contextlib.contextmanager
    def placed(self, path: YamlPath) -> Iterator[None]:
        """Raise the caller errors of a block as faults at ``path``.

        A ``DataFormatError`` passes: it says itself where the fault is.
        """
        try:
            yield
        except DataFormatError:
            raise
        except CallerError as error:
            raise self.refusal(path, error) from error

    def existing(self, path: YamlPath, name: str) -> Path:
        """Return the existing file that ``path`` names."""
        place = self.folder / name
        if place.is_dir():
            raise self.refusal(path, f"expected a file, found a folder at {place}; name a file")
        if not is_file(place):
            raise self.refusal(
                path,
                f"expected a file, found none at {place}{_near_file(place)}; paths are relative to "
                "the project file",
            )
        return place

    def loaded(self, path: YamlPath, spec: str, kind: ObjectKind[T]) -> T:
        """Return the object that ``file.py:NAME`` or ``module:NAME`` at ``path`` names."""
        with self.placed(path):
            return self.python.load(spec, kind, spelled(path))

    def function(self, path: YamlPath, spec: str) -> Callable[..., object]:
        """Return the function that ``spec`` at ``path`` names; see :meth:`loaded`."""
        return self.loaded(path, spec, FUNCTION)


def _near_file(place: Path) -> str:
    """Return the file in the same folder that is probably meant, in words; empty for none."""
    try:
        files = [
            path for path in islice(place.parent.iterdir(), 500) if path.suffix == place.suffix
        ]
    except OSError:  # there is no folder
        return ""
    # Without the endings, which make all names alike.
    near = difflib.get_close_matches(place.stem, [path.stem for path in files], n=1)
    return f" (did you mean `{near[0]}{place.suffix}`?)" if near else ""
