"""Secrets that are planted wherever they may stand appear in nothing that a run leaves behind."""

from __future__ import annotations

import json
import logging
import traceback
from base64 import b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

import attrs
import pytest

from adapters.storm.storm_servers import brain
from adapters.storm.storm_world import (
    CONFIG,
    MODELS,
    PRICES,
    REFLECTION_MODEL,
    TASK_MODEL,
    TEMPLATE,
    Question,
    run,
    scripted,
)
from further import thorough
from promptgraft import (
    AnthropicAdapter,
    EventBus,
    FileJournal,
    GepaResult,
    LocalPromptOverridesStore,
    OpenAIAdapter,
    Prompt,
    Session,
)
from promptgraft.adapters.base import ProviderAdapter
from promptgraft.adapters.calling.retrying import RetryPolicy
from promptgraft.errors import ConfigError, PromptgraftError
from promptgraft.search import StopReason
from servers.anthropic_messages import AnthropicMessages
from servers.behaviour import WELL, Asked, Behaviour, Break, Fault, Script
from servers.loopback import LoopbackServer
from servers.openai_chat import OpenAIChat
from servers.provider import Provider

MARK = "TELLTALE"
KEY = f"sk-{MARK}0key0of0the0environment"
USER, PASSWORD = f"{MARK}-us/er", f'pass {MARK}"word'
HEADERS = {"x-gateway-token": f"{MARK}-token-0123", "cookie": f"session={MARK}%2Fcookie; a=b"}
IMPATIENCE = RetryPolicy(
    attempts=2, wait_initial=0.001, wait_max=0.002, max_retry_after=0.05, timeout=20.0
)
SHORT = attrs.evolve(CONFIG, pareto_set_size=8, minibatch_size=4, rollout_budget=24)


class AnthropicGateway(AnthropicMessages):
    """A gateway that lets in whoever has the token; the other headers are its own business."""

    def key_of(self, headers: Mapping[str, str]) -> str | None:
        return headers.get("x-gateway-token")


class OpenAIGateway(OpenAIChat):
    """The same, with the other protocol."""

    def key_of(self, headers: Mapping[str, str]) -> str | None:
        return headers.get("x-gateway-token")


PROVIDERS: dict[str, type[Provider]] = {"anthropic": AnthropicGateway, "openai": OpenAIGateway}
ADAPTERS: dict[str, type[AnthropicAdapter | OpenAIAdapter]] = {
    "anthropic": AnthropicAdapter,
    "openai": OpenAIAdapter,
}


def echo(asked: Asked) -> str:
    """Return everything secret that a server learns, in the forms in which it may say it."""
    plain = [f"{name}: {value}" for name, value in asked.headers.items()]
    named = asked.headers.get("authorization", "").startswith("Basic")
    secrets = [KEY, *HEADERS.values(), *((USER, PASSWORD) if named else ())]
    coded = [b64encode(f"user={secret}".encode()).decode() for secret in secrets]
    return " ".join(
        [*secrets, *plain, json.dumps(plain), *map(quote, secrets), *coded, f"{KEY[:9]}***"]
    )


def fails(status: int, **headers: str) -> Script:
    """Return a script of errors that echo the request."""

    def script(asked: Asked) -> Behaviour:
        fault = Fault(status=status, kind="some_error", message=echo(asked))
        return Behaviour(status=status, fault=fault, headers=headers)

    return script


def babbles(asked: Asked) -> Behaviour:
    """Echo the request in every way in which a response can be wrong, then answer."""
    said = echo(asked)
    ways = (
        Behaviour(status=500, body=said.encode(), content_type="text/plain"),
        Behaviour(status=502, body=f"<title>{said}</title>".encode(), content_type="text/html"),
        Behaviour(body=f'{{"id": "{said}'.encode()),
        Behaviour(body=json.dumps([said]).encode()),
        Behaviour(body=json.dumps({"error": said}).encode()),
        Behaviour(body=json.dumps({"choices": said, "content": said}).encode()),
        Behaviour(breaks=Break.IN_HEADERS),
    )
    return ways[asked.number % 31] if asked.number % 31 < len(ways) else WELL


