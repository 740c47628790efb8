"""Results of ``vllm bench serve --save-result --save-detailed`` as the event simulation would have given them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from simulator.engine.runs.metrics import e2e_s, tpot_s, ttft_s
from simulator.engine.runs.serving import serve_workload
from simulator.phases.deployment import Deployment
from simulator.specs.question.workload import WorkloadSpec
from simulator.traffic.requests import Outcome


def slower(deployment: Deployment, *, step_s: float, request_s: float) -> Deployment:
    """The same replica on an engine with other overheads."""
    overheads = deployment.engine.overheads.model_copy(update={"step_s": step_s, "request_s": request_s})
    return replace(deployment, engine=replace(deployment.engine, overheads=overheads))


def simulated_result(deployment: Deployment, workload: WorkloadSpec) -> dict[str, Any]:
    """What the bench tool writes about open arrivals: means in ms, every request in lists [s, tokens]."""
    result = serve_workload(deployment, workload=workload)
    requests, records = result.requests, result.run.records
    assert (records.outcome == int(Outcome.FINISHED)).all()
    ttft, tpot, e2e = (measure(requests, records) for measure in (ttft_s, tpot_s, e2e_s))
    count, (stage,) = len(ttft), workload.stages
    return {
        "backend": "vllm",
        "model_id": "meta-llama/Llama-3.1-8B-Instruct",
        "num_prompts": count,
        "request_rate": stage.rate_per_s,
        "burstiness": workload.burstiness**-2,
        "max_concurrency": None,
        "duration": float(records.finish_s.max() - requests.arrival_s.min()),
        "completed": count,
        "failed": 0,
        "total_input_tokens": int(requests.prompt_tokens.sum()),
        "total_output_tokens": int(requests.output_tokens.sum()),
        "input_lens": requests.prompt_tokens.tolist(),
        "output_lens": requests.output_tokens.tolist(),
        "start_times": (1.0e5 + requests.arrival_s).tolist(),
        "ttfts": ttft.tolist(),
        "mean_ttft_ms": float(ttft.mean()) * 1e3,
        "mean_tpot_ms": float(np.nanmean(tpot)) * 1e3,
        "mean_e2el_ms": float(e2e.mean()) * 1e3,
    }


def write_result(path: Path, result: dict[str, Any]) -> str:
    """The result as a file."""
    path.write_text(json.dumps(result), encoding="utf-8")
    return str(path)
