"""A package that adds one of everything to Warploom, by entry points: for a test, and to start from."""
