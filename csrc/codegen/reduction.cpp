// csrc/codegen/reduction.cpp: nests whose outer elements are reduced together by vector lanes (CPU) or by a work-group (GPU).
//
// CPU, kRow: a work-item owns rows [first, last); lanes run along r*.
// GPU, kRow: r* is contiguous, so neighbouring items take neighbouring r. One group is `rows` outer elements x `items` items:
//     item:  0 1 2 ... items-1 | 0 1 2 ...
//            row 0               row 1
// GPU, kColumn: i* is contiguous, so neighbouring items take neighbouring i, and rows of items stride over r. 256 items:
//     item:  0 1 2 ... 31      r = 0, 8, 16, ...
//            0 1 2 ... 31      r = 1, 9, 17, ...
// Where few groups run, each has few columns, and as many items as a group can have.
#include <algorithm>

#include "csrc/codegen/nest.h"
#include "csrc/support/error.h"

namespace ocl::codegen {

using ir::IndexExpr;
using ir::SymbolKind;
using schedule::LoopStrategy;

namespace {

constexpr int64_t kLong = 2048;  // elements per outer element that are worth a group of more than the usual size

/// Items that share a row: enough for coalesced reads and short trees, the whole group for long rows.
int items_per_row(int group, int64_t longest) {
  int items = group;
  while (items > 32 && longest < int64_t{items} * 4) items /= 2;
  return items;
}

/// Items of a group: the usual number, or for long rows and narrow columns the most whose accumulators take half of the local
/// memory.
int items_per_group(const Nest& nest, int64_t longest) {
  const Dialect& dialect = nest.kernel.dialect();
  const bool column = nest.group.strategy == LoopStrategy::kColumn;
  if (longest < kLong || (column && nest.group.columns == 32)) return dialect.items;
  int64_t bytes = 0;
  for (const ir::NodeId id : nest.group.nodes()) {
    const ir::Node& node = nest.kernel.graph().nodes[static_cast<size_t>(id)];
    if (node.kind != ir::NodeKind::kReduce) continue;
    const ir::DType input = node.body.ops[static_cast<size_t>(node.reduced[0])].dtype;
    for (int a = 0; a < ir::facts(node.reduction).accumulators; ++a)
      bytes += std::max(4, lane_bytes(ir::accumulator_dtype(node.reduction, a, input)));
  }
  int items = dialect.items;
  while (items * 2 <= dialect.most_items && items * 2 * bytes <= dialect.local_bytes / 2) items *= 2;
  return column ? items : std::max(dialect.items, items_per_row(items, longest));
}

}  // namespace

Grid write_rows_cpu(Nest& nest) {
  BodyPrinter& body = nest.body;
  Kernel& kernel = nest.kernel;
  const IndexExpr rows = ir::simplify(ir::product(nest.group.sizes), nest.ranges);
  const IndexExpr cost = ir::simplify(ir::product(nest.group.reduce_sizes), nest.ranges);
  Phases phases(body, nest.group);
  if (rows.is_const(1)) {
    std::map<ir::Symbol, std::string> none;
    for (size_t k = 0; k < nest.group.sizes.size(); ++k) none[{SymbolKind::kLoop, static_cast<int>(k)}] = "0";
    body.push(none);
    phases.lanes(nest.group.vector_width);
    const Writer inside = body.pop();
    body.writer().append(inside);
    return {1, 1, 1};
  }
  const std::string type = flat_type(body, rows), rows_text = body.index(rows);
  const IndexExpr chunk = elements_per_item(kernel.dialect(), rows, cost);
  const std::string chunk_text = kernel.integer("row_chunk", chunk);
  Writer unflatten;
  body.push(write_unflatten(body, unflatten, "row", type, nest.group.sizes, nest.group.sizes.size(), SymbolKind::kLoop));
  phases.lanes(nest.group.vector_width);
  const Writer inside = body.pop();
  Writer& top = body.writer();
  top.line("const $s first = ($s)get_group_id(0) * $s;", type, type, chunk_text);
  top.line("const $s last = min(first + ($s)$s, ($s)($s));", type, type, chunk_text, type, rows_text);
  top.open("for ($s row = first; row < last; ++row)", type);
  top.append(unflatten);
  top.append(inside);
  top.close();
  return {ir::ceildiv(rows, chunk), 1, 1};
}

Grid write_rows_gpu(Nest& nest, std::array<size_t, 3>* local) {
  BodyPrinter& body = nest.body;
  const IndexExpr rows = ir::simplify(ir::product(nest.group.sizes), nest.ranges);
  const IndexExpr cost = ir::simplify(ir::product(nest.group.reduce_sizes), nest.ranges);
  Sharing sharing;
  sharing.column = nest.group.strategy == LoopStrategy::kColumn;
  const int64_t longest = nest.ranges.of(cost).high;
  const int items = items_per_group(nest, longest);
  sharing.items = sharing.column ? std::max(1, items / nest.group.columns) : items_per_row(items, longest);
  sharing.rows = items / sharing.items;
  sharing.lane = "lane";
  sharing.writes = "lane == 0";
  *local = {static_cast<size_t>(items), 1, 1};

  const std::string type = flat_type(body, rows), rows_text = body.index(rows);
  Writer& top = body.writer();
  top.line("const int item = get_local_id(0);");
  const char *lane = "item", *side = "0";
  if (sharing.rows > 1) {
    lane = sharing.column ? "item / $d" : "item % $d";
    side = sharing.column ? "item % $d" : "item / $d";
    const int64_t split = sharing.column ? sharing.rows : sharing.items;
    top.line(("const int lane = " + std::string(lane) + ";").c_str(), split);
    top.line(("const $s row = ($s)get_group_id(0) * $d + " + std::string(side) + ";").c_str(), type, type, sharing.rows, split);
    if (!nest.ranges.known_divides(sharing.rows, rows)) {
      top.line("const int live = row < $s;  // the last group may stand over; its items still meet at the barriers", rows_text);
      sharing.live = "live";
      sharing.writes = "live && lane == 0";
    }
  } else {
    top.line("const int lane = item;");
    top.line("const $s row = get_group_id(0);", type);
  }
  Writer unflatten;
  body.push(write_unflatten(body, unflatten, sharing.live.empty() ? "row" : "min(row, (" + type + ")(" + rows_text + " - 1))",
                            type, nest.group.sizes, nest.group.sizes.size(), SymbolKind::kLoop));
  Phases phases(body, nest.group);
  phases.shared(sharing);
  const Writer inside = body.pop();
  body.writer().append(unflatten);
  body.writer().append(inside);
  return {ir::ceildiv(rows, sharing.rows), 1, 1};
}

}  // namespace ocl::codegen
