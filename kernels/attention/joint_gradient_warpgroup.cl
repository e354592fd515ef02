// kernels/attention/joint_gradient_warpgroup.cl: all gradients of attention in one kernel on warpgroup tensor cores, for few
// keys. Comes after attention/scores.cl and attention/shared_warpgroup.cl.
//
// The kernels of PASS 1 and 2 (attention/gradient_warpgroup.cl, which has the formulas) compute s and dout v^T each for
// itself: seven products. Here a work-group has all keys of a head, so five are enough:
//
//                           TILE_C queries a step
//   consumer 0  64 keys     |            |  s = k q^T, grad = v dout^T    operands from local memory
//   consumer 1  64 keys     | registers  |  p, ds                         in registers
//                           |            |  dv += p dout, dk += ds q      p and ds from registers
//                                           ds also goes to local memory
//   third warpgroup                         dq += ds^T k                  once the consumers have stored ds of the step
//
// A task is a head. It has one or two parts, the first and the last 128 keys, and all steps are taken for each part. The sums
// of dk and dv are those of a part, the sums of dq those of all queries: 64 and 128 registers. With these no warpgroup needs
// more than its share of 168. Work-groups are persistent. Keys and values of a part stay in local memory until its steps are
// done. Then the third warpgroup copies those of the next task, which arrive during the other part. It brings q and dout of
// each step through the pipeline: two stages a step, three steps ahead.
// ds is in one of two buffers, [keys of a part][TILE_C]. Sums have a fixed order: over steps in dk and dv, over keys in dq.
//
// Arguments: a: k, b: q, a2: v, b2: dout, otherwise those of PASS 2. Operands of 16 bits, at most LONGEST keys and as many
// queries, heads of at most 64, heads_per_kv 1; no dropout, no BLOCKS, no computed mask. Stores: STORE dq, STORE1 dk, STORE2 dv,
// dimension d. Global and local size are those of attention/warpgroup.cl.
#define PART (64 * CONSUMERS)  // keys
#define AHEAD (STAGES / 2 - 1)  // steps that are copied before they are used. One step more is being released.
// The first step of a part. With a causal mask, earlier queries see none of its keys.
#define FIRST_STEP(part) (CAUSAL ? (part) * (PART / TILE_C) : 0)
#define STATISTICS_OF(task) (((task) & 1) * 2 * LONGEST)  // offset of the statistics of the work-group's task

// The operands of all heads, with their strides, and what all tasks have in common.
typedef struct {
  __global const OPERAND_T *k, *v, *q, *dout;
  __global const float *sums, *delta;
  long k_batch, k_head, k_row, v_batch, v_head, v_row, q_batch, q_head, q_row, dout_batch, dout_head, dout_row;
  long which, sums_batch, sums_head, delta_batch, delta_head;
  int queries, keys;
  int steps, parts;  // parts: those of which a query sees a key
  Tasks tasks;
  ulong k_map, v_map, q_map, dout_map;  // addresses of tensor maps
} Operands;
typedef struct {
  __local OPERAND_T *k, *v, *ds;
  __local float* statistics;  // [lse, delta][LONGEST] of a task's queries; two tasks in turn
  uint keys_full, ds_full, ds_empty;  // mbarriers, two of each: for the parts, and for the buffers of ds
} Buffers;

