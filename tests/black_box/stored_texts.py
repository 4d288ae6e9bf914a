"""Three texts, two in files and one that functions keep, in a folder of their own."""

from __future__ import annotations

from pathlib import Path

from promptgraft.agents.sources import FileSource, Sources, read_sources
from promptgraft.agents.writing import CallbackSource
from promptgraft.ground.files import write_atomically

OLD = {"system": "Old system.", "skill": "Old skill.", "stored": "Old store."}
NEW = {"system": "New system.\nTwo lines.", "skill": "New skill.", "stored": "New store."}
SKILL = ".claude/skills/SKILL.md"
FRONT = "---\nname: skill\n---\n"


def make(folder: Path) -> None:
    """Make the files, and what the functions keep."""
    (folder / ".claude" / "skills").mkdir(parents=True)
    (folder / "system.md").write_bytes(b"\xef\xbb\xbfOld system.\r\n")
    (folder / SKILL).write_text(f"{FRONT}Old skill.")
    (folder / "store.txt").write_text("Old store.")


def opened(folder: Path) -> Sources:
    """Read the texts of a folder."""

    async def write(text: str) -> None:
        write_atomically(folder / "store.txt", text.encode())

    skill = FileSource(Path(SKILL), "front_matter")
    return read_sources(
        {
            "stored": CallbackSource((folder / "store.txt").read_text, write),
            "system": FileSource(Path("system.md")),
            "skill": skill,
        },
        folder=folder,
    )


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file of a folder but the locks and what git is not to show."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != ".lock" and path.name != ".gitignore"
    }
