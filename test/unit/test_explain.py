"""`warploom explain`: the fields of matrix descriptors and tensor maps, from numbers, digits and files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from warploom.runtime import ArgumentError, MatrixDescriptor, TensorMap, explain
from warploom.runtime.cli.command import main

MAP = TensorMap(np.zeros((1000, 4096), np.uint16), (128, 64), swizzle=128, type="bf16").fields(0x7F0000001000).encode()


def test_a_descriptor_with_a_swizzle(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "0x4000004000010000"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "matrix descriptor 0x4000004000010000"
    assert out[1].split() == ["13:0", "start", "address", "0x0"]
    assert out[3].split() == ["45:32", "stride", "offset", "1024", "bytes"]
    assert "8 rows of 128 bytes, 1024 bytes in all; bits 9:7 of the address change bits 6:4" in out[6]
    assert "K-major: the next 8 rows of M or N after 1024 bytes" in out[7]


def test_a_descriptor_without_a_swizzle_and_one_beside_its_pattern() -> None:
    plain = explain(MatrixDescriptor(0x100, 128, 256).encode())
    assert "K-major: the next 16 bytes along K after 128 bytes, the next 8 rows of M or N after 256" in plain
    assert "MN-major: the next 16 bytes along M or N after 256, the next 8 of K after 128" in plain
    message = explain(MatrixDescriptor(0x80, 16, 512, 64).encode().to_bytes(8, "little"))
    assert (
        "the matrix begins in row 1 of it; expected an address that is a multiple of 512, or a base offset" in message
    )
    assert "inside the pattern" not in explain(MatrixDescriptor(0x80, 16, 512, 64, 5).encode().to_bytes(8, "little"))


def test_a_tensor_map_from_bytes_digits_words_and_files(tmp_path: Path) -> None:
    told = explain(MAP)
    for line in (
        "tensor map of 2 dimensions, fastest first", "  address    0x7f0000001000", "  elements   bf16, 2 bytes",
        "  sizes      4096 x 1000", "  strides    8192 bytes", "  box        64 x 128", "  swizzle    128 bytes",
        "  moves      16384 bytes: what an mbarrier is to expect",
    ):  # fmt: skip
        assert line in told.splitlines()
    words = " ".join(f"{int.from_bytes(MAP[i : i + 4], 'little'):#010x}" for i in range(0, 128, 4))
    assert explain(MAP.hex()) == explain(words) == told
    for name, data in (("map.bin", MAP), ("map.txt", f"{words}\n".encode())):
        (tmp_path / name).write_bytes(data)
        assert explain(str(tmp_path / name)) == told


def test_bits_of_a_map_that_are_not_known_are_told() -> None:
    changed = MAP[:124] + b"\1" + MAP[125:]
    assert "words with bits that are not known here: 31 (0x00000001)" in explain(changed)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("0x4000", "bits 0x4000 of the matrix descriptor 0x0000000000004000 mean nothing"),
        ("0x10000000000000000", "expected a matrix descriptor of 64 bits"),
        ("nothing", "expected a number, 256 hexadecimal digits or a file, got 'nothing'"),
        ("ff" * 128, "the bytes are no tensor map"),
        (b"123", "expected 8 bytes of a matrix descriptor or 128 of a tensor map, got 3"),
    ],
)
def test_what_is_neither_is_refused(value: str | bytes, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        explain(value)


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    for data in (b"what?", b"\xff\xfe"):
        (tmp_path / "other").write_bytes(data)
        with pytest.raises(ArgumentError, match=r"expected 8 bytes|neither 8 nor 128 bytes"):
            explain(str(tmp_path / "other"))
