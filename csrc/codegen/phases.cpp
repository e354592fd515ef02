// csrc/codegen/phases.cpp: outer phases, and inner phases that run on one lane or item at a time.
#include "csrc/codegen/phases.h"

#include <algorithm>
#include <functional>

#include "csrc/support/error.h"

namespace ocl::codegen {

using ir::IndexExpr;
using ir::NodeKind;
using ir::SymbolKind;
using schedule::Phase;

namespace {

constexpr int64_t kBlock = 64;        // elements that go into one accumulator before it is added to the next level
constexpr int64_t kShortBlock = 16;   // the shortest, where merging is cheap
constexpr int64_t kFirstBlock = 8;    // how many times shorter a short first block is
constexpr int64_t kUnrollLimit = 16;  // loops up to this length are unrolled,
constexpr size_t kUnrollOps = 48;     // unless their bodies are longer than this: compile time
constexpr int kScanAtOnce = 8;        // elements
constexpr int kColumns = 4;           // vectors side by side, if accumulators are many;
constexpr int kMostColumns = 16;      // of one sum alone, which with its blocks' takes the registers there are
constexpr size_t kColumnOps = 24;     // of bodies that are repeated for each of kColumns: compile time, registers

}  // namespace

const char* flat_type(const BodyPrinter& body, const IndexExpr& total) {
  return body.ranges().of(total).high < (int64_t{1} << 30) ? "int" : "long";
}

std::map<ir::Symbol, std::string> write_unflatten(BodyPrinter& body, Writer& writer, const std::string& flat,
                                                  const std::string& type, const ir::Shape& sizes, size_t count,
                                                  SymbolKind kind, const std::string& suffix) {
  std::map<ir::Symbol, std::string> names;
  const std::string prefix = kind == SymbolKind::kLoop ? "i" : "r", index = body.kernel().index_type();
  const std::string narrow = index == type ? "" : "(" + index + ")";
  std::string rest = flat;
  for (size_t k = count; k-- > 0;) {
    const std::string name = prefix + std::to_string(k) + suffix, size = body.index(sizes[k]);
    const std::string divisor = size.find(' ') == std::string::npos ? size : "(" + size + ")";
    names[{kind, static_cast<int>(k)}] = name;
    if (k == 0) {
      writer.line("const $s $s = $s$s;", index, name, narrow, rest);
      break;
    }
    writer.line("const $s $s = $s($s % $s);", index, name, narrow, rest, divisor);
    if (k == 1) {
      rest = "(" + rest + " / " + divisor + ")";
    } else {
      const std::string next = body.kernel().fresh("rest");
      writer.line("const $s $s = $s / $s;", type, next, rest, divisor);
      rest = next;
    }
  }
  return names;
}

void Phases::begin(const Phase& phase) {
  reductions_.clear();
  scans_ = false;
  for (const ir::NodeId node : phase.nodes)
    if (ir::is_reduction(body_.kernel().graph().nodes[static_cast<size_t>(node)])) reductions_.emplace_back(body_, node);
  for (const ir::NodeId node : phase.nodes)
    scans_ = scans_ || body_.kernel().graph().nodes[static_cast<size_t>(node)].kind == NodeKind::kScan;
}

std::vector<Phases::Carried> Phases::fresh() const {
  std::vector<Carried> result;
  for (const Accumulators& r : reductions_) result.push_back(r.names());
  return result;
}

void Phases::declare(Writer& writer, const std::vector<Carried>& carried, int width) const {
  for (size_t i = 0; i < reductions_.size(); ++i) reductions_[i].declare(writer, carried[i], width);
}

std::vector<Phases::Carried> Phases::fresh_block() const {
  std::vector<Carried> result;
  for (const Accumulators& r : reductions_) result.push_back(r.block_names());
  return result;
}

void Phases::declare_block(Writer& writer, const std::vector<Carried>& into, const std::vector<Carried>& block,
                           int width) const {
  for (size_t i = 0; i < reductions_.size(); ++i) reductions_[i].declare_block(writer, into[i], block[i], width);
}

/// Of two levels of sums those of about the root of the whole length have the smallest rounding error.
int64_t Phases::block_length(int64_t total) const {
  if (!std::all_of(reductions_.begin(), reductions_.end(), std::mem_fn(&Accumulators::merges_cheaply))) return kBlock;
  int64_t length = kShortBlock;
  while (length < kBlock && length * length < total) length *= 2;
  return length;
}

std::string Phases::block_text(const std::string& first, int64_t length) const {
  const int64_t start = std::max<int64_t>(1, length / kFirstBlock);
  const bool is_short =
      std::any_of(reductions_.begin(), reductions_.end(), std::mem_fn(&Accumulators::wants_short_first_block));
  return is_short && start < length ? format("($s == 0 ? $d : $d)", {first, start, length}) : std::to_string(length);
}

void Phases::merge_block(Writer& writer, const std::vector<Carried>& into, const std::vector<Carried>& from, int width) const {
  for (size_t i = 0; i < reductions_.size(); ++i) reductions_[i].merge_block(writer, into[i], from[i], width);
}

bool Phases::wants_blocks(bool is_long) const {
  return std::any_of(reductions_.begin(), reductions_.end(),
                     [&](const Accumulators& r) { return r.wants_short_blocks() || (is_long && r.wants_blocks()); });
}

int Phases::level() const { return body_.depth() - 1; }

void Phases::elements(const Phase& phase, const std::vector<Carried>& carried, bool in_block) {
  size_t reduction = 0;
  for (const ir::NodeId node : phase.nodes) {
    if (reductions_.size() > reduction && reductions_[reduction].node() == node) {
      if (scans_)
        reductions_[reduction].step_scan(carried[reduction]);
      else if (in_block)
        reductions_[reduction].step_block(carried[reduction]);
      else
        reductions_[reduction].step(carried[reduction]);
      ++reduction;
    } else {
      body_.run_map(node);
    }
  }
  body_.flush_stores();
}

void Phases::run(Printer inner) {
  for (const Phase& phase : group_.phases) {
    if (phase.inner) {
      (this->*inner)(phase);
    } else {
      for (const ir::NodeId node : phase.nodes) body_.run_map(node);
    }
    store_outer();
  }
}

/// What a phase left to store once per outer element.
void Phases::store_outer() {
  if (!body_.has_stores()) return;
  if (!sharing_.writes.empty()) body_.writer().open("if ($s)", sharing_.writes);
  body_.flush_stores();
  if (!sharing_.writes.empty()) body_.writer().close();
}

void Phases::serial() { run(&Phases::inner_serial); }

void Phases::inner_serial(const Phase& phase) {
  begin(phase);
  const int width = body_.lane_width();
  const auto [block_loop, block] = blocks();
  const std::vector<Carried> carried = fresh(), part = block ? fresh_block() : carried;
  declare(body_.writer(), carried, width);
  serial_loop(phase, 0, block_loop, block, {carried}, {part});
  if (scans_) return;
  for (size_t i = 0; i < reductions_.size(); ++i) reductions_[i].finish(carried[i], width, level());
}

int Phases::columns_at_once(int64_t rows, int64_t length, int width) const {
  size_t ops = 0, inner = 0;
  int sums = 0;
  bool cheap = true;
  for (const Phase& phase : group_.phases) {
    inner += phase.inner;
    for (const ir::NodeId id : phase.nodes) {
      const ir::Node& node = body_.kernel().graph().nodes[static_cast<size_t>(id)];
      if (node.kind != NodeKind::kMap && node.kind != NodeKind::kReduce) return 1;
      ops += node.body.ops.size();
      if (node.kind != NodeKind::kReduce) continue;
      ++sums;
      cheap = cheap && Accumulators(body_, id).merges_cheaply();
    }
  }
  if (inner != 1 || !group_.phases[0].inner || ops > kColumnOps) return 1;
  int count = kColumns;
  const auto fits = [&](int n) {
    return sums == 1 && n <= kMostColumns && static_cast<size_t>(n) * ops <= kColumns * kColumnOps &&
           length >= int64_t{n} * width && rows * length >= int64_t{n} * width * body_.kernel().dialect().units;
  };
  while (cheap && fits(2 * count)) count *= 2;
  return count;
}

void Phases::push_column(size_t k) {
  std::string name = lane_name_;
  if (k > 0) name = format("($s + $d)", {lane_name_, static_cast<int64_t>(k) * width_});
  body_.push({{lane_, name}});
  body_.set_lane(lane_, width_);
}

void Phases::columns(ir::Symbol lane, const std::string& name, int width, int count) {
  lane_ = lane;
  lane_name_ = name;
  width_ = width;
  begin(group_.phases[0]);
  const auto [block_loop, block] = blocks();
  std::vector<std::vector<Carried>> carried, part;
  for (int k = 0; k < count; ++k) {
    carried.push_back(fresh());
    part.push_back(block ? fresh_block() : carried.back());
    declare(body_.writer(), carried.back(), width);
  }
  serial_loop(group_.phases[0], 0, block_loop, block, carried, part);
  for (size_t k = 0; k < carried.size(); ++k) {
    push_column(k);
    for (size_t i = 0; i < reductions_.size(); ++i) reductions_[i].finish(carried[k][i], width, level());
    store_outer();
    for (size_t p = 1; p < group_.phases.size(); ++p) {
      for (const ir::NodeId node : group_.phases[p].nodes) body_.run_map(node);
      store_outer();
    }
    const Writer column = body_.pop();
    body_.writer().append(column);
  }
  lane_name_.clear();
}

/// The innermost loop that, with those inside it, is worth a block.
std::pair<size_t, int64_t> Phases::blocks() const {
  const size_t loops = group_.reduce_sizes.size();
  OCL_ASSERT(loops > 0, "an inner phase needs reduction loops");
  size_t block_loop = loops;
  int64_t block = 0;
  const int64_t total = body_.ranges().of(ir::product(group_.reduce_sizes)).high;
  const int64_t length = block_length(total);
  if (!scans_ && wants_blocks(total > std::min(kBlock, 2 * length))) {
    int64_t inside = 1;
    for (block_loop = loops - 1; block_loop > 0; --block_loop) {
      const IndexExpr& size = group_.reduce_sizes[block_loop];
      if (!size.is_const() || inside * size.constant() >= 64) break;
      inside *= size.constant();
    }
    block = std::max<int64_t>(1, length / inside);
  }
  return {block_loop, block};
}

void Phases::serial_loop(const Phase& phase, size_t depth, size_t block_loop, int64_t block,
                         const std::vector<std::vector<Carried>>& carried, const std::vector<std::vector<Carried>>& part) {
  if (depth == group_.reduce_sizes.size()) {
    if (lane_name_.empty()) {
      elements(phase, part[0], block > 0);
      return;
    }
    for (size_t k = 0; k < part.size(); ++k) {
      push_column(k);
      elements(phase, part[k], block > 0);
      const Writer column = body_.pop();
      body_.writer().append(column);
    }
    return;
  }
  const ir::Symbol symbol{SymbolKind::kReduce, static_cast<int>(depth)};
  const std::string name = format("r$d", {static_cast<int64_t>(depth)}), type = body_.kernel().index_type();
  body_.push({{symbol, name}});
  serial_loop(phase, depth + 1, block_loop, block, carried, part);
  const Writer inside = body_.pop();
  const IndexExpr& size = group_.reduce_sizes[depth];
  const std::string end = body_.index(size);
  Writer& w = body_.writer();
  const int width = lane_name_.empty() ? body_.lane_width() : width_;
  if (block && depth == block_loop) {
    const std::string first = body_.kernel().fresh("block"), last = body_.kernel().fresh("end");
    const std::string length = block_text(first, block);
    w.open("for ($s $s = 0; $s < $s; $s += $s)", type, first, first, end, first, length);
    w.line("const $s $s = min($s + $s, ($s)($s));", type, last, first, length, type, end);
    for (size_t k = 0; k < part.size(); ++k) declare_block(w, carried[k], part[k], width);
    w.open("for ($s $s = $s; $s < $s; ++$s)", type, name, first, name, last, name);
    w.append(inside);
    w.close();
    for (size_t k = 0; k < part.size(); ++k) merge_block(w, carried[k], part[k], width);
    w.close();
    return;
  }
  size_t ops = 0;
  for (const ir::NodeId node : phase.nodes) ops += body_.kernel().graph().nodes[static_cast<size_t>(node)].body.ops.size();
  if (scans_ && !body_.kernel().dialect().is_cpu && ops <= kUnrollOps && body_.ranges().of(size).high >= 2 * kScanAtOnce) {
    scan_loop(phase, carried[0], name, end, inside);
    return;
  }
  if (size.is_const() && size.constant() <= kUnrollLimit && ops <= kUnrollOps) w.line("OCL_UNROLL");
  w.open("for ($s $s = 0; $s < $s; ++$s)", type, name, name, end, name);
  w.append(inside);
  w.close();
}

/// A Scan's last loop on a GPU, whose items do not run ahead: several elements are loaded before the first is stored.
void Phases::scan_loop(const Phase& phase, const std::vector<Carried>& carried, const std::string& name, const std::string& end,
                       const Writer& single) {
  const ir::Symbol symbol{SymbolKind::kReduce, static_cast<int>(group_.reduce_sizes.size()) - 1};
  std::vector<Slot> slots(kScanAtOnce);
  for (size_t k = 0; k < slots.size(); ++k)
    slots[k].names = {{symbol, k == 0 ? name : format("($s + $d)", {name, static_cast<int64_t>(k)})}};
  body_.push({});
  each_slot(slots, true, [&](const Slot&) { values(phase); });
  each_slot(slots, true, [&](const Slot&) {
    std::vector<Carried> held;  // what follows changes the running values
    for (size_t i = 0; i < reductions_.size(); ++i) {
      held.push_back(reductions_[i].names());
      reductions_[i].declare(body_.writer(), held[i], 1);
      for (size_t a = 0; a < held[i].size(); ++a) body_.writer().line("$s = $s;", held[i][a], carried[i][a]);
      reductions_[i].step_scan(held[i]);
      for (size_t a = 0; a < held[i].size(); ++a) body_.writer().line("$s = $s;", carried[i][a], held[i][a]);
    }
  });
  each_slot(slots, false, [&](const Slot&) { body_.flush_stores(); });
  const Writer several = body_.pop();
  Writer& w = body_.writer();
  w.open("");
  w.line("$s $s = 0;", body_.kernel().index_type(), name);
  w.open("for (; $s < $s - $d; $s += $d)", name, end, kScanAtOnce - 1, name, kScanAtOnce);
  w.append(several);
  w.close();
  w.open("for (; $s < $s; ++$s)", name, end, name);
  w.append(single);
  w.close();
  w.close();
}

}  // namespace ocl::codegen
