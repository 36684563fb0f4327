"""Evaluates a host function in the finite fields, element by element, as `runtime.reference` does in float64.

`runtime.reference` goes through the operations and reads arrays along loops. Here the arrays hold indices of values in
a table in place of floating-point numbers; index 0 is the number 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
from xdsl.dialects import arith, func
from xdsl.dialects.builtin import FloatAttr, IndexType, IntegerAttr, IntegerType, ShapedType
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.ops import FillOp
from xdsl.ir import BlockArgument, Operation, SSAValue

from ...dialect.isa.form import ELEMENT_TYPES
from ...dialect.isa.mma import blocks
from ...dialect.mlir.affine import Combination, Nest, loops_of
from ...dialect.mlir.contraction import METADATA
from ...dialect.warp.elements import K, M, N
from ...dialect.warp.matmul import MatmulOp
from ...passes.diagnostics import place_of
from ..arguments.arrays import DTYPES, DType
from ..base.errors import HostError
from ..numerics.floats import Array
from ..reference import elements, functions
from ..reference.nests import COMBINED, EXTREMES, SUBTRACTED, SUMS, along_all, loop_numbers, sizes_of
from ..reference.product import ACCUMULATORS, Reference, expanded, rounded
from . import field
from .field import FUNCTIONS, FieldFunctions, Residues
from .values import Table

FUNCTION = np.uint64(63)
"""The bit of an origin that says that a function is on the way."""
CHUNK = 1 << 19
"""Elements of a nest that are evaluated at once."""


class BodyElements(NamedTuple):
    """Elements of a body: their residues and their values in the run. `root` has the key of the only value that each
    depends on, None for constants; `function` says whether a function of `math` is involved."""

    numbers: Residues
    shown: Array
    root: Array | None = None
    function: bool = False


def constants(values: Array) -> BodyElements:
    """Numbers of the program."""
    return BodyElements(field.embedded(values), values)


def _pick(condition: Array, yes: BodyElements, no: BodyElements) -> BodyElements:
    one, other = field.aligned(yes.numbers, no.numbers)
    residues = np.where(condition, one.residues, other.residues)
    exact = np.where(condition, one.exact, other.exact)
    return BodyElements(Residues(residues, exact), np.where(condition, yes.shown, no.shown))


def _both(
    of: Callable[[Residues, Residues], Residues], shown: Callable[..., Array]
) -> Callable[[BodyElements, BodyElements], BodyElements]:
    def compute(a: BodyElements, b: BodyElements) -> BodyElements:
        return BodyElements(of(a.numbers, b.numbers), shown(a.shown, b.shown))

    return compute


_add, _subtract = _both(field.add, np.add), _both(field.subtract, np.subtract)
_multiply = _both(field.multiply, np.multiply)


def _negate(a: BodyElements) -> BodyElements:
    return BodyElements(field.negate(a.numbers), -a.shown)


BodyOperation: TypeAlias = (
    Callable[[BodyElements], BodyElements]
    | Callable[[BodyElements, BodyElements], BodyElements]
    | Callable[[BodyElements, BodyElements, BodyElements], BodyElements]
)

COMPUTED: Mapping[str, BodyOperation] = {
    **dict.fromkeys(("arith.addf", "arith.addi"), _add),
    **dict.fromkeys(("arith.subf", "arith.subi"), _subtract),
    **dict.fromkeys(("arith.mulf", "arith.muli"), _multiply),
    "arith.divf": _both(field.divide, np.divide),
    "math.fma": lambda a, b, c: _add(_multiply(a, b), c),
    "arith.negf": _negate,
    "math.absf": lambda a: _pick(a.shown >= 0, a, _negate(a)),
    **dict.fromkeys(("arith.maximumf", "arith.maxnumf", "arith.maxsi"), lambda a, b: _pick(a.shown >= b.shown, a, b)),
    **dict.fromkeys(("arith.minimumf", "arith.minnumf", "arith.minsi"), lambda a, b: _pick(a.shown <= b.shown, a, b)),
    "arith.select": lambda condition, yes, no: _pick(condition.shown != 0, yes, no),
}
CHOICES = ("arith.select", *(name for name in COMPUTED if name.startswith(("arith.max", "arith.min"))))
SAME = ("arith.extf", "arith.truncf")


ElementsOf: TypeAlias = Callable[[SSAValue], BodyElements]
"""Evaluates a value of a body for some turns of its loops."""


class FieldEvaluation(functions.Evaluation):
    """Evaluates a function on arrays of indices of values in a table. `seen` says what numbers were in the run of a
    kernel, rounded as there: keys in order, and values."""

    def __init__(self, table: Table, functions: FieldFunctions, seen: tuple[Array, Array] | None = None) -> None:
        super().__init__(ACCUMULATORS["f32"])
        self.table = table
        self.functions = functions
        self.seen = seen

    def run(self, function: func.FuncOp, arguments: Sequence[Array], dtypes: Sequence[DType]) -> list[Array]:
        """The arguments as the function leaves them: indices of values; scalars that are integers are numbers. Raises
        HostError naming the first operation that has no meaning here."""
        parameters, self.function = function.body.block.args, function
        for parameter, array, dtype in zip(parameters, arguments, dtypes, strict=True):
            self.scope[parameter] = Reference.exact(array.astype(np.float64), dtype)
        with np.errstate(all="ignore"):
            self.all(function.body)
        return [self.scope[parameter].value.astype(np.int64) for parameter in parameters]

    def computes(self, op: Operation) -> bool:
        """Evaluates an operation that computes elements. Returns False for any other operation."""
        match op:
            case FillOp():
                output = self.scope[op.outputs[0]]
                made = _rounded(self._scalar(op.inputs[0]), output.dtype)
                self._put(op, 0, self._kept(made, output.value.shape))
            case LinalgStructuredOperation():
                self._nest(op)
            case MatmulOp():
                self._matmul(op)
            case _:
                return super().computes(op)
        return True

    def unwritten(self, shape: Sequence[int], kind: DType) -> Array:
        numbers = field.drawn(np.random.default_rng([self.table.size, 1]), tuple(shape))
        return self.table.add(numbers, "bits").astype(np.float64)

    def embedded(self, elements: Array) -> Array:
        return self._kept(constants(elements), elements.shape)

    def _kept(self, made: BodyElements, shape: Sequence[int]) -> Array:
        """The indices of new values."""
        index = self.table.add(made.numbers, "bits", made.shown)
        return np.broadcast_to(index, shape).astype(np.float64)

    def _scalar(self, value: SSAValue) -> BodyElements:
        """A number from outside: a constant, or an argument."""
        number = self.scope[value].value
        if isinstance(value.type, ShapedType):
            return self._read(number)
        argument = isinstance(value, BlockArgument) and not isinstance(value.type, IndexType | IntegerType)
        return self._read(number) if argument else constants(number)

    def integers(self, value: SSAValue) -> Array:
        return self.table.shown[self.scope[value].value.astype(np.int64)]

    def _read(self, index: Array) -> BodyElements:
        if not np.isfinite(index).all():
            raise HostError("no proof for a function that reads elements of which nothing is known")
        indices = index.astype(np.int64)
        numbers = self.table.numbers(indices)
        origin = self.table.origin[indices]
        function = bool((origin >> FUNCTION == 1).all())
        root = np.where(origin > 0, origin & ~(np.uint64(1) << FUNCTION), numbers.key)
        return self._as_seen(BodyElements(numbers, self.table.shown[indices], root, function))

    def _as_seen(self, made: BodyElements) -> BodyElements:
        """Elements with the values that their numbers have in the run of the kernel."""
        if self.seen is None or not self.seen[0].size:
            return made
        keys, values = self.seen
        mine = made.numbers.key
        at = np.minimum(np.searchsorted(keys, mine), keys.size - 1)
        return made._replace(shown=np.where(keys[at] == mine, values[at], made.shown))

    def _put(self, op: LinalgStructuredOperation, at: int, index: Array) -> None:
        functions.store(op, Reference.exact(index, self.scope[op.outputs[at]].dtype), self.scope, at)

    # Products of `warp.matmul`

    def _matmul(self, op: MatmulOp) -> None:
        """A product with its epilogue. Products of integers are exact."""
        scope = {v: replace(r, value=self.table.shown[r.value.astype(np.int64)]) for v, r in self.scope.items()
                 if r.value.ndim}  # fmt: skip
        shown = functions.evaluate_product(op, scope, self.accumulator).value
        floats = any(ELEMENT_TYPES[name].is_float for name in op.multiplied)
        made = self._product(op) if floats else constants(shown).numbers
        index = self._kept(BodyElements(made, shown), shown.shape)
        if op.epilogue is not None:
            nest = functions.epilogue_nest(op, op.epilogue)
            self.scope[nest.body.args[0]] = Reference.exact(index)
            index = self._over(op, nest, loops_of(op.maps[2]), lambda part: part(nest.yielded[0]))
        self.scope[op.d].value[...] = index

    def _product(self, op: MatmulOp) -> Residues:
        """A product of floating-point numbers."""
        loops = [loops_of(map_) for map_ in op.maps]
        a, b = (self._factor(op, at, loops[at].index(op.outer + K)) for at in (0, 1))
        start = self._read(self.scope[op.d if op.c is None else op.c].value).numbers
        if op.init is not None:
            start = constants(np.full(start.exact.shape, float(op.init.value.data))).numbers
        outer = list(range(op.outer))
        left, right, addend = (
            _arranged(n, loops[at], [*outer, *(op.outer + each for each in along)])
            for at, (n, along) in enumerate(((a, (M, K)), (b, (K, N)), (start, (M, N))))
        )
        product = field.matmul(left, right, addend)
        back = [[*outer, op.outer + M, op.outer + N].index(loop) for loop in loops[2]]
        return Residues(product.residues.transpose(0, *(1 + n for n in back)), product.exact.transpose(back))

    def _factor(self, op: MatmulOp, at: int, along: int) -> Residues:
        """The numbers of A or B; a sparse A spread, and what is scaled in blocks along K times its scales."""
        matrix = self.scope[op.matrices[at]]
        if op.metadata is not None and not at:
            matrix = self._expanded(op, matrix, op.metadata)
        numbers = self._read(matrix.value).numbers
        if at and op.b_stored is not None:
            stored = replace(matrix, value=self.table.shown[matrix.value.astype(np.int64)])
            numbers = constants(functions.read_multiplied(stored, op.b_stored.name).value - op.b_stored.zero).numbers
        if at and op.group_scales is not None:
            scales = functions.in_groups(self.scope[op.group_scales].value, matrix.value.shape)
        elif op.scales:
            block, scales = blocks()[op.variant], self.scope[op.scales[at]].value
            scales = functions.in_blocks(scales, block, matrix.value.shape, along)
        else:
            return numbers
        return field.multiply(numbers, self._read(scales).numbers)

    def _expanded(self, op: Operation, stored: Reference, metadata: SSAValue) -> Reference:
        """The values of the matrix that a sparse A stands for."""
        words = self.scope[metadata]
        return expanded(op, stored, replace(words, value=self.table.shown[words.value.astype(np.int64)]))

    # Nests

    def _nest(self, op: LinalgStructuredOperation) -> None:
        nest = Nest.of(op)
        if nest.is_elementwise:
            for at, (written, value) in enumerate(zip(nest.writes, nest.yielded, strict=True)):
                self._put(op, at, self._over(op, nest, written.loops, lambda part, value=value: part(value)))
            return
        how = nest.combination
        if how is None or how.by.name not in COMBINED:
            raise HostError(f"{place_of(op)}no proof for {op.name}: it reduces in a way that is not known")
        (written,) = nest.writes
        old = self._read(self.scope[written.value].value)

        def combined(part: ElementsOf) -> BodyElements:
            return self._combined(nest, how, part(how.value))

        terms = self._over(op, nest, written.loops, combined)
        self._put(op, 0, self._joined(how, old, self._read(terms)))

    def _over(
        self, op: Operation, nest: Nest, order: Sequence[int], make: Callable[[ElementsOf], BodyElements]
    ) -> Array:
        """The body for each element of an output, whose dimensions run along `order`; the first loop in chunks."""
        sizes = sizes_of(nest, self.scope)
        inputs = self._inputs(op, nest, sizes)
        if 0 in sizes:
            return np.zeros([sizes[at] for at in order])
        loop = order[0] if order else None
        turns = sizes[loop] if loop is not None else 1
        each = max(1, CHUNK * turns // max(1, int(np.prod(sizes, dtype=np.int64))))
        parts: list[Array] = []
        for first in range(0, turns, each):
            some = slice(first, min(turns, first + each))
            own = [some.stop - some.start if at == loop else size for at, size in enumerate(sizes)]
            mine = {value: _part(values, loop, some) for value, values in inputs.items()}
            made = make(partial(self._evaluated, nest, mine, own))
            kept = [own[at] if made.shown.shape[at] > 1 or own[at] == 1 else 1 for at in range(len(own))]
            origin = made.root if made.root is None else made.root | np.uint64(made.function) << FUNCTION
            index = self.table.add(made.numbers, "bits", made.shown, origin=origin).reshape(kept)
            parts.append(index.transpose([*order, *(at for at in range(len(own)) if at not in order)]))
        made_ = np.concatenate(parts, axis=0) if order else parts[0]
        return made_.reshape([sizes[at] for at in order]).astype(np.float64)

    def _evaluated(
        self, nest: Nest, inputs: Mapping[SSAValue, BodyElements | Array], sizes: Sequence[int], value: SSAValue
    ) -> BodyElements:
        """A value of a body for each turn of all loops."""
        return _broadcast(self._body(nest, value, inputs), sizes)

    def _inputs(self, op: Operation, nest: Nest, sizes: Sequence[int]) -> dict[SSAValue, BodyElements | Array]:
        """What a body reads: indices of elements along all loops, or numbers."""
        inputs: dict[SSAValue, BodyElements | Array] = {}
        for value in nest.captured:
            inputs[value] = self._scalar(value)
        for access in nest.used:
            operand = self.scope[access.value]
            number = op.attributes.get(METADATA)
            if isinstance(number, IntegerAttr) and access.value is op.operands[0]:
                operand = self._expanded(op, operand, self.function.body.block.args[number.value.data])
            if not operand.value.ndim:
                inputs[access.element] = self._scalar(access.value)
            else:
                inputs[access.element] = along_all(operand.value, access.map, sizes)
        return inputs | {index: constants(numbers) for index, numbers in loop_numbers(nest, sizes).items()}

    def _body(self, nest: Nest, wanted: SSAValue, inputs: Mapping[SSAValue, BodyElements | Array]) -> BodyElements:
        values = {v: i if isinstance(i, BodyElements) else self._read(i) for v, i in inputs.items()}
        for op in nest.body.ops:
            if wanted in values:
                break
            if op.results and op.results[0] not in values and op.results[0].uses:
                made = self._operation(op, values)
                if op.name not in CHOICES:
                    made = _settled(made, [values[v] for v in op.operands if v in values])
                made = made if op.name in SAME else self._as_seen(made)
                values[op.results[0]] = self._rooted(op, made, values)
        if wanted not in values:
            values[wanted] = self._scalar(wanted)
        return values[wanted]

    def _rooted(self, op: Operation, made: BodyElements, values: Mapping[SSAValue, BodyElements]) -> BodyElements:
        """A result with the number that it is computed from; a function of one is learnt."""
        operands = [values[v] for v in op.operands if v in values]
        roots = [o.root for o in operands if o.root is not None]
        if not roots or op.name in SAME:
            return made
        shape = np.broadcast_shapes(*(root.shape for root in roots), made.shown.shape)
        first = np.broadcast_to(roots[0], shape)
        if not all(np.array_equal(first, np.broadcast_to(root, shape)) for root in roots[1:]):
            return BodyElements(made.numbers, made.shown, np.broadcast_to(made.numbers.key, shape))
        function = op.name.startswith("math.") or any(o.function for o in operands)
        if function:
            self.functions.learn(first, made.numbers, made.shown, odd=op.name in ("math.tanh", "math.erf"))
        return BodyElements(made.numbers, made.shown, first, function)

    def _operation(self, op: Operation, values: Mapping[SSAValue, BodyElements]) -> BodyElements:
        if isinstance(op, arith.ConstantOp) and isinstance(op.value, FloatAttr | IntegerAttr):
            return self._constant(op)
        operands, kind = [values[v] if v in values else self._outside(v) for v in op.operands], op.results[0].type
        name = op.name.removeprefix("math.")
        if op.name == "arith.cmpf" or all(isinstance(v.type, IntegerType | IndexType) for v in op.operands):
            return constants(elements.as_elements(elements.evaluate_one(op, [o.shown for o in operands]), kind))
        if op.name in COMPUTED:
            return COMPUTED[op.name](*operands)
        if op.name in SAME:
            return _rounded(operands[0], DTYPES[str(kind)]) if op.name == "arith.truncf" else operands[0]
        if op.name.startswith("math.") and name in FUNCTIONS and op.name in elements.FUNCTIONS:
            return BodyElements(FUNCTIONS[name](operands[0].numbers), elements.FUNCTIONS[op.name][0](operands[0].shown))
        raise HostError(f"{place_of(op)}no proof for {op.name} in an elementwise operation")

    def _outside(self, value: SSAValue) -> BodyElements:
        if isinstance(value.owner, arith.ConstantOp):
            return self._constant(value.owner)
        return self._scalar(value)

    def _constant(self, op: arith.ConstantOp) -> BodyElements:
        value = np.array(float(op.value.value.data)) if isinstance(op.value, FloatAttr | IntegerAttr) else np.array(0.0)
        value = elements.as_elements(value, op.result.type)
        if isinstance(op.value, FloatAttr):
            self.table.named = tuple({*self.table.named, abs(float(value)), -abs(float(value))})
        return constants(value)

    def _combined(self, nest: Nest, how: Combination, terms: BodyElements) -> BodyElements:
        """All terms along the loops that are reduced."""
        axes, kept = list(nest.summed), [loop for loop in range(nest.loops) if loop not in nest.summed]
        shape = [terms.shown.shape[loop] for loop in kept]

        def rowed(array: Array, lead: int) -> Array:
            moved = np.moveaxis(array, [axis + lead for axis in axes], range(-len(axes), 0))
            return moved.reshape(*array.shape[:lead], *shape, -1)

        moved = (rowed(terms.numbers.residues, 1), rowed(terms.numbers.exact, 0), rowed(terms.shown, 0))
        rows = BodyElements(Residues(moved[0], moved[1]), moved[2])
        combined = self._reduced(how, rows)
        full = [terms.shown.shape[loop] if loop in kept else 1 for loop in range(nest.loops)]
        numbers = Residues(combined.numbers.residues.reshape(4, *full), combined.numbers.exact.reshape(full))
        return BodyElements(numbers, combined.shown.reshape(full))

    def _reduced(self, how: Combination, rows: BodyElements) -> BodyElements:
        name = how.by.name
        if name in (*SUMS, SUBTRACTED):
            made = BodyElements(field.total(rows.numbers), rows.shown.sum(axis=-1))
            special: Array = np.logical_or.reduce(field.is_special(rows.numbers), axis=-1)
            return _pick(special, constants(np.where(special, made.shown, 0)), made) if special.any() else made
        if name in EXTREMES:
            chosen = (rows.shown.argmax(axis=-1) if "max" in name else rows.shown.argmin(axis=-1))[..., None]
            residues = np.take_along_axis(rows.numbers.residues, chosen[None], axis=-1)[..., 0]
            exact, shown = (np.take_along_axis(x, chosen, axis=-1)[..., 0] for x in (rows.numbers.exact, rows.shown))
            return BodyElements(Residues(residues, exact), shown)
        reduced = rows.numbers.at(..., 0)
        for i in range(1, rows.shown.shape[-1]):
            reduced = field.multiply(reduced, rows.numbers.at(..., i))
        return BodyElements(reduced, rows.shown.prod(axis=-1))

    def _joined(self, how: Combination, old: BodyElements, terms: BodyElements) -> Array:
        made = COMPUTED[how.by.name](*[old, terms])
        return self._kept(made, made.shown.shape)


def _arranged(n: Residues, loops: Sequence[int], wanted: Sequence[int]) -> Residues:
    """Numbers with a dimension for each loop wanted, of size 1 for those that they do not run along."""
    order = [loops.index(loop) for loop in wanted if loop in loops]
    at = tuple(slice(None) if loop in loops else None for loop in wanted)
    residues = n.residues.transpose(0, *(1 + axis for axis in order))[(slice(None), *at)]
    return Residues(np.ascontiguousarray(residues), n.exact.transpose(order)[at])


def _rounded(made: BodyElements, kind: DType) -> BodyElements:
    """A number converted: in the run it is rounded, and one of the program is another number then."""
    shown = rounded(made.shown, kind)
    return constants(shown) if made.root is None else made._replace(shown=shown)


def _settled(made: BodyElements, operands: Sequence[BodyElements]) -> BodyElements:
    """A result; what infinities of the program give is a number of the program."""
    if not operands or all(np.isfinite(each.shown).all() for each in (made, *operands)):
        return made
    program = field.settled(made.shown, [operand.numbers for operand in operands])
    shape = np.broadcast_shapes(program.shape, made.shown.shape)
    shown = np.broadcast_to(made.shown, shape)
    chosen = _pick(program, constants(np.where(program, shown, 0)), made)
    return BodyElements(chosen.numbers, shown, made.root, made.function)


def _part(values: BodyElements | Array, loop: int | None, some: slice) -> BodyElements | Array:
    """The elements that some iterations of a loop read."""
    if loop is None:
        return values
    shape = values.shown.shape if isinstance(values, BodyElements) else values.shape
    if len(shape) <= loop or shape[loop] == 1:
        return values
    index = (*[slice(None)] * loop, some)
    if isinstance(values, BodyElements):
        return BodyElements(values.numbers.at(*index), values.shown[index])
    return values[index]


def _broadcast(made: BodyElements, sizes: Sequence[int]) -> BodyElements:
    """Elements with every loop's extent."""
    residues = made.numbers.residues
    residues = residues.reshape(4, *[1] * (len(sizes) + 1 - residues.ndim), *residues.shape[1:])
    residues = np.broadcast_to(residues, (4, *sizes))
    root = None if made.root is None else np.broadcast_to(made.root, sizes)
    numbers = Residues(residues, np.broadcast_to(made.numbers.exact, sizes))
    return BodyElements(numbers, np.broadcast_to(made.shown, sizes), root, made.function)
