"""MLIR's dialect `transform`: text and operations that xDSL lacks, and those of this project, `transform.warp.*`.

A strategy is a `transform.named_sequence`. Its values are handles, which stand for operations of the program, or
parameters, which are attributes. Source: MLIR, Transform Dialect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects import transform
from xdsl.dialects.builtin import (
    ArrayAttr,
    BoolAttr,
    DenseArrayBase,
    DictionaryAttr,
    IntegerAttr,
    StringAttr,
    SymbolRefAttr,
    UnitAttr,
    i64,
)
from xdsl.ir import Attribute, Block, Dialect, Region, SSAValue
from xdsl.irdl import (
    AnyAttr,
    IRDLOperation,
    ParsePropInAttrDict,
    RangeOf,
    VarConstraint,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    opt_region_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_region_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import NoTerminator
from xdsl.utils.exceptions import VerifyException

from ..mlir.upstream import declared
from .partial import PartialScheduleAttr

Handle = transform.TransformOpHandleType
IN_DICTIONARY = (ParsePropInAttrDict(),)

# Operations of MLIR.


def _parse_region(parser: Parser) -> Region:
    """A region; one that names no argument has one all the same, as MLIR's short form of a sequence has not."""
    region = parser.parse_region()
    if not region.blocks:
        region.add_block(Block())
    return region


@irdl_op_definition
class ForeachOp(IRDLOperation):
    """Applies its body to each operation of a handle, or of several handles side by side: `transform.foreach %h :
    !transform.any_op { ^bb0(%op: ...): ... }`. A result has what the body yields in all turns."""

    name = "transform.foreach"

    targets = var_operand_def(transform.TransformHandleType)
    shortest = opt_prop_def(UnitAttr, prop_name="with_zip_shortest")
    results_ = var_result_def(transform.TransformHandleType)
    body = region_def("single_block")

    traits = traits_def(NoTerminator())

    assembly_format = (
        "$targets (`with_zip_shortest` $with_zip_shortest^)? attr-dict `:` type($targets)"
        " (`->` type($results_)^)? $body"
    )

    def verify_(self) -> None:
        if [argument.type for argument in self.body.block.args] != [target.type for target in self.targets]:
            raise VerifyException(f"expected a body with arguments of types {', '.join(map(str, self.targets.types))}")


@irdl_op_definition
class AlternativesOp(IRDLOperation):
    """Applies the first of its regions of which every step applies; what others did before is undone:
    `transform.alternatives %scope : !transform.any_op { ^bb0(%op: !transform.any_op): ... }, { ... }`."""

    name = "transform.alternatives"

    scope = opt_operand_def(Handle)
    alternatives = var_region_def("single_block")

    traits = traits_def(NoTerminator())

    @classmethod
    def parse(cls, parser: Parser) -> AlternativesOp:
        scope: list[SSAValue] = []
        if (target := parser.parse_optional_unresolved_operand()) is not None:
            parser.parse_punctuation(":")
            scope.append(parser.resolve_operand(target, parser.parse_type()))
        regions = [_parse_region(parser)]
        while parser.parse_optional_punctuation(","):
            regions.append(_parse_region(parser))
        return cls(operands=[scope], regions=[regions])

    def print(self, printer: Printer) -> None:
        if self.scope is not None:
            printer.print_string(" ")
            printer.print_operand(self.scope)
            printer.print_string(" : ")
            printer.print_attribute(self.scope.type)
        for number, region in enumerate(self.alternatives):
            printer.print_string(", " if number else " ")
            printer.print_region(region)

    def verify_(self) -> None:
        if not self.alternatives:
            raise VerifyException("expected at least one alternative")


@irdl_op_definition
class IncludeOp(IRDLOperation):
    """Applies another named sequence: `transform.include @name failures(propagate) (%h) : (!transform.any_op) -> ()`.

    With `failures(suppress)`, a step that does not apply ends the sequence, with a remark.
    """

    name = "transform.include"

    target = prop_def(SymbolRefAttr)
    failures = prop_def(transform.FailurePropagationModeAttr)
    inputs = var_operand_def(transform.TransformHandleType)
    outputs = var_result_def(transform.TransformHandleType)

    assembly_format = (
        "$target `failures` `(` $failures `)` `(` $inputs `)` attr-dict `:` functional-type($inputs, $outputs)"
    )


