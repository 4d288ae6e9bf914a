"""Templates in Jinja2: rendered in pieces, with the text that the whole template has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import StrictUndefined, TemplateRuntimeError, TemplateSyntaxError, UndefinedError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from promptgraft.errors import BindingError, PromptDefinitionError, PromptRenderError
from promptgraft.overrides.base_store import InMemoryPromptOverridesStore
from promptgraft.prompt import MarkdownSection, Prompt, PromptTemplate, Segment

WHOLE = ImmutableSandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True)


@attrs.frozen
class User:
    name: str
    tags: tuple[str, ...] = ()


VALUES: Mapping[str, Any] = {
    "a": "Ada",
    "b": "{{ a }} $a {% if %}",
    "flag": True,
    "items": ["x", "y"],
    "none": None,
    "user": User("Bob", ("t1", "t2")),
}


def prompt_of(template: str) -> Prompt[object]:
    section = MarkdownSection(title="Task", key="task", template=template, syntax="jinja")
    return Prompt(PromptTemplate(ns="tests", key="jinja", sections=[section]))


def rendered(template: str, values: Mapping[str, object] = VALUES) -> str:
    return prompt_of(template).bind(values).render().sections[0].text


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("", ""),
        ("Hello {{ a }}, {{b}}!", "Hello Ada, {{ a }} $a {% if %}!"),
        ("{{ a }}{{ a }}\n", "AdaAda\n"),
        ("$a ${a} $$ {a} \\", "$a ${a} $$ {a} \\"),
        ("{{ user.name }} {{ user['name'] }} {{ a|upper }} {{ 1 + 1 }}", "Bob Bob ADA 2"),
        ("{{ none }}{{ true }}", "NoneTrue"),
        ("{% for item in items %}{{ loop.index }}{{ item }} {% endfor %}", "1x 2y "),
        ("{% for i in [1] %}{% for j in items %}{{ i }}{{ j }}{% endfor %}{% endfor %}", "1x1y"),
        ("{% if flag %}yes{% else %}no{% endif %}", "yes"),
        ("{% if x is defined %}{{ x }}{% elif flag %}{{ a }}{% endif %}", "Ada"),
        ("{% if flag %}{% if not flag %}a{% endif %}b{% endif %}c", "bc"),
        ("{% set v = a ~ '!' %}{{ v }} {{ v|lower }}", "Ada! ada!"),
        ("{{ a }}{% set a = 1 %}{{ a }}", "Ada1"),
        ("{% set v %}<{{ a }}>{% endset %}{{ v }}{{ v }}", "<Ada><Ada>"),
        ("{% set v | replace('d', new='t') %}{{ a }}{% endset %}{{ v }}", "Ata"),
        ("{% if flag %}{% set v | upper %}x{% endset %}{% endif %}{{ v }}", "X"),
        ("{% for i in items %}{ {%- endfor %}", "{{"),
        ("{% set v, w = 1, 2 %}{{ w }}{{ v }}", "21"),
        ("{% if flag %}{% set v = 1 %}{% else %}{% set v = 2 %}{% endif %}{{ v }}", "1"),
        (
            "{% set n = namespace() %}{% for x in items %}{% set n.i = x %}{% endfor %}{{ n.i }}",
            "y",
        ),
        ("{% set c = cycler('o', 'e') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}", "oeo"),
        (
            "{% macro m(x, y=2) %}<{{ x }}{{ y }}>{% endmacro %}{{ m(a) }}{{ m(1, 3) }}",
            "<Ada2><13>",
        ),
        (
            "{% macro m() %}[{{ caller(a) }}]{% endmacro %}{% call(x) m() %}{{ x }}{% endcall %}",
            "[Ada]",
        ),
        ("{% filter upper %}x{{ a }}{% endfilter %}", "XADA"),
        ("{% with v = a %}{{ v }}{% endwith %}", "Ada"),
        ("{% autoescape true %}{{ '<' }}{% endautoescape %}{{ '<' }}", "&lt;<"),
        ("{% raw %}{{ a }} {% if %}{% endraw %}{{ a }}", "{{ a }} {% if %}Ada"),
        ("x{# {{ a }} #}y", "xy"),
        ("x  {{- a -}}  y", "xAday"),
        ("x {%- if flag -%} y {%- endif -%} z\n", "xyz\n"),
        ("x {#- note -#} y", "xy"),
        ("{% for i in items -%}\n  {{ i }}\n{%- endfor %}", "xy"),
        ("{{ größe if größe is defined else 'klein' }}", "klein"),
        ('{{ "}}" }}{{ "{{" }}', "}}{{"),
        ("a\r\nb", "a\nb"),
    ],
)
def test_a_template_renders_as_jinja_renders_it(template: str, text: str) -> None:
    assert WHOLE.from_string(template).render(VALUES) == text
    assert rendered(template) == text


def test_names_that_are_not_ascii_render_too() -> None:
    assert rendered("{{ größe }} {{ a }}", {"größe": 5, "a": 1}) == "5 1"


@pytest.mark.parametrize(
    ("template", "body", "opaque"),
    [
        ("Dear {{ a }}, {{a}}", "Dear {{ a }}, {{ a }}", {}),
        (
            "{{ a|upper }}{% if flag %}x{% endif %}{{ user.name }}",
            "{{ expr_1 }}{{ if_1 }}{{ expr_2 }}",
            {
                "expr_1": "{{ a|upper }}",
                "if_1": "{% if flag %}x{% endif %}",
                "expr_2": "{{ user.name }}",
            },
        ),
        (
            "{% set v = 1 %}{{ v }}{% for v in items %}{{ v }}{% endfor %}",
            "{{ expr_1 }}{{ for_1 }}",
            {"expr_1": "{{ v }}", "for_1": "{% for v in items %}{{ v }}{% endfor %}"},
        ),
        (
            "{{ if_1 }}{% if flag %}{% endif %}",
            "{{ if_1 }}{{ if_2 }}",
            {"if_2": "{% if flag %}{% endif %}"},
        ),
        (
            "{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(a) }}",
            "{{ expr_1 }}",
            {"expr_1": "{{ m(a) }}"},
        ),
        ("{% raw %}{{ a }}{% endraw %} {{ a }}", "\\{{ a }} {{ a }}", {}),
        ("{% for t in items %}{{ t }}{% endfor %}{{ t }}", "{{ for_1 }}{{ t }}", None),
    ],
)
def test_variables_keep_their_names_and_all_else_is_opaque(
    template: str, body: str, opaque: dict[str, str] | None
) -> None:
    prompt = prompt_of(template)
    assert prompt.section_body(("task",)) == body
    if opaque is not None:
        assert prompt.template.section(("task",)).source.opaque == opaque


def test_the_values_of_opaque_blocks_are_told_apart_from_text() -> None:
    (section,) = prompt_of("- {{ a }}: {% if flag %}on{% endif %}.").bind(VALUES).render().sections
    assert section.segments == (
        Segment("- "),
        Segment("Ada", "a"),
        Segment(": "),
        Segment("on", "if_1"),
        Segment("."),
    )


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ a.__class__ }}", "access to attribute '__class__' of 'str' object is unsafe."),
        ("{{ a|attr('__class__') }}", "access to attribute '__class__'"),
        ("{{ a['__class__'] }}", "access to attribute '__class__'"),
        ("{{ '{0.__class__}'.format(a) }}", "access to attribute '__class__'"),
        ("{{ items.append(1) }}", "access to attribute 'append' of 'list' object is unsafe."),
        ("{% for i in range(10 ** 9) %}{% endfor %}", "Range too big"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ user + 1 }}", "unsupported operand"),
        ("{% set v = 1 / 0 %}", "division by zero"),
        ("{% for i in 5 %}{% endfor %}", "'int' object is not iterable"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "maximum recursion depth exceeded"),
    ],
)
def test_what_does_not_render_is_the_prompts_fault_and_named(template: str, message: str) -> None:
    block = template[template.rindex("%}{{ m") + 2 :] if "macro" in template else template
    with pytest.raises(PromptRenderError) as caught:
        rendered(template)
    assert str(caught.value).startswith(f"section `task`: `{block}` does not render: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("tag", "mend"),
    [
        ("{{#if user.name}}", "`{% if user.name %}`"),
        ("{{#unless flag}}", "`{% if not flag %}`"),
        ("{{#each items}}", "`{% for item in items %}`"),
        ("{{# flag }}", "`{% if flag %}` or `{% for item in flag %}`"),
        ("{{^flag}}", "`{% if not flag %}`"),
        ("{{/if}}", "`{% endif %}`"),
        ("{{~/each~}}", "`{% endfor %}`"),
        ("{{/flag}}", "`{% endif %}` or `{% endfor %}`"),
        ("{{> header }}", "the text that it includes in its place"),
        ("{{!-- a note --}}", "`{# a note #}`"),
        ("{{! a note }}", "`{# a note #}`"),
        ("{{{a}}}", "`{{ a }}`"),
        ("{{&a}}", "`{{ a }}`"),
        ("{{../a}}", "`{{ a }}`"),
        ("{{@index}}", "`{{ loop.index0 }}`"),
        ("{{$a}}", "`{{ a }}`"),
    ],
)
def test_a_tag_of_another_language_says_what_to_write(tag: str, mend: str) -> None:
    language = "Semantic Kernel" if "$" in tag else "Mustache or Handlebars"
    with pytest.raises(PromptDefinitionError) as caught:
        rendered(f"Hello\n{tag} you")
    assert str(caught.value) == (
        f"section `task`:2: `{tag}` is of {language}, and the prompt is declared as Jinja; "
        f"write {mend}"
    )


def test_another_mistake_in_jinja_keeps_its_message() -> None:
    with pytest.raises(PromptDefinitionError, match=r"^section `task`:1: expected token 'end of"):
        rendered("{{ a b }}")


def test_the_block_that_fails_is_the_one_that_is_named() -> None:
    template = "{{ a|upper }}{% set n = 0 %}{% if flag %}{{ 1 / n }}{% endif %}{{ a|lower }}"
    with pytest.raises(PromptRenderError, match=r"^section `task`: `{% if flag %}{{ 1 / n }}"):
        rendered(template)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ missing }}", "section `task` needs a value for `{{ missing }}`; bound values: `a`"),
        ("{{ missing|upper }}", "section `task`: `{{ missing|upper }}` does not render: 'missing'"),
        ("{{ user.nam }}", "has no attribute 'nam'"),
        ("{% if missing %}{% endif %}", "'missing' is undefined"),
        ("{{ m() }}{% macro m() %}{% endmacro %}", "'m' is undefined"),
        ("{{ lipsum() }}", "'lipsum' is undefined"),
    ],
)
def test_a_name_without_a_value_is_never_empty_text(template: str, message: str) -> None:
    with pytest.raises(BindingError) as caught:
        rendered(template)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("one\n{% if %}", "section `task`:2: Expected an expression, got 'end of statement block'"),
        ("{{ a", "section `task`:1: unexpected end of template"),
        ("{% for i in x %}", "section `task`:1: Unexpected end of template"),
        ("{{ a|nothing }}", "section `task`:1: No filter named 'nothing'."),
        ("{{ items|random }}", "section `task`:1: No filter named 'random'."),
        ("{% trans %}x{% endtrans %}", "section `task`:1: Encountered unknown tag 'trans'."),
        (
            "\n{% include 'a' %}",
            "section `task`:2: sections do not offer `{% include %}`; use for,",
        ),
        (
            "{% if a %}\n{% include 'a' %}{% endif %}",
            "section `task`:2: sections do not offer `{% in",
        ),
        ("{% extends 'a' %}", "section `task`:1: sections do not offer `{% extends %}`"),
        ("{% block a %}{% endblock %}", "section `task`:1: sections do not offer `{% block %}`"),
        ("{% import 'a' as b %}", "section `task`:1: sections do not offer `{% import %}`"),
        ("{% from 'a' import b %}", "section `task`:1: sections do not offer `{% from %}`"),
        ("{% print a %}", "section `task`:1: sections do not offer `{% print %}`"),
    ],
)
def test_a_template_that_sections_do_not_take_is_refused_with_its_line(
    template: str, message: str
) -> None:
    with pytest.raises(PromptDefinitionError) as caught:
        prompt_of(template)
    assert str(caught.value).startswith(message)


def test_a_value_cannot_pretend_to_be_two_blocks() -> None:
    values = {"a": "\0" * 40, "b": "x"}
    assert rendered("{{ a|trim }}|{{ b|trim }}", values) == f"{values['a']}|x"


MARKS = st.sampled_from(["", "-", "+"])
CHARACTERS = st.sampled_from([*"ab {}$\\#%\n-", "\r\n", "{{", "é"])
TEXT = st.lists(CHARACTERS, max_size=4).map("".join)
EXPRESSIONS = st.sampled_from(
    ["a", "b", "v", "w", "flag", "a|upper", "user.name", "items|join('-')", "n.i", "m(a)", "'}}'"]
)
SETTERS = st.sampled_from(
    [
        "set v = a ~ '!'",
        "set v = b",
        "set w, v = 1, a",
        "set n = namespace(i=0)",
        "set n.i = n.i + 1",
        "set items = [a, b]",
    ]
)


def block(opening: str, inner: str, closing: str, marks: tuple[str, str, str, str]) -> str:
    one, two, three, four = marks
    # `+` is only allowed where a tag begins.
    two, four = two.replace("+", ""), four.replace("+", "")
    return f"{{%{one} {opening} {two}%}}{inner}{{%{three} {closing} {four}%}}"


def compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    openings = [
        ("for v in items", "endfor"),
        ("for x in user.tags", "endfor"),
        ("if flag", "endif"),
        ("if v is defined", "endif"),
        ("set v", "endset"),
        ("set v | indent(width=2)", "endset"),
        ("macro m(v)", "endmacro"),
        ("filter upper", "endfilter"),
        ("with v = a", "endwith"),
        ("call m(b)", "endcall"),
    ]
    marks = st.tuples(MARKS, MARKS, MARKS, MARKS)
    bodies = st.lists(inner, max_size=3).map("".join)
    return st.builds(
        lambda tags, body, chosen: block(tags[0], body, tags[1], chosen),
        st.sampled_from(openings),
        bodies,
        marks,
    )


LEAVES = st.one_of(
    TEXT,
    st.builds(
        lambda left, name, right: f"{{{{{left} {name} {right.replace('+', '')}}}}}",
        MARKS,
        EXPRESSIONS,
        MARKS,
    ),
    SETTERS.map(lambda setter: f"{{% {setter} %}}"),
    st.just("{% raw %}{{ a }}{% endraw %}"),
    st.sampled_from(["{#- {{ a }} #}", "{# b -#}"]),
)
TEMPLATES = st.lists(st.recursive(LEAVES, compound, max_leaves=6), max_size=5).map("".join)


@settings(max_examples=25)
@given(TEMPLATES)
def test_the_pieces_of_any_template_have_the_text_of_the_whole(template: str) -> None:
    try:
        whole = WHOLE.from_string(template)
    except TemplateSyntaxError:
        with pytest.raises(PromptDefinitionError, match=r"^section `task`:\d+: "):
            prompt_of(template)
        return
    prompt = prompt_of(template)
    try:
        expected = whole.render(VALUES)
    except UndefinedError:
        with pytest.raises(BindingError):
            prompt.bind(VALUES).render()
        return
    except (TemplateRuntimeError, TypeError, RecursionError):
        # What has no value is found before anything is rendered.
        with pytest.raises((PromptRenderError, BindingError)):
            prompt.bind(VALUES).render()
        return
    source = prompt.bind(VALUES).render().sections[0]
    assert source.text == expected

    store = InMemoryPromptOverridesStore()
    store.set_section_override(prompt, path=("task",), body=prompt.section_body(("task",)))
    stored = Prompt(prompt.template, overrides_store=store)
    overridden = stored.bind(VALUES).render().sections[0]
    assert overridden.overridden
    assert overridden.segments == source.segments
