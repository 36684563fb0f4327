"""Attention as front ends write it in `linalg`, in many forms: its MLIR. `attention_problems.py` has numbers for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from warploom.runtime import Kernel, compile

SLOPE = 0.0625
"""By how much a score falls from key to key where `alibi` is asked for; of the nth matrix of a batch n times as much
where `slopes` is."""

CAP = 5.0
"""What scores do not exceed where `softcap` is asked for."""

SOFTMAXES = ("divided", "inverse", "behind", "base 2", "named")
"""How P is written: E / L, E * (1 / L), E with the division behind the second product, 2^X, and `linalg.softmax`."""


class Value(NamedTuple):
    """A tensor or memory in a function: its name, the loops that it runs along, its element type."""

    name: str
    loops: tuple[str, ...]
    element: str


@dataclass(frozen=True)
class Attention:
    """A function of one attention. Loops are those of the batch, `b0` on, then m, n, d and e; `size` is of the last
    four."""

    size: tuple[int, int, int, int]
    element: str = "f16"
    batch: tuple[int, ...] = (2,)
    shared: tuple[str, ...] = ()
    """Loops of the batch along which all heads have one K and one V."""
    mask: tuple[str, ...] | None = None
    """The loops of a matrix in f32 that is added to the scores."""
    causal: int | None = None
    """Keys more than this to the right of the query do not count."""
    function: str = ""
    """What else is done to a score: "softcap", "alibi", "slopes"."""
    softmax: str = "divided"
    turned: bool = False
    """Whether K lies transposed."""
    dynamic: bool = False
    """Whether lengths and the batch are known at a call only."""
    on_memory: bool = False
    window: int | None = None
    """Keys more than this to the left of the query do not count."""
    lengths: bool = False
    """Whether memory has the number of keys for each index of the first loop of the batch."""
    pages: int = 0
    """Rows of the pages that K and V lie in, as a table has them for each index of the first loop of the batch."""
    documents: bool = False
    """Whether keys count only for queries of the same document, whose numbers are in memory."""
    sequences: int = 0
    """How many sequences lie one behind the other along m and n, which are as long; memory has their ends."""
    sinks: str = ""
    """How the sums of rows have a sink, a number for each index of the last loop of the batch: "max", if the largest
    score is one of it too, "start", if the reductions start from it, "sum", if it is added alone."""

    def __str__(self) -> str:
        parts = [self.element, "x".join(map(str, self.size)), f"batch {'x'.join(map(str, self.batch))}", self.softmax]
        parts += [f"{'x'.join(self.shared)} shared"] if self.shared else []
        parts += [f"mask {' '.join(self.mask)}"] if self.mask is not None else []
        parts += [f"causal {self.causal}"] if self.causal is not None else []
        parts += [f"window {self.window}"] if self.window is not None else []
        parts += [name for name, on in (("lengths", self.lengths), ("documents", self.documents)) if on]
        parts += [f"pages of {self.pages}"] if self.pages else []
        parts += [f"{self.sequences} sequences"] if self.sequences else []
        parts += [f"sinks by {self.sinks}"] if self.sinks else []
        flags = (("turned", self.turned), ("dynamic", self.dynamic), ("on memory", self.on_memory))
        return ", ".join([*parts, *filter(None, [self.function]), *(name for name, on in flags if on)])

    @property
    def loops(self) -> tuple[str, ...]:
        """Those of the batch."""
        return tuple(f"b{i}" for i in range(len(self.batch)))

    @property
    def sizes(self) -> dict[str, int]:
        """By loop, and of a cache of pages."""
        sizes = dict(zip((*self.loops, *"mnde"), (*self.batch, *self.size), strict=True))
        sizes["sequence"] = self.sequences
        if self.pages:
            blocks = sizes["n"] // self.pages
            sizes |= {"slot": self.pages, "block": blocks, "page": blocks * sizes["b0"] + 3}
        return sizes

    @property
    def of_bytes(self) -> bool:
        """Whether Q, K and V are 8-bit floats, with scales for each index of the last loop of the batch, and O bf16."""
        return self.element.startswith("f8")

    @property
    def stored(self) -> str:
        """The type of O."""
        return "bf16" if self.of_bytes else self.element

    def launches(self, target: str) -> int:
        """One; one that finds the keys of each tile by the numbers of documents, which one query has not with a mask by
        place around them; one that transposes V of bytes for warpgroups."""
        by_warpgroups = target == "sm_90a" and self.size[0] > 64 and not self.dynamic
        plain = self.size[0] > 1 or (self.causal, self.window) == (None, None)
        of_tiles = self.documents and not self.dynamic and plain
        return 1 + of_tiles + (self.of_bytes and by_warpgroups)

    @property
    def scale(self) -> float:
        return float(f"{self.size[2] ** -0.5:.6e}")

    def arguments(self) -> list[Value]:
        """Q, K, V, the mask if there is one, what says which keys count, and O."""
        of_k = tuple(loop for loop in self.loops if loop not in self.shared)
        if self.pages:
            of_page = ("page", "slot", *of_k[1:])
            k, v = (Value(name, (*of_page, column), self.element) for name, column in (("%K", "d"), ("%V", "e")))
            return self._around(k, v, [Value("%pages", ("b0", "block"), "i32")])
        turned = (*of_k, "d", "n") if self.turned else (*of_k, "n", "d")
        return self._around(Value("%K", turned, self.element), Value("%V", (*of_k, "n", "e"), self.element))

    def _around(self, k: Value, v: Value, pages: Sequence[Value] = ()) -> list[Value]:
        masks = [] if self.mask is None else [Value("%mask", self.mask, "f32")]
        return [
            Value("%Q", (*self.loops, "m", "d"), self.element),
            k,
            v,
            *masks,
            *([Value("%lengths", ("b0",), "i32")] if self.lengths else []),
            *([Value("%of_m", ("m",), "i32"), Value("%of_n", ("n",), "i32")] if self.documents else []),
            *([Value("%sinks", self.loops[-1:], self.stored)] if self.sinks else []),
            *([Value("%ends", ("sequence",), "i32")] if self.sequences else []),
            *([Value(name, self.loops[-1:], "f32") for name in ("%of_qk", "%of_v")] if self.of_bytes else []),
            *pages,
            Value("%O", (*self.loops, "m", "e"), self.stored),
        ]

    def shape(self, value: Value) -> tuple[int, ...]:
        return tuple(self.sizes[loop] for loop in value.loops)

    def compile(self, target: str = "sm_80", **schedule: object) -> Kernel:
        return compile(self.mlir, target, **schedule)  # pyright: ignore[reportArgumentType]

    @property
    def mlir(self) -> str:
        return _Text(self).function()


class _Text:
    """Writes the operations of one function."""

    def __init__(self, asked: Attention) -> None:
        self.asked, self.lines, self.count = asked, list[str](), 0
        self.behind: list[Value] = []
        self.into: Value | None = None
        # Loops whose sizes are known at a call only, or in the loop over sequences.
        self.unknown = {*asked.loops, "m", "n"} if asked.dynamic else set("mn" if asked.sequences else "")
        self.kind = "memref" if asked.on_memory else "tensor"

    def type_of(self, value: Value, *, full: bool = False) -> str:
        unknown = set[str]() if full else self.unknown
        sizes = ["?" if loop in unknown else str(self.asked.sizes[loop]) for loop in value.loops]
        return f"{self.kind}<{''.join(f'{size}x' for size in sizes)}{value.element}>"

    def name(self) -> str:
        self.count += 1
        return f"%t{self.count}"

    def function(self) -> str:
        *inputs, output = self.asked.arguments()
        parameters = [*inputs, output] if self.asked.on_memory else inputs
        self._begin(inputs)
        result = self._of_sequences(inputs, output) if self.asked.sequences else self._attention(inputs, output)
        full = bool(self.asked.sequences)
        listed = ", ".join(f"{value.name}: {self.type_of(value, full=full)}" for value in parameters)
        kind = self.type_of(output, full=full)
        returned = "" if self.asked.on_memory else f" -> {kind}"
        self.lines.append("return" if self.asked.on_memory else f"return {result.name} : {kind}")
        body = "\n".join(f"  {line}" for line in self.lines)
        return f"func.func @attention({listed}){returned} {{\n{body}\n}}\n"

    def _begin(self, inputs: Sequence[Value]) -> None:
        """Constants, and the sizes that are not known."""
        self.lines += [
            "%zero = arith.constant 0.0 : f32",
            f"%nothing = arith.constant 0.0 : {self.asked.element}",
            "%low = arith.constant 0xFF800000 : f32",
            "%one = arith.constant 1.0 : f32",
            f"%scale = arith.constant {self.asked.scale:.6e} : f32",
        ]
        if self.asked.dynamic:
            for loop in (*self.asked.loops, "m", "n"):
                source = next(value for value in inputs if loop in value.loops)
                at, name = source.loops.index(loop), f"%size_{loop}"
                self.lines.append(f"%at_{loop} = arith.constant {at} : index")
                self.lines.append(f"{name} = {self.kind}.dim {source.name}, %at_{loop} : {self.type_of(source)}")

    def _of_sequences(self, inputs: Sequence[Value], output: Value) -> Value:
        """A loop over sequences, each of which begins where the one before ends. It hands on O."""
        kind, (ends,) = self.type_of(output, full=True), [value for value in inputs if value.name == "%ends"]
        parts, divided = dict[str, str](), [value for value in inputs if not self.unknown.isdisjoint(value.loops)]
        for value in (*divided, output):
            sizes = ["%size_m" if loop in self.unknown else str(self.asked.sizes[loop]) for loop in value.loops]
            at = ["%start" if loop in self.unknown else "0" for loop in value.loops]
            parts[value.name] = f"[{', '.join(at)}] [{', '.join(sizes)}] [{', '.join('1' * len(at))}]"
        self.lines += [
            *(f"%c{number} = arith.constant {number} : index" for number in (0, 1)),
            f"%count = arith.constant {self.asked.sequences} : index",
            f"%all = tensor.empty() : {kind}",
            "%end, %O = scf.for %e = %c0 to %count step %c1 iter_args(%start = %c0, %old = %all)"
            f" -> (index, {kind}) {{",
            f"%till = tensor.extract %ends[%e] : {self.type_of(ends)}",
            "%stop = arith.index_cast %till : i32 to index",
            "%size_m = arith.subi %stop, %start : index",
        ]
        of_old = output._replace(name="%old")
        slices = [value._replace(name=f"{value.name}_part") for value in (*divided, of_old)]
        for value, source, part in zip((*divided, output), (*divided, of_old), slices, strict=True):
            types = f"{self.type_of(value, full=True)} to {self.type_of(value)}"
            self.lines.append(f"{part.name} = tensor.extract_slice {source.name}{parts[value.name]} : {types}")
        self.into = slices.pop()
        full = [value for value in inputs if value not in (*divided, ends)]
        made = self._attention([*slices, *full], output)
        types = f"{self.type_of(output)} into {kind}"
        self.lines += [
            f"%new = tensor.insert_slice {made.name} into %old{parts[output.name]} : {types}",
            f"scf.yield %stop, %new : index, {kind}",
            "}",
        ]
        return output

    # Operations

    def temporary(self, loops: tuple[str, ...], element: str) -> Value:
        value = Value(self.name(), loops, element)
        sizes = ["%size_m" if self.asked.sequences else f"%size_{loop}" for loop in loops if loop in self.unknown]
        make = "memref.alloc" if self.asked.on_memory else "tensor.empty"
        self.lines.append(f"{value.name} = {make}({', '.join(sizes)}) : {self.type_of(value)}")
        return value

    def _operation(self, text: str, output: Value) -> Value:
        """An operation on tensors with its result, or one on memory."""
        if self.asked.on_memory:
            self.lines.append(text)
            return output
        result = output._replace(name=self.name())
        self.lines.append(f"{result.name} = {text} -> {self.type_of(output)}")
        return result

    def filled(self, output: Value, number: str) -> Value:
        kind = f"outs({output.name} : {self.type_of(output)})"
        return self._operation(f"linalg.fill ins({number} : {output.element}) {kind}", output)

    def generic(self, inputs: Sequence[Value], output: Value, body: Sequence[str], reduced: str = "") -> Value:
        """A `linalg.generic`: its body calls elements of inputs %x0, %x1 ..., that of the output %y, yields %r."""
        loops = [*output.loops, *([reduced] if reduced else [])]
        all_ = ", ".join(loops)
        maps = ", ".join(f"affine_map<({all_}) -> ({', '.join(v.loops)})>" for v in (*inputs, output))
        kinds = ", ".join(['"parallel"'] * len(output.loops) + (['"reduction"'] if reduced else []))
        arguments = ", ".join([*(f"%x{i}: {v.element}" for i, v in enumerate(inputs)), f"%y: {output.element}"])
        listed = ", ".join(v.name for v in inputs) + " : " + ", ".join(map(self.type_of, inputs))
        read = f"ins({listed}) " if inputs else ""
        inside = "\n".join(f"    {line}" for line in (*body, f"linalg.yield %r : {output.element}"))
        return self._operation(
            f"linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}\n"
            f"      {read}outs({output.name} : {self.type_of(output)}) {{\n"
            f"  ^bb0({arguments}):\n{inside}\n  }}",
            output,
        )

    # Attention

    def _attention(self, inputs: Sequence[Value], output: Value) -> Value:
        q, k, v = inputs[:3]
        if self.asked.pages:
            inputs = list(inputs[:-1])
            k, v = self._gathered(k), self._gathered(v)
        score, row = (*self.asked.loops, "m", "n"), (*self.asked.loops, "m")
        scores = self._product(q, k, self.temporary(score, "f32"), "d")
        sinks = [value for value in inputs if value.name == "%sinks"]
        behind = [value for value in inputs if value.name == "%of_v"]
        extra = [value for value in inputs[3:] if value not in (*sinks, *behind)]
        scores = self.generic([scores, *extra], self.temporary(score, "f32"), self._score())
        result = output if self.asked.on_memory else self.into or self.temporary(output.loops, output.element)
        self.result, self.behind = result, behind
        if self.asked.softmax == "named":
            into = self.temporary(score, "f32")
            types = f"ins({scores.name} : {self.type_of(scores)}) outs({into.name} : {self.type_of(into)})"
            p = self._operation(f"linalg.softmax dimension({len(score) - 1}) {types}", into)
            return self._values(self._narrowed(p), v)
        power = "math.exp2" if self.asked.softmax == "base 2" else "math.exp"
        sink = self._widened(sinks[0], row) if sinks else None
        start = sink if self.asked.sinks == "start" else None
        if start is not None and self.asked.on_memory:  # the reduction writes over what it starts from
            start = self._widened(sinks[0], row)
        largest = self._reduced(scores, row, "%low", "maximumf", start)
        if sink is not None and self.asked.sinks == "max":
            body = ["%r = arith.maximumf %x0, %x1 : f32"]
            largest = self.generic([sink, largest], self.temporary(row, "f32"), body)
        body = ["%0 = arith.subf %x0, %x1 : f32", f"%r = {power} %0 : f32"]
        e = self.generic([scores, largest], self.temporary(score, "f32"), body)
        if sink is not None:
            sink = self.generic([sink, largest], self.temporary(row, "f32"), body)
        total = self._reduced(e, row, "%zero", "addf", None if start is None else sink)
        if sink is not None and start is None:
            total = self.generic([sink, total], self.temporary(row, "f32"), ["%r = arith.addf %x0, %x1 : f32"])
        if self.asked.softmax == "behind":
            sums = self._product(self._narrowed(e), v, self.temporary(output.loops, "f32"), "n")
            body = ["%0 = arith.divf %x0, %x1 : f32"]
            body += ["%1 = arith.mulf %0, %x2 : f32"] if behind else []
            body += [f"%r = arith.truncf %{len(body) - 1} : f32 to {output.element}"]
            return self.generic([sums, total, *behind], result, body)
        body = ["%r = arith.divf %x0, %x1 : f32"]
        if self.asked.softmax == "inverse":
            body = ["%0 = arith.divf %one, %x1 : f32", "%r = arith.mulf %x0, %0 : f32"]
        p = self.generic([e, total], self.temporary(score, "f32"), body)
        return self._values(self._narrowed(p), v)

    def _values(self, p: Value, v: Value) -> Value:
        """The product of P and V, scaled and rounded behind where V has bytes."""
        if not self.behind:
            return self._product(p, v, self.result, "n")
        sums = self._product(p, v, self.temporary(self.result.loops, "f32"), "n")
        body = ["%0 = arith.mulf %x1, %x0 : f32", f"%r = arith.truncf %0 : f32 to {self.result.element}"]
        return self.generic([sums, *self.behind], self.result, body)

    def _gathered(self, cache: Value) -> Value:
        """The sequences whose pages a table has."""
        loops = ("b0", "n", *cache.loops[2:])
        at = {loop: f"%at{i}" for i, loop in enumerate(loops)}
        body = [f"{at[loop]} = linalg.index {i} : index" for i, loop in enumerate(loops)]
        body += [
            f"%rows = arith.constant {self.asked.pages} : index",
            f"%block = arith.divui {at['n']}, %rows : index",
            f"%slot = arith.remui {at['n']}, %rows : index",
            f"%number = tensor.extract %pages[{at['b0']}, %block] : {self.type_of(self.asked.arguments()[-2])}",
            "%page = arith.index_cast %number : i32 to index",
            f"%r = tensor.extract {cache.name}[{', '.join(['%page', '%slot', *(at[loop] for loop in loops[2:])])}]"
            f" : {self.type_of(cache)}",
        ]
        return self.generic([], self.temporary(loops, cache.element), body)

    def _product(self, a: Value, b: Value, output: Value, over: str) -> Value:
        half, kind = a.element, output.element
        body = [f"%0 = arith.mulf %x0, %x1 : {half}", f"%r = arith.addf %y, %0 : {half}"]
        if kind != half:
            body = [
                f"%0 = arith.extf %x0 : {half} to {kind}",
                f"%1 = arith.extf %x1 : {half} to {kind}",
                f"%2 = arith.mulf %0, %1 : {kind}",
                f"%r = arith.addf %y, %2 : {kind}",
            ]
        return self.generic([a, b], self.filled(output, "%nothing" if kind == half else "%zero"), body, over)

    def _widened(self, value: Value, loops: tuple[str, ...]) -> Value:
        """A number in f32 for each of more loops."""
        return self.generic([value], self.temporary(loops, "f32"), [f"%r = arith.extf %x0 : {value.element} to f32"])

    def _reduced(self, value: Value, loops: tuple[str, ...], start: str, by: str, onto: Value | None = None) -> Value:
        """A reduction that starts from a number, or from what is there."""
        output = onto or self.filled(self.temporary(loops, "f32"), start)
        return self.generic([value], output, [f"%r = arith.{by} %x0, %y : f32"], value.loops[-1])

    def _narrowed(self, value: Value) -> Value:
        body = [f"%r = arith.truncf %x0 : f32 to {self.asked.element}"]
        return self.generic([value], self.temporary(value.loops, self.asked.element), body)

    def _score(self) -> list[str]:
        """What is done to each score %x0."""
        lines, batch = ["%s0 = arith.mulf %x0, %scale : f32"], len(self.asked.batch)
        asked = self.asked
        if asked.of_bytes:
            first = 1 + (asked.mask is not None) + asked.lengths + 2 * asked.documents
            lines = [f"%q = arith.mulf %x0, %x{first} : f32", "%s0 = arith.mulf %q, %scale : f32"]
        placed = (asked.causal, asked.window) != (None, None) or asked.lengths
        if placed or asked.function in ("alibi", "slopes"):
            lines += [f"%i = linalg.index {batch} : index", f"%j = linalg.index {batch + 1} : index"]
        now = "%s0"
        if self.asked.function == "softcap":
            lines += [
                f"%cap = arith.constant {CAP} : f32",
                f"%s1 = arith.divf {now}, %cap : f32",
                "%s2 = math.tanh %s1 : f32",
                "%s3 = arith.mulf %s2, %cap : f32",
            ]
            now = "%s3"
        if self.asked.function == "slopes":
            lines += [
                "%unit = arith.constant 1 : index",
                f"%h = linalg.index {batch - 1} : index",
                "%h1 = arith.addi %h, %unit : index",
                "%j1 = arith.subi %j, %i : index",
                "%s4 = arith.muli %j1, %h1 : index",
            ]
        if self.asked.function in ("alibi", "slopes"):
            lines += [
                f"%slope = arith.constant {SLOPE} : f32",
                *(["%s4 = arith.subi %j, %i : index"] if self.asked.function == "alibi" else []),
                "%s5 = arith.index_cast %s4 : index to i32",
                "%s6 = arith.sitofp %s5 : i32 to f32",
                "%s7 = arith.mulf %s6, %slope : f32",
                f"%s8 = arith.addf {now}, %s7 : f32",
            ]
            now = "%s8"
        if self.asked.mask is not None:
            lines.append(f"%s9 = arith.addf {now}, %x1 : f32")
            now = "%s9"
        extra = 1 + (asked.mask is not None)
        masks: list[list[str]] = []
        if asked.documents:
            masks.append([f"%gone_d = arith.cmpi ne, %x{extra + asked.lengths}, %x{extra + asked.lengths + 1} : i32"])
        if asked.window is not None:
            masks.append([
                f"%behind = arith.constant {asked.window} : index",
                "%first = arith.subi %i, %behind : index",
                "%gone_w = arith.cmpi slt, %j, %first : index",
            ])  # fmt: skip
        if asked.lengths:
            masks.append([
                f"%length = arith.index_cast %x{extra} : i32 to index",
                "%gone_l = arith.cmpi sge, %j, %length : index",
            ])  # fmt: skip
        if asked.causal is not None:
            masks.append([
                f"%ahead = arith.constant {asked.causal} : index",
                "%last = arith.addi %i, %ahead : index",
                "%gone_c = arith.cmpi sgt, %j, %last : index",
            ])  # fmt: skip
        for number, mask in enumerate(masks):
            condition = mask[-1].partition(" =")[0]
            lines += [*mask, f"%m{number} = arith.select {condition}, %low, {now} : f32"]
            now = f"%m{number}"
        return [*lines[:-1], lines[-1].replace(f"{now} =", "%r =")]
