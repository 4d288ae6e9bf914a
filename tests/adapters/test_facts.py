"""Facts about models are those of the installed SDKs, and nothing names a model that ends soon."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import get_args, get_type_hints

import genai_prices
import pytest
from anthropic._data import DEPRECATED_MODELS
from anthropic.types import model as anthropic_models
from anthropic.types.output_config_param import OutputConfigParam
from openai.types.shared import chat_model, reasoning_effort

from promptgraft import AnthropicAdapter, OpenAIAdapter
from promptgraft.adapters.abilities import NEAR
from promptgraft.adapters.facts import current_of, end_of, facts_of
from promptgraft.adapters.hosted import AzureOpenAIAdapter
from promptgraft.errors import ConfigError

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/**/*", "specs/**/*", "examples/**/*", "src/**/*")
TEXTS = {".md", ".txt", ".py", ".yaml", ".yml", ".json", ".baml", ".toml", ".ipynb"}
TABLE = ROOT / "src" / "promptgraft" / "adapters" / "models.toml"
_DAY = re.compile(r"(\w+) (\d+)\w\w, (\d{4})")


def openai_docstring() -> str:
    """Return what the SDK says about its list of models."""
    docstring = ast.parse(inspect.getsource(chat_model)).body[-1]
    assert isinstance(docstring, ast.Expr)
    return str(ast.literal_eval(docstring.value))


def openai_ends(text: str) -> dict[str, date]:
    """Return the announced ends by model, of a docstring as OpenAI writes them."""
    ends = dict[str, date]()
    for paragraph in re.split(r"\n- ", text):
        found = re.search(r"shutdown\s+date:\s+(\S+?)\.\s", paragraph)
        names = re.findall(r'"([^"]+)"', paragraph) if found else []
        ends.update((name, date.fromisoformat(found[1])) for name in names if found)
    return ends


def anthropic_ends(table: Mapping[str, str]) -> dict[str, date]:
    """Return the announced ends by model, of a table as Anthropic writes it."""
    ends = dict[str, date]()
    for model, day in table.items():
        found = _DAY.fullmatch(day)
        assert found is not None, day
        ends[model] = (
            datetime.strptime(" ".join(found.groups()), "%B %d %Y").replace(tzinfo=UTC).date()
        )
    return ends


ENDS: Mapping[str, Mapping[str, date]] = {
    "openai": openai_ends(openai_docstring()),
    "anthropic": anthropic_ends(DEPRECATED_MODELS),
}
MODELS = {
    "openai": get_args(chat_model.ChatModel),
    "anthropic": get_args(get_args(anthropic_models.Model)[0]),
}


def test_the_tables_of_the_sdks_are_read() -> None:
    """SDKs drop the rows of models that have ended: no row can be expected in an installed one."""
    assert len(ENDS["openai"]) > openai_docstring().count("shutdown") > 0
    paragraph = '- "a-1", "a-1-mini": Announced shutdown\n  date: 2026-12-11. See the page.\n- "b".'
    assert openai_ends(f"Models:\n{paragraph}") == dict.fromkeys(
        ["a-1", "a-1-mini"], date(2026, 12, 11)
    )
    assert anthropic_ends({"a-1": "January 22nd, 2027"}) == {"a-1": date(2027, 1, 22)}


@pytest.mark.parametrize("provider", ENDS)
def test_every_end_that_an_sdk_announces_is_known(provider: str) -> None:
    for model in MODELS[provider]:
        end = end_of(provider, model)
        assert (end and end.day) == ENDS[provider].get(model), model


@pytest.mark.parametrize("provider", ENDS)
def test_a_model_that_ends_has_a_current_one_with_a_price(provider: str) -> None:
    for model in ENDS[provider]:
        current = current_of(provider, model)
        if not model.startswith(("gpt-audio", "codex")):
            assert current is not None
            assert current in MODELS[provider]
            assert current not in ENDS[provider]
            usage = genai_prices.Usage(input_tokens=1, output_tokens=1)
            assert genai_prices.calc_price(usage, current, provider_id=provider).total_price > 0


def test_nothing_names_a_model_that_ends_soon() -> None:
    today = datetime.now(UTC).date()
    tables = tomllib.loads(TABLE.read_text("utf-8"))
    ending = {
        model
        for provider in ENDS
        for end in tables[provider]["ends"]
        for model in end["names"]
        if end["date"] - today <= timedelta(days=NEAR)
    }
    named = "|".join(re.escape(model) for model in sorted(ending, key=len, reverse=True))
    ending_name = re.compile(rf"(?<![\w.-])(?:{named})(?![\w-]|\.\d)")
    assert ending_name.search("openai/gpt-5-mini, as")
    files = (path for page in PAGES for path in ROOT.glob(page) if path.suffix in TEXTS)
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]}"
        for path in files
        if path != TABLE
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        for match in ending_name.finditer(line)
    ]
    assert found == []


def test_the_efforts_are_those_of_the_sdks() -> None:
    openai, anthropic = facts_of("openai", "gpt-6-sol"), facts_of("anthropic", "claude-sonnet-5-5")
    assert openai is not None
    assert anthropic is not None
    [literal, _] = get_args(reasoning_effort.ReasoningEffort)
    assert openai.efforts == get_args(literal)
    [allowed, _] = get_args(get_type_hints(OutputConfigParam)["effort"])
    assert anthropic.efforts == get_args(allowed)


def test_an_effort_that_nobody_knows_is_refused() -> None:
    message = r"OpenAIAdapter: effort: expected one of none, minimal, .*, found 'hgih'"
    with pytest.raises(ConfigError, match=message):
        OpenAIAdapter("gpt-6-luna", api_key="none", effort="hgih")
    assert OpenAIAdapter("own-model", api_key="none", effort="hgih").effort == "hgih"


@pytest.mark.parametrize(
    ("model", "effort", "thinking", "assumed"),
    [
        ("gpt-4.1", None, 0, False),
        ("gpt-5", None, 500, False),
        ("gpt-5.1", None, 500, True),
        ("gpt-5.1", "none", 0, False),
        ("gpt-5.2-chat-latest", None, 0, False),
        ("gpt-5.5", None, 500, False),
        ("gpt-5.5", "high", 1500, False),
        ("gpt-6.2-sol", None, 500, False),
        ("o4-mini", "low", 200, False),
        ("ft:gpt-4o-mini:org::id", None, 0, False),
        ("own-model", None, 500, True),
    ],
)
def test_models_that_think_are_expected_to(
    model: str, effort: str | None, thinking: int, assumed: bool
) -> None:
    adapter = OpenAIAdapter(model, api_key="none", effort=effort)
    assert (adapter.thinking, adapter.is_thinking_assumed) == (thinking, assumed)


@pytest.mark.parametrize(
    ("model", "body", "thinking", "assumed"),
    [
        ("claude-sonnet-4-6", {}, 0, False),
        ("claude-sonnet-4-6", {"type": "enabled", "budget_tokens": 2000}, 500, False),
        ("claude-sonnet-5-5", {}, 500, True),
        ("claude-sonnet-5-5", {"type": "disabled"}, 0, False),
    ],
)
def test_claude_thinks_as_the_request_says(
    model: str, body: dict[str, object], thinking: int, assumed: bool
) -> None:
    extra = {"thinking": body} if body else {}
    adapter = AnthropicAdapter(model, api_key="none", extra_body=extra)
    assert (adapter.thinking, adapter.is_thinking_assumed) == (thinking, assumed)


def test_an_end_is_near_sixty_days_before_it() -> None:
    end = OpenAIAdapter("gpt-5-mini", api_key="none").end
    assert end is not None
    assert not end.is_near(date(2026, 10, 11))
    assert end.is_near(date(2026, 10, 12))
    assert end.line(date(2026, 12, 11)) == (
        "model `gpt-5-mini` ends on 11 December 2026; move to a current one such as `gpt-6-luna` "
        "(see https://developers.openai.com/api/docs/deprecations)"
    )
    assert end.is_near(date(2027, 12, 11))
    assert " has ended on 11 December 2026; " in end.line(date(2026, 12, 12))


def test_clouds_end_models_at_times_of_their_own() -> None:
    azure = AzureOpenAIAdapter("gpt-5", api_key="none", base_url="https://a.example.com")
    assert azure.end is None
    assert OpenAIAdapter("gpt-6-luna", api_key="none").end is None
