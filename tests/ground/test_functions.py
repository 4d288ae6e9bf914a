"""Identities of functions: what changes them, and what does not."""

from __future__ import annotations

import functools
import importlib
import itertools
import linecache
import operator
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from textwrap import dedent
from types import ModuleType

import pytest

from promptgraft.agents.python import PythonAgent
from promptgraft.errors import ConfigError
from promptgraft.ground.functions import (
    call_fault,
    described,
    first_argument,
    function_identity,
    function_name,
    without_address,
)
from promptgraft.project.python_source import as_maker, load_file
from promptgraft.targets.formatting import default_example_formatter

Identify = Callable[[Mapping[str, str]], str]
_numbers = itertools.count()


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Callable[[Mapping[str, str]], ModuleType]]:
    """Writes files into a new folder and runs ``metrics.py``, which may import the others."""
    before = {*sys.modules}

    def forget() -> None:
        for name in {*sys.modules} - before:
            if str(tmp_path) in str(getattr(sys.modules[name], "__spec__", "")):
                del sys.modules[name]

    def loaded(files: Mapping[str, str]) -> ModuleType:
        forget()
        importlib.invalidate_caches()
        folder = tmp_path / str(next(_numbers))
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dedent(text), "utf-8")
        module = load_file(folder / "metrics.py", name=f"metrics_{folder.name}", what="it")
        sys.path.insert(0, str(folder))
        return module

    path = [*sys.path]
    yield loaded
    sys.path[:] = path
    forget()


@pytest.fixture
def identify(load: Callable[[Mapping[str, str]], ModuleType]) -> Identify:
    return lambda files: function_identity(load(files).score)


FILES = {
    "metrics.py": """
        import re
        import wording
        from pkg import deep
        from pkg.rules import Rule, keep as kept, limit_of
        from weights import *

        HARD = {"a": 0.5}
        HARD["b"] = 0.25
        WORD = re.compile(r"[a-z]+")
        RULE = Rule(strict=True)
        UNUSED = 1


        def helper(text, least=len("ab")):
            return len(text) > least


        def unused():
            return 0


        def score(case, answer):
            \"\"\"Score an answer.\"\"\"
            import lazy

            unused = 3
            found = [helper(word) for word in WORD.findall(answer) if lazy.is_told(word)]
            worst = max(deep.inner.worst(found), wording.spelled(answer), SHARE * limit_of(RULE))
            return kept(sum(found) * HARD["a"] + RULE.points(answer) - worst) + unused
        """,
    "wording.py": "def spelled(text):\n    return other(text)\n\ndef other(text):\n    return 0\n",
    "weights.py": "SHARE = 0.5\n",
    "lazy.py": "from wording import spelled\n\ndef is_told(word):\n    return bool(word)\n",
    "pkg/__init__.py": "",
    "pkg/deep/__init__.py": "from . import inner\n",
    "pkg/deep/inner.py": "def worst(found):\n    return min(found, default=0)\n",
    "pkg/rules.py": """
        from . import base
        from .base import keep

        LIMIT = 9

        class Rule(base.Base):
            bonus = 1

            def __init__(self, strict):
                self.strict = strict

            def points(self, text):
                return self.bonus if self.strict else limit_of(self)

        def limit_of(rule):
            return LIMIT if rule else back()

        def back():
            from metrics import score
            return score and limit_of(None)
        """,
    "pkg/base.py": "class Base:\n    floor = 1\n\ndef keep(value):\n    return value\n",
}


def edited(file: str, old: str, new: str) -> Mapping[str, str]:
    assert old in FILES[file]
    return {**FILES, file: FILES[file].replace(old, new)}


