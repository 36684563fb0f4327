"""Random modules through the backend of `torch.compile`, on the interpreter or a GPU, against eager mode.

    python test/torch_modules.py                      # 300 modules of a random seed, which is printed
    python test/torch_modules.py --only 77000012      # one module, with its layers
    python test/torch_modules.py --device cuda --jobs 8 --seconds 60
    python test/torch_modules.py --features           # with what torch_features.py has, which draws others of a seed

A module is a chain of what `torch_layers.py` has: convolutions, norms, pools and what resizes images, attention in its
spellings, recurrent layers, reads and writes at places, sorts and scans, integers, einsum, losses, writes to inputs.
It computes in f64, f32, bf16 or f16, in inference or in training, some under autocast, with sizes that change, of
other memory orders, exported, saved, or under `vmap` and `grad`. Results, inputs and buffers afterwards, and gradients
of inputs and parameters are compared: of integers exactly, of floats with the module in f64. A result may be 1.5 times
as far from that as eager mode, or `APART` of the largest element, or twice as far as eager mode is with inputs and
parameters off by a rounding. What torch's `aot_eager` gets wrong too is torch's.
"""

# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportPrivateImportUsage=false

from __future__ import annotations

import argparse
import logging
import math
import random
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from copy import deepcopy
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch_features import FEATURES, MORE_LOSSES, OPTIMIZERS, Experts, Flex
from torch_graphs import PROGRESS, answers
from torch_layers import ALIASES, IMAGES, INTEGERS, LOSSES, POINTWISE, ROWS, WRITES, Attention, With

from warploom.runtime import torch_backend, torch_load, torch_save

dynamo: Any = torch._dynamo
pytree: Any = import_module("torch.utils._pytree")

APART = {torch.bfloat16: 2.0**-7, torch.float16: 2.0**-9, torch.float32: 2.0**-15, torch.float64: 2.0**-40}
ROUNDING = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 2.0**-23, torch.float64: 2.0**-50}
DRAWS = 8
"""How often roundings are drawn."""

MAX = 20_000
"""Elements of a value."""

MODES = ("plain",) * 8 + ("vmap", "grad", "export", "save", "no_grad", "checkpoint")
MORE_MODES = (*MODES[4:], "process", "threads", "dtypes", "optimizer", "optimizer", "second", "jvp", "accumulate")
"""Those with features: saved and loaded by a process of its own, called by threads at once, in several types, steps of
an optimiser, gradients of gradients, derivatives forward, two passes backward."""

REFUSALS = RuntimeError, IndexError, ValueError, TypeError, AssertionError, ZeroDivisionError, KeyError
"""How torch, NotImplementedError among them, refuses an operation."""

STEPS = 3
"""How many steps an optimiser takes."""


