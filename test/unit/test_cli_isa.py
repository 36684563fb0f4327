"""`warploom isa`: the support table, from the rows alone."""

from __future__ import annotations

import io
import json
import re
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ptx_rows import BY_SPELLING

from warploom.dialect.isa.row import NEWEST, TARGETS, target
from warploom.dialect.ptx.instructions import FAMILIES, every_row
from warploom.runtime.cli.command import main
from warploom.runtime.lookup.isa_table import Query, by_section, forms, lines, order, patterns


def spellings(text: str) -> set[str]:
    """What a pattern stands for, written out."""
    parts = re.findall(r"\[\.(?:\(([^)]*)\)|([^\]]*))\]|\(([^)]*)\)|([^.\[(]+)", text)
    choices = [
        [f".{word}" for word in (maybe or one or must or plain).split("|")] + ([""] if maybe or one else [])
        for maybe, one, must, plain in parts
    ]
    return {"".join(words).lstrip(".") for words in product(*choices)}


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(["isa", *argv])
    out, err = capsys.readouterr()
    return code, out, err


def test_all_forms_are_in_the_table_once() -> None:
    table = lines(forms(Query()))
    shown = [spelling for line in table for spelling in spellings(line.text)]
    assert sorted(shown) == sorted(BY_SPELLING)
    assert [line.count for line in table] == [len(spellings(line.text)) for line in table]


@pytest.mark.parametrize("name", ["sm_70", "sm_75", "sm_90a", "sm_100f", "sm_120a", "sm_121f"])
def test_a_target_has_what_the_rows_say(name: str) -> None:
    on = target(name)
    shown = {spelling: line.ptx for line in lines(forms(Query(target=name)), name) for spelling in spellings(line.text)}
    expected = {s: form.since(on) for s, form in BY_SPELLING.items() if form.since(on) is not None}
    assert shown == {s: f"{v[0]}.{v[1]}" for s, v in expected.items() if v is not None}


@given(st.lists(st.lists(st.sampled_from(["f16", "f32", "row", "col", "x1", "x4", "trans", "m8n8"]), max_size=4)))
def test_patterns_stand_for_exactly_the_spellings(words: list[list[str]]) -> None:
    texts = {".".join(["op", *group]) for group in words}
    expanded = [spelling for text, _ in patterns(texts) for spelling in spellings(text)]
    assert sorted(expanded) == sorted(texts)


def test_sections_have_titles_and_come_in_order() -> None:
    titles = list(by_section(lines(forms(Query()))))
    assert titles == sorted(titles, key=lambda title: order(title.partition("  ")[0]))
    assert titles[0] == "9.7.14.4.3  wmma.load"
    assert all(title.partition("  ")[2] for title in titles)
    second, third = "9.7.14.5.9  mma m16n8k16, s8 u8 e4m3 e5m2", "9.7.14.5.12  mma m16n8k128, b1"
    assert titles.index(second) < titles.index(third)


@pytest.mark.parametrize("family", FAMILIES)
def test_each_instruction_can_be_asked_for(family: str) -> None:
    assert forms(Query(family=family)) == tuple(
        sorted(FAMILIES[family](), key=lambda form: order(form.section))
    )  # fmt: skip


def test_wmma_is_three_instructions() -> None:
    names = {form.spelling.split(".")[1] for form in forms(Query(family="wmma"))}
    assert names == {"load", "store", "mma"}


def test_types_and_shapes_and_versions_filter() -> None:
    rows = forms(Query(family="mma", type="e4m3", shape="m16n8k16"))
    assert {form.spelling.split(".")[3] for form in rows} == {"m16n8k16"}
    assert all("e4m3" in form.spelling for form in rows)
    # the types that a spelling leaves out count too
    assert any(form.spelling.endswith("m16n16k16.f32.f32") for form in forms(Query(family="wmma.mma", type="f16")))
    assert forms(Query(family="mma", type="e4m3", shape="m16n8k32", ptx="8.3")) == ()
    assert forms(Query(family="mma", type="e4m3", shape="m16n8k32", ptx="8.4", target="sm_89"))


def test_versions_that_the_tables_do_not_have(capsys: pytest.CaptureFixture[str]) -> None:
    newest = max(row.ptx for row in (*forms(Query()), *every_row(), *TARGETS.values()))
    assert newest == NEWEST
    last, later = f"{newest[0]}.{newest[1]}", f"{newest[0]}.{newest[1] + 1}"
    assert forms(Query(ptx=last)) == forms(Query())
    for family in ("mma", "mbarrier.init"):
        for version in (later, "99.0"):
            error = f"error: the newest PTX version in the tables is {last}, got '{version}'\n"
            assert run(capsys, "--family", family, "--ptx", version) == (1, "", error)


def test_the_plain_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--family", "movmatrix") == (
        0,
        "movmatrix: 1 form\n\n9.7.14.5.17  movmatrix\n"
        "  PTX 7.8  sm_75 or later  movmatrix.sync.aligned.m8n8.trans.b16\n",
        "",
    )
    _, out, _ = run(capsys, "--family", "ldmatrix", "--target", "sm_90a")
    assert out == (
        "ldmatrix on sm_90a: 27 forms\n\n9.7.14.5.15  ldmatrix\n"
        "  PTX 8.0  ldmatrix.sync.aligned.m8n8.(x1|x2|x4)[.trans][.(shared|shared::cta)].b16\n"
        "  PTX 9.4  ldmatrix.sync.aligned.m8n16.(x1|x2|x4)[.(shared|shared::cta)].s8.s4\n"
    )


