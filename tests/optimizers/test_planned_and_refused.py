"""A plan refuses what ``optimize`` refuses to start; names of the common specification."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

import promptgraft
import promptgraft.algorithms.gepa
from optimizers.worlds import PROMPT, config, judge, twins
from promptgraft import (
    FileJournal,
    GepaConfig,
    GepaOptimizer,
    InMemoryPromptOverridesStore,
    MemoryJournal,
    OfflineAdapter,
    OptimizationContext,
    ScriptedAdapter,
)
from promptgraft.errors import PromptgraftError


def context(adapter: Any = None, **fields: Any) -> OptimizationContext:
    scripted = ScriptedAdapter(lambda rendered: "no", identity="scripted")
    return OptimizationContext(adapter or scripted, **fields)


def journal_of_another_run() -> MemoryJournal:
    journal = MemoryJournal()
    journal.begin({"seed": 5})
    return journal


class OldStore(InMemoryPromptOverridesStore):
    """A store of a user without the methods that write."""

    upsert = None  # type: ignore[assignment]
    upsert_all = None  # type: ignore[assignment]


# What cannot start: the context and the settings.
REFUSED: dict[str, Callable[[], tuple[OptimizationContext, GepaConfig]]] = {
    "model": lambda: (context(OfflineAdapter()), config()),
    "journal": lambda: (context(journal=journal_of_another_run()), config()),
    "store": lambda: (context(overrides_store=OldStore()), config()),
    "overlap": lambda: (context(), config(held_out=[attrs.evolve(twins(6)[0], id="other")])),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_optimize_refuses_to_start_is_not_planned(what: str) -> None:
    messages = []
    for start in (GepaOptimizer.plan, GepaOptimizer.optimize):
        made, settings = REFUSED[what]()
        with pytest.raises(PromptgraftError) as refused:
            start(GepaOptimizer(made, settings), PROMPT)
        messages.append(str(refused.value))
        assert getattr(made.adapter, "calls", 0) == 0
    assert messages[0] == messages[1]


def test_a_plan_leaves_the_journal_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with FileJournal(path) as journal:
        optimizer = GepaOptimizer(context(journal=journal), config())
        assert optimizer.plan(PROMPT).rollouts > 0
        assert path.read_bytes() == b""
        optimizer.optimize(PROMPT)
        kept = path.read_bytes()
        assert optimizer.plan(PROMPT).rollouts > 0
        assert path.read_bytes() == kept


@pytest.mark.parametrize("package", [promptgraft, promptgraft.algorithms.gepa])
def test_names_of_the_common_specification_lead_to_ours(package: Any) -> None:
    with pytest.raises(ImportError, match=r"has no `ExampleModule`: name examples as `target_tool"):
        _ = package.ExampleModule
    assert "ExampleModule" not in dir(package)
    with pytest.raises(ImportError, match="target_task_examples"):
        exec(f"from {package.__name__} import ExampleModule")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("escape_dollar_signs", "is not needed: in a new"),
        ("d_feedback", "is what remains of `training_examples` after the first `pareto_set_size`"),
        ("d_pareto", "is the first `pareto_set_size` of `training_examples`"),
        ("optimizer_config", "is an argument of GepaOptimizer"),
    ],
)
def test_a_setting_of_the_common_specification_is_refused_with_the_reason(
    name: str, reason: str
) -> None:
    with pytest.raises(PromptgraftError, match=f"`{name}` {reason}"):
        GepaConfig(**{name: True})  # type: ignore[arg-type]


def test_an_optimizer_takes_no_further_settings() -> None:
    optimizer = GepaOptimizer(context(), config(feedback_fn=judge), optimizer_config=None)
    assert optimizer.plan(PROMPT).rollouts > 0
    with pytest.raises(PromptgraftError, match="optimizer_config: expected None, found 5"):
        GepaOptimizer(context(), config(), optimizer_config=5)  # type: ignore[arg-type]
