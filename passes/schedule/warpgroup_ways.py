"""The ways in which warpgroups multiply, by the operand that they have in registers (`in_registers` of a schedule)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from ...dialect.isa.targets import Target
from ...dialect.schedule import Schedule, ScheduleError
from ..linalg.product import Product
from . import in_registers, warpgroup


class WarpgroupWay(NamedTuple):
    """A way to multiply a product on a target.

    Why it cannot be (empty if it can); whether it is faster than fragments; schedules worth trying, those that the
    model likes best first; and what schedules and operands, as they are laid out, must be: a `ScheduleError` if not.
    """

    why_not: Callable[[Product, Target], str]
    pays: Callable[[Product, Target], bool]
    candidates: Callable[[Product, Target, str], Iterator[Schedule]]
    check_operands: Callable[[Schedule, Product], None]


def _changed(role: str) -> WarpgroupWay:
    """With an operand in registers."""
    return WarpgroupWay(
        partial(in_registers.why_not, role=role),
        partial(in_registers.pays, role=role),
        partial(in_registers.register_candidates, role=role),
        in_registers.check_operands,
    )


WAYS = {
    "b": _changed("b"),
    "a": _changed("a"),
    "none": WarpgroupWay(
        partial(warpgroup.why_not, packed=True),
        warpgroup.pays,
        warpgroup.warpgroup_candidates,
        warpgroup.check_operands,
    ),
}
"""By the value of `in_registers`; of several that pay the first is chosen."""


def by_warpgroups(product: Product, target: Target, accumulate: str, asked: str) -> Schedule | None:
    """The schedule of warpgroups that the model likes best; None if none pays.

    `asked` is the operand in registers of the way that is asked for, or empty.

    Raises:
        ScheduleError: if warpgroups cannot multiply the product in the way that is asked for.
    """
    if asked == "none" and product.b.stored is not None:
        asked = "b"
    way = WAYS[asked] if asked else next((way for way in WAYS.values() if way.pays(product, target)), None)
    found = None if way is None else next(way.candidates(product, target, accumulate), None)
    if asked and found is None:
        way_asked = "" if asked == "none" else f" with in_registers = {asked}"
        raise ScheduleError(
            f"warpgroups cannot multiply this product{way_asked}: {WAYS[asked].why_not(product, target)}"
        )
    return found
