// The DSM text machine, one thread a row: which text token each slot feeds next. Writes no buffer; the caller stores the
// next state. Oracle: engine/text.py `advance`.
#pragma once
#include "portable.h"

namespace antiphon {
namespace phases {

enum Field {  // columns of the state, as engine/text.py `Field`
  kCur, kEnd, kAhead, kAheadEnd, kEntriesTaken, kEntriesGiven, kWordsTaken, kWordsGiven, kRemaining, kForced, kEndStep,
  kClosed, kFlushAt, kMaxPadding, kStep, kMuteUntil, kFields
};

struct TextStep {
  static constexpr int kSteps = 1, kCells = 0;
  static constexpr int64_t kNewWord = 0;
  const int64_t *state, *ring, *word_begin, *entries;  // [slots, kFields], [slots, tokens], [slots, words], [slots, words]
  const int64_t *slots, *sampled;                      // [rows]
  int64_t* token;                                      // [rows]
  uint8_t *word, *commit;                              // [rows]
  int64_t* next;                                       // [rows, kFields]
  int64_t card, padding;
  int32_t rows, ahead, token_ring, entry_ring;

  HD int items() const { return tiles(rows, kThreads); }

  HD void step(int, int item, int thread, Cell*) const {
    const int row = item * kThreads + thread;
    if (row >= rows) return;
    const size_t slot = size_t(slots[row]);
    const int64_t* tokens = ring + slot * token_ring;
    const int64_t* begins = word_begin + slot * entry_ring;
    int64_t f[kFields];
    for (int i = 0; i < kFields; ++i) f[i] = state[slot * kFields + i];
    const bool closed = f[kClosed] == 1 || f[kFlushAt] >= 0, available = f[kEntriesTaken] < f[kEntriesGiven];
    const bool speaking = f[kCur] < f[kEnd] || f[kForced] > 0;
    bool want = !speaking && (f[kRemaining] <= 0 || sampled[row] == kNewWord);
    const int64_t entry = entries[slot * entry_ring + f[kEntriesTaken] % entry_ring], peek = f[kWordsTaken] + ahead;
    const bool is_word = available && entry % 2 == 1;
    const bool ready = closed || (available && (!ahead || !is_word || peek < f[kWordsGiven]));
    const bool advances = !want || ready;
    int64_t out;
    bool taken;
    if (advances) {
      taken = move(f, want, available, is_word, entry, peek, tokens, begins, &out);
    } else {  // the same step is tried again: what it would feed is not read
      taken = false;
      out = padding;
    }
    token[row] = out;
    word[row] = taken;
    commit[row] = advances;
    for (int i = 0; i < kFields; ++i) next[size_t(row) * kFields + i] = f[i];
  }

  // One step of a row that advances: the state in place; whether a word was taken.
  HD bool move(int64_t* f, bool want, bool available, bool is_word, int64_t entry, int64_t peek, const int64_t* tokens,
               const int64_t* begins, int64_t* out) const {
    const bool pop = want && available, taken = pop && is_word, finish = want && !available && f[kEndStep] < 0;
    if (taken) {
      f[kCur] = begins[f[kWordsTaken] % entry_ring];
      f[kEnd] = begins[(f[kWordsTaken] + 1) % entry_ring];
      f[kRemaining] = f[kMaxPadding];
    }
    if (ahead && taken && peek < f[kWordsGiven]) {
      if (f[kAhead] >= f[kAheadEnd]) f[kAhead] = begins[peek % entry_ring];
      f[kAheadEnd] = begins[(peek + 1) % entry_ring];
    }
    if (pop) f[kForced] = entry / 2;
    if (finish) f[kEndStep] = f[kStep];
    bool fresh = taken || (ahead && finish);
    if (!fresh) {
      f[kRemaining] -= f[kRemaining] > 0;
      f[kForced] -= f[kForced] > 0;
    }
    int64_t main = padding;
    if (f[kCur] < f[kEnd] && (!fresh || ahead)) main = tokens[f[kCur]++ % token_ring];
    if (ahead) {
      if (!fresh && main == kNewWord) {  // a queued token 0 is taken for new_word, as the reference does
        fresh = true;
        main = f[kCur] < f[kEnd] ? tokens[f[kCur]++ % token_ring] : padding;
      }
      int64_t second = fresh ? kNewWord : -1;
      if (!fresh && f[kAhead] < f[kAheadEnd]) second = tokens[f[kAhead]++ % token_ring];
      *out = (second + 1) * card + main;
    } else {
      *out = fresh ? kNewWord : main;
    }
    f[kEntriesTaken] += pop;
    f[kWordsTaken] += taken;
    f[kStep] += 1;
    return taken;
  }
};

}  // namespace phases
}  // namespace antiphon
