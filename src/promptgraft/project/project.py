"""A project: everything that ``promptgraft.yaml`` names, loaded when it is first needed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from promptgraft import search  # whose names are imported at their first use
from promptgraft.adapters.base import ProviderAdapter
from promptgraft.adapters.named import ModelConfig
from promptgraft.errors import CallerError, ConfigError, DataFormatError
from promptgraft.evals.aggregate import Aggregation, check_aggregation
from promptgraft.evals.binding import ParamsOf
from promptgraft.evals.dataset import Dataset
from promptgraft.evals.splits import Splits
from promptgraft.evals.types import Metric
from promptgraft.ground.files import as_path
from promptgraft.ground.serde import Json, did_you_mean
from promptgraft.ground.strict.nodes import Source, raise_lines, spelled
from promptgraft.ground.text import listed
from promptgraft.ground.yaml_text import YamlPath
from promptgraft.overrides.revisioned import RevisionedStore
from promptgraft.project.adding import project_store
from promptgraft.project.format import ProjectConfig, read_project
from promptgraft.project.format_search import TargetsConfig, tuned_settings
from promptgraft.project.models import LateAdapter, checked_model, make_adapter
from promptgraft.project.parts import (
    CaseNames,
    ForeignSource,
    check_fits,
    guarded,
    is_divisible,
    load_files,
    load_named,
    load_project_metrics,
    load_teacher,
    load_whole,
    parted,
    twin_faults,
    unset_variables,
)
from promptgraft.project.project_prompt import ProjectPrompt
from promptgraft.project.python_source import PythonSource, Surroundings
from promptgraft.project.settings import check_fit, described, run_config, target_faults
from promptgraft.search.cases import Judging
from promptgraft.search.config import RunConfig
from promptgraft.search.settings import Size
from promptgraft.targets.prompts import PromptSet

if TYPE_CHECKING:
    from promptgraft.agents.adapter import AgentAdapter


class Project:
    """A project file and what it names. Made by :func:`load_project` and :func:`open_project`.

    Prompts, cases and metrics are loaded at their first use, which raises ``DataFormatError``
    with all their faults. :func:`load_project` has loaded them already.

    Attributes:
        path: the file, as the caller named it.
        folder: its absolute folder; paths in the file are relative to it.
        config: the settings as values.
        surroundings: resolves names in the settings.
        default_store: the store of winners unless the file names one; None for a folder.
    """

    def __init__(
        self, file: Source, config: ProjectConfig, *, default_store: RevisionedStore | None = None
    ) -> None:
        self.path: Path = Path(file.name)
        self.folder: Path = self.path.absolute().parent
        self.config = config
        self.default_store = default_store
        # Messages name files as the user named the project.
        self.surroundings: Surroundings = Surroundings(
            file, self.path.parent, PythonSource(self.path.parent)
        )
        self._prompts: dict[str, ProjectPrompt] = {}
        self._configs: dict[tuple[str, int | Size | None], RunConfig] = {}
        # Judges are made in the threads of a run, several of which may need the same one.
        self._making = threading.Lock()
        self._adapters: dict[YamlPath, ProviderAdapter] = {}

    def __repr__(self) -> str:
        return f"Project({str(self.path)!r}, prompts={list(self.names)})"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the prompts, then of the graphs, in file order."""
        return (*self.config.prompts, *self.config.graphs)

    @property
    def runs_folder(self) -> Path:
        """The folder of run directories, which may not exist yet."""
        return self.folder / self.config.runs

    @property
    def tag(self) -> str:
        """The tag that winners are stored under and searches start from."""
        return self.config.store.tag

    @property
    def workers(self) -> int:
        """The number of concurrent rollouts."""
        return self.config.workers

    def prompt(self, name: str | None = None) -> ProjectPrompt:
        """Return a prompt or graph, without a store. ``name`` may be left out if there is only one.

        Raises:
            ConfigError: there is no such prompt, or a name is needed to choose one.
            DataFormatError: its source has faults.
        """
        chosen = self._name(name)
        if chosen not in self._prompts:
            named_prompt = load_named(chosen, self.config, self.surroundings)
            check_fits(named_prompt, self.config.agent, self.surroundings)
            self._prompts[chosen] = named_prompt
        return self._prompts[chosen]

    @cached_property
    def _whole(self) -> Dataset:
        """The cases before they are split."""
        if self.baml is not None:
            return self.baml.dataset
        return load_whole(
            self.config.dataset, self.config.splits, self.surroundings, names=self.case_names
        )

    @property
    def case_names(self) -> CaseNames:
        """What the prompts call the values of cases, where these become parameters by name."""
        names = CaseNames.of(self.prompt, self.config.prompts)
        return attrs.evolve(names, parameters=None) if self.config.params else names

    @cached_property
    def splits(self) -> Splits:
        """The cases, split into train, validation and optionally test."""
        config = self.config
        if config.splits.files is not None:
            return load_files(
                config.dataset, config.splits, self.surroundings, names=self.case_names
            )
        return parted(self._whole, config.splits, self.surroundings)

    @property
    def unused_cases(self) -> int:
        """How many cases are in no set, because a split by ratio has a share for less than all."""
        ratio = self.config.splits.ratio
        if ratio is None or self.unsplit or sum(ratio.values()) > 0.999999:
            return 0
        return len(self._whole) - sum(map(len, self.splits.parts().values()))

    @cached_property
    def unsplit(self) -> str:
        """Why the cases are not enough for a search; empty if they are."""
        splits = self.config.splits
        if splits.files is not None or splits.field is not None:
            return ""
        if all(case.recorded is not None for case in self._whole):
            return "expected cases without a recorded answer, found none"
        if self.baml is None and is_divisible(self._whole):
            return ""
        try:
            self.splits  # noqa: B018 - a property that raises
        except DataFormatError as error:
            return error.faults[0]
        return ""

    @cached_property
    def parts(self) -> Mapping[str, Dataset]:
        """The cases by set; all are for testing if they are too few for a search."""
        return {"test": self._whole} if self.unsplit else self.splits.parts()

    def check_cases(self, name: str) -> None:
        """Check that the cases suit a prompt and the metrics, where they are too few for a run.

        Raises:
            DataFormatError: a line for each case that does not.
        """
        check_fit(
            self.prompt(name),
            self.parts.values(),
            self.surroundings,
            metrics=self.metrics,
            params=self.params,
            has_teacher=self.config.teacher is not None,
        )

    @cached_property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics that score an answer; their judges are made at the first use."""
        baml_metrics = self.baml.metrics if self.baml is not None else ()
        if self.config.metrics is None:
            return baml_metrics
        judges = {
            name: self._late(("models", "judges", name), config)
            for name, config in self.config.models.judges.items()
        }
        return (
            *baml_metrics,
            *load_project_metrics(self.config.metrics, judges, self.surroundings),
        )

    @cached_property
    def baml(self) -> ForeignSource | None:
        """The BAML function that the project improves, if it improves one."""
        if self.config.baml is None:
            return None
        source = self.prompt().source
        return source if isinstance(source, ForeignSource) else None

    @cached_property
    def aggregation(self) -> Aggregation | None:
        """Combines the scores of several metrics; None for their mean."""
        aggregation = self.config.aggregation
        if aggregation is None:
            return None if self.baml is None else self.baml.aggregation(self.metrics)
        try:
            check_aggregation(aggregation, [metric.name for metric in self.metrics])
        except ConfigError as error:
            name, _, why = str(error).partition(": ")
            raise self.surroundings.refusal(("aggregation", name), why) from error
        return aggregation

    @cached_property
    def params(self) -> ParamsOf | None:
        """Turns a case into the parameters of a prompt; None to match them by name."""
        spec = self.config.params
        return (
            None if spec is None else guarded(self.surroundings.function(("params",), spec), spec)
        )

    def adapter(self, role: str = "task") -> ProviderAdapter:
        """Return the adapter of a role, ``task``, ``reflection`` or ``teacher``; it is made once.

        Raises:
            DataFormatError: it cannot be made, for example because a secret is not set.
            ConfigError: there is no such role.
        """
        roles = ("teacher", "reflection", "task")
        if role not in roles:
            raise ConfigError(f"role: expected one of {listed(roles)}, found {role!r}")
        if role == "task" and self.asking is not None:
            return self.asking
        # A role without a model of its own falls back to the next one.
        paths = [("models", model_role) for model_role in roles[roles.index(role) :]]
        return self.model(next(path for path in paths if path in self.models()))

    @cached_property
    def asking(self) -> AgentAdapter | None:
        """The adapter of the agent; None if a model answers. Secrets need not be set.

        Raises:
            DataFormatError: the agent cannot be made, or the texts cannot be delivered to it.
        """
        if self.baml is not None:
            ask = partial(self.model, ("models", "task")) if self.config.models.task else None
            return self.baml.adapter(self.prompt().prompt, ask)
        if self.config.agent is None:
            return None
        user = self.config.models.user
        model = None if user is None else self._late(("models", "user"), user)
        store = None if model is None else self.store()
        from promptgraft.project.agents import asking

        return asking(self.config, self.prompt(), self.surroundings, user=model, store=store)

    @cached_property
    def teacher(self) -> search.Teacher | None:
        """Answers cases without ``expected``; None if no teacher is configured."""
        if self.config.teacher is None:
            return None
        subject = load_teacher(self.config.teacher, self.surroundings)
        return search.Teacher(subject, self.adapter("teacher"), params=self.params)

    def store(self) -> RevisionedStore:
        """Return the store of winners.

        Raises:
            DataFormatError: its folder does not exist, or its URL is invalid.
        """
        if self.default_store is not None and not self.names_store:
            return self.default_store
        return project_store(self.config.store, self.folder, self.surroundings)

    @property
    def names_store(self) -> bool:
        """Whether the file says where winners are, be it the default folder."""
        document = self.surroundings.file.document.value
        store = document.get("store") if isinstance(document, dict) else None
        is_written = isinstance(store, dict) and "path" in store
        return is_written or self.config.store.url is not None

    def storing_in(self, store: RevisionedStore) -> Project:
        """Return the project with another store, unless its file names one."""
        return Project(self.surroundings.file, self.config, default_store=store)

    def run_config(self, name: str | None = None, *, budget: int | Size | None = None) -> RunConfig:
        """Return the run settings for a prompt, without making a model.

        Args:
            name: the prompt; None for the only one.
            budget: the rollout budget, in place of that of the file, which may be too small.

        Raises:
            ConfigError: see :meth:`prompt`.
            DataFormatError: something that the run needs has faults.
        """
        prompt = self.prompt(name)
        if (prompt.name, budget) not in self._configs:
            judging = Judging(
                splits=self.splits,
                metrics=self.metrics,
                aggregation=self.aggregation,
                params=self.params,
                has_teacher=self.config.teacher is not None,
            )
            optimizer = self.config.optimizer
            if budget is not None:
                settings = {**optimizer.settings, "rollout_budget": budget}
                optimizer = attrs.evolve(optimizer, settings=settings)
            self._configs[prompt.name, budget] = run_config(
                prompt, judging, optimizer=optimizer, around=self.surroundings
            )
        return self._configs[prompt.name, budget]

    def job(
        self, name: str | None = None, *, budget: int | Size | None = None
    ) -> search.OptimizationJob:
        """Return an optimization job for a prompt; arguments as of :meth:`run_config`.

        It learns from the training set, compares on the validation set and holds out the test
        set. The job does not store its winner (``persist=False``). Run it inside
        ``beside(project.folder)``, so that code of the project can import its neighbours.

        Raises:
            ConfigError: see :meth:`prompt`.
            DataFormatError: something that the run needs has faults.
        """
        config = self.run_config(name, budget=budget)
        context = search.OptimizationContext(
            adapter=self.adapter("task"),
            reflection_adapter=self.adapter("reflection"),
            overrides_store=self.store(),
            overrides_tag=self.tag,
            teacher=self.teacher,
        )
        subject, targets = self.prompt(name).subject, self.config.optimizer.targets
        if isinstance(subject, PromptSet) and targets is not None:
            subject = subject.opening(targets.parts)
        return search.OptimizationJob(subject, context, config)

    def tuned(self, settings: Mapping[str, Json]) -> Project:
        """Return the project with some keys of ``optimizer`` replaced by those of a caller.

        A caller is not trusted: settings that name code, files or anything else outside of the
        settings are refused before they are looked at. Those of the project stay as they are.

        Raises:
            DataFormatError: one line for each unknown, unsuitable or refused setting.
        """
        if not settings:
            return self
        document = self.surroundings.file.document.value
        optimizer_settings = document.get("optimizer") if isinstance(document, dict) else None
        optimizer = tuned_settings(
            optimizer_settings if isinstance(optimizer_settings, dict) else {}, settings
        )
        if "targets" in settings and optimizer.targets is not None:
            missing = self.missing_targets(optimizer.targets)
            raise_lines(str(self.path), (f"{spelled(place)}: {fault}" for place, fault in missing))
        config = attrs.evolve(self.config, optimizer=optimizer)
        tuned = Project(self.surroundings.file, config, default_store=self.default_store)
        # The same models: those made already, and those that stand in for them.
        tuned._adapters.update(self._adapters)
        return tuned

    def missing_targets(self, targets: TargetsConfig) -> list[tuple[YamlPath, str]]:
        """Return the place among the settings, and the fault, of targets that no prompt has."""
        prompts = [self.prompt(name).prompt.descriptor for name in self.config.prompts]
        graphs = [self.prompt(name).graph for name in self.config.graphs]
        ids = [part.name for graph in graphs if graph is not None for part in graph.parts]
        return list(target_faults(targets, prompts, ids))

    def model(self, place: YamlPath) -> ProviderAdapter:
        """Return the model at a place in the file, such as ``("models", "task")``.

        Raises:
            DataFormatError: it cannot be made, for example because a secret is not set.
        """
        return self._made(place, self.models()[place])

    def models(self) -> dict[YamlPath, ModelConfig]:
        """Return every model by its place in the file."""
        return self.config.models.by_place

    def stand_in(self) -> list[str]:
        """Make every model for planning, and return a line for each missing secret.

        A model whose secrets are not set is replaced by one that cannot be called.

        Raises:
            DataFormatError: a model cannot be made for another reason.
        """
        around, faults, lacking = self.surroundings, list[str](), list[str]()
        for place, config in self.models().items():
            try:
                self._adapters[place], needed = checked_model(
                    config, what="model", python=around.python
                )
            except ConfigError as error:
                faults.extend(around.refusal(place, error).faults)
            else:
                lacking.extend(around.file.line((*place, *at), text) for at, text in needed)
        if faults:
            raise DataFormatError.of(faults)
        if self.asking is not None:
            lacking.extend(unset_variables(self.asking.agent, around))
        return lacking

    def described(self) -> dict[str, Json]:
        """Return the settings as written, with defaults filled in and secrets as ``${NAME}``."""
        return described(self.surroundings.file.document.value)

    def _name(self, name: str | None) -> str:
        names = listed(self.names)
        if name is None and len(self.names) > 1:
            raise ConfigError(f"{self.path} has several prompts; name one of {names}")
        if name is not None and name not in self.names:
            near = did_you_mean(name, list(self.names))
            raise ConfigError(f"{self.path} has no prompt `{name}`{near}; there: {names}")
        return name or self.names[0]

    def _late(self, path: YamlPath, config: ModelConfig) -> LateAdapter:
        return LateAdapter(config, partial(self._made, path, config))

    def _made(self, path: YamlPath, config: ModelConfig) -> ProviderAdapter:
        with self._making:
            if path not in self._adapters:
                python = self.surroundings.python
                try:
                    self._adapters[path] = make_adapter(config, what=spelled(path), python=python)
                except CallerError as error:
                    raise self.surroundings.refusal(path, error) from error
            return self._adapters[path]


def open_project(path: str | Path) -> Project:
    """Read and check a project file; what it names is loaded when it is first needed.

    Raises:
        DataFormatError: all faults of the file, one line each.
    """
    return Project(*read_project(as_path(path)))


def load_project(path: str | Path, *, budget: Size | None = None) -> Project:
    """Read a project file and load all it names except models, so no secrets are needed.

    Args:
        path: the file.
        budget: a rollout budget in place of that of the file, which may be too small.

    Raises:
        DataFormatError: the first 20 faults, one line each, and the number of the others.
    """
    project = open_project(path)
    raise_lines(str(project.path), faults_of(project, budget=budget))
    return project


def faults_of(project: Project, *, budget: Size | None = None) -> Iterator[str]:
    """Load everything but the models, and yield a line for each fault; ``budget`` as in a job."""
    around, config = project.surroundings, project.config
    parts: list[Callable[[], object]] = [
        *(partial(project.prompt, name) for name in project.names),
        lambda: project.parts,
        lambda: project.metrics,
        lambda: project.params,
        lambda: config.teacher and load_teacher(config.teacher, around),
        lambda: project.asking,
        project.store,
    ]
    lines = [line for part in parts for line in _lines(part)]
    yield from lines
    if lines:
        return
    yield from _lines(lambda: project.aggregation)
    yield from twin_faults(map(project.prompt, project.names), around)
    targets = config.optimizer.targets
    missing = [] if targets is None else project.missing_targets(targets)
    if missing:
        yield from (around.file.line(("optimizer", *place), fault) for place, fault in missing)
        return
    check = project.check_cases if project.unsplit else partial(project.run_config, budget=budget)
    for name in project.names:
        yield from _lines(partial(check, name))


def _lines(part: Callable[[], object]) -> tuple[str, ...]:
    try:
        part()
    except DataFormatError as error:
        return error.faults
    except CallerError as error:
        return (str(error),)
    return ()
