/* Products with packed bfloat16 weights, alone and gated, and the RMS norm.
 *
 * A weight [N, K] is packed as panels of 32 columns: [panels][K / 2][32][2]. One pass over a panel serves up to 12 rows; of more rows, blocks
 * follow while the panel is in the cache. A row's sums run over K in the same order whatever rows it rides with, so a row's result is the
 * same, bit for bit, alone and in a batch.
 */
#include "common.h"

Torch torch;

static __thread struct {
    void *start;
    size_t bytes;
} kept;

void *room(size_t bytes) {
    if (kept.bytes < bytes) {
        free(kept.start);
        size_t wanted = (bytes + 4095) / 4096 * 4096;
        kept.start = aligned_alloc(64, wanted);
        kept.bytes = kept.start ? wanted : 0;
        if (!kept.start) abort(); /* as torch's own allocator, less politely: a few hundred kilobytes were refused */
    }
    return kept.start;
}

enum { DEPTH = 2048 };      /* pairs summed before a block's sums are put down: bounds what a panel takes of the cache */
enum { CHUNK = 8 };         /* blocks of rows a task takes */
enum { ALONE = 32 * 2048 }; /* numbers below which one thread packs the rows */

typedef struct {
    const float *x;
    uint32_t *packed; /* [blocks][pairs][rows of the block] */
    const bf16 *weight;
    const float *bias;
    float *out;
    int64_t rows, inputs, pairs, panels, columns;
    int64_t blocks, chunks;
    int act;
} Product;

/* Block b holds rows [first(b), first(b + 1)): as even as can be. */
INLINE int64_t first_row(const Product *p, int64_t block) { return block * p->rows / p->blocks; }

static void pack_rows(int64_t begin, int64_t end, void *context) {
    Product *p = context;
    for (int64_t block = begin; block < end; block++) {
        int64_t first = first_row(p, block), rows = first_row(p, block + 1) - first;
        uint32_t *to = p->packed + first * p->pairs;
        for (int64_t r = 0; r < rows; r++) {
            const float *x = p->x + (first + r) * p->inputs;
            int64_t k = 0;
            for (; k + 16 <= p->inputs; k += 16) {
                uint32_t eight[8];
                _mm256_storeu_si256((__m256i *)eight, (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(x + k)));
                for (int i = 0; i < 8; i++) to[(k / 2 + i) * rows + r] = eight[i];
            }
            for (; k < p->inputs; k += 2) to[k / 2 * rows + r] = pair_of(x[k], k + 1 < p->inputs ? x[k + 1] : 0.f);
        }
    }
}

INLINE void put(float *to, __m512 value, int64_t left) {
    if (left >= 16)
        _mm512_storeu_ps(to, value);
    else if (left > 0)
        _mm512_mask_storeu_ps(to, (__mmask16)((1u << left) - 1), value);
}

INLINE __m512 take(const float *from, int64_t left) {
    return left >= 16 ? _mm512_loadu_ps(from) : _mm512_maskz_loadu_ps((__mmask16)((1u << (left > 0 ? left : 0)) - 1), from);
}

INLINE void sum_block(const int rows, const uint32_t *x, const bf16 *w, int64_t pairs, float sums[ROWS][COLUMNS]) {
    __m512 acc[ROWS][2];
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) acc[r][0] = _mm512_load_ps(sums[r]), acc[r][1] = _mm512_load_ps(sums[r] + 16);
    multiply(rows, x, w, 2 * COLUMNS, pairs, acc);
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) _mm512_store_ps(sums[r], acc[r][0]), _mm512_store_ps(sums[r] + 16, acc[r][1]);
}

/* Sums of a block of rows and a panel. A function of its own, so that the compiler has nothing else to keep in registers. */
#define SUMMING(n)                                                                                                          \
    static __attribute__((noinline)) void sums_##n(const uint32_t *x, const bf16 *w, int64_t pairs, float sums[ROWS][COLUMNS]) { \
        sum_block(n, x, w, pairs, sums);                                                                                    \
    }
SUMMING(1) SUMMING(2) SUMMING(3) SUMMING(4) SUMMING(5) SUMMING(6) SUMMING(7) SUMMING(8) SUMMING(9) SUMMING(10) SUMMING(11) SUMMING(12)

