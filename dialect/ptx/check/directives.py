"""Checks of directives and variables by themselves: directives of functions, pragmas, places in source files, sections;
types, sizes, spaces, initial values. Source: PTX ISA 5 and 11. Where the text leaves it open, what ptxas 13.5 takes."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ...isa.row import SPECIAL_REGISTERS, VECTORS, Version
from ..text.operands import ADDRESS_VALUE, MASKED_VALUE, ConstantError, SpaceOf, evaluate
from ..text.reader import OperandError, elements
from ..text.syntax import OPAQUE_TYPES, REGISTER_BITS, Function, Variable, directive_numbers, integer
from ..verifier import TargetContext

UNIFIED = ((8, 0), 90)

# Are directives between a function's header and its body ones that PTX has, with the numbers that they take.
# Source: PTX ISA 11.4 and 11.7.


@dataclass(frozen=True)
class DirectiveRow:
    """A directive of a function. It takes `minimum` to `most` numbers, which may be 0 if `zero`. `entry` says whether
    kernels or other functions may have it, None that both may. It cannot occur with the directives in `without`, and
    needs one of `beside`. No number is above `top`."""

    name: str
    minimum: int
    maximum: int
    zero: bool = False
    entry: bool | None = True
    version: Version = (1, 0)
    sm: int = 0
    without: tuple[str, ...] = ()
    together: tuple[str, ...] = ()
    top: int = (1 << 32) - 1

    @property
    def form(self) -> str:
        counts = f"{self.minimum} to {self.maximum} numbers" if self.minimum < self.maximum else (
            f"{self.maximum or 'no'} number{'' if self.maximum == 1 else 's'}"
        )  # fmt: skip
        return counts if self.zero or not self.maximum else f"{counts} above 0"


MAX = (1 << 32) - 1
_CLUSTERS = ((7, 8), 90)
ABI_REGISTERS = 254, 15
"""The most registers, and the most predicates, that a function preserves."""

ROWS = (
    DirectiveRow(".maxnreg", 1, 1),
    DirectiveRow(".maxntid", 1, 3, without=(".reqntid",)),
    DirectiveRow(".reqntid", 1, 3),
    DirectiveRow(".minnctapersm", 1, 1),
    DirectiveRow(".reqnctapercluster", 1, 3, True, True, *_CLUSTERS),
    DirectiveRow(".maxclusterrank", 1, 1, True, True, *_CLUSTERS, without=(".reqnctapercluster",)),
    DirectiveRow(".explicitcluster", 0, 0, True, True, *_CLUSTERS),
    DirectiveRow(".blocksareclusters", 0, 0, True, True, (9, 0), 90, together=(".reqntid", ".reqnctapercluster")),
    DirectiveRow(".minperctamemory", 1, 1, True, True, (9, 4)),
    DirectiveRow(".local_maxnreg", 1, 1, entry=None),
    DirectiveRow(".noreturn", 0, 0, entry=False, version=(6, 4), sm=30),
    DirectiveRow(".abi_preserve", 1, 1, True, False, (9, 0), 80, top=ABI_REGISTERS[0]),
    DirectiveRow(".abi_preserve_control", 1, 1, True, False, (9, 0), 80, top=ABI_REGISTERS[1]),
)
_BY_NAME = {row.name: row for row in ROWS}


def directive_problems(text: str, function: Function, context: TargetContext) -> Iterator[str]:
    """What is wrong with a directive of a function."""
    name = text.split()[0]
    row = _BY_NAME.get(name)
    if name.startswith(".attribute("):
        if function.entry or ".unified" not in text or context.lacks(*UNIFIED):
            yield f"{text} is for a .func of PTX 8.0 and sm_90 or later, and is .unified(uuid1, uuid2)"
    elif name == ".language":
        yield from (f".language: {problem}" for problem in _language_problems(text))
    elif name == ".pragma":
        yield from text_problems(text, context, "header")
        if not function.entry:
            yield "'.pragma' does not follow the header of a .func"
    elif row is None:
        directives = ", ".join(row.name for row in ROWS if row.entry in (None, function.entry))
        yield f"'{name}' does not follow the header of a function; {directives} and .pragma do"
    elif problem := _problem(row, text, function, context):
        yield f"{name}: {problem}"


LANGUAGES = (
    "unknown", "", "", "ptx", "nvvm", "cuda c++", "cuda c++ tile", "tile ir", "python-cutile", "fortran", "optix",
)  # fmt: skip
"""What a function is written in, by number (PTX ISA 9.4, 11.8.2). ptxas takes the directive in every version."""


def _language_problems(text: str) -> Iterator[str]:
    for item in re.split(r"\s*,\s*", text.partition(" ")[2].strip()):
        if item[:1] == '"':
            if item[1:-1].lower() not in LANGUAGES or item == '""':
                yield f"{item} is no language; expected one of {', '.join(filter(None, LANGUAGES))}"
        elif not item[:1].isdigit() or not 0 <= integer(item) < len(LANGUAGES):
            yield f"expected strings or numbers from 0 to {len(LANGUAGES) - 1}, got {item or 'none'}"


def _problem(row: DirectiveRow, text: str, function: Function, context: TargetContext) -> str:
    if row.entry not in (None, function.entry):
        return f"expected it at {'an .entry' if row.entry else 'a .func'}, got it at '{function.name}'"
    if row.name == ".noreturn" and function.returns:
        return "the function returns a value"
    if row.name == ".noreturn" and function.directives.count(text) > 1:
        return "it stands twice"
    if lacking := context.lacks(row.version, row.sm):
        return lacking
    numbers = directive_numbers(text)
    if numbers is None or not row.minimum <= len(numbers) <= row.maximum or (0 in numbers and not row.zero):
        return f"expected {row.form}, got {' '.join(text.split()[1:]) or 'none'}"
    if any(number > row.top for number in numbers):
        return f"expected numbers up to {row.top}, got {max(numbers)}"
    others = {text.split()[0] for text in function.directives}
    if conflict := next((name for name in row.without if name in others), ""):
        return f"cannot stand with {conflict}"
    if missing := next((name for name in row.together if name not in others), ""):
        return f"needs {missing} beside it"
    return ""


# Is a `.pragma` a list of strings, and does each that PTX has stand where it may, with the number that it takes.
# Source: PTX ISA 11.4.7; others are ignored inside functions.


@dataclass(frozen=True)
class PragmaRow:
    """A pragma: the version that introduced it, whether a number follows, the least number, and its legal places."""

    name: str
    version: Version = (2, 0)
    number: bool = False
    minimum: int | None = None
    places: tuple[str, ...] = ("body",)


PRAGMAS = (
    PragmaRow("nounroll", places=("module", "header", "body")),
    PragmaRow("abi_param_reg", places=("module", "header")),
    PragmaRow("used_bytes_mask", (8, 3), number=True),
    PragmaRow("enable_smem_spilling", (8, 7)),
    PragmaRow("frequency", (9, 0), number=True, minimum=1),
    PragmaRow("mma_throughput", (9, 3)),
)
_STRING = r'"[^"\n]*"'
_PRAGMA = re.compile(rf"\.pragma\s*{_STRING}(?:\s*,\s*{_STRING})*\s*;", re.ASCII)


def text_problems(text: str, context: TargetContext, where: str) -> Iterator[str]:
    """What is wrong with a directive by itself: of a "module", or of a function's "header" or "body"."""
    name = (re.match(r"\.\w+", text) or [""])[0]
    if where == "body" and name in (".file", ".section", ".alias"):
        yield f"'{name}' stands outside of functions"
    elif name in _SOURCES:
        yield from _source_problems(name, text)
    elif name == ".section":
        yield from _section_problems(text)
    elif name == ".loc_intermediate" and (lacking := context.lacks((9, 4))):
        yield f".loc_intermediate {lacking}"
    elif name == ".pragma":
        if _PRAGMA.fullmatch(text) is None:
            yield f'expected strings such as .pragma "nounroll";, got {text}'
            return
        for quoted in re.findall(_STRING, text):
            if problem := _pragma(quoted[1:-1], context, where):
                yield f".pragma {quoted}: {problem}"


