"""`warp.attention`, two products with a softmax between them, and `warp.attention_gradient`, its gradients."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import ClassVar, NamedTuple

from xdsl.dialects.builtin import (
    AffineMapAttr,
    ArrayAttr,
    BFloat16Type,
    Float8E4M3FNType,
    Float16Type,
    Float32Type,
    FloatAttr,
    IndexType,
    IntegerAttr,
    MemRefType,
    UnitAttr,
    bf16,
    f16,
    f32,
    i32,
)
from xdsl.ir import Attribute, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.irdl import operand_def, opt_attr_def, opt_operand_def, opt_prop_def, prop_def, traits_def, var_operand_def
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException

from ..mlir.affine import loops_of
from ..mlir.words import irdl_op_definition
from .attributes import memory_of
from .elements import LoopSizes, PointwiseOp, PointwiseType, loops_around, pointwise_of, verify_along
from .op_shapes import FieldValue, WarpOp
from .operands import verify_ends

M, N, D, E = 0, 1, 2, 3
"""The loops of attention behind those of its batch: queries, keys, what both have in common, what values have."""

LOOPS = ((M, D), (N, D), (N, E), (M, E))
"""The loops that Q, K, V and O run along."""

HALVES = (Float16Type, BFloat16Type)

MULTIPLIED = (*HALVES, Float8E4M3FNType)
"""The types of Q, K and V, all of one."""

MATRICES = {"Q": (M, D), "K": (N, D), "V": (N, E), "dO": (M, E)}
"""The loops of the matrices that are read."""

ROWS = ("lse", "delta")
"""What is read for each query."""

INPUTS = (*MATRICES, *ROWS)
"""What is read."""

GRADIENTS = {"dQ": (M, D), "dK": (N, D), "dV": (N, E)}
"""The loops of the matrices that may be written."""


class Keys(NamedTuple):
    """The keys that count for query m: up to m + diagonal, from m - window on, below the element of `lengths`, memory
    and its map, and with the same number in the second of two `documents` as the query has in the first, where these
    are given. With `ends`, queries and keys are those of a sequence, counted from its first one."""

    diagonal: int | None = None
    window: int | None = None
    lengths: tuple[SSAValue, AffineMap] | None = None
    documents: tuple[tuple[SSAValue, AffineMap], ...] = ()
    ends: SSAValue | None = None

    def fields(self, scale: float) -> dict[str, FieldValue]:
        """What an operation on these keys, with scores scaled so, has but for `ends`."""
        return with_maps(lengths=self.lengths) | {
            "scale": FloatAttr(scale, f32),
            "diagonal": self.diagonal,
            "window": self.window,
            "documents": [memory for memory, _ in self.documents],
            "documents_maps": [map_ for _, map_ in self.documents],
        }


def with_maps(**placed: tuple[SSAValue, AffineMap] | None) -> dict[str, FieldValue]:
    """What an operation has for memory and its map, where they are given."""
    pairs = {name: pair for name, pair in placed.items() if pair is not None}
    memories: dict[str, FieldValue] = {name: memory for name, (memory, _) in pairs.items()}
    return memories | {f"{name}_map": map_ for name, (_, map_) in pairs.items()}


class Gradient(NamedTuple):
    """A result: its name, memory, and map."""

    name: str
    memory: SSAValue
    map: AffineMap


class OverKeys(WarpOp):
    """What an attention and its gradients have in common: maps, the scale of scores, and the keys that count."""

    tile = var_operand_def(IndexType())
    first = opt_operand_def(IndexType())
    until = opt_operand_def(IndexType())
    documents = var_operand_def(MemRefType)

    scale = prop_def(FloatAttr)
    diagonal = opt_prop_def(IntegerAttr)
    window = opt_prop_def(IntegerAttr)
    documents_maps = opt_prop_def(ArrayAttr[AffineMapAttr])
    indexing_maps = prop_def(ArrayAttr[AffineMapAttr])

    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())

    FUNCTIONS: ClassVar[Sequence[str]]

    @property
    def maps(self) -> tuple[AffineMap, ...]:
        """The indexing maps of Q, K, V and O, or of the inputs of gradients, then of their outputs."""
        return tuple(attribute.data for attribute in self.indexing_maps)

    @property
    def batch(self) -> int:
        """How many loops there are before m, n, d and e."""
        return self.maps[0].num_dims - len(LOOPS)

    def sizes_of(self, names: Iterable[str], memories: Sequence[SSAValue]) -> LoopSizes:
        """The sizes of all loops, by the memories of these names. Raises VerifyException if they disagree."""
        sizes = LoopSizes()
        for name, memory, map_ in zip(names, memories, self.maps, strict=True):
            sizes.add(name, memory, loops_of(map_))
        return sizes

    @property
    def keys(self) -> Keys:
        """The range of keys."""
        diagonal, window = (None if bound is None else bound.value.data for bound in (self.diagonal, self.window))
        maps = () if self.documents_maps is None else (map_.data for map_ in self.documents_maps)
        return Keys(diagonal, window, documents=tuple(zip(self.documents, maps, strict=True)))

    def verify_scores(self, *, of_tile: bool) -> None:
        """Verifies the scale of scores and the numbers of documents. Raises VerifyException if the scale is not above
        0, or there are documents, but not two memories of i32 with maps, along queries and along keys."""
        if not 0 < self.scale.value.data < math.inf:
            raise VerifyException(f"expected a scale above 0, got {self.scale.value.data:g}")
        count, batch = len(self.documents_maps or ()), self.batch
        if len(self.documents) != count or count not in (0, 2):
            raise VerifyException(
                f"expected documents of queries and of keys, with a map each, got {len(self.documents)} and {count}"
            )
        for (memory, map_), loop in zip(self.keys.documents, (batch + M, batch + N), strict=False):
            loops = loops_of(map_)
            if memory_of(memory).element_type != i32 or loop not in loops or len(set(loops)) != len(loops):
                raise VerifyException(f"expected documents in memory of i32 along d{loop}, got {memory.type}")
            if not of_tile and not set(loops) <= {*range(batch), loop}:
                raise VerifyException(f"expected documents to be indexed by the batch and d{loop}, got {list(loops)}")

    @property
    def functions(self) -> dict[str, PointwiseOp]:
        """The functions of elements that it takes, by the names of their operands."""
        named = ((name, pointwise_of(getattr(self, name))) for name in self.FUNCTIONS)
        return {name: function for name, function in named if function is not None}

    @property
    def function_operands(self) -> list[SSAValue]:
        """The operands of the functions of elements."""
        return [value for function in self.functions.values() for value in function.inputs]

    def _verify_function(
        self, what: str, function: PointwiseOp | None, made: Attribute, column: int, sizes: LoopSizes, takes: int = 1
    ) -> None:
        """Verifies a function of so many elements that run along the batch, m and a further loop."""
        if function is None:
            return
        if function.argument_type != f32 or function.products != takes:
            kinds = ", ".join([str(function.argument_type)] * function.products)
            raise VerifyException(f"expected {what} of f32 to be taken, got {kinds}")
        along = (*range(self.batch), self.batch + M, self.batch + column)
        function.verify_use(f"{what.removesuffix('s')} operand", made, self.maps[0].num_dims, along, sizes)


@irdl_op_definition
class AttentionOp(OverKeys):
    """O = softmax(scale * f(Q K^T)) V, row by row of the scores, in one pass over K and V::

        warp.attention %Q, %K, %V into %O {
          scale = 1.250000e-01 : f32, indexing_maps = [affine_map<(h, m, n, d, e) -> (h, m, d)>, ...]
        } : memref<16x512x64xf16>, memref<16x512x64xf16>, memref<16x512x64xf16>, memref<16x512x64xf16>

    The loops are those of a batch, then m over queries, n over keys, d over the columns of Q and K, and e over the
    columns of V. Q is indexed by m and d, K by n and d, V by n and e, and O by m and e. All loops of the batch index O.
    A loop of the batch indexes Q, K or V only if its matrices differ along the loop, so several heads may share K and
    V.

    Scores are f32. With `diagonal = c`, scores with n > m + c count as minus infinity, with `window = w` those with
    n < m - w. With `lengths`, memory of i32 that loops of the batch index by `lengths_map`, so do those of the keys
    behind the number in it, and these keys are not read. With two `documents`, memory of i32 that loops of the batch
    and m, or n, index by `documents_maps`, so do scores of queries and keys whose numbers differ::

        warp.attention %Q, %K, %V into %O {..., lengths_map = affine_map<(b, h, m, n, d, e) -> (b)>}
          : memref<...>, memref<...>, memref<...>, memref<...> lengths %L : memref<16xi32>

    With `lse`, memory of f32 that the loops of the batch and m index by `lse_map`, each row also leaves the logarithm
    of the sum of the exponentials of its scores, times `lse_factor`; with `zero_lse`, 0 where all are minus infinity.
    Its gradient is computed from it. With `sinks`,
    memory of floats that loops of the batch and m index by `sinks_map`, that sum has the exponential of one of them
    too, as of the score of a key without values. A `warp.pointwise`, given as `scores %f`, may change them: it takes a
    score before scaling, and yields a score in f32. Its operands are indexed by m, n and the batch. Another, given as
    `through %g`, takes an element of the result in f32, and yields that of O.

    The result is NaN for a row with a NaN or plus infinity, or of minus infinity alone, where `zero_rows` makes it 0.
    With `of_keys = c`, V is the columns of K from c on, as of one latent matrix, and a CTA has one tile of both. A loop
    of the batch that indexes V alone goes on by as many columns as V has.

    With `grouped`, memory of i32 has where each of several sequences ends, which lie one behind the other along m and
    n: queries attend to the keys of their own sequence, and are counted from its first one, as keys are. Rows behind
    the last end are neither read nor written::

        warp.attention %Q, %K, %V into %O {...} : ..., memref<4096x8x64xf16> grouped %ends : memref<16xi32>

    In a kernel, the operation computes the tile of one CTA, `tile [%m]`: the rows of O from m on, as many as the
    schedule says, with `until %n` for the first key that does not count in place of `lengths`, and `from %n` for the
    first key that counts for any row, where `documents` tell it. If CTAs share the keys
    of a tile (`split_k`), each attends to a part of them: `tile [%m, %tile, %part]` has the numbers of the tile and the
    part, and `parts` are memory for the sums of parts, for the largest score and the sum of each of their rows, and for
    counters of arrivals.
    """

    name = "warp.attention"

    q = operand_def(MemRefType)
    k = operand_def(MemRefType)
    v = operand_def(MemRefType)
    o = operand_def(MemRefType)
    scores = opt_operand_def(PointwiseType())
    through = opt_operand_def(PointwiseType())
    lengths = opt_operand_def(MemRefType)
    parts = var_operand_def(MemRefType)
    lse = opt_operand_def(MemRefType)
    sinks = opt_operand_def(MemRefType)
    ends = opt_operand_def(MemRefType)
    lengths_map = opt_prop_def(AffineMapAttr)
    lse_map = opt_prop_def(AffineMapAttr)
    sinks_map = opt_prop_def(AffineMapAttr)
    zero_rows = opt_attr_def(UnitAttr)
    zero_lse = opt_attr_def(UnitAttr)
    lse_factor = opt_attr_def(FloatAttr)
    of_keys = opt_attr_def(IntegerAttr)

    FUNCTIONS: ClassVar = ("scores", "through")

    assembly_format = (
        "$q `,` $k `,` $v `into` $o (`scores` $scores^)? (`through` $through^)? (`tile` $tile^)?"
        " (`from` $first^)? (`until` $until^)? attr-dict `:` type($q) `,` type($k) `,` type($v) `,` type($o)"
        " (`lengths` $lengths^ `:` type($lengths))? (`parts` $parts^ `:` type($parts))? (`lse` $lse^ `:` type($lse))?"
        " (`sinks` $sinks^ `:` type($sinks))? (`documents` $documents^ `:` type($documents))?"
        " (`grouped` $ends^ `:` type($ends))?"
    )

    @property
    def matrices(self) -> tuple[SSAValue, SSAValue, SSAValue, SSAValue]:
        """Q, K, V and O."""
        return self.q, self.k, self.v, self.o

    @property
    def keys(self) -> Keys:
        """The range of keys."""
        return super().keys._replace(lengths=self.placed("lengths"), ends=self.ends)

    def placed(self, name: str) -> tuple[SSAValue, AffineMap] | None:
        """The memory of `lengths`, `lse` or `sinks`, and its map, if they are there."""
        memory, map_ = getattr(self, name), getattr(self, f"{name}_map")
        return None if memory is None or map_ is None else (memory, map_.data)

    @property
    def score(self) -> PointwiseOp | None:
        """What scores become before they are scaled."""
        return self.functions.get("scores")

    @property
    def function(self) -> PointwiseOp | None:
        """What elements of the result become before they are stored."""
        return self.functions.get("through")

    @property
    def sizes(self) -> LoopSizes:
        """The sizes of all loops. Raises VerifyException if operands disagree."""
        return self.sizes_of("QKVO", self.matrices)

    def verify_(self) -> None:
        if len(self.maps) != len(LOOPS):
            raise VerifyException(f"expected maps of Q, K, V and O, got {len(self.maps)}")
        if (len(self.tile), len(self.parts)) not in ((0, 0), (1, 0), (3, 3)):
            raise VerifyException(
                f"expected the row of a tile of O, or [row, tile, part] with memory for sums, states and counters, got "
                f"{len(self.tile)} indices and {len(self.parts)} parts"
            )
        self._verify_types()
        self._verify_row_operands()
        self.verify_scores(of_tile=bool(self.tile))
        for name, loops, map_ in zip("QKVO", LOOPS, self.maps, strict=False):
            around = loops_around(name, loops, map_, self.batch, len(LOOPS))
            if name == "O" and len(around) != self.batch:
                raise VerifyException(f"expected O to be indexed by every loop of the batch, got {map_}")
        if self.ends is not None:
            verify_ends(self.ends)
        sizes = self.sizes
        self._verify_function("scores", self.score, f32, N, sizes)
        self._verify_function("results", self.function, memory_of(self.o).element_type, E, sizes)

    def _verify_row_operands(self) -> None:
        """Verifies `lengths`, `lse` and `sinks`: those of a tile are matrices, whose columns are all the same."""
        count, batch = self.maps[0].num_dims, list(range(self.batch))
        rows = [*batch, self.batch + M, *([self.batch + E] if self.tile else [])]
        for name, memory, map_, kinds, along in (
            ("lengths", self.lengths, self.lengths_map, (i32,), batch),
            ("lse", self.lse, self.lse_map, (f32,), rows),
            ("sinks", self.sinks, self.sinks_map, (f32, f16, bf16), rows),
        ):
            if (memory, map_) == (None, None):
                continue
            if memory is None or map_ is None or memory_of(memory).element_type not in kinds:
                listed = ", ".join(map(str, kinds))
                raise VerifyException(f"expected {name} in memory of {listed} with a map of the loops that index it")
            loops, every = loops_of(map_.data), "all loops" if name == "lse" else "loops"
            fits = sorted(loops) == along if name == "lse" else len(set(loops)) == len(loops) and {*loops} <= {*along}
            if not fits or map_.data.num_dims != count:
                of_rows = " and m" if along is rows else ""
                raise VerifyException(
                    f"expected {name} to be indexed by {every} of the batch{of_rows}, got {map_.data}"
                )
            if along is batch:
                self.sizes.add(name, memory, loops)

    def _verify_types(self) -> None:
        kinds = [memory_of(value).element_type for value in self.matrices]
        if not isinstance(kinds[0], MULTIPLIED) or kinds[1] != kinds[0] or kinds[2] != kinds[0]:
            listed = ", ".join(map(str, kinds[:3]))
            raise VerifyException(f"expected Q, K and V of f16, of bf16, or of f8E4M3FN, got {listed}")
        if isinstance(kinds[0], Float8E4M3FNType):
            if kinds[3] not in (f16, bf16, f32):
                raise VerifyException(f"expected O of f16, bf16 or f32, got {kinds[3]}")
        elif kinds[3] not in (kinds[0], f32):
            raise VerifyException(f"expected O of {kinds[0]} or f32, got {kinds[3]}")


@irdl_op_definition
class AttentionGradientOp(OverKeys):
    """Gradients of O = softmax(scale * f(Q K^T)) V, from that of O::

        S = h(Q K^T)                    P = exp(scale * f(S) - lse)
        dS = g(S, P * (dO V^T - delta))
        dQ = dS K                       dK = dS^T Q                        dV = P^T dO

        warp.attention_gradient %Q, %K, %V, %dO, %lse, %delta into %dK, %dV {
          scale = 1.250000e-01 : f32, indexing_maps = [affine_map<(h, m, n, d, e) -> (h, m, d)>, ...]
        } : memref<16x512x64xf16>, ..., memref<16x512xf32>, memref<16x512xf32>
          into memref<16x512x64xf16>, memref<16x512x64xf16>

    The loops are those of `warp.attention`. For each query, `lse` is the logarithm of the sum of the exponentials of
    its scores, and `delta` is the sum of dO * O along its row, both in f32. The results are dQ, dK, dV, or both dK and
    dV; the maps say which. Loops of the batch that index no result are summed over: if several heads share K and V, so
    are dK and dV the sums over these heads.

    With `diagonal = c`, scores with n > m + c count as minus infinity, with `window = w` those with n < m - w, with two
    `documents` those of queries and keys whose numbers differ, as in `warp.attention`. A `warp.pointwise`, given as
    `products %h`, is h, another, given as `scores %f`, is f: each takes an element of f32 and yields one. A third,
    given as `slopes %g`, is g: it takes two elements, and yields dS of the product, all in f32, and 0 where the second
    is 0. Their operands are indexed by m, n and the batch. Without them h(S) and f(S) are S, and g(S, x) is scale * x.

    P and dS are computed in f32, and rounded to the type of the matrices that they are multiplied with. Sums are f32.

    In a kernel, the operation computes the tile of one CTA: `tile [%row, ...]` has the first row of the results, then
    the index along each loop of the batch that the results run along; `from` and `until` are the first column of the
    scores that counts for any of its rows, and the first that counts for none from there on.
    """

    name = "warp.attention_gradient"

    q = operand_def(MemRefType)
    k = operand_def(MemRefType)
    v = operand_def(MemRefType)
    do = operand_def(MemRefType)
    lse = operand_def(MemRefType)
    delta = operand_def(MemRefType)
    outputs = var_operand_def(MemRefType)
    products = opt_operand_def(PointwiseType())
    scores = opt_operand_def(PointwiseType())
    slopes = opt_operand_def(PointwiseType())

    FUNCTIONS: ClassVar = ("products", "scores", "slopes")

    assembly_format = (
        "$q `,` $k `,` $v `,` $do `,` $lse `,` $delta `into` $outputs (`products` $products^)?"
        " (`scores` $scores^)? (`slopes` $slopes^)? (`tile` $tile^)? (`from` $first^)? (`until` $until^)? attr-dict"
        " `:` type($q) `,` type($k) `,` type($v) `,` type($do) `,` type($lse) `,` type($delta) `into` type($outputs)"
        " (`documents` $documents^ `:` type($documents))?"
    )

    @property
    def inputs(self) -> tuple[SSAValue, ...]:
        """Q, K, V, dO, lse and delta."""
        return self.q, self.k, self.v, self.do, self.lse, self.delta

    @property
    def gradients(self) -> list[Gradient]:
        """The results by name."""
        maps = self.maps[len(self.inputs) :]
        return [
            Gradient(name, memory, map_)
            for memory, map_ in zip(self.outputs, maps, strict=True)
            for name, loops in GRADIENTS.items()
            if {loop - self.batch for loop in loops_of(map_) if loop >= self.batch} == set(loops)
        ]

    @property
    def rows(self) -> int:
        """The loop along the rows of the results: over queries, or over keys."""
        return M if self.gradients[0].name == "dQ" else N

    @property
    def score_matrices(self) -> int:
        """How many operands of the functions have an element for each score."""
        scores, functions = {self.batch + M, self.batch + N}, self.functions.values()
        return sum(scores <= set(loops_of(map_)) for function in functions for _, map_ in function.placed)

    @property
    def sizes(self) -> LoopSizes:
        """The sizes of all loops. Raises VerifyException if operands disagree."""
        return self.sizes_of([*INPUTS, *(each.name for each in self.gradients)], [*self.inputs, *self.outputs])

    def verify_(self) -> None:
        operands = len(self.inputs) + len(self.outputs)
        if len(self.maps) != operands:
            raise VerifyException(f"expected a map of each of {operands} operands, got {len(self.maps)}")
        names = [gradient.name for gradient in self.gradients]
        if names not in [["dQ"], ["dK"], ["dV"], ["dK", "dV"]] or len(names) != len(self.outputs):
            raise VerifyException(f"expected maps of dQ, dK, dV, or of dK and dV, got those of {', '.join(names)}")
        for (name, loops), map_ in zip(MATRICES.items(), self.maps, strict=False):
            loops_around(name, loops, map_, self.batch, len(LOOPS))
        for name, map_ in zip(ROWS, self.maps[len(MATRICES) :], strict=False):
            verify_along(name, map_, self.batch + len(LOOPS), range(self.batch + 1))
            if self.batch + M not in loops_of(map_):
                raise VerifyException(f"expected {name} to be indexed by d{self.batch + M}, got {map_}")
        around = [loops_around(name, GRADIENTS[name], map_, self.batch, len(LOOPS)) for name, _, map_ in self.gradients]
        if any(sorted(loops) != sorted(around[0]) for loops in around):
            raise VerifyException("expected dK and dV to be indexed by the same loops of the batch")
        if len(self.tile) not in (0, 1 + len(around[0])):
            raise VerifyException(f"expected a row and {len(around[0])} indices of the batch, got {len(self.tile)}")
        self.verify_scores(of_tile=False)
        self._verify_types()
        for name, function in self.functions.items():
            self._verify_function(name, function, f32, N, self.sizes, takes=1 + (name == "slopes"))

    def _verify_types(self) -> None:
        kinds = [memory_of(value).element_type for value in self.inputs]
        if not isinstance(kinds[0], HALVES) or any(kind != kinds[0] for kind in kinds[: len(MATRICES)]):
            raise VerifyException(f"expected Q, K, V and dO of f16, or of bf16, got {', '.join(map(str, kinds[:4]))}")
        if any(not isinstance(kind, Float32Type) for kind in kinds[len(MATRICES) :][: len(ROWS)]):
            raise VerifyException(f"expected lse and delta of f32, got {kinds[4]} and {kinds[5]}")
        for gradient in self.gradients:
            if (kind := memory_of(gradient.memory).element_type) not in (kinds[0], Float32Type()):
                raise VerifyException(f"expected {gradient.name} of {kinds[0]} or f32, got {kind}")
