"""Writes ``docs/reference`` out of docstrings and the help of the command line.

``python docs/generate.py`` writes the pages; ``python docs/generate.py --check`` only says which
ones are not current, and then ends with 1.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any, get_origin

import attrs
import click
import griffe

import promptgraft
from promptgraft.cli.main import app
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.lazy import homes_of
from promptgraft.search.config import RunConfig

FOLDER = Path(__file__).parent / "reference"

_HOMES = {name: home for name, (home, _) in homes_of("promptgraft").items()}
_EXAMPLES = Path(__file__).with_name("entry_examples.txt").read_text("utf-8")
EXAMPLES = dict(re.findall(r"(?ms)^## (\w+)\n+(.*?)\n+(?=^## |\Z)", _EXAMPLES))
_NOTE = "<!-- Written by `python docs/generate.py` of docstrings and entry_examples.txt. -->"
_LONGEST_SIGNATURE = 88
_ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|exc):`~?([^`]+)`")
_CODE = re.compile(r"``([^`]+)``")
_LINE = 120
# `attrs.Factory` is a function to type checkers.
_FACTORY: type[Any] = type(attrs.Factory(dict))
_EMPTY: Mapping[object, str] = {dict: "{}", FrozenMap: "{}", list: "[]", tuple: "()"}


@attrs.frozen
class Page:
    """A page of the reference.

    Attributes:
        file: its name.
        title: its heading.
        about: one sentence.
        homes: packages of which it has the names that ``promptgraft`` hands on.
        modules: modules of which it has every name.
    """

    file: str
    title: str
    about: str
    homes: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()


PAGES = (
    Page(
        "prompts.md",
        "Prompts",
        "What a prompt is made of.",
        homes=("promptgraft.prompt", "promptgraft.ground.content"),
    ),
    Page(
        "overrides.md",
        "Overrides and stores",
        "What may replace parts of a prompt, and where it is kept.",
        homes=("promptgraft.overrides",),
    ),
    Page("models.md", "Models", "Adapters that call models.", homes=("promptgraft.adapters",)),
    Page(
        "evaluation.md",
        "Data sets and evaluation",
        "Cases, splits, and the scores of many answers.",
        homes=("promptgraft.evals",),
    ),
    Page(
        "metrics.md",
        "Metrics",
        "How answers are scored.",
        modules=("promptgraft.evals.metrics",),
    ),
    Page("judges.md", "Judges", "Models that judge.", modules=("promptgraft.evals.judges",)),
    Page(
        "optimizing.md",
        "Optimizing",
        "How a prompt is improved.",
        homes=(
            "promptgraft.project",
            "promptgraft.search",
            "promptgraft.algorithms",
            "promptgraft.targets",
            "promptgraft.graphs",
        ),
    ),
    Page(
        "running.md",
        "Around a run",
        "Journals, sessions, deadlines.",
        homes=("promptgraft.journal", "promptgraft.runtime"),
    ),
    Page(
        "agents.md",
        "Agents",
        "Agents that can only be called, and their texts.",
        modules=("promptgraft.agents",),
    ),
    Page(
        "errors.md", "Errors", "Exceptions, by whose fault it is.", modules=("promptgraft.errors",)
    ),
    Page(
        "project.md", "Projects", "The project file as objects.", modules=("promptgraft.project",)
    ),
    Page("runs.md", "Runs", "The folders of runs as objects.", modules=("promptgraft.runs",)),
)


def pages() -> dict[str, str]:
    """Return the text of each page, by the name of its file."""
    made = {page.file: _page(page) for page in PAGES}
    return {"README.md": _index(), **made, "cli.md": _cli_page()}


def names_of(page: Page) -> dict[str, tuple[str, Any]]:
    """Return what a page documents: by name, the module to import it from and the object."""
    found: dict[str, tuple[str, Any]] = {}
    for name, home in _HOMES.items():
        if any(home == prefix or home.startswith(f"{prefix}.") for prefix in page.homes):
            found[name] = (_door(name, home), getattr(promptgraft, name))
    for path in page.modules:
        module = importlib.import_module(path)
        found |= {name: (path, getattr(module, name)) for name in _offered(module)}
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def _door(name: str, home: str) -> str:
    """Return the package that users import a name from: the topmost that offers it."""
    if name in promptgraft.__all__:
        return "promptgraft"
    steps = home.split(".")
    packages = (".".join(steps[:end]) for end in range(2, len(steps) + 1))
    return next(path for path in packages if name in _offered(importlib.import_module(path)))


def _offered(module: ModuleType) -> list[str]:
    """Return the names that a module hands on; without ``__all__`` the classes of its own."""
    own = (name for name, value in vars(module).items() if inspect.isclass(value))
    given: list[str] | None = getattr(module, "__all__", None)
    return given or [name for name in own if getattr(module, name).__module__ == module.__name__]


def commands() -> dict[str, click.Command]:
    """Return every command by its words: ``optimize``, ``meta diff``."""
    return dict(_walked(app, ()))


def _walked(group: click.Group, words: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        # A group that does nothing without one of its commands is no command itself.
        if command is not None and getattr(command, "invoke_without_command", True):
            yield " ".join((*words, name)), command
        if isinstance(command, click.Group):
            yield from _walked(command, (*words, name))


def _index() -> str:
    lines = [
        "# Reference",
        _NOTE,
        "Generated from the docstrings and from the help of the command line.",
        "* [The command line](cli.md): every command with its options.",
    ]
    lines += [f"* [{page.title}]({page.file}): {_decapitalized(page.about)}" for page in PAGES]
    rows = [
        f"| [`{name}`]({page.file}#{_anchor(_heading(page, value, name))}) "
        f"| `{module}` | {_summary(value)} |"
        for page in PAGES
        for name, (module, value) in names_of(page).items()
    ]
    table = [
        "| name | import it from | what it is |",
        "|---|---|---|",
        *sorted(rows, key=str.lower),
    ]
    bullets = "\n".join(lines[3:])
    return "\n\n".join([*lines[:3], bullets, "## Names", "\n".join(table)]) + "\n"


def _page(page: Page) -> str:
    shown = any(name in EXAMPLES for name in names_of(page))
    about = f"{page.about} Examples build on those above them." if shown else page.about
    parts = [f"# {page.title}", _NOTE, about]
    for name, (module, value) in names_of(page).items():
        if _heading(page, value, name) == name:
            others = [other for other, (_, same) in names_of(page).items() if same is value]
            parts += [f"## `{name}`", *_described(name, module, value, others)]
    return "\n\n".join(parts) + "\n"


def _heading(page: Page, value: object, name: str) -> str:
    """Return the name that a value is documented under: that of its class where it is one."""
    same = [other for other, (_, found) in names_of(page).items() if found is value]
    return value.__name__ if inspect.isclass(value) and value.__name__ in same else name


def _described(name: str, module: str, value: Any, names: list[str]) -> Iterator[str]:
    also = "".join(f", or `{other}`" for other in names if other != name)
    yield f"`from {module} import {name}`{also}"
    if inspect.isclass(value):
        yield from _class(name, value)
    elif inspect.isfunction(value):
        yield _block(_signature(name, value))
        yield from _docstring(value)
        yield from _example(name)
    elif isinstance(value, ModuleType):
        yield from _docstring(value)
    else:
        yield _summary(value)


def _example(name: str) -> Iterator[str]:
    if name in EXAMPLES:
        yield f"```python\n{EXAMPLES[name]}\n```"


def _class(name: str, value: type) -> Iterator[str]:
    if _has_own_init(value):
        yield _block(_signature(name, value))
    yield from _docstring(value)
    yield from _inherited(value)
    yield from _example(name)
    for member, found in sorted(vars(value).items()):
        plain = found.__func__ if isinstance(found, (classmethod, staticmethod)) else found
        kept = hasattr(plain, "__get__") and not inspect.isfunction(plain)
        if member.startswith("_") or not plain.__doc__ or not (kept or inspect.isfunction(plain)):
            continue
        yield f"### `{name}.{member}`"
        if not kept:
            bound = found.__get__(None, value) if plain is not found else plain
            yield _block(_signature(f"{name}.{member}", bound, skip_first=plain is found))
        yield from _docstring(plain)


def _inherited(value: type) -> Iterator[str]:
    """Yield a table of the inherited fields that the signature of a class of settings names."""
    fields = attrs.fields_dict(value) if issubclass(value, RunConfig) else {}
    rows = (
        (f"`{one.name}`", one.description)
        for base in inspect.getmro(value)[1:]
        for section in griffe.Docstring(inspect.getdoc(base) or "").parse("google", warnings=False)
        if section.kind.value == "attributes"
        for one in section.value
        if one.name in fields
    )
    if fields:
        yield _table("attribute", rows)


def _has_own_init(value: type) -> bool:
    if getattr(value, "_is_protocol", False) or issubclass(value, BaseException):
        return False
    if "Made by" in (value.__doc__ or ""):
        return False
    return hasattr(value, "__attrs_attrs__") or "__init__" in vars(value)


def _signature(name: str, value: Callable[..., Any], *, skip_first: bool = False) -> str:
    found = inspect.signature(value)
    fields = attrs.fields_dict(value) if inspect.isclass(value) and attrs.has(value) else {}
    parameters = [
        _as_declared(one, value, fields.get(one.name))
        for one in list(found.parameters.values())[1 if skip_first else 0 :]
    ]
    shown: list[str] = []
    starred = False
    for one in parameters:
        if one.kind is one.KEYWORD_ONLY and not starred:
            shown.append("*")
        starred = starred or one.kind in (one.KEYWORD_ONLY, one.VAR_POSITIONAL)
        shown.append(_parameter(one))
    returns = "" if inspect.isclass(value) else _returned(found.return_annotation)
    line = f"{name}({', '.join(shown)}){returns}"
    if len(line) <= _LONGEST_SIGNATURE:
        return line
    inside = "".join(f"    {one},\n" for one in shown)
    return f"{name}(\n{inside}){returns}"


def _as_declared(
    one: inspect.Parameter, owner: Any, field: attrs.Attribute[object] | None
) -> inspect.Parameter:
    """Return a parameter with the type and the default that its attrs field declares."""
    if field is None or one.default is not attrs.NOTHING:
        return one
    # Not `field.type`: it turns from a text into a type once anything has resolved it.
    written = (vars(base).get("__annotations__", {}) for base in inspect.getmro(owner))
    declared = next(found[one.name] for found in written if one.name in found)
    annotation = declared if one.annotation is one.empty else one.annotation
    return one.replace(annotation=annotation, default=field.default)


def _parameter(one: inspect.Parameter) -> str:
    stars = "*" if one.kind is one.VAR_POSITIONAL else "**" if one.kind is one.VAR_KEYWORD else ""
    kind = "" if one.annotation is one.empty else f": {_type(one.annotation)}"
    if one.default is one.empty:
        return f"{stars}{one.name}{kind}"
    return f"{stars}{one.name}{kind} = {_default(one.default)}"


_MODULE = re.compile(r"\b([a-z_]+)\.(?=[A-Z])")
_OTHERS = {*sys.stdlib_module_names, "attrs"}


def _type(annotation: object) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    # A module of ours before a class says where it is, and users import it from its package.
    return _MODULE.sub(lambda name: name[0] if name[1] in _OTHERS else "", text)


def _returned(annotation: object) -> str:
    return "" if annotation is inspect.Signature.empty else f" -> {_type(annotation)}"


def _default(value: object) -> str:
    if isinstance(value, _FACTORY):
        made: object = get_origin(value.factory) or value.factory
        if value.takes_self or not inspect.isclass(made):
            return "..."  # it depends on other fields
        return _EMPTY.get(made, f"{made.__name__}()")
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    # Others show addresses, or what a platform has.
    plain = isinstance(value, (str, int, float, bool, type(None))) or value in ((), [], {})
    return repr(value) if plain else "..."


def _docstring(value: object) -> Iterator[str]:
    text = inspect.getdoc(value) or ""
    for section in griffe.Docstring(text).parse("google", warnings=False):
        kind = section.kind.value
        if kind == "text":
            yield _prose(section.value)
        elif kind in {"attributes", "parameters"}:
            yield _table(kind[:-1], ((f"`{one.name}`", one.description) for one in section.value))
        elif kind == "raises":
            yield _table(
                "raises", ((f"`{one.annotation}`", one.description) for one in section.value)
            )
        elif kind == "returns":
            yield "Returns: " + " ".join(_line(one.description) for one in section.value)
        else:
            yield _prose(str(section.value))


def _table(what: str, rows: Iterator[tuple[str, str]]) -> str:
    lines = [f"| {name} | {_line(text)} |" for name, text in rows]
    return "\n".join([f"| {what} | |", "|---|---|", *lines])


def _line(text: str) -> str:
    return " ".join(_prose(text).split()).replace("|", "\\|")


def _prose(text: str) -> str:
    return _CODE.sub(r"`\1`", _ROLE.sub(r"`\1`", text))


def _block(text: str) -> str:
    return f"```text\n{text}\n```"


def _summary(value: object) -> str:
    own = inspect.isclass(value) or inspect.isfunction(value) or isinstance(value, ModuleType)
    if isinstance(value, (str, int, float)):
        return f"`{value}`"
    if get_origin(value) is Callable:
        signature = re.sub(r"'|\b(?:\w+\.)+(?=\w)", "", str(value))
        return _line(f"A function of the form `{signature}`.")
    text = (inspect.getdoc(value) or "") if own else f"A value of `{type(value).__name__}`."
    return _line(text.split("\n\n")[0])


def _decapitalized(text: str) -> str:
    return text[:1].lower() + text[1:]


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def _cli_page() -> str:
    parts = [
        "# The command line",
        _NOTE,
        "Every command, from its own `--help`. More is in [specs/cli.md](../../specs/cli.md).",
        "\n".join(
            f"* [`{words}`](#promptgraft-{words.replace(' ', '-')}): "
            f"{_decapitalized(_prose(command.get_short_help_str(200)))}"
            for words, command in commands().items()
        ),
    ]
    for words, command in commands().items():
        parts += [f"## `promptgraft {words}`", *_command(words, command)]
    return "\n\n".join(parts) + "\n"


def _command(words: str, command: click.Command) -> Iterator[str]:
    # With the settings of the program: a command keeps the help option that it was first asked for.
    context = click.Context(command, info_name=f"promptgraft {words}", **app.context_settings)
    pieces = " ".join(command.collect_usage_pieces(context))
    yield _block(f"promptgraft {words} {pieces}".rstrip())
    yield inspect.cleandoc(command.help or "").replace("\b\n", "")
    records = [param.get_help_record(context) for param in command.get_params(context)]
    rows = [found for found in records if found and found[1] and "--help" not in found[0]]
    yield _table("option", ((f"`{name}`", text) for name, text in rows))
    examples = (command.epilog or "").replace("\b\n", "").removeprefix("Examples:\n")
    if examples.strip():
        yield _block(inspect.cleandoc(examples))


def stale(folder: Path, wanted: Mapping[str, str]) -> list[str]:
    """Return the files of a folder that say something else than wanted, or should not be there."""
    there = {path.name: path.read_text("utf-8") for path in folder.glob("*.md")}
    return sorted(name for name in {*there, *wanted} if there.get(name) != wanted.get(name))


def main(arguments: list[str]) -> int:
    """Write the pages, or with ``--check`` name those that are not current."""
    wanted = pages()
    found = stale(FOLDER, wanted)
    if arguments == ["--check"]:
        for name in found:
            print(f"{name} is not current; run `python docs/generate.py`")
        return 1 if found else 0
    FOLDER.mkdir(exist_ok=True)
    for name in found:
        if name in wanted:
            (FOLDER / name).write_text(wanted[name], "utf-8")
        else:
            (FOLDER / name).unlink()
        print(FOLDER / name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
