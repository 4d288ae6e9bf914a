"""What the digests in a run's fingerprint are made of, so that a message can name what differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from promptgraft.ground.functions import without_address
from promptgraft.ground.serde import HexDigest, digest
from promptgraft.journal.records import Contents
from promptgraft.overrides.parts.descriptors import show_path
from promptgraft.prompt.fields import options_of
from promptgraft.prompt.rendering import values_of
from promptgraft.prompt.schema import schema_of
from promptgraft.prompt.template import Prompt, PromptTemplate
from promptgraft.search.algorithm import Questions
from promptgraft.search.config import RunConfig
from promptgraft.search.targets import meta_prompt_digest, plain_or_repr
from promptgraft.targets.judging import metrics_of

_DIGITS = 8


def contents_of(
    prompts: Mapping[str, Prompt[object]],
    config: RunConfig,
    *,
    examples: Mapping[str, HexDigest],
    questions: Questions,
) -> Contents:
    """Return a short digest of each item by its name, for each digest of a fingerprint."""
    contents_by_kind: dict[str, dict[str, str]] = {
        "dataset": {
            f"example `{example.id}`": examples[example.id][:_DIGITS]
            for example in config.training_examples
        },
        "meta_prompts": {
            f"meta-prompt `{key}`": meta_prompt_digest(prompt)[:_DIGITS]
            for key, prompt in questions.items()
        },
        "metrics": {
            f"metric `{metric.name}`": _short(without_address(repr(metric)))
            for metric in metrics_of(config.feedback_fn)
        },
    }
    for group, make in (("prompt", _parts_of), ("bound", _values_of)):
        contents_by_kind[group] = {}
        for address, prompt in prompts.items():
            place = f" of {address}" if len(prompts) > 1 else ""
            contents_by_kind[group] |= {f"{name}{place}": value for name, value in make(prompt)}
    return {name: items for name, items in contents_by_kind.items() if items}


def _parts_of(prompt: Prompt[object]) -> Iterator[tuple[str, str]]:
    """Yield what ``template_digest`` covers, item by item."""
    template: PromptTemplate[object] = prompt.template
    descriptor, kind = template.descriptor, template.output_type
    for (path, section), part in zip(template.walked, descriptor.sections, strict=True):
        section_shown = [part.content_hash, section.title, section.summary]
        yield f"section `{show_path(path)}`", _short(section_shown)
    for tool in descriptor.tools:
        yield f"tool `{tool.name}`", tool.content_hash[:_DIGITS]
        for number, call in enumerate(tool.examples, 1):
            yield f"example {number} of tool `{tool.name}`", call.content_hash[:_DIGITS]
    for task in descriptor.task_examples:
        yield f"task example `{show_path(task.path)}`", task.content_hash[:_DIGITS]
    for field in descriptor.output_fields:
        yield f"output field `{field.field}`", field.content_hash[:_DIGITS]
    typed = None if kind in (None, str) else [options_of(kind), schema_of(kind)]
    yield "the output type", _short(typed)
    yield "a type of tools or answer", descriptor.interface_hash[:_DIGITS]
    yield "the setting `repair`", str(template.repair)


def _values_of(prompt: Prompt[object]) -> Iterator[tuple[str, str]]:
    for param in prompt.params:
        for name, value in values_of(param).items():
            yield f"the value of `{name}`", _short(plain_or_repr(value))


def _short(value: object) -> str:
    return digest(value)[:_DIGITS]
