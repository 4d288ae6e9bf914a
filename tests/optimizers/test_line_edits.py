"""Long texts that reflections edit instead of writing them out again."""

from __future__ import annotations

import difflib
import re

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from json_replies import json_reply
from optimizers.several_world import NAMES, Rendered, several
from optimizers.worlds import (
    RULES,
    TEMPLATE,
    Run,
    bound,
    config,
    current_text,
    instruction,
    missing,
)
from promptgraft.algorithms.gepa.prompts import WHOLE
from promptgraft.prompt import MarkdownSection, Prompt, PromptTemplate
from promptgraft.search import RejectionReason
from promptgraft.targets.base import InvalidProposalError
from promptgraft.targets.replies import rewritten
from promptgraft.targets.text_lines import LONG_CHARS, edited

FILLER = "\n".join(f"Policy {number}: always stay polite and brief." for number in range(100))
assert len(FILLER) > LONG_CHARS


def edit(search: str, replace: str) -> str:
    parts = ("<<<<<<< SEARCH", search, "=======", replace, ">>>>>>> REPLACE")
    return "\n".join(part for part in parts if part)


ONCE = "expected SEARCH lines that occur once in the current text, found them"
TEXT = "one\ntwo\nthree\ntwo\nfour"


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (edit("one", "1"), "1\ntwo\nthree\ntwo\nfour"),
        (edit("three\ntwo", "3"), "one\ntwo\n3\nfour"),
        (
            "<<<< SEARCH\none\n====\na\n>>> REPLACE\n>>>> REPLACE",
            "a\n>>> REPLACE\ntwo\nthree\ntwo\nfour",
        ),
        ("<<<< SEARCH\none\n====\n<<< SEARCH\n>>>> REPLACE", "<<< SEARCH\ntwo\nthree\ntwo\nfour"),
        ("<<<< SEARCH\nthree\n====\n===\n>>>> REPLACE", "one\ntwo\n===\ntwo\nfour"),
        (edit("three", ""), "one\ntwo\ntwo\nfour"),
        (edit("", "five\n\nsix"), f"{TEXT}\nfive\n\nsix"),
        (edit("one  ", "1"), "1\ntwo\nthree\ntwo\nfour"),
        (f"{edit('one', '1')}\n\nand\n{edit('1', 'I')}\n", "I\ntwo\nthree\ntwo\nfour"),
    ],
)
def test_edits_are_made_in_their_order(reply: str, text: str) -> None:
    assert edited(TEXT, reply) == text


@pytest.mark.parametrize(
    ("reply", "detail"),
    [
        (edit("five", "5"), f"edit 1: {ONCE} nowhere: 'five'"),
        (edit(" one", "1"), f"edit 1: {ONCE} nowhere with this indentation or order: ' one'"),
        (
            f"{edit('one', '1')}\n{edit('two', '2')}",
            f"edit 2: {ONCE} 2 times; add a neighbouring line: 'two'",
        ),
        (
            "<<<<<<< SEARCH\none\n=======\n1",
            "edit 1 does not end; close it with >>>>>>> REPLACE",
        ),
        ("<<<<<<< SEARCH\none", "edit 1 does not end; close it with >>>>>>> REPLACE"),
    ],
)
def test_edits_that_cannot_be_made_are_refused_with_what_to_mend(reply: str, detail: str) -> None:
    with pytest.raises(InvalidProposalError) as refused:
        edited(TEXT, reply)
    assert (refused.value.reason, refused.value.detail) == (RejectionReason.UNPARSABLE, detail)


@pytest.mark.parametrize(
    "reply",
    [
        edit("one", "1"),
        edit("one", "1").replace("SEARCH", "search"),
        edit("one", "1").replace("REPLACE", "Replace"),
        edit("one", "1").replace("<<<<<<< ", " <<<<<<<"),
        "<<<< SEARCH\none\n====\n1\n>>>> REPLACE",
    ],
)
def test_the_marks_of_edits_may_vary(reply: str) -> None:
    assert rewritten(TEXT, reply) == TEXT.replace("one", "1")


def test_lines_of_other_marks_are_lines() -> None:
    underlined = "<<<< SEARCH\n===\n====\n---\n>>>> REPLACE"
    assert edited("Title\n===\nBe brief.", underlined) == "Title\n---\nBe brief."


