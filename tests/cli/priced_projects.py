"""Nine small projects of different shape, and the models behind loopback servers that answer them.

The models write as long as such models do: labels, sentences, replies of several hundred
characters, and instructions that gain a rule or two with every reflection.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from promptgraft.ground.serde import Json
from servers.behaviour import Answer, Asked, Call

TEAMS = ("billing", "delivery", "returns", "account", "complaints")
_WORDS = tuple(
    re.findall(
        r"\w+",
        "order parcel invoice refund courier address password login garden chair lamp table cable "
        "blue broken late twice missing number street payment card voucher month window box",
    )
)
_RULES = (
    "Read the whole message before deciding; the last sentence often says what is really wanted.",
    "When two answers fit, choose the one that names the cause and not the one that names a mood.",
    "Mentions of money that was taken twice, or of a wrong amount, belong together.",
    "Do not be misled by greetings, signatures or quoted mails below the message.",
    "If a date or a number occurs, check which of the two things it belongs to, and say so.",
    "Words such as late, waiting and courier point to the transport rather than to the item.",
)
_CURRENT = re.compile(
    r"(?:The part is: [^\n]*|to perform a task for me:)\n\n(`{3,})\n(.*?)\n\1", re.DOTALL
)
_SAID = re.compile(r"#\d{4}")


def prose(seed: str, characters: int) -> str:
    """Return sentences of about so many characters, the same for the same seed."""
    draw, text = random.Random(seed), ""
    while len(text) < characters:
        text += " ".join(draw.choices(_WORDS, k=draw.randint(6, 14))).capitalize() + ". "
    return text.strip()


@attrs.frozen(kw_only=True)
class Shape:
    """A project.

    Attributes:
        prompt: the Markdown file of the prompt.
        cases: how many there are.
        asked: characters of an input.
        expected: makes the ground truth of a case out of its number.
        answers: what the model writes for a case; None for the ground truth.
        metrics: of the project.
        task: model that is optimized, after its provider.
        reflection: model that reflects.
        judges: models by the name of a judge.
        optimizer: settings.
        files: further files.
        calls: the call of a tool that the model makes first.
        thinks: tokens that thinking takes, for models that do.
    """

    prompt: str
    cases: int = 20
    asked: int = 160
    expected: Callable[[int], Json] = lambda number: TEAMS[number % len(TEAMS)]
    answers: Callable[[str], str] | None = None
    metrics: Sequence[Mapping[str, Json]] = ({"name": "exact"},)
    task: str = "openai gpt-4.1-mini"
    reflection: str = "openai gpt-4.1"
    judges: Mapping[str, str] = attrs.field(factory=dict)
    optimizer: Mapping[str, Json] = attrs.field(factory=dict)
    files: Mapping[str, str] = attrs.field(factory=dict)
    calls: Call | None = None
    thinks: int = 0

    def inputs(self) -> dict[str, Json]:
        """Return the inputs, each with a number that it is known by, and what is expected."""
        return {
            f"#{1000 + n} {prose(f'case {n}', self.asked + 40 * (n % 5 - 2))}": self.expected(n)
            for n in range(self.cases)
        }

    def write(self, folder: Path, servers: Mapping[str, str]) -> None:
        """Write the project; ``servers``: addresses by provider."""
        rows = [
            {"id": f"c{number}", "input": text, **({} if wanted is None else {"expected": wanted})}
            for number, (text, wanted) in enumerate(self.inputs().items())
        ]
        project: dict[str, Json] = {
            "version": 1,
            "prompts": {"main": "main.md"},
            "dataset": {"path": "cases.jsonl"},
            "splits": {"ratio": {"train": 0.5, "validation": 0.3, "test": 0.2}},
            "metrics": [dict(metric) for metric in self.metrics],
            "models": {
                "task": _model(self.task, servers),
                "reflection": _model(self.reflection, servers),
                **(
                    {"judges": {name: _model(one, servers) for name, one in self.judges.items()}}
                    if self.judges
                    else {}
                ),
            },
            "optimizer": {"rollout_budget": 40, "minibatch_size": 3, **self.optimizer},
            "workers": 8,
        }
        texts = {
            "main.md": self.prompt,
            "cases.jsonl": "".join(f"{json.dumps(row)}\n" for row in rows),
            "promptgraft.yaml": json.dumps(project),
            **self.files,
        }
        for name, text in texts.items():
            (folder / name).write_text(text, "utf-8")

    def brain(self) -> Callable[[Asked], Answer]:
        """Return what answers prompts, questions of the search, and questions of judges."""
        wanted = {text.split()[0]: expected for text, expected in self.inputs().items()}

        def answer(asked: Asked) -> Answer:
            text = "\n".join(asked.texts)
            draw = random.Random(text)
            if "```instruction (use more backticks" in text:
                return self._thought(asked, _improved(text, draw))
            if "You judge the work of an assistant" in text:
                return Answer(text=_judged(asked, text, draw))
            if self.calls is not None and not asked.results:
                return Answer(calls=(self.calls,))
            number = [one for one in _SAID.findall(text) if one in wanted][-1]
            right = draw.random() < min(0.8, 0.4 + 0.04 * text.count("\n- "))
            said = self._said(number, wanted[number], draw, right=right)
            properties = (asked.schema or {}).get("properties")
            if isinstance(properties, dict) and list(properties) == ["answer"]:
                said = json.dumps({"answer": said})
            return self._thought(asked, said)

        return answer

    def _said(self, number: str, wanted: Json, draw: random.Random, *, right: bool) -> str:
        if self.answers is not None:
            return self.answers(number)
        if isinstance(wanted, dict):
            first = next(iter(wanted))
            return json.dumps(wanted if right else {**wanted, first: "unknown"})
        return str(wanted if right else draw.choice(TEAMS))

    def _thought(self, asked: Asked, said: str) -> Answer:
        thinks = self.thinks if asked.model.startswith(("gpt-5", "gpt-6")) else 0
        return Answer(text=said, thought_tokens=thinks)


def _model(name: str, servers: Mapping[str, str]) -> dict[str, Json]:
    provider, _, model = name.partition(" ")
    return {
        "provider": provider,
        "model": model,
        "base_url": servers[provider],
        "api_key": "${LOOPBACK_KEY}",
    }


def _improved(text: str, draw: random.Random) -> str:
    found = _CURRENT.search(text)
    lines = [found[2] if found else "Rules:"]
    lines += [f"- {rule}" for rule in draw.sample(_RULES, draw.randint(1, 2))]
    return f"```instruction\n{chr(10).join(lines)}\n```"


def _judged(asked: Asked, text: str, draw: random.Random) -> str:
    reason = prose(text, draw.randint(80, 260))
    if asked.schema is not None and "category" in json.dumps(asked.schema):
        category = draw.choice(["correct", "partly", "wrong"])
        return json.dumps({"reason": reason, "category": category})
    ids = re.findall(r"Rubric `(\w+)`", text)
    rubrics = [{"id": one, "reason": reason, "met": draw.choice(["yes", "no"])} for one in ids]
    return json.dumps({"rubrics": rubrics})


def _prompt(head: str, *sections: str) -> str:
    return "\n\n".join(
        [f"---\nns: shop\n{head}---", *sections, "# Message {#message .frozen}\n\n$text\n"]
    )


_SORTING = f"output:\n  choices: [{', '.join(TEAMS)}]\n"
_TASK = "# Task\n\nSay which team of the shop has to answer this message."
_RULES_SECTION = "# Rules\n\n" + "\n".join(f"- {team}: what is about {team}" for team in TEAMS)
_ONLY_RULES: Mapping[str, Json] = {"targets": {"sections": ["rules"]}}
_RUBRICS: Json = [
    {"id": "facts", "text": "It says what the customer wants."},
    {"id": "short", "text": "It has no more than six sentences."},
    {"id": "tone", "text": "It is polite."},
]

SHAPES: Mapping[str, Shape] = {
    "labels": Shape(prompt=_prompt(_SORTING, _TASK, _RULES_SECTION), optimizer=_ONLY_RULES),
    "labels by a long policy": Shape(
        prompt=_prompt(
            _SORTING, _TASK, f"# Policy {{.frozen}}\n\n{prose('policy', 4000)}", _RULES_SECTION
        ),
        task="anthropic claude-haiku-4-5",
        reflection="anthropic claude-sonnet-4-5",
        optimizer=_ONLY_RULES,
    ),
    "replies with a judge": Shape(
        prompt=_prompt(
            "", "# Task\n\nWrite the reply of the shop.", "# Rules\n\nBe kind and short."
        ),
        expected=lambda number: prose(f"reply {number}", 350),
        answers=lambda number: prose(f"answer {number}", random.Random(number).randint(250, 700)),
        metrics=[{"name": "llm_final_response", "judges": ["strict"]}],
        judges={"strict": "openai gpt-4.1"},
        optimizer={"rollout_budget": 45},
    ),
    "fields": Shape(
        prompt=_prompt(
            "output:\n  fields:\n    team: {choices: [billing, delivery, returns]}\n"
            "    item: {type: string}\n    urgent: {type: boolean}\n"
            "    words: {type: list of string}\n",
            "# Task\n\nTake down what the message says.",
            "# Rules\n\nThe item is what was bought.",
        ),
        expected=lambda number: {
            "team": TEAMS[number % 3],
            "item": _WORDS[number % len(_WORDS)],
            "urgent": number % 2 == 0,
            "words": [*_WORDS[number % 20 :][:4]],
        },
        metrics=[{"name": "json_match"}],
        task="anthropic claude-haiku-4-5",
    ),
    "summaries with two judges": Shape(
        prompt=_prompt("", "# Task\n\nSum the message up.", "# Rules\n\nKeep all numbers."),
        asked=1500,
        expected=lambda number: None,
        answers=lambda number: prose(f"sum {number}", random.Random(number).randint(350, 900)),
        metrics=[{"name": "llm_rubric_response", "judges": ["one", "other"], "rubrics": _RUBRICS}],
        judges={"one": "openai gpt-4.1-mini", "other": "anthropic claude-sonnet-4-5"},
        optimizer={"rollout_budget": 40},
    ),
    "a tool": Shape(
        prompt=_prompt(f"{_SORTING}tools: tools.yaml\n", _TASK, _RULES_SECTION),
        files={
            "tools.yaml": "tools:\n  - name: find_order\n    description: Finds an order.\n"
            "    parameters:\n      number: {type: string, description: its number}\n"
            "    result: string\n    handler: shop.py:find_order\n",
            "shop.py": "def find_order(params):\n"
            "    return f'order {params.number}: paid, packed, handed to the courier on Monday'\n",
        },
        calls=Call("find_order", '{"number": "1000"}'),
        optimizer=_ONLY_RULES,
    ),
    "worked examples": Shape(
        prompt=_prompt(
            "examples: examples.yaml\n", "# Task\n\nAnswer in one sentence.", "# Rules\n\nBe exact."
        ),
        files={
            "examples.yaml": "examples:\n"
            + "".join(
                f"  - key: e{n}\n    objective: {prose(f'o{n}', 90)}\n"
                f"    outcome: {prose(f'r{n}', 130)}\n"
                for n in range(3)
            )
        },
        expected=lambda number: _WORDS[number % len(_WORDS)],
        answers=lambda number: prose(f"one {number}", random.Random(number).randint(60, 200)),
        metrics=[{"name": "contains"}],
        optimizer={"targets": {"sections": ["rules"]}, "enable_example_generation": False},
    ),
    "as published, by a model that thinks": Shape(
        prompt=_prompt(_SORTING, _TASK, _RULES_SECTION, "# Tone\n\nStay calm."),
        cases=36,
        task="openai gpt-4.1-nano",
        reflection="openai gpt-5-mini",
        thinks=700,
        optimizer={"rollout_budget": 80, "strategy": {"preset": "paper"}},
    ),
    "few proposals": Shape(
        prompt=_prompt(_SORTING, _TASK, _RULES_SECTION),
        cases=40,
        task="openai gpt-5-nano",
        thinks=350,
        optimizer={
            "rollout_budget": 90,
            **_ONLY_RULES,
            "limits": {"stoppers": [{"max_proposals": {"proposals": 4}}]},
        },
    ),
}


def _free(task: str, rules: str, **more: Any) -> Shape:
    return Shape(
        prompt=_prompt("", f"# Task\n\n{task}", f"# Rules\n\n{rules}"),
        asked=60,
        optimizer={"additions": ["blame", "shorten"]},  # they are about answers, not reflections
        **more,
    )


FREE_TEXTS: Mapping[str, Shape] = {
    "amounts": _free("Name the amount.", "Only a number.", expected=lambda number: str(number * 7)),
    "letters": _free(
        "Write the letter.",
        "Be polite.",
        expected=lambda number: prose(f"wanted {number}", 2000),
        answers=lambda number: prose(f"said {number}", 1700),
        metrics=[{"name": "rouge"}],
    ),
}
"""Projects whose answers are texts as long as what is expected."""

UNKNOWN_TEXTS: Mapping[str, Shape] = {
    "amounts in some text": _free(
        "Name the amount.",
        "Only a number.",
        expected=lambda number: str(number * 7),
        metrics=[{"name": "contains"}],
    ),
    "essays": _free(
        "Write an essay.",
        "Take your time.",
        expected=lambda number: None,
        answers=lambda number: prose(f"essay {number}", 3000),
        metrics=[{"name": "llm_rubric_response", "judges": ["one"], "rubrics": _RUBRICS}],
        judges={"one": "openai gpt-4.1-mini"},
    ),
}
"""Projects of which nothing tells how long answers are."""
