"""What calls of models cost beside the provider's own SDK, and how well a run uses its workers.

The servers are the tests' own, on loopback. A call is made with each client of the SDK and with
the adapter, in turn, so that all meet the same machine. The adapter uses the asynchronous client,
the only one whose calls can be broken off.
"""

from __future__ import annotations

import asyncio
import heapq
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import attrs

from figures import Figure
from promptgraft import (
    AnthropicAdapter,
    Cancellation,
    EventBus,
    FileJournal,
    GepaConfig,
    GepaExample,
    GepaOptimizer,
    GepaResult,
    MarkdownSection,
    Objectives,
    OpenAIAdapter,
    OptimizationContext,
    Prompt,
    PromptResponse,
    PromptTemplate,
    RolloutFeedback,
    ScriptedAdapter,
    Session,
    Strategy,
)
from promptgraft.adapters.calling.turns import Turn
from promptgraft.prompt.schema import JsonObject
from promptgraft.runtime import SessionProtocol
from promptgraft.runtime.deadline import Deadline

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))

from servers.behaviour import Answer, Asked, Behaviour, Break  # noqa: E402
from servers.loopback import KEY, MODEL, LoopbackServer  # noqa: E402
from servers.openai_chat import OpenAIChat  # noqa: E402

TITLE = "Calls: adapters beside the SDKs, servers on loopback"
CALLS = 300
WARM_UP = 20
ROUNDS = 15
WORKERS = 16
FASTEST, SLOWEST = 0.2, 0.6
"""Seconds of an answer in the run."""
BATCHES = (100, 50, 50, 100)
"""Rollouts of the run: baseline, parent, child, and the child that is accepted."""
TEXT = "Answer in one word. " * 50


@attrs.frozen
class Question:
    """What the run's prompt is bound to."""

    word: str


def measure() -> list[Figure]:
    """Return the figures of this page."""
    return [*_beside("anthropic"), *_beside("openai"), _keeping(), *_runs()]


@contextmanager
def _server(sdk: str) -> Iterator[str]:
    """Start a server in a process of its own; yield its address."""
    command = [sys.executable, "-m", "servers", sdk, "hello"]
    with subprocess.Popen(
        command, cwd=TESTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.communicate()


def _beside(sdk: str) -> list[Figure]:
    with (
        _server(sdk) as base_url,
        _with_sync_client(sdk, base_url) as plainly,
        _with_async_client(sdk, base_url) as in_loop,
    ):
        ways = (plainly, in_loop, _with_adapter(sdk, base_url))
        for way in ways:
            for _ in range(WARM_UP):
                way()
        times = [[_seconds(way) for way in ways] for _ in range(CALLS)]
    medians = (statistics.median(column) * 1000 for column in zip(*times, strict=True))
    sync, alone, ours = medians
    return [
        Figure(f"{sdk}: a call, SDK's client, median", sync, "ms", None),
        Figure(f"{sdk}: a call, SDK's async client, median", alone, "ms", None),
        Figure(f"{sdk}: the adapter beside the latter", ours - alone, "ms", 2),
    ]


class _RolloutsOnly(OpenAIAdapter):
    """An adapter in whose runs the journal keeps rollouts, and no calls inside of them."""

    def ask(
        self, body: JsonObject, *, session: SessionProtocol, deadline: Deadline | None = None
    ) -> Turn:
        if isinstance(session, Session):
            session.calls = None
        return super().ask(body, session=session, deadline=deadline)


def _keeping() -> Figure:
    """Measure what it costs a rollout that the journal keeps calls, in time of the processor."""
    with _server("openai") as base_url:
        adapters = [
            kind(MODEL, api_key=KEY, base_url=base_url) for kind in (_RolloutsOnly, OpenAIAdapter)
        ]
        rounds = [tuple(map(_worked_for_a_rollout, adapters)) for _ in range(ROUNDS)]
    alone, _ = (statistics.median(column) for column in zip(*rounds, strict=True))
    more = statistics.median(beside - alone for alone, beside in rounds)
    return Figure("openai: keeping calls, of a rollout", more / alone * 100, "%", 5)


def _worked_for_a_rollout(adapter: OpenAIAdapter) -> float:
    """Return the processor's seconds of each rollout of a run."""
    with (
        tempfile.TemporaryDirectory() as folder,
        FileJournal(Path(folder) / "journal.jsonl") as journal,
        ThreadPoolExecutor(4) as executor,
    ):
        context = OptimizationContext(
            adapter,
            reflection_adapter=ScriptedAdapter(lambda _: "```instruction\nKnown: all.\n```"),
            executor=executor,
            journal=journal,
            event_bus=EventBus(),
        )
        started = time.process_time()
        result = GepaOptimizer(context, _config()).optimize(_prompt())
        return (time.process_time() - started) / result.total_rollouts


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


@contextmanager
def _with_sync_client(sdk: str, base_url: str) -> Iterator[Callable[[], object]]:
    if sdk == "anthropic":
        import anthropic

        with anthropic.Anthropic(api_key=KEY, base_url=base_url, max_retries=0) as client:
            yield lambda: client.messages.create(
                model=MODEL, max_tokens=1000, messages=[{"role": "user", "content": TEXT}]
            )
        return
    import openai

    with openai.OpenAI(api_key=KEY, base_url=base_url, max_retries=0) as other:
        yield lambda: other.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": TEXT}]
        )


