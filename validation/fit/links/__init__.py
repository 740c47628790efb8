"""Collectives between devices: laws by library and link."""
