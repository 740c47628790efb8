"""Fits to a user's own measurements: kernels, whole steps, the overheads of an engine."""
