/* Attention over the block pool, with keys and values in bfloat16, or in eight bits.
 *
 * A block's keys are kept as [dim / 2][positions][2] and its values as [positions / 2][dim][2]: pairs as products take them, so
 * that nothing is rearranged when they are read. In eight bits a head's block ends with the positions' places in the table of steps (see
 * engine/model/eight.py); whole numbers up to 127 are exact in bfloat16, so the steps come in afterwards, once a score and once a weight.
 * Softmax runs online over tiles of 128 positions (FlashAttention-2, Dao, 2023) whose borders
 * are multiples of 128 for every request: a position's result is the same, bit for bit, computed in a chunk or alone, in any company.
 */
#include "stages.h"

enum { TILE = 128, UNIT = 32, UNITS = TILE / UNIT };
enum { FULL = 16 }; /* numbers of up to ROWS rows, in whole vectors */

/* ------------------------------------------------------------------------------------------------------------- rotate */

void rotate_rows(int64_t begin, int64_t end, void *context) {
    const Rotate *a = context;
    int64_t half = a->size / 2;
    for (int64_t t = begin; t < end; t++) {
        const float *cos = a->cos + t * a->size, *sin = a->sin + t * a->size;
        for (int64_t h = 0; h < a->heads; h++) {
            const float *x = a->x + h * a->head + t * a->token;
            float *out = a->out + (t * a->heads + h) * a->size;
            for (int64_t d = 0; d < half; d++) out[d] = x[d] * cos[d] - x[half + d] * sin[d];
            for (int64_t d = 0; d < half; d++) out[half + d] = x[half + d] * cos[half + d] + x[d] * sin[half + d];
        }
    }
}

/* omnibus::rotate(Tensor x, Tensor cos, Tensor sin) -> Tensor: rotary embedding (Su et al., 2021) of x [1, heads, T, size], of any strides
 * but the last, by cos and sin [1, 1, T, size]. The result lies as [T, heads, size]. */
EXPORT void omnibus_rotate(uint64_t *stack, uint64_t inputs, uint64_t outputs) {
    Tensor x = (Tensor)stack[0], cos = (Tensor)stack[1], sin = (Tensor)stack[2], made = NULL;
    const int64_t *sizes = sizes_of(x), *strides = strides_of(x);
    int64_t heads = sizes[1], tokens = sizes[2], size = sizes[3], dense[4] = {tokens * heads * size, size, heads * size, 1};
    torch.empty(4, sizes, dense, FLOAT32, CPU, 0, &made);
    if (!made) {
        torch.drop(x), torch.drop(cos), torch.drop(sin);
        result(stack, NULL);
    }
    Rotate a = {data_of(x), data_of(cos), data_of(sin), data_of(made), strides[1], strides[2], heads, size};
    torch.parallel(0, tokens, tokens * heads * size < ALONE ? tokens + 1 : 8, rotate_rows, &a);
    torch.drop(x), torch.drop(cos), torch.drop(sin);
    result(stack, made);
    (void)inputs, (void)outputs;
}

/* -------------------------------------------------------------------------------------------------------------- store */

enum { STEPS = 256, MIDDLE = 128 };

/* Whole steps of a row [size], each at out[i / 2 * far + i % 2 * near]; returns the place of the step's length, as it is kept. */
static int8_t in_steps(const float *row, int64_t size, const float *steps, int8_t *out, int64_t far, int64_t near) {
    float most = 0.f;
    for (int64_t i = 0; i < size; i++) most = fmaxf(most, fabsf(row[i]));
    most /= 127.f;
    int place = 0;
    for (int half = STEPS / 2; half; half /= 2)
        if (steps[place + half - 1] < most) place += half; /* the first that is long enough, or the last */
    for (int64_t i = 0; i < size; i++) {
        float whole = nearbyintf(row[i] / steps[place]);
        out[i / 2 * far + i % 2 * near] = (int8_t)fmaxf(-127.f, fminf(127.f, whole));
    }
    return (int8_t)(place - MIDDLE);
}

