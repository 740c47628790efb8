"""Measures kernels with torch alone, so that it runs on a bare machine: ``python -m validation.measure --help``.

The same code runs on a CUDA GPU (events, graphs, cold operands, power by NVML) and on a CPU (wall clock, small shapes).
Continuous integration runs the CPU path from measurement to scored fit. The CUDA path was written against the torch
2.13 interface and has not yet run on a GPU; what a device or a build of torch lacks is skipped with its reason.
"""
