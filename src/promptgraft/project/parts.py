"""Loaders for what a project file names: prompts, cases, metrics, functions."""

from __future__ import annotations

import abc
import contextlib
import functools
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, TypeVar

import attrs

from promptgraft.adapters.base import ProviderAdapter
from promptgraft.agents.defaults import AGENTS_NS
from promptgraft.errors import CallerError, ConfigError, DataFormatError, user_errors
from promptgraft.evals.aggregate import Aggregation
from promptgraft.evals.binding import ParamsOf
from promptgraft.evals.dataset import Dataset, file_and_case
from promptgraft.evals.judges.registry import judge_kinds
from promptgraft.evals.metrics.functions import Python
from promptgraft.evals.metrics.registry import METRICS, load_metrics
from promptgraft.evals.several_files import refuse_several
from promptgraft.evals.splits import Splits
from promptgraft.evals.types import Case, Judge, Metric, MetricKind
from promptgraft.ground.entry_points import Group
from promptgraft.ground.serde import Json, did_you_mean, field_names, shown
from promptgraft.ground.strict.checks import Kind
from promptgraft.ground.strict.kinds import record_of
from promptgraft.ground.strict.nodes import Node, Source, raise_lines
from promptgraft.ground.text import listed, raised
from promptgraft.ground.yaml_text import YamlPath
from promptgraft.overrides.types import PromptOverride
from promptgraft.project.files import FileChange, ProjectFile
from promptgraft.project.format import ProjectConfig
from promptgraft.project.format_agents import AgentConfig, BamlConfig, TextsConfig
from promptgraft.project.format_search import DatasetConfig, SplitsConfig
from promptgraft.project.project_prompt import ProjectPrompt
from promptgraft.project.python_source import FUNCTION, ObjectKind, PythonSource, Surroundings
from promptgraft.prompt.fields import fields_of
from promptgraft.prompt.schema import takes_bare_text
from promptgraft.prompt.template import Prompt, PromptTemplate
from promptgraft.prompt.texts import TextsPrompt, takes_cases
from promptgraft.search.settings import Size
from promptgraft.targets.prompts import PromptSet, StandIn
from promptgraft.targets.texts import as_texts

if TYPE_CHECKING:
    from promptgraft.agents.adapter import AgentAdapter

T = TypeVar("T")


class Format(ABC):
    """Prompts in the files of another tool, which brings their cases, metrics and agent.

    A package registers a subclass under the entry point group ``promptgraft.formats``.
    """

    @classmethod
    @abstractmethod
    def loaded(cls, name: str, config: BamlConfig, around: Surroundings) -> ProjectPrompt:
        """Return a prompt whose ``source`` is a :class:`ForeignSource`.

        Raises:
            DataFormatError: all faults of the files, one line each.
        """

    @classmethod
    @abstractmethod
    def projects(
        cls, folder: Path, options: FormatOptions, *, auto: Size | None
    ) -> Sequence[ProjectFile]:
        """Return a project file for each prompt in a folder that options name; all by default.

        Raises:
            ConfigError: there is no such prompt, or an existing file is of another one.
        """


FORMATS = Group("promptgraft.formats", "format", Format)  # type: ignore[type-abstract]  # mypy#4717


class FormatOptions(TypedDict):
    """The options of ``optimize`` for prompts in the files of another tool."""

    baml: str | None
    function: tuple[str, ...]
    test: tuple[str, ...]
    weights: str | None
    reflection: str | None


DEFAULT_REFLECTION = "openai/gpt-6.1-sol"
"""The model that proposes texts unless another one is named."""


def named_options(options: FormatOptions) -> list[str]:
    """Return the given options that go with ``--baml``, ``--function`` first."""
    values = dict(options)
    names = ("function", "test", "weights", "reflection")
    return [f"--{name}" for name in names if values[name]]


class ForeignSource(abc.ABC):
    """The files of a prompt of another tool, with its cases, metrics and agent."""

    @property
    @abc.abstractmethod
    def files(self) -> tuple[Path, ...]:
        """The files that hold texts of the prompt."""

    @abc.abstractmethod
    def rewritten(self, override: PromptOverride) -> tuple[FileChange, ...]:
        """Return the file changes that apply ``override``, without writing them."""

    @abc.abstractmethod
    def adapter(
        self, prompt: Prompt[object], model: Callable[[], ProviderAdapter] | None
    ) -> AgentAdapter:
        """Return what answers the prompt on ``model``, or else on a model of its own."""

    @property
    @abc.abstractmethod
    def dataset(self) -> Dataset:
        """The cases that come with the prompt."""

    @property
    @abc.abstractmethod
    def warnings(self) -> tuple[str, ...]:
        """What a check of the project says about the cases, one line each."""

    @abc.abstractmethod
    def messages(
        self, prompt: Prompt[object], case: str, *, provider: str = "openai-generic"
    ) -> dict[str, Json]:
        """Return the messages that the agent would send to a provider for a case.

        Raises:
            ConfigError: the texts in force are invalid, or do not fit the case.
        """

    @property
    @abc.abstractmethod
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics that come with the prompt."""

    @abc.abstractmethod
    def aggregation(self, metrics: Iterable[Metric]) -> Aggregation:
        """Return how the scores of all metrics become one."""


def guarded(params: Callable[..., object], spec: str) -> ParamsOf:
    """Return a user's function whose exceptions are raised as ``ConfigError`` with its name."""

    @functools.wraps(params)
    def made(case: Case) -> object:
        try:
            return params(case)
        except CallerError:
            raise
        except user_errors() as error:
            raise ConfigError(f"{spec} raised {raised(error)}") from error

    return made


