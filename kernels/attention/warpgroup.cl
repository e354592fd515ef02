// kernels/attention/warpgroup.cl: attention on warpgroup tensor cores, without the matrix of scores in memory. The
// pipeline is in tensor_core/warpgroup.cl. Comes after attention/scores.cl and attention/shared_warpgroup.cl.
//
//   s = SCALE q k^T + mask      p = exp(s - row_max) / row_sum      out = p v
//   sums = (row_max, row_sum): maximum of s, and sum of exp(s - row_max), over the keys
//
//                        TILE_C keys per step
//                     +--------------+----         A consumer's 64 queries of a step:
//   consumer 0   64   | s: registers |               s = q k^T                    q and k from local memory
//                     +--------------+ next step     p = exp(s - row_max)         in registers; four lanes share a row
//   consumer 1   64   |              |               out = rescale out + p v      p from registers, v from local memory
//                     +--------------+----
//
// A task is TILE_M queries of a head. Work-groups are persistent: each computes several tasks, and its producers go on
// with the next task while its consumers finish one. The queries of a task are in one of two buffers in local memory.
// The producers bring the keys of a step in one stage of the pipeline, then its values in the next.
//   operands of 16 bits: a tile is [blocks of 64 of the depth][rows][64]. wgmma reads k with the depth contiguous and v
//   with the columns contiguous.
//   operands of 32 bits: a tile is two blocks of 32 of the depth, [64][32], the high part and then the low part. v is
//   transposed while it is stored, [head size][keys]. wgmma expects p from another lane than the one that has computed
//   it. So the keys of v are permuted: position i of eight neighbours holds key 2i (i < 4) or 2(i - 4) + 1.
//
// Arguments and epilogue macros are those of attention/group.cl with PASS 0. SCALE is positive. Store dimension d.
// Global size: (any number of work-groups up to that of tasks, with BLOCKS that of tasks, times GROUP_SIZE, 1, 1), local
// size (GROUP_SIZE, 1, 1).
#ifndef OVERLAP
#define OVERLAP HALVES  // 1: the values of a step are multiplied during the softmax of the next; needs 16-bit operands
#endif
#ifndef ONE_STEP
#define ONE_STEP 0  // number of keys if they are 1 to TILE_C, else 0
#endif
// Makes that number a constant, so that only scores behind the last key are masked.
#if ONE_STEP
#define KNOWN_KEYS() const int keys = ONE_STEP
#else
#define KNOWN_KEYS()
#endif

// ---- producer ----
// The operands of all heads, with their strides.
typedef struct {
  __global const OPERAND_T *q, *k, *v;
  long q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row;
  int heads_per_kv, queries, keys;
} Operands;
// The keys and values that the producers copy in `steps` steps. k, v: their first rows; k_row, v_row: strides of rows;
// keys: number of rows.
typedef struct {
  __global const OPERAND_T *k, *v;
  long k_row, v_row;
  int keys, steps;
} KeyValues;

// 1: a task has a step even if there are no keys; its scores are hidden then.
#define HAS_STEP (!BLOCKS && !MASK)
// Returns the number of the steps of a task.
ALWAYS_INLINE int steps_of(const Task task, const int keys) {
  return ONE_STEP ? 1 : (max(CAUSAL ? min(keys, task.rows + TILE_M) : keys, HAS_STEP) + TILE_C - 1) / TILE_C;
}
ALWAYS_INLINE void stage_queries(__local OPERAND_T* to, const Operands o, const Task task, const int direct) {
  stage_rows(to, o.q + task.batch * o.q_batch + task.head * o.q_head + task.rows * o.q_row, o.q_row,
             o.queries - task.rows, DEPTH, TILE_M, direct);
}

