"""What we refuse and ptxas takes, each kind with its reason: a suite fails on any other."""

from __future__ import annotations

import re
from dataclasses import dataclass

from deviations import explanation

from warploom.dialect.isa.row import TARGETS
from warploom.dialect.ptx.instructions import canonical, find


@dataclass(frozen=True, slots=True)
class Kind:
    """Statements whose opcode and our message match, and why we refuse them."""

    opcode: str
    message: str
    reason: str

    def explains(self, opcode: str, message: str) -> bool:
        """Whether a refusal is of this kind."""
        return re.fullmatch(self.opcode, opcode) is not None and re.search(self.message, message) is not None


_NARROW = r"got a \.[bus](8|16) register"
_WGMMA = "9.7.15.5.2: wgmma.mma_async{.sp}.sync.aligned.shape.dtype.atype.btype"

KINDS = (
    Kind(
        r".*",
        r"expected an address that is a multiple of \d+ bytes",
        "6.4.1: an address is a multiple of the size of its access; ptxas does not look",
    ),
    Kind(
        r"fence\.(.*\.)?(async|global|shared::\w+|sync_restrict::.*)(\..*)?|fence\.proxy\..*acq_rel.*",
        "is not a PTX instruction",
        "9.7.13.4 has the words of a fence in fixed combinations: .async behind .proxy, spaces behind it, .acquire or "
        ".release between two proxies; ptxas takes them where they mean nothing",
    ),
    Kind(
        r".*",
        rf"expected an address .* integer register, ({_NARROW}|got the special register|got a \.f16x2 register)",
        "6.4.1: addresses are in registers of .b or integer types, and have 32 or 64 bits",
    ),
    Kind(
        r"",
        r"a \.(texref|samplerref|surfref) is a \.global variable or a parameter",
        "5.3: opaque variables are .global or parameters of kernels; ptxas does not look at arrays of them",
    ),
    Kind(
        r".*",
        r"got the symbol [\w$%]+\+\d+",
        "9.7.9.3: mov reads the address of a variable, and what may be added to it; ptxas has it among literals",
    ),
    Kind(
        r".*",
        r"got \d{20}",
        "4.5.1: integer constants have 64 bits; ptxas drops what is more",
    ),
    Kind(
        r"((cp\.(reduce\.)?|applypriority\.)async\.bulk\.(prefetch\.)?tensor|fence\.proxy\.tensormap|tensormap)[\w.:]*",
        r"expected an address in (a 32 or 64-bit integer register|brackets)|a literal address"
        r"|expected a generic address|the special register|element \d: expected an integer literal for \.s32",
        "9.7.9.25.5.2: tensorMap is a generic address, coordinates are of type .s32; ptxas looks at neither's register",
    ),
    Kind(
        r"(bar|barrier)\..*",
        r"got \d{10,}",
        "9.7.13.1: barriers are numbered from 0 to 15, and numbers of threads have 32 bits; ptxas drops the upper half",
    ),
    Kind(
        r"mov\.b(16|32|64)",
        r"got a vector of 1 |element \d: '_' discards a result",
        "9.7.9.4: mov packs two elements or four, and _ stands for elements of d",
    ),
    Kind(
        r"setp\.[\w.]*x2",
        r"expected a destination and a predicate",
        "9.7.7.2: setp.CmpOp{.ftz}.f16x2 p|q, a, b; ptxas takes p alone",
    ),
    Kind(
        r"mov\.b(16|32|64|128)",
        r"operand [ad]: expected a \.b\d+ register( to write)?, got a vector",
        "9.7.9.4: the sizes of the elements sum up to that of the type; ptxas takes predicates and other widths",
    ),
    Kind(r"mov\.[bus]16", r"an address takes 32 or 64 bits", "6.4.1: an address has 32 or 64 bits"),
    Kind(
        r"isspacep\..*",
        r"expected a register that holds \.u64",
        "9.7.9.19: the address is of type .u32 or .u64",
    ),
    Kind(
        r".*",
        r"expected a register that holds \.pred, got \.f16x2|got \.pred \(|got a negated predicate"
        r"|only a predicate that is read may be",
        "9.1: a predicate is compatible with .pred alone; ptxas does not look at some operands",
    ),
    Kind(
        r".*",
        r"that holds \.(bf16|bf16x2|s2f6x2|tf32|f64|f16x2|b32|u32)( or wider)?, got \.[busf](16|32|64|16x2) ",
        "5.2.3: alternate formats are held in .b registers, and a fragment in registers of one type; beside "
        ".b registers ptxas takes others of their width",
    ),
    Kind(
        r"wmma\.(load|store).*",
        r"expected a stride that is a multiple",
        "9.7.14.4.2: the address at which each row or column begins is aligned as the fragment is",
    ),
    Kind(
        r"cp\.async\.bulk.*",
        r"operand (mask|k): expected a register that holds \.u16",
        "9.7.9.25.5.2: The ctaMask operand is 16 bits",
    ),
    Kind(
        r"(add|sub|mul|fma)\.[\w.]*x4\..*",
        r"got a vector of \d ",
        "9.7.6 of PTX 9.4 (its contents alone are public): four numbers lie in a .b32 register; ptxas takes several",
    ),
    Kind(
        r"(add|sub|mul)\.(ftz\.f16x2|bf16x2)\.f32x2\.f32x2",
        "is not a PTX instruction",
        "9.7.5.1 of PTX 9.4 (no public text): add.rz.ftz.dtype3.atype3.ctype2; ptxas takes it without .rz",
    ),
    Kind(r"clmad\.(lo|hi)\.s64", "is not a PTX instruction", "9.7.1.5: clmad.mode.u64; all operands are unsigned"),
    Kind(
        r"cvt\.(?!.*scaled)[\w.:]*",
        r"expected 2 operands \(d, a\), got 3|got 4",
        "9.7.9.21: a scale-factor and .scaled are used together; ptxas takes one without",
    ),
    Kind(
        r"wgmma\.mma_async[\w.:]*\.(row|col)\b.*",
        "is not a PTX instruction",
        f"{_WGMMA}: no layouts; the transposition is an operand",
    ),
    Kind(
        r"wgmma\.(?!.*\.aligned).*\.sync.*",
        "is not a PTX instruction",
        f"{_WGMMA}: the .aligned qualifier is mandatory, and in every form of the syntax",
    ),
    Kind(
        r"(tcgen05\.(alloc|commit)|(multimem\.)?(st|red)\.async|st\.bulk).*",
        r"a (generic|\.global) address takes 64 bits, got a \.[bsu]32 register",
        "9.7.16.12.1: If no state space is specified then Generic Addressing is used, with 64 bits; ptxas takes 32",
    ),
    Kind(
        "",
        r"a \.samplerref needs \.target texmode_independent",
        "5.3: samplers are variables of their own in .target texmode_independent alone; ptxas looks at no array",
    ),
    Kind(
        r"(wgmma\.mma_async\.sp|mma\.sp(::ordered_metadata)?|spcompress)\..*",
        r"operand e: expected a (\.b32 register, got (a vector of \d|the literal 0f)|register .*, got \.pred)",
        "9.7.14.6.1, 9.7.15.6.1: metadata is one .b32 register; ptxas takes several in braces, a predicate, 0f3F800000",
    ),
    Kind(r"testp\.f(32|64)", "is not a PTX instruction", "9.7.3.1: testp.op.type; ptxas takes it without .op"),
    Kind(
        r"rcp\.(?!.*approx)(?=.*\bftz\b)(?=.*\bf64\b).*",
        "is not a PTX instruction",
        "9.7.3.13: rcp.rnd{.ftz}.f32, rcp.rnd.f64; ptxas takes .ftz with .f64",
    ),
    Kind(
        r"(tex|tld4|suld|sust|sured|txq|suq)\..*",
        r"got a vector|got the literal|got a \.\w+ register|got the symbol|expected \d( to \d)? (coordinates|operands)"
        r"|expected \d x|that holds|floating-point literal|(integer|a) literal|one type, or|the literal",
        "9.7.10, 9.7.11: operands have the types and numbers of the syntax; ptxas takes more coordinates, vectors of "
        "other sizes, other registers and literals for some of them",
    ),
    Kind(
        r"tensormap\.cp_fenceproxy\..*",
        "is not a PTX instruction",
        "9.7.13.16: tensormap.cp_fenceproxy.cp_qualifiers.fence_qualifiers.sync.aligned; ptxas takes words of "
        "tensormap.replace too",
    ),
    Kind(
        r"tensormap\.(replace|query)\..*",
        "is not a PTX instruction",
        "9.7.9.28: tensormap.replace.mode.field{.ss}.b1024.type; ptxas takes the two types in either order, and fields "
        "in a query",
    ),
    Kind(
        r"fabric\.wait\..*reads.*",
        r"expected \d operands",
        "9.7.10.5.6 of PTX 9.3: fabric.wait.sync_restrict::reads has no operand; .sync_restrict::read is of 9.5",
    ),
    Kind(
        r"fabric\..*",
        r"is not a PTX instruction|expected an address in|got the symbol|expected a number|got a vector",
        "9.7.10.5 of PTX 9.3: fabric.op.async...relaxed.sys, with mbarrier objects by their addresses; ptxas takes "
        "some of it without .relaxed, and other registers",
    ),
    Kind(
        r"red\.async\.relaxed\.(gpu|sys)\..*",
        "is not a PTX instruction",
        "9.7.13.7: .relaxed is of .cluster, with an mbarrier; without one .sem = {.release}",
    ),
    Kind(
        r"(atom|red|multimem)\..*\.v[248]\.b?f16(x2)?(\..*)?|cvt\..*\.scaled::n1::ue8m0\..*\.bf16x2",
        r"(element [1-7]|operand a): a \.\w+ operand cannot be a literal",
        "4.5.2: a floating-point literal is one number of 32 or 64 bits; ptxas looks at the first element alone",
    ),
    Kind(
        r"(atom|red)\.(?!.*cache_hint).*",
        r"expected \d operands \(.*got|address in brackets, got the symbol _",
        "9.7.13.5, .6: cache-policy is an operand of .level::cache_hint, and a an address; ptxas takes one without",
    ),
    Kind(
        r"mbarrier\.(test|try)_wait\..*parity.*",
        r"operand s: expected a number from 0 to 1",
        "9.7.13.15.16: phaseParity is the integer parity of a phase, 0 or 1",
    ),
    Kind(
        r"mbarrier\.arrive.*",
        r"operand n: expected a (number from 1|\.u32 register, got a vector)|operand d: expected _",
        "9.7.13.15.4, .13: counts are from 1 to 2^20 - 1, in a register or a literal; there is no state of an arrival "
        "in other CTAs",
    ),
    Kind(
        r"tcgen05\.mma\..*",
        r"operand p: expected (0 or 1|an integer)|operand (m|mask): expected a vector|operand s: expected a number",
        "9.7.16.10.9.1: enable-input-d specifies a predicate operand, disable-output-lane a vector, scale-input-d is "
        "from 0 to 15",
    ),
    Kind(
        r"(tcgen05\.(?!cp)|ldmatrix|stmatrix).*b(4x16_p64|6x16_p32|8x16).*",
        "is not a PTX instruction",
        "9.7.16.8, 9.7.14.5.15: the syntax has no such format there",
    ),
    Kind(
        r"tcgen05\.(?!.*spcompress).*\bb2\b.*",
        "is not a PTX instruction",
        "9.7.18.8 of PTX 9.4: .b2 is a type of tcgen05.ld.spcompress alone",
    ),
    Kind(
        r"tcgen05\.ld\..*red.*",
        r"got a vector",
        "9.7.16.8.3: redval is a register, which ptxas takes in braces",
    ),
    Kind(
        r"(w?mma|movmatrix|stmatrix)\..*",
        r"cannot be a literal|(got )?the literal|literals alone|(floating-point|integer) literal"
        r"|expected a vector .* got a \.\w+ register",
        "9.7.14.4, .5: fragments are vector expressions of registers; ptxas takes literals and single registers, too",
    ),
    Kind(
        r"st\.async\..*",
        r"expected 3 operands|expected a vector|got a vector|is not a PTX instruction",
        "9.7.9.12: st.async{.weak}{.ss}.completion_mechanism{.vec}.type [a], b, [mbar]; ptxas takes it without mbar, "
        "and one register for .vec",
    ),
    Kind(
        r"st\..*v4\.f64(\..*)?",
        r"element 0: expected a floating-point literal",
        "4.5: a float is written with a point, an exponent, 0f or 0d; ptxas takes integers alone in a vector",
    ),
    Kind(
        r"(ld|st)\..*v8\.[bus](8|16)",
        "is not a PTX instruction",
        "9.7.9.11: .v8 is of types of 32 bits; ptxas takes it with others",
    ),
    Kind(
        r"multimem\.(st|red|cp\.(reduce\.)?async)\..*acc::.*",
        "is not a PTX instruction",
        "9.7.9.14: .acc_prec is of multimem.ld_reduce; ptxas drops it elsewhere",
    ),
    Kind(
        r"wmma\.(load|store)\..*",
        "is not a PTX instruction",
        "9.7.14.4.3, .4: wmma.load.c.sync.aligned.layout.shape{.ss}.type; ptxas takes a second type",
    ),
    Kind(
        r"multimem\.st\.async\..*",
        r"expected a register that holds \.[bsu](8|16|32)",
        "9.7.9.13 of PTX 9.3 (no public text; as of st.async, 9.7.9.12): b has the type; ptxas takes wider registers",
    ),
    Kind(
        r"(st|mov|multimem|applypriority|sp(de)?compress|cp\.(reduce\.)?async\.bulk)\..*",
        r"the literal (0[fd]\w+|[\d.]+) is no \.b",
        "4.5.2: 0f gives a number of 32 bits, all others 64; ptxas takes them among elements of other widths",
    ),
    Kind(
        r"(ld|st|mov|atom|red|multimem)\..*v\d\.f(16|32).*|mma\.sp.*",
        r"element \d: expected a register that holds \.f(16|32)( or wider)?, got \.([us](16|32)|f16x2)",
        "9.4.1: of a float the register is .b or of its type; ptxas looks at no element of some vectors",
    ),
    Kind(
        r"cvt\..*\.satfinite\..*x2\.b?f16x2",
        r"operand a: expected a \.b?f16x2 register, got a vector of [124]",
        "9.7.9.21: a pair of halves is one .b32 register; ptxas takes several in braces",
    ),
    Kind(
        r"cvt\.pack\..*",
        r"operand [abcd]: expected a register that holds \.[bs]32, got \.([bsu](64|128)|f16x2)|c: the literal 0f",
        "9.7.9.22: a and b are of type .s32, c and d of type .b32; ptxas takes wider registers, and a float for c",
    ),
    Kind(
        r"fma\.(?=.*\boob\b)(?=.*\bsat\b).*",
        "is not a PTX instruction",
        "9.7.4.4: fma.rnd.oob{.relu}.type; .sat is of the forms without .oob",
    ),
    Kind(
        r"clusterlaunchcontrol\..*",
        "got a vector",
        "9.7.13.18: try_cancel_response is a .b128 register; ptxas takes vectors in its place",
    ),
    Kind(
        r"(ld|st|multimem)\..*",
        "got a vector of 1 ",
        "9.7.9.8, .11, .14: without .vec a register; ptxas takes it in braces",
    ),
    Kind(
        r"mov\.v[24]\..*",
        "expected a vector|the literal|'_' discards a result",
        "9.7.9.3: of a vector, d and a are vector expressions, and _ stands for elements of d",
    ),
    Kind(
        r"prefetch\..*valid_addr.*",
        "is not a PTX instruction",
        "9.7.10.16 of PTX 9.4: prefetch{.global}.L1::32B.valid_addr; ptxas takes levels and priorities with it",
    ),
    Kind(
        r".*",
        r"the special register .* can be read by mov and cvt",
        "10: special registers are read by mov and cvt; ptxas takes some among the elements of vectors",
    ),
    Kind(
        r"mov\.b(16|32|64|128)",
        r"got the symbol",
        "9.7.9.4: mov.btype d, a packs and unpacks registers; ptxas takes the address of a variable, too",
    ),
    Kind(
        r"cp\.(reduce\.)?async\.bulk.*\.(cta|cluster|gpu|sys)\b.*",
        "is not a PTX instruction",
        "9.7.9.25: the syntax of bulk copies has a scope with .relaxed alone; ptxas drops it",
    ),
    Kind(
        r"cp\.async\.bulk\.(?!relaxed|.*tensor).*\.b128",
        "is not a PTX instruction",
        "9.7.9.25.4.1: cp.async.bulk copies bytes of no type, and .b128 is of .relaxed; ptxas drops it",
    ),
    Kind(
        r"cp\.(reduce\.)?async\.bulk\.(?!.*tensor).*mbarrier.*",
        "operand m: expected an address in brackets",
        "9.7.9.25.4: [mbar] is an address; ptxas takes a literal",
    ),
    Kind(
        r"applypriority\.async\.bulk\.tensor\.((?!.*\dd\b).*|.*[1345]d.*gather4.*|.*gather4.*[1345]d.*)",
        "is not a PTX instruction",
        "9.7.10.19 of PTX 9.4 (no public text): a tensor has its number of dimensions, which is two for gather4 "
        "(9.7.9.25.5.2); ptxas takes gather4 with others and without one",
    ),
    Kind(
        r"applypriority\.async\.bulk.*",
        r"expected an address",
        "9.7.10.18, .19 of PTX 9.4 (no public text; as 9.7.9.16): an address in global memory; ptxas looks at none",
    ),
)


