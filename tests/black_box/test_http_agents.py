"""Agents that are services: what they are sent, how replies are read, and what faults become."""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import attrs
import pytest

from black_box.asking import asked
from black_box.service import Reply, Service, said, serving
from promptgraft import BlackBox, Cancellation, Case, Deadline, EventBus, HttpAgent, Session
from promptgraft.adapters.base import CallWaiting, ToolInvoked
from promptgraft.errors import (
    AgentFaultError,
    ConfigError,
    DeadlineExceededError,
    PermanentProviderError,
    PromptgraftError,
    RateLimitedError,
    RunCancelledError,
    TransientProviderError,
)
from promptgraft.evals import metrics
from promptgraft.evals.evaluate import evaluate
from promptgraft.evals.types import SCENARIO, Message, Speaker, Turn
from promptgraft.ground.serde import Json
from promptgraft.testing import FakeClock

BODY: dict[str, Json] = {"q": "{query}", "prompt": "{texts.system}"}


@pytest.fixture
def service() -> Iterator[Service]:
    with serving(lambda body, _: said({"final_text": f"{body['prompt']} {body['q']}"})) as found:
        yield found


def agent(service: Service, **settings: Any) -> HttpAgent:
    return HttpAgent(**{"url": service.url, "json": BODY, "answer": "$.final_text", **settings})


def test_a_service_is_sent_the_query_and_the_texts_and_answers_with_a_place_of_its_json(
    service: Service,
) -> None:
    assert asked(agent(service)).text == "Be brief. how many?"
    assert service.asked[0][0] == {"q": "how many?", "prompt": "Be brief."}


PLAYED: Json = {"starting_prompt": "Hi", "conversation_plan": "Ask where."}
PASSAGES = Case(id="c1", input={"question": "Where?", "passages": ["A.", "B."], "k": 2})


def test_a_field_of_the_input_is_sent_by_its_name(service: Service) -> None:
    body: Json = {
        "prompt": "{texts.system}",
        "q": "{input.question}",
        "passages": "{input.passages}",
        "line": "{input.k} of {input.passages}",
        "whole": "{input}",
    }
    asked(agent(service, json=body), PASSAGES)
    [(sent, _)] = service.asked
    assert sent == {
        "prompt": "Be brief.",
        "q": "Where?",
        "passages": ["A.", "B."],
        "line": '2 of ["A.","B."]',
        "whole": PASSAGES.input,
    }


@pytest.mark.parametrize(
    ("case", "found"),
    [
        (PASSAGES, r"has `question`, `passages`, `k` \(did you mean `question`\?\)"),
        (Case(id="c1", input="Where?"), "is no object"),
        (Case(id="c1", input="", turns=(Turn(user="Where?"),)), "is no object"),
        # A simulated user writes texts, whatever the case asks.
        (Case(id="c1", input={"questio": "Where?"}, fields={SCENARIO: PLAYED}), "is no object"),
    ],
)
def test_a_field_that_an_input_lacks_is_refused_before_a_call(
    service: Service, case: Case, found: str
) -> None:
    lacking = agent(service, json={**BODY, "q": "{input.questio}"})
    box = BlackBox({"system": "Be brief."}, agent=lacking)
    case = attrs.evolve(case, expected="Here.")
    with pytest.raises(ConfigError, match=f"names the field `questio` of the input, which {found}"):
        evaluate(box.prompt, [case], [metrics.exact()], adapter=box.adapter)
    assert not service.asked


def test_what_is_asked_fills_its_places_and_is_not_looked_at_again(service: Service) -> None:
    body = {
        **BODY,
        "id": "{session_id}",
        "turn": "{turn}",
        "past": "{history}",
        "context": "{context}",
        "state": "{state}",
        "line": '{example}: {query} {state} {other} {"query"}',
        "deep": [{"q": "{query}"}, 5, None],
    }
    case = Case(
        id="c7",
        input="{texts.skill} ${HOME}",
        state={"user": "u1"},
        context=(Message(Speaker.USER, "hi"),),
    )
    asked(agent(service, json=body), case)
    [(sent, _)] = service.asked
    assert len(sent.pop("id")) == 32
    assert sent == {
        "q": "{texts.skill} ${HOME}",
        "prompt": "Be brief.",
        "turn": 0,
        "past": [],
        "context": [{"speaker": "user", "text": "hi"}],
        "state": {"user": "u1"},
        "line": 'c7: {texts.skill} ${HOME} {"user":"u1"} {other} {"query"}',
        "deep": [{"q": "{texts.skill} ${HOME}"}, 5, None],
    }


