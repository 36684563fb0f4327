"""The CTAs in flight: registers, special registers, stacks, memory, what `printf` prints. PTX ISA 7.3, 9.7.17, 10."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, TypeAlias, TypeVar

import numpy as np

from ....dialect.isa.row import VECTORS
from ....dialect.ptx.text.syntax import Variable
from ...numerics.floats import Array
from .events import LANES, BoundStep, CtaQueue, Events, Geometry, Selection, unravel
from .flow import CLOCKS, Clock, Flow
from .mbarriers import MbarrierObjects, OperationGroups
from .memory import STACK_BYTES, FaultError, MemorySpaces, Window
from .tensor_memory import TensorMemory

MIN = 16
"""Bytes of the stack that a call takes at least; sizes are multiples of it."""


def align(offset: int, alignment: int = MIN) -> int:
    """The next multiple."""
    return -(-offset // alignment) * alignment


WORKSPACE, WORKSPACE_BYTES = "%envreg", 16
"""The name and the size of what the driver gives a cooperative launch; every launch is one here."""

RESERVED_BYTES = 1024
"""Shared memory that a kernel has beyond its own where it asks for the place."""


@dataclass(frozen=True, slots=True)
class RegisterSlot:
    """A register: row `index` of the bank of registers of `bits` bits. `name` and `type` are those of the text."""

    bits: int
    index: int
    name: str = field(default="", compare=False)
    type: str = field(default="", compare=False)


@dataclass
class StorageLayout:
    """The storage of a kernel per thread, CTA and launch, which grows while it is decoded. `arguments` are (first byte,
    size) of local memory for function arguments; `reserves` says whether CTAs have the reserved shared memory,
    `multiprocessors` how many the GPU has."""

    slots: dict[int, int] = field(default_factory=dict[int, int])
    shared: int = 0
    local: int = 0
    arguments: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    parameters: tuple[tuple[Variable, int], ...] = ()
    parameter_bytes: int = 0
    carry: RegisterSlot | None = None
    dropped: dict[int, RegisterSlot] = field(default_factory=dict[int, RegisterSlot])
    pointer: RegisterSlot | None = None
    results: int | None = None
    reserves: bool = False
    multiprocessors: int = 0

    def stack(self) -> RegisterSlot:
        """The stack pointer. The first call creates the stack."""
        if self.pointer is None:
            self.pointer = self.slot(64, "%SP")
        return self.pointer

    def drop(self, bits: int) -> RegisterSlot:
        """Where results go that nothing reads, one register of a size for all instructions."""
        if bits not in self.dropped:
            self.dropped[bits] = self.slot(bits)
        return self.dropped[bits]

    @property
    def stack_base(self) -> int:
        """Where in local memory the stack begins."""
        return align(self.local)

    @property
    def local_bytes(self) -> int:
        """Local memory of a thread, the stack included."""
        return self.local if self.pointer is None else self.stack_base + STACK_BYTES

    def slot(self, bits: int, name: str = "", type: str = "") -> RegisterSlot:
        index = self.slots.get(bits, 0)
        self.slots[bits] = index + 1
        return RegisterSlot(bits, index, name, type)


# The stack of each thread: what functions that call themselves keep there, and `alloca`. PTX ISA 7.3, 9.7.17.
#
# Registers and parameters of a function lie in one place for all its calls; a function that may be called while it
# runs has them saved when it is called, and restored when it returns. Its local variables lie on the stack.


@dataclass
class StackFrame:
    """The frame of a function: registers, the bytes of parameters, and `size` bytes of variables for each call.
    `addresses` are hidden registers with addresses of variables, and the offsets of these."""

    layout: StorageLayout
    slots: list[RegisterSlot] = field(default_factory=list[RegisterSlot])
    start: int = 0
    end: int = 0
    size: int = 0
    addresses: list[tuple[RegisterSlot, int]] = field(default_factory=list[tuple[RegisterSlot, int]])

    def place(self, size: int, alignment: int) -> int:
        """Room for a variable. Returns its offset."""
        offset = align(self.size, alignment)
        self.size = offset + size
        return offset

    def address(self, offset: int) -> RegisterSlot:
        """A register with the address of a byte of the function's variables."""
        slot = next((slot for slot, offset_ in self.addresses if offset_ == offset), None)
        if slot is None:
            slot = self.layout.slot(64, "%SP")
            self.slots.append(slot)
            self.addresses.append((slot, offset))
        return slot


