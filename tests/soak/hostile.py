"""Hostile values and texts, and documents with one of them somewhere inside."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

TEXTS = (
    "",
    " ",
    "\0",
    "a\0b",
    "\ud800",
    "\u202eevil\x1b[2J",
    "a\nb" * 40,
    "x" * 5_000,
    "../" * 400 + "x.jsonl",
    "(" * 3_000,
    "[" * 300 + "]" * 300,
    "(a+)+$",
    "(a|aa)+$",
    "((a{999}){999}){999}",
    "9**9**9",
    "9**" * 400 + "9",
    "9" * 5_000,
    "1e400",
    "{{ '%1000000000d' % 1 }}",
    "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
    "{{ 'a' * 10**9 }}",
    "this ~ this",
    "$name ${name} $$ {name} {{ name }}",
    "```json\n{}\n```",
    "{" * 200,
    '{"a": "\\ud83d"}',
    "<script>alert(1)</script>",
    "no: such: yaml",
    "- a\n- b",
    "&a [*a]",
    "!!python/object:os.system x",
    "os:getcwd",
    "nowhere.py:f",
    "sk-0123456789abcdef0123456789abcdef",
)
VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -5,
    10**25,
    10**108,
    1.5,
    1e308,
    float("inf"),
    float("nan"),
    [],
    {},
    [[["a"]]],
    {"a": [1]},
    [[]] * 500,
    ["bad"] * 500,
    {"x" * 3_000: 1},
    {"": {"": ""}},
)
# What expressions, patterns, templates and paths are made of.
FRAGMENTS = (
    *"()[]{}|*+?.^$\\,:;~%#@!&=<>'\"`-_ \n",
    *("this", "expected", "input", "usage", "a", "1", "0", "999999999", "{{", "}}", "{%", "%}"),
    *(" for x in ", " if ", " is ", " not ", "endfor", "range(", "|join", "|center(", ".format("),
    *(
        "**",
        "//",
        "%d",
        "%(a)s",
        "\\d",
        "(?:",
        "(?P<a>",
        "(?=",
        "{2,}",
        "[^",
        "é",
        "日",
        "\u0301",
    ),
)


def text(chance: random.Random) -> str:
    """Return a text that may break what reads it."""
    kind = chance.random()
    if kind < 0.4:
        return chance.choice(TEXTS)
    if kind < 0.8:
        return "".join(chance.choices(FRAGMENTS, k=chance.randint(1, 30)))
    return "".join(chr(chance.randrange(1, 0xD7FF)) for _ in range(chance.randint(1, 20)))


def value(chance: random.Random, depth: int = 0) -> Any:
    """Return plain data that may break what reads it."""
    kind = chance.random()
    if kind < 0.5:
        return text(chance)
    if kind < 0.9 or depth > 3:
        return copy.deepcopy(chance.choice(VALUES))
    if kind < 0.95:
        return [value(chance, depth + 1) for _ in range(chance.randint(0, 4))]
    return {text(chance): value(chance, depth + 1) for _ in range(chance.randint(0, 4))}


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield what leads to each value of a document, the whole first."""
    yield path
    items = node.items() if isinstance(node, dict) else ()
    for key, item in enumerate(node) if isinstance(node, list) else items:
        yield from places(item, (*path, key))


def mutated(document: Any, chance: random.Random) -> Any:
    """Return a copy of a document with one to three values replaced, added or taken out."""
    found = copy.deepcopy(document)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        path = chance.choice(list(places(found)))
        if not path:
            continue
        *before, last = path
        parent = found
        for step in before:
            parent = parent[step]
        kind = chance.random()
        if kind < 0.1:
            del parent[last]
        elif kind < 0.2 and isinstance(parent, dict):
            parent[text(chance)] = parent.pop(last)
        else:
            parent[last] = value(chance)
    return found


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Return bytes with some of them changed, taken out, doubled or cut off."""
    found = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 5))):
        at, end = sorted(chance.randrange(len(found) + 1) for _ in range(2))
        kind = chance.randrange(5)
        if kind == 0:
            del found[at:]
        elif kind == 1:
            del found[at : min(end, at + 200)]
        elif kind == 2:
            found[at:at] = found[at : min(end, at + 200)]
        elif kind == 3:
            found[at:at] = chance.randbytes(chance.randint(1, 8))
        elif at < len(found):
            found[at] ^= 1 << chance.randrange(8)
    return bytes(found)


def dumped(document: Any, chance: random.Random) -> str:
    """Return a document as JSON, which is YAML too where it has no infinities."""
    return json.dumps(document, ensure_ascii=chance.random() < 0.9, indent=1)
