"""Small `linalg` programs as data, and their text."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

Index = tuple[int | None, ...]
"""The loop along each dimension of an array; None where the index is 0."""


@dataclass(frozen=True)
class Array:
    """An array of elements of a type, with the names of its sizes."""

    name: str
    type: str
    sizes: tuple[str, ...]


@dataclass(frozen=True)
class Step:
    """An operation of a body. `operands` count the arguments first, then the steps.

    `attribute` is the predicate of a comparison, and `number` the value of a constant or the loop of an index.
    """

    name: str
    type: str
    operands: tuple[int, ...] = ()
    attribute: str = ""
    number: float = 0.0


@dataclass(frozen=True)
class Body:
    """What is computed of one element of each argument: `result` counts as the operands of steps do."""

    arguments: tuple[str, ...]
    steps: tuple[Step, ...]
    result: int

    @property
    def type(self) -> str:
        """The type of the result."""
        return self.types[self.result]

    @property
    def types(self) -> list[str]:
        """The types of the arguments and of the steps."""
        return [*self.arguments, *(s.type for s in self.steps)]


@dataclass(frozen=True)
class Elementwise:
    """`out` = the body of the inputs; with `old`, of an array's old element too, which is the last argument."""

    out: Array
    inputs: tuple[Array, ...]
    maps: tuple[Index, ...]
    body: Body
    old: Array | None = None


@dataclass(frozen=True)
class Reduction:
    """`out` = `start`, and the body of the inputs taken together by `by` along one of the loops."""

    out: Array
    inputs: tuple[Array, ...]
    maps: tuple[Index, ...]
    loops: tuple[str, ...]
    along: int
    body: Body
    by: str
    start: float
    named: bool = False


@dataclass(frozen=True)
class Softmax:
    """`out` = `linalg.softmax` of the input along its last dimension."""

    out: Array
    input: Array


@dataclass(frozen=True)
class Product:
    """`out` = a start, and the sum of the body of A and B. `start` is a number, or else `c` is the array to begin with.

    `maps` are those of A, B and C; `named` the operation, or "" for a `linalg.generic`.
    """

    out: Array
    a: Array
    b: Array
    maps: tuple[Index, Index, Index]
    loops: tuple[str, ...]
    body: Body
    start: float = 0.0
    c: Array | None = None
    named: str = ""


Statement = Elementwise | Reduction | Softmax | Product


@dataclass
class Program:
    """Statements on arrays. `data` says which numbers an input has."""

    statements: list[Statement] = field(default_factory=list)
    inputs: dict[str, Array] = field(default_factory=dict)
    data: dict[str, str] = field(default_factory=dict)
    outputs: list[Array] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    dynamic: set[str] = field(default_factory=set)
    tensors: bool = False
    target: str = "sm_90a"

    @property
    def tf32(self) -> bool:
        return any(isinstance(s, Product) and s.a.type == "f32" for s in self.statements)

    def shape(self, array: Array) -> tuple[int, ...]:
        return tuple(self.sizes[s] for s in array.sizes)

    def memory(self, array: Array) -> str:
        """The name of the argument or buffer that an array lies in: in memory, what is updated stays where it is."""
        for statement in self.statements:
            before = _updated(statement)
            if statement.out == array and before is not None:
                return self.memory(before)
        return array.name

    def written(self) -> dict[str, Array]:
        """The arguments that results in memory are written to, by name, but for inputs that are updated."""
        memories = ((self.memory(a), a) for a in self.outputs)
        return {name: array for name, array in memories if name not in self.inputs}

    def text(self) -> str:
        """The program as MLIR."""
        return "\n".join(_Printer(self).lines()) + "\n"


def _updated(statement: Statement) -> Array | None:
    if isinstance(statement, Elementwise):
        return statement.old
    return statement.c if isinstance(statement, Product) else None


def constant(number: float, type_: str) -> str:
    """A number as MLIR writes it."""
    if type_.startswith("i"):
        return "true" if type_ == "i1" and number else "false" if type_ == "i1" else str(int(number))
    if np.isfinite(number):
        return f"{number:.17e}"
    if type_ in ("f32", "f64"):
        return "0x" + struct.pack(">f" if type_ == "f32" else ">d", number).hex().upper()
    word = np.array(number, np.float16 if type_ == "f16" else ml_dtypes.bfloat16).view(np.uint16)
    return f"0x{int(word):04X}"


