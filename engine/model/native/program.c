/* A program: what lies between a step's first and last operation of ours, as one operation.
 *
 * The threads meet once a program, not once an operation. They go through its stages together; a stage is a product, an attention, or a run
 * of what is done a row at a time. Whoever is there takes tasks, and a stage is done when its tasks are, not when all threads have come: one
 * that has to share its core with the window or the server holds nobody up. A thread that waits for a stage fetches what it will read of the
 * next weights, so the memory is read on while a few rows are normed. What a program computes is the same, bit for bit, as its operations
 * one by one.
 *
 * Programs are made by program.py, which knows their form from here: an array of 64-bit numbers.
 */
#include "stages.h"
#include "sums.h"
#include <sched.h>

enum { ADD, NORM, ROTATE, STORE, FINITE, PACK, LINEAR, ATTEND };
/* [1, T, width]; [1, T, heads, size]; [1, heads, T, size] that lies as [1, T, heads, size]; bool [T] */
enum { ROWS_FORM, HEADS_FORM, TURNED_FORM, BOOL_FORM };
enum { FETCHED = 4 * 64 };                   /* bytes asked for at a time */
enum { AHEAD = 384 << 10 };                  /* bytes of its next weights that a thread fetches at most: they have to stay in its cache */
enum { PATIENCE = 2000 };                    /* looks, after which a thread that waits offers its core to others */
enum { MOST_TOKENS_AHEAD = 64 };             /* with more rows a step waits for its products, not for the memory */

/* Numbers of a row: in the arena, of the tensor that comes in at `external`, or of the one that goes out there. */
typedef struct {
    int64_t external; /* -1: in the arena; inputs first, then outputs */
    int64_t start;    /* in the arena, in numbers a row: what is kept there for all rows lies in one piece */
    int64_t stride, offset;
} Place;

typedef struct {
    int64_t kind, stage;
    Place place[4];
    int64_t number[10];
    const void *constant[4]; /* NULL: none */
} Order;

enum { MOST_EXTERNALS = 128 };

typedef struct {
    int64_t form, heads, size, spare;
} Shape;

typedef struct {
    int64_t orders, stages, inputs, outputs;
    int64_t floats;              /* the arena's, a row */
    int64_t first;               /* the input that tells how many rows there are */
    const int64_t *widths;       /* [inputs]: of a row of float32; 0 for others */
    const Shape *shapes;         /* [outputs] */
    const Order *order;
} Program;

typedef struct {
    Share done; /* `next` counts them */
    Share *shares;
    int64_t tasks, parts, from, to; /* orders [from, to) */
    const Product *fetched;         /* the next product, whose weights are worth fetching */
    union {
        Product *product;
        Attend *attend;
    };
} Stage;

typedef struct {
    const Program *program;
    const Tensor *in;
    const int64_t *pools; /* [n][5]: where a tensor of the block pool lies, and its sizes */
    float *base[MOST_EXTERNALS];
    float *arena;
    int64_t rows, threads;
    Stage *stages;
    Product *products; /* by order */
    Attend *attends;   /* by order */
    atomic_bool failed;
} Run;

INLINE float *row_of(const Run *r, const Place *p, int64_t row) {
    float *base = p->external >= 0 ? r->base[p->external] : r->arena + p->start * r->rows;
    return base + p->offset + row * p->stride;
}

static void add_rows(float *out, const float *a, const float *b, int64_t width) {
    for (int64_t at = 0; at < width; at += LANES) put(out + at, take(a + at, width - at) + take(b + at, width - at), width - at);
}

INLINE Pool pool_at(const Run *r, int64_t number) { return (Pool){(void *)r->pools[5 * number], r->pools + 5 * number + 1}; }

/* ------------------------------------------------------------------------------------------------------------- finite */

/* Whether all numbers of a token's heads, `head` apart, are finite: x 0 is 0 then, and nothing else. */
static bool all_finite(const float *row, int64_t heads, int64_t head, int64_t size) {
    vec sum = all(0.f);
    for (int64_t h = 0; h < heads; h++)
        for (int64_t d = 0; d < size; d += LANES) sum = mul_add(take(row + h * head + d, size - d), all(0.f), sum);
    return sum_of(sum) == 0.f;
}

