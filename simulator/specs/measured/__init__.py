"""What somebody measured: kernels, whole runs, quality."""
