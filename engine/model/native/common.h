/* What the kernels share: the torch functions they call, tensors as they come in, and what is made of the vectors of either CPU.
 *
 * Plain C for the stable interface of libtorch (torch/csrc/stable): no header of torch is needed to build this, and one build serves every
 * torch from 2.10 on. An operation gets an array of 64-bit slots; it owns the tensors in them and leaves its results in their place.
 */
#ifndef OMNIBUS_COMMON_H
#define OMNIBUS_COMMON_H

#include <immintrin.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif
#define INLINE static inline __attribute__((always_inline))

typedef uint16_t bf16;
typedef struct Opaque *Tensor;
typedef void (*Range)(int64_t begin, int64_t end, void *context);

/* In the order of `library.py`. */
typedef struct {
    int32_t (*data)(Tensor, void **);
    int32_t (*sizes)(Tensor, int64_t **);
    int32_t (*strides)(Tensor, int64_t **);
    int32_t (*dim)(Tensor, int64_t *);
    int32_t (*empty)(int64_t, const int64_t *, const int64_t *, int32_t, int32_t, int32_t, Tensor *);
    int32_t (*drop)(Tensor);
    int32_t (*parallel)(int64_t, int64_t, int64_t, Range, void *);
    int32_t (*threads)(uint32_t *);
    void (*check)(bool, const char *, const char *, uint32_t, const char *);
} Torch;

extern Torch torch;

enum { FLOAT32 = 6, BOOL = 11, CPU = 0 }; /* torch's numbers for a dtype and a device */
enum { MOST_DIMS = 8 };
enum { ALONE = 32 * 2048 }; /* numbers below which a simple pass is left to one thread */

INLINE void *data_of(Tensor tensor) {
    void *found = NULL;
    torch.data(tensor, &found);
    return found;
}

INLINE const int64_t *sizes_of(Tensor tensor) {
    int64_t *found = NULL;
    torch.sizes(tensor, &found);
    return found;
}

INLINE const int64_t *strides_of(Tensor tensor) {
    int64_t *found = NULL;
    torch.strides(tensor, &found);
    return found;
}

INLINE const float *floats_or_none(Tensor tensor) { return sizes_of(tensor)[0] ? data_of(tensor) : NULL; }

INLINE int64_t dim_of(Tensor tensor) {
    int64_t found = 0;
    torch.dim(tensor, &found);
    return found;
}

/* NULL if there is no memory, as for all that allocates here: an operation lets go of its inputs first, and then calls `result`. */
INLINE Tensor new_floats(int64_t dim, const int64_t *sizes) {
    int64_t strides[MOST_DIMS], step = 1;
    for (int64_t place = dim - 1; place >= 0; place--) {
        strides[place] = step;
        step *= sizes[place];
    }
    Tensor made = NULL;
    torch.empty(dim, sizes, strides, FLOAT32, CPU, 0, &made);
    return made;
}

INLINE double as_double(uint64_t slot) {
    double value;
    memcpy(&value, &slot, sizeof value);
    return value;
}

/* Leaves `made` as the operation's result. Without one the operation ends as torch's allocator ends, with an exception that passes through
 * the caller (-fexceptions); the engine answers it with a smaller step. */
INLINE void result(uint64_t *stack, Tensor made) {
    if (!made) torch.check(false, "omnibus", __FILE__, __LINE__, "can't allocate memory for a step");
    stack[0] = (uint64_t)made;
}

/* Room that the calling thread keeps between calls, 64-byte aligned; NULL if there is none. */
enum { PACKED, TOTALS, WIDENED, CANDIDATES, ARENA, STATE, ROOMS };
void *room(int which, size_t bytes);

/* ------------------------------------------------------------------------------------------------------------ vectors */

enum { COLUMNS = 32 }; /* of a panel: the first 16 are a vector, or two, to the left, the others to the right */
enum { ROWS = 12 };    /* most rows of a block */

#if defined(__AVX512BF16__)
#include "avx512.h"
#else
#include "avx2.h"
#endif

/* The lanes before `end`. */
INLINE uint32_t lanes_before(int64_t end) { return end >= LANES ? (1u << LANES) - 1 : end > 0 ? (1u << end) - 1 : 0; }

INLINE void put(float *to, vec value, int64_t left) {
    if (left >= LANES)
        store(to, value);
    else if (left > 0)
        store_some(to, lanes_before(left), value);
}

INLINE vec take(const float *from, int64_t left) { return left >= LANES ? load(from) : load_some(lanes_before(left), from); }

