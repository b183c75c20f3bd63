import asyncio
import json
import math
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
import torch
import uvicorn
from playwright.sync_api import Error, Page, sync_playwright

from rnnsearch.flows.command_serve import serve_page
from rnnsearch.flows.command_translate import Wish
from rnnsearch.flows.serve import Limits, Queue, _LeftError, create_app
from rnnsearch.flows.translate import TranslateError
from rnnsearch.flows.translator import Candidate, TextConfig, Translation, Translator
from rnnsearch.model.checkpoint import write_model
from rnnsearch.model.config import NetworkConfig, SearchConfig
from rnnsearch.model.network import Network
from rnnsearch.model.search import EOS
from rnnsearch.pipeline.schemas import SHORTLIST

SOURCE = ["the", "a", "cat", "sees", "dog", "."]
TARGET = ["le", "un", "chat", "voit", "chien", ".", "l'", "<b>gras</b>"]
SEARCH = SearchConfig(beam=4)
HERE = "http://127.0.0.1"
LIMITS = Limits()
CHROMIUM = Path("/usr/bin/chromium")
HOSTILE = '<img src=x onerror="window.pwned=1"> <script>window.pwned=2</script> \u202e\'"><b>cat & {{7*7}}'


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    config = NetworkConfig(units=7, embedding=5, alignment_units=6, maxout_units=4)
    network = Network(config, len(SOURCE) + 2, len(TARGET) + 2)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(
                torch.randn(parameter.shape, generator=generator) * 1.5 / parameter.shape[-1] ** 0.5
            )
        network.readout.b_out[EOS] -= 6.0
    folder = tmp_path_factory.mktemp("trained") / "model"
    write_model(folder, config, (len(SOURCE) + 2, len(TARGET) + 2), dict(network.state_dict()), None)
    shortlists = [pa.table({"word": words}, schema=SHORTLIST) for words in (SOURCE, TARGET)]
    return Translator(folder, *shortlists, TextConfig(), "a <small> model")


class Fake:
    """A translator that works for as long as it is told."""

    name, text, attends = "fake", TextConfig(), True

    def __init__(self, until: Callable[[], bool]) -> None:
        self.until, self.began = until, 0

    def translate(self, lines: Iterable[str], search: SearchConfig, **options: Any) -> Iterator[Translation]:
        self.began += 1
        while not self.until():
            options["before_step"]()
            time.sleep(0.005)
        for line in lines:
            best = Candidate(
                line, (line,), (), math.inf, math.inf, finished=False, fallback=False, alignment=None
            )
            yield Translation(line, (line,), 0, (best,))


def ask(translator: Any, *questions: Any, limits: Limits = LIMITS, **options: Any) -> list[httpx.Response]:
    """Post questions to the application at the same time."""

    async def run() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app=create_app(translator, SEARCH, limits))
        async with httpx.AsyncClient(transport=transport, base_url=HERE) as client:
            posts = (client.post("/translate", **({"json": question} | options)) for question in questions)
            return await asyncio.gather(*posts)

    return asyncio.run(run())


def get(translator: Any, path: str, **headers: str) -> httpx.Response:
    async def run() -> httpx.Response:
        transport = httpx.ASGITransport(app=create_app(translator, SEARCH))
        async with httpx.AsyncClient(transport=transport, base_url=HERE) as client:
            return await client.get(path, headers=headers)

    return asyncio.run(run())


def test_a_question_gets_the_translators_answer(translator: Translator) -> None:
    (answer,) = ask(translator, {"text": "the cat sees\na dog .", "beam": 3})
    config = SEARCH.model_copy(update={"beam": 3, "n_best": 3})
    (expected,) = translator.translate(["the cat sees a dog ."], config)
    content = answer.json()
    assert answer.status_code == 200
    assert content["source"] == list(expected.source)
    assert [one["text"] for one in content["candidates"]] == [one.text for one in expected.candidates]
    best = expected.candidates[0]
    assert best.alignment is not None
    assert content["candidates"][0]["alignment"] == [pytest.approx(row, abs=1e-4) for row in best.alignment]


def test_an_infinite_cost_is_still_json() -> None:
    (answer,) = ask(Fake(lambda: True), {"text": "a"})
    assert answer.json()["candidates"][0]["cost"] is None


