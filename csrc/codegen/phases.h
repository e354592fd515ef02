// csrc/codegen/phases.h: the phases of a group for one outer element (or one vector of them): what stands inside the loops over
// i*.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "csrc/codegen/accumulators.h"

namespace ocl::codegen {

/// How the items of a GPU work-group share a reduction: `items` of them stride over r*, `rows` outer elements are side by side.
///   kRow: lane = local id 0 (r* contiguous across items)     kColumn: lane = local id 1 (i* contiguous across items)
struct Sharing {
  int items = 1;  // 1: no sharing
  int rows = 1;
  bool column = false;
  std::string lane;    // name of this item's position along r*
  std::string writes;  // condition under which outer phases store, "" for always
  std::string live;    // condition under which this item's outer element exists, "" for always
};

class Phases {
 public:
  Phases(BodyPrinter& body, const schedule::Group& group) : body_(body), group_(group) {}

  /// All phases, at the body's innermost level: loops over r* inside, each lane on its own (kPointwise, kSequential).
  void serial();
  /// How many neighbouring vectors `columns` should take at a time, of a loop over `length` in each of `rows`; 1: it should not
  /// be used.
  int columns_at_once(int64_t rows, int64_t length, int width) const;
  /// All phases for `count` neighbouring vectors of the loop `lane`, the first at `name`: each step of the reduction reads
  /// whole cache lines in a row, which is what streams from memory; one vector a row would not be.
  void columns(ir::Symbol lane, const std::string& name, int width, int count);
  /// Vector lanes along the last r* (kRow on CPUs).
  void lanes(int width);
  /// Whether every reduction of the group can go through registers().
  bool fits_registers() const;
  /// As shared(), for the single loop r0 over `length` elements, a multiple of `width`: each item keeps its vectors of the row
  /// in registers, from one phase to the next.
  void registers(const Sharing& sharing, int width, int64_t length);
  /// Items of a work-group stride over r*, and merge through local memory (kRow and kColumn on GPUs).
  void shared(const Sharing& sharing);

 private:
  using Carried = Accumulators::Carried;
  using Printer = void (Phases::*)(const schedule::Phase&);
  void run(Printer inner);
  void inner_serial(const schedule::Phase& phase);
  /// The loop whose iterations are taken in blocks, and the length of a block; (number of loops, 0) for none.
  std::pair<size_t, int64_t> blocks() const;
  void store_outer();
  void inner_lanes(const schedule::Phase& phase);
  /// Accumulators of a loop over lanes: `whole` from the blocks' `part`, or the same, and one set for each narrower step over
  /// what is left.
  struct Lanes {
    std::vector<Carried> whole, part;
    std::vector<std::vector<Carried>> rest;
  };
  Lanes lanes_of_row(const schedule::Phase& phase);
  /// An op of a later phase that is e^(element - largest).
  struct Again {
    const schedule::Phase* phase;
    ir::NodeId node;
    int op;
  };
  std::vector<Again> computed_again(const schedule::Phase& phase) const;
  bool takes_softmax_passes(const schedule::Phase& phase) const;
  bool fits_array() const;
  std::optional<BodyPrinter::Room> room_for(const std::vector<Again>& again, ir::DType dtype);
  /// The largest element of a row, then the sum around it. Later phases find the exponentials where there is room for them.
  void softmax_lanes(const schedule::Phase& phase);
  std::vector<int> rest_widths() const;
  std::vector<Carried> merged_lanes(const Lanes& lanes);
  void inner_shared(const schedule::Phase& phase);
  void inner_registers(const schedule::Phase& phase);

  /// An element, or a vector of elements, of an item's share: where it lies, and the condition that the row reaches so far, ""
  /// for always.
  struct Slot {
    std::map<ir::Symbol, std::string> names;
    std::string inside;
    BodyPrinter::Kept kept;
  };
  void each_slot(std::vector<Slot>& slots, bool keep, const std::function<void(const Slot&)>& visit);
  /// What the phase's nodes compute at the innermost level; nothing is reduced or stored yet.
  void values(const schedule::Phase& phase);
  /// Elements that an item of shared() takes at once in a loop of up to `steps`.
  int shared_at_once(const schedule::Phase& phase, int64_t steps) const;
  void guarded(const std::string& condition, const std::function<void()>& print);
  std::vector<std::string> register_pass(int pass, const std::vector<size_t>& which, const std::vector<std::string>& centres);
  void write_register_tree(int pass, const std::vector<size_t>& which, const std::vector<std::string>& names);

  /// Makes `reductions_` for the phase's Reduce nodes.
  void begin(const schedule::Phase& phase);
  std::vector<Carried> fresh() const;
  void declare(Writer& writer, const std::vector<Carried>& carried, int width) const;
  std::vector<Carried> fresh_block() const;
  void declare_block(Writer& writer, const std::vector<Carried>& into, const std::vector<Carried>& block, int width) const;
  void merge_block(Writer& writer, const std::vector<Carried>& into, const std::vector<Carried>& from, int width) const;
  bool wants_blocks(bool is_long) const;
  /// Elements of a block in a loop over `total`.
  int64_t block_length(int64_t total) const;
  /// The length of the block that begins at `first`, of blocks of `length`.
  std::string block_text(const std::string& first, int64_t length) const;
  /// The phase's nodes at the innermost level.
  void elements(const schedule::Phase& phase, const std::vector<Carried>& carried, bool in_block);
  /// Loop over r<depth> and those inside it, for each of the vectors (one, but for columns()). Elements go to `carried`,
  /// through a block's own accumulators at loop `block_loop`.
  void serial_loop(const schedule::Phase& phase, size_t depth, size_t block_loop, int64_t block,
                   const std::vector<std::vector<Carried>>& carried, const std::vector<std::vector<Carried>>& part);
  void scan_loop(const schedule::Phase& phase, const std::vector<Carried>& carried, const std::string& name,
                 const std::string& end, const Writer& single);
  /// Opens the level of vector `k` of columns().
  void push_column(size_t k);
  void lanes_loop(const schedule::Phase& phase, size_t depth, const Lanes& lanes);
  void write_tree(const std::vector<Carried>& carried);
  int level() const;

  BodyPrinter& body_;
  const schedule::Group& group_;
  Sharing sharing_;
  int width_ = 1;
  ir::Symbol lane_{};      // of columns()
  std::string lane_name_;  // "" elsewhere
  std::vector<Accumulators> reductions_;
  bool scans_ = false;            // the phase is a Scan, alone
  std::vector<Slot> slots_;       // of registers()
  std::set<ir::BufferId> rooms_;  // that are taken
  std::string elements_;          // of a row
  int trees_ = 0;                 // that were written
};

/// Writes `i<k><suffix>` for k in [0, count) from a flat index over `sizes`; returns their names.
std::map<ir::Symbol, std::string> write_unflatten(BodyPrinter& body, Writer& writer, const std::string& flat,
                                                  const std::string& type, const ir::Shape& sizes, size_t count,
                                                  ir::SymbolKind kind, const std::string& suffix = "");
/// "int", or "long" if a flat index up to `total` (and a step beyond) may not fit.
const char* flat_type(const BodyPrinter& body, const ir::IndexExpr& total);

}  // namespace ocl::codegen
