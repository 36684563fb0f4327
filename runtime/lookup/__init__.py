"""Look-ups: forms of instructions, fragments, layouts, and conversions between layouts."""
