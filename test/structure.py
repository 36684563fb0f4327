"""The structure of the production code, stated: `python test/structure.py` prints what breaks its rules.

The rules: imports run down only (runtime, then passes, then dialect); no modules import each other in a circle, not
within functions or for the type checker either; no file has more than 400 lines; a public type's
name stands for one thing.
`data/structure.txt` lists what breaks them still. What is new is an error, and so is an entry that no longer holds;
`--rewrite` writes the list again.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1]
KNOWN = Path(__file__).parent / "data" / "structure.txt"
ROOMS = ("dialect", "passes", "runtime")
"""From the lowest to the highest: each imports itself and those before it."""
LINES = 400


@dataclass(frozen=True)
class Module:
    """A production module by its dotted name, without `warploom.`; a package by its `__init__`."""

    name: str
    path: Path

    @property
    def package(self) -> str:
        return self.name if self.path.stem == "__init__" else self.name.rpartition(".")[0]

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text())

    @property
    def lines(self) -> int:
        return len(self.path.read_text().splitlines())

    def imports(self) -> Iterator[str]:
        """What it imports of the project, as dotted names of modules or of what they define."""
        for node in ast.walk(self.tree):
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


def modules(root: Path = ROOT) -> dict[str, Module]:
    """All production modules by name."""
    found: dict[str, Module] = {}
    for path in sorted(p for room in ROOMS for p in (root / room).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = Module(name, path)
    return found


def edges(found: dict[str, Module]) -> dict[str, set[str]]:
    """Which modules each module imports."""
    graph: dict[str, set[str]] = {}
    for module in found.values():
        targets = {name if name in found else name.rpartition(".")[0] for name in module.imports()}
        graph[module.name] = {t for t in targets if t in found and t != module.name}
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
    found: set[str] = set()
    todo = [start]
    while todo:
        for name in graph[todo.pop()] - found:
            found.add(name)
            todo.append(name)
    return found


def broken(found: dict[str, Module]) -> set[str]:
    """What breaks the rules, one line each."""
    graph = edges(found)
    rooms = {name: ROOMS.index(name.partition(".")[0]) for name in found}
    lines = {f"{m.name}: more than {LINES} lines" for m in found.values() if m.lines > LINES}
    lines |= {f"{a} imports {b}, which is above it" for a in graph for b in graph[a] if rooms[b] > rooms[a]}
    lines |= {f"circle: {', '.join(sorted(circle))}" for circle in circles(graph)}
    homes: defaultdict[str, set[str]] = defaultdict(set)
    for module in found.values():
        for name in module.types():
            if not name.startswith("_"):
                homes[_qualified(name, module.name)].add(module.name)
    return lines | {f"type {n} in {', '.join(sorted(homes[n]))}" for n in homes if len(homes[n]) > 1}


def known() -> set[str]:
    """What is listed as breaking the rules."""
    return set(KNOWN.read_text().splitlines())


def _qualified(name: str, module: str) -> str:
    """Operations have their dialect before their name, as MLIR has it: `linalg.MatmulOp`, `warp.MatmulOp`."""
    return f"{module.split('.')[1]}.{name}" if name.endswith("Op") else name


def main() -> int:
    """Prints the sizes of the rooms and what breaks the rules; 1 if that is not what is listed."""
    found = modules()
    for room in ROOMS:
        mine = [m for m in found.values() if m.name.partition(".")[0] == room]
        print(f"{room}: {len(mine)} modules, {sum(m.lines for m in mine)} lines")
    problems = sorted(broken(found))
    print(f"{sum(m.lines for m in found.values())} lines in all, {len(problems)} rules broken", *problems, sep="\n")
    if "--rewrite" in sys.argv:
        KNOWN.write_text("".join(f"{line}\n" for line in problems))
    return set(problems) != known()


if __name__ == "__main__":
    sys.exit(main())
