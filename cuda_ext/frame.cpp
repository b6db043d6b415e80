// One frame of the built-in voice's structure in one call: embeddings, backbone, text head and draw, text machine,
// codebooks, codec, int16 and the report, for any rows of the static buffers. Oracle: engine/step.py `FusedStep`.
#include <algorithm>
#include <cmath>
#include <vector>

#include "crew.h"
#include "fixed.h"
#include "model.h"
#include "phases/text.h"

using namespace antiphon;

namespace {

constexpr int64_t kZero = -1;  // a token that embeds to nothing
constexpr int kReport = 13;    // columns of engine/step.py `Report`

struct Tables {              // embeddings of text, [text_card + 2, dim], the last row zero
  const float *main, *second;  // second: null if there is one stream
};

struct Frame {
  const Backbone* backbone;
  const Linear* text_head;
  const Depth* depth;
  const Spectral* spectral;
  const float* audio;  // [codebooks * (card + 1) + 1, dim], the last row zero
  Tables text, depth_text;
  int64_t* state;           // [slots, phases::kFields]
  const int64_t* tokens;    // [slots, token_ring]
  const int64_t* begins;    // [slots, entry_ring]
  const int64_t* entries;   // [slots, entry_ring]
  int64_t* history;         // [slots, max_delay + 1, 1 + codebooks], the newest first
  const int64_t* whole;     // [slots, 4]: seed, generation, top_k, top_k_text
  const float* real;        // [slots, 3]: temperature, temperature_text, padding_bonus
  const int64_t* base;      // [slots]: steps that were left out
  void* kv;
  float* codec;
  const int64_t* delays;    // [1 + codebooks]
  int32_t text_card, codebooks, card, max_delay, delay_steps, tail, warm_up, padding, ahead, token_ring, entry_ring;
  int32_t samples;          // of a frame
};

struct Outputs {
  int64_t* report;       // [rows, kReport]
  int16_t* pcm;          // [rows, samples]
  float* text_logits;    // [rows, text_head.outputs]
  int64_t* tokens;       // [rows, 1 + codebooks]
  float* audio_logits;   // null, or [rows, codebooks, card]
};

struct Forced {  // null, or what to take where it is >= 0
  const int64_t* text;   // [rows]
  const int64_t* audio;  // [rows, codebooks]
};

// One thread's memory; grows at the first calls, then stays.
struct Bench {
  std::vector<float> x, logits, hidden, first, samples, scratch, drawn;
  std::vector<int64_t> position, place, sampled, token, next, picked, forced, codes, shifted;
  std::vector<uint8_t> word, moved, sane, commit;
  std::vector<int32_t> chosen, slots;
  std::vector<Draw> draws;
  std::vector<float*> history;
  std::vector<int64_t> slots_wide;

  void fit(const Frame& f, int rows) {
    const size_t n = size_t(rows), dim = size_t(f.backbone->dim), row = size_t(1 + f.codebooks);
    grow(x, n * dim), grow(hidden, n * dim), grow(first, n * f.depth->dim), grow(samples, n * f.samples);
    grow(logits, n * f.text_head->panels * kLanes), grow(drawn, n * f.codebooks * f.card);
    grow(position, n), grow(place, n), grow(sampled, n), grow(token, n), grow(next, n * phases::kFields), grow(slots_wide, n);
    grow(picked, n * f.codebooks), grow(forced, n * f.codebooks), grow(codes, n * f.codebooks);
    grow(shifted, n * (f.max_delay + 1) * row);
    grow(word, n), grow(moved, n), grow(sane, n), grow(commit, n), grow(chosen, n), grow(slots, n), grow(draws, n), grow(history, n);
    grow(scratch, size_t(std::max({antiphon_backbone_scratch(f.backbone, rows), antiphon_depth_scratch(f.depth, rows),
                                   antiphon_spectral_scratch(f.spectral, rows)})));
  }

