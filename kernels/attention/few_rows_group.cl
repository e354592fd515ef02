// kernels/attention/few_rows_group.cl: attention for few queries, as in decoding, where keys and values are read once. Group
// kernel: one work-group = one query of a head.
//
// Scores, sums and outputs are those of PASS 0 of attention/group.cl. A step takes CHUNK keys. LANES neighbouring work-items
// share a row of k or v, so that a row is read by one wide access; a work-item has the same part of HELD rows, and loads those
// of v before it waits for the scores.
//
//   k or v    part 0   part 1  ...  part LANES-1 (VW elements each)
//   row 0     item 0   item 1       item LANES-1
//   row 1     item LANES ...
//   row SLICES    item 0 ...
//
// Inputs and arguments: as those of attention/group.cl with PASS 0. Global size: (queries * GROUP_SIZE, heads, batches), local
// size (GROUP_SIZE, 1, 1). Epilogue macros: STORE(acc, b, h, row, d), STOREV (4 along d), STORE1(sum, which, b, h, row).
#ifndef GROUP_SIZE
#define GROUP_SIZE 256  // work-items, at least 16 and at least LANES
#endif
#ifndef WHOLE_PARTS
#define WHOLE_PARTS 0  // 1: all sizes and strides of rows are multiples of VW elements
#endif
#ifndef MOST_HELD
#define MOST_HELD 8  // rows of k, and of v, that a work-item has loaded at a time
#endif
#define MOST (DEPTH > WIDTH ? DEPTH : WIDTH)
#define LANES ((MOST + VW - 1) / VW)
#define SLICES (GROUP_SIZE / LANES)
#define HELD (LANES < MOST_HELD ? LANES : MOST_HELD)
#define CHUNK (SLICES * HELD)  // at most GROUP_SIZE
#define FEW 16  // work-items of the second step of a reduction
#define Y_VSTORE(v, p) vstore4(v, 0, p)

// VW elements as they are stored, 16 bytes.
#if defined(IN_HALF) || defined(IN_BF16)
typedef OCL_CAT(ushort, VW) Raw;
typedef ushort RawElement;
#else
typedef VEC Raw;
typedef float RawElement;
#endif

// Returns elements [0, VW) at p, zeros from `left` on.
ALWAYS_INLINE Raw load_part(__global const IN_T* p, const int left, const int aligned) {
  if (aligned && left >= VW) return *(__global const Raw*)p;
  RawElement part[VW];
  OCL_UNROLL
  for (int j = 0; j < VW; ++j) part[j] = j < left ? ((__global const RawElement*)p)[j] : (RawElement)0;
  return OCL_CAT(vload, VW)(0, part);
}

#if defined(IN_HALF)
ALWAYS_INLINE float half_value(const ushort bits) {
  return vload_half(0, (const __private half*)&bits);
}
#define HALF_VALUES(x) half_value((x).s0), half_value((x).s1), half_value((x).s2), half_value((x).s3)
#endif

ALWAYS_INLINE VEC values_of(const Raw raw) {
#if defined(IN_BF16)
  return OCL_CAT(as_float, VW)(OCL_CAT(convert_uint, VW)(raw) << 16);
#elif defined(IN_HALF) && VW == 8
  return (VEC)(HALF_VALUES(raw.lo), HALF_VALUES(raw.hi));
#elif defined(IN_HALF)
  return (VEC)(HALF_VALUES(raw));
#else
  return raw;
#endif
}

ALWAYS_INLINE float dot_of(const VEC x, const VEC y) {
#if VW == 8
  return dot(x.lo, y.lo) + dot(x.hi, y.hi);
#else
  return dot(x, y);
#endif
}

ALWAYS_INLINE float combined(const float x, const float y, const int largest) {
  return largest ? (y > x ? y : x) : x + y;
}

