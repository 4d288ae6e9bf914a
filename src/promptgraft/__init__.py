"""promptgraft improves the prompts of AI agents on real examples.

Candidate wordings are grafted onto a prompt as overrides, tried on examples, kept only when they
are better, and handed over as an entry in a tagged override store. The source never changes.
"""

from promptgraft.ground.lazy import lazy_exports

TYPE_CHECKING = False  # type checkers know the name; the import of `typing` takes its time
if TYPE_CHECKING:
    from promptgraft.adapters.anthropic import AnthropicAdapter
    from promptgraft.adapters.base import PromptResponse, ProviderAdapter, Usage
    from promptgraft.adapters.calling.gathering import BatchExecutor
    from promptgraft.adapters.calling.prices import ModelPrice, Prices
    from promptgraft.adapters.calling.retrying import RetryPolicy
    from promptgraft.adapters.offline import OfflineAdapter
    from promptgraft.adapters.openai import OpenAIAdapter
    from promptgraft.adapters.scripted import ScriptedAdapter
    from promptgraft.agents import (
        Agent,
        AgentAnswer,
        AgentCall,
        BlackBox,
        CommandAgent,
        HttpAgent,
        PythonAgent,
    )
    from promptgraft.algorithms.gepa import (
        Full,
        GepaConfig,
        GepaExample,
        GepaOptimizer,
        GepaResult,
        MinGain,
        OptimizationJob,
        Paired,
        Racing,
        RolloutFeedback,
        RolloutRecord,
        Strategy,
        Strict,
        ToolExampleTarget,
    )
    from promptgraft.algorithms.gradient import GradientConfig, GradientOptimizer, GradientResult
    from promptgraft.errors import PromptEvaluationError, PromptgraftError
    from promptgraft.evals.dataset import Dataset
    from promptgraft.evals.evaluate import Evaluation, evaluate
    from promptgraft.evals.metrics import load_metrics
    from promptgraft.evals.splits import Splits
    from promptgraft.evals.types import Case
    from promptgraft.ground.content import File, Image
    from promptgraft.journal import FileJournal, MemoryJournal
    from promptgraft.overrides import (
        InMemoryPromptOverridesStore,
        LocalPromptOverridesStore,
        OverlayPromptOverridesStore,
        PromptOverride,
        SectionOverride,
    )
    from promptgraft.project.optimizing import OptimizeOptions, aoptimize, optimize
    from promptgraft.prompt import (
        Described,
        MarkdownSection,
        Prompt,
        PromptTemplate,
        RenderedPrompt,
        SectionVisibility,
        TaskExample,
        TaskExamplesSection,
        TaskStep,
        Tool,
        ToolExample,
        hash_task_example,
        hash_tool_example,
    )
    from promptgraft.runtime import Cancellation, Deadline, EventBus, Session
    from promptgraft.search import (
        Data,
        Guards,
        Limits,
        MaxCandidates,
        MaxProposals,
        NoImprovement,
        Objectives,
        OptimizationContext,
        PersistenceScope,
        RequiredObjectives,
        RunState,
        StopFile,
        Stopper,
        StopReason,
        Targets,
        TargetScore,
        Teacher,
    )
    from promptgraft.targets.formatting import default_example_formatter, default_trace_formatter
    from promptgraft.targets.judging import examples_from, feedback_from
    from promptgraft.targets.texts import Texts
    from promptgraft.targets.types import Module

