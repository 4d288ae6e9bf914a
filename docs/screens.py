"""Makes a picture of every screen, to look at: ``make screens``.

The terminals, the pipe, the report and the pages are those of real runs of the project of
``promptgraft init``, with the embedded offline model. The pictures are in ``build/screens``.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urljoin

import attrs
import terminal
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

FOLDER = Path(__file__).parents[1] / "build" / "screens"
PROGRAM = str(Path(sys.executable).with_name("promptgraft"))
CHROMIUM = "/usr/bin/chromium"
WIDTHS = (390, 768, 1440)
COLUMNS = (80, 120)
LINES = 50
TABS = ("candidates", "cases", "rounds", "texts", "cost", "events")
COMMANDS: Mapping[str, Sequence[str]] = {
    "check": ("check",),
    "plan": ("plan",),
    "optimize": ("optimize", "--budget", "600"),
    "runs": ("runs",),
    "show": ("show", "latest"),
    "show-candidate": ("show", "latest", "--candidate", "1"),
    "apply": ("apply",),
    "diff": ("diff", "triage"),
    "eval": ("eval",),
}
PATIENCE_MS = 600_000


@attrs.frozen
class Screens:
    """Photographs pages, in every width, light and dark."""

    browser: Browser

    def page(self, name: str, url: str, *, cookies_of: BrowserContext | None = None) -> None:
        """Keep pictures of a page."""
        state = None if cookies_of is None else cookies_of.storage_state()
        for scheme in ("light", "dark"):
            for width in WIDTHS:
                context = self.browser.new_context(
                    viewport={"width": width, "height": 900},
                    color_scheme="dark" if scheme == "dark" else "light",
                    storage_state=state,
                )
                page = context.new_page()
                page.goto(url)
                page.screenshot(path=FOLDER / f"{name}-{width}-{scheme}.png", full_page=True)
                context.close()

    def text(self, name: str, rows: Sequence[terminal.Row], columns: int) -> None:
        """Keep a picture of what a terminal shows."""
        svg = terminal.draw([terminal.Frame(0, tuple(rows))], columns=columns, title=name)
        width = round(columns * terminal.CHAR_WIDTH + 2 * terminal.MARGIN)
        page = self.browser.new_page(viewport={"width": width, "height": 600})
        page.set_content(f'<body style="margin:0">{svg}</body>')
        page.screenshot(path=FOLDER / f"{name}.png", full_page=True)
        page.close()


def terminals(screens: Screens, folder: Path) -> Path:
    """Photograph the commands at each width and in a pipe; return the folder of the project."""
    for columns in COLUMNS:
        project = new_project(folder / f"{columns}")
        for name, command in COMMANDS.items():
            shown = terminal.record(
                [PROGRAM, *command], columns=columns, lines=LINES, folder=project
            )
            screens.text(f"terminal-{name}-{columns}", shown.transcript.rows, columns)
    project = new_project(folder / "pipe")
    for name, command in COMMANDS.items():
        ended = subprocess.run(
            [PROGRAM, *command], cwd=project, capture_output=True, text=True, check=False
        )
        lines = (ended.stderr + ended.stdout).splitlines()
        rows = [((line, ""),) for line in lines]
        screens.text(f"pipe-{name}", rows, max(map(len, lines), default=COLUMNS[0]))
    return project


def new_project(folder: Path) -> Path:
    """Return the folder of a new project."""
    subprocess.run([PROGRAM, "init", str(folder)], check=True, capture_output=True)
    return folder


@contextmanager
def dashboard() -> Iterator[str]:
    """Yield the link of ``serve --demo``, which signs a browser in."""
    command = [PROGRAM, "serve", "--demo", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().removeprefix("open ").strip()
        finally:
            server.terminate()


def pages(screens: Screens) -> None:
    """Photograph the pages of the dashboard, once its jobs have ended."""
    with dashboard() as link:
        context = screens.browser.new_context()
        page = context.new_page()
        page.goto(link)
        screens.page("jobs-running", page.url, cookies_of=context)
        root = page.url.rstrip("/")
        for name, path in finished_pages(page).items():
            screens.page(name, f"{root}{path}", cookies_of=context)
        context.close()


def finished_pages(page: Page) -> Mapping[str, str]:
    """Wait until no job runs, and return the paths of the pages, by name."""
    counts = page.get_by_text(re.compile(r"^\d+ completed$"))
    expect(counts).to_have_count(1, timeout=PATIENCE_MS)
    page.reload()
    found = re.findall(r'href="(/jobs/[\w-]+)"', page.content())
    first, second, *_ = dict.fromkeys(found)
    numbers = [path.rpartition("/")[2] for path in (first, second)]
    page.goto(urljoin(page.url, f"{first}/cases"))
    case, *_ = re.findall(r'href="(/jobs/[\w-]+/case\?id=[\w-]+)"', page.content())
    return {
        "jobs": "/",
        "new": "/new",
        "job": first,
        **{f"job-{tab}": f"{first}/{tab}" for tab in TABS},
        "candidate": f"{first}/candidates/1",
        "case": case,
        "job-report": f"{first}/report",
        "compare": "/compare?job={}&job={}".format(*numbers),
        "tags": "/tags",
        **{name: f"/{name}" for name in ("datasets", "approvals", "workers", "account")},
        "problem": "/jobs/none",
    }


def main() -> None:
    """Make all pictures."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        screens = Screens(browser)
        project = terminals(screens, Path(folder))
        [report] = project.glob("runs/*/report.html")
        screens.page("report", report.as_uri())
        pages(screens)
    print(f"{len(list(FOLDER.glob('*.png')))} pictures in {FOLDER}")


if __name__ == "__main__":
    main()
