"""`warploom layout`: fragments by what people call them, and errors that name what there is."""

from __future__ import annotations

import io
import re
from itertools import product
from pathlib import Path

import pytest
from ptx_rows import BY_SPELLING

from warploom.dialect.isa.wgmma import SWIZZLES
from warploom.dialect.ptx.instructions import FAMILIES
from warploom.runtime.base.errors import WarploomError
from warploom.runtime.cli.command import main
from warploom.runtime.lookup.fragments import find, short
from warploom.runtime.lookup.pictures import find_shared, shared_picture


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(["layout", *argv])
    out, err = capsys.readouterr()
    return code, out, err


MANY = 500
"""Of a family with more forms, every seventh is looked up: they differ in N alone, mostly."""


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", [name for name in FAMILIES if not name.startswith("wmma")])
def test_every_form_is_found_by_its_spelling_and_by_its_short_name(name: str) -> None:
    forms = FAMILIES[name]()
    for form in forms[:: 1 if len(forms) < MANY else 7]:
        for operand in form.layouts:
            assert find(form.spelling, operand).layout == form.layouts[operand]
            assert find(short(form, operand), operand).layout == form.layouts[operand], short(form, operand)


@pytest.mark.parametrize(
    ("name", "operand", "spelling"),
    [
        ("mma.m16n8k16.f16", "A", "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16"),
        ("m16n8k16.bf16", "b", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"),
        ("mma.m16n8k16.f32", "C", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"),
        ("m16n8k256", "A", "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc"),
        ("mma.m16n8k32.f8f6f4.e2m1", "A", "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f16.e2m1.e4m3.f16"),
        ("mma.m16n8k32.s8.u8", "B", "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32"),
        ("mma.sp::ordered_metadata.m16n8k16.tf32", "E",
         "mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32"),
        ("ldmatrix.m8n8.x4", "D", "ldmatrix.sync.aligned.m8n8.x4.shared.b16"),
        ("ldmatrix.sync.aligned.x4.m8n8.trans.shared.b16", "D", "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"),
        ("stmatrix.m16n8.x1", "R", "stmatrix.sync.aligned.m16n8.x1.trans.b8"),
        ("movmatrix", "D", "movmatrix.sync.aligned.m8n8.trans.b16"),
    ],
)  # fmt: skip
def test_what_people_call_instructions(name: str, operand: str, spelling: str) -> None:
    assert BY_SPELLING[spelling] in find(name, operand).forms


@pytest.mark.parametrize(
    ("name", "operand", "message"),
    [
        ("mmma", "A", "unknown instruction 'mmma'; nearest: mma, mma.sp, wmma.mma; known: wmma.load, wmma.store, "
         "wmma.mma, mma, ldmatrix, stmatrix, movmatrix, mma.sp, wgmma.mma_async, or a shape such as m16n8k16"),
        ("", "A", "unknown instruction ''; known: wmma.load, wmma.store, wmma.mma, mma, ldmatrix, stmatrix, "
         "movmatrix, mma.sp, wgmma.mma_async, or a shape such as m16n8k16"),
        ("mma.m16n8k17", "A", "there is no 'mma.m16n8k17'; nearest: mma.m16n8k8.f16, "),
        ("m64n7k16", "A", "there is no 'm64n7k16'; nearest: "),
        ("mma.m16n8k16.f16", "E", "'mma.m16n8k16.f16' has no operand 'E'; it has A, B, C, D"),
        ("mma.sp.m16n8k16.f16", "scale_a", "'mma.sp.m16n8k16.f16' has no operand 'scale_a'; it has A, B, C, D, E"),
        ("tcgen05.mma.kind::mxf4.m128.f32", "D", "there is no 'tcgen05.mma.kind::mxf4.m128.f32' in tensor memory; "),
        ("wgmma.m64n8k16.f16", "A", "unknown instruction 'wgmma.m64n8k16.f16'; nearest: wgmma.mma_async; known: "),
        ("ldmatrix.m8n8.x1", "A", "'ldmatrix.m8n8.x1' has no operand 'A'; it has D"),
        ("mma.m16n8k32.f16", "A", "'mma.m16n8k32.f16': no form has f16 as operand A; there are: mma.m16n8k32.s8, "),
        ("mma.m8n8k4", "A", "operand A is not the same in all forms of 'mma.m8n8k4'; say which: "
         "mma.m8n8k4.row.row.f16, mma.m8n8k4.col.row.f16, mma.m8n8k4.f64"),
        ("mma.m16n8k64.mxf4nvf4", "scale_a", "operand scale_a is not the same in all forms of 'mma.m16n8k64.mxf4nvf4'; "
         "say which: mma.m16n8k64.kind::mxf4nvf4.scale_vec::2X.e2m1, mma.m16n8k64.kind::mxf4nvf4.scale_vec::4X.e2m1"),
        ("wmma.mma.m16n16k16", "A", "fragments of 'wmma.mma.m16n16k16' are opaque: "
         "the ISA does not say which lane holds what (9.7.14.4.1)"),
    ],
)  # fmt: skip
def test_what_there_is_not(capsys: pytest.CaptureFixture[str], name: str, operand: str, message: str) -> None:
    code, out, err = run(capsys, name, operand)
    assert (code, out) == (1, "")
    assert err.startswith(f"error: {message}")
    assert err.count("\n") == 1


def test_names_in_errors_can_be_asked_for() -> None:
    with pytest.raises(WarploomError) as caught:
        find("m16n8k32", "A")
    names = str(caught.value).partition("say which: ")[2].split(", ")
    assert len(names) == len({find(name, "A").layout for name in names}) > 2


def test_plain_text_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", "A")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "mma.m16n8k8, A: 16 x 8, f16"
    assert lines[3].split() == ["0", "T0:{a0,a1}", "T1:{a0,a1}", "T2:{a0,a1}", "T3:{a0,a1}"]
    assert lines[18].split() == ["15", "T28:{a2,a3}", "T29:{a2,a3}", "T30:{a2,a3}", "T31:{a2,a3}"]
    assert lines[-2:] == [
        "f16: 2 .f16x2 registers per lane, 2 elements each, a0 in the lowest bits of the first.",
        "Lane bits | element bits: c1 c2 r0 r1 r2 | c0 r3. PTX ISA 9.7.14.5.7.",
    ]


def test_several_types_are_all_named(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "mma.m16n8k32.f8f6f4", "A")
    assert out.startswith("mma.m16n8k32, A: 16 x 32, e4m3, e5m2, e3m2, e2m3, e2m1\n")
    assert "e4m3, e5m2, e3m2, e2m3, e2m1: 4 .b32 registers per lane, each element in a byte, 4 elements each" in out


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stdout", screen)
    assert main(["layout", "mma.m16n8k16.f16", "A"]) == 0
    assert "\x1b[38;2;0;0;0;48;2;" in screen.getvalue()
    plain = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())
    assert max(map(len, plain.splitlines()[:-3])) <= 60


def test_svg_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    target = tmp_path / "a.svg"
    assert run(capsys, "mma.m16n8k16.f16", "A", "--svg", str(target)) == (0, "", "")
    assert target.read_text().startswith("<svg ")
    code, out, err = run(capsys, "mma.m16n8k16.f16", "A", "--svg", str(tmp_path / "no" / "a.svg"))
    assert (code, out) == (1, "")
    assert err == f"error: {tmp_path}/no/a.svg: No such file or directory\n"


def test_misuse(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["layout", "mma.m16n8k16.f16"])
    assert left.value.code == 2
    assert "the following arguments are required: OPERAND" in capsys.readouterr().err
    with pytest.raises(SystemExit) as left:
        main(["layout", "mma.m16n8k16.f16", "A", "--svg", "a.pdf"])
    assert left.value.code == 2
    assert "argument --svg: expected a file that ends in .svg, got 'a.pdf'\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "bits", "first"),
    [
        # an accumulator of f32, rounded, is an operand A of the next product
        ("mma.m16n8k16.f32 C --to mma.m16n8k16.f16 A", 16, "1. cost 0: the fragments are the same: no instruction"),
        (
            "mma.m16n8k16.f16 A --to mma.m16n8k16.f16 B",
            16,
            "1. cost 8: transpose 8x8 matrices of 16 bits with 4 movmatr",
        ),
        ("ldmatrix.m8n8.x4 D --to mma.m16n8k16.bf16 A", 16, "1. cost 0: take registers 0, 2, 1, 3 in this order"),
        ("mma.m16n8k32.s8 C --to mma.m16n8k32.s8 A", 8, "1. cost 20: exchange registers between lanes with 4 shfl"),
        ("mma.m8n8k4.f64 C --to mma.m8n8k4.f64 A", 64, "1. cost 16: exchange registers between lanes with 4 shfl"),
        ("movmatrix A --to movmatrix D", 16, "1. cost 2: transpose 8x8 matrices of 16 bits with 1 movmatrix"),
        ("mma.m16n8k8.tf32 A --to mma.m16n8k8.tf32 A", 32, "1. cost 0: the fragments are the same: no instruction"),
    ],
)
def test_ways_to_another_operand(capsys: pytest.CaptureFixture[str], words: str, bits: int, first: str) -> None:
    code, out, err = run(capsys, *words.split())
    assert (code, err) == (0, "")
    source, target, matrix, *ways = out.splitlines()
    assert source.startswith("from ")
    assert target.startswith("to ")
    assert f"elements of {bits} bits" in matrix
    assert ways[0].startswith(first)
    costs = [int(re.match(r"\d+\. cost (\d+): ", conversion)[1]) for conversion in ways]  # pyright: ignore[reportOptionalSubscript]
    assert costs == sorted(costs)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "mma.sp.m16n8k32.f16 E --to mma.m16n8k16.f16 A",
            "mma.sp.m16n8k32.f16, operand E to mma.m16n8k16.f16, operand A: expected two layouts of one matrix, got "
            "16x16, 2 by sparsity selector and 16x16",
        ),
        ("mma.m16n8k16 C --to mma.m16n8k16.f16 A", "take 16 or 32 or 64 bits; name a form with a type"),
        ("mma.m16n8k16.f16 A --to mma.m16n8k16.f16 Q", "'mma.m16n8k16.f16' has no operand 'Q'; it has A, B, C, D"),
        ("mma.m16n8k16.f16 A --to mma.m16n8k16.f16 B --svg x.svg", "--svg draws one operand; leave out --to"),
    ],
)
def test_ways_that_are_not_to_be_had(capsys: pytest.CaptureFixture[str], words: str, message: str) -> None:
    code, out, err = run(capsys, *words.split())
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert message in err


