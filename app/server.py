"""What ``roofcast app`` runs: the pages, the answers around them, and the workers that work answers out."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Thread

import streamlit as st
from starlette.middleware import Middleware

_HOME = str(Path(__file__).resolve().parents[1])
if _HOME not in sys.path:
    sys.path.insert(0, _HOME)

# Imported before anybody visits: the pages bring pandas and plotly with them.
from app import shell  # noqa: E402, F401 - found through the line above
from app.hosting import front, turns, work, workers  # noqa: E402
from app.hosting.page_answers import PageAnswers  # noqa: E402
from simulator.engine.events.warm_up import is_warm  # noqa: E402
from simulator.errors import RoofcastError  # noqa: E402


def _warm_up() -> None:
    """Read the calibrations of the first page, and see to machine code, before the first visitor waits for either."""
    with suppress(RoofcastError):
        work.warm_up()
    workers.keep_what_is_read()
    if front.is_first() and not is_warm():
        # In a process of its own, which is gone after it; whoever asks meanwhile is answered by Python.
        subprocess.run((sys.executable, "-m", "simulator.cli.roofcast", "warm-up"), cwd=_HOME, stdout=2, check=False)


workers.start()
turns.allow(workers.at_once())
Thread(target=_warm_up, name="warm-up", daemon=True).start()
app = st.App(Path(__file__).with_name("streamlit_app.py"), middleware=[Middleware(PageAnswers)])
front.join(st.get_option("server.port"))