@irdl_op_definition
class SplitHandleOp(IRDLOperation):
    """The operations of a handle, one in each result."""

    name = "transform.split_handle"

    handle = operand_def(Handle)
    parts = var_result_def(Handle)

    assembly_format = "$handle attr-dict `:` functional-type(operands, results)"


@irdl_op_definition
class MergeHandlesOp(IRDLOperation):
    """The operations of several handles, or several parameters, in one: `transform.merge_handles %a, %b : ...`."""

    name = "transform.merge_handles"

    T: ClassVar = VarConstraint("T", AnyAttr())

    handles = var_operand_def(RangeOf(T))
    deduplicate = opt_prop_def(UnitAttr)
    result = result_def(T)

    assembly_format = "(`deduplicate` $deduplicate^)? $handles attr-dict `:` type($result)"


@irdl_op_definition
class FuseIntoContainingOp(IRDLOperation):
    """Computes, in each turn of a loop, the part of a producer's result that the turn reads."""

    name = "transform.structured.fuse_into_containing_op"

    producer = operand_def(Handle)
    containing_op = operand_def(Handle)
    fused_op = result_def(Handle)
    new_containing_op = result_def(Handle)

    assembly_format = "$producer `into` $containing_op attr-dict `:` functional-type(operands, results)"


# Steps of MLIR that are read and printed, and that no strategy here applies.


def _step(name: str, text: str = "attr-dict", **fields: object) -> type[IRDLOperation]:
    """A step by its name behind `transform.`, its text, and its fields."""
    return declared(IRDLOperation, f"transform.{name}", text, **fields)


def _on_handle(name: str, text: str = "attr-dict", results: int = 1, **fields: object) -> type[IRDLOperation]:
    """A step on a handle whose text ends with the types of that and of a result."""
    result = {"result": result_def(Handle)} if results else {}
    kinds = "`:` functional-type(operands, results)" if results else "`:` `(` type($target) `)` `->` `(` `)`"
    return _step(name, f"{text} {kinds}", target=operand_def(Handle), **result, **fields)


_INTEGER, _FLAG = IntegerAttr[i64], opt_prop_def(UnitAttr)
_SIZES = DenseArrayBase.constr(i64)

UPSTREAM = (
    *map(_step, (
        "apply_conversion_patterns.gpu.gpu_to_nvvm", "apply_conversion_patterns.gpu.gpu_wmma_to_nvvm",
        "apply_conversion_patterns.gpu.gpu_subgroup_reduce_to_nvvm", "apply_conversion_patterns.nvgpu.nvgpu_to_nvvm",
        "apply_conversion_patterns.func.func_to_llvm", "apply_conversion_patterns.vector.vector_to_llvm",
        "apply_conversion_patterns.memref.memref_to_llvm_type_converter", "apply_patterns.gpu.gpu_rewrite_patterns",
        "apply_patterns.gpu.eliminate_barriers", "apply_patterns.canonicalization",
    )),
    _step(
        "apply_conversion_patterns.dialect_to_llvm", "$dialect_name attr-dict",
        dialect=prop_def(StringAttr, prop_name="dialect_name"),
    ),
    _step(
        "apply_patterns.gpu.gpu_shuffle_to_amdgpu", "(`chipset` `=` $chipset^)? attr-dict",
        chipset=opt_prop_def(StringAttr),
    ),
    _step(
        "apply_patterns.gpu.unroll_vectors_subgroup_mma", "`[` $m `,` $n `,` $k `]` attr-dict",
        m=prop_def(_INTEGER), n=prop_def(_INTEGER), k=prop_def(_INTEGER),
    ),
    _step(
        "apply_patterns.vector.transfer_to_scf",
        "(`max_transfer_rank` `=` $max_transfer_rank^)? (`full_unroll` `=` $full_unroll^)? attr-dict",
        max_transfer_rank=opt_prop_def(_INTEGER), full_unroll=opt_prop_def(BoolAttr),
    ),
    _step(
        "apply_patterns", "`to` $target $patterns attr-dict `:` type($target)",
        target=operand_def(Handle), patterns=region_def(), traits=traits_def(NoTerminator()),
    ),
    _step(
        "apply_conversion_patterns",
        "`to` $target $patterns (`with` `type_converter` $converter^)? attr-dict `:` type($target)",
        target=operand_def(Handle), patterns=region_def(), converter=opt_region_def(),
        traits=traits_def(NoTerminator()),
    ),
    _step("apply_cse", "`to` $target attr-dict `:` type($target)", target=operand_def(Handle)),
    _on_handle("nvgpu.create_async_groups", "$target attr-dict", bypass_l1=_FLAG, irdl_options=IN_DICTIONARY),
    _on_handle(
        "nvgpu.pipeline_shared_memory_copies", "`failures` `(` $failure_propagation_mode `)` $target attr-dict",
        failures=prop_def(transform.FailurePropagationModeAttr, prop_name="failure_propagation_mode"),
        depth=prop_def(_INTEGER), peel_epilogue=_FLAG, irdl_options=IN_DICTIONARY,
    ),
    _on_handle("nvgpu.rewrite_matmul_as_mma_sync", "$target attr-dict", results=0),
    _on_handle("nvgpu.rewrite_copy_as_tma", "$target attr-dict", results=0),
    _on_handle(
        "gpu.map_nested_forall_to_threads",
        "$target `block_dims` `=` $block_dims (`sync_after_distribute` `=` $sync_after_distribute^)?"
        " (`warp_size` `=` $warp_size^)? attr-dict",
        block_dims=prop_def(_SIZES), sync_after_distribute=opt_prop_def(BoolAttr), warp_size=opt_prop_def(_INTEGER),
    ),
    _on_handle(
        "gpu.map_forall_to_blocks",
        "$target (`generate_gpu_launch` $generate_gpu_launch^)? (`grid_dims` `=` $grid_dims^)? attr-dict",
        generate_gpu_launch=_FLAG, grid_dims=opt_prop_def(_SIZES),
    ),
)  # fmt: skip

