"""The IR: the tables of the ISA, fragment layouts, and the dialects `warp` and `ptx`."""
