"""`convert-warp-to-ptx`: from operations on fragments to instructions of one thread."""
