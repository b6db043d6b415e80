// The built-in voice's codec: codes of one frame -> 1,920 samples, streaming, a few rows at once.
// Oracle: engine/codec/spectral.py.
#include <algorithm>
#include <cmath>

#include "model.h"
#include "norm.h"

using namespace antiphon;

namespace {

// rows: [rows, time, dim] in place; history: per row [kernel - 1, dim], the inputs before.
void conv_block(const Block& b, int rows, int time, int dim, int hidden, int kernel, float eps, float* const* history,
                float* x, float* normed, float* up) {
  for (int r = 0; r < rows; ++r) {
    float* row = x + size_t(r) * time * dim;
    float* past = history[r];
    for (int t = 0; t < time; ++t) {
      float* y = normed + (size_t(r) * time + t) * dim;
      for (int i = 0; i < dim; i += kLanes) {
        v16 acc = load(b.taps_bias + i);
        for (int j = 0; j < kernel; ++j) {
          const int at = t - (kernel - 1) + j;
          const float* source = at < 0 ? past + size_t(kernel - 1 + at) * dim : row + size_t(at) * dim;
          acc = load(b.taps + size_t(j) * dim + i) * load(source + i) + acc;
        }
        store(y + i, acc);
      }
      layer_norm(y, b.norm, b.norm_bias, dim, eps, y);
    }
    const int keep = kernel - 1;
    const int fresh = std::min(time, keep);
    std::memmove(past, past + size_t(fresh) * dim, sizeof(float) * size_t(keep - fresh) * dim);
    std::memcpy(past + size_t(keep - fresh) * dim, row + size_t(time - fresh) * dim, sizeof(float) * size_t(fresh) * dim);
  }
  const int count = rows * time;
  linear(b.up, count, normed, dim, up, hidden);
  for (size_t i = 0; i < size_t(count) * hidden; i += kLanes) store(up + i, vgelu(load(up + i)));
  linear(b.down, count, up, hidden, normed, dim);
  for (int r = 0; r < count; ++r)
    for (int i = 0; i < dim; i += kLanes) {
      float* at = x + size_t(r) * dim + i;
      store(at, load(b.gamma + i) * load(normed + size_t(r) * dim + i) + load(at));
    }
}

// Inverse real FFT of n = radix1 * radix2 points by Cooley and Tukey in two dense stages; time n2 is the inner loop.
// k = k1 + radix1 * k2, t = radix2 * t1 + t2. The output is real, so columns k1 and radix1 - k1 of the first stage are
// conjugates: half of them are computed, and those that stand for two carry the factor 2 in their twiddles.
// stage1: [k2, t2] e^(2 pi i k2 t2 / radix2); twiddle: [k1, t2] e^(2 pi i k1 t2 / n); stage2: [t1, k1]
// e^(2 pi i k1 t1 / radix1); each as (cosine row, sine row) of lanes(radix2) floats (stage2: scalar pairs).
// spectrum: (real[n / 2 + 1], imag[n / 2 + 1]). out: [n], not divided by n. V: vectors a lane row.
template <int V>
void inverse_fft(const Spectral& m, const float* real, const float* imag, float* work, float* out) {
  constexpr int lanes = V * kLanes, T = 4;
  const int n = m.fft, r1 = m.radix1, r2 = m.radix2, half = r1 / 2;
  float *yr = work, *yi = work + size_t(half + 1) * lanes;
  for (int k1 = 0; k1 <= half; ++k1) {
    v16 cr[V]{}, si[V]{}, sr[V]{}, ci[V]{};
    for (int k2 = 0; k2 < r2; ++k2) {
      const int k = k1 + r1 * k2, mirror = n - k;
      const bool upper = k > n / 2;
      const float xr = real[upper ? mirror : k];
      const float xi = k == 0 || k == n / 2 ? 0.0f : upper ? -imag[mirror] : imag[k];
      for (int v = 0; v < V; ++v) {
        const v16 c = load(m.stage1 + size_t(2 * k2) * lanes + v * kLanes);
        const v16 s = load(m.stage1 + size_t(2 * k2 + 1) * lanes + v * kLanes);
        cr[v] = c * xr + cr[v];
        si[v] = s * xi + si[v];
        sr[v] = s * xr + sr[v];
        ci[v] = c * xi + ci[v];
      }
    }
    for (int v = 0; v < V; ++v) {
      const v16 ar = cr[v] - si[v], ai = sr[v] + ci[v];
      const v16 c = load(m.twiddle + size_t(2 * k1) * lanes + v * kLanes);
      const v16 s = load(m.twiddle + size_t(2 * k1 + 1) * lanes + v * kLanes);
      store(yr + size_t(k1) * lanes + v * kLanes, ar * c - ai * s);
      store(yi + size_t(k1) * lanes + v * kLanes, ar * s + ai * c);
    }
  }
  alignas(64) float line[lanes];
  for (int t1 = 0; t1 < r1; t1 += T) {
    v16 acc[T][V]{};
    for (int k1 = 0; k1 <= half; ++k1)
      for (int v = 0; v < V; ++v) {
        const v16 a = load(yr + size_t(k1) * lanes + v * kLanes), b = load(yi + size_t(k1) * lanes + v * kLanes);
        for (int t = 0; t < T; ++t) {
          const float* turn = m.stage2 + 2 * ((t1 + t < r1 ? t1 + t : t1) * r1 + k1);
          acc[t][v] = a * turn[0] + acc[t][v];
          acc[t][v] = b * -turn[1] + acc[t][v];
        }
      }
    for (int t = 0; t < T && t1 + t < r1; ++t) {
      for (int v = 0; v < V; ++v) store(line + v * kLanes, acc[t][v]);
      std::memcpy(out + size_t(t1 + t) * r2, line, sizeof(float) * r2);
    }
  }
}

}  // namespace

