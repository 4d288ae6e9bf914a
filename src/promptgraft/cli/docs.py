"""``promptgraft docs``: the documentation that is installed with the package."""

from __future__ import annotations

from posixpath import normpath

import click

from promptgraft.cli.choosing import shipped
from promptgraft.cli.options import command, json_option
from promptgraft.cli.output import echo, print_json
from promptgraft.errors import ConfigError
from promptgraft.serde import did_you_mean

_START = "docs/README.md"


@command("docs", "docs", "docs specs/metrics.md", "docs examples/closed_loop")
@click.argument("page", metavar="[PAGE]", default=_START)
@json_option
def docs_command(page: str, *, as_json: bool) -> None:
    """Print a page of the documentation of this version, in Markdown.

    PAGE is its path, `specs/metrics.md`, or a link of the page that is printed without PAGE,
    which lists the pages for users. Of a folder without a `README.md`, the paths below it.
    """
    top = shipped("README.md").parent
    folders = (shipped(name) for name in ("docs", "specs", "examples"))
    files = [top / "README.md", *(file for folder in folders for file in folder.rglob("*.md"))]
    pages = {file.relative_to(top).as_posix(): file for file in sorted(files)}
    places = [normpath(place) for place in (page, f"docs/{page}")]
    found = [file for place in places for file in (place, f"{place}/README.md") if file in pages]
    below = [file for file in pages if file.startswith(f"{places[0]}/")]
    if not found and not below:
        near = did_you_mean(page, list(pages))
        raise ConfigError(f"there is no page `{page}`{near}; `promptgraft docs` lists the pages")
    text = pages[found[0]].read_text("utf-8") if found else "\n".join(below)
    if as_json:
        print_json({"folder": str(top), "page": text, "pages": list(pages)})
    else:
        echo(text.removesuffix("\n"))
