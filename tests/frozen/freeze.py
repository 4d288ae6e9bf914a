"""Writes what the searches of ``combinations.py`` do now: ``python -m frozen.freeze --write``.

To be run from ``tests/``. Without ``--write`` nothing is written, and what differs is said. The
data is what today's search does; write it again only where a change of behaviour is intended.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from frozen.combination import Combination
from frozen.combinations import COMBINATIONS
from frozen.describe import Plain, search

DATA = Path(__file__).parent / "data"


def file_of(name: str) -> Path:
    return DATA / f"{name}.json"


def made(combination: Combination, *, workers: int = 0) -> dict[str, Plain]:
    """Return a combination and what its search does, as the data has them."""
    whole: dict[str, Plain] = {
        "world": asdict(combination.world),
        "settings": combination.whole,
        **search(combination.world, combination.whole, workers=workers),
    }
    plain: dict[str, Plain] = json.loads(json.dumps(whole))
    return plain


def frozen(name: str) -> dict[str, Plain]:
    """Return the data of a combination; empty where there is none."""
    path = file_of(name)
    plain: dict[str, Plain] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return plain


def text_of(plain: dict[str, Plain]) -> str:
    """Return JSON with a line for each field, and for each item of a list of more than numbers."""
    fields = (f"{json.dumps(name)}: {_field(value)}" for name, value in plain.items())
    return "{\n" + ",\n".join(fields) + "\n}\n"


def _field(value: Plain) -> str:
    if isinstance(value, list) and any(
        isinstance(item, dict) or " " in str(item) for item in value
    ):
        return "[\n " + ",\n ".join(map(json.dumps, value)) + "\n]"
    return json.dumps(value)


def differences(before: Plain, after: Plain, place: str = "") -> Iterator[str]:
    """Yield where two plain values differ, the first difference first."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys([*before, *after]):
            if name not in before or name not in after:
                has = "frozen only" if name in before else "new"
                yield f"{place}.{name} is {has}: {before.get(name, after.get(name))!r}"
            else:
                yield from differences(before[name], after[name], f"{place}.{name}")
    elif isinstance(before, list) and isinstance(after, list):
        for index, (one, other) in enumerate(zip(before, after, strict=False)):
            yield from differences(one, other, f"{place}[{index}]")
        if len(before) != len(after):
            yield f"{place}: {len(before)} items were frozen, now there are {len(after)}"
    elif before != after or type(before) is not type(after):
        yield f"{place}: frozen {before!r}, found {after!r}"


def main(arguments: list[str]) -> int:
    """Compare, and write where that is asked for."""
    write, changed = arguments == ["--write"], 0
    for name, combination in COMBINATIONS.items():
        found = made(combination)
        first = next(differences(frozen(name), found), None)
        if first is None:
            continue
        changed += 1
        print(f"{name}{first}")
        if write:
            if made(combination, workers=4) != found:
                raise SystemExit(f"{name} depends on the executor; nothing of it is written")
            file_of(name).write_text(text_of(found), "utf-8")
    strays = sorted({path.stem for path in DATA.glob("*.json")} - {*COMBINATIONS})
    for name in strays:
        print(f"{name}: no such combination")
        if write:
            file_of(name).unlink()
    if (changed or strays) and not write:
        print("nothing is written without --write")
    return int(bool(changed or strays) and not write)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
