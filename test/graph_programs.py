"""Drawn graphs of operations of many types, run on the interpreter, against numpy.

    python test/graph_programs.py                     # 1,000 graphs
    python test/graph_programs.py --count 100 --seed 7
    python test/graph_programs.py --only 87           # one graph, by its number: text, and what is wrong

A graph has elementwise operations of several operands, types and results, contractions by subscripts, reductions of
any loops, gathers, windows, transposes, broadcasts and calls, on tensors or in memory, of sizes that the types or only
a call says. All numbers are small integers, so that every result is exact in its type. numpy does each step when it is
drawn, and shares no code with compiler and runtime.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import re
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from linalg_programs import Outcome, report

from warploom.runtime import CompileError, compile

Array = npt.NDArray[Any]

DTYPES: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64, "i8": np.int8,
    "i16": np.int16, "i32": np.int32, "i64": np.int64,
}  # fmt: skip
LARGEST = {"f16": 2048, "bf16": 256, "i8": 127}
"""Integers up to here are exact in a type; in the others, all that are drawn."""
ELEMENTS = ("f32", "f32", "f16", "f16", "bf16", "f64", "i8", "i32", "i32", "i64", "i16")
WIDTH = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64, "i8": 8, "i16": 16, "i32": 32, "i64": 64}

CONVOLUTIONS = {
    "conv_1d": "h+y; y; h", "conv_2d": "h+y w+x; y x; h w", "conv_3d": "d+z h+y w+x; z y x; d h w",
    "conv_1d_nwc_wcf": "n w+x c; x c f; n w f", "conv_1d_ncw_fcw": "n c w+x; f c x; n f w",
    "conv_2d_nhwc_hwcf": "n h+y w+x c; y x c f; n h w f", "conv_2d_nhwc_fhwc": "n h+y w+x c; f y x c; n h w f",
    "conv_2d_nchw_fchw": "n c h+y w+x; f c y x; n f h w",
    "conv_2d_ngchw_fgchw": "n g c h+y w+x; f g c y x; n g f h w",
    "conv_2d_ngchw_gfchw": "n g c h+y w+x; g f c y x; n g f h w",
    "conv_2d_nhwgc_gfhwc": "n h+y w+x g c; g f y x c; n h w g f",
    "conv_3d_ndhwc_dhwcf": "n d+z h+y w+x c; z y x c f; n d h w f",
    "conv_3d_ncdhw_fcdhw": "n c d+z h+y w+x; f c z y x; n f d h w",
    "depthwise_conv_1d_nwc_wc": "n w+x c; x c; n w c", "depthwise_conv_1d_ncw_cw": "n c w+x; c x; n c w",
    "depthwise_conv_1d_nwc_wcm": "n w+x c; x c m; n w c m",
    "depthwise_conv_2d_nhwc_hwc": "n h+y w+x c; y x c; n h w c",
    "depthwise_conv_2d_nchw_chw": "n c h+y w+x; c y x; n c h w",
    "depthwise_conv_2d_nhwc_hwcm": "n h+y w+x c; y x c m; n h w c m",
    "depthwise_conv_3d_ndhwc_dhwc": "n d+z h+y w+x c; z y x c; n d h w c",
    "depthwise_conv_3d_ncdhw_cdhw": "n c d+z h+y w+x; c z y x; n c d h w",
}  # fmt: skip
"""The loops of images, filter and result; h+y is h times a stride plus y times a dilation."""


def is_integer(element: str) -> bool:
    return element[0] == "i"


def fits(array: Array, *elements: str) -> bool:
    most = min(LARGEST.get(element, 30_000) for element in elements)
    return array.size < 40_000 and bool(np.abs(array).max(initial=0) <= most)


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor or memory, with the loops that its dimensions are of, and its numbers in float64."""

    name: str
    loops: tuple[str, ...]
    element: str
    array: Array
    layout: str = ""


