"""The gradients of attention as `linalg`, and what they must be, in float64 with a bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from attention_problems import UNITS, Array

from warploom.runtime import Kernel, compile
from warploom.runtime.arguments.arrays import DTYPES

LOOPS = {
    "Q": "bgmd", "K": "bnd", "V": "bne", "O": "bgme", "dO": "bgme", "lse": "bgm", "delta": "bgm",
    "dQ": "bgmd", "dK": "bnd", "dV": "bne", "of_m": "bm", "of_n": "bn", "slopes": "g",
}  # fmt: skip
"""Batch b, heads g that share K and V, queries m, keys n, columns d and e."""

NUMBERS = ("of_m", "of_n")
"""Numbers of the documents of queries and keys."""

KINDS = {"lse": "f32", "delta": "f32", "slopes": "f32", "chosen": "i8", **dict.fromkeys(NUMBERS, "i32")}


@dataclass(frozen=True)
class AttentionGradient:
    """A function of gradients; `size` is that of the loops b, g, m, n, d, e."""

    size: tuple[int, int, int, int, int, int]
    element: str = "bf16"
    causal: int | None = None
    window: int | None = None
    results: tuple[str, ...] = ("dQ", "dK", "dV")
    delta: bool = True
    """Whether delta is an argument; else it is computed from O and dO."""
    on_tensors: bool = False
    documents: bool = False
    """Whether queries and keys count only with those of the same document."""
    mask: str = ""
    """The loops of a mask that is added to scores; none without one."""
    rounded: bool = False
    """Whether the products store f32, which operations behind them round."""
    cap: float = 0.0
    """What scaled scores x are limited to, as cap * tanh(x / cap); none if it is 0."""
    slopes: bool = False
    """Whether scores have the distance of key and query times a number of each head added, as ALiBi has."""
    chosen: str = ""
    """The loops of memory of i8 that is 0 where scores do not count; none without it."""

    def __str__(self) -> str:
        masks = [f"{name} {at}" for name, at in (("causal", self.causal), ("window", self.window)) if at is not None]
        flags = ["tensors"] * self.on_tensors + ["documents"] * self.documents + [f"mask {self.mask}"] * bool(self.mask)
        flags += ["rounded"] * self.rounded + [f"cap {self.cap}"] * bool(self.cap) + ["slopes"] * self.slopes
        flags += [f"chosen {self.chosen}"] * bool(self.chosen)
        return ", ".join([self.element, "x".join(map(str, self.size)), *masks, *self.results, *flags])

    @property
    def inputs(self) -> tuple[str, ...]:
        optional = (*(NUMBERS if self.documents else ()), *["mask"] * bool(self.mask))
        optional += (*["slopes"] * self.slopes, *["chosen"] * bool(self.chosen))
        return ("Q", "K", "V", "dO", "lse", "delta" if self.delta else "O", *optional)

    @property
    def loops(self) -> dict[str, str]:
        """The loops of each matrix."""
        return {**LOOPS, "mask": self.mask, "chosen": self.chosen}

    @property
    def scale(self) -> float:
        return float(f"{self.size[4] ** -0.5:.6e}")

    def shape(self, loops: str) -> tuple[int, ...]:
        return tuple(self.size["bgmnde".index(loop)] for loop in loops)

    def type(self, name: str, loops: str = "", element: str = "") -> str:
        sizes = "x".join(map(str, self.shape(loops or self.loops[name])))
        kind = "tensor" if self.on_tensors else "memref"
        return f"{kind}<{sizes}x{element or KINDS.get(name, self.element)}>"

    @property
    def mlir(self) -> str:
        text, half = _Text(self, self.inputs, self.results), self.element
        if not self.delta:
            text.temporary("delta", "bgm", "f32")
            text.fill("delta", "zero_f32")
            body = [f"%{i} = arith.extf %x{i} : {half} to f32" for i in range(2)]
            body += ["%2 = arith.mulf %0, %1 : f32", "%r = arith.addf %y, %2 : f32"]
            text.generic(["O", "dO"], "delta", "e", body)
        text.temporary("S", "bgmn", "f32")
        text.product("Q", "K", "S", "d")
        text.temporary("dP", "bgmn", "f32")
        text.product("dO", "V", "dP", "e")
        text.temporary("P", "bgmn", "f32")
        scores, last = self._scores()
        read = ["S", "lse", *(NUMBERS if self.documents else ()), *["mask"] * bool(self.mask)]
        read += [*["slopes"] * self.slopes, *["chosen"] * bool(self.chosen)]
        text.generic(read, "P", "", [*scores, f"%p = arith.subf {last}, %x1 : f32", "%r = math.exp %p : f32"])
        text.temporary("P16", "bgmn", half)
        text.generic(["P"], "P16", "", [f"%r = arith.truncf %x0 : f32 to {half}"])
        text.temporary("dS", "bgmn", half)
        body = ["%0 = arith.subf %x1, %x2 : f32", "%1 = arith.mulf %x0, %0 : f32", "%2 = arith.mulf %1, %scale : f32"]
        if self.cap:
            body = [line.replace("%2 =", "%w =") for line in body]
            body += ["%3 = arith.mulf %x3, %scale : f32", "%4 = arith.divf %3, %cap : f32", "%5 = math.tanh %4 : f32"]
            body += ["%6 = arith.mulf %5, %5 : f32", "%7 = arith.subf %one, %6 : f32", "%2 = arith.mulf %w, %7 : f32"]
        read = ["P", "dP", "delta", *["S"] * bool(self.cap)]
        text.generic(read, "dS", "", [*body, f"%r = arith.truncf %2 : f32 to {half}"])
        for name, a, b, over in (("dQ", "dS", "K", "n"), ("dK", "dS", "Q", "gm"), ("dV", "P16", "dO", "gm")):
            if name in self.results and not self.rounded:
                text.product(a, b, name, over)
            elif name in self.results:
                text.temporary(f"{name}_wide", self.loops[name], "f32")
                text.product(a, b, f"{name}_wide", over)
                text.generic([f"{name}_wide"], name, "", [f"%r = arith.truncf %x0 : f32 to {half}"])
        return text.function("gradient")

    @property
    def forward(self) -> str:
        """O and lse of Q, K and V."""
        text, half = _Text(self, ("Q", "K", "V"), ("O", "lse")), self.element
        text.temporary("S", "bgmn", "f32")
        text.product("Q", "K", "S", "d")
        text.temporary("X", "bgmn", "f32")
        scores, last = self._scores()
        text.generic(["S"], "X", "", [*scores[:-1], scores[-1].replace(f"{last} =", "%r =")])
        for name, start, input_, how in (("M", "low", "X", "maximumf"), ("L", "zero_f32", "E", "addf")):
            if name == "L":
                text.temporary("E", "bgmn", "f32")
                text.generic(["X", "M"], "E", "", ["%0 = arith.subf %x0, %x1 : f32", "%r = math.exp %0 : f32"])
            text.temporary(name, "bgm", "f32")
            text.fill(name, start)
            text.generic([input_], name, "n", [f"%r = arith.{how} %y, %x0 : f32"])
        text.temporary("P16", "bgmn", half)
        text.generic(["E", "L"], "P16", "", ["%0 = arith.divf %x0, %x1 : f32", f"%r = arith.truncf %0 : f32 to {half}"])
        text.product("P16", "V", "O", "n")
        text.generic(["M", "L"], "lse", "", ["%0 = math.log %x1 : f32", "%r = arith.addf %x0, %0 : f32"])
        return text.function("forward")

    def _scores(self) -> tuple[list[str], str]:
        """Lines that scale and mask a score %x0, and the name of the last."""
        body, last = ["%s0 = arith.mulf %x0, %scale : f32"], "%s0"
        if self.cap:
            body += [f"%t0 = arith.divf {last}, %cap : f32", "%t1 = math.tanh %t0 : f32"]
            body += ["%t2 = arith.mulf %t1, %cap : f32"]
            last = "%t2"
        place = 2 + 2 * self.documents + bool(self.mask)
        if self.slopes:
            body += ["%away = arith.subi %j, %i : index", "%a0 = arith.index_cast %away : index to i32"]
            body += ["%a1 = arith.sitofp %a0 : i32 to f32", f"%a2 = arith.mulf %a1, %x{place} : f32"]
            body += [f"%a3 = arith.addf {last}, %a2 : f32"]
            last = "%a3"
        if self.chosen:
            body += [f"%c0 = arith.cmpi ne, %x{place + self.slopes}, %none : i8"]
            body += [f"%c1 = arith.select %c0, {last}, %low : f32"]
            last = "%c1"
        if self.mask:
            body += [f"%wide = arith.extf %x{2 + 2 * self.documents} : {self.element} to f32"]
            body += [f"%s4 = arith.addf {last}, %wide : f32"]
            last = "%s4"
        if (self.causal, self.window) != (None, None) or self.slopes:
            body = ["%i = linalg.index 2 : index", "%j = linalg.index 3 : index", *body]
        if self.causal is not None:
            body += ["%e = arith.addi %i, %right : index", "%c = arith.cmpi sgt, %j, %e : index"]
            body += [f"%s1 = arith.select %c, %low, {last} : f32"]
            last = "%s1"
        if self.documents:
            body += ["%d = arith.cmpi ne, %x2, %x3 : i32", f"%s3 = arith.select %d, %low, {last} : f32"]
            last = "%s3"
        if self.window is not None:
            body += ["%f = arith.subi %i, %left : index", "%w = arith.cmpi slt, %j, %f : index"]
            body += [f"%s2 = arith.select %w, %low, {last} : f32"]
            last = "%s2"
        return body, last

    def compile(self, target: str = "sm_80", **schedule: Any) -> Kernel:
        return compile(self.mlir, target, **schedule)


class _Text:
    """Writes a function of inputs and results by name."""

    def __init__(self, asked: AttentionGradient, inputs: Sequence[str], results: Sequence[str]) -> None:
        self.asked, self.inputs, self.results = asked, inputs, results
        names = (*inputs, *results)
        self.kinds, self.loops = {name: asked.type(name) for name in names}, {name: asked.loops[name] for name in names}
        self.before = {name: name for name in names}
        self.lines = [f"%zero_{kind} = arith.constant 0.0 : {kind}" for kind in ("f32", asked.element)]
        self.lines += [
            f"%scale = arith.constant {asked.scale:.6e} : f32",
            "%low = arith.constant 0xFF800000 : f32",
            f"%right = arith.constant {asked.causal or 0} : index",
            f"%left = arith.constant {asked.window or 0} : index",
            f"%cap = arith.constant {asked.cap:.6e} : f32",
            "%one = arith.constant 1.0 : f32",
            "%none = arith.constant 0 : i8",
        ]

    def function(self, name: str) -> str:
        listed = self.inputs if self.asked.on_tensors else (*self.inputs, *self.results)
        arguments, kinds = ", ".join(f"%{each}: {self.kinds[each]}" for each in listed), ""
        if self.asked.on_tensors:
            kinds = ", ".join(self.kinds[each] for each in self.results)
            self.lines.append(f"return {', '.join('%' + each for each in self.results)} : {kinds}")
            kinds = f" -> ({kinds})"
        else:
            self.lines.append("return")
        return f"func.func @{name}({arguments}){kinds} {{\n  " + "\n  ".join(self.lines) + "\n}\n"

    def element(self, name: str) -> str:
        return self.kinds[name].split("x")[-1][:-1]

    def temporary(self, name: str, loops: str, element: str) -> None:
        self.kinds[name], self.loops[name] = self.asked.type(name, loops, element), loops
        self.before[name] = name
        if not self.asked.on_tensors:
            self.lines.append(f"%{name} = memref.alloc() : {self.kinds[name]}")

    def written(self, name: str, last: bool = True) -> tuple[str, str, str]:
        """What stands before an operation that writes memory or a tensor, the name of that, and what stands behind."""
        if not self.asked.on_tensors:
            return "", name, ""
        if self.before[name] == name:
            self.before[name] = f"{name}_0"
            self.lines.append(f"%{name}_0 = tensor.empty() : {self.kinds[name]}")
        old, new = self.before[name], name if last else f"{name}_1"
        self.before[name] = new
        return f"%{new} = ", old, f" -> {self.kinds[name]}"

    def fill(self, name: str, start: str) -> None:
        result, to, kind = self.written(name, last=False)
        element = self.element(name)
        self.lines.append(f"{result}linalg.fill ins(%{start} : {element}) outs(%{to} : {self.kinds[name]}){kind}")

    def generic(self, inputs: Sequence[str], output: str, over: str, body: Sequence[str]) -> None:
        """An operation that reduces `over` some loops; its body calls elements %x0, %x1 ..., that of the output %y."""
        loops = [loop for loop in "bgmnde" if loop in self.loops[output] + over]
        maps = (f"affine_map<({', '.join(loops)}) -> ({', '.join(self.loops[name])})>" for name in (*inputs, output))
        iterators = ", ".join(f'"{"reduction" if loop in over else "parallel"}"' for loop in loops)
        names, kinds = ", ".join("%" + name for name in inputs), ", ".join(self.kinds[name] for name in inputs)
        parameters = [*(f"%x{i}: {self.element(name)}" for i, name in enumerate(inputs)), f"%y: {self.element(output)}"]
        result, to, kind = self.written(output)
        self.lines += [
            f"{result}linalg.generic {{indexing_maps = [{', '.join(maps)}], iterator_types = [{iterators}]}}",
            f"    ins({names} : {kinds}) outs(%{to} : {self.kinds[output]}) {{",
            f"  ^bb0({', '.join(parameters)}):",
            *(f"    {line}" for line in body),
            f"    linalg.yield %r : {self.element(output)}\n  }}{kind}",
        ]

    def product(self, a: str, b: str, output: str, over: str) -> None:
        kind, half = self.element(output), self.asked.element
        self.fill(output, f"zero_{kind}")
        wide = [f"%{i} = arith.extf %x{i} : {half} to f32" for i in range(2)]
        wide += ["%2 = arith.mulf %0, %1 : f32", "%r = arith.addf %y, %2 : f32"]
        narrow = [f"%0 = arith.mulf %x0, %x1 : {half}", f"%r = arith.addf %y, %0 : {half}"]
        self.generic([a, b], output, over, wide if kind == "f32" else narrow)


@dataclass(frozen=True)
class Problem:
    """Arguments, results last, which hold what is no result; what must be there then, and how far off it may be."""

    asked: AttentionGradient
    arguments: list[Array]
    values: list[Array]
    bounds: list[Array]

    def wrong(self) -> str:
        """What is wrong with the results as they are now; "" if nothing."""
        results = self.arguments[-len(self.values) :]
        for name, result, value, bound in zip(self.asked.results, results, self.values, self.bounds, strict=True):
            off = np.abs(result.astype(np.float64) - value)
            if not (off <= bound).all():
                at = tuple(int(i) for i in np.argwhere(~(off <= bound))[0])
                return f"{name}{at} is {result[at]}, expected {value[at]} +- {bound[at]:.3g}"
        return ""


def problem(asked: AttentionGradient, seed: int = 0) -> Problem:
    """Arguments from a normal distribution, with lse and delta in f32 as the forward pass would leave them.

    The bound, for results that are rounded to u relative, with sums over what results are summed over::

        |dV - exact| <= sum P |dO| (2 x + u + n 2^-23)      |dQ - exact| <= scale sum T |K| (u + n 2^-23)
        T = P (2 x (|dP| + |delta|) + y + (|dP| + |delta|) u)

    and the rounding of the result. x bounds the error of an exponent: (D + 8) 2^-23 of the sums of |Q| |K|, and 2^-21
    of the largest score and lse, 2^-22 of the mask; y that of dP - delta, (E + 8) 2^-23 of the sums of |dO| |V|, and of
    |dO| |O|.
    """
    random = np.random.default_rng([seed, *asked.size])
    kind = DTYPES[asked.element]
    halves = {name: random.standard_normal(asked.shape(LOOPS[name])).astype(kind) for name in ("Q", "K", "V", "dO")}
    q, k, v, do = (halves[name].astype(np.float64) for name in ("Q", "K", "V", "dO"))
    k, v, (_, _, m, n, d, e), (unit, least) = k[:, None], v[:, None], asked.size, UNITS[asked.element]

    def t(matrix: Array) -> Array:
        return np.swapaxes(matrix, -1, -2)

    i, j = np.arange(m)[:, None], np.arange(n)[None, :]
    keep = np.ones((m, n), bool)
    keep &= True if asked.causal is None else j <= i + asked.causal
    keep &= True if asked.window is None else j >= i - asked.window
    numbers = {name: np.sort(random.integers(0, 4, asked.shape(LOOPS[name])).astype(np.int32)) for name in NUMBERS}
    if asked.documents:
        keep = keep & (numbers["of_m"][:, None, :, None] == numbers["of_n"][:, None, None, :])
    gone = 0.2 if "n" in asked.mask else 0.0  # each query has a key
    mask = np.where(random.random(asked.shape(asked.mask)) < gone, -np.inf, 2 * random.random(asked.shape(asked.mask)))
    mask = mask.astype(kind)
    added = np.expand_dims(mask.astype(np.float64), [i for i, loop in enumerate("bgmn") if loop not in asked.mask])
    added = added if asked.mask else np.zeros(())
    chosen = np.asarray(random.random((*asked.shape(asked.chosen), 1))[..., 0] > 0.2).astype(np.int8)
    if asked.chosen:
        chosen[..., 0] = 1  # each query has a key
        keep = keep & (np.expand_dims(chosen, [i for i, x in enumerate("bgmn") if x not in asked.chosen]) != 0)
    slopes = (0.5 ** (1 + np.arange(asked.size[1]))).astype(np.float32)
    plain, derivative = asked.scale * (q @ t(k)), np.ones(())
    if asked.cap:
        plain = asked.cap * np.tanh(plain / asked.cap)
        derivative = 1 - (plain / asked.cap) ** 2
    if asked.slopes:
        added = added + slopes.astype(np.float64)[:, None, None] * (j - i)
    scores = np.where(keep, plain + added, -np.inf)
    lse = np.logaddexp.reduce(scores, -1)[..., None]
    p = np.where(keep, np.exp(scores - lse), 0.0)
    o = (p @ v).astype(kind)
    delta = ((p @ v if asked.delta else o.astype(np.float64)) * do).sum(-1, keepdims=True)
    dp = do @ t(v)
    ds = asked.scale * p * (dp - delta) * derivative
    x = asked.scale * (d + 8) * 2.0**-23 * (np.abs(q) @ t(np.abs(k))) + 2.0**-21 * (1 + np.abs(lse))
    x += 2.0**-22 * np.where(np.isfinite(added), np.abs(added), 0.0) + 2.0**-20 * asked.cap
    y = np.abs(do) @ t(np.abs(v)) + (np.abs(do) * np.abs(o.astype(np.float64))).sum(-1, keepdims=True)
    y *= (e + 8) * 2.0**-23
    off = least + asked.scale * p * ((2 * x + 2.0**-20 + derivative * unit) * np.abs(dp - delta) + derivative * y)
    rounding = 2.0**-23 * (max(m * asked.size[1], n) + 16)
    exact = {"dQ": ds @ k, "dK": (t(ds) @ q).sum(1), "dV": (t(p) @ do).sum(1)}
    near = {
        "dQ": (off + np.abs(ds) * rounding) @ np.abs(k),
        "dK": (t(off + np.abs(ds) * rounding) @ np.abs(q)).sum(1),
        "dV": (t(p * (2 * x + unit + rounding) + least) @ np.abs(do)).sum(1),
    }
    rows = {name: row[..., 0].astype(np.float32) for name, row in (("lse", lse), ("delta", delta))}
    inputs: dict[str, Array] = {**halves, **rows, **numbers, "O": o, "mask": mask, "slopes": slopes, "chosen": chosen}
    poison = [np.full(exact[name].shape, 12345.0).astype(kind) for name in asked.results]
    bounds = [near[name] * 1.01 + unit * np.abs(exact[name]) * (1 + unit) + least for name in asked.results]
    values = [exact[name] for name in asked.results]
    return Problem(asked, [*(inputs[name] for name in asked.inputs), *poison], values, bounds)


def wrong(asked: AttentionGradient, target: str = "sm_80", checks: str = "", **schedule: Any) -> str:
    """What is wrong with the results of a kernel on the interpreter; "" if nothing."""
    instance = problem(asked)
    options: dict[str, Any] = {"checks": checks} if checks else {}
    asked.compile(target, **schedule)(*instance.arguments, device="interp", **options)
    return instance.wrong()


def without(asked: AttentionGradient, *results: str) -> AttentionGradient:
    """The same with other results."""
    return replace(asked, results=results)
