"""Rows of tables of pandas, polars, Arrow and Hugging Face."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from promptgraft.errors import DataFormatError
from promptgraft.ground.frames import libraries_of
from promptgraft.ground.serde import shown

# The types of pandas.NA and pandas.NaT, by name because pandas may not be installed.
_MISSING = frozenset({"NAType", "NaTType"})
# The types of pandas for times without a time zone.
_TIMES = frozenset(f"datetime64[{unit}]" for unit in ("s", "ms", "us", "ns"))
# How pandas, polars, Arrow and Hugging Face name numbers of single precision, also within lists.
_SINGLE = re.compile(r"\b([Ff]loat32|float)\b")


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
    if "datasets" in libraries:  # else its rows may be tables, arrays or tensors
        frame = frame.with_format(None)
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
    kinds, singles = _kinds_in(frame)
    for row in rows:
        cells = {name: _cell(value, nan="pandas" not in libraries) for name, value in row.items()}
        cells |= {name: _as_written(cells[name]) for name in singles & cells.keys()}
        yield {name: _named(value, kinds.get(name)) for name, value in cells.items()}


def _kinds_in(frame: Any) -> tuple[Mapping[str, object], frozenset[str]]:
    """Return what Hugging Face says of each column, and the columns of single precision."""
    features: Mapping[str, object] = {}
    if "datasets" in libraries_of(frame):
        kinds = frame.features or {}
        features = frame.features.to_dict() if frame.features else {}
    elif "pyarrow" in libraries_of(frame):
        kinds = dict(zip(frame.schema.names, frame.schema.types, strict=True))
        description = (frame.schema.metadata or {}).get(b"huggingface", b"{}")
        features = json.loads(description).get("info", {}).get("features", {})
    else:
        kinds = dict(zip(frame.columns, frame.dtypes, strict=True))
    return features, frozenset(name for name, kind in kinds.items() if _SINGLE.search(str(kind)))


def _as_written(value: object) -> object:
    """Return numbers of single precision as they are written: 0.1, not 0.10000000149011612."""
    if isinstance(value, list):
        return [_as_written(item) for item in value]
    if isinstance(value, dict):
        return {key: _as_written(item) for key, item in value.items()}
    digits = range(6, 10) if isinstance(value, float) else ()
    rounded = (float(f"{value:.{count}g}") for count in digits)
    return next((number for number in rounded if array("f", [number])[0] == value), value)


def _named(value: object, kind: object) -> object:
    """Return a value of Hugging Face with the names of its classes, which are kept as numbers."""
    match value, kind:
        case _, {"_type": str(), "feature": inner} | [inner]:  # of a list
            return _named(value, inner)
        case list(), dict():
            return [_named(item, kind) for item in value]
        case _, {"_type": "ClassLabel", "names": list(names)}:
            # Cases without a class have -1.
            return names[value] if isinstance(value, int) and 0 <= value < len(names) else None
        case dict(), dict():
            return {name: _named(item, kind.get(name)) for name, item in value.items()}
    return value


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
        plain = _as_written(value.tolist()) if value.dtype == "float32" else value.tolist()
        return _cell(plain, nan=nan)
    if isinstance(value, list):
        # Within a list, pandas does not use NaN for a missing value.
        return [_cell(item, nan=True) for item in value]
    return None if not nan and isinstance(value, float) and value != value else value  # noqa: PLR0124
