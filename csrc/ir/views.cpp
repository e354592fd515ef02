// csrc/ir/views.cpp: the views of Builder. Each only rewrites coordinates; none makes a node.
#include <algorithm>

#include "csrc/ir/builder.h"
#include "csrc/support/error.h"

namespace ocl::ir {

namespace {

IndexExpr loop(size_t i) { return IndexExpr::loop(static_cast<int>(i)); }

int normalize(int dim, size_t rank) {
  const int n = static_cast<int>(rank);
  OCL_ASSERT(dim >= -n && dim < n, "dimension " + std::to_string(dim) + " of a value of rank " + std::to_string(n));
  return dim < 0 ? dim + n : dim;
}

/// Returns a view of x with other sizes: element (i0, i1, ..) of the result is the element of x at the coordinates `old`.
Value view(const Builder& b, const Value& x, Shape sizes, const std::vector<IndexExpr>& old) {
  Ranges ranges = b.graph.ranges();
  for (size_t i = 0; i < sizes.size(); ++i) ranges.set_extent({SymbolKind::kLoop, static_cast<int>(i)}, sizes[i]);
  std::map<Symbol, IndexExpr> with;
  for (size_t i = 0; i < old.size(); ++i) with.emplace(Symbol{SymbolKind::kLoop, static_cast<int>(i)}, old[i]);
  Value result = x;
  result.sizes = std::move(sizes);
  for (IndexExpr& coord : result.coords) coord = simplify(substitute(coord, with), ranges);
  result.index = simplify(substitute(x.index, with), ranges);
  return result;
}

}  // namespace

Value Builder::reshape(const Value& x, const Shape& sizes) const {
  if (sizes == x.sizes) return x;
  // Match runs of old and new dimensions that have equal products. A plain split or merge then needs no division by the
  // dimensions to its right.
  const Ranges ranges = graph.ranges();
  const auto equal = [&](const IndexExpr& a, const IndexExpr& b) { return a == b || simplify(a - b, ranges).is_const(0); };
  std::vector<IndexExpr> old(x.sizes.size(), 0);
  // Without elements, any coordinates will do.
  if (product(x.sizes).is_const(0) && product(sizes).is_const(0)) return view(*this, x, sizes, old);
  size_t from = 0, to = 0;
  while (from < x.sizes.size() || to < sizes.size()) {
    size_t from_end = from, to_end = to;
    IndexExpr have = 1, want = 1;
    if (from_end < x.sizes.size()) have = x.sizes[from_end++];
    if (to_end < sizes.size()) want = sizes[to_end++];
    while (!equal(have, want)) {
      // Extend the side that is known to have the smaller product. If that is unknown, take all dimensions that are
      // left.
      const bool both = have.is_const() && want.is_const();
      const bool lags_old = both ? have.constant() < want.constant() : ranges.known_divides(have, want);
      const bool lags_new = both ? want.constant() < have.constant() : ranges.known_divides(want, have);
      if (lags_old && from_end < x.sizes.size()) {
        have = have * x.sizes[from_end++];
      } else if (lags_new && to_end < sizes.size()) {
        want = want * sizes[to_end++];
      } else if (from_end < x.sizes.size() || to_end < sizes.size()) {
        while (from_end < x.sizes.size()) have = have * x.sizes[from_end++];
        while (to_end < sizes.size()) want = want * sizes[to_end++];
      } else {
        // With symbolic sizes, only a guard of the caller says that these products are equal.
        break;
      }
    }
    OCL_ASSERT(!have.is_const() || !want.is_const() || have == want,
               "reshape to another number of elements: " + have.str() + ", " + want.str());
    if (have.is_const(1)) {  // Dimensions of size 1 on both sides.
      from = from_end;
      to = to_end;
      continue;
    }
    IndexExpr linear = 0, stride = 1;
    for (size_t i = to_end; i-- > to;) {
      linear = linear + loop(i) * stride;
      stride = stride * sizes[i];
    }
    stride = 1;
    for (size_t i = from_end; i-- > from;) {
      const bool outermost =
          std::all_of(x.sizes.begin() + static_cast<std::ptrdiff_t>(from), x.sizes.begin() + static_cast<std::ptrdiff_t>(i),
                      [](const IndexExpr& size) { return size.is_const(1); });
      if (x.sizes[i].is_const(1)) continue;
      const IndexExpr quotient = floordiv(linear, stride);
      old[i] = outermost ? quotient : mod(quotient, x.sizes[i]);
      stride = stride * x.sizes[i];
    }
    from = from_end;
    to = to_end;
  }
  return view(*this, x, sizes, old);
}

Value Builder::permute(const Value& x, const std::vector<int>& dims) const {
  OCL_ASSERT(dims.size() == x.sizes.size(), "permute needs every dimension once");
  Shape sizes;
  std::vector<IndexExpr> old(dims.size(), 0);
  for (size_t i = 0; i < dims.size(); ++i) {
    const size_t dim = static_cast<size_t>(normalize(dims[i], dims.size()));
    sizes.push_back(x.sizes[dim]);
    old[dim] = loop(i);
  }
  return view(*this, x, std::move(sizes), old);
}

Value Builder::expand(const Value& x, const Shape& sizes) const {
  if (sizes == x.sizes) return x;
  OCL_ASSERT(sizes.size() >= x.sizes.size(), "expand to fewer dimensions");
  const size_t added = sizes.size() - x.sizes.size();
  std::vector<IndexExpr> old;
  for (size_t i = 0; i < x.sizes.size(); ++i) {
    const bool repeated = x.sizes[i].is_const(1);
    OCL_ASSERT(repeated || !x.sizes[i].is_const() || !sizes[added + i].is_const() || x.sizes[i] == sizes[added + i],
               "expand of size " + x.sizes[i].str() + " to " + sizes[added + i].str());
    old.push_back(repeated ? IndexExpr(0) : loop(added + i));
  }
  return view(*this, x, sizes, old);
}

Value Builder::slice(const Value& x, int dim, const IndexExpr& start, const IndexExpr& end, const IndexExpr& step) const {
  const size_t d = static_cast<size_t>(normalize(dim, x.sizes.size()));
  Shape sizes = x.sizes;
  std::vector<IndexExpr> old = loops(sizes.size());
  sizes[d] = simplify(ceildiv(end - start, step), graph.ranges());
  if (sizes[d].is_const() && sizes[d].constant() < 0) sizes[d] = 0;
  old[d] = start + old[d] * step;
  return view(*this, x, std::move(sizes), old);
}

Value Builder::select(const Value& x, int dim, const IndexExpr& index) const {
  const size_t d = static_cast<size_t>(normalize(dim, x.sizes.size()));
  Shape sizes = x.sizes;
  sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(d));
  std::vector<IndexExpr> old = loops(sizes.size());
  old.insert(old.begin() + static_cast<std::ptrdiff_t>(d), index);
  return view(*this, x, std::move(sizes), old);
}

