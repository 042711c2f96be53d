/* Products with packed weights of 16, 8 or 4 bits, alone and gated, and the RMS norm.
 *
 * A weight [N, K] is packed as panels of 32 columns, as sums.h describes them. What is smaller than bfloat16 is widened on its way to the
 * product: for a few rows in registers, for many a panel at a time. One pass over a panel serves a block of rows, up to 12; of more
 * rows, blocks follow while the panel is in the cache. A row's sums run over K in the same order whatever rows it rides with, so a row's
 * result is the same, bit for bit, alone and in a batch.
 */
#include "stages.h"
#include "sums.h"
#include <pthread.h>

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
enum { CHUNK = 96 / HIGH }; /* blocks of rows a task takes */

void pack_rows(int64_t begin, int64_t end, void *context) {
    Product *p = context;
    for (int64_t block = begin; block < end; block++) {
        int64_t first = first_row(p, block), rows = first_row(p, block + 1) - first;
        Pair *to = p->packed + first * p->pairs;
        float *totals = p->totals ? p->totals + first * (p->pairs / GROUP) : NULL;
        for (int64_t r = 0; r < rows; r++) {
            const float *x = p->x + (first + r) * p->stride;
            vec sum = all(0.f);
            int64_t k = 0;
            for (; k + LANES <= p->inputs; k += LANES) {
                Pair some[LANES / 2];
                vec rounded = store_pairs(some, load(x + k));
                for (int i = 0; i < LANES / 2; i++) to[(k / 2 + i) * rows + r] = some[i];
                if (!totals) continue;
                sum = k % (2 * GROUP) ? sum : all(0.f);
                sum += rounded;
                if (k % (2 * GROUP) == 2 * GROUP - LANES) totals[k / (2 * GROUP) * rows + r] = sum_of(sum);
            }
            for (; k < p->inputs; k += 2) to[k / 2 * rows + r] = pair_of(x[k], k + 1 < p->inputs ? x[k + 1] : 0.f);
        }
    }
}

/* A part of a panel: as it is packed, and as bfloat16 if it is or was widened. */
typedef struct {
    const uint8_t *packed;
    const bf16 *halves;
    int64_t from, pairs;
} Part;

/* What is smaller than bfloat16 is widened once if `many` rows will read it. Returns false if there was no memory. */
static bool take_part(Product *p, int64_t panel, int64_t from, int64_t pairs, bool many, Part *part) {
    int64_t at = panel * p->pairs + from;
    *part = (Part){p->weight + (p->totals ? at / GROUP * GROUP_BYTES : at * p->pair_bytes), NULL, from, pairs};
    if (p->pair_bytes == 4 * COLUMNS)
        part->halves = (const bf16 *)part->packed;
    else if (many) {
        bf16 *wide = room(WIDENED, (size_t)pairs * 4 * COLUMNS);
        if (!wide) {
            atomic_store(&p->failed, true);
            return false;
        }
        if (p->totals)
            write_levels(part->packed, pairs / GROUP, wide);
        else
            write_bytes(part->packed, pairs, wide);
        part->halves = wide;
    }
    return true;
}

INLINE void add_part(const Product *p, int64_t first, int64_t rows, Part part, Sums sums) {
    const Pair *x = p->packed + first * p->pairs + part.from * rows;
    if (p->totals) {
        const float *totals = p->totals + (first * p->pairs + part.from * rows) / GROUP;
        (part.halves ? SUMS_WIDE_LEVELS : SUMS_LEVELS)[rows](x, totals, part.packed, part.halves, part.pairs / GROUP, sums);
    } else if (part.halves)
        SUMS_HALVES[rows](x, part.halves, part.pairs, sums);
    else
        SUMS_BYTES[rows](x, part.packed, part.pairs, sums);
}

