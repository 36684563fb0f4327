"""A kernel decoded: a flat list of actions, with what it needs of functions, registers and memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ....dialect.isa.row import NAMED, Row
from ....dialect.ptx.instructions import Traits, traits
from ....dialect.ptx.text import syntax
from ....dialect.ptx.text.source_lines import SourceLines
from ....dialect.ptx.text.syntax import REGISTER_BITS, Function, Instruction, Operand, RegDecl, Statement, Variable
from .calls import BUILTINS, RESULT, RESULT_BYTES, RETURN, finish
from .decode import Context, Formal, Frame, NameScope, VariablePlace, decode
from .events import Events, Geometry
from .memory import ARGUMENTS, DecodeError, Finding, InterpreterError, size_of
from .state import Action, RegisterSlot, StackFrame, State, StorageLayout, align

MATRICES = ("mma", "wmma")
"""What opcodes of warps that multiply matrices begin with."""

DYNAMIC_ALIGNMENT = 16
"""What dynamic shared memory is aligned to at least. Source: ptxas 13.0."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """One instruction: what it does, under which predicate, and the registers of its operands; its row and its traits.
    `places` are the variables that it names. `polls` says of a jump back that memory is read again on the way, as
    threads do that wait for others. `context` is what it was decoded in."""

    source: Instruction
    action: Action
    guard: RegisterSlot | None
    negated: bool
    reads: tuple[RegisterSlot, ...]
    writes: tuple[RegisterSlot, ...]
    places: tuple[VariablePlace, ...]
    polls: bool
    row: Row
    traits: Traits
    context: Context

    def slot(self, operand: object) -> RegisterSlot | None:
        """The register of an operand, or of the base of an address; None for special registers and other operands."""
        name = operand.name if isinstance(operand, syntax.Register) else ""
        return next((slot for slot in (*self.reads, *self.writes) if slot.name == name), None) if name else None

    def slots(self, operand: Operand) -> list[RegisterSlot]:
        """The registers of an operand."""
        return [slot for leaf in syntax.leaves(operand) if (slot := self.slot(leaf)) is not None]

    def named(self) -> dict[str, Operand]:
        """The operands by the row's names; trailing optional ones may be missing."""
        operands = self.source.operands
        slots = self.row.signature(self.traits.bindings, len(operands))
        return {slot.name: operand for slot, operand in zip(slots, operands, strict=False)}


@dataclass(frozen=True)
class DecodedKernel:
    """A decoded kernel, behind the functions it calls; it begins at `entry`. `sources` has the lines of its source."""

    function: Function
    file: str
    layout: StorageLayout
    code: tuple[Decoded, ...]
    entry: int
    sources: SourceLines | None = None

    @property
    def name(self) -> str:
        return self.function.name

    def uses(self, *roots: str) -> bool:
        """Whether the kernel has instructions whose opcodes begin with one of these words."""
        return any(d.row.root in roots for d in self.code)

    def finding(
        self, check: str, pc: int, message: str, geometry: Geometry | None = None, thread: int | None = None,
        address: int | None = None,
    ) -> Finding:  # fmt: skip
        """What is wrong with an instruction, at the place of a thread of a geometry if it is known."""
        source, lines = self.code[pc].source, self.sources
        where = (None, None, None) if geometry is None or thread is None else geometry.place(thread)
        text = message if lines is None else lines.annotated(message)
        finding = Finding(check, text, self.file, source.line, source.column, self.name, *where, address)
        return replace(finding, source=self.source_of(pc)) if lines is not None else finding

    def source_of(self, pc: int) -> str:
        """The line of the program that an instruction was compiled from; "" where the PTX does not say."""
        return "" if self.sources is None else self.sources.note_at(self.code[pc].source.line)


# Which functions a kernel calls, in which order they stand in its code, and which need a stack: PTX ISA 7.1, 9.7.12.5.
#
# A call through a register goes to any function whose address is taken somewhere in the module.

_STACK = ("alloca", "stacksave", "stackrestore")

CODE = 1 << 59
"""Where the addresses of functions begin; nothing can be read there."""


