"""The meta-prompts: what the reflection model is asked.

They are ordinary prompts of the namespace ``promptgraft/gepa``, so that users can read them,
and override them through a store like any other prompt. Everything that comes from prompts,
examples and models is bound as a value; nothing is ever formatted into a template.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

import attrs

from promptgraft.frozenmap import FrozenMap
from promptgraft.prompt.sections import MarkdownSection
from promptgraft.prompt.syntax import Values
from promptgraft.prompt.template import Prompt, PromptTemplate
from promptgraft.search.asks import Question
from promptgraft.search.reply import JSON_TAG, TEXT_TAG
from promptgraft.serde import digest
from promptgraft.targets.base import InvalidProposalError
from promptgraft.targets.formatting import clip
from promptgraft.targets.types import MetaPrompt, ModuleDescription, RolloutRecord
from promptgraft.text import fenced

META_NS = "promptgraft/gepa"

_MAX_PROBLEM_CHARS = 2_000
_WRAPPING = 1_000
"""How much longer than its text a usable reply may be: its fence, and words around it."""


@attrs.frozen(kw_only=True)
class ReflectionParams:
    """What a meta-prompt is bound to; all of it is shown as it stands.

    Attributes:
        part: name of the part that is to be improved.
        limits: what a reply must keep to, one rule a line.
        current: the present text, fenced; empty for a part that has none to improve.
        schema: types that the reply must fit; empty for free text.
        siblings: other examples of the same kind, fenced.
        output: what answers must look like.
        neighbours: the other parts of the prompt, fenced.
        examples: the rollouts, with scores and feedback.
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
    problem: str = ""
    previous: str = ""


def _has(name: str) -> Callable[[Values], bool]:
    return functools.partial(_is_given, name)


def _is_given(name: str, values: Values) -> bool:
    return bool(values[name])


