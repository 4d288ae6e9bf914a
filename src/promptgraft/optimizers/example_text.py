"""The texts in which a reflection model is shown, and writes back, parts with several fields.

A field is a line ``name: value``; values are texts or JSON, and may go over several lines.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

import attrs

from promptgraft.errors import DataFormatError
from promptgraft.optimizers.loose_fields import FieldKind, FieldNames, Fields
from promptgraft.optimizers.loose_json import MAX_DEPTH, is_silent, read_json, unquoted
from promptgraft.optimizers.loose_lines import Lines, block_header
from promptgraft.optimizers.target import InvalidProposalError, RejectionReason
from promptgraft.overrides.parts import ToolCall, WorkedExample, one_line
from promptgraft.serde import Json, shown

_UNUSABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_FENCED = re.compile(r"(?P<run>`{3,}+|~{3,}+)[^`\n]*+\n(?P<body>.*)\n(?P=run)", re.DOTALL)
_FIELD_LIKE = re.compile(r"\W*+(?P<name>\w[^:\n]{0,99}+):(?=\s|$)")
_LOWER_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_ALIASES = "aliases"
_KEY_CHARS = 64
_KEY_GAP = re.compile(r"[^a-z0-9_]+")

_TOOL_EXAMPLE = {
    "description": FieldKind.TEXT,
    "input": FieldKind.JSON,
    "output": FieldKind.JSON_OR_TEXT,
}
_STEP = {"tool": FieldKind.WORD, **_TOOL_EXAMPLE}
_TASK_EXAMPLE = {
    "key": FieldKind.WORD,
    "objective": FieldKind.TEXT,
    "steps": FieldKind.STEPS,
    "outcome": FieldKind.JSON_OR_TEXT,
}
_STEPS = {**_TASK_EXAMPLE, **_STEP, "tool_name": FieldKind.WORD}
_TOOL_EXAMPLE_NAMES = FieldNames(_TOOL_EXAMPLE)
_TASK_EXAMPLE_NAMES = FieldNames(_TASK_EXAMPLE)
_STEP_NAMES = FieldNames((*_STEP, "tool_name"))


@attrs.frozen(kw_only=True)
class ToolExampleText:
    """An example of a tool, as a model wrote it.

    Attributes:
        description: when or why one would make the call.
        input_json: the parameters as one line of JSON.
        output_json: the result as one line of JSON.
    """

    description: str
    input_json: str
    output_json: str


@attrs.frozen(kw_only=True)
class StepText:
    """A step of a task example, as a model wrote it.

    Attributes:
        tool_name: the tool.
        description: why it is called.
        input_json: the parameters as one line of JSON.
        output_json: the result as one line of JSON.
    """

    tool_name: str
    description: str
    input_json: str
    output_json: str


@attrs.frozen(kw_only=True)
class TaskExampleText:
    """A task example, as a model wrote it.

    Attributes:
        key: how the model named it, in whatever form.
        objective: what is asked.
        steps: the calls, in order.
        outcome_json: the answer as one line of JSON, also when it is a text.
    """

    key: str | None
    objective: str
    steps: tuple[StepText, ...]
    outcome_json: str


def read_tool_example(text: str) -> ToolExampleText:
    """Return the example of a tool that a model wrote.

    Raises:
        InvalidProposalError: it cannot be read, lacks a field, or holds unusable characters.
    """
    with _refusing():
        body = _body(text)
        found = _whole(body, _TOOL_EXAMPLE_NAMES)
        if found is None:
            found = _read_fields(Fields(body, _TOOL_EXAMPLE))
        return ToolExampleText(
            description=_text(found, "description"),
            input_json=_json(found, "input"),
            output_json=_json(found, "output"),
        )


def write_tool_example(call: ToolCall) -> str:
    """Return an example of a tool in the form that :func:`read_tool_example` reads."""
    return "\n".join(_call_lines(call))


def read_task_example(text: str, *, outcome_is_text: bool) -> TaskExampleText:
    """Return the task example that a model wrote; a key is optional.

    ``outcome_is_text`` takes the outcome as it stands; otherwise it is JSON, or a bare text.

    Raises:
        InvalidProposalError: it cannot be read, lacks a field, or holds unusable characters.
    """
    with _refusing():
        body = _body(text)
        found = _whole(body, _TASK_EXAMPLE_NAMES)
        if found is None:
            outcome = FieldKind.TEXT if outcome_is_text else FieldKind.JSON_OR_TEXT
            found = _read_task_fields(body, outcome)
        objective = _text(found, "objective")
        if not objective.strip():
            raise _empty("objective: expected a text, found none")
        as_json = _text_json if outcome_is_text else _json
        return TaskExampleText(
            key=_text(found, "key") if found.get("key") is not None else None,
            objective=objective,
            steps=_steps(found),
            outcome_json=as_json(found, "outcome"),
        )


def write_task_example(example: WorkedExample, *, key: str | None = None) -> str:
    """Return a task example in the form that :func:`read_task_example` reads."""
    lines = [] if key is None else [f"key: {key}"]
    lines.append(_text_field("objective", example.objective))
    lines.append("steps:" if example.steps else "steps: []")
    for step in example.steps:
        lines += [f"  - tool: {step.tool_name}", *_call_lines(step, pad="    ")]
    return "\n".join([*lines, f"outcome: {example.outcome_json}"])


def read_said(text: str, names: Collection[str]) -> dict[str, str]:
    """Return the text of each field that a model wrote one for; others are left out.

    Args:
        text: what it wrote.
        names: the fields that there are, such as ``description`` and ``param query``.

    Raises:
        InvalidProposalError: it names another field, or holds unusable characters.
    """
    with _refusing():
        body = _body(text)
        found = _whole(body, FieldNames(names))
        if found is None:
            kinds = dict.fromkeys(names, FieldKind.TEXT)
            found = _read_fields(Fields(body, kinds, is_foreign=_foreign_to(names)))
        if not found:
            raise _empty("expected a line `name: text`, found only comments")
        return {name: _said(name, value) for name, value in found.items()}


def write_said(said: Mapping[str, str]) -> str:
    """Return texts by name in the form that :func:`read_said` reads."""
    text = "\n".join(
        _text_field(name, value) if value else f"{name}:" for name, value in said.items()
    )
    try:
        is_clear = read_said(text, said) == said
    except InvalidProposalError:
        is_clear = False
    # Names may be anything, the options of a choice among them; JSON can hold all of them.
    return text if is_clear else one_line(dict(said))


def fresh_key(wanted: str | None, taken: Collection[str]) -> str:
    """Return a key for a task example that is like ``wanted``, and none of ``taken``."""
    decomposed = unicodedata.normalize("NFKD", (wanted or "").casefold())
    letters = "".join(char for char in decomposed if not unicodedata.combining(char))
    stem = _KEY_GAP.sub("-", letters).strip("-_")[:_KEY_CHARS].rstrip("-_") or "example"
    numbered = (f"{stem[: _KEY_CHARS - len(end)]}{end}" for end in _endings())
    used = frozenset(taken)
    return next(key for key in itertools.chain([stem], numbered) if key not in used)


def _endings() -> Iterator[str]:
    return (f"-{number}" for number in itertools.count(2))


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except DataFormatError as error:
        raise InvalidProposalError(RejectionReason.UNPARSABLE, str(error)) from None


def _empty(detail: str) -> InvalidProposalError:
    return InvalidProposalError(RejectionReason.EMPTY, detail)


def _body(text: str) -> str:
    """Return the text that holds the fields: with one kind of line end, and without a fence."""
    body = text.replace("\r\n", "\n").replace("\r", "\n").strip("\ufeff \t\n")
    if not body:
        raise _empty("the text is empty")
    _usable(body, "the text")
    fenced = _FENCED.fullmatch(body)
    return fenced["body"].strip() if fenced else body


def _usable(text: str, where: str) -> str:
    if bad := _UNUSABLE.search(text):
        raise InvalidProposalError(
            RejectionReason.UNUSABLE_TEXT,
            f"{where} holds the character U+{ord(bad[0]):04X}; leave it out",
        )
    return text


def _whole(text: str, names: FieldNames) -> dict[str, Json] | None:
    """Return the fields of a text that is one JSON object, with or without its brackets."""
    if text.startswith('"'):
        try:
            value, end = read_json(f"{{{text}}}", 0, where="the text")
        except DataFormatError:
            return None
        return _by_name(value, names) if end == len(text) + 2 else None
    if not text.startswith("{"):
        return None
    lines = Lines(text)
    value = lines.json_at(0, where="the text")
    if lines.more():
        raise DataFormatError(
            f"line {lines.row + 1}: expected nothing after the JSON, found {shown(lines.line)}"
        )
    return _by_name(value, names)


def _by_name(value: Json, names: FieldNames, where: str = "") -> dict[str, Json]:
    if not isinstance(value, dict):
        raise DataFormatError(f"{where}expected an object, found {shown(value)}")
    found: dict[str, Json] = {}
    for written, inner in value.items():
        name = names.get(written)
        if name is None:
            raise DataFormatError(f"{where}unknown field {names.unknown(written)}")
        _put(found, name, inner, where)
    return found


def _put(found: dict[str, Json], name: str, value: Json, where: str = "") -> None:
    name = "tool" if name == "tool_name" else name
    if name in found:
        raise DataFormatError(f"{where}the field `{name}` occurs twice; expected it once")
    found[name] = value


def _read_fields(fields: Fields) -> dict[str, Json]:
    found: dict[str, Json] = {}
    while head := fields.head():
        _put(found, head.name, fields.value(head))
    return found


def _read_task_fields(text: str, outcome: FieldKind) -> dict[str, Json]:
    top = {**_TASK_EXAMPLE, "outcome": outcome}
    fields = Fields(text, top)
    found: dict[str, Json] = {}
    steps: list[dict[str, Json]] = []
    while head := fields.head():
        if head.name in top:
            fields.kinds = {**_STEPS, **top} if head.name == "steps" else top
            _put(found, head.name, fields.value(head))
            if found.get("steps") is not None:
                fields.kinds = top
            continue
        name = "tool" if head.name == "tool_name" else head.name
        if not steps or (name in steps[-1] and (head.bulleted or name == "tool")):
            steps.append({})
        _put(steps[-1], name, fields.value(head), f"step {len(steps)}: ")
    if steps:
        found["steps"] = [*steps]
    return found


def _required(found: Mapping[str, Json], name: str, where: str) -> Json:
    if name not in found:
        raise DataFormatError(f"{where}the field `{name}` is missing; expected `{name}: …`")
    return found[name]


def _text(found: Mapping[str, Json], name: str, where: str = "") -> str:
    value = _required(found, name, where)
    if value is None:
        raise _empty(f"{where}{name}: expected a text, found none")
    if not isinstance(value, str):
        raise DataFormatError(f"{where}{name}: expected a text, found {shown(value)}")
    return _usable(value, f"{where}{name}")


def _text_json(found: Mapping[str, Json], name: str, where: str = "") -> str:
    return one_line(_text(found, name, where))


def _json(found: Mapping[str, Json], name: str, where: str = "") -> str:
    value = _required(found, name, where)
    levels: list[tuple[Json, int]] = [(value, 1)]
    while levels:
        part, depth = levels.pop()
        if isinstance(part, str):
            _usable(part, f"{where}{name}")
        elif isinstance(part, (list, dict)):
            if depth > MAX_DEPTH:
                raise DataFormatError(f"{where}{name}: nested deeper than {MAX_DEPTH} levels")
            inner = part if isinstance(part, list) else [*part, *part.values()]
            levels.extend((each, depth + 1) for each in inner)
    return one_line(value)


def _steps(found: Mapping[str, Json]) -> tuple[StepText, ...]:
    steps = _required(found, "steps", "")
    if steps is None:
        raise _empty("steps: expected items that begin with `- tool: NAME`, or `[]`")
    if not isinstance(steps, list):
        raise DataFormatError(f"steps: expected a list, found {shown(steps)}")
    return tuple(_step(step, f"step {index}: ") for index, step in enumerate(steps, start=1))


def _step(value: Json, where: str) -> StepText:
    found = _by_name(value, _STEP_NAMES, where)
    return StepText(
        tool_name=_text(found, "tool", where),
        description=_text(found, "description", where),
        input_json=_json(found, "input", where),
        output_json=_json(found, "output", where),
    )


def _said(name: str, value: Json) -> str:
    if isinstance(value, list):
        value = ", ".join(_text({name: item}, name) for item in value)
    text = _text({name: value or ""}, name)
    return _listed(text) if name == _ALIASES else text


def _listed(text: str) -> str:
    """Return names separated by commas, whichever way a model listed them."""
    ...


def _foreign_to(names: Collection[str]) -> Callable[[str], bool]:
    """Return the test whether a line looks like a field that is none of ``names``.

    It does if it begins like a known one (`param …:`), ends like one without its kind
    (``query:`` for ``param query``), or is one word in lower case.
    """
    firsts = {name.casefold().split(" ")[0] for name in names if " " in name}
    lasts = {name.casefold().partition(" ")[2] for name in names if " " in name}

    def is_foreign(line: str) -> bool:
        field = _FIELD_LIKE.match(line)
        if field is None:
            return False
        name = field["name"].strip()
        folded = name.casefold()
        is_like = folded in lasts or (" " in folded and folded.split(" ")[0] in firsts)
        return is_like or _LOWER_NAME.fullmatch(name) is not None

    return is_foreign


def _call_lines(call: ToolCall, pad: str = "") -> list[str]:
    return [
        f"{pad}{_text_field('description', call.description, pad)}",
        f"{pad}input: {call.input_json}",
        f"{pad}output: {call.output_json}",
    ]


def _text_field(name: str, text: str, pad: str = "") -> str:
    """Return a field in the plainest form that reads back as it is."""
    if "\n" not in text and unquoted(text.strip()) == text and not block_header(text) and text:
        return f"{name}: {text}"
    block = "\n".join(f"{pad}  {row}" if row else "" for row in text.split("\n"))
    header = block_header("|")
    if header and "\n" in text and "\r" not in text and Lines(block).block(header) == text:
        return f"{name}: |\n{block}"
    return f"{name}: {one_line(text)}"
