"""Cases of plain files: the meaning of columns and keys, and the kinds of their values.

Keys may be in snake_case or camelCase; a key whose value is null counts as absent.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeGuard

from promptgraft.adapters.base import Usage
from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.evals.chat_logs import is_chat_log, read_chat_log
from promptgraft.evals.types import Answer, Case, Message, Speaker, ToolUse, Turn
from promptgraft.ground.content import Content, File, Input, is_content
from promptgraft.ground.serde import Json, did_you_mean, nearest, parse_json, shown
from promptgraft.ground.strict.checks import (
    ANYTHING,
    OBJECT,
    STRING,
    Check,
    Kind,
    check,
    money,
    number,
    one_of,
)
from promptgraft.ground.strict.kinds import (
    Key,
    Keys,
    either,
    keys_of,
    listed,
    named,
    record,
    record_of,
)
from promptgraft.ground.strict.nodes import Node
from promptgraft.ground.text import counted
from promptgraft.ground.yaml_text import plain_scalar

_SPEAKERS = {
    "assistant": Speaker.ASSISTANT,
    "model": Speaker.ASSISTANT,
    "system": Speaker.SYSTEM,
    "user": Speaker.USER,
}
_FLAGS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False, "": False}


def _flag(value: object) -> bool | None:
    return _FLAGS.get(str(value).strip().lower()) if isinstance(value, (str, int)) else None


def _read_hints(node: Node) -> Mapping[str, str] | None:
    if isinstance(node.value, str):
        return {"": node.value} if node.value else {}
    return named(STRING).read(node)


FLAG: Check[bool] = check("true or false", _flag)
"""A boolean, also written as ``yes``, ``no``, ``1`` or ``0``."""
HINTS: Kind[Mapping[str, str]] = Kind(_read_hints)
"""Hints by metric; a bare text applies to all metrics."""


def _text_of_part(text: str | None = None, thought: object = None) -> str:
    if text is None and not thought:
        raise ConfigError("expected the key `text`, found none")
    # Recordings also hold what a model thought, which is no part of what it said.
    return "" if thought else text or ""


def _read_content(node: Node) -> str | Content | None:
    """Read a text, or a list of texts, images and files, of which parts of messages are made."""
    if not isinstance(node.value, list):
        return STRING.read(node)
    pieces = [_PIECE.read(item) for item in node.items()]
    return _joined([piece for piece in pieces if piece is not None])


def _read_piece(node: Node) -> str | File | None:
    value: object = node.value
    if isinstance(value, (str, File)):
        return value
    match value:
        case {"type": "text" | "input_text", "text": str(text)}:
            return text
        case {"type": str(kind)}:
            node.fault(f"expected a text, an image or a file, found {kind}")
        case _:
            node.expected("a text, an image or a file")
    return None


def _joined(pieces: Sequence[str | File]) -> str | Content:
    filled = tuple(piece for piece in pieces if piece != "")
    return filled if is_content(filled) else "\n".join(map(str, filled))


def are_parts(value: Json) -> TypeGuard[list[Json]]:
    """Return whether a list holds parts of one message, rather than messages."""
    return isinstance(value, list) and any(map(_is_part, value))


def _is_part(value: object) -> bool:
    if isinstance(value, dict):
        return "type" in value and "role" not in value
    return isinstance(value, (str, File))


_PIECE: Kind[str | File] = Kind(_read_piece)
CONTENT: Kind[str | Content] = Kind(_read_content)
"""A text, or a list of texts, images and files."""


def _content_of(
    content: str | Content | None = None,
    parts: tuple[str | File, ...] | None = None,
    role: str = "",  # noqa: ARG001 - its kind has checked it, and it is not kept
) -> str | Content:
    if (content is None) == (parts is None):
        raise ConfigError("expected either `content` or `parts`")
    return _joined(parts or ()) if content is None else content


def _message(*, role: str, **said: Any) -> Message:
    return Message(_SPEAKERS[role], _content_of(**said))


def _said(roles: tuple[str, ...], *, required: bool) -> Keys:
    part = record(_text_of_part, {"text": Key(STRING), "thought": Key(ANYTHING)}, aliases={})
    return {
        "role": Key(one_of(*roles), required=required),
        "content": Key(CONTENT),
        "parts": Key(listed(either("a part", (File, _PIECE), (dict, part)))),
    }


def content_by(*roles: str) -> Kind[str | Content]:
    """Return the kind of values that are a text, content, or a message of one of these roles."""
    kind = record(_content_of, _said(roles, required=False), aliases={})
    return either("a text or a message", ((str, list), CONTENT), (dict, kind))


def _read_text(node: Node) -> str | None:
    content = content_by("assistant", "model").read(node)
    if content is None or isinstance(content, str):
        return content
    node.fault("expected a text, found an image or a file; an answer is a text")
    return None


ANSWER_TEXT: Kind[str] = Kind(_read_text)
"""The text of an answer, or a message that holds it."""

MESSAGES: Kind[tuple[Message, ...]] = listed(
    record(_message, _said(tuple(_SPEAKERS), required=True), aliases={})
)
USE_KEYS = keys_of(ToolUse, special={"arguments": OBJECT, "result": ANYTHING})
USE_ALIASES = {"args": "arguments"}


TOOL_USES: Kind[tuple[ToolUse, ...]] = listed(
    record(ToolUse, USE_KEYS, aliases=USE_ALIASES, left_out=("id",))
)
_OWN_TURNS: Kind[tuple[Turn, ...]] = listed(
    record_of(Turn, special={"user": CONTENT, "tools": TOOL_USES}, aliases={})
)


def _read_turns(node: Node) -> tuple[Turn, ...] | None:
    if is_chat_log(node.value):
        return read_chat_log(node, CONTENT)
    return _OWN_TURNS.read(node)


TURNS: Kind[tuple[Turn, ...]] = Kind(_read_turns, _OWN_TURNS.schema)
"""Turns, or the messages of a chat log."""
ANSWER: Kind[Answer] = either(
    "a text or an object with `text`",
    (str, Kind(lambda node: Answer(text=str(node.value)))),
    (
        dict,
        record_of(
            Answer,
            special={
                "output": ANYTHING,
                "tools": TOOL_USES,
                "usage": record_of(Usage),
                "cost": money(0, texts=True),
                "seconds": number(0, what="seconds"),
            },
            skip=("steps", "turns"),
            aliases={},
        ),
    ),
)
"""A recorded answer: a text, or an object with the fields of an answer."""


_KINDS: Mapping[str, Kind[object]] = {
    "expected": ANYTHING,
    "critical": FLAG,
    "hints": HINTS,
    "tools": TOOL_USES,
    "turns": TURNS,
    "context": MESSAGES,
    "state": OBJECT,
    "recorded": ANSWER,
    "fields": OBJECT,
}
FIELDS = ("id", "input", *_KINDS)


def _as_input(value: object) -> Input:
    if isinstance(value, File):
        return (value,)
    return value if isinstance(value, (str, dict)) else None


_INPUT: Check[Input] = check("a text, an object, or a list of messages", _as_input)
_NO_TURN = Turn(user="")
# The shapes of fields whose names are as common as names of columns; in cells they are JSON.
_SHAPES: Mapping[str, tuple[type, ...]] = {
    "tools": (list,),
    "turns": (list,),
    "context": (list,),
    "state": (dict,),
    "recorded": (dict, str),
    "fields": (dict,),
}
_COMMON = (*_SHAPES, "hints", "critical")
# Parameters may have any name, but one this similar to the name of a field is a typing mistake.
_TYPING_MISTAKE = 0.87
_MOST_COMPARED = 1_000
"""Different keys that are compared with the names of fields, which is slow."""
_MOST_KEYS = 10
"""Keys of one case that are listed."""
# An export has that many columns beside those that a case needs.
_MOST_UNKNOWN = 40
"""Unknown keys of one case that are named."""

Names = Mapping[str, str | Sequence[str] | Mapping[str, str]]


class PlainReader:
    """Reads the cases of one plain file.

    Args:
        names: the column or key of each field that has another name in the file; for ``input``
            also a list of columns, which become an object of parameters, or the columns by the
            names of the parameters.
        keep: columns that are hidden from the agent and kept in ``Case.fields``.
        cells: whether every value is the text of a CSV cell.
        parameters: names that the prompt reads; columns of these names are parameters even where
            fields are called the same.
        files: columns with images or files.
    """

    def __init__(
        self,
        names: Names,
        keep: Collection[str],
        *,
        cells: bool,
        parameters: Collection[str] = (),
        files: Collection[str] = (),
    ) -> None:
        self._columns, self._parameters = _columns(names, keep)
        columns = (name for name in names.values() if isinstance(name, str))
        self._named = {*self._parameters, *columns, *keep, *files}
        self._keep = frozenset(keep)
        self._read = frozenset(parameters)
        for name in _COMMON if parameters else ():
            if name in self._read and name not in self._named and name not in names:
                self._columns.pop(name, None)
        # A prompt that reads more than `input` reads a column of that name too.
        may_be_value = self._read - {"input"} and "input" not in {*self._named, *names}
        self._input_may_be_value = bool("input" in self._read and may_be_value)
        self._cells = cells
        self._whole = "input" in names
        self._dotted = tuple(sorted(name for name in self._named if "." in name))
        # The paths that no row has had so far, and those that rows have.
        self._absent = set(self._dotted)
        self._nested: set[str] = set()
        self._paths: dict[str, None] = {}
        # What is said of keys that are no field, by key: as faults, and as parameters.
        self._unknown: dict[str, str] = {}
        self._similar: dict[str, str] = {}
        # Unknown keys without a mend of their own; the first row that has one names it.
        self._reported: set[str] = set()
        # Line and id of the cases that have an `input`, and of those that have parameters.
        self._forms: dict[bool, list[tuple[int, str]]] = {True: [], False: []}

    @property
    def _input_column(self) -> str:
        return next((column for column, role in self._columns.items() if role == "input"), "input")

    @property
    def data_columns(self) -> frozenset[str]:
        """The columns in which no part of a message stands for a file."""
        fields = {"input", "turns", "context"}
        data = self._keep | {name for name, field in self._columns.items() if field not in fields}
        talk = {_root(name) for name, field in self._columns.items() if field in fields}
        return data | ({_root(name) for name in data} - talk - {*map(_root, self._parameters)})

    def flattened(self, value: dict[str, Json]) -> dict[str, Json]:
        """Return a row with a column for each path, such as ``inputs.question``, that it has.

        A column of that very name comes first. An object that is read by paths is no column any
        more, unless it is named itself.
        """
        if not self._dotted:
            return value
        paths = {
            name: member
            for name in self._dotted
            if name not in value and (member := _member_at(value, name)) is not None
        }
        self._absent -= {*paths, *value}
        self._nested.update(paths)
        if self._absent and len(self._paths) < _MOST_COMPARED:
            self._paths |= dict.fromkeys(_paths_in(value))
        roots = {_root(name) for name in self._dotted if name not in value}
        hidden = roots - self._named - self._read
        return {key: value[key] for key in value if key not in hidden} | paths

    def absent_paths(self) -> Iterator[str]:
        """Yield a fault for each path that no row has; a row without its input has one already."""
        inputs = {self._input_column, *self._parameters}
        for name in sorted(self._absent - inputs):
            yield f"no case has the path {_with_paths(name, self._paths)}"

    def settle_input(self, value: Mapping[str, Json]) -> None:
        """Read ``input`` as a parameter where the prompt does, unless it holds all of them."""
        messages = value.get("input")
        # Of messages, those before the last one are the `context` of a prompt that reads it.
        is_talk = isinstance(messages, list) and not (self._read - {"input"}) & value.keys()
        if self._input_may_be_value and not (isinstance(messages, dict) or is_talk):
            self._columns.pop("input", None)

    def id_of(self, value: Mapping[str, Json]) -> Json:
        """Return the id of the case in the file, if it has one."""
        column = next((column for column, field in self._columns.items() if field == "id"), "")
        case_id = value.get(column)
        return None if self._cells and case_id == "" else case_id

    def unclear(self, value: Mapping[str, Json]) -> list[str]:
        """Return the columns that may be fields or parameters, which only all rows decide."""
        if self._whole or self._input_column in value:
            return []
        common = [name for name in _SHAPES if self._columns.get(name) == name and name in value]
        # With turns there are no parameters, so they are decided first.
        return ["turns"] if "turns" in common else common

    def settle(self, name: str, values: Iterable[Json]) -> None:
        """Read a column as a parameter if no value of it has the form of the field."""
        there = [value for value in values if value not in (None, "")]
        if there and not any(self._has_shape(name, value) for value in there):
            self._columns.pop(name, None)

    def _has_shape(self, name: str, value: Json) -> bool:
        if self._cells:
            return str(value).lstrip()[:1] in ("[", "{")
        return isinstance(value, _SHAPES[name])

    def check_columns(self, value: Mapping[str, Json], node: Node) -> None:
        """Note the columns that are named and do not exist in a table with these columns."""
        for name in sorted(self._named - value.keys()):
            near = did_you_mean(name, list(value))
            columns = f"; columns: {listed_keys(value)}; name one of them in `fields` or `keep`"
            node.fault(f"there is no column {shown(name)}{near}{columns}")

    def read(self, node: Node, *, case_id: str, origin: str, line: int) -> Case | None:
        """Return a case, or note its faults and return None."""
        value = node.value if isinstance(node.value, dict) else {}
        nodes, rest = self._sorted_out(node)
        turns = TURNS.read(nodes["turns"]) if "turns" in nodes else ()
        last = turns[-1] if turns else _NO_TURN
        conversation: dict[str, Any] = {"expected": last.expected, "tools": last.tools}
        for name, kind in _KINDS.items():
            if name in nodes and name != "turns":
                conversation[name] = kind.read(nodes[name])
        input_value = nodes["input"].value if "input" in nodes else None
        value_given: Input
        if are_parts(input_value):
            value_given = CONTENT.read(nodes["input"])
        elif isinstance(input_value, list):
            value_given = self._last_message(nodes["input"], conversation)
        else:
            value_given = self._input(node, nodes, rest) if turns == () else last.user
            if turns == () and not self._whole and (value_given or "input" in nodes):
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

    def mixed(self) -> Iterator[tuple[int, str, str]]:
        """Yield line, fault and id of each case in the rarer form, if a file has both forms."""
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

    def _sorted_out(self, node: Node) -> tuple[dict[str, Node], list[str]]:
        """Return the nodes of the fields, and the keys of all other members."""
        nodes: dict[str, Node] = {}
        rest: list[str] = []
        for column, item in node.value.items() if isinstance(node.value, dict) else ():
            field = self._columns.get(column)
            if field is None:
                if column not in self._keep:
                    rest.append(column)
            elif item is not None and not (self._cells and item == ""):
                is_json = self._cells and field in _SHAPES and isinstance(item, str)
                there = Node(item, (column,), node.source)
                there = self._from_cell(there) if is_json else there
                if there.value is not None:
                    nodes[field] = there
        return nodes, rest

    def _from_cell(self, node: Node) -> Node:
        try:
            value = parse_json(str(node.value), where="")
        except DataFormatError:
            column = str(node.path[-1])
            mend = f"`fields: {{input: [..., {column}]}}` makes a parameter of the column"
            node.expected("JSON in the cell", f"; {mend}")
            value = None
        return Node(value, node.path, node.source)

    def _last_message(self, node: Node, said: dict[str, Any]) -> str | Content | None:
        """Return the last of several messages, of the user, and keep the others as context."""
        messages = MESSAGES.read(node)
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

    def _meant(self, key: str) -> str:
        if column := nearest(key, self._columns):
            field = self._columns[column]
            if field != column:
                return f" (`fields` has `{field}: {column}`; did you mean `{field}: {key}`?)"
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
            return self._chosen(node, value)
        if "input" not in found:
            self._note_absent(node, self._input_column, value)
            return None
        return _INPUT.read(found["input"])

    def _refuse_unknown(self, node: Node, keys: Sequence[str]) -> None:
        """Note keys that nothing reads; one line has all whose mend is the same."""
        strangers = list[str]()
        for key in keys[:_MOST_UNKNOWN]:
            if meant := self._compared(key, self._unknown, self._meant):
                node.member(key).fault(f"unknown key{meant}, or put it into `keep`")
            elif key not in self._reported:
                strangers.append(key)
        self._reported.update(strangers)
        if len(strangers) == 1:
            node.member(strangers[0]).fault(
                "unknown key; name it in `keep`, or among those of `input` in `fields`, or take "
                "it out"
            )
        elif strangers:
            keys_named = ", ".join(f"`{key}`" for key in strangers)
            line = f"keep: [{', '.join(map(_in_list, strangers))}]"
            node.fault(
                f"unknown keys {keys_named}; `{line}` hides them from the model, and those of "
                "`input` in `fields` are shown to it"
            )
        if len(keys) > _MOST_UNKNOWN:
            node.fault(f"{len(keys) - _MOST_UNKNOWN:,} more unknown keys")

    def _chosen(self, node: Node, value: Mapping[str, Json]) -> dict[str, Json]:
        """Return the parameters; one that lies at a path is called like the end of the path."""
        for key in self._parameters:
            if key not in value:
                self._note_absent(node, key, value)
        names = {
            key: name or (_leaf(key) if key in self._nested else key)
            for key, name in self._parameters.items()
            if key in value
        }
        taken = Counter(names.values())
        for key, name in names.items():
            if taken[name] > 1:
                node.member(key).fault(f"another column of `input` is called {shown(name)}, too")
        return {name: value[key] for key, name in names.items()}

    def _note_absent(self, node: Node, column: str, value: Mapping[str, Json]) -> None:
        """Note that a row has no value in a column of its input."""
        if column in value:
            node.member(column).fault("expected a text, found nothing")
        elif column in self._absent:
            node.fault(f"expected the path {_with_paths(column, self._paths)}")
        elif not self._cells:
            near = did_you_mean(column, list(value)[:_MOST_KEYS]) if self._parameters else ""
            node.fault(f"expected the key `{column}`{near}, found {listed_keys(value)}")

    def _all_of(self, node: Node, rest: Sequence[str]) -> dict[str, Json]:
        for key in rest:
            if near := self._compared(key, self._similar, self._near):
                node.member(key).fault(
                    f"unknown key (did you mean `{near}`?), or put it into `keep`"
                )
        if not rest:
            node.fault("expected the key `input`, found none")
        return {key: node.member(key).value for key in rest}

    def _near(self, key: str) -> str:
        """Return the field that a parameter may be a misspelling of; empty for none."""
        near = nearest(key, FIELDS, cutoff=_TYPING_MISTAKE)
        # The prompt reads it, or it is a field whose name is that of a parameter here.
        return "" if key in self._read or key == near else near


def listed_keys(value: Collection[str]) -> str:
    """Return the first ten keys for messages, and how many more there are."""
    names = [f"`{name}`" for name in itertools.islice(value, _MOST_KEYS)]
    more = len(value) - len(names)
    return ", ".join(names) + (f" and {more:,} more" if more else "") or "none"


def _in_list(key: str) -> str:
    """Return a key as it is written in a list of YAML, which is valid in JSON's quotation marks."""
    is_plain = key.isidentifier() and plain_scalar(key) == key
    return key if is_plain else json.dumps(key, ensure_ascii=False)


