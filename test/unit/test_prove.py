"""Proofs of compiled kernels: what holds is proven, what does not is refuted and named."""

import re
from dataclasses import replace

import numpy as np
import pytest
from attention_problems import problem
from attentions import Attention
from products import Types, fitted

from warploom.runtime import HostError, KernelLaunch, Proof, TensorMap, compile, load_ptx, prove
from warploom.runtime.proof import field
from warploom.runtime.proof.values import codes_of, planes_of

PRODUCT = """
func.func @matmul(%A: memref<{m}x{k}x{t}>, %B: memref<{k}x{n}x{t}>, %C: memref<{m}x{n}xf32>) {{
  %zero = arith.constant 0.000000e+00 : f32
  linalg.fill ins(%zero : f32) outs(%C : memref<{m}x{n}xf32>)
  linalg.matmul ins(%A, %B : memref<{m}x{k}x{t}>, memref<{k}x{n}x{t}>) outs(%C : memref<{m}x{n}xf32>)
  return
}}
"""


def product(m: int, n: int, k: int, t: str) -> str:
    return PRODUCT.format(m=m, n=n, k=k, t=t)


def test_the_fields_keep_their_identities():
    generator = np.random.default_rng(3)
    a, b = (field.drawn(generator, (9,)) for _ in range(2))
    product, total = field.multiply(field.exp(a), field.exp(b)), field.exp(field.add(a, b))
    assert np.array_equal(product.key, total.key)
    assert (field.multiply(a, field.reciprocal(a)).residues == 1).all()
    minus = field.erf(field.negate(a))
    assert np.array_equal(field.add(minus, field.erf(a)).residues, np.zeros((4, 9)))
    for p, q in zip(field.PRIMES, field.ORDERS, strict=True):
        assert p == 2 * q + 1
        assert p < 1 << 30
        assert all(pow(base, n - 1, n) == 1 for n in (p, q) for base in (2, 3, 5, 7, 11, 13))


def test_constants_are_taken_for_what_they_round():
    scaled = float(np.float32(1.4426950408889634 * 0.125))
    parts = zip(field.constant(0.125), field.constant(field.LOG2_E), field.MODULI, strict=True)
    expected = [a * b % int(m) for a, b, m in parts]
    assert list(field.constant(scaled)) == expected
    assert field.constant(float(np.float32(1 / 72))) == tuple(pow(72, -1, int(m)) for m in field.MODULI)
    root = field.embedded(np.array([float(np.float32(2.0**-2.5))]))
    assert np.array_equal(field.exp2(field.embedded(np.array([-2.5]))).key, root.key)
    assert np.array_equal(field.multiply(root, root).residues, field.embedded(np.array([2.0**-5])).residues)


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_codes_come_back_from_planes(width: int):
    index = np.array([0, 1, 77, 123456])
    codes = codes_of(planes_of(index, width))
    assert np.array_equal(codes.value, index)
    assert not codes.mixed.any()


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("t", "target"), [("f16", "sm_80"), ("bf16", "sm_80"), ("f8E4M3FN", "sm_89"), ("f16", "sm_90a")]
)
def test_products_are_proven(t: str, target: str):
    text = product(40, 56, 80, t)
    proof = prove(compile(text, target), text)
    assert proof, proof
    assert "2240 outputs are equal" in proof.text
    assert proof.compared == ()


def test_a_missing_product_is_named():
    text = product(40, 56, 72, "f16")
    kernel = compile(text, "sm_80")
    copies = [line for line in kernel.ptx.splitlines() if "cp.async.cg" in line]
    shorter = re.sub(r"16, %r\d+;$", "16, 14;", copies[5])
    assert shorter != copies[5]
    proof = prove(replace(kernel, ptx=kernel.ptx.replace(copies[5], shorter)), text)
    assert proof.outcome == "refuted"
    assert proof.differences[0].reason == "lacks A[8, 71] * B[71, 0]"