static void (*const SUMS[])(const uint32_t *, const bf16 *, int64_t, float[ROWS][COLUMNS]) = {
    NULL, sums_1, sums_2, sums_3, sums_4, sums_5, sums_6, sums_7, sums_8, sums_9, sums_10, sums_11, sums_12,
};

/* Rows [first, first + rows) by the columns of one panel. */
static void block_product(const Product *p, int64_t first, int64_t rows, int64_t panel, int64_t from, int64_t pairs) {
    float sums[ROWS][COLUMNS] __attribute__((aligned(64)));
    int64_t column = panel * COLUMNS, left = p->columns - column;
    float *out = p->out + first * p->columns + column;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t half = 0; half < COLUMNS; half += 16) {
            __m512 start = from      ? take(out + r * p->columns + half, left - half)
                           : p->bias ? take(p->bias + column + half, left - half)
                                     : _mm512_setzero_ps();
            _mm512_store_ps(sums[r] + half, start);
        }
    SUMS[rows](p->packed + first * p->pairs + from * rows, p->weight + (panel * p->pairs + from) * 2 * COLUMNS, pairs, sums);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t half = 0; half < COLUMNS; half += 16) put(out + r * p->columns + half, _mm512_load_ps(sums[r] + half), left - half);
}

INLINE __m512 activated(int act, __m512 x) {
    if (act == 0) return _mm512_mul_ps(x, sigmoid16(x)); /* SiLU */
    /* GELU by tanh: x / 2 (1 + tanh u) = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3) */
    __m512 cube = _mm512_mul_ps(_mm512_mul_ps(x, x), x);
    __m512 u = _mm512_mul_ps(_mm512_set1_ps(1.59576912f), _mm512_fmadd_ps(_mm512_set1_ps(0.044715f), cube, x));
    return _mm512_mul_ps(x, sigmoid16(u));
}

/* The same for panels whose first 16 columns are gates and whose others are what they let through: act(gate) * up. */
static void block_gated(const Product *p, int64_t first, int64_t rows, int64_t panel) {
    float sums[ROWS][COLUMNS] __attribute__((aligned(64)));
    memset(sums, 0, sizeof sums);
    SUMS[rows](p->packed + first * p->pairs, p->weight + panel * p->pairs * 2 * COLUMNS, p->pairs, sums);
    int64_t column = panel * 16, left = p->columns - column;
    float *out = p->out + first * p->columns + column;
    for (int64_t r = 0; r < rows; r++)
        put(out + r * p->columns, _mm512_mul_ps(activated(p->act, _mm512_load_ps(sums[r])), _mm512_load_ps(sums[r] + 16)), left);
}

static void run_product(int64_t begin, int64_t end, void *context) {
    const Product *p = context;
    for (int64_t task = begin; task < end; task++) {
        int64_t panel = task / p->chunks, chunk = task % p->chunks;
        int64_t last = (chunk + 1) * p->blocks / p->chunks;
        for (int64_t from = 0; from < p->pairs; from += DEPTH) {
            int64_t pairs = p->pairs - from < DEPTH ? p->pairs - from : DEPTH;
            for (int64_t block = chunk * p->blocks / p->chunks; block < last; block++) {
                int64_t first = first_row(p, block), rows = first_row(p, block + 1) - first;
                block_product(p, first, rows, panel, from, pairs);
            }
        }
    }
}

static void run_gated(int64_t begin, int64_t end, void *context) {
    const Product *p = context;
    for (int64_t task = begin; task < end; task++) {
        int64_t panel = task / p->chunks, chunk = task % p->chunks;
        int64_t last = (chunk + 1) * p->blocks / p->chunks;
        for (int64_t block = chunk * p->blocks / p->chunks; block < last; block++) {
            int64_t first = first_row(p, block), rows = first_row(p, block + 1) - first;
            block_gated(p, first, rows, panel);
        }
    }
}

