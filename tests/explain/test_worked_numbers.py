"""Worked examples against numbers by hand: Llama-3.1-8B on an H100, 16 sequences of 1,024 tokens.

``simulator.explain.hardware``, ``.decoding``, ``.cache``, ``.formats``, ``.scale``, and their tables and charts.
"""

from __future__ import annotations

from functools import cache as kept
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from simulator.errors import RoofcastError
from simulator.explain import topic
from simulator.explain.catalogue import topic_named, worked_blocks
from simulator.explain.topic import Example
from simulator.reports.content import document as doc
from simulator.reports.content.document import Cell, CellKind, Facts, Figure, Table
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model

WEIGHTS = 8.030e9
KV_BYTES_PER_TOKEN = 2 * 32 * 8 * 128 * 2
BATCH, CONTEXT = 16, 1024
LAST = 128_256 * 4096
"""Weights of the LM head; as many are in the embedding, which a step does not multiply."""

Rows = list[dict[str, Any]]


@kept
def worked(topic: str, *, model: str = "llama-3.1-8b", device: str = "h100", batch: int = BATCH) -> tuple[Any, ...]:
    example = Example(model=load_model(model), hardware=load_hardware(device), batch_size=batch, context_tokens=CONTEXT)
    return worked_blocks(topic_named(topic), example)


def table(topic: str, key: str, **of: Any) -> Rows:
    """A worked table, a mapping of headings to values for each row."""
    found = next(item for item in worked(topic, **of) if isinstance(item, Table) and item.key == key)
    return [
        {column.title: cell.value for column, cell in zip(found.columns, row.cells, strict=True)} for row in found.rows
    ]


def facts(topic: str, **of: Any) -> dict[str, Any]:
    return {
        item.key: item.cell.value for found in worked(topic, **of) if isinstance(found, Facts) for item in found.facts
    }


def column(rows: Rows, name: str) -> list[Any]:
    return [row[name] for row in rows]


class TestBlocks:
    def test_headings_stand_in_a_line_and_a_colon_makes_words(self) -> None:
        found = doc.table("key", "Title", "phase: | TPOT", [("decode", 1.5), ("prefill", None)])
        assert [(item.title, item.numeric) for item in found.columns] == [("phase", False), ("TPOT", True)]
        assert [[cell.value for cell in row.cells] for row in found.rows] == [["decode", 1.5], ["prefill", None]]

    def test_columns_of_unequal_length_are_refused(self) -> None:
        with pytest.raises(ValueError, match="argument 2 is shorter"):
            topic.columns_table("key", "Title", {"a": [1.0, 2.0], "b": [1.0]})

    def test_cells_say_what_kind_of_number_they_are(self) -> None:
        assert isinstance(doc.as_cell(2.0), Cell)
        assert [item.kind for item in topic.shares([0.5]) if isinstance(item, Cell)] == [CellKind.FRACTION]
        assert [item.unit for item in topic.times([0.5]) if isinstance(item, Cell)] == ["s"]
        assert [item.digits for item in topic.whole([3.0]) if isinstance(item, Cell)] == [0]

    def test_axes_take_their_unit_and_scale_from_their_text(self) -> None:
        chart = topic.lines("key", "T", x="log Batch", y="TPOT [ms]", at=[1, 2], of={"a": [1.0, 2.0]}).chart
        assert (chart.x.title, chart.x.unit, chart.x.log) == ("Batch", "", True)
        assert (chart.y.title, chart.y.unit, chart.y.log) == ("TPOT", "ms", False)
        assert topic.bars("key", "T", y="Rate [1/s]", names=["x"], of={"a": [1.0]}).chart.y.unit == "1/s"

    def test_a_fact_is_found_by_its_key(self) -> None:
        (found,) = topic.facts(("size", "Size", 3.0)).facts
        assert (found.key, found.cell.value) == ("size", 3.0)


