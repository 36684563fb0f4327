"""`warploom-opt`: xDSL's driver with Warploom's dialects, passes, `ptx` in and out, and located errors."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from io import BytesIO, StringIO
from typing import IO, Any, NoReturn, TypeAlias

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, MemRefType, ModuleOp, NoneAttr, StringAttr
from xdsl.ir import Attribute, Operation
from xdsl.passes import ModulePass
from xdsl.printer import Printer
from xdsl.rewriter import Rewriter
from xdsl.utils.arg_spec import ArgSpec, ArgSpecConvertible, parse_pipeline, parse_spec
from xdsl.utils.diagnostic import Diagnostic
from xdsl.utils.exceptions import ArgSpecParseError, DiagnosticException, ParseError
from xdsl.utils.hints import isa
from xdsl.utils.lexer import Input, Span
from xdsl.utils.target import Target
from xdsl.xdsl_opt_main import xDSLOptMain

from .diagnostics import describe, located
from .instrument import (
    OPTIONS,
    PRINTED,
    ExpectedDiagnostics,
    LocatedMessage,
    PipelineStep,
    Runner,
    UsageError,
    passes_of,
    pipeline_in,
    shown_diagnostics,
    with_strategy,
)
from .source import InputError, begins_as_ptx, decode, read_once
from .start import INTERRUPTED, parsed, versions
from .universe import LAYOUT, NAMES, is_blank, known_universe, make_context, parse_mlir

# `-t upstream`: a module as `mlir-opt --allow-unregistered-dialect` reads it, at any level above the dialect `ptx`.
#
# Operations are printed in their generic form. A memref of MLIR has no layout of another dialect, so that a tile in
# shared memory is printed without its swizzle; the operation that makes it says it: `warp.layout =
# #warp.swizzle<128>`. In a type of another dialect MLIR keeps it as text. Products of a transposed operand have its map
# and no name of their own, as MLIR 22 has them.


def _renamed(op: Operation, kind: type[Operation]) -> Operation:
    """An operation of another name and with the same parts, which it takes from `op`."""
    return kind.create(
        operands=op.operands,
        result_types=op.result_types,
        properties=op.properties,
        attributes=op.attributes,
        regions=[op.detach_region(region) for region in list(op.regions)],
    )


@dataclass(frozen=True)
class UpstreamTarget(Target):
    """Prints the module as upstream `mlir-opt --allow-unregistered-dialect` reads it."""

    name = "upstream"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        from xdsl.dialects import gpu

        from ..dialect.warp.attributes import SwizzleAttr

        plain = module.clone()
        for op in list(plain.walk()):
            if transposed := re.fullmatch(r"(linalg\.(batch_)?matmul)_transpose_[ab]", op.name):
                Rewriter.replace_op(op, _renamed(op, ctx.get_op(transposed[1])))
            for result in op.results:
                kind = result.type
                if isa(kind, MemRefType[Attribute]) and isinstance(kind.layout, SwizzleAttr):
                    op.attributes[LAYOUT] = kind.layout
                    in_rows = MemRefType(kind.element_type, kind.shape, NoneAttr(), kind.memory_space)
                    Rewriter.replace_value_with_new_type(result, in_rows)
            if isinstance(op, gpu.FuncOp) and op.kernel is not None:
                op.attributes["gpu.kernel"] = op.kernel  # which MLIR has as an attribute, not as a property
                names = [StringAttr(argument.name_hint or "") for argument in op.body.blocks[0].args]
                op.attributes[NAMES] = ArrayAttr(names)
        Printer(output, print_generic_format=True).print_op(plain)
        output.write("\n")


DEBUG_VARIABLE = "WARPLOOM_DEBUG"
"""When set to anything but the empty string, errors come with a Python traceback."""


PIPELINE = "warploom"
"""What names of passes that stand for several start with."""

_INCOMPATIBLE = re.compile(r"Incompatible types: given \((.*?),?\), expected (.*?)( \| None)?$")
"""How xDSL refuses the value of an option."""

_Factories: TypeAlias = Mapping[str, Callable[[], type[ArgSpecConvertible]]]


def _path(text: str) -> str | None:
    """A file; None for `-`, which is the standard input or output, as with `mlir-opt`."""
    return None if text == "-" else text


class WarploomOptMain(xDSLOptMain):
    """xDSL's driver with this project's names registered and its own rendering of errors."""

    _line_offset = 0
    _stage = "starting up"
    _expected: ExpectedDiagnostics | None = None
    """With --verify-diagnostics, what the chunk expects."""

    def register_all_dialects(self) -> None:
        self.ctx = make_context()
        for name, factory in known_universe().all_dialects.items():
            if name not in self.ctx.registered_dialect_names:
                self.ctx.register_dialect(name, factory)

    def register_all_frontends(self) -> None:
        super().register_all_frontends()
        self.available_frontends["mlir"] = self._read_mlir
        self.available_frontends["ptx"] = self._read_ptx

    def register_all_passes(self) -> None:
        for name, factory in known_universe().all_passes.items():
            self.register_pass(name, factory)

    def register_all_targets(self) -> None:
        self.available_targets.update(known_universe().all_targets)

    def register_all_arguments(self, arg_parser: argparse.ArgumentParser) -> None:
        arg_parser.prog = "warploom-opt"
        arg_parser.parse_args = partial(parsed, arg_parser)  # pyright: ignore[reportAttributeAccessIssue]
        super().register_all_arguments(arg_parser)
        arg_parser.add_argument(
            "--list-passes", action=_Listing, const="passes_help", nargs=0,
            help="List Warploom's own passes with their options and exit",
        )  # fmt: skip
        arg_parser.add_argument(
            "--help-schedule", action=_Listing, const="schedule_help", nargs=0,
            help="List every field of a schedule and exit",
        )  # fmt: skip
        arg_parser.add_argument(
            "--remarks", action="store_true",
            help="Print what passes choose, and where and why they leave something as it is, on stderr",
        )  # fmt: skip
        arg_parser.add_argument(
            "--remarks-format",
            choices=("text", "json", "yaml"),
            help="Print remarks as text (the default), as a line of JSON each, or as a YAML document each",
        )
        for option, values in OPTIONS.items():
            arg_parser.add_argument(option, **values)  # pyright: ignore[reportArgumentType]
        arg_parser.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)
        for option, meaning in _HELP.items():
            arg_parser._option_string_actions[option].help = meaning  # pyright: ignore[reportPrivateUsage]
        for action in arg_parser._actions:  # pyright: ignore[reportPrivateUsage]
            if action.dest in ("input_file", "output_file"):
                action.type = _path

    def setup_pipeline(self) -> None:
        """Build the pipeline, having checked every name and option of it and of the target."""
        if self.args.pass_pipeline is not None:
            if self.args.passes:
                raise UsageError("expected --pass-pipeline or -p, got both")
            self.args.passes = passes_of(self.args.pass_pipeline)
        if self.args.run_reproducer:
            self.args.passes = self._reproduced()
        _check_specs("pass", parse_pipeline(self.args.passes), self.available_passes)
        _check_specs("target", [parse_spec(self.args.target)], known_universe().all_targets)
        super().setup_pipeline()
        steps = [step for one in self.pipeline.passes for step in _expanded(one)]
        if self.args.transform is not None:
            steps = with_strategy(steps, self.args.transform)
        names = {step.one.name for step in steps} | {step.of for step in steps}
        for option in PRINTED:
            for name in filter(None, (getattr(self.args, option) or "").split(",")):
                if name not in names:
                    raise UsageError(_unknown("pass of the pipeline", name, names))
        self._runner = Runner(tuple(steps), self.args)

    def _reproduced(self) -> str:
        """The passes of the reproducer that the input is."""
        path = self.args.input_file
        if path is None or self.args.passes:
            raise UsageError("--run-reproducer: expected a file with its pipeline, and no other passes")
        with open(path, "rb") as file:
            pipeline = pipeline_in(decode(file.read(), path, "MLIR"))
        if pipeline is None:
            raise UsageError(f"--run-reproducer: {path} has no external_resources of mlir_reproducer")
        return passes_of(pipeline)

    def run(self) -> None:
        """Read, lower and write each chunk; with --verify-diagnostics, compare what is said of it with its comments.

        Raises:
            SystemExit: 1 where they differ.
        """
        try:
            return self._run()
        finally:
            if self.args.mlir_timing:
                print(self._runner.timer.report(), file=sys.stderr)
            if self.args.mlir_pass_statistics:
                print(self._runner.statistics(), file=sys.stderr)

    def _run(self) -> None:
        if not self.args.verify_diagnostics:
            return super().run()
        chunks, extension = self.prepare_input()
        output, problems = self.prepare_output(), list[str]()
        for number, (chunk, offset) in enumerate(chunks):
            data = chunk.read()
            chunk.close()
            if number:
                output.write("// -----\n")
            self._expected = ExpectedDiagnostics(data.decode("utf-8", "replace"), self.get_input_name(), offset)
            output.write(self._verified(data, extension, offset, self._expected))
            output.flush()
            problems += self._expected.problems()
        return _exit("\n".join(problems), 1) if problems else None

    def _verified(self, data: bytes, extension: str, offset: int, expected: ExpectedDiagnostics) -> str:
        """The output for a chunk of the input. If a pass fails, the result is empty, and the error goes to
        `expected`."""
        try:
            module = self.parse_chunk(BytesIO(data), extension, offset)
            if module is None:
                return ""
            self.apply_passes(module)
            return self.output_resulting_program(module)
        except (ParseError, DiagnosticException) as error:
            if isinstance(error, ParseError):
                error.span = dataclasses.replace(error.span, line_offset=offset)
            for one in LocatedMessage.of_error(error):
                expected.meet(one)
        return ""

    def prepare_input(self) -> tuple[list[tuple[IO[bytes], int]], str]:
        self._stage = "reading the input"
        path = self.args.input_file
        extension = self.args.frontend or ("mlir" if path is None else os.path.splitext(path)[1].removeprefix("."))
        if extension == "mlirbc":  # of which `decode` says what to do
            extension = self.args.frontend = "mlir"
        if extension not in self.available_frontends:
            endings = " or ".join(f".{name}" for name in self.available_frontends)
            got = f"'.{extension}'" if extension else "none"
            raise InputError(f"{path}: expected a file name ending in {endings}, got {got}; say what it is with -f")
        return super().prepare_input()

    def prepare_output(self) -> IO[str]:
        return sys.stdout if self.args.output_file is None else _OutputFile(self.args.output_file)

    def parse_chunk(self, chunk: IO[bytes], file_extension: str, start_offset: int = 0) -> ModuleOp | None:
        self._line_offset = start_offset
        self._stage = f"reading {self.get_input_name()}"
        try:
            with self._runner.timer.measure("(parse)"):
                data = chunk.read()
                if self.args.split_input_file and is_blank(data.decode(errors="replace")):
                    return ModuleOp([])
                return super().parse_chunk(BytesIO(data), file_extension, start_offset)
        except ParseError as error:
            if self.args.verify_diagnostics or not self.args.parsing_diagnostics:
                raise
            error.span = dataclasses.replace(error.span, line_offset=start_offset)
            print(describe(error), file=sys.stderr)
            return None

    def apply_passes(self, prog: ModuleOp) -> None:
        self._stage = f"running the passes '{self.args.passes}'" if self.args.passes else "verifying"
        with self._shown_diagnostics(), located(prog), read_once():
            self._lower(prog)

    def _shown_diagnostics(self) -> AbstractContextManager[None]:
        """Shows what is remarked, as the options say."""
        asked = self.args.remarks or self.args.remarks_format is not None
        return shown_diagnostics(self._expected, self.args.remarks_format, asked=asked)

    def _lower(self, prog: ModuleOp) -> None:
        """Runs the passes. If unknown dialects are allowed, it runs them on the parts of the module that they can
        convert."""
        if not self.args.allow_unregistered_dialect or not self._runner.steps:
            self._runner.apply(self.ctx, prog)
            return
        from .partial import convert_partly

        convert_partly(prog, lambda part: self._runner.apply(self.ctx, part), all_of_it=self.args.full_conversion)

    def output_resulting_program(self, prog: ModuleOp) -> str:
        self._stage = f"writing the target '{self.args.target}'"
        with self._runner.timer.measure("(output)"), self._shown_diagnostics():
            return super().output_resulting_program(prog)

    def explain(self, error: Exception) -> str:
        """One clear message for an error that `run` let out."""
        match error:
            case ParseError() | DiagnosticException() | InputError():
                return describe(error)
            case OSError():
                return f"error: {error.filename or 'writing the output'}: {error.strerror or error}"
            case RecursionError():
                return f"error: {self.get_input_name()}: nested too deeply while {self._stage}"
            case _:
                detail = f"{type(error).__name__}: {error}".removesuffix(": ")
                return f"error: unexpected failure while {self._stage}: {detail} (--debug shows where)"

    def _read_mlir(self, stream: IO[bytes]) -> ModuleOp:
        text, name = self._text(stream, "MLIR"), self.get_input_name()
        if begins_as_ptx(text):
            raise InputError(f"{name}: expected MLIR text, got PTX; say so with -f ptx")
        return parse_mlir(
            self.ctx, text, name, implicit_module=not self.args.no_implicit_module, line_offset=self._line_offset
        )

    def _read_ptx(self, stream: IO[bytes]) -> ModuleOp:
        from ..dialect.ptx.check.module import first_problem
        from ..dialect.ptx.parser import parse_ptx
        from ..dialect.ptx.printer import import_ptx
        from ..dialect.ptx.text.syntax import PtxSyntaxError

        name, text = self.get_input_name(), self._text(stream, "PTX")
        try:
            module = parse_ptx(text, name)
            problem = None if self.args.disable_verify else first_problem(module)
            if problem is not None:
                raise ParseError(_span(text, name, problem.line, problem.column), problem.message)
            return ModuleOp([import_ptx(module, file=name)])
        except PtxSyntaxError as error:
            raise ParseError(_span(text, name, error.line, error.column), error.message) from error

    def _text(self, stream: IO[bytes], language: str) -> str:
        return decode(stream.read(), self.get_input_name(), language)


_HELP = {
    "--print-between-passes": "Print the IR between each pass, on stderr",
    "--time-passes": "Print timing information for each pass, on stderr",
    "--verify-diagnostics": "Check that what is said of the input is what its comments expect, as mlir-opt does: "
    "// expected-error @below {{part of the text}}. Remarks count with --remarks. Exit with 1 where they differ",
    "--parsing-diagnostics": "Print an error of a chunk that cannot be read, on stderr, and go on with the next",
}
"""What options of xDSL do here."""


class _OutputFile(StringIO):
    """A file that is only written when it is flushed, which the driver does after each successful part.

    So a run that fails leaves no empty file, and a file can be rewritten in place.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def flush(self) -> None:
        with open(self._path, "w", encoding="utf-8") as file:
            file.write(self.getvalue())


