/* One token a row of logits: the largest, or a draw among what top-k, top-p and min-p leave.
 *
 * The same draw as sampler.py's: argmax of logit / temperature plus Gumbel noise that is a pure function of (key, token), among a prefix of
 * the falling order. Nothing is sorted but what may be kept: one pass finds the largest, one the sum, and one takes what lies within a
 * distance of the largest, further until the cut is certain to be inside; a heap then gives those in order, up to the cut. A row's token
 * depends on its own logits alone, whatever rows it rides with and on whatever thread.
 */
#include "common.h"
#include <stdatomic.h>

enum { INT64 = 4 }; /* torch's number for it */
enum { TEMPERATURE, TOP_P, LOG_MIN_P, TOP_K, SETTINGS };

typedef struct {
    const float *logits, *settings;
    const uint32_t *keys;
    int64_t *tokens;
    int64_t size;
    atomic_bool failed; /* a thread had no room for candidates */
} Draw;

enum { MOST_PIECES = 512, LEAST_PIECE = 128 };

/* What a row is drawn from: `size` numbers, the largest of them, and how far the others lie below it when divided by the temperature. The
 * largest of each piece are known, too: what is looked for is not read where it cannot be. */
typedef struct {
    const float *x;
    int64_t size, piece; /* numbers in a piece: whole vectors */
    float best, sharp;   /* 1 / temperature */
    float tops[MOST_PIECES];
} Fall;

/* `beyond` stands for what lies beyond the end. */
INLINE vec take_or(float beyond, const float *x, int64_t left) {
    return left >= LANES ? load(x) : select(lanes_before(left), load_some(lanes_before(left), x), all(beyond));
}

/* How far the numbers from `at` on lie below the largest; and so divided. */
INLINE vec deep_at(const Fall *f, int64_t at) { return all(f->best) - take_or(-INFINITY, f->x + at, f->size - at); }
INLINE vec fall_at(const Fall *f, int64_t at) { return deep_at(f, at) * all(f->sharp); }

/* Finds the largest, of all and of each piece; not a number if any is not. */
static void find_largest(Fall *f) {
    vec best = all(-INFINITY);
    uint32_t strange = 0;
    f->piece = (f->size + MOST_PIECES - 1) / MOST_PIECES;
    f->piece = f->piece < LEAST_PIECE ? LEAST_PIECE : (f->piece + LANES - 1) / LANES * LANES;
    for (int64_t from = 0; from < f->size; from += f->piece) {
        int64_t end = from + f->piece < f->size ? from + f->piece : f->size;
        vec top = all(-INFINITY);
        for (int64_t at = from; at < end; at += LANES) {
            vec v = take_or(-INFINITY, f->x + at, f->size - at);
            strange |= no_number(v);
            top = larger(top, v);
        }
        f->tops[from / f->piece] = largest_of(top);
        best = larger(best, top);
    }
    f->best = strange ? NAN : largest_of(best) + 0.f; /* no -0: a distance of -0 from it would be taken for the farthest */
}

static int64_t first_of_best(const Fall *f) {
    int64_t at = 0;
    while (f->tops[at] != f->best) at++;
    for (at *= f->piece;; at += LANES) {
        uint32_t found = equal(take(f->x + at, f->size - at), all(f->best)) & lanes_before(f->size - at);
        if (found) return at + __builtin_ctz(found);
    }
}

/* What all numbers weigh, the largest 1; roughly is to a part of ROUGH. */
enum { EXACTLY, ROUGHLY };
static const double ROUGH = 0x1.4p-15; /* more than both sums and both powers can lose together, in eight lanes */

INLINE double weigh(const Fall *f, const int how) {
    const int64_t run = how == ROUGHLY ? 512 : 4096; /* so many in float32 that what is lost stays in the last places */
    double whole = 0.;
    for (int64_t at = 0; at < f->size;) {
        vec sum = all(0.f);
        int64_t end = at + run < f->size ? at + run : f->size;
        for (; at < end; at += LANES)
            sum += how == ROUGHLY ? power_of_two(deep_at(f, at) * all(-1.44269504f * f->sharp)) : exp_of(all(0.f) - fall_at(f, at));
        whole += sum_of(sum);
    }
    return whole;
}

static double weight_of(const Fall *f) { return weigh(f, EXACTLY); }
static double about_weight(const Fall *f) { return weigh(f, ROUGHLY); }

/* -------------------------------------------------------------------------------------------------------------- noise */

