"""Runs of InferenceX as scenarios: every row is understood, and becomes what its launch script ran."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.errors import RoofcastError
from simulator.specs.base import validate
from simulator.specs.question.scenario import ScenarioSpec
from validation.end_to_end.__main__ import main
from validation.end_to_end.measured.inferencex import TodayRun, load_disaggregated, load_inferencex
from validation.end_to_end.today import thinned, without_recipe

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
COLUMNS = "hardware,n_gpus,model,engine,weight_dtype,tp,ep,batch_or_concurrency,isl,osl,metric,value,notes"
NOTES = "config_id={}; mode={}; spec=none; tp{} ep{} dp_attention{}"


def written(folder: Path, *rows: str) -> Path:
    (folder / "today").mkdir(parents=True)
    (folder / "today" / "inferencex.csv").write_text("\n".join((COLUMNS, *rows)) + "\n", encoding="utf-8")
    return folder


def row(
    metric: str, value: float, *, mode: str = "agg", engine: str = "vllm", layout: str = "4 4 0", clients: int = 64
) -> str:
    tp, ep, attention = layout.split()
    notes = NOTES.format(7, mode, tp, ep, attention)
    return f"B200 SXM,4,openai/gpt-oss-120b,{engine},mxfp4,{tp},{ep},{clients},8192,1024,{metric},{value},{notes}"


def test_values_of_one_deployment_become_one_run_in_si_units(tmp_path: Path) -> None:
    rows = (row("tpot_ms", 5.0), row("throughput_tok_s_per_gpu", 1000.0), row("energy_per_output_token_j", 0.5))
    (found,) = load_inferencex(written(tmp_path, *rows))
    assert found.run.measured == pytest.approx(
        {"tpot_p50_s": 0.005, "total_tokens_per_s": 4000.0, "energy_per_output_token_j": 0.5}
    )
    scenario = found.run.scenario
    assert (scenario["isl_tokens"], scenario["osl_tokens"]) == (8192, 1024)
    assert (scenario["concurrency"], scenario["num_requests"]) == (64, 640)


def test_a_run_that_stood_still_says_only_its_time_per_token(tmp_path: Path) -> None:
    speeds = {64: 1000.0, 128: 150.0, 256: 210.0}
    rows = [row("throughput_tok_s_per_gpu", speed, clients=clients) for clients, speed in speeds.items()]
    rows += [row("tpot_ms", 5.0, clients=clients) for clients in speeds]
    known = {
        run.run.scenario["concurrency"]: "total_tokens_per_s" in run.run.measured
        for run in load_inferencex(written(tmp_path, *rows))
    }
    assert known == {64: True, 128: False, 256: True}


def test_attention_data_parallelism_shards_experts_over_the_same_devices(tmp_path: Path) -> None:
    (found,) = load_inferencex(written(tmp_path, row("tpot_ms", 5.0, layout="8 8 1")))
    assert (found.run.scenario["dp_size"], found.run.scenario["ep_size"]) == (8, 8)
    assert "tp_size" not in found.run.scenario


@pytest.mark.parametrize(("twin", "ep_size"), [("4 4 0", 4), ("4 4 1", 1), ("8 8 0", 1)])
def test_an_early_label_of_tensorrt_llm_follows_a_later_twin_alone(tmp_path: Path, twin: str, ep_size: int) -> None:
    """gpt-oss on H200 has later rows with experts spread over its devices, on B200 with attention ranks alone."""
    early, later = (row("tpot_ms", 5.0, engine="tensorrt-llm", layout=one) for one in ("4 1 0", twin))
    found, _ = load_inferencex(written(tmp_path, early, later.replace("config_id=7", "config_id=300")))
    assert (found.run.scenario["tp_size"], found.run.scenario["ep_size"]) == (4, ep_size)


def pools_row(
    prefill: str, decode: str, *, devices: int, gpus: int, engine: str = "dynamo-sglang", clients: int = 64
) -> str:
    names = ("tp", "ep", "dpattn")
    first, second = (
        f"{workers} workers x " + " ".join(map("".join, zip(names, degrees, strict=True)))
        for workers, *degrees in (prefill.split(), decode.split())
    )
    notes = f"config_id=9; mode=disagg; spec=mtp; prefill {first} ({devices} GPUs); decode {second}"
    model = "deepseek-ai/DeepSeek-R1-0528"
    return f"MI355X,{gpus},{model},{engine},fp8,1,1,{clients},8192,1024,throughput_tok_s_per_gpu,100.0,{notes}"


def test_disaggregated_rows_have_a_loader_of_their_own(tmp_path: Path) -> None:
    speed = pools_row("2 4 1 0", "1 8 8 1", devices=8, gpus=16)
    energy = speed.replace("throughput_tok_s_per_gpu,100.0", "energy_per_output_token_j,2.0")
    folder = written(tmp_path, row("tpot_ms", 5.0, mode="disagg"), speed, energy)
    assert load_inferencex(folder) == ()
    (found,) = load_disaggregated(folder)
    assert (found.mode, found.speculation) == ("disaggregated", "mtp")
    scenario = validate(ScenarioSpec, found.run.scenario, where="here")
    assert scenario.engine.name == "sglang"
    pools = scenario.disaggregation
    assert pools is not None
    assert (pools.prefill_replicas, pools.degrees("prefill")) == (2, {"tp_size": 4, "ep_size": 1})
    assert (pools.decode_replicas, pools.degrees("decode")) == (1, {"dp_size": 8, "ep_size": 8})
    assert found.run.measured == {"total_tokens_per_s": 1600.0, "decode_energy_per_output_token_j": 2.0}


def test_workers_labelled_tp_1_beside_wider_experts_are_as_wide_as_those(tmp_path: Path) -> None:
    (found,) = load_disaggregated(written(tmp_path, pools_row("1 1 8 1", "2 1 8 1", devices=8, gpus=10)))
    assert found.run.measured == {"total_tokens_per_s": 2400.0}
    assert load_disaggregated(written(tmp_path / "other", pools_row("1 1 1 1", "1 1 1 1", devices=4, gpus=5))) == ()


@pytest.mark.parametrize(
    ("decode", "clients", "sequences"),
    [
        ("4 8 8 0", (5, 12, 48), (1, 8, 8)),
        ("4 8 8 0", (4, 64), (1, 16)),
        ("1 32 32 1", (90, 333), (8, 8)),
        ("1 8 8 1", (4301,), (512,)),
    ],
)
def test_sequences_of_a_decode_worker_follow_from_the_most_clients(
    tmp_path: Path, decode: str, clients: tuple[int, ...], sequences: tuple[int, ...]
) -> None:
    """A power of two a rank; few clients of workers that share attention have one to themselves."""
    rows = [
        pools_row("1 8 8 1", decode, devices=8, gpus=40, engine="dynamo-tensorrt-llm", clients=count)
        for count in clients
    ]
    found = load_disaggregated(written(tmp_path, *rows))
    assert tuple(run.run.scenario["engine"]["max_num_seqs"] for run in found) == sequences


@pytest.mark.parametrize(
    ("decode", "weights", "sequences"), [("1 8 8 0", "fp8", 256), ("1 8 8 1", "fp8", 80), ("1 8 8 1", "mxfp4", 2048)]
)
def test_sequences_of_sglang_decode_workers_on_amd_are_those_of_their_recipe(
    tmp_path: Path, decode: str, weights: str, sequences: int
) -> None:
    said = pools_row("1 8 8 1", decode, devices=8, gpus=16, engine="mori-sglang", clients=2048)
    (found,) = load_disaggregated(written(tmp_path, said.replace(",fp8,", f",{weights},")))
    assert found.run.scenario["engine"]["max_num_seqs"] == sequences


def test_ranks_of_a_pool_guess_three_tokens_until_they_are_full(tmp_path: Path) -> None:
    rows = [
        pools_row("1 8 8 1", "1 8 8 1", devices=8, gpus=16, engine="dynamo-tensorrt-llm", clients=count)
        for count in (64, 511, 512)
    ]
    found = load_disaggregated(written(tmp_path, *rows))
    assert [run.run.scenario["techniques"]["speculation"]["k"] for run in found] == [3, 3, 1]


def test_guesses_are_those_of_the_recipe_and_acceptance_the_librarys(tmp_path: Path) -> None:
    rows = [row("tpot_ms", 5.0, engine=engine, layout=layout) for engine, layout in (("sglang", "8 1 0"),)]
    (found,) = load_inferencex(written(tmp_path, *(one.replace("spec=none", "spec=mtp") for one in rows)))
    assert found.mode == "mtp"
    assert found.run.scenario["techniques"] == {"speculation": {"method": "mtp", "k": 2}}
    (tmp_path / "h200").mkdir()
    (hopper,) = load_inferencex(
        written(tmp_path / "h200", rows[0].replace("spec=none", "spec=mtp").replace("B200", "H200"))
    )
    assert hopper.run.scenario["techniques"] == {"speculation": {"method": "mtp", "k": 1}}


def test_a_row_without_a_layout_is_refused_by_field(tmp_path: Path) -> None:
    broken = row("tpot_ms", 5.0).replace("tp4 ep4 dp_attention0", "tp4")
    with pytest.raises(RoofcastError, match="layout"):
        load_inferencex(written(tmp_path, broken))


def test_the_command_scores_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written(tmp_path, row("tpot_ms", 5.0), row("tpot_ms", 5.0, mode="disagg"))
    monkeypatch.setattr("sys.argv", ["end_to_end", "--data", str(folder), "--today"])
    assert main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("| inferencex | b200-sxm | `tpot_p50_s` | 1 |") for line in lines)
    assert any(line.startswith("| B200 SXM | all | all | `tpot_p50_s` | 1 |") for line in lines)


def test_the_command_refuses_a_mode_that_no_row_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["end_to_end", "--data", str(tmp_path), "--today", "--mode", "mpt"])
    with pytest.raises(SystemExit):
        main()
    assert "choose from" in capsys.readouterr().err


def test_a_thinned_table_keeps_some_of_every_deployment(runs: tuple[TodayRun, ...]) -> None:
    kept = thinned(runs, every=50)
    assert len(kept) < len(runs) / 20
    assert {(item.hardware, item.engine, item.model) for item in kept} == {
        (item.hardware, item.engine, item.model) for item in runs
    }


def test_a_run_without_its_recipe_keeps_the_question_alone(runs: tuple[TodayRun, ...]) -> None:
    for item in thinned(runs, every=20):
        asked = without_recipe(item).run
        assert asked.measured == item.run.measured
        assert asked.scenario["engine"] == {"name": item.run.scenario["engine"]["name"]}
        assert asked.scenario["precision"] == {"weights": item.weights}
        assert ("techniques" in asked.scenario) == (item.speculation == "mtp")
        same = set(item.run.scenario) - {"engine", "precision", "techniques", "num_requests"}
        assert {name: asked.scenario[name] for name in same} == {name: item.run.scenario[name] for name in same}
        validate(ScenarioSpec, asked.scenario, where=str(asked.scenario["id"]))


@pytest.fixture(scope="module")
def runs() -> tuple[TodayRun, ...]:
    if not (DATA / "today").is_dir():
        pytest.skip("the measured runs are not beside this checkout")
    return load_inferencex(DATA)


def test_every_aggregated_run_is_a_valid_scenario(runs: tuple[TodayRun, ...]) -> None:
    assert len(runs) > 1800
    assert len({item.run.scenario["id"] for item in runs}) == len(runs)
    for item in runs:
        spec = validate(ScenarioSpec, item.run.scenario, where=str(item.run.scenario["id"]))
        assert spec.concurrency is not None
        assert item.run.measured["tpot_p50_s"] > 0
