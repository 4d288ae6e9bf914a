"""Agents that are Python functions: how they are called, and what becomes of what they raise."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from decimal import Decimal
from typing import Any
from urllib.error import URLError

import attrs
import pytest

from black_box.asking import TEXTS, asked, cases
from promptgraft import AgentAnswer, AgentCall, BlackBox, Case, PromptResponse, Session, evaluate
from promptgraft.adapters.base import ModelCalled, ToolInvoked, Usage
from promptgraft.agents.python import PythonAgent
from promptgraft.errors import (
    AgentFaultError,
    BudgetExhaustedError,
    CallerError,
    ConfigError,
    DeadlineExceededError,
    PermanentProviderError,
    PromptEvaluationError,
    RejectedRequestError,
    TransientProviderError,
)
from promptgraft.evals import metrics
from promptgraft.evals.types import ToolUse
from promptgraft.runtime import Deadline


def plain(query: str, call: AgentCall) -> str:
    return f"{call.texts['system']} {query}"


async def waiting(query: str, call: AgentCall) -> str:
    await asyncio.sleep(0)
    return plain(query, call)


def by_name(query: str, *, call: AgentCall) -> str:
    return plain(query, call)


def three(prefix: str, query: str, call: AgentCall) -> str:
    return plain(query, call)


@functools.wraps(plain)
def wrapped(*args: Any, **given: Any) -> str:
    return plain(*args, **given)


class Bot:
    def __call__(self, query: str, call: AgentCall) -> str:
        return plain(query, call)

    async def answer(self, query: str, call: AgentCall | None = None) -> str:
        assert call is not None
        return plain(query, call)


@pytest.mark.parametrize(
    "function",
    [
        plain,
        waiting,
        by_name,
        wrapped,
        functools.partial(three, "x"),
        functools.partial(plain),
        Bot(),
        Bot().answer,
        lambda query, call: f"{call.texts['system']} {query}",
    ],
)
def test_every_kind_of_function_is_asked_with_query_and_texts(function: Callable[..., Any]) -> None:
    assert asked(function).text == "Be brief. how many?"


def test_a_function_of_the_query_alone_is_refused_because_the_texts_never_reach_it() -> None:
    with pytest.raises(ConfigError, match="takes the query only"):
        BlackBox(TEXTS, agent=lambda query: query)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (5, "expected a function or an agent, found 5"),
        (Bot, "expected a function or an agent, found <class"),
        (lambda: "x", r"expected a function of `\(query\)` or `\(query, call\)`, found `\(\)`"),
        (lambda query, call, more: "x", r"found `\(query, call, more\)`"),
        (lambda query, call, *, more: "x", r"found `\(query, call, \*, more\)`"),
    ],
)
def test_what_cannot_be_asked_is_refused(function: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        BlackBox(TEXTS, agent=function)


def test_what_the_agent_says_of_itself_is_seen_in_the_session() -> None:
    answer = AgentAnswer(
        text="4",
        output={"n": 4},
        tools=[ToolUse(name="count", arguments={"of": "x"}, result=4)],
        usage=Usage(input_tokens=10, output_tokens=2),
        cost=0.25,
    )
    session = Session()
    response = asked(lambda query, call: answer, session=session)
    assert (response.text, response.output, response.usage) == ("4", {"n": 4}, answer.usage)
    assert session.select_all(ToolInvoked) == (
        ToolInvoked(name="count", params={"of": "x"}, result=4),
    )
    [called] = session.select_all(ModelCalled)
    assert (called.usage.input_tokens, called.cost) == (10, Decimal("0.25"))


def raising(error: BaseException) -> Callable[..., str]:
    def call(query: str, call: AgentCall) -> str:
        raise error

    return call


class StatusError(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"the server said {status}")
        self.status_code = status


class TransportError(Exception):
    """As httpx has it: neither a ConnectionError nor a TimeoutError."""


class SlowError(TransportError):
    pass


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (ValueError("no\nnumber"), AgentFaultError, "the agent raised ValueError: no number"),
        (KeyError("x"), AgentFaultError, "the agent raised KeyError: 'x'"),
        (AssertionError(), AgentFaultError, "the agent raised AssertionError"),
        (SystemExit(3), AgentFaultError, "the agent raised SystemExit: 3"),
        (StatusError(400), AgentFaultError, "raised StatusError: the server said 400"),
        (StatusError(429), TransientProviderError, "agent `test_python_agents.raising"),
        (StatusError(503), TransientProviderError, "raised StatusError: the server said 503"),
        (SlowError("slow"), TransientProviderError, "raised SlowError: slow"),
        (ConnectionRefusedError("no"), TransientProviderError, "ConnectionRefusedError: no"),
        (TimeoutError(), TransientProviderError, "raised TimeoutError"),
        (URLError(ConnectionRefusedError()), TransientProviderError, "raised URLError"),
        (URLError("unknown url type: x"), AgentFaultError, "raised URLError"),
    ],
)
def test_what_the_agent_raises_scores_zero_unless_it_may_pass(
    error: BaseException, kind: type[PromptEvaluationError], said: str
) -> None:
    with pytest.raises(kind) as raised:
        asked(raising(error))
    assert said in str(raised.value)


@pytest.mark.parametrize("kind", [ValueError, TimeoutError])
def test_what_the_agent_raises_tells_no_secret_of_the_environment(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DESK_TOKEN", "desk 0123 4567")
    with pytest.raises(PromptEvaluationError) as raised:
        # Where the message is cut.
        asked(raising(kind(f"{'x' * 160} desk 0123 4567 {'x' * 400}")))
    assert "xx [secret] " in str(raised.value)


@pytest.mark.parametrize("raised_again", [False, True])
def test_a_client_that_calls_share_but_no_event_loop_ends_the_run(raised_again: bool) -> None:
    reply = asyncio.Event()

    async def client() -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(reply.wait(), 0.001)

    def agent(query: str, call: AgentCall) -> str:
        try:
            asyncio.run(client())
        except RuntimeError as error:
            if raised_again:  # as SDKs do
                raise ConnectionError("Connection error.") from error
            raise
        return plain(query, call)

    assert asked(agent).text
    with pytest.raises(PermanentProviderError, match="write the agent as `async def` and await"):
        asked(agent)


def test_the_reflector_sees_400_characters_of_a_fault_and_no_names_of_files() -> None:
    with pytest.raises(AgentFaultError) as raised:
        asked(raising(ValueError("x" * 5_000)))
    assert 400 < len(str(raised.value)) < 470
    assert "test_python_agents" not in str(raised.value)
    assert "test_python_agents.py:" in raised.value.place


@pytest.mark.parametrize("found", [b"text", PromptResponse(text="x"), object(), {1: "x"}])
def test_an_answer_of_another_type_is_a_fault_of_the_agent(found: object) -> None:
    with pytest.raises(AgentFaultError, match="an agent returns a value of JSON or an AgentAnswer"):
        asked(lambda query, call: found)


@attrs.frozen
class Shelf:
    name: str
    since: date = date(2026, 1, 2)


@pytest.mark.parametrize(
    ("value", "output"),
    [
        (Shelf("travel"), {"name": "travel", "since": "2026-01-02"}),
        ([Shelf("travel")], [{"name": "travel", "since": "2026-01-02"}]),
        (date(2026, 1, 2), None),
        ({"b", "a"}, ["a", "b"]),
        (None, None),
    ],
)
def test_data_of_classes_is_an_answer_like_plain_data(value: object, output: object) -> None:
    assert asked(lambda query, call: value).output == output


def test_a_fault_is_told_in_the_same_words_wherever_the_object_lies() -> None:
    texts = set()
    for _ in range(2):
        with pytest.raises(AgentFaultError) as raised:
            asked(lambda query, call: (letter for letter in "ab"))
        texts.add(str(raised.value))
    assert len(texts) == 1
    assert " at 0x" not in texts.pop()


@pytest.mark.parametrize("field", [{"text": 5}, {"tools": "x"}, {"cost": "x"}, {"usage": 3}])
def test_an_answer_with_a_wrong_field_is_a_fault_of_the_agent(field: dict[str, Any]) -> None:
    with pytest.raises(AgentFaultError, match="the agent raised ConfigError"):
        asked(lambda query, call: AgentAnswer(**{"text": "x", **field}))


def test_faults_leave_rollouts_unscored_or_end_the_run_where_that_is_wanted() -> None:
    agent = raising(ValueError("boom"))
    with pytest.raises(RejectedRequestError, match="on case `c1`: the agent raised ValueError"):
        asked(agent, on_agent_error="unscored")
    case = Case(id="c9", input="x", origin="cases.jsonl:14")
    with pytest.raises(CallerError) as raised:
        asked(agent, case, on_agent_error="stop")
    said = str(raised.value)
    assert said.startswith("cases.jsonl:14: agent `test_python_agents.raising.<locals>.call` on")
    assert "case `c9`: the agent raised ValueError: boom (" in said
    assert "test_python_agents.py:" in said


def test_an_async_agent_is_interrupted_at_its_time_limit_and_at_that_of_the_run() -> None:
    async def slow(query: str, call: AgentCall) -> str:
        await asyncio.sleep(60)
        return "never"

    for later in (None, Deadline.after(60)):
        with pytest.raises(TransientProviderError, match=r"within 0\.01 s, its `timeout`"):
            asked(PythonAgent(function=slow, timeout=0.01), deadline=later)
    with pytest.raises(DeadlineExceededError):
        asked(slow, deadline=Deadline.after(0.01))


def test_a_time_limit_of_a_function_that_cannot_be_interrupted_is_refused() -> None:
    with pytest.raises(ConfigError, match="is not async, so it cannot be interrupted"):
        PythonAgent(function=plain, timeout=1)


def test_an_agent_says_that_it_reports_tools_by_its_annotation() -> None:
    def telling(query: str, call: AgentCall) -> AgentAnswer:
        return AgentAnswer(text="x", tools=())

    assert PythonAgent(function=telling).reports_tools
    assert PythonAgent(function=functools.partial(telling)).reports_tools
    assert not PythonAgent(function=plain).reports_tools
    assert PythonAgent(function=plain, reports_tools=True).reports_tools


def test_the_identity_of_an_agent_changes_with_its_source_or_its_version() -> None:
    first = PythonAgent(function=functools.partial(three, "a"))
    other = PythonAgent(function=functools.partial(three, "b"))
    assert first.name == other.name == "test_python_agents.three"
    assert first.identity != other.identity
    versions = [PythonAgent(function=one.function, version="7") for one in (first, other)]
    assert versions[0].identity == versions[1].identity == "test_python_agents.three 7"


def test_two_hundred_rollouts_share_one_async_client_among_sixteen_workers() -> None:
    class Client:
        """Belongs to the loop that it was first used in, as pools of connections do."""

        def __init__(self) -> None:
            self.lock = asyncio.Lock()
            self.loops: set[int] = set()

        async def get(self, query: str) -> str:
            async with self.lock:
                self.loops.add(id(asyncio.get_running_loop()))
                await asyncio.sleep(0)
            return query.replace("q", "a")

    client = Client()

    async def agent(query: str, call: AgentCall) -> str:
        return await client.get(query)

    found = BlackBox(TEXTS, agent=agent)
    with ThreadPoolExecutor(16) as executor:
        result = evaluate(
            found.prompt,
            cases(200),
            [metrics.exact()],
            adapter=found.adapter,
            executor=executor,
        )
    assert result.score.mean == 1.0
    assert len(client.loops) == 1


def test_a_function_sees_the_input_as_data_and_as_text() -> None:
    def of_passages(query: str, call: AgentCall) -> str:
        assert isinstance(call.input, dict)
        return f"{call.input['question']} {query} {call.texts['system']}"

    case = Case(id="c1", input={"question": "Where?", "passages": ["A."]})
    assert asked(of_passages, case).text == (
        'Where? {"passages":["A."],"question":"Where?"} Be brief.'
    )
    assert asked(lambda query, call: f"{call.input == query} {call.texts}").text.startswith("True")


def test_a_limit_that_an_agent_meets_itself_is_not_its_timeout() -> None:
    async def spends(query: str) -> str:
        raise BudgetExhaustedError("all spent")

    with pytest.raises(BudgetExhaustedError, match="all spent"):
        PythonAgent(function=spends, timeout=5.0).ask("?", AgentCall(texts={}))