@contextmanager
def _with_async_client(sdk: str, base_url: str) -> Iterator[Callable[[], object]]:
    # The client is closed in its loop, before that is closed.
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        if sdk == "anthropic":
            import anthropic

            client = anthropic.AsyncAnthropic(api_key=KEY, base_url=base_url, max_retries=0)
            yield lambda: loop.run_until_complete(
                client.messages.create(
                    model=MODEL, max_tokens=1000, messages=[{"role": "user", "content": TEXT}]
                )
            )
            runner.run(client.close())
            return
        import openai

        other = openai.AsyncOpenAI(api_key=KEY, base_url=base_url, max_retries=0)
        yield lambda: loop.run_until_complete(
            other.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": TEXT}])
        )
        runner.run(other.close())


def _with_adapter(sdk: str, base_url: str) -> Callable[..., object]:
    section = MarkdownSection(title="Task", key="task", template=TEXT)
    template = PromptTemplate[object](ns="benchmarks", key="call", sections=(section,))
    prompt = Prompt(template)
    kind = AnthropicAdapter if sdk == "anthropic" else OpenAIAdapter
    adapter = kind(MODEL, api_key=KEY, base_url=base_url)
    return lambda session=None: adapter.evaluate(prompt, session=session or Session())


class Latencies:
    """Answers after a while, which depends on what is asked, or never."""

    def __init__(self) -> None:
        self.seen: list[float] = []
        self.hang = False

    def __call__(self, asked: Asked) -> Behaviour:
        if self.hang:
            return Behaviour(breaks=Break.HANGS)
        seconds = random.Random(" ".join(asked.texts)).uniform(FASTEST, SLOWEST)
        self.seen.append(seconds)
        return Behaviour(seconds=seconds)

    def best_possible(self) -> float:
        """Return the seconds of a run whose workers wait for nothing but answers."""
        seconds, begun = 0.0, 0
        for size in BATCHES:
            free = [0.0] * WORKERS
            for latency in self.seen[begun : begun + size]:
                heapq.heapreplace(free, free[0] + latency)
            seconds += max(free)
            begun += size
        return seconds


def _runs() -> list[Figure]:
    """Measure a run, and then one whose calls hang when it is stopped."""
    latencies = Latencies()
    with (
        LoopbackServer(OpenAIChat(), brain=_said, script=latencies) as server,
        ThreadPoolExecutor(WORKERS) as executor,
    ):
        adapter = OpenAIAdapter(MODEL, api_key=KEY, base_url=server.base_url)
        # Loads the SDK.
        adapter.evaluate(_prompt().bind(Question(word="none")), session=Session())
        latencies.seen.clear()
        stop = Cancellation()
        context = OptimizationContext(
            adapter,
            reflection_adapter=ScriptedAdapter(lambda _: "```instruction\nKnown: all.\n```"),
            executor=executor,
            cancellation=stop,
        )
        optimizer = GepaOptimizer(context, _config())
        run = _seconds(lambda: _check(optimizer.optimize(_prompt())))
        latencies.hang = True
        with ThreadPoolExecutor(1) as other:
            running = other.submit(optimizer.optimize, _prompt())
            server.wait_for(WORKERS)
            stop.set("enough")
            stopping = _seconds(running.result)
    return [
        Figure(
            "run, 300 rollouts, 16 workers: time / best",
            run / latencies.best_possible(),
            "x",
            1.3,
        ),
        Figure("run, 16 hanging calls: cancelled, it ends in", stopping * 1000, "ms", 2000),
    ]


def _check(result: GepaResult) -> None:
    if (result.total_rollouts, result.unscored_rollouts) != (sum(BATCHES), 0):
        raise SystemExit(f"expected {sum(BATCHES)} rollouts, found {result.total_rollouts}")


def _prompt() -> Prompt[object]:
    sections = (
        MarkdownSection(title="Rules", key="rules", template="Known: nothing."),
        MarkdownSection(title="Question", key="question", template="$word", overridable=False),
    )
    return Prompt(PromptTemplate[object](ns="benchmarks", key="run", sections=sections))


def _config() -> GepaConfig:
    return GepaConfig(
        rollout_budget=sum(BATCHES),
        minibatch_size=BATCHES[1],
        pareto_set_size=BATCHES[0],
        target_section_paths=(("rules",),),
        training_examples=tuple(
            GepaExample(id=f"e{n}", params=(Question(word=f"word{n}"),)) for n in range(150)
        ),
        feedback_fn=_feedback,
        strategy=Strategy(preset="paper"),
        objectives=Objectives(perfect_score=2.0),
    )


def _said(asked: Asked) -> Answer:
    return Answer(text="yes" if "Known: all." in " ".join(asked.texts) else "no")


def _feedback(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    del example, session
    return RolloutFeedback(score=float(response.text == "yes"), feedback="expected yes")
