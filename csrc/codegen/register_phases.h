// csrc/codegen/register_phases.h: phases of rows that a GPU work-group keeps in registers.
#pragma once

#include "csrc/codegen/phase_reductions.h"
#include "csrc/codegen/phases.h"

namespace ocl::codegen {

/// The items of a work-group share the single loop r0 over `length` elements, a multiple of `width`. Each item keeps
/// its vectors of the row in registers from one phase to the next. For groups for which fits_registers() is true.
class RegisterPhases : public PhasePrinter {
 public:
  RegisterPhases(BodyPrinter& body, const schedule::Group& group, Sharing sharing, int width, int64_t length)
      : PhasePrinter(body, group), sharing_(std::move(sharing)), width_(width), length_(length) {}
  void print() override;

 protected:
  void print_inner(const schedule::Phase& phase) override;
  std::string store_condition() const override { return sharing_.store_condition; }
  void declare_slots();

  // Largest number of values in the last step of a tree, which an item merges itself.
  static constexpr int kReadAtOnce = 16;
  static constexpr int kMergedAtOnce = 8;
  const Sharing sharing_;
  const int width_;
  const int64_t length_;
  std::vector<Slot> slots_;

 private:
  /// Results of one pass, by position of the reduction.
  using Results = std::vector<std::string>;
  Results print_pass(PhaseReductions& reductions, int pass, const std::vector<size_t>& which, const Results& centres);
  void print_tree(PhaseReductions& reductions, int pass, const std::vector<size_t>& which, const Results& names);

  int trees_ = 0;  // Number of trees printed so far.
};

/// True if RegisterPhases can print every reduction of the group.
bool fits_registers(BodyPrinter& body, const schedule::Group& group);

}  // namespace ocl::codegen
