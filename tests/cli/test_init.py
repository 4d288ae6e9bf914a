"""``promptgraft init``: its projects run, and existing files are kept."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path, PurePath

import attrs
import pytest

from cli.console import Console
from programs import Programs
from promptgraft.cli.main import run
from promptgraft.cli.project import TEMPLATES
from promptgraft.project import load_project, project_schema
from promptgraft.runtime import Deadline

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def files_below(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_new_project_is_without_fault_and_has_cases_enough(
    console: Console, template: str
) -> None:
    ended = console("init", "demo", "--template", template)
    assert (ended.code, ended.err) == (0, "")
    written = files_below(Path("demo"))
    assert set(written) == set(TEMPLATES[template])
    for name in written:
        assert name in ended.out

    splits = load_project("demo/promptgraft.yaml").splits
    assert sum(len(part) for part in splits.parts().values()) >= 150
    assert splits.test is not None
    assert len(splits.test) >= 40


def test_editors_find_the_schema_of_a_new_project(console: Console) -> None:
    console("init", "demo")
    first, _, rest = Path("demo/promptgraft.yaml").read_text("utf-8").partition("\n")
    assert first == "# yaml-language-server: $schema=promptgraft.schema.json"
    assert rest == (ROOT / "examples/projects/classify/promptgraft.yaml").read_text("utf-8")
    schema = json.loads(Path("demo/promptgraft.schema.json").read_text("utf-8"))
    assert schema == project_schema()


def test_every_file_of_a_template_is_written() -> None:
    for template, all_names in TEMPLATES.items():
        names = set(all_names) - {"promptgraft.schema.json"}  # the one of the package
        there = files_below(ROOT / "examples" / "projects" / template)
        made = (".promptgraft/", "runs/", "__pycache__/", ".pytest_cache/")
        kept = {name for name in there if not any(part in name for part in made)}
        shared = set[str]()
        if template in ("agent_http", "agent_command"):
            own = {"promptgraft.yaml", "README.md", "agent.py", "service.py"}
            shared = {name.replace(".gitignore", "_gitignore") for name in names} - own
        assert kept == {name.replace(".gitignore", "_gitignore") for name in names} - shared


def test_the_current_folder_is_the_default_and_what_is_in_it_stays(console: Console) -> None:
    Path("notes.txt").write_text("mine")
    assert console("init").code == 0
    assert Path("notes.txt").read_text() == "mine"
    assert Path("promptgraft.yaml").is_file()


def test_nothing_is_overwritten_and_nothing_is_added_to_half_a_project(console: Console) -> None:
    Path("data").mkdir()
    Path("data/reports.jsonl").write_text("mine")
    Path("README.md").symlink_to("nowhere")
    before = files_below(Path())

    ended = console("init")

    assert (ended.code, ended.out) == (2, "")
    assert ended.err == (
        "promptgraft: README.md, data/reports.jsonl already exist in the current folder; "
        "nothing was written; name another folder\n"
    )
    assert files_below(Path()) == before


def test_what_cannot_be_written_whole_leaves_nothing(console: Console) -> None:
    # A file where a folder is needed, which is noticed in the middle of the work.
    Path("demo").mkdir()
    Path("demo/prompts").write_text("mine")
    before = files_below(Path())

    ended = console("init", "demo")

    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "demo/prompts/triage.md cannot be written" in ended.err
    assert files_below(Path()) == before
    assert [path.name for path in Path("demo").iterdir()] == ["prompts"]


def test_the_service_of_a_new_project_is_started_before_the_search(console: Console) -> None:
    lines = [line.strip() for line in console("init", "demo", "--agent", "http").out.splitlines()]
    start = lines.index("python3 service.py &")
    assert (lines[start - 1], lines[start + 1]) == ("cd demo", "promptgraft optimize")
    assert "python3" not in console("init", "other").out


@pytest.mark.parametrize(
    "options",
    [
        ("--agent", "http", "--template", "agent"),
        ("--agent", "http", "--graph"),
        ("--graph", "--template", "agent"),
    ],
)
def test_two_templates_are_refused(console: Console, options: tuple[str, ...]) -> None:
    ended = console("init", *options, "demo")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "--template, --graph and --agent each name a template; give one" in ended.err
    assert not Path("demo").exists()


def test_a_second_time_is_refused_in_one_line(console: Console) -> None:
    console("init", "demo")
    ended = console("init", "demo")
    assert ended.code == 2
    assert len(ended.err.splitlines()) == 1
    assert "promptgraft.yaml" in ended.err


def test_a_file_in_the_place_of_the_folder_is_refused(console: Console) -> None:
    Path("demo").write_text("mine")
    ended = console("init", "demo")
    assert (ended.code, ended.err) == (
        2,
        "promptgraft: demo is a file; name a folder\n",
    )


def test_an_unknown_template_is_refused(console: Console) -> None:
    ended = console("init", "--template", "chess")
    assert ended.code == 2
    assert "`classify`" in ended.err
    assert list(Path().iterdir()) == []


def test_the_document_names_the_files(console: Console) -> None:
    document = json.loads(console("init", "demo", "--json").out)
    assert document["folder"] == str(Path("demo").resolve())
    assert document["template"] == "classify"
    assert set(document["files"]) == set(files_below(Path("demo")))


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
def test_the_real_models_in_the_comments_are_right(console: Console, provider: str) -> None:
    console("init")
    file = Path("promptgraft.yaml")
    text = file.read_text("utf-8").replace("  task: {provider: offline}\n", "")
    asked = re.compile(rf"(?m)^  # ((?:task|reflection): {{provider: {provider}, .*)$")
    file.write_text(asked.sub(r"  \1", text), "utf-8")
    models = load_project(file).config.models
    assert models.task is not None
    assert models.reflection is not None
    assert {models.task.provider, models.reflection.provider} == {provider}


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project in which the three commands of the first walk were given, as it comes."""
    folder = tmp_path_factory.mktemp("walk")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert run(["init", "demo"]) == 0
        patch.chdir(folder / "demo")
        assert run(["optimize", "--quiet"]) == 0
        assert run(["apply"]) == 0
    return folder / "demo"


