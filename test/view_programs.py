"""Drawn programs of views, compiled and run on the interpreter, against numpy.

    python test/view_programs.py                     # 1,000 of each kind
    python test/view_programs.py --count 100 --seed 7 --kinds memory
    python test/view_programs.py --only 87 --kinds tensors   # one program, by its number: text, and what is wrong

A program on tensors is a chain of slices, reshapes, transposes, paddings, concatenations, insertions, elementwise
operations, reductions and products; half of them have sizes that only a call knows. A program on memory is a sequence
of statements that read and write views of a few memories. All numbers are small integers, so that every result is
exact. numpy does each step when the step is drawn, and shares no code with compiler and runtime.

The script exits with 1 if a result is wrong, or a program ends in anything but a result or an error of the compiler.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import sys
import traceback
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from warploom.runtime import WarploomError, compile

Array = npt.NDArray[Any]

KINDS = ("tensors", "memory")
DTYPES = {"f32": np.float32, "f16": np.float16}
LARGEST = 1000
"""Integers up to here, and their sums by two, are exact in f16."""
POINTWISE: dict[str, Callable[[Array, Array], Array]] = {"addf": np.add, "subf": np.subtract, "maximumf": np.maximum}


@dataclass(frozen=True)
class Value:
    """A tensor or memory of a program, with its elements. `sizes` are those of its type: None is a size that only a
    call knows. `base` is all of the memory that a view belongs to."""

    name: str
    array: Array
    sizes: tuple[int | None, ...] = ()
    base: Array | None = None
    strided: bool = False

    @property
    def of(self) -> Array:
        return self.array if self.base is None else self.base


@dataclass
class Program(ABC):
    """The text of a function, and what numpy makes of its arguments."""

    element: str
    draw: random.Random
    data: np.random.Generator
    lines: list[str] = field(default_factory=list[str])
    arguments: list[tuple[Value, Array]] = field(default_factory=list[tuple[Value, Array]])
    values: list[Value] = field(default_factory=list[Value])
    names: Iterator[int] = field(default_factory=itertools.count)

    def name(self) -> str:
        return f"%v{next(self.names)}"

    def add(self, operation: str) -> str:
        """Adds an operation with one result."""
        name = self.name()
        self.lines.append(f"{name} = {operation}")
        return name

    def integers(self, shape: Sequence[int]) -> Array:
        return self.data.integers(-4, 5, shape).astype(DTYPES[self.element])

    def parameters(self) -> str:
        return ", ".join(f"{value.name}: {self.type(value)}" for value, _ in self.arguments)

    @abstractmethod
    def type(self, value: Value) -> str:
        """The type of a value, as the text has it."""

    @abstractmethod
    def build(self) -> tuple[str, list[Array]]:
        """The text of the function, and what its results are."""

    def generic(
        self, inputs: Sequence[tuple[Value, Sequence[int]]], output: tuple[str, str], kept: Sequence[int],
        body: Sequence[str], reduced: int | None = None, result: str = "",
    ) -> str:  # fmt: skip
        """A `linalg.generic` whose loops are the dimensions of the first input; `body` computes `%r`."""
        rank = inputs[0][0].array.ndim
        loops = ", ".join(f"d{i}" for i in range(rank))
        maps = [f"affine_map<({loops}) -> ({', '.join(f'd{i}' for i in map_)})>" for _, map_ in (*inputs, ("", kept))]
        kinds = ", ".join('"reduction"' if i == reduced else '"parallel"' for i in range(rank))
        arguments = ", ".join(f"%a{i}: {self.element}" for i in range(len(maps)))
        names = ", ".join(value.name for value, _ in inputs)
        types = ", ".join(self.type(value) for value, _ in inputs)
        lines = "\n  ".join([*body, f"linalg.yield %r : {self.element}"])
        return (
            f"linalg.generic {{indexing_maps = [{', '.join(maps)}], iterator_types = [{kinds}]}} "
            f"ins({names} : {types}) outs({output[0]} : {output[1]}) {{\n^bb0({arguments}):\n  {lines}\n}}{result}"
        )

    def placed(self, value: Value, others: Sequence[Value]) -> tuple[Value, tuple[int, ...]] | None:
        """One of others that has an element for each element of a value, by a map, or for several of them."""
        shape = value.array.shape
        fitting = [
            (other, map_)
            for other in others
            for map_ in itertools.permutations(range(len(shape)), other.array.ndim)
            if other.array.shape == tuple(shape[i] for i in map_)
        ]
        return self.draw.choice(fitting) if fitting else None

    def combined(self, first: Array, others: Sequence[tuple[Value, Sequence[int]]]) -> tuple[Array, list[str]]:
        """Elements of a first operand with others at their maps, and a constant; with the body that says so."""
        made, body, last = first.astype(np.float32), list[str](), "%a0"
        for number, (other, map_) in enumerate(others, 1):
            name, sizes = self.draw.choice(list(POINTWISE)), [n if i in map_ else 1 for i, n in enumerate(first.shape)]
            made = POINTWISE[name](made, np.transpose(other.array, np.argsort(map_)).reshape(sizes))
            body.append(f"%s{number} = arith.{name} {last}, %a{number} : {self.element}")
            last = f"%s{number}"
        name, number = self.draw.choice(list(POINTWISE)), self.draw.choice((1, 2, -1, 3))
        constant = f"%k = arith.constant {float(number)} : {self.element}"
        return POINTWISE[name](made, np.full(made.shape, number, np.float32)), [
            *body, constant, f"%r = arith.{name} {last}, %k : {self.element}"
        ]  # fmt: skip


def merged(rank: int, first: int, last: int) -> list[list[int]]:
    """Groups of dimensions, of which those from the first to the last are one."""
    return [*([d] for d in range(first)), [*range(first, last + 1)], *([d] for d in range(last + 1, rank))]


class Tensors(Program):
    """A chain of operations on tensors."""

    def build(self) -> tuple[str, list[Array]]:
        draw = self.draw
        dynamic = draw.random() < 0.5
        shape = [draw.choice((2, 3, 4, 5, 6, 8, 9, 12, 16, 17)) for _ in range(draw.choice((2, 3, 3, 4)))]
        last = self.input(shape, dynamic)
        if draw.random() < 0.5:
            self.input(shape, dynamic)
        if draw.random() < 0.3:
            self.input([size + draw.choice((0, 1, 3)) for size in shape], dynamic)
        steps = (
            self.slice, self.slice, self.collapse, self.collapse, self.expand, self.expand, self.transpose,
            self.transpose, self.map, self.map, self.map, self.reduce, self.pad, self.insert, self.insert, self.concat,
            self.multiply,
        )  # fmt: skip
        for _ in range(draw.randint(2, 7)):
            made = draw.choice(steps)(last)
            if made is None or not 0 < made.array.size < 60_000:
                continue
            self.values.append(made)
            last = made if draw.random() < 0.8 else draw.choice(self.values)
        inputs = [value for value, _ in self.arguments]
        results = [self.map(last) or last] if last in inputs else [last]
        others = [value for value in self.values if value not in (*inputs, *results)]
        if others and draw.random() < 0.3:
            results.append(draw.choice(others))
        types = ", ".join(map(self.type, results))
        names = ", ".join(value.name for value in results)
        constants = [f"%c{number} = arith.constant {number} : index" for number in range(6)]
        body = "\n".join([*constants, *self.lines, f"return {names} : {types}"])
        return f"func.func @f({self.parameters()}) -> ({types}) {{\n{body}\n}}", [value.array for value in results]

    def type(self, value: Value) -> str:
        sizes = "".join("?x" if size is None else f"{size}x" for size in value.sizes)
        return f"tensor<{sizes}{self.element}>"

    def input(self, shape: Sequence[int], dynamic: bool) -> Value:
        sizes = tuple(None if dynamic and self.draw.random() < 0.5 else size for size in shape)
        value = Value(f"%x{len(self.arguments)}", self.integers(shape), sizes)
        self.arguments.append((value, value.array))
        self.values.append(value)
        return value

    def size(self, value: Value, dimension: int) -> str:
        if value.sizes[dimension] is not None:
            return str(value.array.shape[dimension])
        return self.add(f"tensor.dim {value.name}, %c{dimension} : {self.type(value)}")

    def empty(self, places: Sequence[tuple[Value, int]]) -> Value:
        """A tensor with dimensions of others, which nothing is written to."""
        sizes = tuple(value.sizes[dimension] for value, dimension in places)
        unknown = [self.size(value, dimension) for value, dimension in places if value.sizes[dimension] is None]
        made = Value("", np.empty([value.array.shape[dimension] for value, dimension in places]), sizes)
        return replace(made, name=self.add(f"tensor.empty({', '.join(unknown)}) : {self.type(made)}"))

    def made(self, operation: str, array: Array, sizes: Sequence[int | None]) -> Value:
        return Value(self.add(operation), array.astype(DTYPES[self.element]), tuple(sizes))

    def slice(self, value: Value) -> Value:
        draw, offsets, counts, steps = self.draw, list[str](), list[str](), list[str]()
        places, sizes = list[slice](), list[int | None]()
        for dimension, size in enumerate(value.array.shape):
            known = value.sizes[dimension] is not None
            less, step = draw.choice((0, 0, 1, 2)) if size > 2 else 0, 1
            first = draw.randint(0, less)
            if size > 4 and known and draw.random() < 0.15:
                step, count = 2, (size - first) // 2
            else:
                count = size - less
            if known or step == 2 or draw.random() < 0.3:
                counts.append(str(count))
                sizes.append(count)
            else:
                all_ = self.size(value, dimension)
                counts.append(self.add(f"arith.subi {all_}, %c{less} : index") if less else all_)
                sizes.append(None)
            offsets.append(str(first))
            steps.append(str(step))
            places.append(slice(first, first + (count - 1) * step + 1, step))
        array = value.array[tuple(places)]
        kind = self.type(Value("", array, tuple(sizes)))
        text = f"{value.name}[{', '.join(offsets)}] [{', '.join(counts)}] [{', '.join(steps)}]"
        return self.made(f"tensor.extract_slice {text} : {self.type(value)} to {kind}", array, sizes)

    def collapse(self, value: Value) -> Value | None:
        shape = value.array.shape
        if len(shape) < 2:
            return None
        first = self.draw.randrange(len(shape) - 1)
        groups = merged(len(shape), first, min(len(shape) - 1, first + self.draw.choice((1, 1, 2))))
        parts = [[value.sizes[d] for d in group] for group in groups]
        sizes = [math.prod(n for n in part if n is not None) if None not in part else None for part in parts]
        array = value.array.reshape([math.prod(shape[d] for d in group) for group in groups])
        kind = self.type(Value("", array, tuple(sizes)))
        return self.made(f"tensor.collapse_shape {value.name} {groups} : {self.type(value)} into {kind}", array, sizes)

    def expand(self, value: Value) -> Value | None:
        shape = value.array.shape
        fitting = [(d, n) for d, size in enumerate(shape) for n in (2, 3, 4, 5) if size % n == 0 and size > n]
        if not fitting or len(shape) > 3:
            return None
        at, number = self.draw.choice(fitting)
        inner = self.draw.random() < 0.5
        known = value.sizes[at] is not None
        quotient = str(shape[at] // number)
        if not known:
            quotient = self.add(f"arith.divui {self.size(value, at)}, %c{number} : index")
        pair = [(shape[at] // number, quotient, shape[at] // number if known else None), (number, str(number), number)]
        parts = [[(size, self.size(value, d), value.sizes[d])] for d, size in enumerate(shape)]
        parts[at] = pair if inner else pair[::-1]
        flat = [part for group in parts for part in group]
        array, sizes = value.array.reshape([size for size, *_ in flat]), [size for *_, size in flat]
        kind, groups = self.type(Value("", array, tuple(sizes))), merged(len(flat), at, at + 1)
        text = f"{value.name} {groups} output_shape [{', '.join(name for _, name, _ in flat)}]"
        return self.made(f"tensor.expand_shape {text} : {self.type(value)} into {kind}", array, sizes)

    def transpose(self, value: Value) -> Value:
        order = list(range(value.array.ndim))
        self.draw.shuffle(order)
        start = self.empty([(value, d) for d in order])
        text = f"ins({value.name} : {self.type(value)}) outs({start.name} : {self.type(start)}) permutation = {order}"
        return self.made(f"linalg.transpose {text}", value.array.transpose(order), start.sizes)

    def map(self, value: Value) -> Value | None:
        others = [self.placed(value, self.values)] if self.draw.random() < 0.6 else []
        fitting = [other for other in others if other is not None]
        array, body = self.combined(value.array, fitting)
        if np.abs(array).max(initial=0) > LARGEST:
            return None
        every = range(value.array.ndim)
        start = self.empty([(value, d) for d in every])
        kind = self.type(start)
        text = self.generic([(value, every), *fitting], (start.name, kind), every, body, result=f" -> {kind}")
        return self.made(text, array, start.sizes)

    def filled(self, start: Value) -> str:
        zero = self.add(f"arith.constant 0.0 : {self.element}")
        kind = self.type(start)
        return self.add(f"linalg.fill ins({zero} : {self.element}) outs({start.name} : {kind}) -> {kind}")

    def reduce(self, value: Value) -> Value | None:
        rank = value.array.ndim
        along = self.draw.randrange(rank)
        array = value.array.astype(np.float32).sum(along)
        if rank < 2 or np.abs(value.array.astype(np.float32)).sum(along).max(initial=0) > LARGEST:
            return None
        start = self.empty([(value, d) for d in range(rank) if d != along])
        text = f"ins({value.name} : {self.type(value)}) outs({self.filled(start)} : {self.type(start)})"
        return self.made(f"linalg.reduce {{ arith.addf }} {text} dimensions = [{along}]", array, start.sizes)

    def pad(self, value: Value) -> Value:
        low, high = ([self.draw.choice(sizes) for _ in value.sizes] for sizes in ((0, 0, 1, 2), (0, 0, 1, 3)))
        sizes = [n if n is None else n + a + b for n, a, b in zip(value.sizes, low, high, strict=True)]
        number = self.draw.choice((0, 1, -2))
        constant = self.add(f"arith.constant {float(number)} : {self.element}")
        array = np.pad(value.array, list(zip(low, high, strict=True)), constant_values=number)
        indices = ", ".join(f"%i{d}: index" for d in range(len(sizes)))
        body = f"{{\n^bb0({indices}):\n  tensor.yield {constant} : {self.element}\n}}"
        types = f"{self.type(value)} to {self.type(Value('', array, tuple(sizes)))}"
        return self.made(f"tensor.pad {value.name} low{low} high{high} {body} : {types}", array, sizes)

    def insert(self, value: Value) -> Value | None:
        shape = value.array.shape
        larger = [v for v in self.values if v.array.ndim == len(shape) and not np.any(np.less(v.array.shape, shape))]
        if not larger:
            return None
        into = self.draw.choice(larger)
        first = [self.draw.randint(0, a - b) for a, b in zip(into.array.shape, shape, strict=True)]
        array = into.array.copy()
        array[tuple(slice(a, a + n) for a, n in zip(first, shape, strict=True))] = value.array
        counts = ", ".join(self.size(value, d) for d in range(len(shape)))
        text = f"{value.name} into {into.name}{first} [{counts}] {[1] * len(shape)}"
        types = f"{self.type(value)} into {self.type(into)}"
        return self.made(f"tensor.insert_slice {text} : {types}", array, into.sizes)

    def concat(self, value: Value) -> Value | None:
        along = self.draw.randrange(value.array.ndim)

        def others(v: Value) -> list[object]:
            return [pair for d, pair in enumerate(zip(v.array.shape, v.sizes, strict=True)) if d != along]

        fitting = [v for v in self.values if v.array.ndim == value.array.ndim and others(v) == others(value)]
        other = self.draw.choice(fitting)
        sizes = list(value.sizes)
        a, b = value.sizes[along], other.sizes[along]
        sizes[along] = None if a is None or b is None else a + b
        array = np.concatenate([value.array, other.array], along)
        types = f"({self.type(value)}, {self.type(other)}) -> {self.type(Value('', array, tuple(sizes)))}"
        return self.made(f"tensor.concat dim({along}) {value.name}, {other.name} : {types}", array, sizes)

    def multiply(self, value: Value) -> Value | None:
        shape = value.array.shape
        if len(shape) != 2 or np.abs(value.array.astype(np.float32)).sum(1).max(initial=0) * 4 > LARGEST:
            return None
        other = self.input([shape[1], self.draw.choice((3, 8, 17, 32))], False)
        start = self.empty([(value, 0), (other, 1)])
        factors = f"ins({value.name}, {other.name} : {self.type(value)}, {self.type(other)})"
        kind = self.type(start)
        text = f"linalg.matmul {factors} outs({self.filled(start)} : {kind}) -> {kind}"
        return self.made(text, value.array.astype(np.float32) @ other.array.astype(np.float32), start.sizes)


class Memory(Program):
    """Statements on views of a few memories. What a statement reads, it does not write elsewhere."""

    def build(self) -> tuple[str, list[Array]]:
        draw = self.draw
        rank = draw.choice((1, 2, 2, 3, 3, 4))
        shape = [
            draw.choice((1, 2, 3, 4, 5, 8, 9, 16, 17, 32, 33, 64, 100)[: 13 if rank < 3 else 8]) for _ in range(rank)
        ]
        for number in range(draw.choice((2, 3, 4))):
            own = (
                [size + draw.choice((0, 0, 0, 1, 2)) for size in shape]
                if draw.random() < 0.7
                else draw.sample(shape, rank)
            )
            value = Value(f"%m{number}", self.integers(own))
            self.arguments.append((value, value.array.copy()))
            self.values.append(value)
        statements = (self.map, self.map, self.map, self.copy, self.fill, self.reduce, self.transpose)
        for _ in range(draw.randint(2, 7)):
            draw.choice(statements)()
        text = f"func.func @f({self.parameters()}) {{\n" + "\n".join([*self.lines, "return\n}"])
        return text, [value.array for value, _ in self.arguments]

    def type(self, value: Value) -> str:
        item = value.array.itemsize
        strides = [stride // item for stride in value.array.strides]
        first = (value.array.ctypes.data - value.of.ctypes.data) // item
        offset = f", offset: {first}" if first else ""
        layout = f", strided<{strides}{offset}>" if value.strided else ""
        return f"memref<{''.join(f'{size}x' for size in value.array.shape)}{self.element}{layout}>"

    def view(self) -> Value:
        """A view of memory, of views."""
        value = self.draw.choice(self.values)
        for _ in range(self.draw.choice((0, 0, 1, 1, 2))):
            value = self.draw.choice((self.part, self.part, self.collapse, self.expand))(value) or value
        return value

    def read(self) -> Value | None:
        value = self.view()
        return None if np.isnan(value.array).any() else value

    def viewed(self, operation: str, value: Value, array: Array, text: str, to: str, strided: bool) -> Value:
        made = Value("", array, base=value.of, strided=strided)
        types = f"{self.type(value)} {to} {self.type(made)}"
        return replace(made, name=self.add(f"memref.{operation} {value.name}{text} : {types}"))

    def part(self, value: Value) -> Value:
        draw, firsts, counts, steps = self.draw, list[int](), list[int](), list[int]()
        for size in value.array.shape:
            steps.append(2 if size >= 4 and draw.random() < 0.1 else 1)
            firsts.append(draw.choice((0, 0, 0, 1, 2, size // 2)) if size > 2 else 0)
            all_ = max(1, (size - firsts[-1]) // steps[-1])
            counts.append(draw.randint(max(1, all_ // 2), all_) if draw.random() < 0.5 else all_)
        return self.part_at(value, firsts, counts, steps)

    def part_at(self, value: Value, firsts: list[int], counts: list[int], steps: list[int]) -> Value:
        ranges = [slice(a, a + (n - 1) * s + 1, s) for a, n, s in zip(firsts, counts, steps, strict=True)]
        return self.viewed("subview", value, value.array[tuple(ranges)], f"{firsts} {counts} {steps}", "to", True)

    def collapse(self, value: Value) -> Value | None:
        shape, strides = value.array.shape, value.array.strides
        at = self.draw.randrange(max(1, len(shape) - 1))
        if len(shape) < 2 or strides[at] != strides[at + 1] * shape[at + 1]:
            return None
        array = np.lib.stride_tricks.as_strided(
            value.array, (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :]), (*strides[:at], *strides[at + 1 :])
        )
        groups = merged(len(shape), at, at + 1)
        return self.viewed("collapse_shape", value, array, f" {groups}", "into", value.strided)

    def expand(self, value: Value) -> Value | None:
        shape, strides = value.array.shape, value.array.strides
        fitting = [(d, n) for d, size in enumerate(shape) for n in (2, 3, 4, 8) if size % n == 0 and size > n]
        if not fitting or len(shape) > 3:
            return None
        at, number = self.draw.choice(fitting)
        inner = number if self.draw.random() < 0.5 else shape[at] // number
        sizes = [*shape[:at], shape[at] // inner, inner, *shape[at + 1 :]]
        array = np.lib.stride_tricks.as_strided(
            value.array, sizes, (*strides[:at], strides[at] * inner, strides[at], *strides[at + 1 :])
        )
        text = f" {merged(len(sizes), at, at + 1)} output_shape {sizes}"
        return self.viewed("expand_shape", value, array, text, "into", value.strided)

    def target(self, shape: Sequence[int], read: Sequence[Value]) -> Value | None:
        """Memory of a shape that shares no element with what is read: old memory, a part of it, or new."""
        for _ in range(6):
            value = self.draw.choice(self.values)
            if value.array.ndim != len(shape) or np.any(np.less(value.array.shape, shape)):
                continue
            first = [self.draw.randint(0, a - b) for a, b in zip(value.array.shape, shape, strict=True)]
            part = value.array[tuple(slice(a, a + n) for a, n in zip(first, shape, strict=True))]
            if any(np.shares_memory(part, other.array) for other in read):
                continue
            if value.array.shape == tuple(shape) and self.draw.random() < 0.6:
                return value
            return self.part_at(value, first, list(shape), [1] * len(shape))
        if self.draw.random() < 0.3:
            return None
        value = Value("", np.full(shape, np.nan, DTYPES[self.element]))
        self.values.append(replace(value, name=self.add(f"memref.alloc() : {self.type(value)}")))
        return self.values[-1]

    def statement(self, text: str, target: Value, array: Array) -> None:
        self.lines.append(text)
        target.array[...] = array

    def fill(self) -> None:
        target, number = self.view(), self.draw.choice((0, 1, -2))
        constant = self.add(f"arith.constant {float(number)} : {self.element}")
        text = f"linalg.fill ins({constant} : {self.element}) outs({target.name} : {self.type(target)})"
        self.statement(text, target, np.full(target.array.shape, number))

    def copy(self) -> None:
        if (value := self.read()) is not None and (target := self.target(value.array.shape, [value])) is not None:
            types = f"ins({value.name} : {self.type(value)}) outs({target.name} : {self.type(target)})"
            self.statement(f"linalg.copy {types}", target, value.array)

    def transpose(self) -> None:
        if (value := self.read()) is None:
            return
        order = self.draw.sample(range(value.array.ndim), value.array.ndim)
        array = value.array.transpose(order)
        if (target := self.target(array.shape, [value])) is not None:
            types = f"ins({value.name} : {self.type(value)}) outs({target.name} : {self.type(target)})"
            self.statement(f"linalg.transpose {types} permutation = {order}", target, array)

    def reduce(self) -> None:
        value = self.read()
        if value is None or value.array.ndim < 2:
            return
        along = self.draw.randrange(value.array.ndim)
        kept = [d for d in range(value.array.ndim) if d != along]
        target = self.target([value.array.shape[d] for d in kept], [value])
        if target is None or np.isnan(target.array).any():
            return
        bound = np.abs(target.array) + np.abs(value.array.astype(np.float32)).sum(along)
        if bound.max(initial=0) > LARGEST:
            return
        name = self.draw.choice(("addf", "maximumf"))
        reduced = value.array.astype(np.float32).sum(along) if name == "addf" else value.array.max(along)
        body = [f"%r = arith.{name} %a1, %a0 : {self.element}"]
        output = target.name, self.type(target)
        text = self.generic([(value, range(value.array.ndim))], output, kept, body, along)
        self.statement(text, target, POINTWISE[name](target.array.astype(np.float32), reduced))

    def map(self) -> None:
        if (value := self.read()) is None:
            return
        drawn = [self.read() for _ in range(self.draw.choice((0, 1, 1, 2)))]
        placed = [self.placed(value, [other]) for other in drawn if other is not None]
        others = [each for each in placed if each is not None]
        read = [other for other, _ in others]
        in_place = self.draw.random() < 0.25 and not any(np.shares_memory(value.array, other.array) for other in read)
        target = value if in_place else self.target(value.array.shape, [value, *read])
        array, body = self.combined(value.array, others)
        if target is None or np.abs(array).max(initial=0) > LARGEST:
            return
        every = range(value.array.ndim)
        self.statement(
            self.generic([(value, every), *others], (target.name, self.type(target)), every, body), target, array
        )


@dataclass(frozen=True)
class Outcome:
    """What became of a program: "right", "refused" with the reason, or "wrong" with what is wrong."""

    kind: str
    reason: str = ""
    text: str = ""


def outcome(number: int, kind: str) -> Outcome:
    """Draws, compiles, runs and compares one program."""
    draw = random.Random(number)
    element, target = draw.choice(list(DTYPES)), draw.choice(("sm_80", "sm_90a"))
    program = {"tensors": Tensors, "memory": Memory}[kind](element, draw, np.random.default_rng(number))
    text, expected = program.build()
    try:
        kernel = compile(text, target, tf32=True, cache=False)
    except WarploomError as error:
        return Outcome("refused", str(error).split("\n")[0], text)
    except Exception:
        return Outcome("wrong", traceback.format_exc(), text)
    arrays = [array.copy() for _, array in program.arguments]
    results = arrays if kind == "memory" else [np.full(array.shape, np.nan, array.dtype) for array in expected]
    try:
        kernel(*arrays, *(results if kind == "tensors" else ()), device="interp")
    except Exception:
        return Outcome("wrong", traceback.format_exc(), text)
    for at, (result, array) in enumerate(zip(results, expected, strict=True)):
        if not np.array_equal(result, array):
            return Outcome("wrong", f"result {at}: {(result != array).mean():.1%} of the elements differ", text)
    return Outcome("right")


def judge(
    description: str | None, kinds: Sequence[str], outcome: Callable[[int, str], Any], count: int,
    reason_of: Callable[[str], str] = str,
) -> int:  # fmt: skip
    """The command of a script that draws programs of kinds by their numbers: prints what is wrong, the counts, and how
    often each reason refuses. 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=count)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", choices=kinds, nargs="+", default=kinds)
    parser.add_argument("--only", type=int)
    options = parser.parse_args()
    numbers = range(options.seed, options.seed + options.count) if options.only is None else [options.only]
    counts, reasons = Counter[str](), Counter[str]()
    for kind, number in itertools.product(options.kinds, numbers):
        one = outcome(number, kind)
        counts[one.kind] += 1
        if one.kind == "refused":
            reasons[reason_of(one.reason)] += 1
        if one.kind == "wrong" or options.only is not None:
            print(f"{kind} {number}: {one.kind} {one.reason}\n{one.text}", flush=True)
    print(*(f"{number} {kind}" for kind, number in counts.items()), sep=", ")
    for reason, number in reasons.most_common():
        print(f"{number} refused: {reason}")
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(judge(__doc__, KINDS, outcome, 1000))