/* e^x to 2 units in the last place; 0 for -inf and below -104, inf from 89 on. Range reduction by 2^n, then a polynomial of degree 6. */
INLINE vec exp_of(vec x) {
    x = smaller(larger(x, all(-110.f)), all(128.f));
    vec n = nearest(x * all(1.44269504f));
    vec r = sub_mul(x, n, all(0.693145752f));
    r = sub_mul(r, n, all(1.42860677e-6f));
    vec p = all(1.f / 720);
    p = mul_add(p, r, all(1.f / 120));
    p = mul_add(p, r, all(1.f / 24));
    p = mul_add(p, r, all(1.f / 6));
    p = mul_add(p, r, all(0.5f));
    p = mul_add(p, r, all(1.f));
    p = mul_add(p, r, all(1.f));
    return times_power(p, n);
}

/* 2^x for x <= 0 to 2 units in the last place; 0 for -inf. */
INLINE vec power_of_two(vec x) {
    vec r = fraction(x), p = all(0.00187757646f);
    p = mul_add(p, r, all(0.00898934063f));
    p = mul_add(p, r, all(0.0558263175f));
    p = mul_add(p, r, all(0.240153611f));
    p = mul_add(p, r, all(0.693153083f));
    p = mul_add(p, r, all(1.f));
    return times_whole_power(p, x);
}

INLINE float exp_of_one(float x) { return exp_of(all(x))[0]; }

INLINE vec sigmoid(vec x) {
    vec one = all(1.f);
    return one / (one + exp_of(all(0.f) - x));
}

INLINE bf16 half_of(float value) { return (bf16)halves_of(value, 0.f); }

INLINE float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Sums [row][tile][side] of some rows and tiles. Loops over them have constant ends and are unrolled, so that they stay in registers. */
typedef vec Tiles[TALL][TILES][2];

#define EACH_ROW _Pragma("GCC unroll 12") for (int r = 0; r < rows; r++)
#define EACH_TILE _Pragma("GCC unroll 2") for (int t = 0; t < tiles; t++)
#define EACH_SIDE _Pragma("GCC unroll 2") for (int side = 0; side < 2; side++)

/* Where a vector of a tile begins among 32 columns. */
INLINE int column_of(int tile, int side) { return 16 * side + LANES * tile; }

INLINE void load_tiles(const int rows, const int tiles, int tile, Tiles sums, const float *from, int64_t row) {
    EACH_ROW EACH_TILE EACH_SIDE sums[r][t][side] = load(from + r * row + column_of(tile + t, side));
}

INLINE void store_tiles(const int rows, const int tiles, int tile, const Tiles sums, float *to, int64_t row) {
    EACH_ROW EACH_TILE EACH_SIDE store(to + r * row + column_of(tile + t, side), sums[r][t][side]);
}

/* The sums of tile t += each row's pair x[r] times the weights of both sides. */
INLINE void add_products(const int rows, int t, const Pair *x, int64_t row, Weights left, Weights right, Tiles sums) {
    EACH_ROW {
        Twice both = twice(x + r * row);
        sums[r][t][0] = dot(sums[r][t][0], both, left);
        sums[r][t][1] = dot(sums[r][t][1], both, right);
    }
}

/* Asks for 128 bytes that will be read soon, into the second cache: the first has few places for what is on its way. */
INLINE void fetch(const char *from) { _mm_prefetch(from, _MM_HINT_T1), _mm_prefetch(from + 64, _MM_HINT_T1); }

/* sums += rows x columns over `pairs` pairs: x [pairs][of], w rows of 32 columns' pairs, `step` elements apart. Meanwhile 128 bytes a pair are
 * fetched from `next` on, unless it is NULL. */
INLINE void multiply(const int rows, const int tiles, const int of, int tile, const Pair *x, const bf16 *w, int64_t step, int64_t pairs,
                     const char *next, Tiles sums) {
    for (int64_t k = 0; k < pairs; k++, x += of, w += step) {
        if (next) fetch(next + 128 * k);
        EACH_TILE {
            Weights left = load_weights(w + 2 * column_of(tile + t, 0)), right = load_weights(w + 2 * column_of(tile + t, 1));
            add_products(rows, t, x, 1, left, right, sums);
        }
    }
}

/* Calls f(rows, ...) with rows as a constant, so that the compiler keeps the sums in registers. */
#define FOR_ROWS(count, f, ...)            \
    switch (count) {                       \
        case 1: f(1, __VA_ARGS__); break;  \
        case 2: f(2, __VA_ARGS__); break;  \
        case 3: f(3, __VA_ARGS__); break;  \
        case 4: f(4, __VA_ARGS__); break;  \
        case 5: f(5, __VA_ARGS__); break;  \
        case 6: f(6, __VA_ARGS__); break;  \
        case 7: f(7, __VA_ARGS__); break;  \
        case 8: f(8, __VA_ARGS__); break;  \
        case 9: f(9, __VA_ARGS__); break;  \
        case 10: f(10, __VA_ARGS__); break;\
        case 11: f(11, __VA_ARGS__); break;\
        default: f(12, __VA_ARGS__); break;\
    }

#endif
