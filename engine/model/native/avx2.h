/* Vectors of 8 floats, and products of bfloat16 numbers as floats: AVX2, FMA and F16C. In avx512.h stands the same for newer CPUs.
 *
 * A bfloat16 number is the upper half of a float, so that two neighbours that lie in one word are a shift and a mask away from being two.
 * Numbers are rounded exactly as there, and sums run over the same numbers; only their order differs, so results differ in the last places.
 */
#ifndef OMNIBUS_AVX2_H
#define OMNIBUS_AVX2_H

enum { LANES = 8, TILES = 2 }; /* a tile is 8 columns to the left and 8 to the right: two make the 32 of a panel */
enum { TALL = 4 };             /* rows by a tile whose sums stay in registers, and by both tiles half as many: 8 of the 16 */
enum { HIGH = 4, FEWER = 4 };  /* rows of a block of a product, and of levels */
enum { MANY = 9 };             /* rows from which on it pays to write down what a panel of bytes or levels is */

typedef __m256 vec;
typedef uint32_t words __attribute__((vector_size(32)));

/* Two neighbours of a row, rounded to bfloat16. */
typedef struct {
    float even, odd;
} Pair;

typedef struct {
    vec even, odd;
} Twice, Weights;

/* `of` rows by 32 columns: both tiles of one or two rows, else a tile after the other of up to four. */
#define PIECES(of) (((of) + TALL - 1) / TALL)
#define SIDE(of) ((of) <= TALL / 2 ? TILES : 1)
#define ROWS_BEFORE(of, piece) ((piece) * (of) / PIECES(of))
#define PIECE(of, piece, tile, f, ...) \
    f(ROWS_BEFORE(of, (piece) + 1) - ROWS_BEFORE(of, piece), SIDE(of), of, ROWS_BEFORE(of, piece), tile, __VA_ARGS__)
#define TILE_IN_PIECES(of, tile, f, ...)                        \
    do {                                                        \
        PIECE(of, 0, tile, f, __VA_ARGS__);                     \
        if (PIECES(of) > 1) PIECE(of, 1, tile, f, __VA_ARGS__); \
        if (PIECES(of) > 2) PIECE(of, 2, tile, f, __VA_ARGS__); \
    } while (0)
#define IN_PIECES(of, f, ...)                                        \
    do {                                                             \
        TILE_IN_PIECES(of, 0, f, __VA_ARGS__);                       \
        if (SIDE(of) < TILES) TILE_IN_PIECES(of, 1, f, __VA_ARGS__); \
    } while (0)

INLINE __m256i lanes_of(uint32_t which) {
    const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)which), bit), bit);
}

INLINE vec all(float value) { return _mm256_set1_ps(value); }
INLINE vec load(const float *from) { return _mm256_loadu_ps(from); }
INLINE void store(float *to, vec value) { _mm256_storeu_ps(to, value); }
INLINE vec load_some(uint32_t which, const float *from) { return which == 0xFF ? load(from) : _mm256_maskload_ps(from, lanes_of(which)); }
INLINE void store_some(float *to, uint32_t which, vec value) { _mm256_maskstore_ps(to, lanes_of(which), value); }
INLINE vec select(uint32_t which, vec yes, vec no) { return _mm256_blendv_ps(no, yes, _mm256_castsi256_ps(lanes_of(which))); }

INLINE vec mul_add(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }
INLINE vec mul_sub(vec a, vec b, vec c) { return _mm256_fmsub_ps(a, b, c); }
INLINE vec sub_mul(vec c, vec a, vec b) { return _mm256_fnmadd_ps(a, b, c); }
INLINE vec larger(vec a, vec b) { return _mm256_max_ps(a, b); } /* b if one is not a number */
INLINE vec smaller(vec a, vec b) { return _mm256_min_ps(a, b); }
INLINE vec nearest(vec x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

INLINE vec power(__m256i n) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23)); }

/* x 2^n, in two steps: 2^n alone may be too small or too large for a float. */
INLINE vec times_power(vec x, vec n) {
    __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
    return x * power(half) * power(_mm256_sub_epi32(whole, half));
}

/* How far x lies above a whole number, and p times 2 to the power of that number. Below -160 nothing is left of it. */
INLINE vec whole_below(vec x) { return _mm256_floor_ps(larger(x, all(-160.f))); }
INLINE vec fraction(vec x) { return larger(x - whole_below(x), all(0.f)); }
INLINE vec times_whole_power(vec p, vec x) { return times_power(p, whole_below(x)); }

INLINE float sum_of(vec x) {
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

INLINE float largest_of(vec x) {
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

/* A bit a lane. */
INLINE uint32_t equal(vec a, vec b) { return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_EQ_OQ)); }
INLINE uint32_t at_most(vec a, vec b) { return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_LE_OQ)); }
INLINE uint32_t no_number(vec a) { return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(a, a, _CMP_UNORD_Q)); }

INLINE words all_words(uint32_t value) { return (words)_mm256_set1_epi32((int)value); }
INLINE words load_words(const uint32_t *from) { return (words)_mm256_loadu_si256((const __m256i *)from); }