static void run_store8(int64_t begin, int64_t end, void *context) {
    const Store *s = context;
    for (int64_t t = begin; t < end; t++)
        for (int64_t h = 0; h < s->heads; h++) {
            int64_t place = s->block[t] * s->heads + h, at = s->offset[t];
            const float *key = s->key + h * s->key_head + t * s->key_token, *value = s->value + h * s->value_head + t * s->value_token;
            int8_t *keys = s->keys8 + place * s->size * (s->dim + 1), *values = s->values8 + place * s->size * (s->value_dim + 1);
            keys[s->size * s->dim + at] = in_steps(key, s->dim, s->steps, keys + 2 * at, 2 * s->size, 1);
            values[s->size * s->value_dim + at] =
                in_steps(value, s->value_dim, s->steps, values + at / 2 * s->value_dim * 2 + at % 2, 4, 2);
        }
}

static void run_store(int64_t begin, int64_t end, void *context) {
    const Store *s = context;
    for (int64_t t = begin; t < end; t++)
        for (int64_t h = 0; h < s->heads; h++) {
            int64_t place = s->block[t] * s->heads + h, at = s->offset[t];
            const float *key = s->key + h * s->key_head + t * s->key_token, *value = s->value + h * s->value_head + t * s->value_token;
            uint32_t *keys = (uint32_t *)(s->keys + place * s->size * s->dim);
            bf16 *values = s->values + place * s->size * s->value_dim + (at / 2) * s->value_dim * 2 + at % 2;
            for (int64_t d = 0; d < s->dim; d += 2) keys[d / 2 * s->size + at] = halves_of(key[d], key[d + 1]);
            for (int64_t d = 0; d < s->value_dim; d++) values[2 * d] = half_of(value[d]);
        }
}

void store_rows(int64_t begin, int64_t end, void *store) { (((Store *)store)->steps ? run_store8 : run_store)(begin, end, store); }

Store store_into(Pool keys, Pool values, const float *steps) {
    int64_t eight = steps ? 1 : 0;
    return (Store){
        .keys = keys.data, .values = values.data, .keys8 = keys.data, .values8 = values.data, .steps = steps,
        .heads = keys.sizes[1], .size = keys.sizes[2], .dim = keys.sizes[3] - eight, .value_dim = values.sizes[3] - eight,
    };
}

/* omnibus::store_(Tensor(a!) keys, Tensor(b!) values, Tensor key, Tensor value, Tensor block, Tensor offset, Tensor steps) -> ()
 * keys, values [blocks, heads, positions, dim]; key, value [1, heads, T, dim] of any strides but the last; block, offset [T] int64. With
 * steps, the table of 256, keys and values are int8 [blocks, heads, positions, dim + 1]; without (empty) bfloat16. */
EXPORT void omnibus_store(uint64_t *stack, uint64_t inputs, uint64_t outputs) {
    Tensor *in = (Tensor *)stack;
    const int64_t *key = strides_of(in[2]), *value = strides_of(in[3]);
    int64_t tokens = sizes_of(in[2])[2];
    Store s = store_into(pool_of(in[0]), pool_of(in[1]), floats_or_none(in[6]));
    s.key = data_of(in[2]), s.key_head = key[1], s.key_token = key[2];
    s.value = data_of(in[3]), s.value_head = value[1], s.value_token = value[2];
    s.block = data_of(in[4]), s.offset = data_of(in[5]);
    if (tokens <= 32)
        store_rows(0, tokens, &s);
    else
        torch.parallel(0, tokens, 16, store_rows, &s);
    for (int place = 0; place < 7; place++) torch.drop(in[place]);
    (void)inputs, (void)outputs;
}

/* ------------------------------------------------------------------------------------------------------------- attend */

struct Work {
    Pair query[MOST_DIM / 2 * ROWS];
    float scores[ROWS][TILE];
    Pair weights[ROWS][TILE / 2];
    float out[ROWS][MOST_DIM];
    float top[FULL], fade[FULL];
    vec total[ROWS];
    int64_t position[ROWS];
    /* What was kept in eight bits, and the steps of its positions. */
    bf16 keys[MOST_DIM * UNIT] __attribute__((aligned(64))), values[UNITS][MOST_DIM * UNIT] __attribute__((aligned(64)));
    float key_steps[TILE] __attribute__((aligned(64))), value_steps[TILE] __attribute__((aligned(64)));
};

