/* The CPU path's kernels: paged attention, small fused operators, a product with packed weights,
 * and a whole forward pass of the Llama-shaped family made of them. Float32 in and out.
 *
 * Compiled at run time for this very machine (build.py), called through ctypes on plain pointers.
 * Nothing is allocated here. Every output element is summed in an order that depends on nothing
 * but its own inputs: no result depends on the number of threads, on how work was shared out, or on
 * which other rows were computed with it. Hence no -ffast-math, which would also hide NaN.
 *
 * T tokens, H query heads, K key/value heads, D head width, B sequences, S block size,
 * E model width, I width of the gated layer, V vocabulary.
 */

#include <float.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

/* ---- vectors ------------------------------------------------------------------------------- */

#if defined(__AVX512F__)
#define LANES 16
#define TILE_ROWS 12 /* 24 accumulators of 32 registers */
#elif defined(__AVX2__) && defined(__FMA__)
#define LANES 8
#define TILE_ROWS 6 /* 12 accumulators of 16 registers */
#else
#define LANES 4
#define TILE_ROWS 6
#endif
#define PANEL (2 * LANES) /* columns of packed weights side by side */

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t ivec __attribute__((vector_size(4 * LANES)));
typedef float loose __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline))
#define LOW (-1e38f) /* below every score, and finite: the difference of two is a number */

INLINE vec load(const float *p) { return (vec) * (const loose *)p; }
INLINE void store(float *p, vec v) { *(loose *)p = v; }
INLINE vec splat(float x) { return x - (vec){0}; }
INLINE ivec isplat(int32_t x) { return x - (ivec){0}; }
INLINE vec choose(ivec mask, vec yes, vec no) {
    return (vec)(((ivec)yes & mask) | ((ivec)no & ~mask));
}
/* Keeps a pointer in a register of its own, where the compiler would split the sum it came from. */
#define SETTLE(pointer) __asm__("" : "+r"(pointer))

INLINE float sum_lanes(vec v) {
    float sum = 0;
    for (int i = 0; i < LANES; i++) sum += v[i];
    return sum;
}