/* Rows [first, first + rows) by the columns of one panel. Sums of a part that is not the last lie in the result. */
static void block_product(const Product *p, int64_t first, int64_t rows, int64_t panel, Part part) {
    Sums sums __attribute__((aligned(64)));
    int64_t column = panel * COLUMNS, left = p->columns - column;
    float *out = p->out + first * p->columns + column;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t at = 0; at < COLUMNS; at += LANES) store(sums[r] + at, part.from ? take(out + r * p->columns + at, left - at) : all(0.f));
    add_part(p, first, rows, part, sums);
    bool last = part.from + part.pairs == p->pairs;
    for (int64_t at = 0; at < COLUMNS; at += LANES) {
        vec scale = last && p->scale ? load(p->scale + column + at) : all(1.f);
        vec bias = last && p->bias ? take(p->bias + column + at, left - at) : all(0.f);
        for (int64_t r = 0; r < rows; r++) put(out + r * p->columns + at, mul_add(load(sums[r] + at), scale, bias), left - at);
    }
}

INLINE vec activated(int act, vec x) {
    if (act == 0) return x * sigmoid(x); /* SiLU */
    /* GELU by tanh: x / 2 (1 + tanh u) = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3) */
    vec cube = x * x * x;
    vec u = all(1.59576912f) * mul_add(all(0.044715f), cube, x);
    return x * sigmoid(u);
}

/* The same for panels whose first 16 columns are gates and whose others are what they let through: act(gate) * up. */
static void block_gated(const Product *p, int64_t first, int64_t rows, int64_t panel, Part part) {
    Sums sums __attribute__((aligned(64)));
    memset(sums, 0, sizeof sums);
    add_part(p, first, rows, part, sums);
    int64_t column = panel * 16, left = p->columns - column;
    float *out = p->out + first * p->columns + column;
    for (int64_t at = 0; at < 16; at += LANES) {
        const float *scale = p->scale + panel * COLUMNS + at;
        vec gates = p->scale ? load(scale) : all(1.f), ups = p->scale ? load(scale + 16) : all(1.f);
        for (int64_t r = 0; r < rows; r++) {
            vec gate = load(sums[r] + at) * gates, up = load(sums[r] + 16 + at) * ups;
            put(out + r * p->columns + at, activated(p->act, gate) * up, left - at);
        }
    }
}

/* One task: a panel times a chunk of rows. A gated panel is summed as a whole. Returns false if there was no memory. */
bool product_task(Product *p, int64_t task) {
    int64_t depth = p->gated ? p->pairs : DEPTH;
    int64_t panel = task / p->chunks, chunk = task % p->chunks;
    int64_t start = chunk * p->blocks / p->chunks, stop = (chunk + 1) * p->blocks / p->chunks;
    for (int64_t from = 0; from < p->pairs; from += depth) {
        Part part;
        if (!take_part(p, panel, from, p->pairs - from < depth ? p->pairs - from : depth, p->rows >= MANY, &part)) return false;
        for (int64_t block = start; block < stop; block++) {
            int64_t first = first_row(p, block), rows = first_row(p, block + 1) - first;
            if (p->gated)
                block_gated(p, first, rows, panel, part);
            else
                block_product(p, first, rows, panel, part);
        }
    }
    return true;
}

/* A thread does its own share, which lies in one piece, and then what is left of the others': one that has to share its core with the window
 * or the server does less, and nobody waits for it. */
static void run_product(int64_t begin, int64_t end, void *context) {
    Product *p = context;
    for (int64_t each = 0; each < p->parts; each++) {
        Share *share = p->shares + (begin + each) % p->parts;
        for (int64_t task; (task = atomic_fetch_add_explicit(&share->next, 1, memory_order_relaxed)) < share->end;)
            if (!product_task(p, task)) return;
    }
    (void)end;
}

/* All tasks, on as many threads as torch has. */
static void run_shared(Product *p) {
    Share shares[MOST_PARTS];
    uint32_t threads = 1;
    torch.threads(&threads);
    int64_t tasks = product_tasks(p);
    p->parts = threads < tasks ? threads : tasks;
    if (p->parts > MOST_PARTS) p->parts = MOST_PARTS;
    p->shares = shares;
    share_out(shares, p->parts, tasks);
    torch.parallel(0, p->parts, 1, run_product, p);
}

void describe_weight(Product *p, const int64_t *sizes) {
    bool levels = sizes[2] == GROUP_BYTES;
    p->panels = sizes[0];
    p->pairs = sizes[1] * (levels ? GROUP : 1);
    p->pair_bytes = levels ? 0 : p->scale ? 2 * COLUMNS : 4 * COLUMNS;
}

