"""`compile` and calling what it returns."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import warploom.runtime
from warploom.passes.universe import make_context, parse_mlir
from warploom.runtime import (
    ArgumentError,
    CompileError,
    HostError,
    Kernel,
    PtxModule,
    WarploomError,
    compile,
    load_ptx,
)
from warploom.runtime.numerics.floats import Array

MATMUL = """\
func.func @product(%A: memref<20x24xf16>, %B: memref<24x12xf16>, %C: memref<20x12xf32>) {
  linalg.matmul ins(%A, %B : memref<20x24xf16>, memref<24x12xf16>) outs(%C : memref<20x12xf32>)
  return
}
"""


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    return compile(MATMUL, file="product.mlir")


def arrays() -> list[Array]:
    random = np.random.default_rng(0)
    shapes = (((20, 24), np.float16), ((24, 12), np.float16), ((20, 12), np.float32))
    return [random.standard_normal(shape).astype(dtype) for shape, dtype in shapes]


def exact(a: Array, b: Array, c: Array) -> Array:
    return c.astype(np.float64) + a.astype(np.float64) @ b.astype(np.float64)


def test_a_kernel_describes_itself(kernel: Kernel) -> None:
    assert str(kernel.function) == "@product(%A: 20x24xf16, %B: 24x12xf16, %C: 20x12xf32)"
    assert kernel.function.written == {2}
    assert ".target sm_90a" in kernel.ptx
    assert "matmul" in kernel.ptx or "product" in kernel.ptx
    (launch,), (schedule,) = kernel.launches, kernel.schedule
    assert schedule is not None
    assert launch.threads == schedule.threads
    assert list(kernel.binary.kernels) == [launch.kernel]


def test_the_result_is_written_in_place(kernel: Kernel) -> None:
    a, b, c = arrays()
    expected = exact(a, b, c)
    place = kernel(a, b, c, device="interp")
    assert place.gpu is None
    np.testing.assert_allclose(c, expected, rtol=1e-4, atol=1e-5)


def test_a_compiled_text_can_be_loaded_again(kernel: Kernel) -> None:
    a, b, c = arrays()
    expected = exact(a, b, c)
    (launch,) = kernel.launches
    module = load_ptx(kernel.ptx)
    module.launch(launch.kernel, launch.grid, launch.block, [a, b, c], launch.shared, device="interp")
    np.testing.assert_allclose(c, expected, rtol=1e-4, atol=1e-5)


def test_the_arithmetic_of_another_architecture(kernel: Kernel) -> None:
    """The same text gives the words that a kernel for that target gives; a GPU's arithmetic cannot be chosen."""
    random = np.random.default_rng(5)
    a, b = (random.standard_normal(s).astype(np.float16) * 2.0**-6 for s in ((20, 24), (24, 12)))
    c = random.standard_normal((20, 12)).astype(np.float32)
    results = {arch: c.copy() for arch in (None, "sm_90a", "sm_80")}
    for arch, words in results.items():
        kernel(a, b, words, device="auto" if arch else "interp", arch=arch)
    older, own = compile(MATMUL, target="sm_80"), c.copy()
    older(a, b, own, device="interp")
    assert np.array_equal(results["sm_80"].view(np.uint32), own.view(np.uint32))
    assert np.array_equal(results[None].view(np.uint32), results["sm_90a"].view(np.uint32))
    assert not np.array_equal(results[None].view(np.uint32), own.view(np.uint32))
    with pytest.raises(ArgumentError, match="arch='sm_80' is arithmetic for device='interp'"):
        kernel(a, b, c, device="cuda", arch="sm_80")
    with pytest.raises(
        ArgumentError,
        match=r"arch: unknown target 'ampere' \(a target is written like sm_90a\); known targets: sm_70, ",
    ):
        kernel(a, b, c, arch="ampere")


