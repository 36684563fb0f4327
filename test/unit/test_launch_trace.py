"""Traces: what warps do when, in the time of the model."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warploom.dialect.isa.wgmma import Wgmma
from warploom.dialect.ptx.instructions import matrix_form
from warploom.runtime import LaunchTrace, TraceEvent, WarploomError, compile, load_ptx
from warploom.runtime.cli.command import main
from warploom.runtime.interp.watch.timeline import BYTES_PER_CYCLE, LATENCY, TRACED, Pipe, product_cycles, rows

EXAMPLES = Path(__file__).parents[2] / "examples"

TALL = """func.func @product(%A: memref<128x320xf16>, %B: memref<320x128xf16>, %C: memref<128x128xf16>) {
  %zero = arith.constant 0.0 : f16
  linalg.fill ins(%zero : f16) outs(%C : memref<128x128xf16>)
  linalg.matmul ins(%A, %B : memref<128x320xf16>, memref<320x128xf16>) outs(%C : memref<128x128xf16>)
  return
}
"""
STAGES, STEPS = 3, 5


@cache
def specialised() -> LaunchTrace:
    """A product whose copies a warp of its own issues, in a ring of three stages, for five K tiles."""
    kernel = compile(TALL, "sm_90a", cta="128,128,64", warp="64,128", mma="m64n128k16", stages=STAGES)
    arrays = [np.ones(shape, np.float16) for shape in ((128, 320), (320, 128), (128, 128))]
    (trace,) = kernel(*arrays, device="interp", trace=True).traces
    return trace


def of(trace: LaunchTrace, kind: str, test: Callable[[TraceEvent], bool] = lambda _: True) -> list[TraceEvent]:
    return [event for event in trace.of_cta(0) if event.kind == kind and test(event)]


def overlap(first: TraceEvent, second: TraceEvent) -> bool:
    return first.start < second.end and second.start < first.end


# A warp-specialised kernel


def test_copies_and_products_overlap() -> None:
    copies, products = of(specialised(), "tensor copy"), of(specialised(), "product")
    producers, consumers = ({event.warp // 4 for event in events} for events in (copies, products))
    assert producers == {2}
    assert consumers == {0, 1}
    assert sum(c.details["bytes"] for c in copies) == 2 * STEPS * (128 * 64 + 64 * 128)
    overlapping = [c for c in copies if any(overlap(c, p) for p in products)]
    assert len(overlapping) > len(copies) // 2


def test_products_wait_for_their_copies_and_copies_for_free_stages() -> None:
    copies = sorted(of(specialised(), "tensor copy"), key=lambda c: c.start)
    per_step = len(copies) // STEPS
    arrived = [max(c.end for c in copies[per_step * k : per_step * (k + 1)]) for k in range(STEPS)]
    for warp in (0, 4):
        products = of(specialised(), "product", lambda e, w=warp: e.warp == w)
        assert len(products) == STEPS
        assert all(p.start >= at for p, at in zip(products, arrived, strict=True))
        issued = [copies[per_step * k].start for k in range(STAGES, STEPS)]
        assert all(start >= p.end for start, p in zip(issued, products, strict=False))


def test_a_product_of_warpgroups_ends_when_it_is_waited_for() -> None:
    for product in of(specialised(), "product"):
        assert product.name == "wgmma m64n128k16"
        assert product.details["products"] == 4
        assert product.details["busy"] == 4 * 64
        assert product.start + product.details["busy"] <= product.details["done"] <= product.end


def test_a_copy_takes_its_latency_and_its_bytes() -> None:
    copies = sorted(of(specialised(), "tensor copy"), key=lambda c: c.end)
    for before, copy in zip([None, *copies], copies, strict=False):
        least = LATENCY + copy.details["bytes"] // BYTES_PER_CYCLE
        assert copy.end - copy.start >= least
        assert before is None or copy.end - before.end >= copy.details["bytes"] // BYTES_PER_CYCLE


def test_tensor_stores_come_after_the_products() -> None:
    stores = of(specialised(), "store")
    assert sum(s.details["bytes"] for s in stores) == 2 * 128 * 128
    for warp in (0, 4):
        first = min(s.start for s in stores if s.warp == warp)
        assert all(first >= p.details["done"] for p in of(specialised(), "product") if p.warp == warp)


def test_what_a_warp_does_itself_does_not_overlap() -> None:
    for row in rows(specialised().events):
        ordered = sorted(row.events, key=lambda e: e.start)
        assert all(a.end <= b.start for a, b in itertools.pairwise(ordered))


# Kernels of warps


def test_a_pipeline_of_cp_async() -> None:
    kernel = compile((EXAMPLES / "matmul.mlir").read_text(), "sm_80", cta="64,64,32", warp="32,32", stages=3)
    arrays = [np.ones(s, t) for s, t in (((256, 192), np.float16), ((192, 320), np.float16), ((256, 320), np.float32))]
    (trace,) = kernel(*arrays, device="interp", trace=True).traces
    assert len(trace.places) == TRACED
    assert trace.total == 20
    groups = of(trace, "cp.async")
    assert sum(g.details["bytes"] for g in groups) == 2 * 192 * (64 + 64)
    products = of(trace, "product")
    assert sum(p.details["products"] for p in products) == 64 * 64 * 192 // (16 * 8 * 16)
    assert any(overlap(g, p) for g in groups for p in products if g.warp == p.warp)
    assert sum(s.details["bytes"] for s in of(trace, "store")) == 4 * 64 * 64


def launched(body: str, threads: int = 64, *args: object, **options: Any) -> LaunchTrace:
    text = f""".version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p)
{{
    .reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .pred %p<4>; .shared .align 16 .b8 tile[4096]; .shared .align 8 .b64 bar;
{body}
    ret;
}}
"""
    data = np.zeros(4096, np.uint8)
    return load_ptx(text).launch("k", 1, threads, [data, *args], device="interp", trace=True, **options).traces[0]


def test_the_first_at_a_barrier_waits_for_the_last() -> None:
    trace = launched("""
    mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 32; @%p1 bra meet;
    mov.u32 %r2, 1; mov.u32 %r2, 2; mov.u32 %r2, 3; mov.u32 %r2, 4; mov.u32 %r2, 5;
