"""The backend of `torch.compile`, on the interpreter: results against float64, and what it says it compiled."""

from __future__ import annotations

import copy
import importlib.util
import logging
import math
import operator
import os
import pickle
import re
import subprocess
import sys
from base64 import b85encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from copy import deepcopy
from functools import partial
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from warploom.runtime import ArgumentError, WarploomError, prune

torch = pytest.importorskip("torch")

from warploom.runtime import torch_load, torch_save  # noqa: E402
from warploom.runtime.torch import backend  # noqa: E402
from warploom.runtime.torch.attention import read_in_place  # noqa: E402
from warploom.runtime.torch.decompositions import recurrent  # noqa: E402
from warploom.runtime.torch.options import ATTENTIONS, expression  # noqa: E402
from warploom.runtime.torch.products import PRODUCTS  # noqa: E402

pytestmark = pytest.mark.sampled(2)
"""Of the cases of each test, one in two: what they share, compiling and interpreting, is most of their time."""

functional: Any = torch.nn.functional
BF16 = 2.0**-8
EXAMPLE = Path(__file__).parents[2] / "examples" / "torch_mlp.py"


@pytest.fixture(autouse=True)
def _fresh() -> None:
    """Nothing compiled before."""
    torch._dynamo.reset()


class Compiled:
    """A function compiled by the backend, and what it said."""

    def __init__(self, function: Callable[..., Any], dynamic: bool | None = None, **options: Any) -> None:
        self.explanations: list[Any] = []
        options = {"explain": self.explanations.append, **options}
        self.call = torch.compile(function, backend="warploom", dynamic=dynamic, options=options)

    @property
    def operators(self) -> list[tuple[str, ...]]:
        """Of each compiled part that multiplies the operators."""
        multiply = {str(target) for target in (*PRODUCTS, *ATTENTIONS)}
        parts = [part for e in self.explanations for part in e.compiled if multiply.intersection(part.operators)]
        return [tuple(o.split(".")[1] for o in part.operators) for part in parts]

    @property
    def reasons(self) -> list[str]:
        return [left.reason for e in self.explanations for left in e.left]


def drawn(*shape: int, dtype: Any = torch.bfloat16) -> Any:
    return torch.randn(*shape).to(dtype)


def close(result: Any, exact: Any, roundings: float) -> bool:
    """Within so many roundings to bf16 of values of the size of the largest one."""
    return bool(torch.all((result.double() - exact).abs() <= roundings * BF16 * (1 + exact.abs().max())))


def assert_compiled(
    function: Callable[..., Any], *inputs: Any, parts: list[tuple[str, ...]], **options: Any
) -> Compiled:
    """The function's value, with these parts compiled. Eager mode is up to 2.7 roundings off behind two products."""
    compiled = Compiled(function, **options)
    exact = function(*(x.double() for x in inputs))
    assert close(compiled.call(*inputs), exact, 3.0)
    assert compiled.operators == parts
    return compiled


class Mlp(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(24), torch.nn.Linear(24, 40), torch.nn.Linear(40, 24)

    def forward(self, x: Any) -> Any:
        return x + self.down(functional.gelu(self.up(self.norm(x))))


def test_forward_and_backward() -> None:
    model = Mlp().bfloat16()
    exact = Mlp().double()
    exact.load_state_dict(model.state_dict())
    compiled = Compiled(model)
    x, grad = drawn(2, 3, 24).requires_grad_(), drawn(2, 3, 24)
    wide = x.detach().double().requires_grad_()
    compiled.call(x).backward(grad)
    result = compiled.call(x)
    expected = exact(wide)
    expected.backward(grad.double())
    assert close(result, expected, 4.0)
    assert close(x.grad, wide.grad, 6.0)
    for mine, theirs in zip(model.parameters(), exact.parameters(), strict=True):
        assert close(mine.grad, theirs.grad, 6.0)
    assert [e.graph for e in compiled.explanations] == ["forward", "backward"]
    assert compiled.operators == [
        ("addmm",), ("addmm", "add"), ("mm", "gelu_backward"), ("mm",), ("mm", "_to_copy"), ("mm",),
    ]  # fmt: skip
    assert not compiled.reasons, "norms and sums are kernels of their own"


@pytest.mark.parametrize("first", [True, False])
def test_a_layer_of_an_encoder_as_inference_calls_it(first: bool) -> None:
    """torch has one operation for it, and no decomposition of that."""
    activation = "gelu" if first else "relu"
    layer = torch.nn.TransformerEncoderLayer(24, 2, 40, 0.1, activation, batch_first=True, norm_first=first).eval()
    for weight in layer.parameters():
        weight.detach().uniform_(-0.3, 0.3)
    x = drawn(3, 7, 24)
    with torch.no_grad():
        exact = copy.deepcopy(layer).bfloat16().double()(x.double())
        compiled = Compiled(layer.bfloat16())
        assert close(compiled.call(x), exact, 6.0)
    assert sum("addmm" in part for part in compiled.operators) == 4, compiled.operators
    assert not compiled.reasons, "norms are kernels of their own"


def test_a_gate_is_computed_in_the_kernel_of_its_two_products() -> None:
    def gated(x: Any, w: Any, v: Any) -> Any:
        return functional.silu(x @ w) * (x @ v)

    with torch.inference_mode():
        compiled = assert_compiled(gated, drawn(5, 16), drawn(16, 8), drawn(16, 8), parts=[("mm", "silu", "mm", "mul")])
    (explanation,) = compiled.explanations
    assert explanation.graph == "inference"
    assert not explanation.left


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("function", "part"),
    [
        (lambda a, b: (a @ b).mul(2).clone(), ("mm", "mul", "clone")),
        (lambda a, b: (a @ b).clone().mul(2).clone().add(1), ("mm", "clone", "mul", "clone", "add")),
    ],
)
def test_copies_between_pointwise_operations(function: Callable[..., Any], part: tuple[str, ...]) -> None:
    assert_compiled(function, drawn(16, 24), drawn(24, 8), parts=[part])


def test_one_kernel_for_every_batch() -> None:
    layer = torch.nn.Linear(16, 8).bfloat16()
    compiled = Compiled(lambda x: functional.relu(layer(x)), dynamic=True)
    exact = torch.nn.Linear(16, 8).double()
    exact.load_state_dict(layer.state_dict())
    with torch.no_grad():
        for batch in (3, 5, 2):
            x = drawn(batch, 7, 16)
            assert close(compiled.call(x), functional.relu(exact(x.double())), 1.5)
    assert compiled.operators == [("addmm", "relu")]


def test_numbers_that_are_sizes_of_inputs_are_compiled() -> None:
    """Also of an input of which only a size is read, next to a product of others."""

    def function(a: Any, b: Any, c: Any) -> Any:
        return (a @ b) * c.shape[0] + a.shape[1], c * 2

    compiled = Compiled(function, dynamic=True)
    for m, k, n, rows in ((3, 5, 7, 11), (9, 6, 4, 2)):
        a, b, c = drawn(m, k), drawn(k, n), drawn(rows, 13)
        assert close(compiled.call(a, b, c)[0], (a.double() @ b.double()) * rows + k, 3)
    assert compiled.operators == [("mm", "mul", "add")]


def test_products_of_sizes_may_pass_32_bits() -> None:
    compiled = Compiled(lambda a, b, c: (a * 2, b * 2, c * (a.shape[0] * b.shape[0] * c.shape[0])), dynamic=True)
    for rows in (2, 1300):
        a, b, c = (drawn(rows + more, 3, dtype=torch.float32) for more in (1, 2, 3))
        assert torch.equal(compiled.call(a, b, c)[2], c * ((rows + 1) * (rows + 2) * (rows + 3)))
    assert not compiled.reasons


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.float().mean(0),
        lambda x: functional.layer_norm(x, (x.shape[1],)),
        lambda x: x.masked_fill(torch.arange(x.shape[0])[:, None] >= x.shape[0] - 2, 0.5),
        lambda x: torch.where(torch.arange(x.shape[1]) < x.shape[0], x, x.clamp(max=x.shape[0])),
        lambda x: x.float() + (x * 8).to(torch.int32).clamp(0, x.shape[0] - 3),
        lambda x: x.float() + torch.div((x * 64).to(torch.int32), x.shape[0], rounding_mode="floor"),
    ],
)
def test_means_and_masks_along_sizes_that_are_not_known(function: Callable[[Any], Any]) -> None:
    compiled = Compiled(function, dynamic=True)
    for rows in (5, 9):
        x = drawn(rows, rows + 3)
        assert close(compiled.call(x), function(x.double()), 2.0)
    assert not compiled.reasons


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x * 3).float().sum(-1),
        lambda x: x.float().mean(-1),
        lambda x: functional.layer_norm((x + 1).float() * 2.0**-36, x.shape[-1:]),
    ],
)
def test_rows_of_integers_that_32_bits_do_not_hold(function: Callable[[Any], Any]) -> None:
    x = torch.arange(35).view(7, 5) * 2**33 + 7
    compiled = Compiled(function)
    torch.testing.assert_close(compiled.call(x), function(x))
    assert not compiled.reasons


def test_quotients_of_sizes_are_left() -> None:
    compiled = Compiled(lambda a, b: (a @ b) * (1 / a.shape[0]), dynamic=True)
    for m, k, n in ((3, 5, 7), (9, 6, 4)):
        a, b = drawn(m, k), drawn(k, n)
        assert close(compiled.call(a, b), (a.double() @ b.double()) / m, 3)
    assert compiled.operators == [("mm",)]
    assert any("takes a number that depends on sizes" in reason for reason in compiled.reasons)


def test_roots_of_sizes_that_turn_out_to_be_known() -> None:
    """A later operation may ask torch for a size."""
    fake: Any = import_module("torch._subclasses.fake_tensor")
    symbolic: Any = import_module("torch.fx.experimental.symbolic_shapes")
    context = symbolic.StatelessSymbolicContext([symbolic.DimDynamic.DYNAMIC])
    x = fake.FakeTensorMode(shape_env=symbolic.ShapeEnv()).from_tensor(torch.empty(16), symbolic_context=context)
    root, quotient = x.shape[0] ** -0.5, x.shape[0] / 3
    assert expression(root) == root.node.expr
    assert int(x.shape[0]) == 16
    assert (expression(root), expression(quotient)) == (0.25, 16 / 3)


def test_flips_of_sizes_that_are_not_known() -> None:
    """One graph for all, with the roots of sizes."""
    compiled = Compiled(lambda x: (torch.ops.aten.mul.Scalar(x, x.shape[-1] ** -0.5), x.flip(-1)), dynamic=True)
    for columns in (17, 19, 3):
        x = torch.randn(5, columns)
        scaled, flipped = compiled.call(x)
        torch.testing.assert_close(scaled, x * columns**-0.5)
        assert torch.equal(flipped, x.flip(-1))
    assert len(compiled.explanations) == 1


def test_elements_are_picked_along_sizes_that_are_not_known() -> None:
    """Places are counted from the end, too, and integers of 64 bits take a size whole."""
    compiled = Compiled(lambda x, at, big: (x[at], x.shape[0] + big), dynamic=True)
    for rows in (9, 4, 30):
        x, at, big = drawn(rows, 5), torch.tensor([3, -1, -rows, rows - 1]), torch.tensor([2**40 + 1, -(2**35)])
        picked, added = compiled.call(x, at, big)
        assert torch.equal(picked, x[at])
        assert torch.equal(added, big + rows)
    assert not compiled.reasons


@pytest.mark.slow
def test_attention_of_a_joint_projection_of_sizes_that_are_not_known() -> None:
    """The rows of the projection are those of all sequences: how many there are in one, an input of the graph says."""

    def function(x: Any, w: Any) -> Any:
        parts = functional.linear(x.flatten(0, 1), w).unflatten(0, x.shape[:2]).unflatten(-1, (3, 4, 8))
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        return functional.scaled_dot_product_attention(q, k, v)

    compiled, w = Compiled(function, dynamic=True), drawn(96, 32) * 32**-0.5
    for batch, rows in ((2, 7), (3, 9)):
        x = drawn(batch, rows, 32)
        with torch.no_grad():
            assert close(compiled.call(x, w), function(x.double(), w.double()), 3.0)
    assert compiled.operators == [("mm",), ("_scaled_dot_product_flash_attention_for_cpu",)]


def test_attention_of_f32_is_left() -> None:
    q = torch.randn(2, 4, 9, 16)
    compiled = Compiled(functional.scaled_dot_product_attention)
    assert torch.equal(compiled.call(q, q, q), functional.scaled_dot_product_attention(q, q, q))
    assert compiled.reasons == ["attention is compiled of bf16 and f16, not of torch.float32"]


def test_elements_that_kernels_lack_are_left() -> None:
    compiled = Compiled(lambda a, b: (a @ b).to(torch.complex64) * 1j)
    a, b = drawn(5, 16), drawn(16, 8)
    assert torch.equal(compiled.call(a, b), torch.compile(lambda a, b: a @ b, backend="warploom")(a, b) * 1j)
    assert compiled.operators == [("mm",)]
    assert "elements of torch.complex64 are not lowered" in compiled.reasons


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("function", "shapes", "part"),
    [
        (lambda a, b: torch.relu(a @ b), ((2, 1, 5, 16), (3, 16, 8)), ("bmm", "relu")),
        (lambda a, b: a.transpose(1, 2) @ b.transpose(1, 2), ((2, 16, 5), (2, 8, 16)), ("bmm",)),
        (lambda a, b: a[:, ::2] @ b[1:].t(), ((5, 16), (9, 8)), ("mm",)),
        (lambda a, b: a[0] @ b, ((2, 3, 9), (9, 8)), ("mm",)),
        (lambda a, b: torch.baddbmm(a, b, a), ((2, 8, 8), (2, 8, 8)), ("baddbmm",)),
        (lambda a, b: a.expand(3, 5, 16) @ b, ((5, 16), (3, 16, 8)), ("bmm",)),
        (lambda a, b: (a @ b) / a[:, :1] ** 2, ((5, 16), (16, 8)), ("mm", "div")),
    ],
)
def test_operands_in_any_order(function: Callable[..., Any], shapes: Any, part: tuple[str, ...]) -> None:
    inputs = [drawn(*shape).clamp(0.5, 2.0) for shape in shapes]
    compiled = Compiled(function)
    assert close(compiled.call(*inputs), function(*(x.double() for x in inputs)), 4.0)
    assert compiled.operators == [part]


def test_memory_that_no_kernel_reads_is_copied() -> None:
    base, b = drawn(81), drawn(16, 8)
    compiled = Compiled(lambda a, b: a @ b)
    for a in (base[1:].view(5, 16), base[:80].view(16, 5).t(), base[:1].expand(5, 16)):
        assert close(compiled.call(a, b), a.double() @ b.double(), 1.0)


def test_autocast() -> None:
    def layer(x: Any, w: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return functional.relu(functional.linear(x, w))

    x, w = drawn(5, 16), drawn(8, 16)
    assert_compiled(layer, x.float(), w.float(), parts=[("mm", "relu")])


def test_factors_of_two_types_are_refused_as_by_torch() -> None:
    x, w = torch.randn(5, 6, dtype=torch.float64), torch.randn(6, 4)
    with pytest.raises(RuntimeError, match="same dtype"):
        torch.compile(lambda a, b: a @ b, backend="warploom")(x, w)


def eight_bits(*shape: int, dtype: Any = torch.int8) -> Any:
    return torch.randint(0, 256, shape, dtype=torch.uint8).view(dtype)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("function", "exact", "weights", "part"),
    [
        (
            lambda x, w, s: functional.linear(x, w.to(x.dtype)),
            lambda x, w, s: x @ w.t(),
            eight_bits(32, 64),
            ("_to_copy", "permute", "mm"),
        ),
        (
            lambda x, w, s: functional.gelu(functional.linear(x, w.to(x.dtype) * s[:, None], s)),
            lambda x, w, s: functional.gelu(x @ (w * s[:, None]).t() + s),
            eight_bits(32, 64),
            ("_to_copy", "mul", "permute", "addmm", "gelu"),
        ),
        (
            lambda x, w, s: torch.relu((x @ w.to(x.dtype)) * s),
            lambda x, w, s: torch.relu((x @ w) * s),
            eight_bits(64, 32),
            ("_to_copy", "mm", "mul", "relu"),
        ),
        (
            lambda x, w, s: functional.linear(x, w.to(x.dtype) - 128),
            lambda x, w, s: x @ (w - 128).t(),
            eight_bits(32, 64, dtype=torch.uint8),
            ("_to_copy", "sub", "permute", "mm"),
        ),
    ],
)
def test_weights_of_8_bits_are_converted_by_the_product(
    function: Callable[..., Any], exact: Callable[..., Any], weights: Any, part: tuple[str, ...], dtype: Any
) -> None:
    x, scale, compiled = drawn(5, 64, dtype=dtype), torch.rand(32).to(dtype), Compiled(function)
    assert close(compiled.call(x, weights, scale), exact(x.double(), weights.double(), scale.double()), 2.0)
    assert compiled.operators == [part]
    assert not compiled.reasons


def four_bits(group: int) -> Callable[..., Any]:
    def function(x: Any, packed: Any, scale: Any) -> Any:
        weights = torch.stack([packed & 15, packed >> 4], -1).flatten(1).to(x.dtype) - 8
        return functional.linear(x, (weights.unflatten(1, (-1, group)) * scale[:, :, None]).flatten(1))

    return function


@pytest.mark.sampled(4)
@pytest.mark.parametrize("rest", ["eager", "inductor"])
def test_weights_of_4_bits_are_unpacked_by_the_product(rest: str) -> None:
    """Two in a byte, the lower bits first, with a scale for each group of a row."""
    x, packed, scale = drawn(3, 96), eight_bits(24, 48, dtype=torch.uint8), drawn(24, 3)
    function, compiled = four_bits(32), Compiled(four_bits(32), rest=rest)
    assert close(compiled.call(x, packed, scale), function(x.double(), packed, scale.double()), 2.0)
    (part,) = compiled.explanations[0].compiled
    assert part.operators[:2] == ("aten.bitwise_and.Scalar", "aten.__rshift__.Scalar")
    assert len(part.kernels) == 1
    assert not compiled.reasons


