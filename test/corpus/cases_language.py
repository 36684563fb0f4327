"""Judges of cuda/language.cu."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from corpus.case import Array, Judge, Random, equal, kernels_of, output

case = kernels_of("language")
I32, U32, F32 = np.int32, np.uint32, np.float32
M32 = 0xFFFFFFFF


def _ints(random: Random, shape: Any, low: int = -1000, high: int = 1000) -> Array:
    return random.integers(low, high, shape).astype(I32)


def _s32(x: int) -> int:
    return (x & M32) - ((x & 0x80000000) << 1)


@case(1, 32, sample=True)
def recursion(random: Random) -> tuple[list[Any], Judge]:
    f, a = output(32, U32), output(32, U32)
    numbers = [0, 1]
    while len(numbers) < 11:
        numbers.append(numbers[-1] + numbers[-2])
    rows = [[n + 1, n + 2, 2 * n + 3][i % 3] for i in range(32) for n in [i // 3 % 5]]
    return [f, a], equal((f, [numbers[i % 11] for i in range(32)]), (a, rows))


@case(1, 32)
def mutual_recursion(random: Random) -> tuple[list[Any], Judge]:
    x, out = _ints(random, 32, 0, 20), output(32, I32)
    return [out, x], equal((out, np.where(x % 2 == 0, 2, 1)))


@case(1, 5)
def recursive_quicksort(random: Random) -> tuple[list[Any], Judge]:
    x = _ints(random, (5, 40), 0, 60)
    return [x, 40], equal((x, np.sort(x.copy(), axis=1)))


@case(1, 6)
def n_queens(random: Random) -> tuple[list[Any], Judge]:
    out = output(6, I32)
    return [out], equal((out, [1, 0, 0, 2, 10, 4]))


def _choose(op: int, a: int) -> int:
    quotient = (abs(a) // 5) * (1 if a >= 0 else -1)
    remainder = (abs(a) % 7) * (1 if a >= 0 else -1)
    ways = (a + 1, a * 3, a ^ 0x55, a >> 2, -a, remainder, a | 9, (a & M32).bit_count(), a * a, quotient)
    return ways[op] if op < 10 else 0


@case(1, 48)
def interpreter_loop(random: Random) -> tuple[list[Any], Judge]:
    n = 40
    code, x, out = random.integers(0, 10, n).astype(np.uint8), _ints(random, 48), output(48, I32)
    wanted = []
    for i, a in enumerate(x.tolist()):
        pc = 0
        while pc < n:
            op, u = int(code[(pc + i) % n]), a & M32
            if op == 3:
                pc += a & 1
            elif op == 7:
                a = _choose(a & 15, a)
            elif op < 7:
                a = (a + pc, a * 5 + 1, a ^ a >> 3, 0, ~a, u << 7 | u >> 25, a - i)[op]
            else:
                a ^= 0x1234
            a, pc = _s32(a), pc + 1
        wanted.append(a)
    return [out, code, x, n], equal((out, wanted))


@case(1, 64, sample=True)
def struct_by_value(random: Random) -> tuple[list[Any], Judge]:
    x, out = _ints(random, 50).astype(F32), output(50, F32)
    inner = [struct.pack("<h6xd3b5x", 21, 2.5, 1, 2, 3), struct.pack("<h6xd3b5x", -4, -7.0, 4, -5, 6)]
    scale = [0.5, 2.0, -1.0]
    parts = [struct.pack("<i4x", 50), x, *inner, out, struct.pack("<B3x3f", 6, *scale)]
    i = np.arange(50)
    extra = np.where(i & 1, -7.0, 2.5) + np.array([4, -5, 6])[i % 3] + 21
    return [tuple(parts)], equal((out, x * np.array(scale)[i % 3] + extra))


@case(1, 32)
def cute_like(random: Random) -> tuple[list[Any], Judge]:
    a, b = _ints(random, (3, 4, 5)).astype(F32), _ints(random, (5, 3, 4)).astype(F32)
    c = output((4, 3, 5), F32)
    tensors = []
    for array, steps in ((a, (20, 5, 1)), (b, (4, 1, 12)), (c, (5, 15, 1))):
        tensors += [array, struct.pack("<3i4x3q", 3, 4, 5, *steps)]
    wanted = 2 * a - 3 * b.transpose(1, 2, 0)
    return [(*tensors, struct.pack("<2f", 2, -3))], equal((c, wanted.transpose(1, 0, 2)))


@case(1, 32)
def structs_returned(random: Random) -> tuple[list[Any], Judge]:
    x, out = random.integers(0, 1000, (32, 8)).astype(I32), output((32, 8), I32)
    x[:, :4] = x[:, :4].astype(F32).view(I32)
    bias = struct.pack("<4f4i", 1, 2, 3, 4.5, 77, 8, 9, 10)
    wanted = x.copy()
    for i in range(32):
        wanted[i, :4] = np.roll(x[i, :4], -i)
        wanted[i, 4:] = x[i, :3:-1]
        wanted[i, 7] += i
        wanted[i, 5] ^= 77
    wanted[:, 0] = (wanted[:, 0].view(F32) + F32(4.5)).view(I32)
    return [out, x, bias], equal((out, wanted))


@case(1, 32)
def small_arguments(random: Random) -> tuple[list[Any], Judge]:
    out = output(32, I32)
    half = np.float16(-37.0)
    args = [
        out,
        -5,
        250,
        -300,
        1,
        struct.pack("<b", -9),
        half.tobytes(),
        -(9 << 33),
        1234.75,
        struct.pack("<4b", 1, 2, -3, 4),
    ]
    total = -5 + 500 - 900 + 5 - 63 - 37 - 9 + 1234 + 1 - 2 - 12
    return args, equal((out, total + np.arange(32)))


def _printed() -> str:
    lines = ["hello 100%"]
    for i, v in enumerate((7, 255, 12345)):
        lines.append(f"[{i}] {v:5d}|{v:<5d}|{v:05d}|{v:+d}|{v:x}|{v:#X}|{v:o}|{v}|{'abc'[i]}")
    lines.append("3.141590 -2.500   1.23e+04 1e-07 1E+20 0x1.8p+0")
    lines.append("text and   seven-up, se.")
    lines.append("-5 18446744073709551615 ff -3 -4")
    lines.append("    42|1.00|(nil)")
    return "\n".join(lines) + "\n"


@case(1, 32, printed=_printed)
def prints(random: Random) -> tuple[list[Any], Judge]:
    names = np.frombuffer(b"seven-up\0", np.int8).copy()
    return [np.array([7, 255, 12345] + [0] * 29, I32), names], equal()


def _turns() -> str:
    return "".join(f"block {b} turn {i}\n" for b in range(3) for i in range(2))


@case(3, 64, printed=_turns)
def prints_in_order(random: Random) -> tuple[list[Any], Judge]:
    return [2], equal()


@case(1, 32)
def asserts(random: Random) -> tuple[list[Any], Judge]:
    x, out = _ints(random, 32), output(32, I32)
    return [out, x], equal((out, 2 * x))


@case(1, 8)
def heap_list(random: Random) -> tuple[list[Any], Judge]:
    out, wanted = output(8, I32), []
    for t in range(8):
        total = 0
        for i in reversed(range(5 + t)):
            total = total * 3 + i * i
        wanted.append(total)
    return [out, 5], equal((out, wanted))


@case(2, 64)
def heap_shared(random: Random) -> tuple[list[Any], Judge]:
    x, out = _ints(random, (2, 64)), output((2, 64), I32)
    return [out, x], equal((out, x[:, ::-1]))


@case(1, 16)
def on_the_stack(random: Random) -> tuple[list[Any], Judge]:
    out, wanted = output(16, I32), []
    for t in range(16):
        n = 9 + t % 4
        wanted.append(sum((i * 7 + 3) % n * (t + 1) * (i + 1) for i in range(n)))
    return [out, 9], equal((out, wanted))


@case(1, 32)
def tables(random: Random) -> tuple[list[Any], Judge]:
    numbers, names = [3, 1, 4, 1, 5, 9], ["zero", "one", "twenty-two"]
    out, wanted = output(32, I32), []
    for i in range(32):
        part = numbers if i & 1 else numbers[1:4]
        name = names[i % 3]
        wanted.append(part[i % len(part)] * 10000 + len(name) * 100 + (i & 7) ** 2 + ord(name[i % 3]))
    return [out], equal((out, wanted))


@case(1, 32)
def module_variables(random: Random) -> tuple[list[Any], Judge]:
    out = output(32, I32)
    return [out], equal((out, np.full(32, 5 + sum(range(32)))))


@case(1, 32, sample=True)
def generic_pointers(random: Random) -> tuple[list[Any], Judge]:
    x, out, wanted = _ints(random, 32), output(32, I32), []
    table = [3, 1, 4, 1]
    for i in range(32):
        j = i & 3
        value = (int(x[j]) + 1, int(x[(i + j) % 32]), int(x[j]), table[j])[i % 4]
        wanted.append(value * 2 + (1, 2, 4, 4)[i % 4] * 100000)
    return [out, x], equal((out, wanted))


@case(1, 32)
def unions_and_bits(random: Random) -> tuple[list[Any], Judge]:
    x, out, wanted = random.standard_normal(32).astype(F32), output(64, U32), []
    for i in range(32):
        b = bytearray(x[i].tobytes())
        b[i & 3] ^= 0x5A
        at = 2 * (i >> 2 & 1)
        b[at : at + 2] = ((int.from_bytes(b[at : at + 2], "little") + 77) & 0xFFFF).to_bytes(2, "little")
        u = int.from_bytes(b, "little")
        word = (i & 31) | (-i * 9 & 0x7FF) << 5 | (u >> 9 & 0xFFFF) << 16
        wanted += [u, (word - i * 9) & M32]
    return [out, x], equal((out, np.array(wanted, U32)))


@case(2, 32)
def local_arrays(random: Random) -> tuple[list[Any], Judge]:
    x, out, wanted = _ints(random, 60, 0, 1000), output(64, I32), []
    for i in range(64):
        count = np.bincount((x + i) & 15, minlength=16)
        wanted.append(int(count.argmax()) * 1000 + int(count.max()))
    return [out, x, 60], equal((out, wanted))


@case(1, 64)
def tangled(random: Random) -> tuple[list[Any], Judge]:
    x, out, wanted = _ints(random, 64, 0, 500), output(64, I32), []
    for v in x.tolist():
        n, top = 0, not v & 1
        while True:
            if top:
                v, n = v * 3 + 1, n + 2
                if n > 40:
                    break
            v, n = v >> 1, n + 1
            if v % 5 == 3:
                top = True
            elif v > 10:
                top = not v & 2
            else:
                break
        wanted.append(v * 100 + n)
    return [out, x], equal((out, wanted))


@case(1, 32)
def itoa_and_sort(random: Random) -> tuple[list[Any], Judge]:
    x = random.integers(-(1 << 31), 1 << 31, 32).astype(I32)
    x[:3] = [0, -(1 << 31), 10]
    text = output((32, 12), np.int8)
    wanted = b"".join(str(v).encode().ljust(12, b"\0") for v in x.tolist())
    return [text, x], equal((text, np.frombuffer(wanted, np.int8)))


@case(1, 64)
def clocks(random: Random) -> tuple[list[Any], Judge]:
    out = output((64, 4), np.uint64)
    return [out], equal((out, np.tile([1, 1, 1, 2], (64, 1))))


@case(1, 64, shared=15 * 50)
def carved_memory(random: Random) -> tuple[list[Any], Judge]:
    out, j = output(50, F32), np.arange(50)[::-1]
    return [out, 50], equal((out, j * 4.75))


@case(1, 32)
def cache_hints(random: Random) -> tuple[list[Any], Judge]:
    x, y, out = _ints(random, 32), _ints(random, (32, 4)), output((4, 32), I32)
    return [out, x, y], equal((out, np.stack([21 * x, y[:, 0] + y[:, 3], y[:, 1], y[:, 2]])))