class CallError(DecodeError):
    """What is wrong with a call, and which it is."""

    def __init__(self, call: Instruction, message: str) -> None:
        super().__init__(f"{call.opcode}: {message}")
        self.call = call


@dataclass(frozen=True)
class Functions:
    """The functions of a module that have a body, in the order in which it first declares them, and those whose address
    is taken. `initialised` has the names in the initialisers of module variables."""

    bodies: Mapping[str, Function]
    taken: frozenset[str]
    initialised: Mapping[str, tuple[str, ...]]

    @staticmethod
    def of(module: syntax.Module) -> Functions:
        """Finds them in instructions, initialisers and `.calltargets`."""
        declared = dict.fromkeys(item.name for item in module.items if isinstance(item, Function))
        bodies = {name: module.functions[name] for name in declared if name in module.functions}
        initialised: dict[str, tuple[str, ...]] = {}
        named: set[str] = set()
        for item in module.items:
            if isinstance(item, Variable) and item.init:
                initialised[item.name] = tuple(re.findall(r"[\w$%]+", item.init))
                named.update(initialised[item.name])
            elif isinstance(item, Function):
                named.update(_taken(item.body or ()))
        taken = frozenset(name for name in named if name in bodies and not bodies[name].entry)
        return Functions(bodies, taken, initialised)

    @property
    def addresses(self) -> dict[str, int]:
        """The address of each function."""
        return {name: CODE + 16 * number for number, name in enumerate(self.bodies, 1)}

    def callees(self, function: Function) -> list[str]:
        """The functions with a body that a function calls. Raises CallError for a call of an unknown function, or of a
        kernel."""
        names: list[str] = []
        for call in syntax.instructions(function.body or ()):
            if not call.is_call:
                continue
            callee = call.call.name
            if not callee:
                names += sorted(self.taken)
            elif callee in self.bodies:
                if self.bodies[callee].entry:
                    raise CallError(call, f"'{callee}' is a kernel; only functions can be called")
                names.append(callee)
            elif callee not in BUILTINS:
                raise CallError(call, f"function '{callee}' has no body in this module")
        return list(dict.fromkeys(names))

    def in_order(self, kernel: Function) -> tuple[list[Function], frozenset[str]]:
        """The functions that a kernel calls, directly or not, callees before callers where the calls have no cycle. The
        set has the names of functions that need a stack: recursive ones, and those that allocate."""
        edges: dict[str, list[str]] = {}
        order: list[Function] = []
        self._visit(kernel, edges, order)
        stacked = {
            name for name, f in self.bodies.items() if any(i.root in _STACK for i in syntax.instructions(f.body or ()))
        }
        stacked.update(name for name in edges if name in _reachable(edges, name))
        return order[:-1], frozenset(stacked)

    def used(self, kernel: Function) -> tuple[list[Function], set[str]]:
        """The functions that a kernel calls or whose address it may know, directly or not, and itself, in the order of
        the module; and the names that they mention, initialisers included. Raises CallError for a call of a function
        that is not there, or of a kernel."""
        reached, seen, names = {kernel.name}, set[str](), list(self._named(kernel))
        while names:
            name = names.pop()
            if name in seen:
                continue
            seen.add(name)
            names += self.initialised.get(name, ())
            function = self.bodies.get(name)
            if function is not None and not function.entry:
                reached.add(name)
                names += self._named(function)
        return [function for name, function in self.bodies.items() if name in reached], seen

    def _named(self, function: Function) -> Iterator[str]:
        yield from self.callees(function)
        yield from _mentioned(function.body or (), frozenset(v.name for v in (*function.parameters, *function.returns)))

    def _visit(self, function: Function, edges: dict[str, list[str]], order: list[Function]) -> None:
        edges[function.name] = self.callees(function)
        for name in edges[function.name]:
            if name not in edges:
                self._visit(self.bodies[name], edges, order)
        order.append(function)


def _reachable(edges: Mapping[str, Sequence[str]], start: str) -> set[str]:
    """The functions that one calls, directly or not."""
    seen: set[str] = set()
    left = list(edges[start])
    while left:
        name = left.pop()
        if name not in seen:
            seen.add(name)
            left += edges.get(name, ())
    return seen


