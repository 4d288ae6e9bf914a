"""Models by name in a project file and in Python, and metrics in forms that others return."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest

from promptgraft.adapters.named import named_adapter
from promptgraft.adapters.openai import OpenAIAdapter
from promptgraft.cli.main import run
from promptgraft.errors import ConfigError, DataFormatError, FeedbackError
from promptgraft.evals import metrics
from promptgraft.evals.metrics.base import verdict_of
from promptgraft.evals.types import Answer, Case
from promptgraft.project import Project, load_project, project_schema

PROMPT = "# Job\n\nName the shelf.\n\n# Note {#note .frozen}\n\n$note\n"
HOSTS = {
    "deepseek": "api.deepseek.com",
    "fireworks": "api.fireworks.ai",
    "groq": "api.groq.com",
    "mistral": "api.mistral.ai",
    "openrouter": "openrouter.ai",
    "together": "api.together.xyz",
}
LOCAL = {"ollama": 11434, "lmstudio": 1234, "vllm": 8000}


def project_with(folder: Path, task: str, metric: str = "{name: exact}") -> Project:
    (folder / "job.md").write_text(PROMPT)
    rows = ({"id": f"n{n}", "input": f"map {n}", "expected": "travel"} for n in range(12))
    (folder / "cases.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    path = folder / "promptgraft.yaml"
    path.write_text(
        "version: 1\nprompts: {shelf: job.md}\ndataset: {path: cases.jsonl}\n"
        f"metrics: [{metric}]\nmodels:\n  task: {task}\n  reflection: offline\n"
    )
    return load_project(path)


@pytest.mark.parametrize("provider", HOSTS)
def test_a_provider_is_a_name_for_openai_with_its_address_and_its_key(
    tmp_path: Path, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = f"{provider.upper()}_API_KEY"
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai-which-others-must-not-get")
    monkeypatch.delenv(variable, raising=False)
    project = project_with(tmp_path, f"{provider}/some/model-1")
    with pytest.raises(DataFormatError, match=f"models.task: .*variable {variable} is not set"):
        project.adapter()
    assert [line.partition("task")[2] for line in project.stand_in()] == [
        f".api_key: the environment variable {variable} is not set; a run needs it"
    ]

    monkeypatch.setenv(variable, "key-of-this-provider-0123")
    for adapter in (
        project_with(tmp_path, f"{provider}/some/model-1").adapter(),
        named_adapter(f"{provider}/some/model-1", "model"),
    ):
        assert isinstance(adapter, OpenAIAdapter)
        assert (adapter.model, adapter.api_key) == ("some/model-1", "key-of-this-provider-0123")
        assert f"host={HOSTS[provider]}" in adapter.identity


@pytest.mark.parametrize("provider", LOCAL)
def test_a_local_server_needs_no_key(tmp_path: Path, provider: str) -> None:
    adapter = project_with(tmp_path, f"{{provider: {provider}, model: llama3:8b}}").adapter()
    assert isinstance(adapter, OpenAIAdapter)
    assert (adapter.model, adapter.api_key) == ("llama3:8b", "none")
    assert adapter.base_url == f"http://localhost:{LOCAL[provider]}/v1"


def test_another_address_gets_no_key_of_the_provider(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "key-of-groq-0123456789")
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-openai-0123456789")
    model = '{provider: groq, model: m, base_url: "http://127.0.0.1:9/v1"}'
    adapter = project_with(tmp_path, model).adapter()
    assert isinstance(adapter, OpenAIAdapter)
    assert adapter.api_key == "none"


def test_a_name_that_is_no_model_is_a_fault_without_its_text(tmp_path: Path) -> None:
    for text, why in (
        ("grok/model", "did you mean `groq`?"),
        ("openai", "expected `offline` or `PROVIDER/MODEL`"),
        ("offline/x", "expected `offline` or `PROVIDER/MODEL`"),
        ("openai/sk-0123456789abcdef0123", "expected `offline` or `PROVIDER/MODEL`"),
        ("openai:gpt-4.1", "found 'openai:gpt-4.1' (write `openai/gpt-4.1`)"),
        ("openai:chat:gpt-4.1", "(write `openai/gpt-4.1`)"),
        ("openai:sk-0123456789abcdef0123", "found another text"),
        ("gpt-4.1", "found 'gpt-4.1' (write `openai/gpt-4.1`)"),
    ):
        with pytest.raises(DataFormatError) as caught:
            project_with(tmp_path, text)
        (fault,) = caught.value.faults
        assert fault.startswith(f"{tmp_path}/promptgraft.yaml:6: models.task: ")
        assert why in fault
        assert "0123456789abcdef" not in fault
    with pytest.raises(ConfigError, match=r"\(write `ollama/llama3:8b`\)"):
        named_adapter("ollama:llama3:8b", "model")
    with pytest.raises(ConfigError, match="did you mean `ollama`"):
        named_adapter("olama/llama3", "model")


def test_the_schema_takes_the_same_names(tmp_path: Path) -> None:
    schema = jsonschema.Draft202012Validator(project_schema())
    for text in ("offline", "openai/gpt-4.1", "ollama/llama3:8b"):
        document = project_with(tmp_path, text).surroundings.file.document.value
        schema.validate(document)
        assert isinstance(document, dict)
        assert not schema.is_valid({**document, "models": {"task": "unknown/model"}})


# ---- what metrics return ----


class Prediction(dict[str, object]):
    """As DSPy has it: keys that are attributes too."""

    @property
    def score(self) -> object:
        return self["score"]

    @property
    def feedback(self) -> object:
        return self["feedback"]


@pytest.mark.parametrize(
    "outcome",
    [
        {"score": 0.5, "feedback": "half of it"},
        SimpleNamespace(score=0.5, feedback="half of it"),
        Prediction(score=0.5, feedback="half of it"),
        {"key": "near", "score": 0.5, "comment": "half of it"},  # of LangSmith
        SimpleNamespace(score=0.5, reason="half of it"),  # of deepeval
        (0.5, "half of it"),
    ],
)
def test_a_metric_returns_score_and_feedback_in_any_of_these_forms(outcome: object) -> None:
    judge: Callable[..., Any] = lambda case, answer: outcome  # noqa: E731
    verdict = verdict_of(metrics.python(function=judge), Case(id="a", input="x"), Answer(text="y"))
    assert (verdict.score, verdict.reason) == (0.5, "half of it")


@pytest.mark.parametrize(
    "outcome",
    [
        {"feedback": "no score"},
        {"score": 2},
        {"score": 1, "why": "another key"},
        SimpleNamespace(score="high", feedback=""),
        {},
        None,
    ],
)
def test_other_forms_are_named(outcome: object) -> None:
    judge: Callable[..., Any] = lambda case, answer: outcome  # noqa: E731
    with pytest.raises(FeedbackError, match="a mapping or an object with `score` and `feedback`"):
        verdict_of(metrics.python(function=judge), Case(id="a", input="x"), Answer(text="y"))


# ---- classes of metrics ----

TONE = """
import attrs
from promptgraft.evals.metrics.base import BaseMetric

