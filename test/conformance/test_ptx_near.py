"""Spellings near the rows, legal or not, with operands that would fit: our verdict is that of ptxas on each target."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import product

import mutations
import pytest
from ptx_rows import register_type
from samples import FULL
from test_ptx_rows import PTXAS, check_line, rejected, unlike

from warploom.dialect.isa.row import NEWEST, TARGETS
from warploom.dialect.ptx.instructions import find
from warploom.dialect.ptx.verifier import TargetContext

pytestmark = pytest.mark.skipif(PTXAS is None, reason="ptxas is not installed (extra: test)")

SAMPLE = 20_000 if FULL else 500
ROUNDINGS = ("", ".rn", ".rz", ".rm", ".rp")
FTZ, SAT, RELU = ("", ".ftz"), ("", ".sat"), ("", ".relu")
FLOATS = ("f16", "bf16", "f16x2", "bf16x2", "f32", "f64", "f32x2")
NARROW = ("ue8m0x2", "e4m3x2", "e5m2x2", "e2m3x2", "e3m2x2", "e2m1x2")
FOURS = ("e4m3x4", "e5m2x4", "e2m3x4", "e3m2x4", "e2m1x4")
INTEGERS = ("u8", "s16", "s32", "u64")
SCALARS = ("f16", "bf16", "f32", "f64")


def register(type: str, number: int) -> str:
    """A register that holds a type: `held` says which, but bf16 and f16 alike take bits."""
    return f"%{'b16' if type == 'f16' else 'b32' if type == 'f16x2' else register_type(type)}_{number}"


def registers(*types: str) -> str:
    return ", ".join(register(type, number) for number, type in enumerate(types))


def conversions() -> Iterator[str]:
    """`cvt` in all that its qualifiers and types make."""
    modes = (*ROUNDINGS, ".rna", ".rs", ".rni", ".rzi")
    types = [
        *product((*NARROW, *FOURS, "f16x2", "bf16x2", "tf32"), ("f32", "f16x2", "bf16x2", "f64")),
        *product(("f16x2", "bf16x2"), NARROW),
        *product((*SCALARS, *INTEGERS), repeat=2),
    ]
    for (to, of), mode, ftz, sat, relu in product(types, modes, FTZ, (*SAT, ".satfinite"), RELU):
        operands = [register(to, 0), register(of, 1)]
        if to in FOURS:
            operands[1] = "{%f32_1, %f32_2, %f32_3, %f32_4}"
        elif of == "f32" and to.endswith("x2"):
            operands.append("%f32_2")
        if mode == ".rs":
            operands.append("%b32_7")
        yield f"cvt{mode}{ftz}{sat}{relu}.{to}.{of} {', '.join(operands)};"


def narrow_conversions() -> Iterator[str]:
    """`cvt` to and from pairs of 8 bits and less, with scales and without -0."""
    halves, narrow = ("f16x2", "bf16x2"), (*NARROW, "ue5m3x2", "s2f6x2")
    types = [*product(narrow, ("f32", *halves)), *product(halves, narrow), *product((*halves, "f16", "bf16"), ("f32",))]
    scales = {"": "", ".scaled::n1::ue8m0": ", %b8_7", ".scaled::n2::ue8m0": ", %b16_7"}
    for (to, of), mode, ftz, finite, relu, zero, scale in product(
        types, ROUNDINGS, FTZ, ("", ".satfinite"), RELU, ("", ".pzo"), scales
    ):
        second = ", %f32_2" if of == "f32" and to.endswith("x2") else ""
        operands = f"{register(to, 0)}, {register(of, 1)}{second}{scales[scale]}"
        yield f"cvt{mode}{ftz}{finite}{relu}{zero}{scale}.{to}.{of} {operands};"


def packed() -> Iterator[str]:
    """Integers that share a word, pairs of two widths, four narrow floats at a time."""
    words = ("u8x4", "s8x4", "u16x2", "s16x2", "u32", "s32")
    for root, end, type in product(("add", "sub", "min", "max", "mul"), ("", ".sat", ".relu"), words):
        yield f"{root}{end}.{type} {registers(type, type, type)};"
    for root, type in product(("neg", "abs"), words):
        yield f"{root}.{type} {registers(type, type)};"
    for word, type in product(("eq", "ge", "lo", "hs", "nan"), words):
        yield f"set.{word}.{type} {registers(type, type, type)};"
    pairs = ("f16x2", "bf16x2", "f32x2")
    for root, mode, ftz, types in product(("add", "sub", "mul"), ROUNDINGS, FTZ, product(pairs, repeat=3)):
        yield f"{root}{mode}{ftz}.{'.'.join(types)} {registers(*types)};"
    for mode, types in product(ROUNDINGS, product(pairs, repeat=4)):
        yield f"fma{mode}.{'.'.join(types)} {registers(*types)};"
    fours = (*FOURS, "e2m1p4x4", "ue8m0x4")
    for root, mode, finite, types in product(
        ("add", "mul"), ("", ".rn", ".rz"), ("", ".satfinite"), product(fours, repeat=2)
    ):
        yield f"{root}{mode}{finite}.e4m3x4.{types[0]} {registers('e4m3x4', types[0], 'e4m3x4')};"
        yield f"{root}{mode}{finite}.e5m2x4.{'.'.join(types)} {registers('e5m2x4', *types)};"
    for part, type in product(("lo", "hi", "wide"), ("u64", "u32", "b64")):
        yield f"clmad.{part}.{type} {registers(type, type, type, type)};"
    for root, unit, ftz, type in product(("sin", "cos", "ex2"), ("", ".2pi"), FTZ, ("f32", "f16")):
        yield f"{root}.approx{unit}{ftz}.{type} {registers(type, type)};"


def arithmetic() -> Iterator[str]:
    """Sums, products, extremes and functions of floats, and of f32 with 16 bits."""
    for root, mode, ftz, sat, relu, type in product(
        ("add", "sub", "mul", "fma", "mad"), ROUNDINGS, FTZ, SAT, RELU, FLOATS
    ):
        yield f"{root}{mode}{ftz}{sat}{relu}.{type} {registers(*[type] * (4 if root in ('fma', 'mad') else 3))};"
    for mode, ftz, relu, type in product(ROUNDINGS, FTZ, RELU, FLOATS):
        yield f"fma{mode}{ftz}.oob{relu}.{type} {registers(*[type] * 4)};"
    for root, mode, ftz, sat, type in product(("add", "sub", "fma"), ROUNDINGS, FTZ, SAT, ("f16", "bf16", "f64")):
        wide = registers("f32", *[type] * (2 if root == "fma" else 1)), "%f32_5"
        yield f"{root}{mode}{ftz}{sat}.f32.{type} {', '.join(wide)};"
    for root, ftz, nan, xor, magnitude, type, count in product(
        ("min", "max"), FTZ, ("", ".NaN"), ("", ".xorsign"), ("", ".abs"), FLOATS, (3, 4)
    ):
        yield f"{root}{ftz}{nan}{xor}{magnitude}.{type} {registers(*[type] * count)};"
    functions = ("abs", "neg", "ex2", "lg2", "sin", "cos", "tanh", "rsqrt")
    for root, mode, ftz, type in product(functions, ("", ".approx", ".rn"), FTZ, FLOATS):
        yield f"{root}{mode}{ftz}.{type} {registers(type, type)};"


def warps() -> Iterator[str]:
    """Reductions, votes and shuffles of a warp, 24-bit products."""
    for op, magnitude, nan, type in product(
        ("min", "max", "add", "and"), ("", ".abs"), ("", ".NaN"), ("f32", "f16", "u32")
    ):
        yield f"redux.sync.{op}{magnitude}{nan}.{type} {registers(type, type, 'u32')};"
    for mode, type in product(("all", "any", "uni", "ballot"), ("pred", "b32")):
        yield f"vote.{mode}.{type} {registers(type, 'pred')};"
        yield f"vote.sync.{mode}.{type} {registers(type, 'pred', 'u32')};"
    for mode, type in product(("up", "down", "bfly", "idx"), ("b32", "b64")):
        yield f"shfl.{mode}.{type} {registers(type, type, 'u32', 'u32')};"
    for part, sat, type in product(("lo", "hi", "wide"), SAT, ("u32", "s32", "u64", "s16")):
        yield f"mul24.{part}{sat}.{type} {registers(type, type, type)};"
        yield f"mad24.{part}{sat}.{type} {registers(type, type, type, type)};"


def carries() -> Iterator[str]:
    """Sums and products of integers with a carry in, a carry out, saturation."""
    ends = ("", ".cc", ".sat", ".cc.sat")
    types = ("u16", "s16", "u32", "s32", "u64", "s64", "b32", "f32")
    for root, end, type in product(("add", "addc", "sub", "subc"), ends, types):
        yield f"{root}{end}.{type} {registers(type, type, type)};"
    for root, part, end, type in product(("mad", "madc"), ("", ".lo", ".hi"), ends, types):
        yield f"{root}{part}{end}.{type} {registers(*[type] * 4)};"


def tensor_maps() -> Iterator[str]:
    """Fields of tensor maps and what they take, in and out of range."""
    simple, ordered = ("global_address", "rank"), ("box_dim", "global_dim", "global_stride", "element_stride")
    fixed = ("elemtype", "interleave_layout", "swizzle_mode", "fill_mode", "swizzle_atomicity")
    spaces = ("", ".global", ".shared::cta", ".shared")
    for space, type in product(spaces, ("b32", "b64")):
        head, value = f"{space}.b1024.{type} [%b64_7]", f"%{type}_1"
        yield from (f"tensormap.replace.tile.{field}{head}, {value};" for field in simple)
        yield from (f"tensormap.replace.tile.{f}{head}, {i}, {value};" for f, i in product(ordered, (0, 4, 5)))
        yield from (f"tensormap.replace.tile.{f}{head}, {i};" for f, i in product(fixed, (-1, 0, 2, 3, 4, 12, 13, 16)))
    for proxy, scope, size in product(("tensormap::generic", "async"), ("cta", "cluster", "gpu", "sys"), (128, 64)):
        for order in ("release", "acquire"):
            head = f"tensormap.cp_fenceproxy.global.shared::cta.{proxy}.{order}.{scope}"
            yield f"{head}.sync.aligned [%b64_1], [%b64_2], {size};"
            yield f"{head}.sync [%b64_1], [%b64_2], {size};"


def parts(count: int) -> tuple[str, ...]:
    """Selectors, right and wrong, behind registers that hold so many numbers."""
    one = ("", ".b0", ".b3", ".h1", ".b4", ".h2")
    return {1: one, 2: ("", ".h0", ".h1", ".h10", ".h01", ".h32", ".h14", ".b0"),
            4: ("", ".b0", ".b31", ".b13", ".b3210", ".b7654", ".b01", ".h10", ".b8000")}[count]  # fmt: skip


def video() -> Iterator[str]:
    """Video instructions with every operation, and selectors on one operand at a time."""
    names = ("vadd", "vsub", "vabsdiff", "vmin", "vmax", "vavrg", "vshl", "vshr", "vset", "vmad")
    ends = (
        "",
        ".sat",
        ".add",
        ".min",
        ".sat.add",
        ".clamp",
        ".wrap.max",
        ".lt",
        ".lo",
        ".ge.add",
        ".po.shr7",
        ".shr15",
    )
    for name, count, types, end in product(
        names, (1, 2, 4), ("u32.s32.u32", "s32.u32.u32", "u32.u32.s32", "u32.s32"), ends
    ):
        opcode = f"{name}{'' if count == 1 else count}.{types}{end}"
        for last in ("", ", %u32_3"):
            yield f"{opcode} %b32_0, %b32_1, %b32_2{last};"
        yield f"{opcode} %b32_0, %b32_1, 5, 9;"
    for opcode, count in (
        ("vadd.u32.s32.u32", 1),
        ("vsub2.s32.s32.u32", 2),
        ("vset4.u32.u32.ne", 4),
        ("vset.s32.s32.gt", 1),
    ):
        for place, part in product(range(4), parts(count)):
            chosen = [part if i == place else "" for i in range(4)]
            yield f"{opcode} {', '.join(f'%u32_{i}{selector}' for i, selector in enumerate(chosen))};"


def textures() -> Iterator[str]:
    """Loads of textures, loads, stores and reductions of surfaces, in every geometry."""
    places = {"1d": "{{{0}4}}", "2d": "{{{0}4, {0}5}}", "3d": "{{{0}4, {0}5, {0}6, {0}7}}", "a1d": "{{%s32_4, {0}5}}",
              "a2d": "{{%s32_4, {0}5, {0}6, {0}7}}", "cube": "{{{0}4, {0}5, {0}6, {0}7}}",
              "acube": "{{%s32_4, {0}5, {0}6, {0}7}}", "2dms": "{{%s32_4, {0}5, {0}6, {0}7}}"}  # fmt: skip
    results = ("v4.u32", "v4.f32", "v4.f16", "v2.f16x2", "v2.f32", "v4.b32", "f32")
    ends = ("", ", %s32_1", ", {%s32_1, %s32_2}", ", %f32_1", ", {%s32_1, %s32_2}, %f32_1")
    for mode, (geometry, place), result, kind, end in product(
        ("tex", "tex.base", "tex.level", "tex.grad", "tld4.r", "tld4.x"), places.items(), results, ("f32", "s32"), ends
    ):
        more = {"tex.level": f", %{kind}_3", "tex.grad": ", {%f32_2, %f32_3}, {%f32_6, %f32_7}"}.get(mode, "")
        if ("2d" not in geometry and (mode == "tex.grad" or "}" in end)) or ("1d" not in geometry and end == ends[1]):
            continue  # ptxas takes vectors of other sizes than are needed
        size, _, type = result.rpartition(".")
        into = ", ".join(register(type, i) for i in range(int(size[1:] or 1)))
        opcode = f"{mode}.{geometry}.{result}.{kind}"
        yield f"{opcode} {{{into}}}, [%b64_6, {place.format(f'%{kind}_')}]{more}{end};"
    roots = ("suld.b", "sust.b", "sust.p", "sured.b.add", "sured.p.min", "sured.b.or")
    types = ("b8", "b32", "u32", "b64", "u64", "s64")
    for root, geometry, cache, size, type, end in product(
        roots, ("1d", "2d", "3d", "a1d", "cube"), ("", ".ca", ".wb"), ("", ".v2", ".v4"), types, (".trap", ".zero", "")
    ):
        count, names = int(size[2:] or 1), [register("b16" if type == "b8" else type, i) for i in range(4)]
        value = f"{{{', '.join(names[:count])}}}" if count > 1 else names[0]
        place = "{%s32_4}" if geometry == "1d" else places[geometry].format("%s32_")
        opcode, where = f"{root}.{geometry}{cache}{size}.{type}{end}", f"[%b64_6, {place}]"
        yield f"{opcode} {value}, {where};" if root == "suld.b" else f"{opcode} {where}, {value};"
    for root, name in product(("txq", "txq.level", "suq"), ("width", "array_size", "filter_mode", "x")):
        yield f"{root}.{name}.b32 %b32_1, [%b64_6]{', %b32_2' if root == 'txq.level' else ''};"
    for name in ("texref", "samplerref", "surfref", "x"):
        yield f"istypep.{name} %pred_1, %b64_6;"


def fabrics() -> Iterator[str]:
    """Copies, reductions and atomics at endpoints of a fabric."""
    done = "shared::cta.mbarrier::complete_tx::{}.mbarrier::report::fabric"
    where, counted = "[%b32_6, %b64_6]", "[%b32_6, %b64_6, %b64_7]"
    types = ("u32", "s64", "b32", "b128", "f16", "bf16x2", "f32", "f64", "e4m3")
    for root, unit, count, op, type in product(
        ("try_red", "try_red.async.multimem", "try_atom", "try_pullred", "try_put"), ("bytes", "16B"),
        ("", ".counted::bytes"), ("", ".add", ".max", ".xor", ".cas", ".add.acc::f32"), types,
    ):  # fmt: skip
        name = root if ".async" in root else f"{root}.async" + (".multimem" if root == "try_pullred" else "")
        opcode = f"fabric.{name}.{done.format(unit)}{count}.relaxed.sys{op}.{type}"
        place = counted if count else where
        if root == "try_pullred":
            yield f"{opcode}.sync [%b64_5], {place}, %u32_1, [%b64_4], -1;"
        elif op != ".add.acc::f32":  # ptxas takes it anywhere
            yield f"{opcode} {place}, [%b64_5], {'[%b64_3]' if root == 'try_atom' else '%u32_1'}, [%b64_4];"
    yield "fabric.wait.sync_restrict::read 3;"
    yield f"fabric.try_get.async.{done.format('bytes')}.relaxed.sys.b128 [%b64_5], {where}, %u32_1, [%b64_4];"


LINES: dict[str, Sequence[str]] = {
    each.__name__: tuple(dict.fromkeys(each()))
    for each in (
        conversions,
        narrow_conversions,
        packed,
        arithmetic,
        carries,
        warps,
        tensor_maps,
        textures,
        fabrics,
        video,
    )
}


@pytest.mark.sampled(16)
@pytest.mark.parametrize("name", ["sm_75", "sm_80", "sm_90", "sm_100", "sm_103a", "sm_107a", "sm_120f"])
@pytest.mark.parametrize("family", LINES)
def test_spellings_near_the_rows(family: str, name: str) -> None:
    target, version = TARGETS[name], (6, 3) if name == "sm_75" else NEWEST
    order = random.Random(f"{family} {name}")
    lines = order.sample(LINES[family], min(SAMPLE, len(LINES[family])))
    context = TargetContext(version, (name,))
    ours = [bool(find(line.partition(" ")[0])) and check_line(line, context) is None for line in lines]
    errors = rejected(lines, target, version)
    wrong = [line for i, line in enumerate(lines) if ours[i] == (i in errors)]
    # what ptxas makes of a reduction of `fabric` may fail by the statements before it: what differs is judged alone
    wrong = [line for line in wrong if ours[lines.index(line)] == bool(rejected([line], target, version))]
    assert not [line for line in wrong if not unlike(line, check_line(line, context))]
    assert (
        any(ours)
        or (family in ("tensor_maps", "narrow_conversions") and target.sm < 90)
        or (family == "fabrics" and target.sm < 100)
    )


MUTANTS, SEED = 60, 28


def test_kernels_changed_in_one_place() -> None:
    """A sample of what `mutations.py` tries: the seed is fixed, so that a change of the check alone changes this."""
    outcomes = mutations.verdicts(mutations.mutants(MUTANTS, SEED), 1)
    assert not [(v.mutant.after, v.theirs, v.ours) for v in outcomes if v.taken or v.refused]
    assert any(v.theirs and v.ours for v in outcomes)
    assert any(not v.theirs and not v.ours for v in outcomes)