extern "C" {

int64_t antiphon_spectral_history(const Spectral* m) {  // floats of a slot's state
  return int64_t(m->frame_layers) * (m->frame_kernel - 1) * m->frame_dim +
         int64_t(m->layers) * (m->kernel - 1) * m->dim + m->fft;
}

int64_t antiphon_spectral_scratch(const Spectral* m, int32_t rows) {
  const int64_t frame = int64_t(rows) * (m->frame_dim * 2 + m->frame_hidden + m->latent);
  const int64_t sub = int64_t(rows) * m->subframes * (m->dim * 2 + m->hidden);
  const int64_t head = m->head.panels * kLanes + 2 * (m->fft / 2 + 1 + kLanes);
  return frame + sub + int64_t(rows) * m->subframes * m->head.panels * kLanes + head + 4 * m->fft + 512;
}

// codes: [rows, codebooks]; state: [capacity, history] with the overlap-add tail [fft] at its end;
// pcm: [rows, subframes * hop], the samples from `fft - hop` before this frame's start on.
void antiphon_spectral(const Spectral* m, int32_t rows, const int32_t* slots, const int64_t* codes, float* state,
                       float* pcm, float* scratch, float** history) {
  const int fd = m->frame_dim, dim = m->dim, sub = m->subframes, n = m->fft, hop = m->hop, bins = n / 2 + 1;
  const int64_t size = antiphon_spectral_history(m);
  const auto invert = n / m->radix1 <= kLanes ? inverse_fft<1> : n / m->radix1 <= 2 * kLanes ? inverse_fft<2> : inverse_fft<4>;
  float* latent = scratch;
  float* frame = latent + size_t(rows) * m->latent;
  float* frame_normed = frame + size_t(rows) * fd;
  float* frame_up = frame_normed + size_t(rows) * fd;
  float* x = frame_up + size_t(rows) * m->frame_hidden;
  float* normed = x + size_t(rows) * sub * dim;
  float* up = normed + size_t(rows) * sub * dim;
  float* heads = up + size_t(rows) * sub * m->hidden;
  const int head_width = m->head.panels * kLanes;
  float* real = heads + size_t(rows) * sub * head_width;
  float* imag = real + bins + kLanes;
  float* work = imag + bins + kLanes;
  float* wave = work + 2 * n + 256;
  for (int r = 0; r < rows; ++r)
    for (int i = 0; i < m->latent; i += kLanes) {
      v16 acc{};
      for (int q = 0; q < m->codebook_count; ++q)
        acc = acc + load(m->codebooks[q] + size_t(codes[r * m->codebook_count + q]) * m->latent + i);
      store(latent + size_t(r) * m->latent + i, acc);
    }
  linear(m->project, rows, latent, m->latent, frame, fd);
  for (int l = 0; l < m->frame_layers; ++l) {
    for (int r = 0; r < rows; ++r) history[r] = state + size_t(slots[r]) * size + size_t(l) * (m->frame_kernel - 1) * fd;
    conv_block(m->frame_blocks[l], rows, 1, fd, m->frame_hidden, m->frame_kernel, m->block_eps, history, frame,
               frame_normed, frame_up);
  }
  linear(m->expand, rows, frame, fd, x, sub * dim);
  const size_t sub_state = size_t(m->frame_layers) * (m->frame_kernel - 1) * fd;
  for (int l = 0; l < m->layers; ++l) {
    for (int r = 0; r < rows; ++r)
      history[r] = state + size_t(slots[r]) * size + sub_state + size_t(l) * (m->kernel - 1) * dim;
    conv_block(m->sub_blocks[l], rows, sub, dim, m->hidden, m->kernel, m->block_eps, history, x, normed, up);
  }
  for (int r = 0; r < rows * sub; ++r)
    layer_norm(x + size_t(r) * dim, m->norm, m->norm_bias, dim, m->head_eps, normed + size_t(r) * dim);
  linear(m->head, rows * sub, normed, dim, heads, head_width);
  const size_t tail = sub_state + size_t(m->layers) * (m->kernel - 1) * dim;
  for (int r = 0; r < rows; ++r) {
    float* overlap = state + size_t(slots[r]) * size + tail;
    for (int j = 0; j < sub; ++j) {
      const float* head = heads + (size_t(r) * sub + j) * head_width;
      for (int i = 0; i < bins; i += kLanes) {  // lanes past the bins are computed and never read
        const v16 magnitude = vexp(vmin(load(head + i), splat(m->log_magnitude_max)));
        v16 s, c, phase{};
        std::memcpy(&phase, head + bins + i, sizeof(float) * std::min(kLanes, head_width - bins - i));
        vsincos(phase, &s, &c);
        store(real + i, magnitude * c);
        store(imag + i, magnitude * s);
      }
      invert(*m, real, imag, work, wave);
      for (int i = 0; i < n; i += kLanes) store(overlap + i, load(wave + i) * load(m->window + i) + load(overlap + i));
      std::memcpy(pcm + (size_t(r) * sub + j) * hop, overlap, sizeof(float) * hop);
      std::memmove(overlap, overlap + hop, sizeof(float) * (n - hop));
      std::memset(overlap + n - hop, 0, sizeof(float) * hop);
    }
  }
}

}  // extern "C"
