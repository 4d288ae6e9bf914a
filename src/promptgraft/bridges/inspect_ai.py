"""Import of inspect_ai data sets."""

from __future__ import annotations

import itertools
import json
import string
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from promptgraft.errors import ConfigError
from promptgraft.ground.serde import Json, did_you_mean
from promptgraft.ground.strict.nodes import Node
from promptgraft.ground.text import listed
from promptgraft.project import imported

FIELDS = ("input", "target", "choices", "id", "metadata")
_FILE = "prompts/question.md"
_MOST_LISTED = 20
_LETTER = "Answer the question with the letter of the right choice, and nothing else."
_LETTERS = "Answer the question with the letters of all right choices, and nothing else."
_OF_AGENTS = ("sandbox", "files", "setup", "checkpoint")


class InspectImporter(imported.Importer):
    """Converts data sets of inspect_ai."""

    source = "a data set of inspect_ai"
    takes = ("fields",)

    @classmethod
    def recognizes(cls, path: Path, value: Json) -> float:
        return 1 if path.suffix.lower() in imported.ROWS or isinstance(value, list) else 0

    @classmethod
    def convert(
        cls, path: Path, options: imported.ImportOptions, notes: imported.Notes
    ) -> imported.ImportedProject:
        fields = dict(_named_fields(options["fields"]))
        return import_inspect(imported.Foreign.of(path, notes=notes), fields)


def _named_fields(options: Sequence[str]) -> Iterator[tuple[str, str]]:
    for option in options:
        name, sign, column = option.partition("=")
        if not sign or name not in FIELDS:
            raise ConfigError(
                f"--field: expected NAME=COLUMN with one of {', '.join(FIELDS)}, found {option!r}"
            )
        yield name, column


def import_inspect(files: imported.Foreign, fields: Mapping[str, str]) -> imported.ImportedProject:
    """Convert an inspect_ai data set, in CSV, JSON or JSONL, to a project with a first prompt.

    Targets are searched for in the answer, as ``includes()`` does; for choices, the letter counts.

    Args:
        files: the data set.
        fields: the columns of fields that have other names, by field.

    Raises:
        DataFormatError: all faults, one line each.
    """
    source, notes = files.source, files.notes
    root = source.root
    if not isinstance(root.value, list):
        root.expected("a list of samples")
    _check_fields(root, fields)
    source.raise_all()
    cases = list(_cases(root, fields, notes))
    source.raise_all()
    splits = dict(imported.splits_of(cases, root, notes))
    most = max((len(_choices(row, fields)) for row in root.items()), default=0)
    several = any(isinstance(case["expected"], list) for case in cases)
    # The embedded model gives one of a few answers.
    model = imported.OFFLINE if most and not several else imported.USUAL
    if model == imported.USUAL:
        notes.add(root, imported.NO_MODEL)
    metric: dict[str, Json] = {"any_of": True, "ignore_case": True}
    prompt = [("system", "Answer the question."), ("user", "{{ question }}")]
    choices: Sequence[str] = ()
    if most:
        letters = string.ascii_uppercase[:most]
        choices = () if several else letters
        metric = {"labels": list(letters), "within_text": True, "several": several}
        prompt = [
            ("system", _LETTERS if several else _LETTER),
            ("user", "{{ question }}\n\n{{ choices }}"),
        ]
    kind = "classification" if most else "contains"
    path, prompt_path = files.free(imported.CASES_FILE), files.free(_FILE)
    return imported.ImportedProject(
        document={
            "version": 1,
            "prompts": {"question": prompt_path},
            "dataset": {"path": path},
            **splits,
            "metrics": [{"name": "target", "kind": kind, **metric}],
            "models": {"task": model},
        },
        files={
            path: imported.lines_of(cases),
            prompt_path: imported.prompt_file("question", prompt, choices),
        },
        notes=notes.lines,
        unwritten=(path,) if imported.questions_in(cases) < 2 else (),
    )


