"""Schedules: the model that chooses them, measured ones, overridden fields, and checks."""
