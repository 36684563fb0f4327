"""Observers of a running kernel: their interface, the report, and the costs of memory accesses."""
