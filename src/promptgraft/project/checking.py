"""A check of everything that a project names, without a model call."""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from urllib.parse import urlsplit

import attrs

from promptgraft.adapters.abilities import end_of_model
from promptgraft.adapters.base import ToolInvoked, Usage
from promptgraft.adapters.named import HOSTED, ModelConfig, hosted
from promptgraft.adapters.providers import KNOWN
from promptgraft.agents.adapter import AgentAdapter, probe
from promptgraft.agents.command import CommandAgent
from promptgraft.agents.http import HttpAgent
from promptgraft.algorithms import algorithm
from promptgraft.errors import (
    CallerError,
    ConfigError,
    DataFormatError,
    Lasting,
    PromptgraftError,
    lasting_of,
)
from promptgraft.evals.alike import alike
from promptgraft.evals.attempt import plain_output
from promptgraft.evals.binding import params_of_cases
from promptgraft.evals.evaluate import check_served
from promptgraft.evals.metrics.base import asks_models, verdict_on
from promptgraft.evals.metrics.judging import can_judge
from promptgraft.evals.metrics.reading import brief
from promptgraft.evals.splits import Splits
from promptgraft.evals.types import Answer, Case, Metric
from promptgraft.ground.clock import SystemClock
from promptgraft.ground.environment import Secret
from promptgraft.ground.serde import Json
from promptgraft.ground.strict.nodes import raise_lines
from promptgraft.ground.text import counted, listed
from promptgraft.ground.yaml_text import YamlPath
from promptgraft.project.adding import check_trackers
from promptgraft.project.agents import TextsSource
from promptgraft.project.format_agents import TextsConfig
from promptgraft.project.format_models import named_host
from promptgraft.project.project import Project, faults_of, open_project
from promptgraft.project.project_prompt import ProjectPrompt
from promptgraft.project.python_source import NOT_RUN, beside, without_code
from promptgraft.runtime.session import Session
from promptgraft.search import RunPlan
from promptgraft.targets.prompts import free_sections


@attrs.frozen(kw_only=True)
class Checked:
    """The result of a check: the project, or its faults.

    Attributes:
        project: the project; None if it has faults.
        faults: one line each.
        warnings: one line each.
        protected: what no search changes although it is in the files of texts, one line each.
        notes: how the text that is sent differs from a file, one line each.
        unchecked: what was not tried, and why; one line each.
        sent: the variables that a run sends, and to whom, one line each; only of a check without
            code.
        plans: the plan of a run of each prompt, by name.
    """

    project: Project | None = None
    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    sent: tuple[str, ...] = ()
    plans: Mapping[str, RunPlan] = attrs.field(factory=dict)


def try_metrics(project: Project) -> Trial:
    """Try the metrics of a project on empty and expected answers; see ``Trial``.

    ``optimize`` and ``eval`` do the same before the first paid call.

    Raises:
        DataFormatError: a metric fails on both.
    """
    cases = [case for part in project.parts.values() for case in part]
    trial, file = tried_metrics(project.metrics, cases), project.surroundings.file
    if trial.faults:
        raise DataFormatError.of([file.line(("metrics",), fault) for fault in trial.faults])
    warnings = tuple(file.line(("metrics",), warning) for warning in trial.warnings)
    return attrs.evolve(trial, warnings=warnings)