/* omnibus::finite(Tensor key, Tensor value) -> Tensor: of both [1, heads, T, dim], of any strides but the last; bool [T]. */
EXPORT void omnibus_finite(uint64_t *stack, uint64_t inputs, uint64_t outputs) {
    Tensor in[2] = {(Tensor)stack[0], (Tensor)stack[1]}, made = NULL;
    int64_t tokens = sizes_of(in[0])[2], step = 1;
    torch.empty(1, &tokens, &step, BOOL, CPU, 0, &made);
    for (int64_t t = 0; made && t < tokens; t++) {
        bool good = true;
        for (int each = 0; each < 2; each++) {
            const int64_t *sizes = sizes_of(in[each]), *strides = strides_of(in[each]);
            good = good && all_finite((float *)data_of(in[each]) + t * strides[2], sizes[1], strides[1], sizes[3]);
        }
        ((bool *)data_of(made))[t] = good;
    }
    torch.drop(in[0]), torch.drop(in[1]);
    result(stack, made);
    (void)inputs, (void)outputs;
}

/* ------------------------------------------------------------------------------------------------------------ program */

/* Order `o` for rows [from, to). */
static void run_rows(Run *r, const Order *o, int64_t from, int64_t to, int64_t task) {
    const Place *place = o->place;
    const int64_t *n = o->number;
    switch (o->kind) {
        case ADD:
            for (int64_t row = from; row < to; row++) add_rows(row_of(r, place, row), row_of(r, place + 1, row), row_of(r, place + 2, row), n[0]);
            break;
        case NORM:
            for (int64_t row = from; row < to; row++)
                for (int64_t at = 0; at < n[0] * n[1]; at += n[1])
                    norm_row(row_of(r, place + 1, row) + at, o->constant[0], row_of(r, place, row) + at, n[1], (float)as_double((uint64_t)n[2]));
            break;
        case ROTATE: {
            Rotate a = {
                .x = row_of(r, place + 1, 0), .cos = row_of(r, place + 2, 0), .sin = row_of(r, place + 3, 0), .out = row_of(r, place, 0),
                .head = n[1], .token = place[1].stride, .heads = n[0], .size = n[1],
            };
            rotate_rows(from, to, &a);
            break;
        }
        case STORE: {
            Store s = store_into(pool_at(r, n[0]), pool_at(r, n[1]), o->constant[0]);
            s.key = row_of(r, place, 0), s.key_head = s.dim, s.key_token = place[0].stride;
            s.value = row_of(r, place + 1, 0), s.value_head = s.value_dim, s.value_token = place[1].stride;
            s.block = (const int64_t *)r->base[n[2]], s.offset = (const int64_t *)r->base[n[3]];
            store_rows(from, to, &s);
            break;
        }
        case FINITE:
            for (int64_t row = from; row < to; row++)
                ((bool *)r->base[place[0].external])[row] = all_finite(row_of(r, place + 1, row), n[0], n[1], n[1])
                                                            && all_finite(row_of(r, place + 2, row), n[2], n[3], n[3]);
            break;
        default: pack_rows(task, task + 1, r->products + n[0]);
    }
}

static void run_task(Run *r, const Stage *stage, int64_t task, Work *work) {
    const Order *o = r->program->order + stage->from;
    if (o->kind == LINEAR) {
        if (!product_task(stage->product, task)) atomic_store(&r->failed, true);
        return;
    }
    if (o->kind == ATTEND) {
        attend_task(stage->attend, work, task);
        return;
    }
    int64_t from = task * r->rows / stage->tasks, to = (task + 1) * r->rows / stage->tasks;
    for (int64_t each = stage->from; each < stage->to; each++) run_rows(r, r->program->order + each, from, to, task);
}

/* What a thread has fetched. */
typedef struct {
    const Product *of;
    const char *at, *end;
} Ahead;

static void fetch_on(const Run *r, const Stage *stage, int64_t me, Ahead *ahead) {
    const Product *next = stage->fetched;
    if (ahead->of != next) {
        ahead->of = next;
        ahead->at = ahead->end = NULL;
        if (next && r->rows <= MOST_TOKENS_AHEAD && me < r->threads) {
            int64_t bytes = panel_bytes(next), from = me * next->panels / r->threads, to = (me + 1) * next->panels / r->threads;
            ahead->at = (const char *)next->weight + from * bytes;
            ahead->end = ahead->at + ((to - from) * bytes < AHEAD ? (to - from) * bytes : AHEAD);
        }
    }
    if (ahead->at < ahead->end) {
        for (int at = 0; at < FETCHED; at += 64) _mm_prefetch(ahead->at + at, _MM_HINT_T1);
        ahead->at += FETCHED;
    } else
        _mm_pause();
}

