// The phases on the host over random shapes, slot maps, ring wraps and commit masks, for the sanitizers: forwards and
// backwards give the same bits, so no thread reads what another writes in the same step.
#include "../../cuda_ext/cuda/host.h"

#include "../../cuda_ext/cuda/entries.h"
#include "dice.h"

using namespace antiphon::phases;

namespace {

void* order(bool backwards) {
  static int anything;
  return backwards ? &anything : nullptr;
}

std::vector<uint8_t> narrowed(const std::vector<float>& values, int kind) {
  std::vector<uint8_t> out(values.size() * element_bytes(kind));
  for (size_t i = 0; i < values.size(); ++i) {
    if (kind == kInt8) reinterpret_cast<int8_t*>(out.data())[i] = int8_t(values[i] * 40.0f);
    else put(out.data(), kind, i, values[i]);
  }
  return out;
}

constexpr int kKinds[] = {kFloat32, kFloat16, kBfloat16, kInt8}, kFloats[] = {kFloat32, kFloat16, kBfloat16};

Matrix random_matrix(Dice& dice, Keeper& keeper, int outputs, int inputs) {
  Matrix m{};
  m.kind = dice.one_of(kKinds);
  m.inputs = inputs;
  m.outputs = outputs;
  m.data = keeper.keep(narrowed(dice.normals(size_t(outputs) * inputs, 1.0f / std::sqrt(float(inputs))), m.kind));
  if (m.kind == kInt8) m.scale = keeper.keep(dice.normals(outputs, 0.02f));
  return m;
}

const float* maybe(Dice& dice, Keeper& keeper, int width) {
  return dice.coin() ? keeper.keep(dice.normals(width)) : nullptr;
}

Draws random_draws(Dice& dice, Keeper& keeper, int rows, int card) {
  Draws d{};
  d.seed_stride = d.generation_stride = dice.whole(1, 2);
  d.step_stride = d.top_k_stride = d.temperature_stride = 1;
  d.seed = keeper.keep(dice.wholes<int64_t>(size_t(rows) * 2, -(1 << 30), 1 << 30));
  d.generation = keeper.keep(dice.wholes<int64_t>(size_t(rows) * 2, 0, 9));
  d.step = keeper.keep(dice.wholes<int64_t>(rows, 0, 999));
  d.top_k = keeper.keep(dice.wholes<int64_t>(rows, -1, card + 2));
  d.temperature = keeper.keep(dice.wholes<float>(rows, 0, 1));
  return d;
}

void fault() {  // what the sanitizers must see, or this test shows nothing
  std::vector<float> row(16);
  const Attend a{row.data(), row.data(), row.data(), row.data(), nullptr, nullptr, nullptr, 0, 0, 0, 0, 0, 0, 0};
  float out[kVector];
  load_vector(a.q + 12, out);
  std::printf("%f\n", double(out[7]));
}

void check_halves() {  // both ways over every number there is
  for (uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const Half half{uint16_t(bits)};
    const Bfloat brain{uint16_t(bits)};
    Half again;
    Bfloat same_brain;
    narrow(widen(half), &again);
    narrow(widen(brain), &same_brain);
    if (widen(half) == widen(half)) CHECK(again.bits == half.bits);
    if (widen(brain) == widen(brain)) CHECK(same_brain.bits == brain.bits);
  }
}

void check_sample(Dice& dice) {
  Keeper keeper;
  const int rows = dice.whole(1, 5), card = dice.coin() ? dice.whole(1, 20) : dice.whole(200, 900), guided = dice.whole(0, rows);
  Sample s{};
  s.row_stride = card + dice.whole(0, 3);
  const std::vector<float> logits = dice.normals(size_t(rows + guided - 1) * s.row_stride + card);
  s.rows = rows;
  s.card = card;
  s.codebook = 2;
  s.token_stride = dice.whole(1, 3);
  s.draws = random_draws(dice, keeper, rows, card);
  s.guided.rows = keeper.keep(dice.distinct<int64_t>(guided, rows));
  s.guided.strength = keeper.keep(dice.normals(guided));
  s.guided.count = guided;
  const std::vector<int64_t> forced = dice.wholes<int64_t>(size_t(rows - 1) * s.token_stride + 1, -1, card - 1);
  if (dice.coin()) s.forced = forced.data();
  std::vector<int64_t> out[2];
  for (bool backwards : {false, true}) {
    std::vector<float> own = logits;
    out[backwards].assign(size_t(rows - 1) * s.token_stride + 1, -5);
    s.logits = own.data();
    s.guided.logits = own.data() + size_t(rows) * s.row_stride;
    s.tokens = out[backwards].data();
    CHECK(antiphon_phase_sample(&s, order(backwards)) == 0);
    for (int r = 0; r < rows; ++r) CHECK(s.tokens[r * s.token_stride] >= 0 && s.tokens[r * s.token_stride] < card);
  }
  CHECK(same(out[0], out[1]));
}

void check_attend(Dice& dice) {
  Attend a{};
  a.rows = dice.whole(1, 4);
  a.heads = dice.whole(1, 3);
  a.head_dim = kVector * dice.whole(1, 18);
  a.positions = dice.coin() ? dice.whole(1, 20) : dice.whole(200, 300);
  a.kind = dice.one_of(kFloats);
  const int table = dice.whole(1, 5);
  a.row_stride = int64_t(a.heads) * a.positions * a.head_dim;
  const std::vector<uint8_t> keys = narrowed(dice.normals(size_t(table) * a.row_stride), a.kind);
  const std::vector<uint8_t> values = narrowed(dice.normals(size_t(table) * a.row_stride), a.kind);
  const std::vector<float> q = dice.normals(size_t(a.rows) * a.heads * a.head_dim);
  const std::vector<int64_t> index = dice.wholes<int64_t>(a.rows, 0, table - 1);
  const std::vector<int64_t> count = dice.wholes<int64_t>(a.rows, 0, 3 * a.positions);
  a.q = q.data();
  a.keys = keys.data();
  a.values = values.data();
  if (dice.coin()) a.index = index.data();
  (dice.coin() ? a.steps : a.length) = count.data();
  std::vector<float> out[2];
  for (bool backwards : {false, true}) {
    out[backwards].assign(q.size(), 9.0f);
    a.out = out[backwards].data();
    CHECK(antiphon_phase_attend(&a, order(backwards)) == 0);
    CHECK(all_finite(out[backwards]));
  }
  CHECK(same(out[0], out[1]));
}

void check_text(Dice& dice) {
  TextStep t{};
  const int capacity = dice.whole(1, 320);
  t.rows = dice.whole(1, capacity);
  t.ahead = dice.whole(0, 3);
  t.token_ring = 32;
  t.entry_ring = 16;
  t.card = 50;
  t.padding = 3;
  std::vector<int64_t> state = dice.wholes<int64_t>(size_t(capacity) * kFields, -1, 3);
  for (int slot = 0; slot < capacity; ++slot) {
    for (int field : {kCur, kEnd, kAhead, kAheadEnd}) state[size_t(slot) * kFields + field] = dice.whole(60, 70);
    for (int field : {kEntriesTaken, kEntriesGiven, kWordsTaken, kWordsGiven})
      state[size_t(slot) * kFields + field] = dice.whole(30, 36);
  }
  const auto tokens = dice.wholes<int64_t>(size_t(capacity) * t.token_ring, 0, 9);
  const auto begins = dice.wholes<int64_t>(size_t(capacity) * t.entry_ring, 0, 40);
  const auto entries = dice.wholes<int64_t>(size_t(capacity) * t.entry_ring, 0, 9);
  const auto slots = dice.distinct<int64_t>(t.rows, capacity);
  const auto sampled = dice.wholes<int64_t>(t.rows, 0, 4);
  t.state = state.data();
  t.ring = tokens.data();
  t.word_begin = begins.data();
  t.entries = entries.data();
  t.slots = slots.data();
  t.sampled = sampled.data();
  std::vector<int64_t> token[2], next[2];
  std::vector<uint8_t> word[2], commit[2];
  for (bool backwards : {false, true}) {
    token[backwards].resize(t.rows);
    next[backwards].resize(size_t(t.rows) * kFields);
    word[backwards].resize(t.rows);
    commit[backwards].resize(t.rows);
    t.token = token[backwards].data();
    t.next = next[backwards].data();
    t.word = word[backwards].data();
    t.commit = commit[backwards].data();
    CHECK(antiphon_phase_text(&t, order(backwards)) == 0);
  }
  CHECK(same(token[0], token[1]) && same(next[0], next[1]) && same(word[0], word[1]) && same(commit[0], commit[1]));
}

void check_spectral(Dice& dice) {
  InverseFft f{};
  OverlapAdd o{};
  f.radix1 = dice.whole(2, 12);
  f.radix2 = 2 * dice.whole(1, 5);
  const int n = f.radix1 * f.radix2, capacity = dice.whole(1, 4);
  o.n = n;
  o.hop = dice.one_of<int>({n, n / 2, (n + 3) / 4});
  o.subframes = (n + o.hop - 1) / o.hop + dice.whole(0, 3);
  o.rows = dice.whole(1, capacity);
  o.line_stride = n + dice.whole(0, 5);
  f.count = o.rows * o.subframes;
  f.log_magnitude_max = 1.0f;
  const auto heads = dice.normals(size_t(f.count) * 2 * (n / 2 + 1)), circle = dice.normals(size_t(2) * n);
  const auto window = dice.normals(n), lines = dice.normals(size_t(capacity - 1) * o.line_stride + n);
  const auto slots = dice.distinct<int64_t>(o.rows, capacity);
  const auto commit = dice.wholes<uint8_t>(o.rows, 0, 1);
  f.heads = heads.data();
  f.circle = circle.data();
  f.window = window.data();
  o.slots = slots.data();
  if (dice.coin()) o.commit = commit.data();
  std::vector<float> line[2], samples[2];
  for (bool backwards : {false, true}) {
    std::vector<float> waves(size_t(f.count) * n);
    line[backwards] = lines;
    samples[backwards].resize(size_t(o.rows) * o.subframes * o.hop);
    f.waves = waves.data();
    o.waves = waves.data();
    o.lines = line[backwards].data();
    o.samples = samples[backwards].data();
    CHECK(antiphon_phase_spectral(&f, &o, order(backwards)) == 0);
    CHECK(all_finite(samples[backwards]));
  }
  CHECK(same(line[0], line[1]) && same(samples[0], samples[1]));
}

void check_convolve(Dice& dice) {
  Convolve c{};
  const int capacity = dice.whole(1, 4);
  c.rows = dice.whole(1, capacity);
  c.time = dice.whole(1, 9);
  c.inputs = dice.whole(1, 40);
  c.outputs = dice.whole(1, 20);
  c.kernel = dice.whole(1, 7);
  c.dilation = dice.whole(1, 3);
  c.elu = dice.coin();
  const int past = c.length() * c.inputs;
  c.past_stride = past + dice.whole(0, 3);
  const auto x = dice.normals(size_t(c.rows) * c.time * c.inputs);
  const auto pasts = dice.normals(size_t(capacity - 1) * c.past_stride + past);
  const auto weight = dice.normals(size_t(c.outputs) * c.kernel * c.inputs), bias = dice.normals(c.outputs);
  const auto residual = dice.normals(size_t(c.rows) * c.time * c.outputs);
  const auto slots = dice.distinct<int64_t>(c.rows, capacity);
  const auto commit = dice.wholes<uint8_t>(c.rows, 0, 1);
  c.x = x.data();
  c.slots = slots.data();
  c.commit = commit.data();
  c.weight = weight.data();
  c.bias = bias.data();
  if (dice.coin()) c.residual = residual.data();
  std::vector<float> y[2], kept[2];
  for (bool backwards : {false, true}) {
    y[backwards].resize(residual.size());
    kept[backwards] = pasts;
    c.y = y[backwards].data();
    c.pasts = kept[backwards].data();
    CHECK(antiphon_phase_convolve(&c, order(backwards)) == 0);
    CHECK(all_finite(y[backwards]));
  }
  CHECK(same(y[0], y[1]) && same(kept[0], kept[1]));
}

void check_depth(Dice& dice) {
  Keeper keeper;
  Depth m{};
  m.layer_count = dice.whole(1, 2);
  m.set_count = dice.whole(1, 3);
  m.book_count = dice.whole(1, 4);
  m.heads = dice.whole(1, 3);
  const int dim = m.dim = m.heads * kVector * dice.whole(1, 2), main_dim = kVector * dice.whole(1, 5);
  m.card = dice.whole(1, 40);
  m.eps = 1e-8f;
  std::vector<DepthLayer> layers;
  std::vector<DepthSet> sets;
  for (int l = 0; l < m.layer_count; ++l) {
    layers.push_back({keeper.keep(dice.normals(dim)), keeper.keep(dice.normals(dim)), maybe(dice, keeper, dim),
                      maybe(dice, keeper, dim)});
    for (int s = 0; s < m.set_count; ++s) {
      const int hidden = kVector * dice.whole(1, 4);
      m.widest = std::max(m.widest, hidden);
      sets.push_back({random_matrix(dice, keeper, 3 * dim, dim), random_matrix(dice, keeper, dim, dim),
                      random_matrix(dice, keeper, 2 * hidden, dim), random_matrix(dice, keeper, dim, hidden)});
    }
  }
  std::vector<DepthBook> books;
  for (int b = 0; b < m.book_count; ++b) {
    DepthBook book{};
    book.input = random_matrix(dice, keeper, dim, main_dim);
    book.head = random_matrix(dice, keeper, m.card, dim);
    book.embedding_kind = dice.one_of(kFloats);
    if (b) book.embedding = keeper.keep(narrowed(dice.normals(size_t(m.card) * dim), book.embedding_kind));
    book.bias = maybe(dice, keeper, m.card);
    book.norm = maybe(dice, keeper, dim);
    book.set = dice.whole(0, m.set_count - 1);
    books.push_back(book);
  }
  m.layers = layers.data();
  m.sets = sets.data();
  m.books = books.data();
  DepthCall c{};
  c.drawn = dice.whole(1, 6);
  const int guided = dice.whole(0, c.drawn);
  c.rows = c.drawn + guided;
  c.main_dim = main_dim;
  const auto hidden = dice.normals(size_t(c.rows) * main_dim), first = dice.normals(size_t(c.rows) * dim);
  const auto forced = dice.wholes<int64_t>(size_t(c.drawn) * m.book_count, -1, m.card - 1);
  c.hidden = hidden.data();
  c.first = first.data();
  if (dice.coin()) c.forced = forced.data();
  c.draws = random_draws(dice, keeper, c.drawn, m.card);
  c.guided_rows = keeper.keep(dice.distinct<int64_t>(guided, c.drawn));
  c.strength = keeper.keep(dice.normals(guided));
  const bool kept = dice.coin();  // logits of all codebooks, or of one at a time
  c.logit_stride = kept ? int64_t(m.book_count) * m.card : m.card;
  c.logit_step = kept ? m.card : 0;
  std::vector<int64_t> tokens[2];
  std::vector<float> logits[2];
  for (bool backwards : {false, true}) {
    std::vector<float> scratch(antiphon_phase_depth_scratch(&m, c.rows));
    tokens[backwards].resize(size_t(c.drawn) * m.book_count);
    logits[backwards].resize(size_t(c.rows) * c.logit_stride);
    c.tokens = tokens[backwards].data();
    c.logits = logits[backwards].data();
    c.scratch = scratch.data();
    uint32_t counter = 0;
    CHECK(antiphon_phase_depth(&m, &c, &counter, order(backwards)) == 0);
    CHECK(all_finite(logits[backwards]));
  }
  CHECK(same(tokens[0], tokens[1]) && same(logits[0], logits[1]));
}

void check_backbone(Dice& dice) {
  Keeper keeper;
  Backbone m{};
  m.layer_count = dice.whole(1, 2);
  m.heads = dice.whole(1, 3);
  const int width = kVector * dice.whole(1, 3), dim = m.dim = m.heads * width;
  m.context = dice.whole(1, 12);
  m.capacity = dice.whole(1, 6);
  m.kind = dice.one_of(kFloats);
  m.rope = dice.whole(0, 2);
  m.eps = 1e-8f;
  m.cross_eps = 1e-5f;
  const int hidden = m.widest = kVector * dice.whole(1, 5);
  const bool hears = dice.coin();
  std::vector<BackboneLayer> layers;
  for (int l = 0; l < m.layer_count; ++l) {
    BackboneLayer layer{};
    layer.norm1 = keeper.keep(dice.normals(dim));
    layer.norm2 = keeper.keep(dice.normals(dim));
    layer.scale1 = maybe(dice, keeper, dim);
    layer.scale2 = maybe(dice, keeper, dim);
    layer.qkv = random_matrix(dice, keeper, 3 * dim, dim);
    layer.out = random_matrix(dice, keeper, dim, dim);
    layer.up = random_matrix(dice, keeper, 2 * hidden, dim);
    layer.down = random_matrix(dice, keeper, dim, hidden);
    if (hears)
      layer.cross = {keeper.keep(dice.normals(size_t(2) * dim)), maybe(dice, keeper, dim),
                     random_matrix(dice, keeper, dim, dim), random_matrix(dice, keeper, dim, dim)};
    layers.push_back(layer);
  }
  m.layers = layers.data();
  m.out_norm = keeper.keep(dice.normals(dim));
  m.frequencies = keeper.keep(dice.normals(width / 2));
  BackboneCall c{};
  c.rows = dice.whole(1, m.capacity);
  c.voice_positions = dice.whole(1, 9);
  c.voice_kind = dice.one_of(kFloats);
  const int voices = dice.whole(1, 3);
  const auto slots = dice.distinct<int64_t>(c.rows, m.capacity), steps = dice.wholes<int64_t>(c.rows, 0, 3 * m.context);
  const auto voice = dice.wholes<int64_t>(c.rows, 0, voices - 1), length = dice.wholes<int64_t>(c.rows, 1, c.voice_positions);
  const auto commit = dice.wholes<uint8_t>(c.rows, 0, 1);
  const auto heard = narrowed(dice.normals(size_t(voices) * m.layer_count * 2 * c.voice_positions * dim), c.voice_kind);
  const auto x = dice.normals(size_t(c.rows) * dim);
  const auto kv = narrowed(dice.normals(size_t(m.layer_count) * 2 * m.capacity * m.context * dim), m.kind);
  c.slots = slots.data();
  c.steps = steps.data();
  c.commit = dice.coin() ? commit.data() : nullptr;
  c.voices = heard.data();
  c.voice = voice.data();
  c.voice_length = length.data();
  std::vector<float> out[2];
  std::vector<uint8_t> ring[2];
  for (bool backwards : {false, true}) {
    std::vector<float> own = x, scratch(antiphon_phase_backbone_scratch(&m, c.rows));
    out[backwards].resize(x.size());
    ring[backwards] = kv;
    c.x = own.data();
    c.hidden = out[backwards].data();
    c.kv = ring[backwards].data();
    c.scratch = scratch.data();
    CHECK(antiphon_phase_backbone(&m, &c, order(backwards)) == 0);
    CHECK(all_finite(out[backwards]));
  }
  CHECK(same(out[0], out[1]) && same(ring[0], ring[1]));
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 10;
  Dice dice(21);
  if (rounds == 0) fault();
  check_halves();
  for (int i = 0; i < rounds; ++i) {
    check_sample(dice);
    check_attend(dice);
    check_text(dice);
    check_spectral(dice);
    check_convolve(dice);
    check_depth(dice);
    check_backbone(dice);
  }
  std::printf("clean: phases\n");
}
