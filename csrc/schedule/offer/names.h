// csrc/schedule/offer/names.h: the names of the IR in this namespace.
#pragma once

#include "csrc/ir/names.h"

namespace ocl::schedule {

using namespace ir::names;

}  // namespace ocl::schedule
