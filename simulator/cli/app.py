"""``roofcast app``: start the dashboard on this machine, and nowhere else unless asked."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from socket import AF_INET, AF_INET6, create_server
from typing import Annotated

import typer

from simulator.cli.shared import Profiles
from simulator.errors import FileError, MissingPackageError, RoofcastError
from simulator.specs.profiles import PROFILES_VARIABLE
from simulator.units import MEGA

LOCAL_HOST = "127.0.0.1"
DEFAULT_PORT = 8501
_LARGEST_PORT, _MOST_PROCESSES, _USUAL_PROCESSES = 65_535, 64, 2
_NEEDED = ("streamlit", "plotly", "pandas")


def app_entry() -> Path:
    """The dashboard's script: packed into the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for root in (package / "_data", package.parent):
        entry = root / "app" / "server.py"
        if entry.is_file():
            return entry
    raise FileError(f"the dashboard is missing next to {package}", hint="reinstall roofcast")


def app_command(*, host: str, port: int, open_browser: bool, processes: int = 1) -> tuple[str, ...]:
    """The command that serves the dashboard: bound to ``host``, without telemetry, uploads of bounded size.

    processes : several serve behind one address (``app.hosting.front``), each started by this command for one

    Raises RoofcastError: the extra ``app`` is not installed, or the port is none.
    """
    from simulator.specs.uploads import LARGEST_RECORD_BYTES

    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise MissingPackageError(
            f"the dashboard needs {', '.join(missing)}", hint="install the extra: pip install '.[app]'"
        )
    if not 1 <= port <= _LARGEST_PORT:
        raise RoofcastError(f"{port} is not a port; allowed: 1 to {_LARGEST_PORT}", field="--port")
    if processes > 1:
        one = app_command(host=LOCAL_HOST, port=port, open_browser=False)
        return (sys.executable, "-m", "app.hosting.front", host, str(port), str(open_browser), str(processes), *one)
    options = {
        "server.address": host,
        "server.port": str(port),
        "server.headless": str(not open_browser).lower(),
        "server.showEmailPrompt": "false",
        "server.maxUploadSize": f"{LARGEST_RECORD_BYTES / MEGA:.0f}",
        "server.fileWatcherType": "none",
        "server.enableXsrfProtection": "true",
        "runner.postScriptGC": "false",
        "browser.gatherUsageStats": "false",
        "logger.level": "error",
        "client.showErrorDetails": "none",
        "client.showErrorLinks": "false",
    }
    flags = [word for name, value in options.items() for word in (f"--{name}", value)]
    return (sys.executable, "-m", "streamlit", "run", str(app_entry()), *flags)


def app_environment(environment: Mapping[str, str], *, profiles: str | None) -> dict[str, str]:
    """The process environment of the dashboard; ``profiles`` reaches the loaders by their variable."""
    if profiles is None:
        return dict(environment)
    if not Path(profiles).expanduser().is_dir():
        raise FileError(f"{profiles} is not a directory", field="--profiles")
    return {**environment, PROFILES_VARIABLE: str(Path(profiles).expanduser().resolve())}


def run_app(*, host: str, port: int, open_browser: bool, processes: int, profiles: str | None) -> None:
    """Become the dashboard's server: signals and exit code are its own.

    Raises RoofcastError: something else listens on ``port``.
    """
    command = app_command(host=host, port=port, open_browser=open_browser, processes=processes)
    environment = app_environment(os.environ, profiles=profiles)
    path = (str(app_entry().parents[1]), environment.get("PYTHONPATH"))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    try:
        create_server((host, port), family=AF_INET6 if ":" in host else AF_INET).close()
    except OSError as error:
        why, hint = (error.strerror or "no such address").partition(" (")[0], "--port and --host take another"
        raise RoofcastError(f"cannot listen on {host}:{port}: {why}", field="--port", hint=hint) from error
    if host != LOCAL_HOST:
        print(f"roofcast: serving on {host}: everybody who reaches this address can use it", file=sys.stderr)
    sys.stderr.flush()
    os.execve(command[0], command, environment)


def dashboard(
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; any other than this machine's opens it to others.")
    ] = LOCAL_HOST,
    port: Annotated[int, typer.Option("--port", help="Port to listen on.")] = DEFAULT_PORT,
    processes: Annotated[
        int,
        typer.Option(
            "--processes",
            min=1,
            max=_MOST_PROCESSES,
            help="Processes that share its visitors, one for three at once. Default: 2, or 1 on one core.",
            show_default=False,
        ),
    ] = min(_USUAL_PROCESSES, os.cpu_count() or 1),
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Do not open a browser window.")] = False,
    profiles: Profiles = None,
) -> None:
    """Open the dashboard: plan, what-if, roofline, serving, sweep, compare, validation, learn, profiles.

    Needs the extra "app".

    Example: roofcast app --port 8501
    """
    run_app(host=host, port=port, open_browser=not no_browser, processes=processes, profiles=profiles)
