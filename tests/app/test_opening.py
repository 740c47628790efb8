"""What was measured opens on the pages that ask about a deployment."""

from __future__ import annotations

from app.address import opening
from app.fields import inputs
from app.views.serving import _LOOK
from simulator.specs.measured.validation_rows import RunFacts, load_validation_rows
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
        assert all(str(found[key]) in names for key, names in options.items() if found.get(key)), run
    assert len(runs) > 1_000


def test_two_pools_open_with_the_degrees_of_each() -> None:
    pools = [run for run in _runs() if run.mode == "disaggregated"]
    assert pools
    for run in pools:
        found = opening.run_values(run)
        assert run.prefill_degrees is not None
        if max(run.degrees) <= 8:
            assert (found["tp"], found["dp"], found["ep"]) == (run.tp_size, run.dp_size, run.ep_size)
            assert (found["prefill_tp"], found["prefill_dp"]) == (run.prefill_tp_size, run.prefill_dp_size)
        elif run.dp_size > 8:
            assert not {"tp", "dp", "prefill_tp"} & set(found), "no page asks for so many ranks"
        assert (found["prefill_replicas"], found["decode_replicas"]) == (run.prefill_replicas, run.decode_replicas)
    assert any(run.degrees != run.prefill_degrees for run in pools)


def test_a_measured_run_opens_as_it_ran() -> None:
    run = next(run for run in _runs() if run.engine == "vllm" and run.degrees == (4, 1, 1, 1, 1) and run.batch_size)
    values = {key: str(value) for key, value in opening.run_values(run).items() if value is not None}
    page = opened("what_if", values)
    assert not page.error
    assert not page.warning
    assert page.selectbox(key="tp").value == 4
    assert page.slider(key="batch").value == run.batch_size
    assert page.number_input(key="isl").value == run.isl_tokens


def test_a_load_of_the_chart_opens_with_its_rate() -> None:
    page = opened("serving", {"rate": "4"})
    rates = page.selectbox(key=_LOOK).options
    page.selectbox(key=_LOOK).select(rates[2]).run()
    assert not page.exception
    links = [item.proto for item in page.get("page_link")]
    assert any(f"rate={float(rates[2].split()[0]):g}&" in str(item) for item in links)
