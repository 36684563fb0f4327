"""What initcheck sees of a bulk store: a kernel stores 128 words in new memory, another one loads them.

    bench/with_gpu.sh compute-sanitizer --tool initcheck python3 test/gpu/bulk_stores.py cp.async.bulk
    bench/with_gpu.sh compute-sanitizer --tool initcheck python3 test/gpu/bulk_stores.py st.global

Initcheck reports 120 of the words that `cp.async.bulk` stores: it follows the first 32 bytes of a
copy. It reports none where each thread stores its word.
"""

from __future__ import annotations

import os
import sys

import torch

from warploom.runtime import load_ptx

WORDS = 128

HEADER = """.version 8.5
.target sm_90a
.address_size 64
.visible .entry moved(.param .u64 from, .param .u64 into)
{
    .shared .align 128 .b8 tile[512];
    .reg .pred %p; .reg .b32 %r<4>; .reg .b64 %d<4>;
    ld.param.u64 %d0, [from]; ld.param.u64 %d1, [into]; mov.u32 %r0, %tid.x;
    mul.wide.u32 %d2, %r0, 4; add.u64 %d0, %d0, %d2; add.u64 %d3, %d1, %d2;
    ld.global.b32 %r1, [%d0];
"""

STORES = {
    "st.global": "st.global.b32 [%d3], %r1; ret; }",
    "cp.async.bulk": """
    mov.u32 %r2, tile; shl.b32 %r3, %r0, 2; add.u32 %r3, %r2, %r3; st.shared.b32 [%r3], %r1;
    fence.proxy.async.shared::cta; bar.sync 0; setp.ne.u32 %p, %r0, 0; @%p ret;
    cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r2], 512;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; ret; }""",
}


def main() -> None:
    os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    copied = torch.randint(1, 100, (WORDS,), dtype=torch.int32, device="cuda")
    new = torch.empty(WORDS, dtype=torch.int32, device="cuda")
    copies = torch.zeros(WORDS, dtype=torch.int32, device="cuda")
    for stores, source, into in ((sys.argv[1], copied, new), ("st.global", new, copies)):
        module = load_ptx(HEADER + STORES[stores])
        module.launch("moved", grid=(1, 1, 1), block=(WORDS, 1, 1), args=[source, into], device="cuda")
        torch.cuda.synchronize()
    sys.exit(0 if torch.equal(copied, copies) else "error: other words came")


if __name__ == "__main__":
    main()