/* `count` whole numbers (a multiple of 32) as bfloat16. */
INLINE void widen(bf16 *out, const int8_t *in, int64_t count) {
    for (int64_t i = 0; i < count; i += LANES) store_rounded(out + i, load_bytes(in + i));
}

/* The steps of 32 positions, by their places in the table. */
INLINE void look_up_steps(float *out, const float *steps, const int8_t *places) {
    for (int i = 0; i < UNIT; i += LANES) store(out + i, look_up(steps, places + i, MIDDLE));
}

/* Positions [within, within + 32) of a head's block become the unit's keys and values. */
static void widen_unit(const Attend *a, Work *w, int unit, int64_t place, int64_t within) {
    const int8_t *keys = a->keys8 + place * a->size * (a->dim + 1), *values = a->values8 + place * a->size * (a->value_dim + 1);
    for (int64_t pair = 0; pair < a->dim / 2; pair++) widen(w->keys + pair * 2 * UNIT, keys + (pair * a->size + within) * 2, 2 * UNIT);
    widen(w->values[unit], values + within * a->value_dim, UNIT * a->value_dim);
    look_up_steps(w->key_steps + unit * UNIT, a->steps, keys + a->size * a->dim + within);
    look_up_steps(w->value_steps + unit * UNIT, a->steps, values + a->size * a->value_dim + within);
}

/* Scores of one unit of 32 positions, for rows from `base` on. */
INLINE void score_piece(const int rows, const int tiles, const int of, int first, int tile, Work *w, int base, const bf16 *keys,
                        int64_t size, int64_t pairs, int64_t column, const char *next) {
    Tiles sums;
    EACH_ROW EACH_TILE EACH_SIDE sums[r][t][side] = all(0.f);
    multiply(rows, tiles, of, tile, w->query + base * pairs + first, keys, 2 * size, pairs, next, sums);
    store_tiles(rows, tiles, tile, sums, &w->scores[base + first][column], TILE);
}

INLINE void score(const int rows, Work *w, int base, const bf16 *keys, int64_t size, int64_t pairs, int64_t column, const char *next) {
    IN_PIECES(rows, score_piece, w, base, keys, size, pairs, column, next);
}

/* Output columns [column, column + 32): what is there fades, the units' values are added. For rows from `base` on. */
INLINE void weigh_piece(const int rows, const int tiles, const int of, int first, int tile, Work *w, int base, const bf16 *const *values,
                        int units, int64_t value_dim, int64_t column, const char *const *next, int64_t step) {
    Tiles sums;
    base += first;
    load_tiles(rows, tiles, tile, sums, &w->out[base][column], MOST_DIM);
    EACH_ROW EACH_TILE EACH_SIDE sums[r][t][side] *= all(w->fade[base + r]);
    bool whole = column + 32 <= value_dim;
    for (int unit = 0; unit < units; unit++) {
        const bf16 *v = values[unit] + 2 * column;
        const char *soon = next && next[unit] ? next[unit] + column / 32 * (UNIT / 2) * step : NULL;
        for (int pair = 0; pair < UNIT / 2; pair++, v += 2 * value_dim) {
            if (soon) fetch(soon + pair * step);
            EACH_TILE {
                Weights left = load_weights(v + 2 * column_of(tile + t, 0));
                Weights right = whole ? load_weights(v + 2 * column_of(tile + t, 1)) : no_weights();
                add_products(rows, t, &w->weights[base][UNIT / 2 * unit + pair], TILE / 2, left, right, sums);
            }
        }
    }
    store_tiles(rows, tiles, tile, sums, &w->out[base][column], MOST_DIM);
    (void)of;
}

INLINE void weigh(const int rows, Work *w, int base, const bf16 *const *values, int units, int64_t value_dim, int64_t column,
                  const char *const *next, int64_t step) {
    IN_PIECES(rows, weigh_piece, w, base, values, units, value_dim, column, next, step);
}

