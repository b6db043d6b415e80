"""ctypes binding of the phases: the structures of ``phases/*.h``, and the two libraries that take them.

Addresses are of memory that the library's side can read: the device's, or the host's for the twin. No call checks
shapes; ``engine/ops.py`` does. Calls release the interpreter lock and return before the device is done.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

from cuda_ext import toolkit

POINTER, I32, I64, F32 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_float
FLOAT32, FLOAT16, BFLOAT16, INT8 = 0, 1, 2, 3
"""``Kind`` of portable.h."""
VECTOR = 8
"""Every inner width is a multiple of this."""
MOST_POSITIONS = 1024
"""Of the keys that one query is held against."""
MOST_BOOKS = 128
MOST_POINTS = 2048
"""Of the inverse transform."""
NO_ROPE, ROPE_PAIRS, ROPE_HALVES = 0, 1, 2


def _named(kind: type, names: str) -> list[tuple[str, type]]:
    return [(name, kind) for name in names.split()]


class Matrix(ctypes.Structure):
    _fields_ = [*_named(POINTER, "data scale"), *_named(I32, "kind inputs outputs reserved")]


class Draws(ctypes.Structure):
    _fields_ = [
        *_named(POINTER, "seed generation step top_k temperature"),
        *_named(I32, "seed_stride generation_stride step_stride top_k_stride temperature_stride reserved"),
    ]


class DepthLayer(ctypes.Structure):
    _fields_ = _named(POINTER, "norm1 norm2 scale1 scale2")


class DepthSet(ctypes.Structure):
    _fields_ = _named(Matrix, "qkv out up down")


class DepthBook(ctypes.Structure):
    _fields_ = [
        *_named(Matrix, "input head"),
        *_named(POINTER, "embedding bias norm"),
        *_named(I32, "set embedding_kind"),
    ]


class Depth(ctypes.Structure):
    _fields_ = [
        *_named(POINTER, "layers sets books"),
        *_named(I32, "layer_count set_count book_count dim heads card widest"),
        ("eps", F32),
    ]


class DepthCall(ctypes.Structure):
    _fields_ = [
        *_named(POINTER, "hidden first forced tokens logits scratch"),
        ("draws", Draws),
        *_named(POINTER, "guided_rows strength"),
        *_named(I64, "logit_stride logit_step"),
        *_named(I32, "rows drawn main_dim reserved"),
    ]


class Cross(ctypes.Structure):
    _fields_ = [*_named(POINTER, "norm scale"), *_named(Matrix, "q out")]


class BackboneLayer(ctypes.Structure):
    _fields_ = [
        *_named(POINTER, "norm1 norm2 scale1 scale2"),
        *_named(Matrix, "qkv out up down"),
        ("cross", Cross),
    ]


class Backbone(ctypes.Structure):
    _fields_ = [
        *_named(POINTER, "layers out_norm frequencies"),
        *_named(I32, "layer_count dim heads context capacity kind rope"),
        *_named(F32, "eps cross_eps"),
        ("widest", I32),
    ]


class BackboneCall(ctypes.Structure):
    _fields_ = [
        *_named(POINTER, "x hidden kv slots steps commit voices voice voice_length scratch"),
        *_named(I32, "rows voice_positions voice_kind reserved"),
    ]


class Guided(ctypes.Structure):
    _fields_ = [*_named(POINTER, "rows strength logits"), *_named(I32, "count reserved")]


class Sample(ctypes.Structure):
    _fields_ = [
        *_named(POINTER, "logits tokens forced"),
        ("draws", Draws),
        ("guided", Guided),
        ("row_stride", I64),
        *_named(I32, "rows card codebook token_stride"),
    ]


class Attend(ctypes.Structure):
    _fields_ = [
        *_named(POINTER, "q keys values out index steps length"),
        ("row_stride", I64),
        *_named(I32, "rows heads head_dim positions kind reserved"),
    ]


class TextStep(ctypes.Structure):
    _fields_ = [
        *_named(POINTER, "state ring word_begin entries slots sampled token word commit next"),
        *_named(I64, "card padding"),
        *_named(I32, "rows ahead token_ring entry_ring"),
    ]


class InverseFft(ctypes.Structure):
    _fields_ = [
        *_named(POINTER, "heads circle window waves"),
        *_named(I32, "count radix1 radix2"),
        ("log_magnitude_max", F32),
    ]


class OverlapAdd(ctypes.Structure):
    _fields_ = [
        *_named(POINTER, "waves lines samples slots commit"),
        ("line_stride", I64),
        *_named(I32, "rows subframes n hop"),
    ]


class Convolve(ctypes.Structure):
    _fields_ = [
        *_named(POINTER, "x pasts slots commit weight bias residual y"),
        ("past_stride", I64),
        *_named(I32, "rows time inputs outputs kernel dilation elu reserved"),
    ]


STRUCTURES: tuple[type[ctypes.Structure], ...] = (
    *(Matrix, Draws, DepthLayer, DepthSet, DepthBook, Depth, DepthCall, Cross, BackboneLayer, Backbone, BackboneCall),
    *(Guided, Sample, Attend, TextStep, InverseFft, OverlapAdd, Convolve),
)


@functools.cache
def library(side: str) -> ctypes.CDLL:
    """The phases for tensors on ``side``: ``cuda``, or ``cpu`` for the host twin. Built if need be.

    Raises:
        cuda_ext.build.BuildError: it cannot be built here.
    """
    return bound(toolkit.device_library() if side == "cuda" else toolkit.twin_library())


def bound(path: Path) -> ctypes.CDLL:
    lib = ctypes.CDLL(str(path))
    results: dict[str, tuple[type | None, int]] = {
        "sizes": (None, 1),
        "depth": (I32, 4),
        "backbone": (I32, 3),
        "sample": (I32, 2),
        "attend": (I32, 2),
        "text": (I32, 2),
        "spectral": (I32, 3),
        "convolve": (I32, 2),
    }
    for name, (result, pointers) in results.items():
        function = getattr(lib, f"antiphon_phase_{name}")
        function.restype, function.argtypes = result, [POINTER] * pointers
    for name in ("depth", "backbone"):
        function = getattr(lib, f"antiphon_phase_{name}_scratch")
        function.restype, function.argtypes = I64, [POINTER, I32]
    return lib
