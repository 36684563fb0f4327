"""What `printf` in a kernel prints: C's formats, and the order of the lines. CUDA C++ Programming Guide, 10.35.

Arguments lie one behind the other, each at a multiple of its size. What threads print in one step stands in their
order, and everything in that of the CTAs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

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
        given = iter(stars)
        width = next(given) if self.width == "*" else int(self.width or "0")
        precision = (
            next(given) if self.precision == "*" else None if self.precision is None else int(self.precision or 0)
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
    whole, fraction = divmod(scaled, 16**precision)
    digits = f".{fraction:0{precision}x}" if precision else ""
    return f"{'-' if np.signbit(value) else ''}0x{whole:x}{digits}p{int(exponent) - 1 if value else 0:+d}"


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
    """Offset, bytes and kind of each argument of a format: kinds are those of conversions, `*` that of a width."""
    offset = 0
    for piece in pieces:
        if isinstance(piece, Spec):
            for size, kind in [(4, "*")] * piece.stars + [(piece.size, piece.kind)]:
                offset = -(-offset // size) * size
                yield offset, size, kind
                offset += size


def show(pieces: Sequence[bytes | Spec], values: Sequence[PrintValue]) -> str:
    """A format with its arguments put in."""
    given = iter(values)
    text: list[str] = []
    for piece in pieces:
        if isinstance(piece, bytes):
            text.append(piece.decode("latin-1"))
            continue
        stars = [_signed(next(given)) for _ in range(piece.stars)]
        text.append(piece.show(next(given), stars))
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
