"""Conversion of tables of pandas, polars, Arrow and Hugging Face to rows and from rows.

Reading a table imports nothing: a caller that has a table has its library loaded.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.ground.serde import shown


class Frame(Protocol):
    """A table of pandas, polars, narwhals, Arrow or Hugging Face ``datasets``."""

    def __len__(self) -> int: ...


_READ = frozenset({"datasets", "narwhals", "pandas", "polars", "pyarrow"})
_MADE = ("pandas", "polars", "pyarrow")
# Of pandas.NA and pandas.NaT; by name, because pandas may not be installed.
_MISSING = frozenset({"NAType", "NaTType"})


def is_frame(value: object) -> bool:
    """Return whether a value is a table, judged by the library of its class."""
    kind = type(value)
    return bool(_libraries(value)) and (hasattr(kind, "columns") or hasattr(kind, "column_names"))


def rows_of_frame(frame: Any) -> Iterator[dict[str, object]]:
    """Yield the rows of a table as dictionaries; missing values are None.

    Raises:
        DataFormatError: a column has no name, or two have the same.
    """
    libraries = _libraries(frame)
    if libraries & {"pandas", "polars", "narwhals"}:
        frame = frame.collect() if hasattr(frame, "collect") else frame
        _check_names(list(frame.columns))
    if "pandas" in libraries:
        rows = frame.to_dict("records")
    elif "pyarrow" in libraries:
        _check_names(frame.column_names)
        rows = frame.to_pylist()
    else:
        rows = frame if "datasets" in libraries else frame.iter_rows(named=True)
    for row in rows:
        yield {name: _cell(value, nan="pandas" not in libraries) for name, value in row.items()}


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


def _libraries(value: object) -> frozenset[str]:
    return _READ & {base.__module__.partition(".")[0] for base in type(value).__mro__}


def _check_names(names: Sequence[object]) -> None:
    for name in names:
        if not isinstance(name, str):
            raise DataFormatError(f"columns: expected names that are texts, found {shown(name)}")
        if names.count(name) > 1:
            raise DataFormatError(f"columns: {names.count(name)} columns are called {shown(name)}")


def _cell(value: Any, *, nan: bool) -> object:
    if type(value).__name__ in _MISSING:
        return None
    if hasattr(value, "tolist"):  # a number or a list of numpy
        return _cell(value.tolist(), nan=nan)
    if isinstance(value, list):
        # Within a list, pandas does not use NaN for a missing value.
        return [_cell(item, nan=True) for item in value]
    return None if not nan and isinstance(value, float) and value != value else value  # noqa: PLR0124
