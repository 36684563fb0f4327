"""The arithmetic of the tensor cores and of floats, on arrays of words; it knows nothing of the interpreter."""