static const float LOG2E = 1.44269504f; /* e^x = 2^(x log2(e)) */

/* The highest score of a row among `span` positions from `first` on, or its top if none is higher; what it doesn't see becomes -inf. */
INLINE float highest(const Attend *a, Work *w, int r, int64_t first, int span) {
    const vec never = all(-INFINITY);
    int64_t last = w->position[r] - first, lowest = a->window ? last - a->window + 1 : 0;
    bool plain = last >= TILE && lowest <= 0 && !a->steps && a->softcap <= 0.f; /* as most tiles of a long history */
    vec best = never;
    for (int at = 0; plain && at < TILE; at += LANES) best = larger(best, load(&w->scores[r][at]));
    for (int at = 0; !plain && at < span; at += LANES) {
        vec s = load(&w->scores[r][at]);
        if (a->steps) s *= load(&w->key_steps[at]);
        if (a->softcap > 0.f) /* cap tanh(s / cap), tanh x = 2 sigmoid(2 x) - 1 */
            s = mul_sub(sigmoid(s * all(2.f / a->softcap)), all(2.f), all(1.f)) * all(a->softcap);
        if (at + LANES - 1 > last || at < lowest) s = select(lanes_before(last + 1 - at) & ~lanes_before(lowest - at), s, never);
        store(&w->scores[r][at], s);
        best = larger(best, s);
    }
    float top = w->top[r];
    return at_most(best, all(top)) == lanes_before(LANES) ? top : largest_of(best);
}

/* A row's scores become weights, beside a top of `most` in powers of two; its total follows. */
INLINE void weights_of(Work *w, int r, float most, int span, const float *steps) {
    vec sum = all(0.f);
#pragma GCC unroll 8
    for (int at = 0; at < span; at += LANES) {
        vec p = power_of_two(mul_sub(load(&w->scores[r][at]), all(LOG2E), all(most)));
        sum += p;
        if (steps) p *= load(steps + at);
        store_pairs(&w->weights[r][at / 2], p);
    }
    w->total[r] = mul_add(w->total[r], all(w->fade[r]), sum);
}

/* Scores of `span` positions from `first` on become weights, for `rows` rows; their tops, totals and fades follow. */
static void soften(const Attend *a, Work *w, int rows, int64_t first, int span) {
    float tops[FULL];
    memcpy(tops, w->top, sizeof tops);
    for (int r = 0; r < rows; r++) tops[r] = highest(a, w, r, first, span);
    for (int at = 0; at < FULL; at += LANES) {
        vec before = load(w->top + at), top = load(tops + at);
        vec base = select(equal(top, all(-INFINITY)), all(0.f), top);
        store(w->top + at, top);
        store(tops + at, base * all(LOG2E));
        store(w->fade + at, power_of_two((before - base) * all(LOG2E)));
    }
    for (int r = 0; r < rows; r++) {
        if (span == TILE && !a->steps)
            weights_of(w, r, tops[r], TILE, NULL);
        else
            weights_of(w, r, tops[r], span, a->steps ? w->value_steps : NULL);
    }
}

/* Where a head's unit of keys or values lies, from position `at` on. A block's keys are [dim / 2][positions][2], its values follow one another. */
INLINE const char *keys_at(const Attend *a, const int32_t *table, int64_t at, int64_t head) {
    int64_t place = table[at / a->size] * a->key_heads + head, within = at % a->size;
    return a->steps ? (const char *)(a->keys8 + place * a->size * (a->dim + 1) + 2 * within)
                    : (const char *)(a->keys + place * a->size * a->dim + 2 * within);
}

INLINE const char *values_at(const Attend *a, const int32_t *table, int64_t at, int64_t head) {
    int64_t place = table[at / a->size] * a->key_heads + head, within = at % a->size;
    return a->steps ? (const char *)(a->values8 + place * a->size * (a->value_dim + 1) + within * a->value_dim)
                    : (const char *)(a->values + (place * a->size + within) * a->value_dim);
}

