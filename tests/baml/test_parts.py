"""What is planted in a part stands in the request that BAML sends, there and nowhere else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from baml.test_scanner import PROJECT, functions
from promptgraft.bridges.baml.calls import arguments_of
from promptgraft.bridges.baml.functions import BamlFunction, load_function
from promptgraft.bridges.baml.parts import Part, PartKind
from promptgraft.bridges.baml.runtime import CompiledProject

pytest.importorskip("baml_py")

ENVIRONMENT = {"BAML_TEST_KEY": "none", "OPENAI_API_KEY": "none"}
TESTED = [one for one in functions() if one.tests]


def request(function: BamlFunction, texts: dict[str, str]) -> str:
    """Return the texts of the messages that BAML would send, one after the other."""
    return requested(function, function.sources(texts))


def requested(function: BamlFunction, sources: dict[str, str]) -> str:
    test = function.tests[0]
    compiled = CompiledProject.of(sources, folder=function.folder)
    sent = compiled.runtime.build_request_sync(
        function.name,
        arguments_of(function, test),
        compiled.runtime.create_context_manager(),
        compiled.type_builder(test.types),
        None,
        ENVIRONMENT,
        False,
    )
    return "\n".join(_said(one["content"]) for one in sent.body.json()["messages"])


def _said(content: str | list[dict[str, str]]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(one.get("text", one["type"]) for one in content)


WORD = "planted_text"


def planted(part: Part) -> str:
    is_name = part.kind in (PartKind.ALIAS, PartKind.LABEL)
    return WORD if is_name else f"{part.text} {WORD}".strip()


def unplanted(sent: str, part: Part) -> list[str]:
    """Return the lines of a request without what was planted in it."""
    is_name = part.kind in (PartKind.ALIAS, PartKind.LABEL)
    told = sent.replace(WORD, part.text) if is_name else sent.replace(f" {WORD}", "")
    # A description that was empty takes a line, or a colon, of its own.
    lines = (line.rstrip().removesuffix(" //").removesuffix(":") for line in told.splitlines())
    return [line for line in lines if line.strip() not in ("", "//", WORD)]


@pytest.mark.parametrize("function", TESTED, ids=lambda one: one.name)
def test_a_planted_text_stands_in_the_request_and_nothing_else_changes(
    function: BamlFunction,
) -> None:
    before = request(function, {})
    assert WORD not in before
    for part in function.parts:
        assert part.fault(planted(part)) == ""
        after = request(function, {part.key: planted(part)})
        assert WORD in after, part.key
        assert unplanted(after, part) == unplanted(before, part), part.key


@pytest.mark.parametrize("function", TESTED, ids=lambda one: one.name)
def test_one_file_of_a_candidate_asks_what_the_candidate_asks(function: BamlFunction) -> None:
    texts = {part.key: planted(part) for part in function.parts if "alias" not in part.key}
    assert requested(function, {"0.baml": function.alone(texts)}) == request(function, texts)


def test_the_request_is_the_prompt_with_the_new_words() -> None:
    function = load_function("ExtractReceipt", PROJECT)
    [prompt] = [part for part in function.parts if part.key == "prompt"]
    told = prompt.text.replace("You read receipts.", 'You\n  read "them"#, {{ and {% { {# too.')
    before, after = request(function, {}), request(function, {"prompt": told})
    assert after == before.replace("You read receipts.", 'You\n  read "them"#, {{ and {% { {# too.')


def test_an_alias_is_what_the_answer_is_read_by() -> None:
    function = load_function("ExtractReceipt", PROJECT)
    texts = {"alias-receipt-merchant": "shop"}
    compiled = CompiledProject.of(function.sources(texts), folder=PROJECT)
    answer = json.dumps({"shop": "Bakery", "sum": 2.5, "items": []})
    assert compiled.parsed("ExtractReceipt", answer) == {
        "merchant": "Bakery",
        "total": 2.5,
        "currency": None,
        "items": [],
    }


@pytest.mark.parametrize(
    ("key", "text", "fault"),
    [
        ("prompt", "Read {{ text }}.", "lost"),
        ("prompt", "{TEXT} {{ secret }}", "added `{{ secret }}`"),
        ("prompt", "{TEXT} {% for x in text %}", "added `{% for x in text %}`"),
        ("prompt", "{TEXT} {# a comment #}", "added"),
        ("prompt", '{TEXT} "#####', 'before five "#"'),
        ("prompt", "{ctx.output_format } {TEXT}", ""),
        ("alias-receipt-total", "grand total", "expected a name"),
        ("alias-receipt-total", 'x") @assert({{ false }}', "expected a name"),
        ("alias-receipt-total", "merchant", "is the name of another member"),
        ("alias-receipt-total", "grand_total", ""),
        ("about-receipt-total", "In dollars\n{{ ctx }} and }}", ""),
        ("about-receipt-total", 'a "##### b', 'before five "#"'),
    ],
)
def test_what_cannot_stand_in_a_part_is_refused_in_one_line(
    key: str, text: str, fault: str
) -> None:
    function = load_function("ExtractReceipt", PROJECT)
    [part] = [one for one in function.parts if one.key == key]
    found = part.fault(text.replace("{TEXT}", part.text))
    assert (fault in found and "\n" not in found) if fault else found == ""


@pytest.mark.parametrize(
    "text",
    [
        "{{ " + '"a" ' * 100_000,
        "{% " + "'a' " * 100_000,
        "{{ " + r"\"" * 100_000,
        "{{ " * 100_000 + '"}}"',
        "{# " * 100_000,
        "{% raw %}" * 50_000,
    ],
    ids=["quotations", "apostrophes", "escapes", "braces", "comments", "raw"],
)
def test_texts_of_models_are_searched_for_tags_in_linear_time(text: str) -> None:
    function = load_function("ExtractReceipt", PROJECT)
    [part] = [one for one in function.parts if one.key == "prompt"]
    # Each of these takes minutes, or for ever, if it is searched again from every place.
    assert part.fault(f"{part.text} {text}") == ""
    assert "lost" in part.fault(text)


def test_blocks_keep_their_order() -> None:
    function = load_function("ExtractReceipt", PROJECT)
    [part] = [one for one in function.parts if one.key == "prompt"]
    moved = part.text.replace("{{ text }}", "").replace("You read", "{{ text }}\nYou read")
    assert "order" in part.fault(moved)


def test_types_of_arguments_change_only_when_they_are_asked_for() -> None:
    keys = {part.key for part in load_function("Search", PROJECT).parts}
    with_inputs = {part.key for part in load_function("Search", PROJECT, with_inputs=True).parts}
    assert "about-result-hits" in keys
    assert "about-query-words" not in keys
    assert with_inputs > keys
    assert "about-query-words" in with_inputs


_TEXTS = st.text(
    st.one_of(
        st.sampled_from("{}%#\"\\\n /@()[]'"),
        st.characters(codec="utf-8", exclude_categories=["C"]),
    ),
    min_size=1,
    max_size=40,
).map(str.strip)


_READ_ORDER = next(one for one in TESTED if one.name == "ReadOrder")


@settings(max_examples=25, deadline=None)
@given(_TEXTS)
@example("")
def test_every_text_that_is_not_refused_is_sent_as_it_is(text: str) -> None:
    function = _READ_ORDER
    parts = {part.key: part for part in function.parts}
    prompt = f"{text}\n{parts['prompt'].text}"
    if parts["prompt"].fault(prompt):
        return
    sent = request(function, {"prompt": prompt})
    # BAML itself leaves out blank lines at the beginning of a prompt.
    assert sent.startswith(f"{text}\n" if text else request(function, {})[:4])
    if text and not parts["about-order-state"].fault(text):
        said = request(function, {"about-order-state": text})
        assert all(line.strip() in said for line in text.split("\n"))


def test_a_write_keeps_comments_layout_and_line_breaks(tmp_path: Path) -> None:
    function = load_function("Crlfs", PROJECT)
    texts = {part.key: part.text for part in function.parts}
    changed = function.rewritten(
        {**texts, "prompt": texts["prompt"].replace("deeper", "low"), "about-crlfbed-second": "two"}
    )
    [(path, after)] = changed.items()
    before = path.read_bytes().decode()
    assert after == before.replace("deeper", "low").replace(
        "int?\r\n", 'int? @description("two")\r\n'
    )
