"""What instructions do: a module for each section of the ISA, bound to the rows they give a meaning to."""
