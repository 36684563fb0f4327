"""Kernels of `door_programs.py` whose vectors are matrices of a warp: `vector.contract` between transfers of memory."""

from __future__ import annotations

import numpy as np
from door_matrices import DTYPES, Array, Matrices, constants


class ContractKernel(Matrices):
    """Products of what is read of memory of two to four dimensions, one after another, some of them in loops; what one
    writes another may read."""

    def build(self) -> str:
        draw = self.draw
        element = draw.choice(("f16", "f16", "bf16", "f64"))
        total = {"f16": draw.choice(("f16", "f32", "f32")), "bf16": "f32"}.get(element, "f64")
        self.element, self.total, self.names = element, total, 0
        self.parameters: list[str] = []
        self.lines = [*constants(0), f"%z_in = arith.constant 0.0 : {element}"]
        if total != element:
            self.lines.append(f"%z_out = arith.constant 0.0 : {total}")
        self.zeros = {element: "%z_in", total: "%z_in" if total == element else "%z_out"}
        unit = (8, 8, 4) if element == "f64" else (16, 8, 8)
        for _ in range(draw.randint(1, 3)):
            m, n, k = (size * draw.randint(1, 3) for size in unit)
            self.product(m, n, k)
        return self.kernel(", ".join(self.parameters), self.lines)

    def fresh(self, letter: str = "v") -> str:
        self.names += 1
        return f"%{letter}{self.names}"

    def memory(self, rows: int, columns: int, element: str, *, turned: bool) -> tuple[str, str, Array, list[int], str]:
        """Memory with a matrix: its name and type, a view of the matrix, where it lies, and its map. The matrix may
        reach beyond the end of memory."""
        draw = self.draw
        more = draw.choice((0, 0, 0, 1, 2))
        sizes = [draw.randint(1, 3) for _ in range(more)]
        within = sorted(draw.sample(range(more + 2), 2))
        if turned:
            within = within[::-1]
        shape = [0] * (more + 2)
        place = [0] * (more + 2)
        for axis, size in zip([a for a in range(more + 2) if a not in within], sizes, strict=True):
            shape[axis], place[axis] = size, draw.randrange(size)
        self.whole = draw.random() < 0.5
        for axis, size in zip(within, (rows, columns), strict=True):
            place[axis] = draw.choice((0, 0, 8, 3))
            shape[axis] = place[axis] + size + (draw.choice((0, 8, 5)) if self.whole else draw.randint(1 - size, 4))
        array = self.data.integers(-3, 4, shape).astype(DTYPES[element])
        name = f"%X{len(self.arrays)}"
        kind = f"memref<{'x'.join(map(str, shape))}x{element}>"
        self.parameters.append(f"{name}: {kind}")
        self.arrays.append(array)
        dims = ", ".join(f"d{i}" for i in range(more + 2))
        map_ = f"affine_map<({dims}) -> (d{within[0]}, d{within[1]})>"
        view = array[tuple(slice(p, None) if a in within else p for a, p in enumerate(place))]
        return name, kind, view.T if turned else view, place, map_

    def attributes(self, map_: str, dims: int) -> str:
        """The map, which may be left out where it is the last two dimensions in order, and what is in bounds."""
        words = []
        if f"-> (d{dims - 2}, d{dims - 1})" not in map_ or self.draw.random() < 0.3:
            words.append(f"permutation_map = {map_}")
        if self.whole and self.draw.random() < 0.7:
            words.append("in_bounds = [true, true]")
        return f" {{{', '.join(words)}}}" if words else ""

    def read(self, rows: int, columns: int, element: str) -> tuple[str, str, Array]:
        name, kind, view, place, map_ = self.memory(rows, columns, element, turned=self.draw.random() < 0.4)
        made, type_ = self.fresh(), f"vector<{rows}x{columns}x{element}>"
        self.lines += constants(*place)
        at = ", ".join(f"%c{p}" for p in place)
        self.lines.append(
            f"{made} = vector.transfer_read {name}[{at}], {self.zeros[element]}{self.attributes(map_, len(place))} : "
            f"{kind}, {type_}"
        )
        values = np.zeros((rows, columns))
        inside = view[:rows, :columns]
        values[: inside.shape[0], : inside.shape[1]] = inside
        return made, type_, values

    def write(self, value: str, sums: Array, rows: int, columns: int) -> None:
        name, kind, view, place, map_ = self.memory(rows, columns, self.total, turned=self.draw.random() < 0.3)
        expected = self.arrays[-1].astype(np.float64)
        base = self.arrays[-1]
        number = len(self.arrays) - 1
        written = base.copy()
        axes = [slice(p, None) for p in place]
        del axes
        target = self.part(written, place, map_)
        h, w = min(rows, target.shape[0]), min(columns, target.shape[1])
        target[:h, :w] = sums[:h, :w]
        expected = written.astype(np.float64)
        self.expected[number] = expected
        self.lines += constants(*place)
        at = ", ".join(f"%c{p}" for p in place)
        self.lines.append(
            f"vector.transfer_write {value}, {name}[{at}]{self.attributes(map_, len(place))} : "
            f"vector<{rows}x{columns}x{self.total}>, {kind}"
        )
        assert view is not None

    def part(self, array: Array, place: list[int], map_: str) -> Array:
        """The matrix of an array from a place on."""
        first, second = (int(each.strip(" d")) for each in map_.split("->")[1].strip(" ()>").split(","))
        view = array[tuple(slice(p, None) if a in (first, second) else p for a, p in enumerate(place))]
        return view.T if first > second else view

    def product(self, m: int, n: int, k: int) -> None:
        draw = self.draw
        order = draw.sample("mnk", 3)
        names = {"m": m, "n": n, "k": k}
        a_axes, b_axes = draw.choice(("mk", "km")), draw.choice(("kn", "nk"))
        domain = f"({', '.join(order)})"
        maps = ", ".join(f"affine_map<{domain} -> ({each[0]}, {each[1]})>" for each in (a_axes, b_axes, "mn"))
        iterators = ", ".join(f'"{"reduction" if each == "k" else "parallel"}"' for each in order)
        a, type_a, first = self.read(names[a_axes[0]], names[a_axes[1]], self.element)
        b, type_b, second = self.read(names[b_axes[0]], names[b_axes[1]], self.element)
        type_c = f"vector<{m}x{n}x{self.total}>"
        if draw.random() < 0.5:
            c, _, third = self.read(m, n, self.total)
        else:
            number, c = draw.randint(-3, 3), self.fresh()
            third = np.full((m, n), float(number))
            self.lines.append(f"{c} = arith.constant dense<{number}.0> : {type_c}")
        text = (
            f"vector.contract {{indexing_maps = [{maps}], iterator_types = [{iterators}], kind = "
            f"#vector.kind<add>}} {a}, {b}, @c : {type_a}, {type_b} into {type_c}"
        )
        turns = draw.choice((0, 0, 1, 2, 3))
        factor = first if a_axes == "mk" else first.T
        product = factor @ (second if b_axes == "kn" else second.T)
        made = self.fresh("r")
        if turns:
            self.lines += [
                *constants(1, turns),
                f"{made} = scf.for {made}_i = %c0 to %c{turns} step %c1 iter_args({made}_c = {c}) -> ({type_c}) {{",
                f"  {made}_d = {text.replace('@c', made + '_c')}",
                f"  scf.yield {made}_d : {type_c}",
                "}",
            ]
        else:
            self.lines.append(f"{made} = {text.replace('@c', c)}")
        self.write(made, third + max(turns, 1) * product, m, n)
