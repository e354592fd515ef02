// csrc/codegen/sequential_phases.cpp: prints loops over r* (in blocks for long sums), scans, and several vectors side
// by side.
#include "csrc/codegen/sequential_phases.h"

#include <algorithm>

#include "csrc/support/error.h"

namespace ocl::codegen {

using schedule::Phase;

namespace {

constexpr int64_t kUnrollLimit = 16;  // Loops of up to this length are unrolled.
// Loops whose bodies have more ops are not unrolled, because that would compile slowly.
constexpr size_t kUnrollOps = 48;
// Nested loops whose text would grow beyond this are not unrolled either. A compiler needs minutes for hundreds of gathers.
constexpr size_t kUnrollText = 1 << 15;
constexpr int kScanElements = 8;  // Elements that a scan on a GPU loads at once.
constexpr int kVectors = 4;       // Vectors side by side, if each has many accumulators.
// Vectors side by side, if there is a single sum. Its accumulators and those of its blocks then fill the registers.
constexpr int kMaxVectors = 16;
// Most ops of a body that is repeated for kVectors vectors. More would compile slowly and need too many registers.
constexpr size_t kVectorOps = 24;

}  // namespace

void SequentialPhases::print_inner(const Phase& phase) {
  PhaseReductions reductions(body_, phase);
  const int width = vector_width();
  const Loops loops = print_loops(reductions, 1);
  if (!reductions.scans()) reductions.finish(loops.totals[0], width);
}

SequentialPhases::Loops SequentialPhases::print_loops(PhaseReductions& reductions, size_t vectors) {
  Loops loops{reductions, {}, {}};
  choose_blocks(loops);
  for (size_t k = 0; k < vectors; ++k) {
    loops.totals.push_back(reductions.names());
    loops.blocks.push_back(loops.block ? reductions.block_names() : loops.totals.back());
    reductions.declare(body_.writer(), loops.totals.back(), vector_width());
  }
  print_loop(loops, 0);
  return loops;
}

/// Chooses the innermost loop that has enough elements for a block, together with the loops inside it.
void SequentialPhases::choose_blocks(Loops& loops) const {
  const ir::Shape& sizes = group_.reduce_sizes;
  OCL_ASSERT(!sizes.empty(), "an inner phase needs reduction loops");
  const int64_t total = body_.ranges().of(ir::product(sizes)).high;
  if (total == 0) return;
  const int64_t length = loops.reductions.block_length(total);
  if (loops.reductions.scans() || !loops.reductions.wants_blocks(total > std::min(kLongestBlock, 2 * length))) return;
  int64_t inside = 1;
  for (loops.block_loop = sizes.size() - 1; loops.block_loop > 0; --loops.block_loop) {
    const IndexExpr& size = sizes[loops.block_loop];
    if (!size.is_const() || inside * size.constant() >= kLongestBlock) break;
    inside *= size.constant();
  }
  loops.block = std::max<int64_t>(1, length / inside);
}

void SequentialPhases::step(Loops& loops) { loops.reductions.step_nodes(loops.blocks[0], loops.block > 0); }

/// Prints the loop over r<depth> and the loops inside it.
void SequentialPhases::print_loop(Loops& loops, size_t depth) {
  if (depth == group_.reduce_sizes.size()) {
    step(loops);
    return;
  }
  const std::string name = format("r$d", {static_cast<int64_t>(depth)}), type = body_.kernel().index_type();
  body_.push({{{SymbolKind::kReduce, static_cast<int>(depth)}, name}});
  print_loop(loops, depth + 1);
  const Writer inside = body_.pop();
  const IndexExpr& size = group_.reduce_sizes[depth];
  const std::string end = body_.index(size);
  const bool innermost = depth + 1 == group_.reduce_sizes.size();
  if (innermost) loops.unrolled = inside.length();
  if (loops.block && depth == loops.block_loop) {
    print_block_loop(loops, name, end, inside);
    return;
  }
  const size_t ops = loops.reductions.op_count();
  if (loops.reductions.scans() && !body_.kernel().dialect().is_cpu && ops <= kUnrollOps &&
      body_.ranges().of(size).high >= 2 * kScanElements) {
    print_scan_loop(loops, name, end, inside);
    return;
  }
  Writer& w = body_.writer();
  const bool short_loop = size.is_const() && size.constant() <= kUnrollLimit && ops <= kUnrollOps;
  const size_t unrolled = short_loop ? loops.unrolled * static_cast<size_t>(size.constant()) : 0;
  if (short_loop && unrolled <= kUnrollText) {
    w.line("OCL_UNROLL");
    loops.unrolled = unrolled;
  } else if (stays_scalar_ && innermost) {
    w.line(kStaysScalar);
  }
  w.open("for ($s $s = 0; $s < $s; ++$s)", type, name, name, end, name);
  w.append(inside);
  w.close();
}

void SequentialPhases::print_block_loop(Loops& loops, const std::string& name, const std::string& end, const Writer& inside) {
  const std::string type = body_.kernel().index_type();
  const std::string first = body_.kernel().fresh("block"), last = body_.kernel().fresh("end");
  const std::string length = loops.reductions.block_text(first, loops.block);
  const int width = vector_width();
  Writer& w = body_.writer();
  // Intel's compiler 2026.22 drops a block if it unrolls the outer loop and the value does not depend on that loop. It
  // crashes if it vectorizes the inner loop with a load that has a stride and a function like pow. A sum of floats that
  // keeps its order gains little from either. Clang for AMD's GPUs unrolls all blocks of some kernels, which then have all
  // 256 registers and room for one wave.
  const bool is_cpu = body_.kernel().dialect().is_cpu;
  w.line(kNotUnrolled);
  w.open("for ($s $s = 0; $s < $s; $s += $s)", type, first, first, end, first, length);
  w.line("const $s $s = min($s + $s, ($s)($s));", type, last, first, length, type, end);
  for (size_t k = 0; k < loops.totals.size(); ++k) loops.reductions.declare_block(w, loops.totals[k], loops.blocks[k], width);
  if ((stays_scalar_ || is_cpu) && loops.block_loop + 1 == group_.reduce_sizes.size()) w.line(kStaysScalar);
  w.open("for ($s $s = $s; $s < $s; ++$s)", type, name, first, name, last, name);
  w.append(inside);
  w.close();
  for (size_t k = 0; k < loops.totals.size(); ++k) loops.reductions.merge_block(w, loops.totals[k], loops.blocks[k], width);
  w.close();
}

/// Prints the last loop of a Scan on a GPU. It loads several elements before it stores the first, because an item does
/// not execute loads ahead of earlier stores.
void SequentialPhases::print_scan_loop(Loops& loops, const std::string& name, const std::string& end, const Writer& single) {
  const ir::Symbol symbol{SymbolKind::kReduce, static_cast<int>(group_.reduce_sizes.size()) - 1};
  PhaseReductions& reductions = loops.reductions;
  const Sets& running = loops.totals[0];
  std::vector<Slot> slots(kScanElements);
  for (size_t k = 0; k < slots.size(); ++k)
    slots[k].names = {{symbol, k == 0 ? name : format("($s + $d)", {name, static_cast<int64_t>(k)})}};
  body_.push({});
  visit_slots(body_, slots, 1, true, [&](const Slot&) { reductions.compute_values(); });
  visit_slots(body_, slots, 1, true, [&](const Slot&) {
    for (size_t i = 0; i < reductions.size(); ++i) {
      // A copy for this element, because later steps change the running values.
      const Accumulators::Carried held = reductions[i].names();
      reductions[i].declare(body_.writer(), held, 1);
      Accumulators::copy(body_.writer(), held, running[i]);
      reductions[i].step_scan(held);
      Accumulators::copy(body_.writer(), running[i], held);
    }
  });
  visit_slots(body_, slots, 1, false, [&](const Slot&) { body_.flush_stores(); });
  const Writer several = body_.pop();
  Writer& w = body_.writer();
  w.open("");
  w.line("$s $s = 0;", body_.kernel().index_type(), name);
  w.open("for (; $s < $s - $d; $s += $d)", name, end, kScanElements - 1, name, kScanElements);
  w.append(several);
  w.close();
  w.open("for (; $s < $s; ++$s)", name, end, name);
  w.append(single);
  w.close();
  w.close();
}

void MultiVectorPhases::print_vector(size_t k, const std::function<void()>& print) {
  std::string name = name_;
  if (k > 0) name = format("($s + $d)", {name_, static_cast<int64_t>(k) * width_});
  body_.push({{lane_, name}});
  body_.set_lane(lane_, width_);
  print();
  const Writer text = body_.pop();
  body_.writer().append(text);
}

void MultiVectorPhases::step(Loops& loops) {
  for (size_t k = 0; k < loops.blocks.size(); ++k)
    print_vector(k, [&] { loops.reductions.step_nodes(loops.blocks[k], loops.block > 0); });
}

void MultiVectorPhases::print() {
  PhaseReductions reductions(body_, group_.phases[0]);
  const Loops loops = print_loops(reductions, static_cast<size_t>(vectors_));
  for (size_t k = 0; k < loops.totals.size(); ++k)
    print_vector(k, [&] {
      reductions.finish(loops.totals[k], width_);
      print_outer_phases();
    });
}

namespace {

/// True if a short reduction stores its results apart from each other, as in the last sum of a weight gradient, whose memory
/// has another order than the partial sums. Each lane is then a store of its own. They take as long as the loads, and 16
/// vectors of them took a compiler ten times as long as one.
bool scatters(BodyPrinter& body, const schedule::Group& group) {
  const ir::Symbol lane{SymbolKind::kLoop, static_cast<int>(group.sizes.size()) - 1};
  const IndexExpr length = ir::product(group.reduce_sizes);
  if (!length.is_const() || length.constant() > kUnrollLimit) return false;
  for (const Phase& phase : group.phases)
    for (const ir::NodeId id : phase.nodes)
      for (const ir::Store& store : body.kernel().graph().nodes[id].stores) {
        const auto affine = ir::affine_in(body.offset_of(store.buffer, store.index), lane);
        if (affine && !affine->coefficient.is_const(0) && !affine->coefficient.is_const(1)) return true;
      }
  return false;
}

}  // namespace

int vectors_per_step(BodyPrinter& body, const schedule::Group& group, int64_t rows, int64_t length, int width) {
  size_t ops = 0, inner = 0;
  int sums = 0;
  bool cheap = true;
  for (const Phase& phase : group.phases) {
    inner += phase.inner;
    for (const ir::NodeId id : phase.nodes) {
      const ir::Node& node = body.kernel().graph().nodes[id];
      if (node.kind != NodeKind::kMap && node.kind != NodeKind::kReduce) return 1;
      ops += node.body.ops.size();
      if (node.kind != NodeKind::kReduce) continue;
      ++sums;
      cheap = cheap && Accumulators(body, id).merges_cheaply();
    }
  }
  if (inner != 1 || !group.phases[0].inner || ops > kVectorOps) return 1;
  if (scatters(body, group)) return 1;
  int vectors = kVectors;
  const auto fits = [&](int n) {
    return sums == 1 && n <= kMaxVectors && static_cast<size_t>(n) * ops <= kVectors * kVectorOps &&
           length >= int64_t{n} * width && rows * length >= int64_t{n} * width * body.kernel().dialect().units;
  };
  while (cheap && fits(2 * vectors)) vectors *= 2;
  return vectors;
}

}  // namespace ocl::codegen
