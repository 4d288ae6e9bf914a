"""Targets and candidates: what is improved, evaluated and stored."""

from typing import TYPE_CHECKING

from promptgraft.ground.lazy import lazy_exports

if TYPE_CHECKING:
    from promptgraft.targets.base import (
        Identity,
        InvalidProposalError,
        RejectionReason,
        Subject,
        Target,
        TextTarget,
    )
    from promptgraft.targets.estimating import Estimate
    from promptgraft.targets.formatting import default_example_formatter, default_trace_formatter
    from promptgraft.targets.judging import examples_from, feedback_from
    from promptgraft.targets.part import PartOf, PromptModule, PromptPart, View
    from promptgraft.targets.part_kinds import (
        GenerationModule,
        OutputFieldModule,
        SectionModule,
        SummaryModule,
        TaskExampleModule,
        ToolExampleModule,
        ToolModule,
        VisibilityModule,
    )
    from promptgraft.targets.prompt_rollout import Flow, PromptRollout, Scoring
    from promptgraft.targets.prompt_target import PromptTarget
    from promptgraft.targets.prompts import Ask, Prompts
    from promptgraft.targets.texts import Texts
    from promptgraft.targets.types import (
        Candidate,
        Change,
        Module,
        ModuleDescription,
        RolloutRecord,
    )

__all__ = [
    "Ask",
    "Candidate",
    "Change",
    "Estimate",
    "Flow",
    "GenerationModule",
    "Identity",
    "InvalidProposalError",
    "Module",
    "ModuleDescription",
    "OutputFieldModule",
    "PartOf",
    "PromptModule",
    "PromptPart",
    "PromptRollout",
    "PromptTarget",
    "Prompts",
    "RejectionReason",
    "RolloutRecord",
    "Scoring",
    "SectionModule",
    "Subject",
    "SummaryModule",
    "Target",
    "TaskExampleModule",
    "TextTarget",
    "Texts",
    "ToolExampleModule",
    "ToolModule",
    "View",
    "VisibilityModule",
    "default_example_formatter",
    "default_trace_formatter",
    "examples_from",
    "feedback_from",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__)