/* One thread: all stages. */
static void run_stages(int64_t me, int64_t end, void *context) {
    Run *r = context;
    char space[work_bytes() + 64];
    Work *work = (Work *)(((uintptr_t)space + 63) & ~(uintptr_t)63);
    Ahead ahead = {NULL, NULL, NULL};
    for (Stage *stage = r->stages; stage < r->stages + r->program->stages; stage++) {
        int64_t mine = 0;
        for (int64_t each = 0; each < stage->parts; each++) {
            Share *share = stage->shares + (me + each) % stage->parts;
            while (atomic_load_explicit(&share->next, memory_order_relaxed) < share->end) {
                int64_t task = atomic_fetch_add_explicit(&share->next, 1, memory_order_relaxed);
                if (task >= share->end) break;
                run_task(r, stage, task, work);
                mine++;
            }
        }
        if (mine) atomic_fetch_add_explicit(&stage->done.next, mine, memory_order_acq_rel);
        for (int looks = 0; atomic_load_explicit(&stage->done.next, memory_order_acquire) < stage->tasks; looks++) {
            if (looks < PATIENCE)
                fetch_on(r, stage, me, &ahead);
            else
                sched_yield();
        }
    }
    (void)end;
}

static void make_product(Run *r, const Order *o, Product *p) {
    const int64_t *n = o->number;
    *p = (Product){
        .weight = o->constant[0], .scale = o->constant[1], .bias = o->constant[2], .rows = r->rows, .inputs = n[0], .columns = n[1],
        .gated = n[2] >= 0, .act = (int)n[2],
    };
    describe_weight(p, n + 3);
    lay_out(p);
    p->x = row_of(r, o->place, 0), p->stride = o->place[0].stride;
    p->packed = (Pair *)row_of(r, o->place + 1, 0);
    if (totals_size(p)) p->totals = row_of(r, o->place + 2, 0);
    p->out = row_of(r, o->place + 3, 0);
}

static void make_attend(Run *r, const Order *o, Attend *a) {
    const int64_t *n = o->number;
    *a = attend_to(pool_at(r, n[0]), pool_at(r, n[1]), r->in[n[2]], r->in[n[3]], o->constant[1], n[7], r->threads);
    a->query = row_of(r, o->place, 0), a->query_head = a->dim, a->query_token = o->place[0].stride;
    a->out = row_of(r, o->place + 1, 0);
    a->scale = (float)as_double((uint64_t)n[4]), a->softcap = (float)as_double((uint64_t)n[5]), a->window = n[6];
    a->sinks = o->constant[0];
}

/* Orders become stages. */
static void make_stages(Run *r, Share *shares) {
    const Program *p = r->program;
    const Product *next = NULL;
    int64_t at = p->orders;
    for (int64_t each = 0; each < p->orders; each++) {
        if (p->order[each].kind == LINEAR) make_product(r, p->order + each, r->products + each);
        if (p->order[each].kind == ATTEND) make_attend(r, p->order + each, r->attends + each);
    }
    for (int64_t number = p->stages - 1; number >= 0; number--) {
        Stage *stage = r->stages + number;
        stage->to = at;
        while (at > 0 && p->order[at - 1].stage == number) at--;
        stage->from = at;
        stage->shares = shares + number * r->threads;
        stage->fetched = next;
        stage->parts = 1;
        const Order *last = p->order + stage->to - 1;
        if (last->kind == LINEAR) {
            next = stage->product = r->products + at;
            stage->tasks = product_tasks(next);
            stage->parts = r->threads < stage->tasks ? r->threads : stage->tasks;
        } else if (last->kind == ATTEND) {
            stage->attend = r->attends + at;
            stage->tasks = stage->attend->tasks;
        } else if (last->kind == PACK)
            stage->tasks = r->products[last->number[0]].blocks;
        else
            stage->tasks = r->rows < 16 * r->threads ? r->rows : 16 * r->threads;
        atomic_init(&stage->done.next, 0);
        share_out(stage->shares, stage->parts, stage->tasks);
    }
}

