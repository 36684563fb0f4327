"""From fragments to threads: the parts of `convert-warp-to-ptx`."""
