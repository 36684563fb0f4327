"""What a call of a compiled function does, as plain data: the launches of a host function."""
