"""The store as a run writes its winner: checked before the first call.

A store that is not derived from ours may lack ``upsert_all``, which came later than ``upsert``. The
winner of one prompt can be written without it, that of several cannot.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

import attrs

from promptgraft.errors import ConfigError, StoreError
from promptgraft.ground.functions import signature_of
from promptgraft.overrides.parts.descriptors import PromptDescriptor
from promptgraft.overrides.parts.entry import Entry
from promptgraft.overrides.resolution import check_unchanged
from promptgraft.overrides.store import DEFAULT_TAG, PromptOverridesStore
from promptgraft.overrides.types import PromptOverride, Provenance

_logger = logging.getLogger(__name__)

_MEND = (
    "derive it from BasePromptOverridesStore, which implements everything but three methods, "
    "or set `persist=False`"
)
_OPTIONS = ("provenance", "expected", "removed")


def winner_store(
    store: PromptOverridesStore, *, prompts: int
) -> PromptOverridesStore | UpsertStore:
    """Return ``store``, or one over its ``upsert``, for a winner of ``prompts`` prompts.

    Raises:
        ConfigError: the winner could not be written.
    """
    name = type(store).__name__
    write: object = getattr(store, "upsert_all", None)
    if callable(write):
        if missing := [option for option in _OPTIONS if not _takes(write, option)]:
            raise ConfigError(
                f"overrides_store: `upsert_all` of `{name}` takes no `{missing[0]}`; {_MEND}"
            )
        return store
    upsert: object = getattr(store, "upsert", None)
    if not callable(upsert):
        raise ConfigError(
            f"overrides_store: `{name}` cannot store a winner: it has neither `upsert_all` nor "
            f"`upsert`; {_MEND}"
        )
    if prompts > 1:
        raise ConfigError(
            f"overrides_store: `{name}` has no `upsert_all`, which writes the winner of {prompts} "
            f"prompts in one step; {_MEND}"
        )
    _logger.warning(
        "overrides_store: `%s` has no `upsert_all`; the winner will be written with `upsert`, and "
        "a change that another writer makes at that moment is lost",
        name,
    )
    return UpsertStore(name=name, read=store.resolve, write=upsert)


def _takes(function: Callable[..., object], option: str) -> bool:
    if (signature := signature_of(function)) is None:
        return True
    parameters = signature.parameters.values()
    return any(option == each.name or each.kind is each.VAR_KEYWORD for each in parameters)


@attrs.frozen(kw_only=True)
class UpsertStore:
    """Writes one prompt through the ``upsert`` of a store; reads and writes as any other store."""

    name: str
    read: Callable[[PromptDescriptor, str], PromptOverride | None]
    write: Callable[..., Any]

    def resolve(
        self, descriptor: PromptDescriptor, tag: str = DEFAULT_TAG
    ) -> PromptOverride | None:
        return self.read(descriptor, tag)

    def upsert_all(
        self,
        overrides: Iterable[tuple[PromptDescriptor, PromptOverride]],
        *,
        provenance: Provenance | None = None,
        expected: Iterable[PromptOverride | None] | None = None,
        removed: Iterable[PromptOverride] | None = None,
    ) -> tuple[PromptOverride, ...]:
        options = {"provenance": provenance} if _takes(self.write, "provenance") else {}
        stored: list[PromptOverride] = []
        for (descriptor, override), before, gone in zip(
            overrides, expected or (None,), removed or (None,), strict=False
        ):
            entries = () if gone is None else gone.entries()
            if before is not None:
                present = self.read(descriptor, override.tag) or override.holding(())
                check_unchanged(override, entries, before, present)
            self._check_replaced(override, entries)
            self.write(descriptor, override, **options)
            stored.append(self.read(descriptor, override.tag) or override)
        return tuple(stored)

    def _check_replaced(self, override: PromptOverride, remaining: Iterable[Entry]) -> None:
        """Refuse entries that only a removal takes back; a store without one would keep them."""
        for entry in remaining:
            newer = override.find(entry)
            if newer is None or newer.over(entry) != newer:
                raise StoreError(
                    f"`{self.name}` has no `upsert_all`, which takes back what an earlier winner "
                    f"of the run left ({entry.part}); delete the tag `{override.tag}`, then "
                    "`store.upsert(prompt.descriptor, error.result.best_override)`"
                )
