"""Models that clouds host: who signs in how, what is asked, and what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from promptgraft import MarkdownSection, Prompt, PromptTemplate, Session, Usage
from promptgraft.adapters.base import ModelCalled, evaluated
from promptgraft.adapters.calling.adapter import ModelAdapter
from promptgraft.adapters.hosted import (
    HTTP_ADAPTERS,
    AzureOpenAIAdapter,
    BedrockAdapter,
    GeminiAdapter,
    VertexAdapter,
)
from promptgraft.adapters.named import HOSTED, named_adapter
from promptgraft.errors import ConfigError
from promptgraft.project import load_project
from servers.behaviour import says
from servers.hosted import AzureChat, AzureResponses, BedrockMessages
from servers.loopback import LoopbackServer

VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_BEARER_TOKEN_BEDROCK",
    "AWS_DEFAULT_REGION",
    "AWS_REGION",
    "AZURE_OPENAI_API_KEY",
    "AZURE_OPENAI_ENDPOINT",
    "CLOUD_ML_REGION",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
)
CLAUDE = "anthropic.claude-sonnet-4-5-20250929-v1:0"


@pytest.fixture(autouse=True)
def _no_accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def prompt() -> Prompt[object]:
    section = MarkdownSection(title="Task", key="task", template="Say it.")
    return Prompt(PromptTemplate[object](ns="tests", key="hosted", sections=(section,)))


@pytest.fixture
def azure() -> Iterator[LoopbackServer]:
    server = LoopbackServer(AzureChat(), brain=says("it"), key="azure-key-1", models=("mini",))
    with server:
        yield server


def test_project_files_know_the_name_of_every_provider() -> None:
    assert tuple(HTTP_ADAPTERS) == HOSTED


def test_azure_is_known_by_its_variables(
    azure: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", azure.base_url)
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "azure-key-1")
    session = Session()
    assert evaluated(named_adapter("azure/mini", "model"), prompt(), session=session).text == "it"
    [call] = session.select_all(ModelCalled)
    assert (call.model, call.fault, call.usage.output_tokens) == ("mini", "", 1)


@pytest.mark.parametrize("path", ["/openai/v1", "/openai/deployments/mini"])
def test_the_endpoint_of_azure_has_no_path_of_openai(path: str) -> None:
    address = f"https://name.openai.azure.com{path}/"
    with pytest.raises(ConfigError, match=r"base_url: leave out `/openai/.*and what follows"):
        AzureOpenAIAdapter("mini", base_url=address, api_key="azure-key-1")
    AzureOpenAIAdapter("mini", base_url="https://h/openai", api_key="azure-key-1")


def test_azure_speaks_responses_where_it_is_asked_to() -> None:
    provider = AzureResponses()
    with LoopbackServer(provider, brain=says("it"), key="azure-key-1", models=("mini",)) as server:
        adapter = AzureOpenAIAdapter(
            "mini",
            api="responses",
            api_key="azure-key-1",
            base_url=server.base_url,
            api_version="2025-04-01-preview",
        )
        assert evaluated(adapter, prompt(), session=Session()).text == "it"
        assert server.counts.refused == ()


def test_a_provider_without_responses_says_so() -> None:
    with pytest.raises(ConfigError) as caught:
        GeminiAdapter("gemini-3-flash", api="responses", api_key="none")
    assert str(caught.value) == ("GeminiAdapter: api: expected `auto` or `chat`, found 'responses'")


def test_a_project_names_a_host_with_its_options(azure: LoopbackServer, tmp_path: Path) -> None:
    (tmp_path / "prompts.py").write_text(
        "from promptgraft import MarkdownSection, PromptTemplate\n"
        "SECTION = MarkdownSection(title='Task', key='task', template='Say $q.')\n"
        "TASK = PromptTemplate(ns='tests', key='task', sections=(SECTION,))\n"
    )
    cases = "".join(f'{{"id": "{n}", "input": "q{n}", "expected": "it"}}\n' for n in range(20))
    (tmp_path / "cases.jsonl").write_text(cases)
    (tmp_path / "promptgraft.yaml").write_text(
        "version: 1\nprompts: {task: 'prompts.py:TASK'}\ndataset: {path: cases.jsonl}\n"
        "metrics: [{name: exact}]\nmodels:\n  task:\n    provider: azure\n    model: mini\n"
        f"    base_url: {azure.base_url}\n    api_key: ${{HOSTED_KEY}}\n"
        "    api_version: 2025-03-01\n    prices: {input: 1, output: 2}\n"
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("HOSTED_KEY", "azure-key-1")
        adapter = load_project(tmp_path / "promptgraft.yaml").adapter()
        assert evaluated(adapter, prompt(), session=Session()).text == "it"


def test_bedrock_signs_with_the_account_of_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("botocore", reason="botocore is not installed")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDLOOPBACK")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-0123456789")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    server = LoopbackServer(
        BedrockMessages(), brain=says("it"), key="AKIDLOOPBACK eu-central-1", models=(CLAUDE,)
    )
    with server:
        adapter = BedrockAdapter(CLAUDE, base_url=server.base_url)
        assert evaluated(adapter, prompt(), session=Session()).text == "it"
        assert server.counts.refused == ()


def test_prices_are_those_of_the_host() -> None:
    million = Usage(input_tokens=1_000_000)
    gemini = GeminiAdapter("gemini-2.5-flash", api_key="k")
    assert gemini.price_of(million) == Decimal("0.3")
    assert "host=generativelanguage.googleapis.com" in gemini.identity
    azure = AzureOpenAIAdapter("gpt-4.1-mini", api_key="k", base_url="https://a.example")
    assert azure.price_of(million) == Decimal("0.4")


@pytest.mark.parametrize(
    ("kind", "options", "needs", "said"),
    [
        (
            AzureOpenAIAdapter,
            {"api_key": "k"},
            "openai",
            "AzureOpenAIAdapter: there is no address; set AZURE_OPENAI_ENDPOINT, or give base_url=",
        ),
        (
            AzureOpenAIAdapter,
            {"base_url": "https://a.example"},
            "openai",
            (
                "AzureOpenAIAdapter: there is no API key; set AZURE_OPENAI_API_KEY, or give "
                "api_key= (any text for a server that needs none)"
            ),
        ),
        (
            BedrockAdapter,
            {},
            "botocore",
            "BedrockAdapter: there is no region; set AWS_REGION, or give region=",
        ),
        (
            VertexAdapter,
            {},
            "google.auth",
            "VertexAdapter: there is no region; set CLOUD_ML_REGION, or give region=",
        ),
    ],
)
def test_what_is_missing_is_said_before_the_first_call(
    kind: type[ModelAdapter], options: dict[str, Any], needs: str, said: str
) -> None:
    pytest.importorskip(needs)
    with pytest.raises(ConfigError) as caught:
        kind("some-model", **options)
    assert str(caught.value) == said


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "botocore" else real(name)
    )
    with pytest.raises(ConfigError) as caught:
        BedrockAdapter(CLAUDE, region="eu-central-1")
    assert str(caught.value) == (
        "BedrockAdapter needs the package `botocore`; run: pip install 'promptgraft[bedrock]'"
    )
