"""What was measured opens on the pages that ask about a deployment."""

from __future__ import annotations

from app import inputs, opening
from app.views.serving import _LOOK
from simulator.specs.measured.validation_rows import RunFacts, load_validation_rows, parallel_text
from tests.app.pages import opened


def _runs() -> list[RunFacts]:
    return list({(row.source, row.run): row for row in load_validation_rows()}.values())


def test_every_measured_run_is_said_by_the_widgets() -> None:
    runs = _runs()
    page = opened("serving", {"model": "deepseek-v3"})
    options = {key: set(page.selectbox(key=key).options) for key in ("tp", "pp", "dp", "ep", "cp", "engine")}
    models, accelerators = set(inputs.model_names()), set(inputs.hardware_names())
    for run in runs:
        found = opening.run_values(run)
        assert found["model"] in models
        assert found["gpu"] in accelerators
        assert found["weights"] in inputs.WEIGHTS
        assert found["kv"] in inputs.KV_DTYPES
        assert all(str(found[key]) in names for key, names in options.items() if found[key] is not None), run
    assert len(runs) > 1_000


def test_degrees_lengths_and_pools_are_read_as_they_were_written() -> None:
    for run in _runs():
        sizes = {f"{name}_size": run.degrees.get(f"{name}_size", 1) for name in ("tp", "pp", "ep", "dp", "cp")}
        assert parallel_text(**sizes) == run.parallel
        assert (run.pools is None) == (run.mode != "disaggregated")
    asked = [run.asked for run in _runs() if "in, " in run.load]
    assert asked
    assert all(set(item) in ({"batch_size", "isl_tokens", "osl_tokens"}, set()) for item in asked)
    assert sum(bool(item) for item in asked) > 0.9 * len(asked)


def test_a_measured_run_opens_as_it_ran() -> None:
    run = next(run for run in _runs() if run.engine == "vllm" and run.degrees == {"tp_size": 4} and run.asked)
    values = {key: str(value) for key, value in opening.run_values(run).items() if value is not None}
    page = opened("what_if", values)
    assert not page.error
    assert not page.warning
    assert page.selectbox(key="tp").value == 4
    assert page.slider(key="batch").value == run.asked["batch_size"]
    assert page.number_input(key="isl").value == run.asked["isl_tokens"]


def test_a_load_of_the_chart_opens_with_its_rate() -> None:
    page = opened("serving", {"rate": "4"})
    rates = page.selectbox(key=_LOOK).options
    page.selectbox(key=_LOOK).select(rates[2]).run()
    assert not page.exception
    links = [item.proto for item in page.get("page_link")]
    assert any(f"rate={rates[2].split()[0]}" in str(item) for item in links)