/* One tile of queries, and the key heads [key_head, key_head + together): their rows, `rows` a key head, lie one after another. */
static void attend_tile(const Attend *a, Work *w, const int32_t *tile, int64_t key_head, int64_t together, int64_t part) {
    int64_t token = tile[1], tokens = tile[2], position = tile[3];
    const int32_t *table = a->table + tile[0] * a->width;
    int64_t from = part * a->group / a->parts, heads = (part + 1) * a->group / a->parts - from;
    int64_t head = key_head * a->group + from;
    int rows = (int)(tokens * heads), all = rows * (int)together;
    for (int r = 0; r < FULL; r++) w->top[r] = -INFINITY;
    for (int r = 0; r < all; r++) {
        int64_t mine = head + r / rows * a->group + r % heads, place = r % rows;
        const float *q = a->query + mine * a->query_head + (token + place / heads) * a->query_token;
        Pair *query = w->query + r / rows * rows * (a->dim / 2) + place;
        for (int64_t d = 0; d < a->dim; d += 2) query[d / 2 * rows] = pair_of(q[d] * a->scale, q[d + 1] * a->scale);
        w->total[r] = (vec){0.f};
        w->position[r] = position + place / heads;
        memset(w->out[r], 0, sizeof w->out[r][0] * (size_t)((a->value_dim + 31) / 32 * 32));
    }
    int64_t end = position + tokens; /* of what anyone here sees */
    int64_t start = a->window && position - a->window + 1 > 0 ? position - a->window + 1 : 0;
    /* A single position waits for the memory: the blocks of a history lie anywhere, and no processor guesses where the next one does. So while
     * keys are read their values are fetched, and while values are read the keys of the next tile. */
    const bool fetches = tokens == 1;
    const int64_t step = a->steps ? 2 * a->size : 4 * a->size; /* from pair to pair of a block's keys */
    for (int64_t first = start / TILE * TILE; first < end; first += TILE) {
        const bf16 *values[ROWS][UNITS];
        const char *next[ROWS][UNITS];
        int units = 0;
        for (int64_t at = first; at < first + TILE && at < end; at += UNIT, units++)
            for (int64_t each = 0; each < together; each++) {
                const bf16 *keys = w->keys;
                int64_t size = UNIT;
                values[each][units] = w->values[units];
                next[each][units] = fetches && at + TILE < end ? keys_at(a, table, at + TILE, key_head + each) : NULL;
                if (a->steps)
                    widen_unit(a, w, units, table[at / a->size] * a->key_heads + key_head + each, at % a->size);
                else {
                    keys = (const bf16 *)keys_at(a, table, at, key_head + each);
                    size = a->size;
                    values[each][units] = (const bf16 *)values_at(a, table, at, key_head + each);
                }
                if (fetches) {
                    FOR_ROWS(rows, score, w, (int)each * rows, keys, size, a->dim / 2, units * UNIT, values_at(a, table, at, key_head + each))
                } else
                    FOR_ROWS(rows, score, w, (int)each * rows, keys, size, a->dim / 2, units * UNIT, NULL)
            }
        soften(a, w, all, first, units * UNIT);
        for (int64_t each = 0; each < together; each++)
            for (int64_t column = 0; column < a->value_dim; column += 32)
                if (fetches) {
                    FOR_ROWS(rows, weigh, w, (int)each * rows, values[each], units, a->value_dim, column, next[each], step)
                } else
                    FOR_ROWS(rows, weigh, w, (int)each * rows, values[each], units, a->value_dim, column, NULL, 0)
    }
    for (int r = 0; r < all; r++) {
        int64_t mine = head + r / rows * a->group + r % heads;
        float total = sum_of(w->total[r]);
        if (a->sinks) total += exp_of_one(a->sinks[mine] - w->top[r]);
        float *out = a->out + ((token + r % rows / heads) * a->heads + mine) * a->value_dim;
        for (int64_t d = 0; d < a->value_dim; d++) out[d] = w->out[r][d] / total;
    }
}

