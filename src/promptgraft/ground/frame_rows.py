"""Rows of tables of pandas, polars, Arrow and Hugging Face."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from promptgraft.errors import DataFormatError
from promptgraft.ground.frames import libraries_of
from promptgraft.ground.serde import shown

# The types of pandas.NA and pandas.NaT, by name because pandas may not be installed.
_MISSING = frozenset({"NAType", "NaTType"})
# The types of pandas for times without a time zone.
_TIMES = frozenset(f"datetime64[{unit}]" for unit in ("s", "ms", "us", "ns"))


def rows_of_frame(frame: Any) -> Iterator[dict[str, object]]:
    """Yield the rows of a table as dictionaries; missing values are None.

    Classes of Hugging Face ``datasets``, which are kept as numbers, become their names.

    Raises:
        DataFormatError: a column has no name, or two have the same.
    """
    libraries = libraries_of(frame)
    if libraries & {"pandas", "polars", "narwhals"}:
        frame = frame.collect() if hasattr(frame, "collect") else frame
        _check_names(list(frame.columns))
    if "pandas" in libraries:
        # It has no type of days: a column of nothing but midnights is one.
        times = [name for name in frame if str(frame[name].dtype) in _TIMES]
        days = {
            name: frame[name].dt.date
            for name in times
            if (frame[name].dropna().dt.normalize() == frame[name].dropna()).all()
        }
        rows = frame.assign(**days).to_dict("records")
    elif "pyarrow" in libraries:
        _check_names(frame.column_names)
        rows = frame.to_pylist()
    else:
        rows = frame if "datasets" in libraries else frame.iter_rows(named=True)
    classes = _classes_in(frame)
    for row in rows:
        cells = {name: _cell(value, nan="pandas" not in libraries) for name, value in row.items()}
        yield cells | {name: _named(cells[name], classes[name]) for name in classes.keys() & row}


def _classes_in(frame: Any) -> dict[str, list[str]]:
    """Return the names of the classes in each column that has some, also within its lists."""
    features: Any = {}
    if "datasets" in libraries_of(frame):
        features = frame.features.to_dict() if frame.features else {}
    elif "pyarrow" in libraries_of(frame):
        description = (frame.schema.metadata or {}).get(b"huggingface", b"{}")
        features = json.loads(description).get("info", {}).get("features", {})
    classes = {}
    for name, kind in features.items():
        match kind:
            case {"_type": "ClassLabel", "names": list(names)} | {
                "feature": {"_type": "ClassLabel", "names": list(names)}
            }:
                classes[name] = names
    return classes


def _named(value: object, names: Sequence[str]) -> object:
    if isinstance(value, list):
        return [_named(item, names) for item in value]
    # Cases without a class have -1.
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else None


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
