"""Attention kernels: cases of a shape, prefill, decode, and which fit prices which."""
