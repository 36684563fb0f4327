"""`warp-schedule`: gives every matrix product its schedule, chosen for its size and target."""

from __future__ import annotations

from dataclasses import dataclass, replace

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from ..dialect.isa.targets import Target
from ..dialect.schedule import NAMES, Schedule, ScheduleError, parse_options
from ..dialect.warp.attributes import ScheduleAttr, target_of
from ..dialect.warp.matmul import MatmulOp
from .diagnostics import fail
from .loop_choice import PLAIN_LOOP
from .model import TILES
from .product import Product, read
from .raise_matmul import raise_products
from .schedule import default_schedule, products
from .schedule_check import check


@dataclass(frozen=True)
class SchedulePass(ModulePass):
    """Attaches `warp.schedule` to every product that has none; products still in `linalg` are raised first.

    Options replace single choices of the default: `warp-schedule{cta=128,128,64 warp=64,64 stages=3}`. With `tuned`, a
    file that `warploom tune` wrote, the default of a product that it knows is what was fastest.
    """

    name = "warp-schedule"

    cta: tuple[int, ...] | None = None
    warp: tuple[int, ...] | None = None
    mma: str | None = None
    stages: int | None = None
    swizzle: int | None = None
    group: int | None = None
    accumulate: str | None = None
    pack: str | None = None
    slices: int | None = None
    split_k: int | None = None
    sync: str | None = None
    ahead: int | None = None
    unroll: int | None = None
    ctas: int | None = None
    strip: int | None = None
    widen: str | None = None
    tuned: str | None = None

    def options(self) -> dict[str, object]:
        """The options given, by name."""
        given = {name: getattr(self, name) for name in NAMES}
        return {name: value for name, value in given.items() if value is not None}

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        raise_products(op)
        for matmul in list(products(op)):
            if ScheduleAttr.name not in matmul.attributes:
                matmul.attributes[ScheduleAttr.name] = ScheduleAttr(self._choose(matmul))

    def _choose(self, matmul: MatmulOp) -> Schedule:
        target = target_of(matmul)
        if target is None:
            fail(matmul, "expected a target on the module; run warp-set-target{arch=sm_90a} first")
        product = read(matmul)
        try:
            options = parse_options(self.options())
            chosen = self._tuned(product, target)
            if chosen is None:
                chosen = default_schedule(product, target, str(options.get("accumulate", "")))
            schedule = replace(chosen, **_completed(options, chosen))  # pyright: ignore[reportArgumentType]
            check(schedule, product, target)
        except ScheduleError as e:
            fail(matmul, f"schedule: {e}")
        return schedule

    def _tuned(self, product: Product, target: Target) -> Schedule | None:
        """The schedule that was measured to be the fastest, if one was."""
        if self.tuned is None:
            return None
        from .tuned import Tuned, key_of

        return Tuned.read(self.tuned).best(target.name, key_of(product))


def _completed(options: dict[str, object], chosen: Schedule) -> dict[str, object]:
    """Options with what goes with a tile that is given: its warp tile, a plain loop, no more slices and stages than
    usual."""
    if options.keys() & {"stages", "slices", "pack", "split_k"}:
        options = PLAIN_LOOP | options
    if not options.keys() & {"cta", "warp", "mma"}:
        return options
    options = {**PLAIN_LOOP, "slices": 1, "split_k": 1, "stages": min(4, chosen.stages), **options}
    cta = options.get("cta")
    if isinstance(cta, tuple) and "warp" not in options:
        m, n = int(cta[0]), int(cta[1])  # pyright: ignore[reportUnknownArgumentType]
        known = next((t.warp for t in TILES if t.cta == (m, n) and t.slices == 1), None)
        options = {**options, "warp": known or _fitting_warp(m, n)}
    return options


def _fitting_warp(m: int, n: int) -> tuple[int, int]:
    """The largest warp tile of at most 64x64 that divides a CTA tile."""
    rows = next((r for r in (64, 32, 16) if m % r == 0), m)
    columns = next((c for c in (64, 32, 16, 8) if n % c == 0), n)
    return rows, columns
