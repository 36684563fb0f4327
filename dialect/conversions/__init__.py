"""Conversions between fragments: the steps that a warp can take, their costs, and the search for the cheapest."""