/* The result of x [..., K] as a new tensor [..., columns]. */
static Tensor product(Tensor x, Tensor weight, const float *bias, int64_t columns, int act, Range run) {
    Product p = {.x = data_of(x), .weight = data_of(weight), .bias = bias, .columns = columns, .act = act};
    int64_t dim = dim_of(x), sizes[MOST_DIMS];
    memcpy(sizes, sizes_of(x), (size_t)dim * sizeof *sizes);
    p.inputs = sizes[dim - 1];
    p.rows = 1;
    for (int64_t place = 0; place < dim - 1; place++) p.rows *= sizes[place];
    sizes[dim - 1] = columns;
    Tensor made = new_floats(dim, sizes);
    if (p.rows == 0) return made;
    p.out = data_of(made);
    p.panels = sizes_of(weight)[0];
    p.pairs = sizes_of(weight)[1];
    p.blocks = (p.rows + ROWS - 1) / ROWS;
    p.chunks = (p.blocks + CHUNK - 1) / CHUNK;
    p.packed = room((size_t)(p.rows * p.pairs) * sizeof *p.packed);
    if (p.rows * p.inputs < ALONE)
        pack_rows(0, p.blocks, &p);
    else
        torch.parallel(0, p.blocks, 1, pack_rows, &p);
    torch.parallel(0, p.panels * p.chunks, 1, run, &p);
    return made;
}

/* omnibus::linear(Tensor x, Tensor weight, Tensor bias, int columns) -> Tensor; an empty bias is none. */
EXPORT void omnibus_linear(uint64_t *stack, uint64_t inputs, uint64_t outputs) {
    Tensor x = (Tensor)stack[0], weight = (Tensor)stack[1], bias = (Tensor)stack[2];
    Tensor made = product(x, weight, sizes_of(bias)[0] ? data_of(bias) : NULL, (int64_t)stack[3], 0, run_product);
    torch.drop(x), torch.drop(weight), torch.drop(bias);
    stack[0] = (uint64_t)made;
    (void)inputs, (void)outputs;
}

/* omnibus::gated(Tensor x, Tensor weight, int act, int columns) -> Tensor */
EXPORT void omnibus_gated(uint64_t *stack, uint64_t inputs, uint64_t outputs) {
    Tensor x = (Tensor)stack[0], weight = (Tensor)stack[1];
    Tensor made = product(x, weight, NULL, (int64_t)stack[3], (int)stack[2], run_gated);
    torch.drop(x), torch.drop(weight);
    stack[0] = (uint64_t)made;
    (void)inputs, (void)outputs;
}

/* --------------------------------------------------------------------------------------------------------------- norm */

typedef struct {
    const float *x, *weight;
    float *out;
    int64_t size;
    float eps;
} Norm;

static void run_norm(int64_t begin, int64_t end, void *context) {
    const Norm *n = context;
    for (int64_t row = begin; row < end; row++) {
        const float *x = n->x + row * n->size;
        float *out = n->out + row * n->size;
        __m512 sum = _mm512_setzero_ps();
        for (int64_t k = 0; k < n->size; k += 16) {
            __m512 v = take(x + k, n->size - k);
            sum = _mm512_fmadd_ps(v, v, sum);
        }
        __m512 scale = _mm512_set1_ps(1.f / sqrtf(_mm512_reduce_add_ps(sum) / (float)n->size + n->eps));
        for (int64_t k = 0; k < n->size; k += 16) {
            int64_t left = n->size - k;
            put(out + k, _mm512_mul_ps(_mm512_mul_ps(take(x + k, left), scale), take(n->weight + k, left)), left);
        }
    }
}

/* omnibus::rms_norm(Tensor x, Tensor weight, float eps) -> Tensor: w x / sqrt(mean(x^2) + eps) (Zhang and Sennrich, 2019) */
EXPORT void omnibus_rms_norm(uint64_t *stack, uint64_t inputs, uint64_t outputs) {
    Tensor x = (Tensor)stack[0], weight = (Tensor)stack[1];
    int64_t dim = dim_of(x), rows = 1;
    const int64_t *sizes = sizes_of(x);
    Tensor made = new_floats(dim, sizes);
    for (int64_t place = 0; place < dim - 1; place++) rows *= sizes[place];
    Norm n = {data_of(x), data_of(weight), data_of(made), sizes[dim - 1], (float)as_double(stack[2])};
    if (rows * n.size < ALONE)
        run_norm(0, rows, &n);
    else
        torch.parallel(0, rows, 1, run_norm, &n);
    torch.drop(x), torch.drop(weight);
    stack[0] = (uint64_t)made;
    (void)inputs, (void)outputs;
}

/* Called once, with the torch functions in the order of `Torch`. */
EXPORT void omnibus_init(void *const *functions) { memcpy(&torch, functions, sizeof torch); }
