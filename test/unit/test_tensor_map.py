"""Tensor maps: what they say, what they refuse, and copies into several CTAs of a cluster.

Which bytes a copy moves is held against silicon's in `test_replay.py`.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from placed_maps import KERNEL, PLACES, TENSOR, WANTED, Fields, kernel, placed

from warploom.dialect.isa.tensor_map import SIZE, TensorMapError, TensorMapFields
from warploom.runtime import ArgumentError, Struct, TensorMap, WarploomError, load_ptx
from warploom.runtime.cli.command import main


def run(mask: int = 3, size: int = 512, text: str = "", argument: object = None) -> np.ndarray:
    out = np.full((2, 512), np.nan, np.float16)
    args = [TensorMap(TENSOR, (8, 32), swizzle=64) if argument is None else argument, out]
    load_ptx(text or kernel(mask, size)).launch("k", (2, 1, 1), (32, 1, 1), args, device="interp", max_steps=100_000)
    return out


def test_a_box_goes_to_every_cta_of_the_mask() -> None:
    box = TENSOR[3:11, 16:48]
    for got in run():
        units = got[:256].reshape(8, 4, 8)
        for row in range(8):
            for unit in range(4):
                # the unit's number is changed by bits 7 and 8 of its address: two rows of 64 bytes make 128
                assert np.array_equal(units[row, unit ^ (row // 2 & 3)], box[row, 8 * unit : 8 * unit + 8])


@pytest.mark.parametrize(("type", "bits"), [("b4x16_p64", 4), ("b6x16_p32", 6)])
def test_elements_of_less_than_a_byte_get_padding(type: str, bits: int) -> None:
    """A barrier counts the bytes without padding."""
    packed = np.random.default_rng(bits).integers(0, 256, (40, 32 * bits)).astype(np.uint8)
    text = kernel(3, 128 * bits).replace("{16, 3}", "{128, 3}")
    got = run(text=text, argument=TensorMap(packed, (8, 128), swizzle=128, type=type))
    box = packed[3:11, 16 * bits :].reshape(8, 8, 2 * bits)
    for units in got.view(np.uint8).reshape(2, 8, 8, 16):
        for row in range(4):  # as many as the kernel brings
            assert np.array_equal(units[row, np.arange(8) ^ row, : 2 * bits], box[row])
    with pytest.raises(WarploomError, match=f"a box of {type} begins at a multiple of 128 elements, got 16"):
        run(text=kernel(3, 128 * bits), argument=TensorMap(packed, (8, 128), swizzle=128, type=type))
    with pytest.raises(ArgumentError, match=f"{type}: expected a box of 128 elements, of a tensor of a multiple"):
        TensorMap(packed, (8, 64), swizzle=128, type=type)
    with pytest.raises(ArgumentError, match="expected no interleave, and a swizzle of 128 bytes or none, got 0 and 64"):
        TensorMap(packed, (8, 128), swizzle=64, type=type)


TEXTS = {
    "behind a pointer": "map(FILE, box=8x32, swizzle=64)",
    "second of several in memory": "&{map(zeros:f16:8x8, box=8x8), map(FILE, box = 8x32, swizzle=64)}",
    "in a tuple": "{i32:7, map(zeros:f16:8x8, box=8x8), map(FILE,box=8x32,swizzle=64), hex:" + "00" * 64 + "}",
    "behind a pointer in a struct": "{zeros:f32:3, &map(FILE, box=8x32, swizzle=64), u64:0}",
}
"""Arguments of the command line for some of `PLACES`."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("place", PLACES)
def test_a_map_lies_anywhere(place: str) -> None:
    assert np.array_equal(run(text=placed(place), argument=PLACES[place][2](WANTED))[:, :256], run()[:, :256])


