"""Products of two states of the project, which take turns on one GPU.

    git worktree add ../before COMMIT
    bench/with_gpu.sh python bench/compare_commits.py ../before --json out.json

Each state runs in a process of its own and compiles the same text by its defaults for sm_90a; a third column is this
state for sm_90, by `mma.sync`. Operands are random and the same for all; each result is compared with float64 before
anything is timed, its output poisoned beforehand. A turn is `PER_TURN` launches of one state, with the L2 cache flushed
before each, as in `gemm.py`; a figure is the median of a state's launches, in microseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import epilogue
from gemm import ERROR_LIMIT, HOST_CYCLES, TF32_ERROR, find_torch, parse_size
from gemm_types import KINDS, output
from side_by_side import HERE, package
from sparse import Problem

from warploom.runtime.cuda.launch import FLUSH_BYTES

SIZES = ("512", "1000", "1024", "2048", "4096", "4095", "16x8192x8192")
TYPES = ("tf32", "f64", "s8", "e4m3")
ROWS_CHECKED = 256
PER_TURN = 5

CHILD = """
import json, sys, torch
sys.path.insert(0, sys.argv[1])
from warploom.runtime import compile
flush = torch.empty(int(sys.argv[3]), dtype=torch.int8, device="cuda")
calls = {}
def once(call):
    flush.zero_()
    torch.cuda._sleep(int(sys.argv[4]))
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    call()
    end.record()
    end.synchronize()
    return 1000 * start.elapsed_time(end)
for line in sys.stdin:
    name, asked = json.loads(line)
    if asked is None:
        answer = [once(calls[name]) for _ in range(int(sys.argv[2]))]
    else:
        held = torch.load(asked["operands"])
        args, c, expected = held["ins"], held["out"], held["expected"]
        call = compile(asked["text"], target=asked["target"], tf32=asked["tf32"]).prepare(*args, c)
        call()
        call.wait()
        answer = float((c[: len(expected)].double() - expected).norm() / expected.norm())
        calls[name] = call
        for _ in range(3):
            once(call)
    print(json.dumps(answer), flush=True)
"""


@dataclass(frozen=True)
class Case:
    """A product: its text, what it takes and gives, and the first rows of what float64 gives."""

    name: str
    text: str
    tf32: bool
    limit: float
    operands: dict[str, Any]


class State:
    """A state's process."""

    def __init__(self, path: str, bench: str) -> None:
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        kept |= {
            "PYTHONPATH": os.pathsep.join([path, *filter(None, [kept.get("PYTHONPATH")])]),
            "WARPLOOM_CACHE": "off",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, bench, str(PER_TURN), str(FLUSH_BYTES), str(HOST_CYCLES)],
            env=kept, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def ask(self, name: str, what: dict[str, Any] | None = None) -> Any:
        """What the process answers: the relative error of a case that it is given, or the times of a turn."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([name, what]) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"error: the process of a state ended at {name}")
        return json.loads(answer)


def cases(torch: Any) -> Iterator[Case]:
    """Dense products by size and by type, sparse ones, and one with an epilogue."""
    wanted = [(size, "bf16") for size in SIZES] + [("4096", kind) for kind in TYPES]
    for size, name in wanted:
        (m, n, k), kind = parse_size(size), KINDS[name]
        a, b = kind.draw(torch, (m, k)), kind.draw(torch, (k, n))
        right = b.t().contiguous() if kind.by_columns else b
        out, expected = kind.outputs[0], a[:ROWS_CHECKED].double() @ b.double()
        case = {"ins": [a, right], "out": output(torch, (m, n), out), "expected": expected}
        limit = ERROR_LIMIT[out] + (TF32_ERROR if kind.tf32 else 0)
        yield Case(f"{name}, {size}", kind.text((m, n, k), out, kind.by_columns), kind.tf32, limit, case)
    for name, out in (("bf16", "f32"), ("s8", "i32")):
        problem = Problem.draw(torch, parse_size("8192"), KINDS[name], out, transposed=name == "s8")
        dense, values, metadata, b = problem.operands
        expected = dense[:ROWS_CHECKED].double() @ problem.right.double()
        case = {"ins": [values, metadata, b], "out": output(torch, (8192, 8192), out), "expected": expected}
        yield Case(f"{name} 2:4, 8192", problem.text, False, ERROR_LIMIT[out], case)
    m, n, k = size = parse_size("4096")
    a, b, bias = KINDS["bf16"].draw(torch, (m, k)), KINDS["bf16"].draw(torch, (k, n)), torch.randn(n, device="cuda")
    body, function = epilogue.EPILOGUES["bias, gelu (tanh)"]
    expected = function(torch, a[:ROWS_CHECKED].double() @ b.double() + bias.double(), None)
    residual = torch.zeros(m, n, device="cuda", dtype=torch.bfloat16)  # the text has one, which this body leaves
    case = {"ins": [a, b, bias, residual], "out": output(torch, (m, n), "bf16"), "expected": expected}
    yield Case("bf16 + bias + gelu, 4096", epilogue.text(size, body), False, ERROR_LIMIT["bf16"], case)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="a checkout of the other state")
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch, rows = find_torch("operands"), {}
    with tempfile.TemporaryDirectory() as scratch:
        paths = [package(tree, Path(scratch) / str(i)) for i, tree in enumerate((options.before, HERE))]
        before, now = (State(path, str(HERE / "bench")) for path in paths)
        columns = (("before", before, "sm_90a"), ("now", now, "sm_90a"), ("now, mma.sync", now, "sm_90"))
        print("| | " + " | ".join(column for column, _, _ in columns) + " |\n| --- | ---: | ---: | ---: |")
        for case in cases(torch):
            operands = f"{scratch}/operands"
            torch.save(case.operands, operands)
            times: dict[str, list[float]] = {}
            for column, state, target in columns:
                asked = {"operands": operands, "text": case.text, "target": target, "tf32": case.tf32}
                error = state.ask(f"{case.name}, {target}", asked)
                if not error <= case.limit:
                    sys.exit(f"error: {case.name}, {column}: relative error {error:.2e}")
                times[column] = []
            for _ in range(options.turns):
                for column, state, target in columns:
                    times[column] += state.ask(f"{case.name}, {target}")
            rows[case.name] = {column: statistics.median(microseconds) for column, microseconds in times.items()}
            shown = (f"{value:.1f}" for value in rows[case.name].values())
            print(f"| {case.name} | {' | '.join(shown)} |", flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
