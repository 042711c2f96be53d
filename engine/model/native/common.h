/* What the kernels share: the torch functions they call, tensors as they come in, and vectors of 16 floats.
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

enum { FLOAT32 = 6, CPU = 0 }; /* torch's numbers for a dtype and a device */
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
enum { PACKED, TOTALS, WIDENED, CANDIDATES, ROOMS };
void *room(int which, size_t bytes);

/* ------------------------------------------------------------------------------------------------------------ vectors */

/* e^x to 2 units in the last place; 0 for -inf and below -104, inf from 89 on. Range reduction by 2^n, then a polynomial of degree 6. */
INLINE __m512 exp16(__m512 x) {
    x = _mm512_min_ps(_mm512_max_ps(x, _mm512_set1_ps(-110.f)), _mm512_set1_ps(128.f));
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693145752f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(1.42860677e-6f), r);
    __m512 p = _mm512_set1_ps(1.f / 720);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.f / 120));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.f / 24));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.f / 6));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.f));
    return _mm512_scalef_ps(p, n);
}

INLINE __m512 sigmoid16(__m512 x) {
    __m512 one = _mm512_set1_ps(1.f);
    return _mm512_div_ps(one, _mm512_add_ps(one, exp16(_mm512_sub_ps(_mm512_setzero_ps(), x))));
}

/* acc += both products of each pair of bfloat16 (the CPU's own instruction; sums are float32). */
INLINE __m512 dot(__m512 acc, __m512i pairs, __m512i weights) {
    return _mm512_dpbf16_ps(acc, (__m512bh)pairs, (__m512bh)weights);
}

INLINE __m512i twice(const uint32_t *pair) { return _mm512_set1_epi32((int)*pair); }

INLINE uint32_t pair_of(float low, float high) {
    __m128bh both = _mm_cvtneps_pbh(_mm_set_ps(0.f, 0.f, high, low));
    return (uint32_t)_mm_cvtsi128_si32((__m128i)both);
}

INLINE bf16 half_of(float value) { return (bf16)pair_of(value, 0.f); }

INLINE float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* ROWS rows by 32 columns stay in 24 of the 32 registers. */
enum { ROWS = 12, COLUMNS = 32 };

/* acc[r][0..1] += rows x columns over `pairs` pairs: x [pairs][rows], w rows of 32 columns' pairs, `step` elements apart. */
INLINE void multiply(const int rows, const uint32_t *x, const bf16 *w, int64_t step, int64_t pairs, __m512 acc[ROWS][2]) {
    for (int64_t k = 0; k < pairs; k++, x += rows, w += step) {
        __m512i left = _mm512_loadu_si512(w), right = _mm512_loadu_si512(w + 32);
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) {
            __m512i both = twice(x + r);
            acc[r][0] = dot(acc[r][0], both, left);
            acc[r][1] = dot(acc[r][1], both, right);
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
