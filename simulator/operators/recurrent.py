"""State-space and linear-attention layers: projections, short convolution, state update with a constant state.

FLOPs of the update per token, with N = state (key) width and P = value width of H heads:
mamba: 7 N per channel (decay product and exponent, input product, multiply-add, read-out) [Gu2023];
mamba2 decoding: 5 N P H; prefill in chunks of Q: 2 Q N G + 2 Q P H + 4 N P H [Dao2024];
lightning attention is mamba2 with a group per head [Qin2024a];
gated delta decoding: 7 N P H; prefill: (6 Q N + 4 Q P + 6 N P) H [Yang2024].
The state is kept in FP32, the convolution's window at the activation dtype.
"""

from __future__ import annotations

from simulator.operators.device_share import CONVOLUTION, NORM, DeviceShare, has_decode, has_prefill
from simulator.operators.work import Array, Family, RecurrentShape, Work
from simulator.records import dataclass
from simulator.specs.model import architecture as arch
from simulator.specs.model.precision import BITS, Dtype
from simulator.units import BITS_PER_BYTE

STATE_DTYPE = Dtype.FP32
GATED_DELTA_CHUNK = 64  # chunk of the released kernels (flash-linear-attention) and of transformers


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentSize:
    """Shape of one layer on one device, whatever its kind.

    in_widths : outputs of the input projections; conv_width : channels of the convolution; inner_width : of the output
    conv_kernel : tokens that it sees, 1 where channels pass an activation alone
    inner : (name, n, k) of projections between convolution and update, with ``inner_bias`` elements of bias
    small_parameters : vectors (decay, skip, step bias, norms); conv_bias : its elements
    """

    variant: str
    num_heads: float
    head_dim: float
    state_size: float
    num_groups: float
    chunk_size: float
    conv_kernel: float
    conv_width: float
    inner_width: float
    in_width: float
    small_parameters: float
    gated_norm: bool
    inner: tuple[tuple[str, float, float], ...] = ()
    inner_bias: float = 0.0
    in_bias: float = 0.0
    out_bias: float = 0.0
    conv_bias: float = 0.0

    @property
    def state_elements(self) -> float:
        """Numbers in one sequence's state."""
        return self.num_heads * self.head_dim * self.state_size

    @property
    def conv_elements(self) -> float:
        """Numbers in one sequence's convolution window."""
        return self.conv_width * (self.conv_kernel - 1.0)

    @property
    def conv_parameters(self) -> float:
        """Weights and biases of the convolution."""
        weights = self.conv_width * self.conv_kernel if self.conv_kernel > 1.0 else 0.0
        return weights + self.conv_bias


def recurrent_size(spec: arch.RecurrentSpec, *, hidden_size: float, tp_size: int) -> RecurrentSize:
    """Shape on each of ``tp_size`` devices: heads and channels are split, groups at least one each."""
    match spec:
        case arch.MambaSpec():
            return _mamba(spec, hidden_size, tp_size)
        case arch.Mamba2Spec():
            return _mamba2(spec, hidden_size, tp_size)
        case arch.GatedDeltaSpec():
            return _gated_delta(spec, hidden_size, tp_size)
        case arch.LightningSpec():
            return _lightning(spec, tp_size)
        case arch.ShortConvolutionSpec():
            return _short_convolution(spec, hidden_size, tp_size)


def state_bytes(size: RecurrentSize, *, element_bytes: float) -> float:
    """Bytes that one sequence keeps in one layer, however long it is."""
    return size.state_elements * BITS[STATE_DTYPE] / BITS_PER_BYTE + size.conv_elements * element_bytes


