"""The base class of adapters for models over HTTP: their options, and how they evaluate."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from typing import ClassVar, Literal, TypeVar

import attrs

from promptgraft.adapters.abilities import ModelEnd
from promptgraft.adapters.base import ModelCalled, PromptResponse, Usage
from promptgraft.adapters.calling.access import ADDRESS, Access, Api, is_address
from promptgraft.adapters.calling.batch_forms import FORMS
from promptgraft.adapters.calling.caller import Caller, KeptCall
from promptgraft.adapters.calling.conversation import converse
from promptgraft.adapters.calling.gathering import BATCH_SHARE, seat
from promptgraft.adapters.calling.parts import read_text
from promptgraft.adapters.calling.prices import Prices
from promptgraft.adapters.calling.retrying import RetryPolicy
from promptgraft.adapters.calling.schemas import ModelProfile, answer_in
from promptgraft.adapters.calling.turns import Finish, Turn, UnreadableTurnError, Wire
from promptgraft.adapters.facts import end_of, tokens_of_image
from promptgraft.errors import ConfigError, DataFormatError, PromptgraftError
from promptgraft.ground.content import Image
from promptgraft.ground.serde import (
    HexDigest,
    canonical_json,
    digest,
    digest_text,
    looks_like_a_key,
    plain_json,
    shown,
    unstructure,
)
from promptgraft.ground.strict.checks import COUNT, FLAG, SECONDS, TEXT, check, instance, one_of
from promptgraft.prompt.rendered import RenderedPrompt
from promptgraft.prompt.schema import JsonObject
from promptgraft.prompt.template import Prompt
from promptgraft.runtime.calls import Bound, Places
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.session import NOTHING, ZERO, Charge, SessionProtocol, places_of

SHARED = ", asked once"
"""What follows the name of a model in the ledger for calls that got an earlier answer."""
MOST_SHARED = 10_000
"""Answers that are remembered: with 4,000 characters each, about 40 MB of a long-lived process."""


@attrs.define(eq=False)
class _SharedTurn:
    """The answer to a request; whoever needs it first asks, and the others wait."""

    asking: threading.Lock = attrs.field(factory=threading.Lock)
    turn: Turn | None = None


class SharedTurns:
    """The latest answers of a model by request; safe to share between threads, empty in a copy."""

    def __init__(self) -> None:
        self._answers: dict[HexDigest, _SharedTurn] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[SharedTurns], tuple[()]]:
        return type(self), ()

    def turn(
        self, question: HexDigest, ask: Callable[[], Turn], *, model: str, session: SessionProtocol
    ) -> Turn:
        """Return the answer to a request, from ``ask`` if there is none yet.

        Args:
            question: identifies the request and the model.
            ask: makes the call; what it raises is raised, and the next one asks again.
            model: the name of the model.
            session: is told of a call without a request, at no cost, if the answer was there.
        """
        with self._lock:
            answer = self._answers.pop(question, None) or _SharedTurn()
            self._answers[question] = answer
            if len(self._answers) > MOST_SHARED:
                del self._answers[next(iter(self._answers))]  # needed longest ago
        with answer.asking:
            if answer.turn is None:
                answer.turn = ask()
                return answer.turn
        name = f"{model}{SHARED}"
        session.dispatch(ModelCalled(model=name, requests=0, cost=Decimal(0), seconds=0.0))
        return answer.turn


def _as_tuple(value: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    return tuple(value) if isinstance(value, list) else value


def _texts(value: object) -> tuple[str, ...] | None:
    items = tuple(value) if isinstance(value, (list, tuple)) else ("",)
    return items if all(isinstance(item, str) and item for item in items) else None


def _plain_fields(value: object) -> Mapping[str, object] | None:
    try:
        return value if isinstance(value, Mapping) and unstructure(value) is not None else None
    except DataFormatError:
        return None


def _secret(value: object) -> str | None:
    return value if isinstance(value, str) and value.strip() and _is_header(value) else None


def _key(value: object) -> object:
    """Trim a key: one read from a file or pasted ends in white space that nobody sees."""
    return value.strip() if isinstance(value, str) else value


def _on_one_line(owner: ModelAdapter, _: object, value: object) -> None:
    # The key itself must not be shown, so its usual fault is named.
    if isinstance(value, str) and len(value.splitlines()) > 1:
        raise ConfigError(
            f"{type(owner).__name__}: api_key: expected a key on one line, found a line break in "
            "it (the key is not shown); set it again"
        )


def _headers(value: object) -> Mapping[str, str] | None:
    if isinstance(value, dict) and all(map(_is_header, (*value, *value.values()))):
        return value
    return None


def _address(value: object) -> str | None:
    return value if isinstance(value, str) and is_address(value) else None


def _is_header(value: object) -> bool:
    return isinstance(value, str) and bool(value) and value.isascii() and value.isprintable()


_TEXTS = check(
    "a list of texts", _texts, {"type": "array", "items": {"type": "string", "minLength": 1}}
)
_FIELDS = check("a mapping that JSON can hold", _plain_fields, {"type": "object"}, hidden=True)
_SECRET = check("printable ASCII characters", _secret, {"type": "string"}, hidden=True)
_HEADERS = check(
    "a mapping of header names to printable ASCII texts", _headers, {"type": "object"}, hidden=True
)
# An address may hold a password.
_ADDRESS_OF_SERVER = check(ADDRESS, _address, {"type": "string"}, hidden=True)


OutputT = TypeVar("OutputT")

_WHOLE = Decimal(1)
# A common estimate for English; `specs/ledger.md` says where it is too low.
_CHARS_PER_TOKEN = 4
# For what a request costs at most: English has 4, and Chinese 3 for each character.
_FEWEST_BYTES_PER_TOKEN = 3
_LONGEST_ANSWER = 16_384
"""Tokens of the longest answer of a model that does not say; see ``specs/ledger.md``."""
# Options that change answers and hold no secret, in the order in which the identity lists them.
_IDENTIFYING = (
    "max_output_tokens",
    "temperature",
    "top_p",
    "stop",
    "seed",
    "effort",
    "vision",
    "profile",
)
_MAX_TOOL_ROUNDS = 8
_EFFORTS = {"none": 0.0, "minimal": 0.1, "low": 0.4, "high": 3.0, "xhigh": 6.0, "max": 10.0}
"""Thinking relative to the model's default effort."""