  template <typename T>
  static void grow(std::vector<T>& v, size_t n) {
    if (v.size() < n) v.resize(n);
  }
};

void embed_text(const Tables& tables, int64_t token, int text_card, int dim, float* y) {
  const int64_t zero = text_card + 1, card = text_card + 1;
  const int64_t main = token < 0 ? zero : token % card;
  const int64_t second = token < 0 ? -1 : token / card - 1;
  for (int i = 0; i < dim; i += kLanes) {
    v16 v = load(tables.main + main * dim + i);
    if (tables.second) v = v + load(tables.second + (second < 0 ? zero : second) * dim + i);
    store(y + i, v);
  }
}

bool finite(const float* x, int n) { return largest_bits(x, n) < 0x7f800000; }

class Part {  // some rows of a frame, on one thread
 public:
  Part(const Frame& f, Bench& b, int rows, const int32_t* slots, const Forced* forced, Outputs out)
      : f_(f), b_(b), rows_(rows), slots_(slots), forced_(forced), out_(out), row_(1 + f.codebooks) {}

  void run() {
    b_.fit(f_, rows_);
    embed();
    antiphon_backbone(f_.backbone, rows_, slots_, b_.place.data(), b_.x.data(), f_.kv, b_.scratch.data());
    speak();
    pick();
    remember();
    sound();
    settle();
  }

 private:
  int64_t* state(int r) const { return f_.state + size_t(slots_[r]) * phases::kFields; }
  int64_t* next(int r) const { return b_.next.data() + size_t(r) * phases::kFields; }
  int64_t* history(int r) const { return f_.history + size_t(slots_[r]) * (f_.max_delay + 1) * row_; }
  int64_t* shifted(int r) const { return b_.shifted.data() + size_t(r) * (f_.max_delay + 1) * row_; }

  Draw draw(int r, bool text) const {
    const int64_t* whole = f_.whole + size_t(slots_[r]) * 4;
    const float* real = f_.real + size_t(slots_[r]) * 3;
    return {uint64_t(whole[0]), uint32_t(whole[1]), uint32_t(b_.position[r]), real[text], int32_t(whole[text ? 3 : 2])};
  }

  void embed() {
    const int dim = f_.backbone->dim;
    const int64_t nothing = int64_t(f_.codebooks) * (f_.card + 1);
    for (int r = 0; r < rows_; ++r) {
      const int64_t *newest = history(r), position = b_.position[r] = state(r)[phases::kStep];
      const int64_t place = b_.place[r] = position - f_.base[slots_[r]];  // the model's own
      float* x = b_.x.data() + size_t(r) * dim;
      for (int q = 0; q < f_.codebooks; ++q) {
        const int64_t token = place <= f_.delays[q + 1] ? f_.card : newest[q + 1];
        const float* from = f_.audio + (token == kZero ? nothing : q * int64_t(f_.card + 1) + token) * dim;
        for (int i = 0; i < dim; i += kLanes) store(x + i, q ? load(x + i) + load(from + i) : load(from + i));
      }
      float* text = b_.hidden.data();
      embed_text(f_.text, place <= f_.delays[0] ? f_.text_card : newest[0], f_.text_card, dim, text);
      for (int i = 0; i < dim; i += kLanes) store(x + i, load(x + i) + load(text + i));
    }
  }

  // The text head, its draw, and the text machine.
  void speak() {
    const Linear& head = *f_.text_head;
    const int width = head.panels * kLanes;
    linear(head, rows_, b_.x.data(), f_.backbone->dim, b_.logits.data(), width);
    for (int r = 0; r < rows_; ++r) {
      float* logits = b_.logits.data() + size_t(r) * width;
      logits[f_.padding] += f_.real[size_t(slots_[r]) * 3 + 2];
      std::memcpy(out_.text_logits + size_t(r) * head.outputs, logits, sizeof(float) * size_t(head.outputs));
      const int64_t given = forced_ ? forced_->text[r] : -1;
      b_.sampled[r] = given >= 0 ? given : sample(logits, head.outputs, draw(r, true), 0);
      b_.slots_wide[r] = slots_[r];
    }
    const phases::TextStep machine{f_.state, f_.tokens, f_.begins, f_.entries, b_.slots_wide.data(), b_.sampled.data(),
                                   b_.token.data(), b_.word.data(), b_.moved.data(), b_.next.data(),
                                   int64_t(f_.text_card) + 1, f_.padding, rows_, f_.ahead, f_.token_ring, f_.entry_ring};
    for (int item = 0; item < machine.items(); ++item)
      for (int thread = 0; thread < phases::kThreads; ++thread) machine.step(0, item, thread, nullptr);
    for (int r = 0; r < rows_; ++r) {
      b_.sane[r] = finite(b_.x.data() + size_t(r) * f_.backbone->dim, f_.backbone->dim);
      b_.commit[r] = b_.moved[r] && b_.sane[r];
    }
  }

