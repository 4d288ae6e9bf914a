"""The usual variable of a provider is sent to no host that only the project file names."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from promptgraft.project.checking import check_project, check_without_code

PROJECT = """\
version: 1
prompts: {sort: sort.md}
dataset: {path: cases.jsonl}
metrics: [{name: exact}]
models: {task: MODEL, reflection: {provider: offline}}
"""
FOREIGN = "https://models.example.net/v1"


KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GROQ_API_KEY")


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Write a project with a model and further lines, and set keys that must not be shown."""
    for name in KEYS:
        monkeypatch.setenv(name, "sk-this-is-a-secret-0123456789")
    monkeypatch.setenv("AN_ADDRESS", FOREIGN)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    (tmp_path / "sort.md").write_text("# Rules\n\nAnswer $text.\n")
    rows = "".join(f'{{"input": "{n}", "expected": "a"}}\n' for n in range(40))
    (tmp_path / "cases.jsonl").write_text(rows)

    def write(model: str, lines: str = "") -> Path:
        path = tmp_path / "promptgraft.yaml"
        path.write_text(PROJECT.replace("MODEL", model) + lines)
        return path

    return write


OPENAI = "provider: openai, model: m"
ANTHROPIC = "provider: anthropic, model: m"
OF_OPENAI = "api_key: '${OPENAI_API_KEY}'"
SECRET = "models.task.{}: expected no secret, found `${{{}}}`, which is one by its name; secrets"
OTHER = "expected the key of {}, found `${{OPENAI_API_KEY}}`, that of openai; name the host that"


@pytest.mark.parametrize(
    ("model", "fault"),
    [
        ("{provider: openai, model: '${OPENAI_API_KEY}'}", SECRET.format("model", KEYS[0])),
        ("{provider: openai, model: 'm-${my_token}'}", SECRET.format("model", "my_token")),
        ("{provider: litellm, model: '${A_PASSWORD}'}", SECRET.format("model", "A_PASSWORD")),
        ("{provider: ollama, model: '${KEY_2}'}", SECRET.format("model", "KEY_2")),
        (
            "{provider: bedrock, model: '${AWS_BEARER_TOKEN_BEDROCK}'}",
            SECRET.format("model", "AWS_BEARER_TOKEN_BEDROCK"),
        ),
        (
            f"{{{OPENAI}, base_url: 'https://e.org/${{X_SECRET}}'}}",
            "models.task.base_url: expected no",
        ),
        (f"{{{ANTHROPIC}, {OF_OPENAI}}}", f"models.task.api_key: {OTHER.format('anthropic')}"),
        (f"{{provider: groq, model: m, {OF_OPENAI}}}", OTHER.format("groq")),
        (f"{{provider: ollama, model: m, {OF_OPENAI}}}", OTHER.format("ollama")),
        (f"{{provider: litellm, model: groq/m, {OF_OPENAI}}}", OTHER.format("groq")),
        (
            f"{{{ANTHROPIC}, {OF_OPENAI}, base_url: '${{AN_ADDRESS}}'}}",
            OTHER.format("anthropic"),
        ),
        (
            f"{{{OPENAI}, headers: {{A: '${{OPENAI_API_KEY}}'}}, base_url: '${{AN_ADDRESS}}'}}",
            "models.task.headers.A: " + OTHER.format("openai"),
        ),
        (
            f"{{{ANTHROPIC}, headers: {{X: '${{OPENAI_API_KEY}}'}}}}",
            "models.task.headers.X: expect",
        ),
    ],
)
def test_a_key_that_would_go_astray_is_refused(
    model: str, fault: str, written: Callable[..., Path]
) -> None:
    faults = check_project(written(model)).faults
    assert len(faults) == 1, faults
    assert faults[0].startswith(f"{written(model)}:5: ")
    assert fault in faults[0]
    assert "sk-this" not in faults[0]