def _pragma(text: str, context: TargetContext, where: str) -> str:
    name, _, value = text.partition(" ")
    row = next((row for row in PRAGMAS if row.name == name), None)
    if row is None or (where == "module" and row.name == "nounroll" and value):
        return "" if where != "module" else f"a module has no such pragma; expected {' or '.join(_MODULE_PRAGMAS)}"
    if where not in row.places:
        return f"it stands in the {' or '.join(row.places)} of a function, not in its {where}"
    if lacking := context.lacks(row.version):
        return lacking
    if not row.number:
        return ""
    try:
        number = integer(value.strip())
    except ValueError:
        return f"expected a number, got '{value}'"
    return "" if row.minimum is None or number >= row.minimum else f"expected a number from {row.minimum}, got {number}"


_MODULE_PRAGMAS = tuple(row.name for row in PRAGMAS if "module" in row.places)


# Do places in source files have their numbers, and sections the data that they may. Source: PTX ISA 11.5.

_PLACE = r"(?:\s+\d\w*){3}"
_SOURCES = {
    ".loc": re.compile(
        rf"\.loc{_PLACE}(?:\s*,\s*function_name\s+[.\w$]+(?:\s*\+\s*\w+)?\s*,\s*inlined_at{_PLACE})?", re.ASCII
    ),
    ".file": re.compile(rf"\.file\s+\d\w*\s+{_STRING}(?:\s*,\s*\d\w*){{0,2}}", re.ASCII),
}
_SECTION = re.compile(r"\.section\s+\.[a-zA-Z_$][\w$]*\s*\{(?P<data>[^}]*)\}", re.ASCII)
_LABELS = re.compile(r"[\w$]+\s*:", re.ASCII)
_NAME = re.compile(r"[.\w$]+(?:\s*[+-]\s*[.\w$]+)?", re.ASCII)
SECTION_BITS = {"b8": 8, "b16": 16, "b32": 32, "b64": 64}
"""Types of data in sections; addresses have 32 or 64 bits."""


