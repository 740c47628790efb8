"""What a chat shows of a link before anybody opens it: the answer that this server gave when the link was made.

A title in the link itself could say anything. Here it is looked up by the whole address, so that a link that was
changed afterwards, or that another server made, is shown without an answer.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from hashlib import blake2b
from html import escape
from urllib.parse import parse_qsl, urlsplit

_MOST_KEPT = 5000
_kept: OrderedDict[bytes, Preview] = OrderedDict()
_kept_lock = threading.Lock()


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


def _digest(path: str, query: str) -> bytes:
    """The same for every spelling of an address: chats write spaces and commas as they like."""
    page = path.rstrip("/").rpartition("/")[2]
    asked = sorted(parse_qsl(query, keep_blank_values=True))
    return blake2b(repr((page, asked)).encode("utf-8", "backslashreplace"), digest_size=16).digest()


def remember(url: str, *, answer: str, question: str) -> None:
    """A link was made whose page says ``answer``."""
    parts, preview = urlsplit(url), Preview(title=answer, description=question)
    key = _digest(parts.path, parts.query)
    with _kept_lock:
        _kept[key] = preview
        _kept.move_to_end(key)
        while len(_kept) > _MOST_KEPT:
            _kept.popitem(last=False)


def preview_of(path: str, query: str) -> Preview | None:
    """What was said where this very link was made; None for any other address."""
    with _kept_lock:
        return _kept.get(_digest(path, query))
