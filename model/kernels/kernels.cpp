// The kernels of RNNsearch on processors with wide vectors. Each equals its namesake in plain.py but for rounding.
//
// Products go through the micro-kernel that torch exports (oneDNN's brgemm): float32, bfloat16 with sums in float32,
// or, where the processor has no products of bfloat16, float32 with both operands rounded to bfloat16. The matrix on the right is packed once and used many times. No sum is split between threads, so the
// number of threads does not change a bit of any result.
//
// Shapes as in plain.py: R rows, B sentences, S source positions, N units, A alignment units, H the size of an
// annotation, K words. ld: elements from one row to the next.

#include <ATen/Parallel.h>
#include <ATen/native/CPUBlas.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

using std::int64_t;

namespace {

using bf16 = at::BFloat16;

constexpr int64_t PANEL = 64;    // columns of the right matrix that lie together
constexpr int64_t BLOCK = 96;    // rows of the left matrix taken at a time
constexpr int64_t DEPTH = 1056;  // longest stretch of a sum: 64 columns of it fit the second-level cache

int64_t even(int64_t k) { return k + (k & 1); }

int64_t panels(int64_t columns) { return (columns + PANEL - 1) / PANEL; }

uint16_t rounded(float x) {  // to the nearest bfloat16, ties to even; a NaN stays one
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  uint32_t up = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<uint16_t>(x == x ? up : 0x7fc0u);
}

// ---- exp, tanh, sigmoid: written so that the compiler can take many at a time

struct Scaled {
  float tail, power;  // exp(x) = power * (1 + tail)
};

inline Scaled split_exp(float x) {  // x in [-87, 87]
  const float shift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  float n = (x * 1.44269504f + shift) - shift;
  float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;  // ln 2 in two parts
  float p = 1.0f / 5040;                                  // the series of exp(r) - 1, |r| <= ln(2) / 2
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  int32_t exponent = (static_cast<int32_t>(n) + 127) << 23;
  float power;
  std::memcpy(&power, &exponent, sizeof power);
  return {p * r, power};
}

inline float exp_(float x) {
  Scaled e = split_exp(std::min(std::max(x, -87.0f), 87.0f));
  float value = e.power + e.power * e.tail;
  return x < -87.0f ? 0.0f : (x == x ? value : x);
}

inline float tanh_(float x) {  // -u / (2 + u) with u = exp(-2 |x|) - 1 keeps small x exact
  Scaled e = split_exp(-2.0f * std::min(std::fabs(x), 10.0f));
  float u = (e.power - 1.0f) + e.power * e.tail;
  return x == x ? std::copysign(-u / (2.0f + u), x) : x;
}

inline double exp_(double x) { return std::exp(x); }
inline double tanh_(double x) { return std::tanh(x); }

template <class T>
inline T sigmoid_(T x) {
  return T(1) / (T(1) + exp_(-x));
}

// ---- copying matrices

using Lanes = float __attribute__((vector_size(64)));
using Bits = uint32_t __attribute__((vector_size(64)));
constexpr int64_t SIDE = 16;  // of the squares that matrices are copied by

Bits rounded(Lanes x) {  // as above, in the upper half of each lane
  Bits bits = reinterpret_cast<Bits>(x);
  Bits up = (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
  return x == x ? up : Bits{} + 0x7fc00000u;
}

template <bool ROUND>
void put_lanes(Lanes x, float* to) {
  if constexpr (ROUND) {
    Bits bits = rounded(x);
    std::memcpy(to, &bits, sizeof bits);
  } else {
    std::memcpy(to, &x, sizeof x);
  }
}

void transpose(Lanes square[SIDE]) {  // swaps halves of growing size between rows that far apart
  using Order = int32_t __attribute__((vector_size(64)));
#pragma GCC unroll 4
  for (int step = 1; step < SIDE; step *= 2) {
    Order low, high;
    for (int lane = 0; lane < SIDE; lane++) {
      low[lane] = lane & step ? SIDE + lane - step : lane;
      high[lane] = lane & step ? SIDE + lane : lane + step;
    }
#pragma GCC unroll 16
    for (int i = 0; i < SIDE; i++) {
      if (i & step) continue;
      Lanes a = square[i], b = square[i + step];
      square[i] = __builtin_shuffle(a, b, low);
      square[i + step] = __builtin_shuffle(a, b, high);
    }
  }
}

// Reads the square whose element (i, lane) is at from[i * row_stride + lane * lane_stride]; zeros beyond the edge.
void read_square(const float* from, int64_t row_stride, int64_t lane_stride, int64_t rows, int64_t lanes,
                 Lanes square[SIDE]) {
  if (rows == SIDE && lanes == SIDE && (lane_stride == 1 || row_stride == 1)) {
    int64_t stride = lane_stride == 1 ? row_stride : lane_stride;
    for (int64_t i = 0; i < SIDE; i++) std::memcpy(&square[i], from + i * stride, sizeof(Lanes));
    if (lane_stride != 1) transpose(square);
    return;
  }
  for (int64_t i = 0; i < SIDE; i++) {
    square[i] = Lanes{};
    if (i >= rows) continue;
    for (int64_t lane = 0; lane < lanes; lane++) square[i][lane] = from[i * row_stride + lane * lane_stride];
  }
}

// Copies rows of the left matrix: out has `ld` elements a row, a multiple of SIDE not below `depth`. With ROUND the
// values are rounded to bfloat16 and stay float32.
template <class T, bool ROUND>
void copy_rows(const float* a, int64_t row_stride, int64_t column_stride, int64_t rows, int64_t depth, T* out,
               int64_t ld) {
  Lanes square[SIDE];
  auto put = [&](int64_t i, int64_t k) {
    int64_t height = std::min(SIDE, rows - i);
    read_square(a + i * row_stride + k * column_stride, row_stride, column_stride, height, std::min(SIDE, depth - k),
                square);
    for (int64_t j = 0; j < height; j++) {
      T* to = out + (i + j) * ld + k;
      if constexpr (std::is_same_v<T, float>) {
        put_lanes<ROUND>(square[j], to);
      } else {
        Bits bits = rounded(square[j]);
        for (int64_t lane = 0; lane < SIDE; lane++) to[lane] = static_cast<uint16_t>(bits[lane] >> 16);
      }
    }
  };
  if (column_stride == 1) {  // along the rows of what is read
    for (int64_t i = 0; i < rows; i += SIDE) {
      for (int64_t k = 0; k < depth; k += SIDE) put(i, k);
    }
  } else {
    for (int64_t k = 0; k < depth; k += SIDE) {
      for (int64_t i = 0; i < rows; i += SIDE) put(i, k);
    }
  }
}

// ---- products

void call(int64_t m, int64_t n, int64_t k, int64_t lda, int64_t ldc, bool add, const float* a, const float* b,
          float* c) {
  at::native::cpublas::brgemm(m, n, k, lda, PANEL, ldc, add, a, b, c, false);
}

void call(int64_t m, int64_t n, int64_t k, int64_t lda, int64_t ldc, bool add, const uint16_t* a,
          const uint16_t* b, float* c) {
  at::native::cpublas::brgemm(m, n, even(k), lda, PANEL, ldc, add, reinterpret_cast<const bf16*>(a),
                              reinterpret_cast<const bf16*>(b), c, true);
}

// Packs the right matrix, depth x columns: panels of 64 columns, in bfloat16 with the rows 2k and 2k + 1 interleaved.
template <class T, bool ROUND = false>
void pack(int64_t depth, int64_t columns, const float* b, int64_t row_stride, int64_t column_stride, T* out) {
  constexpr bool pairs = !std::is_same_v<T, float>;
  int64_t high = pairs ? even(depth) : depth;
  at::parallel_for(0, panels(columns), 1, [&](int64_t first, int64_t last) {
    Lanes square[SIDE];
    for (int64_t p = first; p < last; p++) {
      T* panel = out + p * high * PANEL;
      auto put = [&](int64_t k, int64_t j) {
        int64_t column = p * PANEL + j;
        int64_t lanes = std::clamp<int64_t>(columns - column, 0, SIDE);
        read_square(b + k * row_stride + column * column_stride, row_stride, column_stride, std::min(SIDE, depth - k),
                    lanes, square);
        for (int64_t i = 0; i < std::min(SIDE, high - k); i += pairs ? 2 : 1) {
          T* to = panel + (k + i) * PANEL + (pairs ? 2 * j : j);
          if constexpr (pairs) {
            Bits both = rounded(square[i]) >> 16 | rounded(square[i + 1]);
            std::memcpy(to, &both, sizeof both);
          } else {
            put_lanes<ROUND>(square[i], to);
          }
        }
      };
      if (column_stride == 1) {  // along the rows of what is read
        for (int64_t k = 0; k < depth; k += SIDE) {
          for (int64_t j = 0; j < PANEL; j += SIDE) put(k, j);
        }
      } else {
        for (int64_t j = 0; j < PANEL; j += SIDE) {
          for (int64_t k = 0; k < depth; k += SIDE) put(k, j);
        }
      }
    }
  });
}

template <class T, bool ROUND = false>
void multiply(int64_t rows, int64_t columns, int64_t depth, const float* a, int64_t row_stride,
              int64_t column_stride, const T* packed, float* c, int64_t ldc, bool add) {
  constexpr bool whole = std::is_same_v<T, float>, as_is = whole && !ROUND;
  if (rows == 0 || columns == 0) return;
  if (depth == 0) {
    for (int64_t i = 0; i < rows && !add; i++) std::fill(c + i * ldc, c + i * ldc + columns, 0.0f);
    return;
  }
  int64_t high = whole ? depth : even(depth);
  int64_t blocks = (rows + BLOCK - 1) / BLOCK, threads = at::get_num_threads();
  int64_t groups = std::min(panels(columns), std::max<int64_t>(1, (threads + blocks - 1) / blocks));
  int64_t share = (panels(columns) + groups - 1) / groups;
  int64_t stretches = (depth + DEPTH - 1) / DEPTH;
  int64_t stretch = ((depth + stretches - 1) / stretches + SIDE - 1) / SIDE * SIDE;
  at::parallel_for(0, blocks * groups, 1, [&](int64_t first, int64_t last) {
    static thread_local std::vector<T> copy;
    for (int64_t task = first; task < last; task++) {
      int64_t i = task / groups * BLOCK, m = std::min(BLOCK, rows - i);
      int64_t p0 = task % groups * share, p1 = std::min(p0 + share, panels(columns));
      for (int64_t k = 0; k < depth; k += stretch) {
        int64_t d = std::min(stretch, depth - k), lda = row_stride;
        const float* block = a + i * row_stride + k * column_stride;
        const T* left;
        if constexpr (as_is) left = block;
        if (!as_is || column_stride != 1) {
          lda = (d + SIDE - 1) / SIDE * SIDE + 2 * SIDE;  // rows a power of two apart would share their cache lines
          copy.resize(BLOCK * (DEPTH + 3 * SIDE));
          copy_rows<T, ROUND>(block, row_stride, column_stride, m, d, copy.data(), lda);
          left = copy.data();
        }
        for (int64_t p = p0; p < p1; p++) {
          int64_t n = std::min(PANEL, columns - p * PANEL);
          call(m, n, d, lda, ldc, add || k > 0, left, packed + (p * high + k) * PANEL, c + i * ldc + p * PANEL);
        }
      }
    }
    at::native::cpublas::brgemm_release(!whole);  // the matrix tiles of the processor, where it has them
  });
}

template <class F>
void each_row(int64_t rows, int64_t width, const F& f) {
  int64_t grain = std::max<int64_t>(1, 8192 / std::max<int64_t>(width, 1));  // fewer elements do not pay a thread
  at::parallel_for(0, rows, grain, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; i++) f(i);
  });
}

