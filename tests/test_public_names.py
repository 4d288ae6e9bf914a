"""What is offered is really there, in order, explained, and cheap to ask for."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import promptgraft
from promptgraft.ground.lazy import homes_of

HEAVY = ("anthropic", "cattrs", "click", "jinja2", "openai", "rich", "yaml")


def packages() -> list[str]:
    """Return every module of the library that says what it offers."""
    found = pkgutil.walk_packages(promptgraft.__path__, "promptgraft.")
    names = [name for _, name, is_package in found if is_package]
    return [name for name in ["promptgraft", *names] if hasattr(import_(name), "__all__")]


def import_(name: str) -> ModuleType:
    return importlib.import_module(name)


def offered(module: ModuleType) -> list[str]:
    names: list[str] = module.__all__
    return names


def house_order(name: str) -> tuple[int, str]:
    """Sort as ruff does: constants, then classes, then the others."""
    rank = 0 if name.isupper() else 1 if name[:1].isupper() else 2
    return rank, name


PACKAGES = packages()


def test_every_package_that_hands_on_names_is_checked() -> None:
    assert {"promptgraft", "promptgraft.prompt", "promptgraft.overrides"} <= set(PACKAGES)
    for path in Path(promptgraft.__path__[0]).rglob("__init__.py"):
        parts = path.parent.relative_to(promptgraft.__path__[0]).parts
        hands_on = re.search(r"^from promptgraft\.", path.read_text("utf-8"), re.MULTILINE)
        assert not hands_on or ".".join(("promptgraft", *parts)) in PACKAGES


@pytest.mark.parametrize("package", PACKAGES)
def test_every_offered_name_is_there_once_and_in_order(package: str) -> None:
    module = import_(package)
    names = offered(module)
    assert names == sorted(set(names), key=house_order)
    for name in names:
        assert getattr(module, name) is not None, name


@pytest.mark.parametrize("package", PACKAGES)
def test_every_offered_class_and_function_has_a_docstring_of_its_own(package: str) -> None:
    module = import_(package)
    for name in offered(module):
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            docstring = value.__dict__.get("__doc__") if inspect.isclass(value) else value.__doc__
            assert docstring, f"{package}.{name}"


def homes_in(package: str) -> dict[str, str]:
    """Return module and name there of each name that a package imports at its first use."""
    return {name: f"{home}.{own}" for name, (home, own) in homes_of(package).items()}


SPECIFIED = """
BasePromptOptimizer Candidate Deadline EventBus ExampleFormatter FeedbackFn GeneratedTaskExample
GepaConfig GepaExample GepaExampleGenerated GepaMutationAccepted GepaMutationProposed
GepaMutationRejected GepaOptimizationCompleted GepaOptimizationStarted GepaOptimizer GepaResult
GepaRolloutCompleted InMemoryPromptOverridesStore LocalPromptOverridesStore MarkdownSection
OptimizationContext OverlayPromptOverridesStore PersistenceScope Prompt PromptDescriptor
PromptEvaluationError PromptExecuted PromptLike PromptOverride PromptOverridesStore PromptResponse
PromptTemplate ProviderAdapter RolloutFeedback RolloutRecord SectionOverride SectionVisibility
Session SessionProtocol TaskExample TaskExampleOverride TaskExamplesSection TaskStep
TaskStepOverride Tool ToolExample ToolExampleOverride ToolExampleTarget ToolInvoked ToolOverride
TraceFormatter default_example_formatter default_trace_formatter hash_task_example
hash_tool_example
"""
"""The names that the specification of GepaOptimizer uses."""
LAZY = [package for package in PACKAGES if "__getattr__" in vars(import_(package))]


def test_the_packages_of_which_others_need_a_part_import_their_names_late() -> None:
    assert {"promptgraft", "promptgraft.search", "promptgraft.targets", "promptgraft.agents"} <= {
        *LAZY
    }


def test_the_package_offers_few_names_and_the_others_have_a_door_of_their_own() -> None:
    assert len(promptgraft.__all__) <= 40
    homes = homes_in("promptgraft")
    assert {*promptgraft.__all__} <= {*homes, "__version__"}
    offers = {name for package in PACKAGES[1:] for name in offered(import_(package))}
    errors = {name for name, home in homes.items() if home.startswith("promptgraft.errors.")}
    assert {*homes} - {*promptgraft.__all__} <= offers | errors


def test_the_names_of_the_specification_can_be_imported_from_the_package() -> None:
    for name in SPECIFIED.split():
        assert getattr(promptgraft, name) is not None


def test_an_optimizer_of_users_is_generic_in_answers_and_result() -> None:
    class Same(promptgraft.BasePromptOptimizer[object, str]):
        def optimize(self, prompt: object, *, session: object = None) -> str:
            return f"{prompt} with {session}"

    context = promptgraft.OptimizationContext(promptgraft.OfflineAdapter())
    assert Same(context).optimize("it") == "it with None"


@pytest.mark.parametrize("package", LAZY)
def test_names_that_are_imported_late_are_those_of_their_modules(package: str) -> None:
    module = import_(package)
    assert dir(module) == sorted(module.__all__)
    within = {name for _, name, _ in pkgutil.iter_modules(module.__path__)}
    for name, place in homes_in(package).items():
        home, _, own = place.rpartition(".")
        assert getattr(module, name) is getattr(import_(home), own)
        assert name not in within, "Python finds the module, not the name"
        assert not home.rsplit(".", 1)[-1].startswith("_")


@pytest.mark.parametrize("package", LAZY)
def test_the_names_that_type_checkers_see_are_the_same(package: str) -> None:
    tree = ast.parse(Path(str(import_(package).__file__)).read_text("utf-8"))
    block = next(one for one in tree.body if isinstance(one, ast.If))
    seen: dict[str, str] = {}
    for statement in block.body:
        if isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                seen[alias.asname or alias.name] = f"{statement.module}.{alias.name}"
        elif isinstance(statement, ast.Assign):
            seen[ast.unparse(statement.targets[0])] = seen[ast.unparse(statement.value)]
    assert seen == homes_in(package)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'promptgraft' has no attribute 'Promt'"):
        getattr(promptgraft, "Promt")  # noqa: B009 - mypy knows that it is not there


def test_all_names_can_be_imported_at_once() -> None:
    code = "from promptgraft import *; print(len([Prompt, GepaOptimizer, Session]))"
    assert run(code) == "3"


def test_importing_promptgraft_loads_no_heavy_library() -> None:
    code = f"import promptgraft, sys; print([m for m in {HEAVY} if m in sys.modules])"
    assert run(code) == "[]"


def test_a_prompt_of_plain_text_renders_without_the_heavy_libraries() -> None:
    code = (
        "import sys\n"
        "from promptgraft import MarkdownSection, Prompt, PromptTemplate\n"
        "section = MarkdownSection(title='A', key='a', template='Hello $name.')\n"
        "template = PromptTemplate(ns='n', key='k', sections=[section])\n"
        "assert 'Hello you.' in Prompt(template).bind({'name': 'you'}).render().text\n"
        f"print([m for m in {HEAVY} if m in sys.modules])"
    )
    assert run(code) == "[]"


def run(code: str) -> str:
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return ended.stdout.strip()
