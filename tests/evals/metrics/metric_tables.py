"""The tables of `tables.md`, and the cases and answers that their cells stand for."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from promptgraft.adapters.base import Usage
from promptgraft.evals.types import Answer, Case, ToolUse
from promptgraft.ground.serde import Json

TABLES = Path(__file__).with_name("tables.md")

_HEADING = re.compile(r"^### `(\w+)`", re.MULTILINE)
_CELLS = re.compile(r"(?<!\\)\|")


class Row(NamedTuple):
    metric: str
    answer: Any
    expected: Json
    options: dict[str, Json]
    score: str
    reason: str


def rows() -> list[Row]:
    """Return every row of the page, with the metric under whose heading it stands."""
    parts = _HEADING.split(TABLES.read_text("utf-8"))[1:]
    found: list[Row] = []
    for metric, text in zip(parts[::2], parts[1::2], strict=True):
        table = text.partition(
            "| answer | expected | options | score | reason |\n|---|---|---|---|---|\n"
        )
        for line in table[2].splitlines():
            if not line.startswith("|"):
                break
            found.append(_row(metric, line))
    return found


def _row(metric: str, line: str) -> Row:
    cells = [cell.strip().replace("\\|", "|") for cell in _CELLS.split(line)[1:-1]]
    answer, expected, options = (json.loads(cell.strip("`")) for cell in cells[:3])
    return Row(metric, answer, expected, options, cells[3], cells[4])


def answer_of(cell: Any) -> Answer:
    """Return the answer of a cell: a text, or an object with fields of an answer."""
    if isinstance(cell, str):
        return Answer(text=cell)
    fields = dict(cell)
    return Answer(
        text=fields.pop("text", ""),
        output=fields.pop("output", None),
        tools=tools_of(fields.pop("tools", [])),
        usage=Usage(**fields.pop("usage", {})),
        cost=Decimal(fields.pop("cost")) if "cost" in fields else None,
        **fields,
    )


def case_of(metric: str, cell: Any) -> Case:
    """Return the case of a cell: the expected value, or the expected tools."""
    if metric.startswith("tool_trajectory"):
        return Case(id="c", input="question", tools=tools_of(cell))
    return Case(id="c", input="question", expected=cell)


def tools_of(listed: list[dict[str, Json]]) -> tuple[ToolUse, ...]:
    return tuple(ToolUse(**tool) for tool in listed)  # type: ignore[arg-type]
