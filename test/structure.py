"""The structure of the production code, stated: `python test/structure.py` prints its figures beside what they should
be, and what breaks its rules.

The rules: imports run down only (runtime, then passes, then dialect); no modules import each other in a circle, not
within functions or for the type checker either; no file has more than 500 lines; a public type's
name stands for one thing.
`data/structure.txt` lists what breaks them still. What is new is an error, and so is an entry that no longer holds;
`--rewrite` writes the list again.

The figures: `FIGURES` has the aim of each, `data/figures.txt` the worst value that is accepted. A figure may not get
worse than that. `--rewrite` replaces an accepted value by the present one where that is better.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from entered import TASKS, Entered, entered

ROOT = Path(__file__).parents[1]
KNOWN = Path(__file__).parent / "data" / "structure.txt"
ROOMS = ("dialect", "passes", "runtime")
"""From the lowest to the highest: each imports itself and those before it."""
LINES = 500
FIGURES_KNOWN = Path(__file__).parent / "data" / "figures.txt"

ALLOWED = {
    "doors": 5_000,
    "the ISA of today": 7_000,
    "proofs": 4_500,
    "products of any size, convolutions, rows": 3_500,
    "attention, experts, quantised products": 3_000,
}
"""Production lines that capabilities may add to the 57,000 of the house, each once it is begun."""

FIGURES: dict[str, int] = {
    "production lines": 57_000 + sum(ALLOWED.values()),
    "files": 240,
    "lines of the largest file": 500,
    "files entered, compile a product, sm_80": 60,
    "files entered, compile a product, sm_90a": 70,
    "files entered, compile and interpret": 85,
    "lines of functions entered, compile and interpret": 7_500,
    "files entered, check one mma": 12,
    "files entered, compile attention": 75,
    "files entered, torch.compile of two layers, with run": 110,
    "operations in warp": 50,
    "rewrite patterns": 60,
    "records that describe one product": 6,
    "folder pairs that import each other": 0,
    "lists kept by hand": 1,
    "production files of a commit, ninth decile": 8,
}
"""What each figure should be at most; `UPWARDS` at least."""

UPWARDS = ("rewrite patterns",)
PRINTED = ("production files of a commit, ninth decile",)
"""Of the past, or of no checkout: nothing is accepted or refused by it."""

COMMITS = 200
"""Of how many commits the production files are counted."""

LIST = 8
"""Of how many modules a literal names something, to be a list of them."""


@dataclass(frozen=True)
class Module:
    """A production module by its dotted name, without `warploom.`; a package by its `__init__`."""

    name: str
    path: Path

    @property
    def package(self) -> str:
        return self.name if self.path.stem == "__init__" else self.name.rpartition(".")[0]

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the tree, each before those in it."""
        return _walked(self.tree)

    @property
    def generated(self) -> bool:
        return "enerated" in self.text.partition("\n")[0]

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    def imports(self) -> Iterator[str]:
        """What it imports of the project, as dotted names of modules or of what they define."""
        for node in self.nodes:
            if isinstance(node, ast.ImportFrom) and node.level:
                base = self.package.split(".")
                base = base[: len(base) - node.level + 1]
                source = ".".join([*base, *([node.module] if node.module else [])])
                for alias in node.names:
                    yield f"{source}.{alias.name}"

    def types(self) -> Iterator[str]:
        """The public types that it defines: classes and aliases."""
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef):
                yield node.name
            elif isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias":
                yield ast.unparse(node.target)


def _walked(root: ast.AST) -> list[ast.AST]:
    """All nodes in a node, each before those in it: `ast.walk` without generators, in a third of its time."""
    nodes = [root]
    for node in nodes:
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, ast.AST):
                nodes.append(value)
            elif isinstance(value, list):
                nodes += [one for one in value if isinstance(one, ast.AST)]
    return nodes


