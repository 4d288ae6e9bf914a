r"""The language of override bodies: literal text with the placeholders of the source.

An override body is written by a model or a person and is never a template. Of everything in
it, only the *markers* of placeholders that the source section has are replaced, by plain
lookup; ``$5``, ``{% if %}`` or ``{{ 1 + 1 }}`` are ordinary characters.

================  =======================  ============  ====================================
syntax            marker of ``name``       escape        meaning of escapes before a marker
================  =======================  ============  ====================================
``dollar``        ``$name``, ``${name}``   ``$``         ``$$name`` is the text ``$name``
``jinja``         ``{{ name }}``           ``\``         ``\{{ name }}`` is the text ``{{ name }}``
``format``        ``{name}``               ``\``         ``\{name}`` is the text ``{name}``
================  =======================  ============  ====================================

``k`` escapes before a marker stand for ``k // 2`` escape characters; with an odd ``k`` the
marker itself is text. Anywhere else an escape character is an ordinary character, so a body
without literal markers needs no escaping at all, and writing what was read changes nothing.

A ``plain`` body has no markers and no escapes: it is one text, and nothing in it is replaced. Its
placeholders are literal strings somewhere in it, for the agent that the text is handed to.

A reply of a model has line feeds only, no blank lines at its ends and rarely a byte order mark. A
new plain text gets all of that from the text that it replaces, so that one changed word is one
changed word in its file.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from enum import StrEnum

import attrs


class BodySyntax(StrEnum):
    """How placeholders are spelled in a section."""

    DOLLAR = "dollar"
    JINJA = "jinja"
    FORMAT = "format"
    PLAIN = "plain"


@attrs.frozen
class Slot:
    """A placeholder inside a body."""

    name: str


Piece = str | Slot

_IDENTIFIER = r"[_a-zA-Z][_a-zA-Z0-9]*+"
# Possessive runs behind a look-behind: each character is looked at a bounded number of times.
_MARKERS = {
    BodySyntax.DOLLAR: re.compile(
        rf"(?<!\$)(?P<run>\$++)(?:\{{(?P<braced>{_IDENTIFIER})\}}|(?P<plain>{_IDENTIFIER}))"
    ),
    BodySyntax.JINJA: re.compile(
        rf"(?<!\\)(?P<run>\\*+)\{{\{{[ \t\r\n]*+(?P<plain>{_IDENTIFIER})[ \t\r\n]*+\}}\}}"
    ),
    BodySyntax.FORMAT: re.compile(rf"(?<!\\)(?P<run>\\*+)\{{(?P<plain>{_IDENTIFIER})\}}"),
}
_ESCAPES = {BodySyntax.DOLLAR: "$", BodySyntax.JINJA: "\\", BodySyntax.FORMAT: "\\"}
_SPELLED = {BodySyntax.DOLLAR: "$%s", BodySyntax.JINJA: "{{ %s }}", BodySyntax.FORMAT: "{%s}"}


_LONGEST_CACHED = 16_384

_BREAK = re.compile(r"\r\n|\r|\n")
_BREAKS = "\r\n"
_BEFORE = f"\ufeff{_BREAKS}"

_Range = tuple[int, int]


def parse_body(body: str, syntax: BodySyntax, names: frozenset[str]) -> tuple[Piece, ...]:
    """Split ``body`` into text and slots, in linear time; text pieces are not empty.

    Args:
        body: any string.
        syntax: how markers are spelled.
        names: the placeholders of the source; markers of other names are text.
    """
    if syntax is BodySyntax.PLAIN:
        return (body,) if body else ()
    # Every render parses; bodies may be a million characters long and must not pile up.
    parse = _parse_cached if len(body) <= _LONGEST_CACHED else _parse
    return parse(body, syntax, names)


def _parse(body: str, syntax: BodySyntax, names: frozenset[str]) -> tuple[Piece, ...]:
    pieces: list[Piece] = []
    start = 0
    for match in _MARKERS[syntax].finditer(body):
        name = _name(match)
        if name not in names:
            continue
        escapes = _escapes_before(match, syntax)
        text = body[start : match.start()] + _ESCAPES[syntax] * (escapes // 2)
        start = match.end()
        if escapes % 2:
            pieces.append(text + _marker_text(match, syntax))
        else:
            pieces.extend((text, Slot(name)))
    pieces.append(body[start:])
    return _merged(pieces)


_parse_cached = functools.lru_cache(maxsize=2048)(_parse)


def write_body(pieces: Iterable[Piece], syntax: BodySyntax, names: frozenset[str]) -> str:
    """Return the body that ``parse_body`` splits into ``pieces``."""
    if syntax is BodySyntax.PLAIN:
        return "".join(piece.name if isinstance(piece, Slot) else piece for piece in pieces)
    merged = _merged(list(pieces))
    escape = _ESCAPES[syntax]
    written: list[str] = []
    for index, piece in enumerate(merged):
        following = merged[index + 1] if index + 1 < len(merged) else ""
        if isinstance(piece, Slot):
            name = piece.name
            # `$name` would take in the characters that follow.
            glued = isinstance(following, str) and re.match(r"[_a-zA-Z0-9]", following)
            braced = syntax is BodySyntax.DOLLAR and glued
            written.append(f"${{{name}}}" if braced else spell(name, syntax))
            continue
        text = _MARKERS[syntax].sub(functools.partial(_escaped, syntax=syntax, names=names), piece)
        # Escapes before a slot are read in pairs.
        trailing = len(piece) - len(piece.rstrip(escape)) if isinstance(following, Slot) else 0
        written.append(text + escape * trailing)
    return "".join(written)


def shown_body(body: str, syntax: BodySyntax) -> str:
    """Return a body in the form in which the reflection model reads and writes it."""
    return shown_plain(body) if syntax is BodySyntax.PLAIN else body


def proposed_body(text: str, syntax: BodySyntax, names: frozenset[str], *, like: str) -> str:
    """Return the body for a text by the reflection model that replaces the body ``like``."""
    if syntax is BodySyntax.PLAIN:
        return restored(text, like)
    return write_body(parse_body(text, syntax, names), syntax, names)


def spell(name: str, syntax: BodySyntax) -> str:
    """Return the usual marker of the placeholder ``name``; in a plain body, the name itself."""
    return name if syntax is BodySyntax.PLAIN else _SPELLED[syntax] % name


def is_placeholder(name: object) -> bool:
    """Return whether ``name`` can be a placeholder of a plain text: a model has to repeat it."""
    return isinstance(name, str) and name.isprintable() and bool(name.strip())


def kept_names(body: str, syntax: BodySyntax, names: frozenset[str]) -> frozenset[str]:
    """Return those of the placeholders ``names`` that occur in ``body``."""
    if syntax is BodySyntax.PLAIN:
        return frozenset(_literals(names).findall(body)) if names else names
    pieces = parse_body(body, syntax, names)
    return frozenset(piece.name for piece in pieces if isinstance(piece, Slot))


@functools.lru_cache(maxsize=256)
def _literals(names: frozenset[str]) -> re.Pattern[str]:
    # The longest first: a text that only contains `$id_of_customer` does not contain `$id`.
    return re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))))


def marker_names(body: str, syntax: BodySyntax) -> frozenset[str]:
    """Return every name that ``body`` spells like an unescaped placeholder, known or not.

    There are none in a plain body, whose placeholders are arbitrary strings.
    """
    if syntax is BodySyntax.PLAIN:
        return frozenset()
    return frozenset(
        _name(match)
        for match in _MARKERS[syntax].finditer(body)
        if _escapes_before(match, syntax) % 2 == 0
    )


def _name(match: re.Match[str]) -> str:
    groups = match.groupdict()
    name: str = groups.get("braced") or groups["plain"]
    return name


def _escapes_before(match: re.Match[str], syntax: BodySyntax) -> int:
    """Count the escapes before a marker; the last dollar of a run belongs to the marker."""
    return len(match["run"]) - (1 if syntax is BodySyntax.DOLLAR else 0)


def _marker_text(match: re.Match[str], syntax: BodySyntax) -> str:
    marker = match[0][len(match["run"]) :]
    return f"${marker}" if syntax is BodySyntax.DOLLAR else marker


def _escaped(match: re.Match[str], *, syntax: BodySyntax, names: frozenset[str]) -> str:
    if _name(match) not in names:
        return match[0]
    escapes = 2 * _escapes_before(match, syntax) + 1
    return _ESCAPES[syntax] * escapes + _marker_text(match, syntax)


def _merged(pieces: list[Piece]) -> tuple[Piece, ...]:
    merged: list[Piece] = []
    run: list[str] = []
    for piece in pieces:
        if isinstance(piece, str):
            run.append(piece)
            continue
        if text := "".join(run):
            merged.append(text)
        run = []
        merged.append(piece)
    if text := "".join(run):
        merged.append(text)
    return tuple(merged)


def shown_plain(body: str) -> str:
    """Return a plain body with line feeds only, without byte order mark and outer blank lines."""
    return _BREAK.sub("\n", body.rstrip(_BREAKS).lstrip(_BEFORE))


def restored(text: str, like: str) -> str:
    """Return a new text with the byte order mark, outer blank lines and line ends of another.

    If the line ends are mixed, each line keeps its own, and new lines get the most frequent one.

    Args:
        text: the new text; its own line ends and outer blank lines are ignored.
        like: the plain body that it replaces.
    """
    begun = like.rstrip(_BREAKS)  # first, so that a body of nothing but breaks ends with them
    core = begun.lstrip(_BEFORE)
    ends = Counter(_BREAK.findall(like))
    usual = ends.most_common(1)[0][0] if ends else "\n"
    new = shown_plain(text).split("\n")
    if len(ends) > 1:
        chosen = _own_ends(core, new, usual=usual)
        new = [line + end for line, end in zip(new, [*chosen, ""], strict=True)]
        usual = ""
    head, tail = begun[: len(begun) - len(core)], like[len(begun) :]
    return f"{head}{usual.join(new)}{tail}"


def _own_ends(core: str, new: Sequence[str], *, usual: str) -> list[str]:
    """Return the line end of each new line but the last, from the matching line of ``core``."""
    old = _BREAK.split(core)
    ends = [*_BREAK.findall(core), usual]
    chosen = [usual] * len(new)
    for (begin, end), (first, last) in paired(old, new):
        for offset in range(min(end - begin, last - first)):
            chosen[first + offset] = ends[begin + offset]
    return chosen[:-1]


def paired(old: Sequence[Piece], new: Sequence[Piece]) -> list[tuple[_Range, _Range]]:
    """Return the matching stretches of lines and slots, equal or replaced."""
    # Equal lines at both ends first, because a matcher may confuse repeated lines.
    least = min(len(old), len(new))
    same = next((at for at in range(least) if old[at] != new[at]), least)
    rest = least - same
    after = next((at for at in range(rest) if old[-1 - at] != new[-1 - at]), rest)
    inner_old, inner_new = old[same : len(old) - after], new[same : len(new) - after]
    matcher = SequenceMatcher(None, inner_old, inner_new, autojunk=False)
    return [
        ((0, same), (0, same)),
        *(
            ((same + begin, same + end), (same + first, same + last))
            for _, begin, end, first, last in matcher.get_opcodes()
        ),
        ((len(old) - after, len(old)), (len(new) - after, len(new))),
    ]
