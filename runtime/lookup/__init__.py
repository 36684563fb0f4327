"""Looking things up: which forms of instructions there are, fragments, layouts, and ways from one to another."""
