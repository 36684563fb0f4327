"""Kernels whose PTX and results are pinned: a change of the lowering leaves both as they were, or says what it changes.

    python test/pins.py                     # compare the PTX of all kernels; exit 1 if some differ (two minutes)
    python test/pins.py --words             # compare the bytes of their results on the interpreter (five minutes)
    python test/pins.py [--words] --rewrite # pin what is generated now, and print which kernels changed

Every element type, form, target, and way for A and B to lie comes up at default schedules, the products of
`bench/RESULTS.md` at theirs, every kind of schedule, attention in its forms, the examples, and the functions of
`data/pins/*.mlir`, which bring in what those leave out of `passes/`. `data/pins/hashes.txt` has a hash of each text
without its comments, with registers numbered as they come up; `data/pins/*.ptx` some small ones whole.

`data/pins/words.txt` has a hash of the bytes that each kernel leaves in the arguments it writes. Operands come from a
seed. A product of hundreds of rows is run at a smaller size of the same remainders, by the schedule of the large one.
Results that differ are compared with float64: a new order of sums stays within the bound, an error does not.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

os.environ.setdefault("WARPLOOM_CACHE", "off")
sys.path.insert(0, str(Path(__file__).with_name("gpu")))

import attention_problems
import problems
from attentions import Attention
from gpu.forms import LOOPS, SCHEDULES
from products import FORMS, LIES, TYPES, Product, Size, Types, fitted, packed_for_warpgroups, shared_by_ctas

from warploom.dialect.ptx.ops import print_ptx
from warploom.dialect.ptx.printer import ptx_module
from warploom.passes.pipeline import VERIFIES_EACH, lower
from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime import HostError, Kernel, WarploomError, compile
from warploom.runtime.interp.machine.memory import Finding
from warploom.runtime.kernel.lowering import parse, without_tensors
from warploom.runtime.numerics.floats import Array
from warploom.runtime.plan import host
from warploom.runtime.reference import functions as reference
from warploom.runtime.reference.inputs import arrays

ROOT = Path(__file__).parents[1]
PINS = ROOT / "test" / "data" / "pins"
HASHES = PINS / "hashes.txt"
WORDS = PINS / "words.txt"

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

EXAMPLE_SIZES = {"dynamic_matmul": ["A=random:104x56", "B=random:56x80"]}
"""What their types leave open."""

SMALLEST = 320
"""Products of no more rows, columns and K are run at their own size."""

SMALL: dict[str, Any] = {"cta": (16, 16, 32), "warp": (16, 8), "stages": 2, "staging": 0}


@dataclass(frozen=True)
class Function:
    """A function in a file of MLIR. Words of its first line say how it is compiled: `target=sm_90a cta=64,64,32`,
    `tf32=yes`; `in=A=random:33x64` says how large an argument is, `function=f` which of several functions it is."""

    path: Path

    def __str__(self) -> str:
        return self.path.stem

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def words(self) -> dict[str, str]:
        """The words of the first line by their names, without the sizes of arguments."""
        listed = [word.partition("=") for word in self.text.split("\n", 1)[0].removeprefix("//").split()]
        return {name: value for name, _, value in listed if name != "in"}

    @property
    def sizes(self) -> list[str]:
        """Sizes of arguments, as `warploom run --in` takes them."""
        return re.findall(r"\bin=(\S+)", self.text.split("\n", 1)[0])

    def compile(self, target: str) -> Kernel:
        options = ("target", "function", "tf32")
        asked: dict[str, Any] = {name: value for name, value in self.words.items() if name not in options}
        return compile(self.text, target, self.words.get("function"), tf32="tf32" in self.words, **asked)


@dataclass(frozen=True)
class Example(Function):
    """A function of `examples/`, whose first line says nothing."""

    @property
    def words(self) -> dict[str, str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return {}

    @property
    def sizes(self) -> list[str]:
        return EXAMPLE_SIZES.get(self.path.stem, [])


@dataclass(frozen=True)
class Level:
    """A FileCheck test whose kernels are written on a level below `linalg`, and lowered from there to PTX."""

    path: Path
    pipeline: str

    def __str__(self) -> str:
        return f"{self.path.stem} by {self.pipeline}"

    def ptx(self) -> str:
        return "".join(self.texts())

    def texts(self) -> Iterator[str]:
        """The PTX of each part of the file."""
        for part in self.path.read_text(encoding="utf-8").split("// -----"):
            context = make_context()
            module = parse_mlir(context, part)
            lower(module, context, self.pipeline)
            yield print_ptx(ptx_module(module))


@dataclass(frozen=True)
class Result:
    """What a kernel leaves in the arguments it writes, and a comparison with float64: "" or what is wrong."""

    outputs: Sequence[Array]
    compare: Callable[[], str]
    notes: Sequence[Finding] = ()

    @property
    def digest(self) -> str:
        hasher = hashlib.sha256()
        for output in self.outputs:
            hasher.update(output.tobytes())
        return hasher.hexdigest()[:16]


@dataclass(frozen=True)
class Pinned:
    """A kernel by a name of its own; one that is `whole` is kept as text too."""

    source: Product | Attention | Function | Level
    target: str
    text_name: str = ""
    schedule: dict[str, Any] = field(default_factory=dict[str, Any], hash=False)
    """Of an attention."""

    def __str__(self) -> str:
        asked = "".join(f", {name}={value}" for name, value in self.schedule.items())
        return f"{self.source}{asked}{f' on {self.target}' if self.target else ''}"

    def text(self) -> str:
        """The normalised PTX; the IR is verified after each pass."""
        token = VERIFIES_EACH.set(True)
        try:
            return normalised(self.source.ptx() if isinstance(self.source, Level) else self.compile().ptx)
        finally:
            VERIFIES_EACH.reset(token)

    def compile(self) -> Kernel:
        assert not isinstance(self.source, Level), "it is not launched by a function"
        return self.source.compile(self.target, **self.schedule)

    def small(self) -> Pinned:
        """The kernel itself, or of a large product a smaller one of the same schedule."""
        if not isinstance(self.source, Product):
            return self
        return replace(self, source=smaller(self.source, self.target))

    def result(self, checks: Sequence[str] = (), by: Callable[[Kernel], Kernel] | None = None) -> Result:
        """What the small kernel, or what `by` makes of it, computes on the interpreter, watched by checks."""
        small = self.small()
        source, kernel = small.source, small.compile()
        kernel = kernel if by is None else by(kernel)
        assert not isinstance(source, Level), "it is not launched by a function"
        if isinstance(source, Function):
            return _result_of_function(source, kernel, checks)
        if isinstance(source, Attention):
            problem = attention_problems.problem(source)
            done = kernel(*problem.arguments, device="interp", checks=checks)
            return Result(problem.arguments[-1:], problem.wrong, done.notes)
        problem = problems.problem(source)
        done = kernel(*problem.arguments, device="interp", checks=checks)
        return Result([problem.arguments[problem.output]], problem.wrong, done.notes)


def smaller(product: Product, target: str) -> Product:
    """A product with as few rows, columns and K tiles as show the loops of the schedule, which is that of the product
    itself; of the same remainders, so that rows are aligned alike."""
    if max(product.size) <= SMALLEST:
        return product
    schedule = next(option for option in product.compile(target).schedule if option is not None)
    unroll, depth = schedule.unroll, schedule.cta[2]
    m, n, k = product.size
    m, n = (size if size <= limit + 64 else limit + size % 64 for size, limit in ((m, 192), (n, 128)))
    deep = depth * unroll if unroll else depth * (schedule.stages + 1) + k % 64
    k = min(k, deep)
    sized = replace(fitted(product.types, product.form, product.lies, (m, n, k)), schedule=product.schedule)
    options = schedule.options()
    options.pop("accumulate")
    persistent = {"ctas": "2"} if schedule.ctas else {}
    for asked in (options | persistent, options):
        try:
            replace(sized, schedule=asked).compile(target)
        except WarploomError:
            continue
        return replace(sized, schedule=asked)
    return replace(sized, schedule={})


def _result_of_function(function: Function, kernel: Kernel, checks: Sequence[str]) -> Result:
    """Operands are drawn as `warploom run` draws them, and the reference is that of `warploom run --check`."""
    module = parse(function.text)
    without_tensors(module)
    before = arrays(kernel.function, function.sizes, 0)
    after = arrays(kernel.function, function.sizes, 0)
    kernel = kernel.called_with(*after)
    done = kernel(*after, device="interp", checks=checks)
    written = sorted(kernel.function.written)

    def compare() -> str:
        accumulate = reference.accumulator_of(kernel.schedule, kernel.target)
        meant = host.choose(module, kernel.function.name)
        exact = reference.evaluate(meant, before, accumulate, tf32="tf32" in function.words)
        differences = {i: reference.compare(exact[i], after[i]) for i in written}
        return "; ".join(f"argument {i}: {each}" for i, each in differences.items() if not each.ok)

    return Result([after[i] for i in written], compare, done.notes)


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
    examples = (Pinned(Example(ROOT / "examples" / f"{name}.mlir"), on) for name, on in EXAMPLES.items())
    functions = (Function(path) for path in sorted(PINS.glob("*.mlir")))
    return [
        *_whole(), *_defaults(), *_measured(), *_schedules(), *examples,
        *(Pinned(product, "sm_90a") for product in (*shared_by_ctas(), *packed_for_warpgroups()[::4])),
        *_attentions(), *(Pinned(function, function.words["target"]) for function in functions), *_levels(),
    ]  # fmt: skip


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


def _levels() -> Iterator[Pinned]:
    """Operations that no schedule chooses: FileCheck tests that print PTX, by the first pipeline of each that does."""
    for path in sorted((ROOT / "test" / "filecheck" / "passes").glob("*.mlir")):
        runs = (line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("// RUN:"))
        wanted = (line for line in runs if "%s" in line and "--verify" not in line)
        first = (match for line in wanted if (match := _PIPELINE.search(line)))
        pipelines = (match[1] or match[2] or match[3] for match in first)
        if pipeline := next((passes for passes in pipelines if passes.endswith("convert-warp-to-ptx")), None):
            yield Pinned(Level(path, pipeline), "")


_PIPELINE = re.compile(r""" -p (?:"([^"]+)"|'([^']+)'|(\S+))""")


