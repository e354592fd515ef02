// kernels/tensor_core/wgmma.cl: the instructions of the warpgroup kernels: mbarriers, bulk copies, wgmma. Comes after
// tensor_core/operands.cl.
//
// The compiler knows fewer instructions than the driver's assembler. So the other instructions follow //@, which starts
// a comment for the compiler. The runtime removes the //@ before the text is assembled
// (csrc/runtime/opencl/hidden_instructions.h).
// TILE_N, columns of C per work-group: 64 or 128; 32, 96, 160 and 192 with operands of 16 bits; 256 with these, or with
// packed TF32.

// ---- instructions ----
// Returns the nearest TF32 to x, ties away from zero, as the bits of a float. It uses integer instructions because the
// conversion instruction runs at an eighth of their rate.
ALWAYS_INLINE uint to_tf32(const float x) {
  return (as_uint(x) + 0x1000u) & 0xFFFFE000u;
}
// Returns to_tf32(x) without clearing the 13 lowest bits, which tensor cores ignore.
ALWAYS_INLINE uint to_tf32_operand(const float x) {
  return as_uint(x) + 0x1000u;
}
ALWAYS_INLINE void barrier_init(const uint bar, const uint arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}
ALWAYS_INLINE void barrier_arrive(const uint bar) {
  asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(bar) : "memory");
}
// Arrives at the mbarrier once the copies that this work-item has issued by copy_16 and copy_4 are complete.
ALWAYS_INLINE void barrier_arrive_after_copies(const uint bar) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(bar) : "memory");
}
#ifndef WAIT_TRIES
#define MORE_TRIES 1
#else
#define MORE_TRIES (++tries < WAIT_TRIES)  // a device check must end even if a kernel is wrong, so its waits give up
#endif
ALWAYS_INLINE void barrier_wait(const uint bar, const uint parity) {
  uint done, tries = 0;
  do {
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(bar), "r"(parity)
                 : "memory");
  } while (!done && MORE_TRIES);
}
// Returns the number of the work-item's warpgroup. Since lane 0 gives it to the others, the compiler knows that it is the same
// in a warp, and keeps what depends on it, such as descriptors, in the registers of warps. All lanes of a warp call it together.
ALWAYS_INLINE int warpgroup_number(void) {
  int number;
  asm("shfl.sync.idx.b32 %0, %1, 0, 31, -1;" : "=r"(number) : "r"((int)get_local_id(0) >> 7));
  return number;
}
// Waits until all 32 work-items of the warp have arrived here.
ALWAYS_INLINE void warp_sync(void) {
  asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");
}
// Orders this work-item's stores to local memory before the reads of the tensor cores. A fence for all memory would
// also wait for loads in flight.
ALWAYS_INLINE void fence_async_proxy(void) {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// Arrives at the barrier, which then completes only after copy_block has copied `bytes` bytes.
ALWAYS_INLINE void barrier_expect(const uint bar, const uint bytes) {
  asm volatile("{ .reg .b64 t; mbarrier.arrive.expect_tx.shared.b64 t, [%0], %1; }" ::"r"(bar), "r"(bytes) : "memory");
}
// Starts a copy of `bytes` bytes from global to local memory; the size and both addresses are multiples of 16 bytes.
// Tensor cores may read the bytes once the barrier `bar` is complete.
ALWAYS_INLINE void copy_block(const uint to, __global const float* from, const uint bytes, const uint bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"((ulong)(size_t)from), "r"(bytes), "r"(bar)
               : "memory");
}
// ---- boxes ----
// A tensor map describes a matrix in global memory, from which copy_box copies boxes. Maps lie in global memory too, in a
// variable of the program. Each compute unit has MAPS places there: no two work-groups with maps fit on a compute unit,
// because each uses more than half of its local memory. If several share one (AT_ONCE), each of the launch's work-groups,
// at most 1024, has two places.
#ifndef MAPS
#define MAPS 2
#endif
#ifdef AT_ONCE
#define MAP_OWNER (get_group_id(0) + get_group_id(2) * get_num_groups(0))
#define RESIDENT AT_ONCE
#else
#define MAP_OWNER (unit & 255)
#endif
#ifdef RESIDENT
// The compiler gives work-items so few registers that RESIDENT work-groups fit on a compute unit.
#define SHARE_UNIT() asm volatile("//@@@.minnctapersm %0" ::"n"(RESIDENT))
#else
#define SHARE_UNIT()
#endif
#define SET_MAP(field, bits, value, ...)                                                      \
  asm volatile("//@tensormap.replace.tile." field ".shared::cta.b1024.b" bits " [%0], " value \
               ";" ::"r"(local_address(map))__VA_ARGS__                                       \
               : "memory")
