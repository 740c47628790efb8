"""Users of the dashboard without browsers: clients that speak the protocol of its pages, for the server's share alone.

Where users have machines of their own, their browsers take nothing from the server. Streamlit's front end and its
server exchange protobuf messages of its package over a websocket: a client opens a page, changes one input and waits
for another headline, as a browser does, and draws nothing. One thing it does otherwise: a browser tells all its widgets
at every change, a client the one that changed.
"""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Barrier
from typing import Any, Self
from urllib.parse import urlencode

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import connect

_STREAM = "/_stcore/stream"
_PATIENCE_S = 120.0


class Client:
    """A visitor of one page.

    headline : the last one that came; inputs : each widget's message by its label
    """

    def __init__(self, address: str, path: str, query: dict[str, str]) -> None:
        self.headline = ""
        self.inputs: dict[str, Any] = {}
        self._query, self._page = dict(query), path
        self._hash = ""
        self._known: dict[str, ForwardMsg] = {}
        url = f"{address.replace('http', 'ws', 1)}{_STREAM}"
        self._connection: Any = connect(url, subprotocols=["streamlit"], max_size=None)  # type: ignore[list-item]

    def __enter__(self) -> Self:
        self._socket = self._connection.__enter__()
        self._ask(BackMsg())
        self._read_all()
        return self

    def __exit__(self, *raised: object) -> None:
        self._connection.__exit__(*raised)

    def change_s(self, label: str, value: float) -> float:
        """From the change of an input to another headline [s]; the rest of the page is read after it."""
        widget, asked = self.inputs[label], BackMsg()
        state = asked.rerun_script.widget_states.widgets.add(id=widget.id)
        if widget.DESCRIPTOR.name == "Slider":
            state.double_array_value.data.append(value)
        else:
            state.double_value = value
        self._query[widget.query_param_key] = f"{value:g}"
        before, started = self.headline, time.perf_counter()
        self._ask(asked)
        while self.headline == before:
            self._read()
        took = time.perf_counter() - started
        self._read_all()
        return took

    def number(self, label: str) -> float:
        """What an input says."""
        widget = self.inputs[label]
        if widget.DESCRIPTOR.name == "Slider":
            return float((widget.value if widget.set_value else widget.default)[0])
        return float(widget.value if widget.set_value else widget.default)

    def _ask(self, asked: BackMsg) -> None:
        rerun = asked.rerun_script
        rerun.query_string = urlencode(self._query)
        rerun.page_script_hash = self._hash
        rerun.page_name = "" if self._hash else self._page
        rerun.cached_message_hashes.extend(self._known)
        self._socket.send(asked.SerializeToString())

    def _read(self) -> ForwardMsg:
        """The next message; one that the server knows to be here already comes as its hash."""
        found = ForwardMsg.FromString(self._socket.recv(timeout=_PATIENCE_S))
        if found.WhichOneof("type") == "ref_hash":
            found = self._known[found.ref_hash]
        elif found.metadata.cacheable and found.hash:
            self._known[found.hash] = found
        if found.WhichOneof("type") == "navigation":
            self._hash = found.navigation.page_script_hash
        if found.WhichOneof("type") == "delta":
            element = found.delta.new_element
            kind = element.WhichOneof("type")
            if kind in ("slider", "number_input"):
                widget = getattr(element, kind)
                self.inputs[widget.label] = widget
            elif kind == "markdown" and element.markdown.body.startswith("## "):
                self.headline = element.markdown.body
        return found

    def _read_all(self) -> None:
        """Until the page has run to its end."""
        while True:
            found = self._read()
            ended = found.WhichOneof("type") == "script_finished"
            if ended and found.script_finished == ForwardMsg.FINISHED_SUCCESSFULLY:
                return


def changes_s(address: str, path: str, query: dict[str, str], label: str, *, users: int, moves: int) -> float:
    """The median wait of so many users who change an input together, again and again [s]; the first change warms up."""
    start = Barrier(users)

    def use(client: Client, place: int) -> list[float]:
        first, found = client.number(label), []
        whole = client.inputs[label].DESCRIPTOR.name == "Slider"
        for move in range(1, moves + 2):
            # Nobody asks what another one has asked, and no two of his numbers are the same in three digits.
            value = first + place * (moves + 1) + move if whole else first * 1.1**move * (1 + place / 50)
            start.wait()
            found.append(client.change_s(label, value))
        return found[1:]

    with ExitStack() as stack, ThreadPoolExecutor(max_workers=users) as pool:
        clients = [stack.enter_context(Client(address, path, query)) for _ in range(users)]
        waits = pool.map(use, clients, range(users))
        return statistics.median(wait for found in waits for wait in found)
