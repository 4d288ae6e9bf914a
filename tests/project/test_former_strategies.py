"""Settings of the strategy that are additions today are read from project files as before."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from promptgraft import Strategy
from promptgraft.algorithms.gepa import Blame, History, Lines, Shorten, WholePrompt
from promptgraft.errors import ConfigError
from promptgraft.ground.strict.nodes import Source
from promptgraft.project.format_search import OPTIMIZER


def read(optimizer: dict[str, Any]) -> tuple[Any, tuple[str, ...]]:
    """Return the settings of a search as a file has them, and the faults."""
    source = Source.of({"optimizer": optimizer}, "promptgraft.yaml")
    found = OPTIMIZER.read(source.root.member("optimizer"))
    return found and found.settings, source.faults


@pytest.mark.parametrize(
    ("strategy", "additions"),
    [
        ({"whole_prompt": 0}, (Blame(), Shorten())),
        (
            {"shorten_margin": "off", "history_top_k": 3},
            (Lines(), WholePrompt(), Blame(), History(most=3)),
        ),
        ({"preset": "paper", "module_choice": "blamed"}, (Blame(),)),
        ({"module_choice": "all", "shorten_margin": 0.05}, (Shorten(margin=0.05),)),
    ],
)
def test_a_former_strategy_is_read_as_additions_with_a_warning(
    strategy: dict[str, Any], additions: tuple[object, ...], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "promptgraft"):
        settings, faults = read({"strategy": strategy})
    assert faults == ()
    assert settings["additions"] == additions
    [first, *_] = caplog.messages
    assert first.startswith("promptgraft.yaml: optimizer: strategy.")
    assert "additions do this today" in first


def test_the_settings_of_today_are_read_without_one(caplog: pytest.LogCaptureFixture) -> None:
    settings, faults = read({"strategy": {"preset": "paper"}, "additions": ["blame"]})
    assert (faults, settings["additions"], caplog.messages) == ((), (Blame(),), [])


def test_a_wrong_former_setting_is_refused() -> None:
    assert (
        "shorten.margin: expected a number from 0 to 1"
        in read({"strategy": {"shorten_margin": 7}})[1][0]
    )


@pytest.mark.parametrize("name", ["whole_prompt", "shorten_margin", "history_top_k"])
def test_python_says_what_became_of_them(name: str) -> None:
    former: dict[str, Any] = {name: 0}
    with pytest.raises(ConfigError, match=f"Strategy: `{name}` is an addition today"):
        Strategy(**former)
