"""Requests of equal lengths: static batches, closed loops, everything queued at once."""
