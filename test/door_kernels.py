"""Kernels of `door_programs.py` in `arith` with `scf` or `cf`, and in `llvm`, and what numpy makes of them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from door_values import (
    DTYPES,
    FLOATS,
    INTEGERS,
    REALS,
    UNARY,
    WIDTH,
    Array,
    Function,
    UndefinedError,
    compared,
    converted,
    same_bits,
    words,
)  # fmt: skip

from warploom.runtime import load_ptx

Env = dict[str, Array]

THREADS = 64


@dataclass(frozen=True)
class Value:
    name: str
    type: str


@dataclass
class Block:
    """Lines of text, and what they make of the values so far, for the threads that execute them."""

    lines: list[str] = field(default_factory=list[str])
    steps: list[Callable[[Env, Array], None]] = field(default_factory=list[Callable[[Env, Array], None]])
    values: list[Value] = field(default_factory=list[Value])

    def run(self, env: Env, mask: Array) -> None:
        for step in self.steps:
            step(env, mask)


class Kernel:
    """A kernel that is drawn operation by operation; `env` has the numbers of each value by thread."""

    targets = ("sm_80", "sm_90a")

    def __init__(self, kind: str, number: int) -> None:
        self.kind, self.draw, self.data = kind, random.Random(number), np.random.default_rng(number)
        self.llvm = kind == "llvm"
        self.names, self.env = itertools.count(), Env()
        self.arguments: list[tuple[str, str, Array]] = []
        self.results: list[tuple[str, Array]] = []
        self.shared: list[tuple[str, str]] = []
        self.mask = np.ones(THREADS, np.bool_)

    def name(self, letter: str = "v") -> str:
        return f"{letter}{next(self.names)}"

    def numbers(self, type: str, count: int = THREADS) -> Array:
        """Numbers of all sizes, and special ones."""
        dtype = DTYPES[type]
        if type == "i1":
            return self.data.integers(0, 2, count).astype(np.bool_)
        if type in FLOATS:
            small = self.data.integers(-40, 41, count) / self.data.choice([1.0, 1.0, 2.0, 8.0], count)
            wide = self.data.standard_normal(count) * 2.0 ** self.data.integers(-30, 31, count)
            special = self.data.choice([0.0, -0.0, np.inf, -np.inf, np.nan, 6e-8, -1e-5, 1e-40, 65504.0, 3e38], count)
            pick = self.data.choice(3, count, p=[0.6, 0.3, 0.1])
            with np.errstate(over="ignore"):
                return np.choose(pick, [small, wide, special]).astype(dtype)
        bits = WIDTH[type]
        any_ = self.data.integers(-(1 << bits - 1), (1 << bits - 1) - 1, count, np.int64, endpoint=True)
        ends = [0, 1, -1, 2, -2, (1 << bits - 1) - 1, -(1 << bits - 1), 7, bits - 1]
        pick = self.data.choice(3, count, p=[0.4, 0.4, 0.2])
        return np.choose(pick, [self.data.integers(-9, 10, count), any_, self.data.choice(ends, count)]).astype(dtype)

    # Operations

    def place(self, block: Block, lines: Sequence[str], step: Callable[[Env, Array], None], *made: Value) -> None:
        """Adds what some lines do, unless it is undefined."""
        step(self.env, self.mask)
        block.lines += lines
        block.steps.append(step)
        block.values += made

    def operation(self, block: Block, text: str, type: str, function: Function, *operands: Value) -> Value:
        """Adds an operation with one result."""
        value = Value(self.name(), type)

        def step(env: Env, mask: Array) -> None:
            arrays = [env[o.name] for o in operands]
            with np.errstate(all="ignore"):
                live = function(*(a[mask] for a in arrays)) if mask.any() else np.zeros(0, DTYPES[type])
            made = np.zeros((THREADS, *live.shape[1:]), live.dtype)
            made[mask] = live
            env[value.name] = made

        self.place(block, [f"%{value.name} = {text}"], step, value)
        return value

    def constant(self, block: Block, type: str) -> Value:
        number, value = self.numbers(type, 1)[0], Value(self.name(), type)
        if type == "i1":
            text = "true" if number else "false"
        elif type in FLOATS:
            bits = int(np.asarray(number).view(f"u{WIDTH[type] // 8}"))
            text = f"0x{bits:0{WIDTH[type] // 4}X} : {type}"
        else:
            text = f"{number} : {type}"
        text = f"llvm.mlir.constant({text}) : {type}" if self.llvm else f"arith.constant {text}"
        made = np.full(THREADS, number, DTYPES[type])
        self.place(block, [f"%{value.name} = {text}"], lambda env, mask: env.update({value.name: made}), value)
        return value

    def any(self, block: Block, type: str) -> Value:
        """A value of a type: one that is there, or else converted or new."""
        fitting = [value for value in block.values if value.type == type]
        if fitting and self.draw.random() < 0.8:
            return self.draw.choice(fitting[-4:] if self.draw.random() < 0.5 else fitting)
        return self.constant(block, type) if fitting or self.draw.random() < 0.5 else self.convert(block, type)

    def spelled(self, arith: str, llvm: str, types: str, *operands: Value, word: str = "") -> str:
        name = f"llvm.{llvm}" if self.llvm else arith
        names = ", ".join(f"%{o.name}" for o in operands)
        if not self.llvm:
            return f"{name} {word}{names} : {types}"
        if "intr" in llvm:
            kinds = ", ".join(o.type for o in operands)
            return f"{name}({names}) : ({kinds}) -> {types}"
        return f"{name} {word}{names} : {types}"

    def integers(self, block: Block) -> Value:
        type = self.draw.choice(("i8", "i16", "i32", "i32", "i64"))
        name = self.draw.choice([name for name, (llvm, _) in INTEGERS.items() if llvm or not self.llvm])
        llvm, function = INTEGERS[name]
        operands = self.any(block, type), self.any(block, type)
        if name.startswith("sh") and self.draw.random() < 0.7:
            least = self.constant(block, type)
            while not 0 <= int(self.env[least.name][0]) < WIDTH[type]:
                least = self.constant(block, type)
            operands = operands[0], least
        return self.operation(block, self.spelled(f"arith.{name}", llvm, type, *operands), type, function, *operands)

    def conditions(self, block: Block) -> Value:
        name, type = self.draw.choice(("and", "or", "xor")), "i1"
        operands = self.any(block, type), self.any(block, type)
        function = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}[name]
        return self.operation(block, self.spelled(f"arith.{name}i", name, type, *operands), type, function, *operands)

    def reals(self, block: Block) -> Value:
        type = self.draw.choice(("f16", "f32", "f64") if self.llvm else FLOATS)
        name = self.draw.choice([name for name, (llvm, _) in REALS.items() if llvm or not self.llvm])
        if (
            self.llvm
            and type in ("f16", "f64")
            and name in ("arith.divf", "math.sqrt", "arith.maximumf", "arith.minimumf")
        ):
            type = "f32"
        llvm, function = REALS[name]
        operands = [self.any(block, type) for _ in range(1 if name in UNARY else 2)]
        return self.operation(block, self.spelled(name, llvm, type, *operands), type, function, *operands)

    def compare(self, block: Block) -> Value:
        real = self.draw.random() < 0.4
        type = (
            self.draw.choice(("f16", "f32", "f64") if self.llvm else FLOATS)
            if real
            else self.draw.choice(("i8", "i16", "i32", "i64"))
        )
        orders = ("eq", "ne", "gt", "ge", "lt", "le")
        words_ = (
            [*(f"{c}{o}" for c in "ou" for o in orders), "ord", "uno"]
            if real
            else ["eq", "ne", *(f"{c}{o}" for c in "su" for o in orders[2:])]
        )
        word = self.draw.choice(words_)
        operands = self.any(block, type), self.any(block, type)
        letter = "f" if real else "i"
        quoted = f'"{word}" ' if self.llvm else f"{word}, "
        text = self.spelled(f"arith.cmp{letter}", f"{letter}cmp", type, *operands, word=quoted)
        return self.operation(block, text, "i1", compared(word, real), *operands)

    def select(self, block: Block) -> Value:
        type = self.draw.choice(block.values).type
        operands = self.any(block, "i1"), self.any(block, type), self.any(block, type)
        names = ", ".join(f"%{o.name}" for o in operands)
        text = f"llvm.select {names} : i1, {type}" if self.llvm else f"arith.select {names} : {type}"
        return self.operation(block, text, type, np.where, *operands)

    def convert(self, block: Block, to: str = "") -> Value:
        to = to or self.draw.choice([t for t in DTYPES if t != "index"])
        if to == "i1":
            return self.compare(block)
        sources = [v for v in block.values if v.type != to and v.type in DTYPES]
        sources = [v for v in sources if not (v.type in FLOATS and to in FLOATS and WIDTH[v.type] == WIDTH[to])]
        if not sources:
            return self.constant(block, to)
        value = self.draw.choice(sources)
        names, function = converted(value.type, to, self.draw.random() < 0.5)
        arith, llvm = names.split()
        text = f"{'llvm.' + llvm if self.llvm else 'arith.' + arith} %{value.name} : {value.type} to {to}"
        return self.operation(block, text, to, function, value)

    def bitcast(self, block: Block) -> Value:
        pairs = {"i16": "f16", "i32": "f32", "i64": "f64"}
        source, to = self.draw.choice([*pairs.items(), *((b, a) for a, b in pairs.items())])
        value, dialect = self.any(block, source), "llvm" if self.llvm else "arith"
        text = f"{dialect}.bitcast %{value.name} : {source} to {to}"
        return self.operation(block, text, to, same_bits(to), value)

    # What threads do together

    def shuffle(self, block: Block) -> None:
        type, mode = self.draw.choice(("i32", "f32")), self.draw.choice(("xor", "up", "down", "idx"))
        width = self.draw.choice((4, 8, 16, 32, 32))
        offset, value = self.draw.randrange(width), self.any(block, type)
        lane = np.arange(THREADS)
        first, own = lane // width * width, lane % width
        place = {"xor": own ^ offset, "up": own - offset, "down": own + offset, "idx": 0 * own + offset}[mode]
        inside = (place >= 0) & (place < width)
        result, valid = Value(self.name(), type), Value(self.name(), "i1")
        k, w = self.name("k"), self.name("k")
        if self.llvm:
            kept, clamp = (32 - width) << 8 | (0 if mode == "up" else 31), {"xor": "bfly"}.get(mode, mode)
            kind = f"!llvm.struct<({type}, i1)>"
            lines = [
                f"%{k} = llvm.mlir.constant({offset} : i32) : i32",
                f"%{w} = llvm.mlir.constant({kept} : i32) : i32",
                f"%{k}m = llvm.mlir.constant(-1 : i32) : i32",
                f"%{k}s = nvvm.shfl.sync {clamp} %{k}m, %{value.name}, %{k}, %{w} {{return_value_and_is_valid}} : "
                f"{type} -> {kind}",
                f"%{result.name} = llvm.extractvalue %{k}s[0] : {kind}",
                f"%{valid.name} = llvm.extractvalue %{k}s[1] : {kind}",
            ]
        else:
            lines = [
                f"%{k} = arith.constant {offset} : i32",
                f"%{w} = arith.constant {width} : i32",
                f"%{result.name}, %{valid.name} = gpu.shuffle {mode} %{value.name}, %{k}, %{w} : {type}",
            ]

        def step(env: Env, mask: Array) -> None:
            array = env[value.name]
            env[result.name] = np.where(inside, array[np.where(inside, first + place, lane)], array)
            env[valid.name] = inside

        self.place(block, lines, step, result, valid)

    def reduce(self, block: Block) -> None:
        """Numbers of some lanes, or of all threads, in the order of operations that the compiler takes."""
        everyone = self.draw.random() < 0.4
        type = self.draw.choice(("i32", "f32", "i64", "f16", "bf16", "f64", "i16") if everyone else ("i32", "f32"))
        real = type in FLOATS
        word = self.draw.choice(
            (
                "add",
                "mul",
                *(
                    ("minimumf", "maximumf", "minnumf", "maxnumf")
                    if real
                    else ("minsi", "maxsi", "minui", "maxui", "and", "or", "xor")
                ),
            )
        )
        named = {"and": "andi", "or": "ori", "xor": "xori"}.get(
            word, word + ("f" if real else "i") if word in ("add", "mul") else word
        )
        function = REALS[f"arith.{named}"][1] if real else INTEGERS[named][1]
        value, result = self.any(block, type), Value(self.name(), type)
        size = self.draw.choice((2, 4, 8, 16, 32))
        stride = self.draw.choice([n for n in (1, 2, 4, 8, 16) if n * size <= 32])
        cluster = f" cluster(size = {size}, stride = {stride})" if stride > 1 or size < 32 else ""
        name = "all_reduce" if everyone else "subgroup_reduce"
        text = f"gpu.{name} {word} %{value.name}"
        text += f" uniform {{}} : ({type}) -> {type}" if everyone else f"{cluster} : ({type}) -> {type}"

        def step(env: Env, mask: Array) -> None:
            array, lane = env[value.name].copy(), np.arange(THREADS)
            with np.errstate(all="ignore"):
                if everyone:
                    while len(array) > 1:
                        half = len(array) // 2
                        array = function(array[:half], array[half:])
                    array = np.repeat(array, THREADS)
                distance = stride
                while not everyone and distance < size * stride:
                    array = function(array, array[lane ^ distance])
                    distance *= 2
            env[result.name] = array

        self.place(block, [f"%{result.name} = {text}"], step, result)

    def exchange(self, block: Block) -> None:
        """Through memory of the CTA."""
        type = self.draw.choice([t for t in DTYPES if t not in ("index", "i1")])
        value, result, place = self.any(block, type), Value(self.name(), type), self.draw.randrange(THREADS)
        memory, k, at = (self.name(c) for c in "wka")
        self.shared.append((memory, type))
        kind = f"memref<{THREADS}x{type}, #gpu.address_space<workgroup>>"
        lines = [
            f"memref.store %{value.name}, %{memory}[%t] : {kind}",
            "gpu.barrier",
            f"%{k} = arith.constant {place} : index",
            f"%{at} = arith.xori %t, %{k} : index",
            f"%{result.name} = memref.load %{memory}[%{at}] : {kind}",
        ]
        self.place(
            block, lines, lambda env, _: env.update({result.name: env[value.name][np.arange(THREADS) ^ place]}), result
        )

    # Control flow

    def inner(self, block: Block, depth: int, mask: Array, *more: Value) -> Block:
        """A block that sees the values of the one around it, drawn for the threads that come to it."""
        made, around = Block(values=[*block.values, *more]), self.mask
        self.mask = mask
        self.fill(made, self.draw.randint(1, 4), depth + 1)
        self.mask = around
        return made

    def steps(self, depth: int) -> list[Callable[[Block], object]]:
        """What a block may have; threads do things together where all of them are."""
        every = [
            *[self.integers] * 4, *[self.reals] * 4, self.compare, self.conditions, self.select, *[self.convert] * 2,
            self.bitcast,
        ]  # fmt: skip
        if depth == 0:
            every += [self.shuffle] if self.llvm else [self.shuffle, self.reduce, self.exchange]
        return [*every, *([partial(self.branch, depth=depth), partial(self.loop, depth=depth)] if depth < 2 else [])]

    def fill(self, block: Block, count: int, depth: int = 0) -> None:
        for _ in range(count):
            kept = len(block.lines), len(block.steps), len(block.values)
            try:
                self.draw.choice(self.steps(depth))(block)
            except UndefinedError:
                del block.lines[kept[0] :], block.steps[kept[1] :], block.values[kept[2] :]

    def go(self, to: str, *values: Value) -> str:
        passed = f"({', '.join('%' + v.name for v in values)} : {', '.join(v.type for v in values)})" if values else ""
        return f"{'llvm' if self.llvm else 'cf'}.br ^{to}{passed}"

    def go_if(self, condition: str, yes: str, no: str) -> str:
        return f"{'llvm' if self.llvm else 'cf'}.cond_br %{condition}, ^{yes}, ^{no}"

    def branch(self, block: Block, depth: int) -> None:
        condition = self.any(block, "i1")
        holds = self.env[condition.name]
        one = self.inner(block, depth, self.mask & holds)
        other = self.inner(block, depth, self.mask & ~holds)
        common = [v.type for v in one.values if v.type in {w.type for w in other.values}]
        types = self.draw.sample(common, min(len(common), self.draw.choice((0, 1, 1, 2))))
        ends = [[self.draw.choice([v for v in b.values if v.type == t][-2:]) for t in types] for b in (one, other)]
        made = [Value(self.name(), t) for t in types]
        if self.kind == "scf":
            ending = [
                [f"scf.yield {', '.join('%' + v.name for v in e)} : {', '.join(types)}"] if e else [] for e in ends
            ]
            start = f"{', '.join('%' + v.name for v in made)} = " if made else ""
            arrow = f"-> ({', '.join(types)}) " if types else ""
            head = f"{start}scf.if %{condition.name} {arrow}{{"
            lines = [head, *one.lines, *ending[0], "} else {", *other.lines, *ending[1], "}"]
        else:
            yes, no, met = (self.name("b") for _ in range(3))
            given = f"({', '.join(f'%{v.name} : {v.type}' for v in made)})" if made else ""
            lines = [
                self.go_if(condition.name, yes, no),
                f"^{yes}:",
                *one.lines,
                self.go(met, *ends[0]),
                f"^{no}:",
                *other.lines,
                self.go(met, *ends[1]),
                f"^{met}{given}:",
            ]

        def step(env: Env, mask: Array) -> None:
            taken = env[condition.name]
            one.run(env, mask & taken)
            other.run(env, mask & ~taken)
            for value, a, b in zip(made, *ends, strict=True):
                env[value.name] = np.where(taken, env[a.name], env[b.name])

        self.place(block, lines, step, *made)

    def loop(self, block: Block, depth: int) -> None:
        """Carries values for a number of turns, which may differ by thread."""
        turns = Value(self.name("n"), "i32")
        source = self.any(block, "i32")
        bound = self.draw.choice((1, 3, 4))
        self.env[turns.name] = self.env[source.name] & bound
        carried = self.draw.sample(block.values, min(len(block.values), self.draw.choice((1, 2))))
        counter, made = Value(self.name("i"), "i32"), [Value(self.name(), v.type) for v in carried]
        results = made if self.kind != "scf" else [Value(self.name(), v.type) for v in carried]
        for value, start in zip(made, carried, strict=True):
            self.env[value.name] = self.env[start.name]
        self.env[counter.name] = np.zeros(THREADS, np.int32)
        body = self.inner(block, depth, self.mask & (self.env[turns.name] > 0), counter, *made)
        ends = [self.draw.choice([v for v in body.values if v.type == value.type][-3:]) for value in made]
        dialect, constant = (
            ("llvm", "llvm.mlir.constant({} : i32) : i32") if self.llvm else ("arith", "arith.constant {} : i32")
        )
        zero, one, most = (self.name("k") for _ in range(3))
        prelude = [f"%{k} = {constant.format(n)}" for k, n in ((zero, 0), (one, 1), (most, bound))]
        prelude.append(f"%{turns.name} = {dialect}.and{'' if self.llvm else 'i'} %{source.name}, %{most} : i32")
        if self.kind == "scf":
            types, left = ", ".join(v.type for v in made), ", ".join("%" + v.name for v in results)
            start = ", ".join(f"%{v.name} = %{s.name}" for v, s in zip(made, carried, strict=True))
            head = f"{left} = scf.for %{counter.name} = %{zero} to %{turns.name} step %{one} iter_args({start})"
            end = f"scf.yield {', '.join('%' + v.name for v in ends)} : {types}"
            lines = [*prelude, f"{head} -> ({types}) : i32 {{", *body.lines, end, "}"]
        else:
            head, inside, out, more, following = (self.name("b") for _ in range(5))
            given = ", ".join(f"%{v.name} : {v.type}" for v in (counter, *made))
            less = (
                f'llvm.icmp "slt" %{counter.name}, %{turns.name}'
                if self.llvm
                else (f"arith.cmpi slt, %{counter.name}, %{turns.name}")
            )
            add = f"%{following} = {dialect}.add{'' if self.llvm else 'i'} %{counter.name}, %{one} : i32"
            lines = [
                *prelude,
                self.go(head, Value(zero, "i32"), *carried),
                f"^{head}({given}):",
                f"%{more} = {less} : i32",
                self.go_if(more, inside, out),
                f"^{inside}:",
                *body.lines,
                add,
                self.go(head, Value(following, "i32"), *ends),
                f"^{out}:",
            ]

        def step(env: Env, mask: Array) -> None:
            left = env[turns.name] = env[source.name] & bound
            now = [env[v.name].copy() for v in carried]
            for turn in range(bound + 1):
                live = mask & (left > turn)
                env[counter.name] = np.full(THREADS, turn, np.int32)
                env.update({v.name: array.copy() for v, array in zip(made, now, strict=True)})
                body.run(env, live)
                now = [np.where(live, env[v.name], array) for v, array in zip(ends, now, strict=True)]
            env.update({v.name: array for v, array in zip(results, now, strict=True)})
            env[counter.name] = left if self.kind != "scf" else env[counter.name]

        self.place(block, lines, step, *results)

    # The whole

    def begin(self, block: Block) -> None:
        """What a kernel begins with."""

    def run(self, ptx: str) -> str:
        """What is wrong with the results of a kernel; "" if they are right."""
        results = [np.full(len(array), 77, array.dtype) for _, array in self.results]
        inputs = [array.copy() for *_, array in self.arguments]
        load_ptx(ptx).launch(
            "k", grid=(1, 1, 1), block=(THREADS, 1, 1), args=[*inputs, *results], device="interp", checks="all"
        )
        for at, (result, (_, expected)) in enumerate(zip(results, self.results, strict=True)):
            differ = np.flatnonzero(words(result) != words(expected))
            if differ.size:
                one = differ[0]
                return f"y{at}, {differ.size} threads: {result[one]} for {expected[one]} in thread {one}"
        return ""

    def build(self) -> str:
        block, thread = Block(), "%t"
        types = self.draw.sample([t for t in DTYPES if t not in ("index", "i1")], self.draw.randint(2, 5))
        if "i32" not in types:
            types.append("i32")
        for number, type in enumerate(types):
            self.arguments.append((f"x{number}", type, self.numbers(type)))
            value = Value(self.name(), type)
            self.env[value.name] = self.arguments[-1][2]
            block.lines += self.access(f"x{number}", type, value.name, load=True)
            block.values.append(value)
        self.begin(block)
        self.fill(block, self.draw.randint(4, 14))
        stored = [v for v in block.values[len(types) :] if v.type != "i1"][-6:] or block.values[-1:]
        for number, value in enumerate(stored):
            self.results.append((value.type, self.env[value.name].reshape(-1)))
            block.lines += self.access(f"y{number}", value.type, value.name, load=False)
        names = [
            *((name, type, len(data)) for name, type, data in self.arguments),
            *(
                (f"y{i}", v.type.split("x")[-1].rstrip(">") if "<" in v.type else v.type, self.env[v.name].size)
                for i, v in enumerate(stored)
            ),
        ]
        body = "\n    ".join(block.lines)
        if self.llvm:
            given = ", ".join(f"%{name}: !llvm.ptr<1>" for name, *_ in names)
            return (
                f"gpu.module @m {{\n  llvm.func @k({given}) attributes {{nvvm.kernel, nvvm.reqntid = "
                f"array<i32: {THREADS}, 1, 1>}} {{\n    {thread} = nvvm.read.ptx.sreg.tid.x : i32\n    {body}\n"
                "    llvm.return\n  }\n}"
            )
        given = ", ".join(f"%{name}: memref<{size}x{type}>" for name, type, size in names)
        shared = ", ".join(
            f"%{name} : memref<{THREADS}x{type}, #gpu.address_space<workgroup>>" for name, type in self.shared
        )
        shared = f" workgroup({shared})" if shared else ""
        return (
            f"gpu.module @m {{\n  gpu.func @k({given}){shared} kernel attributes {{known_block_size = "
            f"array<i32: {THREADS}, 1, 1>}} {{\n    {thread} = gpu.thread_id x\n    {body}\n"
            "    gpu.return\n  }\n}"
        )

    def access(self, memory: str, type: str, value: str, *, load: bool) -> list[str]:
        if not self.llvm:
            kind = f"memref<{THREADS}x{type}>"
            return [
                f"%{value} = memref.load %{memory}[%t] : {kind}"
                if load
                else f"memref.store %{value}, %{memory}[%t] : {kind}"
            ]
        place = self.name("p")
        made = f"%{place} = llvm.getelementptr %{memory}[%t] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, {type}"
        move = (
            f"%{value} = llvm.load %{place} : !llvm.ptr<1> -> {type}"
            if load
            else (f"llvm.store %{value}, %{place} : {type}, !llvm.ptr<1>")
        )
        return [made, move]
