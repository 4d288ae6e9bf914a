"""What a Jinja source may make: bounded when it is checked and when it is rendered."""

from __future__ import annotations

import pytest

from promptgraft.errors import ConfigError, PromptDefinitionError, PromptRenderError
from promptgraft.evals import metrics
from promptgraft.evals.types import Answer, Case
from promptgraft.prompt import MarkdownSection, Prompt, PromptTemplate, sandbox

TOO_MUCH = "it makes more than 5,000,000 characters, items and steps"
DOUBLED = "{% set ns=namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = SUM %}{% endfor %}"


def rendered(template: str) -> str:
    section = MarkdownSection(title="Task", key="task", template=template, syntax="jinja")
    prompt: Prompt[object] = Prompt(PromptTemplate(ns="tests", key="jinja", sections=[section]))
    return prompt.bind({"a": "Ada", "items": [1, 2]}).render().sections[0].text


@pytest.mark.parametrize(
    "expression",
    [
        "'%1000000000d' % 1",
        "'%*d' % (10**9, 1)",
        "'%(a)1000000000d' % {'a': 1}",
        "'%.1000000000f'|format(1)",
        "'{:1000000000}'.format(1)",
        "'{:{w}}'.format(1, w=10**9)",
        "'{a:1000000000}'.format_map({'a': 1})",
        "('{:>1000000000}'|safe).format(1)",
        "'a' * 10**9",
        "10**9 * [1]",
        "'a'|center(10**9)",
        "'a'.ljust(10**9)",
        "'1'.zfill(10**9)",
        "'a'|indent('b' * 3000000)",
        "'\t'.expandtabs(10**9)",
        "('a' * 9999)|replace('a', 'b' * 9999)",
        "('a' * 9999).replace('a', 'b' * 9999)",
        "'a'|replace(old='a', new='b' * 3000000)",
        "(['a' * 9999] * 9999)|join",
        "(['a' * 9999] * 9999)|map('upper')|join",
        "'x'.join(['a' * 9999] * 9999)",
        "[1]|batch(10**9, 'x')|list",
        "[1]|slice(10**9)|list",
        "1.5|round(10**9, 'ceil')",
        "[1]|tojson(indent=10**9)",
        "(1).to_bytes(10**9, 'big')",
        "range(99999)|map('center', 99999)|list",
        "range(100001)",
        "7 ** 9999",
        "(7 ** 5000) * (7 ** 5000)",
    ],
)
def test_an_expression_that_makes_too_much_is_ended_before_it_is_made(expression: str) -> None:
    with pytest.raises(PromptRenderError, match="does not render: ") as caught:
        rendered(f"{{{{ {expression} }}}}")

    said = str(caught.value).partition("does not render: ")[2]
    assert said == TOO_MUCH or "Range too big" in said or "an integer of too many digits" in said
    verdict = metrics.check(expression=expression).judge(Case(id="a", input=""), Answer(text=""))
    assert verdict.score == 0
    assert said in verdict.reason


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
        "{% set x %}{% for a in range(9999) %}" + "text" * 99 + "{% endfor %}{% endset %}{{ x }}",
        "{% for a in range(9999) %}{{ items|join(', ') }}{{ 'x' * 999 }}{% endfor %}",
        "{% for a in range(9999) %}{{ a|abs }}{{ a|abs }}{{ a|abs }}{% endfor %}",
        "{% macro m(n) %}{% if n %}{{ m(n-1) }}{{ m(n-1) }}{% endif %}{% endmacro %}{{ m(40) }}",
        DOUBLED.replace("SUM", "ns.x + ns.x"),
        DOUBLED.replace("SUM", "ns.x ~ ns.x"),
        DOUBLED.replace("SUM", "'%s%s' % (ns.x, ns.x)"),
        DOUBLED.replace("SUM", "'{}{}'.format(ns.x, ns.x)"),
        DOUBLED.replace("SUM", "[ns.x, ns.x]") + "{{ ns.x }}",
        *(
            f"{{% set l = range(9999)|list %}}{{% for a in range(9999) %}}{one}{{% endfor %}}"
            for one in (
                "{% for b in l %}{% for c in l %}x{% endfor %}{% endfor %}",
                "{{ range(9999)|sum }}",
                "{{ 'q' in l }}",
                "{{ l == l }}",
                "{{ l|max }}",
                "{{ l.count(3) }}",
                "{{ l|unique|first }}",
                "{% if l[::-1] %}{% endif %}",
                "{{ l|map('string')|list|length }}",
            )
        ),
        "{% set t = range(9999)|join %}{% for a in t %}{{ t|upper|length }}{% endfor %}",
        "{% set t = range(9999)|join %}{% for a in t %}{{ 'q' in t }}{% endfor %}",
    ],
)
def test_a_rendering_has_one_bound_for_all_its_steps(
    template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "MOST", 500_000)  # a tenth: reached sooner
    with pytest.raises(PromptRenderError, match="it makes more than 500,000 characters, items"):
        rendered(template)


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 3000 + "1" + ")" * 3000,
        "not " * 2400 + "a",
        "9**" * 3000 + "9",
        "+".join(["1"] * 4000),
        "a" + ".b" * 3000,
        "9" * 5000,
        "1e400",
    ],
)
def test_a_source_that_cannot_be_compiled_is_refused_where_it_is_written(expression: str) -> None:
    with pytest.raises(PromptDefinitionError, match=r"nested too deeply|too many digits|too large"):
        rendered(f"{{{{ {expression} }}}}")
    with pytest.raises(ConfigError, match=r"nested too deeply|too many digits|too large"):
        metrics.check(expression=expression.replace("a", "this"))