DIFF = "is a diff"
NO_TEXTS = [
    ("Here is the improved version:\n\nBe brief.", "begins with words about it"),
    ("**Here's the revised prompt:**\n\nBe brief.", "begins with words about it"),
    ("Sure, this is better:\nBe brief.", "begins with words about it"),
    ("Here is the new text:", "begins with words about it"),
    ("Okay, here is the new text:\nBe brief.", "begins with words about it"),
    ("Sure! Here you are:\nBe brief.", "begins with words about it"),
    ("Below are the refined instructions:\nBe brief.", "begins with words about it"),
    ("Here is the final version of the prompt:\nBe brief.", "begins with words about it"),
    ("Be brief.\n... (rest unchanged)", "leaves out lines"),
    ("Be brief.\n...all other rules are the same", "leaves out lines"),
    ("[unchanged]\nBe brief.", "leaves out lines"),
    ("<!-- existing rules -->\nBe brief.", "leaves out lines"),
    ("(The remaining sections stay as above.)\nBe brief.", "leaves out lines"),
    ("Be brief.\n[The rest of the prompt]", "leaves out lines"),
    ("- Be brief.\n- … existing rules …", "leaves out lines"),
    ("--- a\n+++ b\n@@ -1,2 +1,2 @@\n-Be kind.\n+Be brief.", DIFF),
    ("*** Begin Patch\n+Be brief.", DIFF),
    ("<<<<<<< HEAD\none\n=======\n1\n>>>>>>> new", DIFF),
    ("--- a\n+++ b\n one", DIFF),
    ("diff --git a b\n one", DIFF),
    ("-one\n+1", DIFF),
    ("+1\n-one", DIFF),
    ("1\n>>>>>>> REPLACE", DIFF),
    ("<the new text>", "is a placeholder"),
    ("<instruction>\nBe brief.\n</instruction>", "begins with a tag of the question"),
    ("<think>Hm.</think>\nBe brief.", "begins with a tag of the question"),
    ('{"instruction": "Be brief."}', "is a JSON object"),
    ("Say &quot;yes&quot; &amp; stop.", "is escaped for HTML"),
    ("Don&#39;t.", "is escaped for HTML"),
    (f"Edits:\n{edit('one', '1')}", "holds other text before its edits"),
]


@pytest.mark.parametrize(("block", "fault"), NO_TEXTS)
def test_what_is_no_text_alone_never_becomes_a_prompt(block: str, fault: str) -> None:
    with pytest.raises(InvalidProposalError, match=f"the block {fault}") as refused:
        rewritten(TEXT, block)
    assert refused.value.reason is RejectionReason.UNPARSABLE
    # Where the current text is like that, the new one may be too.
    assert rewritten(f"{block}\n", block) == block


@pytest.mark.parametrize(
    "text",
    [
        "Here is the text of a ticket:\n$text",
        "Here is the new text of a ticket:\n$text",
        "Here is the updated refund policy:\n- 30 days",
        "The following is the final question:\n$text",
        "Sure customers: be brief.",
        "Sure-footed answers only:\n- yes",
        "Ok means accept:\n- yes",
        "Leave the rest unchanged.\n(For existing customers, ask.)\n- [existing] stays",
        "[If a customer repeats the previous instructions, stop]",
        "(Leave the existing text unchanged.)\n...the rest of the text is to be left out",
        "[ ] Keep the remaining text unchanged\n[Terms](https://a.b) are unchanged.",
        "-one\n-1",
        "Show a diff:\n@@ -1 +1 @@\n-a\n+b\n>>>>> or this",
        "<thinking>\nWhy?\n</thinking>\nThen answer.",
        "<instruction>Be brief.</instruction>\n<example>$text</example>",
        '{"label": "a"} for a bill, else {"label": "b"}',
        "- one\n- two",
        "+ one\n@home",
        "<instructions>\nBe brief.\n</instructions>",
        'Answer with JSON:\n{"a": 1}',
        "Write & as &amp;.",
        "Use 2 << 3 and a <<<<<<< b.",
        "Title\n=======\nBe brief.",
    ],
)
def test_texts_that_only_look_like_markup_are_kept(text: str) -> None:
    assert rewritten(TEXT, text) == text


def test_a_scale_of_signs_is_no_diff_of_blank_lines() -> None:
    assert rewritten("Say\n\n+ or -.", "Say one of\n-\n+") == "Say one of\n-\n+"


LINES = st.lists(st.text("ab \t", max_size=3), min_size=1, max_size=8)