// ---- the gated unit: s~ | z | r side by side

template <class T>
void reset(int64_t rows, int64_t n, T* gates, int64_t ld, const T* state, T* reset_state) {
  each_row(rows, 2 * n, [&](int64_t i) {
    T* z = gates + i * ld + n;
    T* r = z + n;
    const T* s = state + i * n;
    T* out = reset_state + i * n;
#pragma omp simd
    for (int64_t k = 0; k < n; k++) {
      z[k] = sigmoid_(z[k]);
      r[k] = sigmoid_(r[k]);
      out[k] = r[k] * s[k];
    }
  });
}

template <class T>
void update(int64_t rows, int64_t n, T* gates, int64_t ld, const T* state, const bool* mask, T* next) {
  each_row(rows, n, [&](int64_t i) {
    T* candidate = gates + i * ld;
    const T* z = candidate + n;
    const T* s = state + i * n;
    T* out = next + i * n;
    if (!mask[i]) {
      for (int64_t k = 0; k < n; k++) candidate[k] = tanh_(candidate[k]);
      std::copy(s, s + n, out);
      return;
    }
#pragma omp simd
    for (int64_t k = 0; k < n; k++) {
      candidate[k] = tanh_(candidate[k]);
      out[k] = s[k] + z[k] * (candidate[k] - s[k]);
    }
  });
}

