"""`warploom-opt` as a user meets it: what it prints, its exit codes, and that no traceback gets out."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.linalg import ops as xdsl_linalg
from xdsl.ir import Attribute, Dialect
from xdsl.irdl import IRDLOperation, irdl_op_definition
from xdsl.passes import ModulePass
from xdsl.universe import Universe
from xdsl.utils.exceptions import DiagnosticException, ParseError, PassFailedException

from warploom.passes import universe as passes_context
from warploom.passes.diagnostics import LocatedError, describe, fail, location_of, remark, verify, warn
from warploom.passes.opt import WarploomOptMain, main
from warploom.passes.universe import WARPLOOM_UNIVERSE, known_universe, make_context, parse_mlir

TRANSPOSE = Path(__file__).parents[2] / "examples" / "transpose.ptx"
GOOD = "func.func @f() {\n  return\n}\n"
MATMUL = """\
func.func @f(%a: memref<4x5xf16>, %b: memref<5x6xf16>, %c: memref<4x6xf32>) {
  linalg.matmul ins(%a, %b : memref<4x5xf16>, memref<5x6xf16>) outs(%c : memref<4x6xf32>)
  return
}
"""
# the generic form reaches the verifier whatever the types
UNVERIFIED = """\
func.func @f(%a: i32) {

  %b = "arith.addf"(%a, %a) <{fastmath = #arith.fastmath<none>}> : (i32, i32) -> i32
  return
}
"""


@dataclass
class Result:
    code: int
    out: str
    err: str


Opt = Callable[..., Result]


@pytest.fixture
def opt(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Opt:
    """Run the driver in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Result:
        capsys.readouterr()
        try:
            main(list(arguments))
            code: object = 0
        except SystemExit as request:
            code = request.code
        captured = capsys.readouterr()
        assert isinstance(code, int)
        return Result(code, captured.out, captured.err)

    return run


def write(name: str, text: str | bytes) -> str:
    Path(name).write_bytes(text.encode() if isinstance(text, str) else text)
    return name


def process(*arguments: str, stdin: bytes = b"", cwd: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    """Run the driver as a process of its own."""
    command = [sys.executable, "-m", "warploom.passes.opt", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, cwd=cwd, timeout=60, check=False)


class TestInput:
    def test_reads_and_prints(self, opt: Opt) -> None:
        result = opt(write("good.mlir", GOOD))
        assert (result.code, result.err) == (0, "")
        assert "func.func @f()" in result.out

    def test_missing_file(self, opt: Opt) -> None:
        result = opt("nowhere.mlir")
        assert (result.code, result.out) == (1, "")
        assert result.err == "error: nowhere.mlir: No such file or directory\n"

    def test_folder(self, opt: Opt) -> None:
        Path("folder.mlir").mkdir()
        result = opt("folder.mlir")
        assert result.code == 1
        assert result.err == "error: folder.mlir: Is a directory\n"

    def test_binary(self, opt: Opt) -> None:
        result = opt(write("binary.mlir", b"\x7fELF\x02\x01\x00\xff\xfe"))
        assert result.code == 1
        assert result.err == "error: binary.mlir: expected MLIR text, got byte 0xff at offset 7, which is not UTF-8\n"

    def test_binary_ptx(self, opt: Opt) -> None:
        result = opt(write("binary.ptx", b"\xff"))
        assert result.err == "error: binary.ptx: expected PTX text, got byte 0xff at offset 0, which is not UTF-8\n"

    def test_ptx_as_mlir(self, opt: Opt, monkeypatch: pytest.MonkeyPatch) -> None:
        results = list[Result]()
        for arguments in ((), ("-f", "ptx")):
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TRANSPOSE.read_bytes())))
            results.append(opt(*arguments))
        expected = "error: stdin: expected MLIR text, got PTX; say so with -f ptx\n"
        assert results[0] == Result(1, "", expected)
        assert results[1].out.startswith("builtin.module {\n  ptx.module")

    @pytest.mark.parametrize("text", ["\x00\x01\x02", "int main() { return 0; }", "%", '"', "module {", "!!", "\n\n}"])
    def test_not_mlir(self, opt: Opt, text: str) -> None:
        result = opt(write("not.mlir", text))
        assert (result.code, result.out) == (1, "")
        assert result.err.startswith("not.mlir:")
        assert ": error: " in result.err.split("\n")[0]

    @pytest.mark.parametrize(("name", "got"), [("a.txt", "'.txt'"), ("noextension", "none")])
    def test_unknown_extension(self, opt: Opt, name: str, got: str) -> None:
        result = opt(write(name, GOOD))
        assert result.code == 1
        assert result.err == (
            f"error: {name}: expected a file name ending in .mlir or .ptx, got {got}; say what it is with -f\n"
        )

    def test_frontend_option_replaces_extension(self, opt: Opt) -> None:
        assert opt(write("a.txt", GOOD), "-f", "mlir").code == 0

    def test_unknown_frontend(self, opt: Opt) -> None:
        result = opt(write("a.mlir", GOOD), "-f", "fortran")
        assert result.code == 2
        assert "invalid choice: 'fortran'" in result.err

    def test_parse_error_has_place_line_and_caret(self, opt: Opt) -> None:
        result = opt(write("bad.mlir", "func.func @f() {\n  %0 = arith.constant 1 ; i32\n}\n"))
        assert result.code == 1
        place, source, caret = result.err.rstrip("\n").split("\n")
        assert place.startswith("bad.mlir:2:25: error: ")
        assert source == "  %0 = arith.constant 1 ; i32"
        assert caret.index("^") == 24

    def test_ptx_error_has_place_line_and_caret(self, opt: Opt) -> None:
        result = opt(write("bad.ptx", ".version 8.0\n.target sm_80\n.address_size 64\n.entry k() {\n  nonsense\n}\n"))
        assert (result.code, result.out) == (1, "")
        place, *context = result.err.rstrip("\n").split("\n")
        assert place.startswith("bad.ptx:5:3: error: ")
        assert context == ["  nonsense", "  ^^^^^^^^"]

    def test_failure_of_an_operation_s_parser_is_a_parse_error(self, opt: Opt) -> None:
        result = opt(write("a.mlir", 'func.func @f() {\n  linalg.generic {indexing_maps = "x"} { }\n}\n'))
        assert result.code == 1
        assert result.err.startswith("a.mlir:2:18: error: expected indexing_maps to be a list of affine maps")

    def test_nested_too_deeply(self, opt: Opt) -> None:
        result = opt(write("deep.mlir", "builtin.module {\n" * 3000 + "}" * 3000))
        assert result.code == 1
        assert result.err == "error: deep.mlir: nested too deeply while reading deep.mlir\n"


