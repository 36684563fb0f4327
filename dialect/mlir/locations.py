"""Lines of files that locations name."""

from __future__ import annotations

from typing import cast

from xdsl.dialects.builtin import ArrayAttr, CallSiteLoc, FileLineColLoc, FusedLoc, NameLoc
from xdsl.ir import Attribute


def line_of(location: Attribute) -> FileLineColLoc | None:
    """The line that a location names: of several that became one, the first; of a call, the line called."""
    match location:
        case FileLineColLoc():
            return location
        case NameLoc():
            return line_of(location.location)
        case CallSiteLoc():
            return line_of(location.callee) or line_of(location.caller)
        case FusedLoc():
            return next((found for one in parts_of(location) if (found := line_of(one)) is not None), None)
        case _:
            return None


def parts_of(location: FusedLoc) -> tuple[Attribute, ...]:
    """The locations that became one."""
    return cast("ArrayAttr[Attribute]", location.locations).data
