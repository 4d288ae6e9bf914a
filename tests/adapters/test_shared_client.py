"""A user's own adapter around one async client of an SDK, shared by all calls of a run."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import openai
import pytest

from optimizers.worlds import RULES, Question
from programs import Programs
from promptgraft.adapters.base import PromptResponse, answered
from promptgraft.adapters.scripted import ScriptedAdapter
from promptgraft.algorithms.gepa import (
    GepaConfig,
    GepaExample,
    GepaOptimizer,
    GepaResult,
    RolloutFeedback,
    Strategy,
)
from promptgraft.prompt import MarkdownSection, Prompt, PromptTemplate
from promptgraft.runtime import Deadline, SessionProtocol
from promptgraft.runtime.event_loop import run
from promptgraft.search import Data, Objectives, OptimizationContext
from servers.behaviour import Answer, Asked
from servers.loopback import KEY, MODEL, LoopbackServer
from servers.openai_chat import OpenAIChat

OutputT = TypeVar("OutputT")

WORKERS = 16
CALLS = 200
PROMPT = Prompt[object](
    PromptTemplate(
        ns="tests",
        key="shared",
        sections=(
            MarkdownSection(title="Rules", key="rules", template="Known: nothing."),
            MarkdownSection(title="Question", key="question", template="$word"),
        ),
    )
)


class SharedClient:
    """Answers over one client."""

    identity = "shared"

    def __init__(self, base_url: str) -> None:
        self.client = openai.AsyncOpenAI(api_key=KEY, base_url=base_url, max_retries=0)

    async def evaluate(
        self,
        prompt: Prompt[OutputT],
        *,
        session: SessionProtocol,
        deadline: Deadline | None = None,
    ) -> PromptResponse[OutputT]:
        rendered = prompt.render(session)
        return answered(rendered, await self.ask(rendered.text), session=session)

    async def ask(self, text: str) -> str:
        completion = await self.client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": text}]
        )
        return completion.choices[0].message.content or ""


def said(asked: Asked) -> Answer:
    return Answer(text="yes" if "Known: all." in " ".join(asked.texts) else "no")


async def feedback(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    await asyncio.sleep(0)
    return RolloutFeedback(score=float(response.text == "yes"), feedback="expected yes")


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer(OpenAIChat(), brain=said) as server:
        yield server


def optimizer(adapter: SharedClient, executor: ThreadPoolExecutor) -> GepaOptimizer:
    """Return a search of exactly ``CALLS`` rollouts: 50 each of four batches."""
    context = OptimizationContext(
        adapter,
        reflection_adapter=ScriptedAdapter(lambda _: "```instruction\nKnown: all.\n```"),
        executor=executor,
    )
    data = [GepaExample(id=f"e{n}", params=(Question(f"word{n}"),)) for n in range(100)]
    settings = GepaConfig(
        rollout_budget=CALLS,
        minibatch_size=CALLS // 4,
        pareto_set_size=CALLS // 4,
        target_section_paths=(RULES,),
        training_examples=data,
        feedback_fn=feedback,
        data=Data(held_out=()),
        strategy=Strategy(preset="paper"),
        objectives=Objectives(perfect_score=2.0),
    )
    return GepaOptimizer(context, settings)


def check(result: GepaResult, server: LoopbackServer, *, before: int = 0) -> None:
    assert (result.total_rollouts, result.unscored_rollouts) == (CALLS, 0)
    assert (result.baseline_pareto_mean, result.best_pareto_mean) == (0.0, 1.0)
    assert len(server.asked) == before + CALLS


def test_one_client_serves_200_calls_of_16_workers(server: LoopbackServer) -> None:
    adapter = SharedClient(server.base_url)
    with ThreadPoolExecutor(WORKERS) as executor:
        check(optimizer(adapter, executor).optimize(PROMPT), server)
    run(adapter.client.close())
    gc.collect()  # what the client left open is complained of here


@pytest.mark.thorough
def test_one_client_serves_a_run_that_its_loop_waits_for(server: LoopbackServer) -> None:
    async def shared() -> GepaResult:
        adapter = SharedClient(server.base_url)
        async with adapter.client:
            assert await adapter.ask("Are you there?") == "no"
            with ThreadPoolExecutor(WORKERS) as executor:
                return await optimizer(adapter, executor).aoptimize(PROMPT)

    check(asyncio.run(shared()), server, before=1)
    gc.collect()


PROGRAM = """
import sys
from concurrent.futures import ThreadPoolExecutor
from adapters.test_shared_client import PROMPT, SharedClient, optimizer

ADAPTER = SharedClient(sys.argv[1])
with ThreadPoolExecutor(16) as executor:
    print(optimizer(ADAPTER, executor).optimize(PROMPT).total_rollouts)
"""


def test_a_program_that_never_closes_its_client_ends_without_a_complaint(
    server: LoopbackServer, programs: Programs
) -> None:
    ended = programs("-c", PROGRAM, server.base_url, folder=Path(__file__).parents[1])
    assert (ended.returncode, ended.stdout) == (0, f"{CALLS}\n")
    [warning] = ended.stderr.splitlines()
    assert warning.startswith("rollout_budget: 200 test calls are enough for only 1 kept candidate")
