"""`judge`: whether a candidate computes what a reference says, and what is wrong with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib import import_module
from os import PathLike, fspath
from typing import Any

import numpy as np

from ..arguments.arrays import element_of
from ..base.errors import ArgumentError
from ..base.launch import describe
from ..numerics.floats import Array
from ..reference.functions import poison
from .answers import ERROR, JudgeFinding, is_float, is_ndarray, is_rounded, note
from .candidate import Candidate, CandidateCall, Launching, Made, PythonCandidate, framework_of, of_file
from .references import DRAWS, Expected, JudgeReference, NotComparedError, altered, forbidden_of, of_source
from .worker import Answer, LimitError, Service, Worker

Source = str | PathLike[str] | Callable[..., Any]
SMALLER = {"tf32 or f16": 11, "bf16": 8}
"""Bits of the significands of types that a candidate may have rounded to."""


@dataclass
class Verdict:
    """What `judge` says. It is true if there is no error. `runs` are the calls that were compared, `proof` what `prove`
    says, `accesses` the bytes of each argument that a kernel reads and writes, `counts` the totals of its report."""

    candidate: str
    reference: str
    findings: list[JudgeFinding] = field(default_factory=list[JudgeFinding])
    runs: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    proof: dict[str, Any] | None = None
    accesses: dict[str, dict[str, int]] | None = None
    counts: dict[str, Any] | None = None
    seconds: float = 0.0

    def __bool__(self) -> bool:
        return not any(f.severity == ERROR for f in self.findings)

    @property
    def codes(self) -> list[str]:
        """The codes of the errors, each once."""
        return list(dict.fromkeys(f.code for f in self.findings if f.severity == ERROR))

    def add(self, finding: JudgeFinding) -> None:
        """Keeps a finding, once for each code, place and output."""
        key = (finding.code, finding.file, finding.line, finding.column, finding.output)
        if key not in [(f.code, f.file, f.line, f.column, f.output) for f in self.findings]:
            self.findings.append(finding)

    def as_json(self) -> dict[str, Any]:
        """The verdict as JSON objects."""
        return {"passed": bool(self), "codes": self.codes} | asdict(self)

    def __str__(self) -> str:
        word = "passes" if self else "is refused"
        runs = f"{len(self.runs)} calls compared with {self.reference} in {self.seconds:.1f} s"
        return "\n".join([*map(str, self.findings), f"{self.candidate}: {word}: {runs}"])


def judge(
    candidate: Source,
    reference: Source,
    *,
    launch: Launching | None = None,
    inputs: Sequence[str] | Callable[[int, Mapping[str, int]], Mapping[str, Any]] = (),
    sizes: Sequence[Mapping[str, int]] = (),
    settings: Mapping[str, int] | None = None,
    function: str | None = None,
    framework: str = "",
    seconds: float = 60.0,
    megabytes: int = 4096,
    seed: int = 0,
    proof: bool = True,
) -> Verdict:
    """Judge whether a candidate computes what a reference says.

    - `candidate`: `FILE.ptx` or `FILE.cu` with a `launch`; `FILE.py` with a class `ModelNew`, or `FILE.py:NAME`; a
      function on arrays, which returns its outputs or writes them.
    - `reference`: `FILE.mlir` with a function of linalg; `FILE.py` with a class `Model`, `get_inputs` and
      `get_init_inputs`, or `FILE.py:NAME`; a function of numpy or torch.
    - `inputs`: the arguments as `warploom run --in` takes them, with names of sizes in braces; or a function of a seed
      and sizes that gives arguments by name.
    - `sizes`: numbers by name, for each size to judge at. `settings` replace constants of Python files.
    - `function`: that of an MLIR file with several. `framework`: "numpy" or "torch", what Python candidates take.
    - `seconds`, `megabytes`: what the candidate may take, in a process of its own.
    - `proof`: whether to prove a kernel against a function of linalg.

    Returns:
        The verdict, which is true if nothing is wrong.

    Raises:
        WarploomError: where the question itself is wrong: a reference, an input, a compiler that is missing.
    """
    first = candidate if callable(candidate) else fspath(candidate)
    other = reference if callable(reference) else fspath(reference)
    forbidden, chosen = forbidden_of(other, first), dict(settings or {})
    texts, draws = ((), inputs) if callable(inputs) else (inputs, None)
    start = time.monotonic()

    def make(made: Made) -> Candidate:
        if callable(first):
            return PythonCandidate(first, framework or framework_of(first))
        return of_file(first, launch, framework, chosen, made)

    verdict = Verdict(_name(first), _name(other))
    if "torch" in (framework, *(framework_of(source) for source in (first, other))):
        with suppress(ImportError):
            import_module("torch")  # Before the fork, so that it is loaded once.
    worker = Worker(lambda watch: Service(watch, make, forbidden), seconds, megabytes, forbidden.file)
    try:
        reference_ = of_source(other, texts, function, chosen, framework, draws, seed)
        _Session(worker, reference_, verdict, seed).run(sizes or ({},), prove=proof)
    except LimitError as error:
        verdict.add(JudgeFinding(error.code, str(error)))
    finally:
        worker.close()
    verdict.seconds = time.monotonic() - start
    return verdict


def _name(source: str | Callable[..., Any]) -> str:
    return getattr(source, "__qualname__", type(source).__name__) if callable(source) else source


class _Session:
    """The calls of a candidate at each size."""

    def __init__(self, worker: Worker, reference: JudgeReference, verdict: Verdict, seed: int) -> None:
        self.worker, self.reference, self.verdict, self.seed = worker, reference, verdict, seed
        self.compared = self.varies = False

    def run(self, sizes: Sequence[Mapping[str, int]], *, prove: bool) -> None:
        self._ask("load", self.reference.made)
        if not self.verdict:
            return
        for number, each in enumerate(sizes):
            earlier: list[list[Array]] = []
            first: tuple[CandidateCall, Answer] | None = None
            for kind in DRAWS:
                call = self._drawn(kind, self.seed + 100 * number, each)
                arrays = filter(is_ndarray, call.arguments.values())
                if kind == "altered" and not any(is_rounded(a.dtype) for a in arrays):
                    continue
                try:
                    wanted = self.reference.expected(call.arguments)
                except NotComparedError as error:
                    self.verdict.add(note("not-compared", f"{kind} data: {error}"))
                    continue
                self._prepare(call, wanted)
                self.compared = True
                if not number and first is None and not self._inspect(call):
                    return
                answer = self._ask("call", call, reuse=kind in ("altered", "integers"))
                if answer.outputs is None:
                    return
                self._compare(call, answer, wanted, earlier, kind)
                earlier.append([np.asarray(o) for o in answer.outputs])
                self._note_variation(earlier)
                first = first or (call, answer)
            if first is not None:
                self._again(*first)
            if not self.verdict:
                return
        if not self.compared:
            raise ArgumentError(f"{self.verdict.reference}: no data for which the reference is finite")
        self._finally(self._drawn("normal", self.seed, sizes[0]), prove=prove)

    def _drawn(self, kind: str, seed: int, sizes: Mapping[str, int]) -> CandidateCall:
        other = kind == "altered"
        arguments = self.reference.draw("normal" if other else kind, seed + DRAWS[kind], sizes)
        if other:
            arrays = {n: a for n, a in arguments.items() if is_ndarray(a)}
            arguments |= {n: altered(a, (seed, i)) for i, (n, a) in enumerate(arrays.items())}
        return CandidateCall(arguments, {}, self.reference.written, sizes)

    def _prepare(self, call: CandidateCall, wanted: Sequence[Expected]) -> None:
        call.written = self.reference.written
        if not call.written:
            names = ["out", *(f"out{i}" for i in range(1, len(wanted)))]
            call.outputs = {
                name: np.full(e.value.shape, poison(e.dtype) if e.dtype.kind != "b" else True, e.dtype)
                for name, e in zip(names, wanted, strict=False)
            }

    def _ask(self, method: str, *arguments: Any, **options: Any) -> Answer:
        """What a method of the candidate's `Service` says."""
        answer = self.worker.ask(method, *arguments, **options)
        if isinstance(answer, str):
            raise ArgumentError(answer)
        for finding in answer.findings:
            self.verdict.add(finding)
        return answer

    def _inspect(self, call: CandidateCall) -> bool:
        """Whether the kernel runs under all checks."""
        answer = self._ask("inspect", call)
        if answer.accesses is not None:
            self.verdict.accesses, self.verdict.counts = answer.accesses, answer.counts
        return not any(f.severity == ERROR and f.code in ("check-fault", "check-load") for f in answer.findings)

    def _again(self, call: CandidateCall, answer: Answer) -> None:
        """The first call once more, and what its results depend on."""
        again = self._ask("call", call)
        if again.outputs is None or answer.outputs is None:
            return
        pairs = zip(again.outputs, answer.outputs, strict=False)
        if any(np.asarray(a).tobytes() != np.asarray(b).tobytes() for a, b in pairs):
            self.verdict.add(note("not-deterministic", "two calls with the same inputs give different bits"))
        if not self.verdict and {"wrong-value", "wrong-bits"} & set(self.verdict.codes):
            self._dependence(call, again)

    def _dependence(self, call: CandidateCall, answer: Answer) -> None:
        """Inputs that an output does not depend on, and should."""
        base = self.reference.expected(call.arguments)
        for name, value in call.arguments.items():
            if not is_ndarray(value) or not is_float(value.dtype) or name in call.written:
                continue
            other = {**call.arguments, name: np.roll(value.reshape(-1), 1).reshape(value.shape)}
            with suppress(NotComparedError):
                moved = self.reference.expected(other)
                changed = self._ask("call", CandidateCall(other, call.outputs, call.written, call.sizes))
                for i, (a, b) in enumerate(zip(answer.outputs or (), changed.outputs or (), strict=False)):
                    same = np.asarray(a).tobytes() == np.asarray(b).tobytes()
                    if not same or np.array_equal(base[i].value, moved[i].value):
                        continue
                    label = self._label(call, i)
                    text = f"{label} does not depend on {name}, and should"
                    self.verdict.add(JudgeFinding("ignores-input", text, output=label))

    def _label(self, call: CandidateCall, i: int) -> str:
        names = [*call.written] or [*call.outputs]
        return names[i] if i < len(names) else f"out{i}"

    def _note_variation(self, earlier: Sequence[Sequence[Array]]) -> None:
        """Whether outputs change with the data at all."""
        self.varies = self.varies or any(
            a.tobytes() != b.tobytes() for a, b in zip(earlier[0], earlier[-1], strict=False) if len(earlier) > 1
        )

    def _compare(
        self, call: CandidateCall, answer: Answer, wanted: Sequence[Expected], earlier: Sequence[Sequence[Array]],
        kind: str,
    ) -> None:  # fmt: skip
        """Holds what a call left against what it should."""
        outputs = answer.outputs or []
        if len(outputs) != len(wanted):
            text = f"expected {len(wanted)} outputs, got {len(outputs)}"
            self.verdict.add(JudgeFinding("missing-output", text))
            return
        worst = 0.0
        for i, (got, expected) in enumerate(zip(outputs, wanted, strict=True)):
            label = self._label(call, i)
            array = np.asarray(got, expected.dtype if isinstance(got, bool | int | float) else None)
            if problem := _form(label, array, expected):
                self.verdict.add(problem)
                continue
            outside, share = compare(array, expected)
            worst = max(worst, share)
            if outside.any():
                old = [each[i] for each in earlier if i < len(each)]
                code, reason = self._explained(call, array, expected, outside, old, i)
                self.verdict.add(_wrong(code, reason, label, array, expected, outside))
        for name, value in answer.arguments.items():
            before = call.arguments[name]
            if is_ndarray(before) and name not in call.written and before.tobytes() != value.tobytes():
                self.verdict.add(JudgeFinding("input-modified", f"the candidate changes {name}, which is an input"))
        self.verdict.runs.append(
            {"data": kind, "sizes": dict(call.sizes), "seconds": round(answer.seconds, 3), "share_of_bound": worst}
        )

    def _explained(
        self, call: CandidateCall, got: Array, expected: Expected, outside: Array, earlier: Sequence[Array], at: int
    ) -> tuple[str, str]:
        """The code that describes the error of an output best, and a sentence."""
        value = got.astype(np.float64)
        poisoned = _words(got) == _words(np.full((), poison(got.dtype), got.dtype))  # no NaN that is computed
        if poisoned[outside].all() and not np.isnan(expected.value[outside]).any():
            return "unwritten", "is not written"
        if not np.isfinite(value[outside]).all():
            outside &= ~np.isfinite(value)
            return "not-finite", "is not finite"
        if got.size > 1 and (got == got.reshape(-1)[0]).all():
            return ("zeros", "is all zeros") if not value.any() else ("constant", "is the same number everywhere")
        if any(got.shape == o.shape and got.tobytes() == np.asarray(o).tobytes() for o in earlier):
            return "stale", "is that of an earlier call"
        for name, argument in call.arguments.items():
            alike = is_ndarray(argument) and argument.size == got.size and name not in call.written
            if alike and np.array_equal(argument.reshape(-1), got.reshape(-1)):
                return "copied-input", f"is a copy of {name}"
        if expected.exact:
            return "wrong-bits", "is another number, where nothing is rounded"
        if smaller := self._smaller(call, got, at):
            return "reduced-precision", f"is what {smaller} gives"
        return "wrong-value", "is farther off than any order of roundings allows"

    def _smaller(self, call: CandidateCall, got: Array, at: int) -> str:
        """The type to which inputs or results were rounded."""
        for name, bits in SMALLER.items():
            rounded = {n: _cut(v, bits) for n, v in call.arguments.items()}
            with suppress(NotComparedError):
                if not compare(got, self.reference.expected(rounded)[at])[0].any():
                    return f"rounding the inputs to {name}"
            wide = is_float(got.dtype) and got.dtype.itemsize >= 4
            if wide and (got != np.round(got)).any() and np.array_equal(got, _cut(got, bits)):
                return f"rounding the results to {name}"
        return ""

    def _finally(self, call: CandidateCall, *, prove: bool) -> None:
        """What is known only of a candidate whose results are right."""
        if not self.varies:
            self.verdict.add(note("reference-constant", "the results are the same for all data that was tried"))
        if not prove or self.verdict.accesses is None:
            self._prepare(call, [])
            self._ask("library", call)
            why = "the candidate is no single kernel" if prove else "no proof was asked for"
            self.verdict.proof = {"outcome": "undecided", "text": why}
            return
        try:
            self._prepare(call, self.reference.expected(call.arguments))
            text = self.reference.linalg(call.arguments)
        except NotComparedError as error:
            self.verdict.add(note("proof-undecided", str(error)))
            self.verdict.proof = {"outcome": "undecided", "text": str(error)}
            return
        function = getattr(self.reference, "signature", None)
        self.verdict.proof = self._ask("prove", call, text, getattr(function, "name", None)).proof


