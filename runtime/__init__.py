"""How it is run: the Python API, the CUDA driver, ptxas, the interpreter and the `warploom` command."""
