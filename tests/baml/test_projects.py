"""BAML functions in projects: faults with file and line, calls, and what keeps a key secret."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from importlib import metadata
from pathlib import Path

import attrs
import pytest

from baml.answering import Answer, Answering
from promptgraft import AnthropicAdapter, OpenAIAdapter
from promptgraft.adapters.base import ModelCalled, Usage
from promptgraft.adapters.calling.adapter import ModelAdapter
from promptgraft.adapters.calling.retrying import RetryPolicy
from promptgraft.agents.call import AgentAnswer, AgentCall
from promptgraft.bridges.baml.agent import BamlAgent
from promptgraft.bridges.baml.functions import chosen_tests, load_function
from promptgraft.errors import (
    AgentFaultError,
    ConfigError,
    DataFormatError,
    DeadlineExceededError,
    PermanentProviderError,
    RateLimitedError,
    RejectedRequestError,
    TransientProviderError,
)
from promptgraft.evals.types import Case
from promptgraft.project import load_project
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.session import Session
from servers.anthropic_messages import AnthropicMessages
from servers.behaviour import says
from servers.loopback import KEY as MODEL_KEY
from servers.loopback import MODEL, LoopbackServer
from servers.openai_chat import OpenAIChat
from servers.openai_responses import OpenAIResponses
from servers.provider import Provider

pytest.importorskip("baml_py")

KEY = "sk-planted-4711-abcdef"
BAML = """client<llm> Local {
  provider openai-generic
  options {
    base_url env.BAML_TEST_ADDRESS
    model "m"
    api_key env.BAML_TEST_KEY
  }
}
class Sum {
  total int @description("All together")
  words string
}
function Add(text: string) -> Sum {
  client Local
  prompt #"
    Add up. {{ text }}
    {{ ctx.output_format }}
  "#
}
test One {
  functions [Add]
  args { text "1 and 2" }
  @@assert({{ this.total == 3 }})
  @@assert({{ this.words == "three" }})
  @@check(small, {{ this.total < 9 }})
}
test Two {
  functions [Add]
  args { text "2 and 2" }
  @@assert({{ this.total == 4 }})
}
test Three {
  functions [Add]
  args { text "3 and 2" }
  @@assert({{ this.total == 5 }})
}
"""
PROJECT = """version: 1
prompts:
  sum: {baml: baml_src, function: Add}
splits: {ratio: {train: 0.4, validation: 0.3, test: 0.3}}
models:
  reflection: {provider: offline}
