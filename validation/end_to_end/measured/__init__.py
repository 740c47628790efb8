"""Measured runs of others as scenarios: one source a module."""
