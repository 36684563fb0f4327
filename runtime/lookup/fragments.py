"""Fragments by name, drawn in a terminal, and the conversions between them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.style import Style
from rich.text import Text

from ...dialect.isa.form import ELEMENT_TYPES, Form
from ...dialect.isa.mma import LoadMatrix, Mma, StoreMatrix
from ...dialect.isa.wgmma import Wgmma
from ...dialect.layouts.layout import Layout
from ...dialect.layouts.pictures import Panel, Picture, colour, span
from ...dialect.ptx.instructions import FAMILIES, family, matrix_form
from ...dialect.warp.conversions import Conversion, LayoutMismatchError, convert, tiled
from ..base.errors import WarploomError

OPERANDS = {
    "metadata": "e",
    "scale-a": "scale_a",
    "scale-b": "scale_b",
    "sfa": "scale_a",
    "sfb": "scale_b",
    "selector_a": "scale_a",
    "selector_b": "scale_b",
}
"""Other names of operands."""

SHOWN = 6
"""How many names an error lists."""


@dataclass(frozen=True)
class Fragment:
    """An operand of one instruction, or of several in which it has the same layout. `forms` has all of them."""

    operand: str
    layout: Layout
    forms: tuple[Form, ...]

    @property
    def form(self) -> Form:
        """The first form."""
        return self.forms[0]

    @property
    def name(self) -> str:
        """What it is called: "mma.m16n8k16.f16, operand A"."""
        return f"{short(self.form, self.operand)}, operand {shown(self.operand)}"


def shown(operand: str) -> str:
    """An operand's name in titles: one letter is a capital."""
    return operand.upper() if len(operand) == 1 else operand


def short(form: Form, operand: str = "a") -> str:
    """A short name of a form's operand that `find` accepts: "mma.m16n8k16.f16"."""
    if isinstance(form, Wgmma):
        name = "wgmma.mma_async.sp" if form.sparse else "wgmma.mma_async"
        return ".".join([name, str(form.shape), *dict.fromkeys((form.a.name, form.b.name))])
    if not isinstance(form, Mma):
        dropped = {"sync", "aligned", "shared", "shared::cta"}
        return ".".join(word for word in form.spelling.split(".") if word not in dropped)
    words = ["mma.sp" if form.sparse else "mma", str(form.shape)]
    if form.products > 1:
        words += [form.a_layout, form.b_layout]
    if form.kind:
        words.append(f"kind::{form.kind}")
    if operand.startswith("scale") and form.scale and form.scale.written:
        words.append(f"scale_vec::{form.scale.vector}X")
    words += [form.a.name] if form.a == form.b else [form.a.name, form.b.name]
    if operand in ("c", "d") and form.products > 1:
        words = [*words[:-1], form.d.name, form.a.name, form.b.name, form.c.name]
    return ".".join(words)


def find(instruction: str, operand: str) -> Fragment:
    """The fragment of an operand of an instruction: `mma.m16n8k16.f16`, a full spelling, or a shape that says all.
    Raises WarploomError if there is no such instruction or operand, or if there are several; it names the nearest."""
    wanted = OPERANDS.get(operand.lower(), operand.lower())
    exact = matrix_form(instruction)
    forms = forms_of(instruction)
    having = tuple(form for form in forms if wanted in form.layouts)
    if not having:
        raise WarploomError(_no_operand(instruction, operand, forms))
    groups = _by_layout(having if exact else _of_type(having, instruction, wanted), wanted)
    if len(groups) > 1:
        names = dict.fromkeys(short(group[0], wanted) for group in groups.values())
        raise WarploomError(
            f"operand {shown(wanted)} is not the same in all forms of '{instruction}'; say which: {some(names)}"
        )
    (match,) = ((key, group) for key, group in groups.items())
    return Fragment(wanted, match[0], tuple(match[1]))


def forms_of(instruction: str) -> tuple[Form, ...]:
    """The forms of a full spelling, or all forms that contain the given words. Raises WarploomError if there is none,
    with the nearest ones."""
    exact = matrix_form(instruction)
    return (exact,) if exact else _matching(instruction)


