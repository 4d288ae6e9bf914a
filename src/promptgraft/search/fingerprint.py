"""What decides the path of a run, apart from the answers; a journal belongs to one of it."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

import attrs

from promptgraft.adapters.base import adapter_identity
from promptgraft.evals.types import Case
from promptgraft.functions import described
from promptgraft.journal.base import FUNCTIONS
from promptgraft.overrides.codec import plain_entries
from promptgraft.prompt.template import Prompt
from promptgraft.search.algorithm import Questions
from promptgraft.search.config import RunConfig
from promptgraft.search.context import OptimizationContext
from promptgraft.search.settings import Settings
from promptgraft.search.targets import plain_or_repr, template_digest
from promptgraft.serde import HexDigest, Json, digest, unstructure
from promptgraft.targets.base import Identity
from promptgraft.targets.types import GepaExample

_PLAIN_SETTINGS = (
    "seed",
    "pareto_set_size",
    "max_task_examples_per_section",
    "max_example_chars",
    "max_trace_chars",
)


def fingerprint_of(
    context: OptimizationContext,
    config: RunConfig,
    target: Identity,
    *,
    examples: Mapping[str, HexDigest],
    questions: Questions,
) -> dict[str, Json]:
    """Return everything that decides the path of a run, by names that a user understands.

    Limits decide only where a run ends, so they are left out.
    """
    found: dict[str, Json] = {
        "algorithm": config.algorithm,
        "target": target.name,
        "task_model": target.model,
        "dataset": digest(
            [[example.id, examples[example.id]] for example in config.training_examples]
        ),
        **{name: getattr(config, name) for name in _PLAIN_SETTINGS},
        "data.shuffle": config.data.shuffle,
        **_plain("objectives", config.objectives, leave_out="pick"),
        **_plain("guards", config.guards),
        **config.decisive,
        "acceptance": described(config.acceptance),
        "reflection_model": adapter_identity(context.proposing_adapter),
        "meta_prompts": digest([_meta_prompt_digest(prompt) for prompt in questions.values()]),
    }
    for name, detail in target.details.items():
        found[f"target {name}" if name in found else name] = detail
    found[FUNCTIONS] = dict(target.functions)
    return found


def _plain(group: str, settings: Settings, *, leave_out: str = "") -> dict[str, Json]:
    values = attrs.asdict(settings, recurse=False).items()
    return {
        f"{group}.{name}": str(value) if isinstance(value, Decimal) else unstructure(value)
        for name, value in values
        if name != leave_out
    }


def example_digest(example: GepaExample) -> HexDigest:
    """Return the SHA-256 over parameters and label of an example."""
    params = [plain_or_repr(param) for param in example.params]
    label = example.label
    if isinstance(label, Case):
        label = attrs.evolve(label, origin="")  # where it stands in a file is not what it asks
    return digest([params, plain_or_repr(label), example.critical])


def _meta_prompt_digest(prompt: Prompt[object]) -> HexDigest:
    store = prompt.overrides_store
    override = store.resolve(prompt.descriptor) if store is not None else None
    return digest([template_digest(prompt.template), plain_entries(override) if override else None])
