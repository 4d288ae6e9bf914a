"""Which columns and messages of cases feed which placeholders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import promptgraft as pg
from promptgraft.evals.binding import params_of_cases
from promptgraft.ground.serde import Json
from promptgraft.project import load_project
from promptgraft.prompt.rendered import RenderedPrompt

# Each row has its number in place of `#`.
MESSAGES: Json = [
    {"role": "user", "content": "Hello."},
    {"role": "assistant", "content": "Yes?"},
    {"role": "user", "content": "It is late #."},
]
TALK = "user: Hello.\n\nassistant: Yes?\n\nuser: It is late #."
FORMS = pytest.mark.parametrize(
    ("text", "values", "sent"),
    [
        ("Answer $input", {"input": "a#"}, "Answer a#"),
        ("Answer $input in $lang", {"input": "a#", "lang": "de"}, "Answer a# in de"),
        ("Answer $input in $lang", {"input": {"input": "a#", "lang": "de"}}, "Answer a# in de"),
        ("Answer $mail", {"mail": "a#"}, "Answer a#"),
        ("With $context: $question", {"context": "c", "question": "a#"}, "With c: a#"),
        ("Answer $input", {"input": MESSAGES}, f"Answer {TALK}"),
        ("Answer $talk", {"talk": MESSAGES}, f"Answer {TALK}"),
        ("Answer $input in $lang", {"input": MESSAGES, "lang": "de"}, f"Answer {TALK} in de"),
        (
            "After $context: $input",
            {"input": MESSAGES},
            "After user: Hello.\n\nassistant: Yes?: It is late #.",
        ),
    ],
)


def rows(values: dict[str, Json]) -> list[dict[str, Json]]:
    """Return 30 rows, half of them with another label."""
    written = json.dumps(values)
    return [
        {**json.loads(written.replace("#", str(at))), "expected": ("yes", "no")[at % 2]}
        for at in range(30)
    ]


@FORMS
def test_rows_in_python_feed_the_placeholders_of_a_text(
    text: str, values: dict[str, Json], sent: str
) -> None:
    seen: set[str] = set()

    def answer(prompt: RenderedPrompt[object]) -> str:
        seen.add(prompt.text)
        return "yes"

    pg.optimize(
        text,
        rows(values),
        "exact",
        model=pg.ScriptedAdapter(answer, identity="task"),
        reflection_model=pg.ScriptedAdapter(lambda _: "no", identity="writer"),
        rollout_budget=60,
    )

    assert len(seen) > 1
    assert seen <= {sent.replace("#", str(at)) for at in range(30)}


@FORMS
def test_files_of_a_project_feed_them_alike(
    tmp_path: Path, text: str, values: dict[str, Json], sent: str
) -> None:
    (tmp_path / "p.md").write_text(text)
    (tmp_path / "cases.json").write_text(json.dumps(rows(values)))
    (tmp_path / "promptgraft.yaml").write_text(
        "version: 1\nprompts: {p: p.md}\nmetrics: [exact]\nmodels: {task: openai/m}\n"
        "dataset: cases.json\n"
    )
    project = load_project(tmp_path / "promptgraft.yaml")
    prompt, train = project.prompt().prompt, project.splits.train

    params = params_of_cases(prompt, train).values()

    shown = {prompt.bind(*values).render().text for values in params}
    assert len(shown) == len(train)
    assert shown <= {sent.replace("#", str(at)) for at in range(30)}
