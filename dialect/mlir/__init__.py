"""MLIR's dialects `linalg`, `gpu` and `memref`: the operations and the text that xDSL lacks."""