def load_named(name: str, config: ProjectConfig, around: Surroundings) -> ProjectPrompt:
    """Load a prompt or graph by name; the error lists all its faults."""
    if name in config.graphs:
        return _load_graph(name, config.graphs[name], around)
    return _load_prompt(name, config.prompts[name], around, ("prompts", name))


def load_teacher(spec: str, around: Surroundings) -> Prompt[object]:
    """Load the prompt or graph that answers cases without ``expected``."""
    path = ("teacher",)
    if spec.endswith(".md"):
        return _load_prompt("teacher", spec, around, path).prompt
    wanted_kind: ObjectKind[Prompt[object]] = ObjectKind(
        expected="a PromptTemplate, a Prompt or a Graph", plural="prompts", read=_as_teacher
    )
    return around.loaded(path, spec, wanted_kind)


def _as_teacher(value: object) -> Prompt[object] | None:
    if (stand_in := _as_graph(value)) is not None:
        return stand_in
    return None if isinstance(value, Mapping) else _as_prompt("teacher", value)


def _load_prompt(
    name: str, spec: str | TextsConfig | BamlConfig, around: Surroundings, path: YamlPath
) -> ProjectPrompt:
    # Each kind of prompt imports libraries that the others do without.
    if isinstance(spec, BamlConfig):
        return FORMATS.load("baml").loaded(name, spec, around)
    if isinstance(spec, TextsConfig):
        from promptgraft.project.agents import load_texts

        return load_texts(name, spec, around)
    if spec.endswith(".md"):
        place = around.existing(path, spec)
        from promptgraft.project.markdown import load_markdown_prompt

        with around.placed(path):
            prompt = load_markdown_prompt(place)
        return ProjectPrompt(name=name, prompt=prompt.prompt, source=prompt.source)
    expected = "a PromptTemplate, a Prompt, or texts of an agent by name"
    read = functools.partial(_as_prompt, name)
    wanted_kind = ObjectKind(expected=expected, plural="prompts", read=read)
    return ProjectPrompt(name=name, prompt=around.loaded(path, spec, wanted_kind))


def _load_graph(name: str, spec: str, around: Surroundings) -> ProjectPrompt:
    wanted_kind = ObjectKind(expected="a Graph", plural="graphs", read=_as_graph)
    prompt = around.loaded(("graphs", name), spec, wanted_kind)
    return ProjectPrompt(name=name, prompt=prompt, graph=prompt.graph)


def _as_graph(value: object) -> StandIn | None:
    """Return the prompt that stands for a graph; None for any other value."""
    return value.stand_in() if isinstance(value, PromptSet) else None


def _as_prompt(name: str, value: object) -> Prompt[object] | None:
    if isinstance(value, Mapping):
        # Also tried on every value of a module, to list prompts in a message.
        with contextlib.suppress(CallerError):  # a module holds mappings of other kinds too
            return TextsPrompt.of(as_texts(value), ns=AGENTS_NS, key=name, takes_cases=True)
    if isinstance(value, PromptTemplate):
        return Prompt(value)
    # The project says which store applies, not the prompt.
    return attrs.evolve(value, overrides_store=None) if isinstance(value, Prompt) else None


def twin_faults(prompts: Iterable[ProjectPrompt], around: Surroundings) -> Iterator[str]:
    """Yield a line for each prompt with the key of an earlier one."""
    sources: dict[str, str] = {}
    for prompt in prompts:
        key = prompt.address
        if sources.setdefault(key, prompt.name) != prompt.name:
            yield around.file.line(
                prompt.place,
                f"expected another prompt than `{sources[key]}`, both are `{key}`; "
                "give one of them another key",
            )


