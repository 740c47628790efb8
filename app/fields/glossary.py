"""What the words mean: one sentence each, shown as the tooltip of every label that uses them."""

from __future__ import annotations

TTFT = "Time to first token: from sending a request to its first token, queueing included."
TPOT = "Time per output token after the first: (E2E - TTFT) / (output tokens - 1)."
E2E = "End-to-end latency: from sending a request to its last token."
ISL = "Input sequence length: prompt tokens of a request, on average."
OSL = "Output sequence length: tokens of an answer, the first included, on average."
MFU = "Model FLOPs utilisation: useful FLOPs per second over the dense peak of the devices."
MBU = "Model bandwidth utilisation: weights and KV cache read per second over the peak memory bandwidth."
KV = "KV cache: keys and values of all tokens that running requests attend to."
TP = "Tensor parallelism: each layer is split over this many accelerators, which exchange results in every layer."
PP = "Pipeline parallelism: layers are divided over this many groups of accelerators."
REPLICA = "One copy of the model on its accelerators. A fleet is all replicas and the spare ones."
POOLS = (
    "Prompts are computed by replicas of their own; their KV cache moves to those that decode. Both empty: no such "
    "pools; one of them: one replica there."
)
PREFILL_GPU = "Another accelerator for the prompts; their KV cache then crosses the slower network of both servers."
POOL_LINK = "What KV caches cross: the link inside a scale-up domain, or the servers' network cards."
FFN = (
    "Devices that hold the experts of one decode replica, whose own devices then do the attention alone: steps go back "
    "and forth as micro-batches. They need the two pools for prompts and answers."
)
MICRO = "Parts of a batch on their way between attention and experts at the same time, so that neither side waits."
TIERS = (
    "Room of a replica below the accelerators' memory for keys and values of prompts that come again. Evicted blocks "
    "move down; a request loads what it finds where that is sooner than computing it."
)
PROMPTS = (
    "As many prompts come again and again, in turn: what caches and the tiers below them still hold is not computed. "
    "Empty: every one is new, and only the cached share repeats."
)
PICTURES = "Pictures in each prompt, whose length counts their tokens too. Empty: none."
ENCODERS = (
    "Accelerators that encode pictures and do nothing else, in front of replicas that then hold no encoder. Empty: the "
    "replicas encode."
)
CONTEXT = "Tokens that every sequence of a decode step attends to, and of the prompt of a prefill."
SWEEP = "One deployment, changed along two axes; objectives hold by the mean in a batch, by the p95 under a rate."
BATCH = "Sequences that the model works on at the same time."
PRECISION = "How numbers are stored: fewer bits mean less memory traffic and faster matrix products."
SPARSITY = "Zeros in the weights that the hardware or the kernel can skip."
SPECULATION = "A cheap guess of several tokens, verified by the model in one step."
ATTENTION = (
    "Which attention kernel runs: fused (flash), materialised (standard) or split over the context (flash decoding)."
)
KV_POLICY = "Keeps only part of the KV cache, so that long contexts cost less memory and time."
KV_HEADS = (
    "Heads that share keys and values: one is multi-query attention, as many as query heads is multi-head attention; "
    "fewer of them make a smaller cache. What if the model had been built so."
)
ADAPTERS = "Small trained changes beside the weights; a batch may mix several."
EARLY_EXIT = "Early exit: generated tokens leave before the last layer once a test is confident; mean share passed."
CONTEXTUAL = "Contextual sparsity: small predictors choose the feed-forward neurons that each token needs."
DP = "Data parallelism of attention: this many ranks with caches of their own share the experts."
CP = "Context parallelism: this many ranks share the tokens of each prompt and its cache; all hold the weights."
MAX_SEQS = "Most sequences that the engine runs at once (max_num_seqs); empty: its own rule."
MAX_BATCHED = "Most tokens of one step (max_num_batched_tokens); empty: the engine's own rule."
EP = "Expert parallelism: whole experts are spread over this many of the accelerators, instead of a slice of each."
FUSION = "Norms, rotations and activations as kernels of their own, which write and read what fused ones keep on chip."
SEQUENCE = "Passes between the layers are split by tokens over the tensor-parallel accelerators instead of repeated."
HALVES = (
    "A step in halves: one computes while the other's tokens travel between experts (data and expert ranks above 1)."
)
WEIGHT_OFFLOAD = "Share of the layers' weights in host memory; it crosses the host link in every pass."
ENERGY = "Electric energy of the accelerators per generated token, prompts included."
SATURATION = "The highest rate that the deployment keeps up with; beyond it the queue grows as long as the load lasts."
PERCENTILE = "p95: 95 of 100 requests are at least this fast, p99: 99 of them."
MODE = "Prompts and answers on the same replicas (aggregated), the same with guesses (mtp), or on pools of their own."
HOURS = "What a recorded demand says of the hours of a day or a week; the rate stays that of the peak."
INTERVAL = "80 % interval: in validation, four of five measured values lay within it."
CROSSOVER = (
    "The batch at which the weight products of a decode step turn from memory to compute bound, by the datasheet's "
    "peaks; the range is as wide as the errors of the kernel models."
)
UTILISATION = "Share of the rate that saturates a replica which the plan uses; the rest absorbs bursts."
VERIFY = (
    "Replays requests on the best fleets before one is recommended; the first time, its loops are compiled for long."
)
SURE = (
    "Cheapest, usual, robust: the fleet holds its objectives in 50, 80 or 90 % of draws of the step times. "
    "Surer takes more accelerators."
)
LIMITS = "A limit of the whole fleet, spares included; empty: none. What does not fit is refused with what would."
STOCK = "Accelerators that exist serve first and cost no rent; the plan says what has to be obtained beside them."
ROUNDED = "Whole servers, or single accelerators where a provider rents them one by one."
SPARES = "Replicas beyond those that the peak needs, so that a failure breaks no objective."
PREFIX = "Share of prompt tokens that earlier requests left in the KV cache."
MIX = "Requests of several kinds on one fleet, as `--workload chat=0.7,rag=0.3` asks: mean lengths, strictest bounds."
VARIATION = "Coefficient of variation: standard deviation over mean of the lengths; 0 makes all requests equal."
COST = "Rental price of all accelerators, at a dated list price that you can replace."
PRICE_OF = "One price a provider counts; the median of them is what somebody pays who has not asked for quotes yet."
SELLER = "Providers of one kind alone: medians of different kinds of sellers do not compare alike."
GROWTH = "Growth of the request rate a month, compounding. It moves orders to come, not the fleet of today."
HORIZON = "How far ahead demand is followed; half and one and a half times the growth make the band."
LEAD_TIME = "Published lead times of accelerators are 3 to 12 months."
AVAILABILITY = "Share of the time in which enough replicas are up; says how many spares that takes, changes no fleet."
POWER_CAP = "What each accelerator may draw: its units clock lower, memory slows where it alone draws more."
POWER = "Power of the servers at typical load, at the wall of the rack."
ENGINE = "The serving engine: its scheduler's limits and its measured host overheads."

PROVENANCE = {
    "measured": "Taken from a measurement of this very case.",
    "calibrated": "Predicted by models fitted on measured kernels of this accelerator.",
    "extrapolated": "Predicted beyond the measured shapes, or with the fits of a related accelerator: wider interval.",
    "assumed": "Rests on assumed efficiencies: nothing was measured near this case.",
}
