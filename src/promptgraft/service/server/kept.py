"""What was typed into a form whose session had ended: kept in the page, and nowhere else.

The page to sign in has it in hidden fields, so that it comes back with the token. Nothing is
carried out before the user sends it again. A form names who typed it, and nobody else is shown it.
"""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import escape

BY = "by"
"""The field of a form with the name of who is signed in."""
_PREFIX = "kept."
_PATH = "kept-path"
_AREAS: Mapping[str, str] = {"text": "Text", "comment": "Comment"}


def hidden_fields(path: str, form: Mapping[str, str], labels: Mapping[str, str]) -> dict[str, str]:
    """Return the fields that keep a form in the page to sign in; none if nothing was typed in it.

    Args:
        path: the path that the form was sent to.
        form: its fields.
        labels: labels of fields of one line, by name.
    """
    if again := kept_again(form):
        return again
    # Of a button alone nothing is lost, and a tag is chosen by a page.
    typed = {*_AREAS, *labels, "to"} - {"tag"}
    if not path or not form.get(BY) or not any(form.get(name) for name in typed):
        return {}
    return {_PATH: path, **{f"{_PREFIX}{name}": value for name, value in form.items()}}


def kept_again(form: Mapping[str, str]) -> dict[str, str]:
    """Return those fields of a form that keep another one."""
    return {name: form[name] for name in form if name == _PATH or name.startswith(_PREFIX)}


def kept_of(form: Mapping[str, str], who: str) -> tuple[str, dict[str, str]]:
    """Return path and fields of a form of ``who`` that another one keeps; empty without one."""
    fields = {
        name.removeprefix(_PREFIX): value
        for name, value in form.items()
        if name.startswith(_PREFIX)
    }
    return (form.get(_PATH, ""), fields) if fields.get(BY) == who else ("", {})


def shown_fields(fields: Mapping[str, str], labels: Mapping[str, str]) -> dict[str, object]:
    """Return what the page shows of a kept form: areas, lines and hidden fields, and its button."""
    names = {"name": "Name", "to": "Promote to tag", **labels}
    # Escaped here: control characters are spelled out otherwise, and these are sent back.
    values = {name: escape(value) for name, value in fields.items() if name != "what"}
    return {
        "areas": [(name, _AREAS[name], values[name]) for name in values if name in _AREAS],
        "lines": [(name, names[name], values[name]) for name in values if name in names],
        "others": [(name, values[name]) for name in values if name not in {*_AREAS, *names}],
        "what": fields.get("what", ""),
    }


def inside(path: str) -> str:
    """Return a path below that of the application; the list of jobs for anything else."""
    is_path = path.startswith("/") and not path.startswith("//") and path.isprintable()
    return path if is_path and "\\" not in path else "/"
