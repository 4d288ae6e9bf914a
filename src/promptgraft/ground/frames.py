"""Tables of pandas, polars, Arrow and Hugging Face: which values are some, and rows as one.

Reading a table imports nothing: a caller that has a table has its library loaded.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from promptgraft.errors import ConfigError
from promptgraft.ground.serde import shown


class Frame(Protocol):
    """A table of pandas, polars, narwhals, Arrow or Hugging Face ``datasets``."""

    def __len__(self) -> int: ...


_READ = frozenset({"datasets", "narwhals", "pandas", "polars", "pyarrow"})
_MADE = ("pandas", "polars", "pyarrow")


def is_frame(value: object) -> bool:
    """Return whether a value is a table, judged by the library of its class."""
    kind = type(value)
    return bool(libraries_of(value)) and (hasattr(kind, "columns") or hasattr(kind, "column_names"))


def frame_of(rows: Sequence[Mapping[str, object]], library: str) -> Any:
    """Return rows as a table of pandas, polars or Arrow.

    Raises:
        ConfigError: the library is not one of these, or not installed.
    """
    if library not in _MADE:
        raise ConfigError(f"library: expected one of {', '.join(_MADE)}, found {shown(library)}")
    try:
        module = importlib.import_module(library)
    except ModuleNotFoundError:
        raise ConfigError(
            f"to_frame: expected the package `{library}`, found none; run `pip install {library}`, "
            f"or give another of {', '.join(_MADE)}"
        ) from None
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name) for row in rows] for name in names}
    return (module.table if library == "pyarrow" else module.DataFrame)(columns)


def libraries_of(value: object) -> frozenset[str]:
    """Return the libraries of tables that the class of a value is of."""
    return _READ & {base.__module__.partition(".")[0] for base in type(value).__mro__}
