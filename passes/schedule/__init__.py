"""Schedules: chosen by a model, found by measuring, overridden field by field, and checked."""
