"""`warploom run`: what it prints, what it writes, and one clear message for everything that can be wrong."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from warploom.runtime.arguments.arrays import DTYPES
from warploom.runtime.cli.command import main, parser
from warploom.runtime.cuda import ptxas
from warploom.runtime.kernel.module import LaunchPlace, PtxModule
from warploom.runtime.reference import inputs

MATMUL = """\
func.func @product(%A: memref<20x24x{ab}>, %B: memref<24x12x{ab}>, %C: memref<20x12x{c}>) {{
  {fill}
  linalg.matmul ins(%A, %B : memref<20x24x{ab}>, memref<24x12x{ab}>) outs(%C : memref<20x12x{c}>)
  return
}}
"""
FILL = "%z = arith.constant 0.0 : {c} linalg.fill ins(%z : {c}) outs(%C : memref<20x12x{c}>)"

AXPY = """\
.version 7.0
.target sm_80
.address_size 64
.visible .entry axpy(.param .u64 x, .param .u64 y, .param .f32 a, .param .u32 n)
{
  .reg .pred %p; .reg .b32 %r<3>; .reg .b64 %rd<6>; .reg .f32 %f<4>;
  ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; ld.param.f32 %f1, [a]; ld.param.u32 %r1, [n];
  mov.u32 %r2, %tid.x;
  setp.ge.u32 %p, %r2, %r1;
  @%p bra DONE;
  mul.wide.u32 %rd3, %r2, 4;
  add.s64 %rd4, %rd1, %rd3;
  add.s64 %rd5, %rd2, %rd3;
  ld.global.f32 %f2, [%rd4];
  st.global.f32 [%rd5], %f2;
DONE:
  ret;
}
"""


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


Run = Callable[..., Done]


pytestmark = pytest.mark.usefixtures("nothing_but_python")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*args: object) -> Done:
        try:
            code = main(["run", *map(str, args)])
        except SystemExit as stop:
            code = int(str(stop.code))
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return Done(code, out, err)

    return run


def matmul(folder: Path, ab: str = "f16", c: str = "f32", *, fill: bool = False) -> Path:
    path = folder / "product.mlir"
    path.write_text(MATMUL.format(ab=ab, c=c, fill=FILL.format(c=c) if fill else ""))
    return path


def axpy(folder: Path) -> Path:
    path = folder / "axpy.ptx"
    path.write_text(AXPY)
    return path


def write(folder: Path, text: str, name: str = "bad.mlir") -> Path:
    path = folder / name
    path.write_text(text)
    return path


# What it prints and writes


@pytest.mark.sampled(4)
@pytest.mark.parametrize("fill", [False, True])
@pytest.mark.parametrize(("ab", "c"), [("f16", "f32"), ("f16", "f16"), ("bf16", "f32"), ("bf16", "bf16")])
def test_check_passes(run: Run, tmp_path: Path, ab: str, c: str, fill: bool) -> None:
    done = run(matmul(tmp_path, ab, c, fill=fill), "--check", "--device", "interp")
    assert (done.code, done.err) == (0, "")
    assert "%C against float64: largest error" in done.out
    assert "within the bound" in done.out
    (share,) = re.findall(r"at most (\S+) % of the bound is used", done.out)
    assert re.fullmatch(r"[\d.]+", share)
    assert 0 < float(share) <= 100


def test_everything_is_said(run: Run, tmp_path: Path) -> None:
    done = run(matmul(tmp_path, fill=True))
    labels = [line.split()[0] for line in done.out.splitlines()]
    assert labels[:5] == ["function", "target", "kernel", "schedule", "uses"]
    for phase in ("parse", "warp-stage", "convert-warp-to-ptx", "print", "decode", "run", "total"):
        assert f" {phase} " in done.out
    assert "function @product(%A: 20x24xf16, %B: 24x12xf16, %C: 20x12xf32)" in done.out
    assert "unknown: no ptxas" in done.out
    assert "ran on   interp (no GPU: cuda-bindings" in done.out or "ran on   interp (no GPU: the package" in done.out


def test_ptxas_says_what_the_kernel_needs(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    if ptxas.find() is None:
        pytest.skip("no ptxas here")
    done = run(matmul(tmp_path), "--device", "interp", "--target", "sm_80")
    assert "registers, no spills" in done.out
    assert "target   sm_80" in done.out


def test_the_schedule_is_passed_on(run: Run, tmp_path: Path) -> None:
    done = run(matmul(tmp_path), "--schedule", "cta=32,16,32 warp=16,8", "--schedule", "stages=2", "--check")
    assert done.code == 0
    assert "cta = 32x16x32, warp = 16x8" in done.out
    assert "stages = 2" in done.out


def test_files_go_in_and_come_out(run: Run, tmp_path: Path) -> None:
    a, b = (np.random.default_rng(3).standard_normal(s).astype(np.float16) for s in ((20, 24), (24, 12)))
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    done = run(
        matmul(tmp_path), "--in", f"0={tmp_path}/a.npy", "--in", f"%B={tmp_path}/b.npy", "--in", "C=zeros",
        "--out", tmp_path / "c.npy", "--out", f"%A={tmp_path}/a2.npy",
    )  # fmt: skip
    assert done.code == 0
    assert f"wrote    %C to {tmp_path}/c.npy" in done.out
    np.testing.assert_allclose(np.load(tmp_path / "c.npy"), a.astype(float) @ b.astype(float), rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(np.load(tmp_path / "a2.npy"), a)


def test_bf16_files_are_raw_words(run: Run, tmp_path: Path) -> None:
    c = np.arange(240, dtype=np.float32).reshape(20, 12).astype(ml_dtypes.bfloat16)
    for name, array in (("v2.npy", c), ("u16.npy", c.view(np.uint16))):
        np.save(tmp_path / name, array)
        done = run(
            matmul(tmp_path, "bf16", "bf16"), "--in", "0=zeros", "--in", f"2={tmp_path}/{name}",
            "--out", f"2={tmp_path}/c.npy", "--check",
        )  # fmt: skip
        assert done.code == 0
        np.testing.assert_array_equal(np.load(tmp_path / "c.npy").view(np.uint16), c.view(np.uint16))


def test_the_same_seed_gives_the_same_words(run: Run, tmp_path: Path) -> None:
    results: list[bytes] = []
    for seed in (1, 1, 2):
        run(matmul(tmp_path), "--seed", seed, "--out", tmp_path / "c.npy")
        results.append((tmp_path / "c.npy").read_bytes())
    assert results[0] == results[1] != results[2]


def test_a_result_outside_its_bound_fails(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warploom.runtime.kernel.kernel.Kernel.__call__", lambda *_, **__: LaunchPlace(None))
    done = run(matmul(tmp_path), "--check")
    assert done.code == 1
    assert "elements outside the bound" in done.out
    assert "worst at [" in done.out


def test_one_of_several_functions(run: Run, tmp_path: Path) -> None:
    text = MATMUL.format(ab="f16", c="f32", fill="")
    path = write(tmp_path, text + text.replace("@product", "@other"), "two.mlir")
    assert "got 2 (@product, @other); name one (name=, --function)" in run(path).err
    assert "function @other(" in run(path, "--function", "other").out


def test_ptx_is_launched(run: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(8, dtype=np.float32))
    done = run(
        axpy(tmp_path), "--grid", "1", "--block", "32,1", "--device", "interp", "--arg", f"{tmp_path}/x.npy",
        "--arg", "zeros:f32:8", "--arg", "f32:1.5", "--arg", "i32:5", "--out", f"1={tmp_path}/y.npy",
    )  # fmt: skip
    assert (done.code, done.err) == (0, "")
    assert np.load(tmp_path / "y.npy").tolist() == [0, 1, 2, 3, 4, 0, 0, 0]


TYPES = {
    "f16": "f16 float16", "bf16": "bf16 bfloat16", "f32": "f32 float32", "f64": "f64 float64",
    "i8": "i8 s8 int8", "i16": "i16 s16 int16", "i32": "i32 s32 int32", "i64": "i64 s64 int64",
    "ui8": "ui8 u8 b8 uint8", "ui16": "ui16 u16 b16 uint16", "ui32": "ui32 u32 b32 uint32",
    "ui64": "ui64 u64 b64 uint64", "i1": "i1 bool pred", "i4": "i4 s4 int4", "ui4": "ui4 u4 uint4",
    "f8E4M3FN": "f8E4M3FN e4m3 float8_e4m3fn", "f8E5M2": "f8E5M2 e5m2 float8_e5m2",
    "f8E8M0FNU": "f8E8M0FNU ue8m0 float8_e8m0fnu", "f6E2M3FN": "f6E2M3FN e2m3 float6_e2m3fn",
    "f6E3M2FN": "f6E3M2FN e3m2 float6_e3m2fn", "f4E2M1FN": "f4E2M1FN e2m1 float4_e2m1fn",
}  # fmt: skip
"""What MLIR, PTX and numpy call the type of an argument."""


@pytest.mark.parametrize(("element", "names"), TYPES.items())
def test_arguments_have_types_by_any_name(element: str, names: str) -> None:
    for name in names.split():
        array = inputs.kernel_argument(f"random:{name}:3x5", 7, 2)
        number = inputs.kernel_argument(f"{name}:1", 0, 0)
        assert isinstance(array, np.ndarray)
        assert isinstance(number, np.generic)
        assert array.dtype == number.dtype == DTYPES[element]
        assert float(number) == 1


def test_the_target_of_ptx_is_what_it_runs_as(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []
    inner = PtxModule.program_for
    monkeypatch.setattr(PtxModule, "program_for", lambda self, arch: (seen.append(arch), inner(self, arch))[1])
    arguments = ["--grid", "1", "--block", "32", "--arg", "zeros:f32:8", "--arg", "zeros:f32:8", "--arg", "f32:1"]
    done = run(axpy(tmp_path), *arguments, "--arg", "i32:5", "--target", "sm_100a")
    assert (done.code, done.err, seen) == (0, "", ["sm_100a"])
    assert "as sm_100a runs it\n" in done.out
    done = run(axpy(tmp_path), *arguments, "--arg", "i32:5", "--target", "sm_75")
    assert (done.code, "axpy.ptx is for sm_80, which sm_75 does not run" in done.err) == (1, True)
    done = run(axpy(tmp_path), *arguments, "--arg", "i32:5", "--target", "sm_80", "--device", "cuda")
    assert done.code == 1
    assert "--target of a .ptx file says which GPU the interpreter stands for; use --device interp" in done.err
    done = run(axpy(tmp_path), *arguments, "--arg", "i32:5", "--target", "sm_8")
    assert (done.code, "--target: unknown target 'sm_8'; known targets: sm_70" in done.err) == (1, True)


# What can be wrong

MLIR_ERRORS = {
    "not MLIR": ("Dear compiler, please multiply.", "bad.mlir:1:1: error: Operation Dear is not registered"),
    "a near name": (
        MATMUL.format(ab="f16", c="f32", fill="").replace("linalg.matmul", "linalg.matmull"),
        "bad.mlir:3:3: error: Operation linalg.matmull is not registered; did you mean linalg.matmul?",
    ),
    "another dialect": (
        "func.func @f() {\n  tosa.relu\n}",
        "bad.mlir:2:3: error: Operation tosa.relu is not registered; lower its dialect to linalg and others that are",
    ),
    "empty": ("// nothing", "bad.mlir:1:1: error: expected MLIR, got no text"),
    "element types": (
        MATMUL.format(ab="f32", c="f32", fill=""),
        "bad.mlir:3:3: error: ",
    ),
    "no such product": (
        MATMUL.format(ab="f8E4M3FN", c="f64", fill=""),
        "expected C of f16 or bf16 or f32 for a product of e4m3 x e4m3, got f64",
    ),
    "shapes": (
        MATMUL.format(ab="f16", c="f32", fill="").replace("24x12", "23x12"),
        "bad.mlir:3:3: error: linalg.matmul: expected A's second dimension and B's first to agree (k), got 24 and 23",
    ),
    "rank": (
        MATMUL.format(ab="f16", c="f32", fill="").replace("24x12x", "24x12x1x"),
        "bad.mlir:3:",
    ),
    "dynamic": (
        MATMUL.format(ab="f16", c="f32", fill="").replace("20x", "?x"),
        "%A is ?x24xf16: say how large it is, as in --in A=random:256x256, or give a file",
    ),
    "another operation": (
        "func.func @f(%A: memref<4xf32>) { %i = arith.constant 0 : index\n"
        "  %x = memref.load %A[%i] : memref<4xf32>\n return }",
        "bad.mlir:2:3: ",
    ),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", MLIR_ERRORS)
def test_bad_mlir(run: Run, tmp_path: Path, case: str) -> None:
    text, message = MLIR_ERRORS[case]
    done = run(write(tmp_path, text))
    assert done.code == 1
    assert message in done.err
    assert done.err.count("error: ") == 1


def test_missing_file(run: Run) -> None:
    assert run("nowhere.mlir") == Done(1, "", "error: nowhere.mlir: No such file or directory\n")


def test_a_folder(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "a.mlir"
    folder.mkdir()
    assert run(folder).err == f"error: {folder}: Is a directory\n"


def test_unknown_kind_of_file(run: Run, tmp_path: Path) -> None:
    done = run(write(tmp_path, "", "a.cu"))
    expected = "expected a file ending in .mlir or .ptx, or - for standard input"
    assert (done.code, done.err) == (1, f"error: {tmp_path}/a.cu: {expected}\n")


def test_a_name_that_is_no_text(run: Run, tmp_path: Path) -> None:
    (path := tmp_path / os.fsdecode(b"r\xe9seau.mlir")).write_text(MATMUL.format(fill="", ab="f16", c="f32"))
    assert run(path, "--device", "interp", "--check").code == 0


def test_binary_file(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "a.mlir"
    path.write_bytes(b"ML\xefR\x00")
    done = run(path)
    assert done.code == 1
    assert done.err.startswith(f"error: {path}: expected MLIR text, got MLIR bytecode; mlir-opt ")


def test_unknown_target(run: Run, tmp_path: Path) -> None:
    done = run(matmul(tmp_path), "--target", "sm_99")
    assert done.code == 1
    assert done.err.startswith("error: unknown target 'sm_99'; known targets: sm_70, ")


def test_a_target_without_the_instruction(run: Run, tmp_path: Path) -> None:
    done = run(matmul(tmp_path, "bf16"), "--target", "sm_75")
    assert done.code == 1
    assert "product.mlir:3:3: error: " in done.err
    assert "sm_75 has no mma for bf16" in done.err


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("stages=many", "schedule option stages: expected one number, got 'many'"),
        ("colour=red", "unknown schedule option 'colour'; known: cta, warp, mma"),
        ("cta=100,64,64", "100"),
        ("stages=40 cta=128,256,64 warp=64,64", "shared"),
        ("cta=256,256,32 warp=128,256", "register"),
        ("mma=m16n8k99", "m16n8k99"),
        ("stages", "--schedule: expected key=value, such as stages=4 or cta=128,256,64, got 'stages'"),
    ],
)
def test_schedules_that_do_not_fit(run: Run, tmp_path: Path, schedule: str, message: str) -> None:
    done = run(matmul(tmp_path), "--schedule", schedule)
    assert done.code == 1
    assert message in done.err
    assert done.err.count("error: ") == 1


def test_no_gpu(run: Run, tmp_path: Path) -> None:
    done = run(matmul(tmp_path), "--device", "cuda")
    assert done.code == 1
    assert done.err.startswith("error: no GPU: ")
    assert done.err.endswith("; --device interp runs without one\n")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--in", "7=random"], "--in: no argument '7'; there are 0 or %A, 1 or %B, 2 or %C"),
        (["--in", "random"], "--in: expected NAME=VALUE, such as 0=a.npy or %A=random, got 'random'"),
        (["--in", "0=none.npy"], "none.npy: No such file or directory"),
        (["--in", "0=text.npy"], "text.npy: expected a .npy file of numbers"),
        (["--in", "0="], "expected the name of a .npy file, got ''"),
        (["--in", "0=ones:3x4"], "--in: expected 20x24xf16 for %A, got 3x4"),
        (["--in", "0=b.npy"], "b.npy: expected 20x24xf16 for %A, got 24x12xf32"),
        (["--out", "q=c.npy"], "--out: no argument 'q'"),
        (["--out", "no/such/c.npy"], "no/such/c.npy: there is no folder no/such"),
        (["--out", "c.npy", "--out", "%C=d.npy"], "--out: argument 2 is given twice"),
        (["--out", "."], "error: .: Is a directory"),
        (["--out", "2="], "expected the name of a file to write, got ''"),
        (["--schedule", ""], "--schedule: expected key=value, such as stages=4 or cta=128,256,64, got ''"),
        (["--schedule", "stages=2", "--schedule", "stages=3"], "--schedule: stages is given twice, 2 and 3"),
        (["--shared", "0"], "--shared is for kernels, which are launched with --grid and --block"),
        (["--max-steps", "1"], "If this is no endless loop, a larger --max-steps lets it go on"),
        (["--function", "f"], "no function @f in the module; it has @product"),
        (["--grid", "4"], "a kernel is launched with --block, such as --block 4,1,1"),
    ],
)
def test_bad_arguments(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "no array", "text.npy")
    np.save(tmp_path / "b.npy", np.zeros((24, 12), np.float32))
    done = run(matmul(tmp_path), "--device", "interp", *options)
    assert done.code == 1
    assert message in done.err
    assert done.err.count("error: ") == 1


def test_an_option_reads_the_same_in_every_command() -> None:
    texts: dict[str, set[str]] = {}
    (commands,) = (a.choices for a in parser()._actions if isinstance(a, argparse._SubParsersAction))
    for action in (a for name in ("compile", "run", "tune") for a in commands[name]._actions):
        texts.setdefault(max(action.option_strings, key=len, default=""), set()).add(str(action.help))
    for option in ("--tf32", "--seed", "--no-cache", "--function", "--schedule", "--transform", "--help", "--version"):
        assert len(texts[option]) == 1
    assert all(text.startswith("compile for this GPU; default: ") for text in texts["--target"])
    assert all("schedules" in text and "file" in text for text in texts["--tuned"])


LAUNCH = ["--grid", "1", "--block", "32"]
ARRAYS = ["--arg", "zeros:f32:8", "--arg", "zeros:f32:8", "--arg", "f32:1", "--arg", "i32:5"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "axpy.ptx: a kernel is launched with --grid and --block, such as --grid 4,1,1"),
        (["--grid", "1", "--block", "x"], "--block: expected one to three sizes, such as 4 or 4,2,1, got 'x'"),
        (["--grid", "0", "--block", "1"], "expected grid from (1, 1, 1)"),
        ([*LAUNCH, "--kernel", "k"], "no kernel 'k' in "),
        (LAUNCH, "kernel axpy: expected 4 arguments (.u64 x, .u64 y, .f32 a, .u32 n), got 0"),
        ([*LAUNCH, "--arg", "five"], "--arg: argument 0: cannot read 'five'; it is written like one of a.npy, i32:5"),
        ([*LAUNCH, "--arg", "i7:5"], "unknown type 'i7'"),
        ([*LAUNCH, "--arg", "i8:500"], "--arg: argument 0: 500 does not fit in i8"),
        ([*LAUNCH, "--arg", "i8:5", "--arg", "i8:x"], "--arg: argument 1: expected a number for i8, got 'x'"),
        ([*LAUNCH, "--arg", "zeros:q8:5"], "--arg: argument 0: unknown type 'q8' in 'zeros:q8:5'; known: f16"),
        ([*LAUNCH, "--out", "q=c.npy"], "--out: no argument 'q'; there are 0 or %x"),
        ([*LAUNCH, "--out", "c.npy"], "--out: expected NAME=FILE, such as 2=c.npy"),
        ([*LAUNCH, "--out", "n=c.npy"], "--out: argument 3 is no array"),
        ([*LAUNCH, *ARRAYS, "--out", "1=c.npy", "--out", "y=d.npy"], "--out: argument 1 is given twice"),
        ([*LAUNCH, "--check"], "--check is for functions of .mlir files"),
    ],
)
def test_bad_launches(run: Run, tmp_path: Path, options: list[str], message: str) -> None:
    done = run(axpy(tmp_path), "--device", "interp", *options)
    assert done.code == 1
    assert message in done.err
    assert done.err.count("error: ") == 1


def test_text_that_is_no_ptx(run: Run, tmp_path: Path) -> None:
    done = run(write(tmp_path, AXPY.replace("ret;", "ret"), "bad.ptx"), *LAUNCH)
    assert done.code == 1
    assert "bad.ptx:17:" in done.err


def test_a_fault_in_a_kernel(run: Run, tmp_path: Path) -> None:
    arguments = [f"--arg={a}" for a in ("zeros:f32:4", "zeros:f32:8", "f32:1", "i32:8")]
    done = run(axpy(tmp_path), *LAUNCH, "--device", "interp", *arguments)
    assert done.code == 1
    assert "axpy.ptx:14:" in done.err


@pytest.mark.parametrize("option", ["--target", "--tuned", "--trace", "--function"])
def test_an_empty_value_is_misuse(tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str) -> None:
    """What a shell makes of a variable that is not set would be ignored."""
    with pytest.raises(SystemExit, match="2"):
        main(["run", str(matmul(tmp_path)), option, ""])
    assert f"argument {option}: expected a value, got nothing" in capsys.readouterr().err


def test_ptx_without_the_cache(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if ptxas.find() is None:
        pytest.skip("no ptxas")
    monkeypatch.setenv("WARPLOOM_CACHE", str(tmp_path / "cache"))
    launch = [*LAUNCH, *ARRAYS, "--device", "interp"]
    assert run(axpy(tmp_path), *launch, "--no-cache").code == 0
    assert not (tmp_path / "cache").exists()
    assert run(axpy(tmp_path), *launch).code == 0
    assert (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    "args", [[], ["--device", "tpu", "f.mlir"], ["--frobnicate", "f.mlir"], ["--seed", "x", "f.mlir"]]
)
def test_misuse_is_exit_code_2(run: Run, args: list[str]) -> None:
    assert run(*args).code == 2


def test_help_shows_examples(run: Run) -> None:
    done = run("--help")
    assert done.code == 0
    assert "warploom run matmul.mlir --check" in done.out


def test_the_unexpected_is_one_line(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr("warploom.runtime.cli.run.parse", fail)
    path = matmul(tmp_path)
    assert run(path).err == "error: unexpected KeyError: 'lost' (--debug shows where)\n"
    with pytest.raises(KeyError):
        main(["run", str(path), "--debug"])


DYNAMIC = """func.func @f(%A: memref<?x24xf16>, %B: memref<24x?xf16>, %C: memref<?x?xf32>) {
  linalg.matmul ins(%A, %B : memref<?x24xf16>, memref<24x?xf16>) outs(%C : memref<?x?xf32>) return }"""


def test_extents_are_said_once(run: Run, tmp_path: Path) -> None:
    done = run(write(tmp_path, DYNAMIC), "--in", "A=random:9x24", "--in", "1=random:24x5", "--check")
    assert done.code == 0
    assert "@f(%A: ?x24xf16, %B: 24x?xf16, %C: ?x?xf32)" in done.out
    done = run(write(tmp_path, DYNAMIC), "--in", "A=random:9x25", "--in", "1=random:24x5")
    assert "--in: expected ?x24xf16 for %A, got 9x25" in done.err


def test_rows_of_bf16_that_lie_apart_are_drawn(run: Run, tmp_path: Path) -> None:
    """Arrays of types that are not numpy's own have no buffer."""
    text = DYNAMIC.replace("memref<?x24xf16>", "memref<?x24xbf16, strided<[?, 1], offset: ?>>").replace("f16>", "bf16>")
    done = run(
        write(tmp_path, text.replace("bbf16", "bf16")), "--in", "A=random:9x24", "--in", "1=random:24x5", "--check"
    )
    assert (done.code, done.err) == (0, "")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("words", [["--help"], ["layout", "mma.m16n8k16.f16", "A"], ["isa", "--target", "sm_90a"],
                                   ["check", str(Path(__file__).parents[2] / "examples" / "ring.ptx")]])  # fmt: skip
def test_what_compiles_nothing_imports_no_compiler(words: list[str]) -> None:
    """xDSL and the passes take ten times as long to import as a look-up takes, and twice as long as a check."""
    names = ("xdsl", "numpy", "warploom.passes.pipeline", "warploom.runtime.kernel.lowering")
    text = "import sys; from warploom.runtime.cli.command import main; sys.stdout.flush()\n"
    text += f"try: main({words!r})\nexcept SystemExit: pass\n"
    text += f"print('imported:', [name for name in {names!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "imported: []"
