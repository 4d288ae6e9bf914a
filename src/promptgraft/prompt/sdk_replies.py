"""Reply objects of SDKs and agent frameworks, and what in them is the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any


def _of_choices(reply: Any) -> object:
    message = reply.choices[0].message if reply.choices else None
    return "" if message is None else _of_parts(message)


def _of_blocks(reply: Any) -> object:
    # Thoughts and tool calls have no `text`.
    return "".join(getattr(block, "text", None) or "" for block in reply.content)


def _of_text(reply: Any) -> object:
    # A method in older versions of langchain-core, and in newer ones a text that can be called.
    text = reply.text
    return text if isinstance(text, str) or text is None else text()


def _of_parts(reply: Any) -> object:
    return _joined(reply.content)


def _joined(parts: Any) -> object:
    if not isinstance(parts, list):
        return parts
    return "".join(
        (part.get("text") if isinstance(part, Mapping) else getattr(part, "text", None)) or ""
        for part in parts
    )


def _of_crew(reply: Any) -> object:
    for answer in (reply.pydantic, getattr(reply, "json_dict", None)):
        if answer is not None:
            return answer
    return reply.raw


def _of_event(reply: Any) -> object:
    parts = getattr(reply.content, "parts", None) or ()
    return "".join(part.text for part in parts if part.text and not part.thought)


_ANSWERS: Mapping[tuple[str, str], Callable[[Any], object]] = {
    ("agents", "RunResultBase"): lambda reply: reply.final_output,
    ("agno", "RunOutput"): lambda reply: reply.content,
    ("agno", "TeamRunOutput"): lambda reply: reply.content,
    ("agno", "WorkflowRunOutput"): lambda reply: reply.content,
    ("anthropic", "BetaMessage"): _of_blocks,
    ("anthropic", "Message"): _of_blocks,
    ("autogen", "ChatResult"): lambda reply: reply.summary,
    ("autogen_agentchat", "BaseChatMessage"): lambda reply: reply.content,
    ("autogen_agentchat", "Response"): lambda reply: reply.chat_message.content,
    ("autogen_agentchat", "TaskResult"): lambda reply: (
        reply.messages[-1].content if reply.messages else ""
    ),
    ("claude_agent_sdk", "AssistantMessage"): _of_blocks,
    ("claude_agent_sdk", "ResultMessage"): lambda reply: reply.result,
    ("cohere", "V2ChatResponse"): lambda reply: _of_parts(reply.message),
    ("crewai", "CrewOutput"): _of_crew,
    ("crewai", "LiteAgentOutput"): _of_crew,
    ("crewai", "TaskOutput"): _of_crew,
    ("google", "Event"): _of_event,
    ("google", "GenerateContentResponse"): _of_text,
    ("haystack", "ChatMessage"): _of_text,
    ("langchain_core", "BaseMessage"): _of_text,
    ("llama_index", "AgentChatResponse"): lambda reply: reply.response,
    ("llama_index", "AgentOutput"): lambda reply: reply.response.content,
    ("llama_index", "ChatResponse"): lambda reply: reply.message.content,
    ("llama_index", "CompletionResponse"): _of_text,
    ("llama_index", "Response"): lambda reply: reply.response,
    ("ollama", "ChatResponse"): lambda reply: reply.message.content,
    ("ollama", "GenerateResponse"): lambda reply: reply.response,
    ("openai", "Response"): lambda reply: reply.output_text,
    ("pydantic_ai", "AgentRunResult"): lambda reply: reply.output,
    ("semantic_kernel", "AgentResponseItem"): lambda reply: reply.message.content,
    ("semantic_kernel", "ChatMessageContent"): lambda reply: reply.content,
    ("semantic_kernel", "FunctionResult"): str,
    ("smolagents", "ChatMessage"): _of_parts,
    ("smolagents", "RunResult"): lambda reply: reply.output,
    ("strands", "AgentResult"): lambda reply: str(reply).strip(),
}
"""How to read the answer of a class, by its package and name."""

_HISTORIES: Mapping[tuple[str, str], str] = {
    ("agents", "RunResultBase"): "new_items.raw_item",
    ("agno", "RunOutput"): "tools",
    ("agno", "TeamRunOutput"): "tools",
    ("autogen", "ChatResult"): "chat_history",
    ("autogen_agentchat", "Response"): "inner_messages",
    ("autogen_agentchat", "TaskResult"): "messages",
    ("crewai", "CrewOutput"): "tasks_output.messages",
    ("google", "GenerateContentResponse"): "candidates.content",
    ("llama_index", "AgentChatResponse"): "sources",
    ("llama_index", "AgentOutput"): "tool_calls",
    ("openai", "Response"): "output",
    ("pydantic_ai", "AgentRunResult"): "new_messages",
    ("smolagents", "RunResult"): "steps",
    ("strands", "AgentResult"): "metrics.traces.to_dict",
}
"""Where a class has the messages and calls of tools that led to its answer; versions differ."""

_MESSAGES = {
    ("autogen_agentchat", "BaseChatMessage"),
    ("claude_agent_sdk", "AssistantMessage"),
    ("claude_agent_sdk", "ResultMessage"),
    ("google", "Event"),
    ("haystack", "ChatMessage"),
    ("langchain_core", "BaseMessage"),
}
"""Of a list of these, the last one has the answer."""

_COMPLETIONS = {"ChatCompletion", "ChatCompletionOutput", "ChatCompletionResponse", "ModelResponse"}
"""How the SDKs of many providers call what OpenAI's calls ``ChatCompletion``."""


