// csrc/support/group_refused.h: the error for kernels that the driver grants fewer work-items than they need.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "csrc/support/error.h"

namespace ocl {

/// A kBuild error: a driver grants each kernel as many work-items as it has registers for. `most_items` has the number that it
/// grants, for the positions of the kernels in the call that built them. All others are built.
class GroupRefused : public Error {
 public:
  GroupRefused(const std::string& message, std::map<size_t, size_t> granted)
      : Error(ErrorKind::kBuild, message), most_items(std::move(granted)) {}
  std::map<size_t, size_t> most_items;
};

}  // namespace ocl
