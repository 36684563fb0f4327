"""What can be said: the rows of the ISA, fragment layouts, and the dialects `warp` and `ptx`."""
