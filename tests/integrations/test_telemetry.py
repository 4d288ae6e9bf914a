"""Spans of runs: what a collector receives over OTLP/HTTP, and no effect without an SDK."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import attrs
import pytest

from promptgraft import (
    EventBus,
    GepaConfig,
    GepaExample,
    GepaOptimizer,
    MarkdownSection,
    MemoryJournal,
    OptimizationContext,
    Prompt,
    PromptResponse,
    PromptTemplate,
    RolloutFeedback,
    ScriptedAdapter,
    Usage,
)
from promptgraft.adapters.base import ModelCalled, answered
from promptgraft.bridges.telemetry import CONTENT_VARIABLE, traced
from promptgraft.cli.main import run
from promptgraft.errors import ConfigError, FeedbackError, PermanentProviderError
from promptgraft.ground.environment import check_package
from promptgraft.runtime import Deadline
from promptgraft.runtime.session import SessionProtocol

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

OutputT = TypeVar("OutputT")
PRICE = Decimal("0.25")


class Collector:
    """Receives spans as an OpenTelemetry collector does."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        received = self.spans

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    raise AssertionError("expected a body without compression")
                request = ExportTraceServiceRequest.FromString(body)
                for resource in request.resource_spans:
                    for scope in resource.scope_spans:
                        received.extend(scope.spans)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}/v1/traces"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name.startswith(name)]

    def parent(self, span: Span) -> Span | None:
        return next((one for one in self.spans if one.span_id == span.parent_span_id), None)


@pytest.fixture
def collector() -> Iterator[Collector]:
    found = Collector()
    yield found
    found.close()


@pytest.fixture
def provider(collector: Collector) -> Iterator[TracerProvider]:
    made = TracerProvider(shutdown_on_exit=False)
    made.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=collector.address)))
    yield made
    made.shutdown()


@attrs.frozen
class Priced:
    """Answers with the prompt, for money."""

    identity: str = "acme/1"
    fails: bool = False

    def evaluate(
        self, prompt: Prompt[OutputT], *, session: SessionProtocol, deadline: Deadline | None = None
    ) -> PromptResponse[OutputT]:
        usage = Usage(input_tokens=20, output_tokens=5, cached_tokens=4)
        fault = "overloaded" if self.fails else ""
        session.dispatch(
            ModelCalled(
                model="acme-large", requests=2, usage=usage, cost=PRICE, seconds=0.5, fault=fault
            )
        )
        if self.fails:
            raise PermanentProviderError("overloaded")
        rendered = prompt.render(session)
        return answered(rendered, rendered.text, session=session, usage=usage)


def score(
    example: GepaExample, response: PromptResponse[Any], session: SessionProtocol
) -> RolloutFeedback:
    return RolloutFeedback(score=float(example.id in response.text), feedback="name the number")


CONFIG = GepaConfig(
    rollout_budget=20,
    minibatch_size=1,
    pareto_set_size=2,
    target_section_paths=(("task",),),
    training_examples=[GepaExample(id=str(n), params=()) for n in range(4)],
    feedback_fn=score,
)
SECRET_TEXT = "Name the numbers of the vault."


def optimizer(
    bus: EventBus, *, executor: Executor | None = None, journal: MemoryJournal | None = None
) -> GepaOptimizer:
    reflection = ScriptedAdapter(lambda _: "```instruction\nName 0 1 2 3\n```")
    context = OptimizationContext(
        Priced(),
        reflection_adapter=reflection,
        event_bus=bus,
        executor=executor,
        journal=journal,
    )
    return GepaOptimizer(context, CONFIG)


def prompt() -> Prompt[object]:
    section = MarkdownSection(title="Task", key="task", template=SECRET_TEXT)
    return Prompt(PromptTemplate[object](ns="docs", key="numbers", sections=(section,)))


def told(span: Span) -> dict[str, Any]:
    values = {}
    for one in span.attributes:
        kind = one.value.WhichOneof("value")
        value = getattr(one.value, kind)
        values[one.key] = [v.string_value for v in value.values] if kind == "array_value" else value
    return values


@pytest.mark.parametrize("workers", [0, 4])
def test_a_collector_receives_the_run_its_steps_rollouts_and_calls(
    collector: Collector, provider: TracerProvider, workers: int
) -> None:
    bus, executor = EventBus(), ThreadPoolExecutor(workers) if workers else None
    outer = provider.get_tracer("test").start_span("nightly")
    with trace.use_span(outer, end_on_exit=True), traced(bus, tracer_provider=provider):
        result = optimizer(bus, executor=executor).optimize(prompt())
    if executor is not None:
        executor.shutdown()
    provider.force_flush()

    [run] = collector.named("optimize docs/numbers")
    above = collector.parent(run)
    assert above is not None
    assert above.name == "nightly"
    found = told(run)
    assert found["promptgraft.rollouts"] == result.total_rollouts
    assert found["promptgraft.best.score"] == 1.0
    assert found["promptgraft.stop_reason"] == result.stop_reason
    rollouts = collector.named("rollout")
    assert len(rollouts) == result.total_rollouts
    assert len(collector.named("reflect")) == result.total_reflections
    assert {told(span)["promptgraft.example"] for span in rollouts} == set("012")
    calls = collector.named("chat acme-large")
    assert len(calls) == len(rollouts)
    assert {parent.name for call in calls if (parent := collector.parent(call))} == {"rollout"}
    assert told(calls[0]) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "acme",
        "gen_ai.request.model": "acme-large",
        "gen_ai.usage.input_tokens": 20,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "gen_ai.response.finish_reasons": ["stop"],
        "promptgraft.requests": 2,
        "promptgraft.cost_usd": 0.25,
    }
    assert all(call.end_time_unix_nano - call.start_time_unix_nano == 500_000_000 for call in calls)
    steps = collector.named("step ")
    assert len(steps) == len({step.name for step in steps})
    assert {told(step)["promptgraft.step.outcome"] for step in steps} >= {"accepted"}
    for step in steps:
        assert collector.parent(step) == run
        inner = [span for span in collector.spans if span.parent_span_id == step.span_id]
        assert inner
        assert step.end_time_unix_nano >= max(span.end_time_unix_nano for span in inner)
    assert len({span.trace_id for span in collector.spans}) == 1


