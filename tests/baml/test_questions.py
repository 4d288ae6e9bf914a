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
from programs import Programs
from promptgraft import ScriptedAdapter
from promptgraft.project import load_project
from promptgraft.prompt import RenderedPrompt

pytest.importorskip("baml_py")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
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


def check(programs: Programs, folder: Path) -> tuple[int, str]:
    done = programs.promptgraft("check", folder=folder)
    return done.returncode, f"{done.stdout}{done.stderr}"


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
    programs: Programs, folder: Path, rule: str, message: str
) -> None:
    with_tests(folder, "".join([block_of("One", HOLDS), block_of("Two", rule)]))
    code, said = check(programs, folder)
    assert code == 2
    line = 1 + (folder / "baml_src" / "add.baml").read_text().split("\n").index(f"  {rule}")
    assert f"add.baml:{line}: {message}" in said.replace("\n", " ")


def test_a_test_without_rules_is_a_warning_of_check_and_of_eval(
    programs: Programs, folder: Path
) -> None:
    tests = [block_of(name, HOLDS) for name in ("One", "Two", "Three")]
    with_tests(folder, "".join([*tests, block_of("Empty")]))
    code, said = check(programs, folder)
    assert code == 0
    assert said.count("test Empty has neither an @@assert nor a @@check") == 1
    done = programs.promptgraft("eval", "--split", "all", folder=folder)
    assert "test Empty has neither" in f"{done.stdout}{done.stderr}"


def test_one_test_is_enough_for_everything_but_a_run(programs: Programs, folder: Path) -> None:
    with_tests(folder, block_of("One", HOLDS))
    code, said = check(programs, folder)
    assert code == 0
    assert "no cases for" in said
    assert "a run needs them" in said
    for command in (["eval"], ["eval", "--split", "all"], ["render"], ["export"]):
        done = programs.promptgraft(*command, folder=folder)
        assert done.returncode == 0, done.stderr
    for command in (["plan"], ["optimize"]):
        done = programs.promptgraft(*command, folder=folder)
        assert done.returncode == 2
        assert "no cases for" in done.stderr
        assert len(done.stderr.strip().split("\n")) == 1
    assert not (folder / "runs").exists()


def test_a_test_of_another_function_too_is_compiled_with_it(
    programs: Programs, folder: Path
) -> None:
    other = BAML[BAML.index("function Add") : BAML.index("test One")].replace("Add(", "Sub(")
    tests = [block_of(name, HOLDS, functions="Add, Sub") for name in ("One", "Two", "Three")]
    with_tests(folder, "".join([other, *tests]))
    assert check(programs, folder)[0] == 0


def test_render_shows_what_baml_sends(programs: Programs, folder: Path) -> None:
    source = BAML.replace("Add up. {{ text }}", 'Add up. {{ _.role("user") }} {{ text }}')
    (folder / "baml_src" / "add.baml").write_text(source)
    done = programs.promptgraft("render", "--case", "One", "--messages", folder=folder)
    assert done.returncode == 0, done.stderr
    [system, user] = json.loads(done.stdout)
    assert system == {"role": "system", "content": "Add up."}
    assert user["role"] == "user"
    assert user["content"].startswith("1 and 2\n")
    assert "// All together" in user["content"]
    shown = programs.promptgraft("render", "--case", "One", folder=folder).stdout
    assert shown.startswith("[system]\nAdd up.\n\n[user]\n1 and 2\n")
    whole = json.loads(
        programs.promptgraft("render", "--case", "One", "--json", folder=folder).stdout
    )
    assert whole["messages"] == [system, user]
    claude = json.loads(
        programs.promptgraft("render", "--case", "One", "--as", "anthropic", folder=folder).stdout
    )
    assert "1 and 2" in json.dumps(claude["messages"])
