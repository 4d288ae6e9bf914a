"""What a search may change, as its settings name it."""

from __future__ import annotations

import attrs

from promptgraft.errors import ConfigError
from promptgraft.parts.descriptors import PromptDescriptor, SectionPath
from promptgraft.prompt.template import Prompt
from promptgraft.search.config import RunConfig
from promptgraft.targets.parts.examples import (
    GenerationModule,
    TaskExampleModule,
    ToolExampleModule,
)
from promptgraft.targets.parts.instructions import OutputFieldModule, SectionModule, ToolModule
from promptgraft.targets.parts.part import PromptModule


def targeted(config: RunConfig, prompt: Prompt[object]) -> RunConfig:
    """Return settings that name what may change: every section with a text, if they name nothing.

    Raises:
        ConfigError: no section may change.
    """
    if config.names_targets:
        return config
    # A heading without a text of its own only holds others.
    free = tuple(
        section.path
        for section in prompt.descriptor.sections
        if section.overridable and prompt.section_body(section.path).strip()
    )
    if not free:
        raise ConfigError(
            f"target_section_paths: no section of `{prompt.descriptor.ns}/{prompt.descriptor.key}` "
            "has a text that may be overridden; name another target"
        )
    return attrs.evolve(config, target_section_paths=free)


def modules_of(config: RunConfig, descriptor: PromptDescriptor) -> tuple[PromptModule, ...]:
    """Return what may be mutated, in the order in which it takes its turn.

    Raises:
        ConfigError: nothing may be.
    """
    modules: tuple[PromptModule, ...] = (
        *map(SectionModule, config.target_section_paths),
        *map(ToolModule, config.target_tools),
        *map(OutputFieldModule, config.target_output_fields),
        *(ToolExampleModule(t.tool_name, t.example_index) for t in config.target_tool_examples),
        *map(TaskExampleModule, config.target_task_examples),
        *map(GenerationModule, _generation_paths(config, descriptor)),
    )
    if not modules:
        raise ConfigError(
            "enable_example_generation: the prompt has no section of task examples to write "
            "for; add a TaskExamplesSection or name another target"
        )
    return modules


def _generation_paths(config: RunConfig, descriptor: PromptDescriptor) -> tuple[SectionPath, ...]:
    if not config.enable_example_generation:
        return ()
    named = tuple(dict.fromkeys(path[:-1] for path in config.target_task_examples))
    return named or tuple(found.path for found in descriptor.containers if found.overridable)
