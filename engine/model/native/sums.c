/* Sums of a few rows and a part of a panel: see sums.h. */
#include "sums.h"

INLINE void sum_halves(const int rows, const int tiles, const int of, int first, int tile, const Pair *x, const bf16 *w, int64_t pairs,
                       Sums sums) {
    Tiles acc;
    load_tiles(rows, tiles, tile, acc, sums[first], COLUMNS);
    multiply(rows, tiles, of, tile, x + first, w, 2 * COLUMNS, pairs, NULL, acc);
    store_tiles(rows, tiles, tile, acc, sums[first], COLUMNS);
}

/* A function of its own, so that the compiler has nothing else to keep in registers. */
#define SUMMING(n)                                                                                               \
    static __attribute__((noinline)) void sums_##n(const Pair *x, const bf16 *w, int64_t pairs, Sums sums) { \
        IN_PIECES(n, sum_halves, x, w, pairs, sums);                                                             \
    }
SUMMING(1) SUMMING(2) SUMMING(3) SUMMING(4) SUMMING(5) SUMMING(6) SUMMING(7) SUMMING(8) SUMMING(9) SUMMING(10) SUMMING(11) SUMMING(12)

void (*const SUMS_HALVES[])(const Pair *, const bf16 *, int64_t, Sums) = {
    NULL, sums_1, sums_2, sums_3, sums_4, sums_5, sums_6, sums_7, sums_8, sums_9, sums_10, sums_11, sums_12,
};

INLINE void sum_bytes(const int rows, const int tiles, const int of, int first, int tile, const Pair *x, const uint8_t *w, int64_t pairs,
                      Sums sums) {
    const Bytes table = for_bytes();
    Tiles acc;
    x += first;
    load_tiles(rows, tiles, tile, acc, sums[first], COLUMNS);
    for (int64_t k = 0; k < pairs; k++, x += of, w += 2 * COLUMNS)
        EACH_TILE {
            Weights left, right;
            widen_bytes(&table, w + 4 * LANES * (tile + t), &left, &right);
            add_products(rows, t, x, 1, left, right, acc);
        }
    store_tiles(rows, tiles, tile, acc, sums[first], COLUMNS);
}

#define SUMMING_BYTES(n)                                                                                             \
    static __attribute__((noinline)) void bytes_##n(const Pair *x, const uint8_t *w, int64_t pairs, Sums sums) { \
        IN_PIECES(n, sum_bytes, x, w, pairs, sums);                                                                  \
    }
SUMMING_BYTES(1) SUMMING_BYTES(2) SUMMING_BYTES(3) SUMMING_BYTES(4) SUMMING_BYTES(5) SUMMING_BYTES(6) SUMMING_BYTES(7) SUMMING_BYTES(8)

void (*const SUMS_BYTES[])(const Pair *, const uint8_t *, int64_t, Sums) = {
    NULL, bytes_1, bytes_2, bytes_3, bytes_4, bytes_5, bytes_6, bytes_7, bytes_8,
};

INLINE void store_sides(bf16 *wide, int tile, Weights left, Weights right) {
    store_weights(wide + 2 * column_of(tile, 0), left);
    store_weights(wide + 2 * column_of(tile, 1), right);
}

void write_bytes(const uint8_t *w, int64_t pairs, bf16 *wide) {
    const Bytes table = for_bytes();
    for (int64_t k = 0; k < pairs; k++, w += 2 * COLUMNS, wide += 2 * COLUMNS)
        for (int tile = 0; tile < TILES; tile++) {
            Weights left, right;
            widen_bytes(&table, w + 4 * LANES * tile, &left, &right);
            store_sides(wide, tile, left, right);
        }
}

/* ------------------------------------------------------------------------------------------------------------- levels */

