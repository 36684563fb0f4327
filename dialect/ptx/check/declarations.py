"""Checks of declarations: types, sizes, spaces, initialisers, names declared twice, the header, and what declarations
of one name must agree in. Source: PTX ISA 5, 7.1, 11.1 to 11.3, 11.6; where the text leaves it open, what ptxas 13.0.88
takes."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ...isa.row import NEWEST, SPECIAL_REGISTERS, VECTORS, UnknownTargetError, named
from ..text.operands import ADDRESS_VALUE, MASKED_VALUE, ConstantError, OperandError, elements, evaluate
from ..text.syntax import Comment, Directive, Function, Label, Module, RegDecl, Variable, integer
from ..types import OPAQUE_TYPES, REGISTER_BITS, SpaceOf
from ..verifier import TargetContext
from .directives import text_problems

Complaint: TypeAlias = tuple[int, int, str]
"""Line, column, message."""

OPAQUE_SPACES = ("global", "param")
CONSTANT_BYTES = 1 << 16
"""What the .const variables of a module may have together."""
PARAMETER_BYTES = 32764
"""What the parameters of a kernel may have together (5.1.6)."""
PREDEFINED = frozenset((*SPECIAL_REGISTERS, *VECTORS))
VARIABLE_TYPES = (*(name for name in REGISTER_BITS if name != "pred"), *OPAQUE_TYPES)
ACCESS_BITS = 128
"""What a vector may have at most."""
INITIALISED_SPACES = ("global", "const")
UNINITIALISED_TYPES = ("f16", "f16x2")
ADDRESS_TYPES = ("u32", "u64")
"""The types of variables whose initial values may be addresses."""
ATTRIBUTES = re.compile(r"(\.managed|\.unified\(\w+,\w+\))(,(\.managed|\.unified\(\w+,\w+\)))*", re.ASCII)
"""What a variable in .global memory may have."""
RESERVED = ("_", "%", "$", "WARP_SZ")
"""What is no name of a variable or a register (4.4, 4.5.3)."""
B128 = ((8, 3), 70)
OPEN = ((6, 0), 30)
"""What has parameters of open size."""
PARAMETER_ALIGNMENT = 128
"""The largest alignment of a parameter of a .func."""
NARROW_INTEGERS = ("u8", "s8", "u16", "s16", "pred")
"""Types of single parameters that ptxas has no place for in its calls; .b8 and .b16 have one."""


def size_of(variable: Variable) -> int:
    """The size of a variable."""
    bits = REGISTER_BITS.get(variable.type, 64) * variable.vector
    return bits * (1 if variable.count is None else variable.count) // 8


def alignment_of(variable: Variable) -> int:
    """The alignment of a variable: what its address is a multiple of, in bytes."""
    return max(variable.align or 1, REGISTER_BITS.get(variable.type, 64) * variable.vector // 8)


def variable_problems(
    variable: Variable, context: TargetContext, function: Function | None = None, *, scoped: bool = False
) -> Iterator[str]:
    """What is wrong with a variable, or a parameter of a function, by itself."""
    start = f"variable '{variable.name}'"
    space, type = variable.space, variable.type
    unnamed = function is not None and (function.entry or function.name == "_") and variable.name == "_"
    predefined = function is None and not scoped and variable.name in PREDEFINED
    if predefined or (variable.name in RESERVED and not unnamed):
        yield f"{start}: a variable cannot have this name"
    if space == "reg":
        return
    if type == "pred":
        yield f"{start}: a predicate is a register, it has no place in .{space} memory"
        return
    if type not in VARIABLE_TYPES:
        yield f"{start}: '.{type}' is no type of variables; expected one of .{', .'.join(VARIABLE_TYPES)}"
        return
    if "::" in space:
        yield f"{start}: expected .{space.partition('::')[0]} in a declaration, got .{space}"
    if type in OPAQUE_TYPES and space not in OPAQUE_SPACES:
        yield f"{start}: a .{type} is a .global variable or a parameter, got .{space}"
    if type in OPAQUE_TYPES and scoped:
        yield f"{start}: a .{type} stands outside of functions, or is the parameter of a kernel"
    if type == "samplerref" and "texmode_independent" not in context.targets:
        yield f"{start}: a .samplerref needs .target texmode_independent"
    declared = function is not None and function.body is None
    if space == "param" and type == "f16x2" and variable.count is None and not declared:
        yield f"{start}: a parameter is no .f16x2"
    alignment = re.search(r"\.align\s+(\d+)", variable.pointer)
    if alignment and int(alignment[1]).bit_count() != 1:
        yield f"{start}: the alignment must be a power of two, got {alignment[1]}"
    yield from (f"{start}: {message}" for message in _wide(type, variable.vector, context))
    if variable.align is not None and variable.align.bit_count() != 1:
        yield f"{start}: the alignment must be a power of two, got {variable.align}"
    if variable.linking == "common" and space != "global":
        yield f"{start}: .common variables are .global, got .{space}"
    if variable.attribute and not (space == "global" and ATTRIBUTES.fullmatch(variable.attribute)):
        yield f"{start}: '.attribute({variable.attribute})' is not for a .{space} variable"
    yield from (f"{start}: {message}" for message in (*_initial(variable), *_open(variable, function, context)))


def _wide(type: str, vector: int, context: TargetContext) -> Iterator[str]:
    """What is wrong with the width of a type."""
    bits = REGISTER_BITS.get(type, 64)
    if vector > 1 and bits * vector > ACCESS_BITS:
        yield f".v{vector} .{type} has more than {ACCESS_BITS} bits"
    if type == "b128" and (lacking := context.lacks(*B128)):
        yield f".b128 {lacking}"


def _initial(variable: Variable) -> Iterator[str]:
    """What is wrong with an initialiser, or with there being none."""
    if variable.init is None:
        return
    if variable.space not in INITIALISED_SPACES:
        yield f"a .{variable.space} variable has no initial value"
    if variable.linking == "extern":
        yield "an .extern variable has no initial value"
    if variable.type in UNINITIALISED_TYPES:
        yield f"a .{variable.type} variable has no initial value"
        return
    if variable.type in OPAQUE_TYPES:
        if _FIELDS.fullmatch(variable.init) is None:
            yield f"expected the fields of a .{variable.type} as in {{width = 64}}, got {variable.init}"
        return
    try:
        values = [text for _, text in elements(variable)]
    except OperandError as error:
        yield str(error)
        return
    yield from itertools.islice(filter(None, (_value(text, variable.type) for text in values)), 1)


def _value(text: str, type: str) -> str | None:
    """What is wrong with one number of an initialiser."""
    floating = type[0] == "f"
    if text[:2] in ("0f", "0F", "0d", "0D"):
        return None if floating or type[0] == "b" else f"expected integers as initial values of .{type}, got {text}"
    if _is_address(text):
        return None
    try:
        value = evaluate(text)
    except ConstantError as error:
        return str(error)
    if isinstance(value, float) == floating or type[0] == "b":
        return None
    return f"expected {'floats' if floating else 'integers'} as initial values of .{type}, got {text}"


def address_problems(variable: Variable, space_of: SpaceOf) -> Iterator[str]:
    """What is wrong with addresses among the initial values of a variable. `space_of` gives the state space of each
    name that was declared before, "function" for functions."""
    values = (text.strip() for text in re.split(r"[{},]", variable.init or ""))
    for text in values:
        address = variable.type not in OPAQUE_TYPES and _is_address(text)
        if address and (problem := _address(text, variable.type, space_of)):
            yield f"variable '{variable.name}': {problem}"
            return


def _is_address(text: str) -> bool:
    """Whether an initial value is written with a name: `x`, `x+8`, `generic(x)`, `0xFF(x)`."""
    return re.search(r"\w\s*\(|^[A-Za-z_$%]", text) is not None and not text.startswith("WARP_SZ")


def _address(text: str, type: str, space_of: SpaceOf) -> str | None:
    match = MASKED_VALUE.fullmatch(text)
    constant = match is not None and type[0] in "bus" and _is_constant(match["inner"])
    types = ("u8", *ADDRESS_TYPES) if match else ADDRESS_TYPES
    if type not in types and not constant:
        return f"expected a variable of .{', .'.join(types)} for the address {text}, got .{type}"
    if match:
        try:
            mask = integer(match["mask"])
        except ValueError:
            mask = 0
        if mask not in BYTE_MASKS:
            return f"expected a mask of one byte such as 0xFF00, got {match['mask']}"
        if constant:
            return None
        text = match["inner"].strip()
    match = ADDRESS_VALUE.fullmatch(text)
    if match is None:
        return f"'{text}' is no address; expected a name, generic(name), or one of them and +4"
    if (space := space_of(name := match["generic"] or match["name"])) is None:
        return f"'{name}' is not declared above"
    if space == "function":
        alone = not (match["generic"] or match["offset"])
        return None if alone else f"the address of '{name}', a function, is its name alone"
    if space not in INITIALISED_SPACES:
        return f"expected the address of a .global or .const variable, got '{name}', a .{space} variable"
    try:
        return None if isinstance(evaluate(match["offset"] or "0"), int) else f"expected a whole offset, got {text}"
    except ConstantError as error:
        return str(error)


def _is_constant(text: str) -> bool:
    try:
        return isinstance(evaluate(text), int)
    except ConstantError:
        return False


_FIELDS = re.compile(r"\{\s*\w+\s*=\s*\w+\s*(,\s*\w+\s*=\s*\w+\s*)*\}", re.ASCII)
BYTE_MASKS = frozenset(0xFF << 8 * byte for byte in range(8))


def _open(variable: Variable, function: Function | None, context: TargetContext) -> Iterator[str]:
    """Errors of an open array, which must be `.extern`, initialised, or the last parameter of a function."""
    if 0 in variable.extents[1:]:
        yield "only the first extent of an array may be open"
    if variable.count != 0 or variable.init is not None or variable.linking == "extern":
        return
    if function is None or function.entry or all(variable is not last for last in function.parameters[-1:]):
        yield "an array of open size needs .extern or an initialiser"
    elif lacking := context.lacks(*OPEN):
        yield f"an array of open size {lacking}"


@dataclass
class Declarations:
    """What has been declared in one scope."""

    context: TargetContext
    names: set[str] = field(default_factory=set[str])
    groups: set[str] = field(default_factory=set[str])
    labels: set[str] = field(default_factory=set[str])

    def parameters(self, function: Function) -> Iterator[Complaint]:
        """What is wrong with the parameters and results of a function."""
        if len(function.returns) > 1:
            yield function.line, 1, "a function returns at most one value"
        size = sum(map(size_of, function.parameters)) if function.entry else 0
        if size > PARAMETER_BYTES:
            yield function.line, 1, f"the parameters of a kernel have at most {PARAMETER_BYTES} bytes, got {size}"
        for variable in (*function.returns, *function.parameters):
            if function.body is not None:  # without one there is no scope in which names could mean two things
                yield from self._twice(variable.line, variable.column, (variable.name,))
            problems = _entry_problems if function.entry else _function_problems
            messages = (*variable_problems(variable, self.context, function), *problems(variable, function))
            yield from ((variable.line, variable.column, message) for message in messages)

    def declaration(self, declared: RegDecl | Variable) -> Iterator[Complaint]:
        """What is wrong with a declaration inside a function."""
        if isinstance(declared, Variable):
            yield from self._twice(declared.line, declared.column, (declared.name,))
            messages: Iterable[str] = variable_problems(declared, self.context, scoped=True)
            if declared.linking:
                messages = (*messages, f"variable '{declared.name}': .{declared.linking} stands outside of functions")
        else:
            yield from self._registers(declared)
            messages = _wide(declared.type, declared.vector, self.context)
            if declared.type == "pred" and declared.vector > 1:
                messages = (*messages, "predicates make no vectors")
        yield from ((declared.line, declared.column, message) for message in messages)

    def _registers(self, declared: RegDecl) -> Iterator[Complaint]:
        if declared.name in RESERVED and declared.count is None:
            yield declared.line, declared.column, f"a register cannot have the name '{declared.name}'"
        if declared.count is None:
            yield from self._twice(declared.line, declared.column, (declared.name,))
        elif declared.name in self.groups:
            yield declared.line, declared.column, f"'{declared.name}<{declared.count}>' is declared twice"
        else:
            self.groups.add(declared.name)
            yield from self._twice(declared.line, declared.column, declared.names())

    def label(self, label: Label) -> Iterator[Complaint]:
        """Whether a label is defined twice."""
        if label.name in RESERVED:
            yield label.line, 1, f"a label cannot have the name '{label.name}'"
        if label.name in self.labels:
            yield label.line, 1, f"label '{label.name}' is defined twice"
        self.labels.add(label.name)
        yield from self._twice(label.line, 1, (label.name,))

    def _twice(self, line: int, column: int, names: tuple[str, ...]) -> Iterator[Complaint]:
        if again := next((name for name in names if name in self.names and name != "_"), None):
            yield line, column, f"'{again}' is declared twice in this scope"
        self.names.update(names)


def _entry_problems(variable: Variable, _: Function) -> Iterator[str]:
    """What is wrong with a variable as a parameter of a kernel."""
    start = f"parameter '{variable.name}'"
    if variable.space != "param":
        yield f"{start}: the parameters of a kernel are .param, got .{variable.space}"
    elif variable.vector > 1:
        yield f"{start}: the parameters of a kernel are no vectors"
    elif variable.dimensions:
        yield f"{start}: a parameter has one extent, got {len(variable.dimensions)}"


def _function_problems(variable: Variable, function: Function) -> Iterator[str]:
    """What is wrong with a variable as a parameter of a .func, or as what it returns (5.1.6.4, 11.2.2)."""
    start = f"parameter '{variable.name}'"
    space, single = variable.space, variable.count is None
    if space not in ("param", "reg"):
        yield f"{start}: the parameters of a function are .param or .reg, got .{space}"
    if variable.pointer:
        yield f"{start}: {variable.pointer} is for the parameters of kernels"
    if variable.dimensions:
        yield f"{start}: a parameter has one extent, got {len(variable.dimensions)}"
    if (variable.align or 1) > PARAMETER_ALIGNMENT:
        yield f"{start}: the alignment of a parameter is at most {PARAMETER_ALIGNMENT}, got {variable.align}"
    if space == "reg" and (not single or variable.type not in REGISTER_BITS):
        yield f"{start}: a register is of a type of registers, and no array"
    defined = function.body is not None and single
    if defined and space == "param" and (variable.vector > 1 or variable.type in OPAQUE_TYPES):
        yield f"{start}: a parameter in .param is a number or an array of numbers"
    if defined and variable.type in NARROW_INTEGERS:
        yield f"{start}: ptxas passes no .{variable.type} to a function, expected .b8, .b16 or a wider type"


TARGET_OPTIONS = ("debug", "texmode_unified", "texmode_independent", "map_f64_to_f32")
DOUBLES = 13
"""The first target number that has f64."""
Item: TypeAlias = Function | Variable


def module_problems(module: Module, context: TargetContext) -> Iterator[Complaint]:
    """What is wrong with the header and the variables of a module, and with names that are declared several times."""
    if context.targets == module.targets:
        yield from ((*module.target_at, message) for message in _target_problems(module, context))
    items: dict[str, Item] = {}
    aliases: dict[str, str] = {}
    files: dict[int, str] = {}
    constants = 0
    for item in module.items:
        if isinstance(item, Comment):
            continue
        if isinstance(item, Directive):
            yield from ((item.line, 1, message) for message in text_problems(item.text, context, "module"))
            if file := _FILE.match(item.text):
                if (index := integer(file[1])) in files:
                    yield item.line, 1, f".file: {index} stands for '{files[index]}' already"
                files.setdefault(index, file[2])
            if item.text.startswith(".alias"):
                yield from ((item.line, 1, message) for message in _alias_problems(item.text, items, aliases))
            continue
        place = (item.line, item.column if isinstance(item, Variable) else 1)
        earlier = items.get(item.name)
        yield from ((*place, message) for message in _conflicts(earlier, item))
        if earlier is None or not _defined(earlier):
            items[item.name] = item
        if isinstance(item, Variable):
            constants += size_of(item) if item.space == "const" and _defined(item) else 0
            messages = [*variable_problems(item, context), *address_problems(item, lambda name: _space(items, name))]
            if item.space in ("local", "param"):
                messages.append(f"variable '{item.name}': a .{item.space} variable stands inside a function")
            if constants > CONSTANT_BYTES and item.space == "const":
                messages.append(f"the .const variables have at most {CONSTANT_BYTES} bytes together, got {constants}")
            yield from ((*place, message) for message in messages)
    for item in items.values():
        if isinstance(item, Function) and item.name not in aliases and not (_defined(item) or item.linking == "extern"):
            yield item.line, 1, f"function '{item.name}' has no body here; one of another module is .extern (11.6.1)"


def version_notes(module: Module) -> Iterator[Complaint]:
    """A note for a module whose PTX version is newer than the rows."""
    if module.version > NEWEST:
        text = "PTX {}.{} is newer than what is known; the module is judged as PTX {}.{}"
        yield *module.version_at, text.format(*module.version, *NEWEST)


_FILE = re.compile(r'\.file\s+(\d\w*)\s+"([^"]*)"', re.ASCII)


def _target_problems(module: Module, context: TargetContext) -> Iterator[str]:
    options = set(module.targets).intersection(TARGET_OPTIONS)
    if module.targets[0] in options:
        yield f"expected a target such as sm_90a in front of {module.targets[0]}"
    if options.issuperset(("texmode_unified", "texmode_independent")):
        yield "texmode_unified and texmode_independent exclude each other"
    sections = (item.text for item in module.items if isinstance(item, Directive))
    if "debug" in options and not any(re.match(r"\.section\s+\.debug", text) for text in sections):
        yield "debug needs a .section of debugging information, there is none"
    if "map_f64_to_f32" in options and any(target.sm >= DOUBLES for target in context.rows):
        yield f"map_f64_to_f32 is for targets before sm_{DOUBLES}, which have no f64"
    for name in module.targets:
        if name in TARGET_OPTIONS:
            continue
        try:
            target = named(name)
        except UnknownTargetError as error:
            yield str(error)
            continue
        if module.version < target.ptx:
            yield "target {} needs PTX {}.{} or later, the module's version is {}.{}".format(
                name, *target.ptx, *module.version
            )


def _space(items: Mapping[str, Item], name: str) -> str | None:
    item = items.get(name)
    return item and (item.space if isinstance(item, Variable) else "function")


def _defined(item: Item) -> bool:
    """Whether a declaration is the definition of its name."""
    return item.body is not None if isinstance(item, Function) else item.linking != "extern"


def _conflicts(earlier: Item | None, item: Item) -> Iterator[str]:
    """What is wrong with a declaration beside the one above it that has its name."""
    if isinstance(item, Function) and item.linking == "extern" and _defined(item):
        yield f"function '{item.name}' is .extern, which has no body"
    if earlier is None:
        return
    if isinstance(item, Function) and isinstance(earlier, Function) and item.entry == earlier.entry:
        what, shape = "function", _signature(item) == _signature(earlier)
        redefined = _defined(earlier)
        inherits = earlier.linking != "extern" and not item.linking
        linked = inherits or item.linking == earlier.linking
    elif isinstance(item, Variable) and isinstance(earlier, Variable):
        what, shape = "variable", _one_shape(item, earlier)
        redefined = _defined(item) and _defined(earlier)
        linked = bool(item.linking) or _defined(earlier)
    else:
        yield f"'{item.name}' was declared as another kind of thing"
        return
    if redefined:
        yield f"{what} '{item.name}' is defined twice"
    elif not shape:
        yield f"{what} '{item.name}' was declared with {'other parameters' if what == 'function' else 'another type'}"
    elif not linked:
        linking = [f".{linking}" if linking else "no linking" for linking in (earlier.linking, item.linking)]
        yield f"{what} '{item.name}' was declared with {linking[0]}, got {linking[1]}"


def _signature(function: Function) -> tuple[object, ...]:
    """What all declarations of a function have alike."""
    parameters = (
        tuple((v.space, v.type, v.count, v.vector, alignment_of(v)) for v in some)
        for some in (function.returns, function.parameters)
    )
    return (*parameters, ".noreturn" in function.directives)


def _one_shape(a: Variable, b: Variable) -> bool:
    """Whether two declarations of a variable agree; an open extent is of any size."""
    sizes = a.extents[:1], b.extents[:1]
    return (a.type, a.vector, len(a.extents), a.extents[1:]) == (b.type, b.vector, len(b.extents), b.extents[1:]) and (
        sizes[0] == sizes[1] or (0,) in sizes
    )


_ALIAS = re.compile(r"\.alias\s+([\w$%]+)\s*,\s*([\w$%]+)\s*;", re.ASCII)


def _alias_problems(text: str, items: Mapping[str, Item], aliases: dict[str, str]) -> Iterator[str]:
    """What is wrong with an alias (11.2.3)."""
    match = _ALIAS.fullmatch(text)
    if match is None:
        yield f"expected two functions as in .alias name, function;, got {text}"
        return
    alias, function = items.get(match[1]), items.get(match[2])
    if not isinstance(alias, Function) or alias.entry or _defined(alias) or match[1] in aliases:
        yield f"expected the declaration of a .func without a body as the alias, got '{match[1]}'"
    elif not isinstance(function, Function) or function.entry or function.linking in ("extern", "weak"):
        yield f"expected a .func of this module above, neither .extern nor .weak, got '{match[2]}'"
    elif _signature(alias) != _signature(function):
        yield f"'{match[1]}' has other parameters than '{match[2]}'"
    aliases[match[1]] = match[2]