def some(names: Iterable[str]) -> str:
    """As many names as an error lists, and how many more there are."""
    names = list(names)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _no_operand(instruction: str, operand: str, forms: Sequence[Form]) -> str:
    names = dict.fromkeys(name for form in forms for name in form.layouts)
    if not names:
        return f"fragments of '{instruction}' are opaque: the ISA does not say which lane holds what (9.7.14.4.1)"
    where = ""
    if operand.lower() == "b" and all(isinstance(form, Wgmma) for form in forms):
        where = "; B is in shared memory, which --swizzle 0, 32, 64 or 128 shows"
    return f"'{instruction}' has no operand '{operand}'; it has {', '.join(map(shown, names))}{where}"


def _by_layout(forms: Iterable[Form], operand: str) -> dict[Layout, list[Form]]:
    groups: dict[Layout, list[Form]] = {}
    for form in forms:
        groups.setdefault(form.layouts[operand], []).append(form)
    return groups


def _matching(instruction: str) -> tuple[Form, ...]:
    """The forms whose spelling has the words of a name, in order."""
    name = family(instruction)
    words = instruction.split(".")
    if name is not None:
        words = words[len(name.split(".")) :]
    elif not (words[0][:1] == "m" and words[0][1:2].isdecimal()):
        near = [n for n in FAMILIES if n.startswith(f"{words[0]}.")]
        near = near or difflib.get_close_matches(words[0], FAMILIES, 3, 0.4)
        raise WarploomError(
            f"unknown instruction '{instruction}'; "
            + (f"nearest: {', '.join(near)}; " if near else "")
            + f"known: {', '.join(FAMILIES)}, or a shape such as m16n8k16"
        )
    candidates = tuple(form for key in ((name,) if name else FAMILIES) for form in FAMILIES[key]())
    if name is None:
        candidates = tuple(form for form in candidates if form.layouts)
    matching = tuple(form for form in candidates if _has(form, words))
    if not matching:
        raise WarploomError(f"there is no '{instruction}'; nearest: {_nearest(instruction, candidates)}")
    # what does not say .trans means the form without it, where there is one
    straight = tuple(form for form in matching if "trans" in words or not getattr(form, "transpose", False))
    return straight or matching


def _has(form: Form, words: Iterable[str]) -> bool:
    """Whether the words are in a spelling, in this order; `4X` is `scale_vec::4X`."""
    rest = iter(form.spelling.split("."))
    return all(any(has == word or has.endswith(f"::{word}") for has in rest) for word in words)


def _nearest(instruction: str, candidates: Iterable[Form]) -> str:
    names = list(dict.fromkeys(short(form) for form in candidates))
    return ", ".join(difflib.get_close_matches(instruction, names, 3, 0.0))


def _of_type(forms: tuple[Form, ...], instruction: str, operand: str) -> tuple[Form, ...]:
    """The forms with the element type that a name contains, if it contains exactly one. The type is that of the operand
    if the operand is A or B, and of A otherwise. It is also that of C and D if no form has it for A."""
    types = [word for word in instruction.split(".") if word in ELEMENT_TYPES]
    products = [form for form in forms if isinstance(form, Mma | Wgmma)]
    if len(types) != 1 or not products:
        return forms
    roles = {"b": "b", "c": "ac", "d": "ad"}.get(operand, "a")
    for role in roles:
        if of_type := tuple(form for form in products if form.element(role).name == types[0]):
            return of_type
    others = _matching(".".join(word for word in instruction.split(".") if word not in types))
    has = some(sorted(dict.fromkeys(short(form, operand) for form in others if operand in form.layouts), key=len))
    raise WarploomError(f"'{instruction}': no form has {types[0]} as operand {roles[0].upper()}; there are: {has}")


# What it takes to turn an operand of one matrix instruction into one of another: `warploom layout ... --to ...`.

REGISTER_BITS = {"f64": 64}
"""Bits of a register by the type of an operand; others have 32."""


