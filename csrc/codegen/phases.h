// csrc/codegen/phases.h: prints the phases of a group for one outer element, or for one vector of them. This is the code inside
// the loops over i*. Each strategy for the loops over r* is a class:
//
//   SequentialPhases    one element after the other                                        sequential_phases.h
//   MultiVectorPhases   one element after the other, for several neighbouring vectors      sequential_phases.h
//   LanePhases          vector lanes along the last r* (rows on CPUs)                      lane_phases.h
//   WorkGroupPhases     the items of a GPU work-group stride over r*                       work_group_phases.h
//   RegisterPhases      as WorkGroupPhases, and the items keep the row in registers        register_phases.h
//   ProductPhases       as RegisterPhases, with several outer elements that share loads    product_phases.h
//   NibblePhases        matrices of int4 times a few rows, on tensor cores                 nibble_phases.h
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "csrc/codegen/body_printer.h"

namespace ocl::codegen {

class PhasePrinter {
 public:
  virtual ~PhasePrinter() = default;
  /// Prints all phases at the body's innermost level.
  virtual void print();

 protected:
  PhasePrinter(BodyPrinter& body, const schedule::Group& group) : body_(body), group_(group) {}

  /// Prints the loops over r* of an inner phase.
  virtual void print_inner(const schedule::Phase& phase) = 0;
  /// Returns the condition under which a work-item stores values that exist once per outer element, so that only one
  /// work-item stores them. "": no condition.
  virtual std::string store_condition() const { return ""; }

  void print_outer(const schedule::Phase& phase);
  /// Prints the stores of the first phase, whose reductions are finished, and all phases after it. These are outer ones.
  void print_outer_phases();
  /// Prints the pending stores: the results of a phase, once per outer element.
  void store_results();

  BodyPrinter& body_;
  const schedule::Group& group_;
};

/// How the items of a GPU work-group share a reduction. `items` items stride over r*; `rows` outer elements are
/// computed side by side.
///   kRow     lane = item % items: neighbouring items have neighbouring r*
///   kColumn  lane = item / rows: neighbouring items have neighbouring i*
struct Sharing {
  int items = 1;  // 1: a reduction is not shared.
  int rows = 1;
  bool column = false;
  std::string lane;             // The variable with this item's position along r*.
  std::string store_condition;  // The condition for storing results. "": no condition.
  std::string row_exists;       // The condition under which this item's outer element exists. "": always.

  /// Returns the position of the first item of this item's outer element in an array of all items. `items` is a power of two.
  /// PoCL 3.1 computes `item - lane` wrong after a barrier in a branch.
  std::string first_item() const;
};

/// One of the elements, or vectors of elements, that an item loads at once. Each pass over the slots prints a slot at a
/// level of its own; the next pass resumes the level.
struct Slot {
  std::map<ir::Symbol, std::string> names;
  std::string condition;  // The condition under which the row has the slot's elements. "": always.
  BodyPrinter::SavedLevel saved;
};
/// Opens a level for each slot (vectors of `width` along r0) and calls `visit` to print there. `keep`: the text stays
/// in scope, so that the next pass can use the values.
void visit_slots(BodyPrinter& body, std::vector<Slot>& slots, int width, bool keep,
                 const std::function<void(const Slot&)>& visit);

/// Prints under `if (condition)`. "": without a condition.
void print_guarded(BodyPrinter& body, const std::string& condition, const std::function<void()>& print);

}  // namespace ocl::codegen
