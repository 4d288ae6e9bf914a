"""Cases in YAML: ``no`` is a text, a date is a text, ``1e3`` is refused until it is quoted.

The values are built from the events of the parser, without recursion: a file cannot exhaust the
stack, name a Python type, or multiply itself through aliases.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import attrs

from promptgraft.evals.faults import Faults
from promptgraft.evals.reading import DEEPEST, Row, is_cases, read_text
from promptgraft.evals.rows_json import eval_set_rows
from promptgraft.serde import Json, MismatchError, shown

_CONSTANTS: dict[str, Json] = {
    "": None,
    "~": None,
    **dict.fromkeys(("null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"(\.[0-9]+|[-+]?(0|[1-9][0-9]*)\.[0-9]*)([eE][-+][0-9]+)?")
# Versions of YAML disagree about these: what one writes as a text is a number to the other.
_AMBIGUOUS = re.compile(
    r"[-+]?0[0-9]+(\.[0-9]*)?|0[xob][0-9a-fA-F_]+|[-+]?[0-9]+(_[0-9]+)+"
    r"|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)(e[-+]?[0-9]+)?|[-+]?\.inf|\.nan",
    re.IGNORECASE,
)
_TEXT_TAGS = {"!", "tag:yaml.org,2002:str"}


def yaml_rows(path: Path, faults: Faults) -> Iterator[Row]:
    """Yield the cases of a YAML file: a list, an EvalSet, or one case of an EvalSet.

    Raises:
        OSError: the system refuses.
    """
    import yaml

    text = read_text(path, faults)
    if text is None:
        return
    builder = _Builder(faults)
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        faults.add(line, f"not YAML: {error.problem}")
    except yaml.YAMLError:
        faults.add(0, "not YAML: it holds control characters")
    except MismatchError as error:
        faults.add(builder.line, str(error))
    else:
        yield from builder.rows()


@attrs.define
class _Open:
    """A list or an object that is being read."""

    line: int
    key: str | None = None
    items: list[Json] = attrs.field(factory=list)
    members: dict[str, Json] | None = None
    lines: list[int] = attrs.field(factory=list)


class _Builder:
    """Puts events together."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._open: list[_Open] = [_Open(1)]
        self._case_lines: dict[str, list[int]] = {}
        self.line = 1

    def take(self, event: object) -> None:
        """Take one event of the parser.

        Raises:
            MismatchError: what it means cannot be kept.
        """
        import yaml

        if isinstance(event, yaml.Event) and event.start_mark is not None:
            self.line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            raise MismatchError(f"expected data without aliases, found `*{event.anchor}`")
        if isinstance(event, yaml.ScalarEvent):
            plain = event.style is None or event.style == ""
            self._add(self._scalar(event.value, event.tag, plain=plain), self.line)
        elif isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent)):
            is_mapping = isinstance(event, yaml.MappingStartEvent)
            self._start(event.tag, is_mapping=is_mapping)
        elif isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            self._end()

    def rows(self) -> Iterator[Row]:
        """Yield the cases of the document."""
        root = self._open[0]
        if len(root.items) > 1:
            self._faults.add(root.lines[1], "expected one document, found a second one")
            return
        for document, line in zip(root.items, root.lines, strict=True):
            yield from self._document(document, line)

    def _document(self, document: Json, line: int) -> Iterator[Row]:
        if isinstance(document, list):
            yield from map(Row, self._case_lines[""], document)
        elif isinstance(document, dict):
            for key, value in document.items():
                if is_cases(key) and isinstance(value, list):
                    for at, case in zip(self._case_lines[key], value, strict=True):
                        yield Row(at, case, in_eval_set=True)
            yield from eval_set_rows(document, line, self._faults)
        elif document is not None:
            self._faults.add(line, "expected a list of cases or an EvalSet")

    def _start(self, tag: str | None, *, is_mapping: bool) -> None:
        if tag is not None:
            raise MismatchError(f"expected plain data, found the tag {shown(tag)}")
        if len(self._open) > DEEPEST:
            raise MismatchError(f"nested deeper than {DEEPEST} levels")
        parent = self._open[-1]
        if parent.members is not None and parent.key is None:
            raise MismatchError("expected a text as key, found a list or an object")
        self._open.append(_Open(self.line, members={} if is_mapping else None))

    def _end(self) -> None:
        done = self._open.pop()
        parent = self._open[-1]
        if done.members is None and len(self._open) <= 2:
            self._case_lines[parent.key or ""] = done.lines
        self._add(done.items if done.members is None else done.members, done.line)

    def _add(self, value: Json, line: int) -> None:
        parent = self._open[-1]
        if parent.members is None:
            parent.items.append(value)
            parent.lines.append(line)
        elif parent.key is None:
            parent.key = self._key(value, parent.members)
        else:
            parent.members[parent.key] = value
            parent.key = None

    def _key(self, value: Json, members: dict[str, Json]) -> str:
        if not isinstance(value, str):
            raise MismatchError(f"expected a text as key, found {shown(value)}; quote it")
        if value in members:
            self._faults.add(self.line, f"the key {shown(value)} occurs twice in one object")
        return value

    def _scalar(self, text: str, tag: str | None, *, plain: bool) -> Json:
        if tag is not None and tag not in _TEXT_TAGS:
            raise MismatchError(f"expected plain data, found the tag {shown(tag)}")
        if not plain or tag is not None:
            return text
        if text == "<<":
            raise MismatchError("expected data without merge keys, found `<<`")
        try:
            return plain_scalar(text)
        except MismatchError as error:
            self._faults.add(self.line, str(error))
            return text


def plain_scalar(text: str) -> Json:
    """Return what an unquoted YAML scalar means.

    Raises:
        MismatchError: it means different things to different readers.
    """
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text) and len(text) <= 1000:
        return int(text)
    if _FLOAT.fullmatch(text) and math.isfinite(number := float(text)):
        return number
    if _AMBIGUOUS.fullmatch(text):
        raise MismatchError(f"{shown(text)} is ambiguous; quote it if it is a text")
    return text
