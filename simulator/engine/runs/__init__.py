"""Answers about many requests: served workloads, capacities, percentiles and their intervals."""