  // The codebooks of the rows that have left the text delay.
  void pick() {
    const int dim = f_.backbone->dim, books = f_.codebooks, small = f_.depth->dim;
    int count = 0;
    for (int r = 0; r < rows_; ++r) {
      if (!b_.commit[r] || b_.position[r] < f_.delay_steps) continue;
      std::memcpy(b_.hidden.data() + size_t(count) * dim, b_.x.data() + size_t(r) * dim, sizeof(float) * size_t(dim));
      embed_text(f_.depth_text, b_.token[r], f_.text_card, small, b_.first.data() + size_t(count) * small);
      if (forced_)
        std::memcpy(b_.forced.data() + size_t(count) * books, forced_->audio + size_t(r) * books, sizeof(int64_t) * books);
      b_.draws[count] = draw(r, false);
      b_.chosen[count++] = r;
    }
    voiced_ = count;
    if (!count) return;
    antiphon_depth(f_.depth, count, b_.hidden.data(), b_.first.data(), b_.draws.data(),
                   forced_ ? b_.forced.data() : nullptr, b_.picked.data(), out_.audio_logits ? b_.drawn.data() : nullptr,
                   b_.scratch.data());
    if (out_.audio_logits)
      for (int i = 0; i < count; ++i)
        std::memcpy(out_.audio_logits + size_t(b_.chosen[i]) * books * f_.card,
                    b_.drawn.data() + size_t(i) * books * f_.card, sizeof(float) * size_t(books) * f_.card);
  }

  void remember() {
    const int books = f_.codebooks;
    for (int r = 0; r < rows_; ++r) {
      int64_t* fresh = shifted(r);
      std::memcpy(fresh + row_, history(r), sizeof(int64_t) * size_t(f_.max_delay) * row_);
      fresh[0] = b_.token[r];
      for (int q = 0; q < books; ++q) fresh[q + 1] = kZero;
    }
    for (int i = 0; i < voiced_; ++i) {
      const int r = b_.chosen[i];
      for (int q = 0; q < books; ++q)
        if (b_.position[r] >= f_.delays[q + 1] + f_.delay_steps) shifted(r)[q + 1] = b_.picked[size_t(i) * books + q];
    }
    for (int r = 0; r < rows_; ++r) {
      std::memcpy(out_.tokens + size_t(r) * row_, shifted(r), sizeof(int64_t) * row_);
      if (b_.commit[r]) std::memcpy(history(r), shifted(r), sizeof(int64_t) * size_t(f_.max_delay + 1) * row_);
    }
  }

  bool audible(int r) const { return b_.commit[r] && b_.position[r] >= f_.warm_up; }

  void sound() {
    const int books = f_.codebooks, n = f_.samples;
    int count = 0;
    for (int r = 0; r < rows_; ++r) {
      b_.word[r] = b_.word[r] && b_.commit[r];
      std::memset(out_.pcm + size_t(r) * n, 0, sizeof(int16_t) * size_t(n));
      if (!audible(r)) continue;
      for (int q = 0; q < books; ++q)
        b_.codes[size_t(count) * books + q] =
            std::max<int64_t>(shifted(r)[size_t(f_.max_delay - f_.delays[q + 1]) * row_ + q + 1], 0);
      b_.slots[count] = slots_[r];
      b_.chosen[count++] = r;
    }
    sounding_ = count;
    if (!count) return;
    antiphon_spectral(f_.spectral, count, b_.slots.data(), b_.codes.data(), f_.codec, b_.samples.data(),
                      b_.scratch.data(), b_.history.data());
    for (int i = 0; i < count; ++i) to_int16(b_.samples.data() + size_t(i) * n, out_.pcm + size_t(b_.chosen[i]) * n);
  }