@cache
def modules(root: Path = ROOT) -> dict[str, Module]:
    """All production modules by name, each of which is parsed once."""
    by_name: dict[str, Module] = {}
    for path in sorted(p for folder in ROOMS for p in (root / folder).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        by_name[name] = Module(name, path)
    return by_name


def edges(modules: dict[str, Module]) -> dict[str, set[str]]:
    """Which modules each module imports."""
    graph: dict[str, set[str]] = {}
    for module in modules.values():
        targets = {name if name in modules else name.rpartition(".")[0] for name in module.imports()}
        graph[module.name] = {t for t in targets if t in modules and t != module.name}
    return graph


def circles(graph: dict[str, set[str]]) -> Iterator[frozenset[str]]:
    """The largest sets of modules that all reach one another."""
    reach = {name: _reached(graph, name) for name in graph}
    seen: set[str] = set()
    for name in graph:
        circle = frozenset(other for other in reach[name] if name in reach[other])
        if len(circle) > 1 and not circle & seen:
            seen |= circle
            yield circle


def _reached(graph: dict[str, set[str]], start: str) -> set[str]:
    reached: set[str] = set()
    todo = [start]
    while todo:
        for name in graph[todo.pop()] - reached:
            reached.add(name)
            todo.append(name)
    return reached


def broken(modules: dict[str, Module]) -> set[str]:
    """What breaks the rules, one line each."""
    graph = edges(modules)
    rooms = {name: ROOMS.index(name.partition(".")[0]) for name in modules}
    lines = {f"{m.name}: more than {LINES} lines" for m in modules.values() if m.lines > LINES}
    lines |= {f"{a} imports {b}, which is above it" for a in graph for b in graph[a] if rooms[b] > rooms[a]}
    lines |= {f"circle: {', '.join(sorted(circle))}" for circle in circles(graph)}
    homes: defaultdict[str, set[str]] = defaultdict(set)
    for module in modules.values():
        for name in module.types():
            if not name.startswith("_"):
                homes[_qualified(name, module.name)].add(module.name)
    return lines | {f"type {n} in {', '.join(sorted(homes[n]))}" for n in homes if len(homes[n]) > 1}


# Figures


def figures(modules: dict[str, Module], tasks: Mapping[str, Entered]) -> dict[str, int]:
    """Every figure by its name, given what each task enters; figures of tasks that are not given are left out."""
    values = {
        "production lines": sum(m.lines for m in modules.values()),
        "files": len(modules),
        "lines of the largest file": max(m.lines for m in modules.values()),
        "operations in warp": sum(map(_is_operation, _classes(modules, "dialect.warp"))),
        "rewrite patterns": len(_derived(modules, "RewritePattern")) + _patterns(modules),
        "folder pairs that import each other": len(mutual(modules)),
        "lists kept by hand": len(hand_lists(modules)),
    }
    values |= figures_of_tasks(tasks)
    if (files := files_of_a_commit()) is not None:
        values["production files of a commit, ninth decile"] = files
    return {name: values[name] for name in FIGURES if name in values}


def figures_of_tasks(tasks: Mapping[str, Entered]) -> dict[str, int]:
    """The figures that follow from what each task enters."""
    values = {f"files entered, {task}": len(each.files) for task, each in tasks.items()}
    if (run := tasks.get("compile and interpret")) is not None:
        values["lines of functions entered, compile and interpret"] = run.lines
    products = [each for task, each in tasks.items() if task.startswith("compile a product")]
    if products:
        values["records that describe one product"] = max(len(each.records) for each in products)
    return values


def mutual(modules: dict[str, Module]) -> set[tuple[str, str]]:
    """Pairs of folders of which each imports from the other."""
    folders = {name: str(module.path.parent) for name, module in modules.items()}
    pairs = {(folders[a], folders[b]) for a, targets in edges(modules).items() for b in targets}
    return {(a, b) for a, b in pairs if a < b and (b, a) in pairs}


def hand_lists(modules: dict[str, Module]) -> set[str]:
    """Modules with a literal that names something of many other modules; packages that export what they have count too,
    and a file whose first line says that it is generated does not."""
    return {m.name for m in modules.values() if not m.generated and _longest_list(m, modules) >= LIST}


def _longest_list(module: Module, modules: dict[str, Module]) -> int:
    """Of how many modules one literal of a module names something: names that it imports, or paths of modules."""
    homes: dict[str, str] = {}
    for node in module.nodes:
        if isinstance(node, ast.ImportFrom) and node.level:
            homes |= {alias.asname or alias.name: f"{node.level}{node.module}.{alias.name}" for alias in node.names}
    stems = {name.rpartition(".")[2] for name in modules}
    longest, seen = 0, set[ast.AST]()
    for node in module.nodes:
        if node in seen or not isinstance(node, ast.Tuple | ast.List | ast.Dict | ast.Set):
            continue
        seen |= (inside := set(_walked(node)))
        names = {homes[n.id].rpartition(".")[0] for n in inside if isinstance(n, ast.Name) and n.id in homes}
        texts = {n.value for n in inside if isinstance(n, ast.Constant) and isinstance(n.value, str)}
        paths = {text for text in texts if text.rpartition(".")[2] in stems and ("." in text or len(text) > 3)}
        longest = max(longest, len(names), len(paths))
    return longest


def _classes(modules: dict[str, Module], package: str) -> list[ast.ClassDef]:
    """The classes in the modules of a package."""
    mine = [m for m in modules.values() if f"{m.name}.".startswith(f"{package}.")]
    return [node for m in mine for node in m.nodes if isinstance(node, ast.ClassDef)]


def _is_operation(node: ast.ClassDef) -> bool:
    return any(ast.unparse(decorator) == "irdl_op_definition" for decorator in node.decorator_list)


def _patterns(modules: dict[str, Module]) -> int:
    """The patterns that are functions."""
    functions = (node for m in modules.values() for node in m.nodes if isinstance(node, ast.FunctionDef))
    return sum(ast.unparse(each) == "rewrite_pattern" for node in functions for each in node.decorator_list)


def _derived(modules: dict[str, Module], base: str) -> set[str]:
    """The names of classes that are derived from a class, directly or not."""
    bases: defaultdict[str, set[str]] = defaultdict(set)
    for folder in ROOMS:
        for node in _classes(modules, folder):
            bases[node.name] |= {ast.unparse(b).partition("[")[0].rpartition(".")[2] for b in node.bases}
    names = {base}
    while more := {name for name, above in bases.items() if above & names} - names:
        names |= more
    return names - {base}


def files_of_a_commit() -> int | None:
    """How many production files nine of ten of the last commits to production touch at most; None without a history."""
    command = ["git", "log", f"-{COMMITS}", "--no-merges", "--format=%x00", "--name-only", "--", *ROOMS]
    try:
        run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    counts = sorted(text.count(".py") for text in run.stdout.split("\0")[1:])
    return counts[len(counts) * 9 // 10] if counts else None


def accepted() -> dict[str, int]:
    """The worst value of each figure that is accepted."""
    lines = (line.rsplit(": ", 1) for line in FIGURES_KNOWN.read_text().splitlines())
    return {name: int(value) for name, value in lines}


def better(name: str, value: int, other: int) -> bool:
    return value > other if name in UPWARDS else value < other


def worse(values: Mapping[str, int], limits: Mapping[str, int]) -> list[str]:
    """The figures that are worse than accepted, a line each."""
    return [
        f"{name}: {value}, accepted {limits[name]}"
        for name, value in values.items()
        if name not in PRINTED and better(name, limits[name], value)
    ]


def listed() -> set[str]:
    """What is listed as breaking the rules."""
    return set(KNOWN.read_text().splitlines())


def _qualified(name: str, module: str) -> str:
    """Operations have their dialect before their name, as MLIR has it: `linalg.MatmulOp`, `warp.MatmulOp`."""
    return f"{module.split('.')[1]}.{name}" if name.endswith("Op") else name


def main() -> int:
    """Prints the figures, the sizes of the rooms and what breaks the rules; 1 if a figure is worse than is accepted, or
    the rules are not broken as is listed."""
    read = modules()
    with ThreadPoolExecutor(2) as pool:
        tasks = dict(zip(TASKS, pool.map(entered, TASKS), strict=True))
    values, limits = figures(read, tasks), accepted()
    for name, aim in FIGURES.items():
        sign = ">=" if name in UPWARDS else "<="
        print(f"{name}: {values.get(name, 'unknown')} (aim {sign} {aim})")
    for folder in ROOMS:
        mine = [m for m in read.values() if m.name.partition(".")[0] == folder]
        print(f"{folder}: {len(mine)} modules, {sum(m.lines for m in mine)} lines")
    problems = sorted(broken(read))
    print(f"{len(problems)} rules broken", *problems, sep="\n")
    if "--rewrite" in sys.argv:
        KNOWN.write_text("".join(f"{line}\n" for line in problems))
        limits |= {n: v for n, v in values.items() if n not in PRINTED and (n not in limits or better(n, v, limits[n]))}
        FIGURES_KNOWN.write_text("".join(f"{name}: {value}\n" for name, value in limits.items()))
    print(*worse(values, limits), sep="\n")
    return set(problems) != listed() or bool(worse(values, limits))


if __name__ == "__main__":
    sys.exit(main())