@pytest.mark.parametrize("place", TEXTS)
def test_a_map_lies_anywhere_on_the_command_line(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "in.npy", TENSOR)
    (tmp_path / "k.ptx").write_text(placed(place))
    argument = TEXTS[place].replace("FILE", f"{tmp_path}/in.npy")
    command = ["run", f"{tmp_path}/k.ptx", "--device", "interp", "--grid", "2", "--block", "32", "--arg", argument]
    assert main([*command, "--arg", "nan:f16:2x512", "--out", f"1={tmp_path}/out.npy"]) == 0
    assert np.array_equal(np.load(tmp_path / "out.npy")[:, :256], run()[:, :256])
    assert "40x64xf16" in capsys.readouterr().out


def test_what_a_map_of_the_command_line_stores_to_is_written(tmp_path: Path) -> None:
    stores = (
        "@%first mbarrier.inval.shared::cta.b64 [done]; @%first cp.async.bulk.tensor.2d.global.shared::cta.bulk_group "
    )
    text = kernel().replace("ret;", f"{stores}[%map, {{32, 1}}], [box]; ret;")
    np.save(tmp_path / "in.npy", TENSOR)
    (tmp_path / "k.ptx").write_text(text)
    for parameter, argument in ((".align 64 .b8 map[128]", ""), (".align 64 .b8 map[192]", "{i32:5, ")):
        setup = "mov.b64 %map, map;" if not argument else "mov.b64 %map, map; add.u64 %map, %map, 64;"
        changed = text.replace(".align 64 .b8 map[128]", parameter).replace("mov.b64 %map, map;", setup)
        (tmp_path / "k.ptx").write_text(changed)
        argument += f"map({tmp_path}/in.npy, box=8x32, swizzle=64){'}' if argument else ''}"
        command = ["run", f"{tmp_path}/k.ptx", "--device", "interp", "--grid", "2", "--block", "32", "--arg", argument]
        place = "0.1" if "{" in argument else "0"
        assert main([*command, "--arg", "nan:f16:2x512", "--out", f"{place}={tmp_path}/out.npy"]) == 0
        expected = TENSOR.copy()
        expected[1:9, 32:64] = TENSOR[3:11, 16:48]
        assert np.array_equal(np.load(tmp_path / "out.npy"), expected)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("map(zeros:f16:8x8)", r"a tensor map needs a box, as in map\(zeros:f16:8x8, box=64x64\)"),
        ("map(zeros:f16:8x8, box=8x)", "expected extents for box, got '8x'"),
        ("map(zeros:f16:8x8, box=8x8, swizzle=all)", "expected a number for swizzle, got 'all'"),
        ("map(zeros:f16:8x8, box=8x8, turn=3)", "expected an option of a tensor map .*swizzle.*, got 'turn=3'"),
        ("map(i32:5, box=8x8)", "a tensor map is one of an array, such as .*, got 'i32:5'"),
        ("map(zeros:f16:8x8, box=8x8, swizzle=48)", "argument 0: .*a swizzle of 0, 32, 64 or 128 bytes"),
    ],
)
def test_maps_that_the_command_refuses(
    argument: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "k.ptx").write_text(kernel())
    command = ["run", f"{tmp_path}/k.ptx", "--device", "interp", "--grid", "2", "--block", "32", "--arg", argument]
    assert main([*command, "--arg", "nan:f16:2x512"]) == 1
    assert re.search(message, capsys.readouterr().err)


