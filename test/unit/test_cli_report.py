"""`warploom run --report`: the tables, JSON, and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from warploom.runtime.cli.command import main

ROOT = Path(__file__).parents[2]
TRANSPOSE = [
    *("run", str(ROOT / "examples" / "transpose.ptx"), "--grid", "2,2", "--block", "32,8"),
    *("--arg", "random:f32:64x64", "--arg", "zeros:f32:64x64", "--report"),
]
PRODUCT = """\
func.func @product(%A: memref<40x16xf16>, %B: memref<16x24xf16>, %C: memref<40x24xf32>) {
  linalg.matmul ins(%A, %B : memref<40x16xf16>, memref<16x24xf16>) outs(%C : memref<40x24xf32>)
  return
}
"""


pytestmark = pytest.mark.usefixtures("nothing_but_python")


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


def test_the_page_shows_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")
    command = " ".join(["warploom", "run", "examples/transpose.ptx", *TRANSPOSE[2:]])
    assert f"```sh\n{command}\n```" in page
    assert main(TRANSPOSE) == 0
    out = lines(capsys.readouterr().out)
    shown = re.search(r"```text\n(transpose:.*?)\n```", page, re.DOTALL)
    assert shown is not None
    assert out[out.index("transpose: 1,248 instructions of warps") :] == lines(shown[1])


def test_the_example_without_its_conflicts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = Path(TRANSPOSE[1]).read_text(encoding="utf-8")
    better = tmp_path / "transpose.ptx"
    for old, new in (("128, %r4", "132, %r4"), *((f"+{8 * i * 128}]", f"+{8 * i * 132}]") for i in (1, 2, 3))):
        text = re.sub(rf"(.*shared.*|mad.*){re.escape(old)}", lambda m, n=(old, new): m[0].replace(*n), text)
    better.write_text(text, encoding="utf-8")
    assert main(["run", str(better), *TRANSPOSE[2:], "--out", f"1={tmp_path / 'y.npy'}"]) == 0
    assert "shared memory, by line: 256 wavefronts, no bank conflicts" in capsys.readouterr().out


def test_json_stands_alone_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TRANSPOSE, "--json", "--problem", "2x64x64x64"]) == 0
    out, err = capsys.readouterr()
    (report,) = json.loads(out)
    assert report["kernel"] == "transpose"
    assert (report["wavefronts"], report["wavefronts_extra"], report["sectors"]) == (4224, 3968, 1024)
    assert report["problem"] == "2x64x64x64"
    assert report["useful"] is None
    assert "ran on" in err


def test_our_own_kernels_are_held_against_their_product(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "product.mlir"
    path.write_text(PRODUCT, encoding="utf-8")
    assert main(["run", str(path), "--report", "--check"]) == 0
    out = capsys.readouterr().out
    assert "ran on   interp" in out
    match = re.search(r"the product 40x24x16 needs 15,360 \((.*) %\)", out)
    assert match is not None
    row = re.search(r"^mma\.m16n8k16\.row\.col\.f32\.f16\.f16\.f32 +(\d+) +[\d,]+ +9$", out, re.MULTILINE)
    assert row is not None
    assert int(row[1]) >= 9
    assert float(match[1]) == round(100 * 15360 / (int(row[1]) * 16 * 8 * 16), 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--device", "cuda"], "error: --report counts what the interpreter executes; use --device interp"),
        (["--problem", "4x4"], "error: expected the sizes of a product as MxNxK, such as 512x512x256, got '4x4'"),
    ],
)
def test_what_a_report_refuses(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TRANSPOSE, *options]) == 1
    assert capsys.readouterr().err.strip() == message


@pytest.mark.parametrize("option", [["--json"], ["--problem", "4x4x4"]])
def test_options_of_a_report_want_one(option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*(word for word in TRANSPOSE if word != "--report"), *option]) == 1
    assert capsys.readouterr().err.strip() == f"error: {option[0]} says how to make a report; add --report"
