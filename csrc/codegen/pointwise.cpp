// csrc/codegen/pointwise.cpp: prints nests whose outer elements are independent: pointwise groups, and reductions that each
// lane computes on its own. The loops are chosen first and printed afterwards.
//
// CPU: a work-item owns rows [first, last) of the outer loops and columns [begin, end) of the innermost loop:
//
//        begin   end           for row in [first, last):          values that depend only on the row
//   first  +-------+             for i1 in [begin, end) by W:     a vector of W elements
//          | item  |             for i1 in the tail:              narrower vectors, or one element
//   last   +-------+
// GPU: a work-item takes every (global size)th vector of the flattened loops. Rows that are not whole vectors end with a tail
// of single elements, which come last. In rows that begin at any element, the first and the last step of a row are no whole
// vectors, or empty.
#include "csrc/codegen/pointwise.h"

#include <algorithm>

#include "csrc/codegen/flat_index.h"
#include "csrc/codegen/ragged_rows.h"
#include "csrc/codegen/sequential_phases.h"

namespace ocl::codegen {

namespace {

constexpr int kBatchSteps = 8;  // GPU: elements per work-item in a batch of pointwise groups.
constexpr int kFewVectors = 4;  // Vectors in a step of the second loop, which follows the loop with the widest steps.

/// True if the group stores to a buffer that it also loads.
bool loads_what_it_stores(const Nest& nest) {
  const schedule::Schedule& schedule = nest.kernel.schedule();
  const std::set<ir::BufferId> stored = stored_buffers(schedule, nest.group.nodes());
  for (const ir::NodeId node : nest.group.nodes())
    for (const ir::BufferId buffer : ir::reads(schedule.graph.nodes[node]))
      if (stored.count(buffer)) return true;
  return false;
}

/// The innermost loop of a CPU work-item, which runs over `columns`.
struct ColumnLoops {
  IndexExpr columns;
  bool any_size = false;         // The number of columns is an argument, so the text serves all sizes.
  int width = 1;                 // Elements of a vector.
  std::vector<int> wide_steps;   // Elements per step of the loops over several vectors, which come first. Widest first.
  bool vector_loop = true;       // A loop over single vectors follows.
  std::vector<int> tail_widths;  // Widths of the vectors after the last whole vector.
  // True if each width of `tail_widths` occurs at most once. Otherwise the tail is a loop over single elements.
  bool tail_is_counted = false;
  bool stays_scalar = false;  // The OpenCL compiler is told not to vectorise the loop, which has one vector per iteration.
};

/// The loops of a CPU work-item, and the grid of work-items.
struct ItemLoops {
  ColumnLoops inner;
  IndexExpr rows;                     // Product of all loops but the innermost.
  bool has_rows = false;              // There is more than one row.
  bool whole_rows = false;            // A work-item takes all columns of a row.
  IndexExpr row_chunk, column_chunk;  // Rows and columns of a work-item.
  Grid grid;
};

ColumnLoops choose_column_loops(Nest& nest, const IndexExpr& rows) {
  const schedule::Group& group = nest.group;
  ColumnLoops loops;
  loops.columns = group.sizes.back();
  const IndexExpr& columns = loops.columns;
  loops.any_size = nest.batch_elements && group.sizes.size() == 1;
  const bool short_rows = !loops.any_size && columns.is_const() && columns.constant() < group.vector_width;
  loops.width = short_rows ? 1 : group.vector_width;

  // A reduction along columns takes several vectors at once: as many as fit into registers, then fewer.
  const bool reduces_columns = group.strategy == schedule::LoopStrategy::kSequential && !loops.any_size && loops.width > 1;
  const int64_t max_rows = std::max<int64_t>(1, nest.ranges.of(rows).high), max_columns = nest.ranges.of(columns).high;
  const int vectors = reduces_columns ? vectors_per_step(nest.body, group, max_rows, max_columns, loops.width) : 1;
  const int few = kFewVectors * loops.width;
  const int widest = max_columns >= vectors * loops.width ? vectors * loops.width : loops.width;
  for (int step = widest; step > loops.width; step = step > few ? few : loops.width) {
    if (step < widest && nest.ranges.known_divides(widest, columns)) break;
    loops.wide_steps.push_back(step);
  }
  loops.vector_loop = widest == loops.width || !nest.ranges.known_divides(widest, columns);

  // Chunks are multiples of the width. Each column's sum is a chain of dependent additions. So the columns after the
  // last whole vector are also summed in vectors (of half the width, a quarter, ...), not one by one.
  loops.tail_is_counted = reduces_columns && columns.is_const();
  const bool has_tail = loops.width > 1 && (loops.any_size || !nest.ranges.known_divides(loops.width, columns));
  for (int width = loops.tail_is_counted ? loops.width / 2 : 1; has_tail && width >= 1; width /= 2)
    if (!loops.tail_is_counted || (columns.constant() & width)) loops.tail_widths.push_back(width);
  loops.stays_scalar = loops.width == 1 && loads_what_it_stores(nest);
  return loops;
}

ItemLoops choose_item_loops(Nest& nest) {
  const ir::Shape& sizes = nest.group.sizes;
  ItemLoops loops;
  loops.rows = ir::simplify(ir::product(ir::Shape(sizes.begin(), sizes.end() - 1)), nest.ranges);
  loops.inner = choose_column_loops(nest, loops.rows);
  const IndexExpr& columns = loops.inner.columns;
  const IndexExpr cost = ir::simplify(ir::product(nest.group.reduce_sizes), nest.ranges);
  const IndexExpr elements = elements_per_item(nest.kernel.dialect(), nest.batch_elements.value_or(loops.rows * columns), cost);
  const int step = loops.inner.wide_steps.empty() ? loops.inner.width : loops.inner.wide_steps[0];
  // Short rows are not split, so there is one chunk of columns.
  loops.has_rows = !loops.rows.is_const(1);
  loops.whole_rows = columns.is_const() && columns.constant() <= kLeastWork && loops.has_rows;
  loops.column_chunk = loops.whole_rows ? columns : ir::min(columns, ir::ceildiv(elements, step) * step);
  loops.row_chunk = ir::max(1, ir::floordiv(elements, ir::max(columns, 1)));
  loops.grid = {ir::ceildiv(columns, ir::max(loops.column_chunk, 1)), 1, 1};
  if (loops.has_rows) loops.grid[1] = ir::ceildiv(loops.rows, loops.row_chunk);
  return loops;
}

/// The bounds of an item's loops as text.
struct ItemBounds {
  std::string begin = "0", end;  // Columns.
  Writer unflatten;              // Code that computes the outer loops i* from `row`.
};

/// Prints the bounds of an item's loops and enters a row.
ItemBounds print_item_bounds(Nest& nest, const ItemLoops& loops) {
  Kernel& kernel = nest.kernel;
  BodyPrinter& body = nest.body;
  const std::string type = kernel.index_type();
  std::string group_x = "get_group_id(0)", group_y = "get_group_id(1)";
  if (nest.batch_elements) {
    group_x = group_y = "group";
    if (loops.has_rows && !loops.whole_rows) {
      const std::string across = kernel.integer("column_groups", loops.grid[0]);
      group_x = "(group % " + across + ")";
      group_y = "(group / " + across + ")";
    }
  }
  const IndexExpr& columns = loops.inner.columns;
  ItemBounds bounds;
  bounds.end = loops.inner.any_size ? kernel.integer("count", columns) : body.index(columns);
  if (!loops.whole_rows) {
    const std::string chunk = kernel.integer("column_chunk", loops.column_chunk);
    body.writer().line("const $s begin = ($s)$s * $s;", type, type, group_x, chunk);
    body.writer().line("const $s end = min(begin + $s, ($s)($s));", type, chunk, type, bounds.end);
    bounds.begin = "begin";
    bounds.end = "end";
  }
  const size_t outer = nest.group.sizes.size() - 1;
  if (loops.has_rows) {
    const std::string chunk = kernel.integer("row_chunk", loops.row_chunk), rows = body.index(loops.rows);
    const std::string flat = flat_type(body, loops.rows);
    body.writer().line("const $s first = ($s)$s * $s;", flat, flat, group_y, chunk);
    body.writer().line("const $s last = min(first + ($s)$s, ($s)($s));", flat, flat, chunk, flat, rows);
    body.push(write_unflatten(body, bounds.unflatten, "row", flat, nest.group.sizes, outer, SymbolKind::kLoop));
  } else {
    body.push(zero_loops(outer));
  }
  return bounds;
}

/// Prints the phases for a vector of `width` elements of the innermost loop, at position `name`. `stays_scalar`: the OpenCL
/// compiler is told not to vectorise the reductions.
Writer print_vector(Nest& nest, ir::Symbol lane, const std::string& name, int width, bool stays_scalar = false) {
  nest.body.push({{lane, name}});
  nest.body.set_lane(lane, width);
  SequentialPhases(nest.body, nest.group, stays_scalar).print();
  return nest.body.pop();
}

/// Prints the loops over the columns [begin, end) of a row.
void print_column_loops(Nest& nest, const ColumnLoops& loops, const std::string& begin, const std::string& end) {
  BodyPrinter& body = nest.body;
  const size_t innermost = nest.group.sizes.size() - 1;
  const ir::Symbol lane{SymbolKind::kLoop, static_cast<int>(innermost)};
  const std::string name = "i" + std::to_string(innermost), type = nest.kernel.index_type();
  const int width = loops.width;
  std::vector<Writer> wide, tail;
  for (const int step : loops.wide_steps) {
    body.push({{lane, name}});
    MultiVectorPhases(body, nest.group, lane, name, width, step / width).print();
    wide.push_back(body.pop());
  }
  Writer vector;
  if (loops.vector_loop) vector = print_vector(nest, lane, name, width);
  // Intel's compiler 2026.22 crashes if it vectorises the sum of exponentials of single columns.
  for (const int tail_width : loops.tail_widths) tail.push_back(print_vector(nest, lane, name, tail_width, tail_width == 1));

  Writer& row = body.writer();
  const bool only_vectors = wide.empty() && tail.empty();
  if (!only_vectors) row.line("$s $s = $s;", type, name, begin);
  for (size_t k = 0; k < wide.size(); ++k) {
    row.open("for (; $s + $d <= $s; $s += $d)", name, loops.wide_steps[k], end, name, loops.wide_steps[k]);
    row.append(wide[k]);
    row.close();
  }
  if (!loops.vector_loop) return;
  if (loops.stays_scalar) row.line(kStaysScalar);
  if (only_vectors)
    row.open("for ($s $s = $s; $s < $s; $s += $d)", type, name, begin, name, end, name, width);
  else
    row.open("for (; $s + $d <= $s; $s += $d)", name, width, end, name, width);
  row.append(vector);
  row.close();
  for (size_t k = 0; k < tail.size(); ++k) {
    if (loops.tail_is_counted) {
      row.open("if ($s + $d <= $s)", name, loops.tail_widths[k], end);
      row.append(tail[k]);
      row.line("$s += $d;", name, loops.tail_widths[k]);
    } else {
      row.line(kStaysScalar);
      row.open("for (; $s < $s; ++$s)", name, end, name);
      row.append(tail[k]);
    }
    row.close();
  }
}

}  // namespace

Grid write_elements_cpu(Nest& nest) {
  BodyPrinter& body = nest.body;
  if (nest.group.sizes.empty()) {
    SequentialPhases(body, nest.group).print();
    return {1, 1, 1};
  }
  const ItemLoops loops = choose_item_loops(nest);
  const ItemBounds bounds = print_item_bounds(nest, loops);
  print_column_loops(nest, loops.inner, bounds.begin, bounds.end);
  const Writer inside = body.pop();
  Writer& top = body.writer();
  if (loops.has_rows) {
    top.open("for ($s row = first; row < last; ++row)", flat_type(body, loops.rows));
    top.append(bounds.unflatten);
    top.append(inside);
    top.close();
  } else {
    top.append(inside);
  }
  return loops.grid;
}

namespace {

/// The loop of a GPU work-item over the flattened elements.
struct FlatLoop {
  IndexExpr total;        // Number of elements.
  bool any_size = false;  // The number of elements is an argument, so the text serves all sizes.
  int width = 1;          // Elements of a vector. Tensors at unaligned addresses use single elements.
  int lanes = 0;          // The loop i* along which vectors run.
  IndexExpr vectors;      // Number of vectors.
  int64_t tail = 0;       // Elements after the last whole vector of a row.
  int64_t chunk = 0;      // In a batch: elements of a work-group, a multiple of the width.
  std::string type;       // Type of the flat index.
  Grid grid;
};

FlatLoop choose_flat_loop(const Nest& nest) {
  const schedule::Group& group = nest.group;
  const Dialect& dialect = nest.kernel.dialect();
  const bool pointwise = group.strategy == schedule::LoopStrategy::kPointwise;
  FlatLoop loop;
  loop.total = ir::simplify(ir::product(group.sizes), nest.ranges);
  loop.any_size = nest.batch_elements && group.sizes.size() == 1;
  loop.type = loop.any_size ? nest.kernel.index_type() : flat_type(nest.body, loop.total);
  if (nest.batch_elements) {
    loop.chunk = int64_t{dialect.items} * (pointwise ? kBatchSteps : 1);
    if (pointwise && loop.any_size) loop.width = group.vector_width;
    loop.grid = {ir::ceildiv(loop.total, loop.chunk), 1, 1};
    return loop;
  }
  if (!group.sizes.empty()) loop.width = group.vector_width;
  loop.lanes = group.crossed_loop == ir::kNone ? static_cast<int>(group.sizes.size()) - 1 : group.crossed_loop;
  loop.vectors = ir::floordiv(loop.total, loop.width);
  if (loop.width > 1 && group.crossed_loop == ir::kNone && group.sizes.back().is_const())
    loop.tail = group.sizes.back().constant() % loop.width;
  if (loop.tail > 0) {
    ir::Shape steps = group.sizes;
    steps.back() = ir::floordiv(steps.back(), loop.width);
    loop.vectors = ir::simplify(ir::product(steps), nest.ranges);
  }
  const int64_t at_once = int64_t{dialect.items} * std::max(loop.width, group.ragged_width);
  loop.grid = {ir::min(ir::ceildiv(loop.total, at_once), IndexExpr(dialect.max_groups)), 1, 1};
  return loop;
}

/// Returns the text of the phases for `width` elements. The variable `at` of the text is the number of the vector, or
/// of the element if `width` is 1, among all vectors or elements. With `tail`, only the tails of rows have elements.
Writer print_flat_element(Nest& nest, const FlatLoop& loop, int width, bool tail = false) {
  BodyPrinter& body = nest.body;
  const size_t loops = nest.group.sizes.size();
  const ir::Symbol vectors{SymbolKind::kLoop, width > 1 ? loop.lanes : static_cast<int>(loops) - 1};
  ir::Shape steps = nest.group.sizes;
  if (width > 1) steps[loop.lanes] = ir::floordiv(steps[loop.lanes], width);
  if (tail) steps.back() = loop.tail;
  Writer inside;
  std::map<ir::Symbol, std::string> names = write_unflatten(body, inside, "at", loop.type, steps, loops, SymbolKind::kLoop);
  if (width > 1) {
    std::string& first = names[vectors];
    inside.line("const $s $s_first = $s * $d;", nest.kernel.index_type(), first, first, width);
    first += "_first";
  } else if (tail) {
    const std::string name = "i" + std::to_string(loops - 1) + "_tail";
    inside.line("const $s $s = $s + $d;", nest.kernel.index_type(), name, names[vectors],
                nest.group.sizes.back().constant() - loop.tail);
    names[vectors] = name;
  }
  body.push(names);
  body.assume_aligned(width > 1);
  if (width > 1) body.set_lane(vectors, width);
  SequentialPhases(body, nest.group).print();
  inside.append(body.pop());
  return inside;
}

void print_grid_stride(Nest& nest, const FlatLoop& loop, const std::string& steps, const Writer& inside) {
  Writer& top = nest.body.writer();
  top.open("for ($s at = get_global_id(0); at < $s; at += get_global_size(0))", loop.type, steps);
  top.append(inside);
  top.close();
}

/// Prints the loop over rows that begin at any element. Step 0 of a row has the elements before the first aligned one.
/// Returns false if other loops must follow, for tensors of which other elements are aligned.
bool print_ragged_rows(Nest& nest, const FlatLoop& loop) {
  BodyPrinter& body = nest.body;
  const size_t loops = nest.group.sizes.size();
  const int width = nest.group.ragged_width;
  const ir::Symbol lanes{SymbolKind::kLoop, static_cast<int>(loops) - 1};
  const IndexExpr& size = nest.group.sizes.back();
  ir::Shape steps = nest.group.sizes;
  steps.back() = ir::simplify(ir::ceildiv(size, width) + 1, nest.ranges);
  Writer inside;
  std::map<ir::Symbol, std::string> names = write_unflatten(body, inside, "at", loop.type, steps, loops, SymbolKind::kLoop);
  const std::string step = names[lanes], name = step + "_first", type = nest.kernel.index_type(), end = body.index(size);
  names.erase(lanes);
  body.push(names);
  const RaggedRow row = ragged_row(body, nest.group, lanes);
  const auto print = [&](const std::string& position, int lane_width) {
    body.push({{lanes, position}});
    body.assume_ragged(lane_width > 1);
    if (lane_width > 1) body.set_lane(lanes, lane_width);
    SequentialPhases(body, nest.group).print();
    return body.pop();
  };
  const Writer vector = print(name, width), single = print(name + "_1", 1);
  Writer& w = body.writer();
  w.line("const $s $s = $s * $d - $d + $s;", type, name, step, width, width, row.head);
  w.open("if ($s >= 0 && $s <= $s - $d)", name, name, end, width);
  w.append(vector);
  w.close(" else {");
  w.open("for ($s $s_1 = max($s, ($s)0); $s_1 < min($s + $d, ($s)($s)); ++$s_1)", type, name, name, type, name, name, width,
         type, end, name);
  w.append(single);
  w.close();
  w.close();
  inside.append(body.pop());
  if (!row.fits.empty()) body.writer().open("if ($s)", row.fits);
  print_grid_stride(nest, loop, body.index(ir::simplify(ir::product(steps), nest.ranges)), inside);
  if (row.fits.empty()) return true;
  body.writer().line("return;");
  body.writer().close();
  return false;
}

/// Prints the loops over a work-group's chunk of a batch. Rows of any size that lie aligned are read as vectors, apart from the
/// elements after the last whole vector.
void print_batch_chunk(Nest& nest, const FlatLoop& loop, const std::string& total) {
  Writer& top = nest.body.writer();
  const int items = nest.kernel.dialect().items;
  top.line("const $s begin = ($s)group * $d, end = min(begin + $d, ($s)($s));", loop.type, loop.type, loop.chunk, loop.chunk,
           loop.type, total);
  top.line("$s at = begin + ($s)get_local_id(0);", loop.type, loop.type);
  if (loop.width > 1) {
    const Writer vectors = print_flat_element(nest, loop, loop.width);
    top.open("if ((($s) & $d) == 0)", nest.kernel.all_offsets(), loop.width - 1);
    top.open("for (at = begin / $d + ($s)get_local_id(0); at < end / $d; at += $d)", loop.width, loop.type, loop.width, items);
    top.append(vectors);
    top.close();
    top.line("at = end / $d * $d + ($s)get_local_id(0);", loop.width, loop.width, loop.type);
    top.close();
  }
  const Writer single = print_flat_element(nest, loop, 1);
  top.open("for (; at < end; at += $d)", items);
  top.append(single);
  top.close();
}

}  // namespace

Grid write_elements_gpu(Nest& nest) {
  BodyPrinter& body = nest.body;
  const FlatLoop loop = choose_flat_loop(nest);
  const std::string total = loop.any_size ? nest.kernel.integer("count", loop.total) : body.index(loop.total);
  if (nest.batch_elements) {
    print_batch_chunk(nest, loop, total);
    return loop.grid;
  }
  if (loop.width > 1) {
    const Writer vectors = print_flat_element(nest, loop, loop.width);
    body.writer().open("if ((($s) & $d) == 0)", nest.kernel.all_offsets(), loop.width - 1);
    print_grid_stride(nest, loop, body.index(loop.vectors), vectors);
    if (loop.tail > 0) {
      const IndexExpr rows = ir::floordiv(loop.total, nest.group.sizes.back());
      print_grid_stride(nest, loop, body.index(rows * loop.tail), print_flat_element(nest, loop, 1, true));
    }
    body.writer().line("return;");
    body.writer().close();
  }
  if (nest.group.ragged_width > 1 && print_ragged_rows(nest, loop)) return loop.grid;
  print_grid_stride(nest, loop, total, print_flat_element(nest, loop, 1));
  return loop.grid;
}

}  // namespace ocl::codegen
