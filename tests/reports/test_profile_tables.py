"""Hardware profiles as rows: facts with their sources, energy as the forecast that it is."""

from __future__ import annotations

import pytest

from simulator.phases.power import energy_prices
from simulator.reports.answers.profiles import FACT_COLUMNS, hardware_facts
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.precision import Dtype
from simulator.units import TERA


@pytest.mark.parametrize(("name", "source"), [("a100", "power fit:"), ("l40s", "power fit of ampere:")])
def test_energy_of_single_operations_names_the_fit_it_comes_from(name: str, source: str) -> None:
    spec = load_hardware(name)
    rows = {row[0]: row for row in hardware_facts(spec)}
    assert {len(row) for row in rows.values()} == {len(FACT_COLUMNS)}
    quantity, value, origin, date = rows["energy of one bf16 FLOP, forecast"]
    assert float(value.removesuffix(" pJ")) == pytest.approx(TERA * energy_prices(spec).flop_j[Dtype.BF16], rel=0.01)
    assert origin.startswith(source)
    assert date
    assert not any("fp64 FLOP" in name for name in rows), quantity
