"""Mutated PTX: every input runs, or gets one clear error; nothing else escapes, and nothing hangs.

Run as a script for more, of one family if it is named: python test/unit/test_fuzz.py 0 20000 tcgen05
"""

from __future__ import annotations

import random
import re
import sys
from collections import Counter
from functools import cache
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent))

import hopper_kernel
import numpy as np
import pytest
from tensor_cores import Kernel, registers

from warploom.dialect.ptx.parser import parse_ptx
from warploom.dialect.ptx.text.syntax import Function, PtxSyntaxError, Variable
from warploom.runtime import TensorMap
from warploom.runtime.base.errors import WarploomError
from warploom.runtime.interp import load

FOLDER = Path(__file__).parent.parent / "data" / "kernels"
WORD = re.compile(r"[%$\w.:]+|\s+|.")
OPCODE = re.compile(r"[a-z]+\.[a-z0-9.:]+")
NUMBER = re.compile(r"-?\d+")
CHARACTERS = "0123456789abcxyz.%{}[]@!-+,;"
STEPS = 3000


KINDS = ("f16 [%r1], %q9, %q9, 0x08100010, 0",
         "f16 [%r1], [%r16], %q9, 0x08100010, %p0", "i8 [%r1], %q9, %q9, 0x08100020, 0",
         "mxf8f6f4.block_scale.block32 [%r1], %q9, %q9, 0x08900000, [%r16], [%r16+4], 0")  # fmt: skip
MOVES = (f"tcgen05.ld.sync.aligned.32x32b.x8.b32 {registers(8)}, [%r2]; tcgen05.wait::ld.sync.aligned;",
         f"tcgen05.st.sync.aligned.16x64b.x4.unpack::16b.b32 [%r2], {registers(4)}; tcgen05.wait::st.sync.aligned;",
         "tcgen05.cp.cta_group::1.32x128b.warpx4 [%r1], %q9; tcgen05.shift.cta_group::1.down [%r1];",
         "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r3], 16;\n"
         "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r4], [%r3];",
         "tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;")  # fmt: skip


def tensor_texts() -> list[str]:
    """Products of several kinds in tensor memory, behind moves of each kind."""
    setup = "add.u32 %r16, %r1, 64; mov.b64 %q9, 0x0000401000080000;"
    return [
        Kernel(np.zeros(4096, np.uint8), [f"tcgen05.mma.cta_group::1.kind::{kind};"], before=[setup, *moves], outputs=8,
               version="8.8").text()
        for kind, moves in zip(KINDS, (MOVES[:2], MOVES[2:3], MOVES[3:4], (*MOVES[4:], MOVES[0])), strict=True)
    ]  # fmt: skip


@cache
def kernels() -> list[list[str]]:
    """The words of each kernel's text; tensor copies, maps, warpgroups, clusters, tensor memory come often."""
    texts = [path.read_text() for path in sorted(FOLDER.glob("*.ptx"))]
    hopper = [hopper_kernel.text(), hopper_kernel.cluster_text(), hopper_kernel.map_text()]
    return [WORD.findall(text) for text in (*texts, *hopper * 3, *tensor_texts() * 2)]


@cache
def pools() -> dict[str, list[str]]:
    """All words, by what they are."""
    every = [word for words in kernels() for word in words if not word.isspace()]
    numbers = [w for w in every if NUMBER.fullmatch(w)] + ["0", "-1", "3", "7", "4294967295", "0x7fffffff"]
    registers, opcodes = ([w for w in every if w[0] == "%"], [w for w in every if OPCODE.fullmatch(w)])
    return {"any": every, "number": numbers, "register": registers, "opcode": opcodes}


def kind_of(word: str) -> str | None:
    if word[0] == "%":
        return "register"
    return "number" if NUMBER.fullmatch(word) else "opcode" if OPCODE.fullmatch(word) else None


