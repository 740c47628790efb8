"""What a visitor of the dashboard sends: files of his own, and addresses."""

from __future__ import annotations

import json
import logging
import random
from typing import Any

from simulator.specs.profiles import profile_root
from tests.fuzz import samples
from tests.fuzz.laws import BrokenError
from tests.fuzz.mutation import odd_tree
from tests.fuzz.samples import EXAMPLES, Case

QUOTES = (
    "accelerator,provider,term,price,currency,unit,date\nh100,Acme,on_demand,1.00,USD,accelerator-hour,2026-11-02\n"
)
KERNELS = (
    "family,kernel,format,m,n,k,groups,sequences,query_tokens,context_tokens,num_heads,num_kv_heads,head_dim,bytes,"
    "layers,seconds,mode,device,driver,torch_version,date\n"
    "gemm,linear,bf16,16,512,1024,,,,,,,,,,1e-5,graph,GPU,1,2.13.0,2026-11-02\n"
)
_ADDRESSES = (
    ("what_if", {"model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "tp": "2", "batch": "40", "weights": "fp8"}),
    ("what_if", {"baseline": '{"model":"llama-3.1-8b","hardware":"h100-sxm-80gb","batch_size":8}', "isl": "700"}),
    ("roofline", {"model": "mixtral-8x7b", "context": "2048", "operator": "gate_up_proj (decode)", "ep": "2"}),
    ("serving", {"rate": "4", "isl_cv": "0.5", "prefix": "0.2", "ttft": "2", "replicas": "3", "pool": "decode"}),
    ("compare", {"model_b": "qwen3-8b", "gpu_b": "l40s", "weights_b": "int4", "named": "0123", "files": "4567"}),
    ("profiles", {"browse": "Models", "model": "mixtral-8x7b", "hub": "RedHatAI/Qwen3-32B-NVFP4", "over": "6h"}),
    ("plan", {"rps": "20", "gpus": "l40s", "prefill_gpus": "h100-sxm-80gb", "model": "llama-3.1-8b"}),
    (
        "serving",
        {"rate": "4", "model": "llama-3.1-8b", "prefill_gpu": "h100-sxm-80gb", "gpu": "l40s", "prefill_tp": "1"},
    ),
    ("plan", {"rps": "20", "gpus": "h100-sxm-80gb", "model": "llama-3.1-8b", "view": "Growth", "growth": "0.06"}),
)


def uploads() -> list[Case]:
    """Files by their name and their text."""
    root = profile_root("hardware_profiles")
    return [
        ["config.json", json.dumps({"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 4})],
        ["mine.yaml", (root / "l4.yaml").read_text(encoding="utf-8")],
        ["list.yaml", "name: list\nextends: default\noffers: []\n"],
        ["work.yaml", "rate_per_s: 3\nisl_tokens: 300\nosl_tokens: 40\nload_profile: [1, 2, 3]\n"],
        ["quotes.csv", QUOTES],
        ["measured.csv", KERNELS],
        ["trace.csv", samples.AZURE],
        ["burst.csv", samples.BURST],
        ["mooncake.jsonl", samples.MOONCAKE],
        ["metrics.prom", samples.METRICS],
        ["ranges.json", samples.RANGES],
        ["bench.json", (EXAMPLES / "data" / "vllm_bench.json").read_text(encoding="utf-8")],
    ]


def uploaded(case: Case) -> dict[str, Any]:
    """What the page says of a file, and what it keeps."""
    from app.fields.own_files import keep_file
    from app.fields.uploaded import Folder

    name, text = case
    folder = Folder()
    over = "10min" if text.lstrip().startswith(("#", "vllm:")) else None
    kept = keep_file(text.encode("utf-8", "surrogatepass"), filename=name, over=over, folder=folder)
    return {"label": kept.label, "said": kept.said, "files": [path.as_posix() for path in folder.files()]}


def addresses() -> list[Case]:
    """Pages and their parameters."""
    return [[page, json.dumps(query)] for page, query in _ADDRESSES]


def mutated_address(rng: random.Random, case: Case) -> Case:
    """Other values, keys and numbers of them."""
    page, query = case
    words = tuple(key for _, asked in _ADDRESSES for key in asked)
    return [page, json.dumps(odd_tree(rng, json.loads(query), words=words))]


def visited(case: Case) -> dict[str, Any]:
    """What a page shows at an address: always a page."""
    from tests.app.pages import metrics, opened

    # It says of every address that no browser asks.
    logging.getLogger("streamlit.runtime.scriptrunner_utils.script_run_context").setLevel(logging.ERROR)
    page, query = case
    fields = json.loads(query)
    asked = {str(key): str(value) for key, value in fields.items()} if isinstance(fields, dict) else {}
    shown = opened(page, asked)
    for item in shown.exception:
        raise BrokenError(f"{page}: {item.message}")
    return {"metrics": metrics(shown), "refused": [item.value for item in shown.error]}
