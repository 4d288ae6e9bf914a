"""The prompts that the suites write overrides for."""

from __future__ import annotations

import attrs

from promptgraft.overrides.store import DEFAULT_TAG, PromptOverridesStore
from promptgraft.overrides.types import PromptOverride
from promptgraft.parts.descriptors import SectionPath, hash_section
from promptgraft.parts.section import SectionOverride
from promptgraft.testing.prompts import FakePrompt

TASK: SectionPath = ("task",)
RULES: SectionPath = ("task", "rules")
TONE: SectionPath = ("tone",)
LICENCE: SectionPath = ("licence",)

PROMPT = FakePrompt(
    bodies={
        TASK: "Answer $question for $5.\n",
        RULES: "Be exact.",
        TONE: "Be kind.",
        LICENCE: "Fixed.",
    },
    placeholders={TASK: ("question",)},
    fixed=frozenset({LICENCE}),
)
WRITER = attrs.evolve(PROMPT, key="writer")
JUDGE = attrs.evolve(PROMPT, ns="tests/judges", key="judge")


def entry(prompt: FakePrompt, path: SectionPath, body: str) -> SectionOverride:
    """Return an override of one section, written for the source of ``prompt``."""
    source_hash = hash_section(prompt.section_body(path), prompt.syntax)
    return SectionOverride(path=path, expected_hash=source_hash, body=body)


def override_of(
    prompt: FakePrompt, *entries: SectionOverride, tag: str = DEFAULT_TAG
) -> PromptOverride:
    """Return an override of ``prompt`` with these entries."""
    return PromptOverride(
        ns=prompt.ns,
        prompt_key=prompt.key,
        tag=tag,
        sections={section.path: section for section in entries},
    )


def bodies(override: PromptOverride | None) -> dict[SectionPath, str]:
    """Return the bodies that a store returned, by path."""
    return {path: section.body for path, section in override.sections.items()} if override else {}


def set_all(
    store: PromptOverridesStore, *prompts: FakePrompt, path: SectionPath, body: str
) -> tuple[PromptOverride, ...]:
    """Override one section of several prompts in one write."""
    return store.upsert_all(
        [(prompt.descriptor, override_of(prompt, entry(prompt, path, body))) for prompt in prompts]
    )


def forget(store: PromptOverridesStore, path: SectionPath, *, tag: str = DEFAULT_TAG) -> None:
    """Remove the override of one section of the suite's prompt."""
    store.remove_section_override(ns=PROMPT.ns, prompt_key=PROMPT.key, tag=tag, path=path)
