"""A service that is asked over HTTP: ``python http_service.py 8000``.

It takes its text from the request, so that promptgraft can try many at once.
"""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache

import uvicorn
from openai import AsyncOpenAI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route


@cache
def client() -> AsyncOpenAI:
    """Return the one client of all requests."""
    return AsyncOpenAI(max_retries=0)


@asynccontextmanager
async def open_client(_: Starlette) -> AsyncIterator[None]:
    """Close the client when the service ends."""
    async with client():
        yield


async def chat(request: Request) -> JSONResponse:
    """Answer ``query`` with the text ``system``."""
    asked = await request.json()
    reply = await client().chat.completions.create(
        model=os.environ["AGENT_MODEL"],
        messages=[
            {"role": "system", "content": asked["system"]},
            {"role": "user", "content": asked["query"]},
        ],
    )
    return JSONResponse({"final_text": reply.choices[0].message.content})


app = Starlette(routes=[Route("/chat", chat, methods=["POST"])], lifespan=open_client)

if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), log_level="warning")
