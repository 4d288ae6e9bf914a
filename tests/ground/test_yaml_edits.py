"""A change of one value in a YAML text leaves every other line as it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgraft.ground.serde import Json
from promptgraft.ground.yaml_edits import changed, with_items
from promptgraft.ground.yaml_text import YamlDocument, YamlPath, read_yaml

ROOT = Path(__file__).parents[2]
STYLES = ROOT / "tests/project/markdown/styles"
FOLDERS = (ROOT / "examples", ROOT / "tests/project/right", STYLES)
LAYOUTS = (
    "a:   1\nb:\n- x\n-\n  y:  'z'   # c\n\n\nc: {d: , e: [ 1,2 ] , f: {g: h}}\n",
    'a: one\n  two\nb: "one\n  two"\nc: [1,\n    2]\nd: True\ne: ~\nf: "\\u00e9"\n',
    "---\na: |\n      x\n\n       y\n# c\nb: >-\n  one\n  two\n\nc: |+\n  x\n\n\nd: 1  \n \ne: 2\n",
    "a: 1\n...\n",
    "a:\n    b:\n      - c: 1\n        d:\n        - 2\n  # c\ne:\n  - - 1\n    - 2\n  - 'x'",
)
TEXTS = st.text("ab #$\\{}%-=`~<>!&*:'\"|,[]?@\n\té\x85\u2028😀0", max_size=12)
NEW: st.SearchStrategy[Json] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(("no", "1e3", "One line.", "Two\nlines.", "Ends\n\nso.\n")),
    TEXTS,
    st.lists(TEXTS, max_size=2),
    st.lists(st.dictionaries(st.sampled_from(("k", "yes", "a b")), TEXTS, min_size=1), max_size=2),
)


def read(text: str) -> YamlDocument | None:
    faults: list[str] = []
    document = read_yaml(text.removeprefix("\ufeff"), lambda _, fault: faults.append(fault))
    return None if faults or document is None or document.value is None else document


def corpus() -> tuple[str, ...]:
    """Return the YAML of the examples and of the tests, and layouts that are seldom seen."""
    files = sorted(path for folder in FOLDERS for path in folder.rglob("*.y*ml"))
    found = [*LAYOUTS, *(path.read_bytes().decode() for path in files)]
    return tuple(text for text in found if read(text))


CORPUS = corpus()


def leaves(value: Json, path: YamlPath = ()) -> Iterator[YamlPath]:
    if isinstance(value, (dict, list)) and value:
        members = value.items() if isinstance(value, dict) else enumerate(value)
        for step, member in members:
            yield from leaves(member, (*path, step))
    else:
        yield path


def at(value: Json, path: YamlPath) -> Json:
    for step in path:
        members: dict[object, Json] = dict(
            value.items() if isinstance(value, dict) else enumerate(json_list(value))
        )
        value = members[step]
    return value


def json_list(value: Json) -> list[Json]:
    assert isinstance(value, list)
    return value


def with_leaf(value: Json, path: YamlPath, new: Json) -> Json:
    if not path:
        return new
    if isinstance(value, dict):
        return {k: with_leaf(v, path[1:], new) if k == path[0] else v for k, v in value.items()}
    items = enumerate(json_list(value))
    return [with_leaf(item, path[1:], new) if at == path[0] else item for at, item in items]


def around(text: str, document: YamlDocument, path: YamlPath) -> tuple[str, str]:
    """Return the lines above a value, and those from the next value or key on."""
    first = document.line_of(path)
    own = max(first, document.lines[path])
    later = (*document.lines.values(), *document.key_lines.values())
    following = min((line for line in later if line > own), default=None)
    lines = text.splitlines(keepends=True)
    return "".join(lines[: first - 1]), "".join(lines[following - 1 :]) if following else ""


def test_the_corpus_is_there() -> None:
    assert len(CORPUS) > 20


@given(st.sampled_from(CORPUS), st.sampled_from(("\n", "\r\n", "\r")), st.booleans(), st.data())
def test_a_change_of_a_value_changes_its_own_lines_only(
    text: str, newline: str, bom: bool, data: st.DataObject
) -> None:
    text = ("\ufeff" if bom else "") + text.replace("\n", newline)
    document = read(text)
    assert document is not None
    path = data.draw(st.sampled_from(list(leaves(document.value))))
    old, new = at(document.value, path), data.draw(NEW)
    assert changed(text, path, old, old) == text
    after = changed(text, path, old, new)
    written = read(after)
    assert written is not None
    assert written.value == with_leaf(document.value, path, new)
    above, below = around(text, document, path)
    assert after.startswith(above)
    assert after.endswith(below)
    comments = {line for line in text.splitlines() if line.lstrip().startswith("#")}
    assert comments <= set(after.splitlines())


@pytest.mark.parametrize(
    ("text", "new", "after"),
    [
        ("a: 1", "x\ny\n", 'a: "x\\ny\\n"'),  # a block would lose the last line break
        ("a: 1", "x\ny", "a: |-\n  x\n  y"),
        ("a: 1  \nb: 2\n", "x\ny", "a: |-\n  x\n  y\nb: 2\n"),
        ("a: 1 # c\n", "x\ny", 'a: "x\\ny" # c\n'),
        ("a: 1\n", [{"yes": "no", "k": "1e3"}], 'a:\n  - "yes": "no"\n    k: "1e3"\n'),
        ("a: 1\n", [1e16, 1e-7, 0.5], "a: [1.0e+16, 1.0e-07, 0.5]\n"),
        ("a: 1\n", "\x85\u2028", 'a: "\\x85\\u2028"\n'),
    ],
)
def test_a_value_is_written_so_that_it_reads_back(text: str, new: Json, after: str) -> None:
    assert changed(text, ("a",), 1, new) == after
    document = read(after)
    assert document is not None
    assert at(document.value, ("a",)) == new


LIST = "a:\n  # one\n  - 1   # c\n  # two\n  -\n    k: [2]\n\n  # three\n  - 3\nb: x\n"


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("new", "added", "after"),
    [
        ([1, {"k": [2]}, 3], [], LIST),
        ([1, None, 3], [], LIST.replace("\n  -\n    k: [2]", "")),
        ([1, {"k": [2]}, None], [], LIST.replace("\n  - 3", "")),
        (
            [None, {"k": [0]}, None],
            [],
            LIST.replace("\n  - 1   # c", "").replace("2]", "0]").replace("\n  - 3", ""),
        ),
        (
            [1, None, None],
            [4],
            LIST.replace("\n  -\n    k: [2]", "").replace("- 3", "- 4"),
        ),
        ([None, None, None], [], "a: []\nb: x\n"),
    ],
)
def test_items_of_a_list_are_changed_removed_and_added(
    new: list[Json], added: list[Json], after: str, newline: str
) -> None:
    text = LIST.replace("\n", newline)
    old: list[Json] = [1, {"k": [2]}, 3]
    written = with_items(text, ("a",), list(zip(old, new, strict=True)), added)
    assert written == after.replace("\n", newline)
    document = read(written)
    assert document is not None
    assert at(document.value, ("a",)) == [*(item for item in new if item is not None), *added]
