"""The adapters of each wire format through their real SDKs against loopback servers."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Literal

import attrs
import pytest

from programs import Programs
from promptgraft import AnthropicAdapter, ModelPrice, OpenAIAdapter, Prices, RetryPolicy
from promptgraft.adapters.anthropic import AnthropicProfile
from promptgraft.adapters.base import NO_USAGE, ModelCalled, PromptExecuted, ToolInvoked, Usage
from promptgraft.adapters.calling.access import Access, Api
from promptgraft.adapters.openai import OpenAIProfile
from promptgraft.errors import (
    BudgetExhaustedError,
    ConfigError,
    EmptyAnswerError,
    PermanentProviderError,
    RefusedAnswerError,
    TransientProviderError,
    TruncatedAnswerError,
)
from promptgraft.ground.serde import Json
from promptgraft.prompt import MarkdownSection, Prompt, PromptTemplate, Tool
from promptgraft.runtime import Session
from promptgraft.runtime.session import Budget, Charge
from servers.anthropic_messages import AnthropicMessages
from servers.behaviour import Answer, Asked, Behaviour, Call, Stop, always, in_turn, says
from servers.loopback import KEY, MODEL, LoopbackServer
from servers.openai_chat import OpenAIChat
from servers.openai_responses import OpenAIResponses
from servers.provider import Provider

Adapter = AnthropicAdapter | OpenAIAdapter

ANTHROPIC_NATIVE = AnthropicProfile(structured_output="native", prompt_caching=True)
OPENAI_NATIVE = OpenAIProfile(structured_output="native")
VARIABLES = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
)


@attrs.frozen(kw_only=True)
class Family:
    """An adapter and the server that it talks to; ``options`` are given to each adapter."""

    adapter: type[Any]
    server: Callable[[], Provider]
    native: object
    key: str
    address: str
    options: Mapping[str, object] = attrs.field(factory=dict)

    def new(self, **options: Any) -> Any:
        return self.adapter(MODEL, **self.options, **options)

    def of(self, server: LoopbackServer, **options: Any) -> Adapter:
        usual = {"api_key": KEY, "base_url": server.base_url, "profile": self.native}
        adapter: Adapter = self.new(**{**usual, **options})
        return adapter


ANTHROPIC = Family(
    adapter=AnthropicAdapter,
    server=AnthropicMessages,
    native=ANTHROPIC_NATIVE,
    key="ANTHROPIC_API_KEY",
    address="ANTHROPIC_BASE_URL",
)
OPENAI = Family(
    adapter=OpenAIAdapter,
    server=OpenAIChat,
    native=OPENAI_NATIVE,
    key="OPENAI_API_KEY",
    address="OPENAI_BASE_URL",
)
RESPONSES = attrs.evolve(OPENAI, server=OpenAIResponses, options={"api": "responses"})


@pytest.fixture(params=[ANTHROPIC, OPENAI, RESPONSES], ids=["anthropic", "openai", "responses"])
def family(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Family:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    found: Family = request.param
    return found


@attrs.frozen
class Question:
    words: str


def prompt(output_type: Any = Literal["yes", "no"]) -> Prompt[Any]:
    tool = Tool(
        name="find",
        description="Finds.",
        params_type=Question,
        result_type=str,
        handler=lambda question: f"found {question.words}",
    )
    sections = [
        MarkdownSection(title="Task", key="task", template="Is it so?", tools=[tool]),
        MarkdownSection(title="Note", key="note", template="$note"),
    ]
    template = PromptTemplate(ns="n", key="k", sections=sections, output_type=output_type)
    return Prompt(template).bind({"note": "é"})


def searching(asked: Asked) -> Answer:
    if asked.results:
        return Answer(text='{"answer": "yes"}')
    calls = (Call("find", '{"words": "é"}'), Call("lose", "{}"))
    return Answer(text="Let me look.", calls=calls)


@pytest.fixture
def server(family: Family) -> Iterator[LoopbackServer]:
    with LoopbackServer(family.server(), brain=searching) as running:
        yield running


def counting(family: Family, sent: Json, received: Json) -> Json:
    """Return token counts as the API of a family writes them."""
    names = ("prompt", "completion") if family is OPENAI else ("input", "output")
    return {f"{name}_tokens": count for name, count in zip(names, (sent, received), strict=True)}


def unreadable_at_first(family: Family, sent: Json, received: Json, times: int) -> ModelCalled:
    """Ask once at a price, and return what was reported of the call.

    The server answers some times with nothing but token counts, and then with 7 and 1.
    """
    usage = counting(family, sent, received)
    body = json.dumps({"usage": usage, "choices": [], "output": None}).encode()
    session = Session()
    with LoopbackServer(
        family.server(),
        brain=lambda _: Answer(text="yes", input_tokens=7, output_tokens=1),
        script=in_turn(*[Behaviour(body=body)] * times),
    ) as server:
        adapter = family.of(
            server,
            prices=Prices({MODEL: ModelPrice(input="1", output="10")}),
            policy=RetryPolicy(attempts=3, wait_initial=0.001, wait_max=0.002),
        )
        with contextlib.suppress(TransientProviderError):
            adapter.evaluate(prompt(str), session=session)
    [called] = session.select_all(ModelCalled)
    return called


@pytest.mark.parametrize("times", [1, 3])
def test_tokens_of_an_answer_that_cannot_be_read_are_on_the_bill(
    family: Family, times: int
) -> None:
    called = unreadable_at_first(family, 100, 20, times)
    lost = min(times, 2)  # the same shape twice ends the call
    answered = Usage(input_tokens=7, output_tokens=1) if lost < 2 else NO_USAGE
    assert bool(called.fault) is (lost == 2)
    assert called.usage == answered + Usage(input_tokens=100 * lost, output_tokens=20 * lost)
    dollars = Decimal(called.usage.input_tokens + 10 * called.usage.output_tokens)
    assert called.cost == dollars / 1_000_000


@pytest.mark.parametrize(("sent", "received"), [("100", "20"), (100.0, 20.0)])
def test_token_counts_in_another_form_count(family: Family, sent: Json, received: Json) -> None:
    called = unreadable_at_first(family, sent, received, 1)
    assert called.usage == Usage(input_tokens=107, output_tokens=21)


def test_tools_are_called_and_the_answer_is_parsed(family: Family, server: LoopbackServer) -> None:
    session = Session()
    prices = Prices({MODEL: ModelPrice(input=1, output=2)})
    adapter = family.of(server, prices=prices, headers={"x-team": "blue"})
    response = adapter.evaluate(prompt(), session=session)
    assert (response.text, response.output) == ("yes", "yes")
    assert session.latest(PromptExecuted) == PromptExecuted(response=response)
    first, second = server.asked
    assert first.texts == ("## Task\n\nIs it so?", "## Note\n\né")
    assert second.results[0] == "found é"
    assert second.headers["x-team"] == "blue"
    assert "there is no tool `lose`" in second.results[1]
    assert [found.error == "" for found in session.select_all(ToolInvoked)] == [True, False]
    counts = server.counts
    assert counts.refused == ()
    assert response.usage.input_tokens == counts.input_tokens
    assert response.usage.output_tokens == counts.output_tokens
    calls = session.select_all(ModelCalled)
    assert [call.requests for call in calls] == [1, 1]
    paid = sum((call.cost or Decimal(0) for call in calls), Decimal(0))
    assert paid == Decimal(counts.input_tokens + 2 * counts.output_tokens) / 1_000_000


def test_a_model_without_schemas_is_told_in_the_text(
    family: Family, server: LoopbackServer
) -> None:
    adapter = family.of(server, profile=None)
    response = adapter.evaluate(prompt(), session=Session())
    assert response.output == "yes"
    assert "exactly one of these and nothing else: no, yes." in server.asked[0].texts[0]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Answer(text="half", stop=Stop.LENGTH), TruncatedAnswerError),
        (Answer(text="no", stop=Stop.REFUSED), RefusedAnswerError),
        (Answer(text="", stop=Stop.FILTERED), RefusedAnswerError),
        (Answer(text=""), EmptyAnswerError),
    ],
)
def test_what_is_no_answer_is_an_error(
    family: Family, answer: Answer, error: type[Exception]
) -> None:
    script = always(Behaviour(answer=answer))
    with LoopbackServer(family.server(), brain=searching, script=script) as server:
        with pytest.raises(error):
            family.of(server).evaluate(prompt(), session=Session())
        assert server.counts.requests == 1


def test_nothing_is_asked_when_the_budget_is_used_up(
    family: Family, server: LoopbackServer
) -> None:
    adapter = family.of(server)
    budget = Budget(max_tokens=1)
    with pytest.raises(BudgetExhaustedError):
        adapter.evaluate(prompt(), session=Session(budget=budget))
    assert server.counts.requests == 1
    assert budget.paid.tokens == server.counts.input_tokens + server.counts.output_tokens


class Watched(Budget):
    """A budget that remembers what was set aside."""

    def __init__(self) -> None:
        super().__init__(max_cost=Decimal(1))
        self.seen: list[Charge] = []

    def reserve(self, expected: Charge) -> None:
        self.seen.append(expected)
        super().reserve(expected)


def test_the_price_of_a_request_is_set_aside_before_it_is_sent(
    family: Family, server: LoopbackServer
) -> None:
    budget = Watched()
    adapter = family.of(server, prices=Prices({MODEL: ModelPrice(input=2, output=0)}))
    adapter.evaluate(prompt(), session=Session(budget=budget))
    first, second = budget.seen
    assert 0 < first.tokens < second.tokens < server.counts.input_tokens
    assert first.cost == Decimal(2 * first.tokens) / 1_000_000


def test_key_and_address_come_from_the_environment(
    family: Family, server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(family.key, KEY)
    monkeypatch.setenv(family.address, server.base_url)
    adapter = family.new(profile=family.native)
    assert adapter.evaluate(prompt(), session=Session()).output == "yes"
    assert "host=127.0.0.1:" in adapter.identity


def test_a_pickled_adapter_answers(family: Family, server: LoopbackServer) -> None:
    adapter = family.of(server, max_output_tokens=64)
    adapter.evaluate(prompt(), session=Session())
    copy = pickle.loads(pickle.dumps(adapter))
    assert copy.identity == adapter.identity
    assert copy.evaluate(prompt(), session=Session()).output == "yes"


def test_a_missing_key_is_named_before_anything_is_asked(family: Family) -> None:
    with pytest.raises(ConfigError, match=f"there is no API key; set {family.key}, or give"):
        family.new()


def test_a_key_that_cannot_be_sent_is_refused_and_not_shown(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(family.key, "sk-secret-é")
    with pytest.raises(ConfigError, match="expected printable ASCII characters") as caught:
        family.new()
    assert family.key in str(caught.value)
    assert "sk-secret" not in str(caught.value)


def test_a_missing_sdk_is_one_line(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    sdk = family.server().name
    monkeypatch.setitem(sys.modules, sdk, None)
    with pytest.raises(ConfigError) as caught:
        family.new(api_key=KEY)
    assert str(caught.value) == (
        f"{family.adapter.__name__} needs the package `{sdk}`; run: "
        f"pip install 'promptgraft[{sdk}]'"
    )


@pytest.mark.parametrize("written", [f"{KEY}\n", f"  {KEY} ", f"{KEY}\r\n"])
def test_white_space_around_a_key_is_not_sent(
    family: Family, server: LoopbackServer, written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The server lets in the key itself, and no other.
    family.of(server, api_key=written).evaluate(prompt(), session=Session())
    monkeypatch.setenv(family.key, written)
    family.of(server, api_key=None).evaluate(prompt(), session=Session())
    assert set(server.counts.statuses) == {200}


def test_a_line_break_inside_a_key_is_named_and_the_key_is_not(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(family.key, "first-half\nsecond-half")
    with pytest.raises(ConfigError) as caught:
        family.new()
    assert str(caught.value) == (
        f"{family.adapter.__name__}: {family.key}: expected a key on one line, found a line break "
        "in it (the key is not shown); set it again"
    )


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("max_output_tokens", 0, "expected an integer of at least 1, found 0"),
        ("stop", "END", "expected a list of texts, found 'END'"),
        ("stop", [""], "expected a list of texts"),
        ("effort", " ", "expected a text, found ' '"),
        ("extra_body", {"a": object()}, "expected a mapping that JSON can hold"),
        ("extra_body", {"messages": []}, "`messages` is set by the prompt"),
        ("api_key", "a\nb", "expected a key on one line, found a line break in it"),
        ("api_key", "aé", "expected printable ASCII characters, found something else"),
        ("headers", {"x-a": "b\r\nc"}, "expected a mapping of header names"),
        ("base_url", "localhost:8000", "expected an address such as http://localhost:8000/v1"),
        ("base_url", "http://h/v1?key=a", "without `?` and `#`"),
        ("base_url", "http://h:x/v1", "expected an address"),
        (
            "base_url",
            "http://h/v1/chat/completions/v1/messages",
            "base_url: leave out `/",
        ),
        ("timeout", 0, "expected seconds above 0, found 0"),
        ("timeout", True, "expected seconds above 0, found True"),
        ("policy", 3, "expected a RetryPolicy, found 3"),
        ("max_concurrency", 0, "expected an integer of at least 1"),
        ("max_tool_rounds", "8", "expected an integer of at least 1, found '8'"),
        ("prices", {}, "expected a Prices, found {}"),
        ("profile", "native", "Profile, found 'native'"),
    ],
)
def test_options_are_checked_when_they_are_given(
    family: Family, option: str, value: object, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        family.new(**{"api_key": KEY, option: value})
    assert str(caught.value).startswith(f"{family.adapter.__name__}: {option}: ")
    assert message in str(caught.value)


@pytest.mark.parametrize("value", ["http://[h", "http://h:x/v1", "http://a..b/v1", "h"])
def test_an_address_of_the_environment_is_checked_before_the_key(
    family: Family, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(family.address, value)
    name = f"{family.adapter.__name__}: {family.address}"
    with pytest.raises(ConfigError, match=f"^{name}: expected an address .* found something else"):
        family.new()


@pytest.mark.parametrize(
    ("model", "option", "value", "message"),
    [
        ("gpt-4o", "temperature", 2.1, "temperature: expected a number from 0 to 2, found 2.1"),
        ("gpt-4o", "top_p", float("nan"), "top_p: expected a number from 0 to 1, found nan"),
        ("gpt-4o", "seed", 1.5, "seed: expected an integer, found 1.5"),
        ("o3", "temperature", 0.5, "temperature: `o3` does not take it; leave it out"),
        ("", "seed", 1, "model: expected a text, found ''"),
    ],
)
def test_sampling_options_are_checked(model: str, option: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^OpenAIAdapter: {message}"):
        OpenAIAdapter(model, api_key=KEY, **{option: value})


def test_the_identity_says_what_answers_and_no_secret(family: Family) -> None:
    secrets = ("sk-key-1234567890", "user-name-12", "pass-word-34", "header-56789", "body-98765")
    key, user, password, header, field = secrets
    adapter = family.new(
        api_key=key,
        base_url=f"https://{user}:{password}@gate.example:8443/v1",
        headers={"x-team": header},
        extra_body={"user": field},
        max_output_tokens=64,
        temperature=0.5,
    )
    name = "anthropic" if adapter.__class__ is AnthropicAdapter else "openai"
    assert adapter.identity.startswith(
        f"{name}/1 {MODEL} host=gate.example:8443 max_output_tokens=64 temperature=0.5 extra_body="
    )
    assert not [secret for secret in secrets if secret in f"{adapter.identity} {adapter!r}"]


def test_what_changes_answers_changes_the_identity(family: Family) -> None:
    def identity(**options: Any) -> str:
        found: str = family.new(api_key=KEY, **options).identity
        return found

    changes: list[dict[str, Any]] = [
        {},
        {"base_url": "http://localhost:1/v1"},
        {"max_output_tokens": 90},
        {"temperature": 0.5},
        {"top_p": 0.5},
        {"effort": "low"},
        {"extra_body": {"a": 1}},
        {"extra_body": {"a": 2}},
        {"max_tool_rounds": 3},
        {"profile": family.native},
    ]
    if family is not RESPONSES:
        changes.append({"stop": ["a"]})
    assert len({identity(**change) for change in changes}) == len(changes)
    policy = RetryPolicy(attempts=2)
    assert identity(timeout=1, max_concurrency=2, policy=policy) == identity()


def test_user_and_password_of_an_address_go_into_a_header_and_nowhere_else(
    family: Family, server: LoopbackServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    address = server.base_url.replace("//", "//user-name-12:pass-word-34@")
    adapter = family.of(server, base_url=address, api_key=None)
    session = Session()
    with pytest.raises(PermanentProviderError) as caught:
        adapter.evaluate(prompt(), session=session)
    seen = f"{caught.value!r} {caplog.text} {session.select_all(object)}"
    assert "HTTP" in caplog.text
    assert "pass-word-34" not in seen
    assert "user-name-12" not in seen


def access(**options: Any) -> Access:
    given: dict[str, Any] = {"api_key": KEY, "base_url": None, "headers": {}, **options}
    some = Api(
        adapter="Some",
        provider="groq",
        packages=(),
        address_variable="SOME_URL",
        client="Client",
        path="/",
        taken={},
    )
    return Access(api=some, **given)


def test_an_account_is_provider_host_and_a_digest_of_the_secrets() -> None:
    plain = access()
    assert plain.account.startswith("groq default ")
    accounts = {
        found.account
        for found in (
            plain,
            access(api_key="other"),
            access(headers={"x": "y"}),
            access(base_url="http://h:1/v1"),
            access(base_url="http://u:p@h:1/v1"),
        )
    }
    assert len(accounts) == 5
    assert plain.account == access().account
    assert KEY not in plain.account


def test_everything_that_must_not_be_seen_is_known() -> None:
    found = access(
        base_url="https://us%40er-1:pass-word@h/v1", headers={"Cookie": "id=long-cookie a"}
    )
    assert found.address == "https://h/v1"
    assert {KEY, "us@er-1", "pass-word", "id=long-cookie"} <= set(found.secrets)
    assert "a" not in found.secrets
    assert found.sent_headers["Authorization"].startswith("Basic ")
    assert KEY not in repr(found)


@pytest.mark.parametrize("name", ["Authorization", "authorization", "AUTHORIZATION"])
def test_a_header_that_is_given_wins_over_the_address(name: str) -> None:
    found = access(base_url="https://user:pass-word@h/v1", headers={name: "Bearer x"})
    assert found.sent_headers == {name: "Bearer x"}


def test_no_sdk_is_loaded_before_something_is_asked() -> None:
    code = (
        "import sys, promptgraft as p\n"
        "p.AnthropicAdapter('claude-sonnet-4-5', api_key='none').identity\n"
        "p.OpenAIAdapter('gpt-4o', api_key='none').identity\n"
        "heavy = ('anthropic', 'openai', 'httpx2', 'stamina', 'genai_prices')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


FORK = """
import os, sys, warnings
from promptgraft import MarkdownSection, OpenAIAdapter, Prompt, PromptTemplate, Session
section = MarkdownSection(title="T", key="t", template="Go.")
prompt = Prompt(PromptTemplate(ns="n", key="k", sections=[section]))
adapter = OpenAIAdapter(sys.argv[1], api_key=sys.argv[2], base_url=sys.argv[3], timeout=5)
print(adapter.evaluate(prompt, session=Session()).text, flush=True)
warnings.simplefilter("ignore")
before = adapter._line.caller(adapter._new_caller)
if os.fork() == 0:
    assert adapter._line.caller(adapter._new_caller) is not before  # sockets are not shared
    print(adapter.evaluate(prompt, session=Session()).text, flush=True)
    os._exit(0)
assert os.wait()[1] == 0
print(adapter.evaluate(prompt, session=Session()).text)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_an_adapter_answers_on_both_sides_of_a_fork(programs: Programs) -> None:
    with LoopbackServer(OpenAIChat(), brain=says("hi")) as server:
        ran = programs("-c", FORK, MODEL, KEY, server.base_url)
    assert (ran.returncode, ran.stdout.split()) == (0, ["hi", "hi", "hi"])


def test_a_client_is_built_once(family: Family, server: LoopbackServer) -> None:
    adapter = family.of(server)
    adapter.evaluate(prompt(), session=Session())
    first = adapter._line.caller(adapter._new_caller)
    adapter.evaluate(prompt(), session=Session())
    assert adapter._line.caller(adapter._new_caller) is first
