"""The dialect `ptx`: what one thread executes."""