@attrs.frozen
class CaseNames:
    """What prompts call the values of a case.

    Attributes:
        parameters: the names that they read; None if one does not load or is a graph.
        texts: the fields of their answers that are texts.
    """

    parameters: frozenset[str] | None
    texts: frozenset[str] = frozenset()

    @classmethod
    def of(cls, load: Callable[[str], ProjectPrompt], names: Iterable[str]) -> CaseNames:
        """Return the names of prompts that ``load`` returns by name."""
        parameters: set[str] | None = set()
        texts = set[str]()
        for name in names:
            try:
                prompt = load(name)
            except CallerError:  # its faults are reported where it is loaded
                return cls(None)
            reads = prompt.placeholders
            parameters = None if parameters is None or reads is None else parameters | reads
            fields = fields_of(prompt.prompt.template.output_type)
            texts |= {field.name for field in fields if takes_bare_text(field.kind)}
        return cls(None if parameters is None else frozenset(parameters), frozenset(texts))


def load_project_metrics(
    source: str | list[Json], judges: Mapping[str, ProviderAdapter], around: Surroundings
) -> tuple[Metric, ...]:
    """Load the metrics that a project file lists, or those of a metric file.

    ``judges`` are the models that metrics may name. The error lists all faults.
    """
    registry = METRICS.plus(*judge_kinds(judge_among(judges)), _python_kind(around.python))
    if isinstance(source, str) and source not in registry.names and not source.isidentifier():
        place = around.existing(("metrics",), source)
        return load_metrics(place, registry=registry)
    # A source of its own, so that these faults are raised apart from others of the file.
    inline = Source(around.file.name, around.file.document).root.member("metrics")
    if isinstance(source, str):
        inline = attrs.evolve(inline, value=[source])
    return load_metrics(inline, registry=registry)


def judge_among(judges: Mapping[str, ProviderAdapter]) -> Callable[[Json], ProviderAdapter]:
    """Return a lookup of judges by name; it accepts the notations of other tools too.

    Where no judge is named, it is the only one.
    """

    def judge(model: Json) -> ProviderAdapter:
        if model is None and len(judges) == 1:
            return next(iter(judges.values()))
        if isinstance(model, dict) and len(model) == 1:
            model = model.get("model_name", model.get("modelName", model))
        if isinstance(model, str) and model in judges:
            return judges[model]
        near = did_you_mean(model, list(judges)) if isinstance(model, str) else ""
        finding = "found none" if model is None else f"found {shown(model)}{near}"
        mend = (
            f"there: {listed(judges)}"
            if judges
            else "there is none; declare it there, such as "
            "`judges: {main: {provider: openai, model: MODEL}}`, and name it here: `judges: [main]`"
        )
        raise ConfigError(f"expected a judge of `models.judges`, {finding}; {mend}")

    return judge


def _python_kind(source: PythonSource) -> MetricKind:
    """Return the metric kind ``python``: functions of the project."""

    def function(node: Node) -> Judge | None:
        if not isinstance(node.value, str):
            node.expected("`file.py:NAME` or `module:NAME`")
            return None
        return source.read(node, FUNCTION)

    of_function = record_of(Python, special={"function": Kind(function)})

    def build(node: Node) -> Metric | None:
        named = node.members().get("class")
        if named is None:
            return of_function.read(node)
        kind = source.read(named, _METRIC_CLASS)
        if kind is None:
            return None
        options = {key: member.value for key, member in node.members().items() if key != "class"}
        try:
            return record_of(kind).read(Node(options, node.path, node.source))
        except ConfigError as error:
            named.fault(str(error))
            return None

    return MetricKind(name="python", build=build)


def _as_metric_class(value: object) -> type[Metric] | None:
    fields = field_names(value) if isinstance(value, type) else None
    is_metric = {"name", "threshold"} <= {*(fields or ())} and hasattr(value, "judge")
    return value if isinstance(value, type) and is_metric else None


_METRIC_CLASS: ObjectKind[type[Metric]] = ObjectKind(
    expected="an attrs class with `name`, `threshold` and `judge`",
    plural="classes",
    read=_as_metric_class,
)


_MISFITS = {
    False: "expected texts of the agent, found a prompt that a model answers; `promptgraft docs "
    "specs/agents.md` says how texts are named",
    True: "expected a prompt that a model answers, found texts of an agent; name the `agent`",
}


def check_fits(prompt: ProjectPrompt, agent: AgentConfig | None, around: Surroundings) -> None:
    """Raise a ``DataFormatError`` for texts without an agent, or an agent without texts."""
    is_asked = takes_cases(prompt.prompt)
    if not prompt.answers_itself and is_asked != (agent is not None):
        raise around.refusal(("prompts", prompt.name), _MISFITS[is_asked])


