"""The files that are meant where a folder or a pattern is named as a file of cases."""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

from promptgraft.errors import DataFormatError
from promptgraft.evals.rows import ENDINGS, SETS
from promptgraft.ground.files import is_file

_PATTERN = re.compile(r"[*?[]")
_NOT_CASES = ("dataset_info", "dataset_infos", "dataset_dict", "state")
_MOST_FILES = 8


def refuse_several(path: Path, root: Path | None) -> None:
    """Refuse a folder or a pattern, with the lines that name its files in a project.

    Args:
        path: what was named as a file of cases.
        root: the folder of the project; None where the path was given in Python.

    Raises:
        DataFormatError: it is a folder, or a pattern such as ``data/*.jsonl``.
    """
    try:
        is_folder = path.is_dir()
        if not is_folder and (path.exists() or not _PATTERN.search(str(path))):
            return
    except OSError:  # such as a name that is too long: reading it says what is wrong
        return
    # Data sets of Hugging Face have their files there or in one folder below.
    inside = Path(glob.escape(str(path)))
    patterns = (inside / "*", inside / "*" / "*") if is_folder else (path,)
    paths = [
        Path(file)
        for pattern in patterns
        for file in glob.iglob(str(pattern))  # noqa: PTH207 - folders of a path may be patterns
    ]
    files = sorted(
        file
        for file in paths
        if file.suffix.lower() in ENDINGS and file.stem not in _NOT_CASES and is_file(file)
    )
    kind = "a folder" if is_folder else "a pattern"
    mend = _mend(files, root)
    if not files and (arrow := next((file for file in paths if file.suffix == ".arrow"), None)):
        mend = (
            "it was saved by Hugging Face `datasets`; write cases to a file with "
            f"`load_from_disk({str(arrow.parent)!r}).to_parquet('cases.parquet')`"
        )
    raise DataFormatError(f"expected a file, found {kind} at {path}; {mend}")


def _mend(files: Sequence[Path], root: Path | None) -> str:
    """Return the lines of a project, or in Python the call, that name files of cases."""
    names = [os.path.relpath(file, root or ".") for file in files]
    if not files:
        return "name a file of cases in it"
    if len(files) > _MOST_FILES and root is not None:
        return f"join its {len(files)} files to one of each set, and name those in `splits.files`"
    by_set: dict[str, list[str]] = {name: [] for name in ("train", "validation", "test")}
    for file, name in zip(files, names, strict=True):
        if (kind := SETS.get(re.split(r"[-_.]", file.stem.lower())[0])) is not None:
            by_set[kind].append(name)
    if root is None:
        single = {kind: paths[0] for kind, paths in by_set.items() if len(paths) == 1}
        if by_set["train"] and len(single) == len(names) > 1:
            call = ", ".join(f"{kind}={name!r}" for kind, name in single.items())
            return f"write `Splits.load({call})`"
        several = "" if len(names) == 1 else ", or join them: `Dataset.of(pandas.concat(TABLES))`"
        return f"name a file, such as {names[0]!r}{several}"
    if not by_set["train"]:
        return " or ".join(f"write `path: {_quoted(name)}`" for name in names)
    if len(names) == 1:
        return f"write `dataset: {{path: {_quoted(names[0])}}}`"
    lines = ", ".join(
        f"{kind}: {_quoted(paths[0] if len(paths) == 1 else paths)}"
        for kind, paths in by_set.items()
        if paths
    )
    return f"leave out `dataset.path` and write `splits: {{files: {{{lines}}}}}`"


def _quoted(names: str | list[str]) -> str:
    """Return names of files as YAML, which is valid in JSON's quotation marks."""
    return json.dumps(names, ensure_ascii=False)
