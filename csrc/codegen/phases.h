// csrc/codegen/phases.h: prints the phases of a group for one outer element, or for one vector of them: what stands inside the
// loops over i*. One class per strategy for the loops over r*:
//
//   SequentialPhases   one element after the other                                   sequential_phases.h
//   SideBySidePhases   the same for several neighbouring vectors of outer elements   sequential_phases.h
//   LanePhases         vector lanes along the last r* (rows on CPUs)                 lane_phases.h
//   WorkGroupPhases    the items of a GPU work-group stride over r*                  work_group_phases.h
//   RegisterPhases     the same, and the items keep the row in registers             register_phases.h
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "csrc/codegen/body.h"

namespace ocl::codegen {

class PhasePrinter {
 public:
  virtual ~PhasePrinter() = default;
  /// Prints all phases, at the body's innermost level.
  virtual void print();

 protected:
  PhasePrinter(BodyPrinter& body, const schedule::Group& group) : body_(body), group_(group) {}

  /// The loops over r* of an inner phase.
  virtual void print_inner(const schedule::Phase& phase) = 0;
  /// Condition under which values that exist once per outer element are stored, "" for always.
  virtual std::string store_condition() const { return ""; }

  void print_outer(const schedule::Phase& phase);
  /// Prints the stores that wait: results of a phase, once per outer element.
  void store_results();

  BodyPrinter& body_;
  const schedule::Group& group_;
};

/// How the items of a GPU work-group share a reduction: `items` of them stride over r*, `rows` outer elements are side by side.
///   kRow: lane = local id 0 (r* contiguous across items)     kColumn: lane = local id 1 (i* contiguous across items)
struct Sharing {
  int items = 1;  // 1: no sharing
  int rows = 1;
  bool column = false;
  std::string lane;             // name of this item's position along r*
  std::string store_condition;  // under which results are stored, "" for always
  std::string row_exists;       // condition under which this item's outer element exists, "" for always
};

/// An element, or a vector of elements, of those that an item takes at once. Passes over the slots print each at a level of its
/// own, which the next pass resumes.
struct Slot {
  std::map<ir::Symbol, std::string> names;
  std::string condition;  // under which the row reaches so far, "" for always
  BodyPrinter::SavedLevel saved;
};
/// Opens a level for each slot, of vectors of `width` along r0, where `visit` prints. With `keep` the text stays in scope, so
/// that the next pass finds the values.
void visit_slots(BodyPrinter& body, std::vector<Slot>& slots, int width, bool keep,
                 const std::function<void(const Slot&)>& visit);

/// Prints under `if (condition)`, unless the condition is "".
void print_guarded(BodyPrinter& body, const std::string& condition, const std::function<void()>& print);

}  // namespace ocl::codegen
