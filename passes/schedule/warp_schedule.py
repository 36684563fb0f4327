"""`warp-schedule`: gives each matrix product its schedule, chosen or measured; and pipelines that take its options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, make_dataclass, replace
from typing import ClassVar, TypeAlias, cast

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from ...dialect import plugins
from ...dialect.isa import mma
from ...dialect.isa.row import Target
from ...dialect.isa.wgmma import WARPGROUP_SM
from ...dialect.schedule import FIELDS, Schedule, ScheduleError, parse_options
from ...dialect.schedule.schedule import FEW_ROWS, ScheduleField
from ...dialect.warp.attention import AttentionGradientOp, AttentionOp
from ...dialect.warp.attributes import PartialScheduleAttr, ScheduleAttr, target_of
from ...dialect.warp.matmul import MatmulOp
from ..diagnostics import chose, fail, remark
from ..linalg.operand import root
from ..linalg.product import Product, read
from ..linalg.raise_matmul import raise_products
from ..patterns import operations_of
from ..pipeline import PARTS, TILING, Pipeline, PipelinePart, standard_pipeline
from . import model, needs
from .candidates import CHECKS, Tuned, asked_of, check, followed, key_of, override, refusal
from .defaults import in_fixed_order
from .fragments import by_fragments
from .warpgroup import PLAIN, why_not
from .warpgroup_schedule import by_warpgroups, declined, expected, is_compared, outpaces, time_of

# The default, by whoever is faster.


def default_schedule(product: Product, target: Target, accumulate: str = "", by: str = "") -> Schedule:
    """The schedule that the model prefers. `accumulate` defaults to the widest type.

    `by` selects the instructions (`asked_of`): "fragments", or a kind of warpgroup product. By default warpgroups
    multiply if they can and it pays.

    Raises:
        ScheduleError: if the target has no instruction for the product's element types.
    """
    accumulate = accumulate or max((r.d for r in needs.rows_of(product)), key=lambda d: d.bits).name
    return in_fixed_order(_chosen(product, target, accumulate, by), product)


def _chosen(product: Product, target: Target, accumulate: str, by: str) -> Schedule:
    alone = by == "fragments" or not (by or target.sm >= WARPGROUP_SM)
    groups = None if alone else by_warpgroups(product, target, accumulate, by)
    if groups is not None and (by or not is_compared(product) or outpaces(product, groups, target)):
        return groups
    row = needs.instruction(product, accumulate, target)
    if row is None:
        what = f"{needs.multiplied(product)} accumulated in {accumulate}{_instead(product, accumulate)}"
        if product.variant.kind and needs.has_warpgroups(product, target):
            what += f"; in tensor memory: {why_not(product, target)}"
        raise ScheduleError(f"{target} has {_lowered_to(product, target, accumulate)} {what}")
    cost, by_warps = by_fragments(product, target, row)
    cost -= model.pack_cycles(product, by_warps.pack, target)
    laid_out = model.laying_out(product, by_warps.pack, PLAIN, target)
    if groups is None:
        return by_warps
    taken = laid_out + model.nanoseconds(product, cost, staged=bool(by_warps.staging))
    times = {groups: time_of(product, groups, target), by_warps: taken}
    return min(times, key=lambda each: expected(product, each, times[each], target))


def _lowered_to(product: Product, target: Target, accumulate: str) -> str:
    """The beginning of a message for a target that lacks `mma` for the product: none at all, or none that products are
    lowered to."""
    kinds = (product.a.element.name, product.b.element.name, accumulate)
    rows = (r for r in mma.rows() if r.products > 1 and target.sm >= r.sm)
    small = {str(r.shape) for r in rows if (r.a.name, r.b.name, r.d.name) == kinds}
    return f"only mma {', '.join(small)}, which products are not lowered to, for" if small else "no mma for"


def _instead(product: Product, accumulate: str) -> str:
    """The targets that have an instruction for the product, or the accumulator types that exist."""
    rows = needs.rows_of(product)
    lowest = min((r.sm for r in rows if r.d.name == accumulate), default=None)
    if lowest is None:
        return f"; it is accumulated in {' or '.join(sorted({r.d.name for r in rows}))}"
    first = min(rows, key=lambda r: r.sm)
    return f"; {first.requirement()} has one" if first.only else f"; sm_{lowest} and later have one"


# The pass.

FINE = parse_options({"cta": "16x16x128", "warp": "16x16", "sliced_k": 2, "stages": 8, "split_k": 1, "mma": "m16n8k16"})
"""Fields for several products of one A of at most `FEW_ROWS` rows, with more tiles than SMs."""

FINE_WEIGHTS = 16, 32, 48
"""Columns of tiles for such products of integers that are converted; the fewest are chosen that are one wave."""


def fine(matmul: MatmulOp, product: Product, target: Target, chosen: Schedule) -> Schedule:
    """A schedule with those fields for one of such products, which `warp-join` joins; else the one that was chosen."""
    others = [] if matmul.parent is None else [op for op in matmul.parent.ops if isinstance(op, MatmulOp)]
    same = [read(op) for op in others if root(op.a) == root(matmul.a)]
    alike = all((each.m, each.k, each.products) == (product.m, product.k, 1) and not each.dynamic for each in same)
    plain = product.matrices == product.sparsity == 1 and product.ends is None and not product.batch_invariant
    stored = all(each.b.stored for each in same) and product.m <= 16
    halves = product.a.memory_bits == 16 and (stored or (product.b.memory_bits == 16 and product.b.stored is None))
    if len(same) > 1 and alike and plain and halves and target.sm >= WARPGROUP_SM:
        fitting = (n for n in FINE_WEIGHTS if sum(-(-each.n // n) for each in same) <= target.sms)
        columns = next(fitting, 0) if stored else 0
        own = {"cta": (16, columns, 512), "warp": (16, columns), "sliced_k": 8, "stages": 4} if columns else {}
        with suppress(ScheduleError):  # of a K that these tiles do not divide
            made = override(chosen, FINE | own, product, target)
            waves = sum(-(-each.n // made.cta[1]) for each in same) > target.sms
            return made if columns or (waves and not stored) else chosen
    return chosen


# `warp-schedule`: gives every matrix product its schedule, chosen for its size and target.


def _option(one: ScheduleField) -> tuple[str, str, None]:
    """The option for a field of a schedule: name, type as text, default."""
    kind = "tuple[int, ...]" if one.count > 1 else "int" if one.kind is int else "str"
    return one.name, f"{kind} | None", None


ScheduleOptions: type[ModulePass] = make_dataclass(
    "ScheduleOptions", map(_option, FIELDS.values()), bases=(ModulePass,), frozen=True
)
"""A pass with an option for each field of a schedule."""

ScheduleModel: TypeAlias = Callable[[Operation, Target], Mapping[str, object]]
"""A model of another package: the fields that it chooses for a product, or an attention, on a target."""


def target_for(op: Operation) -> Target:
    """The target of the module. Raises a located diagnostic if it has none."""
    target = target_of(op)
    if target is None:
        fail(op, "expected a target on the module; run warp-set-target{arch=sm_90a} first")
    return target


def read_tuned(op: ModuleOp, path: str | None) -> Tuned | None:
    """The file of measured schedules, if there is one. Raises a located diagnostic for an unreadable file."""
    if path is None:
        return None
    try:
        return Tuned.read(path)
    except ScheduleError as e:
        fail(op, f"tuned: {e}")


@dataclass(frozen=True)
class SchedulePass(ScheduleOptions):
    """Attaches `warp.schedule` to every product that has none. Products in `linalg` are raised first. A partial
    schedule such as `#warp.schedule<cta = 128x128x32>` is completed.

    An option replaces one field of the default schedule: `warp-schedule{cta=128,128,64 warp=64,64 stages=3}`. Other
    fields change only if they must, and `--remarks` lists them. `tuned` is a file of `warploom tune`: for products in
    it, the default is the fastest measured schedule. `model` is the entry point in `warploom.models` of a function that
    chooses fields which no option gives.
    """

    name = "warp-schedule"

    tuned: str | None = None
    model: str | None = None

    def options(self) -> dict[str, str | int | tuple[int, ...]]:
        """The options given, by name."""
        values = {name: getattr(self, name) for name in FIELDS}
        return {name: value for name, value in values.items() if value is not None}

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        tuned = read_tuned(op, self.tuned)
        if any(isinstance(each, LinalgStructuredOperation) for each in operations_of(op)):
            raise_products(op)
        for matmul in [inner for inner in operations_of(op) if isinstance(inner, MatmulOp)]:
            if isinstance(whole := matmul.attributes.get(ScheduleAttr.name), ScheduleAttr):
                try:
                    check(whole.data, read(matmul), target_for(matmul))
                except ScheduleError as error:
                    fail(matmul, f"schedule: {error}")
                continue
            matmul.attributes[ScheduleAttr.name] = ScheduleAttr(schedule := self._choose(matmul, tuned))
            chose(matmul, self.name, str(schedule))
        for attention in [each for each in operations_of(op) if isinstance(each, AttentionOp | AttentionGradientOp)]:
            if not isinstance(attention.attributes.get(ScheduleAttr.name), ScheduleAttr):
                attention.attributes[ScheduleAttr.name] = ScheduleAttr(self._of_attention(attention))

    def _asked(self, op: Operation) -> dict[str, object]:
        """The fields that the user sets: those of the operation, then those of the pass. Raises ScheduleError, naming
        an option that cannot be read."""
        partial = op.attributes.get(ScheduleAttr.name)
        model = None if self.model is None else cast("ScheduleModel", plugins.loaded(plugins.MODELS, self.model))
        if self.model is not None and model is None:
            names = ", ".join(plugins.entries(plugins.MODELS)) or "none"
            raise ScheduleError(f"no installed package has a model {self.model}; there is {names}")
        chosen = {} if model is None else parse_options(model(op, target_for(op)))
        own = partial.data.options() if isinstance(partial, PartialScheduleAttr) else {}
        return chosen | parse_options(self.options()) | own

    def _of_attention(self, attention: AttentionOp | AttentionGradientOp) -> Schedule:
        from .attention import attention_schedule  # of which products have no use

        try:
            options = self._asked(attention)
        except ScheduleError as e:
            fail(attention, f"schedule: {e}")
        return attention_schedule(attention, target_for(attention), options)

    def _choose(self, matmul: MatmulOp, tuned: Tuned | None) -> Schedule:
        target, product, options = target_for(matmul), read(matmul), dict[str, object]()
        try:
            options = self._asked(matmul)
            asked = [options.get(name) for name in ("promote", "fp8_as")]
            product = replace(product, short_sums="none" in asked or (not any(asked) and product.short_sums))
            if options.get("batch_invariant") == "True":
                product, tuned = replace(product, batch_invariant=True), None  # what was measured is for one size
            chosen = None if tuned is None else tuned.best(target.name, key_of(product))
            target = target if tuned is None else tuned.measured(target)
            if chosen is not None:
                try:
                    check(chosen, product, target)
                except ScheduleError as e:
                    remark(matmul, self.name, f"the tuned schedule does not fit: {e}")
                    chosen = None
            by = asked_of(options) if options else ""
            if chosen is None:
                chosen = default_schedule(product, target, str(options.get("accumulate", "")), by)
                if not by and target.sm >= WARPGROUP_SM and (reason := declined(product, target)):
                    remark(matmul, self.name, f"warpgroups do not change {reason}")
                chosen = chosen if options or product.m > FEW_ROWS else fine(matmul, product, target, chosen)
            if not options:
                CHECKS[chosen.together](chosen, product, target)
                return chosen
            schedule = override(chosen, options, product, target)
        except ScheduleError as e:
            fail(matmul, refusal(e, options))
        if following := followed(chosen, options, schedule):
            remark(matmul, self.name, f"other fields follow from those given (before): {', '.join(following)}")
        if said := _one_group(options, schedule, product):
            remark(matmul, self.name, said)
        return schedule


def _one_group(fields: Mapping[str, object], schedule: Schedule, asked: Product) -> str:
    """A remark on a `group` of more rows of CTA tiles than the product has; "" if there are enough."""
    (rows, _, _), (high, _) = schedule.cta, schedule.cluster
    down = -(-asked.m // (rows * high)) * high
    if "group" not in fields or not asked.is_known("m") or schedule.group <= down:
        return ""
    return f"group = {schedule.group}: the rows of CTA tiles are {down}, which make one group"


# `warploom`: the standard pipeline as one name, `-p warploom{target=sm_90a}`, and each third of it.


@dataclass(frozen=True)
class ChoosingPipeline(Pipeline, SchedulePass):
    """Runs the passes from `linalg` to products with a schedule: `warp-set-target` to `warp-schedule`.

    It takes a target (by default the module's own), `tf32` as `warp-raise-matmul` does, and the options of
    `warp-schedule`.
    """

    name = "warploom-schedule"

    target: str | None = None
    tf32: bool = False

    def text(self) -> str:
        return PARTS["schedule"].of(self._all())

    def _all(self) -> str:
        model = {} if self.model is None else {"model": self.model}
        return standard_pipeline(self.target, self.options() | model, tf32=self.tf32, tuned=self.tuned)


class StandardPipeline(ChoosingPipeline):
    """Runs every pass of the standard pipeline, from `linalg` to the dialect `ptx`.

    It takes a target (by default the module's own), `tf32` as `warp-raise-matmul` does, and the options of
    `warp-schedule`. `warploom-opt` prints, times and verifies the passes one by one, as if they had been named.
    """

    name = "warploom"

    def text(self) -> str:
        return self._all()


class _PartPipeline(Pipeline):
    """Runs a part of the standard pipeline, which takes no options."""

    part: ClassVar[PipelinePart]

    def text(self) -> str:
        return self.part.of(standard_pipeline())


class TilingPipeline(_PartPipeline):
    """Runs the passes from scheduled products to kernels over fragments: `warp-lay-out` to `warp-specialise`."""

    name, part = "warploom-tile", PARTS["tile"]


class KernelPipeline(_PartPipeline):
    """Runs the passes that lower the tile of a CTA to a kernel over fragments: `warp-stage` to `warp-raise-gelu`."""

    name, part = "warp-tile", TILING


class FinishingPipeline(_PartPipeline):
    """Runs the passes from kernels over fragments to the dialect `ptx`: `warp-pipeline` to `convert-warp-to-ptx`."""

    name, part = "warploom-finish", PARTS["finish"]