/* The whole part of the binary logarithm: the exponent of the upper 24 bits as a float; far below where those are 0. */
INLINE vec magnitude(words x) {
    __m256i bits = _mm256_castps_si256(_mm256_cvtepi32_ps((__m256i)(x >> 8)));
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_srli_epi32(bits, 23), _mm256_set1_epi32(127 - 8)));
}

INLINE __m256i load_wide(const int8_t *from) { return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)from)); }
INLINE vec load_bytes(const int8_t *from) { return _mm256_cvtepi32_ps(load_wide(from)); }
INLINE vec load_halves(const uint8_t *from) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from)); }
INLINE vec look_up(const float *table, const int8_t *places, int middle) {
    return _mm256_i32gather_ps(table, _mm256_add_epi32(load_wide(places), _mm256_set1_epi32(middle)), 4);
}

/* To bfloat16, to the nearest, ties to even; what is not a number stays none. */
INLINE vec rounded(vec x) {
    words bits = (words)_mm256_castps_si256(x);
    words up = (bits + all_words(0x7FFF) + (bits >> 16 & all_words(1))) & all_words(0xFFFF0000u);
    __m256 strange = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    return _mm256_blendv_ps(_mm256_castsi256_ps((__m256i)up), all(NAN), strange);
}

INLINE float rounded_float(float x) { return rounded(all(x))[0]; }

/* Two numbers in bfloat16; the first is the lower half. */
INLINE uint32_t halves_of(float low, float high) {
    float both[2] = {rounded_float(low), rounded_float(high)};
    uint32_t bits[2];
    memcpy(bits, both, sizeof bits);
    return bits[0] >> 16 | bits[1];
}

INLINE void store_rounded(bf16 *to, vec x) {
    __m256i high = _mm256_srli_epi32(_mm256_castps_si256(rounded(x)), 16);
    _mm_storeu_si128((__m128i *)to, _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1)));
}

/* ---------------------------------------------------------------------------------------------- products of neighbours */

INLINE Pair pair_of(float low, float high) { return (Pair){rounded_float(low), rounded_float(high)}; }

/* LANES numbers as pairs; returns what became of them. */
INLINE vec store_pairs(Pair *to, vec x) {
    x = rounded(x);
    store(&to->even, x);
    return x;
}

INLINE Twice twice(const Pair *pair) { return (Twice){_mm256_broadcast_ss(&pair->even), _mm256_broadcast_ss(&pair->odd)}; }
INLINE vec dot(vec sum, Twice both, Weights w) { return mul_add(both.odd, w.odd, mul_add(both.even, w.even, sum)); }

INLINE Weights no_weights(void) { return (Weights){_mm256_setzero_ps(), _mm256_setzero_ps()}; }

INLINE Weights load_weights(const bf16 *from) {
    __m256i both = _mm256_loadu_si256((const __m256i *)from);
    __m256i odd = _mm256_and_si256(both, _mm256_set1_epi32((int)0xFFFF0000u));
    return (Weights){_mm256_castsi256_ps(_mm256_slli_epi32(both, 16)), _mm256_castsi256_ps(odd)};
}

/* Of numbers that are bfloat16 already. */
INLINE void store_weights(bf16 *to, Weights w) {
    __m256i even = _mm256_srli_epi32(_mm256_castps_si256(w.even), 16);
    _mm256_storeu_si256((__m256i *)to, _mm256_or_si256(even, _mm256_castps_si256(w.odd)));
}

typedef struct {
    __m256i mask;
} Bytes, Levels;

INLINE Bytes for_bytes(void) { return (Bytes){_mm256_set1_epi8(0x7F)}; }
INLINE Levels for_levels(void) { return (Levels){_mm256_set1_epi32(0xF)}; }

/* Bytes in the two upper places of each word. */
INLINE Weights upper_bytes(__m256i words) {
    __m256i even = _mm256_srai_epi32(_mm256_slli_epi32(words, 8), 24), odd = _mm256_srai_epi32(words, 24);
    return (Weights){_mm256_cvtepi32_ps(even), _mm256_cvtepi32_ps(odd)};
}

/* 4 LANES bytes, each a sign and seven bits: of each 16 eight of the left and eight of the right. */
INLINE void widen_bytes(const Bytes *t, const uint8_t *from, Weights *left, Weights *right) {
    __m256i bytes = _mm256_loadu_si256((const __m256i *)from), none = _mm256_setzero_si256();
    bytes = _mm256_sign_epi8(_mm256_and_si256(bytes, t->mask), bytes);
    *left = upper_bytes(_mm256_unpacklo_epi16(none, bytes));
    *right = upper_bytes(_mm256_unpackhi_epi16(none, bytes));
}

/* 2 LANES bytes, whose low halves are the left vector's levels, the high halves the right one's. */
INLINE void widen_levels(const Levels *t, const uint8_t *from, Weights *left, Weights *right) {
    __m256i pairs = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)from));
    left->even = _mm256_cvtepi32_ps(_mm256_and_si256(pairs, t->mask));
    left->odd = _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(pairs, 8), t->mask));
    right->even = _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(pairs, 4), t->mask));
    right->odd = _mm256_cvtepi32_ps(_mm256_srli_epi32(pairs, 12));
}

#endif
