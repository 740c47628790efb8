"""Every technique that the product promises: its switch, the figure that has to move, and how far.

One row is one what-if: ``base`` fields over the usual scenario, a change as it is written on a command line, and the
bounds between which the figure with the change has to lie, as a multiple of the figure without.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

FASTER = (0.05, 0.999)
SLOWER = (1.001, 50.0)
SAME = (1.0, 1.0)
OTHER = (0.0, 0.0)
"""Anything but the same: which way depends on sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """``item`` of the list of techniques: under ``change``, ``metric`` becomes ``bounds`` times what it was.

    metric : dotted path into the result of the contract; fields : what a change of one word cannot say
    """

    item: str
    change: str
    metric: str
    bounds: tuple[float, float]
    base: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Readable in a list of tests."""
        return f"{self.item}: {self.change or ', '.join(self.fields)}"


def row(item: str, change: str, metric: str, bounds: tuple[float, float], **base: Any) -> Row:
    """A row whose change is a text."""
    return Row(item=item, change=change, metric=metric, bounds=bounds, base=base)


def fields_row(item: str, fields: Mapping[str, Any], metric: str, bounds: tuple[float, float], **base: Any) -> Row:
    """A row whose change replaces fields of a scenario file."""
    return Row(item=item, change="", fields=fields, metric=metric, bounds=bounds, base=base)


USUAL: Mapping[str, Any] = {
    "id": "row",
    "kind": "batch",
    "model": "llama-3.1-8b",
    "hardware": "h100",
    "batch_size": 4,
    "isl_tokens": 512,
    "osl_tokens": 8,
    "engine": {"name": "vllm"},
}
TPOT, TTFT = "tpot_s", "ttft_s"
WEIGHTS, KV, ROOM = "memory.weights_bytes", "memory.kv_bytes_per_token", "memory.kv_capacity_tokens"
MHA = {"model": "llama-2-7b"}
LONG = {"isl_tokens": 3584, "batch_size": 16}
LOAD = {
    "arrival": "poisson",
    "stages": [{"rate_per_s": 10, "duration_s": 30}],
    "system_prompt_tokens": 512,
    "question_tokens": 512,
    "osl_tokens": 16,
}
SERVED = {"kind": "serve", "workload": LOAD, "batch_size": None, "isl_tokens": None, "osl_tokens": None}
CROWDED = {
    "model": "llama-2-13b",
    "hardware": "a100-sxm-40gb",
    "workload": {**LOAD, "stages": [{"rate_per_s": 2, "duration_s": 60}], "question_tokens": 1024,
                 "prompt_groups": 4, "prompts_per_group": 10},
}  # fmt: skip
MIXTRAL = {"model": "mixtral-8x7b", "tp_size": 4}
WIDE_EP = {"model": "deepseek-r1", "dp_size": 32, "ep_size": 32, "batch_size": 4096, "isl_tokens": 1024}
EAGER = {"model": "vicuna-7b", "hardware": "a100", "engine": {"name": "torch-eager"}, "batch_size": 1}
GRAPHS = {**EAGER, "engine": {"name": "torch"}}
CLOSED = {"kind": "closed_loop", "concurrency": 1, "batch_size": None, "isl_tokens": 256, "osl_tokens": 64}

ROOFLINE = (
    row("arithmetic intensity: more sequences use each weight more", "batch_size=64", "decode.mfu", (6, 16)),
    row("ridge point: prefill keeps the matrix units busy, wherever decode waits", "hardware=a100", TTFT, SLOWER),
    row("bandwidth hierarchy: PCIe in place of NVLink", "interconnect=pcie", TTFT, SLOWER, tp_size=4),
    row("crossover batch: above the ridge time grows with the batch", "batch_size=1024", TPOT, (2, 16),
        batch_size=64, isl_tokens=16),
    row("MBU: narrower weights move fewer bytes", "weights=fp8", "decode.mbu", FASTER, batch_size=1),
    row("MFU of prefill: longer prompts fill the units", "batch_size=8", "prefill.mfu", (1.01, 9), isl_tokens=64),
    row("KV cache: bytes follow the element", "kv_cache=fp8", KV, (0.5, 0.5)),
    row("memory plan: a smaller card", "hardware=a100-sxm-40gb", ROOM, (0.05, 0.4), hardware="a100"),
    row("kernel fusion off", "fusion=false", TPOT, SLOWER),
    row("hidden size: below the launch floor less than proportional", "structure=hidden_size=384", TTFT, (0.5, 0.99),
        model="bert-base", isl_tokens=128, osl_tokens=1, engine={"name": "torch"}),
    row("energy: narrower formats take fewer joules a token", "weights=fp8", "energy_per_output_token_j", FASTER),
)  # fmt: skip

STRUCTURE = (
    row("GQA", "structure=num_key_value_heads=8", KV, (0.25, 0.25), **MHA),
    row("MQA", "structure=num_key_value_heads=1", TPOT, FASTER, **MHA, **LONG),
    row("MLA: latents", "structure=mla.kv_lora_rank=512", KV, (0.07, 0.0704), **MHA),
    row("MLA: decode reads latents", "structure=mla.kv_lora_rank=512", TPOT, FASTER, **MHA, **LONG),
    row("sliding window", "structure=sliding_window=512", TPOT, FASTER, **LONG),
    row("local and global layers in turn", "structure=sliding_window=512,window_every=4", TPOT, FASTER, **LONG),
    row("attention sinks (StreamingLLM)", "kv_policy=streaming:512", TPOT, FASTER, **LONG),
    row("H2O heavy hitters", "kv_policy=h2o:512", TPOT, FASTER, **LONG),
    row("recent tokens only", "kv_policy=window:512", TPOT, FASTER, **LONG),
    row("MoEfication of a dense model: same parameters", "structure=moe.num_experts=8,moe.num_experts_per_tok=2",
        WEIGHTS, (1.0, 1.001)),
    row("MoEfication: fewer of them read", "structure=moe.num_experts=8,moe.num_experts_per_tok=2", TPOT, FASTER,
        batch_size=1),
    row("distinct experts: a batch touches more of them", "batch_size=8", TPOT, (1.3, 4), **MIXTRAL, batch_size=1),
    row("load imbalance of expert parallelism", "structure=expert_imbalance=2.0", TTFT, SLOWER, **MIXTRAL, ep_size=4),
    row("uneven routing: the busiest rank", "structure=routing_skew=2.0", TTFT, SLOWER, **MIXTRAL, ep_size=4),
    row("experts balanced over ranks (EPLB)", "structure=expert_placement=even", TTFT, FASTER, **MIXTRAL, ep_size=4),
    row("uneven routing: fewer experts read", "structure=routing_skew=2.0", TPOT, FASTER, **MIXTRAL),
    row("early exit", "early_exit=mean_fraction=0.6", TPOT, FASTER, batch_size=1),
    row("early exit: a batch leaves with its last member", "early_exit=mean_fraction=0.6,compacts=true",
        TPOT, FASTER, techniques={"early_exit": {"mean_fraction": 0.6}}, batch_size=32),
    row("Deja Vu contextual sparsity", "contextual_sparsity=attention=0.5,mlp=0.2", TPOT, FASTER, model="opt-6.7b",
        batch_size=1),
    row("contextual sparsity: the union erodes it", "batch_size=16", TPOT, (1.05, 5), model="opt-6.7b", batch_size=1,
        techniques={"contextual_sparsity": {"mlp_fraction": 0.2}}),
    row("a shallower student", "structure=layers_fraction=0.5", TPOT, FASTER),
    fields_row("distillation: a smaller model of the family", {"model": "llama-3.2-1b"}, TPOT, FASTER),
    fields_row("state-space layers keep no cache", {"model": "mamba-1.4b"}, KV, (0.0, 0.0001), model="pythia-6.9b"),
    fields_row("SSM: constant state, whatever the prompt", {"isl_tokens": 4096}, "decode.step_s", (1.0, 1.001),
               model="mamba-1.4b"),
    fields_row("attention: a token reads its context", {"isl_tokens": 3584}, "decode.step_s", SLOWER, **MHA),
    fields_row("long context: prefill grows faster than its length", {"isl_tokens": 131072}, TTFT, (16.5, 256),
               isl_tokens=8192, batch_size=1, osl_tokens=2),
    fields_row("hybrid of recurrent and attention layers: a small cache", {"model": "jamba-v0.1"}, KV, FASTER,
               model="mixtral-8x7b", tp_size=4),
    fields_row("DSA indexer: attention to chosen tokens", {"model": "deepseek-v3.2"},
               "decode.breakdown_s.decode_attention", FASTER, model="deepseek-v3", hardware="h200", tp_size=8,
               isl_tokens=65536, batch_size=8, osl_tokens=2),
    fields_row("encoder only: as many parameters, no decoding", {"model": "bert-large"}, TTFT, SLOWER,
               model="bert-base", osl_tokens=1, isl_tokens=128),
    fields_row("encoder-decoder", {"model": "t5-large"}, TTFT, SLOWER, model="t5-base", isl_tokens=256),
)  # fmt: skip

QUANTIZATION = (
    row("FP32", "weights=fp32", WEIGHTS, (2.0, 2.0)),
    row("TF32", "scheme=tf32", TTFT, SLOWER),
    row("FP16", "weights=fp16", TTFT, FASTER, precision={"weights": "fp32"}),
    row("FP8", "weights=fp8", TTFT, FASTER),
    row("FP8 static scales", "scheme=fp8-static", TPOT, FASTER, precision={"weights": "fp8"}),
    row("FP8 blocks", "scheme=fp8-block", WEIGHTS, (1.00001, 1.05), precision={"weights": "fp8"}),
    row("INT8", "scheme=w8a8", TTFT, FASTER, hardware="a100"),
    row("INT4 tensor cores", "scheme=w4a4", TTFT, FASTER, hardware="a100"),
    row("INT8 products of INT4 weights", "scheme=w4a8", TTFT, FASTER, hardware="a100"),
    row("KV cache of INT8", "kv_cache=int8", KV, (0.5, 0.57)),
    row("KV cache of INT4", "kv_cache=int4", KV, (0.25, 0.35)),
    row("KV cache of FP8: latency", "kv_cache=fp8", TPOT, FASTER, **LONG),
    row("LLM.int8(): outliers cost more than 8 bits gain", "scheme=llm.int8", TTFT, SLOWER, model="opt-13b",
        hardware="a100", engine={"name": "torch-eager"}, batch_size=1),
    row("SmoothQuant O1", "scheme=smoothquant-o1", TTFT, FASTER, model="opt-13b", hardware="a100"),
    row("SmoothQuant O2", "scheme=smoothquant-o2", TTFT, FASTER, hardware="a100",
        precision={"scheme": "smoothquant-o1"}),
    row("SmoothQuant O3", "scheme=smoothquant-o3", TTFT, FASTER, hardware="a100",
        precision={"scheme": "smoothquant-o2"}),
    row("GPTQ, 4 bit, one scale a channel", "scheme=gptq", TPOT, (0.2, 0.7), batch_size=1),
    row("GPTQ, 3 bit", "scheme=gptq-3bit", WEIGHTS, FASTER, precision={"scheme": "gptq"}),
    row("GPTQ, group 128", "scheme=gptq-g128", WEIGHTS, (1.001, 1.05), precision={"scheme": "gptq"}),
    row("GPTQ, group 1024", "scheme=gptq-g1024", WEIGHTS, (0.95, 0.999), precision={"scheme": "gptq-g128"}),
    row("weight-only loses to W8A8 at large batch", "scheme=gptq-g128", TTFT, SLOWER, hardware="a100",
        precision={"scheme": "w8a8"}),
    row("AWQ: zero points", "scheme=awq-g128", WEIGHTS, (1.0001, 1.05), precision={"scheme": "gptq-g128"}),
    row("RTN", "scheme=rtn-g128", TPOT, FASTER, batch_size=1),
    row("GGUF k-quants", "scheme=q4-k-m", TPOT, FASTER, batch_size=1, engine={"name": "llama.cpp"}),
    row("QLoRA's NF4", "scheme=nf4", WEIGHTS, (0.25, 0.4)),
    row("AQLM codebooks", "scheme=aqlm-2x8", WEIGHTS, (0.1, 0.3)),
    row("k-means", "scheme=kmeans-4bit", WEIGHTS, (0.25, 0.4)),
    row("BitNet b1.58", "scheme=bitnet", WEIGHTS, (0.1, 0.3)),
    row("NVFP4", "scheme=nvfp4", TTFT, FASTER, hardware="b200-sxm"),
    row("MXFP4", "scheme=mxfp4", WEIGHTS, (0.25, 0.45)),
    row("mixed layers", "mixed=attention=fp8", WEIGHTS, (0.8, 0.99)),
    row("kernel family of weight-only products", "kernel=gptq", TPOT, SLOWER, precision={"scheme": "gptq-g128"},
        batch_size=16),
)  # fmt: skip

SPARSITY = (
    row("2:4: bytes with metadata", "sparsity=2:4", WEIGHTS, (0.5625, 0.75)),
    row("2:4: sparse matrix units", "sparsity=2:4", TTFT, FASTER),
    row("4:8 compressed: bytes only", "sparsity=4:8:compressed=true", WEIGHTS, (0.5625, 0.75)),
    row("unstructured, compressed", "sparsity=unstructured:0.6,compressed=true", WEIGHTS, FASTER),
    row("structured: heads", "sparsity=structured:fraction=0.25,target=heads", TPOT, FASTER),
    row("structured: channels", "sparsity=structured:fraction=0.25,target=channels", TPOT, FASTER),
    row("structured: layers", "sparsity=structured:fraction=0.25,target=layers", TPOT, (0.7, 0.8)),
    row("Wanda: no other speed than magnitude", "sparsity=2:4:method=wanda", TPOT, SAME,
        techniques={"sparsity": {"pattern": "2:4", "method": "magnitude"}}),
)  # fmt: skip

ATTENTION = (
    row("standard attention: scores through memory", "attention=standard", TTFT, SLOWER, isl_tokens=3584),
    row("standard attention: room for scores", "attention=standard", "memory.activation_bytes", SLOWER),
    row("Flash-Decoding: keys divided", "attention=flash_decoding", TPOT, FASTER, model="vicuna-7b", hardware="a100",
        batch_size=1, isl_tokens=3584, engine={"name": "torch"}),
    row("reservation to the longest request in place of pages", "kv_allocation=max_length", "output_tokens_per_s",
        (0.05, 0.7), **{**CLOSED, "concurrency": 64, "model": "llama-2-13b", "hardware": "a100-sxm-40gb"}),
    row("reservation: fewer requests at once under load", "kv_allocation=max_length", "overall.ttft_mean_s", SLOWER,
        **{**SERVED, **CROWDED}),
    row("PagedAttention: smaller blocks hold more", "block_size_tokens=16", ROOM, (1.0, 1.1),
        engine={"name": "vllm", "block_size_tokens": 256}),
)  # fmt: skip

SPECULATION = (
    row("draft model", "speculation=draft:k=4,acceptance=0.7,draft_model=vicuna-68m", TPOT, FASTER, **EAGER),
    row("draft model: its memory", "speculation=draft:k=4,draft_model=vicuna-68m", WEIGHTS, SLOWER, **EAGER),
    row("draft on the CPU", "speculation=draft:k=4,acceptance=0.7,draft_model=tinyllama-1.1b,draft_device=cpu", TPOT,
        SLOWER, **GRAPHS, techniques={"speculation": {"method": "draft", "k": 4, "acceptance": 0.7,
                                                     "draft_model": "tinyllama-1.1b"}}),
    row("draft on other devices",
        "speculation=draft:k=4,acceptance=0.7,draft_model=llama-3.2-1b,draft_device=other,draft_hardware=l4", WEIGHTS,
        FASTER, techniques={"speculation": {"method": "draft", "k": 4, "acceptance": 0.7,
                                            "draft_model": "llama-3.2-1b"}}),
    *(row(f"speculation, {method}", f"speculation={method}", TPOT, FASTER, **EAGER)
      for method in ("eagle", "eagle2", "medusa", "hydra", "ngram", "lookup", "llma", "rest", "lookahead",
                     "blockwise")),
    row("EAGLE-3 on code", "speculation=eagle3:task=code", TPOT, FASTER, **GRAPHS,
        techniques={"speculation": {"method": "eagle3", "task": "finance"}}),
    row("multi-token prediction", "speculation=mtp", TPOT, FASTER, model="deepseek-v3", hardware="h200", tp_size=8,
        batch_size=1),
    row("multi-token prediction: its layer", "speculation=mtp", WEIGHTS, SLOWER, model="deepseek-v3", hardware="h200",
        tp_size=8),
    row("acceptance", "speculation=eagle:k=4,acceptance=0.5", TPOT, SLOWER, **EAGER,
        techniques={"speculation": {"method": "eagle", "k": 4, "acceptance": 0.8}}),
    row("tree of guesses", "speculation=medusa:acceptance=0.6,tree=8/8/8", TPOT, FASTER, **EAGER,
        techniques={"speculation": {"method": "medusa", "acceptance": 0.6, "tree": [2, 2, 2]}}),
    row("guesses of a tree that nobody accepts", "speculation=medusa:k=3,tree=64", TPOT, SLOWER, **GRAPHS,
        techniques={"speculation": {"method": "medusa", "k": 3, "tree": 8}}),
    row("speculation loses at large batch", "speculation=ngram:k=4,acceptance=0.3", TPOT, SLOWER, batch_size=512),
    row("adaptive K is never worse", "speculation=ngram:k=4,acceptance=0.3,adaptive=true", TPOT, FASTER,
        batch_size=512, techniques={"speculation": {"method": "ngram", "k": 4, "acceptance": 0.3}}),
)  # fmt: skip

SERVING = (
    row("tensor parallelism", "tp_size=4", TPOT, FASTER),
    row("pipeline parallelism", "pp_size=2", WEIGHTS, (0.4, 0.65)),
    row("data parallelism", "replicas=2", TTFT, FASTER, **{**SERVED, "workload": {**LOAD, "stages": [
        {"rate_per_s": 60, "duration_s": 10}]}}),
    row("data-parallel attention", "dp_size=2 ep_size=4", WEIGHTS, OTHER, model="qwen3-30b-a3b", tp_size=2),
    row("expert parallelism", "ep_size=4", TTFT, OTHER, model="qwen3-30b-a3b", tp_size=4),
    row("continuous batching: more at once", "concurrency=32", "output_tokens_per_s", (4, 32), **CLOSED),
    row("chunked prefill: smaller steps", "max_num_batched_tokens=512", "overall.ttft_mean_s", OTHER, **SERVED),
    row("prefix caching off", "prefix_caching=false", "overall.ttft_mean_s", SLOWER, **SERVED),
    fields_row("prefill and decode apart",
               {"disaggregation": {"prefill_replicas": 1, "decode_replicas": 1}}, "overall.tpot_p99_s", FASTER,
               **SERVED),
    fields_row("KV cache of the host's memory", {"engine": {"name": "vllm", "cpu_kv_offload": True}},
               "overall.ttft_mean_s", FASTER, **{**SERVED, **CROWDED}),
    row("sequence parallelism: norms are split", "sequence_parallel=true", "prefill.breakdown_s.elementwise",
        (0.3, 0.99), tp_size=4, isl_tokens=4096),
    row("sequence parallelism: two halves cost single tokens more", "sequence_parallel=true",
        "decode.breakdown_s.collective", SLOWER, tp_size=4),
    row("two-batch overlap: answers", "two_batch_overlap=true", TPOT, FASTER, **WIDE_EP),
    row("two-batch overlap: prompts", "two_batch_overlap=true", TTFT, FASTER, **WIDE_EP),
    row("weights in the host's memory: room", "weight_offload=0.5", WEIGHTS, (0.5, 0.65)),
    row("weights in the host's memory: time", "weight_offload=0.5", TPOT, (5, 50)),
    fields_row("weights in the host's memory under load", {"techniques": {"weight_offload": 0.2}},
               "overall.tpot_mean_s", (2, 50), **SERVED),
    fields_row("offline in place of online", {"kind": "offline", "concurrency": None}, "output_tokens_per_s", (4, 200),
               **CLOSED),
    *(row(f"engine {name}", f"engine={name}", TPOT, OTHER)
      for name in ("sglang", "tensorrt-llm", "tgi", "llama.cpp", "ollama", "torch", "torch-eager")),
)  # fmt: skip

ADAPTATION = (
    row("LoRA beside the weights", "adapters=lora:rank=16,count=8", TPOT, SLOWER),
    row("LoRA: memory of every adapter", "adapters=lora:rank=16,count=64", WEIGHTS, SLOWER),
    row("LoRA merged costs nothing", "adapters=lora:rank=16,merged=true", TPOT, SAME),
    row("bottleneck adapters", "adapters=adapter:64", TPOT, SLOWER),
    row("prompt tuning: a longer prompt", "adapters=prompt_tuning:1024", TPOT, SLOWER, batch_size=16),
    row("BitFit", "adapters=bitfit:count=4", TPOT, SLOWER),
    row("QLoRA serves a narrow base", "adapters=qlora:16", WEIGHTS, (0.25, 0.5)),
)
ROWS = (
    *ROOFLINE, *STRUCTURE, *QUANTIZATION, *SPARSITY, *ATTENTION, *SPECULATION, *SERVING, *ADAPTATION,
)  # fmt: skip
