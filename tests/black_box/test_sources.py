"""Texts come out of files and functions, and what is none of the text stays to the byte."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgraft.agents.sources import (
    FileSource,
    Frozen,
    Source,
    read_file,
    read_sources,
)
from promptgraft.agents.writing import CallbackSource
from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.targets.texts import Texts

PIECES = st.sampled_from(["word", " ", "\t", "---", "name: x", "é", "😀", "\x0c", "\u2028", "$x"])
ENDS = st.sampled_from(["\n", "\r\n", "\r", "\n\n"])


@st.composite
def files(draw: st.DrawFn) -> tuple[bytes, Frozen]:
    """Draw the bytes of a file, and whether its front matter is frozen."""
    ends = draw(st.sampled_from([st.just("\n"), st.just("\r\n"), ENDS]))
    lines = [draw(PIECES) + draw(ends) for _ in range(draw(st.integers(0, 6)))]
    mark = draw(st.sampled_from(["", "\ufeff"]))
    last = draw(st.sampled_from(["", "end"]))
    if not draw(st.booleans()):
        return f"{mark}{''.join(lines)}{last}".encode(), ""
    line_break = draw(st.sampled_from(["\n", "\r\n"]))
    front = f"---{line_break}name: skill{line_break}--- {line_break}"
    return f"{mark}{front}{''.join(lines)}{last}".encode(), "front_matter"


@given(files())
def test_a_file_through_a_section_and_an_override_is_the_same_to_the_byte(
    tmp_path_factory: pytest.TempPathFactory, drawn: tuple[bytes, Frozen]
) -> None:
    raw, frozen = drawn
    path = tmp_path_factory.mktemp("file") / "system.md"
    path.write_bytes(raw)
    file = read_file(path, frozen, name="system.md")
    (section,) = Texts({"system": file.text}, run=len, key="agent").prompt.render().sections
    assert file.holding(section.text) == raw


@given(files(), st.lists(st.sampled_from(["new", "", "two words"]), min_size=1, max_size=4))
def test_another_text_changes_nothing_but_the_text(
    tmp_path_factory: pytest.TempPathFactory, drawn: tuple[bytes, Frozen], lines: list[str]
) -> None:
    raw, frozen = drawn
    path = tmp_path_factory.mktemp("file") / "system.md"
    path.write_bytes(raw)
    file = read_file(path, frozen, name="system.md")
    text = "\n".join(["first", *lines, "last"])
    path.write_bytes(file.holding(text))
    again = read_file(path, frozen, name="system.md")
    assert again.text == text
    assert again.holding(file.text).replace(b"\r\n", b"\n") == raw.replace(b"\r\n", b"\n")
    assert again.before.startswith("\ufeff") == raw.startswith(b"\xef\xbb\xbf")


def test_a_file_keeps_its_mark_its_front_matter_its_line_breaks_and_its_end(tmp_path: Path) -> None:
    path = tmp_path / "SKILL.md"
    path.write_bytes(b"\xef\xbb\xbf---\r\nname: s\r\n---\r\n\r\nAsk first.\r\nThen act.")
    file = read_file(path, "front_matter", name="SKILL.md")
    assert file.text == "Ask first.\nThen act."
    expected = b"\xef\xbb\xbf---\r\nname: s\r\n---\r\n\r\nAct.\r\nAsk later."
    assert file.holding("Act.\nAsk later.") == expected


FRONT = "---\nname: clerk\ndescription: Triggers on: shelf\ntools: Read, Grep\n---\n"


@pytest.mark.parametrize(
    ("content", "frozen", "text", "lines", "written"),
    [
        (f"{FRONT}\nName it.\n", "", "Name it.", 5, f"{FRONT}\nNew.\n"),
        (f"{FRONT}Name it.", "front_matter", "Name it.", 5, f"{FRONT}New."),
        (f"{FRONT}Name it.\n", "none", f"{FRONT}Name it.", 0, "New.\n"),
        ("---\nname: s\n---", "", "", 3, "---\nname: s\n---\nNew."),
        ("---\nnever closed\nName it.\n", "", "---\nnever closed\nName it.", 0, "New.\n"),
        ("Name it.\n\n---\nMore.\n---\n", "", "Name it.\n\n---\nMore.\n---", 0, "New.\n"),
    ],
)
def test_front_matter_is_text_only_where_that_is_said(
    tmp_path: Path, content: str, frozen: Frozen, text: str, lines: int, written: str
) -> None:
    path = tmp_path / "SKILL.md"
    path.write_text(content)
    file = read_file(path, frozen, name="SKILL.md")
    assert (file.text, file.protected_lines) == (text, lines)
    assert file.holding(text).decode() == content
    assert file.holding("New.").decode() == written


def test_sources_are_read_by_name_files_first(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("A file.\n")

    async def read() -> str:
        return "A function."

    stored = CallbackSource(read, print)
    found = read_sources({"stored": stored, "file": FileSource(Path("a.md"))}, folder=tmp_path)
    assert dict(found.texts) == {"file": "A file.", "stored": "A function."}
    assert list(found.files) == ["file"]
    assert found.callbacks == {"stored": stored}


def raising() -> str:
    raise ConnectionError("the store\nis down")


def make_mistakes(folder: Path) -> dict[str, Source]:
    """Return sources that are wrong, each in its own way."""
    (folder / "a.md").write_text("A.")
    (folder / "link.md").symlink_to("a.md")
    (folder / "latin.md").write_bytes(b"one\ncaf\xe9")
    (folder / "wide.md").write_bytes("text".encode("utf-16"))
    (folder / "zero.md").write_bytes(b"a\0b")
    (folder / "folder.md").mkdir()
    os.mkfifo(folder / "pipe.md")
    (folder / "agent.py").write_text("TEXT = 'A.'")
    (folder.parent / "outside.md").write_text("Outside.")
    (folder / "leads-out.md").symlink_to(folder.parent / "outside.md")
    os.link(folder / "a.md", folder / "hard.md")
    return {
        "a": FileSource(Path("a.md")),
        "dots": FileSource(Path("./x/../a.md")),
        "link": FileSource(Path("link.md")),
        "hard": FileSource(Path("hard.md")),
        "none": FileSource(Path("none.md")),
        "folder": FileSource(Path("folder.md")),
        "pipe": FileSource(Path("pipe.md")),
        "latin": FileSource(Path("latin.md")),
        "wide": FileSource(Path("wide.md")),
        "zero": FileSource(Path("zero.md")),
        "front": FileSource(Path("a.md"), "front_matter"),
        "code": FileSource(Path("agent.py")),
        "outside": FileSource(Path("../outside.md")),
        "leads-out": FileSource(Path("leads-out.md")),
        "Name": FileSource(Path("a.md")),
        "down": CallbackSource(raising, print),
        "number": CallbackSource(lambda: 5, print),  # type: ignore[arg-type,return-value]
        "half": CallbackSource(lambda: "\ud800", print),
    }


def test_every_source_that_cannot_be_used_is_a_line(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    (folder / "x").mkdir(parents=True)
    sources = make_mistakes(folder)
    with pytest.raises(DataFormatError) as raised:
        read_sources(sources, folder=folder, line=lambda name, why: f"{name}: {why}")
    told = "\n".join(raised.value.faults)
    assert told.replace(str(tmp_path), "TMP") == MISTAKES.strip()


MISTAKES = """
none: TMP/project/none.md: cannot be read: No such file or directory
folder: TMP/project/folder.md: expected a file, found something else; name a file
pipe: TMP/project/pipe.md: expected a file, found something else; name a file
latin: TMP/project/latin.md:2: expected UTF-8, found byte 0xe9 in column 4; save the file as UTF-8
wide: TMP/project/wide.md: expected UTF-8, found UTF-16; save the file as UTF-8
zero: TMP/project/zero.md:1: expected text, found a zero byte
front: TMP/project/a.md:1: expected front matter between two lines `---`, found none; add it, or \
leave `frozen` out
code: TMP/project/agent.py: expected a file of text, found one that may be run; let the code read \
the text from a file of its own, such as one that ends in .md or .txt
outside: TMP/project/../outside.md: expected a file in the project's folder TMP/project, found \
TMP/outside.md; move it there
leads-out: TMP/project/leads-out.md: expected a file in the project's folder TMP/project, found \
TMP/outside.md; move it there
Name: name of a text: expected 1 to 64 lower-case letters, digits, `_` or `-`, starting with a \
letter or digit; found 'Name'
down: read raised ConnectionError: the store is down
number: read: expected a text, found 5
half: read: expected a text, found '\\ud800'
dots: TMP/project/x/../a.md is the file of text `a` too, there TMP/project/a.md; name each file once
link: TMP/project/link.md is the file of text `a` too, there TMP/project/a.md; name each file once
hard: TMP/project/hard.md is the file of text `a` too, there TMP/project/a.md; name each file once
"""


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (
            lambda: FileSource(Path("a.md"), "title"),  # type: ignore[arg-type]
            "frozen: expected `front_matter` or `none`, found 'title'",
        ),
        (
            lambda: CallbackSource("read", print),  # type: ignore[arg-type]
            "read: expected a function, found 'read'",
        ),
        (
            lambda: CallbackSource(str, None),  # type: ignore[arg-type]
            "write: expected a function, found None",
        ),
        (
            lambda: read_sources({}, folder=Path()),
            "expected at least one text, found none; name a file or a callback",
        ),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(make: object, expected: str) -> None:
    assert callable(make)
    with pytest.raises((ConfigError, DataFormatError)) as raised:
        make()
    assert str(raised.value) == expected