// Each version of produce stages the steps of a task. n: number of the steps taken before, over all tasks. Returns the
// number of those taken after it.
#if HALVES
ALWAYS_INLINE int produce(const Pipeline line, const KeyValues o, int n, const int direct SEEN_PARAMS) {
  for (int step = seen_from(0, o.steps SEEN_PASS); step < o.steps; step = seen_from(step + 1, o.steps SEEN_PASS)) {
    const int left = o.keys - step * TILE_C;
    stage_rows(producer_acquire(line, 2 * n), o.k + step * TILE_C * o.k_row, o.k_row, left, DEPTH, TILE_C, direct);
    producer_commit(line, 2 * n);
    stage_rows(producer_acquire(line, 2 * n + 1), o.v + step * TILE_C * o.v_row, o.v_row, left, WIDTH, TILE_C, direct);
    producer_commit(line, 2 * n + 1);
    ++n;
  }
  return n;
}
#else
#define HELD (2 * B_CHUNKS)  // number of float4 of a tile that a producer holds in registers, two blocks of 4
ALWAYS_INLINE void fetch_keys(float4* held, const KeyValues o, const int step, const int quads) {
  const int p = get_local_id(0) - CONSUMERS * 128;
  OCL_UNROLL
  for (int i = 0; i < HELD; ++i) {
    const int row = step * TILE_C + (p >> 3) + i % B_CHUNKS * ROWS_APART, d = i / B_CHUNKS * TILE_K + (p & 7) * 4;
    held[i] = fetch_quad(o.k + row * o.k_row + d, 1, row < o.keys ? DEPTH - d : 0, quads);
  }
}
ALWAYS_INLINE void fetch_values(float4* held, const KeyValues o, const int step, const int quads) {
  const int p = get_local_id(0) - CONSUMERS * 128, quad = p & 7, column = value_column(p);
  OCL_UNROLL
  for (int i = 0; i < HELD; ++i) {
    const int row = step * TILE_C + i / 4 * TILE_K + (quad >> 1) * 8 + i % 4 * 2 + (quad & 1);  // permuted (file head)
    held[i] = fetch_quad(o.v + row * o.v_row + column, 1, row < o.keys ? WIDTH - column : 0, quads);
  }
}
ALWAYS_INLINE void put_keys(const Pipeline line, const float4* held, const int n) {
  const int p = get_local_id(0) - CONSUMERS * 128;
  __local float* to = producer_acquire(line, 2 * n);
  OCL_UNROLL
  for (int i = 0; i < HELD; ++i)
    store_row_quad(to + i / B_CHUNKS * PIECES * B_ELEMENTS, (p >> 3) + i % B_CHUNKS * ROWS_APART, p & 7, held[i]);
  producer_commit(line, 2 * n);
}
ALWAYS_INLINE void put_values(const Pipeline line, const float4* held, const int n) {
  const int p = get_local_id(0) - CONSUMERS * 128;
  __local float* to = producer_acquire(line, 2 * n + 1);
  store_transposed_block(to, value_column(p), p & 7, held);
  store_transposed_block(to + PIECES * B_ELEMENTS, value_column(p), p & 7, held + 4);
  producer_commit(line, 2 * n + 1);
}
// Loads the keys and values of a step into registers one step before it stores them.
ALWAYS_INLINE int produce(const Pipeline line, const KeyValues o, int n, const int quads SEEN_PARAMS) {
  float4 keys[HELD], values[HELD];
  const int before = n;
  int more = 1;
  for (int step = seen_from(0, o.steps SEEN_PASS); more; step = seen_from(step + 1, o.steps SEEN_PASS)) {
    more = step < o.steps;
    if (n > before) put_keys(line, keys, n - 1);
    if (more) fetch_keys(keys, o, step, quads);
    if (n > before) put_values(line, values, n - 1);
    if (more) fetch_values(values, o, step, quads);
    n += more;
  }
  return n;
}
#endif
// Stages all tasks of the work-group. With BLOCKS there is one, whose queries are staged. The copies of queries are
// published with the first keys of their task.
ALWAYS_INLINE void produce_tasks(const Pipeline line, __local OPERAND_T* q_tiles, const Operands o, const Tasks tasks,
                                 const int direct SEEN_PARAMS) {
  int n = 0;
  FOR_TASKS(i, tasks) {
    const Task task = task_at(i, tasks);
    const int steps = steps_of(task, o.keys), kv_head = task.head / o.heads_per_kv;
    if (!BLOCKS && steps > 0) stage_queries(q_tiles + acquire_rows(line, i) * TILE_M * DEPTH_TILE, o, task, direct);
    const KeyValues of = {o.k + task.batch * o.k_batch + kv_head * o.k_head,
                          o.v + task.batch * o.v_batch + kv_head * o.v_head,
                          o.k_row,
                          o.v_row,
                          o.keys,
                          steps};
    n = produce(line, of, n, direct SEEN_PASS);
  }
#if HALVES
  producer_finish(line, 2 * n);
#endif
}

