/* Sums of a few rows and a part of a panel: see sums.h. */
#include "sums.h"

INLINE void sum_block(const int rows, const uint32_t *x, const bf16 *w, int64_t pairs, Sums sums) {
    __m512 acc[ROWS][2];
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) acc[r][0] = _mm512_load_ps(sums[r]), acc[r][1] = _mm512_load_ps(sums[r] + 16);
    multiply(rows, x, w, 2 * COLUMNS, pairs, acc);
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) _mm512_store_ps(sums[r], acc[r][0]), _mm512_store_ps(sums[r] + 16, acc[r][1]);
}

/* A function of its own, so that the compiler has nothing else to keep in registers. */
#define SUMMING(n)                                                                                                          \
    static __attribute__((noinline)) void sums_##n(const uint32_t *x, const bf16 *w, int64_t pairs, Sums sums) { \
        sum_block(n, x, w, pairs, sums);                                                                                    \
    }
SUMMING(1) SUMMING(2) SUMMING(3) SUMMING(4) SUMMING(5) SUMMING(6) SUMMING(7) SUMMING(8) SUMMING(9) SUMMING(10) SUMMING(11) SUMMING(12)

void (*const SUMS_HALVES[])(const uint32_t *, const bf16 *, int64_t, Sums) = {
    NULL, sums_1, sums_2, sums_3, sums_4, sums_5, sums_6, sums_7, sums_8, sums_9, sums_10, sums_11, sums_12,
};

/* 64 bytes, each a sign and seven bits, become the bfloat16 numbers of two vectors: from each 16 bytes eight of the left and eight of the
 * right. The two bytes of a number are looked up. */
typedef struct {
    __m512i low[2], high[2], sign;
} Tables;

static Tables tables(void) {
    uint8_t low[128], high[128];
    for (int m = 0; m < 128; m++) {
        float value = (float)m;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        low[m] = (uint8_t)(bits >> 16), high[m] = (uint8_t)(bits >> 24);
    }
    return (Tables){
        {_mm512_loadu_si512(low), _mm512_loadu_si512(low + 64)},
        {_mm512_loadu_si512(high), _mm512_loadu_si512(high + 64)},
        _mm512_set1_epi8((char)0x80),
    };
}

INLINE void widen(const Tables *t, const uint8_t *bytes, __m512i *left, __m512i *right) {
    __m512i all = _mm512_loadu_si512(bytes);
    __m512i low = _mm512_permutex2var_epi8(t->low[0], all, t->low[1]), high = _mm512_permutex2var_epi8(t->high[0], all, t->high[1]);
    high = _mm512_ternarylogic_epi32(high, all, t->sign, 0xF8); /* high | (all & sign) */
    *left = _mm512_unpacklo_epi8(low, high);
    *right = _mm512_unpackhi_epi8(low, high);
}

INLINE void sum_bytes(const int rows, const uint32_t *x, const uint8_t *w, int64_t pairs, Sums sums) {
    const Tables t = tables();
    __m512 acc[FEW][2];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) acc[r][0] = _mm512_load_ps(sums[r]), acc[r][1] = _mm512_load_ps(sums[r] + 16);
    for (int64_t k = 0; k < pairs; k++, x += rows, w += 64) {
        __m512i left, right;
        widen(&t, w, &left, &right);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            __m512i both = twice(x + r);
            acc[r][0] = dot(acc[r][0], both, left);
            acc[r][1] = dot(acc[r][1], both, right);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) _mm512_store_ps(sums[r], acc[r][0]), _mm512_store_ps(sums[r] + 16, acc[r][1]);
}

#define SUMMING_BYTES(n)                                                                                                          \
    static __attribute__((noinline)) void bytes_##n(const uint32_t *x, const uint8_t *w, int64_t pairs, Sums sums) { \
        sum_bytes(n, x, w, pairs, sums);                                                                                          \
    }
SUMMING_BYTES(1) SUMMING_BYTES(2) SUMMING_BYTES(3) SUMMING_BYTES(4) SUMMING_BYTES(5) SUMMING_BYTES(6) SUMMING_BYTES(7) SUMMING_BYTES(8)

void (*const SUMS_BYTES[])(const uint32_t *, const uint8_t *, int64_t, Sums) = {
    NULL, bytes_1, bytes_2, bytes_3, bytes_4, bytes_5, bytes_6, bytes_7, bytes_8,
};

void widen_bytes(const uint8_t *w, int64_t pairs, bf16 *wide) {
    const Tables t = tables();
    for (int64_t k = 0; k < pairs; k++) {
        __m512i left, right;
        widen(&t, w + k * 64, &left, &right);
        _mm512_store_si512(wide + k * 64, left);
        _mm512_store_si512(wide + k * 64 + 32, right);
    }
}

/* ------------------------------------------------------------------------------------------------------------- levels */

