"""Builds the documentation site: ``python docs/website.py`` writes it to ``build/site``.

The pages link to each other as files of the repository, so that they can be read there; the site
keeps their places. A link that leads nowhere ends the build with 1.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ("*.md", "docs/**/*.md", "specs/**/*.md", "examples/**/README.md")
_LINK = re.compile(r"\]\(([^)\s#]+)[^)\s]*\)|src=\"([^\"]+)\"")
# What the tests of the pages do with a block, as in "```sh no-run".
_WORDS_FOR_TESTS = re.compile(r"(?m)^( *```\w+) .*$")


def main() -> int:
    """Write the site, and return the exit code of the build."""
    pages = ROOT / "build" / "site-pages"
    shutil.rmtree(pages, ignore_errors=True)
    for file in _files():
        copy = pages / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".md":
            copy.write_text(_WORDS_FOR_TESTS.sub(r"\1", file.read_text("utf-8")), "utf-8")
        else:
            shutil.copyfile(file, copy)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    return subprocess.run([*command, "--config-file", ROOT / "mkdocs.yml"], check=False).returncode


def _files() -> Iterator[Path]:
    """Yield every page, and every file that a page links to."""
    pages = {page for pattern in PAGES for page in ROOT.glob(pattern)}
    yield from pages
    linked = {target for page in pages for target in _linked(page)}
    yield from linked - pages


def _linked(page: Path) -> Iterator[Path]:
    for match in _LINK.finditer(page.read_text("utf-8")):
        target = (page.parent / (match[1] or match[2])).resolve()
        if target.is_file() and target.is_relative_to(ROOT):
            yield target


if __name__ == "__main__":
    sys.exit(main())
