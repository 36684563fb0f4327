"""Plain `xdsl-opt`, whose `linalg` is xDSL's own, with the passes that the entry point brings."""

from __future__ import annotations

from pathlib import Path

import pytest
from xdsl.xdsl_opt_main import xDSLOptMain

from warploom.passes import opt

MATMUL = """\
func.func @f(%A: memref<20x24x{t}>, %B: memref<24x12x{t}>, %C: memref<20x12x{t}>) {{
  linalg.matmul ins(%A, %B : memref<20x24x{t}>, memref<24x12x{t}>) outs(%C : memref<20x12x{t}>)
  return
}}
"""
OTHER_BODY = """\
"func.func"() <{sym_name = "f", function_type = (memref<8x8xf16>, memref<8x8xf16>, memref<8x8xf16>) -> ()}> ({
^bb0(%A: memref<8x8xf16>, %B: memref<8x8xf16>, %C: memref<8x8xf16>):
  "linalg.matmul"(%A, %B, %C) <{operandSegmentSizes = array<i32: 2, 1>}> ({
  ^bb0(%a: f16, %b: f16, %c: f16):
    %s = "arith.addf"(%a, %b) <{fastmath = #arith.fastmath<none>}> : (f16, f16) -> f16
    "linalg.yield"(%s) : (f16) -> ()
  }) : (memref<8x8xf16>, memref<8x8xf16>, memref<8x8xf16>) -> ()
  "func.return"() : () -> ()
}) : () -> ()
"""


def ptx(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    xDSLOptMain(args=[str(path), "-p", "warploom{tf32=true}", "-t", "ptx"]).run()
    return capsys.readouterr().out


@pytest.mark.parametrize("element", ["f16", "f32", "f64"])
def test_products_of_one_type_are_lowered_alike(
    element: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "product.mlir"
    path.write_text(MATMUL.format(t=element))
    found = ptx(path, capsys)
    opt.main([str(path), "-p", "warploom{tf32=true}", "-t", "ptx"])
    assert found == capsys.readouterr().out
    assert "mma.sync" in found


def test_another_body_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "other.mlir"
    path.write_text(OTHER_BODY)
    with pytest.raises(Exception, match="to multiply and add, as its body says otherwise"):
        ptx(path, capsys)
