"""Literals among operands: which numbers a slot's kind has, in the notation of `rows.grammar`."""

from __future__ import annotations

from .text.syntax import Immediate, Operand


def immediate(kind: str, operand: Operand) -> str | None:
    """What is wrong with an operand of kind `imm`, `imm(4/8/16)` or `imm(24..256/8)`; None if nothing is."""
    if not isinstance(operand, Immediate) or isinstance(operand.value, float):
        return "expected an integer literal"
    text = kind[4:-1]
    if ".." in text:
        return outside(text, operand)
    if text and str(operand.value) not in (legal := text.split("/")):
        return f"expected {' or '.join(legal)}, got {operand.text}"
    return None


def outside(span: str, operand: Immediate) -> str | None:
    """What is wrong with a literal that has to be in `low..top`, or a multiple there: `low..top/step`, `low../step`;
    `low<..top` is for fractions."""
    bounds, _, step = span.partition("/")
    low, _, top = bounds.partition("..")
    if low[-1] == "<":
        return (
            None
            if int(low[:-1]) < operand.value <= int(top)
            else f"expected a number above {low[:-1]} and at most {top}, got {operand.text}"
        )
    value = int(operand.value) % (1 << 64)
    if int(low) <= value <= int(top or value) and value % int(step or 1) == 0:
        return None
    what = f"a multiple of {step}" if step else "a number"
    return f"expected {what} {f'from {low} to {top}' if top else f'of at least {low}'}, got {operand.text}"