#if BOXES
// Makes the tensor maps of queries, keys and values, and writes their addresses to `places`. Three warps do it at the same
// time, since a map takes 1,000 cycles.
ALWAYS_INLINE void make_maps(__local ulong* places, __local ulong* maps, const Operands o, const Tasks tasks) {
  const int which = get_local_id(0) >> 5, q = which == 0, v = which == 2;  // 0: q, 1: k, 2: v
  if (which > 2) return;
#define OF_OPERAND(what) (q ? o.q##what : v ? o.v##what : o.k##what)
  const ulong place = head_map(maps + 16 * which, which, OF_OPERAND(), v ? WIDTH : DEPTH, q ? o.queries : o.keys,
                               q ? tasks.heads : tasks.heads / o.heads_per_kv, tasks.batches, OF_OPERAND(_row),
                               OF_OPERAND(_head), OF_OPERAND(_batch), q ? TILE_M : TILE_C);
  if ((get_local_id(0) & 31) == 0) places[which] = place;
}
// Stages all tasks of the work-group in boxes, with one work-item. The queries of a task come with its first keys: they count
// in the same mbarrier.
ALWAYS_INLINE void produce_boxes(const Pipeline line, __local OPERAND_T* q_tiles, const Operands o, const Tasks tasks,
                                 __local const ulong* places) {
  if (get_local_id(0) != CONSUMERS * 128) return;
  const uint bytes = STAGE_ELEMENTS * sizeof(OPERAND_T), q_bytes = TILE_M * DEPTH_TILE * sizeof(OPERAND_T);
  for (int i = 0; i < 3; ++i) acquire_map(places[i]);
  int n = 0;
  FOR_TASKS(i, tasks) {
    const Task task = task_at(i, tasks);
    const int steps = steps_of(task, o.keys), kv_head = task.head / o.heads_per_kv;
    for (int step = 0; step < steps; ++step) {
      OCL_UNROLL
      for (int v = 0; v < 2; ++v, ++n) {
        __local OPERAND_T* to = producer_acquire(line, n);
        const uint full = line.full + 8 * (n % STAGES);
        const int first = !v && step == 0;
        barrier_expect(full, first ? bytes + q_bytes : bytes);
        if (first)
          copy_head_box(local_address(q_tiles + acquire_rows(line, i) * TILE_M * DEPTH_TILE), places[0], task.rows,
                        task.head, task.batch, full);
        copy_head_box(local_address(to), places[1 + v], step * TILE_C, kv_head, task.batch, full);
      }
    }
  }
}
#define DECLARE_MAPS(boxes, o, tasks)                       \
  __local ulong maps[3 * 16] __attribute__((aligned(128))); \
  __local ulong places[3];                                  \
  if (boxes) make_maps(places, maps, o, tasks)
#define PRODUCE()                                   \
  if (boxes)                                        \
    produce_boxes(line, q_tiles, o, tasks, places); \
  else                                              \
    produce_tasks(line, q_tiles, o, tasks, 0)
#else
#define DECLARE_MAPS(boxes, o, tasks)
#define PRODUCE()                                        \
  if (direct)                                            \
    produce_tasks(line, q_tiles, o, tasks, 1 SEEN_PASS); \
  else                                                   \
    produce_tasks(line, q_tiles, o, tasks, 0 SEEN_PASS)
