"""OpenAI's own client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from promptgraft.adapters.calling.access import Access
from promptgraft.adapters.calling.sdk import SdkEndpoint, broken, timed_out
from promptgraft.prompt.schema import JsonObject

if TYPE_CHECKING:
    import httpx2
    import openai


class OpenAIEndpoint(SdkEndpoint["openai.AsyncOpenAI"]):
    """Sends through the `openai` SDK."""

    def _connect(self, access: Access) -> openai.AsyncOpenAI:
        import openai

        return openai.AsyncOpenAI(
            api_key=access.key,
            base_url=access.address,
            default_headers=access.sent_headers,
            max_retries=0,
        )

    def _closing(self, client: openai.AsyncOpenAI) -> Callable[[], Awaitable[None]]:
        return client.close

    async def _post(
        self, client: openai.AsyncOpenAI, body: JsonObject, seconds: float
    ) -> httpx2.Response:
        import httpx2
        import openai

        try:
            return await client.post(
                "/chat/completions",
                cast_to=httpx2.Response,
                body=body,
                options={"timeout": seconds},
            )
        except openai.APIStatusError as error:
            return error.response
        except openai.APITimeoutError:
            raise timed_out(seconds) from None
        except openai.APIConnectionError as error:
            raise broken(error) from None
