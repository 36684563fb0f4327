"""The dialect `warp`, as xDSL registers it."""

from xdsl.ir import Dialect

from .attributes import FragmentType, LayoutAttr, ScheduleAttr, SwizzleAttr, TargetAttr
from .copy import CommitOp, CopyOp, WaitOp
from .elementwise import ConstantOp, ConvertOp, ElementwiseOp, KindAttr
from .memory import LdmatrixOp, LoadOp, StoreOp
from .mma import MmaOp
from .mma_sp import MmaSparseOp

WARP = Dialect(
    "warp",
    [MmaOp, MmaSparseOp, LdmatrixOp, LoadOp, StoreOp, ConstantOp, ElementwiseOp, ConvertOp, CopyOp, CommitOp, WaitOp],
    [FragmentType, KindAttr, LayoutAttr, ScheduleAttr, SwizzleAttr, TargetAttr],
)