meet: bar.sync 0;""")
    (wait,) = of(trace, "wait")
    assert (wait.warp, wait.name, wait.start, wait.end) == (0, "bar.sync", 4, 9)


def test_a_thread_that_polls_waits_once_for_the_arrival() -> None:
    trace = launched("""
    mov.u32 %r1, %tid.x; mov.u32 %r3, bar; setp.ne.u32 %p1, %r1, 0;
    @!%p1 mbarrier.init.shared.b64 [%r3], 1; bar.sync 0; setp.lt.u32 %p1, %r1, 32; @%p1 bra poll;
    mov.u32 %r2, 1; mov.u32 %r2, 2; mov.u32 %r2, 3; mov.u32 %r2, 4; mov.u32 %r2, 5; mov.u32 %r2, 6;
    setp.ne.u32 %p2, %r1, 32; @!%p2 mbarrier.arrive.shared.b64 _, [%r3]; bra done;
poll: mbarrier.try_wait.parity.shared.b64 %p3, [%r3], 0; @!%p3 bra poll;
done:""")
    (wait,) = of(trace, "wait")
    assert (wait.warp, wait.name) == (0, "mbarrier.try_wait")
    assert wait.end == 7 + 6 + 2  # what warp 1 issues up to its arrival


def test_copies_that_an_mbarrier_is_told_of() -> None:
    trace = launched(
        """
    mov.u32 %r1, %tid.x; mov.u32 %r3, bar; setp.ne.u32 %p1, %r1, 0; mov.u32 %r4, tile; shl.b32 %r5, %r1, 4;
    @!%p1 mbarrier.init.shared.b64 [%r3], 32; bar.sync 0; add.u32 %r4, %r4, %r5;
    ld.param.u64 %rd1, [p]; cp.async.cg.shared.global [%r4], [%rd1], 16;
    cp.async.mbarrier.arrive.noinc.shared.b64 [%r3];
