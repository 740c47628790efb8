"""Results of ``vllm bench serve --save-result --save-detailed`` as the event simulation would have given them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from simulator.engine.runs.metrics import e2e_s, tpot_s, ttft_s
from simulator.phases.deployment import Deployment
from simulator.specs.question.workload import StageSpec, WorkloadSpec
from simulator.traffic.requests import Outcome, Requests, grouped_prompts, make_requests
from tests.engine.workload_runs import serve_workload


def slower(deployment: Deployment, *, step_s: float, request_s: float) -> Deployment:
    """The same replica on an engine with other overheads."""
    overheads = deployment.engine.overheads.model_copy(update={"step_s": step_s, "request_s": request_s})
    return replace(deployment, engine=replace(deployment.engine, overheads=overheads))


def served_requests(
    deployment: Deployment,
    *,
    isl_tokens: Sequence[int],
    osl_tokens: Sequence[int],
    rate_per_s: float,
    gap_cv: float,
    shared_tokens: int,
) -> dict[str, Any]:
    """The result of sending these requests in this order at gamma intervals, all with one prefix."""
    gaps = np.random.default_rng(0).gamma(gap_cv**-2, gap_cv**2 / rate_per_s, size=len(isl_tokens))
    prompts = np.array(isl_tokens, dtype=np.int64)
    lists = grouped_prompts(
        groups=1,
        prompts_per_group=None,
        system_tokens=shared_tokens,
        prompt_tokens=prompts,
        block_size_tokens=deployment.engine.block_size_tokens,
    )
    requests = make_requests(
        arrival_s=np.cumsum(gaps) - gaps[0],
        prompt_tokens=prompts,
        output_tokens=np.array(osl_tokens, dtype=np.int64),
        prefix_list=np.zeros(len(prompts), dtype=np.int64),
        list_start=lists.list_start,
        block_ids=lists.block_ids,
    )
    stage = StageSpec(rate_per_s=rate_per_s, duration_s=float(gaps.sum()))
    burstiness = {"arrival": "gamma", "burstiness": gap_cv} if gap_cv != 1 else {}
    workload = WorkloadSpec(stages=(stage,), isl_tokens=1, osl_tokens=1, timeout_s=None, **burstiness)
    return simulated_result(deployment, workload, requests=requests)


def simulated_result(
    deployment: Deployment, workload: WorkloadSpec, *, requests: Requests | None = None
) -> dict[str, Any]:
    """What the bench tool writes about open arrivals: means in ms, every request in lists [s, tokens]."""
    result = serve_workload(deployment, workload=workload, requests=requests)
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
