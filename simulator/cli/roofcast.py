"""The command ``roofcast``."""

from __future__ import annotations

from typing import Annotated

import typer

from simulator.cli.app import dashboard
from simulator.cli.entry import print_version, run
from simulator.cli.price_commands import prices_app
from simulator.cli.record_commands import calibrate, demand, profiles_app, report
from simulator.cli.scenario_commands import capacity, compare, serve, simulate
from simulator.cli.step_commands import crossover, mixers, model, retrieval, step
from simulator.cli.validate_command import validate

app = typer.Typer(name="roofcast", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def roofcast(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Forecast LLM inference: latency, memory, throughput and fleets, from configuration files alone."""


app.add_typer(profiles_app, name="profiles")
app.add_typer(prices_app, name="prices")
for command in (simulate, step, crossover, compare, retrieval, mixers, model, calibrate, validate, serve):
    app.command()(command)
app.command("app")(dashboard)
for command in (capacity, report, demand):
    app.command()(command)


def main() -> None:
    """Entry point."""
    raise SystemExit(run(app, name="roofcast"))


if __name__ == "__main__":
    main()
