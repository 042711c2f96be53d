/* Products with packed weights of 16 or 8 bits, alone and gated, and the RMS norm.
 *
 * A weight [N, K] is packed as panels of 32 columns: [panels][K / 2][32][2], in bfloat16 or as a sign and seven bits with a scale a column.
 * Such bytes become the bfloat16 numbers of the same value, exactly, on their way to the product: for a few rows in registers, for many
 * a panel at a time. One pass over a panel serves up to 12 rows; of more rows, blocks
 * follow while the panel is in the cache. A row's sums run over K in the same order whatever rows it rides with, so a row's result is the
 * same, bit for bit, alone and in a batch.
 */
#include "common.h"
#include <pthread.h>
#include <stdatomic.h>

Torch torch;

typedef struct {
    void *start;
    size_t bytes;
} Room;

static __thread Room kept[ROOMS];

/* A thread's rooms go when it ends: models are loaded and run on many threads in a day, and torch makes more. */
static pthread_key_t ending;
static pthread_once_t asked = PTHREAD_ONCE_INIT;
static bool heard;

static void clear_rooms(void *rooms) {
    for (Room *each = rooms; each < (Room *)rooms + ROOMS; each++) {
        free(each->start);
        *each = (Room){NULL, 0};
    }
}

static void ask(void) { heard = pthread_key_create(&ending, clear_rooms) == 0; }

void *room(int which, size_t bytes) {
    if (kept[which].bytes < bytes) {
        pthread_once(&asked, ask);
        if (heard) pthread_setspecific(ending, kept);
        free(kept[which].start);
        size_t wanted = (bytes + 4095) / 4096 * 4096;
        kept[which].start = aligned_alloc(64, wanted);
        kept[which].bytes = kept[which].start ? wanted : 0;
    }
    return kept[which].start;
}

enum { DEPTH = 2048 };      /* pairs summed before a block's sums are put down: bounds what a panel takes of the cache */
enum { CHUNK = 8 };         /* blocks of rows a task takes */
enum { MOST_PARTS = 64 };   /* threads that share a product */
enum { FEW = 8 };           /* rows for which bytes are widened in registers: tables and sums fill all 32 */

/* The tasks of one thread, a cache line apart from those of the next. */
typedef struct {
    atomic_llong next; /* the first that nobody has taken */
    int64_t end;
} __attribute__((aligned(64))) Share;

typedef struct {
    const float *x;
    uint32_t *packed; /* [blocks][pairs][rows of the block] */
    const bf16 *weight;   /* NULL if there are bytes */
    const uint8_t *bytes; /* [panels][pairs][64], in the order of `widen` */
    const float *scale;   /* of bytes, [panels][32] */
    const float *bias;
    float *out;
    int64_t rows, inputs, pairs, panels, columns;
    int64_t blocks, chunks;
    int act;
    Share *shares;
    int64_t parts;
    atomic_bool failed; /* a thread had no room to widen a panel */
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

INLINE void sum_bytes(const int rows, const uint32_t *x, const uint8_t *w, int64_t pairs, float sums[ROWS][COLUMNS]) {
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
    static __attribute__((noinline)) void bytes_##n(const uint32_t *x, const uint8_t *w, int64_t pairs, float sums[ROWS][COLUMNS]) { \
        sum_bytes(n, x, w, pairs, sums);                                                                                          \
    }
SUMMING_BYTES(1) SUMMING_BYTES(2) SUMMING_BYTES(3) SUMMING_BYTES(4) SUMMING_BYTES(5) SUMMING_BYTES(6) SUMMING_BYTES(7) SUMMING_BYTES(8)

static void (*const SUMS_BYTES[])(const uint32_t *, const uint8_t *, int64_t, float[ROWS][COLUMNS]) = {
    NULL, bytes_1, bytes_2, bytes_3, bytes_4, bytes_5, bytes_6, bytes_7, bytes_8,
};

/* A part of a panel: in bfloat16, or in bytes. */
typedef struct {
    const bf16 *halves;
    const uint8_t *bytes;
    int64_t from, pairs;
} Part;

/* Bytes that many rows will read are widened once; `rows` is how many the largest block has. */
static Part part_of(Product *p, int64_t panel, int64_t from, int64_t pairs, bool many) {
    int64_t at = panel * p->pairs + from;
    if (p->weight) return (Part){p->weight + at * 2 * COLUMNS, NULL, from, pairs};
    const uint8_t *bytes = p->bytes + at * 64;
    if (!many) return (Part){NULL, bytes, from, pairs};
    const Tables t = tables();
    bf16 *halves = room(WIDENED, (size_t)pairs * 128);
    if (!halves) {
        atomic_store(&p->failed, true);
        return (Part){NULL, NULL, from, pairs};
    }
    for (int64_t k = 0; k < pairs; k++) {
        __m512i left, right;
        widen(&t, bytes + k * 64, &left, &right);
        _mm512_store_si512(halves + k * 64, left);
        _mm512_store_si512(halves + k * 64 + 32, right);
    }
    return (Part){halves, NULL, from, pairs};
}

INLINE void add_part(const Product *p, int64_t first, int64_t rows, Part part, float sums[ROWS][COLUMNS]) {
    const uint32_t *x = p->packed + first * p->pairs + part.from * rows;
    if (part.halves)
        SUMS[rows](x, part.halves, part.pairs, sums);
    else
        SUMS_BYTES[rows](x, part.bytes, part.pairs, sums);
}

/* Rows [first, first + rows) by the columns of one panel. Sums of a part that is not the last lie in the result. */
static void block_product(const Product *p, int64_t first, int64_t rows, int64_t panel, Part part) {
    float sums[ROWS][COLUMNS] __attribute__((aligned(64)));
    int64_t column = panel * COLUMNS, left = p->columns - column;
    float *out = p->out + first * p->columns + column;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t half = 0; half < COLUMNS; half += 16)
            _mm512_store_ps(sums[r] + half, part.from ? take(out + r * p->columns + half, left - half) : _mm512_setzero_ps());
    add_part(p, first, rows, part, sums);
    bool last = part.from + part.pairs == p->pairs;
    for (int64_t half = 0; half < COLUMNS; half += 16) {
        __m512 scale = last && p->scale ? _mm512_loadu_ps(p->scale + column + half) : _mm512_set1_ps(1.f);
        __m512 bias = last && p->bias ? take(p->bias + column + half, left - half) : _mm512_setzero_ps();
        for (int64_t r = 0; r < rows; r++)
            put(out + r * p->columns + half, _mm512_fmadd_ps(_mm512_load_ps(sums[r] + half), scale, bias), left - half);
    }
}

