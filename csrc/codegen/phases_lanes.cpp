// csrc/codegen/phases_lanes.cpp: inner phases with vector lanes along the last reduction loop (rows on CPUs).
//
//   a0 (W lanes)  <- blocks of the vector loop, each summed in a1 (W lanes)
//   a2 (W/2 or fewer lanes), ...  <- the elements left over, in vectors of half the width, a quarter, ... (one by one if their
//   number
//                                    is not known)
//   result = lanes of a0 merged pairwise, then merged with those of a2, ...
#include "csrc/codegen/phases.h"
#include "csrc/codegen/same_value.h"
#include "csrc/support/error.h"

namespace ocl::codegen {

using ir::IndexExpr;
using ir::SymbolKind;
using schedule::Phase;

namespace {

constexpr int kBlockSteps = 64;          // vector steps into one accumulator
constexpr int64_t kArray = 8192;         // elements of an item's private array
constexpr int64_t kNearRow = 1 << 14;    // elements that are read again as fast as computed
constexpr int64_t kCachedRow = 1 << 18;  // elements that are read again sooner than computed
constexpr size_t kAgain = 8;             // ops of an element that are

}  // namespace

void Phases::lanes(int width) {
  width_ = width;
  run(&Phases::inner_lanes);
}

void Phases::inner_lanes(const Phase& phase) {
  const IndexExpr& last = group_.reduce_sizes.back();
  if (width_ == 1 || (last.is_const() && last.constant() < width_)) {
    inner_serial(phase);
    return;
  }
  begin(phase);
  if (takes_softmax_passes(phase)) {
    softmax_lanes(phase);
    return;
  }
  const std::vector<Carried> results = merged_lanes(lanes_of_row(phase));
  for (size_t i = 0; i < reductions_.size(); ++i) reductions_[i].finish(results[i], 1, level());
}

/// Widths of the steps over what is left of a row.
std::vector<int> Phases::rest_widths() const {
  const IndexExpr& last = group_.reduce_sizes.back();
  if (body_.ranges().known_divides(width_, last)) return {};
  if (!last.is_const()) return {1};
  std::vector<int> result;
  for (int width = width_ / 2; width >= 1; width /= 2)
    if (last.constant() & width) result.push_back(width);
  return result;
}

/// The loops over a row, into fresh accumulators of `reductions_`.
Phases::Lanes Phases::lanes_of_row(const Phase& phase) {
  const bool blocks = wants_blocks(body_.ranges().of(ir::product(group_.reduce_sizes)).high > int64_t{width_} * kBlockSteps);
  Lanes lanes;
  lanes.whole = fresh();
  lanes.part = blocks ? fresh_block() : lanes.whole;
  declare(body_.writer(), lanes.whole, width_);
  for (const int width : rest_widths()) {
    lanes.rest.push_back(fresh());
    declare(body_.writer(), lanes.rest.back(), width);
  }
  lanes_loop(phase, 0, lanes);
  return lanes;
}

std::vector<Phases::Carried> Phases::merged_lanes(const Lanes& lanes) {
  std::vector<Carried> results;
  const std::vector<int> widths = rest_widths();
  for (size_t i = 0; i < reductions_.size(); ++i) {
    results.push_back(reductions_[i].across_lanes(body_.writer(), lanes.whole[i], width_));
    for (size_t k = 0; k < widths.size(); ++k) {
      const Carried& rest = lanes.rest[k][i];
      const Carried whole = widths[k] > 1 ? reductions_[i].across_lanes(body_.writer(), rest, widths[k]) : rest;
      reductions_[i].merge(body_.writer(), results[i], whole, 1);
    }
  }
  return results;
}

/// The ops of later phases that are e^(element - largest) of the phase's softmax.
std::vector<Phases::Again> Phases::computed_again(const Phase& phase) const {
  const ir::Graph& graph = body_.kernel().graph();
  const ir::Node& softmax = graph.nodes[static_cast<size_t>(phase.nodes[0])];
  std::vector<Again> again;
  for (const Phase* later = &phase + 1; later != group_.phases.data() + group_.phases.size(); ++later)
    for (const ir::NodeId id : later->nodes)
      for (const int op : exponentials(graph, softmax, graph.nodes[static_cast<size_t>(id)]))
        if (later->inner) again.push_back({later, id, op});
  return again;
}

/// Whether two passes are cheaper than the running sum: a row that comes from memory is best read once, unless the exponentials
/// are of use.
bool Phases::takes_softmax_passes(const Phase& phase) const {
  if (reductions_.size() != 1 || !reductions_[0].is_softmax() || phase.nodes.size() != 1) return false;
  const ir::Node& node = body_.kernel().graph().nodes[static_cast<size_t>(phase.nodes[0])];
  const IndexExpr length = ir::product(group_.reduce_sizes);
  const int64_t most = computed_again(phase).empty() ? kNearRow : kCachedRow;
  return fits_array() || (node.body.ops.size() <= kAgain && !(length.is_const() && length.constant() > most));
}

bool Phases::fits_array() const {
  return group_.reduce_sizes.size() == 1 && group_.reduce_sizes[0].is_const() && group_.reduce_sizes[0].constant() <= kArray;
}

/// Where the exponentials of a row stay: where the last phase that needs them stores its result, or in an array.
std::optional<BodyPrinter::Room> Phases::room_for(const std::vector<Again>& again, ir::DType dtype) {
  const ir::Symbol last{SymbolKind::kReduce, static_cast<int>(group_.reduce_sizes.size()) - 1};
  if (!again.empty())
    for (const ir::NodeId node : again.back().phase->nodes)
      for (const ir::Store& store : body_.kernel().graph().nodes[static_cast<size_t>(node)].stores)
        if (body_.is_room(store, last, dtype) && rooms_.insert(store.buffer).second) return BodyPrinter::Room{"", node, store};
  if (!fits_array()) return std::nullopt;
  const std::string array = body_.kernel().fresh("row");
  body_.writer().line("$t $s[$d] __attribute__((aligned(64)));", Type{dtype, 1}, array, group_.reduce_sizes[0].constant());
  return BodyPrinter::Room{array};
}

void Phases::softmax_lanes(const Phase& phase) {
  const Accumulators softmax = reductions_[0];
  const ir::Graph& graph = body_.kernel().graph();
  const ir::Node& node = graph.nodes[static_cast<size_t>(softmax.node())];
  const ir::DType dtype = softmax.dtype(0);
  const std::vector<Again> again = computed_again(phase);
  const bool computed = node.body.ops[static_cast<size_t>(node.reduced[0])].code != ir::OpCode::kLoad;
  std::optional<BodyPrinter::Room> room;
  if (computed || !again.empty()) room = room_for(again, dtype);
  Accumulators::Map keep, keep_element, load_element;
  if (room)
    keep = [&](const std::string& value, int) {
      body_.writer().line("$s", body_.store_room(*room, dtype, value));
      return value;
    };
  if (room && computed) {
    keep_element = keep;
    load_element = [&](const std::string&, int width) {
      const std::string name = body_.kernel().fresh("e");
      body_.writer().line("const $t $s = $s;", Type{dtype, width}, name, body_.load_room(*room, dtype));
      return name;
    };
  }
  if (again.empty()) keep = nullptr;
  const auto pass = [&](Accumulators accumulators) {
    reductions_.clear();
    reductions_.push_back(std::move(accumulators));
    return merged_lanes(lanes_of_row(phase))[0][0];
  };
  const std::string largest = pass(softmax.largest_pass(keep_element));
  const std::string sum = pass(softmax.exponential_pass(largest, load_element, keep));
  reductions_.clear();
  reductions_.push_back(softmax);
  reductions_[0].finish(softmax.after_softmax_passes(body_.writer(), largest, sum), 1, level());
  if (room)
    for (const Again& one : again) body_.keep(one.node, one.op, *room);
}

void Phases::lanes_loop(const Phase& phase, size_t depth, const Lanes& lanes) {
  const ir::Symbol symbol{SymbolKind::kReduce, static_cast<int>(depth)};
  const std::string name = "r" + std::to_string(depth), type = body_.kernel().index_type();
  const IndexExpr& size = group_.reduce_sizes[depth];
  const std::string end = body_.index(size);
  if (depth + 1 < group_.reduce_sizes.size()) {
    body_.push({{symbol, name}});
    lanes_loop(phase, depth + 1, lanes);
    const Writer inside = body_.pop();
    Writer& w = body_.writer();
    w.open("for ($s $s = 0; $s < $s; ++$s)", type, name, name, end, name);
    w.append(inside);
    w.close();
    return;
  }

  const bool blocks = lanes.part != lanes.whole;
  const auto step = [&](const std::string& place, int width, const std::vector<Carried>& carried, bool in_block) {
    body_.push({{symbol, place}});
    body_.set_lane(symbol, width);
    elements(phase, carried, in_block);
    return body_.pop();
  };
  const Writer vector = step(name, width_, lanes.part, blocks);
  const std::vector<int> widths = rest_widths();
  const bool counted = size.is_const(), has_tail = !widths.empty() && !counted;
  std::vector<Writer> rest;
  int64_t place = counted ? size.constant() / width_ * width_ : 0;
  for (size_t k = 0; k < widths.size(); ++k) {
    rest.push_back(step(counted ? std::to_string(place) : name, widths[k], lanes.rest[k], false));
    place += widths[k];
  }

  Writer& w = body_.writer();
  if (has_tail) {
    w.open("");
    w.line("$s $s = 0;", type, name);
  }
  const std::string start = has_tail ? "; " : type + " " + name + " = 0; ";
  if (!blocks) {
    w.open("for ($s$s + $d <= $s; $s += $d)", start, name, width_, end, name, width_);
    w.append(vector);
    w.close();
  } else {
    const std::string last = body_.kernel().fresh("end");
    w.open("for ($s$s + $d <= $s;)", start, name, width_, end);
    w.line("const $s $s = min($s + $s, ($s)($s - $d));", type, last, name, block_text(name, kBlockSteps * width_), type, end,
           width_ - 1);
    declare_block(w, lanes.whole, lanes.part, width_);
    w.open("for (; $s < $s; $s += $d)", name, last, name, width_);
    w.append(vector);
    w.close();
    merge_block(w, lanes.whole, lanes.part, width_);
    w.close();
  }
  if (counted) {
    for (const Writer& one : rest) {
      w.open("");
      w.append(one);
      w.close();
    }
  } else if (has_tail) {
    w.line(kStaysScalar);
    w.open("for (; $s < $s; ++$s)", name, end, name);
    w.append(rest[0]);
    w.close();
    w.close();
  }
}

}  // namespace ocl::codegen
