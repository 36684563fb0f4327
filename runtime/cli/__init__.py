"""The `warploom` command."""