class TestHardware:
    def test_ridges_are_peak_over_bandwidth(self) -> None:
        found = facts("roofline")
        # H100 SXM: 989.4 TFLOP/s dense in bf16, twice that in fp8, 3.35 TB/s.
        assert found["ridge_bf16"] == pytest.approx(989.4 / 3.35)
        assert found["ridge_fp8"] == pytest.approx(1978.9 / 3.35)
        levels = table("roofline", "levels")
        ridges = column(levels, "ridge bf16")
        assert ridges == sorted(ridges), "the farther a level, the more FLOPs each of its bytes has to be worth"

    def test_intensity_of_a_product_by_hand(self) -> None:
        rows = {(row["phase"], row["operator"]): row for row in table("arithmetic-intensity", "operators")}
        gate_up = rows["decode", "gate_up_proj"]
        weights = 32 * 4096 * 28672
        assert gate_up["GFLOP"] == pytest.approx(2 * weights * BATCH / 1e9)
        moved = 2 * weights + 2 * 32 * BATCH * (4096 + 28672)
        assert gate_up["GB"] == pytest.approx(moved / 1e9)
        assert gate_up["FLOP/byte"] == pytest.approx(2 * weights * BATCH / moved)
        assert gate_up["side"] == "memory"
        assert rows["prefill", "gate_up_proj"]["side"] == "compute"
        crossing = {row["format"]: row["sequences"] for row in table("arithmetic-intensity", "crossover")}
        # FP8 halves the bytes and doubles the rate, INT4 weights alone quarter the bytes.
        assert crossing["gptq-g128"] < crossing["bf16"] < 1.3 * facts("roofline")["ridge_bf16"]

    def test_utilisation_is_what_is_moved_over_time_and_bandwidth(self) -> None:
        (row,) = table("mbu-mfu", "utilisation")
        read = 2 * (WEIGHTS - LAST) + BATCH * CONTEXT * KV_BYTES_PER_TOKEN
        assert row["GB read"] == pytest.approx(read / 1e9, rel=2e-3)
        assert row["MBU"] == pytest.approx(read / (row["TPOT"] * 3.35e12), rel=2e-3)
        assert row["MFU"] == pytest.approx(2 * (WEIGHTS - LAST) * BATCH / (row["TPOT"] * 989.4e12), rel=0.05)

    def test_energy_adds_up(self) -> None:
        for row in table("energy", "tokens"):
            assert sum(row[part] for part in ("memory", "arithmetic", "being busy", "idle")) == pytest.approx(
                row["all"]
            )
        prefill, decode = table("energy", "tokens")
        assert decode["all"] > prefill["all"], "a token that is generated reads all weights"
        by_name = {row["operation"]: row for row in table("energy", "operations")}
        assert by_name["DRAM"]["pJ"] > 100 * by_name["8 KB SRAM"]["pJ"]

    def test_fused_kernels_move_less_in_less_time(self) -> None:
        fused, unfused = table("fusion", "fusion")
        assert fused["GB moved"] < unfused["GB moved"]
        assert fused["time"] < unfused["time"]

    def test_a_wide_layer_tends_to_the_square_of_its_width(self) -> None:
        exponents = column(table("latency-width", "width"), "local exponent")[1:]
        assert exponents == sorted(exponents)
        assert exponents[-1] < 2


