"""Expansion of macro-operations to loads, stores, barriers and arithmetic."""
