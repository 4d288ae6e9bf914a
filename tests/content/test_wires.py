"""Images and files on their way to a model, over real connections and in the SDKs' shapes."""

from __future__ import annotations

import base64
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, cast

import pytest
from anthropic.types import MessageParam
from openai.types.responses import EasyInputMessageParam

from image_files import PDF, picture, png
from promptgraft import (
    AnthropicAdapter,
    File,
    Image,
    MarkdownSection,
    OfflineAdapter,
    OpenAIAdapter,
    Prompt,
    PromptTemplate,
    ScriptedAdapter,
    Session,
)
from promptgraft.adapters.anthropic import AnthropicProfile
from promptgraft.adapters.base import ProviderAdapter, evaluated
from promptgraft.adapters.calling.parts import messages_content, responses_content
from promptgraft.adapters.facts import tokens_of_image
from promptgraft.adapters.openai import OpenAIProfile
from promptgraft.errors import ConfigError
from promptgraft.ground.content import Content
from promptgraft.runtime.session import Budget
from servers.anthropic_messages import AnthropicMessages
from servers.behaviour import Answer, Asked
from servers.loopback import KEY, MODEL, LoopbackServer
from servers.openai_chat import OpenAIChat
from servers.openai_responses import OpenAIResponses
from servers.shapes import misfit

PHOTO = picture("photo.png")
PLACES = {
    "photo": PHOTO,
    "contract": File(data=PDF, name="contract.pdf"),
    "notes": File(data=b"Paid in cash.", name="notes.txt"),
}
TEMPLATE = PromptTemplate[object](
    ns="tests",
    key="look",
    sections=(
        MarkdownSection(title="Task", key="task", template="Say what it is."),
        MarkdownSection(title="Case", key="case", template="$photo\n\n$contract\n\n$notes"),
    ),
)
PROMPT = Prompt(TEMPLATE).bind(PLACES)
DATA = base64.b64encode(PHOTO.read()).decode()
PDF_DATA = base64.b64encode(PDF).decode()


def body_sent(server: LoopbackServer, adapter: ProviderAdapter) -> Any:
    """Return the body of the one request for the prompt."""
    with server:
        evaluated(adapter, PROMPT, session=Session())
        [asked] = server.asked
    return json.loads(json.dumps(asked.body))


def seen(_: Asked) -> Answer:
    return Answer(text="a receipt")


def openai(server: LoopbackServer, **options: Any) -> OpenAIAdapter:
    return OpenAIAdapter(MODEL, api_key=KEY, base_url=server.base_url, **options)


def test_openai_is_sent_images_files_and_texts() -> None:
    server = LoopbackServer(OpenAIChat(), brain=seen)
    with server:
        evaluated(openai(server), PROMPT, session=Session())
        [asked] = server.asked
    assert asked.body["messages"] == [
        {"role": "system", "content": "## Task\n\nSay what it is."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "## Case\n\n"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}},
                {
                    "type": "file",
                    "file": {
                        "filename": "contract.pdf",
                        "file_data": f"data:application/pdf;base64,{PDF_DATA}",
                    },
                },
                {"type": "text", "text": "notes.txt:\n\nPaid in cash."},
            ],
        },
    ]


def test_responses_is_sent_images_files_and_texts() -> None:
    server = LoopbackServer(OpenAIResponses(), brain=seen)
    with server:
        evaluated(openai(server, api="responses"), PROMPT, session=Session())
        [asked] = server.asked
    assert server.counts.refused == ()
    assert asked.body["instructions"] == "## Task\n\nSay what it is."
    address = f"data:image/png;base64,{DATA}"
    file = {"filename": "contract.pdf", "file_data": f"data:application/pdf;base64,{PDF_DATA}"}
    assert asked.body["input"] == [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "## Case\n\n"},
                {"type": "input_image", "image_url": address, "detail": "auto"},
                {"type": "input_file", **file},
                {"type": "input_text", "text": "notes.txt:\n\nPaid in cash."},
            ],
        }
    ]


