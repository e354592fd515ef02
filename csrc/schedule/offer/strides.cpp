// csrc/schedule/offer/strides.cpp: strides of dense buffers.
#include "csrc/schedule/offer/strides.h"

namespace ocl::schedule {

ir::Shape dense_strides(const ir::Shape& sizes, const std::vector<int>& order) {
  ir::Shape strides(sizes.size(), 1);
  ir::IndexExpr step = 1;
  for (size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = step;
    step = simplify(step * sizes[order[i]], {});
  }
  return strides;
}

}  // namespace ocl::schedule
