"""N:M structured sparsity: `mma.sp` and `wgmma.mma_async.sp` take half of matrix A, and metadata that says which half.

patterns.py  the granularities 1:2, 2:4 and 4:8 in pairs, and the nibbles that may describe a chunk
operands.py  which granularity and which metadata layout each instruction has, one line each
matrix.py    whole matrices: compress, expand, prune, what breaks a pattern
metadata.py  the 32-bit metadata words of a tile and of a matrix, their inverse, their validation

The first two are rows and need no numpy.
"""
