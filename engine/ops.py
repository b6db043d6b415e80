"""The phases of ``cuda_ext`` as torch operators, on CUDA tensors and, by the host twin, on CPU tensors.

Each is one call on the current stream that neither allocates outside torch's allocator nor waits, so all may be
captured into a CUDA graph. Tensors are of one device; inner dimensions are contiguous, an outermost one may have any
stride. ``handle``: the address of a packed model (``engine/packing.py``), which its owner keeps alive.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from cuda_ext import device as d
from cuda_ext.build import BuildError
from engine.errors import KernelError
from engine.sampling import Draws
from engine.text import FIELDS

KINDS = {torch.float32: d.FLOAT32, torch.float16: d.FLOAT16, torch.bfloat16: d.BFLOAT16, torch.int8: d.INT8}
_SIDES = ("cpu", "cuda")


def available(side: str) -> bool:
    """Whether the operators can run on ``side`` (``cuda`` or ``cpu``) here. Builds them if need be."""
    try:
        d.library(side)
    except BuildError:
        return False
    return True


def address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def call(name: str, like: Tensor, *structures: ctypes.Structure, counter: Tensor | None = None) -> None:
    """Raises KernelError if the launch is refused."""
    side = like.device.type
    stream = torch.cuda.current_stream(like.device).cuda_stream if side == "cuda" else None
    arguments = [ctypes.addressof(structure) for structure in structures]
    words = [] if counter is None else [counter.data_ptr()]
    code = getattr(d.library(side), f"antiphon_phase_{name}")(*arguments, *words, stream)
    if code:
        raise KernelError(f"the launch of {name!r} was refused with CUDA error {code}")


def draws_of(draws: Draws) -> d.Draws:
    columns = (draws.seed, draws.generation, draws.step, draws.top_k, draws.temperature)
    assert draws.temperature.dtype == torch.float32
    return d.Draws(*(column.data_ptr() for column in columns), *(column.stride(0) for column in columns), 0)


@torch.library.custom_op("antiphon::sample", mutates_args=(), device_types=_SIDES)
def sample(
    logits: Tensor, seed: Tensor, generation: Tensor, step: Tensor, temperature: Tensor, top_k: Tensor, codebook: int
) -> Tensor:
    """``engine.sampling.sample``: logits float32 [rows, card] -> int64 [rows]"""
    rows, card = logits.shape
    assert logits.dtype == torch.float32
    assert logits.stride(1) == 1
    tokens = torch.empty(rows, dtype=torch.int64, device=logits.device)
    drawn = draws_of(Draws(seed, generation, step, temperature, top_k))
    sizes = (logits.stride(0), rows, card, codebook, 1)
    call("sample", logits, d.Sample(logits.data_ptr(), tokens.data_ptr(), None, drawn, d.Guided(), *sizes))
    return tokens


@sample.register_fake
def _(
    logits: Tensor, seed: Tensor, generation: Tensor, step: Tensor, temperature: Tensor, top_k: Tensor, codebook: int
) -> Tensor:
    return logits.new_empty(logits.shape[0], dtype=torch.int64)


@torch.library.custom_op("antiphon::attend", mutates_args=(), device_types=_SIDES)
def attend(
    q: Tensor, keys: Tensor, values: Tensor, index: Tensor | None, steps: Tensor | None, length: Tensor | None
) -> Tensor:
    """q: float32 [rows, heads, head_dim]; keys, values: [table, heads, positions, head_dim] -> float32 as q. index:
    int64 [rows], rows of the table, None: its first; steps: int64 [rows], positions that a ring has had before this
    one; or length: int64 [rows], how many positions count."""
    rows, heads, head_dim = q.shape
    positions = keys.shape[2]
    assert positions <= d.MOST_POSITIONS, f"{positions} positions, at most {d.MOST_POSITIONS}"
    assert head_dim % d.VECTOR == 0
    assert keys.stride() == values.stride()
    assert keys[0].is_contiguous()
    q = q.contiguous()
    out = torch.empty_like(q)
    pointers = (q, keys, values, out, index, steps, length)
    sizes = (keys.stride(0), rows, heads, head_dim, positions, KINDS[keys.dtype], 0)
    call("attend", q, d.Attend(*(address(tensor) for tensor in pointers), *sizes))
    return out


@attend.register_fake
def _(
    q: Tensor, keys: Tensor, values: Tensor, index: Tensor | None, steps: Tensor | None, length: Tensor | None
) -> Tensor:
    return torch.empty(q.shape, dtype=q.dtype, device=q.device)


@torch.library.custom_op("antiphon::text_step", mutates_args=(), device_types=_SIDES)
def text_step(
    state: Tensor,
    tokens: Tensor,
    word_begin: Tensor,
    entries: Tensor,
    slots: Tensor,
    sampled: Tensor,
    ahead: int,
    card: int,
    padding: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``engine.text.advance``: token int64, word bool, commit bool [rows], and the next state int64 [rows, FIELDS]."""
    rows = len(slots)
    out = _text_outputs(state, rows)
    inputs = (state, tokens, word_begin, entries, slots.contiguous(), sampled.contiguous())
    assert all(tensor.is_contiguous() for tensor in inputs)
    addresses = [tensor.data_ptr() for tensor in (*inputs, *out)]
    sizes = (card, padding, rows, ahead, tokens.shape[1], word_begin.shape[1])
    call("text", state, d.TextStep(*addresses, *sizes))
    return out


