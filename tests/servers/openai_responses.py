"""OpenAI's Responses: ``POST /v1/responses``."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from openai.types.responses import Response
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming

from promptgraft.ground.serde import Json, canonical_json
from servers.behaviour import Answer, Asked, Fault, JsonObject, Stop
from servers.openai_chat import (
    NAME,
    OpenAIChat,
    invalid,
    may_reason,
    objects,
    prefixes_of,
    sampling_faults,
    strict_faults,
)
from servers.provider import Prefixes, Tokens
from servers.shapes import misfit, shape_of

_SHORTEST = 16
_ENCRYPTED = "reasoning.encrypted_content"
_INCOMPLETE = {Stop.LENGTH: "max_output_tokens", Stop.FILTERED: "content_filter"}


class OpenAIResponses(OpenAIChat):
    """The protocol of OpenAI's Responses; keys and errors are those of Chat Completions."""

    path = "/v1/responses"

    def __init__(self) -> None:
        shape_of(ResponseCreateParamsNonStreaming)  # takes too long for the first request

    def check(self, body: JsonObject, headers: Mapping[str, str]) -> Fault | None:
        if unfit := misfit(ResponseCreateParamsNonStreaming, body):
            return invalid(f"Invalid '{unfit[0]}': {unfit[1]}", unfit[0])
        for name in ("model", "input"):
            if name not in body:
                return invalid(f"Missing required parameter: '{name}'.", name)
        if lost := _lost_item(body):
            return lost
        faults = itertools.chain(
            _value_faults(body), _model_faults(body), _turn_faults(body), _schema_faults(body)
        )
        return next((invalid(message, param) for message, param in faults), None)

    def read(self, body: JsonObject, headers: Mapping[str, str], number: int) -> Asked:
        items = objects(body["input"])
        said = [item for item in items if item.get("role") not in {None, "assistant"}]
        instructions = body.get("instructions")
        texts = [text for item in said for text in _texts(item["content"])]
        return Asked(
            number=number,
            model=str(body["model"]),
            texts=(*((str(instructions),) if instructions else ()), *texts),
            tools=tuple(str(tool["name"]) for tool in objects(body.get("tools"))),
            results=tuple(
                str(item["output"]) for item in items if item.get("type") == "function_call_output"
            ),
            schema=_schema(body),
            body=body,
            headers=headers,
        )

    def prefixes(self, asked: Asked) -> Prefixes:
        instructions: JsonObject = {"instructions": asked.body.get("instructions")}
        return prefixes_of(asked, [instructions, *objects(asked.body["input"])])

    def answer_body(self, asked: Asked, answer: Answer, tokens: Tokens) -> JsonObject:
        reason = _INCOMPLETE.get(answer.stop)
        body: JsonObject = {
            "id": f"resp_{asked.number:012}",
            "object": "response",
            "created_at": 1_795_000_000,
            "status": "completed" if reason is None else "incomplete",
            "error": None,
            "incomplete_details": None if reason is None else {"reason": reason},
            "instructions": asked.body.get("instructions"),
            "metadata": {},
            "model": asked.model,
            "output": [*_output(asked, answer, tokens)],
            "parallel_tool_calls": True,
            "store": asked.body.get("store", True),
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": asked.body.get("tools", []),
            "top_p": 1.0,
            "usage": {
                "input_tokens": tokens.sent,
                "input_tokens_details": {
                    "cached_tokens": tokens.cached,
                    "cache_write_tokens": tokens.written,
                },
                "output_tokens": tokens.received,
                "output_tokens_details": {"reasoning_tokens": tokens.thought},
                "total_tokens": tokens.sent + tokens.received,
            },
        }
        Response.model_validate(body)  # the SDK's own type is the check of what is sent
        return body


def _output(asked: Asked, answer: Answer, tokens: Tokens) -> Iterator[JsonObject]:
    if tokens.thought:
        thoughts: JsonObject = {"type": "reasoning", "id": f"rs_{asked.number:06}", "summary": []}
        if _ENCRYPTED in _included(asked.body):
            thoughts["encrypted_content"] = f"gAAAA{asked.number:06}"
        yield thoughts
    status = "incomplete" if answer.stop in _INCOMPLETE else "completed"
    if answer.text or not answer.calls:
        part: JsonObject = {"type": "output_text", "text": answer.text, "annotations": []}
        if answer.stop is Stop.REFUSED:
            part = {"type": "refusal", "refusal": answer.text}
        yield {
            "type": "message",
            "id": f"msg_{asked.number:06}",
            "role": "assistant",
            "status": status,
            "content": [part],
        }
    for index, call in enumerate(answer.calls):
        yield {
            "type": "function_call",
            "id": f"fc_{asked.number:06}{index:06}",
            "call_id": f"call_{asked.number:06}{index:06}",
            "name": call.tool,
            "arguments": call.arguments,
            "status": status,
        }


