"""What racecheck sees of an mbarrier at which the thread arrives that has initialised it.

    bench/with_gpu.sh compute-sanitizer --tool racecheck python3 test/gpu/barrier_arrivals.py at-once
    bench/with_gpu.sh compute-sanitizer --tool racecheck python3 test/gpu/barrier_arrivals.py bar.warp.sync

Racecheck reports a race of the two, which are one thread's, and none with `bar.warp.sync` between them.
"""

from __future__ import annotations

import sys

import torch

from warploom.runtime import load_ptx

KERNEL = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry k() .reqntid 64 {{
  .shared .align 8 .b64 barrier;
  .reg .pred %other; .reg .b32 %thread, %at;
  mov.u32 %thread, %tid.x;
  mov.u32 %at, barrier;
  setp.ne.u32 %other, %thread, 0;
  @!%other mbarrier.init.shared.b64 [%at], 1;
  {between}
  @!%other mbarrier.arrive.shared.b64 _, [%at];
  ret;
}}
"""

BETWEEN = {"at-once": "", "bar.warp.sync": "bar.warp.sync 0xFFFFFFFF;"}

if __name__ == "__main__":
    text = KERNEL.format(between=BETWEEN[sys.argv[1]])
    load_ptx(text).launch("k", grid=(8, 1, 1), block=(64, 1, 1), args=[], device="cuda")
    torch.cuda.synchronize()  # what runs while the process ends is not reported
