"""The meta-prompts: what the reflection model is asked.

They are ordinary prompts of the namespace ``promptgraft/gepa``, so that users can read them,
and override them through a store like any other prompt. Everything that comes from prompts,
examples and models is bound as a value; nothing is ever formatted into a template.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import attrs

from promptgraft.optimizers.types import ModuleDescription, RolloutRecord
from promptgraft.prompt.sections import MarkdownSection
from promptgraft.prompt.syntax import Values
from promptgraft.prompt.template import PromptTemplate

META_NS = "promptgraft/gepa"
REPLY_TAG = "instruction"


@attrs.frozen(kw_only=True)
class ReflectionParams:
    """What the reflection prompt is bound to; all of it is shown as it stands.

    Attributes:
        part: name of the part that is to be improved.
        limits: what a reply must keep to, one rule a line.
        current: the present text, fenced.
        output: what answers must look like.
        neighbours: the other parts of the prompt, fenced.
        examples: the rollouts, with scores and feedback.
        problem: why the previous reply was refused; empty at the first attempt.
        previous: the previous reply, fenced; empty at the first attempt.
    """

    part: str
    limits: str
    current: str
    output: str
    neighbours: str
    examples: str
    problem: str = ""
    previous: str = ""


def _has_neighbours(values: Values) -> bool:
    return bool(values["neighbours"])


def _has_problem(values: Values) -> bool:
    return bool(values["problem"])


REFLECT_ON_SECTION: PromptTemplate[object] = PromptTemplate(
    ns=META_NS,
    key="reflect-section",
    name="Reflect on a section",
    sections=(
        MarkdownSection(
            title="Role",
            key="role",
            template=(
                "You improve one part of a prompt that a language model follows. You are shown the "
                "part, the rest of the prompt, and what the model did with it on real examples: "
                "what went in, what came out, the score, and why."
            ),
        ),
        MarkdownSection(
            title="Current text",
            key="current",
            template="The part is: $part\n\n$current",
        ),
        MarkdownSection(
            title="Rest of the prompt",
            key="neighbours",
            template="These parts stay as they are:\n\n$neighbours",
            enabled=_has_neighbours,
        ),
        MarkdownSection(title="Expected answers", key="output", template="$output"),
        MarkdownSection(title="Examples with feedback", key="examples", template="$examples"),
        MarkdownSection(
            title="Refused attempt",
            key="problem",
            template=(
                "Your previous reply could not be used: $problem\n\n$previous\n\n"
                "Mend that and reply again."
            ),
            enabled=_has_problem,
        ),
        MarkdownSection(
            title="Task",
            key="task",
            template=(
                "Write a better text for this part. Find what the failures have in common, and say "
                "it as general guidance that also holds for inputs you have not seen; do not copy "
                "single examples or their answers. Keep what already works.\n\n"
                "$limits\n\n"
                "Reply with the whole new text, and nothing else, in one fenced block that opens "
                "with ```instruction (use more backticks when the text holds some)."
            ),
        ),
    ),
)


def reflection_params(
    description: ModuleDescription,
    records: Sequence[RolloutRecord],
    *,
    problem: str = "",
    previous: str = "",
) -> ReflectionParams:
    """Return what the reflection prompt is bound to for one module and its rollouts."""
    return ReflectionParams(
        part=description.name,
        limits=_limits(description),
        current=fenced(description.text),
        output=description.output,
        neighbours="\n\n".join(
            f"{name}:\n\n{fenced(text)}" for name, text in description.neighbours
        ),
        examples="\n\n".join(_example(record) for record in records),
        problem=problem,
        previous=fenced(previous) if previous else "",
    )


def fenced(text: str) -> str:
    """Return ``text`` between fences that are longer than any run of backticks in it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


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


def _example(record: RolloutRecord) -> str:
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
    return "\n\n".join(parts)
