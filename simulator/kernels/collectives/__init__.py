"""Collectives: latency-bandwidth laws, and the way of a message across links and servers."""
