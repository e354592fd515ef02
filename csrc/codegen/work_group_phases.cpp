// csrc/codegen/work_group_phases.cpp: inner phases that the items of a GPU work-group share. Items stride over the
// elements, then merge by a tree in local memory.
#include "csrc/codegen/work_group_phases.h"

#include "csrc/codegen/flat_index.h"
#include "csrc/codegen/ragged_rows.h"
#include "csrc/support/error.h"

namespace ocl::codegen {

using schedule::Phase;

namespace {

constexpr int kBlockSteps = 128;  // Elements of one item that go into one accumulator.

/// How many elements an item loads before it uses the first. Only for bodies with up to `max_ops` ops, because
/// repeating them takes compile time.
struct LoadAhead {
  int elements;
  size_t max_ops;
};
constexpr LoadAhead kLoadAhead[] = {{8, 12}, {4, 64}};
constexpr int kTileElements = 4;  // Elements of an item in a tile of a scan.
constexpr size_t kScanOps = 48;   // Larger bodies are not repeated in a scan.

/// Returns the accumulators in the arrays at `place`.
Accumulators::Carried elements_at(const Accumulators::Carried& arrays, const std::string& place) {
  Accumulators::Carried result;
  for (const std::string& array : arrays) result.push_back(array + "[" + place + "]");
  return result;
}

/// Prints `into` = merge(into, from), or `from` alone if a segment begins in it. `begins`: whether one does; empty: none does.
void merge_segment(Writer& w, const Accumulators& scan, const Accumulators::Carried& into, const Accumulators::Carried& from,
                   const std::string& begins) {
  if (begins.empty()) return scan.merge(w, into, from, 1);
  w.open("if ($s)", begins);
  Accumulators::copy(w, into, from);
  w.close(" else {");
  scan.merge(w, into, from, 1);
  w.close();
}

}  // namespace

int WorkGroupPhases::elements_at_once(const Phase& phase, int64_t steps, bool vectors) const {
  size_t ops = 0;
  for (const ir::NodeId id : phase.nodes) {
    const ir::Node& node = body_.kernel().graph().nodes[id];
    if (node.kind != ir::NodeKind::kMap && node.kind != ir::NodeKind::kReduce) return 1;
    ops += node.body.ops.size();
  }
  for (const auto& [scalars, max_ops] : kLoadAhead) {
    const int elements = vectors ? scalars / 2 : scalars;
    if (steps >= 2 * elements && ops <= max_ops) return elements;
  }
  return 1;
}

WorkGroupPhases::Loop WorkGroupPhases::choose_loop(const Phase& phase, const PhaseReductions& reductions) const {
  Loop loop;
  loop.total = ir::simplify(ir::product(group_.reduce_sizes), body_.ranges());
  const int64_t longest = body_.ranges().of(loop.total).high;
  loop.flat = group_.reduce_sizes.size() > 1;
  loop.blocks = reductions.wants_blocks(longest > int64_t{kBlockSteps} * sharing_.items);
  loop.ragged = ragged_ > 1 && !loop.blocks;
  const int64_t steps = longest / sharing_.items / (loop.ragged ? ragged_ : 1);
  loop.at_once = elements_at_once(phase, steps, width_ > 1 || loop.ragged);
  loop.type = loop.flat ? flat_type(body_, loop.total) : body_.kernel().index_type();
  return loop;
}

/// Returns the names of the loops r* at `position`. A single loop is the position itself; several loops are computed
/// from it.
std::map<ir::Symbol, std::string> WorkGroupPhases::element_names(const Loop& loop, Writer& writer, const std::string& position,
                                                                 const std::string& suffix) const {
  if (!loop.flat) return {{{SymbolKind::kReduce, 0}, position}};
  const ir::Shape& sizes = group_.reduce_sizes;
  return write_unflatten(body_, writer, position, loop.type, sizes, sizes.size(), SymbolKind::kReduce, suffix);
}

void WorkGroupPhases::print_inner(const Phase& phase) {
  PhaseReductions reductions(body_, phase);
  if (reductions.scans()) return print_scan(reductions);
  Loop loop = choose_loop(phase, reductions);
  const std::string end = body_.index(loop.total);
  const Sets sets = reductions.names(), block = loop.blocks ? reductions.block_names() : sets;
  reductions.declare(body_.writer(), sets, width_);
  if (loop.ragged) {
    print_ragged(reductions, sets, loop.at_once);
    if (reductions.empty()) return;
    if (sharing_.items > 1) print_tree(reductions, sets);
    reductions.finish(sets, 1);
    return;
  }
  loop.name = loop.flat ? body_.kernel().fresh("flat") : "r0";
  Writer single;
  body_.push(element_names(loop, single, loop.name, ""));
  reductions.step_nodes(block, loop.blocks);
  single.append(body_.pop());

  Writer& w = body_.writer();
  // An item without a row begins at the end. A branch around the loop would do, but PoCL 3.1 lets such items run the loop of a
  // later phase.
  const std::string begin = sharing_.row_exists.empty()
                                ? sharing_.lane
                                : sharing_.row_exists + " ? " + sharing_.lane + " : (" + loop.type + ")(" + end + ")";
  if (loop.blocks) {
    const int64_t block_elements = int64_t{kBlockSteps} * sharing_.items;
    const std::string first = body_.kernel().fresh("block"), last = body_.kernel().fresh("end");
    w.open("for ($s $s = $s; $s < $s; $s += $d)", loop.type, first, begin, first, end, first, block_elements);
    w.line("const $s $s = min($s + $d, ($s)($s));", loop.type, last, first, block_elements, loop.type, end);
    reductions.declare_block(w, sets, block, width_);
    print_elements(loop, reductions, block, first, last, single);
    reductions.merge_block(w, sets, block, width_);
    w.close();
  } else {
    print_elements(loop, reductions, sets, begin, end, single);
  }
  if (reductions.empty()) return;
  if (sharing_.items > 1) print_tree(reductions, sets);
  reductions.finish(sets, width_);
}

void WorkGroupPhases::print() {
  if (ragged_ > 1) {
    const RaggedRow row = ragged_row(body_, group_, {SymbolKind::kReduce, 0});
    const std::string type = body_.kernel().index_type(), end = body_.index(group_.reduce_sizes[0]);
    Writer& w = body_.writer();
    // Without aligned vectors, all elements come last.
    const std::string fits = row.fits.empty() ? "" : row.fits + " ? ", none = row.fits.empty() ? "" : " : 0";
    w.line("const $s first = $smin(($s)$s, ($s)($s))$s;", type, fits, type, row.head, type, end, none);
    w.line("const $s last = first + ($s($s - first) / $d * $d$s);", type, fits, end, ragged_, ragged_, none);
  }
  PhasePrinter::print();
}

/// Prints the loops over an item's vectors, then over its elements before and after the vectors of all items.
void WorkGroupPhases::print_ragged(PhaseReductions& reductions, const Sets& sets, int ahead) {
  const std::string type = body_.kernel().index_type(), end = body_.index(group_.reduce_sizes[0]);
  const int64_t step = int64_t{sharing_.items} * ragged_;
  const Sets lanes = reductions.names();
  reductions.declare(body_.writer(), lanes, ragged_);
  const std::string at = body_.kernel().fresh("vector"), edge = body_.kernel().fresh("edge"), r = body_.kernel().fresh("r");
  const std::string begin = format("first + $s * $d", {sharing_.lane, ragged_});
  const std::string& live = sharing_.row_exists;
  const Writer several = ragged_vectors(reductions, lanes, at, ahead), one = ragged_vectors(reductions, lanes, at, 1);
  body_.push({{{SymbolKind::kReduce, 0}, r}});
  reductions.step_nodes(sets, false);
  const Writer single = body_.pop();
  Writer& w = body_.writer();
  w.open("");
  w.line("$s $s = $s;", type, at, live.empty() ? begin : format("$s ? $s : last", {live, begin}));
  if (ahead > 1) {
    w.open("for (; $s < last - $d; $s += $d)", at, step * (ahead - 1), at, step * ahead);
    w.append(several);
    w.close();
  }
  w.open("for (; $s < last; $s += $d)", at, at, step);
  w.append(one);
  w.close();
  w.close();
  w.open("for ($s $s = $s; $s < $s - (last - first); $s += $d)", type, edge,
         live.empty() ? sharing_.lane : format("$s ? $s : ($s)($s)", {live, sharing_.lane, type, end}), edge, end, edge,
         sharing_.items);
  w.line("const $s $s = $s < first ? $s : $s + (last - first);", type, r, edge, edge, edge);
  w.append(single);
  w.close();
  for (size_t i = 0; i < reductions.size(); ++i)
    reductions[i].merge(w, sets[i], reductions[i].across_lanes(w, lanes[i], ragged_), 1);
}

/// Prints `at_once` vectors, the first at `position`. All loads come before all stores.
Writer WorkGroupPhases::ragged_vectors(PhaseReductions& reductions, const Sets& sets, const std::string& position,
                                       int at_once) {
  std::vector<Slot> slots(static_cast<size_t>(at_once));
  for (int k = 0; k < at_once; ++k)
    slots[k].names = {
        {{SymbolKind::kReduce, 0}, k == 0 ? position : format("($s + $d)", {position, int64_t{k} * sharing_.items * ragged_})}};
  body_.push({});
  body_.assume_ragged(true);
  bool stores = false;
  visit_slots(body_, slots, ragged_, true, [&](const Slot&) {
    reductions.compute_values();
    stores = stores || body_.has_stores();
  });
  visit_slots(body_, slots, ragged_, true, [&](const Slot&) {
    for (size_t i = 0; i < reductions.size(); ++i) reductions[i].step(sets[i]);
  });
  if (stores) visit_slots(body_, slots, ragged_, false, [&](const Slot&) { body_.flush_stores(); });
  body_.assume_ragged(false);
  return body_.pop();
}

/// Prints the loop over an item's elements from `from` to `to`: several at once, then one by one (`single`).
void WorkGroupPhases::print_elements(const Loop& loop, PhaseReductions& reductions, const Sets& sets, const std::string& from,
                                     const std::string& to, const Writer& single) {
  const int stride = sharing_.items;
  Writer& w = body_.writer();
  if (loop.at_once == 1) {
    w.open("for ($s $s = $s; $s < $s; $s += $d)", loop.type, loop.name, from, loop.name, to, loop.name, stride);
    w.append(single);
    w.close();
    return;
  }
  w.open("");
  w.line("$s $s = $s;", loop.type, loop.name, from);
  const Writer several = several_elements(loop, reductions, sets);
  w.open("for (; $s < $s - $d; $s += $d)", loop.name, to, int64_t{loop.at_once - 1} * stride, loop.name,
         int64_t{loop.at_once} * stride);
  w.append(several);
  w.close();
  w.open("for (; $s < $s; $s += $d)", loop.name, to, loop.name, stride);
  w.append(single);
  w.close();
  w.close();
}

/// Prints `at_once` elements. All loads come before all stores, because the compiler cannot prove that a store does not
/// change what a later load reads.
Writer WorkGroupPhases::several_elements(const Loop& loop, PhaseReductions& reductions, const Sets& sets) {
  Writer several;
  std::vector<Slot> slots(static_cast<size_t>(loop.at_once));
  for (int k = 0; k < loop.at_once; ++k) {
    const std::string position = k == 0 ? loop.name : format("($s + $d)", {loop.name, int64_t{k} * sharing_.items});
    slots[k].names = element_names(loop, several, position, "_" + std::to_string(k));
  }
  body_.push({});
  bool stores = false;
  visit_slots(body_, slots, 1, true, [&](const Slot&) {
    reductions.compute_values();
    stores = stores || body_.has_stores();
  });
  visit_slots(body_, slots, 1, true, [&](const Slot&) {
    for (size_t i = 0; i < reductions.size(); ++i)
      loop.blocks ? reductions[i].step_block(sets[i]) : reductions[i].step(sets[i]);
  });
  if (stores) visit_slots(body_, slots, 1, false, [&](const Slot&) { body_.flush_stores(); });
  several.append(body_.pop());
  return several;
}

WorkGroupPhases::Sets WorkGroupPhases::local_arrays(const PhaseReductions& reductions, int halves) const {
  Sets arrays;
  std::map<ir::DType, int> used;
  for (size_t i = 0; i < reductions.size(); ++i) {
    arrays.emplace_back();
    for (size_t k = 0; k < reductions[i].count(); ++k) {
      const ir::DType dtype = reductions[i].dtype(k) == ir::DType::kBool ? ir::DType::kI32 : reductions[i].dtype(k);
      arrays[i].push_back(body_.kernel().local_array({dtype, width_}, used[dtype]++, halves * sharing_.items * sharing_.rows));
    }
  }
  return arrays;
}

/// Merges the accumulators of the items that share an outer element. Every item gets the result.
void WorkGroupPhases::print_tree(PhaseReductions& reductions, const Sets& sets) {
  const int distance = sharing_.column ? sharing_.rows : 1;
  Writer& w = body_.writer();
  const Sets arrays = local_arrays(reductions, 1);
  const auto store_all = [&] {
    for (size_t i = 0; i < arrays.size(); ++i) Accumulators::copy(w, elements_at(arrays[i], "item"), sets[i]);
  };
  store_all();
  w.line("barrier(CLK_LOCAL_MEM_FENCE);  // the accumulators of all items are in place");
  w.open("for (int step = $d; step > 0; step /= 2)", sharing_.items / 2);
  w.open("if ($s < step)", sharing_.lane);
  const std::string other = "item + step" + (distance > 1 ? " * " + std::to_string(distance) : "");
  for (size_t i = 0; i < reductions.size(); ++i) reductions[i].merge(w, sets[i], elements_at(arrays[i], other), width_);
  store_all();
  w.close();
  w.line("barrier(CLK_LOCAL_MEM_FENCE);  // this round is complete before the next reads it");
  w.close();
  for (size_t i = 0; i < arrays.size(); ++i) Accumulators::copy(w, sets[i], elements_at(arrays[i], sharing_.first_item()));
  w.line("barrier(CLK_LOCAL_MEM_FENCE);  // everyone has the result before the arrays are used again");
}

/// Prints the loop over the tiles of a row. `running` has the accumulators of all elements before the tile.
void WorkGroupPhases::print_scan(PhaseReductions& reductions) {
  OCL_ASSERT(group_.reduce_sizes.size() == 1 && width_ == 1, "a scan has one loop and no vectors");
  const std::string type = body_.kernel().index_type(), begin = body_.kernel().fresh("tile"),
                    end = body_.index(group_.reduce_sizes[0]);
  const Sets running = reductions.names();
  reductions.declare(body_.writer(), running, 1);
  const int elements = reductions.op_count() <= kScanOps ? kTileElements : 1;
  const Writer tile = scan_tile(reductions, running, begin, end, elements);
  Writer& w = body_.writer();
  w.open("for ($s $s = 0; $s < $s; $s += $d)", type, begin, begin, end, begin, sharing_.items * elements);
  w.append(tile);
  w.close();
}

/// Prints a tile. An item past the end computes with the last element, and stores nothing.
Writer WorkGroupPhases::scan_tile(PhaseReductions& reductions, const Sets& running, const std::string& begin,
                                  const std::string& end, int elements) {
  Writer tile;
  std::vector<Slot> slots(static_cast<size_t>(elements));
  for (int k = 0; k < elements; ++k) {
    const std::string name = body_.kernel().fresh("r"), type = body_.kernel().index_type();
    const std::string position = format("$s + $s * $d + $d", {begin, sharing_.lane, elements, k});
    tile.line("const $s $s = min($s, ($s)($s - 1));", type, name, position, type, end);
    slots[k].names = {{{SymbolKind::kReduce, 0}, name}};
    slots[k].condition = format("$s < $s", {position, end});
    if (!sharing_.row_exists.empty()) slots[k].condition += " && " + sharing_.row_exists;
  }
  body_.push({});
  visit_slots(body_, slots, 1, true, [&](const Slot&) { reductions.compute_values(); });
  OCL_ASSERT(reductions.size() == 1, "a scan runs alone");
  Accumulators& scan = reductions[0];
  Kernel& kernel = body_.kernel();
  Items items{reductions.names()[0], local_arrays(reductions, 2)[0], "", ""};
  if (scan.resets()) {
    items.begins = kernel.fresh("begins");
    const int slot = static_cast<int>(scan.count());  // Accumulators have lower ones.
    items.begins_array = kernel.local_array({ir::DType::kI32, 1}, slot, 2 * sharing_.items * sharing_.rows);
    body_.writer().line("int $s = 0;", items.begins);
  }
  std::vector<Accumulators::Carried> inside;  // The accumulators of the item's elements up to each of them.
  std::vector<std::string> begins;            // Whether one of these elements begins a segment.
  scan.declare(body_.writer(), items.total, 1);
  visit_slots(body_, slots, 1, true, [&](const Slot&) {
    Writer& w = body_.writer();
    inside.push_back(scan.names());
    scan.declare(w, inside.back(), 1);
    begins.push_back(scan.resets() ? kernel.fresh("begins") : "");
    if (scan.resets()) w.line("$s |= $s;", items.begins, scan.reset(items.total));
    if (scan.resets()) w.line("const int $s = $s;", begins.back(), items.begins);
    scan.step(items.total);
    Accumulators::copy(w, inside.back(), items.total);
  });
  print_scan_of_items(scan, items);
  const auto of_item = [&](const std::string& number) {
    const std::string place = "from + " + number;
    return std::pair(elements_at(items.arrays, place), scan.resets() ? items.begins_array + "[" + place + "]" : "");
  };
  const Accumulators::Carried before = scan.names();
  scan.declare(body_.writer(), before, 1);
  Accumulators::copy(body_.writer(), before, running[0]);
  body_.writer().open("if ($s > 0)", sharing_.lane);
  const auto [previous, previous_begins] = of_item("item - 1");
  merge_segment(body_.writer(), scan, before, previous, previous_begins);
  body_.writer().close();
  size_t k = 0;
  visit_slots(body_, slots, 1, true, [&](const Slot&) {
    const Accumulators::Carried result = scan.names();
    scan.declare(body_.writer(), result, 1);
    Accumulators::copy(body_.writer(), result, before);
    merge_segment(body_.writer(), scan, result, inside[k], begins[k]);
    ++k;
    reductions.finish({result}, 1);
  });
  visit_slots(body_, slots, 1, false,
              [&](const Slot& slot) { print_guarded(body_, slot.condition, [&] { body_.flush_stores(); }); });
  const auto [last, last_begins] = of_item(sharing_.first_item() + " + " + std::to_string(sharing_.items - 1));
  merge_segment(body_.writer(), scan, running[0], last, last_begins);
  body_.writer().line("barrier(CLK_LOCAL_MEM_FENCE);  // everyone has read the totals before the next tile writes its own");
  tile.append(body_.pop());
  return tile;
}

/// Makes element `from + item` of the arrays, and the item's total, the accumulators of the row's items up to this one (Hillis
/// and Steele 1986). Each round reads one half of the arrays and writes the other, so that it needs a single barrier.
void WorkGroupPhases::print_scan_of_items(const Accumulators& scan, const Items& items) {
  Writer& w = body_.writer();
  const auto store = [&](const std::string& place) {
    Accumulators::copy(w, elements_at(items.arrays, place), items.total);
    if (scan.resets()) w.line("$s[$s] = $s;", items.begins_array, place, items.begins);
  };
  store("item");
  w.line("barrier(CLK_LOCAL_MEM_FENCE);  // the totals of all items are in place");
  w.line("int from = 0;");
  w.open("for (int step = 1; step < $d; step *= 2)", sharing_.items);
  const Accumulators::Carried sum = scan.names();
  scan.declare(w, sum, 1);
  w.open("if ($s >= step)", sharing_.lane);
  Accumulators::copy(w, sum, elements_at(items.arrays, "from + item - step"));
  merge_segment(w, scan, sum, items.total, items.begins);
  Accumulators::copy(w, items.total, sum);
  if (scan.resets()) w.line("$s |= $s[from + item - step];", items.begins, items.begins_array);
  w.close();
  w.line("from = $d - from;", int64_t{sharing_.items} * sharing_.rows);
  store("from + item");
  w.line("barrier(CLK_LOCAL_MEM_FENCE);  // this round is complete before the next reads it");
  w.close();
}

}  // namespace ocl::codegen
