"""Kernels: compiling, binding arguments, calling, loading PTX, checking it, tuning."""
