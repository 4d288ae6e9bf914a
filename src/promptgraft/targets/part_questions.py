"""The questions to the reflection model about single parts: its meta-prompts.

They are ordinary prompts of the namespace ``promptgraft/gepa``, so that users can read them,
and override them through a store like any other prompt. Everything that comes from prompts,
examples and models is bound as a value; nothing is ever formatted into a template.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from promptgraft.prompt.sections import REFUSED, MarkdownSection, if_given
from promptgraft.prompt.template import PromptTemplate
from promptgraft.targets.types import MetaPrompt

META_NS = "promptgraft/gepa"


@attrs.frozen(kw_only=True)
class ReflectionParams:
    """What a meta-prompt is bound to; all of it is shown as it stands.

    Attributes:
        part: name of the part that is to be improved.
        limits: what a reply must keep to, one rule a line.
        current: the present text, fenced; empty for a part that has none to improve.
        schema: types that the reply must fit, fenced; empty for free text.
        siblings: other examples of the same kind, fenced.
        output: what answers must look like, fenced.
        neighbours: the other parts of the prompt, fenced.
        examples: the rollouts, with scores and feedback.
        edits: how to edit a long text instead of writing it out; empty where none is long.
        more: further failures in short; empty if none is shown.
        kept: right answers in short; empty if none is shown.
        tried: what was tried on these failures; empty if that is not shown.
        problem: why the previous reply was refused; empty at the first attempt.
        previous: the previous reply, fenced, its middle left out when it is longer than a
            usable one; empty at the first attempt.
    """

    part: str
    limits: str
    current: str
    schema: str
    siblings: str
    output: str
    neighbours: str
    examples: str
    edits: str = ""
    more: str = ""
    kept: str = ""
    tried: str = ""
    problem: str = ""
    previous: str = ""


REPLY = (
    "Reply with the whole new text, and nothing else, in one fenced block that opens with "
    "```instruction (use more backticks when the text holds some)."
)
REPLY_AS_JSON = (
    "Reply with one fenced block, and nothing else. It holds one JSON object of this form:\n\n"
    "````\n```json\n$form\n```\n````"
)
_LEFT_OUT = " Leave out what may stay as it is."
GENERAL = (
    "Find what the failures have in common, and say it as general guidance that also holds for "
    "inputs you have not seen; do not copy single examples or their answers. Keep what already "
    "works."
)
BREVITY = (
    "Do not let a part grow unless it must: merge what says the same, and leave out what no case "
    "needs. Where lines define names, keep one line for each name."
)
_TOOL_FORM = """\
{
  "description": "<what the tool does and when to use it>",
  "param <name>": "<what the parameter means>"
}"""
_OUTPUT_FIELD_FORM = """\
{
  "description": "<what the field means>",
  "aliases": ["<another name of the field>"],
  "value <option>": "<what the option means>"
}"""
_TOOL_EXAMPLE_FORM = """\
{
  "description": "<when or why one would make this call>",
  "input": <JSON that fits the tool's input>,
  "output": <JSON that fits the tool's output>
}"""
_TASK_EXAMPLE_FORM = """\
{
  "objective": "<what is asked>",
  "steps": [
    {
      "tool": "<name of a tool>",
      "description": "<why this step>",
      "input": <JSON that fits the tool's input>,
      "output": <JSON that fits the tool's output>
    }
  ],
  "outcome": <the answer as JSON, as the prompt's answers must look>
}"""
_NEW_EXAMPLE_FORM = _TASK_EXAMPLE_FORM.replace("{", '{\n  "key": "<short-unique-name>",', 1)


ROLE = (
    "You improve one part of a prompt that a language model follows. You are shown the part, the "
    "rest of the prompt, and what the model did with it on real examples: what went in, what came "
    "out, the score, and why."
)


EDITS = if_given("Long texts", "edits")
CURRENT = MarkdownSection(
    title="Current text", key="current", template="The part is: $part\n\n$current"
)


AROUND = (
    if_given("Rest of the prompt", "neighbours", before="These parts stay as they are:"),
    if_given("Expected answers", "output"),
    MarkdownSection(title="Examples with feedback", key="examples", template="$examples"),
    if_given("More failures", "more", before="These failed as well, in short:"),
    if_given("Right answers", "kept", before="These are right now; keep them so:"),
    if_given("What was tried", "tried"),
    REFUSED,
)
"""What a question shows beside what may change."""


def meta_prompt(key: str, *, name: str, task: str, form: str = "") -> PromptTemplate[object]:
    """Return the question about parts of a kind.

    Args:
        key: its key, which the descriptions of such parts have as their ``meta_prompt``.
        name: what people call it.
        task: what the reflector is asked to do.
        form: the form of the JSON object that it replies with, where descriptions are ``as_json``;
            empty where the reply is the text itself.
    """
    reply = REPLY_AS_JSON.replace("$form", form) if form else REPLY
    return PromptTemplate(
        ns=META_NS,
        key=str(key),
        name=name,
        sections=(
            MarkdownSection(title="Role", key="role", template=ROLE),
            CURRENT,
            if_given("Types", "schema"),
            if_given("Other examples", "siblings", before="These are there already:"),
            *AROUND,
            MarkdownSection(title="Task", key="task", template=f"{task}\n\n$limits\n\n{reply}"),
            *(() if form else (EDITS,)),
        ),
    )


PART_QUESTIONS: Mapping[str, PromptTemplate[object]] = {
    template.key: template
    for template in (
        meta_prompt(
            MetaPrompt.SECTION,
            name="Reflect on a section",
            task=f"Write a better text for this part. {GENERAL} {BREVITY}",
        ),
        meta_prompt(
            MetaPrompt.TOOL,
            name="Reflect on a tool",
            task=(
                "Describe this tool and its parameters better, so that the model knows when to use "
                f"it and what to pass. {GENERAL}{_LEFT_OUT}"
            ),
            form=_TOOL_FORM,
        ),
        meta_prompt(
            MetaPrompt.TOOL_EXAMPLE,
            name="Reflect on a tool example",
            task=(
                "Write a better example of calling this tool: one that shows when and how to use "
                "it where the model went wrong. Do not copy an input that you were shown."
            ),
            form=_TOOL_EXAMPLE_FORM,
        ),
        meta_prompt(
            MetaPrompt.TASK_EXAMPLE,
            name="Reflect on a task example",
            task=(
                "Write a better worked example: a clear objective, steps in a logical order whose "
                "results follow from one another, and the outcome that they lead to. Show what the "
                "model went wrong at. Do not copy an input that you were shown."
            ),
            form=_TASK_EXAMPLE_FORM,
        ),
        meta_prompt(
            MetaPrompt.GENERATION,
            name="Write a task example",
            task=(
                "The failures show something that no example covers yet. Write one more worked "
                "example that does: specific, achievable, with realistic values and a successful "
                "outcome. Use only the tools shown. Do not copy an input that you were shown."
            ),
            form=_NEW_EXAMPLE_FORM,
        ),
        meta_prompt(
            MetaPrompt.OUTPUT_FIELD,
            name="Reflect on an output field",
            task=(
                f"Describe this field of the answer better. {GENERAL} The first of its aliases, "
                f"if there are any, is shown instead of its name.{_LEFT_OUT}"
            ),
            form=_OUTPUT_FIELD_FORM,
        ),
    )
}
"""The question about each kind of part that prompts have."""

REFLECT_ON_SECTION = PART_QUESTIONS[MetaPrompt.SECTION]
