"""How `warploom-opt` runs passes: it verifies, prints, times and counts what they do, compares diagnostics with those
that a file expects, and writes reproducers.

The options have the names that MLIR's driver gives them, and what they print looks as there.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import StringIO
from typing import NamedTuple

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.printer import Printer
from xdsl.utils.arg_spec import ArgSpec
from xdsl.utils.exceptions import MultipleSpansParseError, ParseError

from .diagnostics import CHOSEN, LocatedError, is_warning, remarks, verify
from .universe import WARPLOOM_UNIVERSE

PRINTED = ("mlir_print_ir_before", "mlir_print_ir_after")
"""Options that take names of passes."""

OPTIONS: dict[str, dict[str, object]] = {
    "--pass-pipeline": {"metavar": "PIPELINE", "help": "Passes as 'builtin.module(a,b{option=1})', in place of -p"},
    "--transform": {
        "metavar": "FILE",
        "help": "Apply the strategy of a file, written in the dialect transform: before the passes, or where they do",
    },
    "--full-conversion": {
        "action": "store_true",
        "help": "With --allow-unregistered-dialect, make an operation that is not lowered an error, not a remark",
    },
    "--verify-each": {
        "nargs": "?",
        "const": "true",
        "default": "true",
        "choices": ("true", "false", "1", "0"),
        "help": "Verify the module after each pass (the default), or only before the first and after the last",
    },
    "--mlir-print-ir-before": {"metavar": "PASSES", "help": "Print the IR before these passes, on stderr"},
    "--mlir-print-ir-after": {"metavar": "PASSES", "help": "Print the IR after these passes, on stderr"},
    "--mlir-print-ir-before-all": {"action": "store_true", "help": "Print the IR before each pass, on stderr"},
    "--mlir-print-ir-after-all": {"action": "store_true", "help": "Print the IR after each pass, on stderr"},
    "--mlir-print-ir-after-change": {"action": "store_true", "help": "Print it after a pass only where it changed"},
    "--mlir-print-ir-after-failure": {"action": "store_true", "help": "Print it after a pass that fails, on stderr"},
    "--mlir-pass-pipeline-crash-reproducer": {
        "metavar": "FILE",
        "help": "Where a pass fails, write the IR before the first pass, and the pipeline, to a file",
    },
    "--mlir-pass-pipeline-local-reproducer": {
        "action": "store_true",
        "help": "Write the IR before the pass that fails, and that pass alone",
    },
    "--run-reproducer": {"action": "store_true", "help": "Run the pipeline that a reproducer has in it"},
    "--mlir-timing": {"action": "store_true", "help": "Print how long each step took, on stderr"},
    "--mlir-pass-statistics": {"action": "store_true", "help": "Print how often each pattern was applied, on stderr"},
}
"""The options of the driver that say how passes are run, as `argparse` takes them."""


class UsageError(Exception):
    """The command line names something that does not exist; exit code 2."""


class PipelineStep(NamedTuple):
    """A pass, and the composite pass that it was expanded from, if any."""

    one: ModulePass
    of: str

    @property
    def text(self) -> str:
        """The pass with its options, as a pipeline has it."""
        return str(self.one.pipeline_pass_spec())

    @property
    def title(self) -> str:
        return f"{type(self.one).__name__} ({self.one.name})"


def with_strategy(steps: list[PipelineStep], file: str) -> list[PipelineStep]:
    """A pipeline with the strategy of a file. It replaces the step for strategies of modules, or becomes the first
    step."""
    from .pipeline import STRATEGY

    one = WARPLOOM_UNIVERSE.all_passes[STRATEGY]().from_pass_spec(ArgSpec(STRATEGY, {"file": (file,)}))
    if one.name not in (step.one.name for step in steps):
        return [PipelineStep(one, ""), *steps]
    return [step._replace(one=one) if step.one.name == one.name else step for step in steps]


@dataclass
class Timer:
    """Seconds by step, each a path of names: ("warploom", "warp-tile")."""

    seconds: dict[tuple[str, ...], float] = field(default_factory=dict[tuple[str, ...], float])

    @contextmanager
    def measure(self, *path: str) -> Generator[None]:
        """Adds the time that the context takes to the entry of a path."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[path] = self.seconds.get(path, 0.0) + time.perf_counter() - start

    def report(self) -> str:
        """The steps as a tree: seconds, part of the total, name."""
        total = sum(self.seconds.values())
        every = dict(self.seconds)
        for path, seconds in self.seconds.items():
            for length in range(1, len(path)):
                every[path[:length]] = every.get(path[:length], 0.0) + seconds
        first: dict[tuple[str, ...], int] = {}
        for number, path in enumerate(self.seconds):
            for length in range(1, len(path) + 1):
                first.setdefault(path[:length], number)
        lines = [
            _ruler("Execution time report"),
            f"  Total Execution Time: {total:.4f} seconds\n\n  ----Wall Time----  ----Name----",
        ]
        for path in sorted(every, key=lambda path: [first[path[: n + 1]] for n in range(len(path))]):
            part = 100 * every[path] / (total or 1)
            lines.append(f"  {every[path]:8.4f} ({part:5.1f}%)  {'  ' * (len(path) - 1)}{path[-1]}")
        return "\n".join([*lines, f"  {total:8.4f} (100.0%)  Total"])