class _Printer:
    """Writes a program. `_values` has the name of each array where it is now."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.kind = "tensor" if program.tensors else "memref"
        self._count = 0

    def lines(self) -> Iterator[str]:
        program = self.program
        inputs = [f"%{a.name}: {self.type(a)}" for a in program.inputs.values()]
        if program.tensors:
            results = ", ".join(self.type(a) for a in program.outputs)
            yield f"func.func @f({', '.join(inputs)}) -> ({results}) {{"
        else:
            own = [f"%{name}: {self.type(a)}" for name, a in program.written().items()]
            yield f"func.func @f({', '.join([*inputs, *own])}) {{"
        for size in sorted(program.dynamic):
            array, place = next((a, i) for a in program.inputs.values() for i, s in enumerate(a.sizes) if s == size)
            yield f"  %at_{size} = arith.constant {place} : index"
            yield f"  %{size} = {self.kind}.dim %{array.name}, %at_{size} : {self.type(array)}"
        for statement in program.statements:
            yield from self.statement(statement)
        if program.tensors:
            names = ", ".join(f"%{a.name}" for a in program.outputs)
            yield f"  return {names} : {', '.join(self.type(a) for a in program.outputs)}"
        else:
            yield "  return"
        yield "}"

    def type(self, array: Array) -> str:
        sizes = "".join(f"{'?' if s in self.program.dynamic else self.program.sizes[s]}x" for s in array.sizes)
        return f"{self.kind}<{sizes}{array.type}>"

    def fresh(self) -> str:
        self._count += 1
        return f"%v{self._count}"

    def name(self, array: Array) -> str:
        return f"%{array.name if self.program.tensors else self.program.memory(array)}"

    def new(self, array: Array) -> Iterator[str]:
        """Makes an array that is to be written, `%<name>_new` of a tensor."""
        sizes = ", ".join(f"%{s}" for s in array.sizes if s in self.program.dynamic)
        if self.program.tensors:
            yield f"  %{array.name}_new = tensor.empty({sizes}) : {self.type(array)}"
        elif array.name not in map(self.program.memory, self.program.outputs):
            yield f"  %{array.name} = memref.alloc({sizes}) : {self.type(array)}"

    def start(self, array: Array, number: float) -> Iterator[str]:
        """Makes an array, and fills it with a number."""
        yield from self.new(array)
        value, outs = self.fresh(), f"{self.target(array)} : {self.type(array)}"
        yield f"  {value} = arith.constant {constant(number, array.type)} : {array.type}"
        filled = f"%{array.name}_start = " if self.program.tensors else ""
        result = f" -> {self.type(array)}" if self.program.tensors else ""
        yield f"  {filled}linalg.fill ins({value} : {array.type}) outs({outs}){result}"

    def target(self, array: Array, suffix: str = "_new") -> str:
        return f"%{array.name}{suffix}" if self.program.tensors else self.name(array)

    def call(self, name: str, inputs: Sequence[Array], outs: tuple[str, Array], attributes: str) -> tuple[str, str]:
        """The head of an operation, and what comes after its body."""
        out = outs[1]
        ins = ", ".join(self.name(a) for a in inputs) + " : " + ", ".join(self.type(a) for a in inputs)
        written = f"ins({ins}) " if inputs else ""
        result = f"%{out.name} = " if self.program.tensors else ""
        after = f" -> {self.type(out)}" if self.program.tensors else ""
        return f"  {result}{name}{attributes} {written}outs({outs[0]} : {self.type(out)})", after

    def statement(self, statement: Statement) -> Iterator[str]:
        match statement:
            case Elementwise():
                yield from self.elementwise(statement)
            case Reduction():
                yield from self.reduction(statement)
            case Softmax(out, x):
                yield from self.new(out)
                last = f" dimension({len(out.sizes) - 1})"
                yield "".join(self.call("linalg.softmax", [x], (self.target(out), out), last))
            case Product():
                yield from self.product(statement)

    def elementwise(self, it: Elementwise) -> Iterator[str]:
        if it.old is None:
            yield from self.new(it.out)
        outs = self.target(it.out) if it.old is None else self.name(it.old)
        loops = len(it.out.sizes)
        maps = [*it.maps, tuple(range(loops))]
        names = [f"%a{i}" for i in range(len(it.inputs))] + ["%old"]
        types = [*(a.type for a in it.inputs), it.out.type]
        yield from self.generic(it.inputs, (outs, it.out), maps, ["parallel"] * loops, names, types, it.body, None)

    def reduction(self, it: Reduction) -> Iterator[str]:
        yield from self.start(it.out, it.start)
        outs = self.target(it.out, "_start"), it.out
        if it.named:
            head, _ = self.call("linalg.reduce", it.inputs, outs, "")
            yield f"{head} dimensions = [{it.along}]"
            yield f"    (%a0: {it.inputs[0].type}, %old: {it.out.type}) {{"
            yield f"      %r = {it.by} %a0, %old : {it.out.type}"
            yield f"      linalg.yield %r : {it.out.type}"
            yield "    }"
            return
        kinds = ["reduction" if i == it.along else "parallel" for i in range(len(it.loops))]
        maps = [*it.maps, tuple(i for i in range(len(it.loops)) if i != it.along)]
        names = [f"%a{i}" for i in range(len(it.inputs))] + ["%old"]
        types = [*(a.type for a in it.inputs), it.out.type]
        yield from self.generic(it.inputs, outs, maps, kinds, names, types, it.body, it.by)

    def product(self, it: Product) -> Iterator[str]:
        if it.c is None:
            yield from self.start(it.out, it.start)
        outs = (self.target(it.out, "_start") if it.c is None else self.name(it.c)), it.out
        if it.named:
            yield "".join(self.call(f"linalg.{it.named}", [it.a, it.b], outs, ""))
            return
        kinds = ["parallel" if i in it.maps[2] else "reduction" for i in range(len(it.loops))]
        types = [it.a.type, it.b.type, it.out.type]
        by = "arith.addi" if it.out.type.startswith("i") else "arith.addf"
        yield from self.generic([it.a, it.b], outs, it.maps, kinds, ["%a0", "%a1", "%old"], types, it.body, by)

    def generic(
        self,
        inputs: Sequence[Array],
        outs: tuple[str, Array],
        maps: Sequence[Index],
        kinds: Sequence[str],
        names: Sequence[str],
        types: Sequence[str],
        body: Body,
        by: str | None,
    ) -> Iterator[str]:
        loops = ", ".join(f"d{i}" for i in range(len(kinds)))
        written = ", ".join(
            f"affine_map<({loops}) -> ({', '.join('0' if i is None else f'd{i}' for i in m)})>" for m in maps
        )
        iterators = ", ".join(f'"{k}"' for k in kinds)
        for i, step in enumerate(body.steps):
            if step.attribute == "outside":
                yield f"  %{outs[1].name}_c{i} = arith.constant {constant(step.number, step.type)} : {step.type}"
        attributes = f" {{indexing_maps = [{written}], iterator_types = [{iterators}]}}"
        head, after = self.call("linalg.generic", inputs, outs, attributes)
        yield f"{head} {{"
        yield f"  ^bb0({', '.join(f'{n}: {t}' for n, t in zip(names, types, strict=True))}):"
        values = list(names[: len(body.arguments)])
        for i, step in enumerate(body.steps):
            values.append(f"%{outs[1].name}_c{i}" if step.attribute == "outside" else f"%s{i}")
            if step.attribute != "outside":
                yield from (f"    {line}" for line in _step(values[-1], step, values, body.types))
        result = values[body.result]
        if by is not None:
            yield f"    %r = {by} %old, {result} : {types[-1]}"
            result = "%r"
        yield f"    linalg.yield {result} : {types[-1]}"
        yield f"  }}{after}"


def _step(result: str, step: Step, values: Sequence[str], types: Sequence[str]) -> Iterator[str]:
    operands, source = [values[i] for i in step.operands], types[step.operands[0]] if step.operands else ""
    short = step.name.removeprefix("arith.")
    if step.name == "arith.constant":
        yield f"{result} = arith.constant {constant(step.number, step.type)} : {step.type}"
    elif step.name == "linalg.index":
        yield f"{result}_i = linalg.index {int(step.number)} : index"
        yield f"{result} = arith.index_cast {result}_i : index to {step.type}"
    elif short in ("cmpf", "cmpi"):
        yield f"{result} = {step.name} {step.attribute}, {', '.join(operands)} : {source}"
    elif short == "select":
        yield f"{result} = arith.select {', '.join(operands)} : {step.type}"
    elif step.type != source:
        yield f"{result} = {step.name} {operands[0]} : {source} to {step.type}"
    else:
        yield f"{result} = {step.name} {', '.join(operands)} : {step.type}"
