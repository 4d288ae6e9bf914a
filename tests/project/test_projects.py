"""Right project files: what they give to those who use them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import get_args

import attrs
import jsonschema
import pytest

import promptgraft.project.format
from promptgraft import OptimizationJob
from promptgraft.adapters.abilities import MeteredAdapter
from promptgraft.adapters.base import Usage, adapter_identity
from promptgraft.adapters.openai import OpenAIAdapter
from promptgraft.agents import CommandAgent, PythonAgent
from promptgraft.algorithms.gepa import (
    GepaConfig,
    GepaOptimizationStarted,
    Shorten,
    Strategy,
)
from promptgraft.algorithms.gradient import GradientConfig
from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.evals.judges import JudgeMetric
from promptgraft.evals.types import Case
from promptgraft.ground.serde import Json
from promptgraft.ground.yaml_text import read_yaml
from promptgraft.project import (
    Project,
    find_project,
    load_project,
    open_project,
    project_schema,
    runs_folder_of,
)
from promptgraft.project.describing import describe
from promptgraft.project.format import PROJECT
from promptgraft.project.format_search import ELSEWHERE
from promptgraft.runtime import EventBus
from promptgraft.search.acceptance import MinGain, Paired
from promptgraft.search.stopping import MaxProposals, StopFile
from promptgraft.targets.judging import feedback_from

RIGHT = Path(__file__).parent / "right"
FILES = sorted(RIGHT.glob("*.yaml"))
KEY = "PROJECT_TEST_KEY"
TOKEN = "PROJECT_TEST_TOKEN"
LEAST = """\
version: 1
prompts:
  triage: files/agent.py:TRIAGE
dataset: {path: files/cases.jsonl}
metrics:
  - name: exact
models:
  task: {provider: offline}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files that the right projects name."""
    shutil.copytree(RIGHT / "files", tmp_path / "files")
    return tmp_path


def project_of(folder: Path, *more: str, start: str = LEAST) -> Project:
    path = folder / "promptgraft.yaml"
    path.write_text(start + "\n".join(more), "utf-8")
    return load_project(path)


def faults_of(folder: Path, *more: str, start: str = LEAST) -> list[str]:
    with pytest.raises(DataFormatError) as caught:
        project_of(folder, *more, start=start)
    return [fault.replace(f"{folder}/", "") for fault in caught.value.faults]


def plain(path: Path) -> Json:
    document = read_yaml(path.read_text("utf-8"), lambda line, text: pytest.fail(f"{line}: {text}"))
    assert document is not None
    return document.value


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_right_project_loads_without_a_secret_and_fits_the_schema(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(KEY, raising=False)
    project = load_project(path)

    for name in project.names:
        assert project.run_config(name).pareto_set_size == len(project.splits.validation)
    jsonschema.Draft202012Validator(project_schema()).validate(plain(path))


BILL = """\
---
output:
  type: object
  properties: {total: {type: number}, account: {type: string}, paid: {type: boolean}}
  required: [total, account, paid]
---
# Task
Read the bill.
# Bill
$text
"""
OF_BILLS = """\
version: 1
prompts: {bill: bill.md}
dataset:
  path: bills.csv
  fields: {input: [text], expected: [total, account, paid]}