INLINE __m512 activated(int act, __m512 x) {
    if (act == 0) return _mm512_mul_ps(x, sigmoid16(x)); /* SiLU */
    /* GELU by tanh: x / 2 (1 + tanh u) = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3) */
    __m512 cube = _mm512_mul_ps(_mm512_mul_ps(x, x), x);
    __m512 u = _mm512_mul_ps(_mm512_set1_ps(1.59576912f), _mm512_fmadd_ps(_mm512_set1_ps(0.044715f), cube, x));
    return _mm512_mul_ps(x, sigmoid16(u));
}

/* The same for panels whose first 16 columns are gates and whose others are what they let through: act(gate) * up. */
static void block_gated(const Product *p, int64_t first, int64_t rows, int64_t panel, Part part) {
    float sums[ROWS][COLUMNS] __attribute__((aligned(64)));
    memset(sums, 0, sizeof sums);
    add_part(p, first, rows, part, sums);
    const __m512 one = _mm512_set1_ps(1.f);
    __m512 gates = p->scale ? _mm512_loadu_ps(p->scale + panel * COLUMNS) : one, ups = p->scale ? _mm512_loadu_ps(p->scale + panel * COLUMNS + 16) : one;
    int64_t column = panel * 16, left = p->columns - column;
    float *out = p->out + first * p->columns + column;
    for (int64_t r = 0; r < rows; r++) {
        __m512 gate = _mm512_mul_ps(_mm512_load_ps(sums[r]), gates), up = _mm512_mul_ps(_mm512_load_ps(sums[r] + 16), ups);
        put(out + r * p->columns, _mm512_mul_ps(activated(p->act, gate), up), left);
    }
}

/* One task: a panel times a chunk of rows. A gated panel is summed as a whole. Returns false if there was no memory. */
INLINE bool run_task(Product *p, int64_t task, bool gated) {
    int64_t depth = gated ? p->pairs : DEPTH;
    int64_t panel = task / p->chunks, chunk = task % p->chunks;
    int64_t start = chunk * p->blocks / p->chunks, stop = (chunk + 1) * p->blocks / p->chunks;
    for (int64_t from = 0; from < p->pairs; from += depth) {
        Part part = part_of(p, panel, from, p->pairs - from < depth ? p->pairs - from : depth, p->rows > 2 * FEW);
        if (!part.halves && !part.bytes) return false;
        for (int64_t block = start; block < stop; block++) {
            int64_t first = first_row(p, block), rows = first_row(p, block + 1) - first;
            if (gated)
                block_gated(p, first, rows, panel, part);
            else
                block_product(p, first, rows, panel, part);
        }
    }
    return true;
}

/* A thread does its own share, which lies in one piece, and then what is left of the others': one that has to share its core with the window
 * or the server does less, and nobody waits for it. */
INLINE void run(int64_t begin, Product *p, bool gated) {
    for (int64_t each = 0; each < p->parts; each++) {
        Share *share = p->shares + (begin + each) % p->parts;
        for (int64_t task; (task = atomic_fetch_add_explicit(&share->next, 1, memory_order_relaxed)) < share->end;)
            if (!run_task(p, task, gated)) return;
    }
}