FAULTS = (
    Kind(
        r"tcgen05\.ld\..*(red|spcompress).*",
        "Intrinsic",
        "9.1, 9.7.16.8.3: nothing says that the registers of a load differ; ptxas cannot write one twice here",
    ),
    Kind(
        r"(tex|tld4)\..*",
        r"Illegal modifier '\.(3d|a?cube)'|mismatch for instruction '(tex.level|mov)'|match geometry|discard mode",
        "9.7.10.1, .3: tex.geom, tex.level.geom, tld4.comp.geom, .geom = {.1d, .2d, .3d, .a1d, .a2d, .cube, .acube}, "
        "with a sampler; ptxas takes it of some geometries alone: tex.3d and not tex.level.3d",
    ),
    Kind(
        r"mma(\.sp)?\..*\.(e[45]m[23]|f64)\..*",
        "Result discard mode is not allowed for instruction '(add|mov)'",
        "9.7.14.5: elements of d may be discarded; ptxas makes PTX of its own of these products, and refuses it there",
    ),
    Kind(
        r"(sp(de)?compress|multimem\.(st|red))\..*",
        "Arguments mismatch|Rounding modifier required for instruction 'cvt'",
        "4.5: a literal may stand for an operand that is read; ptxas takes none as a selector, or as all elements",
    ),
    Kind(
        r"mov\..*",
        "Incompatible elements of vector expression",
        "10: special registers are read by mov, among the elements of a vector as elsewhere",
    ),
    Kind(
        r"red\.async\..*",
        "does not match formal parameter",
        "9.1: a .b type agrees with any type of its width; ptxas makes a call of it, whose parameter is an integer",
    ),
    Kind(
        r"sp(de)?compress\..*",
        "Intrinsic",
        "9.1: nothing says that registers of a vector differ; ptxas cannot write one twice here",
    ),
    Kind(
        r"w?mma(\.sp[:\w]*)?\..*|cvt\.(rna|(?=.*\bftz\b)).*",
        r"<builtin>|Argument vector size mismatch for instruction 'mov'|Arguments mismatch for instruction '(mov|_mma)'"
        r"|Sink '_' not allowed as a source operand",
        "9.7.9.21, 9.7.14.4, .5: ptxas makes PTX of its own of these, and cannot read it with some operands",
    ),
    Kind(
        r"v(add|sub)4\.u32\.u32\.u32\.add",
        "mismatch for instruction 'dp4a'",
        "9.7.18.2.3: c has 32 bits, as an .f16x2 register that ptxas takes of vavrg4 and with .s32; it makes a dp4a of "
        "these, which takes none",
    ),
    Kind(
        r"setp?\.(?=.*\.(and|or|xor)\b)(?=.*\.bf16).*",
        "Arguments mismatch",
        "9.7.7: c is a predicate, in place of which ptxas takes 0 and 1 with all types but .bf16",
    ),
)
"""What ptxas refuses, with its message, and the text has."""


