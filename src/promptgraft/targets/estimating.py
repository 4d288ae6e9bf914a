"""Estimates of how much rollouts send and receive, before the first of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

import attrs

from promptgraft.adapters.abilities import CHARS_PER_TOKEN, tokens_of_file
from promptgraft.errors import DataFormatError
from promptgraft.evals.types import Case
from promptgraft.ground.content import File
from promptgraft.ground.serde import Json, unstructure
from promptgraft.prompt.by_role import by_role
from promptgraft.prompt.rendered import RenderedPrompt
from promptgraft.prompt.schema import JsonObject
from promptgraft.prompt.sections import TaskExample, TaskExamplesSection
from promptgraft.prompt.template import PromptTemplate
from promptgraft.targets.types import GepaExample

FREE_TEXT = 600
"""Assumed characters of a free-text answer, if nothing else is known about its length."""

STEPS_CHARS = 6_000
"""Characters that a question shows of the steps of a rollout, at most."""

_SENTENCE = 100  # characters of an answer of which nothing is known
_STRING = 80  # characters of a text in an object
_ITEMS = 3  # of a list
_WORDS = {"boolean": 5, "integer": 3, "number": 5, "null": 4}
# Types may refer to themselves.
_DEEPEST = 6


@attrs.frozen(kw_only=True)
class Estimate:
    """How much a rollout sends and receives, as far as that is known in advance.

    Attributes:
        chars: characters of the longest current input of a rollout; None if not known.
        mean_chars: average characters of an input; None if not known.
        answer_chars: expected characters of an answer.
        answer_from: the basis of that estimate, in words; may be empty.
        rounds: expected rounds of tools in a rollout.
        leaves_traces: whether rollouts have traces, such as calls of tools.
        steps: steps that an answer can take, in graphs; 0 if there are none.
        prefix_chars: characters at the beginning of an input that are the same for all cases.
    """

    chars: int | None = None
    mean_chars: float | None = None
    answer_chars: float = FREE_TEXT
    answer_from: str = ""
    rounds: float = 0.0
    leaves_traces: bool = False
    steps: int = 0
    prefix_chars: int = 0


@attrs.frozen(kw_only=True)
class Sizes:
    """Lengths of what a question shows of a rollout and of a refused reply, in characters."""

    input: int
    answer: int
    trace: int
    feedback: int
    refused: int = 0


def sent_chars(rendered: RenderedPrompt[object], adapter: object = None) -> int:
    """Return the characters that a prompt sends: its text, and the schemas of tools and answer.

    Images and files count as texts that cost the model of ``adapter`` as many tokens.
    """
    schemas = [(tool.description, tool.params_schema) for tool in rendered.tools]
    return text_chars(rendered, adapter) + len(json.dumps([schemas, rendered.output_schema]))


def text_chars(rendered: RenderedPrompt[object], adapter: object = None) -> int:
    """Return the characters of a prompt, images and files included, without those of schemas."""
    files = file_chars(adapter, (piece for piece in rendered.content if isinstance(piece, File)))
    return len(rendered.text) + files


def file_chars(adapter: object, files: Iterable[File]) -> int:
    """Return the characters of texts that cost as many tokens as images and files do."""
    return sum(CHARS_PER_TOKEN * tokens_of_file(adapter, file) for file in files)


def estimated(
    template: PromptTemplate[object],
    lengths: Sequence[int],
    examples: Sequence[GepaExample],
    *,
    longest: RenderedPrompt[object],
    is_answer: bool,
    adapter: object = None,
) -> Estimate:
    """Return how much the rollouts of a prompt send and receive.

    Args:
        template: the prompt, whose worked examples show answers and calls of tools.
        lengths: the :func:`text_chars` of the prompt for each example.
        examples: the examples, with the expected answers.
        longest: the longest of these prompts.
        is_answer: whether ``expected`` is the whole answer, rather than a part of it.
        adapter: answers; knows what images cost.
    """
    examples_shown = [
        example
        for _, section in template.walked
        if isinstance(section, TaskExamplesSection)
        for example in section.examples
    ]
    beside = sent_chars(longest, adapter) - max(lengths)
    plain = (
        _plain(example.label.expected if isinstance(example.label, Case) else example.label)
        for example in examples
    )
    labels = [label for label in plain if label is not None]
    answer_chars, answer_from = _answer(
        longest.output_schema, examples_shown, labels, is_answer=is_answer
    )
    return Estimate(
        chars=max(lengths) + beside,
        mean_chars=fmean(lengths) + beside,
        answer_chars=answer_chars,
        answer_from=answer_from,
        rounds=_rounds(examples_shown, examples) if longest.tools else 0.0,
        leaves_traces=bool(template.descriptor.tools),
        prefix_chars=len(by_role(longest, say_format=False).system) + beside,
    )


def _answer(
    schema: JsonObject | None,
    worked_examples: Sequence[TaskExample],
    labels: Sequence[Json],
    *,
    is_answer: bool,
) -> tuple[float, str]:
    """Return the expected characters of an answer, and the basis of the estimate."""
    if worked_examples:
        lengths = (_length(_plain(example.outcome)) for example in worked_examples)
        return fmean(lengths), "as worked examples have them"
    if schema is not None:
        return chars_of_schema(schema, labels), "by their type and what is expected"
    if not labels:
        return FREE_TEXT, "a guess, nothing is expected; it is better after a run"
    mean = fmean(map(_length, labels))
    repeats = 2 * len({str(label) for label in labels}) <= len(labels)
    # Repeated labels are probably whole answers; others may be only a part of them.
    if is_answer or repeats or mean >= _SENTENCE:
        return mean, "as long as what is expected"
    return _SENTENCE, "a guess, with more in them than what is expected; it is better after a run"


def _rounds(worked_examples: Sequence[TaskExample], examples: Sequence[GepaExample]) -> float:
    """Return the tool calls that cases expect or worked examples show; 1 if neither does."""
    cases = [example.label for example in examples if isinstance(example.label, Case)]
    counts = [len(case.tools) for case in cases if case.tools is not None]
    return fmean(counts or [len(example.steps) for example in worked_examples] or [1])


def _plain(value: object) -> Json:
    try:
        return unstructure(value)
    except DataFormatError:
        return None


def _length(value: Json) -> int:
    return len(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def chars_of_schema(schema: JsonObject, labels: Sequence[Json] = ()) -> float:
    """Return the expected characters of data that fits a JSON Schema.

    Args:
        schema: the schema.
        labels: similar data, from which the lengths of fields are taken if it has them.
    """
    definitions = schema.get("$defs")
    named = definitions if isinstance(definitions, dict) else {}
    return _of_schema(schema, named, labels, _DEEPEST)


def _of_schema(
    schema: Json, named: Mapping[str, Json], labels: Sequence[Json], depth: int
) -> float:
    if not isinstance(schema, dict) or not depth:
        return _STRING
    if isinstance(reference := schema.get("$ref"), str):
        return _of_schema(named.get(reference.rpartition("/")[2]), named, labels, depth - 1)
    if isinstance(options := schema.get("enum"), list) and options:
        return 2 + fmean(_length(option) for option in options)
    for several in ("anyOf", "oneOf"):
        if isinstance(choices := schema.get(several), list) and choices:
            return fmean(_of_schema(choice, named, labels, depth - 1) for choice in choices)
    match schema.get("type"), schema.get("properties"):
        case "object", dict(properties):
            return 2 + sum(
                # Quotes, colon, comma and two spaces around each name.
                len(name) + 6 + (_known(name, labels) or _of_schema(body, named, (), depth - 1))
                for name, body in properties.items()
            )
        case "array", _:
            return 2 + _ITEMS * (2 + _of_schema(schema.get("items"), named, (), depth - 1))
        case str(kind), _ if kind in _WORDS:
            return _WORDS[kind]
    return _STRING


def _known(name: str, labels: Sequence[Json]) -> float:
    """Return the average characters of a field in labels; 0 if none has it."""
    return fmean(
        [_length(label[name]) for label in labels if isinstance(label, dict) and name in label]
        or [0]
    )