@dataclass
class Graph:
    """The text of a function, and what numpy makes of its arguments."""

    draw: random.Random
    data: np.random.Generator
    lines: list[str] = field(default_factory=list[str])
    functions: list[str] = field(default_factory=list[str])
    arguments: list[tuple[Value, Array]] = field(default_factory=list[tuple[Value, Array]])
    values: list[Value] = field(default_factory=list[Value])
    views: dict[str, str] = field(default_factory=dict[str, str])
    """The memory that a view is of, by their names."""

    def __post_init__(self) -> None:
        draw = self.draw
        self.names, self.tensors = itertools.count(), draw.random() < 0.6
        self.kind = "tensor" if self.tensors else "memref"
        self.sizes = {name: draw.choice((1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33, 40, 64)) for name in "abcd"}
        self.unknown = {name for name in "abcd" if draw.random() < 0.5} if draw.random() < 0.4 else set[str]()

    def add(self, operation: str) -> str:
        name = f"%v{next(self.names)}"
        self.lines.append(f"{name} = {operation}")
        return name

    def type(self, value: Value) -> str:
        sizes = "".join("?x" if name in self.unknown else f"{self.sizes[name]}x" for name in value.loops)
        return f"{self.kind}<{sizes}{value.element}{value.layout}>"

    def shape(self, loops: Sequence[str]) -> list[int]:
        return [self.sizes[name] for name in loops]

    def input(self, loops: Sequence[str], element: str, low: int = -3, high: int = 3) -> Value:
        array = self.data.integers(low, high + 1, self.shape(loops)).astype(DTYPES[element])
        layout = ""
        if not self.tensors and loops and self.draw.random() < 0.3:
            memory = np.zeros([n + self.draw.choice((0, 1, 8)) for n in array.shape], array.dtype)
            part = memory[tuple(slice(n) for n in array.shape)]
            part[...], array = array, part
            strides = [stride // array.itemsize for stride in array.strides]
            texts = ["?" if n != 1 and self.draw.random() < 0.5 else str(n) for n in strides]
            layout = f", strided<[{', '.join(texts)}]>"
        value = Value(f"%x{len(self.arguments)}", tuple(loops), element, array.astype(np.float64), layout)
        self.arguments.append((value, array))
        self.values.append(value)
        return value

    def fresh(self, loops: Sequence[str], element: str) -> Value:
        """A tensor or memory that nothing is written to yet."""
        value = Value("", tuple(loops), element, np.zeros(self.shape(loops)))
        sizes = [self.size(name) for name in loops if name in self.unknown]
        kind = "tensor.empty" if self.tensors else "memref.alloc"
        return replace(value, name=self.add(f"{kind}({', '.join(sizes)}) : {self.type(value)}"))

    def size(self, name: str) -> str:
        value = next(value for value, _ in self.arguments if name in value.loops)
        return self.add(f"{self.kind}.dim {value.name}, %c{value.loops.index(name)} : {self.type(value)}")

    def constant(self, number: float, element: str) -> str:
        return self.add(f"arith.constant {int(number) if is_integer(element) else float(number)} : {element}")

    def filled(self, loops: Sequence[str], element: str, number: float) -> Value:
        scalar, out = self.constant(number, element), self.fresh(loops, element)
        return self.written("fill", f"ins({scalar} : {element})", out, "")

    def written(self, name: str, ins: str, out: Value, end: str, arrow: bool = True) -> Value:
        text = f"linalg.{name} {ins} outs({out.name} : {self.type(out)}) {end}"
        if not self.tensors:
            self.lines.append(text)
            return out
        return replace(out, name=self.add(text + (f" -> {self.type(out)}" if arrow else "")))

    def ins(self, inputs: Sequence[Value]) -> str:
        names, types = (", ".join(part) for part in ([v.name for v in inputs], [self.type(v) for v in inputs]))
        return f"ins({names} : {types})" if inputs else ""

    def generic(
        self, loops: Sequence[str], inputs: Sequence[Value], outs: Sequence[Value], body: Sequence[str],
        results: Sequence[str],
    ) -> list[Value]:  # fmt: skip
        every = [*inputs, *outs]
        maps = ", ".join(f"affine_map<({', '.join(loops)}) -> ({', '.join(v.loops)})>" for v in every)
        kinds = ", ".join('"parallel"' if name in outs[0].loops else '"reduction"' for name in loops)
        arguments = ", ".join(f"%a{i}: {v.element}" for i, v in enumerate(every))
        names, types = (", ".join(part) for part in ([v.name for v in outs], [self.type(v) for v in outs]))
        elements = ", ".join(v.element for v in outs)
        text = (
            f"linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}} {self.ins(inputs)} "
            f"outs({names} : {types}) {{\n^bb0({arguments}):\n  "
            + "\n  ".join([*body, f"linalg.yield {', '.join(results)} : {elements}"]) + "\n}"
        )  # fmt: skip
        if not self.tensors:
            self.lines.append(text)
            return list(outs)
        if len(outs) == 1:
            return [replace(outs[0], name=self.add(f"{text} -> {self.type(outs[0])}"))]
        name = f"%v{next(self.names)}"
        self.lines.append(f"{name}:{len(outs)} = {text} -> ({types})")
        return [replace(v, name=f"{name}#{i}") for i, v in enumerate(outs)]

    def spread(self, value: Value, loops: Sequence[str]) -> Array:
        """A value's numbers along loops, of which it may lack some."""
        order = [name for name in loops if name in value.loops]
        array = value.array.transpose([value.loops.index(name) for name in order])
        return array.reshape([self.sizes[name] if name in value.loops else 1 for name in loops])

    def converted(self, name: str, source: str, to: str, body: list[str]) -> str:
        if source == to:
            return name
        a, b = is_integer(source), is_integer(to)
        if a and b:
            operation = "extsi" if WIDTH[to] > WIDTH[source] else "trunci"
        elif not a and not b:
            if WIDTH[to] == WIDTH[source]:
                return self.converted(self.converted(name, source, "f32", body), "f32", to, body)
            operation = "extf" if WIDTH[to] > WIDTH[source] else "truncf"
        else:
            operation = "sitofp" if a else "fptosi"
        body.append(f"%n{len(body)} = arith.{operation} {name} : {source} to {to}")
        return f"%n{len(body) - 1}"

    def started(self, loops: Sequence[str], element: str, number: float) -> tuple[Value, Array]:
        """What a sum starts from: a number, or a tensor that may be read again; with its numbers."""
        fitting = [v for v in self.values if self.tensors and v.loops == tuple(loops) and v.element == element]
        if fitting and self.draw.random() < 0.5:
            value = self.draw.choice(fitting)
            return value, value.array
        return self.filled(loops, element, number), np.full(self.shape(loops), float(number))

    def pick(self) -> Value:
        return self.draw.choice(self.values[-3:] if self.draw.random() < 0.6 else self.values)

    def keep(self, made: Value, array: Array) -> Value:
        self.values.append(replace(made, array=np.asarray(array, np.float64)))
        return self.values[-1]

    def build(self) -> tuple[str, list[tuple[Value, Array]]]:
        draw = self.draw
        for _ in range(draw.choice((1, 2, 2, 3))):
            self.input(draw.sample("abcd", draw.choice((1, 2, 2, 2, 3))), draw.choice(ELEMENTS))
        steps = (
            self.map, self.map, self.map, self.multiply, self.multiply, self.reduce, self.reduce, self.gather,
            self.transpose, self.broadcast, self.convolve, self.largest, self.call, self.in_place, self.part,
            self.merge, self.join,
        )  # fmt: skip
        for _ in range(draw.randint(2, 8)):
            draw.choice(steps)()
        while not any("linalg" in line for line in self.lines):  # views alone are no kernel
            self.map()
        made = [v for v in self.values if v.name not in {a.name for a, _ in self.arguments}]
        results = list(dict.fromkeys([*made[-1:], *(v for v in made if draw.random() < 0.2)]))[:3]
        if self.tensors and draw.random() < 0.2:  # an argument, or a value twice
            results.append(draw.choice([*results, *self.values]))
        outputs = list[tuple[Value, Array]]()
        if not self.tensors:  # results are copied to arguments
            for value in results:
                out = self.input(value.loops, value.element)
                self.written("copy", self.ins([value]), out, "")
                outputs.append((replace(out, array=value.array), value.array))
            written = {v.name for v, _ in outputs}
            outputs += [(v, v.array) for v in self.latest() if v.name not in written]
        else:
            outputs = [(v, v.array) for v in results]
        parameters = ", ".join(f"{v.name}: {self.type(v)}" for v, _ in self.arguments)
        types = ", ".join(self.type(v) for v, _ in outputs) if self.tensors else ""
        end = f"return {', '.join(v.name for v, _ in outputs)} : {types}" if self.tensors else "return"
        body = "\n".join([*(f"%c{i} = arith.constant {i} : index" for i in range(4)), *self.lines, end])
        return "\n".join([*self.functions, f"func.func @f({parameters}) -> ({types}) {{\n{body}\n}}"]), outputs

    def latest(self) -> list[Value]:
        """The arguments, as they are at the end."""
        now = {value.name: value for value in self.values}
        return [now[value.name] for value, _ in self.arguments]

    def map(self, into: Value | None = None) -> Value | None:
        """An elementwise operation of up to three values in a drawn type; at times of two results."""
        draw = self.draw
        first = into or self.pick()
        loops = list(first.loops)
        others = [v for v in self.values if set(v.loops) <= set(loops)]
        inputs = [first, *draw.sample(others, min(len(others), draw.choice((0, 1, 1, 2))))]
        work = draw.choice(ELEMENTS)
        if any(not fits(v.array, work) for v in inputs):
            return None
        body, letter, arrays = list[str](), "i" if is_integer(work) else "f", [self.spread(v, loops) for v in inputs]
        names = [self.converted(f"%a{i}", v.element, work, body) for i, v in enumerate(inputs)]
        if draw.random() < 0.15 and loops:
            at = draw.randrange(len(loops))
            body += [f"%i{len(body)} = linalg.index {at} : index"]
            body += [f"%j{len(body)} = arith.index_cast %i{len(body) - 1} : index to i32"]
            names.append(self.converted(f"%j{len(body) - 1}", "i32", work, body))
            arrays.append(
                np.arange(self.sizes[loops[at]], dtype=np.float64).reshape(
                    [-1 if d == at else 1 for d in range(len(loops))]
                )
            )
            if not fits(arrays[-1], work):
                return None
        if into is not None:  # the element that is there before
            names.append(self.converted(f"%a{len(inputs)}", into.element, work, body))
            arrays.append(arrays[0])
        terms = list(zip(names, arrays, strict=True))
        last, wide = terms[0]
        for name, array in [*terms[1:], *([terms[0]] if draw.random() < 0.3 else [])]:
            last, wide = self.joined(last, wide, name, array, work, letter, body)
            if not fits(wide, work):
                return None
        if draw.random() < 0.4:
            number = draw.choice((1, 2, -1, 3))
            body.append(f"%k{len(body)} = arith.constant {number if letter == 'i' else float(number)} : {work}")
            last, wide = self.joined(last, wide, f"%k{len(body) - 1}", np.array(float(number)), work, letter, body)
        wide = np.broadcast_to(wide, self.shape(loops))
        element = into.element if into else draw.choice((work, work, draw.choice(ELEMENTS)))
        if not fits(wide, work, element):
            return None
        order = list(loops)
        if draw.random() < 0.2 and not into:
            draw.shuffle(order)
        out = into or self.fresh(order, element)
        result = self.converted(last, work, element, body)
        array = wide.transpose([loops.index(name) for name in order])
        if not into and draw.random() < 0.12:
            second = self.fresh(loops, work)
            pair = self.generic(loops, inputs, [out, second], body, [result, names[0]])
            self.keep(pair[1], np.broadcast_to(arrays[0], self.shape(loops)))
            return self.keep(pair[0], array)
        return self.keep(self.generic(loops, inputs, [out], body, [result])[0], array)

    def joined(self, x: str, a: Array, y: str, b: Array, work: str, letter: str, body: list[str]) -> tuple[str, Array]:
        name = self.draw.choice(("add", "sub", "mul", "max", "min", "select"))
        signed = {"max": "maxsi" if letter == "i" else "maximumf", "min": "minsi" if letter == "i" else "minimumf"}
        at = len(body)
        if name == "select":
            body.append(f"%s{at} = arith.cmp{letter} {'sgt' if letter == 'i' else 'ogt'}, {x}, {y} : {work}")
            body.append(f"%s{at + 1} = arith.select %s{at}, {y}, {x} : {work}")
            return f"%s{at + 1}", np.where(a > b, b, a)
        body.append(f"%s{at} = arith.{signed.get(name, name + letter)} {x}, {y} : {work}")
        function = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[name]
        return f"%s{at}", function(a, b)

    def in_place(self) -> Value | None:
        """Memory, or a tensor, that an operation writes and reads."""
        value = self.draw.choice(self.values)
        if self.tensors:
            return self.map(value)
        if value.name in self.views:
            return None
        made = self.map(value)
        if made is not None:
            self.values = [v for v in self.values if value.name not in (v.name, self.views.get(v.name))] + [made]
        return made

    def multiply(self) -> Value | None:
        draw, a = self.draw, self.pick()
        others = [v for v in self.values if set(v.loops) & set(a.loops)]
        if not others:
            return None
        b = draw.choice(others)
        if draw.random() < 0.6 and len(self.arguments) < 6:
            shared = draw.sample(a.loops, min(len(a.loops), draw.choice((1, 1, 2))))
            new = [name for name in "abcd" if name not in a.loops]
            loops = [*shared, *draw.sample(new, min(len(new), 1))]
            draw.shuffle(loops)
            b = self.input(loops, a.element, -2, 2)
        shared = [name for name in a.loops if name in b.loops]
        summed = draw.sample(shared, draw.choice((1, 1, 1, 2)) if len(shared) > 1 else len(shared))
        kept = [name for name in dict.fromkeys((*a.loops, *b.loops)) if name not in summed]
        if draw.random() < 0.3:
            draw.shuffle(kept)
        wide = "i32" if is_integer(a.element) and is_integer(b.element) else "f32"
        element = draw.choice((wide, wide, wide, a.element))
        loops = [*kept, *summed]
        terms = np.abs(self.spread(a, loops)) * np.abs(self.spread(b, loops))
        if terms.size > 400_000 or not summed or {a.element, b.element} == {"f16", "bf16"}:
            return None
        along = tuple(range(len(kept), len(loops)))
        if not fits(terms.sum(along), element) or not all(
            fits(v.array, "f16" if v.element == "f32" else v.element, element) for v in (a, b)
        ):
            return None
        body = list[str]()
        x, y = (self.converted(f"%a{i}", v.element, element, body) for i, v in enumerate((a, b)))
        letter = "i" if is_integer(element) else "f"
        body += [f"%p = arith.mul{letter} {x}, {y} : {element}", f"%r = arith.add{letter} %a2, %p : {element}"]
        (out, old), order = self.started(kept, element, 0), list(loops)
        if not fits(np.abs(old) + terms.sum(along), element):
            return None
        if draw.random() < 0.3:
            draw.shuffle(order)
        made = self.generic(order, [a, b], [out], body, ["%r"])[0]
        return self.keep(made, old + (self.spread(a, loops) * self.spread(b, loops)).sum(along))

    def reduce(self) -> Value | None:
        draw, value = self.draw, self.pick()
        if not value.loops:
            return None
        kept = draw.sample(value.loops, draw.randrange(len(value.loops)))
        element = draw.choice((value.element, value.element, draw.choice(ELEMENTS)))
        name, loops = draw.choice(("add", "add", "max", "min")), list(value.loops)
        order = [*kept, *(name for name in loops if name not in kept)]
        along = tuple(range(len(kept), len(loops)))
        array = (
            self.spread(replace(value, array=np.abs(value.array)), order).sum(along) if name == "add" else value.array
        )
        if not fits(array, element) or not fits(value.array, element):
            return None
        letter, body = "i" if is_integer(element) else "f", list[str]()
        signed = {"max": "maxsi" if letter == "i" else "maximumf", "min": "minsi" if letter == "i" else "minimumf"}
        x = self.converted("%a0", value.element, element, body)
        body.append(f"%r = arith.{signed.get(name, name + letter)} {x}, %a1 : {element}")
        start = {"add": 0, "max": -100, "min": 100}[name]
        out, old = self.started(kept, element, start)
        function = {"add": np.add, "max": np.maximum, "min": np.minimum}[name]
        array = function(old, function.reduce(self.spread(value, order), axis=along, initial=start))
        if not fits(array, element):
            return None
        if not x[1:].startswith("n") and kept == [name for name in loops if name in kept] and draw.random() < 0.4:
            dimensions = [d for d, name in enumerate(loops) if name not in kept]
            operation = body[-1].split()[2]
            made = self.written(
                f"reduce {{ {operation} }}",
                self.ins([value]),
                out,
                f"dimensions = {dimensions}",
                arrow=False,
            )
        else:
            made = self.generic(loops, [value], [out], body, ["%r"])[0]
        return self.keep(made, array)

    def gather(self) -> Value | None:
        """Elements of a table at places that a value has."""
        draw, table = self.draw, self.pick()
        if not table.loops:
            return None
        at = draw.randrange(len(table.loops))
        first = draw.choice("abcd")
        rows = self.sizes[table.loops[at]]
        if len(self.arguments) >= 6:
            return None
        places = self.input([first], draw.choice(("i32", "i64")), 0, rows - 1)
        rest = [name for name in table.loops if name != table.loops[at]]
        if first in rest:
            return None
        loops = [first, *rest]
        body = [f"%p = arith.index_cast %a0 : {places.element} to index"]
        body += [f"%i{d} = linalg.index {d + 1} : index" for d in range(len(rest))]
        where = [f"%i{rest.index(name)}" if name in rest else "%p" for name in table.loops]
        read = "tensor.extract" if self.tensors else "memref.load"
        body.append(f"%r = {read} {table.name}[{', '.join(where)}] : {self.type(table)}")
        made = self.generic(loops, [places], [self.fresh(loops, table.element)], body, ["%r"])[0]
        array = np.take(np.moveaxis(table.array, at, 0), places.array.astype(np.int64), 0)
        return self.keep(made, array)

    def transpose(self) -> Value:
        value = self.pick()
        order = self.draw.sample(range(len(value.loops)), len(value.loops))
        out = self.fresh([value.loops[d] for d in order], value.element)
        made = self.written("transpose", self.ins([value]), out, f"permutation = {order}", arrow=False)
        return self.keep(made, value.array.transpose(order))

    def broadcast(self) -> Value | None:
        value = self.pick()
        new = [name for name in "abcd" if name not in value.loops]
        if not new or len(value.loops) > 2:
            return None
        at, name = self.draw.randrange(len(value.loops) + 1), self.draw.choice(new)
        if name in self.unknown and not any(name in v.loops for v, _ in self.arguments):
            return None
        loops = [*value.loops[:at], name, *value.loops[at:]]
        out = self.fresh(loops, value.element)
        made = self.written("broadcast", self.ins([value]), out, f"dimensions = [{at}]", arrow=False)
        return self.keep(made, np.broadcast_to(np.expand_dims(value.array, at), self.shape(loops)))

    def convolve(self) -> Value | None:
        """A named convolution of two arguments."""
        name = self.draw.choice(list(CONVOLUTIONS))
        maps, bare = [part.split() for part in CONVOLUTIONS[name].split(";")], name[-1] == "d"
        if len(self.arguments) > 4:
            return None
        sizes = {
            "x": (1, 2, 3),
            "y": (1, 3),
            "z": (1, 2),
            "n": (1, 2),
            "g": (1, 2),
            "m": (1, 3),
            "d": (1, 3),
            "h": (1, 4, 9),
        }
        letters = dict.fromkeys(letter for map_ in maps for term in map_ for letter in term.split("+"))
        extents = {letter: self.draw.choice(sizes.get(letter, (1, 3, 8, 16, 17))) for letter in letters}
        windows = [term for term in maps[0] if "+" in term]
        steps = {term: (1, 1) if bare else (self.draw.choice((1, 2)), self.draw.choice((1, 1, 2))) for term in windows}
        for (h, _, y), (stride, dilation) in ((term, steps[term]) for term in windows):
            extents[f"{h}+{y}"] = (extents[h] - 1) * stride + (extents[y] - 1) * dilation + 1
        loops = {term: self.named_size(size) for term, size in extents.items()}
        factor, element = self.draw.choice(
            (("f16", "f32"), ("bf16", "f32"), ("f16", "f16"), ("f32", "f32"), ("i8", "i32"), ("f64", "f64"))
        )
        a, b = (self.input([loops[term] for term in map_], factor, -1, 2) for map_ in maps[:2])
        order = [*maps[2], *(letter for letter in letters if letter not in maps[2])]
        grid = dict(zip(order, np.indices([extents[letter] for letter in order], sparse=True), strict=True))
        grid |= {term: grid[term[0]] * s + grid[term[2]] * d for term, (s, d) in steps.items()}
        product = a.array[tuple(grid[term] for term in maps[0])] * b.array[tuple(grid[term] for term in maps[1])]
        along = tuple(range(len(maps[2]), len(order)))
        if product.size > 200_000 or not fits(np.abs(product).sum(along), element):
            return None
        pair = [
            f"{word} = dense<{[each[i] for each in steps.values()]}> : tensor<{len(steps)}xi64>"
            for i, word in enumerate(("strides", "dilations"))
        ]
        out = self.filled([loops[letter] for letter in maps[2]], element, 0)
        attributes = "" if bare else f"{{{', '.join(pair)}}} "
        return self.keep(self.written(name, attributes + self.ins([a, b]), out, ""), product.sum(along))

    def largest(self) -> Value | None:
        """The largest element along the last loop and its place: two results of one operation."""
        value = self.pick()
        if not value.loops or not (LARGEST.get(value.element, 999) > 100):
            return None
        kept, element = value.loops[:-1], value.element
        outs = [self.filled(kept, element, -100), self.filled(kept, "i32", 0)]
        letter = "i" if is_integer(element) else "f"
        body = [
            f"%i = linalg.index {len(kept)} : index",
            "%j = arith.index_cast %i : index to i32",
            f"%g = arith.cmp{letter} {'sgt' if letter == 'i' else 'ogt'}, %a0, %a1 : {element}",
            f"%r = arith.select %g, %a0, %a1 : {element}",
            "%s = arith.select %g, %j, %a2 : i32",
        ]
        made = self.generic(value.loops, [value], outs, body, ["%r", "%s"])
        if value.array.min(initial=0) <= -100:
            return None
        self.keep(made[0], value.array.max(-1))
        return self.keep(made[1], value.array.argmax(-1))

    def named_size(self, size: int) -> str:
        """A new loop of a size that the types say."""
        name = f"e{len(self.sizes)}"
        self.sizes[name] = size
        return name

    def part(self) -> Value | None:
        """Some neighbours along a loop of known size."""
        value = self.pick()
        fitting = [d for d, name in enumerate(value.loops) if name not in self.unknown and self.sizes[name] > 2]
        if not fitting or value.layout or (not self.tensors and self.unknown & set(value.loops)):
            return None
        at = self.draw.choice(fitting)
        less = self.draw.choice((1, 2, self.sizes[value.loops[at]] // 2))
        first, name = self.draw.randint(0, less), self.named_size(self.sizes[value.loops[at]] - less)
        made = replace(value, loops=(*value.loops[:at], name, *value.loops[at + 1 :]))
        if not self.tensors:
            strides = [math.prod(self.shape(value.loops[d + 1 :])) for d in range(len(value.loops))]
            made = replace(made, layout=f", strided<{strides}, offset: {first * strides[at]}>")
        sizes = [self.size(name) if name in self.unknown else str(self.sizes[name]) for name in made.loops]
        firsts = [first if d == at else 0 for d in range(len(sizes))]
        kind, ones = "tensor.extract_slice" if self.tensors else "memref.subview", [1] * len(sizes)
        types = f"{self.type(value)} to {self.type(made)}"
        made = replace(made, name=self.add(f"{kind} {value.name}{firsts} [{', '.join(sizes)}] {ones} : {types}"))
        self.views[made.name] = self.views.get(value.name, value.name)
        return self.keep(made, np.take(value.array, range(first, first + self.sizes[name]), at))

    def merge(self) -> Value | None:
        """Two dimensions as one."""
        value = self.pick()
        if len(value.loops) < 2 or value.layout or self.unknown & set(value.loops):
            return None
        at = self.draw.randrange(len(value.loops) - 1)
        name = self.named_size(math.prod(self.shape(value.loops[at : at + 2])))
        made = replace(value, loops=(*value.loops[:at], name, *value.loops[at + 2 :]))
        groups = [[d] for d in range(len(value.loops))]
        groups[at : at + 2] = [[at, at + 1]]
        kind = f"{self.kind}.collapse_shape"
        types = f"{self.type(value)} into {self.type(made)}"
        made = replace(made, name=self.add(f"{kind} {value.name} {groups} : {types}"))
        self.views[made.name] = self.views.get(value.name, value.name)
        return self.keep(made, value.array.reshape(self.shape(made.loops)))

    def join(self) -> Value | None:
        """Two tensors one after the other along a loop, or one among others."""
        value = self.pick()
        others = [v for v in self.values if v.loops == value.loops and v.element == value.element]
        fitting = [d for d, name in enumerate(value.loops) if name not in self.unknown]
        if not self.tensors or not fitting:
            return None
        at, other = self.draw.choice(fitting), self.draw.choice(others)
        name = self.named_size(2 * self.sizes[value.loops[at]])
        made = replace(value, loops=(*value.loops[:at], name, *value.loops[at + 1 :]))
        types = f"({self.type(value)}, {self.type(other)}) -> {self.type(made)}"
        made = replace(made, name=self.add(f"tensor.concat dim({at}) {value.name}, {other.name} : {types}"))
        return self.keep(made, np.concatenate([value.array, other.array], at))

    def call(self) -> Value | None:
        """A function of its own that adds a value to itself, and is called."""
        value = self.pick()
        if not fits(value.array * 2, value.element) or value.layout:
            return None
        outer, names, self.lines = self.lines, self.names, []
        number, letter = len(self.functions), "i" if is_integer(value.element) else "f"
        inner, kind = replace(value, name="%p"), self.type(value)
        out = replace(value, name="%q")
        self.names = itertools.count()
        made = self.generic(
            value.loops,
            [inner],
            [inner if self.tensors else out],
            [f"%r = arith.add{letter} %a0, %a0 : {value.element}"],
            ["%r"],
        )[0]
        text = "\n".join(self.lines)
        self.lines, self.names = outer, names
        if self.tensors:
            self.functions.append(
                f"func.func private @g{number}(%p: {kind}) -> {kind} {{\n{text}\nreturn {made.name} : {kind}\n}}"
            )
            return self.keep(
                replace(value, name=self.add(f"func.call @g{number}({value.name}) : ({kind}) -> {kind}")),
                value.array * 2,
            )
        self.functions.append(f"func.func private @g{number}(%p: {kind}, %q: {kind}) {{\n{text}\nreturn\n}}")
        to = self.fresh(value.loops, value.element)
        self.lines.append(f"func.call @g{number}({value.name}, {to.name}) : ({kind}, {kind}) -> ()")
        return self.keep(to, value.array * 2)


def outcome(number: int) -> Outcome:
    """Draws, compiles, runs and compares one graph."""
    draw = random.Random(number)
    graph = Graph(draw, np.random.default_rng(number))
    text, outputs = graph.build()
    target = draw.choice(("sm_80", "sm_90a"))
    text = f"// {target}\n{text}"
    arrays = [array for _, array in graph.arguments]
    before = [array.copy() for array in arrays]
    made = [np.full(array.shape, 77, DTYPES[v.element]) for v, array in outputs] if graph.tensors else []
    try:
        compile(text, target, tf32=True, cache=False)(*arrays, *made, device="interp")
    except CompileError as error:
        message = str(error).split("\n")[0]
        return Outcome(number, "refused" if re.match(r"\S+:\d+:\d+: error: ", message) else "wrong", message, text)
    except Exception:
        return Outcome(number, "wrong", traceback.format_exc(), text)
    places = {v.name: array for v, array in graph.arguments}
    results = made if graph.tensors else [places[v.name] for v, _ in outputs]
    for result, (value, array) in zip(results, outputs, strict=True):
        if not np.array_equal(result.astype(np.float64), array):
            share = (result.astype(np.float64) != array).mean()
            return Outcome(number, "wrong", f"{value.name}: {share:.1%} of the elements differ", text)
    if graph.tensors and not all(map(np.array_equal, arrays, before)):
        return Outcome(number, "wrong", "an argument was written", text)
    return Outcome(number, "right", text=text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    options = parser.parse_args()
    if options.only is not None:
        print(outcome(options.only).text)
    numbers = range(options.seed, options.seed + options.count) if options.only is None else [options.only]
    return 0 if report(map(outcome, numbers), refused=options.only is not None) else 1


if __name__ == "__main__":
    sys.exit(main())
