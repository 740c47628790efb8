"""Real inputs that hostile ones are made of: those that are no file of the repository."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Case = str | list[str]
Answer = dict[str, Any]
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

QUANTIZED: tuple[Mapping[str, Any], ...] = (
    {"quant_method": "fp8", "ignored_layers": ["re:.*self_attn.*", "lm_head"], "weight_block_size": [128, 128]},
    {"quant_method": "gptq", "bits": 4, "group_size": 128, "modules_to_not_convert": ["mlp"]},
    {
        "quant_method": "compressed-tensors",
        "ignore": ["re:.*lm_head"],
        "config_groups": {
            "group_0": {"targets": ["re:.*mlp.*"], "weights": {"num_bits": 4, "type": "int", "group_size": 32}}
        },
    },
    {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
    {"quant_algo": "NVFP4", "exclude_modules": ["*self_attn*"], "kv_cache_quant_algo": "FP8"},
)


TEXTS: tuple[str, ...] = (
    "sparsity 2:4",
    "sparsity unstructured:0.5",
    "speculation eagle:k=4,acceptance=0.7",
    "speculation draft:k=5,draft_model=x",
    "speculation medusa:k=4,tree=4/3/2/1",
    "kv_policy h2o:1024",
    "adapters lora:rank=16,count=8",
    "weight_offload 0.5",
    "contextual_sparsity attention=0.5,mlp=0.2",
    "early_exit mean_fraction=0.6",
    "structure num_key_value_heads=8",
    "objective ttft-p95=2s",
    "objective e2e-p99.9=500ms",
    "change weights=int4 scheme=gptq-g128",
    "change sparsity=2:4",
    "change techniques.speculation=eagle:k=4",
    "change tp_size=2",
    "change mixed=attention=fp8",
    "tuning qlora:rank=64",
)


AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2024-05-10 00:00:{second:02d}.{17 * second:03d},{300 + 13 * second},{20 + second}\n" for second in range(50)
)
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n" + "".join(
    f"{5 * place},ChatGPT,{400 + place},{30 + place},{430 + 2 * place},Conversation log\n" for place in range(40)
)
MOONCAKE = "".join(
    json.dumps(
        {"timestamp": 3000 * place, "input_length": 600 + place, "output_length": 50, "hash_ids": [1, 2 + place]}
    )
    + "\n"
    for place in range(40)
)
METRICS = """# TYPE vllm:request_success_total counter
vllm:request_success_total{model_name="m",finished_reason="stop"} 1200
vllm:prompt_tokens_total{model_name="m"} 600000
vllm:generation_tokens_total{model_name="m"} 120000
vllm:request_prompt_tokens_bucket{le="100",model_name="m"} 200
vllm:request_prompt_tokens_bucket{le="1000",model_name="m"} 1100
vllm:request_prompt_tokens_bucket{le="+Inf",model_name="m"} 1200
vllm:request_prompt_tokens_sum{model_name="m"} 600000
vllm:request_prompt_tokens_count{model_name="m"} 1200
"""


MODEL = """name: mine
source: "of a test"
date: "2026-11-26"
config: {model_type: llama, architectures: [LlamaForCausalLM], hidden_size: 2048, intermediate_size: 5632,
  num_hidden_layers: 4, num_attention_heads: 32, num_key_value_heads: 4, vocab_size: 32000,
  max_position_embeddings: 2048, hidden_act: silu, rms_norm_eps: 1.0e-05,
  tie_word_embeddings: false, torch_dtype: bfloat16}
"""
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 4,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
    "torch_dtype": "bfloat16",
}
PRICES = """name: mine
extends: default
offers:
  - {hardware: h100-sxm-80gb, provider: Acme, kind: on_demand, per_hour: 2.5, date: "2026-11-02", source: "of a test"}
  - {hardware: h100-sxm-80gb, provider: Acme, kind: reserved_1y, per_hour: 1.5, date: "2026-11-02", source: "of a test"}
  - {hardware: h100-sxm-80gb, provider: Acme, kind: spot, per_hour: 0.9, date: "2026-11-02", source: "of a test"}
