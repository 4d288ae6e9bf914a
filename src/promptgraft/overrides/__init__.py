"""What may replace the parts of a prompt, and the stores that keep it."""

from promptgraft.overrides.diff import PartDiff, diff_bodies, diff_override, diff_revisions
from promptgraft.overrides.local_store import LocalPromptOverridesStore
from promptgraft.overrides.memory_store import InMemoryPromptOverridesStore
from promptgraft.overrides.overlay_store import OverlayPromptOverridesStore
from promptgraft.overrides.store import (
    BasePromptOverridesStore,
    OverrideAddress,
    PromptOverridesStore,
    RevisionedPromptOverridesStore,
)
from promptgraft.overrides.types import (
    AppliedOverride,
    PromptDescriptor,
    PromptLike,
    PromptOverride,
    Provenance,
    Revision,
    SectionDescriptor,
    SectionOverride,
    SectionPath,
    SkippedOverride,
    SkipReason,
)

__all__ = [
    "AppliedOverride",
    "BasePromptOverridesStore",
    "InMemoryPromptOverridesStore",
    "LocalPromptOverridesStore",
    "OverlayPromptOverridesStore",
    "OverrideAddress",
    "PartDiff",
    "PromptDescriptor",
    "PromptLike",
    "PromptOverride",
    "PromptOverridesStore",
    "Provenance",
    "Revision",
    "RevisionedPromptOverridesStore",
    "SectionDescriptor",
    "SectionOverride",
    "SectionPath",
    "SkipReason",
    "SkippedOverride",
    "diff_bodies",
    "diff_override",
    "diff_revisions",
]
