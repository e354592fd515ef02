// csrc/runtime/device/device_facts.h: what a device and its platform say about themselves, for reports.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace ocl::runtime {

class Device;

/// A number or a text by the name of OpenCL's constant, in lower case and without CL_: ("device_max_clock_frequency", 1980).
using DeviceFact = std::pair<std::string, std::variant<int64_t, std::string>>;

/// Returns the answers to all queries of OpenCL 1.2 and to some later ones. A query that the device does not know is left
/// out. Sizes in several dimensions are a text, "1024 1024 64".
std::vector<DeviceFact> device_facts(const Device& device);

}  // namespace ocl::runtime
