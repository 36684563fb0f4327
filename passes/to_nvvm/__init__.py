"""Kernels of the dialect `ptx` as upstream's `llvm` and `nvvm`."""
