"""What every part of the runtime uses: errors, sources, launches as plain data, and the cache."""
