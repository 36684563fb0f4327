"""What `warploom-opt --help-schedule` prints: every field of a schedule, part by part."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from ..dialect.schedule.fields import ScheduleField, text_of
from ..dialect.schedule.schedule import FIELDS, PARTS

WIDTH = 100

HEAD = """\
Every choice of the lowering is a field of the product's schedule. You can set each field alone, as an option of a pass
(-p "warploom{stages=4}", -p "warp-schedule{cta=128,128,64}"), of a command (--schedule "cta=128,128,64 stages=4"), or
of compile(..., stages=4). The compiler then changes the fields that contradict it; --remarks lists these changes.
"""


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
