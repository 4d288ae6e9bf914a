"""The embedded offline model: no key, no network, no randomness."""

from promptgraft.adapters.offline.adapter import OfflineAdapter

__all__ = ["OfflineAdapter"]