"""


def _range(metric: str, rate: float) -> dict[str, Any]:
    return {
        "metric": {"__name__": metric, "model_name": "m"},
        "values": [[1_700_000_000 + 60 * step, str(rate * 60 * step)] for step in range(30)],
    }


RANGES = json.dumps(
    {
        "status": "success",
        "data": {
            "resultType": "matrix",
            "result": [
                _range("vllm:request_success_total", 2.0),
                _range("vllm:prompt_tokens_total", 1000.0),
                _range("vllm:generation_tokens_total", 200.0),
            ],
        },
    }
)


def links() -> list[Case]:
    """Fields as a caller of the library gives them."""
    return [
        json.dumps({"model": "llama-3.1-8b", "rps": 20, "hardware": ["h100"], "objectives": {"ttft-p95": "2s"}}),
        json.dumps(
            {"model": "mixtral-8x7b", "rate_per_s": 5, "tp_size": [1, 2], "weights": "fp8", "growth": "5%/month"}
        ),
        json.dumps({"model": "qwen3-8b", "rps": 9, "load_profile": [1.0] * 24, "stock": ["h100=8"], "startup": "90s"}),
        json.dumps({"model": "llama-3.1-8b", "rps": 30, "hardware": ["l40s"], "prefill_hardware": ["h100"], "tp": 1}),
        json.dumps(
            {
                "model": "qwen2.5-vl-7b",
                "rps": 9,
                "isl": 4000,
                "images_per_request": 1,
                "encoder_hardware": ["l4", "l40s"],
            }
        ),
        json.dumps(
            {
                "model": "llama-3.1-8b",
                "rps": 9,
                "trace": "day.csv",
                "kv_tiers": ["host:2e11", "nvme:4e12,bytes_per_s=2e10"],
            }
        ),
        json.dumps({"model": "llama-3.1-8b", "hardware": "h100", "batch_size": 8, "isl_tokens": 512, "osl_tokens": 16}),
        json.dumps({"model": "llama-3.1-8b", "hardware": "h100", "rate_per_s": 2, "isl_tokens": 512, "osl_tokens": 16}),
    ]


def commands() -> list[Case]:
    """Whole commands."""
    return [
        ["roofcast", *words.split()]
        for words in (
            "step --model llama-3.1-8b --hardware h100 --batch 8 --context 512 --json",
            "step --model mixtral-8x7b --hardware h200 --tp 2 --weights fp8 --sparsity 2:4 --json",
            "step --model qwen3-8b --hardware l4 --speculation eagle:k=3 --json",
            "model llama-3.1-8b --json",
            "model deepseek-v3 --json",
            "profiles show hardware h100",
            "profiles list models",
            "capacity --model llama-3.1-8b --hardware h100 --slo ttft-p95=2s --json",
            "serve --model llama-3.1-8b --hardware h100 --rate 2 --duration 5 --json",
            "compare --model llama-3.1-8b --hardware h100 --with weights=fp8 --json",
            "mixers --json",
            "retrieval --model llama-3.1-8b --json",
            "crossover --model llama-3.1-8b --hardware h100 --json",
        )
    ]


def plans() -> list[Case]:
    """Whole plans of one small model."""
    start = "plan-capacity --json --model llama-3.1-8b --hardware h100 --tp 1 --rps 20"
    return [
        f"{start} {more}".split()
        for more in (
            "",
            "--ttft-p95 2s --tpot-p95 50ms",
            "--isl 512 --osl 64 --isl-cv 1 --spares 1",
            "--weights fp8 --kv-cache fp8",
            "--speculation eagle:k=4",
            "--pools --isl 4000",
            "--availability 99.9 --mtbf-hours 5000",
            "--resilience",
            "--growth 5%/month --horizon 12",
            "--uncertainty --draws 50 --seed 3",
            "--price-kind on_demand --max-gpus 64",
            "--serving aggregated --serving disaggregated",
            "--any-technique",
            "--explain-gap --max-gpus 2",
            "--load-profile 1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2 --rental",
            "--stock h100=8 --round-to device",
            "--hardware l40s --prefill-hardware h100",
        )
    ] + [
        [
            "plan-capacity",
            "--json",
            "--model",
            "qwen2.5-vl-7b",
            "--hardware",
            "h100",
            "--tp",
            "1",
            "--rps",
            "20",
            "--isl",
            "4000",
            "--images-per-request",
            "1",
            "--encoder-hardware",
            "l4",
            "--encoder-hardware",
            "l40s",
        ]
    ]


def traced_plans() -> list[Case]:
    """Records by their name and text, and what a plan asks beside them."""
    tiers = "host:2e11", "nvme:4e12,bytes_per_s=2e10"
    return [
        ["azure.csv", AZURE, "--rps", "20"],
        ["azure.csv", AZURE, "--rps", "9", "--ttft-p95", "2s", "--spares", "0"],
        ["burst.csv", BURST],
        ["mooncake.jsonl", MOONCAKE, "--rps", "30", "--tpot-p99", "80ms"],
        ["mooncake.jsonl", MOONCAKE, "--kv-tiers", tiers[0], "--kv-tiers", tiers[1]],
        ["mooncake.jsonl", MOONCAKE, "--rps", "20", "--no-verify", "--resilience", "--peak-to-mean", "3"],
    ]


def signed_plans() -> list[list[str]]:
    """Plans that are quick to plan and to replay again, and a refusal."""
    start = "plan-capacity --json --model llama-3.1-8b --hardware h100 --tp 1 --isl 300 --osl 40"
    return [
        f"{start} {more}".split()
        for more in (
            "--rps 20 --ttft-p95 2s",
            "--rps 9 --weights fp8 --spares 1 --price-kind on_demand --stock h100=16",
            "--rps 20 --serving disaggregated --tpot-p95 50ms",
            "--rps 20 --resilience --growth 5%/month --horizon 12",
            "--rps 500 --max-gpus 2",
        )
    ]
