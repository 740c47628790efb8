"""One address in front of several servers: what ``roofcast app --processes N`` runs.

A session lives in one process, whose interpreter runs one page at a time. Each server names itself in a cookie of its
pages; a browser that has none yet goes to the one with the fewest connections. Nothing but the head of a request is
read: what follows is carried as it is, websockets and uploads too. A connection ends with its answer, so that one of a
proxy, which serves several browsers in turn, is never taken for one browser.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import webbrowser
from collections.abc import Sequence
from contextlib import suppress
from socket import create_server
from threading import Thread
from typing import NoReturn

_HERE = "127.0.0.1"
_PLACE = "ROOFCAST_SERVER"
"""The variable that tells a server which of how many it is: ``1/3``."""
_NAMED = re.compile(rb"(?im)^cookie:.*\broofcast_server=(\d+)")
_OF_CONNECTION = re.compile(rb"(?im)^(?:connection|keep-alive):.*\r\n")
_HEAD_BYTES, _CHUNK_BYTES = 65_536, 262_144
_HEAD_S, _START_S, _LOOK_S = 30.0, 60.0, 0.1
"""How long a head may take to come and a server to start, and how often servers are looked at."""


def of_servers() -> int:
    """How many servers share this machine."""
    return int(os.environ.get(_PLACE, "0/1").partition("/")[2])


def own_cookie() -> tuple[tuple[bytes, bytes], ...]:
    """The header that tells a browser to stay with this server; none where there is one alone."""
    if _PLACE not in os.environ:
        return ()
    text = f"roofcast_server={os.environ[_PLACE].partition('/')[0]}; Path=/; HttpOnly; SameSite=Lax"
    return ((b"set-cookie", text.encode()),)


def end_together() -> None:
    """End this server when the front does, however that happens: its standard input ends then."""

    def wait() -> None:
        sys.stdin.buffer.read()
        os.kill(os.getpid(), signal.SIGTERM)

    if _PLACE in os.environ:
        Thread(target=wait, name="front", daemon=True).start()


class _Server:
    def __init__(self, place: int, count: int, command: Sequence[str]) -> None:
        with create_server((_HERE, 0)) as probe:
            self.port = int(probe.getsockname()[1])
        self.name = str(place).encode()
        self.open: set[object] = set()
        self.process = subprocess.Popen(
            (*command, "--server.port", str(self.port)),
            env={**os.environ, _PLACE: f"{place}/{count}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )

    async def start(self) -> None:
        """Wait until it answers."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_START_S):
                while self.process.poll() is None:
                    with suppress(OSError):
                        (await asyncio.open_connection(_HERE, self.port))[1].close()
                        return
                    await asyncio.sleep(_LOOK_S)
        raise SystemExit("roofcast: a server of the dashboard did not start")


def _alone(head: bytes) -> bytes:
    """The head of a request whose connection ends with its answer, unless it becomes a websocket."""
    if re.search(rb"(?im)^upgrade:[ \t]*websocket", head):
        return head
    return _OF_CONNECTION.sub(b"", head).removesuffix(b"\r\n").join((b"", b"Connection: close\r\n\r\n"))


async def _carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(_CHUNK_BYTES):
            sink.write(data)
            await sink.drain()
        # Who has sent all may still wait for the answer.
        sink.write_eof()


async def _between(server: _Server, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    answers, questions = await asyncio.open_connection(_HERE, server.port)
    server.open.add(questions)
    questions.write(_alone(head))
    asking = asyncio.create_task(_carry(reader, questions))
    try:
        await _carry(answers, writer)
    finally:
        server.open.discard(questions)
        asking.cancel()
        questions.close()


async def _serve(servers: list[_Server], *, host: str, port: int, open_browser: bool) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _HEAD_S)
            found = _NAMED.search(head)
            named = found[1] if found else b""
            # One that has ended refuses, and its visitors go on with another.
            for server in sorted(servers, key=lambda item: (item.name != named, len(item.open))):
                # Of two with as many, the next browser gets the other.
                servers.append(servers.pop(servers.index(server)))
                with suppress(ConnectionRefusedError):
                    await _between(server, head, reader, writer)
                    break
        writer.close()

    for server in servers:
        await server.start()
    # Not as a context, which from Python 3.12 on waits for every client to go.
    listening = await asyncio.start_server(connected, host, port, limit=_HEAD_BYTES)
    address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    print(f"roofcast: {address} ({len(servers)} processes)", file=sys.stderr, flush=True)
    if open_browser:
        webbrowser.open(address)
    while any(server.process.poll() is None for server in servers):
        await asyncio.sleep(_LOOK_S)
    listening.close()


def _stop(*_: object) -> NoReturn:
    raise SystemExit(0)


def main(host: str, port: str, open_browser: str, count: str, *command: str) -> None:
    """Serve until a signal comes; when the last server has ended, as a failure.

    command : starts a server, on whatever port
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    servers = [_Server(place, int(count), command) for place in range(int(count))]
    try:
        asyncio.run(_serve(servers, host=host, port=int(port), open_browser=open_browser == "True"))
        raise SystemExit("roofcast: every server of the dashboard has ended")
    finally:
        for server in servers:
            server.process.terminate()
        for server in servers:
            server.process.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
