"""A page on this machine: type a sentence, see its translation, where it looked, and the beam.

Meant for one person: it binds to loopback, answers only requests that name this machine, and does bounded work.
"""

import asyncio
import math
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse, JSONResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rnnsearch.flows.translate import TranslateError
from rnnsearch.flows.translator import Candidate, Translation, Translator
from rnnsearch.model.config import SearchConfig

LOOPBACK = "127.0.0.1"

_WEB = Path(__file__).parent / "web"
_FILES = {"/": "page.html", "/page.css": "page.css", "/page.js": "page.js", "/icon.svg": "icon.svg"}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_LOOK = 0.1  # seconds between two looks whether the reader has left


@dataclass(frozen=True)
class Limits:
    """What one request may cost."""

    characters: int = 2_000
    words: int = 100
    beam: int = 24
    shown: int = 12  # candidates
    waiting: int = 4  # requests that wait for their turn; one is worked on at a time
    seconds: float = 30.0  # of searching


class Question(BaseModel):
    """What the page asks."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str
    beam: int | None = Field(default=None, gt=0)
    unknown: Literal["allow", "forbid", "copy"] = "allow"


class _RequestError(Exception):
    """A request that is refused, with the status that says why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _LeftError(Exception):
    """The reader has gone: nobody waits for the answer."""


class Queue:
    """One search at a time, a bounded number of others waiting."""

    def __init__(self, limits: Limits) -> None:
        """Start the one thread that searches."""
        self._limits = limits
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="search")
        self._there = 0

    async def run(
        self, work: Callable[[Callable[[], None]], Any], left: Callable[[], Awaitable[bool]]
    ) -> Any:
        """Do `work` when its turn comes; it is given a function to call often, which ends it in time.

        Raises _RequestError where too many wait or the time is up, _LeftError where `left` says so.
        """
        if self._there > self._limits.waiting:
            raise _RequestError(503, "Too many sentences are waiting. Try again in a moment.")
        gone = threading.Event()
        ends = math.inf

        def check() -> None:
            if gone.is_set():
                raise _LeftError
            if time.monotonic() > ends:
                raise TimeoutError

        def timed() -> Any:
            nonlocal ends
            ends = time.monotonic() + self._limits.seconds
            check()
            return work(check)

        self._there += 1
        future = asyncio.get_running_loop().run_in_executor(self._thread, timed)
        try:
            while not (await asyncio.wait({future}, timeout=_LOOK))[0]:
                if await left():
                    gone.set()
            return future.result()
        except TimeoutError:
            raise _RequestError(
                504, f"The search took longer than {self._limits.seconds:g} seconds. Try a shorter sentence."
            ) from None
        finally:
            gone.set()
            self._there -= 1


def create_app(translator: Translator, search: SearchConfig, limits: Limits = Limits()) -> FastAPI:
    """The page and what it asks, as an ASGI application."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    queue = Queue(limits)

    @app.middleware("http")
    async def guard(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        """Refuse what another site could make a browser send, and say what the page may do."""
        try:
            check_host(request)
            response = await answer(request)
        except _RequestError as error:
            response = JSONResponse({"error": str(error)}, status_code=error.status)
        response.headers.update(_HEADERS)
        return response

    for path, name in _FILES.items():
        app.add_api_route(path, _file(_WEB / name), include_in_schema=False)

    @app.get("/about")
    def about() -> dict[str, Any]:
        """What the page must know before the first question."""
        rules = translator.text.tokenize
        return {
            "name": translator.name,
            "source": rules.source_language,
            "target": rules.target_language,
            "attention": translator.attends,
            "beam": min(search.beam, limits.beam),
            "limits": {"characters": limits.characters, "words": limits.words, "beam": limits.beam},
        }

    @app.post("/translate")
    async def translate(request: Request) -> Response:
        """Translate one sentence."""
        question = await _question(request, limits)
        beam = min(question.beam or search.beam, limits.beam)
        config = search.model_copy(
            update={
                "beam": beam,
                "n_best": min(beam, limits.shown),
                "unknown": "forbid" if question.unknown == "forbid" else "allow",
                "retry_beam": None if search.retry_beam is None else min(search.retry_beam, limits.beam),
            }
        )

        def work(check: Callable[[], None]) -> Translation:
            line = question.text.replace("\r", " ").replace("\n", " ")
            replace: dict[str, str] | None = {} if question.unknown == "copy" else None
            return next(
                translator.translate(
                    [line], config, replace=replace, max_words=limits.words, before_step=check
                )
            )

        try:
            translation = await queue.run(work, request.is_disconnected)
        except TranslateError as error:
            raise _RequestError(400, str(error)) from error
        except _LeftError:
            return Response(status_code=499)
        return JSONResponse(_shown(translation))

    return app


def listening(port: int) -> socket.socket:
    """A socket bound to a port of loopback, 0 for any. Raises TranslateError where the port is taken."""
    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((LOOPBACK, port))
    except OSError as error:
        listener.close()
        raise TranslateError(f"port {port} cannot be used: {error.strerror}; give another one") from error
    return listener


def serve(
    translator: Translator,
    search: SearchConfig,
    listener: socket.socket,
    limits: Limits = Limits(),
) -> None:
    """Serve the page on `listener`, from `listening`, until interrupted."""
    config = uvicorn.Config(
        create_app(translator, search, limits),
        log_level="warning",
        limit_concurrency=32,
        timeout_keep_alive=5,
        server_header=False,
    )
    sys.stderr.write(f"the page is at http://{LOOPBACK}:{listener.getsockname()[1]} until you press Ctrl-C\n")
    uvicorn.Server(config).run(sockets=[listener])


def check_host(request: Request) -> None:
    """Refuse names other than this machine's (DNS rebinding), and posts from other sites."""
    host = request.headers.get("host", "")
    if urlsplit(f"//{host}").hostname not in (LOOPBACK, "localhost", "::1"):
        raise _RequestError(421, "This page answers on this machine only.")
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != host:
        raise _RequestError(403, "Another site's page may not ask.")


async def _question(request: Request, limits: Limits) -> Question:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise _RequestError(415, "The question must be JSON.")
    body = b""
    async for part in request.stream():
        body += part
        if (
            len(body) > 12 * limits.characters + 200
        ):  # a character is at most 12 bytes of JSON: a surrogate pair
            raise _RequestError(413, f"The text may have {limits.characters} characters at most.")
    try:
        question = Question.model_validate_json(body)
    except ValidationError as error:
        raise _RequestError(400, f"The question is not understood: {error.errors()[0]['msg']}.") from error
    if len(question.text) > limits.characters:
        raise _RequestError(413, f"The text may have {limits.characters} characters at most.")
    return question


def _shown(translation: Translation) -> dict[str, Any]:
    return {
        "source": translation.source,
        "cut": translation.cut,
        "candidates": [_candidate(one) for one in translation.candidates],
    }


def _candidate(one: Candidate) -> dict[str, Any]:
    """A candidate for the page; JSON has no infinity, which is the cost of one that never ended."""
    return {
        "text": one.text,
        "tokens": one.tokens,
        "unknown": one.unknown,
        "cost": one.cost if math.isfinite(one.cost) else None,
        "key": one.key if math.isfinite(one.key) else None,
        "finished": one.finished,
        "fallback": one.fallback,
        "alignment": None
        if one.alignment is None
        else [[round(weight, 4) for weight in row] for row in one.alignment],
    }


def _file(path: Path) -> Callable[[], Awaitable[FileResponse]]:
    async def send() -> FileResponse:
        return FileResponse(path)

    return send