static void run_product(int64_t begin, int64_t end, void *context) {
    (void)end;
    run(begin, context, false);
}

static void run_gated(int64_t begin, int64_t end, void *context) {
    (void)end;
    run(begin, context, true);
}

/* All tasks, on as many threads as torch has. */
static void run_shared(Product *p, Range task) {
    Share shares[MOST_PARTS];
    uint32_t threads = 1;
    torch.threads(&threads);
    int64_t tasks = p->panels * p->chunks;
    p->parts = threads < tasks ? threads : tasks;
    if (p->parts > MOST_PARTS) p->parts = MOST_PARTS;
    p->shares = shares;
    for (int64_t part = 0; part < p->parts; part++) {
        atomic_init(&shares[part].next, part * tasks / p->parts);
        shares[part].end = (part + 1) * tasks / p->parts;
    }
    torch.parallel(0, p->parts, 1, task, p);
}

/* The result of x [..., K] as a new tensor [..., columns]. `p` says everything but the sizes. */
static Tensor product(Tensor x, Tensor weight, Product p, Range task) {
    int64_t dim = dim_of(x), sizes[MOST_DIMS];
    memcpy(sizes, sizes_of(x), (size_t)dim * sizeof *sizes);
    p.x = data_of(x);
    p.inputs = sizes[dim - 1];
    p.rows = 1;
    for (int64_t place = 0; place < dim - 1; place++) p.rows *= sizes[place];
    sizes[dim - 1] = p.columns;
    Tensor made = new_floats(dim, sizes);
    if (p.rows == 0 || !made) return made;
    p.out = data_of(made);
    p.panels = sizes_of(weight)[0];
    p.pairs = sizes_of(weight)[1];
    int64_t most = p.bytes && p.rows <= 2 * FEW ? FEW : ROWS;
    p.blocks = (p.rows + most - 1) / most;
    p.chunks = (p.blocks + CHUNK - 1) / CHUNK;
    p.packed = room(PACKED, (size_t)(p.rows * p.pairs) * sizeof *p.packed);
    if (!p.packed) {
        torch.drop(made);
        return NULL;
    }
    if (p.rows * p.inputs < ALONE)
        pack_rows(0, p.blocks, &p);
    else
        torch.parallel(0, p.blocks, 1, pack_rows, &p);
    run_shared(&p, task);
    if (atomic_load(&p.failed)) {
        torch.drop(made);
        return NULL;
    }
    return made;
}

INLINE const float *floats_or_none(Tensor tensor) { return sizes_of(tensor)[0] ? data_of(tensor) : NULL; }

/* omnibus::linear(Tensor x, Tensor weight, Tensor scale, Tensor bias, int columns) -> Tensor
 * weight bfloat16 with an empty scale, or uint8 with one; an empty bias is none. */
EXPORT void omnibus_linear(uint64_t *stack, uint64_t inputs, uint64_t outputs) {
    Tensor x = (Tensor)stack[0], weight = (Tensor)stack[1], scale = (Tensor)stack[2], bias = (Tensor)stack[3];
    Product p = {.scale = floats_or_none(scale), .bias = floats_or_none(bias), .columns = (int64_t)stack[4]};
    *(p.scale ? (const void **)&p.bytes : (const void **)&p.weight) = data_of(weight);
    Tensor made = product(x, weight, p, run_product);
    torch.drop(x), torch.drop(weight), torch.drop(scale), torch.drop(bias);
    result(stack, made);
    (void)inputs, (void)outputs;
}

/* omnibus::gated(Tensor x, Tensor weight, Tensor scale, int act, int columns) -> Tensor */
EXPORT void omnibus_gated(uint64_t *stack, uint64_t inputs, uint64_t outputs) {
    Tensor x = (Tensor)stack[0], weight = (Tensor)stack[1], scale = (Tensor)stack[2];
    Product p = {.scale = floats_or_none(scale), .act = (int)stack[3], .columns = (int64_t)stack[4]};
    *(p.scale ? (const void **)&p.bytes : (const void **)&p.weight) = data_of(weight);
    Tensor made = product(x, weight, p, run_gated);
    torch.drop(x), torch.drop(weight), torch.drop(scale);
    result(stack, made);
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
    if (!made) {
        torch.drop(x), torch.drop(weight);
        result(stack, NULL);
    }
    Norm n = {data_of(x), data_of(weight), data_of(made), sizes[dim - 1], (float)as_double(stack[2])};
    if (rows * n.size < ALONE)
        run_norm(0, rows, &n);
    else
        torch.parallel(0, rows, 1, run_norm, &n);
    torch.drop(x), torch.drop(weight);
    result(stack, made);
    (void)inputs, (void)outputs;
}

/* Called once, with the torch functions in the order of `Torch`. */
EXPORT void omnibus_init(void *const *functions) { memcpy(&torch, functions, sizeof torch); }
