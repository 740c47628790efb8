"""Speculative decoding: methods, drafters, acceptance."""
