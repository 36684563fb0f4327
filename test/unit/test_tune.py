"""Searching for schedules: what is tried, what is remembered, and who reads it. Measuring itself needs a GPU."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from attention_gradients import AttentionGradient

from warploom.dialect.isa.row import target
from warploom.dialect.schedule import Schedule, ScheduleError
from warploom.passes import opt
from warploom.passes.diagnostics import remarks
from warploom.passes.schedule.candidates import Tuned, candidates, check, spread
from warploom.passes.schedule.model import DRAWN
from warploom.passes.schedule.warp_schedule import default_schedule
from warploom.passes.schedule.warpgroup_schedule import time_of
from warploom.runtime import ArgumentError, CompileError, WarploomError, compile
from warploom.runtime.cli import tune_report
from warploom.runtime.cli.command import main
from warploom.runtime.cli.tune_report import Measured
from warploom.runtime.cuda.driver import GpuDevice
from warploom.runtime.kernel.lowering import parse

TEXT = """func.func @f(%A: memref<100x200xf16>, %B: memref<200x300xf16>, %C: memref<100x300xf32>) {
  linalg.matmul ins(%A, %B : memref<100x200xf16>, memref<200x300xf16>) outs(%C : memref<100x300xf32>)
  return
}"""
KEY = "100x300x200 f16 x f16 -> f32, added to C"
OTHER = "cta = 32x64x32, warp = 16x32, mma = m16n8k16, stages = 2, swizzle = 64, group = 1, accumulate = f32"
DEVICE: dict[str, Any] = {"target": "sm_80", "products": {KEY: {"best": OTHER, "measured": {OTHER: 1.0}}}}


def of_device(**fields: object) -> str:
    """A file of one device, some of whose fields are others."""
    device = {name: value for name, value in {**DEVICE, **fields}.items() if value is not None}
    return json.dumps({"format": 1, "devices": {"A GPU": device}})


SMALL: Any = SimpleNamespace(device=GpuDevice(0, "A GPU", (9, 0), "13.0", 78, 227 * 1024))
GPU: Any = SimpleNamespace(device=GpuDevice(0, "A GPU", (9, 0), "13.0", 132, 227 * 1024))


class FakeBench:
    """Times that follow from the schedule, and a count of the measurements; fails on request."""

    calls = 0

    def __init__(self, *arguments: object) -> None:
        assert isinstance(arguments[-1], ExitStack)

    def measure(self, schedule: Schedule) -> Measured:
        type(self).calls += 1
        if schedule.cta[0] == 64:
            return Measured(schedule, None, "it has 64 rows")
        return Measured(schedule, 1000.0 / (schedule.cta[0] * schedule.cta[1]) + schedule.stages)


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeBench.calls = 0
    monkeypatch.setattr(tune_report, "Bench", FakeBench)


def test_every_candidate_fits_and_the_default_comes_first() -> None:
    product: Any = None

    def take(default: Schedule, asked: Any, where: Any) -> list[Schedule]:
        nonlocal product
        product = asked
        return candidates(default, asked, where)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tune_report, "candidates", take)
        key, schedules = tune_report.schedules(parse(TEXT), "sm_90a")
        assert key == KEY
        assert len(schedules) == len(set(schedules)) > 50
        assert schedules[0] == default_schedule(product, target("sm_90a"))
        for schedule in schedules:
            check(schedule, product, target("sm_90a"))


def test_a_limit_is_spread_over_the_tiles() -> None:
    _, schedules = tune_report.schedules(parse(TEXT), "sm_90a")
    few = spread(schedules, 12)
    assert len(few) == 12
    assert few[0] == schedules[0]
    assert len({(s.cta[:2], s.warp) for s in few}) >= 10
    assert set(spread(schedules, 10_000)) == set(schedules)


def test_a_search_remembers_goes_on_and_keeps_the_fastest(tmp_path: Path) -> None:
    file, seen = tmp_path / "tuned.json", list[tuple[int, int]]()
    first = tune_report.tune(
        parse(TEXT), GPU, file, limit=7, on_measured=lambda r, n: seen.append((FakeBench.calls, n))
    )
    assert seen == [(i, 7) for i in range(1, 8)]
    again = tune_report.tune(parse(TEXT), GPU, file, limit=20)
    assert FakeBench.calls == 20
    assert sum(r.remembered for r in again) == 7
    assert [r.schedule for r in again if r.default] == list(compile(TEXT).schedule)
    times = [r.microseconds for r in again if r.microseconds is not None]
    assert times == sorted(times)
    assert len(times) < len(again), "those of 64 rows failed"
    assert {r.schedule for r in first} <= {r.schedule for r in again}
    device = json.loads(file.read_text())["devices"]["A GPU"]
    assert device["target"] == "sm_90a"
    assert device["products"][KEY]["best"] == str(again[0].schedule)


def test_what_another_version_measured_is_no_best(tmp_path: Path) -> None:
    file = tmp_path / "tuned.json"
    file.write_text(of_device(target="sm_90a", products={KEY: {"best": "", "measured": {"old = 1": 0.001}}}))
    results = tune_report.tune(parse(TEXT), GPU, file, limit=2)
    assert Tuned.read(file).best("sm_90a", KEY) == results[0].schedule


def test_the_default_must_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeBench, "measure", lambda self, schedule: Measured(schedule, None, "it is broken"))
    with pytest.raises(WarploomError, match="the default schedule fails: it is broken"):
        tune_report.tune(parse(TEXT), GPU, tmp_path / "tuned.json")


ANY = """func.func @f(%A: memref<?x200xf16>, %B: memref<200x300xf16, strided<[304, 1]>>, %C: memref<?x300xf32>) {
  linalg.matmul ins(%A, %B : memref<?x200xf16>, memref<200x300xf16, strided<[304, 1]>>) outs(%C : memref<?x300xf32>)
  return
}"""


@pytest.mark.slow
def test_unknown_sizes_are_given(tmp_path: Path) -> None:
    """They are part of what the file is keyed by; a compiler that does not know them takes what was found with some."""
    file = tmp_path / "tuned.json"
    with pytest.raises(ArgumentError, match=r"%A is \?x200xf16: say how large it is, as in --in A=random:256x256"):
        tune_report.tune(parse(ANY), GPU, file, limit=4)
    best = tune_report.tune(parse(ANY), GPU, file, limit=4, specifications=["A=random:70x200"])
    (key,) = json.loads(file.read_text())["devices"]["A GPU"]["products"]
    assert key == "?x300x200 f16 x f16 -> f32, added to C, at 70x200xf16 200x300xf16 70x300xf32"
    assert compile(ANY, tuned=file).schedule[0] == best[0].schedule
    assert not any(
        r.remembered for r in tune_report.tune(parse(ANY), GPU, file, limit=4, specifications=["A=random:90x200"])
    )
    number = ANY.replace("%C: memref", "%s: f32, %C: memref")
    with pytest.raises(ArgumentError, match="tuning takes functions of arrays alone"):
        tune_report.tune(parse(number), GPU, file, limit=4)


def tuned_file(file: Path, schedule: str = OTHER, arch: str = "sm_90a") -> Path:
    products = {KEY: {"best": schedule, "measured": {schedule: 1.0}}}
    file.write_text(json.dumps({"format": 1, "devices": {"A GPU": {"target": arch, "products": products}}}))
    return file


def test_the_compiler_takes_what_was_found(tmp_path: Path) -> None:
    file = tuned_file(tmp_path / "tuned.json")
    assert str(compile(TEXT, tuned=file).schedule[0]) == OTHER
    assert compile(TEXT, tuned=file, stages=3).schedule[0] == Schedule.parse(OTHER.replace("stages = 2", "stages = 3"))
    assert compile(TEXT, target="sm_80", tuned=file).schedule == compile(TEXT, target="sm_80").schedule
    assert compile(TEXT.replace("200x", "208x").replace("x200", "x208"), tuned=file).schedule[0] != Schedule.parse(
        OTHER
    )


def test_a_file_is_read_once_in_a_compilation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, read, reads = tuned_file(tmp_path / "tuned.json"), Path.read_text, list[str]()

    def counted(path: Path, *arguments: Any, **named: Any) -> str:
        reads.append(path.name)
        return read(path, *arguments, **named)

    monkeypatch.setattr(Path, "read_text", counted)
    monkeypatch.setenv("WARPLOOM_CACHE", str(tmp_path / "cache"))
    assert str(compile(TEXT, tuned=file).schedule[0]) == OTHER
    assert reads.count("tuned.json") == 1
    again = OTHER.replace("stages = 2", "stages = 1")
    tuned_file(file, again)
    assert str(compile(TEXT, tuned=file).schedule[0]) == again
    assert reads.count("tuned.json") == 2
    reads.clear()
    (tmp_path / "f.mlir").write_text(TEXT)
    opt.main([str(tmp_path / "f.mlir"), "-p", f'warploom{{tuned="{file}"}}'])
    assert reads.count("tuned.json") == 1
    assert again in capsys.readouterr().out


def test_any_name_of_a_file(tmp_path: Path) -> None:
    for name in ('a "b".json', r"a\nb.json", "a}{,'.json"):
        with pytest.raises(
            CompileError, match="No such file or directory; `warploom tune` writes such files"
        ) as caught:
            compile(TEXT, tuned=str(tmp_path / name))
        assert str(caught.value).startswith(f"tuned: {tmp_path / name}: ")


def test_what_failed_has_no_best(tmp_path: Path) -> None:
    file = tmp_path / "tuned.json"
    file.write_text(of_device(products={KEY: {"best": "", "measured": {OTHER: None}}}))
    assert compile(TEXT, "sm_80", tuned=file).ptx == compile(TEXT, "sm_80").ptx


@pytest.mark.parametrize("change", [("stages = 2", "stages = 200"), ("f32", "i32"), ("m16n8k16", "m16n8k32")])
def test_what_does_not_fit_is_left_out(tmp_path: Path, change: tuple[str, str]) -> None:
    """Measured by another version, or for something else; the default is taken, and a remark says so."""
    file = tuned_file(tmp_path / "tuned.json", stale := OTHER.replace(*change))
    assert stale != OTHER
    with remarks() as made:
        assert compile(TEXT, tuned=file).ptx == compile(TEXT).ptx
    assert any("the tuned schedule does not fit: " in one for one in made)


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", of_device(products={"k": {"best": "y", "measured": {}}}), of_device(target=None),
        of_device(products={KEY: {"best": OTHER, "measured": {OTHER: "fast"}}}), of_device(sms=0, timing=[1.0] * 8),
        of_device(sms=True, timing=[1.0] * 8), *(of_device(sms=9, timing=[at] * 8) for at in (0.0, float("nan"), -1.0)),
    ],
)  # fmt: skip
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "tuned.json"
    file.write_text(text)
    with pytest.raises(
        CompileError, match=r"tuned.json: expected a file of schedules that `warploom tune` wrote|is no schedule"
    ):
        compile(TEXT, tuned=file)
    with pytest.raises(CompileError, match=r"tuned.json: "):
        tune_report.tune(parse(TEXT), GPU, file, limit=1)


def test_another_format_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "tuned.json"
    file.write_text('{"format": 7, "devices": {}}')
    with pytest.raises(ScheduleError, match="in format 7, expected 1"):
        Tuned.read(file)


def test_options_ask_for_the_schedule() -> None:
    kernel = compile(TEXT, **Schedule.parse(OTHER).options())  # pyright: ignore[reportArgumentType]
    assert str(kernel.schedule[0]) == OTHER


def test_two_products_are_refused() -> None:
    line = TEXT.split("\n")[1]
    with pytest.raises(ArgumentError, match="one product, got 2"):
        tune_report.schedules(parse(TEXT.replace(line, line + "\n" + line)), "sm_90a")


def test_a_product_beside_an_attention_is_refused() -> None:
    """Fields of a schedule would be for both."""
    asked = AttentionGradient((2, 1, 11, 112, 40, 40), results=("dQ",), cap=5.0)
    with pytest.raises(ArgumentError, match=r"one product, got 2: warp\.matmul, warp\.attention_gradient"):
        tune_report.schedules(parse(asked.mlir), "sm_80")


def test_the_command_lists(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "f.mlir"
    file.write_text(TEXT)
    assert main(["tune", str(file), "--list", "--limit", "3", "--target", "sm_80"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(KEY)
    assert len(lines) == 4
    assert [Schedule.parse(line.strip()) for line in lines[1:]]
    for option in ("--limit", "--top"):
        with pytest.raises(SystemExit):
            main(["tune", str(file), option, "0", "--list"])
        assert f"{option}: expected a number from 1 on, got '0'" in capsys.readouterr().err
    file.write_text(TEXT.replace("f16", "f32"))
    assert main(["tune", str(file), "--list"]) == 1
    assert "f.mlir:2:3: error: no instruction multiplies f32 x f32 with all bits" in capsys.readouterr().err
    assert main(["tune", str(file), "--list", "--target", "sm_1"]) == 1
    assert capsys.readouterr().err.startswith("error: unknown target 'sm_1'; known targets: sm_70")
    assert main(["tune", "f.txt", "--list"]) == 1
    assert "f.txt: expected a file ending in .mlir" in capsys.readouterr().err


def test_what_is_listed_has_the_sizes_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "f.mlir"
    file.write_text(ANY)
    listed = ["tune", str(file), "--list", "--limit", "1"]
    assert main(listed) == 0
    assert ", at " not in capsys.readouterr().out
    assert main([*listed, "--in", "A=random:90x200"]) == 0
    assert ", at 90x200xf16 " in capsys.readouterr().out.split("\n")[0]
    assert main([*listed, "--in", "Q=random:90x200"]) == 1
    assert capsys.readouterr().err.startswith("error: --in: ")


@pytest.mark.parametrize("option", ["--tuned", "--top", "--seed"])
def test_what_only_measuring_uses_is_refused_with_a_list(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    file = tmp_path / "f.mlir"
    file.write_text(TEXT)
    assert main(["tune", str(file), "--list", option, "1"]) == 1
    assert capsys.readouterr().err == f"error: {option}: --list measures nothing; leave out one of them\n"


def test_the_target_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """The search is for the file's own target, another that is asked for is said, one that does not run is refused."""
    monkeypatch.setattr("warploom.runtime.cli.tune_report.gpu", lambda: GPU)
    file, kept = tmp_path / "f.mlir", tmp_path / "tuned.json"
    file.write_text(f"builtin.module attributes {{warp.target = #warp.target<sm_80>}} {{ {TEXT} }}")
    command = ["tune", str(file), "--limit", "2", "--tuned", str(kept)]
    assert main(command) == 0
    assert {d["target"] for d in json.loads(kept.read_text())["devices"].values()} == {"sm_80"}
    assert capsys.readouterr().err == ""
    assert main([*command, "--target", "sm_90a"]) == 0
    assert {d["target"] for d in json.loads(kept.read_text())["devices"].values()} == {"sm_80", "sm_90a"}
    assert all(Tuned.read(kept).best(name, KEY) for name in ("sm_80", "sm_90a"))
    note = f"{file}: note: the module says sm_80; --target compiles it for sm_90a\n"
    assert capsys.readouterr().err == note
    file.write_text(file.read_text().replace("sm_80", "sm_120"))
    assert main(command) == 1
    assert "A GPU (sm_90, driver 13.0) does not run PTX for sm_120; tune for sm_90a" in capsys.readouterr().err