INLINE uint32_t mix(uint32_t word) {
    word = (word ^ word >> 16) * 0x7FEB352Du;
    word = (word ^ word >> 15) * 0x846CA68Bu;
    return word ^ word >> 16;
}

/* All of a word but the last change of its lower half. */
INLINE words most_of_words(words word) {
    word = (word ^ word >> 16) * all_words(0x7FEB352Du);
    return (word ^ word >> 15) * all_words(0x846CA68Bu);
}

INLINE words mix_words(words word) {
    word = most_of_words(word);
    return word ^ word >> 16;
}

/* Gumbel noise of a token, as `sampler.gumbel` says. */
static float noise(uint32_t token, const uint32_t *key) {
    uint32_t word = mix(mix(token * 0x9E3779B1u ^ key[0]) ^ key[1]);
    float uniform = ((float)(word >> 8) + ((float)(word & 0xFF) + 0.5f) * 0x1p-8f) * 0x1p-24f;
    return -logf(-log1pf(-fminf(uniform, 1.f - 0x1p-24f)));
}

/* Nothing is cut off: noise for every token. -log(-log(1 - u)) < -log u, which the exponent of u bounds, so the logarithms are taken only
 * where they may win. */
static int64_t draw_open(const Fall *f, const uint32_t *key, int64_t first) {
    static const uint32_t lanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    words spread = load_words(lanes) * all_words(0x9E3779B1u);
    int64_t token = first;
    float best = noise((uint32_t)first, key);
    for (int64_t at = 0; at < f->size; at += LANES, spread += all_words(LANES * 0x9E3779B1u)) {
        vec height = magnitude(most_of_words(mix_words(spread ^ all_words(key[0])) ^ all_words(key[1])));
        vec most = sub_mul(sub_mul(all(32 * 0.6931472f + 0.01f), height, all(0.6931472f)), deep_at(f, at), all(f->sharp));
        uint32_t may = at_most(all(best), most) & lanes_before(f->size - at);
        if (!may) continue;
        float falls[LANES];
        store(falls, fall_at(f, at));
        for (; may; may &= may - 1) {
            int each = __builtin_ctz(may);
            float score = noise((uint32_t)(at + each), key) - falls[each];
            if (score > best || (score == best && at + each < token)) best = score, token = at + each;
        }
    }
    return token;
}

/* --------------------------------------------------------------------------------------------------------- candidates */

/* Least first: a distance, whose bits order as it does since it is not negative, and then the token. */
typedef struct {
    uint64_t *items;
    int64_t count;
} Heap;

INLINE float fall_of(uint64_t item) { return float_of((uint32_t)(item >> 32)); }

static void sift(Heap *h, int64_t at) {
    uint64_t item = h->items[at];
    for (int64_t child; (child = 2 * at + 1) < h->count; at = child) {
        if (child + 1 < h->count && h->items[child + 1] < h->items[child]) child++;
        if (item <= h->items[child]) break;
        h->items[at] = h->items[child];
    }
    h->items[at] = item;
}

static uint64_t pop(Heap *h) {
    uint64_t least = h->items[0];
    h->items[0] = h->items[--h->count];
    if (h->count) sift(h, 0);
    return least;
}

/* All that lie no further than `reach`, and finitely far. Returns what they weigh. */
static double take_within(const Fall *f, float reach, Heap *h) {
    double weight = 0.;
    h->count = 0;
    reach = fminf(reach, 0x1.fffffep127f);
    for (int64_t from = 0; from < f->size; from += f->piece) {
        if ((f->best - f->tops[from / f->piece]) * f->sharp > reach) continue;
        for (int64_t at = from; at < from + f->piece && at < f->size; at += LANES) {
            vec fall = fall_at(f, at);
            uint32_t within = at_most(fall, all(reach));
            if (!within) continue;
            float falls[LANES];
            store(falls, fall);
            weight += sum_of(select(within, exp_of(all(0.f) - fall), all(0.f)));
            for (; within; within &= within - 1) {
                int each = __builtin_ctz(within);
                uint32_t bits;
                memcpy(&bits, falls + each, sizeof bits);
                h->items[h->count++] = (uint64_t)bits << 32 | (uint64_t)(at + each);
            }
        }
    }
    return weight;
}

/* Top-p's shares are of what top-k leaves; min-p is a distance. All keep a beginning of the falling order, and its first always. The whole
 * is weighed exactly only if its last places decide. */