class TestVerifier:
    def test_names_place_and_operation(self, opt: Opt) -> None:
        result = opt(write("a.mlir", UNVERIFIED))
        assert (result.code, result.out) == (1, "")
        assert result.err.startswith("a.mlir:3:3: error: arith.addf: operand 'lhs' at position 0 does not verify")

    def test_parsing_diagnostics_go_on_with_the_next_part(self, opt: Opt) -> None:
        text = "func.func @g( {\n}\n// -----\n" + GOOD
        result = opt(write("a.mlir", text), "--split-input-file", "--parsing-diagnostics")
        assert result.code == 0
        assert result.err.startswith("a.mlir:1:15: error: ")
        assert "func.func @f()" in result.out
        assert "error" not in result.out

    def test_split_input_counts_lines_from_the_start(self, opt: Opt) -> None:
        result = opt(write("a.mlir", GOOD + "// -----\n" + UNVERIFIED), "--split-input-file")
        assert result.code == 1
        assert "func.func @f()" in result.out
        assert result.err.startswith("a.mlir:7:3: error: arith.addf")

    def test_a_chunk_of_comments_is_an_empty_module(self, opt: Opt) -> None:
        result = opt(write("a.mlir", "// RUN: x\n// -----\n" + GOOD + "// -----\n"), "--split-input-file")
        empty, text, last = map(str.strip, result.out.split("// -----\n"))
        assert (result.code, empty, last) == (0, "builtin.module {\n}", "builtin.module {\n}")
        assert "func.func @f()" in text

    def test_disable_verify_does_not_outlive_the_call(self, opt: Opt) -> None:
        before = Attribute.__post_init__
        assert opt(write("a.mlir", UNVERIFIED), "--disable-verify").code == 0
        assert Attribute.__post_init__ is before

    def test_no_text(self, opt: Opt) -> None:
        result = opt(write("a.mlir", " // a comment\n"))
        assert (result.code, result.out, result.err) == (1, "", "a.mlir:1:1: error: expected MLIR, got no text\n")