@pytest.mark.parametrize(
    ("asked", "seen"), [(None, False), (True, True), ("true", True), ("false", False)]
)
def test_texts_are_in_spans_only_when_asked_for(
    collector: Collector,
    provider: TracerProvider,
    monkeypatch: pytest.MonkeyPatch,
    asked: object,
    seen: bool,
) -> None:
    if isinstance(asked, str):
        monkeypatch.setenv(CONTENT_VARIABLE, asked)
    bus = EventBus()
    with traced(bus, content=True if asked is True else None, tracer_provider=provider):
        optimizer(bus).optimize(prompt())
    provider.force_flush()
    everything = "".join(span.SerializeToString().decode("latin-1") for span in collector.spans)
    assert ("vault" in everything) is seen
    call = told(collector.named("chat acme-large")[0])
    assert ("gen_ai.input.messages" in call) is ("gen_ai.output.messages" in call) is seen


def test_what_a_journal_answers_makes_no_span_but_that_of_the_run(
    collector: Collector, provider: TracerProvider
) -> None:
    journal = MemoryJournal()
    optimizer(EventBus(), journal=journal).optimize(prompt())
    bus = EventBus()
    with traced(bus, tracer_provider=provider):
        optimizer(bus, journal=journal).optimize(prompt())
    provider.force_flush()
    assert [span.name for span in collector.spans] == ["optimize docs/numbers"]


def test_a_run_that_fails_ends_its_spans_with_an_error(
    collector: Collector, provider: TracerProvider
) -> None:
    def broken(
        example: GepaExample, response: PromptResponse[Any], session: SessionProtocol
    ) -> RolloutFeedback:
        raise ValueError("no score")

    bus = EventBus()
    context = OptimizationContext(Priced(), event_bus=bus)
    config = attrs.evolve(CONFIG, feedback_fn=broken)
    with pytest.raises(FeedbackError), traced(bus, tracer_provider=provider):
        GepaOptimizer(context, config).optimize(prompt())
    provider.force_flush()
    codes = {span.name: span.status.code for span in collector.spans}
    assert codes == {"optimize docs/numbers": 2, "rollout": 2, "chat acme-large": 0}


def test_a_call_that_is_given_up_is_an_error(
    collector: Collector, provider: TracerProvider
) -> None:
    bus = EventBus()
    context = OptimizationContext(Priced(fails=True), event_bus=bus)
    with traced(bus, tracer_provider=provider):
        GepaOptimizer(context, CONFIG).optimize(prompt())
    provider.force_flush()
    [call] = collector.named("chat acme-large")
    assert (call.status.code, call.status.message) == (2, "overloaded")
    assert told(collector.named("optimize")[0])["promptgraft.stop_reason"] == "provider failed"


def test_without_an_sdk_runs_are_as_ever() -> None:
    bus = EventBus()
    with traced(bus):
        result = optimizer(bus).optimize(prompt())
    assert result == optimizer(EventBus()).optimize(prompt())


PROGRAM = """
import sys
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=sys.argv[1])))
trace.set_tracer_provider(provider)
from promptgraft.cli.main import run
run(["init", "."])
code = run(["optimize", "--budget", "268"])
provider.shutdown()
sys.exit(code)
"""


@pytest.mark.thorough
def test_the_command_line_makes_spans_in_an_instrumented_process(
    collector: Collector, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", PROGRAM, collector.address]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert len(collector.named("optimize ")) == 1, done.stderr
    assert len(collector.named("rollout")) > 100


def test_a_project_that_names_a_collector_sends_its_spans(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(["init"])
    address = collector.address.removesuffix("/v1/traces")
    with Path("promptgraft.yaml").open("a", encoding="utf-8") as file:
        file.write(f"trackers: {{opentelemetry: {{endpoint: '{address}', content: true}}}}\n")
    assert run(["optimize", "-q", "--budget", "268"]) == 1
    assert len(collector.named("optimize ")) == 1
    assert "gen_ai.input.messages" in told(collector.named("chat ")[0])


def test_a_tracker_without_its_package_is_said_before_anything_is_paid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(metadata, "version", missing)
    run(["init"])
    with Path("promptgraft.yaml").open("a", encoding="utf-8") as file:
        file.write("trackers: {mlflow: {}}\n")
    capsys.readouterr()
    said = (
        "tracking in MLflow needs `mlflow-skinny` 3.4 or newer, found none; run "
        '`pip install --upgrade "promptgraft[mlflow]"`\n'
    )
    assert run(["optimize"]) == 2
    assert capsys.readouterr().err == f"promptgraft: {said}"
    assert not Path("runs").exists()
    assert run(["check"]) == 0
    assert f"trackers: {said}" in capsys.readouterr().out


def test_an_old_or_missing_package_is_named_with_the_version() -> None:
    with pytest.raises(ConfigError, match=r"tracing needs `pytest` 999.1 or newer, found \d"):
        check_package("pytest", "999.1", extra="otel", what="tracing")
    with pytest.raises(ConfigError, match=r"`no-such-thing` 1.0 or newer, found none; run `pip"):
        check_package("no-such-thing", "1.0", extra="otel", what="tracing")
