"""How it is lowered: passes, the standard pipeline, diagnostics, and `warploom-opt`."""
