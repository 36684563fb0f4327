"""Tiling: from a scheduled product to a kernel over fragments."""