/* Finds where the externals lie. Returns false if one is not as the program was made for. */
static bool find_externals(Run *r, const Tensor *made) {
    const Program *p = r->program;
    for (int64_t each = 0; each < p->inputs; each++) {
        r->base[each] = data_of(r->in[each]);
        const int64_t *sizes = sizes_of(r->in[each]), *strides = strides_of(r->in[each]);
        int64_t count = 1;
        for (int64_t dim = dim_of(r->in[each]) - 1; dim >= 0 && p->widths[each]; dim--) {
            if (sizes[dim] != 1 && strides[dim] != count) return false;
            count *= sizes[dim];
        }
        if (p->widths[each] && count != p->widths[each] * r->rows) return false;
    }
    for (int64_t each = 0; each < p->outputs; each++) r->base[p->inputs + each] = data_of(made[each]);
    return true;
}

static Tensor make_output(const Shape *shape, int64_t rows) {
    int64_t heads = shape->heads, size = shape->size, width = heads * size;
    int64_t sizes[4] = {1, rows, heads, size}, strides[4] = {rows * width, width, size, 1};
    Tensor made = NULL;
    if (shape->form == ROWS_FORM) sizes[2] = strides[1] = width, strides[2] = 1;
    if (shape->form == TURNED_FORM) sizes[1] = heads, strides[1] = size, sizes[2] = rows, strides[2] = width;
    if (shape->form == BOOL_FORM) sizes[0] = rows, strides[0] = 1;
    torch.empty(shape->form == BOOL_FORM ? 1 : shape->form == ROWS_FORM ? 3 : 4, sizes, strides, shape->form == BOOL_FORM ? BOOL : FLOAT32, CPU, 0, &made);
    return made;
}

static int64_t count_rows(const Program *p, Tensor first) {
    int64_t count = 1;
    for (int64_t dim = 0; dim < dim_of(first); dim++) count *= sizes_of(first)[dim];
    return count / p->widths[p->first];
}

/* Returns false if there was no memory. */
static bool run_program(Run *r) {
    const Program *p = r->program;
    size_t stages = (size_t)p->stages, orders = (size_t)p->orders, shares = stages * (size_t)r->threads * sizeof(Share);
    char *space = room(STATE, shares + stages * sizeof(Stage) + orders * (sizeof(Product) + sizeof(Attend)));
    r->arena = room(ARENA, (size_t)(r->rows * p->floats) * sizeof(float));
    if (!space || !r->arena) return false;
    r->stages = (Stage *)(space + shares);
    r->products = (Product *)(r->stages + stages);
    r->attends = (Attend *)(r->products + orders);
    make_stages(r, (Share *)space);
    torch.parallel(0, r->threads, 1, run_stages, r);
    return !atomic_load(&r->failed);
}

/* omnibus::run_I_O(int program, Tensor pools, Tensor a, ...) -> Tensor, or a tuple of them: I tensors come in, O go out. */
EXPORT void omnibus_run(uint64_t *stack, uint64_t inputs, uint64_t outputs) {
    const Program *p = (const Program *)stack[0];
    Tensor *in = (Tensor *)stack + 2, made[MOST_EXTERNALS];
    uint32_t threads = 1;
    torch.threads(&threads);
    Run r = {.program = p, .in = in, .pools = data_of(in[-1]), .rows = count_rows(p, in[p->first])};
    r.threads = threads < MOST_PARTS ? threads : MOST_PARTS;
    bool whole = true;
    for (int64_t each = 0; each < p->outputs; each++) whole = (made[each] = make_output(p->shapes + each, r.rows)) && whole;
    bool fits = whole && find_externals(&r, made);
    if (fits && r.rows) whole = run_program(&r);
    for (int64_t each = -1; each < p->inputs; each++) torch.drop(in[each]);
    if (whole && fits) {
        for (int64_t each = 0; each < p->outputs; each++) stack[each] = (uint64_t)made[each];
        return;
    }
    for (int64_t each = 0; each < p->outputs; each++)
        if (made[each]) torch.drop(made[each]);
    if (whole) torch.check(false, "omnibus", __FILE__, __LINE__, "a program met tensors of other sizes than it was made for");
    result(stack, NULL);
    (void)inputs, (void)outputs;
}
