"""The question to the reflection model about one module, its rollouts and their images."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Self, TypeAlias

import attrs

from promptgraft.adapters.abilities import sees_images
from promptgraft.adapters.base import ProviderAdapter
from promptgraft.errors import DataFormatError
from promptgraft.ground.content import Image, files_in, names_in
from promptgraft.ground.serde import HexDigest, digest_json, parse_json
from promptgraft.ground.text import clip, counted, fenced
from promptgraft.prompt.template import Prompt
from promptgraft.search.asks import Question
from promptgraft.search.settings import Data
from promptgraft.targets.estimating import STEPS_CHARS
from promptgraft.targets.evidence import Evidence
from promptgraft.targets.formatting import fenced_part, in_one_line
from promptgraft.targets.part_questions import ReflectionParams
from promptgraft.targets.text_lines import HOW_TO_EDIT, LONG_CHARS
from promptgraft.targets.types import GepaExample, ModuleDescription, RolloutRecord, Written

_MAX_PROBLEM_CHARS = 2_000
_SHORT_CHARS = 80  # of an answer that stands in the outline of steps
_MOST_TEXTS = 10  # of steps; the first and the last ones say most
_AROUND_CHARS = 60
"""The words and the fence around a text of a step."""
_OWN_STEPS, _STEP_CHARS = 3, 771
"""Of digests."""
_IN_SHORT = ("more", "kept", "tried")
"""What follows from answers that the run has recorded before."""
_WRAPPING = 1_000
"""How much longer than its text a usable reply may be: a fence, and words around it."""


Refusal: TypeAlias = tuple[str, str]
"""Why a reply could not be used, and the reply."""

NOT_REFUSED: Refusal = ("", "")
"""At the first attempt."""

_NO_EVIDENCE = Evidence()


def reflection_params(
    description: ModuleDescription,
    records: Sequence[RolloutRecord],
    *,
    evidence: Evidence = _NO_EVIDENCE,
    refused: Refusal = NOT_REFUSED,
    for_digest: bool = False,
) -> ReflectionParams:
    """Return the parameters of the meta-prompt for one module and its rollouts.

    Args:
        description: the module.
        records: its rollouts; unscored ones are left out.
        evidence: what else the question shows.
        refused: why the previous reply could not be used, and that reply.
        for_digest: with what journals have digested of steps, answers and examples of tools.
    """
    if for_digest:
        description = attrs.evolve(description, written=Written())
    problem, previous = refused
    is_long = len(description.text) >= LONG_CHARS and not description.as_json
    untold = "" if description.is_new else "It has no text yet."
    place = "It is added to this section:\n\n" if description.is_new and not for_digest else ""
    answers = None if for_digest else description.answers
    return ReflectionParams(
        part=in_one_line(description.name),
        limits=limits_of(description, evidence.copying),
        current=place + fenced(description.text) if description.text else untold,
        schema=fenced_part(description.schema),
        siblings="\n\n".join(map(fenced_part, description.siblings)),
        output=fenced_part(description.output if answers is None else answers),
        neighbours="\n\n".join(
            f"{in_one_line(name)}"
            f"{', which the model was not shown' if name in evidence.unseen else ''}:\n\n"
            f"{fenced_part(description.written.beside.get(name, text))}"
            for name, text in description.neighbours
            if not (for_digest and name.startswith("tool example "))
        ),
        examples=examples_of(
            records, {description.name: "this part"}, evidence, for_digest=for_digest
        ),
        edits=HOW_TO_EDIT if is_long else "",
        more=evidence.failures,
        kept=evidence.kept,
        tried=evidence.tried,
        problem=in_one_line(problem, _MAX_PROBLEM_CHARS),
        previous=fenced(clip(previous, description.max_chars + _WRAPPING)) if previous else "",
    )


def limits_of(description: ModuleDescription, copying: str = "") -> str:
    """Return the limits that a new text of a module must respect, one rule per line."""
    rules = [f"- Use at most {description.max_chars} characters."]
    if description.placeholders:
        markers = ", ".join(description.placeholders)
        replaced = "by values later"
        if description.written.text:
            replaced = "later, by values or by what is said below"
        rules.append(
            f"- Keep each of these placeholders, spelled exactly so: {markers}. "
            f"They are replaced {replaced}. Do not invent others."
        )
    for marker, source in description.opaque.items():
        text = clip(source, _MAX_PROBLEM_CHARS)
        inline = text.isprintable() and "`" not in text
        space = "" if description.written.text else " "
        rules.append(
            f"- {marker} stands for" + (f" `{text}`." if inline else f"{space}:\n\n{fenced(text)}")
        )
    if description.written.definitions:
        text = fenced(clip(description.written.definitions, _MAX_PROBLEM_CHARS))
        rules.append(f"- These definitions come before the text and stay:\n\n{text}")
    return "\n".join([*rules, f"- {copying}"] if copying else rules)


def examples_of(
    records: Sequence[RolloutRecord],
    parts: Mapping[str, str],
    evidence: Evidence,
    *,
    for_digest: bool = False,
) -> str:
    """Return scored rollouts as a question shows them, which refers to ``parts`` by their names.

    The other arguments are those of :func:`reflection_params`.
    """
    texts: list[str] = []
    for record in records:
        if (feedback := record.feedback) is None:
            continue
        texts += [f"### Example {in_one_line(record.example_id)}", f"**Score:** {feedback.score:g}"]
        if record.example_id in evidence.objectives:
            texts.append(f"**Objectives:** {evidence.objectives[record.example_id]}")
        texts.append(f"**Input:**\n\n{fenced(record.inputs_repr)}")
        texts.append(f"**Output:**\n\n{fenced(record.output_repr)}")
        if record.tool_trace_repr:
            texts.append(f"**Trace:**\n\n{fenced(record.tool_trace_repr)}")
        if len(record.steps) > (1 if for_digest else 0):
            steps = (_steps_of_digest if for_digest else _steps)(record, parts)
            texts.append(f"**Steps:**\n\n{steps}")
        texts.append(f"**Feedback:**\n\n{fenced(feedback.feedback)}")
        if feedback.eval_trace:
            is_trace = feedback.eval_trace == record.tool_trace_repr and not for_digest
            log = " the same as the trace" if is_trace else f"\n\n{fenced(feedback.eval_trace)}"
            texts.append(f"**Evaluation log:**{log}")
        texts += [
            f"**A better answer of another version** (score {better.score:g}):\n\n"
            f"{fenced(better.output_repr)}"
            for better in evidence.earlier.get(record.example_id, ())
        ]
    return "\n\n".join(texts)


def _steps(record: RolloutRecord, parts: Mapping[str, str]) -> str:
    """Return an outline of steps, and what those that ``parts`` made or that failed were given.

    Short answers stand in the outline, and nothing is shown twice, so that all steps have room.
    """
    outline: list[str] = []
    texts: list[tuple[str, str]] = []
    already_shown = {_value(record.inputs_repr): "the input"}
    for step in record.steps:
        made_with = [parts[part] for part in step.parts if part in parts]
        is_told = bool(made_with or step.error)
        source = already_shown.get(_value(step.input), "") if step.input else ""
        answered = _answered(step.output, record.output_repr)
        notes = {
            "after": ", ".join(step.after),
            "made with": ", ".join(made_with),
            "given": source if is_told else "",
            "answered": answered,
        }
        line = [f"- step {step.id}: {step.node}"]
        line += [f"{word} {note}" for word, note in notes.items() if note]
        outline.append(", ".join([*line, *(["failed"] if step.error else [])]))
        texts_of_step = {
            "was given": "" if source else step.input,
            "failed": step.error,
            "answered": "" if answered else step.output,
        }
        if is_told:
            texts += [
                (f"Step {step.id} {word}:", text) for word, text in texts_of_step.items() if text
            ]
            already_shown.setdefault(_value(step.input), f"the input of step {step.id}")
    if (left_out := len(texts) - _MOST_TEXTS) > 0:
        note = f"[… {counted(left_out, 'text')} of steps between left out …]"
        texts = [*texts[: _MOST_TEXTS // 2], (note, ""), *texts[-_MOST_TEXTS // 2 :]]
    shown = clip("\n".join(outline), STEPS_CHARS // 3)
    limit = (STEPS_CHARS - len(shown)) // max(len(texts), 1) - _AROUND_CHARS
    blocks = [f"{head}\n\n{fenced(clip(text, limit))}" if text else head for head, text in texts]
    return "\n\n".join([shown, *blocks])


def _value(text: str) -> str:
    """Return the text of an input that is shown as JSON, alone or as its only parameter."""
    try:
        value = parse_json(text, where="step")
    except DataFormatError:
        return text
    if isinstance(value, dict) and len(value) == 1:
        [value] = value.values()
    return value if isinstance(value, str) else text


def _answered(output: str, whole: str) -> str:
    """Return what a step answered, if it needs no block of its own; else an empty text."""
    if output == whole:
        return "the output" if whole else ""
    is_short = len(output) <= _SHORT_CHARS and output.isprintable() and "`" not in output
    return f"`{output}`" if output and is_short else ""


def _steps_of_digest(record: RolloutRecord, parts: Mapping[str, str]) -> str:
    """Return the steps as questions once showed them, which is what journals have digested."""
    made = [(step, [parts[part] for part in step.parts if part in parts]) for step in record.steps]
    outline: list[str] = []
    for step, made_with in made:
        notes = {"after": step.after, "made with": made_with}
        told = [f"{word} {', '.join(names)}" for word, names in notes.items() if names]
        outline.append(", ".join([f"- step {step.id}: {step.node}", *told]))
    shown_steps = [
        f"Step {step.id} was given:\n\n{fenced(clip(step.input, _STEP_CHARS))}\n\n"
        + (f"It failed: {in_one_line(step.error)}" if step.error else "")
        + (f"It answered:\n\n{fenced(clip(step.output, _STEP_CHARS))}" if step.output else "")
        for step, made_with in made
        if made_with
    ]
    return "\n\n".join([clip("\n".join(outline), _STEP_CHARS), *shown_steps[-_OWN_STEPS:]])


MetaPrompts = Mapping[str, Prompt[object]]
"""The question for each kind of part."""


def question_on(
    position: str,
    description: ModuleDescription,
    records: Sequence[RolloutRecord],
    *,
    meta_prompts: MetaPrompts,
    evidence: Evidence = _NO_EVIDENCE,
    refused: Refusal = NOT_REFUSED,
) -> Question:
    """Return the question that asks for a new text of a module, by its ``position`` in the run.

    ``meta_prompts`` are by key; the other arguments are those of :func:`reflection_params`.
    """
    key = description.meta_prompt
    # The fingerprint covers the meta-prompts, so the digest needs no rendering during a replay. It
    # also covers what answers and objectives follow from, and all steps: journals that were written
    # before they were shown stay valid.
    digested = reflection_params(
        description,
        records,
        evidence=attrs.evolve(evidence, objectives={}, unseen=(), copying=""),
        refused=refused,
        for_digest=True,
    )
    params = reflection_params(description, records, evidence=evidence, refused=refused)
    return Question(
        position=position,
        prompt=meta_prompts[key].bind(params),
        digest=question_digest(key, digested),
        records=records,
    )


def question_digest(key: str, params: ReflectionParams) -> HexDigest:
    """Return the digest of a question: of its key, and of all that it does not show in short."""
    values = attrs.asdict(params, recurse=False)
    return digest_json([key, {name: values[name] for name in values if name not in _IN_SHORT}])


@attrs.frozen
class ShownImages:
    """Puts images into questions, in place of their names; digests keep the names.

    Attributes:
        images: those that may be shown, by name.
        most: how many one question shows.
    """

    images: Mapping[str, Image] = attrs.field(repr=False)
    most: int

    @classmethod
    def of(cls, examples: Iterable[GepaExample], data: Data, model: ProviderAdapter) -> Self | None:
        """Return the images that are small enough; None without any, and for a model that is blind.

        A model counts as blind unless it is known to see.
        """
        if not sees_images(model) or not data.shown_images:
            return None
        files = files_in([example.params for example in examples])
        largest = data.shown_image_kb * 1024
        images = {
            str(file): file for file in files if isinstance(file, Image) and file.size <= largest
        }
        return cls(images, data.shown_images) if images else None

    def of_example(self, example: GepaExample) -> list[Image]:
        """Return the images of an example that a question shows."""
        named = (self.images.get(str(file)) for file in files_in(example.params))
        return [image for image in named if image is not None][: self.most]

    def in_question(self, question: Question) -> Prompt[object]:
        """Return the prompt of a question with the images that it shows."""
        named = names_in(question.prompt.render().text)
        # Those of failures first: what went wrong cannot be told from the name of a photo.
        scores = {
            name: record.feedback.score
            for record in question.records
            if record.feedback is not None
            for name in names_in(record.inputs_repr)
        }
        order = sorted(dict.fromkeys(named), key=lambda name: scores.get(name, math.inf))
        images = [self.images[name] for name in order if name in self.images]
        return attrs.evolve(question.prompt, files=tuple(images[: self.most]))