def test_a_function_is_known_by_its_file_its_name_and_its_source(identify: Identify) -> None:
    name, digits = identify(FILES).split()
    assert name == "metrics.score"
    assert len(digits) == 12
    assert identify(FILES) == f"{name} {digits}"


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("metrics.py", "+ unused", "- unused"),
        ("metrics.py", "len(text) > least", "len(text) >= least"),
        ("metrics.py", 'len("ab")', 'len("abc")'),
        ("metrics.py", '{"a": 0.5}', '{"a": 0.75}'),
        ("metrics.py", '["b"] = 0.25', '["b"] = 0.5'),
        ("metrics.py", "[a-z]+", "[a-z]*"),
        ("metrics.py", "strict=True", "strict=False"),
        ("wording.py", "return 0", "return 1"),
        ("weights.py", "0.5", "0.6"),
        ("lazy.py", "bool(word)", "word"),
        ("pkg/deep/inner.py", "default=0", "default=1"),
        ("pkg/rules.py", "bonus = 1", "bonus = 2"),
        ("pkg/rules.py", "LIMIT = 9", "LIMIT = 8"),
        ("pkg/rules.py", "score and", "score or"),
        ("pkg/base.py", "floor = 1", "floor = 2"),
        ("pkg/base.py", "return value", "return value * 1"),
    ],
)
def test_an_edit_of_what_the_function_uses_is_noticed(
    identify: Identify, file: str, old: str, new: str
) -> None:
    assert identify(edited(file, old, new)) != identify(FILES)


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("metrics.py", "UNUSED = 1", "UNUSED = 2"),
        ("metrics.py", "return 0", "return 1"),
        (
            "metrics.py",
            "            found = [",
            "            # What is found.\n\n            found = [",
        ),
        ("metrics.py", "(case, answer)", "(\n            case,\n            answer,\n        )"),
        ("wording.py", "def spelled", "# Spelled.\n\n\ndef spelled"),
        ("wording.py", "text", "text"),
        ("lazy.py", "from wording", "import os\nfrom wording"),
    ],
)
def test_layout_comments_and_what_is_not_used_change_nothing(
    identify: Identify, file: str, old: str, new: str
) -> None:
    assert identify(edited(file, old, new)) == identify(FILES)


def test_a_function_is_the_same_however_its_file_is_run(tmp_path: Path) -> None:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), "utf-8")
    told = "from promptgraft.ground.functions import function_identity as i; "
    path = tmp_path / "metrics.py"
    path.write_text(path.read_text("utf-8") + f'if __name__ == "__main__": {told}print(i(score))')
    by_path = (
        "from pathlib import Path; from promptgraft.project.python_source import load_file; "
        "m = load_file(Path('metrics.py'), name='_x', what=''); "
    )

    def said(*arguments: str, folder: Path = tmp_path) -> str:
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, cwd=folder, check=True, capture_output=True, text=True
        ).stdout

    first = said("metrics.py")
    assert first.startswith("metrics.score ")
    assert said("-m", "metrics") == first
    assert said(str(path), folder=tmp_path.parent) == first
    assert said("-c", f"{told}import metrics; print(i(metrics.score))") == first
    assert said("-c", f"{told}{by_path}print(i(m.score))") == first


def test_what_a_closure_a_default_or_a_partial_holds_counts(identify: Identify) -> None:
    source = """
        import functools

        def inner(text):
            return 1

        def make(k, labels):
            calls, count = [], 0

            def score(case, answer, extra=k):
                nonlocal count
                count += 1
                calls.append(case)
                return k if answer in labels else inner(answer)

            return score

        made = make(1, ["x", "y"])
        score = functools.partial(made, "case")
        """

    def of(old: str = "", new: str = "") -> str:
        return identify({"metrics.py": dedent(source).replace(old, new)})

    assert of().startswith("metrics.make.<locals>.score ")
    assert (
        len({of(), of("(1,", "(2,"), of('"y"', '"z"'), of('"case"', '"c"'), of(" 1\n", " 2\n")})
        == 5
    )
    assert of() == of("score = functools", "made('a', 'b')\nscore = functools")


