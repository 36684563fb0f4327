"""Mutated PTX: every input runs, or gets one clear error; nothing else escapes, and nothing hangs.

Run as a script for more, of one family if it is named, or of every row: the inputs from one number to another.

    python test/unit/test_fuzz.py 0 20000 tcgen05 --jobs 2
    python test/unit/test_fuzz.py 0 20000 rows

The exit status is 1 if anything else came out of one, which is printed with the number of its input.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
import traceback
from collections import Counter
from functools import cache, partial
from multiprocessing import Pool
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent))

import hopper_kernel
import numpy as np
import pytest
from interpreted import Loaded
from ptx_rows import BY_SPELLING, DECLARATIONS, SYMBOLS, WIDE, instructions
from ptx_rows import operand as fitting
from tensor_cores import Kernel, registers

from warploom.dialect.ptx.instructions import every_row
from warploom.dialect.ptx.parser import parse_ptx
from warploom.dialect.ptx.text.syntax import Function, PtxSyntaxError, Variable
from warploom.runtime import TensorMap
from warploom.runtime.base.errors import WarploomError

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


ROOM = (
    "ld.param.u64 %b64_7, [p]; mov.b64 %b64_1, %b64_7; mov.b64 %b64_6, %b64_7; mov.b32 %b32_7, smem;",
    "mov.u64 %b64_7, smem; mov.b64 %b64_1, 0x0000401000080000; ld.param.u64 %b64_6, [p]; mov.b32 %b32_7, smem;",
    "mov.u32 %b32_0, smem; tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%b32_0], 64;\n"
    "ld.shared.b32 %b32_7, [%b32_0]; mov.u64 %b64_7, smem; mov.b64 %b64_1, 0x0000401000080000; mov.b64 %b64_2, %b64_1;"
    "mov.b32 %b32_4, 0x08100010; mov.b32 %b32_3, %b32_4;",
)
"""What the registers that rows have for addresses hold: global memory, shared memory, columns of tensor memory."""


@cache
def rows() -> dict[str, list[str]]:
    """Statements of all rows, matrix instructions among them, by the first word of the opcode."""
    by_family: dict[str, list[str]] = {}
    for row in every_row():
        by_family.setdefault(row.root, []).extend(instructions(row, row.samples()))
    for form in list(BY_SPELLING.values()):
        words = ", ".join(fitting(every_row()[0], slot, number) for number, slot in enumerate(form.operands))
        by_family.setdefault(form.spelling.partition(".")[0], []).append(f"{form.spelling} {words};")
    return {root: lines for root, lines in by_family.items() if lines}


def row_text(draw: random.Random) -> str:
    """A kernel of one to three statements of one family, or of two, after what gives their addresses a value."""
    families = draw.sample(sorted(rows()), draw.choice((1, 1, 2)))
    body = [draw.choice(rows()[root]) for root in families for _ in range(draw.choice((1, 2)))]
    values = "\n".join(f"mov.b32 %b32_{n}, {draw.randrange(4)};" for n in range(8))
    target = draw.choice(("sm_100a", "sm_100a", "sm_103a", "sm_107a", "sm_110a", "sm_120a", "sm_90a"))
    head = f".version 9.5\n.target {target}\n.address_size 64\n.visible .entry k(.param .u64 p) {{\n"
    setup = draw.choice(ROOM[: 2 if target in ("sm_90a", "sm_120a") else 3])
    return f"{head}{DECLARATIONS}{WIDE}{SYMBOLS}{values}\n{setup}\n" + "\n".join(body) + "\nLABEL:\nret;\n}\n"


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
    """A kernel's text with one to three changes, of those kernels in which an opcode begins so; "rows": a kernel of
    any rows with none to two."""
    draw = random.Random(seed)
    if family == "rows":
        words, counts = WORD.findall(row_text(draw)), (0, 1, 1, 2)
    else:
        words = list(draw.choice([each for each in kernels() if any(word.startswith(family) for word in each)]))
        counts = (1, 1, 2, 3)
    for _ in range(draw.choice(counts)):
        (scramble if seed % 3 == 0 else exchange)(draw, words)
    return "".join(words)


def outcome(text: str) -> str:
    """Parses, decodes and runs one warp of every kernel: "ran", or the kind of error."""
    try:
        module = parse_ptx(text, "fuzz.ptx")
        program = Loaded(module)
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
    match = re.search(r"\.reqntid\s+(\d+)", " ".join(function.directives))
    return min(int(match[1]), 512) if match else 128 if function.name == "k" else 32


@pytest.mark.sampled(16)
@pytest.mark.parametrize("block", range(16))
def test_every_input_runs_or_gets_one_error(block: int) -> None:
    outcomes = Counter(outcome(mutated(seed)) for seed in range(50 * block, 50 * (block + 1)))
    assert EXPECTED >= outcomes.keys() >= EXPECTED - {"ArgumentError"}
    assert Counter(outcome(mutated(seed, "rows")) for seed in range(20 * block, 20 * (block + 1))).keys() <= EXPECTED


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


EXPECTED = {"ran", "ArgumentError", "InterpreterError", "PtxSyntaxError"}
"""What becomes of a mutated text. An argument may no longer be what a parameter takes."""


def tried(seed: int, family: str) -> tuple[int, str]:
    """The outcome of an input, the last lines of what escaped it among them."""
    try:
        return seed, outcome(mutated(seed, family))
    except Exception:  # what escapes is what is looked for
        return seed, traceback.format_exc(limit=-3)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=int)
    parser.add_argument("end", type=int)
    parser.add_argument("family", nargs="?", default="")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so long")
    args = parser.parse_args()
    outcomes, wrong, until = Counter[str](), 0, time.time() + args.seconds
    with Pool(args.jobs) as pool:
        numbers = range(args.first, args.end)
        for seed, what in pool.imap_unordered(partial(tried, family=args.family), numbers, 8):
            outcomes[what if what in EXPECTED else "something else"] += 1
            if what not in EXPECTED:
                wrong += 1
                print(f"input {seed}: {what}", flush=True)
            if time.time() > until:
                break
    print(
        f"{args.family or 'all'}: {outcomes.total()} inputs, "
        + ", ".join(f"{n} {what}" for what, n in outcomes.items())
    )
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
