"""Draws small `linalg` programs: elementwise operations, rows and products, with roundings in every place."""

from __future__ import annotations

import random
from collections.abc import Sequence

import ml_dtypes
import numpy as np
import numpy.typing as npt
from program_tree import Array, Body, Elementwise, Index, Product, Program, Reduction, Softmax, Step
from program_values import FORMATS, PREDICATES, WIDTHS, Reals, Values, Whole, rounded

DTYPES = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "f8E4M3FN": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
}

EXTENTS = (1, 2, 3, 5, 7, 9, 13, 17, 20, 31, 33)
FUNCTIONS = ("exp", "exp2", "log", "tanh", "erf", "sqrt", "rsqrt", "absf", "floor", "ceil", "trunc", "roundeven")
BINARY = ("addf", "subf", "mulf", "divf", "maximumf", "minimumf", "maxnumf", "minnumf")
INTEGERS = ("addi", "subi", "muli", "maxsi", "minsi", "maxui", "minui", "andi", "ori", "xori")
BY_CONSTANT = ("shli", "shrsi", "shrui", "divsi", "divui", "remsi", "remui")
RELATIONS = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
TARGETS = ("sm_90a", "sm_90a", "sm_90a", "sm_80", "sm_89", "sm_120a")
KINDS = ("elementwise", "rows", "product")


class Steps:
    """Builds a body: values by number, each with its type."""

    def __init__(self, draw: random.Random, arguments: Sequence[str]) -> None:
        self.draw, self.arguments = draw, tuple(arguments)
        self.types, self.steps = list(arguments), list[Step]()

    def add(self, name: str, type_: str, *operands: int, attribute: str = "", number: float = 0.0) -> int:
        self.steps.append(Step(name, type_, operands, attribute, number))
        self.types.append(type_)
        return len(self.types) - 1

    def constant(self, type_: str, number: float | None = None) -> int:
        if number is None:
            number = self.draw.choice((0.0, 1.0, 0.5, -2.0, 3.0, 0.1, 1e-3, 1000.0, -0.0, self.draw.gauss(0, 2)))
            if self.draw.random() < 0.04:
                number = self.draw.choice((np.inf, -np.inf, np.nan, 65504.0, 1e-7))
        value = float(rounded(np.array(number, np.float64), type_)) if type_ in FORMATS else int(number)
        return self.add("arith.constant", type_, attribute=self.draw.choice(("outside", "body")), number=value)

    def to(self, value: int, type_: str) -> int:
        """A value in another type, by conversions that there are."""
        source = self.types[value]
        if source == type_:
            return value
        if source in WIDTHS and type_ in WIDTHS:
            if WIDTHS[type_] < WIDTHS[source]:
                return self.add("arith.trunci", type_, value)
            return self.add(self.draw.choice(("arith.extsi", "arith.extui")), type_, value)
        if source in WIDTHS:
            if source == "i1":
                value = self.add("arith.extui", "i32", value)
            if type_.startswith("f8"):
                value, type_ = self.to(value, "f32"), type_
                return self.to(value, type_)
            return self.add(self.draw.choice(("arith.sitofp", "arith.uitofp")), type_, value)
        if type_ in WIDTHS:
            if source.startswith("f8"):
                value = self.to(value, "f32")
            return self.add("arith.fptosi" if self.draw.random() < 0.8 else "arith.fptoui", type_, value)
        return self.float_to(value, type_)

    def float_to(self, value: int, type_: str) -> int:
        source = self.types[value]
        a, b = FORMATS[source].precision, FORMATS[type_].precision
        if source.startswith("f8") or type_.startswith("f8") or {source, type_} == {"f16", "bf16"}:
            by_way = "f16" if "f16" in (source, type_) and "bf16" not in (source, type_) else "f32"
            if by_way not in (source, type_):
                return self.to(self.to(value, by_way), type_)
        return self.add("arith.extf" if a < b else "arith.truncf", type_, value)

    def rounding(self, value: int) -> int:
        """A value rounded to a narrower type, and extended again."""
        source = self.types[value]
        narrower = {"f64": ("f32", "f16"), "f32": ("f16", "bf16", "f8E4M3FN", "f8E5M2"), "f16": ("f8E5M2", "f8E4M3FN")}
        types = narrower.get(source, ())
        return self.to(self.to(value, self.draw.choice(types)), source) if types else value

    def values(self, type_: str) -> list[int]:
        return [i for i, t in enumerate(self.types) if t == type_]

    def body(self, result: int) -> Body:
        return Body(self.arguments, tuple(self.steps), result)


