// Attention of single queries over a paged cache, for every row of a decode step: two kernels, compiled at run time, without any header.
//
// Fixed when it is compiled (the names are defined on the compiler's command line):
//   KIND        0 float32, 1 bfloat16, 2 float16: of queries, cache and result
//   DIM         size of a query and a key; VALUE_DIM of a value; both multiples of 8, so that each 8 of them are one or two 16-byte loads
//   BLOCK       positions a block
//   GROUP       query heads a key head
//   TILE        query heads that one thread block answers; a key is read once for all of them
//
// Split-key attention (Flash-Decoding, Dao et al., 2023) with the running softmax of Milakov and Gimelshein (2018). A thread block reads a
// share of one row's positions for one key head. In it, a team of 8 lanes reads a position at a time: 4 teams a warp, 4 warps. Each team
// keeps its own running maximum, sum and output; they are merged in the warp, then in the block, then over the shares by `paged_merge`.
// Sums are float32 throughout. Every statement is mirrored, line by line, in tests/engine/model/cuda/by_hand.py.

#define WARPS 4
#define TEAM 8
#define TEAMS (32 / TEAM)
#define STRIDE (WARPS * TEAMS)
#define KEY_CHUNKS ((DIM / 8 + TEAM - 1) / TEAM)
#define VALUE_CHUNKS ((VALUE_DIM / 8 + TEAM - 1) / TEAM)
#define NEVER __int_as_float(0xff800000)
#define WHOLE_WARP 0xffffffffu
#define UNROLL _Pragma("unroll")  // arrays indexed in a loop that is not unrolled would live in memory

#if KIND == 0
typedef float element;

__device__ float widen(element x) { return x; }
__device__ element narrow(float x) { return x; }

__device__ void load8(const element* from, float* to) {
    const float4 low = ((const float4*)from)[0], high = ((const float4*)from)[1];
    to[0] = low.x, to[1] = low.y, to[2] = low.z, to[3] = low.w;
    to[4] = high.x, to[5] = high.y, to[6] = high.z, to[7] = high.w;
}
#else
typedef unsigned short element;

#if KIND == 1
__device__ float widen(element x) { return __uint_as_float((unsigned)x << 16); }

