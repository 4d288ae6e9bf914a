"""Replies of agent frameworks, whose calls of tools a question shows with what they answered."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from black_box.asking import TEXTS, asked
from integrations.test_sdk_replies import like, returned
from promptgraft import Case, ScriptedAdapter, Session, Texts, optimize
from promptgraft.adapters.base import ToolInvoked
from promptgraft.agents import CommandAgent
from promptgraft.errors import AgentFaultError, CallerError
from promptgraft.evals.histories import is_history, since_last_question, tools_in, tools_of_history
from promptgraft.evals.types import Turn
from promptgraft.ground.serde import Json, canonical_json
from promptgraft.targets.formatting import default_trace_formatter
from promptgraft.targets.functions import response_with


def of_langgraph() -> Any:
    messages = pytest.importorskip("langchain_core.messages")
    call = {"name": "look", "args": {"order": 7}, "id": "a"}
    wrong = {"name": "look", "args": {"order": 8}, "id": "b"}
    return {
        "messages": [
            messages.HumanMessage("?"),
            messages.AIMessage("", tool_calls=[call, wrong]),
            # An artifact may be anything.
            messages.ToolMessage(
                "no such order", tool_call_id="b", status="error", artifact=object()
            ),
            messages.ToolMessage("lost", tool_call_id="a", name="look"),
            messages.AIMessage("yes"),
        ]
    }


def of_pydantic_ai() -> Any:
    ai = pytest.importorskip("pydantic_ai")
    said = importlib.import_module("pydantic_ai.messages")
    function = importlib.import_module("pydantic_ai.models.function").FunctionModel
    orders = [7, 8]

    def model(messages: Any, info: Any) -> Any:
        part = (
            said.ToolCallPart("look", {"order": orders.pop(0)}) if orders else said.TextPart("yes")
        )
        return said.ModelResponse(parts=[part])

    agent = ai.Agent(function(model))

    @agent.tool_plain(retries=2)  # type: ignore[untyped-decorator]
    def look(order: int) -> str:
        if order == 8:
            raise ai.ModelRetry("no such order")
        return "lost"

    return asyncio.run(agent.run("?"))


def of_agents() -> Any:
    sdk = pytest.importorskip("agents")
    items = importlib.import_module("agents.items")
    calls = importlib.import_module("openai.types.responses").ResponseFunctionToolCall
    agent = sdk.Agent(name="a")
    called = [
        calls(type="function_call", id=f"fc_{n}", call_id=f"{n}", name="look", arguments=arguments)
        for n, arguments in enumerate(['{"order": 7}', '{"order": 8}'])
    ]
    outputs: list[Any] = [
        {"type": "function_call_output", "call_id": "0", "output": "lost"},
        {"type": "function_call_output", "call_id": "1", "output": {"error": "no such order"}},
    ]
    reply = sdk.RunResult.__new__(sdk.RunResult)
    reply.final_output = "yes"
    reply.new_items = [
        *(items.ToolCallItem(agent=agent, raw_item=call) for call in called),
        *(items.ToolCallOutputItem(agent=agent, raw_item=said, output="") for said in outputs),
    ]
    return reply


def of_smolagents() -> Any:
    def step(order: int, observations: str | None, error: str | None) -> Any:
        call: Any = {"id": f"{order}", "function": {"name": "look", "arguments": {"order": order}}}
        return {
            "step_number": 1,
            "model_input_messages": [{"role": "assistant", "tool_calls": ["of earlier steps"]}],
            # A call that was refused stands in the message only.
            "tool_calls": [] if error else [call],
            "model_output_message": {"role": "assistant", "content": "", "tool_calls": [call]},
            "observations": observations,
            "error": {"error": error} if error else None,
        }

    steps = [{"task": "?"}, step(7, "lost", None), step(8, None, "no such order")]
    return like("smolagents.agents", "RunResult", output="yes", steps=steps)


CALL = {"name": "look", "input": {"order": 7}}
WRONG = {"name": "look", "input": {"order": 8}}


def of_strands() -> Any:
    results = [
        {"toolUseId": "1", "status": "error", "content": [{"text": "no such order"}]},
        {"toolUseId": "0", "status": "success", "content": [{"text": "lost"}]},
    ]
    said: list[Any] = [
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": f"{n}", **call}}]}
        for n, call in enumerate((CALL, WRONG))
    ]
    said += [{"role": "user", "content": [{"toolResult": result}]} for result in results]
    children = [{"name": "a", "children": [], "message": message} for message in said]
    trace = like("strands", "Trace", to_dict=lambda _: {"name": "Cycle 1", "children": children})
    metrics = like("strands", "EventLoopMetrics", traces=[trace])
    return like("strands.agent", "AgentResult", __str__=lambda _: "yes", metrics=metrics)


def of_haystack() -> Any:
    class ChatMessage:
        __module__ = "haystack.dataclasses.chat_message"
        text = "yes"

        def __init__(self, *content: object) -> None:
            self._role, self._content = "assistant", content

    calls = [
        {"tool_name": "look", "arguments": {"order": order}, "id": f"{order}"} for order in (7, 8)
    ]
    last = ChatMessage()
    messages = [
        ChatMessage(*calls),
        ChatMessage({"result": "lost", "origin": calls[0], "error": False}),
        ChatMessage({"result": "no such order", "origin": calls[1], "error": True}),
        last,
    ]
    return {"messages": messages, "last_message": last}


def of_llama() -> Any:
    def source(order: int, answer: str, *, is_error: bool) -> Json:
        return {
            "tool_name": "look",
            "raw_input": {"args": [], "kwargs": {"order": order}},
            "blocks": [{"block_type": "text", "text": "its repr"}],
            "raw_output": answer,
            "is_error": is_error,
        }

    sources = [source(7, "lost", is_error=False), source(8, "no such order", is_error=True)]
    return like(
        "llama_index.core.chat_engine.types", "AgentChatResponse", response="yes", sources=sources
    )


def of_llama_workflow() -> Any:
    response = like("llama_index", "ChatMessage", content="yes")
    calls = [
        {
            "tool_name": "look",
            "tool_kwargs": {"order": order},
            "tool_id": f"{order}",
            "tool_output": {"raw_output": answer, "is_error": answer != "lost"},
        }
        for order, answer in ((7, "lost"), (8, "no such order"))
    ]
    return like("llama_index.core.agent", "AgentOutput", response=response, tool_calls=calls)


def of_agno() -> Any:
    tools = [
        {
            "tool_call_id": f"{order}",
            "tool_name": "look",
            "tool_args": {"order": order},
            "tool_call_error": answer != "lost",
            "result": answer,
        }
        for order, answer in ((7, "lost"), (8, "no such order"))
    ]
    return like("agno.run.agent", "RunOutput", content="yes", tools=tools)


def of_autogen() -> Any:
    calls = [
        {"id": f"{order}", "name": "look", "arguments": canonical_json({"order": order})}
        for order in (7, 8)
    ]
    results = [
        {"content": "no such order", "name": "look", "call_id": "8", "is_error": True},
        {"content": "lost", "name": "look", "call_id": "7", "is_error": False},
    ]
    messages = [
        like("autogen_agentchat", "Event", content=calls),
        like("autogen_agentchat", "Event", content=results),
        like("autogen_agentchat", "TextMessage", content="yes"),
    ]
    for message in messages:
        vars(message)["content"] = message.content
    return like("autogen_agentchat.base", "TaskResult", messages=messages)


class Event:
    """As Google's ADK yields them."""

    __module__ = "google.adk.events.event"

    def __init__(self, **part: Any) -> None:
        self.content = like("g", "Content", parts=[like("g", "Part", text=None, thought=None)])
        part = {"text": None, "thought": None, **part}
        self.content.parts[0].__dict__.update(part)
        self.content.__dict__["parts"] = self.content.parts