class TestPasses:
    def test_unknown(self, opt: Opt) -> None:
        result = opt(write("a.mlir", GOOD), "-p", "warp-tle")
        assert (result.code, result.out) == (2, "")
        assert result.err.startswith("error: unknown pass 'warp-tle'; did you mean 'warp-tile'")

    def test_unknown_like_nothing(self, opt: Opt) -> None:
        result = opt(write("a.mlir", GOOD), "-p", "zzzzzz")
        assert result.err == "error: unknown pass 'zzzzzz'; --help lists those there are\n"

    def test_unknown_option(self, opt: Opt) -> None:
        result = opt(write("a.mlir", GOOD), "-p", "warp-set-target{bogus=1 arch=sm_80}")
        assert result.code == 2
        assert result.err == "error: pass 'warp-set-target' has no option 'bogus'; its options are arch\n"

    def test_misspelt_option(self, opt: Opt) -> None:
        result = opt(write("a.mlir", GOOD), "-p", "warploom{sliced_q=2}")
        assert result.code == 2
        said = "error: pass 'warploom' has no option 'sliced_q'; did you mean 'sliced-k'? its options are cta, "
        assert result.err.startswith(said)

    def test_value_that_wants_quotes(self, opt: Opt) -> None:
        result = opt(write("a.mlir", GOOD), "-p", "warploom{tuned=/a.json}")
        assert result.code == 2
        assert result.err.endswith("^\n               expected a word, a number, or a text in quotes\n")

    def test_misspelt_option_of_the_driver(self, opt: Opt) -> None:
        result = opt(write("a.mlir", GOOD), "--remrks", "-p", "warploom")
        assert result.code == 2
        assert result.err.endswith("error: unrecognized arguments: --remrks; did you mean --remarks?\n")

    def test_option_of_wrong_type(self, opt: Opt) -> None:
        result = opt(write("a.mlir", GOOD), "-p", "warp-set-target{arch=80}")
        assert result.code == 2
        assert result.err.startswith("error: pass 'warp-set-target', option arch: expected str, got 80;")

    @pytest.mark.parametrize(
        ("passes", "name", "option"),
        [
            ("warp-set-target{arch=sm_80},warp-schedule{stages}", "warp-schedule", "stages"),
            ("warp-set-target{arch}", "warp-set-target", "arch"),
            ('warploom{tuned=""}', "warploom", "tuned"),
            ('warploom{target=""}', "warploom", "target"),
        ],
    )
    def test_option_without_a_value(self, opt: Opt, passes: str, name: str, option: str) -> None:
        result = opt(write("a.mlir", GOOD), "-p", passes)
        assert (result.code, result.out) == (2, "")
        assert result.err == f"error: pass '{name}', option {option}: expected a value, as in {option}=...\n"

    def test_missing_option(self, opt: Opt) -> None:
        result = opt(write("a.mlir", GOOD), "-p", "distribute-stencil")
        assert result.code == 2
        assert 'requires argument "slices"' in result.err

    def test_options_of_a_pass_without_any(self, opt: Opt) -> None:
        result = opt(write("a.mlir", GOOD), "-p", "dce{x=1}")
        assert result.code == 2
        assert result.err.endswith("it has no options\n")

    @pytest.mark.parametrize("pipeline", ["dce{", "dce}", "dce cse", "{", "dce,,cse", "dce{a=}", "é"])
    def test_malformed_pipeline(self, opt: Opt, pipeline: str) -> None:
        result = opt(write("a.mlir", GOOD), "-p", pipeline)
        assert (result.code, result.out) == (2, "")
        assert result.err.startswith("error: ")

    @pytest.mark.parametrize("target", ["nowhere", "{", ""])
    def test_unknown_target(self, opt: Opt, target: str) -> None:
        result = opt(write("a.mlir", GOOD), "-t", target)
        assert (result.code, result.out) == (2, "")
        assert "error: " in result.err

    def test_bad_target_option(self, opt: Opt) -> None:
        result = opt(write("a.mlir", GOOD), "-t", "mlir{bogus=1}")
        assert result.code == 2
        assert result.err.startswith("error: target 'mlir' has no option 'bogus'; its options are print-generic")

    def test_unlowered_module_has_no_ptx(self, opt: Opt) -> None:
        result = opt(write("a.mlir", GOOD), "-t", "ptx")
        assert (result.code, result.out) == (1, "")
        assert "error: " in result.err

    def test_time_and_print_between(self, opt: Opt) -> None:
        result = opt(write("a.mlir", GOOD), "-p", "dce,cse", "--time-passes", "--print-between-passes")
        assert result.code == 0
        assert result.out == opt("a.mlir").out
        dump = r"// -----// IR Dump After DeadCodeElimination \(dce\) //----- //\nbuiltin.module {\n(  .*\n)+}\n"
        took = r"// Pass {} took \d+\.\d+ seconds\n"
        assert re.fullmatch(f"{took.format('dce')}{dump}\n+{took.format('cse')}", result.err)


