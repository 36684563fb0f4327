"""Passes on `linalg`: products, attention and rows are recognised, and operations are fused."""
