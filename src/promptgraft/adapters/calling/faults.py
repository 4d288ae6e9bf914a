"""Classification of responses, as a pure function: the table of ``specs/adapters.md``."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import attrs
import msgspec

from promptgraft import errors
from promptgraft.adapters.calling import streams, turns
from promptgraft.ground.serde import Json, canonical_json, is_unicode, parse_json
from promptgraft.ground.text import on_one_line
from promptgraft.prompt.schema import JsonObject


@attrs.frozen(kw_only=True)
class Fault:
    """The classified reason why a request has no usable answer.

    Attributes:
        error: the exception to raise when the call is given up.
        what: a few words, such as ``HTTP 401 authentication_error``.
        detail: the provider's message; of any length, and not yet redacted.
        mend: what the user can do; empty if nothing.
        retried: whether the same request may succeed later.
        wait: minimum seconds before the next request, as the provider states; None if it does not.
        shape: whether the answer has another shape than the API's; the same one twice in a row
            will not change.
    """

    error: type[errors.PromptgraftError]
    what: str
    detail: str = ""
    mend: str = ""
    retried: bool = False
    wait: float | None = None
    shape: bool = False

    @property
    def limited(self) -> bool:
        """Whether this is a rate limit."""
        return issubclass(self.error, errors.RateLimitedError)


def judge(
    outcome: turns.Received | turns.NothingReceivedError, *, now: datetime, if_absent: str = ""
) -> JsonObject | Fault:
    """Return the body of a good response, or its fault.

    Args:
        outcome: the response.
        now: the time, in UTC.
        if_absent: the advice for a server that does not have the path of the request; empty for
            the usual one.
    """
    if isinstance(outcome, turns.NothingReceivedError):
        if isinstance(outcome, turns.UselessReplyError):
            return Fault(
                error=errors.RejectedRequestError, what="unusable reply", detail=str(outcome)
            )
        what = "no answer in time" if outcome.timed_out else "no answer"
        return _transient(what, str(outcome))
    # Before the body: that of a redirect is a page for people.
    if 300 <= outcome.status < 400:
        return _redirect(outcome)
    body = _body(outcome)
    if not 200 <= outcome.status < 300:
        error_body = _ErrorBody() if isinstance(body, Fault) else _error_body_of(body)
        if error_body == _ErrorBody():
            error_body = _ErrorBody(message=_excerpt(outcome.content))
        fault = _refusal(outcome, error_body, outcome.status, now)
        is_absent = outcome.status in {404, 405} and _NO_PATH_TEXT.search(error_body.message)
        return attrs.evolve(fault, mend=if_absent) if if_absent and is_absent else fault
    if isinstance(body, Fault):
        return body
    # Gateways answer 200 with an error inside, for example when their own upstream fails.
    if body.get("type") != "error" and not body.get("error"):
        return body
    error_body = _error_body_of(body)
    return _refusal(outcome, error_body, error_body.status, now)


def _redirect(received: turns.Received) -> Fault:
    """Return the fault of a redirect: prompt and key must not reach another host."""
    target = received.headers.get("location", "")
    return Fault(
        error=errors.PermanentProviderError,
        what=f"HTTP {received.status}",
        detail=f"redirects to {target}, which is not followed"
        if target
        else _excerpt(received.content),
        mend="check base_url",
    )


def unreadable(error: turns.UnreadableTurnError) -> Fault:
    """Return the fault of a body that is not an answer."""
    return attrs.evolve(_transient("unreadable answer", str(error)), shape=error.shape)


def _body(received: turns.Received) -> JsonObject | Fault:
    is_stream = streams.is_stream(received.content)
    body: Json
    try:
        body = streams.whole_answer(received.content) if is_stream else None
        body = body or parse_json(received.content, where="the answer")
    except (errors.DataFormatError, msgspec.ValidationError) as error:
        problem = str(error)
    else:
        match body:
            case [dict(wrapped)] if "error" in wrapped:  # as Gemini answers
                return wrapped
        if isinstance(body, dict):
            # Asked again, the model would write the same: halves of characters become U+FFFD.
            return body if is_unicode(body) else turns.sendable(body)
        problem = "the answer: expected a JSON object"
    kind = received.headers.get("content-type", "no content type")
    fault = _transient("unreadable answer", f"{problem} ({kind}): {_excerpt(received.content)}")
    # The page of a website or of a network's sign-in does not become an answer by waiting.
    text = received.content.lstrip()
    if "html" in kind.casefold() or text.startswith("<"):
        return attrs.evolve(fault, shape=True, mend="check base_url")
    if is_stream:
        return attrs.evolve(fault, shape=True, mend="turn off streaming in the server")
    return fault if text[:1] in "{[" else attrs.evolve(fault, mend="check base_url")


@attrs.frozen(kw_only=True)
class _ErrorBody:
    kind: str = ""
    code: str = ""
    message: str = ""

    @property
    def words(self) -> set[str]:
        return {self.kind, self.code}

    @property
    def status(self) -> int:
        """The status that it stands for; 500 if unknown."""
        if _STATUS.fullmatch(self.code):
            return int(self.code)
        if _NO_PATH_TEXT.search(self.message):
            return 404
        statuses = (_STATUS_OF.get(word) for word in (self.kind, self.code))
        return next(filter(None, statuses), 400 if _OF_IMAGES.fullmatch(self.code) else 500)


_STATUS = re.compile(r"[45][0-9]{2}")
_STATUS_OF = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "api_error": 500,
    "server_error": 500,
    "vector_store_timeout": 504,
    "timeout_error": 504,
    "overloaded_error": 529,
}
_OF_IMAGES = re.compile(
    r"(?:invalid|invalid_base64|unsupported|empty|failed_to_download)_image[a-z_]*|image_[a-z_]+"
)
_HOPELESS = {
    "account_deactivated",
    "billing_error",
    "billing_hard_limit_reached",
    "billing_not_active",
    "budget_exceeded",
    "insufficient_quota",
    "invalid_api_key",
    "model_not_found",
}
_TOO_LONG = {"context_length_exceeded", "exceed_context_size_error", "string_above_max_length"}
_FILTERED = {
    "bio_policy",
    "content_filter",
    "content_policy_violation",
    "image_content_policy_violation",
    "invalid_prompt",
    "misalignment_policy_violation",
}

_NO_CREDIT = re.compile(r"credit balance is too low", re.IGNORECASE)
# Some providers answer every request with 400; these texts show the status that they mean.
_MEANT = {
    401: re.compile(
        r"\bapi[ _-]?key (?:is )?(?:not valid|invalid|expired|missing)"
        r"|\b(?:invalid|incorrect) api[ _-]?key|\bno_db_connection\b",
        re.IGNORECASE,
    ),
    404: re.compile(
        r"\binvalid model name\b|\bmodel:? (?:\S+ )?(?:does |is )?not (?:exist|found)",
        re.IGNORECASE,
    ),
}
# Some limits end with the day.
_PER_DAY = re.compile(r"\bper[ -]day\b|PerDay|\bdaily\b")
_FILTERED_TEXT = re.compile(
    r"blocked by content filtering policy|content management policy|ContentPolicyViolation"
    r"|requires moderation and your input was flagged",
    re.IGNORECASE,
)
_TOO_LONG_TEXT = re.compile(
    r"prompt is too long|maximum context length|exceeds? (the )?(available )?context"
    r"|reduce the length of the (messages|input|prompt)|token count .{0,40}exceeds the maximum"
    r"|ContextWindowExceeded|context size (?:has been )?exceeded|greater than the context length"
    r"|longer than the (?:model's context|maximum model) length|`max_new_tokens` must be <=",
    re.IGNORECASE,
)
# A model that is served through the other API of OpenAI: tools with thoughts, for example, are not
# served through Chat Completions.
_OTHER_API_TEXT = re.compile(
    r"(?:\buse|only supported in)\s+(?:the\s+)?/?v1/(responses|chat/completions)\b", re.IGNORECASE
)
# Compatible servers that lack a path; one that lacks the model names the model.
_NO_PATH_TEXT = re.compile(
    r"^(?:(?:404 )?(?:page|file|path|route|endpoint) )?not found\W*$"
    r"|\b(?:method not allowed|invalid url|cannot post|no route)\b"
    r"|\b(?:unknown|unexpected|unsupported|no such) (?:url|path|route|endpoint)\b",
    re.IGNORECASE,
)
# Models and gateways that only stream.
_STREAM_TEXT = re.compile(
    r"\bnon-?stream|\bstream\b.{0,40}\btrue\b|\bonly\b.{0,40}\bstream|\brequires? stream"
    r"|\bstream(?:ing)? (?:must|is required)",
    re.IGNORECASE,
)
_TOO_LARGE_TEXT = re.compile(r"request too large", re.IGNORECASE)

_MEND = {
    401: "check the API key",
    402: "check the account's billing",
    403: "check what the API key may do",
    404: "check the name of the model and base_url",
    405: "check base_url",
}


def _refusal(received: turns.Received, error_body: _ErrorBody, status: int, now: datetime) -> Fault:
    """Return the fault of an error that counts as ``status``."""
    if status == 400:
        body_text = f"{error_body.kind} {error_body.code} {error_body.message}"
        status = next((meant for meant, text in _MEANT.items() if text.search(body_text)), status)
    error = _error_class(error_body, status)
    is_limit = issubclass(error, errors.RateLimitedError)
    shown_words = dict.fromkeys((error_body.kind, error_body.code))
    words = " ".join(word for word in shown_words if word not in {"", str(received.status)})
    inside = " with an error inside" if received.status < 300 else ""
    wait = retry_after(received.headers, now=now)
    if wait is None and is_limit:
        wait = rate_limit_reset(received.headers, now=now)
    if wait is None and is_limit and _PER_DAY.search(error_body.message):
        error = errors.PermanentProviderError
    retried = error.lasting is errors.Lasting.TRANSIENT
    return Fault(
        error=error,
        what=f"HTTP {received.status}{inside} {words}".rstrip(),
        detail=error_body.message,
        mend=_mend(error, status, error_body),
        # A nonstandard header of OpenAI and Anthropic, which their SDKs obey as well.
        retried=retried and received.headers.get("x-should-retry", "").lower() != "false",
        wait=wait if retried else None,
    )


def _mend(error: type[errors.PromptgraftError], status: int, error_body: _ErrorBody) -> str:
    if issubclass(error, errors.PromptTooLongError):
        return "shorten the prompt"
    if issubclass(error, errors.PermanentProviderError) and (
        other_api := _other_api(error_body, status)
    ):
        return f"set `api: {other_api}` for this model"
    if _asks_for_a_stream(error_body, status):
        return "set `extra_body: {stream: true}` for this model"
    if not issubclass(error, errors.PermanentProviderError):
        return ""
    return _MEND.get(status, "check base_url" if status < 400 else "check the account")


def _error_class(error_body: _ErrorBody, status: int) -> type[errors.PromptgraftError]:
    # Words go before the status: an exhausted quota is a 429 too, but no wait mends it.
    message = error_body.message
    if error_body.words & _HOPELESS or _NO_CREDIT.search(message):
        return errors.PermanentProviderError
    if error_body.words & _FILTERED or _FILTERED_TEXT.search(message):
        return errors.RefusedAnswerError
    if _is_too_long(error_body, status):
        return errors.PromptTooLongError
    if _other_api(error_body, status) or _asks_for_a_stream(error_body, status):
        return errors.PermanentProviderError
    if status == 429:
        # A single request above the limit per minute fails however long one waits.
        alone = _TOO_LARGE_TEXT.search(message)
        return errors.RejectedRequestError if alone else errors.RateLimitedError
    match errors.lasting_of_status(status):
        case errors.Lasting.TRANSIENT:
            return errors.TransientProviderError
        case errors.Lasting.PERMANENT:
            return errors.PermanentProviderError
    return errors.RejectedRequestError


def _other_api(error_body: _ErrorBody, status: int) -> str:
    """Return the API of OpenAI that a refusal asks to use instead; empty for other refusals."""
    named = _OTHER_API_TEXT.search(error_body.message) if status in {400, 404} else None
    return "" if named is None else named[1].partition("/")[0].lower()


def _asks_for_a_stream(error_body: _ErrorBody, status: int) -> bool:
    return status in {400, 422} and _STREAM_TEXT.search(error_body.message) is not None


def _is_too_long(error_body: _ErrorBody, status: int) -> bool:
    if status == 413 or error_body.words & _TOO_LONG:
        return True
    return status in {400, 422, 500} and _TOO_LONG_TEXT.search(error_body.message) is not None


def _transient(what: str, detail: str) -> Fault:
    return Fault(error=errors.TransientProviderError, what=what, detail=detail, retried=True)


def _error_body_of(body: JsonObject) -> _ErrorBody:
    """Read ``{"error": {"type", "code", "message"}}`` and the variants that gateways produce."""
    error = body.get("error")
    if not isinstance(error, dict):
        error = {**body, "message": error} if isinstance(error, str) else body
    kind = error.get("type")
    return _ErrorBody(
        kind=_word(kind) if kind != "error" else "",
        code=_word(error.get("code")),
        message=_text(error.get("message") or error.get("detail")),
    )


# Characters of a type or code; a hostile server may send any text there. A longer one is left out
# and not cut: half of a key could not be recognized any more.
_LONGEST_WORD = 60


def _word(value: Json) -> str:
    text = _text(value)
    return text if len(text) <= _LONGEST_WORD else ""


def _text(value: Json) -> str:
    return value if isinstance(value, str) else "" if value is None else canonical_json(value)


_TITLE = re.compile("<title>", re.IGNORECASE)
_TITLE_END = re.compile("</title>", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]*>")


def _excerpt(content: str) -> str:
    """Return the readable text of an unexpected body."""
    # Search for the two tags separately: one pattern would be quadratic on a page full of titles.
    start = _TITLE.search(content)
    end = _TITLE_END.search(content, start.end()) if start else None
    text = content[start.end() : end.start()] if start and end else _TAG.sub(" ", content)
    return on_one_line(text) or "an empty body"


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_DURATION = re.compile(rf"(?:{_PART.pattern})+")
_OPENAI = re.compile(r"x-ratelimit-reset-(.+)")
_ANTHROPIC = re.compile(r"anthropic-ratelimit-(.+)-reset")


def retry_after(headers: Mapping[str, str], *, now: datetime) -> float | None:
    """Return the seconds stated by ``retry-after-ms`` or ``retry-after``, or None.

    A date in the past is 0; anything but a number or a date is ignored. Names of ``headers`` are in
    lower case; ``now`` is in UTC.
    """
    # A nonstandard header, which the SDKs prefer as well.
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    header = headers.get("retry-after", "").strip()
    seconds = _number(header)
    if seconds is not None:
        return seconds
    from email.utils import parsedate_to_datetime  # loads much, and few providers send dates

    return _until(header, parsedate_to_datetime, now)


def rate_limit_reset(headers: Mapping[str, str], *, now: datetime) -> float | None:
    """Return the seconds until every exhausted limit is reset, or None.

    Reads ``x-ratelimit-reset-*`` (durations such as ``6m0s``) and ``anthropic-ratelimit-*-reset``
    (times of RFC 3339).
    """
    resets = []
    for name, value in headers.items():
        if match := _OPENAI.fullmatch(name):
            remaining, reset = f"x-ratelimit-remaining-{match[1]}", _duration(value)
        elif match := _ANTHROPIC.fullmatch(name):
            remaining = f"anthropic-ratelimit-{match[1]}-remaining"
            reset = _until(value, datetime.fromisoformat, now)
        else:
            continue
        # Every limit has a reset time, but only an exhausted one has refused the request.
        if reset is not None and not _number(headers.get(remaining, "")):
            resets.append(reset)
    return max(resets, default=None)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _duration(text: str) -> float | None:
    if _DURATION.fullmatch(text.strip()) is None:
        return _number(text)
    seconds = sum(float(count) * _UNITS[unit] for count, unit in _PART.findall(text))
    return seconds if math.isfinite(seconds) else None


def _until(text: str, parse: Callable[[str], datetime], now: datetime) -> float | None:
    try:
        moment = parse(text.strip())
    except (ValueError, OverflowError):
        return None
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max(0.0, (aware - now).total_seconds())