def _attentions() -> Iterator[Pinned]:
    """Both kinds of instructions, head sizes, masks, heads that share K and V, and what is done to scores."""
    for asked, target, schedule in (
        (Attention((40, 70, 64, 64)), "sm_80", {}),
        (Attention((130, 150, 64, 64), "bf16", (1, 2), causal=0), "sm_90a", {}),
        (Attention((70, 133, 128, 128), "f16", (2, 2), ("b1",), causal=-3, softmax="inverse"), "sm_80", {}),
        (Attention((140, 200, 128, 128), "bf16", (2, 2), ("b1",), softmax="behind"), "sm_90a", {}),
        (Attention((65, 90, 256, 256), "f16", softmax="base 2", turned=True), "sm_90a", {}),
        (Attention((33, 61, 256, 64), "bf16", (), mask=("m", "n")), "sm_89", {}),
        (Attention((64, 77, 72, 40), "f16", (3,), mask=("n", "b0"), function="softcap"), "sm_120a", {}),
        (Attention((50, 80, 64, 64), "f16", (2, 3), mask=("b0", "m"), softmax="named", on_memory=True), "sm_80", {}),
        (Attention((100, 120, 64, 64), "f16", (2,), function="alibi", dynamic=True), "sm_90a", {}),
        (Attention((47, 85, 80, 80), "bf16", (2, 2), ("b0",), causal=5, function="slopes", dynamic=True), "sm_80", {}),
        (Attention((1, 300, 64, 64), "bf16", (1, 4), ("b1",)), "sm_80", {}),
        (Attention((128, 256, 64, 64), "f16", causal=128, softmax="behind"), "sm_90a", {}),
        (Attention((1, 320, 128, 64), "bf16", (2, 3), ("b1",), lengths=True, pages=32), "sm_90a", {"split_k": 2}),
        (Attention((90, 200, 64, 64), "f16", (1,), window=20, causal=40), "sm_90a", {}),
        (Attention((90, 130, 64, 64), "f16", (1, 2), sinks="start", documents=True), "sm_90a", {}),
        (Attention((70, 133, 128, 128), "f8E4M3FN", (2,), softmax="behind"), "sm_90a", {}),
        (Attention((200, 560, 128, 128), "f8E4M3FN", (1,), causal=380), "sm_90a", {}),
        (Attention((200, 530, 128, 128), "bf16", (1,), causal=350), "sm_90a", {}),
        (Attention((140, 150, 64, 64), "bf16", (1,)), "sm_90a", {"consumers": "pingpong", "stages": 3}),
        (Attention((1, 133, 576, 512), "bf16", (1, 5), ("b1",), sinks="max"), "sm_90a", {}),
        (Attention((140, 150, 64, 64), "bf16", (2,), causal=0), "sm_100a", {"ctas": 2}),
        (Attention((90, 140, 128, 128), "f16", (1,), function="softcap"), "sm_100a", {}),
    ):
        yield Pinned(asked, target, schedule=schedule)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def recorded(path: Path = HASHES) -> dict[str, str]:
    """The hashes that are pinned, by name."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {name: value for value, name in (line.split("  ", 1) for line in lines)}


def file_of(kernel: Pinned) -> Path:
    """Where the text of one that is kept whole lies."""
    return PINS / f"{kernel.text_name}.ptx"


def difference(kernel: Pinned, pinned: dict[str, str]) -> str:
    """How a kernel differs from what is pinned: "" if it does not, the first lines of a diff where its text is kept."""
    text = kernel.text()
    if pinned.get(str(kernel)) == digest(text):
        return ""
    if str(kernel) not in pinned:
        return f"{kernel}: is not pinned"
    if not kernel.text_name or not file_of(kernel).exists():
        return f"{kernel}: its text changed"
    old = file_of(kernel).read_text(encoding="utf-8").splitlines()
    lines = list(difflib.unified_diff(old, text.splitlines(), "pinned", "now", lineterm="", n=1))[:30]
    return "\n".join((f"{kernel}: its text changed", *lines))


def difference_of_words(kernel: Pinned, pinned: dict[str, str]) -> str:
    """How the results of a kernel differ from what is pinned, "" if they do not: by rounding, or by more."""
    result = kernel.result()
    if pinned.get(str(kernel)) == result.digest:
        return ""
    if str(kernel) not in pinned:
        return f"{kernel}: its results are not pinned"
    try:
        wrong = result.compare()
    except HostError as error:
        return f"{kernel}: its results changed; {error}"
    if wrong:
        return f"{kernel}: its results changed and are wrong: {wrong}"
    return f"{kernel}: its results changed, within the bound of their rounding"


def written(kernel: Pinned) -> str:
    """The text of a kernel, written to its file if it is kept whole."""
    text = kernel.text()
    if kernel.text_name:
        file_of(kernel).write_text(text, encoding="utf-8")
    return digest(text)


def verified(kernel: Pinned) -> str:
    """The hash of the results of a kernel.

    Raises:
        ValueError: if they are not what float64 gives, within the bound. A few functions have no such reference.
    """
    result = kernel.result()
    with suppress(HostError):
        if wrong := result.compare():
            raise ValueError(f"{kernel}: {wrong}")
    return result.digest


def runnable(kernels: Sequence[Pinned]) -> list[Pinned]:
    """Those that a function launches, so that they have results."""
    return [kernel for kernel in kernels if not isinstance(kernel.source, Level)]


def _rewrite(path: Path, values: dict[str, str]) -> list[str]:
    """Pins these hashes; the names of what changed, came or went."""
    before = recorded(path)
    path.write_text("".join(f"{value}  {name}\n" for name, value in values.items()), encoding="utf-8")
    return [name for name in dict.fromkeys([*before, *values]) if before.get(name) != values.get(name)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rewrite", action="store_true", help="pin what is generated now")
    parser.add_argument("--words", action="store_true", help="results on the interpreter instead of PTX")
    parser.add_argument("--every", type=int, default=1, help="compare one kernel of so many")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    asked, kernels = parser.parse_args(), pinned()
    path = WORDS if asked.words else HASHES
    kernels = runnable(kernels) if asked.words else kernels
    os.environ["WARPLOOM_CORES"] = "1"
    with ProcessPoolExecutor(asked.jobs) as pool:
        if asked.rewrite:
            results = pool.map(verified if asked.words else written, kernels)
            changed = _rewrite(path, dict(zip(map(str, kernels), results, strict=True)))
        else:
            compare = partial(difference_of_words if asked.words else difference, pinned=recorded(path))
            kernels = kernels[:: asked.every]
            changed = [each for each in pool.map(compare, kernels) if each]
    print(*changed, sep="\n", end="\n" if changed else "")
    print(f"{len(changed)} of {len(kernels)} kernels changed")
    return 1 if changed and not asked.rewrite else 0


if __name__ == "__main__":
    sys.exit(main())
