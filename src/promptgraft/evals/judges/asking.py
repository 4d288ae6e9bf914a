"""One judge is asked for one judgement."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import attrs

from promptgraft.adapters.base import ModelCalled, PromptExecuted, ProviderAdapter, evaluated
from promptgraft.errors import CandidateError, OutputError, PermanentProviderError, ProviderError
from promptgraft.evals.aside import AsideSession
from promptgraft.evals.judges.material import LONGEST_SHOWN
from promptgraft.evals.judges.prompts import Refused
from promptgraft.evals.judges.replies import VoidReplyError
from promptgraft.evals.metrics.reasons import clipped
from promptgraft.prompt.fences import fenced
from promptgraft.prompt.template import Prompt
from promptgraft.runtime.session import Session, SessionProtocol

ReplyT = TypeVar("ReplyT")

_ATTEMPTS = 2


@attrs.frozen(kw_only=True)
class Judgement:
    """What a judge says.

    Attributes:
        score: 0 to 1; None for a judge that gave no judgement.
        reason: why; without a score what went wrong.
    """

    score: float | None
    reason: str


def ask(
    judge: ProviderAdapter,
    prompt: Prompt[ReplyT],
    read: Callable[[ReplyT], Judgement],
    *,
    session: SessionProtocol | None,
) -> Judgement:
    """Return what a judge says; a reply that is no judgement is asked for once more.

    Args:
        judge: answers.
        prompt: the question.
        read: makes a judgement of a reply, or raises ``VoidReplyError``.
        session: of the evaluation that is judged.

    Raises:
        PermanentProviderError: the provider of the judge refuses for good.
        LimitReachedError: the evaluation has no time or money left.
    """
    refused = Refused()
    for _ in range(_ATTEMPTS):
        aside = AsideSession(session, tags={"scope": "judge"})
        try:
            return read(_reply(judge, prompt.bind(refused), aside))
        except PermanentProviderError as error:
            raise PermanentProviderError(f"judge `{judge.identity}`: {error}") from error
        except ProviderError as error:
            return Judgement(score=None, reason=f"the judge's provider failed: {error}")
        except (OutputError, VoidReplyError) as error:
            refused = _refused(str(error), aside)
        except CandidateError as error:
            return Judgement(score=None, reason=f"the judge could not be asked: {error}")
        finally:
            _settle(judge, aside)
    return Judgement(score=None, reason=f"the judge's replies are void: {refused.problem}")


def _reply(judge: ProviderAdapter, prompt: Prompt[ReplyT], session: Session) -> ReplyT:
    response = evaluated(judge, prompt, session=session, deadline=session.deadline)
    if response.output is None:
        raise VoidReplyError("the reply holds no data")
    return response.output


def _refused(problem: str, session: Session) -> Refused:
    executed = session.latest(PromptExecuted)
    text = "" if executed is None else clipped(executed.response.text, LONGEST_SHOWN)
    return Refused(problem=problem, previous=fenced(text) if text else "")


def _settle(judge: ProviderAdapter, session: Session) -> None:
    """Tell of a call that the adapter itself told nothing of: it was made all the same."""
    executed = session.latest(PromptExecuted)
    if executed is not None and session.latest(ModelCalled) is None:
        usage = executed.response.usage
        call = ModelCalled(model=judge.identity, requests=1, usage=usage, cost=None, seconds=0.0)
        session.dispatch(call)