template <class T>
void update_backward(int64_t rows, int64_t n, const T* gates, int64_t ld, const T* state, const bool* mask, T* grad,
                     T* grad_gates, int64_t grad_ld) {
  each_row(rows, n, [&](int64_t i) {
    const T* candidate = gates + i * ld;
    const T* z = candidate + n;
    const T* s = state + i * n;
    T* g = grad + i * n;
    T* to_candidate = grad_gates + i * grad_ld;
    T* to_z = to_candidate + n;
    if (!mask[i]) {
      std::fill(to_candidate, to_candidate + 2 * n, T(0));
      return;
    }
#pragma omp simd
    for (int64_t k = 0; k < n; k++) {
      T taken = g[k] * z[k];
      to_candidate[k] = taken * (T(1) - candidate[k] * candidate[k]);
      to_z[k] = taken * (T(1) - z[k]) * (candidate[k] - s[k]);
      g[k] -= taken;
    }
  });
}

template <class T>
void reset_backward(int64_t rows, int64_t n, const T* gates, int64_t ld, const T* state, const T* grad_reset, T* grad,
                    T* grad_gates, int64_t grad_ld) {
  each_row(rows, n, [&](int64_t i) {
    const T* r = gates + i * ld + 2 * n;
    const T* s = state + i * n;
    const T* from = grad_reset + i * n;
    T* g = grad + i * n;
    T* to_r = grad_gates + i * grad_ld + 2 * n;
#pragma omp simd
    for (int64_t k = 0; k < n; k++) {
      T passed = from[k] * r[k];
      g[k] += passed;
      to_r[k] = passed * (T(1) - r[k]) * s[k];
    }
  });
}

