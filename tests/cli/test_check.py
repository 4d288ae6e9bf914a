"""``promptgraft check``: valid and invalid projects, without a model call."""

from __future__ import annotations

import base64
import json
import re
import shutil
from pathlib import Path

import jsonschema
import pytest

from cli.console import Console
from image_files import png
from promptgraft.cli.exits import ExitCode

PROJECTS = Path(__file__).parents[1] / "project"
KEYS = ("PROJECT_TEST_KEY", "PROJECT_TEST_TOKEN", "OPENAI_API_KEY", "ANTHROPIC_API_KEY")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The right project files in a folder that is the current one, without any secret."""
    shutil.copytree(PROJECTS / "right", tmp_path / "right")
    monkeypatch.chdir(tmp_path / "right")
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "right"


def test_a_right_project_is_told_with_its_cases_and_its_plan(
    console: Console, folder: Path
) -> None:
    (folder / "least.yaml").rename(folder / "promptgraft.yaml")
    shown = console("check")

    assert shown.code == ExitCode.OK
    assert shown.err == ""
    lines = shown.out.splitlines()
    assert lines[0] == "promptgraft.yaml is valid"
    assert lines[1].split() == ["cases", "12", "train,", "4", "validation,", "4", "test"]
    assert lines[2].split() == ["metrics", "exact"]
    assert lines[3].startswith("triage  plan: about ")
    assert not (folder / ".promptgraft").exists()


def test_secrets_that_are_not_set_are_warnings_with_their_lines(
    console: Console, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = console("check", "--project", "everything.yaml")
    assert shown.code == ExitCode.OK
    told = [line for line in shown.out.splitlines() if line.startswith("warning: ")]
    # Which packages of trackers are missing depends on the environment.
    warnings = [line for line in told if ": trackers: " not in line]
    assert [line.split(": ")[1:3] for line in warnings] == [
        ["everything.yaml:35", "models.task.headers.X-Gateway-Token"],
        ["everything.yaml:31", "models.task.api_key"],
        ["everything.yaml:43", "models.reflection.api_key"],
        ["everything.yaml:4", "prompts.triage"],
        ["everything.yaml:4", "prompts.triage"],
        ["everything.yaml:5", "prompts.other"],
        ["everything.yaml:5", "prompts.other"],
    ]
    assert ": there are only 5 validation cases" in warnings[3]
    assert ": 5 test cases cannot prove a gain; use 6 or more" in warnings[4]
    assert warnings[1].endswith(
        ": the environment variable PROJECT_TEST_KEY is not set; a run needs it"
    )

    for name in KEYS[:2]:
        monkeypatch.setenv(name, "plain-secret-1234567890")
    again = console("check", "--project", "everything.yaml")
    assert "environment" not in again.out
    assert "plain-secret" not in again.out


def test_the_name_of_a_model_and_its_address_may_be_variables(
    console: Console, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (folder / "least.yaml").read_text("utf-8")
    model = '{provider: openai, model: "${A_MODEL}", base_url: "${AN_ADDRESS}", api_key: none}'
    (folder / "least.yaml").write_text(text.replace("{provider: offline}", model), "utf-8")
    for name in ("A_MODEL", "AN_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    shown = console("check", "--project", "least.yaml")
    assert shown.code == ExitCode.OK
    for place, name in (("model", "A_MODEL"), ("base_url", "AN_ADDRESS")):
        said = f"models.task.{place}: the environment variable {name} is not set; a run needs it"
        assert said in shown.out

    monkeypatch.setenv("A_MODEL", "gpt-5-mini")
    monkeypatch.setenv("AN_ADDRESS", "http://localhost:9/v1")
    assert "environment" not in console("check", "--project", "least.yaml").out
    assert "gpt-5-mini" in console("plan", "--project", "least.yaml").out


def test_the_usual_key_of_a_provider_is_asked_for_too(console: Console, folder: Path) -> None:
    text = (folder / "least.yaml").read_text("utf-8")
    model = "{provider: anthropic, model: claude-sonnet-4-5}"
    (folder / "least.yaml").write_text(text.replace("{provider: offline}", model), "utf-8")

    shown = console("check", "--project", "least.yaml")
    assert shown.code == ExitCode.OK
    assert "models.task: the environment variable ANTHROPIC_API_KEY is not set" in shown.out


def test_a_maker_of_a_model_that_fails_here_is_a_warning(console: Console, folder: Path) -> None:
    text = (folder / "least.yaml").read_text("utf-8")
    model = "{python: 'files/agent.py:needs_a_secret'}"
    (folder / "least.yaml").write_text(text.replace("{provider: offline}", model), "utf-8")

    shown = console("check", "--project", "least.yaml")
    assert shown.code == ExitCode.OK
    assert "models.task: cannot be made here: files/agent.py:needs_a_secret raised" in shown.out


@pytest.mark.parametrize(
    ("model", "fault"),
    [
        ("files/agent.py:modl", "has no `modl` (did you mean `model`?)"),
        ("files/agent.py:Queue", "to be an adapter, a function without arguments"),
        ("files/agent.py:Queue", "; it is a class without method `evaluate(prompt, *, session, "),
        ("files/agent.py:OfflineAdapter", "; it is a class: name an object of it, or a function"),
        ("files/agent.py:forgets_to_return", "expected an adapter, it returned None; it has no "),
        (
            "files/agent.py:SEARCH",
            "deadline=None)`; `help(promptgraft.ProviderAdapter)` says what an adapter has",
        ),
        (
            "files/agent.py:MUTE",
            "; it has no method `evaluate(prompt, *, session, deadline=None)`;",
        ),
        (
            "files/agent.py:shown_example",
            "; it is a function that requires `example`, `response`; ",
        ),
    ],
)
def test_a_model_in_python_that_is_none_is_a_fault(
    model: str, fault: str, console: Console, folder: Path
) -> None:
    text = (folder / "least.yaml").read_text("utf-8")
    written = text.replace("{provider: offline}", f"{{python: '{model}'}}")
    (folder / "least.yaml").write_text(written, "utf-8")

    shown = console("check", "--project", "least.yaml")
    assert shown.code == ExitCode.WRONG_USE
    assert shown.out.startswith("least.yaml:8: models.task: ")
    assert fault in shown.out


def test_a_project_without_a_test_set_is_warned_of(console: Console, folder: Path) -> None:
    shown = console("check", "--project", "files_of_their_own.yaml")
    assert shown.code == ExitCode.OK
    assert "prompts.triage: there are no test cases: the run cannot prove " in shown.out


def test_each_fault_is_a_line_and_the_exit_code_is_that_of_wrong_use(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(PROJECTS / "broken")
    for name in ("faults_of_three_parts", "typing_mistakes"):
        shown = console("check", "--project", f"{name}.yaml")
        expected = Path(f"{name}.yaml.expected").read_text("utf-8")
        assert shown.out == expected
        count = len(expected.splitlines())
        assert shown.err == f"promptgraft: check: {name}.yaml has {count} faults\n"
        assert shown.code == ExitCode.WRONG_USE


def test_faults_that_are_only_counted_are_faults_too(
    console: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert console("init").code == ExitCode.OK
    cases = [json.dumps({"id": f"r{number}", f"npt{number}": "x"}) for number in range(30)]
    Path("data/reports.jsonl").write_text("\n".join(cases), "utf-8")
    shown = console("check")
    *lines, last = shown.out.splitlines()
    assert len(lines) == 20
    assert lines[0].endswith("; the same in 29 more: `r1`, `r2`, …")
    assert last == "promptgraft.yaml: and 11 more"
    assert shown.err == "promptgraft: check: promptgraft.yaml has 31 faults\n"


def test_a_fault_that_all_cases_share_is_told_once(
    console: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert console("init").code == ExitCode.OK
    cases = [json.dumps({"id": f"r{number}", "npt": f"x{number}"}) for number in range(30)]
    Path("data/reports.jsonl").write_text("\n".join(cases), "utf-8")
    for command in ("eval", "optimize"):
        shown = console(command)
        assert shown.code == ExitCode.WRONG_USE
        assert len(shown.err.splitlines()) == 2
        assert shown.err.count("; the same in 29 more: `r1`, `r2`, …\n") == 2


def test_as_json_it_is_one_document(
    console: Console, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = json.loads(console("check", "--project", "least.yaml", "--json").out)
    assert right["ok"] is True
    assert right["faults"] == []
    assert right["cases"] == {"train": 12, "validation": 4, "test": 4}
    assert right["plans"]["triage"]["rollouts"] > 0

    monkeypatch.chdir(PROJECTS / "broken")
    shown = console("check", "--project", "empty.yaml", "--json")
    assert shown.code == ExitCode.WRONG_USE
    assert json.loads(shown.out) == {
        "project": "empty.yaml",
        "ok": False,
        "faults": [
            (
                "empty.yaml: expected a project file, found an empty one; remove it, and "
                "`promptgraft init` writes one"
            )
        ],
        "warnings": [],
        "unchecked": [],
        "protected": [],
        "notes": [],
        "sent": [],
        "cases": {},
        "plans": {},
    }


def test_the_schema_is_printed_for_editors_without_a_project(
    console: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    schema = json.loads(console("check", "--schema").out)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert "metrics" in schema["else"]["required"]


def test_without_a_project_file_the_way_to_one_is_told(
    console: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "`promptgraft init` makes one" in console("check").err
    shown = console("check", "--project", "other.yaml")
    assert shown.code == ExitCode.WRONG_USE
    assert shown.err == (
        "promptgraft: --project: expected a project file, found none at other.yaml\n"
    )


def test_a_folder_may_be_named_for_its_project_file(console: Console, folder: Path) -> None:
    (folder / "least.yaml").rename(folder / "promptgraft.yaml")
    assert console("check", "--project", ".").code == ExitCode.OK


PARENTHESES = "(" * 3_000
SETTINGS = [
    ("optimizer: {rollout_budget: 1%s}" % ("0" * 108), "found an integer of 109 digits"),
    ('store: {path: "a\\0b"}', "store.path: expected a text, found 'a"),
    (f"dataset: {{path: {'x' * 5_000}}}", "dataset.path: "),
    (f"metrics: [{{name: regex, pattern: '{PARENTHESES}'}}]", "nested too deeply"),
    (f"metrics: [{{name: check, expression: '{PARENTHESES}'}}]", "nested too deeply"),
    (f"metrics: [{{name: assert, expressions: ['{'9**' * 400}9']}}]", "nested too deeply"),
    (f"metrics: [{{name: json_schema, schema: {{pattern: '{PARENTHESES}'}}}}]", "too deeply"),
    (f"metrics: [{{name: a, kind: {'x' * 5_000}}}]", "metrics[0]: unknown metric `xxx"),
    (f"metrics: [{{name: classification, labels: [{', '.join(['bad'] * 3_000)}]}}]", "labels"),
    (f"optimizer: {{targets: {{sections: [{'y' * 9_000}]}}}}", "targets"),
    (f"metrics: [{', '.join(['[[]]'] * 2_000)}]", "and 1,980 more"),
]


@pytest.mark.parametrize(("setting", "said"), SETTINGS, ids=lambda value: value[:30])
def test_hostile_settings_are_short_lines_and_wrong_use(
    setting: str, said: str, console: Console, folder: Path
) -> None:
    name = setting.partition(":")[0]
    kept = [
        block
        for block in re.split(r"(?m)^(?=\w)", (folder / "least.yaml").read_text("utf-8"))
        if not block.startswith(f"{name}:")
    ]
    (folder / "hostile.yaml").write_text("".join(kept) + f"\n{setting}\n", "utf-8")

    shown = console("check", "--project", "hostile.yaml")

    assert shown.code == ExitCode.WRONG_USE
    assert said in shown.out
    lines = [*shown.out.splitlines(), *shown.err.splitlines()]
    assert len(lines) <= 22
    assert all(len(line) <= len("promptgraft: ") + 500 for line in lines)


def test_models_that_end_are_told_once_with_their_lines(console: Console, folder: Path) -> None:
    text = (folder / "everything.yaml").read_text("utf-8")
    text = text.replace("model: claude-sonnet-5-5", "model: claude-sonnet-4-5")
    # A plan refuses a run whose trackers are not installed, as they are not everywhere.
    text = re.sub(r"(?m)^trackers:\n(?:  .*\n)+", "", text)
    (folder / "everything.yaml").write_text(text, "utf-8")
    shown = console("check", "--project", "everything.yaml").out
    end = (
        r"model `claude-sonnet-4-5` (ends|has ended) on 30 November 2026; move to a current one "
        r"such as `claude-sonnet-5-5` "
        r"\(see https://docs.anthropic.com/en/docs/resources/model-deprecations\)"
    )
    assert re.search(rf"everything\.yaml:\d+: models\.reflection: {end}\n", shown)
    assert shown.count("30 November 2026") == 1
    planned = console("plan", "triage", "--project", "everything.yaml").out
    assert re.search(f"warning: {end}", planned.replace("\n", " "))
    assert re.search(r"thinking +about 500 tokens a call of task, assumed\n", planned)


def test_images_that_would_be_sent_as_text_are_a_warning_until_their_column_is_named(
    console: Console, folder: Path
) -> None:
    prompt = "# Photo\n\nWhat is it?\n\n# See {#see .frozen}\n\n$photo $note\n"
    (folder / "photo.md").write_text(prompt, "utf-8")
    urls = [base64.b64encode(png(caption=str(number))).decode() for number in range(20)]
    rows = [
        {"photo": f"data:image/png;base64,{url}", "note": "data: none", "expected": "lamp"}
        for url in urls
    ]
    (folder / "photos.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    model = "{provider: openai, model: m, base_url: 'http://127.0.0.1:9/v1', api_key: none}"
    for options, warnings in ("", 1), (", images: [photo]", 0):
        (folder / "promptgraft.yaml").write_text(
            f"version: 1\nprompts: {{see: photo.md}}\ndataset: {{path: photos.jsonl{options}}}\n"
            f"metrics: [exact]\nmodels: {{task: {model}}}\n",
            "utf-8",
        )
        shown = console("check").out
        assert "is valid" in shown
        told = "dataset: `photo` holds an image as text; `images: [photo]` shows it\n"
        assert shown.count(told) == shown.count("image as text") == warnings


def test_tools_that_nothing_answers_are_a_warning(console: Console, folder: Path) -> None:
    tools = [
        {"name": name, "description": "D.", "input_schema": {"type": "object"}} for name in "ab"
    ]
    (folder / "tools.json").write_text(json.dumps(tools), "utf-8")
    (folder / "desk.py").write_text("def a():\n    return 1\n\n\nb = a\n", "utf-8")
    (folder / "cases.csv").write_text(
        "text,expected\n" + "".join(f"{n},b\n" for n in range(9)), "utf-8"
    )
    (folder / "promptgraft.yaml").write_text(
        "version: 1\nprompts: {p: p.md}\ndataset: {path: cases.csv}\n"
        "metrics: [exact]\nmodels: {task: {provider: offline}}\n",
        "utf-8",
    )
    for handlers, warnings in ("", 1), ("handlers: desk.py\n", 0):
        (folder / "p.md").write_text(f"---\ntools: tools.json\n{handlers}---\n$text\n", "utf-8")
        shown = console("check").out
        assert "is valid" in shown
        told = "prompts.p: a model that calls `a`, `b` gets an error: no function answers"
        assert shown.count(told) == shown.count("no function answers") == warnings


def test_test_cases_that_ask_nearly_the_same_as_others_are_a_warning_unless_of_one_family(
    console: Console, folder: Path
) -> None:
    cases = folder / "files" / "cases.jsonl"
    rows = [
        {"id": f"{name}{number}", "input": f"{name} {number}: {words}", "expected": "billing"}
        for name, count in (("train", 6), ("validation", 4), ("test", 4))
        for number in range(count)
        for words in [" ".join(f"{name}{number}word{place}" for place in range(20))]
    ]
    rows[11]["input"] = str(rows[2]["input"]) + " please"
    rows[13]["input"] = str(rows[12]["input"]) + " please"
    sets = [{**row, "split": str(row["id"]).rstrip("0123456789")} for row in rows]
    cases.write_text("".join(json.dumps(row) + "\n" for row in sets), "utf-8")
    project = folder / "promptgraft.yaml"
    least = (folder / "least.yaml").read_text("utf-8")
    lines = (
        "splits: {field: split}",
        "dataset: {path: files/cases.jsonl, keep: [split, family]}",
    )
    project.write_text(re.sub("dataset: .*", "\n".join(lines), least), "utf-8")

    mend = "give cases that belong together a column `family`, and list it in `keep`"
    learned, repeated = (line for line in console("check").out.splitlines() if "nearly" in line)
    assert learned == (
        "warning: promptgraft.yaml:5: dataset: 1 of 4 test cases ask nearly the same as a case "
        f"that the search sees (`test1` as `train2`), so a gain looks larger than it is; {mend}"
    )
    assert repeated == (
        "warning: promptgraft.yaml:5: dataset: 1 of 4 test cases ask nearly the same as another "
        f"test case (`test3` as `test2`), so they prove less than their number; {mend}"
    )
    for row, family in ((2, "a"), (11, "a"), (12, "b"), (13, "b")):
        sets[row]["family"] = family
    cases.write_text("".join(json.dumps(row) + "\n" for row in sets), "utf-8")
    assert "nearly" not in console("check").out


def test_data_in_texts_that_are_compared_letter_by_letter_are_a_warning(
    console: Console, folder: Path
) -> None:
    (folder / "p.md").write_text("Where is $thing?\n", "utf-8")
    model = "{provider: openai, model: m, base_url: 'http://127.0.0.1:9/v1', api_key: none}"
    told = "metrics: metric `{}` compares letters, and all expected answers are data in texts"
    for metric, expected, is_told in (
        ("exact", ['"here"', '"there"'], True),
        ("exact", ['["here", "there"]'], True),
        ("exact", ["['here', 'there']"], True),  # as pandas writes a list
        ("exact", ['["here"]', "here"], False),
        ("exact", ["here", "[here]"], False),
        ("json_match", ['{"place": "here"}'], False),
    ):
        texts = [expected[n % len(expected)] for n in range(20)]
        rows = "".join(
            json.dumps({"thing": f"cup {n}", "expected": texts[n]}) + "\n" for n in range(20)
        )
        (folder / "cases.jsonl").write_text(rows, "utf-8")
        (folder / "promptgraft.yaml").write_text(
            "version: 1\nprompts: {p: p.md}\ndataset: cases.jsonl\n"
            f"metrics: [{metric}]\nmodels: {{task: {model}}}\n",
            "utf-8",
        )
        shown = console("check").out
        assert "is valid" in shown
        assert (told.format(metric) in shown) is is_told