def test_an_instruction_the_architecture_lacks_has_its_line(kernel: Kernel) -> None:
    line = next(i for i, text in enumerate(kernel.ptx.splitlines(), 1) if text.strip().startswith("ldmatrix"))
    with pytest.raises(WarploomError, match=rf":{line}:\d+: error: ldmatrix.*: it is not in sm_70"):
        kernel(*arrays(), arch="sm_70")


def test_progress_is_reported(kernel: Kernel) -> None:
    seen: list[tuple[int, int]] = []
    kernel(*arrays(), device="interp", progress=lambda done, total: seen.append((done, total)))
    assert all(0 <= done <= total for done, total in seen)


def test_a_module_is_left_as_it_is() -> None:
    module = parse_mlir(make_context(), MATMUL)
    before = str(module)
    assert compile(module, "sm_80").target == "sm_80"
    assert str(module) == before


def test_phases_are_reported_in_order() -> None:
    phases: list[str] = []
    compile(MATMUL, on_phase=lambda name, _: phases.append(name))
    assert phases[0] == "parse"
    assert phases[-1] == "print"
    assert "warp-stage" in phases


def test_the_schedule_can_be_given_as_numbers() -> None:
    kernel = compile(MATMUL, cta=(32, 16, 32), warp=(16, 8), stages=2)
    (schedule,) = kernel.schedule
    assert schedule is not None
    assert (schedule.cta, schedule.warp, schedule.stages) == ((32, 16, 32), (16, 8), 2)


