"""Memory as threads see it: real bytes, checked accesses, initial values of variables; errors. PTX ISA 5.4.4."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from ....dialect.ptx.text.operands import ADDRESS_VALUE, MASKED_VALUE, evaluate
from ....dialect.ptx.text.reader import OperandError, elements
from ....dialect.ptx.text.syntax import REGISTER_BITS, Variable, bits_of, integer
from ...base.errors import WarploomError
from ...numerics.floats import Array

# What the interpreter raises.


@dataclass(frozen=True)
class WarpOrder:
    """An order of the warps in flight first: in each of `steps` a warp goes on until it has executed an instruction,
    given by its number in the code. Then `delayed` runs only where no other warp can."""

    steps: tuple[tuple[int, int], ...]
    delayed: int = -1


@dataclass(frozen=True)
class Finding:
    """Something a kernel did wrong, and where.

    `check` names the check. It is "load" for a kernel that cannot be run, "fault" for an error that ends a launch, and
    "limit" if the launch is not followed further. `line` and `column` are the instruction's in `file`. `cta`, `warp`,
    `lane` and `address` are those of the first occurrence, None if there is no single one. The address is in the state
    space of the access. `count` is the number of occurrences, and `places` the number of places in the file. A note is
    no error: a launch with only notes is right. `schedule` describes an order of warps in which it happens, one line
    for each turn of a warp, and `order` makes a launch run in that order. `source` is the line of the program that the
    instruction was compiled from, if the PTX has it.
    """

    check: str
    message: str
    file: str
    line: int
    column: int
    kernel: str
    cta: tuple[int, int, int] | None = None
    warp: int | None = None
    lane: int | None = None
    address: int | None = None
    count: int = 1
    places: int = 1
    severity: Literal["error", "note"] = "error"
    schedule: tuple[str, ...] = ()
    order: WarpOrder | None = None
    source: str = ""

    def __str__(self) -> str:
        place = [*([self.source] if self.source else ()), f"kernel {self.kernel}"]
        place += [f"CTA {self.cta}"] if self.cta is not None else []
        place += [f"warp {self.warp}"] if self.warp is not None else []
        place += [f"lane {self.lane}"] if self.lane is not None else []
        if self.address is not None and f"address {self.address:#x}" not in self.message:
            place.append(f"address {self.address:#x}")
        times = f"; {self.count} times" if self.count > 1 else ""
        times += f" at {self.places} places" if self.places > 1 else ""
        where = f"{self.file}:{self.line}:{self.column}: {self.severity}: {self.message} ({', '.join(place)}{times})"
        return "\n".join([where, *(f"    {step}" for step in self.schedule)])


class InterpreterError(WarploomError):
    """A PTX program that cannot be run, or that did something wrong while it ran. The message is one line for each
    thing wrong: `file:line:col: error: what`, then where (kernel, CTA, warp, lane, address) as far as it applies. What
    went wrong in a run is in `findings`, too; `trace` is what the launch did until then, if that was asked for."""

    trace: Any = None

    def __init__(self, message: str, findings: Sequence[Finding] = ()) -> None:
        super().__init__(message)
        self.findings = tuple(findings)


class DecodeError(Exception):
    """What is wrong with the statement being decoded; the decoder adds where."""


class FaultError(Exception):
    """An error of an instruction. The machine adds the place. `check` is that of the finding. `thread` is the first
    faulty thread of those in flight, None if there is no single one. `address` is the faulty address, if there is
    one."""

    check = "fault"

    def __init__(self, message: str, thread: int | None = None, address: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.thread = thread
        self.address = address


class MachineLimitError(FaultError):
    """A limit of the machine, or of an observer; the program has no fault."""

    check = "limit"


# Memory as threads see it: real bytes, each space an address range, every access checked.
#
# Global memory is the arguments' own bytes, each array at a made-up 64-bit address with a wide gap after it. Shared
# and local memory are one buffer for all CTAs in flight, of which each CTA or thread has its own part. Generic
# addresses are global ones, or lie in the windows of shared and local memory.

SPAN_BITS = 36
"""Each allocation has an address range of 64 GiB to itself, far more than it fills."""

SHARED_WINDOW = 1 << 56
LOCAL_WINDOW = 1 << 57
PARAM_WINDOW = 1 << 58

ARGUMENTS = 1 << 32
"""Where in the parameter space those of functions begin; they lie in local memory."""

RANK_BITS = 24
"""In shared memory of a cluster, the bits of an address below the rank of the CTA, which its own variables have too.
Source: an H200; CUTLASS clears bit 24 for the even one of two CTAs (`Sm100MmaPeerBitMask`)."""

HEAP = 1 << 19
"""The first of the numbers of allocations that are blocks of the heap of kernels."""

HEAP_BYTES = 8 << 20
"""The size of that heap where a program does not ask for another: cudaLimitMallocHeapSize."""

STACK_BYTES = 32 << 10
"""The stack of a thread, where functions that call themselves and `alloca` take memory."""

_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.complex128}


class Buffer:
    """Bytes seen as words of any width."""

    def __init__(self, name: str, data: Array, writable: bool = True) -> None:
        self.name = name
        self.data = data
        self.size = int(data.size)
        self.writable = writable
        self._views: dict[tuple[int, int], Array] = {}

    def move(self, data: Array) -> None:
        """Replaces the bytes by others of the same number."""
        self.data = data
        self._views.clear()

    def view(self, width: int, count: int = 1) -> Array:
        """The bytes as words of `width` bytes, or as rows of `count` such words."""
        view = self._views.get((width, count))
        if view is None:
            words = self.data[: self.size - self.size % (width * count)].view(_WORDS[width])
            view = self._views[width, count] = words if count == 1 else words.reshape(-1, count)
        return view


@dataclass(frozen=True, slots=True)
class Part:
    """Accesses to one buffer: element numbers, and which of the accesses they are (None: all)."""

    buffer: Buffer
    index: Array
    chosen: Array | None = None

    def of(self, values: Array) -> Array:
        """The values of these accesses, of an array with a value for each access."""
        return values if self.chosen is None else values[self.chosen]


def read_parts(parts: tuple[Part, ...], total: int, width: int, count: int = 1) -> Array:
    """The words of `total` accesses, or rows of `count` words, of `width` bytes each."""
    if len(parts) == 1 and parts[0].chosen is None:
        return parts[0].buffer.view(width, count).take(parts[0].index, axis=0)
    rows = np.zeros((total, count) if count > 1 else total, _WORDS[width])
    for part in parts:
        rows[... if part.chosen is None else part.chosen] = part.buffer.view(width, count).take(part.index, axis=0)
    return rows


def write_parts(parts: tuple[Part, ...], rows: Array) -> None:
    """Writes the words, or the rows of words, of accesses."""
    for part in parts:
        part.buffer.view(rows.itemsize, 1 if rows.ndim == 1 else rows.shape[1])[part.index] = part.of(rows)


def thread_of(access: int, lanes: Array | None) -> int:
    """The thread that makes an access, of the threads `lanes` (None: all)."""
    return access if lanes is None else int(lanes[access])


def _check_aligned(space: str, addresses: Array, width: int, lanes: Array | None) -> None:
    if width > 1 and int(np.bitwise_or.reduce(addresses)) & (width - 1):
        first = int(np.flatnonzero(addresses & (width - 1))[0])
        address = int(addresses[first])
        message = f"misaligned {space} access: address {address:#x} is not a multiple of {width}"
        raise FaultError(message, thread_of(first, lanes), address)


class Window:
    """A space in which each thread has its own part: shared memory (one part per CTA), local memory, or parameters.
    Each thread's part begins at byte `base`. Addresses count from 0 to `size`. Addresses below `plain` are in the own
    part; a subclass can lower `plain`."""

    def __init__(self, name: str, buffer: Buffer, base: Array, size: int) -> None:
        self.name = name
        self.buffer = buffer
        self.base = base
        self.size = size
        self.plain = size

    def locate(self, addresses: Array, width: int, lanes: Array | None) -> Array:
        """Element numbers of `width` bytes in the buffer, for int64 addresses of the threads `lanes` (None: all).
        Raises FaultError if an access leaves the space or is misaligned."""
        if not addresses.size:
            return addresses
        base = self.base if lanes is None else self.base[lanes]
        if int(addresses.view(np.uint64).max()) > self.plain - width:
            addresses, base = self.beyond(addresses, base, width, lanes)
        _check_aligned(self.name, addresses, width, lanes)
        return (addresses + base) >> (width.bit_length() - 1)

    def beyond(self, addresses: Array, base: Array, width: int, lanes: Array | None) -> tuple[Array, Array]:
        """Addresses and bases where some accesses exceed the threads' own windows. Raises FaultError always here, where
        each thread has its own part alone."""
        bad = (addresses < 0) | (addresses > self.size - width)
        first = int(np.flatnonzero(bad)[0])
        raise FaultError(
            f"{self.name} access out of bounds: {width} bytes at address {int(addresses[first]):#x}, "
            f"of {self.size} bytes{'' if self.size else '; the launch gives dynamic shared memory'}",
            thread_of(first, lanes),
            int(addresses[first]),
        )

    def parts(self, addresses: Array, width: int, lanes: Array | None) -> tuple[Part, ...]:
        """All accesses lie in the one buffer."""
        return (Part(self.buffer, self.locate(addresses, width, lanes)),)


class ParameterWindow(Window):
    """The parameters of the kernel and, from `ARGUMENTS` on, those of functions."""

    def __init__(self, buffer: Buffer, base: Array, size: int, local: Window) -> None:
        super().__init__("param", buffer, base, size)
        self.local = local

    def parts(self, addresses: Array, width: int, lanes: Array | None) -> tuple[Part, ...]:
        far = addresses >= ARGUMENTS
        if not far.any():
            return super().parts(addresses, width, lanes)
        if far.all():
            return self.local.parts(addresses - ARGUMENTS, width, lanes)
        threads = np.arange(addresses.size) if lanes is None else lanes
        near, away = np.flatnonzero(~far), np.flatnonzero(far)
        return (
            Part(self.buffer, self.locate(addresses[near], width, threads[near]), near),
            Part(self.local.buffer, self.local.locate(addresses[away] - ARGUMENTS, width, threads[away]), away),
        )


def static_places(names: Sequence[str]) -> dict[str, int]:
    """The addresses of a module's variables, the lowest ones of global memory."""
    return {name: number << SPAN_BITS for number, name in enumerate(names, 1)}


