"""Pipelining: copies that run ahead of products, barriers, and producer and consumer warps."""