EXP = """func.func @exp(%A: memref<20x24xf32>, %C: memref<20x24xf32>) {
  linalg.exp ins(%A : memref<20x24xf32>) outs(%C : memref<20x24xf32>)
  return
}"""
WIDE = MATMUL.replace("24", "512")
SOFTMAX = EXP.replace("linalg.exp", "linalg.softmax dimension(1)").replace("@exp", "@softmax")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("text", "options", "error", "message"),
    [
        ("func.func @f(", {}, CompileError, r"<mlir>:1:\d+: error: "),
        (MATMUL, {"target": "sm_1"}, CompileError, "^unknown target 'sm_1'; known targets: "),
        (MATMUL, {"stages": "x"}, CompileError, "^schedule option stages: expected one number, got 'x'"),
        (MATMUL, {"depth": 3}, CompileError, "^unknown schedule option 'depth'"),
        (MATMUL, {"schedule": {"stages": 3}}, CompileError, "'schedule': its fields are arguments of their own"),
        (MATMUL, {"stagez": 3}, CompileError, "^unknown schedule option 'stagez', did you mean 'stages'?"),
        (WIDE, {"stages": 99}, CompileError, r"^<mlir>:2:3: error: schedule: 99 stages .* sm_90a has 227 KiB"),
        (WIDE, {"target": "sm_80", "transpose": "a"}, CompileError, "sm_80 has no wgmma .*; asked for transpose = a"),
        (EXP, {"stages": 3}, CompileError, "^<mlir>: @exp cannot have stages=3: its kernels have no schedule"),
        (SOFTMAX, {"stages": 3}, CompileError, "^<mlir>: @softmax cannot have stages=3: its kernels have no schedule"),
        (MATMUL, {"name": "f"}, HostError, "no function @f in the module; it has @product"),
        (
            MATMUL.replace("12xf32", "12xf64").replace("f16", "f8E4M3FN"),
            {},
            CompileError,
            "expected C of f16 or bf16 or f32 for a product of e4m3 x e4m3, got f64",
        ),
    ],
)
def test_what_cannot_be_compiled(text: str, options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        compile(text, **options)


def test_fields_may_be_written_with_spaces() -> None:
    spaced = compile(WIDE, "sm_80", cache=False, cta="32, 32, 16", stages=" 2 ")
    assert spaced.ptx == compile(WIDE, "sm_80", cache=False, cta=(32, 32, 16), stages=2).ptx


def swapped(i: int, value: object) -> list[object]:
    arguments: list[object] = list(arrays())
    arguments[i] = value
    return arguments


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], r"@product\(.*\): expected 3 arguments, got 0"),
        (swapped(1, np.zeros((24, 10), np.float32)), r"argument 1 \(%B\): expected 24x12xf16, got 24x10xf32"),
        (
            swapped(0, np.zeros((24, 20), np.float16).T),
            r"argument 0 \(%A\): expected .* in row-major order without gaps",
        ),
        (swapped(2, [1.0]), r"argument 2 \(%C\): expected 20x12xf32: expected a numpy array .* got list"),
        (swapped(2, np.broadcast_to(np.float32(0), (20, 12))), r"argument 2 \(%C\): .* row-major"),
    ],
)
def test_arguments_that_do_not_fit(kernel: Kernel, args: list[object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        kernel(*args, device="interp")


def test_a_written_argument_must_not_overlap(kernel: Kernel) -> None:
    memory = np.zeros(20 * 12 * 4 + 100, np.uint8)
    a = memory[: 20 * 24 * 2].view(np.float16).reshape(20, 24)
    c = memory[: 20 * 12 * 4].view(np.float32).reshape(20, 12)
    with pytest.raises(ArgumentError, match=r"argument 2 \(%C\) is written and shares memory with argument 0 \(%A\)"):
        kernel(a, arrays()[1], c, device="interp")


def test_an_unknown_device(kernel: Kernel) -> None:
    with pytest.raises(ArgumentError, match="expected device to be one of auto, interp, cuda, got 'gpu'"):
        kernel(*arrays(), device="gpu")


def test_importing_the_runtime_is_light() -> None:
    heavy = "print([m for m in ('numpy', 'xdsl', 'rich', 'cuda') if m in sys.modules])"
    code = f"import sys, warploom.runtime; {heavy}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_loading_ptx_needs_no_compiler() -> None:
    code = "import sys; from warploom.runtime import load_ptx; print('xdsl' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_run_waits_for_nothing_that_it_has_not() -> None:
    """A product of f16 on the interpreter, in one process: for no other instructions, types, arrays or processes."""
    script = (
        "import sys; import numpy as np; from warploom.runtime import compile;"
        "kernel = compile(sys.argv[1], 'sm_80', cache=False);"
        "arrays = [np.ones(s, t) for s, t in (((20, 24), 'f2'), ((24, 12), 'f2'), ((20, 12), 'f4'))];"
        "kernel(*arrays, device='interp'); assert arrays[2][0, 0] == 25;"
        "print(*sorted(m for m in sys.argv[2:] if m in sys.modules))"
    )
    module = "warploom.runtime.interp.meaning.matrix"
    others = ("warploom.runtime.interp.meaning.warpgroup",
              "warploom.runtime.interp.meaning.tensor_copies", "warploom.runtime.interp.watch.report",
              "warploom.runtime.interp.watch.tracer", "multiprocessing", "ml_dtypes", "numpy.ma")  # fmt: skip
    command = [sys.executable, "-c", script, MATMUL, module, *others]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{module}\n", "")


def test_without_torch_every_other_name_is_imported() -> None:
    code = """
import sys
sys.modules["torch"] = None
from warploom.runtime import *
import warploom.runtime as runtime
missing = {name for name in runtime.PUBLIC if "torch" in name}
assert not missing & {*runtime.__all__, *dir(runtime)} and not missing & {*globals()}
assert {*runtime.__all__} == {*runtime.PUBLIC} - missing and {*runtime.__all__} <= {*globals()}
runtime.torch_backend
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    error = done.stderr.splitlines()[-1]
    assert error.startswith("ImportError: torch cannot be imported (")
    assert error.endswith("pip install 'warploom[torch]'")


def test_public_names_are_there() -> None:
    for name in warploom.runtime.__all__:
        assert getattr(warploom.runtime, name) is not None
    assert warploom.runtime.PtxModule is PtxModule
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = warploom.runtime.nonsense  # pyright: ignore[reportAttributeAccessIssue]