// ---- third warpgroup ---- boxes: 1: one work-item copies boxes; 0: all of them copy elements
ALWAYS_INLINE int is_task(const int n, const Tasks tasks) {
  return task_number(n) < tasks.heads * tasks.batches;
}
// Loads the statistics of the work-item's queries of task n: p and p + 128, if it is number p of its warpgroup.
ALWAYS_INLINE void load_queries(float2* loaded, const Operands o, const int n) {
  if (!is_task(n, o.tasks)) return;
  const Task task = task_at(n, o.tasks);
  const QueryStatistics of = {o.sums + task.batch * o.sums_batch + task.head * o.sums_head,
                              o.delta + task.batch * o.delta_batch + task.head * o.delta_head, o.which, o.queries};
  OCL_UNROLL
  for (int i = 0; i < LONGEST / PRODUCERS; ++i)
    loaded[i] = load_statistics(of, get_local_id(0) - CONSUMERS * 128 + i * PRODUCERS);
}
// Copies keys and values of a part of task n, once nothing reads those of the task before. With the first part come the
// statistics that load_queries has loaded.
ALWAYS_INLINE void stage_keys(const Operands o, const Buffers to, const int n, const int part, const float2* loaded,
                              const int boxes) {
  const Task task = task_at(n, o.tasks);
  const int p = get_local_id(0) - CONSUMERS * 128, first = part * PART;
  const int blocks = (min(o.keys - first, PART) + 63) / 64;
  const uint full = to.keys_full + 8 * part;
  __local OPERAND_T *k = to.k + first * TILE_K, *v = to.v + first * TILE_K;
  if (part == 0) {
    __local float* statistics = to.statistics + STATISTICS_OF(n) + p;
    OCL_UNROLL
    for (int i = 0; i < LONGEST / PRODUCERS; ++i) {
      statistics[i * PRODUCERS] = loaded[i].x;
      statistics[LONGEST + i * PRODUCERS] = loaded[i].y;
    }
  }
  if (!boxes) {
    stage_rows(k, o.k + task.batch * o.k_batch + task.head * o.k_head + first * o.k_row, o.k_row, o.keys - first, DEPTH,
               blocks * 64, 0);
    stage_rows(v, o.v + task.batch * o.v_batch + task.head * o.v_head + first * o.v_row, o.v_row, o.keys - first,
               DEPTH2, blocks * 64, 0);
    fence_async_proxy();
  }
  if (!boxes || p > 0) {
    barrier_arrive(full);
    return;
  }
  barrier_expect(full, 2 * blocks * BLOCK_ELEMENTS * sizeof(OPERAND_T));
  for (int i = 0; i < blocks; ++i) {
    copy_head_box(local_address(k + i * BLOCK_ELEMENTS), o.k_map, first + i * 64, task.head, task.batch, full);
    copy_head_box(local_address(v + i * BLOCK_ELEMENTS), o.v_map, first + i * 64, task.head, task.batch, full);
  }
}
// A step: the work-group's task, its head, the part and step of the task, and the number of the step over all tasks.
typedef struct {
  int task, part, step, n;
  Task of;
} Step;
ALWAYS_INLINE Step next_step(Step at, const Operands o) {
  ++at.n;
  if (++at.step < o.steps) return at;
  if (++at.part == o.parts) {
    at.part = 0;
    at.of = task_at(++at.task, o.tasks);
  }
  at.step = FIRST_STEP(at.part);
  return at;
}
// Copies an operand of a step to a stage. map: the address of its tensor map.
ALWAYS_INLINE void stage_queries(const Pipeline line, const int stage, __global const OPERAND_T* from,
                                 const long stride, const int queries, const int depth, const ulong map, const Step at,
                                 const int boxes) {
  __local OPERAND_T* to = producer_acquire(line, stage);
  const uint full = line.full + 8 * (stage % STAGES);
  const int c0 = at.step * TILE_C;
  if (boxes) {
    barrier_expect(full, STAGE_ELEMENTS * sizeof(OPERAND_T));
    copy_head_box(local_address(to), map, c0, at.of.head, at.of.batch, full);
  } else {
    stage_rows(to, from + c0 * stride, stride, queries - c0, depth, TILE_C, 0);
    fence_async_proxy();
    barrier_arrive(full);
  }
}
// Copies the operands of a step, if there is one. Returns the next step.
ALWAYS_INLINE Step stage_step(const Pipeline line, const Operands o, const Step at, const int boxes) {
  if (!is_task(at.task, o.tasks)) return at;
  if (!boxes || get_local_id(0) == CONSUMERS * 128) {
    stage_queries(line, 2 * at.n, o.q + at.of.batch * o.q_batch + at.of.head * o.q_head, o.q_row, o.queries, DEPTH,
                  o.q_map, at, boxes);
    stage_queries(line, 2 * at.n + 1, o.dout + at.of.batch * o.dout_batch + at.of.head * o.dout_head, o.dout_row,
                  o.queries, DEPTH2, o.dout_map, at, boxes);
  }
  warp_sync();
  return next_step(at, o);
}
// Begins dq += ds^T k of a step, over 64 keys. 16 keys are 16 rows of 128 bytes in both operands.
ALWAYS_INLINE void begin_queries(float* dq, __local const OPERAND_T* ds, __local const OPERAND_T* k) {
  const ulong a = descriptor(ds, 0), b = descriptor(k, 0);
  WGMMA_FENCE();
  MULTIPLY_64(dq, a, b, "1", "1, 1");
  MULTIPLY_64(dq, a + 128, b + 128, "1", "1, 1");
  MULTIPLY_64(dq, a + 256, b + 256, "1", "1, 1");
  MULTIPLY_64(dq, a + 384, b + 384, "1", "1, 1");
  WGMMA_COMMIT();
}
// The first of the lane's two rows among the 64 of its warpgroup.
#define LANE_ROW ((get_local_id(0) >> 5 & 3) * 16 + ((get_local_id(0) & 31) >> 2))