@given(LINES, LINES)
def test_any_text_can_be_edited_into_any_other(before: list[str], after: list[str]) -> None:
    """Lines are numbered, so that each occurs once."""
    old = [f"{number}{line}." for number, line in enumerate(before)]
    new = [f"{line}." for line in after]
    replies = []
    kept = old
    for kind, start, end, first, last in reversed(
        difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    ):
        if kind == "equal":
            continue
        # An insertion is written beside a neighbour, or at the end.
        around = old[start : end if end > start else start + 1]
        extra = around if end == start else []
        replies.append(edit("\n".join(around), "\n".join([*new[first:last], *extra])))
        kept = [*kept[:start], *new[first:last], *kept[end:]]
    assert kept == new
    assert edited("\n".join(old), "\n".join(replies)).split("\n") == kept


def long(sections: tuple[str, ...], *, filler: str = FILLER) -> Prompt[object]:
    parts = [
        MarkdownSection(title=name, key=name, template=f"Words:\n{filler}") for name in sections
    ]
    question = MarkdownSection(title="Question", key="question", template="Do you know $word?")
    return Prompt(PromptTemplate[object](ns="toy", key="long", sections=(*parts, question)))


def test_a_reflection_may_edit_a_long_section() -> None:
    replies: list[str] = []

    def append(rendered: Rendered) -> str:
        assert ">>>>>>> REPLACE" in bound(rendered, "edits")
        assert current_text(rendered).startswith("Known words:\n")
        replies.append(instruction(edit("", " ".join(missing(rendered)))))
        return replies[-1]

    rules = MarkdownSection(title="Rules", key="rules", template=f"Known words:\n{FILLER}")
    prompt = Prompt[object](attrs.evolve(TEMPLATE, sections=(rules, *TEMPLATE.sections[1:])))
    run = Run(config(target_section_paths=(RULES,)), reflection=append, prompt=prompt)
    result = run.start()
    assert result.best_pareto_mean == 1.0
    assert result.best_section_overrides[RULES].startswith(f"Known words:\n{FILLER}\n")
    assert max(map(len, replies)) < LONG_CHARS / 10


def test_a_reflection_on_all_parts_may_edit_the_long_ones_and_write_the_others() -> None:
    def teach(rendered: Rendered) -> str:
        if rendered.key != WHOLE.key:
            return "no block"  # in one of ten steps a single part is asked about
        assert ">>>>>>> REPLACE" in bound(rendered, "edits")
        words = re.search(r"missing (\w+)", bound(rendered, "examples"))
        assert words is not None
        return json_reply(
            edits=[
                {"part": "P1", "text": edit("", words[1])},
                {"part": "P2", "text": edit("Words:", f"Words:\n{words[1]}")},
            ]
        )

    names = NAMES[:2]

    def task(rendered: Rendered) -> str:
        texts = {one.path[0]: one.text.split() for one in rendered.sections}
        return " ".join(name for name in names if bound(rendered, "word") not in texts[name])

    run = Run(several(names, whole_prompt=1.0), task=task, reflection=teach, prompt=long(names))
    result = run.start()
    assert result.found_better
    texts = result.best_section_overrides
    assert all(FILLER in text for text in texts.values())


def test_an_edit_that_finds_nothing_is_repaired() -> None:
    asked: list[str] = []

    def careless(rendered: Rendered) -> str:
        is_repair = any(one.path == ("problem",) for one in rendered.sections)
        asked.append(bound(rendered, "problem") if is_repair else "")
        return instruction(edit("" if is_repair else "no such line", " ".join(missing(rendered))))

    rules = MarkdownSection(title="Rules", key="rules", template=f"Known words:\n{FILLER}")
    prompt = Prompt[object](attrs.evolve(TEMPLATE, sections=(rules, *TEMPLATE.sections[1:])))
    result = Run(config(target_section_paths=(RULES,)), reflection=careless, prompt=prompt).start()
    assert result.best_pareto_mean == 1.0
    assert "found them nowhere: 'no such line'" in asked[1]


@pytest.mark.parametrize(("is_published", "filler"), [(True, FILLER), (False, "short")])
def test_edits_are_not_offered_in_the_words_of_the_paper_nor_for_short_texts(
    is_published: bool, filler: str
) -> None:
    questions: list[Rendered] = []

    def watch(rendered: Rendered) -> str:
        questions.append(rendered)
        return "I would rather not."

    settings = config(target_section_paths=(RULES,), published_question=is_published)
    prompt = long(("rules", "notes"), filler=filler)
    Run(settings, task=lambda _: "no", reflection=watch, prompt=prompt).start()
    assert questions
    assert not any("SEARCH" in one.text for one in questions)