// Returns the largest of all work-items' x, or their sum. all, few: GROUP_SIZE and FEW floats.
ALWAYS_INLINE float across_group(const float x, const int largest, const int lane, __local float* all,
                                 __local float* few) {
  all[lane] = x;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (lane < FEW) {
    float y = all[lane];
    for (int i = lane + FEW; i < GROUP_SIZE; i += FEW) y = combined(y, all[i], largest);
    few[lane] = y;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  float y = few[0];
  OCL_UNROLL
  for (int i = 1; i < FEW; ++i) y = combined(y, few[i], largest);
  return y;
}

// Returns the score of a key. product: of the query and the key. mask, blocks: of the head and the query.
ALWAYS_INLINE float score_of(const float product, const int key
#if STORED_MASK
                             ,
                             __global const MASK_T* mask, const long mask_key
#endif
#if BLOCKS
                             ,
                             __global const uchar* blocks, const long blocks_key
#endif
) {
  float s = product * SCALE;
#ifdef CAP
  s = tanh(s * (1.0f / CAP)) * CAP;
#endif
#if MASK == 1
  if (!mask[key * mask_key]) s = -INFINITY;
#elif MASK == 2
  s += LOAD(mask, key * mask_key);
#elif MASK == 3
  s += mask[key * mask_key];
#endif
#if BLOCKS
  if (!blocks[key / BLOCKS * blocks_key]) s = -INFINITY;
#endif
  return s;
}

__kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) THREAD_SIZE void KERNEL_NAME(
    KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  // Products of the parts of a step, [CHUNK][LANES + 1]. At the end, the slices' sums of the output.
  __local float4 parts4[(SLICES * LANES * (VW > HELD ? VW : HELD) + CHUNK + 3) / 4];
  __local float weights[GROUP_SIZE], few[FEW];
  __local float* parts = (__local float*)parts4;
  const int lane = get_local_id(0), part = lane % LANES, slice = lane / LANES, d0 = part * VW;
  const int row = get_group_id(0), head = get_group_id(1), batch = get_group_id(2), kv_head = head / heads_per_kv;
  const int aligned = WHOLE_PARTS && (a_offset | b_offset | w_offset) % VW == 0;
  const int end = CAUSAL ? min(keys, row + 1) : keys, works = slice < SLICES;
  b += b_offset + batch * b_batch + kv_head * b_head + d0;
  w += w_offset + batch * w_batch + kv_head * w_head + d0;
#if STORED_MASK
  mask += mask_offset + batch * mask_batch + head * mask_head + row * mask_query;
#endif
#if BLOCKS
  blocks += blocks_offset + batch * blocks_batch + head * blocks_head + row / BLOCKS * blocks_query;
#endif
  const VEC query =
      values_of(load_part(a + a_offset + batch * a_batch + head * a_head + row * a_row + d0, DEPTH - d0, aligned));
  VEC out = (VEC)(0.0f);
  float row_max = -INFINITY, row_sum = 0.0f;
  OCL_NO_UNROLL
  for (int c0 = 0; c0 < end; c0 += CHUNK) {
    Raw keys_held[HELD], values_held[HELD];
    OCL_UNROLL
    for (int i = 0; i < HELD; ++i) {
      const int key = c0 + slice + i * SLICES, inside = works && key < end;
      keys_held[i] = load_part(b + min(key, end - 1) * b_row, inside ? DEPTH - d0 : 0, aligned);
    }
    OCL_UNROLL
    for (int i = 0; i < HELD; ++i) {
      const int key = c0 + slice + i * SLICES, inside = works && key < end;
      values_held[i] = load_part(w + min(key, end - 1) * w_row, inside ? WIDTH - d0 : 0, aligned);
    }
    if (works) {
      OCL_UNROLL
      for (int i = 0; i < HELD; ++i)
        parts[(slice + i * SLICES) * (LANES + 1) + part] = dot_of(query, values_of(keys_held[i]));
    }
    barrier(CLK_LOCAL_MEM_FENCE);  // all products are there
    float s = -INFINITY;
    if (lane < CHUNK && c0 + lane < end) {
      float product = parts[lane * (LANES + 1)];
      for (int i = 1; i < LANES; ++i) product += parts[lane * (LANES + 1) + i];
      s = score_of(product, c0 + lane
#if STORED_MASK
                   ,
                   mask, mask_key
#endif
#if BLOCKS
                   ,
                   blocks, blocks_key
#endif
      );
#if MASK == 4
      const float mask = MASK_VALUE(batch, head, row, c0 + lane);
      s = ADD_MASK(s, mask);
#endif
    }
    const float now = combined(row_max, across_group(s, 1, lane, weights, few), 1);
    const float shift = now == -INFINITY ? 0.0f : now, rescale = exp(row_max - shift), p = exp(s - shift);
    row_sum = fma(row_sum, rescale, p);
    row_max = now;
    weights[lane] = p;
    barrier(CLK_LOCAL_MEM_FENCE);  // all weights are there
    out *= (VEC)(rescale);
    if (works) {
      OCL_UNROLL
      for (int i = 0; i < HELD; ++i) out = fma(values_of(values_held[i]), (VEC)(weights[slice + i * SLICES]), out);
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);  // all have read the weights
  row_sum = across_group(row_sum, 0, lane, weights, few);
  if (works) VSTORE(out, parts + lane * VW);
  barrier(CLK_LOCAL_MEM_FENCE);
  const float inverse = keys > 0 ? inverse_of(row_sum) : 0.0f;
  if (lane < 2) STORE1(lane ? row_sum : (row_max == -INFINITY ? 0.0f : row_max), lane, batch, head, row);
  for (int d = 4 * lane; d < WIDTH; d += 4 * GROUP_SIZE) {
    float4 sum = (float4)(0.0f);
    for (int i = 0; i < SLICES; ++i) sum += *(__local const float4*)(parts + i * LANES * VW + d);
    sum *= (float4)(inverse);
    if (d + 3 < WIDTH)
      STOREV(sum, batch, head, row, d);
    else
      for (int l = 0; l < WIDTH - d; ++l) STORE(l == 0 ? sum.x : (l == 1 ? sum.y : sum.z), batch, head, row, d + l);
  }
}