  void to_int16(const float* x, int16_t* y) const {
    for (int i = 0; i < f_.samples; i += kLanes) {
      const v16i whole = nearest(vmax(vmin(load(x + i), splat(1.0f)), splat(-1.0f)) * 32767.0f);
      typedef int16_t v16s __attribute__((vector_size(32)));
      const v16s narrow = __builtin_convertvector(whole, v16s);
      std::memcpy(y + i, &narrow, sizeof narrow);
    }
  }

  // Write the text machine's next state, finish a flush that is due, and report.
  void settle() {
    int heard = 0;
    for (int r = 0; r < rows_; ++r) {
      int64_t* fresh = next(r);
      const bool commit = b_.commit[r], sounds = audible(r);
      bool sound = b_.sane[r];
      if (sounds) sound &= finite(b_.samples.data() + size_t(heard++) * f_.samples, f_.samples);
      const int64_t step = fresh[phases::kStep], end = fresh[phases::kEndStep];
      const bool done = commit && end >= 0 && step >= end + f_.tail, flushed = done && fresh[phases::kClosed] == 0;
      const bool heard_now = sounds && b_.position[r] - f_.warm_up >= fresh[phases::kMuteUntil];
      const bool paused = commit && !b_.word[r] && fresh[phases::kEntriesTaken] > state(r)[phases::kEntriesTaken];
      const int64_t report[kReport] = {commit, b_.word[r], done && !flushed, flushed, !sound, heard_now, step,
                                       fresh[phases::kCur], fresh[phases::kAhead], fresh[phases::kEntriesTaken],
                                       fresh[phases::kWordsTaken], b_.sampled[r] == phases::TextStep::kNewWord, paused};
      std::memcpy(out_.report + size_t(r) * kReport, report, sizeof report);
      if (!commit) continue;
      if (flushed) {
        fresh[phases::kEndStep] = fresh[phases::kFlushAt] = -1;
        fresh[phases::kMuteUntil] = step;
      }
      std::memcpy(state(r), fresh, sizeof(int64_t) * phases::kFields);
    }
  }

  const Frame& f_;
  Bench& b_;
  const int rows_;
  const int32_t* slots_;
  const Forced* forced_;
  const Outputs out_;
  const size_t row_;
  int voiced_ = 0, sounding_ = 0;
};

struct Stage {
  Crew crew;
  std::vector<Bench> benches;
  explicit Stage(int helpers) : crew(helpers), benches(size_t(helpers) + 1) {}
};

constexpr int kFewest = 4;   // rows that are worth a second thread
constexpr int kChunk = 32;   // most rows of a chunk: two tiles' height

int chunk_rows(int rows, int hands) {
  if (hands == 1 || rows < kFewest) return rows;
  return std::min((rows + hands - 1) / hands, std::max(kChunk, (rows + 2 * hands - 1) / (2 * hands)));
}

}  // namespace

extern "C" {

// A stage of `helpers` threads beside the caller's, for one engine; antiphon_stage_close joins them.
void* antiphon_stage(int32_t helpers) { return new Stage(helpers); }

void antiphon_stage_close(void* stage) { delete static_cast<Stage*>(stage); }

// slots: [rows], distinct. forced: null, or its two arrays.
void antiphon_frame(const Frame* f, void* stage, int32_t rows, const int32_t* slots, const Forced* forced,
                    const Outputs* out) {
  Stage& s = *static_cast<Stage*>(stage);
  const int each = chunk_rows(rows, s.crew.hands()), books = f->codebooks;
  s.crew.run((rows + each - 1) / each, [&](int hand, int chunk) {
    const int from = chunk * each, count = std::min(each, rows - from);
    const size_t at = size_t(from);
    const Outputs part{out->report + at * kReport, out->pcm + at * size_t(f->samples),
                       out->text_logits + at * size_t(f->text_head->outputs), out->tokens + at * size_t(1 + books),
                       out->audio_logits ? out->audio_logits + at * size_t(books) * size_t(f->card) : nullptr};
    const Forced given{forced ? forced->text + at : nullptr, forced ? forced->audio + at * size_t(books) : nullptr};
    Part(*f, s.benches[size_t(hand)], count, slots + from, forced ? &given : nullptr, part).run();
  });
}

}  // extern "C"
