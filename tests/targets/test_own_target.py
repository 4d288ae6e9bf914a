"""A target without prompts, written from outside with public names only."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest

from cli.console import Console
from promptgraft import (
    FileJournal,
    GepaConfig,
    GepaExample,
    GepaOptimizer,
    GepaResult,
    Limits,
    OptimizationContext,
    OptimizationJob,
    RolloutFeedback,
    RolloutRecord,
    ScriptedAdapter,
    StopReason,
    Targets,
)
from promptgraft.algorithms.gepa import Addition, Blame, WholePrompt
from promptgraft.errors import CallerError, ConfigError, JournalMismatchError
from promptgraft.prompt import PromptTemplate, RenderedPrompt
from promptgraft.search import meta_prompt
from promptgraft.targets import (
    Candidate,
    Identity,
    Module,
    ModuleDescription,
    RejectionReason,
    Target,
    TextTarget,
)
from promptgraft.targets.own import OwnTarget

WORDS = ("sun", "rain", "wind", "snow")


@attrs.frozen
class Paragraph(Module):
    """A part: anything with a name and a kind."""

    name: str
    kind = "paragraph"


@attrs.frozen
class Rubric(Module):
    """A part whose kind brings its own question."""

    name: str
    kind = "rubric"

    @property
    def question(self) -> PromptTemplate[object]:
        return meta_prompt(
            "reflect-rubric",
            name="Reflect on a rubric",
            task="Write a better rubric.",
            form='{"rubric": "<the rubric>"}',
        )


class Forecast(TextTarget):
    """Two texts in a dictionary: an answer is right when they have its word between them."""

    def __init__(
        self, texts: Mapping[str, str], kept: dict[str, str], parts: tuple[Module, ...] = ()
    ) -> None:
        self.texts = dict(texts)
        self.written = kept
        self.parts = parts or tuple(map(Paragraph, texts))

    identity = property(lambda self: Identity(name="weather", details={"texts": self.texts}))
    modules = property(lambda self: self.parts)

    def source(self, module: Module) -> str:
        return self.texts[module.name]

    def rollout(self, candidate: Candidate, example: GepaExample, deadline: Any) -> RolloutRecord:
        said = " ".join(map(str, candidate.changes.values())).split()
        right = example.label in said
        return RolloutRecord(
            example_id=example.id,
            inputs_repr=str(example.label),
            output_repr=" ".join(said),
            tool_trace_repr="",
            feedback=RolloutFeedback(score=float(right), feedback=_hint(example, right)),
        )

    def persist(self, candidate: Candidate, provenance: Any, *, pool: Sequence[Candidate]) -> bool:
        assert candidate in pool
        self.written.update({name: str(text) for name, text in candidate.changes.items()})
        return True


def _hint(example: GepaExample, right: bool) -> str:
    return "right" if right else f"say {example.label}"


TEXTS = {"today": "Expect sun .", "later": "Then nothing ."}


def propose(rendered: RenderedPrompt[Any]) -> str:
    given = {
        segment.placeholder: segment.text
        for section in rendered.sections
        for segment in section.segments
        if segment.placeholder is not None
    }
    text = given["current"].partition("\n")[2].rpartition("\n")[0]
    asked = [word for word in WORDS if f"say {word}" in given["examples"] and word not in text]
    return f"```instruction\n{text} {' '.join(asked[:1])}\n```"


def settings(**changes: Any) -> GepaConfig:
    days = [GepaExample(id=f"d{n}", params=(), label=word) for n, word in enumerate(WORDS * 3)]
    given: dict[str, Any] = {
        "training_examples": days,
        "pareto_set_size": 4,
        "minibatch_size": 4,
        "rollout_budget": 80,
        "keep_anyway": True,
        **changes,
    }
    return GepaConfig(**given)


def context(**changes: Any) -> OptimizationContext:
    writer = ScriptedAdapter(propose, identity="writer")
    return OptimizationContext(reflection_adapter=writer, **changes)


def optimize(kept: dict[str, str] | None = None, **changes: Any) -> GepaResult:
    target = Forecast(TEXTS, {} if kept is None else kept)
    return GepaOptimizer(context(**changes), settings()).optimize(target)


def test_it_is_improved_and_kept_without_a_section_an_adapter_or_a_feedback_function() -> None:
    kept: dict[str, str] = {}
    result = optimize(kept)
    assert (result.baseline_pareto_mean, result.best_pareto_mean) == (0.25, 1)
    assert result.persisted
    assert kept == result.best.changes
    assert result.name == "weather"
    assert result.best_overrides == {}
    assert {module.name for one in result.candidates for module in one.modules} <= {*TEXTS}
    assert "weather" in repr(result)
    assert "rain" in str(result._repr_html_())


def test_it_is_a_target() -> None:
    assert isinstance(Forecast(TEXTS, {}), Target)


def test_cut_anywhere_and_resumed_it_ends_the_same(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with FileJournal(path) as journal:
        whole = optimize(journal=journal)
    lines = path.read_bytes().splitlines(keepends=True)
    for kept in (1, 2, *range(3, len(lines), 3), len(lines)):
        path.write_bytes(b"".join(lines[:kept]))
        with FileJournal(path) as journal:
            assert optimize(journal=journal) == whole
        assert path.read_bytes() == b"".join(lines)


def test_other_texts_are_another_run(tmp_path: Path) -> None:
    with FileJournal(tmp_path / "journal.jsonl") as journal:
        optimize(journal=journal)
        other = Forecast({**TEXTS, "later": "Then snow ."}, {})
        with pytest.raises(JournalMismatchError, match="texts"):
            GepaOptimizer(context(journal=journal), settings()).optimize(other)


def test_the_result_does_not_depend_on_workers() -> None:
    with ThreadPoolExecutor(4) as executor:
        assert optimize(executor=executor) == optimize()


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"rollout_budget": 40}, StopReason.BUDGET),
        ({"limits": Limits(max_reflections=3)}, StopReason.REFLECTIONS),
    ],
)
def test_limits_hold(limits: dict[str, Any], reason: StopReason) -> None:
    # Words of which no text ever says the last: the search goes on until something stops it.
    hopeless = [
        *(GepaExample(id=f"x{n}", params=(), label="never") for n in range(4)),
        *settings().training_examples,
    ]
    found = GepaOptimizer(context(), settings(training_examples=hopeless, **limits)).optimize(
        Forecast(TEXTS, {})
    )
    assert found.stop_reason is reason
    assert found.total_rollouts <= limits.get("rollout_budget", 80)
    if "limits" in limits:
        assert found.total_reflections <= limits["limits"].max_reflections


def test_a_plan_says_what_is_known() -> None:
    plan = GepaOptimizer(context(), settings()).plan(Forecast(TEXTS, {}))
    task, reflection = plan.roles
    assert (plan.rollouts, task.calls, task.cost, plan.tokens) == (80, None, None, None)
    assert reflection.model == "writer"
    assert reflection.input_tokens is not None
    assert reflection.calls


def test_what_no_target_brings_is_asked_for() -> None:
    with pytest.raises(ConfigError, match="reflection_adapter: expected a model"):
        GepaOptimizer(OptimizationContext(), settings()).optimize(Forecast(TEXTS, {}))
    with pytest.raises(ConfigError, match="no single prompt"):
        GepaOptimizer(context(), settings(targets=Targets(tools=("search",)))).plan(
            Forecast(TEXTS, {})
        )


def test_a_kind_of_part_brings_its_own_question() -> None:
    class Rubrics(Forecast):
        def describe(self, module: Module, candidate: Candidate) -> ModuleDescription:
            found = super().describe(module, candidate)
            return attrs.evolve(found, meta_prompt="reflect-rubric", as_json=True)

        def graft(self, candidate: Candidate, module: Module, proposal: str, **more: Any) -> Any:
            return super().graft(candidate, module, json.loads(proposal)["rubric"], **more)

    asked: list[str] = []

    def answer(rendered: RenderedPrompt[Any]) -> str:
        asked.append(rendered.key)
        return '```json\n{"rubric": "sun rain wind snow"}\n```'

    writer = OptimizationContext(reflection_adapter=ScriptedAdapter(answer))
    target = Rubrics(TEXTS, {}, tuple(map(Rubric, TEXTS)))
    result = GepaOptimizer(writer, settings()).optimize(target)
    assert set(asked) == {"reflect-rubric"}
    assert "sun rain wind snow" in result.best.changes.values()


def _fail(*_: object, **__: object) -> Any:
    raise KeyError("weather")


@pytest.mark.parametrize(
    ("method", "about"),
    [
        ("describe", r" \(part `today`\)"),
        ("check", ""),
        ("estimate", ""),
        ("baseline", ""),
        ("graft", r" \(part `(today|later)`, a child of candidate \d+\)"),
    ],
)
@pytest.mark.parametrize(
    ("faulty", "said"), [(_fail, "raised KeyError: 'weather'"), (lambda *_, **__: 5, "returned 5")]
)
def test_a_fault_of_its_methods_names_class_method_and_part(
    method: str, about: str, faulty: Any, said: str
) -> None:
    if method == "check" and faulty is not _fail:
        return  # what it returns is not looked at
    broken = type("Broken", (Forecast,), {method: faulty})
    with pytest.raises(CallerError, match=rf"target Broken: `{method}`{about} {said}") as caught:
        GepaOptimizer(context(), settings()).optimize(broken(TEXTS, {}))
    if method == "graft":
        assert isinstance(caught.value.result, GepaResult)
        assert caught.value.result.baseline_pareto_mean == 0.25


@pytest.mark.parametrize("parts", [(), (Paragraph("today"), Rubric("today"))])
def test_parts_that_cannot_be_told_apart_are_refused(parts: tuple[Module, ...]) -> None:
    broken = type("Broken", (Forecast,), {"modules": parts})
    with pytest.raises(CallerError, match="target Broken: `modules`: expected at least one part"):
        GepaOptimizer(context(), settings()).optimize(broken(TEXTS, {}))


def test_a_record_of_another_example_is_refused() -> None:
    class Broken(Forecast):
        def rollout(self, candidate: Candidate, example: Any, deadline: Any) -> RolloutRecord:
            return attrs.evolve(super().rollout(candidate, example, deadline), example_id="d77")

    with pytest.raises(CallerError, match=r"example `d\d+`: the record is of example 'd77'; at"):
        GepaOptimizer(context(), settings()).optimize(Broken(TEXTS, {}))


def test_a_fault_of_a_merge_names_its_sides() -> None:
    target = OwnTarget(type("Broken", (Forecast,), {"merge": _fail})(TEXTS, {}))
    one = target.baseline()
    said = r"target Broken: `merge` \(a child of candidate 1 and 2\) raised KeyError"
    with pytest.raises(CallerError, match=said):
        target.merge(one, one, one, parents=(1, 2), examples=())


def _of_length(length: int, rendered: RenderedPrompt[Any]) -> str:
    text = "x" * length
    if rendered.key == "reflect-prompt":
        edits = [{"part": "P1", "text": text}]
        return f"```json\n{json.dumps({'edits': edits})}\n```"
    return f"```instruction\n{text}\n```"


def test_a_part_is_described_beside_the_others() -> None:
    target = Forecast(TEXTS, {})
    today, later = target.modules
    described = target.describe(today, target.baseline())
    assert [*described.neighbours] == [(later.name, target.source(later))]


@pytest.mark.parametrize("addition", [Blame(), WholePrompt(share=1.0)])
def test_a_text_that_is_too_long_is_refused(addition: Addition) -> None:
    class Short(Forecast):
        max_part_chars = 20

    target = Short(TEXTS, {})
    today, later = (target.describe(one, target.baseline()) for one in target.modules)
    # Twice as long as it is, a text may be whatever the limit.
    assert (today.max_chars, later.max_chars) == (24, 28)
    for length, reasons in ((29, {RejectionReason.TOO_LONG}), (24, {RejectionReason.NOT_BETTER})):
        adapter = ScriptedAdapter(partial(_of_length, length), identity="writer")
        writer = OptimizationContext(reflection_adapter=adapter)
        config = settings(rollout_budget=40, additions=[addition])
        result = GepaOptimizer(writer, config).optimize(target)
        found = {one.reason for one in result.rejections}
        assert found - {RejectionReason.DUPLICATE} == reasons


JOB = """
from targets.test_own_target import TEXTS, Forecast, OptimizationJob, context, settings

