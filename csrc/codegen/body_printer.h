// csrc/codegen/body_printer.h: prints the scalar programs of a group's nodes, for scalars or for vectors of W elements. Each
// value is printed in front of the loops that it does not depend on.
//
// Loops are levels, from the outermost to the innermost. A value is printed at the level of the innermost loop symbol that it
// depends on. One loop may be the lane loop: values that depend on it are vectors of `width` consecutive iterations.
//
//   level 0   size symbols, literals                const float v0 = in0[0];
//   level 1   row -> i0                              const float v1 = in1[i0];
//   level 2   lane loop i1, width 16                 const float16 v2 = vload16(0, in2 + i0 * n + i1);
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "csrc/codegen/kernel.h"

namespace ocl::codegen {

/// A variable or constant of the generated program.
struct Value {
  std::string text;
  ir::DType dtype = ir::DType::kF32;
  int width = 1;
  int level = 0;
  bool constant = false;
  std::string unrounded = {};          // The float that was rounded to this value, if any.
  std::optional<ir::DType> fits = {};  // A type of 8 or 16 bits that holds this float exactly.
};

/// Fills the placeholders of a row's text (ops.def, reductions.def). `with` maps "0", "x", "a1", ... to texts.
/// Functions of kernels/base/ops.cl get the suffix for `type`. Sums, differences and products of signed integers are
/// computed in the unsigned type of the same size.
std::string op_text(const std::string& row, Type type, const std::map<std::string, std::string>& with, bool is_cpu);

class BodyPrinter {
 public:
  /// `ranges` has the extents of the group's loops.
  BodyPrinter(Kernel& kernel, const ir::Ranges& ranges);

  // Levels
  /// Enters a loop, or the top level. `names` maps the symbols that are known from here on to their variables.
  void push(const std::map<ir::Symbol, std::string>& names);
  /// Makes the loop of `symbol` the vectorised loop, the lane loop. It must be a loop of the innermost level. Call this before
  /// any value of that level is printed.
  void set_lane(ir::Symbol symbol, int width);
  /// Says whether, from now on, the position of the lane loop is always a multiple of its width.
  void assume_steps(bool steps) { steps_ = steps; }
  /// Says whether, from now on, a vector at an offset that is a multiple of its width is at an aligned address. The
  /// position of the lane loop is then always a multiple of its width.
  void assume_aligned(bool aligned) { aligned_ = aligned; }
  /// Says whether, from now on, contiguous vectors are at aligned addresses, at any position of the lane loop.
  void assume_ragged(bool ragged) { ragged_ = ragged; }
  /// Leaves the innermost level and returns its text. The values of the level can no longer be used.
  Writer pop();
  /// Leaves the innermost level like pop(), but saves its values and pending stores. The text must stay in scope until
  /// resume() enters a level for the same elements at the same depth.
  class SavedLevel;
  Writer pop_saving(SavedLevel& saved);
  /// Restores the values and pending stores of a saved level.
  void resume(SavedLevel& saved);
  /// The variables of the innermost level's symbols.
  const std::map<ir::Symbol, std::string>& names() const { return levels_.back().names; }
  Writer& writer() { return levels_.back().writer; }
  int depth() const { return static_cast<int>(levels_.size()); }
  int lane_width() const { return lane_ ? lane_width_ : 1; }

  // Nodes
  /// Returns the value of op number `op` in the node's body.
  Value value(ir::NodeId node, int op);
  /// Evaluates a Map node. Its stores wait until flush_stores, so that they come after loads from memory that they
  /// reuse.
  void run_map(ir::NodeId node);
  /// Adds a store that waits until flush_stores. It is printed only if the buffer has memory. Later loads of the buffer
  /// at the same coordinates give `value`, unless the store is partial.
  void set_result(ir::NodeId node, const ir::Store& store, const Value& value);
  void flush_stores();
  bool has_stores() const { return !stores_.empty(); }
  /// Returns the addresses of the vectors that were loaded and stored so far, if they are different for each iteration of
  /// all loops, and whether they were stored: {"out0 + s0 * i0 + i1", true}. They are spelled with the loops' variables only.
  const std::vector<std::pair<std::string, bool>>& streams() const { return streams_; }
  /// Memory for one value per element of a row: a private array, or the elements that a later store of `node`
  /// overwrites.
  struct RowStorage {
    std::string array;
    ir::NodeId node = ir::kNone;
    ir::Store store = {};
  };
  /// True if the store goes to consecutive elements of type `dtype` along the loop, and no load reads them before.
  bool can_hold_row(const ir::Store& store, ir::Symbol loop, ir::DType dtype) const;
  /// Returns the offset of an element in a buffer, in elements.
  ir::IndexExpr offset_of(ir::BufferId buffer, const std::vector<ir::IndexExpr>& coords) const;
  /// load_text_of returns the stored values of the current lanes, store_text_of a statement that stores `value` in
  /// their place.
  std::string load_text_of(const RowStorage& storage, ir::DType dtype);
  std::string store_text_of(const RowStorage& storage, ir::DType dtype, const std::string& value);
  /// From now on, the op's value is loaded from `storage`, where an earlier loop over the row has stored it.
  void cache_op(ir::NodeId node, int op, const RowStorage& storage) { cached_ops_[{node, op}] = storage; }
  /// True if this exp is cached, so that dividing it by a row constant may become a multiplication.
  bool is_cached(ir::NodeId node, int op) const { return cached_ops_.count({node, op}) > 0; }
  /// From now on, a load of `buffer` at `coords` gives `value`, which other code has computed (a template's
  /// accumulator).
  void set_register(ir::BufferId buffer, const std::vector<ir::IndexExpr>& coords, const Value& value);

