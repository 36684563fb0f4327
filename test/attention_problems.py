"""Numbers for the attentions of `attentions.py`: arguments, and what a kernel must make of them, by numpy in float64.

The bound on the error of a result. With u the rounding of P to its type, and the sums over keys n with weights P::

    |O - exact| <= sum P |V| (2 x + u + (N + 16) 2^-23) + 2^-25 sum |V| + rounding of O

x bounds how far an exponent may be off in the row: (D + 8) 2^-23 of the sums of |Q| |K|, and 2^-21 of what the largest
score, the mask and the function on scores are. exp is `ex2.approx`, within 2^-22.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from attentions import CAP, SLOPE, Attention

from warploom.runtime import WarploomError
from warploom.runtime.arguments.arrays import DTYPES

Array = np.ndarray[Any, np.dtype[Any]]

UNITS = {"f16": (2.0**-11, 2.0**-25), "bf16": (2.0**-8, 2.0**-134), "f8E4M3FN": (2.0**-4, 2.0**-10)}
"""By how much rounding changes a number at most: relative to it, and absolute."""

UNTOUCHED = 12288.0
"""What O has before a call, in every type."""

CUT = 2.0**-12
"""By how much `wgmma` cuts 32 products of bytes short, each 13 bits below the largest: relative to the sum of their
absolute values, where they are from a normal distribution."""


@dataclass(frozen=True)
class Problem:
    """A kernel's arguments, the output last, which holds NaN; what must be there then, and how far off it may be."""

    arguments: list[Array]
    value: Array
    bound: Array

    def wrong(self) -> str:
        """What is wrong with the output as it is now; "" if nothing. NaN is right where NaN is due."""
        result = self.arguments[-1].astype(np.float64)
        with np.errstate(invalid="ignore"):
            right = (result == self.value) | (np.abs(result - self.value) <= self.bound)
            right |= np.isnan(result) & np.isnan(self.value)
        if right.all():
            return ""
        at = tuple(int(i) for i in np.argwhere(~right)[0])
        return (
            f"{(~right).sum()} of {right.size} are wrong, first {at}: {result[at]}, "
            f"expected {self.value[at]} +- {self.bound[at]:.3g}"
        )