@pytest.mark.sampled(8)
@pytest.mark.parametrize("rest", ["eager", "inductor"])
@pytest.mark.parametrize("group", [32, 128])
def test_products_of_one_a_are_one_part(group: int, rest: str) -> None:
    """Queries, keys and values of a few rows are one launch, of which each CTA computes a tile of one of them. Views of
    scales that the model makes later come before it. A scale for each row alone is no part of a product yet."""

    def function(x: Any, *weights: Any) -> Any:
        q, k, v = (four_bits(group)(x, *pair) for pair in zip(weights[::2], weights[1::2], strict=True))
        return q.relu(), k, v * 2

    sizes, x, compiled = (72, 40, 24), drawn(3, 128), Compiled(function, rest=rest, check=True)
    weights = [w for n in sizes for w in (eight_bits(n, 64, dtype=torch.uint8), drawn(n, 128 // group))]
    exact = function(x.double(), *(w.double() if w.is_floating_point() else w for w in weights))
    for result, value in zip(compiled.call(x, *weights), exact, strict=True):
        assert close(result, value, 3.0)
    parts = [part for part in compiled.explanations[0].compiled if "aten.mm.default" in part.operators]
    joined = [1, 1, 1] if group == 128 else [3]
    assert [part.operators.count("aten.mm.default") for part in parts] == joined
    assert all(len(part.kernels) == 1 for part in parts)


def test_products_of_one_a_with_biases_are_one_part() -> None:
    def function(x: Any, *weights: Any) -> Any:
        return tuple(functional.linear(x, weight, weight[:, 0]) for weight in weights)

    x, weights = drawn(5, 512), [drawn(n, 512) for n in (32, 48)]
    compiled = Compiled(function, schedule={"cta": (16, 16, 128), "warp": (16, 16), "sliced_k": 2})
    exact = function(x.double(), *(w.double() for w in weights))
    for result, value in zip(compiled.call(x, *weights), exact, strict=True):
        assert close(result, value, 3.0)
    assert compiled.operators == [("addmm", "addmm")]


def test_a_view_that_another_product_reads_stays_before_it() -> None:
    def function(x: Any, y: Any, w: Any, v: Any) -> Any:
        return x @ w.mT, y @ w.mT, y @ v.mT

    operands = [drawn(n, 512) for n in (3, 5, 32, 48)]
    compiled = Compiled(function, schedule={"cta": (16, 16, 128), "warp": (16, 16), "sliced_k": 2})
    exact = function(*(x.double() for x in operands))
    operands[2].requires_grad_()  # graphs with gradients have one view for both
    for result, value in zip(compiled.call(*operands), exact, strict=True):
        assert close(result.detach(), value, 3.0)
    assert compiled.operators == [("mm",), ("mm", "mm")]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("schedule", [{}, {"cta": (16, 16, 128), "warp": (16, 16), "sliced_k": 2}])
def test_products_beside_a_gate_of_the_same_a(schedule: Any) -> None:
    """As in layers whose attention and MLP read one norm: the second product that the gate takes is one of them."""

    def function(x: Any, *weights: Any) -> Any:
        q, k, gate, up = (x @ w for w in weights)
        return q, k * 2, functional.silu(gate) * up

    x, weights = drawn(3, 256), [drawn(256, n) for n in (48, 16, 32, 32)]
    compiled = Compiled(function, schedule=schedule)
    exact = function(x.double(), *(w.double() for w in weights))
    for result, value in zip(compiled.call(x, *weights), exact, strict=True):
        assert close(result, value, 3.0)
    assert not compiled.reasons


def test_weights_of_4_bits_in_small_groups_are_a_kernel() -> None:
    function, compiled = four_bits(16), Compiled(four_bits(16))
    x, packed, scale = drawn(1, 32), eight_bits(24, 16, dtype=torch.uint8), drawn(24, 2)
    assert close(compiled.call(x, packed, scale), function(x.double(), packed, scale.double()), 2.0)
    assert compiled.operators == [("mm",)]
    assert not compiled.reasons
    message = "only shifts of integers by a number of their bits are lowered"
    left = Compiled(lambda x, y: (x >> y) * 2)
    left.call(packed, packed & 7)
    assert left.reasons == [message]


def test_weights_that_no_kernel_converts_are_left() -> None:
    x, weights = drawn(64, 5), eight_bits(32, 64)
    first = Compiled(lambda w, x: w.to(x.dtype) @ x)
    assert close(first.call(weights, x), weights.double() @ x.double(), 1.0)
    assert first.operators == [("mm",)]
    assert [part.operators for part in first.explanations[0].compiled][:-1] == [("aten._to_copy.default",)]

    def twice(w: Any, x: Any) -> Any:
        wide = w.to(x.dtype)
        return x.t() @ wide.t(), wide

    used = Compiled(twice)
    product, wide = used.call(weights, x)
    assert close(product, x.double().t() @ weights.double().t(), 1.0)
    assert torch.equal(wide, weights.to(x.dtype))
    assert used.operators == [("mm",)]


def test_f32_is_multiplied_as_tf32_where_that_is_allowed() -> None:
    a, b = torch.randn(5, 16), torch.randn(16, 8)
    compiled = Compiled(lambda a, b: a @ b)
    assert torch.equal(compiled.call(a, b), a @ b)
    assert not compiled.operators
    assert "torch.set_float32_matmul_precision('high') or options={'tf32': True}" in compiled.reasons[0]
    assert_compiled(lambda a, b: a @ b, a, b, parts=[("mm",)], tf32=True)
    torch.set_float32_matmul_precision("high")
    try:
        assert_compiled(lambda a, b: a @ b + 0, a, b, parts=[("mm", "add")])
    finally:
        torch.set_float32_matmul_precision("highest")


def test_integers_and_scales() -> None:
    a, b = (torch.randint(-128, 128, shape, dtype=torch.int8) for shape in ((17, 16), (16, 8)))
    integers = Compiled(lambda a, b: torch._int_mm(a, b) * 2)
    assert torch.equal(integers.call(a, b).long(), 2 * (a.long() @ b.long()))
    assert integers.operators == [("_int_mm", "mul")]

    x, y = drawn(17, 16, dtype=torch.float8_e4m3fn), drawn(16, 16, dtype=torch.float8_e4m3fn)
    first, second = torch.tensor(0.5), torch.tensor(2.0)
    scaled = Compiled(lambda x, y, s, t: torch._scaled_mm(x, y.t(), s, t, out_dtype=torch.bfloat16))
    assert close(scaled.call(x, y, first, second), x.double() @ y.double().t(), 1.0)
    assert scaled.operators == [("_scaled_mm",)]


def test_what_is_left_says_why(caplog: pytest.LogCaptureFixture) -> None:
    def function(a: Any, b: Any) -> Any:
        product = a @ b
        return product.erfinv(), product.cumsum(0), (a @ b).to(torch.float8_e4m3fn)

    with caplog.at_level(logging.DEBUG, "warploom"):
        compiled = Compiled(function)
        compiled.call(drawn(5, 16), drawn(16, 8))
    reasons = {left.operator: left.reason for left in compiled.explanations[0].left}
    assert reasons["aten.cumsum.default"] == "there is no form of it in linalg here"
    assert "prims.erf_inv.default is not lowered" in reasons["aten.erfinv.default"]
    assert "targets before sm_89 have none" in reasons["aten._to_copy.default"]
    assert "2 compiled, 3 left to eager" in caplog.text
    assert "linalg.contract" in caplog.text


def test_what_is_left_names_the_line_of_the_model() -> None:
    """An error in what the backend wrote of a graph names the operation and its line, and no place in that text."""

    def function(a: Any, b: Any) -> Any:
        return torch.relu(a @ b)

    compiled = Compiled(function, target="sm_70")
    compiled.call(drawn(5, 16), drawn(16, 8))
    line = function.__code__.co_firstlineno + 1
    (product, relu) = compiled.explanations[0].left
    assert product.place == relu.place == f"{__file__}:{line}"
    assert product.reason.startswith("schedule: sm_70 has no mma for bf16 x bf16")
    assert f"left mm: aten.mm.default ({__file__}:{line}): schedule: " in str(compiled.explanations[0])
    compiled = Compiled(function)
    compiled.call(torch.ones(5, 16, dtype=torch.int64), torch.ones(16, 8, dtype=torch.int64))
    assert "products of torch.int64 are not lowered" in compiled.reasons


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schedule": {"stages": 99}}, "stages=99: 99 stages of .* take .* KiB of shared memory, sm_90a has 227 KiB"),
        ({"schedule": {"mma": "m64n128k16"}, "target": "sm_80"}, "mma=m64n128k16: warpgroups cannot .* no wgmma"),
    ],
)
def test_a_schedule_that_cannot_be_had_is_an_error(options: dict[str, Any], message: str) -> None:
    def function(a: Any, b: Any) -> Any:
        return torch.relu(a @ b)

    place = re.escape(f"{__file__}:{function.__code__.co_firstlineno + 1}")
    with pytest.raises(Exception, match=rf"option 'schedule': aten\.mm\.default \({place}\) cannot have {message}"):
        Compiled(function, **options).call(drawn(64, 128), drawn(128, 64))


def test_a_schedule_is_no_error_where_nothing_is_compiled() -> None:
    compiled = Compiled(lambda a, b: a @ b, schedule={"stages": 2})
    compiled.call(torch.ones(5, 16, dtype=torch.int64), torch.ones(16, 8, dtype=torch.int64))
    assert compiled.reasons == ["products of torch.int64 are not lowered"]


def test_explanations_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    torch.compile(lambda a, b: a @ b, backend="warploom", options={"explain": True})(drawn(5, 16), drawn(16, 8))
    assert "compiled mm: aten.mm.default\n    @mm_bfloat16: cta = " in capsys.readouterr().out


def test_a_table_of_what_was_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    """Parts say the layer, the operations, the type and the sizes, in profilers too; equal ones are counted."""
    layer = torch.nn.Sequential(torch.nn.Linear(16, 24, bias=False), torch.nn.SiLU()).bfloat16()
    call = torch.compile(lambda x: layer(x) + layer(x + 1).cumsum(0), backend="warploom", options={"explain": "table"})
    with torch.no_grad(), torch.profiler.profile() as profile:
        call(drawn(5, 16))
    table = capsys.readouterr().out
    label = "1: mm+silu bf16 5x24x16"
    assert re.search(rf"\| {re.escape(label)} *\| 2 +\| @mm_silu_bfloat16: cta = ", table) or label in table
    assert re.search(r"\| aten.cumsum.default *\| 1 +\| left to eager: there is no form of it", table)
    assert label in {event.key for event in profile.key_averages()}


def test_parts_are_compared_with_eager_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the model's own run, also for other sizes; the first part that differs is named with its line."""

    def function(x: Any, w: Any) -> Any:
        return functional.relu(torch.softmax(x, -1) @ w).mean(0)

    call = torch.compile(function, backend="warploom", dynamic=True, options={"check": True})
    w = drawn(16, 8)
    for rows in (5, 9):
        call(drawn(rows, 16), w)
    part: Any = import_module("warploom.runtime.torch.part")
    interpreted = part._interpret

    def wrong(kernel: Any, plan: Any, values: Any, device: Any) -> None:
        interpreted(kernel, plan, values, device)
        if "mm_relu" in kernel.function.name:
            values[-1].owner.view(-1)[3] += 0.5

    monkeypatch.setattr(part, "_interpret", wrong)
    line = function.__code__.co_firstlineno + 1
    place = re.escape(f"{__file__}:{line}")
    message = rf"check: model: mm\+relu\+mean f32 \S+ \({place}\) is not what eager mode computes\..*: 1 / 56 "
    with pytest.raises(WarploomError, match=f"(?s){message}"):
        call(drawn(7, 16), w)


@pytest.mark.parametrize("wrong", [False, True])
def test_sums_that_cancel_are_compared_by_what_eager_mode_is_off(monkeypatch: pytest.MonkeyPatch, wrong: bool) -> None:
    def function(x: Any) -> Any:
        return (x - x.mean(-1, keepdim=True)).sum(-1) * 2

    part: Any = import_module("warploom.runtime.torch.part")
    interpreted = part._interpret

    def run(kernel: Any, plan: Any, values: Any, device: Any) -> None:
        interpreted(kernel, plan, values, device)
        values[-1].owner.add_(wrong * 0.01)

    monkeypatch.setattr(part, "_interpret", run)
    call = torch.compile(function, backend="warploom", options={"check": True})
    with pytest.raises(WarploomError, match="is not what eager mode computes") if wrong else nullcontext():
        call(drawn(13, 300, dtype=torch.float32))


def test_logarithms_of_sums_are_compared_as_exponents(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is off by a ten thousandth makes gradients eight times too large."""
    call = torch.compile(functional.scaled_dot_product_attention, backend="warploom", options={"check": True})
    q, k, v = (drawn(1, 2, 9, 16).requires_grad_() for _ in range(3))
    call(300 * q, 300 * k, v)
    part: Any = import_module("warploom.runtime.torch.part")
    interpreted = part._interpret

    def wrong(kernel: Any, plan: Any, values: Any, device: Any) -> None:
        interpreted(kernel, plan, values, device)
        values[-1].owner[0, 1, 3] += 4.0

    monkeypatch.setattr(part, "_interpret", wrong)
    with pytest.raises(WarploomError, match=r"(?s)check: model: attention .*: 1 / 18 "):
        call(300 * q, 300 * k, v)


def test_a_place_that_is_not_known_is_left() -> None:
    """torch makes a symbol of an index that is a size."""

    def function(x: Any, y: Any) -> Any:
        return torch.relu(x.select(-1, y.shape[0] - 2).float())

    x, y = drawn(5, 7, 9), drawn(4, 3)
    assert torch.equal(Compiled(function, dynamic=True).call(x, y), function(x, y))


def _columns(x: Any, number: Any) -> Any:
    """Of a number of columns that is read from memory."""
    count = number.item()
    torch._check(count >= 0)
    torch._check(count <= x.shape[1])
    return (x[:, :count].contiguous() * 2 + 1).float().sum(0), torch.relu(x[:, :count] @ x[:count])


def _positive(x: Any, number: Any) -> Any:
    """Of as many columns as there are positive numbers in a row."""
    columns = x[:, torch.nonzero(x[0] > 0)[:, 0]]
    return columns.softmax(-1).float().sum(0), functional.silu(columns.t() @ x) * number.item()


@pytest.mark.sampled(8)
@pytest.mark.parametrize("rest", ["eager", "inductor"])
@pytest.mark.parametrize(("function", "trains"), [(_columns, False), (_columns, True), (_positive, False)])
def test_sizes_that_depend_on_data(function: Callable[..., Any], trains: bool, rest: str) -> None:
    """What cannot be compiled for them stays with torch, and nothing fails."""
    x, number = torch.randn(21, 34).bfloat16().requires_grad_(trains), torch.tensor(7)
    captured = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}
    with torch._dynamo.config.patch(**captured):
        call = torch.compile(function, backend="warploom", fullgraph=True, options={"rest": rest})
        result, other = call(x, number), function(x, number)
        for ours, theirs in zip(result, other, strict=True):
            assert ours.shape == theirs.shape
            ours, theirs = ours.detach().double(), theirs.detach().double()
            assert float((ours - theirs).norm()) <= BF16 * float(theirs.norm())
        if trains:
            slopes = [torch.autograd.grad(sum(y.float().sum() for y in each), x)[0] for each in (result, other)]
            assert float((slopes[0] - slopes[1]).double().norm()) <= BF16 * float(slopes[1].double().norm())


def test_fused_norms_of_torch() -> None:
    """torch keeps a root mean square norm and its derivative as operations of their own on some devices."""
    aten = torch.ops.aten

    def function(slope: Any, x: Any, weight: Any) -> Any:
        result, scale = aten._fused_rms_norm(x, [40], weight, 1e-6)
        return result, *aten._fused_rms_norm_backward(slope, x, [40], scale, weight, [True, True])

    inputs = drawn(3, 5, 40), drawn(3, 5, 40), drawn(40)
    compiled = Compiled(function)
    own = [x.double().requires_grad_() for x in inputs]
    exact = functional.rms_norm(own[1], (40,), own[2], 1e-6)
    exact.backward(own[0].detach())
    wanted = exact.detach(), own[1].grad, own[2].grad
    assert all(close(x, y, 2.0) for x, y in zip(compiled.call(*inputs), wanted, strict=True))
    assert not compiled.reasons


def test_what_a_batch_norm_saves_is_not_rounded() -> None:
    """Of two pixels a channel has next to no gradient, but for roundings of the mean and the deviation."""
    norm, x, slope = torch.nn.BatchNorm2d(8), drawn(2, 8, 1, 1).requires_grad_(), drawn(2, 8, 1, 1)
    Compiled(norm).call(x).backward(slope)
    wide, exact = x.detach().double().requires_grad_(), torch.nn.BatchNorm2d(8).double()
    exact(wide).backward(slope.double())
    assert (x.grad - wide.grad).norm() <= 4 * BF16 * wide.grad.norm()


def test_a_mean_is_rounded_once() -> None:
    x = drawn(3, 40)
    result, exact = Compiled(lambda x: x.mean(0)).call(x), x.double().mean(0)
    assert torch.all((result - exact).abs() <= BF16 * exact.abs() + 2.0**-20)


@pytest.mark.slow
def test_a_graph_whose_values_cancel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where values cancel, or a gradient reads a value that is rounded one way or the other, a rounding may be all that
    is left, and is no fault; a fiftieth of a value is one."""
    from torch_graphs import fault

    assert not fault(6200439)
    assert not fault(6007030)
    part: Any = import_module("warploom.runtime.torch.part")
    interpreted = part._interpret

    def wrong(kernel: Any, plan: Any, values: Any, device: Any) -> None:
        interpreted(kernel, plan, values, device)
        values[-1].owner.mul_(1.02)

    monkeypatch.setattr(part, "_interpret", wrong)
    assert "from float64, where eager mode is" in fault(6200439)


def test_examples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks of Python in docs/torch.md, in order."""
    page = EXAMPLE.parents[1] / "docs" / "torch.md"
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S):
        exec(block, names)
    assert close(names["y"].detach(), names["model"].double()(names["x"].double()).detach(), 2.0)


def code_of(function: Callable[..., Any], *inputs: Any) -> str:
    """The program that inductor writes for a call."""
    inductor: Any = import_module("torch._inductor.utils")
    return "\n".join(inductor.run_and_get_code(function, *inputs)[1])


def test_inductor_calls_our_kernels() -> None:
    """A compiled part is one call in the program that inductor writes, and its result a buffer that inductor made."""

    def function(a: Any, b: Any, c: Any) -> Any:
        return torch.relu(a @ b) @ c.t()

    operands = drawn(5, 16), drawn(16, 8), drawn(24, 8)
    compiled = Compiled(function, rest="inductor")
    calls: list[Any] = []
    code = code_of(lambda: calls.append(compiled.call(*operands)))
    assert close(calls[0], function(*(x.double() for x in operands)), 2.0)
    assert compiled.operators == [("mm", "relu"), ("mm",)]
    assert re.findall(r"extern_kernels.(\w+)_[0-9a-f]{10}_inference\d\(.*out=buf", code) == [
        "mm_relu_bfloat16",
        "mm_bfloat16",
    ]
    assert "0 left to inductor" in str(compiled.explanations[0])
    assert compiled.explanations[0].calls == ["not recorded: its tensors are not on one GPU"]
    assert "| calls" in compiled.explanations[0].table


@pytest.mark.parametrize(("dynamic", "joined"), [(False, True), (True, False)])
def test_kernels_of_changing_sizes_are_not_joined(
    monkeypatch: pytest.MonkeyPatch, *, dynamic: bool, joined: bool
) -> None:
    """Inductor raises for joined reductions of a size that changes, as in CLIP."""
    compiler: Any = import_module("torch._inductor.compile_fx")
    config: Any = import_module("torch._inductor.config")
    inner, settings = compiler.compile_fx_inner, list[bool]()

    def noted(*args: Any, **options: Any) -> Any:
        settings.append(config.combo_kernels)
        return inner(*args, **options)

    monkeypatch.setattr(compiler, "compile_fx_inner", noted)
    a, b = drawn(6, 31), drawn(31, 13)
    with torch.no_grad():
        result = Compiled(lambda a, b: (a @ b).softmax(0), rest="inductor", dynamic=dynamic).call(a, b)
    assert close(result, (a.double() @ b.double()).softmax(0), 2.0)
    assert settings == [joined]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("function", "options", "reason"),
    [
        (lambda a: torch.relu(a @ a), {}, "its tensors are not on one GPU"),
        (
            lambda a: torch.linalg.svd(a @ a)[1],
            {},
            "aten._linalg_svd.default may wait for the GPU, or for other processes",
        ),
        (lambda a: (a @ a).sort()[0].topk(2)[0].float().histc(4, 0, 3), {}, "its tensors are not on one GPU"),
        (lambda a: (a @ a).float().histc(4), {}, "aten.histc.default may wait for the GPU, or for other processes"),
        (lambda a: torch.relu(a @ a), {"check": True}, "option 'check' waits for the GPU"),
        (lambda a: a @ a, {"mode": "max-autotune-no-cudagraphs"}, "mode 'max-autotune-no-cudagraphs' is inductor's"),
    ],
)
def test_why_a_graph_is_not_recorded(
    function: Callable[..., Any], options: dict[str, Any], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    call = torch.compile(function, backend="warploom", options={"rest": "inductor", "explain": True, **options})
    call(torch.eye(16, dtype=torch.float64))
    assert f"warploom: inference graph: not recorded: {reason}\n" in capsys.readouterr().out


@pytest.mark.slow
def test_training_with_inductor() -> None:
    """With sizes that are not known; a graph with its gradients and known sizes is that of the test of the cache."""

    def function(x: Any, first: Any, second: Any) -> Any:
        return (x @ first) @ second

    operands = [drawn(6, 16), drawn(16, 8), drawn(8, 24)]
    compiled, grad = Compiled(function, rest="inductor", dynamic=True), drawn(6, 24)
    wide = [x.double().requires_grad_() for x in operands]
    narrow = [x.requires_grad_() for x in operands]
    compiled.call(*narrow).backward(grad)
    function(*wide).backward(grad.double())
    assert all(close(x.grad, y.grad, 6.0) for x, y in zip(narrow, wide, strict=True))
    assert [e.graph for e in compiled.explanations] == ["forward", "backward"]
    assert [len(e.compiled) for e in compiled.explanations] == [2, 4]


def test_graphs_with_their_gradients_are_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch finds a graph that another process compiled before it traces anything, with the parts that it calls, and
    no process starts to compile for triton. What is to be compared, or where there is no cache of kernels, is traced
    again, and other options make another graph."""
    part, counters = import_module("warploom.runtime.torch.part"), import_module("torch._dynamo.utils").counters
    operands, grad = [drawn(6, 16), drawn(16, 8), drawn(8, 24)], drawn(6, 24)
    wide = [x.double().requires_grad_() for x in operands]
    (wide[0] @ wide[1] @ wide[2]).backward(grad.double())
    started, loading = list[int](), list[int]()
    processes = import_module("torch._inductor.async_compile")
    wait = processes.AsyncCompile.wait

    def waiting(*args: Any) -> None:
        loading.append(processes.get_compile_threads())
        wait(*args)

    monkeypatch.setattr(processes, "maybe_warm_pool", lambda: started.append(processes.get_compile_threads()))
    monkeypatch.setattr(processes.AsyncCompile, "wait", waiting)

    def called(cache: str, **options: Any) -> str:
        torch._dynamo.reset()
        counters.clear()
        started.clear()
        loading.clear()
        part.REGIONS.clear()
        monkeypatch.setenv("WARPLOOM_CACHE", cache)
        call = torch.compile(lambda a, b, c: a @ b @ c, backend="warploom", options={"rest": "inductor", **options})
        narrow = [x.clone().requires_grad_() for x in operands]
        call(*narrow).backward(grad)
        assert all(close(x.grad, y.grad, 6.0) for x, y in zip(narrow, wide, strict=True))
        assert part.REGIONS
        found = next((name for name in ("hit", "miss") if counters["aot_autograd"][f"autograd_cache_{name}"]), "")
        assert started == [3] * (found != "hit")
        assert {*loading} == {1 if found == "hit" else 3}
        return found

    # with a tag of its own in place of a folder of its own, where torch compiles the headers of its C++ again; and
    # without vectors, so that g++ does not try what the processor has
    plain = import_module("torch._inductor.config").patch(
        {"cpp.vec_isa_ok": False, "cpp_cache_precompile_headers": False, "compile_threads": 3}
    )
    with plain, import_module("torch.compiler.config").patch(cache_key_tag=str(tmp_path)):
        assert [called(cache) for cache in (str(tmp_path), str(tmp_path), "off")] == ["miss", "hit", ""]
        assert [called(str(tmp_path), **more) for more in ({"check": True}, {"tf32": True})] == ["", "miss"]


def test_processes_of_inductor_start_before_kernels_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch's own backend starts them; what is compiled before they are there, the calling process compiles."""
    processes, region = (
        import_module(name) for name in ("torch._inductor.async_compile", "warploom.runtime.torch.importer")
    )
    order, compile_one = list[str](), region.compile

    def compiling(*args: Any, **options: Any) -> Any:
        order.append("kernel")
        return compile_one(*args, **options)

    monkeypatch.setattr(processes, "maybe_warm_pool", lambda: order.append("processes"))
    monkeypatch.setattr(region, "compile", compiling)
    compiled, a, b = Compiled(torch.matmul, rest="inductor"), drawn(7, 29), drawn(29, 11)
    with torch.inference_mode():
        assert close(compiled.call(a, b), a.double() @ b.double(), 2.0)
    assert order == ["processes", "kernel"]


def test_what_follows_a_product_may_branch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operations that use each other's results are one part, as those that inductor writes SiLU in, and a conversion
    to a wider type is left to what reads it."""
    clusters: Any = import_module("warploom.runtime.torch.clusters")
    graph = torch.fx.Graph()
    a, b = graph.placeholder("a"), graph.placeholder("b")

    def node(target: Any, *args: Any) -> Any:
        one = graph.call_function(target, args)
        values = [x.meta["val"] if isinstance(x, torch.fx.Node) else x for x in args]
        one.meta["val"] = target(*values)
        return one

    a.meta["val"], b.meta["val"] = drawn(4, 8).to("meta"), drawn(8, 16).to("meta")
    aten, convert = torch.ops.aten, torch.ops.prims.convert_element_type.default
    wide = node(convert, node(aten.mm.default, a, b), torch.float32)
    gate = node(aten.mul.Tensor, wide, node(aten.sigmoid.default, wide))
    narrow = node(convert, gate, torch.bfloat16)
    graph.output((node(aten.sum.default, node(convert, narrow, torch.float32)),))
    (cluster,) = clusters.clusters(graph)
    assert [n.name for n in cluster.nodes][-1] == "convert_element_type_default_2"
    assert clusters.narrowed(cluster).last is narrow
    assert len(clusters.narrowed(cluster).nodes) == 5


@pytest.mark.parametrize("shared", [False, True])
def test_what_a_gradient_converts_is_read_unconverted(shared: bool) -> None:
    """The gradient of a gelu, as inductor writes it, multiplies an operand in f32 several times."""
    clusters: Any = import_module("warploom.runtime.torch.clusters")

    def gradient(g: Any, w: Any, x: Any) -> Any:
        wide = x.float()
        slope = (torch.erf(wide * 0.5**0.5) + 1) * 0.5 + wide * (torch.exp(wide * wide * -0.5) * 0.3989422804014327)
        return (g @ w).float().mul(slope).to(torch.bfloat16), wide.sum(0) if shared else None

    trace: Any = import_module("torch.fx.experimental.proxy_tensor").make_fx
    graph = trace(gradient)(drawn(5, 16), drawn(16, 8), drawn(5, 8)).graph
    (cluster,) = clusters.clusters(graph)
    assert [node.op for node in cluster.inputs] == ["placeholder"] * 3
    assert cluster.last.meta["val"].dtype == torch.bfloat16


def test_what_waits_for_a_product_is_not_fused_with_what_is_before_it() -> None:
    """A residual is added behind the products of its block; the bytes of the result are moved again for it."""
    clusters: Any = import_module("warploom.runtime.torch.clusters")
    choice: Any = import_module("warploom.runtime.torch.inductor")

    def saved(function: Callable[..., Any]) -> Any:
        graph: Any = (
            import_module("torch.fx.experimental.proxy_tensor")
            .make_fx(function)(*(drawn(4, 4) for _ in range(3)))
            .graph
        )
        return choice._saved(next(cluster for cluster in clusters.clusters(graph) if len(cluster.nodes) > 1))

    def block(a: Any, b: Any, c: Any) -> Any:
        x = torch.relu(a @ b + c)
        return x + torch.ops.aten.convolution(x[None], b[..., None], None, [1], [0], [1], False, [0], 1)[0]

    assert saved(block) == (3.0 * 32, 1), "with the residual that is read"
    assert saved(lambda a, b, c: torch.relu(a @ b + c).sum(1)) == (32.0, 0)
    assert saved(lambda a, b, c: torch.relu(a @ b + c).sum(0)) == (3.0 * 32, 1), "rows are summed up in a kernel apart"


def test_bytes_without_a_sign_are_not_multiplied_as_signed_ones() -> None:
    """As torchao multiplies on a CPU: activations of uint8, less 128 times the sums of the weights."""
    a, b = torch.randint(0, 256, (18, 24), dtype=torch.uint8), torch.randint(-128, 128, (24, 16), dtype=torch.int8)
    compiled = Compiled(torch._int_mm)
    assert torch.equal(compiled.call(a, b).long(), a.long() @ b.long())
    assert compiled.reasons == ["products of torch.uint8 are not lowered"]


PICKS: dict[str, Callable[..., Any]] = {
    "embedding": lambda x, at: functional.embedding(at, x[:, 0]),
    "places counted from behind": lambda x, at: x[at - 5],
    "places apart": lambda x, at: x.permute(2, 0, 1)[at, :, at],
    "places together": lambda x, at: x[:, at, at] * 2,
    "index_select": lambda x, at: x.index_select(1, at[0]),
    "gather": lambda x, at: x.gather(2, at[None].expand(5, 2, 3)),
    "integers": lambda x, at: at.gather(1, at.flip(1).clamp(max=2)),
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", PICKS)
def test_elements_at_places(name: str) -> None:
    compiled = Compiled(PICKS[name])
    x, at = drawn(5, 5, 7), torch.tensor([[0, 4, 2], [1, 1, 3]])
    with torch.inference_mode():
        assert torch.equal(compiled.call(x, at), PICKS[name](x, at))
    assert not any("index" in left.operator or "gather" in left.operator for left in compiled.explanations[0].left)


MOVED: dict[str, Callable[..., Any]] = {
    "roll": lambda x: x.roll((2, -1), (0, 2)) * 2,
    "flip": lambda x: x.flip(0, 2) + 1,
    "repeat": lambda x: x.repeat(2, 1, 3).relu(),
    "padding": lambda x: functional.pad(x, (2, -1, 0, 3), value=0.5) - 1,
    "slice_scatter": lambda x: x.slice_scatter(x[:, :2].neg(), 1, 1, 3) * 2,
    "slice_scatter by steps": lambda x: x.slice_scatter(x[:, :2].neg(), 1, 1, 5, 3) * 2,
    "slice_scatter to the end": lambda x: x.slice_scatter(x[..., :3].neg(), 2, 0, None, 3) * 2,
    "select_scatter": lambda x: x.select_scatter(x[:, 0].neg(), 1, -1) * 2,
    "copy": lambda x: x.slice_scatter(torch.full_like(x[:, :2], 3).copy_(x[:, :2, :1]), 1, 1, 3),
    "neighbours": lambda x: torch.stack(x.topk(2, -1), -2),
    "steps": lambda x: x[1:, ::2, 3] + x[:-1, 1::2, -1:].squeeze(-1)[:, :1],
}


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", MOVED)
def test_elements_that_are_moved(name: str) -> None:
    compiled = Compiled(MOVED[name])
    x = drawn(5, 5, 7)
    with torch.inference_mode():
        assert torch.equal(compiled.call(x), MOVED[name](x))
    assert not compiled.reasons


DERIVED: dict[str, Callable[..., Any]] = {
    "reflection": lambda x, w: functional.pad(x.exp(), (2, 1, 3, 2), mode="reflect").tanh() * 2,
    "reflection of lines": lambda x, w: functional.pad(x[0].exp(), (1, 3), mode="reflect").tanh() * 2,
    "edges that repeat": lambda x, w: functional.pad(x.exp(), (2, 9, 0, 3), mode="replicate").tanh() * 2,
    "edges of lines that repeat": lambda x, w: functional.pad(x[0].exp(), (8, 1), mode="replicate").tanh() * 2,
    "powers": lambda x, w: (x.exp() ** 1.5).tanh() + (x.square() + 1) ** -0.3 + (w.exp().mean() + 0.5) ** 2.2,
    "weight norm": lambda x, w: x.tanh() + torch._weight_norm(w, w[:, :1].exp(), 0)[:, 0],
    "steps": lambda x, w: torch.slice_scatter(x.exp(), x[..., :2].tanh(), 2, 1, 5, 2) * 2,
}


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", DERIVED)
def test_gradients_of_moved_elements_and_normed_weights(name: str) -> None:
    compiled = Compiled(DERIVED[name])
    operands = torch.randn(2, 5, 7), torch.randn(7, 6)
    own, wide = ([x.to(kind).requires_grad_() for x in operands] for kind in (torch.float32, torch.float64))
    compiled.call(*own).sum().backward()
    DERIVED[name](*wide).sum().backward()
    for mine, exact in zip(own, wide, strict=True):
        if exact.grad is not None:
            assert (mine.grad.double() - exact.grad).abs().max() <= 1e-5 * exact.grad.abs().max()
    assert not compiled.reasons


@pytest.mark.parametrize("function", [torch.sin, torch.cos, lambda x: (x.abs() + 0.1) ** 0.3])
def test_what_f64_computes_is_not_behind_a_product(function: Callable[[Any], Any]) -> None:
    """Nor before a product in its kernel: registers of f64 are taken from its accumulators. Sines of few angles are."""
    compiled, a, b = Compiled(lambda a, b, c: function(a @ b) * c + function(c)), drawn(35, 24), drawn(24, 17)
    c = drawn(35, 17)
    exact = function(a.double() @ b.double()) * c.double() + function(c.double())
    assert close(compiled.call(a, b, c), exact, 6)
    assert len(compiled.operators) == 1
    assert "pow" not in compiled.operators[0]
    assert {"sin", "cos"}.isdisjoint(compiled.operators[0]) == (function not in (torch.sin, torch.cos))
    assert not compiled.reasons


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ["sin", "cos"])
def test_sines_of_large_angles(name: str) -> None:
    """Of every exponent up to that from which kernels have NaN."""
    function, x = getattr(torch, name), torch.randn(400) * 2.0 ** torch.randint(-30, 48, (400,))
    compiled = Compiled(lambda x: function(x) * 1)
    result, exact = compiled.call(x), function(x.double())
    assert torch.all((result - exact).abs() <= 2e-7 * exact.abs() + 2.0**-149)
    assert not compiled.reasons
    narrow = drawn(7, 33) * 100
    assert torch.all(
        (compiled.call(narrow) - function(narrow.double())).abs() <= BF16 * function(narrow.double()).abs()
    )


OF_RANGES = {
    "log1p": (-0.9, 1e6), "expm1": (-20, 20), "sinh": (-20, 20), "cosh": (-20, 20), "tan": (-9, 9), "asinh": (-99, 99),
    "acosh": (1.1, 99), "atanh": (-0.99, 0.99), "log2": (1.1, 99), "log10": (1.1, 99), "exp2": (-20, 20),
    "asin": (-1, 1), "acos": (0, 0.99), "atan": (-99, 99), "erfc": (-4, 9),
}  # fmt: skip


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", OF_RANGES)
def test_functions_of_a_number(name: str) -> None:
    """Beside 0 too, where some of them are as small as what they are of."""
    function, (low, high) = getattr(torch, name), OF_RANGES[name]
    x = torch.rand(301) * (high - low) + low
    x = torch.cat([x, torch.randn(99) * 2.0 ** torch.randint(-20, -3, (99,))]) if low < 0 else x
    compiled = Compiled(lambda x: function(x) * 1)
    exact = function(x.double())
    assert torch.all((compiled.call(x) - exact).abs() <= 5e-7 * exact.abs())
    assert not compiled.reasons


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ["atan2", "fmod", "remainder", "copysign", "fmax", "fmin", "pow"])
def test_functions_of_two_numbers(name: str) -> None:
    function, x, y = getattr(torch, name), torch.randn(301) * 9, torch.randn(301) * 9
    x = x.abs() if name == "pow" else x
    x[:4], y[2:6] = torch.tensor([0.0, -0.0, torch.inf, torch.nan]), torch.tensor([torch.inf, 2.5, torch.nan, -1e-30])
    compiled = Compiled(lambda x, y: function(x, y) * 1)
    got, exact = compiled.call(x, y), function(x.double(), y.double())
    same = (got == exact) | (got.isnan() & exact.isnan())
    assert torch.all(same | ((got - exact).abs() <= 4e-7 * exact.abs() + 2.0**-149))
    assert torch.equal(got.signbit()[:2], exact.signbit()[:2])
    assert not compiled.reasons


def test_whether_a_number_is_finite() -> None:
    x = drawn(7, 43)
    x[0, :3] = torch.tensor([torch.inf, -torch.inf, torch.nan])
    compiled = Compiled(lambda x: torch.where(torch.isfinite(x), x, -3))
    assert torch.equal(compiled.call(x), torch.where(torch.isfinite(x), x, -3))
    assert not compiled.reasons


@pytest.mark.sampled(6)
@pytest.mark.parametrize("exponent", [1.5, -1.5, 0.25, -0.7, 2.2, 7])
def test_powers_by_a_number(exponent: float) -> None:
    x = torch.rand(301) * 2.0 ** torch.randint(-20, 9, (301,))
    x[0] = -torch.inf
    compiled = Compiled(lambda x: x**exponent + 0)
    exact = x.double() ** torch.tensor(exponent).double()  # of the exponent in f32, as torch computes
    got = compiled.call(x)
    assert torch.all((got == exact) | ((got - exact).abs() <= 4e-7 * exact + 2.0**-149))
    assert not compiled.reasons


@pytest.mark.sampled(2)
@pytest.mark.parametrize("exponent", [0.3, -1.7, 17.0, 99.5])
def test_powers_of_halves_are_approximate(exponent: float) -> None:
    """Up to an exponent whose error their rounding hides; those below 2^-126 are 0."""
    x, compiled = torch.rand(301).add(0.4).bfloat16(), Compiled(lambda x: x**exponent)
    exact = x.double() ** exponent
    assert torch.all((compiled.call(x) - exact).abs() <= 1.01 * BF16 * exact + 2.0**-126)
    assert ("fastmath<afn>" in compiled.explanations[0].compiled[0].mlir) == (exponent < 64)


def test_attention_of_parts_of_unknown_columns_is_left() -> None:
    """As many parts as there are follow from no example of the columns."""

    def attend(x: Any) -> Any:
        part = x.chunk(2, -1)[-1]
        return functional.scaled_dot_product_attention(part, part, part)

    compiled, x = Compiled(attend, dynamic=True), drawn(1, 3, 7, 10)
    assert close(compiled.call(x), attend(x.double()), 3.0)
    assert any("unknown size" in reason for reason in compiled.reasons)


AT_ENDS: dict[str, Callable[..., Any]] = {
    "behind the first": lambda x, y: (x * 2).slice_scatter(y[:, 1:], 1, 1),
    "before the last": lambda x, y: (x * 2).slice_scatter(y[:, :-1], 1, 0, -1),
    "the first": lambda x, y: (x * 2).slice_scatter(y[:, :2], 1, 0, 2),
    "in between": lambda x, y: (x * 2).slice_scatter(y[:, 2:-1], 1, 2, -1),
    "near the last": lambda x, y: (x * 2).slice_scatter(y[:, -3:-1], 1, -3, -1),
    "all": lambda x, y: (x * 2).slice_scatter(y, 1),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", AT_ENDS)
def test_parts_are_put_at_known_distances_from_ends(name: str) -> None:
    compiled = Compiled(AT_ENDS[name], dynamic=True)
    with torch.inference_mode():
        for n in (8, 5, 11):
            x, y = drawn(n - 3, n, 7), drawn(n - 3, n, 7)
            assert torch.equal(compiled.call(x, y), AT_ENDS[name](x, y))
    assert not compiled.reasons


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dynamic", [False, True])
def test_what_is_written_in_another_order_lies_in_it(dynamic: bool) -> None:
    def written(x: Any, y: Any, at: Any) -> Any:
        columns = (x * 2).transpose(1, 2).contiguous().transpose(1, 2)
        columns[:, 1:] = y[:, 1:]
        columns[at] = y[at]
        first = columns.transpose(1, 2).flatten()
        columns.copy_(y)
        return first, columns.transpose(1, 2).view(-1, x.shape[1])

    compiled = Compiled(written, dynamic=dynamic)
    with torch.inference_mode():
        x, y, at = drawn(3, 5, 7), drawn(3, 5, 7), torch.tensor([2, 0])
        assert all(map(torch.equal, compiled.call(x, y, at), written(x, y, at)))


@pytest.mark.slow
def test_means_along_two_dimensions_of_one_unknown_size() -> None:
    def spread(x: Any) -> Any:
        x = x[:, ::2, ::2]
        return x.float().mean((1, 2)), x.float().var((1, 2))

    compiled = Compiled(spread, dynamic=True)
    with torch.inference_mode():
        for n in (9, 14, 25):
            x = drawn(3, n, n)
            assert all(close(a, b, 1.0) for a, b in zip(compiled.call(x), spread(x.double()), strict=True))
    assert not compiled.reasons


LOSSES: dict[str, Callable[..., Any]] = {
    "log sigmoid": lambda x, y: functional.logsigmoid(x) * y,
    "binary cross entropy": lambda x, y: functional.binary_cross_entropy_with_logits(x, y.sigmoid()),
    "of probabilities": lambda x, y: functional.binary_cross_entropy(x.float().sigmoid(), y.float().sigmoid()),
    "elu and mish": lambda x, y: functional.elu(x) + functional.mish(y),
    "prelu": lambda x, y: functional.prelu(x, y[0, :, 0]),
    "softplus and leaky relu": lambda x, y: functional.softplus(x) * functional.leaky_relu(y, 0.3),
    "labels of pixels": lambda x, y: functional.cross_entropy(x, torch.zeros(5, 7, dtype=torch.long)),
    "a filling tensor": lambda x, y: x.masked_fill(y > 0, y[0, 0, 0]),
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_activations_with_their_gradients(name: str) -> None:
    x, y = (drawn(5, 5, 7).requires_grad_() for _ in range(2))
    compiled, function, results = Compiled(LOSSES[name]), LOSSES[name], list[Any]()
    for call, operands in ((compiled.call, (x, y)), (function, (x.double(), y.double()))):
        result = call(*operands)
        results.append([result, *torch.autograd.grad(result.sum(), (x, y), materialize_grads=True)])
    assert all(close(ours, exact.double(), 4.0) for ours, exact in zip(*results, strict=True))
    assert not compiled.reasons


INTEGERS: dict[str, Callable[..., Any]] = {
    "the larger of bytes": lambda x, y: torch.maximum(x, y),
    "bytes between two": lambda x, y: x.clamp(100, 200).float(),
    "a choice of bytes": lambda x, y: torch.where(x > y, x, y).float() * 0.5,
    "the least byte": lambda x, y: x.amin(1),
    "the largest number": lambda x, y: (x.long() - 90).amax(1),
    "all and any": lambda x, y: (x > 7).all(0) ^ (y > 250).any(1, keepdim=True),
    "any of bytes": lambda x, y: x.any(1) + y.any(0).any(),
    "numbers far apart": lambda x, y: x.long() + torch.arange(-3 * 10**9, 4 * 10**9, 10**9),
    "absolute": lambda x, y: (x.int() - y.int()).abs() - x.abs(),
    "quotients of bytes": lambda x, y: x // (y | 1) + x % (y | 1),
    "quotients": lambda x, y: (x.long() * 3001 - 400000) // (y.long() - 256) + (x.int() - 99) // 7,
    "quotients towards 0": lambda x, y: torch.div(x.int() - 99, y.int() - 256, rounding_mode="trunc") * 3,
    "remainders": lambda x, y: (x.int() - 99) % 7 + (x.int() - 99) % (y.int() - 256) + torch.fmod(x.int() - 99, 7),
    "bytes of numbers below 0": lambda x, y: (x * 1.5 - y).to(torch.uint8),
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", INTEGERS)
def test_integers_with_and_without_a_sign(name: str) -> None:
    compiled = Compiled(INTEGERS[name])
    x, y = (torch.randint(0, 256, (5, 7), dtype=torch.uint8) for _ in range(2))
    x[:, 0], y[:, 0], x[:, 1] = 255, 1, 0
    with torch.inference_mode():
        assert torch.equal(compiled.call(x, y), INTEGERS[name](x, y))
    assert not compiled.reasons


PUT: dict[str, Callable[..., Any]] = {
    "rows": lambda x, y, at: x.index_put((at,), y[:3]),
    "two dimensions": lambda x, y, at: x.index_put((at, at - 5), y[0, :1]),
    "behind others": lambda x, y, at: x.index_copy(2, at, y[:, :, 1:4]),
    "a number": lambda x, y, at: x.index_fill(1, at, 2.0),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", PUT)
def test_elements_put_at_places(name: str) -> None:
    compiled = Compiled(PUT[name])
    x, y, at = drawn(5, 5, 7), drawn(5, 5, 7), torch.tensor([4, 0, 3])
    with torch.inference_mode():
        assert torch.equal(compiled.call(x, y, at), PUT[name](x, y, at))
    assert not compiled.reasons


def test_a_window_that_is_not_the_image_has_one_place() -> None:
    x, w = drawn(2, 8, 4, 4), drawn(16, 8, 3, 3)
    x, w = (each.to(memory_format=torch.channels_last) for each in (x, w))
    with torch.inference_mode():
        assert_compiled(lambda x, w: functional.conv2d(x, w, stride=2), x, w, parts=[("convolution",)])


def test_an_element_at_a_place_that_there_is_not_is_nan() -> None:
    compiled = Compiled(lambda x, at: x[at])
    with torch.inference_mode():
        result = compiled.call(drawn(5, 3), torch.tensor([4, 5, -5, -6]))
    assert result.isnan().all(1).tolist() == [False, True, False, True]


def test_an_index_on_the_host_is_left() -> None:
    """Torch copies it to the GPU for an index alone; a kernel would read the host's address."""
    backend: Any = import_module("warploom.runtime.torch.backend")
    tracing: Any = import_module("torch.fx.experimental.proxy_tensor")
    fake: Any = import_module("torch._subclasses.fake_tensor")
    x, at, seen, aten = drawn(13, 7), torch.randint(-13, 13, (29,)), list[Any](), torch.ops.aten

    def function(x: Any, at: Any) -> Any:
        return aten.index.Tensor(x * 2, [at]) + 1

    with fake.FakeTensorMode():
        examples = [torch.empty(v.shape, dtype=v.dtype, device=to) for v, to in ((x, "cuda"), (at, "cpu"))]
        module = tracing.make_fx(function)(*examples)
    options = backend.BackendOptions(target="sm_90a", explain=seen.append)
    call = backend.compile_graph(module, [], name="forward", options=options)
    assert torch.equal(call([x, at]), function(x, at))
    assert [part.nodes for part in seen[0].compiled] == [("mul",), ("add",)]
    (left,) = seen[0].left
    assert left.node == "index"
    assert "lies elsewhere" in left.reason


FROM_HOST: dict[str, Callable[..., Any]] = {
    "places": lambda x, at, y: torch.ops.aten.index_put(x, [at], x[:7] * 2),
    "a number at places": lambda x, at, y: torch.ops.aten.index_put(x, [at], y[0, 0]),
    "a copy": lambda x, at, y: torch.ops.aten.copy(x[:7], y.float() / 3) * 2,
    "a number": lambda x, at, y: torch.ops.aten.fill.Tensor(x, y[0, 0]),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", FROM_HOST)
def test_what_is_put_comes_from_the_host(name: str) -> None:
    """Torch takes it beside a tensor on a GPU, for which another device stands here."""
    decompositions: Any = import_module("warploom.runtime.torch.decompositions")
    tracing: Any = import_module("torch.fx.experimental.proxy_tensor")
    fake: Any = import_module("torch._subclasses.fake_tensor")
    x, at, y = drawn(11, 5), torch.randperm(11)[:7] - 11, drawn(7, 5)
    with fake.FakeTensorMode():
        pairs = zip((x, at, y), ("meta", "cpu", "cpu"), strict=True)
        examples = [torch.empty(v.shape, dtype=v.dtype, device=to) for v, to in pairs]
        put = tracing.make_fx(FROM_HOST[name], decompositions.simpler())(*examples)
    assert put.graph.output_node().args[0].meta["val"].device.type == "meta"
    for node in put.graph.nodes:
        if "device" in node.kwargs:
            node.kwargs = {**node.kwargs, "device": "cpu"}
    put.recompile()
    assert torch.equal(put(x, at, y), FROM_HOST[name](x, at, y))


def test_sums_by_index_are_of_f32() -> None:
    experts: Any = import_module("warploom.runtime.torch.experts")
    fake: Any = import_module("torch._subclasses.fake_tensor")
    x, index, rows = drawn(5, 8), torch.tensor([0, 1, 1, 4, 4, 4, 2]), drawn(7, 8)
    graph, mode, aten = torch.fx.Graph(), fake.FakeTensorMode(), torch.ops.aten
    nodes = [graph.placeholder(name) for name in ("x", "index", "rows")]
    with mode:
        for node, value in zip(nodes, (x, index, rows), strict=True):
            node.meta["val"] = torch.empty(value.shape, dtype=value.dtype, device="cuda")
        total = graph.call_function(aten.index_add.default, (nodes[0], 0, *nodes[1:]))
        total.meta["val"] = nodes[0].meta["val"].clone()
    graph.output(total)
    experts.sums_in_f32(graph)
    result, exact = (
        torch.fx.GraphModule({}, graph)(x, index, rows),
        x.double().index_add(0, index, rows.double()),
    )
    assert torch.all((result - exact).abs() <= BF16 * exact.abs())
    assert not graph.find_nodes(op="call_function", target=aten.index_add.default)


@pytest.mark.parametrize(("length", "count", "counted"), [(5, 83, True), (256, 41, True), (257, 41, False)])
def test_orders_of_chosen_places_are_counted(length: int, count: int, counted: bool) -> None:
    """Also rows that the order repeats for a product; the last part is not full."""
    experts: Any = import_module("warploom.runtime.torch.experts")
    tracing: Any = import_module("torch.fx.experimental.proxy_tensor")
    fake: Any = import_module("torch._subclasses.fake_tensor")
    aten, iota = torch.ops.aten, partial(torch.ops.prims.iota, start=0, step=1, dtype=torch.int64, requires_grad=False)

    def order(scores: Any, x: Any, weights: Any, ends: Any) -> Any:
        places, order = torch.sort(scores.topk(3)[1].flatten(), stable=True)
        inverse = aten.index_put(torch.empty_like(order), [order], iota(len(order), device=x.device))
        rows = [aten.index(x, [order.div(3, rounding_mode="floor")]) for _ in range(2)]
        return places, order, inverse, rows[0] * 2, aten._grouped_mm(rows[1], weights, ends)

    inputs = torch.randn(count, length), drawn(count, 16), drawn(length, 16, 24)
    inputs += (torch.arange(1, length + 1, dtype=torch.int32) * count * 3 // length,)
    with fake.FakeTensorMode():
        module = tracing.make_fx(order)(*(torch.empty(v.shape, dtype=v.dtype, device="cuda") for v in inputs))
    experts.count_orders(module.graph)
    module.graph.eliminate_dead_code()
    targets = [node.target for node in module.graph.nodes]
    assert (aten.sort.stable not in targets) == counted
    assert targets.count(aten.index_put.default) == (4 if counted else 1)
    for node in module.graph.nodes:
        if "device" in node.kwargs:
            node.kwargs = {**node.kwargs, "device": "cpu"}
    module.recompile()
    for result, expected in zip(module(*inputs), order(*inputs), strict=True):
        assert torch.equal(result, expected)


def test_the_largest_of_short_rows_are_chosen_one_after_another() -> None:
    """Of equal ones the first; a row of another length than torch's kernels are for stays."""
    experts: Any = import_module("warploom.runtime.torch.experts")
    tracing: Any = import_module("torch.fx.experimental.proxy_tensor")
    fake: Any = import_module("torch._subclasses.fake_tensor")
    x = torch.randn(43, 11).bfloat16().float().index_fill(1, torch.tensor([7]), -math.inf)
    with fake.FakeTensorMode():
        examples = torch.empty(x.shape, device="cuda"), torch.empty(3, 257, device="cuda")
        module = tracing.make_fx(lambda *rows: [part for x in rows for part in x.topk(3)])(*examples)
    experts.choose_largest(module.graph)
    module.graph.eliminate_dead_code()
    (left,) = module.graph.find_nodes(op="call_function", target=torch.ops.aten.topk.default)
    assert left.args[0].name == module.graph.find_nodes(op="placeholder")[1].name
    for node in module.graph.nodes:
        if "device" in node.kwargs:
            node.kwargs = {**node.kwargs, "device": "cpu"}
    module.recompile()
    values, places, *_ = module(x, torch.randn(3, 257))
    expected = x.sort(descending=True, stable=True)
    assert torch.equal(values, expected[0][:, :3])
    assert torch.equal(places, expected[1][:, :3])


def test_operands_are_measured_as_kernels_take_them() -> None:
    choice: Any = import_module("warploom.runtime.torch.inductor")
    part: Any = import_module("warploom.runtime.torch.part")
    joined = torch.randn(3, 5, 2, 4)
    q = joined[:, :, 1].permute(1, 0, 2)
    assert choice._lying(q, part.MemoryOrder((1, 0, 2), 3)).stride() == (4, 20, 1)
    assert choice._lying(q, part.row_major(3)).stride() == (12, 4, 1)
    assert choice._lying(joined, part.row_major(4)) is joined


def test_what_inductor_pads_is_copied_for_kernels() -> None:
    """Rows of more than 1024 elements, where others read them, too."""
    choice: Any = import_module("warploom.runtime.torch.inductor")
    clusters: Any = import_module("warploom.runtime.torch.clusters")
    tracing: Any = import_module("torch.fx.experimental.proxy_tensor")
    x = torch.empty(3, 1030, dtype=torch.bfloat16)
    assert choice.padded(x) == [1088, 1]
    assert choice.padded(x.t()) == [1, 1088]
    assert choice.padded(x[:, 1:]) == [1030, 1]
    assert choice.padded(x.t().contiguous()) == [3, 1]
    assert choice.padded(torch.empty(2, 5, 1100).expand(2, 5, 1100)[:, :1].expand(2, 5, 1100)) == [5500, 0, 1]

    def function(x: Any, y: Any) -> Any:
        one, two = x.exp(), y.exp()
        return one.permute(1, 0) @ x, two.permute(1, 0) @ y, two.sum(0)

    graph = tracing.make_fx(function)(torch.randn(3, 5), torch.randn(3, 5)).graph
    products = graph.find_nodes(op="call_function", target=torch.ops.aten.mm.default)
    lie = [[choice._lies_already(n, clusters.Cluster((each,))) for n in each.all_input_nodes] for each in products]
    assert lie == [[False, True], [True, True]]


def test_pads_of_a_matrix_and_its_transpose_are_one() -> None:
    """Of however many transposes; pads of both sides of two dimensions, with a value."""
    views: Any = import_module("warploom.runtime.torch.views")
    tracing: Any = import_module("torch.fx.experimental.proxy_tensor")
    fake: Any = import_module("torch._subclasses.fake_tensor")
    aten = torch.ops.aten

    def padded(x: Any, y: Any) -> Any:
        turned = x.permute(1, 0)
        twice = functional.pad(turned.permute(1, 0), (0, 3)), functional.pad(turned, (0, 0, 0, 3))
        return *twice, functional.pad(turned, (1, 2, 3, 4), value=0.5), functional.pad(y, (1, 2))

    x, y = torch.randn(5, 7), torch.randn(2, 3, 4)
    with fake.FakeTensorMode() as mode:
        module = tracing.make_fx(padded)(*(mode.from_tensor(value) for value in (x, y)))
    views.transpose_pads(module.graph)
    module.graph.eliminate_dead_code()
    module.recompile()
    first, second, third, other = module.graph.find_nodes(op="call_function", target=aten.constant_pad_nd.default)
    matrix = module.graph.find_nodes(op="placeholder")[0]
    assert [node.args[0] for node in (first, second, third)] == [matrix] * 3
    assert [list(node.args[1]) for node in (first, second, third, other)] == [[0, 3, 0, 0]] * 2 + [[3, 4, 1, 2], [1, 2]]
    for got, expected in zip(module(x, y), padded(x, y), strict=True):
        assert torch.equal(got, expected)


def test_a_gate_is_in_the_product_of_experts() -> None:
    """Its halves are the columns of one product of groups, of weights as (k, n); a masked result stays apart."""
    x, w, ends = drawn(23, 64), drawn(3, 64, 48), torch.tensor([5, 5, 21], dtype=torch.int32)
    rows = (slice(0, 5), slice(5, 5), slice(5, 21))

    def gated(x: Any, w: Any) -> Any:
        gate, up = torch._grouped_mm(x, w, offs=ends).chunk(2, -1)
        return functional.silu(gate) * up

    def masked(x: Any, w: Any) -> Any:
        return torch.where(torch.arange(23)[:, None] < 21, torch._grouped_mm(x, w, offs=ends), 0.0)

    compiled = Compiled(gated)
    with torch.no_grad():
        got, left = compiled.call(x, w)[:21].double(), Compiled(masked).call(x, w)[21:]
    gate, up = torch.cat([x[part].double() @ w[e].double() for e, part in enumerate(rows)]).chunk(2, -1)
    exact = functional.silu(gate) * up
    # four roundings, the first of which silu' magnifies
    assert torch.all((got - exact).abs() <= 1.1 * BF16 * (4 + gate.abs()) * exact.abs() + 1e-6)
    assert torch.all(left == 0)
    (part,) = compiled.explanations[0].compiled
    assert [kernel.partition(":")[0] for kernel in part.kernels] == ["@grouped_mm_split_silu_mul_bfloat16"]


def test_two_products_of_one_tensor_are_a_kernel_with_what_reads_both() -> None:
    x, gate, up = drawn(40, 64), drawn(48, 64), drawn(48, 64)

    def gated(x: Any, gate: Any, up: Any) -> Any:
        return functional.silu(x @ gate.t()) * (x @ up.t())

    def twice(x: Any, gate: Any, up: Any) -> Any:
        other = x @ up.t()
        return functional.silu(x @ gate.t()) * other + other

    compiled = [Compiled(function) for function in (gated, twice)]
    with torch.no_grad():
        got = compiled[0].call(x, gate, up).double()
        compiled[1].call(x, gate, up)
    first, second = x.double() @ gate.double().t(), x.double() @ up.double().t()
    exact = functional.silu(first) * second
    assert torch.all((got - exact).abs() <= 1.1 * BF16 * (4 + first.abs()) * exact.abs() + 1e-6)
    assert [[op.count("mm") for op in each.operators] for each in compiled] == [[2], [1, 1]]
    assert [len(part.kernels) for part in compiled[0].explanations[0].compiled] == [1]


def test_rows_of_experts_are_read_by_the_sum() -> None:
    """Rows sorted by expert are sums of as many rows each."""
    experts: Any = import_module("warploom.runtime.torch.experts")
    tracing: Any = import_module("torch.fx.experimental.proxy_tensor")
    fake: Any = import_module("torch._subclasses.fake_tensor")
    chosen, x, rows, aten = torch.randint(0, 4, (15,)), drawn(5, 8), drawn(15, 8), torch.ops.aten

    def summed(x: Any, chosen: Any, rows: Any) -> Any:
        return x.index_add(0, chosen.sort()[1].div(3, rounding_mode="floor"), rows)

    mode = fake.FakeTensorMode()
    with mode:
        examples = [torch.empty(v.shape, dtype=v.dtype, device="cuda") for v in (x, chosen, rows)]
    module = tracing.make_fx(summed)(*examples)
    experts.sums_in_f32(module.graph)
    targets = {node.target for node in module.graph.nodes}
    assert aten.index_put.default in targets
    assert aten.index_add.default not in targets
    for node in module.graph.nodes:
        if "device" in node.kwargs:
            node.kwargs = {**node.kwargs, "device": "cpu"}
    module.recompile()
    exact = x.double().index_add(0, chosen.argsort() // 3, rows.double())
    assert torch.all((module(x, chosen, rows) - exact).abs() <= BF16 * exact.abs())


def test_results_that_torch_has_without_gaps() -> None:
    """Views as models write them are of results in row-major order, whatever the order of the operand."""
    functions = (
        lambda x: x.unsqueeze(0).repeat(2, 1, 1, 1).view(-1, 6) * 3,
        lambda x: x.scatter(1, torch.zeros_like(x[:, :1], dtype=torch.int64), 2.0).view(-1, 6) * 3,
    )
    x = drawn(5, 6, 7).permute(2, 0, 1)
    with torch.no_grad():
        for function in functions:
            result = Compiled(function, rest="eager").call(x)
            assert torch.equal(result, function(x))
            assert result.stride() == function(x).stride()


def test_slower_kernels_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The times that decide are in the explanation. On a CPU they are those of a stand-in for a GPU."""
    backend: Any = import_module("warploom.runtime.torch.backend")
    choice: Any = import_module("warploom.runtime.torch.inductor")
    times = iter([(9.0, 10.0), (9.9, 10.0), (11.0, 10.0)])

    def judged(cluster: Any, region: Any) -> Any:
        return choice._judged(cluster, region, 2.0 if len(cluster.nodes) > 1 else 0.0)

    monkeypatch.setattr(backend, "judged", judged)
    monkeypatch.setattr(choice, "_measured", lambda *_: next(times))
    compiled = Compiled(lambda a, b, c: torch.relu(a @ b) @ c, rest="inductor")
    compiled.call(drawn(5, 16), drawn(16, 8), drawn(8, 24))
    assert compiled.operators == [("mm", "relu")]
    assert compiled.explanations[0].compiled[0].measured == (
        "measured 9.0 us, torch's kernel 10.0 us and 2.0 us for what follows"
    )
    assert compiled.reasons == ["measured 9.9 us, torch's kernel 10.0 us"]


def test_a_product_of_empty_matrices_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the gradient of a weight is, where a batch has no rows: operands have no bytes at all."""
    backend: Any = import_module("warploom.runtime.torch.backend")
    choice: Any = import_module("warploom.runtime.torch.inductor")

    def times(contenders: Any) -> list[float]:
        for calls in contenders:
            calls[0]()
        return [3.0, 4.0]

    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    monkeypatch.setattr(choice, "_times", times)
    monkeypatch.setattr(backend, "judged", lambda cluster, region: choice._judged(cluster, region, 0.0))
    compiled = Compiled(lambda a, b: a.t() @ b, rest="inductor")
    assert torch.equal(compiled.call(drawn(0, 24), drawn(0, 8)), torch.zeros(24, 8, dtype=torch.bfloat16))
    assert compiled.explanations[0].compiled[0].measured == "measured 3.0 us, torch's kernel 4.0 us"


class StandIn:
    """A GPU that begins a call when those before are done and the host has enqueued it, in microseconds. Others have it
    for `others` behind each `slice` of its time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, slice_: float = 1.0, others: float = 0.0) -> None:
        self.host = self.gpu = 0.0
        self.slice, self.others, self.worked, self.drawn = slice_, others, 0.0, Random(5)
        gpu = self

        class Event:
            def __init__(self, **_: bool) -> None:
                self.at = 0.0

            def record(self) -> None:
                gpu.run(1.0, 0.0)
                self.at = gpu.gpu

            def query(self) -> bool:
                return gpu.host >= self.at

            def synchronize(self) -> None:
                gpu.host = max(gpu.host, self.at)

            def elapsed_time(self, other: Event) -> float:
                return (other.at - self.at) / 1e3

        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: self.run(1.0, cycles / 2e3))

    def run(self, host: float, gpu: float) -> None:
        self.host += host
        before, self.worked = self.worked, self.worked + gpu
        waits = self.worked // self.slice - before // self.slice
        self.gpu = max(self.host, self.gpu) + gpu + waits * self.others * self.drawn.uniform(0.5, 1.5)

    def times(self, *contenders: tuple[float, float]) -> list[float]:
        """What is measured of calls that take the host and the GPU so long."""
        choice: Any = import_module("warploom.runtime.torch.inductor")
        return choice._times([[partial(self.run, *each)] * (1 + at) for at, each in enumerate(contenders)])


def test_a_slow_host_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    assert StandIn(monkeypatch).times((700.0, 40.0), (10.0, 30.0)) == pytest.approx([40.0, 30.0])


@pytest.mark.parametrize("others", [900.0, 2000.0, 7000.0])
def test_work_of_others_is_not_measured(monkeypatch: pytest.MonkeyPatch, others: float) -> None:
    """They have the GPU behind each two milliseconds."""
    gpu = StandIn(monkeypatch, 2000.0, others)
    assert gpu.times((9.0, 1010.0), (9.0, 970.0)) == pytest.approx([1010.0, 970.0])
    assert gpu.times((9.0, 12.0), (9.0, 11.0)) == pytest.approx([12.0, 11.0])
    long, short = gpu.times((9.0, 2410.0), (9.0, 1250.0))  # one is never alone: it looks longer, if anything
    assert long / short > 0.75 * 2410 / 1250


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("shapes", "options"),
    [
        (((2, 9, 4, 16), (2, 9, 2, 16)), {"is_causal": True, "enable_gqa": True}),
        (((1, 5, 3, 16), (1, 19, 3, 16)), {"scale": 0.5}),
        (((2, 5, 2, 16), (2, 19, 2, 16)), {"mask": torch.bool}),
        (((2, 1, 4, 16), (2, 13, 4, 16)), {"mask": torch.bool}),
    ],
)
def test_attention(shapes: tuple[tuple[int, ...], ...], options: dict[str, Any]) -> None:
    """Rows of all heads lie together, as behind a projection; the result too."""
    q, k = shapes
    mask = drawn(2, 1, q[1], k[1]) > 0 if options.pop("mask", None) else None

    def function(q: Any, k: Any, v: Any) -> Any:
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return functional.scaled_dot_product_attention(q, k, v, mask, **options).transpose(1, 2).flatten(2)

    operands = drawn(*q), drawn(*k), drawn(*k)
    compiled = Compiled(function)
    with torch.no_grad():
        result = compiled.call(*operands)
    assert close(result, function(*(x.double() for x in operands)), 2.0)
    part = compiled.explanations[0].compiled[-1]
    assert part.kernels[0].startswith("@attention_bfloat16: cta = ")
    assert len(part.kernels) == 1
    assert result.is_contiguous()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["for cuDNN", "causal", "added", "all", "window", "of an input", "lifted"])
def test_masks_that_follow_from_no_input(kind: str) -> None:
    """A kernel reads a mask only where it is neither that of causal attention nor one that keeps all keys."""

    def function(q: Any, k: Any, v: Any, bound: Any) -> Any:
        places = torch.arange(19)
        back = places[:, None] - places
        kept = {"causal": back >= 0, "window": (back >= 0) & (back < 7), "of an input": back >= bound}.get(
            kind, back < 19
        )
        if kind in ("added", "for cuDNN"):  # -65504 is what torch makes of a mask of truth values there
            kept = (
                torch.where(back >= 0, 0.0, torch.finfo((torch.bfloat16, torch.half)[kind == "for cuDNN"]).min)
                .to(q.dtype)
                .expand(2, 1, 19, 19)
            )
        if kind == "lifted":
            kept = torch.where(back >= 0, torch.tensor(0.0).to(q.dtype), torch.tensor(-torch.inf).to(q.dtype))
        return functional.scaled_dot_product_attention(q, k, v, kept)

    *operands, bound = *(drawn(2, 2, 19, 16) for _ in range(3)), torch.tensor(0)
    compiled = Compiled(function)
    with torch.no_grad():
        result = compiled.call(*operands, bound)
    assert close(result, function(*(x.double() for x in operands), bound=bound), 2.0)
    parts = compiled.explanations[0].compiled
    follows = kind not in ("window", "of an input")
    assert len(parts) == 1 or not follows
    reads_mask = "19x19x" in parts[-1].mlir.partition("->")[0]
    assert reads_mask != follows


def test_copies_of_keys_and_values_are_not_made() -> None:
    def function(q: Any, k: Any, v: Any) -> Any:
        return functional.scaled_dot_product_attention(q, *(x.transpose(1, 2).contiguous() for x in (k, v)))

    operands = drawn(2, 3, 19, 16), drawn(2, 11, 3, 16), drawn(2, 11, 3, 16)
    module: Any = import_module("torch.fx.experimental.proxy_tensor").make_fx(function, tracing_mode="fake")(*operands)
    assert len(module.graph.find_nodes(op="call_function", target=torch.ops.aten.clone.default)) == 2
    read_in_place(module.graph)
    assert not module.graph.find_nodes(op="call_function", target=torch.ops.aten.clone.default)
    module.recompile()
    assert close(module(*operands), function(*(x.double() for x in operands)), 2.0)


@pytest.mark.slow
def test_attention_of_sequences_that_follow_each_other() -> None:
    """One of them is empty; queries and keys have the same ends, or each their own."""
    varlen: Any = pytest.importorskip("torch.nn.attention.varlen")
    lengths, of_keys = (5, 0, 20, 14), (1, 3, 9, 17)
    ends, others = (torch.tensor([0, *accumulate(x)], dtype=torch.int32) for x in (lengths, of_keys))
    q, k, v, few = drawn(39, 4, 16), drawn(39, 2, 16), drawn(39, 2, 16), drawn(30, 2, 16)

    def function(q: Any, k: Any, v: Any, few: Any, ends: Any, others: Any) -> Any:
        own = varlen.varlen_attn(q, k, v, ends, ends, 20, 20, window_size=(-1, 0), enable_gqa=True)
        return own, varlen.varlen_attn(own, few, few, ends, others, 20, 20, enable_gqa=True)

    def exact(q: Any, k: Any, v: Any, of_keys: Sequence[int], causal: bool) -> Any:
        parts = [x.double().transpose(0, 1).split(n, 1) for x, n in ((q, lengths), (k, of_keys), (v, of_keys))]
        attend = partial(functional.scaled_dot_product_attention, is_causal=causal, enable_gqa=True)
        return torch.cat([attend(*(x[None] for x in each))[0] for each in zip(*parts, strict=True)], 1).transpose(0, 1)

    compiled = Compiled(function)
    with torch.no_grad():
        own, other = compiled.call(q, k, v, few, ends, others)
    assert not compiled.reasons
    assert close(own, exact(q, k, v, lengths, True), 2.0)
    assert close(other, exact(own, few, few, of_keys, False), 2.0)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_of_sequences_that_follow_each_other(causal: bool) -> None:
    """As those of each sequence alone, of which one has no queries, and one no keys, in kernels."""
    varlen: Any = pytest.importorskip("torch.nn.attention.varlen")
    lengths, of_keys = (5, 0, 20, 14), (5, 0, 20, 14) if causal else (1, 3, 0, 17)
    ends, others = (torch.tensor([0, *accumulate(x)], dtype=torch.int32) for x in (lengths, of_keys))
    others, window = (ends, (-1, 0)) if causal else (others, (-1, -1))
    inputs = drawn(39, 4, 16), drawn(sum(of_keys), 2, 16), drawn(sum(of_keys), 2, 16)
    grad = drawn(39, 4, 16)

    def function(q: Any, k: Any, v: Any, ends: Any, others: Any) -> Any:
        return varlen.varlen_attn(q, k, v, ends, others, 20, 20, window_size=window, enable_gqa=True)

    def exact(q: Any, k: Any, v: Any, *_: Any) -> Any:
        parts = [x.transpose(0, 1).split(n, 1) for x, n in ((q, lengths), (k, of_keys), (v, of_keys))]
        attend = partial(functional.scaled_dot_product_attention, is_causal=causal, enable_gqa=True)
        return torch.cat([attend(*(x[None] for x in each))[0] for each in zip(*parts, strict=True)], 1).transpose(0, 1)

    def trained(call: Any, dtype: Any) -> list[Any]:
        own = [x.to(dtype, copy=True).requires_grad_() for x in inputs]
        result = call(*own, ends, ends if causal else others)
        result.backward(grad.to(dtype))
        return [result.detach(), *(x.grad for x in own)]

    compiled = Compiled(function)
    trained_here, wanted = trained(compiled.call, torch.bfloat16), trained(exact, torch.float64)
    assert not compiled.reasons
    for ours, true in zip(trained_here, wanted, strict=True):
        assert (ours.double() - true).norm() <= 2.0**-7 * true.norm()


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("shapes", "options", "rest"),
    [
        (((2, 9, 4, 16), (2, 9, 2, 16)), {"is_causal": True, "enable_gqa": True}, "eager"),
        (((1, 5, 3, 16), (1, 19, 3, 16)), {"scale": 0.5}, "inductor"),
        (((2, 13, 4, 16), (2, 7, 1, 16)), {}, "eager"),  # one head of K and V, repeated by a view
    ],
)
def test_attention_in_training(shapes: tuple[tuple[int, ...], ...], options: dict[str, Any], rest: str) -> None:
    """Its gradients are of the sums of rows that the kernel leaves beside its result."""
    q, k = shapes

    def function(q: Any, k: Any, v: Any) -> Any:
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        if "enable_gqa" not in options:
            k, v = (x.expand(-1, q.shape[1], -1, -1) for x in (k, v))
        return functional.scaled_dot_product_attention(q, k, v, **options).transpose(1, 2).flatten(2)

    inputs, grad = (drawn(*q), drawn(*k), drawn(*k)), drawn(*q[:2], q[2] * q[3])

    def trained(call: Any, dtype: Any) -> list[Any]:
        own = [x.to(dtype, copy=True).requires_grad_() for x in inputs]
        result = call(*own)
        result.backward(grad.to(dtype))
        return [result.detach(), *(x.grad for x in own)]

    compiled = Compiled(function, rest=rest)
    trained_here, eager, exact = (
        trained(compiled.call, torch.bfloat16),
        trained(function, torch.bfloat16),
        trained(function, torch.float64),
    )
    for ours, theirs, wanted in zip(trained_here, eager, exact, strict=True):
        assert (ours.double() - wanted).norm() <= 1.1 * (theirs.double() - wanted).norm()
    assert not compiled.reasons
    forward, backward = (e.compiled[0] for e in compiled.explanations)
    assert (len(forward.kernels), len(backward.kernels)) == (1, 3)
    sizes = "x".join(map(str, (q[0], q[2], q[1], q[3])))  # not those of logarithms, and of the gradient of V
    labels = [f"model: {name} bf16 {sizes}" for name in ("attention", "attention gradients")]
    assert [forward.label, backward.label] == labels


SLOPES, OF_TOKENS, KEPT = (
    torch.tensor([0.3, 0.8, 0.1, 0.5]),
    torch.arange(41, dtype=torch.int32) // 9,
    torch.arange(82).view(2, 41) % 5 != 0,
)
LENGTHS = torch.tensor([17, 40], dtype=torch.int32)
BIAS = torch.linspace(-2, 2, 4 * 37 * 41).reshape(4, 37, 41).bfloat16()

FLEXIBLE: dict[str, tuple[Any, Any]] = {
    "documents": (lambda s, b, h, m, n: s - abs(m - n), lambda b, h, m, n: OF_TOKENS[m] == OF_TOKENS[n]),
    "cap": (lambda s, b, h, m, n: 2 * torch.tanh(s / 2), None),
    "slopes": (lambda s, b, h, m, n: s + SLOPES[h] * (n - m), lambda b, h, m, n: m >= n),
    "bias": (lambda s, b, h, m, n: s + BIAS[h, m, n], lambda b, h, m, n: (m >= n) & (m > 5)),
    "chosen": (lambda s, b, h, m, n: torch.where(m - n < 5, s, s * 0.5), lambda b, h, m, n: (h < 2) | (n < 7)),
    "padded": (None, lambda b, h, m, n: KEPT[b, n] & (m - n <= 7)),
    "lengths": (None, lambda b, h, m, n: (n <= m + 30) & (n < LENGTHS[b])),
    "indices": (lambda s, b, h, m, n: s * (b + 1) - h * (m % 5), lambda b, h, m, n: (m % 3 != 1) & (n // 4 != 2)),
}


@pytest.mark.sampled(14)
@pytest.mark.parametrize("heads", [2, 4])
@pytest.mark.parametrize(("name", "rows"), [(name, 41 if name == "documents" else 37) for name in FLEXIBLE])
def test_flex_attention_in_training(name: str, rows: int, heads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions of scores and masks, of which some leave rows without keys, and the gradient of the logarithms."""
    flex: Any = import_module("torch.nn.attention.flex_attention")
    monkeypatch.setattr(flex, "_validate_device", lambda *_: None)  # torch has no kernel of the gradients for a CPU
    score, mask = FLEXIBLE[name]
    blocks = None if mask is None else flex.create_block_mask(mask, 2, 4, rows, 41, device="cpu")
    inputs = [torch.randn(2, *shape) for shape in ((4, rows, 16), (heads, 41, 16), (heads, 41, 24))]
    slopes, logs = torch.randn(2, 4, rows, 24), torch.randn(2, 4, rows)

    def function(q: Any, k: Any, v: Any) -> Any:
        options = {"enable_gqa": True, "return_lse": name == "slopes"}
        return flex.flex_attention(q, k, v, score_mod=score, block_mask=blocks, **options)

    def trained(call: Any, dtype: Any) -> list[Any]:
        own = [x.bfloat16().to(dtype).requires_grad_() for x in inputs]
        made = call(*own)
        result, *lse = made if isinstance(made, tuple) else (made,)
        loss = (result * slopes.bfloat16().to(dtype)).sum()
        (loss + sum((x * logs).sum() for x in lse)).backward()
        return [x.detach().double() for x in (result, *lse, *(x.grad for x in own))]

    compiled = Compiled(function, dynamic=False)
    here, eager, exact = (
        trained(*each)
        for each in ((compiled.call, torch.bfloat16), (function, torch.bfloat16), (function, torch.float64))
    )
    for ours, theirs, wanted in zip(here, eager, exact, strict=True):
        assert (ours - wanted).norm() <= 1.1 * (theirs - wanted).norm() + 1e-6 * wanted.norm()
    parts = [part for e in compiled.explanations for part in e.compiled if part.label.startswith("model: attention")]
    spans = name == "documents"
    assert [len(part.kernels) for part in parts] == [1 + spans, 4 + 2 * spans]


NUMBERS, TABLE = torch.arange(41) // 9, torch.randn(4, 81)
LEFT: dict[str, tuple[Any, Any]] = {
    "integers of 64 bits": (None, lambda b, h, m, n: NUMBERS[m] == NUMBERS[n]),
    "not read at each of their places": (lambda s, b, h, m, n: s + TABLE[h, m - n + 40], None),
    "nothing to compare it with": (lambda s, b, h, m, n: s + n, None),
}


class Attending(torch.nn.Module):
    """Attention as models write it by hand, in which torch's patterns put its own attention."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(24, 24) for _ in range(3))

    def forward(self, x: Any) -> Any:
        q, k, v = (layer(x).view(2, -1, 3, 8).permute(0, 2, 1, 3) for layer in self.layers)
        weights = (q @ k.transpose(-1, -2) / 8**0.5).softmax(-1)
        return (weights @ v).permute(0, 2, 1, 3).reshape(x.shape)


def test_inductor_trains_attention_that_its_patterns_replace() -> None:
    model, x = Attending().bfloat16(), drawn(2, 9, 24)
    exact, compiled = deepcopy(model).double(), Compiled(model, rest="inductor")
    result, wanted, slope = compiled.call(x), exact(x.double()), drawn(2, 9, 24)
    result.backward(slope)
    wanted.backward(slope.double())
    assert close(result, wanted, 4.0)
    assert all(close(p.grad, q.grad, 8.0) for p, q in zip(model.parameters(), exact.parameters(), strict=True))


class Branches(torch.nn.Module):
    """A linear layer behind a norm, of which one branch of a condition is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.layer = torch.nn.LayerNorm(29), torch.nn.Linear(29, 29)

    def forward(self, x: Any) -> Any:
        def above(x: Any) -> Any:
            return self.layer(self.norm(x)).relu()

        return torch.cond(x.sum() > 0, above, lambda x: self.layer(x).sigmoid() * 3, (x,))


class Block(Branches):
    """The same layers as a region of the graph, which is called for each block."""

    @torch.compiler.nested_compile_region
    def forward(self, x: Any) -> Any:
        return x + self.layer(self.norm(x)).tanh()


def test_branches_are_compiled(tmp_path: Path) -> None:
    """Also where another process reads the program."""
    model = Branches().bfloat16()
    inputs = [drawn(7, 29).abs() * sign for sign in (1, -1)]
    compiled, exact = Compiled(model), deepcopy(model).double()
    with torch.no_grad():
        for x in inputs:
            assert close(compiled.call(x), exact(x.double()), 4.0)
        assert not compiled.reasons
        path = tmp_path / "model.pt2"
        assert torch_save(torch.export.export(model, (inputs[0],)), path).compiled
        torch.save([(x, exact(x.double())) for x in inputs], tmp_path / "tensors")
    script = (
        "import sys, torch; from warploom.runtime import torch_load; call = torch_load(sys.argv[1]);"
        "assert all((call(x) - y).norm() <= 0.02 * y.norm() for x, y in torch.load(sys.argv[2]))"
    )
    subprocess.run([sys.executable, "-c", script, path, tmp_path / "tensors"], check=True)


def test_regions_of_a_model_are_compiled() -> None:
    """Forward and backward, with what torch takes apart in them, such as a norm."""
    model = torch.nn.Sequential(Block(), Block()).bfloat16()
    exact, compiled, x = deepcopy(model).double(), Compiled(model), drawn(7, 29)
    result, wanted = compiled.call(x), exact(x.double())
    assert close(result, wanted, 4.0)
    slope = drawn(7, 29)
    result.backward(slope)
    wanted.backward(slope.double())
    for own, other in zip(model.parameters(), exact.parameters(), strict=True):
        assert close(own.grad, other.grad, 8.0)
    assert not compiled.reasons
    assert {e.graph for e in compiled.explanations if e.compiled} == {"forward", "backward"}


@pytest.mark.parametrize("reason", LEFT)
def test_flex_attention_that_is_left(reason: str) -> None:
    flex: Any = import_module("torch.nn.attention.flex_attention")
    score, mask = LEFT[reason]
    blocks = None if mask is None else flex.create_block_mask(mask, 1, 4, 41, 41, device="cpu")
    compiled = Compiled(partial(flex.flex_attention, score_mod=score, block_mask=blocks), check="compare" in reason)
    q = drawn(1, 4, 41, 16)
    exact = flex.flex_attention(*[q.double()] * 3, score_mod=score, block_mask=blocks)
    assert close(compiled.call(q, q, q), exact, 2.0)
    assert any(reason in left and "\n" not in left for left in compiled.reasons)


def test_blocks_that_no_function_says() -> None:
    """Eager mode does not read which blocks a mask has, and kernels of torch read nothing else of this one."""
    flex: Any = import_module("torch.nn.attention.flex_attention")
    every = torch.arange(2, dtype=torch.int32).expand(1, 1, 2, 2)
    blocks = flex.BlockMask.from_kv_blocks(torch.full((1, 1, 2), 2, dtype=torch.int32), every)
    compiled, q = Compiled(partial(flex.flex_attention, block_mask=blocks)), drawn(1, 1, 256, 16)
    assert close(compiled.call(q, q, q), flex.flex_attention(*[q.double()] * 3, block_mask=blocks), 2.0)
    assert "blocks of keys without a function that says which keys count are not lowered" in compiled.reasons


@pytest.mark.slow
def test_gradients_of_scores_far_apart() -> None:
    """Those of Q and K are differences of equal numbers, times scores of 10^5."""
    heads = [[249, 456, 184], [160, 184, 249]], [[159, 568, 213], [352, 213, 676]], [[458, 362, 111], [171, 110.5, 131]]

    def gradient(call: Any, dtype: Any) -> Any:
        x = torch.tensor([heads], dtype=dtype).requires_grad_()
        call(x, x, x * 0.5).backward(torch.ones_like(x))
        return x.grad.double()

    compiled = Compiled(functional.scaled_dot_product_attention)
    exact = gradient(functional.scaled_dot_product_attention, torch.float64)
    assert (gradient(compiled.call, torch.bfloat16) - exact).abs().max() <= 0.05
    assert [len(e.left) for e in compiled.explanations] == [0, 0]


def test_attention_whose_strides_are_those_of_no_operand() -> None:
    """As where positions turn all queries but the first, and images have any size."""

    def function(x: Any) -> Any:
        q = x.flatten(2).mT.unflatten(-1, (4, 8)).transpose(1, 2)
        q = torch.cat([q[:, :, :1], q[:, :, 1:] * 2], 2)
        return functional.scaled_dot_product_attention(q, q, q)

    compiled = Compiled(function, dynamic=True)
    for shape in ((2, 32, 4, 6), (3, 32, 5, 7)):
        x = drawn(*shape)
        assert close(compiled.call(x), function(x.double()), 2.0)
    assert not compiled.reasons


def test_attention_of_any_number_of_queries() -> None:
    """Heads that share keys, and a result in the order of torch's: what is returned is seen in another shape."""
    q, k = drawn(2, 9, 64), drawn(2, 9, 32)

    def function(q: Any, k: Any, v: Any) -> Any:
        q, k, v = (x.unflatten(-1, (-1, 16)).transpose(1, 2) for x in (q, k, v))
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2)

    for operand in (q, k):
        torch._dynamo.mark_dynamic(operand, (0, 1))
    with torch.no_grad():
        result = Compiled(function).call(q, k, k)
    assert close(result, function(q.double(), k.double(), k.double()), 2.0)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.select(0, -1) * 2,
        lambda x: x[:, -3:].float().softmax(-1),
        lambda x: x[1:-1] + x[:-2],
        lambda x: x[:, 2:4].sum(-1) * x[:, -1:, 0],
    ],
)
def test_parts_counted_from_an_end_that_is_not_known(function: Callable[[Any], Any]) -> None:
    """The last rows of tensors whose sizes only the caller knows, none of which is left."""
    compiled = Compiled(function, dynamic=True)
    for rows in (5, 9):
        x = drawn(rows, rows + 3, 7)
        assert close(compiled.call(x), function(x.double()), 2.0)
    assert not compiled.reasons


def test_attention_of_shared_heads_of_sizes_that_are_not_known_is_one_kernel() -> None:
    """Its result lies with the heads behind the rows: the kernel writes it where the caller wants it."""

    def function(q: Any, k: Any, v: Any) -> Any:
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return out.transpose(1, 2).flatten(-2)

    compiled = Compiled(function)
    for batch, rows in ((2, 9), (3, 17)):
        q, (k, v) = drawn(batch, rows, 4, 16).transpose(1, 2), (drawn(batch, 2, rows, 16) for _ in range(2))
        for operand in (q, k, v):
            torch._dynamo.mark_dynamic(operand, (0, 2))
        with torch.no_grad():
            assert close(compiled.call(q, k, v), function(q.double(), k.double(), v.double()), 2.0)
    assert compiled.operators == [("_scaled_dot_product_flash_attention_for_cpu",)]


def test_rows_of_one_element_are_not_as_long_as_others() -> None:
    """What is reduced does not read along the row: nothing else says how long it is."""
    compiled = Compiled(lambda x: x.amax(1, keepdim=True).float().square().sum(-1), dynamic=True)
    x = drawn(5, 7)
    assert close(compiled.call(x), x.double().amax(1).square(), 1.0)


def test_a_saved_program_is_called_without_the_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For any batch; the file of a program that has no kernels is refused."""
    torch.manual_seed(0)
    model, x = Mlp().bfloat16().eval(), drawn(4, 24)
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(model, (x,), dynamic_shapes=({0: batch},))
    explanation = torch_save(program, tmp_path / "mlp.pt2")
    assert explanation.compiled
    assert not explanation.left
    part: Any = import_module("warploom.runtime.torch.part")
    monkeypatch.setattr(part, "REGIONS", {})
    loaded = torch_load(tmp_path / "mlp.pt2")
    exact = deepcopy(model).double()
    with torch.no_grad():
        for inputs in (x, drawn(9, 24)):
            assert close(loaded(inputs), exact(inputs.double()), 2.0)
        with pytest.raises(
            ArgumentError, match=r"norm: .*input 0 of 4x24: expected torch\.bfloat16 on cpu, got torch\.f"
        ):
            loaded(x.half())
        with pytest.raises(ArgumentError, match=r"expected torch\.bfloat16 on cpu, got torch\.float32 on cpu"):
            loaded.float()(x)
    torch.export.save(program, tmp_path / "plain.pt2")
    with pytest.raises(ArgumentError, match="expected a file that torch_save wrote"):
        torch_load(tmp_path / "plain.pt2")
    code = b85encode(pickle.dumps([subprocess.run])).decode()
    torch.export.save(program, tmp_path / "code.pt2", extra_files={part.KERNELS_FILE: code})
    with pytest.raises(ArgumentError, match=r"subprocess\.run, expected a record of warploom"):
        torch_load(tmp_path / "code.pt2")
    imported = "import sys, warploom.runtime.torch.part; sys.exit(any(m.startswith('xdsl') for m in sys.modules))"
    subprocess.run([sys.executable, "-c", imported], check=True)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("shape", [(2, 4, 21, 37), (21, 37), (2, 1, 1, 37)])
@pytest.mark.parametrize("kind", ["added", "chosen"])
def test_gradients_of_attention_with_a_mask_are_compiled(shape: tuple[int, ...], kind: str) -> None:
    """Within 4 roundings, which torch's own are: a mask that is added, or of bools, of heads that share keys too."""
    torch.manual_seed(7)
    mask = drawn(*shape) if kind == "added" else torch.rand(shape) > 0.3
    mask[..., 0] = True
    if shape == (21, 37):  # a query without keys
        mask[5] = -torch.inf if kind == "added" else False
    q, k, v = drawn(2, 4, 21, 24), drawn(2, 2, 37, 24), drawn(2, 2, 37, 24)
    slope = drawn(2, 4, 21, 24)

    def gradients(call: Callable[..., Any], *inputs: Any) -> list[Any]:
        q, k, v = (x.clone().requires_grad_() for x in inputs)
        wide = mask.to(q.dtype) if kind == "added" else mask
        out = call(q, *(x.repeat_interleave(2, 1) for x in (k, v)), wide)
        out.backward(slope.to(out.dtype))
        return [x.grad for x in (q, k, v)]

    compiled = Compiled(functional.scaled_dot_product_attention, rest="eager")
    result = gradients(compiled.call, q, k, v)
    exact = gradients(functional.scaled_dot_product_attention, *(x.double() for x in (q, k, v)))
    assert all(close(ours, theirs, 4.0) for ours, theirs in zip(result, exact, strict=True))
    assert not compiled.reasons


def test_logarithms_of_rows_without_keys_are_torch_s() -> None:
    """0: of minus infinity torch's own gradients, which may follow our attention, would be NaN."""
    q, k, slope, mask = drawn(2, 3, 21, 24), drawn(2, 3, 37, 24), drawn(2, 3, 21, 24), drawn(21, 37)
    mask[5] = -torch.inf
    aten: Any = torch.ops.aten
    compiled = Compiled(aten._scaled_dot_product_flash_attention_for_cpu.default)
    out, sums = compiled.call(q, k, k, 0.0, False, attn_mask=mask)
    assert torch.equal(sums[:, :, 5], torch.zeros(2, 3))
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    result = backward(slope, q, k, k, out, sums, 0.0, False, attn_mask=mask)
    wide = [x.double().requires_grad_() for x in (q, k, k)]
    functional.scaled_dot_product_attention(*wide, mask.double()).backward(slope.double())
    assert all(close(x, y.grad, 3.0) for x, y in zip(result, wide, strict=True))
    assert not compiled.reasons


@pytest.mark.parametrize("kind", ["flash", "cudnn"])
def test_attention_as_it_is_on_a_gpu(kind: str) -> None:
    """Attention has the state of dropout among its results, which are the operands of its gradients; cuDNN's has
    logarithms in a dimension more."""
    backend: Any = import_module("warploom.runtime.torch.backend")
    fake: Any = import_module("torch._subclasses.fake_tensor")
    graph, mode, aten = torch.fx.Graph(), fake.FakeTensorMode(), torch.ops.aten

    def added(kind: Any, *args: Any) -> Any:
        node = graph.placeholder(args[0]) if kind == "input" else graph.call_function(kind, args)
        with mode:
            values = torch.fx.node.map_arg(args, lambda x: x.meta["val"])
            node.meta["val"] = drawn(2, 3, 9, 16) if kind == "input" else kind(*values)
        return node

    q, k, v, slope = (added("input", name) for name in ("q", "k", "v", "slope"))
    of_flash = kind == "flash"
    bias = () if of_flash else (None, True)
    forward = added(getattr(aten, f"_scaled_dot_product_{kind}_attention").default, q, k, v, *bias, 0.0, True)
    out, sums, *state = (added(operator.getitem, forward, n) for n in (0, 1, 6, 7))
    lengths = None, None, 9, 9, 0.0, True
    gradients = added(
        getattr(aten, f"_scaled_dot_product_{kind}_attention_backward").default,
        *(slope, q, k, v, out, sums, *((*lengths, *state) if of_flash else (*state, None, *lengths))),
    )
    graph.output((out, *(added(operator.getitem, gradients, n) for n in range(3)), *state))
    call = backend.compile_graph(torch.fx.GraphModule({}, graph), [], name="forward", options=backend.BackendOptions())
    inputs = [drawn(2, 3, 9, 16) for _ in range(4)]
    result = call([*inputs])
    own = [x.double().requires_grad_() for x in inputs[:3]]
    exact = functional.scaled_dot_product_attention(*own, is_causal=True)
    exact.backward(inputs[3].double())
    assert all(close(x, y, 2.0) for x, y in zip(result[:4], (exact.detach(), *(x.grad for x in own)), strict=True))
    assert not any("scaled_dot" in str(node.target) for node in graph.nodes)
    decomposed: Any = import_module("torch._inductor.decomposition").decompositions
    lowered: Any = import_module("torch._inductor.lowering").lowerings
    left = [node.target for node in graph.nodes if node.op == "call_function"]
    assert not any(target in decomposed and target not in lowered for target in left), "inductor compiles no such call"


@pytest.mark.sampled(4)
@pytest.mark.parametrize("heads", [1, 2])
def test_gradients_of_attention_of_one_batch_are_compiled(heads: int) -> None:
    """Keys without the dimension of the batch are one value, that of scores and of the gradient of queries."""
    compiled = Compiled(functional.scaled_dot_product_attention)
    own = [drawn(1, heads, 20, 16).requires_grad_() for _ in range(3)]
    wide = [x.detach().double().requires_grad_() for x in own]
    slope = drawn(1, heads, 20, 16)
    compiled.call(*own).backward(slope)
    functional.scaled_dot_product_attention(*wide).backward(slope.double())
    assert all(close(x.grad, y.grad, 3.0) for x, y in zip(own, wide, strict=True))
    assert not compiled.reasons


@pytest.mark.sampled(4)
@pytest.mark.parametrize("of_mask", [False, True])
def test_gradients_with_a_mask_as_they_are_on_a_gpu(of_mask: bool) -> None:
    """Those of Q, K and V are compiled, unless the mask's is used too, which one operation computes with them."""
    backend: Any = import_module("warploom.runtime.torch.backend")
    fake: Any = import_module("torch._subclasses.fake_tensor")
    graph, mode, aten = torch.fx.Graph(), fake.FakeTensorMode(), torch.ops.aten
    inputs = [drawn(2, 3, 32, 16) for _ in range(4)] + [drawn(2, 3, 32, 32)]

    def added(kind: Any, *args: Any) -> Any:
        node = graph.placeholder(f"x{args[0]}") if kind == "input" else graph.call_function(kind, args)
        with mode:
            values = torch.fx.node.map_arg(args, lambda x: x.meta["val"])
            node.meta["val"] = drawn(*inputs[args[0]].shape) if kind == "input" else kind(*values)
        return node

    q, k, v, slope, mask = (added("input", number) for number in range(5))
    forward = added(aten._scaled_dot_product_efficient_attention.default, q, k, v, mask, True)
    out, sums, *state = (added(operator.getitem, forward, n) for n in range(4))
    operands = (slope, q, k, v, mask, out, sums, *state, 0.0, [True, True, True, of_mask])
    gradients = added(aten._scaled_dot_product_efficient_attention_backward.default, *operands)
    graph.output(tuple(added(operator.getitem, gradients, n) for n in range(3 + of_mask)))
    seen: list[Any] = []
    options = backend.BackendOptions(explain=seen.append)
    call = backend.compile_graph(torch.fx.GraphModule({}, graph), [], name="forward", options=options)
    if of_mask:
        assert [left.reason for left in seen[0].left] == ["the gradient of a mask is not lowered"]
        return
    own = [x.double().requires_grad_() for x in inputs[:3]]
    exact = functional.scaled_dot_product_attention(*own, inputs[4].double())
    exact.backward(inputs[3].double())
    assert all(close(x, y.grad, 2.0) for x, y in zip(call([*inputs]), own, strict=True))


class Pixels(torch.nn.Module):
    """A convolution, with what a residual network has behind it."""

    def __init__(self, taps: int, groups: int) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv2d(8 if groups == 8 else 16, 8, taps, padding=taps // 2, groups=groups)
        self.scale = torch.nn.Parameter(torch.randn(8, 1, 1))

    def forward(self, x: Any, residual: Any) -> Any:
        return torch.relu(self.convolution(x) * self.scale + residual)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("taps", "groups"), [(1, 1), (3, 1), (3, 2), (3, 8)])
def test_what_follows_a_convolution_is_computed_with_it(taps: int, groups: int) -> None:
    operators = (("addmm",) if taps == 1 else ("convolution", "permute")) + ("mul", "add", "relu")
    model = Pixels(taps, groups).bfloat16().to(memory_format=torch.channels_last)
    exact = Pixels(taps, groups).double()
    exact.load_state_dict(model.state_dict())
    inputs = 8 if groups == 8 else 16
    x, residual = (drawn(2, n, 3, 5).contiguous(memory_format=torch.channels_last) for n in (inputs, 8))
    compiled = Compiled(model)
    with torch.no_grad():
        result, expected = compiled.call(x, residual), exact(x.double(), residual.double())
    assert close(result, expected, 4.0)
    assert result.stride() == residual.stride()
    assert compiled.operators == [operators]


class Sequences(torch.nn.Module):
    """What models of sound convolve: sequences with the channels first, and places in groups or each channel alone."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Conv1d(16, 24, 3, 2, 1), torch.nn.Conv1d(24, 24, 6, padding=3, groups=3)
        self.alone, self.one = torch.nn.Conv1d(24, 24, 4, padding=3, groups=24), torch.nn.Conv1d(24, 8, 1)

    def forward(self, x: Any) -> Any:
        x = functional.gelu(self.first(x))
        x = x + functional.silu(self.second(x)[..., 1:])
        return self.one(self.alone(x))


def test_convolutions_of_sequences_are_those_of_images() -> None:
    model, x = Sequences().bfloat16(), drawn(2, 16, 37)
    compiled = Compiled(model)
    with torch.no_grad():
        result, eager = compiled.call(x), model(x)
        assert close(result, model.double()(x.double()), 3.0)
    assert result.stride() == eager.stride()
    multiplied = [operators for operators in compiled.operators if operators[0] in ("convolution", "addmm")]
    assert [operators[0] for operators in multiplied] == ["convolution"] * 3 + ["addmm"]
    assert multiplied[0][-1] == "gelu"


@pytest.mark.slow
@pytest.mark.parametrize(("features", "step", "groups", "padding"), [(16, 2, 1, 1), (8, 1, 8, 1), (16, 1, 1, "valid")])
def test_gradients_of_a_convolution(features: int, step: int, groups: int, padding: Any) -> None:
    """Of images, filter and bias each a kernel, where the channels are last in memory."""
    torch.manual_seed(2)
    layer = torch.nn.Conv2d(8, features, 3, step, padding, groups=groups).bfloat16()
    layer = layer.to(memory_format=torch.channels_last)
    x = drawn(2, 8, 7, 5).to(memory_format=torch.channels_last)
    compiled, exact = Compiled(layer), copy.deepcopy(layer).double()
    grads = list[Any]()
    for call, weights, images in ((compiled.call, layer, x), (exact, exact, x.double())):
        images = images.detach().requires_grad_()
        y = call(images)
        y.backward(torch.sin(torch.arange(y.numel())).view(y.shape).bfloat16().to(y.dtype))
        grads.append([images.grad, *(weight.grad for weight in weights.parameters())])
    assert all(close(ours, wanted, 2.0) for ours, wanted in zip(*grads, strict=True))
    operators = [part.operators for part in compiled.explanations[1].compiled]
    assert operators == [
        ("aten.convolution.default",),
        ("warploom.filter_gradient.default",),
        ("aten.sum.dim_IntList",),
    ]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("features", "step", "groups", "more"), [(16, 2, 1, 1), (8, 3, 8, 0), (8, 1, 1, 0)])
def test_gradients_of_a_transposed_convolution(features: int, step: int, groups: int, more: int) -> None:
    """A convolution, and the gradient of a filter of the images by the slopes; torch's own, whose layout inductor does
    not foretell where there is one channel, is not called."""
    torch.manual_seed(3)
    layer = torch.nn.ConvTranspose2d(8, features, 3, step, 1, more, groups=groups).bfloat16()
    layer = layer.to(memory_format=torch.channels_last)
    x = drawn(2, 8, 7, 5).to(memory_format=torch.channels_last)
    compiled, exact = Compiled(layer), copy.deepcopy(layer).double()
    grads = list[Any]()
    for call, weights, images in ((compiled.call, layer, x), (exact, exact, x.double())):
        images = images.detach().requires_grad_()
        y = call(images)
        y.backward(torch.sin(torch.arange(y.numel())).view(y.shape).bfloat16().to(y.dtype))
        grads.append([images.grad, *(weight.grad for weight in weights.parameters())])
    assert all(close(ours, wanted, 2.0) for ours, wanted in zip(*grads, strict=True))
    operators = [name for part in compiled.explanations[1].compiled for name in part.operators]
    assert {"aten.convolution.default", "warploom.filter_gradient.default"} <= {*operators}
    assert compiled.explanations[1].left == ()


def test_norms_are_called_what_the_model_calls_them() -> None:
    compiled = Compiled(torch.nn.Sequential(torch.nn.LayerNorm(24)).bfloat16())
    with torch.inference_mode():
        compiled.call(drawn(5, 24))
    (part,) = compiled.explanations[0].compiled
    assert part.label == "0: native_layer_norm bf16 5x24"
    assert part.kernels == ("@native_layer_norm_bfloat16: elementwise",)


def test_reasons_are_counted() -> None:
    def function(x: Any, w: Any) -> Any:
        return functional.conv2d(x, w).cumsum(0).cumsum(1) + torch.dot(x.flatten(), x.flatten())

    compiled = Compiled(function, tf32=True)
    compiled.call(drawn(1, 8, 5, 5), drawn(8, 8, 1, 1))
    (explanation,) = compiled.explanations
    neither = "there is no form of it in linalg here"
    assert explanation.reasons[neither] == 2
    assert f"  2 left: {neither}" in str(explanation)
    assert any("(model.to(memory_format=torch.channels_last))" in reason for reason in explanation.reasons)
    assert "the product of two vectors is one number, which no kernel here returns" in explanation.reasons


def test_a_convolution_of_changing_sizes_is_left_for_that() -> None:
    compiled = Compiled(functional.conv2d, dynamic=True)
    x, w = (drawn(*shape).to(memory_format=torch.channels_last) for shape in ((2, 8, 5, 5), (8, 8, 3, 3)))
    compiled.call(x, w)
    (explanation,) = compiled.explanations
    assert any("images of static sizes" in reason for reason in explanation.reasons)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_semi_structured_tensors_of_torch(dtype: Any) -> None:
    conversions: Any = import_module("torch.sparse._semi_structured_conversions")
    dense = torch.from_numpy(prune(torch.randn(96, 128).half().numpy())).to(dtype)
    values, metadata = conversions.sparse_semi_structured_from_dense_cutlass(dense)
    x, bias = torch.randn(9, 128).to(dtype), torch.randn(96).to(dtype)

    def layer(x: Any, values: Any, metadata: Any, bias: Any) -> Any:
        # what a linear layer with such a weight calls
        return functional.relu(torch.ops.aten._sparse_semi_structured_addmm(bias, values, metadata, x.t())).t()

    compiled = Compiled(layer)
    exact = functional.relu(functional.linear(x.double(), dense.double(), bias.double()))
    assert close(compiled.call(x, values, metadata, bias), exact, 1.0)
    assert compiled.operators == [("_sparse_semi_structured_addmm", "relu")]

    integers = Compiled(lambda v, m, b: torch.ops.aten._sparse_semi_structured_mm(v, m, b, out_dtype=torch.int32))
    rounded = (dense * 9).to(torch.int8)
    values, metadata = conversions.sparse_semi_structured_from_dense_cutlass(rounded)
    b = torch.randint(-128, 128, (128, 24), dtype=torch.int8)
    assert torch.equal(integers.call(values, metadata, b).long(), rounded.long() @ b.long())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tf23": True}, "no option 'tf23' of the backend warploom; .* did you mean 'tf32'"),
        ({"tf32": "no"}, "option 'tf32': expected True or False, got 'no'"),
        ({"check": "no"}, "option 'check': expected True or False, got 'no'"),
        ({"rest": "jax"}, "option 'rest': expected eager or inductor, got 'jax'"),
        ({"mode": "fast"}, "option 'mode': expected reduce-overhead, max-autotune, .*, got 'fast'"),
        ({"schedule": "stages=3"}, "option 'schedule': expected a dictionary"),
        ({"explain": "yes"}, "option 'explain': expected True, False, 'table' or a function"),
        ({"target": "sm_1"}, "option 'target': .*sm_1"),
        ({"check": True, "mode": "max-autotune"}, "option 'check' waits for the GPU"),
    ],
)
def test_options(options: dict[str, Any], message: str) -> None:
    from warploom.runtime.torch.options import read

    with pytest.raises(ArgumentError, match=message):
        read(options)
    with pytest.raises(Exception, match=message):
        torch.compile(lambda a, b: a @ b, backend="warploom", options=options)(drawn(5, 16), drawn(16, 8))


def test_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location("torch_mlp", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    example.main()
    assert re.search(r"backward graph: \d+ compiled, 0 left", capsys.readouterr().out)


def test_modes() -> None:
    with pytest.raises(Exception, match="mode 'max-autotune' is one of inductor's, which runs the rest"):
        torch.compile(lambda a, b: a @ b, backend="warploom", mode="max-autotune")(drawn(5, 16), drawn(16, 8))


def test_a_schedule_is_followed() -> None:
    compiled = assert_compiled(
        lambda a, b: a @ b, drawn(5, 64), drawn(64, 8), parts=[("mm",)], schedule={"cta": [16, 8, 32], "stages": 1}
    )
    assert "cta = 16x8x32, warp = 16x8, mma = m16n8k16, stages = 1" in str(compiled.explanations[0])


def test_launches_take_their_memory_and_stream_from_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a GPU is given, in place of which a record is kept: partial sums are scratch memory, some of it zeros. The
    machine code is that of the cache, if there is one."""
    part: Any = import_module("warploom.runtime.torch.part")
    enqueued, loaded = list[Any](), list[Any]()

    class Recorded:
        def __init__(self, program: Any, launches: Any, values: Any) -> None:
            self.gpu, self.launches, self.values = program.gpu, launches, values

        def enqueue(self, addresses: Any, stream: int) -> None:
            enqueued.append((self, addresses, stream))

        __call__ = enqueue

    monkeypatch.setattr("warploom.runtime.cuda.launches.Launches", Recorded)
    gpu = SimpleNamespace(load=lambda ptx, code: loaded.append((ptx, code())))
    monkeypatch.setattr("warploom.runtime.cuda.driver.gpu", lambda ordinal: {0: gpu}[ordinal])
    monkeypatch.setattr(part.Kernel, "cubin", b"ELF")
    monkeypatch.setenv("WARPLOOM_CACHE", str(tmp_path))
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 42 + device, raising=False)
    monkeypatch.setattr(part, "_interpret", part._enqueue)
    compiled = Compiled(lambda a, b: a @ b, schedule={"split_k": 2})
    pair = drawn(16, 128), drawn(128, 8)
    results = [compiled.call(*pair) for _ in range(2)]
    (prepared, addresses, stream), (same, others, _) = enqueued
    assert same is prepared
    assert [x[:3] for x in (addresses, others)] == [[t.data_ptr() for t in (*pair, out)] for out in results]
    assert len(others) == len(addresses)
    assert (prepared.gpu, stream) == (gpu, 42)
    (kernel,) = {region.kernel for region in part.REGIONS.values() if loaded == [(region.kernel.ptx, b"ELF")]}
    monkeypatch.setenv("WARPLOOM_CACHE", "off")
    assert not part.cached_code(kernel)
    assert addresses == [value.address for value in prepared.values]
    scratch = [value.owner for value in prepared.values[3:]]
    assert scratch
    assert all(tensor.dtype == torch.uint8 for tensor in scratch)
    assert any(not tensor.any() for tensor in scratch)
    assert {a for launch in prepared.launches for a in launch.arguments if isinstance(a, int)} == set(
        range(len(prepared.values))
    )


def test_values_without_dimensions() -> None:
    """What is reduced has no dimension: along the last one it is itself."""
    x = drawn(5, 7).float()

    def function(x: Any) -> Any:
        total = x.sum()
        return torch.softmax(total, -1) + total.amax(0) * 2 + x.mean()

    assert close(Compiled(function).call(x), function(x.double()), 1.0)


def test_attention_whose_result_lies_in_another_order() -> None:
    """What `nn.MultiheadAttention` makes: it turns the batch and the rows over, behind the product too."""
    layer, x = torch.nn.MultiheadAttention(32, 4, batch_first=True).bfloat16().eval(), drawn(2, 17, 32)
    wide = deepcopy(layer).double()
    compiled = Compiled(lambda x: layer(x.transpose(1, 2).contiguous().transpose(1, 2), x, x, need_weights=False)[0])
    with torch.no_grad():
        assert close(compiled.call(x), wide(x.double(), x.double(), x.double(), need_weights=False)[0], 4.0)
    assert not compiled.reasons


@pytest.mark.slow
def test_a_split_of_a_size_that_changes() -> None:
    """The sizes add up to that of the tensor, which only torch knows."""

    def function(x: Any, y: Any) -> Any:
        first, last = x.split([y.shape[0], x.shape[-1] - y.shape[0]], -1)
        return functional.scaled_dot_product_attention(first @ first.mT @ last, last, last)

    compiled = Compiled(function, dynamic=True)
    for batch, first, last in ((3, 4, 7), (5, 3, 6)):
        x, y = drawn(1, batch, 9, first + last) * 0.5, drawn(first, 2)
        assert close(compiled.call(x, y), function(x.double(), y), 4.0)
    assert any("a dimension, of unknown size is not lowered" in reason for reason in compiled.reasons)


def test_parts_of_five_unknown_sizes_are_left() -> None:
    """The numbers in the place of unknown sizes make strides that 64 bits do not hold."""
    compiled = Compiled(lambda x: x.transpose(0, 3)[1:].permute(4, 0, 3, 2, 1) * 2, dynamic=True)
    for shape in ((3, 4, 5, 2, 3), (2, 3, 4, 5, 6)):
        x = drawn(*shape)
        assert torch.equal(compiled.call(x), x.transpose(0, 3)[1:].permute(4, 0, 3, 2, 1) * 2)


def test_norms_of_groups_of_no_images() -> None:
    norm, x = torch.nn.GroupNorm(2, 8), drawn(0, 8, 3, 5, dtype=torch.float32).requires_grad_()
    Compiled(norm).call(x).sum().backward()
    assert x.grad.shape == x.shape
    assert torch.equal(norm.weight.grad, torch.zeros(8))


def test_places_of_channels_where_the_width_changes() -> None:
    """Their integers of 64 bits are stored as words, whose strides are known at the launch."""
    compiled = Compiled(lambda x: x.argmax(1))
    for sizes in ((2, 5, 7), (3, 4, 9)):
        batch, height, width = sizes
        x = drawn(batch, 6, height, width, dtype=torch.float32)
        for d in (0, 2, 3):
            torch._dynamo.mark_dynamic(x, d)
        assert torch.equal(compiled.call(x), x.argmax(1))
    assert not compiled.reasons


def test_two_tensors_of_one_pointwise_operation() -> None:
    x = drawn(7, 9, dtype=torch.float32)
    assert all(map(torch.equal, Compiled(torch.frexp).call(x), torch.frexp(x)))


def test_numbers_beyond_those_of_a_byte() -> None:
    """They wrap around as torch's do."""
    x = torch.randint(0, 256, (7, 9), dtype=torch.uint8)

    def function(x: Any) -> Any:
        return x - 300, (x * 513).int(), x == 300, x % -4, x // -3, x % 300

    assert all(map(torch.equal, Compiled(function).call(x), function(x)))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("shape", "model", "function"), [
    ((2, 8, 5, 3), torch.nn.Conv2d(8, 6, 1), lambda y: y.relu().contiguous().view(2, -1)),
    ((30, 8), torch.nn.Linear(8, 8), lambda y: y.view(2, 3, 5, 8).clone(memory_format=torch.channels_last).mT),
])  # fmt: skip
def test_copies_to_an_order_of_memory_stay_behind_views(shape: Any, model: Any, function: Any) -> None:
    """What makes images of rows, or orders their channels, does not come after such a copy."""
    model, x = model.bfloat16().to(memory_format=torch.channels_last), drawn(*shape)
    x = x.to(memory_format=torch.channels_last) if x.dim() == 4 else x
    with torch.no_grad():
        result, expected = Compiled(lambda x: function(model(x)), rest="eager").call(x), function(model(x))
        assert close(result, function(copy.deepcopy(model).double()(x.double())), 2.0)
    assert result.stride() == expected.stride()


