// csrc/codegen/product_phases.cpp: a matrix times a row, for blocks of neighbouring rows of the matrix.
//
//   x:          |<- items vectors ->|<- items vectors ->|    loaded once for the block
//   row 0 of w: |                   |                   |    a sum for each row in each item
//   row 1 of w: |                   |                   |
//
// The sums of all items are merged in local memory. Then items take the results of a row each, and the first of them store.
#include "csrc/codegen/product_phases.h"

#include <algorithm>

namespace ocl::codegen {

using ir::SymbolKind;

namespace {

bool uses(const ir::Op& op, SymbolKind kind) {
  return std::ranges::any_of(op.index, [&](const ir::IndexExpr& e) { return e.uses(kind); });
}

}  // namespace

ir::Symbol innermost_loop(const schedule::Group& group) {
  return {SymbolKind::kLoop, static_cast<int>(group.sizes.size()) - 1};
}

bool varies_by_row(const ir::Node& node) {
  return std::ranges::any_of(node.body.ops, [](const ir::Op& op) { return uses(op, SymbolKind::kLoop); });
}

bool shares_row(BodyPrinter& body, const schedule::Group& group) {
  const ir::Graph& graph = body.kernel().graph();
  bool shared = false, varies = false;
  std::optional<std::pair<ir::ReductionCode, ir::DType>> kind;
  for (size_t p = 0; p < group.phases.size(); ++p)
    if (group.phases[p].inner != (p == 0)) return false;
  for (const ir::NodeId id : group.phases[0].nodes) {
    const ir::Node& node = graph.nodes[id];
    if (node.kind != ir::NodeKind::kReduce) return false;
    const Accumulators reduction(body, id);
    if (!reduction.is_single() || reduction.takes_two_passes() || reduction.dtype(0) == ir::DType::kBool) return false;
    const std::pair own(node.reduction, reduction.dtype(0));
    if (kind.value_or(own) != own) return false;
    kind = own;
    if (!varies_by_row(node)) continue;
    varies = true;
    for (const ir::Op& op : node.body.ops)
      shared = shared || (op.code == ir::OpCode::kLoad && uses(op, SymbolKind::kReduce) && !uses(op, SymbolKind::kLoop) &&
                          !uses(op, SymbolKind::kValue));
  }
  return varies && shared;
}

ir::Symbol ProductPhases::innermost_loop() const { return codegen::innermost_loop(group_); }

void ProductPhases::print() {
  declare_slots();
  PhaseReductions reductions(body_, group_.phases[0]);
  Writer &before = body_.writer(), inside;
  const std::vector<Sum> shared = declare_sums(before, reductions, false), varying = declare_sums(inside, reductions, true);
  add_up(reductions, shared, varying, inside);
  const size_t count = shared.size() + varying.size();
  all_ = sharing_.items * sharing_.rows;
  array_ = body_.kernel().local_array({reductions[0].dtype(0), 1}, 0, static_cast<int>(count) * all_);
  keep_sums(before, reductions, shared, varying.size());
  const bool loops = !block_.loop.empty();
  if (loops && !shared.empty()) merge_items(before, reductions, varying.size(), shared.size());
  keep_sums(inside, reductions, varying, 0);
  merge_items(inside, reductions, 0, loops ? varying.size() : count);
  print_results(reductions, shared, varying, inside);
  if (!loops) {
    before.append(inside);
    return;
  }
  inside.line("barrier(CLK_LOCAL_MEM_FENCE);  // everyone has the results before the array is used again");
  before.open("$s", block_.loop);
  before.append(block_.begin);
  before.append(inside);
  before.close();
}

/// Returns the sums that vary by row, one for each row, or the others.
std::vector<ProductPhases::Sum> ProductPhases::declare_sums(Writer& writer, PhaseReductions& reductions, bool varying) const {
  std::vector<Sum> sums;
  for (size_t i = 0; i < reductions.size(); ++i) {
    if (varies_by_row(body_.kernel().graph().nodes[reductions[i].node()]) != varying) continue;
    for (int row = 0; row < (varying ? block_.rows : 1); ++row)
      sums.push_back({i, row, reductions[i].declare_pass(writer, 0, width_)});
  }
  return sums;
}

/// Prints the loads of all slots and rows, then the steps. So no load waits in a branch for items beyond the end of the row.
/// inside: takes what differs from row to row.
void ProductPhases::add_up(PhaseReductions& reductions, const std::vector<Sum>& shared, const std::vector<Sum>& varying,
                           Writer& inside) {
  std::vector<std::vector<BodyPrinter::SavedLevel>> saved(slots_.size());
  for (auto& rows : saved) rows.resize(static_cast<size_t>(block_.rows));
  const auto visit_rows = [&](const Slot& slot, const std::function<void(int)>& visit) {
    for (int row = 0; row < block_.rows; ++row) {
      BodyPrinter::SavedLevel& level = saved[static_cast<size_t>(&slot - slots_.data())][static_cast<size_t>(row)];
      std::map<ir::Symbol, std::string> names = block_.names;
      if (row > 0) names[innermost_loop()] = format("($s + $d)", {first_row(), row});
      body_.push(names);
      body_.resume(level);
      visit(row);
      inside.append(body_.pop_saving(level));
    }
  };
  const auto step = [&](const Slot& slot, const std::vector<Sum>& sums, int row) {
    print_guarded(body_, slot.condition, [&] {
      for (const Sum& sum : sums)
        if (sum.row == row) reductions[sum.reduction].step_pass(0, sum.name, "");
    });
  };
  visit_slots(body_, slots_, width_, true,
              [&](const Slot& slot) { visit_rows(slot, [&](int) { reductions.compute_values(); }); });
  visit_slots(body_, slots_, width_, true, [&](const Slot& slot) {
    if (!shared.empty()) step(slot, shared, 0);
    visit_rows(slot, [&](int row) { step(slot, varying, row); });
  });
}

/// Stores the work-item's sums in local memory, as sums number `first` and following.
void ProductPhases::keep_sums(Writer& writer, PhaseReductions& reductions, const std::vector<Sum>& sums, size_t first) const {
  for (size_t n = 0; n < sums.size(); ++n)
    writer.line("$s[item + $d] = $s;", array_, static_cast<int64_t>(first + n) * all_,
                reductions[sums[n].reduction].across_lanes(writer, {sums[n].name}, width_)[0]);
}

/// Merges `count` sums of the items, eight at a time.
void ProductPhases::merge_items(Writer& w, PhaseReductions& reductions, size_t first, size_t count) {
  w.line("barrier(CLK_LOCAL_MEM_FENCE);  // the sums of all items are in place");
  for (left_ = sharing_.items; left_ > kReadAtOnce; left_ /= kMergedAtOnce) {
    const int next = left_ / kMergedAtOnce;
    w.open("for (int n = $s; n < $d; n += $d)", sharing_.lane, static_cast<int64_t>(count) * next, sharing_.items);
    w.line("const int at = (n / $d + $d) * $d + n % $d + $s;", next, first, all_, next, sharing_.first_item());
    w.line("$t sum = $s[at];", Type{reductions[0].dtype(0), 1}, array_);
    for (int k = 1; k < kMergedAtOnce; ++k)
      w.line("sum = $s;", reductions[0].merge_pass_text(0, "sum", format("$s[at + $d]", {array_, k * next}), 1));
    w.line("$s[at] = sum;", array_);
    w.close();
    w.line("barrier(CLK_LOCAL_MEM_FENCE);  // this round is complete before the next reads it");
  }
}

/// Prints the last merges and the outer phases. An item does so for one row, and items beyond those of the rows do it again: a
/// branch around all of it would do, but PoCL 3.1 then gives some items the results of others.
void ProductPhases::print_results(PhaseReductions& reductions, const std::vector<Sum>& shared, const std::vector<Sum>& varying,
                                  Writer& inside) {
  std::map<ir::Symbol, std::string> names = block_.names;
  const std::string row = names[innermost_loop()] = body_.kernel().fresh("n");
  body_.push(names);
  Writer& w = body_.writer();
  w.line("const $s $s = $s + $s % $d;", body_.kernel().index_type(), row, first_row(), sharing_.lane, block_.rows);
  PhaseReductions::Sets results(reductions.size());
  const auto read = [&](const std::vector<Sum>& sums, size_t first) {
    for (size_t n = 0; n < sums.size(); ++n) {
      if (sums[n].row > 0) continue;
      const std::string at = body_.kernel().fresh("at"), result = body_.kernel().fresh("a");
      w.line("const int $s = $s$d + $s;", at, first == 0 ? format("$s % $d * $d + ", {sharing_.lane, block_.rows, all_}) : "",
             static_cast<int64_t>(first + n) * all_, sharing_.first_item());
      w.line("$t $s = $s[$s];", Type{reductions[0].dtype(0), 1}, result, array_, at);
      for (int k = 1; k < left_; ++k)
        w.line("$s = $s;", result, reductions[0].merge_pass_text(0, result, format("$s[$s + $d]", {array_, at, k}), 1));
      results[sums[n].reduction] = {result};
    }
  };
  read(varying, 0);
  read(shared, varying.size());
  reductions.finish(results, 1);
  store_results();
  for (size_t p = 1; p < group_.phases.size(); ++p) {
    print_outer(group_.phases[p]);
    store_results();
  }
  inside.append(body_.pop());
}

std::string ProductPhases::store_condition() const {
  return format("$s$s < $d", {sharing_.row_exists.empty() ? "" : sharing_.row_exists + " && ", sharing_.lane, block_.rows});
}

}  // namespace ocl::codegen
