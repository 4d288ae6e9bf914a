"""Places in JSON: ``total``, ``items[0].price``, ``items[*].price``, ``["a key"].b``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TypeAlias

from promptgraft.errors import ConfigError
from promptgraft.serde import Json, shown

Step: TypeAlias = "str | int | None"
"""A key, an index, or None for every item."""
Path: TypeAlias = "tuple[Step, ...]"

_STEP = re.compile(r'\.?([^\s.\[\]"$*]+)|\[(-?\d+|\*)\]|\[("(?:[^"\\]|\\.)*")\]')


def parse_path(text: str) -> Path:
    """Return the steps of a path; the empty path is the whole value.

    Raises:
        ConfigError: it is not a path.
    """
    steps: list[Step] = []
    position = 1 if text.startswith("$") else 0
    while position < len(text):
        found = _STEP.match(text, position)
        if found is None:
            raise ConfigError(
                f"expected a path such as `items[0].price`, found {shown(text)}, which breaks off "
                f"at character {position + 1}"
            )
        steps.append(_step(found))
        position = found.end()
    return tuple(steps)


def _step(found: re.Match[str]) -> Step:
    key, index, quoted = found.groups()
    if index is not None:
        return None if index == "*" else int(index)
    return str(json.loads(quoted)) if quoted is not None else str(key)


def spelled(path: Path) -> str:
    """Return the text of a path."""
    text = "".join(_spelled_step(step) for step in path).removeprefix(".")
    return text or "$"


def _spelled_step(step: Step) -> str:
    if step is None:
        return "[*]"
    if isinstance(step, int):
        return f"[{step}]"
    plain = _STEP.fullmatch(step) is not None and not step.startswith((".", "["))
    return f".{step}" if plain else f"[{json.dumps(step, ensure_ascii=False)}]"


def places(value: Json, path: Path, done: Path = ()) -> Iterator[tuple[Path, Json]]:
    """Yield every place that the path leads to, with the value there."""
    if not path:
        yield done, value
        return
    step, rest = path[0], path[1:]
    if isinstance(value, dict) and isinstance(step, str) and step in value:
        yield from places(value[step], rest, (*done, step))
    elif isinstance(value, list):
        chosen = range(len(value)) if step is None else _index(step, len(value))
        for index in chosen:
            yield from places(value[index], rest, (*done, index))


def _index(step: str | int, length: int) -> tuple[int, ...]:
    if isinstance(step, int) and -length <= step < length:
        return (step % length,)
    return ()


def without(value: Json, path: Path) -> Json:
    """Return a copy of ``value`` without what the path leads to; lists keep their places."""
    if not path:
        return None
    step, rest = path[0], path[1:]
    if isinstance(value, dict) and isinstance(step, str) and step in value:
        if not rest:
            return {key: item for key, item in value.items() if key != step}
        return {**value, step: without(value[step], rest)}
    if isinstance(value, list):
        chosen = range(len(value)) if step is None else _index(step, len(value))
        return [without(item, rest) if i in chosen else item for i, item in enumerate(value)]
    return value
