"""Collectives: latency-bandwidth laws, and the path of a message across links and servers."""
