// csrc/exec/observers.h: which observers a plan's runs have.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "csrc/exec/observer.h"

namespace ocl::exec {

/// Sets the function that makes the observer of a plan with PlanOptions::check. Python calls this before it makes such
/// a plan (torch_ocl_compile/compile/check.py).
using ObserverFactory = std::function<std::shared_ptr<Observer>(const RunState&)>;
void set_check_factory(ObserverFactory factory);
/// Returns the observers that the plan's options ask for; usually none.
std::vector<std::shared_ptr<Observer>> observers_of(const RunState& state);

}  // namespace ocl::exec