def test_texts_travel_in_headers_too_and_secrets_come_back_to_nobody(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DESK_KEY", "desk-secret-0123456789")
    headers = {"Authorization": "Bearer ${DESK_KEY}", "X-Skill": "{texts.skill}"}
    service.brain = lambda _, headers: said({"final_text": f"you sent {headers['Authorization']}"})
    found = agent(service, headers=headers)
    assert asked(found).text == "you sent Bearer [secret]"
    assert service.asked[0][1]["X-Skill"] == "Count."
    service.brain = lambda _, headers: said({"error": headers["Authorization"]}, 400)
    with pytest.raises(AgentFaultError, match=r"status 400: .*\[secret\]") as raised:
        asked(found)
    told = f"{raised.value!r} {found!r} {found.identity} {found.name}"
    assert "desk-secret" not in told
    monkeypatch.delenv("DESK_KEY")
    with pytest.raises(ConfigError, match="DESK_KEY is not set"):
        asked(found)


def test_tools_are_read_from_their_place(service: Service) -> None:
    service.brain = lambda *_: said(
        {"final_text": "ok", "calls": [{"name": "book", "args": {"day": 1}, "result": 5}]}
    )
    session = Session()
    found = agent(service, tools="$.calls")
    assert found.reports_tools
    asked(found, session=session)
    assert session.select_all(ToolInvoked) == (
        ToolInvoked(name="book", params={"day": 1}, result=5),
    )


BOOKED = [ToolInvoked(name="book", params={"day": 1}, result=None)]
DAY = '{"day": 1}'
CALLS = {
    "OpenAI": {
        "id": "1",
        "type": "function",
        "function": {"name": "book", "arguments": DAY},
    },
    "Responses": {
        "type": "function_call",
        "call_id": "1",
        "name": "book",
        "arguments": DAY,
    },
    "Anthropic": {"type": "tool_use", "id": "1", "name": "book", "input": {"day": 1}},
    "Bedrock": {"toolUse": {"toolUseId": "1", "name": "book", "input": {"day": 1}}},
    "Gemini": {"functionCall": {"name": "book", "args": {"day": 1}}},
    "Cohere": {"name": "book", "parameters": {"day": 1}},
    "LangChain": {"name": "book", "args": {"day": 1}, "id": "1", "type": "tool_call"},
    "an action of LangChain": {"tool": "book", "tool_input": {"day": 1}, "log": "I book."},
    "pydantic-ai": {"tool_name": "book", "args": DAY, "part_kind": "tool-call"},
    "the AI SDK": {"type": "tool-call", "toolCallId": "1", "toolName": "book", "input": {"day": 1}},
    "a text of arguments": {"name": "book", "args": DAY},
    "DeepEval": {"name": "book", "inputParameters": {"day": 1}},
    "ReAct": {"action": "book", "action_input": {"day": 1}},
    "events": {"time": 12.5, "tool": "book", "args": {"day": 1}, "node": "desk"},
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_calls_of_tools_are_read_as_others_write_them(service: Service, call: Json) -> None:
    for path, value in (("$.calls", [call]), ("$.calls", call), ("$.steps[*].call", call)):
        session = Session()
        steps: Json = [{"call": value}, {"call": None}, {}]
        service.brain = lambda *_, got=value, some=steps: said(
            {"final_text": "ok", "calls": got, "steps": some}
        )
        asked(agent(service, tools=path), session=session)
        assert [*session.select_all(ToolInvoked)] == BOOKED


def test_a_call_without_arguments_may_have_a_description(service: Service) -> None:
    call: Json = {"name": "refresh", "description": "Reads all again.", "result": "done"}
    service.brain = lambda *_: said({"final_text": "ok", "calls": [call]})
    session = Session()
    asked(agent(service, tools="$.calls"), session=session)
    [use] = session.select_all(ToolInvoked)
    assert (use.name, use.result) == ("refresh", "done")


@pytest.mark.parametrize("more", [{}, {"calls": None}, {"calls": []}])
def test_an_agent_that_leaves_its_calls_out_has_called_nothing(
    service: Service, more: dict[str, Json]
) -> None:
    service.brain = lambda *_: said({"final_text": "ok", **more})
    session = Session()
    assert asked(agent(service, tools="$.calls"), session=session).text == "ok"
    assert [*session.select_all(ToolInvoked)] == []


@pytest.mark.parametrize(
    "calls",
    [
        *([{"args": {}}], ["book"], "book", 3, {"day": 1}),
        [{"name": "book", "description": "Books.", "input_schema": {"type": "object"}}],
        [{"name": "book", "parameters": {"type": "object", "properties": {}}}],
    ],
)
def test_something_else_than_calls_of_tools_ends_the_run(service: Service, calls: Json) -> None:
    service.brain = lambda *_: said({"final_text": "ok", "calls": calls})
    with pytest.raises(PermanentProviderError) as caught:
        asked(agent(service, tools="$.calls"))
    assert "expected calls of tools at `$.calls` of its replies, such as `{" in str(caught.value)
    assert str(caught.value).endswith("; mend the path in `tools`")


def test_arguments_that_a_model_has_broken_are_a_fault_of_the_answer(service: Service) -> None:
    call = {"function": {"name": "book", "arguments": '{"day": '}}
    service.brain = lambda *_: said({"final_text": "ok", "calls": [call]})
    with pytest.raises(AgentFaultError, match=r"tools in the agent's reply: \[0\].arguments: exp"):
        asked(agent(service, tools="$.calls"))


@pytest.mark.parametrize(
    ("reply", "kind", "line"),
    [
        (said({}, 429, Retry_After="9999"), RateLimitedError, "answered with status 429: {}"),
        (said({}, 500), TransientProviderError, "answered with status 500"),
        (said({}, 503, Retry_After="9999"), TransientProviderError, "answered with status 503"),
        (said({}, 408), TransientProviderError, "answered with status 408"),
        (said("no key", 401), PermanentProviderError, 'refuses with status 401: "no key"'),
        (said({}, 404), PermanentProviderError, "404: {}; check its `url` and `headers`"),
        (said({}, 302, Location="/"), PermanentProviderError, "redirect 302, which is not"),
        (said("too long", 422), AgentFaultError, 'the agent answered with status 422: "too long"'),
        ((200, b"plain", {}), AgentFaultError, "found 'plain'; without `answer`, the whole"),
        (
            (200, b'{"delta": "a"}\n{"final_text": "a"}\n', {}),
            AgentFaultError,
            "'; turn it off, often with `stream: false` in `json`",
        ),
        (said({"text": 1}), AgentFaultError, "expected one value at `$.final_text` of the agent's"),
        (said([]), AgentFaultError, "expected one value at `$.final_text`"),
        ((200, b"{}", {"Content_Length": "90"}), TransientProviderError, "IncompleteRead"),
        (said({"final_text": None, "error": "no model"}), TransientProviderError, "no model"),
        (said({"error": {"code": 502}}), TransientProviderError, 'an error: \'{"code":502}'),
        (
            (200, b"<!doctype html><title>Sign in</title>", {"Content_Type": "text/html"}),
            PermanentProviderError,
            "with a page of HTML: '<!doctype html><title>Sign in</title>'; check its `url`",
        ),
        (
            (200, b"data: {}\n\n", {"Content_Type": "Text/Event-Stream; charset=utf-8"}),
            AgentFaultError,
            "found a stream of events: 'data: {}\\n\\n'; turn it off, often with `stream: false`",
        ),
    ],
)
def test_each_reply_that_is_no_answer_has_its_consequence(
    service: Service, reply: Any, kind: type[PromptgraftError], line: str
) -> None:
    service.brain = lambda *_: reply
    with pytest.raises(kind) as raised:
        asked(agent(service))
    assert line in str(raised.value)
    assert len(service.asked) == 1


@pytest.mark.parametrize("status", [429, 503])
def test_a_service_that_is_too_busy_is_asked_again_when_it_says(
    service: Service, status: int
) -> None:
    def busy_twice(*_: object) -> Reply:
        if len(service.asked) < 3:
            return said({}, status, Retry_After="0.01")
        return said({"final_text": "4"})

    service.brain = busy_twice
    assert asked(agent(service)).text == "4"
    assert len(service.asked) == 3


def test_a_service_that_never_answered_is_soon_given_up(service: Service) -> None:
    service.brain = lambda *_: said({}, 503, Retry_After="0.01")
    patient = agent(service)
    for requests in (8, 8 + 2):
        with pytest.raises(TransientProviderError):
            asked(patient)
        assert len(service.asked) == requests

    service.brain = lambda *_: said({"final_text": "4"})
    asked(patient)
    service.brain = lambda *_: said({}, 503, Retry_After="0.01")
    with pytest.raises(TransientProviderError):
        asked(patient)
    assert len(service.asked) == 8 + 2 + 1 + 8


def test_a_service_that_limits_requests_is_there_and_is_not_given_up_sooner(
    service: Service,
) -> None:
    service.brain = lambda *_: said({}, 429, Retry_After="0.01")
    patient = agent(service)
    for requests in (8, 8 + 8):
        with pytest.raises(RateLimitedError):
            asked(patient)
        assert len(service.asked) == requests


class Advancing(FakeClock):
    """A clock that is late once it was asked for the date, as it is after a reply."""

    def now(self) -> datetime:
        self.advance(19.9)
        return super().now()


@pytest.mark.parametrize("seconds", ["30", "0"])
def test_a_wait_that_the_time_limit_does_not_allow_is_not_begun(
    service: Service, seconds: str
) -> None:
    service.brain = lambda *_: said({}, 429, Retry_After=seconds)
    with pytest.raises(RateLimitedError):
        asked(agent(service, timeout=20), deadline=Deadline(clock=Advancing()))
    assert len(service.asked) == 1


def test_a_wait_for_a_busy_service_is_announced_and_ends_with_the_run(service: Service) -> None:
    cancellation, notices = Cancellation(), EventBus()
    waits: list[CallWaiting] = []
    notices.subscribe(CallWaiting, waits.append)
    notices.subscribe(CallWaiting, lambda _: cancellation.set("enough"))
    service.brain = lambda *_: said({}, 503, Retry_After="60")
    with pytest.raises(RunCancelledError, match="enough"):
        asked(
            agent(service),
            session=Session(notices=notices),
            deadline=Deadline(cancellation=cancellation),
        )
    [wait] = waits
    assert (wait.seconds, wait.reason) == (60, "status 503")
    assert len(service.asked) == 1


def test_an_error_beside_an_answer_is_no_error(service: Service) -> None:
    service.brain = lambda *_: said({"final_text": "4", "error": "slow"})
    assert asked(agent(service)).text == "4"
    service.brain = lambda *_: said({"final_text": None, "error": None})
    assert asked(agent(service)).text == "null"


def test_data_in_the_place_of_a_text_is_kept_as_output(service: Service) -> None:
    service.brain = lambda *_: said({"final_text": {"n": 4}})
    response = asked(agent(service))
    assert (response.text, response.output) == ('{"n":4}', {"n": 4})


def test_without_a_place_the_whole_body_is_the_answer(service: Service) -> None:
    service.brain = lambda *_: (200, b"plain \xff", {})
    assert asked(agent(service, answer=None)).text == "plain \ufffd"


CONTENT: list[Json] = [{"type": "text", "text": "4"}]
WHOLE: tuple[dict[str, Json], ...] = (
    {"object": "chat.completion", "choices": [{"message": {"content": "4"}}]},
    {"object": "response", "output": [{"type": "reasoning"}, {"content": CONTENT}]},
    {"type": "message", "role": "assistant", "content": CONTENT},
)


@pytest.mark.parametrize("reply", WHOLE, ids=["chat", "responses", "messages"])
def test_the_whole_reply_of_a_model_is_no_answer(service: Service, reply: Json) -> None:
    service.brain = lambda *_: said(reply)
    with pytest.raises(AgentFaultError, match="the whole reply of a model") as caught:
        asked(agent(service, answer=None))
    # The place that it names is that of the answer.
    place = str(caught.value).partition("`answer: ")[2].strip("`")
    assert asked(agent(service, answer=place)).text == "4"


JSON_BODY = b'{"final_text": "caf\xc3\xa9"}'
PACKED = gzip.compress(JSON_BODY)


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (PACKED, {"Content_Encoding": "gzip"}),
        (b"\xef\xbb\xbf" + JSON_BODY, {}),
        (JSON_BODY.decode().encode("latin-1"), {"Content_Type": "text/json; charset=ISO-8859-1"}),
        (JSON_BODY, {"Content_Type": "application/json; charset=nonsense"}),
        (JSON_BODY, {"Content_Type": "application/json; charset=Undefined"}),
    ],
    ids=["gzip", "byte order mark", "another charset", "an unknown charset", "no charset"],
)
def test_a_reply_is_read_as_its_headers_say(
    service: Service, body: bytes, headers: dict[str, str]
) -> None:
    service.brain = lambda *_: (200, body, headers)
    assert asked(agent(service)).text == "caf\u00e9"


