"""What a chat shows of a link before anybody opens it: the answer that this server gave when the link was made.

A title in the link itself could say anything. Here it is looked up by the whole address, so that a link that was
changed afterwards, or that another server made, is shown without an answer.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from hashlib import blake2b
from html import escape
from urllib.parse import parse_qsl, urlsplit

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
