"""What placeholders show of values: texts, JSON, images and files; and what they cannot show."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from enum import Enum
from io import IOBase

from promptgraft.ground.content import Content, File, is_content
from promptgraft.ground.serde import field_names, is_pydantic, shown


def content_of(value: object) -> str | Content:
    """Return what a placeholder shows of a value; the items of a list with files on lines."""
    if isinstance(value, File):
        return (value,)
    if is_content(value):
        lines = [piece for item in value for piece in (item, "\n")]
        return tuple(lines[:-1])
    return text_of(value)


def text_of(value: object) -> str:
    """Return the text of a value: of objects and lists JSON with sorted keys, else ``str``."""
    # Sorted, so that equal data makes equal prompts wherever it has been kept in the meantime.
    if _is_data(value):
        return json.dumps(_json_form(value), ensure_ascii=False, sort_keys=True, default=_json_form)
    return str(value)


def _is_data(value: object) -> bool:
    """Return whether ``str`` would write a value as source code of Python."""
    kind = type(value)
    if isinstance(value, (Mapping, list, tuple, set, frozenset)):
        return kind.__str__ is object.__str__
    if field_names(kind) is None or isinstance(value, (File, type)):
        return False
    return is_pydantic(kind) or kind.__str__ is object.__str__


def _json_form(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (list, tuple)):
        return value
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=text_of)
    if isinstance(value, Enum):
        return value.value
    names = field_names(type(value)) if _is_data(value) else None
    return str(value) if names is None else {name: getattr(value, name) for name in names}


_ADDRESS = re.compile(r"<.{1,200} at 0x[0-9a-f]+>")
_TEXTS = (str, int, float, Enum, date, Decimal, File, type(None))


def unshowable(value: object) -> str:
    """Return why a placeholder cannot show a value; empty if it can."""
    if isinstance(value, _TEXTS) or is_content(value):
        return ""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"{len(value):,} bytes; bind an Image or a File, or decode them"
    if isinstance(value, (Mapping, list, tuple, set, frozenset)):
        if isinstance(value, Mapping) and not all(isinstance(key, str) for key in value):
            return f"{shown(value)}, with a key that is no text; make all its keys texts"
        inner = value.values() if isinstance(value, Mapping) else value
        if any(isinstance(item, File) for item in inner):
            return f"a {type(value).__name__} with a file among other values; bind it by itself"
        return next(filter(None, map(unshowable, inner)), "")
    is_function = callable(value) and type(value).__str__ is object.__str__
    if is_function or isinstance(value, IOBase) or _ADDRESS.search(str(value)):
        return f"a {type(value).__name__}, which has no text; bind a text"
    return ""
