"""What a search may change, as its settings name it."""

from __future__ import annotations

from promptgraft.algorithms.gepa.config import GepaConfig
from promptgraft.errors import ConfigError
from promptgraft.overrides.entries import SectionPath
from promptgraft.overrides.parts import PromptDescriptor
from promptgraft.targets.modules import (
    GenerationModule,
    Module,
    OutputFieldModule,
    SectionModule,
    TaskExampleModule,
    ToolExampleModule,
    ToolModule,
)


def modules_of(config: GepaConfig, descriptor: PromptDescriptor) -> tuple[Module, ...]:
    """Return what may be mutated, in the order in which it takes its turn.

    Raises:
        ConfigError: nothing may be.
    """
    modules: tuple[Module, ...] = (
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


def _generation_paths(config: GepaConfig, descriptor: PromptDescriptor) -> tuple[SectionPath, ...]:
    if not config.enable_example_generation:
        return ()
    named = tuple(dict.fromkeys(path[:-1] for path in config.target_task_examples))
    return named or tuple(found.path for found in descriptor.containers if found.overridable)
