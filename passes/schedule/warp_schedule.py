"""`warp-schedule`: gives each matrix product its schedule, chosen or measured; and pipelines that take its options."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, make_dataclass, replace
from itertools import product as combinations
from pathlib import Path
from typing import ClassVar, NotRequired, TypeAlias, TypedDict, cast

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from ...dialect import plugins
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
from ..source import read_text
from .candidates import default_schedule, override
from .model import DRAWN, Fit
from .needs import key_of
from .validity import asked_of, check, followed, refusal
from .warpgroup import declined, time_of

# What was measured on devices: a JSON file that `warploom tune` writes and `warp-schedule` reads.
#
# By device, then by what a product is: sizes, element types, how the operands lie. For each the fastest schedule, and
# every one measured with its time, so that a search can go on where it stopped. A device may also have the constants of
# the model of products, fitted to what was measured there (`fitted`).

FORMAT = 1

AT = ", at "
"""What stands between a product of unknown sizes and the sizes of the arguments that it was measured with."""


class Entry(TypedDict):
    """One product on one device: the fastest schedule, and microseconds by schedule; None for one that failed."""

    best: str
    measured: dict[str, float | None]


class Device(TypedDict):
    """Measurements on one device. `target` is that of its kernels; `sms` and `timing` are what the model of products
    takes of a device, if `warploom tune --device` measured it."""

    target: str
    products: dict[str, Entry]
    sms: NotRequired[int]
    timing: NotRequired[list[float]]


@dataclass
class Tuned:
    """The contents of a file."""

    path: Path
    devices: dict[str, Device] = field(default_factory=dict[str, Device])

    @staticmethod
    def read(path: str | Path) -> Tuned:
        """Reads a file. Raises ScheduleError for a missing file, or one in another format."""
        place = Path(path)
        try:
            content = json.loads(read_text(place))
            if content["format"] != FORMAT:
                raise ScheduleError(f"tuned schedules in format {content['format']}, expected {FORMAT}")
            devices = cast("dict[str, Device]", content["devices"])
            for device in devices.values():
                entries, fit = device["products"].values(), Fit(*device.get("timing", DRAWN))
                times = [time for entry in entries for time in entry["measured"].values() if time is not None]
                whole = type(device.get("sms", 1)) is int and type(device["target"]) is str
                if not (whole and all(0 < each < math.inf for each in (device.get("sms", 1), *fit, *times))):
                    raise ValueError(device)
                for entry in entries:
                    if entry["best"] != "":
                        Schedule.parse(entry["best"])
        except ScheduleError as error:
            raise ScheduleError(f"{path}: {error}") from None
        except OSError as error:
            raise ScheduleError(f"{path}: {error.strerror or error}; `warploom tune` writes such files") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ScheduleError(f"{path}: expected a file of schedules that `warploom tune` wrote") from error
        return Tuned(place, devices)

    def write(self) -> None:
        """Replaces the file at once. A write that is interrupted leaves the old file."""
        text = json.dumps({"format": FORMAT, "devices": self.devices}, indent=1) + "\n"
        temporary = self.path.with_name(self.path.name + ".new")
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, self.path)

    def device(self, device: str, target: str) -> Device:
        """The measurements on a device, created if missing. One with several measured targets has them for each."""
        measured_for = self.devices.get(device)
        name = device if measured_for is None or measured_for["target"] == target else f"{device} as {target}"
        return self.devices.setdefault(name, Device(target=target, products={}))

    def entry(self, device: str, target: str, key: str) -> Entry:
        """The entry of a product on a device, created if missing."""
        return self.device(device, target)["products"].setdefault(key, Entry(best="", measured={}))

    def measured(self, target: Target) -> Target:
        """The target as its first measured device is: with its number of multiprocessors, and its constants."""
        for device in self.devices.values():
            if device["target"] == target.name and "sms" in device and "timing" in device:
                return replace(target, sms=device["sms"], timing=tuple(device["timing"]))
        return target

    def best(self, target: str, key: str) -> Schedule | None:
        """The fastest schedule of a product on the first device of a target that has an entry for it. For dynamic sizes
        it is that of the first arguments that were measured."""
        for device in self.devices.values():
            at = next((name for name in device["products"] if name.startswith(key + AT)), key)
            entry = device["products"].get(key, device["products"].get(at))
            if device["target"] == target and entry is not None and entry["best"]:
                return Schedule.parse(entry["best"])
        return None


# The constants of the model of warpgroups, fitted to what was measured.


Timed = tuple[Product, Mapping[Schedule, float]]
"""A product, and the microseconds that it took by schedules of warpgroups."""

STEPS = (2.0, 1.25, 1.05, 1.01)
"""Factors by which constants change, one after another, as long as one change makes the fit better."""

NO_BETTER = 1e-4
"""The part by which a fit must be better to count."""

FASTEST = 2.0
"""Times beyond so many times the fastest of a product tell little of what to choose."""


def fitted(timed: Sequence[Timed], target: Target) -> tuple[Fit, float]:
    """The constants by which the model is nearest to the times, and how far from them it is: the mean distance of
    logarithms.

    What events and an empty cache add to each time is the same for all, and no part of the model. The search changes
    one constant at a time, from those of an H100 on.
    """
    near = [
        (product, schedule, taken)
        for product, times in timed
        for schedule, taken in times.items()
        if taken <= FASTEST * min(times.values())
    ]
    fit, error = DRAWN, _error(near, DRAWN, target)
    for step in STEPS:
        improves = True
        while improves:
            improves = False
            for i, factor in combinations(range(len(fit)), (step, 1 / step)):
                tried = Fit._make((*fit[:i], fit[i] * factor, *fit[i + 1 :]))
                if (off := _error(near, tried, target)) < error * (1 - NO_BETTER):
                    fit, error, improves = tried, off, True
    return fit, error


def _error(near: Sequence[tuple[Product, Schedule, float]], fit: Fit, target: Target) -> float:
    """The mean distance of the logarithms of times from the model's, beside what all times have in addition."""
    from statistics import fmean, median  # a compilation reads what was measured, and fits nothing

    there = replace(target, timing=tuple(fit))
    modelled = [time_of(product, schedule, there) / 1000 for product, schedule, _ in near]
    taken = [each[2] for each in near]
    offset = median(time - model for time, model in zip(taken, modelled, strict=True))
    pairs = zip(taken, modelled, strict=True)
    return fmean(abs(math.log(time / max(model + offset, model / 2))) for time, model in pairs)


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
            if chosen is None:
                chosen = default_schedule(product, target, str(options.get("accumulate", "")), by := asked_of(options))
                if not by and target.sm >= WARPGROUP_SM and (reason := declined(product, target)):
                    remark(matmul, self.name, f"warpgroups do not change {reason}")
                chosen = chosen if options or product.m > FEW_ROWS else fine(matmul, product, target, chosen)
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
