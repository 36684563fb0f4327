"""The meaning of instructions: a module for each part of the ISA, bound to its rows."""
