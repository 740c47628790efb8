"""Planned fleets in the event simulation, before one is recommended."""
