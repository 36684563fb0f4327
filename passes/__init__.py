"""The lowering: passes, the standard pipeline, diagnostics, and `warploom-opt`."""