def unset_variables(agent: object, around: Surroundings) -> Iterator[str]:
    """Yield a line for each environment variable that the agent needs and does not get."""
    settings = around.file.document.value
    place = "agent" if isinstance(settings, dict) and "agent" in settings else "prompts"
    for name in getattr(agent, "variables", ()):
        if not os.environ.get(name):
            message = f"the environment variable {name} is not set; a run needs it"
            yield around.file.line((place,), message)
    for name in getattr(agent, "withheld", ()):
        message = (
            f"the command does not get {name}, the key of a provider, unless the file names it"
        )
        yield around.file.line((place,), f'{message}: `env: {{{name}: "${{{name}}}"}}`')


_OF_A_LINE = re.compile(r".*?:[0-9]+: ")


def load_whole(
    dataset: DatasetConfig, splits: SplitsConfig, around: Surroundings, *, names: CaseNames
) -> Dataset:
    """Load the cases of one file that is to be split; the error lists all its faults."""
    if dataset.path is None:
        raise around.refusal(
            ("dataset",), "expected `path`, the file of cases; or name `splits.files`"
        )
    keep = tuple(filter(None, dict.fromkeys((*dataset.keep, splits.field or splits.stratify))))
    unreduced = attrs.evolve(dataset, keep=keep)
    return _load(unreduced, dataset.path, ("dataset", "path"), around=around, names=names)


def load_files(
    dataset: DatasetConfig, splits: SplitsConfig, around: Surroundings, *, names: CaseNames
) -> Splits:
    """Load the cases of a file for each set; the error lists all faults of all files."""
    load = functools.partial(_load, around=around, names=names)
    return _narrowed(_of_files(dataset, splits, around, load), splits, around)


def parted(whole: Dataset, splits: SplitsConfig, around: Surroundings) -> Splits:
    """Split a data set as a project file says; the splits count what it left out."""
    with _placed_at(("splits",), around):
        if splits.field is not None:
            splits_found = Splits.by_field(whole, splits.field)
        else:
            shares = splits.ratio or {}
            splits_found = Splits.by_ratio(
                whole, seed=splits.seed, stratify=splits.stratify, **shares
            )
    return attrs.evolve(_narrowed(splits_found, splits, around), dropped=whole.dropped)


def is_divisible(whole: Dataset) -> bool:
    """Return whether cases ask more than one question, so that a search can learn and compare."""
    return len(set(whole.question_digests.values())) > 1


def _narrowed(sets: Splits, splits: SplitsConfig, around: Surroundings) -> Splits:
    with _placed_at(("splits", "only"), around):
        return sets.narrowed(splits.only)


@contextlib.contextmanager
def _placed_at(path: YamlPath, around: Surroundings) -> Iterator[None]:
    """Name ``path`` in faults, except in those that name the line of a case already."""
    with around.placed(path):
        try:
            yield
        except DataFormatError as error:
            lines = tuple(
                line
                if _OF_A_LINE.match(line)
                else around.file.line(path, line.removeprefix("splits: "))
                for line in error.faults
            )
            raise DataFormatError.of(lines) from error


def _of_files(
    dataset: DatasetConfig,
    splits: SplitsConfig,
    around: Surroundings,
    load: Callable[[DatasetConfig, str, YamlPath], Dataset],
) -> Splits:
    if dataset.path is not None:
        raise around.refusal(
            ("dataset", "path"), "expected none beside `splits.files`; leave one of them out"
        )
    sets: dict[str, Dataset] = {}
    faults: list[str] = []
    for name, files in splits.files_by_set.items():
        place = ("splits", "files", name)
        try:
            parts = [load(dataset, file, place) for file in files]
            with _placed_at(place, around):
                # A single file stays the source of its set, which no other set may have.
                sets[name] = parts[0] if len(parts) == 1 else _joined(parts, name)
        except DataFormatError as error:
            faults.extend(error.faults)
    raise_lines(around.file.name, faults)
    with _placed_at(("splits", "files"), around):
        dropped = sum(part.dropped for part in sets.values())
        return Splits.of_sets(sets, dropped=dropped)


def _joined(parts: Sequence[Dataset], name: str) -> Dataset:
    cases = tuple(case for part in parts for case in part)
    return Dataset(cases, name=name, dropped=sum(part.dropped for part in parts))


def _load(
    dataset: DatasetConfig, name: str, path: YamlPath, *, around: Surroundings, names: CaseNames
) -> Dataset:
    file, case = file_and_case(around.folder / name)
    try:
        refuse_several(file, around.folder)
    except DataFormatError as error:
        raise around.refusal(path, error) from error
    place: str | Path = file if case else around.existing(path, name)
    settings = attrs.asdict(dataset, recurse=False)
    del settings["path"]
    try:
        whole = f"{place}:{case}" if case else place
        return Dataset.load(
            whole, parameters=names.parameters, texts=names.texts, root=around.folder, **settings
        )
    except ConfigError as error:
        key, _, why = str(error).partition(": ")
        if key in settings:
            raise around.refusal(("dataset", key), why) from error
        raise around.refusal(path, error) from error
