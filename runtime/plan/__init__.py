"""What a compiled function is, as plain data: launches of a host function and its signature."""