// ---- the soft search

inline float value(float x) { return x; }
inline double value(double x) { return x; }
inline float value(uint16_t x) {  // a bfloat16
  uint32_t bits = static_cast<uint32_t>(x) << 16;
  float wide;
  std::memcpy(&wide, &bits, sizeof wide);
  return wide;
}

// Of a batch: keys and annotations are kept as S, with the strides of a sentence and of a position; sums are T.
template <class T, class S>
struct Source {
  int64_t sentences, positions, key_size, annotation_size;
  const S* keys;
  int64_t key_sentence, key_position;
  const S* annotations;
  int64_t annotation_sentence, annotation_position;
  const bool* mask;
  int64_t mask_sentence, mask_position;
  const T* va;

  bool real(int64_t b, int64_t j) const { return mask[b * mask_sentence + j * mask_position]; }
  const S* key(int64_t b, int64_t j) const { return keys + b * key_sentence + j * key_position; }
  const S* annotation(int64_t b, int64_t j) const {
    return annotations + b * annotation_sentence + j * annotation_position;
  }
};

template <class T, class S>
void attend(const Source<T, S>& source, const T* query, T* alphas, T* context) {
  int64_t a = source.key_size, h = source.annotation_size, positions = source.positions;
  at::parallel_for(0, source.sentences, 1, [&](int64_t first, int64_t last) {
    for (int64_t b = first; b < last; b++) {
      const T* q = query + b * a;
      T* alpha = alphas + b * positions;
      T* c = context + b * h;
      T top = -INFINITY, total = 0;
      for (int64_t j = 0; j < positions; j++) {
        if (!source.real(b, j)) continue;
        const S* key = source.key(b, j);
        T score = 0;
#pragma omp simd reduction(+ : score)
        for (int64_t k = 0; k < a; k++) score += source.va[k] * tanh_(value(key[k]) + q[k]);
        alpha[j] = score;
        top = score > top || score != score ? score : top;
      }
      for (int64_t j = 0; j < positions; j++) {
        alpha[j] = source.real(b, j) ? exp_(alpha[j] - top) : T(0);
        total += alpha[j];
      }
      std::fill(c, c + h, T(0));
      for (int64_t j = 0; j < positions; j++) {
        if (!source.real(b, j)) continue;
        T weight = alpha[j] /= total;
        const S* annotation = source.annotation(b, j);
#pragma omp simd
        for (int64_t k = 0; k < h; k++) c[k] += weight * value(annotation[k]);
      }
    }
  });
}