def _root(path: str) -> str:
    return path.partition(".")[0]


def _leaf(path: str) -> str:
    return path.rpartition(".")[2]


def _member_at(value: Json, path: str) -> Json:
    """Return what lies at a path of keys, and numbers of items from 0; None for nothing."""
    for key in path.split("."):
        if isinstance(value, list):
            value = value[int(key)] if key.isdecimal() and int(key) < len(value) else None
        else:
            value = value.get(key) if isinstance(value, dict) else None
    return value


def _paths_in(value: Mapping[str, Json], before: str = "") -> Iterator[str]:
    """Yield the paths to the members of an object that are no objects themselves.

    Of a list of objects or lists, which may be long, only the first item has paths.
    """
    for key, member in value.items():
        if isinstance(member, list) and member and isinstance(member[0], (dict, list)):
            yield from _paths_in({"0": member[0]}, f"{before}{key}.")
        elif isinstance(member, dict) and member:
            yield from _paths_in(member, f"{before}{key}.")
        else:
            yield f"{before}{key}"


def _with_paths(path: str, paths: Collection[str]) -> str:
    """Return a path for messages, with the nearest and all of those that exist."""
    return f"`{path}`{did_you_mean(path, paths)}; paths: {listed_keys(paths)}"


def _are_texts(names: object) -> bool:
    if isinstance(names, str) or not isinstance(names, Collection):
        return False
    return all(isinstance(name, str) for name in names)


