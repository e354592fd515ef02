// kernels/attention/item.cl: attention and its gradients without the matrix of scores in memory. Item kernel: one
// work-item = MT tiles of MR rows. The products are in attention/shared_item.cl.
//
//   s = SCALE q k^T + mask, or CAP tanh(SCALE q k^T / CAP) + mask      p = exp(s - row_max) / row_sum      out = dropout(p) v
//   sums = (row_max, row_sum): maximum of s, and sum of exp(s - row_max), over the keys
//   ds = p * (dropout(dout v^T) - delta), delta = sum over d of dout * out
//
//   PASS  rows     columns  result
//   0     queries  keys     out = dropout(p) v, and sums (softmax with a running maximum)
//   1     queries  keys     dq = SCALE ds k
//   2     keys     queries  dk = SCALE ds^T q, dv = dropout(p)^T dout
//
//             columns in blocks of BLOCK
//             panel 0   panel 1   ...
//           +---------+---------+-----
//   MR rows |  t[MR][NV*VW]     |  s[MR][BLOCK]
//           +---------+---------+-----
//
// Work-item (i, h, b) owns rows [i*MT*MR, (i+1)*MT*MR) of head h of batch b, and all columns. A panel of scores is
// computed as a register tile: each step of the depth multiplies a scalar of each row by NV vectors of a packed panel.
// The scores of a block are kept in private memory (L1). They then multiply whole rows of the other operand, again MR x
// NV vectors at a time. Each block is summed in new accumulators, which keeps the rounding errors of long sums small.
//
// Inputs: (pointer, offset) pairs, offsets and strides in elements. Their type is IN_T unless another type is given.
// They are contiguous along the last dimension.
//   a   rows of the scores: q, q, k                        by a_batch, a_head, a_row; DEPTH floats
//   b   columns of the scores, packed: k, k, q             [batch][head][ceil(columns / TN)][DEPTH][TN], zeros at the
//                                                          end
//   w   rows that p or ds multiplies: v, k, q              by w_batch, w_head, w_row; WIDTH floats, readable to a whole
//                                                          vector
//   PASS 1, 2:  a2 rows: dout, v (DEPTH2 floats)   b2 packed columns: v, dout   sums float [2][batch][head][query],
//                                                                               delta float [batch][head][query] by
//                                                                               strides, contiguous queries
//   PASS 2:     w2 rows that p multiplies: dout (WIDTH2 floats)
//   MASK:       mask by mask_batch, mask_head, mask_query, mask_key
//   DROPOUT:    state long[2] = (seed, offset)
//   BLOCKS:     blocks uchar by blocks_batch, blocks_head, blocks_query, blocks_key: 0 where the mask hides a whole block
// heads: of q. heads_per_kv: heads of q per head of k and v. Global size: (ceil(rows / (MR*MT)), heads of the rows,
//   batches), local size (1, 1, 1).
// Epilogue macros: STORE(acc, b, h, row, d), STOREV; PASS 0: STORE1(sum, which, b, h, row); PASS 2: STORE1, STORE1V for
//   dv.
#define Y_VSTORE(v, p) VSTORE(v, p)

// ---- mask and dropout ----
#if STORED_MASK
// Adds the mask to s, `count` columns of one row. step: the mask's stride along the columns.
ALWAYS_INLINE void apply_mask(float* s, __global const MASK_T* mask, const long step, const int count) {
  int k = 0;
  if (step == 1) {
    for (; k + VW <= count; k += VW) {
#if MASK == 1
      const VEC seen = OCL_CAT(convert_float, VW)(OCL_CAT(vload, VW)(0, mask + k));
      VSTORE(seen != (VEC)(0.0f) ? VLOAD(s + k) : (VEC)(-INFINITY), s + k);
#elif MASK == 2
      VSTORE(VLOAD(s + k) + LOADV(mask, k), s + k);
#else
      VSTORE(VLOAD(s + k) + VLOAD(mask + k), s + k);
#endif
    }
  }
  for (; k < count; ++k) {
#if MASK == 1
    if (!mask[k * step]) s[k] = -INFINITY;
#elif MASK == 2
    s[k] += LOAD(mask, k * step);
#else
    s[k] += mask[k * step];
#endif
  }
}
#elif MASK
// Adds the mask to s, `count` columns of one row from column c0 on.
ALWAYS_INLINE void apply_mask(float* s, const int batch, const int head, const int row, const int c0,
                              const int count EPILOGUE_FUNCTION_PARAMS) {
#if ROWS_ARE_KEYS
#define MASK_AT(VALUES, c) VALUES(batch, head, c0 + (c), row)
#else
#define MASK_AT(VALUES, c) VALUES(batch, head, row, c0 + (c))
#endif
  int k = 0;
  for (; k + VW <= count; k += VW) {
    const VEC mask = MASK_AT(MASK_LANES, k);
    VSTORE(ADD_MASK(VLOAD(s + k), mask), s + k);
  }
  for (; k < count; ++k) {
    const float mask = MASK_AT(MASK_VALUE, k);
    s[k] = ADD_MASK(s[k], mask);
  }
}
#endif

