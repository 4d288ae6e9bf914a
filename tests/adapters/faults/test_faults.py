"""Each fault of a provider becomes what ``outcomes.toml`` says, at each host."""

from __future__ import annotations

import atexit
import contextlib
import functools
import re
import socket
import tomllib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import attrs
import pytest

from adapters.faults.cases import (
    BATCHES,
    CASES,
    CONNECTIONS,
    FINE,
    KEY,
    LIMITS,
    MODEL,
    RECOVERIES,
    BatchCase,
    Case,
)
from further import thorough
from promptgraft import (
    BatchExecutor,
    MarkdownSection,
    ModelPrice,
    Prices,
    Prompt,
    PromptTemplate,
    Session,
)
from promptgraft.adapters.anthropic import AnthropicAdapter
from promptgraft.adapters.base import ModelCalled, ProviderAdapter, ToolInvoked, evaluated
from promptgraft.adapters.calling.retrying import RetryPolicy
from promptgraft.adapters.hosted import (
    AzureOpenAIAdapter,
    BedrockAdapter,
    GeminiAdapter,
    VertexAdapter,
)
from promptgraft.adapters.openai import OpenAIAdapter
from promptgraft.errors import PromptgraftError
from promptgraft.prompt import Described, Tool
from promptgraft.runtime import Cancellation, Deadline
from servers.anthropic_messages import AnthropicMessages
from servers.batches import BatchServer, Fate
from servers.behaviour import WELL, Asked, Behaviour, always, says
from servers.hosted import AzureChat, BedrockMessages, GeminiChat, VertexMessages
from servers.loopback import KEY as LOOPBACK_KEY
from servers.loopback import MODEL as LOOPBACK_MODEL
from servers.loopback import LoopbackServer
from servers.openai_chat import OpenAIChat
from servers.openai_responses import OpenAIResponses
from servers.provider import Provider

OUTCOMES = Path(__file__).parent / "outcomes.toml"
PAGE = Path(__file__).with_name("outcomes.md")
WIRES = ("anthropic", "openai", "responses")
NAMES = {"anthropic": "Messages", "openai": "Chat Completions", "responses": "Responses"}
Row = tuple[str, int, str]
PRICES = Prices({MODEL: ModelPrice(input=1, output=2)})


@attrs.frozen(kw_only=True)
class Host:
    """Who is asked.

    Attributes:
        wire: the format, whose columns of the table hold.
        protocol: what the server speaks.
        adapter: asks it.
    """

    wire: str
    protocol: type[Provider]
    adapter: Callable[..., ProviderAdapter]


_BEDROCK = partial(BedrockAdapter, region="eu-central-1")
_VERTEX = partial(VertexAdapter, region="europe-west1", project="loopback")
HOSTS = {
    "anthropic": Host(wire="anthropic", protocol=AnthropicMessages, adapter=AnthropicAdapter),
    "openai": Host(wire="openai", protocol=OpenAIChat, adapter=OpenAIAdapter),
    "responses": Host(
        wire="responses",
        protocol=OpenAIResponses,
        adapter=partial(OpenAIAdapter, api="responses"),
    ),
    "azure": Host(wire="openai", protocol=AzureChat, adapter=AzureOpenAIAdapter),
    "gemini": Host(wire="openai", protocol=GeminiChat, adapter=GeminiAdapter),
    "bedrock": Host(wire="anthropic", protocol=BedrockMessages, adapter=_BEDROCK),
    "vertex": Host(wire="anthropic", protocol=VertexMessages, adapter=_VERTEX),
}
_NEEDED = {"bedrock": "botocore", "vertex": "google.auth"}

AT_CLOUDS = {
    *("bad request", "wrong key", "unknown model", "wrong address", "server error, empty"),
    *("overloaded inside a 200", "rate limit", "rate limit, an hour", "nobody listens", "no TLS"),
    *("reset in the body", "hang of a run that is stopped", "redirect", "refusal"),
    *("unknown tool", "truncated JSON, then fine", "rate limit, then fine"),
}

QUICK_AT_CLOUDS = {"wrong key", "rate limit", "refusal"}

GOOD = Case(script=always(WELL))
PATIENCE = RetryPolicy(
    attempts=3, wait_initial=0.001, wait_max=0.002, max_retry_after=5.0, timeout=20.0
)


@attrs.frozen
class FilePath:
    """Parameters of ``read_file``."""

    path: Annotated[str, Described("The file.")]


def read_file(params: FilePath) -> str:
    """Return a file; there is only one.

    Raises:
        FileNotFoundError: it is another one.
    """
    if params.path != "a.txt":
        raise FileNotFoundError(f"there is no file `{params.path}`")
    return "text"


READ = Tool[FilePath, str](
    name="read_file",
    description="Reads a file.",
    params_type=FilePath,
    result_type=str,
    handler=read_file,
)


def prompt_for(case: Case) -> Prompt[str]:
    section = MarkdownSection(
        title="Task", key="task", template="Say something.", tools=(READ,) if case.tools else ()
    )
    kind: Any = Literal["fine", "bad"] if case.choice else str
    return Prompt(
        PromptTemplate[str](ns="faults", key="case", sections=(section,), output_type=kind)
    )