@pytest.mark.parametrize(
    ("body", "coding", "line"),
    [
        (JSON_BODY, "br", "the reply is compressed as 'br'; turn that off"),
        (JSON_BODY, "gzip", "expected a reply in gzip, whole"),
        (PACKED[:-9], "gzip", "expected a reply in gzip, whole"),
        (gzip.compress(bytes(20_000_000)), "gzip", "whole and of at most 10,000,000 bytes"),
    ],
    ids=["another coding", "not compressed", "cut off", "a bomb"],
)
def test_a_reply_that_cannot_be_unpacked_is_the_agents_fault(
    service: Service, body: bytes, coding: str, line: str
) -> None:
    service.brain = lambda *_: (200, body, {"Content_Encoding": coding})
    with pytest.raises(AgentFaultError, match=line):
        asked(agent(service))


@pytest.mark.parametrize("value", ["host:abc", "[host", "h\u00f6st/?q=\n", "a..b", "host/?q=a b"])
def test_an_address_that_its_variables_spoil_ends_the_run_and_is_not_shown(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DESK_HOST", value)
    with pytest.raises(ConfigError, match="url: with its variables it is no address") as raised:
        asked(HttpAgent(url="http://${DESK_HOST}/ask", json=BODY))
    assert value not in str(raised.value)


def test_a_refused_connection_is_unscored() -> None:
    with socket.socket() as taken:  # so that no other test listens there
        taken.bind(("127.0.0.1", 0))
        found = HttpAgent(url=f"http://127.0.0.1:{taken.getsockname()[1]}/", json=BODY)
        said = "cannot be reached: ConnectionRefused.*; start it, or mend its `url`$"
        with pytest.raises(TransientProviderError, match=said):
            asked(found)


def test_a_service_that_drips_is_left_at_the_time_limit_and_when_the_run_ends() -> None:
    stop = threading.Event()

    def drip(server: socket.socket) -> None:
        while not stop.is_set():
            try:
                wire, _ = server.accept()
            except OSError:
                return
            with wire:
                wire.sendall(b"HTTP/1.1 200 OK\r\n")
                while not stop.wait(0.005):
                    try:
                        wire.sendall(b"X-Header: y\r\n"[:1])
                    except OSError:
                        break

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=drip, args=(server,))
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        try:
            with pytest.raises(TransientProviderError, match=r"did not answer within 0\.05 s"):
                asked(HttpAgent(url=url, json=BODY, timeout=0.05))
            with pytest.raises(DeadlineExceededError):
                asked(HttpAgent(url=url, json=BODY), deadline=Deadline.after(0.05))
            cancellation = Cancellation()
            threading.Timer(0.05, cancellation.set, ["enough"]).start()
            # With its usual limit it would be left all the same, two minutes later.
            patient = HttpAgent(url=url, json=BODY, timeout=3_600)
            with pytest.raises(RunCancelledError, match="enough"):
                asked(patient, deadline=Deadline(cancellation=cancellation))
        finally:
            stop.set()
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"url": "localhost:8000"}, "url: expected an address such as http://localhost:8000/ask"),
        ({"url": "http://host/caf\u00e9"}, "url: expected an address such as"),
        ({"url": "http://host/?q=a b"}, "url: expected an address such as"),
        ({"url": "http://a..b/"}, "url: expected an address such as"),
        ({"url": "http://me:pw@host/"}, "url: give user and password as a header"),
        ({"url": "http://host/{query}"}, "url: places such as `{query}` are for `json`"),
        ({"json": {"q": "{query}"}}, "contains `{texts.NAME}`, so the texts of a candidate"),
        ({"json": {"p": "{texts.system}"}}, "nothing in it contains `{query}`, or `{input.NAME}`"),
        ({"json": {"q": "{qeury}"}}, "json: there is no place `{qeury}` (did you mean `query`?)"),
        ({"json": {"q": "{texts.skil}"}}, "no text `skil` (did you mean `skill`?); texts:"),
        ({"json": {"q": "{query} {folder}"}}, "`{folder}` is the copy that the delivery `folder`"),
        ({"answer": "$.a["}, "expected a path such as `items[0].price`"),
        ({"timeout": 0}, "timeout: expected seconds above 0, found 0"),
        ({"headers": ["A"]}, "headers: expected values by name, found ['A']"),
        ({"headers": {"A\nB": "x"}}, "headers: expected the name of a header such as X-Team"),
        ({"headers": {"": "x"}}, "headers: expected the name of a header such as X-Team"),
        ({"headers": {"A": "x\r\nB: y"}}, "headers.A: expected printable ASCII characters"),
        ({"headers": {"A": "caf\u00e9"}}, "headers.A: expected printable ASCII characters"),
        ({"headers": {"A": 5}}, "headers.A: expected printable ASCII characters"),
    ],
)
def test_a_service_that_cannot_be_asked_is_refused(settings: dict[str, Any], line: str) -> None:
    given = {"url": "http://127.0.0.1:1/", "json": BODY, **settings}
    with pytest.raises(ConfigError) as raised:
        BlackBox({"system": "x", "skill": "y"}, agent=HttpAgent(**given))
    assert line in str(raised.value)
