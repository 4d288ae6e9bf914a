"""The algorithms that improve a target, found by name.

Anyone may add one: a package registers its subclass of
:class:`promptgraft.search.config.RunConfig` under the entry point group ``promptgraft.algorithms``.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from promptgraft.errors import ConfigError
from promptgraft.search.config import RunConfig
from promptgraft.serde import did_you_mean

DEFAULT = "gepa"
"""The algorithm of those who name none."""

_GROUP = "promptgraft.algorithms"


def algorithm(name: str = DEFAULT) -> type[RunConfig]:
    """Return the settings of an algorithm, by its name.

    Raises:
        ConfigError: there is none of that name, or it cannot be loaded; lists those that exist.
    """
    known = _known()
    if name not in known:
        raise ConfigError(
            f"algorithm: there is none called `{name}`{did_you_mean(name, list(known))}; "
            f"there are {', '.join(sorted(known))}"
        )
    try:
        found: object = known[name].load()
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"algorithm: `{name}` cannot be loaded: {error}") from error
    if not isinstance(found, type) or not issubclass(found, RunConfig):
        raise ConfigError(
            f"algorithm: `{name}` is {known[name].value}, expected a subclass of RunConfig"
        )
    return found


def _known() -> dict[str, EntryPoint]:
    own = (
        EntryPoint(DEFAULT, f"{__name__}.gepa:GepaConfig", _GROUP),
        EntryPoint("gradient", f"{__name__}.gradient:GradientConfig", _GROUP),
    )
    return {
        **{one.name: one for one in own},
        **{found.name: found for found in entry_points(group=_GROUP)},
    }


__all__ = ["DEFAULT", "algorithm"]