  // Spelling
  Value convert(const Value& value, ir::DType dtype);
  std::string broadcast_to_width(const Value& value, int width) const;  // Broadcasts a scalar.
  // Returns the text of an index expression over symbols that are known here, without values of ops (v*).
  std::string index(const ir::IndexExpr& e) const;
  const ir::Ranges& ranges() const { return ranges_; }
  Kernel& kernel() { return kernel_; }

 private:
  struct Level {
    Writer writer;
    std::map<ir::Symbol, std::string> names;
  };
  struct PendingStore {
    ir::NodeId node;
    ir::BufferId buffer;
    std::vector<ir::IndexExpr> coords;
    Value value;
    std::optional<Value> mask;
    ir::StoreMode mode = ir::StoreMode::kWrite;
  };
  /// An index expression, and what it depends on.
  struct ResolvedIndex {
    ir::IndexExpr e;
    int level = 0;
    bool varies = false;  // The expression differs from lane to lane.
    // The constant difference from one lane to the next. nullopt if it is unknown, or if an op's value (v*) in the
    // expression differs from lane to lane.
    std::optional<ir::IndexExpr> coefficient;
    // The value in lane 0 is a multiple of the width whenever the lane loop's position is one.
    bool multiple = false;
    ir::IndexExpr rest = 0;       // With a coefficient: the part that is the same in all lanes.
    std::map<int, Value> values;  // The values of ops (v*) in the expression, by the op's number.
  };
  using Key = std::vector<ir::IndexExpr>;

  bool is_long(const Value& value) const;
  bool any_long(const ResolvedIndex& resolved) const;
  const char* offset_type(const ResolvedIndex& resolved) const;  // Type of a variable that holds the offset.
  Value define(int level, ir::DType dtype, int width, const std::string& text);
  Value constant(const ir::Op& op) const;
  Value index_value(ir::NodeId node, int op);
  Value position(ir::NodeId node, const ir::Op& op);
  std::optional<Value> narrow(ir::NodeId node, int op);
  std::vector<Value> operands(ir::NodeId node, const ir::Op& op);
  /// otherwise: what a load under a mask gives where the mask is not set, as text. "": zero.
  Value load(ir::NodeId node, const ir::Op& op, const std::string& otherwise = "");
  std::optional<Value> load_or_infinity(ir::NodeId node, const ir::Op& op);
  Value load_memory(const ir::Op& op, const ResolvedIndex& offset, const std::optional<Value>& mask, const std::string& zero);
  Value load_half(ir::BufferId buffer, const ResolvedIndex& offset, int half, int level);
  /// Returns the text of an op's row, or of a shorter function if the op's result is rounded to 16 bits.
  std::string text_of(ir::NodeId node, int op) const;
  Value operation(ir::NodeId node, int number, const std::string& row);
  Value cached_quotient(ir::NodeId node, const ir::Op& op);
  std::pair<std::string, std::string> storage_address(const RowStorage& storage);  // Pointer and offset.
  void store(const PendingStore& store);
  void store_lanes(const PendingStore& store, const ResolvedIndex& offset);
  void add_stream(const std::string& pointer, const ResolvedIndex& offset, const std::string& at, bool stored);

  ResolvedIndex resolve(ir::NodeId node, const ir::IndexExpr& e);
  /// Returns the text of the expression in the given lane. kNone: at the position of the lane loop, as a scalar.
  std::string spell(const ResolvedIndex& resolved, int lane) const;
  void resolve_lanes(ResolvedIndex& resolved) const;
  bool is_aligned(const ResolvedIndex& resolved) const;
  std::string store_text_of(const PendingStore& s, int width, const std::string& pointer, const std::string& at,
                            const std::string& value, bool aligned = false) const;
  std::string lane_offset(const ResolvedIndex& resolved, const std::string& base, int lane) const;
  std::optional<Key> key(ir::BufferId buffer, const std::vector<ir::IndexExpr>& coords) const;

  Kernel& kernel_;
  const ir::Ranges& ranges_;
  std::deque<Level> levels_;  // A deque, so that references to writers stay valid when a level is added.
  std::optional<ir::Symbol> lane_;
  int lane_width_ = 1, lane_level_ = 0;
  bool steps_ = false, aligned_ = false, ragged_ = false;
  std::map<std::pair<ir::NodeId, int>, Value> memo_;
  struct Register {
    ir::BufferId buffer;
    Key key;
    Value value;
  };
  std::vector<Register> registers_;
  std::vector<PendingStore> stores_;
  std::vector<std::pair<std::string, bool>> streams_;
  std::map<std::pair<ir::NodeId, int>, RowStorage> cached_ops_;
};

class BodyPrinter::SavedLevel {
  friend class BodyPrinter;
  std::map<std::pair<ir::NodeId, int>, Value> memo_;
  std::vector<Register> registers_;
  std::vector<PendingStore> stores_;
};

}  // namespace ocl::codegen