#if DROPOUT
#define VEC_ULONG OCL_CAT(ulong, VW)
// Interleaves the lanes of four vectors: w[0].a, w[1].a, w[2].a, w[3].a, w[0].b, ...
#define ZIP(a) w[0].a, w[1].a, w[2].a, w[3].a
#if VW == 16
#define ZIPPED(a, b, c, d) (VEC_UINT)(ZIP(a), ZIP(b), ZIP(c), ZIP(d))
#elif VW == 8
#define ZIPPED(a, b) (VEC_UINT)(ZIP(a), ZIP(b))
#else
#define ZIPPED(a) (VEC_UINT)(ZIP(a))
#endif

// Writes to w[0] .. w[3] the four words of Philox 4x32-10 for VW counters: lane l has counter first + l * step.
// csrc/ir/graph.h says which counter belongs to which score.
ALWAYS_INLINE void draw(VEC_UINT* w, __global const long* state, const ulong first, const ulong step) {
  const float lanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const VEC_ULONG counter = (VEC_ULONG)(first) + OCL_CAT(convert_ulong, VW)(VLOAD(lanes)) * (VEC_ULONG)(step);
  const ulong seed = as_ulong(state[0]), offset = as_ulong(state[1]);
  uint k0 = (uint)seed, k1 = (uint)(seed >> 32);
  w[0] = (VEC_UINT)((uint)offset);
  w[1] = (VEC_UINT)((uint)(offset >> 32));
  w[2] = OCL_CAT(convert_uint, VW)(counter & (VEC_ULONG)(0xffffffffUL));
  w[3] = OCL_CAT(convert_uint, VW)(counter >> (VEC_ULONG)(32UL));
  PHILOX_ROUNDS(VEC_UINT, w[0], w[1], w[2], w[3], k0, k1)
}

// Returns the dropout factor of each random word: 0 or KEPT.
ALWAYS_INLINE VEC kept_of(const VEC_UINT word) {
  return OCL_CAT(convert_float, VW)(word >> (VEC_UINT)(8u)) * (VEC)(0x1p-24f) < (VEC)(DROP) ? (VEC)(0.0f) : (VEC)(KEPT);
}

// Applies dropout: multiplies y by 0 or KEPT for `count` columns from column c0 on. first: the random counter of (row,
// column 0). per_query: the number of random counters for each query.
ALWAYS_INLINE void apply_dropout(float* y, __global const long* state, const ulong first, const ulong per_query,
                                 const int row, const int c0, const int count) {
  VEC_UINT w[4];
#if ROWS_ARE_KEYS
  for (int k = 0; k < count; k += VW) {
    draw(w, state, first + (ulong)(c0 + k) * per_query, per_query);
    const VEC_UINT word = row % 4 == 0 ? w[0] : row % 4 == 1 ? w[1] : row % 4 == 2 ? w[2] : w[3];
    VSTORE(VLOAD(y + k) * kept_of(word), y + k);
  }
#else
  for (int k = 0; k < count; k += 4 * VW) {
    draw(w, state, first + (ulong)((c0 + k) / 4), 1);
#if VW == 16
    const VEC_UINT words[4] = {ZIPPED(s0, s1, s2, s3), ZIPPED(s4, s5, s6, s7), ZIPPED(s8, s9, sa, sb),
                               ZIPPED(sc, sd, se, sf)};
#elif VW == 8
    const VEC_UINT words[4] = {ZIPPED(s0, s1), ZIPPED(s2, s3), ZIPPED(s4, s5), ZIPPED(s6, s7)};
#else
    const VEC_UINT words[4] = {ZIPPED(s0), ZIPPED(s1), ZIPPED(s2), ZIPPED(s3)};
#endif
    OCL_UNROLL for (int i = 0; i < 4; ++i) {
      if (k + i * VW < count) VSTORE(VLOAD(y + k + i * VW) * kept_of(words[i]), y + k + i * VW);
    }
  }
#endif
}
#endif

