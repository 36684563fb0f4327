"""The interpreter: PTX text, executed on a CPU with the bits of the silicon."""
