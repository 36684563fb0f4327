"""A lit format in which a RUN line's commands are forks of the lit worker, not new interpreters.

A worker has the compiler imported once; each stage of a pipeline is then a forked process with
descriptors of its own, so it reads standard input, closes pipes and crashes like the real command,
at the price of a fork. A RUN line that names any other command goes to lit's own shell.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from difflib import unified_diff
from functools import partial
from io import StringIO
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import lit.formats
import lit.Test
import lit.TestRunner
from lit.ShCommands import Command, Pipeline
from lit.ShUtil import ShParser

CRASHED = 134
"""Exit code of a tool that let an exception out, as a shell reports an abort; `not` does not accept it."""

EXAMPLE = Path(__file__).parents[1] / "examples" / "matmul_bias_gelu.mlir"

Tool = Callable[[list[str]], None]
"""A command: takes its arguments, uses the standard streams, ends by returning or by SystemExit."""


def _warploom_opt(arguments: list[str]) -> None:
    from warploom.passes.opt import main

    main(arguments)


def _xdsl_opt(arguments: list[str]) -> None:
    from xdsl.xdsl_opt_main import xDSLOptMain

    try:
        xDSLOptMain(args=arguments).run()
    except Exception as error:
        # a traceback is how this tool reports any error
        traceback.print_exc()
        raise SystemExit(1) from error


def _filecheck(arguments: list[str]) -> None:
    from filecheck.main import main

    main(["filecheck", *arguments])


def _diff(arguments: list[str]) -> None:
    """Ends with 1 if two files differ, in which lines it says."""
    one, other = (Path(argument).read_text().splitlines(keepends=True) for argument in arguments)
    lines = list(unified_diff(one, other))
    sys.stdout.writelines(lines)
    raise SystemExit(bool(lines))


TOOLS: dict[str, Tool] = {
    "warploom-opt": _warploom_opt,
    "xdsl-opt": _xdsl_opt,
    "filecheck": _filecheck,
    "diff": _diff,
}


def preimport() -> None:
    """Import in this process what the tools would import in each of their own.

    What cannot be imported is left to the tests that use it, which fail and say why.
    """
    import filecheck.main  # noqa: F401

    from warploom.passes.universe import WARPLOOM_UNIVERSE, known_universe, make_context

    known_universe()
    context = make_context()
    dialects = ("arith", "func", "gpu", "linalg", "memref", "scf", "tensor", "warp", "ptx")
    loads = [partial(context.get_optional_dialect, name) for name in dialects]
    for load in (*loads, *WARPLOOM_UNIVERSE.all_passes.values(), *WARPLOOM_UNIVERSE.all_targets.values()):
        with suppress(Exception):
            load()
    _warm()
    gc.collect()
    gc.freeze()


def _warm() -> None:
    """Compile an example here, so that what is remembered of operations, rows and types is there in each fork."""
    for target in ("sm_80", "sm_90a"):
        with suppress(Exception, SystemExit), redirect_stdout(StringIO()):
            _warploom_opt([str(EXAMPLE), "-t", "ptx", "-p", f"warploom{{target={target}}}"])


@dataclass(frozen=True)
class Stage:
    """One command of a pipeline, with what a shell would have made of its redirections."""

    tool: str
    arguments: tuple[str, ...]
    negated: bool = False
    stdin: str | None = None
    stdout: tuple[str, str] | None = None
    """A path and the mode to open it with."""
    joined: bool = False
    """Whether standard error goes where standard output goes (`2>&1`)."""

    def passes(self, status: int) -> bool:
        """Whether an exit status counts as success; `not` wants a failure that is not a crash."""
        return 0 < status < 128 if self.negated else status == 0


def parse_line(line: str) -> list[Stage] | None:
    """The stages of a RUN line, or None if it takes a shell to run it."""
    try:
        parsed: Any = ShParser(line, False, True).parse()
    except ValueError:
        return None
    if not isinstance(parsed, Pipeline):
        return None
    stages = [_stage(command) for command in parsed.commands]
    return [stage for stage in stages if stage] if all(stages) else None


def _stage(command: Any) -> Stage | None:
    if not isinstance(command, Command) or not all(isinstance(argument, str) for argument in command.args):
        return None
    arguments: list[str] = list(command.args)
    negated = False
    while arguments[:1] == ["not"]:
        arguments, negated = arguments[1:], not negated
    if not arguments or arguments[0] not in TOOLS:
        return None
    redirections = _redirections(command.redirects)
    return None if redirections is None else Stage(arguments[0], tuple(arguments[1:]), negated, **redirections)


def _redirections(redirects: Sequence[Any]) -> dict[str, Any] | None:
    streams: dict[str, Any] = {}
    for operator, target in redirects:
        match tuple(operator), target:
            case ("<",), str():
                streams["stdin"] = target
            case ((">",) | (">>",)) as mode, str():
                streams["stdout"] = (target, "wb" if mode == (">",) else "ab")
            case (">&", 2), "1":
                streams["joined"] = True
            case _:
                return None
    return streams


@dataclass
class Outcome:
    """What became of a test: `status` is 0 for success; `log` is all that its commands said."""

    status: int = 0
    timed_out: bool = False
    log: list[str] = field(default_factory=list)


def run_lines(lines: Sequence[tuple[str, list[Stage]]], directory: str, timeout: float) -> Outcome:
    """Run pipelines one after another until one fails. `lines` pairs each with its text for the log."""
    outcome = Outcome()
    deadline = time.monotonic() + timeout
    for text, stages in lines:
        with TemporaryFile() as log:
            outcome.status = _run_pipeline(stages, directory, log.fileno(), deadline)
            log.seek(0)
            outcome.log += [f"$ {text}", log.read().decode(errors="replace").rstrip()]
        outcome.timed_out = time.monotonic() >= deadline
        if outcome.status:
            outcome.log.append(f"exit status {outcome.status}" + (" (timed out)" if outcome.timed_out else ""))
            return outcome
    return outcome


def _run_pipeline(stages: Sequence[Stage], directory: str, log: int, deadline: float) -> int:
    """Start every stage, connected by pipes, and give the first status that is no success, else 0."""
    pids: list[int] = []
    source = os.open(os.devnull, os.O_RDONLY)
    for stage in stages:
        last = stage is stages[-1]
        read, write = (os.open(os.devnull, os.O_RDONLY), os.dup(log)) if last else os.pipe()
        pids.append(_fork(stage, directory, (source, write, log), read))
        os.close(source)
        os.close(write)
        source = read
    os.close(source)
    statuses = _wait(pids, deadline)
    return next((status or 1 for stage, status in zip(stages, statuses, strict=True) if not stage.passes(status)), 0)


def _fork(stage: Stage, directory: str, streams: tuple[int, int, int], unused: int) -> int:
    """Start a stage on descriptors for its standard streams; `unused` belongs to the next stage."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        status = CRASHED
        try:
            os.close(unused)
            os.chdir(directory)
            status = _be(stage, streams)
        except BaseException:
            os.write(streams[2], traceback.format_exc().encode())
        finally:
            os._exit(status)
    return pid


