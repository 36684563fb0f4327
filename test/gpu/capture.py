"""Records what a GPU answers to every matrix instruction it has, for random words.

    bench/with_gpu.sh python3 test/gpu/capture.py --out test/data/words/sm_90a.npz
    bench/with_gpu.sh python3 test/gpu/capture.py --set limits --warps 4 --out test/data/words/limits/sm_90a.npz
    bench/with_gpu.sh python3 test/gpu/capture.py --set memory --warps 8 --out test/data/words/memory/sm_90a.npz
    bench/with_gpu.sh python3 test/gpu/capture.py --set warpgroups --warps 8 --out test/data/words/warpgroups/sm_90a.npz
    bench/with_gpu.sh python3 test/gpu/capture.py --set tensors --out test/data/words/tensors/sm_90a.npz
    bench/with_gpu.sh python3 test/gpu/capture.py --set pixels --out test/data/words/pixels/sm_90a.npz
    bench/with_gpu.sh python3 test/gpu/capture.py --set reductions --out test/data/words/reductions/sm_90a.npz
    bench/with_gpu.sh python3 test/gpu/capture.py --set offsets --warps 8 --out test/data/words/offsets/sm_90a.npz
    bench/with_gpu.sh python3 test/gpu/capture.py --set further --warps 8 --out test/data/words/further/sm_90a.npz
    bench/with_gpu.sh python3 test/gpu/capture.py --set functions --out test/data/words/functions/sm_90a.npz
    bench/with_gpu.sh python3 test/gpu/capture.py --set scalars --out test/data/words/scalars/sm_90a.npz
    bench/with_gpu.sh python3 test/gpu/capture.py --set programs --out test/data/words/programs/sm_90a.npz
    bench/with_gpu.sh python3 test/gpu/capture.py --set maps --out build/maps.npz

Needs a GPU that runs the target. The words are drawn by `test/captured.py` from the instruction's name, so the file
keeps answers only: for each `mma` and `mma.sp` and selector an array (warps, words, 32 lanes). The set `limits` is the
same on integer sums that wrap or are clamped, and on floating-point ones that round to zero; `memory` is `wmma`,
`ldmatrix`, `stmatrix` and `movmatrix` (`test/captured_memory.py`), arrays (warps, words); `warpgroups` is `wgmma`
(`test/captured_warpgroups.py`), arrays (warpgroups, words), of large answers their digests; `tensors` is tensor copies
(`test/captured_tensors.py`), the bytes that they change; `pixels` is those in im2col mode (`test/captured_pixels.py`).
`reductions` is tensor copies that reduce; `offsets` is `wgmma` whose B begins inside the pattern of its swizzle;
`further` is what the draw of `warpgroups` left out; `functions` is approximate functions
(`test/captured_functions.py`); `scalars` is instructions of registers alone (`test/captured_scalars.py`), and
`programs` drawn programs of them (`test/captured_programs.py`); `transfers` is drawn programs of moves through memory
(`test/captured_transfers.py`); of these three sums of their answers. `maps` is the bytes of
tensor maps of im2col mode: nothing replays them, they show where the driver puts which field.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

import captured
import captured_functions
import captured_memory
import captured_pixels
import captured_programs
import captured_scalars
import captured_tensors
import captured_transfers
import captured_warpgroups
from captured_functions import FunctionCase
from captured_memory import MemoryCase
from captured_pixels import MapCase
from captured_programs import ProgramCase
from captured_scalars import ScalarCase
from captured_tensors import TensorCase
from captured_transfers import TransferCase
from captured_warpgroups import WarpgroupCase

from warploom.dialect.isa.row import target as target_row
from warploom.runtime import WarploomError, load_ptx
from warploom.runtime.cuda.driver import gpu

POISON = 0xDEADBEEF
WORKERS = 8
"""Processes at a time for cases that are recorded apart."""

SETS = {
    "products": captured.cases,
    "limits": captured.limit_cases,
    "memory": captured_memory.cases,
    "warpgroups": captured_warpgroups.cases,
    "tensors": lambda target: captured_tensors.cases(),
    "pixels": lambda target: captured_pixels.cases(),
    "reductions": lambda target: captured_tensors.reductions(),
    "offsets": captured_warpgroups.offset_cases,
    "further": captured_warpgroups.further_cases,
    "functions": lambda target: captured_functions.cases(),
    "scalars": captured_scalars.cases,
    "programs": lambda target: captured_programs.cases(),
    "transfers": lambda target: captured_transfers.cases(),
    "maps": lambda target: captured_pixels.map_cases(),
}

ANSWERS: dict[type, Callable[..., captured.Words]] = {
    MapCase: captured_pixels.map_bytes,
    TensorCase: captured_tensors.answer,
    FunctionCase: captured_functions.answer,
    ScalarCase: captured_scalars.answer,
    ProgramCase: captured_programs.answer,
    TransferCase: captured_transfers.answer,
}
"""What launches the kernels of a case, and gives the answers."""

Recorded = (
    captured.Case | MemoryCase | WarpgroupCase | TensorCase | FunctionCase | ScalarCase | ProgramCase | TransferCase
)


def prepared(
    case: captured.Case | MemoryCase | WarpgroupCase, warps: int
) -> tuple[str, captured.Words, captured.Words]:
    """The kernel, its input, and room for its answers."""
    if isinstance(case, MemoryCase):
        words, shape = captured_memory.inputs(case, warps), (warps, captured_memory.output_words(case))
        kernel = captured_memory.kernel(case, "k")
    elif isinstance(case, WarpgroupCase):
        words, shape = captured_warpgroups.inputs(case, warps), (warps, captured_warpgroups.output_words(case))
        kernel = captured_warpgroups.kernel(case, "k")
    else:
        words, shape = captured.inputs(case, warps), (warps, captured.output_words(case), captured.LANES)
        kernel = captured.kernel(case, "k")
    return kernel, np.ascontiguousarray(words), np.full(shape, POISON, np.uint32)


def launched(text: str, args: list[Any], ctas: int = 1) -> None:
    """Runs a kernel."""
    load_ptx(text).launch("k", (ctas, 1, 1), (captured_tensors.THREADS, 1, 1), args, device="cuda")


def record(case: Recorded, target: str, warps: int) -> captured.Words:
    """The answers of the GPU; refuses a kernel that leaves any word unwritten in a way that shows."""
    if isinstance(case, MapCase | TensorCase | FunctionCase | ScalarCase | ProgramCase | TransferCase):
        return ANSWERS[type(case)](case, launched)
    kernel, words, answers = prepared(case, warps)
    module = load_ptx(captured.module([kernel], target_row(target)))
    threads = captured_warpgroups.THREADS if isinstance(case, WarpgroupCase) else captured.LANES
    module.launch("k", grid=(warps, 1, 1), block=(threads, 1, 1), args=[words, answers], device="cuda")
    if (answers == POISON).mean() > 0.5:
        raise SystemExit(f"error: {case.name}: the kernel did not write its answers")
    return captured_warpgroups.kept(case, answers) if isinstance(case, WarpgroupCase) else answers


def attempt(case: Recorded, target: str, warps: int) -> captured.Words | str:
    """The answers, or why there are none."""
    try:
        return record(case, target, warps)
    except WarploomError as error:
        return str(error).splitlines()[0]


def apart(cases: list[Recorded], target: str, warps: int) -> Iterator[captured.Words | str]:
    """The answers to each case, by a process of its own."""
    with ProcessPoolExecutor(WORKERS, get_context("spawn"), max_tasks_per_child=1) as pool:
        yield from pool.map(partial(attempt, target=target, warps=warps), cases)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--warps", type=int, default=32, help="warps for each instruction and selector")
    parser.add_argument("--set", choices=SETS, default="products", help="which instructions, and on what")
    parser.add_argument("--apart", action="store_true", help="record each case in a process of its own")
    options = parser.parse_args()
    cases: list[Recorded] = list(SETS[options.set](target_row(options.target)))
    each = (options.target, options.warps)
    answers = apart(cases, *each) if options.apart else (attempt(case, *each) for case in cases)
    recorded: dict[str, captured.Words] = {}
    failed: list[str] = []
    for case, answer in zip(cases, answers, strict=True):
        if isinstance(answer, str):
            failed.append(f"{case.name}: {answer}")
        else:
            recorded[case.name] = answer
    device = gpu(0).device
    header = {"device": device.name, "driver": device.driver, "target": options.target, "warps": options.warps}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(options.out, allow_pickle=False, header=np.array(json.dumps(header)), **recorded)
    print(f"{len(recorded)} instructions, {options.out.stat().st_size / 1e6:.1f} MB, {device.name}")
    for line in failed:
        print(f"not recorded: {line}")


if __name__ == "__main__":
    main()
