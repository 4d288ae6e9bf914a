"""The reference in ``docs/reference`` is what the code says of itself today."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import attrs
import pytest

from promptgraft.evals.metrics import Registry
from promptgraft.ground.lazy import homes_of

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
MODULES = ("promptgraft.evals.metrics", "promptgraft.project", "promptgraft.runs")


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", FOLDER.parent / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pages(generator: ModuleType) -> dict[str, str]:
    made: dict[str, str] = generator.pages()
    return made


def test_the_reference_is_current(generator: ModuleType, pages: dict[str, str]) -> None:
    stale = generator.stale(FOLDER, pages)
    assert stale == [], "run `python docs/generate.py`"


def test_signatures_stay_when_the_types_of_fields_have_been_resolved(
    generator: ModuleType, pages: dict[str, str]
) -> None:
    attrs.resolve_types(Registry)
    assert generator.pages()["metrics.md"] == pages["metrics.md"]


def test_every_public_name_is_in_the_reference(pages: dict[str, str]) -> None:
    named = set(re.findall(r"^\| \[`(\w+)`\]", pages["README.md"], re.MULTILINE))
    wanted = {*homes_of("promptgraft")}
    for module in MODULES:
        wanted |= set(importlib.import_module(module).__all__)
    assert wanted - named == set()


def test_every_command_is_in_the_reference(generator: ModuleType, pages: dict[str, str]) -> None:
    assert {"init", "demo", "optimize"} <= set(generator.commands())
    for words, command in generator.commands().items():
        assert f"## `promptgraft {words}`\n" in pages["cli.md"]
        for param in command.params:
            if param.opts[0].startswith("--"):
                assert param.opts[0] in pages["cli.md"].split(f"## `promptgraft {words}`")[1]


def test_every_command_with_json_is_in_the_output_for_programs(generator: ModuleType) -> None:
    page = (Path(__file__).parents[1] / "docs" / "json.md").read_text("utf-8")
    first_cells = "\n".join(re.findall(r"(?m)^\| (`[^|]*) \|", page))
    for words, command in generator.commands().items():
        if any("--json" in param.opts for param in command.params):
            assert re.search(rf"`{words}[` ]", first_cells), words


MAIN = {
    *("Dataset", "GepaConfig", "GepaOptimizer", "LocalPromptOverridesStore", "OpenAIAdapter"),
    *("Prompt", "PromptTemplate", "Splits", "Tool", "evaluate", "load_project", "optimize"),
}


def test_main_entries_have_an_example_and_examples_belong_to_entries(
    generator: ModuleType, pages: dict[str, str]
) -> None:
    assert generator.EXAMPLES.keys() >= MAIN
    for name, code in generator.EXAMPLES.items():
        shown = [text for text in pages.values() if f"## `{name}`\n" in text]
        assert {text.count(f"```python\n{code}\n```") for text in shown} == {1}, name
    without = {name for name, text in pages.items() if "```python\n" not in text}
    assert without == {"README.md", "cli.md"}


def test_defaults_are_shown_as_users_write_them(pages: dict[str, str]) -> None:
    assert not [name for name, text in pages.items() if "NOTHING" in text or "Factory(" in text]
    assert "    policy: RetryPolicy = RetryPolicy(),\n" in pages["models.md"]
    assert "    headers: Mapping[str, str] = {},\n" in pages["models.md"]
    assert "Registry(added: Mapping[str, MetricKind] = {})" in pages["metrics.md"]


def test_the_index_leads_to_headings_that_are_there(
    generator: ModuleType, pages: dict[str, str]
) -> None:
    links = re.findall(r"\]\(([\w-]+\.md)#([\w-]+)\)", pages["README.md"])
    assert len(links) > 100
    for file, anchor in links:
        headings = re.findall(r"^#+ (.*)$", pages[file], re.MULTILINE)
        assert anchor in [generator._anchor(heading) for heading in headings], (file, anchor)


def test_a_page_that_nobody_writes_any_more_is_not_current(
    generator: ModuleType, pages: dict[str, str], tmp_path: Path
) -> None:
    for name, text in pages.items():
        (tmp_path / name).write_text(text, "utf-8")
    (tmp_path / "old.md").write_text("# Old\n", "utf-8")
    (tmp_path / "cli.md").write_text("# Changed\n", "utf-8")
    assert generator.stale(tmp_path, pages) == ["cli.md", "old.md"]
