"""``simulator.kernels.collectives.laws``: bytes on the wire, hops, and the fastest of several laws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import RoofcastError
from simulator.kernels.collectives.laws import (
    ALGORITHMS,
    CollectiveModel,
    Law,
    fastest_seconds,
    hop_count,
    law_seconds,
    model_seconds,
    read_model,
    wire_factor,
)
from simulator.operators.work import Collective

LINK = 450e9
DEVICES = st.integers(2, 72)
OTHERS = (Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_TO_ALL)


def law(algorithm: str, *, launch_s: float = 3e-6, hop_s: float = 1e-6, fraction: float = 0.8) -> Law:
    return Law(algorithm=algorithm, launch_s=launch_s, hop_s=hop_s, fraction=fraction)


@given(DEVICES)
def test_a_ring_all_reduce_is_two_passes_of_the_message_less_ones_own_share(devices: int) -> None:
    for algorithm in ("ring_ll", "ring_ll128", "ring_simple", "two_shot"):
        factor = wire_factor(algorithm, operation=Collective.ALL_REDUCE, participants=devices)
        assert float(factor) == pytest.approx(2 - 2 / devices)
        halves = [
            wire_factor(algorithm, operation=half, participants=devices)
            for half in (Collective.REDUCE_SCATTER, Collective.ALL_GATHER)
        ]
        assert float(sum(halves)) == pytest.approx(float(factor))


@given(DEVICES)
def test_the_switch_adds_on_the_way(devices: int) -> None:
    """It moves less than a ring from four devices on, and never less than the message itself."""
    switch = float(wire_factor("multimem", operation=Collective.ALL_REDUCE, participants=devices))
    ring = float(wire_factor("ring_simple", operation=Collective.ALL_REDUCE, participants=devices))
    assert switch > 1
    assert (switch < ring) == (devices > 3)


@given(DEVICES)
def test_one_shot_moves_everybody_elses_message(devices: int) -> None:
    assert float(wire_factor("one_shot", operation=Collective.ALL_REDUCE, participants=devices)) == devices - 1
    assert int(hop_count("one_shot", operation=Collective.ALL_REDUCE, participants=devices)) == devices - 1


@pytest.mark.parametrize("operation", OTHERS)
@given(devices=DEVICES)
def test_other_operations_move_all_but_ones_own_share(operation: Collective, devices: int) -> None:
    for algorithm in ALGORITHMS:
        factor = float(wire_factor(algorithm, operation=operation, participants=devices))
        assert factor == pytest.approx((devices - 1) / devices)
        assert int(hop_count(algorithm, operation=operation, participants=devices)) == devices - 1


@given(devices=DEVICES)
def test_point_to_point_does_not_know_how_many_there_are(devices: int) -> None:
    for algorithm in ALGORITHMS:
        assert float(wire_factor(algorithm, operation=Collective.P2P, participants=devices)) == 1
        assert int(hop_count(algorithm, operation=Collective.P2P, participants=devices)) == 1


@given(message=st.floats(1, 1e10), devices=DEVICES, factor=st.floats(1, 100))
def test_a_law_is_affine_in_the_message(message: float, devices: int, factor: float) -> None:
    chosen = law("ring_simple")

    def seconds(moved: float) -> float:
        return float(
            law_seconds(
                chosen, operation=Collective.ALL_REDUCE, message_bytes=moved, participants=devices, bytes_per_s=LINK
            )
        )

    fixed = seconds(0.0)
    assert seconds(factor * message) - fixed == pytest.approx(factor * (seconds(message) - fixed), rel=1e-6)
    assert fixed == pytest.approx(3e-6 + 1e-6 * 2 * (devices - 1))


@given(message=st.floats(1, 1e10), devices=DEVICES)
def test_twice_the_link_halves_what_the_bytes_take(message: float, devices: int) -> None:
    chosen = law("ring_simple", launch_s=0.0, hop_s=0.0)
    slow, fast = (
        law_seconds(
            chosen, operation=Collective.ALL_REDUCE, message_bytes=message, participants=devices, bytes_per_s=rate
        )
        for rate in (LINK, 2 * LINK)
    )
    assert float(slow) == pytest.approx(2 * float(fast))


def test_the_bus_bandwidth_of_a_large_message_is_the_reached_share_of_the_link() -> None:
    """nccl-tests: bus bandwidth = message / time x 2 (p - 1) / p."""
    message = 8 * 2**30
    seconds = law_seconds(
        law("ring_simple"), operation=Collective.ALL_REDUCE, message_bytes=message, participants=8, bytes_per_s=LINK
    )
    assert message / float(seconds) * 2 * 7 / 8 == pytest.approx(0.8 * LINK, rel=1e-3)


@given(message=st.floats(1, 1e9), devices=DEVICES)
def test_more_laws_to_choose_from_never_cost_more(message: float, devices: int) -> None:
    laws = (law("ring_ll", fraction=0.3, hop_s=5e-7), law("ring_simple"), law("one_shot", launch_s=2e-6, hop_s=1e-7))
    best = np.inf
    for count in range(1, len(laws) + 1):
        found = float(
            fastest_seconds(
                laws[:count],
                operation=Collective.ALL_REDUCE,
                message_bytes=message,
                participants=devices,
                bytes_per_s=LINK,
            )
        )
        assert found <= best
        best = found


def test_low_latency_protocols_win_small_messages_and_lose_large_ones() -> None:
    low, simple = law("ring_ll", hop_s=5e-7, fraction=0.3), law("ring_simple", hop_s=2e-6, fraction=0.9)
    sizes = np.array([1e3, 1e9])
    each = [
        law_seconds(item, operation=Collective.ALL_REDUCE, message_bytes=sizes, participants=8, bytes_per_s=LINK)
        for item in (low, simple)
    ]
    assert each[0][0] < each[1][0]
    assert each[0][1] > each[1][1]


def test_a_model_without_a_residual_is_its_laws() -> None:
    model = CollectiveModel(laws=(law("ring_simple"),), residual=None, from_bytes=())
    sizes = np.array([1e4, 1e6, 1e8])
    expected = fastest_seconds(
        model.laws, operation=Collective.ALL_REDUCE, message_bytes=sizes, participants=4, bytes_per_s=LINK
    )
    found = model_seconds(model, operation=Collective.ALL_REDUCE, message_bytes=sizes, participants=4, bytes_per_s=LINK)
    assert np.array_equal(found, expected)


def test_a_calibration_file_s_names_become_laws_thresholds_and_a_residual() -> None:
    model = read_model(
        {
            "ring_simple.launch_s": 3e-6,
            "ring_simple.hop_s": 1e-6,
            "ring_simple.fraction": 0.8,
            "from_bytes.p8": 65536.0,
            "residual.p8.10": 0.1,
            "residual.p8.20": -0.1,
        }
    )
    assert model.laws == (law("ring_simple"),)
    assert model.from_bytes == ((8, 65536.0),)
    assert model.residual is not None
    seconds = model_seconds(
        model,
        operation=Collective.ALL_REDUCE,
        message_bytes=np.array([2.0**10, 2.0**20]),
        participants=8,
        bytes_per_s=LINK,
    )
    plain = fastest_seconds(
        model.laws,
        operation=Collective.ALL_REDUCE,
        message_bytes=np.array([2.0**10, 2.0**20]),
        participants=8,
        bytes_per_s=LINK,
    )
    assert np.log(seconds / plain) == pytest.approx([0.1, -0.1])


def test_an_unknown_algorithm_in_a_file_is_refused() -> None:
    with pytest.raises(Exception, match="ring_new"):
        read_model({"ring_new.launch_s": 1e-6, "ring_new.hop_s": 1e-6, "ring_new.fraction": 0.5})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"residual.p8": 0.1}, "'residual.p8' names no size"),
        ({"residual.p0.10": 0.1}, "names no size"),
        ({"residual.p\u0668.10": 0.1}, "names no size"),
        ({"from_bytes": 65536.0}, "names no size"),
        ({"residual.p8.10": 0.1, "residual.p4.20": 0.1}, "lacks residual.p4.10"),
    ],
)
def test_sizes_that_a_file_does_not_say_are_refused_by_name(changed: dict[str, float], said: str) -> None:
    known = {"ring_simple.launch_s": 3e-6, "ring_simple.hop_s": 1e-6, "ring_simple.fraction": 0.8}
    with pytest.raises(RoofcastError, match=said):
        read_model({**known, **changed})
