"""The arithmetic of tensor cores and floats, on arrays of words, independent of the interpreter."""