def _ruler(title: str) -> str:
    line = f"==={'-' * 73}==="
    return f"{line}\n{f'... {title} ...'.center(len(line)).rstrip()}\n{line}"


@dataclass
class Runner:
    """Runs steps on modules, one after another, as the options of a command line say."""

    steps: tuple[PipelineStep, ...]
    args: argparse.Namespace
    timer: Timer = field(default_factory=Timer)
    applied: dict[str, Counter[str]] = field(default_factory=dict[str, "Counter[str]"])
    """How often each pattern was applied, by pass."""

    @property
    def _reproducer(self) -> str | None:
        """The file that a reproducer is written to."""
        return self.args.mlir_pass_pipeline_crash_reproducer

    def _names(self, when: str, step: PipelineStep) -> bool:
        """Whether options ask for the IR "before", or "after", a step, by the name of its pass or of all."""
        every, names = (getattr(self.args, f"mlir_print_ir_{when}{of}") for of in ("_all", ""))
        return every or step.one.name in (names or "").split(",")

    def apply(self, ctx: Context, module: ModuleOp) -> None:
        """Runs all steps on a module in place; raises what one of them raises, having written a reproducer."""
        local, if_changed = self.args.mlir_pass_pipeline_local_reproducer, self.args.mlir_print_ir_after_change
        start = module.clone() if self._reproducer and not local else None
        if not self.args.disable_verify:
            with self.timer.measure("verify"):
                verify(module)
        for number, step in enumerate(self.steps):
            before = module.clone() if self._reproducer and local else start
            if self._names("before", step):
                self._dump("Before", step, module)
            was = _text(module) if if_changed else ""
            try:
                self._run(step, ctx, module, number + 1 == len(self.steps))
            except Exception:
                if self.args.mlir_print_ir_after_failure:
                    self._dump("After", step, module, " Failed")
                if before is not None:
                    self._reproduce(before, (step,) if local else self.steps)
                raise
            wanted = self._names("after", step) or (if_changed and not self.args.mlir_print_ir_after)
            changed = not if_changed or _text(module) != was
            if (wanted and changed) or (self.args.print_between_passes and number + 1 < len(self.steps)):
                self._dump("After", step, module)

    def _run(self, step: PipelineStep, ctx: Context, module: ModuleOp, last: bool) -> None:
        from .patterns import counted

        path = (step.of, step.one.name) if step.of else (step.one.name,)
        counts = self.applied.setdefault(step.one.name, Counter())
        start = time.perf_counter()
        with self.timer.measure(*path), counted(counts):
            step.one.apply(ctx, module)
        if self.args.time_passes:
            print(f"// Pass {step.one.name} took {time.perf_counter() - start:.6f} seconds", file=sys.stderr)
        if not self.args.disable_verify and (last or self.args.verify_each in ("true", "1")):
            with self.timer.measure(*path, "(verify)"):
                verify(module)

    def _dump(self, when: str, step: PipelineStep, module: ModuleOp, how: str = "") -> None:
        print(f"// -----// IR Dump {when} {step.title}{how} //----- //\n{_text(module)}\n\n", file=sys.stderr)

    def _reproduce(self, module: ModuleOp, steps: tuple[PipelineStep, ...]) -> None:
        """Writes the module and a pipeline as MLIR's driver does, which `--run-reproducer` runs."""
        path = self._reproducer or ""
        with open(path, "w", encoding="utf-8") as file:
            file.write(_text(module) + "\n" + reproducer_of(",".join(step.text for step in steps)))
        print(f"// wrote {path}; warploom-opt --run-reproducer {path} runs it", file=sys.stderr)

    def statistics(self) -> str:
        """How often each pattern was applied, by pass."""
        lines = [_ruler("Pass statistics report")]
        for name in dict.fromkeys(step.one.name for step in self.steps):
            counts = self.applied.get(name, Counter())
            lines.append(f"'{name}'")
            lines += [f"  (S) {count:5} {pattern}" for pattern, count in sorted(counts.items())]
        return "\n".join(lines)


