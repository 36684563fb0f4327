"""Kernels whose PTX is pinned: a change of the lowering leaves their text as it was, or says which it changes.

    python test/pins.py               # compare all of them with what is pinned; exit 1 if some differ (a minute)
    python test/pins.py --rewrite     # pin what is generated now, and print which kernels changed

Every element type, form, target, and way for A and B to lie comes up at default schedules, the products of
`bench/RESULTS.md` at theirs, every kind of schedule, and the examples. `data/pins/hashes.txt` has a hash of each text
without its comments, with registers numbered as they come up; `data/pins/*.ptx` some small ones whole.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).with_name("gpu")))

from gpu.forms import LOOPS, SCHEDULES
from products import FORMS, LIES, TYPES, Product, Size, Types, fitted

from warploom.passes.pipeline import verified_after_each_pass
from warploom.runtime import Kernel, compile

ROOT = Path(__file__).parents[1]
PINS = ROOT / "test" / "data" / "pins"
HASHES = PINS / "hashes.txt"

TARGETS = ("sm_90a", "sm_80", "sm_120a", "sm_89")

SIZES: tuple[Size, ...] = ((4096, 4096, 4096), (100, 100, 100), (1000, 1000, 1000), (4095, 4095, 4095))
"""From which different tiles follow: many, few, fewer than there are SMs, in odd rows."""

BF16, TF32, F64 = (Types(*kinds) for kinds in (("bf16", "bf16", "f32"), ("f32", "f32", "f32"), ("f64", "f64", "f64")))
S8, E4M3 = Types("i8", "i8", "i32"), Types("f8E4M3FN", "f8E4M3FN", "bf16")

EXAMPLES = {
    "batch_matmul": "sm_90a", "binary_matmul": "sm_90a", "block_scaled_matmul": "sm_120a", "dynamic_matmul": "sm_90a",
    "matmul_bias_gelu": "sm_90a", "narrow_matmul": "sm_120a",
}  # fmt: skip
"""Those that are no products of `products.py`."""

SMALL: dict[str, Any] = {"cta": (16, 16, 32), "warp": (16, 8), "stages": 2, "staging": 0}


@dataclass(frozen=True)
class Pinned:
    """A kernel by a name of its own; one that is `whole` is kept as text too."""

    product: Product | str
    target: str
    whole: str = ""

    def __str__(self) -> str:
        return f"{self.product} on {self.target}"

    def text(self) -> str:
        """The normalised PTX; the IR is verified after each pass."""
        with verified_after_each_pass():
            return normalised(self._compile().ptx)

    def _compile(self) -> Kernel:
        if isinstance(self.product, Product):
            return self.product.compile(self.target)
        return compile((ROOT / "examples" / f"{self.product}.mlir").read_text(encoding="utf-8"), self.target)


def normalised(ptx: str) -> str:
    """PTX without comments, blank lines and counts of registers, each kind of register numbered as they come up."""
    lines = (line.split("//")[0].rstrip() for line in ptx.splitlines())
    text = "".join(f"{line}\n" for line in lines if line and not line.lstrip().startswith(".reg"))
    names: dict[str, str] = {}
    counts: Counter[str] = Counter()

    def number(match: re.Match[str]) -> str:
        if match[0] not in names:
            names[match[0]] = f"{match[1]}{counts[match[1]]}"
            counts[match[1]] += 1
        return names[match[0]]

    return re.sub(r"(%[a-z]+)\d+", number, text)


def pinned() -> list[Pinned]:
    """All of them, in order."""
    return [*_whole(), *_defaults(), *_measured(), *_schedules(), *(Pinned(name, on) for name, on in EXAMPLES.items())]


def _defaults() -> Iterator[Pinned]:
    """Every type on every target; forms, sizes and the ways that A and B lie go round."""
    turn = 0
    for types in TYPES:
        for target in TARGETS:
            for attempt in range(len(FORMS)):
                form, lies = FORMS[(turn + attempt) % len(FORMS)], LIES[(turn // 3 + attempt) % len(LIES)]
                product = fitted(types, form, lies, SIZES[(turn + turn // 4) % len(SIZES)])
                if product.legal and product.runs_on(target):
                    yield Pinned(product, target)
                    break
            turn += 1


def _measured() -> Iterator[Pinned]:
    """What `bench/RESULTS.md` has, at default schedules, and the large product with a barrier for each K tile."""
    sizes = ("512", "1000", "1024", "1152", "2048", "4096", "4095", "1001", "8192", "16x8192x8192", "128x16384x4096",
             "128x128x8192", "16x16x4096", "64x64x16384", "256x256x2048", "1024x512x4096")  # fmt: skip
    for size in sizes:
        m, n, k = map(int, size.split("x") if "x" in size else [size] * 3)
        yield Pinned(Product(BF16, "cleared", "A B", (m, n, k)), "sm_90a")
    large = (4096, 4096, 4096)
    for types, lies in ((TF32, "A Bt"), (F64, "A B"), (S8, "A Bt"), (E4M3, "A Bt")):
        yield Pinned(Product(types, "cleared", lies, large), "sm_90a")
    for types, lies in ((BF16, "A B"), (S8, "A Bt")):
        yield Pinned(Product(types, "sparse", lies, (8192, 8192, 8192)), "sm_90a")
    for form in ("bias, relu", "gelu by tanh", "gelu by erf", "residual"):
        yield Pinned(Product(BF16, form, "A B", large), "sm_90a")
    yield Pinned(Product(S8, "quantized", "A B", (1000, 1000, 1000)), "sm_90a")
    plain = {"stages": 4, "sync": "barrier", "prefetch": 0, "unroll": 0, "ctas": 0, "staging": 0}
    yield Pinned(Product(BF16, "cleared", "A B", large, plain), "sm_90a")


def _schedules() -> Iterator[Pinned]:
    """Every kind of schedule and of K loop, in small tiles."""
    for schedule in SCHEDULES:
        yield Pinned(Product(BF16, "added", "A B", (150, 200, 133), schedule), "sm_90a")
    for loop in LOOPS:
        tile = {"cta": (64, 64, 32), "warp": (32, 32)}
        yield Pinned(Product(BF16, "residual", "A Bt", (300, 264, 512), tile | loop), "sm_90a")
    for types in (S8, Types("f8E4M3FN", "f8E4M3FN", "f32"), TF32):
        tile = {"cta": (64, 64, 16 if types is TF32 else 64), "warp": (32, 32)}
        yield Pinned(Product(types, "added", "A B", (200, 136, 16 * tile["cta"][2]), tile | LOOPS[-1]), "sm_90a")


def _whole() -> Iterator[Pinned]:
    """The small ones: one warp for each half of a tile of 16x16."""
    for name, types, form, more in (
        ("plain", BF16, "cleared", {}),
        ("added", BF16, "added", {}),
        ("one_stage", BF16, "cleared", {"stages": 1}),
        ("mbarriers", BF16, "cleared", {"stages": 3, "sync": "mbarrier"}),
        ("persistent", BF16, "cleared", {"ctas": 1}),
        ("strips", Types("bf16", "bf16", "bf16"), "cleared", {"staging": 16}),
        ("bias", BF16, "bias, relu", {}),
        ("s8", S8, "cleared", {}),
        ("f64", F64, "cleared", {"cta": (16, 16, 16)}),
        ("sliced_k", BF16, "cleared", {"cta": (16, 16, 32), "warp": (16, 16), "sliced_k": 2}),
        ("split_k", BF16, "cleared", {"split_k": 2}),
        ("sparse", BF16, "sparse", {"cta": (16, 16, 64)}),
    ):
        lies = "A Bt" if types is S8 else "A B"
        yield Pinned(Product(types, form, lies, (16, 16, 64), SMALL | more), "sm_90a", name)
    yield Pinned(Product(BF16, "cleared", "A B", (15, 15, 63), SMALL | {"pack": "ab"}), "sm_80", "packed")


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def recorded() -> dict[str, str]:
    """The hashes that are pinned, by name."""
    lines = HASHES.read_text(encoding="utf-8").splitlines() if HASHES.exists() else []
    return {name: value for value, name in (line.split("  ", 1) for line in lines)}


def file_of(kernel: Pinned) -> Path:
    """Where the text of one that is kept whole lies."""
    return PINS / f"{kernel.whole}.ptx"


def difference(kernel: Pinned, known: dict[str, str]) -> str:
    """How a kernel differs from what is pinned: "" if it does not, the first lines of a diff where its text is kept."""
    text = kernel.text()
    if known.get(str(kernel)) == digest(text):
        return ""
    if str(kernel) not in known:
        return f"{kernel}: is not pinned"
    if not kernel.whole or not file_of(kernel).exists():
        return f"{kernel}: its text changed"
    old = file_of(kernel).read_text(encoding="utf-8").splitlines()
    lines = list(difflib.unified_diff(old, text.splitlines(), "pinned", "now", lineterm="", n=1))[:30]
    return "\n".join((f"{kernel}: its text changed", *lines))


def _rewrite(kernels: Sequence[Pinned]) -> list[str]:
    """Pins what is generated now; the names of what changed, came or went."""
    before = recorded()
    texts = [(kernel, kernel.text()) for kernel in kernels]
    after = {str(kernel): digest(text) for kernel, text in texts}
    PINS.mkdir(parents=True, exist_ok=True)
    HASHES.write_text("".join(f"{value}  {name}\n" for name, value in after.items()), encoding="utf-8")
    for old in PINS.glob("*.ptx"):
        old.unlink()
    for kernel, text in texts:
        if kernel.whole:
            file_of(kernel).write_text(text, encoding="utf-8")
    return [name for name in dict.fromkeys([*before, *after]) if before.get(name) != after.get(name)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rewrite", action="store_true", help="pin what is generated now")
    rewrite, kernels = parser.parse_args().rewrite, pinned()
    if rewrite:
        changed = _rewrite(kernels)
    else:
        known = recorded()
        changed = [found for found in (difference(kernel, known) for kernel in kernels) if found]
    print(*changed, sep="\n", end="\n" if changed else "")
    print(f"{len(changed)} of {len(kernels)} kernels changed")
    return 1 if changed and not rewrite else 0


if __name__ == "__main__":
    sys.exit(main())
