"""Fleets: replicas, spares, whole servers, power and racks, and the same fleet resized."""