class CallStack:
    """The calls that threads are in of one function that keeps a frame for each."""

    def __init__(self, frame: StackFrame, banks: Mapping[int, Array], local: Window) -> None:
        self._frame = frame
        index = {bits: [s.index for s in frame.slots if s.bits == bits] for bits in {s.bits for s in frame.slots}}
        self._banks = [(banks[bits], np.array(slots, np.int64)) for bits, slots in index.items()]
        self._parameters = local.buffer.data.reshape(local.base.size, -1)[:, frame.start : frame.end]
        self._pointer = stack_pointer(banks, frame.layout)
        self._addresses = [(banks[64][slot.index], offset) for slot, offset in frame.addresses]
        self._depth = np.zeros(local.base.size, np.int64)
        self._saved: list[tuple[list[Array], Array, Array]] = []
        self._base = frame.layout.stack_base

    def push(self, sel: Selection) -> None:
        """Saves what the function has, and gives it new variables. Raises FaultError if the stack is used up."""
        lanes = sel.threads
        pointer = grow(self._pointer, lanes, align(self._frame.size) + MIN)
        for depth in map(int, np.unique(self._depth[lanes])):
            some = lanes[self._depth[lanes] == depth]
            if depth == len(self._saved):
                banks = [np.empty((len(index), sel.total), bank.dtype) for bank, index in self._banks]
                self._saved.append((banks, np.empty_like(self._parameters), np.empty_like(self._pointer)))
            registers, parameters, pointers = self._saved[depth]
            for (bank, index), saved in zip(self._banks, registers, strict=True):
                saved[:, some] = bank[np.ix_(index, some)]
            parameters[some] = self._parameters[some]
            pointers[some] = pointer[np.searchsorted(lanes, some)]
        self._depth[lanes] += 1
        for slot, offset in self._addresses:
            slot[lanes] = pointer + np.uint64(self._base + offset)

    def pop(self, sel: Selection) -> None:
        """Restores what the function had before it was called."""
        lanes = sel.threads
        self._depth[lanes] -= 1
        for depth in map(int, np.unique(self._depth[lanes])):
            some = lanes[self._depth[lanes] == depth]
            registers, parameters, pointers = self._saved[depth]
            for (bank, index), saved in zip(self._banks, registers, strict=True):
                bank[np.ix_(index, some)] = saved[:, some]
            self._parameters[some] = parameters[some]
            self._pointer[some] = pointers[some]


def stack_pointer(banks: Mapping[int, Array], layout: StorageLayout) -> Array:
    """How many bytes of the stack each thread uses."""
    return banks[64][layout.stack().index]


def grow(pointer: Array, lanes: Array, size: Array | int) -> Array:
    """Takes bytes of the stack. Returns where they begin. Raises FaultError if there are not so many."""
    before = pointer[lanes]
    after = before + np.asarray(size, np.uint64)
    bad = np.flatnonzero((after > STACK_BYTES) | (after < before))
    if bad.size:
        message = f"the stack of {STACK_BYTES} bytes is used up; does the recursion end?"
        raise FaultError(message, int(lanes[bad[0]]))
    pointer[lanes] = after
    return before


# What `printf` in a kernel prints: C's formats, and the order of the lines. CUDA C++ Programming Guide, 10.35.
#
# Arguments lie one behind the other, each at a multiple of its size. What threads print in one step stands in their
# order, and everything in that of the CTAs.

Sink: TypeAlias = Callable[[str], object]
"""What takes the text that kernels print."""

PrintValue: TypeAlias = int | float | bytes