class TestDecoding:
    def test_flops_of_both_phases(self) -> None:
        prefill, decode = table("prefill-decode", "phases")
        products = 2 * (WEIGHTS - 2 * LAST) * CONTEXT + 2 * LAST
        # A token sees half of the prompt on average: scores and values, 2 FLOPs each, of 32 layers of 4,096.
        seen = 4 * 32 * 4096 * CONTEXT * (CONTEXT + 1) / 2
        assert prefill["GFLOP"] == pytest.approx((products + seen) / 1e9, rel=1e-3)
        step = 2 * (WEIGHTS - LAST) * BATCH + 4 * 32 * 4096 * CONTEXT * BATCH
        assert decode["GFLOP"] == pytest.approx(step / 1e9, rel=1e-3)
        assert (prefill["bound"], decode["bound"]) == ("tensor core", "memory")

    def test_all_that_fits_is_the_cache_over_a_sequence(self) -> None:
        offline, online = table("offline-online", "offline")
        tokens = next(row["tokens"] for row in table("memory", "memory") if row["format"] == "bf16")
        assert offline["batch"] == tokens // CONTEXT
        assert online["TPOT"] <= 1 / facts("offline-online")["reading"]
        for row in (offline, online):
            assert row["tokens/s"] == pytest.approx(row["batch"] / row["TPOT"])

    def test_what_holds_no_sequence_is_refused(self) -> None:
        with pytest.raises(RoofcastError, match="does not fit one"):
            worked("offline-online", model="llama-3.1-70b", device="l4")

    def test_static_batches_wait_for_their_longest_answer(self) -> None:
        rates = {row["scheduler"]: row["tokens/s"] for row in table("batching", "batching")}
        assert rates["static batches"] < min(rates["whole prompts first"], rates["chunked beside"])

    def test_waits_are_those_of_pollaczek_and_khinchin(self) -> None:
        service_s = facts("queueing")["service"]
        for row in table("queueing", "queue"):
            load = row["load"]
            wait_s = load / (1 - load) * service_s
            assert row["exponential lengths"] == pytest.approx(wait_s), "M/M/1"
            assert row["equal prompts"] == pytest.approx(wait_s / 2), "M/D/1"

    def test_tokens_of_a_round_are_a_geometric_sum(self) -> None:
        for row in table("acceptance", "acceptance"):
            chance = row["acceptance"]
            for guesses in (1, 2, 4, 8):
                expected = (1 - chance ** (guesses + 1)) / (1 - chance)
                assert row[f"k = {guesses}"] == pytest.approx(expected)
            assert row["one of two guesses"] == pytest.approx(1 - (1 - chance) ** 2)

    def test_speculation_gains_less_in_a_large_batch(self) -> None:
        for row in table("speculation", "methods"):
            assert row["at 256"] < row["speedup at 1"] <= row["tokens a step"]

    def test_unions_over_a_batch_by_hand(self) -> None:
        for row in table("contextual-sparsity", "deja-vu"):
            assert row["heads read"] == pytest.approx(1 - 0.5 ** row["batch"])
            assert row["neurons read"] == pytest.approx(1 - 0.8 ** row["batch"])
        layers = {row["batch"]: row["layers that run"] for row in table("early-exit", "exit")}
        assert layers[1] == pytest.approx(0.5, abs=0.01)
        assert all(earlier <= later for earlier, later in pairwise(layers.values()))

    def test_a_batch_reads_more_of_the_experts(self) -> None:
        rows = table("experts", "experts")
        for row in rows:
            assert row["experts read"] <= min(4, row["batch"])
        assert column(rows, "experts read") == sorted(column(rows, "experts read"))
        assert facts("experts")["active"] < facts("experts")["total"]


class TestCache:
    def test_bytes_of_a_token_by_hand(self) -> None:
        assert facts("kv-cache")["kv_bytes_per_token"] == KV_BYTES_PER_TOKEN / 1024
        for row in table("kv-cache", "kv"):
            assert row["GB of a sequence"] == pytest.approx(row["tokens"] * KV_BYTES_PER_TOKEN / 1e9)
            assert row["GB of 16"] == pytest.approx(16 * row["GB of a sequence"])

    def test_heads_share_the_cache(self) -> None:
        rows = {row["attention"]: row for row in table("attention-heads", "heads")}
        assert [rows[name]["KiB a token"] for name in ("MHA", "GQA", "MQA")] == [512, 128, 16]
        assert rows["MQA"]["TPOT"] < rows["GQA"]["TPOT"] < rows["MHA"]["TPOT"]

    def test_memory_adds_up_to_its_budget(self) -> None:
        for row in table("memory", "memory"):
            parts = sum(row[part] for part in ("weights", "activations", "reserve", "KV cache"))
            assert parts == pytest.approx(row["budget"])
            assert row["tokens"] == pytest.approx(row["KV cache"] * 1e9 / KV_BYTES_PER_TOKEN, abs=16)

    def test_shares_of_an_allocation_make_the_whole(self) -> None:
        for row in table("paged-attention", "paged"):
            whole = sum(row[part] for part in ("used", "reserved", "internal waste", "external waste"))
            assert whole == pytest.approx(1)
        used = column(table("paged-attention", "paged"), "used")
        assert used == sorted(used)

    def test_evicted_tokens_take_no_memory(self) -> None:
        rows = table("kv-eviction", "eviction")
        whole = rows[0]["MB of a sequence"]
        assert whole == pytest.approx(CONTEXT * KV_BYTES_PER_TOKEN / 1e6)
        for row in rows[1:]:
            assert row["MB of a sequence"] == pytest.approx(204 / CONTEXT * whole, rel=0.01)
            assert row["sequences that fit"] > 4.9 * rows[0]["sequences that fit"]

    def test_flash_attention_computes_more_and_moves_less(self) -> None:
        standard, flash = table("flash-attention", "flash")
        assert flash["GFLOP"] > standard["GFLOP"]
        assert facts("flash-attention")["saved"] == pytest.approx(standard["GB"] / flash["GB"])
        for row in (standard, flash):
            assert row["GB"] == pytest.approx(row["GB forward"] + row["GB backward"])

    def test_attention_takes_over_in_a_long_context(self) -> None:
        shares = column(table("long-context", "long"), "attention's share")
        assert shares == sorted(shares)
        assert shares[0] < 0.1 < 0.5 < shares[-1] < 1

    def test_weights_in_host_memory_come_over_its_link(self) -> None:
        rows = table("offload", "offload")
        for row in rows:
            moved = (rows[0]["GB of weights"] - row["GB of weights"]) * 1e9
            assert row["TPOT"] - rows[0]["TPOT"] == pytest.approx(moved / 64e9, rel=0.01)

    def test_state_of_a_mixer_grows_with_what_it_keeps(self) -> None:
        state = {(row["layer"], row["tokens"]): row["MB of state"] for row in table("sequence-mixers", "mixers")}
        lengths = sorted({tokens for _, tokens in state})
        growth = {name: state[name, lengths[-1]] / state[name, lengths[0]] for name, _ in state}
        assert growth["attention"] == lengths[-1] / lengths[0]
        assert growth["recurrent"] == growth["linear attention"] == 1


