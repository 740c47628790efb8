"""A link is shown with the answer that was there when it was made, and a changed one without."""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from app import previews
from app.page_answers import Message, PageAnswers
from tests.app.pages import headline, opened

PAGE = b"<html><head><title>Streamlit</title></head></html>"


def _served(path: str, query: str) -> str:
    """What somebody who fetches an address gets."""
    sent: list[Message] = []

    async def page(scope: Message, receive: object, send: object) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": PAGE})

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"accept", b"text/html")]
    scope = {"type": "http", "path": path, "query_string": query.encode(), "headers": headers}
    asyncio.run(PageAnswers(page)(scope, None, send))  # type: ignore[arg-type]
    return sent[-1]["body"].decode()


def test_a_shared_link_says_its_answer_and_a_changed_one_does_not() -> None:
    page = opened("what_if", {"model": "llama-3.1-8b", "batch": "40"})
    page.session_state["share"] = True
    page.run()
    address = urlsplit(next(item.value for item in page.code if "batch=40" in item.value))
    assert headline(page) in _served(address.path, address.query)
    assert "og:title" not in _served(address.path, address.query.replace("batch=40", "batch=41"))
    assert "<title>roofcast</title>" in _served("/what-if", "")


def test_a_preview_is_found_however_the_address_is_spelt_and_is_inert() -> None:
    query = urlencode({"model": "a b", "gpus": "x,y"})
    previews.remember(f"http://here/plan?{query}", answer='<script>"5 GPUs"', question="a & b")
    spelt = "&".join(f"{name}={quote(value)}" for name, value in reversed(parse_qsl(query)))
    found = previews.preview_of("/below/a/prefix/plan", spelt)
    assert found is not None
    assert b"<script>" not in found.html()
    assert b"a &amp; b" in found.html()
    assert previews.preview_of("/serving", query) is None
