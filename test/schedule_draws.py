"""Drawn schedules of drawn products and attentions: each gives the right words, or says in one error why not.

    python test/schedule_draws.py                       # 300 functions, with some schedules of each
    python test/schedule_draws.py --count 50 --seed 7 --kinds product attention
    python test/schedule_draws.py --only 1000045 --kinds product   # one function, by its number

A function is compiled for a drawn target as it is, with schedules that the model offers to `warploom tune`, with fields
given in part and as a whole, and by a strategy. ptxas must take each text without spills and serialised products; the
interpreter runs it with all checks, on outputs that hold poison; results are held against float64 within the bounds of
`problems.py` and its kin, and, where two schedules add in the same order, against each other's words. A refusal must be
one located error that names a field that was asked for, and no schedule of the model may be refused. What is wrong is
printed as it is found; exit 1 if anything was.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from scheduled_functions import KINDS, Array, Function

from warploom.dialect.isa.row import target
from warploom.dialect.schedule import FIELDS, Schedule
from warploom.dialect.schedule.schedule import FRAGMENTS, WARPGROUPS
from warploom.runtime import Kernel, WarploomError, compile
from warploom.runtime.cli.tune_report import schedules
from warploom.runtime.cuda import ptxas
from warploom.runtime.kernel.lowering import parse

SPREAD = 1_000_003
"""Numbers of functions lie apart, so that two seeds draw different ones."""

# Schedules.

NUMBERS: Mapping[str, Sequence[Any]] = {
    "stages": range(1, 9), "group": (1, 2, 3, 8, 100), "sliced_k": (1, 2, 4), "split_k": (1, 2, 3, 4, 8),
    "prefetch": range(5), "unroll": (0, 1, 2, 3, 4, 6, 8), "ctas": (0, 1, 2, 3, 4, 7, 8, 66),
    "staging": (0, 8, 16, 32, 64), "cluster": ("1x1", "2x1", "1x2", "2x2", "4x1", "1x4", "8x1"),
    "accumulate": ("f32", "i32"), "registers": (0, 64, 128, 255),
}  # fmt: skip
"""Values of fields that are not one of a few words; those of tiles are drawn around a schedule's own."""

SIDES, DEPTHS = (8, 16, 24, 32, 48, 64, 96, 128, 176, 192, 256), (8, 16, 32, 64, 128, 256)


def value(draw: random.Random, name: str, near: Schedule) -> Any:
    """A value of a field, that is legal or nearly so."""
    if name == "cta":
        return tuple(draw.choice((draw.choice(sides), old)) for sides, old in zip((SIDES, SIDES, DEPTHS), near.cta))  # noqa: B905
    if name == "warp":
        return tuple(draw.choice((draw.choice(SIDES[:6]), old)) for old in near.warp)
    if name == "mma":
        k = draw.choice((near.mma.k, near.mma.k, draw.choice(DEPTHS)))
        return draw.choice(
            (f"m16n8k{k}", f"m64n{draw.choice(SIDES)}k{k}", str(near.mma), f"m128n{draw.choice(SIDES)}k{k}")
        )
    if name == "accumulate" and draw.random() < 0.8:
        return near.accumulate
    return draw.choice([str(v) for v in FIELDS[name].one_of] or NUMBERS[name])


def tile(draw: random.Random, near: Schedule) -> dict[str, Any]:
    """Tiles that divide one another, for the same instruction or one of other columns."""
    by_groups = near.together > 1
    n = draw.choice((8, 16, 24, 32, 64, 96, 128, 192, 256)) if by_groups else near.mma.n
    m, k = near.mma.m, near.mma.k
    rows, columns = (m, n) if by_groups else (m * draw.choice((1, 2, 4)), n * draw.choice((1, 2, 3, 4, 8)))
    down, across = draw.choice(
        ((1, 1), (2, 1), (1, 2), (2, 2), (3, 1)) if by_groups else ((1, 1), (2, 2), (4, 1), (1, 4))
    )
    depth = k * draw.choice((4, 4, 8) if by_groups else (1, 2, 4, 8))
    return {"cta": (rows * down, columns * across, depth), "warp": (rows, columns), "mma": f"m{m}n{n}k{k}"}


def asked_of(draw: random.Random, near: Schedule) -> dict[str, Any]:
    """Fields in part, or all of them, one to three of which differ from a schedule's; most of its own kind."""
    kind = WARPGROUPS if near.together > 1 else FRAGMENTS
    own = [name for name in FIELDS if kind in FIELDS[name].of]
    names = draw.sample(own if draw.random() < 0.85 else [*FIELDS], draw.choice((1, 1, 2, 2, 3)))
    fields = {name: value(draw, name, near) for name in names}
    fields |= tile(draw, near) if draw.random() < 0.4 else {}
    return (near.options() | fields) if draw.random() < 0.4 else fields


def order_of_sums(function: Function, schedule: Schedule) -> tuple[object, ...]:
    """What the words of sums depend on, of products whose instructions are alike; of an attention the keys of a turn,
    whose largest score rescales the sums, and those of a warp, too."""
    names = ("mma", "sliced_k", "split_k", "accumulate", "fp8_as", "promote", "multiplied", "in_registers", "add_c")
    tail = (schedule.ctas, schedule.cta, schedule.cluster) if schedule.split_k > 1 else ()
    keys = (schedule.cta[1], schedule.warp[1]) if "@attention(" in function.text else ()
    parts = (schedule.staging > 0, schedule.cta[2], schedule.partial_sums)
    return (*(schedule[name] for name in names), *parts, *keys, *tail)


# Outcomes.

GOOD = ("right", "refused", "spilled")
"""What is no fault: only schedules that the compiler chooses itself are promised not to spill."""