class TestVerifyDiagnostics:
    """What `mlir-opt --verify-diagnostics` takes and refuses, with messages of this compiler."""

    SAID = "a.mlir:{}:3: error: unexpected error: arith.addf: operand 'lhs' at position 0 does not verify"

    def verified(self, opt: Opt, text: str, *options: str) -> list[str]:
        """The lines on stderr; the code says whether there are any."""
        result = opt(write("a.mlir", text), "--verify-diagnostics", *options)
        lines = [line for line in result.err.splitlines() if line.startswith(("a.mlir", "error"))]
        assert result.code == bool(lines)
        return lines

    @pytest.mark.parametrize(
        "comments",
        [
            "// expected-error @below {{arith.addf: operand 'lhs'}}",
            "// expected-error@+1{{position 0}}",
            "  // expected-error    @below {{}}",
            "// expected-error-re @below {{operand '{{[a-z]+}}' at position {{0|1}}}}",
            "// expected-error @+2 {{arith.addf}}\n",
            "// expected-error @below {{addf}}\n// expected-error @below {{addf}}",
        ],
    )
    def test_expected(self, opt: Opt, comments: str) -> None:
        head, _, tail = UNVERIFIED.partition("\n\n")
        again = comments.count("expected-") == 2
        lines = self.verified(opt, f"{head}\n{comments}\n{tail}")
        # one diagnostic meets one comment
        assert lines == (['a.mlir:3:4: error: expected error "addf" was not produced'] if again else [])

    def test_expected_on_its_own_line_and_above(self, opt: Opt) -> None:
        comments = (
            " // expected-error {{expected [i32], got []}}",
            "\n// expected-error @above {{i32}}",
            "\n// expected-error @above {{i32}}\n// no\n",
            "\n// expected-error @-1 {{i32}}",
        )
        for comment in comments:
            lines = self.verified(opt, f"func.func @f(%a: i32) -> i32 {{\n  return{comment}\n}}\n")
            assert lines == []

    @pytest.mark.parametrize(
        ("comment", "problems"),
        [
            ("", [SAID.format(3)]),
            ("// expected-eror @below {{addf}}", [SAID.format(3)]),
            ("// expected-error @below {{addf}} ", [SAID.format(3)]),
            (
                "// expected-error @below {{addi}}",
                [SAID.format(3), 'a.mlir:2:4: error: expected error "addi" was not produced'],
            ),
            (
                "// expected-error @+2 {{addf}}",
                [SAID.format(3), 'a.mlir:2:4: error: expected error "addf" was not produced'],
            ),
            (
                "// expected-error @unknown {{addf}}",
                [SAID.format(3), 'a.mlir:2:4: error: expected error "addf" was not produced'],
            ),
            (
                "// expected-warning @below {{addf}}",
                [
                    "a.mlir:2:4: error: 'error' diagnostic emitted when expecting a 'warning': arith.addf: operand",
                    'a.mlir:2:4: error: expected warning "addf" was not produced',
                ],
            ),
            (
                "// expected-error-re @below {{ad{{(}}f}}",
                ["a.mlir:2:4: error: invalid regex: ", SAID.format(3)],
            ),
        ],
    )
    def test_unexpected_and_missing(self, opt: Opt, comment: str, problems: list[str]) -> None:
        lines = self.verified(opt, UNVERIFIED.replace("\n\n", f"\n{comment}\n"))
        assert len(lines) == len(problems)
        for line, problem in zip(lines, problems, strict=True):
            assert line.startswith(problem)

    def test_nothing_wrong_where_something_is_expected(self, opt: Opt) -> None:
        result = opt(write("a.mlir", "// expected-note @below {{x}}\n" + GOOD), "--verify-diagnostics")
        assert (result.code, result.err) == (1, 'a.mlir:1:4: error: expected note "x" was not produced\n')
        assert "func.func @f()" in result.out

    def test_parts_expect_their_own(self, opt: Opt) -> None:
        """Errors of parsing, too; a comment of one part says nothing of another."""
        parts = [GOOD, UNVERIFIED.replace("\n\n", "\n// expected-error @below {{addf}}\n"), "func.func @g( {\n}\n"]
        text = "// -----\n".join([*parts, "// expected-error @-4 {{}}\n" + GOOD.replace("@f", "@last")])
        result = opt(write("a.mlir", text), "--verify-diagnostics", "--split-input-file")
        assert result.code == 1
        assert re.sub(r"error: .*", "", result.err).split() == ["a.mlir:11:15:", "a.mlir:14:4:"]
        assert "@last" in result.out


