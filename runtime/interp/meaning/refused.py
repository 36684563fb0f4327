"""Instructions that are checked and that no CPU runs here, each with its reason."""

from __future__ import annotations

from ....dialect.isa.row import Bindings
from ..machine.decode import Context, meaning
from ..machine.state import Action

REASONS = {
    "mul.halves": "the text does not say where it rounds",
    "fours": "the text does not say where it rounds",
    "carry.untold": "ptxas takes this with a carry, and the text does not say what it computes",
    "fma.oob": "the word of the out-of-bounds NaN is not known",
    "cvt.unsigned": "the text does not say what becomes of a negative number",
    "cp.async.bulk.edges": "what the barrier counts of bytes that are left out is not known",
    "mbarrier.reports": "what a barrier reports besides its phase is not simulated",
    "mbarrier.multicast": "signals to several CTAs at once are not simulated",
    "multimem": "memory of several GPUs is not simulated",
    "fabric": "memory behind a fabric is not simulated",
    "tensor.unmodelled": "the interpreter runs tile and im2col mode; im2col::w it does not",
    "tensor.class": "what class of memory a tensor map has is not public",
    "tensor.replace later": "the interpreter has the tensor maps of sm_90a, which have no such field or value",
    "tcgen05.untold": "no public text says what it computes",
    "texture": "textures and surfaces are objects of a driver, which are not simulated",
}
"""Why, by the meaning of the row."""


@meaning(*REASONS)
def refused(ctx: Context, bound: Bindings) -> Action:
    """Raises:
    DecodeError: always, with the reason.
    """
    ctx.fail(f"not supported: {REASONS[ctx.row.means]}")