def of_adk() -> Any:
    return [
        Event(function_call={"id": "a", "name": "look", "args": {"order": 7}}),
        Event(function_response={"id": "a", "name": "look", "response": {"result": "lost"}}),
        Event(text="yes"),
    ]


REPLIES: Mapping[str, Callable[[], Any]] = {
    "LangGraph": of_langgraph,
    "messages of LangChain": lambda: of_langgraph()["messages"],
    "pydantic-ai": of_pydantic_ai,
    "Agents SDK": of_agents,
    "smolagents": of_smolagents,
    "Strands": of_strands,
    "Haystack": of_haystack,
    "LlamaIndex": of_llama,
    "LlamaIndex workflow": of_llama_workflow,
    "agno": of_agno,
    "AutoGen": of_autogen,
}
TRACE = """\
[look]
  params: {"order": 7}
  result: "lost"
[look]
  params: {"order": 8}
  result: {"error": "no such order"}"""


def session_of(reply: object) -> Session:
    """Return the session in which a function of the user returns a reply."""

    def run(texts: Mapping[str, str], query: str) -> object:
        return reply

    texts, session = Texts(TEXTS, run=run), Session()
    texts.adapter.evaluate(texts.prompt.bind("?"), session=session)
    return session


@pytest.mark.parametrize("name", REPLIES)
def test_a_reply_of_a_framework_shows_the_calls_of_tools(name: str) -> None:
    reply = REPLIES[name]()
    of_agent = Session()
    assert asked(lambda query, call: reply, session=of_agent).text == returned(reply).text == "yes"
    for session in (session_of(reply), of_agent):
        called = default_trace_formatter(session).replace('{"error": {"error"', '{"error"')
        assert called.replace('"}}', '"}') == TRACE


