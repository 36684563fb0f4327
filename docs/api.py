"""The page of the Python API, from the source of what `warploom.runtime` exports; nothing of it is imported."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from docstrings import markdown

from warploom import runtime
from warploom.dialect.index import PUBLIC

ROOT = Path(__file__).parent.parent

TOPICS = {
    "Compile and run": ("compile", "Kernel", "load_kernels"),
    "PTX of any origin": ("load_ptx", "PtxModule", "check_ptx", "Diagnostic"),
    "Arguments": ("TensorMap", "PixelBox", "Struct"),
    "What a launch did": ("LaunchReport", "LaunchTrace", "TraceEvent", "Problem"),
    "Sparse matrices": ("prune", "compress", "expand", "check_metadata"),
    "Descriptors and tensor maps": ("explain", "MatrixDescriptor", "TensorMapFields"),
    "PyTorch": (
        "torch_backend",
        "torch_operators",
        "torch_to_linalg",
        "torch_save",
        "torch_load",
        "register_torch_sharding",
    ),
}

PYTHON = """# Python

Import all names on this page from `warploom.runtime`. The import is cheap, because the package loads the module of each
name on first use.

"""


def python() -> Iterator[str]:
    """The public names, by topic; what no topic has stands at the end, before the errors."""
    yield PYTHON
    told = {name for names in TOPICS.values() for name in names}
    errors = [name for name in runtime.__all__ if name.endswith("Error")]
    others = [name for name in runtime.__all__ if name not in told and name not in errors]
    for title, names in (*TOPICS.items(), *([("More", others)] if others else ()), ("Errors", errors)):
        yield f"## {title}\n\n"
        for name in names:
            yield from _public(name)


def _public(name: str) -> Iterator[str]:
    node = _definition(PUBLIC[name], name)
    yield f"\n### {name}\n\n"
    if isinstance(node, ast.ClassDef):
        if not name.endswith("Error"):
            yield f"```python\n{_called(name, _init(node))}\n```\n\n"
        yield f"{markdown(ast.get_docstring(node) or '', 'python')}\n\n"
        methods = _methods(node)
        for method in sorted(methods, key=lambda m: not _is_property(m)):
            yield from _method(name, method)
    elif isinstance(node, ast.FunctionDef):
        yield f"```python\n{_called(name, _parameters(node.args))}{_result(node)}\n```\n\n"
        yield f"{markdown(ast.get_docstring(node) or '', 'python')}\n\n"
    else:
        yield f"{markdown(node, 'python')}\n\n"


def _method(name: str, method: ast.FunctionDef) -> Iterator[str]:
    """A method with its docstring; a property with the first sentence of its."""
    text = ast.get_docstring(method) or ""
    if _is_property(method):
        yield f"- `{name}.{method.name}`{_result(method).replace(' -> ', ': `')}`: {' '.join(text.split())}\n\n"
        return
    static = any(ast.unparse(d) == "staticmethod" for d in method.decorator_list)
    own = _parameters(method.args)[0 if static else 1 :]
    shown = f"{name}.{method.name}" if method.name != "__call__" else name.lower()
    yield f"\n#### {name}.{method.name}\n\n```python\n{_called(shown, own)}{_result(method)}\n```\n\n"
    yield f"{markdown(text, 'python')}\n\n"


def _is_property(method: ast.FunctionDef) -> bool:
    return any(ast.unparse(d).endswith("property") for d in method.decorator_list)


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _definition(home: str, name: str) -> ast.ClassDef | ast.FunctionDef | str:
    """Where a name of `warploom.runtime` is defined, found without importing it; of a variable, the text behind it."""
    return _defined(ROOT / f"{home.replace('.', '/')}.py", name)


def _file(source: Path, module: str) -> Path:
    """The file of a module, by its name relative to another."""
    name = module.lstrip(".")
    folder = source.parents[len(module) - len(name) - 1]
    return folder / f"{name.replace('.', '/')}.py"


def _defined(path: Path, name: str) -> ast.ClassDef | ast.FunctionDef | str:
    body = _tree(path).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return node
        if isinstance(node, ast.ImportFrom):
            definition = next((alias.name for alias in node.names if (alias.asname or alias.name) == name), None)
            if definition is not None:
                return _defined(_file(path, "." * node.level + (node.module or "")), definition)
        if isinstance(node, ast.Assign | ast.AnnAssign) and re.match(rf"{name}\b", ast.unparse(node)):
            if isinstance(node.value, ast.Name):
                return _defined(path, node.value.id)
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                return str(after.value.value)
    raise ValueError(f"{path} defines no {name} with a docstring")


def _methods(node: ast.ClassDef) -> list[ast.FunctionDef]:
    own = [item for item in node.body if isinstance(item, ast.FunctionDef)]
    return [m for m in own if (not m.name.startswith("_") or m.name == "__call__") and ast.get_docstring(m)]


def _init(node: ast.ClassDef) -> list[str]:
    """The parameters of a class: those of `__init__`, or its fields."""
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            return _parameters(item.args)[1:]
    annotated = [item for item in node.body if isinstance(item, ast.AnnAssign)]
    return [ast.unparse(item) for item in annotated if not ast.unparse(item.target).startswith("_")]


def _parameters(args: ast.arguments) -> list[str]:
    """One text for each parameter."""
    return _split(ast.unparse(args))


def _split(text: str) -> list[str]:
    """At the commas that are in no brackets."""
    parts, depth, start = list[str](), 0, 0
    for i, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth:
            parts.append(text[start:i].strip())
            start = i + 1
    return [part for part in [*parts, text[start:].strip()] if part]


def _called(name: str, parameters: Sequence[str]) -> str:
    line = f"{name}({', '.join(parameters)})"
    if len(line) <= 100:
        return line
    return f"{name}(\n" + "".join(f"    {parameter},\n" for parameter in parameters) + ")"


def _result(node: ast.FunctionDef) -> str:
    return f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