class Net(nn.Module):
    """The layers in turn, on a value with integers, a number a batch, and a memory that may be written. Returns the
    last value, what else the layers give, integers, and what shares memory with an input or the value."""

    def __init__(self, seed: int, features: bool = False) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.d = d = random.Random(seed)
        self.features = features
        self.seed, self.batch = seed, d.choice((1, 2, 2, 3, 3, 5))
        self.dtype = d.choice((torch.float32,) * 4 + (torch.bfloat16,) * 4 + (torch.float16, torch.float64))
        self.mode = d.choice(MORE_MODES if features else MODES)
        trains = self.mode in ("plain", "vmap") and d.random() < 0.55
        self.trains = trains or self.mode in ("checkpoint", "accumulate")
        self.autocast = self.dtype == torch.float32 and self.mode in ("plain", "checkpoint") and d.random() < 0.3
        self.dynamic = self.mode in ("plain", "no_grad", "threads") and d.random() < 0.3
        orders = ("offset", "overlapping", "diagonal") if features else ()
        self.order = d.choice(("plain",) * 3 + ("every second", "transposed", "expanded", *orders))
        self.optimizer = d.choice(OPTIMIZERS) if self.mode == "optimizer" else None
        sizes = d.choice((1, 1, 2, 2, 2, 3, 0)) + 1
        self.shape = (d.choice((3, 4, 8, 8, 16)), *(d.choice((3, 4, 5, 8, 9)) for _ in range(sizes - 1)))
        self.steps, self.names, self.integers = nn.ModuleList(), list[str](), []
        self.loss = self.write = self.alias = None
        x, i, memory = self.inputs(0, torch.float32)
        for _ in range(d.randint(2, 6)):
            x = self.draw(x, i)
        for _ in range(d.choice((0, 0, 1, 3))):
            number = d.randrange(len(INTEGERS))
            i = self.tried(f"integer {number}", INTEGERS[number], i) if i is not None else None
            self.integers += [INTEGERS[number]] if i is not None else []
        i = self.inputs(0, torch.float32)[1]
        losses = (*MORE_LOSSES, *LOSSES[:2]) if features else LOSSES
        for kind, share, choices, operands in (("loss", 0.25, losses, (x, i)), ("write", 0.3, WRITES, (memory, x, i)),
                                                ("alias", 0.3, ALIASES, (x, memory, x))):  # fmt: skip
            number = d.randrange(len(choices))
            if (
                d.random() < share
                and self.tried(f"{kind} {number}", choices[number], *(v.clone() for v in operands)) is not None
            ):
                setattr(self, kind, choices[number])

    def tried(self, name: str, function: Any, *operands: Tensor) -> Any:
        """What a function computes of an example; None if torch raises an error."""
        try:
            result = function(*operands)
        except REFUSALS:
            return None
        self.names.append(name)
        return True if result is None else result

    def draw(self, x: Tensor, i: Tensor) -> Tensor:
        """Appends a layer if torch computes it and its result is small."""
        d, table = self.d, IMAGES if 2 < x.dim() < 6 and self.d.random() < 0.6 else ROWS
        table = FEATURES if self.features and d.random() < 0.7 else table
        name = d.choice(list(table))
        try:
            if d.random() < 0.3:
                number = d.randrange(len(POINTWISE))
                name, step = f"pointwise {number}", Step(partial(lambda f, v, i: f(v), POINTWISE[number]))
            else:
                step = Step(table[name](d, x))
        except REFUSALS:
            return x
        with torch.no_grad():
            result = self.tried(name, step, x, i)
        if result is None:
            return x
        first = result[0] if isinstance(result, tuple) else result
        if not (
            first.is_floating_point() and 0 < first.numel() <= MAX and 1 < first.dim() < 6 and first.isfinite().all()
        ) or (len(first) != len(x) or float(first.abs().max()) > 100):
            self.names.pop()
            return x
        self.steps.append(step)
        return first

    def inputs(self, more: int, dtype: Any, device: Any = "cpu") -> list[Tensor]:
        generator = torch.Generator().manual_seed(self.seed + more)
        batch = self.batch + more
        x = torch.randn(batch, *self.shape, generator=generator)
        ids = torch.randint(0, 16, (batch,), generator=generator)
        memory = torch.randn(batch, 6, generator=generator)
        x, memory = (t.to(dtype).to(device) for t in (x.to(self.dtype), memory.to(self.dtype)))
        if self.order == "every second":
            x = torch.stack([x, x], -1)[..., 0]
        elif self.order == "transposed":
            x = x.transpose(0, 1).contiguous().transpose(0, 1)
        elif self.order == "expanded":
            x = x[:1].expand(x.shape)
        elif self.order == "offset":
            x = torch.cat([x.new_zeros(3), x.flatten()])[3:].view(x.shape)
        elif self.order == "overlapping":
            x = x.flatten().as_strided(x.shape, (1, *x.stride()[1:]))
        elif self.order == "diagonal":
            x = torch.diag_embed(x).diagonal(dim1=-2, dim2=-1)
        return [x, ids.to(device), memory]

    def forward(self, x: Tensor, i: Tensor, memory: Tensor) -> dict[str, Any]:
        extras, first, integers = [], x, i
        for step in self.steps:
            x = step(x, i)
            if isinstance(x, tuple):
                x, *more = x
                extras += more
        for function in self.integers:
            integers = function(integers)
            extras.append(integers)
        if self.write is not None:
            self.write(memory, x, i)
        result = {"out": x if self.loss is None else self.loss(x, i), "more": extras}
        return result if self.alias is None else {**result, "alias": self.alias(first, memory, x)}

    @property
    def text(self) -> str:
        flags = [x for x in ("trains", "autocast", "dynamic") if getattr(self, x)]
        head = f"seed {self.seed}: {(self.batch, *self.shape)} {self.dtype} {self.mode} {self.order} {' '.join(flags)}"
        return f"{head}\n  {', '.join(self.names)}"


