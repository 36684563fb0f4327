"""Uses what the package adds, where it is installed. Exits with an error if something is not there."""

import contextlib
import io
from pathlib import Path

import numpy as np
import pytest

from warploom.passes import opt
from warploom.runtime import WarploomError, check_ptx, compile


def run(*arguments):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), contextlib.suppress(SystemExit):
        opt.main(list(arguments))
    return out.getvalue()


TWICE = """
func.func @double(%A: memref<64xf32>) {
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c32 = arith.constant 32 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c2, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c32, %sy = %c1, %sz = %c1) {
    %offset = arith.muli %bx, %sx : index
    %i = arith.addi %offset, %tx : index
    %x = memref.load %A[%i] : memref<64xf32>
    %y = toy.twice %x : f32 -> f32
    memref.store %y, %A[%i] : memref<64xf32>
    gpu.terminator
  }
  return
}
"""
kernel = compile(TWICE, target="sm_80")
assert "twice.f32" in kernel.ptx
array = np.arange(64, dtype=np.float32)
kernel(array, device="interp", checks="all")
assert (array == 2 * np.arange(64)).all()
with pytest.raises(WarploomError, match=r"twice\.f32: no GPU has it"):
    kernel(array, device="interp", checks="no-toys")
assert not check_ptx(kernel.ptx)
assert "twice" in str(check_ptx(kernel.ptx.replace("twice.f32", "twice.f64"))[0])

listed = run("--list-passes")
for name in (
    "toy-negations",
    "toy-name",
    "warploom.patterns: DoubleNegation",
    "warploom.models: narrow",
    "warploom.lowerings: toy.twice",
    "warploom.rows: toy",
    "warploom.meanings: toy.twice",
    "warploom.checks: no-toys",
):
    assert f"{name} (from warploom-toy 1.2)" in listed.splitlines(), name
Path("negated.mlir").write_text("""func.func @f(%x: f32) -> f32 {
  %a = arith.negf %x : f32
  %b = arith.negf %a : f32
  return %b : f32
}""")
Path("by_name.mlir").write_text("""module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op) {
    %r = transform.apply_registered_pass "warp-apply-patterns" with options = {"patterns" = "DoubleNegation"} to %m
      : (!transform.any_op) -> !transform.any_op
    transform.yield
  }
}""")
for options in (["-p", "toy-name{called=a},toy-negations"], ["--transform", "by_name.mlir"]):
    assert "func.return %x" in run("negated.mlir", *options)
Path("product.mlir").write_text("""func.func @f(%A: memref<64x64xf16>, %B: memref<64x64xf16>, %C: memref<64x64xf32>) {
  linalg.matmul ins(%A, %B : memref<64x64xf16>, memref<64x64xf16>) outs(%C : memref<64x64xf32>)
  return
}""")
assert "cta = 16x16x32" in run("product.mlir", "-p", "warploom-schedule{target=sm_80 model=narrow}")
assert "cta = 32x16x32" in run("product.mlir", "-p", "warploom-schedule{target=sm_80 model=narrow cta=32,16,32}")
assert "no installed package has a model wide; there is narrow" in run(
    "product.mlir", "-p", "warploom-schedule{model=wide}"
)
