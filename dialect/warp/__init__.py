"""The dialect `warp`: fragments, and the operations that the 32 lanes of a warp execute together."""
