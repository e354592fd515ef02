// csrc/codegen/reduction.cpp: prints nests in which vector lanes (CPU) or a work-group (GPU) reduce one outer element together.
//
// CPU, kRow: a work-item owns rows [first, last). Lanes run along r*.
// GPU, kRow: r* is contiguous, so neighbouring items take neighbouring r. A work-group has `rows` outer elements x `items`
// items:
//     item:  0 1 2 ... items-1 | 0 1 2 ...
//            row 0               row 1
// Rows that fit into the registers of the items stay there (register_phases.h). If rows share what they load, as a matrix times
// a row does, a row of items computes several (product_phases.h). Matrices of int4 are multiplied by tensor cores where the
// device has them (nibble_phases.h).
// GPU, kColumn: i* is contiguous, so neighbouring items take neighbouring i, and rows of items stride over r. With 256 items:
//     item:  0 1 2 ... 31      r = 0, 8, 16, ...
//            0 1 2 ... 31      r = 1, 9, 17, ...
// If there are few work-groups, each has few columns and as many items as a work-group can have. Where possible, an item takes
// a vector of neighbouring i.
#include "csrc/codegen/reduction.h"

#include <algorithm>
#include <optional>
#include <set>

#include "csrc/codegen/flat_index.h"
#include "csrc/codegen/lane_phases.h"
#include "csrc/codegen/nibble_phases.h"
#include "csrc/codegen/product_phases.h"
#include "csrc/codegen/work_group_phases.h"
#include "csrc/ir/facts.h"
#include "csrc/support/error.h"

