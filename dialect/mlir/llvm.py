"""`llvm` as MLIR prints it: xDSL's dialect, and the operations of kernels that it lacks. Source: MLIR 22,
`mlir/include/mlir/Dialect/LLVMIR/{LLVMOps,LLVMIntrinsicOps}.td`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from xdsl.dialects import llvm
from xdsl.dialects.builtin import IntAttr, NoneAttr, UnitAttr, VectorType
from xdsl.ir import Attribute, Operation, ParametrizedAttribute, SSAValue, TypeAttribute
from xdsl.irdl import (
    AnyAttr,
    IRDLOperation,
    VarConstraint,
    operand_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import AttrParser, Parser
from xdsl.traits import Pure

from .upstream import declared, extended
from .words import carried, defined

CONSTANT_RANGE = carried("llvm.constant_range")
"""The values that a special register has: `#llvm.constant_range<i32, 0, 32>`, the last one excluded."""


class PointerSyntax(ParametrizedAttribute, TypeAttribute):
    """The text of a pointer, which is read as xDSL's type: `!llvm.ptr<0>` is `!llvm.ptr`, as in MLIR."""

    name = llvm.LLVMPointerType.name

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        (space,) = llvm.LLVMPointerType.parse_parameters(parser)
        return (NoneAttr() if space == IntAttr(0) else space,)

    @classmethod
    def new(cls, params: Sequence[Attribute]) -> Any:
        return llvm.LLVMPointerType.new(params)


_ELEMENT = VarConstraint("ELEMENT", AnyAttr())

ExtractElementOp = declared(
    IRDLOperation, "llvm.extractelement",
    "$vector `[` $position `:` type($position) `]` attr-dict `:` type($vector)", "One element of a vector.",
    vector=operand_def(VarConstraint("VECTOR", VectorType.constr(_ELEMENT))), position=operand_def(),
    res=result_def(_ELEMENT), traits=traits_def(Pure()),
)  # fmt: skip


class _Cast(IRDLOperation):
    """A conversion of one value to another type."""

    assembly_format = "$arg attr-dict `:` type($arg) `to` type($res)"

    arg = operand_def()
    res = result_def()
    traits = traits_def(Pure())

    def __init__(self, arg: SSAValue, kind: Attribute) -> None:
        super().__init__(operands=[arg], result_types=[kind])


class _Intrinsic(IRDLOperation):
    """A function of values of one type, which the result has too."""

    assembly_format = "`(` $arguments `)` attr-dict `:` functional-type(operands, results)"

    arguments = var_operand_def()
    res = result_def()
    traits = traits_def(Pure())

    def __init__(self, *arguments: SSAValue) -> None:
        super().__init__(operands=[arguments], result_types=[arguments[0].type])


Kind = TypeVar("Kind", bound=IRDLOperation)


def _named(base: type[Kind], mnemonic: str) -> type[Kind]:
    return defined(base, f"llvm.{mnemonic}", base.__doc__ or "")


CASTS = {name: _named(_Cast, name) for name in ("addrspacecast", "fptosi", "fptoui", "uitofp")}
"""Conversions by their names."""

INTRINSICS = {
    name: _named(_Intrinsic, f"intr.{name}")
    for name in ("smin", "smax", "umin", "umax", "minimum", "maximum", "fshl", "fshr", "ctpop", "bitreverse")
}
"""Functions by their names."""


class GEPOp(llvm.GEPOp):
    """An address some elements away. The flags are parsed, and `inbounds` is kept of them."""

    @classmethod
    def parse(cls, parser: Parser) -> llvm.GEPOp:
        flags: list[str] = []
        while (flag := parser.parse_optional_keyword_in(("inbounds", "nusw", "nuw"))) is not None:
            flags.append(flag)
            if parser.parse_optional_characters("|") is None:
                break
        op = super().parse(parser)
        if "inbounds" in flags:
            op.properties["inbounds"] = UnitAttr()
        return op


POISON = declared(
    IRDLOperation, "llvm.mlir.poison", "attr-dict `:` type($res)", "Any value.", res=result_def(),
    traits=traits_def(Pure()),
)  # fmt: skip

OPERATIONS: Sequence[type[Operation]] = (POISON, ExtractElementOp, GEPOp, *CASTS.values(), *INTRINSICS.values())

LLVM = extended(llvm.LLVM, OPERATIONS, (PointerSyntax, CONSTANT_RANGE))

ARITHMETIC: Mapping[str, str] = {
    "add": "add.i", "sub": "sub.i", "mul": "mul.lo.i", "udiv": "div.u", "sdiv": "div.s", "urem": "rem.u",
    "srem": "rem.s", "and": "and.b", "or": "or.b", "xor": "xor.b", "shl": "shl.b", "lshr": "shr.u", "ashr": "shr.s",
    "intr.umin": "min.u", "intr.smin": "min.s", "intr.umax": "max.u", "intr.smax": "max.s",
    "fadd": "add.rn.f", "fsub": "sub.rn.f", "fmul": "mul.rn.f", "fdiv": "div.rn.f", "intr.maxnum": "max.f",
    "intr.minnum": "min.f", "intr.maximum": "max.NaN.f", "intr.minimum": "min.NaN.f", "fneg": "neg.f",
    "intr.fabs": "abs.f", "intr.sqrt": "sqrt.rn.f", "intr.fma": "fma.rn.f",
}  # fmt: skip
"""What operations are in PTX, in front of the bits of the type; `i` is an integer with or without a sign."""

SPACES: Mapping[int, str] = {
    0: "", 1: "global", 3: "shared", 4: "const", 5: "local", 6: "tensor", 7: "shared::cluster", 101: "param",
}  # fmt: skip
"""The state spaces of PTX by the address spaces of LLVM's NVPTX; generic addresses have none."""

DIRECTIVES: Mapping[str, str] = {
    "nvvm.reqntid": ".reqntid", "nvvm.maxntid": ".maxntid", "nvvm.cluster_dim": ".reqnctapercluster",
    "nvvm.minctasm": ".minnctapersm", "nvvm.maxnreg": ".maxnreg", "nvvm.cluster_max_blocks": ".maxclusterrank",
}  # fmt: skip
"""The directives of a kernel by the attributes that say the same."""

_ROUNDED = [f"{name}.{mode}" for name in ("sqrt", "rcp", "div") for mode in ("rn", "rz", "rm", "rp")]
_APPROXIMATE = [f"{name}.approx" for name in ("ex2", "lg2", "rsqrt", "sqrt", "div")]

FUNCTIONS: Mapping[str, str] = {
    **{f"llvm.nvvm.{name}{ftz}.f": f"{name}{ftz}.f32" for name in _APPROXIMATE + _ROUNDED for ftz in ("", ".ftz")},
    **{f"llvm.nvvm.{name}.d": f"{name}.f64" for name in _ROUNDED},
    **{
        f"llvm.nvvm.f{name}{nan.lower()}.xorsign.abs.f": f"{name}{nan}.xorsign.abs.f32"
        for name in ("min", "max")
        for nan in ("", ".NaN")
    },
    **{f"llvm.nvvm.ff2{kind}.rn": f"cvt.rn.{kind}.f32" for kind in ("f16x2", "bf16x2")},
    **{f"llvm.nvvm.{kind}.to.f16x2.rn": f"cvt.rn.f16x2.{kind}" for kind in ("e4m3x2", "e5m2x2")},
    **{f"llvm.nvvm.ff.to.{kind}.rn": f"cvt.rn.satfinite.{kind}.f32" for kind in ("e4m3x2", "e5m2x2")},
}
"""The instructions of PTX that LLVM has a function for, and no operation."""
