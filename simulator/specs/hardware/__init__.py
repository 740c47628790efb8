"""Accelerators, servers, and the fits that were made on them."""
