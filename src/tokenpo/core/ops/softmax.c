/* The residual of a softmax (softmax.py has the formulas), a row at a time while it is in the cache: what torch does in
 * nine passes over the logits is three here. A row is read for its maximum, read for its sums, and written.
 *
 * Numbers are float32, or bf16, the upper half of one. A NaN stays a NaN. Compiled where it runs, by softmax_compiled.py.
 * Axes: m rows, v vocabulary.
 */
#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <string.h>

#define ALWAYS static inline __attribute__((always_inline))
/* Logits summed in float32 before their sum is added to the others in float64. */
#define PIECE 1024
/* Rows whose statistics are computed together from their sums. */
#define ROWS 16
#define LN2 0.69314718055994530942

typedef struct { float peaks, rest, mean, squares, moved; } Sums;

ALWAYS float number(int32_t bits) { float x; memcpy(&x, &bits, sizeof x); return x; }
ALWAYS int32_t bits_of(float x) { int32_t bits; memcpy(&bits, &x, sizeof bits); return bits; }

/* Bits of a float, or the upper half of them, to an integer that compares as the float does, and back: processors take the
 * maximum of many integers at once, while that of floats is not the same in any order. A NaN is above or below all else, by
 * its sign. */
ALWAYS int32_t ordered(int32_t bits) { return bits ^ ((bits >> 31) & INT32_MAX); }
ALWAYS int16_t ordered_half(int16_t bits) { return (int16_t)(bits ^ ((bits >> 15) & INT16_MAX)); }

ALWAYS int32_t logit(const void *z, int64_t j, int half) {
    return half ? (int32_t)((uint32_t)((const uint16_t *)z)[j] << 16) : ((const int32_t *)z)[j];
}

/* 2^d for d >= -127, and 0 below -126.5: the power of two is made of its exponent's bits, which are those of 0 there. Of a
 * NaN they may be any; the product is NaN. */
ALWAYS float exp2_of(float d) {
    float whole = __builtin_rintf(d), f = d - whole;
    /* 2^f for |f| <= 1/2: the polynomial of degree 6 through (0, 1) with the least relative error, 2e-8 as
     * float32. */
    float x = 1.53533620e-4f;
    x = x * f + 1.33988750e-3f;
    x = x * f + 9.61843692e-3f;
    x = x * f + 5.55033237e-2f;
    x = x * f + 2.40226477e-1f;
    x = x * f + 6.93147182e-1f;
    x = x * f + 1.0f;
    return x * number((int32_t)((uint32_t)((int32_t)whole + 127) << 23));
}

ALWAYS float highest_float(const int32_t *z, int64_t v) {
    int32_t most = INT32_MIN;
    for (int64_t j = 0; j < v; j++) most = ordered(z[j]) > most ? ordered(z[j]) : most;
    return number(ordered(most));
}

/* Twice as many at once. */
ALWAYS float highest_half(const int16_t *z, int64_t v) {
    int16_t most = INT16_MIN;
    for (int64_t j = 0; j < v; j++) most = ordered_half(z[j]) > most ? ordered_half(z[j]) : most;
    most = ordered_half(most);
    return number(logit(&most, 0, 1));
}

ALWAYS float highest(const void *z, int64_t v, int half) { return half ? highest_half(z, v) : highest_float(z, v); }

/* e = 2^d of n logits. At the peak d is 0 and e is 1: those are counted, and only the rest is summed, whose bits would be lost
 * beside a 1. Then Σ e d, and with moments Σ e², Σ e² d. */
ALWAYS Sums piece(const void *z, int64_t n, int half, float peak, float scale, float *restrict e, int moments) {
    float peaks = 0, rest = 0, mean = 0, squares = 0, moved = 0;
    for (int64_t j = 0; j < n; j++) {
        float d = (number(logit(z, j, half)) - peak) * scale;
        d = d < -127.0f ? -127.0f : d;
        float x = exp2_of(d);
        e[j] = x;
        peaks += d == 0 ? 1.0f : 0.0f;
        rest += d == 0 ? 0.0f : x;
        mean += x * d;
        if (moments) {
            squares += x * x;
            moved += x * x * d;
        }
    }
    return (Sums){peaks, rest, mean, squares, moved};
}

