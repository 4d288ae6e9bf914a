"""The first page: its figures are those of a run, and it stays short."""

from __future__ import annotations

import importlib.util
import re
import sys
from html import unescape
from pathlib import Path
from types import ModuleType

import pytest

from programs import Programs

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")


@pytest.fixture(scope="module")
def pictures() -> ModuleType:
    """The command that draws the pictures."""
    pytest.importorskip("pyte", reason="pyte is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "docs")
        spec = importlib.util.spec_from_file_location("pictures", ROOT / "docs" / "pictures.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        patch.setitem(sys.modules, "pictures", module)
        spec.loader.exec_module(module)
    return module


def test_the_first_page_is_short() -> None:
    assert len(README.splitlines()) <= 120


def test_the_figures_of_the_demo_are_those_of_a_run(
    pictures: ModuleType, programs: Programs, tmp_path: Path
) -> None:
    ended = programs.promptgraft("demo", "--quiet", "--store", ".", folder=tmp_path)
    figures = pictures.demo_figures(ended.stdout)

    assert len(figures.splitlines()) >= 4
    assert pictures.readme_with(figures, README) == README, "run: make pictures"
    picture = (ROOT / "docs" / "pictures" / "demo.svg").read_text("utf-8")
    described = re.search(r"(?s)<desc>(.*?)</desc>", picture)
    assert described is not None
    assert figures.strip() in unescape(described[1]).replace("\n\n", "\n"), "run: make pictures"


def test_the_figures_of_the_benchmark_are_in_its_specification() -> None:
    measured = (ROOT / "specs" / "search.md").read_text("utf-8")
    names = {
        "800 calls": "mean",
        "2,400 calls": "mean",
        "reflections, of 2,400 calls": "reflections",
    }
    for label, name in names.items():
        row = re.search(rf"(?m)^\| {label} \|(.*)\|$", README)
        assert row is not None, label
        figures = [figure.strip() for figure in row[1].split("|")]
        printed = re.search(rf"(?m)^{name} (?: *[\d.]+){{6}}$", measured)
        assert printed is not None, name
        columns = printed[0].split()[1:]
        assert figures == (columns[:3] if label == "800 calls" else columns[3:])


SHARED_FIGURES = {
    "calls by which gepa exceeds its limit": {
        "README.md": r"exceeded by up to (\d+) of|and the (\d+) calls",
        "docs/compared.md": r"exceeded by up to (\d+) of",
        "specs/search.md": r"gepa up to (\d+)",
    },
    "reflections, times those of gepa": {
        "docs/compared.md": r"reflection model more often: up to ([\d.]+) times",
        "specs/search.md": r"asks up to ([\d.]+) times",
    },
    "share of gepa's calls, and in how many families": {
        "README.md": r"(a \w+) of gepa's, in (\d+ of \d+)",
        "docs/compared.md": r"(a \w+) of the calls in (\d+ of \d+)",
        "specs/search.md": r"(a \w+) of the calls in (\d+ of \d+)",
    },
}
"""By figure: the pages that have it, and where; specs/search.md has what was measured."""


@pytest.mark.parametrize("figure", SHARED_FIGURES)
def test_pages_agree_on_a_measured_figure(figure: str) -> None:
    found = {
        page: {
            "".join(match.groups(""))
            for match in re.finditer(pattern, " ".join((ROOT / page).read_text("utf-8").split()))
        }
        for page, pattern in SHARED_FIGURES[figure].items()
    }
    assert all(found.values()), f"a page no longer has the {figure}: {found}"
    assert len(set().union(*found.values())) == 1, found


def linked_from(page: Path) -> set[Path]:
    """Return the files that a page links to; a folder stands for its README."""
    prose = re.sub(r"(?ms)^ *(`{3,}|~{3,}).*?^ *\1", "", page.read_text("utf-8"))
    links = re.findall(r"\[[^\]\n]*\]\(([^)\s#]+)[^)\s]*\)", prose)
    targets = {(page.parent / link).resolve() for link in links if "://" not in link}
    return {target / "README.md" if target.is_dir() else target for target in targets}


def test_every_page_and_example_is_within_two_clicks() -> None:
    first = linked_from(ROOT / "README.md")
    reached = first.union(*(linked_from(page) for page in first if page.suffix == ".md"))
    # Other pages in examples are parts of their projects.
    patterns = ("docs/**/*.md", "specs/*.md", "examples/**/README.md")
    pages = {page for pattern in patterns for page in ROOT.glob(pattern)}
    of_reference = linked_from(ROOT / "docs" / "reference" / "README.md")
    assert ROOT / "docs" / "reference" / "README.md" in reached
    assert len(pages) > 80
    unreached = pages - reached - of_reference
    assert sorted(str(page.relative_to(ROOT)) for page in unreached) == []


def test_every_picture_is_small_and_stands_alone() -> None:
    pictures = sorted((ROOT / "docs" / "pictures").glob("*.svg"))
    assert len(pictures) == 3
    for picture in pictures:
        text = picture.read_text("utf-8")
        assert len(text) < 60_000, picture.name
        assert not re.findall(r"(?:href|src|url)\W+https?:|<script|<image|@import", text)
