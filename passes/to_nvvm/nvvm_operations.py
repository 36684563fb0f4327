"""Instructions as operations of `nvvm`: found by the PTX line that each prints."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import cast

from xdsl.dialects.builtin import IntegerType, UnitAttr, VectorType
from xdsl.dialects.llvm import LLVMPointerType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import EqAttrConstraint, IRDLOperation, OptOperandDef, VarOperandDef

from ...dialect.mlir.nvvm import OPERATIONS
from ...dialect.mlir.nvvm_types import (
    COUNT,
    ELEMENTS,
    PRESENT,
    SPACE,
    SUMS,
    TYPED,
    WORD,
    Template,
    TextPlace,
    property_of,
    templates,
)
from ...dialect.ptx.instructions import canonical
from ...dialect.ptx.text.syntax import Address, Immediate, Indexed, Operand, Pair, Register, Vector, operand_text
from .instruction import POINTERS, PtxInstruction, register_type, struct, value_type, width


@cache
def _templates() -> dict[str, list[tuple[type[IRDLOperation], Template]]]:
    return templates(OPERATIONS)


def convert(of: PtxInstruction) -> bool:
    """Adds the NVVM operation of an instruction. Returns False if there is none."""
    opcode = canonical(of.opcode)
    for kind, made in _templates().get(of.words[0], ()):
        match = made.pattern.fullmatch(opcode)
        if match is not None and (build := _Match(of, kind, made, match).build()) is not None:
            build()
            return True
    return False


class _Match:
    """An instruction and an operation whose opcode it has."""

    def __init__(self, of: PtxInstruction, kind: type[IRDLOperation], made: Template, match: re.Match[str]) -> None:
        self.of = of
        self.kind = kind
        self.definition = kind.get_irdl_definition()
        self.made = made
        self.match = match
        self.operands: dict[str, Callable[[], list[SSAValue]]] = {}
        self.results: dict[str, tuple[list[Operand], list[Attribute]]] = {}
        self.properties: dict[str, Attribute] = {}

    def build(self) -> Callable[[], None] | None:
        """A function that adds the operation; None if the operands do not fit."""
        try:
            fits = self._opcode() and self._operands()
        except ValueError:
            return None
        return self._add if fits else None

    def _opcode(self) -> bool:
        for piece in self.made.pieces:
            if piece.kind != WORD:
                continue
            text = self.match[piece.name]
            if piece.texts:
                word = next((word for word, spelled in piece.texts.items() if spelled == (text or "")), None)
                if text is None and word is None:
                    continue
            else:
                word = text
            if word is None:
                return False
            self.properties[piece.name] = property_of(self.definition, piece.name, word)
        return True

    def _operands(self) -> bool:
        operands, i = list(self.of.operands), 0
        for place in self.made.places:
            operand = operands[i] if i < len(operands) else None
            if place.optional and (operand is None or isinstance(operand, Vector) != (place.kind == ELEMENTS)):
                continue
            if operand is None or not self._operand(i, place, operand):
                return False
            i += 1
        optional = {piece.name: piece for piece in self.made.pieces if piece.kind == PRESENT}
        present = all((name in self.operands) == bool(self.match[f"{name}__given"]) for name in optional)
        return present and i == len(operands)

    def _operand(self, i: int, place: TextPlace, operand: Operand) -> bool:
        of = self.of
        slot = of.slots[i] if i < len(of.slots) else None
        match place.kind:
            case "text":
                return operand_text(operand) == place.name
            case "constant":
                if not isinstance(operand, Immediate):
                    return False
                texts = {text: word for word, text in place.texts.items()}
                word = texts.get(str(operand.value), str(operand.value))
                self.properties[place.name] = property_of(self.definition, place.name, word)
            case "address" if place.more and not isinstance(operand, Address | Vector):
                self.operands[place.name] = lambda: [of.value(i)]
            case "address":
                if not isinstance(operand, Address) or isinstance(operand.base, Immediate):
                    return False
                space = place.space or self._space(place.name)
                self.operands[place.name] = lambda: [of.pointer(i, space)]
            case "tensor":
                return self._tensor(place, operand)
            case "vector" | "elements" | "sums":
                return self._vector(i, place)
            case "elected":
                if not isinstance(operand, Pair) or operand_text(operand.first) != "_":
                    return False
                self.results[place.name] = ([operand.second], [IntegerType(1)])
            case _:
                if slot is None or isinstance(operand, Vector):
                    return False
                return self._value(i, place, operand, self._demanded(place.name) or value_type(slot.type))
        return True

    def _demanded(self, name: str) -> Attribute | None:
        """The one type that an operand of the operation may have."""
        constraint = next((each.constr for operand, each in self.definition.operands if operand == name), None)
        exact = isinstance(constraint, EqAttrConstraint)
        return cast("EqAttrConstraint[Attribute]", constraint).attr if exact else None

    def _space(self, name: str) -> str:
        """The state space of a pointer, by the word that the opcode has for it."""
        text = (self.match[f"{name}__space"] or "").removeprefix(".")
        (piece,) = (p for p in self.made.pieces if p.kind == SPACE and p.name == name)
        return next((space for space, spelled in piece.texts.items() if spelled == text), text)

    def _value(self, i: int, place: TextPlace, operand: Operand, kind: Attribute) -> bool:
        of = self.of
        if any(name == place.name for name, _ in self.definition.results):
            if operand_text(operand) == "_":
                return place.optional
            if isinstance(operand, Pair):
                self.results[place.name] = ([operand.first, operand.second], [kind, IntegerType(1)])
                self.properties["return_value_and_is_valid"] = UnitAttr()
                return "return_value_and_is_valid" in self.definition.properties
            kind = POINTERS[place.space] if place.space else self._register_kind(operand, kind)
            self.results[place.name] = ([operand], [kind])
            return True
        if place.more and operand_text(operand).lower() == place.more.lower():
            return True
        typed = next((p for p in self.made.pieces if p.kind == TYPED and p.name == place.name), None)
        if typed is not None and (self.match[f"{place.name}__given"] or "") != typed.texts.get(str(kind), ""):
            return False
        if place.space and width(kind) != 32:
            return False
        if place.space:
            self.operands[place.name] = lambda: [of.build.pointer(of.value(i, kind), place.space)]
        else:
            kind = self._register_kind(operand, kind)
            self.operands[place.name] = lambda: [of.value(i, kind)]
        return True

    def _register_kind(self, operand: Operand, kind: Attribute) -> Attribute:
        """Floats stay floats where the instruction takes any bits."""
        if isinstance(operand, Register) and self.of.register(operand) is not None and width(kind) == 32:
            register_kind = register_type(self.of.type_of(operand))
            return register_kind if width(register_kind) == 32 and self.definition.name == "nvvm.shfl.sync" else kind
        return kind

    def _tensor(self, place: TextPlace, operand: Operand) -> bool:
        if not isinstance(operand, Indexed) or len(operand.items) != 2:
            return False
        of, (base, coordinates) = self.of, operand.items
        if not isinstance(base, Register) or not isinstance(coordinates, Vector):
            return False
        self.operands[place.name] = lambda: [of.build.pointer(of.read(base, IntegerType(64)), "")]
        self.operands[place.more] = lambda: [of.read(item, IntegerType(32)) for item in coordinates.items]
        return len(coordinates.items) == int(self.match[f"{place.more}__count"])

    def _vector(self, i: int, place: TextPlace) -> bool:
        of, items, words = self.of, list(self.of.items(i)), self.match.groupdict()
        element = words.get(place.element) or words.get(f"{place.element}__given") or place.element
        kind, name, before = _fragment_type(element.strip(".")), place.name, self.operands.get(place.name, list)
        if any(result == name for result, _ in self.definition.results):
            self.results[name] = (items, [kind] * len(items))
            if place.kind == SUMS:
                self.operands[place.more] = lambda: [of.build.struct([of.read(item, kind) for item in items])]
            return True
        counts = [p for p in self.made.pieces if p.kind == COUNT and p.name == name]
        if place.kind == ELEMENTS and len(items) > 1:
            self.operands[name] = lambda: [of.build.vector([of.read(item, kind) for item in items])]
        else:
            self.operands[name] = lambda: [*before(), *(of.read(item, kind) for item in items)]
        return not counts or len(items) == int(self.match[f"{name}__count"])

    def _together(self, kinds: list[Attribute]) -> Attribute:
        """The type of a result in several registers."""
        elements = any(place.kind == ELEMENTS and place.name in self.results for place in self.made.places)
        return VectorType(kinds[0], [len(kinds)]) if elements else struct(kinds)

    def _add(self) -> None:
        operands: list[SSAValue | list[SSAValue] | None] = []
        for name, definition in self.definition.operands:
            values = self.operands[name]() if name in self.operands else []
            if isinstance(definition, VarOperandDef | OptOperandDef):
                operands.append(values)
            else:
                operands.append(values[0])
        kinds = [self.results[name][1] if name in self.results else [] for name, _ in self.definition.results]
        types = [[self._together(each)] if len(each) > 1 else each for each in kinds]
        op = self.kind.build(operands=operands, result_types=types, properties=self.properties)
        self.of.build.place(op)
        self._write(op)

    def _write(self, op: Operation) -> None:
        of, results = self.of, list(op.results)
        for items, kinds in self.results.values():
            result = results.pop(0)
            values = of.build.extract(result, len(kinds)) if len(kinds) > 1 else [result]
            for item, value in zip(items, values, strict=True):
                if isinstance(value.type, LLVMPointerType):
                    value = of.build.address(value, 32)
                of.write(item, value)


def _fragment_type(element: str) -> Attribute:
    """The LLVM type of a fragment's register: pairs of f16, f32, f64, or words."""
    return value_type({"f16": "f16x2", "f32": "f32", "f64": "f64"}.get(element, "b32"))