metrics: [{name: json_match}]
models: {task: {provider: offline}}
"""


@pytest.mark.parametrize(
    "account",
    ["{type: string}", "{anyOf: [{type: string, maxLength: 9}, {type: 'null'}]}"],
)
@pytest.mark.parametrize("more", ["", "params: bills.py:params\n"])
def test_cells_of_what_is_expected_have_the_types_of_the_answer(
    tmp_path: Path, more: str, account: str
) -> None:
    rows = [f"bill {n},{n}.50,{100 + n},true" for n in range(20)]
    (tmp_path / "bill.md").write_text(BILL.replace("{type: string}", account), "utf-8")
    (tmp_path / "bills.csv").write_text("\n".join(["text,total,account,paid", *rows]), "utf-8")
    (tmp_path / "bills.py").write_text("def params(case):\n    return case.input\n", "utf-8")
    project = project_of(tmp_path, start=OF_BILLS + more)
    cases = [case for part in project.parts.values() for case in part]
    by_text = {str(case.input): case.expected for case in cases}
    assert by_text["{'text': 'bill 3'}"] == {"total": 3.5, "account": "103", "paid": True}
    assert len(cases) == 20


def test_the_files_use_every_key_of_the_format() -> None:
    written: set[str] = set()
    for path in FILES:
        value = plain(path)
        written |= set(value if isinstance(value, dict) else {})
    properties = PROJECT.schema["properties"]
    assert isinstance(properties, dict)
    assert written == set(properties)


def test_a_set_may_have_several_files(folder: Path) -> None:
    start = (RIGHT / "several_files.yaml").read_text("utf-8")
    (folder / "files/more.jsonl").write_text('{"id": "m", "input": "More?", "expected": "login"}\n')
    one = project_of(folder, start=start)
    both = start.replace("[files/train.jsonl]", "[files/train.jsonl, files/more.jsonl]")
    train = project_of(folder, start=both).splits.train
    assert [case.id for case in train] == [*(case.id for case in one.splits.train), "m"]
    for files, fault in (
        ("[]", "splits.files.train: train: expected at least one case"),
        ("[files/more.jsonl, files/none.jsonl]", "splits.files.train: expected a file, found none"),
        ("[files/more.jsonl, files/more.jsonl]", "a second case with this id"),
        ("[files/more.jsonl, files/validation.jsonl]", "train and validation share the id"),
        ("[3]", "splits.files.train[0]: expected"),
    ):
        [first, *_] = faults_of(folder, start=start.replace("[files/train.jsonl]", files))
        assert fault in first


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_settings_as_described_are_a_right_project_that_says_the_same(
    path: Path, folder: Path
) -> None:
    described = open_project(path).described()
    again = folder / "again.yaml"
    again.write_text(json.dumps(described), "utf-8")

    project = load_project(again)
    assert project.described() == described
    theirs, ours = load_project(path), project
    for name in ours.names:
        ignored = {"feedback_fn", "limits", "example_formatter"}
        one, other = (attrs.asdict(p.run_config(name), recurse=False) for p in (theirs, ours))
        assert {k: v for k, v in one.items() if k not in ignored | {"training_examples"}} == {
            k: v for k, v in other.items() if k not in ignored | {"training_examples"}
        }


def test_paths_begin_at_the_project_file_wherever_a_command_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project_of(folder)
    (folder / "deep" / "deeper").mkdir(parents=True)
    monkeypatch.chdir(folder / "deep")

    project = load_project("../promptgraft.yaml")
    assert project.runs_folder.resolve() == folder / "runs"
    assert len(project.splits.train) == 12
    assert Path(project.store().place).resolve() == folder
    assert find_project(Path("deeper")) == folder / "promptgraft.yaml"


def test_a_folder_without_a_project_points_to_init(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="`promptgraft init` makes one, and `--project FILE`"):
        find_project(tmp_path)


def test_the_nearest_project_is_named_as_a_user_would_name_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project_of(folder)
    monkeypatch.chdir(folder)
    assert str(find_project()) == "promptgraft.yaml"


def test_validation_steers_train_teaches_and_test_is_held_out() -> None:
    project = load_project(RIGHT / "by_field.yaml")
    config = project.run_config()

    assert [example.id for example in config.training_examples] == ["4", "5", "1", "2", "3"]
    assert config.pareto_set_size == 2
    assert [example.id for example in config.held_out] == ["6"]
    assert not config.data.shuffle
    assert not config.persist
    assert config.acceptance == Paired(level=0.2, max_repeats=1)
    first = config.training_examples[0].label
    assert isinstance(first, Case)
    assert first.expected == "login"


def test_every_section_with_a_text_that_may_be_overridden_is_a_target_by_default() -> None:
    config = load_project(RIGHT / "least.yaml").run_config()
    # `guide` is a heading that only holds examples.
    assert config.target_section_paths == (("rules",), ("rules", "tone"))
    assert config.rollout_budget == "light"


def test_a_prompt_changes_only_in_the_targets_that_it_has(folder: Path) -> None:
    text = (
        LEAST.replace("dataset", "  short: files/agent.py:SHORT\ndataset", 1)
        + "optimizer: {targets: {sections: [rules/tone], task_examples: [guide/one]}}\n"
    )
    source = folder / "files" / "agent.py"
    source.write_text(
        source.read_text("utf-8")
        + "\nSHORT = attrs.evolve(TRIAGE, key='short', sections=TRIAGE.sections[::2])\n",
        "utf-8",
    )
    project = project_of(folder, start=text)

    assert project.run_config("triage").target_task_examples == (("guide", "one"),)
    assert project.run_config("short").target_section_paths == (("rules", "tone"),)
    assert project.run_config("short").target_task_examples == ()


def test_parts_are_named_by_the_ids_that_describe_prints(folder: Path) -> None:
    listed = "section rules/tone, task example guide/one"
    project = project_of(folder, start=f"{LEAST}optimizer: {{targets: {{parts: [{listed}]}}}}\n")
    config = project.run_config()
    assert config.target_section_paths == (("rules", "tone"),)
    assert config.target_task_examples == (("guide", "one"),)
    ids = [part.id for part in describe(project.prompt()).nodes[0].parts if part.may_change]
    assert {"section rules/tone", "task example guide/one"} < set(ids)
    whole = f"{LEAST}optimizer: {{targets: {{parts: {json.dumps(ids)}}}}}\n"
    assert project_of(folder, start=whole).run_config().names_targets


def test_settings_reach_the_run_as_they_are_written() -> None:
    config = load_project(RIGHT / "everything.yaml").run_config("triage")

    assert config.rollout_budget == 400
    assert str(config.limits.max_cost) == "2.5"
    assert config.acceptance == MinGain(0.05)
    assert isinstance(config, GepaConfig)
    assert config.enable_merge
    assert config.used_additions == (Shorten(margin=0.02),)
    assert config.objectives.required == {"exact": 0.5}
    assert config.limits.stoppers[0] == MaxProposals(30)
    assert config.limits.stoppers[-1] == StopFile(RIGHT / "stop")
    assert config.example_formatter is not None
    assert config.example_formatter(config.training_examples[0], None)[0].startswith("t")
    assert [t.tool_name for t in config.target_tool_examples] == ["search"]
    assert "!" in str(config.training_examples[0].params)


def test_every_setting_of_a_run_can_be_written_or_says_what_decides_it() -> None:
    properties = project_schema()["properties"]
    assert isinstance(properties, dict)
    optimizer = properties["optimizer"]
    assert isinstance(optimizer, dict)
    written = optimizer["properties"]
    assert isinstance(written, dict)
    names = {field.name for field in attrs.fields(GepaConfig)}
    assert names == {*(set(written) - {"algorithm"}), *ELSEWHERE}


def test_a_job_runs_offline_stores_nothing_and_begins_at_what_the_store_holds(
    folder: Path,
) -> None:
    project = project_of(
        folder, "optimizer: {rollout_budget: 60, minibatch_size: 2}", "store: {tag: better}"
    )
    store = project.store()
    prompt = project.prompt("triage").prompt
    stored = store.set_section_override(
        prompt, tag="better", path=("rules", "tone"), body="Be kind."
    )

    job = project.job()
    assert isinstance(job, OptimizationJob)
    assert job.prompt.overrides_store is None
    bus = EventBus()
    started: list[GepaOptimizationStarted] = []
    bus.subscribe(GepaOptimizationStarted, started.append)
    attrs.evolve(job, context=attrs.evolve(job.context, event_bus=bus)).run()
    assert "Be kind." in started[0].texts.values()
    assert store.resolve(prompt.descriptor, "better") == stored
    assert [file.name for file in folder.rglob("*.json")] == ["better.json"]


def test_a_prompt_may_be_left_unnamed_only_where_there_is_one(folder: Path) -> None:
    assert project_of(folder).prompt().name == "triage"

    several = load_project(RIGHT / "everything.yaml")
    with pytest.raises(ConfigError, match="several prompts; name one of `triage`, `other`"):
        several.prompt()
    with pytest.raises(ConfigError, match=r"no prompt `othr` \(did you mean `other`\?\)"):
        several.job("othr")


def test_a_prompt_in_python_has_no_source_and_no_store() -> None:
    project = load_project(RIGHT / "everything.yaml")
    found = project.prompt("other")
    assert found.source is None
    assert found.prompt.overrides_store is None
    assert found.prompt.descriptor.key == "other"


def test_secrets_come_from_the_environment_and_are_shown_nowhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(KEY, "sk-plain-1234567890")
    monkeypatch.setenv(TOKEN, "token-plain-1234567890")
    project = load_project(RIGHT / "everything.yaml")

    adapter = project.adapter("task")
    assert isinstance(adapter, OpenAIAdapter)
    assert adapter.api_key == "sk-plain-1234567890"
    assert adapter.headers["X-Gateway-Token"] == "Bearer token-plain-1234567890"
    assert adapter.temperature == 0.2
    assert adapter.stop == ("END",)
    assert adapter.policy.attempts == 3
    assert project.adapter("task") is adapter
    assert adapter_identity(project.adapter("reflection")).startswith(
        "anthropic/1 claude-sonnet-5-5"
    )
    told = [str(project), repr(project.config), repr(adapter), json.dumps(project.described())]
    told += [repr(project.metrics), repr(project.models()), repr(project.run_config("triage"))]
    assert "plain-1234567890" not in " ".join(told)
    assert "${PROJECT_TEST_KEY}" in told[3]


def test_a_secret_that_is_not_set_stops_only_whoever_needs_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(KEY, raising=False)
    project = load_project(RIGHT / "everything.yaml")

    with pytest.raises(DataFormatError) as caught:
        project.job("triage")
    assert str(caught.value) == (
        f"{RIGHT}/everything.yaml:26: models.task: the environment variable {KEY} is not set; "
        "export it first"
    )


def test_the_name_of_a_secret_is_no_part_of_what_a_run_is(folder: Path) -> None:
    shutil.copy(RIGHT / "everything.yaml", folder)
    path = folder / "everything.yaml"
    text = path.read_text("utf-8").replace("api_key: none", 'api_key: "${SOME_KEY}"')
    said = []
    for name in ("SOME_KEY", "ANOTHER_KEY"):
        path.write_text(text.replace("SOME_KEY", name), "utf-8")
        said.append(feedback_from(load_project(path).metrics).identity)
    assert said[0] == said[1]
    path.write_text(text.replace("model: local-large,", "model: local-mini,"), "utf-8")
    assert feedback_from(load_project(path).metrics).identity != said[0]


PRICED = """\
models:
  task:
    provider: openai
    model: qwen3-32b
    base_url: http://localhost:8000/v1
    api_key: none
    max_output_tokens: 900
    prices: {input: "0.10", output: 0.4}
  reflection: {provider: offline}
