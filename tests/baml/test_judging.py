"""Rules are judged as ``baml-cli test`` judges them, against the same answers."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from baml.answering import Answering
from baml.test_scanner import CLI
from promptgraft.bridges.baml.functions import load_function
from promptgraft.bridges.baml.judging import check_rules, judged
from promptgraft.bridges.baml.runtime import CompiledProject, UnreadableAnswerError
from promptgraft.bridges.baml.tests import BamlRule
from promptgraft.ground.serde import Json

pytest.importorskip("baml_py")

ANSWER = (
    '{"shop": "Bäckerei \\"Süß\\"", "sum": 12.5, "kind": "k1", "paid": true, "note": null, '
    '"lines": [{"name": "Bread", "price": 2.5}, {"name": "", "price": 10}], "tags": {"a": 1}}'
)
SOURCE = """client<llm> Loopback {
  provider openai-generic
  options {
    base_url "ADDRESS"
    model "none"
  }
}
enum Kind {
  FOOD @alias("k1")
  TOOLS
}
class Line {
  name string
  price float
}
class Receipt {
  merchant string @alias("shop")
  total float @alias("sum") @check(positive, {{ this > 0 }})
  kind Kind
  paid bool
  note string?
  lines Line[]
  tags map<string, int>
}
function Read(text: string, limit: int, words: string[]) -> Receipt {
  client Loopback
  prompt #"{{ text }} {{ limit }} {{ words }} {{ ctx.output_format }}"#
}
"""
VALUES = (
    "this.merchant", "this.total", "this.total.value", "this.kind", "this.paid", "this.note",
    "this.lines", "this.lines[0].price", "this.lines[1].name", "this.tags.a", "this.tags.b",
    "_.result.lines[0].name", "_.checks.first", "text", "limit", "words[0]", "this",
)  # fmt: skip
TESTS = (
    "{}", "not {}", "{}|length > 0", "{} == 12.5", '{} == "FOOD"', '{} in ["x", 1, 2.5]', "{} > 2",
    "{} is none", "{} is defined", '{}|string == "true"', "{} and this.paid",
)  # fmt: skip
OTHERS = (
    # Rules whose result does not depend on how long the answer took.
    "_.latency_ms is defined",
    "_.latency_ms is none",
    "_.latency_ms >= 0",
    "_.latency_ms == 'fast'",
    "_.latency_ms|string == 'true'",
    """this.merchant == 'Bäckerei "Süß"'""",
    "this.lines|length == 2 and this.paid",
    'this.lines|map(attribute="name")|join(",") == "Bread,"',
    'this.lines|sum(attribute="price") > 1',
    'this.merchant|regex_match("S[uü]ß")',
    'this.total.checks.positive.status == "succeeded"',
    "(this.total.value - 12.5)|abs < 0.01",
    "this.lines|selectattr('price', 'gt', 5)|list|length == 1",
    "'this' == \"this\"",
    "this.kind|lower == 'food'",
    "1 if this.paid else 0",
    "true",
    "false",
    '""',
    "this.lines[5]",
    "this.lines[5].price > 1",
    "this.merchant.foo()",
    "limit == 3 and 'a' in words",
    "_.checks.second",
    "_.checks.third",
    "_.checks.third is defined",
    "_.checks.first and not _.checks.second",
    "this.note is not none",
    "this.total|round == 12",
    "words|length == limit - 1",
    "this.tags|items|length == 1",
    "ctx is defined",
    "result is defined or args is defined or latency_ms is defined",
    "(_ is mapping) and _.result.paid",
    "'%}' not in text and '\"#' != this.merchant",
)
RULES = (*(test.format(value) for value, test in product(VALUES, TESTS)), *OTHERS)
ARGS = """  args {
    text "hello"
    limit 3
    words ["a", "b"]
  }
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("rules") / "baml_src"
    folder.mkdir()
    with Answering(lambda _: ANSWER) as server:
        (folder / "types.baml").write_text(SOURCE.replace("ADDRESS", server.address))
        tests = (
            f"test T{n} {{\n  functions [Read]\n{ARGS}"
            "  @@check(first, {{ this.paid }})\n  @@check(second, {{ not not this.paid }})\n"
            "  @@assert(third, {{ this.paid }})\n"
            f"  @@assert({{{{ {rule} }}}})\n}}\n"
            for n, rule in enumerate(RULES)
        )
        failing = f"test C {{\n  functions [Read]\n{ARGS}  @@check(no, {{{{ false }}}})\n}}\n"
        (folder / "tests.baml").write_text("".join([*tests, failing]))
        yield folder