class Findings:
    """Everything that runs leave behind."""

    def __init__(self, folder: Path, streams: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._streams = streams
        self.bus = EventBus()
        self.texts: list[str] = []
        self.bus.subscribe(object, self.see)

    def see(self, found: object) -> None:
        self.texts += [repr(found), str(found)]

    def see_error(self, error: BaseException) -> None:
        self.texts += traceback.format_exception(error)
        chain: list[BaseException | None] = [error]
        while chain:
            if (one := chain.pop()) is not None:
                self.see(one)
                self.see((one.args, vars(one)))
                chain += [one.__cause__, one.__context__]

    def leaks(self) -> list[str]:
        """Return what holds a secret in any form."""
        files = [path for path in self.folder.rglob("*") if path.is_file()]
        assert files
        self.texts += self._streams.readouterr()
        texts = [*self.texts, *(path.read_text("utf-8") for path in files), *map(str, files)]
        coded = [
            b64encode(b"\0" * before + MARK.encode()).decode()[before and 2 : -4]
            for before in range(3)
        ]
        lines = {line for text in texts for line in text.splitlines()}
        return [
            line for line in lines if any(mark in line for mark in (MARK, MARK.lower(), *coded))
        ]


@pytest.fixture
def findings(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Findings]:
    root = logging.getLogger()
    level = root.level
    kept = logging.FileHandler(tmp_path / "log.txt")
    root.addHandler(kept)
    root.setLevel(logging.DEBUG)
    yield Findings(tmp_path, capfd)
    root.setLevel(level)
    root.removeHandler(kept)
    kept.close()


def planted(
    sdk: str, base_url: str, patch: pytest.MonkeyPatch, *, named: bool = True
) -> ProviderAdapter:
    """Return an adapter that is given secrets; user and password, too, if it is named."""
    patch.setenv(f"{sdk.upper()}_API_KEY", KEY)
    user = f"{quote(USER, safe='')}:{quote(PASSWORD, safe='')}@" if named else ""
    return ADAPTERS[sdk](
        TASK_MODEL,
        base_url=base_url.replace("://", f"://{user}"),
        headers=HEADERS,
        policy=IMPATIENCE,
        prices=PRICES,
    )


def explored(findings: Findings, adapter: ProviderAdapter) -> GepaResult:
    """Make a call and a run, and look at everything about them."""
    findings.see(adapter)
    session = Session(bus=findings.bus)
    prompt = Prompt(TEMPLATE).bind(Question(word="apple"))
    try:
        adapter.evaluate(prompt, session=session)
    except PromptgraftError as error:
        findings.see_error(error)
    with FileJournal(findings.folder / "journal.jsonl") as journal:
        result = run(
            adapter,
            scripted(REFLECTION_MODEL),
            SHORT,
            journal=journal,
            store=LocalPromptOverridesStore(findings.folder),
            bus=findings.bus,
        )
    findings.see(result)
    findings.see(attrs.asdict(result, recurse=False))
    return result


@pytest.mark.parametrize("sdk", ["openai", *thorough(["anthropic"])])
@pytest.mark.parametrize(
    ("script", "named", "reason"),
    [
        (lambda _: WELL, True, StopReason.BUDGET),
        (babbles, False, StopReason.BUDGET),
        (fails(400), True, StopReason.PROVIDER_FAILED),
        (fails(401), False, StopReason.PROVIDER_FAILED),
        (fails(401), True, StopReason.PROVIDER_FAILED),
        (fails(429), False, StopReason.PROVIDER_FAILED),
        (fails(503), True, StopReason.PROVIDER_FAILED),
    ],
    ids=["well", "babbling", "rejected", "wrong key", "wrong user", "limited", "unavailable"],
)
def test_a_run_leaves_no_secret_behind(
    sdk: str,
    script: Script,
    named: bool,
    reason: StopReason,
    findings: Findings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = LoopbackServer(
        PROVIDERS[sdk](), brain=brain, script=script, key=HEADERS["x-gateway-token"], models=MODELS
    )
    with server:
        result = explored(findings, planted(sdk, server.base_url, monkeypatch, named=named))
    # What is looked for has been on its way.
    sent = server.asked[0].headers
    assert HEADERS.items() <= sent.items()
    basic = b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    assert (basic if named else KEY) in " ".join(sent.values())
    assert result.stop_reason is reason, result.stop_detail
    assert findings.leaks() == []


@pytest.mark.parametrize("sdk", ADAPTERS)
def test_a_run_that_reaches_nobody_leaves_no_secret_behind(
    sdk: str, findings: Findings, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = explored(findings, planted(sdk, "http://127.0.0.1:9/v1", monkeypatch))
    assert result.stop_reason is StopReason.PROVIDER_FAILED
    assert findings.leaks() == []


@pytest.mark.parametrize("sdk", ADAPTERS)
@pytest.mark.parametrize(
    "address",
    [
        f"http://127.0.0.1:9/v1?token={MARK}",
        f"http://127.0.0.1:9/v1#{MARK}",
        f"http://127.0.0.1:{MARK}/v1",
        f"http://u:{MARK}@",
        f"http://[{MARK}",
        f"ftp://u:{MARK}@127.0.0.1/",
        f"http://127.0.0.1:9/{MARK} a",
        MARK,
    ],
)
def test_an_address_that_is_none_is_refused_and_not_shown(
    sdk: str, address: str, findings: Findings, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = f"{sdk.upper()}_BASE_URL"
    with pytest.raises(ConfigError, match="base_url: expected an address such as") as given:
        ADAPTERS[sdk](TASK_MODEL, api_key=KEY, base_url=address)
    monkeypatch.setenv(variable, address)
    with pytest.raises(ConfigError, match=f"{variable}: expected an address") as found:
        ADAPTERS[sdk](TASK_MODEL, api_key=KEY)
    for error in (given.value, found.value):
        findings.see(error)
        findings.see(error.args)
    assert findings.leaks() == []
