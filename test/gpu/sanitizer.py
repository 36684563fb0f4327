"""Kernels of every kind under compute-sanitizer: bad accesses, races, barriers, memory that nothing wrote.

    bench/with_gpu.sh python3 test/gpu/sanitizer.py --jobs 16     # all tools and kinds; exit 1 if one finds something
    bench/with_gpu.sh python3 test/gpu/sanitizer.py --tools racecheck --kinds products rows

The kernels are the products of this file, and those of the tests of each kind, which run on the GPU in place of the
interpreter (`on_gpu.py`). Each tool looks at one process for each kind, which compares what the kernels compute with
float64, as the tests do. The processes compile into one cache, that of `WARPLOOM_CACHE` if it is set.

Racecheck does not see the kernels of `mma.sync` whose warps meet at mbarriers. Lane 0 of a warp arrives there for all
of its lanes, and racecheck takes that for the arrival of one: it reports the same of a dozen lines of PTX that have
`bar.warp.sync` before the arrival, and nothing where every lane arrives. The interpreter's check `races` looks at them.

Nor does it see those in which a thread arrives at an mbarrier that it has just initialised, as in rows that CTAs of a
cluster share: it reports a race of the thread with itself, as `barrier_arrivals.py` shows.

Initcheck follows the first 32 bytes alone of what a bulk copy stores: `bulk_stores.py` shows it with a dozen lines of
PTX. So it does not see the kernels whose second launch loads what tensor copies of the first stored. As soon as a tool
reports nothing of these programs, this script says so and fails, for then the exception must go.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product as pairs
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from on_gpu import LAUNCHED, followed
from problems import problem
from products import Product, Types, shared_by_ctas

TOOLS = {
    "memcheck": ("--leak-check", "no", "--report-api-errors", "no"),
    "racecheck": ("--num-cuda-barriers", "4096"),
    "synccheck": ("--num-cuda-barriers", "4096"),
    "initcheck": (),
}
"""What is run, and its options. Of mbarriers the tools follow only as many as they are told to. Errors of calls to the
driver are left out: `cuda.bindings` looks for functions that an older driver lacks, and ours raise exceptions."""

ROOT = Path(__file__).parents[2]
PATH = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
PYTEST = ("-m", "pytest", "-p", "no:cacheprovider", "-p", "on_gpu")

OWN = "products"
"""The kind of the products of this file."""

KINDS: dict[str, tuple[str, ...]] = {
    OWN: (),
    "warpgroups": ("warpgroup_products", "warpgroup_clusters", "own_tiles", "overlap"),
    "sparse": ("sparse_products", "sparse_warpgroups"),
    "split": ("passes_split", "passes_sliced_k", "split_loops", "warpgroup_split"),
    "invariant": ("batch_invariant",),
    "paired": ("paired",),
    "convolutions": ("convolutions", "pixels", "by_element"),
    "rows": ("row_kernels", "torch_rows"),
    "elementwise": ("elementwise_kernels", "indexed_elements", "roundings"),
    "attention": ("attention",),
    "gradients": ("attention_gradient",),
    "experts": ("experts",),
    "weights": ("weighted_products", "converted_weights", "grouped_weights", "packed_weights"),
    "blocks": ("scaled_products", "promoted_sums", "narrow_products"),
}
"""Kinds of kernels, and the files of `test/unit` that have some."""

EXCEPTIONS = {
    "racecheck": ("barrier_arrivals.py", "at-once", "bar.warp.sync"),
    "initcheck": ("bulk_stores.py", "cp.async.bulk", "st.global"),
}
"""Scripts with what tools are wrong about, and what they are right about beside it."""

SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)")

BF16, BF16_ALL = Types("bf16", "bf16", "f32"), Types("bf16", "bf16", "bf16")
S8, E4M3, TF32 = Types("i8", "i8", "i32"), Types("f8E4M3FN", "f8E4M3FN", "bf16"), Types("f32", "f32", "f32")


def products() -> Iterator[Product]:
    """Products by `mma.sync` and by warpgroups, dense and sparse, with epilogues, split, sliced, persistent."""
    plain, odd = (150, 200, 136), (151, 203, 133)
    small: dict[str, Any] = {"cta": (64, 64, 32), "warp": (32, 32), "stages": 3}
    yield Product(BF16, "added", "A B", plain, small)
    yield Product(BF16_ALL, "bias, relu", "A B", odd, small | {"pack": "ab", "staging": 16})
    yield Product(BF16, "cleared", "A Bt", plain, small | {"sync": "mbarrier", "prefetch": 2, "ctas": 3})
    yield Product(BF16, "cleared", "A B", (96, 96, 1024), small | {"split_k": 4})
    yield Product(BF16, "cleared", "A B", (96, 96, 256), {**small, "cta": (64, 64, 64), "sliced_k": 2})
    yield Product(BF16, "sparse", "A B", (96, 104, 256), small | {"cta": (64, 64, 64)})
    wide: dict[str, Any] = {"cta": (128, 128, 64), "mma": "m64n128k16"}
    yield Product(BF16_ALL, "cleared", "A B", (300, 264, 520), wide | {"ctas": 3})
    yield Product(BF16, "residual", "A Bt", (144, 208, 136), wide)
    yield Product(BF16_ALL, "residual", "A B", (304, 264, 200), wide | {"ctas": 2})
    yield Product(BF16_ALL, "gelu by tanh", "At B", (304, 264, 200), wide | {"ctas": 2})
    yield Product(TF32, "cleared", "A Bt", (144, 208, 136), {"cta": (128, 128, 32), "mma": "m64n128k8"})
    yield Product(S8, "added", "A Bt", (144, 208, 400), {"cta": (128, 128, 128), "mma": "m64n128k32"})
    yield Product(BF16, "divisible", "A B", (304, 264, 520), wide | {"ctas": 3})
    yield Product(BF16_ALL, "sparse", "A B", (304, 264, 544), {"cta": (128, 128, 64), "mma": "m64n128k32", "ctas": 3})
    yield Product(E4M3, "sparse", "A Bt", (144, 208, 544), {"cta": (128, 128, 128), "mma": "m64n128k64"})
    yield from shared_by_ctas()


def run_all(tool: str) -> int:
    """Runs every kernel that a tool can see on the GPU; 1 if a result is wrong."""
    launches = failed = 0
    for product in products():
        kernel, instance = product.compile("sm_90a"), problem(product, 11)
        if not followed(tool, kernel):
            continue
        kernel(*instance.arguments, device="cuda")
        launches += len(kernel.launches)
        wrong = instance.wrong()
        print(f"{product}: {wrong or 'right'}", flush=True)
        failed += bool(wrong)
    print(f"{LAUNCHED}{launches}")
    return 1 if failed else 0


def under(tool: str, *command: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """A Python script as a tool sees it, and how many errors each summary of the tool counts."""
    done = subprocess.run(
        ["compute-sanitizer", "--tool", tool, *TOOLS[tool], "--print-limit", "20", sys.executable, *command],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "SANITIZER": tool, "PYTHONPATH": os.pathsep.join(PATH)},
    )
    return done, SUMMARY.findall(done.stdout + done.stderr)


def exception_holds(tool: str) -> bool:
    """Whether a tool still is wrong about the first case of a script, and right about the second."""
    script, *cases = EXCEPTIONS[tool]
    errors = {case: under(tool, str(Path(__file__).with_name(script)), case)[1] for case in cases}
    print(f"{tool} of {script}:", errors, flush=True)
    wrong, right = errors.values()
    return any(map(int, wrong)) and bool(right) and not any(map(int, right))


def look(tool: str, kind: str) -> bool:
    """Whether a tool has nothing to say of the kernels of a kind, there are some, and their results are right."""
    files = (f"test/unit/test_{name}.py" for name in KINDS[kind])
    done, errors = under(tool, *((__file__, "--run") if kind == OWN else (*PYTEST, *files)))
    launched = re.search(rf"{LAUNCHED}(\d+)", done.stdout)
    count = int(launched[1]) if launched else 0
    clean = done.returncode == 0 and bool(errors) and not any(map(int, errors)) and count > 0
    verdict = "nothing found" if clean else f"findings: {errors}, exit status {done.returncode}"
    report = [] if clean else [done.stdout[-6000:], done.stderr[-2000:]]
    print(*report, f"{tool}: {kind}, {count} launches, {verdict}", sep="\n", flush=True)
    return clean


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=list(TOOLS))
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--run", action="store_true", help="only run the products that the tool SANITIZER can see")
    options = parser.parse_args()
    if options.run:
        return run_all(os.environ["SANITIZER"])
    if shutil.which("compute-sanitizer") is None:
        print("skipped: there is no compute-sanitizer on the path")
        return 0
    with TemporaryDirectory() as cache, ThreadPoolExecutor(options.jobs) as pool:
        os.environ.setdefault("WARPLOOM_CACHE", cache)
        clean = list(pool.map(look, *zip(*pairs(options.tools, options.kinds), strict=True)))
        clean += [exception_holds(tool) for tool in options.tools if tool in EXCEPTIONS]
    return 0 if all(clean) else 1


if __name__ == "__main__":
    sys.exit(main())
