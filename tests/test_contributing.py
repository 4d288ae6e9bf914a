"""What the page on parts of one's own adds, used end to end."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import pytest
from click import Context, Group
from click.testing import CliRunner

from promptgraft import FileJournal, OptimizationContext, OptimizationJob, Prompt
from promptgraft.cli.main import app
from promptgraft.evals.metrics import METRICS, MetricKind, load_metrics, record_of
from promptgraft.overrides import (
    LocalPromptOverridesStore,
    OverrideAddress,
    PromptOverridesStore,
    diff_override,
)
from promptgraft.overrides.parts import KINDS
from promptgraft.overrides.parts.entry import UNBOUND
from promptgraft.overrides.resolution import bound_entry
from promptgraft.search import Optimizer, StopReason
from promptgraft.testing import PromptOverridesStoreContract
from test_docs import python_blocks

TEXT = (Path(__file__).parents[1] / "docs" / "contributing.md").read_text("utf-8")


def _page() -> dict[str, Any]:
    """Run each section of the page alone, and return what they define together."""
    names: dict[str, Any] = {}
    for number, section in enumerate(re.split(r"(?m)^(?=## )", TEXT)):
        module = ModuleType(f"contributing_page_{number}")
        sys.modules[module.__name__] = module  # attrs looks up annotations there
        for block in python_blocks(section):
            if block.runs:
                exec(block.compiled(Path("contributing.md")), module.__dict__)
        names |= module.__dict__
    return names


PAGE = _page()
PROMPT: Prompt[object] = PAGE["PROMPT"]


class TestTheStore(PromptOverridesStoreContract):
    def make_store(self) -> PromptOverridesStore:
        store: PromptOverridesStore = PAGE["DictStore"]()
        return store


def test_the_metric_is_read_from_a_metric_file_with_its_options() -> None:
    polite = PAGE["Polite"]
    kinds = METRICS.plus(MetricKind(name="polite", build=record_of(polite).read))
    loaded = load_metrics([{"name": "polite", "words": ["kindly"]}], registry=kinds)
    assert list(loaded) == [polite(words=("kindly",))]


def test_the_model_the_metric_and_the_algorithm_make_a_run_that_resumes(tmp_path: Path) -> None:
    def run(adapter: Any) -> Any:
        with FileJournal(tmp_path / "journal.jsonl") as journal:
            context = OptimizationContext(adapter, journal=journal)
            return OptimizationJob(PROMPT, context, PAGE["settings"]).run()

    first = run(PAGE["Echo"]())
    assert first.stop_reason is StopReason.PERFECT
    assert first.best_section_overrides == {("task",): "Answer politely."}

    class Silent:
        identity = "echo/1"

        def evaluate(self, *_: object, **__: object) -> None:
            raise AssertionError("it was asked again")

    assert run(Silent()) == first


def test_the_target_is_improved_in_a_run_that_resumes(tmp_path: Path) -> None:
    target = PAGE["Letter"]({"greeting": "Answer."})

    def run() -> Any:
        with FileJournal(tmp_path / "journal.jsonl") as journal:
            context = attrs.evolve(PAGE["context"], journal=journal)
            return OptimizationJob(target, context, PAGE["settings_of_letter"]).run()

    first = run()
    assert first.stop_reason is StopReason.PERFECT
    assert target.kept == {"greeting": "Answer politely."}
    target.rollout = None  # nothing is tried again
    assert run() == first


def test_a_prompt_and_its_model_are_improved_as_one_subject() -> None:
    class Replies:
        prompt = PROMPT
        adapter = PAGE["Echo"]()

    context = OptimizationContext(reflection_adapter=PAGE["Echo"]())
    found = Optimizer(context, PAGE["settings"]).optimize(Replies())
    assert found.best_section_overrides == {("task",): "Answer politely."}


def test_the_kind_of_part_is_stored_rendered_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signature = PAGE["Signature"]
    monkeypatch.setitem(KINDS, signature.listed, signature)
    entry = signature(path=("task",), expected_hash=UNBOUND, who="Ada")
    empty = OverrideAddress(PROMPT.descriptor.ns, PROMPT.descriptor.key, "latest").empty()
    override = empty.holding([bound_entry(PROMPT.descriptor, entry)])

    LocalPromptOverridesStore(tmp_path).upsert(PROMPT.descriptor, override)
    store = LocalPromptOverridesStore(tmp_path)
    assert store.resolve(PROMPT.descriptor) == override
    rendered = attrs.evolve(PROMPT, overrides_store=store).bind({"text": "Well?"}).render()
    assert "Signed: Ada" in rendered.text
    assert [(part.kind, part.after) for part in diff_override(PROMPT, override)] == [
        ("signature", "who: Ada")
    ]


def test_the_command_runs() -> None:
    done = CliRunner().invoke(PAGE["hello_command"], ["Ada"])
    assert (done.exit_code, done.output) == (0, "Hello, Ada.\n")


def test_the_table_of_commands_finds_each_in_its_module() -> None:
    assert isinstance(app, Group)
    context = Context(app)
    found = {name: app.get_command(context, name) for name in app.list_commands(context)}
    assert found
    for name, command in found.items():
        assert command is not None
        assert command.name == name


def _imports() -> Iterator[tuple[str, str]]:
    pattern = r"(?m)^from (promptgraft[\w.]*) import (.+)$"
    for module, names in re.findall(pattern, TEXT):
        for name in names.split(", "):
            yield module, name


def test_the_page_takes_public_names_where_there_are_any() -> None:
    hidden = {
        f"{module}.{name}"
        for module, name in _imports()
        if name not in getattr(import_module(module), "__all__", ())
    }
    assert hidden == {
        "promptgraft.adapters.base.answered",
        "promptgraft.cli.exits.ExitCode",
        "promptgraft.cli.output.echo",
        "promptgraft.overrides.parts.entry.Entry",
    }