def check_project(path: str | Path) -> Checked:
    """Check everything that a project names. No model is called; secrets need not be set."""
    try:
        project = open_project(path)
    except DataFormatError as error:
        return Checked(faults=error.faults)
    try:
        raise_lines(str(project.path), faults_of(project))
    except DataFormatError as error:
        return Checked(faults=error.faults, warnings=_about_tests(project))
    faults: list[str] = []
    warnings: list[str] = []
    unchecked: tuple[str, ...] = ()
    try:
        warnings.extend(project.stand_in())
    except DataFormatError as error:
        faults.extend(error.faults)
    around = project.surroundings
    try:
        check_trackers(project.config.trackers)
    except ConfigError as error:
        # Only a run needs the package, so the project itself is valid.
        warnings.append(around.file.line(("trackers",), str(error)))
    ends = {} if faults else dict(_ends(project))
    warnings.extend(ends.values())
    warnings.extend(_about_cases(project))
    warnings.extend(_without_handlers(project))
    try:
        trial = try_metrics(project)
        warnings.extend(trial.warnings)
        unchecked = trial.unchecked
    except DataFormatError as error:
        faults.extend(error.faults)
    plans = {}
    # Without all models no job can be made.
    for name in () if faults else project.names:
        if unserved := _unserved(project, name):
            faults.append(unserved)
        if unserved or project.unsplit:
            continue
        try:
            plans[name] = project.job(name).plan()
        except ConfigError as error:
            faults.extend(around.refusal(("optimizer",), error).faults)
        else:
            plan_warnings = (warning for warning in plans[name].warnings if warning not in ends)
            warnings.extend(
                around.file.line(("prompts", name), warning) for warning in plan_warnings
            )
    if faults:
        return Checked(faults=tuple(dict.fromkeys(faults)), warnings=tuple(warnings))
    return Checked(
        project=project,
        warnings=tuple(warnings),
        protected=tuple(_protected(project)),
        notes=tuple(_notes(project)),
        unchecked=unchecked,
        plans=plans,
    )


@attrs.frozen(kw_only=True)
class Probed:
    """One call of an agent: the case that it was asked, and its answer as text and as data.

    ``tools`` names the tools that it called; None if it does not report them.
    """

    agent: str
    case: str
    text: str
    output: Json = attrs.field(default=None, hash=False)
    tools: tuple[str, ...] | None = None

    @property
    def line(self) -> str:
        """What was called, and what came back."""
        value = self.text if self.output is None else self.output
        what = next(what for kind, what in _KINDS if isinstance(value, kind))
        calls = "" if self.tools is None else f" after calling {listed(self.tools) or 'no tool'}"
        return (
            f"called agent `{self.agent}` once, with case `{self.case}`; it answered{calls} with "
            f"{what}: {brief(value)}"
        )


# A bool is an int, too.
_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (str, "a text"),
    (bool, "a truth value"),
    ((int, float), "a number"),
    (list, "a list"),
    (dict, "an object"),
)


def probe_agent(project: Project) -> Probed:
    """Call the agent of a project once, with the first turn of its first case.

    Raises:
        ConfigError: the project has no agent that is called.
        CallerError: the agent failed, or what it needs is not there.
        ProviderError: it was unreachable.
    """
    adapter = project.asking
    if not isinstance(adapter, AgentAdapter):
        raise ConfigError(
            f"--probe: {project.path} names no `agent` to call; `promptgraft eval` calls a model"
        )
    case = next(case for part in project.parts.values() for case in part)
    with beside(project.folder):
        session = Session(tags={"scope": "probe", "example": case.id})
        answer = probe(adapter, project.prompt().prompt, case, session)
    tools = tuple(use.name for use in session.select_all(ToolInvoked))
    return Probed(
        agent=adapter.agent.name,
        case=case.id,
        text=answer.text,
        output=plain_output(answer.output),
        tools=tools if tools or adapter.reports_tools else None,
    )


def check_without_code(path: str | Path) -> Checked:
    """Check a project without importing or running any Python of it.

    ``unchecked`` names each reference to Python, and what needs the code behind it. A project
    without Python is checked as :func:`check_project` does.
    """
    with without_code():
        try:
            project = open_project(path)
        except DataFormatError as error:
            return Checked(faults=error.faults)
        lines = [*faults_of(project), *_formatter_lines(project)]
        try:
            warnings = project.stand_in()
        except DataFormatError as error:
            lines.extend(error.faults)
            warnings = []
        sent = tuple(sent_variables(project))
        unrun = [line for line in (*lines, *warnings) if line.endswith(NOT_RUN)]
        if not unrun:
            return attrs.evolve(check_project(path), sent=sent)
    unrun.append("what needs this Python: cases against prompts and metrics, targets, plans")
    return Checked(
        faults=tuple(line for line in dict.fromkeys(lines) if line not in unrun),
        warnings=tuple(line for line in warnings if line not in unrun),
        unchecked=tuple(dict.fromkeys(unrun)),
        sent=sent,
    )


