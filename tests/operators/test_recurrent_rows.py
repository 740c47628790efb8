"""``simulator.operators.recurrent``: states, projections and updates of scans, counted by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.operators.recurrent import (
    GATED_DELTA_CHUNK,
    recurrent_rows,
    recurrent_size,
    state_bytes,
    update_flops_per_token,
)
from simulator.operators.work import Family, RecurrentShape, StepShape, Work, decode_step, prefill_step
from simulator.specs.model.architecture import (
    GatedDeltaSpec,
    LightningSpec,
    Mamba2Spec,
    MambaSpec,
    RecurrentSpec,
    ShortConvolutionSpec,
)
from tests.operators.shares import DECODE, HIDDEN, PREFILL, named, names, share

FEW = settings(max_examples=15, deadline=None)
MAMBA = MambaSpec(intermediate_size=512, state_size=16, conv_kernel=4, time_step_rank=16)
MAMBA2 = Mamba2Spec(num_heads=16, head_dim=32, state_size=64, n_groups=4, conv_kernel=4, chunk_size=128)
DELTA = GatedDeltaSpec(
    linear_num_key_heads=4,
    linear_num_value_heads=8,
    linear_key_head_dim=32,
    linear_value_head_dim=48,
    linear_conv_kernel_dim=4,
)
LIGHTNING = LightningSpec(num_heads=8, head_dim=32, chunk_size=256)
SHORT = ShortConvolutionSpec(conv_kernel=3)
SPECS: tuple[RecurrentSpec, ...] = (MAMBA, MAMBA2, DELTA, LIGHTNING)
IDS = ("mamba", "mamba2", "gated_delta", "lightning")


def rows_of(spec: RecurrentSpec, step: StepShape, *, tp_size: int = 1) -> tuple[Work, ...]:
    return recurrent_rows(spec, share=share(step, tp_size=tp_size), count=1)


@pytest.mark.parametrize(
    ("spec", "state", "window"),
    [
        (MAMBA, 512 * 16, 512 * 3),
        (MAMBA2, 16 * 32 * 64, (512 + 2 * 4 * 64) * 3),
        (DELTA, 8 * 48 * 32, (2 * 4 * 32 + 8 * 48) * 3),
        (LIGHTNING, 8 * 32 * 32, 0),
    ],
    ids=IDS,
)
def test_a_sequence_keeps_its_state_in_32_bit_and_its_window_in_16(
    spec: RecurrentSpec, state: int, window: int
) -> None:
    size = recurrent_size(spec, hidden_size=HIDDEN, tp_size=1)
    assert size.state_elements == state
    assert size.conv_elements == window
    assert state_bytes(size, element_bytes=2.0) == 4 * state + 2 * window


@pytest.mark.parametrize("spec", SPECS, ids=IDS)
@pytest.mark.parametrize("tp_size", [2, 4])
def test_ranks_share_states_and_weights(spec: RecurrentSpec, tp_size: int) -> None:
    whole, part = (recurrent_size(spec, hidden_size=HIDDEN, tp_size=size) for size in (1, tp_size))
    assert part.state_elements == whole.state_elements / tp_size
    projections = [
        sum(row.parameters for row in rows_of(spec, DECODE, tp_size=size) if row.name == "mixer_out_proj")
        for size in (1, tp_size)
    ]
    assert projections[1] == projections[0] / tp_size
    assert names(rows_of(spec, DECODE, tp_size=tp_size))[-1] == "mixer_all_reduce"


@pytest.mark.parametrize("spec", SPECS, ids=IDS)
@FEW
@given(sequences=st.integers(1, 100), context=st.integers(1, 100_000))
def test_decoding_costs_the_same_however_long_the_text(spec: RecurrentSpec, sequences: int, context: int) -> None:
    rows = rows_of(spec, decode_step(sequences=float(sequences), context=float(context)))
    update = named(rows, "decode_state_update")
    size = recurrent_size(spec, hidden_size=HIDDEN, tp_size=1)
    assert update.family is Family.RECURRENT
    assert update.kv_bytes[0] == pytest.approx(2 * sequences * state_bytes(size, element_bytes=2.0))
    assert update.flops[0] == pytest.approx(sequences * update_flops_per_token(size, is_decode=True))


@pytest.mark.parametrize("spec", SPECS, ids=IDS)
@FEW
@given(tokens=st.integers(1, 10_000))
def test_a_prompt_is_linear_in_its_tokens(spec: RecurrentSpec, tokens: int) -> None:
    one, many = (
        named(rows_of(spec, prefill_step(sequences=1.0, tokens=float(count))), "prefill_state_update")
        for count in (1, tokens)
    )
    assert many.flops[0] == pytest.approx(tokens * one.flops[0])
    # The state goes in and out once, whatever the prompt.
    assert many.kv_bytes[0] == one.kv_bytes[0]


@pytest.mark.parametrize(
    ("spec", "decode", "prefill"),
    [
        (MAMBA, 7 * 16 * 512, 7 * 16 * 512),
        (MAMBA2, 5 * 64 * 32 * 16, 2 * 128 * 64 * 4 + 2 * 128 * 32 * 16 + 4 * 64 * 32 * 16),
        (DELTA, 7 * 32 * 48 * 8, (6 * GATED_DELTA_CHUNK * 32 + 4 * GATED_DELTA_CHUNK * 48 + 6 * 32 * 48) * 8),
        (LIGHTNING, 5 * 32 * 32 * 8, (4 * 256 * 32 + 4 * 32 * 32) * 8),
    ],
    ids=IDS,
)
def test_flops_of_one_token(spec: RecurrentSpec, decode: int, prefill: int) -> None:
    size = recurrent_size(spec, hidden_size=HIDDEN, tp_size=1)
    assert update_flops_per_token(size, is_decode=True) == decode
    assert update_flops_per_token(size, is_decode=False) == prefill


def test_selective_scans_project_their_step_between_convolution_and_update() -> None:
    rows = rows_of(MAMBA, DECODE)
    order = names(rows)
    assert order.index("mixer_conv") < order.index("mixer_x_proj") < order.index("decode_state_update")
    assert named(rows, "mixer_x_proj").parameters == 512 * (16 + 2 * 16)
    assert named(rows, "mixer_dt_proj").parameters == 16 * 512 + 512
    assert "mixer_gated_norm" not in order


@pytest.mark.parametrize("spec", SPECS[1:], ids=IDS[1:])
def test_newer_scans_norm_their_gated_output(spec: RecurrentSpec) -> None:
    assert "mixer_gated_norm" in names(rows_of(spec, PREFILL))


def test_groups_are_copied_where_there_are_fewer_than_ranks() -> None:
    size = recurrent_size(MAMBA2, hidden_size=HIDDEN, tp_size=8)
    assert size.num_groups == 1
    assert size.conv_width == 16 * 32 / 8 + 2 * 64


@pytest.mark.parametrize(("rank", "widths"), [(0, 8 * 32), (16, 16)])
def test_a_decay_per_channel_may_go_through_a_low_rank(rank: int, widths: int) -> None:
    """Its width stands in the input projection, a low rank's second half behind it."""
    channel = DELTA.model_copy(update={"decay": "channel", "decay_lora_rank": rank})
    per_head = recurrent_size(DELTA, hidden_size=HIDDEN, tp_size=1)
    size = recurrent_size(channel, hidden_size=HIDDEN, tp_size=1)
    assert size.variant == "kda"
    assert size.in_width - per_head.in_width == widths - 8
    assert size.inner == ((("mixer_decay_b_proj", 8 * 32, 16.0),) if rank else ())


