"""A function of a BAML project as a prompt of a project: its texts, tests, and way back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path

import attrs

from promptgraft.adapters.base import ProviderAdapter
from promptgraft.agents.adapter import AgentAdapter
from promptgraft.baml.agent import BamlAgent
from promptgraft.baml.functions import BamlFunction, chosen_tests, load_function
from promptgraft.baml.metrics import PASS, metrics_of
from promptgraft.baml.parts import Part, PartKind
from promptgraft.baml.tests import BamlTest
from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.evals.aggregate import Aggregation, WeightedMean
from promptgraft.evals.dataset import Dataset
from promptgraft.evals.metrics.base import is_required
from promptgraft.evals.types import Case, Metric
from promptgraft.overrides import PromptOverride
from promptgraft.parts.body import is_placeholder
from promptgraft.parts.descriptors import show_path
from promptgraft.project.files import FileChange
from promptgraft.project.format_sources import BamlConfig
from promptgraft.project.parts import ProjectPrompt, Surroundings
from promptgraft.prompt.sections import MarkdownSection
from promptgraft.prompt.template import Prompt, PromptTemplate
from promptgraft.prompt.texts import TextsPrompt
from promptgraft.strict.nodes import raise_lines

BAML_NS = "baml"
"""The namespace of the prompts of BAML functions."""


@attrs.frozen(slots=False)
class BamlSource:
    """The files of a BAML function, which take a winner back, and what comes with them.

    Attributes:
        function: the function as it was read.
        tests: those of its tests that are cases.
    """

    function: BamlFunction
    tests: tuple[BamlTest, ...]

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that holds a text of the function."""
        return tuple(dict.fromkeys(part.file for part in self.function.parts))

    def rewritten(self, override: PromptOverride) -> tuple[FileChange, ...]:
        """Return the changes that make the files say what ``override`` says; writes nothing."""
        texts = {show_path(path): entry.body for path, entry in override.sections.items()}
        before = {file.path: file.source for file in self.function.files}
        changed = self.function.rewritten(texts)
        return tuple(FileChange(path, before[path], after) for path, after in changed.items())

    def agent(self, model: Callable[[], ProviderAdapter] | None = None) -> BamlAgent:
        """Return what asks the function: ``model``, or without one its own client."""
        tests = {one.name: one for one in self.tests}
        return BamlAgent(function=self.function, tests=tests, model=model)

    def adapter(
        self, prompt: Prompt[object], model: Callable[[], ProviderAdapter] | None
    ) -> AgentAdapter:
        """Return what answers the prompt of the function."""
        names = tuple(section.key for section in prompt.template.sections)
        return AgentAdapter(agent=self.agent(model), names=names)

    @cached_property
    def dataset(self) -> Dataset:
        """The tests as cases; their field ``file`` is the name of their file without its ending."""
        return Dataset.of(
            [
                Case(
                    id=one.name,
                    input=one.args,
                    fields={"file": one.file.stem},
                    origin=one.origin,
                )
                for one in self.tests
            ]
        )

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """What the tests say of an answer."""
        return metrics_of(self.tests)

    def aggregation(self, metrics: Iterable[Metric]) -> Aggregation:
        """Return the mean of the required metrics without `pass`, which only says how many do."""
        named = [one.name for one in metrics if is_required(one) and one.name != PASS]
        return WeightedMean(dict.fromkeys(named, 1.0))


def load_baml(name: str, config: BamlConfig, around: Surroundings) -> ProjectPrompt:
    """Return a function of a BAML project as a prompt; its files are read and compiled now.

    Raises:
        DataFormatError: with every fault of the files and tests, one line each.
    """
    path = ("prompts", name)
    try:
        function = load_function(
            config.function, around.folder / config.baml, with_inputs=config.inputs
        )
        source = BamlSource(function, chosen_tests(function, config.tests))
        faults = list(source.agent().faults())
    except DataFormatError:
        raise  # it says where in the BAML files
    except ConfigError as error:
        raise around.refusal(path, error) from error
    raise_lines(around.file.name, faults)
    template: PromptTemplate[object] = PromptTemplate(
        ns=BAML_NS, key=name, sections=[_section(part) for part in function.parts]
    )
    prompt = TextsPrompt(template, takes_cases=True, as_file=function.alone, ending=".baml")
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
