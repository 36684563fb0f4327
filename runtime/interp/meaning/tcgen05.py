"""Products of the fifth generation's tensor cores: `tcgen05.mma`. PTX ISA 9.7.16.10.

They are executed in the order in which a thread issued them, when somebody looks at the object that a commit of the
thread arrives at: what is in shared and tensor memory then is what they take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from math import gcd
from typing import Any, cast

import numpy as np

from ....dialect.isa.form import IN_BYTES, ElementType
from ....dialect.isa.row import Bindings
from ....dialect.isa.tensor_product import InstructionDescriptorError, SharedDescriptor, TensorProduct, opcode_of
from ....dialect.isa.wgmma import UNIT
from ....dialect.layouts.layout import Layout
from ....dialect.layouts.tensor_memory import LANES, multiplicand, scales
from ....dialect.ptx.text.syntax import Address, Immediate, Operand
from ...numerics.floats import Array
from ...numerics.product import MatrixProduct, SideOperands
from ...numerics.sparse import NibbleError, columns
from ..machine.decode import Context, meaning
from ..machine.events import AccessKind, Selection, tell_of_one
from ..machine.memory import FaultError, MachineLimitError
from ..machine.state import Action, Source, State, acting
from ..machine.tensor_memory import TensorMemory, address
from .bulk import one_by_one
from .warpgroup import SharedMatrix, tile_of

# Operands in shared and in tensor memory. PTX ISA 9.7.16.3 to .5, .10.4 to .10.8.


def cta_of(state: State, thread: int) -> int:
    """The number of a thread's CTA among those in flight."""
    return thread % state.warps // state.geometry.warps_per_cta


def tell(state: State, pc: int, kind: AccessKind, cta: int, lanes: Array, columns: Array, thread: int) -> None:
    """Reports accesses of one thread to words of tensor memory, where somebody looks on."""
    if state.observer is not None:
        start = state.tensor.starts(cta, lanes, columns).reshape(-1)
        tell_of_one(state.observer, pc, kind, state.tensor.buffer, start, 4, thread)


# Matrices in shared memory


