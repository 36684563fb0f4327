"""Functions that the driver gives to kernels: `vprintf` and what it prints, `__assertfail`, `malloc` and `free`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from ....dialect.ptx.text.syntax import (
    Operand,
    Symbol,
)
from ...numerics.floats import Array
from .decode import Context
from .events import Selection
from .memory import ARGUMENTS, FaultError, read_parts
from .state import Action, Source, State, VariablePlace, acting, align, all_of

# Source: PTX Writer's Guide to Interoperability, 4 (System Calls); CUDA C++ Programming Guide, 10.34 to 10.36.

Run: TypeAlias = Callable[[State, Selection, Sequence[Array]], "Array | None"]
"""What a function does for the selected threads: arguments as uint64, one value for each; what it returns."""

_LONGEST = 1 << 16
"""Bytes after which a text without an end is cut."""


@dataclass(frozen=True)
class Builtin:
    """A function of the driver: bytes of its arguments and of its result, and what it does."""

    arguments: tuple[int, ...]
    result: int
    run: Run


def call(ctx: Context, name: str, results: Sequence[Operand], actuals: Sequence[Operand]) -> Action:
    """A call of a function of the driver."""
    builtin = BUILTINS[name]
    for what, sizes, operands in (("arguments", builtin.arguments, actuals), ("results", (builtin.result,), results)):
        sizes = tuple(size for size in sizes if size)
        if len(sizes) != len(operands):
            ctx.fail(f"{name} has {len(sizes)} {what}, got {len(operands)}")
    reads = [_value(ctx, o, size, ctx.source) for o, size in zip(actuals, builtin.arguments, strict=True)]
    writes = [_value(ctx, o, builtin.result, ctx.dest) for o in results]

    def step(state: State, sources: list[Array], targets: list[Array], sel: Selection) -> None:
        answer = builtin.run(state, sel, [sel.pick(source).astype(np.uint64) for source in sources])
        for target in targets:
            sel.put(target, np.zeros(sel.count, np.uint64) if answer is None else answer)

    return acting(step, all_of(reads), all_of(writes))


def _value(ctx: Context, operand: Operand, size: int, take: Callable[[Operand, str], Source]) -> Source:
    """An argument or a result of `size` bytes: a `.param` variable, or the source that `take` makes of the operand."""
    place = ctx.names.place(operand.name) if isinstance(operand, Symbol) and operand.name != "_" else None
    if place is None or not place.size:
        return take(operand, f"b{8 * size}")
    if place.size != size:
        ctx.fail(f"expected a .param variable of {size} bytes, got one of {place.size}")
    return parameter_word(place, size)


def parameter_bytes(place: VariablePlace | None, size: int) -> Source:
    """The bytes of a function's parameter, a row for each thread."""

    def read(state: State) -> Array:
        local, start = state.memory.local, (place.address(state) if place else 0) - ARGUMENTS
        return local.buffer.data.reshape(local.base.size, -1)[:, start : start + size]

    return read


def parameter_word(place: VariablePlace | None, size: int) -> Source:
    """A parameter of 1, 2, 4 or 8 bytes, as a word of each thread."""
    read = parameter_bytes(place, size)
    return lambda state: read(state).view(f"u{size}")[:, 0]


# Memory


def _text(state: State, address: int, lane: int) -> bytes:
    """The bytes from a generic address to the first zero."""
    (part,) = state.memory.memory.parts(np.array([address], np.uint64), 1, np.array([lane]))
    at = int(part.index[0])
    return part.buffer.data[at : at + _LONGEST].tobytes().partition(b"\0")[0]


# The functions