def test_blocks_inside_each_other_have_a_limit() -> None:
    with pytest.raises(PromptDefinitionError, match="nested too deeply"):
        rendered("{% for a in items %}" * 30 + "{% endfor %}" * 30)


def test_an_expression_is_a_text_of_at_most_ten_thousand_characters() -> None:
    with pytest.raises(ConfigError, match="at most 10,000 characters, found 20,004"):
        metrics.check(expression="true" + " " * 19_999 + "1")
    with pytest.raises(ConfigError, match="expression: expected a text, found 5"):
        metrics.check(expression=5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("2**100", "1267650600228229401496703205376"),
        ("2**-1 ~ (-8)//3 ~ 1.5*2", "0.5-33.0"),
        ("'ab'*3 ~ ([1]+[2]) ~ ('a' + 'b')", "ababab[1, 2]ab"),
        ("'%s of %5.1f%%' % ('a', 2)", "a of   2.0%"),
        ("'%(x)s'|format(x=1) ~ '{:>3}|{a}'.format(1, a=2)", "1  1|2"),
        ("'call 5551234567: %s' % a", "call 5551234567: Ada"),
        ("('<{}>'|safe).format('<')", "<&lt;>"),
        ("a|center(9)|replace('A', 'B')", "   Bda   "),
        ("items|map('string')|join('-') ~ items|batch(3, 0)|list", "1-2[[1, 2, 0]]"),
        ("cycler('a', 'b').next() ~ dict(a=1) ~ range(3)|sum", 'a{"a": 1}3'),
    ],
)
def test_what_stays_within_the_bounds_is_what_jinja_makes(expression: str, text: str) -> None:
    assert rendered(f"{{{{ {expression} }}}}") == text


def test_a_filter_that_walks_through_nothing_costs_nothing() -> None:
    template = "{% set l = range(9999)|list %}{% for a in l %}{{ l|length // 9999 }}{% endfor %}"
    assert rendered(template) == "1" * 9_999


def test_a_loop_knows_its_length_and_its_end() -> None:
    template = (
        "{% for i in items if i %}{{ loop.index }}/{{ loop.length }}"
        "{% if loop.last %}.{% endif %}{% else %}none{% endfor %}"
        "{% for i in [] %}{% else %}none{% endfor %}"
    )
    assert rendered(template) == "1/22/2.none"
