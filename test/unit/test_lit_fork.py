"""The runner behind the FileCheck tests: what it takes on itself, and that it fails when it should."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import lit_fork
import pytest
from lit_fork import CRASHED, Outcome, Stage, parse_line, run_lines


def echo(arguments: list[str]) -> None:
    """Print the arguments, or standard input when there are none."""
    print(*arguments) if arguments else sys.stdout.write(sys.stdin.read())


def complain(arguments: list[str]) -> None:
    """Say something on each stream and exit with the given status."""
    print("to stdout")
    print("to stderr", file=sys.stderr)
    raise SystemExit(int(arguments[0]))


def crash(_: list[str]) -> None:
    raise KeyError("bug")


def sleep(_: list[str]) -> None:
    time.sleep(60)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Outcome]:
    """Run lines with the tools above instead of the real ones."""
    monkeypatch.setattr(lit_fork, "TOOLS", {"echo": echo, "complain": complain, "crash": crash, "sleep": sleep})

    def run_texts(*lines: str, timeout: float = 20.0) -> Outcome:
        parsed = [(line, stages) for line in lines if (stages := parse_line(line)) is not None]
        assert len(parsed) == len(lines)
        return run_lines(parsed, str(tmp_path), timeout)

    return run_texts


class TestParse:
    def test_pipeline(self) -> None:
        assert parse_line("warploom-opt a.mlir -p 'x{y=1 z=2}' | filecheck a.mlir --check-prefix=X") == [
            Stage("warploom-opt", ("a.mlir", "-p", "x{y=1 z=2}")),
            Stage("filecheck", ("a.mlir", "--check-prefix=X")),
        ]

    def test_not(self) -> None:
        assert parse_line("not xdsl-opt a 2>&1") == [Stage("xdsl-opt", ("a",), negated=True, joined=True)]
        assert parse_line("not not xdsl-opt a") == [Stage("xdsl-opt", ("a",))]

    def test_redirections(self) -> None:
        assert parse_line("xdsl-opt < a > b") == [Stage("xdsl-opt", (), stdin="a", stdout=("b", "wb"))]
        assert parse_line("xdsl-opt >> b") == [Stage("xdsl-opt", (), stdout=("b", "ab"))]

    @pytest.mark.parametrize(
        "line",
        [
            "cat a | filecheck a",
            "warploom-opt a && warploom-opt b",
            "warploom-opt a; warploom-opt b",
            "warploom-opt a 2> b",
            "warploom-opt *.mlir",
            "not",
        ],
    )
    def test_left_to_the_shell(self, line: str) -> None:
        assert parse_line(line) is None


class TestRun:
    def test_pipe(self, run: Callable[..., Outcome]) -> None:
        outcome = run("echo hello | echo | echo")
        assert (outcome.status, outcome.log) == (0, ["$ echo hello | echo | echo", "hello"])

    def test_more_than_a_pipe_holds(self, run: Callable[..., Outcome]) -> None:
        assert len(run(f"echo {'x' * 300_000} | echo | echo").log[1]) == 300_000

    def test_status_of_the_first_stage_counts(self, run: Callable[..., Outcome]) -> None:
        assert run("complain 3 | echo").status == 3

    def test_stops_at_the_first_failure(self, run: Callable[..., Outcome]) -> None:
        outcome = run("complain 3", "echo never")
        command, said, status = outcome.log
        assert (command, status) == ("$ complain 3", "exit status 3")
        assert sorted(said.split("\n")) == ["to stderr", "to stdout"]

    def test_not_wants_a_failure(self, run: Callable[..., Outcome]) -> None:
        assert run("not complain 1").status == 0
        assert run("not echo fine").status == 1

    def test_not_does_not_accept_a_crash(self, run: Callable[..., Outcome]) -> None:
        outcome = run("not crash")
        assert outcome.status == CRASHED
        assert "KeyError: 'bug'" in outcome.log[1]

    def test_stderr_joins_the_pipe(self, run: Callable[..., Outcome]) -> None:
        assert run("not complain 1 2>&1 | echo").log[1].split("\n").count("to stderr") == 1

    def test_files(self, run: Callable[..., Outcome], tmp_path: Path) -> None:
        assert run("echo one > a", "echo two >> a", "echo < a > b").status == 0
        assert (tmp_path / "b").read_text() == "one\ntwo\n"

    def test_timeout(self, run: Callable[..., Outcome]) -> None:
        start = time.monotonic()
        outcome = run("sleep | echo", timeout=0.3)
        assert outcome.timed_out
        assert outcome.status
        assert time.monotonic() - start < 10

    def test_streams_of_the_runner_are_left_alone(self, run: Callable[..., Outcome]) -> None:
        before = sys.stdin, sys.stdout, sys.stderr
        run("echo hello")
        assert (sys.stdin, sys.stdout, sys.stderr) == before
