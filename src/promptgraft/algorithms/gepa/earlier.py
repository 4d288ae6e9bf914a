"""Settings and fingerprints of versions whose strategy had settings for what is an addition now."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from promptgraft.algorithms.gepa.additions.base import VERSIONS
from promptgraft.algorithms.gepa.reflect import REFLECTION
from promptgraft.errors import JournalMismatchError
from promptgraft.ground.serde import Json, digest
from promptgraft.prompt.template import Prompt, PromptTemplate
from promptgraft.search.targets import meta_prompt_digest

FORMER: Mapping[str, Json] = MappingProxyType(
    {"module_choice": "blamed", "whole_prompt": 0.9, "shorten_margin": 0.01, "history_top_k": 0}
)
"""The former settings with their defaults in the preset ``lean``."""
_FORMER_PAPER: Mapping[str, Json] = MappingProxyType(
    {"module_choice": "turns", "whole_prompt": 0, "shorten_margin": "off", "history_top_k": 0}
)

_DIVIDED = "reflections_per_module"
"""A former setting: among how many reflections on a module the failures were divided."""

_FORMER_QUESTIONS = (
    "29af0786048d0f6b9befd38a58e65f62468567bd03ac48c5060c875ee0c7378d",
    "f793b1261ec533476bd5e855e0a65bb0eeb34f15393237bd1ce84cbd5f8655d5",
)
"""The digests of the questions of `whole_prompt` 1 and 2, unless a user changed one."""


def translated(
    recorded: Mapping[str, Json],
    versions: Mapping[str, int],
    questions: Mapping[str, PromptTemplate[object]],
) -> Mapping[str, Json]:
    """Return the fingerprint of a recorded run as this version writes it.

    ``versions`` are those of the additions by name, ``questions`` the present ones.

    Raises:
        JournalMismatchError: the run cannot be continued.
    """
    fingerprint = in_additions(recorded)
    check_versions(fingerprint, versions)
    present = with_present_settings(fingerprint)
    if present.get("meta_prompts") not in _FORMER_QUESTIONS:
        return present
    # They differ in those of `whole_prompt` alone, and a run that asked these is refused by now.
    digests = [meta_prompt_digest(Prompt(template)) for template in questions.values()]
    return {**present, "meta_prompts": digest(digests)}


def additions_of(strategy: Mapping[str, Json]) -> dict[str, dict[str, Json]]:
    """Return the additions that a former strategy stands for, with their settings, by name.

    Args:
        strategy: the settings that are given, by name; the others are those of the preset.
    """
    defaults = _FORMER_PAPER if strategy.get("preset") == "paper" else FORMER
    choice, share, margin, most = ({**defaults, **strategy}[name] for name in FORMER)
    additions: dict[str, dict[str, Json]] = {}
    if choice == "blamed":
        if share:
            additions |= {"lines": {}, "whole_prompt": {"share": share}}
        additions["blame"] = {}
    if most:
        additions["history"] = {"most": most}
    if margin != "off":
        additions["shorten"] = {"margin": margin}
    return additions


def in_additions(recorded: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return a fingerprint of such a version as this version writes it."""
    if "strategy.whole_prompt" not in recorded:
        return recorded
    former = {name: recorded[f"strategy.{name}"] for name in FORMER}
    additions = additions_of(former)
    settings = {
        name: value
        for name, value in recorded.items()
        if name.removeprefix("strategy.") not in FORMER
    }
    choice = "turns" if former["module_choice"] == "blamed" else former["module_choice"]
    return {
        **settings,
        "strategy.module_choice": choice,
        "additions": [[name, dict(options)] for name, options in additions.items()],
    }


def with_present_settings(recorded: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return a fingerprint without a setting that is gone, and with what was not recorded.

    Raises:
        JournalMismatchError: the recorded run divided the failures of a minibatch, or showed a part
            of a graph cases that did not ask its prompt.
    """
    nodes = recorded.get("nodes")
    has_several_prompts = isinstance(nodes, dict) and len(set(map(str, nodes.values()))) > 1
    if has_several_prompts and not REFLECTION.keys() <= recorded.keys():
        raise JournalMismatchError(
            "graph: in the journal, questions on one part show cases that did not ask its prompt; "
            "start a new run, or continue this one with the promptgraft that began it"
        )
    reflections = recorded.get(f"strategy.{_DIVIDED}", 1)
    if reflections != 1:
        raise JournalMismatchError(
            f"strategy.{_DIVIDED}: the journal has {reflections}, and a reflection on a module "
            "sees all failures today; start a new run, or continue this one with the promptgraft "
            "that began it"
        )
    present = {name: value for name, value in recorded.items() if name != f"strategy.{_DIVIDED}"}
    return {"strategy.minibatch_growth": 1, **REFLECTION, **present}


def check_versions(recorded: Mapping[str, Json], versions: Mapping[str, int]) -> None:
    """Check that additions decided in a recorded run as they do today.

    Args:
        recorded: its fingerprint.
        versions: the version of each addition that is used, by name.

    Raises:
        JournalMismatchError: naming the additions of other versions.
    """
    listed, above = recorded.get("additions"), recorded.get(VERSIONS)
    pairs = [pair for pair in (listed if isinstance(listed, list) else ()) if pair]
    named = [pair[0] for pair in pairs if isinstance(pair, list)]
    then = above if isinstance(above, Mapping) else {}
    old = {name: then.get(name, 1) for name in versions if name in named}
    differing = [f"version {old[name]} of `{name}`" for name in old if old[name] != versions[name]]
    if differing:
        raise JournalMismatchError(
            f"additions: the journal is of {' and '.join(differing)}, which decided otherwise than "
            "today's; start a new run, or continue this one with the promptgraft that began it"
        )


def with_additions(written: Mapping[str, Json]) -> tuple[Mapping[str, Json], Sequence[str]]:
    """Return the settings of a project file without those of a former strategy."""
    strategy = written.get("strategy")
    if not isinstance(strategy, Mapping):
        return written, ()
    if _DIVIDED in strategy:
        without_it = {name: value for name, value in strategy.items() if name != _DIVIDED}
        modern, notes = with_additions({**written, "strategy": without_it})
        return modern, [f"strategy.{_DIVIDED}: is gone, it gained nothing; leave it out", *notes]
    former = [
        name
        for name, value in strategy.items()
        if name in FORMER and (name != "module_choice" or value == "blamed")
    ]
    if not former or written.get("additions") is not None:
        return written, ()
    additions = additions_of({name: value for name, value in strategy.items() if value is not None})
    settings = {name: value for name, value in strategy.items() if name not in former}
    listed: list[Json] = [
        {name: dict(options)} if options else name for name, options in additions.items()
    ]
    notes = [
        f"strategy.{name}: additions do this today, and it is read as `additions: "
        f"{json.dumps(listed)}`; write that instead"
        for name in former
    ]
    return {**written, "strategy": settings, "additions": listed}, notes
