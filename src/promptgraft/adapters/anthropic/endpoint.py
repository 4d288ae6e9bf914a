"""Anthropic's own client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from promptgraft.adapters.calling.access import Access
from promptgraft.adapters.calling.sdk import SdkEndpoint, broken, timed_out
from promptgraft.prompt.schema import JsonObject

if TYPE_CHECKING:
    import anthropic
    import httpx2


class AnthropicEndpoint(SdkEndpoint["anthropic.AsyncAnthropic"]):
    """Sends through the `anthropic` SDK."""

    def _connect(self, access: Access) -> anthropic.AsyncAnthropic:
        import anthropic

        return anthropic.AsyncAnthropic(
            api_key=access.key,
            base_url=access.address,
            default_headers=access.sent_headers,
            max_retries=0,
        )

    def _closing(self, client: anthropic.AsyncAnthropic) -> Callable[[], Awaitable[None]]:
        return client.close

    async def _post(
        self, client: anthropic.AsyncAnthropic, body: JsonObject, seconds: float
    ) -> httpx2.Response:
        import anthropic
        import httpx2

        try:
            return await client.post(
                "/v1/messages", cast_to=httpx2.Response, body=body, options={"timeout": seconds}
            )
        except anthropic.APIStatusError as error:
            return error.response
        except anthropic.APITimeoutError:
            raise timed_out(seconds) from None
        except anthropic.APIConnectionError as error:
            raise broken(error) from None
