"""Small additions to every HTML answer of the server.

The front end is told where its server is, so that it does not probe for one below each page's address; it gets the
style sheet before anything is drawn, and a script each for refused numbers and the browser's history; and the browser
is told to keep the dashboard out of foreign frames and to guess no content types.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import asdict, dataclass
from hashlib import blake2b
from html import escape
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from app.hosting.front import own_cookie
from app.hosting.kept import Kept

_kept = Kept("previews", most=5000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """title : the answer; description : the question in words"""

    title: str
    description: str

    def html(self) -> bytes:
        """As elements of a page's head, inert whatever the texts hold."""
        title, description = escape(f"{self.title} · roofcast"), escape(self.description)
        return (
            f'<title>{title}</title><meta name="description" content="{description}">'
            f'<meta property="og:type" content="website"><meta property="og:site_name" content="roofcast">'
            f'<meta property="og:title" content="{title}"><meta property="og:description" content="{description}">'
        ).encode()


def _digest(path: str, query: str) -> str:
    """The same for every spelling of an address: chats write spaces and commas as they like."""
    page = path.rstrip("/").rpartition("/")[2]
    asked = sorted(parse_qsl(query, keep_blank_values=True))
    return blake2b(repr((page, asked)).encode("utf-8", "backslashreplace"), digest_size=16).hexdigest()


def remember(url: str, *, answer: str, question: str) -> None:
    """A link was made whose page says ``answer``."""
    parts, preview = urlsplit(url), Preview(title=answer, description=question)
    _kept.write(_digest(parts.path, parts.query), json.dumps(asdict(preview)))


def preview_of(path: str, query: str) -> Preview | None:
    """What was said where this very link was made; None for any other address."""
    found = _kept.read(_digest(path, query))
    return None if found is None else Preview(**json.loads(found))


Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[Message, Receive, Send], Awaitable[None]]

_SCRIPT = b'<script>window.__streamlit={BACKEND_BASE_URL:window.location.origin+"/"}</script>'
_STYLE, _REFUSED, _HISTORY = (
    Path(__file__).parents[1].joinpath(name).read_bytes() for name in ("style.css", "refused.js", "history.js")
)
_SCRIPTS = b"</script><script>".join((_REFUSED, _HISTORY))
_HEAD = b"".join((_SCRIPT, b"<style>", _STYLE, b"</style><script>", _SCRIPTS, b"</script></head>"))
_TITLE = b"<title>roofcast</title>"
_FIRST_PAGE = b"plan"
"""Relative, so that it holds below any prefix of a proxy."""
_OTHERS = ("_stcore", "static", "media", "component")
"""Where the server keeps what is no page."""
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"x-frame-options", b"SAMEORIGIN"),
    *own_cookie(),
)


class PageAnswers:
    """ASGI middleware: completes HTML pages, passes everything else on as it is."""

    def __init__(self, app: Asgi) -> None:
        self.app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http" or not _is_page(scope["path"]):
            await self.app(scope, receive, send)
            return
        if scope["path"] == "/":
            await _to_first_page(scope, send)
            return
        # A page is small: it may come uncompressed, so that it can be completed.
        plain = [(name, value) for name, value in scope["headers"] if name != b"accept-encoding"]
        held: list[Message] = []

        async def collect(message: Message) -> None:
            if not held and not _is_html(message):
                await send(message)
                return
            held.append(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                found = preview_of(scope["path"], scope.get("query_string", b"").decode("latin-1"))
                for item in _completed(held, _TITLE if found is None else found.html()):
                    await send(item)

        await self.app({**scope, "headers": plain}, receive, collect)


def _is_page(path: str) -> bool:
    """Whether people or programs that show links may be sent HTML for it. What they say that they accept tells
    nothing: most of the latter take anything.
    """
    name = path.rpartition("/")[2]
    return "." not in name and not any(f"/{part}/" in path for part in _OTHERS)


def _is_html(message: Message) -> bool:
    kind = next((value for name, value in message.get("headers", ()) if name.lower() == b"content-type"), b"")
    return bytes(kind).startswith(b"text/html")


async def _to_first_page(scope: Message, send: Send) -> None:
    """From the bare address to the first page's own, with its parameters: the menu then shows where one is."""
    query = scope.get("query_string", b"")
    target = b"?".join(part for part in (_FIRST_PAGE, query) if part)
    headers = [(b"location", target), (b"content-length", b"0"), *_HEADERS]
    await send({"type": "http.response.start", "status": HTTPStatus.TEMPORARY_REDIRECT, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def _completed(messages: list[Message], title: bytes) -> list[Message]:
    start = messages[0]
    body = b"".join(message.get("body", b"") for message in messages[1:])
    body = body.replace(b"<title>Streamlit</title>", title, 1).replace(b"</head>", _HEAD, 1)
    kept = [(name, value) for name, value in start["headers"] if name.lower() != b"content-length"]
    length = (b"content-length", str(len(body)).encode())
    return [
        {**start, "headers": [*kept, *_HEADERS, length]},
        {"type": "http.response.body", "body": body, "more_body": False},
    ]