def _mentioned(body: Sequence[Statement], hidden: frozenset[str]) -> Iterator[str]:
    """The names of operands that the body does not declare: of variables and functions of the module, and labels."""
    hidden |= {s.name for s in body if isinstance(s, Variable | RegDecl)}
    for statement in body:
        if isinstance(statement, syntax.Scope):
            yield from _mentioned(statement.body, hidden)
        elif isinstance(statement, Instruction):
            leaves = (leaf for operand in statement.operands for leaf in syntax.leaves(operand))
            yield from (leaf.name for leaf in leaves if isinstance(leaf, syntax.Symbol) and leaf.name not in hidden)


def _taken(body: Sequence[Statement]) -> Iterator[str]:
    """Names that stand for addresses, not for what is called."""
    for statement in syntax.statements(body):
        if isinstance(statement, syntax.Directive) and statement.text.startswith(".calltargets"):
            yield from re.findall(r"[\w$%]+", statement.text)
        elif isinstance(statement, Instruction) and not statement.is_call:
            yield from (o.name for o in statement.operands if isinstance(o, syntax.Symbol))


class KernelDecoder:
    """Decodes one kernel. Module-level shared variables take space when they are first declared to it."""

    def __init__(self, function: Function, names: NameScope, file: str, target: str, functions: Functions) -> None:
        self.function = function
        self.file = file
        self.target = target
        self.layout = StorageLayout(multiprocessors=NAMED.get(target, NAMED["sm_90a"]).sms)
        self.module_names = names
        self.functions = functions
        self.frames: dict[str, Frame] = {}
        self.shared: dict[int, tuple[int, int]] = {}
        self.stack: StackFrame | None = None
        self.flat: list[tuple[Instruction, NameScope, Frame | None]] = []

    def decode(self, module: Mapping[str, Variable]) -> DecodedKernel:
        """Raises InterpreterError at the first statement that cannot be run."""
        entry = self._lay_out(module)
        code = tuple(self._instruction(*item, pc) for pc, item in enumerate(self.flat))
        return DecodedKernel(self.function, self.file, self.layout, code, entry)

    def refused(self, module: Mapping[str, Variable]) -> list[Finding]:
        """Every statement that cannot be run; of declarations and calls, the first."""
        try:
            self._lay_out(module)
        except InterpreterError as error:
            return list(error.findings)
        findings: list[Finding] = []
        for pc, item in enumerate(self.flat):
            try:
                self._instruction(*item, pc)
            except InterpreterError as error:
                findings += error.findings
        return findings

    def _lay_out(self, module: Mapping[str, Variable]) -> int:
        """Puts the kernel behind the functions it calls, and declares everything. Returns where it begins."""
        function, shared = self.function, self.module_names.inner()
        try:
            callees, stacked = self.functions.in_order(self.function)
        except CallError as error:
            raise self.error(str(error), error.call.line, error.call.column) from error
        self._shared_memory(module)
        for variable in module.values():
            if id(variable) in self.shared:
                self._variable(variable, shared)
        if any(callee.name in stacked | self.functions.taken for callee in callees):
            # Callers find the results of recursive functions, and of those called by address, at one place.
            self.layout.results = align(self.layout.local, RESULT)
            self.layout.local = self.layout.results + RESULT_BYTES
        for callee in callees:
            self._function(callee, shared.inner(), callee.name in stacked)
        entry, names = len(self.flat), shared.inner()
        self._parameters(names)
        self._body(function, names, None)
        return entry

    def error(self, message: str, line: int, column: int = 1) -> InterpreterError:
        finding = Finding("load", message, self.file, line, column, self.function.name)
        return InterpreterError(str(finding), [finding])

    # Declarations

    def _parameters(self, names: NameScope) -> None:
        placed: list[tuple[Variable, int]] = []
        end = 0
        for variable in self.function.parameters:
            size, alignment = self._size(variable)
            offset = align(end, alignment)
            placed.append((variable, offset))
            names.places[variable.name] = VariablePlace("param", lambda _, at=offset: at)
            end = offset + size
        self.layout.parameters, self.layout.parameter_bytes = tuple(placed), end

    def _size(self, variable: Variable) -> tuple[int, int]:
        try:
            return size_of(variable)
        except DecodeError as error:
            raise self.error(str(error), variable.line) from error

    def _shared_memory(self, module: Mapping[str, Variable]) -> None:
        """Gives shared variables their offsets and extents: those of the functions that the kernel uses, then those of
        the module that these name. Each dynamic one lies behind them at its own alignment; the static part is padded to
        the largest of dynamic ones in the module, named or not. Source: ptxas 13.0, sm_80, sm_90."""
        functions, named = self.functions.used(self.function)
        own = [v for f in functions for v in syntax.statements(f.body or ()) if isinstance(v, Variable)]
        every = [v for v in (*own, *module.values()) if v.space.startswith("shared")]
        dynamic = [v for v in every if v.linking == "extern"]
        end = 0
        for variable in every:
            if variable.linking == "extern" or (variable.name not in named and module.get(variable.name) is variable):
                continue
            size, alignment = self._size(variable)
            offset = align(end, alignment)
            self.shared[id(variable)], end = (offset, size), offset + size
        padded = end
        for variable in dynamic:
            offset = align(end, max(self._size(variable)[1], DYNAMIC_ALIGNMENT))
            self.shared[id(variable)], padded = (offset, 0), max(padded, offset)
        self.layout.shared = padded

    def _variable(self, variable: Variable, names: NameScope) -> None:
        space = variable.space.partition("::")[0]
        size, alignment = self._size(variable)
        if space == "shared":
            offset, extent = self.shared[id(variable)]
            names.places[variable.name] = VariablePlace("shared", lambda _: offset, name=variable.name, extent=extent)
        elif space == "local" and self.stack is not None:
            stack, offset = self.stack, self.stack.place(size, alignment)
            stacked = VariablePlace("local", lambda _: 0, stacked=lambda more: stack.address(offset + more))
            names.places[variable.name] = stacked
        elif space == "local":
            offset = align(self.layout.local, alignment)
            self.layout.local = offset + size
            names.places[variable.name] = VariablePlace("local", lambda _: offset, name=variable.name, extent=size)
        elif space == "param":
            names.places[variable.name] = self._argument(size, alignment)
        else:
            raise self.error(f"a .{space} variable inside a function is not supported", variable.line)

    def _argument(self, size: int, alignment: int) -> VariablePlace:
        offset = align(self.layout.local, alignment)
        self.layout.local = offset + size
        self.layout.arguments.append((offset, size))
        return VariablePlace("param", lambda _: ARGUMENTS + offset, size)

    def _registers(self, declared: RegDecl, names: NameScope) -> None:
        bits = REGISTER_BITS.get(declared.type)
        if bits is None:
            raise self.error(f"type .{declared.type} is not supported", declared.line)
        for name in declared.names():
            parts = [name] if declared.vector == 1 else [f"{name}.{part}" for part in "xyzw"[: declared.vector]]
            for part in parts:
                names.registers[part] = self.layout.slot(bits, part, declared.type)

    # Functions

    def _function(self, function: Function, names: NameScope, stacked: bool) -> None:
        """Appends the code of a function to the code decoded so far."""
        layout = self.layout
        if stacked:
            layout.stack()
            self.stack = StackFrame(layout, start=layout.local)
        before = dict(layout.slots)
        parameters, results = (
            tuple(self._formal(v, names) for v in variables) for variables in (function.parameters, function.returns)
        )
        passes = stacked or function.name in self.functions.taken
        if passes and (len(results) > 1 or any(f.size > RESULT_BYTES for f in results)):
            raise self.error(
                f"function '{function.name}' calls itself or is called through a register; it can return one result of "
                f"at most {RESULT_BYTES} bytes here",
                function.line,
            )
        frame = Frame(function.name, len(self.flat), layout.slot(32), parameters, results, self.stack, passes)
        self.frames[function.name] = frame
        self._body(function, names, frame)
        if self.stack is not None:
            own = [RegisterSlot(bits, i) for bits, n in layout.slots.items() for i in range(before.get(bits, 0), n)]
            self.stack.slots = [*dict.fromkeys([*own, *self.stack.slots])]
            self.stack.end, self.stack = layout.local, None

    def _formal(self, variable: Variable, names: NameScope) -> Formal:
        if variable.space == "reg":
            self._registers(RegDecl(variable.type, variable.name, line=variable.line), names)
            return Formal(variable, 0, slot=names.registers[variable.name])
        size, alignment = self._size(variable)
        place = names.places[variable.name] = self._argument(size, alignment)
        return Formal(variable, size, place)

    # Statements

    def _body(self, function: Function, names: NameScope, frame: Frame | None) -> None:
        self._flatten(function.body or (), names, frame)
        self.flat.append((Instruction("ret", (), line=function.line, column=1), names, frame))

    def _flatten(self, body: tuple[Statement, ...], names: NameScope, frame: Frame | None) -> None:
        """Instructions one after the other, each with its scope; labels as numbers among them."""
        label = ""
        for statement in body:
            match statement:
                case Instruction():
                    self.flat.append((statement, names, frame))
                    if statement.is_call and statement.call.results:
                        self.flat.append((statement._replace(opcode=RETURN), names, frame))
                case syntax.Label():
                    if statement.name in names.labels.maps[0]:
                        raise self.error(f"label '{statement.name}' is defined twice", statement.line)
                    names.labels[statement.name] = len(self.flat)
                    label = statement.name
                case syntax.Directive() if statement.text.startswith(".branchtargets"):
                    try:
                        names.tables[label] = syntax.listed(statement.text)
                    except ValueError as error:
                        raise self.error(str(error), statement.line) from error
                case RegDecl():
                    self._registers(statement, names)
                case Variable():
                    self._variable(statement, names)
                case syntax.Scope():
                    self._flatten(statement.body, names.inner(), frame)
                case _:
                    pass

    def _instruction(self, instruction: Instruction, names: NameScope, frame: Frame | None, pc: int) -> Decoded:
        context = Context(instruction, names, self.layout, pc, self.target, self.frames, frame)
        try:
            action = finish(context) if instruction.opcode == RETURN else decode(context)
            guard = instruction.guard
            slot = context.slot(syntax.Register(guard.register)) if guard else None
            if slot is not None and slot.bits != 1:
                context.fail(f"the guard {guard.register if guard else ''} is not a predicate")
            negated = bool(guard and guard.negated)
            polls = self._polls(context)
            used = (tuple(context.reads), tuple(context.writes), tuple(context.places))
            row = context.row
            return Decoded(instruction, action, slot, negated, *used, polls, row, traits(instruction.opcode), context)
        except DecodeError as error:
            raise self.error(str(error), instruction.line, instruction.column) from error

    def _polls(self, context: Context) -> bool:
        again = self.flat[context.label(context.operands[0]) : context.pc] if context.row.root == "bra" else ()
        return any(traits(instruction.opcode).observes_others for instruction, _, _ in again)


# What looks on while a kernel runs: checks, reports and traces.


class Observer(Events):
    """Listens to events, and to the start of each batch of CTAs. Thread numbers and masks are those of the current
    batch, whose `state` it has. With `merges`, batches may run in several processes. `take` returns what such a process
    has collected, and `add` adds that to this observer."""

    merges = False
    state: State
    kernel: DecodedKernel

    def take(self) -> object:
        """What the observer has collected since the last call."""
        return None

    def add(self, kernel: DecodedKernel, taken: object) -> None:
        """Adds what another process took of a kernel's CTAs."""

    def weight(self, shared: int, warps: int) -> int:
        """Bytes that the observer keeps for a CTA of `shared` bytes, in a cluster of so many `warps`."""
        return 0

    def begin(self, state: State, kernel: DecodedKernel) -> None:
        """A batch of CTAs starts."""
        self.state, self.kernel = state, kernel
        self.begun()

    def begun(self) -> None:
        """A batch of CTAs has started, as `begin` says."""

    def end(self) -> None:
        """All threads of the batch have ended."""
