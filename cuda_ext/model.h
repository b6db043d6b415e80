// What the kernels know of a model, and the operations of a frame. Packed and filled by kernels.py.
#pragma once
#include "linear.h"
#include "sampling.h"

namespace antiphon {

struct Layer {
  const float* norm1;  // [dim]
  Linear qkv, out;
  const float* norm2;
  Linear up, down;  // up: [2 * hidden], down: [dim]
};

struct Backbone {
  const Layer* layers;
  const float* out_norm;
  const float* frequencies;  // [head_dim / 2] rope, radians a step
  int32_t layer_count, dim, heads, hidden, context, capacity;
  float norm_eps;
  int32_t byte_cache;  // keys and values in whole numbers (attention.h)
};

struct DepthLayer {
  const float *norm1, *norm2;               // [dim], shared by all codebooks
  const Linear *qkv, *out, *up, *down;      // one a weight set
};

struct Depth {
  const DepthLayer* layers;
  const Linear* inputs;                     // one a weight set: [main_dim] -> [dim]
  const Linear* heads_out;                  // one a codebook: [dim] -> [card]
  const float* const* embeddings;           // one for each codebook but the last: [card + 1, dim]
  const float* const* norms;                // null, or one a codebook: [dim]
  const int32_t* schedule;                  // codebook -> weight set
  int32_t layer_count, dim, heads, hidden, codebooks, card, main_dim;
  float norm_eps;
};

struct Block {                 // causal ConvNeXt block
  const float* taps;           // [kernel, dim], oldest first
  const float* taps_bias;      // [dim]
  const float *norm, *norm_bias;
  Linear up, down;
  const float* gamma;          // [dim]
};

struct Spectral {
  const Block *frame_blocks, *sub_blocks;
  const float* const* codebooks;         // [bins, latent]
  Linear project, expand, head;          // latent -> frame_dim, frame_dim -> subframes * dim, dim -> 2 * (fft / 2 + 1)
  const float *norm, *norm_bias;         // before the head
  const float* window;                   // [fft], the gain included
  const float *stage1, *twiddle, *stage2;  // inverse FFT tables, see inverse_fft
  int32_t codebook_count, latent, frame_dim, frame_hidden, frame_layers, frame_kernel;
  int32_t subframes, dim, hidden, layers, kernel, fft, hop, radix1, radix2;
  float log_magnitude_max, block_eps, head_eps;
};

}  // namespace antiphon

extern "C" {

int64_t antiphon_backbone_scratch(const antiphon::Backbone* m, int32_t rows);
void antiphon_backbone(const antiphon::Backbone* m, int32_t rows, const int32_t* slots, const int64_t* positions,
                       float* x, void* kv, float* scratch);
int64_t antiphon_depth_scratch(const antiphon::Depth* m, int32_t rows);
void antiphon_depth(const antiphon::Depth* m, int32_t rows, const float* hidden, const float* first,
                    const antiphon::Draw* draws, const int64_t* forced, int64_t* tokens, float* logits, float* scratch);
int64_t antiphon_spectral_scratch(const antiphon::Spectral* m, int32_t rows);
void antiphon_spectral(const antiphon::Spectral* m, int32_t rows, const int32_t* slots, const int64_t* codes,
                       float* state, float* pcm, float* scratch, float** history);

}  // extern "C"
