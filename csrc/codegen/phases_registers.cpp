// csrc/codegen/phases_registers.cpp: inner phases of rows that a GPU work-group keeps in registers: memory is read once, all of
// it at the beginning, and later phases use the same values.
//
//   row:   |<- items vectors ->|<- items vectors ->|<- ... ->|     item 0 has the first vector of each slot, item 1 the second
//           slot 0              slot 1              slot 2         a slot that stands over reads the last vector and ignores it
#include "csrc/codegen/phases.h"
#include "csrc/support/error.h"

namespace ocl::codegen {

using ir::SymbolKind;
using schedule::Phase;

namespace {

constexpr int kReadAtOnce = 16;  // results of a tree's last step, which every item merges for itself
constexpr int kMergedAtOnce = 8;

}  // namespace

bool Phases::fits_registers() const {
  for (const Phase& phase : group_.phases)
    for (const ir::NodeId id : phase.nodes) {
      if (!phase.inner || !ir::is_reduction(body_.kernel().graph().nodes[static_cast<size_t>(id)])) continue;
      if (body_.kernel().graph().nodes[static_cast<size_t>(id)].kind != ir::NodeKind::kReduce) return false;
      const Accumulators reduction(body_, id);
      if (!reduction.is_single() && !reduction.takes_two_passes()) return false;
    }
  return true;
}

void Phases::registers(const Sharing& sharing, int width, int64_t length) {
  sharing_ = sharing;
  width_ = width;
  slots_.clear();
  const int64_t step = int64_t{sharing.items} * width;
  const std::string type = body_.kernel().index_type();
  for (int64_t first = 0; first < length; first += step) {
    Slot& slot = slots_.emplace_back();
    const std::string number = std::to_string(slots_.size() - 1);
    const std::string position = "first" + number;
    slot.names = {{{SymbolKind::kReduce, 0}, position}};
    std::string text = width > 1 ? format("$s * $d", {sharing.lane, width}) : sharing.lane;
    if (first > 0) text += " + " + std::to_string(first);
    if (first + step > length) {
      slot.inside = "inside" + number;
      body_.writer().line("const int $s = $s < $d;", slot.inside, text, length);
      text = format("min($s, $d)", {text, length - width});
    }
    body_.writer().line("const $s $s = $s;", type, position, text);
  }
  elements_ = format("$c", {Literal{{true, static_cast<double>(length), 0}, ir::DType::kF32}});
  run(&Phases::inner_registers);
}

/// One level per slot, where `visit` prints. Its text stays in scope if `keep`.
void Phases::each_slot(std::vector<Slot>& slots, bool keep, const std::function<void(const Slot&)>& visit) {
  for (Slot& slot : slots) {
    body_.push(slot.names);
    if (width_ > 1) body_.set_lane({SymbolKind::kReduce, 0}, width_);
    body_.resume(slot.kept);
    visit(slot);
    const Writer text = keep ? body_.pop_keeping(slot.kept) : body_.pop();
    body_.writer().append(text);
  }
}

void Phases::values(const Phase& phase) {
  for (const ir::NodeId id : phase.nodes) {
    const ir::Node& node = body_.kernel().graph().nodes[static_cast<size_t>(id)];
    if (node.kind == ir::NodeKind::kMap) body_.run_map(id);
    for (const int op : node.reduced) body_.value(id, op);
  }
}

void Phases::guarded(const std::string& condition, const std::function<void()>& print) {
  if (!condition.empty()) body_.writer().open("if ($s)", condition);
  print();
  if (!condition.empty()) body_.writer().close();
}

void Phases::inner_registers(const Phase& phase) {
  begin(phase);
  std::vector<size_t> all, again;
  for (size_t i = 0; i < reductions_.size(); ++i) {
    all.push_back(i);
    if (reductions_[i].takes_two_passes()) again.push_back(i);
  }
  std::vector<std::string> centres(reductions_.size());
  bool stores = false;
  // All values first: loads do not wait for stores that may, for all the compiler knows, change what they read.
  each_slot(slots_, true, [&](const Slot&) {
    values(phase);
    stores = stores || body_.has_stores();
  });
  const std::vector<std::string> first = register_pass(0, all, centres);
  if (stores)
    each_slot(slots_, false, [&](const Slot& slot) {
      std::string condition = sharing_.live;
      if (!slot.inside.empty()) condition += (condition.empty() ? "" : " && ") + slot.inside;
      guarded(condition, [&] { body_.flush_stores(); });
    });
  for (const size_t i : again) {
    centres[i] = body_.kernel().fresh("c");
    body_.writer().line("const $t $s = $s;", Type{reductions_[i].dtype(0), 1}, centres[i],
                        reductions_[i].centre_text(first[i], elements_));
  }
  const std::vector<std::string> second = register_pass(1, again, centres);
  for (size_t i = 0; i < reductions_.size(); ++i) {
    const bool two = reductions_[i].takes_two_passes();
    reductions_[i].finish(two ? reductions_[i].after_passes(centres[i], second[i], elements_) : Carried{first[i]}, 1, level());
  }
}

/// A pass of the reductions in `which` over all slots: their results by position in `reductions_`, the same in every item.
std::vector<std::string> Phases::register_pass(int pass, const std::vector<size_t>& which,
                                               const std::vector<std::string>& centres) {
  std::vector<std::string> result(reductions_.size());
  if (which.empty()) return result;
  Writer& w = body_.writer();
  for (const size_t i : which) result[i] = reductions_[i].declare_pass(w, pass, width_);
  each_slot(slots_, true, [&](const Slot& slot) {
    guarded(slot.inside, [&] {
      for (const size_t i : which) reductions_[i].step_pass(pass, result[i], centres[i]);
    });
  });
  for (const size_t i : which) {
    const ir::DType dtype = reductions_[i].dtype(0);
    for (int half = width_ / 2; half >= 1; half /= 2) {
      const std::string next = body_.kernel().fresh("a");
      const std::string low = half == 1 ? lane_text(result[i], dtype, 0) : result[i] + ".lo",
                        high = half == 1 ? lane_text(result[i], dtype, 1) : result[i] + ".hi";
      w.line("$t $s = $s;", Type{dtype, half}, next, reductions_[i].merge_pass_text(pass, low, high, half));
      result[i] = next;
    }
  }
  write_register_tree(pass, which, result);
  return result;
}

/// Few rounds with a barrier each, of eight values merged at once. Trees take turns with two sets of arrays: whoever writes to
/// one has passed a barrier of the tree between, so that nobody still reads it.
void Phases::write_register_tree(int pass, const std::vector<size_t>& which, const std::vector<std::string>& names) {
  Writer& w = body_.writer();
  std::vector<std::string> arrays(names.size());
  std::map<ir::DType, int> used;
  for (const size_t i : which) {
    const ir::DType dtype = reductions_[i].dtype(0) == ir::DType::kBool ? ir::DType::kI32 : reductions_[i].dtype(0);
    arrays[i] = body_.kernel().local_array({dtype, 1}, 2 * used[dtype]++ + trees_ % 2, sharing_.items * sharing_.rows);
    w.line("$s[item] = $s;", arrays[i], names[i]);
  }
  ++trees_;
  const auto merge = [&](size_t i, const std::string& from) {
    w.line("$s = $s;", names[i], reductions_[i].merge_pass_text(pass, names[i], from, 1));
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
  const std::string first = sharing_.rows == 1 ? "" : "item - " + sharing_.lane + " + ";
  for (const size_t i : which) {
    w.line("$s = $s[$s$d];", names[i], arrays[i], first, 0);
    for (int k = 1; k < left; ++k) merge(i, format("$s[$s$d]", {arrays[i], first, k}));
  }
  // PoCL 3.1 mixes up items behind the only barrier of a branch (a sum of five rows of eight came out one row off).
  if (sharing_.items <= kReadAtOnce) w.line("barrier(CLK_LOCAL_MEM_FENCE);  // everyone has the result");
}

}  // namespace ocl::codegen