"""


@attrs.frozen
class World:
    """A project, and what its model answers."""

    folder: Path
    answers: list[Answer]
    server: Answering

    def ask(
        self, test: str = "One", *, attempts: int = 2, timeout: float = 60.0, **given: object
    ) -> AgentAnswer:
        function = load_function("Add", self.folder / "baml_src")
        tests = {one.name: one for one in chosen_tests(function, ())}
        policy = RetryPolicy(attempts=attempts, wait_initial=0.001, wait_max=0.001, timeout=timeout)
        agent = BamlAgent(function=function, tests=tests, policy=policy)
        texts = {part.key: part.text for part in function.parts}
        call = AgentCall(**{"texts": texts, "example": test, **given})  # type: ignore[arg-type]
        return agent.ask("", call)

    def faults(self, baml: str = BAML, project: str = PROJECT) -> tuple[str, ...]:
        (self.folder / "baml_src" / "add.baml").write_text(baml)
        (self.folder / "promptgraft.yaml").write_text(project)
        with pytest.raises(DataFormatError) as error:
            load_project(self.folder / "promptgraft.yaml")
        return tuple(line.replace(f"{self.folder}/", "") for line in error.value.faults)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    answers: list[Answer] = [lambda _: '{"total": 3, "words": "three"}']

    def answer(text: str) -> str | int:
        return answers[0](text)

    with Answering(answer) as server:
        monkeypatch.setenv("BAML_TEST_ADDRESS", server.address)
        monkeypatch.setenv("BAML_TEST_KEY", KEY)
        (tmp_path / "baml_src").mkdir()
        (tmp_path / "baml_src" / "add.baml").write_text(BAML)
        (tmp_path / "promptgraft.yaml").write_text(PROJECT)
        yield World(tmp_path, answers, server)


def output_of(answer: AgentAnswer) -> dict[str, object]:
    assert isinstance(answer.output, dict)
    return answer.output


def test_an_answer_has_its_value_rules_and_tokens(world: World) -> None:
    answer = world.ask()
    output = output_of(answer)
    assert output["value"] == {"total": 3, "words": "three"}
    assert [one["held"] for one in output["rules"]] == [True, True, True]  # type: ignore[attr-defined]
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (7, 3)
    assert world.server.headers["authorization"] == f"Bearer {KEY}"


def test_an_answer_that_cannot_be_read_is_an_answer_with_a_fault(world: World) -> None:
    world.answers[0] = lambda _: '{"total": 3}'
    answer = world.ask()
    assert output_of(answer)["fault"] == "Missing required field: words"
    assert answer.usage.input_tokens == 7


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (429, RateLimitedError),
        (408, TransientProviderError),
        (500, TransientProviderError),
        (503, TransientProviderError),
        (401, PermanentProviderError),
        (403, PermanentProviderError),
        (404, PermanentProviderError),
        (400, RejectedRequestError),
    ],
)
def test_a_status_is_what_it_is_for_every_agent_and_hides_the_key(
    world: World, status: int, error: type[Exception]
) -> None:
    world.answers[0] = lambda _: status
    with pytest.raises(error, match=str(status)) as raised:
        world.ask()
    assert KEY not in str(raised.value)


def test_every_request_is_in_the_ledger(world: World) -> None:
    statuses: list[str | int] = [429, 500, '{"total": 3, "words": "three"}']
    world.answers[0] = lambda _: statuses.pop(0)
    session = Session()
    world.ask(session=session, attempts=3)
    [called] = session.select_all(ModelCalled)
    assert (called.model, called.requests, called.fault) == ("Local", 3, "")
    assert called.usage == Usage(input_tokens=7, output_tokens=3)
    world.answers[0] = lambda _: 503
    with pytest.raises(TransientProviderError):
        world.ask(session=session)
    [_, failed] = session.select_all(ModelCalled)
    assert failed.requests == 2
    assert "HTTP 503" in failed.fault
    assert KEY not in repr(failed)


def test_what_will_not_pass_is_not_asked_again(world: World) -> None:
    world.answers[0] = lambda _: 401
    with pytest.raises(PermanentProviderError, match="check the API key"):
        world.ask()
    assert len(world.server.seen) == 1


def test_the_retries_of_a_client_are_replaced_and_its_fallbacks_are_counted(world: World) -> None:
    clients = """client<llm> Both {
  provider fallback
  retry_policy Often
  options {
    strategy [Local, Local]
  }
}
retry_policy Often {
  max_retries 5
}
"""
    source = clients + BAML.replace("client Local\n", "client Both\n")
    (world.folder / "baml_src" / "add.baml").write_text(source)
    world.answers[0] = lambda _: 500
    session = Session()
    with pytest.raises(TransientProviderError, match="request 2 of 2"):
        world.ask(session=session)
    [called] = session.select_all(ModelCalled)
    assert called.requests == len(world.server.seen) == 4


def test_a_call_that_takes_too_long_is_unscored(world: World) -> None:
    done = threading.Event()
    world.answers[0] = lambda _: "{}" if done.wait(30) else ""
    try:
        with pytest.raises(TransientProviderError, match="no answer in time"):
            world.ask(timeout=0.3)
    finally:
        done.set()


def test_a_key_that_no_client_names_is_that_of_the_environment(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = BAML.replace("    api_key env.BAML_TEST_KEY\n", "").replace("-generic", "")
    (world.folder / "baml_src" / "add.baml").write_text(source)
    monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}-usual")
    world.ask()
    assert world.server.headers["authorization"] == f"Bearer {KEY}-usual"
    short = BAML.replace("client Local\n", 'client "openai/gpt-5-mini"\n')
    (world.folder / "baml_src" / "add.baml").write_text(short)
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(ConfigError, match="OPENAI_API_KEY is not set"):
        world.ask()


def test_a_model_of_the_project_takes_the_place_of_the_client(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BAML_TEST_MODEL_KEY", f"{KEY}-model")
    monkeypatch.delenv("BAML_TEST_KEY")
    task = (
        f'  task: {{provider: openai, model: gpt-4.1, base_url: "{world.server.address}", '
        'api_key: "${BAML_TEST_MODEL_KEY}", max_output_tokens: 77}\n'
    )
    (world.folder / "promptgraft.yaml").write_text(PROJECT + task)
    project = load_project(world.folder / "promptgraft.yaml")
    adapter, prompt = project.asking, project.prompt().prompt
    assert adapter is not None
    session = Session()
    case = Case(id="One", input={"text": "1 and 2"})
    response = adapter.evaluate(prompt.bind(case), session=session)
    assert response.text == '{"total": 3, "words": "three"}'
    assert world.server.headers["authorization"] == f"Bearer {KEY}-model"
    assert "Add up. 1 and 2" in world.server.seen[-1]
    assert world.server.body["model"] == "gpt-4.1"
    assert world.server.body["max_completion_tokens"] == 77
    [called] = session.select_all(ModelCalled)
    assert called.cost is not None
    assert not project.stand_in()


@pytest.mark.parametrize(
    ("protocol", "adapter"),
    [
        (AnthropicMessages, AnthropicAdapter),
        (OpenAIChat, partial(OpenAIAdapter, api="chat")),
        (OpenAIResponses, partial(OpenAIAdapter, api="responses")),
    ],
)
def test_a_model_is_sent_messages_in_its_own_form(
    world: World, protocol: Callable[[], Provider], adapter: Callable[..., ModelAdapter]
) -> None:
    function = load_function("Add", world.folder / "baml_src")
    tests = {one.name: one for one in function.tests}
    brain = says('{"total": 3, "words": "three"}')
    with LoopbackServer(protocol(), brain=brain) as server:
        model = adapter(MODEL, api_key=MODEL_KEY, base_url=server.base_url)
        agent = BamlAgent(function=function, tests=tests, model=lambda: model)
        texts = {part.key: part.text for part in function.parts}
        answer = agent.ask("", AgentCall(texts=texts, example="One"))
        assert server.counts.refused == ()
        assert "Add up." in str(server.asked[0].body)
    assert output_of(answer)["value"] == {"total": 3, "words": "three"}
    assert world.server.seen == []


def test_a_refused_connection_is_unscored(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAML_TEST_ADDRESS", "http://127.0.0.1:9/v1")
    with pytest.raises(TransientProviderError):
        world.ask()


def test_a_variable_that_is_not_set_ends_the_run(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BAML_TEST_KEY")
    with pytest.raises(ConfigError, match="BAML_TEST_KEY is not set"):
        world.ask()
    project = load_project(world.folder / "promptgraft.yaml")
    [line] = project.stand_in()
    assert "promptgraft.yaml:2: prompts: the environment variable BAML_TEST_KEY is not set" in line


def test_a_deadline_ends_a_call_that_hangs(world: World) -> None:
    done = threading.Event()

    def hang(_: str) -> str:
        done.wait(30)
        return "{}"

    world.answers[0] = hang
    try:
        with pytest.raises(DeadlineExceededError):
            world.ask(deadline=Deadline.after(0.2))
    finally:
        done.set()


def test_a_key_in_an_answer_is_blanked(world: World) -> None:
    world.answers[0] = lambda _: json.dumps({"total": 3, "words": KEY})
    answer = world.ask()
    assert KEY not in answer.text
    assert KEY not in str(answer.output)


def test_two_equal_aliases_are_a_fault_of_the_candidate(world: World) -> None:
    function = load_function("Add", world.folder / "baml_src")
    texts = {part.key: part.text for part in function.parts}
    texts |= {"alias-sum-total": "it", "alias-sum-words": "it"}
    with pytest.raises(AgentFaultError, match="same alias, `it`"):
        world.ask(texts=texts)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            lambda text: text.replace("total int ", "total integer "),
            "baml_src/add.baml:10: Type `integer` does not exist",
        ),
        (
            lambda text: text.replace("{{ text }}", "{{ text"),
            "baml_src/add.baml:",
        ),
        (
            lambda text: text.replace("this.total == 3", "this.total =="),
            "baml_src/add.baml:20: @@assert({{ this.total == }}): syntax error",
        ),
        (
            lambda text: text.replace("this.total < 9", "this.total|tiny"),
            "baml_src/add.baml:20: @@check({{ this.total|tiny }}): unknown filter",
        ),
        (
            lambda text: text.replace("total int ", 'total int @alias("words") '),
            "baml_src: `alias-sum-words` and `alias-sum-total` are the same alias, `words`",
        ),
        (
            lambda text: text.replace("function Add", "function Ad"),
            "promptgraft.yaml:3: prompts.sum: no function `Add` in baml_src (did you mean `Ad`?)",
        ),
        (
            lambda text: text.replace("[Add]", "[Other]"),
            "promptgraft.yaml:3: prompts.sum: function `Add` in baml_src has no test",
        ),
    ],
)
def test_faults_are_said_with_file_and_line(
    world: World, change: Callable[[str], str], line: str
) -> None:
    (found,) = dict.fromkeys(world.faults(change(BAML)))
    assert found.startswith(line)
    assert "backtrace" not in found


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("params: x.py:f\n", "params: a BAML function is asked with its tests; leave it out"),
        ("dataset: {path: a.jsonl}\n", "the tests of a BAML function are its cases"),
        ("  task: {provider: offline}\n", "expected a model over HTTP as `task`"),
        ("agent: {command: [cat]}\n", "the client of the BAML project answers"),
    ],
)
def test_what_a_baml_function_does_not_need_is_refused(world: World, more: str, said: str) -> None:
    assert any(said in line for line in world.faults(project=PROJECT + more))


def test_a_missing_or_old_version_is_one_line(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "version", lambda _: "0.200.1")
    (line,) = dict.fromkeys(world.faults())
    assert "needs `baml-py` 0.226 or newer, found 0.200.1; run `pip install" in line
