// csrc/codegen/register_phases.cpp: inner phases of rows that a GPU work-group keeps in registers. The row is loaded once, at
// the beginning, and later phases use the same values.
//
//   row:   |<- items vectors ->|<- items vectors ->|<- ... ->|     item 0 has the first vector of each slot, item 1 the second
//           slot 0              slot 1              slot 2         beyond the end of the row, an item loads the last vector and
//                                                                  ignores it
#include "csrc/codegen/register_phases.h"

namespace ocl::codegen {

using schedule::Phase;

bool fits_registers(BodyPrinter& body, const schedule::Group& group) {
  for (const Phase& phase : group.phases)
    for (const ir::NodeId id : phase.nodes) {
      const ir::Node& node = body.kernel().graph().nodes[id];
      if (!phase.inner || !ir::is_reduction(node)) continue;
      if (node.kind != ir::NodeKind::kReduce) return false;
      const Accumulators reduction(body, id);
      if (!reduction.is_single() && !reduction.takes_two_passes()) return false;
    }
  return true;
}

void RegisterPhases::print() {
  declare_slots();
  PhasePrinter::print();
}

void RegisterPhases::declare_slots() {
  const int64_t step = int64_t{sharing_.items} * width_;
  const std::string type = body_.kernel().index_type();
  for (int64_t first = 0; first < length_; first += step) {
    Slot& slot = slots_.emplace_back();
    const std::string number = std::to_string(slots_.size() - 1);
    const std::string position = "first" + number;
    slot.names = {{{SymbolKind::kReduce, 0}, position}};
    std::string text = width_ > 1 ? format("$s * $d", {sharing_.lane, width_}) : sharing_.lane;
    if (first > 0) text += " + " + std::to_string(first);
    if (first + step > length_) {
      slot.condition = "inside" + number;
      body_.writer().line("const int $s = $s < $d;", slot.condition, text, length_);
      text = format("min($s, $d)", {text, length_ - width_});
    }
    body_.writer().line("const $s $s = $s;", type, position, text);
  }
}

void RegisterPhases::print_inner(const Phase& phase) {
  PhaseReductions reductions(body_, phase);
  std::vector<size_t> all, two_passes;
  for (size_t i = 0; i < reductions.size(); ++i) {
    all.push_back(i);
    if (reductions[i].takes_two_passes()) two_passes.push_back(i);
  }
  Results centres(reductions.size());
  bool stores = false;
  // All values are computed before any store. The compiler cannot prove that a store does not change what a later load
  // reads, so it would not move that load before the store.
  visit_slots(body_, slots_, width_, true, [&](const Slot&) {
    reductions.compute_values();
    stores = stores || body_.has_stores();
  });
  const Results first = print_pass(reductions, 0, all, centres);
  if (stores)
    visit_slots(body_, slots_, width_, false, [&](const Slot& slot) {
      std::string condition = sharing_.row_exists;
      if (!slot.condition.empty()) condition += (condition.empty() ? "" : " && ") + slot.condition;
      print_guarded(body_, condition, [&] { body_.flush_stores(); });
    });
  const std::string elements = format("$c", {Literal{{true, static_cast<double>(length_), 0}, ir::DType::kF32}});
  for (const size_t i : two_passes) {
    centres[i] = body_.kernel().fresh("c");
    body_.writer().line("const $t $s = $s;", Type{reductions[i].dtype(0), 1}, centres[i],
                        reductions[i].centre_text(first[i], elements));
  }
  const Results second = print_pass(reductions, 1, two_passes, centres);
  PhaseReductions::Sets results;
  for (size_t i = 0; i < reductions.size(); ++i)
    results.push_back(reductions[i].takes_two_passes() ? reductions[i].after_passes(centres[i], second[i], elements)
                                                       : Accumulators::Carried{first[i]});
  reductions.finish(results, 1);
}

/// Prints a pass of the reductions in `which` over all slots. Returns the results by position; every item has them.
RegisterPhases::Results RegisterPhases::print_pass(PhaseReductions& reductions, int pass, const std::vector<size_t>& which,
                                                   const Results& centres) {
  Results result(reductions.size());
  if (which.empty()) return result;
  Writer& w = body_.writer();
  for (const size_t i : which) result[i] = reductions[i].declare_pass(w, pass, width_);
  visit_slots(body_, slots_, width_, true, [&](const Slot& slot) {
    print_guarded(body_, slot.condition, [&] {
      for (const size_t i : which) reductions[i].step_pass(pass, result[i], centres[i]);
    });
  });
  for (const size_t i : which) {
    const ir::DType dtype = reductions[i].dtype(0);
    for (int half = width_ / 2; half >= 1; half /= 2) {
      const std::string next = body_.kernel().fresh("a");
      const std::string low = half == 1 ? lane_text(result[i], dtype, 0) : result[i] + ".lo",
                        high = half == 1 ? lane_text(result[i], dtype, 1) : result[i] + ".hi";
      w.line("$t $s = $s;", Type{dtype, half}, next, reductions[i].merge_pass_text(pass, low, high, half));
      result[i] = next;
    }
  }
  print_tree(reductions, pass, which, result);
  return result;
}

/// Prints a tree of merges, eight values at a time, with a barrier per round. Trees alternate between two sets of local
/// arrays. Before an item writes to a set again, it has passed a barrier of the tree on the other set, so no item still
/// reads the first set.
void RegisterPhases::print_tree(PhaseReductions& reductions, int pass, const std::vector<size_t>& which, const Results& names) {
  Writer& w = body_.writer();
  std::vector<std::string> arrays(names.size());
  std::map<ir::DType, int> used;
  for (const size_t i : which) {
    const ir::DType dtype = reductions[i].dtype(0) == ir::DType::kBool ? ir::DType::kI32 : reductions[i].dtype(0);
    arrays[i] = body_.kernel().local_array({dtype, 1}, 2 * used[dtype]++ + trees_ % 2, sharing_.items * sharing_.rows);
    w.line("$s[item] = $s;", arrays[i], names[i]);
  }
  ++trees_;
  const auto merge = [&](size_t i, const std::string& from) {
    w.line("$s = $s;", names[i], reductions[i].merge_pass_text(pass, names[i], from, 1));
  };
  w.line("barrier(CLK_LOCAL_MEM_FENCE);  // the accumulators of all items are in place");
  int left = sharing_.items;
  for (; left > kReadAtOnce; left /= kMergedAtOnce) {
    const int next = left / kMergedAtOnce;
    w.open("if ($s < $d)", sharing_.lane, next);
    for (const size_t i : which) {
      for (int k = 1; k < kMergedAtOnce; ++k) merge(i, format("$s[item + $d]", {arrays[i], k * next}));
      w.line("$s[item] = $s;", arrays[i], names[i]);
    }
    w.close();
    w.line("barrier(CLK_LOCAL_MEM_FENCE);  // this round is complete before the next reads it");
  }
  const std::string first = sharing_.rows == 1 ? "" : sharing_.first_item() + " + ";
  for (const size_t i : which) {
    w.line("$s = $s[$s$d];", names[i], arrays[i], first, 0);
    for (int k = 1; k < left; ++k) merge(i, format("$s[$s$d]", {arrays[i], first, k}));
  }
}

}  // namespace ocl::codegen