def test_a_search_in_a_new_project_gains_what_getting_started_says(used: Path) -> None:
    (result,) = used.glob("runs/*/result.json")
    held_out = json.loads(result.read_text("utf-8"))["scores"]["held_out"]
    assert held_out["gain"] > 0.2
    line = "test         {baseline:.3f}  {best:.3f}  {gain:+.3f}  {examples} of 60 unseen cases"
    assert line.format(**held_out) in (ROOT / "docs" / "getting-started.md").read_text("utf-8")


def test_a_search_that_learned_nothing_says_why_at_its_end(console: Console) -> None:
    console("init", ".")
    Path("judged.py").write_text(
        "def judged(case, answer):\n    return answer.text == case.expected, 'read it again'\n",
        "utf-8",
    )
    settings = Path("promptgraft.yaml")
    text = re.sub(
        r"kind: classification\n +labels: .*",
        "kind: python\n    function: judged.py:judged",
        settings.read_text("utf-8"),
    )
    settings.write_text(text.replace("rollout_budget: 1500", "rollout_budget: 400"), "utf-8")
    ended = console("optimize", "--quiet")
    assert "fernhill/triage: not improved" in ended.out
    assert (
        "the embedded offline model learned nothing: no feedback names an expected answer; "
        "it only learns labels and short fields\n"
    ) in ended.out


def test_the_winner_of_a_new_project_is_in_force(used: Path) -> None:
    project = load_project(used / "promptgraft.yaml")
    prompt = attrs.evolve(project.prompt().prompt, overrides_store=project.store())
    rendered = prompt.bind({"report": "The lamp is dark."}).render()
    assert [applied.part for applied in rendered.applied] == ["section teams"]


