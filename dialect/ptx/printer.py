"""The target `ptx`, which prints a module, with lines of its source where asked; and PTX text as the `ptx` dialect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import FileLineColLoc, ModuleOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.utils.target import Target

from ..mlir.upstream import line_of
from . import ops as ptx
from .instruction import InstOp
from .ops import ATTRIBUTE, PtxEmissionError, function_header, print_ptx
from .text import syntax
from .text.syntax import PtxSyntaxError, operand_text


def ptx_module(module: ModuleOp, name: str | None = None) -> ptx.ModuleOp:
    """The one `ptx.module` in a builtin module, or the one of a name. Raises PtxEmissionError if there is none, or more
    than one."""
    modules = [op for op in module.walk() if isinstance(op, ptx.ModuleOp)]
    if name is not None:
        names = [op.sym_name.data for op in modules]
        if name not in names:
            raise PtxEmissionError(f"there is no ptx.module @{name}; found: {', '.join(names) or 'none'}")
        return modules[names.index(name)]
    if not modules:
        raise PtxEmissionError(
            "there is no ptx.module to print: the module has not been lowered to the ptx dialect; "
            "run the standard pipeline first, -p warploom"
        )
    if len(modules) > 1:
        names = ", ".join(f"@{op.sym_name.data}" for op in modules)
        raise PtxEmissionError(
            f"expected one ptx.module to print, found {len(modules)}: {names}; select one with module=NAME"
        )
    return modules[0]


@dataclass(frozen=True)
class PtxTarget(Target):
    """`-t ptx`: prints the PTX module. `module` selects one by name. With `lines`, the PTX has the lines of the MLIR
    that its instructions come from."""

    name = "ptx"

    module: str | None = None
    lines: bool = False

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        chosen = ptx_module(module, self.module)
        if self.lines:
            chosen = chosen.clone()
            add_lines(chosen)
        output.write(print_ptx(chosen))


# Lines of MLIR in PTX: `.loc` and `.file` for the locations of operations. PTX ISA 11.5.3 and 11.5.4.


def add_lines(module: ptx.ModuleOp) -> None:
    """Puts a `.loc` before each instruction whose source line changes, and a `.file` for each file. An instruction
    without a line gets that of its function."""
    files: dict[str, int] = {}
    for function in module.body.block.ops:
        if isinstance(function, ptx.FuncOp) and not function.is_declaration:
            _add(function.body.block, line_of(function.location), files, "")
    for file, number in files.items():
        module.body.block.add_op(ptx.DirectiveOp(f'.file {number} "{file}"'))


def _add(block: Block, line_of_function: FileLineColLoc | None, files: dict[str, int], last: str) -> str:
    """Adds `.loc` directives to a block of a function. `last` is the directive in effect; returns the one in effect at
    the end."""
    for op in list(block.ops):
        if isinstance(op, ptx.ScopeOp):
            last = _add(op.body.block, line_of_function, files, last)
        elif isinstance(op, InstOp) and (line := line_of(op.location) or line_of_function) is not None:
            number = files.setdefault(line.filename.data, len(files) + 1)
            text = f".loc {number} {line.line.data} {line.column.data}"
            if text != last:
                block.insert_op_before(ptx.DirectiveOp(text), op)
            last = text
    return last


# `syntax` records to the `ptx` dialect: each register becomes the value its `.reg` declares.


Registers = dict[str, SSAValue]


def import_ptx(module: syntax.Module, name: str = "kernels", file: str = "<ptx>") -> ptx.ModuleOp:
    """The `ptx.module` called `name` that prints as the text the records came from; `file` is for messages. Raises
    PtxSyntaxError at a guard or declaration that names no register or register type there is."""
    importer = _Importer(module, file)
    return ptx.ModuleOp(
        name,
        list(importer.items()),
        version="{}.{}".format(*module.version),
        target=", ".join(module.targets),
        address_size=module.address_size,
        preamble=[comment.text for comment in module.preamble],
    )


class _Importer:
    def __init__(self, module: syntax.Module, file: str) -> None:
        self.module = module
        self.file = file
        symbols = (item for item in module.items if isinstance(item, syntax.Function | syntax.Variable))
        self.uses = Counter(item.name for item in symbols)

    def items(self) -> Iterator[Operation]:
        for item in self.module.items:
            match item:
                case syntax.Function():
                    yield self.function(item)
                case syntax.Variable():
                    yield self.variable(item)
                case _:
                    yield self.statement(item, {})

    def function(self, function: syntax.Function) -> Operation:
        op = ptx.FuncOp(
            function.name,
            None if function.body is None else self.body(function.body, {}),
            entry=function.entry,
            linking=function.linking,
            parameters=[ptx.VariableAttr(replace(p, line=0)) for p in function.parameters],
            returns=[ptx.VariableAttr(replace(r, line=0)) for r in function.returns],
            directives=function.directives,
        )
        if op.is_declaration and self.uses[function.name] > 1:
            self.uses[function.name] -= 1
            later = (text for text in function.directives if not text.startswith(ATTRIBUTE))
            return ptx.DirectiveOp(" ".join((function_header(op), *later)).replace("\n", " ") + ";")
        return op

    def variable(self, variable: syntax.Variable) -> Operation:
        """Symbols are unique in the module: of several declarations of a name, all but the definition stay text."""
        if variable.linking == "extern" and self.uses[variable.name] > 1:
            self.uses[variable.name] -= 1
            return ptx.DirectiveOp(f"{variable};")
        return ptx.VarOp(variable)

    def body(self, statements: Sequence[syntax.Statement], registers: Registers) -> list[Operation]:
        return [self.statement(statement, registers) for statement in statements]

    def statement(self, statement: syntax.Statement, registers: Registers) -> Operation:
        match statement:
            case syntax.Instruction():
                return self.instruction(statement, registers)
            case syntax.Label():
                return ptx.LabelOp(statement.name)
            case syntax.RegDecl():
                op = ptx.RegOp(statement.type, statement.name, statement.count, vector=statement.vector)
                registers.update(zip(statement.names(), op.results, strict=True))
                return op
            case syntax.Variable():
                return ptx.VarOp(statement)
            case syntax.Directive():
                return ptx.DirectiveOp(statement.text)
            case syntax.Comment():
                return ptx.CommentOp(statement.text)
            case syntax.Scope():
                return ptx.ScopeOp(self.body(statement.body, dict(registers)))

    def instruction(self, instruction: syntax.Instruction, registers: Registers) -> InstOp:
        arguments: list[SSAValue] = []
        guard = instruction.guard
        if guard is not None:
            if guard.register not in registers:
                message = f"no .reg declares the guard '{guard.register}'"
                raise PtxSyntaxError(self.file, instruction.line, instruction.column, message)
            arguments.append(registers[guard.register])
        brackets = "()" if instruction.is_call else "{}"

        def spell(register: syntax.Register) -> str:
            name, dot, component = register.name.partition(".")
            value = registers.get(name)
            if value is None:
                return register.name
            arguments.append(value)
            return f"?{dot}{component}"

        form = ", ".join([operand_text(operand, brackets, spell) for operand in instruction.operands])
        return InstOp.of(instruction.opcode, form, arguments, "" if guard is None else "@!" if guard.negated else "@")
