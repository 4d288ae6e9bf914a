"""Python that a prompt file points at."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import attrs

from promptgraft.errors import ConfigError
from promptgraft.project.python_source import PythonSource, Wanted, place_of
from promptgraft.strict.kinds import without_name
from promptgraft.strict.nodes import Node

T = TypeVar("T")


@attrs.frozen
class Python:
    """Loads what stands in Python files beside a prompt.

    Attributes:
        folder: what the files are named from.
        source: what runs each file once.
    """

    folder: Path
    source: PythonSource = attrs.field(factory=PythonSource, repr=False)

    def load(self, spec: str, wanted: Wanted[T], node: Node) -> T | None:
        """Return what ``spec`` names; faults are noted at ``node``, and None returned."""
        try:
            return self.source.load(place_of(spec, wanted.what, base=self.folder), wanted)
        except ConfigError as error:
            node.fault(without_name(str(error), wanted.what))
            return None
