"""Prompt templates, and prompts: templates bound to parameters and a store."""

from __future__ import annotations

import logging
from typing import Generic

import attrs

from promptgraft.errors import PromptDefinitionError, UnknownPartError, joined_faults
from promptgraft.ground.content import File
from promptgraft.ground.notebook import Card, LongText, Shown, Table
from promptgraft.ground.serde import did_you_mean
from promptgraft.ground.strict.checks import FLAG, instance
from promptgraft.ground.text import counted
from promptgraft.overrides.base_store import InMemoryPromptOverridesStore
from promptgraft.overrides.parts.descriptors import PromptDescriptor, SectionPath, show_path
from promptgraft.overrides.parts.validation import check_key, check_ns, check_store, check_tag
from promptgraft.overrides.resolution import resolve_override
from promptgraft.overrides.store import DEFAULT_TAG, PromptOverridesStore
from promptgraft.overrides.types import PromptOverride
from promptgraft.prompt import rendering
from promptgraft.prompt.describing import Walked, describe_template, walk
from promptgraft.prompt.fields import Described
from promptgraft.prompt.rendered import (
    OutputT_co,
    PromptRendered,
    RenderedPrompt,
    TypeForm,
    check_choice,
    check_output_type,
    show_type,
)
from promptgraft.prompt.sections import MarkdownSection, as_sections, check_siblings, show_section
from promptgraft.runtime.session import SessionProtocol

_logger = logging.getLogger("promptgraft")


_KEPT = 4


class _RecentlyResolved:
    """A cache of a template with its latest overrides, shared by the rollouts of a candidate.

    Templates and overrides are immutable, and the tuple is replaced as a whole, so threads need no
    lock.
    """

    def __init__(self) -> None:
        self._recent: tuple[tuple[PromptOverride | None, rendering.Resolved], ...] = ()
        self._skipped: tuple[str, ...] = ()

    def __reduce__(self) -> tuple[type[_RecentlyResolved], tuple[()]]:
        return type(self), ()

    def of(
        self, descriptor: PromptDescriptor, walked: Walked, override: PromptOverride | None
    ) -> rendering.Resolved:
        recent = self._recent
        for store_known, resolved in recent:
            # By identity: stores return the same object as long as nothing changes.
            if store_known is override:
                return resolved
        resolved = rendering.resolve(descriptor, walked, resolve_override(descriptor, override))
        self._recent = ((override, resolved), *recent[: _KEPT - 1])
        if resolved.resolution.skipped:
            self._warn(descriptor, resolved)
        return resolved

    def _warn(self, descriptor: PromptDescriptor, resolved: rendering.Resolved) -> None:
        """Log which overrides do not apply, unless the last warning said the same."""
        skipped = tuple(
            f"{skipped_part.part} ({skipped_part.reason})"
            for skipped_part in resolved.resolution.skipped
        )
        if skipped != self._skipped:
            self._skipped = skipped
            _logger.warning(
                "prompt `%s/%s`: overrides that do not apply to its source are left out: %s",
                descriptor.ns,
                descriptor.key,
                joined_faults(skipped),
            )


