"""A product whose operands lie as its schedule asks, `transpose` and `padded`: what `warp-lay-out` makes of it.

A launch before the product transposes A or B, where they do not lie along K and the instruction asks for that. A launch
behind it copies D, where D's rows are no multiples of 16 bytes, from rows that are.
"""

from __future__ import annotations

from dataclasses import replace

from xdsl.dialects.builtin import MemRefType, StridedLayoutAttr

from ...dialect.isa.descriptor import UNIT
from ...dialect.schedule import ScheduleError
from ...dialect.schedule.operands import OperandSchedule
from ...dialect.warp.attributes import BYTE, Memory
from ..linalg.operand import MatrixOperand
from ..linalg.product import Product
from .packing import roles


def laid_out(product: Product, operands: OperandSchedule) -> Product:
    """The product with operands that lie as a schedule asks.

    Raises:
        ScheduleError: for operands of which no launch of its own makes others.
    """
    transposed = roles(operands.transpose)
    if "a" in transposed:
        product = replace(product, a=_transposed(product.a))
    if "b" in transposed:
        product = replace(product, b=_transposed(product.b))
    return replace(product, d=_padded(product.d)) if operands.padded == "d" else product


def transposed_type(memory: Memory, bits: int) -> tuple[Memory, Memory]:
    """The memory of the transpose of a matrix, as `padded_type` has it."""
    return padded_type(MemRefType(memory.element_type, memory.get_shape()[::-1]), bits)


def padded_type(memory: Memory, bits: int) -> tuple[Memory, Memory]:
    """Memory with rows of whole 16 bytes for a matrix of elements of so many bits, and the part of it that it takes."""
    rows, columns = memory.get_shape()
    step = UNIT * BYTE // bits
    pitch = -(-columns // step) * step
    part = MemRefType(memory.element_type, [rows, columns], StridedLayoutAttr([pitch, 1], 0))
    return MemRefType(memory.element_type, [rows, pitch]), part


def can_change(operand: MatrixOperand) -> bool:
    """Whether a launch can make an operand that lies otherwise: a single matrix, of known size and whole bytes."""
    known = operand.is_whole and min(operand.type.get_shape()) > 0
    return known and operand.memory_bits >= BYTE and operand.stored is None


def _checked(operand: MatrixOperand, field: str) -> MatrixOperand:
    if not can_change(operand):
        raise ScheduleError(f"{field}: a single matrix of known size and whole bytes is copied, got {operand.type}")
    return operand


def _transposed(operand: MatrixOperand) -> MatrixOperand:
    checked = _checked(operand, f"transpose = {operand.name.lower()}")
    _, kind = transposed_type(checked.type, operand.memory_bits)
    return replace(operand, type=kind, transposed=not operand.transposed, dimensions=(0, 1), samples=(), divisor=1)


def _padded(operand: MatrixOperand) -> MatrixOperand:
    _, part = padded_type(_checked(operand, "padded = d").type, operand.memory_bits)
    return replace(operand, type=part, samples=(), divisor=1)