def _source_problems(name: str, text: str) -> Iterator[str]:
    if _SOURCES[name].fullmatch(text) is None:
        form = '.file 1 "name"' if name == ".file" else ".loc file line column, or , function_name name, inlined_at ..."
        yield f"expected {form}, got {text}"
    elif any(integer(number) > MAX for number in re.findall(r"\s(\d\w*)", text.partition(",")[0])):
        yield f"{name}: expected numbers of 32 bits, got {text}"


def _section_problems(text: str) -> Iterator[str]:
    section = _SECTION.fullmatch(text)
    if section is None:
        yield f"expected a section such as .section .debug_str {{ .b8 0 }}, got {text[:60]}"
        return
    first, *data = re.split(r"(?<![\w$])\.([bsuf]\d+)\b", _LABELS.sub(" ", section["data"]))
    if first.strip():
        yield f".section: expected data such as .b8 0, got {first.strip()}"
    for type, values in zip(data[::2], data[1::2], strict=True):
        bits = SECTION_BITS.get(type, 0)
        if not bits:
            yield f".section: expected .b8, .b16, .b32 or .b64, got .{type}"
        for value in map(str.strip, values.split(",") if bits else ()):
            if re.fullmatch(r"-?\d\w*", value):
                if not -(1 << bits - 1) <= integer(value) < 1 << bits:
                    yield f".section: expected a number of {bits} bits for .{type}, got {value}"
            elif bits < 32 or _NAME.fullmatch(value) is None or value[0].isdigit():
                yield f".section: expected numbers{' or addresses' * (bits >= 32)} for .{type}, got {value or 'none'}"


# Is a variable, or a parameter, one that PTX has: its type, its size, its space, its initial values.
# Source: PTX ISA 5, 7.1, 11.6; where the text leaves it open, what ptxas 13.0.88 takes.

RESERVED = ("_", "%", "$", "WARP_SZ")
"""What is no name of a variable or a register (4.4, 4.5.3)."""
OPAQUE_SPACES = ("global", "param")
PREDEFINED = frozenset((*SPECIAL_REGISTERS, *VECTORS))
VARIABLE_TYPES = (*(name for name in REGISTER_BITS if name != "pred"), *OPAQUE_TYPES)
INITIALISED_SPACES = ("global", "const")
UNINITIALISED_TYPES = ("f16", "f16x2")
ADDRESS_TYPES = ("u32", "u64")
"""The types of variables whose initial values may be addresses."""
ATTRIBUTES = re.compile(r"(\.managed|\.unified\(\w+,\w+\))(,(\.managed|\.unified\(\w+,\w+\)))*", re.ASCII)
"""What a variable in .global memory may have."""
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
    yield from (f"{start}: {message}" for message in context.width_problems(type, variable.vector))
    if variable.align is not None and variable.align.bit_count() != 1:
        yield f"{start}: the alignment must be a power of two, got {variable.align}"
    if variable.linking == "common" and space != "global":
        yield f"{start}: .common variables are .global, got .{space}"
    if variable.attribute and not (space == "global" and ATTRIBUTES.fullmatch(variable.attribute)):
        yield f"{start}: '.attribute({variable.attribute})' is not for a .{space} variable"
    yield from (f"{start}: {message}" for message in (*_initial(variable), *_open(variable, function, context)))


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


def parameter_problems(variable: Variable, function: Function, context: TargetContext) -> Iterator[str]:
    """What is wrong with a parameter of a function, or with what it returns."""
    yield from variable_problems(variable, context, function)
    yield from _kernel_parameter(variable) if function.entry else _function_parameter(variable, function)


def _kernel_parameter(variable: Variable) -> Iterator[str]:
    """What is wrong with a variable as a parameter of a kernel."""
    start = f"parameter '{variable.name}'"
    if variable.space != "param":
        yield f"{start}: the parameters of a kernel are .param, got .{variable.space}"
    elif variable.vector > 1:
        yield f"{start}: the parameters of a kernel are no vectors"
    elif variable.dimensions:
        yield f"{start}: a parameter has one extent, got {len(variable.dimensions)}"


def _function_parameter(variable: Variable, function: Function) -> Iterator[str]:
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