def conversion(source: Fragment, target: Fragment) -> Conversion:
    """The conversions between two fragments, with as many tiles of each as make matrices of one shape. Elements have
    the width of the target's. Raises WarploomError if no number of tiles makes matrices of one shape."""
    rows, columns = (max(f.extent(axis) for f in (source.layout, target.layout)) for axis in "rc")
    layout, wanted = (tiled(f.layout, rows // f.layout.rows, columns // f.layout.columns) for f in (source, target))
    try:
        return convert(layout, wanted, element_bits(target))
    except LayoutMismatchError as error:
        raise WarploomError(f"{source.name} to {target.name}: {error}") from error


def element_bits(fragment: Fragment) -> int:
    """Register bits of an element of a fragment. Raises WarploomError if forms of the same layout differ in this."""
    operands = ((form, o) for form in fragment.forms for o in form.operands if o.name == fragment.operand)
    elements = len(fragment.layout.element)
    widths_ = {REGISTER_BITS.get(o.type, 32) * o.count // _matrices(form) >> elements for form, o in operands}
    if len(widths_) > 1:
        widths = " or ".join(map(str, sorted(widths_)))
        raise WarploomError(f"elements of {fragment.name} take {widths} bits; name a form with a type")
    return widths_.pop()


def _matrices(form: Form) -> int:
    """How many matrices a form moves at once, each as its layout says."""
    return form.count if isinstance(form, LoadMatrix | StoreMatrix) else 1


def lines(source: Fragment, target: Fragment) -> Iterator[str]:
    """The conversions in words, cheapest first, with the estimated issue slots of a warp."""
    conversion_ = conversion(source, target)
    for word, fragment, layout in (("from", source, conversion_.source), ("to", target, conversion_.target)):
        yield f"{word:4} {fragment.name}{_tiles(fragment.layout, layout)}: {layout}"
    size, bits = f"{conversion_.source.rows}x{conversion_.source.columns}", element_bits(source)
    narrowed = "" if bits == conversion_.element_bits else f", which lanes have made of {bits} bits before"
    yield f"a matrix of {size} elements of {conversion_.element_bits} bits{narrowed}"
    for number, step in enumerate(conversion_.routes, 1):
        yield f"{number}. cost {step.cost}: {step}"


def _tiles(one: Layout, tiled_: Layout) -> str:
    down, across = tiled_.rows // one.rows, tiled_.columns // one.columns
    return f", {down}x{across} of them" if down * across > 1 else ""


# Pictures of fragments in a terminal: coloured grids.


def terminal(picture: Picture, width: int | None = None) -> Text:
    """The picture in text with coloured cells; columns that do not fit `width` characters follow below."""
    out = Text().append(picture.title, "bold")
    for panel in picture.panels:
        for line in _grid(panel, width):
            out.append("\n").append_text(line)
    out.append("\n")
    for note in picture.notes:
        out.append(f"\n{note}")
    return out


def _grid(panel: Panel, width: int | None) -> Iterator[Text]:
    yield Text()
    if panel.title:
        yield Text(panel.title, "italic")
    places = {(cell.row, cell.column): cell for cell in panel.cells}
    label = max(len(cell.label) for cell in panel.cells) + 2
    rows = range(0, panel.rows, panel.height)
    head = max(len(span(row, panel.height)) for row in rows)
    notes = panel.side_notes(panel.height)
    note = max(map(len, notes), default=0)
    fit = len(range(0, panel.columns, panel.width)) if width is None else max(1, (width - head - 2 - note) // label)
    for first in range(0, panel.columns, panel.width * fit):
        columns = range(first, min(panel.columns, first + panel.width * fit), panel.width)
        if first:
            yield Text()
        yield Text(" " * (head + 1) + "".join(span(c, panel.width).center(label) for c in columns).rstrip(), "dim")
        for row in rows:
            line = Text().append(span(row, panel.height).rjust(head) + " ", "dim")
            for column in columns:
                cell = places[row, column]
                line.append(cell.label.center(label), Style(color="#000000", bgcolor=colour(cell.lane)))
            if notes:
                line.append(f" {notes[row // panel.height]}", "dim")
            yield line