def _cases(
    root: Node, fields: Mapping[str, str], notes: imported.Notes
) -> Iterator[dict[str, Json]]:
    names = {fields.get(name, name): name for name in FIELDS}
    chooses = any(_choices(row, fields) for row in root.items())
    for number, row in enumerate(root.items(), start=1):
        sample: dict[str, Node] = {}
        for key, member in row.members().items():
            # An empty cell of a table, which has no other way to leave a field out.
            if member.value == "":
                continue
            if key in names:
                sample[names[key]] = member
            elif key == "description":
                sample[key] = member
            else:
                why = "it is no field of a sample, and in no prompt"
                why = "an agent sets it up itself" if key in _OF_AGENTS else why
                notes.add(member, f"`{key}` is left out: {why}")
        choices = _choices(row, fields)
        if len(choices) > len(string.ascii_uppercase):
            sample["choices"].fault(
                f"expected at most 26 choices, one a letter, found {len(choices)}"
            )
        elif "input" not in sample:
            row.fault(f"expected a value in `{fields.get('input', 'input')}`, found none")
        elif "target" not in sample:
            notes.add(row, "a sample without a target is left out")
        else:
            example_input: dict[str, Json] = {"question": _question(sample["input"], notes)}
            lettered = zip(string.ascii_uppercase, choices, strict=False)
            if chooses:
                example_input["choices"] = "\n".join(
                    f"{letter}) {choice}" for letter, choice in lettered
                )
            further: dict[str, Json] = {
                key: _data(sample[key]) for key in ("metadata", "description") if key in sample
            }
            target = sample["target"].value
            if isinstance(target, dict):
                what = "an object is looked for as its text, as inspect_ai does"
                notes.add(sample["target"], f"{what}: name a text with `--field target=COLUMN`")
            yield {
                "id": str(sample["id"].value) if "id" in sample else str(number),
                "input": example_input,
                "expected": list(map(str, target)) if isinstance(target, list) else str(target),
                **({"fields": further} if further else {}),
            }


def _check_fields(root: Node, fields: Mapping[str, str]) -> None:
    """Report once, and not for each sample, a column that no sample has."""
    columns = list(dict.fromkeys(name for row in root.items() for name in row.members()))
    for name in ("input", "target"):
        column = fields.get(name, name)
        if not columns or column in columns:
            continue
        near = did_you_mean(column, columns)
        option = (
            "--field input=COLUMN --field target=COLUMN"
            if len(fields) < 1
            else f"--field {name}=COLUMN"
        )
        there = listed(columns[:_MOST_LISTED])
        root.fault(
            f"no sample has the column `{column}`{near}; the columns are {there}: name the right "
            f"one with `{option}`"
        )
        if not fields:
            return


def _data(node: Node) -> Json:
    """Return metadata, which is JSON text in tables."""
    if not isinstance(node.value, str) or node.path[-1] == "description":
        return node.value
    try:
        value: Json = json.loads(node.value)
    except ValueError:
        node.expected("an object in JSON")
        return None
    return value


def _question(node: Node, notes: imported.Notes) -> Json:
    """Return the question: a text, or texts and images in order; messages are joined to one."""
    if not isinstance(node.value, list):
        return str(node.value)
    messages = node.items()
    pieces: list[Json] = []
    for message in messages:
        role = f"{message.member('role').value}: " if len(messages) > 1 else ""
        content = [*_content(message, notes)]
        start = f"{role}{content.pop(0)}" if content and isinstance(content[0], str) else role
        pieces += [start, *content] if start else content
    if len(messages) > 1:
        notes.add(node, "several messages are asked as one text")
    if all(isinstance(piece, str) for piece in pieces):
        return "\n\n".join(map(str, pieces))
    return pieces


def _content(message: Node, notes: imported.Notes) -> Iterator[Json]:
    """Yield the images of a message and the texts between them."""
    pieces: list[Json] = []
    for part in imported.parts_of(message):
        match part:
            case {"text": str(text)}:
                pieces.append(text)
            case {"type": "image", "image": str(place)}:
                pieces.append(imported.image_part(place))
            case _:
                what = "a part of a message that is no text and no image is left out"
                notes.add(message, what)
    for kind, run in itertools.groupby(pieces, type):
        if kind is str:
            yield "\n".join(map(str, run))
        else:
            yield from run


def _choices(row: Node, fields: Mapping[str, str]) -> list[str]:
    """Return the choices of a sample, which are one text in tables."""
    value = row.member(fields.get("choices", "choices")).value
    if isinstance(value, str):
        values: Sequence[Json] = value.split("," if "," in value else None)
    else:
        values = value if isinstance(value, list) else []
    return [str(value).strip() for value in values if str(value).strip()]
