"""What a loopback server answers, and what it has seen; knows nothing of sockets."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Sequence

import attrs

from promptgraft.errors import DataFormatError
from promptgraft.ground.serde import canonical_json, parse_json
from servers.behaviour import Answer, Asked, Behaviour, Brain, Fault, JsonObject, Script
from servers.http1 import HttpRequest
from servers.provider import Prefixes, Provider, Tokens, some_tokens

_LIMIT = 1_000


@attrs.frozen(kw_only=True)
class Counts:
    """What a server has seen and reported so far.

    Attributes:
        requests: requests that were read, whatever came of them.
        statuses: how many responses of each status were sent whole.
        broken: responses that were not sent whole, by wish or because the client left.
        refused: faults of the requests that broke a documented rule.
        input_tokens: tokens reported as sent, cached ones included.
        output_tokens: tokens reported as received.
        cached_tokens: tokens reported as read from the cache.
        in_flight: requests that are in work.
        most_in_flight: requests that were in work at the same time, at most.
    """

    requests: int = 0
    statuses: Counter[int] = attrs.field(factory=Counter[int])
    broken: int = 0
    refused: tuple[str, ...] = ()
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    in_flight: int = 0
    most_in_flight: int = 0


@attrs.frozen(kw_only=True)
class Response:
    """A response as it would be sent whole, and how it is sent.

    Attributes:
        behaviour: where the connection goes wrong, and when.
        status: of the response.
        headers: without those that say how long the body is.
        body: of the response.
        tokens: those that it reports; None when it does not.
        marks: the beginnings that are in the cache once it is sent.
    """

    behaviour: Behaviour
    status: int
    headers: dict[str, str]
    body: bytes
    tokens: Tokens | None
    marks: Sequence[str] = ()


@attrs.frozen(kw_only=True)
class Rules:
    """Who is let in, and how they are answered.

    Attributes:
        brain: what answers.
        script: how each good request is answered.
        key: the only one that is let in.
        models: those that exist.
        at_once: requests that may be in work; more are answered with 429. None for no limit.
        caching: whether repeated beginnings are counted as cached.
        cached_from: tokens of the shortest beginning that is cached.
    """

    brain: Brain
    script: Script
    key: str
    models: Collection[str]
    at_once: int | None
    caching: bool
    cached_from: int


class Desk:
    """Takes requests and says what is to be sent; safe to call from several threads."""

    def __init__(self, provider: Provider, rules: Rules) -> None:
        self._provider = provider
        self._rules = rules
        self._cached: set[str] = set()
        self._counts = Counts()
        self._asked: list[Asked] = []
        self._news = threading.Condition(threading.RLock())

    @property
    def counts(self) -> Counts:
        """What has been seen so far."""
        with self._news:
            return attrs.evolve(self._counts, statuses=self._counts.statuses.copy())

    @property
    def asked(self) -> tuple[Asked, ...]:
        """Every good request so far, in the order of arrival."""
        with self._news:
            return tuple(self._asked)

    def wait_for(self, in_flight: int, seconds: float) -> None:
        """Wait until so many requests are in work.

        Raises:
            TimeoutError: they are not.
        """
        with self._news:
            if not self._news.wait_for(lambda: self._counts.in_flight >= in_flight, seconds):
                raise TimeoutError(f"{self._counts.in_flight} of {in_flight} are in flight")

    def take(self, request: HttpRequest) -> Response:
        """Take a request and return what is to be sent."""
        with self._news:
            in_flight = self._counts.in_flight + 1
            self._counts = attrs.evolve(
                self._counts,
                requests=self._counts.requests + 1,
                in_flight=in_flight,
                most_in_flight=max(self._counts.most_in_flight, in_flight),
            )
            response = self._response(request, f"req_{self._counts.requests:012}")
            self._news.notify_all()
        return response

    def sent(self, response: Response) -> None:
        """Count a response that is sent whole."""
        tokens = response.tokens or Tokens(sent=0, received=0)
        with self._news:
            now = self._counts
            now.statuses[response.status] += 1
            # Not before: requests that are in work at the same time read nothing of each other.
            self._cached.update(response.marks)
            self._counts = attrs.evolve(
                now,
                in_flight=now.in_flight - 1,
                input_tokens=now.input_tokens + tokens.sent,
                output_tokens=now.output_tokens + tokens.received,
                cached_tokens=now.cached_tokens + tokens.cached,
            )

    def broke(self) -> None:
        """Count a response that is not sent whole."""
        with self._news:
            now = self._counts
            self._counts = attrs.evolve(now, in_flight=now.in_flight - 1, broken=now.broken + 1)

    def _response(self, request: HttpRequest, request_id: str) -> Response:
        found = self._admitted(request)
        if isinstance(found, Fault):
            if found.status in {400, 404}:
                refused = (*self._counts.refused, found.message)
                self._counts = attrs.evolve(self._counts, refused=refused)
            return self._written(Behaviour(status=found.status, fault=found), None, request_id)
        asked = self._provider.read(found, request.headers, len(self._asked))
        self._asked.append(asked)
        most = self._rules.at_once
        crowded = most is not None and self._counts.in_flight > most
        behaviour = Behaviour(status=429) if crowded else self._rules.script(asked)
        return self._written(behaviour, asked, request_id)

    def _admitted(self, request: HttpRequest) -> JsonObject | Fault:
        """Return the body of a good request, or what the provider says of a bad one."""
        provider = self._provider
        said = provider.error_text(request.path)
        if request.method != "POST" or said is None:
            return provider.fault(404)
        key = provider.key_of(request.headers)
        if key != self._rules.key:
            return provider.wrong_key(key)
        try:
            body = parse_json(request.body, where="body")
        except DataFormatError as error:
            return attrs.evolve(provider.fault(400), message=f"not valid JSON: {error}")
        kind = request.headers.get("content-type", "")
        if not isinstance(body, dict) or not kind.startswith("application/json"):
            return attrs.evolve(provider.fault(400), message="expected a JSON object")
        body = {**body, **said}
        if fault := provider.check(body, request.headers):
            return fault
        model = str(body["model"])
        return body if model in self._rules.models else provider.no_model(model)

    def _written(self, behaviour: Behaviour, asked: Asked | None, request_id: str) -> Response:
        provider, tokens = self._provider, None
        if behaviour.body is not None:
            body = behaviour.body
        elif behaviour.fault is not None or behaviour.status >= 400 or asked is None:
            fault = behaviour.fault or provider.fault(behaviour.status)
            body = canonical_json(provider.fault_body(fault, request_id)).encode()
        else:
            answer = behaviour.answer or self._rules.brain(asked)
            tokens = self._tokens(asked, answer)
            body = canonical_json(provider.answer_body(asked, answer, tokens)).encode()
        remaining = _LIMIT - self._counts.in_flight
        headers = {
            "content-type": behaviour.content_type,
            **provider.headers(request_id, limit=_LIMIT, remaining=remaining),
            **behaviour.headers,
        }
        return Response(
            behaviour=behaviour,
            status=behaviour.status,
            headers=headers,
            body=body,
            tokens=tokens,
            marks=() if tokens is None or asked is None else self._marks(asked).kept,
        )

    def _tokens(self, asked: Asked, answer: Answer) -> Tokens:
        said = answer.text + "".join(call.tool + call.arguments for call in answer.calls)
        sent = answer.input_tokens or some_tokens(canonical_json(asked.body))
        thought = answer.thought_tokens
        received = (answer.output_tokens or some_tokens(said)) + thought
        marks = self._marks(asked)

        def size(text: str) -> int:
            step = self._provider.cached_in_steps_of
            return min(some_tokens(text), sent - 1) // step * step

        cached = max((size(text) for text in marks.read if text in self._cached), default=0)
        kept = max(map(size, marks.kept), default=0)
        written = max(0, kept - cached) if marks.are_paid else 0
        return Tokens(sent=sent, received=received, thought=thought, cached=cached, written=written)

    def _marks(self, asked: Asked) -> Prefixes:
        """Return the beginnings of a request that are long enough for the cache."""
        if not self._rules.caching:
            return Prefixes()
        found, least = self._provider.prefixes(asked), self._rules.cached_from
        read, kept = (
            [text for text in texts if some_tokens(text) >= least]
            for texts in (found.read, found.kept)
        )
        return attrs.evolve(found, read=read, kept=kept)