DEVIATES = "ptxas takes what the text does not have,"


def fault(opcode: str, message: str) -> str | None:
    """Why we take what ptxas refuses; None where nothing says it."""
    return next((kind.reason for kind in FAULTS if kind.explains(opcode, message)), None)


def superfluous(opcode: str) -> set[str]:
    """The qualifiers of an opcode without one of which it would be one of PTX."""
    words = opcode.split(".")
    return {word for at, word in enumerate(words) if at and find(".".join((*words[:at], *words[at + 1 :])))}


def reason(opcode: str, message: str, target: str) -> str | None:
    """Why we refuse on a target what ptxas takes; None where nothing says it."""
    if "is not a PTX instruction" in message and (more := superfluous(opcode)):
        if any(opcode.split(".").count(word) > 1 for word in more):
            return "each section of 9.7 has a qualifier once; ptxas drops some of those that stand twice"
        words = {word.partition("::")[0] for word in more}
        if opcode.startswith("mma.") and not words.isdisjoint(("b1", "s4", "u4", "bf16", "tf32", "xor", "and", "kind")):
            return "9.7.14.5.14, 9.7.14.6.3: each form has types, .bitOp and .kind of its own; ptxas drops others"
    match = next((kind.reason for kind in KINDS if kind.explains(opcode, message)), None)
    if match is not None or target not in TARGETS:
        return match
    deviation = explanation(canonical(opcode), TARGETS[target])
    return f"{DEVIATES} {deviation.section}: {deviation.sentence}" if deviation else None
