"""Cases of plain files: which column or key is which field, and what is in none of them.

Keys may be in snake_case or camelCase; a key whose value is null counts as absent.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.evals import field_kinds
from promptgraft.evals.row_paths import RowPaths, listed_keys, path_hint, root_of
from promptgraft.evals.rows import advice_for
from promptgraft.evals.types import Case, Speaker, Turn
from promptgraft.ground.content import Content, File, Input
from promptgraft.ground.serde import Json, did_you_mean, nearest, parse_json, shown
from promptgraft.ground.strict.checks import ANYTHING, OBJECT, Check, Kind, check
from promptgraft.ground.strict.kinds import snake_case
from promptgraft.ground.strict.nodes import Node
from promptgraft.ground.text import counted

_KINDS: Mapping[str, Kind[object]] = {
    "expected": ANYTHING,
    "critical": field_kinds.FLAG,
    "hints": field_kinds.HINTS,
    "tools": field_kinds.TOOL_USES,
    "turns": field_kinds.TURNS,
    "context": field_kinds.MESSAGES,
    "state": OBJECT,
    "recorded": field_kinds.ANSWER,
    "fields": OBJECT,
}
FIELDS = ("id", "input", *_KINDS)
_OF_SEVERAL = ("input", "expected")  # fields that may have several columns


def _as_input(value: object) -> Input:
    if isinstance(value, File):
        return (value,)
    return value if isinstance(value, (str, dict)) else None


_INPUT: Check[Input] = check("a text, an object, or a list of messages", _as_input)
_NO_TURN = Turn(user="")
# The shapes of fields whose names are as common as names of columns; in cells they are JSON.
_SHAPES: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("tools", "turns", "context"), (list,)),
    **dict.fromkeys(("state", "fields"), (dict,)),
    "recorded": (dict, str),
}
_FORMS = {
    "tools": "a list of calls",
    "turns": "a list of turns",
    "context": "a list of messages",
    "critical": "true or false",
}
_COMMON = (*_SHAPES, "hints", "critical")
# Parameters may have any name, but one this similar to the name of a field is a typing mistake.
_TYPING_MISTAKE = 0.87
_MISSPELLED = 0.8
_MOST_COMPARED = 1_000
"""Different keys that are compared with the names of fields, which is slow."""
_MOST_UNKNOWN = 40
"""Unknown keys of one case that are named."""


def _has_form(name: str, value: Json) -> bool:
    """Return whether a value has the form of the field of this name."""
    if name == "critical":
        return field_kinds.FLAG.fits(value) is not None
    if name not in _FORMS or not isinstance(value, list):
        return isinstance(value, _SHAPES.get(name, object))
    items = [item for item in value if isinstance(item, dict)]
    # Passages are no messages, and the tools that there were are not those that were called.
    is_defined = name == "tools" and any(map(field_kinds.defines_tool, items))
    return len(items) == len(value) and not is_defined


Names = Mapping[str, str | Sequence[str] | Mapping[str, str]]


class PlainReader:
    """Reads the cases of one plain file.

    Args:
        names: the column or key of each field that has another name in the file; for ``input``
            and ``expected`` also a list of columns, which become an object, or the columns by the
            names of its members.
        keep: columns that are hidden from the agent and kept in ``Case.fields``.
        cells: whether every value is the text of a CSV cell.
        parameters: names that the prompt reads; columns of these names are parameters even where
            fields are called the same. None if it is not known what is asked, or it is code that
            takes what it needs.
        files: columns with images or files.
        texts: members of ``expected`` that are texts, also where all their cells are numbers.
        in_python: whether the rows were given to ``Dataset.of``, for messages.
    """

    def __init__(
        self,
        names: Names,
        keep: Collection[str],
        *,
        cells: bool = False,
        parameters: Collection[str] | None = None,
        files: Collection[str] = (),
        texts: Collection[str] = (),
        in_python: bool = False,
    ) -> None:
        self.advised: str | None = "" if in_python else None  # for `advice_for`
        self._columns, self._parameters, self._answers = _columns(names, keep)
        columns = (name for name in names.values() if isinstance(name, str))
        self._named = {*self._parameters, *self._answers, *columns, *keep, *files}
        self._keep = frozenset(keep)
        # Columns of `expected` whose cells are JSON.
        self._typed, self._texts = set[str](), frozenset(texts)
        # The fields of columns that no row has had so far; each row without an input is a fault.
        self._lacking = dict.fromkeys(self._answers, "expected")
        single_columns = {field: column for field, column in names.items() if field != "input"}
        self._lacking |= {
            name: field for field, name in single_columns.items() if isinstance(name, str)
        }
        self._read = frozenset(parameters or ())
        for name in _COMMON if parameters else ():
            if name in self._read and name not in self._named and name not in names:
                self._columns.pop(name, None)
        # A prompt that reads more than `input` reads a column of that name too.
        may_be_value = self._read - {"input"} and "input" not in {*self._named, *names}
        self._input_may_be_value = bool("input" in self._read and may_be_value)
        self._cells = cells
        self._whole = "input" in names
        self._paths = RowPaths(self._named)
        # Hints for keys that are no field, by key: as faults, and as parameters.
        self._unknown: dict[str, str] = {}
        self._similar: dict[str, str] = {}
        # Unknown keys without a mend of their own; the first row that has one names it.
        self._reported: set[str] = set()
        # The columns of the first case whose use is not said, and whether any case has an answer.
        self._unsaid: tuple[str, ...] = ()
        self._has_expected = False
        self._reads_all = parameters is None
        # Line and id of the cases that have an `input`, and of those that have parameters.
        self._forms: dict[bool, list[tuple[int, str]]] = {True: [], False: []}

    @property
    def _input_column(self) -> str:
        return next((column for column, role in self._columns.items() if role == "input"), "input")

    @property
    def data_columns(self) -> frozenset[str]:
        """The columns in which no part of a message stands for a file."""
        fields = {"input", "turns", "context"}
        named = {name for name, field in self._columns.items() if field not in fields}
        data = self._keep | named | {*self._answers}
        talk = {root_of(name) for name, field in self._columns.items() if field in fields}
        return data | ({root_of(name) for name in data} - talk - {*map(root_of, self._parameters)})

    def flattened(self, row: dict[str, Json]) -> dict[str, Json]:
        """Return a row with a column for each path, such as ``inputs.question``, that it has."""
        # Where `fields` names the input, the prompt reads no other column.
        visible = self._named if self._whole else self._named | self._read
        if not self._cells:
            return self._paths.flattened(row, visible)
        opened = {key: _opened(value) for key, value in row.items() if key in self._paths.roots}
        flat = self._paths.flattened(row | opened, visible)
        return {key: row[key] if flat[key] is opened.get(key, flat) else flat[key] for key in flat}

    def absent_paths(self) -> Iterator[str]:
        """Yield a fault for each path or column that no row has; a missing input has one."""
        inputs = {self._input_column, *self._parameters}
        for name in sorted(self._paths.absent - inputs):
            yield f"no case has the path {self._paths.described(name)}"
        for name in sorted(self._lacking.keys() - self._paths.nested) if not self._cells else ():
            yield f"no case has the key {shown(name)}, which is named for `{self._lacking[name]}`"

    def settle_input(self, value: Mapping[str, Json]) -> None:
        """Read ``input`` as a parameter where the prompt does, unless it holds all of them."""
        messages = value.get("input")
        # The messages before the last one are the `context` of a prompt that reads it.
        is_talk = isinstance(messages, list) and not (self._read - {"input"}) & value.keys()
        if self._input_may_be_value and not (isinstance(messages, dict) or is_talk):
            self._columns.pop("input", None)

    def id_of(self, value: Mapping[str, Json]) -> Json:
        """Return the id of the case in the file, if it has one."""
        column = next((column for column, field in self._columns.items() if field == "id"), "")
        case_id = value.get(column)
        return None if self._cells and case_id == "" else case_id

    def unclear(self, value: Mapping[str, Json]) -> list[str]:
        """Return the columns of which only all rows say what they are: fields, or numbers."""
        cells = [*self._answers] if self._cells else []
        if self._whole or self._input_column in value:
            return cells
        common = [name for name in _SHAPES if self._columns.get(name) == name and name in value]
        # With turns there are no parameters, so they are decided first.
        return [*(["turns"] if "turns" in common else common), *cells]

    def settle(self, name: str, values: Iterable[Json]) -> None:
        """Read a column as a parameter if no value of it has the form of the field."""
        there = [value for value in values if value not in (None, "")]
        if name in self._answers:
            member = self._answers[name] or name
            if member not in self._texts and _are_json(map(str, there)):
                self._typed.add(name)
        elif there and not any(self._has_shape(name, value) for value in there):
            self._columns.pop(name, None)

    def _has_shape(self, name: str, value: Json) -> bool:
        if self._cells:
            return str(value).lstrip()[:1] in ("[", "{")
        return _has_form(name, value)

    def check_columns(self, value: Mapping[str, Json], node: Node) -> None:
        """Note the columns that are named and do not exist in a table with these columns."""
        for name in sorted(self._named - value.keys()):
            if root_of(name) in value:  # a path into the JSON of its cells
                continue
            self._paths.absent.discard(name)
            near = did_you_mean(name, list(value))
            columns = f"; columns: {listed_keys(value)}; name one of them in `fields` or `keep`"
            headless = advice_for(self.advised).headless(value, cells=self._cells)
            node.fault(f"there is no column {shown(name)}{near}{columns}{headless}")

    def read(self, node: Node, *, case_id: str, origin: str, line: int) -> Case | None:
        """Return a case, or note its faults and return None."""
        value = node.value if isinstance(node.value, dict) else {}
        nodes, rest = self._sorted_out(node)
        turns = self._field("turns", field_kinds.TURNS, nodes["turns"]) if "turns" in nodes else ()
        last = turns[-1] if turns else _NO_TURN
        conversation: dict[str, Any] = {"expected": last.expected, "tools": last.tools}
        for name, kind in _KINDS.items():
            if name in nodes and name != "turns":
                conversation[name] = self._field(name, kind, nodes[name])
        for name in self._lacking.keys() & value.keys():
            del self._lacking[name]
        if self._answers:
            answer = self._chosen(node, self._answers, "expected")
            # A name without a value stays, because functions of users read it.
            if self._cells:
                answer = {name: None if cell == "" else cell for name, cell in answer.items()}
            is_there = any(member is not None for member in answer.values())
            conversation["expected"] = answer if is_there else None
        self._has_expected = self._has_expected or conversation["expected"] is not None
        input_value = nodes["input"].value if "input" in nodes else None
        value_given: Input = last.user
        if turns:
            self._refuse_beside_turns(node, rest)
        elif isinstance(input_value, list):
            self._refuse_unknown(node, rest)
            if field_kinds.are_parts(input_value):
                value_given = field_kinds.CONTENT.read(nodes["input"])
            else:
                value_given = self._last_message(nodes["input"], conversation)
        elif turns == ():
            value_given = self._input(node, nodes, rest)
            if not self._whole and (value_given or "input" in nodes):
                self._forms["input" in nodes].append((line, case_id))
        kept_fields = {key: value[key] for key in value if key in self._keep}
        kept_fields |= conversation.pop("fields", None) or {}
        if not node.is_right():
            return None
        return Case(
            id=case_id,
            input=value_given,
            turns=turns if turns and len(turns) > 1 else (),
            fields=kept_fields,
            origin=origin,
            **conversation,
        )

    def _field(self, name: str, kind: Kind[Any], node: Node) -> Any:
        if self._columns.get(name) == name and not _has_form(name, node.value):
            form = _FORMS.get(name, "an object")
            mend = advice_for(self.advised).hidden_or_read(name)
            node.fault(f"expected {form}, as the field of this name; {mend}")
            return None
        return kind.read(node)

    def faults_of_all(self) -> Iterator[tuple[int, str, str]]:
        """Yield line, fault and id of cases that only all rows show to be wrong.

        They are those in the rarer form, if a file has both forms; or the first one, if columns
        may be the input or the expected answer.
        """
        whole, parts = self._forms[True], self._forms[False]
        if whole and parts:
            column = self._input_column
            if len(parts) <= len(whole):
                count = counted(len(whole), "other case")
                what = f"expected the key `{column}`, as in {count}, found none"
            else:
                count = counted(len(parts), "other case")
                what = f"`{column}` here, but parameters in {count}"
            for line, case_id in min(parts, whole, key=len):
                yield line, f"{what}; use one of both", case_id
        elif parts and self.unsaid and not self._reads_all:
            line, case_id = parts[0]
            fault = advice_for(self.advised).unsaid(self.unsaid, cells=self._cells)
            yield line, fault, case_id

    @property
    def unsaid(self) -> tuple[str, ...]:
        """The columns of which nothing says whether the model may see them.

        One of them may be the answer; none if cases have an answer.
        """
        return () if self._has_expected else self._unsaid

    def _sorted_out(self, node: Node) -> tuple[dict[str, Node], list[str]]:
        """Return the nodes of the fields, and the keys of all other members."""
        nodes: dict[str, Node] = {}
        rest: list[str] = []
        for column, item in node.value.items() if isinstance(node.value, dict) else ():
            field = self._columns.get(column)
            if field is None:
                if column not in self._keep and column not in self._answers:
                    rest.append(column)
            elif item is not None and not (self._cells and item == ""):
                # In exports to Parquet and JSON, too, but a recording may be any text.
                is_text = isinstance(item, str) and item.startswith(("[", "{"))
                is_json = isinstance(item, str) if self._cells else is_text and field != "recorded"
                is_json = is_json and field in _SHAPES
                there = Node(item, (column,), node.source)
                there = self._from_cell(there) if is_json else there
                if there.value is not None:
                    nodes[field] = there
        return nodes, rest

    def _from_cell(self, node: Node) -> Node:
        try:
            value = parse_json(str(node.value), where="")
        except DataFormatError:
            mend = advice_for(self.advised).hidden_or_read(str(node.path[-1]))
            node.fault(f"expected JSON in the cell; {mend}")
            value = None
        return Node(value, node.path, node.source)

    def _last_message(self, node: Node, said: dict[str, Any]) -> str | Content | None:
        """Return the last of several messages, of the user, and keep the others as context."""
        messages = field_kinds.MESSAGES.read(node)
        if messages is None:
            return None
        if not messages or messages[-1].speaker is not Speaker.USER:
            node.fault(
                "expected messages of which the last is the user's; put an answer of the assistant "
                "into `expected`, or name the messages as `turns` in `fields`"
            )
            return None
        said["context"] = (*(said.get("context") or ()), *messages[:-1])
        return messages[-1].text

    def _meant(self, key: str, there: Collection[str]) -> str:
        """Return which column, that is not ``there``, a key may mean; empty if none."""
        absent = [column for column in self._columns if column not in there]
        longer = (column for column in absent if snake_case(key).startswith(f"{column}_"))
        if column := nearest(key, absent, cutoff=_MISSPELLED) or next(longer, ""):
            field = self._columns[column]
            if field != column:
                return f" (`{column}` is named for `{field}`; did you mean `{key}`?)"
            return f" (did you mean `{column}`?)"
        return ""

    def _compared(self, key: str, known: dict[str, str], compare: Callable[[str], str]) -> str:
        """Return what a comparison says of a key; empty if too many have been compared."""
        if key not in known and len(known) < _MOST_COMPARED:
            known[key] = compare(key)
        return known.get(key, "")

    def _input(self, node: Node, found: Mapping[str, Node], rest: list[str]) -> Input:
        value = node.value if isinstance(node.value, dict) else {}
        is_whole = self._whole or (
            self._input_column in self._columns and (value.get(self._input_column) is not None)
        )
        if not is_whole:
            return self._all_of(node, rest)
        self._refuse_unknown(node, [key for key in rest if key not in self._parameters])
        if self._parameters:
            for key in self._parameters:
                if key not in value:
                    self._note_absent(node, key, value)
            return self._chosen(node, self._parameters, "input")
        if "input" not in found:
            self._note_absent(node, self._input_column, value)
            return None
        return _INPUT.read(found["input"])

    def _refuse_beside_turns(self, node: Node, rest: list[str]) -> None:
        """Note what a case with turns has of an input, and what nothing reads."""
        for key in self._parameters or (self._input_column,):
            # In a table of both forms, the cells of the other form are empty.
            if node.member(key).value not in (None, ""):
                node.member(key).fault("expected either this or `turns`, found both")
        self._refuse_unknown(node, [key for key in rest if key not in self._parameters])

    def _refuse_unknown(self, node: Node, keys: Sequence[str]) -> None:
        """Note keys that nothing reads; one line has all whose mend is the same."""
        strangers = list[str]()
        there = node.members()
        # Keys without a value are ignored: exports of classes have many.
        keys = [key for key in keys if key in there]
        for key in keys[:_MOST_UNKNOWN]:
            if meant := self._compared(key, self._unknown, lambda key: self._meant(key, there)):
                node.member(key).fault(f"unknown key{meant}, or put it into `keep`")
            elif key not in self._reported:
                strangers.append(key)
        self._reported.update(strangers)
        if strangers:
            place = node.member(strangers[0]) if len(strangers) == 1 else node
            place.fault(advice_for(self.advised).unknown(strangers))
        if len(keys) > _MOST_UNKNOWN:
            node.fault(f"{len(keys) - _MOST_UNKNOWN:,} more unknown keys")

    def _chosen(self, node: Node, columns: Mapping[str, str], field: str) -> dict[str, Json]:
        """Return the values of columns; one that lies at a path is called like the end of it."""
        value = node.value if isinstance(node.value, dict) else {}
        names = {
            key: name or (key.rpartition(".")[2] if key in self._paths.nested else key)
            for key, name in columns.items()
        }
        taken = Counter(names.values())
        for key, name in names.items():
            if taken[name] > 1:
                node.member(key).fault(f"another column of `{field}` is called {shown(name)}, too")
        return {
            name: _json_of(str(value[key])) if key in self._typed else value.get(key)
            for key, name in names.items()
        }

    def _note_absent(self, node: Node, column: str, value: Mapping[str, Json]) -> None:
        """Note that a row has no value in a column of its input."""
        if column in value:
            node.member(column).fault("expected a text, found nothing")
        elif column in self._paths.absent:
            node.fault(f"expected the path {self._paths.described(column)}")
        elif not self._cells:
            near = did_you_mean(column, list(value)[:_MOST_UNKNOWN]) if self._parameters else ""
            near = near or path_hint(column, value)
            node.fault(f"expected the key `{column}`{near}, found {listed_keys(value)}")

    def _all_of(self, node: Node, rest: Sequence[str]) -> dict[str, Json]:
        if self._read:
            # A key without a value that nothing reads may be a column of an export.
            there = [key for key in rest if key in self._read or node.member(key).value is not None]
            rest = there or rest
        for key in rest:
            if near := self._compared(key, self._similar, self._near):
                node.member(key).fault(
                    f"unknown key (did you mean `{near}`?), or put it into `keep`"
                )
        if not rest:
            node.fault("expected the key `input`, found none")
        is_first = not any(self._forms.values())
        # A single column is the input, unless it is a chat with its answer.
        if is_first and (len(rest) > 1 or any(_is_answered(node.member(key)) for key in rest)):
            unsaid = [key for key in rest if key not in self._read]
            self._unsaid = tuple(unsaid[:_MOST_UNKNOWN])
        return {key: node.member(key).value for key in rest}

    def _near(self, key: str) -> str:
        """Return the field that a parameter may be a misspelling of; empty for none."""
        near = nearest(key, FIELDS, cutoff=_TYPING_MISTAKE)
        # The prompt reads it, or it is a field whose name is that of a parameter here.
        return "" if key in self._read or key == near else near


def _opened(cell: Json) -> Json:
    """Return the object or list of which a cell holds the JSON; other cells as they are."""
    if isinstance(cell, str) and cell.lstrip()[:1] in ("{", "["):
        with contextlib.suppress(DataFormatError):
            return parse_json(cell, where="")
    return cell


def _are_json(cells: Iterable[str]) -> bool:
    """Return whether all cells are numbers, or all are true or false, or all objects or lists.

    A zero in front is that of a postcode or of an article's number: no JSON number has one.
    """
    types = {type(_json_of(cell)) for cell in cells}
    return bool(types) and any(types <= alike for alike in ({int, float}, {bool}, {dict, list}))


def _json_of(cell: str) -> Json:
    """Return the value of a cell of JSON, whose true and false may be in capitals; else itself."""
    text = cell.strip()
    with contextlib.suppress(DataFormatError):
        return parse_json(text.lower() if text.lower() in ("true", "false") else text, where="")
    return cell


def _is_answered(node: Node) -> bool:
    """Return whether a value is the messages of a chat, of which the last is the assistant's."""
    match field_kinds.in_usual_form(node.value):
        case [*_, {"role": "assistant" | "model"} | {"from": "gpt" | "assistant"}]:
            return True
    return False


