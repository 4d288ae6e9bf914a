"""Reply objects of SDKs and agent frameworks, and what in them is the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def _of_choices(reply: Any) -> object:
    return reply.choices[0].message.content if reply.choices else ""


def _of_blocks(reply: Any) -> object:
    # Thoughts and tool calls have no `text`.
    return "".join(getattr(block, "text", None) or "" for block in reply.content)


def _of_text(reply: Any) -> object:
    # A method in older versions of langchain-core, and in newer ones a text that can be called.
    text = reply.text
    return text if isinstance(text, str) or text is None else text()


def _of_parts(reply: Any) -> object:
    parts = reply.content
    return "".join(part.get("text", "") for part in parts) if isinstance(parts, list) else parts


_ANSWERS: Mapping[tuple[str, str], Callable[[Any], object]] = {
    ("agents", "RunResultBase"): lambda reply: reply.final_output,
    ("anthropic", "BetaMessage"): _of_blocks,
    ("anthropic", "Message"): _of_blocks,
    ("claude_agent_sdk", "AssistantMessage"): _of_blocks,
    ("claude_agent_sdk", "ResultMessage"): lambda reply: reply.result,
    ("google", "GenerateContentResponse"): _of_text,
    ("langchain_core", "BaseMessage"): _of_text,
    ("litellm", "ModelResponse"): _of_choices,
    ("llama_index", "AgentChatResponse"): lambda reply: reply.response,
    ("llama_index", "AgentOutput"): lambda reply: reply.response.content,
    ("llama_index", "ChatResponse"): lambda reply: reply.message.content,
    ("llama_index", "CompletionResponse"): _of_text,
    ("llama_index", "Response"): lambda reply: reply.response,
    ("openai", "ChatCompletion"): _of_choices,
    ("openai", "Response"): lambda reply: reply.output_text,
    ("pydantic_ai", "AgentRunResult"): lambda reply: reply.output,
    ("semantic_kernel", "AgentResponseItem"): lambda reply: reply.message.content,
    ("semantic_kernel", "ChatMessageContent"): lambda reply: reply.content,
    ("semantic_kernel", "FunctionResult"): str,
    ("smolagents", "ChatMessage"): _of_parts,
    ("smolagents", "RunResult"): lambda reply: reply.output,
}
"""How to read the answer of a class, by its package and name."""


def answer_in(value: object) -> object:
    """Return the answer in a reply object of a known library; any other value is returned as is.

    A reply without a text, such as one that only calls tools, has an empty one. The state of a
    graph of LangGraph that holds nothing but messages has its last message.
    """
    match value:
        case {"messages": [*_, last], **more} if not more and answer_in(last) is not last:
            return answer_in(last)
    for kind in type(value).__mro__:
        if read := _ANSWERS.get((kind.__module__.partition(".")[0], kind.__name__)):
            answer = read(value)
            # Of a subclass, it would count as an object.
            answer = "" if answer is None else answer
            return str.__str__(answer) if isinstance(answer, str) else answer
    return value