# Operations of this project.


@irdl_op_definition
class WhereOp(IRDLOperation):
    """The operations of a handle for which facts hold: `transform.warp.where %h {m = "64..", k = 4096, types = [f16,
    f16], in = "mlp"} : ...`.

    `m`, `n`, `k` and `batch` are sizes of a product, a number or a range `"64..256"` of which either end may be left
    out; `types` the element types of its operands, `in` the function or kernel that it is in, `name` a name of one of
    its operands or results.
    """

    name = "transform.warp.where"

    facts = prop_def(DictionaryAttr)
    target = operand_def(Handle)
    result = result_def(Handle)

    assembly_format = "$target $facts attr-dict `:` functional-type(operands, results)"


@irdl_op_definition
class SetOp(IRDLOperation):
    """Sets fields of the schedules of products: `transform.warp.set %h to #warp.schedule<cta = 128x128x32> :
    !transform.any_op`. Fields that were set before stay; `warp-schedule` chooses the others."""

    name = "transform.warp.set"

    fields = prop_def(Attribute)
    target = operand_def(Handle)

    assembly_format = "$target `to` $fields attr-dict `:` type($target)"

    def verify_(self) -> None:
        if self.fields.name != PartialScheduleAttr.name:
            raise VerifyException(f"expected fields of a schedule, #{PartialScheduleAttr.name}<...>, got {self.fields}")


@irdl_op_definition
class ApplyPatternsOp(IRDLOperation):
    """Applies rewrite patterns, by name, to operations and what is in them: `transform.warp.apply_patterns %h
    ["FoldFill"] : !transform.any_op`."""

    name = "transform.warp.apply_patterns"

    patterns = prop_def(ArrayAttr[StringAttr])
    target = operand_def(Handle)

    assembly_format = "$target $patterns attr-dict `:` type($target)"


@irdl_op_definition
class FuseProductsOp(IRDLOperation):
    """Makes one kernel of products, each of which reads rows of what the one before made: a CTA computes some rows of
    all of them, one after another."""

    name = "transform.warp.fuse_products"

    targets = var_operand_def(Handle)

    assembly_format = "$targets attr-dict `:` type($targets)"


OWN = (
    ForeachOp,
    AlternativesOp,
    IncludeOp,
    SplitHandleOp,
    MergeHandlesOp,
    FuseIntoContainingOp,
    WhereOp,
    SetOp,
    ApplyPatternsOp,
    FuseProductsOp,
    *UPSTREAM,
)


def _all(own: Sequence[type[IRDLOperation]]) -> list[type]:
    """xDSL's operations, less those that stand here in their place, and these."""
    names = {op.name for op in own}
    return [*(op for op in transform.Transform.operations if op.name not in names), *own]


TRANSFORM = Dialect("transform", _all(OWN), list(transform.Transform.attributes))
