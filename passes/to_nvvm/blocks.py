"""Basic blocks of a PTX function, and its registers as values: block arguments where several definitions meet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects import llvm
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialect.ptx.instruction import InstOp
from ...dialect.ptx.instructions import traits
from ...dialect.ptx.ops import DirectiveOp, FuncOp, LabelOp, ScopeOp, VarOp
from ..diagnostics import fail

JUMPS = ("bra", "ret", "exit")


@dataclass(eq=False)
class Node:
    """A basic block: its instructions, then a jump to `next`, or to `taken` where the guard of `branch` holds. A node
    without successors returns."""

    block: Block = field(default_factory=Block)
    instructions: list[InstOp] = field(default_factory=list[InstOp])
    branch: SSAValue | None = None
    negated: bool = False
    taken: Node | None = None
    next: Node | None = None
    predecessors: list[Node] = field(default_factory=list["Node"])
    defined: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])

    @property
    def successors(self) -> tuple[Node, ...]:
        return tuple(node for node in (self.taken, self.next) if node is not None)


def flattened(ops: Iterable[Operation]) -> Iterator[Operation]:
    """The statements of a body and of the scopes inside it."""
    for op in ops:
        if isinstance(op, ScopeOp):
            yield from flattened(list(op.body.block.ops))
        else:
            yield op


class Splitter:
    """Divides a function into nodes."""

    def __init__(self, function: FuncOp) -> None:
        self.statements = list(flattened(function.body.block.ops))
        self.labels = {op.text.data: Node() for op in self.statements if isinstance(op, LabelOp)}
        self.current = Node()
        self.nodes = [self.current]

    def split(self) -> list[Node]:
        """The nodes of the function that can be reached, the first one the entry, in the order of the text."""
        for op in self.statements:
            match op:
                case LabelOp():
                    self._fall_into(self.labels[op.text.data])
                case InstOp():
                    self._instruction(op)
                case DirectiveOp() if op.text.data.startswith(".loc"):
                    pass
                case DirectiveOp():
                    fail(op, f"there is nothing in LLVM for '{op.text.data}'")
                case VarOp() if op.variable.space != "shared":
                    fail(op, f"a variable of a function in .{op.variable.space} is not converted")
                case _:
                    pass
        reachable = self._reachable()
        for node in reachable:
            for successor in node.successors:
                successor.predecessors.append(node)
        return reachable

    def _fall_into(self, node: Node) -> None:
        self.current.next = node
        self._begin(node)

    def _begin(self, node: Node) -> None:
        self.current = node
        self.nodes.append(node)

    def _instruction(self, op: InstOp) -> None:
        opcode, form, guard = op.spelling()
        root = traits(opcode).root
        if root in ("brx", "call"):
            fail(op, f"{root} is not converted: a kernel is printed without tables of labels and calls")
        if root not in JUMPS:
            return self._computation(op, guard)
        target = self.labels[form] if root == "bra" else None
        if not guard:
            self.current.next = target
            return self._begin(Node())
        node = self.current
        node.branch, node.negated = op.operands[0], guard == "@!"
        if target is None:
            target = Node()
            self.nodes.append(target)
        node.taken = target
        self._fall_into(Node())

    def _computation(self, op: InstOp, guard: str) -> None:
        """One under a guard is a node of its own, with its neighbours of the same guard."""
        if not guard:
            self.current.instructions.append(op)
            return
        last = self.nodes[-2] if len(self.nodes) > 1 else None
        if last is not None and not self.current.instructions and _same_guard(last, op, self.current):
            last.instructions.append(op)
            return
        before, guarded, behind = self.current, Node(instructions=[op]), Node()
        before.branch, before.negated = op.operands[0], guard == "@!"
        before.taken, before.next = guarded, behind
        guarded.next = behind
        self.nodes.append(guarded)
        self._begin(behind)

    def _reachable(self) -> list[Node]:
        seen, left = {self.nodes[0]}, [self.nodes[0]]
        while left:
            for node in left.pop().successors:
                if node not in seen:
                    seen.add(node)
                    left.append(node)
        return [node for node in self.nodes if node in seen]


def _same_guard(node: Node, op: InstOp, behind: Node) -> bool:
    """Whether a node has instructions with the guard of another one, and none of them changes it."""
    if node.next is not behind or not node.instructions:
        return False
    first = node.instructions[0]
    if not first.guard or first.guard.data != op.spelling()[2] or first.operands[0] is not op.operands[0]:
        return False
    return all(op.operands[0] not in each.operands[1:] for each in node.instructions)


# Registers as values: an argument of a block where several definitions meet.
#
# Source: M. Braun et al., Simple and Efficient Construction of Static Single Assignment Form, 2013.


def in_order(entry: Node) -> list[Node]:
    """The nodes in reverse postorder: one with a single predecessor follows it."""
    seen, order = {entry}, list[Node]()
    stack = [(entry, iter(entry.successors))]
    while stack:
        node, successors = stack[-1]
        successor = next((each for each in successors if each not in seen), None)
        if successor is None:
            order.append(node)
            stack.pop()
        else:
            seen.add(successor)
            stack.append((successor, iter(successor.successors)))
    return order[::-1]


class Registers:
    """The values of registers: the last definition within a node, a block argument where definitions meet."""

    def __init__(self, nodes: Sequence[Node], type_of: Callable[[SSAValue], Attribute]) -> None:
        """`nodes` begin with the entry."""
        self.order = in_order(nodes[0])
        self.nodes = nodes
        self.node = nodes[0]
        self._type_of = type_of
        self._arguments: list[tuple[Node, SSAValue, BlockArgument]] = []
        self._conditions: dict[Node, SSAValue] = {}

    def fill(self, write: Callable[[Node], None]) -> None:
        """Has each node written, in order; then adds the jumps between them."""
        for node in self.order:
            self.node = node
            write(node)
            if node.branch is not None:
                self._conditions[node] = self.read(node.branch)
        passed: dict[BlockArgument, list[SSAValue]] = {}
        for node, register, argument in self._arguments:  # which the loop itself makes longer
            passed[argument] = [self._at(above, register) for above in node.predecessors]
        self._drop_same(passed)
        for node in self.nodes:
            node.block.add_op(self._jump(node, passed))

    def _drop_same(self, passed: dict[BlockArgument, list[SSAValue]]) -> None:
        """Replaces the arguments that are given one value, or themselves, by that value, until none is left."""
        same: dict[SSAValue, SSAValue] = {}

        def settled(value: SSAValue) -> SSAValue:
            while value in same:
                value = same[value]
            return value

        dropped = True
        while dropped:
            dropped = False
            for argument, values in passed.items():
                others = {settled(value) for value in values} - {argument}
                if argument not in same and len(others) == 1:
                    (same[argument],) = others
                    dropped = True
        for argument in same:
            argument.replace_all_uses_with(settled(argument))
        for argument, values in list(passed.items()):
            passed[argument] = [settled(value) for value in values]
            if argument in same:
                argument.block.erase_arg(argument)
        self._conditions = {node: settled(value) for node, value in self._conditions.items()}

    def write(self, register: SSAValue, value: SSAValue) -> None:
        self.node.defined[register] = value

    def read(self, register: SSAValue) -> SSAValue:
        return self._at(self.node, register)

    def _at(self, node: Node, register: SSAValue) -> SSAValue:
        """The value of a register at the end of a node."""
        unresolved: list[Node] = []
        while (value := node.defined.get(register)) is None:
            unresolved.append(node)
            if node is self.order[0]:
                value = self._undefined(node, register)
                break
            if len(node.predecessors) > 1:
                value = node.block.insert_arg(self._type_of(register), len(node.block.args))
                self._arguments.append((node, register, value))
                break
            (node,) = node.predecessors
        for each in unresolved:
            each.defined.setdefault(register, value)
        return value

    def _undefined(self, node: Node, register: SSAValue) -> SSAValue:
        op = llvm.UndefOp(self._type_of(register))
        Rewriter.insert_op(op, InsertPoint.at_start(node.block))
        return op.res

    def _jump(self, node: Node, passed: Mapping[BlockArgument, Sequence[SSAValue]]) -> Operation:
        def arguments_of(to: Node) -> list[SSAValue]:
            place = to.predecessors.index(node)
            return [passed[argument][place] for argument in to.block.args]

        if node.next is None and node.taken is None:
            return llvm.ReturnOp()
        if node.branch is None or node.taken is None or node.next is None:
            target = next(iter(node.successors))
            return llvm.BrOp(target.block, *arguments_of(target))
        first, second = (node.next, node.taken) if node.negated else (node.taken, node.next)
        condition = self._conditions[node]
        return llvm.CondBrOp(condition, first.block, arguments_of(first), second.block, arguments_of(second))