def test_objects_count_with_their_class_and_what_they_were_made_of(identify: Identify) -> None:
    source = """
        import attrs

        class Base:
            def least(self):
                return 1

        class Judge(Base):
            def __init__(self, strict):
                self.strict = strict
                self.calls = 0

            def __call__(self, case, answer):
                self.calls += 1
                return self.strict

        @attrs.frozen
        class Kept:
            judge: Judge
            names: tuple[str, ...] = ("a",)

            def score(self, case, answer):
                return self.judge(case, answer)

        JUDGE = Judge(True)
        KEPT = Kept(JUDGE)
        score = JUDGE
        """

    def of(old: str = "", new: str = "", *, last: str = "JUDGE") -> str:
        return identify(
            {
                "metrics.py": dedent(source)
                .replace(old, new)
                .replace("score = JUDGE", f"score = {last}")
            }
        )

    assert of().startswith("metrics.Judge ")
    assert of() != of("Judge(True)", "Judge(False)")
    assert of() != of("return 1", "return 2")
    assert of() == of("score = ", "JUDGE(1, 2)\nscore = ")
    method = of(last="KEPT.score")
    assert method.startswith("metrics.Kept.score ")
    assert method != of("Judge(True)", "Judge(False)", last="KEPT.score")
    assert method != of("Kept(JUDGE)", 'Kept(JUDGE, ("b",))', last="KEPT.score")


def test_decorated_functions_count_with_their_decorator(identify: Identify) -> None:
    source = """
        import functools

        def doubled(function):
            @functools.wraps(function)
            def wrapper(*arguments):
                return 2 * function(*arguments)
            return wrapper

        @functools.lru_cache(maxsize=None)
        @doubled
        def score(case, answer):
            return 1
        """

    def of(old: str = "", new: str = "") -> str:
        return identify({"metrics.py": dedent(source).replace(old, new)})

    assert of().startswith("metrics.score ")
    assert len({of(), of("2 *", "3 *"), of("return 1", "return 0"), of("@doubled", "")}) == 4


def test_code_without_source_is_told_by_its_compiled_form() -> None:
    def made(text: str) -> str:
        holds: dict[str, Callable[..., object]] = {}
        exec(
            f"LIMIT = 2\ndef helper():\n    return {text}\ndef score():\n    return helper()", holds
        )
        return function_identity(holds["score"])

    assert made("1") == made("1")
    assert made("1") != made("2")
    assert made("3 in {'a', 'b'}") == made("3 in {'b', 'a'}")


def test_a_file_that_was_edited_after_its_import_is_not_taken_for_what_runs(
    load: Callable[[Mapping[str, str]], ModuleType],
) -> None:
    source = "import wording\ndef score(case, answer):\n    return wording.worth(1)\n"
    files = {"metrics.py": source, "wording.py": "def worth(x):\n    return x\n"}
    for name, new in (
        ("metrics.py", source.replace("1", "22")),
        ("wording.py", "def worth(x):\n    return x + 1\n"),
    ):
        module = load(files)
        before = function_identity(module.score)
        (Path(str(module.__file__)).parent / name).write_text(new)
        stale = function_identity(module.score)
        assert len({before, stale, function_identity(load({**files, name: new}).score)}) == 3


def test_a_function_of_a_library_is_its_name() -> None:
    assert function_identity(len) == "builtins.len"
    assert function_identity(default_example_formatter) == (
        "promptgraft.targets.formatting.default_example_formatter"
    )
    assert function_identity(operator.itemgetter(1)) == "operator.itemgetter"
    assert function_name(functools.partial(dedent, "x")) == "textwrap.dedent"
    assert function_identity(functools.partial(dedent, "x")) != function_identity(
        functools.partial(dedent, "y")
    )


def test_a_callable_may_say_what_it_is() -> None:
    class Score:
        identity = "score/2"

    assert function_identity(Score()) == "score/2"


def test_cells_of_a_notebook_are_known_by_their_source() -> None:
    def of(*cells: str) -> str:
        holds: dict[str, Callable[..., object]] = {}
        for cell in cells:
            name = f"/tmp/cell-{next(_numbers)}.py"
            linecache.cache[name] = (len(cell), None, cell.splitlines(keepends=True), name)
            exec(compile(cell, name, "exec"), holds)
        return function_identity(holds["score"])

    helper, score = "K = 1\ndef helper(x):\n    return x * K", "def score(x):\n    return helper(x)"
    assert of(helper, score) == of(f"# Again.\n{helper}", f"{score}\n")
    assert (
        len({of(helper, score), of(helper.replace("1", "2"), score), of(helper[:-1] + "2", score)})
        == 3
    )


