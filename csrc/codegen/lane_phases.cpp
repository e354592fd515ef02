// csrc/codegen/lane_phases.cpp: inner phases with vector lanes along the last reduction loop (rows on CPUs).
//
//   a0 (W lanes)              the sum of the blocks of the vector loop; each block is summed in a1 (W lanes)
//   a2 (W/2 or fewer), ...    the last elements of the row, in vectors of half the width, a quarter, ...; one by one if
//                             their number is unknown
//   result                    the lanes of a0 are merged pairwise, then merged with the lanes of a2, ...
#include "csrc/codegen/lane_phases.h"

#include "csrc/codegen/same_value.h"

namespace ocl::codegen {

using schedule::Phase;

namespace {

constexpr int kBlockSteps = 64;   // Vector steps that go into one accumulator of a block.
constexpr int64_t kArray = 8192;  // Largest number of elements in a work-item's private array.
// Two passes read a row twice. Up to this many elements, the second read costs no more than a running softmax.
constexpr int64_t kNearRow = 1 << 14;
// The same limit if later phases compute the exponentials anyway, so that two passes save more.
constexpr int64_t kCachedRow = 1 << 18;
constexpr size_t kCheapOps = 8;  // With more ops per element, computing the elements twice is too slow.

}  // namespace

void LanePhases::print_inner(const Phase& phase) {
  const IndexExpr& last = group_.reduce_sizes.back();
  if (width_ == 1 || (last.is_const() && last.constant() < width_)) {
    SequentialPhases::print_inner(phase);
    return;
  }
  PhaseReductions reductions(body_, phase);
  if (takes_softmax_passes(phase, reductions)) {
    print_softmax(phase, reductions[0]);
    return;
  }
  reductions.finish(print_row(reductions), 1);
}

/// Returns the widths of the vectors for the elements after the last whole vector of a row.
std::vector<int> LanePhases::tail_widths() const {
  const IndexExpr& last = group_.reduce_sizes.back();
  if (body_.ranges().known_divides(width_, last)) return {};
  if (!last.is_const()) return {1};
  std::vector<int> result;
  for (int width = width_ / 2; width >= 1; width /= 2)
    if (last.constant() & width) result.push_back(width);
  return result;
}

/// Prints the loops over a row. Returns the scalar results of its reductions.
LanePhases::Sets LanePhases::print_row(PhaseReductions& reductions) {
  const bool blocks =
      reductions.wants_blocks(body_.ranges().of(ir::product(group_.reduce_sizes)).high > int64_t{width_} * kBlockSteps);
  const std::vector<int> widths = tail_widths();
  RowSets sets;
  sets.whole = reductions.names();
  sets.block = blocks ? reductions.block_names() : sets.whole;
  reductions.declare(body_.writer(), sets.whole, width_);
  for (const int width : widths) {
    sets.tail.push_back(reductions.names());
    reductions.declare(body_.writer(), sets.tail.back(), width);
  }
  print_row_loop(reductions, sets, 0);
  Sets results;
  for (size_t i = 0; i < reductions.size(); ++i) {
    results.push_back(reductions[i].across_lanes(body_.writer(), sets.whole[i], width_));
    for (size_t k = 0; k < widths.size(); ++k) {
      const Accumulators::Carried& tail = sets.tail[k][i];
      const Accumulators::Carried scalar = widths[k] > 1 ? reductions[i].across_lanes(body_.writer(), tail, widths[k]) : tail;
      reductions[i].merge(body_.writer(), results[i], scalar, 1);
    }
  }
  return results;
}

void LanePhases::print_row_loop(PhaseReductions& reductions, const RowSets& sets, size_t depth) {
  if (depth + 1 == group_.reduce_sizes.size()) {
    print_last_loop(reductions, sets);
    return;
  }
  const std::string name = "r" + std::to_string(depth), end = body_.index(group_.reduce_sizes[depth]);
  body_.push({{{SymbolKind::kReduce, static_cast<int>(depth)}, name}});
  print_row_loop(reductions, sets, depth + 1);
  const Writer inside = body_.pop();
  Writer& w = body_.writer();
  w.open("for ($s $s = 0; $s < $s; ++$s)", body_.kernel().index_type(), name, name, end, name);
  w.append(inside);
  w.close();
}

void LanePhases::print_last_loop(PhaseReductions& reductions, const RowSets& sets) {
  const size_t depth = group_.reduce_sizes.size() - 1;
  const ir::Symbol symbol{SymbolKind::kReduce, static_cast<int>(depth)};
  const IndexExpr& size = group_.reduce_sizes[depth];
  const std::string name = "r" + std::to_string(depth), end = body_.index(size);
  const auto step = [&](const std::string& position, int width, const Sets& carried, bool in_block) {
    body_.push({{symbol, position}});
    body_.set_lane(symbol, width);
    reductions.step_nodes(carried, in_block);
    return body_.pop();
  };
  const Writer vector = step(name, width_, sets.block, sets.block != sets.whole);
  const std::vector<int> widths = tail_widths();
  const bool counted = size.is_const(), has_tail_loop = !widths.empty() && !counted;
  std::vector<Writer> tail;
  int64_t position = counted ? size.constant() / width_ * width_ : 0;
  for (size_t k = 0; k < widths.size(); ++k) {
    tail.push_back(step(counted ? std::to_string(position) : name, widths[k], sets.tail[k], false));
    position += widths[k];
  }

  Writer& w = body_.writer();
  if (has_tail_loop) {
    w.open("");
    w.line("$s $s = 0;", body_.kernel().index_type(), name);
  }
  print_vector_loop(reductions, sets, has_tail_loop, vector);
  if (counted) {
    for (const Writer& one : tail) {
      w.open("");
      w.append(one);
      w.close();
    }
  } else if (has_tail_loop) {
    w.line(kStaysScalar);
    w.open("for (; $s < $s; ++$s)", name, end, name);
    w.append(tail[0]);
    w.close();
    w.close();
  }
}

/// Prints the last loop in steps of the full width. `declared`: its variable is already declared and 0.
void LanePhases::print_vector_loop(PhaseReductions& reductions, const RowSets& sets, bool declared, const Writer& vector) {
  const size_t depth = group_.reduce_sizes.size() - 1;
  const std::string name = "r" + std::to_string(depth), type = body_.kernel().index_type();
  const std::string end = body_.index(group_.reduce_sizes[depth]);
  const std::string start = declared ? "; " : type + " " + name + " = 0; ";
  Writer& w = body_.writer();
  if (sets.block == sets.whole) {
    w.open("for ($s$s + $d <= $s; $s += $d)", start, name, width_, end, name, width_);
    w.append(vector);
    w.close();
    return;
  }
  const std::string last = body_.kernel().fresh("end");
  w.open("for ($s$s + $d <= $s;)", start, name, width_, end);
  w.line("const $s $s = min($s + $s, ($s)($s - $d));", type, last, name, reductions.block_text(name, kBlockSteps * width_),
         type, end, width_ - 1);
  reductions.declare_block(w, sets.whole, sets.block, width_);
  w.open("for (; $s < $s; $s += $d)", name, last, name, width_);
  w.append(vector);
  w.close();
  reductions.merge_block(w, sets.whole, sets.block, width_);
  w.close();
}

/// Returns the ops of later inner phases that are equal to exp(element - row maximum) of the phase's softmax.
std::vector<LanePhases::RecomputedExp> LanePhases::recomputed_exps(const Phase& phase) const {
  const ir::Graph& graph = body_.kernel().graph();
  const ir::Node& softmax = graph.nodes[phase.nodes[0]];
  std::vector<RecomputedExp> result;
  for (const Phase* later = &phase + 1; later != group_.phases.data() + group_.phases.size(); ++later)
    for (const ir::NodeId id : later->nodes)
      for (const int op : exponentials(graph, softmax, graph.nodes[id]))
        if (later->inner) result.push_back({later, id, op});
  return result;
}

/// True if two passes are cheaper than a running softmax. A row that comes from memory should be read only once, unless
/// later phases use the exponentials.
bool LanePhases::takes_softmax_passes(const Phase& phase, const PhaseReductions& reductions) const {
  if (reductions.size() != 1 || !reductions[0].is_softmax() || phase.nodes.size() != 1) return false;
  const ir::Node& node = body_.kernel().graph().nodes[phase.nodes[0]];
  const IndexExpr length = ir::product(group_.reduce_sizes);
  const int64_t longest = recomputed_exps(phase).empty() ? kNearRow : kCachedRow;
  return fits_array() || (node.body.ops.size() <= kCheapOps && !(length.is_const() && length.constant() > longest));
}

bool LanePhases::fits_array() const {
  return group_.reduce_sizes.size() == 1 && group_.reduce_sizes[0].is_const() && group_.reduce_sizes[0].constant() <= kArray;
}

/// Returns memory for the exponentials of a row: the elements where the last phase that uses them stores its result, or
/// a private array.
std::optional<BodyPrinter::RowStorage> LanePhases::storage_for(const std::vector<RecomputedExp>& exps, ir::DType dtype) {
  const ir::Symbol last{SymbolKind::kReduce, static_cast<int>(group_.reduce_sizes.size()) - 1};
  if (!exps.empty())
    for (const ir::NodeId node : exps.back().phase->nodes)
      for (const ir::Store& store : body_.kernel().graph().nodes[node].stores)
        if (body_.can_hold_row(store, last, dtype) && used_as_storage_.insert(store.buffer).second)
          return BodyPrinter::RowStorage{"", node, store};
  if (!fits_array()) return std::nullopt;
  const std::string array = body_.kernel().fresh("row");
  body_.writer().line("$t $s[$d] __attribute__((aligned(64)));", Type{dtype, 1}, array, group_.reduce_sizes[0].constant());
  return BodyPrinter::RowStorage{array};
}

/// Prints the row maximum, then the sum of the exponentials. If there is memory for the exponentials, later phases load
/// them.
void LanePhases::print_softmax(const Phase& phase, const Accumulators& softmax) {
  const ir::Node& node = body_.kernel().graph().nodes[softmax.node()];
  const ir::DType dtype = softmax.dtype(0);
  const std::vector<RecomputedExp> exps = recomputed_exps(phase);
  const bool computed = node.body.ops[node.reduced[0]].code != ir::OpCode::kLoad;
  std::optional<BodyPrinter::RowStorage> storage;
  if (computed || !exps.empty()) storage = storage_for(exps, dtype);
  Accumulators::Map save_exp, save_element, load_element;
  if (storage)
    save_exp = [&](const std::string& value, int) {
      body_.writer().line("$s", body_.store_text_of(*storage, dtype, value));
      return value;
    };
  if (storage && computed) {
    save_element = save_exp;
    load_element = [&](const std::string&, int width) {
      const std::string name = body_.kernel().fresh("e");
      body_.writer().line("const $t $s = $s;", Type{dtype, width}, name, body_.load_text_of(*storage, dtype));
      return name;
    };
  }
  if (exps.empty()) save_exp = nullptr;
  const auto print_pass = [&](Accumulators pass) {
    PhaseReductions reductions(body_, phase, std::move(pass));
    return print_row(reductions)[0][0];
  };
  const std::string row_max = print_pass(softmax.row_max_pass(save_element));
  const std::string sum = print_pass(softmax.exp_sum_pass(row_max, load_element, save_exp));
  PhaseReductions whole(body_, phase, softmax);
  whole.finish({softmax.after_softmax_passes(body_.writer(), row_max, sum)}, 1);
  if (storage)
    for (const RecomputedExp& exp : exps) body_.cache_op(exp.node, exp.op, *storage);
}

}  // namespace ocl::codegen