def problem(asked: Attention, seed: int = 0, *, masked: float = 0.2) -> Problem:
    """Arguments from a normal distribution; a fifth of a mask is minus infinity. O starts as a number that is no
    result."""
    random = np.random.default_rng([seed, *asked.size])
    *inputs, output = asked.arguments()
    arrays = [random.standard_normal(asked.shape(value)).astype(DTYPES[value.element]) for value in inputs]
    if asked.mask is not None:
        arrays[3][random.random(arrays[3].shape) < masked] = -np.inf
    names = [value.name for value in inputs]
    if asked.lengths:
        lengths = random.integers(1, asked.size[1] + 3, asked.batch[:1])
        arrays[names.index("%lengths")] = lengths.astype(np.int32)
    if asked.pages:
        table = asked.arguments()[-2]
        count = asked.sizes["page"]
        arrays[-1] = (
            random.permutation(count)[: np.prod(asked.shape(table))].reshape(asked.shape(table)).astype(np.int32)
        )
    if asked.documents:
        # As many, in order, for queries as for keys.
        for name, size in zip(("%of_m", "%of_n"), asked.size[:2], strict=True):
            arrays[names.index(name)] = (np.arange(size) * 3 // size).astype(np.int32)
    if asked.sequences:
        # Some are empty, and rows behind the last end belong to none.
        ends = np.sort(random.integers(0, asked.size[0] + 1, asked.sequences))
        arrays[names.index("%ends")] = ends.astype(np.int32)
    poison = np.full(asked.shape(output), UNTOUCHED).astype(DTYPES[output.element])
    return expected(asked, [*arrays, poison])


def latent(asked: Attention, first: int) -> tuple[str, Problem]:
    """The function of an attention of bf16 whose V is columns of K from `first` on, and arguments of Q, K, V and O. The
    columns are of K as it is gathered, where it lies in pages."""
    (_, keys, depth, columns), arguments = asked.size, problem(asked).arguments
    batch, memory, v = (asked.batch[0], "%t2", "%t4") if asked.pages else (1, "%K", "%V")
    of_k, of_v = (f"tensor<{batch}x{keys}x{width}xbf16>" for width in (depth, columns))
    part = (
        f"{v} = tensor.extract_slice {memory}[0, 0, {first}] [{batch}, {keys}, {columns}] [1, 1, 1] : {of_k} to {of_v}"
    )
    text = re.sub(r", %V: tensor<\w+>", "", asked.mlir)
    if asked.pages:
        text = re.sub(r"tensor.extract %V\[.*", "arith.constant 0.0 : bf16", text).replace(
            "%t4 = linalg", "%old = linalg"
        )
    begin = "  %t5 =" if asked.pages else "  %zero ="
    text = text.replace(begin, f"  {part}\n{begin}", 1)
    arguments[2] = arguments[1][..., first : first + columns]
    return text, expected(asked, arguments)


def expected(asked: Attention, arguments: list[Array]) -> Problem:
    """What becomes of these arguments."""
    arrays = {v: array for v, array in zip(asked.arguments(), arguments, strict=True) if v.name != "%pages"}
    named = {
        value.name: array if value.name == "%ends" else _whole(asked, *_gathered(asked, value, array, arguments[-2]))
        for value, array in arrays.items()
    }
    q, k, v = (named[name] for name in ("%Q", "%K", "%V"))
    with np.errstate(invalid="ignore"):
        return Problem(arguments, *_attention(asked, q, np.swapaxes(k, -1, -2) if asked.turned else k, v, named))


def _attention(asked: Attention, q: Array, k: Array, v: Array, named: dict[str, Array]) -> tuple[Array, Array]:
    """O, and the bound; `named` are all arguments."""
    (m, n, d, _), (unit, least), (of_p, least_of_p) = asked.size, UNITS[asked.stored], UNITS[asked.element]
    scores, off = asked.scale * (q @ np.swapaxes(k, -1, -2)), asked.scale * (np.abs(q) @ np.swapaxes(np.abs(k), -1, -2))
    off *= (d + 8) * 2.0**-23 + asked.of_bytes * (d // 32 + 1) * CUT
    if asked.of_bytes:
        scores, off = scores * named["%of_qk"], off * np.abs(named["%of_qk"])
        v = v * named["%of_v"]
    i, j = np.arange(m)[:, None], np.arange(n)[None, :]
    if asked.function == "softcap":
        scores = CAP * np.tanh(scores / CAP)
    if asked.function in ("alibi", "slopes"):
        heads = np.arange(1, asked.batch[-1] + 1)[:, None, None] if asked.function == "slopes" else 1
        scores = scores + SLOPE * heads * (j - i)
        off = off + 2.0**-21 * np.abs(SLOPE * heads * (j - i))
    if (mask := named.get("%mask")) is not None:
        off = off + np.where(np.isfinite(mask), 2.0**-21 * np.abs(mask), 0.0)
        scores = scores + mask
    if asked.causal is not None:
        scores = np.where(j > i + asked.causal, -np.inf, scores)
    if asked.window is not None:
        scores = np.where(j < i - asked.window, -np.inf, scores)
    if asked.lengths:
        scores = np.where(j >= named["%lengths"], -np.inf, scores)
    if asked.documents:
        scores = np.where(named["%of_m"] != named["%of_n"], -np.inf, scores)
    number = np.searchsorted(ends, np.arange(m), side="right") if (ends := named.get("%ends")) is not None else None
    if number is not None:
        scores = np.where(number[:, None] != number[None, :], -np.inf, scores)
    sinks = named.get("%sinks", np.full(1, -np.inf))
    largest = np.maximum(scores.max(-1, keepdims=True), sinks)
    off = np.where(np.isfinite(scores), off + 2.0**-21 * (np.abs(scores) + np.abs(largest)), 0.0)
    off = off.max(-1, keepdims=True) + 2.0**-21
    power = np.exp2 if asked.softmax == "base 2" else np.exp
    e = power(scores - largest)
    p = e / (e.sum(-1, keepdims=True) + power(sinks - largest))
    value = p @ v
    small = 2.0**-25 + asked.of_bytes * least_of_p * 2.0**-8
    bound = (2 * off + of_p + asked.of_bytes * 5 * CUT + (n + 16) * 2.0**-23) * (p @ np.abs(v))
    bound += small * np.abs(v).sum(-2, keepdims=True)
    bound += unit * np.abs(value) * (1 + unit) + least
    if number is not None:
        behind = (number == asked.sequences)[:, None]
        value, bound = np.where(behind, UNTOUCHED, value), np.where(behind, 0.0, bound)
    return value, bound


def _gathered(asked: Attention, value: Any, array: Array, table: Array) -> tuple[Any, Array]:
    """K and V as sequences, if they are in pages; others as they are."""
    if not asked.pages or value.name not in ("%K", "%V"):
        return value, array
    loops = ("b0", *value.loops[2:-1], "n", value.loops[-1])
    blocks = array[table]  # b0, block, slot, ...
    sequences = blocks.reshape(blocks.shape[0], -1, *blocks.shape[3:])
    return value._replace(loops=loops), np.moveaxis(sequences, 1, -2)


def _whole(asked: Attention, value: Any, array: Array) -> Array:
    """An argument over all loops of the batch, in float64; a mask over m and n too."""
    of_matrix = value.name in ("%Q", "%K", "%V", "%O")
    loops = (*asked.loops, *value.loops[-2:]) if of_matrix else (*asked.loops, "m", "n")
    shape = [asked.sizes[loop] if loop in value.loops else 1 for loop in loops]
    order = [value.loops.index(loop) for loop in loops if loop in value.loops]
    return np.transpose(array, order).reshape(shape).astype(np.float64)


def wrong(
    asked: Attention,
    target: str = "sm_80",
    seed: int = 0,
    checks: str = "",
    device: str = "interp",
    **schedule: object,
) -> str:
    """What is wrong with an attention on a device, "" if nothing: also that it is not one kernel."""
    try:
        kernel, instance = asked.compile(target, **schedule), problem(asked, seed)
        if len(kernel.launches) != asked.launches(target):
            return f"it takes {len(kernel.launches)} kernels"
        kernel(*instance.arguments, device=device, checks=checks)
    except WarploomError as error:
        return f"{type(error).__name__}: {error}"
    return instance.wrong()
