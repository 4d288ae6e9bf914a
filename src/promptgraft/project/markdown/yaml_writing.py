"""Plain data as YAML that the strict reader reads back as the same data."""

from __future__ import annotations

import re
from collections.abc import Iterator

from promptgraft.serde import Json, MismatchError
from promptgraft.yaml_text import plain_scalar

# Words that other readers of YAML take for something else than a text.
_WORDS = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null"])
_SIMPLE = re.compile(r"[A-Za-z](?:[A-Za-z0-9 _./-]*[A-Za-z0-9_./])?")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def flow(value: Json) -> str:
    """Return data in one line, as it may stand anywhere."""
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{key_text(key)}: {flow(item)}" for key, item in value.items()) + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    if isinstance(value, str):
        return value if _SIMPLE.fullmatch(value) and _is_plain(value) else quoted(value)
    return _scalar(value)


def key_text(key: str) -> str:
    """Return a key."""
    return key if _SIMPLE.fullmatch(key) and " " not in key and _is_plain(key) else quoted(key)


def inline(value: Json) -> str:
    """Return data in one line, as it may stand behind a key or a dash that begins a line."""
    if not isinstance(value, str):
        return flow(value)
    plain = (
        value[:1].isalpha()
        and value.isprintable()
        and not value.endswith((":", " "))
        and ": " not in value
        and " #" not in value
        and _is_plain(value)
    )
    return value if plain else quoted(value)


def literal(text: str, indent: int) -> str | None:
    """Return a text of several lines as a literal block, indented; None when it cannot be one."""
    lines = text.removesuffix("\n").split("\n")
    clean = all(line.isprintable() and (not line or not line.isspace()) for line in lines)
    if len(lines) < 2 or not clean or not lines[-1] or not lines[0] or lines[0][0] == " ":
        return None
    header = "|" if text.endswith("\n") else "|-"
    return "\n".join([header, *(" " * indent + line if line else "" for line in lines)])


def block_items(items: list[Json], indent: int) -> Iterator[str]:
    """Yield the lines of a list whose dashes stand at a column."""
    for item in items:
        lines = list(_members(item, indent + 2)) if isinstance(item, dict) and item else []
        if not lines:
            yield f"{' ' * indent}- {inline(item)}"
            continue
        yield f"{' ' * indent}- {lines[0].lstrip(' ')}"
        yield from lines[1:]


def _members(value: dict[str, Json], indent: int) -> Iterator[str]:
    for key, item in value.items():
        yield from f"{' ' * indent}{key_text(key)}:{member(item, indent)}".split("\n")


def member(value: Json, indent: int) -> str:
    """Return what stands behind the colon of a key at a column: in its line, or below it."""
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return "\n" + "\n".join(block_items(value, indent + 2))
    if isinstance(value, str) and (block := literal(value, indent + 2)) is not None:
        return f" {block}"
    return f" {inline(value)}"


def quoted(text: str) -> str:
    """Return a text in double quotes, everything escaped that does not print."""
    return '"' + "".join(_ESCAPES.get(character) or _shown(character) for character in text) + '"'


def _shown(character: str) -> str:
    if character.isprintable():
        return character
    code = ord(character)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _is_plain(text: str) -> bool:
    if text.lower() in _WORDS:
        return False
    try:
        return plain_scalar(text) == text
    except MismatchError:
        return False


def _scalar(value: bool | int | float | None) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value)
    if isinstance(value, float) and "e" in text and "." not in text:
        return text.replace("e", ".0e")
    return text
