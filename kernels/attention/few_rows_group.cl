// kernels/attention/few_rows_group.cl: attention for few queries, as in decoding, where keys and values are read once. Group
// kernel: one work-group = one query of a head.
//
// Scores, sums and outputs are those of PASS 0 of attention/group.cl. LANES neighbouring work-items, a team, share a row of k
// or v, so that a row is read by one wide access. In a step, a team has HELD keys. It has its own largest score, sum and
// output; all teams are merged at the end, in a fixed order. While a step computes, the rows of the next one are loaded.
//
//   k or v       part 0   part 1  ...  part LANES-1 (VW elements each)
//   row 0        item 0   item 1       item LANES-1        team 0
//   row 1        item LANES ...                            team 1
//   row SLICES   item 0 ...                                team 0
//
// Inputs and arguments: as those of attention/group.cl with PASS 0. Global size: (queries * GROUP_SIZE, heads, batches), local
// size (GROUP_SIZE, 1, 1). Epilogue macros: STORE(acc, b, h, row, d), STOREV (4 along d), STORE1(sum, which, b, h, row).
#ifndef GROUP_SIZE
#define GROUP_SIZE 256  // work-items, at least LANES
#endif
#ifndef WHOLE_PARTS
#define WHOLE_PARTS 0  // 1: all sizes and strides of rows are multiples of VW elements
#endif
#ifndef MOST_HELD
#define MOST_HELD 8  // rows of k, and of v, that a work-item has loaded at a time
#endif
#define MOST (DEPTH > WIDTH ? DEPTH : WIDTH)
#define LANES ((MOST + VW - 1) / VW)
#define SLICES (GROUP_SIZE / LANES)  // teams
#define HELD (LANES < MOST_HELD ? LANES : MOST_HELD)
#define CHUNK (SLICES * HELD)  // keys of a step
#define PRODUCTS (HELD * (LANES + 1))
#define Y_VSTORE(v, p) vstore4(v, 0, p)

// Returns elements [0, left) at p as they are stored, and zeros after them.
ALWAYS_INLINE uint4 load_elements(__global const IN_T* p, const int left) {
#if defined(IN_HALF) || defined(IN_BF16)
#define PAIR(i)                                              \
  ((i) < left ? (uint)((__global const ushort*)p)[i] : 0u) | \
      ((i) + 1 < left ? (uint)((__global const ushort*)p)[(i) + 1] << 16 : 0u)
  return (uint4)(PAIR(0), PAIR(2), PAIR(4), PAIR(6));
#else
#define WORD(i) ((i) < left ? as_uint(p[i]) : 0u)
  return (uint4)(WORD(0), WORD(1), WORD(2), WORD(3));
#endif
}

// Loads the work-item's part of HELD rows, the first at `key`. p: the part of row 0, of which `left` elements exist. Rows after
// the last are the last one. Vectors are loaded without a branch for each of them, in which the load would be waited for.
ALWAYS_INLINE void load_rows(uint4* held, __global const IN_T* p, const long stride, const int key, const int end,
                             const int left, const int all_exist, const int aligned) {
  if (aligned) {
    OCL_UNROLL
    for (int i = 0; i < HELD; ++i) {
      held[i] = *(__global const uint4*)(p + min(key + i * SLICES, end - 1) * stride);
      if (!all_exist && left < VW) held[i] = (uint4)(0u);
    }
  } else {
    OCL_UNROLL
    for (int i = 0; i < HELD; ++i) held[i] = load_elements(p + min(key + i * SLICES, end - 1) * stride, left);
  }
}

#if defined(IN_HALF)
ALWAYS_INLINE float half_value(const ushort bits) {
  return vload_half(0, (const __private half*)&bits);
}
#define HALF_VALUES(x) half_value((x).s0), half_value((x).s1), half_value((x).s2), half_value((x).s3)
#endif