def test_the_work_of_a_request_is_bounded(translator: Translator) -> None:
    limits = Limits(characters=200, words=5, beam=3, shown=2)
    (answer,) = ask(translator, {"text": "a " * 80, "beam": 1_000}, limits=limits)
    assert answer.json()["cut"] == 75
    assert len(answer.json()["candidates"]) == 2
    (long,) = ask(translator, {"text": "a" * 201}, limits=limits)
    assert (long.status_code, "200 characters" in long.json()["error"]) == (413, True)
    (huge,) = ask(translator, {"text": "a" * 100_000}, limits=limits)
    assert huge.status_code == 413


def test_a_search_that_takes_too_long_is_ended() -> None:
    fake = Fake(lambda: False)
    began = time.monotonic()
    first, second = ask(fake, {"text": "a"}, {"text": "b"}, limits=Limits(seconds=0.2))
    assert (first.status_code, second.status_code) == (504, 504)
    assert time.monotonic() - began < 5
    assert fake.began == 2


def test_one_is_searched_a_few_wait_and_the_others_are_sent_away() -> None:
    ends = time.monotonic() + 0.5
    fake = Fake(lambda: time.monotonic() > ends)
    answers = ask(fake, *({"text": str(i)} for i in range(6)), limits=Limits(waiting=2))
    assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 503, 503, 503]
    (later,) = ask(fake, {"text": "later"})
    assert later.status_code == 200


def test_nobody_is_searched_for_who_has_left() -> None:
    async def run() -> None:
        looks = iter([False, True])

        async def left() -> bool:
            return next(looks, True)

        def work(check: Callable[[], None]) -> None:
            while True:
                check()
                time.sleep(0.005)

        queue = Queue(Limits(seconds=60))
        with pytest.raises(_LeftError):
            await queue.run(work, left)
        assert await queue.run(lambda check: 7, left) == 7

    asyncio.run(asyncio.wait_for(run(), timeout=20))


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"json": None, "content": b"{", "headers": {"content-type": "application/json"}}, 400),
        ({"json": {"text": 3}}, 400),
        ({"json": {"text": "a", "beam": 0}}, 400),
        ({"json": {"text": "a", "command": "rm"}}, 400),
        ({"json": None, "content": b'{"text": "a"}', "headers": {"content-type": "text/plain"}}, 415),
        ({"headers": {"origin": "http://evil.example"}}, 403),
        ({"headers": {"origin": "null"}}, 403),
        ({"headers": {"host": "evil.example"}}, 421),
        ({"headers": {"host": "127.0.0.1.evil.example"}}, 421),
        ({"headers": {"host": ""}}, 421),
    ],
)
def test_what_another_site_could_send_is_refused(
    translator: Translator, options: dict[str, Any], status: int
) -> None:
    (answer,) = ask(translator, {"text": "a"}, **options)
    assert answer.status_code == status
    assert answer.json()["error"]
    assert "default-src 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize("host", ["localhost:8017", "127.0.0.1:8017", "[::1]:8017", "LOCALHOST"])
def test_this_machine_may_be_named_in_any_of_its_ways(translator: Translator, host: str) -> None:
    assert get(translator, "/", host=host).status_code == 200


@pytest.mark.parametrize(
    "path", ["/", "/page.js", "/page.css", "/icon.svg", "/about", "/nothing", "/../serve.py", "/docs"]
)
def test_every_answer_says_what_a_page_may_do(translator: Translator, path: str) -> None:
    answer = get(translator, path)
    assert answer.headers["x-content-type-options"] == "nosniff"
    policy = answer.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "script-src 'self'" in policy
    assert (answer.status_code == 200) == (path not in ("/nothing", "/../serve.py", "/docs"))