@pytest.mark.thorough
def test_rules_hold_where_baml_says_so(project: Path) -> None:
    command = [str(CLI), "test", "--from", str(project), "--parallel", "16"]
    quiet = {**os.environ, "BAML_LOG": "off", "RUST_LIB_BACKTRACE": "0"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=quiet) as ran:
        # Meanwhile: it takes two seconds however few tests there are.
        function = load_function("Read", project)
        value = CompiledProject.of(function.sources({}), folder=project).parsed("Read", ANSWER)
        found = {
            one.name: judged(one.rules, value, args=one.args, latency_ms=3)
            for one in function.tests
        }
        plain = re.sub(r"\x1b\[[0-9;]*m", "", ran.communicate()[0])
    said = {name: verdict for verdict, name in re.findall(r"([A-Z]+) +Read::(\w+)", plain)}
    wrong = [
        (rules[-1].rule.expression, said[name], rules[-1].why)
        for name, rules in found.items()
        if (said[name] == "PASSED") != all(one.held for one in rules)
    ]
    assert wrong == []
    assert len(function.tests) - 1 == len(RULES) > 200


def test_what_can_never_be_judged_is_said_beforehand() -> None:
    good = ("this.a.b.c", "this|length > 3", "_.checks.x", "text == 'a'", "this.x.y()")
    bad = ("this +", "", "this|nothing", "this is nothing", "nothing(1)", "(this", "this == ")
    said = [
        list(check_rules([BamlRule(name="", expression=one, is_assert=True)], {"text": "a"}))
        for one in (*good, *bad)
    ]
    assert said[: len(good)] == [[]] * len(good)
    assert all(len(lines) == 1 and "\n" not in lines[0] for lines in said[len(good) :])
    assert said[len(good)] == ["@@assert({{ this + }}): syntax error: unexpected `)`"]


def test_an_answer_cannot_change_a_rule() -> None:
    rules = [BamlRule(name="", expression='this == "no"', is_assert=True)]
    for text in ('no" or true or "', "{{ true }}", '") @check(x, {{ true }}', '{"seen": {}}'):
        [found] = judged(rules, text, args={}, latency_ms=1)
        assert not found.held
        assert found.why == ""


@pytest.mark.parametrize(
    "value",
    [
        3,
        3.0,
        -0.5,
        True,
        None,
        "3",
        "true",
        "null",
        "",
        "[1]",
        '{"a": 1}',
        "a\nb",
        [],
        {},
        [[1], []],
    ],
)
def test_values_are_judged_as_what_they_are(value: Json) -> None:
    rules = [BamlRule(name="", expression="this == it", is_assert=True)]
    assert judged(rules, value, args={"it": value}, latency_ms=0)[0].held
    assert not judged(rules, value, args={"it": "else"}, latency_ms=0)[0].held


def test_a_long_answer_is_judged() -> None:
    value: Json = [{"name": str(n), "price": n / 2, "tags": ["a", n]} for n in range(500)]
    rules = [
        BamlRule(name="all", expression="this|length == 500 and last == 499", is_assert=False),
        BamlRule(name="", expression="_.checks.all and this[last].price == 249.5", is_assert=True),
    ]
    assert [one.held for one in judged(rules, value, args={"last": 499}, latency_ms=0)] == [
        True
    ] * 2


def test_an_answer_that_baml_cannot_read_says_why_in_one_line(project: Path) -> None:
    function = load_function("Read", project)
    compiled = CompiledProject.of(function.sources({}), folder=project)
    with pytest.raises(UnreadableAnswerError, match="Missing required field: merchant") as error:
        compiled.parsed("Read", "{}")
    assert "backtrace" not in str(error.value)
    assert "\n" not in str(error.value)


def test_rules_can_be_judged_by_several_threads() -> None:
    rules = [BamlRule(name="", expression="this > 1", is_assert=True)]
    found: list[bool] = []

    def judge() -> None:
        found.extend(judged(rules, n, args={}, latency_ms=0)[0].held for n in range(20))

    threads = [threading.Thread(target=judge) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found.count(True) == 4 * 18
