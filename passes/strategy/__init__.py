"""Strategies, programs that choose how a program is lowered: in MLIR's dialect `transform`, or in Python."""