// Returns the values of 16 bytes.
ALWAYS_INLINE VEC values_of(const uint4 raw) {
#if defined(IN_BF16)
  const float4 even = as_float4(raw << 16), odd = as_float4(raw & 0xffff0000u);
  return (VEC)(even.x, odd.x, even.y, odd.y, even.z, odd.z, even.w, odd.w);
#elif defined(IN_HALF)
  const ushort8 bits = as_ushort8(raw);
  return (VEC)(HALF_VALUES(bits.lo), HALF_VALUES(bits.hi));
#else
  return as_float4(raw);
#endif
}

ALWAYS_INLINE float dot_of(const VEC x, const VEC y) {
#if VW == 8
  return dot(x.lo, y.lo) + dot(x.hi, y.hi);
#else
  return dot(x, y);
#endif
}

ALWAYS_INLINE float larger(const float x, const float y) {
  return y > x ? y : x;
}

// Loads the mask of key number `n`. added: becomes what it adds to the score; hidden: whether it hides the score.
#if MASK == 2
#define ADDED(n) LOAD(mask, (n) * mask_key)
#elif MASK == 3
#define ADDED(n) mask[(n) * mask_key]
#elif MASK == 4
#define ADDED(n) MASK_VALUE(batch, head, row, n)
#else
#define ADDED(n) 0.0f
#endif
#if MASK == 1
#define MASKED(n) !mask[(n) * mask_key]
#else
#define MASKED(n) 0
#endif
#if BLOCKS
#define IN_HIDDEN_BLOCK(n) !blocks[(n) / BLOCKS * blocks_key]
#else
#define IN_HIDDEN_BLOCK(n) 0
#endif
#define LOAD_MASK(n, added, hidden)                             \
  {                                                             \
    const int key = min(n, end - 1);                            \
    added = ADDED(key);                                         \
    hidden = (n) >= end || MASKED(key) || IN_HIDDEN_BLOCK(key); \
  }

ALWAYS_INLINE float score_of(const float product, const float added, const int hidden) {
  float s = product * SCALE;
#ifdef CAP
  s = tanh(s * (1.0f / CAP)) * CAP;
#endif
#if MASK == 2 || MASK == 3
  s += added;
#elif MASK == 4
  s = ADD_MASK(s, added);
#endif
  return hidden ? -INFINITY : s;
}

__kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) THREAD_SIZE void KERNEL_NAME(
    KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  // Products of the parts of a step, [SLICES][HELD][LANES + 1]. At the end, the teams' outputs.
  __local float4 parts4[(SLICES * (LANES * VW > PRODUCTS ? LANES * VW : PRODUCTS) + 3) / 4];
  __local float scores[SLICES * HELD], maxima[SLICES], sums[SLICES];
  __local float* parts = (__local float*)parts4;
  const int lane = get_local_id(0), part = lane % LANES, slice = lane / LANES, d0 = part * VW;
  const int row = get_group_id(0), head = get_group_id(1), batch = get_group_id(2), kv_head = head / heads_per_kv;
  const int aligned = WHOLE_PARTS && (a_offset | b_offset | w_offset) % VW == 0;
  const int end = CAUSAL ? min(keys, row + 1) : keys, works = slice < SLICES;
  const int depth_left = DEPTH - d0, width_left = WIDTH - d0;
  a += a_offset + batch * a_batch + head * a_head + row * a_row + (depth_left > 0 ? d0 : 0);
  b += b_offset + batch * b_batch + kv_head * b_head + (depth_left > 0 ? d0 : 0);
  w += w_offset + batch * w_batch + kv_head * w_head + (width_left > 0 ? d0 : 0);
#if STORED_MASK
  mask += mask_offset + batch * mask_batch + head * mask_head + row * mask_query;
#endif
#if BLOCKS
  blocks += blocks_offset + batch * blocks_batch + head * blocks_head + row / BLOCKS * blocks_query;
#endif
  const int own =
      part < HELD ? part : 0;  // Number of the team's key of a step of which the work-item computes the score.
  uint4 keys_held[HELD], values_held[HELD];
  VEC query = (VEC)(0.0f), out = (VEC)(0.0f);
  float row_max = -INFINITY, row_sum = 0.0f, added = 0.0f;
  int hidden = 1;
  if (end > 0) {
    query = values_of(aligned && depth_left >= VW ? *(__global const uint4*)a : load_elements(a, depth_left));
    load_rows(keys_held, b, b_row, slice, end, depth_left, DEPTH == LANES * VW, aligned);
    load_rows(values_held, w, w_row, slice, end, width_left, WIDTH == LANES * VW, aligned);
    LOAD_MASK(slice + own * SLICES, added, hidden)
  }
  OCL_NO_UNROLL
  for (int c0 = 0; c0 < end; c0 += CHUNK) {
    const int next = c0 + CHUNK + slice, is_last = c0 + CHUNK >= end;
    if (works) {
      OCL_UNROLL
      for (int i = 0; i < HELD; ++i)
        parts[slice * PRODUCTS + i * (LANES + 1) + part] = dot_of(query, values_of(keys_held[i]));
    }
    const float added_now = added;
    const int hidden_now = hidden;
    if (!is_last) {
      load_rows(keys_held, b, b_row, next, end, depth_left, DEPTH == LANES * VW, aligned);
      LOAD_MASK(next + own * SLICES, added, hidden)
    }
    barrier(CLK_LOCAL_MEM_FENCE);  // all products are there
    if (works && part < HELD) {
      __local const float* of_key = parts + slice * PRODUCTS + part * (LANES + 1);
      float product = of_key[0];
      OCL_UNROLL
      for (int i = 1; i < LANES; ++i) product += of_key[i];
      scores[slice * HELD + part] = score_of(product, added_now, hidden_now);
    }
    barrier(CLK_LOCAL_MEM_FENCE);  // all scores are there
    if (works) {
      float s[HELD], now = row_max;
      OCL_UNROLL
      for (int i = 0; i < HELD; ++i) {
        s[i] = scores[slice * HELD + i];
        now = larger(now, s[i]);
      }
      const float shift = now == -INFINITY ? 0.0f : now, rescale = exp(row_max - shift);
      row_max = now;
      row_sum *= rescale;
      out *= (VEC)(rescale);
      OCL_UNROLL
      for (int i = 0; i < HELD; ++i) {
        const float p = exp(s[i] - shift);
        row_sum += p;
        out = fma(values_of(values_held[i]), (VEC)(p), out);
      }
    }
    if (!is_last) load_rows(values_held, w, w_row, next, end, width_left, WIDTH == LANES * VW, aligned);
  }
  if (works && part == 0) maxima[slice] = row_max;
  barrier(CLK_LOCAL_MEM_FENCE);  // all teams' maxima are there
  float most = maxima[0];
  for (int i = 1; i < SLICES; ++i) most = larger(most, maxima[i]);
  const float factor = exp(row_max - (most == -INFINITY ? 0.0f : most));
  if (works) VSTORE(out * (VEC)(factor), parts + lane * VW);
  if (works && part == 0) sums[slice] = row_sum * factor;
  barrier(CLK_LOCAL_MEM_FENCE);  // all teams' outputs are there
  float sum = sums[0];
  for (int i = 1; i < SLICES; ++i) sum += sums[i];
  const float inverse = keys > 0 ? inverse_of(sum) : 0.0f;
  if (lane < 2) STORE1(lane ? sum : (most == -INFINITY ? 0.0f : most), lane, batch, head, row);
  for (int d = 4 * lane; d < WIDTH; d += 4 * GROUP_SIZE) {
    float4 total = (float4)(0.0f);
    for (int i = 0; i < SLICES; ++i) total += *(__local const float4*)(parts + i * LANES * VW + d);
    total *= (float4)(inverse);
    if (d + 3 < WIDTH)
      STOREV(total, batch, head, row, d);
    else
      for (int l = 0; l < WIDTH - d; ++l)
        STORE(l == 0 ? total.x : (l == 1 ? total.y : total.z), batch, head, row, d + l);
  }
}
