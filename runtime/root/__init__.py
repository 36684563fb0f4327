"""The package `warploom` itself: `python -m warploom` is its command, all else is in the packages inside it."""
