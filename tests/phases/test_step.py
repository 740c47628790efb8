"""One forward pass: sums, limits, monotony and the identities that everybody knows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import RoofcastError
from simulator.kernels.roofline import floor_seconds, ridge_point
from simulator.kernels.timing import Provenance
from simulator.operators.work import CollectiveShape, decode_step, mixed_step, prefill_step
from simulator.phases.deployment import Deployment, deploy
from simulator.phases.step import estimate_step
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.hardware.accelerator import AcceleratorSpec, load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import Dtype, PrecisionSpec


def deployment(model: str = "llama-2-7b", hardware: str = "h100", *, tp: int = 1, pp: int = 1) -> Deployment:
    return deploy(
        model=load_model(model), hardware=load_hardware(hardware), parallelism=ParallelismSpec(tp_size=tp, pp_size=pp)
    )


def faster_memory(hardware: AcceleratorSpec, factor: float) -> AcceleratorSpec:
    return hardware.model_copy(update={"memory_bytes_per_s": hardware.memory_bytes_per_s * factor})


def test_rows_and_host_time_add_up_to_the_step() -> None:
    result = estimate_step(
        deployment(tp=2, pp=2),
        mixed_step(
            prefill_sequences=[1, 0, 2],
            prefill_tokens=[700, 0, 64],
            decode_sequences=[0, 8, 3],
            decode_context=[0, 900, 40],
        ),
    )
    rows = sum(row.seconds for row in result.rows)
    np.testing.assert_allclose(rows + result.host_s, result.step_s)
    np.testing.assert_allclose(sum(result.breakdown_s.values()), result.step_s)


def test_scalar_answer_is_the_array_answer_with_one_element() -> None:
    replica = deployment()
    together = estimate_step(replica, decode_step(sequences=[1, 7, 64], context=[100, 2000, 512])).step_s
    for index, (sequences, context) in enumerate(((1, 100), (7, 2000), (64, 512))):
        alone = estimate_step(replica, decode_step(sequences=sequences, context=context)).step_s
        assert alone[0] == pytest.approx(together[index], rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(sequences=st.integers(1, 256), context=st.integers(2, 16384), tokens=st.integers(1, 8192))
def test_no_step_beats_the_roofline_and_more_work_takes_longer(sequences: int, context: int, tokens: int) -> None:
    replica = deployment("llama-3.1-8b")
    shape = mixed_step(
        prefill_sequences=[0, 1], prefill_tokens=[0, tokens], decode_sequences=[sequences, 0], decode_context=context
    )
    result = estimate_step(replica, shape)
    # Small working sets stay in the L2 cache, which the floor (all bytes from memory) does not know.
    for row in result.rows:
        big = row.work.bytes > 2 * replica.hardware.l2_bytes
        if not isinstance(row.work.shape, CollectiveShape):
            floor = floor_seconds(row.work, hardware=replica.hardware)
            assert np.all(row.timing.seconds[big] >= 0.95 * floor[big])
    more = estimate_step(replica, decode_step(sequences=sequences, context=2 * context))
    assert more.step_s[0] >= 0.97 * result.step_s[0]


def test_faster_memory_is_never_slower_and_decode_feels_it() -> None:
    replica = deployment()
    quick = deploy(model=replica.model, hardware=faster_memory(replica.hardware, 2.0))
    shape = decode_step(sequences=[1, 16, 128], context=1024)
    slow_s, quick_s = (estimate_step(item, shape).step_s for item in (replica, quick))
    assert np.all(quick_s < slow_s)
    assert quick_s[0] < 0.7 * slow_s[0]


def test_long_prefill_waits_for_the_tensor_cores_and_single_decode_for_memory() -> None:
    replica = deployment("llama-3.1-8b")
    assert estimate_step(replica, prefill_step(sequences=4, tokens=4096)).bound == ("tensor core",)
    assert estimate_step(replica, decode_step(sequences=1, context=512)).bound == ("memory",)


def test_fractions_stay_between_zero_and_one() -> None:
    replica = deployment("llama-3.1-8b")
    shape = mixed_step(
        prefill_sequences=[0, 0, 1, 8],
        prefill_tokens=[0, 0, 8192, 512],
        decode_sequences=[1, 256, 0, 0],
        decode_context=[1, 4096, 0, 0],
    )
    result = estimate_step(replica, shape)
    for values in (result.mfu, result.mbu):
        assert np.all((values > 0) & (values < 1))


def test_mbu_identity_of_the_published_example() -> None:
    # [Databricks2023]: 7B parameters in 16 bit, 14 ms per token, 2 TB/s -> 1 TB/s achieved, MBU 50 %.
    step = estimate_step(deployment("llama-2-7b", "a100"), decode_step(sequences=1, context=1))
    row = next(row for row in step.rows if row.work.name == "gate_up_proj")
    weights = replace(row.work, count=1, weight_bytes=np.array([14.0e9]), kv_bytes=np.zeros(1))
    example = replace(
        step,
        rows=(replace(row, work=weights),),
        stage_s=np.full((1, 1), 0.014),
        host_s=np.zeros(1),
        peak_bytes_per_s=2.0e12,
    )
    assert example.mbu[0] == pytest.approx(0.5)
    # The library's own step obeys the same identity with its own bytes.
    achieved = step.read_bytes / step.step_s
    np.testing.assert_allclose(step.mbu, achieved / load_hardware("a100").memory_bytes_per_s)
    assert step.read_bytes[0] == pytest.approx(2 * 6.607e9, rel=0.01), "all weights but the embedding table"


def test_ridge_point_of_a100() -> None:
    assert ridge_point(load_hardware("a100"), dtype=Dtype.BF16) == pytest.approx(153, abs=0.5)


def test_pipeline_stages_add_up_in_latency_and_not_in_interval() -> None:
    shape = decode_step(sequences=8, context=1024)
    single, piped = (estimate_step(deployment(pp=size), shape) for size in (1, 4))
    assert piped.step_s[0] > single.step_s[0]
    assert piped.interval_s[0] < 0.5 * single.step_s[0]


def test_tensor_parallelism_helps_large_steps_and_communicates() -> None:
    shape = prefill_step(sequences=4, tokens=2048)
    single, split = (estimate_step(deployment(tp=size), shape) for size in (1, 4))
    assert 0.25 * single.step_s[0] < split.step_s[0] < 0.5 * single.step_s[0]
    assert split.breakdown_s["collective"][0] > 0
    assert "collective" not in single.breakdown_s or single.breakdown_s["collective"][0] == 0


def test_fewer_weight_bits_make_single_decode_faster() -> None:
    model, hardware = load_model("llama-3.1-8b"), load_hardware("h100")
    steps = {
        name: estimate_step(
            deploy(model=model, hardware=hardware, precision=PrecisionSpec(weights=weights, activations=activations)),
            decode_step(sequences=1, context=128),
        ).step_s[0]
        for name, weights, activations in (
            ("bf16", Dtype.BF16, Dtype.BF16),
            ("fp8", Dtype.FP8, Dtype.FP8),
            ("int4", Dtype.INT4, Dtype.BF16),
        )
    }
    assert steps["int4"] < steps["fp8"] < steps["bf16"]


def test_a_dtype_the_hardware_lacks_is_refused_with_alternatives() -> None:
    with pytest.raises(RoofcastError, match=r"a100-sxm-80gb has no fp8 .*weight-only") as caught:
        deploy(
            model=load_model("llama-3.1-8b"),
            hardware=load_hardware("a100"),
            precision=PrecisionSpec(weights=Dtype.FP8, activations=Dtype.FP8),
        )
    assert caught.value.field == "precision.activations"


def test_intervals_widen_without_measurements() -> None:
    shape = decode_step(sequences=8, context=1024)
    known = estimate_step(deployment("llama-3.1-8b", "h100"), shape)
    unknown = estimate_step(deployment("llama-3.1-8b", "mi300x"), shape)
    assert unknown.log_sigma[0] > 1.5 * known.log_sigma[0] > 0
    assert unknown.provenance[0] >= Provenance.EXTRAPOLATED
