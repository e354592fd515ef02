// kernels/gemm/parameters.cl: macros of the products that are computed by matrix instructions, and their values where a
// kernel is built alone. Comes before gemm/warp.cl, gemm/warpgroup.cl, gemm/packed_warpgroup.cl and
// gemm/subgroup_matrix.cl.
// Macros of a launch: A_K_MAJOR (1: k is the contiguous dimension of A, 0: m is), B_K_MAJOR (1: k is the contiguous
//   dimension of B, 0: n is), A_VEC4 (1: the contiguous dimension of A has stride 1, and its extent and the other
//   strides are multiples of 4. With operands of 16 bits, and with subgroup_matrix.cl, the other strides are multiples
//   of a chunk of 16 bytes, and the extent may be any number.), B_VEC4 (the same for B).
