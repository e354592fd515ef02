// csrc/ir/interleave.cpp: two values as the halves of one buffer [..., 2], which is how a complex tensor lies in memory.
#include <algorithm>

#include "csrc/ir/builder.h"

namespace ocl::ir {

namespace {

/// True if the values are neighbours along the last dimension of one buffer.
bool are_neighbours(const Graph& graph, const Value& first, const Value& second) {
  if (first.kind != Value::Kind::kView || second.kind != Value::Kind::kView || first.buffer != second.buffer) return false;
  const Buffer& buffer = graph.buffers.at(static_cast<size_t>(first.buffer));
  if (buffer.sizes.empty() || buffer.dtype != first.dtype) return false;
  return std::equal(first.coords.begin(), first.coords.end() - 1, second.coords.begin()) &&
         simplify(second.coords.back() - first.coords.back(), graph.ranges()).is_const(1);
}

}  // namespace

Value Builder::interleave(const Value& first, const Value& second) {
  Shape sizes = first.sizes;
  sizes.emplace_back(2);
  if (Value whole = first; are_neighbours(graph, first, second)) {
    whole.coords.back() = first.coords.back() + IndexExpr::loop(static_cast<int>(first.sizes.size()));
    whole.sizes = std::move(sizes);
    return whole;
  }
  const Value result = new_buffer(first.dtype, std::move(sizes));
  BodyBuilder body(*this, first.sizes, {});
  std::vector<IndexExpr> at;
  for (size_t d = 0; d < first.sizes.size(); ++d) at.push_back(IndexExpr::loop(static_cast<int>(d)));
  const int loaded[] = {body.load(first, at), body.load(second, at)};
  at.emplace_back(0);
  for (int half = 0; half < 2; ++half) {
    at.back() = half;
    body.add_store(result, at, loaded[half]);
  }
  body.end();
  return result;
}

}  // namespace ocl::ir
