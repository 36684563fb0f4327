"""The package `warploom`, so that `python -m warploom` runs the command; the other packages are inside it."""
