"""The command line from an installed wheel, far from the checkout."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs
import pytest

from programs import Programs, forked_programs

ROOT = Path(__file__).parents[2]
DOCS = """
import sys
from promptgraft.cli.main import __file__, run
failing = [page for page in sys.argv[1:] if run(["docs", page])]
print("\\0" + __file__, *failing, sep="\\n")
"""


@attrs.frozen
class Installed:
    """A wheel of this checkout, unpacked by pip where only it is found."""

    site: Path
    folder: Path
    programs: Programs
    """Forks of a process that has imported it."""

    @property
    def script(self) -> Path:
        """Its console script."""
        return self.site / "bin" / "promptgraft"

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run its console script in an empty folder."""
        return self.programs(self.script, *arguments, folder=self.folder)

    def pages_that_fail(self, pages: Iterable[str]) -> list[str]:
        """Return the pages that `docs` does not find; all are asked for in one process."""
        ended = self.programs("-c", DOCS, *pages, folder=self.folder)
        assert ended.returncode == 0, ended.stderr
        site, *failing = ended.stdout.rpartition("\0")[2].splitlines()
        assert Path(site).is_relative_to(self.site)
        return failing


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    place = tmp_path_factory.mktemp("wheel")
    wheels, site, folder = place / "wheels", place / "site", place / "elsewhere"
    folder.mkdir()
    if importlib.util.find_spec("hatchling") is not None:
        python("hatchling", "build", "-t", "wheel", "-d", str(wheels), folder=ROOT)
    else:  # pip fetches what builds it
        python("pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(wheels), str(ROOT))
    (wheel,) = wheels.glob("promptgraft-*.whl")
    # What it depends on comes from the environment of the tests.
    here = ("--no-deps", "--no-index", "--no-compile", "--target", str(site))
    python("pip", "install", "--quiet", *here, str(wheel))
    with forked_programs(path=site) as programs:
        yield Installed(site, folder, programs)


def python(*module_and_arguments: str, folder: Path | None = None) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", *module_and_arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr


def test_the_wheel_answers(installed: Installed) -> None:
    ended = subprocess.run(
        [sys.executable, str(installed.script), "show"],
        cwd=installed.folder,
        env={**os.environ, "PYTHONPATH": str(installed.site)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert str(installed.folder) in ended.stdout
    assert installed("--help").stdout.startswith("Usage: promptgraft ")


def test_a_project_from_the_wheel_is_right(installed: Installed) -> None:
    assert installed("init", "mine", "--template", "agent").returncode == 0
    ended = installed("check", "--project", "mine/promptgraft.yaml")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_demo_runs_from_the_wheel(installed: Installed) -> None:
    ended = installed("demo", "--json", "--quiet", "--budget", "300")

    assert ended.stderr == ""
    assert ended.returncode in (0, 1)
    document = json.loads(ended.stdout)
    assert document["prompt"]
    assert str(installed.site / "promptgraft" / "examples" / "triage") in "\n".join(document["use"])
    assert document["stored"]["store"] == str(installed.folder)


def test_the_commands_of_the_readme_pass(installed: Installed, tmp_path: Path) -> None:
    block = re.search(
        r"```sh no-run\npip install \.\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL
    )
    assert block is not None
    lines = [re.sub(r"\s*#.*", "", line) for line in block[1].splitlines()]
    at = attrs.evolve(installed, folder=tmp_path)
    for command in [part for line in lines for part in line.split(" && ")]:
        program, *arguments = command.split()
        if program == "cd":
            at = attrs.evolve(at, folder=at.folder / arguments[0])
            continue
        ended = at(*arguments)
        assert (program, ended.returncode) == ("promptgraft", 0), (command, ended.stdout)
        if arguments[0] == "init":  # a third of its budget is enough
            (project,) = at.folder.glob("**/promptgraft.yaml")
            text = project.read_text("utf-8")
            assert "rollout_budget: 1500" in text
            project.write_text(text.replace("rollout_budget: 1500", "rollout_budget: 500"), "utf-8")
    assert at.folder == tmp_path / "mine"


def test_the_pages_of_the_wheel_lead_somewhere(installed: Installed) -> None:
    (metadata,) = installed.site.glob("promptgraft-*.dist-info/METADATA")
    readme = metadata.read_text("utf-8").partition("\n\n")[2]
    assert links_of(readme) == []
    named = re.findall(r"`promptgraft docs ([^`]+)`", readme)
    assert "docs/getting-started.md" in named
    assert installed.pages_that_fail(named) == []

    files = list((installed.site / "promptgraft").rglob("*.md"))
    links = [(file, link) for file in files for link in links_of(file.read_text("utf-8"))]
    assert len(links) > 100
    assert [link for file, link in links if not (file.parent / link).exists()] == []


@pytest.mark.parametrize("template", ["classify", "agent"])
def test_the_pages_that_a_new_project_names_are_there(installed: Installed, template: str) -> None:
    assert installed("init", f"of_{template}", "--template", template).returncode == 0
    folder = installed.folder / f"of_{template}"
    texts = [file.read_text("utf-8") for file in folder.rglob("*") if file.is_file()]
    named = {page for text in texts for page in re.findall(r"promptgraft docs ([\w./-]+)", text)}
    assert installed.pages_that_fail(named) == []
    assert not [text for text in texts if re.search(r"(?<!docs )\b(?:specs|docs)/", text)]


def test_a_page_is_found_by_its_path_its_name_or_a_link_of_the_first_page(
    installed: Installed,
) -> None:
    by_path = installed("docs", "docs/how-to/ci.md")
    assert by_path.stdout.startswith("# Gate in CI with pytest")
    assert installed("docs", "how-to/ci.md").stdout == by_path.stdout
    assert installed("docs", "ci").stdout == by_path.stdout
    of_gepa = installed("docs", "docs/gepa.md").stdout
    assert installed("docs", "gepa").stdout == of_gepa != installed("docs", "specs/gepa.md").stdout
    assert installed("docs", "../specs/README.md").stdout.startswith("# ")
    known = json.loads(installed("docs", "--json").stdout)["pages"]
    assert {"README.md", "specs/cli.md", "examples/triage/README.md"} < set(known)
    several = installed("docs", "cli")
    assert (several.returncode, several.stdout) == (2, "")
    assert "several pages are called `cli`: `docs/reference/cli.md`, `specs/cli.md`" in (
        several.stderr
    )
    wrong = installed("docs", "specs/metric.md")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "there is no page `specs/metric.md` (did you mean `specs/metrics.md`?)" in wrong.stderr


def links_of(text: str) -> list[str]:
    """Return the targets of links to files, without their anchors."""
    prose = re.sub(r"(?ms)^ *(`{3,}|~{3,}).*?^ *\1", "", text)
    found = re.findall(r"(?<!!)\[[^\]\n]*\]\(([^)\s#]+)[^)\s]*\)", prose)
    return [link for link in found if "://" not in link]
