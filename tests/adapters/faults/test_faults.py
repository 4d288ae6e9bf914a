"""Each fault of a provider becomes what its row in ``specs/adapters.md`` says, at each host."""

from __future__ import annotations

import contextlib
import itertools
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import attrs
import pytest

from adapters.faults.cases import CASES, FINE, KEY, LIMITS, MODEL, Case
from promptgraft import MarkdownSection, Prompt, PromptTemplate, Session
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
from servers.behaviour import WELL, Asked, Behaviour, always, says
from servers.hosted import AzureChat, BedrockMessages, GeminiChat, VertexMessages
from servers.loopback import LoopbackServer
from servers.openai_chat import OpenAIChat
from servers.openai_responses import OpenAIResponses
from servers.provider import Provider

SPEC = Path(__file__).parents[3] / "specs" / "adapters.md"
HEADING = "### What becomes of each fault"
WIRES = ("anthropic", "openai", "responses")


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
    return Prompt(
        PromptTemplate[str](ns="faults", key="case", sections=(section,), output_type=str)
    )


@attrs.frozen(kw_only=True)
class Row:
    """A row of the table; ``message`` may hold `…` where a number depends on the moment."""

    error: str
    requests: int
    message: str


def cells_of(line: str) -> list[str]:
    cells = re.split(r"(?<!\\)\|", line.strip())[1:-1]
    return [cell.strip().replace("\\|", "|") for cell in cells]


def rows() -> Iterator[tuple[str, dict[str, Row]]]:
    """Yield the cases of the table in the spec page, with a row for each wire format.

    A cell is empty where the format says what the one before it does.
    """
    section = SPEC.read_text("utf-8").partition(f"{HEADING}\n")[2].partition("\n#")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    for line in lines[2:]:
        case, _, error, requests, *said = cells_of(line)
        errors, counts = error.split(" / "), requests.split(" / ")
        messages = [*itertools.accumulate(said, _last_said)]
        yield (
            case,
            {
                wire: Row(
                    error=errors[min(index, len(errors) - 1)].strip("`"),
                    requests=int(counts[min(index, len(counts) - 1)]),
                    message=messages[min(index, len(messages) - 1)],
                )
                for index, wire in enumerate(WIRES)
            },
        )


def _last_said(before: str, cell: str) -> str:
    return cell or before


TABLE = dict(rows())


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
        options = (case.model, case.key, case.listens, case.base_path, case.timeout)
        if options not in self._adapters:
            self._adapters[options] = self._host.adapter(
                case.model,
                api_key=case.key,
                base_url=self.server.base_url + case.base_path if case.listens else nobody(),
                policy=PATIENCE,
                timeout=case.timeout,
                max_tool_rounds=2,
            )
        return self._adapters[options]


@contextlib.contextmanager
def world_of(host: str) -> Iterator[World]:
    if host in _NEEDED:
        pytest.importorskip(_NEEDED[host], reason=f"{_NEEDED[host]} is not installed")
    world = World(HOSTS[host])
    with world.server:
        yield world


@attrs.frozen(kw_only=True)
class Seen:
    """What came of a case."""

    error: str
    message: str
    called: Sequence[ModelCalled]
    arrived: int


def seen(world: World, case: Case) -> Seen:
    world.begin(case)
    before = world.server.counts.requests
    session = Session()
    error, message = "none", ""
    deadline = Deadline(cancellation=world.cancellation)
    if case.seconds is not None:
        deadline = Deadline.after(case.seconds)
    try:
        response = evaluated(
            world.adapter_for(case), prompt_for(case), session=session, deadline=deadline
        )
        assert response.text == FINE
    except PromptgraftError as caught:
        error, message = type(caught).__name__, str(caught)
    told = [event.error for event in session.select_all(ToolInvoked) if event.error]
    if told:
        # The model is told the same as the session.
        results = [result[len("error: ") :] for result in world.asked()[1].results]
        assert set(told) <= set(results)
    return Seen(
        error=error,
        message=message or "; ".join(told),
        called=session.select_all(ModelCalled),
        arrived=world.server.counts.requests - before,
    )


def nobody() -> str:
    """Return an address at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}/v1"


def pairs(limits: bool) -> list[tuple[str, str]]:
    """Return hosts with cases: bodies are read, and waits kept, by what all hosts share."""
    names = list(CASES)
    read = names[names.index("truncated JSON") : names.index("refusal")]
    shared = {*read, *list(LIMITS)[1:-1]}
    return [
        (host, name)
        for host in HOSTS
        for name in names
        if (name in LIMITS) is limits and (host in WIRES or name not in shared)
    ]


@pytest.fixture(scope="module")
def host(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def world(host: str) -> Iterator[World]:
    with world_of(host) as found:
        # The first request loads an SDK, which takes longer than some cases allow.
        assert seen(found, GOOD).error == "none"
        yield found


@pytest.mark.parametrize(("host", "name"), pairs(limits=False), indirect=["host"])
def test_a_fault_becomes_what_its_row_says(name: str, host: str, world: World) -> None:
    check(world, CASES[name], TABLE[name][HOSTS[host].wire])


@pytest.mark.parametrize(("host", "name"), pairs(limits=True), indirect=["host"])
def test_a_rate_limit_becomes_what_its_row_says(name: str, host: str) -> None:
    # A rate limit is remembered for the account, so that each case has one of its own.
    with world_of(host) as world:
        check(world, CASES[name], TABLE[name][HOSTS[host].wire])


def check(world: World, case: Case, row: Row) -> None:
    found = seen(world, case)
    expected = re.escape("" if row.message == "—" else row.message).replace("…", ".+")
    assert found.error == row.error, found.message
    assert re.fullmatch(expected, found.message), found.message
    assert sum(call.requests for call in found.called) == row.requests
    assert found.arrived == (row.requests if case.listens else 0)
    assert case.key not in found.message
    if found.error != "none" and found.message.startswith("model "):
        assert found.called[-1].fault == found.message


def test_the_table_has_every_case_and_no_other() -> None:
    assert list(TABLE) == list(CASES)
    assert len(TABLE) >= 40