def recurrent_rows(spec: arch.RecurrentSpec, *, share: DeviceShare, count: float) -> tuple[Work, ...]:
    """Rows of ``count`` equal layers."""
    size = recurrent_size(spec, hidden_size=share.hidden_size, tp_size=share.tp_size)
    rows = [
        share.linear(
            "mixer_in_proj", role="mixer", n=size.in_width, k=share.hidden_size, bias=size.in_bias, count=count
        ),
        share.elementwise(
            "mixer_conv",
            cost=CONVOLUTION,
            width=size.conv_width,
            count=count,
            role="mixer",
            parameters=size.conv_parameters + size.small_parameters,
        ),
    ]
    for position, (name, n, k) in enumerate(size.inner):
        bias = size.inner_bias if position == len(size.inner) - 1 else 0.0
        rows.append(share.linear(name, role="mixer", n=n, k=k, bias=bias, count=count))
    rows += _updates(size, share=share, count=count) if size.state_elements else []
    if size.gated_norm:
        rows.append(
            share.elementwise("mixer_gated_norm", cost=NORM, width=1.5 * size.inner_width, count=count, role="mixer")
        )
    rows.append(
        share.linear(
            "mixer_out_proj", role="mixer", n=share.hidden_size, k=size.inner_width, bias=size.out_bias, count=count
        )
    )
    return (*rows, *share.all_reduce_after("mixer", count=count))


def update_flops_per_token(size: RecurrentSize, *, is_decode: bool) -> float:
    """FLOPs of the state update of one token (module docstring)."""
    n, p, h, q = size.state_size, size.head_dim, size.num_heads, size.chunk_size
    if size.variant == "mamba":
        return 7.0 * n * p * h
    if size.variant in ("mamba2", "lightning"):
        return 5.0 * n * p * h if is_decode else 2.0 * q * n * size.num_groups + 2.0 * q * p * h + 4.0 * n * p * h
    return 7.0 * n * p * h if is_decode else (6.0 * q * n + 4.0 * q * p + 6.0 * n * p) * h


def _updates(size: RecurrentSize, *, share: DeviceShare, count: float) -> list[Work]:
    step = share.step
    rows = []
    if has_prefill(step):
        rows.append(_update(size, share=share, count=count, sequences=step.prefill_sequences,
                            tokens=step.prefill_tokens, is_decode=False))  # fmt: skip
    if has_decode(step):
        rows.append(_update(size, share=share, count=count, sequences=step.decode_sequences,
                            tokens=step.decode_tokens, is_decode=True))  # fmt: skip
    return rows


def _update(
    size: RecurrentSize, *, share: DeviceShare, count: float, sequences: Array, tokens: Array, is_decode: bool
) -> Work:
    """State and convolution window are read and written once a sequence."""
    total = sequences * tokens
    shape = RecurrentShape(
        variant=size.variant,
        sequences=sequences,
        tokens=tokens,
        num_heads=size.num_heads,
        head_dim=size.head_dim,
        state_size=size.state_size,
        num_groups=size.num_groups,
        conv_kernel=size.conv_kernel,
        chunk_size=size.chunk_size,
        is_decode=is_decode,
        state_dtype=STATE_DTYPE,
    )
    return Work(
        name="decode_state_update" if is_decode else "prefill_state_update",
        family=Family.RECURRENT,
        role="mixer",
        shape=shape,
        count=count,
        flops=total * update_flops_per_token(size, is_decode=is_decode),
        weight_bytes=share.zeros,
        kv_bytes=2.0 * sequences * state_bytes(size, element_bytes=share.element_bytes),
        activation_bytes=total * (size.conv_width + size.inner_width) * share.element_bytes,
    )


def _mamba(spec: arch.MambaSpec, hidden_size: float, tp_size: int) -> RecurrentSize:
    width = spec.intermediate_size / tp_size
    small = width * spec.state_size + width
    inner_norms = spec.time_step_rank + 2 * spec.state_size if spec.inner_norms else 0.0
    return RecurrentSize(
        variant="mamba",
        num_heads=width,
        head_dim=1.0,
        state_size=spec.state_size,
        num_groups=1.0,
        chunk_size=1.0,
        conv_kernel=spec.conv_kernel,
        conv_width=width,
        inner_width=width,
        in_width=2 * width,
        inner=(
            ("mixer_x_proj", spec.time_step_rank + 2 * spec.state_size, width),
            ("mixer_dt_proj", width, spec.time_step_rank),
        ),
        inner_bias=width,
        in_bias=2 * width if spec.use_bias else 0.0,
        out_bias=hidden_size if spec.use_bias else 0.0,
        conv_bias=width if spec.use_conv_bias else 0.0,
        small_parameters=small + inner_norms,
        gated_norm=False,
    )


