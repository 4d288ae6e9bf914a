"""Against a real model and a server that is not ours: ``make real-server``.

A model of this size answers poorly; these tests are about what goes over the wire.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest

from local_model.server import MODEL
from promptgraft import (
    Data,
    FileJournal,
    GepaConfig,
    GepaExample,
    GepaOptimizer,
    GepaResult,
    MarkdownSection,
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
from promptgraft.adapters.base import ModelCalled
from promptgraft.adapters.calling.retrying import RetryPolicy
from promptgraft.adapters.openai import OpenAIProfile
from promptgraft.errors import PromptTooLongError, TransientProviderError, TruncatedAnswerError
from promptgraft.runtime import SessionProtocol

PYTHON = os.environ.get("PROMPTGRAFT_REAL_SERVER", "")
"""The Python of the environment that has the server and the model."""
if not PYTHON:
    pytest.skip("asks a local model: make real-server", allow_module_level=True)

SERVER = Path(__file__).with_name("server.py")
SLOTS, TOKENS = 2, 512
CASES = 6


@attrs.frozen
class LocalModel:
    """A server with the model, at ``base_url``."""

    process: subprocess.Popen[str] = attrs.field(repr=False)
    base_url: str

    def adapter(self, **options: Any) -> OpenAIAdapter:
        """Return an adapter for it."""
        options = {"max_output_tokens": 60, "timeout": 300.0, **options}
        return OpenAIAdapter(MODEL, api_key="none", base_url=self.base_url, **options)

    def wait_until_busy(self) -> None:
        """Return once a slot works on an answer."""
        address = self.base_url.removesuffix("/v1") + "/slots"
        while True:
            with urllib.request.urlopen(address, timeout=60) as answer:
                if any(slot["is_processing"] for slot in json.load(answer)):
                    return

    def kill(self) -> None:
        """End the server in the middle of whatever it does."""
        self.process.kill()
        self.process.wait()


@contextmanager
def serving(port: int = 0) -> Iterator[LocalModel]:
    """Start a server; it is ended with the context, if it still runs."""
    command = [PYTHON, str(SERVER), str(SLOTS), str(TOKENS), str(port)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address, "the server did not start"
        model = LocalModel(process, f"{address}/v1")
        try:
            yield model
        finally:
            model.kill()


@pytest.fixture(scope="module")
def model() -> Iterator[LocalModel]:
    """A server that no test ends."""
    with serving() as model:
        yield model


def prompt(template: str, output_type: Any = None) -> Prompt[Any]:
    sections = [MarkdownSection(title="Task", key="task", template=template)]
    return Prompt(
        PromptTemplate[Any](ns="local", key="model", sections=sections, output_type=output_type)
    )


def asked(adapter: OpenAIAdapter, question: Prompt[Any]) -> tuple[PromptResponse[Any], ModelCalled]:
    """Return the answer to a question, and the one call that was made for it."""
    session = Session()
    response = adapter.evaluate(question, session=session)
    [called] = session.select_all(ModelCalled)
    assert called.requests == 1
    return response, called


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_a_prompt_is_answered_and_counted(model: LocalModel, api: str) -> None:
    adapter = model.adapter(api=api, temperature=0)
    response, called = asked(adapter, prompt("What is the capital of France?"))
    assert "Paris" in response.text
    assert called.usage == response.usage
    assert 10 < response.usage.input_tokens < 100
    assert 0 < response.usage.output_tokens < 60
    assert called.cost is None


def test_what_the_server_has_read_before_is_counted_as_cached(model: LocalModel) -> None:
    adapter = model.adapter(stop=["."])
    first, second = (asked(adapter, prompt("Name an animal."))[0].usage for _ in range(2))
    assert second.input_tokens == first.input_tokens
    assert first.cached_tokens < second.cached_tokens <= second.input_tokens


def test_an_answer_that_is_cut_says_so(model: LocalModel) -> None:
    session = Session()
    with pytest.raises(TruncatedAnswerError, match=r"stopped after 2 tokens \(length\)"):
        model.adapter(max_output_tokens=2).evaluate(prompt("Tell a story."), session=session)
    [called] = session.select_all(ModelCalled)
    assert called.usage.output_tokens == 2


@attrs.frozen
class Verdict:
    """What the model is asked for."""

    kind: Literal["light", "water"]
    is_urgent: bool


@pytest.mark.parametrize("output_type", [Verdict, Literal["light", "water"]])
def test_a_grammar_makes_the_answer_fit_its_type(model: LocalModel, output_type: Any) -> None:
    adapter = model.adapter(
        # So hot that without a grammar no answer would fit.
        temperature=2.0,
        max_output_tokens=150,
        profile=OpenAIProfile(structured_output="native"),
    )
    question = prompt("A street lamp is broken. Judge it, in JSON.", output_type)
    output = asked(adapter, question)[0].output
    kind = output.kind if isinstance(output, Verdict) else output
    assert kind in {"light", "water"}


def test_slots_answer_side_by_side(model: LocalModel) -> None:
    adapter = model.adapter(temperature=0)
    countries = ("France", "Italy", "Spain", "Japan")
    questions = [prompt(f"What is the capital of {country}?") for country in countries]
    with ThreadPoolExecutor(2 * SLOTS) as threads:
        answers = list(threads.map(lambda question: asked(adapter, question)[0].text, questions))
    assert all(country in answer for country, answer in zip(countries, answers, strict=True))


def test_a_prompt_beyond_the_context_is_too_long(model: LocalModel) -> None:
    with pytest.raises(PromptTooLongError, match=f"{TOKENS} tokens.*shorten the prompt"):
        asked(model.adapter(), prompt("word " * 2 * TOKENS))


def test_hot_answers_differ_from_run_to_run(model: LocalModel) -> None:
    adapter = model.adapter(temperature=1.5, stop=["."])
    texts = {asked(adapter, prompt("Name an animal."))[0].text for _ in range(4)}
    assert len(texts) > 1


def test_a_connection_that_breaks_is_a_fault_of_the_provider() -> None:
    session = Session()
    with serving() as model, ThreadPoolExecutor(1) as thread:
        adapter = model.adapter(max_output_tokens=400, policy=RetryPolicy(attempts=1))
        answer = thread.submit(adapter.evaluate, prompt("Tell a long story."), session=session)
        model.wait_until_busy()
        model.kill()
        with pytest.raises(TransientProviderError, match="the connection failed"):
            answer.result()
    [called] = session.select_all(ModelCalled)
    assert called.requests == 1
    assert "the connection failed" in called.fault


def improved(adapter: OpenAIAdapter, journal: Path, feedback: Any) -> GepaResult:
    """Run or resume a search over a few cases, with as many workers as the server has slots."""
    cases = [GepaExample(id=f"c{n}", params=({"n": n},)) for n in range(CASES)]
    config = GepaConfig(
        rollout_budget=2 * CASES + 4,
        minibatch_size=2,
        pareto_set_size=CASES // 2,
        training_examples=cases,
        feedback_fn=feedback,
        data=Data(held_out=()),
        strategy=Strategy(preset="paper"),
    )
    with ThreadPoolExecutor(SLOTS) as executor, FileJournal(journal) as kept:
        context = OptimizationContext(
            adapter,
            reflection_adapter=ScriptedAdapter(
                lambda _: "```instruction\nName a big animal with $n legs.\n```"
            ),
            executor=executor,
            journal=kept,
        )
        return GepaOptimizer(context, config).optimize(prompt("Name an animal with $n legs."))


def test_a_run_outlives_its_server_and_needs_none_to_be_replayed(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    judged: list[str] = []
    lock = threading.Lock()
    with ExitStack() as servers:
        model = servers.enter_context(serving(port))

        def feedback(
            example: GepaExample, response: PromptResponse[object], session: SessionProtocol
        ) -> RolloutFeedback:
            del session
            with lock:
                judged.append(example.id)
                if len(judged) == 2:
                    model.kill()
                    servers.enter_context(serving(port))
            return RolloutFeedback(score=len(response.text) % 10 / 10, feedback="longer")

        # A server that starts refuses connections, for as long as it loads the model.
        policy = RetryPolicy(attempts=1000, wait_max=1.0, timeout=300.0)
        adapter = model.adapter(temperature=1.0, stop=["."], policy=policy)
        result = improved(adapter, tmp_path / "journal.jsonl", feedback)
    assert result.unscored_rollouts == 0
    assert result.total_rollouts > CASES
    assert sum(entry.retries for entry in result.ledger) > 0
    asked_for = len(judged)
    replayed = improved(adapter, tmp_path / "journal.jsonl", feedback)
    assert len(judged) == asked_for
    assert replayed.candidates == result.candidates
    assert replayed.ledger == result.ledger