static int64_t draw_cut(const Fall *f, const float *settings, const uint32_t *key, Heap *h) {
    float top_p = settings[TOP_P], furthest = -settings[LOG_MIN_P];
    int64_t top_k = (int64_t)settings[TOP_K];
    bool ranked = top_k && top_p < 1.f; /* the whole is known only when all that top-k leaves are */
    double whole = top_k || top_p >= 1.f ? 0. : about_weight(f), rough = whole > 0. ? ROUGH : 0.;
    for (float reach = 4.f;; reach *= 1.5f) {
        if (reach > 128.f) reach = INFINITY;
        bool all = reach == INFINITY;
        float here = !ranked && furthest <= reach ? furthest : reach;
        double weight = take_within(f, here, h);
        if (all || here == furthest || (top_k ? h->count >= top_k : weight >= top_p * whole * (1.00001 + rough))) break;
    }
    for (int64_t at = h->count / 2; at-- > 0;) sift(h, at);
    int64_t most = top_k && top_k < h->count ? top_k : h->count;
    if (ranked) { /* those that top-k leaves lie behind the heap, the first at the end */
        for (int64_t each = 0; each < most; each++) {
            uint64_t item = pop(h);
            h->items[h->count] = item;
            whole += exp_of_one(-fall_of(item));
        }
    }
    int64_t token = 0;
    float best = -INFINITY;
    double running = 0.;
    for (int64_t rank = 0; rank < most; rank++) {
        uint64_t item = ranked ? h->items[h->count + most - 1 - rank] : pop(h);
        float fall = fall_of(item);
        if (rough > 0. && fabs(running - top_p * whole) <= top_p * whole * rough) whole = weight_of(f), rough = 0.;
        if (rank && ((top_p < 1.f && running >= top_p * whole) || fall > furthest)) break;
        if (top_p < 1.f) running += exp_of_one(-fall);
        float score = noise((uint32_t)item, key) - fall;
        if (score > best) best = score, token = (int64_t)(uint32_t)item;
    }
    return token;
}

static void run_draw(int64_t begin, int64_t end, void *context) {
    Draw *d = context;
    for (int64_t row = begin; row < end; row++) {
        const float *x = d->logits + row * d->size, *settings = d->settings + row * SETTINGS;
        Fall fall;
        fall.x = x, fall.size = d->size, fall.sharp = 1.f / settings[TEMPERATURE];
        find_largest(&fall);
        if (!isfinite(fall.best)) {
            d->tokens[row] = -1;
            continue;
        }
        int64_t first = first_of_best(&fall);
        if (settings[TEMPERATURE] <= 0.f)
            d->tokens[row] = first;
        else if (settings[TOP_P] >= 1.f && settings[TOP_K] == 0.f && settings[LOG_MIN_P] == -INFINITY)
            d->tokens[row] = draw_open(&fall, d->keys + 2 * row, first);
        else {
            Heap heap = {room(CANDIDATES, (size_t)d->size * sizeof(uint64_t)), 0};
            if (heap.items)
                d->tokens[row] = draw_cut(&fall, settings, d->keys + 2 * row, &heap);
            else
                atomic_store(&d->failed, true);
        }
    }
}

/* omnibus::draw(Tensor logits, Tensor settings, Tensor keys) -> Tensor: tokens [R] int64 of logits [R, vocabulary] float32, -1 where they
 * are not numbers. settings [R, 4] float32: temperature (0 takes the largest), top-p, log of min-p, top-k (0 is none); keys [R, 2] int32. */
EXPORT void omnibus_draw(uint64_t *stack, uint64_t inputs, uint64_t outputs) {
    Tensor logits = (Tensor)stack[0], settings = (Tensor)stack[1], keys = (Tensor)stack[2], made = NULL;
    int64_t rows = sizes_of(logits)[0], one = 1;
    torch.empty(1, &rows, &one, INT64, CPU, 0, &made);
    bool sound = made;
    if (made) {
        Draw d = {.logits = data_of(logits), .settings = data_of(settings), .keys = data_of(keys), .tokens = data_of(made), .size = sizes_of(logits)[1]};
        torch.parallel(0, rows, 1, run_draw, &d);
        sound = !atomic_load(&d.failed);
        if (!sound) torch.drop(made);
    }
    torch.drop(logits), torch.drop(settings), torch.drop(keys);
    result(stack, sound ? made : NULL);
    (void)inputs, (void)outputs;
}
