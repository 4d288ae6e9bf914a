"""Python that the command line is pointed at: templates of users, and the shipped examples."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from promptgraft.errors import ConfigError
from promptgraft.prompt import Prompt, PromptTemplate
from promptgraft.serde import did_you_mean, shown


def load_template(spec: str) -> PromptTemplate[object]:
    """Return the template that ``module:ATTRIBUTE`` or ``file.py:ATTRIBUTE`` names.

    Raises:
        ConfigError: nothing like that can be imported, or it is no template.
    """
    where, _, attribute = spec.rpartition(":")
    if not where or not attribute:
        raise ConfigError(
            f"--template: expected `module:ATTRIBUTE` or `file.py:ATTRIBUTE`, found {spec!r}"
        )
    if where.endswith(".py") or os.sep in where:
        path = Path(where)
        module = load_file(path, name=f"_template_{path.stem}", what="--template")
    else:
        with _imported_from(Path.cwd(), f"--template: module `{where}`"):
            module = importlib.import_module(where)
    return _template_in(module, attribute, where)


def load_file(path: Path, *, name: str, what: str) -> ModuleType:
    """Import a file; modules beside it can be imported by it.

    Args:
        path: the file.
        name: the name of the module; names that ``feedback_fn`` and classes get depend on it.
        what: what the file was named as, for messages.

    Raises:
        ConfigError: there is no such file, or running it failed.
    """
    if not path.is_file():
        raise ConfigError(
            f"{what}: expected a Python file, found {str(path)!r}; name one that exists"
        )
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{what}: {path} is no Python file; its name should end in `.py`")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with _imported_from(path.resolve().parent, f"{what}: {path}"):
        spec.loader.exec_module(module)
    return module


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


@contextlib.contextmanager
def _imported_from(folder: Path, what: str) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        # What it prints is not what the command prints.
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{what} cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(str(folder))


def _template_in(module: ModuleType, attribute: str, where: str) -> PromptTemplate[object]:
    found: object = module
    for name in attribute.split("."):
        if not hasattr(found, name):
            known = sorted(key for key, value in vars(module).items() if _as_template(value))
            raise ConfigError(
                f"--template: `{where}` has no `{attribute}`{did_you_mean(attribute, known)}; "
                f"templates in it: {', '.join(known) or 'none'}"
            )
        found = getattr(found, name)
    template = _as_template(found)
    if template is None:
        raise ConfigError(
            f"--template: expected `{where}:{attribute}` to be a PromptTemplate or a Prompt, "
            f"found {shown(found)}"
        )
    return template


def _as_template(value: object) -> PromptTemplate[object] | None:
    if isinstance(value, Prompt):
        return value.template
    return value if isinstance(value, PromptTemplate) else None
