"""Every row of the dialect's instructions as statements, with registers that they fit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from random import Random

from warploom.dialect.isa.row import ADDRESS, CONSTANT, DISCARDED, LABEL, TENSOR, TEXTURE, VECTOR, Slot
from warploom.dialect.ptx.instructions import FAMILIES
from warploom.dialect.ptx.rows.grammar import NAME_PARTS, PatternRow
from warploom.dialect.ptx.text.syntax import PACKED_BITS, REGISTER_BITS
from warploom.dialect.ptx.verifier import replacing

BY_SPELLING = {form.spelling: form for forms in FAMILIES.values() for form in forms()}
"""Every spelling of the matrix instructions that the text has, and its form."""

DECLARATIONS = "\n".join(f".reg .{t} %{t}_<{128 if t == 'b32' else 8}>;" for t in REGISTER_BITS if t != "b128")
SYMBOLS = "\n.shared .align 16 .b8 smem[1024];\nTARGETS: .branchtargets LABEL;\n"
WIDE = "\n.reg .b128 %b128_<8>;"
"""Known from PTX 8.3."""


def register_type(type: str) -> str:
    """A register type that may hold an instruction's type."""
    return f"b{PACKED_BITS[type]}" if type in PACKED_BITS else type


def operand(row: PatternRow, slot: Slot, number: int) -> str:
    """An operand that fits the slot: a register wherever one may stand."""
    if slot.kind == ADDRESS:
        return "[%b32_7]" if slot.type == "tensor" else "[%b64_7]"
    if slot.kind == TENSOR:
        fields = "".join(f"{operand(row, field, number)}, " for field in replacing(slot))
        return f"[%b64_6, {fields}{{" + ", ".join(f"%b32_{i}" for i in range(slot.count)) + "}]"
    if slot.kind == TEXTURE and slot.type == "u64":
        return f"[%b32_6, {', '.join(['%b64_6'] * (slot.count - 1))}]"
    if slot.kind == TEXTURE:
        return "[%b64_6, {" + ", ".join(f"%b32_{i}" for i in range(slot.count)) + "}]" if slot.count else "[%b64_6]"
    if slot.kind == DISCARDED:
        return "_"
    if slot.kind == CONSTANT:
        return re.search(r"-?\d+", slot.span)[0] if slot.span else "1"  # pyright: ignore[reportOptionalSubscript]
    if slot.kind == LABEL:
        return "TARGETS" if row.root == "brx" else "LABEL"
    type = register_type(slot.type)
    several = "{" + ", ".join(f"%{type}_{i}" for i in range(slot.count)) + "}"
    value = several if slot.kind == VECTOR else f"%{type}_{number}"
    return f"{value}|%pred_{number}" if slot.pair == "||" else value


def instructions(row: PatternRow, spellings: Iterable[str]) -> list[str]:
    """The spellings with operands; without those that only a 32-bit machine has."""
    lines: list[str] = []
    for spelling in spellings:
        bindings = row.match(spelling)
        assert bindings is not None, spelling
        if row.notation == "a:..." or (row.root == "cvta" and bindings.get("T") == "u32"):
            continue
        operands = [operand(row, slot, i) for i, slot in enumerate(row.signatures_of(bindings)[0])]
        lines.append(f"{spelling} {', '.join(operands)};")
    return lines


SPACES = ("const", "global", "local", "param", "shared", "shared::cta", "shared::cluster")


def is_type(word: str) -> bool:
    """Whether a qualifier names a type."""
    return re.fullmatch(r"pred|t?b?f\d+(x\d)?|[bsu]\d+(x\d)?|u?e\dm\d(p\d)?(x\d)?|s2f6x2", word) is not None


FORMATS = ("b8x16", "b6x16_p32", "b4x16_p64")

PRIORITIES = ("L2::evict_last", "L2::evict_normal", "L2::evict_first", "L2::evict_unchanged")
"""Of two priorities of `createpolicy` the first is that of the accesses it is made for."""

KINDS: tuple[Callable[[str], bool], ...] = (
    is_type, SPACES.__contains__, FORMATS.__contains__, PRIORITIES.__contains__,
)  # fmt: skip
"""Words that keep their order among their like."""


def shuffled(opcode: str, order: Random) -> str:
    """The same qualifiers in another order: the opcode's name stays, types and spaces keep their order."""
    first, *words = opcode.split(".")
    parts = NAME_PARTS.get(first, frozenset())
    name = next((i for i, word in enumerate(words) if f".{word}" not in parts), len(words))
    mixed = order.sample(words[name:], len(words) - name)
    for kind in KINDS:
        kept = iter([word for word in words[name:] if kind(word)])
        mixed = [next(kept) if kind(word) else word for word in mixed]
    return ".".join((first, *words[:name], *mixed))