optimizer:
  rollout_budget: 60
  limits: {max_cost: 2.00}
"""


def test_prices_in_the_file_let_max_cost_hold_for_any_model(folder: Path) -> None:
    plain = LEAST.partition("models:")[0] + PRICED
    path = folder / "promptgraft.yaml"
    path.write_text(plain, "utf-8")
    project = load_project(path)
    adapter = project.adapter()
    assert isinstance(adapter, MeteredAdapter)
    assert adapter.longest_answer == 900
    million = Usage(input_tokens=1_000_000, output_tokens=1_000_000)
    assert adapter.price_of(million) == Decimal("0.50")
    assert project.job().plan().expected_cost is not None

    path.write_text(re.sub(r"(?m)^    prices: .*\n", "", plain), "utf-8")
    with pytest.raises(ConfigError) as caught:
        load_project(path).job().run()
    assert str(caught.value) == (
        "limits.max_cost: no price is known for `qwen3-32b at localhost:8000`, so "
        "the limit cannot be enforced; give the model the line "
        "`prices: {input: IN, output: OUT}` in the project file, or the adapter `prices=` in "
        "Python, in US dollars for a million tokens; or leave max_cost out"
    )


def test_judges_are_made_when_they_are_first_asked(folder: Path) -> None:
    text = LEAST.replace("name: exact", "{name: polite, kind: llm_final_response, judges: [j]}")
    text = text.replace("- {name", "- {name").replace(
        "task: {provider: offline}",
        "task: {provider: offline}\n  judges: {j: {python: 'files/agent.py:needs_a_secret'}}",
    )
    (metric,) = project_of(folder, start=text).metrics
    assert isinstance(metric, JudgeMetric)
    with pytest.raises(DataFormatError, match=r"models\.judges\.j: .* raised KeyError"):
        assert adapter_identity(metric.judges[0])

    counting = folder / "files" / "counting.py"
    counting.write_text(
        "from promptgraft import OfflineAdapter\nmade = []\n\n\ndef model():\n"
        "    made.append(1)\n    return OfflineAdapter(identity=f'made {len(made)} times')\n"
    )
    start = text.replace("agent.py:needs_a_secret", "counting.py:model")
    (metric,) = project_of(folder, start=start).metrics
    assert isinstance(metric, JudgeMetric)
    assert [adapter_identity(metric.judges[0]) for _ in range(3)] == ["made 1 times"] * 3


@pytest.mark.parametrize(
    ("text", "identity"),
    [("MODEL", "python"), ("NAMED", "named"), ("model", "made-by-python")],
)
def test_a_model_may_be_python_an_adapter_or_what_makes_one(
    folder: Path, text: str, identity: str
) -> None:
    start = LEAST.replace("{provider: offline}", f"{{python: 'files/agent.py:{text}'}}")
    project = project_of(folder, start=start)
    assert adapter_identity(project.adapter()) == identity
    assert project.adapter("reflection") is project.adapter("task")


def test_one_file_of_python_is_run_once_however_much_is_taken_from_it(folder: Path) -> None:
    (folder / "files" / "agent.py").write_text(
        (RIGHT / "files" / "agent.py").read_text("utf-8")
        + "\nimport pathlib\nwith pathlib.Path(__file__).with_name('ran').open('a') as file:\n"
        "    file.write('x')\n",
        "utf-8",
    )
    project = project_of(
        folder,
        "params: files/agent.py:Inputs.params",
        start=LEAST.replace("dataset", "  other: files/agent.py:OTHER\ndataset", 1),
    )
    assert project.prompt("other").name == "other"
    assert project.params is not None
    assert (folder / "files" / "ran").read_text("utf-8") == "x"


def test_empty_sections_count_as_left_out(folder: Path) -> None:
    project = project_of(folder, "optimizer: {seed: , limits: }", "params: ~", "store: {tag: }")
    assert project.described() == project_of(folder).described()


def test_defaults_are_filled_in_where_settings_are_described(folder: Path) -> None:
    described = project_of(folder, "splits: {seed: 3}").described()
    assert described["splits"] == {
        "ratio": {"train": 0.6, "validation": 0.2, "test": 0.2},
        "seed": 3,
    }
    assert described["store"] == {"path": ".", "tag": "latest"}
    assert (described["runs"], described["workers"]) == ("runs", 4)
    optimizer = described["optimizer"]
    assert isinstance(optimizer, dict)
    assert (optimizer["rollout_budget"], optimizer["minibatch_size"]) == ("light", 6)
    assert optimizer["guards"] == {"max_part_chars": 6_000}


def test_what_opens_does_not_look_at_what_the_file_names(folder: Path) -> None:
    path = folder / "promptgraft.yaml"
    path.write_text(LEAST.replace("files/", "nowhere/"), "utf-8")

    project = open_project(path)
    assert project.runs_folder == folder / "runs"
    assert project.workers == 4
    with pytest.raises(DataFormatError, match="expected a Python file"):
        project.prompt()


def test_a_pipe_in_place_of_a_file_is_named_as_one(folder: Path) -> None:
    os.mkfifo(folder / "files" / "pipe.jsonl")
    (fault,) = faults_of(folder, start=LEAST.replace("files/cases.jsonl", "files/pipe.jsonl"))
    assert fault.endswith(
        "expected a file, found a pipe or a device at files/pipe.jsonl; name a file"
    )


@pytest.mark.parametrize(
    ("files", "named", "mend"),
    [
        (
            ("train.jsonl", "validation.jsonl", "test.jsonl"),
            "files/hf",
            (
                "leave out `dataset.path` and write `splits: {files: {"
                'train: "files/hf/train.jsonl", validation: "files/hf/validation.jsonl", '
                'test: "files/hf/test.jsonl"}}`'
            ),
        ),
        (
            ("data/train-0.parquet", "data/train-1.parquet", "data/test-0.parquet"),
            "files/hf",
            (
                "leave out `dataset.path` and write `splits: {files: {"
                'train: ["files/hf/data/train-0.parquet", "files/hf/data/train-1.parquet"], '
                'test: "files/hf/data/test-0.parquet"}}`'
            ),
        ),
        (
            ("train.jsonl",),
            "files/hf/*.jsonl",
            'write `dataset: {path: "files/hf/train.jsonl"}`',
        ),
        (("tickets.csv",), "files/hf", 'write `path: "files/hf/tickets.csv"`'),
        (("Übung.csv",), "files/hf", 'write `path: "files/hf/Übung.csv"`'),
        ((), "files/hf", "name a file of cases in it"),
        (
            ("train/data-00000-of-00001.arrow",),
            "files/hf",
            (
                "it was saved by Hugging Face `datasets`; write cases to a file with "
                "`load_from_disk('files/hf/train').to_parquet('cases.parquet')`"
            ),
        ),
    ],
)
def test_a_folder_or_pattern_of_a_data_set_is_answered_with_the_lines_for_its_files(
    folder: Path, files: tuple[str, ...], named: str, mend: str
) -> None:
    for name in (*files, "dataset_info.json", "README.md"):
        path = folder / "files" / "hf" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}", "utf-8")
    (fault,) = faults_of(folder, start=LEAST.replace("files/cases.jsonl", f'"{named}"'))
    kind = "pattern" if "*" in named else "folder"
    assert fault.endswith(f"expected a file, found a {kind} at {named}; {mend}")


def test_the_folder_of_runs_is_known_without_looking_at_anything_else(folder: Path) -> None:
    path = folder / "promptgraft.yaml"
    for text, name in (("prompts: 7\n", "runs"), ("runs: out/kept\n", "out/kept")):
        path.write_text(text, "utf-8")
        assert runs_folder_of(path) == folder / name
    path.write_text("version: 1\nruns: [a]\n", "utf-8")
    with pytest.raises(DataFormatError, match=r"yaml:2: runs: expected a text, found a list$"):
        runs_folder_of(path)

    script = "import sys, promptgraft.project as p; p.runs_folder_of; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {name for name in loaded if name.startswith("promptgraft.search")}


def test_a_missing_project_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataFormatError, match=r"none\.yaml: cannot be read: No such file"):
        load_project(tmp_path / "none.yaml")


def test_what_the_user_code_of_a_model_raises_is_told_with_its_place(folder: Path) -> None:
    start = LEAST.replace("{provider: offline}", "{python: 'files/agent.py:needs_a_secret'}")
    project = project_of(folder, start=start)
    with pytest.raises(DataFormatError, match=r":8: models.task: .*raised KeyError: 'SOME_API_KEY"):
        project.adapter()


def test_the_shipped_schema_is_that_of_the_reader() -> None:
    shipped = Path(promptgraft.project.format.__file__).with_name("project.schema.json")
    assert shipped.read_text("utf-8") == f"{json.dumps(project_schema(), indent=2)}\n", (
        "run: promptgraft check --schema > src/promptgraft/project/project.schema.json"
    )
    jsonschema.Draft202012Validator.check_schema(project_schema())


def test_null_and_leaving_a_setting_out_are_the_same_in_python_too() -> None:
    settings = [GepaConfig, GradientConfig, CommandAgent, PythonAgent]
    for kind in settings:
        groups = [field.type for field in attrs.fields(attrs.resolve_types(kind))]
        settings += [group for group in groups if isinstance(group, type) and attrs.has(group)]
    assert Strategy in settings
    lost = [
        f"{kind.__name__}.{field.name}"
        for kind in settings
        for field in attrs.fields(kind)
        if type(None) in get_args(field.type) and field.default is not None and field.init
    ]
    assert not lost, "null counts as left out in a file, so None must be the default"


def test_a_project_names_the_gradient_search_with_its_settings(folder: Path) -> None:
    project = project_of(
        folder, "optimizer: {algorithm: gradient, max_rounds: 7, train_batch: all}"
    )
    config = project.run_config("triage")
    assert isinstance(config, GradientConfig)
    assert (config.max_rounds, config.train_batch, config.first_try) == (7, "all", True)
    with pytest.raises(DataFormatError, match="max_rounds: expected an integer from 1 to 100"):
        project_of(folder, "optimizer: {algorithm: gradient, max_rounds: 0}")


def test_of_an_algorithm_that_is_not_installed_only_the_name_is_a_fault(folder: Path) -> None:
    with pytest.raises(DataFormatError, match="unknown algorithm `rewrite`") as caught:
        project_of(folder, "optimizer: {algorithm: rewrite, rewrites: 3}")
    assert len(caught.value.faults) == 1