def _formatter_lines(project: Project) -> Iterator[str]:
    """Yield a line for each function in ``optimizer`` that cannot be loaded."""
    optimizer = project.config.optimizer
    for name in algorithm(optimizer.algorithm).functions:
        if isinstance(spec := optimizer.settings.get(name), str):
            try:
                project.surroundings.function(("optimizer", name), spec)
            except DataFormatError as error:
                yield from error.faults


def _protected(project: Project) -> Iterator[str]:
    """Yield a line, with its place, for each text that no search changes by itself."""
    file = project.surroundings.file
    for prompt in map(project.prompt, project.names):
        source = prompt.source
        for text, line in source.protected() if isinstance(source, TextsSource) else ():
            yield file.line((*prompt.place, "files", text), line)
        if project.config.optimizer.targets is None:
            for name in _bare_sections(prompt):
                line = f"section `{name}` is nothing but placeholders, so no search changes it"
                yield file.line(prompt.place, f"{line}; `optimizer.targets` opens it")


# Placeholders of Jinja, f-strings and LangChain; braces of JSON hold other text.
_VALUE_PLACE = re.compile(
    r"""\{\{-?\s*\w+(?:\.\w+)*\s*(?:\|[^{}]*)?-?\}\}|\$?\{\w+(?:\.\w+)*(?::[^\s{}"']+)?\}"""
    r"""|\{\{[#/^&$.][^{}"'\n]+\}\}"""  # Handlebars, Dify, Semantic Kernel, Go
)


def _unguarded(project: Project, prompt: ProjectPrompt) -> Iterator[str]:
    """Yield a line for each text of an agent whose places for values a rewrite may lose."""
    config = project.config.prompts.get(prompt.name)
    if isinstance(config, TextsConfig) and isinstance(prompt.source, TextsSource):
        for name, text in prompt.source.sources.texts.items():
            file = prompt.source.sources.files.get(name)
            if file is not None and not file.at and file.path.suffix in (".json", ".yaml", ".yml"):
                yield (
                    f"text `{name}` is all of {file.path.name}, which a rewrite may break; "
                    f"`{{path: {file.path.name}, at: PLACE}}` names a text in it"
                )
            places = dict.fromkeys(match[0] for match in _VALUE_PLACE.finditer(text))
            if lost := [place for place in places if place not in config.placeholders]:
                yield (
                    f"text `{name}` has {listed(lost)}, which a rewrite may leave out; list in "
                    "`placeholders` what has to stay"
                )


def _notes(project: Project) -> Iterator[str]:
    """Yield a line for each Markdown file that is not sent as written, and for unguarded places."""
    for prompt in map(project.prompt, project.names):
        source = prompt.source
        # Only Markdown has this method: texts are sent as they are, BAML functions by BAML.
        tell = getattr(source, "sent_differently", None)
        if tell is not None and (ways := tell()):
            line = f"{ways}; `verbatim: true` in the front matter sends the file as it is written"
            yield project.surroundings.file.line(prompt.place, line)
        for line in _unguarded(project, prompt):
            yield project.surroundings.file.line(prompt.place, line)


def _bare_sections(prompt: ProjectPrompt) -> Iterator[str]:
    """Yield the sections that no search changes because they are nothing but placeholders."""
    if prompt.graph is not None:
        return
    free = free_sections(prompt.prompt)
    for section in prompt.prompt.descriptor.sections:
        has_body = prompt.prompt.section_body(section.path).strip()
        if section.overridable and has_body and section.path not in free:
            yield "/".join(section.path)