// Begins a map in `map`, 128 bytes in local memory: sets what does not depend on the dimensions, of which there are `rank`. A
// box has `box_rows` rows of 64 elements of 16 bits. matrix: a multiple of 16 bytes. All work-items of a warp call it.
ALWAYS_INLINE void begin_map(__local ulong* map, __global const OPERAND_T* matrix, const int rank, const int box_rows) {
  const int lane = get_local_id(0) & 31;
  if (lane < 16) map[lane] = 0;
  warp_sync();
  if (lane == 0) {
    SET_MAP("global_address", "64", "%1", , "l"((ulong)(size_t)matrix));
    SET_MAP("rank", "32", "%1", , "r"(rank - 1));
    SET_MAP("box_dim", "32", "0, 64");
    SET_MAP("box_dim", "32", "1, %1", , "r"(box_rows));
    SET_MAP("element_stride", "32", "0, 1");
    SET_MAP("element_stride", "32", "1, 1");
    SET_MAP("elemtype", "32", "1");  // unsigned integers of 16 bits
    SET_MAP("interleave_layout", "32", "0");
    SET_MAP("swizzle_mode", "32", "3");  // 128 bytes
    SET_MAP("fill_mode", "32", "0");
  }
}
// Makes a map in global memory visible to this work-item's copies.
ALWAYS_INLINE void acquire_map(const ulong place) {
  asm volatile("//@fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(place) : "memory");
}
// Moves the map to global memory and returns its address. number: below MAPS, a different one for each map.
ALWAYS_INLINE ulong end_map(__local ulong* map, const int number) {
  ulong place;
  uint unit;
  asm volatile("//@@.global .align 128 .b8 tensor_maps[262144];");
  asm volatile("//@mov.u64 %0, tensor_maps;" : "=l"(place));
  asm volatile("mov.u32 %0, %%smid;" : "=r"(unit));
  place += (MAP_OWNER * MAPS + number) * 128;
  warp_sync();
  asm volatile(
      "//@tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;" ::
          "l"(place),
      "r"(local_address(map))
      : "memory");
  acquire_map(place);
  return place;
}
// Returns the address of a map of `rows` rows of `width` contiguous elements of 16 bits. The rows are `stride` elements
// apart, a multiple of 8.
ALWAYS_INLINE ulong tensor_map(__local ulong* map, const int number, __global const OPERAND_T* matrix, const int width,
                               const int rows, const long stride, const int box_rows) {
  begin_map(map, matrix, 2, box_rows);
  if ((get_local_id(0) & 31) == 0) {
    SET_MAP("global_dim", "32", "0, %1", , "r"(width));
    SET_MAP("global_dim", "32", "1, %1", , "r"(rows));
    SET_MAP("global_stride", "64", "0, %1", , "l"(stride * (long)sizeof(OPERAND_T)));
  }
  return end_map(map, number);
}
// Returns the address of a map of [batches, heads, rows, width], whose boxes lie in one head. Strides are multiples of 8,
// except of dimensions of one element.
ALWAYS_INLINE ulong head_map(__local ulong* map, const int number, __global const OPERAND_T* matrix, const int width,
                             const int rows, const int heads, const int batches, const long row_stride,
                             const long head_stride, const long batch_stride, const int box_rows) {
  begin_map(map, matrix, 4, box_rows);
  if ((get_local_id(0) & 31) == 0) {
    SET_MAP("global_dim", "32", "0, %1", , "r"(width));
    SET_MAP("global_dim", "32", "1, %1", , "r"(rows));
    SET_MAP("global_dim", "32", "2, %1", , "r"(heads));
    SET_MAP("global_dim", "32", "3, %1", , "r"(batches));
    SET_MAP("global_stride", "64", "0, %1", , "l"(row_stride / CHUNK * 16));
    SET_MAP("global_stride", "64", "1, %1", , "l"(head_stride / CHUNK * 16));
    SET_MAP("global_stride", "64", "2, %1", , "l"(batch_stride / CHUNK * 16));
    SET_MAP("box_dim", "32", "2, 1");
    SET_MAP("box_dim", "32", "3, 1");
    SET_MAP("element_stride", "32", "2, 1");
    SET_MAP("element_stride", "32", "3, 1");
  }
  return end_map(map, number);
}
// Starts a copy of the box whose first element is in the given column and row of the matrix of `map`. Rows of the copy
// have 128 bytes, and their chunks are permuted as row_chunk says. Elements outside the matrix become zero. Tensor cores
// may read the bytes once the barrier `bar` is complete.
ALWAYS_INLINE void copy_box(const uint to, const ulong map, const int column, const int row, const uint bar) {
  asm volatile(
      "//@cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::
          "r"(to),
      "l"(map), "r"(column), "r"(row), "r"(bar)
      : "memory");
}
// The same for one of the matrices of a map of head_map.
ALWAYS_INLINE void copy_matrix_box(const uint to, const ulong map, const int column, const int row, const int head,
                                   const int batch, const uint bar) {
  asm volatile(
      "//@cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];" ::
          "r"(to),
      "l"(map), "r"(column), "r"(row), "r"(head), "r"(batch), "r"(bar)
      : "memory");
}
// The same for rows `row` and following of a head, from their first column on.
ALWAYS_INLINE void copy_head_box(const uint to, const ulong map, const int row, const int head, const int batch,
                                 const uint bar) {
  copy_matrix_box(to, map, 0, row, head, batch, bar);
}
// The numbers of a wgmma instruction's operands: its sums are %0 .. %(TILE_N / 2 - 1), its factors follow.
#define OPERANDS_0                                                         \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define OPERANDS_32                                                                  \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define OPERANDS_64                                                                  \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define OPERANDS_96                                                                              \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define OPERANDS_HALF_0 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define OPERANDS_HALF_32 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define OPERANDS_HALF_64 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define SUMS_HALF(d, i)                                                                                             \
  "+f"((d)[i + 0]), "+f"((d)[i + 1]), "+f"((d)[i + 2]), "+f"((d)[i + 3]), "+f"((d)[i + 4]), "+f"((d)[i + 5]),       \
      "+f"((d)[i + 6]), "+f"((d)[i + 7]), "+f"((d)[i + 8]), "+f"((d)[i + 9]), "+f"((d)[i + 10]), "+f"((d)[i + 11]), \
      "+f"((d)[i + 12]), "+f"((d)[i + 13]), "+f"((d)[i + 14]), "+f"((d)[i + 15])
#define SUMS(d, i) SUMS_HALF(d, i), SUMS_HALF(d, i + 16)
#define OPERANDS_8_FROM_48 "%48, %49, %50, %51, %52, %53, %54, %55"
#define OPERANDS_8_FROM_96 "%96, %97, %98, %99, %100, %101, %102, %103"
#define SUMS_8(d, i)                                                                                          \
  "+f"((d)[i + 0]), "+f"((d)[i + 1]), "+f"((d)[i + 2]), "+f"((d)[i + 3]), "+f"((d)[i + 4]), "+f"((d)[i + 5]), \
      "+f"((d)[i + 6]), "+f"((d)[i + 7])
// MULTIPLY: d = a * b, or d += a * b if `keep` is "1". d: 64 rows x TILE_N in the registers of a warpgroup.
#if HALVES
#ifdef IN_BF16
#define WGMMA_TYPES "f32.bf16.bf16"
#else
#define WGMMA_TYPES "f32.f16.f16"
#endif
// a (64 x 16) and b (16 x TILE_N) are descriptors. transposed: for each operand "0" if its depth is contiguous, "1" if
// the other dimension is.
#define MULTIPLY_BY(columns, numbers, a_number, b_number, d, a, b, keep, transposed, ...)                  \
  asm volatile("//@{ .reg .pred p; setp.ne.b32 p, " keep ", 0; wgmma.mma_async.sync.aligned.m64n" columns  \
               "k16." WGMMA_TYPES " {" numbers "}, " a_number ", " b_number ", p, 1, 1, " transposed "; }" \
               : __VA_ARGS__                                                                               \
               : "l"(a), "l"(b))
#define MULTIPLY_AS(d, a, b, keep, transposed) OCL_CAT(MULTIPLY_, TILE_N)(d, a, b, keep, transposed)
#define MULTIPLY_256(d, a, b, keep, transposed)                                                                    \
  MULTIPLY_BY("256", OPERANDS_0 ", " OPERANDS_32 ", " OPERANDS_64 ", " OPERANDS_96, "%128", "%129", d, a, b, keep, \
              transposed, SUMS(d, 0), SUMS(d, 32), SUMS(d, 64), SUMS(d, 96))
#define MULTIPLY_192(d, a, b, keep, transposed)                                                             \
  MULTIPLY_BY("192", OPERANDS_0 ", " OPERANDS_32 ", " OPERANDS_64, "%96", "%97", d, a, b, keep, transposed, \
              SUMS(d, 0), SUMS(d, 32), SUMS(d, 64))
#define MULTIPLY_208(d, a, b, keep, transposed)                                                                     \
  MULTIPLY_BY("208", OPERANDS_0 ", " OPERANDS_32 ", " OPERANDS_64 ", " OPERANDS_8_FROM_96, "%104", "%105", d, a, b, \
              keep, transposed, SUMS(d, 0), SUMS(d, 32), SUMS(d, 64), SUMS_8(d, 96))
#define MULTIPLY_112(d, a, b, keep, transposed)                                                             \
  MULTIPLY_BY("112", OPERANDS_0 ", " OPERANDS_HALF_32 ", " OPERANDS_8_FROM_48, "%56", "%57", d, a, b, keep, \
              transposed, SUMS(d, 0), SUMS_HALF(d, 32), SUMS_8(d, 48))
#define MULTIPLY_160(d, a, b, keep, transposed)                                                                  \
  MULTIPLY_BY("160", OPERANDS_0 ", " OPERANDS_32 ", " OPERANDS_HALF_64, "%80", "%81", d, a, b, keep, transposed, \
              SUMS(d, 0), SUMS(d, 32), SUMS_HALF(d, 64))
#define MULTIPLY_128(d, a, b, keep, transposed) \
  MULTIPLY_BY("128", OPERANDS_0 ", " OPERANDS_32, "%64", "%65", d, a, b, keep, transposed, SUMS(d, 0), SUMS(d, 32))
#define MULTIPLY_96(d, a, b, keep, transposed)                                                             \
  MULTIPLY_BY("96", OPERANDS_0 ", " OPERANDS_HALF_32, "%48", "%49", d, a, b, keep, transposed, SUMS(d, 0), \
              SUMS_HALF(d, 32))
#define MULTIPLY_64(d, a, b, keep, transposed) \
  MULTIPLY_BY("64", OPERANDS_0, "%32", "%33", d, a, b, keep, transposed, SUMS(d, 0))
#define MULTIPLY_32(d, a, b, keep, transposed) \
  MULTIPLY_BY("32", OPERANDS_HALF_0, "%16", "%17", d, a, b, keep, transposed, SUMS_HALF(d, 0))
// d += a * b: a (64 x 16) is in registers, the columns of b are contiguous.
#define MULTIPLY_A_REGISTERS_BY(columns, numbers, a_numbers, b_number, d, a, b, ...)                                  \
  asm volatile("//@{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n" columns "k16." WGMMA_TYPES \
               " {" numbers "}, {" a_numbers "}, " b_number ", p, 1, 1, 1; }"                                         \
               : __VA_ARGS__                                                                                          \
               : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "l"(b))
#define MULTIPLY_A_REGISTERS_128(d, a, b)                                                                       \
  MULTIPLY_A_REGISTERS_BY("128", OPERANDS_0 ", " OPERANDS_32, "%64, %65, %66, %67", "%68", d, a, b, SUMS(d, 0), \
                          SUMS(d, 32))
#define MULTIPLY_A_REGISTERS_64(d, a, b) \
  MULTIPLY_A_REGISTERS_BY("64", OPERANDS_0, "%32, %33, %34, %35", "%36", d, a, b, SUMS(d, 0))
// a_rows, b_rows (constants): 1 if the depth of the operand is contiguous.
#define MULTIPLY(d, a, b, keep, a_rows, b_rows) \
  {                                             \
    if (a_rows && b_rows)                       \
      MULTIPLY_AS(d, a, b, keep, "0, 0");       \
    else if (a_rows)                            \
      MULTIPLY_AS(d, a, b, keep, "0, 1");       \
    else if (b_rows)                            \
      MULTIPLY_AS(d, a, b, keep, "1, 0");       \
    else                                        \
      MULTIPLY_AS(d, a, b, keep, "1, 1");       \
  }
#else
// a (64 x 8) is in registers, b (8 x TILE_N) a descriptor.
#define MULTIPLY_BY(columns, numbers, a_numbers, b_number, d, a, b, keep, ...)                            \
  asm volatile("//@{ .reg .pred p; setp.ne.b32 p, " keep ", 0; wgmma.mma_async.sync.aligned.m64n" columns \
               "k8.f32.tf32.tf32 {" numbers "}, {" a_numbers "}, " b_number ", p, 1, 1; }"                \
               : __VA_ARGS__                                                                              \
               : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "l"(b))
#if TILE_N == 128
#define MULTIPLY(d, a, b, keep) \
  MULTIPLY_BY("128", OPERANDS_0 ", " OPERANDS_32, "%64, %65, %66, %67", "%68", d, a, b, keep, SUMS(d, 0), SUMS(d, 32))
#else
#define MULTIPLY(d, a, b, keep) MULTIPLY_BY("64", OPERANDS_0, "%32, %33, %34, %35", "%36", d, a, b, keep, SUMS(d, 0))
#endif
// d += a * b: both are descriptors, their depth is contiguous.
#define MULTIPLY_ROWS_BY(columns, numbers, a_number, b_number, d, a, b, ...)                       \
  asm volatile("//@{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n" columns \
               "k8.f32.tf32.tf32 {" numbers "}, " a_number ", " b_number ", p, 1, 1; }"            \
               : __VA_ARGS__                                                                       \
               : "l"(a), "l"(b))
#define MULTIPLY_ROWS(d, a, b) OCL_CAT(MULTIPLY_ROWS_, TILE_N)(d, a, b)
#define MULTIPLY_ROWS_256(d, a, b)                                                                                \
  MULTIPLY_ROWS_BY("256", OPERANDS_0 ", " OPERANDS_32 ", " OPERANDS_64 ", " OPERANDS_96, "%128", "%129", d, a, b, \
                   SUMS(d, 0), SUMS(d, 32), SUMS(d, 64), SUMS(d, 96))
#define MULTIPLY_ROWS_128(d, a, b) \
  MULTIPLY_ROWS_BY("128", OPERANDS_0 ", " OPERANDS_32, "%64", "%65", d, a, b, SUMS(d, 0), SUMS(d, 32))
#define MULTIPLY_ROWS_64(d, a, b) MULTIPLY_ROWS_BY("64", OPERANDS_0, "%32", "%33", d, a, b, SUMS(d, 0))
#endif
#define WGMMA_FENCE() asm volatile("//@wgmma.fence.sync.aligned;" ::: "memory")
#define WGMMA_COMMIT() asm volatile("//@wgmma.commit_group.sync.aligned;" ::: "memory")
// Waits for all committed groups of products except the `but` latest ones.
#define WGMMA_WAIT(but) asm volatile("//@wgmma.wait_group.sync.aligned " but ";" ::: "memory")
#define WGMMA_FINISH() \
  WGMMA_COMMIT();      \
  WGMMA_WAIT("0")
#define FENCE_REGISTER(x) asm volatile("" : "+f"(x))  // keeps the compiler from reading a sum before the wait
// Moves registers between warpgroups: afterwards each work-item of this warpgroup has n registers, a multiple of 8.
#define GROW_REGISTERS(n) asm volatile("//@setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n))
#define SHRINK_REGISTERS(n) asm volatile("//@setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n))