#ifdef CAP
// Caps `count` scores of a row. slopes: with PASS 1 and 2, becomes the derivatives.
ALWAYS_INLINE void cap_scores(float* row, float* slopes, const int count) {
  for (int k = 0; k < count; k += VW) {
    const VEC x = VLOAD(row + k) * (VEC)(1.0f / CAP), e = exp_lanes(fabs(x) * (VEC)(-2.0f));
    const VEC inverse = (VEC)(1.0f) / ((VEC)(1.0f) + e), size = ((VEC)(1.0f) - e) * inverse * (VEC)(CAP);
    VSTORE(x < (VEC)(0.0f) ? -size : size, row + k);
#if PASS
    VSTORE((VEC)(4.0f) * e * inverse * inverse, slopes + k);
#endif
  }
}
#define SLOPE(k) VLOAD(slopes + k)
#else
#define SLOPE(k) (VEC)(1.0f)
#endif

// ---- from scores to what multiplies the rows of w ----

// PASS 0: turns `count` scores of a row into exp(score - row_max), with the maximum of all blocks so far. Returns the factor
// of what was added up before.
ALWAYS_INLINE float raise_scores(float* row, float* row_max, float* row_sum, const int count) {
  VEC largest = VLOAD(row);
  for (int k = VW; k < count; k += VW) {
    const VEC x = VLOAD(row + k);
    largest = x > largest ? x : largest;
  }
  const float block_max = OCL_CAT(max_lanes, VW)(largest), now = block_max > *row_max ? block_max : *row_max;
  const float shift = now == -INFINITY ? 0.0f : now, rescale = exp(*row_max - shift);
  VEC sum = (VEC)(0.0f);
  for (int k = 0; k < count; k += VW) {
    const VEC e = exp_lanes(VLOAD(row + k) - (VEC)(shift));
    VSTORE(e, row + k);
    sum += e;
  }
  *row_sum = *row_sum * rescale + OCL_CAT(sum_lanes, VW)(sum);
  *row_max = now;
  return rescale;
}

// PASS 1: turns `count` scores of a query into ds. grad: the gradients of p. slopes: see cap_scores.
ALWAYS_INLINE void query_gradients(float* row, const float* grad, const float* slopes, const float shift,
                                   const float inverse, const float delta, const int count) {
  for (int k = 0; k < count; k += VW) {
    const VEC p = exp_lanes(VLOAD(row + k) - (VEC)(shift)) * (VEC)(inverse);
    VSTORE(p * (VLOAD(grad + k) - (VEC)(delta)) * SLOPE(k) * (VEC)(SCALE), row + k);
  }
}

// PASS 2: turns `count` scores of a key into p, and the gradients `grad` of p into ds. most, inverses, deltas: of the
// queries. kept: the factors of dropout. slopes: see cap_scores.
ALWAYS_INLINE void key_gradients(float* row, float* grad, const float* slopes, const float* most, const float* inverses,
                                 const float* deltas, const float* kept, const int count) {
  for (int k = 0; k < count; k += VW) {
    const VEC p = exp_lanes(VLOAD(row + k) - VLOAD(most + k)) * VLOAD(inverses + k);
#if DROPOUT
    const VEC factor = VLOAD(kept + k);
#else
    const VEC factor = (VEC)(1.0f);
#endif
    VSTORE(p * factor, row + k);
    VSTORE(p * (VLOAD(grad + k) * factor - VLOAD(deltas + k)) * SLOPE(k) * (VEC)(SCALE), grad + k);
  }
}

