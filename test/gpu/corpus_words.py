"""The corpus on a GPU: judged there, and word for word against the interpreter. Run as a script it prints a table.

`bench/with_gpu.sh python3 test/gpu/corpus_words.py [--workers N] [NAME ...]`. Each source runs in a process of its own,
so that one that faults takes no other with it. Kernels are those of the committed archive; nothing is compiled.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from corpus.case import Case
from corpus.cases import CASES
from corpus.harness import arguments, arrays, launch, load
from corpus.store import ARCHIVE, PACKED, Store

from warploom.dialect.ptx.check.registers import contractions
from warploom.runtime import DeviceUnavailableError, WarploomError
from warploom.runtime.cuda.driver import call, gpu
from warploom.runtime.kernel.module import PtxModule

STACK = 32 << 10
"""Bytes of a thread's stack: recursive kernels take more than the driver gives."""

SECONDS = 60
"""That a process may take."""

STEPS = 3_000_000
"""That the interpreter may take for a case."""

MARK = '={"name"'
"""How an outcome's line begins, behind whatever a kernel has printed."""


@dataclass(frozen=True)
class Outcome:
    """`gpu` is right, wrong, or what failed; `words` says how the interpreter's words compare."""

    name: str
    target: str
    gpu: str
    words: str
    note: str = ""


def compare(case: Case, target: str) -> Outcome | None:
    """A case on both; None if it has no PTX for the target."""
    try:
        module = load(Store(ARCHIVE), case, target)
    except WarploomError as error:
        return Outcome(case.name, target, "not launched", "refused", str(error).splitlines()[0])
    if module is None or not runs(module):
        return None
    if case.cooperative:
        return Outcome(case.name, target, "not launched", "refused", "a cooperative launch")
    theirs, look = arguments(module, case)
    try:
        launch(module, case, theirs, "cuda")
        look()
        verdict = "right"
    except AssertionError as error:
        verdict = f"wrong: {error}"
    except WarploomError as error:
        return Outcome(case.name, target, "failed", "", str(error).splitlines()[0])
    return Outcome(case.name, target, verdict, *_words(module, case, theirs))


def runs(module: PtxModule) -> bool:
    """Whether the GPU here runs PTX for the module's target."""
    return gpu().device.runs(module.target)


def _words(module: PtxModule, case: Case, theirs: list[object]) -> tuple[str, str]:
    ours, _ = arguments(module, case)
    try:
        launch(module, case, ours, "interp", max_steps=STEPS, arch=gpu().device.target)
    except WarploomError as error:
        return "refused", str(error).splitlines()[0]
    pairs = list(zip(arrays(ours), arrays(theirs), strict=True))
    different = sum(int((a.view(f"u{a.dtype.itemsize}") != b.view(f"u{b.dtype.itemsize}")).sum()) for a, b in pairs)
    if not different:
        return "equal", ""
    sums = len(contractions(module.syntax, case.name))
    why = case.differs or (f"{sums} sums of products that ptxas may contract" if sums else "")
    return ("may differ" if why else "differ"), f"{different} words; {why}"


def work(names: list[str], target: str) -> None:
    """What a process does: an outcome for each case of the names, a line each."""
    try:
        device = gpu()
    except DeviceUnavailableError as error:
        print(f"skipped: {error}")
        return
    with device.current():
        limit = device.driver.CUlimit.CU_LIMIT_STACK_SIZE
        call("asking for a larger stack", device.driver.cuCtxSetLimit(limit, STACK))
    for case in CASES:
        if {case.name, case.file} & set(names) and (outcome := compare(case, target)):
            print("=" + json.dumps(asdict(outcome)), flush=True)
            if outcome.gpu == "failed":
                sys.exit("the GPU's context is unusable")


def spawn(names: list[str], target: str) -> list[Outcome]:
    """Runs cases in a process, and in another those that a fault there has left."""
    command = [sys.executable, __file__, "--work", target, *names]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        text, failed = done.stdout, done.returncode != 0
        end = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    except subprocess.TimeoutExpired as error:
        text, failed, end = (error.stdout or b"").decode(), True, f"not done after {SECONDS} s"
    outcomes = [Outcome(**json.loads(line[line.index(MARK) + 1 :])) for line in text.splitlines() if MARK in line]
    if not failed:
        return outcomes
    seen = {outcome.name for outcome in outcomes}
    left = [case.name for case in CASES if {case.name, case.file} & set(names) and case.name not in seen]
    if left and not (outcomes and outcomes[-1].gpu == "failed"):
        outcomes.append(Outcome(left.pop(0), target, "lost", "", end))
    return outcomes + (spawn(left, target) if left else [])


def parts(names: list[str]) -> list[list[str]]:
    """What one process each runs: a source's kernels, eight at a time."""
    by_file: dict[str, list[str]] = {}
    for case in CASES:
        if not names or {case.name, case.file} & set(names):
            by_file.setdefault(case.file, []).append(case.name)
    return [kernels[i : i + 8] for kernels in by_file.values() for i in range(0, len(kernels), 8)]


def main() -> int:
    """Compare every case and print those that are not right and equal, then a table; 1 if a judge or a word objects."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    if args.work:
        work(args.names, args.work)
        return 0
    try:
        print(gpu().device)
    except DeviceUnavailableError as error:
        print(f"skipped: {error}")
        return 0
    start = time.perf_counter()
    jobs = [(part, target) for target in PACKED for part in parts(args.names)]
    with ThreadPoolExecutor(args.workers) as pool:
        outcomes = [outcome for finished in pool.map(lambda job: spawn(*job), jobs) for outcome in finished]
    return report(outcomes, time.perf_counter() - start)


def report(outcomes: list[Outcome], seconds: float) -> int:
    """Prints what is not right and equal, and how many of each kind there are."""
    for o in outcomes:
        if o.gpu != "right" or o.words != "equal":
            print(f"{o.target:7} {o.name:22} GPU {o.gpu:6} words {o.words:10} {o.note}"[:220])
    for target in PACKED:
        mine = [o for o in outcomes if o.target == target]
        verdicts, words = Counter(o.gpu.split(":")[0] for o in mine), Counter(o.words or "none" for o in mine)
        print(f"{target}: {len(mine)} kernels; GPU: {_counts(verdicts)}; words: {_counts(words)}")
    print(f"{seconds:.0f} s")
    return int(any(o.gpu.startswith(("wrong", "lost", "failed")) or o.words == "differ" for o in outcomes))


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in counter.most_common())


if __name__ == "__main__":
    sys.exit(main())