GATE = """
import sys
sys.dont_write_bytecode = True
import pytest
sys.exit(int(pytest.main(["-q", "--import-mode=importlib", *sys.argv[1:]])))
"""


def test_the_gate_fails_for_a_prompt_as_it_comes_and_passes_after_apply(
    used: Path, tmp_path: Path, programs: Programs
) -> None:
    assert run(["init", str(tmp_path / "agent"), "--template", "agent"]) == 0
    places = [used / "tests", tmp_path / "agent" / "tests"]
    ended = programs("-c", GATE, *places, folder=tmp_path)
    failed = [line for line in ended.stdout.splitlines() if line.startswith("FAILED")]
    assert len(failed) == 1, ended.stdout
    assert "agent/tests/test_prompt.py::test_the_prompt_is_good_enough" in failed[0]
    assert "1 failed, 111 passed" in ended.stdout


def test_every_file_that_the_three_commands_write_is_documented(used: Path) -> None:
    pages = [*ROOT.glob("specs/*.md"), *ROOT.glob("docs/**/*.md")]
    said = "\n".join(page.read_text("utf-8") for page in pages)
    readme = (used / "README.md").read_text("utf-8")
    written = set(files_below(used))
    assert any(name.startswith("runs/") for name in written)
    assert any(name.startswith(".promptgraft/") for name in written)
    for name in sorted(written - {"README.md", ".gitignore"}):
        if not name.startswith(("runs/", ".promptgraft/")):
            assert f"`{name}`" in readme, name
            continue
        assert re.search(documented_as(name), said), name


def documented_as(name: str) -> str:
    """Return a pattern of the file as pages name it: what differs stands in `<>`."""
    if str(PurePath(name).parent) == ".promptgraft":
        return re.escape(name)
    if name.startswith(".promptgraft/"):
        own = PurePath(name).name.replace("latest", "<tag>")
        return rf"\.promptgraft/overrides/<ns>/<key>/{re.escape(own)}"
    parts = PurePath(name).parts[2:]
    general = [re.sub(r"\d+", "<[a-z]+>", re.escape(part)) for part in parts]
    if parts[0].endswith("_prompts"):
        general[-1] = re.escape("<name>.<ext>")
    return f"`{'/'.join(general)}`"


@pytest.mark.parametrize("agent", ["python", "http", "command"])
def test_the_agent_of_a_new_project_answers_its_cases(
    console: Console, agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert console("init", "--agent", agent).code == 0
    cases = Path("data/reports.jsonl")
    cases.write_text("".join(cases.read_text("utf-8").splitlines(keepends=True)[:40]), "utf-8")
    with contextlib.ExitStack() as stack:
        if agent == "http":
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = str(free.getsockname()[1])
            for file in map(Path, ("service.py", "promptgraft.yaml")):
                file.write_text(file.read_text("utf-8").replace("8765", port), "utf-8")
            service = subprocess.Popen([sys.executable, "service.py"])
            stack.callback(service.wait)
            stack.callback(service.kill)
            _reached(int(port))
        monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        ended = console("eval", "--fail-under", "0.1", "--workers", "2")
    assert (ended.code, ended.err) == (0, "")
    assert "tests/test_prompt.py" in files_below(Path())


def _reached(port: int) -> None:
    """Wait until something listens."""
    until = Deadline.after(20)
    while not until.expired:
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port)).close()
            return
    raise AssertionError("the service has not begun")


def test_the_texts_of_a_new_agent_can_be_improved(console: Console) -> None:
    console("init", "--agent", "python")
    ended = console("optimize", "--quiet", "--budget", "500")
    assert (ended.code, ended.err) == (0, "")
    assert console("apply", "--to-source").code == 0
    assert Path("prompts/teams.md").read_text("utf-8").count("\n") > 6
