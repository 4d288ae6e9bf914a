"""The scanner keeps every byte, and finds what BAML itself finds."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptgraft.bridges.baml.functions import BamlFunction
from promptgraft.bridges.baml.scanner import BamlFile, tokens_of
from promptgraft.bridges.baml.tests import tests_in as found_in

pytest.importorskip("baml_py")

PROJECT = Path(__file__).parent / "project" / "baml_src"
FILES = sorted(PROJECT.rglob("*.baml"))
_BREAK = re.compile("\r\n|\r|\n")
CLI = Path(sys.executable).with_name("baml-cli")


def scanned(path: Path) -> BamlFile:
    return BamlFile(path, path.read_bytes().decode())


@functools.cache
def functions() -> tuple[BamlFunction, ...]:
    files = tuple(scanned(path) for path in FILES)
    return tuple(
        BamlFunction(name=block.name, files=files, folder=PROJECT)
        for file in files
        for block in file.declarations
        if block.kind == "function"
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_tokens_are_the_source(path: Path) -> None:
    source = path.read_bytes().decode()
    assert "".join(token.text for token in tokens_of(source)) == source


_SNIPPETS = st.sampled_from(
    [
        '"',
        "#",
        '#"',
        '"#',
        '##"',
        "{",
        "}",
        "{{",
        "}}",
        "{//",
        "//}",
        "//",
        "///",
        "(",
        ")",
        ",",
        "@@",
        "@assert(",
        "test T {",
        "class A {",
        "function F(a: b) -> C {",
        'prompt #"',
        "\r\n",
        "\n",
        "\t",
        "map<string, int>",
        "client<llm> L {",
        "type A = ",
        "enum",
        "é",
        "-",
        "->",
        "x",
        "1.5",
        "\\",
        "'",
    ]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(_SNIPPETS, st.text(max_size=5)), max_size=25).map("".join))
def test_any_text_has_tokens_and_can_be_scanned(source: str) -> None:
    assert "".join(token.text for token in tokens_of(source)) == source
    file = BamlFile(Path("any.baml"), source)
    for block in file.declarations:
        assert source[block.start : block.end] == "".join(token.text for token in block.tokens)
        assert block.line == 1 + len(_BREAK.findall(source[: block.start]))
        assert all(block.start < member.end <= block.end for member in block.members)
        assert all(attribute.name in source for attribute in block.attributes)
    assert all(test.name in source for test in found_in(file))


def test_tests_are_those_that_baml_lists() -> None:
    listed = subprocess.run(
        [CLI, "test", "--list", "--from", PROJECT], capture_output=True, text=True, check=True
    )
    wanted = {line for line in listed.stdout.splitlines() if "::" in line}
    tests = [one for path in FILES for one in found_in(scanned(path))]
    assert {f"{name}::{one.name}" for one in tests for name in one.functions} == wanted
    assert len(wanted) == 37


def test_a_test_has_its_line_and_its_arguments_as_data() -> None:
    tests = {one.name: one for one in found_in(scanned(PROJECT / "nested_args.baml"))}
    found = tests["GreetOne"]
    assert found.origin == f"{PROJECT / 'nested_args.baml'}:21"
    assert found.args == {
        "person": {
            "name": "Ann",
            "age": 42,
            "addresses": [
                {"street": "First", "city": "Paris"},
                {"street": 'Second "Street"', "city": "Rome"},
            ],
            "tags": {"a key": ["one", "two"], "b": []},
        },
        "loud": True,
        "times": -3,
        "share": 0.5,
    }
    assert [rule.expression for rule in found.rules] == ['"Ann" in this', "times == -3"]
    assert tests["GreetTwo"].args["person"] == {
        "name": "Bob",
        "addresses": [{"street": "S", "city": "C"}],
        "tags": {},
    }


CLIENT = """client<llm> Model {
  provider openai
  options {
    model "m"
    api_key "k"
  }
}
"""


ONE_LINE = (
    'function F(text: string) -> string { prompt #"{{ text }}"# client Model }\n',
    'test T { functions [F] args { text "args" } @@assert({{ this == "x" }}) }\n',
)
TWO_LINES = (
    'function F(text: string) -> string {\n  client "openai/m" prompt #"{{ text }}"#\n}\n',
    'test T {\n  args { text "args" } functions [F]\n  @@assert({{ this == "x" }}) }\n',
)


@pytest.mark.parametrize("source", ["".join(ONE_LINE), "".join(TWO_LINES)])
def test_settings_may_share_a_line(source: str, tmp_path: Path) -> None:
    import baml_py

    path = tmp_path / "one_line.baml"
    path.write_text(CLIENT + source)
    baml_py.BamlRuntime.from_files(str(tmp_path), {path.name: path.read_text()}, {})
    file = scanned(path)
    [function] = [block for block in file.declarations if block.kind == "function"]
    assert function.prompt is not None
    assert function.prompt.text == "{{ text }}"
    assert function.word("client") in ("Model", "openai/m")
    [only] = found_in(file)
    assert (only.functions, only.args) == (("F",), {"text": "args"})
    assert [rule.expression for rule in only.rules] == ['this == "x"']


def test_a_number_that_python_does_not_read_is_left_to_baml(tmp_path: Path) -> None:
    path, digits = tmp_path / "long.baml", "9" * 5_000
    path.write_text(f"test Long {{\n  functions [F]\n  args {{ n {digits} }}\n}}\n")
    [long] = found_in(scanned(path))
    assert long.args == {"n": digits}


def test_texts_are_read_as_baml_reads_them() -> None:
    found = {one.name: one for path in FILES for one in found_in(scanned(path))}
    assert found["HashesOne"].args == {"text": 'a "## b "# c'}
    assert found["PlainBare"].args == {"text": "hello to you"}
    assert found["LetterOne"].args == {"name": "Ann", "body": 'See you "soon", at C:\\home'}
    assert found["Bakery"].args == {"text": "Bakery\n  Bread 2.50\nTotal 2.50", "hint": None}
    assert found["MoodsMany"].args == {"texts": ["Hurray!", 'Oh "no"', "Alas", "Grr"]}
    assert found["CommentsOne"].args == {"text": "a // b"}
    assert [rule.expression for rule in found["CommentsOne"].rules] == ["this.two != 3"]
    assert "loyalty string" in found["OpenOne"].types


@pytest.mark.parametrize("function", functions(), ids=lambda one: one.name)
def test_a_function_without_edits_is_its_source_to_the_byte(function: BamlFunction) -> None:
    assert function.rewritten({part.key: part.text for part in function.parts}) == {}
    kept = function.sources({})
    for path, source in kept.items():
        file = scanned(PROJECT / path)
        assert source.count("\n") == file.source.count("\n")
        left = BamlFile(file.path, source).declarations
        assert {block.name for block in left} <= function.needed
