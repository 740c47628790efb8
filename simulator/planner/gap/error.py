"""A refusal that comes with what would close the gap."""

from __future__ import annotations

from simulator.errors import InfeasibleError
from simulator.planner.gap.records import Gap


class GapError(InfeasibleError):
    """No plan: ``gap`` says what is missing and what would close it, with costs in ``currency``."""

    def __init__(self, refusal: InfeasibleError, *, gap: Gap, currency: str) -> None:
        super().__init__(refusal.message, field=refusal.field, code=refusal.code, hint=refusal.hint)
        self.gap = gap
        self.currency = currency
