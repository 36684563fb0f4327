"""Which module has the meaning of which rows: it is imported when one of their instructions comes up, so that a kernel
waits only for what it contains."""

from __future__ import annotations

from collections.abc import Mapping

_OF_MODULES = {
    "access": "ld st cvta isspacep hint createpolicy multimem",
    "atomics": "atomic",
    "barriers": "bar barrier",
    "bulk": "bulk cp.async.bulk cp.reduce st.async red.async st.bulk",
    "calls": "call brx",
    "carry": "add.cc addc sub.cc subc mad.cc madc carry",
    "clusters": "mapa getctarank",
    "comparison": "setp set selp slct testp",
    "control": "bra ret exit trap brkpt membar fence",
    "convert": "cvt",
    "convert_narrow": "cvt.narrow cvt.scale cvt.four cvt.widen cvt.tf32 cvt.pack",
    "copies": "cp.async",
    "floating": "add.float sub.float mul.float fma mad.float add.mixed sub.mixed div.float min.float max.float "
    "abs.float neg.float copysign ex2 lg2 sin cos tanh rsqrt rcp sqrt",
    "integer": "add sub mul24 mad24 mul mad div rem popc clz fns brev bfind bfe bfi min max abs neg sad dp4a dp2a bmsk "
    "szext",
    "logic": "and or xor not cnot lop3 shl shr shf prmt mov",
    "matrix": "mma",
    "mbarrier": "mbarrier cp.async.mbarrier",
    "moves": "ldmatrix stmatrix movmatrix",
    "stack": "alloca stacksave stackrestore",
    "tensor_copies": "tensor",
    "tensor_maps": "tensor.replace tensor.copy",
    "video": "video",
    "warpgroup": "wgmma setmaxnreg",
    "warps": "bar.warp activemask vote shfl redux match elect",
    "wmma": "wmma",
}
_MODULES: Mapping[str, str] = {name: module for module, names in _OF_MODULES.items() for name in names.split()}


def module_of(means: str) -> str:
    """The module for what a row does: that with most of the first words of its name.

    Raises:
        KeyError: if there is none.
    """
    words = means.partition(" ")[0]
    while words not in _MODULES and "." in words:
        words = words.rpartition(".")[0]
    return _MODULES[words]