template <class T, class S>
void attend_backward(const Source<T, S>& source, const T* query, const T* alphas, const T* grad_context, T* grad_query,
                     T* grad_keys, T* grad_va) {
  int64_t a = source.key_size, h = source.annotation_size, positions = source.positions;
  at::parallel_for(0, source.sentences, 1, [&](int64_t first, int64_t last) {
    std::vector<T> to_alpha(positions);
    for (int64_t b = first; b < last; b++) {
      const T* q = query + b * a;
      const T* alpha = alphas + b * positions;
      const T* to_context = grad_context + b * h;
      T* to_query = grad_query + b * a;
      T* to_va = grad_va + b * a;
      T mean = 0;
      for (int64_t j = 0; j < positions; j++) {
        if (!source.real(b, j)) continue;
        const S* annotation = source.annotation(b, j);
        T sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t k = 0; k < h; k++) sum += value(annotation[k]) * to_context[k];
        to_alpha[j] = sum;
        mean += alpha[j] * sum;
      }
      std::fill(to_query, to_query + a, T(0));
      for (int64_t j = 0; j < positions; j++) {
        if (!source.real(b, j)) continue;
        const S* key = source.key(b, j);
        T* to_key = grad_keys + (b * positions + j) * a;
        T to_score = alpha[j] * (to_alpha[j] - mean);
#pragma omp simd
        for (int64_t k = 0; k < a; k++) {
          T t = tanh_(value(key[k]) + q[k]);
          T inner = to_score * source.va[k] * (T(1) - t * t);
          to_va[k] += to_score * t;
          to_key[k] += inner;
          to_query[k] += inner;
        }
      }
    }
  });
}

// ---- the loss

template <class T>
void cross_entropy(int64_t rows, int64_t words, T* logits, const T* bias, const int64_t* target, T* nll,
                   bool gradient) {
  at::parallel_for(0, rows, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; i++) {
      T* x = logits + i * words;
      T top = -INFINITY, total = 0;
#pragma omp simd reduction(max : top)
      for (int64_t k = 0; k < words; k++) {
        x[k] += bias[k];
        top = std::max(top, x[k]);
      }
      T chosen = x[target[i]];
#pragma omp simd reduction(+ : total)
      for (int64_t k = 0; k < words; k++) {
        x[k] = exp_(x[k] - top);
        total += x[k];
      }
      nll[i] = std::log(total) + top - chosen;
      if (!gradient) continue;
      T scale = T(1) / total;
#pragma omp simd
      for (int64_t k = 0; k < words; k++) x[k] *= scale;
      x[target[i]] -= T(1);
    }
  });
}

}  // namespace

