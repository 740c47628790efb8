"""Several servers behind one address: a browser stays with one, others are spread, and all end together."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.hosting import front
from simulator.cli.app import LOCAL_HOST, run_app
from simulator.errors import RoofcastError
from tests.app.clients import Client
from tests.app.served import free_port, serving

PATIENCE_S = 30.0


def _until(held: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not held():
        assert time.monotonic() < until
        time.sleep(0.02)


def _backend(name: str) -> ThreadingHTTPServer:
    """A server that answers its name and what it was sent."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found = f"{name} {len(body)} {self.headers['Connection']}".encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(found)))
            self.end_headers()
            self.wfile.write(found)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer((LOCAL_HOST, 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


@pytest.fixture
def behind() -> Iterator[tuple[str, list[Any]]]:
    """The address of a front, and the two servers behind it."""
    backends, ended, port = [_backend(name) for name in "ab"], threading.Event(), free_port()

    async def start() -> bool:
        return True

    async def keep(*, after_s: float) -> None:
        while not ended.is_set():
            await asyncio.sleep(0.02)

    async def end() -> None:
        return None

    servers: list[Any] = [
        SimpleNamespace(
            name=str(place).encode(),
            port=backend.server_port,
            open=set(),
            start=start,
            keep=keep,
            end=end,
            backend=backend,
        )
        for place, backend in enumerate(backends)
    ]
    running = threading.Thread(
        target=lambda: asyncio.run(front._serve(servers, host=LOCAL_HOST, port=port, open_browser=False))
    )
    running.start()
    _until(lambda: _listens(port))
    yield f"http://{LOCAL_HOST}:{port}", servers
    ended.set()
    running.join()
    for backend in backends:
        backend.shutdown()
        backend.server_close()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((LOCAL_HOST, port)) == 0


def _cookie(address: str) -> str:
    """What the dashboard at an address calls its cookie: one host may have several dashboards."""
    return f"roofcast_server_{address.rpartition(':')[2]}"


def _asked(address: str, *, cookie: str = "", size: int = 3) -> str:
    request = urllib.request.Request(f"{address}/x", data=bytes(size), headers={"Cookie": cookie} if cookie else {})
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return str(answer.read().decode())


def test_a_browser_stays_with_its_server_whatever_it_sends(behind: tuple[str, list[Any]]) -> None:
    address, _ = behind
    for place, name in enumerate("abab"):
        cookie = f"other=1; {_cookie(address)}={place % 2}; more=2; {_cookie('http://x:1')}={(place + 1) % 2}"
        assert _asked(address, cookie=cookie, size=3_000_000) == f"{name} 3000000 close"


def test_a_browser_without_a_server_goes_where_fewest_are(behind: tuple[str, list[Any]]) -> None:
    address, servers = behind
    servers = list(servers)
    servers[0].open.add("somebody")
    for cookie in ("", f"{_cookie(address)}=7", f"{_cookie(address)}=", "roofcast_server_1=0"):
        assert _asked(address, cookie=cookie).startswith("b")
        _until(lambda: not servers[1].open)


def test_browsers_that_come_one_after_the_other_are_spread(behind: tuple[str, list[Any]]) -> None:
    found = {_asked(behind[0])[0] for _ in range(2)}
    assert found == {"a", "b"}


def test_visitors_of_a_server_that_has_ended_wait_for_it(behind: tuple[str, list[Any]]) -> None:
    address, servers = behind
    ended = servers[0]
    port, ended.port = ended.port, None
    back = threading.Timer(0.5, setattr, (ended, "port", port))
    back.start()
    assert _asked(address, cookie="").startswith("b")
    assert _asked(address, cookie=f"{_cookie(address)}=0").startswith("a")
    back.join()


def test_visitors_of_a_server_that_does_not_come_back_go_on_with_another(
    behind: tuple[str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, (ended, _) = behind
    monkeypatch.setattr(front, "_START_S", 0.3)
    ended.backend.shutdown()
    ended.backend.server_close()
    assert _asked(address, cookie=f"{_cookie(address)}=0").startswith("b")


def test_who_has_sent_all_is_answered(behind: tuple[str, list[Any]]) -> None:
    """Clients such as ``nc -N`` and some health checks close their half of the connection after the question."""
    with socket.create_connection((LOCAL_HOST, int(behind[0].rpartition(":")[2])), timeout=PATIENCE_S) as raw:
        raw.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
        raw.shutdown(socket.SHUT_WR)
        assert b" 3 close" in raw.makefile("rb").read()
    _until(lambda: not any(server.open for server in behind[1]))


def test_what_is_no_request_is_let_go(behind: tuple[str, list[Any]]) -> None:
    address, servers = behind
    with socket.create_connection((LOCAL_HOST, int(address.rpartition(":")[2])), timeout=PATIENCE_S) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * 200_000)
        with suppress(ConnectionError):
            assert raw.recv(1024) == b""
    assert not any(server.open for server in servers)


def test_only_another_protocol_keeps_its_connection() -> None:
    assert front._alone(b"GET / HTTP/1.1\r\nConnection: keep-alive\r\nA: b\r\n\r\n") == (
        b"GET / HTTP/1.1\r\nA: b\r\nConnection: close\r\n\r\n"
    )
    upgrade = b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    assert front._alone(upgrade) == upgrade
    # What curl --http2 asks for, and no server here takes up.
    assert b"Connection: close" in front._alone(upgrade.replace(b"websocket", b"h2c"))


def _front(script: str) -> tuple[str, ...]:
    """The command of a front of two servers that run a script, and wait for each other only a moment."""
    waits = "front._START_S, front._PAUSE_S, front._LATER_S = 2.0, 0.01, 0.01"
    quick = f"import sys, app.hosting.front as front; {waits}; front.main(*sys.argv[1:])"
    ours = (sys.executable, "-c", quick, LOCAL_HOST, str(free_port()), "False", "2")
    return (*ours, sys.executable, "-c", script)


@pytest.mark.parametrize(
    "server", ["", "import time; time.sleep(60)", "print('no port')"], ids=["ends", "never answers", "says nothing"]
)
def test_a_front_without_servers_fails_in_one_line(server: str) -> None:
    ended = subprocess.run(_front(server), capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode == 1
    assert "did not start" in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr


def test_a_server_that_ends_is_started_again(tmp_path: Path) -> None:
    lives = tmp_path / "lives"
    script = f"import os; open({str(lives)!r}, 'a').write(os.environ['ROOFCAST_SERVER'][0]); print(1, flush=True)"
    with subprocess.Popen(_front(script), stderr=subprocess.PIPE, text=True) as process:
        _until(lambda: lives.exists() and min(map(lives.read_text("utf-8").count, "01")) > 2)
        process.terminate()
        assert process.stderr is not None
        said = process.stderr.read()
    assert process.returncode == 0
    assert "a server ended (0); another one starts" in said
    assert "Traceback" not in said


def test_an_ipv6_address_is_listened_on(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    monkeypatch.setattr(os, "execve", lambda file, *_: started.append(file))
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    run_app(host="::1", port=free_port(), open_browser=False, processes=1, profiles=None)
    assert started


def test_a_port_in_use_is_one_line() -> None:
    with socket.create_server((LOCAL_HOST, 0)) as taken, pytest.raises(RoofcastError, match="cannot listen") as refusal:
        run_app(host=LOCAL_HOST, port=taken.getsockname()[1], open_browser=False, processes=2, profiles=None)
    assert refusal.value.field == "--port"


def _children(process: int) -> list[int]:
    return [int(text) for text in Path(f"/proc/{process}/task/{process}/children").read_text("utf-8").split()]


def _runs(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="looks for processes where Linux has them")
def test_users_are_spread_over_servers_that_end_with_their_front() -> None:
    with ExitStack() as stack:
        address, process = stack.enter_context(serving(processes=2))
        _until(lambda: len(_children(process)) == 2)
        stack.enter_context(Client(address, "what-if", {}))
        with urllib.request.urlopen(f"{address}/plan", timeout=PATIENCE_S) as page:
            kept = page.headers["Set-Cookie"].partition(";")[0]
        stack.enter_context(Client(address, "what-if", {}))
        request = urllib.request.Request(f"{address}/roofline", headers={"Cookie": kept})
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as page:
            assert page.headers["Set-Cookie"].startswith(kept)
        killed = _children(process)[int(kept.rpartition("=")[2])]
        os.kill(killed, signal.SIGKILL)
        _until(lambda: killed not in _children(process))
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as page:
            assert page.headers["Set-Cookie"].startswith(kept)
        children = _children(process)
        assert len(children) == 2
        os.kill(process, signal.SIGKILL)
        _until(lambda: not any(map(_runs, children)))
