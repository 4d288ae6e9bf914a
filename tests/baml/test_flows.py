"""Flows: functions in BAML's expression language, judged by tests of their own."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import attrs
import pytest

from baml.answering import Answer, Answering
from programs import Programs
from promptgraft import AnthropicAdapter, OpenAIAdapter
from promptgraft.adapters.base import ModelCalled, Usage
from promptgraft.adapters.calling.adapter import ModelAdapter
from promptgraft.adapters.calling.retrying import RetryPolicy
from promptgraft.agents.call import AgentAnswer, AgentCall
from promptgraft.bridges.baml import functions
from promptgraft.bridges.baml.agent import BamlAgent
from promptgraft.bridges.baml.functions import load_function
from promptgraft.errors import ConfigError, RunCancelledError, TransientProviderError
from promptgraft.runtime.deadline import Cancellation, Deadline
from promptgraft.runtime.session import Session
from servers.anthropic_messages import AnthropicMessages
from servers.behaviour import says
from servers.loopback import KEY as MODEL_KEY
from servers.loopback import MODEL, LoopbackServer
from servers.openai_chat import OpenAIChat
from servers.openai_responses import OpenAIResponses
from servers.provider import Provider

pytest.importorskip("baml_py")

BAML = """client<llm> Local {
  provider openai-generic
  options {
    base_url env.BAML_TEST_ADDRESS
    model "m"
    api_key env.BAML_TEST_KEY
  }
}
class Note {
  title string @description("What it is called")
  pages int
}
function Read(text: string) -> Note {
  client Local
  prompt #"
    Read this. {{ ctx.output_format }}
    {{ _.role("user") }}{{ text }}
  "#
}
function Shelve(title: string) -> string {
  client Local
  prompt #"
    Name a shelf.
    {{ _.role("user") }}{{ title }}
  "#
}
function Double(number: int) -> int {
  number * 2
}
function Sort(text: string) -> string {
  let note = Read(text);
  Shelve(note.title)
}
"""
PLACES = [("maps", "travel"), ("odes", "poetry"), ("inns", "travel"), ("epics", "poetry")]
TESTS = "".join(
    f"""test {word.title()} {{
  functions [Sort]
  args {{ text "about {word}" }}
  @@assert({{{{ this == "{shelf}" }}}})
}}
"""
    for word, shelf in PLACES
)
SHELVES = dict(PLACES)


def librarian(text: str) -> str | int:
    """Know the shelves only if the prompt asks for one word."""
    word = text.rsplit(None, 1)[-1]
    if "Read this" in text:
        return json.dumps({"title": word, "pages": 7})
    return SHELVES[word] if "one word" in text else f"It goes to {SHELVES[word]}."


@attrs.frozen
class Library:
    folder: Path
    answers: list[Answer]
    server: Answering

    @property
    def agent(self) -> BamlAgent:
        function = load_function("Sort", self.folder / "baml_src")
        policy = RetryPolicy(attempts=2, wait_initial=0.001, wait_max=0.001)
        tests = {test.name: test for test in function.tests}
        return BamlAgent(function=function, tests=tests, policy=policy)

    def ask(self, agent: BamlAgent | None = None, **given: object) -> AgentAnswer:
        call = {"texts": {}, "example": "Maps", **given}
        return (agent or self.agent).ask("", AgentCall(**call))  # type: ignore[arg-type]


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    answers: list[Answer] = [librarian]

    def answer(text: str) -> str | int:
        return answers[-1](text)

    with Answering(answer) as server:
        monkeypatch.setenv("BAML_TEST_ADDRESS", server.address)
        monkeypatch.setenv("BAML_TEST_KEY", "sk-planted-4711-abcdef")
        (tmp_path / "baml_src").mkdir()
        (tmp_path / "baml_src" / "sort.baml").write_text(BAML + TESTS)
        yield Library(tmp_path, answers, server)


def test_the_parts_of_a_flow_are_those_of_the_functions_that_it_calls(library: Library) -> None:
    assert [part.key for part in library.agent.function.parts] == [
        *("prompt-read", "prompt-shelve", "about-note"),
        *("about-note-title", "alias-note-title", "about-note-pages", "alias-note-pages"),
    ]
    assert functions.tested_functions(library.folder / "baml_src", ()) == ("Sort",)
    assert not library.agent.faults()
    assert not library.agent.test_faults()
    shown = library.agent.answers({})
    assert "let note = Read(text);" in shown
    assert "function Shelve(title: string) -> string" in shown


def test_a_flow_is_judged_by_its_own_test_and_every_call_is_counted(library: Library) -> None:
    session = Session()
    answer = library.ask(session=session)
    assert isinstance(answer.output, dict)
    assert answer.output["value"] == "It goes to travel."
    assert [rule["held"] for rule in answer.output["rules"]] == [False]
    assert answer.tools is not None
    assert [use.name for use in answer.tools] == ["Read", "Shelve"]
    assert answer.tools[1].result == "It goes to travel."
    assert answer.usage == Usage(input_tokens=14, output_tokens=6)
    assert [called.model for called in session.select_all(ModelCalled)] == ["Local", "Local"]
    assert library.ask(texts={"prompt-shelve": _asking("one word")}).text == "travel"
    assert library.server.body["model"] == "m"
    assert library.server.body["messages"] == [
        {"role": "system", "content": "Name a shelf in one word."},
        {"role": "user", "content": "maps"},
    ]


def _asking(how: str) -> str:
    return f'Name a shelf in {how}.\n{{{{ _.role("user") }}}}{{{{ title }}}}'


def test_an_answer_inside_a_flow_that_cannot_be_read_is_a_fault_of_the_texts(
    library: Library,
) -> None:
    library.answers.append(lambda _: "I do not know.")
    output = library.ask().output
    assert isinstance(output, dict)
    assert "Missing required field: title" in str(output["fault"])


def test_a_provider_that_fails_inside_a_flow_leaves_it_unscored(library: Library) -> None:
    library.answers.append(lambda text: 503 if "shelf" in text else librarian(text))
    session = Session()
    with pytest.raises(TransientProviderError, match="503"):
        library.ask(session=session)
    assert [called.requests for called in session.select_all(ModelCalled)] == [1, 2]


def test_a_flow_that_is_stopped_during_a_call_leaves_no_panic_of_baml_behind(
    library: Library, capfd: pytest.CaptureFixture[str]
) -> None:
    stop, is_over = Cancellation(), threading.Event()

    def slow(text: str) -> str | int:
        if "shelf" in text:
            stop.set("enough")
            is_over.wait(30)
        return librarian(text)

    library.answers.append(slow)
    with pytest.raises(RunCancelledError, match="enough"):
        library.ask(deadline=Deadline(cancellation=stop))
    is_over.set()
    library.answers.append(librarian)
    assert library.ask().text == "It goes to travel."
    assert "panicked" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("protocol", "adapter"),
    [
        (AnthropicMessages, AnthropicAdapter),
        (OpenAIChat, partial(OpenAIAdapter, api="chat")),
        (OpenAIResponses, partial(OpenAIAdapter, api="responses")),
    ],
)
def test_a_model_of_the_project_answers_the_calls_of_a_flow(
    library: Library, protocol: Callable[[], Provider], adapter: Callable[..., ModelAdapter]
) -> None:
    with LoopbackServer(protocol(), brain=says('{"title": "maps", "pages": 7}')) as server:
        model = adapter(MODEL, api_key=MODEL_KEY, base_url=server.base_url)
        answer = library.ask(attrs.evolve(library.agent, model=lambda: model))
        assert server.counts.refused == ()
        bodies = [str(asked.body) for asked in server.asked]
    assert answer.text == '{"title": "maps", "pages": 7}'
    assert ["Read this." in body for body in bodies] == [True, False]
    assert "Name a shelf." in bodies[1]
    assert "about maps" not in bodies[1]
    assert library.server.seen == []


def refuses(status: int) -> Callable[[str], int]:
    return lambda _: status


@pytest.mark.parametrize("proxy", [None, refuses(403), refuses(502)])
def test_a_proxy_that_stands_between_is_named(
    library: Library, monkeypatch: pytest.MonkeyPatch, proxy: Answer | None
) -> None:
    with Answering(proxy or librarian) as between:
        address = between.address.removesuffix("/v1") if proxy else "http://127.0.0.1:9"
        monkeypatch.setenv("HTTP_PROXY", address)
        monkeypatch.setenv("http_proxy", address)
        with pytest.raises(ConfigError, match=r"sort.baml:\d+: test Maps: .*set NO_PROXY=127.0.0"):
            library.ask()
        assert bool(between.seen) == bool(proxy)


def test_what_a_flow_sends_cannot_be_rendered(library: Library) -> None:
    with pytest.raises(ConfigError, match=r"is a flow: .*; render one of `Read`, `Shelve`"):
        library.agent.messages({}, "Maps")


def test_a_function_that_needs_no_model_is_refused(library: Library) -> None:
    with pytest.raises(ConfigError, match=r"`Double` in .* and calls no function that has one"):
        load_function("Double", library.folder / "baml_src")


REFLECTOR = """
from promptgraft import ScriptedAdapter


def make():
    def reply(prompt):
        asks = "prompt-shelve" in prompt.text or "Prompt of Shelve" in prompt.text
        text = "Name a shelf in one word.\\n{{ _.role(\\"user\\") }}{{ title }}"
        return f"```instruction\\n{text}\\n```" if asks else "I would rather not."

    return ScriptedAdapter(reply)
"""


def test_a_flow_is_improved_and_its_winner_is_written_to_the_function_that_it_calls(
    programs: Programs, library: Library
) -> None:
    (library.folder / "reflect.py").write_text(REFLECTOR)
    done = programs.promptgraft(
        *("optimize", "--baml", "baml_src", "--function", "Sort"),
        *("--reflection", "reflect.py:make", "--budget", "40"),
        folder=library.folder,
    )
    assert done.returncode in (0, 1), done.stderr
    done = programs.promptgraft("apply", "--to-source", "--keep-anyway", folder=library.folder)
    assert done.returncode == 0, done.stderr
    written = (library.folder / "baml_src" / "sort.baml").read_text()
    assert "Name a shelf in one word." in written
    assert "PromptgraftPassed" not in written
    assert "let note = Read(text);" in written
