"""The element types of `gemm.py`: what the product is in MLIR, how operands are drawn, who the peer is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

MLIR = """
#a = affine_map<({axes}) -> {a_axes}>
#b = affine_map<({axes}) -> {b_axes}>
#c = affine_map<({axes}) -> {c_axes}>
func.func @matmul(%A: {a}, %B: {b}, %C: {c}) {{
  %zero = arith.constant {zero} : {o}
  linalg.fill ins(%zero : {o}) outs(%C : {c})
  {op} indexing_maps = [#a, #b, #c] ins(%A, %B : {a}, {b}) outs(%C : {c})
  return
}}
"""

POISON_INTEGER = -123456789


@dataclass(frozen=True)
class Kind:
    """One type: MLIR's name, torch's, the ISA's, and the types of C, the default first.

    `peer` makes the call of the library that is compared, of A (m x k), B (k x n), its transpose and the type of C,
    which the library gives where it has it (`peer_out`); `by_columns` says that the peer takes B by columns, so that B
    is stored transposed for the fair comparison. `promote` is that field of our schedule, where it is given.
    """

    mlir: str
    torch: str
    isa: str
    outputs: tuple[str, ...]
    peer_name: str
    peer: Callable[[Any, Any, Any, Any, str], Callable[[], object]]
    by_columns: bool = False
    tf32: bool = False
    promote: str = ""

    @property
    def fields(self) -> dict[str, str]:
        """The fields of our schedule that are given."""
        return {"promote": self.promote} if self.promote else {}

    def text(
        self, size: tuple[int, int, int], out: str, transposed: bool, *, a_transposed: bool = False, batch: int = 1
    ) -> str:
        """The product, from zero, of A or its transpose and B or its transpose in memory; or `batch` of them."""
        m, n, k = size
        counts, outer = {"b": batch, "m": m, "n": n, "k": k}, "b" if batch > 1 else ""

        def memref(axes: str, kind: str) -> str:
            return f"memref<{''.join(f'{counts[axis]}x' for axis in axes)}{kind}>"

        a, b, c = outer + ("km" if a_transposed else "mk"), outer + ("nk" if transposed else "kn"), outer + "mn"
        loops, maps = f"{outer}mnk", {"a_axes": a, "b_axes": b, "c_axes": c}
        return MLIR.format(
            a=memref(a, self.mlir), b=memref(b, self.mlir), c=memref(c, out), o=out, axes=", ".join(loops),
            zero="0" if out.startswith("i") else "0.0", op="linalg.contract" if outer else "linalg.matmul",
            **{name: f"({', '.join(axes)})" for name, axes in maps.items()},
        )  # fmt: skip

    def peer_out(self, out: str) -> str:
        """The type of C that the library gives where `out` is asked for."""
        return self.outputs[0] if self.by_columns else out

    def draw(self, torch: Any, shape: tuple[int, ...]) -> Any:
        """N(0, 1); of integers, all values alike."""
        if self.mlir == "i8":
            return torch.randint(-128, 128, shape, device="cuda", dtype=torch.int8)
        dtype = getattr(torch, self.torch)
        return torch.randn(*shape, device="cuda", dtype=torch.float64 if self.mlir == "f64" else None).to(dtype)


def output(torch: Any, shape: tuple[int, ...], out: str) -> Any:
    """C, full of what no right kernel leaves behind."""
    names = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "i32": "int32"}
    return torch.full(shape, POISON_INTEGER if out == "i32" else float("nan"), device="cuda",
                      dtype=getattr(torch, names[out]))  # fmt: skip


def _matmul(torch: Any, a: Any, b: Any, transposed: Any, out: str) -> Callable[[], object]:
    torch.backends.cuda.matmul.allow_tf32 = True
    if out == "f32" and a.element_size() < torch.float32.itemsize:
        return lambda: torch.mm(a, b, out_dtype=torch.float32)
    return lambda: torch.matmul(a, b)


def _integers(torch: Any, a: Any, b: Any, transposed: Any, out: str) -> Callable[[], object]:
    return lambda: torch._int_mm(a, transposed.t())  # torch has no public name for it


def _scaled(fast: bool, torch: Any, a: Any, b: Any, transposed: Any, out: str) -> Callable[[], object]:
    one = torch.ones((), device="cuda")
    return lambda: torch._scaled_mm(
        a, transposed.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=fast
    )


KINDS = {
    "bf16": Kind("bf16", "bfloat16", "bf16", ("f32", "bf16"), "cuBLAS", _matmul),
    "f16": Kind("f16", "float16", "f16", ("f32", "f16"), "cuBLAS", _matmul),
    "tf32": Kind("f32", "float32", "tf32", ("f32",), "cuBLAS", _matmul, tf32=True),
    "f64": Kind("f64", "float64", "f64", ("f64",), "cuBLAS", _matmul),
    "s8": Kind("i8", "int8", "s8", ("i32",), "cuBLASLt", _integers, by_columns=True),
    **{
        name: Kind(
            "f8E4M3FN",
            "float8_e4m3fn",
            "e4m3",
            ("bf16", "f32"),
            f"cuBLASLt, {how}",
            partial(_scaled, how == "fast"),
            by_columns=True,
            promote=promote,
        )
        for name, how, promote in (("e4m3", "fast", "none"), ("e4m3-promoted", "full", "f32"))
    },
}
