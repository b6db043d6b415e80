// The C ABI of the phases, the same on both sides: kernels.cu includes it behind device.cuh, twin.cpp behind host.h.
// Every call returns 0 or a cudaError_t, and neither allocates device memory nor waits.
#pragma once
#include "../phases/backbone.h"
#include "../phases/convolution.h"
#include "../phases/depth.h"
#include "../phases/spectral.h"
#include "../phases/text.h"

using namespace antiphon;

extern "C" {

// Bytes of the structures that callers fill in, in the order of cuda_ext/phases.py STRUCTURES.
void antiphon_phase_sizes(int32_t* out) {
  using namespace antiphon::phases;
  const size_t sizes[] = {sizeof(Matrix),   sizeof(Draws),    sizeof(DepthLayer),    sizeof(DepthSet),
                          sizeof(DepthBook), sizeof(Depth),   sizeof(DepthCall),     sizeof(Cross),
                          sizeof(BackboneLayer), sizeof(Backbone), sizeof(BackboneCall), sizeof(Guided),
                          sizeof(Sample),   sizeof(Attend),   sizeof(TextStep),      sizeof(InverseFft),
                          sizeof(OverlapAdd), sizeof(Convolve)};
  for (size_t size : sizes) *out++ = int32_t(size);
}
int64_t antiphon_phase_depth_scratch(const phases::Depth* m, int32_t rows) { return phases::depth_scratch(*m, rows); }
int64_t antiphon_phase_backbone_scratch(const phases::Backbone* m, int32_t rows) {
  return phases::backbone_scratch(*m, rows);
}

// counter: one zeroed word of device memory, of this stream alone.
int32_t antiphon_phase_depth(const phases::Depth* m, const phases::DepthCall* c, uint32_t* counter, void* stream) {
  return run_persistent(phases::DepthProgram{*m, *c}, counter, stream);
}
// m->layers is read on the host.
int32_t antiphon_phase_backbone(const phases::Backbone* m, const phases::BackboneCall* c, void* stream) {
  return run_program(phases::BackboneProgram{*m, *c}, stream);
}
int32_t antiphon_phase_sample(const phases::Sample* c, void* stream) { return run_work(*c, stream); }
int32_t antiphon_phase_attend(const phases::Attend* c, void* stream) { return run_work(*c, stream); }
int32_t antiphon_phase_text(const phases::TextStep* c, void* stream) { return run_work(*c, stream); }
int32_t antiphon_phase_spectral(const phases::InverseFft* f, const phases::OverlapAdd* o, void* stream) {
  return run_program(phases::SpectralProgram{*f, *o}, stream);
}
int32_t antiphon_phase_convolve(const phases::Convolve* c, void* stream) {
  return run_program(phases::ConvolveProgram{*c}, stream);
}

}  // extern "C"
