"""Fewer bits need fewer devices, and leave room for more sequences and a higher rate."""

from __future__ import annotations

from simulator.published.kv_waste import bitnet_batch_ratio, bitnet_throughput_ratio, devices_needed


def test_three_bits_need_a_quarter_of_the_devices_or_fewer() -> None:
    for hardware in ("a6000", "a100-sxm-80gb"):
        assert devices_needed(hardware, "gptq-3bit") <= devices_needed(hardware, "fp16") / 4


def test_room_grows_by_more_than_weights_shrink_and_the_rate_by_less_than_the_batch() -> None:
    assert bitnet_batch_ratio() > 16 / 1.58 / 2
    assert 1.0 < bitnet_throughput_ratio() < 176 / 16