class _Listing(argparse.Action):
    """Prints what a function of `listed` returns, which the constant of the option names."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        from . import listed

        print(getattr(listed, self.const)().rstrip("\n"))
        parser.exit()


def _span(text: str, name: str, line: int, column: int) -> Span[str]:
    """The token-sized place at a line and column, both counted from one."""
    start = sum(map(len, text.splitlines(keepends=True)[: line - 1])) + column - 1
    token = re.compile(r"[\w.%$]+|.?").match(text, start)
    return Span(start, token.end() if token else start, Input(text, name))


def _check_specs(kind: str, specs: Iterable[ArgSpec], factories: _Factories) -> None:
    """Raise UsageError for a pass or target of an unknown name or with a bad option."""
    for spec in specs:
        if spec.name not in factories:
            raise UsageError(_unknown(kind, spec.name, factories))
        convertible = factories[spec.name]()
        fields = [field.name for field in dataclasses.fields(convertible) if field.init]
        for name in spec.parameters:
            if name.replace("-", "_") not in fields:
                near = difflib.get_close_matches(name, fields, 1, 0.7)
                hint = f"; did you mean '{near[0].replace('_', '-')}'?" if near else ";"
                raise UsageError(f"{kind} '{spec.name}' has no option '{name}'{hint} {_options(convertible)}")
        if empty := _without_value(convertible, spec):
            raise UsageError(f"{kind} '{spec.name}', option {empty}: expected a value, as in {empty}=...")
        try:
            convertible.from_spec(spec)
        except ValueError as error:
            where = f"{kind} '{spec.name}'{_refused(convertible, spec)}"
            reason = _INCOMPATIBLE.sub(r"expected \2, got \1", str(error))
            raise UsageError(f"{where}: {reason}; {_options(convertible)}") from error


def _without_value(convertible: type[ArgSpecConvertible], spec: ArgSpec) -> str:
    """The first option other than a flag whose value is missing or empty; "" if there is none."""
    kinds = {field.name: str(field.type) for field in dataclasses.fields(convertible)}
    options = ((name, values) for name, values in spec.parameters.items() if "bool" not in kinds.get(name, "bool"))
    return next((name for name, values in options if not values or "" in values), "")


def _refused(convertible: type[ArgSpecConvertible], spec: ArgSpec) -> str:
    """The option whose value has the wrong type, if there is one. xDSL's error names only the types."""
    for name, value in spec.parameters.items():
        try:
            convertible.from_spec(ArgSpec(spec.name, {name: value}))
        except ValueError as error:
            if str(error).startswith("Incompatible types"):
                return f", option {name}"
    return ""