class Failing(ModulePass):
    """Raises what `error` holds."""

    name = "failing"
    error: ClassVar[Exception] = Exception()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        raise self.error


class Pointing(ModulePass):
    """Blames the first operation in the module's function."""

    name = "pointing"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        function = next(iter(op.body.block.ops))
        fail(next(iter(function.regions[0].block.ops)), "no such product")


class Remarking(ModulePass):
    """Says a remark and a warning of the module's function."""

    name = "remarking"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        function = next(iter(op.body.block.ops))
        remark(function, self.name, "it stays")
        warn(function, self.name, "it is a function")


@pytest.fixture
def with_test_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = known_universe().all_passes
    monkeypatch.setitem(passes, "failing", lambda: Failing)
    monkeypatch.setitem(passes, "pointing", lambda: Pointing)
    monkeypatch.setitem(passes, "remarking", lambda: Remarking)
    monkeypatch.setitem(passes, "remarking", lambda: Remarking)


REMARK = "// expected-remark @below {{remarking: it stays}}\n"
WARNING = "// expected-warning @below {{remarking: it is a function}}\n"


@pytest.mark.usefixtures("with_test_passes")
@pytest.mark.parametrize(
    ("comments", "options", "problems"),
    [
        (REMARK + WARNING, ["--remarks"], []),
        (WARNING, [], []),
        (WARNING, ["--remarks"], ["a.mlir:2:1: error: unexpected remark: remarking: it stays"]),
        (REMARK + WARNING, [], ['a.mlir:1:4: error: expected remark "remarking: it stays" was not produced']),
        ("", [], ["a.mlir:1:1: error: unexpected warning: remarking: it is a function"]),
    ],
)
def test_remarks_and_warnings_are_expected_where_they_are_shown(
    opt: Opt, comments: str, options: list[str], problems: list[str]
) -> None:
    result = opt(write("a.mlir", comments + GOOD), "-p", "remarking", "--verify-diagnostics", *options)
    assert (result.code, result.err.splitlines()) == (bool(problems), problems)


