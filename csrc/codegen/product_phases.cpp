// csrc/codegen/product_phases.cpp: a matrix times a row, for blocks of neighbouring rows of the matrix.
//
//   x:          |<- items vectors ->|<- items vectors ->|    loaded once for the block
//   row 0 of w: |                   |                   |    a sum for each row in each item
//   row 1 of w: |                   |                   |
//
// The sums of all items are merged in local memory. Then item `lane` has the result of row `lane`.
#include "csrc/codegen/product_phases.h"

#include <algorithm>

namespace ocl::codegen {

namespace {

bool uses(const ir::Op& op, ir::Symbol loop) {
  return std::ranges::any_of(op.index, [&](const ir::IndexExpr& e) { return e.uses(loop); });
}

}  // namespace

ir::Symbol innermost_loop(const schedule::Group& group) {
  return {SymbolKind::kLoop, static_cast<int>(group.sizes.size()) - 1};
}

bool varies_by_row(const ir::Node& node, const schedule::Group& group) {
  return std::ranges::any_of(node.body.ops, [&](const ir::Op& op) { return uses(op, innermost_loop(group)); });
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
    if (!varies_by_row(node, group)) continue;
    varies = true;
    for (const ir::Op& op : node.body.ops)
      shared =
          shared || (op.code == ir::OpCode::kLoad && uses(op, {SymbolKind::kReduce, 0}) && !uses(op, innermost_loop(group)));
  }
  return varies && shared;
}

void ProductPhases::print() {
  declare_slots();
  PhaseReductions reductions(body_, group_.phases[0]);
  std::vector<Sum> sums = declare_sums(reductions);
  add_up(reductions, sums);
  Writer& w = body_.writer();
  const ir::DType dtype = reductions[0].dtype(0);
  const int all = sharing_.items * sharing_.rows;
  const std::string array = body_.kernel().local_array({dtype, 1}, 0, static_cast<int>(sums.size()) * all);
  for (size_t n = 0; n < sums.size(); ++n)
    w.line("$s[item + $d] = $s;", array, static_cast<int64_t>(n) * all,
           reductions[sums[n].reduction].across_lanes(w, {sums[n].name}, width_)[0]);
  w.line("barrier(CLK_LOCAL_MEM_FENCE);  // the sums of all items are in place");
  print_results(reductions, sums, array, merge_items(reductions, sums, array));
}

/// Returns the sums by reduction, and by row for those that vary by it.
std::vector<ProductPhases::Sum> ProductPhases::declare_sums(PhaseReductions& reductions) {
  std::vector<Sum> sums;
  for (size_t i = 0; i < reductions.size(); ++i) {
    const bool varies = varies_by_row(body_.kernel().graph().nodes[reductions[i].node()], group_);
    for (int row = 0; row < (varies ? rows_ : 1); ++row)
      sums.push_back({i, row, reductions[i].declare_pass(body_.writer(), 0, width_)});
  }
  return sums;
}

/// Prints the loads of all slots and rows, then the steps. So no load waits in a branch for items beyond the end of the row.
void ProductPhases::add_up(PhaseReductions& reductions, const std::vector<Sum>& sums) {
  std::vector<std::vector<BodyPrinter::SavedLevel>> saved(slots_.size());
  for (auto& rows : saved) rows.resize(static_cast<size_t>(rows_));
  const auto visit_rows = [&](const std::function<void(const Slot&, int)>& visit) {
    visit_slots(body_, slots_, width_, true, [&](const Slot& slot) {
      for (int row = 0; row < rows_; ++row) {
        BodyPrinter::SavedLevel& level = saved[static_cast<size_t>(&slot - slots_.data())][static_cast<size_t>(row)];
        body_.push({{innermost_loop(group_), row == 0 ? first_ : format("($s + $d)", {first_, row})}});
        body_.resume(level);
        visit(slot, row);
        const Writer text = body_.pop_saving(level);
        body_.writer().append(text);
      }
    });
  };
  visit_rows([&](const Slot&, int) { reductions.compute_values(); });
  visit_rows([&](const Slot& slot, int row) {
    print_guarded(body_, slot.condition, [&] {
      for (const Sum& sum : sums)
        if (sum.row == row) reductions[sum.reduction].step_pass(0, sum.name, "");
    });
  });
}

/// Merges the sums of the items, eight at a time. Returns how many are left of each sum.
int ProductPhases::merge_items(PhaseReductions& reductions, const std::vector<Sum>& sums, const std::string& array) {
  Writer& w = body_.writer();
  const int all = sharing_.items * sharing_.rows;
  int left = sharing_.items;
  for (; left > kReadAtOnce; left /= kMergedAtOnce) {
    const int next = left / kMergedAtOnce;
    w.open("for (int n = $s; n < $d; n += $d)", sharing_.lane, static_cast<int64_t>(sums.size()) * next, sharing_.items);
    w.line("const int at = n / $d * $d + n % $d + $s;", next, all, next, sharing_.first_item());
    w.line("$t sum = $s[at];", Type{reductions[0].dtype(0), 1}, array);
    for (int k = 1; k < kMergedAtOnce; ++k)
      w.line("sum = $s;", reductions[0].merge_pass_text(0, "sum", format("$s[at + $d]", {array, k * next}), 1));
    w.line("$s[at] = sum;", array);
    w.close();
    w.line("barrier(CLK_LOCAL_MEM_FENCE);  // this round is complete before the next reads it");
  }
  return left;
}

/// Prints the last merges, of `left` values each, and the outer phases. An item does so for one row.
void ProductPhases::print_results(PhaseReductions& reductions, const std::vector<Sum>& sums, const std::string& array,
                                  int left) {
  const int all = sharing_.items * sharing_.rows;
  const std::string row = body_.kernel().fresh("n");
  body_.push({{innermost_loop(group_), row}});
  Writer& inside = body_.writer();
  inside.line("const $s $s = $s + $s;", body_.kernel().index_type(), row, first_, sharing_.lane);
  PhaseReductions::Sets results;
  for (size_t n = 0; n < sums.size(); ++n) {
    if (sums[n].row > 0) continue;
    const bool by_row = n + 1 < sums.size() && sums[n + 1].row == 1;
    const std::string at = body_.kernel().fresh("at"), result = body_.kernel().fresh("a");
    inside.line("const int $s = $s$d + $s;", at, by_row ? format("$s * $d + ", {sharing_.lane, all}) : "",
                static_cast<int64_t>(n) * all, sharing_.first_item());
    inside.line("$t $s = $s[$s];", Type{reductions[0].dtype(0), 1}, result, array, at);
    for (int k = 1; k < left; ++k)
      inside.line("$s = $s;", result, reductions[0].merge_pass_text(0, result, format("$s[$s + $d]", {array, at, k}), 1));
    results.push_back({result});
  }
  reductions.finish(results, 1);
  print_outer_phases();
  const Writer text = body_.pop();
  const std::string exists = sharing_.row_exists.empty() ? "" : sharing_.row_exists + " && ";
  body_.writer().open("if ($s$s < $d)", exists, sharing_.lane, rows_);
  body_.writer().append(text);
  body_.writer().close();
}

}  // namespace ocl::codegen
