"""What stands beside replicas, refused before anything is searched: tiers below caches, encoders of pictures."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.engine.pools import unlike_vendors
from simulator.errors import Option, ProfileError, RoofcastError
from simulator.phases.kv_tiers import kv_tiers
from simulator.planner.search.candidates import asked_engine, candidates, platforms
from simulator.planner.search.question import Question, parallelisms
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.hardware.accelerator import AcceleratorSpec


def _compared(question: Question) -> Iterator[tuple[AcceleratorSpec, ParallelismSpec]]:
    """Accelerators and degrees that a search may try, large ones included."""
    spec, model = question.spec, question.model
    wide = parallelisms(spec, model=model) if spec.search == "wide" else ()
    for platform in platforms(spec):
        sizes = (candidates(spec, model=model, platform=platform, large=large) for large in (False, True))
        found = dict.fromkeys([*wide, *(item.parallelism for size in sizes for item in size)])
        yield from ((platform.hardware, item) for item in found)


def _check_tiers(question: Question) -> None:
    """Refuse tiers that are faster than the host links of every replica to compare."""
    spec, engine, refused = question.spec, asked_engine(question.spec), None
    for hardware, parallelism in sorted(
        _compared(question), key=lambda pair: -pair[0].host_link.bytes_per_s_per_direction * pair[1].devices
    ):
        try:
            kv_tiers(engine, True, hardware=hardware, parallelism=parallelism, profiles=spec.profiles)
        except RoofcastError as error:
            refused = refused or error
        else:
            return
    if refused is not None:
        raise RoofcastError(refused.message, field=Option("kv_tiers"), code=refused.code, hint=refused.hint)


def _check_encoders(question: Question) -> None:
    """Refuse encoders that nobody knows, and kinds whose embeddings reach no accelerator to compare, all of them."""
    spec, option = question.spec, Option("encoder_hardware")
    try:
        encoders = platforms(spec.model_copy(update={"hardware": spec.encoder_hardware}))
    except ProfileError as error:
        error.field = option
        raise
    behind = platforms(spec)
    reasons = [
        [unlike_vendors(encoder.hardware, item.hardware, sent="embeddings") for item in behind] for encoder in encoders
    ]
    if all(all(item) for item in reasons):
        hint = "a server accelerator of the same vendor"
        raise RoofcastError(reasons[0][0], field=option, code="unsupported_option", hint=hint)


def check_beside(question: Question) -> None:
    """Refuse what no fleet of a question can have.

    Raises RoofcastError: its tiers are faster than every host link, or none of its encoders reaches a replica.
    Raises ProfileError: an encoder's accelerator is unknown.
    """
    if question.spec.kv_tiers:
        _check_tiers(question)
    if question.spec.encoder_hardware:
        _check_encoders(question)
