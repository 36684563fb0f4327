"""Products on a GPU, by how A and B lie: the default, the same with operands in shared memory alone (`in_registers =
none`: a launch transposes first tf32 and bytes that do not lie along K), and the library, which take turns.

    bench/with_gpu.sh python bench/operand_layouts.py --sizes 4096 2048 --types tf32 e4m3 s8 --json out.json
    bench/with_gpu.sh python bench/operand_layouts.py --sizes 1024 --batch 16 --types bf16 --out bf16

Method as in `gemm.py`. cuBLAS takes floats as they lie. cuBLASLt takes bytes only where both lie along K, so there it
is timed on operands that lie so, without the transposing that it would need. With `--sweep` there are more schedules.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gemm import ERROR_LIMIT, TF32_ERROR, Timer, find_torch, parse_size, relative_error
from gemm_types import KINDS, Kind, output
from shapes import alternating

from warploom.runtime import CompileError, compile

LIES = ("A B", "A Bt", "At B", "At Bt")
PLAIN = {"in_registers": "none"}


def measure(
    torch: Any,
    timer: Timer,
    size: tuple[int, int, int],
    kind: Kind,
    out: str,
    lies: str,
    schedules: Sequence[dict[str, Any]],
    batch: int,
) -> Iterator[tuple[str, float]]:
    """Our schedules and the library, with their times in microseconds; checked first."""
    (m, n, k), outer = size, (batch,) if batch > 1 else ()
    at, bt = (name.endswith("t") for name in lies.split())
    a, b = kind.draw(torch, (*outer, m, k)), kind.draw(torch, (*outer, k, n))
    a_held, b_held = a.mT.contiguous() if at else a, b.mT.contiguous() if bt else b
    calls, names = [], list[str]()
    for fields in schedules:
        c, text = output(torch, (*outer, m, n), out), kind.text(size, out, bt, a_transposed=at, batch=batch)
        try:
            kernel = compile(text, target="sm_90a", tf32=kind.tf32, **{**kind.fields, **fields})
        except CompileError as error:
            print(f"{size}, {lies}, {fields}: {error}", file=sys.stderr)
            continue
        call = kernel.prepare(a_held, b_held, c)
        call()
        call.wait()
        if not (error := relative_error(torch, a, b, c)) <= ERROR_LIMIT[out] + (TF32_ERROR if kind.tf32 else 0):
            raise SystemExit(f"{size}, {lies}, {fields}: relative error {error:.2e}")
        calls.append(call)
        names.append(str(next(schedule for schedule in reversed(kernel.schedule) if schedule is not None)))
    a_peer, b_peer = (a, b) if kind.by_columns else (a_held.mT if at else a, b_held.mT if bt else b)
    calls.append(kind.peer(torch, a_peer, b_peer, b.mT.contiguous(), out))
    yield from zip([*names, kind.peer_name], (1000 * ms for ms in alternating(timer, calls)), strict=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=parse_size, default=[(4096,) * 3])
    parser.add_argument("--types", nargs="+", default=["tf32", "e4m3", "s8"], choices=KINDS)
    parser.add_argument("--lies", nargs="+", default=LIES, choices=LIES)
    parser.add_argument("--out", help="element type of C where the type has it; its first by default")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--sweep", action="append", default=[], metavar="'KEY=VALUE KEY=VALUE'")
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch = find_torch("cuBLAS and for events")
    timer, rows = Timer(torch, options.repeats), list[dict[str, Any]]()
    schedules = [{}, PLAIN, *(dict(pair.split("=", 1) for pair in words.split()) for words in options.sweep)]
    print(f"| type | size | operands | default | `in_registers=none` | library | more |\n|{' --- |' * 7}")
    for name in options.types:
        out = options.out if options.out in KINDS[name].outputs else KINDS[name].outputs[0]
        for size in options.sizes:
            for lies in options.lies:
                measured = list(measure(torch, timer, size, KINDS[name], out, lies, schedules, options.batch))
                (_, ours), (_, plain), *more, (_, peer) = measured
                times = " | ".join(f"{time:.1f}" for time in (ours, plain, peer))
                shown = "x".join(map(str, size if options.batch == 1 else (options.batch, *size)))
                label = f"{name} | {shown} | {lies}"
                print(f"| {label} | {times} | {', '.join(f'{time:.1f}' for _, time in more)} |", flush=True)
                rows.append({"type": name, "size": shown, "lies": lies, "microseconds": measured})
    if options.json is not None:
        options.json.write_text(json.dumps({"device": torch.cuda.get_device_name(0), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
