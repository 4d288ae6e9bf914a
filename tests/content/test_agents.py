"""Images and files given to agents, judges and simulated conversations."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from black_box.service import said, serving
from image_files import PDF, picture, png
from promptgraft import (
    AgentCall,
    BlackBox,
    Case,
    CommandAgent,
    Evaluation,
    File,
    HttpAgent,
    Image,
    PromptgraftError,
    ScriptedAdapter,
    evaluate,
)
from promptgraft.evals.judges import LlmFinalResponse
from promptgraft.evals.metrics import Exact
from promptgraft.evals.types import Answer, Turn
from promptgraft.ground.serde import Json

PHOTO, OTHER = picture("photo.png"), picture("other.png", red=1)
CONTRACT = File(data=PDF, name="contract.pdf")
CASE = Case(id="a", input=("What is it?", PHOTO, CONTRACT), expected="a cat")
METRICS = [Exact()]


def asked_of(agent: Any, case: Case = CASE) -> Evaluation:
    box = BlackBox({"system": "Be brief."}, agent=agent)
    return evaluate(box.prompt, [case], METRICS, adapter=box.adapter)


def test_a_function_is_given_the_images_themselves() -> None:
    calls: list[tuple[str, AgentCall]] = []

    def agent(query: str, call: AgentCall) -> str:
        calls.append((query, call))
        return "a cat"

    assert asked_of(agent).score.mean == 1.0
    [(query, call)] = calls
    assert query == f"What is it?\n{PHOTO}\n{CONTRACT}"
    assert call.content == CASE.input
    assert call.files == (PHOTO, CONTRACT)


def test_the_values_of_an_object_are_given_too() -> None:
    seen: list[AgentCall] = []

    def agent(query: str, call: AgentCall) -> str:
        seen.append(call)
        return query

    asked_of(agent, Case(id="a", input={"photos": [PHOTO, OTHER], "word": "x"}, expected="x"))
    assert seen[0].files == (PHOTO, OTHER)
    assert [piece for piece in seen[0].content if isinstance(piece, File)] == [PHOTO, OTHER]


def test_every_turn_of_a_conversation_has_its_own() -> None:
    seen: list[tuple[File, ...]] = []

    def agent(query: str, call: AgentCall) -> str:
        seen.append(call.files)
        return "yes"

    turns = (Turn(user=("This?", PHOTO)), Turn(user="Sure?"), Turn(user=(OTHER,), expected="yes"))
    asked_of(agent, Case(id="a", input=(OTHER,), expected="yes", turns=turns))
    assert seen == [(PHOTO,), (), (OTHER,)]


def test_an_http_agent_is_sent_content_as_openai_has_it() -> None:
    body: Json = {"system": "{texts.system}", "content": "{content}", "text": "{query}"}
    with serving(lambda *_: said({"text": "a cat"})) as service:
        assert asked_of(HttpAgent(url=service.url, json=body, answer="$.text")).score.mean == 1.0
    [(sent, _)] = service.asked
    assert sent["content"][1]["image_url"]["url"] == PHOTO.data_url
    assert sent["content"][2]["file"]["filename"] == "contract.pdf"
    assert sent["text"] == f"What is it?\n{PHOTO}\n{CONTRACT}"


SCRIPT = """\
import json, sys
files = json.loads(sys.argv[2])
print(json.dumps([open(file, "rb").read().hex() for file in files]))
"""


def test_a_command_is_given_paths(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(SCRIPT)
    (tmp_path / "on_disk.png").write_bytes(png(colour=(2, 2, 2)))
    command = [sys.executable, "agent.py", "{texts.system}{query}", "{files}"]
    agent = CommandAgent(command=command, cwd=tmp_path)
    on_disk = Image(tmp_path / "on_disk.png")
    expected = json.dumps([PHOTO.read().hex(), png(colour=(2, 2, 2)).hex()])
    case = Case(id="a", input=("Look", PHOTO, on_disk), expected=expected)
    assert asked_of(agent, case).score.mean == 1.0


@pytest.mark.parametrize(
    "agent",
    [
        HttpAgent(url="http://127.0.0.1:1/", json={"q": "{query}", "t": "{texts.system}"}),
        CommandAgent(command=[sys.executable, "-c", "{query}{texts.system}"]),
    ],
)
def test_an_agent_that_is_told_only_names_is_refused_before_a_call(agent: Any) -> None:
    with pytest.raises(PromptgraftError, match=r"only the name of photo\.png; give it `.content.`"):
        asked_of(agent)


def judge_that(seen: list[tuple[object, ...]], **options: Any) -> ScriptedAdapter:
    def reply(rendered: Any) -> str:
        seen.append(rendered.content)
        return json.dumps({"reason": "I looked.", "category": "correct"})

    return ScriptedAdapter(reply, **options)


def test_a_judge_that_sees_is_shown_the_images_of_the_question() -> None:
    seen: list[tuple[object, ...]] = []
    metric = LlmFinalResponse(judges=[judge_that(seen)])
    verdict = metric.judge(CASE, Answer(text=f"A cat, as in {PHOTO}."))
    assert verdict.score == 1.0
    [content] = seen
    assert [piece for piece in content if isinstance(piece, File)] == [PHOTO]
    texts = "".join(piece for piece in content if isinstance(piece, str))
    assert f"A cat, as in {PHOTO}." in texts, "what an answer says stays a text"


class Blind(ScriptedAdapter):
    @property
    def sees(self) -> bool:
        return False


def test_a_judge_that_does_not_see_is_told_the_names() -> None:
    prompts: list[tuple[object, ...]] = []

    def reply(rendered: Any) -> str:
        prompts.append(rendered.content)
        return json.dumps({"reason": "I know.", "category": "wrong"})

    LlmFinalResponse(judges=[Blind(reply)]).judge(CASE, Answer(text="A dog."))
    [content] = prompts
    assert len(content) == 1
    assert str(PHOTO) in str(content[0])