class TestFormats:
    def test_largest_values_by_hand(self) -> None:
        largest = {row["format"]: row["largest"] for row in table("number-formats", "ranges")}
        assert largest["fp16"] == (2 - 2**-10) * 2**15
        assert largest["bf16"] == (2 - 2**-7) * 2.0**127
        assert (largest["fp8 E4M3"], largest["fp8 E5M2"]) == (448, 57344)
        assert (largest["fp4 E2M1"], largest["int4"]) == (6, 7)

    def test_scales_of_a_granularity_by_hand(self) -> None:
        rows = {row["granularity"]: row for row in table("quantization-granularity", "granularity")}
        assert rows["per tensor"]["scales"] == 4 * 32
        assert rows["per channel"]["scales"] == 32 * (4096 + 2 * 1024 + 4096 + 2 * 14336 + 4096)
        assert rows["groups of 128"]["int4 with scales"] == 4 + 16 / 128
        assert rows["groups of 32"]["and zero points of 16 bits"] == 4 + 2 * 16 / 32

    @pytest.mark.parametrize("topic", ["weight-quantization", "activation-quantization"])
    def test_the_dense_model_is_the_measure(self, topic: str) -> None:
        rows = table(topic, "speed")
        assert rows[0]["decodes faster by"] == 1
        for row in rows:
            assert row["decodes faster by"] == pytest.approx(rows[0]["TPOT"] / row["TPOT"])
            # Embeddings stay as they are, so that the whole shrinks by no more than the format does.
            assert 1 <= rows[0]["GB of weights"] / row["GB of weights"] <= 16 / row["bits a weight"]

    def test_bits_of_a_pruned_weight_by_hand(self) -> None:
        found = facts("pruning")
        # Half of 16 bits and two bits of place for each kept one; with a bitmap a bit for every one.
        assert found["bits_2_4"] == 16 / 2 + 2 / 2
        assert found["bits_2_4_int8"] == 8 / 2 + 2 / 2
        assert found["bits_bitmap"] == 16 / 2 + 1
        for row in table("pruning", "pruning")[1:]:
            assert row["GB of weights"] < 16.06

    def test_inverses_for_every_row_cost_the_most(self) -> None:
        cost = {row["method"]: row["10^12 operations"] for row in table("preparation-cost", "preparation")}
        assert cost["wanda"] < cost["sparsegpt"] == cost["gptq"] < cost["obs"]


