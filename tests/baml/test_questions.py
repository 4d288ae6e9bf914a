"""What a reflector is told about a BAML function, and what `render` shows of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from baml.answering import Answering
from baml.test_projects import BAML, PROJECT
from cli.console import Console
from promptgraft import ScriptedAdapter
from promptgraft.project import load_project
from promptgraft.prompt import RenderedPrompt

pytest.importorskip("baml_py")


@pytest.fixture
def console(capsys: pytest.CaptureFixture[str]) -> Console:
    return Console(capsys)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    with Answering(lambda _: '{"total": 3, "words": "drei"}') as server:
        monkeypatch.setenv("BAML_TEST_ADDRESS", server.address)
        monkeypatch.setenv("BAML_TEST_KEY", "sk-planted-4711-abcdef")
        (tmp_path / "baml_src").mkdir()
        # Every test has a rule that holds and one that does not.
        both = '@@assert({{ this.total == 3 }})\n  @@assert({{ this.words == "three" }})'
        source = re.sub(r"@@assert\(\{\{ this.total == [45] \}\}\)", both, BAML)
        (tmp_path / "baml_src" / "add.baml").write_text(source)
        (tmp_path / "promptgraft.yaml").write_text(f"{PROJECT}optimizer: {{rollout_budget: 12}}\n")
        yield tmp_path


def questions(folder: Path) -> list[RenderedPrompt[object]]:
    """Make a run, and return what its reflector was asked."""
    job = load_project(folder / "promptgraft.yaml").job()
    reflector = ScriptedAdapter(lambda _: "I would rather not.")
    context = attrs.evolve(job.context, reflection_adapter=reflector, overrides_store=None)
    job.within(context).run()
    asked = list(reflector.requests)
    assert asked
    return asked


def test_a_reflector_is_shown_signature_types_output_format_and_all_rules(folder: Path) -> None:
    text = questions(folder)[0].text
    assert "function Add(text: string) -> Sum" in text
    assert 'total int @description("All together")' in text
    # As BAML itself writes it.
    assert "// All together\n  total: int," in text
    assert "Expected answers" in text
    assert "Text." not in text.split("Expected answers")[1].split("Examples with feedback")[0]
    # The test with its name, its rules that fail and its rules that hold.
    assert re.search("### Example (One|Two|Three)", text)
    assert '`this.words == "three"` does not hold' in text
    assert "holds: `this.total == 3`" in text


def test_types_are_shown_as_the_candidate_describes_them(folder: Path) -> None:
    prompt = load_project(folder / "promptgraft.yaml").prompt().prompt
    texts = {section.key: section.template for section in prompt.template.sections}
    known = getattr(prompt, "answers", None)
    assert known is not None
    changed = known({**texts, "about-sum-total": "The sum, in digits"})
    assert 'total int @description("The sum, in digits")' in changed
    assert "// The sum, in digits" in changed
    # Texts that do not compile are shown as they are declared; their rollouts say what is wrong.
    broken = known({**texts, "alias-sum-total": "it", "alias-sum-words": "it"})
    assert "function Add" in broken
    assert "describes it as" not in broken


# ---- tests that judge nothing, and few of them ----


def check(console: Console) -> tuple[int, str]:
    ended = console("check")
    return ended.code, f"{ended.out}{ended.err}"


def with_tests(folder: Path, tests: str) -> None:
    source = BAML[: BAML.index("test One")]
    (folder / "baml_src" / "add.baml").write_text(source + tests)


def block_of(name: str, *rules: str, functions: str = "Add") -> str:
    lines = "".join(f"  {rule}\n" for rule in rules)
    return f'test {name} {{\n  functions [{functions}]\n  args {{ text "{name}" }}\n{lines}}}\n'


HOLDS = "@@assert({{ this.total == 3 }})"


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (HOLDS[1:], "@assert is not allowed on test fields. Use @@assert"),
        (
            "@check(small, {{ this.total < 9 }})",
            "@check is not allowed on test fields. Use @@check",
        ),
        ("@@asert({{ this.total == 3 }})", "Tests may only contain 'check' or 'assert'"),
        ("@@check({{ this.total < 9 }})", 'Error parsing attribute "check": Checks must'),
    ],
)
def test_a_rule_that_baml_refuses_is_refused(
    console: Console, folder: Path, rule: str, message: str
) -> None:
    with_tests(folder, "".join([block_of("One", HOLDS), block_of("Two", rule)]))
    code, said = check(console)
    assert code == 2
    line = 1 + (folder / "baml_src" / "add.baml").read_text().split("\n").index(f"  {rule}")
    assert f"add.baml:{line}: {message}" in said.replace("\n", " ")


def test_a_test_without_rules_is_a_warning_of_check_and_of_eval(
    console: Console, folder: Path
) -> None:
    tests = [block_of(name, HOLDS) for name in ("One", "Two", "Three")]
    with_tests(folder, "".join([*tests, block_of("Empty")]))
    code, said = check(console)
    assert code == 0
    assert said.count("test Empty has neither an @@assert nor a @@check") == 1
    ended = console("eval", "--split", "all")
    assert "test Empty has neither" in f"{ended.out}{ended.err}"


def test_a_test_without_rules_is_named_beside_the_faults_of_others(
    console: Console, folder: Path
) -> None:
    with_tests(folder, "".join([block_of("One", HOLDS[1:]), block_of("Empty")]))
    code, said = check(console)
    assert code == 2
    assert "@assert is not allowed on test fields" in said.replace("\n", " ")
    assert said.count("test Empty has neither an @@assert nor a @@check") == 1


def test_one_test_is_enough_for_everything_but_a_run(console: Console, folder: Path) -> None:
    with_tests(folder, block_of("One", HOLDS))
    code, said = check(console)
    assert code == 0
    assert "no cases for" in said
    assert "a run needs them" in said
    for command in (["eval"], ["eval", "--split", "all"], ["render"], ["export"]):
        ended = console(*command)
        assert ended.code == 0, ended.err
    for command in (["plan"], ["optimize"]):
        ended = console(*command)
        assert ended.code == 2
        assert "no cases for" in ended.err
        assert len(ended.err.strip().split("\n")) == 1
    assert not (folder / "runs").exists()


def test_a_test_of_another_function_too_is_compiled_with_it(console: Console, folder: Path) -> None:
    other = BAML[BAML.index("function Add") : BAML.index("test One")].replace("Add(", "Sub(")
    tests = [block_of(name, HOLDS, functions="Add, Sub") for name in ("One", "Two", "Three")]
    with_tests(folder, "".join([other, *tests]))
    assert check(console)[0] == 0


def test_render_shows_what_baml_sends(console: Console, folder: Path) -> None:
    source = BAML.replace("Add up. {{ text }}", 'Add up. {{ _.role("user") }} {{ text }}')
    (folder / "baml_src" / "add.baml").write_text(source)
    ended = console("render", "--case", "One", "--messages")
    assert ended.code == 0, ended.err
    [system, user] = json.loads(ended.out)
    assert system == {"role": "system", "content": "Add up."}
    assert user["role"] == "user"
    assert user["content"].startswith("1 and 2\n")
    assert "// All together" in user["content"]
    shown = console("render", "--case", "One").out
    assert shown.startswith("[system]\nAdd up.\n\n[user]\n1 and 2\n")
    whole = json.loads(console("render", "--case", "One", "--json").out)
    assert whole["messages"] == [system, user]
    claude = json.loads(console("render", "--case", "One", "--as", "anthropic").out)
    assert "1 and 2" in json.dumps(claude["messages"])


# ---- without a project file ----

TWO = (
    BAML
    + BAML[BAML.index("function Add") : BAML.index("test One")].replace("Add(", "Sub(")
    + "".join(
        f'test Sub{n} {{\n  functions [Sub]\n  args {{ text "{n}" }}\n  {HOLDS}\n}}\n'
        for n in range(3)
    )
)


def bare(folder: Path, source: str = TWO) -> None:
    (folder / "promptgraft.yaml").unlink()
    (folder / "baml_src" / "add.baml").write_text(source)


def test_all_functions_with_tests_are_improved_each_with_a_file_of_its_own(
    console: Console, folder: Path
) -> None:
    bare(folder)
    ended = console(
        *("optimize", "--baml", "baml_src", "--reflection", "offline", "--budget", "12")
    )
    assert ended.code in (0, 1), ended.err
    assert sorted(file.name for file in folder.glob("*.yaml")) == [
        "Add.promptgraft.yaml",
        "Sub.promptgraft.yaml",
    ]
    assert ended.err.count("wrote ") == 2
    assert len(list((folder / "runs").iterdir())) == 2
    again = console(*("eval", "--project", "Sub.promptgraft.yaml", "--split", "all"))
    assert again.code == 0, again.err


def test_functions_are_named_one_after_another(console: Console, folder: Path) -> None:
    bare(folder)
    names = ("--function", "Sub", "--function", "Add")
    ended = console(
        *("optimize", "--baml", "baml_src", *names, "--reflection", "offline", "--budget", "12")
    )
    assert ended.code in (0, 1), ended.err
    assert ended.err.index("wrote Sub.") < ended.err.index("wrote Add.")


def test_tests_alone_name_the_functions_that_are_improved(console: Console, folder: Path) -> None:
    bare(folder)
    ended = console(
        *("optimize", "--baml", "baml_src", "--test", "Sub::*"),
        *("--reflection", "offline", "--budget", "12"),
    )
    assert ended.code in (0, 1), ended.err
    [project] = folder.glob("*.yaml")
    assert '"function": "Sub", "tests": ["Sub::*"]' in project.read_text()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--test", "Mul::*"), "--test: no test of a function in baml_src matches `Mul::*`"),
        (("--function", "Sub", "--test", "::Sub0"), "no cases for"),
        (("--function", "Sub", "--reflection", "missing.py:make"), "missing.py"),
        (("--function", "Sub", "--weights", "smal=1"), "no objective `smal`"),
        (("--function", "Sub", "--weights", "small=1"), "no objective `small`"),
    ],
)
def test_a_command_that_fails_leaves_no_project_file(
    console: Console, folder: Path, more: tuple[str, ...], message: str
) -> None:
    bare(folder)
    ended = console("optimize", "--baml", "baml_src", *more)
    assert ended.code == 2
    assert message in ended.err
    assert len(ended.err.strip().split("\n")) == 1
    assert not list(folder.glob("*.yaml"))
    assert not (folder / "runs").exists()


def test_the_second_of_two_functions_is_checked_before_the_first_is_paid_for(
    console: Console, folder: Path
) -> None:
    bare(folder, TWO[: TWO.index("test Sub1")])  # a single test of `Sub`
    ended = console("optimize", "--baml", "baml_src", "--reflection", "offline")
    assert ended.code == 2
    assert "no cases for" in ended.err
    assert not (folder / "runs").exists()


def test_a_check_is_weighted_by_its_name_and_candidates_say_where_they_come_from(
    console: Console, folder: Path
) -> None:
    bare(folder, BAML.replace("== 4 }})", "== 3 }})").replace("== 5 }})", "== 3 }})"))
    text = (folder / "baml_src" / "add.baml").read_text()
    checked = text.replace(HOLDS, f"{HOLDS}\n  @@check(tiny, {{{{ this.total < 2 }}}})")
    (folder / "baml_src" / "add.baml").write_text(checked.replace('"three"', '"drei"'))
    ended = console(
        *("optimize", "--baml", "baml_src", "--function", "Add", "--reflection", "offline"),
        *("--weights", "accuracy=0.8,tiny=0.2"),
    )
    assert ended.code in (0, 1, 3), ended.err  # the offline model has nothing to learn
    assert '"check:tiny": 0.2' in (folder / "promptgraft.yaml").read_text()
    [first] = (folder / "runs").glob("*/candidates/0.baml")
    head = first.read_text().split("\n")[:4]
    assert head[:3] == ["// Candidate 0", "// Iteration: 0", "// Parent candidates: []"]
    assert head[3].startswith("// Score when it was accepted: 0.8")
    assert "check:tiny=0" in head[3]


def test_a_perfect_score_with_failing_checks_is_said(console: Console, folder: Path) -> None:
    source = BAML.replace("== 4 }})", "== 3 }})").replace("== 5 }})", "== 3 }})")
    checked = source.replace(HOLDS, f"{HOLDS}\n  @@check(tiny, {{{{ this.total < 2 }}}})")
    (folder / "baml_src" / "add.baml").write_text(checked.replace('"three"', '"drei"'))
    ended = console("optimize")
    said = " ".join(f"{ended.out}{ended.err}".split())
    assert "perfect" in said
    assert "check:tiny (0) of the best candidate still fails" in said


@pytest.mark.parametrize(
    ("option", "ours"),
    [
        ("--max-evals", "--budget"),
        ("--trials", "--budget"),
        ("--parallel", "--workers"),
        ("--output-dir", "--runs"),
        ("--verbose", "--json"),
    ],
)
def test_options_of_the_specification_are_answered_with_ours(
    console: Console, folder: Path, option: str, ours: str
) -> None:
    ended = console("optimize", option, "5")
    assert ended.code == 2
    assert f"no such option `{option}`" in ended.err
    assert f"`{ours}`" in ended.err