def _text(module: ModuleOp) -> str:
    out = StringIO()
    Printer(out).print_op(module)
    return out.getvalue()


# Pipelines as text: `builtin.module(...)`, and in a reproducer.

_ANCHOR = re.compile(r"\s*(?:any|[a-z_]+(?:\.[a-z_]+)+)\(")


def passes_of(pipeline: str) -> str:
    """The passes of `builtin.module(a,func.func(b{x=1}),c)`, as `-p` takes them.

    Passes here run on modules and find the operations that they are for; an anchor within the module says no more.
    Raises UsageError for a pipeline that is not of that form.
    """
    text = pipeline.strip()
    if not text.startswith("builtin.module(") or not text.endswith(")"):
        raise UsageError(f"--pass-pipeline: expected 'builtin.module(...)', got '{pipeline}'")
    out, depth, at = "", 0, len("builtin.module(")
    while at < len(text) - 1:
        if text[at] == "{":
            end = text.find("}", at) + 1
            if not end:
                break
            out, at = out + text[at:end], end
        elif (anchor := _ANCHOR.match(text, at)) and out[-1:] in ("", ","):
            depth, at = depth + 1, anchor.end()
        elif text[at] == ")" and depth:
            depth, at = depth - 1, at + 1
        elif text[at].isspace():
            at += 1
        elif text[at] in "()":
            break
        else:
            out, at = out + text[at], at + 1
    if depth or at < len(text) - 1:
        raise UsageError(f"--pass-pipeline: expected balanced brackets, got '{pipeline}'")
    return out


def reproducer_of(passes: str) -> str:
    """The pipeline of a reproducer, behind its module."""
    from ..dialect.ptx.instruction import quoted

    pipeline = quoted(f"builtin.module({passes})")
    fields = f"pipeline: {pipeline},\n      disable_threading: true,\n      verify_each: true"
    return f"{{-#\n  external_resources: {{\n    mlir_reproducer: {{\n      {fields}\n    }}\n  }}\n#-}}\n"


def pipeline_in(text: str) -> str | None:
    """The pipeline of a reproducer, MLIR's or ours; None where there is none."""
    match = re.search(r'mlir_reproducer\s*:\s*\{[^}]*?pipeline\s*:\s*"((?:[^"\\]|\\.)*)"', text, re.DOTALL)
    return None if match is None else re.sub(r"\\(.)", r"\1", match[1])


# Diagnostics of a file: what passes said of it, and what its comments expect.


class LocatedMessage(NamedTuple):
    """A diagnostic: its kind ("error", "warning", "remark" or "note"), its text, and its place, where it has one."""

    kind: str
    message: str
    file: str = ""
    line: int = 0
    column: int = 0

    @staticmethod
    def of(kind: str, location: str, message: str) -> LocatedMessage:
        """A diagnostic at "file:line:col"."""
        file, line, column = location.rsplit(":", 2)
        return LocatedMessage(kind, message, file, int(line), int(column))

    @staticmethod
    def of_error(error: Exception) -> list[LocatedMessage]:
        """An exception and its notes at other places."""
        if isinstance(error, LocatedError):
            return [LocatedMessage.of("error", error.location, error.message)]
        if not isinstance(error, ParseError):
            return [LocatedMessage("error", str(error))]
        refs = error.refs if isinstance(error, MultipleSpansParseError) else ()
        spans = [("error", error.span, error.msg), *(("note", span, message or "") for span, message in refs)]
        return [LocatedMessage.of(kind, str(span.get_location()), message) for kind, span, message in spans]

    @staticmethod
    def of_line(line: str) -> LocatedMessage:
        """Parses a line of `remarks`."""
        match = re.fullmatch(r"(?:(\S.*?:\d+:\d+): )?(remark|warning): (.*)", line, re.DOTALL)
        if match is None:
            raise ValueError(f"expected a remark or a warning, got '{line}'")
        return (
            LocatedMessage(match[2], match[3]) if match[1] is None else LocatedMessage.of(match[2], match[1], match[3])
        )

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}: " if self.file else ""
        return f"{place}error: unexpected {self.kind}: {self.message}"