void write_levels(const uint8_t *w, int64_t groups, bf16 *wide) {
    const Levels table = for_levels();
    for (int64_t group = 0; group < groups; group++, w += GROUP_BYTES)
        for (int pair = 0; pair < GROUP; pair++, wide += 2 * COLUMNS)
            for (int tile = 0; tile < TILES; tile++) {
                Weights left, right;
                widen_levels(&table, w + pair * COLUMNS + 2 * LANES * tile, &left, &right);
                store_sides(wide, tile, left, right);
            }
}

/* sum x (level step + low) = step sum x level + low sum x, a group at a time. */
INLINE void sum_levels(const int rows, const int tiles, const int of, int first, int tile, const bool widened, const Pair *x,
                       const float *totals, const uint8_t *w, const bf16 *wide, int64_t groups, Sums sums) {
    const Levels table = for_levels();
    Tiles sum;
    x += first, totals += first;
    load_tiles(rows, tiles, tile, sum, sums[first], COLUMNS);
    for (int64_t group = 0; group < groups; group++, w += GROUP_BYTES, totals += of) {
        Tiles acc;
        EACH_ROW EACH_TILE EACH_SIDE acc[r][t][side] = all(0.f);
        for (int pair = 0; pair < GROUP; pair++, x += of, wide += 2 * COLUMNS)
            EACH_TILE {
                Weights left, right;
                if (widened)
                    left = load_weights(wide + 2 * column_of(tile + t, 0)), right = load_weights(wide + 2 * column_of(tile + t, 1));
                else
                    widen_levels(&table, w + pair * COLUMNS + 2 * LANES * (tile + t), &left, &right);
                add_products(rows, t, x, 1, left, right, acc);
            }
        const uint8_t *steps = w + GROUP * COLUMNS, *lows = steps + 2 * COLUMNS;
        EACH_TILE EACH_SIDE {
            int64_t at = 2 * column_of(tile + t, side);
            vec step = load_halves(steps + at), low = load_halves(lows + at);
            EACH_ROW sum[r][t][side] = mul_add(low, all(totals[r]), mul_add(step, acc[r][t][side], sum[r][t][side]));
        }
    }
    store_tiles(rows, tiles, tile, sum, sums[first], COLUMNS);
}

#define SUMMING_LEVELS(name, n, widened)                                                                                     \
    static __attribute__((noinline)) void name##_##n(const Pair *x, const float *totals, const uint8_t *w, const bf16 *wide, \
                                                     int64_t groups, Sums sums) {                                            \
        IN_PIECES(n, sum_levels, widened, x, totals, w, wide, groups, sums);                                                 \
    }
#define SUMMING_FEW(n) SUMMING_LEVELS(levels, n, false)
#define SUMMING_WIDE(n) SUMMING_LEVELS(wide, n, true)
SUMMING_FEW(1) SUMMING_FEW(2) SUMMING_FEW(3) SUMMING_FEW(4) SUMMING_FEW(5) SUMMING_FEW(6) SUMMING_FEW(7) SUMMING_FEW(8)
SUMMING_WIDE(1) SUMMING_WIDE(2) SUMMING_WIDE(3) SUMMING_WIDE(4) SUMMING_WIDE(5) SUMMING_WIDE(6)
SUMMING_WIDE(7) SUMMING_WIDE(8) SUMMING_WIDE(9) SUMMING_WIDE(10) SUMMING_WIDE(11) SUMMING_WIDE(12)

void (*const SUMS_LEVELS[])(const Pair *, const float *, const uint8_t *, const bf16 *, int64_t, Sums) = {
    NULL, levels_1, levels_2, levels_3, levels_4, levels_5, levels_6, levels_7, levels_8,
};
void (*const SUMS_WIDE_LEVELS[])(const Pair *, const float *, const uint8_t *, const bf16 *, int64_t, Sums) = {
    NULL, wide_1, wide_2, wide_3, wide_4, wide_5, wide_6, wide_7, wide_8, wide_9, wide_10, wide_11, wide_12,
};