_SPEC = re.compile(
    rb"%(?:%|(?P<flags>[-+ #0]*)(?P<width>\*|\d*)(?:\.(?P<precision>\*|\d*))?(?P<length>hh|h|ll|l|j|z|t|q|L)?"
    rb"(?P<kind>[diouxXeEfFgGaAcsp]))"
)
_INTEGERS = "diouxX"
_BITS = {"hh": 8, "h": 16, "": 32}


@dataclass(frozen=True)
class Spec:
    """One conversion of a format, such as `%-8.3lf`; `width` and `precision` may be `*`."""

    flags: str
    width: str
    precision: str | None
    length: str
    kind: str

    @property
    def stars(self) -> int:
        """How many arguments the width and the precision take."""
        return (self.width == "*") + (self.precision == "*")

    @property
    def size(self) -> int:
        """Bytes of the argument."""
        return 4 if self.length in _BITS and self.kind not in "eEfFgGaAsp" else 8

    def show(self, value: PrintValue, stars: Sequence[int]) -> str:
        """The argument as text, by C's library, which writes it for a GPU too."""
        precision = "" if self.precision is None else f".{self.precision}"
        format = f"%{self.flags}{self.width}{precision}{'ll' * (self.kind in _INTEGERS)}{self.kind}".encode()
        values = [*map(ctypes.c_int, stars), self._passed(value)]
        text = ctypes.create_string_buffer(1 + _snprintf()(None, 0, format, *values))
        _snprintf()(text, len(text), format, *values)
        return text.raw[:-1].decode("latin-1")

    def _passed(self, value: PrintValue) -> object:
        """The argument as C takes it; integers with 64 bits."""
        if isinstance(value, bytes | float):
            return ctypes.c_char_p(value) if isinstance(value, bytes) else ctypes.c_double(value)
        if self.kind not in _INTEGERS:
            return ctypes.c_void_p(value) if self.kind == "p" else ctypes.c_int(value & 0xFF)
        bits = _BITS.get(self.length, 64)
        number = value & ((1 << bits) - 1)
        return ctypes.c_longlong(number - (number >> bits - 1 << bits) if self.kind in "di" else number)


@cache
def _snprintf() -> Callable[..., int]:
    function = ctypes.CDLL(None).snprintf
    function.argtypes = (ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p)
    return function


def parse(text: bytes) -> list[bytes | Spec]:
    """A format as text and conversions, in their order; what is no conversion is text."""
    pieces: list[bytes | Spec] = []
    end = 0
    for match in _SPEC.finditer(text):
        pieces.append(text[end : match.start()])
        groups = {name: part.decode() if part is not None else None for name, part in match.groupdict().items()}
        if groups["kind"] is None:
            pieces.append(b"%")
        else:
            words = (groups[name] or "" for name in ("length", "kind"))
            pieces.append(Spec(groups["flags"] or "", groups["width"] or "", groups["precision"], *words))
        end = match.end()
    return [*pieces, text[end:]]


def arguments(pieces: Sequence[bytes | Spec]) -> Iterator[tuple[int, int, str]]:
    """The offset, size and kind of each argument of a format. The kind is the conversion's, or `*` for a width."""
    offset = 0
    for piece in pieces:
        if isinstance(piece, Spec):
            for size, kind in [(4, "*")] * piece.stars + [(piece.size, piece.kind)]:
                offset = align(offset, size)
                yield offset, size, kind
                offset += size


def show(pieces: Sequence[bytes | Spec], values: Sequence[PrintValue]) -> str:
    """A format with its arguments put in."""
    values_ = iter(values)
    text: list[str] = []
    for piece in pieces:
        if isinstance(piece, bytes):
            text.append(piece.decode("latin-1"))
            continue
        stars = [_signed(next(values_)) for _ in range(piece.stars)]
        text.append(piece.show(next(values_), stars))
    return "".join(text)


def _signed(value: PrintValue) -> int:
    number = int(value)
    return number - (number >> 31 << 32)