def test_events_of_the_adk_have_their_answer_and_calls() -> None:
    reply = of_adk()
    assert returned(reply).text == "yes"
    [use] = session_of(reply).select_all(ToolInvoked)
    assert (use.name, use.params, use.result) == ("look", {"order": 7}, {"result": "lost"})


def test_a_typed_answer_of_a_graph_is_the_answer() -> None:
    state = {**of_langgraph(), "structured_response": {"team": "billing"}}
    assert returned(state).output == {"team": "billing"}
    assert default_trace_formatter(session_of(state)) == TRACE


@pytest.mark.parametrize(
    "reply",
    [
        [{"name": "look", "arguments": {"order": 7}}],
        {"messages": [{"name": "look", "arguments": {}}]},
        {"messages": ["a"], "calls": [{"name": "look", "arguments": {}}]},
    ],
)
def test_calls_that_are_the_answer_were_not_made(reply: object) -> None:
    assert [*session_of(reply).select_all(ToolInvoked)] == []
    assert returned(reply).output == reply


@pytest.mark.parametrize(
    ("reply", "metric", "is_warned"),
    [
        ({"state": "lost", "cost": 1}, "exact", True),
        ("lost", "exact", False),
        ({"state": "paid", "n": 1}, "exact", True),
        ([{"state": "paid"}], "exact", True),
        ({"state": "lost"}, lambda case, answer: answer.text == case.expected, True),
        ({"state": "lost"}, lambda case, answer: answer.output["state"] == case.expected, False),
    ],
)
def test_objects_in_place_of_texts_are_told_before_the_search(
    reply: object, metric: Any, is_warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    asked_after: list[int] = []

    def propose(asked: object) -> str:
        asked_after.append(len(caplog.records))
        return "```instruction\nAnswer.\n```"

    with caplog.at_level("WARNING", "promptgraft"):
        optimize(
            Texts(TEXTS, run=lambda texts, query: reply, key="desk"),
            [(f"Where is {number}?", "paid") for number in range(20)],
            metric,
            reflection_model=ScriptedAdapter(propose),
            rollout_budget=60,
        )
    told = [number for number, line in enumerate(caplog.messages) if "they are data" in line]
    assert [number < asked_after[0] for number in told] == [True] * is_warned


def test_a_reply_that_lacks_its_history_still_answers() -> None:
    reply = like("smolagents.agents", "RunResult", output="yes")
    assert [*session_of(reply).select_all(ToolInvoked)] == []


def openai(order: int, call_id: str, answer: str) -> list[Json]:
    function: Json = {"name": "look", "arguments": canonical_json({"order": order})}
    call: Json = {"id": call_id, "type": "function", "function": function}
    return [
        {"role": "user", "content": f"Where is {order}?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": answer},
        {"role": "assistant", "content": f"It is {answer}."},
    ]


def anthropic(order: int, call_id: str, answer: str) -> list[Json]:
    use: Json = {"type": "tool_use", "id": call_id, "name": "look", "input": {"order": order}}
    text: Json = [{"type": "text", "text": answer}]
    result: Json = {"type": "tool_result", "tool_use_id": call_id, "content": text}
    return [
        {"role": "user", "content": f"Where is {order}?"},
        {"role": "assistant", "content": [{"type": "text", "text": "Let me see."}, use]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": [{"type": "text", "text": f"It is {answer}."}]},
    ]


def responses(order: int, call_id: str, answer: str) -> list[Json]:
    call: Json = {
        "type": "function_call",
        "id": "fc",
        "call_id": call_id,
        "name": "look",
        "arguments": canonical_json({"order": order}),
    }
    return [
        {"role": "user", "content": f"Where is {order}?"},
        call,
        {"type": "function_call_output", "call_id": call_id, "output": answer},
        {"role": "assistant", "content": f"It is {answer}."},
    ]


def gemini(order: int, call_id: str, answer: str) -> list[Json]:
    call: Json = {"functionCall": {"name": "look", "args": {"order": order}}}
    result: Json = {"functionResponse": {"name": "look", "response": {"output": answer}}}
    return [
        {"role": "user", "parts": [{"text": f"Where is {order}?"}]},
        {"role": "model", "parts": [call]},
        {"role": "user", "parts": [result]},
        {"role": "model", "parts": [{"text": f"It is {answer}."}]},
    ]


def ai_sdk(order: int, call_id: str, answer: str) -> list[Json]:
    call: Json = {
        "type": "tool-look",
        "toolCallId": call_id,
        "state": "output-available",
        "input": {"order": order},
        "output": answer,
    }
    return [
        {"role": "user", "parts": [{"type": "text", "text": f"Where is {order}?"}]},
        {"role": "assistant", "parts": [call, {"type": "text", "text": f"It is {answer}."}]},
    ]


FORMS = [openai, anthropic, responses, gemini, ai_sdk]


@pytest.mark.parametrize("form", FORMS)
def test_a_history_pairs_calls_with_what_the_tools_answered(
    form: Callable[[int, str, str], list[Json]],
) -> None:
    history = [*form(7, "a", "lost"), *form(8, "b", "here")]
    uses = [(use.arguments, use.result) for use in tools_of_history(history)]
    here: Json = "here" if form is not gemini else {"output": "here"}
    lost: Json = "lost" if form is not gemini else {"output": "lost"}
    assert uses == [({"order": 7}, lost), ({"order": 8}, here)]


@pytest.mark.parametrize("form", FORMS)
def test_an_agent_may_answer_with_its_whole_history(
    form: Callable[[int, str, str], list[Json]],
) -> None:
    first, second = form(7, "a", "lost"), form(8, "b", "here")
    histories = [canonical_json({"m": said, "a": "x"}) for said in (first, [*first, *second])]
    program = "import sys; print(sys.argv[int(sys.argv[1]) + 2])"
    texts = "{query}{texts.system}{texts.skill}"
    agent = CommandAgent(
        command=("python3", "-c", program, "{turn}", *histories, texts),
        answer="$.a",
        tools="$.m",
    )
    turns = (Turn(user="Where is 7?"), Turn(user="Where is 8?"))
    session = Session()
    asked(agent, Case(id="a", input="", turns=turns), session=session)
    # Those of the first turn stand in the history of the second one, too.
    assert [use.params for use in session.select_all(ToolInvoked)] == [{"order": 7}, {"order": 8}]


def test_a_server_may_number_the_calls_of_each_reply_anew() -> None:
    history = [*openai(7, "call_0", "lost"), *openai(8, "call_0", "paid")]
    uses = [(use.arguments["order"], use.result) for use in tools_of_history(history)]
    assert uses == [(7, "lost"), (8, "paid")]


@pytest.mark.parametrize(
    "message", [{"role": ["a"], "content": ""}, {"role": "user", "type": {"a": 1}, "content": ""}]
)
def test_marks_of_messages_may_be_anything(message: Json) -> None:
    assert tools_of_history([message]) == ()
    assert since_last_question([message, 1]) in ([message, 1], [1])
    assert is_history([message]) == (message["role"] == "user")  # type: ignore[index,call-overload]


def test_objects_that_refer_to_each_other_are_read_once() -> None:
    shown: list[object] = []

    def spelled(item: object) -> str:
        shown.append(item)
        return "item"

    item = like("some", "Item", __str__=spelled)
    item.first = item.second = item.third = item
    reply = like("autogen.agentchat.chat", "ChatResult", summary="yes", chat_history=[item])
    assert returned(reply).text == "yes"
    assert len(shown) == 1


def test_a_reply_that_cannot_be_read_is_told() -> None:
    broken = property(lambda _: 1 / 0)
    reply = like("smolagents.agents", "RunResult", output="yes", steps=broken)
    with pytest.raises(CallerError, match="returned a RunResult that cannot be read, which raised"):
        returned(reply)
    with pytest.raises(AgentFaultError, match="it raised ZeroDivisionError"):
        asked(lambda query, call: reply)


@pytest.mark.parametrize(
    ("history", "uses"),
    [
        # A stream names a call before its arguments.
        (
            [
                {"id": "a", "name": "look", "arguments": ""},
                {"id": "a", "name": "look", "arguments": {"order": 7}},
            ],
            [("look", {"order": 7}, None)],
        ),
        # Results without ids, in another order than the calls.
        (
            [
                {"name": "look", "arguments": {}},
                {"name": "pay", "arguments": {}},
                {"role": "tool", "tool_name": "pay", "content": "paid"},
                {"role": "tool", "tool_name": "look", "content": "lost"},
            ],
            [("look", {}, "lost"), ("pay", {}, "paid")],
        ),
        (
            [{"name": "look", "arguments": {"args": [7], "kwargs": {"now": True}}}],
            [("look", {"args": [7], "kwargs": {"now": True}}, None)],
        ),
        (
            [
                {"name": "look", "arguments": {}, "id": "a"},
                {"tool_call_id": "a", "output": {"type": "json", "value": {"state": "lost"}}},
            ],
            [("look", {}, {"state": "lost"})],
        ),
    ],
)
def test_calls_in_rarer_forms(history: Json, uses: object) -> None:
    read = [(use.name, dict(use.arguments), use.result) for use in tools_of_history(history)]
    assert read == uses


def test_the_first_turn_has_the_calls_before_a_question_too() -> None:
    history = [*openai(7, "a", "lost"), *openai(8, "b", "paid")]
    reply = like("autogen.agentchat.chat", "ChatResult", summary="yes", chat_history=history)
    assert [len(tools_in(reply, turn)) for turn in (0, 1)] == [2, 1]


def test_calls_that_a_session_was_told_of_are_not_told_again() -> None:
    session = session_of(of_told())
    response_with(of_told(), "f", session)
    assert len([*session.select_all(ToolInvoked)]) == 1


def of_told() -> Any:
    history = openai(7, "a", "lost")
    return like("autogen.agentchat.chat", "ChatResult", summary="yes", chat_history=history)
