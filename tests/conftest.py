"""Shared settings of the tests."""

from __future__ import annotations

import fcntl
import gc
import os
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Answers are worked out, not looked up; in processes that tests start as well.
os.environ["ROOFCAST_CACHE"] = "off"
# Where modules are compiled for one process alone, those that tests start would each compile the library again, and the
# next run of the tests all of them. A folder of their own would not do: into it all of pip's would be compiled anew.
if sys.dont_write_bytecode:
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # absent where it was said with -B
# Random search belongs on a developer's machine; a build must give the same verdict twice. Neither judges by time.
settings.register_profile("machine", deadline=None)
settings.register_profile("build", derandomize=True, deadline=None)
settings.load_profile("build" if os.environ.get("CI") else "machine")


_ORACLES = "tests/oracles/"
"""torch and transformers take as long to load as most folders to run."""
_TORCH = (
    *("tests/validation/test_measure.py", "tests/validation/test_measure_engines.py"),
    *("tests/validation/test_measure_restarts.py", "tests/validation/test_measure_whole.py"),
    "tests/validation/test_vllm_loops.py",
)
"""Files that load torch as well: what measures kernels on a device."""
_TOGETHER = (_ORACLES, "tests/structure/")
"""Folders whose files one process runs: they share what is loaded, or the trees of all sources."""
_SIMULATING = (
    *("tests/planner/", "tests/app/", "tests/cli/test_encoders.py", "tests/cli/test_serve.py"),
    *("tests/fitting/", "tests/fuzz/", "tests/engine/"),
)
"""Where thousands of requests are simulated, by machine code; the longest files first."""
_COMPILING = pytest.StashKey["subprocess.Popen[bytes]"]()
_HELD = "ROOFCAST_TESTS_COMPILING"
"""Names a file that is locked as long as machine code is made."""


def pytest_sessionstart(session: pytest.Session) -> None:
    """Processes that test everything would each compile the event simulation, for a minute: one does for all."""
    config = session.config
    everything = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.collectonly
    if everything and config.getoption("tx", None):
        descriptor, os.environ[_HELD] = tempfile.mkstemp(prefix="roofcast-compiling-")
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # The child keeps it until it ends, however it ends.
        words = (sys.executable, "-c", "from simulator.engine.events.warm_up import warm_up; warm_up()")
        said = subprocess.DEVNULL
        config.stash[_COMPILING] = subprocess.Popen(
            words, cwd=Path(__file__).parents[1], stdout=said, stderr=said, pass_fds=(descriptor,)
        )
        os.close(descriptor)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Nothing runs on when the tests have ended."""
    if _COMPILING in session.config.stash:
        session.config.stash[_COMPILING].wait()
        Path(os.environ.pop(_HELD)).unlink()


@lru_cache(maxsize=1)
def _wait_for_machine_code() -> None:
    if _HELD in os.environ:
        with open(os.environ[_HELD]) as held:
            fcntl.flock(held, fcntl.LOCK_SH)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Who simulates thousands of requests waits for machine code rather than make its own."""
    if item.nodeid.startswith(_SIMULATING):
        _wait_for_machine_code()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Processes that run no oracles need not load torch and transformers."""
    needs = collection_path.match("tests/oracles") or any(map(collection_path.match, _TORCH))
    return True if needs and "not oracle" in config.option.markexpr else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest comes first, a browser's files before all, and last what waits for machine code."""

    def turn(item: pytest.Item) -> int:
        if item.get_closest_marker("browser"):
            return -2
        simulating = [item.nodeid.startswith(start) for start in _SIMULATING]
        return 1 + simulating.index(True) if any(simulating) else -item.nodeid.startswith(_ORACLES)

    items.sort(key=turn)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The tests of a file share what it sets up, those of some folders too: one process runs them."""
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((folder for folder in _TOGETHER if nodeid.startswith(folder)), super()._split_scope(nodeid))

    config.option.loadscopereorder = False
    return ByFile(config, log)


def pytest_collection_finish() -> None:
    """What is imported by now stays until the end: collecting garbage need not look through it again and again."""
    gc.collect()
    gc.freeze()


FEW_ACCELERATORS = ("a100-sxm-80gb", "b200-sxm", "h100-sxm-80gb", "l4", "mi300x")


@pytest.fixture
def few_accelerators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches over all accelerators know five: what they say of each other is tested, not how many there are."""
    monkeypatch.setattr("simulator.planner.search.candidates.list_offered_hardware", lambda **_: FEW_ACCELERATORS)
