"""Texts of users and models as one line of a question."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from promptgraft.targets.formatting import in_one_line


@given(st.text(st.sampled_from("`-#> ab\n."), max_size=30))
@example("`name` is unknown")
@example("``a` b")
@example("# Examples")
def test_a_line_is_the_text_or_one_span_of_code_with_it(text: str) -> None:
    words = " ".join(text.split())
    line = in_one_line(text)
    if words[:1].isalnum() or not words:
        assert line == words
        return
    (inline,) = MarkdownIt("commonmark").parseInline(line)
    assert [(token.type, token.content) for token in inline.children or ()] == [
        ("code_inline", words)
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("- a", "`- a`"),
        ("`name` is unknown", "`` `name` is unknown ``"),
        ("expected `a`", "expected `a`"),
        ("```\ncode\n```", "```` ``` code ``` ````"),
    ],
)
def test_lines_are_quoted_as_markdown_quotes_code(text: str, line: str) -> None:
    assert in_one_line(text) == line