def _be(stage: Stage, streams: tuple[int, int, int]) -> int:
    """Become the stage: take over the streams, run the tool, and return its exit status."""
    for target, descriptor in enumerate(streams):
        os.dup2(descriptor, target)
    if stage.stdin is not None:
        _redirect(0, stage.stdin, "rb")
    if stage.stdout is not None:
        _redirect(1, *stage.stdout)
    if stage.joined:
        os.dup2(1, 2)
    sys.stdin, sys.stdout, sys.stderr = map(os.fdopen, (0, 1, 2), ("r", "w", "w"))
    # As in an interpreter of its own: what is written to standard error stands before what follows on standard output.
    sys.stderr.reconfigure(line_buffering=True)
    try:
        TOOLS[stage.tool](list(stage.arguments))
        code: object = 0
    except SystemExit as request:
        code = request.code
    except BaseException:
        traceback.print_exc()
        code = CRASHED
    sys.stdout.flush()
    sys.stderr.flush()
    return code if isinstance(code, int) else int(code is not None)


def _redirect(target: int, path: str, mode: str) -> None:
    with open(path, mode) as file:
        os.dup2(file.fileno(), target)


def _wait(pids: Sequence[int], deadline: float) -> list[int]:
    """The exit statuses of processes, which are killed when the deadline passes."""
    statuses: list[int] = []
    with _killed_at(pids, deadline):
        for pid in pids:
            _, status = os.waitpid(pid, 0)
            code = os.waitstatus_to_exitcode(status)
            statuses.append(code if code >= 0 else 128 - code)
    return statuses


@contextmanager
def _killed_at(pids: Sequence[int], deadline: float) -> Generator[None]:
    """Kill the processes if the block is still running at the deadline."""

    def kill(*_: object) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    previous = signal.signal(signal.SIGALRM, kill)
    signal.setitimer(signal.ITIMER_REAL, max(deadline - time.monotonic(), 0.001))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


class ForkTest(lit.formats.ShTest):
    """`lit`'s ShTest for files whose RUN lines are pipelines of TOOLS; others run as ShTest runs them."""

    def __init__(self, timeout: float = 60.0) -> None:
        super().__init__()
        self.timeout = timeout

    def execute(self, test: Any, litConfig: Any) -> Any:
        script = None if test.config.unsupported or litConfig.noExecute else self._script(test)
        if isinstance(script, lit.Test.Result):
            return script
        if script is None:
            return super().execute(test, litConfig)
        directory = os.path.dirname(test.getExecPath())
        Path(directory, "Output").mkdir(parents=True, exist_ok=True)
        outcome = run_lines(script, directory, self.timeout)
        failed = lit.Test.TIMEOUT if outcome.timed_out else lit.Test.FAIL
        return lit.Test.Result(failed if outcome.status else lit.Test.PASS, "\n".join(outcome.log))

    def _script(self, test: Any) -> Any:
        """The RUN lines with their stages; a Result if the test does not run; None if it takes a shell."""
        parsed: Any = lit.TestRunner.parseIntegratedTestScript(test)
        if isinstance(parsed, lit.Test.Result):
            return parsed
        lines: list[str] = lit.TestRunner.applySubstitutions(
            parsed,
            lit.TestRunner.getDefaultSubstitutions(test, *lit.TestRunner.getTempPaths(test)),
            dict.fromkeys(test.config.available_features, True),
            recursion_limit=test.config.recursiveExpansionLimit,
        )
        script: list[tuple[str, list[Stage]]] = []
        for line in lines:
            # lit puts a marker in front that names the line's place in the file
            marked = re.fullmatch(lit.TestRunner.kPdbgRegex, line)
            text = (marked.group(2) if marked else line).strip()
            if (stages := parse_line(text)) is None:
                return None
            script.append((text, stages))
        return script
