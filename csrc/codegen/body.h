// csrc/codegen/body.h: prints the scalar programs of a group's nodes at width 1 or W, each value at the outermost loop where it
// is known.
//
// Loops are levels, outermost first. A value is written at the level of the innermost loop symbol it depends on, so what does
// not change in a loop is computed in front of it. One loop may be the lane loop: values that depend on it are vectors of
// `width` consecutive iterations.
//
//   level 0   size symbols, literals                const float v0 = in0[0];
//   level 1   row -> i0                              const float v1 = in1[i0];
//   level 2   lane loop i1, width 16                 const float16 v2 = vload16(0, in2 + i0 * n + i1);
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "csrc/codegen/kernel.h"

namespace ocl::codegen {

/// A value in a register of the generated program.
struct Value {
  std::string text;
  ir::DType dtype = ir::DType::kF32;
  int width = 1;
  int level = 0;
  bool constant = false;
  std::optional<ir::DType> fits = {};  // a float that this 16-bit type holds exactly
};

/// A row's text (ops.def, reductions.def) with its placeholders filled: `with` maps "0", "x", "a1", ... to texts. Functions of
/// kernels/base/ops.cl become the instance for `type`.
std::string op_text(const std::string& row, Type type, const std::map<std::string, std::string>& with, bool is_cpu);

class BodyPrinter {
 public:
  /// `ranges` knows the extents of the group's loops.
  BodyPrinter(Kernel& kernel, const ir::Ranges& ranges);

  // Levels
  /// Enters a loop (or the top): `names` says how the symbols that are known from here on read.
  void push(const std::map<ir::Symbol, std::string>& names);
  /// Makes `symbol` of the innermost level the lane loop; before any value of the level is printed.
  void set_lane(ir::Symbol symbol, int width);
  /// From now on the lane loop's position is a multiple of its width (or may be any).
  void assume_steps(bool steps) { steps_ = steps; }
  /// From now on, vectors whose offset is a multiple of their width may count on aligned buffers, and on a lane loop in such
  /// steps.
  void assume_aligned(bool aligned) { aligned_ = aligned; }
  /// Leaves the innermost level: its text. Its values are forgotten.
  Writer pop();
  /// Leaves the innermost level and keeps what it knows, with stores that still wait: its text must stay in scope until a level
  /// for the same elements takes it up again, at the same depth.
  class Kept;
  Writer pop_keeping(Kept& kept);
  /// The values, and the stores, of a level before this one.
  void resume(Kept& kept);
  /// The names of the innermost level.
  const std::map<ir::Symbol, std::string>& names() const { return levels_.back().names; }
  Writer& writer() { return levels_.back().writer; }
  int depth() const { return static_cast<int>(levels_.size()); }
  int lane_width() const { return lane_ ? lane_width_ : 1; }

  // Nodes
  /// Value of op `op` of the node's body.
  Value value(ir::NodeId node, int op);
  /// Evaluates a Map node; its stores are kept until flush_stores, so that loads of memory that is reused come first.
  void run_map(ir::NodeId node);
  /// `value` is what later loads of the store's buffer at its coordinates read, unless the store is partial; stored by
  /// flush_stores if the buffer has memory.
  void set_result(ir::NodeId node, const ir::Store& store, const Value& value);
  void flush_stores();
  bool has_stores() const { return !stores_.empty(); }
  /// Room for one value of every element of a row: a private array, or where a later store goes.
  struct Room {
    std::string array;
    ir::NodeId node = ir::kNone;
    ir::Store store = {};
  };
  /// Whether the store goes to neighbouring elements of the type along the loop, which nothing reads before.
  bool is_room(const ir::Store& store, ir::Symbol loop, ir::DType dtype) const;
  /// The lanes' values in the room, a statement that puts `value` there.
  std::string load_room(const Room& room, ir::DType dtype);
  std::string store_room(const Room& room, ir::DType dtype, const std::string& value);
  /// From now on the op's value is what an earlier loop over the row left in the room.
  void keep(ir::NodeId node, int op, const Room& room) { kept_ops_[{node, op}] = room; }
  /// An exponential, whose quotients by what does not change in the row may be products.
  bool is_kept(ir::NodeId node, int op) const { return kept_ops_.count({node, op}) > 0; }
  /// A later load of `buffer` at `coords` is `value`, which some other code made (a template's accumulator).
  void set_register(ir::BufferId buffer, const std::vector<ir::IndexExpr>& coords, const Value& value);

  // Spelling
  Value convert(const Value& value, ir::DType dtype);
  std::string at_width(const Value& value, int width) const;  // broadcast if it is a scalar
  std::string index(const ir::IndexExpr& e) const;            // over symbols known here; no v*
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
  /// An index expression with what it depends on.
  struct Placed {
    ir::IndexExpr e;
    int level = 0;
    bool varies = false;                       // from lane to lane
    std::optional<ir::IndexExpr> coefficient;  // from lane to lane, if it is a known constant and no v* varies
    bool multiple = false;                     // of the width, if the lane loop's position is
    std::map<int, Value> values;               // v*
  };
  using Key = std::vector<ir::IndexExpr>;

  Value define(int level, ir::DType dtype, int width, const std::string& text);
  Value constant(const ir::Op& op) const;
  Value index_value(ir::NodeId node, const ir::Op& op);
  Value load(ir::NodeId node, const ir::Op& op);
  Value load_memory(const ir::Op& op, const Placed& offset, const std::optional<Value>& mask);
  Value operation(ir::NodeId node, const ir::Op& op);
  Value kept_quotient(ir::NodeId node, const ir::Op& op);
  std::pair<std::string, std::string> in_room(const Room& room);  // pointer, offset
  void store(const PendingStore& store);
  void store_lanes(const PendingStore& store, const Placed& offset);

  Placed place(ir::NodeId node, const ir::IndexExpr& e);
  /// The expression at a lane (kNone: the lane loop's own symbol, a scalar).
  std::string spell(const Placed& placed, int lane) const;
  void place_in_lanes(Placed& placed) const;
  bool is_aligned(const Placed& placed) const;
  std::string lane_offset(const Placed& placed, const std::string& base, int lane) const;
  ir::IndexExpr offset_of(ir::BufferId buffer, const std::vector<ir::IndexExpr>& coords) const;
  std::optional<Key> key(ir::BufferId buffer, const std::vector<ir::IndexExpr>& coords) const;

  Kernel& kernel_;
  const ir::Ranges& ranges_;
  std::vector<Level> levels_;
  std::optional<ir::Symbol> lane_;
  int lane_width_ = 1, lane_level_ = 0;
  bool steps_ = false, aligned_ = false;
  std::map<std::pair<ir::NodeId, int>, Value> memo_;
  struct Register {
    ir::BufferId buffer;
    Key key;
    Value value;
  };
  std::vector<Register> registers_;
  std::vector<PendingStore> stores_;
  std::map<std::pair<ir::NodeId, int>, Room> kept_ops_;
};

class BodyPrinter::Kept {
  friend class BodyPrinter;
  std::map<std::pair<ir::NodeId, int>, Value> memo_;
  std::vector<Register> registers_;
  std::vector<PendingStore> stores_;
};

}  // namespace ocl::codegen
