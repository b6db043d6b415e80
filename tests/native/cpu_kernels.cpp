// The CPU kernels over random shapes, in every kind of matrix, for the sanitizers: results are finite, near a plain sum in
// double, and a row's bits are the same alone and among others.
#include "../../cuda_ext/backbone.cpp"
#include "../../cuda_ext/depth.cpp"
#include "../../cuda_ext/frame.cpp"
#include "../../cuda_ext/spectral.cpp"
#include "models.h"

namespace {

// One line a result, for a comparison of builds: the sum of its magnitudes.
void tell(const char* what, int kind, const float* values, size_t count) {
  double sum = 0.0;
  for (size_t i = 0; i < count; ++i) sum += std::fabs(double(values[i]));
  std::printf("%s %d %.9g\n", what, kind, sum);
}

void check_linear(Dice& dice, int kind) {
  Keeper keeper;
  const int rows = dice.whole(1, 40), n = dice.whole(1, 100), k = dice.whole(1, 140), ldx = k + dice.whole(0, 5);
  std::vector<double> weight(size_t(n) * k);
  for (double& w : weight) w = dice.normal();
  const std::vector<float> bias = dice.normals(n), x = dice.normals(size_t(rows - 1) * ldx + k);
  const Linear l = pack(keeper, kind, weight, n, k, dice.coin() ? bias.data() : nullptr);
  const int ldy = l.panels * kLanes;
  std::vector<float> y(size_t(rows) * ldy);
  antiphon_linear(&l, rows, x.data(), ldx, y.data(), ldy);
  const double relative = kind == kFixed8 ? 2e-2 : kind == kFixed16 ? 2e-4 : 2e-6;
  for (int r = 0; r < rows; ++r) {
    for (int i = 0; i < n; ++i) {
      double want = l.bias ? bias[i] : 0.0, size = 1.0;
      for (int j = 0; j < k; ++j) {
        want += weight[size_t(i) * k + j] * x[size_t(r) * ldx + j];
        size += std::fabs(weight[size_t(i) * k + j] * x[size_t(r) * ldx + j]);
      }
      CHECK(std::fabs(y[size_t(r) * ldy + i] - want) < relative * size);
    }
    const std::vector<float> alone(x.begin() + size_t(r) * ldx, x.begin() + size_t(r) * ldx + k);
    std::vector<float> again(ldy);
    antiphon_linear(&l, 1, alone.data(), k, again.data(), ldy);
    CHECK(std::memcmp(again.data(), y.data() + size_t(r) * ldy, sizeof(float) * n) == 0);
  }
}

void check_many_rows(Dice& dice, int kind) {  // more than a chunk of rows
  Keeper keeper;
  const Linear l = random_linear(dice, keeper, kind, 33, 40, true);
  const int rows = 530, ldy = l.panels * kLanes;
  const std::vector<float> x = dice.normals(size_t(rows) * 40);
  std::vector<float> y(size_t(rows) * ldy);
  antiphon_linear(&l, rows, x.data(), 40, y.data(), ldy);
  CHECK(all_finite(y));
}

void check_backbone(Dice& dice, int kind) {
  Keeper keeper;
  const Backbone m = random_backbone(dice, keeper, kind);
  const int dim = m.dim;
  std::vector<char> kv = rings(m);
  const int rows = dice.whole(1, m.capacity);
  const std::vector<int32_t> slots = dice.distinct<int32_t>(rows, m.capacity);
  std::vector<int64_t> positions = dice.wholes<int64_t>(rows, 0, 2 * m.context);
  for (int step = 0; step < 3; ++step) {
    const std::vector<float> x = dice.normals(size_t(rows) * dim);
    std::vector<char> twin = kv;
    std::vector<float> together = x, scratch(antiphon_backbone_scratch(&m, rows));
    antiphon_backbone(&m, rows, slots.data(), positions.data(), together.data(), kv.data(), scratch.data());
    CHECK(all_finite(together));
    tell("backbone", kind, together.data(), together.size());
    for (int r = 0; r < rows; ++r) {
      std::vector<float> alone(x.begin() + size_t(r) * dim, x.begin() + size_t(r + 1) * dim);
      std::vector<float> room(antiphon_backbone_scratch(&m, 1));
      antiphon_backbone(&m, 1, &slots[r], &positions[r], alone.data(), twin.data(), room.data());
      CHECK(std::memcmp(alone.data(), together.data() + size_t(r) * dim, sizeof(float) * dim) == 0);
    }
    CHECK(same(kv, twin));
    for (int64_t& position : positions) ++position;
  }
}

void check_depth(Dice& dice, int kind) {
  Keeper keeper;
  const Depth m = random_depth(dice, keeper, kind, dice.whole(1, 5), 16 * dice.whole(1, 4));
  const int dim = m.dim;
  const int rows = dice.whole(1, 20), books = m.codebooks;
  const std::vector<float> hidden = dice.normals(size_t(rows) * m.main_dim), first = dice.normals(size_t(rows) * dim);
  const std::vector<Draw> draws = random_draws(dice, rows, m.card);
  const std::vector<int64_t> forced = dice.wholes<int64_t>(size_t(rows) * books, -1, m.card - 1);
  const bool forcing = dice.coin(), telling = dice.coin();
  std::vector<int64_t> tokens(size_t(rows) * books, -7);
  std::vector<float> logits(size_t(rows) * books * m.card), scratch(antiphon_depth_scratch(&m, rows));
  antiphon_depth(&m, rows, hidden.data(), first.data(), draws.data(), forcing ? forced.data() : nullptr, tokens.data(),
                 telling ? logits.data() : nullptr, scratch.data());
  CHECK(all_finite(logits));
  if (telling) tell("depth", kind, logits.data(), m.card);  // of the first codebook: a token drawn may differ
  for (int r = 0; r < rows; ++r) {
    const std::vector<float> h(hidden.begin() + size_t(r) * m.main_dim, hidden.begin() + size_t(r + 1) * m.main_dim);
    const std::vector<float> f(first.begin() + size_t(r) * dim, first.begin() + size_t(r + 1) * dim);
    std::vector<int64_t> alone(books);
    std::vector<float> room(antiphon_depth_scratch(&m, 1));
    antiphon_depth(&m, 1, h.data(), f.data(), &draws[r], forcing ? &forced[size_t(r) * books] : nullptr, alone.data(),
                   nullptr, room.data());
    for (int b = 0; b < books; ++b) {
      CHECK(alone[b] == tokens[size_t(r) * books + b]);
      CHECK(alone[b] >= 0 && alone[b] < m.card);
    }
  }
}

void check_spectral(Dice& dice, int kind) {
  Keeper keeper;
  const int bins = 7;
  const Spectral m = random_spectral(dice, keeper, kind, dice.whole(1, 4), bins);
  const int capacity = dice.whole(1, 5), rows = dice.whole(1, capacity);
  const std::vector<int32_t> slots = dice.distinct<int32_t>(rows, capacity);
  const int64_t size = antiphon_spectral_history(&m);
  std::vector<float> state(size_t(capacity) * size);
  for (int frame = 0; frame < 3; ++frame) {
    const std::vector<int64_t> codes = dice.wholes<int64_t>(size_t(rows) * m.codebook_count, 0, bins - 1);
    std::vector<float> twin = state, pcm(size_t(rows) * m.subframes * m.hop), room(antiphon_spectral_scratch(&m, rows));
    std::vector<float*> history(rows);
    antiphon_spectral(&m, rows, slots.data(), codes.data(), state.data(), pcm.data(), room.data(), history.data());
    CHECK(all_finite(pcm));
    tell("spectral", kind, pcm.data(), pcm.size());
    for (int r = 0; r < rows; ++r) {
      std::vector<float> alone(size_t(m.subframes) * m.hop), little(antiphon_spectral_scratch(&m, 1));
      std::vector<float*> one(1);
      antiphon_spectral(&m, 1, &slots[r], &codes[size_t(r) * m.codebook_count], twin.data(), alone.data(), little.data(),
                        one.data());
      CHECK(std::memcmp(alone.data(), pcm.data() + size_t(r) * alone.size(), sizeof(float) * alone.size()) == 0);
    }
    CHECK(same(state, twin));
  }
}

struct World {
  std::vector<int64_t> state, history;
  std::vector<char> kv;
  std::vector<float> codec;
};

// A frame of all rows, on three threads and slot by slot on one: the same bits in every output and every buffer.
void check_frame(Dice& dice, int kind) {
  Keeper keeper;
  const int books = dice.whole(1, 4);
  const Backbone backbone = random_backbone(dice, keeper, kind);
  const Depth depth = random_depth(dice, keeper, kind, books, backbone.dim);
  const Spectral spectral = random_spectral(dice, keeper, kind, books, depth.card);
  const int capacity = backbone.capacity, text_card = 20, outputs = 5;
  const Linear head = random_linear(dice, keeper, kind, outputs, backbone.dim);
  Frame f{};
  f.backbone = &backbone;
  f.text_head = &head;
  f.depth = &depth;
  f.spectral = &spectral;
  f.audio = keeper.keep(dice.normals((size_t(books) * (depth.card + 1) + 1) * backbone.dim));
  const auto table = [&](int dim) { return keeper.keep(dice.normals(size_t(text_card + 2) * dim)); };
  f.ahead = dice.whole(0, 2);
  f.text = {table(backbone.dim), f.ahead ? table(backbone.dim) : nullptr};
  f.depth_text = {table(depth.dim), f.ahead ? table(depth.dim) : nullptr};
  f.token_ring = 32;
  f.entry_ring = 16;
  f.tokens = keeper.keep(dice.wholes<int64_t>(size_t(capacity) * f.token_ring, 0, text_card - 1));
  f.begins = keeper.keep(dice.wholes<int64_t>(size_t(capacity) * f.entry_ring, 0, 40));
  f.entries = keeper.keep(dice.wholes<int64_t>(size_t(capacity) * f.entry_ring, 0, 9));
  f.whole = keeper.keep(dice.wholes<int64_t>(size_t(capacity) * 4, 0, 9));
  f.real = keeper.keep(dice.wholes<float>(size_t(capacity) * 3, 0, 1));
  f.base = keeper.keep(dice.wholes<int64_t>(size_t(capacity), 0, 0));
  f.max_delay = dice.whole(0, 2);
  f.delays = keeper.keep(dice.wholes<int64_t>(1 + books, 0, f.max_delay));
  f.text_card = text_card;
  f.codebooks = books;
  f.card = depth.card;
  f.delay_steps = 2;
  f.warm_up = f.delay_steps + f.max_delay;
  f.tail = f.warm_up + 3;
  f.padding = 3;
  f.samples = spectral.subframes * spectral.hop;
  World world;
  world.state = dice.wholes<int64_t>(size_t(capacity) * phases::kFields, 0, 3);
  for (int slot = 0; slot < capacity; ++slot) {
    int64_t* state = world.state.data() + size_t(slot) * phases::kFields;
    for (int field : {phases::kEntriesGiven, phases::kWordsGiven}) state[field] = dice.whole(0, 9);
    for (int field : {phases::kEndStep, phases::kFlushAt}) state[field] = dice.whole(-1, 0);
    state[phases::kClosed] = dice.whole(0, 1);
    state[phases::kStep] = dice.whole(0, 3 * backbone.context + 9);
  }
  world.history = dice.wholes<int64_t>(size_t(capacity) * (f.max_delay + 1) * (1 + books), -1, depth.card - 1);
  world.kv = rings(backbone);
  world.codec.resize(size_t(capacity) * antiphon_spectral_history(&spectral));
  const int rows = dice.whole(1, capacity);
  const std::vector<int32_t> slots = dice.distinct<int32_t>(rows, capacity);
  const bool forcing = dice.coin();
  const auto text = dice.wholes<int64_t>(rows, -1, outputs - 1);
  const auto audio = dice.wholes<int64_t>(size_t(rows) * books, -1, depth.card - 1);
  World worlds[2] = {world, world};
  std::vector<int64_t> reports[2], tokens[2];
  std::vector<int16_t> pcm[2];
  std::vector<float> logits[2], heads[2];
  for (int together : {0, 1}) {
    World& w = worlds[together];
    f.state = w.state.data();
    f.history = w.history.data();
    f.kv = w.kv.data();
    f.codec = w.codec.data();
    reports[together].resize(size_t(rows) * kReport);
    tokens[together].resize(size_t(rows) * (1 + books));
    pcm[together].resize(size_t(rows) * f.samples);
    logits[together].resize(size_t(rows) * outputs);
    heads[together].resize(size_t(rows) * books * depth.card);
    void* stage = antiphon_stage(together ? 2 : 0);
    for (int r = 0; r < (together ? 1 : rows); ++r) {
      const Outputs out{&reports[together][size_t(r) * kReport], &pcm[together][size_t(r) * f.samples],
                        &logits[together][size_t(r) * outputs], &tokens[together][size_t(r) * (1 + books)],
                        &heads[together][size_t(r) * books * depth.card]};
      const Forced forced{&text[r], &audio[size_t(r) * books]};
      antiphon_frame(&f, stage, together ? rows : 1, &slots[r], forcing ? &forced : nullptr, &out);
    }
    antiphon_stage_close(stage);
  }
  CHECK(same(reports[0], reports[1]) && same(tokens[0], tokens[1]) && same(pcm[0], pcm[1]));
  CHECK(same(logits[0], logits[1]) && same(heads[0], heads[1]));
  CHECK(same(worlds[0].state, worlds[1].state) && same(worlds[0].history, worlds[1].history));
  CHECK(same(worlds[0].kv, worlds[1].kv) && same(worlds[0].codec, worlds[1].codec));
}

void check_sample(Dice& dice) {
  const int rows = dice.whole(1, 5), n = dice.whole(1, 700), stride = n + dice.whole(0, 3);
  const std::vector<float> logits = dice.normals(size_t(rows - 1) * stride + n);
  const std::vector<Draw> draws = random_draws(dice, rows, n);
  std::vector<int64_t> tokens(rows, -1);
  antiphon_sample(rows, logits.data(), stride, n, draws.data(), 3, tokens.data());
  for (int64_t token : tokens) CHECK(token >= 0 && token < n);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 10;
  Dice dice(20);
  std::string said;
  antiphon_tiles();  // asks for them
  for (int kind : {kFloat, kHalf, kFixed16, kFixed8}) {
    for (int i = 0; i < rounds; ++i) {
      check_linear(dice, kind);
      check_backbone(dice, kind);
      check_depth(dice, kind);
      check_spectral(dice, kind);
      check_frame(dice, kind);
    }
    check_many_rows(dice, kind);
    said += " " + std::to_string(kind);
  }
  for (int i = 0; i < 5 * rounds; ++i) check_sample(dice);
#if defined(__AVX512F__)
  const char* lanes = "AVX-512";
#elif defined(__AVX2__)
  const char* lanes = "AVX2";
#else
  const char* lanes = "portable";
#endif
  std::printf("clean: %s, kinds of matrix%s\n", lanes, said.c_str());
}