/* To the nearest even in bf16; a NaN with all bits set becomes a 0. */
ALWAYS uint16_t nearest(float x) {
    uint32_t bits = (uint32_t)bits_of(x);
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/* The same in fewer operations, where halves are rare: they are rounded away from 0. */
ALWAYS uint16_t near(float x) { return (uint16_t)(((uint32_t)bits_of(x) + 0x8000) >> 16); }

/* Writes one number; a NaN stays one in bf16, whatever its bits. */
ALWAYS void store(void *p, int64_t j, float x, int half) {
    if (half) ((uint16_t *)p)[j] = x != x ? 0x7fc0 : nearest(x);
    else ((float *)p)[j] = x;
}

/* e / s. A NaN that comes of bf16 has no lower bits that could carry. */
ALWAYS void divide(const float *restrict e, int64_t v, float share, void *p, int half) {
    for (int64_t j = 0; j < v; j++) {
        if (half) ((uint16_t *)p)[j] = near(e[j] * share);
        else ((float *)p)[j] = e[j] * share;
    }
}

/* One row: p - 1_y of it in `left`, and its sums, ROWS numbers from each other: d_y, s, Σ e d and, with moments, Σ e² and
 * Σ e² d. `scale` makes bits of logits; e is scratch. */
ALWAYS void row(const char *z, char *left, int64_t v, int64_t y, float scale, double *sums, float *restrict e, int half,
                int moments) {
    float peak = highest(z, v, half), d = (number(logit(z, y, half)) - peak) * scale;
    double peaks = 0, rest = 0, mean = 0, squares = 0, moved = 0;
    for (int64_t start = 0; start < v; start += PIECE) {
        int64_t n = v - start < PIECE ? v - start : PIECE;
        Sums part = piece(z + start * (half ? 2 : 4), n, half, peak, scale, e + start, moments);
        peaks += part.peaks, rest += part.rest, mean += part.mean, squares += part.squares, moved += part.moved;
    }
    /* The mass of the other tokens: for a target at the peak not as a difference of two numbers that may nearly agree. */
    double s = peaks + rest, share = 1 / s, others = d == 0 ? peaks - 1 + rest : s - e[y];
    divide(e, v, (float)share, left, half);
    store(left, y, (float)(-others * share), half);
    sums[0] = d, sums[ROWS] = s, sums[2 * ROWS] = mean;
    if (moments) sums[3 * ROWS] = squares, sums[4 * ROWS] = moved;
}

/* log x of a normal x > 0 to about 1e-15 of it, many at once, which libraries have on few systems only. With x = 2^k f and f
 * nearest to 1, log f = 2 atanh(t) for t = (f - 1) / (f + 1), whose series in t^2 < 0.0295 is Σ t^2n / (2n + 1). */
ALWAYS double log_of(double x) {
    int64_t bits, half_root = 0x3fe6a09e667f3bcd; /* of the bits of sqrt(1/2) */
    memcpy(&bits, &x, sizeof bits);
    int64_t k = (bits - half_root) >> 52;
    bits -= (int64_t)((uint64_t)k << 52);
    double f, sum = 1.0 / 19;
    memcpy(&f, &bits, sizeof f);
    double t = (f - 1) / (f + 1), square = t * t;
    for (int n = 17; n > 0; n -= 2) sum = sum * square + 1.0 / n;
    return x != x ? x : 2 * t * sum + (double)k * LN2;
}

/* Sums of ROWS rows to statistics of the first `count`, in nats, m numbers from each other: log p_y, H and the drift. All
 * ROWS are worked on, so that a row's numbers are the same wherever it stands. */
ALWAYS void statistics(const double *sums, int64_t count, float *found, int64_t m, int moments) {
    float logprob[ROWS], entropy[ROWS], drift[ROWS];
#pragma omp simd
    for (int i = 0; i < ROWS; i++) {
        double log_s = log_of(sums[ROWS + i]), share = 1 / sums[ROWS + i], mean = sums[2 * ROWS + i] * share;
        logprob[i] = (float)(sums[i] * LN2 - log_s);
        entropy[i] = (float)(log_s - mean * LN2);
        if (moments) drift[i] = (float)((sums[4 * ROWS + i] - mean * sums[3 * ROWS + i]) * share * share * LN2);
    }
    memcpy(found, logprob, count * sizeof(float));
    memcpy(found + m, entropy, count * sizeof(float));
    if (moments) memcpy(found + 2 * m, drift, count * sizeof(float));
}

/* One row of bf16 times its factor, also in place. */
ALWAYS void times(const char *from, char *to, int64_t v, float factor) {
#pragma omp simd
    for (int64_t j = 0; j < v; j++) store(to, j, number(logit(from, j, 1)) * factor, 1);
}

/* Whether a target lies outside its row. */
static int outside(const int64_t *y, int64_t m, int64_t v) {
    int found = 0;
    for (int64_t i = 0; i < m; i++) found |= y[i] < 0 || y[i] >= v;
    return found;
}

/* Rows that a thread takes at a time: ROWS, or as many fewer as make the shares of all threads about the same. */
static int64_t together(int64_t m, int threads) {
    int64_t share = (m + threads - 1) / threads, turns = (share + ROWS - 1) / ROWS;
    return m ? (share + turns - 1) / turns : 1;
}

/* The loops over rows are macros: a compiler moves the body of a parallel loop into a function of its own before it
 * knows what `half` and `moments` are, and would test them at every number. */

/* m rows by some threads; returns 1 if a target lies outside its row. `scratch` is [threads, v]. */
#define RESIDUAL(name, half, moments)                                                                                \
    int name(const char *z, char *left, int64_t m, int64_t v, int64_t z_step, int64_t left_step, const int64_t *y,   \
             const float *scales, float *found, float *scratch, int threads) {                                       \
        if (outside(y, m, v)) return 1;                                                                              \
        int64_t step = together(m, threads);                                                                         \
        _Pragma("omp parallel for schedule(static) num_threads(threads)")                                            \
        for (int64_t first = 0; first < m; first += step) {                                                          \
            float *e = scratch + v * omp_get_thread_num();                                                           \
            double sums[5 * ROWS] = {0};                                                                             \
            int64_t count = m - first < step ? m - first : step;                                                     \
            for (int64_t k = 0, i = first; k < count; k++, i++)                                                      \
                row(z + i * z_step, left + i * left_step, v, y[i], scales[i] / (float)LN2, sums + k, e, half,        \
                    moments);                                                                                        \
            statistics(sums, count, found + first, m, moments);                                                      \
        }                                                                                                            \
        return 0;                                                                                                    \
    }

RESIDUAL(residual_float32, 0, 0)
RESIDUAL(residual_float32_drift, 0, 1)
RESIDUAL(residual_bfloat16, 1, 0)
RESIDUAL(residual_bfloat16_drift, 1, 1)

/* out = w times the factor of each row. */
int scaled_bfloat16(const char *w, char *out, int64_t m, int64_t v, int64_t w_step, int64_t out_step, const float *factors,
                    int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t i = 0; i < m; i++) times(w + i * w_step, out + i * out_step, v, factors[i]);
    return 0;
}
