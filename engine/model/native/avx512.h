/* Vectors of 16 floats, and the CPU's own products of bfloat16: AVX512-BF16. In avx2.h stands the same for other CPUs. */
#ifndef OMNIBUS_AVX512_H
#define OMNIBUS_AVX512_H

enum { LANES = 16, TILES = 1 }; /* 16 columns to the left and as many to the right are all 32 of a panel */
enum { TALL = 12 };             /* rows whose sums stay in registers: 24 of the 32 */
enum { HIGH = 12, FEWER = 6 };  /* rows of a block of a product; of levels, whose sums of a group and of all groups then stay there */
enum { MANY = 17 };             /* rows from which on it pays to write down what a panel of bytes or levels is */

typedef __m512 vec;
typedef uint32_t words __attribute__((vector_size(64)));
typedef uint32_t Pair; /* two neighbours of a row, in bfloat16 */
typedef __m512i Twice, Weights;

/* All rows and columns at once. */
#define IN_PIECES(of, f, ...) f(of, 1, of, 0, 0, __VA_ARGS__)

INLINE vec all(float value) { return _mm512_set1_ps(value); }
INLINE vec load(const float *from) { return _mm512_loadu_ps(from); }
INLINE void store(float *to, vec value) { _mm512_storeu_ps(to, value); }
INLINE vec load_some(uint32_t which, const float *from) { return _mm512_maskz_loadu_ps((__mmask16)which, from); }
INLINE void store_some(float *to, uint32_t which, vec value) { _mm512_mask_storeu_ps(to, (__mmask16)which, value); }
INLINE vec select(uint32_t which, vec yes, vec no) { return _mm512_mask_blend_ps((__mmask16)which, no, yes); }

INLINE vec mul_add(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
INLINE vec mul_sub(vec a, vec b, vec c) { return _mm512_fmsub_ps(a, b, c); }
INLINE vec sub_mul(vec c, vec a, vec b) { return _mm512_fnmadd_ps(a, b, c); }
INLINE vec larger(vec a, vec b) { return _mm512_max_ps(a, b); } /* b if one is not a number */
INLINE vec smaller(vec a, vec b) { return _mm512_min_ps(a, b); }
INLINE vec nearest(vec x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
INLINE vec times_power(vec x, vec n) { return _mm512_scalef_ps(x, n); } /* x 2^n */

/* How far x lies above a whole number, and p times 2 to the power of that number. */
INLINE vec fraction(vec x) { return _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); }
INLINE vec times_whole_power(vec p, vec x) { return _mm512_scalef_ps(p, x); }

INLINE float sum_of(vec x) { return _mm512_reduce_add_ps(x); }
INLINE float largest_of(vec x) { return _mm512_reduce_max_ps(x); }

/* A bit a lane. */
INLINE uint32_t equal(vec a, vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
INLINE uint32_t at_most(vec a, vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
INLINE uint32_t no_number(vec a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }

INLINE words all_words(uint32_t value) { return (words)_mm512_set1_epi32((int)value); }
INLINE words load_words(const uint32_t *from) { return (words)_mm512_loadu_si512(from); }
/* The whole part of the binary logarithm; of 0 far below. */
INLINE vec magnitude(words x) { return _mm512_getexp_ps(_mm512_cvtepu32_ps((__m512i)x)); }

INLINE vec load_halves(const uint8_t *from) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from)); }
INLINE vec load_bytes(const int8_t *from) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)from))); }
INLINE vec look_up(const float *table, const int8_t *places, int middle) {
    __m512i place = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)places));
    return _mm512_i32gather_ps(_mm512_add_epi32(place, _mm512_set1_epi32(middle)), table, 4);
}

/* Two numbers in bfloat16, rounded to the nearest, ties to even; the first is the lower half. */
INLINE uint32_t halves_of(float low, float high) {
    return (uint32_t)_mm_cvtsi128_si32((__m128i)_mm_cvtneps_pbh(_mm_set_ps(0.f, 0.f, high, low)));
}
INLINE void store_rounded(bf16 *to, vec x) { _mm256_storeu_si256((__m256i *)to, (__m256i)_mm512_cvtneps_pbh(x)); }

/* ---------------------------------------------------------------------------------------------- products of neighbours */

INLINE Pair pair_of(float low, float high) { return halves_of(low, high); }

/* LANES numbers as pairs; returns what became of them. */
INLINE vec store_pairs(Pair *to, vec x) {
    __m256i halves = (__m256i)_mm512_cvtneps_pbh(x);
    _mm256_storeu_si256((__m256i *)to, halves);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

INLINE Twice twice(const Pair *pair) { return _mm512_set1_epi32((int)*pair); }
INLINE vec dot(vec sum, Twice both, Weights w) { return _mm512_dpbf16_ps(sum, (__m512bh)both, (__m512bh)w); }

INLINE Weights no_weights(void) { return _mm512_setzero_si512(); }
INLINE Weights load_weights(const bf16 *from) { return _mm512_loadu_si512(from); }
INLINE void store_weights(bf16 *to, Weights w) { _mm512_storeu_si512(to, w); }

/* Of bytes, each a sign and seven bits: the two bytes of the bfloat16 number of the same value are looked up. */
typedef struct {
    __m512i low[2], high[2], sign;
} Bytes;

INLINE Bytes for_bytes(void) {
    uint8_t low[128], high[128];
    for (int m = 0; m < 128; m++) {
        float value = (float)m;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        low[m] = (uint8_t)(bits >> 16), high[m] = (uint8_t)(bits >> 24);
    }
    return (Bytes){
        {_mm512_loadu_si512(low), _mm512_loadu_si512(low + 64)},
        {_mm512_loadu_si512(high), _mm512_loadu_si512(high + 64)},
        _mm512_set1_epi8((char)0x80),
    };
}

/* 4 LANES bytes: of each 16 eight of the left and eight of the right. */
INLINE void widen_bytes(const Bytes *t, const uint8_t *from, Weights *left, Weights *right) {
    __m512i bytes = _mm512_loadu_si512(from);
    __m512i low = _mm512_permutex2var_epi8(t->low[0], bytes, t->low[1]), high = _mm512_permutex2var_epi8(t->high[0], bytes, t->high[1]);
    high = _mm512_ternarylogic_epi32(high, bytes, t->sign, 0xF8); /* high | (bytes & sign) */
    *left = _mm512_unpacklo_epi8(low, high);
    *right = _mm512_unpackhi_epi8(low, high);
}

/* Of levels: the bfloat16 numbers 0..15, twice: the look-up of a level then need not clear the bit above it. */
typedef __m512i Levels;

INLINE Levels for_levels(void) {
    bf16 numbers[32];
    for (int i = 0; i < 32; i++) numbers[i] = (bf16)halves_of((float)(i % 16), 0.f);
    return _mm512_loadu_si512(numbers);
}

/* 2 LANES bytes, whose low halves are the left vector's levels, the high halves the right one's. */
INLINE void widen_levels(const Levels *t, const uint8_t *from, Weights *left, Weights *right) {
    __m512i pairs = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)from));
    *left = _mm512_permutexvar_epi16(pairs, *t);
    *right = _mm512_permutexvar_epi16(_mm512_srli_epi16(pairs, 4), *t);
}

#endif