@dataclass
class Prints:
    """What the CTAs in flight have printed so far."""

    lines: list[tuple[int, int, str]] = field(default_factory=list[tuple[int, int, str]])
    steps: int = 0

    def add(self, texts: Sequence[tuple[int, int, str]]) -> None:
        """Texts of one step, each with the numbers of its CTA and of its thread there."""
        self.lines += [(cta, self.steps, text) for cta, _, text in sorted(texts, key=lambda item: item[:2])]
        self.steps += 1

    def flush(self, sink: Sink) -> None:
        """Prints everything, CTA by CTA."""
        text = "".join(text for _, _, text in sorted(self.lines, key=lambda line: line[:2]))
        self.lines.clear()
        if text:
            sink(text.encode("latin-1").decode(errors="replace"))


class State:
    """Everything the steps of the CTAs in flight read and write. `addresses` are those of the module's variables.
    `observer` is who looks on, if anybody does."""

    flow: Flow
    copies: OperationGroups
    warpgroups: OperationGroups
    bulk_groups: OperationGroups
    mbarriers: MbarrierObjects
    queue: CtaQueue
    tensor: TensorMemory
    prints: Prints
    observer: Events | None = None

    def __init__(
        self, geometry: Geometry, slots: dict[int, int], memory: MemorySpaces, addresses: dict[str, int]
    ) -> None:
        self.geometry = geometry
        self.threads = geometry.threads
        self.warps = geometry.warps
        self.memory = memory
        self.addresses = addresses
        self.dynamic_bytes = 0
        self.shared_bytes = 0
        self.reserved = self.multiprocessors = 0
        self.explicit_cluster = False
        self.all = Selection(None, self.threads)
        self.live = geometry.thread_in_cta() < geometry.threads_per_cta
        self.banks = {bits: np.zeros((n, self.threads), _BANKS[bits]) for bits, n in slots.items()}
        self.stacks: dict[str, CallStack] = {}
        self._specials: dict[str, Array] = {}
        self.clock = Clock(self.threads)

    def special(self, name: str) -> Array:
        """The values of a special register, made once."""
        if name not in self._specials:
            self._specials[name] = SPECIALS[name](self)
        return self._specials[name]


_BANKS = {1: np.bool_, 8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64, 128: np.complex128}
"""Two words of 64 bits stand for one of 128: numpy has no such integers, and complex numbers are as wide."""

Source: TypeAlias = Callable[[State], Array]
"""An operand: given a state, one value for each of its threads. Registers are views of the state's own."""

Action: TypeAlias = Callable[[State], BoundStep]
"""A decoded instruction: given a state, its step."""

T = TypeVar("T")


def acting(step: Callable[..., int | None], *bound: Callable[[State], Any]) -> Action:
    """An action from a step. The step takes the state, the operands bound to it, and the selected threads."""
    return lambda state: partial(step, state, *(operand(state) for operand in bound))


def absent(state: State) -> None:
    """The source of a missing operand."""


def all_of(operands: Sequence[Callable[[State], T]]) -> Callable[[State], list[T]]:
    """Several operands as one."""
    return lambda state: [operand(state) for operand in operands]


# Special registers, by name: one value for each thread in flight.
#
# Source: PTX ISA, chapter 10 (Special Registers). CTAs are spread over the multiprocessors in turn, of which there are
# as many as its target has. What the driver says in `%envreg1` and `%envreg2`, and what the reserved part of shared
# memory is for, CUDA's header of cooperative groups shows: the address where the CTAs of a grid meet, and room for the
# warps of a tile that is wider than one.


def _thread(axis: int) -> Source:
    def values(state: State) -> Array:
        numbers = np.arange(state.geometry.warps_per_cta * LANES)
        return state.geometry.in_cta(unravel(numbers, state.geometry.block)[axis])

    return values


def _per_cta(values: Callable[[Geometry, Array, Array], Array]) -> Source:
    """What follows from the number of a CTA's cluster and from its rank there."""

    def per_thread(state: State) -> Array:
        geometry = state.geometry
        cluster, rank = np.divmod(geometry.first + np.arange(geometry.ctas), geometry.cluster_size)
        return geometry.per_cta(values(geometry, cluster, rank))

    return per_thread