Value Builder::flip(const Value& x, const std::vector<int>& dims) const {
  std::vector<IndexExpr> old = loops(x.sizes.size());
  for (const int dim : dims) {
    const size_t d = static_cast<size_t>(normalize(dim, x.sizes.size()));
    old[d] = x.sizes[d] - 1 - loop(d);
  }
  return view(*this, x, x.sizes, old);
}

Value Builder::squeeze(const Value& x, const std::vector<int>& dims) const {
  std::vector<bool> dropped(x.sizes.size(), false);
  for (const int dim : dims) {
    if (x.sizes.empty()) continue;  // torch allows dims 0 and -1 on a scalar.
    const size_t d = static_cast<size_t>(normalize(dim, x.sizes.size()));
    dropped[d] = x.sizes[d].is_const(1);
  }
  Shape sizes;
  std::vector<IndexExpr> old;
  for (size_t i = 0; i < x.sizes.size(); ++i) {
    old.push_back(dropped[i] ? IndexExpr(0) : loop(sizes.size()));
    if (!dropped[i]) sizes.push_back(x.sizes[i]);
  }
  return view(*this, x, std::move(sizes), old);
}

Value Builder::unsqueeze(const Value& x, int dim) const {
  const size_t d = static_cast<size_t>(normalize(dim, x.sizes.size() + 1));
  Shape sizes = x.sizes;
  sizes.insert(sizes.begin() + static_cast<std::ptrdiff_t>(d), 1);
  std::vector<IndexExpr> old;
  for (size_t i = 0; i < x.sizes.size(); ++i) old.push_back(loop(i < d ? i : i + 1));
  return view(*this, x, std::move(sizes), old);
}

