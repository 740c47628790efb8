"""GPUStack's and ML.ENERGY's rows as scenarios."""

from __future__ import annotations

from validation.end_to_end.measured.h100_serving import CHAT_PROMPT_TOKENS, SHAREGPT_CV, gpustack, mlenergy

NOTES = "date=2026-01-06; label=; sub={sub}; profile=; dp=; requests=500; cmd: {command}; TRAP all requests at once"


def row(**fields: str) -> dict[str, str]:
    base = {
        "model": "Qwen/Qwen3-14B",
        "engine": "vllm",
        "engine_version": "v0.11.0",
        "n_gpus": "1",
        "ep": "",
        "weight_dtype": "bf16",
        "batch_or_concurrency": "",
        "isl": "1996.3",
        "osl": "100.0",
        "request_rate": "inf",
        "metric": "throughput_tok_s",
        "statistic": "mean",
        "value": "1000",
    }
    return {**base, **fields}


def test_all_requests_at_once_are_as_many_clients() -> None:
    command = "vllm serve Qwen/Qwen3-14B -tp 2 --max-num-batched-tokens 16384"
    (run,) = gpustack([row(notes=NOTES.format(sub="random 2K input", command=command))])
    assert run.measured == {"total_tokens_per_s": 1000.0}
    assert (run.scenario["concurrency"], run.scenario["num_requests"], run.scenario["tp_size"]) == (500, 500, 2)
    assert run.scenario["engine"]["max_num_batched_tokens"] == 16384
    assert run.scenario["range_ratio"] == 1
    (varied,) = gpustack([row(notes=NOTES.format(sub="", command=command))])
    assert varied.scenario["isl_cv"] == SHAREGPT_CV


def test_commands_that_no_scenario_says_are_left_out() -> None:
    assert gpustack([row(notes=NOTES.format(sub="", command="vllm serve Qwen/Qwen3-14B --enforce-eager"))]) == ()


def test_a_steady_state_has_its_average_batch() -> None:
    notes = "task=lm-arena-chat; max_num_seqs=16; steady-state average batch=15.6 (use it)"
    fields = {"metric": "itl_ms", "batch_or_concurrency": "16", "notes": notes, "value": "12.5"}
    (run,) = mlenergy([row(statistic="p50", **fields), row(statistic="p90", **fields)])
    assert (run.scenario["concurrency"], run.scenario["isl_tokens"]) == (16, CHAT_PROMPT_TOKENS)
    assert run.measured == {"tpot_p50_s": 0.0125}
