// Random models of the CPU kernels, packed as cuda_ext/kernels.py packs them.
#pragma once
#include "../../cuda_ext/model.h"
#include "dice.h"

namespace {

using namespace antiphon;

uint16_t to_half(float x) { return float_to_half(x); }

// weight: [n, k] -> the layout of a kind (cuda_ext/kernels.py Packer), with the numbers that it stands for.
Linear pack(Keeper& keeper, int kind, std::vector<double>& weight, int n, int k, const float* bias) {
  const int panels = (n + kLanes - 1) / kLanes;
  Linear l{};
  l.inputs = k;
  l.panels = panels;
  l.kind = kind;
  l.outputs = n;
  if (bias) {
    std::vector<float> wide(size_t(panels) * kLanes);
    std::copy(bias, bias + n, wide.begin());
    l.bias = keeper.keep(wide);
  }
  const auto at = [&](int row, int i) { return row < n && i < k ? weight[size_t(row) * k + i] : 0.0; };
  if (kind == kFloat || kind == kHalf) {
    std::vector<float> floats(size_t(panels) * k * kLanes);
    std::vector<uint16_t> halves(floats.size());
    for (int p = 0; p < panels; ++p)
      for (int i = 0; i < k; ++i)
        for (int c = 0; c < kLanes; ++c) {
          const size_t to = (size_t(p) * k + i) * kLanes + c;
          floats[to] = float(at(p * kLanes + c, i));
          halves[to] = to_half(floats[to]);
        }
    l.weight = kind == kFloat ? static_cast<const void*>(keeper.keep(floats)) : keeper.keep(halves);
    for (double& w : weight) w = kind == kHalf ? double(half_to_float(to_half(float(w)))) : double(float(w));
  } else {
    const bool wide = kind == kFixed16;
    const int blocks = (k + kFixedInputs - 1) / kFixedInputs;
    std::vector<float> scales(size_t(panels) * kLanes, 1e-30f);
    for (int row = 0; row < n; ++row) {
      double top = 1e-30;
      for (int i = 0; i < k; ++i) top = std::max(top, std::fabs(at(row, i)));
      scales[row] = float(top / (wide ? kFixedLargest : 127));
    }
    std::vector<int8_t> bytes;
    for (int p = 0; p < panels; ++p)
      for (int b = 0; b < blocks; ++b)
        for (int part = 0; part < (wide ? 2 : 1); ++part)
          for (int group = 0; group < 16; ++group)
            for (int c = 0; c < kLanes; ++c)
              for (int j = 0; j < 4; ++j) {
                const int row = p * kLanes + c;
                const int q = int(std::lround(at(row, b * kFixedInputs + group * 4 + j) / double(scales[row])));
                const int high = (q + 128) >> 8;
                bytes.push_back(int8_t(!wide ? q : part ? q - high * 256 : high));
              }
    l.weight = keeper.keep(bytes);
    l.scales = keeper.keep(scales);
  }
  return l;
}

Linear random_linear(Dice& dice, Keeper& keeper, int kind, int n, int k, bool biased = false) {
  std::vector<double> weight(size_t(n) * k);
  for (double& w : weight) w = double(dice.normal()) / std::sqrt(double(k));
  const std::vector<float> bias = dice.normals(n);
  return pack(keeper, kind, weight, n, k, biased ? bias.data() : nullptr);
}

std::vector<Draw> random_draws(Dice& dice, int rows, int card) {
  std::vector<Draw> out;
  for (int r = 0; r < rows; ++r)
    out.push_back({uint64_t(dice.whole(0, 1 << 30)) << 31, uint32_t(dice.whole(0, 9)), uint32_t(dice.whole(0, 999)),
                   dice.coin() ? 0.0f : 0.7f, dice.whole(0, card + 3)});
  return out;
}

Backbone random_backbone(Dice& dice, Keeper& keeper, int kind) {
  Backbone m{};
  m.layer_count = dice.whole(1, 2);
  m.heads = dice.whole(1, 3);
  const int head_dim = 16 * dice.whole(1, 2), dim = m.dim = m.heads * head_dim;
  m.hidden = 16 * dice.whole(1, 4);
  m.context = dice.whole(1, 40);
  m.capacity = dice.whole(1, 6);
  m.norm_eps = 1e-8f;
  m.byte_cache = dice.coin();
  std::vector<Layer> layers;
  for (int i = 0; i < m.layer_count; ++i) {
    Layer layer{};
    layer.norm1 = keeper.keep(dice.normals(dim));
    layer.norm2 = keeper.keep(dice.normals(dim));
    layer.qkv = random_linear(dice, keeper, kind, 3 * dim, dim);
    layer.out = random_linear(dice, keeper, kind, dim, dim);
    layer.up = random_linear(dice, keeper, kind, 2 * m.hidden, dim);
    layer.down = random_linear(dice, keeper, kind, dim, m.hidden);
    layers.push_back(layer);
  }
  m.layers = keeper.keep(layers);
  m.out_norm = keeper.keep(dice.normals(dim));
  m.frequencies = keeper.keep(dice.normals(head_dim / 2));
  return m;
}

// Empty rings of all slots.
std::vector<char> rings(const Backbone& m) {
  const auto bytes = m.byte_cache ? ByteRing::bytes : FloatRing::bytes;
  return std::vector<char>(size_t(2) * m.layer_count * m.capacity * m.heads * bytes(m.context, m.dim / m.heads));
}

Depth random_depth(Dice& dice, Keeper& keeper, int kind, int books, int main_dim) {
  Depth m{};
  m.layer_count = dice.whole(1, 2);
  m.heads = dice.whole(1, 2);
  const int dim = m.dim = m.heads * 16 * dice.whole(1, 2);
  m.hidden = 16 * dice.whole(1, 4);
  m.codebooks = books;
  m.card = 16 * dice.whole(1, 5);
  m.main_dim = main_dim;
  m.norm_eps = 1e-8f;
  const int sets = dice.whole(1, m.codebooks);
  const auto linears = [&](int count, int n, int k) {
    std::vector<Linear> out;
    for (int i = 0; i < count; ++i) out.push_back(random_linear(dice, keeper, kind, n, k));
    return keeper.keep(out);
  };
  std::vector<DepthLayer> layers;
  for (int i = 0; i < m.layer_count; ++i) {
    DepthLayer layer{};
    layer.norm1 = keeper.keep(dice.normals(dim));
    layer.norm2 = keeper.keep(dice.normals(dim));
    layer.qkv = linears(sets, 3 * dim, dim);
    layer.out = linears(sets, dim, dim);
    layer.up = linears(sets, 2 * m.hidden, dim);
    layer.down = linears(sets, dim, m.hidden);
    layers.push_back(layer);
  }
  m.layers = keeper.keep(layers);
  m.inputs = linears(sets, dim, m.main_dim);
  m.heads_out = linears(m.codebooks, m.card, dim);
  std::vector<const float*> embeddings, norms;
  for (int i = 0; i < m.codebooks; ++i) {
    if (i) embeddings.push_back(keeper.keep(dice.normals(size_t(m.card + 1) * dim)));
    norms.push_back(keeper.keep(dice.normals(dim)));
  }
  m.embeddings = keeper.keep(embeddings);
  m.norms = dice.coin() ? keeper.keep(norms) : nullptr;
  m.schedule = keeper.keep(dice.wholes<int32_t>(m.codebooks, 0, sets - 1));
  return m;
}

Spectral random_spectral(Dice& dice, Keeper& keeper, int kind, int books, int bins) {
  Spectral m{};
  struct Radices { int first, second; };
  const Radices radices = dice.one_of<Radices>({{8, 6}, {12, 8}, {16, 15}, {32, 30}, {4, 4}, {24, 20}});
  m.radix1 = radices.first;
  m.radix2 = radices.second;
  m.fft = m.radix1 * m.radix2;
  m.hop = m.fft / 4;
  m.codebook_count = books;
  m.latent = 16 * dice.whole(1, 2);
  m.frame_dim = 16 * dice.whole(1, 3);
  m.frame_hidden = 16 * dice.whole(1, 3);
  m.frame_layers = dice.whole(1, 2);
  m.frame_kernel = dice.whole(2, 4);
  m.subframes = dice.coin() ? 4 : 8;
  m.dim = 16 * dice.whole(1, 3);
  m.hidden = 16 * dice.whole(1, 3);
  m.layers = dice.whole(1, 2);
  m.kernel = dice.whole(2, 9);
  m.log_magnitude_max = 2.0f;
  m.block_eps = 1e-6f;
  m.head_eps = 1e-5f;
  const int points = m.fft / 2 + 1, lanes = (m.radix2 + kLanes - 1) / kLanes * kLanes;
  const auto blocks = [&](int count, int dim, int hidden, int kernel) {
    std::vector<Block> out;
    for (int i = 0; i < count; ++i) {
      Block block{};
      block.taps = keeper.keep(dice.normals(size_t(kernel) * dim));
      block.taps_bias = keeper.keep(dice.normals(dim));
      block.norm = keeper.keep(dice.normals(dim));
      block.norm_bias = keeper.keep(dice.normals(dim));
      block.up = random_linear(dice, keeper, kind, hidden, dim, true);
      block.down = random_linear(dice, keeper, kind, dim, hidden, true);
      block.gamma = keeper.keep(dice.normals(dim, 0.3f));
      out.push_back(block);
    }
    return keeper.keep(out);
  };
  m.frame_blocks = blocks(m.frame_layers, m.frame_dim, m.frame_hidden, m.frame_kernel);
  m.sub_blocks = blocks(m.layers, m.dim, m.hidden, m.kernel);
  std::vector<const float*> tables;
  for (int i = 0; i < m.codebook_count; ++i) tables.push_back(keeper.keep(dice.normals(size_t(bins) * m.latent)));
  m.codebooks = keeper.keep(tables);
  m.project = random_linear(dice, keeper, kind, m.frame_dim, m.latent, true);
  m.expand = random_linear(dice, keeper, kind, m.subframes * m.dim, m.frame_dim, true);
  m.head = random_linear(dice, keeper, kind, 2 * points, m.dim, true);
  m.norm = keeper.keep(dice.normals(m.dim));
  m.norm_bias = keeper.keep(dice.normals(m.dim));
  m.window = keeper.keep(dice.normals(m.fft));
  m.stage1 = keeper.keep(dice.normals(size_t(2) * m.radix2 * lanes));
  m.twiddle = keeper.keep(dice.normals(size_t(2) * m.radix1 * lanes));
  m.stage2 = keeper.keep(dice.normals(size_t(2) * m.radix1 * m.radix1));
  return m;
}

}  // namespace
