"""One case of a plain file: which column or key means what."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.evals import pieces
from promptgraft.evals.pieces import Object, Problems
from promptgraft.evals.types import Case, Turn
from promptgraft.serde import Json, did_you_mean, parse_json, shown

FIELDS = (
    "id",
    "input",
    "expected",
    "critical",
    "hints",
    "tools",
    "turns",
    "context",
    "state",
    "recorded",
    "fields",
)
# In CSV these are JSON inside the cell.
_SIMPLE = {"id", "input", "expected"}
_STRUCTURED = {"tools", "turns", "context", "state", "recorded", "fields"}
# Parameters may have any name; one that is this near to a field is a typing mistake.
_TYPING_MISTAKE = 0.87

Names = Mapping[str, str | Sequence[str]]


class PlainReader:
    """Reads the cases of one plain file.

    Args:
        names: the column or key of each field, where it is not that of the field itself; for
            ``input`` also a list of columns, which become an object of parameters.
        keep: columns that are not shown to the agent but stay in ``Case.fields``.
        cells: whether every value is the text of a cell.

    Raises:
        ConfigError: a field that cases do not have, or a column with two meanings.
    """

    def __init__(self, names: Names, keep: Collection[str], *, cells: bool) -> None:
        self._columns, self._parameters = _columns(names, keep)
        self._keep = frozenset(keep)
        by_field = {field: column for column, field in self._columns.items()}
        self._id, self._input_column = by_field.get("id", ""), by_field.get("input", "input")
        self._cells = cells
        self._takes_rest: bool | None = False if "input" in names else None

    def id_of(self, value: Object) -> Json:
        """Return what the case calls itself; None when it does not say."""
        found = value.get(self._id)
        return None if self._cells and found == "" else found

    def read(self, value: Object, *, case_id: str, origin: str, problems: Problems) -> Case:
        """Return a case; what does not fit is noted in ``problems``."""
        found, rest = self._named(value, problems)
        if found.keys() <= _SIMPLE:  # nearly all of a large file
            return Case(
                id=case_id,
                input=self._input(value, found, rest, problems),
                expected=found.get("expected"),
                fields=self._kept(value, found, problems),
                origin=origin,
            )
        turns = pieces.turns(found["turns"], "turns", problems) if "turns" in found else ()
        last = turns[-1] if turns else Turn(user="")
        tools, recorded = found.get("tools"), found.get("recorded")
        return Case(
            id=case_id,
            input=last.user if turns else self._input(value, found, rest, problems),
            expected=found.get("expected", last.expected),
            tools=last.tools if tools is None else pieces.tool_uses(tools, "tools", problems),
            turns=turns if len(turns) > 1 else (),
            context=pieces.context(found.get("context"), "context", problems),
            state=pieces.a_mapping(found.get("state"), "state", problems),
            recorded=None if recorded is None else pieces.answer(recorded, "recorded", problems),
            hints=pieces.hints(found.get("hints"), "hints", problems),
            critical=pieces.a_flag(found.get("critical"), "critical", problems),
            fields=self._kept(value, found, problems),
            origin=origin,
        )

    def _named(self, value: Object, problems: Problems) -> tuple[Object, list[str]]:
        """Return what is said of each field, and the keys that are none."""
        found: Object = {}
        rest: list[str] = []
        for column, item in value.items():
            field = self._columns.get(column)
            if field is None:
                if column not in self._keep:
                    rest.append(column)
            elif item is not None and not (self._cells and item == ""):
                is_json = self._cells and field in _STRUCTURED and isinstance(item, str)
                found[field] = _from_cell(str(item), column, problems) if is_json else item
        return found, rest

    def _kept(self, value: Object, found: Object, problems: Problems) -> Object:
        kept = {key: value[key] for key in value if key in self._keep}
        return kept | pieces.a_mapping(found.get("fields"), "fields", problems)

    def _input(self, value: Object, found: Object, rest: list[str], problems: Problems) -> Json:
        if self._takes_rest is None:  # the first case decides for its file
            self._takes_rest = "input" not in found and "turns" not in found
        if self._takes_rest:
            return _all_of(value, found, rest, problems)
        if rest:
            unknown = [key for key in rest if key not in self._parameters]
            _refuse(unknown, tuple(self._columns), problems)
        if self._parameters:
            problems.extend(f"lacks `{k}`" for k in self._parameters if k not in value)
            return {key: value[key] for key in self._parameters if key in value}
        if "input" not in found:
            problems.append(f"lacks `{self._input_column}`")
        elif not isinstance(found["input"], (str, dict)):
            problems.append(f"input: expected a text or an object, found {shown(found['input'])}")
        return found.get("input")


def _columns(names: Names, keep: Collection[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the field of each column, and the columns that are parameters."""
    for field in names:
        if field not in FIELDS:
            meant = did_you_mean(field, list(FIELDS))
            raise ConfigError(f"fields: unknown field {shown(field)}{meant}; cases have {FIELDS}")
    given = names.get("input", "input")
    parameters = () if isinstance(given, str) else tuple(given)
    singles = {field: names.get(field, field) for field in FIELDS}
    pairs = [(name, field) for field, name in singles.items() if isinstance(name, str)]
    taken = [*(name for name, field in pairs if field in names), *parameters, *keep]
    for name in taken:
        if taken.count(name) > 1:
            raise ConfigError(f"fields: the column {shown(name)} has two meanings")
    explicit = set(taken)
    columns = {n: f for n, f in pairs if f in names or n not in explicit}
    return columns, parameters


def _from_cell(text: str, column: str, problems: Problems) -> Json:
    try:
        return parse_json(text, where=column)
    except DataFormatError:
        problems.append(f"{column}: expected JSON in the cell, found {shown(text)}")
        return None


def _refuse(rest: Sequence[str], known: Sequence[str], problems: Problems) -> None:
    for key in rest:
        mend = did_you_mean(key, list(known)) or "; name it in `keep` or take it out"
        problems.append(f"unknown field {shown(key)}{mend}")


def _all_of(value: Object, found: Object, rest: Sequence[str], problems: Problems) -> Object:
    if "input" in found:
        problems.append("`input` here, but the first case has parameters instead; use one of both")
        return {}
    for key in rest:
        near = difflib.get_close_matches(key, FIELDS, n=1, cutoff=_TYPING_MISTAKE)
        if near:
            problems.append(f"unknown field {shown(key)} (did you mean `{near[0]}`?)")
    if not rest:
        problems.append("lacks `input`")
    return {key: value[key] for key in rest}
