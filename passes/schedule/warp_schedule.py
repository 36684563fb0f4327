"""`warp-schedule`: gives every matrix product its schedule, chosen for its size and target."""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from ...dialect.isa.targets import Target
from ...dialect.schedule import FIELDS, NAMES, Schedule, ScheduleError, parse_options
from ...dialect.schedule.fields import ScheduleField
from ...dialect.warp.attributes import ScheduleAttr, target_of
from ...dialect.warp.matmul import MatmulOp
from ..diagnostics import fail, remark
from ..linalg.product import Product, read
from ..linalg.raise_matmul import raise_products
from .choice import default_schedule, products
from .override import followed, override


def _option(one: ScheduleField) -> tuple[str, str, None]:
    """The option for a field of a schedule: name, type as text, default."""
    kind = "tuple[int, ...]" if one.count > 1 else "int" if one.kind is int else "str"
    return one.name, f"{kind} | None", None


ScheduleOptions: type[ModulePass] = make_dataclass(
    "ScheduleOptions", map(_option, FIELDS.values()), bases=(ModulePass,), frozen=True
)
"""A pass with an option for each field of a schedule."""


@dataclass(frozen=True)
class SchedulePass(ScheduleOptions):
    """Attaches `warp.schedule` to every product that has none; products still in `linalg` are raised first.

    Options replace single choices of the default: `warp-schedule{cta=128,128,64 warp=64,64 stages=3}`. Others change
    only where they must, which `--remarks` lists. With `tuned`, a file that `warploom tune` wrote, the default of a
    product that it knows is what was fastest.
    """

    name = "warp-schedule"

    tuned: str | None = None

    def options(self) -> dict[str, str | int | tuple[int, ...]]:
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
            schedule = override(chosen, options, product, target)
        except ScheduleError as e:
            fail(matmul, f"schedule: {e}")
        if following := followed(chosen, options, schedule):
            remark(matmul, self.name, f"other fields follow from those given (before): {', '.join(following)}")
        return schedule

    def _tuned(self, product: Product, target: Target) -> Schedule | None:
        """The schedule that was measured to be the fastest, if one was."""
        if self.tuned is None:
            return None
        from .tuned import Tuned, key_of

        return Tuned.read(self.tuned).best(target.name, key_of(product))