@attrs.frozen(kw_only=True)
class PromptTemplate(Shown, Generic[OutputT_co]):
    """The source of a prompt, written and reviewed by people, never changed by a run.

    Attributes:
        ns: namespace, identifiers joined by ``/``.
        key: identifier of the prompt in its namespace.
        name: name for people; by default the key.
        sections: its sections in reading order.
        output_type: the type of answers: None or ``str`` for text, an ``Enum`` or ``Literal`` of
            strings for a choice, an attrs class, dataclass or pydantic model for an object; also
            unions, lists, dictionaries, numbers, booleans and dates.
        choice: description of an answer that is a choice, and of its options; fields of a class
            are described by annotations.
        repair: whether answers that are not strict JSON, and texts that spell numbers, are
            repaired, with a note.
        descriptor: identity and content hashes, computed once.
        walked: every section with its path, parents before children.
        shown_names: the names of the values that placeholders show.

    Raises:
        InvalidIdentifierError: ``ns`` or ``key`` is not an identifier.
        PromptDefinitionError: siblings share a key, ``output_type`` is not supported, ``choice``
            does not fit it, or all sections have the role ``system``.
    """

    ns: str
    key: str
    name: str | None = None
    sections: tuple[MarkdownSection, ...] = attrs.field(default=(), converter=as_sections)
    output_type: TypeForm[OutputT_co] | None = None
    choice: Described = attrs.field(factory=Described)
    repair: bool = attrs.field(default=True, validator=FLAG)
    descriptor: PromptDescriptor = attrs.field(init=False, repr=False, eq=False)
    walked: tuple[tuple[SectionPath, MarkdownSection], ...] = attrs.field(
        init=False, repr=False, eq=False
    )
    shown_names: frozenset[str] = attrs.field(init=False, repr=False, eq=False)
    _recently: _RecentlyResolved = attrs.field(
        factory=_RecentlyResolved, init=False, repr=False, eq=False
    )

    def __attrs_post_init__(self) -> None:
        check_ns(self.ns)
        check_key(self.key, "prompt key")
        where = f"prompt `{self.ns}/{self.key}`"
        check_siblings(self.sections, where)
        check_output_type(self.output_type, where)
        check_choice(self.choice, self.output_type, where)
        walked = tuple(walk(self.sections))
        if walked and all(section.role == "system" for section in self.sections):
            raise PromptDefinitionError(
                f"{where}: all sections are the system's, and a model answers a user; give one of "
                "them no role, or the role 'user'"
            )
        descriptor = describe_template(
            self.ns, self.key, walked, self.output_type, choice=self.choice
        )
        shown_names = [name for _, section in walked for name in section.source.variables]
        object.__setattr__(self, "shown_names", frozenset(shown_names))
        object.__setattr__(self, "walked", walked)
        object.__setattr__(self, "descriptor", descriptor)

    def resolved(self, override: PromptOverride | None) -> rendering.Resolved:
        """Return the template with ``override`` applied, before anything is bound."""
        return self._recently.of(self.descriptor, self.walked, override)

    def section(self, path: SectionPath) -> MarkdownSection:
        """Return the section at ``path``.

        Raises:
            UnknownPartError: there is none; the message lists the existing ones.
        """
        for section_path, section in self.walked:
            if section_path == path:
                return section
        paths = [show_path(section_path) for section_path, _ in self.walked]
        raise UnknownPartError(
            f"prompt `{self.ns}/{self.key}` has no section `{show_path(path)}`"
            f"{did_you_mean(show_path(path), paths)}; sections: {', '.join(paths) or 'none'}"
        )

    def section_body(self, path: SectionPath) -> str:
        """Return the source of a section in the language of override bodies.

        Raises:
            UnknownPartError: there is no such section.
        """
        return self.section(path).source.body

    def as_written(self, path: SectionPath, body: str) -> str:
        """Return an override body of a section as the author of the template would write it."""
        return self.section(path).source.as_template(body)

    def lookalikes(self) -> dict[str, str]:
        """Return a hint for each name that is written like a placeholder of another syntax."""
        hints = {}
        for path, section in self.walked:
            for name, hint, syntax in section.source.lookalikes(section.template):
                instead = f", or set the syntax to `{syntax}`" if syntax else ""
                hints[name] = f"{show_section(path)} {hint}{instead}"
        return hints

    def _card(self) -> Card:
        return self.card("a prompt template")

    def card(self, what: str, *fields: tuple[str, str]) -> Card:
        """Return the card of the template, called ``what``, with further fields."""
        names = (("name", self.name),) if self.name is not None else ()
        head = ("section", "characters", "placeholders", "tools", "title")
        texts = [(show_path(path), section.template) for path, section in self.walked]
        return Card(
            title=f"{self.ns}/{self.key}",
            lead=f"{what} with {counted(len(texts), 'section')}",
            fields=(*names, ("answer", show_type(self.output_type)), *fields),
            blocks=(
                Table(head=head, rows=(_row(show_path(p), section) for p, section in self.walked)),
                *(LongText(title=f"section {at}", text=text) for at, text in texts if text),
            ),
        )


def _row(path: str, section: MarkdownSection) -> tuple[str, ...]:
    tools = ", ".join(tool.name for tool in section.tools)
    frozen = "" if section.overridable else " (not overridable)"
    placeholders = ", ".join(section.source.placeholders)
    return path, f"{len(section.template)}", placeholders, tools, f"{section.title}{frozen}"