poll: mbarrier.try_wait.parity.shared.b64 %p3, [%r3], 0; @!%p3 bra poll;""",
        threads=32,
    )
    (copy,), (wait,) = of(trace, "cp.async"), of(trace, "wait")
    assert copy.details == {"bytes": 512}
    assert copy.end == copy.start + 1 + 512 // BYTES_PER_CYCLE + LATENCY == wait.end


def test_products_of_every_shape_take_their_share() -> None:
    def cycles(opcode: str) -> int:
        row = matrix_form(opcode)
        assert row is not None
        return product_cycles(row)  # pyright: ignore[reportArgumentType]

    assert cycles("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32") == 6
    assert cycles("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32") == 3
    assert cycles("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32") == 6
    assert cycles("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16") == 128
    assert cycles("wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3") == 128
    assert isinstance(matrix_form("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16"), Wgmma)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=12))
def test_a_unit_does_one_thing_at_a_time(asked: Sequence[tuple[int, int]]) -> None:
    pipe, busy = Pipe(), set[int]()
    for earliest, cycles in asked:
        start = pipe.take(earliest, cycles)
        first = next(t for t in range(earliest, 1000) if busy.isdisjoint(range(t, t + cycles)))
        assert start == first
        busy.update(range(start, start + cycles))


# Files


def test_the_chrome_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = tmp_path / "tall.mlir", tmp_path / "out.json"
    source.write_text(TALL)
    schedule = "cta=128,128,64 warp=64,128 mma=m64n128k16 stages=3"
    assert main(["run", str(source), "--device", "interp", "--schedule", schedule, "--trace", str(out)]) == 0
    assert f"events to {out}, in modelled cycles, of 1 of 1 CTAs" in capsys.readouterr().out
    written = json.loads(out.read_text())
    assert "modelled cycles" in written["otherData"]["time"]
    assert written["otherData"]["launches"] == [
        {"kernel": "product", "grid": [1, 1, 1], "block": [384, 1, 1], "ctas": 1, "traced": 1}
    ]
    events = written["traceEvents"]
    named = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    shown = [e for e in events if e["ph"] == "X"]
    assert {e["cat"] for e in shown} == {"tensor copy", "product", "wait", "store"}
    assert {named[e["pid"], e["tid"]] for e in shown} >= {"warp 0", "warp 0: product", "warp 8: tensor copy"}
    assert all(e["dur"] > 0 and e["ts"] >= 0 and e["args"]["line"] > 0 for e in shown)
    assert [e["args"]["name"] for e in events if e["name"] == "process_name"] == ["product, CTA (0, 0, 0)"]


def test_launches_follow_each_other_and_a_picture_shows_one(tmp_path: Path) -> None:
    out = tmp_path / "out.svg"
    ptx = EXAMPLES / "transpose.ptx"
    arrays = ["--arg", "random:f32:64x64", "--arg", "zeros:f32:64x64"]
    assert main(["run", str(ptx), "--grid", "2,2", "--block", "32,8", *arrays, "--trace", str(out)]) == 0
    words = " ".join(ElementTree.parse(out).getroot().itertext())
    assert "transpose, CTA (0, 0, 0) of 4" in words
    assert "modelled cycles" in words
    assert "warps 0-" in words


def test_where_nothing_happens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "nothing.ptx"
    source.write_text(".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() { ret; }\n")
    for name in ("out.svg", "out.json"):
        assert main(["run", str(source), "--grid", "1", "--block", "32", "--trace", str(tmp_path / name)]) == 0
    assert json.loads((tmp_path / "out.json").read_text())["otherData"]["launches"][0]["kernel"] == "k"
    options = ["--in", "A=random:0x8", "--in", "B=random:8x16", "--in", "C=zeros:0x16", "--target", "sm_80"]
    assert main(["run", str(EXAMPLES / "dynamic_matmul.mlir"), *options, "--trace", str(tmp_path / "empty.svg")]) == 1
    assert "nothing was launched, so there is nothing to draw" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("out.txt", "--trace out.txt: expected a file that ends in .json (Chrome trace) or .svg (picture)"),
        ("/nowhere/out.json", "/nowhere/out.json: there is no folder /nowhere"),
    ],
)
def test_paths_that_are_refused(path: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(EXAMPLES / "matmul.mlir"), "--trace", path]) == 1
    assert capsys.readouterr().err == f"error: {message}\n"


def test_traces_are_of_the_interpreter(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "trace.json"
    folder.mkdir()
    assert main(["run", str(EXAMPLES / "matmul.mlir"), "--trace", str(folder)]) == 1
    assert main(["run", str(EXAMPLES / "matmul.mlir"), "--device", "cuda", "--trace", "out.json"]) == 1
    shown = capsys.readouterr().err
    assert "this is a folder" in shown
    assert "--trace shows what the interpreter executes" in shown
    kernel = compile((EXAMPLES / "matmul.mlir").read_text(), "sm_80")
    with pytest.raises(WarploomError, match="a call with every argument returns a trace; pass"):
        kernel(np.ones((256, 192), np.float16), np.ones((192, 320), np.float16), trace=True)
