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

/* What a row is drawn from: `size` numbers, the largest of them, and how far the others lie below it when divided by the temperature. */
typedef struct {
    const float *x;
    int64_t size;
    float best, sharp; /* 1 / temperature */
} Fall;

INLINE __mmask16 mask_of(int64_t left) { return left >= 16 ? 0xFFFF : (__mmask16)((1u << left) - 1); }

INLINE __m512 fall16(const Fall *f, int64_t at) {
    __m512 x = _mm512_mask_loadu_ps(_mm512_set1_ps(-INFINITY), mask_of(f->size - at), f->x + at);
    return _mm512_mul_ps(_mm512_sub_ps(_mm512_set1_ps(f->best), x), _mm512_set1_ps(f->sharp));
}

/* The largest; not a number if any is not. */
static float largest(const float *x, int64_t size) {
    __m512 best = _mm512_set1_ps(-INFINITY);
    __mmask16 strange = 0;
    for (int64_t at = 0; at < size; at += 16) {
        __m512 v = _mm512_mask_loadu_ps(best, mask_of(size - at), x + at);
        strange |= _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
        best = _mm512_max_ps(best, v);
    }
    return strange ? NAN : _mm512_reduce_max_ps(best);
}

static int64_t first_of(const float *x, int64_t size, float value) {
    for (int64_t at = 0; at < size; at += 16) {
        __mmask16 found = _mm512_mask_cmp_ps_mask(mask_of(size - at), _mm512_maskz_loadu_ps(mask_of(size - at), x + at),
                                                  _mm512_set1_ps(value), _CMP_EQ_OQ);
        if (found) return at + __builtin_ctz(found);
    }
    return 0;
}

/* What all numbers weigh, the largest 1. */
static double weight_of(const Fall *f) {
    double whole = 0.;
    for (int64_t at = 0; at < f->size;) { /* so many in float32 that what is lost stays in the last places */
        __m512 sum = _mm512_setzero_ps();
        int64_t end = at + 4096 < f->size ? at + 4096 : f->size;
        for (; at < end; at += 16) sum = _mm512_add_ps(sum, exp16(_mm512_sub_ps(_mm512_setzero_ps(), fall16(f, at))));
        whole += _mm512_reduce_add_ps(sum);
    }
    return whole;
}

/* -------------------------------------------------------------------------------------------------------------- noise */

INLINE uint32_t mix(uint32_t word) {
    word = (word ^ word >> 16) * 0x7FEB352Du;
    word = (word ^ word >> 15) * 0x846CA68Bu;
    return word ^ word >> 16;
}

INLINE __m512i mix16(__m512i word) {
    word = _mm512_mullo_epi32(_mm512_xor_si512(word, _mm512_srli_epi32(word, 16)), _mm512_set1_epi32(0x7FEB352D));
    word = _mm512_mullo_epi32(_mm512_xor_si512(word, _mm512_srli_epi32(word, 15)), _mm512_set1_epi32((int)0x846CA68Bu));
    return _mm512_xor_si512(word, _mm512_srli_epi32(word, 16));
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
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    int64_t token = first;
    float best = noise((uint32_t)first, key);
    for (int64_t at = 0; at < f->size; at += 16) {
        __m512i word = _mm512_mullo_epi32(_mm512_add_epi32(lane, _mm512_set1_epi32((int)at)), _mm512_set1_epi32((int)0x9E3779B1u));
        word = mix16(_mm512_xor_si512(mix16(_mm512_xor_si512(word, _mm512_set1_epi32((int)key[0]))), _mm512_set1_epi32((int)key[1])));
        __m512 height = _mm512_sub_ps(_mm512_set1_ps(32.f), _mm512_getexp_ps(_mm512_cvtepu32_ps(word)));
        __m512 fall = fall16(f, at), most = _mm512_fmsub_ps(height, _mm512_set1_ps(0.6931472f), _mm512_sub_ps(fall, _mm512_set1_ps(0.01f)));
        __mmask16 may = _mm512_cmp_ps_mask(most, _mm512_set1_ps(best), _CMP_GE_OQ) & mask_of(f->size - at);
        if (!may) continue;
        float falls[16];
        _mm512_storeu_ps(falls, fall);
        for (; may; may &= (__mmask16)(may - 1)) {
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
    for (int64_t at = 0; at < f->size; at += 16) {
        __m512 fall = fall16(f, at);
        __mmask16 within = _mm512_cmp_ps_mask(fall, _mm512_set1_ps(reach), _CMP_LE_OQ);
        if (!within) continue;
        float falls[16];
        _mm512_storeu_ps(falls, fall);
        weight += _mm512_mask_reduce_add_ps(within, exp16(_mm512_sub_ps(_mm512_setzero_ps(), fall)));
        for (; within; within &= (__mmask16)(within - 1)) {
            int each = __builtin_ctz(within);
            uint32_t bits;
            memcpy(&bits, falls + each, sizeof bits);
            h->items[h->count++] = (uint64_t)bits << 32 | (uint64_t)(at + each);
        }
    }
    return weight;
}

/* Top-p's shares are of what top-k leaves; min-p is a distance. All keep a beginning of the falling order, and its first always. */
static int64_t draw_cut(const Fall *f, const float *settings, const uint32_t *key, Heap *h) {
    float top_p = settings[TOP_P], furthest = -settings[LOG_MIN_P];
    int64_t top_k = (int64_t)settings[TOP_K];
    bool ranked = top_k && top_p < 1.f; /* the whole is known only when all that top-k leaves are */
    double whole = top_k || top_p >= 1.f ? 0. : weight_of(f);
    for (float reach = 4.f;; reach *= 1.5f) {
        if (reach > 128.f) reach = INFINITY;
        bool all = reach == INFINITY;
        float here = !ranked && furthest <= reach ? furthest : reach;
        double weight = take_within(f, here, h);
        if (all || here == furthest || (top_k ? h->count >= top_k : weight >= top_p * whole * 1.00001)) break;
    }
    for (int64_t at = h->count / 2; at-- > 0;) sift(h, at);
    int64_t most = top_k && top_k < h->count ? top_k : h->count;
    if (ranked) { /* those that top-k leaves lie behind the heap, the first at the end */
        for (int64_t each = 0; each < most; each++) {
            uint64_t item = pop(h);
            h->items[h->count] = item;
            whole += _mm512_cvtss_f32(exp16(_mm512_set1_ps(-fall_of(item))));
        }
    }
    int64_t token = 0;
    float best = -INFINITY;
    double running = 0.;
    for (int64_t rank = 0; rank < most; rank++) {
        uint64_t item = ranked ? h->items[h->count + most - 1 - rank] : pop(h);
        float fall = fall_of(item);
        if (rank && ((top_p < 1.f && running >= top_p * whole) || fall > furthest)) break;
        if (top_p < 1.f) running += _mm512_cvtss_f32(exp16(_mm512_set1_ps(-fall)));
        float score = noise((uint32_t)item, key) - fall;
        if (score > best) best = score, token = (int64_t)(uint32_t)item;
    }
    return token;
}

static void run_draw(int64_t begin, int64_t end, void *context) {
    Draw *d = context;
    for (int64_t row = begin; row < end; row++) {
        const float *x = d->logits + row * d->size, *settings = d->settings + row * SETTINGS;
        float best = largest(x, d->size);
        if (!isfinite(best)) {
            d->tokens[row] = -1;
            continue;
        }
        int64_t first = first_of(x, d->size, best);
        Fall fall = {x, d->size, best, 1.f / settings[TEMPERATURE]};
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
