"""What the documentation says runs: every Python block of every page, in order."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, ModuleType

import attrs
import pytest

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "specs/*.md", "docs/**/*.md", "examples/**/README.md")

_FENCE = re.compile(r"(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<info>[^`]*)")
_INFOS = {"python", "python no-run"}


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
    for block in found:
        assert block.info in _INFOS, f"line {block.line}: `{block.info}`; use one of {_INFOS}"
    return found


def run_page(page: Path, text: str) -> None:
    """Compile every Python block of ``text`` and run those that run, in one namespace."""
    module = ModuleType(f"page_{re.sub(r'[^a-z0-9]', '_', str(page).lower())}")
    module.__file__ = str(page)
    # Classes that a page defines look up their annotations in their module.
    sys.modules[module.__name__] = module
    try:
        for block in python_blocks(text):
            code = block.compiled(page)
            if block.runs:
                exec(code, module.__dict__)
    finally:
        del sys.modules[module.__name__]


def pages() -> list[Path]:
    found = {path for pattern in PAGES for path in ROOT.glob(pattern)}
    return sorted(path for path in found if python_blocks(path.read_text("utf-8")))


def test_every_place_of_documentation_is_looked_at() -> None:
    assert (ROOT / "README.md").is_file()
    assert (ROOT / "specs" / "README.md").is_file()
    assert ROOT / "specs" / "prompts.md" in pages()


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_blocks_of_a_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(page.relative_to(ROOT), page.read_text("utf-8"))


def links_of(text: str) -> list[str]:
    """Return the targets of links to other files, without their anchors."""
    prose = re.sub(r"(?ms)^ *(`{3,}|~{3,}).*?^ *\1", "", text)
    targets = re.findall(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)", prose)
    return [path for path, _, _ in (target.partition("#") for target in targets) if path]


def test_links_to_other_pages_lead_somewhere() -> None:
    dead = [
        f"{page.relative_to(ROOT)}: {link}"
        for pattern in PAGES
        for page in ROOT.glob(pattern)
        for link in links_of(page.read_text("utf-8"))
        if "://" not in link and not (page.parent / link).exists()
    ]
    assert dead == []


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
    ],
)
def test_a_page_that_is_wrong_fails(block: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        run_page(Path("page.md"), f"{PAGE}\n```{block}\n```\n")


def test_a_block_that_never_ends_fails() -> None:
    with pytest.raises(AssertionError, match="the block that opens in line 2 never ends"):
        python_blocks("\n```python\n1\n````x\n")


def test_a_failing_block_names_the_line_of_its_page() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        run_page(Path("page.md"), "# Title\n\n```python\nx = 1\n1 / 0\n```\n")
    assert (caught.traceback[-1].path, caught.traceback[-1].lineno + 1) == ("page.md", 5)
