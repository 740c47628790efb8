"""``roofcast warm-up``: what the first simulation on a machine would wait for."""

from __future__ import annotations

import typer

from simulator.cli.options.shared import AsJson


def warm_up(as_json: AsJson = False) -> None:
    """Compile the event simulation for this machine, once for each installed version, so that nobody waits for it.

    The machine code is kept under ROOFCAST_CACHE_DIR, XDG_CACHE_HOME or ~/.cache, in an image of a container too.

    Example: roofcast warm-up
    """
    from simulator.cli.scenario_commands import one_line
    from simulator.engine.events.warm_up import warm_up as run
    from simulator.reports.content.quantities import seconds_text

    took = run()
    if as_json:
        typer.echo(one_line({"schema_version": "1.0", "seconds": took}), nl=False)
        return
    for name, seconds in took.items():
        typer.echo(f"ready: {name}, in {seconds_text(seconds)}")