def test_a_line_for_each_form(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--family", "mma", "--type", "b1", "--all")
    assert code == 0
    shown = [line.split()[-1] for line in out.splitlines() if line.startswith("  ")]
    assert shown == [form.spelling for form in forms(Query(family="mma", type="b1"))]
    assert len(lines(forms(Query(family="mma", type="b1")), every=True)) == 6


def test_json_has_every_form_with_its_fields(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--json")
    objects = {item["spelling"]: item for item in json.loads(out)}
    assert code == 0
    assert objects.keys() == set(BY_SPELLING)
    for name, item in objects.items():
        form = BY_SPELLING[name]
        since = {t: form.since(row) for t, row in TARGETS.items()}
        assert item["targets"] == {t: f"{v[0]}.{v[1]}" for t, v in since.items() if v is not None}
    block = objects["mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0"]
    assert block["only"] == {"sm_120a": "8.7", "sm_120f": "8.8"}
    assert block["fields"]["shape"] == "m16n8k64"
    assert block["fields"]["scale"] == {"vector": 2, "type": "ue8m0", "written": False}
    assert block["layouts"]["scale_a"] == "r3 t0 r0 r1 r2 | c0 b0"
    assert [operand["name"] for operand in block["operands"]][:4] == ["d", "a", "b", "c"]
    assert objects["movmatrix.sync.aligned.m8n8.trans.b16"]["layouts"] == {
        "a": "c1 c2 r0 r1 r2 | c0", "d": "r1 r2 c0 c1 c2 | r0"
    }  # fmt: skip


def test_json_of_one_target_and_of_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--json", "--family", "stmatrix", "--target", "sm_90")
    assert {json.dumps(item["targets"]) for item in json.loads(out)} == {'{"sm_90": "7.8"}'}
    assert run(capsys, "--json", "--family", "stmatrix", "--target", "sm_75")[:2] == (0, "[]\n")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_tables_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setattr("sys.stdout", screen)
    assert main(["isa", "--family", "movmatrix"]) == 0
    shown = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())
    assert "┃ PTX ┃ GPUs" in shown
    assert "movmatrix.sync.aligned.m8n8.trans.b16" in shown


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--target", "sm_91"], "unknown target 'sm_91'; known targets: sm_70, "),
        (["--type", "mxf4"], "mxf4 is a kind of product, of e2m1; see --family tcgen05.mma, too"),
        (["--type", "e4m4"], "unknown element type 'e4m4'; nearest: e4m3, ue4m3, e5m2; known: f16, "),
        (["--family", "stmatrx"], "unknown instruction 'stmatrx'; nearest: stmatrix, ldmatrix, movmatrix; "),
        (["--shape", "m16n8k17"], "unknown shape 'm16n8k17'; nearest: m16n8k16, "),
        (["--ptx", "8"], "expected a PTX version such as 8.7, got '8'"),
        (["--family", "stmatrix", "--target", "sm_75"],
         "there is no form of stmatrix on sm_75; needed: PTX 7.8 and sm_90 or later; or PTX 8.6 and sm_100a, "),
        (["--family", "mma", "--shape", "m8n8k4", "--type", "s8"],
         "there is no form of mma in shape m8n8k4 with s8\n"),
        (["--family", "movmatrix", "--ptx", "7.0"],
         "there is no form of movmatrix in PTX 7.0; needed: PTX 7.8 and sm_75 or later\n"),
    ],
)  # fmt: skip
def test_what_there_is_not(capsys: pytest.CaptureFixture[str], argv: list[str], message: str) -> None:
    code, out, err = run(capsys, *argv)
    assert (code, out) == (1, "")
    assert err.startswith(f"error: {message}")
    assert err.count("\n") == 1


def test_misuse(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["isa", "--what"])
    assert left.value.code == 2
    assert "unrecognized arguments: --what\n" in capsys.readouterr().err
    with pytest.raises(SystemExit) as left:
        main(["isa", "--famly=mma", "--what"])
    assert left.value.code == 2
    assert "unrecognized arguments: --famly=mma --what; did you mean --family?" in capsys.readouterr().err


def test_other_instructions_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--family", "cp.async.bulk.tensor", "--target", "sm_90a")
    assert code == 0
    assert out.startswith("cp.async.bulk.tensor on sm_90a: ")
    assert (
        "9.7.9.25.5.2\n  PTX 8.0  cp.async.bulk.tensor.(1d|2d|3d|4d|5d).shared::cluster.global[.tile]"
        ".mbarrier::complete_tx::bytes[.(multicast::cluster|multicast::cluster::16b)][.L2::cache_hint]  "
    ) in out
    assert ".4d.shared::cluster.global.im2col." in out
    assert "cta_group" not in out
    assert "gather4" not in out
    _, out, _ = run(capsys, "--family", "setmaxnreg", "--all")
    assert [line.split()[4 if "sm_90a" in line else 3] for line in out.splitlines() if line.startswith("  ")]
    assert "setmaxnreg.inc.sync.aligned.u32" in out


def test_other_instructions_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--family", "elect", "--json", "--target", "sm_90a")
    (item,) = json.loads(out)
    assert (item["spelling"], item["ptx"], item["requirement"]) == ("elect.sync", "8.0", "sm_90 or later")


def test_other_instructions_have_no_shapes(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "--family", "cp.async.bulk", "--shape", "m16n8k16")
    assert (code, err) == (1, "error: only matrix instructions are asked for by type and shape, got cp.async.bulk\n")


def test_other_instructions_that_a_target_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "--family", "elect", "--target", "sm_80")
    assert (code, err) == (1, "error: there is no form of elect on sm_80; needed: PTX 8.0 and sm_90 or later\n")
    assert run(capsys, "--family", "wgmma", "--target", "sm_90a")[1].startswith("wgmma on sm_90a: 1074 forms")