def scramble(draw: random.Random, words: list[str]) -> None:
    """Replaces, drops, inserts or exchanges a word, or changes one character."""
    at, other = draw.randrange(len(words)), draw.randrange(len(words))
    match draw.randrange(5):
        case 0:
            words[at] = draw.choice(pools()["any"])
        case 1:
            del words[at]
        case 2:
            words.insert(at, draw.choice(pools()["any"]))
        case 3:
            middle = draw.randrange(len(words[at]))
            words[at] = words[at][:middle] + draw.choice(CHARACTERS) + words[at][middle + 1 :]
        case _:
            words[at], words[other] = words[other], words[at]


def exchange(draw: random.Random, words: list[str]) -> None:
    """Puts another register, opcode or number in the place of one, often one that begins alike."""
    start = draw.randrange(len(words))
    for at in range(start, min(len(words), start + 50)):
        if kind := kind_of(words[at]):
            alike = [w for w in pools()[kind] if w[:3] == words[at][:3]]
            words[at] = draw.choice(alike if alike and draw.random() < 0.6 else pools()[kind])
            return


def mutated(seed: int, family: str = "") -> str:
    """A kernel's text with one to three changes, of those kernels in which an opcode begins so."""
    draw = random.Random(seed)
    words = list(draw.choice([each for each in kernels() if any(word.startswith(family) for word in each)]))
    for _ in range(draw.choice((1, 1, 2, 3))):
        (scramble if seed % 3 == 0 else exchange)(draw, words)
    return "".join(words)


def outcome(text: str) -> str:
    """Parses, decodes and runs one warp of every kernel: "ran", or the kind of error."""
    try:
        module = parse_ptx(text, "fuzz.ptx")
        program = load(module)
        for name, function in module.functions.items():
            if function.entry:
                args = [_argument(p) for p in function.parameters]
                sizes = (2, 1, 1), (_threads(function), 1, 1)
                program.launch(name, *sizes, args, shared=32768, max_steps=STEPS, output=lambda text: None)
    except (WarploomError, PtxSyntaxError) as error:
        one_line = re.fullmatch(r"\S.*", str(error))
        return type(error).__name__ if one_line else f"a message of several lines: {error}"
    return "ran"


def _argument(parameter: Variable) -> TensorMap | np.ndarray | float | int:
    if parameter.count == 128:
        return TensorMap(np.ones((64, 256), np.float16), (64, 64), swizzle=128)
    if parameter.type in ("u64", "b64"):
        return np.zeros(4096, np.uint8)
    return 1.0 if parameter.type[0] == "f" else 16


def _threads(function: Function) -> int:
    """As many as the kernel asks for, a warp if it does not; four where it was written for tensor memory."""
    found = re.search(r"\.reqntid\s+(\d+)", " ".join(function.directives))
    return min(int(found[1]), 512) if found else 128 if function.name == "k" else 32


@pytest.mark.sampled(4)
@pytest.mark.parametrize("block", range(8))
def test_every_input_runs_or_gets_one_error(block: int) -> None:
    found = Counter(outcome(mutated(seed)) for seed in range(100 * block, 100 * (block + 1)))
    assert found.keys() == {"ran", "InterpreterError", "PtxSyntaxError"}


def test_a_million_registers_are_refused() -> None:
    text = ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k() {\n.reg .b32 %r<36424714>;\nret;\n}\n"
    with pytest.raises(PtxSyntaxError, match=r"fuzz.ptx:5:\d+: error: .*36424714 registers"):
        parse_ptx(text, "fuzz.ptx")


def test_a_size_that_is_no_number() -> None:
    text = ".version 8.0\n.target sm_90a\n.address_size 64\n.func f(.param .b8 s[x4]) { ret; }\n"
    with pytest.raises(PtxSyntaxError, match=r"variable 's': expected a size such as \[64\], got '\[x4\]'"):
        parse_ptx(text, "fuzz.ptx")


def test_an_address_size_that_is_none() -> None:
    with pytest.raises(PtxSyntaxError, match=r"expected \.address_size 32 or 64, got '3264'"):
        parse_ptx(".version 8.0\n.target sm_90a\n.address_size 3264\n", "fuzz.ptx")


if __name__ == "__main__":
    first, end = map(int, sys.argv[1:3])
    print(Counter(outcome(mutated(seed, *sys.argv[3:])) for seed in range(first, end)))
