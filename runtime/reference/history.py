"""How a value came about, as far as its bound depends on it; and that bound in words."""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass
class History:
    """The products that a value went through, by how many terms each sums, whether f32 became tf32 in one of them, of
    how many terms sums were cut short, and how many elementwise operations and reductions after or between them. Memory
    that is seen in several ways has one."""

    terms: list[int] = field(default_factory=list[int])
    elementwise: int = 0
    reductions: int = 0
    tf32: bool = False
    short: int = 0

    def after(self, *others: History) -> History:
        """This one with those that it comes after."""
        terms = [count for other in (*others, self) for count in other.terms]
        elementwise = self.elementwise + sum(other.elementwise for other in others)
        reductions = self.reductions + sum(other.reductions for other in others)
        tf32, short = (max(getattr(h, name) for h in (self, *others)) for name in ("tf32", "short"))
        return History(terms, elementwise, reductions, tf32, short)

    def become(self, other: History) -> None:
        """Says of the memory that it holds something else now."""
        self.terms, self.elementwise, self.reductions = list(other.terms), other.elementwise, other.reductions
        self.tf32, self.short = other.tf32, other.short


def bound_text(history: History, unit: float, tf32_unit: float, short_unit: float) -> str:
    """What a value is held against. `unit` is that of the accumulators, 0 for integers; `tf32_unit` what operands lose
    that are multiplied as tf32, and `short_unit` what short sums do."""
    others = [_counted(history.elementwise, "elementwise operation")] if history.elementwise else []
    others += [_counted(history.reductions, "reduction")] if history.reductions else []
    if not history.terms:
        counted = " and ".join(others) or _counted(0, "elementwise operation")
        return f"the errors of {counted}, each rounded to its type"
    if unit == 0:
        product = "exact, modulo 2^32"
    else:
        counts = " and ".join(map(str, dict.fromkeys(history.terms)))
        cut = f" + 2^{int(math.log2(2 * tf32_unit))} |A| |B|" if history.tf32 else ""
        if 0 < history.short < max(history.terms):
            cut = f" + {history.short + 2} 2^{int(math.log2(short_unit))} |A| |B|{cut}"
        elif history.short:
            unit = short_unit
        product = f"(K + 2) 2^{int(math.log2(unit))} (|C| + |A| |B|){cut}, K = {counts}"
    through = [f"{len(history.terms)} products in a chain"] if len(history.terms) > 1 else []
    if through := [*through, *others]:
        return f"{product}, carried through {' and '.join(through)}, each rounded to its type"
    return product if unit == 0 else f"{product}, rounded to the output's type"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
