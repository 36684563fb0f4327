"""Arguments: what is borrowed, what is refused, and with which message."""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from warploom.runtime import TensorMap, compile
from warploom.runtime.arguments import arrays
from warploom.runtime.arguments.arrays import DTYPES, PACKED, Argument, borrow, element_of
from warploom.runtime.base.errors import ArgumentError
from warploom.runtime.base.launch import ELEMENT_NAMES, Parameter
from warploom.runtime.kernel.binding import check, check_overlap

B = Parameter("B", "f16", (192, 320))


class OnGpu:
    """An array that claims to lie in GPU memory."""

    def __init__(self, shape: tuple[int, ...], typestr: str, **extra: Any) -> None:
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": typestr,
            "data": (4096, False),
            "version": 3,
        } | extra


class Lender:
    """A host tensor that only speaks DLPack."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def __dlpack__(self, *, stream: int | None = None) -> object:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (arrays.CPU, 0)


def refused(argument: Argument, parameter: Parameter, *, written: bool = False) -> str:
    with pytest.raises(ArgumentError) as error:
        check(argument, parameter, 1, written=written)
    return str(error.value)


@pytest.mark.parametrize("element", DTYPES)
def test_element_types_round_trip(element: str) -> None:
    assert element_of(DTYPES[element]) == element


def test_wrong_shape_and_type_are_one_message() -> None:
    message = refused(borrow(np.zeros((192, 310), np.float32)), B)
    assert message == "argument 1 (%B): expected 192x320xf16, got 192x310xf32"


def test_a_transpose_is_refused_with_the_fix() -> None:
    message = refused(borrow(np.zeros((320, 192), np.float16).T), B)
    assert "row-major order without gaps, got strides of (2, 384) bytes; pass a contiguous copy" in message


def test_a_read_only_array_may_be_read_but_not_written() -> None:
    array = np.zeros((192, 320), np.float16)
    array.flags.writeable = False
    check(borrow(array), B, 1, written=False)
    assert "the array is read-only" in refused(borrow(array), B, written=True)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.dtype("V2")])
def test_bf16_takes_its_own_words_and_raw_ones(dtype: Any) -> None:
    check(borrow(np.zeros((2, 3), dtype)), Parameter("A", "bf16", (2, 3)), 0, written=True)


def test_signless_integers_take_either_sign() -> None:
    check(borrow(np.zeros(4, np.uint8)), Parameter("A", "i8", (4,)), 0, written=True)


def test_dlpack_writes_reach_the_lender() -> None:
    array = np.zeros((3, 4), np.float32)
    argument = borrow(Lender(array))
    check(argument, Parameter("A", "f32", (3, 4)), 0, written=True)
    argument.array()[:] = 255
    assert np.isnan(array).all()


def test_dlpack_strides_are_seen() -> None:
    argument = borrow(Lender(np.zeros((3, 4), np.float32)[:, 1:]))
    assert (argument.shape, argument.strides, argument.contiguous) == ((3, 3), (16, 4), False)


def test_truth_values_of_dlpack_are_those_of_numpy() -> None:
    array = np.array([True, False])
    assert borrow(Lender(array)).element == borrow(array).element == "bool"
    check(borrow(Lender(array)), Parameter("A", "i8", (2,)), 0, written=False)


def test_cuda_arrays_tell_their_stream() -> None:
    argument = borrow(OnGpu((192, 320), "<f2", stream=7))
    assert (argument.on_device, argument.stream, argument.address) == (True, 7, 4096)
    check(argument, B, 1, written=True)


def test_cuda_bf16_is_raw_words() -> None:
    check(borrow(OnGpu((2, 2), "<V2")), Parameter("A", "bf16", (2, 2)), 0, written=True)


class TypedOnGpu(OnGpu):
    """What torch shows of a type that the CUDA array interface has no letter for: raw words, and DLPack beside it."""

    code, bits = 4, 16

    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None) -> object:
        capsule = np.zeros(self.__cuda_array_interface__["shape"], np.uint8).__dlpack__()
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        type_at = get(capsule, b"dltensor") + 20  # behind data, device and rank
        ctypes.memmove(type_at, bytes([self.code, self.bits]), 2)
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (arrays.DEVICE_KINDS[0], 0)


class EightBits(TypedOnGpu):
    code, bits = 12, 8


class Unexported(OnGpu):
    """As torch has 8-bit floats that it does not export."""

    dtype = "torch.float8_e4m3fn"

    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None) -> object:
        raise BufferError("float8 types are not supported by dlpack")

    def __dlpack_device__(self) -> tuple[int, int]:
        return (arrays.DEVICE_KINDS[0], 0)


@pytest.mark.parametrize(
    ("tensor", "element", "in_map"),
    [
        (TypedOnGpu((64, 64), "<V2"), "bf16", "bf16"),
        (EightBits((64, 64), "|V1"), "f8E5M2", "u8"),
        (Unexported((64, 64), "|V1"), "f8E4M3FN", "u8"),
    ],
    ids=["bf16", "fp8", "fp8 by name"],
)
def test_types_that_cuda_arrays_cannot_name(tensor: OnGpu, element: str, in_map: str) -> None:
    array = borrow(tensor)
    assert (array.element, array.address, array.on_device) == (element, 4096, True)
    check(array, Parameter("A", element, (64, 64)), 0, written=True)
    assert TensorMap(tensor, (8, 16)).element().name == in_map
    assert "expected 64x64xf16" in refused(array, Parameter("B", "f16", (64, 64)))


def test_gpu_memory_is_no_host_array() -> None:
    with pytest.raises(ArgumentError, match="lies in GPU memory; copy it to the host"):
        borrow(OnGpu((2,), "<f4")).array()


def test_other_objects_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"expected a numpy array or an object with .* got list"):
        borrow([1, 2])


@pytest.mark.parametrize(
    ("array", "message"),
    [(np.zeros(3, ">f4"), "expected elements in the byte order of this machine, got >f4; pass array.astype"),
     (np.zeros(3, ">c8"), "byte order of this machine, got >c8"),
     (np.ma.array(np.zeros(3), mask=[True, False, False]), r"without a mask, .* pass array.filled\(\)"),
     (np.array([None]), "expected an array of numbers, got one of Python objects")],
)  # fmt: skip
def test_arrays_whose_bytes_are_not_their_values(array: np.ndarray[Any, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        borrow(array)


def test_arrays_of_subclasses_are_read_as_plain_ones(tmp_path: Path) -> None:
    on_disk = np.memmap(tmp_path / "words", np.float32, "w+", shape=(2, 3))
    on_disk[:] = np.arange(6).reshape(2, 3)
    for array in (on_disk, on_disk.view(np.matrix)):
        assert borrow(array).shape == (2, 3)
        assert borrow(array).array().view(np.float32).tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("strides", "copied"),
    [(None, True), ((None, 1), True), ((None, None), True), ((1, None), False), ((640, 1), False)],
)
def test_a_copy_is_proposed_where_it_helps(strides: tuple[int | None, ...] | None, copied: bool) -> None:
    message = refused(borrow(np.zeros((192, 640), np.float16)[::-1, ::2]), Parameter("B", "f16", (192, 320), strides))
    assert message.startswith("argument 1 (%B): expected 192x320xf16")
    assert "got strides of (-1280, 4) bytes" in message
    assert message.endswith("; pass a contiguous copy (numpy.ascontiguousarray, torch's .contiguous())") == copied


@pytest.mark.parametrize("interface", [{"data": (0, False)}, {"data": 3, "typestr": "<f4", "shape": (1,)}, 3])
def test_interfaces_that_lack_what_they_must_have(interface: object) -> None:
    with pytest.raises(ArgumentError, match="its __cuda_array_interface__ lacks a valid data, typestr or shape"):
        borrow(SimpleNamespace(__cuda_array_interface__=interface))


def test_a_written_argument_shares_memory_with_none() -> None:
    base = np.zeros(8, np.float32)
    parameters = (Parameter("A", "f32", (4,)), Parameter("C", "f32", (4,)))
    apart = {0: borrow(base[:4]), 1: borrow(base[4:])}
    check_overlap(apart, parameters, frozenset({1}))
    with pytest.raises(ArgumentError, match=r"argument 1 \(%C\) is written and shares memory with argument 0 \(%A\)"):
        check_overlap({0: borrow(base[:4]), 1: borrow(base[3:7])}, parameters, frozenset({1}))


@pytest.mark.parametrize(
    ("strides", "shape", "refused"),
    [((8, 4), (4, 8), True), ((0, 4), (4, 8), True), ((32, 4), (4, 8), False), ((36, 4), (4, 8), False),
     ((0, 4), (1, 8), False), ((4, 16), (4, 8), False), ((0, 4), (4, 0), False)],
)  # fmt: skip
def test_a_written_argument_has_elements_that_are_apart(
    strides: tuple[int, int], shape: tuple[int, int], refused: bool
) -> None:
    array = np.lib.stride_tricks.as_strided(np.zeros(100, np.float32), shape, strides)
    arguments, parameters = {0: borrow(array)}, (Parameter("C", "f32", shape, (None, None)),)
    check_overlap(arguments, parameters, frozenset())
    if not refused:
        check_overlap(arguments, parameters, frozenset({0}))
        return
    with pytest.raises(ArgumentError, match=r"argument 0 \(%C\) is written, and elements of it share memory"):
        check_overlap(arguments, parameters, frozenset({0}))


class Fixed(Lender):
    """A host tensor whose capsules say that it must not be written."""

    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None) -> object:
        return self.array.__dlpack__(max_version=max_version)


class Unchanging(Lender):
    """A tensor of a package whose arrays never change, in a capsule that cannot say so."""

    __module__ = "jaxlib._jax"


def fixed(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("lender", [Fixed(fixed(np.arange(4.0))), Unchanging(np.arange(4.0)), fixed(np.arange(4.0))])
def test_arrays_that_must_not_be_written(lender: object) -> None:
    argument = borrow(lender)
    assert not argument.writable
    assert argument.array().view(np.float64).tolist() == [0, 1, 2, 3]
    assert not argument.array().flags.writeable
    message = refused(argument, Parameter("C", "f64", (4,)), written=True)
    assert message.endswith("the kernel writes it, but the array is read-only; pass a writable copy")
    check(argument, Parameter("A", "f64", (4,)), 0, written=False)


def test_capsules_with_versions_may_be_writable() -> None:
    array = np.arange(4.0)
    assert borrow(Fixed(array)).writable
    assert borrow(Lender(array)).writable


def test_arrays_in_gpu_memory_that_must_not_be_written() -> None:
    class UnchangingOnGpu(OnGpu):
        __module__ = "jaxlib._jax"

    assert not borrow(OnGpu((4,), "<f4", data=(4096, True))).writable
    assert not borrow(UnchangingOnGpu((4,), "<f4")).writable


class Failing(Lender):
    def __dlpack__(self, *, stream: int | None = None) -> object:
        raise BufferError("strides of a sparse tensor")


class NoCapsule(Lender):
    def __dlpack__(self, *, stream: int | None = None) -> object:
        return "capsule"


class Elsewhere(Lender):
    def __dlpack_device__(self) -> tuple[int, int]:
        return (10, 0)


@pytest.mark.parametrize(
    ("lender", "message"),
    [
        (Failing(np.zeros(1)), "DLPack export failed: strides of a sparse tensor"),
        (NoCapsule(np.zeros(1)), "not a 'dltensor' capsule"),
        (Lender(np.zeros(1, np.complex64)), "its DLPack element type .code 5, 64 bits x 1. is unsupported"),
        (Elsewhere(np.zeros(1)), "on a device of DLPack type 10, neither host nor CUDA"),
    ],
)
def test_bad_lenders(lender: Lender, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        borrow(lender)


def test_negated_views_of_torch_are_refused() -> None:
    torch = pytest.importorskip("torch")
    values = torch.arange(4.0)
    for view in (values._neg_view(), torch.complex(values, values).conj().imag):
        with pytest.raises(ArgumentError, match=r"the negatives of what its memory holds; pass its resolve_neg\(\)"):
            borrow(view)
        resolved = borrow(view.resolve_neg())
        np.testing.assert_array_equal(resolved.array().view(np.float32), view.tolist())


def test_elements_take_the_bits_that_numpy_and_packing_say() -> None:
    assert {name: 8 * dtype.itemsize // PACKED.get(name, 1) for name, dtype in DTYPES.items()} == {
        name: names.bits for name, names in ELEMENT_NAMES.items()
    }


def test_one_bit_without_dimensions() -> None:
    kernel = compile(
        """#e = affine_map<(m) -> (m)>
        func.func @f(%p: tensor<i1>, %x: tensor<9xi32>) -> tensor<9xi32> {
          %0 = linalg.generic {indexing_maps = [affine_map<(m) -> ()>, #e, #e], iterator_types = ["parallel"]}
              ins(%p, %x : tensor<i1>, tensor<9xi32>) outs(%x : tensor<9xi32>) {
          ^bb0(%a: i1, %b: i32, %c: i32):
            %1 = arith.constant 7 : i32
            %2 = arith.select %a, %b, %1 : i32
            linalg.yield %2 : i32
          } -> tensor<9xi32>
          return %0 : tensor<9xi32>
        }""",
        cache=False,
    )
    x = np.arange(9, dtype=np.int32)
    np.testing.assert_array_equal(kernel(np.array(True), x, device="interp", checks="all"), x)
    np.testing.assert_array_equal(kernel(np.array(False), x, device="interp", checks="all"), np.full(9, 7))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mode", ["fake", "freed", "vmap"])
def test_tensors_of_torch_without_memory_are_refused(mode: str) -> None:
    torch = pytest.importorskip("torch")
    from torch._subclasses.fake_tensor import FakeTensorMode

    def refuse(tensor: Any) -> Any:
        with pytest.raises(ArgumentError, match="it has no memory" if mode != "vmap" else "its DLPack export failed"):
            borrow(tensor)
        return tensor

    if mode == "vmap":
        torch.vmap(refuse)(torch.ones(2, 4))
        return
    with FakeTensorMode() if mode == "fake" else torch.no_grad():
        tensor = torch.ones(4)
    if mode == "freed":
        tensor.untyped_storage().resize_(0)
    refuse(tensor)


def filled(element: str) -> Any:
    """A kernel that fills a matrix with a number that it is passed."""
    return compile(
        f"""func.func @f(%s: {element}, %C: memref<3x5x{element}>) {{
          linalg.fill ins(%s : {element}) outs(%C : memref<3x5x{element}>)
          return
        }}""",
        cache=False,
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("element", "value", "message"),
    [
        ("i8", 256, "expected an integer of 8 bits, got 256"),
        ("i32", 2**40, f"expected an integer of 32 bits, got {2**40}"),
        ("i64", 2**64, f"expected an integer of 64 bits, got {2**64}"),
        ("i64", np.array([1, 2]), "expected an integer of 64 bits, got 2xi64"),
        ("i32", 3.7, "expected an integer of 32 bits, got float 3.7"),
        ("f32", None, "expected a number, got None"),
        ("f32", 1j, "expected a number, got 1j"),
        ("f32", "3", "expected a number, got '3'"),
        ("f16", 10**400, "expected a number, got int 1000"),
    ],
)
def test_numbers_that_do_not_fit(element: str, value: object, message: str) -> None:
    with pytest.raises(ArgumentError) as error:
        filled(element)(value, device="interp")
    assert str(error.value).startswith(f"argument 0 (%s): {message}")


@pytest.mark.parametrize(
    ("element", "value", "expected"),
    [("i8", 200, -56), ("i32", np.array(-7), -7), ("f32", np.float64(0.1), np.float32(0.1)), ("f16", True, 1)],
)
def test_numbers_that_fit(element: str, value: object, expected: object) -> None:
    result = filled(element)(value, device="interp")
    np.testing.assert_array_equal(result, np.full((3, 5), expected, result.dtype))


def test_a_subclass_of_tensors_makes_tensors() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.tensor(2.5).as_subclass(type("Marked", (torch.Tensor,), {}))
    text = """func.func @f(%x: memref<f32>, %C: memref<3x5xf32>) {
      linalg.broadcast ins(%x : memref<f32>) outs(%C : memref<3x5xf32>) dimensions = [0, 1]
      return
    }"""
    result = compile(text, cache=False)(tensor, device="interp")
    assert isinstance(result, torch.Tensor)
    assert torch.equal(result, torch.full((3, 5), 2.5))
