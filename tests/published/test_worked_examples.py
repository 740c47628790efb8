"""``simulator.published.worked_examples``, ``.structure`` and ``.context_parallel``: their tables and laws."""

from __future__ import annotations

import pytest

from simulator.published import structure, worked_examples
from simulator.published.figures import PublishedFigure, rows_of
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.precision import Dtype

TABLES = {"worked_examples.csv": worked_examples, "structure_figures.csv": structure}


def figure(name: str) -> PublishedFigure:
    return next(item for module in TABLES.values() for item in module.figures() if item.name == name)


@pytest.mark.parametrize("table", TABLES)
def test_every_row_is_computed_and_everything_computed_has_a_row(table: str) -> None:
    names = [row["name"] for row in rows_of(table)]
    assert sorted(names) == sorted(TABLES[table].COMPUTED)
    assert [item.name for item in TABLES[table].figures()] == names


class TestTraining:
    def test_six_flops_a_parameter_and_token(self) -> None:
        # 175 billion parameters and 300 billion tokens are 3.14e23 FLOPs [Brown2020].
        assert worked_examples.training_flops(parameters=174.6e9, tokens=300e9) == pytest.approx(3.14e23, rel=0.002)

    def test_compute_at_the_optimum_grows_with_the_square_of_the_model(self) -> None:
        def best(parameters: float) -> float:
            tokens = worked_examples.CHINCHILLA_TOKENS_PER_PARAMETER * parameters
            return worked_examples.training_flops(parameters=parameters, tokens=tokens)

        assert best(2e9) / best(1e9) == 4
        # Chinchilla itself: 70 billion parameters on 1.4 trillion tokens.
        assert best(70e9) == 6 * 70e9 * 1.4e12


class TestStructure:
    def test_positions_of_two_of_four_are_two_bits_each(self) -> None:
        # 2:4 keeps two of four values and two bits a place for each: of 16 bits 2/16, of 8 bits 2/8.
        assert figure("sparse_metadata_16_bit").predict() == pytest.approx(2 / 16)
        assert figure("sparse_metadata_8_bit").predict() == pytest.approx(2 / 8)

    def test_a_cache_by_hand(self) -> None:
        # Keys and values, 32 layers, 32 heads of 128 numbers in 2 bytes, 262,144 tokens.
        assert figure("kv_256k_llama_2_7b").predict() == 2 * 32 * 32 * 128 * 2 * 262_144 / 2**30
        # A window of 4,096 of 32,768 tokens.
        assert figure("mistral_window_saving").predict() == pytest.approx(8, rel=0.01)

    def test_tiles_trade_flops_for_traffic(self) -> None:
        ratio = figure("flash_hbm_standard").predict() / figure("flash_hbm_tiled").predict()
        assert figure("flash_hbm_ratio").predict() == pytest.approx(ratio)
        assert figure("flash_flops_ratio").predict() > 1
        speedup = figure("flash_ms_standard").predict() / figure("flash_ms_tiled").predict()
        assert figure("flash_speedup").predict() == pytest.approx(speedup)
        # What attention saves is diluted by everything else, the more the smaller its share.
        assert 1 < figure("flash_training_medium").predict() < speedup

    def test_small_layers_grow_slower_than_the_square_of_their_width(self) -> None:
        small, large = figure("encoder_exponent_to_512").predict(), figure("encoder_exponent_from_512").predict()
        assert 0 < small < large < 2


class TestContextParallel:
    def test_time_grows_faster_than_the_length_and_slower_than_its_square(self) -> None:
        ratio = structure.MILLION / 131_072
        assert ratio < structure.million_s() / structure.shorter_s() < ratio**2

    def test_utilisation_is_flops_over_time_and_peak_of_all_devices(self) -> None:
        devices = structure.SERVERS * structure.SERVER_SIZE
        # 2 FLOPs a parameter and token; scores and sums over half of the context, 126 layers of 16,384.
        tokens = structure.MILLION
        flops = 2 * 403e9 * tokens + 4 * 126 * 16_384 * tokens**2 / 2
        expected = flops / (structure.million_s() * devices * structure.PEAK_FLOPS_PER_S)
        assert structure.million_mfu() == pytest.approx(expected, rel=0.01)

    def test_nothing_runs_faster_than_its_attention_kernel_alone_or_the_peak(self) -> None:
        assert 0 < structure.million_mfu() < 1
        assert 0.5 < structure.million_efficiency() < 1.1
        assert load_hardware("h100").peak_flops_per_s[Dtype.BF16] > structure.PEAK_FLOPS_PER_S