def test_steps_of_an_optimiser() -> None:
    """Averages that move, which torch takes apart by a number that is a constant, and quotients that are added."""
    exact, seen = torch.nn.Parameter(drawn(5, 7, dtype=torch.float64)), list[Any]()
    weight = torch.nn.Parameter(exact.detach().float())
    ours, wide = (torch.optim.Adam([each], 0.01, amsgrad=True, foreach=False) for each in (weight, exact))
    call = torch.compile(ours.step, backend="warploom", options={"explain": seen.append, "rest": "eager"})
    for grad in drawn(3, 5, 7, dtype=torch.float64):
        weight.grad, exact.grad = grad.float(), grad
        call()
        wide.step()
    assert torch.allclose(weight.double(), exact, rtol=2.0**-22, atol=2.0**-20)
    operators = {operator for part in seen[0].compiled for operator in part.operators}
    assert operators.issuperset({"aten.lerp.Scalar", "aten.maximum.default", "aten.addcdiv.default"})
    assert not any("prims" in left.reason for left in seen[0].left)


GRAPHS = {
    "a gelu of -15 is off by 5e-7 of that at most, where eager mode has 0": 12077110,
    "rows that follow each other in two ways": 7200089,
    "parts of every second element, written where sizes change": 52117376,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", GRAPHS)
def test_random_graphs_that_were_wrong(name: str) -> None:
    from torch_graphs import fault

    assert not fault(GRAPHS[name], parts=name.startswith("parts"))


MODULES = {
    "the remainder of a byte and a negative number": 11111,
    "argmax of channels where the batch changes": 31106,
    "a scan whose rows become heads": 61734126,
    "the mean of a batch under vmap, where a number is converted": 81932021,
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", MODULES)
def test_random_modules_that_were_wrong(name: str) -> None:
    from torch_modules import fault

    assert fault(MODULES[name]) == ("no", "")


PLACE = torch.zeros((), dtype=torch.long)

OF_NUMBERS: dict[str, Callable[[Any], Any]] = {
    "flip": lambda x: x.flip(-1),
    "sign": lambda x: (-x).sign() * x,
    "chosen numbers": lambda x: torch.where(x > 2, 3.0, 0.5) * x,
    "var": lambda x: x.var(-1, correction=0) + x,
    "gather": lambda x: x.gather(0, PLACE) * 2,
    "scatter": lambda x: x.scatter(0, PLACE, x * 2),
    "index_copy": lambda x: x.index_copy(0, PLACE, x * 2),
    "index_add": lambda x: x.index_add(0, PLACE, x * 2),
    "index_put": lambda x: x[None].index_put((PLACE,), x * 2),
}


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", OF_NUMBERS)
def test_tensors_without_dimensions(name: str) -> None:
    """They have one, which is counted from either end, wherever an operation asks for a dimension."""
    function = OF_NUMBERS[name]
    x, y = (torch.tensor(1.625, requires_grad=True) for _ in range(2))
    result, expected = Compiled(function).call(x), function(y)
    result.sum().backward()
    expected.sum().backward()
    assert result.shape == expected.shape
    assert torch.equal(result, expected)
    assert torch.equal(x.grad, y.grad)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("function", [
    lambda x: torch.empty_like(x).copy_(x),
    lambda x: torch.zeros(3, 5).index_fill_(0, torch.tensor([0]), 1).copy_(x[0]),
    lambda x: x.flip(()),
])  # fmt: skip
def test_results_have_memory_of_their_own(function: Callable[[Any], Any]) -> None:
    """What is copied is changed without what it was copied from, and each row without the others."""
    x = drawn(3, 5)
    before, expected = x.clone(), function(x.clone())
    result = Compiled(function).call(x)
    for each in (result, expected):
        each[0].add_(1)
    assert torch.equal(x, before)
    assert torch.equal(result, expected)


def test_fields_of_schedules_are_those_of_products() -> None:
    """What is computed before a product has a kernel without a schedule, whatever that of the product is."""
    a, b = drawn(5, 64), drawn(64, 8)
    compiled = Compiled(lambda a, b: a @ b.softmax(0), schedule={"stages": 3})
    assert close(compiled.call(a, b), a.double() @ b.double().softmax(0), 3.0)
    (explanation,) = compiled.explanations
    assert not explanation.left
    assert sum("stages = 3" in kernel for part in explanation.compiled for kernel in part.kernels) == 1


@pytest.fixture
def _recurrent() -> Iterator[None]:
    """Recurrent nets are parts of graphs, and taken apart in inference too."""
    with torch._dynamo.config.patch(allow_rnn=True), torch.backends.mkldnn.flags(enabled=False):
        yield


RECURRENT: dict[str, dict[str, Any]] = {
    "LSTM": {},
    "GRU": {},
    "RNN": {},
    "LSTM, both ways, projected": {"bidirectional": True, "proj_size": 3},
    "GRU, both ways": {"bidirectional": True},
}


@pytest.mark.usefixtures("_recurrent")
@pytest.mark.parametrize("name", RECURRENT)
def test_states_of_recurrent_nets_are_f32_between_steps(name: str) -> None:
    """Results and gradients are nearer to float64 than those of eager mode, which rounds states in each step."""
    kind = getattr(torch.nn, name.partition(",")[0])
    torch.manual_seed(2)
    away = [0.0, 0.0]
    for _ in range(4):
        model = kind(6, 8, 2, **RECURRENT[name]).bfloat16()
        x = drawn(8, 3, 6)
        models = [model, deepcopy(model), deepcopy(model).double()]

        def step(call: Any, model: Any, x: Any) -> list[Any]:
            result, final = call(x)
            final = final if isinstance(final, tuple) else (final,)
            assert {result.dtype, *(each.dtype for each in final)} == {x.dtype}
            torch.stack([each.square().sum() for each in (result, *final)]).sum().backward()
            return [result, *final, *(p.grad for p in model.parameters())]

        torch._dynamo.reset()
        with recurrent():
            ours = step(torch.compile(models[0], backend="aot_eager"), models[0], x)
        eager, exact = step(models[1], models[1], x), step(models[2], models[2], x.double())
        for at, results in enumerate((ours, eager)):
            pairs = zip(results, exact, strict=True)
            away[at] += sum(float(((r - e).square().mean() / e.square().mean()).detach()) for r, e in pairs)
    assert 0 < away[0] < 0.9**2 * away[1]


@pytest.mark.usefixtures("_recurrent")
@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_recurrent_nets_drop_what_is_between_layers(name: str) -> None:
    model = getattr(torch.nn, name)(6, 8, 2, dropout=1.0)
    x = drawn(3, 2, 6, dtype=torch.float32)
    results = [each[0] for each in (Compiled(model).call(x), model(x), deepcopy(model).eval()(x))]
    assert torch.allclose(results[0], results[1], rtol=0.0, atol=2.0**-20)
    assert not torch.allclose(results[0], results[2], rtol=0.0, atol=2.0**-10)


def test_parts_without_products_are_compiled_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """In processes side by side, as products are; then they are in place of the nodes, one after the other."""
    together, x = list[int](), drawn(5, 8)
    monkeypatch.setattr(backend, "compile_together", lambda parts, *_: together.append(len(parts)))

    def function(x: Any) -> tuple[Any, ...]:
        return x.softmax(-1) + 1, x.sum(0), x.t().exp()

    compiled = Compiled(function, rest="eager")
    for result, exact in zip(compiled.call(x), function(x.double()), strict=True):
        assert close(result, exact, 2.0)
    assert together == [3]
    assert not compiled.reasons


def test_what_is_turned_over_lies_as_it_lay() -> None:
    """A view of its elements in another order is a copy then, whose changes it does not show."""
    x = drawn(3, 5)

    def function(x: Any) -> Any:
        turned = x.t().flip(-1)
        turned.contiguous().view(-1).mul_(0.5)
        return turned

    assert torch.equal(Compiled(function).call(x), function(x))


def test_exported_variances_keep_their_dimensions() -> None:
    class Spread(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.relu().var(1, True, True) + x.std(1, False, True) + torch.std_mean(x, 0, True, True)[0]

    x = drawn(3, 16)
    call = Compiled(torch.export.export(Spread(), (x,), strict=False).module()).call
    assert close(call(x), Spread()(x.double()), 4.0)
    assert torch_save(torch.export.export(Spread(), (x,), strict=False), os.devnull).compiled
