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


@pytest.mark.sampled(2)
@pytest.mark.parametrize("element", ["f16", "f32", "f64"])
def test_products_of_one_type_are_lowered_alike(
    element: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "product.mlir"
    path.write_text(MATMUL.format(t=element))
    text = ptx(path, capsys)
    opt.main([str(path), "-p", "warploom{tf32=true}", "-t", "ptx"])
    assert text == capsys.readouterr().out
    assert "mma.sync" in text


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "operation",
    [
        "linalg.matmul ins(%A, %B : memref<20x24xf16>, memref<24x12xf16>) outs(%C : memref<20x12xf32>)",
        "linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (k, m)>, affine_map<(m, n, k) -> (k, n)>, "
        "affine_map<(m, n, k) -> (m, n)>] ins(%A, %B : memref<24x20xf16>, memref<24x12xf16>) "
        "outs(%C : memref<20x12xf32>)",
    ],
)
def test_casts_and_maps_in_generic_form(operation: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, a = tmp_path / "product.mlir", "24x20" if "maps" in operation else "20x24"
    parameters = f"%A: memref<{a}xf16>, %B: memref<24x12xf16>, %C: memref<20x12xf32>"
    path.write_text(f"func.func @f({parameters}) {{\n  {operation}\n  return\n}}\n")
    opt.main([str(path), "-p", "warploom{tf32=true}", "-t", "ptx"])
    wanted = capsys.readouterr().out
    opt.main([str(path), "--print-op-generic"])
    path.write_text(capsys.readouterr().out)
    assert ptx(path, capsys) == wanted


def test_another_body_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "other.mlir"
    path.write_text(OTHER_BODY)
    with pytest.raises(Exception, match="it reduces over a loop without the value that its output has"):
        ptx(path, capsys)