__device__ element narrow(float x) {  // to the nearest, ties to even
    const unsigned bits = __float_as_uint(x);
    if (x != x) return 0x7fc0;
    return (element)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
#else
__device__ float widen(element x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
}

__device__ element narrow(float x) {
    element y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}
#endif

__device__ void load8(const element* from, float* to) {
    const uint4 raw = *(const uint4*)from;
    to[0] = widen(raw.x & 0xffff), to[1] = widen(raw.x >> 16), to[2] = widen(raw.y & 0xffff), to[3] = widen(raw.y >> 16);
    to[4] = widen(raw.z & 0xffff), to[5] = widen(raw.z >> 16), to[6] = widen(raw.w & 0xffff), to[7] = widen(raw.w >> 16);
}
#endif

// By how much what was gathered under the maximum `from` counts under the maximum `to`.
__device__ float rescale(float from, float to) { return from == to ? 1.0f : expf(from - to); }

// Grid (splits, key heads * tiles, rows), 32 * WARPS threads.
//   query   [rows, heads, DIM]                 keys, values  [blocks, key heads, BLOCK, DIM or VALUE_DIM]
//   table   [rows, width], block numbers       lengths       [rows], at least 1
//   tops, sums  [rows, heads, splits]          outs          [rows, heads, splits, VALUE_DIM], not yet divided by the sums
extern "C" __global__ void paged_partials(
    const element* __restrict__ query, const element* __restrict__ keys, const element* __restrict__ values,
    const int* __restrict__ table, const int* __restrict__ lengths, float* __restrict__ tops, float* __restrict__ sums,
    float* __restrict__ outs, int width, int key_heads, int window, double scale, double softcap) {
    __shared__ float asked[TILE][DIM];
    __shared__ float warp_top[WARPS][TILE], warp_sum[WARPS][TILE], warp_out[WARPS][TILE][VALUE_DIM];

    // Where this thread block stands.
    const int tiles = (GROUP + TILE - 1) / TILE;
    const int splits = gridDim.x, split = blockIdx.x, key_head = blockIdx.y / tiles, row = blockIdx.z;
    const int first = blockIdx.y % tiles * TILE;
    const int heads = key_heads * GROUP;
    const int warp = threadIdx.x / 32, team = threadIdx.x % 32 / TEAM, member = threadIdx.x % TEAM;
    const int length = lengths[row];
    const int seen = window > 0 && length > window ? length - window : 0;
    const int share = ((length - seen + splits - 1) / splits + STRIDE - 1) / STRIDE * STRIDE;
    const int begin = seen + split * share;
    const int end = begin + share < length ? begin + share : length;

    // The queries, once for all positions.
    for (int place = threadIdx.x; place < TILE * DIM; place += 32 * WARPS) {
        const int head = first + place / DIM;
        const long long from = ((long long)row * heads + key_head * GROUP + head) * DIM + place % DIM;
        asked[place / DIM][place % DIM] = head < GROUP ? widen(query[from]) * (float)scale : 0.0f;
    }
    __syncthreads();

    // This team's positions.
    float top[TILE], sum[TILE], out[TILE][VALUE_CHUNKS * 8];
    UNROLL for (int head = 0; head < TILE; head++) {
        top[head] = NEVER, sum[head] = 0.0f;
        UNROLL for (int i = 0; i < VALUE_CHUNKS * 8; i++) out[head][i] = 0.0f;
    }
    for (int base = begin + warp * TEAMS; base < end; base += STRIDE) {
        const int position = base + team;
        const bool there = position < end;
        const long long block = there ? table[(long long)row * width + position / BLOCK] : 0;
        const long long slot = (block * key_heads + key_head) * BLOCK + position % BLOCK;
        float score[TILE], value[VALUE_CHUNKS * 8];
        UNROLL for (int head = 0; head < TILE; head++) score[head] = 0.0f;
        UNROLL for (int chunk = 0; chunk < KEY_CHUNKS; chunk++) {
            const int at = (chunk * TEAM + member) * 8;
            float key[8];
            if (there && at < DIM) {
                load8(keys + slot * DIM + at, key);
                UNROLL for (int head = 0; head < TILE; head++)
                    UNROLL for (int i = 0; i < 8; i++) score[head] += asked[head][at + i] * key[i];
            }
        }
        UNROLL for (int chunk = 0; chunk < VALUE_CHUNKS; chunk++) {
            const int at = (chunk * TEAM + member) * 8;
            UNROLL for (int i = 0; i < 8; i++) value[chunk * 8 + i] = 0.0f;
            if (there && at < VALUE_DIM) load8(values + slot * VALUE_DIM + at, value + chunk * 8);
        }
        UNROLL for (int head = 0; head < TILE; head++) {
            UNROLL for (int mask = TEAM / 2; mask > 0; mask /= 2) score[head] += __shfl_xor_sync(WHOLE_WARP, score[head], mask);
            if (softcap > 0.0) score[head] = (float)softcap * tanhf(score[head] / (float)softcap);
            const float best = there && score[head] > top[head] ? score[head] : top[head];
            const float keep = rescale(top[head], best);
            const float weight = there ? expf(score[head] - best) : 0.0f;
            top[head] = best, sum[head] = sum[head] * keep + weight;
            UNROLL for (int i = 0; i < VALUE_CHUNKS * 8; i++) out[head][i] = out[head][i] * keep + weight * value[i];
        }
    }

    // The teams of a warp.
    UNROLL for (int head = 0; head < TILE; head++) {
        UNROLL for (int mask = TEAM; mask < 32; mask *= 2) {
            const float other = __shfl_xor_sync(WHOLE_WARP, top[head], mask);
            const float best = other > top[head] ? other : top[head];
            const float mine = rescale(top[head], best), theirs = rescale(other, best);
            top[head] = best, sum[head] = sum[head] * mine + __shfl_xor_sync(WHOLE_WARP, sum[head], mask) * theirs;
            UNROLL for (int i = 0; i < VALUE_CHUNKS * 8; i++)
                out[head][i] = out[head][i] * mine + __shfl_xor_sync(WHOLE_WARP, out[head][i], mask) * theirs;
        }
        if (team == 0) {
            warp_top[warp][head] = top[head], warp_sum[warp][head] = sum[head];
            UNROLL for (int i = 0; i < VALUE_CHUNKS * 8; i++) {
                const int at = (i / 8 * TEAM + member) * 8 + i % 8;
                if (at < VALUE_DIM) warp_out[warp][head][at] = out[head][i];
            }
        }
    }
    __syncthreads();

    // The warps of the thread block.
    for (int place = threadIdx.x; place < TILE * VALUE_DIM; place += 32 * WARPS) {
        const int head = place / VALUE_DIM, at = place % VALUE_DIM;
        if (first + head >= GROUP) continue;
        float best = NEVER, total = 0.0f, gathered = 0.0f;
        UNROLL for (int w = 0; w < WARPS; w++) best = warp_top[w][head] > best ? warp_top[w][head] : best;
        UNROLL for (int w = 0; w < WARPS; w++) {
            const float factor = rescale(warp_top[w][head], best);
            total += warp_sum[w][head] * factor, gathered += warp_out[w][head][at] * factor;
        }
        const long long part = ((long long)row * heads + key_head * GROUP + first + head) * splits + split;
        outs[part * VALUE_DIM + at] = gathered;
        if (at == 0) tops[part] = best, sums[part] = total;
    }
}

// Grid (heads, rows), any number of threads. `sinks` [heads] float32 are one more key each, of that logit and no value; read only if
// `has_sinks`. result [rows, heads, VALUE_DIM].
extern "C" __global__ void paged_merge(
    const float* __restrict__ tops, const float* __restrict__ sums, const float* __restrict__ outs, const float* __restrict__ sinks,
    element* __restrict__ result, int splits, int has_sinks) {
    const int head = blockIdx.x;
    const long long place = (long long)blockIdx.y * gridDim.x + head;
    float best = has_sinks ? sinks[head] : NEVER;
    for (int split = 0; split < splits; split++) best = tops[place * splits + split] > best ? tops[place * splits + split] : best;
    float total = has_sinks ? expf(sinks[head] - best) : 0.0f;
    for (int split = 0; split < splits; split++)
        total += sums[place * splits + split] * rescale(tops[place * splits + split], best);
    for (int at = threadIdx.x; at < VALUE_DIM; at += blockDim.x) {
        float gathered = 0.0f;
        for (int split = 0; split < splits; split++)
            gathered += outs[(place * splits + split) * VALUE_DIM + at] * rescale(tops[place * splits + split], best);
        result[place * VALUE_DIM + at] = narrow(gathered / total);
    }
}