@dataclass(frozen=True)
class Outcome:
    """What became of a schedule: "right", "refused", or a kind of fault, with the reason."""

    kind: str
    asked: Mapping[str, Any]
    reason: str = ""


def assembled(kernel: Kernel, at: str, arguments: Sequence[Array]) -> str:
    """What ptxas has against a kernel, or its launches against what the target has; "" if nothing, or without ptxas."""
    if ptxas.find() is None:
        return ""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(kernel.ptx)
        command = [str(ptxas.find()), "-v", f"-arch={at}", str(source), "-o", str(Path(folder) / "kernel.cubin")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    if done.returncode:
        return f"ptxas: {said}"
    if warnings := [line for line in said.split("\n") if re.search(r"warning|C7\d\d\d", line)]:
        return f"warning: {warnings[0]}"
    used = ptxas.parse_resources(said)
    for launch in kernel.plan_for(cast(Sequence[Any], arguments)).launches:
        one = used[launch.kernel]
        if one.spills or one.stack:
            return f"spills: {launch.kernel}: {one}"
        if one.shared + launch.shared > target(at).shared:
            return f"shared: {launch.kernel} takes {one.shared} and {launch.shared} bytes"
        if -(-one.registers // 8) * 8 * -(-launch.threads // 32) * 32 > 1 << 16:
            return f"registers: {launch.kernel} takes {one.registers} in {launch.threads} threads"
    return ""


def compiled(function: Function, asked: Mapping[str, Any], *, by_strategy: bool = False) -> Kernel:
    """The kernel with fields of its schedule, which a strategy may set."""
    if not by_strategy:
        return compile(function.text, function.target, cache=False, **{**function.options, **asked})

    def strategy(module: Any) -> None:
        for name in ("linalg.matmul", "linalg.batch_matmul", "linalg.generic"):
            if products := list(module.match(name)):
                for each in products[:1]:
                    each.set(**asked)
                return

    return compile(function.text, function.target, cache=False, strategy=strategy, **function.options)


def outcome(
    function: Function,
    asked: Mapping[str, Any],
    words: dict[object, list[Array]],
    how: str = "",
    device: str = "interp",
) -> Outcome:
    """Compiles, assembles, runs and compares one schedule."""
    result = partial(Outcome, asked=asked)
    try:
        kernel = compiled(function, asked, by_strategy=how == "strategy")
    except WarploomError as error:
        said = str(error).split("\n")[0]
        if not re.match(r"\S+:\d+:\d+: error: ", said):
            return result("no place", reason=said)
        if how in ("model", "default"):
            return result("refused" if how == "default" else "candidate refused", reason=said)
        named = any(re.search(rf"\b{name}\b", said) for name in asked)
        return result("refused" if named else "unnamed", reason=said)
    except Exception:
        return result("exception", reason=traceback.format_exc())
    arguments, wrong = function.instance()
    try:
        against = assembled(kernel, function.target, arguments) if how != "unassembled" else ""
        kernel(*arguments, device=device, checks="all" if device == "interp" else ())
    except Exception as error:
        kind = "check" if isinstance(error, WarploomError) else "exception"
        return result(kind, reason=f"{traceback.format_exc()} with {kernel.schedule}")
    if reason := wrong():
        return result("wrong", reason=f"{reason} with {kernel.schedule}")
    key = tuple(each and order_of_sums(function, each) for each in kernel.schedule)
    before = words.setdefault(key, arguments)
    if any(a.tobytes() != b.tobytes() for a, b in zip(arguments, before, strict=True)):
        return result("words", reason=f"other words with {kernel.schedule}")
    kind = against.split(":")[0] or "right"
    kind = "spilled" if kind == "spills" and how != "default" else kind
    return result(kind, reason=f"{against} with {kernel.schedule}" if against else "")


def outcomes(function: Function, draw: random.Random, count: int) -> Iterator[Outcome]:
    """Of the default, of some schedules that the model offers, and of fields that are drawn."""
    words: dict[object, list[Array]] = {}
    yield (first := outcome(function, {}, words, "default"))
    if first.kind == "refused":
        return
    near = [each for each in compiled(function, {}).schedule if each is not None]
    offered: list[Schedule] = []
    with suppress(WarploomError):  # of several products, or none
        _, offered = schedules(parse(function.text), function.target, tf32=bool(function.options.get("tf32")))
    for _ in range(count):
        if offered and draw.random() < 0.3:
            yield outcome(function, draw.choice(offered).options(), words, "model")
        elif near:
            how = draw.choice(("", "", "", "strategy", "unassembled", "unassembled"))
            yield outcome(function, asked_of(draw, draw.choice([*near, *offered[:200]])), words, how)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--each", type=int, default=5, help="drawn schedules of a function")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=tuple(KINDS))
    parser.add_argument("--only", type=int, help="the number of one function")
    parser.add_argument("--refusals", action="store_true", help="print refusals, too")
    options = parser.parse_args()
    kinds = Counter[str]()
    first = options.seed * SPREAD
    for number in range(first, first + options.count) if options.only is None else (options.only,):
        draw = random.Random(number)
        function = KINDS[draw.choice(options.kinds)](draw)
        for one in outcomes(function, draw, options.each):
            kinds[one.kind] += 1
            if one.kind not in GOOD or (options.refusals and one.kind == "refused"):
                print(
                    f"{number}: {one.kind}: {function.name} on {function.target} {dict(one.asked)}: {one.reason}",
                    flush=True,
                )
    print(dict(kinds))
    return any(kind not in GOOD for kind in kinds)


if __name__ == "__main__":
    sys.exit(main())