def test_operands_in_shared_memory(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "wgmma.mma_async.m64n64k16.f16", "B", "--swizzle", "64")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "wgmma.mma_async, B in shared memory: K-major, 16 bits, swizzle of 64 bytes"
    assert lines[4].split()[1:5] == ["n2:k8-15", "n2:k0-7", "n2:k24-31", "n2:k16-23"]
    assert "The next 8 rows along N: the stride offset further." in lines
    _, out, _ = run(capsys, "wgmma.mma_async.m64n64k16.bf16", "a", "--swizzle", "0", "--mn-major")
    assert out.splitlines()[3].split()[:3] == ["0", "k0:m0-7", "k1:m0-7"]
    assert "The next 8 elements along M: the stride offset further; 8 along K: the leading offset." in out


def test_every_picture_of_shared_memory_has_each_element_once() -> None:
    along_k = [(kind, False) for kind in ("n64k16.f16", "n64k8.tf32", "n64k32.s8", "n64k256.b1")]
    for (kind, along_mn), swizzle in product([*along_k, ("n64k16.f16", True)], SWIZZLES):
        (panel,) = shared_picture(find_shared(f"wgmma.mma_async.m64{kind}", "B", swizzle, along_mn)).panels
        assert len({(cell.row, cell.column) for cell in panel.cells}) == len({cell.label for cell in panel.cells})
        assert len(panel.cells) * 16 == panel.rows * panel.columns


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("wgmma.mma_async.m64n64k32.s8", "B"), "B is in shared memory, which --swizzle 0, 32, 64 or 128 shows"),
        (
            ("wgmma.mma_async.m64n64k32.s8", "B", "--swizzle", "48"),
            "expected a swizzle of 0, 32, 64 or 128 bytes, got 48",
        ),
        (
            ("wgmma.mma_async.m64n64k32.s8", "B", "--swizzle", "0", "--mn-major"),
            "only those of 16 bits may lie along M",
        ),
        (("wgmma.mma_async.m64n64k16.f16", "D", "--swizzle", "0"), "operands A and B of wgmma can be in shared memory"),
        (
            ("wgmma.mma_async", "B", "--swizzle", "0"),
            "elements of several sizes; say which, as in wgmma.mma_async.m64n8k16",
        ),
        (("mma.m16n8k16.f16", "B", "--swizzle", "0"), "only operands of wgmma.mma_async are described by a swizzle"),
        (("wgmma.mma_async.m64n64k16.f16", "A", "--mn-major"), "give --swizzle as well"),
        (("mma.m16n8k16.f16", "B", "--swizzle", "0", "--to", "mma.m16n8k16.f16", "A"), "leave out --to"),
    ],
)
def test_what_does_not_lie_in_shared_memory_so(
    argv: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, *argv)
    assert code == 1
    assert message in err