def test_a_function_is_the_same_in_every_process() -> None:
    names = [f"RULE_{number}" for number in range(10)]
    cells = [
        "class Rule:\n    def __init__(self, text):\n        self.text = text\n",
        f"{' = '.join(names)} = ['x', {{Rule('a'), Rule('b'), Rule('c')}}]\n",
        f"def score(case, answer):\n    return [{', '.join(names)}]\n",
    ]
    code = f"""
        import linecache
        from promptgraft.ground.functions import function_identity

        holds = {{"__name__": "__main__"}}
        for number, cell in enumerate({cells!r}):
            name = f"/tmp/cell-of-{{number}}.py"
            linecache.cache[name] = (len(cell), None, cell.splitlines(keepends=True), name)
            exec(compile(cell, name, "exec"), holds)
        print(function_identity(holds["score"]))
        """

    def identity(seed: str) -> str:
        command = [sys.executable, "-c", dedent(code)]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        return subprocess.run(
            command, env=environment, check=True, capture_output=True, text=True
        ).stdout

    assert len({identity(seed) for seed in ("1", "2", "3", "4")}) == 1


def test_a_function_is_the_same_in_every_version_of_python(identify: Identify) -> None:
    source = """
        import dataclasses
        import attrs

        class Limit:
            most: int = 3

        @attrs.frozen
        class Rule:
            limit: Limit
            words: tuple[str, ...] = ("a",)

            def points(self, text: str) -> float:
                return len(text) / self.limit.most

        @dataclasses.dataclass
        class Verdict:
            rule: Rule
            points: "float"

        def judge(rule: Rule, text: str) -> Verdict:
            return Verdict(rule, rule.points(text))

        def score(case: object, answer: str, rule: Rule = Rule(Limit())) -> float:
            return judge(rule, f"{answer!r}: {case}").points
        """

    assert identify({"metrics.py": source}) == "metrics.score 9842acd12a1a"


def test_the_type_of_an_attribute_counts(identify: Identify) -> None:
    source = """
        class Limit:
            most = 3

        class Rule:
            limit: Limit

        def score(case, answer):
            return Rule
        """

    def of(old: str = "", new: str = "") -> str:
        return identify({"metrics.py": dedent(source).replace(old, new)})

    assert of("most = 3", "most = 4") != of()


# Before Python 3.14, a type that is not imported at run time is possible with this line only.
POSTPONED = "from __future__ import annotations\n" if sys.version_info < (3, 14) else ""


def test_types_that_are_imported_for_type_checkers_alone_are_not_looked_for(
    load: Callable[[Mapping[str, str]], ModuleType],
) -> None:
    source = """
        from typing import TYPE_CHECKING

        import attrs

        if TYPE_CHECKING:
            from nowhere import AgentAnswer, Answer, Case

        @attrs.frozen
        class Rule:
            case: Case
            most: int = 3

            def __call__(self, case: Case, answer: Answer) -> float:
                return self.most

        def agent(query: str, call: Case) -> AgentAnswer:
            return query

        def too_many(query: str, call: Case, other: Case) -> AgentAnswer:
            return query

        def make() -> Answer:
            return None

        score = Rule(None)
        """
    module = load({"metrics.py": POSTPONED + dedent(source)})
    assert call_fault(module.score, "case", "answer") == ""
    assert call_fault(module.make, "case").endswith("its arguments are ()")
    assert first_argument(module.score) == "case"
    assert function_identity(module.score).startswith("metrics.Rule ")
    assert as_maker(module.make) is module.make
    assert PythonAgent(function=module.agent).reports_tools
    with pytest.raises(ConfigError, match=r"`\(query, call\)`, found `\(query: "):
        PythonAgent(function=module.too_many)


def test_addresses_are_searched_for_in_linear_time() -> None:
    # Minutes, if a long word of a model is read again from each of its letters.
    word = "<" + "a" * 300_000
    text = f"{word} <pkg.mod.of.<locals>.Kept object at 0x7f00> <Rule object at 0x1>"
    assert without_address(text) == f"{word} <Kept object> <Rule object>"


def test_values_are_described_with_the_code_in_them() -> None:
    def one() -> int:
        return 1

    def two() -> int:
        return 2

    assert described([1, "a"]) != described([1, "b"])
    assert described({"by": one}) != described({"by": two})
    assert described({"by": one}) == described({"by": one})
    assert described(len) == "<built-in function len>"
