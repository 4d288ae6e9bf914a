"""A BAML function as a prompt of a project, with its tests as cases."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property
from pathlib import Path

import attrs

from promptgraft.adapters.base import ProviderAdapter
from promptgraft.agents.adapter import AgentAdapter
from promptgraft.bridges.baml import functions
from promptgraft.bridges.baml.agent import BamlAgent
from promptgraft.bridges.baml.calls import inputs_of
from promptgraft.bridges.baml.judging import PASS, metrics_of
from promptgraft.bridges.baml.parts import Part, PartKind
from promptgraft.bridges.baml.tests import BamlTest
from promptgraft.errors import AgentFaultError, ConfigError
from promptgraft.evals.aggregate import Aggregation, WeightedMean
from promptgraft.evals.dataset import Dataset
from promptgraft.evals.metrics.base import is_required
from promptgraft.evals.types import Case, Metric
from promptgraft.ground.serde import Json, did_you_mean
from promptgraft.ground.strict.nodes import raise_lines
from promptgraft.ground.text import listed
from promptgraft.overrides import PromptOverride
from promptgraft.overrides.parts.body import is_placeholder
from promptgraft.overrides.parts.descriptors import show_path
from promptgraft.project import parts
from promptgraft.project.files import FILE_NAME, FileChange, ProjectFile
from promptgraft.project.format_agents import BamlConfig
from promptgraft.project.project_prompt import ProjectPrompt
from promptgraft.project.python_source import Surroundings
from promptgraft.prompt.schema import JsonObject
from promptgraft.prompt.sections import MarkdownSection
from promptgraft.prompt.template import Prompt, PromptTemplate
from promptgraft.prompt.texts import TextsPrompt, texts_in
from promptgraft.search.scores import weights_of
from promptgraft.search.settings import Size

BAML_NS = "baml"
"""The namespace of the prompts of BAML functions."""


@attrs.frozen(slots=False)
class BamlSource(parts.ForeignSource):
    """The files of a BAML function, with the cases and metrics that its tests provide."""

    function: functions.BamlFunction
    tests: tuple[BamlTest, ...]

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that hold texts of the function."""
        return tuple(dict.fromkeys(part.file for part in self.function.parts))

    def rewritten(self, override: PromptOverride) -> tuple[FileChange, ...]:
        texts = {show_path(path): entry.body for path, entry in override.sections.items()}
        before = {file.path: file.source for file in self.function.files}
        changed = self.function.rewritten(texts)
        return tuple(FileChange(path, before[path], after) for path, after in changed.items())

    def agent(self, model: Callable[[], ProviderAdapter] | None = None) -> BamlAgent:
        """Return the agent that runs the function on ``model``, or else on its own client."""
        tests = {test.name: test for test in self.tests}
        return BamlAgent(function=self.function, tests=tests, model=model)

    def adapter(
        self, prompt: Prompt[object], model: Callable[[], ProviderAdapter] | None
    ) -> AgentAdapter:
        """Return the adapter of the agent; see :meth:`agent`."""
        names = tuple(section.key for section in prompt.template.sections)
        return AgentAdapter(agent=self.agent(model), names=names)

    @cached_property
    def dataset(self) -> Dataset:
        """The tests as cases; their field ``file`` is the stem of their file's name.

        Raises:
            DataFormatError: all faults of the tests, one line each.
        """
        raise_lines(str(self.function.folder), self.agent().test_faults())
        return Dataset.of(
            [
                Case(
                    id=test.name,
                    input=inputs_of(self.function, test),
                    fields={"file": test.file.stem},
                    origin=test.origin,
                )
                for test in self.tests
            ]
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """A line for each test without rules, which every readable answer passes."""
        return tuple(
            f"{test.origin}: test {test.name} has neither an @@assert nor a @@check, so every "
            "answer that BAML can read passes it"
            for test in self.tests
            if not test.rules
        )

    def messages(
        self, prompt: Prompt[object], case: str, *, provider: str = "openai-generic"
    ) -> JsonObject:
        """Return the messages that BAML would send to a provider for a case.

        Raises:
            ConfigError: the texts in force do not compile, or the arguments do not fit.
        """
        try:
            return self.agent().messages(texts_in(prompt.render()), case, provider=provider)
        except AgentFaultError as error:
            raise ConfigError(str(error)) from error

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics that apply the rules of the tests."""
        return metrics_of(self.tests)

    def aggregation(self, metrics: Iterable[Metric]) -> Aggregation:
        """Return the mean of the required metrics except ``pass``, which is only reported."""
        named = [metric.name for metric in metrics if is_required(metric) and metric.name != PASS]
        return WeightedMean(dict.fromkeys(named, 1.0))


def load_baml(name: str, config: BamlConfig, around: Surroundings) -> ProjectPrompt:
    """Read and compile a BAML function, and return it as a prompt.

    Raises:
        DataFormatError: all faults of its files, one line each.
    """
    with around.placed(("prompts", name)):
        function = functions.load_function(
            config.function, around.folder / config.baml, with_inputs=config.inputs
        )
        source = BamlSource(function, functions.chosen_tests(function, config.tests))
        # Found now, because a run would find them only after the first calls are paid for.
        faults = source.agent().faults()
    raise_lines(around.file.name, faults)
    template: PromptTemplate[object] = PromptTemplate(
        ns=BAML_NS, key=name, sections=[_section(part) for part in function.parts]
    )
    prompt = TextsPrompt(
        template,
        takes_cases=True,
        as_file=function.alone,
        ending=".baml",
        comment="//",
        answers=source.agent().answers,
    )
    return ProjectPrompt(name=name, prompt=prompt, source=source)


def _section(part: Part) -> MarkdownSection:
    is_prompt = part.kind is PartKind.PROMPT
    return MarkdownSection(
        title=part.title,
        key=part.key,
        template=part.text,
        syntax="plain",
        placeholders=tuple(dict.fromkeys(filter(is_placeholder, part.tags))) if is_prompt else (),
        fault=part.fault,
    )


class BamlFormat(parts.Format):
    """Functions of BAML projects."""

    @classmethod
    def loaded(cls, name: str, config: BamlConfig, around: Surroundings) -> ProjectPrompt:
        return load_baml(name, config, around)

    @classmethod
    def projects(
        cls, folder: Path, options: parts.FormatOptions, *, auto: Size | None
    ) -> list[ProjectFile]:
        return baml_projects(folder, options, auto=auto)


_OBJECTIVES = {"accuracy": "score", "latency": "seconds"}
"""Our names of objectives that BAML's own optimizer names differently."""
_OWN = ("score", "asserts", "pass", "tokens", "prompt_tokens", "completion_tokens")
_FEW_TESTS = 5
_AMOUNTS = ("cost", "seconds")


def baml_projects(
    folder: Path, options: parts.FormatOptions, *, auto: Size | None = None
) -> list[ProjectFile]:
    """Return the project file of each function that the options name, all by default.

    A single function has ``promptgraft.yaml`` beside the folder of BAML files, each of several a
    file with its own name in front of that.

    Raises:
        ConfigError: there is no such folder or function, or an existing file is of another one.
    """
    if not folder.is_dir():
        raise ConfigError(f"--baml: expected a folder of BAML files, found none at {folder}")
    names = list(dict.fromkeys(options["function"])) or _with_tests(folder, options["test"])
    parent = folder.resolve().parent
    folder_shown = parent.relative_to(Path.cwd()) if parent.is_relative_to(Path.cwd()) else parent
    files = [FILE_NAME] if len(names) == 1 else [f"{name}.{FILE_NAME}" for name in names]
    return [
        _project_of(folder_shown / file, folder, name, options, budget=auto or "light")
        for name, file in zip(names, files, strict=True)
    ]


def _with_tests(folder: Path, patterns: Collection[str]) -> list[str]:
    if names := functions.tested_functions(folder, patterns):
        return list(names)
    if patterns:
        raise ConfigError(f"--test: no test of a function in {folder} matches {listed(patterns)}")
    raise ConfigError(f"--function: no function in {folder} has a test; write one, or name it")


def _project_of(
    path: Path, folder: Path, name: str, options: parts.FormatOptions, *, budget: Size
) -> ProjectFile:
    if path.exists():
        _check_same(path, folder, name, options)
        return ProjectFile(path, None)
    # Raises if a pattern matches no test, before anything is written.
    tests = functions.chosen_tests(functions.load_function(name, folder), options["test"])
    return ProjectFile(path, _settings(folder, name, tests, options, budget=budget))


def _check_same(path: Path, folder: Path, name: str, options: parts.FormatOptions) -> None:
    """Refuse options that an existing project file contradicts or would ignore."""
    from promptgraft.project import open_project

    baml_config = open_project(path).config.baml
    if baml_config is None or (path.parent / baml_config.baml).resolve() != folder.resolve():
        raise ConfigError(f"--baml: {path} is of another prompt; name the function there")
    if baml_config.function != name:
        raise ConfigError(f"--function: {path} names `{baml_config.function}`; change it there")
    other_options = [option for option in parts.named_options(options) if option != "--function"]
    if other_options:
        raise ConfigError(
            f"{other_options[0]}: {path} already exists; change it there, or remove it"
        )


def _settings(
    folder: Path,
    function: str,
    tests: tuple[BamlTest, ...],
    options: parts.FormatOptions,
    *,
    budget: Size,
) -> Mapping[str, Json]:
    """Return the project file of a BAML function, as plain data."""
    weights = _weights(options["weights"], tests)
    chosen: dict[str, Json] = {"tests": list(options["test"])} if options["test"] else {}
    objectives: dict[str, Json] = {"objectives": {"weights": weights}} if weights else {}
    # The limits of names of prompts, see `NAME` in `project.format_agents`.
    key = re.sub("[^a-z0-9_-]", "-", function.lower())[:64]
    # The usual shares would leave the validation set of so few tests empty.
    halves: dict[str, Json] = {"splits": {"ratio": {"train": 0.5, "validation": 0.5}}}
    return {
        "version": 1,
        **(halves if len(tests) < _FEW_TESTS else {}),
        "prompts": {key: {"baml": folder.resolve().name, "function": function, **chosen}},
        "models": {"reflection": _model(options["reflection"] or parts.DEFAULT_REFLECTION)},
        "optimizer": {"rollout_budget": budget, **objectives},
    }


def _weights(written: str | None, tests: tuple[BamlTest, ...]) -> dict[str, Json]:
    """Return weights by objective; a check may be named alone."""
    checks = {rule.name for test in tests for rule in test.rules if not rule.is_assert}
    weight_names = {*_OWN, *_AMOUNTS, *(f"check:{name}" for name in checks)}
    weights: dict[str, Json] = {}
    for name, weight in (weights_of(written, "--weights") if written else {}).items():
        objective = _OBJECTIVES.get(name, name)
        if objective not in weight_names and name in checks:
            objective = f"check:{name}"
        if objective not in weight_names:
            names = sorted({*weight_names, *_OBJECTIVES, *checks})
            raise ConfigError(
                f"--weights: there is no objective `{name}`{did_you_mean(name, names)}; "
                f"expected {', '.join(names)}"
            )
        weights[objective] = weight
    return weights


def _model(written: str) -> dict[str, Json]:
    provider, _, model = written.partition("/")
    if ":" in written:
        return {"python": written}
    if provider == "offline" and not model:
        return {"provider": provider}
    if provider not in ("openai", "anthropic") or not model:
        raise ConfigError(
            "--reflection: expected `openai/MODEL`, `anthropic/MODEL`, `offline` or "
            f"`file.py:NAME`, found {written!r}"
        )
    # A reference: the file is meant to be committed, so the key itself must not be in it.
    return {"provider": provider, "model": model, "api_key": f"${{{provider.upper()}_API_KEY}}"}