/* The bfloat16 numbers 0..15, twice: the look-up of a level then need not clear the bit above it. */
INLINE __m512i level_table(void) {
    bf16 numbers[32];
    for (int i = 0; i < 32; i++) numbers[i] = half_of((float)(i % 16));
    return _mm512_loadu_si512(numbers);
}

/* 32 bytes: the low halves are the left vector's levels, the high halves the right one's. */
INLINE void widen_pair(__m512i table, const uint8_t *w, __m512i *left, __m512i *right) {
    __m512i words = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)w));
    *left = _mm512_permutexvar_epi16(words, table);
    *right = _mm512_permutexvar_epi16(_mm512_srli_epi16(words, 4), table);
}

void widen_levels(const uint8_t *w, int64_t groups, bf16 *wide) {
    const __m512i table = level_table();
    for (int64_t group = 0; group < groups; group++, w += GROUP_BYTES)
        for (int pair = 0; pair < GROUP; pair++, wide += 2 * COLUMNS) {
            __m512i left, right;
            widen_pair(table, w + pair * COLUMNS, &left, &right);
            _mm512_store_si512(wide, left);
            _mm512_store_si512(wide + COLUMNS, right);
        }
}

INLINE __m512 floats_of(const uint8_t *halves) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)halves)); }

/* sum x (level step + low) = step sum x level + low sum x, a group at a time. */
INLINE void sum_levels(const int rows, const bool widened, const uint32_t *x, const float *totals, const uint8_t *w, const bf16 *wide,
                       int64_t groups, Sums sums) {
    const __m512i table = level_table();
    __m512 sum[ROWS][2];
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) sum[r][0] = _mm512_load_ps(sums[r]), sum[r][1] = _mm512_load_ps(sums[r] + 16);
    for (int64_t group = 0; group < groups; group++, w += GROUP_BYTES, totals += rows) {
        __m512 acc[ROWS][2];
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) acc[r][0] = acc[r][1] = _mm512_setzero_ps();
        for (int pair = 0; pair < GROUP; pair++, x += rows, wide += 2 * COLUMNS) {
            __m512i left, right;
            if (widened)
                left = _mm512_load_si512(wide), right = _mm512_load_si512(wide + COLUMNS);
            else
                widen_pair(table, w + pair * COLUMNS, &left, &right);
#pragma GCC unroll 12
            for (int r = 0; r < rows; r++) {
                __m512i both = twice(x + r);
                acc[r][0] = dot(acc[r][0], both, left);
                acc[r][1] = dot(acc[r][1], both, right);
            }
        }
        const uint8_t *scales = w + GROUP * COLUMNS;
        __m512 step[2] = {floats_of(scales), floats_of(scales + 32)}, low[2] = {floats_of(scales + 64), floats_of(scales + 96)};
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) {
            __m512 total = _mm512_set1_ps(totals[r]);
            sum[r][0] = _mm512_fmadd_ps(low[0], total, _mm512_fmadd_ps(step[0], acc[r][0], sum[r][0]));
            sum[r][1] = _mm512_fmadd_ps(low[1], total, _mm512_fmadd_ps(step[1], acc[r][1], sum[r][1]));
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) _mm512_store_ps(sums[r], sum[r][0]), _mm512_store_ps(sums[r] + 16, sum[r][1]);
}

#define SUMMING_LEVELS(name, n, widened)                                                                                                \
    static __attribute__((noinline)) void name##_##n(const uint32_t *x, const float *totals, const uint8_t *w, const bf16 *wide,        \
                                                     int64_t groups, Sums sums) {                                                       \
        sum_levels(n, widened, x, totals, w, wide, groups, sums);                                                                       \
    }
#define SUMMING_FEW(n) SUMMING_LEVELS(levels, n, false)
#define SUMMING_WIDE(n) SUMMING_LEVELS(wide, n, true)
SUMMING_FEW(1) SUMMING_FEW(2) SUMMING_FEW(3) SUMMING_FEW(4) SUMMING_FEW(5) SUMMING_FEW(6) SUMMING_FEW(7) SUMMING_FEW(8)
SUMMING_WIDE(1) SUMMING_WIDE(2) SUMMING_WIDE(3) SUMMING_WIDE(4) SUMMING_WIDE(5) SUMMING_WIDE(6)
SUMMING_WIDE(7) SUMMING_WIDE(8) SUMMING_WIDE(9) SUMMING_WIDE(10) SUMMING_WIDE(11) SUMMING_WIDE(12)

void (*const SUMS_LEVELS[])(const uint32_t *, const float *, const uint8_t *, const bf16 *, int64_t, Sums) = {
    NULL, levels_1, levels_2, levels_3, levels_4, levels_5, levels_6, levels_7, levels_8,
};
void (*const SUMS_WIDE_LEVELS[])(const uint32_t *, const float *, const uint8_t *, const bf16 *, int64_t, Sums) = {
    NULL, wide_1, wide_2, wide_3, wide_4, wide_5, wide_6, wide_7, wide_8, wide_9, wide_10, wide_11, wide_12,
};
