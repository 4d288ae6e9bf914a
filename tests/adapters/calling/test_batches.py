"""Calls in batches: what is sent, what comes back in any order, what is paid, and what is left."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from decimal import Decimal
from functools import partial

import attrs
import pytest

from promptgraft import (
    AnthropicAdapter,
    BatchExecutor,
    Cancellation,
    Deadline,
    MarkdownSection,
    ModelPrice,
    OpenAIAdapter,
    Prices,
    Prompt,
    PromptResponse,
    PromptTemplate,
    RetryPolicy,
    Session,
)
from promptgraft.adapters.base import ModelCalled, ProviderAdapter, evaluated
from promptgraft.adapters.calling.batch_forms import FORMS
from promptgraft.adapters.hosted import AzureOpenAIAdapter
from promptgraft.errors import (
    ConfigError,
    DeadlineExceededError,
    PermanentProviderError,
    RejectedRequestError,
    RunCancelledError,
    RunPausedError,
    TransientProviderError,
)
from promptgraft.ground.serde import Json
from promptgraft.journal import MemoryJournal
from promptgraft.prompt import Tool
from promptgraft.testing import FakeClock
from servers.batches import PROVIDERS, BatchServer, Fate, echo
from servers.behaviour import Answer, Asked, Call
from servers.loopback import KEY, MODEL

EACH = pytest.mark.parametrize("name", PROVIDERS)
PRICES = Prices({MODEL: ModelPrice(input=1, output=10)})  # 100 and 10 tokens: 0.0002 dollars
ADAPTERS: Mapping[str, Callable[..., ProviderAdapter]] = {
    "openai": OpenAIAdapter,
    "responses": partial(OpenAIAdapter, api="responses"),
    "anthropic": AnthropicAdapter,
}
FATES: tuple[Fate, ...] = ("expired", "canceled", "forgotten")


@attrs.frozen
class Word:
    """What a tool is given."""

    word: str


def adapter(server: BatchServer, mode: str = "batch", attempts: int = 3) -> ProviderAdapter:
    return ADAPTERS[server.name](
        MODEL,
        api_key=KEY,
        base_url=server.base_url,
        prices=PRICES,
        mode=mode,
        batch_poll=0.01,
        policy=RetryPolicy(attempts=attempts, wait_initial=0.001, wait_max=0.002),
    )


def prompt(tools: Sequence[Tool[Word, str]] = ()) -> Prompt[object]:
    section = MarkdownSection(title="Task", key="task", template="Say $word", tools=tuple(tools))
    return Prompt(PromptTemplate[object](ns="tests", key="echo", sections=(section,)))


def asked(
    executor: BatchExecutor,
    model: ProviderAdapter,
    words: Sequence[str],
    deadline: Deadline | None = None,
) -> tuple[list[Future[PromptResponse[object]]], list[Session]]:
    sessions = [Session() for _ in words]
    with executor.held():
        futures = [
            executor.submit(
                evaluated, model, prompt().bind({"word": word}), session=one, deadline=deadline
            )
            for word, one in zip(words, sessions, strict=True)
        ]
    return futures, sessions


def calls(sessions: Sequence[Session]) -> list[ModelCalled]:
    return [call for session in sessions for call in session.select_all(ModelCalled)]


@EACH
def test_calls_side_by_side_are_one_batch_at_half_the_price(name: str) -> None:
    with BatchServer(name, echo) as server, BatchExecutor() as executor:
        futures, sessions = asked(executor, adapter(server), "abcdef")
        assert [one.result().text for one in futures] == [*"abcdef"]
        assert server.sizes == [6]
        assert not server.calls
        assert {call.cost for call in calls(sessions)} == {Decimal("0.0001")}


@EACH
def test_outside_of_the_executor_calls_are_ordinary(name: str) -> None:
    with BatchServer(name, echo) as server:
        session = Session()
        word = prompt().bind({"word": "a"})
        assert evaluated(adapter(server), word, session=session).text == "a"
        assert [call.cost for call in calls([session])] == [Decimal("0.0002")]
        assert len(server.calls) == 1
        with BatchExecutor() as executor:
            [future], _ = asked(executor, adapter(server, mode="call"), "b")
            assert future.result().text == "b"
        assert (len(server.calls), server.batches) == (2, [])


@EACH
def test_more_calls_than_threads_are_several_batches(name: str) -> None:
    with BatchServer(name, echo) as server, BatchExecutor(2) as executor:
        futures, _ = asked(executor, adapter(server), "abcde")
        assert [one.result().text for one in futures] == [*"abcde"]
        assert server.sizes == [2, 2, 1]


@EACH
def test_no_batch_is_larger_than_the_provider_takes(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit, value in (("most", 3), ("longest", 1_200)):
        monkeypatch.setattr(type(FORMS[PROVIDERS[name]().name]("")), limit, value)
    with BatchServer(name, echo) as server, BatchExecutor() as executor:
        words = ["a", "b", "c", "d", "e" * 600, "f" * 2_000, "g"]
        futures, _ = asked(executor, adapter(server), words)
        assert [one.result().text for one in futures] == words
        assert max(server.sizes) <= 3
        [alone] = [one for one in server.batches if "f" * 2_000 in str(one.requests)]
        assert len(alone.requests) == 1


@EACH
@pytest.mark.parametrize("fate", FATES)
def test_a_request_without_an_answer_is_asked_again_in_the_next_batch(
    name: str, fate: Fate
) -> None:
    with BatchServer(name, echo, fate=lambda n: fate if n == 1 else "answered") as server:
        with BatchExecutor() as executor:
            futures, sessions = asked(executor, adapter(server), "abc")
            assert [one.result().text for one in futures] == [*"abc"]
        assert server.sizes == [3, 1]
        assert sorted(call.requests for call in calls(sessions)) == [1, 1, 2]


@EACH
def test_a_request_that_never_gets_an_answer_is_a_fault_of_that_call_alone(name: str) -> None:
    fates: dict[int, Fate] = {0: "expired", 1: "errored"}
    server = BatchServer(name, echo, fate=lambda n: fates.get(n, "answered"))
    with server, BatchExecutor() as executor:
        futures, _ = asked(executor, adapter(server, attempts=1), "abc")
        # Which of them comes first in the batch is up to their threads.
        faults = {type(error): str(error) for one in futures if (error := one.exception())}
    assert faults.keys() == {TransientProviderError, RejectedRequestError}
    assert "expired in its batch" in faults[TransientProviderError]
    assert "invalid_request_error" in faults[RejectedRequestError]


@EACH
def test_a_batch_that_is_refused_is_a_fault_of_each_of_its_calls(name: str) -> None:
    with BatchServer(name, echo, refusals=(500, 429)) as server, BatchExecutor() as executor:
        futures, sessions = asked(executor, adapter(server), "abc")
        assert [one.result().text for one in futures] == [*"abc"]
        assert server.sizes == [3]
        assert [call.requests for call in calls(sessions)] == [3, 3, 3]
    with BatchServer(name, echo, refusals=(403,)) as server, BatchExecutor() as executor:
        futures, _ = asked(executor, adapter(server), "abc")
        for one in futures:
            with pytest.raises(PermanentProviderError, match="HTTP 403"):
                one.result()


@EACH
@pytest.mark.parametrize("bad", ["../../v1/files", "", "a b", "x" * 300])
def test_an_id_that_is_no_id_is_never_part_of_a_path(name: str, bad: str) -> None:
    with BatchServer(name, echo) as server, BatchExecutor() as executor:
        server.names = lambda _: bad
        [future], _ = asked(executor, adapter(server), "a")
        with pytest.raises(RejectedRequestError, match="has no usable `id`"):
            future.result()
        assert len(server.batches) == 1


@EACH
def test_each_turn_of_a_tool_loop_is_a_batch(name: str) -> None:
    def brain(seen: Asked) -> Answer:
        if seen.results:
            return Answer(text=seen.results[-1])
        return Answer(calls=(Call("shout", f'{{"word": "{seen.texts[-1].split()[-1]}"}}'),))

    shout = Tool[Word, str](
        name="shout",
        description="Shouts.",
        params_type=Word,
        result_type=str,
        handler=lambda given: given.word * 2,
    )
    with BatchServer(name, brain) as server, BatchExecutor() as executor:
        with executor.held():
            futures = [
                executor.submit(
                    evaluated,
                    adapter(server),
                    prompt([shout]).bind({"word": word}),
                    session=Session(),
                )
                for word in "abc"
            ]
        assert [one.result().text for one in futures] == ["aa", "bb", "cc"]
        assert server.sizes == [3, 3]


def begun() -> MemoryJournal:
    journal = MemoryJournal()
    journal.begin({})
    return journal


@EACH
def test_what_is_paused_is_fetched_later_and_not_paid_again(name: str) -> None:
    journal, pause = begun(), Cancellation()
    with BatchServer(name, echo) as server:
        server.hold()
        with BatchExecutor(journal=journal, pause=pause) as executor:
            futures, sessions = asked(executor, adapter(server), "aab")
            server.wait_until(lambda: bool(server.batches) and server.batches[0].looks > 0)
            pause.set("enough for today")
            for one in futures:
                with pytest.raises(RunPausedError):
                    one.result()
            assert {call.cost for call in calls(sessions)} == {Decimal(0)}
        server.release()
        with BatchExecutor(journal=journal) as executor:
            futures, sessions = asked(executor, adapter(server), "aabc")
            assert [one.result().text for one in futures] == [*"aabc"]
            assert {call.cost for call in calls(sessions)} == {Decimal("0.0001")}
        # The answers to `a`, `a` and `b` were there; only `c` is new.
        assert server.sizes == [3, 1]
        assert not any(one.is_cancelled for one in server.batches)


def test_a_kept_batch_is_looked_for_only_where_it_was_made() -> None:
    with BatchExecutor(journal=begun()) as executor:
        wanted = executor.intend("openai here gpt", ["first", "second"])
        assert [*executor.kept("openai here gpt")] == [wanted]
        executor.keep("openai here gpt", "batch_1", wanted)
        assert [*executor.kept("openai here gpt")] == [attrs.evolve(wanted, batch="batch_1")]
        assert [*executor.kept("openai there gpt")] == []


def test_a_batch_outlives_the_time_of_its_run() -> None:
    journal, clock = begun(), FakeClock()
    deadline = Deadline.after(60, clock=clock)
    with BatchServer("openai", echo) as server:
        server.hold()
        with BatchExecutor(journal=journal, deadline=deadline) as executor:
            [future], _ = asked(executor, adapter(server), "a", deadline)
            server.wait_until(lambda: bool(server.batches) and server.batches[0].looks > 0)
            clock.advance(61)
            with pytest.raises(DeadlineExceededError):
                future.result()
        server.release()
        with BatchExecutor(journal=journal) as executor:
            [future], _ = asked(executor, adapter(server), "a")
            assert future.result().text == "a"
        assert (server.sizes, server.batches[0].is_cancelled) == ([1], False)


@EACH
def test_faults_of_an_earlier_process_are_no_answers(name: str) -> None:
    journal = begun()
    with BatchServer(name, echo, fate=lambda n: "expired" if n < 2 else "answered") as server:
        with BatchExecutor(journal=journal) as executor:
            futures, _ = asked(executor, adapter(server, attempts=1), "ab")
            assert all(one.exception() for one in futures)
        with BatchExecutor(journal=journal) as executor:
            futures, _ = asked(executor, adapter(server, attempts=1), "ab")
            assert [one.result().text for one in futures] == [*"ab"]
        server.lost = {"batch_1"}
        with BatchExecutor(journal=journal) as executor:
            futures, _ = asked(executor, adapter(server, attempts=1), "ab")
            assert [one.result().text for one in futures] == [*"ab"]
        assert server.sizes == [2, 2, 2]


@EACH
def test_a_batch_of_a_cancelled_run_is_cancelled(name: str) -> None:
    stop = Cancellation()
    deadline = Deadline(cancellation=stop)
    with BatchServer(name, echo) as server:
        server.hold()
        with BatchExecutor(journal=begun(), deadline=deadline) as executor:
            futures, _ = asked(executor, adapter(server), "ab", deadline)
            server.wait_until(lambda: bool(server.batches) and server.batches[0].looks > 0)
            stop.set("no more")
            for one in futures:
                with pytest.raises(RunCancelledError):
                    one.result()
            server.wait_until(lambda: server.batches[0].is_cancelled)


def test_hosts_without_batches_refuse_the_mode() -> None:
    with pytest.raises(ConfigError, match="AzureOpenAIAdapter: mode: there is no batch interface"):
        AzureOpenAIAdapter("mini", api_key="k", base_url="http://127.0.0.1:9", mode="batch")
    with pytest.raises(ConfigError, match="mode: expected one of `call`, `batch`"):
        OpenAIAdapter("gpt-4.1-mini", api_key="k", mode="later")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"output_file_id": None, "error_file_id": None}, "completed without any results"),
        ({"output_file_id": 5}, "no usable `output_file_id`"),
        ({"output_file_id": "../files"}, "no usable `output_file_id`"),
    ],
)
def test_a_batch_without_usable_results_is_neither_polled_nor_paid_for_again(
    damage: dict[str, Json], message: str
) -> None:
    with BatchServer("openai", echo) as server, BatchExecutor() as executor:
        server.damage = damage
        futures, _ = asked(executor, adapter(server), "ab")
        for one in futures:
            with pytest.raises(RejectedRequestError, match=message):
                one.result()
        assert len(server.batches) == 1
