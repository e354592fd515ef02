// csrc/codegen/phases_lanes.cpp: inner phases with vector lanes along the last reduction loop (rows on CPUs).
//
//   a0 (W lanes)  <- blocks of the vector loop, each summed in a1 (W lanes)       a2 (scalar) <- the elements left over
//   result = lanes of a0 merged pairwise, then merged with a2
#include "csrc/codegen/phases.h"
#include "csrc/support/error.h"

namespace ocl::codegen {

using ir::IndexExpr;
using ir::SymbolKind;
using schedule::Phase;

namespace {

constexpr int kBlockSteps = 64;  // vector steps into one accumulator

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
  const bool has_tail = !body_.ranges().known_divides(width_, last);
  const bool blocks = wants_blocks(body_.ranges().of(ir::product(group_.reduce_sizes)).high > int64_t{width_} * kBlockSteps);
  const std::vector<Carried> carried = fresh(), part = blocks ? fresh_block() : carried, tail = has_tail ? fresh() : carried;
  declare(body_.writer(), carried, width_);
  if (has_tail) declare(body_.writer(), tail, 1);
  lanes_loop(phase, 0, carried, part, tail);
  for (size_t i = 0; i < reductions_.size(); ++i) {
    const Carried whole = reductions_[i].across_lanes(body_.writer(), carried[i], width_);
    if (has_tail) reductions_[i].merge(body_.writer(), whole, tail[i], 1);
    reductions_[i].finish(whole, 1, level());
  }
}

void Phases::lanes_loop(const Phase& phase, size_t depth, const std::vector<Carried>& carried, const std::vector<Carried>& part,
                        const std::vector<Carried>& tail) {
  const ir::Symbol symbol{SymbolKind::kReduce, static_cast<int>(depth)};
  const std::string name = "r" + std::to_string(depth), type = body_.kernel().index_type();
  const IndexExpr& size = group_.reduce_sizes[depth];
  const std::string end = body_.index(size);
  if (depth + 1 < group_.reduce_sizes.size()) {
    body_.push({{symbol, name}});
    lanes_loop(phase, depth + 1, carried, part, tail);
    const Writer inside = body_.pop();
    Writer& w = body_.writer();
    w.open("for ($s $s = 0; $s < $s; ++$s)", type, name, name, end, name);
    w.append(inside);
    w.close();
    return;
  }

  body_.push({{symbol, name}});
  body_.set_lane(symbol, width_);
  elements(phase, part, part != carried);
  const Writer vector = body_.pop();
  Writer scalar;
  const bool has_tail = !body_.ranges().known_divides(width_, size);
  if (has_tail) {
    body_.push({{symbol, name}});
    body_.set_lane(symbol, 1);
    elements(phase, tail, false);
    scalar = body_.pop();
  }

  Writer& w = body_.writer();
  if (has_tail) {
    w.open("");
    w.line("$s $s = 0;", type, name);
  }
  const std::string start = has_tail ? "; " : type + " " + name + " = 0; ";
  if (part == carried) {
    w.open("for ($s$s + $d <= $s; $s += $d)", start, name, width_, end, name, width_);
    w.append(vector);
    w.close();
  } else {
    const std::string last = body_.kernel().fresh("end");
    w.open("for ($s$s + $d <= $s;)", start, name, width_, end);
    w.line("const $s $s = min($s + $s, ($s)($s - $d));", type, last, name, block_text(name, kBlockSteps * width_), type, end,
           width_ - 1);
    declare_block(w, carried, part, width_);
    w.open("for (; $s < $s; $s += $d)", name, last, name, width_);
    w.append(vector);
    w.close();
    merge_block(w, carried, part, width_);
    w.close();
  }
  if (has_tail) {
    w.line(kFewTrips);
    w.open("for (; $s < $s; ++$s)", name, end, name);
    w.append(scalar);
    w.close();
    w.close();
  }
}

}  // namespace ocl::codegen
