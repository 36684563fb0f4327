"""Convolutions with relu on a GPU, against cuDNN's of the same operands without it, in the same run.

    bench/with_gpu.sh python bench/convolutions.py --json out.json

Images and filters are bf16, channels last. cuDNN chooses its kernel (`torch.backends.cudnn.benchmark`); its output
keeps what is below 0, so that it does less. Each time is the median over replays of a CUDA graph with calls on several
sets of operands, which the L2 cache does not hold together; the graphs of both take turns. Results are compared with
those of float32. `--search` tries further tiles and parts of K, and names the fastest; `--compile` only compiles.
With `--by weights` it is gradients of filters, with `--by data` those of images, against cuDNN's. With
`--first` channels come first in memory, for both. `--only " in "` has those of groups, 32 of 4 channels as `4 in 32`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from warploom.runtime import CompileError, WarploomError, compile

ROTATED_BYTES, MAX_SETS, CALLS, REPLAYS = 150 << 20, 8, 12, 7
LIMIT = 1e-2

TEXT = """
#pixels = affine_map<({all}) -> ({all})>
func.func @f(%X: {x}, %W: {w}) -> {y} {{
  %low = arith.constant 0.0 : bf16
  %zero = arith.constant 0.0 : f32
  {pad}
  %empty = tensor.empty() : {sums}
  %filled = linalg.fill ins(%zero : f32) outs(%empty : {sums}) -> {sums}
  %sums = linalg.{operation} {{strides = dense<{stride}> : tensor<2xi64>, dilations = dense<1> : tensor<2xi64>}}
      ins({read}, %W : {padded}, {w}) outs(%filled : {sums}) -> {sums}
  %out = tensor.empty() : {y}
  %y = linalg.generic {{indexing_maps = [#pixels, #pixels], iterator_types = [{parallel}]}}
      ins(%sums : {sums}) outs(%out : {y}) {{
  ^bb0(%s: f32, %old: bf16):
    %r = arith.maximumf %s, %zero : f32
    %t = arith.truncf %r : f32 to bf16
    linalg.yield %t : bf16
  }} -> {y}
  return %y : {y}
}}
"""

GRADIENT = """
#a = affine_map<({loops}) -> (n, {down}, {right}, {channels})>
#b = affine_map<({loops}) -> ({beside})>
#d = affine_map<({loops}) -> ({of})>
#each = affine_map<({all}) -> ({all})>
func.func @f(%X: {x}, %B: {b}) -> {d} {{
  %low = arith.constant 0.0 : bf16
  %zero = arith.constant 0.0 : f32
  {pad}
  %empty = tensor.empty() : {wide}
  %filled = linalg.fill ins(%zero : f32) outs(%empty : {wide}) -> {wide}
  %sums = linalg.generic {{indexing_maps = [#a, #b, #d], iterator_types = [
      {parallel}, "reduction", "reduction", "reduction"]}}
      ins({read}, %B : {padded}, {b}) outs(%filled : {wide}) {{
  ^bb0(%x: bf16, %g: bf16, %old: f32):
    %0 = arith.extf %x : bf16 to f32
    %1 = arith.extf %g : bf16 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %old, %2 : f32
    linalg.yield %3 : f32
  }} -> {wide}
  %out = tensor.empty() : {d}
  %y = linalg.generic {{indexing_maps = [#each, #each], iterator_types = [{parallel}]}}
      ins(%sums : {wide}) outs(%out : {d}) {{
  ^bb0(%s: f32, %old: bf16):
    %t = arith.truncf %s : f32 to bf16
    linalg.yield %t : bf16
  }} -> {d}
  return %y : {d}
}}
"""

PAD = """%padded = tensor.pad %X low{p} high{p} {{
  ^bb0({indices}):
    tensor.yield %low : bf16
  }} : {x} to {padded}"""


class Layer(NamedTuple):
    """A convolution of square images by a square filter: images, channels, size, features, taps, stride, padding; each
    channel may have a filter of its own, `apart`, or channels and features are in `groups`."""

    model: str
    images: int
    channels: int
    size: int
    features: int
    taps: int = 1
    stride: int = 1
    padding: int = 0
    by: str = "images"
    apart: bool = False
    first: bool = False
    groups: int = 1

    @property
    def result(self) -> int:
        """The size of the result."""
        return (self.size + 2 * self.padding - self.taps) // self.stride + 1

    @property
    def name(self) -> str:
        groups = f" {self.channels // self.groups} in {self.groups}" if self.groups > 1 else ""
        stride = f"{' apart' * self.apart}{groups}{f' s{self.stride}' if self.stride > 1 else ''}"
        return f"{self.model} {self.channels}@{self.size} -> {self.features} {self.taps}x{self.taps}{stride}"

    @property
    def operations(self) -> int:
        channels = 1 if self.apart else self.channels // self.groups
        return 2 * self.images * self.result**2 * self.features * channels * self.taps**2

    @property
    def is_imported(self) -> bool:
        """Whether it is written as the importer writes what PyTorch computes."""
        return (self.by == "data" and self.stride > 1) or (self.by != "images" and self.apart)

    def text(self) -> str:
        n, taps, groups = self.images, (self.taps, self.taps), self.groups
        (c, f), g = ((self.channels, self.features), []) if groups == 1 else (
            (self.channels // groups, self.features // groups), [groups])  # fmt: skip
        x, w, y = [n, self.size, self.size, *g, c], [*g, f, *taps, c], [n, self.result, self.result, *g, f]
        steps, operation = {"stride": str(self.stride)}, "conv_2d_nhwgc_gfhwc" if g else "conv_2d_nhwc_fhwc"
        if self.apart:
            w, operation = [*taps, c], "depthwise_conv_2d_nhwc_hwc"
        if self.first:
            x, w, y, operation = [n, c, *x[1:3]], [f, c, *taps], [n, f, *y[1:3]], "conv_2d_nchw_fchw"
        group = "g, " if g else ""
        if self.is_imported:
            return self._imported()
        if self.by == "data":
            # A pixel of the images is read by all taps: those that lie behind it by one that comes first.
            back = self.taps - 1
            maps = {"loops": f"n, h, w, {group}c, r, s, f", "beside": f"{group}f, r, s, c", "of": f"n, h, w, {group}c",
                    "channels": f"{group}f"}  # fmt: skip
            steps = {"down": f"h - r + {back}", "right": f"w - s + {back}"}
            return self._padded(GRADIENT, y, back - self.padding, b=_tensor(w), d=_tensor(x), **maps, **steps)
        if self.by == "weights":
            maps = {"loops": f"{group}f, r, s, c, n, h, w", "beside": f"n, h, w, {group}f", "of": f"{group}f, r, s, c",
                    "channels": f"{group}c"}  # fmt: skip
            steps = {"down": f"h * {self.stride} + r", "right": f"w * {self.stride} + s"}
            return self._padded(GRADIENT, x, self.padding, b=_tensor(y), d=_tensor(w), **maps, **steps)
        return self._padded(TEXT, x, self.padding, w=_tensor(w), y=_tensor(y), sums=_tensor(y, "f32"),
                            operation=operation, **steps)  # fmt: skip

    def _imported(self) -> str:
        """The gradient of images in larger steps, of which each phase of pixels is a convolution, or one of channels
        with a filter each."""
        import torch

        from warploom.runtime.torch.importer import torch_to_linalg

        groups = self.channels if self.apart else self.groups
        left = self.size - (self.result - 1) * self.stride + 2 * self.padding - self.taps

        steps = [[n] * 2 for n in (self.stride, self.padding, 1)]

        def of_filter(x: Any, slopes: Any) -> Any:
            x, slopes = (each.permute(0, 3, 1, 2) for each in (x, slopes))
            w = x.new_zeros(self.features, self.channels // groups, self.taps, self.taps)
            asked = [[0, 0], groups, [False, True, False]]
            return torch.ops.aten.convolution_backward(slopes, x, w, None, *steps, False, *asked)[1].permute(0, 2, 3, 1)

        def gradient(slopes: Any, w: Any) -> Any:
            first = [each.permute(0, 3, 1, 2) for each in (slopes, w)]
            made = torch.ops.aten.convolution(*first, None, *steps, True, [left] * 2, groups)
            return made.permute(0, 2, 3, 1)

        slopes, x = ((self.images, n, n, c) for n, c in ((self.result, self.features), (self.size, self.channels)))
        w = self.features, self.taps, self.taps, self.channels // groups
        function, shapes = (of_filter, (x, slopes)) if self.by == "weights" else (gradient, (slopes, w))
        return torch_to_linalg(function, *(torch.empty(shape, dtype=torch.bfloat16) for shape in shapes))

    def _padded(self, text: str, sizes: list[int], padding: int, **inputs: str) -> str:
        """The text for images of these sizes with so many zeros around them."""
        around = [0] * len(sizes)
        first = 2 if self.first else 1
        around[first : first + 2] = [padding] * 2
        x, padded = _tensor(sizes), _tensor([size + 2 * by for size, by in zip(sizes, around, strict=True)])
        indices = ", ".join(f"%i{d}: index" for d in range(len(sizes)))
        pad = PAD.format(p=around, x=x, padded=padded, indices=indices) if padding else ""
        every = ", ".join(f"d{d}" for d in range(len(sizes)))
        parallel = ", ".join(['"parallel"'] * len(sizes))
        wide = inputs.get("d", "").replace("bf16", "f32")
        read = "%padded" if padding else "%X"
        return text.format(x=x, padded=padded, pad=pad, read=read, wide=wide, all=every, parallel=parallel, **inputs)


def _tensor(sizes: Sequence[int], element: str = "bf16") -> str:
    return f"tensor<{'x'.join(map(str, sizes))}x{element}>"


def bottlenecks(images: int) -> Iterator[Layer]:
    """The distinct convolutions of ResNet-50."""
    yield Layer("r50", images, 3, 224, 64, 7, 2, 3)
    for size, width, before in ((56, 64, 64), (28, 128, 256), (14, 256, 512), (7, 512, 1024)):
        stride = 1 if before == width else 2
        wide, inner = 4 * width, size * stride
        yield Layer("r50", images, before, inner, width)
        yield Layer("r50", images, width, inner, width, 3, stride, 1)
        yield Layer("r50", images, width, size, wide)
        if stride > 1:
            yield Layer("r50", images, before, inner, wide, 1, 2)
            yield Layer("r50", images, width, size, width, 3, 1, 1)
        yield Layer("r50", images, wide, size, width)


LAYERS = [
    *bottlenecks(64),
    Layer("next", 64, 3, 224, 96, 4, 4),
    *(Layer("next", 64, width, size, 2 * width, 2, 2) for width, size in ((96, 56), (192, 28), (384, 14))),
    *(Layer("next", 64, *wide) for width, size in ((96, 56), (192, 28), (384, 14), (768, 7))
      for wide in ((width, size, 4 * width), (4 * width, size, width))),
    *(Layer("next", 64, width, size, width, 7, 1, 3, apart=True)
      for width, size in ((96, 56), (192, 28), (384, 14), (768, 7))),
    *(Layer("mobile", 64, width, size, width, 3, stride, 1, apart=True) for width, size, stride in (
        (32, 112, 1), (96, 112, 2), (144, 56, 1), (144, 56, 2), (192, 28, 1), (192, 28, 2), (384, 14, 1), (576, 14, 1),
        (576, 14, 2), (960, 7, 1))),
    *(Layer("rx50", 64, width, size * stride, width, 3, stride, 1, groups=32)
      for width, size, stride in ((128, 56, 1), (256, 28, 2), (256, 28, 1), (512, 14, 1), (1024, 7, 1))),
    *(Layer("regnet", 64, width, size, width, 3, 1, 1, groups=width // each)
      for width, size, each in ((216, 28, 24), (448, 28, 64), (576, 14, 24), (896, 14, 64), (1232, 14, 112))),
    *(Layer("sdxl", 2, c, 128, f, 3, 1, 1) for c, f in ((4, 320), (320, 4))),
    *(Layer("sdxl", 2, c, size, f, 3, 1, 1) for c, size, f in (
        (320, 64, 320), (640, 32, 640), (320, 128, 320), (640, 128, 320), (960, 128, 320), (320, 64, 640),
        (640, 64, 640), (1280, 64, 640), (1920, 64, 640), (640, 32, 1280), (1280, 32, 1280), (1920, 32, 1280),
        (2560, 32, 1280))),
    *(Layer("sdxl", 2, c, size, c, 3, 2, 1) for c, size in ((320, 128), (640, 64))),
    *(Layer("sdxl", 2, c, size, f) for c, size, f in ((960, 128, 320), (320, 64, 640), (2560, 32, 1280))),
]  # fmt: skip
"""Those of ResNet-50, of ConvNeXt-T, those of MobileNetV2 with a filter for each channel, those of groups of ResNeXt-50
and RegNet, those of SDXL's network at 1024x1024 pixels."""

TILES = (
    *((128, 256), (256, 128), (192, 128), (128, 192), (192, 160), (128, 160), (128, 128)),
    *((256, 64), (192, 64), (128, 64), (64, 256), (64, 128)),
)


def schedules(layer: Layer) -> list[dict[str, Any]]:
    """What a search tries: the default, then tiles that fit, and parts of K where tiles are few."""
    schedules: list[dict[str, Any]] = [{}]
    rows, columns = layer.images * layer.result**2, layer.features
    depth = layer.channels * layer.taps**2
    if layer.by == "weights":
        rows, columns, depth = layer.features, depth, rows
    if layer.by == "data":
        rows, columns, depth = layer.images * layer.size**2, layer.channels, layer.features * layer.taps**2
    for m, n in () if layer.apart else TILES:
        if n > columns or (columns % n and n > 128) or m > max(128, rows):
            continue
        tiles = -(-rows // m) * -(-columns // n)
        tile = {"cta": (m, n, 64), "mma": f"m64n{n}k16"}
        schedules.append({**tile, "ctas": 132} if tiles > 132 else tile)
        if m >= 128 <= n:
            schedules += [{**schedules[-1], "cluster": cluster} for cluster in ("2x1", "1x2")]
        if tiles <= 66 and depth >= 1024:
            schedules += [{**tile, "split_k": parts} for parts in {2, 132 // tiles} if depth >= 256 * parts]
    return schedules


@dataclass
class Row:
    """One layer: microseconds of both, the share of cuDNN's speed, and the error against float32."""

    layer: str
    ours: float
    cudnn: float
    share: float
    error: float
    schedule: str


def compiled(layer: Layer, schedule: dict[str, Any]) -> Any:
    """The kernel; None for a schedule that does not fit."""
    try:
        return compile(layer.text(), target="sm_90a", **schedule)
    except CompileError as error:
        if not schedule:
            raise
        print(f"{layer.name} {schedule}: {str(error).splitlines()[0]}", file=sys.stderr)
        return None


def _try_compile(task: tuple[Layer, dict[str, Any]]) -> str:
    layer, schedule = task
    try:
        kernel = compiled(layer, schedule)
        return "" if kernel is None or kernel.cubin else "no machine code"
    except Exception as error:  # a worker says what went wrong, and the others go on
        return f"{layer.name} {schedule}: {str(error).splitlines()[0]}"


class Graphs:
    """Times calls by CUDA graphs."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch

    def of(self, make: Callable[[], Sequence[Callable[[], object]]]) -> tuple[Any, int]:
        """A graph of calls, which are made for the stream that is current then, and how many it has."""
        torch, stream = self.torch, self.torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            calls = make()
            for call in calls:
                call()
            stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            times = -(-CALLS // len(calls))
            with torch.cuda.graph(graph, stream=stream):
                for _ in range(times):
                    for call in calls:
                        call()
        return graph, times * len(calls)

    def microseconds(self, graphs: Sequence[tuple[Any, int]], replays: int = REPLAYS) -> list[float]:
        """The median time of a call in each of some graphs, which take turns."""
        torch, times = self.torch, [list[float]() for _ in graphs]
        for _ in range(replays + 1):
            for (graph, calls), seen in zip(graphs, times, strict=True):
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                graph.replay()
                end.record()
                end.synchronize()
                seen.append(1e3 * start.elapsed_time(end) / calls)
        return [statistics.median(seen[1:]) for seen in times]


def measure(torch: Any, layer: Layer, *, search: bool) -> Row:
    """Times a layer."""
    graphs = Graphs(torch)
    shapes = (layer.images, layer.channels, layer.size, layer.size), (
        layer.features, 1 if layer.apart else layer.channels // layer.groups, layer.taps, layer.taps), (
        layer.images, layer.features, layer.result, layer.result)  # fmt: skip
    elements = sum(a * b * c * d for a, b, c, d in shapes)
    sets: list[list[Any]] = []
    for _ in range(min(MAX_SETS, max(2, -(-ROTATED_BYTES // (2 * elements))))):
        drawn = (torch.randn(shape, device="cuda").to(torch.bfloat16) for shape in shapes)
        order = torch.contiguous_format if layer.first else torch.channels_last
        sets.append([each.to(memory_format=order) for each in drawn])
    torch.backends.cudnn.benchmark = False
    order = {"images": (0, 1, 2), "weights": (0, 2, 1), "data": (2, 1, 0)}[layer.by]
    asked = [layer.by == "data", layer.by == "weights", False]

    groups = layer.channels if layer.apart else layer.groups

    def peer(x: Any, w: Any, y: Any) -> Any:
        if layer.by == "images":
            return torch.nn.functional.conv2d(x, w, stride=layer.stride, padding=layer.padding, groups=groups)
        steps = [[layer.stride] * 2, [layer.padding] * 2, [1, 1], False, [0, 0], groups, asked]
        return next(made for made in torch.ops.aten.convolution_backward(y, x, w, None, *steps) if made is not None)

    made = sets[0][order[-1]]
    exact = peer(*(each.float() for each in sets[0]))
    exact = exact.relu() if layer.by == "images" else exact
    torch.backends.cudnn.benchmark = True

    def ours(kernel: Any) -> tuple[Any, int]:
        for each in sets:
            each[order[-1]].fill_(float("nan"))

        def operand_of(each: list[Any], number: int) -> Any:
            if layer.first:
                return each[number]
            if number != 1 or not layer.apart or layer.is_imported:
                last = each[number].permute(0, 2, 3, 1)
                plain = layer.groups == 1 or layer.is_imported
                return last if plain else last.unflatten(0 if number == 1 else -1, (layer.groups, -1))
            return each[number].squeeze(1).permute(1, 2, 0).contiguous()

        return graphs.of(lambda: [kernel.prepare(*(operand_of(each, i) for i in order)) for each in sets])

    theirs = graphs.of(lambda: [lambda each=each: peer(*each) for each in sets])
    tried: list[tuple[float, str, Any, Any]] = []
    for schedule in schedules(layer) if search else [{}]:
        if (kernel := compiled(layer, schedule)) is not None:
            graph = ours(kernel)
            tried.append((graphs.microseconds([graph], 3)[0], str(schedule or "default"), graph, kernel))
    tried.sort(key=lambda one: one[0])
    if search:
        print(f"  {layer.name}: {'; '.join(f'{time:.1f} {schedule}' for time, schedule, *_ in tried[:6])}")
    _, _, best, kernel = tried[0]
    mine, cudnn = graphs.microseconds([best, theirs])
    error = float((made.float() - exact).norm() / exact.norm())
    if not error < LIMIT:
        raise ArithmeticError(f"relative error {error:.1e} with {kernel.schedule}")
    return Row(layer.name, mine, cudnn, cudnn / mine, error, str(kernel.schedule[-1] if kernel.schedule else ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="layers whose names have this, or one of several with commas")
    parser.add_argument("--by", choices=("images", "weights", "data"), default="images")
    parser.add_argument("--first", action="store_true", help="channels come first, for both")
    parser.add_argument("--search", action="store_true")
    parser.add_argument("--compile", type=int, default=0, metavar="PROCESSES", help="only compile")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    parts = args.only.split(",")
    layers = [layer._replace(by=args.by, first=args.first) for layer in LAYERS
              if any(part in layer.name for part in parts) and (args.by != "data" or layer.channels > 3)]  # fmt: skip
    if args.compile:
        tasks = [(layer, schedule) for layer in layers for schedule in (schedules(layer) if args.search else [{}])]
        with ProcessPoolExecutor(args.compile) as pool:
            print("\n".join(filter(None, pool.map(_try_compile, tasks))), f"{len(tasks)} kernels")
        return
    import torch

    print(torch.cuda.get_device_name(), f"cuDNN {torch.backends.cudnn.version()}")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    rows, wrong = list[Row](), list[str]()
    for layer in layers:
        try:
            row = measure(torch, layer, search=args.search)
        except (ArithmeticError, RuntimeError, WarploomError) as error:
            wrong.append(f"{layer.name}: {error}"[:400])
            print(wrong[-1], flush=True)
            continue
        rate = layer.operations / row.ours / 1e6
        rows.append(row)
        print(f"{row.layer:32} {row.ours:8.1f} us {rate:5.0f} TFLOP/s, cuDNN {row.cudnn:8.1f} us: {row.share:5.2f} "
              f"{row.error:.1e} {row.schedule}", flush=True)  # fmt: skip
        if args.json:
            args.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    shares = [row.share for row in rows]
    print(f"mean {statistics.geometric_mean(shares):.3f}, least {min(shares):.2f}, of {len(shares)}")
    if wrong:
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    main()
