"""The standard pipeline from `linalg` to the dialect `ptx`, how it runs, and `warp-set-target`."""

from __future__ import annotations

import gc
import re
import time
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from threading import RLock
from typing import NamedTuple

from xdsl.context import Context
from xdsl.dialects.builtin import AffineMapAttr, ArrayAttr, MemRefType, ModuleOp, NoneAttr, StridedLayoutAttr
from xdsl.dialects.linalg.attrs import IteratorTypeAttr
from xdsl.ir import Attribute, Operation
from xdsl.passes import ModulePass, PassPipeline
from xdsl.utils.arg_spec import ArgSpec, parse_pipeline
from xdsl.utils.exceptions import PassFailedException
from xdsl.utils.hints import isa

from ..dialect.index import PASSES
from ..dialect.isa.row import UnknownTargetError, target
from ..dialect.isa.wgmma import WARPGROUP_SM
from ..dialect.ptx.instruction import quoted
from ..dialect.schedule import FIELDS
from ..dialect.warp.attributes import ScheduleAttr, TargetAttr, target_of
from .diagnostics import remark, remarks, verify
from .patterns import operations_of
from .universe import WARPLOOM_UNIVERSE

# What passes need of a module to have something to do: `needs` of a pass has names of which one must be there.

_BY_ELEMENTS = frozenset(("linalg.fill", "linalg.index", "linalg.yield"))
_PLAIN = _BY_ELEMENTS.union(("linalg.matmul", "linalg.batch_matmul"))


def contents(module: ModuleOp) -> frozenset[str]:
    """The names of a module's operations and types, and further facts that passes need:

    - `linalg.*`: an operation of `linalg` other than products and fills; `reduced`: one that may reduce, beside these.
    - `copy.blocks`: a copy of blocks by `warp-pack`; `returned`: a host function with results; `launches`: several.
    - `dynamic`: memory with dynamic sizes, strides or offset; `tensor.arith`: a tensor that `arith` or `math` makes.
    - `schedule.ctas`, and so on: a field of a schedule that is not the default.
    - `tensor_memory`: a target later than those that multiply by `wgmma`.
    """
    target, types, schedules = target_of(module), dict[int, Attribute](), dict[int, ScheduleAttr]()
    names = {"tensor_memory"} if target is not None and target.sm > WARPGROUP_SM else set[str]()
    for op in operations_of(module):
        if op.name == "gpu.launch_func" and op.name in names:
            names.add("launches")
        names.add("returned" if op.name == "func.return" and op.operands else op.name)
        if op.name == "warp.copy" and "blocks" in op.properties:
            names.add("copy.blocks")
        if op.name.startswith(("arith.", "math.")) and "tensor" in {one.type.name for one in op.results}:
            names.add("tensor.arith")
        inside = [value for region in op.regions for block in region.blocks for value in block.args]
        types |= {id(value.type): value.type for value in (*op.results, *inside)}  # whose hash is that of all its parts
        if isinstance(schedule := op.attributes.get(ScheduleAttr.name), ScheduleAttr):
            schedules[id(schedule)] = schedule
    names |= {kind.name for kind in types.values()}
    if any(name.startswith("linalg.") and name not in _PLAIN for name in names):
        names.update(("linalg.*", "reduced") if any(map(_reduces, operations_of(module))) else ("linalg.*",))
    if any(map(_is_dynamic, types.values())):
        names.add("dynamic")
    chosen = [(field, getattr(each.data, name)) for each in schedules.values() for name, field in FIELDS.items()]
    return frozenset(names).union(f"schedule.{field.name}" for field, value in chosen if value != field.default)


def _reduces(op: Operation) -> bool:
    """Whether an operation may reduce, other than as a product of two matrices, or of one and a vector: of one type, in
    which they are added, or of 16-bit floats that are added in f32."""
    if not op.name.startswith("linalg.") or op.name in _BY_ELEMENTS:
        return False
    if isa(kinds := op.properties.get("iterator_types"), ArrayAttr[IteratorTypeAttr]):
        return IteratorTypeAttr.reduction() in kinds.data
    if not isa(maps := op.properties.get("indexing_maps"), ArrayAttr[AffineMapAttr]) or len(maps.data) != 3:
        return True
    a, b, c = (each.data.used_dims() for each in maps)
    first, second, total = (str(getattr(value.type, "element_type", "")) for value in op.operands)
    return len(a & b) != 1 or a ^ b != c or first != second or total not in (first, "f32" * (first in ("bf16", "f16")))


def _is_dynamic(kind: Attribute) -> bool:
    if not isinstance(kind, MemRefType):
        return False
    strided = isinstance(layout := kind.layout, StridedLayoutAttr) and NoneAttr() in (*layout.strides, layout.offset)
    return strided or not kind.has_static_shape()