@attrs.frozen(kw_only=True)
class Tone(BaseMetric):
    \"\"\"Attributes:
        words: words that an answer must have.
    \"\"\"
    kind = "tone"
    words: tuple[str, ...] = ()
    most: int = 10

    def assess(self, case, answer):
        return self.verdict(float(all(w in answer.text for w in self.words)), "looked at the words")

class Plain:
    pass
"""


def test_a_class_of_the_project_is_a_metric_with_its_fields_as_options(tmp_path: Path) -> None:
    (tmp_path / "score.py").write_text(TONE)
    written = (
        '{name: kind_words, kind: python, class: "score.py:Tone", words: [please], threshold: 0.5}'
    )
    (metric,) = project_with(tmp_path, "offline", written).metrics
    assert (metric.name, metric.threshold) == ("kind_words", 0.5)
    case = Case(id="a", input="x")
    assert verdict_of(metric, case, Answer(text="yes please")).passed
    assert not verdict_of(metric, case, Answer(text="yes")).passed


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ('class: "score.py:Tone", wrds: [a]', "wrds: unknown key (did you mean `words`?)"),
        ('class: "score.py:Tone", most: many', "most: expected an integer, found 'many'"),
        (
            'class: "score.py:Tonne"',
            "has no `Tonne` (did you mean `Tone`?); classes in it: BaseMetric, Tone",
        ),
        ('class: "score.py:Plain"', "to be an attrs class with `name`, `threshold` and `judge`"),
    ],
)
def test_a_fault_of_its_options_has_its_place(tmp_path: Path, options: str, why: str) -> None:
    (tmp_path / "score.py").write_text(TONE)
    with pytest.raises(DataFormatError) as caught:
        project_with(tmp_path, "offline", f"{{name: t, kind: python, {options}}}")
    assert any(why in fault and ":4: metrics[0]" in fault for fault in caught.value.faults), (
        caught.value.faults
    )


# ---- the size of a run ----


def test_auto_is_the_size_of_a_run_and_is_kept_for_its_resumption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project_with(tmp_path, "offline")
    choices = "---\noutput: {choices: [travel, cooking]}\n---\n"
    (tmp_path / "job.md").write_text(f"{choices}{PROMPT}")
    monkeypatch.chdir(tmp_path)
    assert run(["optimize", "--auto", "light", "--budget", "9"]) == 2
    assert "--auto: --budget already says how many test calls" in capsys.readouterr().err
    run(["optimize", "--auto", "medium"])
    (folder,) = (tmp_path / "runs").iterdir()
    assert json.loads((folder / "config.json").read_text())["options"]["budget"] == "medium"


def test_a_function_of_a_text_in_a_project_is_a_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "models.py").write_text("def ask(text):\n    return 'travel'\n", "utf-8")
    project_with(tmp_path, '{python: "models.py:ask"}')
    file = str(tmp_path / "promptgraft.yaml")
    assert run(["eval", "--project", file, "--split", "all", "--min-pass-rate", "1"]) == 0
    (tmp_path / "models.py").write_text("def ask(text, options): ...\n", "utf-8")
    assert run(["check", "--project", file]) == 2
    assert "it is a function that requires `text`, `options`" in capsys.readouterr().out