_REPLY = (
    "Reply with the whole new text, and nothing else, in one fenced block that opens with "
    "```instruction (use more backticks when the text holds some)."
)
_REPLY_AS_JSON = (
    "Reply with one fenced block, and nothing else. It holds one JSON object of this form:\n\n"
    "````\n```json\n$form\n```\n````"
)
_LEFT_OUT = " Leave out what may stay as it is."
_GENERAL = (
    "Find what the failures have in common, and say it as general guidance that also holds for "
    "inputs you have not seen; do not copy single examples or their answers. Keep what already "
    "works."
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


def meta_prompt(key: str, *, name: str, task: str, form: str = "") -> PromptTemplate[object]:
    """Return the question about parts of a kind.

    Args:
        key: its key, which the descriptions of such parts have as their ``meta_prompt``.
        name: what people call it.
        task: what the reflector is asked to do.
        form: the form of the JSON object that it replies with, where descriptions are ``as_json``;
            empty where the reply is the text itself.
    """
    reply = _REPLY_AS_JSON.replace("$form", form) if form else _REPLY
    return PromptTemplate(
        ns=META_NS,
        key=str(key),
        name=name,
        sections=(
            MarkdownSection(title="Role", key="role", template=ROLE),
            MarkdownSection(
                title="Current text", key="current", template="The part is: $part\n\n$current"
            ),
            MarkdownSection(
                title="Types", key="schema", template="$schema", enabled=_has("schema")
            ),
            MarkdownSection(
                title="Other examples",
                key="siblings",
                template="These are there already:\n\n$siblings",
                enabled=_has("siblings"),
            ),
            MarkdownSection(
                title="Rest of the prompt",
                key="neighbours",
                template="These parts stay as they are:\n\n$neighbours",
                enabled=_has("neighbours"),
            ),
            MarkdownSection(
                title="Expected answers", key="output", template="$output", enabled=_has("output")
            ),
            MarkdownSection(title="Examples with feedback", key="examples", template="$examples"),
            MarkdownSection(
                title="Refused attempt",
                key="problem",
                template=(
                    "Your previous reply could not be used: $problem\n\n$previous\n\n"
                    "Mend that and reply again."
                ),
                enabled=_has("problem"),
            ),
            MarkdownSection(title="Task", key="task", template=f"{task}\n\n$limits\n\n{reply}"),
        ),
    )


META_PROMPTS: Mapping[str, PromptTemplate[object]] = {
    template.key: template
    for template in (
        meta_prompt(
            MetaPrompt.SECTION,
            name="Reflect on a section",
            task=f"Write a better text for this part. {_GENERAL}",
        ),
        meta_prompt(
            MetaPrompt.TOOL,
            name="Reflect on a tool",
            task=(
                "Describe this tool and its parameters better, so that the model knows when to use "
                f"it and what to pass. {_GENERAL}{_LEFT_OUT}"
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
                f"Describe this field of the answer better. {_GENERAL} The first of its aliases, "
                f"if there are any, is shown instead of its name.{_LEFT_OUT}"
            ),
            form=_OUTPUT_FIELD_FORM,
        ),
    )
}
"""The meta-prompt for each kind of part that prompts have."""

REFLECT_ON_SECTION = META_PROMPTS[MetaPrompt.SECTION]


def reply_tag(description: ModuleDescription) -> str:
    """Return the word that the block of a reply about a module opens with."""
    return JSON_TAG if description.as_json else TEXT_TAG


_NONE: Mapping[str, Sequence[RolloutRecord]] = FrozenMap()


def reflection_params(
    description: ModuleDescription,
    records: Sequence[RolloutRecord],
    *,
    earlier: Mapping[str, Sequence[RolloutRecord]] = _NONE,
    problem: str = "",
    previous: str = "",
) -> ReflectionParams:
    """Return what the reflection prompt is bound to for one module and its rollouts.

    Args:
        description: the module.
        records: its rollouts.
        earlier: better answers to the same examples, by example.
        problem: why the previous reply could not be used; empty when there is none.
        previous: that reply.
    """
    return ReflectionParams(
        part=description.name,
        limits=_limits(description),
        current=_current(description),
        schema=description.schema,
        siblings="\n\n".join(fenced(text) for text in description.siblings),
        output=description.output,
        neighbours="\n\n".join(
            f"{name}:\n\n{fenced(text)}" for name, text in description.neighbours
        ),
        examples="\n\n".join(
            _example(record, earlier.get(record.example_id, ())) for record in records
        ),
        problem=clip(problem, _MAX_PROBLEM_CHARS, around=" "),
        previous=fenced(clip(previous, description.max_chars + _WRAPPING)) if previous else "",
    )


def _current(description: ModuleDescription) -> str:
    if description.text:
        return fenced(description.text)
    return "" if description.is_new else "It has no text yet."


def _limits(description: ModuleDescription) -> str:
    rules = [f"- Use at most {description.max_chars} characters."]
    if description.placeholders:
        markers = ", ".join(description.placeholders)
        rules.append(
            f"- Keep each of these placeholders, spelled exactly so: {markers}. "
            "They are replaced by values later. Do not invent others."
        )
    rules.extend(
        f"- {marker} stands for `{source}`." for marker, source in description.opaque.items()
    )
    return "\n".join(rules)


def _example(record: RolloutRecord, earlier: Sequence[RolloutRecord]) -> str:
    score = "none" if record.score is None else f"{record.score:g}"
    parts = [
        f"### Example {' '.join(record.example_id.split())}",
        f"**Score:** {score}",
        f"**Input:**\n\n{fenced(record.inputs_repr)}",
        f"**Output:**\n\n{fenced(record.output_repr)}",
    ]
    if record.tool_trace_repr:
        parts.append(f"**Trace:**\n\n{fenced(record.tool_trace_repr)}")
    if record.feedback is not None:
        parts.append(f"**Feedback:**\n\n{fenced(record.feedback.feedback)}")
        if record.feedback.eval_trace:
            parts.append(f"**Evaluation log:**\n\n{fenced(record.feedback.eval_trace)}")
    parts += [
        f"**A better answer of another version** (score {better.score:g}):\n\n"
        f"{fenced(better.output_repr)}"
        for better in earlier
    ]
    return "\n\n".join(parts)


MetaPrompts = Mapping[str, Prompt[object]]
"""The question for each kind of part."""


def question_on(
    position: str,
    description: ModuleDescription,
    records: Sequence[RolloutRecord],
    *,
    meta_prompts: MetaPrompts,
    earlier: Mapping[str, Sequence[RolloutRecord]],
    refused: tuple[InvalidProposalError, str] | None = None,
) -> Question:
    """Return the question that asks for a new text of a module.

    Args:
        position: where in the run.
        description: the module.
        records: its rollouts; unscored ones are left out.
        meta_prompts: the questions.
        earlier: better answers to the same examples, by example.
        refused: why the previous reply could not be used, and that reply.
    """
    problem, previous = ("", "") if refused is None else (refused[0].detail, refused[1])
    params = reflection_params(
        description,
        [record for record in records if record.feedback is not None],
        earlier=earlier,
        problem=problem,
        previous=previous,
    )
    # The meta-prompts are in the fingerprint, so nothing has to be rendered for a replay.
    return Question(
        position=position,
        prompt=meta_prompts[description.meta_prompt].bind(params),
        digest=digest([description.meta_prompt, params]),
    )
