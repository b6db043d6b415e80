// The temporal transformer: one step for a few rows, each on its own ring of keys and values, and on its own voice where
// the model hears voices. Oracle: engine/backbone.py `step`.
#pragma once
#include "attention.h"

namespace antiphon {
namespace phases {

struct Cross {  // attention to a voice; q.data null: none
  const float* norm;   // [2, dim]
  const float* scale;  // or null
  Matrix q, out;
};
struct BackboneLayer {
  const float *norm1, *norm2;
  const float *scale1, *scale2;  // or null
  Matrix qkv, out, up, down;
  Cross cross;
};
struct Backbone {
  const BackboneLayer* layers;  // read by whoever runs the program: on the host, where each work is a launch
  const float* out_norm;
  const float* frequencies;
  int32_t layer_count, dim, heads, context, capacity, kind, rope;  // kind: of keys and values
  float eps, cross_eps;
  int32_t widest;
};
struct BackboneCall {
  float* x;              // [rows, dim]: embeddings, then what the last layer leaves
  float* hidden;         // [rows, dim] normalised
  void* kv;              // [layers, 2, capacity, heads, context, head_dim]
  const int64_t* slots;
  const int64_t* steps;
  const uint8_t* commit;  // null: every row writes its key and value
  const void* voices;     // [voices, layers, 2, heads, voice_positions, head_dim], of `voice_kind`
  const int64_t* voice;   // null: the first
  const int64_t* voice_length;
  float* scratch;         // backbone_scratch floats
  int32_t rows, voice_positions, voice_kind, reserved;
};

HD int64_t backbone_scratch(const Backbone& m, int rows) { return int64_t(rows) * (2 * int64_t(m.dim) + m.widest); }

struct BackboneProgram {
  Backbone m;
  BackboneCall c;

#if defined(__CUDACC__)
#pragma nv_exec_check_disable
#endif
  template <class Runner>
  HD void operator()(Runner& run) const {
    const int dim = m.dim, rows = c.rows, width = dim / m.heads;
    float* q = c.scratch;
    float* mixed = q + size_t(rows) * dim;
    float* wide = mixed + size_t(rows) * dim;
    const size_t ring = size_t(m.heads) * m.context * width, plane = size_t(m.capacity) * ring;
    const size_t heard = size_t(m.heads) * c.voice_positions * width;
    const Rows attended{mixed, nullptr, rows, dim, 0.0f, 0};
    for (int l = 0; l < m.layer_count; ++l) {
      const BackboneLayer& layer = m.layers[l];
      void* keys = element_at(c.kv, m.kind, 2 * size_t(l) * plane);
      void* values = element_at(c.kv, m.kind, (2 * size_t(l) + 1) * plane);
      run(Product<RingWrite, Norm::kRms>{layer.qkv,
                                         {c.x, layer.norm1, rows, dim, m.eps, 0},
                                         {q, keys, values, c.slots, c.steps, c.commit, m.frequencies, dim, m.heads,
                                          m.context, m.kind, m.rope, 0}});
      run(Attend{q, keys, values, mixed, c.slots, c.steps, nullptr, int64_t(ring), rows, m.heads, width, m.context, m.kind, 0});
      run(Product<Residual, Norm::kNone>{layer.out, attended, {c.x, layer.scale1, dim, dim}});
      if (layer.cross.q.data) {
        const Cross& cross = layer.cross;
        run(Product<Store, Norm::kLayer>{
            cross.q, {c.x, cross.norm, rows, dim, m.cross_eps, 0}, {q, nullptr, dim, dim, 0}});
        run(Attend{q, element_at(c.voices, c.voice_kind, 2 * size_t(l) * heard),
                   element_at(c.voices, c.voice_kind, (2 * size_t(l) + 1) * heard), mixed, c.voice, nullptr,
                   c.voice_length, int64_t(2 * size_t(m.layer_count) * heard), rows, m.heads, width, c.voice_positions,
                   c.voice_kind, 0});
        run(Product<Residual, Norm::kNone>{cross.out, attended, {c.x, cross.scale, dim, dim}});
      }
      const int hidden = layer.down.inputs;
      run(Product<Gate, Norm::kRms>{layer.up, {c.x, layer.norm2, rows, dim, m.eps, 0}, {wide, m.widest, hidden}});
      run(Product<Residual, Norm::kNone>{
          layer.down, {wide, nullptr, rows, m.widest, 0.0f, 0}, {c.x, layer.scale2, dim, dim}});
    }
    run(RmsNorm{c.x, m.out_norm, c.hidden, rows, dim, m.eps, 0});
  }
};

}  // namespace phases
}  // namespace antiphon
