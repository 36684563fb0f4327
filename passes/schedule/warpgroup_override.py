"""Fields that are given for warpgroups: who they say multiplies, and what goes with another tile."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from ...dialect.isa.product import Shape
from ...dialect.isa.targets import Target
from ...dialect.isa.wgmma import M as ROWS
from ...dialect.schedule import Schedule
from ...dialect.schedule.loop import LEAST_RING
from ..linalg.product import Product
from .laid_out import laid_out
from .warpgroup import PLAIN
from .warpgroup_resources import fitting_stages, staged_part

OF_FRAGMENTS = ("cta", "warp", "sliced_k", "pack", "sync", "prefetch", "unroll", "fp8_as", "swizzle")
"""Fields that, given without an instruction, ask for fragments in registers (`mma.sync`)."""


def asked_of(given: Mapping[str, object]) -> str:
    """Who is to multiply, of fields that are given: "fragments", or warpgroups, by the operand that they have in
    registers; empty if they leave it open."""
    in_registers = str(given.get("in_registers", ""))
    if in_registers not in ("", PLAIN):
        return in_registers
    mma = given.get("mma")
    if isinstance(mma, Shape):
        return PLAIN if mma.m == ROWS else "fragments"
    if in_registers or any(given.get(name, PLAIN) != PLAIN for name in ("promote", "transpose")):
        return PLAIN
    return "fragments" if any(name in given for name in OF_FRAGMENTS) else ""


def around_given(chosen: Schedule, given: Mapping[str, object], product: Product, target: Target) -> dict[str, object]:
    """The fields given with what goes with another tile of warpgroups: its stages, and how D is staged."""
    changed = {name: given[name] for name in ("transpose", "padded") if name in given}
    mma, seen = given.get("mma", chosen.tile.mma), laid_out(product, chosen.with_fields(**changed).operands)
    given = _settled(chosen, given)
    if not isinstance(mma, Shape) or all(
        given.get(name, chosen[name]) == chosen[name] for name in ("mma", "cta", "padded")
    ):
        return dict(given)
    (m, n, k), tile = chosen.tile.cta, (ROWS, mma.n)
    cta: tuple[int, ...] = (m, mma.n, k)
    if chosen.tile.exchanged:
        cta, tile = (mma.n, n, k), (mma.n, ROWS)
    around = {"cta": cta, "warp": tile, "mma": mma, "stages": LEAST_RING, "split_k": 1, "cluster": (1, 1)}
    cut = chosen.with_fields(**{**around, "staging": 0, **given})
    around["staging"] = staged_part(seen, cut.tile)[0]
    around["stages"] = fitting_stages(seen, chosen.with_fields(**{**around, **given}), target)
    return {**around, **given}


def _settled(chosen: Schedule, given: Mapping[str, object]) -> dict[str, object]:
    """The fields given, with no clusters where they do not come out even in the CTAs, and a whole K for consumers with
    tiles of their own."""
    around: dict[str, object] = {}
    if isinstance(ctas := given.get("ctas"), int) and ctas % prod(chosen.grid.cluster):
        around["cluster"] = (1, 1)
    if given.get("consumers", chosen.loop.consumers) != "cooperative":
        around["split_k"] = 1
    return {**around, **given}
