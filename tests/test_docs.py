"""The documentation is executed: every block of every page, in order."""

from __future__ import annotations

import contextlib
import importlib
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import attrs
import jsonschema
import pytest
import yaml

import doc_project
import promptgraft
from promptgraft.errors import DataFormatError
from promptgraft.project import project_schema

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "specs/**/*.md", "docs/**/*.md", "examples/**/README.md")

NEEDS = re.compile(r"<!-- needs: (\w+) -->")
"""A package without which the blocks of a page do not run."""

_FENCE = re.compile(r"(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<info>[^`]*)")
_INFOS = {"python", "python no-run"}
LONG = {
    f"docs/how-to/{name}.md"
    for name in ("graphs", "jobs", "replay", "resume-and-watch", "telemetry")
}
"""Pages whose blocks run for seconds, and give commands that tests give as well."""
OUTPUT = "text output"
_FILE = re.compile(r"\S+ (?P<path>[\w./-]+\.\w+)")


@attrs.frozen
class Block:
    """One fenced block.

    Attributes:
        line: the line of its fence, counted from 1.
        info: what stands behind the fence.
        code: its lines.
    """

    line: int
    info: str
    code: str

    @property
    def runs(self) -> bool:
        return self.info == "python"

    def compiled(self, page: Path) -> CodeType:
        """Compile it so that tracebacks name the lines of the page."""
        return compile("\n" * self.line + self.code, str(page), "exec", dont_inherit=True)


def blocks_of(text: str) -> Iterator[Block]:
    """Yield the fenced blocks of a Markdown text; fences nest by length."""
    opened: tuple[int, re.Match[str]] | None = None
    lines: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        match = _FENCE.fullmatch(line.rstrip())
        if opened is None:
            if match is not None:
                opened, lines = (number, match), []
        elif match is not None and _closes(opened[1], match):
            code = "".join(f"{kept}\n" for kept in lines)
            yield Block(opened[0], " ".join(opened[1]["info"].split()), code)
            opened = None
        else:
            lines.append(line.removeprefix(opened[1]["indent"]))
    assert opened is None, f"the block that opens in line {opened[0]} never ends"


def _closes(opening: re.Match[str], match: re.Match[str]) -> bool:
    return match["fence"].startswith(opening["fence"]) and not match["info"].strip()


def python_blocks(text: str) -> list[Block]:
    found = [block for block in blocks_of(text) if block.info.split(" ")[0] == "python"]
    found = [block for block in found if not _is_file(block)]
    for block in found:
        assert block.info in _INFOS, f"line {block.line}: `{block.info}`; use one of {_INFOS}"
    return found


def _is_file(block: Block) -> bool:
    return _FILE.fullmatch(block.info) is not None


def _use(block: Block) -> None:
    """Do what a block of a page with a project is for."""
    file = _FILE.fullmatch(block.info)
    if block.info == "sh":
        doc_project.carry_out(block.code)
    elif block.info in {"yaml", "yaml fragment"}:
        doc_project.check_settings(block.code, kept=False, looked_up=block.info == "yaml")
    elif block.info == f"yaml {doc_project.PROJECT}":
        doc_project.check_settings(block.code, kept=True, looked_up=True)
    elif file is not None:
        doc_project.write(file["path"], block.code)
    else:
        assert block.info in {*_INFOS, "sh no-run", "text", ""}, f"line {block.line}: {block.info}"


def run_page(page: Path, text: str) -> None:
    """Compile every Python block of ``text`` and run those that run, in one namespace.

    A block `text output` is what the Python block before it prints.

    On a page that says in which project its blocks run, commands, settings and files take
    part in it, in the order of the page.
    """
    module = ModuleType(f"page_{re.sub(r'[^a-z0-9]', '_', str(page).lower())}")
    module.__file__ = str(page)
    # Classes that a page defines look up their annotations in their module.
    sys.modules[module.__name__] = module
    wanted = python_blocks(text)
    printed = io.StringIO()
    try:
        has_project = doc_project.prepare(text)
        for block in blocks_of(text):
            if block in wanted:
                code = block.compiled(page)
                if block.runs:
                    with contextlib.redirect_stdout(io.StringIO()) as printed:
                        exec(code, module.__dict__)
            elif block.info == OUTPUT:
                assert printed.getvalue() == block.code, f"line {block.line}: the output differs"
            elif has_project:
                _use(block)
    finally:
        del sys.modules[module.__name__]


def pages() -> list[Path]:
    found = {path for pattern in PAGES for path in ROOT.glob(pattern)}
    return sorted(path for path in found if _has_blocks_to_run(path.read_text("utf-8")))


def _has_blocks_to_run(text: str) -> bool:
    return bool(python_blocks(text)) or doc_project.TEMPLATE.search(text) is not None


