"""The usual variable of a provider is sent to no host that only the project file names."""

from __future__ import annotations

from pathlib import Path

import pytest

from promptgraft.project.checking import check_project

PROJECT = """\
version: 1
prompts: {sort: sort.md}
dataset: {path: cases.jsonl}
metrics: [{name: exact}]
models: {task: MODEL, reflection: {provider: offline}}
"""
FOREIGN = "https://models.example.net/v1"


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
    model: str, is_refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-this-is-a-secret-0123456789")
    monkeypatch.setenv("AN_ADDRESS", FOREIGN)
    (tmp_path / "sort.md").write_text("# Rules\n\nAnswer $text.\n")
    rows = "".join(f'{{"input": "{n}", "expected": "a"}}\n' for n in range(40))
    (tmp_path / "cases.jsonl").write_text(rows)
    (tmp_path / "promptgraft.yaml").write_text(PROJECT.replace("MODEL", model))
    faults = check_project(tmp_path / "promptgraft.yaml").faults
    told = [fault for fault in faults if "OPENAI_API_KEY is sent to openai.com only" in fault]
    assert bool(told) == is_refused, faults
    assert is_refused or not faults
    assert "sk-this" not in str(faults)