def _columns(names: Names, keep: Collection[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the field of each column, and the parameter of each; empty if called like it."""
    for field in names:
        if field not in FIELDS:
            meant = did_you_mean(field, list(FIELDS))
            raise ConfigError(f"fields: unknown field {shown(field)}{meant}; cases have {FIELDS}")
        columns = names[field]
        several = (*columns, *columns.values()) if isinstance(columns, Mapping) else columns
        are_several = field == "input" and _are_texts(several) and len(several) > 0
        if not isinstance(columns, str) and not are_several:
            raise ConfigError(
                f"fields: expected the name of a column for `{field}`, found {shown(columns)}"
            )
    if not _are_texts(keep):
        raise ConfigError(f"keep: expected a list of columns, found {shown(keep)}")
    inputs = names.get("input", "input")
    parameters: list[tuple[str, str]] = []
    if isinstance(inputs, Mapping):
        parameters = [(column, name) for name, column in inputs.items()]
    elif not isinstance(inputs, str):
        parameters = [(column, "") for column in inputs]
    singles = {field: names.get(field, field) for field in FIELDS}
    pairs = [(name, field) for field, name in singles.items() if isinstance(name, str)]
    names_taken = [name for name, field in pairs if field in names]
    names_taken += [*(column for column, _ in parameters), *keep]
    for name in names_taken:
        if names_taken.count(name) > 1:
            raise ConfigError(f"fields: the column {shown(name)} has two meanings")
    explicit = set(names_taken)
    fields = {n: f for n, f in pairs if f in names or n not in explicit}
    return fields, dict(parameters)
