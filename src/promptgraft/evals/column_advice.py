"""What to write so that a column is read otherwise: in a project file, or in Python."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path

import attrs

from promptgraft.evals.types import Case
from promptgraft.ground.files import is_file
from promptgraft.ground.text import listed
from promptgraft.ground.yaml_text import plain_scalar

Columns = str | Sequence[str] | Mapping[str, str]

_OPEN = ("...", "COLUMN", "NAME")  # what the user replaces
_SHORT = {"id": "id", "input": "input", "expected": "label"}
"""The arguments of `Dataset.of` that name a column, by the field."""
_MOST_NAMED = 8
_PLACEHOLDER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VALUE = re.compile(r"-?\d+(?:[.,]\d+)?|.{61,}", re.DOTALL)
"""A text that is rather a value than the name of a column."""
_USUAL_ANSWERS = frozenset(
    ("answer", "category", "class", "gold", "ideal", "intent", "label", "output", "target", "truth")
)
"""What columns of answers are often called: only for advice, because an input may be, too."""


@attrs.frozen
class ColumnAdvice:
    """Advice for those who write one data set; ``maker`` is the call that made it in Python."""

    maker: str = ""

    @classmethod
    def of(cls, origin: str | None) -> ColumnAdvice:
        """Return the advice for a case of this origin in Python; None for one of a project."""
        if origin is None:
            return IN_FILE
        return cls("load(FILE") if is_file(Path(origin.rpartition(":")[0])) else IN_CALL

    def keep(self, columns: Sequence[str]) -> str:
        """Return what hides columns from the model."""
        return self._written("keep", columns)

    def unread(self, column: str, case: Case, *, is_set: bool) -> str:
        """Return what to do with a column of an input that the prompt does not read."""
        renaming = f"{self.field('input', {'NAME': column})} gives it another name, or "
        renaming = "" if _PLACEHOLDER.fullmatch(column) else renaming
        if is_set:  # its value is that of a split
            return f"{renaming}{self.split(column)}"
        answer = f", {self.field('expected', column)} makes it the answer"
        return f"{renaming}{self.keep([column])} hides it{answer if case.expected is None else ''}"

    def answer(self, field: str, cases: Sequence[Case]) -> str:
        """Return how to name the column of ``field``; empty if some cases have it."""
        columns = cases[0].input
        if not isinstance(columns, dict) or any(getattr(case, field) is not None for case in cases):
            return ""
        named = listed(islice(columns, _MOST_NAMED))
        return f"; name its column with {self.field(field, 'COLUMN')}, the input has {named}"

    def hidden_or_read(self, column: str) -> str:
        """Return what to do with a column that has the name of a field, but not its form."""
        parameter = self.field("input", ["...", column])
        return f"{self.keep([column])} hides the column, {parameter} makes it a parameter"

    def field(self, name: str, columns: Columns) -> str:
        """Return what makes columns a field of the case."""
        if self.maker == IN_CALL.maker and name in _SHORT and not isinstance(columns, Mapping):
            return self._written(_SHORT[name], columns)
        return self._written("fields", {name: columns})

    def unknown(self, columns: Sequence[str]) -> str:
        """Return what is wrong with columns that nothing reads."""
        in_call = self.maker == IN_CALL.maker
        where, answer = ("", "label") if in_call else ("in `fields`, ", "expected")
        pronoun, what = "them", f"{len(columns)} unknown keys"
        if len(columns) == 1:
            pronoun, what = "it", "unknown key"
        return (
            f"{what}; {self.keep(columns)} hides {pronoun} from the model; {where}`{answer}` names "
            "the answer and `input` what is shown"
        )

    def once(self) -> str:
        """Return what leaves out rows that repeat another one."""
        if self.maker == IN_CALL.maker:
            return "take it out, of a table by `drop_duplicates()`"
        return f"take it out, or set {self._written('duplicates', 'drop')}"

    def split(self, column: str) -> str:
        """Return what divides the cases by a column."""
        if self.maker:
            cases = self.keep([column]).strip("`")
            return f"`Splits.by_field({cases}, {_in_quotes(column)})` divides the cases by it"
        return f"`splits: {{field: {column}}}` divides the cases by it"

    def headless(self, columns: Iterable[str], *, cells: bool) -> str:
        """Return what to do if the header of a file looks like a case; empty if it does not."""
        if cells and any(map(_VALUE.fullmatch, columns)):
            return "; if the first line is a case, write a line of names above it"
        return ""

    def unsaid(self, columns: Sequence[str], *, cells: bool = False) -> str:
        """Return what is wrong with columns that the model may be shown though nothing says so."""
        named = (column for column in columns if column.casefold() in _USUAL_ANSWERS)
        answer = next(named, columns[-1])
        place, more = "", ""
        if not self.maker:
            place = " beside the path of the file"
            more = "; `Dataset.load` takes `fields`, too"
        return (
            f"nothing says whether the model may see {listed(columns)}; if `{answer}` is the "
            f"answer, write {self.field('expected', answer)}{place}; else name the input with "
            f"{self.field('input', ['COLUMN', '...'])}, or the messages of a chat with "
            f"{self.field('turns', 'COLUMN')}{more}{self.headless(columns, cells=cells)}"
        )

    def _written(self, key: str, value: object) -> str:
        if self.maker:
            return f"`Dataset.{self.maker}, {key}={_spelled(value, _in_quotes)})`"
        return f"`{key}: {_spelled(value, _in_yaml)}`"


IN_FILE = ColumnAdvice()
IN_CALL = ColumnAdvice("of(CASES")


def _spelled(value: object, spell: Callable[[str], str]) -> str:
    match value:
        case Mapping():
            members = (f"{spell(key)}: {_spelled(item, spell)}" for key, item in value.items())
            return f"{{{', '.join(members)}}}"
        case str():
            return value if value in _OPEN else spell(value)
        case Sequence():
            return f"[{', '.join(_spelled(item, spell) for item in value)}]"
    raise TypeError(value)


def _in_quotes(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _in_yaml(text: str) -> str:
    """Return a text as it is written in a list of YAML, which is valid in JSON's quotes."""
    is_plain = text.isidentifier() and plain_scalar(text) == text
    return text if is_plain else _in_quotes(text)
