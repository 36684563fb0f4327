"""How warpgroups multiply: operands in shared memory, or in registers, changed on their way there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product as product_of
from math import prod
from typing import NamedTuple

from ...dialect.isa.targets import Target
from ...dialect.isa.wgmma import M as SIDE
from ...dialect.schedule import Schedule, ScheduleError
from ...dialect.warp.attributes import BYTE
from ..linalg.operand import MatrixOperand, VectorOperand
from ..linalg.product import Product, along_k
from . import warpgroup
from .defaults import can_change, laid_out
from .resources import multiplied, promotes, register_spills, warpgroup_rows
from .warpgroup import GROUP, fitting_stages, group_of, is_large, not_copied, schedule_of_tile
from .warpgroup_model import (
    LINE,
    PARTS,
    READ_PER_CYCLE,
    STORED_PER_CYCLE,
    TILE_LATENCY,
    GroupTile,
    fits,
    k_of,
    partial_sums,
    read_bytes,
    tile_count,
)

# Schedules of products of warpgroups with A or B in registers, changed on its way there: `in_registers`.
#
# An operand that does not lie along K, of elements that have not 16 bits, is transposed on its way to registers. With
# B in registers the transposes are multiplied, D^T = B^T A^T: each warpgroup computes 64 columns of D, and as many
# rows as its instruction has columns, so that what is done to an element of B is done once for all of them. If the
# other operand does not lie along K either, a launch before the product transposes it.

OTHER = {"a": "b", "b": "a"}

LEAST_ROWS, LEAST_ALONG_K, LEAST_ALONG_N = 64, 1 << 32, 1 << 29
"""Rows of D, and multiply-adds, from which on integers of B that lie along K or along N are converted faster so (H200,
microseconds by fragments and so: 64x8192x8192, 4 bits along K 35.4 and 32.3, 8 bits along N 30.2 and 27.4;
256x4096x4096 30.1 and 21.2, 28.7 and 19.3; 128x4096x4096 18.3 and 19.8, 18.0 and 16.4; 512x1024x1024 8.3 and 8.7, 8.3
and 7.7). Of 8 bits along K 64 rows are too few: 31.2 and 34.0."""

GROUP_ROWS = 128
"""Rows of tiles of which as many are walked together as of those of other warpgroups, of higher ones fewer (H200, tiles
of 256 rows: tf32 4096 354 microseconds with 16, 350 with 8; e4m3 8192 748 and 733)."""

LEAST_STAGES = 4
"""Stages without which copies are not far enough ahead."""

STEP_BYTES = 32
"""Bytes along K that an instruction multiplies."""

CHANGED, TURN = {True: 24, False: 8}, 40
"""Cycles that the tensor cores of an SM lose to the loads and changes of an instruction's operand, B which lies along K
or along N (H200, 256x8192x8192: 54.8 and 46.0 microseconds in tiles of 256x64, 60.1 and 51.3 of 128x128); and to a K
tile."""

LEAST_TURN = {True: (0, 425), False: (160, 190)}
"""Cycles that a K tile takes at least, and for each line of K in it: from loads to the end of products (H200, 128x64:
36.9 and 38.8 microseconds with one line and with two, along N 33.3 and 31.6; 64x64 along N 32.8 and 27.4)."""


class RegisterTile(NamedTuple):
    """A tile of a CTA: columns of the instruction, warpgroups side by side, each with 64 rows of the operand in
    registers, lines of K; in how many parts of K."""

    wide: int
    groups: int
    depth: int
    parts: int = 1

    def of_cta(self, role: str) -> GroupTile:
        """The part of D, with operand "a" or "b" in registers."""
        along = self.groups * SIDE
        return GroupTile(*((along, self.wide) if role == "a" else (self.wide, along)), self.parts)


WIDTHS = (256, 128, 192, 64, 96, 160, 224, 32)

TILES = tuple(RegisterTile(*sizes) for sizes in product_of(WIDTHS, (1, 2), (1, 2), PARTS))
"""Tiles that are tried, in order: of two that cost the same the first is taken."""


def why_not(product: Product, target: Target, role: str) -> str:
    """Why warpgroups cannot have operand "a" or "b" in registers; empty if they can."""
    rows = warpgroup_rows(product, exchanged=role == "b")
    operand, other = _both(product, role)
    if not any(row.runs_on(target) for row in rows):
        return f"{target} has no wgmma for {multiplied(product)}"
    if operand.stored is None and not _turns(product, role):
        lies = "along k " * along_k(product, role)
        return f"{operand.name} of {operand.element.name} {lies}is multiplied where it lies"
    if operand.stored is not None and operand.stored.element.bits < BYTE and not along_k(product, role):
        return f"integers of {operand.stored.element.bits} bits in rows along n are not converted for warpgroups"
    moved = _turns(product, OTHER[role])
    if moved and not can_change(other):
        return f"{other.name} of {other.element.name} must lie along k"
    if product.group:
        return "the sums of groups that have scales are not those of warpgroups"
    if product.summed:
        return "it is summed over several loops"
    if product.metadata is not None:
        return "A is sparse"
    for each in (operand,) if moved else (product.a, product.b):
        if reason := not_copied(each):
            return f"{each.name} {reason}"
    if promotes(product, "f32"):
        return "sums of 8-bit floats would be short; promote = none, or fastmath<afn> on the addition, allows that"
    return ""


def _both(product: Product, role: str) -> tuple[MatrixOperand, MatrixOperand]:
    """The operand in registers and the other one."""
    return (product.a, product.b) if role == "a" else (product.b, product.a)


def _turns(product: Product, role: str) -> bool:
    """Whether an operand must lie along K, and does not."""
    operand, _ = _both(product, role)
    return not along_k(product, role) and operand.element.bits != 16


def pays(product: Product, target: Target, role: str) -> bool:
    """Whether an operand in registers is faster: than fragments of both, each of whose rows of tiles converts all of B
    again, or than a launch of its own that transposes it. Of two that must be transposed, that launch takes the smaller
    one."""
    if why_not(product, target, role) or register_spills(product, role, min(WIDTHS)):
        return False
    operand, other = _both(product, role)
    if operand.stored is None:
        moved = _turns(product, OTHER[role])
        larger = moved and _size(other) > _size(operand) and not why_not(product, target, OTHER[role])
        return is_large(product, laid_out=moved) and not larger and not _unknown_pitches(product, role)
    least = LEAST_ALONG_K if product.b.transposed else LEAST_ALONG_N
    rows = LEAST_ROWS + (product.b.transposed and product.b.memory_bits == BYTE)
    return product.m >= rows and _products(product) >= least


def _size(operand: MatrixOperand) -> int:
    return prod(operand.shape) * operand.memory_bits


def _products(product: Product) -> int:
    return product.m * product.n * product.depth * product.matrices


def declined(product: Product, target: Target) -> str:
    """Why an operand of a product that is large enough is not changed in registers of warpgroups, which the target has;
    empty if one is, or none need be."""
    changed = [role for role in "ba" if _both(product, role)[0].stored is not None or _turns(product, role)]
    known = any(row.runs_on(target) for row in warpgroup_rows(product, exchanged="b" in changed))
    if not known or product.metadata is not None or product.m < LEAST_ROWS or _products(product) < LEAST_ALONG_N:
        return ""
    reasons = {role: why_not(product, target, role) or _beside(product, role) for role in changed}
    if not all(reasons.values()):
        return ""
    return next((f"{role.upper()} in registers: {reason}" for role, reason in reasons.items()), "")


def _beside(product: Product, role: str) -> str:
    unknown = _both(product, role)[0].stored is None and _unknown_pitches(product, role)
    return "rows beside the sums are an unknown distance apart" if unknown else ""


def _unknown_pitches(product: Product, role: str) -> bool:
    """Whether rows of a matrix that sums start from, or that lies beside them, are an unknown distance apart.

    With B in registers a lane has elements of so many rows that their addresses spill (`ptxas`, 256 rows of f32: 960
    bytes).
    """
    beside = [o for o in product.epilogue_operands if not isinstance(o, VectorOperand)]
    return role == "b" and bool(product.dynamic) and (product.c is not None or bool(beside))


def register_candidates(product: Product, target: Target, accumulate: str, role: str) -> Iterator[Schedule]:
    """Schedules with operand "a" or "b" in registers that are worth trying, those that the model likes best first."""
    if why_not(product, target, role):
        return
    rows = {r.shape.n: r for r in warpgroup_rows(product, exchanged=role == "b") if r.d.name == accumulate}
    transpose = OTHER[role] if _turns(product, OTHER[role]) else "none"
    product = laid_out(product, transpose)
    whole = (tile for tile in TILES if tile.parts == 1 or fits(product, tile.of_cta(role), target))
    tiles = (tile for tile in whole if not register_spills(product, role, tile.wide))
    for tile in sorted(tiles, key=lambda tile: cost(product, tile, target, role)):
        of_d = tile.of_cta(role)
        of_group = (SIDE, tile.wide) if role == "a" else (tile.wide, SIDE)
        cta = (of_d.m, of_d.n, tile.depth * k_of(product))
        cut = {"cta": cta, "warp": of_group, "mma": rows[tile.wide].shape, "in_registers": role}
        group = group_of(product, of_d) if role == "a" else max(1, GROUP * GROUP_ROWS // max(GROUP_ROWS, tile.wide))
        schedule = schedule_of_tile(product, of_d, accumulate, target, group=group, transpose=transpose, **cut)
        if fitting_stages(product, schedule, target) >= LEAST_STAGES:
            yield schedule


def cost(product: Product, tile: RegisterTile, target: Target, role: str) -> float:
    """The model's time in cycles for a product in tiles of a size."""
    lies, of_d = along_k(product, role), tile.of_cta(role)
    changed, (first, each) = CHANGED[lies], LEAST_TURN[lies]
    steps = tile.depth * LINE // STEP_BYTES
    turn = max(tile.groups * steps * (tile.wide / 2 + changed) + TURN, first + tile.depth * each)
    waves = -(-tile_count(product, of_d) * tile.parts // target.sms)
    turns = -(-product.k_tiles(tile.depth * k_of(product)) // tile.parts)
    stored = of_d.m * of_d.n / STORED_PER_CYCLE
    loops = max(waves * turns * turn, read_bytes(product) / READ_PER_CYCLE)
    return loops + waves * (TILE_LATENCY + stored) + partial_sums(of_d)


def check_operands(schedule: Schedule, product: Product) -> None:
    """Checks what is done to the operands of a schedule with one in registers, and to its sums; of the product as the
    schedule lays it out.

    Raises:
        ScheduleError: naming the field that does not fit.
    """
    role = schedule.in_registers
    held, (_, other) = f"{role.upper()} in registers", _both(product, role)
    if schedule.consumers != "cooperative":
        raise ScheduleError(f"consumers = {schedule.consumers}: with {held} none take turns")
    takes = {"transpose": OTHER[role]} if other.element.bits != 16 else {}
    for name in ("pack", "transpose", "padded"):
        if (given := schedule[name]) not in ("none", takes.get(name)):
            raise ScheduleError(f"{name} = {given}: {held} takes operands as they lie")
    if _turns(product, OTHER[role]):
        raise ScheduleError(f"{other.name} of {other.element.name} must lie along k; or transpose it")


# The ways in which warpgroups multiply, by the operand that they have in registers (`in_registers` of a schedule).


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
        partial(why_not, role=role),
        partial(pays, role=role),
        partial(register_candidates, role=role),
        check_operands,
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
