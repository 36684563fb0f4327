"""Traces of a running kernel: what each warp does when, in modelled cycles."""
