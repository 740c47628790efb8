"""A link is shown with the answer that was there when it was made, and a changed one without."""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from app.hosting import page_answers
from app.hosting.page_answers import Message, PageAnswers
from tests.app.pages import headline, opened

PAGE = b"<html><head><title>Streamlit</title></head></html>"


def _served(path: str, query: str, *, accept: bytes = b"text/html") -> str:
    """What somebody who fetches an address gets."""
    sent: list[Message] = []

    async def page(scope: Message, receive: object, send: object) -> None:
        answered = [(b"content-type", b"text/html; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": answered})
        await send({"type": "http.response.body", "body": PAGE})

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"accept", accept)]
    scope = {"type": "http", "path": path, "query_string": query.encode(), "headers": headers}
    asyncio.run(PageAnswers(page)(scope, None, send))  # type: ignore[arg-type]
    return sent[-1]["body"].decode()


def test_a_shared_link_says_its_answer_and_a_changed_one_does_not() -> None:
    page = opened("what_if", {"model": "llama-3.1-8b", "batch": "40"})
    page.session_state["share"] = True
    page.run()
    address = urlsplit(next(item.value for item in page.code if "batch=40" in item.value))
    assert headline(page) in _served(address.path, address.query)
    # As chats fetch links that they show.
    assert headline(page) in _served(address.path, address.query, accept=b"*/*")
    assert "og:title" not in _served(address.path, address.query.replace("batch=40", "batch=41"))
    assert "<title>roofcast</title>" in _served("/what-if", "")


def test_a_preview_is_found_however_the_address_is_spelt_and_is_inert() -> None:
    query = urlencode({"model": "a b", "gpus": "x,y"})
    page_answers.remember(f"http://here/plan?{query}", answer='<script>"5 GPUs"', question="a & b")
    spelt = "&".join(f"{name}={quote(value)}" for name, value in reversed(parse_qsl(query)))
    found = page_answers.preview_of("/below/a/prefix/plan", spelt)
    assert found is not None
    assert b"<script>" not in found.html()
    assert b"a &amp; b" in found.html()
    assert page_answers.preview_of("/serving", query) is None


def test_what_is_no_page_is_sent_on_piece_by_piece() -> None:
    pieces = [b"</head>", b"second"]
    sent: list[Message] = []

    async def asset(scope: Message, receive: object, send: object) -> None:
        assert (b"accept-encoding", b"gzip") in scope["headers"] or "." not in scope["path"]
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        for place, piece in enumerate(pieces):
            assert len(sent) == place + 1, "held back"
            await send({"type": "http.response.body", "body": piece, "more_body": piece is not pieces[-1]})

    async def send(message: Message) -> None:
        sent.append(message)

    for path in ("/static/js/index.js", "/_stcore/health", "/readme"):
        sent.clear()
        headers = [(b"accept", b"*/*"), (b"accept-encoding", b"gzip")]
        scope = {"type": "http", "path": path, "query_string": b"", "headers": headers}
        asyncio.run(PageAnswers(asset)(scope, None, send))  # type: ignore[arg-type]
        assert b"".join(message.get("body", b"") for message in sent) == b"".join(pieces)
