"""What placeholders show of values: texts, JSON, images and files; and what they cannot show."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import is_dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from io import IOBase
from typing import Any

import attrs

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
    if isinstance(value, Enum) and type(value).__str__ is Enum.__str__:
        return text_of(value.value)
    if isinstance(value, _BYTES):
        raise TypeError(f"it shows {len(value):,} bytes; use an Image or a File, or decode them")
    return str(value)


def _is_data(value: object) -> bool:
    """Return whether ``str`` would write a value as source code of Python."""
    kind = type(value)
    if isinstance(value, (Mapping, list, tuple, set, frozenset)):
        return kind.__str__ is object.__str__
    if field_names(kind) is None or isinstance(value, (File, type)):
        return False
    spells_models = is_pydantic(kind) and kind.__str__.__module__ == "pydantic.main"
    return spells_models or kind.__str__ is object.__str__


def _json_form(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (list, tuple)):
        return value
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=text_of)
    if isinstance(value, Enum):
        return value.value
    return _fields(value) if _is_data(value) else text_of(value)


def _fields(value: object) -> dict[str, object]:
    """Return the fields of an object, without those that its class keeps out of its ``repr``."""
    kind: Any = type(value)
    if attrs.has(kind):
        fields: Mapping[str, Any] = attrs.fields_dict(kind)
    else:
        fields = kind.__dataclass_fields__ if is_dataclass(kind) else kind.model_fields
    return {name: getattr(value, name) for name in field_names(kind) or () if fields[name].repr}


_ADDRESS = re.compile(r"<.{1,200} at 0x[0-9a-f]+>")
_TEXTS = (str, int, float, Enum, date, Decimal, File, type(None))
_BYTES = (bytes, bytearray, memoryview)


def unshowable(value: object) -> str:
    """Return why a placeholder cannot show a value; empty if it can."""
    try:
        return _fault(value)
    except RecursionError:
        return f"a {type(value).__name__} that is nested too deeply or holds itself"


def _fault(value: object) -> str:
    if isinstance(value, _TEXTS) or is_content(value):
        return ""
    if isinstance(value, _BYTES):
        return f"{len(value):,} bytes; bind an Image or a File, or decode them"
    if isinstance(value, Mapping) and not all(isinstance(key, str) for key in value):
        return f"{shown(value)}, with a key that is no text; make all its keys texts"
    members = _members(value)
    if members is not None:
        if any(isinstance(member, File) for member in members):
            return f"a {type(value).__name__} with a file among other values; bind it by itself"
        return next(filter(None, map(_fault, members)), "")
    is_function = callable(value) and type(value).__str__ is object.__str__
    if is_function or isinstance(value, IOBase) or _ADDRESS.search(str(value)):
        return f"a {type(value).__name__}, which has no text; bind a text"
    return ""


def _members(value: object) -> Collection[object] | None:
    if isinstance(value, Mapping):
        return value.values()
    if isinstance(value, (list, tuple, set, frozenset)):
        return value
    return _fields(value).values() if _is_data(value) else None
