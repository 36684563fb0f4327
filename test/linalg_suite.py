"""How many functions of MLIR's own tests of `linalg` compile: those with a product in them, each for itself.

    python test/linalg_suite.py mlir/test/Dialect/Linalg [--list] [--target sm_90a]

The folder is LLVM's. A function is taken out of its file with the aliases of the part (`// -----`) that it stands in,
and compiled with f32 multiplied as tf32. What fails is counted by the reason given; an unexpected error is no reason.
"""

from __future__ import annotations

import argparse
import re
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from warploom.runtime import WarploomError, compile

NAMED = re.compile(
    r'linalg\.(batch_)?(reduce_)?(matmul|mmt4d|matvec|vecmat|dot|contract|quantized_\w*matmul|conv_|depthwise_conv)|"linalg\.matmul'
)
MULTIPLIED, ADDED = re.compile(r"arith\.mul[fi]"), re.compile(r"arith\.add[fi]")
FUNCTION = re.compile(r"^[ \t]*func\.func\b(?! private @\w+\([^{]*\)[^{]*$)", re.MULTILINE)
UNEXPECTED = "unexpected: "

PATIENCE_S = 20
"""Seconds of CPU for one function: xDSL reads a constant of one value element by element."""


class TooLong(BaseException):
    """Not an Exception, for the parser would take one for an operation that it cannot read."""


@dataclass(frozen=True)
class Function:
    """One function of a file, with the aliases it may use."""

    file: str
    name: str
    text: str


def functions(folder: Path) -> Iterator[Function]:
    """The functions with a product, file after file."""
    for path in sorted(folder.rglob("*.mlir")):
        if path.name.startswith("invalid"):
            continue
        for part in path.read_text(encoding="utf-8").split("// -----"):
            aliases = "\n".join(re.findall(r"^[#!]\w+ = .*(?:\n(?:[ \t]+|[\]}]).*)*", part, re.MULTILINE))
            for match in FUNCTION.finditer(part):
                text = _whole(part, match.start())
                if text and has_product(text):
                    name = re.search(r"@([\w.$-]+)", text)
                    yield Function(str(path.relative_to(folder)), name[1] if name else "?", f"{aliases}\n{text}\n")


def has_product(text: str) -> bool:
    """Whether a function multiplies and sums: by a named operation, or by a generic one with a loop that is summed."""
    generic = "linalg.generic" in text and "reduction" in text
    return bool(NAMED.search(text)) or bool(generic and MULTIPLIED.search(text) and ADDED.search(text))


def _whole(text: str, start: int) -> str:
    """The text from a place to the brace that closes a function's body; empty if there is none."""
    depth, seen = 0, False
    for line in re.finditer(r".*\n?", text[start:]):
        code = re.sub(r"//.*|\"[^\"]*\"", "", line[0])
        depth += code.count("{") - code.count("}")
        seen = seen or bool(re.search(r"\{[^}]*$", code))
        if seen and depth <= 0:
            return text[start : start + line.end()]
    return ""


def outcome(function: Function, target: str) -> str:
    """ "" if it compiles, else the reason without place and names."""
    signal.setitimer(signal.ITIMER_PROF, PATIENCE_S)
    try:
        compile(function.text, target, file=function.file, tf32=True, cache=False)
    except TooLong:
        return f"longer than {PATIENCE_S} s"
    except WarploomError as error:
        line = str(error).split("\n")[0]
        return re.sub(r"^\S+?:\d+:\d+: error: ", "", line)
    except Exception as error:
        return f"{UNEXPECTED}{type(error).__name__}: {error}".split("\n")[0]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return ""


def _too_long(*_: object) -> None:
    raise TooLong


def main() -> None:
    signal.signal(signal.SIGPROF, _too_long)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="LLVM's mlir/test/Dialect/Linalg")
    parser.add_argument("--list", action="store_true", help="a line for each function")
    parser.add_argument("--target", default="sm_90a", metavar="SM")
    args = parser.parse_args()
    outcomes = [(function, outcome(function, args.target)) for function in functions(args.folder)]
    if not outcomes:
        parser.error(f"{args.folder}: no functions with a product")
    if args.list:
        for function, reason in outcomes:
            print(f"{function.file} @{function.name}: {reason or 'compiles'}")
    reasons = Counter(re.sub(r"'[^']*'|@\w+|%\w+|\d+", "_", reason)[:110] for _, reason in outcomes if reason)
    compiled = sum(not reason for _, reason in outcomes)
    print(f"{compiled} of {len(outcomes)} functions with a product compile")
    for reason, count in reasons.most_common():
        print(f"{count:4} {reason}")
    raise SystemExit(any(reason.startswith(UNEXPECTED) for _, reason in outcomes))


if __name__ == "__main__":
    main()
