"""Templates that the command line is pointed at, and the shipped examples."""

from __future__ import annotations

from pathlib import Path

from promptgraft.errors import ConfigError
from promptgraft.project.python_source import Wanted, load, place_of
from promptgraft.prompt import Prompt, PromptTemplate


def load_template(spec: str) -> PromptTemplate[object]:
    """Return the template that ``module:ATTRIBUTE`` or ``file.py:ATTRIBUTE`` names.

    Raises:
        ConfigError: nothing like that can be imported, or it is no template.
    """
    return load(place_of(spec, _TEMPLATE.what), _TEMPLATE)


def example_folder(name: str) -> Path:
    """Return the folder of an example: in an installed package, or else in the checkout.

    Raises:
        ConfigError: there is neither.
    """
    package = Path(__file__).resolve().parents[1]
    places = [package / "examples" / name]
    if package.parent.name == "src":
        places.append(package.parents[1] / "examples" / name)
    for place in places:
        if place.is_dir():
            return place
    looked = " and ".join(str(place) for place in places)
    raise ConfigError(f"the example `{name}` is not in {looked}; install promptgraft again")


def as_template(value: object) -> PromptTemplate[object] | None:
    """Return a template, or that of a prompt; None for anything else."""
    if isinstance(value, Prompt):
        return value.template
    return value if isinstance(value, PromptTemplate) else None


_TEMPLATE = Wanted(
    what="--template",
    expected="a PromptTemplate or a Prompt",
    plural="templates",
    read=as_template,
)
