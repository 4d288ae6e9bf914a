"""GEPA: reflective mutation and Pareto coverage (``specs/gepa.md``)."""

from promptgraft.algorithms.gepa.config import GepaConfig, GepaOptimizer
from promptgraft.algorithms.gepa.policies import Strategy
from promptgraft.algorithms.gepa.prompts import meta_prompt
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
from promptgraft.search.fresh import HeldOut, RunVerdict
from promptgraft.search.job import OptimizationJob
from promptgraft.search.notices import StopFileRemoved as GepaStopFileRemoved
from promptgraft.search.notices import Working as GepaWorking
from promptgraft.search.plan import RolePlan, RunPlan
from promptgraft.search.result import GeneratedTaskExample
from promptgraft.search.result import RunResult as GepaResult
from promptgraft.search.settings import Data, Guards, Limits, Objectives, Targets, ToolExampleTarget
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
    "Candidate",
    "Data",
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
    "Guards",
    "HeldOut",
    "Limits",
    "MinGain",
    "Objectives",
    "OptimizationJob",
    "Paired",
    "Racing",
    "RolePlan",
    "RolloutFeedback",
    "RolloutRecord",
    "RunPlan",
    "RunVerdict",
    "Strategy",
    "Strict",
    "Targets",
    "ToolExampleTarget",
    "TraceFormatter",
    "meta_prompt",
]
