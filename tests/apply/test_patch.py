"""Patches, taken by the real git."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptgraft.project.applying import patch_of, patch_root
from promptgraft.project.files import FileChange

Texts = Mapping[str, tuple[str, str]]
CASES: Texts = {
    "plain.md": ("one\ntwo\nthree\n", "one\n2\nthree\n"),
    "no newline before.md": ("one\ntwo", "one\ntwo\n"),
    "no newline after.md": ("one\ntwo\n", "one\n2"),
    "no newline at all.md": ("one\ntwo", "one\nzwei"),
    "crlf.md": ("one\r\ntwo\r\n", "one\r\nthree\r\n"),
    "mixed.md": ("one\r\ntwo\n\r\n", "one\ntwo\r\n\n"),
    "from nothing.md": ("", "one\n"),
    "to nothing.md": ("one\ntwo\n", ""),
    'deep er/ünï/日本 "quoted"\\.md': ("a\fb\u2028c\x0bd\re\n", "a\fb\u2028c\x0bd\rf\n"),
    "tab\tand\nbreak.md": ("x\n", "y\n"),
    "looks like a patch.md": ("--- a\n+++ b\n@@ -1 +1 @@\n", "-- a\n++ b\n@@ -1 +2 @@\n"),
    "far.md": ("".join(f"{n}\n" for n in range(50)), "".join(f"{n % 49}\n" for n in range(50))),
}


def git(folder: Path, *arguments: str, patch: str | None = None) -> bytes:
    ended = subprocess.run(
        ["git", "-c", "core.autocrlf=false", *arguments],
        cwd=folder,
        input=None if patch is None else patch.encode(),
        capture_output=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "GIT_CONFIG_GLOBAL": "/dev/null", "HOME": "/nonexistent"},
    )
    assert ended.returncode == 0, (ended.stderr, patch)
    return ended.stdout


def laid_out(folder: Path, texts: Texts) -> list[FileChange]:
    changes = []
    for name, (before, after) in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(before.encode())
        changes.append(FileChange(path, before, after))
    return changes


@pytest.mark.parametrize("place", ["", "a project/below"])
def test_git_takes_a_patch_from_the_root_of_the_repository(place: str, tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    folder = tmp_path / place
    folder.mkdir(parents=True, exist_ok=True)
    changes = laid_out(folder, CASES)
    assert patch_root(folder) == tmp_path

    git(tmp_path, "apply", "-", patch=patch_of(changes, root=patch_root(folder)))

    assert {change.path: change.path.read_bytes().decode() for change in changes} == {
        change.path: change.after for change in changes
    }


def test_git_takes_a_patch_in_a_folder_below_the_root(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    folder = tmp_path / "project"
    folder.mkdir()
    (change,) = laid_out(folder, {"prompt.md": ("one\n", "two\n")})

    git(folder, "apply", "-", patch=patch_of([change], root=patch_root(folder)))

    assert change.path.read_text("utf-8") == "two\n"


def test_without_a_repository_git_takes_it_in_the_folder_of_the_project(tmp_path: Path) -> None:
    (change,) = laid_out(tmp_path, {"prompts/prompt.md": ("one\n", "two\n")})
    assert patch_root(tmp_path) == tmp_path

    git(tmp_path, "apply", "-", patch=patch_of([change], root=tmp_path))

    assert change.path.read_text("utf-8") == "two\n"


def test_names_are_written_as_git_writes_them(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    names = [name for name in CASES if name != "looks like a patch.md"]
    changes = laid_out(tmp_path, dict.fromkeys(names, ("one\n", "two\n")))
    git(tmp_path, "add", ".")
    for change in changes:
        change.path.write_text(change.after, "utf-8")

    theirs = git(tmp_path, "diff").decode()

    ours = patch_of(changes, root=tmp_path)
    assert sorted(headers(ours)) == sorted(headers(theirs))


def headers(patch: str) -> list[str]:
    return [line for line in patch.split("\n") if line.startswith(("diff ", "--- ", "+++ "))]


def test_files_that_stay_as_they_are_are_not_in_the_patch(tmp_path: Path) -> None:
    changes = laid_out(tmp_path, {"a.md": ("one\n", "one\n")})
    assert patch_of(changes, root=tmp_path) == ""


texts = st.text(st.sampled_from("ab \r\n\t\\-+@ü\u2028\f"), max_size=30)


@settings(max_examples=12, deadline=None)
@given(pairs=st.lists(st.tuples(texts, texts), min_size=8, max_size=8))
def test_git_makes_of_any_text_the_new_one(
    pairs: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("patch")
    changes = laid_out(folder, {f"{place}.md": pair for place, pair in enumerate(pairs)})
    patch = patch_of(changes, root=folder)
    if patch:
        git(folder, "apply", "-", patch=patch)

    assert [change.path.read_bytes().decode() for change in changes] == [new for _, new in pairs]
