"""Measures kernels with torch alone, so that it runs on a bare machine: ``python -m validation.measure --help``."""