@pytest.mark.parametrize(
    ("parameter", "argument", "message"),
    [
        (".align 64 .b8 map[64]", WANTED, "a tensor map has 128 bytes, the parameter 64; pass all fields"),
        (".align 64 .b8 map[384]", WANTED, "a tensor map has 128 bytes, the parameter 384; pass all fields"),
        (".align 16 .b8 map[128]", WANTED, "at a multiple of 64 bytes, which .align 16 does not promise; .*align 64"),
        (".u32 map", WANTED, "expected a scalar, got a tensor map; pointers are 64-bit parameters"),
        (".u32 map", (WANTED, WANTED), "expected a scalar, got a struct; pointers are 64-bit parameters"),
        (".align 64 .b8 map[192]", Struct(bytes(192), maps={32: WANTED}), "at a multiple of 64 bytes, got byte 32"),
        (".align 64 .b8 map[192]", Struct(bytes(192), maps={128: WANTED}), "map at byte 128 does not lie in the 192"),
        (".align 64 .b8 map[320]", Struct(Fields(), maps={"n": WANTED}), "'n' has 4 bytes, a tensor map has 128"),
        (".align 64 .b8 map[192]", Struct(bytes(192), maps={0: 5}), "expected a tensor map at 0, got int"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_parameters_that_take_no_map(parameter: str, argument: object, message: str) -> None:
    text = kernel().replace(".align 64 .b8 map[128]", parameter)
    with pytest.raises(ArgumentError, match=message):
        run(text=text, argument=argument)


def test_a_mask_without_a_cta_leaves_it_waiting() -> None:
    with pytest.raises(WarploomError, match=r"deadlock|waits"):
        run(mask=2)


def test_a_mask_beyond_the_cluster_is_refused() -> None:
    with pytest.raises(WarploomError, match=r"expected a mask of the 2 CTAs of the cluster, got 0x4"):
        run(mask=4)


def test_the_driver_s_limits_are_checked_before_it_sees_them() -> None:
    wide = np.zeros((8, 24), np.uint8)
    cases: list[tuple[Any, Any, dict[str, Any], str]] = [
        (TENSOR, (8,), {}, "box: expected 2 numbers for 2 dimensions, got 1"),
        (TENSOR, 8, {}, "expected box to be a sequence of integers, got 8"),
        (TENSOR, (8, 32.0), {}, r"expected box to be a sequence of integers, got \(8, 32.0\)"),
        (TENSOR, (8, 32), {"element_strides": "11"}, "expected element_strides to be a sequence of integers, got '11'"),
        (TENSOR, (257, 32), {}, "box: expected 1 to 256 along dimension 1, got 257"),
        (TENSOR, (8, 4), {}, "a multiple of 16 bytes along the fastest dimension, got 4 elements of 2 bytes; 8"),
        (TENSOR, (8, 64), {"swizzle": 64}, "expected at most 64 bytes along the fastest dimension.*got 128; 32"),
        (TENSOR, (8, 32), {"swizzle": 48}, "a swizzle of 0, 32, 64 or 128 bytes, got 0 and 48"),
        (TENSOR, (8, 32), {"element_strides": (9, 1)}, "steps: expected 1 to 8 along dimension 1, got 9"),
        (TENSOR, (8, 32), {"fill": "one"}, "expected fill to be 'zero' or 'nan', got 'one'"),
        (TENSOR, (8, 32), {"type": "f32"}, "elements of f32 have 4 bytes, those of 40x64xf16 2"),
        (TENSOR, (8, 32), {"type": "s4"}, "a tensor map has no elements of type s4; known: u8"),
        (TENSOR, (8, 32), {"l2_promotion": 32}, "l2_promotion to be 0, 64, 128 or 256, got 32"),
        (TENSOR[:, ::2], (8, 16), {}, "the last dimension of .* must be contiguous, got a stride of 4 bytes"),
        (wide, (4, 16), {}, "strides: expected a multiple of 16 bytes below 2\\^40 along dimension 1, got 24"),
        (wide.view(np.int32), (4, 4), {"fill": "nan"}, "strides"),
        (np.zeros((8, 16), np.int32), (4, 4), {"fill": "nan"}, "only floating-point types are filled .*, got s32"),
    ]  # fmt: skip
    for tensor, box, more, message in cases:
        with pytest.raises(ArgumentError, match=message):
            TensorMap(tensor, box, **more)


def test_the_bytes_are_those_of_the_driver() -> None:
    """A map of rank 2, bf16, rows of 8192 bytes, box 128 x 64, swizzle 128, as the driver of an H200 encodes it."""
    fields = TensorMap(np.zeros((1000, 4096), np.uint16), (128, 64), swizzle=128, type="bf16").fields(0x7F0000001000)
    head = struct.unpack("<16I", fields.encode()[:64])
    assert head[:4] == (0x1000, 0x7F00, 1 << 4 | 10 << 7 | 3 << 13, 8192 >> 4)
    assert head[8:10] == (4095, 999)
    assert (head[13] >> 24, head[14] & 0xFF) == (63, 127)
    assert TensorMapFields.decode(fields.encode()) == fields
    assert fields.moved_bytes == 128 * 128


def test_bytes_that_are_no_map_are_refused() -> None:
    with pytest.raises(TensorMapError, match="expected 128 bytes of a tensor map, got 64"):
        TensorMapFields.decode(bytes(64))
    with pytest.raises(TensorMapError, match="the bytes are no tensor map: their third word is 0xffffffff"):
        TensorMapFields.decode(b"\xff" * SIZE)


def test_interleaved_tensors_are_refused_when_they_are_copied() -> None:
    tensor = np.zeros((4, 40, 8), np.float16)
    text = KERNEL.replace("STORES", "").replace("MASK", "3").replace("BYTES", "512")
    text = text.replace(".2d.", ".3d.").replace("{16, 3}", "{0, 0, 0}")
    box = TensorMap(tensor, (2, 8, 8), interleave=16)
    with pytest.raises(WarploomError, match="copies no interleaved tensors; the map has an interleave of 16 bytes"):
        load_ptx(text).launch("k", (2, 1, 1), (32, 1, 1), [box, np.zeros(8)], device="interp")


@pytest.mark.parametrize("shaped", [False, True])
def test_operands_replace_fields_of_the_map(shaped: bool) -> None:
    """Another tensor, and with its sizes and strides a box that begins at 0. PTX ISA 9.4, 9.7.10.28.5.2."""
    other = np.arange(7 * 48, dtype=np.float16).reshape(7, 48) + 3
    text = kernel().replace(".version 8.6", ".version 9.4").replace("sm_90a", "sm_107a")
    text = text.replace(".param .u64 out)", ".param .u64 out, .param .u64 other)")
    text = text.replace("MASK", "3").replace(".multicast::cluster\n", ".multicast::cluster::32b OVERRIDE\n")
    text = text.replace("mov.b16 %mask, 3;", "mov.b32 %mask, 3; ld.param.u64 %at, [other];").replace(
        "b16 %mask", "b32 %mask"
    )
    words, operands, box = ".override::global_address", "%at, {16, 3}", TENSOR[3:11, 16:48]
    expected = np.zeros((8, 32), np.float16)
    if shaped:
        words += ".override::global_dim_stride"
        operands = "%at, {%n, %m}, {%low}, %high, {0, 0}"
        made = ".reg .b16 %n, %m, %high; .reg .b32 %low; mov.b16 %n, 40; mov.b16 %m, 0x107; mov.b32 %low, 6;"
        text = text.replace("mov.b32 %mask", f"{made} mov.b16 %high, 0; mov.b32 %mask")
        expected[:7] = other[:, :32]
    else:
        other = TENSOR + 5
        expected[:] = box + 5
    text = text.replace("::32b OVERRIDE", f"::32b{words}").replace("[%map, {16, 3}]", f"[%map, {operands}]")
    out = np.full((2, 512), np.nan, np.float16)
    args = [TensorMap(TENSOR, (8, 32)), out, other]
    load_ptx(text).launch("k", (2, 1, 1), (32, 1, 1), args, device="interp", max_steps=100_000)
    for got in out:
        assert np.array_equal(got[:256].reshape(8, 32), expected)


def test_what_replaced_fields_are_refused() -> None:
    text = kernel().replace(".version 8.6", ".version 9.4").replace("sm_90a", "sm_107a")
    text = text.replace(".multicast::cluster\n", ".multicast::cluster.override::global_address\n")
    text = text.replace("[%map, {16, 3}]", "[%map, %at, {16, 3}]").replace(
        "mov.b16 %mask", "mov.b64 %at, 8; mov.b16 %mask"
    )
    with pytest.raises(WarploomError, match="multiple of 16 bytes"):
        run(text=text)