@text_step.register_fake
def _(
    state: Tensor,
    tokens: Tensor,
    word_begin: Tensor,
    entries: Tensor,
    slots: Tensor,
    sampled: Tensor,
    ahead: int,
    card: int,
    padding: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _text_outputs(state, slots.shape[0])


def _text_outputs(like: Tensor, rows: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    flags = (like.new_empty(rows, dtype=torch.bool) for _ in range(2))
    return (like.new_empty(rows), *flags, like.new_empty(rows, FIELDS))  # type: ignore[return-value]


@torch.library.custom_op("antiphon::depth_frame", mutates_args=("counter",), device_types=_SIDES)
def depth_frame(
    hidden: Tensor,
    first: Tensor,
    seed: Tensor,
    generation: Tensor,
    step: Tensor,
    temperature: Tensor,
    top_k: Tensor,
    forced: Tensor | None,
    guided_rows: Tensor | None,
    strength: Tensor | None,
    counter: Tensor,
    handle: int,
    books: int,
    card: int,
) -> tuple[Tensor, Tensor]:
    """``engine.depth.frame``: hidden float32 [rows, main_dim], first float32 [rows, dim]; rows behind the drawn ones
    are those that guide ``guided_rows``. counter: int32 [1], zero at first, of one stream alone -> tokens int64
    [drawn, books], logits float32 [rows, books, card] (guided where drawn)."""
    rows, drawn = len(hidden), len(seed)
    assert hidden.dtype == first.dtype == torch.float32
    model = d.Depth.from_address(handle)
    tokens, logits = _depth_outputs(hidden, drawn, books, card)
    scratch = hidden.new_empty(d.library(hidden.device.type).antiphon_phase_depth_scratch(handle, rows))
    hidden, first, forced = hidden.contiguous(), first.contiguous(), None if forced is None else forced.contiguous()
    inputs = (hidden, first, forced, tokens, logits, scratch)
    drawing = draws_of(Draws(seed, generation, step, temperature, top_k))
    guides = (address(guided_rows), address(strength))
    sizes = (books * card, card, rows, drawn, hidden.shape[1], 0)
    assert rows == drawn + (0 if guided_rows is None else len(guided_rows))
    call_ = d.DepthCall(*(address(tensor) for tensor in inputs), drawing, *guides, *sizes)
    call("depth", hidden, model, call_, counter=counter)
    return tokens, logits


@depth_frame.register_fake
def _(
    hidden: Tensor,
    first: Tensor,
    seed: Tensor,
    generation: Tensor,
    step: Tensor,
    temperature: Tensor,
    top_k: Tensor,
    forced: Tensor | None,
    guided_rows: Tensor | None,
    strength: Tensor | None,
    counter: Tensor,
    handle: int,
    books: int,
    card: int,
) -> tuple[Tensor, Tensor]:
    return _depth_outputs(hidden, seed.shape[0], books, card)


def _depth_outputs(hidden: Tensor, drawn: int, books: int, card: int) -> tuple[Tensor, Tensor]:
    return hidden.new_empty(drawn, books, dtype=torch.int64), hidden.new_empty(hidden.shape[0], books, card)


@torch.library.custom_op("antiphon::backbone_step", mutates_args=("x", "kv"), device_types=_SIDES)
def backbone_step(
    x: Tensor,
    kv: Tensor,
    slots: Tensor,
    steps: Tensor,
    commit: Tensor | None,
    voices: Tensor | None,
    voice: Tensor | None,
    voice_length: Tensor | None,
    handle: int,
) -> Tensor:
    """``engine.backbone.step``: x float32 [rows, dim], overwritten -> normalised hidden states float32 [rows, dim].
    commit: bool [rows] or None: which rows write keys and values; voices: as ``Heard.keys_values``."""
    assert x.dtype == torch.float32
    assert x.is_contiguous()
    assert kv.is_contiguous()
    model = d.Backbone.from_address(handle)
    hidden = torch.empty_like(x)
    scratch = x.new_empty(d.library(x.device.type).antiphon_phase_backbone_scratch(handle, len(x)))
    slots, steps = slots.contiguous(), steps.contiguous()
    inputs = (x, hidden, kv, slots, steps, commit, voices, voice, voice_length, scratch)
    sizes = (0, 0) if voices is None else (voices.shape[4], KINDS[voices.dtype])
    call("backbone", x, model, d.BackboneCall(*(address(tensor) for tensor in inputs), len(x), *sizes, 0))
    return hidden


@backbone_step.register_fake
def _(
    x: Tensor,
    kv: Tensor,
    slots: Tensor,
    steps: Tensor,
    commit: Tensor | None,
    voices: Tensor | None,
    voice: Tensor | None,
    voice_length: Tensor | None,
    handle: int,
) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("antiphon::spectral_wave", mutates_args=("lines",), device_types=_SIDES)
def spectral_wave(
    heads: Tensor,
    lines: Tensor,
    slots: Tensor,
    commit: Tensor,
    circle: Tensor,
    window: Tensor,
    radix: int,
    hop: int,
    log_magnitude_max: float,
) -> Tensor:
    """The end of ``engine.codec.spectral.decode``: heads float32 [rows, subframes, 2 * (n / 2 + 1)]; lines [slots, n],
    advanced where committed; circle: [n, 2]; window: [n], the gain and 1 / n included; radix: a factor of n
    -> samples [rows, subframes * hop]."""
    rows, subframes, _ = heads.shape
    n = len(window)
    assert n % radix == 0
    assert hop <= n <= min(d.MOST_POINTS, subframes * hop)
    assert lines.stride(1) == 1
    heads = heads.contiguous()
    waves, samples = heads.new_empty(rows, subframes, n), heads.new_empty(rows, subframes * hop)
    inputs = (address(tensor) for tensor in (heads, circle, window, waves))
    transform = d.InverseFft(*inputs, rows * subframes, n // radix, radix, log_magnitude_max)
    outputs = (address(tensor) for tensor in (waves, lines, samples, slots.contiguous(), commit))
    call("spectral", heads, transform, d.OverlapAdd(*outputs, lines.stride(0), rows, subframes, n, hop))
    return samples


@spectral_wave.register_fake
def _(
    heads: Tensor,
    lines: Tensor,
    slots: Tensor,
    commit: Tensor,
    circle: Tensor,
    window: Tensor,
    radix: int,
    hop: int,
    log_magnitude_max: float,
) -> Tensor:
    return heads.new_empty(heads.shape[0], heads.shape[1] * hop)


@torch.library.custom_op("antiphon::elu_convolve", mutates_args=("pasts",), device_types=_SIDES)
def elu_convolve(
    x: Tensor,
    pasts: Tensor,
    slots: Tensor,
    commit: Tensor,
    weight: Tensor,
    bias: Tensor,
    residual: Tensor | None,
    dilation: int,
    elu: bool,
) -> Tensor:
    """``engine.codec.mimi.convolution.convolve`` of ELU(x) (or x), plus ``residual``: x float32 [rows, time, inputs];
    pasts: [slots, length * inputs], advanced where committed (what is kept has seen no ELU) -> [rows, time, outputs]"""
    rows, time, inputs = x.shape
    outputs, kernel, _ = weight.shape
    assert pasts.shape[1] == (kernel - 1) * dilation * inputs
    assert pasts.shape[1] == 0 or pasts.stride(1) == 1
    x, y = x.contiguous(), x.new_empty(rows, time, outputs)
    residual = None if residual is None else residual.contiguous()
    tensors = (x, pasts, slots.contiguous(), commit, weight.contiguous(), bias, residual, y)
    sizes = (pasts.stride(0), rows, time, inputs, outputs, kernel, dilation, int(elu), 0)
    call("convolve", x, d.Convolve(*(address(tensor) for tensor in tensors), *sizes))
    return y


@elu_convolve.register_fake
def _(
    x: Tensor,
    pasts: Tensor,
    slots: Tensor,
    commit: Tensor,
    weight: Tensor,
    bias: Tensor,
    residual: Tensor | None,
    dilation: int,
    elu: bool,
) -> Tensor:
    return x.new_empty(x.shape[0], x.shape[1], weight.shape[0])
