"""Overrides of the parts of a prompt, and the stores that keep them."""

from typing import TYPE_CHECKING

from promptgraft.ground.lazy import lazy_exports

if TYPE_CHECKING:
    from promptgraft.overrides.base_store import (
        BasePromptOverridesStore,
        Change,
        Changes,
        InMemoryPromptOverridesStore,
    )
    from promptgraft.overrides.codec import file_schema
    from promptgraft.overrides.differences import (
        PartDiff,
        diff_bodies,
        diff_override,
        diff_revisions,
    )
    from promptgraft.overrides.local_store import LocalPromptOverridesStore
    from promptgraft.overrides.overlay import OverlayPromptOverridesStore
    from promptgraft.overrides.parts.descriptors import (
        PromptDescriptor,
        PromptLike,
        SectionDescriptor,
        SectionPath,
        SectionVisibility,
    )
    from promptgraft.overrides.parts.entry import SkipReason
    from promptgraft.overrides.parts.replacements import (
        OutputFieldOverride,
        SectionOverride,
        SummaryOverride,
        ToolExampleOverride,
        ToolOverride,
        VisibilityOverride,
    )
    from promptgraft.overrides.parts.task_example import (
        AddedTaskExample,
        RemovedTaskExample,
        TaskExampleOverride,
        TaskStepOverride,
    )
    from promptgraft.overrides.revisioned import RevisionedStore
    from promptgraft.overrides.store import OverrideAddress, PromptOverridesStore
    from promptgraft.overrides.types import (
        AppliedOverride,
        PromptOverride,
        Provenance,
        Revision,
        SkippedOverride,
    )

__all__ = [
    "AddedTaskExample",
    "AppliedOverride",
    "BasePromptOverridesStore",
    "Change",
    "Changes",
    "InMemoryPromptOverridesStore",
    "LocalPromptOverridesStore",
    "OutputFieldOverride",
    "OverlayPromptOverridesStore",
    "OverrideAddress",
    "PartDiff",
    "PromptDescriptor",
    "PromptLike",
    "PromptOverride",
    "PromptOverridesStore",
    "Provenance",
    "RemovedTaskExample",
    "Revision",
    "RevisionedStore",
    "SectionDescriptor",
    "SectionOverride",
    "SectionPath",
    "SectionVisibility",
    "SkipReason",
    "SkippedOverride",
    "SummaryOverride",
    "TaskExampleOverride",
    "TaskStepOverride",
    "ToolExampleOverride",
    "ToolOverride",
    "VisibilityOverride",
    "diff_bodies",
    "diff_override",
    "diff_revisions",
    "file_schema",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__)
