// csrc/schedule/few_rows.h: pass: turns a product of a few rows and a packed matrix into sums that unpack the matrix.
#pragma once

#include "csrc/schedule/pass.h"

namespace ocl::schedule {

/// A product with up to eight rows takes as long as reading its matrix. If Map nodes compute this matrix from fewer bytes
/// (int8, two int4 in a byte, 8-bit floats), the product becomes a sum along the depth for each row, and their bodies become
/// part of it. So the matrix is read as it is stored, once for all rows, and is never stored unpacked.
///
/// On a GPU, a product with up to four rows and a large matrix whose rows are contiguous becomes such sums, too: a tile of a
/// matrix product kernel would be mostly empty.
///
/// Several elements that are packed in one are read together: the sum over k becomes a sum over k // 2 of two products.
void few_rows(Schedule& schedule, const Caps& caps);

/// True for a Map that unpacks: it computes floating point from fewer bytes of integers or 8-bit floats, and takes none of them
/// as an index. Its result is not kept between calls, although it depends on parameters alone: weights are packed to save
/// memory.
bool unpacks(const ir::Graph& graph, const ir::Node& node);

}  // namespace ocl::schedule