class TestScale:
    def test_pools_are_as_large_as_their_work(self) -> None:
        rows = table("disaggregation", "pools")
        for row in rows:
            alone, tokens = row["TPOT in a pool of its own"], row["answer's tokens"]
            # What prompts add to a token in one pool is the time that their own replicas take.
            assert row["TPOT in one pool"] == pytest.approx(alone * (1 + row["prefill replicas a decode replica"]))
            work = tokens * row["prefill replicas a decode replica"]
            assert work == pytest.approx(rows[0]["answer's tokens"] * rows[0]["prefill replicas a decode replica"])

    def test_a_cache_takes_its_bytes_over_the_link(self) -> None:
        sent = {row["link"]: row for row in table("disaggregation", "transfer")}
        whole = sent["400 Gb/s network"]["after the prompt"]
        assert whole == pytest.approx(CONTEXT * KV_BYTES_PER_TOKEN / 50e9)
        assert sent["100 Gb/s network"]["after the prompt"] == pytest.approx(4 * whole)
        assert sent["400 Gb/s network"]["layer by layer"] == pytest.approx(whole / 32)

    def test_ranks_share_weights_and_send_what_one_does_not(self) -> None:
        rows = {(row["degree"], row["phase"]): row for row in table("parallelism", "parallelism")}
        one, two, eight = (rows[f"TP {degree}", "decode"] for degree in (1, 2, 8))
        assert one["MB of messages"] == 0
        assert two["GB of weights a device"] == pytest.approx(one["GB of weights a device"] / 2, rel=0.001)
        assert eight["step"] > one["step"] / 8, "ranks wait for each other"
        # Two sums of activations a layer, 16 rows of 4,096 numbers, and the logits' parts.
        assert two["MB of messages"] >= 2 * 32 * BATCH * 4096 * 2 / 1e6

    def test_what_is_cached_is_not_computed(self) -> None:
        rows = table("prefix-cache", "prefixes")
        rates = column(rows, "rate for the same GPUs, if answers are cached")
        for row, rate in zip(rows, rates, strict=True):
            assert rate == pytest.approx(1 / (1 - row["share cached"]))
            assert 1 <= row["faster by"] <= rate + 1e-9

    def test_memory_of_training_by_hand(self) -> None:
        rows = {row["method"]: row for row in table("fine-tuning", "tuning")}
        assert rows["full"]["optimizer"] == pytest.approx(12 * WEIGHTS / 1e9, rel=1e-3)
        # Rank 16 on the seven products: r (in + out) each, of 32 layers.
        sides = 2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336)
        assert rows["lora"]["million trained"] == pytest.approx(32 * 16 * sides / 1e6)
        for row in rows.values():
            parts = sum(row[part] for part in ("weights", "gradients", "optimizer", "activations"))
            assert parts == pytest.approx(row["all"])

    def test_adapters_in_a_batch_are_drawn_with_replacement(self) -> None:
        for row in table("adapters", "adapters"):
            assert row["adapters used"] == pytest.approx(100 * (1 - 0.99 ** row["batch"]))
            assert row["one, merged"] == row["none"] < row["100 adapters"]

    def test_fewer_layers_are_faster_by_less_than_their_number(self) -> None:
        rows = table("distillation", "students")
        faster = column(rows, "last faster by")
        assert faster == sorted(faster)
        assert faster[-1] < 4

    def test_training_takes_six_flops_a_weight_and_token(self) -> None:
        rows = table("training-cost", "training")
        for row in rows:
            assert row["FLOP"] == pytest.approx(
                6 * facts("training-cost")["active"] * 1e9 * row["billion tokens"] * 1e9
            )
            hours = row["FLOP"] / (facts("training-cost")["mfu"] * 989.4e12) / 3600
            assert row["h100-sxm-80gb hours"] == pytest.approx(hours)
        assert rows[0]["billion tokens"] == pytest.approx(20 * WEIGHTS / 1e9, rel=1e-3)

    def test_late_interaction_keeps_a_vector_a_token(self) -> None:
        index = {row["interaction"]: row["GB of index"] for row in table("retrieval", "retrieval", model="bert-base")}
        assert index["cross encoder"] == 0
        assert index["single vector"] < index["coil"] < index["colbert"]


def test_every_chart_has_finite_numbers_in_its_lines() -> None:
    for name in ("roofline", "queueing", "kv-cache", "prefix-cache", "acceptance"):
        charts = [item.chart for item in worked(name) if isinstance(item, Figure)]
        assert charts
        for chart in charts:
            for series in chart.series:
                values = np.array([value for value in series.y if isinstance(value, int | float)], dtype=np.float64)
                assert np.isfinite(values).all()
