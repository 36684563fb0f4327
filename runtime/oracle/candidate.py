"""What is judged: something that can be called on arrays by name, made of PTX, CUDA, a Python file or a function."""

from __future__ import annotations

import ast
import inspect
import operator
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.errors import ArgumentError
from .answers import flat, tensors

if TYPE_CHECKING:
    from types import ModuleType

    from ..numerics.floats import Array
    from ..proof.prove import KernelLaunch


@dataclass
class CandidateCall:
    """A call of a candidate: the reference's arguments by name, of which those in `written` are updated in place, and
    output arrays for candidates that return nothing."""

    arguments: dict[str, Any]
    outputs: dict[str, Array]
    written: Sequence[str]
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True)
class Launching:
    """How a kernel is launched: numbers are expressions in the names of sizes, such as `cdiv(M, 64)`; `args` name
    arguments and outputs, or are `TYPE:EXPRESSION` for a number. Without `args` they are all of them in order."""

    grid: str
    block: str
    args: Sequence[str] = ()
    kernel: str | None = None
    shared: str = ""
    cluster: str | None = None


@dataclass(frozen=True)
class Made:
    """The data from which a reference's model is created: its arguments, the seed, and its parameters."""

    initial: Sequence[Any] = ()
    seed: int = 0
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Candidate(ABC):
    """Something to judge. `call` gives the outputs that it returns, or None where it writes in place."""

    file = ""
    ptx = ""
    """The text of a kernel, if it is one."""

    @abstractmethod
    def call(self, call: CandidateCall, prepared: Sequence[Any]) -> Any:
        """Runs it on arguments as `prepare` made them."""

    def prepare(self, call: CandidateCall) -> dict[str, Any]:
        """Copies of the arguments, by name, which the candidate may change."""
        return tensors({**call.arguments, **call.outputs}, "numpy")

    def launch(self, call: CandidateCall) -> KernelLaunch | None:
        """The one launch that it is; None if it is something else."""
        return None


class PythonCandidate(Candidate):
    """A function, or an object that can be called."""

    def __init__(self, function: Callable[..., Any], framework: str, file: str = "") -> None:
        self.function, self.framework, self.file = function, framework, file
        self.count, self.required = _positional(function)

    def prepare(self, call: CandidateCall) -> dict[str, Any]:
        """The arguments of a call, less those written in place, or plus outputs, if the function takes that many."""
        values = call.arguments
        if call.written and self.count == len(values) - len(call.written):
            values = {name: value for name, value in values.items() if name not in call.written}
        elif call.outputs and self.required == len(values) + len(call.outputs):
            values = values | call.outputs
        return tensors(values, self.framework)

    def call(self, call: CandidateCall, prepared: Sequence[Any]) -> Any:
        result = self.function(*prepared)
        return flat(result) if result is not None else prepared[len(call.arguments) :] or None


def _positional(function: Callable[..., Any]) -> tuple[int, int] | tuple[None, None]:
    """The numbers of positional parameters of a function, all and required ones; None for both if it has `*args`."""
    try:
        parameters = inspect.signature(getattr(function, "forward", function)).parameters.values()
    except (TypeError, ValueError):
        return None, None
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return None, None
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(positional), sum(p.default is p.empty for p in positional)


class PtxCandidate(Candidate):
    """A kernel of PTX text, run by the interpreter."""

    def __init__(self, text: str, file: str, launching: Launching) -> None:
        from ..kernel.module import PtxModule, kernel_name

        self.ptx, self.file, self.launching = text, file, launching
        self.module = PtxModule(text, file)
        self.kernel = kernel_name(self.module, launching.kernel, "the name of a kernel")

    def launch(self, call: CandidateCall) -> KernelLaunch:
        from ..proof.prove import KernelLaunch

        how, sizes = self.launching, call.sizes
        names = [*call.arguments, *call.outputs]
        args = [a if a in names else number(a, sizes) for a in how.args or names]
        grid, block = (dimensions(text, sizes) for text in (how.grid, how.block))
        cluster = None if how.cluster is None else dimensions(how.cluster, sizes)
        shared = evaluate(how.shared, sizes) if how.shared else None
        return KernelLaunch(self.module, self.kernel, grid, block, args, shared, cluster)

    def call(self, call: CandidateCall, prepared: Sequence[Any]) -> Any:
        names = [*call.arguments, *call.outputs]
        self.launch(call).run(names)(prepared, None, ())
        return prepared[len(call.arguments) :] or None


_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: operator.mod,
}


