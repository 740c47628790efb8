"""Limits of the fleet that contradict what was fixed, whatever a search finds: refused before it starts."""

from __future__ import annotations

from simulator.errors import RoofcastError
from simulator.specs.plan import PlanSpec


def _refused(flag: str, message: str, *, hint: str) -> RoofcastError:
    return RoofcastError(message, field=flag, code="contradiction", hint=hint)


def check_contradictions(spec: PlanSpec) -> None:
    """Refuse limits that no fleet of the fixed degrees, spares and rounding can hold.

    Raises
    ------
    RoofcastError
        Both options are named.
    """
    if spec.max_racks is not None and spec.round_to == "device":
        raise _refused(
            "--max-racks",
            "contradicts --round-to device: only whole servers have a place in a rack",
            hint="leave --round-to at server, or limit power with --max-power-kw",
        )
    if spec.max_gpus is None or spec.stock:
        return
    tp, pp, dp = (min(values, default=1) for values in (spec.tp, spec.pp, spec.dp))
    devices, spares = tp * pp * dp, spec.spares or 0
    if devices * (1 + spares) > spec.max_gpus:
        degrees = zip(("--tp", "--pp", "--dp"), (tp, pp, dp), strict=True)
        fixed = [f"{flag} {value}" for flag, value in degrees if value > 1]
        fixed += [f"--spares {spares}"] if spares else []
        raise _refused(
            "--max-gpus",
            f"{spec.max_gpus} contradicts {' and '.join(fixed)}: that is {devices * (1 + spares)} GPUs at least",
            hint=f"allow --max-gpus {devices * (1 + spares)} or lower {fixed[0].split()[0]}",
        )
