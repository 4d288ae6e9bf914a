"""Examples under two ids that ask the same: what one set has shown must not decide in another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.evals.splits import asked_digest, question_digest
from promptgraft.evals.types import Case
from promptgraft.serde import HexDigest, unstructure
from promptgraft.targets.types import GepaExample


def check_overlap(sets: Mapping[str, Sequence[GepaExample]]) -> None:
    """Refuse examples of different sets that ask the same, up to case and white space.

    Examples are compared by their case, or by their parameters where these are plain data.

    Raises:
        ConfigError: naming two examples and their sets.
    """
    seen: dict[HexDigest, tuple[str, str]] = {}
    for name, examples in sets.items():
        for example in examples:
            asked = _asked(example)
            if asked is None:
                continue
            elder, place = seen.setdefault(asked, (example.id, name))
            if place != name:
                raise ConfigError(
                    f"`{elder}` in {place} asks the same as `{example.id}` in {name}; what is "
                    "learned from one must not be judged by the other: leave one of them out"
                )


def _asked(example: GepaExample) -> HexDigest | None:
    """Return a digest of what an example asks; None where that is not known."""
    if isinstance(example.label, Case):
        return question_digest(example.label)
    if not example.params:
        return None
    try:
        return asked_digest([unstructure(param) for param in example.params])
    except DataFormatError:
        return None