def _cta(axis: int) -> Source:
    return _per_cta(
        lambda g, cluster, rank: unravel(cluster, g.clusters)[axis] * g.cluster[axis] + unravel(rank, g.cluster)[axis]
    )


def _constant(value: Callable[[State], int]) -> Source:
    return lambda state: np.full(state.threads, value(state), np.int64)


def _lane_mask(bits: Callable[[int], int]) -> Source:
    table = np.array([bits(lane) & 0xFFFFFFFF for lane in range(LANES)], np.uint32)
    return lambda state: table[state.geometry.lane()]


SPECIALS: dict[str, Source] = {
    **{f"%tid.{a}": _thread(i) for i, a in enumerate("xyz")},
    **{f"%ntid.{a}": _constant(lambda s, i=i: s.geometry.block[i]) for i, a in enumerate("xyz")},
    **{f"%ctaid.{a}": _cta(i) for i, a in enumerate("xyz")},
    **{f"%nctaid.{a}": _constant(lambda s, i=i: s.geometry.grid[i]) for i, a in enumerate("xyz")},
    **{f"%clusterid.{a}": _per_cta(lambda g, c, _, i=i: unravel(c, g.clusters)[i]) for i, a in enumerate("xyz")},
    **{f"%nclusterid.{a}": _constant(lambda s, i=i: s.geometry.clusters[i]) for i, a in enumerate("xyz")},
    **{f"%cluster_ctaid.{a}": _per_cta(lambda g, _, r, i=i: unravel(r, g.cluster)[i]) for i, a in enumerate("xyz")},
    **{f"%cluster_nctaid.{a}": _constant(lambda s, i=i: s.geometry.cluster[i]) for i, a in enumerate("xyz")},
    # The fourth element is unused, and 0 (10.1 to 10.13).
    **{f"{name}.w": _constant(lambda s: 0) for name in VECTORS},
    "%cluster_ctarank": _per_cta(lambda g, cluster, rank: rank),
    "%cluster_nctarank": _constant(lambda s: s.geometry.cluster_size),
    "%is_explicit_cluster": _constant(lambda s: s.explicit_cluster),
    "%laneid": lambda state: state.geometry.lane(),
    "%warpid": lambda state: state.geometry.thread_in_cta() // LANES,
    "%nwarpid": _constant(lambda s: s.geometry.warps_with_threads),
    "%lanemask_eq": _lane_mask(lambda n: 1 << n),
    "%lanemask_lt": _lane_mask(lambda n: (1 << n) - 1),
    "%lanemask_le": _lane_mask(lambda n: (2 << n) - 1),
    "%lanemask_gt": _lane_mask(lambda n: -(2 << n)),
    "%lanemask_ge": _lane_mask(lambda n: -(1 << n)),
    "%dynamic_smem_size": _constant(lambda s: s.dynamic_bytes),
    "%total_smem_size": _constant(lambda s: s.shared_bytes),
    "%aggr_smem_size": _constant(lambda s: s.shared_bytes),
    "%reserved_smem_offset_begin": _constant(lambda s: s.reserved),
    "%reserved_smem_offset_end": _constant(lambda s: s.reserved + RESERVED_BYTES),
    "%reserved_smem_offset_cap": _constant(lambda s: s.reserved + RESERVED_BYTES),
    "%reserved_smem_offset_0": _constant(lambda s: s.reserved),
    "%reserved_smem_offset_1": _constant(lambda s: s.reserved),
    "%envreg1": _constant(lambda s: s.addresses[WORKSPACE] >> 32),
    "%envreg2": _constant(lambda s: s.addresses[WORKSPACE] & 0xFFFFFFFF),
    "%smid": lambda s: s.geometry.per_cta((s.geometry.first + np.arange(s.geometry.ctas)) % s.multiprocessors),
    "%nsmid": _constant(lambda s: s.multiprocessors),
    "%gridid": _constant(lambda s: 1),
    **{name: lambda s, name=name: s.clock.values(name, np.int64) for name in CLOCKS},
}