def _vprintf(state: State, sel: Selection, values: Sequence[Array]) -> Array:
    """Prints what the format says. The result is the number of arguments; -1 without a format."""
    formats, places = values
    lanes, counts = sel.threads, np.full(sel.count, -1, np.int32)
    texts: list[tuple[int, int, str]] = []
    for address in np.unique(formats[formats != 0]):
        chosen = np.flatnonzero(formats == address)
        pieces = parse(_text(state, int(address), int(lanes[chosen[0]])))
        fields = list(arguments(pieces))
        counts[chosen] = len(fields)
        columns = [
            _column(state, places[chosen] + np.uint64(at), size, kind, lanes[chosen]) for at, size, kind in fields
        ]
        for i, thread in enumerate(lanes[chosen].tolist()):
            warp = thread % state.warps
            cta, inner = divmod(warp, state.geometry.warps_per_cta)
            texts.append((cta, inner * 32 + thread // state.warps, show(pieces, [column[i] for column in columns])))
    state.prints.add(texts)
    return counts


def _column(state: State, addresses: Array, size: int, kind: str, lanes: Array) -> list[PrintValue]:
    """One argument of `size` bytes of every thread: floats, integers, or the text that a pointer leads to."""
    words = read_parts(state.memory.memory.parts(addresses, size, lanes), addresses.size, size)
    if kind in "eEfFgGaA":
        return words.view(np.float64).tolist()
    if kind == "s":
        pairs = zip(words.tolist(), lanes.tolist(), strict=True)
        return [_text(state, address, lane) if address else b"(null)" for address, lane in pairs]
    return words.tolist()


def _assertfail(state: State, sel: Selection, arguments: Sequence[Array]) -> None:
    """Raises:
    FaultError: always, with what the assertion says.
    """
    lanes = sel.threads
    first = int(lanes[0])
    message, file, line, function = (int(values[0]) for values in arguments[:4])
    text, where, name = (_one_line(_text(state, at, first)) for at in (message, file, function))
    others = f"; {sel.count - 1} other threads fail here, too" if sel.count > 1 else ""
    raise FaultError(
        f"assertion `{text}` failed at {where}:{line} in {name}, thread {state.geometry.thread_index(first)}{others}",
        first,
    )


def _one_line(text: bytes) -> str:
    """A text of a kernel as an error can show it: what cannot be printed is written out."""
    shown = text.decode(errors="replace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)


def _malloc(state: State, sel: Selection, values: Sequence[Array]) -> Array:
    """Memory of the heap, one block for each thread; 0 where there is none left."""
    memory = state.memory.memory
    return np.array([memory.heap.allocate(memory, size) for size in values[0].tolist()], np.uint64)


def _free(state: State, sel: Selection, values: Sequence[Array]) -> None:
    """Raises:
    FaultError: for what is no block of the heap, or no longer.
    """
    memory = state.memory.memory
    for address, thread in zip(values[0].tolist(), sel.threads.tolist(), strict=True):
        if address and not memory.heap.release(memory, address):
            message = f"free of {address:#x}, which malloc has not given, or which is free already"
            raise FaultError(message, thread, address)


BUILTINS: Mapping[str, Builtin] = MappingProxyType({
    "vprintf": Builtin((8, 8), 4, _vprintf),
    "__assertfail": Builtin((8, 8, 4, 8, 8), 0, _assertfail),
    "malloc": Builtin((8,), 8, _malloc),
    "free": Builtin((8,), 0, _free),
})  # fmt: skip
"""By name. A module that defines a function of the name itself has its own."""


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
        if self.kind in "eEfFgGaAsp":
            return 8
        return 4 if self.length in _BITS else 8

    def show(self, value: PrintValue, stars: Sequence[int]) -> str:
        """The argument as text."""
        stars_ = iter(stars)
        width = next(stars_) if self.width == "*" else int(self.width or "0")
        precision = (
            next(stars_) if self.precision == "*" else None if self.precision is None else int(self.precision or 0)
        )
        flags = self.flags + ("-" if width < 0 else "")
        text = self._plain(value, flags, None if precision is not None and precision < 0 else precision)
        zero = "0" in flags and "-" not in flags and self.kind not in "csp"
        if zero and not (precision is not None and self.kind in "diouxX") and not re.search("inf|nan", text, re.I):
            lead = re.match(r"[-+ ]?(0[xX])?", text)
            at = lead.end() if lead and self.kind not in "diu" else len(text) - len(text.lstrip("-+ "))
            return text[:at] + text[at:].rjust(abs(width) - at, "0")
        return text.ljust(abs(width)) if "-" in flags else text.rjust(abs(width))

    def _plain(self, value: PrintValue, flags: str, precision: int | None) -> str:
        if isinstance(value, bytes):
            return value[:precision].decode("latin-1")
        sign = "+" if "+" in flags else " " if " " in flags else ""
        if isinstance(value, float):
            return self._float(value, sign, "#" if "#" in flags else "", precision)
        if self.kind == "c":
            return chr(value & 0xFF)
        if self.kind == "p":
            return f"{value:#x}" if value else "(nil)"
        bits = _BITS.get(self.length, 64)
        number = value & ((1 << bits) - 1)
        if self.kind in "di":
            number -= number >> (bits - 1) << bits
            return f"{'-' if number < 0 else sign}{_digits(abs(number), 'd', precision)}"
        digits = _digits(number, self.kind.replace("u", "d"), precision)
        if "#" in flags and self.kind == "o":
            return digits if digits[:1] == "0" else f"0{digits}"
        return (f"0{self.kind}" if "#" in flags and number and self.kind in "xX" else "") + digits

    def _float(self, value: float, sign: str, alternate: str, precision: int | None) -> str:
        if self.kind in "aA":
            text = _hexadecimal(value, precision)
            text = text if text[0] == "-" else sign + text
            text = text.replace("p", ".p") if alternate and "." not in text else text
            return text.upper() if self.kind == "A" else text
        return f"%{sign}{alternate}.{6 if precision is None else precision}{self.kind}" % value


def _digits(number: int, base: str, precision: int | None) -> str:
    return "" if precision == 0 and number == 0 else f"{number:{base}}".rjust(precision or 0, "0")


def _hexadecimal(value: float, precision: int | None) -> str:
    """`%a`: one digit before the point, trailing zeros left out unless a precision asks for them."""
    if not np.isfinite(value) or precision is not None:
        return f"{value}" if not np.isfinite(value) else _rounded_hexadecimal(value, precision or 0)
    head, _, exponent = value.hex().partition("p")
    return f"{head.rstrip('0').rstrip('.') if '.' in head else head}p{exponent}"


def _rounded_hexadecimal(value: float, precision: int) -> str:
    mantissa, exponent = np.frexp(abs(value))
    scaled = round(float(mantissa) * 2 * 16**precision)
    integer, fraction = divmod(scaled, 16**precision)
    digits = f".{fraction:0{precision}x}" if precision else ""
    return f"{'-' if np.signbit(value) else ''}0x{integer:x}{digits}p{int(exponent) - 1 if value else 0:+d}"


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