@pytest.mark.usefixtures("with_test_passes")
class TestFailingPass:
    def test_diagnostic(self, opt: Opt, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Failing, "error", PassFailedException("the tile does not fit"))
        result = opt(write("a.mlir", GOOD), "-p", "failing")
        assert (result.code, result.out, result.err) == (1, "", "error: the tile does not fit\n")

    @pytest.mark.parametrize("at", ["@unknown", ""])
    def test_diagnostic_without_a_place(self, opt: Opt, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
        monkeypatch.setattr(Failing, "error", PassFailedException("the tile does not fit"))
        text = GOOD + f"// expected-error {at} {{{{tile does not}}}}\n"
        result = opt(write("a.mlir", text), "-p", "failing", "--verify-diagnostics")
        missing = (
            "error: unexpected error: the tile does not fit\n"
            'a.mlir:4:4: error: expected error "tile does not" was not produced\n'
        )
        assert (result.code, result.out, result.err) == ((0, "", "") if at else (1, "", missing))

    def test_located(self, opt: Opt) -> None:
        result = opt(write("a.mlir", MATMUL), "-p", "pointing")
        assert (result.code, result.err) == (1, "a.mlir:2:3: error: no such product\n")

    def test_unexpected(self, opt: Opt, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Failing, "error", KeyError("x"))
        result = opt(write("a.mlir", GOOD), "-p", "dce,failing")
        assert result.code == 1
        assert result.err == (
            "error: unexpected failure while running the passes 'dce,failing': KeyError: 'x' (--debug shows where)\n"
        )

    def test_debug_lets_the_traceback_out(self, opt: Opt, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Failing, "error", KeyError("x"))
        with pytest.raises(KeyError):
            opt(write("a.mlir", GOOD), "-p", "failing", "--debug")

    def test_interrupt(self, opt: Opt, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Failing, "error", KeyboardInterrupt())
        result = opt(write("a.mlir", GOOD), "-p", "failing")
        assert (result.code, result.err) == (130, "error: interrupted\n")


class TestOutput:
    def test_file(self, opt: Opt) -> None:
        assert opt(write("a.mlir", GOOD), "-o", "b.mlir").code == 0
        assert "func.func @f()" in Path("b.mlir").read_text()

    def test_in_place(self, opt: Opt) -> None:
        assert opt(write("a.mlir", GOOD), "-o", "a.mlir").code == 0
        assert "func.func @f()" in Path("a.mlir").read_text()

    def test_failure_leaves_the_file_alone(self, opt: Opt) -> None:
        write("b.mlir", "precious")
        assert opt(write("a.mlir", UNVERIFIED), "-o", "b.mlir").code == 1
        assert Path("b.mlir").read_text() == "precious"

    def test_unwritable(self, opt: Opt) -> None:
        result = opt(write("a.mlir", GOOD), "-o", "no/such/folder.mlir")
        assert (result.code, result.err) == (1, "error: no/such/folder.mlir: No such file or directory\n")

    def test_closed_pipe(self, tmp_path: Path) -> None:
        text = "".join(f"func.func @f{i}() {{\n  return\n}}\n" for i in range(1000)).encode()
        (tmp_path / "a.mlir").write_bytes(text)
        read, write_end = os.pipe()
        os.close(read)
        command = [sys.executable, "-m", "warploom.passes.opt", str(tmp_path / "a.mlir")]
        with os.fdopen(write_end, "wb", 0) as closed:
            done = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (1, b"error: the output was closed before everything was written\n")


class TestProcess:
    """Whole processes: the same code paths as above, once each for the kinds of ending."""

    def test_stdin_to_stdout(self) -> None:
        done = process("-", stdin=GOOD.encode())
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"func.func @f()" in done.stdout

    def test_binary_stdin(self) -> None:
        done = process(stdin=b"\xff\x00")
        assert done.returncode == 1
        assert done.stderr == b"error: stdin: expected MLIR text, got byte 0xff at offset 0, which is not UTF-8\n"

    def test_usage(self) -> None:
        done = process("--bogus")
        assert done.returncode == 2
        assert b"Traceback" not in done.stderr

    def test_starts_fast(self) -> None:
        """Nothing heavy is imported to read and print a module that needs none of it."""
        script = (
            "import sys; from warploom.passes.opt import main; main(['-f', 'mlir']);"
            "print(*(m for m in ('numpy', 'rich', 'ml_dtypes', 'warploom.runtime', 'warploom.passes.tile')"
            " if m in sys.modules), file=sys.stderr)"
        )
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, input=GOOD.encode(), capture_output=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, b"\n")

    @pytest.mark.parametrize("option", ["--version", "--help"])
    def test_says_what_it_is_without_dialects(self, option: str) -> None:
        """The dialects take as long to import as xDSL, and only a module needs them."""
        names = ("xdsl.dialects.gpu", "warploom.dialect.mlir.upstream", "warploom.dialect.ptx", "warploom.dialect.warp")
        script = f"import sys; from warploom.passes.opt import main\ntry: main([{option!r}])\nexcept SystemExit: pass\n"
        script += f"print(*(name for name in {names!r} if name in sys.modules), file=sys.stderr)"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, b"\n")

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        "lowering",
        [
            "from warploom.passes.opt import main; main([file, '-p', 'warploom', '-t', 'ptx', '-o', out])",
            "from warploom.runtime import compile; compile(file, 'sm_90a', cache=False)",
            "from warploom.runtime.cli.command import main; main(['compile', file, '--no-cache', '-o', out])",
        ],
        ids=["warploom-opt", "compile", "warploom compile"],
    )
    def test_lowers_without_arrays(self, lowering: str) -> None:
        """numpy takes a tenth of a second to import, and nothing that lowers a product computes with it."""
        script = f"import sys; _, file, out = sys.argv; {lowering}; print('numpy' in sys.modules)"
        command = [sys.executable, "-c", script, "examples/matmul_bf16.mlir", os.devnull]
        done = subprocess.run(command, capture_output=True, timeout=60, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"False\n", b"")

    def test_lowers_without_what_it_has_not(self) -> None:
        """A product on memory for sm_80 waits for nothing that tensors, rows, several warpgroups or split K need."""
        script = (
            "import sys; from warploom.runtime import compile; compile(sys.argv[1], 'sm_80', cache=False);"
            "print(*sorted(m for m in sys.argv[2:] if m in sys.modules));"
            "from warploom.dialect.isa import wgmma; from warploom.dialect.ptx.rows import copies;"
            "print(*(rows.cache_info().currsize for rows in (wgmma.rows, copies.tensor_rows)))"
        )
        module = "warploom.passes.tile.stage"
        others = ("xdsl.dialects.tensor", "xdsl.dialects.bufferization", "warploom.passes.tile.rows",
                  "warploom.passes.tile.elementwise_kernel", "warploom.passes.tile.attention",
                  "warploom.passes.pipelining.specialise", "warploom.passes.tile.expand",
                  "warploom.passes.linalg.bufferize", "warploom.passes.linalg.fuse_rows",
                  "warploom.passes.linalg.elementwise", "warploom.passes.linalg.pages",
                  "warploom.passes.tile.split", "warploom.passes.schedule.version",
                  "warploom.passes.to_ptx.epilogue", "warploom.dialect.warp.conversions",
                  "warploom.dialect.mlir.convolution", "warploom.passes.linalg.dequantised",
                  "warploom.passes.linalg.functions", "warploom.passes.to_ptx.widening",
                  "warploom.passes.tile.register_products",
                  "warploom.passes.to_ptx.synchronisation", "warploom.dialect.warp.tensor_memory",
                  "html", "difflib", "pickle",
                  "xdsl.dialects.affine", "xdsl.dialects.cf", "xdsl.dialects.vector")  # fmt: skip
        command = [sys.executable, "-c", script, "examples/matmul_bf16.mlir", module, *others]
        done = subprocess.run(command, capture_output=True, timeout=60, check=False)
        assert (done.returncode, done.stdout.decode(), done.stderr) == (0, f"{module}\n0 0\n", b"")


