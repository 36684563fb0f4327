"""What `warp.matmul` and `warp.epilogue` share: D, and the epilogue that makes its elements of the product's."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Region, SSAValue, TypeAttribute
from xdsl.utils.exceptions import VerifyException

from .attributes import memory_of
from .elements import verify_elements
from .indices import verify_indices
from .loops import element_type


def product_type(d: SSAValue, epilogue: Region | None) -> TypeAttribute:
    """The type that an element of the product is rounded to: D's, or what the epilogue takes."""
    kind = memory_of(d).element_type if epilogue is None else epilogue.block.args[0].type
    if not isinstance(kind, TypeAttribute):
        raise VerifyException(f"expected elements of a type, got {kind}")
    return kind


def verify_epilogue(d: SSAValue, epilogue: Region | None, operands: Sequence[SSAValue], along: Sequence[int]) -> None:
    """Checks an epilogue and its operands; D runs along the loops `along`.

    Raises:
        VerifyException: if there are operands without one, or it takes or yields elements of other types.
    """
    if epilogue is None:
        if operands:
            raise VerifyException(f"expected epilogue operands only with an epilogue, got {len(operands)}")
        return
    if len(epilogue.blocks) != 1 or not epilogue.blocks[0].args:
        raise VerifyException("expected an epilogue of one block that takes the element of the product")
    inputs = [product_type(d, epilogue), *map(element_type, operands)]
    verify_elements(epilogue, inputs, memory_of(d).element_type)
    verify_indices(epilogue.block, along)


def verify_like(c: SSAValue | None, d: SSAValue) -> None:
    """Checks that C, if there is one, has the shape of D.

    Raises:
        VerifyException: if it has not.
    """
    if c is not None and memory_of(c).get_shape() != memory_of(d).get_shape():
        raise VerifyException(f"expected C of the shape of D, got {c.type} and {d.type}")
