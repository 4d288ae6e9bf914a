"""What users of weakincentives rely on: run by ``test_weakincentives.py`` in another Python."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from weakincentives.adapters.core import PromptEvaluationError, PromptResponse, ProviderAdapter
from weakincentives.budget import TokenUsage
from weakincentives.clock import SYSTEM_CLOCK
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate
from weakincentives.prompt.overrides import LocalPromptOverridesStore, PromptOverride
from weakincentives.runtime.events import PromptExecuted, ToolInvoked

import promptgraft as pg
from desk import ASKED, RULES, SEARCH, TEMPLATE, WORDS, Desk, Message, cases, job, judge, stand_in
from promptgraft.bridges.weakincentives import (
    SectionBody,
    ToolDescription,
    WeakIncentivesTarget,
)
from promptgraft.errors import ConfigError, TransientProviderError, WinnerNotStoredError
from promptgraft.evals.spending import AbandonedRolloutError
from promptgraft.targets import InvalidProposalError, RejectionReason

SECTION, TOOL = SectionBody(("rules",)), ToolDescription("search")


@pytest.fixture
def store(tmp_path: Path) -> LocalPromptOverridesStore:
    return LocalPromptOverridesStore(root_path=tmp_path)


def target(store: Any = None, adapter: Any = None, **options: Any) -> WeakIncentivesTarget:
    prompt = Prompt(TEMPLATE, overrides_store=store, overrides_tag="better")
    given = {"feedback_fn": judge, **options}
    return WeakIncentivesTarget(prompt, adapter or Desk(), **given)


def grafted(one: WeakIncentivesTarget, part: Any, text: str) -> Any:
    return one.graft(one.baseline(), part, text, parents=(0,), examples=())


def run(one: WeakIncentivesTarget, **context: Any) -> pg.GepaResult:
    config = job().config
    around = pg.OptimizationContext(reflection_adapter=pg.ScriptedAdapter(stand_in), **context)
    return pg.GepaOptimizer(around, config).optimize(one)


def rendered(one: WeakIncentivesTarget, candidate: Any, text: str = "my invoice") -> str:
    seen = []

    class Seeing(Desk):
        def evaluate(self, prompt: Any, **options: Any) -> Any:
            seen.append(prompt.render())
            return super().evaluate(prompt, **options)

    one._adapter = Seeing()
    one.rollout(candidate, pg.GepaExample("a", (Message(text),), "billing"), None)
    return str(seen[0].text + "".join(f"\n{tool.description}" for tool in seen[0].tools))


def test_a_run_gains_and_their_store_renders_the_winner_alone(
    store: LocalPromptOverridesStore, tmp_path: Path
) -> None:
    result = run(target(store, parts=["section rules"]))

    assert (result.verdict, result.persisted) == ("improved", True)
    text = str(result.best.changes["section rules"])
    program = (
        "import sys; sys.modules['promptgraft'] = None\n"
        "from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, Tool\n"
        "from weakincentives.prompt.overrides import LocalPromptOverridesStore\n"
        "rules = MarkdownSection(title='Rules', key='rules', template='Billing: invoice.')\n"
        "template = PromptTemplate(ns='desk', key='teams', sections=[rules])\n"
        f"store = LocalPromptOverridesStore(root_path={str(tmp_path)!r})\n"
        "print(Prompt(template, overrides_store=store, overrides_tag='better').render().text)\n"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert text in shown.stdout
    assert set(text.split()) >= set(WORDS["billing"].split()) - {"invoice"}


def test_a_resumed_run_pays_for_nothing_again(store: LocalPromptOverridesStore) -> None:
    journal = pg.MemoryJournal()
    first = run(target(store), journal=journal)

    class Silent(Desk):
        adapter_name = "Desk"

        def evaluate(self, prompt: Any, **options: Any) -> Any:
            raise AssertionError("asked again")

    again = run(target(store, Silent()), journal=journal)
    assert (again.best.digest, again.total_rollouts) == (first.best.digest, first.total_rollouts)
    assert again.persisted


def test_dollars_of_a_proposal_are_literal_and_placeholders_stay() -> None:
    rules = MarkdownSection[Message](
        title="Rules", key="rules", template="\n    Sort $text for $$5.\n    "
    )
    prompt = Prompt(PromptTemplate(ns="desk", key="sort", sections=[rules]))
    one = WeakIncentivesTarget(prompt, Desk(), feedback_fn=judge)

    assert one.source(SECTION) == "Sort $text for $$5."
    assert one.describe(SECTION, one.baseline()).placeholders == ("$text",)
    changed = grafted(one, SECTION, "$HOME ${text} $$9 $5 $ {{ x }} $text")
    assert "$HOME my invoice $9 $5 $ {{ x }} my invoice" in rendered(one, changed)
    with pytest.raises(InvalidProposalError, match=r"has lost `\$text`"):
        grafted(one, SECTION, "Sort $$text.")


def test_the_description_of_a_tool_keeps_to_their_limits() -> None:
    one = target()
    assert "Look up “terms”"[:7] in rendered(one, grafted(one, TOOL, "Look up “terms”…"))
    assert grafted(one, TOOL, "Look up “terms”…").changes[TOOL.name] == 'Look up "terms"...'
    with pytest.raises(InvalidProposalError, match="ASCII; write it without é") as caught:
        grafted(one, TOOL, "Café")
    assert caught.value.reason is RejectionReason.UNUSABLE_TEXT
    with pytest.raises(InvalidProposalError, match="201 characters; at most 200"):
        grafted(one, TOOL, "a" * 201)


def test_other_entries_of_the_store_stay(store: LocalPromptOverridesStore) -> None:
    noted = target(store)
    kept = noted._override(grafted(noted, TOOL, "Look it up."), None)
    store.upsert(TEMPLATE.descriptor, kept)

    result = run(target(store, parts=["section rules"]))
    override = store.resolve(TEMPLATE.descriptor, "better")
    assert isinstance(override, PromptOverride)
    assert override.tool_overrides["search"].description == "Look it up."
    assert override.sections[("rules",)].body == result.best.changes["section rules"]


def test_what_somebody_else_stored_meanwhile_is_not_overwritten(
    store: LocalPromptOverridesStore,
) -> None:
    class Rival(Desk):
        def evaluate(self, prompt: Any, **options: Any) -> Any:
            if store.resolve(TEMPLATE.descriptor, "better") is None:
                rival = target()
                store.upsert(
                    TEMPLATE.descriptor, rival._override(grafted(rival, SECTION, "Mine."), None)
                )
            return super().evaluate(prompt, **options)

    with pytest.raises(WinnerNotStoredError, match="`better` was changed by another process"):
        run(target(store, Rival()))
    assert store.resolve(TEMPLATE.descriptor, "better").sections[("rules",)].body == "Mine."


@pytest.mark.parametrize(("phase", "score"), [("request", None), ("response", 0.0), ("tool", 0.0)])
def test_faults_of_the_provider_are_no_scores(phase: Any, score: float | None) -> None:
    class Failing(Desk):
        def evaluate(self, prompt: Any, **options: Any) -> Any:
            raise PromptEvaluationError("went\nwrong", prompt_name="teams", phase=phase)

    record = target(adapter=Failing()).rollout(target().baseline(), cases("My")[0], None)
    assert (record.score, record.fault) == (score, "went wrong")


def test_calls_tokens_and_tools_are_seen() -> None:
    class Telling(Desk):
        def evaluate(self, prompt: Any, *, session: Any, **options: Any) -> Any:
            response = super().evaluate(prompt, session=session, **options)
            common = {"prompt_name": "teams", "adapter": "desk", "session_id": session.session_id}
            now = SYSTEM_CLOCK.utcnow()
            usage = TokenUsage(input_tokens=7, output_tokens=2)
            params = Message("terms")
            session.dispatcher.dispatch(
                ToolInvoked(
                    **common,
                    name="search",
                    params=params,
                    result=None,
                    created_at=now,
                    rendered_output="found",
                )
            )
            session.dispatcher.dispatch(
                PromptExecuted(**common, result=response, created_at=now, usage=usage)
            )
            return response

    def seen(example: Any, response: Any, session: Any) -> pg.RolloutFeedback:
        [call] = session[ToolInvoked].all()
        return pg.RolloutFeedback(1.0, f"{response.text} by {call.name}")

    record = target(adapter=Telling(), feedback_fn=seen).rollout(
        target().baseline(), cases("My")[0], None
    )
    assert record.feedback is not None
    assert record.feedback.feedback.endswith(" by search")
    assert record.tool_trace_repr == 'search({"text": "terms"}) -> found'
    [spent] = record.spent
    assert (spent.model, spent.input_tokens, spent.output_tokens) == ("Telling", 7, 2)


def test_a_feedback_function_may_be_async() -> None:
    async def seen(example: Any, response: Any, session: Any) -> Any:
        return judge(example, response, session)

    one = target(feedback_fn=seen)
    record = one.rollout(one.baseline(), cases("My")[0], None)
    assert isinstance(record.feedback, pg.RolloutFeedback)


def test_what_was_paid_is_counted_when_a_feedback_function_fails() -> None:
    def failing(error: Exception) -> Any:
        def feedback_fn(example: Any, response: Any, session: Any) -> Any:
            raise error

        one = target(feedback_fn=feedback_fn)
        return one.rollout(one.baseline(), cases("My")[0], None)

    record = failing(TransientProviderError("the judge is away"))
    assert (record.feedback, record.fault) == (None, "the judge is away")
    assert record.spent
    with pytest.raises(AbandonedRolloutError, match="feedback function on example") as raised:
        failing(ZeroDivisionError("no"))
    assert raised.value.spent == record.spent


def test_mistakes_are_named_before_the_first_call() -> None:
    with pytest.raises(ConfigError, match=r"did you mean `section rules`"):
        target(parts=["section rule"])
    with pytest.raises(
        ConfigError, match=r"0\.27\S* keeps overrides of tool and task examples and"
    ):
        target(parts=["section rules", "task example 0"])
    with pytest.raises(ConfigError, match="expected a part that accepts overrides, found none"):
        WeakIncentivesTarget(
            Prompt(PromptTemplate(ns="desk", key="none", sections=[ASKED])),
            Desk(),
            feedback_fn=judge,
        )

    @dataclass(frozen=True)
    class Other:
        text: str

    with pytest.raises(ConfigError, match=r"example `odd`: Unexpected params type"):
        target().check([pg.GepaExample("odd", (Other("a"),))])


def test_what_is_shared_between_rollouts_does_not_change() -> None:
    prompt = Prompt(TEMPLATE, overrides_tag="better")
    one = WeakIncentivesTarget(prompt, Desk(), feedback_fn=judge)
    rendered(one, grafted(one, SECTION, "Other."))
    assert (prompt.params, prompt.overrides_store) == ((), None)
    assert RULES.template == "Billing: invoice."
    assert SEARCH.description == "Search."
    assert isinstance(Desk(), ProviderAdapter)
    assert PromptResponse("a", "b", None).text == "b"
