"""Prompts that consist of named texts, each a plain section."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from promptgraft.errors import ConfigError
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.serde import did_you_mean
from promptgraft.ground.text import listed
from promptgraft.overrides.parts.body import BodySyntax, kept_names
from promptgraft.overrides.parts.descriptors import show_path
from promptgraft.prompt.rendered import RenderedPrompt
from promptgraft.prompt.sections import MarkdownSection
from promptgraft.prompt.template import Prompt, PromptTemplate
from promptgraft.runtime.session import SessionProtocol

Placeholders = Sequence[str] | Mapping[str, Sequence[str]]
"""Strings that must be kept by the texts that contain them, or such strings by text name."""

_PLAIN = BodySyntax.PLAIN


@attrs.frozen
class TextsPrompt(Prompt[object]):
    """A prompt of plain texts, which accepts parameters of any type because it uses none.

    Attributes:
        takes_cases: whether its one parameter is the case itself.
        takes_inputs: whether it is the input of the case.
        plays_turns: whether an input that is a conversation is asked message by message.
        as_file: joins all texts, by name, to one file; None if each is a file of its own.
        ending: the extension of that file.
        comment: what begins a comment in that file.
        answers: describes the answers that these texts, by name, lead to; None if nothing is known
            of them, since whatever uses the texts decides what it returns.
    """

    takes_cases: bool = attrs.field(default=False, kw_only=True)
    takes_inputs: bool = attrs.field(default=False, kw_only=True)
    plays_turns: bool = attrs.field(default=False, kw_only=True)
    as_file: Callable[[Mapping[str, str]], str] | None = attrs.field(
        default=None, kw_only=True, repr=False, eq=False
    )
    ending: str = attrs.field(default="", kw_only=True)
    comment: str = attrs.field(default="#", kw_only=True)
    answers: Callable[[Mapping[str, str]], str] | None = attrs.field(
        default=None, kw_only=True, repr=False, eq=False
    )

    @classmethod
    def of(
        cls,
        texts: Mapping[str, str],
        *,
        ns: str,
        key: str,
        placeholders: Placeholders = (),
        frozen: Iterable[str] = (),
        takes_cases: bool = False,
    ) -> TextsPrompt:
        """Return the prompt of these texts; those named in ``frozen`` must not change.

        Raises:
            ConfigError: ``frozen`` or ``placeholders`` do not fit the texts.
            InvalidIdentifierError: a name, ``ns`` or ``key`` is not an identifier.
            PromptDefinitionError: a text lacks its placeholder.
        """
        fixed = tuple(frozen)
        _check_names("frozen", fixed, texts)
        if set(fixed) == set(texts):
            raise ConfigError("frozen: all texts are named, so that none may change; leave one out")
        placeholders_kept = _kept(texts, placeholders)
        sections = [
            MarkdownSection(
                title=name,
                key=name,
                template=text,
                syntax="plain",
                placeholders=placeholders_kept.get(name, ()),
                overridable=name not in fixed,
            )
            for name, text in texts.items()
        ]
        return cls(PromptTemplate(ns=ns, key=key, sections=sections), takes_cases=takes_cases)

    def bind(self, *params: object) -> Prompt[object]:
        # Neither checked nor merged by class: the agent gets them as they are.
        return attrs.evolve(self, params=(*self.params, *params))

    def render(self, session: SessionProtocol | None = None) -> RenderedPrompt[object]:
        # Without its parameters, which may be of any type and have no named values.
        unbound = Prompt(
            self.template, overrides_store=self.overrides_store, overrides_tag=self.overrides_tag
        )
        return unbound.render(session)


def single_texts(
    texts: Mapping[str, str], *, ns: str, placeholders: Placeholders = ()
) -> Mapping[str, TextsPrompt]:
    """Return a separate prompt for each text, with the name of the text as its key.

    Raises:
        ConfigError, InvalidIdentifierError, PromptDefinitionError: see :meth:`TextsPrompt.of`.
    """
    placeholders_kept = _kept(texts, placeholders)
    return {
        name: TextsPrompt.of(
            {name: text}, ns=ns, key=name, placeholders=placeholders_kept.get(name, ())
        )
        for name, text in texts.items()
    }


def takes_cases(prompt: Prompt[Any]) -> bool:
    """Return whether the parameter of a prompt is the case itself, as for agents."""
    return isinstance(prompt, TextsPrompt) and prompt.takes_cases


def plays_turns(prompt: Prompt[Any]) -> bool:
    """Return whether what answers a prompt is asked a conversation message by message."""
    return isinstance(prompt, TextsPrompt) and (prompt.takes_cases or prompt.plays_turns)


def texts_in(rendered: RenderedPrompt[object]) -> Mapping[str, str]:
    """Return the texts of a rendered prompt by section path."""
    return FrozenMap((show_path(section.path), section.text) for section in rendered.sections)


def _kept(texts: Mapping[str, str], placeholders: Placeholders) -> Mapping[str, Sequence[str]]:
    if isinstance(placeholders, Mapping):
        _check_names("placeholders", placeholders, texts)
        return placeholders
    if isinstance(placeholders, str):
        raise ConfigError(f"placeholders: expected a list, found a text; write [{placeholders!r}]")
    names = frozenset(placeholders)
    names_by_text = {name: kept_names(text, _PLAIN, names) for name, text in texts.items()}
    for placeholder in placeholders:
        if not any(placeholder in names_found for names_found in names_by_text.values()):
            raise ConfigError(
                f"placeholders: no text holds {placeholder!r}; write it into one or leave it out"
            )
    return {
        name: [name for name in placeholders if name in names_found]
        for name, names_found in names_by_text.items()
    }


def _check_names(where: str, names: Iterable[str], texts: Mapping[str, str]) -> None:
    for name in names:
        if name not in texts:
            raise ConfigError(
                f"{where}: there is no text {name!r}{did_you_mean(name, list(texts))}; "
                f"texts: {listed(texts)}"
            )