class SharedMatrices:
    """Matrices in the shared memory of CTAs, as one thread names them."""

    def __init__(self, state: State, pc: int, thread: int) -> None:
        self.state, self.pc, self.thread = state, pc, thread
        self.window = state.memory.shared

    def places(self, word: int, shape: tuple[int, int], size: int, along_mn: bool, name: str) -> Array:
        """Where the elements lie in the shared memory of a CTA, in bytes."""
        matrix = SharedMatrix(SharedDescriptor, word, shape, size, along_mn)
        return matrix.places(self.window.size, self.thread, f"operand {name}: ") * size

    def base(self, cta: int) -> int:
        """The first byte of a CTA's shared memory."""
        return int(self.window.base[cta * self.state.geometry.warps_per_cta])

    def tell(self, cta: int, word: int, places: Array, bits: int, along_mn: bool = False) -> None:
        """Reports what will be read, where somebody looks on; of padded elements of less than 8 bits, no padding."""
        if self.state.observer is not None:
            units = np.unique(places // UNIT) * UNIT + self.base(cta)
            width = gcd(UNIT, 2 * bits)
            start = (units[:, None] + np.arange(0, min(2 * bits, UNIT), width)).reshape(-1)
            tile = tile_of(SharedDescriptor.decode(word), places + self.base(cta), along_mn)
            tell_of_one(self.state.observer, self.pc, "fetch", self.window.buffer, start, width, self.thread, tile=tile)

    def elements(self, cta: int, places: Array, bits: int) -> Array:
        """Elements of so many bits. Those of less than 8, 16 in the low end of each 16 bytes, become bytes, of which
        those of 4 bits are the middle."""
        size = max(bits // 8, 1)
        places, words = places + self.base(cta), self.window.buffer.view(size)
        if bits >= 8:
            return words[places // size]
        bit = (places & UNIT - 1) * bits
        first = places - (places & UNIT - 1) + bit // 8
        pair = words[first].astype(np.uint16) | words[first + 1].astype(np.uint16) << np.uint16(8)
        code = (pair >> (bit % 8).astype(np.uint16)) & np.uint16((1 << bits) - 1)
        return (code << np.uint16(2 if bits == 4 else 0)).astype(np.uint8)


def halves(packed: Array) -> Array:
    """Bytes (k / 2, mn) of two elements of 4 bits each, as elements (k, mn)."""
    return np.stack([packed & 15, packed >> 4], axis=1).reshape(-1, *packed.shape[1:])


# Matrices in tensor memory


@lru_cache(256)
def of_result(product: TensorProduct) -> tuple[Array, Array]:
    """The lanes and columns of D (rows, n), from its address on."""
    layout, each = product.result, product.shape.n // product.parts
    lanes, places = np.empty((2, product.rows, product.shape.n), np.int64)
    for r in range(product.rows):
        for part in range(product.parts):
            lane, _ = layout.find(r=r % layout.rows, p=part)
            lanes[r, part * each : (part + 1) * each] = lane
    places[:] = np.arange(product.shape.n) % each
    return lanes, places


@lru_cache(64)
def _of_layout(
    layout: Layout, rows: int, extent: int, bits: int, axes: tuple[tuple[str, int], ...]
) -> tuple[Array, Array, Array]:
    """The lanes, columns and first bits of elements of a matrix (extent, rows) of `bits` bits each."""
    per_word, tile = 32 // bits, layout.extent("c")
    lanes, words, shift = np.empty((3, extent, rows), np.int64)
    for r in range(rows):
        for c in range(extent):
            lane, element = layout.find(r=r, c=c % tile, **dict(axes))
            lanes[c, r], (words[c, r], shift[c, r]) = lane, divmod(element + c // tile * layout.elements, per_word)
    return lanes, words, shift * bits


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """An operand in tensor memory: where its elements lie from its address on."""

    lanes: Array
    words: Array
    shift: Array
    bits: int

    def at(self, base: int) -> tuple[Array, Array]:
        """Lanes and columns for an address."""
        lane, column = address(base)
        return self.lanes + lane, self.words + column

    def read(self, tensor: TensorMemory, cta: int, base: int) -> Array:
        """The elements as words of their size."""
        lanes, places = self.at(base)
        words = tensor.words[cta, lanes, places]
        kind = {32: np.uint32, 16: np.uint16}.get(self.bits, np.uint8)
        return (words >> self.shift.astype(np.uint32) & np.uint32((1 << self.bits) - 1)).astype(kind)


@lru_cache(64)
def left_operand(product: TensorProduct) -> PackedMatrix:
    """A, (stored k, rows)."""
    op, bits = product.opcode, product.container_bits("a")
    layout = multiplicand(product.shape.m, op.group, op.stationary, op.sparse, bits)
    return PackedMatrix(*_of_layout(layout, product.rows, product.stored_k, bits, ()), bits)


@lru_cache(64)
def scale_operand(product: TensorProduct, role: str) -> PackedMatrix:
    """The scales of A (vector, rows), or of B (vector, n)."""
    vector, first = product.opcode.vector, product.scale_ids["ab".index(role)]
    if role == "a" or product.parts == 1:
        rows = product.rows if role == "a" else product.shape.n
        return _scale_places(rows, vector, first)
    half = _scale_places(product.shape.n // 2, vector, first)
    lanes = np.concatenate([half.lanes, half.lanes + LANES // 2], axis=1)
    return PackedMatrix(lanes, np.tile(half.words, 2), np.tile(half.shift, 2), 8)


def _scale_places(rows: int, vector: int, first: int) -> PackedMatrix:
    return PackedMatrix(*_of_layout(scales(rows, vector), rows, vector, 8, (("b", first // vector),)), 8)


@lru_cache(64)
def nibbles_of(product: TensorProduct) -> PackedMatrix:
    layout = product.metadata
    if layout is None:
        raise TypeError(f"{product.spelling} takes no metadata")
    return PackedMatrix(*_of_layout(layout, product.rows, layout.columns, 4, ()), 4)


# Products


@meaning("tcgen05.mma")
def product(ctx: Context, bound: Bindings) -> Action:
    """D = A * B + D, later."""
    instruction = _Instruction(ctx, bound)

    def step(state: State, values: dict[str, Any], sel: Selection) -> None:
        for one, thread in one_by_one(sel):
            operands = {name: _value(read, one, thread) for name, read in values.items()}
            issued = _Issued(instruction, state, thread, operands)
            issued.begin()
            state.tensor.products.issue(np.array([thread]), lambda _, issued=issued: issued.execute())

    return acting(step, instruction.bind)


def _value(read: Any, one: Selection, thread: int) -> Any:
    """What one thread gives: an address, a word, or several."""
    if isinstance(read, list):
        words = cast("list[Array]", read)
        return [int(word[thread]) for word in words]
    if callable(read):
        return int(cast("Callable[[Selection], Array]", read)(one)[0])
    return int(cast("Array", read)[thread])


class _Instruction:
    """One product decoded: its operands by name, as they are bound to a state; `negated` is its predicate. `multiply`
    stands for the product of the target, and is told its form and by how much D is scaled down."""

    def __init__(self, ctx: Context, bound: Bindings) -> None:
        self.pc, self.target, self.multiply = ctx.pc, ctx.target, ctx.multiply
        self.opcode, self.negated = opcode_of(bound), False
        named = dict(zip((slot.name for slot in ctx.row.signatures_of(bound)[0]), ctx.operands, strict=False))
        self.in_memory = isinstance(named["x"], Address)
        predicate = named.pop("p")
        self.constants = {"s": ctx.integer(named.pop("s"))} if "s" in named else {}
        self.sources: dict[str, Callable[[State], Any]] = {n: _source(ctx, n, o) for n, o in named.items()}
        if isinstance(predicate, Immediate):
            self.constants["p"] = ctx.integer(predicate)
        else:
            self.sources["p"], self.negated = ctx.predicate(predicate)
        if bound.get("A"):
            self.constants["ashift"] = 1

    def bind(self, state: State) -> dict[str, Any]:
        return {name: source(state) for name, source in self.sources.items()}


def _source(ctx: Context, name: str, operand: Operand) -> Callable[[State], Any]:
    if isinstance(operand, Address):
        return ctx.address(operand, np.uint32)
    if name == "m":
        words = [ctx.source(item, "b32") for item in ctx.items(operand)]
        return lambda state: [word(state) for word in words]
    wide = name in ("x", "b", "z")
    source: Source = ctx.source(operand, "b64" if wide else "b32")
    return source


_WORDS = {"a": "x", "b": "b"}
"""The names of the words that describe A and B."""

_decoded, _compute = lru_cache(512)(TensorProduct.decode), lru_cache(512)(MatrixProduct.on)


class _Issued:
    """One product on its way: of one thread, for one or two CTAs."""

    def __init__(self, instruction: _Instruction, state: State, thread: int, words: dict[str, Any]) -> None:
        self.instruction, self.state, self.thread, self.words = instruction, state, thread, words
        try:
            self.product = _decoded(instruction.opcode, words["i"])
            self.compute = _compute(instruction.target, self.product) if instruction.multiply is None else partial(
                instruction.multiply, form=self.product, scale=instruction.constants.get("s", 0))  # fmt: skip
        except InstructionDescriptorError as error:
            raise FaultError(str(error), thread) from None
        except ValueError as error:
            raise MachineLimitError(f"cannot be run: {error}", thread) from None
        self.ctas = state.tensor.pair(cta_of(state, thread), instruction.opcode.group)
        self.shared = SharedMatrices(state, instruction.pc, thread)
        self.constants = instruction.constants

    @cached_property
    def adds(self) -> bool:
        """Whether D is added to."""
        constant = self.constants.get("p")
        return bool(self.words["p"]) ^ self.instruction.negated if constant is None else constant == 1

    @property
    def d(self) -> tuple[Array, Array]:
        """The lanes and columns of D."""
        lanes, places = of_result(self.product)
        lane, column = address(self.words["a"])
        return lanes + lane, places + column

    def operands(self) -> Iterator[tuple[str, PackedMatrix, int]]:
        """What is read from tensor memory besides D: the names in messages, and the addresses."""
        if self.instruction.in_memory:
            yield "A", left_operand(self.product), self.words["x"]
        if self.product.scale is not None:
            yield "the scales of A", scale_operand(self.product, "a"), self.words["sa"]
            yield "the scales of B", scale_operand(self.product, "b"), self.words["sb"]
        if self.product.metadata is not None:
            yield "the metadata", nibbles_of(self.product), self._metadata_address

    @property
    def _metadata_address(self) -> int:
        word, selector = self.words["e"], self.product.selector
        return word if not selector else (word & ~1) + selector

    def begin(self) -> None:
        """Checks where the operands lie, and tells of them. Raises FaultError if they lie where they cannot."""
        state, pc, thread = self.state, self.instruction.pc, self.thread
        lane, _ = address(self.words["a"])
        halves = self.product.result.extent("h") > 1
        if lane not in ((0, 16) if halves else (0,)):
            raise FaultError(f"expected D at lane 0{' or 16' if halves else ''} of tensor memory, got {lane}", thread)
        self.places = {role: self._places(role) for role in ("b" if self.instruction.in_memory else "ab")}
        for cta in self.ctas:
            for role, places in self.places.items():
                bits = 8 if self._packed else min(self.product.element(role).bits, 8)
                along_mn = self.product.along_mn["ab".index(role)]
                self.shared.tell(cta, self.words[_WORDS[role]], places, bits, along_mn)
            for name, operand, base in self.operands():
                lanes, places = operand.at(base)
                if int(lanes.max()) >= LANES:
                    raise FaultError(
                        f"{name} reach lane {int(lanes.max())} of tensor memory, which has {LANES}", thread
                    )
                state.tensor.check(cta, np.unique(places), thread, f"takes {name} from")
                tell(state, pc, "fetch", cta, lanes, places, thread)
            lanes, places = self.d
            state.tensor.check(cta, np.unique(places), thread, "adds to" if self.adds else "writes")
            if self.adds:
                tell(state, pc, "fetch", cta, lanes, places, thread)
            if (kept := self._kept(cta)) is not None:
                lanes, places = lanes[kept], places[kept]
            tell(state, pc, "copy", cta, lanes, places, thread)

    # Operands

    def _places(self, role: str) -> Array:
        """Where A, the part of a CTA, or B, lies in shared memory."""
        product, name = self.product, _WORDS[role]
        element, packed = product.element(role), self._packed
        depth = (product.stored_k if role == "a" else product.shape.k) // (2 if packed else 1)
        extent = product.rows if role == "a" else product.shape.n // product.opcode.group
        size = max(1, element.bits // 8)
        return self.shared.places(self.words[name], (depth, extent), size, product.along_mn["ab".index(role)], name)

    @property
    def _packed(self) -> bool:
        """Whether two elements share a byte in shared memory."""
        return self.product.a.bits == 4 and self.product.kind not in IN_BYTES

    def _matrix(self, role: str, cta: int) -> Array:
        """A or B of a CTA as words (k, rows or columns)."""
        if self._packed:
            return halves(self.shared.elements(cta, self.places[role], 8))
        return self.shared.elements(cta, self.places[role], self.product.element(role).bits)

    def _signed(self, matrix: Array, role: str) -> Array:
        if not self.product.negated["ab".index(role)] or self.instruction.multiply is not None:
            return matrix
        return matrix ^ matrix.dtype.type(1 << _sign(self.product, self.product.element(role)))

    def _kept(self, cta: int) -> Array | None:
        """Which elements of D are written (rows, n); None for all."""
        if "m" not in self.words:
            return None
        words = self.words["m"][4 * self.ctas.index(cta) :][:4]
        bits = np.array([words[lane // 32] >> lane % 32 & 1 for lane in range(LANES)], np.bool_)
        return ~bits[self.d[0]]

    def execute(self) -> None:
        """D = A * B + D in each of the CTAs."""
        product, tensor = self.product, self.state.tensor
        right = np.concatenate([self._matrix("b", cta) for cta in self.ctas], axis=1)
        right = self._signed(self._without_columns(right), "b")
        lanes, places = self.d
        for cta in self.ctas:
            left = (
                left_operand(product).read(tensor, cta, self.words["x"])
                if self.instruction.in_memory
                else self._matrix("a", cta)
            )
            if "ashift" in self.constants:
                left = np.concatenate([left[:, :1], left[:, :-1]], axis=1)
            left = self._signed(left, "a")
            old = tensor.words[cta, lanes, places]
            c = self._addend(old if product.d.bits == 32 else old.astype(np.uint16))
            sums = self.compute(left[..., None], right[..., None], c[..., None], self._extras(cta))[..., 0]
            kept = self._kept(cta)
            new = sums.astype(np.uint32)
            tensor.words[cta, lanes, places] = new if kept is None else np.where(kept, new, old)

    def _addend(self, words: Array) -> Array:
        """D as it is added to: scaled down, where a scale is given; zeros, where it is not added to."""
        if not self.adds:
            return np.zeros_like(words)
        scale = self.constants.get("s", 0)
        if not scale or self.instruction.multiply is not None:
            return words
        kind = np.float32 if words.dtype == np.uint32 else np.float16
        return np.ldexp(words.view(kind), -scale).astype(kind).view(words.dtype)

    def _without_columns(self, matrix: Array) -> Array:
        """B with zeros in the columns that a mask names."""
        mask = self.words.get("z", 0)
        if not mask >> 39 & 1:
            return matrix
        result = np.zeros_like(matrix)
        for start, count in _read_columns(mask, matrix.shape[1]):
            result[:, start : start + count] = matrix[:, start : start + count]
        return result

    def _extras(self, cta: int) -> SideOperands | None:
        product, tensor = self.product, self.state.tensor
        where, scale_a, scale_b = None, None, None
        if product.metadata is not None:
            nibbles = nibbles_of(product)
            words = tensor.metadata(cta, self._metadata_address).astype(np.uint64)
            joined = words[:, 0] | (words[:, -1] << np.uint64(32) if int(nibbles.words.max()) else np.uint64(0))
            try:
                where = columns(product, joined[:, None], 0)
            except NibbleError as error:
                raise FaultError(f"{error} (CTA {cta})", self.thread) from error
        if product.scale is not None:
            scale_a = scale_operand(product, "a").read(tensor, cta, self.words["sa"])[..., None]
            scale_b = scale_operand(product, "b").read(tensor, cta, self.words["sb"])[..., None]
        return SideOperands(where, scale_a, scale_b)


def _sign(product: TensorProduct, element: ElementType) -> int:
    """The bit of an element's word that is its sign."""
    return 5 if element.bits < 8 and product.kind in IN_BYTES else element.bits - 1


def _read_columns(mask: int, count: int) -> Iterator[tuple[int, int]]:
    """The columns of B that a zero-column mask leaves: first ones and numbers. PTX ISA 9.7.16.4.3"""
    ones, zeros = (mask >> 40 & 0xFF) + 1, (mask >> 48 & 0xFF) + 1
    starts = mask & 0xFFFFFFFF
    at, reads, gone = 0, not mask >> 32 & 1, starts & 0xFF
    while at < count:
        size = (zeros if reads else ones) - gone
        gone = 0
        if reads and size > 0:
            yield at, min(size, count - at)
        at, reads = at + max(size, 0), not reads