def _ends(project: Project) -> Iterator[tuple[str, str]]:
    """Yield a warning, and the same with its place, for each model that ends soon or has ended."""
    today = SystemClock().now().date()
    for place in project.models():
        adapter = project.model(place)
        end = end_of_model(adapter)
        if end is not None and end.is_near(today):
            yield end.line(today), project.surroundings.file.line(place, end.line(today))


def _about_cases(project: Project) -> Iterator[str]:
    """Yield a line for rows left out, for too few tests, and for each test that judges nothing."""
    if project.unsplit:
        yield f"{project.unsplit}; a run needs them, `check`, `eval` and `render` do not"
    elif dropped := project.splits.dropped:
        message = f"{counted(dropped, 'row')} left out, repeating another one"
        yield project.surroundings.file.line(("dataset", "duplicates"), message)
    if unused := project.unused_cases:
        message = f"{counted(unused, 'case')} in no set, because the shares sum to less than 1"
        yield project.surroundings.file.line(("splits", "ratio"), message)
    if names := _images_as_text(project):
        line = f"{listed(names)} holds an image as text; `images: [{', '.join(names)}]` shows it"
        yield project.surroundings.file.line(("dataset",), line)
    if not project.unsplit:
        for line in _alike(project.splits):
            yield project.surroundings.file.line(("dataset",), line)
    yield from _about_tests(project)


def _without_handlers(project: Project) -> Iterator[str]:
    """Yield a line for each prompt whose tools a model may call, and nothing answers."""
    if project.asking is not None:
        return
    for prompt in map(project.prompt, project.names):
        sections = () if prompt.graph is not None else prompt.prompt.template.walked
        tools = (tool for _, section in sections for tool in section.tools)
        if names := [tool.name for tool in tools if tool.handler is None]:
            line = (
                f"a model that calls {listed(names)} gets an error: no "
                "function answers; name one as `handler`, or all with `handlers: file.py`"
            )
            yield project.surroundings.file.line(prompt.place, line)


def _images_as_text(project: Project) -> list[str]:
    """Return the names of values that are data URLs of images, but texts to the model."""
    inputs = [case.input for part in project.parts.values() for case in part]
    values = (item for value in inputs if isinstance(value, dict) for item in value.items())
    texts = ((name, value) for name, value in values if isinstance(value, str))
    return list(dict.fromkeys(name for name, text in texts if text.startswith("data:image/")))


def _alike(splits: Splits) -> Iterator[str]:
    """Yield a line for test cases that ask nearly the same as another case, and name no family."""
    if splits.test is None:
        return
    cases = [case for part in splits.parts().values() for case in part]
    searched = {case.id for part in (splits.train, splits.validation) for case in part}
    families = {case.id: case.family for case in cases}
    twins = alike(cases)
    like_searched: dict[str, str] = {}
    like_tested: dict[str, str] = {}
    # The first case of a group is of the test set only if the whole group is.
    for id_ in splits.test.ids:
        twin = twins.get(id_)
        if twin is not None and not families[id_] == families[twin] != "":
            (like_searched if twin in searched else like_tested)[id_] = twin
    mend = "give cases that belong together a column `family`, and list it in `keep`"
    whole = len(splits.test)
    if like_searched:
        yield (
            f"{len(like_searched)} of {whole} test cases ask nearly the same as a case that "
            f"the search sees ({_example(like_searched)}), so a gain looks larger than it is; "
            f"{mend}"
        )
    if like_tested:
        yield (
            f"{len(like_tested)} of {whole} test cases ask nearly the same as another test case "
            f"({_example(like_tested)}), so they prove less than their number; {mend}"
        )


def _example(twins: Mapping[str, str]) -> str:
    id_, twin = next(iter(twins.items()))
    return f"`{id_}` as `{twin}`"