def test_anthropic_is_sent_images_documents_and_texts() -> None:
    server = LoopbackServer(AnthropicMessages(), brain=seen)
    with server:
        adapter = AnthropicAdapter(MODEL, api_key=KEY, base_url=server.base_url)
        evaluated(adapter, PROMPT, session=Session())
        [asked] = server.asked
    image = {"type": "base64", "media_type": "image/png", "data": DATA}
    document = {"type": "base64", "media_type": "application/pdf", "data": PDF_DATA}
    assert asked.body["messages"] == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "## Case\n\n"},
                {"type": "image", "source": image},
                {"type": "document", "source": document},
                {"type": "text", "text": "notes.txt:\n\nPaid in cash."},
            ],
        }
    ]


ADDRESSES: Content = (
    "Look:",
    Image(url="https://example.com/a.png"),
    File(url="https://example.com/b.pdf"),
)


def test_responses_content_has_the_shape_of_the_sdk() -> None:
    for content in ((*PROMPT.render().content,), ADDRESSES, ("only text",)):
        message = {"role": "user", "content": responses_content(content)}
        assert misfit(cast("Any", EasyInputMessageParam), message) is None
    assert responses_content(("only ", "text")) == "only text"
    assert responses_content(ADDRESSES) == [
        {"type": "input_text", "text": "Look:"},
        {"type": "input_image", "image_url": "https://example.com/a.png", "detail": "auto"},
        {"type": "input_file", "file_url": "https://example.com/b.pdf"},
    ]


def test_addresses_are_passed_on_to_anthropic() -> None:
    message = {"role": "user", "content": messages_content(ADDRESSES)}
    assert misfit(cast("Any", MessageParam), message) is None
    assert messages_content(ADDRESSES) == [
        {"type": "text", "text": "Look:"},
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
        {"type": "document", "source": {"type": "url", "url": "https://example.com/b.pdf"}},
    ]


@pytest.mark.parametrize("bound", [{"contract": File(data=b"\0\1", name="a.bin")}])
def test_a_file_of_another_type_is_refused_before_a_call(bound: dict[str, object]) -> None:
    rendered = PROMPT.bind(bound).render()
    for adapter in (OpenAIAdapter("m", api_key=KEY), AnthropicAdapter("m", api_key=KEY)):
        with pytest.raises(ConfigError, match=r"a\.bin: expected an image, a PDF or a text"):
            adapter.check_prompt(rendered)


def test_chat_completions_takes_no_address_of_a_file() -> None:
    rendered = PROMPT.bind({"contract": ADDRESSES[2]}).render()
    with pytest.raises(ConfigError, match="takes no address of a file; give its bytes"):
        OpenAIAdapter("m", api="chat", api_key=KEY).check_prompt(rendered)
    OpenAIAdapter("m", api="responses", api_key=KEY).check_prompt(rendered)


@pytest.mark.parametrize(
    "adapter",
    [
        OpenAIAdapter("gpt-3.5-turbo", api_key=KEY),
        OpenAIAdapter("m", api_key=KEY, profile=OpenAIProfile(vision="none")),
        AnthropicAdapter("claude-2.1", api_key=KEY),
        AnthropicAdapter("m", api_key=KEY, profile=AnthropicProfile(vision="none")),
    ],
)
def test_a_model_that_cannot_see_is_said_so_before_a_call(adapter: OpenAIAdapter) -> None:
    assert adapter.sees is False
    with pytest.raises(ConfigError, match=r"cannot see images such as photo\.png"):
        adapter.check_prompt(PROMPT.render())
    adapter.check_prompt(Prompt(TEMPLATE).bind({**PLACES, "photo": "a text"}).render())