@dataclass
class _Expected:
    """A comment that expects a diagnostic on a line; None for one without a place. `column` is where `text` stands."""

    kind: str
    text: str
    pattern: re.Pattern[str]
    written: int
    column: int
    line: int | None
    met: bool = False


class ExpectedDiagnostics:
    """The diagnostics that comments of a file expect, as `mlir-opt --verify-diagnostics` reads them::

        // expected-error @below {{part of the text}}
        // expected-remark-re @+2 {{took {{[0-9]+}} steps}}

    `offset` is the number of lines of the file before the text. Source: MLIR, Diagnostics,
    SourceMgrDiagnosticVerifierHandler.
    """

    _COMMENT = re.compile(
        r"expected-(error|note|remark|warning)(-re)? *(@([+-]\d+|above|below|unknown))? *\{\{(.*)\}\}$"
    )

    def __init__(self, text: str, name: str, offset: int = 0) -> None:
        self._name = name
        self._problems: list[str] = []
        self._expected: list[_Expected] = []
        below: list[_Expected] = []
        above, last = offset, offset + text.count("\n") + 1
        for number, line in enumerate(text.split("\n"), offset + 1):
            match = self._COMMENT.search(line.removesuffix("\r"))
            if match is None:
                for expected in below:
                    expected.line = number
                below, above = [], number
                continue
            expected = self._read(match, number)
            if expected is None:
                continue
            self._expected.append(expected)
            match match[4]:
                case "unknown":
                    expected.line = None
                case "above":
                    expected.line = above
                case "below":
                    expected.line = last
                    below.append(expected)
                case _:
                    expected.line = number + int(match[4] or 0)

    def _read(self, match: re.Match[str], number: int) -> _Expected | None:
        kind, text, column = match[1], match[5], match.start() + 1
        parts = re.split(r"\{\{(.*?)\}\}", text) if match[2] else [text]
        source = "".join(f"(?:{part})" if i % 2 else re.escape(part) for i, part in enumerate(parts))
        try:
            return _Expected(kind, text, re.compile(source, re.DOTALL), number, column, number)
        except re.error as error:
            self._problems.append(f"{self._name}:{number}:{column}: error: invalid regex: {error}")
            return None

    def meet(self, said: LocatedMessage) -> None:
        """Matches a diagnostic against the expected ones."""
        near: _Expected | None = None
        for expected in self._expected:
            placed = expected.line == said.line and said.file == self._name if said.file else expected.line is None
            if not placed or not expected.pattern.search(said.message):
                continue
            if expected.kind == said.kind:
                expected.met = True
                return
            near = expected
        if near is None:
            self._problems.append(str(said))
            return
        place = f"{self._name}:{near.written}:{near.column}"
        self._problems.append(
            f"{place}: error: '{said.kind}' diagnostic emitted when expecting a '{near.kind}': {said.message}"
        )

    def problems(self) -> list[str]:
        """What was said unexpectedly, then what was expected and not said."""
        missing = [
            f'{self._name}:{e.written}:{e.column}: error: expected {e.kind} "{e.text}" was not produced'
            for e in self._expected
            if not e.met
        ]
        return [*self._problems, *missing]


# Remarks for other tools.


def formatted(line: str, how: str | None) -> str:
    """A line that `remarks` collected as text, as JSON, or as a document of YAML with the same fields.

    `kind` is "chosen" or "declined" of a remark, or "warning".
    """
    if how in (None, "text"):
        return line
    import json

    remark = LocatedMessage.of_line(line)
    by, _, message = remark.message.partition(": ")
    kind = remark.kind if remark.kind != "remark" else "chosen" if message.startswith(CHOSEN) else "declined"
    fields = {"kind": kind, "pass": by, "message": message.removeprefix(CHOSEN)}
    fields |= {"file": remark.file, "line": remark.line, "column": remark.column} if remark.file else {}
    if how == "json":
        return json.dumps(fields)
    return "\n".join(["---", *(f"{name}: {json.dumps(value)}" for name, value in fields.items())])


@contextmanager
def shown_diagnostics(expected: ExpectedDiagnostics | None, how: str | None, *, asked: bool) -> Generator[None]:
    """Prints warnings, and remarks if asked for, on stderr; or compares them with expected ones."""
    with remarks(chosen=asked and expected is None) as said:
        try:
            yield
        finally:
            for line in dict.fromkeys(said):
                if expected is not None and (asked or is_warning(line)):
                    expected.meet(LocatedMessage.of_line(line))
                elif asked or is_warning(line):
                    print(formatted(line, how), file=sys.stderr)
