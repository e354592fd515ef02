// csrc/support/compiler_crash.h: the error for kernels on which the driver's compiler ends.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "csrc/support/error.h"

namespace ocl {

/// A kBuild error: the driver's compiler ended, with its process, on kernels, or they use what the driver computes wrongly.
/// `kernels` has their positions in the call that built them, `ops` the (op, source line) of what they compute, if it is known.
class CompilerCrash : public Error {
 public:
  CompilerCrash(std::string message, std::vector<size_t> crashed,
                std::string reason = "the compiler ended on it, also without optimisation")
      : Error(ErrorKind::kBuild, std::move(message)), kernels(std::move(crashed)), why(std::move(reason)) {}
  std::vector<size_t> kernels;
  std::string why;  // What is wrong with the kernels.
  std::vector<std::pair<std::string, std::string>> ops;
};

}  // namespace ocl