def _about_tests(project: Project) -> tuple[str, ...]:
    """Return a line for each test that judges nothing."""
    try:
        return () if project.baml is None else project.baml.warnings
    except CallerError:  # the function has faults, which are reported
        return ()


def _unserved(project: Project, name: str) -> str:
    """Return why the task's model cannot answer a prompt, with its place; empty if it can."""
    prompt = project.prompt(name)
    cases = project.parts["test" if project.unsplit else "validation"].cases[:1]
    bound = params_of_cases(prompt.prompt, cases, project.params).values()
    try:
        check_served(prompt.answered_by(project.adapter("task")), prompt.prompt, bound)
    except ConfigError as error:
        return project.surroundings.file.line(prompt.place, str(error))
    return ""


_USAGE = Usage(input_tokens=1, output_tokens=1)


@attrs.frozen(kw_only=True)
class Trial:
    """What a trial of metrics has shown, one line each.

    Attributes:
        faults: metrics that fail on the expected answer, as on the empty one.
        warnings: metrics that fail on one of both, or compare data letter by letter.
        unchecked: metrics that were not tried, and why.
    """

    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()


def tried_metrics(metrics: Sequence[Metric], cases: Iterable[Case]) -> Trial:
    """Call each metric on an empty answer and on the expected one of cases that it can judge.

    They are one of each form, since what fails is often a key or a value that some cases lack.
    Metrics that ask a model are not called.
    """
    chosen = tuple(cases)
    of_each_form = dict[str, Case]()
    for case in filter(_is_plain, chosen):
        of_each_form.setdefault(_form([case.input, case.expected]), case)
    faults, warnings, unchecked = list[str](), list[str](), list[str]()
    for metric in metrics:
        if asks_models(metric):
            unchecked.append(f"metric `{metric.name}` asks a model")
            continue
        judged = [case for case in of_each_form.values() if can_judge(metric, case)][:_MOST_TRIED]
        if not judged:
            why = "no case shows its expected answer"
            if chosen and all(case.turns for case in chosen):
                why = "all cases have several turns, and it is tried on single questions only"
            unchecked.append(f"metric `{metric.name}`: {why}")
            continue
        trials = [[_fault(metric, case, data) for data in ("", case.expected)] for case in judged]
        if always := [expected for empty, expected in trials if empty and expected]:
            faults.append(str(always[0]))
        elif failed := [(empty, expected) for empty, expected in trials if empty or expected]:
            empty, expected = failed[0]
            what = "an empty answer" if empty else "the expected answer"
            warnings.append(f"fails on {what}, and {_effect(empty or expected)}")
        else:
            warnings.extend(_of_letters(metric, judged[0], chosen))
    return Trial(faults=tuple(faults), warnings=tuple(warnings), unchecked=tuple(unchecked))


_MOST_TRIED = 4
"""Cases on which a metric is tried, which may be slow."""


def _form(value: object) -> str:
    """Return the keys of a value and the types of what is in it, as a text."""
    if isinstance(value, dict):
        return str(sorted((key, _form(member)) for key, member in value.items()))
    return str([*map(_form, value)]) if isinstance(value, (list, tuple)) else type(value).__name__


def _is_plain(case: Case) -> bool:
    return case.expected is not None and not case.turns


def _of_letters(metric: Metric, case: Case, cases: Sequence[Case]) -> Iterator[str]:
    """Yield a line if all expected answers are texts of data whose layout decides the score."""
    there = [case.expected for case in cases if case.expected is not None]
    if any(_otherwise(expected) is None for expected in there):
        return
    told, otherwise = (
        verdict_on(metric, case, _answer(said))
        for said in (case.expected, _otherwise(case.expected))
    )
    if told.score and otherwise.score == 0:
        yield (
            f"metric `{metric.name}` compares letters, and all expected answers are data in texts, "
            f"such as {brief(case.expected)}: the same data written otherwise scores 0; "
            "`json_match` compares objects; a list of accepted texts is a list in a file of JSONL, "
            "and `fields` may name a path into a column"
        )