def _share_of(cost: Decimal | None, share: Decimal) -> Decimal | None:
    return None if cost is None else cost * share


class _Line:
    """The caller of an adapter in this process; not carried over by pickling or forking."""

    # A lock of each instance could be neither pickled nor replaced after a fork.
    opening = threading.Lock()

    def __init__(self) -> None:
        self._opened: tuple[int, Caller] | None = None

    def __reduce__(self) -> tuple[type[_Line], tuple[()]]:
        return type(self), ()

    @classmethod
    def forget(cls) -> None:
        """Replace the lock in a forked process, where another thread may have held it."""
        cls.opening = threading.Lock()

    def caller(self, new: Callable[[], Caller]) -> Caller:
        with self.opening:
            if self._opened is None or self._opened[0] != os.getpid():
                self._opened = os.getpid(), new()
            return self._opened[1]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Line.forget)


@attrs.frozen(eq=False, kw_only=True)
class ModelAdapter(ABC):
    """An adapter for a model over HTTP.

    Thread-safe and picklable; its client is built once in each process, for the first call.
    """

    service: ClassVar[Api]
    vendor: ClassVar[Literal["anthropic", "openai"]]
    kept_whole: ClassVar[bool] = False

    model: str = attrs.field(kw_only=False, validator=TEXT)
    max_output_tokens: int | None = attrs.field(default=None, validator=COUNT.or_none)
    stop: tuple[str, ...] = attrs.field(default=(), converter=_as_tuple, validator=_TEXTS)
    effort: str | None = attrs.field(default=None, validator=TEXT.or_none)
    vision: bool | None = attrs.field(default=None, validator=FLAG.or_none)
    extra_body: Mapping[str, object] = attrs.field(factory=dict, repr=False, validator=_FIELDS)
    api_key: str | None = attrs.field(
        default=None, repr=False, converter=_key, validator=[_on_one_line, _SECRET.or_none]
    )
    base_url: str | None = attrs.field(
        default=None, repr=False, validator=_ADDRESS_OF_SERVER.or_none
    )
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False, validator=_HEADERS)
    timeout: float = attrs.field(default=600.0, validator=SECONDS)
    policy: RetryPolicy = attrs.field(factory=RetryPolicy, validator=instance(RetryPolicy))
    max_concurrency: int | None = attrs.field(default=None, validator=COUNT.or_none)
    max_tool_rounds: int = attrs.field(default=_MAX_TOOL_ROUNDS, validator=COUNT)
    ask_once: bool = attrs.field(default=False, validator=FLAG)
    prices: Prices = attrs.field(factory=Prices, validator=instance(Prices))
    mode: str = attrs.field(default="call", validator=one_of("call", "batch"))
    batch_poll: float = attrs.field(default=60.0, validator=SECONDS)
    batch_timeout: float = attrs.field(default=90_000.0, validator=SECONDS)
    _shared: SharedTurns = attrs.field(factory=SharedTurns, init=False, repr=False)
    _line: _Line = attrs.field(factory=_Line, init=False, repr=False)
    _batch_line: _Line = attrs.field(factory=_Line, init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        if looks_like_a_key(self.model):
            raise ConfigError(
                f"{self.service.adapter}: model: expected the name of a model, found what looks "
                "like a key (not shown)"
            )
        for field in self.extra_body:
            if setter := self._api.taken.get(field):
                raise ConfigError(
                    f"{self.service.adapter}: extra_body: `{field}` is set by {setter}"
                )
        efforts = self._known.efforts
        if self.effort is not None and efforts and self.effort not in efforts:
            raise ConfigError(
                f"{self.service.adapter}: effort: expected one of {', '.join(efforts)}, found "
                f"{shown(self.effort)}"
            )
        if self.in_batches and self.service.provider not in FORMS:
            raise ConfigError(
                f"{self.service.adapter}: mode: there is no batch interface; leave it out, or use "
                "OpenAIAdapter or AnthropicAdapter"
            )
        if self.ask_once and (self.in_batches or getattr(self, "temperature", None) != 0):
            raise ConfigError(
                f"{self.service.adapter}: ask_once: needs `temperature: 0` and no `mode: batch`, "
                "because only then a model may answer equal requests equally; leave it out"
            )
        # Checked now: the first call may come only after many paid ones of another model.
        self._access.check()

    @property
    def in_batches(self) -> bool:
        """Whether calls made in a ``BatchExecutor`` are answered in batches."""
        return self.mode == "batch"

    @property
    def identity(self) -> str:
        """Provider, model, host of a custom address, and the options that change answers."""
        return self._identity

    # These serve every call, and are derived for the first one, as the client is built for it.

    @cached_property
    def _identity(self) -> str:
        identity_parts = [f"{self.service.provider}/1", self.model]
        if self._access.host is not None:
            identity_parts.append(f"host={self._access.host}")
        options = {name: getattr(self, name, None) for name in _IDENTIFYING}
        identity_parts += [
            f"{name}={value!r}" for name, value in options.items() if value not in (None, ())
        ]
        if self.extra_body:
            # A digest, because the fields may hold anything, also secrets.
            identity_parts.append(f"extra_body={digest(self.extra_body)[:16]}")
        # Listed only if set, so that the identity of most runs does not depend on it.
        if self.max_tool_rounds != _MAX_TOOL_ROUNDS:
            identity_parts.append(f"max_tool_rounds={self.max_tool_rounds}")
        return " ".join([*identity_parts, *self._further_identity])

    @property
    def _further_identity(self) -> Sequence[str]:
        """What else a provider's adapter lists in its identity."""
        return ()

    @cached_property
    def _seller(self) -> str | None:
        """The provider, or the address, whose prices apply to the model."""
        return self.service.seller or self._known.seller or self._access.address

    @property
    def thinking(self) -> int:
        """Expected tokens of thinking before an answer; 0 for none."""
        return round(self._thoughts * _EFFORTS.get(self.effort or "", 1.0))

    @property
    def is_thinking_assumed(self) -> bool:
        """Whether it is not known that the model thinks, but assumed."""
        return self._known.assumed and self.effort is None and self.thinking > 0

    @property
    def cached_from(self) -> int:
        """Tokens of the shortest beginning of a prompt that the provider caches; 0 for none."""
        return self._known.cached_from

    @property
    def sees(self) -> bool | None:
        """Whether the model sees images; None if that is not known."""
        return self._known.sees

    def tokens_of_image(self, image: Image) -> int:
        """Return the tokens that an image is expected to cost."""
        profile = self._known
        return tokens_of_image(profile.vision, profile.image_rate, image.pixels)

    @property
    def end(self) -> ModelEnd | None:
        """The announced end of the model; None without one, and for clouds with their own."""
        if self.service.seller is not None:
            return None
        return end_of(self.vendor, self.model.rpartition("/")[2])

    @property
    @abstractmethod
    def longest_answer(self) -> int | None: ...

    def price_of(self, usage: Usage) -> Decimal | None:
        return self.prices.of(usage, provider=self._seller, model=self.model)

    def evaluate(
        self, prompt: Prompt[OutputT], *, session: SessionProtocol, deadline: Deadline | None = None
    ) -> PromptResponse[OutputT]:
        if deadline is not None:
            deadline.check()
        rendered = prompt.render(session)
        return converse(
            rendered,
            wire=self.wire,
            ask=lambda body: self.ask(body, session=session, deadline=deadline),
            read=lambda text: answer_in(rendered, self._known.rules, text),
            session=session,
            deadline=deadline,
            max_tool_rounds=self.max_tool_rounds,
        )

    def check_prompt(self, rendered: RenderedPrompt[object]) -> None:
        """Raise a ``ConfigError`` if a prompt has no form in the provider's format."""
        try:
            self.wire.open(rendered)
        except PromptgraftError as error:
            where = f"{self.service.adapter} cannot send `{rendered.ns}/{rendered.key}`"
            raise ConfigError(f"{where}: {error}") from error

    def ask(
        self, body: JsonObject, *, session: SessionProtocol, deadline: Deadline | None = None
    ) -> Turn:
        """Send one request in the provider's format; see :meth:`Caller.call`.

        In a run with a journal, an answer that it keeps is not asked for again.
        """
        if self.in_batches and seat() is not None:
            # Batches are in the journal themselves, and are fetched again after a kill.
            caller = self._batch_line.caller(self._new_batch_caller)
            return self._call(caller, body, session=session, deadline=deadline, share=BATCH_SHARE)
        places = places_of(session)
        call = None if places is None else self._kept_call(body, places)

        def recall_or_call() -> Turn:
            if call is not None and (turn := call.recall(session)) is not None:
                return turn
            caller = self._line.caller(self._new_caller)
            turn = self._call(caller, body, session=session, deadline=deadline, kept_call=call)
            if call is not None:
                call.keep(turn)
            return turn

        # A search that asks the same question twice wants another proposal.
        if not self.ask_once or session.tags.get("scope") == "reflection":
            return recall_or_call()
        question = digest_text(plain_json(body))
        return self._shared.turn(question, recall_or_call, model=self.model, session=session)

    def _call(
        self,
        caller: Caller,
        body: JsonObject,
        *,
        session: SessionProtocol,
        deadline: Deadline | None,
        share: Decimal = _WHOLE,
        kept_call: KeptCall | None = None,
    ) -> Turn:
        is_limited = session.budget is not None and session.budget.is_limited
        return caller.call(
            body,
            read=self._read,
            price=lambda turn: _share_of(self._price(turn), share),
            model=self.model,
            expected=self._expected(body, share) if is_limited else NOTHING,
            session=session,
            deadline=deadline,
            kept_call=kept_call,
            beginning="" if share is BATCH_SHARE else self._beginning(body),
        )

    def _read(self, body: JsonObject) -> Turn:
        try:
            return self.wire.read(body)
        except UnreadableTurnError as error:
            usage, written = self.wire.counted(body)
            error.billed = Turn(
                text="",
                finish=Finish.DONE,
                finish_reason="",
                usage=usage,
                cache_write_tokens=written,
                model=self.model,
                messages=(),
            )
            raise

    def _beginning(self, body: JsonObject) -> str:
        """Identify the part of a request that the provider caches; empty if it is too short."""
        if not (least := self.cached_from):
            return ""
        text = canonical_json(self.wire.stable(body))
        return digest_text(text) if len(text) // _CHARS_PER_TOKEN >= least else ""

    @property
    @abstractmethod
    def _known(self) -> ModelProfile: ...

    @property
    def _thoughts(self) -> int:
        """Expected tokens of thinking at the model's usual effort."""
        return self._known.thinking

    @property
    @abstractmethod
    def wire(self) -> Wire: ...

    @property
    def _api(self) -> Api:
        """The API that is spoken, of those of the provider."""
        return self.service

    @property
    def _access(self) -> Access:
        return self._access_to(self._api)

    def _access_to(self, api: Api) -> Access:
        return Access(
            api=api,
            api_key=self.api_key,
            base_url=self.base_url,
            headers=self.headers,
            further=self._client_options,
        )

    @property
    def _client_options(self) -> Mapping[str, str]:
        """Arguments of the SDK's client other than key, address and headers."""
        return {}

    @property
    def _further_fields(self) -> JsonObject:
        extra = unstructure(self.extra_body)
        return extra if isinstance(extra, dict) else {}

    def _new_caller(self) -> Caller:
        from promptgraft.adapters.calling.sdk import SdkEndpoint  # imports the HTTP client

        return Caller(
            SdkEndpoint(self._access),
            policy=self.policy,
            call_timeout=self.timeout,
            max_concurrency=self.max_concurrency,
            if_absent=self._api.if_absent,
        )

    def _new_batch_caller(self) -> Caller:
        from promptgraft.adapters.calling.batches import BatchEndpoint  # imports the HTTP client

        endpoint = BatchEndpoint(
            self._access, model=self.model, poll=self.batch_poll, seconds=self.timeout
        )
        # Not limited: a call that waits for its batch would hold a slot for hours.
        policy = attrs.evolve(self.policy, timeout=self.batch_timeout)
        return Caller(endpoint, policy=policy, call_timeout=self.batch_timeout, limited=False)

    def _price(self, turn: Turn) -> Decimal | None:
        return self.prices.cost(turn, provider=self._seller, model=self.model)

    def _kept_call(self, body: JsonObject, places: Places) -> KeptCall:
        question = plain_json([self._identity, body])
        # In whole hundreds, so that few prices are looked up.
        hundreds = len(read_text(question).encode()) // (100 * _FEWEST_BYTES_PER_TOKEN) + 1
        bound = self._bounds.get(hundreds)
        if bound is None:
            bound = self._bounds[hundreds] = self._bound_of(100 * hundreds)
        return KeptCall(places=places, question=digest_text(question), bound=bound)

    @cached_property
    def _bounds(self) -> dict[int, Bound]:
        """The most that requests cost, by their hundreds of tokens."""
        return {}

    def _bound_of(self, sent: int) -> Bound:
        received = self.longest_answer or _LONGEST_ANSWER
        cost = self.price_of(Usage(input_tokens=sent, output_tokens=received))
        return Bound(model=self.model, input_tokens=sent, output_tokens=received, cost=cost)

    def _expected(self, body: JsonObject, share: Decimal) -> Charge:
        """Return an estimate of the price of a request's input."""
        tokens = len(read_text(plain_json(body))) // _CHARS_PER_TOKEN
        cost = _share_of(self.price_of(Usage(input_tokens=tokens)), share)
        return Charge(cost=ZERO if cost is None else cost, tokens=tokens)