def evaluate(text: str, sizes: Mapping[str, int]) -> int:
    """An expression in the names of sizes, of `+ - * // %` and `cdiv(a, b)`. Raises ArgumentError for anything else."""

    def value(node: ast.AST) -> int:
        match node:
            case ast.Constant(value=int() as number):
                return number
            case ast.Name(id=name) if name in sizes:
                return sizes[name]
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](value(left), value(right))
            case ast.Call(func=ast.Name(id="cdiv"), args=[left, right]):
                return -(-value(left) // value(right))
            case _:
                names = ", ".join(sizes) or "none"
                raise ArgumentError(
                    f"cannot read '{text}': expected + - * // % and cdiv of numbers and sizes ({names})"
                )

    try:
        return value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ZeroDivisionError) as error:
        raise ArgumentError(f"cannot read '{text}': {error}") from None


def dimensions(text: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Up to three expressions with commas between them."""
    tree = ast.parse(f"({text},)", mode="eval").body
    return tuple(evaluate(ast.unparse(each), sizes) for each in getattr(tree, "elts", [tree]))


def number(text: str, sizes: Mapping[str, int]) -> Any:
    """Parses a number as `i32:M` or `f32:0.5`, or any other argument that `--arg` takes."""
    from ..reference.inputs import kernel_argument

    kind, colon, expression = text.partition(":")
    if colon and kind[:1] in "iu" and not expression.lstrip("-").isdigit():
        text = f"{kind}:{evaluate(expression, sizes)}"
    return kernel_argument(text, 0, 0)


def of_file(
    source: str, launching: Launching | None, framework: str, settings: Mapping[str, int], how: Made
) -> Candidate:
    """The candidate of `FILE.ptx`, `FILE.cu`, `FILE.py` or `FILE.py:NAME`. Raises ArgumentError for a file of another
    kind, or a missing compiler."""
    path, name = split_name(source)
    if path.suffix in (".ptx", ".cu"):
        if launching is None:
            raise ArgumentError(f"{path}: a kernel is launched with a grid and a block (--grid, --block)")
        text = path.read_text() if path.suffix == ".ptx" else compile_cuda(path)
        return PtxCandidate(text, str(path), launching)
    if path.suffix != ".py":
        raise ArgumentError(f"{path}: expected a candidate of a file ending in .ptx, .cu or .py")
    module = load_module(path, settings)
    made = chosen(module, name, ("ModelNew", "Model", "candidate", "kernel"))
    if isinstance(made, type):
        made = model(made, how)
    return PythonCandidate(made, framework or framework_of(str(path)), str(path))


def model(kind: Any, how: Made) -> Any:
    """A model of torch, with the parameters of the reference where it has those."""
    torch: Any = import_module("torch")
    torch.manual_seed(how.seed)
    made = kind(*how.initial)
    own: dict[str, Any] = made.state_dict() if hasattr(made, "state_dict") else {}
    if own and {n: tuple(v.shape) for n, v in own.items()} == {n: v.shape for n, v in how.parameters.items()}:
        made.load_state_dict(tensors(how.parameters, "torch"))
    return made


def split_name(source: str) -> tuple[Path, str]:
    """The file and the name of `FILE.py:NAME`. Raises ArgumentError if there is no such file."""
    path, _, name = source.partition(".py:")
    file = Path(f"{path}.py") if name else Path(source)
    if not file.is_file():
        raise ArgumentError(f"{file}: there is no such file")
    return file, name


def framework_of(source: str | Callable[..., Any]) -> str:
    """What a Python file or a function computes with."""
    if callable(source):
        return "torch" if "torch" in getattr(source, "__globals__", {}) else "numpy"
    path = split_name(source)[0]
    text = path.read_text() if path.suffix == ".py" else ""
    return "torch" if "import torch" in text or "from torch" in text else "numpy"


def judged_name(file: str) -> str:
    """What the module of a Python file is called."""
    return f"judged_{Path(file).stem}"


def load_module(path: Path, settings: Mapping[str, int]) -> ModuleType:
    """Loads a Python file as a module, with some constants replaced. Triton kernels in it run on the interpreter."""
    if "triton" in path.read_text():
        interpreted(path)
    name = judged_name(str(path))
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ArgumentError(f"{path}: cannot be loaded")
    module = module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent.resolve()))
    spec.loader.exec_module(module)
    for key, value in settings.items():
        if hasattr(module, key):
            setattr(module, key, value)
    return module


def chosen(module: ModuleType, name: str, usual: Sequence[str]) -> Any:
    """The object of a file that is judged: `name`, else the first of `usual`, else its only function. Raises
    ArgumentError with the functions that the file has."""
    mine = {n: v for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__ and callable(v)}
    functions = [n for n, v in mine.items() if inspect.isfunction(v) and not n.startswith(("_", "get_"))]
    for each in [name] if name else [*usual, *(functions if len(functions) == 1 else ())]:
        if each in mine:
            return mine[each]
    raise ArgumentError(
        f"{module.__file__}: expected {name or ' or '.join(usual)}, there is {', '.join(mine) or 'nothing'}"
    )


def compile_cuda(path: Path) -> str:
    """Compiles a CUDA file to PTX by nvcc. Raises ArgumentError if nvcc is missing or rejects the file."""
    from ..cuda.ptxas import find

    if (nvcc := find("nvcc")) is None:
        raise ArgumentError(f"{path}: a CUDA file needs nvcc, of which there is none on PATH or in CUDA_HOME")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.ptx"
        done = subprocess.run(
            [nvcc, "-ptx", "-arch=sm_90", "-lineinfo", "-o", str(out), str(path)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ArgumentError(f"{path}: nvcc: {(done.stderr or done.stdout).strip()}")
        return out.read_text()


# Programs of Triton without a GPU: each launch is compiled to PTX, and runs on the interpreter under its checks.

TARGET, VERSION = 90, 90
"""What is compiled for: sm_90, with the version of PTX that drivers of CUDA 13.0 take."""
OPTIONS = ("num_warps", "num_stages", "num_ctas")
POINTERS = {
    "float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64", "int8": "i8", "int16": "i16",
    "int32": "i32", "int64": "i64", "uint8": "u8", "bool": "i1", "float8_e4m3fn": "fp8e4nv", "float8_e5m2": "fp8e5",
}  # fmt: skip
"""What Triton calls elements of torch and numpy."""


def interpreted(path: Path) -> None:
    """Lets kernels of Triton run on the interpreter, in this process from here on; of configurations the first is
    taken. Raises ArgumentError if there is no Triton."""
    if find_spec("triton") is None:
        raise ArgumentError(f"{path}: Triton is not installed; pip install triton")
    jit, autotuner = (import_module(f"triton.runtime.{name}") for name in ("jit", "autotuner"))
    jit.JITFunction.run = _run
    autotuner.Autotuner.run = _first


def _first(self: Any, *args: Any, **options: Any) -> Any:
    return self.fn.run(*args, **{**self.configs[0].all_kwargs(), **options})


def _run(self: Any, *args: Any, grid: Any, warmup: bool = False, **options: Any) -> None:
    from ..interp.watch.checks import CHECKS
    from ..kernel.module import PtxModule

    wanted = {key: options.pop(key) for key in OPTIONS if key in options}
    names = [p.name for p in self.params]
    bound = {p.name: p.default for p in self.params if p.has_default} | dict(zip(names, args, strict=False))
    bound |= {key: value for key, value in options.items() if key in names}
    constant = {p.name: bound[p.name] for p in self.params if p.is_constexpr or bound[p.name] is None}
    text, shared = _compiled(self, {n: bound[n] for n in names}, constant, wanted)
    module = PtxModule(text, f"{self.fn.__name__}.ptx")
    kernel = next(iter(module.kernels))
    passed = [bound[name] for name in names if name not in constant]
    passed += [0] * (len(module.kernels[kernel].parameters) - len(passed))
    sizes: Any = grid(bound) if callable(grid) else grid
    block = 32 * int(wanted.get("num_warps", 4))
    module.launch(kernel, tuple(sizes), block, passed, shared, device="interp", checks=tuple(CHECKS))


def _compiled(
    function: Any, bound: Mapping[str, Any], constant: Mapping[str, Any], options: Mapping[str, Any]
) -> tuple[str, int]:
    """The PTX of a kernel, and its shared memory in bytes."""
    compile_triton: Callable[..., Any] = import_module("triton").compile
    compiler, backends = import_module("triton.compiler"), import_module("triton.backends.compiler")
    signature = {n: "constexpr" if n in constant else _kind(v) for n, v in bound.items()}
    hints = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(signature.values()) if kind[0] == "*"}
    source = compiler.ASTSource(function, signature=signature, constexprs=dict(constant), attrs=hints)
    made = compile_triton(
        source, target=backends.GPUTarget("cuda", TARGET, 32), options={**options, "ptx_version": VERSION}
    )
    return made.asm["ptx"], int(made.metadata.shared)


def _kind(value: Any) -> str:
    if hasattr(value, "dtype"):
        return f"*{POINTERS[str(value.dtype).removeprefix('torch.')]}"
    if isinstance(value, bool):
        return "i1"
    if isinstance(value, int):
        return "i32" if -(2**31) <= value < 2**31 else "i64"
    return "fp32"
