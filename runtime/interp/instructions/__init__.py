"""What instructions do: a module for each section of the ISA, bound to the rows or opcodes they give a meaning to."""
