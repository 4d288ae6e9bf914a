"""A fake prompt with only what stores see, and helpers for its overrides."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from promptgraft.errors import UnknownPartError
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.overrides.parts.body import BodySyntax
from promptgraft.overrides.parts.descriptors import (
    PromptDescriptor,
    SectionDescriptor,
    SectionPath,
    hash_section,
    show_path,
)
from promptgraft.overrides.parts.replacements import SectionOverride
from promptgraft.overrides.store import DEFAULT_TAG
from promptgraft.overrides.store import PromptOverridesStore as Store
from promptgraft.overrides.types import PromptOverride


def _frozen_bodies(bodies: Mapping[SectionPath, str]) -> Mapping[SectionPath, str]:
    return FrozenMap(bodies)


def _frozen_names(
    names: Mapping[SectionPath, tuple[str, ...]],
) -> Mapping[SectionPath, tuple[str, ...]]:
    return FrozenMap(names)


@attrs.frozen(kw_only=True)
class FakePrompt:
    """A ``PromptLike`` made of source bodies; for tests of stores.

    Attributes:
        ns: namespace; not validated, so that the check of a store can be tested.
        key: key; not validated either.
        bodies: the source of each section, in the language of override bodies.
        placeholders: the names that an override of a section must keep.
        fixed: the sections that may not be overridden.
        syntax: how placeholders are spelled.
        descriptor: the resulting descriptor.
    """

    ns: str = "tests/stores"
    key: str = "support"
    bodies: Mapping[SectionPath, str] = attrs.field(converter=_frozen_bodies)
    placeholders: Mapping[SectionPath, tuple[str, ...]] = attrs.field(
        factory=dict, converter=_frozen_names
    )
    fixed: frozenset[SectionPath] = frozenset()
    syntax: BodySyntax = BodySyntax.DOLLAR
    descriptor: PromptDescriptor = attrs.field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        sections = tuple(
            SectionDescriptor(
                path=path,
                content_hash=hash_section(body, self.syntax),
                syntax=self.syntax,
                placeholders=self.placeholders.get(path, ()),
                overridable=path not in self.fixed,
            )
            for path, body in self.bodies.items()
        )
        descriptor = PromptDescriptor(ns=self.ns, key=self.key, sections=sections)
        # The class is frozen; the descriptor is made once, because stores ask for it at every
        # write.
        object.__setattr__(self, "descriptor", descriptor)

    def section_body(self, path: SectionPath) -> str:
        """Return the source of a section.

        Raises:
            UnknownPartError: there is no such section.
        """
        if path in self.bodies:
            return self.bodies[path]
        names = ", ".join(f"`{show_path(path_known)}`" for path_known in self.bodies) or "none"
        raise UnknownPartError(f"no section `{show_path(path)}`; sections: {names}")

    def as_written(self, path: SectionPath, body: str) -> str:
        """Return a body as it is: the sections have no blocks of Jinja."""
        del path
        return body

    def edited(self, path: SectionPath, body: str) -> FakePrompt:
        """Return the prompt after its author changed the source of one section."""
        return attrs.evolve(self, bodies={**self.bodies, path: body})

    def without(self, path: SectionPath) -> FakePrompt:
        """Return the prompt after its author removed one section."""
        return attrs.evolve(
            self,
            bodies={
                body_path: body for body_path, body in self.bodies.items() if body_path != path
            },
        )


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
    store: Store, *prompts: FakePrompt, path: SectionPath, body: str
) -> tuple[PromptOverride, ...]:
    """Override one section of several prompts in one write."""
    return store.upsert_all(
        [(prompt.descriptor, override_of(prompt, entry(prompt, path, body))) for prompt in prompts]
    )


def forget(store: Store, path: SectionPath, *, tag: str = DEFAULT_TAG) -> None:
    """Remove the override of one section of the suite's prompt."""
    store.remove_section_override(ns=PROMPT.ns, prompt_key=PROMPT.key, tag=tag, path=path)
