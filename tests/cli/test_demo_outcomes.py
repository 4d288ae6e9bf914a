"""Every outcome of the demo, on a toy job."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.console import Console
from optimizers.worlds import NOTES, RULES, TEMPLATE, answer, examples, judge, propose, twin, twins
from promptgraft import Data, GepaConfig, OptimizationContext, OptimizationJob, Prompt
from promptgraft.adapters.scripted import ScriptedAdapter
from promptgraft.cli import demo_run as demo
from promptgraft.errors import DeadlineExceededError, PermanentProviderError, StoreError
from promptgraft.overrides import LocalPromptOverridesStore, PromptOverride
from promptgraft.overrides.base_store import Change
from promptgraft.overrides.store import OverrideAddress
from promptgraft.prompt import RenderedPrompt

Reply = Callable[[RenderedPrompt[object]], str]
ADDRESS = {"ns": "toy", "prompt_key": "words", "tag": "triage-demo"}


def reply(rendered: RenderedPrompt[object]) -> str:
    return answer(rendered) if rendered.ns == "toy" else propose(rendered)


def after(calls: int, error: BaseException) -> Reply:
    """Reply as usual that often, then fail."""
    left = iter(range(calls))

    def failing(rendered: RenderedPrompt[object]) -> str:
        if next(left, None) is None:
            raise error
        return reply(rendered)

    return failing


@pytest.fixture
def model(project: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Reply], ScriptedAdapter]:
    """Puts the toy in the place of the example, and a script in that of the model."""
    config = GepaConfig(
        rollout_budget=200 + 48,
        training_examples=twins(6),
        feedback_fn=judge,
        target_section_paths=(RULES, NOTES),
        minibatch_size=3,
        pareto_set_size=6,
        data=Data(held_out=[twin(one, f"{one.id}-{n}") for n in range(4) for one in examples(6)]),
    )
    context = OptimizationContext(ScriptedAdapter(reply))
    example = OptimizationJob(Prompt(TEMPLATE), context, config)
    monkeypatch.setattr(demo, "load_example", lambda: example)

    def replace(chosen: Reply) -> ScriptedAdapter:
        adapter = ScriptedAdapter(chosen)
        monkeypatch.setattr(demo, "OfflineAdapter", lambda **_: adapter)
        return adapter

    replace(reply)
    return replace


Model = Callable[[Reply], ScriptedAdapter]


def test_an_improved_prompt_is_reported_and_kept(
    model: Model, console: Console, project: Path
) -> None:
    ended = console("demo", "--seed", "3", "--budget", "60")

    assert ended.code == 0
    revision = LocalPromptOverridesStore(project).current(**ADDRESS)
    assert revision is not None
    scores = revision.provenance.scores
    assert scores["best"] > scores["baseline"] == 0
    lines = ended.out.splitlines()
    assert lines[:2] == [
        "toy/words: improved",
        "GEPA on the embedded offline model, seed 3",
    ]
    assert len(lines) <= 30
    for name, best, what in (
        ("test", scores["held_out_best"], "24 tickets, never seen before"),
        ("validation", scores["best"], "6 tickets"),
    ):
        assert f"{name:10}   0.000  {best:.3f}  +{best:.3f}  {what}" in lines
    assert any(line.startswith("changed: section ") for line in lines)
    assert f"stored      tag `triage-demo`, revision 1 ({revision.id[:12]})" in lines
    assert "file        .promptgraft/overrides/toy/words/triage-demo.json" in lines
    assert lines[-3:] == [
        "Next:",
        "  promptgraft diff toy/words --tag triage-demo",
        "  promptgraft init my-prompt",
    ]
    assert revision.provenance.note.startswith("promptgraft demo, GEPA, embedded offline model, ")
    assert ended.err.splitlines()[:2] == [
        "promptgraft demo, embedded offline model, seed 3",
        f"the winner will be kept under tag `triage-demo` in {project}",
    ]


def test_the_document_says_the_same(model: Model, console: Console, project: Path) -> None:
    ended = console("demo", "--seed", "3", "--budget", "60", "--json", "--quiet")

    assert (ended.code, ended.err) == (0, "")
    document = json.loads(ended.out)
    revision = LocalPromptOverridesStore(project).current(**ADDRESS)
    assert revision is not None
    assert document["model"] == "embedded offline model"
    assert document["improved"] is True
    assert document["seed"] == 3
    assert document["rollouts"]["used"] <= document["rollouts"]["budget"] == 60 + 48
    assert document["scores"]["held_out"]["best"] == revision.provenance.scores["held_out_best"]
    assert document["stored"]["revision"]["id"] == revision.id
    contents = [part["content"] for part in document["winner"]]
    assert {tuple(content["path"]): content["body"] for content in contents} == {
        path: section.body for path, section in revision.override.sections.items()
    }
    for part in (*document["winner"], *document["parts"]):
        assert (part["kind"], part["status"], part["reason"]) == ("section", "applied", None)
    refused = sum(document["mutations"]["rejected"].values())
    assert document["mutations"]["accepted"] + refused == document["reflections"]


def test_a_second_run_with_the_seed_prints_and_leaves_the_same(
    model: Model, console: Console, project: Path
) -> None:
    document = project / ".promptgraft" / "overrides" / "toy" / "words" / "triage-demo.json"
    command = ("demo", "--seed", "3", "--json", "--quiet")
    first = console(*command)
    written = document.read_bytes()

    second = console(*command, "--workers", "4")
    assert second == first
    assert document.read_bytes() == written

    other = console("demo", "--seed", "4", "--budget", "40", "--json", "--quiet")
    assert json.loads(other.out)["winner"] != json.loads(first.out)["winner"]
    third = console(*command)
    assert json.loads(third.out)["winner"] == json.loads(first.out)["winner"]
    assert json.loads(third.out)["stored"]["revision"]["number"] == 3


def test_a_winner_replaces_everything_under_the_tag(
    model: Model, console: Console, project: Path
) -> None:
    store = LocalPromptOverridesStore(project)
    for path in (("question",), RULES, NOTES):
        body = "Do you know $word now?" if path == ("question",) else "Known: w1 w2 w3 w4 w5 w6"
        store.set_section_override(TEMPLATE, tag="triage-demo", path=path, body=body)

    document = json.loads(console("demo", "--json", "--quiet", "--budget", "40").out)

    assert document["scores"]["pareto"]["baseline"] == 0
    current = store.current(**ADDRESS)
    assert current is not None
    assert ["question"] not in [part["content"]["path"] for part in document["winner"]]
    assert {section.body for section in current.override.sections.values()} == {
        part["content"]["body"] for part in document["winner"]
    }
    assert len(store.history(**ADDRESS)) == 4


def test_nothing_better_is_1_and_leaves_the_tag_alone(
    model: Model, console: Console, project: Path
) -> None:
    edit = {"part": "P1", "reason": "none", "text": "More."}
    replies = {"reflect-prompt": json.dumps({"edits": [edit]})}
    model(
        lambda rendered: (
            "no"
            if rendered.ns == "toy"
            else replies.get(rendered.key, "```instruction\nMore.\n```")
        )
    )

    ended = console("demo")

    assert ended.code == 1
    assert ended.out.startswith("toy/words: not improved\n")
    assert ended.out.endswith(
        "not stored under tag `triage-demo`: no new text was better than yours\n"
    )
    assert " steps in a row tried nothing: " in ended.out
    assert "rewrites    0 kept, " in ended.out
    assert not (project / ".promptgraft").exists()
    document = json.loads(console("demo", "--json", "--quiet").out)
    assert document["winner"] == document["parts"] == document["use"] == []
    assert document["stored"]["revision"] is None
    assert document["stored"]["problem"] is None


def test_a_provider_that_refuses_is_4(model: Model, console: Console, project: Path) -> None:
    model(after(30, PermanentProviderError("401: no key")))

    ended = console("demo", "--quiet")

    assert ended.code == 4
    assert ended.err == "promptgraft: the provider failed: 401: no key\n"
    assert "stopped     provider failed: 401: no key\n" in ended.out


def test_a_provider_that_refuses_at_the_end_is_4_too(
    model: Model, console: Console, project: Path
) -> None:
    calls = model(reply)
    console("demo", "--quiet")
    model(after(calls.calls - 3, PermanentProviderError("401: no key")))

    ended = console("demo", "--quiet")

    assert ended.code == 4
    assert ended.err == "promptgraft: the provider failed: 401: no key\n"
    verdict = "better on validation, not checked"
    assert f"toy/words: {verdict}, stopped early\n" in ended.out
    assert ended.out.endswith(f"not stored under tag `triage-demo`: {verdict}\n")


def test_a_deadline_is_3(model: Model, console: Console, project: Path) -> None:
    model(after(30, DeadlineExceededError("the deadline of the run has passed")))

    ended = console("demo", "--quiet")

    assert ended.code == 3
    assert ended.err == "promptgraft: stopped early: the deadline of the run has passed\n"


@pytest.mark.parametrize("workers", ["1", "4"])
def test_an_interruption_is_3_and_one_line(
    workers: str, model: Model, console: Console, project: Path
) -> None:
    model(after(30, KeyboardInterrupt()))

    ended = console("demo", "--quiet", "--workers", workers)

    assert (ended.code, ended.out) == (3, "")
    assert ended.err == "promptgraft: interrupted, nothing was stored\n"
    assert not (project / ".promptgraft").exists()


def test_an_interrupted_run_goes_on_from_its_journal(
    model: Model, console: Console, project: Path
) -> None:
    command = ("demo", "--quiet", "--json", "--journal", "run.jsonl")
    whole = console("demo", "--quiet", "--json").out
    console("rollback", "toy/words")
    model(after(30, KeyboardInterrupt()))
    ended = console(*command)
    assert ended.code == 3
    assert ended.err == (
        "promptgraft: interrupted, nothing was stored; the same command resumes from run.jsonl\n"
    )

    again = model(reply)
    resumed = json.loads(console(*command).out)

    uninterrupted = json.loads(whole)
    assert resumed["winner"] == uninterrupted["winner"]
    assert resumed["rollouts"] == uninterrupted["rollouts"]
    paid = uninterrupted["rollouts"]["used"] + uninterrupted["reflections"]
    assert again.calls == paid - 30


def test_a_larger_budget_goes_on_with_a_finished_run(
    model: Model, console: Console, project: Path
) -> None:
    command = ("demo", "--quiet", "--json", "--journal", "run.jsonl")
    first = json.loads(console(*command, "--budget", "40").out)
    calls = model(reply)

    second = json.loads(console(*command, "--budget", "80").out)

    assert second["rollouts"]["used"] > first["rollouts"]["used"]
    assert calls.calls < second["rollouts"]["used"] + second["reflections"]
    other = console(*command, "--seed", "9")
    assert other.code == 2
    assert "belongs to another run: `seed` is 0 in the journal, 9 here" in other.err


def test_a_winner_that_cannot_be_stored_is_reported_all_the_same(
    model: Model, console: Console, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object, address: OverrideAddress, change: Change, **__: object) -> PromptOverride:
        changed = change(address.empty())
        if changed:
            raise StoreError("the disk is full; make space")
        return changed

    monkeypatch.setattr(LocalPromptOverridesStore, "mutate", refuse)

    ended = console("demo", "--quiet")

    assert ended.code == 2
    assert ended.err == "promptgraft: the winner is not stored: the disk is full; make space\n"
    assert ended.out.startswith("toy/words: improved\n")
    assert ended.out.endswith("not stored under tag `triage-demo`: the disk is full; make space\n")
    document = json.loads(console("demo", "--quiet", "--json").out)
    assert document["improved"] is True
    assert document["stored"]["problem"] == "the disk is full; make space"


def test_what_would_keep_the_winner_out_is_found_before_the_search(
    model: Model, console: Console, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = model(reply)
    document = project / ".promptgraft" / "overrides" / "toy" / "words" / "triage-demo.json"
    document.parent.mkdir(parents=True)
    document.write_text("{", "utf-8")

    damaged = console("demo")
    assert damaged.code == 2
    assert damaged.err.startswith(f"promptgraft: override file {document}:")

    document.unlink()
    monkeypatch.setattr("promptgraft.cli.demo_run.os.access", lambda *_: False)
    closed = console("demo")
    assert closed.code == 2
    assert closed.err == (
        f"promptgraft: the store's folder {project} is not writable; "
        "name another one with --store\n"
    )
    (project / "file").write_text("", "utf-8")
    ended = console("demo", "--store", "file/below")
    assert ended.err == (
        "promptgraft: --store: cannot create the folder 'file/below': Not a directory; "
        "name another one\n"
    )
    assert console("demo", "--journal", "missing/run.jsonl").code == 2
    assert adapter.calls == 0


def test_a_budget_too_small_for_one_step_is_wrong_use(model: Model, console: Console) -> None:
    ended = console("demo", "--budget", "17")

    assert (ended.code, ended.out) == (2, "")
    assert ended.err == (
        "promptgraft: --budget: expected at least 18 test calls, enough for your prompt and one "
        "step, found 17\n"
    )
    assert console("demo", "--budget", "18").code in (0, 1)


def test_the_store_is_made_where_it_is_asked_for(
    model: Model, console: Console, tmp_path: Path
) -> None:
    place = tmp_path / "a b" / "new"

    ended = console("demo", "--store", str(place), "--tag", "try.2", "--quiet")

    assert (place / ".promptgraft" / "overrides" / "toy" / "words" / "try.2.json").is_file()
    assert f"  promptgraft diff toy/words --tag try.2 --store '{place}'\n" in ended.out