def test_every_place_of_documentation_is_looked_at() -> None:
    assert (ROOT / "README.md").is_file()
    assert (ROOT / "specs" / "README.md").is_file()
    assert ROOT / "specs" / "targets.md" in pages()


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=name, marks=[pytest.mark.thorough] if name in LONG else [])
        for page in pages()
        for name in [str(page.relative_to(ROOT))]
    ],
)
def test_the_blocks_of_a_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in NEEDS.findall(page.read_text("utf-8")):
        pytest.importorskip(package, reason=f"{package} is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # as for a program that is started there
    run_page(page.relative_to(ROOT), page.read_text("utf-8"))


def test_pages_with_commands_or_settings_say_where_they_run() -> None:
    silent = [
        str(page.relative_to(ROOT))
        for page in ROOT.glob("docs/**/*.md")
        if any(block.info.split(" ")[0] in {"sh", "yaml"} for block in blocks_of(read(page)))
        and doc_project.TEMPLATE.search(read(page)) is None
    ]
    assert silent == []


def read(page: Path) -> str:
    return page.read_text("utf-8")


def links_of(text: str) -> list[str]:
    """Return the targets of links to other files, without their anchors."""
    return [path for path, _ in targets_of(text) if path]


def targets_of(text: str) -> list[tuple[str, str]]:
    """Return file and anchor of each link; either may be empty."""
    found = re.findall(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)", prose_of(text))
    return [(path, anchor) for path, _, anchor in (target.partition("#") for target in found)]


def prose_of(text: str) -> str:
    return re.sub(r"(?ms)^ *(`{3,}|~{3,}).*?^ *\1", "", text)


def anchors_of(text: str) -> set[str]:
    """Return what links may name the headings of a page by, as GitHub does."""
    headings = re.findall(r"(?m)^#{1,6} (.*?)\s*$", prose_of(text))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_to_other_pages_lead_somewhere() -> None:
    dead = [
        f"{page.relative_to(ROOT)}: {link}"
        for pattern in PAGES
        for page in ROOT.glob(pattern)
        for link in links_of(page.read_text("utf-8"))
        if "://" not in link and not (page.parent / link).exists()
    ]
    assert dead == []


def test_links_to_headings_lead_to_one() -> None:
    texts = {page.resolve(): read(page) for pattern in PAGES for page in ROOT.glob(pattern)}
    anchors = {page: anchors_of(text) for page, text in texts.items()}
    dead = [
        f"{page.relative_to(ROOT)}: {link}#{anchor}"
        for page, text in texts.items()
        for link, anchor in targets_of(text)
        if anchor
        and "://" not in link
        and anchor not in anchors.get((page.parent / link).resolve() if link else page, set())
    ]
    assert dead == []


def names_of(text: str) -> list[str]:
    """Return the dotted names below ``promptgraft`` that a page has in backticks."""
    plain = re.sub(r"`promptgraft\.(yaml|schema\.json)", "", text)
    return re.findall(r"`(promptgraft(?:\.\w+)+)(?:\(.*?\))?`", plain)


def files_of(text: str) -> list[str]:
    """Return the Python files of this repository that a page has in backticks."""
    tops = "src|tests|docs|examples|benchmarks|promptgraft"
    return re.findall(rf"`((?:{tops})/[\w./-]+\.py)(?::\w+)?`", text)


def exists(name: str) -> bool:
    """Tell whether there is a module, or something in one, of this dotted name."""
    found: object = promptgraft
    for step in name.split(".")[1:]:
        if isinstance(found, ModuleType):
            with contextlib.suppress(ModuleNotFoundError):
                importlib.import_module(f"{found.__name__}.{step}")
        if not hasattr(found, step):
            return False
        found = getattr(found, step)
    return True


GROUPS = {
    f"promptgraft.{name}"
    for name in (
        [
            "additions",
            "algorithms",
            "commands",
            "executors",
            "formats",
            "importers",
            "metrics",
            "stores",
            "trackers",
        ]
    )
}
"""Entry point groups, which are no modules."""


def test_modules_and_files_that_pages_name_exist() -> None:
    texts = {page: read(page) for pattern in PAGES for page in ROOT.glob(pattern)}
    gone = [
        f"{page.relative_to(ROOT)}: {name}"
        for page, text in texts.items()
        for name in [
            *(name for name in names_of(text) if name not in GROUPS and not exists(name)),
            *(file for file in files_of(text) if not has_file(file)),
        ]
    ]
    assert gone == []


def test_messages_that_a_page_explains_are_said_by_the_code() -> None:
    text = read(ROOT / "docs" / "how-to" / "troubleshooting.md")
    explained = re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)
    assert len(explained) > 20
    sources = "\n".join(read(path) for path in (ROOT / "src").rglob("*.py"))
    # A text that goes on in the next line is one text.
    sources = re.sub(r"""["']\n +f?r?["']""", "", sources)
    patterns = {line: ".*".join(map(re.escape, line.strip("…").split("…"))) for line in explained}
    assert [line for line in explained if not re.search(patterns[line], sources)] == []


def has_file(name: str) -> bool:
    return name in OF_USERS or (ROOT / name).is_file() or (ROOT / "src" / name).is_file()


OF_USERS = {"tests/test_prompt.py"}
"""Files that pages tell their readers to write."""