def answer_in(value: object) -> object:
    """Return the answer in a reply object of a known library; any other value is returned as is.

    A reply without a text, such as one that only calls tools, has an empty one. Of the state of a
    graph of LangGraph that holds nothing but messages, of what a generator or agent of Haystack
    returns, and of a list of messages or events, the last message is the answer; of a state with a
    ``structured_response``, and of an object of instructor with its completion, the object.
    """
    match value:
        case {"role": "assistant", "content": parts}:
            return answer_in(_joined(parts) or "")
        case {"choices": [{"message": {"role": "assistant"} as message}]}:
            return answer_in(message)
        case [*_, {"role": "assistant", "content": _} as message]:
            return answer_in(message)
        case [*_, last] if any(_name_of(kind) in _MESSAGES for kind in type(last).__mro__):
            return answer_in(last)
        case [{"role": str()}, *_, last] if _is_message(last):
            return answer_in(last)
        case [*parts] if {_name_of(type(part))[0] for part in parts} == {"anthropic"}:
            return answer_in(_joined(value))  # the content of a message
        case (answer, completion) if type(completion).__name__ in _COMPLETIONS:
            return answer_in(answer)
        case {"messages": [*_, last], "structured_response": answer} if (
            answer is not None and answer_in(last) is not last
        ):
            return answer
        case {"messages": [*_, last], **more} if not more and answer_in(last) is not last:
            return answer_in(last)
        case {"replies": [last]} | {"last_message": last} if answer_in(last) is not last:
            return answer_in(last)
        case {"replies": [str(text)], "meta": [_], **more} if not more:  # Haystack's, of no chat
            return text
    return _answer_of_object(value)


def _answer_of_object(value: object) -> object:
    for kind in type(value).__mro__:
        read = _ANSWERS.get(_name_of(kind))
        if kind.__name__ in _COMPLETIONS and _has_choices(value):
            read = _of_choices
        if read is not None:
            answer = read(value)
            # A plain text: a subclass of `str` would count as an object.
            answer = "" if answer is None else answer
            return str.__str__(answer) if isinstance(answer, str) else answer
    reply: Any = value
    reply = reply.message if type(value).__name__ == "Choice" else reply
    return answer_in(_of_parts(reply) or "") if _is_message(reply) else value


def _is_message(value: object) -> bool:
    return getattr(value, "role", None) == "assistant" and hasattr(value, "content")


def history_in(value: object) -> object:
    """Return the messages or calls of tools behind the answer in a reply; None for other values."""
    for kind in type(value).__mro__:
        if path := _HISTORIES.get(_name_of(kind)):
            return _along(value, path.split("."))
    match value:
        case {"messages": [*_, last] as messages} if answer_in(last) is not last:
            return messages  # of a state, which may hold more
    return None if answer_in(value) is value else value


def _along(value: object, names: Sequence[str]) -> object:
    """Return what stands at a path of fields and methods without arguments, in lists of each."""
    if isinstance(value, (list, tuple)):
        return [_along(item, names) for item in value]
    if not names:
        return value
    member = getattr(value, names[0], None)
    return _along(member() if callable(member) else member, names[1:])


def _name_of(kind: type) -> tuple[str, str]:
    return kind.__module__.partition(".")[0], kind.__name__


def _has_choices(value: object) -> bool:
    """Return whether a value is a completion; users may have a class of that name too."""
    choices = getattr(value, "choices", False)
    return choices is None or (
        isinstance(choices, list) and all(hasattr(choice, "message") for choice in choices)
    )
