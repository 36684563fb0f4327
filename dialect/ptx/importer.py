"""`syntax` records to the `ptx` dialect: each register becomes the value its `.reg` declares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from xdsl.ir import Operation, SSAValue

from . import ops as ptx
from .instruction import InstOp
from .printer import declaration, function_header
from .text import syntax
from .text.operands import operand_text
from .text.syntax import PtxSyntaxError
from .types import RegOp, VariableAttr, VarOp

Registers = dict[str, SSAValue]


def import_ptx(module: syntax.Module, name: str = "kernels", file: str = "<ptx>") -> ptx.ModuleOp:
    """The `ptx.module` called `name` that prints as the text the records came from; `file` is for messages.

    Raises:
        PtxSyntaxError: at a guard or declaration that names no register or register type there is.
    """
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
                case syntax.Directive():
                    yield ptx.DirectiveOp(item.text)
                case syntax.Comment():
                    yield ptx.CommentOp(item.text)

    def function(self, function: syntax.Function) -> Operation:
        op = ptx.FuncOp(
            function.name,
            None if function.body is None else self.body(function.body, {}),
            entry=function.entry,
            linking=function.linking,
            parameters=[VariableAttr(replace(p, line=0)) for p in function.parameters],
            returns=[VariableAttr(replace(r, line=0)) for r in function.returns],
            directives=function.directives,
        )
        if op.is_declaration and self.uses[function.name] > 1:
            self.uses[function.name] -= 1
            return ptx.DirectiveOp(" ".join((function_header(op), *function.directives)).replace("\n", " ") + ";")
        return op

    def variable(self, variable: syntax.Variable) -> Operation:
        """Symbols are unique in the module: of several declarations of a name, all but the definition stay text."""
        if variable.linking == "extern" and self.uses[variable.name] > 1:
            self.uses[variable.name] -= 1
            return ptx.DirectiveOp(f"{declaration(variable)};")
        return VarOp(variable)

    def body(self, statements: Sequence[syntax.Statement], registers: Registers) -> list[Operation]:
        return [self.statement(statement, registers) for statement in statements]

    def statement(self, statement: syntax.Statement, registers: Registers) -> Operation:
        match statement:
            case syntax.Instruction():
                return self.instruction(statement, registers)
            case syntax.Label():
                return ptx.LabelOp(statement.name)
            case syntax.RegDecl():
                return self.declare(statement, registers)
            case syntax.Variable():
                return VarOp(statement)
            case syntax.Directive():
                return ptx.DirectiveOp(statement.text)
            case syntax.Comment():
                return ptx.CommentOp(statement.text)
            case syntax.Scope():
                return ptx.ScopeOp(self.body(statement.body, dict(registers)))

    @staticmethod
    def declare(declared: syntax.RegDecl, registers: Registers) -> RegOp:
        op = RegOp(declared.type, declared.name, declared.count, vector=declared.vector)
        registers.update(zip(declared.names(), op.results, strict=True))
        return op

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