def _mamba2(spec: arch.Mamba2Spec, hidden_size: float, tp_size: int) -> RecurrentSize:
    heads = spec.num_heads / tp_size
    groups = max(1.0, spec.n_groups / tp_size)
    width = heads * spec.head_dim
    conv = width + 2 * groups * spec.state_size
    in_width = width + conv + heads
    return RecurrentSize(
        variant="mamba2",
        num_heads=heads,
        head_dim=spec.head_dim,
        state_size=spec.state_size,
        num_groups=groups,
        chunk_size=spec.chunk_size,
        conv_kernel=spec.conv_kernel,
        conv_width=conv,
        inner_width=width,
        in_width=in_width,
        in_bias=in_width if spec.use_bias else 0.0,
        out_bias=hidden_size if spec.use_bias else 0.0,
        conv_bias=conv if spec.use_conv_bias else 0.0,
        small_parameters=3 * heads + (width if spec.gated_norm else 0.0),
        gated_norm=spec.gated_norm,
    )


def _gated_delta(spec: arch.GatedDeltaSpec, hidden_size: float, tp_size: int) -> RecurrentSize:
    """Per-head decay projects one number a head; per-channel decay goes through a low-rank pair, as may the gate."""
    heads = spec.linear_num_value_heads / tp_size
    key = spec.linear_num_key_heads / tp_size * spec.linear_key_head_dim
    value = heads * spec.linear_value_head_dim
    per_channel = spec.decay == "channel"
    decays = heads * spec.linear_key_head_dim if per_channel else heads
    in_width = 2 * key + value + heads
    inner = []
    for name, rank, width in (("decay", spec.decay_lora_rank, decays), ("gate", spec.gate_lora_rank, value)):
        if rank:
            in_width += rank
            inner.append((f"mixer_{name}_b_proj", width, float(rank)))
        else:
            in_width += width
    return RecurrentSize(
        variant="kda" if per_channel else "gated_delta",
        num_heads=heads,
        head_dim=spec.linear_value_head_dim,
        state_size=spec.linear_key_head_dim,
        num_groups=spec.linear_num_key_heads / tp_size,
        chunk_size=GATED_DELTA_CHUNK,
        conv_kernel=spec.linear_conv_kernel_dim,
        conv_width=2 * key + value,
        inner_width=value,
        in_width=in_width,
        inner=tuple(inner),
        small_parameters=decays + heads + spec.linear_value_head_dim,
        gated_norm=True,
    )


def _lightning(spec: arch.LightningSpec, tp_size: int) -> RecurrentSize:
    """Queries, keys and values pass an activation, no convolution; decay rates are fixed and not stored."""
    heads = spec.num_heads / tp_size
    width = heads * spec.head_dim
    return RecurrentSize(
        variant="lightning",
        num_heads=heads,
        head_dim=spec.head_dim,
        state_size=spec.head_dim,
        num_groups=heads,
        chunk_size=spec.chunk_size,
        conv_kernel=1.0,
        conv_width=3 * width,
        inner_width=width,
        in_width=4 * width,
        small_parameters=width,
        gated_norm=True,
    )


def _short_convolution(spec: arch.ShortConvolutionSpec, hidden_size: float, tp_size: int) -> RecurrentSize:
    """One projection to two gates and the channels, which pass nothing on but the window of the convolution."""
    width = hidden_size / tp_size
    return RecurrentSize(
        variant="short_convolution",
        num_heads=width,
        head_dim=1.0,
        state_size=0.0,
        num_groups=1.0,
        chunk_size=1.0,
        conv_kernel=spec.conv_kernel,
        conv_width=width,
        inner_width=width,
        in_width=3 * width,
        in_bias=3 * width if spec.use_bias else 0.0,
        out_bias=hidden_size if spec.use_bias else 0.0,
        conv_bias=width if spec.use_bias else 0.0,
        small_parameters=0.0,
        gated_norm=False,
    )