#endif

// ---- consumer ----
// 1: two consumers, which take as many steps, issue products in turns. So one computes its softmax while the tensor cores have
// products of the other. Otherwise both would wait for the tensor cores at the same time, and then for the exponentials.
#define SOFTMAX_TURNS (OVERLAP && CONSUMERS == 2 && (!CAUSAL || TILE_C % TILE_M == 0))
#if SOFTMAX_TURNS
// Makes an mbarrier for each of the consumers, at which the warps of the other one arrive. Comes before PIPELINE.
#define DECLARE_SOFTMAX_TURNS(name)                            \
  __local ulong name##_bars[2];                                \
  const uint name = local_address(name##_bars);                \
  if (get_local_id(0) == 0) {                                  \
    for (int i = 0; i < 2; ++i) barrier_init(name + 8 * i, 4); \
  }
#else
#define DECLARE_SOFTMAX_TURNS(name) const uint name = 0
#endif
#if HALVES
// Waits until it is the consumer's turn to issue the products of step n: consumer 1 follows consumer 0.
ALWAYS_INLINE void wait_for_turn(const uint turns, const int n) {
  const int before = n + warpgroup_number() - 1;  // the step whose products the other consumer issues before
  if (SOFTMAX_TURNS && before >= 0) barrier_wait(turns + 8 * warpgroup_number(), before & 1);
}
ALWAYS_INLINE void pass_turn(const uint turns) {
  if (SOFTMAX_TURNS) consumer_release_at(turns + 8 * (1 - warpgroup_number()));
}
// Returns where the keys of step n lie, and waits for them if there are any.
ALWAYS_INLINE __local const OPERAND_T* next_keys(const Pipeline line, const int n, const int any) {
  if (any) consumer_wait(line, 2 * n);
  return line.stages + 2 * n % STAGES * STAGE_ELEMENTS;
}
// With OVERLAP, the products with the values of a step are issued during the softmax of the next one. The scores of a task's first step are multiplied while the results
// of the task before are stored. Behind the last task they are issued in vain: under a condition, products would be serialized.
//
// Begins the scores of step n.
ALWAYS_INLINE void begin_step(float* s, __local const OPERAND_T* q_tile, __local const OPERAND_T* k_tile,
                              const uint turns, const int n) {
  wait_for_turn(turns, n);
  begin_scores(s, q_tile, k_tile);
  pass_turn(turns);
}
// Begins out += p v of the last step of a task, and the scores of step n, the first one of the next task.
ALWAYS_INLINE void begin_next_task(float* s, float* out, __local const OPERAND_T* q_tile,
                                   __local const OPERAND_T* k_tile, const uint* p, __local const OPERAND_T* v_tile,
                                   const uint turns, const int n) {
  wait_for_turn(turns, n);
  begin_values(out, p, v_tile);
  begin_scores(s, q_tile, k_tile);
  pass_turn(turns);
}
#define QUARTER (TILE_C / 64 * 16)  // of the keys of a step, a multiple of 16; the last one may have more
// softmax_step of a step, and out += p v of the step before: its products are issued a quarter at a time between parts of the
// softmax. Otherwise the work-items would wait until the tensor cores have begun the last of them.
ALWAYS_INLINE void softmax_beside_values(float* s, float* row_max, float* row_sum, float* rescale, float* out,
                                         const uint* p, __local const OPERAND_T* v_tile) {
  float shift[2];
  begin_some_values(out, p, v_tile, 0, QUARTER);
  OCL_UNROLL
  for (int half_ = 0; half_ < 2; ++half_) {
    shift[half_] = softmax_shift(s, row_max, rescale, half_);
    begin_some_values(out, p, v_tile, (1 + half_) * QUARTER, (2 + half_) * QUARTER);
  }
  softmax_exponentials(s, row_sum, rescale, shift[0], 0);
  begin_some_values(out, p, v_tile, 3 * QUARTER, TILE_C);
  softmax_exponentials(s, row_sum, rescale, shift[1], 1);
}
#define WAIT_SCORES(but, n)                                  \
  WGMMA_WAIT(but);                                           \
  OCL_UNROLL                                                 \
  for (int i = 0; i < TILE_C / 2; ++i) FENCE_REGISTER(s[i]); \
  consumer_release(line, 2 * (n))
// A wait for an mbarrier comes before, if a softmax runs beside the products: its loop keeps the assembler from moving this wait
// before the softmax.
#define WAIT_VALUES(but, n)                                        \
  WGMMA_WAIT(but);                                                 \
  OCL_UNROLL                                                       \
  for (int i = 0; i < DEPTH_TILE / 2; ++i) FENCE_REGISTER(out[i]); \
  consumer_release(line, 2 * (n) + 1)
#endif

// Replaces the scores of a step by its weights. softmax: a call of softmax_step or softmax_beside_values.
#define SCORES_TO_WEIGHTS(c0, softmax)            \
  MASK_SCORES(s, row, first, c0, IS_SHOWN(step)); \
  softmax;                                        \
  DROP_SCORES(s, keep_bits)

__kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  DECLARE_SOFTMAX_TURNS(turns);
  const int direct = DIRECT && CHUNK_ALIGNED(q_offset) && CHUNK_ALIGNED(k_offset) && CHUNK_ALIGNED(v_offset);
  const int boxes = BOXES && direct && keys > 0;  // A tensor map has at least one row.
  const Tasks tasks = {(queries + TILE_M - 1) / TILE_M, heads, batches};
  const Operands o = {q + q_offset, k + k_offset, v + v_offset, q_batch, q_head,       q_row,   k_batch, k_head,
                      k_row,        v_batch,      v_head,       v_row,   heads_per_kv, queries, keys};
  DECLARE_MAPS(boxes, o, tasks);
  PIPELINE_OF(line, boxes ? 1 : FULL_ARRIVALS);
  __local OPERAND_T q_tiles[HELD_TILES * TILE_M * DEPTH_TILE] __attribute__((aligned(1024)));
  const int produces = get_local_id(0) >= CONSUMERS * 128;
#if BLOCKS
  // The queries are on their way while the work-group marks the steps.
  const Task only = task_at(0, tasks);
  const int r0 = only.rows, batch = only.batch;
  if (produces) stage_queries(q_tiles, o, only, direct);
  MARK_SEEN(only.head, queries, keys, 0, steps_of(only, keys), 1);
#endif
  if (produces) {
    PRODUCERS_BEGIN();
    PRODUCE();
    return;
  }
  CONSUMERS_BEGIN();

  const int lane = get_local_id(0) & 31;
#if STORED_MASK
  __global const MASK_T* const masks = mask + mask_offset;
#endif
  int n = 0;  // number of the steps taken, over all tasks
  float s[TILE_C / 2];
#if OVERLAP
  const int first_steps = steps_of(task_at(0, tasks), keys);
  begin_step(s, q_tiles, next_keys(line, 0, seen_from(0, first_steps SEEN_PASS) < first_steps), turns, 0);
#endif
  FOR_TASKS(i, tasks) {
    const Task task = task_at(i, tasks);
    KNOWN_KEYS();
    const int head = task.head, batch = task.batch, steps = steps_of(task, keys);
    const int row = task.rows + (get_local_id(0) >> 5) * 16 + (lane >> 2);
    const int first = task.rows + warpgroup_number() * 64;  // the warpgroup's first row
    __local const OPERAND_T* q_tile = q_tiles + i % HELD_TILES * TILE_M * DEPTH_TILE;
    float out[DEPTH_TILE / 2], row_max[2] = {-INFINITY, -INFINITY}, row_sum[2] = {0.0f, 0.0f}, rescale[2];
    OCL_UNROLL
    for (int j = 0; j < DEPTH_TILE / 2; ++j) out[j] = 0.0f;
#if STORED_MASK
    mask = masks + batch * mask_batch + head * mask_head;
#elif MASK
    int mask_head = head;
#endif
    // number of steps with a key that some query of the warpgroup sees
    const int visible_steps = CAUSAL ? min(steps, (first + 63) / TILE_C + 1) : steps;
    int step = seen_from(0, steps SEEN_PASS);
#if DROPOUT
    uint keep_bits[KEEP_WORDS];
    const Draws draws = {state + state_offset, ((ulong)batch * heads + head) * queries, (ulong)((keys + 3) / 4)};
#endif
#if HALVES
    uint p[TILE_C / 4];
#endif
#if OVERLAP
    // With a condition here, the assembler takes descriptors for different in the lanes of a warp.
    if (HAS_STEP || step < visible_steps) {
      DRAW(keep_bits, row, step * TILE_C);
      WAIT_SCORES("0", n);
      SCORES_TO_WEIGHTS(step * TILE_C, softmax_step(s, row_max, row_sum, rescale));
      to_operands(p, s);
      __local const OPERAND_T* v_tile = consumer_wait(line, 2 * n + 1);
      for (++n, step = seen_from(step + 1, steps SEEN_PASS); step < visible_steps;
           ++n, step = seen_from(step + 1, steps SEEN_PASS)) {
        begin_step(s, q_tile, consumer_wait(line, 2 * n), turns, n);
        DRAW(keep_bits, row, step * TILE_C);
        WAIT_SCORES("0", n);
        SCORES_TO_WEIGHTS(step * TILE_C, softmax_beside_values(s, row_max, row_sum, rescale, out, p, v_tile));
        v_tile = consumer_wait(line, 2 * n + 1);
        WAIT_VALUES("0", n - 1);
        rescale_rows(out, rescale);
        to_operands(p, s);
      }
      if (!BLOCKS) release_rows(line, i);  // before the wait for the keys of the next task (see acquire_rows)
      const int last = n - 1, more = task_number(i + 1) < tasks.tiles * heads * batches;
      for (; step < steps; ++n, step = seen_from(step + 1, steps SEEN_PASS)) skip_stages(line, 2 * n, 2 * n + 2);
      begin_next_task(s, out, q_tiles + (i + 1) % HELD_TILES * TILE_M * DEPTH_TILE, next_keys(line, n, more), p, v_tile,
                      turns, n);
      WAIT_VALUES("1", last);
    }
#else
    for (; step < visible_steps; ++n, step = seen_from(step + 1, steps SEEN_PASS)) {
      __local const OPERAND_T* k_tile = consumer_wait(line, 2 * n);
#if HALVES
      begin_scores(s, q_tile, k_tile);
      DRAW(keep_bits, row, step * TILE_C);
      WAIT_SCORES("0", n);
#else
      DRAW(keep_bits, row, step * TILE_C);
      multiply_scores(s, q_tile, k_tile);
      consumer_release(line, 2 * n);
#endif
      SCORES_TO_WEIGHTS(step * TILE_C, softmax_step(s, row_max, row_sum, rescale));
      rescale_rows(out, rescale);
      __local const OPERAND_T* v_tile = consumer_wait(line, 2 * n + 1);
#if HALVES
      to_operands(p, s);
      begin_values(out, p, v_tile);
      WAIT_VALUES("0", n);
#else
      add_values(out, s, v_tile, keys - step * TILE_C);
      consumer_release(line, 2 * n + 1);
#endif
    }
#endif
    for (; step < steps; ++n, step = seen_from(step + 1, steps SEEN_PASS)) skip_stages(line, 2 * n, 2 * n + 2);
    if (!OVERLAP && !BLOCKS && steps > 0) release_rows(line, i);
    STORE_ATTENTION(out, row_max, row_sum, row);
  }
#if OVERLAP
  WAIT_SUMS(s, TILE_C / 2, "0");
#endif
}
