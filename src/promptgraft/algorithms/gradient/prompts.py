"""The questions of a gradient search, as prompts that users can read and override.

Everything that comes from prompts, examples and models is bound as a value, between fences.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import attrs

from promptgraft.prompt.sections import REFUSED, MarkdownSection, if_given
from promptgraft.prompt.template import PromptTemplate
from promptgraft.targets.part_questions import (
    BREVITY,
    CURRENT,
    EDITS,
    GENERAL,
    REPLY_AS_JSON,
)

GRADIENT_NS = "promptgraft/gradient"


class QuestionKey(StrEnum):
    """The questions, by their keys."""

    STEP = "blame-step"
    TRACE = "blame-trace"
    MERGE = "merge-problems"
    PATCH = "write-patch"


@attrs.frozen(kw_only=True)
class Params:
    """The parameters of every question.

    Attributes:
        problem: why the previous reply was refused; empty at the first attempt.
        previous: the previous reply, fenced and clipped; empty at the first attempt.
    """

    problem: str = ""
    previous: str = ""


@attrs.frozen(kw_only=True)
class BlameParams(Params):
    """The parameters of a question about steps, which are shown literally.

    Attributes:
        steps: input and output of each step, under its handle.
        parts: the texts that may change, each under its handle.
        others: other texts of the steps, which do not change.
        before: the outputs of preceding steps, each under its handle.
        losses: what went wrong, the most severe first.
    """

    steps: str
    parts: str
    others: str = ""
    before: str = ""
    losses: str


@attrs.frozen(kw_only=True)
class MergeParams(Params):
    """The parameters of the question that merges problems.

    Attributes:
        part: name of the part.
        current: its current text, fenced.
        said: its gradients, the most severe first.
    """

    part: str
    current: str
    said: str


@attrs.frozen(kw_only=True)
class PatchParams(Params):
    """The parameters of the question for a new text.

    Attributes:
        part: name of the part.
        limits: rules for the new text, one per line.
        current: its current text, fenced.
        schema: types that the text must fit, fenced; empty for free text.
        output: the expected form of answers, fenced.
        neighbours: the other parts, fenced.
        problems: what is to be fixed, the most severe first.
        refused: texts that were evaluated and refused, with their scores.
    """

    part: str
    limits: str
    current: str
    schema: str
    output: str
    neighbours: str
    problems: str
    refused: str


@attrs.frozen(kw_only=True)
class BlockParams(PatchParams):
    """The same, with the form of the reply, which digests leave out.

    Attributes:
        edits: how to edit a long text instead of writing it out; empty for a short one.
        tag: what the block of the reply opens with.
    """

    edits: str
    tag: str


_BLAME_FORM = """\
{
  "blame": [{"text": "<handle, such as T1>", "severity": "<P0 to P3>", "problem": "<what is \
wrong with that text>"}],
  "hand_on": [{"step": "<handle, such as S1>", "severity": "<P0 to P3>", "problem": "<what is \
wrong with its output>"}]
}"""
_TRACE_FORM = """\
{
  "blame": [{"text": "<handle, such as T1>", "severity": "<P0 to P3>", "problem": "<what is \
wrong with that text>"}]
}"""
_MERGE_FORM = """\
{
  "problems": [{"severity": "<P0 to P3>", "problem": "<what is wrong with the text>"}]
}"""
_REPLY_AS_BLOCK = (
    "Reply with one line that says what the new text mends, and below it the whole new text, of "
    "the same form as the current one, in one fenced block that opens with ```$tag (use more "
    "backticks when the text holds some)."
)
_SEVERITY = (
    "The severity is P0 where there was no answer, P1 where the answer was wrong, P2 where a part "
    "of it was, P3 where it could be better."
)
_IN_GENERAL = (
    "Say in general terms what the text should do differently, so that it also holds for inputs "
    "that you have not seen; do not copy the input or the expected answer."
)


def _template(
    key: QuestionKey, name: str, *sections: MarkdownSection, task: str, form: str = ""
) -> PromptTemplate[object]:
    """Return a question whose reply is JSON of a ``form``, or without one a text in a block."""
    reply = REPLY_AS_JSON.replace("$form", form) if form else _REPLY_AS_BLOCK
    task_section = MarkdownSection(title="Task", key="task", template=f"{task}\n\n{reply}")
    return PromptTemplate(
        ns=GRADIENT_NS,
        key=str(key),
        name=name,
        sections=(*sections, REFUSED, task_section, *(() if form else (EDITS,))),
    )


def _role(text: str) -> MarkdownSection:
    return MarkdownSection(title="Role", key="role", template=text)


_ANSWERED = "Language models answered a real input by following texts, and the answer was judged."
_PARTS = if_given("Texts that may change", "parts")
_OTHERS = if_given("Other texts", "others", before="These stay as they are:")
_LOSSES = if_given("What went wrong", "losses")

QUESTIONS: Mapping[str, PromptTemplate[object]] = {
    template.key: template
    for template in (
        _template(
            QuestionKey.STEP,
            "Find what a step has to do with a failure",
            _role(
                f"{_ANSWERED} It came about in steps. You look at one of them, and find out which "
                "of its texts led to what went wrong, or whether an earlier step did."
            ),
            if_given("Step", "steps"),
            _PARTS,
            _OTHERS,
            if_given("Steps before", "before"),
            _LOSSES,
            task=(
                "Blame the texts that led to what went wrong, if any did. Where the step did what "
                "its texts ask for and was given something wrong, hand the problem on to the step "
                "before that it came from. Both lists may be empty. Use the handles that are "
                f"shown here. {_IN_GENERAL} {_SEVERITY}"
            ),
            form=_BLAME_FORM,
        ),
        _template(
            QuestionKey.TRACE,
            "Find what led to a failure, in all steps",
            _role(
                f"{_ANSWERED} It came about in steps. You look at all of them, and find out which "
                "texts led to what went wrong."
            ),
            if_given("Steps", "steps"),
            _PARTS,
            _OTHERS,
            _LOSSES,
            task=(
                "Blame the texts that led to what went wrong: those of the step where it began, "
                "not of the steps that were given something wrong. The list may be empty. Use the "
                f"handles that are shown here. {_IN_GENERAL} {_SEVERITY}"
            ),
            form=_TRACE_FORM,
        ),
        _template(
            QuestionKey.MERGE,
            "Merge what was said of a text",
            _role(
                "Several failures of language models were traced back to one text that they "
                "follow. You merge what was said of it."
            ),
            CURRENT,
            if_given("What was said", "said"),
            task=(
                "Merge what is said twice, drop what contradicts the rest or holds for one input "
                f"only, and keep what the failures have in common. {_SEVERITY}"
            ),
            form=_MERGE_FORM,
        ),
        _template(
            QuestionKey.PATCH,
            "Write a better text",
            _role(
                "You improve a text that language models follow. You are shown the text, and what "
                "is wrong with it as real failures have shown."
            ),
            CURRENT,
            if_given("Types", "schema"),
            if_given("Rest of the texts", "neighbours", before="These stay as they are:"),
            if_given("Expected answers", "output"),
            if_given("What is wrong", "problems"),
            if_given("Refused texts", "refused", before="These were tried and are no better:"),
            task=f"Write a better text for this part. {GENERAL} {BREVITY}\n\n$limits",
        ),
    )
}
"""The questions by key."""

FORMER_QUESTIONS = "762c062433c05354922c45471d4783518662ebfe7bec3f948cc37b1a50a0d7e7"
"""The digest of the questions of which the last asked for JSON, unless a user changed one."""