def test_a_port_that_is_taken_is_told_before_a_model_is_looked_for(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(TranslateError, match=f"port {port} cannot be used: .*give another"):
            serve_page(Wish(store=str(tmp_path / "no store")), port)


# ---------------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def address(translator: Translator) -> Iterator[str]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(create_app(translator, SEARCH), log_level="critical"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            deadline = time.monotonic() + 20
            while not server.started and time.monotonic() < deadline:
                time.sleep(0.02)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if not CHROMIUM.exists():
        pytest.skip(f"needs a browser: there is no {CHROMIUM}")
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(
                executable_path=CHROMIUM,
                args=[
                    "--no-sandbox",
                    "--disable-background-networking",
                    "--disable-component-update",
                    "--no-first-run",
                ],
            )
        except Error as error:
            pytest.skip(f"needs a browser, and Chromium did not start: {error}")
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    trouble: list[str] = []
    page.on("console", lambda message: trouble.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("dialog", lambda dialog: trouble.append(dialog.message))
    page.goto(address)
    page.wait_for_selector("#model:not(:empty)")
    yield page
    assert page.evaluate("window.pwned") is None
    assert trouble == []
    context.close()


def submit(page: Page, text: str) -> None:
    page.fill("#text", text)
    page.press("#text", "Enter")
    page.wait_for_selector("#candidates button")
    page.wait_for_selector("#busy:empty", state="attached")


@pytest.mark.slow
def test_a_sentence_is_translated_and_each_word_shows_where_it_looks(
    page: Page, translator: Translator
) -> None:
    submit(page, "the cat sees a dog .")
    (expected,) = translator.translate(["the cat sees a dog ."], SEARCH.model_copy(update={"n_best": 4}))
    best = expected.candidates[0]
    assert page.text_content("#best") == best.text
    assert page.locator("#source button").all_text_contents() == [*expected.source, "</s>"]
    assert page.locator("#candidates button span").all_text_contents() == [
        one.text or "(nothing)" for one in expected.candidates
    ]
    assert best.alignment is not None
    page.hover("#target button >> nth=0")
    weights = page.locator("#source button").evaluate_all(
        "words => words.map(word => Number(word.style.getPropertyValue('--weight')))"
    )
    assert weights == pytest.approx(best.alignment[0], abs=1e-3)
    said = page.text_content("#looks") or ""
    assert said.startswith(f"{best.tokens[0]} looks at ")
    page.hover("#source button >> nth=2")
    assert (page.text_content("#looks") or "").startswith("sees is looked at by")
    colours = page.locator("#target button").evaluate_all(
        "all => all.map(one => getComputedStyle(one).backgroundColor)"
    )
    assert len(set(colours)) > 1


@pytest.mark.slow
def test_everything_can_be_done_without_a_pointer(page: Page) -> None:
    assert page.evaluate("document.activeElement.id") == "text"
    page.keyboard.type("the cat sees a dog")
    page.keyboard.press("Enter")
    page.wait_for_selector("#candidates button")
    for _ in range(4):  # beam, unknown words, button, source words
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.parentElement.id") == "source"
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.textContent") == "cat"
    assert (page.text_content("#looks") or "").startswith("cat is looked at by")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.parentElement.id") == "target"
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    other = page.evaluate("document.activeElement.firstChild.textContent")
    page.keyboard.press("Enter")
    assert page.get_attribute("#candidates li:nth-child(2) button", "aria-pressed") == "true"
    assert (page.text_content("#best") or "(nothing)") == other
    assert page.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"


@pytest.mark.slow
def test_hostile_text_stays_text(page: Page) -> None:
    page.select_option("#unknown", "copy")
    submit(page, HOSTILE)
    page.wait_for_timeout(200)
    assert page.locator("#result img, #result script, #result b").count() == 0
    assert "<script>" in "".join(page.locator("#source button").all_text_contents())


@pytest.mark.slow
def test_a_refusal_and_a_server_that_is_gone_are_told(page: Page) -> None:
    page.route("**/translate", lambda route: route.fulfill(status=200, body="not JSON"))
    page.fill("#text", "a cat")
    page.press("#text", "Enter")
    page.wait_for_selector("#problem:not([hidden])")
    assert "does not answer" in (page.text_content("#problem") or "")
    page.unroute("**/translate")
    submit(page, "a cat")
    assert page.locator("#problem").is_hidden()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1440])
def test_the_page_fits_its_window_and_can_be_read_in_the_dark(page: Page, scheme: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    submit(page, "the cat sees a dog . " * 4 + "Donaudampfschifffahrtsgesellschaft" * 3)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    ink, paper = page.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.documentElement).backgroundColor]"
    )
    assert (brightness(ink) > brightness(paper)) == (scheme == "dark")
    assert abs(brightness(ink) - brightness(paper)) > 150


def brightness(colour: str) -> float:
    return (
        sum(float(part) for part in json.loads(colour.replace("rgb", "").replace("(", "[").replace(")", "]")))
        / 3
    )