KEPT = {}
JOB = OptimizationJob(Forecast(TEXTS, KEPT), context(), settings())
"""


def test_the_command_line_plans_runs_shows_and_resumes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("jobs.py").write_text(JOB)

    def call(*arguments: str, code: int = 0) -> str:
        ended = Console(capsys)(*arguments)
        assert ended.code == code, ended.err
        return ended.err if code == 2 else ended.out

    assert "weather" in call("plan", "jobs.py:JOB")
    done = json.loads(call("optimize", "jobs.py:JOB", "--json", code=1).splitlines()[-1])
    assert done["verdict"] == "better on validation, not checked"
    assert set(done["winner"]["entries"]) == {*TEXTS}
    assert {part["kind"] for part in done["parts"]} == {"text"}
    assert {part["before"] for part in done["parts"]} <= {*TEXTS.values()}

    (run,) = (tmp_path / "runs").iterdir()
    assert run.name.endswith("weather")
    assert json.loads((run / "result.json").read_text())["parts"] == done["parts"]
    assert "rain" in call("show", "latest", "--candidate", str(done["best"]))
    assert "weather" in (run / "report.html").read_text()
    assert f"promptgraft show {run.name}" in call("resume", run.name, code=1)
    assert "keeps winners itself" in call("apply", "--keep-anyway", code=2)


def test_a_fault_of_its_methods_is_no_internal_error_of_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("broken_jobs.py").write_text(
        JOB.replace(
            "KEPT = {}",
            "KEPT = {}\n\nclass Broken(Forecast):\n"
            "    def graft(self, *_, **__):\n        return 1 / 0\n",
        ).replace("(Forecast(", "(Broken(")
    )
    ended = Console(capsys)("optimize", "broken_jobs.py:JOB", "--quiet")
    assert ended.code == 2
    assert "target Broken: `graft` (part `" in ended.err
    assert "raised ZeroDivisionError: division by zero" in ended.err


def test_a_job_of_a_target_has_a_name_and_no_prompt() -> None:
    job = OptimizationJob(Forecast(TEXTS, {}), context(), settings())
    assert (job.name, dict(job.prompts)) == ("weather", {})
    with pytest.raises(ConfigError, match="expected a job for one prompt"):
        _ = job.prompt
    assert job.dry().run().persisted is False


def test_a_dry_run_leaves_what_a_target_calls_its_user() -> None:
    target = Forecast(TEXTS, {})
    target.user = "alice"  # type: ignore[attr-defined]
    job = OptimizationJob(target, context(), settings(feedback_fn=None))
    assert (
        job.dry().plan() == OptimizationJob(Forecast(TEXTS, {}), context(), settings()).dry().plan()
    )