def _cut(value: Any, bits: int) -> Any:
    """Elements of 32 bits or more with so many bits of significand."""
    if not is_ndarray(value) or not is_float(value.dtype) or value.dtype.itemsize < 4:
        return value
    mantissa, exponent = np.frexp(value.astype(np.float64))
    return np.ldexp(np.round(np.ldexp(mantissa, bits)), exponent - bits).astype(value.dtype)


def compare(got: Array, expected: Expected) -> tuple[Array, float]:
    """The mask of elements that are out of bounds, and the largest share of its bound that one of the others uses."""
    value = got.astype(expected.value.dtype)
    with np.errstate(all="ignore"):
        inside = ((value >= expected.low) & (value <= expected.high)) | (value == expected.value)
        inside |= np.isnan(value) & np.isnan(expected.value)
        inside |= ~np.isfinite(expected.low) | ~np.isfinite(expected.high)
        reach = np.maximum(expected.high - expected.value, expected.value - expected.low)
        share = np.where(inside & (reach > 0), np.abs(value - expected.value) / reach, 0.0)
    finite = share[np.isfinite(share)]
    return ~inside, float(finite.max()) if finite.size else 0.0


def _form(label: str, got: Array, expected: Expected) -> JudgeFinding | None:
    """What is wrong with the shape or the type of an output."""
    if got.shape != expected.value.shape:
        shapes = ["x".join(map(str, s)) or "a number" for s in (expected.value.shape, got.shape)]
        return JudgeFinding("wrong-shape", f"{label}: expected {shapes[0]}, got {shapes[1]}", output=label)
    if got.dtype != expected.dtype:
        kinds = [describe(got.shape, _element(d)) for d in (expected.dtype, got.dtype)]
        return JudgeFinding("wrong-type", f"{label}: expected {kinds[0]}, got {kinds[1]}", output=label)
    return None


def _words(values: Array) -> Array:
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")


def _element(dtype: Any) -> str:
    with suppress(KeyError, ValueError, TypeError):
        return element_of(dtype)
    return str(dtype)


def _wrong(code: str, reason: str, label: str, got: Array, expected: Expected, outside: Array) -> JudgeFinding:
    index = tuple(int(n) for n in np.argwhere(outside)[0])
    place = f"{label}[{', '.join(map(str, index))}]"
    reach = max(float(expected.high[index] - expected.value[index]), float(expected.value[index] - expected.low[index]))
    text = (
        f"{place} {reason}: expected {float(expected.value[index]):.9g} within {reach:.3g}, got {float(got[index]):.9g}"
    )
    more = int(outside.sum())
    return JudgeFinding(code, f"{text} ({more} of {got.size} elements)", output=label, index=index)
