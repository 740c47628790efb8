"""Encoders of pictures on accelerators of their own, in front of the replicas that read what they make.

A request is encoded by the pool first, one request at a time on each of its replicas; its embeddings move over a link,
and then it joins the queue of a replica that holds no encoder. Left out: a cache of pictures that come again, several
requests in one pass, and resizing on the host.

References
----------
[Singh2025]
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, log

import numpy as np

from simulator.engine.lanes.queueing import busy_servers_probability, gg1_wait_mean_s
from simulator.engine.pools import Pool, slower_network, transfer_ends_s, transfer_link
from simulator.errors import InfeasibleError, said_of
from simulator.operators.transformer import layer_rows
from simulator.operators.vision import vision_parameters
from simulator.operators.work import prefill_step
from simulator.phases.deployment import Deployment, deploy
from simulator.phases.power import average_power_w
from simulator.phases.step import StepEstimate, estimate_step
from simulator.records import dataclass
from simulator.specs.engine.deployment import EncoderPoolSpec, ParallelismSpec
from simulator.specs.hardware.accelerator import AcceleratorSpec, ServerSpec, default_server_for
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.model.precision import BITS, Dtype
from simulator.traffic.requests import Requests
from simulator.traffic.workload_requests import mean_rate_per_s
from simulator.units import BITS_PER_BYTE, GIGA


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderPool:
    """Replicas that encode the pictures of requests.

    estimate : one pass over the pictures of a request; embedding_bytes : what the model reads of them, 16 bits each
    link_bytes_per_s : of one device; scale : makes every pass that many times as long (for intervals)
    """

    deployment: Deployment
    replicas: int
    estimate: StepEstimate
    embedding_bytes: float
    link: str
    link_bytes_per_s: float
    scale: float = 1.0

    @property
    def request_s(self) -> float:
        """One pass over the pictures of a request [s]."""
        return self.scale * float(self.estimate.step_s[0])

    @property
    def saturation_per_s(self) -> float:
        """Requests that all replicas encode at most [1/s]."""
        return self.replicas / self.request_s

    @property
    def transfer_s(self) -> float:
        """Embeddings of a request on their way to a replica [s]."""
        return self.embedding_bytes / self.link_bytes_per_s

    def sent_on(self, requests: Requests) -> Requests:
        """Requests with what encoding, the queue for it and the transfer take before an engine sees them. All passes
        take equally long, so that first come, first served gives each replica every n-th request."""
        arrival_s, count = requests.arrival_s, len(requests)
        passes = np.full(count, self.request_s)
        ends_s = transfer_ends_s(arrival_s, passes, sender=np.arange(count) % self.replicas)
        return replace(requests, ahead_s=ends_s - arrival_s + self.transfer_s)

    def use(self, requests: Requests) -> EncoderUse:
        """What it does with them."""
        rate_per_s = mean_rate_per_s(requests)
        waits_s = np.maximum(self.sent_on(requests).ahead_s - self.request_s - self.transfer_s, 0.0)
        load = rate_per_s * self.request_s / self.replicas
        return EncoderUse(
            hardware=self.deployment.hardware.name,
            replicas=self.replicas,
            devices=self.replicas * self.deployment.parallelism.devices,
            request_s=self.request_s,
            wait_mean_s=float(waits_s.mean()),
            poisson_wait_mean_s=pool_wait_mean_s(
                rate_per_s=rate_per_s, service_s=self.request_s, servers=self.replicas
            ),
            transfer_s=self.transfer_s,
            link=self.link,
            busy_fraction=min(load, 1.0),
            saturation_per_s=self.saturation_per_s,
            needed_replicas=int(rate_per_s * self.request_s) + 1,
            power_w=self.replicas
            * average_power_w(self.deployment, phases=((np.ones(1), self.estimate),), busy_fraction=min(load, 1.0)),
        )


def at_scale(pool: EncoderPool | None, scale: float) -> EncoderPool | None:
    """A pool whose passes take that many times as long."""
    return None if pool is None else replace(pool, scale=scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderUse:
    """What a pool of encoders does.

    request_s, wait_mean_s, transfer_s : encoding, waiting for it, and the way of the embeddings, all part of TTFT [s]
    poisson_wait_mean_s : the wait in closed form where requests come at random; infinite beyond saturation
    needed_replicas : the fewest that keep up with the mean rate; power_w : of all its devices [W]
    """

    hardware: str
    replicas: int
    devices: int
    request_s: float
    wait_mean_s: float
    poisson_wait_mean_s: float
    transfer_s: float
    link: str
    busy_fraction: float
    saturation_per_s: float
    needed_replicas: int
    power_w: float


def pool_wait_mean_s(*, rate_per_s: float, service_s: float, servers: int) -> float:
    """Mean wait for one of several servers of equal service under Poisson arrivals, M/D/c [s].

    Equation
    --------
    P(rho, c) / (c (1 - rho)) S / 2 with the load rho = lambda S / c.

    Parameters
    ----------
    rate_per_s : lambda, of all servers together [1/s]
    service_s : S [s]
    servers : c, at least 1 [-]

    Range of validity
    -----------------
    Exact for one server; for several, P is an approximation of how many find all busy. Leaves out bursts.

    References
    ----------
    [Sakasegawa1977]

    Examples
    --------
    >>> round(pool_wait_mean_s(rate_per_s=5, service_s=0.1, servers=1), 9)
    0.05
    """
    load = rate_per_s * service_s / servers
    alone_s = gg1_wait_mean_s(
        arrival_rate_per_s=rate_per_s / servers, service_mean_s=service_s, service_cv=0, arrival_cv=1
    )
    if load >= 1:
        return inf
    return float(alone_s) * float(busy_servers_probability(load=load, servers=servers)) / (load * servers)


def wait_percentile_s(*, rate_per_s: float, service_s: float, servers: int, percentile: float) -> float:
    """Wait for one of several servers that a share of the requests does not exceed [s].

    Equation
    --------
    W P^-1 ln(P / (1 - p)) where more than 1 - p wait at all, else 0

    Parameters
    ----------
    rate_per_s, service_s, servers : as of ``pool_wait_mean_s``, whose mean wait is W [s] and share that waits P [-]
    percentile : p [%]

    Range of validity
    -----------------
    An exponential tail, which waits for servers of equal service do not reach: rather too long. Leaves out bursts.

    References
    ----------
    [Sakasegawa1977]

    Examples
    --------
    >>> round(wait_percentile_s(rate_per_s=5, service_s=0.1, servers=1, percentile=95), 3)
    0.23
    """
    load = rate_per_s * service_s / servers
    if load >= 1:
        return inf
    mean_s = pool_wait_mean_s(rate_per_s=rate_per_s, service_s=service_s, servers=servers)
    waiting, left = float(busy_servers_probability(load=load, servers=servers)), 1 - percentile / 100
    return mean_s / waiting * log(waiting / left) if waiting > left else 0.0


def encoder_pool(
    spec: EncoderPoolSpec,
    *,
    hardware: AcceleratorSpec,
    model: ModelSpec,
    prompt_tokens: float,
    behind: Pool,
    server: ServerSpec | None,
    profiles: str | None = None,
) -> EncoderPool:
    """The pool of a scenario.

    hardware : its accelerators; model : with the pictures of a prompt of ``prompt_tokens``
    behind : what computes prompts, in servers of ``server``
    """
    parallelism = ParallelismSpec(tp_size=spec.tp_size)
    with said_of({"tp_size": "encoder_pool.tp_size"}):
        own = deploy(model=model, hardware=hardware, parallelism=parallelism, profiles=profiles)
    vision = model.vision
    assert vision is not None, "with_pictures refuses models without an encoder"
    assert vision.pictures is not None, "the model comes with pictures"
    held_bytes = vision_parameters(vision, layer_rows) * BITS[Dtype.BF16] / BITS_PER_BYTE
    if held_bytes > hardware.memory_visible_bytes:
        raise InfeasibleError(
            f"the encoder of {model.name} takes {held_bytes / GIGA:.3g} GB, {hardware.name} has "
            f"{hardware.memory_visible_bytes / GIGA:.3g} GB",
            field="encoder_pool.hardware",
            code="does_not_fit",
        )
    link, rate = _link(spec, own, behind=behind, server=server, profiles=profiles)
    tokens = prompt_tokens * vision.pictures.per_prompt_token * vision.pictures.tokens
    return EncoderPool(
        deployment=own,
        replicas=spec.replicas,
        estimate=_pass(own, prompt_tokens=prompt_tokens),
        embedding_bytes=tokens * model.hidden_size * BITS[Dtype.BF16] / BITS_PER_BYTE,
        link=link,
        link_bytes_per_s=rate,
    )


def _pass(deployment: Deployment, *, prompt_tokens: float) -> StepEstimate:
    """The encoder's rows of a step that computes a whole prompt, alone."""
    whole = estimate_step(deployment, prefill_step(sequences=1, tokens=prompt_tokens))
    rows = tuple(row for row in whole.rows if row.work.name.startswith("vision_"))
    stage_s = sum((row.seconds for row in rows), np.zeros_like(whole.host_s))
    return replace(whole, rows=rows, stage_s=stage_s[np.newaxis])


def _link(
    spec: EncoderPoolSpec, own: Deployment, *, behind: Pool, server: ServerSpec | None, profiles: str | None
) -> tuple[str, float]:
    """Name and rate per device of what joins the pool to the replicas; other accelerators share no scale-up link."""
    if own.hardware.name != behind.deployment.hardware.name:
        server = slower_network(server, default_server_for(own.hardware.name, profiles=profiles))
    pool = Pool(deployment=own, replicas=spec.replicas)
    return transfer_link(behind, pool, link=spec.link, server=server, field="encoder_pool.link")
