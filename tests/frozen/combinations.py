"""All searches that are frozen, by name."""

from __future__ import annotations

from frozen.combination import Combination
from frozen.combinations_settings import ends, faults, parts, rules
from frozen.combinations_strategies import at_once, budgets, merges, presets, races

COMBINATIONS: dict[str, Combination] = {
    one.name: one
    for group in (presets, at_once, merges, parts, rules, ends, faults, budgets, races)
    for one in group()
}