def _included(body: JsonObject) -> list[Json]:
    included = body.get("include")
    return included if isinstance(included, list) else []


def _texts(content: Json) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [str(part["text"]) for part in objects(content) if part["type"] == "input_text"]


def _effort(body: JsonObject) -> Json:
    reasoning = body.get("reasoning")
    return reasoning.get("effort") if isinstance(reasoning, dict) else None


def _lost_item(body: JsonObject) -> Fault | None:
    """Return the error for thoughts that are named but neither stored nor sent along."""
    for item in objects(body["input"]) if body.get("store") is False else ():
        if item.get("type") == "reasoning" and not item.get("encrypted_content"):
            message = (
                f"Item with id '{item['id']}' not found. Items are not persisted when `store` is "
                "set to false. Try again with `store` set to true, or remove this item from your "
                "input."
            )
            return Fault(status=404, kind="invalid_request_error", message=message, param="input")
    return None


def _value_faults(body: JsonObject) -> Iterator[tuple[str, str]]:
    most = body.get("max_output_tokens")
    if isinstance(most, int) and most < _SHORTEST:
        yield (
            (
                "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= "
                f"{_SHORTEST}, but got {most} instead."
            ),
            "max_output_tokens",
        )
    if "previous_response_id" in body and "conversation" in body:
        yield "Mutually exclusive: 'previous_response_id' and 'conversation'.", "conversation"


def _model_faults(body: JsonObject) -> Iterator[tuple[str, str]]:
    """Only models that reason have thoughts, and they take no sampling."""
    model, effort = str(body["model"]), _effort(body)
    if may_reason(model):
        yield from sampling_faults(body, effort)
        return
    if not model.startswith(("gpt-", "chatgpt-")):
        return  # another one's, of which nothing is known
    if effort is not None:
        param = "reasoning.effort"
        yield f"Unsupported parameter: '{param}' is not supported with this model.", param
    if _ENCRYPTED in _included(body):
        yield "Encrypted content is not supported with this model.", "include"


def _turn_faults(body: JsonObject) -> Iterator[tuple[str, str]]:
    if body["input"] == []:
        yield "Invalid 'input': empty array.", "input"
    items = objects(body["input"])
    calls = [str(item["call_id"]) for item in items if item.get("type") == "function_call"]
    outputs = [str(item["call_id"]) for item in items if item.get("type") == "function_call_output"]
    for name in outputs:
        if name not in calls:
            yield f"No tool call found for function call output with call_id {name}.", "input"
    for name in calls:
        if name not in outputs:
            yield f"No tool output found for function call {name}.", "input"
    for item, following in itertools.pairwise((*items, {})):
        ends = following.get("type") not in {"message", "function_call", "reasoning"}
        if item.get("type") == "reasoning" and ends:
            what = f"Item '{item['id']}' of type 'reasoning' was provided without"
            yield f"{what} its required following item.", "input"


def _schema_faults(body: JsonObject) -> Iterator[tuple[str, str]]:
    for index, tool in enumerate(objects(body.get("tools"))):
        param = f"tools[{index}]"
        if not NAME.fullmatch(str(tool["name"])):
            yield f"Invalid '{param}.name': string does not match pattern.", f"{param}.name"
        # Null and a missing value are strict, unlike in Chat Completions.
        if tool.get("strict") is not False:
            what = f"function '{tool['name']}'"
            yield from strict_faults(what, f"{param}.parameters", tool.get("parameters"))
    form = _form(body)
    if form.get("type") == "json_object" and "json" not in canonical_json(body["input"]).lower():
        yield (
            (
                "Response input messages must contain the word 'json' in some form to use "
                "'text.format' of type 'json_object'."
            ),
            "input",
        )
    if form.get("type") == "json_schema":
        if not NAME.fullmatch(str(form["name"])):
            yield "Invalid 'text.format.name': string does not match pattern.", "text.format.name"
        if form.get("strict"):
            what = f"response_format '{form['name']}'"
            yield from strict_faults(what, "text.format.schema", form.get("schema"))


def _form(body: JsonObject) -> JsonObject:
    text = body.get("text")
    form = text.get("format") if isinstance(text, dict) else None
    return form if isinstance(form, dict) else {}


def _schema(body: JsonObject) -> JsonObject | None:
    """Return the schema that the answer is held to."""
    schema = _form(body).get("schema")
    return schema if isinstance(schema, dict) else None
