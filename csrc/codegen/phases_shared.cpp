// csrc/codegen/phases_shared.cpp: inner phases shared by the items of a GPU work-group: strided loops, then a tree in local
// memory.
#include "csrc/codegen/phases.h"
#include "csrc/support/error.h"

namespace ocl::codegen {

using ir::IndexExpr;
using ir::SymbolKind;
using schedule::Phase;

namespace {

constexpr int kBlockElements = 128;  // elements of one item into one accumulator

/// Elements that an item loads before it waits for the first; of bodies with few operations, as repeated ones take compile
/// time.
struct AtOnce {
  int elements;
  size_t most_ops;
};
constexpr AtOnce kAtOnce[] = {{8, 12}, {4, 64}};

}  // namespace

void Phases::shared(const Sharing& sharing) {
  sharing_ = sharing;
  width_ = 1;
  run(&Phases::inner_shared);
}

int Phases::shared_at_once(const Phase& phase, int64_t steps) const {
  size_t ops = 0;
  for (const ir::NodeId id : phase.nodes) {
    const ir::Node& node = body_.kernel().graph().nodes[static_cast<size_t>(id)];
    if (node.kind != ir::NodeKind::kMap && node.kind != ir::NodeKind::kReduce) return 1;
    ops += node.body.ops.size();
  }
  for (const auto& [elements, most_ops] : kAtOnce)
    if (steps >= 2 * elements && ops <= most_ops) return elements;
  return 1;
}

void Phases::inner_shared(const Phase& phase) {
  begin(phase);
  const IndexExpr total = ir::simplify(ir::product(group_.reduce_sizes), body_.ranges());
  const std::string type = flat_type(body_, total), end = body_.index(total);
  const int stride = sharing_.items;
  const int64_t block_elements = int64_t{kBlockElements} * stride;
  const bool blocks = wants_blocks(body_.ranges().of(total).high > block_elements);
  const std::vector<Carried> carried = fresh(), part = blocks ? fresh_block() : carried;
  declare(body_.writer(), carried, 1);

  // A single loop strides itself; several are taken from a flat index.
  const bool flat = group_.reduce_sizes.size() > 1;
  const std::string name = flat ? body_.kernel().fresh("flat") : "r0", step_type = flat ? type : body_.kernel().index_type();
  Writer unflatten;
  if (flat)
    body_.push(
        write_unflatten(body_, unflatten, name, type, group_.reduce_sizes, group_.reduce_sizes.size(), SymbolKind::kReduce));
  else
    body_.push({{{SymbolKind::kReduce, 0}, name}});
  elements(phase, part, blocks);
  const Writer inside = body_.pop();

  Writer& w = body_.writer();
  if (!sharing_.live.empty()) w.open("if ($s)", sharing_.live);
  std::string from = sharing_.lane, to = end;
  if (blocks) {
    from = body_.kernel().fresh("block");
    to = body_.kernel().fresh("end");
    w.open("for ($s $s = $s; $s < $s; $s += $d)", step_type, from, sharing_.lane, from, end, from, block_elements);
    w.line("const $s $s = min($s + $d, ($s)($s));", step_type, to, from, block_elements, step_type, end);
    declare_block(w, carried, part, 1);
  }
  const int at_once = shared_at_once(phase, body_.ranges().of(total).high / stride);
  if (at_once == 1) {
    w.open("for ($s $s = $s; $s < $s; $s += $d)", step_type, name, from, name, to, name, stride);
  } else {
    // Several elements at a time, their loads before all stores, which may, for all the compiler knows, change what is loaded.
    w.open("");
    w.line("$s $s = $s;", step_type, name, from);
    Writer several;
    std::vector<Slot> slots(static_cast<size_t>(at_once));
    for (int k = 0; k < at_once; ++k) {
      const std::string at = k == 0 ? name : format("($s + $d)", {name, int64_t{k} * stride});
      if (flat)
        slots[static_cast<size_t>(k)].names =
            write_unflatten(body_, several, at, type, group_.reduce_sizes, group_.reduce_sizes.size(), SymbolKind::kReduce,
                            "_" + std::to_string(k));
      else
        slots[static_cast<size_t>(k)].names = {{{SymbolKind::kReduce, 0}, at}};
    }
    body_.push({});
    bool stores = false;
    each_slot(slots, true, [&](const Slot&) {
      values(phase);
      stores = stores || body_.has_stores();
    });
    each_slot(slots, true, [&](const Slot&) {
      for (size_t i = 0; i < reductions_.size(); ++i)
        blocks ? reductions_[i].step_block(part[i]) : reductions_[i].step(part[i]);
    });
    if (stores) each_slot(slots, false, [&](const Slot&) { body_.flush_stores(); });
    several.append(body_.pop());
    w.open("for (; $s < $s - $d; $s += $d)", name, to, int64_t{at_once - 1} * stride, name, int64_t{at_once} * stride);
    w.append(several);
    w.close();
    w.open("for (; $s < $s; $s += $d)", name, to, name, stride);
  }
  w.append(unflatten);
  w.append(inside);
  w.close();
  if (at_once > 1) w.close();
  if (blocks) {
    merge_block(w, carried, part, 1);
    w.close();
  }
  if (!sharing_.live.empty()) w.close();
  if (reductions_.empty()) return;
  if (stride > 1) write_tree(carried);
  for (size_t i = 0; i < reductions_.size(); ++i) reductions_[i].finish(carried[i], 1, level());
}

/// Merges the accumulators of the items that share an outer element; every one of them gets the result.
void Phases::write_tree(const std::vector<Carried>& carried) {
  const int items = sharing_.items * sharing_.rows, apart = sharing_.column ? sharing_.rows : 1;
  Writer& w = body_.writer();
  std::vector<Carried> slots;
  std::map<ir::DType, int> used;
  for (size_t i = 0; i < reductions_.size(); ++i) {
    slots.emplace_back();
    for (size_t k = 0; k < reductions_[i].count(); ++k) {
      const ir::DType dtype = reductions_[i].dtype(k) == ir::DType::kBool ? ir::DType::kI32 : reductions_[i].dtype(k);
      slots[i].push_back(body_.kernel().local_array({dtype, 1}, used[dtype]++, items));
    }
  }
  const auto each = [&](const char* line, const std::string& extra) {
    for (size_t i = 0; i < reductions_.size(); ++i)
      for (size_t k = 0; k < slots[i].size(); ++k) {
        if (std::string(line) == "store")
          w.line("$s[item] = $s;", slots[i][k], carried[i][k]);
        else
          w.line("$s = $s[$s];", carried[i][k], slots[i][k], extra);
      }
  };
  each("store", "");
  w.line("barrier(CLK_LOCAL_MEM_FENCE);  // the accumulators of all items are in place");
  w.open("for (int step = $d; step > 0; step /= 2)", sharing_.items / 2);
  w.open("if ($s < step)", sharing_.lane);
  for (size_t i = 0; i < reductions_.size(); ++i) {
    Carried other;
    for (const std::string& slot : slots[i])
      other.push_back(slot + "[item + step" + (apart > 1 ? " * " + std::to_string(apart) : "") + "]");
    reductions_[i].merge(w, carried[i], other, 1);
  }
  each("store", "");
  w.close();
  w.line("barrier(CLK_LOCAL_MEM_FENCE);  // this round is complete before the next reads it");
  w.close();
  const std::string first = sharing_.column      ? "item % " + std::to_string(apart)
                            : sharing_.rows == 1 ? "0"
                                                 : "item - " + sharing_.lane;
  each("load", first);
  w.line("barrier(CLK_LOCAL_MEM_FENCE);  // everyone has the result before the arrays are used again");
}

}  // namespace ocl::codegen
