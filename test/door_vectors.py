"""Kernels of `door_programs.py` on vectors: each thread has some of every type."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from door_kernels import THREADS, Block, Kernel, Value
from door_values import DTYPES, FLOATS, INTEGERS, REALS, UNARY, WIDTH, Array, converted

EXPANDED = ("math.copysign", "floordivsi", "ceildivsi", "ceildivui")
"""What becomes other operations where it is on numbers, and is not lowered on vectors."""


class VectorKernel(Kernel):
    """Loads, moves, converts, computes with and stores vectors."""

    def begin(self, block: Block) -> None:
        while not self.vectors(block):
            self.load_vector(block)

    def steps(self, depth: int) -> list[Callable[[Block], object]]:
        return [
            self.load_vector, *[self.map_vector] * 3, self.convert_vector, *[self.part_vector] * 3, self.reduce_vector,
            self.integers, self.reals,
        ]  # fmt: skip

    def access(self, memory: str, type: str, value: str, *, load: bool) -> list[str]:
        if not type.startswith("vector"):
            return super().access(memory, type, value, load=load)
        sizes, element = self.shape(type)
        count, flat, (k, at, v) = int(np.prod(sizes)), value, (self.name("q") for _ in range(3))
        lines = [f"%{k} = arith.constant {count} : index", f"%{at} = arith.muli %t, %{k} : index"]
        if len(sizes) > 1:
            lines.append(f"%{v} = vector.shape_cast %{value} : {type} to vector<{count}x{element}>")
            flat = v
        kind = f"memref<{THREADS * count}x{element}>, vector<{count}x{element}>"
        return [*lines, f"vector.store %{flat}, %{memory}[%{at}] : {kind}"]

    def vectors(self, block: Block) -> list[Value]:
        return [v for v in block.values if v.type.startswith("vector")]

    def shape(self, type: str) -> tuple[list[int], str]:
        *sizes, element = type[7:-1].split("x")
        return [int(n) for n in sizes], element

    def load_vector(self, block: Block) -> None:
        element = self.draw.choice(("f16", "bf16", "f32", "f64", "i8", "i16", "i32", "i64"))
        least = max(1, 32 // WIDTH[element])
        sizes = self.draw.choice([[least], [2 * least], [2, least], [4 * least], [8], [2, 4]])
        count = int(np.prod(sizes))
        if count * WIDTH[element] % 32:
            return
        data = self.numbers(element, THREADS * count)
        name, type = f"x{len(self.arguments)}", f"vector<{'x'.join(map(str, [*sizes, element]))}>"
        self.arguments.append((name, element, data))
        flat, k, at, value = f"vector<{count}x{element}>", self.name("k"), self.name("a"), Value(self.name(), type)
        load = value.name if len(sizes) == 1 else self.name()
        lines = [
            f"%{k} = arith.constant {count} : index",
            f"%{at} = arith.muli %t, %{k} : index",
            f"%{load} = vector.load %{name}[%{at}] : memref<{THREADS * count}x{element}>, {flat}",
        ]
        if len(sizes) > 1:
            lines.append(f"%{value.name} = vector.shape_cast %{load} : {flat} to {type}")
        array = data.reshape(THREADS, *sizes)
        self.place(block, lines, lambda env, _: env.update({value.name: array}), value)

    def map_vector(self, block: Block) -> None:
        first = self.draw.choice(self.vectors(block))
        _, element = self.shape(first.type)
        same = [v for v in self.vectors(block) if v.type == first.type]
        real = element in FLOATS
        table = REALS if real else INTEGERS
        name = self.draw.choice([name for name in table if name not in EXPANDED])
        operands = [first] if name in UNARY else [first, self.draw.choice(same)]
        full = name if real else f"arith.{name}"
        text = f"{full} {', '.join('%' + o.name for o in operands)} : {first.type}"
        self.operation(block, text, first.type, table[name][1], *operands)

    def convert_vector(self, block: Block) -> None:
        value = self.draw.choice(self.vectors(block))
        sizes, element = self.shape(value.type)
        to = self.draw.choice([t for t in DTYPES if t not in ("i1", "index", element)])
        if (element in FLOATS and to in FLOATS and WIDTH[to] == WIDTH[element]) or np.prod(sizes) * WIDTH[to] % 32:
            return
        if element not in FLOATS and to not in FLOATS and WIDTH[to] == WIDTH[element]:
            return
        names, function = converted(element, to, self.draw.random() < 0.5)
        type = f"vector<{'x'.join(map(str, [*sizes, to]))}>"
        text = f"arith.{names.split()[0]} %{value.name} : {value.type} to {type}"
        self.operation(block, text, type, function, value)

    def part_vector(self, block: Block) -> None:
        value = self.draw.choice(self.vectors(block))
        sizes, element = self.shape(value.type)
        place = [self.draw.randrange(n) for n in sizes[: self.draw.randint(1, len(sizes))]]
        rest = sizes[len(place) :]
        kind = f"vector<{'x'.join(map(str, [*rest, element]))}>" if rest else element
        choice = self.draw.randrange(5)
        if choice == 0:
            text = f"vector.extract %{value.name}{place} : {kind} from {value.type}"
            self.operation(block, text, kind, lambda a: a[(slice(None), *place)], value)
        elif choice == 1:
            fitting = [v for v in block.values if v.type == kind]
            if not fitting:
                return
            other = self.draw.choice(fitting)

            def insert(a: Array, b: Array) -> Array:
                made = a.copy()
                made[(slice(None), *place)] = b
                return made

            text = f"vector.insert %{other.name}, %{value.name} {place} : {kind} into {value.type}"
            self.operation(block, text, value.type, insert, value, other)
        elif choice == 2:
            flat = f"vector<{np.prod(sizes)}x{element}>"
            text = f"vector.shape_cast %{value.name} : {value.type} to {flat}"
            self.operation(block, text, flat, lambda a: a.reshape(len(a), -1), value)
        elif choice == 3 and len(sizes) == 1:
            order = [self.draw.randrange(2 * sizes[0]) for _ in range(sizes[0])]
            other = self.draw.choice([v for v in self.vectors(block) if v.type == value.type])
            text = f"vector.shuffle %{value.name}, %{other.name} {order} : {value.type}, {value.type}"
            self.operation(block, text, value.type, lambda a, b: np.hstack([a, b])[:, order], value, other)
        elif choice == 4:
            fitting = [v for v in block.values if v.type == element]
            if fitting:
                other = self.draw.choice(fitting)
                text = f"vector.broadcast %{other.name} : {element} to {value.type}"
                self.operation(
                    block,
                    text,
                    value.type,
                    lambda b: np.broadcast_to(b.reshape(-1, *[1] * len(sizes)), (len(b), *sizes)).copy(),
                    other,
                )

    def reduce_vector(self, block: Block) -> None:
        value = self.draw.choice(self.vectors(block))
        sizes, element = self.shape(value.type)
        if len(sizes) > 1:
            return
        real = element in FLOATS
        word = self.draw.choice(
            ("minimumf", "maximumf", "add")
            if real
            else ("add", "mul", "and", "or", "xor", "minsi", "maxsi", "minui", "maxui")
        )
        named = word + ("f" if real else "i") if word in ("add", "mul", "and", "or", "xor") else word
        function = REALS[f"arith.{named}"][1] if real else INTEGERS[named][1]

        def reduce(a: Array) -> Array:
            made = a[:, 0]
            for n in range(1, a.shape[1]):
                made = function(made, np.ascontiguousarray(a[:, n]))
            return made

        text = f"vector.reduction <{word}>, %{value.name} : {value.type} into {element}"
        self.operation(block, text, element, reduce, value)
