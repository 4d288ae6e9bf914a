"""Whole projects as users bring them, from `check` to `apply`, against a server on loopback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

import attrs
import pytest

from further import thorough
from promptgraft.cli.main import run
from servers.threaded import QuietHandler, ThreadedServer

CITIES = {"Ann": "Oslo", "Bea": "Rome", "Cal": "Lima", "Dee": "Kyiv", "Eve": "Baku", "Fay": "Bern"}


@attrs.frozen(kw_only=True)
class Brought:
    """A project of a user: its prompt and cases, and the rule that makes the model answer well."""

    name: str
    prompt: str
    cases: str
    dataset: str
    rule: str


def _rows(form: str, count: int = 20) -> str:
    people = list(CITIES.items())
    rows = (
        form.format(n=n, who=people[n % 6][0], city=people[n % 6][1], other=people[(n + 1) % 6][1])
        for n in range(count)
    )
    return "".join(f"{row}\n" for row in rows)


BROUGHT = [
    Brought(
        name="почта",
        prompt="# Задача\n\nНазови город.\n\n# Письмо {#письмо .frozen}\n\n$mail\n",
        cases="письмо,ответ\n" + _rows("Письмо {n}: {who} живёт в городе {city}.,{city}"),
        dataset="{path: cases.csv, fields: {input: письмо, expected: ответ}}",
        rule="Ответь одним словом: названием города.",
    ),
    Brought(
        name="任务",
        prompt="# 任务\n\n说出城市。\n\n# 邮件\n\n$note\n",
        cases="input,expected\n" + _rows("邮件 {n}：{who} 住在 {city}。,{city}"),
        dataset="{path: cases.csv, encoding: gb18030}",
        rule="只回答城市的名字。",
    ),
    Brought(
        name="rag",
        prompt="# Job\n\nAnswer.\n\n# Context {#context .frozen}\n\n$context\n\n"
        "# Question {#question .frozen}\n\n$question\n",
        cases="question,context,expected\n"
        + _rows('Where is {who} on day {n}?,"{who} is in {city}, others in {other}.",{city}'),
        dataset="{path: cases.csv}",
        rule="Answer with the name of the city and nothing else.",
    ),
    Brought(
        name="mails",
        prompt="# Job\n\nRead the mail.\n\n# Mail {#mail .frozen}\n\n$subject\n\n$body\n",
        cases="subject,body,expected\n"
        + _rows("Mail {n},{who} writes from {city}.,{city}")
        + _rows("Mail {n},{who} writes from {city}.,{city}", 2),
        dataset="{path: cases.csv, duplicates: drop}",
        rule="Reply with the city only.",
    ),
]


class Model(QuietHandler):
    """Answers well only with the rule in its prompt, and proposes it when it reflects."""

    rule: ClassVar[str] = ""

    def do_POST(self) -> None:  # noqa: N802 - the name of http.server
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        text = "\n".join(str(message["content"]) for message in body["messages"])
        if "## Current text" in text:
            said = f"```\n{self.rule}\n```"
        elif self.rule in text:
            said = next(city for who, city in CITIES.items() if f"{who} " in text)
        else:
            said = "I would need to think about that."
        self._reply(f"<think>\nlet me see\n</think>\n{said}")

    def _reply(self, said: str) -> None:
        message = {"role": "assistant", "content": said}
        answer = json.dumps(
            {
                "id": "1",
                "object": "chat.completion",
                "created": 1,
                "model": "m",
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12},
            }
        ).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


@pytest.mark.parametrize(
    "brought", [*BROUGHT[:2], *thorough(BROUGHT[2:])], ids=lambda one: one.name
)
def test_a_project_goes_from_check_to_apply(
    brought: Brought,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Model, "rule", brought.rule)
    source = Path(f"{brought.name}.md")
    source.write_text(brought.prompt, "utf-8")
    encoding = "gb18030" if "gb18030" in brought.dataset else "utf-8"
    Path("cases.csv").write_text(brought.cases, encoding)
    with ThreadedServer(Model) as server:
        model = f'{{provider: vllm, model: m, base_url: "{server.origin}/v1"}}'
        Path("promptgraft.yaml").write_text(
            f"version: 1\nprompts: {{job: {brought.name}.md}}\ndataset: {brought.dataset}\n"
            "splits: {ratio: {train: 0.3, validation: 0.3, test: 0.4}}\nmetrics: [{name: exact}]\n"
            f"models: {{task: {model}}}\noptimizer: {{rollout_budget: 50, minibatch_size: 3}}\n",
            "utf-8",
        )
        for command in ("check", "optimize --quiet", "apply --to-source", "eval --fail-under=1"):
            assert run(command.split()) == 0, (command, capsys.readouterr())
    written = source.read_text("utf-8")
    assert brought.rule in written
    # Headings, and with them keys and frozen sections, are as they were.
    heads = [line for line in brought.prompt.splitlines() if line.startswith("#")]
    assert [line for line in written.splitlines() if line.startswith("#")] == heads
