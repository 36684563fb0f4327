"""How it is lowered: one pass per file, the standard pipeline, PTX text in and out, and `warploom-opt`."""
