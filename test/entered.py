"""Which production functions a piece of work enters: how much of the code one has to know to follow it.

    python test/entered.py                  # every task: files, functions and their lines
    python test/entered.py "check one mma"  # one task, and the files that it enters

Each task runs in a process of its own under a trace function. A named function is entered when it is called, a file
when one of its functions is. What runs while a module is imported does not count, nor do lambdas and comprehensions.
The lines of a function go from its `def` to its last statement.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FrameType

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "warploom"
"""Where Python finds the production code: links to the folders of the checkout."""

ROOMS = tuple(f"{PACKAGE / folder}{os.sep}" for folder in ("dialect", "passes", "runtime"))

RECORDS = ("warploom.passes.", "warploom.dialect.schedule.")
"""Where records that describe a product are defined; `passes.to_ptx` has records of one thread's instructions."""


@dataclass(frozen=True)
class Entered:
    """What a task enters: files by their path in the checkout, the number of functions, their lines, and the records
    of which instances are made, by name."""

    files: tuple[str, ...]
    functions: int
    lines: int
    records: tuple[str, ...]


def _compile(target: str) -> None:
    from warploom.runtime import compile

    compile(_product(4096 if target == "sm_90a" else 100), target, cache=False)


def _product(size: int) -> str:
    a, c = f"memref<{size}x{size}xbf16>", f"memref<{size}x{size}xf32>"
    return f"""func.func @f(%A: {a}, %B: {a}, %C: {c}) {{
  linalg.matmul ins(%A, %B : {a}, {a}) outs(%C : {c})
  return
}}"""


def _interpret() -> None:
    import ml_dtypes
    import numpy as np

    from warploom.runtime import compile

    a, c = np.ones((100, 100), ml_dtypes.bfloat16), np.zeros((100, 100), np.float32)
    compile(_product(100), "sm_80", cache=False)(a, a, c, device="interp")
    assert (c == 100).all()


def _check() -> None:
    from warploom.runtime import check_ptx

    text = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k() {
  .reg .b32 %r<8>; .reg .f32 %f<4>;
  mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, %r3}, {%r4, %r5},
    {%f0, %f1, %f2, %f3};
}
"""
    assert not check_ptx(text)


def _attention() -> None:
    from warploom.runtime import compile

    compile(ROOT / "examples" / "attention.mlir", "sm_80", cache=False)


def _torch() -> None:
    import torch

    from warploom.runtime import torch_backend

    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32)).bfloat16()
    with torch.no_grad():
        torch.compile(model, backend=torch_backend)(torch.randn(8, 32).bfloat16())


TASKS: Mapping[str, Callable[[], None]] = {
    "compile a product, sm_80": lambda: _compile("sm_80"),
    "compile a product, sm_90a": lambda: _compile("sm_90a"),
    "compile and interpret": _interpret,
    "check one mma": _check,
    "compile attention": _attention,
    "torch.compile of two layers, with run": _torch,
}


class Hook:
    """A trace function that collects the code of functions that are called, and the records that are made.

    Python calls it where a function begins, and where a module that is imported ends: no lines, no functions of C.
    """

    def __init__(self) -> None:
        self.codes, self.records, self._importing = set[CodeType](), set[type](), 0

    def __call__(self, frame: FrameType, event: str, _: object) -> Hook | None:
        code = frame.f_code
        if code.co_name == "<module>":
            frame.f_trace_lines = False
            self._importing += {"call": 1, "return": -1}.get(event, 0)
            return self
        if not self._importing:
            self.codes.add(code)
            if code.co_filename == "<string>" and code.co_name in ("__init__", "__new__"):
                made = frame.f_locals.get("self", frame.f_locals.get("_cls"))
                self.records.add(made if isinstance(made, type) else type(made))
        return None

    def entered(self) -> Entered:
        functions = [code for code in self.codes if code.co_filename.startswith(ROOMS) and _is_function(code)]
        files = sorted({str(Path(code.co_filename).relative_to(PACKAGE)) for code in functions})
        records = sorted({f"{one.__module__}.{one.__qualname__}" for one in self.records if _describes(one)})
        return Entered(tuple(files), len(functions), sum(map(_lines, functions)), tuple(records))


def _is_function(code: CodeType) -> bool:
    """Whether code is that of a function with a name; no class body, lambda or comprehension."""
    return bool(code.co_flags & inspect.CO_OPTIMIZED) and not code.co_name.startswith("<")


def _lines(code: CodeType) -> int:
    nested = [inner for inner in code.co_consts if isinstance(inner, CodeType)]
    last = max((line for one in (code, *nested) for *_, line in one.co_lines() if line), default=code.co_firstlineno)
    return last - code.co_firstlineno + 1


def _describes(one: type) -> bool:
    """Whether a record says something of a product: nothing of xDSL's, such as a pass, and no instruction's."""
    place = f"{one.__module__}."
    record = is_dataclass(one) or hasattr(one, "_fields")
    apart = any(base.__module__.startswith("xdsl.") for base in one.__mro__)
    return record and place.startswith(RECORDS) and not place.startswith("warploom.passes.to_ptx.") and not apart


@cache
def entered(task: str) -> Entered:
    """What a task enters, measured in a process of its own."""
    path = os.pathsep.join(filter(None, (str(PACKAGE.parent), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"WARPLOOM_CORES": "1", "WARPLOOM_CACHE": "off", "PYTHONPATH": path}
    command = [sys.executable, __file__, "--measure", task]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if run.returncode:
        raise RuntimeError(f"{task}: {run.stderr}")
    counts = json.loads(run.stdout.splitlines()[-1])
    if not counts["files"]:
        raise RuntimeError(f"{task}: no file of {PACKAGE} was entered")
    return Entered(tuple(counts["files"]), counts["functions"], counts["lines"], tuple(counts["records"]))


def _measure(task: str) -> None:
    hook = Hook()
    sys.settrace(hook)
    try:
        TASKS[task]()
    finally:
        sys.settrace(None)
    print(json.dumps(vars(hook.entered())))


def main() -> None:
    if sys.argv[1:2] == ["--measure"]:
        _measure(sys.argv[2])
        return
    for task in sys.argv[1:] or TASKS:
        counts = entered(task)
        print(f"{task}: {len(counts.files)} files, {counts.functions} functions, {counts.lines} lines")
        if sys.argv[1:]:
            print(*counts.files, "records:", *counts.records, sep="\n  ")


if __name__ == "__main__":
    main()