class Generator:
    """Draws one program from a seed."""

    def __init__(self, seed: int, kinds: Sequence[str] = KINDS) -> None:
        self.draw = random.Random(seed)
        self.data = np.random.default_rng(seed)
        self.kinds = kinds
        self.program = Program(tensors=self.draw.random() < 0.5, target=self.draw.choice(TARGETS))
        self._names = 0

    def generate(self) -> Program:
        kind = self.draw.choice(self.kinds)
        result = {"elementwise": self.elementwise, "rows": self.rows, "product": self.products}[kind]()
        self.program.outputs.append(result)
        if self.program.target == "sm_80" and "f8" in self.program.text() and self.draw.random() < 0.9:
            self.program.target = "sm_89"
        used = {s for a in self.program.inputs.values() for s in a.sizes}
        if self.draw.random() < 0.25:
            self.program.dynamic = {s for s in sorted(used) if s != "one" and self.draw.random() < 0.6}
        return self.program

    # Arrays

    def size(self, name: str, extents: Sequence[int] = EXTENTS) -> str:
        if name not in self.program.sizes:
            self.program.sizes[name] = self.draw.choice(extents)
        return name

    def fresh(self, type_: str, sizes: Sequence[str]) -> Array:
        self._names += 1
        return Array(f"t{self._names}", type_, tuple(sizes))

    def input(self, type_: str, sizes: Sequence[str], data: str = "") -> Array:
        array = Array(f"x{len(self.program.inputs)}", type_, tuple(sizes))
        self.program.inputs[array.name] = array
        kinds = ("integers", "normal", "normal", "wide", "special", "large", "halfway")
        self.program.data[array.name] = data or self.draw.choice(kinds)
        return array

    def arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """The inputs' elements."""
        return {
            name: _numbers(self.data, array.type, self.program.shape(array), self.program.data[name])
            for name, array in self.program.inputs.items()
        }

    # Bodies

    def computed(self, steps: Steps, value: int, count: int, extra: Sequence[int] = ()) -> int:
        """A value after some drawn steps, of a float type."""
        others = list(extra)
        for _ in range(count):
            value = self.step(steps, value, others)
        return value

    def step(self, steps: Steps, value: int, others: list[int]) -> int:
        draw, type_ = self.draw, steps.types[value]
        if type_ in WIDTHS:
            return self.integer_step(steps, value, others)
        if type_.startswith("f8"):
            return steps.to(value, draw.choice(("f16", "f32")))
        turn = draw.random()
        if others and turn < 0.3:
            other = steps.to(others.pop(0), type_)
            operands = (value, other) if draw.random() < 0.6 else (other, value)
            return steps.add(f"arith.{draw.choice(BINARY)}", type_, *operands)
        if turn < 0.45:
            return steps.rounding(value)
        if turn < 0.6:
            other = steps.constant(type_) if draw.random() < 0.7 else draw.choice(steps.values(type_))
            return steps.add(f"arith.{draw.choice(BINARY)}", type_, value, other)
        if turn < 0.75:
            return self.function(steps, value)
        if turn < 0.87:
            other = draw.choice([*steps.values(type_), steps.constant(type_)])
            predicate = draw.choice(list(PREDICATES))
            condition = steps.add("arith.cmpf", "i1", value, other, attribute=predicate)
            picked = draw.choice(steps.values(type_))
            return steps.add("arith.select", type_, condition, *draw.sample((value, picked), 2))
        if turn < 0.93:
            return steps.to(value, draw.choice([t for t in ("f16", "bf16", "f32") if t != type_]))
        if turn < 0.96:
            integer = steps.to(value, draw.choice(("i8", "i16", "i32")))
            return steps.to(integer, draw.choice(("f32", "f16", "bf16")))
        return steps.rounding(value)

    def function(self, steps: Steps, value: int) -> int:
        type_ = steps.types[value]
        if type_ == "f64":
            name = self.draw.choice(("absf", "sqrt"))
            return steps.add(f"math.{name}", type_, value)
        if self.draw.random() < 0.2:
            return steps.add("arith.negf", type_, value)
        if type_ == "f32" and self.draw.random() < 0.15:
            return steps.add("math.fma", type_, value, self.draw.choice(steps.values(type_)), steps.constant(type_))
        return steps.add(f"math.{self.draw.choice(FUNCTIONS)}", type_, value)

    def integer_step(self, steps: Steps, value: int, others: list[int]) -> int:
        draw, type_ = self.draw, steps.types[value]
        turn = draw.random()
        if turn < 0.25:
            return steps.to(value, draw.choice(("f32", "f16", "bf16")))
        if turn < 0.4:
            return steps.to(value, draw.choice([t for t in ("i8", "i16", "i32") if t != type_]))
        if turn < 0.6:
            name = draw.choice(BY_CONSTANT)
            limit = WIDTHS[type_] - 1 if name.startswith("sh") else 100
            least = 0 if name.startswith("sh") else 1
            return steps.add(f"arith.{name}", type_, value, steps.constant(type_, draw.randint(least, limit)))
        if others and turn < 0.75:
            other = steps.to(others.pop(0), type_)
        else:
            other = steps.constant(type_, draw.randint(-100, 100))
        if turn > 0.9:
            condition = steps.add("arith.cmpi", "i1", value, other, attribute=draw.choice(RELATIONS))
            return steps.add("arith.select", type_, condition, other, value)
        return steps.add(f"arith.{draw.choice(INTEGERS)}", type_, value, other)

    def index_for(self, rank: int, loops: Sequence[str]) -> tuple[Index, tuple[str, ...]]:
        """A map of an operand, with its sizes: all loops, some, in another order, or one place along one."""
        order = list(range(len(loops)))
        if rank < len(loops):
            order = sorted(self.draw.sample(order, rank))
        if self.draw.random() < 0.25:
            self.draw.shuffle(order)
        index: list[int | None] = [*order]
        if index and self.draw.random() < 0.08:
            index[self.draw.randrange(len(index))] = None
        sizes = tuple("one" if i is None else loops[i] for i in index)
        if "one" in sizes:
            self.program.sizes["one"] = 1
        return tuple(index), sizes

    # Programs

    def elementwise(self) -> Array:
        draw = self.draw
        rank = draw.choice((1, 2, 2, 2, 3))
        loops = [self.size(s, EXTENTS if rank < 3 else EXTENTS[:7]) for s in "mnp"[:rank]]
        first = self.input(self.any_type(), loops)
        value = first
        for _ in range(draw.choice((1, 1, 2, 3))):
            value = self.mapped(value, loops)
        return value

    def any_type(self) -> str:
        return self.draw.choice(
            ("f32", "f32", "f32", "f16", "f16", "bf16", "bf16", "f64", "f8E4M3FN", "f8E5M2", "i8", "i16", "i32")
        )

    def mapped(self, value: Array, loops: Sequence[str], *, floats: bool = False) -> Array:
        """An elementwise operation on a value and drawn inputs."""
        draw = self.draw
        inputs: list[Array] = [value]
        maps: list[Index] = [tuple(range(len(loops)))]
        for _ in range(draw.choice((0, 0, 1, 1, 2))):
            index, sizes = self.index_for(draw.randint(1, len(loops)), loops)
            inputs.append(self.input(draw.choice(("f32", "f16", "bf16", "f32", "i8", "f8E4M3FN")), sizes))
            maps.append(index)
        again = value.name not in self.program.inputs and not floats and draw.random() < 0.1
        types = [*(a.type for a in inputs), *([value.type] if again else [])]
        steps = Steps(draw, types)
        extra = list(range(1, len(types)))
        if draw.random() < 0.05:
            at = steps.add("linalg.index", "i32", number=draw.randrange(len(loops)))
            extra.append(at)
        result = self.computed(steps, 0, draw.randint(1, 6), extra)
        if again:
            return self.stored(steps, result, inputs, maps, loops, value)
        return self.stored(steps, result, inputs, maps, loops, None, "" if not floats else "float")

    def stored(
        self,
        steps: Steps,
        result: int,
        inputs: Sequence[Array],
        maps: Sequence[Index],
        loops: Sequence[str],
        old: Array | None,
        kind: str = "",
    ) -> Array:
        type_ = steps.types[result]
        if old is not None:
            type_ = old.type
        elif type_ == "i1":
            type_ = "i32"
        elif self.draw.random() < 0.25:
            choices = ("f16", "bf16", "f32") if kind else ("f16", "bf16", "f32", "f8E4M3FN", "f8E5M2", "i8")
            type_ = self.draw.choice(choices)
        elif kind and type_ not in ("f16", "bf16", "f32"):
            type_ = "f32"
        body = steps.body(steps.to(result, type_))
        out = self.fresh(type_, loops)
        self.program.statements.append(Elementwise(out, tuple(inputs), tuple(maps), body, old))
        return out

    def rows(self) -> Array:
        draw = self.draw
        loops = [self.size("m", EXTENTS[:8]), self.size("n", (1, 2, 3, 7, 17, 33, 40, 65, 100))]
        if draw.random() < 0.2:
            loops = [self.size("b", (1, 2, 3)), *loops]
        value = self.input(draw.choice(("f32", "f32", "f16", "bf16", "f16")), loops)
        style = draw.choice(("softmax", "norm", "quantise", "free", "free", "reduce", "reduce"))
        if draw.random() < 0.35:
            value = self.mapped(value, loops, floats=True)
        match style:
            case "softmax":
                value = self.softmax(value, loops)
            case "norm":
                value = self.norm(value, loops)
            case "quantise":
                value = self.quantise(value, loops)
            case "free":
                for _ in range(draw.choice((1, 1, 2))):
                    value = self.using_rows(value, loops)
            case _:
                row = self.reduce(value, loops, len(loops) - 1)
                return self.mapped(row, loops[:-1], floats=True) if draw.random() < 0.5 else row
        return self.mapped(value, loops, floats=True) if draw.random() < 0.35 else value

    def reduce(self, value: Array, loops: Sequence[str], along: int, by: str = "", deep: bool = True) -> Array:
        """A reduction along one loop of something drawn."""
        draw = self.draw
        by = (
            by or f"arith.{draw.choice(('addf', 'addf', 'addf', 'maximumf', 'maxnumf', 'minimumf', 'minnumf', 'mulf'))}"
        )
        type_ = "f32" if draw.random() < 0.75 else draw.choice(("f16", "bf16"))
        steps = Steps(draw, [value.type])
        named = draw.random() < 0.3
        if named:
            type_ = value.type
        result = 0
        if deep and not named:
            result = self.computed(
                steps, steps.to(0, "f32") if draw.random() < 0.5 else 0, draw.choice((0, 0, 1, 2, 3))
            )
        body = steps.body(steps.to(result, type_))
        identity = {"addf": 0.0, "mulf": 1.0}.get(by[6:], -np.inf if "max" in by else np.inf)
        start = identity if draw.random() < 0.85 else float(draw.choice((1.0, -2.5, 0.0)))
        out = self.fresh(type_, [s for i, s in enumerate(loops) if i != along])
        index = tuple(range(len(loops)))
        self.program.statements.append(Reduction(out, (value,), (index,), tuple(loops), along, body, by, start, named))
        return out

    def combined(self, value: Array, row: Array, loops: Sequence[str], make: str, type_: str = "") -> Array:
        """An elementwise operation on a value and the number of its row."""
        steps = Steps(self.draw, [value.type, row.type])
        work = "f32"
        x, r = steps.to(0, work), steps.to(1, work)
        result = x
        for part in make.split():
            if part == "round":
                result = steps.rounding(result)
            elif part.startswith("math"):
                result = steps.add(part, work, result)
            else:
                result = steps.add(part, work, result, r)
        type_ = type_ or self.draw.choice(("f32", "f32", "f16", "bf16"))
        body = steps.body(steps.to(result, type_))
        index = tuple(range(len(loops)))
        out = self.fresh(type_, loops)
        self.program.statements.append(Elementwise(out, (value, row), (index, index[:-1]), body))
        return out

    def row_wise(self, row: Array, names: str, number: float) -> Array:
        """An elementwise operation on the numbers of rows."""
        steps = Steps(self.draw, [row.type])
        result = steps.to(0, "f32")
        for name in names.split():
            if name.startswith("math"):
                result = steps.add(name, "f32", result)
            elif name == "round":
                result = steps.rounding(result)
            else:
                result = steps.add(name, "f32", result, steps.constant("f32", number))
        out = self.fresh("f32", row.sizes)
        index = tuple(range(len(row.sizes)))
        self.program.statements.append(Elementwise(out, (row,), (index,), steps.body(result)))
        return out

    def softmax(self, value: Array, loops: Sequence[str]) -> Array:
        if self.draw.random() < 0.5:
            out = self.fresh(value.type, loops)
            self.program.statements.append(Softmax(out, value))
            return out
        last = len(loops) - 1
        largest = self.reduce(value, loops, last, "arith.maximumf", deep=False)
        raised = self.combined(value, largest, loops, "arith.subf math.exp")
        total = self.reduce(raised, loops, last, "arith.addf", deep=False)
        return self.combined(raised, total, loops, self.draw.choice(("arith.divf", "arith.divf round")))

    def norm(self, value: Array, loops: Sequence[str]) -> Array:
        draw, last, length = self.draw, len(loops) - 1, float(self.program.sizes[loops[-1]])
        if draw.random() < 0.5:
            mean = self.row_wise(self.reduce(value, loops, last, "arith.addf", deep=False), "arith.divf", length)
            value = self.combined(value, mean, loops, "arith.subf")
        steps = Steps(draw, [value.type])
        wide = steps.to(0, "f32")
        squared = steps.add("arith.mulf", "f32", wide, wide)
        total = self.fresh("f32", loops[:-1])
        index = tuple(range(len(loops)))
        body = steps.body(squared if draw.random() < 0.6 else steps.rounding(squared))
        self.program.statements.append(
            Reduction(total, (value,), (index,), tuple(loops), last, body, "arith.addf", 0.0)
        )
        made = self.row_wise(
            total, draw.choice(("arith.addf math.rsqrt", "arith.mulf arith.addf math.rsqrt")), 1 / length
        )
        return self.combined(value, made, loops, draw.choice(("arith.mulf", "arith.mulf round")))

    def quantise(self, value: Array, loops: Sequence[str]) -> Array:
        """Rows divided by their largest element, rounded to few bits, and multiplied again."""
        steps = Steps(self.draw, [value.type])
        size = steps.add("math.absf", "f32", steps.to(0, "f32"))
        largest = self.fresh("f32", loops[:-1])
        index = tuple(range(len(loops)))
        by = self.draw.choice(("arith.maximumf", "arith.maxnumf"))
        self.program.statements.append(
            Reduction(largest, (value,), (index,), tuple(loops), len(loops) - 1, steps.body(size), by, 0.0)
        )
        scale = self.row_wise(
            largest, self.draw.choice(("arith.divf", "arith.divf arith.maximumf", "arith.divf round")), 448.0
        )
        make = self.draw.choice(("arith.divf", "arith.divf round arith.mulf", "arith.divf math.roundeven arith.mulf"))
        return self.combined(value, scale, loops, make)

    def using_rows(self, value: Array, loops: Sequence[str]) -> Array:
        row = self.reduce(value, loops, len(loops) - 1)
        make = [f"arith.{self.draw.choice(BINARY)}" for _ in range(self.draw.randint(1, 2))]
        if self.draw.random() < 0.5:
            make.insert(self.draw.randrange(len(make) + 1), "round")
        return self.combined(value, row, loops, " ".join(make))

    def products(self) -> Array:
        draw = self.draw
        multiplied, out_type = draw.choice(PRODUCTS)
        m, n, k = self.size("m"), self.size("n"), self.size("k", (1, 2, 3, 7, 16, 17, 33, 40, 64, 70))
        if multiplied.startswith("f8") and self.program.target == "sm_80":
            self.program.target = "sm_90a"
        batch = [self.size("b", (1, 2, 3))] if draw.random() < 0.2 else []
        loops = [*batch, m, n, k]
        at = len(batch)
        outer = tuple(range(at))
        index_a: Index = (*outer, at, at + 2)
        index_b: Index = (*outer, at + 2, at + 1)
        generic = draw.random() < 0.5
        if generic and draw.random() < 0.4:
            index_a = (*outer, at + 2, at)
        if generic and draw.random() < 0.4:
            index_b = (*outer, at + 1, at + 2)
        data = draw.choice(("integers", "integers", "normal", "halfway", "special", "large"))
        a, b = (self.factor(multiplied, [loops[i] for i in index], data) for index in (index_a, index_b))
        body, out_type = self.multiplication(a.type, b.type, out_type, generic)
        out = self.fresh(out_type, [*batch, m, n])
        c, start = None, 0.0
        if draw.random() < 0.2:
            c = self.input(out_type, out.sizes, data)
        elif draw.random() < 0.1:
            start = 3.0
        named = "" if generic else "batch_matmul" if batch else "matmul"
        maps = (index_a, index_b, (*outer, at, at + 1))
        self.program.statements.append(Product(out, a, b, maps, tuple(loops), body, start, c, named))
        value = out
        for _ in range(draw.choice((0, 1, 1, 2))):
            value = self.mapped(value, out.sizes)
        return value

    def factor(self, type_: str, sizes: Sequence[str], data: str) -> Array:
        """A factor: an input, or what an operation on one rounds to the type."""
        draw = self.draw
        if type_ in ("i8", "f64", "f32") or draw.random() < 0.65:
            return self.input(type_, sizes, data)
        source = self.input(draw.choice(("f32", "f32", "f16", "bf16")), sizes, data)
        steps = Steps(draw, [source.type])
        result = steps.to(self.computed(steps, 0, draw.choice((0, 0, 1, 2))), type_)
        out = self.fresh(type_, sizes)
        index = tuple(range(len(sizes)))
        self.program.statements.append(Elementwise(out, (source,), (index,), steps.body(result)))
        return out

    def multiplication(self, a: str, b: str, out: str, generic: bool) -> tuple[Body, str]:
        """The body of a product up to the multiplication, with conversions before or after it."""
        draw, steps = self.draw, Steps(self.draw, [a, b])
        if out == "i32":
            wide = [steps.add("arith.extsi", out, i) for i in (0, 1)]
            return steps.body(steps.add("arith.muli", out, *wide)), out
        if generic and a in ("f16", "bf16", "f32") and draw.random() < 0.3:
            narrow = a
            x, y = 0, 1
            if a == "f32" and draw.random() < 0.8:
                narrow = draw.choice(("f16", "bf16"))
                x, y = steps.to(0, narrow), steps.to(1, narrow)
                if draw.random() < 0.5:
                    x, y = steps.to(x, "f32"), steps.to(y, "f32")
            made = steps.add("arith.mulf", steps.types[x], x, y)
            return steps.body(steps.to(made, "f32")), "f32"
        wide = [steps.to(i, out) if a != out else i for i in (0, 1)]
        return steps.body(steps.add("arith.mulf", out, *wide)), out