@attrs.frozen(kw_only=True)
class Outcome:
    """What becomes of a case.

    Attributes:
        raised: the name of the error; ``none`` for an answer.
        requests: that are sent.
        charged: what the ledger is told: ``nothing``, the ``tokens`` of the answers, or
            ``unknown`` if they are not counted.
        message: of the error, or of the errors that the model is told of its calls of tools; may
            hold ``…`` where the text depends on the moment.
    """

    raised: str
    requests: int
    charged: str
    message: str = ""


def outcomes() -> dict[str, dict[str, Outcome]]:
    """Return the outcomes of each case, by wire format; a list has a value for each, in order."""
    table = tomllib.loads(OUTCOMES.read_text("utf-8"))
    return {
        case: {
            wire: Outcome(**{name: value_at(value, place) for name, value in outcome.items()})
            for place, wire in enumerate(WIRES)
        }
        for case, outcome in table.items()
    }


def value_at(value: object, place: int) -> Any:
    return value[place] if isinstance(value, list) else value


TABLE = outcomes()


class World:
    """A server of an SDK, and adapters that cases share: a client takes long to build."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._case = GOOD
        self._before = 0
        self._adapters: dict[object, ProviderAdapter] = {}
        self.cancellation = Cancellation()
        self.server = LoopbackServer(
            host.protocol(), brain=says(FINE), script=self._behave, key=KEY, models=(MODEL,)
        )

    def _behave(self, asked: Asked) -> Behaviour:
        if self._case.stops:
            self.cancellation.set("enough")
        script = self._case.script_for(self._host.wire)
        return script(attrs.evolve(asked, number=asked.number - self._before))

    def begin(self, case: Case) -> None:
        """Let the server behave as in a case from now on."""
        self._before = len(self.server.asked)
        self._case = case
        self.cancellation = Cancellation()

    def asked(self) -> Sequence[Asked]:
        """Return the good requests since the case began."""
        return self.server.asked[self._before :]

    def adapter_for(self, case: Case) -> ProviderAdapter:
        """Return what a case is asked with."""
        options = (case.model, case.key, case.listens, case.scheme, case.base_path, case.timeout)
        if options not in self._adapters:
            self._adapters[options] = self._host.adapter(
                case.model,
                api_key=case.key,
                base_url=self._address(case),
                policy=PATIENCE,
                prices=PRICES,
                timeout=case.timeout,
                max_tool_rounds=2,
            )
        return self._adapters[options]

    def _address(self, case: Case) -> str:
        if not case.listens:
            return nobody()
        address = self.server.base_url + case.base_path
        return address.replace("http", case.scheme, 1)


@contextlib.contextmanager
def world_of(host: str) -> Iterator[World]:
    if host in _NEEDED:
        pytest.importorskip(_NEEDED[host], reason=f"{_NEEDED[host]} is not installed")
    world = World(HOSTS[host])
    with world.server:
        yield world


@attrs.frozen(kw_only=True)
class Seen:
    """What came of a case; ``arrived`` counts the requests that reached the server."""

    outcome: Outcome
    called: Sequence[ModelCalled]
    arrived: int


def seen(world: World, case: Case) -> Seen:
    world.begin(case)
    before = world.server.counts.requests
    session = Session()
    deadline = Deadline(cancellation=world.cancellation)
    if case.seconds is not None:
        deadline = Deadline.after(case.seconds)
    raised, message = "none", ""
    try:
        response = evaluated(
            world.adapter_for(case), prompt_for(case), session=session, deadline=deadline
        )
        assert response.text == case.text
    except PromptgraftError as error:
        raised, message = type(error).__name__, str(error)
    errors_of_tools = [event.error for event in session.select_all(ToolInvoked) if event.error]
    if errors_of_tools:
        # The model is told the same as the session.
        results = [result[len("error: ") :] for result in world.asked()[1].results]
        assert set(errors_of_tools) <= set(results)
    called = session.select_all(ModelCalled)
    outcome = Outcome(
        raised=raised,
        requests=sum(call.requests for call in called),
        charged=charge_of(called),
        message=message or "; ".join(errors_of_tools),
    )
    return Seen(outcome=outcome, called=called, arrived=world.server.counts.requests - before)


def charge_of(called: Sequence[ModelCalled], share: float = 1) -> str:
    """Return what calls are charged; ``share`` is that of the price."""
    cost = sum(call.cost for call in called if call.cost is not None)
    tokens = sum(call.usage.input_tokens + 2 * call.usage.output_tokens for call in called)
    assert float(cost) == pytest.approx(tokens * share / 1_000_000)
    if any(call.cost is None for call in called):
        return "unknown"
    return "tokens" if cost else "nothing"


@functools.cache
def taken() -> socket.socket:
    """Return a socket that does not listen, and keeps others from listening at its address."""
    unheard = socket.socket()
    unheard.bind(("127.0.0.1", 0))
    atexit.register(unheard.close)
    return unheard


def nobody() -> str:
    """Return an address at which nobody listens."""
    return f"http://127.0.0.1:{taken().getsockname()[1]}/v1"


def pairs(limits: bool) -> list[Any]:
    """Return hosts with cases; those of clouds with cases that each wire has, for the nights.

    A cloud differs from its wire by client, address and key. Both APIs of OpenAI have one client,
    so that connections and waits are tried with the older one.
    """
    of_client = {*LIMITS, *CONNECTIONS, *RECOVERIES}
    found = [
        (host, name)
        for host in HOSTS
        for name in CASES
        if (name in LIMITS) is limits
        and (
            name in AT_CLOUDS or (host in WIRES and not (host == "responses" and name in of_client))
        )
    ]
    quick = [pair for pair in found if pair[0] in WIRES or pair[1] in QUICK_AT_CLOUDS]
    return [*quick, *thorough(pair for pair in found if pair not in quick)]


@pytest.fixture(scope="module")
def host(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def world(host: str) -> Iterator[World]:
    with world_of(host) as found:
        # The first request loads an SDK, which takes longer than some cases allow.
        assert seen(found, GOOD).outcome.raised == "none"
        yield found


@pytest.mark.parametrize(("host", "name"), pairs(limits=False), indirect=["host"])
def test_a_fault_becomes_what_its_row_says(name: str, host: str, world: World) -> None:
    check(world, CASES[name], TABLE[name][HOSTS[host].wire])


@pytest.mark.parametrize(("host", "name"), pairs(limits=True), indirect=["host"])
def test_a_rate_limit_becomes_what_its_row_says(name: str, host: str) -> None:
    # A rate limit is remembered for the account, so that each case has one of its own.
    with world_of(host) as world:
        check(world, CASES[name], TABLE[name][HOSTS[host].wire])


def check(world: World, case: Case, expected: Outcome) -> None:
    after = seen(world, case)
    outcome = after.outcome
    check_outcome(outcome, expected)
    assert after.arrived == (outcome.requests if case.listens and case.scheme == "http" else 0)
    assert case.key not in outcome.message
    if outcome.raised != "none" and outcome.message.startswith("model "):
        assert after.called[-1].fault == outcome.message


def check_outcome(outcome: Outcome, expected: Outcome) -> None:
    pattern = re.escape(expected.message).replace("…", ".+")
    assert re.fullmatch(pattern, outcome.message), outcome.message
    assert attrs.evolve(outcome, message=expected.message) == expected


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", BATCHES)
def test_a_call_in_a_batch_becomes_what_its_row_says(name: str, wire: str) -> None:
    check_outcome(seen_in_batch(wire, BATCHES[name]), TABLE[name][wire])


def seen_in_batch(wire: str, case: BatchCase) -> Outcome:
    def fate(number: int) -> Fate:
        return case.fates[min(number, len(case.fates) - 1)]

    session, raised, message = Session(), "none", ""
    with (
        BatchServer(wire, says(FINE), fate=fate, refusals=case.refusals) as server,
        BatchExecutor() as executor,
    ):
        adapter = HOSTS[wire].adapter(
            LOOPBACK_MODEL,
            api_key=LOOPBACK_KEY,
            base_url=server.base_url,
            policy=PATIENCE,
            prices=Prices({LOOPBACK_MODEL: ModelPrice(input=1, output=2)}),
            mode="batch",
            batch_poll=0.001,
        )
        answer = executor.submit(evaluated, adapter, prompt_for(GOOD), session=session)
        try:
            assert answer.result().text == FINE
        except PromptgraftError as error:
            raised, message = type(error).__name__, str(error)
    called = session.select_all(ModelCalled)
    return Outcome(
        raised=raised,
        requests=sum(call.requests for call in called),
        charged=charge_of(called, share=0.5),
        message=message,
    )


def test_each_case_has_an_outcome_in_each_format() -> None:
    assert list(TABLE) == [*CASES, *BATCHES]
    assert len(TABLE) >= 60
    for outcomes_of_case in TABLE.values():
        for outcome in outcomes_of_case.values():
            assert "\n" not in outcome.message
            assert (outcome.raised == "none") <= (outcome.charged != "nothing")


def test_the_page_lists_every_case_below_its_outcome() -> None:
    assert "\n".join(page_lines()) in PAGE.read_text("utf-8")


def page_lines() -> Iterator[str]:
    """Yield the table of the page, made from the outcomes."""
    yield "| raised | requests | charged | when |"
    yield "|---|---|---|---|"
    rows: dict[Row, list[str]] = {}
    for case, by_wire in TABLE.items():
        wires: dict[Row, list[str]] = {}
        for wire, outcome in by_wire.items():
            row = (outcome.raised, outcome.requests, outcome.charged)
            wires.setdefault(row, []).append(NAMES[wire])
        for row, names in wires.items():
            shown = case if len(names) == len(WIRES) else f"{case} ({' and '.join(names)})"
            rows.setdefault(row, []).append(shown)
    for (raised, requests, charged), cases in sorted(rows.items()):
        name = "none" if raised == "none" else f"`{raised}`"
        yield f"| {name} | {requests} | {charged} | {'; '.join(cases)} |"