class Step(nn.Module):
    """A layer as a function of a value and of integers."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor, i: Tensor) -> Any:
        plain = isinstance(self.inner, nn.Module) and not isinstance(self.inner, Attention | Experts | Flex | With)
        return self.inner(x) if plain else self.inner(x, i)


def called(net: Net, x: Tensor, i: Tensor, memory: Tensor) -> Any:
    """A call of a module in its mode."""
    if net.mode in ("second", "jvp"):

        def function(v: Tensor) -> Tensor:
            return net(v, i, memory.clone())["out"].square().mean()

        if net.mode == "jvp":
            return torch.func.jvp(function, (x,), (torch.ones_like(x),))
        return torch.func.grad(lambda v: torch.func.grad(function)(v).square().sum())(x)
    if net.mode == "vmap":
        return torch.func.vmap(lambda v: net(v, i, memory.clone())["out"], randomness="same")(torch.stack([x, x * 0.5]))
    if net.mode == "grad":
        return torch.func.grad(lambda v: net(v, i, memory.clone())["out"].sum())(x)
    if net.mode == "no_grad":
        with torch.no_grad():
            return net(x * 1, i, memory)
    if net.mode == "checkpoint":
        return checkpoint(net, x, i, memory, use_reentrant=False)
    return net(x, i, memory)


def results(call: Any, net: Net, inputs: Sequence[Tensor]) -> list[Any]:
    """What a call returns, the memory and the buffers afterwards, and gradients of the input and the parameters."""
    x, i, memory = inputs
    x, memory = x.detach(), memory.clone()
    x.requires_grad_(net.trains)
    net.zero_grad()
    enabled = net.autocast and x.dtype != torch.float64
    with (
        torch.autocast(x.device.type, torch.bfloat16, enabled=enabled),
        nullcontext() if net.trains else torch.no_grad(),
    ):
        out = pytree.tree_leaves([call(v, i, memory) for v in ((x, x * 0.5) if net.mode == "accumulate" else (x,))])
    if net.trains:
        pairs = [t for t in out if isinstance(t, Tensor) and t.requires_grad and t.grad_fn is not None]
        slopes = [torch.randn(t.shape, generator=torch.Generator().manual_seed(n)).to(t) for n, t in enumerate(pairs)]
        torch.autograd.backward(pairs, slopes)
    grads = [p.grad for p in (x, *net.parameters())]
    state = [b.clone() for b in net.buffers()]
    return [t.detach().clone() if isinstance(t, Tensor) else t for t in (*out, memory, *state, *grads)]


def off(net: Net, inputs: Sequence[Tensor]) -> tuple[Net, list[Tensor]]:
    """A module and inputs, off by a rounding of the type it computes in."""
    by = ROUNDING[torch.bfloat16 if net.autocast else net.dtype]
    moved = deepcopy(net)
    for p in moved.parameters():
        p.data.mul_(1 + by * (2 * torch.rand_like(p) - 1))
    return moved, [t * (1 + by * (2 * torch.rand_like(t) - 1)) if t.is_floating_point() else t for t in inputs]


def apart(a: Any, b: Any) -> float:
    """The largest difference; infinity where one is NaN or infinite, and the other is not."""
    a, b = a.double(), b.double()
    same = (a == b) | (a.isnan() & b.isnan())
    return float(torch.where(same, 0.0, (a - b).abs()).nan_to_num(math.inf).max()) if a.numel() else 0.0


def judged(ours: list[Any], eager: list[Any], exact: list[Any], net: Net, more: Callable[[], list[list[Any]]]) -> str:
    """What is wrong with results; "" if nothing is. `more` are results of eager mode, off by roundings."""
    drawn: list[list[Any]] = []
    if len(ours) != len(eager):
        return f"{len(ours)} results, where eager mode has {len(eager)}"
    for at, (f, e, x) in enumerate(zip(ours, eager, exact, strict=True)):
        if not isinstance(e, Tensor):
            if not (f is None and e is None) and f != e:
                return f"result {at}: {f}, where eager mode has {e}"
            continue
        if f is None or f.shape != e.shape or f.dtype != e.dtype:
            return (
                f"result {at}: expected {e.dtype} {tuple(e.shape)}, got {f if f is None else (f.dtype, tuple(f.shape))}"
            )
        kind = torch.bfloat16 if net.autocast else net.dtype if e.dtype.is_floating_point else e.dtype
        kind = max(kind, e.dtype, key=lambda t: APART.get(t, 0.0))
        largest = float(x.double().abs().nan_to_num(0, 0, 0).max()) if x.numel() else 0.0
        own, other = (apart(f, x), apart(e, x)) if e.is_floating_point() else (apart(f, e), 0.0)
        if own <= max(1.5 * other, APART.get(kind, 0.0) * (largest + 1e-3)):
            continue
        drawn = drawn or more()
        away = max(apart(m[at], x if e.is_floating_point() else e) for m in drawn)
        if own > 2 * away:
            what = f"result {at} of {len(eager)}, {e.dtype} {tuple(e.shape)}"
            sizes = f"eager mode {other:.3g}, by roundings {away:.3g}, largest {largest:.3g}"
            return f"{what}: {own:.3g} off, {sizes}"
    return ""


def caller(net: Net, compile_: Any, inputs: Sequence[Tensor], save: bool = False) -> Any:
    """How a module is called in its mode, by what compiles functions; `save` if by way of a file."""
    if net.mode == "optimizer":
        return partial(stepped, net, compile_)
    if net.mode not in ("export", "save", "process") or compile_ is as_it_is:
        call = compile_(partial(called, net))
        return partial(by_threads, call) if net.mode == "threads" else call
    program = torch.export.export(net, tuple(inputs), strict=False)
    if not save:
        return compile_((program if net.mode == "export" else program.run_decompositions()).module())
    with tempfile.TemporaryDirectory() as folder:
        torch_save(program, path := Path(folder) / "model.pt2")
        if net.mode == "save":
            return torch_load(path)
        torch.save(inputs, Path(folder) / "inputs")
        subprocess.run([sys.executable, "-c", LOADS, folder], check=True, cwd=Path(__file__).parent)
        out, written = torch.load(Path(folder) / "results")
        return lambda *own: [out, own[2].copy_(written[2])][0]


def as_it_is(function: Any) -> Any:
    return function


LOADS = """
import sys, torch, torch_features
from warploom.runtime import torch_load
inputs = torch.load(sys.argv[1] + "/inputs")
torch.save((torch_load(sys.argv[1] + "/model.pt2")(*inputs), inputs), sys.argv[1] + "/results")
"""


def by_threads(call: Any, x: Tensor, i: Tensor, memory: Tensor) -> list[Any]:
    def one(by: float) -> Any:
        with torch.no_grad():
            return call(x * by, i, memory.clone())

    with ThreadPoolExecutor() as threads:
        return list(threads.map(one, (1, 0.5, -1, 1)))


def stepped(net: Net, compile_: Any, *inputs: Tensor) -> list[Tensor]:
    """The parameters after some steps of the optimiser, of gradients that are drawn."""
    optimizer: Any = net.optimizer
    optimizer = optimizer(net.parameters())
    step = compile_(optimizer.step)
    for n in range(STEPS):
        generator = torch.Generator().manual_seed(n)
        for p in net.parameters():
            p.grad = torch.randn(p.shape, generator=generator).to(p)
        step()
    return [p.detach() for p in net.parameters()]


def fault(
    seed: int,
    device: str = "cpu",
    check: bool = False,
    rest: str = "eager",
    features: bool = False,
    trace: bool = False,
) -> tuple[str, str]:
    """What is wrong with the module of a seed: "ours", "torch's" or "no" fault, "skipped"; and its description."""
    dynamo.reset()
    net = Net(seed, features)
    if not net.steps:
        return "skipped", ""
    net = net.train(net.trains).to(net.dtype).to(device)
    sizes = [net.inputs(n, net.dtype, device) for n in ((0, 2, 1 - net.batch, -net.batch) if net.dynamic else (0,))]
    if net.mode == "dtypes":
        sizes += [net.inputs(0, t, device) for t in (torch.float32, torch.bfloat16, torch.float16, net.dtype)]
    state = deepcopy(net)

    def fresh(dtype: Any) -> Net:
        return deepcopy(state).to(dtype)

    expected = list[Any]()
    for inputs in sizes:
        try:
            eager = fresh(inputs[0].dtype)
            wide = deepcopy(eager).to(torch.float64)
            doubles = [t.double() if t.is_floating_point() else t for t in inputs]
            exact = results(caller(wide, as_it_is, doubles), wide, doubles)
            expected.append((inputs, results(caller(eager, as_it_is, inputs), eager, inputs), exact))
        except Exception as error:
            if not expected:
                return "skipped", f"{type(error).__name__}: {str(error)[:80]}"
    if not all(t.double().isfinite().all() for t in expected[0][1] if isinstance(t, Tensor) and t.is_floating_point()):
        return "skipped", "not finite"

    def attempt(backend: Any, options: Any = None) -> str:
        dynamo.reset()
        own = fresh(net.dtype)
        compile_ = partial(torch.compile, backend=backend, options=options, dynamic=net.dynamic or None)
        call = caller(own, compile_, sizes[0], save=backend is torch_backend)
        weights = {k: v.clone() for k, v in own.state_dict().items()}
        for inputs, eager, exact in expected:
            own.to(inputs[0].dtype).load_state_dict(weights)

            def roundings(inputs: Any = inputs) -> list[list[Any]]:
                pairs = [off(fresh(inputs[0].dtype), inputs) for _ in range(DRAWS)]
                return [results(caller(moved, as_it_is, i), moved, i) for moved, i in pairs]

            if text := judged(results(call, own, inputs), eager, exact, net, roundings):
                return f"{tuple(inputs[0].shape)} {inputs[0].dtype}: {text}"
        return ""

    try:
        text = attempt(torch_backend, {"rest": rest, "check": check})
        stops = False
    except Exception as error:
        if trace:
            traceback.print_exc()
        stops, text = True, f"{type(error).__name__}: {' '.join(str(error).strip().splitlines()[:3])[:300]}"
    if not text:
        return "no", ""
    try:
        return ("torch's" if attempt("inductor" if rest == "inductor" else "aot_eager") else "ours"), text
    except Exception:
        return ("torch's" if stops else "ours"), text


def prepare() -> None:
    warnings.simplefilter("ignore")
    torch._logging.set_logs(all=logging.ERROR)
    torch.set_num_threads(1)
    dynamo.config.recompile_limit = 64
    dynamo.config.allow_rnn = True
    torch.backends.mkldnn.set_flags(_enabled=False)


def one(device: str, check: bool, rest: str, features: bool, seed: int) -> tuple[int, str, str, float]:
    prepare()
    start = time.perf_counter()
    return seed, *fault(seed, device, check, rest, features), time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(100_000))
    parser.add_argument("--modules", type=int, default=300)
    parser.add_argument("--first", type=int, default=0, help="the number of the first module, where a run goes on")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--check", action="store_true", help="compare each compiled part with eager mode")
    parser.add_argument("--device", default="cpu", help="cpu, where kernels are interpreted, or cuda")
    parser.add_argument("--rest", default="eager", help="eager or inductor")
    parser.add_argument("--features", action="store_true", help="with what torch_features.py has")
    parser.add_argument("--only", type=int, metavar="SEED")
    options = parser.parse_args()
    if options.only is not None:
        prepare()
        net = Net(options.only, options.features)
        print(net.text, *net.steps, sep="\n")
        print(*fault(options.only, options.device, options.check, options.rest, options.features, True))
        return 0
    print(f"seed {options.seed}", flush=True)
    start, kinds, wrong = time.monotonic(), Counter[str](), list[int]()
    seeds = [1000 * options.seed + n for n in range(options.first, options.first + options.modules)]
    work = partial(one, options.device, options.check, options.rest, options.features)
    for seed, kind, text, seconds in answers(work, seeds, options.jobs, options.seconds, tasks=60):
        kinds[kind] += 1
        if not kinds.total() % PROGRESS:
            print(f"{kinds.total()} modules, {len(wrong)} wrong", flush=True)
        if kind in ("ours", "torch's"):
            wrong += [seed] if kind == "ours" else []
            print(f"{kind}: {Net(seed, options.features).text}\n  {text} ({seconds:.0f} s)", flush=True)
    print(f"{kinds.total()} modules in {time.monotonic() - start:.0f} s, {dict(kinds)}: {sorted(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