// What the third warpgroup does. The last parameters are those of stores.
ALWAYS_INLINE void compute_queries(const Pipeline line, const Operands o, const Buffers buffers, const int boxes,
                                   const int heads, const int queries, const int keys,
                                   const int batches EPILOGUE_FUNCTION_PARAMS) {
  float2 loaded[LONGEST / PRODUCERS];
  load_queries(loaded, o, 0);
  for (int part = 0; part < o.parts; ++part) stage_keys(o, buffers, 0, part, loaded, boxes);
  Step ahead = {0, 0, 0, 0, task_at(0, o.tasks)};
  for (int i = 0; i < AHEAD; ++i) ahead = stage_step(line, o, ahead, boxes);
  int n = 0;  // number of the steps taken, over all tasks
  FOR_TASKS(i, o.tasks) {
    const Task task = task_at(i, o.tasks);
    const int head = task.head, batch = task.batch;
    float dq[LONGEST / TILE_C][TILE_C / 2];
    OCL_UNROLL
    for (int j = 0; j < LONGEST / TILE_C; ++j) {
      OCL_UNROLL
      for (int e = 0; e < TILE_C / 2; ++e) dq[j][e] = 0.0f;
    }
    load_queries(loaded, o, i + 1);
    for (int part = 0; part < o.parts; ++part) {
      for (int step = FIRST_STEP(part); step < o.steps; ++step, ++n) {
        ahead = stage_step(line, o, ahead, boxes);
        const int buffer = n & 1, left = min(keys, CAUSAL ? (step + 1) * TILE_C : keys) - part * PART;
        __local const OPERAND_T *ds = buffers.ds + buffer * PART * TILE_C, *k = buffers.k + part * PART * TILE_K;
        barrier_wait(buffers.ds_full + 8 * buffer, n >> 1 & 1);
        OCL_UNROLL
        for (int j = 0; j < LONGEST / TILE_C; ++j)
          if (j == step) {
            begin_queries(dq[j], ds, k);
            if (left > 64) begin_queries(dq[j], ds + BLOCK_ELEMENTS, k + BLOCK_ELEMENTS);
            WAIT_SUMS(dq[j], TILE_C / 2, "0");
          }
        consumer_release_at(buffers.ds_empty + 8 * buffer);
      }
      if (!is_task(i + 1, o.tasks)) continue;
      barrier_wait(buffers.ds_empty + 8 * ((n - 1) & 1), (n - 1) >> 1 & 1);  // All warps have read the keys.
      stage_keys(o, buffers, i + 1, part, loaded, boxes);
    }
    OCL_UNROLL
    for (int j = 0; j < LONGEST / TILE_C; ++j) {
      STORE_TWO_ROWS(dq[j], SCALE, j * TILE_C + LANE_ROW, queries, DEPTH, STORE, STOREV)
    }
  }
}

