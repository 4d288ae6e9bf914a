"""The questions of GEPA: those on single parts, as published, and on the whole prompt."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from promptgraft.prompt.sections import REFUSED, MarkdownSection
from promptgraft.prompt.template import PromptTemplate
from promptgraft.targets.part_questions import (
    AROUND,
    BREVITY,
    EDITS,
    GENERAL,
    META_NS,
    PART_QUESTIONS,
    REPLY,
    ReflectionParams,
)

_REPLY_IN_BLOCKS = (
    "Reply with one fenced block for each part that you change. It opens with the name of the part "
    "and holds its whole new text; of a part that is a JSON object, an object of the same fields. "
    "Before each block say in one line why the part is to blame. For two parts:\n\n"
    "`````\n<why>\n```$first\n<the new text>\n```\n"
    "<why>\n```$second\n<the new text>\n```\n`````\n\n"
    "Use more backticks where a text holds some."
)
PUBLISHED: PromptTemplate[object] = PromptTemplate(
    ns=META_NS,
    key="reflect-section-published",
    name="Reflect on a section, as published",
    sections=(
        MarkdownSection(
            title="Current text",
            key="current",
            template=(
                "I provided an assistant with the following instructions to perform a task for me:"
                "\n\n$current"
            ),
        ),
        MarkdownSection(
            title="Examples with feedback",
            key="examples",
            template=(
                "The following are examples of different task inputs provided to the assistant "
                "along with the assistant's response for each of them, and some feedback on how "
                "the assistant's response could be better:\n\n$examples"
            ),
        ),
        REFUSED,
        MarkdownSection(
            title="Task",
            key="task",
            template=(
                "Your task is to write a new instruction for the assistant.\n\n"
                "Read the inputs carefully and identify the input format and infer detailed task "
                "description about the task I wish to solve with the assistant.\n\n"
                "Read all the assistant responses and the corresponding feedback. Identify all "
                "niche and domain specific factual information about the task and include it in "
                "the instruction, as a lot of it may not be available to the assistant in the "
                "future. The assistant may have utilized a generalizable strategy to solve the "
                f"task, if so, include that in the instruction as well.\n\n$limits\n\n{REPLY}"
            ),
        ),
    ),
)
"""The question of the paper's appendix, with our limits and form of reply."""


@attrs.frozen(kw_only=True)
class WholeParams(ReflectionParams):
    """What the question on all parts is bound to.

    Attributes:
        first: the name of a part, for the form of the reply.
        second: the name of another one.
    """

    first: str = ""
    second: str = ""


WHOLE: PromptTemplate[object] = PromptTemplate(
    ns=META_NS,
    key="reflect-prompt",
    name="Reflect on the whole prompt",
    sections=(
        MarkdownSection(
            title="Role",
            key="role",
            template=(
                "You improve a prompt that a language model follows. You are shown its parts, and "
                "what the model did with it on real examples: what went in, what came out, the "
                "score, and why."
            ),
        ),
        MarkdownSection(
            title="Current text",
            key="current",
            template="These parts may change, $part:\n\n$current",
        ),
        *AROUND,
        MarkdownSection(
            title="Task",
            key="task",
            template=(
                "For each failure find the part that is to blame: the one whose subject it "
                "belongs to, whatever the feedback names. Write a better text for each part that "
                f"is to blame, and leave the others out. {GENERAL} {BREVITY}\n\n{_REPLY_IN_BLOCKS}"
            ),
        ),
        EDITS,
    ),
)
"""The question on all parts at once."""


META_PROMPTS: Mapping[str, PromptTemplate[object]] = {
    **PART_QUESTIONS,
    PUBLISHED.key: PUBLISHED,
    WHOLE.key: WHOLE,
}
"""All questions of GEPA by their keys."""
