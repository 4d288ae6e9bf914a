"""Building the target of a run from its subject, settings and context; its fingerprint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal

import attrs

from promptgraft.adapters.base import ProviderAdapter, adapter_identity
from promptgraft.errors import ConfigError, DataFormatError, StoreError
from promptgraft.evals.metrics.base import node_of
from promptgraft.evals.types import Case, Metric
from promptgraft.ground.functions import described, function_identity, without_address
from promptgraft.ground.serde import HexDigest, Json, did_you_mean, digest, unstructure
from promptgraft.ground.text import listed, raised
from promptgraft.journal.base import FUNCTIONS
from promptgraft.overrides.parts import plain_lists
from promptgraft.overrides.parts.descriptors import PromptDescriptor, SectionVisibility, show_path
from promptgraft.overrides.store import OverrideAddress
from promptgraft.overrides.types import PromptOverride
from promptgraft.overrides.winner_store import winner_store
from promptgraft.prompt.fields import options_of
from promptgraft.prompt.schema import schema_of
from promptgraft.prompt.template import Prompt, PromptTemplate
from promptgraft.runtime.session import Watch
from promptgraft.search.algorithm import Questions
from promptgraft.search.config import RunConfig
from promptgraft.search.context import OptimizationContext
from promptgraft.search.settings import PersistenceScope, Settings
from promptgraft.targets import part_kinds
from promptgraft.targets.base import Identity, Subject, Target
from promptgraft.targets.judging import MetricFeedback, metrics_of
from promptgraft.targets.part import PartOf, PromptPart
from promptgraft.targets.prompt_rollout import PromptRollout
from promptgraft.targets.prompt_target import PromptTarget
from promptgraft.targets.prompts import (
    Improvable,
    PromptSet,
    address_of,
    free_sections,
    name_of,
    prompts_of,
    without_stores,
)
from promptgraft.targets.texts import OwnCodeAdapter
from promptgraft.targets.types import GepaExample, Module


def targeted(config: RunConfig, subject: Improvable) -> RunConfig:
    """Return settings that name the parts that may change: by default every section with a text.

    A subject that is not a single prompt names them itself.

    Raises:
        ConfigError: no section may change, or the settings require a single prompt.
    """
    if isinstance(subject, (PromptSet, Target)):
        if config.names_targets:
            raise ConfigError(
                f"settings: `{name_of(subject)}` is no single prompt and says itself what may "
                "change; leave out the parts that they name"
            )
        if isinstance(subject, Target) and config.guards.max_prompt_chars is not None:
            raise ConfigError(
                f"guards.max_prompt_chars: `{name_of(subject)}` is no prompt; leave it out"
            )
        return config
    if config.names_targets:
        return config
    [prompt] = prompts_of(subject).values()
    free = free_sections(prompt)
    if not free:
        raise ConfigError(
            f"target_section_paths: no section of `{address_of(prompt)}` "
            "has a text that may be overridden; name another target"
        )
    return attrs.evolve(config, target_section_paths=free)


def target_for(
    subject: Improvable, config: RunConfig, context: OptimizationContext, watch: Watch
) -> Target:
    """Return the target of a run.

    Raises:
        UnknownPartError, ConfigError: settings name parts that the prompt does not have, or none;
            prompt and context name different overrides.
        StoreError: the store cannot be read.
    """
    if isinstance(subject, Target):
        # Imported here, because few runs improve a target of their author.
        from promptgraft.targets.own import OwnTarget

        return OwnTarget(subject)
    check_nodes(subject, metrics_of(config.feedback_fn))
    rollout = _rollout(subject, config, context, watch)
    prompts, adapter = rollout.prompts, rollout.adapter
    modules: tuple[Module, ...]
    if isinstance(subject, PromptSet):
        modules, details = subject.parts, subject.details
    else:
        [prompt] = prompts.values()
        modules, details = modules_of(config, prompt.descriptor), {}
    store = context.overrides_store
    keeps = config.persist and config.persist_scope is PersistenceScope.GLOBAL
    return PromptTarget(
        rollout=rollout,
        modules=modules,
        max_task_examples=config.max_task_examples_per_section,
        max_part_chars=config.guards.max_part_chars,
        max_prompt_chars=config.guards.max_prompt_chars,
        store=winner_store(store, prompts=len(prompts)) if keeps and store is not None else None,
        identity=Identity(
            name=name_of(subject),
            model=adapter_identity(adapter),
            details={**_details(prompts, modules, config), **details},
            functions=_functions(subject, prompts, config, adapter),
        ),
    )


def _rollout(
    subject: Prompt[object] | Subject | PromptSet,
    config: RunConfig,
    context: OptimizationContext,
    watch: Watch,
) -> PromptRollout:
    """Return what answers with the prompts of a subject, over the overrides in force."""
    prompts = prompts_of(subject)
    own_adapters = tuple(subject.adapters.values()) if isinstance(subject, PromptSet) else ()
    # If the subject has several, the first one gives the target its identity.
    adapter = own_adapters[0] if own_adapters and context.adapter is None else context.task_adapter
    rollout = PromptRollout(
        # Without their own stores, which are read here, and which may not be picklable.
        prompts=without_stores(prompts),
        base={at: _in_force(prompt, context) for at, prompt in prompts.items()},
        adapter=adapter,
        scoring=config.scoring,
        watch=watch,
    )
    if not isinstance(subject, PromptSet):
        # A single prompt is measured earlier, with the values of examples, when it is changed.
        return rollout
    return attrs.evolve(
        rollout,
        flow=subject.flow_on(context.adapter),
        max_steps=subject.max_steps,
        max_step_chars=subject.max_step_chars,
        max_prompt_chars=config.guards.max_prompt_chars,
    )


def watched(target: Target, watch: Watch) -> Target:
    """Return the target with another watch over its rollouts."""
    if not isinstance(target, PromptTarget):
        return target
    return attrs.evolve(target, rollout=attrs.evolve(target.rollout, watch=watch))


def check_nodes(subject: Improvable, metrics: Iterable[Metric]) -> None:
    """Refuse metrics that judge the output of an unknown node.

    Raises:
        ConfigError: naming metric and node.
    """
    node_names = subject.node_names if isinstance(subject, PromptSet) else ()
    for metric in metrics:
        node = node_of(metric)
        if node and node not in node_names:
            raise ConfigError(
                f"metric `{metric.name}`: `{name_of(subject)}` has no node {node!r}"
                f"{did_you_mean(node, list(node_names))}; nodes: {listed(node_names) or 'none'}"
            )


def _in_force(prompt: Prompt[object], context: OptimizationContext) -> PromptOverride:
    """Return the overrides in force: of the context's store, or else of the prompt's own."""
    store, tag = context.overrides_store, context.overrides_tag
    own_store = prompt.overrides_store
    if own_store is not None and store is None:
        store, tag = own_store, prompt.overrides_tag
    elif own_store is not None and (own_store is not store or prompt.overrides_tag != tag):
        raise ConfigError(
            f"overrides_store: `{address_of(prompt)}` has the tag `{prompt.overrides_tag}` of "
            f"a {type(own_store).__name__}, the context the tag `{tag}` of "
            f"{'the same store' if own_store is store else f'a {type(store).__name__}'}; "
            "give store and tag to one of them only"
        )
    descriptor = prompt.descriptor
    try:
        resolution = store.resolve(descriptor, tag) if store is not None else None
    except OSError as error:
        where = f"overrides_store ({type(store).__name__}), tag `{tag}`"
        raise StoreError(f"{where}: `resolve` raised {raised(error)}") from error
    return resolution or OverrideAddress(descriptor.ns, descriptor.key, tag).empty()


def _details(
    prompts: Mapping[str, Prompt[object]], modules: tuple[Module, ...], config: RunConfig
) -> dict[str, Json]:
    texts = {at: template_digest(prompt.template) for at, prompt in prompts.items()}
    bound = {at: digest(list(map(plain_or_repr, prompt.params))) for at, prompt in prompts.items()}
    judging = config.scoring.feedback_fn
    return {
        "prompt": digest(texts),
        "bound": digest(bound),
        "targets": list(_target_names(modules)),
        # The metrics with their options; the code of those that are the user's is a function.
        "metrics": judging.identity if isinstance(judging, MetricFeedback) else None,
    }


def _target_names(modules: Iterable[Module]) -> Iterator[str]:
    """Yield the names of modules, and the names of what one of them opens."""
    for module in modules:
        yield module.name
        part = module.part if isinstance(module, PartOf) else module
        if isinstance(part, part_kinds.VisibilityModule):
            yield from map(show_path, part.paths)


def _functions(
    subject: Improvable,
    prompts: Mapping[str, Prompt[object]],
    config: RunConfig,
    adapter: ProviderAdapter,
) -> dict[str, Json]:
    scoring = config.scoring
    judging = scoring.feedback_fn
    functions: dict[str, object] = {
        "example_formatter": scoring.example_formatter,
        "trace_formatter": scoring.trace_formatter,
    }
    if isinstance(subject, PromptSet):
        functions["run"] = subject.function
    elif isinstance(adapter, OwnCodeAdapter):
        functions |= adapter.own_functions
    for at, prompt in prompts.items():
        place = f" of {at}" if len(prompts) > 1 else ""
        for path, section in prompt.template.walked:
            functions[f"enabled of {show_path(path)}{place}"] = section.enabled
            functions |= {f"tool {tool.name}{place}": tool.handler for tool in section.tools}
    identities: dict[str, Json] = {
        name: function_identity(function)
        for name, function in functions.items()
        if function is not None
    }
    if isinstance(judging, MetricFeedback):
        return {**identities, **judging.functions}
    return {**identities, "feedback_fn": function_identity(judging)}


def modules_of(config: RunConfig, descriptor: PromptDescriptor) -> tuple[PromptPart, ...]:
    """Return the modules that may change, in the order in which they take turns.

    Raises:
        ConfigError: examples are to be written, and there is no section for them.
    """
    named = dict.fromkeys(path[:-1] for path in config.target_task_examples)
    free = (container.path for container in descriptor.containers if container.overridable)
    generated = tuple(named or free) if config.enable_example_generation else ()
    if config.enable_example_generation and not generated:
        raise ConfigError(
            "enable_example_generation: the prompt has no section of task examples to write "
            "for; add a TaskExamplesSection, or turn it off"
        )
    return (
        *map(part_kinds.SectionModule, config.target_section_paths),
        *map(part_kinds.SummaryModule, config.targets.summaries),
        *map(part_kinds.ToolModule, config.targets.tools),
        *map(part_kinds.OutputFieldModule, config.targets.output_fields),
        *(
            part_kinds.ToolExampleModule(t.tool_name, t.example_index)
            for t in config.target_tool_examples
        ),
        *map(part_kinds.TaskExampleModule, config.target_task_examples),
        *(
            [part_kinds.VisibilityModule(tuple(paths_shown))]
            if (paths_shown := config.targets.visibility)
            else ()
        ),
        *map(part_kinds.GenerationModule, generated),
    )


def template_digest(template: PromptTemplate[object]) -> HexDigest:
    """Return a digest of everything in a template that models see and that has a plain form."""
    descriptor = template.descriptor
    kind = template.output_type
    hidden = ", ".join(
        show_path(path)
        for path, visibility in descriptor.not_in_full.items()
        if visibility is SectionVisibility.HIDDEN
    )
    return digest(
        [
            [
                [
                    *(list(path), part.content_hash, section.title, section.summary),
                    # Only if one is set, for the same reason as below.
                    *([section.role, section.lead] if section.role or section.lead else ()),
                ]
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
            # Only if it is off, so that runs that began before there was this setting are the same.
            *([] if template.repair else ["no repair"]),
            *([f"hidden {hidden}"] if hidden else []),
        ]
    )


def plain_or_repr(value: object) -> Json:
    """Return a value as plain data, or else a string that identifies it.

    That is the ``repr``, or the source of a function.
    """
    try:
        return unstructure(value)
    except DataFormatError:
        # The address of an object differs between processes, and so would the fingerprint.
        return described(value) if callable(value) else without_address(repr(value))


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
    """Return everything that decides the path of a run, by names that users understand.

    Limits are left out, because they only decide where a run ends.
    """
    fields: dict[str, Json] = {
        "algorithm": config.algorithm,
        "target": target.name,
        "task_model": target.model,
        # Without `data.held_out`: it does not affect the search, and may change before a resume.
        "dataset": digest(
            [[example.id, examples[example.id]] for example in config.training_examples]
        ),
        **{name: getattr(config, name) for name in _PLAIN_SETTINGS},
        "data.shuffle": config.data.shuffle,
        # Only where they are set: runs that began before there were images are the same.
        **config.data.showing,
        # `pick` chooses among the candidates when the search is over.
        **_plain("objectives", config.objectives, leave_out="pick"),
        **_plain("guards", config.guards),
        **config.decisive,
        "acceptance": described(config.acceptance),
        "reflection_model": adapter_identity(context.proposing_adapter),
        **({} if context.teacher is None else {"teacher": dict(context.teacher.identity)}),
        "meta_prompts": digest([meta_prompt_digest(prompt) for prompt in questions.values()]),
    }
    for name, detail in target.details.items():
        fields[f"target {name}" if name in fields else name] = detail
    fields[FUNCTIONS] = dict(target.functions)
    return fields


def _plain(group: str, settings: Settings, *, leave_out: str = "") -> dict[str, Json]:
    values = attrs.asdict(settings, recurse=False).items()
    return {
        f"{group}.{name}": str(value) if isinstance(value, Decimal) else unstructure(value)
        for name, value in values
        if name != leave_out
    }


def example_digest(example: GepaExample) -> HexDigest:
    """Return the SHA-256 over parameters and label of an example."""
    params = [plain_or_repr(_unplaced(param)) for param in example.params]
    return digest([params, plain_or_repr(_unplaced(example.label)), example.critical])


def _unplaced(value: object) -> object:
    """Return a case without its position in a file, which does not affect its content."""
    return attrs.evolve(value, origin="") if isinstance(value, Case) else value


def meta_prompt_digest(prompt: Prompt[object]) -> HexDigest:
    """Return a digest of a question to the reflection model, with its present overrides."""
    store = prompt.overrides_store
    override = store.resolve(prompt.descriptor) if store is not None else None
    return digest(
        [template_digest(prompt.template), plain_lists(override.entries()) if override else None]
    )
