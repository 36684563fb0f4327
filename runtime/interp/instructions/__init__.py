"""The semantics of instructions: a module for each section of the ISA, bound to its rows."""
