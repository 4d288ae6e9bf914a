"""GEPA: reflective mutation and Pareto coverage (``specs/gepa.md``).

Begin with ``search.py``, which can be laid beside the paper. Of a step, ``select.py`` chooses the
parent, parts and examples, ``reflect.py`` writes the child, and ``attempt.py`` says what became of
it; ``merge.py`` combines children of several steps. ``setup.py`` makes all of these from
``settings.py`` and puts them to use; ``additions`` is what goes beyond the paper.
"""

from typing import TYPE_CHECKING

from promptgraft.ground.lazy import lazy_exports

if TYPE_CHECKING:
    from promptgraft.algorithms.gepa.additions.base import Addition
    from promptgraft.algorithms.gepa.additions.blame import Blame
    from promptgraft.algorithms.gepa.additions.history import History
    from promptgraft.algorithms.gepa.additions.lines.addition import Lines
    from promptgraft.algorithms.gepa.additions.restart import Restart
    from promptgraft.algorithms.gepa.additions.shorten import Shorten
    from promptgraft.algorithms.gepa.additions.whole_prompt import WholePrompt
    from promptgraft.algorithms.gepa.attempt import Attempt, Changes, Proposer
    from promptgraft.algorithms.gepa.config import GepaConfig
    from promptgraft.algorithms.gepa.optimizer import GepaOptimizer
    from promptgraft.algorithms.gepa.settings import Strategy
    from promptgraft.search.acceptance import AcceptancePolicy, MinGain, Paired, Strict
    from promptgraft.search.events import CandidateAdded as GepaCandidateAdded
    from promptgraft.search.events import CandidateScored as GepaCandidateScored
    from promptgraft.search.events import ExampleGenerated as GepaExampleGenerated
    from promptgraft.search.events import MergeAccepted as GepaMergeAccepted
    from promptgraft.search.events import MergeAttempted as GepaMergeAttempted
    from promptgraft.search.events import MergeRejected as GepaMergeRejected
    from promptgraft.search.events import MutationAccepted as GepaMutationAccepted
    from promptgraft.search.events import MutationProposed as GepaMutationProposed
    from promptgraft.search.events import MutationRejected as GepaMutationRejected
    from promptgraft.search.events import RolloutCompleted as GepaRolloutCompleted
    from promptgraft.search.events import RunEnded as GepaOptimizationCompleted
    from promptgraft.search.events import RunStarted as GepaOptimizationStarted
    from promptgraft.search.events import StopFileRemoved as GepaStopFileRemoved
    from promptgraft.search.events import Working as GepaWorking
    from promptgraft.search.result import GeneratedTaskExample
    from promptgraft.search.result import RunResult as GepaResult
    from promptgraft.search.settings import ToolExampleTarget
    from promptgraft.search.validation import Full, Racing
    from promptgraft.targets.types import (
        Candidate,
        ExampleFormatter,
        FeedbackFn,
        GepaExample,
        RolloutFeedback,
        RolloutRecord,
        TraceFormatter,
    )

__all__ = [
    "AcceptancePolicy",
    "Addition",
    "Attempt",
    "Blame",
    "Candidate",
    "Changes",
    "ExampleFormatter",
    "FeedbackFn",
    "Full",
    "GeneratedTaskExample",
    "GepaCandidateAdded",
    "GepaCandidateScored",
    "GepaConfig",
    "GepaExample",
    "GepaExampleGenerated",
    "GepaMergeAccepted",
    "GepaMergeAttempted",
    "GepaMergeRejected",
    "GepaMutationAccepted",
    "GepaMutationProposed",
    "GepaMutationRejected",
    "GepaOptimizationCompleted",
    "GepaOptimizationStarted",
    "GepaOptimizer",
    "GepaResult",
    "GepaRolloutCompleted",
    "GepaStopFileRemoved",
    "GepaWorking",
    "History",
    "Lines",
    "MinGain",
    "Paired",
    "Proposer",
    "Racing",
    "Restart",
    "RolloutFeedback",
    "RolloutRecord",
    "Shorten",
    "Strategy",
    "Strict",
    "ToolExampleTarget",
    "TraceFormatter",
    "WholePrompt",
]

_ABSENT = {
    "ExampleModule": "name examples as `target_tool_examples=[ToolExampleTarget(...)]` and "
    "`target_task_examples=[path]` of GepaConfig; `promptgraft.Module` is what a run changes"
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__, _ABSENT)
