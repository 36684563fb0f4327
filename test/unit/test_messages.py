"""Misuse of the commands and of the Python API: each gets one message that says what is wrong and what to do."""

from __future__ import annotations

import importlib.abc
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from warploom.passes import opt, start
from warploom.runtime import ArgumentError, CompileError, check_metadata, cli, compile
from warploom.runtime.arguments.arrays import borrow
from warploom.runtime.arguments.packed import random_metadata
from warploom.runtime.cli.command import main

PRODUCT = """\
func.func @product(%A: memref<20x24xf16>, %B: memref<24x12xf16>, %C: memref<20x12xf32>) {
  linalg.matmul ins(%A, %B : memref<20x24xf16>, memref<24x12xf16>) outs(%C : memref<20x12xf32>)
  return
}
"""
FOR_SM_80 = f"builtin.module attributes {{warp.target = #warp.target<sm_80>}} {{\n{PRODUCT}}}\n"
SPARSE = """\
func.func @sparse(%A: memref<20x32xf16>, %E: memref<2x32xi32>, %B: memref<64x12xf16>, %C: memref<20x12xf32>) {
  linalg.matmul {warp.metadata = 1} ins(%A, %B : memref<20x32xf16>, memref<64x12xf16>) outs(%C : memref<20x12xf32>)
  return
}
"""

Warploom = Callable[..., tuple[int, str, str]]


pytestmark = pytest.mark.usefixtures("nothing_but_python")


@pytest.fixture
def warploom(capsys: pytest.CaptureFixture[str]) -> Warploom:
    def call(*arguments: object) -> tuple[int, str, str]:
        try:
            code = main([*map(str, arguments)])
        except SystemExit as stop:
            code = int(str(stop.code))
        out, error = capsys.readouterr()
        return code, out, error

    return call


def write(folder: Path, text: str | bytes, name: str = "a.mlir") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def optimise(*arguments: object) -> int:
    try:
        opt.main([*map(str, arguments)])
    except SystemExit as stop:
        return int(str(stop.code))
    return 0


class TestTunedFile:
    def test_of_the_command(self, warploom: Warploom, tmp_path: Path) -> None:
        code, _, error = warploom("run", write(tmp_path, PRODUCT), "--tuned", "/nope.json")
        assert code == 1
        assert "error: tuned: /nope.json: No such file or directory; `warploom tune` writes such files" in error

    @pytest.mark.parametrize("text", [PRODUCT, "func.func @f(%A: memref<4xf32>) {\n return\n}"])
    def test_of_the_api(self, text: str) -> None:
        with pytest.raises(CompileError, match=r"tuned: /nope\.json: No such file"):
            compile(text, tuned="/nope.json")


