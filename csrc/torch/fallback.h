// csrc/torch/fallback.h: what ran on the CPU instead, by op.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace ocl::aten {

std::map<std::string, int64_t> fallback_counts();
void reset_fallback_counts();
void set_fallback_warnings(bool on);

}  // namespace ocl::aten
