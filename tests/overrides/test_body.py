"""The language of override bodies, against a second and simpler reading of it."""

from __future__ import annotations

import itertools
import random
import re
import string
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgraft.overrides.parts.body import (
    BodySyntax,
    Piece,
    Slot,
    kept_names,
    marker_names,
    parse_body,
    spell,
    write_body,
)

DOLLAR, JINJA, FORMAT = BodySyntax.DOLLAR, BodySyntax.JINJA, BodySyntax.FORMAT
NAMES = frozenset({"a", "name", "_b1"})
FRAGMENTS = {
    DOLLAR: ["$", "$$", "{", "}", "a", "name", "_b1", "x", "1", "${a}", "$name", "$x", " ", "é"],
    JINJA: ["\\", "\\\\", "{{", "}}", "{", "}", "{%", "a", "name", "x", " ", "\n", "{{ a }}", "é"],
    FORMAT: ["\\", "\\\\", "{", "}", "{{", "}}", "a", "name", "x", " ", "{a}", "{x}", "{_b1}", "é"],
}
RANDOM_BODIES = 3_000
# Of what may be a marker of a known name.
SUSPECT = {DOLLAR: r"\$(\{?)(a|name|_b1)", JINJA: r"\{\{\s*\w", FORMAT: r"\{\w"}
SYNTAXES = pytest.mark.parametrize("syntax", [DOLLAR, JINJA, FORMAT])


def bodies(syntax: BodySyntax) -> Iterator[str]:
    """Yield many bodies: every short one, and random longer ones."""
    fragments = FRAGMENTS[syntax]
    for length in range(4):
        yield from map("".join, itertools.product(fragments, repeat=length))
    source = random.Random(f"bodies of {syntax}")
    for _ in range(RANDOM_BODIES):
        yield "".join(source.choices(fragments, k=source.randint(4, 16)))


def piece_lists(syntax: BodySyntax) -> Iterator[list[Piece]]:
    """Yield many lists of pieces, adjacent and empty texts among them."""
    fragments: list[Piece] = [*FRAGMENTS[syntax], "", *(Slot(name) for name in sorted(NAMES))]
    for length in range(4):
        yield from map(list, itertools.product(fragments, repeat=length))
    source = random.Random(f"pieces of {syntax}")
    for _ in range(RANDOM_BODIES):
        yield source.choices(fragments, k=source.randint(4, 10))


def merged(pieces: list[Piece]) -> tuple[Piece, ...]:
    """Return the pieces with adjacent texts joined and empty texts left out."""
    joined: list[Piece] = []
    for is_text, group in itertools.groupby(pieces, lambda piece: isinstance(piece, str)):
        run = list(group)
        text = "".join(piece for piece in run if isinstance(piece, str))
        joined.extend(([text] if text else []) if is_text else run)
    return tuple(joined)


