"""The command ``roofcast``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated

import typer

from simulator.cli.app import dashboard
from simulator.cli.entry import print_version, run_process
from simulator.cli.line_commands import simulate
from simulator.cli.options.shared import PlanCommand, WideCommand
from simulator.cli.plan_capacity import EPILOG, plan_capacity
from simulator.cli.price_commands import prices_app
from simulator.cli.record_commands import calibrate, demand, profiles_app, report, verify
from simulator.cli.scenario_commands import capacity, compare, serve, warm_up
from simulator.cli.step_commands import crossover, explain, mixers, model, retrieval, step
from simulator.cli.sweep_command import sweep
from simulator.cli.validate_command import published, validate

app = typer.Typer(name="roofcast", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def roofcast(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Forecast LLM inference: latency, memory, throughput and fleets, from configuration files alone."""


GROUPS: Mapping[str, tuple[Callable[..., None], ...]] = {
    "Plan": (report, verify, demand),
    "Simulate": (serve, capacity, simulate, sweep, compare, step, crossover),
    "Calibrate and validate": (calibrate, validate, published),
    "Learn": (explain, model, retrieval, mixers),
}
"""Commands by what their user is about to do."""

app.command("plan", cls=PlanCommand, rich_help_panel="Plan", epilog=EPILOG)(plan_capacity)
for panel, commands in GROUPS.items():
    for command in commands:
        app.command(cls=WideCommand, rich_help_panel=panel)(command)
app.add_typer(prices_app, name="prices", rich_help_panel="Plan")
app.add_typer(profiles_app, name="profiles", rich_help_panel="Learn")
app.command("app", rich_help_panel="Plan")(dashboard)
app.command("warm-up", cls=WideCommand, rich_help_panel="Simulate")(warm_up)


def main() -> None:
    """Entry point."""
    raise SystemExit(run_process(app, name="roofcast"))


if __name__ == "__main__":
    main()
