"""A search in one call is the search of `GepaOptimizer`, and refuses what that cannot use."""

from __future__ import annotations

import asyncio
import re
from enum import StrEnum
from pathlib import Path
from typing import Any

import attrs
import pytest

import promptgraft as pg
from programs import Programs
from promptgraft.evals import metrics
from promptgraft.journal import MemoryJournal

EXAMPLE = Path(__file__).parents[2] / "examples" / "one_call"
FRUITS = ("ripe pear", "sweet plum", "ripe fig", "sweet peach", "ripe mango", "sweet grape")
TOOLS = ("steel saw", "sharp chisel", "steel file", "sharp axe", "steel drill", "sharp knife")


class Kind(StrEnum):
    FRUIT = "fruit"
    TOOL = "tool"


TEMPLATE = pg.PromptTemplate[object](
    ns="one",
    key="call",
    output_type=Kind,
    sections=(
        pg.MarkdownSection(title="Kinds", key="kinds", template="- fruit: apple\n- tool: hammer"),
        pg.MarkdownSection(title="Item", key="item", template="$item", overridable=False),
    ),
)
CASES = pg.Dataset.of(
    {"input": item, "expected": kind}
    for kind, items in (("fruit", FRUITS), ("tool", TOOLS))
    for item in items
)
SPLITS = pg.Splits.by_ratio(CASES, train=0.5, validation=0.25, test=0.25)
EXACT = [metrics.exact()]


def by_hand(**context: Any) -> pg.GepaResult:
    """Return what the parts of the call give when they are put together one by one."""
    made = {
        name: pg.examples_from(pg.Prompt(TEMPLATE), part, EXACT)
        for name, part in SPLITS.parts().items()
    }
    config = pg.GepaConfig(
        rollout_budget=60,
        pareto_set_size=3,
        training_examples=(*made["validation"], *made["train"]),
        data=pg.Data(held_out=made["test"]),
        feedback_fn=pg.feedback_from(EXACT),
        seed=3,
    )
    optimizer = pg.GepaOptimizer(pg.OptimizationContext(pg.OfflineAdapter(), **context), config)
    return optimizer.optimize(pg.Prompt(TEMPLATE))


def bare(result: pg.GepaResult) -> pg.GepaResult:
    """Return a result without the seconds that it took."""
    return attrs.evolve(result, ledger=())


def test_one_call_does_what_its_parts_do_plain_and_async() -> None:
    wanted = by_hand()
    assert wanted.found_better
    options: pg.OptimizeOptions = {"rollout_budget": 60, "seed": 3}
    found = pg.optimize(TEMPLATE, SPLITS, EXACT, model="offline", **options)
    assert bare(found) == bare(wanted)
    alone: pg.OptimizeOptions = {**options, "workers": 1}
    later = pg.aoptimize(pg.Prompt(TEMPLATE), SPLITS, EXACT, model=pg.OfflineAdapter(), **alone)
    assert bare(asyncio.run(later)) == bare(wanted)


def test_store_tag_and_journal_are_those_of_the_context() -> None:
    store, journal = pg.InMemoryPromptOverridesStore(), MemoryJournal()
    counting = pg.ScriptedAdapter(lambda _: "fruit", identity="counting")

    def run() -> pg.GepaResult:
        return pg.optimize(
            TEMPLATE,
            SPLITS,
            EXACT,
            model=counting,
            reflection_model="offline",
            rollout_budget=60,
            target_section_paths=[("kinds",)],
            limits=pg.Limits(max_idle_steps=1),
            overrides_store=store,
            overrides_tag="fresh",
            journal=journal,
        )

    first, calls = run(), counting.calls
    assert (first.tag, first.improved) == ("fresh", False)
    assert 0 < calls == first.total_rollouts
    assert bare(run()) == bare(first)
    assert counting.calls == calls

    improved = pg.optimize(
        TEMPLATE,
        SPLITS,
        EXACT,
        model="offline",
        overrides_store=store,
        overrides_tag="fresh",
        keep_anyway=True,
    )
    assert (improved.verdict, improved.persisted) == ("better on validation only", True)
    assert store.resolve(TEMPLATE.descriptor, "fresh") == improved.best_override


WRONG: tuple[tuple[dict[str, object], str], ...] = (
    ({"prompt": "Be brief."}, "template: expected a PromptTemplate, found 'Be brief.'"),
    ({"splits": CASES}, "splits: expected Splits, found "),
    ({"metrics": EXACT[0]}, "metrics: expected a list of metrics, found Exact("),
    ({"metrics": []}, "metrics: expected at least one metric, found none"),
    ({"metrics": [metrics.exact]}, "metrics: expected metrics such as metrics.exact(), found <cl"),
    ({"metrics": [len]}, "metrics.python(function=f) makes one of a function"),
    ({"model": "ofline"}, "found 'ofline' (did you mean `offline`?)"),
    ({"model": "offline/3"}, "model: expected `offline`, `PROVIDER/MODEL` or an adapter"),
    ({"model": "openai"}, "or an adapter, found 'openai'"),
    ({"model": "openai/gpt-5-mini"}, "OpenAIAdapter: there is no API key; set OPENAI_API_KEY"),
    ({"model": None}, "model: expected an adapter, found None"),
    ({"reflection_model": "gpt"}, "reflection_model: expected `offline`"),
    ({"workers": 0}, "workers: expected an integer of at least 1, found 0"),
    ({"rollout_budget": 5}, "rollout_budget: expected at least"),
    ({"sed": 1}, "optimize: there is no option `sed` (did you mean `seed`?)"),
    ({"target_section_paths": [("kind",)]}, "has no section `kind` (did you mean `kinds`?)"),
)


@pytest.mark.parametrize(("changes", "said"), WRONG, ids=lambda case: str(case)[:40])
def test_what_the_call_cannot_use_is_one_line(
    changes: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    given: dict[str, Any] = {
        "prompt": TEMPLATE,
        "splits": SPLITS,
        "metrics": EXACT,
        "model": "offline",
    }
    with pytest.raises(pg.PromptgraftError) as caught:
        pg.optimize(**{**given, **changes})
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_example_prints_what_its_page_shows(tmp_path: Path, programs: Programs) -> None:
    done = programs("-W", "error", EXAMPLE / "one_call.py", folder=tmp_path)
    page = (EXAMPLE / "README.md").read_text("utf-8")
    (shown,) = re.findall(r"^```text\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", shown)
    assert list(tmp_path.iterdir()) == []
