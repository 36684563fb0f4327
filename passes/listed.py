"""What `warploom-opt --help-schedule` and `--list-passes` print: the fields of a schedule, and all passes."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from xdsl.passes import ModulePass, get_pass_option_infos

from ..dialect import plugins
from ..dialect.schedule.schedule import FIELDS, ScheduleField, text_of
from .universe import WARPLOOM_UNIVERSE

WIDTH = 100

HEAD = """\
Every choice of the lowering is a field of the product's schedule. You can set each field alone, as an option of a pass
(-p "warploom{stages=4}", -p "warp-schedule{cta=128,128,64}"), of a command (--schedule "cta=128,128,64 stages=4"), or
of compile(..., stages=4). The compiler then changes the fields that contradict it; --remarks lists these changes.
"""

PARTS = {
    "tile": "The tiles of a product. Each tile size is a multiple of the next smaller one.",
    "loop": "The pipeline of the K loop.",
    "shared": "The layout of tiles in shared memory.",
    "grid": "The CTAs of a launch.",
    "operands": "The operands A and B.",
    "epilogue": "The epilogue.",
    "arithmetic": "The arithmetic of the product.",
}
"""The parts of a schedule, and what their fields are about."""


def schedule_help() -> str:
    """The fields, part by part: name, values, default, meaning."""
    text = [HEAD]
    for part, summary in PARTS.items():
        text.append(f"\n{part}: {summary}\n")
        text += [line + "\n" for field in FIELDS.values() if field.part == part for line in _lines(field)]
    return "".join(text)


def _lines(field: ScheduleField) -> Iterator[str]:
    values = " or ".join(map(str, field.one_of)) or _kind(field)
    default = f" (default {text_of(field.default)})" if not field.always else ""
    yield f"  {field.name}={values}{default}"
    yield from textwrap.wrap(field.meaning, WIDTH, initial_indent="      ", subsequent_indent="      ")


def _kind(field: ScheduleField) -> str:
    """What stands for a value: `N`, `M,N,K`, `WORD`."""
    if field.count > 1:
        return ",".join("MNK"[: field.count])
    return "N" if field.kind is int else "WORD" if field.kind is str else "m16n8k16"


OWN = ("warploom", "xdsl")
"""Entry points whose passes are this package's, and xDSL's."""


def passes_help() -> str:
    """The list of passes, including those of plugins with the package that each is from, and other additions of
    plugins."""
    own = (_described(factory()) for factory in WARPLOOM_UNIVERSE.all_passes.values())
    return "\n".join([*own, *_from_outside()])


def _from_outside() -> Iterator[str]:
    for entry in plugins.entries(plugins.UNIVERSES).values():
        if entry.name not in OWN:
            for factory in entry.load().all_passes.values():
                name, *rest = _described(factory()).splitlines()
                yield "\n".join([f"{name} (from {plugins.origin(entry)})", *rest])
    for group in plugins.OF_NAMES:
        for name, entry in plugins.entries(group).items():
            yield f"{group}: {name} (from {plugins.origin(entry)})"


def _described(pass_class: type[ModulePass]) -> str:
    """The pass's name, the first sentence of its documentation, and a line for each option."""
    sentence = re.split(r"(?<=\.) ", " ".join((pass_class.__doc__ or "").split()))[0]
    lines = [pass_class.name, *textwrap.wrap(sentence, 100, initial_indent="    ", subsequent_indent="    ")]
    for name, kind, default in get_pass_option_infos(pass_class):
        # xDSL quotes a type that the pass's module keeps as text
        option = f"      {name.replace('_', '-')}: {kind.strip(chr(39))}"
        lines.append(option if default is None else f"{option} = {default}")
    return "\n".join(lines)