// ---- consumers ----
// Stores ds of a block of 64 keys, rounded to operands, as rows of TILE_C queries. A row's chunks are permuted as row_chunk
// says; the rows of a lane, 8 apart, in the same way.
ALWAYS_INLINE void store_scores(__local OPERAND_T* to, const uint* ds) {
  int at = row_chunk(LANE_ROW, 0) + 2 * (get_local_id(0) & 3);
  RECOMPUTE_FROM(at);
  OCL_UNROLL
  for (int i = 0; i < TILE_C / 4; ++i) *(__local uint*)(to + (at ^ (i >> 1) * CHUNK) + (i & 1) * 8 * TILE_K) = ds[i];
}
// What the consumers read and write in a step. k, v: the part's; ds_full, ds_empty: mbarriers of the step's buffer.
typedef struct {
  __local const OPERAND_T *k, *v;
  __local OPERAND_T* ds;
  __local const float2* statistics;  // from the lane's first query on
  uint ds_full, ds_empty;
} StepBuffers;
ALWAYS_INLINE StepBuffers step_buffers(const Buffers of, const int task, const int part, const int step, const int n) {
  const int buffer = n & 1;
  const StepBuffers at = {
      of.k + part * PART * TILE_K,
      of.v + part * PART * TILE_K,
      of.ds + buffer * PART * TILE_C,
      (__local const float2*)(of.statistics + STATISTICS_OF(task) + step * TILE_C) + (get_local_id(0) & 3),
      of.ds_full + 8 * buffer,
      of.ds_empty + 8 * buffer};
  return at;
}
// Waits until ds of step n - 2 is read.
ALWAYS_INLINE void wait_for_ds(const StepBuffers at, const int n) {
  if (n >= 2) barrier_wait(at.ds_empty, ((n >> 1) - 1) & 1);
}
// Takes no part in step n, whose queries see no key of the warpgroup.
ALWAYS_INLINE void skip_step(const Pipeline line, const StepBuffers at, const int n) {
  skip_stages(line, 2 * n, 2 * n + 2);
  wait_for_ds(at, n);
  consumer_release_at(at.ds_full);
}
// Adds the products of the warpgroup's block of keys to dk and dv, and stores ds, for steps step .. steps - 1, at least one.
// The products for the scores of a step are issued behind those of dk in the step before, so that the tensor cores are busy
// between steps. Behind the last step they are issued in vain, of keys that may already be replaced: under a condition, each
// product would wait for the one before. first: the block's first key. Returns the number of the step after the last one.
ALWAYS_INLINE int consume_steps(float* dk, float* dv, const Pipeline line, const Buffers buffers, const int task,
                                const int part, int step, const int steps, int n, const int first, const int queries,
                                const int keys MASK_PARAMS) {
  const int begin = step;
  float s[TILE_C / 2], grad[TILE_C / 2];
  uint weights[TILE_C / 4], ds[TILE_C / 4];
  __local const OPERAND_T* q_tile = consumer_wait(line, 2 * n);
  begin_scores(s, buffers.k + part * PART * TILE_K, q_tile);
  for (int more = 1; more; ++step, ++n) {
    const StepBuffers at = step_buffers(buffers, task, part, step, n);
    const int c0 = step * TILE_C;
    __local const OPERAND_T* dout_tile = consumer_wait(line, 2 * n + 1);
    WAIT_SUMS(s, TILE_C / 2, "0");
    if (step > begin) {
      consumer_release(line, 2 * n - 2);
      consumer_release(line, 2 * n - 1);
    }
    begin_scores(grad, at.v, dout_tile);
    MASK_SCORES(s, first + LANE_ROW, first, c0, 0);
    softmax_weights(s, at.statistics, 0);
    to_operands(weights, s);
    begin_values(dv, weights, dout_tile);
    WAIT_SUMS(grad, TILE_C / 2, "1");
    score_gradient(s, s, grad, at.statistics, 0);
    to_operands(ds, s);
    begin_values(dk, ds, q_tile);
    WAIT_SUMS(dv, DEPTH_TILE / 2, "1");  // frees the registers of weights
    more = step + 1 < steps;
    if (more) q_tile = consumer_wait(line, 2 * n + 2);
    begin_scores(s, at.k, q_tile);
    wait_for_ds(at, n);
    store_scores(at.ds + warpgroup_number() * BLOCK_ELEMENTS, ds);
    fence_async_proxy();
    consumer_release_at(at.ds_full);
  }
  WAIT_SUMS(dk, DEPTH_TILE / 2, "0");
  consumer_release(line, 2 * n - 2);
  consumer_release(line, 2 * n - 1);
  return n;
}

__kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  const int boxes = DIRECT && CHUNK_ALIGNED(a_offset) && CHUNK_ALIGNED(b_offset) && CHUNK_ALIGNED(a2_offset) &&
                    CHUNK_ALIGNED(b2_offset);
  __local ulong map[16] __attribute__((aligned(128))), more_bars[4];
  if (get_local_id(0) == 0) {
    for (int i = 0; i < 2; ++i) {
      barrier_init(local_address(more_bars + i), 4);  // the warps of the third warpgroup
      barrier_init(local_address(more_bars + 2 + i), PRODUCERS);
    }
  }
  PIPELINE_OF(line, boxes ? 1 : PRODUCERS);
  __local OPERAND_T k_tiles[LONGEST * TILE_K] __attribute__((aligned(1024))),
      v_tiles[LONGEST * TILE_K] __attribute__((aligned(1024))),
      ds_tiles[2 * PART * TILE_C] __attribute__((aligned(1024)));
  __local float statistics[4 * LONGEST] __attribute__((aligned(8)));
  // The pipeline's barriers for rows of a task, with an arrival for each warp of the consumers, are those of ds here.
  const Buffers buffers = {k_tiles,
                           v_tiles,
                           ds_tiles,
                           statistics,
                           local_address(more_bars + 2),
                           line.empty + 8 * STAGES,
                           local_address(more_bars)};
  const int steps = (queries + TILE_C - 1) / TILE_C, parts = (keys + PART - 1) / PART;
  const Tasks tasks = {1, heads, batches};
  if (get_local_id(0) >= CONSUMERS * 128) {
    Operands o = {a + a_offset,
                  a2 + a2_offset,
                  b + b_offset,
                  b2 + b2_offset,
                  sums + sums_offset,
                  delta + delta_offset,
                  a_batch,
                  a_head,
                  a_row,
                  a2_batch,
                  a2_head,
                  a2_row,
                  b_batch,
                  b_head,
                  b_row,
                  b2_batch,
                  b2_head,
                  b2_row,
                  sums_which,
                  sums_batch,
                  sums_head,
                  delta_batch,
                  delta_head,
                  queries,
                  keys,
                  steps,
                  CAUSAL ? min(parts, (steps - 1) / (PART / TILE_C) + 1) : parts,
                  tasks};
    if (boxes) {
      if (get_local_id(0) < CONSUMERS * 128 + 32) {
        o.k_map = head_map(map, 0, o.k, DEPTH, keys, heads, batches, a_row, a_head, a_batch, 64);
        o.v_map = head_map(map, 1, o.v, DEPTH2, keys, heads, batches, a2_row, a2_head, a2_batch, 64);
        o.q_map = head_map(map, 2, o.q, DEPTH, queries, heads, batches, b_row, b_head, b_batch, TILE_C);
        o.dout_map = head_map(map, 3, o.dout, DEPTH2, queries, heads, batches, b2_row, b2_head, b2_batch, TILE_C);
      }
      compute_queries(line, o, buffers, 1, heads, queries, keys, batches EPILOGUE_PASS);
    } else {
      compute_queries(line, o, buffers, 0, heads, queries, keys, batches EPILOGUE_PASS);
    }
    return;
  }
#if STORED_MASK
  __global const MASK_T* const masks = mask + mask_offset;
#endif
  int n = 0;  // number of the steps taken, over all tasks
  FOR_TASKS(i, tasks) {
    const Task task = task_at(i, tasks);
    const int head = task.head, batch = task.batch;
#if STORED_MASK
    mask = masks + batch * mask_batch + head * mask_head;
#endif
    for (int part = 0; part < parts; ++part) {
      const int first = part * PART + warpgroup_number() * 64;
      const int begin = min(first < keys ? CAUSAL ? first / TILE_C : 0 : steps, steps);
      float dk[DEPTH_TILE / 2], dv[DEPTH_TILE / 2];
      OCL_UNROLL
      for (int j = 0; j < DEPTH_TILE / 2; ++j) {
        dk[j] = dv[j] = 0.0f;
        FENCE_REGISTER(
            dk[j]);  // before products begin: a sum that is set while they run would make each wait for the last
        FENCE_REGISTER(dv[j]);
      }
      int step = FIRST_STEP(part);
      if (step < steps) barrier_wait(buffers.keys_full + 8 * part, i & 1);
      for (; step < begin; ++step, ++n) skip_step(line, step_buffers(buffers, i, part, step, n), n);
      if (step < steps)
        n = consume_steps(dk, dv, line, buffers, i, part, step, steps, n, first, queries, keys MASK_PASS);
      STORE_TWO_ROWS(dk, SCALE, first + LANE_ROW, keys, DEPTH, STORE1, STORE1V)
      STORE_TWO_ROWS(dv, 1.0f, first + LANE_ROW, keys, DEPTH2, STORE2, STORE2V)
    }
  }
}
