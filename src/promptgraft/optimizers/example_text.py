"""Parts that are more than free text, as reflectors are shown them and write them back.

A part is written as ``name: value`` lines. Texts that a line cannot hold are written as JSON
strings; values of tools are JSON. Reading puts up with what models write instead: other case and
decoration of names, JSON over several lines or in a fence, comments, trailing commas, curly quotes.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence

import attrs

from promptgraft.errors import DataFormatError
from promptgraft.optimizers.loose_json import bracket_depth, read_loose_json
from promptgraft.optimizers.target import InvalidProposalError, RejectionReason
from promptgraft.overrides.parts import ToolCall, WorkedExample
from promptgraft.serde import Json, did_you_mean, parse_json, shown

_FIELD = re.compile(
    r"[ \t]*(?:[-*•][ \t]+|\d{1,3}[.)][ \t]+)?(?:\*\*|__|`)?"
    r"(?P<name>[^\W\d_][\w -]{0,60}?)(?:\*\*|__|`)?[ \t]*:(?:\*\*|__)?(?:[ \t]|$)(?P<rest>.*)",
    re.DOTALL,
)
_BLOCK_SCALAR = re.compile(r"[|>][+-]?")
_UNUSABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’"}
_JSON_FIELDS = frozenset({"input", "output"})


@attrs.frozen(kw_only=True)
class ToolExampleText:
    """An example of a tool as it was written; input and output are JSON in one line."""

    description: str
    input_json: str
    output_json: str


@attrs.frozen(kw_only=True)
class StepText:
    """A step of a task example as it was written; input and output are JSON in one line."""

    tool_name: str
    description: str
    input_json: str
    output_json: str


@attrs.frozen(kw_only=True)
class TaskExampleText:
    """A task example as it was written; the outcome is JSON in one line, also a text."""

    key: str | None
    objective: str
    steps: tuple[StepText, ...]
    outcome_json: str


@attrs.frozen
class _Field:
    name: str
    value: str


def write_tool_example(call: ToolCall) -> str:
    """Return an example of a tool in the form that :func:`read_tool_example` reads."""
    return "\n".join(
        [
            f"description: {_inline(call.description)}",
            f"input: {call.input_json}",
            f"output: {call.output_json}",
        ]
    )


def read_tool_example(text: str) -> ToolExampleText:
    """Read an example of a tool.

    Raises:
        InvalidProposalError: a field is missing, unknown or cannot be read.
    """
    fields = _once(_fields(text, ("description", "input", "output")))
    return ToolExampleText(
        description=_text(fields, "description"),
        input_json=_json(fields, "input", "input"),
        output_json=_json_or_text(fields, "output", "output"),
    )


def write_task_example(example: WorkedExample, *, key: str | None = None) -> str:
    """Return a task example in the form that :func:`read_task_example` reads."""
    lines = [] if key is None else [f"key: {key}"]
    lines += [f"objective: {_inline(example.objective)}", "steps:"]
    for step in example.steps:
        lines += [
            f"  - tool: {step.tool_name}",
            f"    description: {_inline(step.description)}",
            f"    input: {step.input_json}",
            f"    output: {step.output_json}",
        ]
    outcome = parse_json(example.outcome_json, where="outcome")
    shown_outcome = _inline(outcome) if isinstance(outcome, str) else example.outcome_json
    return "\n".join([*lines, f"outcome: {shown_outcome}"])


def read_task_example(text: str, *, outcome_is_text: bool) -> TaskExampleText:
    """Read a task example.

    Args:
        text: what was written.
        outcome_is_text: whether the outcome is a text rather than JSON.

    Raises:
        InvalidProposalError: a field is missing, unknown or cannot be read.
    """
    names = ("key", "objective", "steps", "tool", "description", "input", "output", "outcome")
    head: list[_Field] = []
    steps: list[list[_Field]] = []
    for field in _fields(text, names, aliases={"tool_name": "tool", "tool name": "tool"}):
        if field.name == "tool":
            steps.append([field])
        elif field.name in ("key", "objective", "outcome"):
            head.append(field)
        elif field.name == "steps":
            _check_no_steps(field.value)
        elif steps:
            steps[-1].append(field)
        else:
            raise _unparsable(f"`{field.name}` stands before any step; begin a step with `- tool:`")
    found = _once(head)
    key = found.get("key", "").strip()
    return TaskExampleText(
        key=key or None,
        objective=_text(found, "objective"),
        steps=tuple(_step(fields, number) for number, fields in enumerate(steps, 1)),
        outcome_json=_outcome(found, as_text=outcome_is_text),
    )


def _check_no_steps(value: str) -> None:
    if value.strip() not in ("", "[]", "none", "(none)"):
        raise _unparsable(f"steps: expected items that begin with `- tool:`, found {shown(value)}")


def _step(fields: Sequence[_Field], number: int) -> StepText:
    found = _once(fields, where=f"step {number}: ")
    return StepText(
        tool_name=_text(found, "tool", f"step {number}: tool").strip("`"),
        description=_text(found, "description", f"step {number}: description"),
        input_json=_json(found, "input", f"step {number}: input"),
        output_json=_json_or_text(found, "output", f"step {number}: output"),
    )


def _outcome(fields: Mapping[str, str], *, as_text: bool) -> str:
    if as_text:
        return json.dumps(_text(fields, "outcome"), ensure_ascii=False)
    return _json_or_text(fields, "outcome", "outcome")


def write_said(said: Mapping[str, str]) -> str:
    """Return named texts in the form that :func:`read_said` reads."""
    return "\n".join(f"{name}: {_inline(text)}" for name, text in said.items())


def read_said(text: str, names: Collection[str]) -> dict[str, str]:
    """Read named texts; those that are not written are left out.

    Raises:
        InvalidProposalError: a name is not among ``names``, or occurs twice.
    """
    fields = _once(_fields(text, tuple(names)))
    return {name: _plain_text(value, name) for name, value in fields.items()}


def fresh_key(wanted: str | None, taken: Collection[str]) -> str:
    """Return an identifier for a task example, made from what was wanted and not taken yet."""
    plain = unicodedata.normalize("NFKD", wanted or "").encode("ascii", "ignore").decode()
    stem = re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")[:56].strip("-") or "example"
    key, number = stem, 1
    while key in taken:
        number += 1
        key = f"{stem}-{number}"
    return key


def _inline(text: str) -> str:
    """Return a text as it stands where one line holds it, else as a JSON string."""
    plain = text and text == text.strip() and "\n" not in text and "\r" not in text
    if plain and text[0] not in "\"'“‘|>{[`" and not _UNUSABLE.search(text):
        return text
    return json.dumps(text, ensure_ascii=False)


def _fields(
    text: str, names: Sequence[str], *, aliases: Mapping[str, str] | None = None
) -> list[_Field]:
    """Split a text into its fields, in order."""
    if bad := _UNUSABLE.search(text):
        raise InvalidProposalError(
            RejectionReason.UNUSABLE_TEXT,
            f"the text holds the character U+{ord(bad[0]):04X}; leave it out",
        )
    known = {_folded(name): name for name in names}
    known.update({_folded(name): meant for name, meant in (aliases or {}).items()})
    if text.lstrip().startswith("{"):
        return _object_fields(text, known)
    fields: list[tuple[str, list[str]]] = []
    depth = 0
    for line in text.split("\n"):
        match = _FIELD.fullmatch(line) if depth <= 0 else None
        name = known.get(_folded(match["name"])) if match else None
        if match and name is not None:
            fields.append((name, [match["rest"]]))
            depth = bracket_depth(match["rest"]) if _holds_json(name, match["rest"]) else 0
            continue
        if not fields:
            if line.strip():
                raise _unknown(line, match, names)
            continue
        fields[-1][1].append(line)
        if depth > 0 or _holds_json(fields[-1][0], "".join(fields[-1][1]).lstrip()[:1]):
            depth += bracket_depth(line)
    return [_Field(name, "\n".join(lines)) for name, lines in fields]


def _holds_json(name: str, value: str) -> bool:
    return name in _JSON_FIELDS or (name == "outcome" and value.lstrip()[:1] in ("{", "["))


def _unknown(line: str, match: re.Match[str] | None, names: Sequence[str]) -> InvalidProposalError:
    hint = did_you_mean(match["name"].lower(), list(names)) if match else ""
    return _unparsable(
        f"expected a line that begins with one of {', '.join(f'`{name}:`' for name in names)}, "
        f"found {shown(line.strip())}{hint}"
    )


def _object_fields(text: str, known: Mapping[str, str]) -> list[_Field]:
    """Read a part that was written as one JSON object."""
    data = _loose(text, "the object")
    if not isinstance(data, dict):
        raise _unparsable(f"expected one JSON object, found {shown(data)}")
    fields: list[_Field] = []
    for key, value in data.items():
        name = known.get(_folded(key))
        if name is None:
            raise _unparsable(f"the object has the unknown key {shown(key)}")
        if name == "steps" and isinstance(value, list):
            for step in value:
                if not isinstance(step, dict):
                    raise _unparsable(f"steps: expected objects, found {shown(step)}")
                # A step begins with its tool, wherever the object names it.
                pairs = sorted(step.items(), key=lambda pair: known.get(_folded(pair[0])) != "tool")
                fields.extend(_field(part, given, known) for part, given in pairs)
            continue
        fields.append(_field(key, value, known))
    return fields


def _field(key: str, value: Json, known: Mapping[str, str]) -> _Field:
    name = known.get(_folded(key))
    if name is None:
        raise _unparsable(f"the object has the unknown key {shown(key)}")
    return _Field(name, json.dumps(value, ensure_ascii=False))


def _once(fields: Sequence[_Field], *, where: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for field in fields:
        if field.name in found:
            raise _unparsable(f"{where}`{field.name}` is given twice; give it once")
        found[field.name] = field.value
    return found


def _text(fields: Mapping[str, str], name: str, where: str | None = None) -> str:
    if name not in fields:
        raise _unparsable(f"{where or name}: missing; add a line `{name}: …`")
    text = _plain_text(fields[name], where or name)
    if not text.strip():
        raise InvalidProposalError(
            RejectionReason.EMPTY, f"{where or name}: expected a text, found nothing"
        )
    return text


def _plain_text(value: str, where: str) -> str:
    first, _, rest = value.partition("\n")
    if _BLOCK_SCALAR.fullmatch(first.strip()) and rest.strip():
        lines = [line.strip() for line in rest.strip("\n").split("\n")]
        return (" " if first.strip().startswith(">") else "\n").join(lines).strip()
    text = "\n".join(line.strip() for line in value.strip().split("\n"))
    if text.startswith('"') and text.endswith('"') and len(text) > 1:
        try:
            parsed = parse_json(text, where=where)
        except DataFormatError:
            parsed = None
        if isinstance(parsed, str):
            return parsed
    closing = _QUOTES.get(text[:1])
    if closing and len(text) > 1 and text.endswith(closing) and closing not in text[1:-1]:
        return text[1:-1]
    return text


def _json(fields: Mapping[str, str], name: str, where: str) -> str:
    if name not in fields:
        raise _unparsable(f"{where}: missing; add a line `{name}: <JSON>`")
    return json.dumps(_loose(fields[name], where), ensure_ascii=False)


def _json_or_text(fields: Mapping[str, str], name: str, where: str) -> str:
    """Read JSON; a bare text, which does not begin like JSON, is taken for a string."""
    value = fields.get(name, "").strip()
    if value and value[0] not in '{["`“' and not _is_json(value, where):
        return json.dumps(_plain_text(value, where), ensure_ascii=False)
    return _json(fields, name, where)


def _is_json(value: str, where: str) -> bool:
    try:
        parse_json(value, where=where)
    except DataFormatError:
        return False
    return True


def _loose(text: str, where: str) -> Json:
    try:
        return read_loose_json(text, where=where)
    except DataFormatError as error:
        raise _unparsable(str(error)) from None


def _folded(name: str) -> str:
    return re.sub(r"[\s_-]+", " ", name).strip().casefold()


def _unparsable(detail: str) -> InvalidProposalError:
    return InvalidProposalError(RejectionReason.UNPARSABLE, detail)