def _expanded(one: ModulePass) -> Iterator[PipelineStep]:
    """The pass itself, or the passes that a composite one consists of."""
    passes = (one,)
    if one.name.startswith(PIPELINE):
        from .pipeline import Pipeline

        passes = one.passes() if isinstance(one, Pipeline) else passes
    yield from (PipelineStep(each, one.name if len(passes) > 1 else "") for each in passes)


def _unknown(kind: str, name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, names)
    hint = f"did you mean {' or '.join(repr(n) for n in near)}?" if near else "--help lists those there are"
    return f"unknown {kind} '{name}'; {hint}"


def _options(convertible: type[ArgSpecConvertible]) -> str:
    names = [field.name.replace("_", "-") for field in dataclasses.fields(convertible) if field.init]
    return f"its options are {', '.join(names)}" if names else "it has no options"


def _drop_output() -> None:
    """Redirects a closed standard output to the null device, so that Python's flush at exit prints no error."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _exit(message: str, code: int) -> NoReturn:
    print(message, file=sys.stderr)
    raise SystemExit(code)


def main(argv: Sequence[str] | None = None) -> None:
    """Run `warploom-opt` on command-line arguments. Raises SystemExit: 1 on an error, 2 on misuse."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments or bool(os.environ.get(DEBUG_VARIABLE))
    # --disable-verify and --syntax-highlight switch classes of xDSL for the whole process
    post_init, colored = Attribute.__post_init__, Diagnostic.colored
    try:
        _run(arguments, debug)
    finally:
        Attribute.__post_init__, Diagnostic.colored = post_init, colored


def _run(arguments: list[str], debug: bool) -> None:
    if not {"-v", "--version"}.isdisjoint(arguments):  # xDSL's is of xDSL alone
        print(versions("warploom-opt"))
        return
    driver: WarploomOptMain | None = None
    try:
        driver = WarploomOptMain("Warploom's optimizer driver: MLIR or PTX in, MLIR or PTX out.", arguments)
        driver.run()
        sys.stdout.flush()
    except KeyboardInterrupt:
        _exit("error: interrupted", INTERRUPTED)
    except (UsageError, ArgSpecParseError) as error:
        _exit(f"error: {error}".rstrip().replace("Unknown token", "expected a word, a number, or a text in quotes"), 2)
    except Exception as error:
        if debug:
            raise
        if isinstance(error, OSError) and error.filename is None:
            _drop_output()
        if isinstance(error, BrokenPipeError):
            _exit("error: the output was closed before everything was written", 1)
        _exit(describe(error) if driver is None else driver.explain(error), 1)


__all__ = ["InputError", "UsageError", "WarploomOptMain", "main"]

if __name__ == "__main__":
    main()
