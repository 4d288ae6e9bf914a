"""Variables of shells in a text are literal, and misspelled placeholders are refused."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import pytest

from promptgraft import Case, MarkdownSection, Prompt, PromptTemplate
from promptgraft.errors import BindingError, ConfigError, PromptDefinitionError
from promptgraft.evals.binding import params_of_cases
from promptgraft.overrides import InMemoryPromptOverridesStore


def prompt_of(*texts: str) -> Prompt[object]:
    sections = [
        MarkdownSection(title=f"T{number}", key=f"t{number}", template=text)
        for number, text in enumerate(texts)
    ]
    return Prompt(PromptTemplate(ns="docs", key="shell", sections=sections))


def rendered(*texts: str, **values: object) -> list[str]:
    bound = prompt_of(*texts).bind(values) if values else prompt_of(*texts)
    return [section.text for section in bound.render().sections]


@pytest.mark.parametrize(
    ("text", "values", "shown"),
    [
        ("Look in $HOME/bin and $PATH.", {}, "Look in $HOME/bin and $PATH."),
        ("Look in $HOME.", {"text": "x"}, "Look in $HOME."),
        ("Look in ${HOME}s.", {}, "Look in ${HOME}s."),
        ("Look in $$HOME.", {}, "Look in $HOME."),
        ("$USER asks: $text", {"text": "x"}, "$USER asks: x"),
        ("Look in $HOME.", {"HOME": "/root"}, "Look in /root."),
        ("Look in ${HOME}s, $HOME.", {"HOME": "it"}, "Look in its, it."),
    ],
)
def test_a_variable_of_a_shell_is_literal_unless_a_value_has_its_name(
    text: str, values: Mapping[str, object], shown: str
) -> None:
    assert rendered(text, **values) == [shown]


@pytest.mark.parametrize(
    ("text", "values", "near"),
    [
        ("Answer $txt.", {"text": "x"}, "`$txt` (did you mean `text`?); bound values: `text`"),
        ("Answer $HOME.", {"home": "x"}, "`$HOME` (did you mean `home`?); bound values: `home`"),
        ("Answer $TEXT.", {"text": "x"}, "`$TEXT` (did you mean `text`?)"),
        ("Answer $QUESTION.", {"other": "x"}, "`$QUESTION`; bound values: `other`"),
        ("Answer $text.", {}, "`$text`; bound values: nothing"),
    ],
)
def test_a_placeholder_without_a_value_is_refused_with_the_nearest_name(
    text: str, values: Mapping[str, object], near: str
) -> None:
    with pytest.raises(BindingError, match="section `t0` needs a value for") as refused:
        rendered(text, **values)
    assert near in str(refused.value)


@attrs.frozen
class Desk:
    text: str


@attrs.frozen
class Lower:
    home: str


def test_declared_parameters_decide_as_bound_ones_do() -> None:
    section = MarkdownSection(title="T", key="t", template="$HOME: $text", params_type=Desk)
    template = PromptTemplate[object](ns="docs", key="typed", sections=[section])
    assert Prompt(template).bind(Desk("x")).render().text.endswith("$HOME: x")
    with pytest.raises(PromptDefinitionError, match="`HOME` is not a field of `Lower`"):
        MarkdownSection(title="T", key="t", template="$HOME", params_type=Lower)


def test_cases_need_no_value_for_it_but_may_have_one() -> None:
    prompt = prompt_of("Look in $HOME.", "Answer $text.")
    cases = [
        Case(id="text", input="x"),
        Case(id="object", input={"text": "y"}),
        Case(id="both", input={"text": "z", "HOME": "/root"}),
    ]
    shown = [
        prompt.bind(*params).render().text for params in params_of_cases(prompt, cases).values()
    ]
    assert ["$HOME" in text for text in shown] == [True, True, False]
    with pytest.raises(ConfigError, match="expected a value for `text`"):
        params_of_cases(prompt, [Case(id="c", input={"HOME": "/root"})])
    alone = prompt_of("Hello $USER.")
    [params] = params_of_cases(alone, cases[:1]).values()
    assert alone.bind(*params).render().text.endswith("Hello x.")


def test_an_override_keeps_it_literal_too() -> None:
    store = InMemoryPromptOverridesStore()
    prompt = prompt_of("Look in $HOME.")
    store.set_section_override(prompt, tag="latest", path=("t0",), body="Read ${HOME} and $PATH.")
    found = Prompt(prompt.template, overrides_store=store).render()
    assert [section.text for section in found.sections] == ["Read $HOME and $PATH."]


def test_a_longer_word_in_braces_hides_no_placeholder() -> None:
    prompt = prompt_of("Sort $text: {textgröße}")
    [params] = params_of_cases(prompt, [Case(id="a", input="A.")]).values()
    assert prompt.bind(*params).render().text.endswith("Sort A.: {textgröße}")
