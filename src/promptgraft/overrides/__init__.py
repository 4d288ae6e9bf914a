"""What may replace the parts of a prompt, and the stores that keep it."""

from promptgraft.overrides.base_store import BasePromptOverridesStore
from promptgraft.overrides.diff import PartDiff, diff_bodies, diff_override, diff_revisions
from promptgraft.overrides.entries import (
    AddedTaskExample,
    OutputFieldOverride,
    RemovedTaskExample,
    SectionOverride,
    SectionPath,
    TaskExampleOverride,
    TaskStepOverride,
    ToolExampleOverride,
    ToolOverride,
)
from promptgraft.overrides.file_schema import file_schema
from promptgraft.overrides.local_store import LocalPromptOverridesStore
from promptgraft.overrides.memory_store import InMemoryPromptOverridesStore
from promptgraft.overrides.overlay_store import OverlayPromptOverridesStore
from promptgraft.overrides.parts import PromptDescriptor, SectionDescriptor
from promptgraft.overrides.store import (
    OverrideAddress,
    PromptOverridesStore,
    RevisionedPromptOverridesStore,
)
from promptgraft.overrides.types import (
    AppliedOverride,
    PromptLike,
    PromptOverride,
    Provenance,
    Revision,
    SkippedOverride,
    SkipReason,
)

__all__ = [
    "AddedTaskExample",
    "AppliedOverride",
    "BasePromptOverridesStore",
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
    "RevisionedPromptOverridesStore",
    "SectionDescriptor",
    "SectionOverride",
    "SectionPath",
    "SkipReason",
    "SkippedOverride",
    "TaskExampleOverride",
    "TaskStepOverride",
    "ToolExampleOverride",
    "ToolOverride",
    "diff_bodies",
    "diff_override",
    "diff_revisions",
    "file_schema",
]