def _are_texts(names: object) -> bool:
    if isinstance(names, str) or not isinstance(names, Collection):
        return False
    return all(isinstance(name, str) for name in names)


def _columns(
    names: Names, keep: Collection[str]
) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Return the field of each column, and the columns of ``input`` and of ``expected``.

    Those have the name of the member that they become; an empty one if it is called like them.
    """
    for field in names:
        if field not in FIELDS:
            meant = did_you_mean(field, list(FIELDS))
            raise ConfigError(f"fields: unknown field {shown(field)}{meant}; cases have {FIELDS}")
        columns = names[field]
        several = (*columns, *columns.values()) if isinstance(columns, Mapping) else columns
        are_several = field in _OF_SEVERAL and _are_texts(several) and len(several) > 0
        if not isinstance(columns, str) and not are_several:
            raise ConfigError(
                f"fields: expected the name of a column for `{field}`, found {shown(columns)}"
            )
    if not _are_texts(keep):
        raise ConfigError(f"keep: expected a list of columns, found {shown(keep)}")
    parameters, answers = (_several(names.get(field, field)) for field in _OF_SEVERAL)
    singles = {field: names.get(field, field) for field in FIELDS}
    pairs = [(name, field) for field, name in singles.items() if isinstance(name, str)]
    names_taken = [name for name, field in pairs if field in names]
    names_taken += [column for column, _ in (*parameters, *answers)]
    # An answer is hidden in any case, and splits may need it among the fields.
    expected = {*dict(answers), *(name for name, field in pairs if field == "expected")}
    names_taken += [name for name in keep if name not in expected]
    for name in names_taken:
        if names_taken.count(name) > 1:
            raise ConfigError(f"fields: the column {shown(name)} has two meanings")
    explicit = set(names_taken)
    fields = {n: f for n, f in pairs if f in names or n not in explicit}
    return fields, dict(parameters), dict(answers)


def _several(columns: str | Sequence[str] | Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the columns of a field, each with the name of its member; none of a single column."""
    if isinstance(columns, Mapping):
        return [(column, name) for name, column in columns.items()]
    return [] if isinstance(columns, str) else [(column, "") for column in columns]
