"""The events of a run under the names that the specification of GEPA has for them."""

from promptgraft.search import events, notices

GepaCandidateAdded = events.CandidateAdded
GepaCandidateScored = events.CandidateScored
GepaExampleGenerated = events.ExampleGenerated
GepaMergeAccepted = events.MergeAccepted
GepaMergeAttempted = events.MergeAttempted
GepaMergeRejected = events.MergeRejected
GepaMutationAccepted = events.MutationAccepted
GepaMutationProposed = events.MutationProposed
GepaMutationRejected = events.MutationRejected
GepaOptimizationCompleted = events.RunEnded
GepaOptimizationStarted = events.RunStarted
GepaRolloutCompleted = events.RolloutCompleted
GepaStopFileRemoved = notices.StopFileRemoved
GepaWorking = notices.Working