ADD = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry add(.param .u64 x, .param .u64 y, .param .u64 z) {{
  .reg .b32 %r<8>; .reg .f32 %f<8>; .reg .b64 %rd<8>; .reg .pred %p;
  ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; ld.param.u64 %rd3, [z];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd4, %r1, 4;
  add.s64 %rd1, %rd1, %rd4; add.s64 %rd2, %rd2, %rd4; add.s64 %rd3, %rd3, %rd4;
  ld.global.f32 %f1, [%rd1]; ld.global.f32 %f2, [%rd2];
  {body}
  st.global.f32 [%rd3], %f3;
  ret;
}}
"""


def launch(body: str) -> KernelLaunch:
    return KernelLaunch(load_ptx(ADD.format(body=body)), "add", 1, 32, ["x", "y", "z"])


ARRAYS = dict(zip("xyz", np.random.default_rng(1).standard_normal((3, 32)).astype(np.float32), strict=True))


def test_two_kernels_are_compared():
    one = launch("add.f32 %f3, %f1, %f2;")
    assert prove(one, launch("fma.rn.f32 %f3, %f2, 0f3F800000, %f1;"), ARRAYS)
    other = prove(one, launch("sub.f32 %f3, %f1, %f2;"), ARRAYS)
    assert other.outcome == "refuted"
    assert other.differences[0].argument == "z"
    assert other.differences[0].count == 32


def test_exponentials_of_sums_with_tanh_are_products():
    """As where the running maximum of an attention cancels whose scores are capped."""
    scaled = "tanh.approx.f32 %f3, %f1; mul.f32 %f3, %f3, 0f3FB8AA3B; mul.f32 %f2, {}, 0f3FB8AA3B; "
    one = launch(scaled.format("%f2") + "add.f32 %f3, %f3, %f2; ex2.approx.f32 %f3, %f3;")
    parts = "ex2.approx.f32 %f3, %f3; ex2.approx.f32 %f2, %f2; mul.f32 %f3, %f3, %f2;"
    assert prove(one, launch(scaled.format("%f2") + parts), ARRAYS)
    assert prove(one, launch(scaled.format("%f1") + parts), ARRAYS, explain=False).outcome == "refuted"


def test_branches_on_data_are_proven_in_part():
    """A maximum by a branch, and one way that no data goes; on the other way it is no sum."""
    body = "setp.lt.f32 %p, %f1, %f2; mov.f32 %f3, {}; @%p bra L; mov.f32 %f3, {}; L:"
    proof = prove(launch(body.format("%f2", "%f1")), launch("max.f32 %f3, %f1, %f2;"), ARRAYS)
    assert proof.outcome == "proven in part"
    assert not proof
    assert "branches and stores that data decides (line 12) went as in this run; nothing races" in proof.text
    single = "setp.gt.f32 %p, %f1, 0f4B000000; mov.f32 %f3, %f1; @!%p bra L; mov.f32 %f3, %f2; L:"
    proof = prove(launch(single), launch("mov.f32 %f3, %f1;"), ARRAYS)
    assert "went as in this run, and one way only at line 12" in proof.text
    assert prove(launch(body.format("%f1", "%f2")), launch("max.f32 %f3, %f1, %f2;"), ARRAYS).outcome == "refuted"


def test_branches_on_votes_about_data_are_proven_in_part():
    body = "setp.lt.f32 %p, %f1, %f2; vote.sync.any.pred %p, %p, -1; mov.f32 %f3, %f1; @!%p bra L; mov.f32 %f3, %f2; L:"
    proof = prove(launch(body), launch("mov.f32 %f3, %f2;"), ARRAYS)
    assert proof.outcome == "proven in part"
    assert "one way only at line 12" in proof.text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("add.s64 %rd3, %rd3, 4; mov.f32 %f3, %f1;", "the run fails on all inputs: f.ptx:13:3: error: st.global.f32: "
         "global access out of bounds"),
        ("setp.lt.u32 %p, %r1, %r5; selp.f32 %f3, %f1, %f1, %p;", "the run fails on all inputs: f.ptx:13:3: error: "
         "st.global.f32: %f3 comes from %r5, which is read at line 12 before it is written"),
        ("sub.s64 %rd5, %rd3, %rd4; st.global.f32 [%rd5], %f1; mov.f32 %f3, %f1;", "the run fails on all inputs: "
         "f.ptx:12:29: error: st.global.f32: race in global memory: writes another value"),
        ("setp.gt.f32 %p, %f1, 0f00000000; @%p add.s64 %rd3, %rd3, 128; mov.f32 %f3, %f1;",
         "the run fails: f.ptx:13:3: error: st.global.f32: global access out of bounds"),
        ("L: bra L;", "a loop without end: registers and memory are as they were when threads came here before"),
    ],
)  # fmt: skip
def test_runs_that_fail_are_refuted(body: str, text: str):
    proof = prove(replace(launch(body), module=load_ptx(ADD.format(body=body), "f.ptx")),
                  launch("mov.f32 %f3, %f1;"), ARRAYS, max_steps=2000)  # fmt: skip
    assert proof.outcome == "refuted"
    assert text in proof.text


SOFTMAX = """func.func @softmax(%X: memref<3x72xf32>, %Y: memref<3x72xf32>) {
  linalg.softmax dimension(1) ins(%X : memref<3x72xf32>) outs(%Y : memref<3x72xf32>)
  return
}"""


def test_what_is_equal_for_small_numbers_alone_is_refuted():
    """A softmax may take any number off, as long as its exponentials stay in the range of f32."""
    kernel = compile(SOFTMAX, "sm_80")
    last = [line for line in kernel.ptx.splitlines() if "max.NaN.f32" in line and "0fC2D00000" not in line][-1]
    mutant = replace(kernel, ptx=kernel.ptx.replace(last, last.replace("max", "min")))
    proof = prove(mutant, SOFTMAX, explain=False)
    assert proof.outcome == "refuted"
    assert proof.text.endswith("in float64, on 1024 times the numbers drawn")


def test_data_in_a_call_is_no_proof():
    function = """.func (.param .f32 b) twice(.param .f32 a) {
      .reg .f32 %f<3>; ld.param.f32 %f1, [a]; add.f32 %f2, %f1, %f1; st.param.f32 [b], %f2; ret;
    }
    .visible"""
    body = "{ .param .f32 a, b; st.param.f32 [a], %f1; call.uni (b), twice, (a); ld.param.f32 %f3, [b]; }"
    text = ADD.replace(".visible", function.replace("{", "{{").replace("}", "}}"), 1).format(body=body)
    called = KernelLaunch(load_ptx(text), "add", 1, 32, ["x", "y", "z"])
    proof = prove(called, launch("add.f32 %f3, %f1, %f1;"), ARRAYS)
    assert proof.outcome == "undecided"
    assert "data may go through this call" in proof.text


def test_an_address_of_data_is_no_proof():
    body = "cvt.rni.u32.f32 %r2, %f1; and.b32 %r2, %r2, 0; cvt.u64.u32 %rd5, %r2; "
    body += "add.s64 %rd3, %rd3, %rd5; mov.f32 %f3, %f1;"
    proof = prove(launch("mov.f32 %f3, %f1;"), launch(body), ARRAYS)
    assert proof
    dependent = body.replace("%r2, 0;", "%r2, 4;")
    proof = prove(launch("mov.f32 %f3, %f1;"), launch(dependent), ARRAYS)
    assert proof.outcome == "undecided"
    assert "data decides an address (%rd3)" in proof.text


HEAD = """
.version 8.6
.target sm_90a
.address_size 64
.visible .entry k({parameters}.param .u64 x, .param .u64 y, .param .u64 z) {{
  .reg .b32 %r<8>; .reg .f32 %f<8>; .reg .b64 %rd<8>; .reg .pred %p, %q;
  .shared .align 128 .b8 stage[128];
  ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; ld.param.u64 %rd3, [z];
  mov.u32 %r1, %tid.x; mov.u32 %r2, stage; shl.b32 %r3, %r1, 2; add.u32 %r3, %r3, %r2; setp.eq.u32 %p, %r1, 0;
  mul.wide.u32 %rd4, %r1, 4; add.s64 %rd1, %rd1, %rd4; add.s64 %rd2, %rd2, %rd4; add.s64 %rd6, %rd3, %rd4;
  ld.global.f32 %f1, [%rd1]; ld.global.f32 %f2, [%rd2];
  {body}
  ret;
}}
"""
TO = "mul.f32 %f3, %f1, %f2; st.shared.f32 [%r3], %f3; bar.sync 0; fence.proxy.async; @%p "
WAIT = " cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
MAP = ".param .align 64 .b8 map[128], "


def fused(body: str, maps: bool = False) -> Proof:
    """Whether 32 threads that do this leave z + x y in z."""
    text = """func.func @f(%x: memref<32xf32>, %y: memref<32xf32>, %z: memref<32xf32>) {
      linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
        iterator_types = ["parallel"]} ins(%x, %y : memref<32xf32>, memref<32xf32>) outs(%z : memref<32xf32>) {
      ^bb0(%a: f32, %b: f32, %c: f32):
        %m = arith.mulf %a, %b : f32
        %s = arith.addf %m, %c : f32
        linalg.yield %s : f32
      }
      return
    }"""
    module = load_ptx(HEAD.format(parameters=MAP if maps else "", body=body))
    box = [lambda arrays: TensorMap(arrays["z"].reshape(1, 32), (1, 32))] if maps else []
    return prove(KernelLaunch(module, "k", 1, 32, [*box, "x", "y", "z"]), text)


@pytest.mark.parametrize("add", ["atom.global.add.f32 %f4,", "red.global.add.f32"])
def test_sums_in_memory_are_followed(add: str):
    assert fused(f"mul.f32 %f3, %f1, %f2; {add} [%rd6], %f3;")
    assert fused(f"{add} [%rd6], %f1;").outcome == "refuted"


def test_sums_by_compare_and_swap_are_proven_in_part():
    """Four threads each add to a word, until none has written it in between."""
    body = "and.b32 %r2, %r1, 28; mul.wide.u32 %rd5, %r2, 4; sub.s64 %rd4, %rd3, %rd4; add.s64 %rd4, %rd4, %rd5; "
    body += "ld.relaxed.gpu.global.u32 %r3, [%rd4]; L: mov.b32 %r4, %r3; mov.b32 %f4, %r4; add.f32 %f4, %f4, {}; "
    body += (
        "mov.b32 %r5, %f4; atom.global.cas.b32 %r3, [%rd4], %r4, %r5; setp.ne.u32 %p, %r3, %r4; @%p bra L; bar.sync 0;"
    )
    body += "ld.global.f32 %f3, [%rd3];"
    added = body[: body.index("ld.relaxed")] + "red.global.add.f32 [%rd4], {}; bar.sync 0; ld.global.f32 %f3, [%rd3];"
    proof = prove(launch(body.format("%f1")), launch(added.format("%f1")), ARRAYS)
    assert proof.outcome == "proven in part", proof
    assert prove(launch(body.format("%f2")), launch(added.format("%f1")), ARRAYS).outcome == "refuted"


def test_bulk_reductions_are_followed():
    bulk = "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd3], [%r2], {};" + WAIT
    assert fused(TO + bulk.format(128))
    short = fused(TO + bulk.format(112))
    assert short.outcome == "refuted"
    assert short.differences[0].count == 4


def test_tensor_reductions_are_followed():
    tensor = "mov.b32 %r4, 0; mov.b64 %rd5, map; cvta.param.u64 %rd5, %rd5; "
    tensor += "@%p cp.reduce.async.bulk.tensor.2d.global.shared::cta.{}.tile.bulk_group [%rd5, {{%r4, %r4}}], [%r2];"
    tensor += WAIT
    assert fused(TO.removesuffix("@%p ") + tensor.format("add"), maps=True)
    twice = fused(TO.removesuffix("@%p ") + 2 * tensor.format("add"), maps=True)
    assert twice.outcome == "refuted"
    assert twice.differences[0].reason == "has x[0] * y[0] 2 times"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("red.global.xor.b32 [%rd6], 0;", "an atomic xor.b32 of data is not followed"),
        ("atom.global.or.b32 %r4, [%rd6], 0;", "an atomic or.b32 of data is not followed"),
        ("st.shared.f32 [%r3], 0f00000000; bar.sync 0; fence.proxy.async; @%p cp.reduce.async.bulk.global.shared::cta."
         "bulk_group.or.b32 [%rd3], [%r2], 128;" + WAIT, "a reduction or.b32 of data is not followed"),
    ],
)  # fmt: skip
def test_what_is_not_followed_is_refused(body: str, text: str):
    proof = fused("fma.rn.f32 %f3, %f1, %f2, 0f00000000; red.global.add.f32 [%rd6], %f3; bar.sync 0;" + body)
    assert proof.outcome == "undecided"
    assert text in proof.text


ATTENTIONS = (
    Attention((8, 16, 72, 16), batch=(1,), causal=-3),  # a scale of which nothing is known, and rows that a mask hides
    Attention((1, 48, 16, 16), lengths=True, pages=16),
)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("asked", ATTENTIONS, ids=str)
def test_attentions_are_proven(asked: Attention):
    kernel = asked.compile("sm_80")
    names = [p.name for p in kernel.function.parameters]
    proof = prove(kernel, asked.mlir, dict(zip(names, problem(asked).arguments, strict=True)))
    assert proof, proof


def test_comparisons_are_decided_alike_however_sums_are_rounded():
    asked = fitted(Types("f16", "f16", "f16", "f16"), "bias, relu", "A B", (40, 40, 80))
    assert prove(asked.compile("sm_89"), asked.mlir)


def test_nan_of_data_is_no_constant():
    """The logarithm of a negative number depends on it."""
    negative = "neg.f32 %f1, %f1; abs.f32 %f1, %f1; neg.f32 %f1, %f1; "
    one = launch(negative + "lg2.approx.f32 %f3, %f1;")
    other = launch(negative + "add.f32 %f1, %f1, %f1; lg2.approx.f32 %f3, %f1;")
    assert prove(one, one, ARRAYS)
    assert prove(one, other, ARRAYS, explain=False).outcome == "refuted"


ENDS = """memref.global constant @ends : memref<3xi32> = dense<[2, 2, {last}]>
func.func @f(%A: memref<5x6xf32>, %D: memref<5x6xf32>) {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %zero = arith.constant 0.1 : f32
  %ends = memref.get_global @ends : memref<3xi32>
  scf.for %e = %c0 to %c3 step %c1 iter_args(%start = %c0) -> (index) {{
    %last = memref.load %ends[%e] : memref<3xi32>
    %stop = arith.index_cast %last : i32 to index
    %rows = arith.subi %stop, %start : index
    %d = memref.subview %D[%start, 0] [%rows, 6] [1, 1]
      : memref<5x6xf32> to memref<?x6xf32, strided<[6, 1], offset: ?>>
    linalg.fill ins(%zero : f32) outs(%d : memref<?x6xf32, strided<[6, 1], offset: ?>>)
    scf.yield %stop : index
  }}
  return
}}"""


def test_rows_by_ends_in_memory_are_proven():
    copied = launch("mov.b32 %f3, 0f3DCCCCCD;")
    arrays = {"A": np.zeros((5, 6), np.float32), "D": np.ones((5, 6), np.float32)}
    kernel = replace(copied, block=30, args=["A", "A", "D"])
    assert prove(kernel, ENDS.format(last=5), arrays)
    assert prove(kernel, ENDS.format(last=4), arrays, explain=False).outcome == "refuted"
    with pytest.raises(HostError, match="passes the end of its memory"):
        prove(kernel, ENDS.format(last=6), arrays)


def test_functions_are_known_through_several_operations():
    """Each operation of a function is a nest of its own; the kernel computes tanh by exp, in another form."""
    nest = """linalg.generic {{indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
        iterator_types = ["parallel"]}} ins(%{0} : memref<32xf32>) outs(%{1} : memref<32xf32>) {{
      ^bb0(%a: f32, %b: f32):
        %half = arith.constant 0.5 : f32
        %m = {2} : f32
        linalg.yield %m : f32
      }}"""
    steps = [nest.format(*step) for step in (("x", "y", "arith.mulf %a, %half"), ("y", "y", "math.tanh %a"),
                                             ("y", "z", "arith.mulf %a, %half"))]  # fmt: skip
    text = f"func.func @f(%x: memref<32xf32>, %y: memref<32xf32>, %z: memref<32xf32>) {{ {' '.join(steps)} return }}"
    body = "mul.f32 %f1, %f1, 0f3F000000; mul.f32 %f4, %f1, 0fBFB8AA3B; add.f32 %f4, %f4, %f4; ex2.approx.f32 %f4, %f4;"
    body += (
        "and.b32 %r3, %r1, 0; mov.b32 %r4, %f4; add.u32 %r4, %r4, %r3; mov.b32 %f4, %r4; add.f32 %f5, %f4, 0f3F800000;"
    )
    body += "rcp.rn.f32 %f5, %f5; add.f32 %f5, %f5, %f5; sub.f32 %f5, %f5, 0f3F800000; mul.f32 %f3, %f5, 0f3F000000;"
    proof = prove(launch(body + "st.global.f32 [%rd2], %f5;"), text, ARRAYS)
    assert proof, proof
    assert "functions computed otherwise" in proof.text
    assert prove(launch(body + "st.global.f32 [%rd2], %f3;"), text, ARRAYS, explain=False).outcome == "refuted"


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [
        ("0x8110490", "0x8116490", "proven"),  # the signs of A and of B change
        ("0x8110490", "0x8112490", "refuted"),
        ("0x8110490", "0x8110010", "refuted"),  # numbers of bf16 taken for ones of f16
        (r"(tcgen05.mma.* %r8), 1;", r"\1, 0;", "refuted"),
        (r"\[(%r\d+)\+1048576\];", r"[\1];", "refuted"),
    ],
)
def test_products_in_tensor_memory_are_followed(before: str, after: str, outcome: str):
    text = product(40, 24, 72, "bf16")
    kernel = compile(text, "sm_100a", cta="128,64,64", mma="m128n64k16", ctas=1)
    changed, count = re.subn(before, after, kernel.ptx, count=1)
    assert count
    assert prove(replace(kernel, ptx=changed), text, explain=False).outcome == outcome


def test_tensor_memory_moves_what_it_holds():
    """Two columns are stored, and the first or the second is read."""
    body = """.shared .b32 place;
      tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [place], 32; bar.sync 0;
      ld.shared.u32 %r3, [place]; mov.b32 %r4, %f1; mov.b32 %r5, %f2;
      tcgen05.st.sync.aligned.32x32b.x2.b32 [%r3], {{%r4, %r5}}; tcgen05.wait::st.sync.aligned;
      tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%r6}}, [%r3+{column}]; tcgen05.wait::ld.sync.aligned;
      mov.b32 %f3, %r6; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r3, 32;"""
    text = ADD.replace("sm_80", "sm_100a").replace("8.0", "8.6")
    first, second = (
        replace(launch(""), module=load_ptx(text.format(body=body.format(column=column)))) for column in (0, 1)
    )
    assert prove(first, launch("mov.f32 %f3, %f1;"), ARRAYS)
    assert prove(second, launch("mov.f32 %f3, %f2;"), ARRAYS)
    assert prove(second, launch("mov.f32 %f3, %f1;"), ARRAYS, explain=False).outcome == "refuted"


def test_numbers_of_another_type_are_refuted():
    text = product(16, 24, 40, "bf16")
    kernel = compile(text, "sm_80")
    mutant = replace(kernel, ptx=kernel.ptx.replace(".f32.bf16.bf16.f32", ".f32.f16.f16.f32"))
    assert mutant.ptx != kernel.ptx
    assert prove(mutant, text, explain=False).outcome == "refuted"
    integers = "mov.b32 %r2, %f1; cvt.rn.f32.s32 %f3, %r2;"
    assert prove(launch(integers), launch("mov.f32 %f3, %f1;"), ARRAYS).outcome != "proven"


BYTES = """func.func @f(%x: memref<128xf8E5M2>, %y: memref<32xf32>, %z: memref<32xf32>) {
  linalg.generic {indexing_maps = [affine_map<(i) -> (i * 4)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
    iterator_types = ["parallel"]} ins(%x, %y : memref<128xf8E5M2>, memref<32xf32>) outs(%z : memref<32xf32>) {
  ^bb0(%a: f8E5M2, %b: f32, %old: f32):
    %w = arith.extf %a : f8E5M2 to f32
    %m = arith.mulf %w, %b : f32
    linalg.yield %m : f32
  }
  return
}"""


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("steps", "proven"),
    [
        ("shl.b32 %r2, %r2, 8;", True),
        ("shl.b32 %r2, %r2, 7;", False),
        ("mul.lo.u32 %r2, %r2, 255; add.u32 %r2, %r2, %r3;", True),
        ("mul.lo.u32 %r2, %r2, 255; add.u32 %r2, %r2, %r1;", False),
    ],
)
def test_conversions_of_bytes_by_bits_are_tried_for_all_of_them(steps: str, proven: bool):
    body = f"""{{ .reg .b16 %h; ld.global.u8 %r2, [%rd1]; mov.b32 %r3, %r2; {steps} cvt.u16.u32 %h, %r2;
      cvt.f32.f16 %f3, %h; mul.f32 %f3, %f3, %f2; }}"""
    assert bool(prove(launch(body), BYTES, explain=False)) == proven


def test_constants_that_the_function_names_come_first():
    """1 / sqrt(576), as a front end prints it, is within a rounding of 1 / 24: so are its inverse and its products."""
    scale = float(np.float32(4.166667e-02))
    raised, inverse, base = (float(np.float32(x)) for x in (scale * np.log2(np.e), 1 / scale, np.log2(np.e)))
    own, unit = field.constant(scale), field.constant(base)
    moduli = [int(m) for m in field.MODULI]
    assert field.constant(raised, (scale,)) == tuple(a * b % m for a, b, m in zip(own, unit, moduli, strict=True))
    assert all(a * b % m == 1 for a, b, m in zip(own, field.constant(inverse, (scale,)), moduli, strict=True))
    assert field.constant(inverse) != field.constant(inverse, (scale,))
