"""The GPU through the CUDA driver, and ptxas."""
