"""Functions and agents that return the reply of an SDK instead of its text."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import pytest

from black_box.asking import TEXTS, asked
from promptgraft import Case, Session, Texts, evaluate, load_metrics

CHAT = {
    "id": "1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "yes"}}
    ],
}
CALLS = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
MESSAGE = {"role": "assistant", "content": None, "tool_calls": [CALLS]}
ONLY_CALLS = {
    **CHAT,
    "choices": [{"index": 0, "finish_reason": "tool_calls", "message": MESSAGE}],
}
RESPONSE = {
    "id": "r",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "output": [
        {
            "type": "message",
            "id": "x",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "yes", "annotations": []}],
        }
    ],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}
ANTHROPIC = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [
        {"type": "thinking", "thinking": "Hm.", "signature": "s"},
        {"type": "text", "text": "yes"},
    ],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
PARTS = [{"type": "text", "text": "yes"}]


def of(module: str, name: str, value: Any) -> Any:
    """Return a reply of the real library; the test is skipped without it."""
    kind = getattr(pytest.importorskip(module), name)
    return kind.model_validate(value) if hasattr(kind, "model_validate") else kind(value)


def of_litellm() -> Any:
    # Importing litellm takes 15 s; its class has the choices of OpenAI's.
    class ModelResponse:
        __module__ = "litellm.types.utils"
        choices = of("openai.types.chat", "ChatCompletion", CHAT).choices

    return ModelResponse()


def of_pydantic_ai() -> Any:
    pydantic_ai = pytest.importorskip("pydantic_ai")
    model = importlib.import_module("pydantic_ai.models.test").TestModel(custom_output_text="yes")
    # `run_sync` leaves an event loop behind, which another test would be blamed for.
    return asyncio.run(pydantic_ai.Agent(model).run("?"))


def of_agents() -> Any:
    result = pytest.importorskip("agents").RunResult
    reply = result.__new__(result)  # a real one takes a run
    reply.final_output = "yes"
    return reply


def like(module: str, name: str, **fields: object) -> Any:
    """Return what stands for a reply of a library that is not among the packages of the tests."""
    return type(name, (), {"__module__": module, **fields})()


SAID = like("some", "Message", content="yes")
TEXT_OF = like("some", "TextContent", type="text", text="yes")
THOUGHT = like("some", "Part", text="hm", thought=True)
CHOICES = [like("some", "Choice", message=SAID)]
CREW = {"raw": "yes", "pydantic": None}


def of_haystack() -> Any:
    return like("haystack.dataclasses.chat_message", "ChatMessage", text="yes")


REPLIES: Mapping[str, Callable[[], Any]] = {
    "chat completion": lambda: of("openai.types.chat", "ChatCompletion", CHAT),
    "parsed chat completion": lambda: of("openai.types.chat", "ParsedChatCompletion", CHAT),
    "response": lambda: of("openai.types.responses", "Response", RESPONSE),
    "Anthropic": lambda: of("anthropic.types", "Message", ANTHROPIC),
    "Anthropic beta": lambda: of("anthropic.types.beta", "BetaMessage", ANTHROPIC),
    "litellm": of_litellm,
    "LangChain": lambda: of("langchain_core.messages", "AIMessage", {"content": "yes"}),
    "LangChain parts": lambda: of("langchain_core.messages", "AIMessage", {"content": PARTS}),
    "LangGraph": lambda: {
        "messages": [
            of("langchain_core.messages", "HumanMessage", {"content": "?"}),
            of("langchain_core.messages", "AIMessage", {"content": "yes"}),
        ]
    },
    "pydantic-ai": of_pydantic_ai,
    "Agents SDK": of_agents,
    "Google": lambda: like("google.genai.types", "GenerateContentResponse", text="yes"),
    "Claude Agent SDK": lambda: like("claude_agent_sdk.types", "ResultMessage", result="yes"),
    "LlamaIndex agent": lambda: like(
        "llama_index.core.agent.workflow.workflow_events", "AgentOutput", response=SAID
    ),
    "LlamaIndex chat": lambda: like("llama_index.core.llms", "ChatResponse", message=SAID),
    "LlamaIndex completion": lambda: like(
        "llama_index.core.llms", "CompletionResponse", text="yes"
    ),
    "LlamaIndex query": lambda: like(
        "llama_index.core.base.response.schema", "Response", response="yes"
    ),
    "LlamaIndex chat engine": lambda: like(
        "llama_index.core.chat_engine.types", "AgentChatResponse", response="yes"
    ),
    "Semantic Kernel": lambda: like(
        "semantic_kernel.contents", "ChatMessageContent", content="yes"
    ),
    "Semantic Kernel agent": lambda: like(
        "semantic_kernel.agents.agent", "AgentResponseItem", message=SAID
    ),
    "Semantic Kernel function": lambda: like(
        "semantic_kernel.functions", "FunctionResult", __str__=lambda _: "yes"
    ),
    "agno": lambda: like("agno.run.agent", "RunOutput", content="yes"),
    "AutoGen": lambda: like("autogen_agentchat.base", "TaskResult", messages=[None, SAID]),
    "AutoGen response": lambda: like("autogen_agentchat.base", "Response", chat_message=SAID),
    "AG2": lambda: like("autogen.agentchat.chat", "ChatResult", summary="yes"),
    "Cohere": lambda: like(
        "cohere.v2", "V2ChatResponse", message=like("cohere", "Message", content=[TEXT_OF])
    ),
    "crewAI": lambda: like("crewai.crews.crew_output", "CrewOutput", json_dict=None, **CREW),
    "crewAI agent": lambda: like("crewai.lite_agent_output", "LiteAgentOutput", **CREW),
    "Google ADK": lambda: like(
        "google.adk.events.event",
        "Event",
        content=like("g", "Content", parts=[THOUGHT, like("g", "Part", text="yes", thought=None)]),
    ),
    "Groq": lambda: like("groq.types.chat", "ChatCompletion", choices=CHOICES),
    "Hugging Face": lambda: like(
        "huggingface_hub.inference", "ChatCompletionOutput", choices=CHOICES
    ),
    "Haystack": of_haystack,
    "Haystack generator": lambda: {"replies": [of_haystack()], "meta": [{}]},
    "Haystack text": lambda: {"replies": ["yes"], "meta": [{"model": "m"}]},
    "Haystack agent": lambda: {"messages": [None, of_haystack()], "last_message": of_haystack()},
    "choice": lambda: of("openai.types.chat", "ChatCompletion", CHAT).choices[0],
    "message": lambda: of("openai.types.chat", "ChatCompletion", CHAT).choices[0].message,
    "message of any library": lambda: like("vllm", "Message", role="assistant", content=PARTS),
    "completion as data": lambda: CHAT,
    "message as data": lambda: {"role": "assistant", "content": [{"type": "text", "text": "yes"}]},
    "messages as data": lambda: [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": "yes"},
    ],
    "messages, the last one of an SDK": lambda: [
        {"role": "user", "content": "?"},
        of("openai.types.chat", "ChatCompletion", CHAT).choices[0].message,
    ],
    "content of Anthropic": lambda: of("anthropic.types", "Message", ANTHROPIC).content,
    "new messages as data": lambda: [{"role": "assistant", "content": "yes"}],
    "Ollama": lambda: like("ollama._types", "ChatResponse", message=SAID),
    "Ollama text": lambda: like("ollama._types", "GenerateResponse", response="yes"),
    "Strands": lambda: like("strands.agent", "AgentResult", __str__=lambda _: "yes\n"),
    "smolagents": lambda: like("smolagents.agents", "RunResult", output="yes"),
    "smolagents message": lambda: like("smolagents.models", "ChatMessage", content="yes"),
    "smolagents parts": lambda: like("smolagents.models", "ChatMessage", content=PARTS),
}


def returned(reply: object) -> Any:
    """Return the answer of a function with texts of its own."""

    def run(texts: Mapping[str, str], query: str) -> object:
        return reply

    texts = Texts(TEXTS, run=run)
    return texts.adapter.evaluate(texts.prompt.bind("?"), session=Session())


@pytest.mark.parametrize("name", REPLIES)
def test_the_answer_is_the_text_of_a_reply(name: str) -> None:
    reply = REPLIES[name]()
    for response in (asked(lambda query, call: reply), returned(reply)):
        assert (response.text, type(response.text), response.output) == ("yes", str, None)


def test_a_reply_without_a_text_is_an_empty_answer() -> None:
    assert returned(of("openai.types.chat", "ChatCompletion", ONLY_CALLS)).text == ""
    filtered = [like("groq.types", "Choice", message=None)]
    for choices in (None, [], filtered):
        assert returned(like("groq.types.chat", "ChatCompletion", choices=choices)).text == ""
    assert returned(like("autogen_agentchat.base", "TaskResult", messages=[])).text == ""


def test_a_crew_with_an_object_answers_with_it() -> None:
    reply = like("crewai.crews.crew_output", "CrewOutput", raw="{}", pydantic=None, json_dict={})
    assert returned(reply).output == {}


def test_an_object_of_instructor_stands_before_its_completion() -> None:
    completion = of("openai.types.chat", "ChatCompletion", CHAT)
    assert returned(({"shelf": "travel"}, completion)).output == {"shelf": "travel"}
    for value in (
        [{"role": "user", "content": "?"}],
        [{"role": "manager", "name": "Ann"}, {"role": "assistant", "name": "Ben"}],
        ({"shelf": "travel"}, 1),
    ):
        assert returned(value).output == value


def test_an_object_in_a_reply_is_an_object() -> None:
    reply = of_agents()
    reply.final_output = {"yes": 1}
    assert (returned(reply).text, returned(reply).output) == ('{"yes":1}', {"yes": 1})


def test_an_object_of_the_user_stays_an_object() -> None:
    class Message:
        """As classes of libraries are called, and from elsewhere."""

        text = "no"

        def __str__(self) -> str:
            return "of a user"

    own = Message()
    assert (returned(own).text, returned(own).output) == ("of a user", own)
    for state in (
        {"messages": ["a", "b"]},
        {"replies": ["a"]},
        {"replies": ["a", "b"], "meta": [1]},
    ):
        assert returned(state).output == state


def test_an_object_of_the_user_may_be_called_as_a_completion_is() -> None:
    @attrs.frozen
    class ModelResponse:
        choices: object

    for choices in (["a", "b"], "ab", {"a": 1}):
        own = ModelResponse(choices)
        assert returned(own).output == own


def test_metrics_judge_the_text_of_a_reply() -> None:
    reply = of("openai.types.chat", "ChatCompletion", CHAT)

    def run(texts: Mapping[str, str], query: str) -> object:
        return reply

    texts = Texts(TEXTS, run=run)
    [metric] = load_metrics([{"name": "exact"}])
    case = Case(id="a", input="?", expected="yes")
    judged = evaluate(
        texts.prompt, [case], [metric], adapter=texts.adapter, params=lambda case: case.input
    )
    assert judged.score.mean == 1.0
