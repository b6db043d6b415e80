"""The reference's own golden fixture (``moshi_test_lm/README.md``): a tiny model whose logits Kyutai published."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from engine import backbone, depth
from engine.fields import Fields
from engine.language import LanguageModel, read_language_model
from engine.manifest import read_model_config
from engine.sampling import Draws
from engine.tensors import TensorFile

FOLDER = Path(__file__).parent / "moshi_test_lm"
CONFIG = {
    "delays": [0, 1, 2, 4],
    "n_q": 3,
    "dep_q": 3,
    "card": 32,
    "text_card": 48,
    "dim": 16,
    "num_layers": 2,
    "num_heads": 1,
    "hidden_scale": 1,
    "depformer_dim": 16,
    "depformer_multi_linear": True,
    "depformer_weights_per_step": True,
    "depformer_weights_per_step_schedule": [0, 1, 1],
    "depformer_low_rank_embeddings": 8,
    "depformer_num_heads": 1,
    "depformer_gating": "silu",
    "context": 4,
    "tts_config": {"audio_delay": 0},
}


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    config = read_model_config(Fields(FOLDER / "README.md", CONFIG))
    return read_language_model(TensorFile.read(FOLDER / "test_lm_model.safetensors"), config)


@pytest.fixture(scope="module")
def logits(model: LanguageModel) -> tuple[Tensor, Tensor]:
    """Teacher-forced: text [B, T, text_card], audio [B, T, Q, card], aligned with the delayed codes."""
    config = model.config
    codes = load_file(FOLDER / "test_lm_codes.safetensors")["codes"]
    rows, streams, time = codes.shape
    initial = torch.tensor([config.text_card] + [config.card] * config.codebooks)
    delayed = initial[None, :, None].expand(rows, streams, time + 1).clone()
    for stream, delay in enumerate(config.delays):
        delayed[:, stream, 1 + delay :] = codes[:, stream, : time - delay]
    c = config.backbone
    kv = torch.zeros(c.layers, 2, rows, c.heads, config.context, c.dim // c.heads)
    slots, whole = torch.arange(rows), torch.zeros(rows, dtype=torch.int64)
    draws = Draws(whole, whole, whole, torch.zeros(rows), whole)
    text, audio = [], []
    for step in range(time):
        x = backbone.embed(model.backbone, config, delayed[:, :, step])
        hidden = backbone.step(model.backbone, config, x, kv, slots, torch.full((rows,), step))
        text.append(F.linear(hidden, model.backbone.text_head))
        chosen = delayed[:, :, step + 1]
        first = backbone.embed_text(model.depth.text, chosen[:, 0], config.text_card)
        audio.append(depth.frame(model.depth, config, hidden, first, draws, chosen[:, 1:])[1])
    return torch.stack(text, dim=1), torch.stack(audio, dim=1)


def test_logits_and_masks(model: LanguageModel, logits: tuple[Tensor, Tensor]) -> None:
    want = load_file(FOLDER / "test_lm_out.safetensors")
    text, audio = logits
    assert torch.allclose(text[:, None], want["text_logits"], atol=1e-5)
    assert bool(want["text_mask"].all())
    time = text.shape[1]
    for book, delay in enumerate(model.config.delays[1:]):
        inside = torch.arange(time) < time - delay
        assert torch.equal(want["mask"][:, book], inside.expand(len(text), -1))
        got = audio[:, delay:, book]
        assert torch.allclose(got, want["logits"][:, book, : time - delay], atol=1e-5)


def test_cross_entropies(model: LanguageModel, logits: tuple[Tensor, Tensor]) -> None:
    """What the reference's own test compares, as closely as it does."""
    want = load_file(FOLDER / "test_lm_out.safetensors")
    codes = load_file(FOLDER / "test_lm_codes.safetensors")["codes"]
    for book, delay in enumerate(model.config.delays[1:]):
        time = codes.shape[2] - delay
        target = codes[:, 1 + book, :time].flatten()
        ours = F.cross_entropy(logits[1][:, delay:, book].flatten(0, 1), target)
        theirs = F.cross_entropy(want["logits"][:, book, :time].flatten(0, 1), target)
        assert float(ours) == pytest.approx(float(theirs), rel=1e-6)