def read_slowly(body: str, syntax: BodySyntax, names: frozenset[str]) -> tuple[Piece, ...]:
    """Read a body character by character, as the table in the module's docstring says."""
    escape = "$" if syntax is DOLLAR else "\\"
    pieces: list[Piece] = []
    at = 0
    while at < len(body):
        run = len(body[at:]) - len(body[at:].lstrip(escape))
        # The last dollar of a run belongs to the marker.
        begins = at + run - (1 if syntax is DOLLAR and run else 0)
        name, length = marker_at(body, begins, syntax)
        if name in names:
            escapes = begins - at
            pieces.append(escape * (escapes // 2))
            pieces.append(body[begins : begins + length] if escapes % 2 else Slot(name))
            at = begins + length
        else:
            step = max(run, 1)
            pieces.append(body[at : at + step])
            at += step
    return merged(pieces)


def marker_at(body: str, at: int, syntax: BodySyntax) -> tuple[str, int]:
    """Return name and length of the marker at a position; an empty name if there is none."""
    opening, closing, space = {
        DOLLAR: ("${", "}", ""),
        JINJA: ("{{", "}}", " \t\r\n"),
        FORMAT: ("{", "}", ""),
    }[syntax]
    if body.startswith(opening, at):
        rest = body[at + len(opening) :].lstrip(space)
        name = identifier(rest)
        after = rest[len(name) :].lstrip(space)
        if name and after.startswith(closing):
            return name, len(body) - at - len(after) + len(closing)
    if syntax is DOLLAR and body.startswith("$", at):
        name = identifier(body[at + 1 :])
        return name, 1 + len(name)
    return "", 0


def identifier(text: str) -> str:
    """Return the identifier at the start of ``text``, or nothing."""
    allowed = string.ascii_letters + "_"
    if text[:1] not in allowed:
        return ""
    return "".join(itertools.takewhile(lambda char: char in allowed + string.digits, text))


@SYNTAXES
def test_every_body_is_read_as_the_definition_says(syntax: BodySyntax) -> None:
    count = 0
    for body in bodies(syntax):
        assert parse_body(body, syntax, NAMES) == read_slowly(body, syntax, NAMES), body
        count += 1
    assert count > 5_000


@SYNTAXES
def test_what_is_written_is_read_back(syntax: BodySyntax) -> None:
    count = 0
    for pieces in piece_lists(syntax):
        body = write_body(pieces, syntax, NAMES)
        assert parse_body(body, syntax, NAMES) == merged(pieces), body
        count += 1
    assert count > 5_000


@SYNTAXES
def test_writing_what_was_read_means_the_same_and_settles_at_once(syntax: BodySyntax) -> None:
    for body in bodies(syntax):
        pieces = parse_body(body, syntax, NAMES)
        written = write_body(pieces, syntax, NAMES)
        assert parse_body(written, syntax, NAMES) == pieces, body
        assert write_body(parse_body(written, syntax, NAMES), syntax, NAMES) == written, body


@SYNTAXES
def test_a_body_without_markers_of_known_names_is_literal(syntax: BodySyntax) -> None:
    nothing: frozenset[str] = frozenset()
    literal = 0
    for body in bodies(syntax):
        whole = (body,) if body else ()
        assert parse_body(body, syntax, nothing) == whole
        assert write_body(whole, syntax, nothing) == body
        if not re.search(SUSPECT[syntax], body):
            assert parse_body(body, syntax, NAMES) == whole
            assert write_body(whole, syntax, NAMES) == body
            literal += 1
    assert literal > 1_000


@SYNTAXES
def test_only_slots_and_escapes_make_a_difference_to_the_text(syntax: BodySyntax) -> None:
    """A body that is already written keeps every character outside of its markers."""
    for pieces in itertools.islice(piece_lists(syntax), 5_000):
        texts = "".join(piece for piece in merged(pieces) if isinstance(piece, str))
        read = parse_body(write_body(pieces, syntax, NAMES), syntax, NAMES)
        assert "".join(piece for piece in read if isinstance(piece, str)) == texts


@given(st.text(), st.sampled_from([DOLLAR, JINJA]), st.frozensets(st.sampled_from(sorted(NAMES))))
def test_any_text_can_be_written_and_read_back(
    text: str, syntax: BodySyntax, names: frozenset[str]
) -> None:
    assert parse_body(write_body([text], syntax, names), syntax, names) == merged([text])
    assert parse_body(text, syntax, names) == read_slowly(text, syntax, names)


@pytest.mark.parametrize(
    ("syntax", "body", "pieces"),
    [
        (DOLLAR, "$name", [Slot("name")]),
        (DOLLAR, "${name}s", [Slot("name"), "s"]),
        (DOLLAR, "$names", ["$names"]),
        (DOLLAR, "$5 and $$5", ["$5 and $$5"]),
        (DOLLAR, "$$name", ["$name"]),
        (DOLLAR, "$${name}", ["${name}"]),
        (DOLLAR, "$$$name", ["$", Slot("name")]),
        (DOLLAR, "$$$$name", ["$$name"]),
        (DOLLAR, "$nameé", [Slot("name"), "é"]),
        (DOLLAR, "${ name }", ["${ name }"]),
        (DOLLAR, "{{ name }}", ["{{ name }}"]),
        (JINJA, "{{ name }}", [Slot("name")]),
        (JINJA, "{{name}}{{\n\tname }}", [Slot("name"), Slot("name")]),
        (JINJA, "{{ name | upper }}", ["{{ name | upper }}"]),
        (JINJA, "{% if name %}{{ 1 + 1 }}", ["{% if name %}{{ 1 + 1 }}"]),
        (JINJA, "{{{ name }}}", ["{", Slot("name"), "}"]),
        (JINJA, r"\{{ name }}", ["{{ name }}"]),
        (JINJA, r"\\{{ name }}", ["\\", Slot("name")]),
        (JINJA, r"C:\name \\ \{{ x }}", [r"C:\name \\ \{{ x }}"]),
        (JINJA, "$name", ["$name"]),
        (FORMAT, "{name}", [Slot("name")]),
        (FORMAT, "{{name}}", ["{", Slot("name"), "}"]),
        (FORMAT, "{ name }{name!r}{name:>3}", ["{ name }{name!r}{name:>3}"]),
        (FORMAT, '{"team": "name"}', ['{"team": "name"}']),
        (FORMAT, r"\{name}", ["{name}"]),
        (FORMAT, r"\\{name}", ["\\", Slot("name")]),
    ],
)
def test_examples_of_the_definition(syntax: BodySyntax, body: str, pieces: list[Piece]) -> None:
    assert parse_body(body, syntax, NAMES) == tuple(pieces)


@SYNTAXES
def test_the_usual_spelling_is_a_marker(syntax: BodySyntax) -> None:
    assert parse_body(spell("name", syntax), syntax, NAMES) == (Slot("name"),)
    body = write_body([Slot("name"), "a", Slot("_b1")], syntax, NAMES)
    assert kept_names(body, syntax, NAMES) == {"name", "_b1"}


@pytest.mark.parametrize(
    ("syntax", "body", "names"),
    [
        (DOLLAR, "$known $$escaped ${braced} $5 $$$twice", {"known", "braced", "twice"}),
        (JINJA, r"{{ known }} \{{ escaped }} {{ no | filter }} \\{{ twice }}", {"known", "twice"}),
        (FORMAT, r"{known} \{escaped} {no!r} \\{twice}", {"known", "twice"}),
    ],
)
def test_what_looks_like_a_placeholder_is_found_whether_known_or_not(
    syntax: BodySyntax, body: str, names: set[str]
) -> None:
    assert marker_names(body, syntax) == names


LONG = 1 << 17
UNITS = {
    DOLLAR: ["$", "${", "${name", "$name", "$$name", "${name ", "a", "{", "}", " "],
    JINJA: ["\\", "{", "{{", "{{ ", "{{ name", "{{name ", "{{\\", "\\{{ name }}", "}", " ", "a"],
    FORMAT: ["\\", "{", "{name", "{name ", "{\\", "\\{name}", "}", " ", "a"],
}


@pytest.mark.parametrize(
    ("syntax", "unit"), [(syntax, unit) for syntax, units in UNITS.items() for unit in units]
)
def test_a_long_body_of_anything_is_read_and_written(syntax: BodySyntax, unit: str) -> None:
    """With quadratic work this would take minutes."""
    opening = spell("", syntax).strip(" }")
    body = opening + unit * (LONG // len(unit)) + spell("name", syntax)
    pieces = parse_body(body, syntax, NAMES)
    written = write_body(pieces, syntax, NAMES)
    assert parse_body(written, syntax, NAMES) == pieces
