// csrc/codegen/body_memory.cpp: prints the loads and stores of a body, from registers, as vectors, lane by lane, or
// with masks.
#include <algorithm>
#include <cmath>

#include "csrc/codegen/body_printer.h"
#include "csrc/schedule/loops.h"
#include "csrc/support/error.h"

namespace ocl::codegen {

using schedule::Placement;

IndexExpr BodyPrinter::offset_of(BufferId buffer, const std::vector<IndexExpr>& coords) const {
  return ir::simplify(ir::linear_offset(kernel_.buffer_of(buffer), coords, ranges_) - kernel_.start_of(buffer), ranges_);
}

/// Returns a key that identifies an element of a buffer by its coordinates. nullopt if they use values of ops (v*),
/// because the same v* has different meanings in different bodies.
std::optional<BodyPrinter::Key> BodyPrinter::key(BufferId buffer, const std::vector<IndexExpr>& coords) const {
  Key result;
  for (const IndexExpr& c : coords) {
    if (c.uses(ir::SymbolKind::kValue)) return std::nullopt;
    result.push_back(ir::simplify(c, ranges_));
  }
  return result;
}

void BodyPrinter::set_register(BufferId buffer, const std::vector<IndexExpr>& coords, const Value& value) {
  const auto k = key(buffer, coords);
  if (!k) return;
  std::erase_if(registers_, [&](const Register& r) { return r.buffer == buffer && r.key == *k; });
  registers_.push_back({buffer, *k, value});
}

void BodyPrinter::set_result(NodeId node, const ir::Store& store, const Value& value) {
  const Value stored = convert(value, kernel_.graph().buffers[store.buffer].dtype);
  if (!ir::is_partial(store)) set_register(store.buffer, store.index, stored);
  if (kernel_.schedule().placements[store.buffer].kind == Placement::Kind::kNowhere) return;
  std::optional<Value> mask;
  if (store.mask != ir::kNone) mask = this->value(node, store.mask);
  stores_.push_back({node, store.buffer, store.index, stored, mask, store.mode});
}

/// For `where(mask, load under the mask, infinity)`, which pads images for a maximum: the load gives the infinity where the
/// mask is not set. nullopt for other ops.
std::optional<Value> BodyPrinter::load_or_infinity(NodeId node, const ir::Op& op) {
  const std::vector<ir::Op>& ops = kernel_.graph().nodes[node].body.ops;
  if (op.code != ir::OpCode::k_where || kernel_.dialect().is_cpu) return std::nullopt;
  const ir::Op &load = ops[static_cast<size_t>(op.args[1])], &other = ops[static_cast<size_t>(op.args[2])];
  if (load.code != ir::OpCode::kLoad || load.args != std::vector<int>{op.args[0]} || load.dtype != op.dtype ||
      other.code != ir::OpCode::kConstant || !other.constant.is_float || !std::isinf(other.constant.f))
    return std::nullopt;
  const DType dtype = kernel_.graph().buffers[load.buffer].dtype;
  if (!ir::is_floating(dtype) || ir::is_f8(dtype)) return std::nullopt;
  return this->load(node, load, literal({other.constant, dtype}));
}

Value BodyPrinter::load(NodeId node, const ir::Op& op, const std::string& otherwise) {
  const std::string zero = otherwise.empty() ? literal({{false, 0, 0}, kernel_.graph().buffers[op.buffer].dtype}) : otherwise;
  std::optional<Value> mask;
  if (!op.args.empty()) mask = value(node, op.args[0]);
  const auto k = key(op.buffer, op.index);
  if (k) {
    for (const Register& r : registers_) {
      if (r.buffer != op.buffer || r.key != *k) continue;
      if (!mask) return r.value;
      const int width = std::max(mask->width, r.value.width), level = std::max(mask->level, r.value.level);
      return define(level, r.value.dtype, width,
                    mask_text(broadcast_to_width(*mask, width), DType::kBool, r.value.dtype, width) + " ? " +
                        broadcast_to_width(r.value, width) + " : " + broadcast_text(zero, r.value.dtype, width));
    }
  }
  const Value result = load_memory(op, resolve(node, offset_of(op.buffer, op.index)), mask, zero);
  if (k && !mask) registers_.push_back({op.buffer, *k, result});
  return result;
}

/// Returns the offset of a lane: `base` plus a constant if the difference between lanes is constant, otherwise the
/// whole expression.
std::string BodyPrinter::lane_offset(const ResolvedIndex& resolved, const std::string& base, int lane) const {
  if (!resolved.varies) return spell(resolved, ir::kNone);
  if (!resolved.coefficient) return spell(resolved, lane);
  return lane == 0 ? base : base + " + " + std::to_string(lane * resolved.coefficient->constant());
}

/// True if the address of lane 0 is aligned.
bool BodyPrinter::is_aligned(const ResolvedIndex& resolved) const {
  return resolved.coefficient && resolved.coefficient->is_const(1) && (ragged_ || (aligned_ && resolved.multiple));
}

/// Records a vector for streams(). at: the text of its offset.
void BodyPrinter::add_stream(const std::string& pointer, const ResolvedIndex& offset, const std::string& at, bool stored) {
  bool in_all_loops = offset.values.empty();
  for (const Level& level : levels_) {
    for (const auto& [symbol, name] : level.names) {
      const std::optional<IndexExpr> extent = ranges_.extent(symbol);
      if (extent && !extent->is_const(1)) in_all_loops = in_all_loops && offset.e.uses(symbol);
    }
  }
  if (in_all_loops) streams_.emplace_back(pointer + " + " + at, stored);
}

Value BodyPrinter::load_memory(const ir::Op& op, const ResolvedIndex& offset, const std::optional<Value>& mask,
                               const std::string& zero) {
  const DType dtype = kernel_.graph().buffers[op.buffer].dtype;
  const std::string pointer = kernel_.buffer(op.buffer);
  // A load from a written buffer stays inside the loop. In front of the loop, work-items that compute no element would
  // load too, while other work-items store. A buffer that may be empty has no element in front of the loop.
  const bool may_be_empty = ranges_.of(ir::product(kernel_.buffer_of(op.buffer).sizes)).low < 1;
  const int innermost = kernel_.writes(op.buffer) || may_be_empty ? depth() - 1 : 0;
  const int level = std::max({offset.level, mask ? mask->level : 0, innermost});
  const bool masked_lanes = mask && mask->width > 1;

  if (!offset.varies) {
    const std::string element = load_text(dtype, 1, pointer, spell(offset, ir::kNone));
    if (!mask) return define(level, dtype, 1, element);
    if (!masked_lanes) return define(level, dtype, 1, mask->text + " ? " + element + " : " + zero);
    const Value scalar = define(level, dtype, 1, "any(" + mask->text + ") ? " + element + " : " + zero);
    return define(level, dtype, mask->width,
                  mask_text(mask->text, DType::kBool, dtype, mask->width) + " ? " + broadcast_to_width(scalar, mask->width) +
                      " : " + broadcast_text(zero, dtype, mask->width));
  }

  const int width = lane_width_;
  Writer& w = levels_[level].writer;
  const bool contiguous = offset.coefficient && offset.coefficient->is_const(1);
  std::string base;
  std::string vector;
  if (contiguous) {
    const std::string at = spell(offset, 0);
    add_stream(pointer, offset, at, false);
    vector = load_text(dtype, width, pointer, at, is_aligned(offset));
  }
  if (contiguous && !mask) return define(level, dtype, width, vector);
  if (aligned_ && !mask && dtype != DType::kBool && offset.coefficient && offset.coefficient->is_const(2))
    if (const auto half = schedule::half_of_vectors(kernel_.buffer_of(op.buffer), offset.rest, width, ranges_))
      return load_half(op.buffer, offset, *half, level);
  if (offset.coefficient && !contiguous) {
    base = kernel_.fresh("at");
    w.line("const $s $s = $s;", offset_type(offset), base, spell(offset, 0));
  } else if (offset.coefficient) {
    base = spell(offset, 0);
  }
  std::vector<std::string> lanes;
  for (int lane = 0; lane < width; ++lane) {
    const std::string element = load_text(dtype, 1, pointer, lane_offset(offset, base, lane));
    lanes.push_back(masked_lanes ? "(" + mask->text + lane_suffix(lane) + " ? " + element + " : " + zero + ")" : element);
  }
  if (!contiguous) vector = gather_text(lanes, dtype);
  if (!mask || (masked_lanes && !contiguous)) return define(level, dtype, width, vector);

  const std::string name = kernel_.fresh("v");
  if (dtype == DType::kBF16 && (width == 4 || width == 8) && !masked_lanes && is_aligned(offset) && !kernel_.dialect().is_cpu) {
    // Compilers branch around a load with its conversion, and each load then waits for the one before. A load alone is
    // predicated.
    const std::string words = "uint" + std::to_string(width / 2), bits = "as_uint((float)(" + zero + "))";
    w.line("$s $s = ($s)($s | $s >> 16);", words, name, words, bits, bits);
    w.line("if ($s) $s = *(__global const $s*)($s + $s);", mask->text, name, words, pointer, base);
    std::string floats;
    for (int lane = 0; lane < width; ++lane) {
      const std::string word = name + ".s" + std::to_string(lane / 2);
      floats += (lane ? ", " : "") + ("as_float(" + word + (lane % 2 ? " & 0xffff0000u)" : " << 16)"));
    }
    return define(level, dtype, width, "(" + type_name({dtype, width}) + ")(" + floats + ")");
  }
  w.line("$t $s = $s;", Type{dtype, width}, name, broadcast_text(zero, dtype, width));
  w.line(masked_lanes ? "if (all($s)) $s = $s;" : "if ($s) $s = $s;", mask->text, name, vector);
  if (masked_lanes) w.line("else if (any($s)) $s = $s;", mask->text, name, gather_text(lanes, dtype));
  return {name, dtype, width, level, false};
}

/// Loads every second element: two aligned vectors, of each of which it takes the first or second of two elements.
Value BodyPrinter::load_half(BufferId buffer, const ResolvedIndex& offset, int half, int level) {
  const DType dtype = kernel_.graph().buffers[buffer].dtype;
  std::string both;
  for (const int vector : {0, 1}) {
    ResolvedIndex start = offset;
    start.e = ir::simplify(offset.e + (vector * lane_width_ - half), ranges_);
    const std::string text = load_text(dtype, lane_width_, kernel_.buffer(buffer), spell(start, 0), true);
    both += (vector ? ", " : "") + define(level, dtype, lane_width_, text).text + (half ? ".odd" : ".even");
  }
  return define(level, dtype, lane_width_, "(" + type_name({dtype, lane_width_}) + ")(" + both + ")");
}

bool BodyPrinter::can_hold_row(const ir::Store& store, ir::Symbol loop, DType dtype) const {
  const Placement::Kind kind = kernel_.schedule().placements[store.buffer].kind;
  // Inputs are excluded: the group may load them at another index before it stores the row there.
  if (kind != Placement::Kind::kOutput && kind != Placement::Kind::kArena) return false;
  if (kernel_.graph().buffers[store.buffer].dtype != dtype) return false;
  if (store.mask != ir::kNone || store.mode != ir::StoreMode::kWrite || !key(store.buffer, store.index)) return false;
  const auto affine = ir::affine_in(offset_of(store.buffer, store.index), loop);
  return affine && affine->coefficient.is_const(1);
}

std::pair<std::string, std::string> BodyPrinter::storage_address(const RowStorage& storage) {
  if (storage.node == ir::kNone) return {storage.array, levels_[lane_level_].names.at(*lane_)};
  return {kernel_.buffer(storage.store.buffer),
          spell(resolve(storage.node, offset_of(storage.store.buffer, storage.store.index)), 0)};
}

std::string BodyPrinter::load_text_of(const RowStorage& storage, DType dtype) {
  const auto [pointer, offset] = storage_address(storage);
  return load_text(dtype, lane_width_, pointer, offset);
}

std::string BodyPrinter::store_text_of(const RowStorage& storage, DType dtype, const std::string& value) {
  const auto [pointer, offset] = storage_address(storage);
  return store_text(dtype, lane_width_, pointer, offset, value);
}

void BodyPrinter::flush_stores() {
  const std::vector<PendingStore> stores = std::move(stores_);
  stores_.clear();
  for (const PendingStore& s : stores) store(s);
}

/// Returns the statement that stores `value`, of `width` lanes, by the mode of `s`.
std::string BodyPrinter::store_text_of(const PendingStore& s, int width, const std::string& pointer, const std::string& at,
                                       const std::string& value, bool aligned) const {
  const DType dtype = kernel_.graph().buffers[s.buffer].dtype;
  if (s.mode == ir::StoreMode::kMaximum) return maximum_text(pointer, at, value);
  if (s.mode == ir::StoreMode::kWrite) return store_text(dtype, width, pointer, at, value, aligned);
  const std::string old = load_text(dtype, width, pointer, at, aligned);
  const std::string sum =
      op_text(ir::facts(ir::OpCode::k_add).text, {dtype, width}, {{"0", old}, {"1", value}}, kernel_.dialect().is_cpu);
  return store_text(dtype, width, pointer, at, sum, aligned);
}

void BodyPrinter::store(const PendingStore& s) {
  const DType dtype = kernel_.graph().buffers[s.buffer].dtype;
  const ResolvedIndex offset = resolve(s.node, offset_of(s.buffer, s.coords));
  const bool masked_lanes = s.mask && s.mask->width > 1, is_maximum = s.mode == ir::StoreMode::kMaximum;
  Writer& w = writer();
  if (masked_lanes) {
    store_lanes(s, offset);
    return;
  }
  if (s.mask) w.open("if ($s)", s.mask->text);
  if (is_maximum && (offset.varies || s.value.width > 1)) {
    store_lanes(s, offset);
  } else if (!offset.varies) {  // All lanes store to one address, so only the last lane is stored, as a loop would leave it.
    const std::string value = s.value.width > 1 ? lane_text(s.value.text, dtype, s.value.width - 1) : s.value.text;
    w.line("$s", store_text_of(s, 1, kernel_.buffer(s.buffer), spell(offset, ir::kNone), value));
  } else if (offset.coefficient && offset.coefficient->is_const(1)) {
    const std::string pointer = kernel_.buffer(s.buffer), value = broadcast_to_width(s.value, lane_width_);
    const std::string at = spell(offset, 0);
    add_stream(pointer, offset, at, true);
    w.line("$s", store_text_of(s, lane_width_, pointer, at, value, is_aligned(offset)));
  } else {
    store_lanes(s, offset);
  }
  if (s.mask) w.close();
}

/// Prints one store per lane, in the order of the loop.
void BodyPrinter::store_lanes(const PendingStore& s, const ResolvedIndex& offset) {
  const DType dtype = kernel_.graph().buffers[s.buffer].dtype;
  const std::string pointer = kernel_.buffer(s.buffer);
  Writer& w = writer();
  std::string base;
  if (offset.coefficient) {
    base = kernel_.fresh("at");
    w.line("const $s $s = $s;", offset_type(offset), base, spell(offset, 0));
  }
  // Such masks are nearly always false, so one test skips all lanes.
  const bool rare = s.mode == ir::StoreMode::kMaximum && s.mask && s.mask->width > 1 && !offset.varies;
  if (rare) w.open("if (any($s))", s.mask->text);
  for (int lane = 0; lane < lane_width_; ++lane) {
    const std::string value = s.value.width > 1 ? lane_text(s.value.text, dtype, lane) : s.value.text;
    const std::string at = lane_offset(offset, base, lane);
    const std::string mask = s.mask && s.mask->width > 1 ? "if (" + s.mask->text + lane_suffix(lane) + ") " : "";
    w.line("$s$s", mask, store_text_of(s, 1, pointer, at, value));
  }
  if (rare) w.close();
}

}  // namespace ocl::codegen