class TestNames:
    def test_list_passes(self, opt: Opt) -> None:
        result = opt("--list-passes")
        assert (result.code, result.err) == (0, "")
        for name in WARPLOOM_UNIVERSE.all_passes:
            assert f"{name}\n    " in result.out
        assert "      arch: str | None = none\n" in result.out
        assert "      stages: int | None = none\n" in result.out

    @pytest.mark.parametrize("name", WARPLOOM_UNIVERSE.all_passes)
    def test_pass_is_what_its_name_says(self, name: str) -> None:
        factory = WARPLOOM_UNIVERSE.all_passes[name]()
        assert factory.name == name
        assert factory.__doc__

    @pytest.mark.parametrize("name", WARPLOOM_UNIVERSE.all_dialects)
    def test_dialect_is_what_its_name_says(self, name: str) -> None:
        assert WARPLOOM_UNIVERSE.all_dialects[name]().name == name

    @pytest.mark.parametrize("name", WARPLOOM_UNIVERSE.all_targets)
    def test_target_is_what_its_name_says(self, name: str) -> None:
        assert WARPLOOM_UNIVERSE.all_targets[name]().name == name

    def test_known_without_entry_points(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from xdsl.universe import XDSL_UNIVERSE, Universe

        monkeypatch.setattr(Universe, "get_multiverse", staticmethod(lambda: XDSL_UNIVERSE))
        known_universe.cache_clear()
        try:
            assert {"warp", "ptx", "linalg", "arith"} <= known_universe().all_dialects.keys()
            assert {"warp-tile", "cse"} <= known_universe().all_passes.keys()
            assert {"ptx", "mlir"} <= known_universe().all_targets.keys()
        finally:
            known_universe.cache_clear()

    def test_version(self, opt: Opt) -> None:
        assert re.fullmatch(r"warploom-opt \S.* on xDSL \S+\n", opt("--version").out)


class TestContext:
    def test_matmul_is_still_xdsl_s(self) -> None:
        module = parse_mlir(make_context(), MATMUL)
        verify(module)
        [matmul] = [op for op in module.walk() if op.name == "linalg.matmul"]
        assert isinstance(matmul, xdsl_linalg.MatmulOp)
        assert location_of(matmul) == "<string>:2:3"

    def test_explicit_location_is_kept(self) -> None:
        module = parse_mlir(make_context(), 'func.func @f() {\n  return loc("elsewhere.py":7:9)\n} loc(unknown)\n')
        [terminator] = [op for op in module.walk() if op.name == "func.return"]
        assert location_of(terminator) == "elsewhere.py:7:9"

    def test_parse_error_is_described(self) -> None:
        with pytest.raises(ParseError) as caught:
            parse_mlir(make_context(), "func.func", "kernel")
        assert describe(caught.value).startswith("kernel:1:10: error: ")

    def test_verify_is_located(self) -> None:
        with pytest.raises(LocatedError) as caught:
            verify(parse_mlir(make_context(), UNVERIFIED, "kernel"))
        assert caught.value.location == "kernel:3:3"
        assert describe(caught.value) == str(caught.value)

    def test_fail_without_a_place(self) -> None:
        with pytest.raises(DiagnosticException) as caught:
            fail(ModuleOp([]), "no such product")
        assert describe(caught.value) == "error: no such product"

    def test_describe_an_error_without_a_message(self) -> None:
        assert describe(ValueError()) == "error: ValueError"

    def test_verify_error_inside_an_attribute(self) -> None:
        with pytest.raises(LocatedError) as caught:
            parse_mlir(make_context(), 'func.func @f() {\n  "test.op"() {a = !riscv.reg<x99>} : () -> ()\n}')
        assert caught.value.location.startswith("<string>:2:")


def test_driver_is_xdsl_s(monkeypatch: pytest.MonkeyPatch) -> None:
    from xdsl.xdsl_opt_main import xDSLOptMain

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(GOOD.encode())))
    assert isinstance(WarploomOptMain(args=[]), xDSLOptMain)