/* e^x to about 1e-7; 0 below -87, finite above 88; NaN stays NaN. */
INLINE vec exponential(vec x) {
    const ivec tiny = x < splat(-87.0f);
    x = choose(tiny, splat(-87.0f), x);
    x = choose(x > splat(88.0f), splat(88.0f), x);
    const vec magic = splat(12582912.0f); /* adding it rounds to a whole number */
    const vec shifted = x * 1.44269504088896341f + magic;
    const vec whole = shifted - magic;
    vec r = x - whole * 0.693359375f;
    r = r - whole * -2.12194440e-4f;
    vec p = splat(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    const vec power = (vec)(((ivec)shifted << 23) + (127 << 23));
    return choose(tiny, (vec){0}, p * power);
}

INLINE vec silu(vec x) { return x / (1.0f + exponential(-x)); }

INLINE vec soft_capped(vec x, float cap) {
    return cap * (1.0f - 2.0f / (exponential(x * (2.0f / cap)) + 1.0f));
}

/* ---- threads ------------------------------------------------------------------------------- */

struct team {
    _Alignas(64) atomic_long next; /* the next piece of work of this phase */
    _Alignas(64) atomic_int arrived;
    _Alignas(64) atomic_int generation;
};

struct member {
    struct team *team;
    int index, size;
};

INLINE void pause_briefly(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* All members wait for the last, who sets `next` back to 0. Ends a phase. */
static void end_phase(struct member *me) {
    struct team *team = me->team;
    const int generation = atomic_load_explicit(&team->generation, memory_order_acquire);
    if (atomic_fetch_add(&team->arrived, 1) == me->size - 1) {
        atomic_store(&team->arrived, 0);
        atomic_store(&team->next, 0);
        atomic_store_explicit(&team->generation, generation + 1, memory_order_release);
        return;
    }
    for (int spins = 0;
         atomic_load_explicit(&team->generation, memory_order_acquire) == generation; spins++) {
        if (spins < 4096) pause_briefly();
        else sched_yield(); /* somebody else may need this core to get there */
    }
}

/* Take up to `grain` of `total` pieces: [*first, *last). 0 when none is left. */
INLINE int take(struct member *me, long total, long grain, long *first, long *last) {
    if (atomic_load_explicit(&me->team->next, memory_order_relaxed) >= total) return 0;
    *first = atomic_fetch_add_explicit(&me->team->next, grain, memory_order_relaxed);
    if (*first >= total) return 0;
    *last = *first + grain < total ? *first + grain : total;
    return 1;
}

/* A few pieces for each member: even shares, and somebody slow is helped out. */
INLINE long grain_of(const struct member *me, long total) {
    const long grain = total / (4 * me->size);
    return grain > 1 ? grain : 1;
}

static void run(void (*work)(struct member *, const void *), const void *job, int num_threads) {
    struct team team = {0};
#ifdef _OPENMP
    if (num_threads > 1) {
#pragma omp parallel num_threads(num_threads)
        {
            struct member me = {&team, omp_get_thread_num(), omp_get_num_threads()};
            work(&me, job);
        }
        return;
    }
#endif
    struct member me = {&team, 0, 1};
    work(&me, job);
}

/* ---- product with packed weights ----------------------------------------------------------- */

/* y[T, N] (+)= x[T, K] W[N, K]^T, W packed as panels of PANEL columns, K rows each, zero-padded.
 * Gated: a panel holds LANES columns of the gate and the same LANES of `up`, N counts both, and
 * y[T, N / 2] = silu(gate) * up. */
enum epilogue { STORE = 0, ADD = 1, GATED = 2 };

/* How a weight is kept. INT8: for each GROUP rows of a panel, PANEL scales (float) and then the
 * rows, four of them in the bytes of one word for each column; padded to whole groups. */
enum kind { FLOAT32 = 0, BFLOAT16 = 1, INT8 = 2 };
#define GROUP 64

struct product {
    const float *x;
    const char *weights;
    const float *bias; /* [N], in the order of the panels' columns; may be null */
    float *y;
    int64_t x_stride, y_stride; /* floats from row to row */
    int64_t rows, inner, columns;
    int64_t epilogue, kind;
};

#define INNER_BLOCK 2048 /* rows of a panel that stay in the second cache while tiles pass */
#define SUM_BLOCK 256    /* products summed apart: long chains of additions lose digits */
#define ROW_BLOCK (8 * TILE_ROWS)

typedef uint16_t halves __attribute__((vector_size(2 * LANES), aligned(2), may_alias));
typedef uint32_t uvec __attribute__((vector_size(4 * LANES)));
typedef int32_t words __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

/* LANES weights of one row, at p, as floats. */
INLINE vec widen(const int kind, const char *p) {
    if (kind == FLOAT32) return load((const float *)p);
    return (vec)(__builtin_convertvector(*(const halves *)p, uvec) << 16);
}

/* Byte `which` of each word, as floats. */
INLINE vec widen_byte(const char *p, const int which) {
    const ivec word = *(const words *)p;
    return __builtin_convertvector((word << (24 - 8 * which)) >> 24, vec);
}

INLINE int64_t weight_bytes(const int kind) {
    return kind == FLOAT32 ? 4 : kind == BFLOAT16 ? 2 : 1;
}

/* Bytes of `rows` rows of a panel. */
INLINE int64_t panel_bytes(const int kind, int64_t rows) {
    if (kind != INT8) return rows * PANEL * weight_bytes(kind);
    return (rows + GROUP - 1) / GROUP * (GROUP * PANEL + PANEL * (int64_t)sizeof(float));
}

/* sums[M][PANEL] (+)= x[M, inner] panel[inner][PANEL]; fetches what lies `ahead` meanwhile. */
INLINE void tile(const int M, const int kind, const float *x, int64_t x_stride, const char *panel,
                 int64_t inner, float *sums, int is_first, const char *ahead, int ahead_step) {
    const int64_t size = weight_bytes(kind), block = kind == INT8 ? GROUP : SUM_BLOCK;
    const int step = kind == INT8 ? 4 : 1; /* rows at a time */
    const float *row[TILE_ROWS];
    for (int i = 0; i < M; i++) row[i] = x + i * x_stride;
    for (int64_t begin = 0; begin < inner; begin += block) {
        const int64_t end = begin + block < inner ? begin + block : inner;
        vec sum[TILE_ROWS][2], scale[2];
        if (kind == INT8)
            for (int j = 0; j < 2; j++, panel += LANES * sizeof(float))
                scale[j] = load((const float *)panel);
        for (int i = 0; i < M; i++) sum[i][0] = sum[i][1] = (vec){0};
        for (int64_t k = begin; k < end; k += step, panel += PANEL * size * step) {
            __builtin_prefetch(ahead);
            if (PANEL * size * step > 64) __builtin_prefetch(ahead + 64);
            ahead += ahead_step;
            for (int j = 0; j < step; j++) {
                if (k + j >= end) break;
                const vec left = kind == INT8 ? widen_byte(panel, j) : widen(kind, panel);
                const vec right = kind == INT8 ? widen_byte(panel + LANES * 4, j)
                                               : widen(kind, panel + LANES * size);
                for (int i = 0; i < M; i++) {
                    const vec value = splat(row[i][k + j]);
                    sum[i][0] += value * left;
                    sum[i][1] += value * right;
                }
            }
        }
        for (int i = 0; i < M; i++)
            for (int j = 0; j < 2; j++) {
                float *to = sums + i * PANEL + j * LANES;
                const vec before = is_first && begin == 0 ? (vec){0} : load(to);
                store(to, kind == INT8 ? sum[i][j] * scale[j] + before : sum[i][j] + before);
            }
    }
}

#define TILES(name, kind) \
    static void name(int M, const float *x, int64_t x_stride, const char *panel, int64_t inner, \
                     float *sums, int is_first, const char *ahead, int ahead_step) { \
        switch (M) { \
            CASE(1, kind) CASE(2, kind) CASE(3, kind) CASE(4, kind) CASE(5, kind) CASE(6, kind) \
            MORE_CASES(kind) \
        } \
    }
#define CASE(m, kind) \
    case m: \
        tile(m, kind, x, x_stride, panel, inner, sums, is_first, ahead, ahead_step); \
        break;
#if TILE_ROWS == 12
#define MORE_CASES(kind) \
    CASE(7, kind) CASE(8, kind) CASE(9, kind) CASE(10, kind) CASE(11, kind) CASE(12, kind)
#else
#define MORE_CASES(kind)
#endif
TILES(tile_float32, FLOAT32)
TILES(tile_bfloat16, BFLOAT16)
TILES(tile_int8, INT8)
#undef CASE

static void finish_gated(const struct product *p, const float *sums, int64_t row, int num_rows,
                         int64_t panel) {
    const int64_t column = panel * LANES, width = p->columns / 2;
    for (int i = 0; i < num_rows; i++) {
        vec gate = load(sums + i * PANEL), up = load(sums + i * PANEL + LANES);
        if (p->bias) {
            gate += load(p->bias + panel * PANEL);
            up += load(p->bias + panel * PANEL + LANES);
        }
        const vec out = silu(gate) * up;
        float *y = p->y + (row + i) * p->y_stride + column;
        if (column + LANES <= width) store(y, out);
        else
            for (int64_t c = 0; c < width - column; c++) y[c] = out[c];
    }
}

static void finish_plain(const struct product *p, const float *sums, int64_t row, int num_rows,
                         int64_t panel) {
    for (int j = 0; j < 2; j++) {
        const int64_t column = panel * PANEL + j * LANES, left = p->columns - column;
        if (left <= 0) return;
        for (int i = 0; i < num_rows; i++) {
            const float *sum = sums + i * PANEL + j * LANES;
            float *y = p->y + (row + i) * p->y_stride + column;
            if (left >= LANES) {
                vec out = load(sum);
                if (p->bias) out += load(p->bias + column);
                if (p->epilogue == ADD) out += load(y);
                store(y, out);
                continue;
            }
            for (int64_t c = 0; c < left; c++) {
                const float out = sum[c] + (p->bias ? p->bias[column + c] : 0);
                y[c] = p->epilogue == ADD ? y[c] + out : out;
            }
        }
    }
}

/* Rows [first, last) against one panel. */
static void multiply_panel(const struct product *p, int64_t first, int64_t last, int64_t panel) {
    _Alignas(64) float sums[ROW_BLOCK * PANEL];
    const int kind = (int)p->kind;
    const int64_t size = panel_bytes(kind, p->inner), row_size = PANEL * weight_bytes(kind);
    const int64_t num_rows = last - first, tiles = (num_rows + TILE_ROWS - 1) / TILE_ROWS;
    for (int64_t k = 0; k < p->inner; k += INNER_BLOCK) {
        const int64_t inner = p->inner - k < INNER_BLOCK ? p->inner - k : INNER_BLOCK;
        const char *weights = p->weights + panel * size + panel_bytes(kind, k);
        for (int64_t t = 0; t < tiles; t++) {
            const int64_t row = num_rows * t / tiles, end = num_rows * (t + 1) / tiles;
            const float *x = p->x + (first + row) * p->x_stride + k;
            float *to = sums + row * PANEL;
            /* the first tile reads the panel from memory, the others fetch what comes next */
            const char *ahead = weights + (tiles == 1 ? 4096 : size + row_size * inner * t / tiles);
            const int64_t step = kind == INT8 ? 4 * row_size : row_size;
            const int ahead_step = (int)(step / (tiles < 4 ? tiles : 4));
            const int rows = (int)(end - row), is_first = k == 0;
            if (kind == FLOAT32)
                tile_float32(rows, x, p->x_stride, weights, inner, to, is_first, ahead, ahead_step);
            else if (kind == BFLOAT16)
                tile_bfloat16(rows, x, p->x_stride, weights, inner, to, is_first, ahead, ahead_step);
            else tile_int8(rows, x, p->x_stride, weights, inner, to, is_first, ahead, ahead_step);
        }
    }
    if (p->epilogue == GATED) finish_gated(p, sums, first, num_rows, panel);
    else finish_plain(p, sums, first, num_rows, panel);
}

static void product_phase(struct member *me, const void *job) {
    const struct product *p = job;
    const int64_t panels = (p->columns + PANEL - 1) / PANEL;
    long begin, end;
    while (take(me, panels, grain_of(me, panels), &begin, &end))
        for (int64_t first = 0; first < p->rows; first += ROW_BLOCK) {
            const int64_t last = first + ROW_BLOCK < p->rows ? first + ROW_BLOCK : p->rows;
            for (int64_t panel = begin; panel < end; panel++) multiply_panel(p, first, last, panel);
        }
}

void tk_product(const struct product *p, int num_threads) { run(product_phase, p, num_threads); }

/* ---- attention over the paged cache -------------------------------------------------------- */

struct attention {
    const float *query; /* token t, head h at query + t * query_stride + h * D */
    const float *keys;  /* [slots, K, D] */
    const float *values;
    float *out;                 /* token t, head h at out + t * out_stride + h * D */
    const int32_t *block_table; /* [B, table_stride] */
    const int32_t *first;       /* [B] first token of the sequence in this step */
    const int32_t *count;       /* [B] its tokens in this step */
    const int32_t *start;       /* [B] position of the first of them */
    /* Units of work: sequences order[unit_first[u]], unit_count[u] of them, whose first unit_shared[u]
     * keys lie in the same blocks. More than one: decodes, and a multiple of KEY_BLOCK keys. */
    const int32_t *order, *unit_first, *unit_count, *unit_shared;
    int64_t num_units;
    int64_t query_stride, out_stride, table_stride;
    int64_t num_sequences, num_heads, num_kv_heads, width, block_size;
    int64_t window; /* a query sees so many keys, its own included; 0 = all */
    float scaling, softcap; /* softcap 0 = none */
};

#define KEY_BLOCK 64    /* keys between two corrections of the running maximum */
#define KEY_TILE 8      /* keys, or dimensions, in registers at a time */
#define ROW_TILE 4      /* rows in registers at a time, where these are few */
#define MAX_STATE 16384 /* floats of running output of one task: heads * D * lanes */

/* A row is one query head of one token. One task: rows [row, row + num_rows) of one sequence, for
 * key/value heads [head, last_head). There are two ways through it, of the same sums in the same
 * order: many rows lie in lanes throughout, two vectors of them, and arithmetic is the limit;
 * few (a decode) lie in lanes for their scores only, and memory is. */
struct task {
    const struct attention *a;
    int64_t sequence, row, num_rows, head, last_head;
    int64_t lanes; /* LANES for few, 2 * LANES for many */
    const int32_t *members; /* decodes whose rows lie side by side; null: rows of one sequence */
};

/* The token that a row of a task is a head of. */
INLINE int64_t token_of(const struct task *task, int64_t row) {
    const struct attention *a = task->a;
    const int64_t index = row / (a->num_heads / a->num_kv_heads);
    return task->members ? a->first[task->members[index]] : a->first[task->sequence] + index;
}

struct keys {
    int64_t first, last; /* positions in the sequence */
    int is_masked;       /* whether some row does not see some of them */
};

struct attention_state {
    _Alignas(64) float query[MAX_STATE];               /* [head][D][lanes] */
    _Alignas(64) float out[MAX_STATE];                 /* [head][D][lanes], few: [head][row][D] */
    _Alignas(64) float maximum[MAX_STATE / 8];         /* [head][lanes]; D is at least 8 */
    _Alignas(64) float total[MAX_STATE / 8];           /* [head][lanes] */
    _Alignas(64) float scores[KEY_BLOCK * 2 * LANES];  /* [key][lanes] */
    _Alignas(64) float weights[LANES * KEY_BLOCK];     /* few: [row][key] */
    int32_t position[2 * LANES];                       /* of the rows */
    int64_t place[KEY_BLOCK], next_place[KEY_BLOCK];   /* of keys: slot * K * D */
};

/* scores[key][lanes] of M keys, read where they lie. */
INLINE void score_tile(const int M, const int vectors, const float *keys, const int64_t *place,
                       const float *query, int64_t width, float *scores) {
    vec sum[KEY_TILE][2];
    const float *key[KEY_TILE];
    for (int i = 0; i < M; i++) {
        key[i] = keys + place[i];
        SETTLE(key[i]);
        for (int v = 0; v < vectors; v++) sum[i][v] = (vec){0};
    }
#pragma GCC unroll 4
    for (int64_t d = 0; d < width; d++)
        for (int i = 0; i < M; i++) {
            const vec value = splat(key[i][d]);
            for (int v = 0; v < vectors; v++)
                sum[i][v] += value * load(query + (d * vectors + v) * LANES);
        }
    for (int i = 0; i < M; i++)
        for (int v = 0; v < vectors; v++) store(scores + (i * vectors + v) * LANES, sum[i][v]);
}

INLINE vec higher(vec x, vec highest) { return choose(x > highest, x, highest); } /* never NaN */

/* -- many rows -- */

/* Scores to weights, in place; the running maximum and total move on. */
INLINE void soften_many(const struct attention *a, struct attention_state *state,
                        struct keys block, vec *correction) {
    const int64_t num_keys = block.last - block.first;
    for (int v = 0; v < 2; v++) {
        float *scores = state->scores + v * LANES;
        const ivec position = (ivec)load((const float *)state->position + v * LANES);
        const ivec oldest = a->window ? position - (int32_t)a->window : isplat(-1);
        const vec before = load(state->maximum + v * LANES);
        vec highest = before, sum = {0};
        for (int64_t k = 0; k < num_keys; k++) {
            vec score = load(scores + k * 2 * LANES);
            if (a->softcap != 0) score = soft_capped(score, a->softcap);
            if (block.is_masked) {
                const ivec at = isplat((int32_t)(block.first + k));
                score = choose((at <= position) & (at > oldest), score, splat(-INFINITY));
            }
            store(scores + k * 2 * LANES, score);
            highest = higher(score, highest);
        }
        for (int64_t k = 0; k < num_keys; k++) {
            const vec weight = exponential(load(scores + k * 2 * LANES) - highest);
            store(scores + k * 2 * LANES, weight);
            sum += weight;
        }
        correction[v] = exponential(before - highest);
        store(state->total + v * LANES, load(state->total + v * LANES) * correction[v] + sum);
        store(state->maximum + v * LANES, highest);
    }
}

/* out[dimension][lanes] = out * correction + sum over keys of value * weight, KEY_TILE of them. */
INLINE void value_tile_many(const float *values, const int64_t *place, int64_t num_keys,
                            const float *weights, const vec *correction, float *out) {
    vec sum[KEY_TILE][2];
    for (int i = 0; i < KEY_TILE; i++) sum[i][0] = sum[i][1] = (vec){0};
    for (int64_t k = 0; k < num_keys; k++) {
        const float *value = values + place[k];
        SETTLE(value);
        const vec left = load(weights + k * 2 * LANES);
        const vec right = load(weights + k * 2 * LANES + LANES);
        for (int i = 0; i < KEY_TILE; i++) {
            sum[i][0] += splat(value[i]) * left;
            sum[i][1] += splat(value[i]) * right;
        }
    }
    for (int i = 0; i < KEY_TILE; i++)
        for (int v = 0; v < 2; v++) {
            float *to = out + (i * 2 + v) * LANES;
            store(to, load(to) * correction[v] + sum[i][v]);
        }
}

static void attend_block_many(const struct task *task, struct attention_state *state,
                              struct keys block) {
    const struct attention *a = task->a;
    const float *keys = a->keys + task->head * a->width;
    const float *values = a->values + task->head * a->width;
    const int64_t num_keys = block.last - block.first;
    int64_t k = 0;
    for (; k + KEY_TILE <= num_keys; k += KEY_TILE)
        score_tile(KEY_TILE, 2, keys, state->place + k, state->query, a->width,
                   state->scores + k * 2 * LANES);
    for (; k < num_keys; k++)
        score_tile(1, 2, keys, state->place + k, state->query, a->width,
                   state->scores + k * 2 * LANES);
    vec correction[2];
    soften_many(a, state, block, correction);
    for (int64_t d = 0; d < a->width; d += KEY_TILE)
        value_tile_many(values + d, state->place, num_keys, state->scores, correction,
                        state->out + d * 2 * LANES);
}

/* -- few rows -- */

/* One row's scores to weights[key]; its maximum and total move on. The correction of what was. */
INLINE float soften_row(const struct attention *a, const float *scores, struct keys block,
                        int32_t position, float *weights, float *maximum, float *total) {
    const int64_t num_keys = block.last - block.first;
    const int32_t oldest = a->window ? position - (int32_t)a->window : -1;
    for (int64_t k = 0; k < num_keys; k++) weights[k] = scores[k * LANES];
    for (int64_t k = num_keys; k % LANES != 0; k++) weights[k] = -INFINITY;
    vec highest = splat(*maximum);
    for (int64_t k = 0; k < num_keys; k += LANES) {
        vec score = load(weights + k);
        if (a->softcap != 0) score = soft_capped(score, a->softcap);
        for (int64_t lane = 0; lane < LANES && block.is_masked; lane++) {
            const int64_t at = block.first + k + lane;
            if (at > position || at <= oldest) score[lane] = -INFINITY;
        }
        store(weights + k, score);
        highest = higher(score, highest);
    }
    float top = *maximum, sum = 0;
    for (int lane = 0; lane < LANES; lane++) top = highest[lane] > top ? highest[lane] : top;
    for (int64_t k = 0; k < num_keys; k += LANES)
        store(weights + k, exponential(load(weights + k) - top));
    for (int64_t k = 0; k < num_keys; k++) sum += weights[k]; /* in order, as for many */
    const float correction = exponential(splat(*maximum - top))[0];
    *total = *total * correction + sum;
    *maximum = top;
    return correction;
}

/* out[row][dimension] of M rows and `vectors` of dimensions; weights [row][KEY_BLOCK]. */
INLINE void value_tile_few(const int M, const int vectors, const float *values,
                           const int64_t *place, int64_t num_keys, const float *weights,
                           const float *correction, float *out, int64_t width) {
    vec sum[ROW_TILE][4];
    for (int i = 0; i < M; i++)
        for (int v = 0; v < vectors; v++) sum[i][v] = (vec){0};
    for (int64_t k = 0; k < num_keys; k++) {
        const float *value = values + place[k];
        for (int v = 0; v < vectors; v++) {
            const vec some = load(value + v * LANES);
            for (int i = 0; i < M; i++) sum[i][v] += splat(weights[i * KEY_BLOCK + k]) * some;
        }
    }
    for (int i = 0; i < M; i++)
        for (int v = 0; v < vectors; v++) {
            float *to = out + i * width + v * LANES;
            store(to, load(to) * splat(correction[i]) + sum[i][v]);
        }
}

/* The same for dimensions [d, width) that fill no vector. */
static void value_rest_few(const float *values, const int64_t *place, int64_t num_keys,
                           const float *weights, float correction, float *out, int64_t d,
                           int64_t width) {
    for (; d < width; d++) {
        float sum = 0;
        for (int64_t k = 0; k < num_keys; k++) sum += weights[k] * values[place[k] + d];
        out[d] = out[d] * correction + sum;
    }
}

INLINE void value_rows(const int M, const float *values, const int64_t *place, int64_t num_keys,
                       const float *weights, const float *correction, float *out, int64_t width) {
    const int vectors = LANES == 16 ? 4 : 2; /* what the registers hold */
    int64_t d = 0;
    for (; d + vectors * LANES <= width; d += vectors * LANES)
        value_tile_few(M, vectors, values + d, place, num_keys, weights, correction, out + d, width);
    for (; d + LANES <= width; d += LANES)
        value_tile_few(M, 1, values + d, place, num_keys, weights, correction, out + d, width);
    for (int i = 0; i < M && d < width; i++)
        value_rest_few(values, place, num_keys, weights + i * KEY_BLOCK, correction[i],
                       out + i * width, d, width);
}

/* Keys and values of these places: a decode waits for memory, and nothing else would ask for what
 * lies in scattered blocks in time. */
INLINE void fetch(const float *keys, const float *values, const int64_t *place, int64_t num_keys,
                  int64_t width) {
    for (int64_t k = 0; k < num_keys; k++)
        for (int64_t d = 0; d < width; d += 16) {
            __builtin_prefetch(keys + place[k] + d);
            __builtin_prefetch(values + place[k] + d);
        }
}

/* One block of keys for one head, the following `num_next` fetched meanwhile. */
static void attend_block_few(const struct task *task, struct attention_state *state, int64_t head,
                             struct keys block, int64_t num_next) {
    const struct attention *a = task->a;
    const int64_t index = head - task->head, num_keys = block.last - block.first;
    const float *keys = a->keys + head * a->width, *values = a->values + head * a->width;
    const float *query = state->query + index * a->width * LANES;
    float *out = state->out + index * a->width * LANES, correction[LANES];
    int64_t k = 0;
    for (; k + KEY_TILE <= num_keys; k += KEY_TILE) {
        if (k < num_next)
            fetch(keys, values, state->next_place + k,
                  num_next - k < KEY_TILE ? num_next - k : KEY_TILE, a->width);
        score_tile(KEY_TILE, 1, keys, state->place + k, query, a->width, state->scores + k * LANES);
    }
    for (; k < num_keys; k++)
        score_tile(1, 1, keys, state->place + k, query, a->width, state->scores + k * LANES);
    for (int64_t row = 0; row < task->num_rows; row++)
        correction[row] = soften_row(a, state->scores + row, block, state->position[row],
                                     state->weights + row * KEY_BLOCK,
                                     state->maximum + index * LANES + row,
                                     state->total + index * LANES + row);
    for (int64_t row = 0; row < task->num_rows; row += ROW_TILE) {
        const float *weights = state->weights + row * KEY_BLOCK;
        float *to = out + row * a->width;
#define CASE(m) \
    case m: \
        value_rows(m, values, state->place, num_keys, weights, correction + row, to, a->width); \
        break;
        switch (task->num_rows - row) {
            CASE(1) CASE(2) CASE(3)
            default: CASE(4)
        }
#undef CASE
    }
}

/* -- a task -- */

static void load_queries(const struct task *task, struct attention_state *state) {
    const struct attention *a = task->a;
    const int64_t group = a->num_heads / a->num_kv_heads, lanes = task->lanes;
    const int64_t heads = task->last_head - task->head, size = heads * a->width * lanes;
    memset(state->query, 0, size * sizeof(float)); /* lanes without a row score 0 */
    memset(state->out, 0, size * sizeof(float));
    for (int64_t head = 0; head < heads; head++) {
        float *query = state->query + head * a->width * lanes;
        for (int64_t lane = 0; lane < task->num_rows; lane++) {
            const int64_t row = task->row + lane;
            const int64_t token = token_of(task, row);
            const float *from = a->query + token * a->query_stride +
                                ((task->head + head) * group + row % group) * a->width;
            for (int64_t d = 0; d < a->width; d++) query[d * lanes + lane] = from[d] * a->scaling;
        }
    }
    for (int64_t i = 0; i < heads * lanes; i++) {
        state->maximum[i] = LOW;
        state->total[i] = 0;
    }
}

static void store_outputs(const struct task *task, const struct attention_state *state) {
    const struct attention *a = task->a;
    const int64_t group = a->num_heads / a->num_kv_heads, lanes = task->lanes;
    const int64_t row_stride = lanes == LANES ? a->width : 1, stride = lanes == LANES ? 1 : lanes;
    for (int64_t head = 0; head < task->last_head - task->head; head++)
        for (int64_t lane = 0; lane < task->num_rows; lane++) {
            const int64_t row = task->row + lane;
            const int64_t token = token_of(task, row);
            const float *out = state->out + head * a->width * lanes + lane * row_stride;
            float *to = a->out + token * a->out_stride +
                        ((task->head + head) * group + row % group) * a->width;
            const float share = 1.0f / state->total[head * lanes + lane];
            for (int64_t d = 0; d < a->width; d++) to[d] = out[d * stride] * share;
        }
}

static void find_places(const struct attention *a, int64_t sequence, struct keys block,
                        int64_t *place) {
    const int32_t *table = a->block_table + sequence * a->table_stride;
    const int64_t size = a->num_kv_heads * a->width;
    int64_t cache_block = block.first / a->block_size, offset = block.first % a->block_size;
    for (int64_t k = block.first; k < block.last; k++) {
        place[k - block.first] = (table[cache_block] * a->block_size + offset) * size;
        if (++offset == a->block_size) {
            offset = 0;
            cache_block++;
        }
    }
}

/* The block of keys that begins at `first`; its end is the same for whoever comes. */
static struct keys block_at(int64_t first, int64_t limit) {
    const int64_t end = first / KEY_BLOCK * KEY_BLOCK + KEY_BLOCK;
    return (struct keys){.first = first, .last = end < limit ? end : limit};
}

/* Where a task begins, what it sees, and which rows see less. */
struct reach {
    int64_t oldest_query, newest_query, first;
};

static struct reach reach_of(const struct task *task) {
    const struct attention *a = task->a;
    const int64_t group = a->num_heads / a->num_kv_heads, start = a->start[task->sequence];
    const int64_t oldest_query = start + task->row / group;
    const int64_t newest_query = start + (task->row + task->num_rows - 1) / group;
    const int is_windowed = a->window && oldest_query >= a->window;
    return (struct reach){oldest_query, newest_query, is_windowed ? oldest_query - a->window + 1 : 0};
}

static void load_positions(const struct task *task, struct attention_state *state) {
    const struct attention *a = task->a;
    const int64_t group = a->num_heads / a->num_kv_heads, start = a->start[task->sequence];
    const int64_t newest_query = reach_of(task).newest_query;
    for (int64_t lane = 0; lane < 2 * LANES; lane++)
        state->position[lane] =
            (int32_t)(lane < task->num_rows ? start + (task->row + lane) / group : newest_query);
}

/* All blocks of keys from `first` on; the queries are loaded. */
static void attend_from(const struct task *task, struct attention_state *state, int64_t first) {
    const struct attention *a = task->a;
    const struct reach reach = reach_of(task);
    const int64_t limit = reach.newest_query + 1;
    const int is_few = task->lanes == LANES;
    struct keys block = block_at(first, limit);
    find_places(a, task->sequence, block, state->place);
    while (block.first < limit) {
        const struct keys next = block_at(block.last, limit);
        find_places(a, task->sequence, next, state->next_place);
        block.is_masked = block.last - 1 > reach.oldest_query ||
                          (a->window && reach.newest_query - a->window >= block.first);
        if (is_few)
            for (int64_t head = task->head; head < task->last_head; head++)
                attend_block_few(task, state, head, block, next.last - next.first);
        else attend_block_many(task, state, block);
        memcpy(state->place, state->next_place, sizeof state->place);
        block = next;
    }
    store_outputs(task, state);
}

/* Asks for the first block of keys before anything else is done. */
static void fetch_first(const struct task *task, struct attention_state *state, int64_t first) {
    const struct attention *a = task->a;
    const struct keys block = block_at(first, reach_of(task).newest_query + 1);
    const int64_t head_offset = task->head * a->width;
    find_places(a, task->sequence, block, state->place);
    fetch(a->keys + head_offset, a->values + head_offset, state->place, block.last - block.first,
          (task->last_head - task->head) * a->width);
}

static void attend(const struct task *task) {
    struct attention_state state;
    const int64_t first = reach_of(task).first;
    if (task->lanes == LANES) fetch_first(task, &state, first);
    load_queries(task, &state);
    load_positions(task, &state);
    attend_from(task, &state, first);
}

/* One member's rows out of the lanes that its fellows share, as a decode of its own has them. */
static void take_rows(const struct task *all, const struct attention_state *shared, int64_t lane,
                      const struct task *own, struct attention_state *state) {
    const int64_t width = all->a->width;
    memset(state->query, 0, width * LANES * sizeof(float));
    for (int64_t row = 0; row < LANES; row++) {
        state->maximum[row] = LOW;
        state->total[row] = 0;
    }
    for (int64_t row = 0; row < own->num_rows; row++) {
        state->maximum[row] = shared->maximum[lane + row];
        state->total[row] = shared->total[lane + row];
        for (int64_t d = 0; d < width; d++) {
            state->query[d * LANES + row] = shared->query[d * 2 * LANES + lane + row];
            state->out[row * width + d] = shared->out[d * 2 * LANES + lane + row];
        }
    }
}

/* Decodes whose first keys are the same ones: these are read once for all of them, many rows side by
 * side; then each goes on alone. The sums of each row are those that it would have by itself. */
static void attend_together(const struct attention *a, const int32_t *members, int64_t num_members,
                            int64_t num_shared, int64_t head) {
    struct attention_state shared, state;
    const int64_t group = a->num_heads / a->num_kv_heads;
    const struct task all = {
        .a = a, .sequence = members[0], .num_rows = num_members * group, .head = head,
        .last_head = head + 1, .lanes = 2 * LANES, .members = members,
    };
    load_queries(&all, &shared);
    for (int64_t first = 0; first < num_shared; first += KEY_BLOCK) {
        const struct keys block = {first, first + KEY_BLOCK, 0};
        find_places(a, members[0], block, shared.place);
        attend_block_many(&all, &shared, block);
    }
    for (int64_t i = 0; i < num_members; i++) {
        const struct task own = {
            .a = a, .sequence = members[i], .num_rows = group, .head = head,
            .last_head = head + 1, .lanes = LANES,
        };
        fetch_first(&own, &state, num_shared);
        take_rows(&all, &shared, i * group, &own, &state);
        load_positions(&own, &state);
        attend_from(&own, &state, num_shared);
    }
}

/* Heads of one task: those of a token lie side by side in memory, so read them together, unless
 * there would be too little to share out, or the state too big. */
static int64_t heads_together(const struct attention *a, int64_t rows, int size) {
    int64_t heads = MAX_STATE / (a->width * LANES);
    if (rows > LANES || a->num_sequences < 4 * size) heads = 1;
    return heads < a->num_kv_heads ? heads : a->num_kv_heads;
}

/* The tasks of one sequence: tiles of its rows, times groups of heads. */
static int64_t num_tasks_of(const struct attention *a, int64_t sequence, int size) {
    const int64_t rows = a->count[sequence] * (a->num_heads / a->num_kv_heads);
    const int64_t heads = heads_together(a, rows, size);
    return (rows + PANEL - 1) / PANEL * ((a->num_kv_heads + heads - 1) / heads);
}

static void attend_alone(const struct attention *a, int64_t sequence, int size, int64_t index) {
    const int64_t rows = a->count[sequence] * (a->num_heads / a->num_kv_heads);
    const int64_t heads = heads_together(a, rows, size), tiles = (rows + PANEL - 1) / PANEL;
    /* long tiles first */
    const int64_t row = (tiles - 1 - index % tiles) * PANEL, head = index / tiles * heads;
    const int64_t num_rows = rows - row < PANEL ? rows - row : PANEL;
    const struct task task = {
        .a = a,
        .sequence = sequence,
        .row = row,
        .num_rows = num_rows,
        .head = head,
        .last_head = head + heads < a->num_kv_heads ? head + heads : a->num_kv_heads,
        .lanes = num_rows <= LANES ? LANES : 2 * LANES,
    };
    attend(&task);
}

static void attention_phase(struct member *me, const void *job) {
    const struct attention *a = job;
    const int has_units = a->num_units && !a->window;
    const int64_t num_units = has_units ? a->num_units : a->num_sequences;
    int64_t unit = 0, before = 0; /* tasks of the units before this one */
    long task, end;
    while (unit < num_units && take(me, INT64_MAX / 2, 1, &task, &end)) {
        for (; unit < num_units; unit++) {
            const int64_t count = has_units ? a->unit_count[unit] : 1;
            const int32_t *members = has_units ? a->order + a->unit_first[unit] : 0;
            const int64_t sequence = has_units ? members[0] : unit;
            const int64_t tasks = count > 1 ? a->num_kv_heads : num_tasks_of(a, sequence, me->size);
            const int64_t index = task - before;
            if (index < tasks) {
                if (count > 1) attend_together(a, members, count, a->unit_shared[unit], index);
                else attend_alone(a, sequence, me->size, index);
                break;
            }
            before += tasks;
        }
    }
}

void tk_attention(const struct attention *a, int num_threads) {
    run(attention_phase, a, num_threads);
}

/* ---- small operators ----------------------------------------------------------------------- */

INLINE void normalize(const float *x, const float *weight, float *y, int64_t width, float epsilon) {
    vec squares = {0};
    int64_t i = 0;
    for (; i + LANES <= width; i += LANES) squares += load(x + i) * load(x + i);
    float sum = sum_lanes(squares);
    for (; i < width; i++) sum += x[i] * x[i];
    const float scale = 1.0f / sqrtf(sum / (float)width + epsilon);
    for (i = 0; i + LANES <= width; i += LANES)
        store(y + i, load(weight + i) * (load(x + i) * scale));
    for (; i < width; i++) y[i] = weight[i] * (x[i] * scale);
}

struct norm {
    float *x;           /* [T, E] */
    const float *added; /* [T, E], added to x first; may be null */
    const float *weight;
    float *y; /* [T, E] */
    int64_t rows, width;
    float epsilon;
};

static void norm_phase(struct member *me, const void *job) {
    const struct norm *n = job;
    long first, last;
    while (take(me, n->rows, grain_of(me, n->rows), &first, &last))
        for (int64_t row = first; row < last; row++) {
            float *x = n->x + row * n->width;
            if (n->added)
                for (int64_t i = 0; i < n->width; i++) x[i] += n->added[row * n->width + i];
            normalize(x, n->weight, n->y + row * n->width, n->width, n->epsilon);
        }
}

void tk_norm(const struct norm *n, int num_threads) { run(norm_phase, n, num_threads); }

/* Rotates queries in place, and writes rotated keys, and values, to their slots. */
struct rotary {
    float *qkv;                 /* [T, (H + 2 K) D]: queries, keys, values */
    float *keys, *values;       /* [slots, K, D] */
    const float *cosine, *sine; /* [P, D / 2] */
    const int64_t *position;    /* [T], rows of cosine and sine */
    const int64_t *slot;        /* [T] */
    const float *query_norm;    /* [D], Qwen3: RMS norm of each head before the rotation; or null */
    const float *key_norm;
    int64_t rows, num_heads, num_kv_heads, width, qkv_stride;
    float epsilon;
};

INLINE void rotate(const float *from, float *to, const float *cosine, const float *sine,
                   int64_t width) {
    const int64_t half = width / 2;
    int64_t i = 0;
    for (; i + LANES <= half; i += LANES) {
        const vec a = load(from + i), b = load(from + half + i);
        const vec c = load(cosine + i), s = load(sine + i);
        store(to + i, a * c - b * s);
        store(to + half + i, b * c + a * s);
    }
    for (; i < half; i++) {
        const float a = from[i], b = from[half + i];
        to[i] = a * cosine[i] - b * sine[i];
        to[half + i] = b * cosine[i] + a * sine[i];
    }
}

static void rotate_token(const struct rotary *r, int64_t token) {
    const int64_t D = r->width, half = D / 2;
    const float *cosine = r->cosine + r->position[token] * half;
    const float *sine = r->sine + r->position[token] * half;
    float *query = r->qkv + token * r->qkv_stride;
    float *key = query + r->num_heads * D, *value = key + r->num_kv_heads * D;
    const int64_t slot = r->slot[token] * r->num_kv_heads * D;
    for (int64_t head = 0; head < r->num_heads; head++) {
        float *q = query + head * D;
        if (r->query_norm) normalize(q, r->query_norm, q, D, r->epsilon);
        rotate(q, q, cosine, sine, D);
    }
    for (int64_t head = 0; head < r->num_kv_heads; head++) {
        float *k = key + head * D;
        if (r->key_norm) normalize(k, r->key_norm, k, D, r->epsilon);
        rotate(k, r->keys + slot + head * D, cosine, sine, D);
    }
    memcpy(r->values + slot, value, r->num_kv_heads * D * sizeof(float));
}

static void rotary_phase(struct member *me, const void *job) {
    const struct rotary *r = job;
    long first, last;
    while (take(me, r->rows, grain_of(me, r->rows), &first, &last))
        for (int64_t token = first; token < last; token++) rotate_token(r, token);
}

void tk_rotary(const struct rotary *r, int num_threads) { run(rotary_phase, r, num_threads); }

struct gather {
    const float *from;    /* [.., width] */
    const int64_t *index; /* [T] */
    float *to;            /* [T, width] */
    int64_t rows, width;
};

static void gather_phase(struct member *me, const void *job) {
    const struct gather *g = job;
    long first, last;
    while (take(me, g->rows, grain_of(me, g->rows), &first, &last))
        for (int64_t row = first; row < last; row++)
            memcpy(g->to + row * g->width, g->from + g->index[row] * g->width,
                   g->width * sizeof(float));
}

struct highest {
    const float *rows;
    int64_t *index;     /* [R] the lowest index of the highest value; NaN is never it */
    uint8_t *is_finite; /* [R] whether the row holds neither NaN nor infinity */
    int64_t num_rows, width;
};

INLINE int all_finite(const float *x, int64_t width) {
    ivec bad = {0};
    int64_t i = 0;
    for (; i + LANES <= width; i += LANES) {
        const ivec exponent = (ivec)load(x + i) & 0x7f800000;
        bad |= exponent == 0x7f800000;
    }
    int is_bad = 0;
    for (int lane = 0; lane < LANES; lane++) is_bad |= bad[lane];
    for (; i < width; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, 4);
        is_bad |= (bits & 0x7f800000) == 0x7f800000;
    }
    return !is_bad;
}

static int64_t highest_of(const float *x, int64_t width) {
    vec best = splat(-INFINITY);
    int64_t i = 0;
    for (; i + LANES <= width; i += LANES) {
        const vec value = load(x + i);
        best = choose(value > best, value, best);
    }
    float highest = -INFINITY;
    for (int lane = 0; lane < LANES; lane++)
        if (best[lane] > highest) highest = best[lane];
    for (; i < width; i++)
        if (x[i] > highest) highest = x[i];
    for (i = 0; i < width; i++)
        if (x[i] == highest) return i;
    return 0;
}

static void highest_phase(struct member *me, const void *job) {
    const struct highest *h = job;
    long row, end;
    while (take(me, h->num_rows, 1, &row, &end)) {
        h->index[row] = highest_of(h->rows + row * h->width, h->width);
        h->is_finite[row] = (uint8_t)all_finite(h->rows + row * h->width, h->width);
    }
}

void tk_highest(const struct highest *h, int num_threads) { run(highest_phase, h, num_threads); }

/* ---- a whole forward pass ------------------------------------------------------------------ */

struct weight {
    const char *panels;
    const float *bias; /* may be null */
    int64_t kind;
};

struct layer {
    const float *attention_norm, *mlp_norm; /* [E] */
    const float *query_norm, *key_norm;     /* [D]; may be null */
    struct weight qkv, out, gate_up, down;  /* gate_up gated */
    float *keys, *values;                   /* [slots, K, D] */
    int64_t window;                         /* 0 = none */
};

struct model {
    const float *embedding; /* [V, E] */
    const float *norm;      /* [E], the last */
    struct weight head;
    const struct layer *layers;
    int64_t num_layers, model_width, num_heads, num_kv_heads, width, gated_width, vocabulary;
    int64_t block_size;
    float epsilon, scaling, softcap;
};

struct step {
    const int64_t *token_ids, *position, *slot; /* [T] */
    const float *cosine, *sine;                 /* [P, D / 2] */
    const int32_t *block_table, *first, *count, *start;
    const int32_t *order, *unit_first, *unit_count, *unit_shared;
    const int64_t *sample_token;                  /* [R] */
    float *x, *normed, *qkv, *attended, *gated;   /* workspace of T rows each */
    float *logits;                                /* [R, V] */
    uint8_t *is_finite;                           /* [T] of the last layer's output */
    int64_t num_tokens, num_sequences, num_samples, num_units, table_stride;
};

struct forward {
    const struct model *model;
    const struct step *step;
};

static void multiply(struct member *me, const struct weight *w, const float *x, int64_t inner,
                     float *y, int64_t columns, int64_t rows, enum epilogue epilogue) {
    const struct product p = {
        .x = x,
        .weights = w->panels,
        .bias = w->bias,
        .y = y,
        .x_stride = inner,
        .y_stride = epilogue == GATED ? columns / 2 : columns,
        .rows = rows,
        .inner = inner,
        .columns = columns,
        .epilogue = epilogue,
        .kind = w->kind,
    };
    product_phase(me, &p);
    end_phase(me);
}

static void norm_rows(struct member *me, const struct forward *f, const float *weight, int64_t rows) {
    const struct norm n = {
        .x = f->step->x,
        .weight = weight,
        .y = f->step->normed,
        .rows = rows,
        .width = f->model->model_width,
        .epsilon = f->model->epsilon,
    };
    norm_phase(me, &n);
    end_phase(me);
}

static void attend_layer(struct member *me, const struct forward *f, const struct layer *layer) {
    const struct model *m = f->model;
    const struct step *s = f->step;
    const int64_t qkv_width = (m->num_heads + 2 * m->num_kv_heads) * m->width;
    const struct rotary r = {
        .qkv = s->qkv,
        .keys = layer->keys,
        .values = layer->values,
        .cosine = s->cosine,
        .sine = s->sine,
        .position = s->position,
        .slot = s->slot,
        .query_norm = layer->query_norm,
        .key_norm = layer->key_norm,
        .rows = s->num_tokens,
        .num_heads = m->num_heads,
        .num_kv_heads = m->num_kv_heads,
        .width = m->width,
        .qkv_stride = qkv_width,
        .epsilon = m->epsilon,
    };
    rotary_phase(me, &r);
    end_phase(me);
    const struct attention a = {
        .query = s->qkv,
        .keys = layer->keys,
        .values = layer->values,
        .out = s->attended,
        .block_table = s->block_table,
        .first = s->first,
        .count = s->count,
        .start = s->start,
        .order = s->order,
        .unit_first = s->unit_first,
        .unit_count = s->unit_count,
        .unit_shared = s->unit_shared,
        .num_units = s->num_units,
        .query_stride = qkv_width,
        .out_stride = m->num_heads * m->width,
        .table_stride = s->table_stride,
        .num_sequences = s->num_sequences,
        .num_heads = m->num_heads,
        .num_kv_heads = m->num_kv_heads,
        .width = m->width,
        .block_size = m->block_size,
        .window = layer->window,
        .scaling = m->scaling,
        .softcap = m->softcap,
    };
    attention_phase(me, &a);
    end_phase(me);
}

static void run_layer(struct member *me, const struct forward *f, const struct layer *layer) {
    const struct model *m = f->model;
    const struct step *s = f->step;
    const int64_t E = m->model_width, I = m->gated_width, T = s->num_tokens;
    const int64_t heads_width = m->num_heads * m->width;
    norm_rows(me, f, layer->attention_norm, T);
    multiply(me, &layer->qkv, s->normed, E, s->qkv, heads_width + 2 * m->num_kv_heads * m->width, T,
             STORE);
    attend_layer(me, f, layer);
    multiply(me, &layer->out, s->attended, heads_width, s->x, E, T, ADD);
    norm_rows(me, f, layer->mlp_norm, T);
    multiply(me, &layer->gate_up, s->normed, E, s->gated, 2 * I, T, GATED);
    multiply(me, &layer->down, s->gated, I, s->x, E, T, ADD);
}

/* Norm of the rows that sample, into `normed`; and which tokens came out as numbers. */
static void finish_rows(struct member *me, const struct forward *f) {
    const struct step *s = f->step;
    const int64_t E = f->model->model_width;
    long first, last;
    while (take(me, s->num_samples, 1, &first, &last))
        normalize(s->x + s->sample_token[first] * E, f->model->norm, s->normed + first * E, E,
                  f->model->epsilon);
    end_phase(me);
    while (take(me, s->num_tokens, grain_of(me, s->num_tokens), &first, &last))
        for (int64_t token = first; token < last; token++)
            s->is_finite[token] = (uint8_t)all_finite(s->x + token * E, E);
    end_phase(me);
}

static void forward_phase(struct member *me, const void *job) {
    const struct forward *f = job;
    const struct model *m = f->model;
    const struct step *s = f->step;
    const struct gather embed = {
        .from = m->embedding,
        .index = s->token_ids,
        .to = s->x,
        .rows = s->num_tokens,
        .width = m->model_width,
    };
    gather_phase(me, &embed);
    end_phase(me);
    for (int64_t layer = 0; layer < m->num_layers; layer++) run_layer(me, f, &m->layers[layer]);
    finish_rows(me, f);
    multiply(me, &m->head, s->normed, m->model_width, s->logits, m->vocabulary, s->num_samples,
             STORE);
}

void tk_forward(const struct model *model, const struct step *step, int num_threads) {
    const struct forward f = {model, step};
    run(forward_phase, &f, num_threads);
}

/* ---- what the caller needs to know --------------------------------------------------------- */

int tk_lanes(void) { return LANES; }

/* Sizes of the argument blocks, for a test of their mirror images in Python. */
int64_t tk_size_of(int which) {
    const int64_t sizes[] = {
        sizeof(struct product), sizeof(struct attention), sizeof(struct norm), sizeof(struct rotary),
        sizeof(struct highest), sizeof(struct layer),     sizeof(struct model), sizeof(struct step),
    };
    return which < (int)(sizeof sizes / sizeof *sizes) ? sizes[which] : -1;
}