class GlobalBuffers:
    """Allocations by address range, and the windows that generic addresses reach."""

    def __init__(self, heap: Heap | None = None) -> None:
        self._allocations: dict[int, Buffer] = {}
        self.windows: dict[int, Window] = {}
        self.heap = Heap() if heap is None else heap
        self._allocations.update(self.heap.blocks)

    def add(self, buffer: Buffer) -> int:
        """Gives a buffer an address. The same bytes get the same address."""
        place = (buffer.data.ctypes.data, buffer.size)
        for number, buffer_ in self._allocations.items():
            if (buffer_.data.ctypes.data, buffer_.size) == place and buffer.size:
                return number << SPAN_BITS
        number = 1 + max((n for n in self._allocations if n < HEAP), default=0)
        self._allocations[number] = buffer
        return number << SPAN_BITS

    def buffers(self) -> list[Buffer]:
        """All allocated buffers, each once."""
        return list({id(buffer): buffer for buffer in self._allocations.values()}.values())

    def put(self, address: int, buffer: Buffer) -> None:
        """Gives a buffer an address of `static_places` or of the heap."""
        self._allocations[address >> SPAN_BITS] = buffer

    def mirrored(self, mirror: Callable[[Buffer], Buffer]) -> GlobalBuffers:
        """The same addresses with another buffer for each."""
        other = GlobalBuffers(self.heap)
        other._allocations = {number: mirror(buffer) for number, buffer in self._allocations.items()}
        return other

    def drop(self, address: int) -> None:
        """Takes away the buffer at an address."""
        del self._allocations[address >> SPAN_BITS]

    def parts(self, addresses: Array, width: int, lanes: Array | None) -> tuple[Part, ...]:
        """The accesses by buffer, for uint64 addresses of the threads `lanes` (None: all). Raises FaultError if an
        access is out of bounds or misaligned."""
        if not addresses.size:
            return ()
        _check_aligned("global", addresses, width, lanes)
        number = int(addresses[0]) >> SPAN_BITS
        buffer = self._allocations.get(number)
        if buffer is not None and buffer.size >= width:
            offsets = addresses - np.uint64(number << SPAN_BITS)
            if int(offsets.max()) <= buffer.size - width:
                return (Part(buffer, (offsets >> np.uint64(width.bit_length() - 1)).view(np.int64)),)
        return tuple(self._by_buffer(addresses, width, lanes))

    def _by_buffer(self, addresses: Array, width: int, lanes: Array | None) -> Iterator[Part]:
        numbers = addresses >> np.uint64(SPAN_BITS)
        for number in np.unique(numbers):
            chosen = np.flatnonzero(numbers == number)
            threads = chosen if lanes is None else lanes[chosen]
            some = addresses[chosen]
            start = int(number) << SPAN_BITS
            window = self.windows.get(start)
            if window is not None:
                index = window.locate((some - np.uint64(start)).view(np.int64), width, threads)
                yield Part(window.buffer, index, chosen)
            else:
                buffer, offsets = self._inside(some, start, width, threads)
                yield Part(buffer, offsets >> (width.bit_length() - 1), chosen)

    def _inside(self, addresses: Array, start: int, width: int, threads: Array) -> tuple[Buffer, Array]:
        buffer = self._allocations.get(start >> SPAN_BITS)
        offsets = (addresses - np.uint64(start)).view(np.int64)
        bad = np.flatnonzero(offsets > (-1 if buffer is None else buffer.size - width))
        if buffer is None or bad.size:
            first = int(bad[0])
            address = int(addresses[first])
            raise FaultError(self._outside(address, width), int(threads[first]), address)
        return buffer, offsets

    def _outside(self, address: int, width: int) -> str:
        """Names the allocation nearest to an address that no access may touch."""
        number, offset = address >> SPAN_BITS, address & ((1 << SPAN_BITS) - 1)
        buffer = self._allocations.get(number)
        text = f"global access out of bounds: {width} bytes at address {address:#x}"
        if offset >> (SPAN_BITS - 1):
            buffer, offset = self._allocations.get(number + 1), offset - (1 << SPAN_BITS)
        if buffer is None:
            allocations = ", ".join(b.name for n, b in self._allocations.items() if n < HEAP) or "none"
            return f"{text}, which is in no allocation (known: {allocations})"
        where = f"{-offset} bytes before" if offset < 0 else f"at byte {offset} of"
        return f"{text}, {where} {buffer.name} ({buffer.size} bytes)"