@irdl_op_definition
class Plugged(IRDLOperation):
    """An operation of a plugin."""

    name = "plugged.op"


def test_plugins_are_looked_for_where_a_dialect_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """And only there: it means reading the metadata of all installed packages."""
    looked: list[bool] = []

    def universe() -> Universe:
        looked.append(True)
        return Universe(all_dialects={"plugged": lambda: Dialect("plugged", [Plugged], [])})

    monkeypatch.setattr(passes_context, "known_universe", universe)
    context = make_context()
    parse_mlir(context, "func.func @f(%x: memref<4xf32>) { return }")
    assert not looked
    parse_mlir(context, '"plugged.op"() : () -> ()')
    assert looked == [True]
    with pytest.raises(ParseError, match=r"Operation absent\.op is not registered"):
        parse_mlir(context, '"absent.op"() : () -> ()')


def test_a_clone_looks_for_plugins_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """As xDSL applies a pass to one, which may read text."""
    plugin = Universe(all_dialects={"plugged": lambda: Dialect("plugged", [Plugged], [])})
    monkeypatch.setattr(passes_context, "known_universe", lambda: plugin)
    context = make_context()
    context.allow_unregistered = True
    clone = context.clone()
    assert clone.allow_unregistered
    assert clone.get_optional_op("plugged.op") is Plugged
    assert "plugged" not in context.registered_dialect_names


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--pass-pipeline=warp-stage"], r"--pass-pipeline: expected 'builtin\.module\(\.\.\.\)', got 'warp-stage'"),
        (["--pass-pipeline=builtin.module(func.func(warp-stage)"], "expected balanced brackets"),
        (
            ["--pass-pipeline=builtin.module(warp-stage)", "-p", "warp-stage"],
            "expected --pass-pipeline or -p, got both",
        ),
        (["-p", "warp-stage", "--mlir-print-ir-after=warp-stag"], "unknown pass of the pipeline 'warp-stag'; did you"),
        (["--run-reproducer"], "--run-reproducer: expected a file with its pipeline"),
    ],
)
def test_misuse_of_pipelines_exits_with_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2
    assert re.search(message, capsys.readouterr().err)


def test_a_file_without_a_pipeline_is_no_reproducer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file := tmp_path / "plain.mlir").write_text("builtin.module {}")
    with pytest.raises(SystemExit) as left:
        main([str(file), "--run-reproducer"])
    assert left.value.code == 2
    assert "has no external_resources of mlir_reproducer" in capsys.readouterr().err


def test_remarks_of_the_target_are_printed(opt: Opt) -> None:
    example = Path(__file__).parents[2] / "examples" / "block_scaled_matmul.mlir"
    result = opt(str(example), "-p", "warp-set-target{arch=sm_120a},warploom", "-t", "nvvm", "--remarks")
    assert result.code == 0
    assert "remark: convert-warp-to-nvvm: inline PTX: mma.sync.aligned.m16n8k64" in result.err


def test_text_of_unknown_dialects_in_several_lines_is_the_same_wherever_it_stands() -> None:
    context = make_context()
    context.allow_unregistered = True
    text = """func.func @f(%a: tensor<4xf32, #sparse.encoding<{
  map = (d0) -> (d0 : compressed) // of one
}>>) {
  scf.execute_region {
    "foreign.use"(%a) {how = #foreign.how<
      a = [1],
      b = "two  lines"
    >, kind = #foreign<kind
      one>} : (tensor<4xf32, #sparse.encoding<{
  map = (d0) -> (d0 : compressed)
}>>) -> ()
    scf.yield
  }
  return
}
"""
    first = str(parse_mlir(context, text))
    assert str(parse_mlir(context, first)) == first
    assert '#foreign.how< a = [1], b = "two  lines" >' in first
    assert "#foreign<kind one>" in first