namespace ocl::codegen {

using schedule::LoopStrategy;

namespace {

// From this many elements per outer element on, a larger work-group than usual pays off.
constexpr int64_t kLong = 2048;

/// Returns the number of items that share a row: enough for coalesced reads and short trees. A long row gets the whole
/// work-group.
int items_per_row(int group, int64_t longest) {
  int items = group;
  while (items > 32 && longest < int64_t{items} * 4) items /= 2;
  return items;
}

/// Returns the number of items of a work-group. For long rows and for narrow columns, it is the largest number whose
/// accumulators fit into half of the local memory.
int items_per_work_group(const Nest& nest, int64_t longest) {
  const Dialect& dialect = nest.kernel.dialect();
  const bool column = nest.group.strategy == LoopStrategy::kColumn;
  // The members of a batch have work-groups of one size.
  if (nest.batch_elements || longest < kLong || (column && nest.group.columns == 32)) return dialect.items;
  const int width = column ? nest.group.vector_width : 1;
  int64_t bytes = 0;
  for (const ir::NodeId id : nest.group.nodes()) {
    const ir::Node& node = nest.kernel.graph().nodes[id];
    if (!ir::is_reduction(node)) continue;
    const ir::DType input = node.body.ops[node.reduced[0]].dtype;
    const int halves = node.kind == ir::NodeKind::kScan ? 2 : 1;
    for (int a = 0; a < ir::facts(node.reduction).accumulators; ++a)
      bytes += halves * width * std::max(4, lane_bytes(ir::accumulator_dtype(node.reduction, a, input)));
    if (node.reset != ir::kNone) bytes += halves * 4;
  }
  int items = dialect.items;
  while (items * 2 <= dialect.max_items && items * 2 * bytes <= dialect.local_bytes / 2) items *= 2;
  return column ? items : std::max(dialect.items, items_per_row(items, longest));
}

/// Returns the text for the index of the work-group.
const char* group_number(const Nest& nest) { return nest.batch_elements ? "group" : "get_group_id(0)"; }

}  // namespace

Grid write_rows_cpu(Nest& nest) {
  BodyPrinter& body = nest.body;
  const ir::Shape& sizes = nest.group.sizes;
  const IndexExpr rows = ir::simplify(ir::product(sizes), nest.ranges);
  const IndexExpr cost = ir::simplify(ir::product(nest.group.reduce_sizes), nest.ranges);
  LanePhases phases(body, nest.group, nest.group.vector_width);
  if (rows.is_const(1)) {
    body.push(zero_loops(sizes.size()));
    phases.print();
    const Writer inside = body.pop();
    body.writer().append(inside);
    return {1, 1, 1};
  }
  const std::string type = flat_type(body, rows), rows_text = body.index(rows);
  const IndexExpr chunk = elements_per_item(nest.kernel.dialect(), rows, cost);
  const std::string chunk_text = nest.kernel.integer("row_chunk", chunk);
  Writer unflatten;
  body.push(write_unflatten(body, unflatten, "row", type, sizes, sizes.size(), SymbolKind::kLoop));
  phases.print();
  const Writer inside = body.pop();
  Writer& top = body.writer();
  top.line("const $s first = ($s)$s * $s;", type, type, group_number(nest), chunk_text);
  top.line("const $s last = min(first + ($s)$s, ($s)($s));", type, type, chunk_text, type, rows_text);
  top.open("for ($s row = first; row < last; ++row)", type);
  top.append(unflatten);
  top.append(inside);
  top.close();
  return {ir::ceildiv(rows, chunk), 1, 1};
}

namespace {

// Most vectors or scalars of a row in one work-item. A row that needs more work-items for this than a group has is not
// kept in registers.
constexpr int kRowVectors = 4, kRowScalars = 8;
constexpr size_t kRowOps = 600;           // Most ops that are printed, to limit compile time.
constexpr int64_t kRowValues = 96;        // Most loaded elements that an item keeps in registers.
constexpr int64_t kManyElements = 65536;  // Members of a batch with fewer have short texts, without registers.
constexpr int64_t kRowItems = 1024;       // Work-items per compute unit, over all work-groups, that fill the device.
// For rows of a matrix that a work-item computes together: vectors of each in a work-item, accumulators of a work-item, and
// work-items per compute unit that load enough at a time.
constexpr int kProductVectors = 2;
constexpr int64_t kProductSums = 64, kProductItems = 256;

struct RegisterRows {
  int items, width;
  int64_t length;
  int rows_of_item = 1;
};

/// Returns how items share a row, or `rows_of_item` neighbouring rows, and keep it in registers. rows: the number of all rows.
/// nullopt if the row does not fit.
std::optional<RegisterRows> register_rows(Nest& nest, const IndexExpr& rows, int rows_of_item = 1) {
  const schedule::Group& group = nest.group;
  const Dialect& dialect = nest.kernel.dialect();
  if (group.strategy != LoopStrategy::kRow || group.reduce_sizes.size() != 1 || !group.reduce_sizes[0].is_const() ||
      !fits_registers(nest.body, group))
    return std::nullopt;
  const int64_t length = group.reduce_sizes[0].constant();
  const int width = group.vector_width;
  if (length < width || length % width != 0) return std::nullopt;
  const int64_t vectors = length / width;
  size_t ops = 0;
  int64_t reductions = 0;
  std::set<ir::BufferId> loaded;
  for (const schedule::Phase& phase : group.phases)
    for (const ir::NodeId id : phase.nodes) {
      const ir::Node& node = nest.kernel.graph().nodes[id];
      const int copies = varies_by_row(node, group) ? rows_of_item : 1;
      if (node.kind == ir::NodeKind::kReduce) reductions += copies;
      for (const ir::Op& op : node.body.ops) {
        ops += phase.inner ? copies : 0;
        if (phase.inner && op.code == ir::OpCode::kLoad) loaded.insert(op.buffer);
      }
    }
  const int64_t loads = static_cast<int64_t>(loaded.size());
  const auto slots = [&](int items) { return (vectors + items - 1) / items; };
  const int most = rows_of_item > 1 ? kProductVectors : width > 1 ? kRowVectors : kRowScalars;
  const auto fits = [&](int items) {
    return slots(items) <= most && static_cast<int64_t>(ops) * slots(items) <= int64_t{kRowOps} &&
           (rows_of_item > 1 || slots(items) == 1 || loads * slots(items) * width <= kRowValues);
  };
  // The tree reductions of a work-group use two sets of local arrays, with at most 8 bytes for each work-item.
  int64_t max_items = nest.batch_elements ? dialect.items : dialect.max_items;
  while (max_items > 8 && reductions * 16 * std::max<int64_t>(max_items, dialect.items) > dialect.local_bytes) max_items /= 2;
  int items = 8;
  while (items < max_items && !fits(items)) items *= 2;
  if (!fits(items) || reductions * 16 * std::max<int64_t>(items, dialect.items) > dialect.local_bytes) return std::nullopt;
  const int64_t all = nest.ranges.of(rows).high;
  while (items * 2 <= max_items && slots(items) > 1 && all < dialect.units * kRowItems / items) items *= 2;
  return RegisterRows{items, width, length, rows_of_item};
}

/// Returns how items share neighbouring rows that load in part the same, if these are enough to fill the device.
std::optional<RegisterRows> product_rows(Nest& nest, const IndexExpr& rows) {
  const schedule::Group& group = nest.group;
  if (group.strategy != LoopStrategy::kRow || group.vector_width == 1 || !shares_row(nest.body, group)) return std::nullopt;
  const Dialect& dialect = nest.kernel.dialect();
  const int64_t least = nest.ranges.of(rows).low;
  int64_t sums = 0;
  for (const ir::NodeId id : group.phases[0].nodes) sums += varies_by_row(nest.kernel.graph().nodes[id], group);
  for (const int count : {4, 2}) {
    if (!nest.ranges.known_divides(count, group.sizes.back()) || sums * count * group.vector_width > kProductSums) continue;
    const auto found = register_rows(nest, rows, count);
    const int64_t vectors = found ? found->length / found->width : 0;
    if (least / count * std::min<int64_t>(vectors, dialect.max_items) >= dialect.units * kProductItems) return found;
  }
  return std::nullopt;
}

/// The rows of a GPU work-group. Chosen before anything is printed.
struct WorkGroupRows {
  ir::Shape sizes;                        // Extents of the loops i*, in vectors for the innermost loop.
  int width = 1;                          // Outer elements of an item along the innermost loop. kColumn: a vector.
  IndexExpr rows;                         // Product of `sizes`.
  int items = 1;                          // Items of the work-group.
  Sharing sharing;                        // How items share a row.
  std::optional<RegisterRows> registers;  // Set if rows stay in registers.
};

WorkGroupRows choose_work_group_rows(Nest& nest) {
  const schedule::Group& group = nest.group;
  WorkGroupRows result;
  result.sizes = group.sizes;
  if (group.strategy == LoopStrategy::kColumn) result.width = group.vector_width;
  const IndexExpr rows = ir::simplify(ir::product(group.sizes), nest.ranges);
  const int64_t longest = nest.ranges.of(ir::simplify(ir::product(group.reduce_sizes), nest.ranges)).high;
  if (!nest.batch_elements || nest.ranges.of(rows).high > kManyElements / std::max<int64_t>(longest, 1)) {
    result.registers = product_rows(nest, rows);
    if (result.registers) result.width = result.registers->rows_of_item;
    if (!result.registers) result.registers = register_rows(nest, rows);
  }
  if (result.width > 1) result.sizes.back() = ir::simplify(ir::floordiv(group.sizes.back(), result.width), nest.ranges);
  result.rows = ir::simplify(ir::product(result.sizes), nest.ranges);
  Sharing& sharing = result.sharing;
  sharing.column = group.strategy == LoopStrategy::kColumn;
  result.items =
      result.registers ? std::max(nest.kernel.dialect().items, result.registers->items) : items_per_work_group(nest, longest);
  sharing.items = result.registers ? result.registers->items
                  : sharing.column ? std::max(1, result.items * result.width / group.columns)
                                   : items_per_row(result.items, longest);
  sharing.rows = result.items / sharing.items;
  sharing.lane = "lane";
  sharing.store_condition = "lane == 0";
  if (sharing.rows > 1 && !nest.ranges.known_divides(sharing.rows, result.rows)) {
    sharing.row_exists = "live";
    sharing.store_condition = "live && lane == 0";
  }
  return result;
}

/// Prints which row an item works on, and the item's position in it.
void print_item_position(Nest& nest, const Sharing& sharing, const std::string& type, const std::string& rows) {
  Writer& top = nest.body.writer();
  top.line("const int item = get_local_id(0);");
  if (sharing.rows == 1) {
    top.line("const int lane = item;");
    top.line("const $s row = $s;", type, group_number(nest));
    return;
  }
  const char *lane = sharing.column ? "/" : "%", *row = sharing.column ? "%" : "/";
  const int64_t split = sharing.column ? sharing.rows : sharing.items;
  top.line("const int lane = item $s $d;", lane, split);
  top.line("const $s row = ($s)$s * $d + item $s $d;", type, type, group_number(nest), sharing.rows, row, split);
  if (!sharing.row_exists.empty())
    top.line("const int live = row < $s;  // the last group may stand over; its items still meet at the barriers", rows);
}

/// Prints the phases of neighbouring outer elements from `first` on: together if vectors are aligned, otherwise in a loop.
void print_products(Nest& nest, const WorkGroupRows& chosen, const std::string& first, bool aligned) {
  BodyPrinter& body = nest.body;
  const RegisterRows& rows = *chosen.registers;
  if (aligned) {
    ProductPhases(body, nest.group, chosen.sharing, rows.width, rows.length, rows.rows_of_item, first).print();
    return;
  }
  const std::string element = nest.kernel.fresh("n"), type = nest.kernel.index_type();
  body.push({{innermost_loop(nest.group), element}});
  WorkGroupPhases(body, nest.group, chosen.sharing).print();
  const Writer text = body.pop();
  body.writer().open("for ($s $s = $s; $s < $s + $d; ++$s)", type, element, first, element, first, rows.rows_of_item, element);
  body.writer().append(text);
  body.writer().close();
}

}  // namespace

Grid write_rows_gpu(Nest& nest, std::array<size_t, 3>* local) {
  BodyPrinter& body = nest.body;
  if (const auto nibbles = nibble_group(nest))
    if (const auto shares = nibble_shares(*nibbles, nest.kernel.dialect())) {
      *local = {static_cast<size_t>(shares->items()), 1, 1};
      return write_nibbles(nest, *nibbles, *shares);
    }
  const WorkGroupRows chosen = choose_work_group_rows(nest);
  const Sharing& sharing = chosen.sharing;
  *local = {static_cast<size_t>(chosen.items), 1, 1};
  const Grid grid = {ir::ceildiv(chosen.rows, sharing.rows), 1, 1};

  const std::string type = flat_type(body, chosen.rows), rows = body.index(chosen.rows);
  print_item_position(nest, sharing, type, rows);
  const std::string row = sharing.row_exists.empty() ? "row" : "min(row, (" + type + ")(" + rows + " - 1))";
  Writer unflatten;
  std::map<ir::Symbol, std::string> names =
      write_unflatten(body, unflatten, row, type, chosen.sizes, chosen.sizes.size(), SymbolKind::kLoop);
  if (chosen.width > 1) {
    std::string& last = names[innermost_loop(nest.group)];
    unflatten.line("const $s $s_first = $s * $d;", nest.kernel.index_type(), last, last, chosen.width);
    last += "_first";
  }
  const auto& registers = chosen.registers;
  const int width = registers ? registers->width : chosen.width;
  const auto print = [&](bool aligned) {
    body.push(names);
    body.assume_aligned(aligned);
    if (sharing.column && chosen.width > 1) body.set_lane(innermost_loop(nest.group), chosen.width);
    if (chosen.width > 1 && registers)
      print_products(nest, chosen, names.at(innermost_loop(nest.group)), aligned);
    else if (registers && (aligned || width == 1))
      RegisterPhases(body, nest.group, sharing, registers->width, registers->length).print();
    else
      WorkGroupPhases(body, nest.group, sharing, chosen.width).print();
    return body.pop();
  };
  if (sharing.column && chosen.width > 1) body.assume_steps(true);
  const Writer inside = print(width > 1);
  body.writer().append(unflatten);
  if (width == 1) {
    body.writer().append(inside);
    return grid;
  }
  // Vectors need aligned memory. Tensors that begin at odd elements are read element by element.
  const std::string offsets = nest.kernel.all_offsets();
  const Writer single = print(false);
  body.writer().open("if ((($s) & $d) == 0)", offsets, width - 1);
  body.writer().append(inside);
  body.writer().close(" else {");
  body.writer().append(single);
  body.writer().close();
  return grid;
}

}  // namespace ocl::codegen