@attrs.frozen
class Prompt(Shown, Generic[OutputT_co]):
    """A template with parameters, seen through a store of overrides. Immutable.

    Attributes:
        template: the source.
        overrides_store: the store of overrides; None for the plain source.
        overrides_tag: the tag of overrides in the store.
        params: the bound parameters.
        files: images and files that are shown where a bound text first has their name.
    """

    template: PromptTemplate[OutputT_co]
    overrides_store: PromptOverridesStore | None = attrs.field(default=None, kw_only=True)
    overrides_tag: str = attrs.field(default=DEFAULT_TAG, kw_only=True)
    params: tuple[object, ...] = attrs.field(default=(), kw_only=True, hash=False)
    files: tuple[File, ...] = attrs.field(default=(), kw_only=True)

    def __attrs_post_init__(self) -> None:
        template: object = self.template
        if not isinstance(template, PromptTemplate):  # a step makes many prompts
            instance(PromptTemplate).hold("template", template)
        if self.overrides_store is not None:
            check_store(self.overrides_store)
        check_tag(self.overrides_tag)

    @property
    def descriptor(self) -> PromptDescriptor:
        """Identity and content hashes of the template."""
        return self.template.descriptor

    def section_body(self, path: SectionPath) -> str:
        """Return the source of a section; see :meth:`PromptTemplate.section_body`."""
        return self.template.section_body(path)

    def as_written(self, path: SectionPath, body: str) -> str:
        """Return a body as its author would write it; see :meth:`PromptTemplate.as_written`."""
        return self.template.as_written(path, body)

    def bind(self, *params: object) -> Prompt[OutputT_co]:
        """Return a prompt with further parameters bound.

        A parameter replaces an earlier one of the same class; dictionaries are merged by key.

        Raises:
            BindingError: two of ``params`` have the same class, or one is neither an attrs or
                dataclass instance nor a mapping; or a placeholder shows a value that has no text,
                such as bytes.
        """
        bound, new = rendering.by_class(self.params), rendering.by_class(params)
        for param in params:
            # Only to refuse it here, at the call that passed it.
            rendering.check_values(rendering.values_of(param), self.template.shown_names)
        if dict in bound and dict in new:
            new[dict] = {**rendering.values_of(bound[dict]), **rendering.values_of(new[dict])}
        return Prompt(
            self.template,
            overrides_store=self.overrides_store,
            overrides_tag=self.overrides_tag,
            params=tuple({**bound, **new}.values()),
            files=self.files,
        )

    def render(self, session: SessionProtocol | None = None) -> RenderedPrompt[OutputT_co]:
        """Render source and overrides with the bound parameters.

        A :class:`PromptRendered` event is dispatched to ``session``.

        Raises:
            BindingError: a placeholder has no value.
            PromptRenderError: a Jinja block does not render with these values.
            StoreError: the store cannot be read.
        """
        rendered = self._rendered(rendering.Bindings(self.params))
        if self.files:
            rendered = rendering.with_files(rendered, self.files)
        if session is not None:
            session.dispatch(PromptRendered(rendered))
        return rendered

    def with_placeholders(self) -> RenderedPrompt[OutputT_co]:
        """Render source and overrides with placeholders instead of values.

        Sections that depend on values are shown in full.

        Raises:
            StoreError: the store cannot be read.
        """
        return self._rendered(None)

    def _rendered(self, bindings: rendering.Bindings | None) -> RenderedPrompt[OutputT_co]:
        override = None
        if self.overrides_store is not None:
            override = self.overrides_store.resolve(self.descriptor, self.overrides_tag)
        return rendering.render_prompt(
            self.descriptor,
            self.template.walked,
            bindings,
            self.template.resolved(override),
            output_type=self.template.output_type,
            repair=self.template.repair,
        )

    def _card(self) -> Card:
        store = self.overrides_store
        overrides = (
            "none" if store is None else f"tag {self.overrides_tag} of a {type(store).__name__}"
        )
        bound = ", ".join(type(param).__name__ for param in self.params) or "nothing"
        return self.template.card("a prompt", ("overrides", overrides), ("bound", bound))


def with_stored_overrides(
    template: PromptTemplate[OutputT_co], store: PromptOverridesStore | None
) -> Prompt[OutputT_co]:
    """Return a prompt with the present overrides of a store, independent of later changes."""
    resolution = None if store is None else store.resolve(template.descriptor)
    return Prompt(
        template, overrides_store=InMemoryPromptOverridesStore([resolution]) if resolution else None
    )