/* A task is a tile and a key head, or a part of its query heads. Of a single position, a thread takes several key heads together, as many as
 * its share is and as it has rows for, so that blocks are read in longer pieces: in two thirds of the time, once they come from memory. */
static int64_t together_of(const Attend *a, int64_t tiles, int64_t threads) {
    int64_t sharers = (threads + tiles - 1) / tiles, share = (a->key_heads + sharers - 1) / sharers, most = ROWS / a->group;
    return share < most ? share : most;
}

size_t work_bytes(void) { return sizeof(Work); }

void attend_task(const Attend *a, Work *w, int64_t task) {
    int64_t split = a->key_heads * a->parts, key_head = task % split / a->parts;
    const int32_t *tile = a->tiles + task / split * 4;
    int64_t together = tile[2] == 1 ? a->together : 1, left = a->key_heads - key_head;
    if (key_head % together == 0) attend_tile(a, w, tile, key_head, together < left ? together : left, task % a->parts);
}

static void run_attend(int64_t begin, int64_t end, void *context) {
    Attend *a = context;
    Work work __attribute__((aligned(64)));
    (void)begin, (void)end;
    for (int64_t task; (task = atomic_fetch_add_explicit(&a->next, 1, memory_order_relaxed)) < a->tasks;) attend_task(a, &work, task);
}

Attend attend_to(Pool keys, Pool values, Tensor tiles, Tensor table, const float *steps, int64_t heads, int64_t threads) {
    int64_t eight = steps ? 1 : 0;
    Attend a = {
        .keys = keys.data, .values = values.data, .keys8 = keys.data, .values8 = values.data, .steps = steps,
        .tiles = data_of(tiles), .table = data_of(table), .width = sizes_of(table)[1], .heads = heads, .key_heads = keys.sizes[1],
        .group = heads / keys.sizes[1], .size = keys.sizes[2], .dim = keys.sizes[3] - eight, .value_dim = values.sizes[3] - eight,
        .together = 1,
    };
    a.parts = (a.group + ROWS - 1) / ROWS;
    a.tasks = sizes_of(tiles)[0] * a.key_heads * a.parts;
    if (!a.steps && a.group <= ROWS && a.tasks) a.together = together_of(&a, sizes_of(tiles)[0], threads);
    return a;
}

/* omnibus::attend(Tensor query, Tensor keys, Tensor values, Tensor tiles, Tensor table, float scale, float softcap, int window,
 *                 Tensor sinks, Tensor steps) -> Tensor
 * query [1, heads, T, dim] of any strides but the last; tiles [n, 4] and table [rows, width] int32; softcap 0, window 0 and empty sinks are
 * none; steps as in `store_`. Gives [1, T, heads, value dim]. */
EXPORT void omnibus_attend(uint64_t *stack, uint64_t inputs, uint64_t outputs) {
    Tensor query = (Tensor)stack[0], keys = (Tensor)stack[1], values = (Tensor)stack[2], tiles = (Tensor)stack[3],
           table = (Tensor)stack[4], sinks = (Tensor)stack[8], steps = (Tensor)stack[9];
    const int64_t *asked = sizes_of(query), *strides = strides_of(query);
    uint32_t threads = 1;
    torch.threads(&threads);
    Attend a = attend_to(pool_of(keys), pool_of(values), tiles, table, floats_or_none(steps), asked[1], threads);
    a.query = data_of(query), a.query_head = strides[1], a.query_token = strides[2];
    a.scale = (float)as_double(stack[5]), a.softcap = (float)as_double(stack[6]), a.window = (int64_t)stack[7];
    a.sinks = floats_or_none(sinks);
    int64_t sizes[4] = {1, asked[2], a.heads, a.value_dim};
    Tensor made = new_floats(4, sizes);
    if (made) {
        a.out = data_of(made);
        torch.parallel(0, a.tasks < threads ? a.tasks : threads, 1, run_attend, &a);
    }
    torch.drop(query), torch.drop(keys), torch.drop(values), torch.drop(tiles), torch.drop(table), torch.drop(sinks), torch.drop(steps);
    result(stack, made);
    (void)inputs, (void)outputs;
}