@pytest.mark.parametrize(
    "model",
    [
        "{provider: openai, model: '${MODEL_NAME}', base_url: 'http://h/${MONTH}'}",
        f"{{{OPENAI}, {OF_OPENAI}}}",
        f"{{{OPENAI}, {OF_OPENAI}, base_url: '${{AN_ADDRESS}}'}}",
        f"{{{OPENAI}, headers: {{Authorization: 'Bearer ${{OPENAI_API_KEY}}'}}}}",
        f"{{{OPENAI}, api_key: '${{GROQ_API_KEY}}', base_url: '{FOREIGN}'}}",
        f"{{{ANTHROPIC}, {OF_OPENAI}, base_url: '{FOREIGN}'}}",
        "{provider: groq, model: m, api_key: '${GROQ_API_KEY}'}",
        "{provider: litellm, model: groq/m, api_key: '${GROQ_API_KEY}'}",
        f"{{{ANTHROPIC}, api_key: '${{MY_KEY}}'}}",
    ],
)
def test_a_key_goes_where_the_file_names_a_host(model: str, written: Callable[..., Path]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MODEL_NAME", "MONTH", "MY_KEY"):
            patch.setenv(name, "some-text")
        patch.setitem(sys.modules, "litellm", None)  # 2 s to import, and no matter of keys
        faults = check_project(written(model)).faults
    assert not any("expected no secret" in fault or "the key of" in fault for fault in faults)


def test_no_database_gets_the_key_of_a_provider(written: Callable[..., Path]) -> None:
    path = written("offline", "store: {url: 'postgresql://u:${OPENAI_API_KEY}@h/x'}\n")
    [fault] = check_project(path).faults
    assert fault.startswith(
        f"{path}:6: store.url: expected the address of a database, found `${{OP"
    )


def test_a_check_without_code_lists_where_each_variable_goes(
    written: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    judges = (
        f"{{a: {{provider: groq, model: m}}, b: {{{OPENAI}, {OF_OPENAI}, base_url: '{FOREIGN}'}}, "
        "c: {provider: anthropic, model: m, headers: {X: '${X_HEADER}'}}, "
        "d: {provider: openai, model: '${A_NAME}', base_url: '${AN_ADDRESS}', api_key: none}}"
    )
    path = written(f"{{python: 'a.py:F'}}, judges: {judges}", "store: {url: '${A_STORE}'}\n")
    (path.parent / "a.py").write_text("")
    sent = check_without_code(path).sent
    at = f"{path}:5: models.judges"
    assert sent == (
        f"{at}.a.api_key: GROQ_API_KEY goes to api.groq.com",
        f"{at}.b.api_key: OPENAI_API_KEY goes to models.example.net",
        f"{at}.c.headers.X: X_HEADER goes to anthropic.com",
        f"{at}.c: ANTHROPIC_API_KEY goes to anthropic.com",
        f"{at}.d.model: A_NAME goes to the host in AN_ADDRESS",
        f"{at}.d.base_url: AN_ADDRESS goes to the host in AN_ADDRESS",
        f"{path}:6: store.url: A_STORE goes to the database that it names",
    )
    monkeypatch.setenv("OPENAI_BASE_URL", "https://user:pass-word@proxy.example.net/v1")
    [line] = check_without_code(written("openai/m")).sent
    assert line.endswith("OPENAI_API_KEY goes to proxy.example.net, from OPENAI_BASE_URL")


@pytest.mark.parametrize(
    ("agent", "recipient"),
    [
        ("{command: [sh, '{query}', '{texts.s}'], env: {A_NAME: '${A_NAME}'}}", "the command `sh`"),
        ("{command: [sh, '{query}', '{texts.s}'], env: {only: [A_NAME]}}", "the command `sh`"),
        (
            "{http: {url: 'https://h.example.net/x', json: {q: '{query}{texts.s}${A_NAME}'}}}",
            "h.example.net",
        ),
    ],
)
def test_variables_of_agents_are_listed_too(
    agent: str, recipient: str, written: Callable[..., Path]
) -> None:
    path = written("offline")
    text = (
        path.read_text()
        .replace("task: offline, ", "")
        .replace("sort: sort.md", "sort: {files: {s: sort.md}}")
    )
    path.write_text(f"{text}agent: {agent}\n")
    checked = check_without_code(path)
    assert checked.faults == ()
    assert checked.sent == (f"{path}:6: agent: A_NAME goes to {recipient}",)


@pytest.mark.parametrize(
    ("model", "is_refused"),
    [
        (f"{{provider: openai, model: m, base_url: '{FOREIGN}'}}", True),
        ("{provider: openai, model: m, base_url: 'http://127.0.0.1:9/v1'}", True),
        ("{provider: openai, model: m, base_url: 'https://openai.com.example.net/v1'}", True),
        ("{provider: openai, model: m, base_url: 'https://notopenai.com/v1'}", True),
        ("{provider: openai, model: m, base_url: '${AN_ADDRESS}'}", True),
        ("{provider: openai, model: m, base_url: 'https://eu.api.openai.com/v1'}", False),
        ("{provider: openai, model: m}", False),
        (
            f"{{provider: openai, model: m, api_key: '${{OPENAI_API_KEY}}', base_url: {FOREIGN}}}",
            False,
        ),
        (f"{{provider: openai, model: m, base_url: '{FOREIGN}', api_key: none}}", False),
        ("{provider: ollama, model: m}", False),
    ],
)
def test_a_key_goes_to_its_provider_or_where_the_file_says(
    model: str, is_refused: bool, written: Callable[..., Path]
) -> None:
    faults = check_project(written(model)).faults
    told = [fault for fault in faults if "OPENAI_API_KEY is sent to openai.com only" in fault]
    assert bool(told) == is_refused, faults
    assert is_refused or not faults
    assert "sk-this" not in str(faults)
