"""Traces of a running kernel: what each warp does over time, in modelled cycles."""