class Heap:
    """The heap of `malloc` in kernels. It persists between launches; every block has its own address range."""

    def __init__(self) -> None:
        self.blocks: dict[int, Buffer] = {}
        self._next = HEAP
        self._used = 0

    def allocate(self, memory: GlobalBuffers, size: int) -> int:
        """The address of a new block; 0 if so much is not left. Its bytes are all ones, which is NaN in every type."""
        taken = max(16, -(-size // 16) * 16)
        if not size or self._used + taken > HEAP_BYTES or self._next << SPAN_BITS >= SHARED_WINDOW:
            return 0
        number, self._next = self._next, self._next + 1
        self._used += taken
        self.blocks[number] = Buffer(f"a block of {size} bytes from malloc", np.full(size, 0xFF, np.uint8))
        memory.put(number << SPAN_BITS, self.blocks[number])
        return number << SPAN_BITS

    def release(self, memory: GlobalBuffers, address: int) -> bool:
        """Frees a block; False if none begins there."""
        block = self.blocks.pop(address >> SPAN_BITS, None) if not address & ((1 << SPAN_BITS) - 1) else None
        if block is None:
            return False
        self._used -= max(16, -(-block.size // 16) * 16)
        memory.drop(address)
        return True


class MemorySpaces(NamedTuple):
    """The memory spaces of the CTAs in flight. `cluster` is shared memory with that of the cluster's other CTAs."""

    memory: GlobalBuffers
    shared: Window
    cluster: Window
    local: Window
    param: Window

    def is_global(self, buffer: Buffer) -> bool:
        """Whether a buffer is of global memory."""
        return all(buffer is not own.buffer for own in (self.shared, self.local, self.param))


def check_writable(parts: tuple[Part, ...]) -> None:
    """Raises FaultError if a buffer is read-only."""
    for part in parts:
        if not part.buffer.writable:
            raise FaultError(f"store to {part.buffer.name}, which is read-only; pass a writable array")


# The first bytes of a module's variables: PTX ISA 5.4.4 (Initializers).

Address = Callable[[str], int | None]
"""The generic address of a variable or a function by its name; None if there is none."""


def size_of(variable: Variable) -> tuple[int, int]:
    """Bytes and alignment of a variable; an array of unknown size has none. Raises DecodeError for a type whose size is
    not known."""
    element = REGISTER_BITS.get(variable.type, 0) // 8 * variable.vector
    if not element:
        raise DecodeError(f"variable '{variable.name}' has type .{variable.type}, which is not supported")
    count = 1 if variable.count is None else variable.count
    return element * count, variable.align or element


def initial(variable: Variable, size: int, address: Address) -> Array:
    """The first bytes of a variable: zeros, or what its initialiser says, which gives an open array its size. Raises
    DecodeError for an initialiser that cannot be read, or that is too long."""
    if variable.init is None:
        return np.zeros(size, np.uint8)
    try:
        width, values = bits_of(variable.type) // 8, list(elements(variable))
        row = width * variable.vector * math.prod(variable.extents[1:])
        data = np.zeros(size or -(-(values[-1][0] + 1) * width // row) * row, np.uint8)
        for number, text in values:
            word = _word(variable.type, width, "".join(text.split()), address)
            data[number * width : (number + 1) * width] = np.frombuffer(word, np.uint8)
    except OperandError as error:
        raise DecodeError(f"variable '{variable.name}': {error}") from error
    except (ValueError, OverflowError) as error:
        raise DecodeError(f"variable '{variable.name}': initialiser '{variable.init}' is not supported") from error
    return data


def _word(type: str, size: int, text: str, address: Address) -> bytes:
    """One value of `size` bytes. Raises ValueError if it is no constant and no name."""
    if text[:2].lower() in ("0f", "0d") and len(text) in (10, 18) and "(" not in text:
        return int(text[2:], 16).to_bytes(size, "little")
    if type[0] == "f" or (type.startswith("b") and "." in text):
        return np.array(float(evaluate(text)), f"f{size}").tobytes()
    try:
        value = evaluate(text)
    except ValueError:
        value = _address(text, address)
    if isinstance(value, float):
        raise ValueError(text)
    return (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")


def _address(text: str, address: Address) -> int:
    """The address of `f`, `x+8`, `generic(x)`, or the byte of one that `0xFF00(x)` masks out."""
    if match := MASKED_VALUE.fullmatch(text):
        mask = integer(match["mask"])
        return (_address(match["inner"], address) & mask) >> ((mask & -mask).bit_length() - 1)
    if (match := ADDRESS_VALUE.fullmatch(text)) is None:
        return int(evaluate(text))
    base = address(match["generic"] or match["name"])
    if base is None:
        raise DecodeError(f"'{match['generic'] or match['name']}' is not declared in this module")
    return base + int(evaluate(match["offset"] or "0"))
