"""The dialect `warp`, as xDSL registers it."""

from xdsl.ir import Attribute, Dialect, Operation

from .attention import AttentionOp
from .attributes import FragmentType, LayoutAttr, ScheduleAttr, TargetAttr
from .barriers import ArriveCopiesOp, ArriveOp, AwaitOp, BarriersType, MakeBarriersOp
from .bits import FunnelShiftOp, LoadBitsOp, StoreBitsOp
from .clusters import ClusterArriveOp, ClusterBarrierOp, ClusterRankOp, ClusterWaitOp, NamedBarrierOp
from .convert_layout import ConvertLayoutOp
from .copy import CommitOp, CopyOp, PackOp, WaitOp
from .cta_tile import CtaConstantOp, CtaLoadOp, CtaTileType
from .disjoint import DisjointOp
from .divisible import AssumeDivisibleOp, IsDivisibleOp
from .elements import YieldOp
from .elementwise import ConstantOp, ConvertOp, ElementwiseOp, KindAttr
from .epilogue import LoadVectorOp, MapOp, SubfragmentOp
from .exchange import ExchangeOp, LoadBankedOp, OwnRowOp, StoreBankedOp
from .gelu import GeluOp
from .indices import IndexOp
from .matmul import MatmulOp
from .memory import LdmatrixOp, LoadOp, PrefetchOp, StoreOp
from .mma import MmaOp
from .mma_sp import MmaSparseOp
from .moves import MovmatrixOp, StmatrixOp
from .opaque import OpaqueType
from .operand_forms import OperandType
from .partial_sums import AddPartsOp, ArriveLastOp, StorePartOp
from .pointwise import PointwiseOp, PointwiseType
from .registers import LoadRegistersOp, StoreRegistersOp
from .row_wise import AcrossOp, RowsOp
from .rows import BroadcastOp, ReduceOp, StepOp
from .scaling import LoadScalesOp, ScaledOp
from .sliced_k import SumSlicedKOp
from .sparse import LoadMetadataOp, SparseOp
from .store_epilogue import EpilogueOp
from .stored import StoredOp
from .swizzle import SwizzleAttr
from .synchronisation import AtomicIncOp, BarrierAnyOp, ElectOp, SyncLanesOp
from .tensor_copies import (
    BulkCommitOp,
    BulkWaitOp,
    ExpectOp,
    ProxyFenceOp,
    TensorLoadOp,
    TensorStoreOp,
)
from .tensor_maps import EncodeTensorMapOp, TensorMapType
from .tile_mma import TileMmaOp
from .view import MatrixOp
from .warpgroup import SetRegistersOp, WgmmaCommitOp, WgmmaFenceOp, WgmmaOp, WgmmaWaitOp
from .window import WindowOp
from .wmma import WmmaLoadOp, WmmaMmaOp, WmmaStoreOp
from .words import LoadWordsOp, StoreWordsOp

_PRODUCTS: list[type[Operation]] = [MatmulOp, AttentionOp, RowsOp, MmaOp, MmaSparseOp, WmmaMmaOp]
_FORMS: list[type[Operation]] = [SparseOp, ScaledOp, StoredOp]
_CTA_TILES: list[type[Operation]] = [CtaConstantOp, CtaLoadOp, TileMmaOp, EpilogueOp, PointwiseOp]
_MOVES: list[type[Operation]] = [LdmatrixOp, StmatrixOp, MovmatrixOp, WmmaLoadOp, WmmaStoreOp]
_EXCHANGE: list[type[Operation]] = [ExchangeOp, OwnRowOp, StoreBankedOp, LoadBankedOp, SyncLanesOp]
_MEMORY: list[type[Operation]] = [
    LoadOp,
    PrefetchOp,
    StoreOp,
    LoadRegistersOp,
    StoreRegistersOp,
    LoadWordsOp,
    StoreWordsOp,
    LoadMetadataOp,
    LoadScalesOp,
    CopyOp,
    PackOp,
    LoadBitsOp,
    StoreBitsOp,
    FunnelShiftOp,
    MatrixOp,
    WindowOp,
    DisjointOp,
    IsDivisibleOp,
    AssumeDivisibleOp,
    CommitOp,
    WaitOp,
]
_BARRIERS: list[type[Operation]] = [MakeBarriersOp, ArriveOp, ArriveCopiesOp, AwaitOp]
_ARITHMETIC: list[type[Operation]] = [ConstantOp, ElementwiseOp, ConvertOp, SumSlicedKOp, YieldOp]
_EPILOGUE: list[type[Operation]] = [
    LoadVectorOp,
    MapOp,
    SubfragmentOp,
    IndexOp,
    GeluOp,
    AcrossOp,
    ReduceOp,
    BroadcastOp,
    StepOp,
    ConvertLayoutOp,
]
_PARTS: list[type[Operation]] = [StorePartOp, ArriveLastOp, AddPartsOp, AtomicIncOp, BarrierAnyOp, ElectOp]
_WARPGROUPS: list[type[Operation]] = [WgmmaOp, WgmmaFenceOp, WgmmaCommitOp, WgmmaWaitOp, SetRegistersOp]
_TENSORS: list[type[Operation]] = [
    EncodeTensorMapOp,
    TensorLoadOp,
    TensorStoreOp,
    ExpectOp,
    BulkCommitOp,
    BulkWaitOp,
    ProxyFenceOp,
]
_CLUSTERS: list[type[Operation]] = [ClusterRankOp, ClusterBarrierOp, ClusterArriveOp, ClusterWaitOp, NamedBarrierOp]
_ATTRIBUTES: list[type[Attribute]] = [
    BarriersType,
    CtaTileType,
    FragmentType,
    OpaqueType,
    OperandType,
    PointwiseType,
    KindAttr,
    LayoutAttr,
    ScheduleAttr,
    SwizzleAttr,
    TargetAttr,
    TensorMapType,
]

_OPERATIONS = [
    *(*_PRODUCTS, *_FORMS, *_CTA_TILES, *_MOVES, *_EXCHANGE, *_MEMORY, *_BARRIERS),
    *(*_ARITHMETIC, *_EPILOGUE, *_PARTS, *_WARPGROUPS, *_TENSORS, *_CLUSTERS),
]

WARP = Dialect("warp", _OPERATIONS, _ATTRIBUTES)
