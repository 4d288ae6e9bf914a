"""What every wire format promises; the shapes of requests are those of the SDKs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.wire_world import CASES, Call, WireCase, noted, sent
from agent_prompts import SOURCE, in_memory, write_all
from promptgraft.adapters.base import Usage
from promptgraft.adapters.calling.turns import Finish, ToolAnswer, UnreadableTurnError
from promptgraft.ground.serde import Json
from servers.shapes import misfit

EACH = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@EACH
@pytest.mark.parametrize("native", [True, False], ids=["native", "text"])
def test_every_override_reaches_the_request(case: WireCase, native: bool, tmp_path: Path) -> None:
    store = in_memory(tmp_path)
    write_all(store, SOURCE.prompt(store))
    body = case.new(native).open(SOURCE.prompt(store).render())
    assert misfit(case.request, body) is None
    text = json.dumps(body)
    for words in (
        "Review Python code well.",
        "Search every file.",
        "A word of the code.",
        "FIXME",
        "Find injected SQL.",
        "Find leaked keys.",
        "How urgent it is.",
        "urgency",
        "Can wait.",
    ):
        assert words in text, words
    assert "Find cross-site scripting." not in text
    assert text.count("FIXME") == 1


@EACH
@settings(max_examples=50)
@given(text=st.text())
def test_any_text_survives_into_the_body(case: WireCase, text: str) -> None:
    message = sent(case.new(True).open(noted(text)))[case.messages][-1]
    shown = text.strip("\n")
    content = f"## Note\n\n{shown}" if shown else "## Note"
    assert message == {"role": "user", "content": content}


@EACH
def test_half_characters_are_replaced(case: WireCase) -> None:
    message = sent(case.new(True).open(noted("a\ud800b \ud83d\ude00")))[case.messages][-1]
    assert message["content"] == "## Note\n\na\ufffdb \U0001f600"


@EACH
def test_an_answer_is_read(case: WireCase) -> None:
    turn = case.new(True).read(case.answer("one"))
    assert (turn.text, turn.finish, turn.requests, turn.model) == ("one", Finish.DONE, (), "m-1")
    assert turn.usage == Usage(input_tokens=18, output_tokens=2, cached_tokens=5)


@EACH
@pytest.mark.parametrize("calls", [(), (Call(1),)], ids=["text", "calls"])
def test_an_answer_that_is_cut_says_so(case: WireCase, calls: tuple[Call, ...]) -> None:
    assert case.new(True).read(case.answer("one", *calls, cut=True)).finish is Finish.LENGTH


@EACH
def test_servers_that_count_nothing_are_read(case: WireCase) -> None:
    body = case.answer("one")
    del body["usage"], body["model"]
    turn = case.new(True).read(body)
    assert (turn.text, turn.usage, turn.model) == ("one", Usage(), "m")


@EACH
def test_calls_are_answered_after_the_turn_as_it_was(case: WireCase) -> None:
    wire = case.new(True)
    first = wire.open(SOURCE.prompt().render())
    answer = case.answer("hm", Call(1, '{"query": "é"}'), Call(2))
    turn = wire.read(answer)
    assert turn.finish is Finish.TOOLS
    assert [json.loads(request.arguments) for request in turn.requests] == [{"query": "é"}, {}]
    answers = [
        ToolAnswer(request=turn.requests[0], content="no such file", failed=True),
        ToolAnswer(request=turn.requests[1], content="found"),
    ]
    body = wire.extend(first, turn, answers)
    assert misfit(case.request, body) is None
    assert sent(body)[case.messages] == [
        *sent(first)[case.messages],
        *case.repeated(answer),
        *case.replies(answers),
    ]
    assert {**body, case.messages: 0} == {**first, case.messages: 0}
    assert sent(first) == sent(wire.open(SOURCE.prompt().render()))


@pytest.mark.parametrize("name", ["chat", "responses"])
def test_arguments_that_are_no_json_are_passed_on_as_they_are(name: str) -> None:
    case = CASES[name]
    [request] = case.new(True).read(case.answer("", Call(1, '{"query": "é"'))).requests
    assert request.arguments == '{"query": "é"'


@EACH
def test_results_of_tools_may_hold_half_characters(case: WireCase) -> None:
    wire = case.new(True)
    turn = wire.read(case.answer("", Call(1)))
    result = ToolAnswer(request=turn.requests[0], content="a\ud800b")
    body = wire.extend(wire.open(SOURCE.prompt().render()), turn, [result])
    assert "a\ufffdb" in json.dumps(sent(body), ensure_ascii=False)


@EACH
@settings(max_examples=50)
@given(arguments=st.dictionaries(st.text(), st.text() | st.integers() | st.none(), max_size=4))
def test_any_arguments_of_a_tool_are_read(case: WireCase, arguments: dict[str, Json]) -> None:
    [request] = case.new(True).read(case.answer("", Call(1, json.dumps(arguments)))).requests
    assert json.loads(request.arguments) == arguments


@EACH
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"error": {"message": "Overloaded", "type": "server_error"}},
        {"choices": [], "output": 1, "content": "text", "status": "completed", "type": "ping"},
    ],
)
def test_what_is_no_answer_cannot_be_read(case: WireCase, body: dict[str, Json]) -> None:
    with pytest.raises(UnreadableTurnError, match="does not have the shape of one"):
        case.new(True).read(body)


@EACH
def test_the_part_of_a_request_that_may_be_cached_does_not_depend_on_the_case(
    case: WireCase,
) -> None:
    wire = case.new(True)
    one, other = (wire.stable(wire.open(noted(note))) for note in ("one", "other"))
    assert one == other
    assert "Be kind." in json.dumps(one)
