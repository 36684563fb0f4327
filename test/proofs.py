"""Proofs of the kernels whose PTX is pinned: each computes its function for all inputs, or the line says why not.

    python test/proofs.py                    # all of them
    python test/proofs.py --every 16         # some
    python test/proofs.py --only attention   # those with this in their name

Products of hundreds of rows are proven at a smaller size of the same remainders, as `pins.py` runs them. Each line has
the seconds of processor time that the kernel took, compiled and proven; one that takes more than `LONGEST` counts as
not proven.
"""

from __future__ import annotations

import argparse
import resource
import sys
from collections.abc import Sequence
from multiprocessing import Pool

from attention_problems import problem
from attentions import Attention
from pins import Function, Level, Pinned, pinned, smaller
from products import Product

from warploom.runtime import Kernel, WarploomError, prove
from warploom.runtime.cli.prove import prove_kernel
from warploom.runtime.proof.question import Proof

LONGEST = 60.0
"""The seconds of processor time that a proof may take."""

SIZED = ("dynamic", "divisible")
"""Forms whose types have no sizes."""


def proof_of(kernel: Pinned) -> Proof:
    """The verdict on a kernel at a size that can be proven."""
    source = kernel.source
    if isinstance(source, Product):
        product = smaller(source, kernel.target)
        compiled, shapes = product.compile(kernel.target), product.shapes() if product.form in SIZED else []
        return prove_kernel(compiled, product.mlir, _sizes(compiled, shapes), 0)
    if isinstance(source, Attention):
        compiled, shapes = kernel.compile(), [source.shape(v) for v in source.arguments() if source.dynamic]
        if source.lengths or source.pages or source.documents:
            names = [p.name for p in compiled.function.parameters]
            return prove(compiled, source.mlir, dict(zip(names, problem(source).arguments, strict=True)))
        return prove_kernel(compiled, source.mlir, _sizes(compiled, shapes), 0)
    if isinstance(source, Function):
        return prove_kernel(kernel.compile(), source.text, source.sizes, 0, source.words.get("function"))
    raise TypeError(f"{kernel} is launched by no function")


def _sizes(kernel: Kernel, shapes: Sequence[tuple[int, ...]]) -> list[str]:
    """The sizes of arguments that have none in their types."""
    pairs = zip(kernel.function.parameters, shapes, strict=False)
    return [f"{p.name}=random:{'x'.join(map(str, shape))}" for p, shape in pairs if p.shape]


def verdict(kernel: Pinned) -> tuple[str, bool, float]:
    """What a proof says of a kernel, whether it is one, and the seconds of processor time that it took."""
    start = _processor_time()
    try:
        proof = proof_of(kernel)
        said, proven = str(proof) if not proof else proof.outcome, bool(proof)
    except WarploomError as error:
        said, proven = f"undecided: {error}", False
    return f"{kernel}: {said.splitlines()[0][:300]}", proven, _processor_time() - start


def _processor_time() -> float:
    """Seconds that this process and its children spent, in user and system time."""
    return sum(sum(resource.getrusage(of)[:2]) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, metavar="N", help="prove each Nth kernel")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="begin with this one")
    parser.add_argument("--only", default="", metavar="TEXT", help="prove those with this in their name")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="prove so many at once")
    args = parser.parse_args()
    kernels = [k for k in pinned() if not isinstance(k.source, Level) and args.only in str(k)]
    kernels, proven = kernels[args.first :: args.every], 0
    times: list[tuple[float, str]] = []
    with Pool(args.jobs, maxtasksperchild=8) as pool:
        for text, success, seconds in pool.imap_unordered(verdict, kernels):
            proven += success and seconds <= LONGEST
            times.append((seconds, text))
            print(f"{seconds:6.1f} s  {text}", flush=True)
    print("the slowest:")
    for seconds, text in sorted(times, reverse=True)[:10]:
        print(f"{seconds:6.1f} s  {text}")
    print(f"{proven} of {len(kernels)} proven, each in at most {LONGEST:.0f} s")
    return 0 if proven == len(kernels) else 1


if __name__ == "__main__":
    sys.exit(main())
