"""Strict YAML: what it means, where it stands, and what is refused."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from promptgraft.ground.foreign_yaml import read_foreign_yaml
from promptgraft.ground.serde import Json
from promptgraft.ground.work import WorkBudget
from promptgraft.ground.yaml_text import (
    YamlDocument,
    YamlPath,
    read_yaml,
    spelled,
)

TEXT = """\
# a comment
name: triage

labels:
  - a
  - key: |
      two
      lines
    more: {x: 1,
           y: 2}
"quoted key": [1,
               2]
empty:
"""


def read(text: str) -> YamlDocument:
    document = read_yaml(text, lambda line, fault: pytest.fail(f"{line}: {fault}"))
    assert document is not None
    return document


def faults_of(text: str) -> list[tuple[int, str]]:
    noted: list[tuple[int, str]] = []
    read_yaml(text, lambda line, fault: noted.append((line, fault)))
    return noted


def test_every_value_and_key_has_its_line() -> None:
    document = read(TEXT)

    assert document.value == {
        "name": "triage",
        "labels": ["a", {"key": "two\nlines\n", "more": {"x": 1, "y": 2}}],
        "quoted key": [1, 2],
        "empty": None,
    }
    assert document.key_lines == {
        ("name",): 2,
        ("labels",): 4,
        ("labels", 1, "key"): 6,
        ("labels", 1, "more"): 9,
        ("labels", 1, "more", "x"): 9,
        ("labels", 1, "more", "y"): 10,
        ("quoted key",): 11,
        ("empty",): 13,
    }
    assert document.lines[()] == 2
    assert document.lines["labels",] == 5
    assert document.lines["labels", 0] == 5
    assert document.lines["labels", 1] == 6
    assert document.lines["quoted key", 1] == 12


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ((), 2),
        (("labels",), 4),
        (("labels", 1), 6),
        (("labels", 1, "more", "y"), 10),
        (("labels", 1, "missing", "deeper"), 6),
        (("missing",), 2),
    ],
)
def test_what_is_not_there_stands_where_it_would_belong(path: YamlPath, line: int) -> None:
    assert read(TEXT).line_of(path) == line


def test_a_text_that_says_nothing_is_nothing() -> None:
    assert read("---\n").value is None
    for text in ("", "# only a comment\n"):
        assert read(text).value is None
        assert read(text).line_of(("any",)) == 1


ESCAPES = "between double quotes write `\\\\` for `\\`, or use single quotes"
ESCAPED = (
    ('a: 1\nb: "\\d+"\n', "found unknown escape character"),
    ('a: 1\nb: "x: \\xno: "\n', "did not find expected hexdecimal number"),
)
BEGINS_NOTHING = "not YAML: found character that cannot start any token; put the value in quotes"


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("a: 1\na: 2\n", [(2, "the key 'a' occurs twice in one object; leave one out")]),
        (
            "a: 1e3\nb: 007\n",
            [
                (1, "'1e3' is ambiguous; quote it if it is a text"),
                (2, "'007' is ambiguous; quote it if it is a text"),
            ],
        ),
        (
            "a: &x 1\nb: *x\n",
            [(2, "expected data without aliases, found `*x`; write here what follows `&x`")],
        ),
        (
            "a:\n  <<: {b: 1}\n",
            [
                (
                    2,
                    (
                        "expected data without merge keys, found `<<`; write here each key and "
                        "value that it merges, in its place"
                    ),
                )
            ],
        ),
        (
            "a: !!python/name:os 1\n",
            [(1, "expected plain data, found the tag 'tag:yaml.org,2002:python/name:os'")],
        ),
        ("- !thing {}\n", [(1, "expected plain data, found the tag '!thing'")]),
        ("1: a\n", [(1, "expected a text as key, found 1; quote it")]),
        ("[a]: b\n", [(1, "expected a text as key, found a list or an object")]),
        ("a: 1\n---\nb: 2\n", [(3, "expected one document, found a second one")]),
        (
            "b: 1\na: [1\nb: 2\n",
            [
                (
                    2,
                    (
                        "not YAML: did not find expected ',' or ']'; a bracket opens in this "
                        "line and never closes, or lacks a comma"
                    ),
                )
            ],
        ),
        (
            "b: 1\na: 'x\nc: 2\n",
            [
                (
                    2,
                    (
                        "not YAML: found unexpected end of stream; a quote opens in this line and "
                        "never closes"
                    ),
                )
            ],
        ),
        (
            "a: b: c\n",
            [
                (
                    1,
                    (
                        "not YAML: mapping values are not allowed in this context; put the "
                        "value in quotes: it holds a colon"
                    ),
                )
            ],
        ),
        # Neither a comment nor a quoted text is a key without its colon.
        (
            "a: 1\n# note\n b: 2\n",
            [
                (
                    3,
                    (
                        "not YAML: did not find expected key; indent `b: 2` as the other keys of "
                        "its object"
                    ),
                )
            ],
        ),
        (
            "a: 1\n'x y'\n b: 2\n",
            [
                (
                    3,
                    (
                        "not YAML: could not find expected ':'; indent `b: 2` as the other keys "
                        "of its object"
                    ),
                )
            ],
        ),
        *((text, [(2, f"not YAML: {problem}; {ESCAPES}")]) for text, problem in ESCAPED),
        *((f"a: 1\nb: {value}\n", [(2, BEGINS_NOTHING)]) for value in ("%x", "@x", "`x`")),
        ("a: \ud800", [(0, "not YAML: it holds half of a surrogate pair")]),
        ("a: '\x07'\n", [(0, "not YAML: it holds control characters")]),
        ("- \n " + "[" * 100 + "]" * 100, [(2, "nested deeper than 100 levels")]),
    ],
)
def test_what_is_refused_is_noted_with_its_line(text: str, faults: list[tuple[int, str]]) -> None:
    assert faults_of(text) == faults


def test_bombs_neither_multiply_nor_exhaust_the_stack() -> None:
    laughs = "a: &a [x, x]\n" + "".join(f"b{i}: [*a, *a]\n" for i in range(50))
    assert faults_of(laughs) == [
        (2, "expected data without aliases, found `*a`; write here what follows `&a`")
    ]
    assert faults_of("[" * 100_000)[0][1] == "nested deeper than 100 levels"


def test_paths_are_spelled_as_messages_write_them() -> None:
    assert spelled(("metrics", 0, "labels")) == ".metrics[0].labels"


WORDS = st.one_of(
    st.text("abyesnotrue ~:#-'\"\n{}[],é", max_size=8),
    st.sampled_from(["no", "Yes", "on", "null", "2026-11-21", "1:30", "<<", "=", "1e3", "0x1F"]),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(10**9), 10**9), WORDS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(WORDS, inner, max_size=3)),
    max_leaves=8,
)


@settings(max_examples=80, deadline=None)
@given(value=VALUES, flow=st.sampled_from([True, False, None]))
@example(value={"a": ["no", {"b": None}]}, flow=False)
def test_what_yaml_writers_write_is_read_back_as_it_was(value: Json, flow: bool | None) -> None:
    """Values that mean the same to every reader; a writer quotes all others."""
    text = yaml.safe_dump(value, default_flow_style=flow, allow_unicode=True)
    noted: list[tuple[int, str]] = []
    document = read_yaml(text, lambda line, fault: noted.append((line, fault)))

    if not noted:
        assert document is not None
        assert document.value == value
        assert document.value == yaml.safe_load(text)
    # A writer of another version of YAML leaves these unquoted: they are refused, not guessed.
    assert all("ambiguous" in fault or "merge keys" in fault for _, fault in noted)


@settings(max_examples=80, deadline=None)
@given(value=VALUES, gaps=st.lists(st.integers(0, 2), min_size=40, max_size=40))
def test_the_line_of_a_value_is_the_line_in_which_it_is_written(
    value: Json, gaps: list[int]
) -> None:
    """Each key and each scalar of a list is written on a line of its own."""
    written: dict[YamlPath, int] = {}
    lines: list[str] = []

    def write(item: Json, path: YamlPath, head: str, indent: str) -> None:
        lines.extend(["# gap"] * gaps[len(lines) % len(gaps)])
        inside = isinstance(item, (dict, list)) and bool(item)
        if path and (isinstance(path[-1], str) or not inside):
            written[path] = len(lines) + 1
        lines.append(f"{head}# inside" if inside else f"{head}{item if item in ([], {}) else 'x'}")
        if isinstance(item, dict):
            for key, inner in item.items():
                write(inner, (*path, key), f"{indent}{json.dumps(key)}: ", f"{indent}  ")
        elif isinstance(item, list):
            for at, inner in enumerate(item):
                write(inner, (*path, at), f"{indent}- ", f"{indent}  ")

    write(value, (), "", "")
    document = read("\n".join(lines))
    assert {path: document.line_of(path) for path in written} == written


def foreign(text: str, budget: WorkBudget | None = None) -> tuple[Json, list[str]]:
    noted: list[str] = []
    document = read_foreign_yaml(
        text, lambda line, fault: noted.append(f"{line}: {fault}"), budget or WorkBudget()
    )
    return None if document is None else document.value, noted


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: &x [1, {b: no}]\nc: *x\n", {"a": [1, {"b": "no"}], "c": [1, {"b": "no"}]}),
        ("a: &x text\n*x : 1\n", {"a": "text", "text": 1}),
        ("b: &b {k: 1, l: 2}\nd: {<<: *b, l: 3}\n", {"b": {"k": 1, "l": 2}, "d": {"k": 1, "l": 3}}),
        (
            "b: &b {k: 1}\nd:\n  <<: [*b, {k: 9, m: 2}]\n",
            {"b": {"k": 1}, "d": {"k": 1, "m": 2}},
        ),
        ("a: 1e3\nb: 0x1F\nc: 007\n", {"a": 1000, "b": 31, "c": 7}),
        ("a: 2024-01-01\nb: 1_000\nc: .inf\n", {"a": "2024-01-01", "b": 1000, "c": ".inf"}),
        ("1: a\ntrue: b\n", {"1": "a", "true": "b"}),
        ("a: '007'\nb: \"1e3\"\n", {"a": "007", "b": "1e3"}),
    ],
)
def test_yaml_of_others_has_aliases_merges_and_loose_scalars(text: str, value: Json) -> None:
    assert foreign(text) == (value, [])


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a: *x\n", "1: there is no anchor `&x` before `*x`"),
        ("a: &x [*x]\n", "1: there is no anchor `&x` before `*x`"),
        ("a: {<<: 3}\n", "1: expected an object after `<<`, found 3"),
        ("a: 1\na: 2\n", "2: the key 'a' occurs twice in one object; leave one out"),
        ("a: !!python/object:os.system {}\n", "1: expected plain data, found the tag"),
    ],
)
def test_faults_in_yaml_of_others_have_their_line(text: str, fault: str) -> None:
    _, noted = foreign(text)
    assert [line[: len(fault)] for line in noted] == [fault]


def test_values_behind_aliases_are_counted_before_they_are_used() -> None:
    levels = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 30)]
    budget = WorkBudget(iterations=10_000)
    _, noted = foreign("a0: &a0 [x, x]\n" + "".join(levels), budget)
    assert len(noted) == 1
    assert "expected at most 10,000 iterations in all, found" in noted[0]
    assert budget.spent("iterations") <= 10_000


@pytest.mark.parametrize("text", [TEXT, "a: [1\nb: 2\n", "a: 1\na: 2\n", "x: \x00"])
def test_without_libyaml_a_text_is_read_as_with_it(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read() -> tuple[YamlDocument | None, list[int]]:
        lines: list[int] = []
        return read_yaml(text, lambda line, _: lines.append(line)), lines

    with_it = read()
    monkeypatch.delattr(yaml, "CSafeLoader")
    assert read() == with_it
