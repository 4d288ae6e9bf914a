"""A BAML function as a prompt of a project, with its tests as cases."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path

import attrs

from promptgraft.adapters.base import ProviderAdapter
from promptgraft.agents.adapter import AgentAdapter
from promptgraft.bridges.baml.agent import BamlAgent
from promptgraft.bridges.baml.calls import inputs_of
from promptgraft.bridges.baml.functions import BamlFunction, chosen_tests, load_function
from promptgraft.bridges.baml.judging import PASS, metrics_of
from promptgraft.bridges.baml.parts import Part, PartKind
from promptgraft.bridges.baml.project_files import baml_projects
from promptgraft.bridges.baml.tests import BamlTest
from promptgraft.errors import AgentFaultError, ConfigError
from promptgraft.evals.aggregate import Aggregation, WeightedMean
from promptgraft.evals.dataset import Dataset
from promptgraft.evals.metrics.base import is_required
from promptgraft.evals.types import Case, Metric
from promptgraft.ground.strict.nodes import raise_lines
from promptgraft.overrides import PromptOverride
from promptgraft.overrides.parts.body import is_placeholder
from promptgraft.overrides.parts.descriptors import show_path
from promptgraft.project.files import FileChange, ProjectFile
from promptgraft.project.format_agents import BamlConfig
from promptgraft.project.parts import ForeignSource, Format, FormatOptions
from promptgraft.project.project_prompt import ProjectPrompt
from promptgraft.project.python_source import Surroundings
from promptgraft.prompt.schema import JsonObject
from promptgraft.prompt.sections import MarkdownSection
from promptgraft.prompt.template import Prompt, PromptTemplate
from promptgraft.prompt.texts import TextsPrompt, texts_in
from promptgraft.search.settings import Size

BAML_NS = "baml"
"""The namespace of the prompts of BAML functions."""


@attrs.frozen(slots=False)
class BamlSource(ForeignSource):
    """The files of a BAML function, with the cases and metrics that its tests provide.

    Attributes:
        function: the function as it was read.
        tests: the tests that serve as cases.
    """

    function: BamlFunction
    tests: tuple[BamlTest, ...]

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that hold texts of the function."""
        return tuple(dict.fromkeys(part.file for part in self.function.parts))

    def rewritten(self, override: PromptOverride) -> tuple[FileChange, ...]:
        """Return the file changes that apply ``override``, without writing them."""
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
        function = load_function(
            config.function, around.folder / config.baml, with_inputs=config.inputs
        )
        source = BamlSource(function, chosen_tests(function, config.tests))
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


class BamlFormat(Format):
    """Functions of BAML projects."""

    @classmethod
    def loaded(cls, name: str, config: BamlConfig, around: Surroundings) -> ProjectPrompt:
        return load_baml(name, config, around)

    @classmethod
    def projects(
        cls, folder: Path, options: FormatOptions, *, auto: Size | None
    ) -> list[ProjectFile]:
        return baml_projects(folder, options, auto=auto)