def can_apply(name: str, module: ModuleOp) -> bool:
    """Whether a pass can have something to do in a module."""
    return not (needs := PASSES.get(name, ())[2:]) or not contents(module).isdisjoint(needs)


def applicable(specs: Sequence[ArgSpec], module: ModuleOp) -> Iterator[ModulePass]:
    """The passes that may change a module, each decided when those before it have run; one with options always runs."""
    present: frozenset[str] | None = None
    for spec in specs:
        needs = () if spec.parameters else PASSES.get(spec.name, ())[2:]
        if needs and (present := present or contents(module)).isdisjoint(needs):
            continue
        kind = WARPLOOM_UNIVERSE.all_passes[spec.name]()
        yield kind.from_pass_spec(spec) if spec.parameters else kind()
        present = None


# The standard pipeline, from `linalg` on memrefs to the dialect `ptx`.

STRATEGY = "warp-transform"
"""The pass that applies strategies."""

DEFAULT_TARGET = "sm_90a"
"""What a module that has no target is compiled for."""

Option = str | int | Sequence[int]

OnPhase = Callable[[str, float], None]


_PASSES = (
    "warp-set-target", "warp-transform", "gpu-kernel-outlining", "warp-bufferize", "warp-fuse-attention",
    "warp-fuse-rows", "warp-raise-matmul", "warp-fold-fill", "warp-fuse-weights", "warp-fuse-epilogue", "warp-group",
    "warp-fuse-elementwise", "warp-im2col", "warp-version", "warp-schedule", "warp-lay-out", "warp-outline",
    "warp-stage", "warp-fragments", "warp-epilogue", "warp-raise-gelu", "warp-pack", "warp-split-k",
    "warp-persist", "warp-fp8-as-f16", "warp-specialise", "warp-pipeline", "warp-tensor-memory", "warp-synchronise",
    "warp-expand", "warp-join", "warp-allocate", "convert-warp-to-ptx",
)  # fmt: skip

_ROUNDING = ("warp-bufferize", "warp-fuse-attention", "warp-raise-matmul")
"""The passes that may multiply f32 as tf32."""

_OF_ALL_KERNELS = frozenset(("batch_invariant", "model"))
"""Options of a schedule that hold for all kernels. Other fields are those of one, so that there are no versions."""


def standard_pipeline(
    target: str | None = None,
    schedule: Mapping[str, Option] | None = None,
    *,
    tf32: bool = False,
    tuned: str | None = None,
) -> str:
    """The pipeline as `warploom-opt -p` takes it. `target` is by default the target of the module, or DEFAULT_TARGET if
    it has none. `schedule` overrides fields of the default schedule: {"cta": (128, 128, 64), "stages": 3}. `tf32`
    allows products of f32 with operands rounded to 10 bits of fraction. `tuned` is a file of measured schedules, which
    replace the default ones.
    """
    fields, file = schedule or {}, f"tuned={quoted(str(tuned))}" if tuned else ""
    options = dict.fromkeys(_ROUNDING, "tf32=true" if tf32 else "")
    options |= {"warp-set-target": f"arch={target}" if target else "", "warp-version": file}
    chosen = [f"{name}={_option(value)}" for name, value in fields.items()]
    options["warp-schedule"] = " ".join([*chosen, *([file] if file else [])])
    passes = [name for name in _PASSES if name != "warp-version" or _OF_ALL_KERNELS.issuperset(fields)]
    return ",".join(f"{name}{{{options[name]}}}" if options.get(name) else name for name in passes)


STANDARD = standard_pipeline()


def import_passes() -> None:
    """Imports the passes of the standard pipeline, which each is by its first use otherwise."""
    for spec in parse_pipeline(STANDARD):
        WARPLOOM_UNIVERSE.all_passes[spec.name]()


class PipelinePart(NamedTuple):
    """The passes of a pipeline from one on, up to another one."""

    first: str
    behind: str

    def of(self, pipeline: str) -> str:
        """The passes of a pipeline that belong to this part."""
        passes = re.findall(r"[\w-]+(?:\{[^}]*\})?", pipeline)
        names = [one.partition("{")[0] for one in passes]
        last = names.index(self.behind) if self.behind else None
        return ",".join(passes[names.index(self.first) : last])


PARTS = {
    "schedule": PipelinePart("warp-set-target", "warp-lay-out"),
    "tile": PipelinePart("warp-lay-out", "warp-pipeline"),
    "finish": PipelinePart("warp-pipeline", ""),
}
"""What the standard pipeline consists of: choosing, cutting into tiles of fragments, and becoming PTX."""

