"""Measures kernels with torch alone, so that it runs on a bare machine: ``python -m validation.measure --help``.

The same code runs on a CUDA GPU (events, graphs, cold operands, power by NVML) and on a CPU (wall clock, small
shapes). Continuous integration runs the CPU path from measurement to scored fit. The CUDA path has run on an H100 and
an H200 with torch 2.11; what a device or a build of torch lacks is skipped with its reason.
"""