Value Builder::diagonal(const Value& x, int offset, int dim1, int dim2) const {
  const size_t d1 = static_cast<size_t>(normalize(dim1, x.sizes.size())),
               d2 = static_cast<size_t>(normalize(dim2, x.sizes.size()));
  OCL_ASSERT(d1 != d2, "diagonal of a dimension with itself");
  const int down = std::max(-offset, 0), right = std::max(offset, 0);
  Shape sizes;
  std::vector<IndexExpr> old(x.sizes.size(), 0);
  for (size_t i = 0; i < x.sizes.size(); ++i) {
    if (i == d1 || i == d2) continue;
    old[i] = loop(sizes.size());
    sizes.push_back(x.sizes[i]);
  }
  old[d1] = loop(sizes.size()) + down;
  old[d2] = loop(sizes.size()) + right;
  sizes.push_back(simplify(max(min(x.sizes[d1] - down, x.sizes[d2] - right), 0), graph.ranges()));
  return view(*this, x, std::move(sizes), old);
}

Value Builder::as_strided(const Value& x, const Shape& sizes, const Shape& strides, const IndexExpr& offset) {
  OCL_ASSERT(sizes.size() == strides.size(), "as_strided needs a stride per size");
  if (std::any_of(sizes.begin(), sizes.end(), [](const IndexExpr& size) { return size.is_const(0); }))
    return view(*this, x, sizes, std::vector<IndexExpr>(x.sizes.size(), 0));  // x may be empty: nothing to divide by
  Value base = realize(x);
  const Buffer& buffer = graph.buffers.at(static_cast<size_t>(base.buffer));
  const Shape base_strides = buffer.role == BufferRole::kInput ? *buffer.strides : contiguous_strides(buffer.sizes);
  IndexExpr linear = offset;
  for (size_t i = 0; i < sizes.size(); ++i) linear = linear + loop(i) * strides[i];

  // Computes the coordinates of the element at offset `linear`: divides by the strides from the largest to the smallest, and
  // continues each time with the remainder.
  std::vector<size_t> order;
  for (size_t i = 0; i < buffer.sizes.size(); ++i)
    if (!buffer.sizes[i].is_const(1)) order.push_back(i);
  const Ranges ranges = graph.ranges();
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (base_strides[a] == base_strides[b]) return false;
    return ranges.known_nonnegative(base_strides[a] - base_strides[b]) &&
           !ranges.known_nonnegative(base_strides[b] - base_strides[a]);
  });
  std::vector<IndexExpr> coords(buffer.sizes.size(), 0);
  IndexExpr expected = 1;
  for (size_t i = order.size(); i-- > 0;) {
    const size_t d = order[i];
    if (!(base_strides[d] == expected))
      fail(ErrorKind::kUnsupported, "as_strided of an input that is not dense: strides of " + buffer.name);
    const IndexExpr quotient = floordiv(linear, base_strides[d]);
    coords[d] = i == 0 ? quotient : mod(quotient, buffer.sizes[d]);
    expected = expected * buffer.sizes[d];
  }
  base.sizes = buffer.sizes;
  return view(*this, base, sizes, coords);
}

}  // namespace ocl::ir