def test_a_user_may_say_whether_a_model_sees() -> None:
    rendered = PROMPT.render()
    local = OpenAIAdapter("of-a-stranger", api_key=KEY, vision=True)
    assert local.sees is True
    assert local.tokens_of_image(PHOTO) == 1000
    assert "vision=True" in local.identity
    OpenAIAdapter("gpt-3.5-turbo", api_key=KEY, vision=True).check_prompt(rendered)
    for blind in (
        OpenAIAdapter("gpt-6-luna", api_key=KEY, vision=False),
        AnthropicAdapter("claude-sonnet-5-5", api_key=KEY, vision=False),
    ):
        assert blind.sees is False
        with pytest.raises(ConfigError, match=r"cannot see images .* set its option `vision`"):
            blind.check_prompt(rendered)


def test_current_models_see_and_unknown_ones_are_tried() -> None:
    assert OpenAIAdapter("gpt-6-luna", api_key=KEY).sees is True
    assert AnthropicAdapter("claude-sonnet-5-5", api_key=KEY).sees is True
    assert OpenAIAdapter("of-a-stranger", api_key=KEY).sees is None


@pytest.mark.parametrize(
    ("model", "pixels", "tokens"),
    [
        ("gpt-4o", (1024, 1024), 765),
        ("gpt-4o", (2048, 4096), 1105),
        ("gpt-4o", (512, 512), 255),
        ("claude-sonnet-4-5", (1000, 1000), 1334),
        ("claude-sonnet-4-5", (4000, 4000), 1600),
        ("claude-opus-4-8", (4000, 4000), 4784),
        ("of-a-stranger", (64, 64), 1000),
    ],
)
def test_an_image_costs_tokens_by_the_rule_of_the_model(
    model: str, pixels: tuple[int, int], tokens: int
) -> None:
    kind = AnthropicAdapter if model.startswith("claude") else OpenAIAdapter
    image = Image(data=png(*pixels), name="a.png")
    assert kind(model, api_key=KEY).tokens_of_image(image) == tokens
    assert tokens_of_image("tiles", 1.0, None) == 1000


def test_the_bytes_of_an_image_do_not_use_up_a_budget_of_tokens() -> None:
    # Random bytes, which do not shrink: as long as 100,000 tokens of text.
    image = Image(data=png() + bytes(n * n % 251 for n in range(300_000)), name="a.png")
    server = LoopbackServer(OpenAIChat(), brain=seen)
    with server:
        prompt, session = PROMPT.bind({"photo": image}), Session(budget=Budget(max_tokens=5_000))
        server.hold()
        with ThreadPoolExecutor(2) as threads:
            calls = []
            for in_flight in (1, 2):
                # The second is sent while the first has only reserved what it may cost.
                calls.append(threads.submit(evaluated, openai(server), prompt, session=session))
                server.wait_for(in_flight)
            server.release()
            assert [call.result().text for call in calls] == ["a receipt", "a receipt"]


def test_events_hold_no_bytes() -> None:
    session = Session()
    evaluated(ScriptedAdapter(["it"]), PROMPT, session=session)
    told = repr(session.select_all(object))
    assert "photo.png" in told
    assert repr(PHOTO.read())[2:-1] not in told
    assert DATA not in told


def test_a_scripted_model_is_shown_the_image_itself() -> None:
    adapter = ScriptedAdapter(["it"])
    evaluated(adapter, PROMPT, session=Session())
    assert PHOTO in adapter.requests[0].content


def test_the_embedded_model_reads_captions_or_says_that_it_cannot_see() -> None:
    section = MarkdownSection(
        title="Rules", key="rules", template="- food: bread, soup\n- travel: train, hotel"
    )
    photo = MarkdownSection(title="Photo", key="photo", template="$photo")
    prompt = Prompt[Any](
        PromptTemplate(
            ns="tests",
            key="kind",
            sections=(section, photo),
            output_type=cast("Any", Literal["food", "travel"]),
        )
    )
    adapter = OfflineAdapter()
    for caption, kind in (("a train ticket", "travel"), ("bread and soup", "food")):
        bound = prompt.bind({"photo": picture(caption=caption)})
        assert evaluated(adapter, bound, session=Session()).output == kind
    with pytest.raises(ConfigError, match=r"cannot see photo\.png, which has no caption"):
        adapter.check_prompt(prompt.bind({"photo": picture()}).render())