extern "C" {

// What the processor and this torch can do: 1 float32, 2 bfloat16. A micro-kernel counts if it multiplies rightly and
// if a row's sums are the same whatever rows are beside it: without AVX2 they are not.
int works() {
  constexpr int64_t depth = 500, height = 96;
  int answer = 0;
  std::vector<float> rows(height * depth), right(depth * PANEL), one(PANEL), all(height * PANEL);
  for (size_t i = 0; i < rows.size(); i++) rows[i] = 1.0f / static_cast<float>(3 + i % 997);
  for (size_t i = 0; i < right.size(); i++) right[i] = 1.0f / static_cast<float>(2 + i % 991);
  float c = 0;
  std::vector<float> ones(2 * PANEL, 1.0f);
  std::vector<uint16_t> halves(2 * PANEL, rounded(1.0f));
  try {
    call(1, 1, 2, 2, 1, false, ones.data(), ones.data(), &c);
    const float* last = rows.data() + (height - 1) * depth;
    call(1, PANEL, depth, depth, PANEL, false, last, right.data(), one.data());
    call(height, PANEL, depth, depth, PANEL, false, rows.data(), right.data(), all.data());
    bool same = std::equal(one.begin(), one.end(), all.end() - PANEL);
    answer |= c == 2.0f && same ? 1 : 0;
    call(1, 1, 2, 2, 1, false, halves.data(), halves.data(), &c);
    answer |= c == 2.0f ? 2 : 0;
  } catch (...) {
  }
  return answer;
}

int64_t packed_size(int64_t depth, int64_t columns) { return even(depth) * panels(columns) * PANEL; }

void pack_float32(int64_t depth, int64_t columns, const float* b, int64_t row_stride, int64_t column_stride,
                  float* out) {
  pack(depth, columns, b, row_stride, column_stride, out);
}

void pack_bfloat16(int64_t depth, int64_t columns, const float* b, int64_t row_stride, int64_t column_stride,
                   uint16_t* out) {
  pack(depth, columns, b, row_stride, column_stride, out);
}

void pack_rounded(int64_t depth, int64_t columns, const float* b, int64_t row_stride, int64_t column_stride,
                  float* out) {
  pack<float, true>(depth, columns, b, row_stride, column_stride, out);
}

void multiply_rounded(int64_t rows, int64_t columns, int64_t depth, const float* a, int64_t row_stride,
                      int64_t column_stride, const float* packed, float* c, int64_t ldc, int add) {
  multiply<float, true>(rows, columns, depth, a, row_stride, column_stride, packed, c, ldc, add != 0);
}

void multiply_float32(int64_t rows, int64_t columns, int64_t depth, const float* a, int64_t row_stride,
                      int64_t column_stride, const float* packed, float* c, int64_t ldc, int add) {
  multiply(rows, columns, depth, a, row_stride, column_stride, packed, c, ldc, add != 0);
}

void multiply_bfloat16(int64_t rows, int64_t columns, int64_t depth, const float* a, int64_t row_stride,
                       int64_t column_stride, const uint16_t* packed, float* c, int64_t ldc, int add) {
  multiply(rows, columns, depth, a, row_stride, column_stride, packed, c, ldc, add != 0);
}

#define FOR_BOTH(T, SUFFIX)                                                                                          \
  void reset_##SUFFIX(int64_t rows, int64_t n, T* gates, int64_t ld, const T* state, T* out) {                       \
    reset(rows, n, gates, ld, state, out);                                                                           \
  }                                                                                                                  \
  void update_##SUFFIX(int64_t rows, int64_t n, T* gates, int64_t ld, const T* state, const bool* mask, T* next) {   \
    update(rows, n, gates, ld, state, mask, next);                                                                   \
  }                                                                                                                  \
  void update_backward_##SUFFIX(int64_t rows, int64_t n, const T* gates, int64_t ld, const T* state,                 \
                                const bool* mask, T* grad, T* grad_gates, int64_t grad_ld) {                         \
    update_backward(rows, n, gates, ld, state, mask, grad, grad_gates, grad_ld);                                     \
  }                                                                                                                  \
  void reset_backward_##SUFFIX(int64_t rows, int64_t n, const T* gates, int64_t ld, const T* state,                  \
                               const T* grad_reset, T* grad, T* grad_gates, int64_t grad_ld) {                       \
    reset_backward(rows, n, gates, ld, state, grad_reset, grad, grad_gates, grad_ld);                                \
  }                                                                                                                  \
  void cross_entropy_##SUFFIX(int64_t rows, int64_t words, T* logits, const T* bias, const int64_t* target, T* nll,  \
                              int gradient) {                                                                        \
    cross_entropy(rows, words, logits, bias, target, nll, gradient != 0);                                            \
  }

#define ATTEND(T, S, SUFFIX)                                                                                          \
  void attend_##SUFFIX(const Source<T, S>* source, const T* query, T* alphas, T* context) {                          \
    attend(*source, query, alphas, context);                                                                         \
  }                                                                                                                  \
  void attend_backward_##SUFFIX(const Source<T, S>* source, const T* query, const T* alphas, const T* grad_context,  \
                                T* grad_query, T* grad_keys, T* grad_va) {                                           \
    attend_backward(*source, query, alphas, grad_context, grad_query, grad_keys, grad_va);                           \
  }

FOR_BOTH(float, float32)
FOR_BOTH(double, float64)
ATTEND(float, float, float32)
ATTEND(double, double, float64)
ATTEND(float, uint16_t, bfloat16)
}
