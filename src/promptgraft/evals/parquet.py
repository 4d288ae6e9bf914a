"""Rows of Parquet files, unpacked within a budget."""

from __future__ import annotations

import base64
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from promptgraft.errors import DataFormatError
from promptgraft.evals.rows import CaseFaults, Row
from promptgraft.ground.content import File
from promptgraft.ground.environment import check_package
from promptgraft.ground.frame_rows import rows_of_frame
from promptgraft.ground.serde import unstructure
from promptgraft.ground.work import WorkBudget

_AT_ONCE = 1_000
"""Rows of a batch."""
_SMALLER = "name a part of it"


def parquet_rows(path: Path, faults: CaseFaults) -> Iterator[Row]:
    """Yield the rows of a Parquet file, counted from 1.

    A file may unpack to ten thousand times its size, so it is read in batches, each of which is
    paid from a budget before its texts are built.
    """
    check_package("pyarrow", "15.0", extra="parquet", what=f"{path}: reading Parquet")
    arrow, parquet = map(importlib.import_module, ("pyarrow", "pyarrow.parquet"))
    budget, number = WorkBudget(), 0
    with path.open("rb") as raw:  # here, so that a missing file is the same error as elsewhere
        try:
            schema = parquet.ParquetFile(raw).schema
            leaves = [schema.column(at) for at in range(len(schema))]
            texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
            # Read as dictionaries, in which a repeated text exists once.
            file = parquet.ParquetFile(raw, read_dictionary=texts)
            for batch in file.iter_batches(batch_size=_AT_ONCE):
                budget.spend("cases", batch.num_rows, str(path), _SMALLER)
                budget.spend("bytes", _unpacked(batch), str(path), _SMALLER)
                for row in rows_of_frame(arrow.Table.from_batches([batch])):
                    number += 1
                    yield from _row_of(number, row, faults)
        except DataFormatError as error:
            faults.add(0, str(error).removeprefix(f"{path}: "))
        except (arrow.ArrowException, OSError) as error:
            faults.add(0, f"not Parquet: {' '.join(str(error).split())}")


def _row_of(number: int, row: dict[str, object], faults: CaseFaults) -> Iterator[Row]:
    try:
        yield Row(number, unstructure(_with_parts(row)))
    except DataFormatError as error:
        faults.add(number, str(error))


def _with_parts(value: object) -> object:
    """Return a value with parts of messages in place of bytes, as other formats have files."""
    match value:
        case bytes():
            return _part(value, "")
        # The form of images in tables of Hugging Face.
        case {"bytes": bytes(data), **more} if more.keys() <= {"path"}:
            return _part(data, str(more.get("path") or ""))
        case dict():
            return {key: _with_parts(item) for key, item in value.items()}
        case list():
            return list(map(_with_parts, value))
    return value


def _part(data: bytes, name: str) -> dict[str, object]:
    file = File(data=data, name=name)
    encoded = base64.b64encode(data).decode()
    return {
        "inline_data": {"mime_type": file.media_type, "data": encoded, "display_name": file.name}
    }


def _unpacked(array: Any) -> int:
    """Return the size in bytes of Arrow data once repeated texts are repeated."""
    if hasattr(array, "columns"):  # a batch
        return sum(map(_unpacked, array.columns))
    if hasattr(array, "dictionary"):
        compute = importlib.import_module("pyarrow.compute")
        lengths = compute.binary_length(array.dictionary)
        return compute.sum(lengths.take(array.indices)).as_py() or 0
    if hasattr(array, "field"):  # of a struct
        return sum(_unpacked(array.field(at)) for at in range(array.type.num_fields))
    return _unpacked(array.flatten()) if hasattr(array, "values") else int(array.nbytes)