def _otherwise(value: Json) -> str | None:
    """Return the same data in another layout than in a text; None for other texts and values."""
    if not isinstance(value, str) or value.strip()[:1] not in {"[", "{", '"'}:
        return None
    try:
        data = json.loads(value)
    except ValueError:
        try:
            data = ast.literal_eval(value.strip())  # as pandas writes lists
        except (MemoryError, RecursionError, SyntaxError, ValueError):
            return None
    return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, indent=1)


def _fault(metric: Metric, case: Case, output: object) -> CallerError | None:
    """Return how a metric fails on an answer; None if it does not."""
    try:
        verdict_on(metric, case, _answer(output))
    except CallerError as error:
        return error
    except PromptgraftError:  # of what a metric calls, such as a server that is down
        return None
    return None


def _effect(error: CallerError | None) -> str:
    is_down = error is not None and lasting_of(error.__cause__ or error) is Lasting.TRANSIENT
    return f"such an answer {'stays unscored' if is_down else 'ends a run'}: {error}"


def _answer(output: object) -> Answer:
    text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
    answer = Answer(text=text, usage=_USAGE, cost=Decimal(0), seconds=0.0)
    if not isinstance(output, str):
        answer = attrs.evolve(answer, output=json.loads(text))
    return answer


def sent_variables(project: Project) -> Iterator[str]:
    """Yield a line for each variable that a project sends, with its place and who gets it.

    No value of a variable is in them, but the host in an address that the environment sets.
    """
    file = project.surroundings.file
    for place, config in project.models().items():
        recipient = _recipient(config)
        for path, names in _names(config):
            for name in names:
                yield file.line((*place, *path), f"{name} goes to {recipient}")
    try:
        agent = project.asking.agent if project.asking is not None else None
    except CallerError:  # a fault, or Python that was not run, which other lines name
        agent = None
    if isinstance(agent, CommandAgent):
        for name in agent.variables:
            yield file.line(("agent",), f"{name} goes to the command `{agent.name}`")
    if isinstance(agent, HttpAgent):
        for name in agent.variables:
            yield file.line(("agent",), f"{name} goes to {urlsplit(agent.url).hostname}")
    if (url := project.config.store.url) is not None:
        host = named_host(url) or "the database that it names"
        for name in Secret(url).names:
            yield file.line(("store", "url"), f"{name} goes to {host}")


def _names(config: ModelConfig) -> Iterator[tuple[YamlPath, tuple[str, ...]]]:
    """Yield the variables of a model by the option that names them, and those that it reads."""
    for name, option in config.options.items():
        if isinstance(option, Secret):
            yield (name,), option.names
    for name, header in config.headers.items():
        yield ("headers", name), header.names
    if config.api_key is not None:
        yield ("api_key",), config.api_key.names
        return
    usual = KNOWN[config.provider].keys if config.provider in KNOWN else ()
    is_signed = any(name.lower() == "authorization" for name in config.headers)
    if usual and not is_signed:
        yield (), (next(filter(os.environ.get, usual), usual[0]),)


def _recipient(config: ModelConfig) -> str:
    """Return the host that a model is called at, as far as it can be told without a call."""
    address = config.options.get("base_url")
    if isinstance(address, Secret):
        return named_host(address.written) or f"the host in {', '.join(address.names)}"
    if address is None and config.provider in HOSTED:
        variable = hosted(config.provider).service.address_variable
        address = os.environ.get(variable)
        if address:
            return f"{urlsplit(address).hostname}, from {variable}"
    if address is not None:
        return named_host(address) or "no valid host"
    provider = KNOWN.get(config.provider)
    return (
        provider.hosts[0]
        if provider and provider.hosts
        else f"a host that {config.provider} chooses"
    )
