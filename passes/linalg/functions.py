"""Functions that no instruction computes, by those that one does.

Where a sum would cancel, 1 + x is rounded, and what it is rounded by is made up for by a quotient (W. Kahan's log1p and
expm1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import log
from typing import TypeAlias, cast

from xdsl.builder import Builder, ImplicitBuilder
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import AnyFloat, FloatAttr, IntegerType, TensorType, VectorType, f32
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint

from .constants import number_of

Scalar = SSAValue

Binary: TypeAlias = "arith.DivSIOp | arith.DivUIOp | arith.RemSIOp | arith.RemUIOp"


def _number(value: float) -> Scalar:
    return arith.ConstantOp(FloatAttr(value, f32)).result


def _equal(a: Scalar, b: Scalar, then: Scalar, otherwise: Scalar) -> Scalar:
    return arith.SelectOp(arith.CmpfOp(a, b, "oeq"), then, otherwise).result


def _log1p(x: Scalar) -> Scalar:
    above = arith.AddfOp(_number(1), x).result
    rounded, log = arith.SubfOp(above, _number(1)).result, math.LogOp(above).result
    mended = arith.MulfOp(log, arith.DivfOp(x, rounded)).result
    return _equal(above, _number(1), x, _equal(rounded, x, log, mended))


def _expm1(x: Scalar) -> Scalar:
    power = math.ExpOp(x).result
    less = arith.SubfOp(power, _number(1)).result
    mended = arith.MulfOp(less, arith.DivfOp(x, math.LogOp(power))).result
    large = _equal(less, power, power, _equal(less, _number(-1), less, mended))
    return _equal(power, _number(1), x, large)


def _copysign(x: Scalar, y: Scalar) -> Scalar:
    size, zero, inverse = math.AbsFOp(x).result, _number(0), arith.DivfOp(_number(1), y)
    is_negative = arith.OrIOp(arith.CmpfOp(y, zero, "olt"), arith.CmpfOp(inverse, zero, "olt"))  # 1 / -0 is
    return arith.SelectOp(is_negative, arith.NegfOp(size), size).result


def _round(x: Scalar) -> Scalar:
    truncated = math.TruncOp(x).result
    far = arith.CmpfOp(math.AbsFOp(arith.SubfOp(x, truncated)), _number(0.5), "oge")
    return arith.AddfOp(truncated, arith.SelectOp(far, _copysign(_number(1), x), _number(-0.0))).result


def _half_power(x: Scalar) -> tuple[Scalar, Scalar]:
    """exp(|x|) / 2, which may be finite where exp(|x|) is not, and exp(|x| / 2)."""
    root_ = math.ExpOp(arith.MulfOp(math.AbsFOp(x), _number(0.5))).result
    return arith.MulfOp(arith.MulfOp(root_, _number(0.5)), root_).result, root_


def _sinh(x: Scalar) -> Scalar:
    less = _expm1(math.AbsFOp(x).result)
    more = arith.AddfOp(less, _number(1)).result
    near = arith.MulfOp(arith.AddfOp(less, arith.DivfOp(less, more)), _number(0.5)).result
    return _copysign(_equal(more, less, _half_power(x)[0], near), x)


def _cosh(x: Scalar) -> Scalar:
    half, root_ = _half_power(x)
    return arith.AddfOp(half, arith.DivfOp(arith.DivfOp(_number(0.5), root_), root_)).result


def _asinh(x: Scalar) -> Scalar:
    size = math.AbsFOp(x).result
    inverse = arith.DivfOp(_number(1), size).result
    root_ = math.SqrtOp(arith.AddfOp(_number(1), arith.MulfOp(inverse, inverse)))
    return _copysign(_log1p(arith.AddfOp(size, arith.DivfOp(size, arith.AddfOp(inverse, root_))).result), x)


def _acosh(x: Scalar) -> Scalar:
    above = arith.SubfOp(x, _number(1)).result
    roots = arith.MulfOp(math.SqrtOp(above), math.SqrtOp(arith.AddfOp(above, _number(2))))
    return _log1p(arith.AddfOp(above, roots).result)


def _atanh(x: Scalar) -> Scalar:
    size = math.AbsFOp(x).result
    quotient = arith.DivfOp(arith.AddfOp(size, size), arith.SubfOp(_number(1), size)).result
    return _copysign(arith.MulfOp(_log1p(quotient), _number(0.5)).result, x)


def _log2(x: Scalar) -> Scalar:
    return arith.MulfOp(math.LogOp(x), _number(1 / log(2))).result


def _log10(x: Scalar) -> Scalar:
    return arith.MulfOp(math.LogOp(x), _number(1 / log(10))).result


def _tan(x: Scalar) -> Scalar:
    return arith.DivfOp(math.SinOp(x), math.CosOp(x)).result


OF_FLOATS: Mapping[str, Callable[..., Scalar]] = {
    f"math.{function.__name__.removeprefix('_')}": function
    for function in (_log1p, _expm1, _copysign, _round, _sinh, _cosh, _tan, _asinh, _acosh, _atanh, _log2, _log10)
}
"""Functions of f32; of narrower floats they are computed in f32."""


def _whole(value: int, like: Scalar) -> Scalar:
    return number_of(like.type, value).result


def _absi(x: Scalar) -> Scalar:
    return arith.MaxSIOp(x, arith.SubiOp(_whole(0, x), x)).result


def _divided(a: Scalar, b: Scalar, kinds: tuple[type[Binary], type[Binary]], where: str, step: int) -> Scalar:
    """The quotient rounded to zero, moved by `step` where there is a rest whose sign beside that of b is such."""
    quotient, rest, zero = kinds[0](a, b).result, kinds[1](a, b).result, _whole(0, a)
    moves = arith.AndIOp(arith.CmpiOp(rest, zero, "ne"), arith.CmpiOp(arith.XOrIOp(rest, b), zero, where))
    return arith.SelectOp(moves, arith.AddiOp(quotient, _whole(step, a)), quotient).result


def _doubling(x: Scalar) -> Iterator[Scalar]:
    """1, 2, 4 and so on, below the bits of an integer."""
    return (_whole(1 << n, x) for n in range(cast("IntegerType", x.type).bitwidth.bit_length() - 1))


def _ctpop(x: Scalar) -> Scalar:
    """Adds neighbours: bits, then pairs of them, and so on."""
    every = (1 << cast("IntegerType", x.type).bitwidth) - 1
    for n, shift in enumerate(_doubling(x)):
        mask = _whole(every // ((1 << (1 << n)) + 1), x)
        x = arith.AddiOp(arith.AndIOp(x, mask), arith.AndIOp(arith.ShRUIOp(x, shift), mask)).result
    return x


def _ctlz(x: Scalar) -> Scalar:
    for shift in _doubling(x):
        x = arith.OrIOp(x, arith.ShRUIOp(x, shift)).result
    return _ctpop(arith.XOrIOp(x, _whole(-1, x)).result)


def _cttz(x: Scalar) -> Scalar:
    return _ctpop(arith.AndIOp(arith.XOrIOp(x, _whole(-1, x)), arith.AddiOp(x, _whole(-1, x))).result)


SIGNED, UNSIGNED = (arith.DivSIOp, arith.RemSIOp), (arith.DivUIOp, arith.RemUIOp)

OF_INTEGERS: Mapping[str, Callable[..., Scalar]] = {
    "math.absi": _absi,
    "math.ctpop": _ctpop,
    "math.ctlz": _ctlz,
    "math.cttz": _cttz,
    "arith.floordivsi": partial(_divided, kinds=SIGNED, where="slt", step=-1),
    "arith.ceildivsi": partial(_divided, kinds=SIGNED, where="sge", step=1),
    "arith.ceildivui": partial(_divided, kinds=UNSIGNED, where="uge", step=1),
}
"""Functions of integers. Those of indices stay, and those that the host computes."""

EXPANDED = (*OF_FLOATS, *OF_INTEGERS)
"""The names of all functions that become others."""


class ExpandFunction(RewritePattern):
    """Replaces functions that no instruction computes by others."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if op.name not in EXPANDED or isinstance(kind := op.results[0].type, TensorType | VectorType):
            return
        with ImplicitBuilder(Builder(InsertPoint.before(op))):
            if isinstance(kind, IntegerType) and op.name in OF_INTEGERS and not isinstance(op.parent_op(), FuncOp):
                result = OF_INTEGERS[op.name](*op.operands)
            elif isinstance(kind, AnyFloat) and kind.bitwidth <= f32.bitwidth:
                wide = kind == f32
                values = [v if wide else arith.ExtFOp(v, f32).result for v in op.operands]
                result = OF_FLOATS[op.name](*values)
                result = result if wide else arith.TruncFOp(result, kind).result
            else:
                return
        rewriter.replace(op, [], [result])
