"""`warp-pipeline`: the K loop read, its barriers, the loop with copies ahead."""
