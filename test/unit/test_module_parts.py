"""Which modules are verified again: those that a pass has changed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from xdsl.context import Context
from xdsl.dialects import arith, func
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, UnitAttr, i32, i64
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from warploom.passes.context import make_context, parse_mlir
from warploom.passes.diagnostics import LocatedError
from warploom.passes.module_parts import ModuleParts
from warploom.passes.pipeline import run

TEXT = """func.func @f(%a: i32, %b: i32) -> i32 {
  %one = arith.constant 1 : i32
  %x = arith.addi %a, %b : i32
  %y = arith.muli %x, %one : i32
  return %y : i32
}"""


def module() -> ModuleOp:
    return parse_mlir(make_context(), TEXT)


def function(made: ModuleOp) -> func.FuncOp:
    found = next(op for op in made.walk() if isinstance(op, func.FuncOp))
    assert isinstance(found, func.FuncOp)
    return found


def swap_operands(made: ModuleOp) -> None:
    add = next(op for op in made.walk() if isinstance(op, arith.AddiOp))
    add.operands = add.operands[::-1]


def reorder(made: ModuleOp) -> None:
    one, add, *_ = function(made).body.block.ops
    add.detach()
    function(made).body.block.insert_op_before(add, one)


def mark(made: ModuleOp) -> None:
    function(made).attributes["seen"] = UnitAttr()


def another_constant(made: ModuleOp) -> None:
    one = next(op for op in made.walk() if isinstance(op, arith.ConstantOp))
    one.properties["value"] = IntegerAttr(2, i32)


def another_type(made: ModuleOp) -> None:
    Rewriter.replace_value_with_new_type(function(made).body.block.args[0], i64)


def erase(made: ModuleOp) -> None:
    mul = next(op for op in made.walk() if isinstance(op, arith.MuliOp))
    Rewriter.replace_op(mul, [], [mul.lhs])


@pytest.mark.parametrize(
    "change", [swap_operands, reorder, mark, another_constant, another_type, erase], ids=lambda f: f.__name__
)
def test_every_change_is_seen(change: Callable[[ModuleOp], None]) -> None:
    made = module()
    before = ModuleParts(made)
    assert ModuleParts(made).are_those_of(before)
    change(made)
    assert not ModuleParts(made).are_those_of(before)


class Breaks(ModulePass):
    """Leaves a sum of two types."""

    name = "breaks"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        another_type(op)


class Looks(ModulePass):
    """Changes nothing."""

    name = "looks"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        list(op.walk())


def test_what_a_pass_breaks_is_told_and_what_it_leaves_is_not_verified_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made, verified = module(), list[ModuleOp]()
    before = ModuleParts(made)
    with monkeypatch.context() as patch:
        patch.setattr("warploom.passes.pipeline.verify", verified.append)
        left = run(Looks(), make_context(), made, before)
        assert not verified
        assert left.are_those_of(before)
    with pytest.raises(LocatedError, match=r"arith\.addi"):
        run(Breaks(), make_context(), made, left)
