/* Sums of a few rows and a part of a panel of weights, for each way of keeping weights.
 *
 * A panel is 32 columns. Weights lie in it a pair of inputs at a time: [inputs / 2][32][2] in bfloat16, the same as a sign and seven bits, or
 * as levels of 0..15 with a step and a lowest value for every 32 inputs of a column: groups of [16][32 bytes], then 32 steps and 32 lowest
 * values in half precision. Bytes and levels become the bfloat16 numbers of the same value, exactly, before they are multiplied.
 *
 * `sums` [rows][32] are added to; x is [pairs][rows]. The order of a row's additions does not depend on the others.
 */
#ifndef OMNIBUS_SUMS_H
#define OMNIBUS_SUMS_H

#include "common.h"

enum { FEW = 8 };    /* most rows for which weights are widened in registers: tables and sums fill the 32 of newer CPUs */
enum { GROUP = 16 }; /* pairs of inputs that share a step and a lowest value */
enum { GROUP_BYTES = GROUP * COLUMNS + 2 * COLUMNS * 2 };

typedef float Sums[ROWS][COLUMNS];

/* By the number of rows; up to ROWS for what is wide already, up to FEW for the others. `totals` [groups][rows] are the rows' own sums. */
extern void (*const SUMS_HALVES[])(const Pair *x, const bf16 *w, int64_t pairs, Sums sums);
extern void (*const SUMS_BYTES[])(const Pair *x, const uint8_t *w, int64_t pairs, Sums sums);
extern void (*const SUMS_LEVELS[])(const Pair *x, const float *totals, const uint8_t *w, const bf16 *wide, int64_t groups, Sums sums);
extern void (*const SUMS_WIDE_LEVELS[])(const Pair *x, const float *totals, const uint8_t *w, const bf16 *wide, int64_t groups, Sums sums);

/* For many rows: write down as bfloat16 [pairs][32][2] what the bytes or levels are. */
void write_bytes(const uint8_t *w, int64_t pairs, bf16 *wide);
void write_levels(const uint8_t *w, int64_t groups, bf16 *wide);

#endif
