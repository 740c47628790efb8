"""Rows of the experts' tables: which version and kernel is fitted, and what the busiest rank carries."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.hardware.calibration import load_calibration
from validation.fit.kernels.moe import bounds_on, search_bounds
from validation.fit.kernels.moe_rows import (
    KernelGroup,
    busiest_rank_load,
    exchanged_group,
    kernel_groups,
    moe_rows,
    table_of,
)
from validation.silicon.formats import EXPERT_FORMATS
from validation.silicon.tables import Table


def table(version: str, *, tokens: range, seconds: float = 1e-4, **columns: object) -> Table:
    fields = {
        "moe_dtype": "bfloat16",
        "num_tokens": list(tokens),
        "hidden_size": 4096,
        "inter_size": 1536,
        "topk": 8,
        "num_experts": 128,
        "moe_tp_size": 1,
        "moe_ep_size": 1,
        "distribution": "balanced",
        "kernel_source": "usual",
        "seconds": seconds,
    }
    return Table(hardware="h100-sxm-80gb", library="vllm", version=version, rows=pd.DataFrame(fields | columns))


def test_the_newest_table_is_taken_unless_it_holds_little_of_what_an_older_one_holds() -> None:
    rich, small = table("1.0", tokens=range(1, 101)), table("2.0", tokens=range(1, 11))
    large = table("3.0", tokens=range(1, 61))
    assert table_of([rich, small], moe_dtype="bfloat16") is rich
    assert table_of([rich, small, large], moe_dtype="bfloat16") is large
    assert table_of([rich], moe_dtype="nvfp4") is None


def test_an_older_table_of_another_kernel_speed_is_not_taken() -> None:
    rich, faster = table("1.0", tokens=range(1, 101)), table("2.0", tokens=range(1, 11), seconds=3e-5)
    other_model = table("2.0", tokens=range(1, 11), seconds=3e-5, hidden_size=7168)
    assert table_of([rich, faster], moe_dtype="bfloat16") is faster
    assert table_of([rich, other_model], moe_dtype="bfloat16") is rich


def test_ranks_that_ran_the_load_of_all_are_left_out() -> None:
    """SGLang 0.5.10's benchmark did not divide its pairs among up to eight ranks."""
    rows = pd.concat([table("0.5.10", tokens=range(1, 11), moe_ep_size=ranks).rows for ranks in (1, 8)])
    for library, ranks in (("sglang", {1}), ("vllm", {1, 8})):
        found = table_of([Table(hardware="a100", library=library, version="0.5.10", rows=rows)], moe_dtype="bfloat16")
        assert found is not None
        assert set(found.rows["moe_ep_size"]) == ranks


def test_whole_rows_of_a_table_whose_ranks_ran_another_load_stand_beside_those_of_the_newest() -> None:
    """Ranks that took 4 times as long as the newest table's had kept nine models of W4A16 out of SGLang's fits."""
    parts = [table("", tokens=range(1, 41), hidden_size=size) for size in (2048, 4096, 6144)]
    ranks = {"moe_ep_size": 8}
    known = table("0.5.14", tokens=range(1, 41), **ranks).rows
    other = table("0.5.10", tokens=range(1, 41), seconds=4e-4, **ranks).rows
    older = pd.concat([*(part.rows for part in parts), other], ignore_index=True)
    newest = pd.concat([table("", tokens=range(1, 11)).rows, known], ignore_index=True)
    tables = [
        Table(hardware="h100", library="sglang", version=version, rows=rows)
        for version, rows in (("0.5.10", older), ("0.5.14", newest))
    ]
    found = table_of(tables, moe_dtype="bfloat16")
    assert found is not None
    groups = {group.variant: group.rows for group in kernel_groups(moe_rows(found.rows, moe_dtype="bfloat16"))}
    assert {variant: len(rows) for variant, rows in groups.items()} == {"": 40 + 10 + 40, "expert_parallel": 40}
    assert set(groups["expert_parallel"]["seconds"]) == {1e-4}