int64_t panel_bytes(const Product *p) { return p->pair_bytes ? p->pairs * p->pair_bytes : p->pairs / GROUP * GROUP_BYTES; }

void lay_out(Product *p) {
    int64_t most = p->pair_bytes != 4 * COLUMNS && p->rows < MANY ? FEW : p->pair_bytes ? HIGH : FEWER;
    p->blocks = (p->rows + most - 1) / most;
    p->chunks = (p->blocks + CHUNK - 1) / CHUNK;
}

int64_t totals_size(const Product *p) { return p->pair_bytes ? 0 : p->rows * p->pairs / GROUP; }

/* The result of x [..., K] as a new tensor [..., columns]. `p` says everything but the sizes. */
static Tensor product(Tensor x, Tensor weight, Product p) {
    int64_t dim = dim_of(x), sizes[MOST_DIMS];
    memcpy(sizes, sizes_of(x), (size_t)dim * sizeof *sizes);
    p.x = data_of(x);
    p.inputs = p.stride = sizes[dim - 1];
    p.rows = 1;
    for (int64_t place = 0; place < dim - 1; place++) p.rows *= sizes[place];
    sizes[dim - 1] = p.columns;
    Tensor made = new_floats(dim, sizes);
    if (p.rows == 0 || !made) return made;
    p.out = data_of(made);
    p.weight = data_of(weight);
    describe_weight(&p, sizes_of(weight));
    lay_out(&p);
    p.packed = room(PACKED, (size_t)packed_size(&p) * sizeof *p.packed);
    int64_t totals = totals_size(&p);
    if (totals) p.totals = room(TOTALS, (size_t)totals * sizeof *p.totals);
    if (!p.packed || (totals && !p.totals)) {
        torch.drop(made);
        return NULL;
    }
    if (p.rows * p.inputs < ALONE)
        pack_rows(0, p.blocks, &p);
    else
        torch.parallel(0, p.blocks, 1, pack_rows, &p);
    run_shared(&p);
    if (atomic_load(&p.failed)) {
        torch.drop(made);
        return NULL;
    }
    return made;
}

/* omnibus::linear(Tensor x, Tensor weight, Tensor scale, Tensor bias, int columns) -> Tensor
 * weight bfloat16 [panels, K / 2, 32, 2], uint8 [panels, K / 2, 64] with a scale, or uint8 [panels, K / 32, 640]; an empty scale or bias is
 * none. */
EXPORT void omnibus_linear(uint64_t *stack, uint64_t inputs, uint64_t outputs) {
    Tensor x = (Tensor)stack[0], weight = (Tensor)stack[1], scale = (Tensor)stack[2], bias = (Tensor)stack[3];
    Product p = {.scale = floats_or_none(scale), .bias = floats_or_none(bias), .columns = (int64_t)stack[4]};
    Tensor made = product(x, weight, p);
    torch.drop(x), torch.drop(weight), torch.drop(scale), torch.drop(bias);
    result(stack, made);
    (void)inputs, (void)outputs;
}

/* omnibus::gated(Tensor x, Tensor weight, Tensor scale, int act, int columns) -> Tensor */
EXPORT void omnibus_gated(uint64_t *stack, uint64_t inputs, uint64_t outputs) {
    Tensor x = (Tensor)stack[0], weight = (Tensor)stack[1], scale = (Tensor)stack[2];
    Product p = {.scale = floats_or_none(scale), .gated = true, .act = (int)stack[3], .columns = (int64_t)stack[4]};
    Tensor made = product(x, weight, p);
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

void norm_row(const float *x, const float *weight, float *out, int64_t size, float eps) {
    vec sum = all(0.f);
    for (int64_t k = 0; k < size; k += LANES) {
        vec v = take(x + k, size - k);
        sum = mul_add(v, v, sum);
    }
    vec scale = all(1.f / sqrtf(sum_of(sum) / (float)size + eps));
    for (int64_t k = 0; k < size; k += LANES) put(out + k, take(x + k, size - k) * scale * take(weight + k, size - k), size - k);
}

static void run_norm(int64_t begin, int64_t end, void *context) {
    const Norm *n = context;
    for (int64_t row = begin; row < end; row++) norm_row(n->x + row * n->size, n->weight, n->out + row * n->size, n->size, n->eps);
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
