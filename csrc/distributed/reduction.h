// csrc/distributed/reduction.h: how a ReduceOp is computed for elements of a type, by gloo or on the host.
#pragma once

#include <ATen/ATen.h>

#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace ocl::distributed {

struct Reduction {
  at::ScalarType seen = at::kFloat;     // The type as which the memory is read: bytes for bool, reals for complex numbers.
  at::ScalarType compute = at::kFloat;  // The type in which elements are combined.
  c10d::ReduceOp::RedOpType op = c10d::ReduceOp::SUM;
  std::optional<double> factor = std::nullopt;  // Each rank's elements are multiplied by it first.
  int divisor = 1;                              // The result is divided by it.

  bool converts() const { return compute != seen || factor.has_value(); }
  /// Converts elements of type `seen` to values that can be combined.
  at::Tensor prepare(const at::Tensor& elements) const;
  /// Divides combined values in place.
  void divide(at::Tensor& values) const;
  /// Combines the rows of [ranks, elements] values of type `compute`, in the order of the ranks, and divides.
  at::Tensor combine(const at::Tensor& rows) const;
};

/// Chooses how to compute a reduction. bf16 and fp16 are combined in fp32. Throws for combinations that have no meaning, such
/// as AVG of integers.
Reduction reduction_for(at::ScalarType dtype, const c10d::ReduceOp& op, int ranks, const std::string& title);

}  // namespace ocl::distributed
