"""One address in front of several servers: what ``roofcast app --processes N`` runs.

A session lives in one process, whose interpreter runs one page at a time. Each server names itself in a cookie of its
pages; a browser that has none yet goes to the one with the fewest connections. Nothing but the head of a request is
read: what follows is carried as it is, websockets and uploads too. A connection ends with its answer, so that one of a
proxy, which serves several browsers in turn, is never taken for one browser. A server that ends is started again, and
its visitors wait for it: their sessions begin anew there, with what their pages ask. What links name is in a folder
that all of them read (``app.hosting.kept``).
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import tempfile
import webbrowser
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from threading import Thread
from typing import NoReturn

from app.hosting.kept import FOLDER

_HERE = "127.0.0.1"
_PLACE = "ROOFCAST_SERVER"
"""The variable that tells a server which of how many it is, and their address's port: ``1/3/8501``."""
_COOKIE = "roofcast_server_{port}"
"""A host's cookies are those of all its ports."""
_OF_CONNECTION = re.compile(rb"(?im)^(?:connection|keep-alive):.*\r\n")
_HEAD_BYTES, _CHUNK_BYTES = 65_536, 262_144
_HEAD_S, _START_S, _LOOK_S = 30.0, 60.0, 0.1
"""How long a head may take to come and a server to start, and how often those who wait for one look."""
_PAUSE_S, _LONGEST_PAUSE_S, _LATER_S = 1.0, 60.0, 5.0
"""Before a server that has ended is started again, doubled where it ends again and again; and before the second one is
started, so that the first visitor's first page has the machine for itself.
"""


def _place() -> list[str]:
    return os.environ.get(_PLACE, "0/1/").split("/")


def of_servers() -> int:
    """How many servers share this machine."""
    return int(_place()[1])


def is_first() -> bool:
    """Whether this server does what one does for all."""
    return _place()[0] == "0"


def own_cookie() -> tuple[tuple[bytes, bytes], ...]:
    """The header that tells a browser to stay with this server; none where there is one alone."""
    place, _, port = _place()
    if not port:
        return ()
    text = f"{_COOKIE.format(port=port)}={place}; Path=/; HttpOnly; SameSite=Lax"
    return ((b"set-cookie", text.encode()),)


def join(port: int) -> None:
    """Tell the front at which ``port`` this server listens, and end when the front does, however that happens: its
    standard input ends then.
    """

    def wait() -> None:
        sys.stdin.buffer.read()
        os.kill(os.getpid(), signal.SIGTERM)

    if _PLACE in os.environ:
        print(port, flush=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads on
        Thread(target=wait, name="front", daemon=True).start()


class _Server:
    """One of the servers. port : where it listens, on a free port that it takes itself; None while it does not"""

    def __init__(self, place: int, command: Sequence[str], environment: dict[str, str]) -> None:
        self.name = str(place).encode()
        self.port: int | None = None
        self.open: set[object] = set()
        self._process: Process | None = None
        self._command, self._environment = (*command, "--server.port", "0"), environment

    async def start(self) -> bool:
        """Whether it has started, and said where it listens."""
        with suppress(OSError):
            async with asyncio.timeout(_START_S):
                self._process = await asyncio.create_subprocess_exec(
                    *self._command, env=self._environment, stdin=PIPE, stdout=PIPE
                )
                assert self._process.stdout is not None
                while line := await self._process.stdout.readline():
                    if line.strip().isdigit():
                        self.port = int(line)
                        return True
        return False

    async def keep(self, *, after_s: float) -> None:
        """Let it run from then on: start it where it does not, and again whenever it ends."""
        clock, pause_s = asyncio.get_running_loop().time, _PAUSE_S
        await asyncio.sleep(after_s)
        while True:
            since = clock()
            if self.port is not None or await self.start():
                await self._ended()
            code, self.port = await self.end(), None
            pause_s = _PAUSE_S if clock() - since > _LONGEST_PAUSE_S else min(2 * pause_s, _LONGEST_PAUSE_S)
            print(f"roofcast: a server ended ({code}); another one starts", file=sys.stderr, flush=True)
            await asyncio.sleep(pause_s)

    async def end(self) -> int | None:
        """Ask it to end where it runs, and wait until it has; what it ended with."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.terminate()
        return await self._ended()

    async def _ended(self) -> int | None:
        return None if self._process is None else await self._process.wait()


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


async def _reached(servers: list[_Server], named: bytes) -> tuple[_Server, asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the server of that name, once it runs; to the one with the fewest where that is nobody's, or
    where it does not come back.
    """
    own = [server for server in servers if server.name == named]
    for candidates in filter(None, (own, servers)):
        with suppress(TimeoutError):
            async with asyncio.timeout(_START_S):
                while True:
                    for server in sorted(candidates, key=lambda item: len(item.open)):
                        if server.port is not None:
                            with suppress(ConnectionRefusedError):
                                return server, *await asyncio.open_connection(_HERE, server.port)
                    await asyncio.sleep(_LOOK_S)
    raise TimeoutError


async def _between(
    servers: list[_Server], named: bytes, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    server, answers, questions = await _reached(servers, named)
    # Of two with as many, the next browser gets the other.
    servers.append(servers.pop(servers.index(server)))
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
    """Listen, as soon as the first server has started, until this is cancelled."""
    cookie = re.compile(rb"(?im)^cookie:.*\b" + _COOKIE.format(port=port).encode() + rb"=(\d+)")

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _HEAD_S)
            found = cookie.search(head)
            await _between(servers, found[1] if found else b"", head, reader, writer)
        writer.close()

    try:
        if not await servers[0].start():
            raise SystemExit("roofcast: a server of the dashboard did not start")
        # Not as a context, which from Python 3.12 on waits for every client to go.
        listening = await asyncio.start_server(connected, host, port, limit=_HEAD_BYTES)
        address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        print(f"roofcast: {address} ({len(servers)} processes)", file=sys.stderr, flush=True)
        if open_browser:
            webbrowser.open(address)
        try:
            await asyncio.gather(*(server.keep(after_s=_LATER_S * (place > 0)) for place, server in enumerate(servers)))
        finally:
            listening.close()
    finally:
        await asyncio.gather(*(server.end() for server in servers))


def _stop(*_: object) -> NoReturn:
    raise SystemExit(0)


def main(host: str, port: str, open_browser: str, count: str, *command: str) -> None:
    """Serve until a signal comes.

    command : starts a server, on whatever port
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    with tempfile.TemporaryDirectory(prefix="roofcast-app-") as folder:
        shared = {**os.environ, FOLDER: folder}
        servers = [
            _Server(place, command, {**shared, _PLACE: f"{place}/{count}/{port}"}) for place in range(int(count))
        ]
        asyncio.run(_serve(servers, host=host, port=int(port), open_browser=open_browser == "True"))


if __name__ == "__main__":
    main(*sys.argv[1:])