__all__ = [
    "Agent",
    "AgentAnswer",
    "AgentCall",
    "AnthropicAdapter",
    "BatchExecutor",
    "BlackBox",
    "Cancellation",
    "Case",
    "CommandAgent",
    "Data",
    "Dataset",
    "Deadline",
    "Described",
    "Evaluation",
    "EventBus",
    "File",
    "FileJournal",
    "Full",
    "GepaConfig",
    "GepaExample",
    "GepaOptimizer",
    "GepaResult",
    "GradientConfig",
    "GradientOptimizer",
    "GradientResult",
    "Guards",
    "HttpAgent",
    "Image",
    "InMemoryPromptOverridesStore",
    "Limits",
    "LocalPromptOverridesStore",
    "MarkdownSection",
    "MaxCandidates",
    "MaxProposals",
    "MemoryJournal",
    "MinGain",
    "ModelPrice",
    "Module",
    "NoImprovement",
    "Objectives",
    "OfflineAdapter",
    "OpenAIAdapter",
    "OptimizationContext",
    "OptimizationJob",
    "OptimizeOptions",
    "OverlayPromptOverridesStore",
    "Paired",
    "PersistenceScope",
    "Prices",
    "Prompt",
    "PromptEvaluationError",
    "PromptOverride",
    "PromptResponse",
    "PromptTemplate",
    "PromptgraftError",
    "ProviderAdapter",
    "PythonAgent",
    "Racing",
    "RenderedPrompt",
    "RequiredObjectives",
    "RetryPolicy",
    "RolloutFeedback",
    "RolloutRecord",
    "RunState",
    "ScriptedAdapter",
    "SectionOverride",
    "SectionVisibility",
    "Session",
    "Splits",
    "StopFile",
    "StopReason",
    "Stopper",
    "Strategy",
    "Strict",
    "TargetScore",
    "Targets",
    "TaskExample",
    "TaskExamplesSection",
    "TaskStep",
    "Teacher",
    "Texts",
    "Tool",
    "ToolExample",
    "ToolExampleTarget",
    "Usage",
    "__version__",
    "aoptimize",
    "default_example_formatter",
    "default_trace_formatter",
    "evaluate",
    "examples_from",
    "feedback_from",
    "hash_task_example",
    "hash_tool_example",
    "load_metrics",
    "optimize",
]

__version__ = "0.1.0"

# Names are imported when they are first used, so that the command line answers at once.
_NAMES = {
    "adapters.anthropic": "AnthropicAdapter",
    "adapters.base": "PromptResponse ProviderAdapter Usage",
    "adapters.calling.prices": "ModelPrice Prices",
    "adapters.calling.retrying": "RetryPolicy",
    "adapters.offline": "OfflineAdapter",
    "adapters.calling.gathering": "BatchExecutor",
    "adapters.openai": "OpenAIAdapter",
    "adapters.scripted": "ScriptedAdapter",
    "agents": "Agent AgentAnswer AgentCall BlackBox CommandAgent HttpAgent PythonAgent",
    "algorithms.gepa": (
        "Full GepaConfig GepaExample GepaOptimizer GepaResult MinGain OptimizationJob Paired "
        "Racing RolloutFeedback RolloutRecord Strategy Strict ToolExampleTarget"
    ),
    "algorithms.gradient": "GradientConfig GradientOptimizer GradientResult",
    "errors": "PromptEvaluationError PromptgraftError",
    "evals.dataset": "Dataset",
    "evals.evaluate": "Evaluation evaluate",
    "evals.metrics": "load_metrics",
    "evals.splits": "Splits",
    "evals.types": "Case",
    "ground.content": "File Image",
    "journal": "FileJournal MemoryJournal",
    "overrides": (
        "InMemoryPromptOverridesStore LocalPromptOverridesStore OverlayPromptOverridesStore "
        "PromptOverride SectionOverride"
    ),
    "project.optimizing": "OptimizeOptions aoptimize optimize",
    "prompt": (
        "Described MarkdownSection Prompt PromptTemplate RenderedPrompt SectionVisibility "
        "TaskExample TaskExamplesSection TaskStep Tool ToolExample hash_task_example "
        "hash_tool_example"
    ),
    "runtime": "Cancellation Deadline EventBus Session",
    "search": (
        "Data Guards Limits MaxCandidates MaxProposals NoImprovement Objectives "
        "OptimizationContext PersistenceScope RequiredObjectives RunState StopFile StopReason "
        "Stopper TargetScore Targets Teacher"
    ),
    "targets.formatting": "default_example_formatter default_trace_formatter",
    "targets.judging": "examples_from feedback_from",
    "targets.texts": "Texts",
    "targets.types": "Module",
}

_ABSENT = {
    "ExampleModule": "name examples as `target_tool_examples=[ToolExampleTarget(...)]` and "
    "`target_task_examples=[path]` of GepaConfig; `promptgraft.Module` is what a run changes",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__, _NAMES, _ABSENT)
