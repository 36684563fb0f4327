"""Instruction rows, one module per group of the PTX ISA's chapter 9.7."""
