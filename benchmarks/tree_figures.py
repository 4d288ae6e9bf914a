"""Figures of the source tree itself: ``make figures``.

Each is counted from the files, or from a traced step; nothing is estimated.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "promptgraft"
GEPA = SOURCE / "algorithms" / "gepa"
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "resume")]

PRONOUNS = frozenset(
    (
        *("one", "ones", "other", "others", "it", "its", "own", "those", "these", "them"),
        *("found", "said", "made", "known", "held", "asked", "given", "wanted", "told", "seen"),
        *("shown", "left", "kept", "taken", "done"),
    )
)
"""Names of variables that name nothing: pronouns, and participles without a noun."""
MOST_ATTRIBUTES = 15


def files(folder: Path = SOURCE) -> list[Path]:
    """Return the modules of a folder."""
    return sorted(folder.rglob("*.py"))


def lines(paths: list[Path]) -> int:
    """Return their number of lines."""
    return sum(len(path.read_text("utf-8").splitlines()) for path in paths)


def trees() -> dict[Path, ast.Module]:
    """Return the parsed modules of the package."""
    return {path: ast.parse(path.read_text("utf-8")) for path in files()}


def import_lines(parsed: dict[Path, ast.Module]) -> int:
    """Return how many lines import statements take."""
    return sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for tree in parsed.values()
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
    )


def comments() -> int:
    """Return how many lines have a comment."""
    count = 0
    for path in files():
        with path.open("rb") as stream:
            tokens = tokenize.tokenize(stream.readline)
            count += sum(token.type == tokenize.COMMENT for token in tokens)
    return count


def local_names(parsed: dict[Path, ast.Module]) -> Iterator[str]:
    """Yield the name of each parameter and local variable, once for each function."""
    for tree in parsed.values():
        yield from _names_below(tree, set())


def _names_below(node: ast.AST, bound: set[str]) -> Iterator[str]:
    """Yield the names of the functions below a node; add all that is bound there to ``bound``."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Name):
            if isinstance(child.ctx, ast.Store):
                bound.add(child.id)
        elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            local = {
                argument.arg for argument in ast.walk(child.args) if isinstance(argument, ast.arg)
            }
            yield from _names_below(child, local)
            yield from local
            bound |= local
        else:
            yield from _names_below(child, bound)


def classes(parsed: dict[Path, ast.Module]) -> Iterator[ast.ClassDef]:
    """Yield the classes of the package."""
    for tree in parsed.values():
        yield from (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def attributes(node: ast.ClassDef) -> int:
    """Return how many attributes a class declares, or sets in its constructor."""
    declared = {
        item.target.id
        for item in node.body
        if isinstance(item, ast.AnnAssign)
        and isinstance(item.target, ast.Name)
        and "ClassVar" not in ast.unparse(item.annotation)
    }
    made = {
        inner.attr
        for item in node.body
        if isinstance(item, ast.FunctionDef) and item.name == "__init__"
        for inner in ast.walk(item)
        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store)
    }
    return len(declared | made)


def public_names() -> int:
    """Return how many names the package hands on."""
    tree = ast.parse((SOURCE / "__init__.py").read_text("utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return len(ast.literal_eval(node.value))
    raise SystemExit("src/promptgraft/__init__.py: expected `__all__`, found none")


LOADED = """
import runpy, sys
runpy.run_path("program.py", run_name="__main__")
print()
print(*(module.__file__ for name, module in list(sys.modules.items())
        if name.split(".")[0] == "promptgraft" and module.__file__), sep="\\n")
"""
"""Runs a program and prints the files of the modules that it has loaded."""


def loaded_by_the_readme() -> list[Path]:
    """Return the modules that the first program of the README loads."""
    page = (ROOT / "README.md").read_text("utf-8")
    program = page.partition("```python\n")[2].partition("```")[0]
    with tempfile.TemporaryDirectory() as folder:
        init = [sys.executable, "-m", "promptgraft", "init", folder]
        subprocess.run(init, check=True, stdout=subprocess.DEVNULL)
        (Path(folder) / "program.py").write_text(program, "utf-8")
        ended = subprocess.run(
            [sys.executable, "-c", LOADED], cwd=folder, capture_output=True, text=True, check=True
        )
    return [Path(line) for line in ended.stdout.splitlines() if line.startswith(str(SOURCE))]


def strategy_words() -> int:
    """Return how often the published algorithm names a strategy."""
    from optimizers.test_plain_algorithm import STRATEGY_WORDS

    text = (GEPA / "search.py").read_text("utf-8").casefold()
    return sum(len(re.findall(rf"(?<![a-z]){word}(?![a-z])", text)) for word in STRATEGY_WORDS)


def rows() -> Iterator[tuple[str, str, str]]:
    """Yield the name, the value and the aim of each figure."""
    from optimizers.test_one_step import DEFAULT, OWN, longest_step
    from test_architecture import circles, imports_within, late_imports, modules_of

    parsed, whole = trees(), lines(files())
    search = lines([GEPA / "search.py"])
    yield "search.py: lines, strategy words", f"{search}, {strategy_words()}", "150, 0"
    yield "algorithms/gepa: lines", f"{lines(files(GEPA)):,}", "3,400"
    every = longest_step(DEFAULT)
    own = {(file, name) for file, name in every if any(map(file.is_relative_to, OWN))}
    for name, step, aim in (
        ("default step, engine and algorithm", own, "25, 130"),
        ("default step, everything", every, "50, 280"),
    ):
        yield f"{name}: files, functions", f"{len({file for file, _ in step})}, {len(step)}", aim
    yield "src: lines, modules", f"{whole:,}, {len(parsed)}", "80,000"
    outside = lines([*files(SOURCE / "bridges"), *files(SOURCE / "service")])
    yield "src without bridges and service: lines", f"{whole - outside:,}", "62,000"
    yield "folders at the top", str(len(list(SOURCE.glob("*/__init__.py")))), "18"
    loaded = loaded_by_the_readme()
    yield "lines, modules that the README loads", f"{lines(loaded):,}, {len(loaded)}", "38,000"
    modules = modules_of(SOURCE)
    yield "circles of imports, late ones included", str(len(circles(imports_within(modules)))), "0"
    yield "imports of ours inside functions", str(len(late_imports(modules))), "may only fall"
    yield "import lines, % of all", f"{100 * import_lines(parsed) / whole:.1f}", "7"
    yield "comments per 100 lines", f"{100 * comments() / whole:.1f}", "at least 3"
    names = Counter(local_names(parsed))
    vague = sum(count for name, count in names.items() if name in PRONOUNS)
    yield "pronouns among parameters and locals, %", f"{100 * vague / names.total():.1f}", "2"
    wide = sum(attributes(node) > MOST_ATTRIBUTES for node in classes(parsed))
    yield f"classes of more than {MOST_ATTRIBUTES} attributes", str(wide), "5"
    yield "names in promptgraft.__all__", str(public_names()), "40"
    shared = [
        count for count in Counter(node.name for node in classes(parsed)).values() if count > 1
    ]
    yield "class names that several share, classes", f"{len(shared)}, {sum(shared)}", "60 classes"


def main() -> int:
    """Print the figures; with ``--circles`` the modules of each circle of imports."""
    if "--circles" in sys.argv:
        from test_architecture import circles, imports_within, modules_of

        for circle in circles(imports_within(modules_of(SOURCE))):
            print(" ".join(name.removeprefix("promptgraft.") for name in circle))
        return 0
    print(f"{'figure':<46} {'today':>16}  aim")
    for name, value, aim in rows():
        print(f"{name:<46} {value:>16}  {aim}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