// Stores a row of sums, times `factor`. STORE_LANES, STORE_ONE: macros of the epilogue.
#define STORE_ROW(STORE_LANES, STORE_ONE, row, width, factor)     \
  OCL_NO_UNROLL for (int d = 0; d < (width) / VW * VW; d += VW) { \
    const VEC value = VLOAD(row + d) * (VEC)(factor);             \
    STORE_LANES(value, batch, head, r0 + i, d);                   \
  }                                                               \
  OCL_NO_UNROLL for (int d = (width) / VW * VW; d < (width); ++d) STORE_ONE(row[d] * (factor), batch, head, r0 + i, d);

ONE_ITEM __kernel void KERNEL_NAME(KERNEL_PARAMETERS EPILOGUE_PARAMS) {
  const int head = get_global_id(1), batch = get_global_id(2);
  const int rows = ROWS_ARE_KEYS ? keys : queries, columns = ROWS_ARE_KEYS ? queries : keys;
  const int panels = (columns + TN - 1) / TN, column_heads = ROWS_ARE_KEYS ? heads : heads / heads_per_kv;
  a += a_offset + batch * a_batch + head * a_head;
#if PASS
  a2 += a2_offset + batch * a2_batch + head * a2_head;
#endif
#if DROPOUT
  state += state_offset;
#endif
  float row_a[MR * DEPTH], s[MR * BLOCK], out[MR * PADDED(WIDTH)], rescale[MR];
#if PASS
  float row_a2[MR * DEPTH2], y[MR * BLOCK];
#endif
#if PASS && defined(CAP)
  float slopes[BLOCK];
#else
  float* slopes = s;  // not used
#endif
#if PASS == 2
  float out2[MR * PADDED(WIDTH2)], column_most[BLOCK], column_inverse[BLOCK], column_delta[BLOCK], kept[BLOCK];
#endif
  for (int tile = 0; tile < MT; ++tile) {
    const int r0 = ((int)get_global_id(0) * MT + tile) * MR;
    if (r0 >= rows) break;
    load_rows(row_a, a, a_row, r0, rows, DEPTH);
    for (int k = 0; k < MR * PADDED(WIDTH); ++k) out[k] = 0.0f;
#if PASS
    load_rows(row_a2, a2, a2_row, r0, rows, DEPTH2);
    for (int i = 0; i < MR; ++i) rescale[i] = 1.0f;
#else
    float row_max[MR], row_sum[MR];
    for (int i = 0; i < MR; ++i) {
      row_max[i] = -INFINITY;
      row_sum[i] = 0.0f;
    }
#endif
#if PASS == 2
    for (int k = 0; k < MR * PADDED(WIDTH2); ++k) out2[k] = 0.0f;
    for (int q_head = head * heads_per_kv; q_head < (head + 1) * heads_per_kv; ++q_head) {
      const int column_head = q_head;
#else
    {
      const int q_head = head, column_head = head / heads_per_kv;
#endif
      __global const IN_T* panel = b + b_offset + ((long)batch * column_heads + column_head) * panels * (DEPTH * TN);
      __global const IN_T* added = w + w_offset + batch * w_batch + column_head * w_head;
#if PASS
      __global const IN_T* panel2 =
          b2 + b2_offset + ((long)batch * column_heads + column_head) * panels * (DEPTH2 * TN);
      __global const float* row_sums = sums + sums_offset + batch * sums_batch + q_head * sums_head;
      __global const float* row_delta = delta + delta_offset + batch * delta_batch + q_head * delta_head;
#endif
#if PASS == 2
      __global const IN_T* added2 = w2 + w2_offset + batch * w2_batch + column_head * w2_head;
#endif
      // The columns that at least one row of the tile sees (causal mask).
      const int begin = CAUSAL && ROWS_ARE_KEYS ? r0 / TN * TN : 0;
      const int end = CAUSAL && !ROWS_ARE_KEYS ? min(columns, r0 + MR) : columns;
      for (int c0 = begin; c0 < end; c0 += BLOCK) {
        int count = min(BLOCK, end - c0);
        // The mask hides the columns before `first` from every row of this block.
        int first = CAUSAL && ROWS_ARE_KEYS ? max(r0 - c0, 0) / VW * VW : 0;
#if BLOCKS
        const int2 seen = seen_columns(BLOCKS_OF(batch, q_head), r0, min(r0 + MR, rows) - 1, c0, count);
        first = max(first, seen.x / VW * VW);
        count = seen.y;
        if (first >= count) continue;
#endif
        const int padded = (count + VW - 1) / VW * VW;
        for (int c = first / TN * TN; c < padded; c += TN) {
          score_panel(s, row_a, panel + (long)(c0 + c) * DEPTH, DEPTH, SCALE, c, first, count);
#if PASS
          score_panel(y, row_a2, panel2 + (long)(c0 + c) * DEPTH2, DEPTH2, 1.0f, c, first, count);
#endif
        }
#if PASS == 2
        for (int k = first; k < padded; ++k) {
          column_most[k] = k < count ? row_sums[c0 + k] : 0.0f;
          column_inverse[k] = k < count ? inverse_of(row_sums[sums_which + c0 + k]) : 0.0f;
          column_delta[k] = k < count ? row_delta[c0 + k] : 0.0f;
        }
#endif
        for (int i = 0; i < MR; ++i) {
          float* row = s + i * BLOCK;
          const int r = min(r0 + i, rows - 1);
#ifdef CAP
          cap_scores(row + first, slopes, padded - first);
#endif
#if STORED_MASK
          const long along = ROWS_ARE_KEYS ? mask_query : mask_key;
          apply_mask(row + first,
                     mask + mask_offset + batch * mask_batch + q_head * mask_head +
                         r * (ROWS_ARE_KEYS ? mask_key : mask_query) + (c0 + first) * along,
                     along, count - first);
#elif MASK
          apply_mask(row + first, batch, q_head, r, c0 + first, count - first EPILOGUE_PASS);
#endif
#if ROWS_ARE_KEYS
#if CAUSAL
          for (int k = first; k < min(r - c0, padded); ++k) row[k] = -INFINITY;
#endif
#else
          for (int k = max(CAUSAL ? min(count, r + 1 - c0) : count, first); k < padded; ++k) row[k] = -INFINITY;
#endif
#if PASS == 0
          rescale[i] = raise_scores(row + first, row_max + i, row_sum + i, padded - first);
#endif
#if DROPOUT
          const ulong per_query = (ulong)((keys + 3) / 4), queries_before = ((ulong)batch * heads + q_head) * queries;
          const ulong counter = ROWS_ARE_KEYS ? queries_before * per_query + r / 4 : (queries_before + r) * per_query;
#if PASS == 0
          apply_dropout(row + first, state, counter, per_query, r, c0 + first, padded - first);
#elif PASS == 1
          apply_dropout(y + i * BLOCK + first, state, counter, per_query, r, c0 + first, padded - first);
#else
          for (int k = first; k < padded; ++k) kept[k] = 1.0f;
          apply_dropout(kept + first, state, counter, per_query, r, c0 + first, padded - first);
#endif
#endif
#if PASS == 1
          query_gradients(row + first, y + i * BLOCK + first, slopes, row_sums[r], inverse_of(row_sums[sums_which + r]),
                          row_delta[r], padded - first);
#elif PASS == 2
          key_gradients(row + first, y + i * BLOCK + first, slopes, column_most + first, column_inverse + first,
                        column_delta + first, kept + first, padded - first);
#endif
        }
#if PASS == 2
        add_rows(out, rescale, y + first, added + (c0 + first) * w_row, w_row, count - first, WIDTH);
        add_rows(out2, rescale, s + first, added2 + (c0 + first) * w2_row, w2_row, count - first, WIDTH2);
#else
        add_rows(out, rescale, s + first, added + (c0 + first) * w_row, w_row, count - first, WIDTH);
#endif
      }
    }
    OCL_NO_UNROLL for (int i = 0; i < min(MR, rows - r0); ++i) {
      float* row = out + i * PADDED(WIDTH);
#if PASS == 0
      const float inverse = keys > 0 ? inverse_of(row_sum[i]) : 0.0f;
      OCL_NO_UNROLL for (int which = 0; which < 2; ++which) STORE1(which                     ? row_sum[i]
                                                                   : row_max[i] == -INFINITY ? 0.0f
                                                                                             : row_max[i],
                                                                   which, batch, head, r0 + i);
#else
      const float inverse = 1.0f;
#endif
      STORE_ROW(STOREV, STORE, row, WIDTH, inverse)
#if PASS == 2
      float* row2 = out2 + i * PADDED(WIDTH2);
      STORE_ROW(STORE1V, STORE1, row2, WIDTH2, 1.0f)
#endif
    }
  }
}
