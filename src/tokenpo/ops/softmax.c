/* The sums of a softmax, a row at a time while it is in the cache: what softmax.sums does in nine passes over the logits
 * is three here. A row is read for its maximum, read for everything else, and what was written is scaled.
 *
 * Numbers are float32, or bf16, the upper half of one. Sums are taken in many parts at once, so their terms may come in
 * any order; a NaN is kept. Compiled where it runs, by softmax_compiled.py. Axes: M rows, V vocabulary.
 */
#include <omp.h>
#include <stdint.h>
#include <string.h>

#define ALWAYS static inline __attribute__((always_inline))
/* Logits summed in float32 before their sum is added to the others in float64. */
#define PIECE 4096

typedef struct { float s, mean, squares, moved; } Sums;

ALWAYS float number(int32_t bits) { float x; memcpy(&x, &bits, sizeof x); return x; }
ALWAYS int32_t bits_of(float x) { int32_t bits; memcpy(&bits, &x, sizeof bits); return bits; }

/* Bits of a float to an integer that compares as the float does, NaN highest, and back: processors take the maximum of
 * many integers at once, while that of floats is not the same in any order. */
ALWAYS int32_t ordered(int32_t bits) { return bits ^ ((bits >> 31) & 0x7fffffff); }

ALWAYS int32_t logit(const void *z, int64_t j, int half) {
    return half ? (int32_t)((uint32_t)((const uint16_t *)z)[j] << 16) : ((const int32_t *)z)[j];
}

/* 2^d for d >= -127, where it is 0: whose exponent is 0 has the bits of 0. */
ALWAYS float exp2_of(float d) {
    float whole = __builtin_rintf(d), f = d - whole;
    /* 2^f for |f| <= 1/2: the polynomial of degree 6 through (0, 1) with the least relative error, 2e-9. */
    float x = 1.53533620e-4f;
    x = x * f + 1.33988750e-3f;
    x = x * f + 9.61843692e-3f;
    x = x * f + 5.55033237e-2f;
    x = x * f + 2.40226477e-1f;
    x = x * f + 6.93147182e-1f;
    x = x * f + 1.0f;
    return x * number((int32_t)((uint32_t)((int32_t)whole + 127) << 23));
}

ALWAYS float highest(const void *z, int64_t v, int half) {
    int32_t most = INT32_MIN;
    for (int64_t j = 0; j < v; j++) {
        int32_t next = ordered(logit(z, j, half));
        most = next > most ? next : most;
    }
    return number(ordered(most));
}

/* e = 2^d of some logits; Σ e, Σ e d and, with moments, Σ e², Σ e² d. */
ALWAYS Sums piece(const void *z, int64_t start, int64_t end, int half, float peak, float scale, float *restrict e,
                  int moments) {
    float s = 0, mean = 0, squares = 0, moved = 0;
    for (int64_t j = start; j < end; j++) {
        float d = (number(logit(z, j, half)) - peak) * scale;
        d = d < -127.0f ? -127.0f : d;
        float x = exp2_of(d);
        e[j] = x;
        s += x;
        mean += x * d;
        if (moments) {
            squares += x * x;
            moved += x * x * d;
        }
    }
    return (Sums){s, mean, squares, moved};
}

/* p = e / s, to the nearest even in bf16. */
ALWAYS void divide(const float *restrict e, int64_t v, float share, void *p, int half) {
    for (int64_t j = 0; j < v; j++) {
        float x = e[j] * share;
        if (half) {
            uint32_t bits = (uint32_t)bits_of(x);
            ((uint16_t *)p)[j] = (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
        } else {
            ((float *)p)[j] = x;
        }
    }
}

/* m rows by some threads; found[0..2] or [0..4], each [m]: maximum, s, Σ p d, Σ p², Σ p² d. `scratch` [threads, v]. */
ALWAYS void rows(const char *z, char *p, int64_t m, int64_t v, int64_t z_step, int64_t p_step, const float *scales,
                 float *found, float *scratch, int threads, int half, int moments) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t i = 0; i < m; i++) {
        const char *row = z + i * z_step;
        float *e = scratch + v * omp_get_thread_num(), peak = highest(row, v, half);
        double s = 0, mean = 0, squares = 0, moved = 0;
        for (int64_t start = 0; start < v; start += PIECE) {
            int64_t end = start + PIECE < v ? start + PIECE : v;
            Sums part = piece(row, start, end, half, peak, scales[i], e, moments);
            s += part.s, mean += part.mean, squares += part.squares, moved += part.moved;
        }
        divide(e, v, (float)(1 / s), p + i * p_step, half);
        found[i] = peak, found[m + i] = (float)s, found[2 * m + i] = (float)(mean / s);
        if (moments) {
            found[3 * m + i] = (float)(squares / (s * s)), found[4 * m + i] = (float)(moved / (s * s));
        }
    }
}

#define KERNEL(name, half, moments)                                                                               \
    void name(const char *z, char *p, int64_t m, int64_t v, int64_t z_step, int64_t p_step, const float *scales,  \
              float *found, float *scratch, int threads) {                                                        \
        rows(z, p, m, v, z_step, p_step, scales, found, scratch, threads, half, moments);                         \
    }

KERNEL(float32_3, 0, 0)
KERNEL(float32_5, 0, 1)
KERNEL(bfloat16_3, 1, 0)
KERNEL(bfloat16_5, 1, 1)
