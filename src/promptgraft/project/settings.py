"""The settings of a project: for a run, and as plain data to record with it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import attrs

from promptgraft.algorithms import DEFAULT, algorithm
from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.evals.binding import ParamsOf, params_of_cases
from promptgraft.evals.dataset import Dataset
from promptgraft.evals.metrics.judging import check_cases
from promptgraft.evals.rows import CaseFaults
from promptgraft.evals.types import Case, Metric
from promptgraft.ground.serde import Json, did_you_mean
from promptgraft.ground.text import listed
from promptgraft.ground.yaml_text import YamlPath
from promptgraft.overrides.parts.descriptors import PromptDescriptor, SectionPath, show_path
from promptgraft.overrides.parts.replacements import VisibilityOverride
from promptgraft.overrides.store import DEFAULT_TAG
from promptgraft.project.files import DEFAULT_RUNS
from promptgraft.project.format_search import (
    DEFAULT_RATIO,
    ELSEWHERE,
    OptimizerConfig,
    TargetsConfig,
)
from promptgraft.project.project_prompt import ProjectPrompt
from promptgraft.project.python_source import Surroundings
from promptgraft.prompt.texts import plays_turns
from promptgraft.search.cases import Judging, data_settings
from promptgraft.search.config import RunConfig
from promptgraft.search.settings import (
    DEFAULT_WORKERS,
    Limits,
    Objectives,
    Settings,
    Targets,
    ToolExampleTarget,
    groups_of,
)
from promptgraft.search.stopping import StopFile
from promptgraft.search.targets import check_nodes
from promptgraft.targets import part_kinds
from promptgraft.targets.judging import known
from promptgraft.targets.part import PromptPart
from promptgraft.targets.prompts import free_sections

_BUDGET = "light"
PARTS: Mapping[str, Callable[..., PromptPart]] = {
    "sections": part_kinds.SectionModule,
    "summaries": part_kinds.SummaryModule,
    "tools": part_kinds.ToolModule,
    "output_fields": part_kinds.OutputFieldModule,
    "tool_examples": part_kinds.ToolExampleModule,
    "task_examples": part_kinds.TaskExampleModule,
}
"""The parts that targets of a kind open one by one."""


def run_config(
    prompt: ProjectPrompt, judging: Judging, *, optimizer: OptimizerConfig, around: Surroundings
) -> RunConfig:
    """Return the settings of a run.

    Raises:
        DataFormatError: the settings do not suit the prompt or the cases; with their place.
    """
    targets = targets_of(prompt, optimizer.targets, around)
    try:
        data = data_settings(prompt.prompt, judging)
    except ConfigError as error:
        check_fit(
            prompt,
            judging.splits.parts().values(),
            around,
            metrics=judging.metrics,
            params=judging.params,
            has_teacher=judging.has_teacher,
        )
        raise around.refusal(prompt.place, error) from error
    try:
        check_nodes(prompt.subject, judging.metrics)
    except ConfigError as error:
        raise around.refusal(("metrics",), error) from error
    kind = algorithm(optimizer.algorithm)
    make: Callable[..., RunConfig] = kind
    settings = {"rollout_budget": _BUDGET, **optimizer.settings}
    if isinstance(limits := settings.get("limits"), Limits):
        stoppers = [
            StopFile(around.folder.absolute() / stopper.path)
            if isinstance(stopper, StopFile)
            else stopper
            for stopper in limits.stoppers
        ]
        settings["limits"] = attrs.evolve(limits, stoppers=stoppers)
    for name in kind.functions:
        if isinstance(spec := settings.get(name), str):
            settings[name] = around.function(("optimizer", name), spec)
    try:
        # `promptgraft apply` stores the winner; jobs of a queue turn this on themselves.
        return make(**settings, **targets, **data, persist=False)
    except ConfigError as error:
        name, _, rest = str(error).partition(": ")
        path = name.split(".")
        if path[0] in settings:
            raise around.refusal(("optimizer", *path), rest) from error
        raise around.refusal(("optimizer",), error) from error


def num_runs_of(optimizer: OptimizerConfig) -> int:
    """Return how many times a search or an evaluation answers each case."""
    objectives = optimizer.settings.get("objectives")
    return objectives.num_runs if isinstance(objectives, Objectives) else 1


def check_fit(
    prompt: ProjectPrompt,
    parts: Iterable[Dataset],
    around: Surroundings,
    *,
    metrics: Sequence[Metric],
    params: ParamsOf | None,
    has_teacher: bool,
) -> None:
    """Check that cases suit the metrics and the prompt; a teacher makes up for ``expected``.

    Raises:
        DataFormatError: a line for each case that does not.
    """
    # By place, so that faults come in the order of the file, whatever set a case is in.
    cases = sorted((case for part in parts for case in part), key=_place_of)
    unjudged, unbound = CaseFaults(), CaseFaults()
    source = prompt.prompt
    check_cases(
        metrics,
        known(cases) if has_teacher else cases,
        source.template.output_type,
        by_turn=plays_turns(source),
        noted=unjudged,
    )
    params_of_cases(source, cases, params, noted=unbound)
    lines: list[str] = []
    for path, faults in ((("metrics",), unjudged), (prompt.place, unbound)):
        lines += [around.file.line(path, line) for line in faults.lines]
        if faults.more:
            lines.append(f"{around.file.name}: and {faults.more:,} more")
    if lines:
        raise DataFormatError.of(lines)


def _place_of(case: Case) -> tuple[str, int]:
    file, _, line = case.origin.rpartition(":")
    return file, int(line) if line.isdigit() else 0


def targets_of(
    prompt: ProjectPrompt, targets: TargetsConfig | None, around: Surroundings
) -> Mapping[str, object]:
    """Return the run settings that name the parts of a prompt that may change."""
    if prompt.graph is not None:
        return {}  # a graph declares what may change
    descriptor = prompt.prompt.descriptor
    if targets is None:
        free = free_sections(prompt.prompt)
        if not free:
            raise around.refusal(
                ("prompts", prompt.name),
                "it has no text that may change: each is empty or frozen; write a first one, or "
                "name what may change in `optimizer.targets`",
            )
        return {"target_section_paths": free}
    targets_here, ids = known_targets(descriptor), ids_of_parts(descriptor)
    named: dict[str, tuple[str, ...]] = attrs.asdict(targets)
    for id_ in named.pop("parts"):
        if id_ in ids:
            kind, name = ids[id_]
            named[kind] = tuple(dict.fromkeys((*named[kind], name)))
    chosen = {
        kind: tuple(targets_here[kind][name] for name in names if name in targets_here[kind])
        for kind, names in named.items()
    }
    flat = {
        "target_section_paths": chosen.pop("sections"),
        "target_tool_examples": chosen.pop("tool_examples"),
        "target_task_examples": chosen.pop("task_examples"),
    }
    make: Callable[..., Targets] = Targets  # they have been checked
    return {**flat, "targets": make(**chosen)}


def ids_of_parts(descriptor: PromptDescriptor) -> dict[str, tuple[str, str]]:
    """Return kind and name, as targets have them, of each part that may change, by its id."""
    return {
        part_of(kind, value).name: (kind, name)
        for kind, values in known_targets(descriptor).items()
        if kind in PARTS
        for name, value in values.items()
    }


def part_of(kind: str, value: object) -> PromptPart:
    """Return the part that a target of a kind names."""
    if isinstance(value, ToolExampleTarget):
        return part_kinds.ToolExampleModule(value.tool_name, value.example_index)
    return PARTS[kind](value)


def known_targets(descriptor: PromptDescriptor) -> dict[str, dict[str, object]]:
    """Return all parts of a prompt that may change, by kind and name."""
    return {
        "sections": {"/".join(s.path): s.path for s in descriptor.sections if s.overridable},
        "summaries": {
            "/".join(s.path): s.path
            for s in descriptor.sections
            if s.overridable and s.summary is not None
        },
        "tools": {tool.name: tool.name for tool in descriptor.tools if tool.overridable},
        "output_fields": {
            output_field.field: output_field.field for output_field in descriptor.output_fields
        },
        "tool_examples": {
            f"{tool.name}/{index}": ToolExampleTarget(tool_name=tool.name, example_index=index)
            for tool in descriptor.tools
            if tool.overridable
            for index in range(len(tool.examples))
        },
        "task_examples": {
            "/".join(task_example.path): task_example.path
            for task_example in descriptor.task_examples
            if task_example.overridable
        },
        "visibility": {
            name: tuple(name.split("/")) for name in VisibilityOverride.known(descriptor)
        },
    }


def target_faults(
    targets: TargetsConfig,
    descriptors: Sequence[PromptDescriptor],
    graph_parts: Collection[str] = (),
) -> Iterator[tuple[YamlPath, str]]:
    """Yield the place among the settings, and the fault, of each target that no prompt has."""
    known_by_prompt: list[Mapping[str, Mapping[str, object]]] = [
        {**known_targets(descriptor), "parts": ids_of_parts(descriptor)}
        for descriptor in descriptors
    ]
    known_by_prompt += [{"parts": dict.fromkeys(graph_parts)}]
    for kind in attrs.fields_dict(TargetsConfig):
        names = sorted({name for prompt in known_by_prompt for name in prompt.get(kind, {})})
        for index, name in enumerate(getattr(targets, kind)):
            if name not in names:
                near = did_you_mean(name, names) or f"; there: {listed(names) or 'none'}"
                if graph_parts and kind != "parts":
                    there = sorted(graph_parts)
                    near = f"; those of graphs are named in `targets.parts`: {listed(there)}"
                why = f"no prompt has `{name}`, or it may not change"
                if kind == "visibility":
                    why = _needed(tuple(name.split("/")), descriptors) or why
                yield ("targets", kind, index), f"{why}{near}"


def _needed(path: SectionPath, descriptors: Iterable[PromptDescriptor]) -> str:
    """Return why a section cannot be hidden; empty if no prompt has it."""
    sections = (descriptor.section(path) for descriptor in descriptors)
    needs = (section.needed for section in sections if section is not None and section.needed)
    return next((f"`{show_path(path)}` cannot be hidden, because {why}" for why in needs), "")


def described(written: Json) -> dict[str, Json]:
    """Return the contents of a valid project file, with defaults filled in.

    Secrets stay as they are written: ``${NAME}``.
    """
    # A copy: the document is shared by every project that `tuned` makes of it.
    document_copy = copy.deepcopy(_object(written))
    optimizer = _object(document_copy.get("optimizer"))
    return {
        **document_copy,
        "splits": _splits(_object(document_copy.get("splits"))),
        "optimizer": {
            "algorithm": DEFAULT,
            "rollout_budget": _BUDGET,
            **_filled(algorithm(str(optimizer.get("algorithm", DEFAULT))), optimizer),
        },
        "store": {"path": ".", "tag": DEFAULT_TAG, **_object(document_copy.get("store"))},
        "runs": document_copy.get("runs", DEFAULT_RUNS),
        "workers": document_copy.get("workers", DEFAULT_WORKERS),
    }


def _filled(kind: type[Settings], settings: dict[str, Json]) -> dict[str, Json]:
    """Return settings, including those of groups, with plain defaults filled in."""
    groups = groups_of(kind)
    filled = dict(settings)
    for field in attrs.fields(kind):
        if field.name in ELSEWHERE:
            continue
        if field.name in groups and field.name != "targets":
            filled[field.name] = _filled(groups[field.name], _object(settings.get(field.name)))
        elif isinstance(field.default, (bool, int, float, str)):
            filled.setdefault(field.name, field.default)
    return filled


def _splits(settings: dict[str, Json]) -> dict[str, Json]:
    if "files" in settings or "field" in settings:
        return settings
    return {"ratio": {**DEFAULT_RATIO}, "seed": 0, **settings}


def _object(value: Json) -> dict[str, Json]:
    """Return the members of an object except nulls, which count as left out."""
    members = value if isinstance(value, dict) else {}
    return {name: member for name, member in members.items() if member is not None}
