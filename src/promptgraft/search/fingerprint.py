"""What decides the path of a run, apart from the answers; a journal belongs to one of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import attrs

from promptgraft.errors import DataFormatError
from promptgraft.evals.types import Case
from promptgraft.overrides.documents import plain_entries
from promptgraft.prompt.fields import options_of
from promptgraft.prompt.schema import schema_of
from promptgraft.prompt.template import Prompt, PromptTemplate
from promptgraft.search.algorithm import Questions
from promptgraft.search.config import RunConfig
from promptgraft.search.context import OptimizationContext
from promptgraft.search.targets import modules_of
from promptgraft.serde import HexDigest, Json, digest, unstructure
from promptgraft.targets.types import GepaExample

_PLAIN_SETTINGS = (
    "seed",
    "shuffle_examples",
    "pareto_set_size",
    "perfect_score",
    "max_task_examples_per_section",
    "on_error",
    "frontier_type",
    "max_prompt_chars",
    "max_example_chars",
    "max_trace_chars",
    "max_part_chars",
)

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def fingerprint_of(
    context: OptimizationContext,
    config: RunConfig,
    prompt: Prompt[object],
    *,
    examples: Mapping[str, HexDigest],
    questions: Questions,
) -> dict[str, Json]:
    """Return everything that decides the path of a run, by names that a user understands.

    Limits decide only where a run ends, so they are left out.
    """
    descriptor = prompt.descriptor
    return {
        "algorithm": config.algorithm,
        "prompt": _template_digest(prompt.template),
        "prompt_name": f"{descriptor.ns}/{descriptor.key}",
        "bound": digest([_plain_or_repr(param) for param in prompt.params]),
        "dataset": digest(
            [[example.id, examples[example.id]] for example in config.training_examples]
        ),
        "targets": [module.name for module in modules_of(config, descriptor)],
        **{name: getattr(config, name) for name in _PLAIN_SETTINGS},
        **config.decisive,
        "acceptance": _ADDRESS.sub("", repr(config.acceptance)),
        "weights": dict(config.weights),
        "required_objectives": dict(config.required_objectives),
        "task_model": context.task_adapter.identity,
        "reflection_model": context.proposing_adapter.identity,
        "meta_prompts": digest([_meta_prompt_digest(prompt) for prompt in questions.values()]),
        "feedback_fn": _name_of(config.feedback_fn),
        "example_formatter": _name_of(config.scoring.example_formatter),
        "trace_formatter": _name_of(config.scoring.trace_formatter),
    }


def example_digest(example: GepaExample) -> HexDigest:
    """Return the SHA-256 over parameters and label of an example."""
    params = [_plain_or_repr(param) for param in example.params]
    label = example.label
    if isinstance(label, Case):
        label = attrs.evolve(label, origin="")  # where it stands in a file is not what it asks
    return digest([params, _plain_or_repr(label), example.critical])


def _template_digest(template: PromptTemplate[object]) -> HexDigest:
    """Digest everything of a template that a model is shown and that can be digested."""
    descriptor = template.descriptor
    kind = template.output_type
    return digest(
        [
            [
                [list(path), part.content_hash, section.title, section.summary]
                for (path, section), part in zip(template.walked, descriptor.sections, strict=True)
            ],
            [
                [tool.name, tool.content_hash, [call.content_hash for call in tool.examples]]
                for tool in descriptor.tools
            ],
            [[list(task.path), task.content_hash] for task in descriptor.task_examples],
            descriptor.interface_hash,
            None if kind in (None, str) else [options_of(kind), schema_of(kind)],
            [field.content_hash for field in descriptor.output_fields],
        ]
    )


def _meta_prompt_digest(prompt: Prompt[object]) -> HexDigest:
    store = prompt.overrides_store
    override = store.resolve(prompt.descriptor) if store is not None else None
    return digest(
        [_template_digest(prompt.template), plain_entries(override) if override else None]
    )


def _plain_or_repr(value: object) -> Json:
    """Labels may be anything; those without a plain form are told apart by their ``repr``."""
    try:
        return unstructure(value)
    except DataFormatError:
        return _ADDRESS.sub("", repr(value))


def _name_of(function: Callable[..., object]) -> str:
    identity: object = getattr(function, "identity", None)
    if isinstance(identity, str):
        return identity
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{function.__module__}.{name}"