def test_settings_of_the_search_in_prose_are_those_of_today() -> None:
    schema: Any = project_schema()
    settings = schema["properties"]["optimizer"]["properties"]
    known = {name: {**rules, "$defs": schema.get("$defs", {})} for name, rules in settings.items()}
    checked, refused = 0, []
    for page in sorted(path for pattern in PAGES for path in ROOT.glob(pattern)):
        for text in re.findall(r"`(\w+: (?!\.)[^`A-Z….]*)`", prose_of(read(page))):
            [(name, value)] = yaml.safe_load(text).items()
            if name in known:
                checked += 1
                if not jsonschema.Draft202012Validator(known[name]).is_valid(value):
                    refused.append(f"{page.relative_to(ROOT)}: {text}")
    assert checked >= 10
    assert refused == []


def test_names_of_modules_and_files_are_found_in_backticks() -> None:
    text = "`promptgraft.a.B(c=1)` and promptgraft.d, `promptgraft.yaml`, `tests/e.py:f`, `g.py`"
    assert names_of(text) == ["promptgraft.a.B"]
    assert files_of(text) == ["tests/e.py"]
    assert exists("promptgraft.search.driver.Driver.run")
    assert not exists("promptgraft.search.drivers")
    assert not exists("promptgraft.search.driver.Diver")


def test_headings_are_named_as_in_links() -> None:
    text = "# `promptgraft meta diff`\n```text\n# no\n```\n## What it's for, and why\n"
    assert anchors_of(text) == {"promptgraft-meta-diff", "what-its-for-and-why"}


def test_links_are_found_in_prose_only() -> None:
    text = "[a](b.md#c) [d](#e)\n```text\n[f](g.md)\n```\n[h](https://i.example/j)\n"
    assert links_of(text) == ["b.md", "https://i.example/j"]


PAGE = """
```python
import attrs
@attrs.frozen
class Question:
    text: str
```

```text
not python
```

````markdown
```python
1 / 0
```
````

- in a list

  ~~~python
  asked = Question("why?")
  assert __name__ != "__main__"
  ~~~

```python no-run
import promptgraft.nothing
```

```json
{"a": ]
```
"""


def test_only_the_python_blocks_of_a_page_are_python() -> None:
    found = [(block.line, block.info) for block in python_blocks(PAGE)]
    assert found == [(2, "python"), (21, "python"), (26, "python no-run")]


def test_the_blocks_of_a_page_share_one_namespace(tmp_path: Path) -> None:
    run_page(tmp_path / "page.md", PAGE)
    run_page(tmp_path / "page.md", f"{PAGE}\n```python\nassert asked.text == 'why?'\n```\n")
    assert not [name for name in sys.modules if name.startswith("page_")]


@pytest.mark.parametrize(
    ("block", "error"),
    [
        ("python\nassert asked.text == 'what?'", AssertionError),
        ("python\nfrom promptgraft import Nothing", ImportError),
        ("python\nif", SyntaxError),
        ("python no-run\nif", SyntaxError),
        ("python norun\n1", AssertionError),
        ("python\nprint(1)\n```\n```text output\n2", AssertionError),
    ],
)
def test_a_page_that_is_wrong_fails(block: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        run_page(Path("page.md"), f"{PAGE}\n```{block}\n```\n")


PROJECT_PAGE = """
<!-- blocks run in: classify -->

```python scoring.py
def short(case, answer):
    return len(answer.text) < 20
```

```yaml promptgraft.yaml
metrics:
  - {name: short, kind: python, function: scoring.py:short}
```

```sh
promptgraft check \\
  --json # fine
```

```python
from promptgraft.project import load_project
assert [metric.name for metric in load_project("promptgraft.yaml").metrics] == ["short"]
```

```sh no-run
make war
```

```yaml
workers: 2
```

```yaml fragment
dataset: {path: missing.csv}
```
"""


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("yaml\nworkers: many", "workers: expected an integer"),
        ("yaml\nworkers: 2\nworkers: 3", "workers"),
        ("yaml\ndataset: {path: missing.csv}", "missing.csv"),
        ("sh\nmake war", "mark the block `sh no-run`"),
        ("sh\npromptgraft check --jason", "promptgraft check --jason"),
        ("sh run\npromptgraft check", "sh run"),
    ],
)
def test_a_wrong_block_of_a_page_with_a_project_fails(
    block: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = f"<!-- blocks run in: classify -->\n```{block}\n```\n"
    with pytest.raises((AssertionError, DataFormatError), match=re.escape(message)):
        run_page(Path("page.md"), text)


def test_the_blocks_of_a_page_with_a_project_take_part_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(Path("page.md"), PROJECT_PAGE)


def test_a_block_that_never_ends_fails() -> None:
    with pytest.raises(AssertionError, match="the block that opens in line 2 never ends"):
        python_blocks("\n```python\n1\n````x\n")


def test_a_failing_block_names_the_line_of_its_page() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        run_page(Path("page.md"), "# Title\n\n```python\nx = 1\n1 / 0\n```\n")
    assert (caught.traceback[-1].path, caught.traceback[-1].lineno + 1) == ("page.md", 5)