TILING = PipelinePart("warp-stage", "warp-pack")
"""The passes that take the tile of a CTA to fragments."""


def _option(value: Option) -> str:
    text = str(value) if isinstance(value, (str, int)) else ",".join(map(str, value))
    return text.replace("x", ",") if text[:1].isdecimal() else text


VERIFIES_EACH: ContextVar[bool] = ContextVar("verifies_each", default=False)
"""Whether `lower` verifies the module after each pass, as `warploom-opt` does."""


_ONE_BY_ONE = RLock()
"""What one compilation at a time has: xDSL's `ImplicitBuilder` changes all operations while it is entered."""


@contextmanager
def paused() -> Generator[None]:
    """Keeps Python's cyclic garbage collector from running, if it would, and other threads from compiling.

    Operations, values and uses refer to each other in cycles and live until the module goes. The collector walks all of
    them again and again as more come: half of the time of a large kernel.
    """
    with _ONE_BY_ONE:
        if on := gc.isenabled():
            gc.disable()
        try:
            yield
        finally:
            if on:
                gc.enable()


def lower(module: ModuleOp, ctx: Context, pipeline: str, on_phase: OnPhase | None = None) -> None:
    """Runs the passes of a pipeline that may change the module, in place. It is verified before the first pass, with
    the schedules that were asked for, and at the end. `on_phase` is called with each pass's name and its seconds, and
    with those of each verification as "verify".

    Raises:
        DiagnosticException: the first error of a pass or of its verification, as if each pass were verified.
    """
    with paused():
        verify(module)
        if VERIFIES_EACH.get():
            return _run(module, ctx, pipeline, on_phase, verifies_each=True)
        original = module.clone()
        try:
            return _run(module, ctx, pipeline, on_phase)
        except Exception:
            if (first := _first_error(original, ctx, pipeline)) is None:
                raise
        raise first


@lru_cache(64)
def _parts_of(pipeline: str) -> tuple[list[ArgSpec], ...]:
    """The passes of a pipeline up to the schedules of kernels, and those that follow."""
    specs = list(parse_pipeline(pipeline))
    first = next((i for i, spec in enumerate(specs) if spec.name == PARTS["schedule"].behind), len(specs))
    return tuple(filter(None, (specs[:first], specs[first:])))


@contextmanager
def phase(name: str, on_phase: OnPhase | None) -> Generator[None]:
    """Reports the time that the context takes."""
    start = time.perf_counter()
    yield
    if on_phase is not None:
        on_phase(name, time.perf_counter() - start)


def _run(
    module: ModuleOp, ctx: Context, pipeline: str, on_phase: OnPhase | None, *, verifies_each: bool = False
) -> None:
    """Runs the passes, and verifies the module behind each part of them, or each pass."""
    for part in _parts_of(pipeline):
        for one in applicable(part, module):
            with phase(one.name, on_phase):
                one.apply(ctx, module)
                if verifies_each:
                    verify(module)
        if not verifies_each:
            with phase("verify", on_phase):
                verify(module)


def _first_error(module: ModuleOp, ctx: Context, pipeline: str) -> Exception | None:
    """The first error of a pipeline that failed. The remarks of this second run are dropped, for the first one has made
    them."""
    with remarks():
        try:
            _run(module, ctx, pipeline, None, verifies_each=True)
        except Exception as error:
            return error
    return None


class Pipeline(ModulePass):
    """A pass that stands for several. `warploom-opt` prints, times and verifies these as if they were named."""

    @abstractmethod
    def text(self) -> str:
        """The passes as text for `-p`."""

    def passes(self) -> tuple[ModulePass, ...]:
        """The passes, in order."""
        return PassPipeline.parse_spec(WARPLOOM_UNIVERSE.all_passes, self.text()).passes

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for stage in self.passes():
            stage.apply(ctx, op)
            verify(op)


# `warp-set-target`: records the GPU that a module is compiled for.


@dataclass(frozen=True)
class SetTargetPass(ModulePass):
    """Sets `warp.target` on the module. Later passes and verifiers read the target there.

    Without `arch`, a module keeps its target; the target of a module that has none is sm_90a.
    """

    name = "warp-set-target"

    arch: str | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        declared = target_of(op)
        if self.arch is None and declared is not None:
            return
        try:
            asked = target(self.arch or DEFAULT_TARGET)
        except UnknownTargetError as e:
            raise PassFailedException(str(e)) from None
        if declared not in (None, asked):
            remark(op, self.name, f"the module says {declared}; it is compiled for {asked}, which was asked for")
        op.attributes[TargetAttr.name] = TargetAttr(asked)
