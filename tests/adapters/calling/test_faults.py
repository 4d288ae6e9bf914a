"""The table of ``specs/adapters.md``: what came back, and what it means."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.calling.endpoints import error, received
from promptgraft.adapters.calling.faults import Fault, judge, unreadable
from promptgraft.adapters.calling.turns import (
    BrokenTurnError,
    NothingReceivedError,
    Received,
    UnreadableTurnError,
)
from promptgraft.errors import (
    PermanentProviderError,
    PromptgraftError,
    PromptTooLongError,
    RateLimitedError,
    RefusedAnswerError,
    RejectedRequestError,
    TransientProviderError,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HTML = "<html><head><title>502 Bad\nGateway</title></head><body><h1>nginx</h1></body></html>"

TRANSIENT = TransientProviderError
LIMITED = RateLimitedError
REJECTED = RejectedRequestError
PERMANENT = PermanentProviderError
TOO_LONG = PromptTooLongError
REFUSED = RefusedAnswerError


def fault_of(outcome: Received | NothingReceivedError) -> Fault:
    fault = judge(outcome, now=NOW)
    assert isinstance(fault, Fault)
    return fault


@pytest.mark.parametrize(
    "answer",
    [
        "404 page not found",
        '{"detail": "Not Found"}',
        error("not_found_error", "File Not Found"),
        error("invalid_request_error", "Invalid URL (POST /v1/responses)"),
        '{"error": "Unexpected endpoint or method. (POST /v1/responses)"}',
        "<html><title>405 Method Not Allowed</title></html>",
    ],
)
def test_a_server_without_the_path_is_told_from_one_without_the_model(answer: object) -> None:
    other = judge(received(404, answer), now=NOW, if_absent="set another")
    assert isinstance(other, Fault)
    assert (other.error, other.mend) == (PERMANENT, "set another")
    assert fault_of(received(404, answer)).mend == "check the name of the model and base_url"


@pytest.mark.parametrize(
    "answer",
    [
        error("invalid_request_error", "The model `m` does not exist", "model_not_found"),
        error("not_found_error", "model: m"),
        '{"error": "model `m` not found"}',
        error("x", "Items are not persisted when `store` is false"),
    ],
)
def test_a_missing_model_is_no_missing_path(answer: object) -> None:
    fault = judge(received(404, answer), now=NOW, if_absent="set another")
    assert isinstance(fault, Fault)
    assert fault.mend != "set another"


@pytest.mark.parametrize(
    ("got", "kind", "wait"),
    [
        (received(400, error("invalid_request_error")), REJECTED, None),
        (
            received(400, error("invalid_request_error", "prompt is too long: 9 > 8")),
            TOO_LONG,
            None,
        ),
        (received(400, error("x", "This model's maximum context length is 8")), TOO_LONG, None),
        (received(400, error("x", "no", "context_length_exceeded")), TOO_LONG, None),
        (received(400, error("exceed_context_size_error")), TOO_LONG, None),
        (received(400, error("x", "input length and `max_tokens` exceed context")), TOO_LONG, None),
        (received(400, error("x", "Your credit balance is too low")), PERMANENT, None),
        (received(400, error("x", "no", "billing_hard_limit_reached")), PERMANENT, None),
        (received(400, error("x", "no", "model_not_found")), PERMANENT, None),
        (received(400, error("x", "no", "content_filter")), REFUSED, None),
        (received(400, error("x", "Only supported in v1/responses")), PERMANENT, None),
        (received(404, error("x", "not for tools; use /v1/chat/completions")), PERMANENT, None),
        (received(400, error("x", "not supported in v1/chat/completions")), REJECTED, None),
        (received(200, {"status": "failed", "error": {"code": "server_error"}}), TRANSIENT, None),
        (received(200, {"error": {"code": "rate_limit_exceeded"}}), LIMITED, None),
        (received(200, {"error": {"code": "invalid_image_url"}}), REJECTED, None),
        (received(200, {"error": {"code": "image_too_large"}}), REJECTED, None),
        (received(200, {"error": {"code": "misalignment_policy_violation"}}), REFUSED, None),
        (received(401, error("authentication_error")), PERMANENT, None),
        (received(402, error("billing_error")), PERMANENT, None),
        (received(403, error("permission_error")), PERMANENT, None),
        (received(404, error("not_found_error")), PERMANENT, None),
        (received(404, "page not found"), PERMANENT, None),
        # As compatible servers and gateways say it.
        (received(200, {"error": "Unexpected endpoint or method. (POST /x)"}), PERMANENT, None),
        (received(400, [{"error": {"message": "API key not valid. Pass one."}}]), PERMANENT, None),
        (received(400, error("no_db_connection", "No connected db.")), PERMANENT, None),
        (received(400, error("x", "Invalid model name passed in model=m.")), PERMANENT, None),
        (received(400, error("x", "The model `m` does not exist.")), PERMANENT, None),
        (received(400, error("x", "Model Not Exist")), PERMANENT, None),
        (received(400, error("x", "model m: the image was not found")), REJECTED, None),
        (received(400, error("budget_exceeded", "Budget has been exceeded!")), PERMANENT, None),
        (
            received(403, error("x", "requires moderation and your input was flagged")),
            REFUSED,
            None,
        ),
        (received(400, error("x", "litellm.ContentPolicyViolationError: no")), REFUSED, None),
        (received(400, error("x", "litellm.ContextWindowExceededError: no")), TOO_LONG, None),
        (
            received(400, error("x", "longer than the model's context length")),
            TOO_LONG,
            None,
        ),
        (received(400, error("x", "is longer than the maximum model length of 8")), TOO_LONG, None),
        (
            received(400, {"error": "it is greater than the context length"}),
            TOO_LONG,
            None,
        ),
        (received(422, {"error": "`inputs` + `max_new_tokens` must be <= 8"}), TOO_LONG, None),
        (received(500, error("server_error", "Context size has been exceeded.")), TOO_LONG, None),
        (received(503, error("x", "model m not found in memory yet")), TRANSIENT, None),
        (received(412, error("x", "Account suspended")), PERMANENT, None),
        (received(424, {"error": "failed during generation"}), TRANSIENT, None),
        (received(498, error("capacity_exceeded")), TRANSIENT, None),
        (received(429, error("x", "free-models-per-day")), PERMANENT, None),
        (received(429, error("x", "tokens per day (TPD)"), retry_after="9"), LIMITED, 9.0),
        (received(405), PERMANENT, None),
        (received(408, error("x"), retry_after="2"), TRANSIENT, 2.0),
        (received(409, error("x")), TRANSIENT, None),
        (received(413, HTML), TOO_LONG, None),
        (received(418), REJECTED, None),
        (received(422, {"detail": "bad field"}), REJECTED, None),
        (received(425), TRANSIENT, None),
        (received(429, error("rate_limit_error")), LIMITED, None),
        (received(429, error("rate_limit_error"), retry_after="20"), LIMITED, 20.0),
        (received(429, "", retry_after="Sun, 01 Mar 2026 12:01:00 GMT"), LIMITED, 60.0),
        (received(429, "", x_ratelimit_reset_tokens="6s"), LIMITED, 6.0),
        (received(429, "", retry_after_ms="10", x_ratelimit_reset_tokens="6s"), LIMITED, 0.01),
        (received(429, error("insufficient_quota"), retry_after="1"), PERMANENT, None),
        (received(429, error("tokens", "Request too large for m: Limit 9")), REJECTED, None),
        (received(500, error("api_error")), TRANSIENT, None),
        (received(500, "", x_ratelimit_reset_tokens="6s"), TRANSIENT, None),
        (received(502, HTML), TRANSIENT, None),
        (received(503, HTML, retry_after="7"), TRANSIENT, 7.0),
        (received(504), TRANSIENT, None),
        (received(529, error("overloaded_error")), TRANSIENT, None),
        (received(302, ""), PERMANENT, None),
        (received(200, error("overloaded_error")), TRANSIENT, None),
        (received(200, error("rate_limit_error"), retry_after="4"), LIMITED, 4.0),
        (received(200, error("authentication_error")), PERMANENT, None),
        (received(200, error("strange_error")), TRANSIENT, None),
        (received(200, {"error": {"code": 429, "message": "later"}}), LIMITED, None),
        (received(200, {"error": {"code": 999, "message": "odd"}}), TRANSIENT, None),
        (received(200, {"error": "out of memory"}), TRANSIENT, None),
        (received(200, '{"text": "hel'), TRANSIENT, None),
        (received(200, HTML), TRANSIENT, None),
        (received(200, "[1]"), TRANSIENT, None),
        (received(200, ""), TRANSIENT, None),
        (received(200, "[" * 100_000), TRANSIENT, None),
        (NothingReceivedError("reset by peer"), TRANSIENT, None),
        (NothingReceivedError("60 s", timed_out=True), TRANSIENT, None),
    ],
)
def test_what_came_back_has_one_meaning(
    got: Received | NothingReceivedError, kind: type[PromptgraftError], wait: float | None
) -> None:
    fault = fault_of(got)

    assert fault.error is kind
    assert fault.retried is issubclass(kind, TransientProviderError)
    assert fault.limited is (kind is RateLimitedError)
    assert fault.wait == wait


def test_a_body_without_an_error_is_to_be_read() -> None:
    body = {"id": "1", "error": None, "text": "hello"}
    assert judge(received(200, body), now=NOW) == body


def test_a_body_that_cannot_be_read_may_come_out_right_next_time() -> None:
    fault = unreadable(UnreadableTurnError("no `choices`"))
    assert fault == Fault(
        error=TransientProviderError,
        what="unreadable answer",
        detail="no `choices`",
        retried=True,
        shape=True,
    )


def test_an_answer_that_the_provider_broke_off_is_not_the_same_twice() -> None:
    assert not unreadable(BrokenTurnError("the server did not finish it (abort)")).shape


def test_a_provider_may_say_that_trying_again_is_of_no_use() -> None:
    fault = fault_of(received(503, error("api_error"), x_should_retry="false"))
    assert fault.error is TransientProviderError
    assert not fault.retried


@pytest.mark.parametrize(
    ("got", "what", "detail", "mend"),
    [
        (
            received(401, error("authentication_error", "invalid x-api-key")),
            "HTTP 401 authentication_error",
            "invalid x-api-key",
            "check the API key",
        ),
        (
            received(404, error("invalid_request_error", "no such model", "model_not_found")),
            "HTTP 404 invalid_request_error model_not_found",
            "no such model",
            "check the name of the model and base_url",
        ),
        (
            received(429, error("insufficient_quota", "no quota", "insufficient_quota")),
            "HTTP 429 insufficient_quota",
            "no quota",
            "check the account",
        ),
        (
            received(400, error("invalid_request_error", "Please use /v1/responses instead.")),
            "HTTP 400 invalid_request_error",
            "Please use /v1/responses instead.",
            "set `api: responses` for this model",
        ),
        (
            received(400, error("invalid_request_error", "Use the v1/chat/completions endpoint.")),
            "HTTP 400 invalid_request_error",
            "Use the v1/chat/completions endpoint.",
            "set `api: chat` for this model",
        ),
        (received(502, HTML), "HTTP 502", "502 Bad Gateway", ""),
        (received(503, "<p>busy</p>  now"), "HTTP 503", "busy now", ""),
        (received(500, ""), "HTTP 500", "an empty body", ""),
        (received(422, {"detail": "bad field"}), "HTTP 422", "bad field", ""),
        (received(400, {"error": "bad"}), "HTTP 400", "bad", ""),
        (
            received(200, error("overloaded_error", "busy")),
            "HTTP 200 with an error inside overloaded_error",
            "busy",
            "",
        ),
        (received(301), "HTTP 301", "an empty body", "check base_url"),
        (received(413), "HTTP 413", "an empty body", "shorten the prompt"),
        (
            received(200, "<title>Log in</title>", content_type="text/html"),
            "unreadable answer",
            "the answer:1:1: Expecting value (text/html): Log in",
            "check base_url",
        ),
        (
            received(200, 'data: {"delta": "a"}\n\n', content_type="text/event-stream"),
            "unreadable answer",
            'the answer:1:1: Expecting value (text/event-stream): data: {"delta": "a"}',
            "turn off streaming in the server",
        ),
        (NothingReceivedError("60 s", timed_out=True), "no answer in time", "60 s", ""),
        (NothingReceivedError("reset"), "no answer", "reset", ""),
    ],
)
def test_a_fault_says_what_happened_and_what_to_do(
    got: Received | NothingReceivedError, what: str, detail: str, mend: str
) -> None:
    fault = fault_of(got)
    assert (fault.what, fault.detail, fault.mend) == (what, detail, mend)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["error", "type", "code", "message", "x"]), inner)
    ),
    max_leaves=8,
)


@given(status=st.integers(100, 599), content=_json | st.text(max_size=20))
@settings(max_examples=60)
def test_any_answer_has_a_meaning(status: int, content: object) -> None:
    meaning = judge(received(status, content), now=NOW)
    assert isinstance(meaning, Fault) or (200 <= status < 300 and not meaning.get("error"))


def test_half_of_a_character_in_a_body_is_replaced_and_not_asked_for_again() -> None:
    body = {"text": "\ud800 and 😀", "parts": ["\udc00"]}
    assert judge(received(200, body), now=NOW) == {"text": "\ufffd and 😀", "parts": ["\ufffd"]}


def test_a_page_is_recognized_by_its_type_in_any_case_or_its_text() -> None:
    faults = [
        fault_of(received(200, text, content_type=kind))
        for text, kind in (
            ("Log in", "text/html"),
            ("Log in", "Text/HTML; charset=UTF-8"),
            ("\n<title>Log in</title>", "application/json"),
            ("Log in", "text/plain"),
        )
    ]
    assert [fault.shape for fault in faults] == [True, True, True, False]
