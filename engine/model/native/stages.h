/* What threads of a step share: products and attention in tasks, and what is done a row at a time. One operation does one of them (products.c,
 * attention.c), a program does them one after another (program.c).
 */
#ifndef OMNIBUS_STAGES_H
#define OMNIBUS_STAGES_H

#include "common.h"
#include <stdatomic.h>

enum { MOST_PARTS = 64 }; /* threads that share a product */

/* The tasks of one thread, a cache line apart from those of the next. */
typedef struct {
    atomic_llong next; /* the first that nobody has taken */
    int64_t end;
} __attribute__((aligned(64))) Share;

INLINE void share_out(Share *shares, int64_t parts, int64_t tasks) {
    for (int64_t part = 0; part < parts; part++) {
        atomic_init(&shares[part].next, part * tasks / parts);
        shares[part].end = (part + 1) * tasks / parts;
    }
}

/* ----------------------------------------------------------------------------------------------------------- products */

typedef struct {
    const float *x;
    int64_t stride;         /* of x, from row to row */
    Pair *packed;           /* [blocks][pairs][rows of the block] */
    float *totals;          /* of levels: the sum of each group of inputs as they were rounded, [blocks][groups][rows of the block] */
    const uint8_t *weight;  /* panels, one after another */
    int64_t pair_bytes;     /* what a pair of inputs takes of a panel of halves (128) or bytes (64); 0 for levels */
    const float *scale;     /* of bytes, [panels][32] */
    const float *bias;
    float *out;
    int64_t rows, inputs, pairs, panels, columns;
    int64_t blocks, chunks;
    bool gated;
    int act;
    Share *shares;
    int64_t parts;
    atomic_bool failed; /* a thread had no room to widen a panel */
} Product;

/* The kind and the sizes of a packed weight. */
void describe_weight(Product *p, const int64_t *sizes);
/* The blocks and chunks that the rows make. */
void lay_out(Product *p);
/* Block b holds rows [first(b), first(b + 1)): as even as can be. */
INLINE int64_t first_row(const Product *p, int64_t block) { return block * p->rows / p->blocks; }
/* What the packed inputs and their totals take, in numbers of four bytes. */
INLINE int64_t packed_size(const Product *p) { return p->rows * p->pairs; }
int64_t totals_size(const Product *p);
INLINE int64_t product_tasks(const Product *p) { return p->panels * p->chunks; }
/* The bytes of one panel. */
int64_t panel_bytes(const Product *p);
void pack_rows(int64_t begin, int64_t end, void *product);
/* Returns false if there was no memory. */
bool product_task(Product *p, int64_t task);

void norm_row(const float *x, const float *weight, float *out, int64_t size, float eps);

/* ---------------------------------------------------------------------------------------------------------- attention */

typedef struct {
    const float *x, *cos, *sin;
    float *out;
    int64_t head, token, heads, size; /* strides of x; the others are dense, `out` as [T, heads, size] */
} Rotate;

void rotate_rows(int64_t begin, int64_t end, void *rotate);

/* A tensor of the block pool: [blocks, heads, positions, dim]. */
typedef struct {
    void *data;
    const int64_t *sizes;
} Pool;

INLINE Pool pool_of(Tensor tensor) { return (Pool){data_of(tensor), sizes_of(tensor)}; }

typedef struct {
    bf16 *keys, *values;
    int8_t *keys8, *values8; /* the same memory, in eight bits */
    const float *steps;
    const float *key, *value;
    int64_t key_head, key_token, value_head, value_token; /* strides */
    const int64_t *block, *offset;
    int64_t heads, size, dim, value_dim;
} Store;

/* With the table of steps, or NULL. */
Store store_into(Pool keys, Pool values, const float *steps);
void store_rows(int64_t begin, int64_t end, void *store);

typedef struct {
    const float *query;
    float *out;
    int64_t query_head, query_token; /* strides */
    const bf16 *keys, *values;
    const int8_t *keys8, *values8; /* the same memory, in eight bits */
    const float *steps;            /* NULL: in bfloat16 */
    const int32_t *tiles, *table;  /* [tiles][4]: row, first token, tokens, position of the first; [rows][width] */
    const float *sinks;
    int64_t width, heads, group, parts, together, key_heads, size, dim, value_dim, window;
    float scale, softcap;
    int64_t tasks;
    atomic_llong next;
} Attend;

/* What a thread needs beside it. */
typedef struct Work Work;
enum { MOST_DIM = 512 };

/* With the tensors that index the pool, the table of steps or NULL, and the threads that will share it. */
Attend attend_to(Pool keys, Pool values, Tensor tiles, Tensor table, const float *steps, int64_t heads, int64_t threads);
size_t work_bytes(void);
void attend_task(const Attend *a, Work *w, int64_t task);

#endif
