"""GEPA as an algorithm: its settings, and the search that they begin.

Apart from the settings, because the search imports these.
"""

from __future__ import annotations

import attrs

from promptgraft.algorithms.gepa.settings import GepaSettings
from promptgraft.search.algorithm import BaseSearch, Kit


@attrs.frozen(kw_only=True)
class GepaConfig(GepaSettings):
    """What a GEPA run does.

    Raises:
        ConfigError: naming the setting by its path, what was expected and what was found.
    """

    def search(self, kit: Kit) -> BaseSearch:
        # Settings are read, checked and planned with by many who do not search.
        from promptgraft.algorithms.gepa.search import GepaSearch

        return GepaSearch(self, kit)