def test_prompts_that_a_host_issues_count_from_twice_the_shortest_on(tmp_path: Path) -> None:
    for name, milliseconds in (("generation", [0.1, 0.2]), ("context", [0.4, 3.0])):
        rows = table("1.0", tokens=range(1024, 1026), moe_ep_size=8, distribution="uniform").rows.drop(
            columns="seconds"
        )
        folder = tmp_path / "h100_sxm" / "moe" / "sglang" / "1.0"
        folder.mkdir(parents=True, exist_ok=True)
        rows.assign(latency=milliseconds).to_parquet(folder / f"wideep_{name}_moe_perf.parquet")
    found = exchanged_group(tmp_path, hardware="h100-sxm-80gb", library="sglang", moe_dtype="bfloat16")
    assert found is not None
    version, group = found
    assert (version, group.variant) == ("1.0", "exchanged")
    assert sorted(group.rows["seconds"]) == pytest.approx([1e-4, 2e-4, 3e-3])
    assert exchanged_group(tmp_path, hardware="gb200", library="sglang", moe_dtype="bfloat16") is None


def test_kernels_that_a_layer_can_tell_apart_are_fitted_apart() -> None:
    parts = [
        table("1.0", tokens=range(1, 41)),
        table("1.0", tokens=range(1, 61), moe_ep_size=8, kernel_source="spread"),
        table("1.0", tokens=range(1, 21), hidden_size=2688, inter_size=1856, kernel_source="two_matrices"),
        table("1.0", tokens=range(1, 11), hidden_size=2816, inter_size=704, kernel_source="by_routing"),
    ]
    rows = moe_rows(pd.concat([part.rows for part in parts], ignore_index=True), moe_dtype="bfloat16")
    groups = {group.variant: group.rows for group in kernel_groups(rows)}
    assert {variant: len(found) for variant, found in groups.items()} == {
        "": 40,
        "expert_parallel": 60,
        "not_gated": 20,
    }
    assert set(groups["expert_parallel"]["moe_ep_size"]) == {8}
    one_kernel = rows[rows["kernel_source"] == "usual"]
    assert [group.variant for group in kernel_groups(one_kernel)] == [""]


def test_the_busiest_rank_carries_more_than_its_share_and_no_more_than_everything() -> None:
    for ranks in (2, 8, 32, 128):
        pairs, distinct = busiest_rank_load(512, experts=128, top_k=8, ranks=ranks, exponent=1.2)
        assert 512 * 8 / ranks < pairs < 512 * 8
        assert 1 <= distinct <= 128 / ranks
    everything, reached = busiest_rank_load(512, experts=128, top_k=8, ranks=1, exponent=1.01)
    assert everything == pytest.approx(512 * 8, rel=0.02)  # an expert takes no token twice
    assert 100 < reached <= 128


def test_skewed_rows_of_few_pairs_are_left_to_ranks_that_hold_all_experts() -> None:
    parts = [table("1.0", tokens=range(8, 25, 16), distribution="power_law_1.2", moe_ep_size=ranks) for ranks in (1, 4)]
    rows = moe_rows(pd.concat([part.rows for part in parts], ignore_index=True), moe_dtype="bfloat16")
    assert sorted(zip(rows["moe_ep_size"], rows["num_tokens"], strict=True)) == [(1, 8), (1, 24), (4, 24)]
    busy = rows[rows["moe_ep_size"] == 4].iloc[0]
    assert busy["assignments"] > 24 * 8 / 4


def test_a_search_starts_from_the_last_fit_of_the_chip_that_watts_are_taken_from() -> None:
    group = KernelGroup(variant="", rows=pd.DataFrame())
    block = next(format for format in EXPERT_FORMATS.values() if format.name == "fp8_block")
    measured, other = load_hardware("b200-sxm"), load_hardware("b300-sxm")
    calibration = load_calibration(measured.name, library="vllm", group="moe")
    assert calibration is not None
    (fit,) = (fit for fit in calibration.fits if fit.format == block.name)
    for chip in (measured, other):
        found = search_bounds(group, hardware=chip, library="vllm", format=block)
        assert {name: bound.start for name, bound in found.items()} == fit.parameters
    assert search_bounds(group, hardware=other, library="atom", format=block) == bounds_on(other)


@pytest.mark.parametrize(("library", "sibling"), [("vllm", "b300-sxm"), ("sglang", "gb200"), ("trtllm", "b300-sxm")])
def test_siblings_run_a_kernel_at_shares_of_the_peak_that_power_can_compare(library: str, sibling: str) -> None:
    shares = []
    for name in ("b200-sxm", sibling):
        calibration = load_calibration(name, library=library, group="moe")
        assert calibration is not None
        (fit,) = (fit for fit in calibration.fits if (fit.format, fit.variant) == ("fp8_block", ""))
        shares.append(fit.parameters["compute_fraction"])
    assert shares[1] == pytest.approx(shares[0], rel=0.25)
