"""JSON as models write it: in fences, with comments, trailing commas and curly quotes."""

from __future__ import annotations

import ast
import re

from promptgraft.errors import DataFormatError
from promptgraft.serde import Json, parse_json, shown, unstructure

_FENCED = re.compile(r"\s*```[^\n`]*\n(.*?)\n?[ \t]*```\s*", re.DOTALL)
# One token at a time: a string, a comment, a bracket, or anything else.
_TOKEN = re.compile(
    r'(?P<string>"(?:[^"\\\n]|\\.)*+")|(?P<comment>//[^\n]*+|(?<![^\s,{\[])\#[^\n]*+)'
    r"|(?P<open>[{\[])|(?P<close>[}\]])|(?P<curly>[“”])|(?P<comma>,)|(?P<other>[\s\S])"
)
_MAPPING_LINE = re.compile(
    r"[ \t]*(?:- )?[\"']?(?P<key>\w[\w -]*?)[\"']?[ \t]*:[ \t]+(?P<value>\S.*)"
)
_MAX_LITERAL = 20_000


def read_loose_json(text: str, *, where: str) -> Json:
    """Read one JSON value, repairing what is commonly wrong; values are never coerced.

    Tried in this order: the text as it is, without comments and trailing commas and with straight
    quotes, as a Python literal, as ``key: value`` lines.

    Raises:
        DataFormatError: none of these reads it.
    """
    fenced = _FENCED.fullmatch(text)
    bare = (fenced[1] if fenced else text).strip()
    if not bare:
        raise DataFormatError(f"{where}: expected JSON, found nothing")
    try:
        return parse_json(bare, where=where)
    except DataFormatError as error:
        fault = error
    try:
        return parse_json(_repaired(bare), where=where)
    except DataFormatError:
        pass
    if bare[0] in "{[('" and len(bare) <= _MAX_LITERAL:
        try:
            return parse_json(_literal(bare), where=where)
        except (ValueError, SyntaxError, MemoryError, RecursionError, DataFormatError):
            pass
    mapping = _mapping(bare)
    if mapping is not None:
        return mapping
    raise DataFormatError(f"{fault}; expected JSON, found {shown(bare)}")


def bracket_depth(line: str) -> int:
    """Return how many brackets ``line`` opens and does not close, strings and comments aside."""
    depth = 0
    for token in _TOKEN.finditer(line):
        depth += (token.lastgroup == "open") - (token.lastgroup == "close")
    return depth


def _repaired(text: str) -> str:
    kept: list[str] = []
    for token in _TOKEN.finditer(text):
        if token.lastgroup == "comment":
            continue
        if token.lastgroup == "curly":
            kept.append('"')
            continue
        if token.lastgroup == "close":
            while kept and kept[-1].isspace():
                kept.pop()
            if kept and kept[-1] == ",":
                kept.pop()
        kept.append(token[0])
    return "".join(kept)


def _literal(text: str) -> str:
    """Return a Python literal as JSON text."""
    import json

    return json.dumps(unstructure(ast.literal_eval(text)), ensure_ascii=False)


def _mapping(text: str) -> Json | None:
    """Read ``key: value`` lines; scalars that JSON knows are JSON, all else is text."""
    found: dict[str, Json] = {}
    for line in text.split("\n"):
        if not line.strip():
            continue
        match = _MAPPING_LINE.fullmatch(line)
        if match is None or match["key"] in found:
            return None
        try:
            found[match["key"]] = parse_json(match["value"].strip(), where="value")
        except DataFormatError:
            found[match["key"]] = match["value"].strip().strip("\"'")
    return found or None