@pytest.mark.parametrize("spec", SPECS, ids=IDS)
def test_shapes_say_what_runs(spec: RecurrentSpec) -> None:
    for step, name in ((DECODE, "decode_state_update"), (PREFILL, "prefill_state_update")):
        shape = named(rows_of(spec, step), name).shape
        assert isinstance(shape, RecurrentShape)
        assert shape.variant == IDS[SPECS.index(spec)]
        assert shape.is_decode is (step is DECODE)


def test_lightning_attention_stores_no_convolution_and_no_decay() -> None:
    conv = named(rows_of(LIGHTNING, DECODE), "mixer_conv")
    assert conv.parameters == 8 * 32  # the norm behind it
    assert recurrent_size(LIGHTNING, hidden_size=HIDDEN, tp_size=1).in_width == 4 * 8 * 32


@pytest.mark.parametrize("tp_size", [1, 4])
def test_a_short_convolution_keeps_its_window_alone(tp_size: int) -> None:
    size = recurrent_size(SHORT, hidden_size=HIDDEN, tp_size=tp_size)
    assert state_bytes(size, element_bytes=2.0) == 2 * HIDDEN / tp_size * 2
    rows = rows_of(SHORT, PREFILL, tp_size=tp_size)
    assert [name for name in names(rows) if "update" in name] == []
    stored = sum(row.parameters for row in rows)
    assert stored == (3 * HIDDEN * HIDDEN + 3 * HIDDEN + HIDDEN * HIDDEN) / tp_size
