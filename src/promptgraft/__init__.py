"""promptgraft improves the prompts of AI agents on real examples.

Candidate wordings are grafted onto a prompt as overrides, tried on examples, kept only when they
are better, and handed over as an entry in a tagged override store. The source never changes.
"""

from promptgraft.ground.lazy import lazy_exports

TYPE_CHECKING = False  # type checkers know the name; the import of `typing` takes its time
if TYPE_CHECKING:
    # Imported when they are first used, so that the command line answers at once. Names that are
    # not in `__all__` are at home in their packages; they can be imported from here too, as in the
    # specification of GepaOptimizer and in earlier versions.
    from promptgraft.adapters.anthropic import AnthropicAdapter
    from promptgraft.adapters.base import (
        PromptExecuted as PromptExecuted,
        PromptResponse,
        ProviderAdapter,
        ToolInvoked as ToolInvoked,
        Usage as Usage,
    )
    from promptgraft.adapters.calling.gathering import BatchExecutor as BatchExecutor
    from promptgraft.adapters.calling.prices import ModelPrice as ModelPrice, Prices as Prices
    from promptgraft.adapters.calling.retrying import RetryPolicy as RetryPolicy
    from promptgraft.adapters.offline import OfflineAdapter
    from promptgraft.adapters.openai import OpenAIAdapter
    from promptgraft.adapters.scripted import ScriptedAdapter
    from promptgraft.agents import (
        Agent as Agent,
        AgentAnswer as AgentAnswer,
        AgentCall as AgentCall,
        BlackBox as BlackBox,
        CommandAgent as CommandAgent,
        HttpAgent as HttpAgent,
        PythonAgent as PythonAgent,
    )
    from promptgraft.algorithms.gepa import (
        Full as Full,
        GepaConfig,
        Candidate as Candidate,
        ExampleFormatter as ExampleFormatter,
        FeedbackFn as FeedbackFn,
        GeneratedTaskExample as GeneratedTaskExample,
        GepaExample,
        GepaExampleGenerated as GepaExampleGenerated,
        GepaMutationAccepted as GepaMutationAccepted,
        GepaMutationProposed as GepaMutationProposed,
        GepaMutationRejected as GepaMutationRejected,
        GepaOptimizationCompleted as GepaOptimizationCompleted,
        GepaOptimizationStarted as GepaOptimizationStarted,
        GepaOptimizer,
        GepaResult as GepaResult,
        GepaRolloutCompleted as GepaRolloutCompleted,
        MinGain as MinGain,
        Paired as Paired,
        Racing as Racing,
        RolloutFeedback,
        RolloutRecord as RolloutRecord,
        Strategy as Strategy,
        Strict as Strict,
        ToolExampleTarget as ToolExampleTarget,
        TraceFormatter as TraceFormatter,
    )
    from promptgraft.algorithms.gradient import (
        GradientConfig,
        GradientOptimizer,
        GradientResult as GradientResult,
    )
    from promptgraft.errors import PromptEvaluationError as PromptEvaluationError, PromptgraftError
    from promptgraft.evals.dataset import Dataset
    from promptgraft.evals.evaluate import Evaluation as Evaluation, evaluate
    from promptgraft.evals.metrics import load_metrics as load_metrics
    from promptgraft.evals.splits import Splits
    from promptgraft.evals.types import Case
    from promptgraft.ground.content import File as File, Image as Image
    from promptgraft.journal import FileJournal, MemoryJournal as MemoryJournal
    from promptgraft.overrides import (
        InMemoryPromptOverridesStore,
        LocalPromptOverridesStore,
        OverlayPromptOverridesStore,
        PromptDescriptor as PromptDescriptor,
        PromptLike as PromptLike,
        PromptOverride,
        PromptOverridesStore as PromptOverridesStore,
        SectionOverride as SectionOverride,
        TaskExampleOverride as TaskExampleOverride,
        TaskStepOverride as TaskStepOverride,
        ToolExampleOverride as ToolExampleOverride,
        ToolOverride as ToolOverride,
    )
    from promptgraft.project.optimizing import (
        OptimizeOptions as OptimizeOptions,
        aoptimize as aoptimize,
        optimize,
    )
    from promptgraft.prompt import (
        Described as Described,
        MarkdownSection,
        Prompt,
        PromptTemplate,
        RenderedPrompt as RenderedPrompt,
        SectionVisibility as SectionVisibility,
        TaskExample,
        TaskExamplesSection,
        TaskStep,
        Tool,
        ToolExample,
        hash_task_example as hash_task_example,
        hash_tool_example as hash_tool_example,
    )
    from promptgraft.runtime import (
        Cancellation as Cancellation,
        Deadline,
        EventBus,
        Session,
        SessionProtocol as SessionProtocol,
    )
    from promptgraft.search import (
        BasePromptOptimizer as BasePromptOptimizer,
        Data,
        Guards as Guards,
        Limits,
        MaxCandidates as MaxCandidates,
        MaxProposals as MaxProposals,
        NoImprovement as NoImprovement,
        Objectives as Objectives,
        OptimizationContext,
        OptimizationJob,
        PersistenceScope as PersistenceScope,
        RequiredObjectives as RequiredObjectives,
        RunResult as RunResult,
        RunState as RunState,
        StopFile as StopFile,
        Stopper as Stopper,
        StopReason as StopReason,
        Targets as Targets,
        TargetScore as TargetScore,
        Teacher as Teacher,
    )
    from promptgraft.targets.formatting import (
        default_example_formatter as default_example_formatter,
        default_trace_formatter as default_trace_formatter,
    )
    from promptgraft.targets.judging import examples_from as examples_from, feedback_from
    from promptgraft.targets.texts import Texts as Texts
    from promptgraft.targets.types import Module as Module

__all__ = [
    "AnthropicAdapter",
    "Case",
    "Data",
    "Dataset",
    "Deadline",
    "EventBus",
    "FileJournal",
    "GepaConfig",
    "GepaExample",
    "GepaOptimizer",
    "GradientConfig",
    "GradientOptimizer",
    "InMemoryPromptOverridesStore",
    "Limits",
    "LocalPromptOverridesStore",
    "MarkdownSection",
    "OfflineAdapter",
    "OpenAIAdapter",
    "OptimizationContext",
    "OptimizationJob",
    "OverlayPromptOverridesStore",
    "Prompt",
    "PromptOverride",
    "PromptResponse",
    "PromptTemplate",
    "PromptgraftError",
    "ProviderAdapter",
    "RolloutFeedback",
    "ScriptedAdapter",
    "Session",
    "Splits",
    "TaskExample",
    "TaskExamplesSection",
    "TaskStep",
    "Tool",
    "ToolExample",
    "__version__",
    "evaluate",
    "feedback_from",
    "optimize",
]

__version__ = "0.2.0"

_ABSENT = {
    "ExampleModule": "name examples as `target_tool_examples=[ToolExampleTarget(...)]` and "
    "`target_task_examples=[path]` of GepaConfig; `promptgraft.Module` is what a run changes"
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__, _ABSENT)
