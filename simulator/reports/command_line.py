"""The command line that asks a question again (see ``specs.plan_flags``)."""

from __future__ import annotations

from simulator.specs.plan_flags import plan_command as plan_command
