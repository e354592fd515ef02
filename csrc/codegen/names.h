// csrc/codegen/names.h: the names of the IR in this namespace.
#pragma once

#include "csrc/ir/names.h"

namespace ocl::codegen {

using namespace ir::names;

}  // namespace ocl::codegen