PRODUCTS = (
    ("f16", "f32"), ("f16", "f32"), ("bf16", "f32"), ("bf16", "f32"), ("f16", "f16"), ("bf16", "bf16"), ("f32", "f32"),
    ("f64", "f64"), ("i8", "i32"), ("f8E4M3FN", "f32"), ("f8E5M2", "f32"), ("f8E4M3FN", "f16"),
)  # fmt: skip
"""The types of A and B, and of C."""


def values_of(array: npt.NDArray[np.generic], type_: str) -> Values:
    """An array's elements as sets of one number each."""
    return Whole.points(type_, array) if type_ in WIDTHS else Reals.points(type_, array.astype(np.float64))


def _numbers(random_: np.random.Generator, type_: str, shape: tuple[int, ...], kind: str) -> npt.NDArray[np.generic]:
    """Elements of a type: of one kind, some of them special."""
    if type_ in WIDTHS:
        limits = np.iinfo(DTYPES[type_])
        low, high = (-8, 9) if kind == "integers" else (limits.min, limits.max + 1)
        return random_.integers(low, high, shape).astype(DTYPES[type_])
    form = FORMATS[type_]
    normal = random_.standard_normal(shape)
    match kind:
        case "integers":
            values = np.rint(normal * 3)
        case "wide":
            top = np.log2(form.largest)
            values = np.exp2(random_.uniform(form.least - form.precision, top, shape)) * np.sign(normal)
        case "large":
            values = np.where(random_.random(shape) < 0.5, normal * 1000, normal * 4e4)
        case "halfway":
            values = np.rint(normal * 4) + random_.integers(-3, 4, shape) * 2.0 ** -float(random_.integers(2, 13))
        case _:
            values = normal
    if kind == "special":
        special = np.array(
            [np.inf, -np.inf, np.nan, -0.0, 0.0, form.largest, 2.0 ** (form.least - form.precision + 1), 65519, 1e-6]
        )
        at = random_.random(shape) < random_.choice([0.02, 0.1])
        values = np.where(at, random_.choice(special, shape), values)
    with np.errstate(all="ignore"):
        return rounded(np.clip(values, -form.largest, form.largest) if kind != "special" else values, type_).astype(
            DTYPES[type_]
        )