class OtherDevice(FakeBench):
    """A clock by which a device takes what the model says of other constants, and 3 microseconds more."""

    constants = DRAWN._replace(overhead=160.0, stored=3.0, memory=700.0)

    def __init__(self, module: Any, *arguments: object) -> None:
        super().__init__(*arguments)
        self.product = tune_report.product_of(module, "sm_90a")

    def measure(self, schedule: Schedule) -> Measured:
        if schedule.together == 1:
            return Measured(schedule, 1000.0)
        device = replace(target("sm_90a"), sms=78, timing=tuple(self.constants))
        return Measured(schedule, time_of(self.product, schedule, device) / 1000 + 3)


def test_a_device_is_measured_and_its_products_scheduled_by_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The fit is near a clock of other constants, and products that were not measured get the schedules of these."""
    monkeypatch.setattr(tune_report, "Bench", OtherDevice)
    monkeypatch.setattr(tune_report, "gpu", lambda: SMALL)
    file = tmp_path / "small.json"
    assert main(["tune", "--device", "4", "--limit", "7", "--tuned", str(file), "--seed", "3"]) == 0
    said = capsys.readouterr().out
    assert float(said.partition("the model is ")[2].partition(" %")[0]) < 2
    kept = json.loads(file.read_text())["devices"]["A GPU"]
    assert kept["sms"] == 78
    assert kept["timing"][7] < 0.8 * DRAWN.memory
    assert len(kept["products"]) == 4
    device = replace(target("sm_90a"), sms=78, timing=tuple(OtherDevice.constants))
    same, others = 0, 0
    for size in ((4096, 4096, 4096), (256, 8192, 1024)):
        text = tune_report.text_of(*size)
        product = tune_report.product_of(parse(text), "sm_90a")
        chosen = compile(text, tuned=file).schedule[0]
        expected = default_schedule(product, device)
        taken, least = (time_of(product, each, device) for each in (chosen, expected) if each is not None)
        assert taken <= 1.02 * least, (size, chosen, expected)
        same += chosen == expected
        others += chosen != compile(text).schedule[0]
    assert same
    assert others, "the constants change nothing"


def test_devices_that_are_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(tune_report, "gpu", lambda: GPU)
    kept = ["--tuned", str(tmp_path / "tuned.json")]
    for arguments, error in (
        ((), "tune takes a FILE, or --device without one"),
        (("f.mlir", "--device"), "tune takes a FILE, or --device without one"),
        (("--device", "1", "--list"), "--list: --device measures products of its own; leave out one of them"),
        (("--device", "1", "--target", "sm_80"), "--device fits the model of products of warpgroups, which sm_80 has"),
        (("--device", "1", "--limit", "2"), "schedules of warpgroups were measured, a fit takes 24; use --limit"),
    ):
        assert main(["tune", *arguments, *kept]) == 1
        assert error in capsys.readouterr().err