class TestTarget:
    def test_the_module_s_own_is_kept(self) -> None:
        assert compile(FOR_SM_80).target == "sm_80"
        assert ".target sm_80\n" in compile(FOR_SM_80).ptx
        assert compile(PRODUCT).target == "sm_90a"

    def test_another_one_is_taken_when_asked_for_and_said(self, warploom: Warploom, tmp_path: Path) -> None:
        path = write(tmp_path, FOR_SM_80)
        code, out, error = warploom("run", path, "--target", "sm_86", "--device", "interp")
        assert (code, error) == (0, f"{path}: note: the module says sm_80; --target compiles it for sm_86\n")
        assert "target   sm_86" in out

    def test_the_driver_remarks_it(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        path = write(tmp_path, FOR_SM_80)
        assert optimise(path, "--remarks", "-p", "warp-set-target{arch=sm_89}") == 0
        out, error = capsys.readouterr()
        assert "#warp.target<sm_89>" in out
        assert "a.mlir:1:1: remark: warp-set-target: the module says sm_80; it is compiled for sm_89" in error
        assert optimise(path, "--remarks", "-p", "warp-set-target") == 0
        out, error = capsys.readouterr()
        assert ("#warp.target<sm_80>" in out, error) == (True, "")

    def test_a_name_that_is_there_already(self) -> None:
        with pytest.raises(CompileError, match=r'^<mlir>:5:1: error: func.func: Redefinition of symbol "product"$'):
            compile(PRODUCT + PRODUCT)

    def test_small_mma_of_sm_70_is_named(self) -> None:
        with pytest.raises(CompileError, match="sm_70 has only mma m8n8k4, which products are not lowered to"):
            compile(PRODUCT, target="sm_70")


class TestArguments:
    def test_archive(self, warploom: Warploom, tmp_path: Path) -> None:
        np.savez(tmp_path / "z.npz", a=np.zeros(3), b=np.ones(2))
        code, _, error = warploom("run", write(tmp_path, PRODUCT), "--in", f"0={tmp_path}/z.npz")
        wanted = "z.npz: expected a .npy file of one array, got a .npz archive of several (a, b)\n"
        assert (code, error.endswith(wanted)) == (1, True)

    @pytest.mark.parametrize("seed", ["-1", "x", "1.5"])
    def test_seed(self, warploom: Warploom, tmp_path: Path, seed: str) -> None:
        code, _, error = warploom("run", write(tmp_path, PRODUCT), f"--seed={seed}")
        assert (code, f"argument --seed: expected a number from 0 on, got '{seed}'" in error) == (2, True)

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("extents", ["-20x16", "20x", "", "axb"])
    def test_extents(self, warploom: Warploom, tmp_path: Path, extents: str) -> None:
        code, _, error = warploom("run", write(tmp_path, PRODUCT), "--in", f"A=random:{extents}")
        wanted = f"--in: expected extents such as random:256x192, got '{extents}' in 'random:{extents}'\n"
        assert (code, error.endswith(wanted)) == (1, True)

    def test_random_metadata_means_something(self, warploom: Warploom, tmp_path: Path) -> None:
        code, _, error = warploom("run", write(tmp_path, SPARSE), "--device", "interp")
        assert (code, error) == (0, "")

    @pytest.mark.parametrize("element", ["f16", "bf16", "i8", "i4", "f32", "f8E4M3FN"])
    def test_random_metadata_of_every_type(self, element: str) -> None:
        drawn = random_metadata((4, 96), element, np.random.default_rng(1))
        check_metadata(drawn, element)
        assert len(np.unique(drawn)) > 4

    def test_random_metadata_of_another_type(self) -> None:
        with pytest.raises(ArgumentError, match=r"mma\.sp takes no sparse matrix of f64"):
            random_metadata((1, 32), "f64", np.random.default_rng(1))

    @pytest.mark.parametrize(("name", "element"), [("float8_e4m3fn", "f8E4M3FN"), ("float8_e5m2", "f8E5M2")])
    def test_torch_s_8_bit_floats(self, name: str, element: str) -> None:
        """torch's own interfaces have no names for them."""
        torch = pytest.importorskip("torch")
        tensor = torch.zeros((3, 8), dtype=torch.uint8).view(getattr(torch, name))[:, ::2]
        array = borrow(tensor)
        assert (array.element, array.shape, array.byte_strides, array.itemsize) == (element, (3, 4), (8, 2), 1)
        assert array.address == tensor.data_ptr()


class TestFiles:
    @pytest.mark.parametrize(
        ("data", "got"),
        [
            (b"ML\xefR\x0dMLIR", "expected MLIR text, got MLIR bytecode; mlir-opt without --emit-bytecode writes text"),
            (b"\xef\xbb\xbf" + PRODUCT.encode(), "expected MLIR text without a byte-order mark, got one of UTF-8"),
            (PRODUCT.encode("utf-16"), "expected MLIR text without a byte-order mark, got one of UTF-16"),
        ],
    )
    def test_kinds_are_named(
        self, warploom: Warploom, capsys: pytest.CaptureFixture[str], tmp_path: Path, data: bytes, got: str
    ) -> None:
        path = write(tmp_path, data)
        assert warploom("run", path) == (1, "", f"error: {path}: {got}\n")
        assert warploom("tune", path, "--list") == (1, "", f"error: {path}: {got}\n")
        assert optimise(path) == 1
        assert capsys.readouterr().err == f"error: {path}: {got}\n"

    def test_bytecode_by_its_own_ending(
        self, warploom: Warploom, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        path = tmp_path / "x.mlirbc"
        path.write_bytes(b"ML\xefR\x0dMLIR22")
        said = f"error: {path}: expected MLIR text, got MLIR bytecode; mlir-opt without --emit-bytecode writes text\n"
        assert warploom("run", str(path)) == (1, "", said)
        assert warploom("compile", str(path)) == (1, "", said)
        assert optimise(str(path)) == 1
        assert capsys.readouterr().err == said

    def test_a_full_disk(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        dropped: list[None] = []
        monkeypatch.setattr(opt, "_drop_output", lambda: dropped.append(None))

        def full(_: str) -> int:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(sys, "stdout", SimpleNamespace(write=full, flush=lambda: None))
        assert optimise(write(tmp_path, PRODUCT)) == 1
        assert dropped == [None]
        assert capsys.readouterr().err == "error: writing the output: No space left on device\n"

    @pytest.mark.parametrize(
        ("text", "error"),
        [
            (
                "func.func @f(%i: memref<1x8x8x4xcomplex<f32>>, %k: memref<3x3x4x8xcomplex<f32>>,\n"
                "             %o: memref<1x6x6x8xf32>) {\n"
                "  linalg.conv_2d_nhwc_hwcf ins(%i, %k : memref<1x8x8x4xcomplex<f32>>, memref<3x3x4x8xcomplex<f32>>)\n"
                "    outs(%o : memref<1x6x6x8xf32>)\n  return\n}\n",
                "3:28: error: linalg.conv_2d_nhwc_hwcf: expected elements of floats or integers, got complex<f32>, "
                "complex<f32>, f32",
            ),
            (
                "func.func @f(%a: tensor<4xf32>) -> tensor<4xf32> {\n  cf.br ^next\n^next:\n"
                "  return %a : tensor<4xf32>\n}\n",
                "1:1: error: expected a function on tensors to be one block",
            ),
            (
                "func.func @f(%a: tensor<*xf32>) -> tensor<4xf32> {\n"
                "  %0 = tensor.cast %a : tensor<*xf32> to tensor<4xf32>\n  return %0 : tensor<4xf32>\n}\n",
                "1:1: error: expected tensors of known rank alone, got tensor<*xf32>",
            ),
            (
                "func.func @f(%a: tensor<4xcomplex<f32>>) -> tensor<4xcomplex<f32>> {\n"
                "  return %a : tensor<4xcomplex<f32>>\n}\n",
                "1:1: error: expected tensors of floats, integers or indices, got tensor<4xcomplex<f32>>",
            ),
            (
                "func.func @f(%a: tensor<?xindex>) -> tensor<2xindex> {\n"
                "  %0 = tensor.cast %a : tensor<?xindex> to tensor<2xindex>\n  return %0 : tensor<2xindex>\n}\n",
                "2:3: error: expected elements that are floats or integers, got memref<2xindex>",
            ),
            (
                "func.func @f() -> tensor<2xcomplex<f32>> {\n"
                "  %0 = arith.constant dense<(1.0, 2.0)> : tensor<2xcomplex<f32>>\n"
                "  return %0 : tensor<2xcomplex<f32>>\n}\n",
                "2:3: error: expected elements that are floats or integers, got tensor<2xcomplex<f32>>",
            ),
            (
                "func.func @f(%a: tensor<4xf32>) {\n"
                '  linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]}\n'
                "      ins(%a : tensor<4xf32>) {\n  ^bb0(%x: f32):\n    linalg.yield\n  }\n  return\n}\n",
                "2:3: error: expected linalg.generic on tensors to have a result for each output",
            ),
            (
                "func.func @f(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {\n"
                "  %r = scf.forall (%i) in (1) shared_outs(%o = %b) -> (tensor<4xf32>) {\n"
                "    scf.forall.in_parallel {\n"
                "      tensor.parallel_insert_slice %a into %b[0] [4] [1] : tensor<4xf32> into tensor<4xf32>\n"
                "    }\n  }\n  return %r : tensor<4xf32>\n}\n",
                "4:7: error: expected tensor.parallel_insert_slice into a tensor of shared_outs of its scf.forall",
            ),
            (
                "func.func private @g(%x: tensor<4xf32>)\n"
                "func.func @f(%a: tensor<4xf32>, %e: tensor<4xf32>, %p: i1) -> tensor<4xf32> {\n"
                "  %0 = linalg.exp ins(%a : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>\n"
                "  scf.if %p {\n    %1 = tensor.cast %0 : tensor<4xf32> to tensor<?xf32>\n  }\n"
                "  return %0 : tensor<4xf32>\n}\n",
                "5:5: error: tensor.cast on tensors is not bufferised; structured operations of linalg are",
            ),
            (
                "func.func @f(%a: memref<2xindex>, %b: memref<2xindex>) {\n"
                "  memref.copy %a, %b : memref<2xindex> to memref<2xindex>\n  return\n}\n",
                "2:3: error: memref.copy of indices is not lowered; of floats and integers it is",
            ),
        ],
        ids=[
            "complex convolution",
            "several blocks",
            "unknown rank",
            "complex tensors",
            "indices",
            "complex constant",
            "no result",
            "not a shared tensor",
            "in a condition",
            "copied indices",
        ],
    )
    def test_what_is_not_compiled_on_tensors_says_why(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, error: str
    ) -> None:
        path = write(tmp_path, text)
        assert optimise(path, "-p", "warp-bufferize") == 1
        assert capsys.readouterr().err.splitlines()[0] == f"{path}:{error}"

    def test_a_parallel_loop_that_the_result_lacks_is_named(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        path = write(
            tmp_path,
            "#a = affine_map<(k, m, n, b, l) -> (b, m, k, l)>\n#b = affine_map<(k, m, n, b, l) -> (n, k, b)>\n"
            "#c = affine_map<(k, m, n, b, l) -> (n, b, m)>\n"
            "func.func @f(%a: memref<4x9x5x3xf32>, %b: memref<7x5x4xf32>, %c: memref<7x4x9xf32>) {\n"
            "  linalg.generic {indexing_maps = [#a, #b, #c],\n"
            '      iterator_types = ["reduction", "parallel", "parallel", "parallel", "parallel"]}\n'
            "      ins(%a, %b : memref<4x9x5x3xf32>, memref<7x5x4xf32>) outs(%c : memref<7x4x9xf32>) {\n"
            "  ^bb0(%x: f32, %y: f32, %z: f32):\n    %p = arith.mulf %x, %y : f32\n"
            "    %s = arith.addf %z, %p : f32\n    linalg.yield %s : f32\n  }\n  return\n}\n",
        )
        assert optimise(path, "-p", "warploom") == 1
        expected = "expected the output to be indexed by every loop that is not reduced, got (d0, d1, d2, d3, d4) -> "
        assert capsys.readouterr().err.startswith(f"{path}:5:3: error: linalg.generic has no kernel: {expected}")

    def test_one_type_behind_an_arrow_needs_no_parentheses(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        loop = "scf.for %i = %x to %x step %x iter_args(%s = %x) -> index {\n    scf.yield %s : index\n  }"
        path = write(tmp_path, f"func.func @f(%x: index) -> index {{\n  %0 = {loop}\n  return %0 : index\n}}\n")
        assert optimise(path) == 0
        assert "iter_args(%s = %x) -> (index)" in capsys.readouterr().out

    def test_an_operation_on_elements_that_it_does_not_take_is_pointed_at(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        kind = "memref<4xindex>"
        path = write(
            tmp_path,
            f"func.func @f(%i: {kind}, %k: {kind}, %o: {kind}) {{\n"
            f"  linalg.add ins(%i, %k : {kind}, {kind}) outs(%o : {kind})\n  return\n}}\n",
        )
        assert optimise(path) == 1
        assert capsys.readouterr().err.startswith(f"{path}:2:3: error: expected add of floats or integers, got index")


MAPS = 'indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]'


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            [f"linalg.generic {{{MAPS}}} ins(%A : memref<6xf32>) outs(%A : memref<6xf32>) {{",
             "^bb0(%x: f32, %y: f32):", "linalg.yield %x : f32", "}"],
            "linalg.generic: expected the number of indexing_map (1) to be equal to the number of",
        ),
        (
            ["%s = memref.subview %A[2] [3] [2] : memref<6xf32> to memref<3xf32, strided<[2], offset: 2>>"],
            "expected a slice within the 6 elements of dimension 0, got one to 7",
        ),
        (
            ["%s = memref.expand_shape %A [[0, 1]] output_shape [2, 4] : memref<6xf32> into memref<2x4xf32>"],
            "expected a dimension of 6 elements for dimensions [0, 1], got 8",
        ),
        (
            ["%s = memref.collapse_shape %A [[0, 1]] : memref<6xf32> into memref<6xf32>"],
            "expected 1 groups of dimensions from 0 to 0, got [[0, 1]]",
        ),
        (["%e = tensor.empty() : tensor<?x4xf32>"], "expected 1 sizes, those that tensor<?x4xf32> does not say, got 0"),
        (
            ["%c = memref.dim %A, %one : memref<6xf32>"],
            "expected the number of a dimension, from 0 to 0, got 1",
        ),
        (["%z = memref.cast %A : memref<6xf32> to memref<?xf32>", ")"], "expected an operation, a block or '}', got "),
    ],
)  # fmt: skip
def test_what_mlir_refuses_has_a_place(lines: list[str], message: str) -> None:
    text = "func.func @f(%A: memref<6xf32>) {\n  %one = arith.constant 1 : index\n  " + "\n  ".join(lines)
    line = len(lines) + 2 if lines[-1] == ")" else 3
    with pytest.raises(CompileError, match=re.escape(f"f.mlir:{line}:3: error: {message}")):
        compile(f"{text}\n  return\n}}\n", file="f.mlir", cache=False)


def test_conversion_without_kernels_warns(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = write(tmp_path, PRODUCT)
    assert optimise(path, "-p", "convert-warp-to-ptx") == 0
    out, error = capsys.readouterr()
    assert "linalg.matmul" in out
    assert error == (
        f"{path}:2:3: warning: convert-warp-to-ptx: nothing is converted: linalg.matmul is in no gpu.module; "
        "-p warploom runs every stage\n"
    )
    assert optimise(path, "-p", "warploom") == 0
    assert capsys.readouterr().err == ""


def test_tuning_without_a_gpu_hints_at_what_needs_none(warploom: Warploom, tmp_path: Path) -> None:
    code, _, error = warploom("tune", write(tmp_path, PRODUCT))
    assert (code, "interp" in error) == (1, False)
    assert error.startswith("error: no GPU: ")
    assert error.endswith("; --list shows, without one, what would be measured\n")


class TestInterrupt:
    """Ctrl-C while modules are imported, which takes longer than anything else of a short run."""

    @pytest.mark.parametrize(
        ("entry", "imported"),
        [(cli.main, "warploom.runtime.cli.command"), (start.main, "warploom.passes.opt")],
    )
    def test_while_importing(
        self,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        entry: Callable[[], int],
        imported: str,
    ) -> None:
        class Interrupt(importlib.abc.MetaPathFinder):
            def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
                if fullname == imported:
                    raise KeyboardInterrupt

        monkeypatch.delitem(sys.modules, imported)
        monkeypatch.setattr(sys, "meta_path", [Interrupt(), *sys.meta_path])
        assert entry() == 130
        assert capsys.readouterr().err == "error: interrupted\n"


def test_an_undefined_value_is_named_where_it_is_first_used() -> None:
    other = "func.func @other(%A2: memref<4xf32>) { return }\n"
    text = other + PRODUCT.replace("ins(%A, %B", "ins(%A, %A2")
    with pytest.raises(CompileError, match=r"^<mlir>:3:25: error: %A2 is used but not defined\n"):
        compile(text)


@pytest.mark.parametrize("literal", ["1.5 : i32", "dense<[1.0, 2.0, 3.0]> : tensor<4xf32>"])
def test_a_literal_of_another_type_is_pointed_at(literal: str) -> None:
    with pytest.raises(CompileError, match=r"^<mlir>:2:\d+: error: (Floating point value|Shape mismatch)"):
        compile(f"func.func @f() {{\n  %c = arith.constant {literal}\n  return\n}}")


@pytest.mark.parametrize(("mma", "near"), [("m16n8k15", "m16n8k16"), ("m64n128k15", "m64n128k16")])
def test_a_shape_that_no_instruction_has(mma: str, near: str) -> None:
    with pytest.raises(CompileError, match=f"no instruction has the shape mma = {mma}; the nearest is {near}$"):
        compile(PRODUCT, mma=mma)
