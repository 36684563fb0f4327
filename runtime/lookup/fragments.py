"""Looking up fragments by what people call them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...dialect.isa import families
from ...dialect.isa.form import Form
from ...dialect.isa.mma import Mma
from ...dialect.isa.mma_sp import MmaSparse
from ...dialect.isa.moves import LoadMatrix, MoveMatrix, StoreMatrix
from ...dialect.isa.product import ProductForm
from ...dialect.isa.types import ELEMENT_TYPES
from ...dialect.isa.wgmma import Wgmma
from ...dialect.layouts.layout import Layout
from ..errors import WarploomError

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

OPAQUE = ("wmma.load", "wmma.store", "wmma.mma")

SHOWN = 6
"""How many names an error lists."""


@dataclass(frozen=True)
class Fragment:
    """One operand of one instruction, or of several whose operand has the same layout. `forms` has them all."""

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


def operands(form: Form) -> tuple[str, ...]:
    """The operands of a form that have a layout."""
    match form:
        case ProductForm():
            sparse = ("e",) if isinstance(form, MmaSparse) else ()
            return ("a", "b", "c", "d", *sparse, *(("scale_a", "scale_b") if form.scale else ()))
        case Wgmma():
            return ("a", "d", "e") if form.metadata else ("a", "d")
        case LoadMatrix():
            return ("d",)
        case StoreMatrix():
            return ("r",)
        case MoveMatrix():
            return ("a", "d")
        case _:
            return ()


def layout(form: Form, operand: str) -> Layout:
    """The layout of an operand that `operands` names."""
    match form:
        case ProductForm() if operand in ("scale_a", "scale_b") and form.scale:
            return form.scale.layout(operand[-1])
        case MmaSparse() if operand == "e":
            return form.metadata
        case Wgmma() if operand == "e" and form.metadata:
            return form.metadata
        case ProductForm() | Wgmma():
            return form.layout(operand)
        case MoveMatrix() if operand == "a":
            return form.source
        case LoadMatrix() | StoreMatrix() | MoveMatrix():
            return form.layout
        case _:
            raise WarploomError(f"{form.spelling} has no operand {shown(operand)} with a layout")


def short(form: Form, operand: str = "a") -> str:
    """A short name that `find` takes for this operand of a form: "mma.m16n8k16.f16"."""
    if isinstance(form, Wgmma):
        name = "wgmma.mma_async.sp" if form.granularity else "wgmma.mma_async"
        return ".".join([name, str(form.shape), *dict.fromkeys((form.a.name, form.b.name))])
    if not isinstance(form, ProductForm):
        dropped = {"sync", "aligned", "shared", "shared::cta"}
        return ".".join(word for word in form.spelling.split(".") if word not in dropped)
    words = ["mma.sp" if isinstance(form, MmaSparse) else "mma", str(form.shape)]
    if isinstance(form, Mma) and form.products > 1:
        words += [form.a_layout, form.b_layout]
    if form.kind:
        words.append(f"kind::{form.kind}")
    if operand.startswith("scale") and form.scale and form.scale.written:
        words.append(f"scale_vec::{form.scale.vector}X")
    words += [form.a.name] if form.a == form.b else [form.a.name, form.b.name]
    if operand in ("c", "d") and isinstance(form, Mma) and form.products > 1:
        words = [*words[:-1], form.d.name, form.a.name, form.b.name, form.c.name]
    return ".".join(words)


def find(instruction: str, operand: str) -> Fragment:
    """The fragment of an operand of an instruction: `mma.m16n8k16.f16`, a full spelling, or a shape that says all.

    Raises:
        WarploomError: if there is no such instruction or operand, or if there are several; it names the nearest.
    """
    wanted = OPERANDS.get(operand.lower(), operand.lower())
    exact = families.find(instruction)
    forms = forms_of(instruction)
    having = tuple(form for form in forms if wanted in operands(form))
    if not having:
        raise WarploomError(_no_operand(instruction, operand, forms))
    groups = _by_layout(having if exact else _of_type(having, instruction, wanted), wanted)
    if len(groups) > 1:
        names = dict.fromkeys(short(group[0], wanted) for group in groups.values())
        raise WarploomError(
            f"operand {shown(wanted)} is not the same in all forms of '{instruction}'; say which: {_some(names)}"
        )
    (found,) = ((key, group) for key, group in groups.items())
    return Fragment(wanted, found[0], tuple(found[1]))


def forms_of(instruction: str) -> tuple[Form, ...]:
    """The forms that a name means: one by its full spelling, or all that have its words.

    Raises:
        WarploomError: if there is none; it names the nearest.
    """
    exact = families.find(instruction)
    return (exact,) if exact else _matching(instruction)


def _some(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _no_operand(instruction: str, operand: str, forms: Sequence[Form]) -> str:
    names = dict.fromkeys(name for form in forms for name in operands(form))
    if not names:
        return f"fragments of '{instruction}' are opaque: the ISA does not say which lane holds what (9.7.14.4.1)"
    where = ""
    if operand.lower() == "b" and all(isinstance(form, Wgmma) for form in forms):
        where = "; B is in shared memory, which --swizzle 0, 32, 64 or 128 shows"
    return f"'{instruction}' has no operand '{operand}'; it has {', '.join(map(shown, names))}{where}"


def _by_layout(forms: Iterable[Form], operand: str) -> dict[Layout, list[Form]]:
    groups: dict[Layout, list[Form]] = {}
    for form in forms:
        groups.setdefault(layout(form, operand), []).append(form)
    return groups


def _matching(instruction: str) -> tuple[Form, ...]:
    """The forms whose spelling has the words of a name, in order."""
    name = families.family(instruction)
    words = instruction.split(".")
    if name is not None:
        words = words[len(name.split(".")) :]
    elif not (words[0][:1] == "m" and words[0][1:2].isdecimal()):
        near = difflib.get_close_matches(words[0], families.FAMILIES, 3, 0.4)
        raise WarploomError(
            f"unknown instruction '{instruction}'; "
            + (f"nearest: {', '.join(near)}; " if near else "")
            + f"known: {', '.join(families.FAMILIES)}, or a shape such as m16n8k16"
        )
    known = tuple(form for key in ((name,) if name else families.FAMILIES) for form in families.FAMILIES[key]())
    if name is None:
        known = tuple(form for form in known if operands(form))
    found = tuple(form for form in known if _has(form, words))
    if not found:
        raise WarploomError(f"there is no '{instruction}'; nearest: {_nearest(instruction, known)}")
    # what does not say .trans means the form without it, where there is one
    straight = tuple(form for form in found if "trans" in words or not getattr(form, "transpose", False))
    return straight or found


def _has(form: Form, words: Iterable[str]) -> bool:
    """Whether the words are in a spelling, in this order; `4X` is `scale_vec::4X`."""
    rest = iter(form.spelling.split("."))
    return all(any(has == word or has.endswith(f"::{word}") for has in rest) for word in words)


def _nearest(instruction: str, known: Iterable[Form]) -> str:
    names = list(dict.fromkeys(short(form) for form in known))
    return ", ".join(difflib.get_close_matches(instruction, names, 3, 0.0))


def _of_type(forms: tuple[Form, ...], instruction: str, operand: str) -> tuple[Form, ...]:
    """Of several forms those that have the one type that a name gives, if it gives one, where it is meant.

    That is the type of the operand, if that is A or B, and of A otherwise; of C and D too if A never has it.
    """
    types = [word for word in instruction.split(".") if word in ELEMENT_TYPES]
    products = [form for form in forms if isinstance(form, ProductForm | Wgmma)]
    if len(types) != 1 or not products:
        return forms
    roles = {"b": "b", "c": "ac", "d": "ad"}.get(operand, "a")
    for role in roles:
        if found := tuple(form for form in products if form.element(role).name == types[0]):
            return found
    others = _matching(".".join(word for word in instruction.split(".") if word not in types))
    has = _some(sorted(dict.fromkeys(short(form, operand) for form in others if operand in operands(form)), key=len))
    raise WarploomError(f"'{instruction}': no form has {types[0]} as operand {roles[0].upper()}; there are: {has}")
