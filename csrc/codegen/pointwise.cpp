// csrc/codegen/pointwise.cpp: nests whose elements are independent: pointwise groups, and reductions that each lane does on its
// own.
//
// CPU: a work-item owns rows [first, last) of the outer loops and columns [begin, end) of the innermost one:
//
//        begin   end           for row in [first, last):          values that only depend on the row
//   first  +-------+             for i1 in [begin, end) by W:     a vector of W elements
//          | item  |             for i1 in what is left:          one element
//   last   +-------+
// GPU: a work-item takes every (global size)th element of the flattened loops.
#include <algorithm>

#include "csrc/codegen/nest.h"

namespace ocl::codegen {

using ir::IndexExpr;
using ir::SymbolKind;

namespace {

constexpr int kBatchSteps = 8;        // GPU: elements of an item in a batch, if nothing is reduced
constexpr int kFewColumns = 4;        // vectors of columns, behind many
constexpr int64_t kLeastWork = 4096;  // elements of a cheap op that are worth a work-item (about 0.5 us)

/// Whether a buffer is written where it was read.
bool loads_what_it_stores(const Nest& nest) {
  const schedule::Schedule& schedule = nest.kernel.schedule();
  const std::set<ir::BufferId> stored = stored_buffers(schedule, nest.group.nodes());
  for (const ir::NodeId node : nest.group.nodes())
    for (const ir::BufferId buffer : ir::reads(schedule.graph.nodes[static_cast<size_t>(node)]))
      if (stored.count(buffer)) return true;
  return false;
}

}  // namespace

Nest::Nest(const schedule::Schedule& schedule, const schedule::Group& g, const Caps& caps)
    : group(g),
      ranges(group_ranges(schedule, g)),
      kernel(schedule, caps, stored_buffers(schedule, g.nodes()), g.index32),
      body(kernel, ranges) {}

ir::Ranges group_ranges(const schedule::Schedule& schedule, const schedule::Group& group) {
  ir::Ranges ranges = schedule.graph.ranges();
  for (size_t k = 0; k < group.sizes.size(); ++k) ranges.set_extent({SymbolKind::kLoop, static_cast<int>(k)}, group.sizes[k]);
  for (size_t k = 0; k < group.reduce_sizes.size(); ++k)
    ranges.set_extent({SymbolKind::kReduce, static_cast<int>(k)}, group.reduce_sizes[k]);
  return ranges;
}

IndexExpr elements_per_item(const Dialect& dialect, const IndexExpr& elements, const IndexExpr& cost) {
  const IndexExpr least = ir::max(1, ir::floordiv(IndexExpr(kLeastWork), ir::max(cost, 1)));
  return ir::max(least, ir::ceildiv(elements, dialect.chunks));
}

Grid write_elements_cpu(Nest& nest) {
  const ir::Shape& sizes = nest.group.sizes;
  BodyPrinter& body = nest.body;
  Kernel& kernel = nest.kernel;
  Phases phases(body, nest.group);
  if (sizes.empty()) {
    phases.serial();
    return {1, 1, 1};
  }
  const size_t last = sizes.size() - 1;
  const bool any_size = nest.batch_elements && sizes.size() == 1;  // text for all sizes
  const bool short_rows = !any_size && sizes[last].is_const() && sizes[last].constant() < nest.group.vector_width;
  const int width = short_rows ? 1 : nest.group.vector_width;
  const ir::Symbol lane{SymbolKind::kLoop, static_cast<int>(last)};
  const std::string name = "i" + std::to_string(last), type = kernel.index_type();
  const IndexExpr columns = sizes[last];
  const IndexExpr rows = ir::simplify(ir::product(ir::Shape(sizes.begin(), sizes.end() - 1)), nest.ranges);
  const IndexExpr cost = ir::simplify(ir::product(nest.group.reduce_sizes), nest.ranges);
  const IndexExpr each = elements_per_item(kernel.dialect(), nest.batch_elements.value_or(rows * columns), cost);

  // Reductions along columns take several vectors at a time.
  const bool by_columns = nest.group.strategy == schedule::LoopStrategy::kSequential && !any_size && width > 1;
  const int64_t most_rows = std::max<int64_t>(1, nest.ranges.of(rows).high), most_columns = nest.ranges.of(columns).high;
  const int at_once = by_columns ? width * phases.columns_at_once(most_rows, most_columns, width) : width;
  const int wide = nest.ranges.of(columns).high >= at_once ? at_once : width;

  // Short rows stay whole; then there is one chunk of columns.
  const bool whole_rows = columns.is_const() && columns.constant() <= kLeastWork && !rows.is_const(1);
  const IndexExpr column_chunk = whole_rows ? columns : ir::min(columns, ir::ceildiv(each, wide) * wide);
  const IndexExpr row_chunk = ir::max(1, ir::floordiv(each, ir::max(columns, 1)));
  Grid grid{ir::ceildiv(columns, ir::max(column_chunk, 1)), 1, 1};
  const bool has_rows = !rows.is_const(1);
  if (has_rows) grid[1] = ir::ceildiv(rows, row_chunk);

  std::string group_x = "get_group_id(0)", group_y = "get_group_id(1)";
  if (nest.batch_elements) {
    group_x = group_y = "group";
    if (has_rows && !whole_rows) {
      const std::string across = kernel.integer("column_groups", grid[0]);
      group_x = "(group % " + across + ")";
      group_y = "(group / " + across + ")";
    }
  }

  const std::string end_text = any_size ? kernel.integer("count", columns) : body.index(columns);
  std::string begin = "0", end = end_text;
  if (!whole_rows) {
    const std::string chunk = kernel.integer("column_chunk", column_chunk);
    begin = "begin";
    end = "end";
    body.writer().line("const $s begin = ($s)$s * $s;", type, type, group_x, chunk);
    body.writer().line("const $s end = min(begin + $s, ($s)($s));", type, chunk, type, end_text);
  }
  Writer unflatten;
  if (has_rows) {
    const std::string chunk = kernel.integer("row_chunk", row_chunk), rows_text = body.index(rows);
    const std::string flat = flat_type(body, rows);
    body.writer().line("const $s first = ($s)$s * $s;", flat, flat, group_y, chunk);
    body.writer().line("const $s last = min(first + ($s)$s, ($s)($s));", flat, flat, chunk, flat, rows_text);
    body.push(write_unflatten(body, unflatten, "row", flat, sizes, last, SymbolKind::kLoop));
  } else {
    std::map<ir::Symbol, std::string> none;
    for (size_t k = 0; k < last; ++k) none[{SymbolKind::kLoop, static_cast<int>(k)}] = "0";
    body.push(none);
  }

  std::vector<std::pair<int, Writer>> several;  // columns at a time: all that fit into registers, then fewer
  for (int step = wide; step > width; step = step > kFewColumns * width ? kFewColumns * width : width) {
    if (step < wide && nest.ranges.known_divides(wide, columns)) break;
    body.push({{lane, name}});
    phases.columns(lane, name, width, step / width);
    several.emplace_back(step, body.pop());
  }
  body.push({{lane, name}});
  body.set_lane(lane, width);
  phases.serial();
  const Writer vector = body.pop();
  const bool has_tail =
      width > 1 && (any_size || !nest.ranges.known_divides(width, columns));  // chunks are multiples of the width
  // A column's sum is a chain of additions: those left over go side by side as well, in vectors of half the width, a quarter,
  // ...
  std::vector<std::pair<int, Writer>> rest;
  for (int part = by_columns && columns.is_const() ? width / 2 : 1; has_tail && part >= 1; part /= 2) {
    if (columns.is_const() && by_columns && !(columns.constant() & part)) continue;
    body.push({{lane, name}});
    body.set_lane(lane, part);
    phases.serial();
    rest.emplace_back(part, body.pop());
  }
  Writer& row = body.writer();
  if (wide > width) {
    row.line("$s $s = $s;", type, name, begin);
    for (const auto& [step, text] : several) {
      row.open("for (; $s + $d <= $s; $s += $d)", name, step, end, name, step);
      row.append(text);
      row.close();
    }
  }
  const bool stays_scalar = width == 1 && loads_what_it_stores(nest);
  if (!has_tail && wide == width) {
    if (stays_scalar) row.line(kStaysScalar);
    row.open("for ($s $s = $s; $s < $s; $s += $d)", type, name, begin, name, end, name, width);
    row.append(vector);
    row.close();
  } else if (wide == width || !nest.ranges.known_divides(wide, columns)) {
    if (wide == width) row.line("$s $s = $s;", type, name, begin);
    if (stays_scalar) row.line(kStaysScalar);
    row.open("for (; $s + $d <= $s; $s += $d)", name, width, end, name, width);
    row.append(vector);
    row.close();
    for (const auto& [part, text] : rest) {
      if (by_columns && columns.is_const()) {
        row.open("if ($s + $d <= $s)", name, part, end);
        row.append(text);
        row.line("$s += $d;", name, part);
      } else {
        row.line(kStaysScalar);
        row.open("for (; $s < $s; ++$s)", name, end, name);
        row.append(text);
      }
      row.close();
    }
  }
  const Writer inside = body.pop();
  Writer& top = body.writer();
  if (has_rows) {
    top.open("for ($s row = first; row < last; ++row)", flat_type(body, rows));
    top.append(unflatten);
    top.append(inside);
    top.close();
  } else {
    top.append(inside);
  }
  return grid;
}

Grid write_elements_gpu(Nest& nest) {
  const ir::Shape& sizes = nest.group.sizes;
  BodyPrinter& body = nest.body;
  const Dialect& dialect = nest.kernel.dialect();
  const IndexExpr total = ir::simplify(ir::product(sizes), nest.ranges);
  const bool any_size = nest.batch_elements && sizes.size() == 1;
  const std::string type = any_size ? nest.kernel.index_type() : flat_type(body, total);
  const std::string total_text = any_size ? nest.kernel.integer("count", total) : body.index(total);
  Phases phases(body, nest.group);
  const auto element = [&](const std::string& at, int width) {
    ir::Shape steps = sizes;
    if (width > 1) steps.back() = ir::floordiv(steps.back(), width);
    Writer inside;
    std::map<ir::Symbol, std::string> names = write_unflatten(body, inside, at, type, steps, steps.size(), SymbolKind::kLoop);
    if (width > 1) {
      std::string& last = names[{SymbolKind::kLoop, static_cast<int>(sizes.size()) - 1}];
      inside.line("const $s $s_first = $s * $d;", nest.kernel.index_type(), last, last, width);
      last += "_first";
    }
    body.push(names);
    body.assume_aligned(width > 1);
    if (width > 1) body.set_lane({SymbolKind::kLoop, static_cast<int>(sizes.size()) - 1}, width);
    phases.serial();
    inside.append(body.pop());
    return inside;
  };
  if (nest.batch_elements) {
    const Writer inside = element("at", 1);
    Writer& top = body.writer();
    const bool pointwise = nest.group.strategy == schedule::LoopStrategy::kPointwise;
    const int64_t chunk = int64_t{dialect.items} * (pointwise ? kBatchSteps : 1);
    top.line("const $s begin = ($s)group * $d, end = min(begin + $d, ($s)($s));", type, type, chunk, chunk, type, total_text);
    top.open("for ($s at = begin + ($s)get_local_id(0); at < end; at += $d)", type, type, dialect.items);
    top.append(inside);
    top.close();
    return {ir::ceildiv(total, chunk), 1, 1};
  }

  const int width = nest.group.strategy == schedule::LoopStrategy::kPointwise && !sizes.empty() ? nest.group.vector_width : 1;
  if (width > 1) {
    const Writer vectors = element("at", width);
    Writer& top = body.writer();
    std::string offsets;
    for (const std::string& name : nest.kernel.buffer_names()) offsets += (offsets.empty() ? "" : " | ") + name + "_offset";
    top.open("if ((($s) & $d) == 0)", offsets, width - 1);
    top.open("for ($s at = get_global_id(0); at < $s; at += get_global_size(0))", type, body.index(ir::floordiv(total, width)));
    top.append(vectors);
    top.close();
    top.line("return;");
    top.close();
  }
  const Writer inside = element("at", 1);
  Writer& top = body.writer();
  top.open("for ($s at = get_global_id(0); at < $s; at += get_global_size(0))", type, total_text);
  top.append(inside);
  top.close();
  return {ir::min(ir::ceildiv(total, int64_t{dialect.items} * width), IndexExpr(dialect.max_groups)), 1, 1};
}

}  // namespace ocl::codegen
