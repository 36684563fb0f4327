"""The dialect `warp`, as xDSL registers it."""

from xdsl.ir import Attribute, Dialect, Operation

from .assumptions import AssumeDivisibleOp, DisjointOp, IsDivisibleOp
from .attention import AcrossOp, AttentionOp, BroadcastOp, ReduceOp, RowsOp, StepOp
from .attributes import FragmentType, LayoutAttr, ScheduleAttr, SwizzleAttr, TargetAttr
from .cta import CommitOp, CopyOp, CtaConstantOp, CtaLoadOp, CtaTileType, PackOp, WaitOp
from .elements import GeluOp, IndexOp, PointwiseOp, PointwiseType, YieldOp
from .epilogue import EpilogueOp, LoadVectorOp, MapOp, SubfragmentOp
from .exchange import ExchangeOp, LoadBankedOp, MovmatrixOp, OwnRowOp, StmatrixOp, StoreBankedOp
from .fragments import ConstantOp, ConvertLayoutOp, ConvertOp, ElementwiseOp, KindAttr
from .matmul import MatmulOp
from .memory import LdmatrixOp, LoadOp, PrefetchOp, StoreOp
from .mma import MmaOp
from .operands import LoadMetadataOp, LoadScalesOp, OperandType, ScaledOp, SparseOp
from .synchronisation import (
    ArriveCopiesOp,
    ArriveOp,
    AtomicIncOp,
    AwaitOp,
    BarrierAnyOp,
    BarriersType,
    ClusterArriveOp,
    ClusterBarrierOp,
    ClusterRankOp,
    ClusterWaitOp,
    ElectOp,
    MakeBarriersOp,
    NamedBarrierOp,
    SyncLanesOp,
)
from .tensor_copies import (
    BulkCommitOp,
    BulkWaitOp,
    ExpectOp,
    ProxyFenceOp,
    TensorLoadOp,
    TensorStoreOp,
)
from .tensor_maps import EncodeTensorMapOp, TensorMapType
from .tile_mma import AddPartsOp, ArriveLastOp, StorePartOp, SumSlicedKOp, TileMmaOp
from .views import MatrixOp, StoredOp, WindowOp
from .warpgroup import SetRegistersOp, WgmmaCommitOp, WgmmaFenceOp, WgmmaOp, WgmmaWaitOp
from .wmma import OpaqueType, WmmaLoadOp, WmmaMmaOp, WmmaStoreOp
from .words import FunnelShiftOp, LoadBitsOp, LoadRegistersOp, LoadWordsOp, StoreBitsOp, StoreRegistersOp, StoreWordsOp

_PRODUCTS: list[type[Operation]] = [MatmulOp, AttentionOp, RowsOp, MmaOp, WmmaMmaOp]
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
