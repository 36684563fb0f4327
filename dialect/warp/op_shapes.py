"""Shapes that many operations have: their operands, result, effect and text."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from xdsl.dialects.builtin import IndexType, MemRefType, UnitAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import IRDLOperation, ParsePropInAttrDict, operand_def, result_def, traits_def, var_operand_def
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect, Pure

from .attributes import FragmentType

Properties: TypeAlias = Mapping[str, Attribute | None]


def flag(given: bool) -> UnitAttr | None:
    """The property of a word that is given, or is not."""
    return UnitAttr() if given else None


class FragmentChange(IRDLOperation, ABC):
    """A fragment that becomes another: `%b = NAME %a : TYPE to TYPE`."""

    input = operand_def(FragmentType)
    fragment = result_def(FragmentType)

    traits = traits_def(Pure())
    assembly_format = "$input attr-dict `:` type($input) `to` type($fragment)"

    def __init__(self, value: SSAValue, fragment: FragmentType, properties: Properties | None = None):
        super().__init__(operands=[value], properties=properties or {}, result_types=[fragment])


class FragmentLoad(IRDLOperation, ABC):
    """A fragment from the indices of memory on: `%a = NAME %A[%i, %j] {FLAGS} : TYPE -> TYPE`."""

    memory = operand_def(MemRefType)
    indices = var_operand_def(IndexType())
    fragment = result_def(FragmentType)

    traits = traits_def(MemoryReadEffect())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$memory `[` $indices `]` attr-dict `:` type($memory) `->` type($fragment)"

    def __init__(
        self,
        memory: SSAValue,
        indices: Sequence[SSAValue],
        fragment: FragmentType,
        properties: Properties | None = None,
    ):
        super().__init__(operands=[memory, list(indices)], properties=properties or {}, result_types=[fragment])


class FragmentStore(IRDLOperation, ABC):
    """A fragment to the indices of memory on: `NAME %d, %D[%i, %j] {FLAGS} : TYPE, TYPE`."""

    fragment = operand_def(FragmentType)
    memory = operand_def(MemRefType)
    indices = var_operand_def(IndexType())

    traits = traits_def(MemoryWriteEffect())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$fragment `,` $memory `[` $indices `]` attr-dict `:` type($fragment) `,` type($memory)"

    def __init__(
        self,
        fragment: SSAValue,
        memory: SSAValue,
        indices: Sequence[SSAValue],
        properties: Properties | None = None,
    ):
        super().__init__(operands=[fragment, memory, list(indices)], properties=properties or {})
