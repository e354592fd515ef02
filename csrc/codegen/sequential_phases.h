// csrc/codegen/sequential_phases.h: phases whose loops over r* run element by element. Each lane works on its own.
#pragma once

#include "csrc/codegen/phase_reductions.h"
#include "csrc/codegen/phases.h"

namespace ocl::codegen {

/// Prints the phases of kPointwise and kSequential groups: one outer element, or one vector of them if the body has a
/// lane loop.
class SequentialPhases : public PhasePrinter {
 public:
  /// stays_scalar: true to tell the OpenCL compiler not to vectorise the innermost loop over r*.
  SequentialPhases(BodyPrinter& body, const schedule::Group& group, bool stays_scalar = false)
      : PhasePrinter(body, group), stays_scalar_(stays_scalar) {}

 protected:
  using Sets = PhaseReductions::Sets;
  /// The loops over r* of a phase while they are printed.
  struct Loops {
    PhaseReductions& reductions;
    // Accumulators of the whole loop, for each vector of outer elements.
    std::vector<Sets> totals;
    // Accumulators of one block. The same as `totals` if there are no blocks.
    std::vector<Sets> blocks;
    size_t block_loop = 0;  // The loop whose iterations are grouped into blocks.
    int64_t block = 0;      // Number of its iterations in a block. 0: no blocks.
    size_t unrolled = 0;    // Text length of the loops printed last, counting each unrolled iteration.
  };

  void print_inner(const schedule::Phase& phase) override;
  /// Number of lanes of a vector of outer elements.
  virtual int vector_width() const { return body_.lane_width(); }
  /// Prints the nodes for one element of r*, for each vector.
  virtual void step(Loops& loops);

  /// Declares accumulators for `vectors` vectors and prints the loops.
  Loops print_loops(PhaseReductions& reductions, size_t vectors);

 private:
  void choose_blocks(Loops& loops) const;
  void print_loop(Loops& loops, size_t depth);
  void print_block_loop(Loops& loops, const std::string& name, const std::string& end, const Writer& inside);
  void print_scan_loop(Loops& loops, const std::string& name, const std::string& end, const Writer& single);

  const bool stays_scalar_;
};

/// Prints several neighbouring vectors of the loop `lane`, the first at `name`. Each step of the reduction then reads
/// several consecutive cache lines, which streams from memory faster than one vector per step. For groups for which
/// vectors_per_step() is above 1.
class MultiVectorPhases : public SequentialPhases {
 public:
  MultiVectorPhases(BodyPrinter& body, const schedule::Group& group, ir::Symbol lane, std::string name, int width, int vectors)
      : SequentialPhases(body, group), lane_(lane), name_(std::move(name)), width_(width), vectors_(vectors) {}
  void print() override;

 protected:
  int vector_width() const override { return width_; }
  void step(Loops& loops) override;

 private:
  /// Calls `print` at a level of its own for vector `k`.
  void print_vector(size_t k, const std::function<void()>& print);

  const ir::Symbol lane_;
  const std::string name_;
  const int width_, vectors_;
};

/// Returns the number of neighbouring vectors of `width` elements that MultiVectorPhases should take at once; 1 if it
/// should not be used. The loop has `length` elements in each of `rows` rows.
int vectors_per_step(BodyPrinter& body, const schedule::Group& group, int64_t rows, int64_t length, int width);

}  // namespace ocl::codegen
