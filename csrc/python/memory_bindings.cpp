// csrc/python/memory_bindings.cpp: the C++ functions that device/memory.py calls: statistics, limits, and snapshots with call
// sites.
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "csrc/python/fields.h"
#include "csrc/python/pch.h"
#include "csrc/runtime/device/free_memory.h"
#include "csrc/runtime/memory/allocator.h"
#include "csrc/torch/device_state.h"
#include "csrc/torch/host_allocator.h"

namespace torch {
// Declared in torch/csrc/profiler/python/combined_traceback.h. That header includes a JSON library that not every torch
// ships.
TORCH_API std::vector<pybind11::object> py_symbolize(std::vector<CapturedTraceback*>& to_symbolize);
}  // namespace torch

namespace ocl::python {
namespace {

using runtime::CallSite;

std::map<std::string, int64_t> memory_stats(int index) {
  const runtime::MemoryStats stats = aten::device_at(index).allocator().stats();
  const auto allocated = stats.allocated_bytes.all(), reserved = stats.reserved_bytes.all();
  return {{"allocated", allocated.current},
          {"allocated_peak", allocated.peak},
          {"reserved", reserved.current},
          {"reserved_peak", reserved.peak}};
}

CallSite python_call_site() { return torch::CapturedTraceback::gather(/*python=*/true, /*script=*/false, /*cpp=*/false); }

void record_memory_history(bool sites, size_t most_events) {
  runtime::set_memory_history({sites, most_events, sites ? &python_call_site : nullptr});
}

/// Converts call sites to lists of frames. All sites are collected first, because symbols are looked up together.
class Frames {
 public:
  /// Makes resolve() set dict["frames"] to the frames of `site`, with `purpose` as the innermost frame.
  void add(py::dict dict, const CallSite& site, const runtime::PurposeText& purpose = nullptr) {
    dict["frames"] = py::list();
    if (site) {
      sites_.push_back(static_cast<torch::CapturedTraceback*>(site.get()));
      of_site_.push_back(dict);
    }
    if (purpose) with_purpose_.emplace_back(std::move(dict), *purpose);
  }
  void resolve() {
    const std::vector<py::object> frames = torch::py_symbolize(sites_);
    for (size_t i = 0; i < frames.size(); ++i) of_site_[i]["frames"] = frames[i].attr("copy")();
    for (auto& [dict, purpose] : with_purpose_) {
      py::dict frame;
      frame["name"] = purpose;
      frame["filename"] = "torch_ocl_compile";
      frame["line"] = 0;
      py::list(dict["frames"]).insert(0, frame);
    }
  }

 private:
  std::vector<torch::CapturedTraceback*> sites_;
  std::vector<py::dict> of_site_;
  std::vector<std::pair<py::dict, std::string>> with_purpose_;
};

const char* name_of(runtime::BlockState state) {
  static constexpr const char* kNames[] = {"active_allocated", "active_awaiting_free", "inactive"};
  return kNames[static_cast<int>(state)];
}

const char* name_of(runtime::MemoryAction action) {
  static constexpr const char* kNames[] = {"alloc", "free_requested", "free_completed", "segment_alloc", "segment_free",
                                           "oom",   "snapshot"};
  return kNames[static_cast<int>(action)];
}

py::dict dict_of(const runtime::SegmentInfo& segment, int device, Frames& frames) {
  int64_t allocated = 0, active = 0, requested = 0;
  py::list blocks;
  for (const runtime::BlockInfo& block : segment.blocks) {
    py::dict b;
    b["address"] = block.address;
    b["size"] = block.bytes;
    b["requested_size"] = block.requested;
    b["state"] = name_of(block.state);
    frames.add(b, block.site, block.purpose);
    blocks.append(b);
    requested += block.requested;
    if (block.state == runtime::BlockState::kAllocated) allocated += block.bytes;
    if (block.state != runtime::BlockState::kInactive) active += block.bytes;
  }
  py::dict s;
  s["device"] = device;
  s["address"] = segment.address;
  s["total_size"] = segment.bytes;
  s["allocated_size"] = allocated;
  s["active_size"] = active;
  s["requested_size"] = requested;
  s["stream"] = segment.stream;
  s["segment_type"] = segment.small ? "small" : "large";
  s["segment_pool_id"] = py::make_tuple(0, 0);
  s["is_expandable"] = false;
  frames.add(s, segment.site);
  s["blocks"] = blocks;
  return s;
}

py::dict dict_of(const runtime::MemoryEvent& event, Frames& frames) {
  py::dict e;
  e["action"] = name_of(event.action);
  if (event.action == runtime::MemoryAction::kOom)
    e["device_free"] = event.device_free;
  else
    e["addr"] = event.address;
  e["size"] = event.bytes;
  e["stream"] = event.stream;
  e["time_us"] = event.time_us;
  e["pool_id"] = py::make_tuple(0, 0);
  frames.add(e, event.site, event.purpose);
  return e;
}

/// Returns {"segments": the segments of all devices, "device_traces": a list of events per device}, like
/// torch.cuda.memory._snapshot().
py::dict memory_snapshot() {
  Frames frames;
  py::list segments, traces;
  std::vector<runtime::MemorySnapshot> snapshots;  // Owns the call sites.
  for (int device = 0; aten::devices_ready() && device < aten::device_count(); ++device) {
    {
      const py::gil_scoped_release release;
      snapshots.push_back(aten::device_at(device).allocator().snapshot());
    }
    py::list trace;
    for (const runtime::SegmentInfo& segment : snapshots.back().segments) segments.append(dict_of(segment, device, frames));
    for (const runtime::MemoryEvent& event : snapshots.back().events) trace.append(dict_of(event, frames));
    traces.append(trace);
  }
  frames.resolve();
  py::dict d;
  d["segments"] = segments;
  d["device_traces"] = traces;
  return d;
}

template <class Stat>
py::dict dict_of(const Stat& stat) {
  py::dict d;
  OCL_ITEMS(stat, current, peak, allocated, freed)
  return d;
}

/// Returns statistics of pinned host memory.
py::dict host_memory_stats() {
  const at::HostStats stats = aten::host_allocator()->get_stats();
  py::dict d;
  d["allocated_bytes"] = dict_of(stats.allocated_bytes);
  d["active_bytes"] = dict_of(stats.active_bytes);
  return d;
}

/// The bytes of a storage from the first to the last element of a tensor.
struct Extent {
  const c10::StorageImpl* storage;
  int64_t first, end;
};

/// Returns whether the extents of two of the tensors among the values meet.
bool any_overlap(const py::tuple& values) {
  std::vector<Extent> extents;
  extents.reserve(values.size());
  for (const py::handle value : values) {
    if (!THPVariable_Check(value.ptr())) continue;
    const at::Tensor& x = THPVariable_Unpack(value.ptr());
    // A tensor of a Python class, such as a jagged one, has no strides of its own. overlaps_of() does not count it either.
    if (x.key_set().has(c10::DispatchKey::Python) || !x.has_storage() || x.numel() == 0) continue;
    int64_t last = x.storage_offset();
    for (int64_t d = 0; d < x.dim(); ++d) last += (x.size(d) - 1) * x.stride(d);
    const int64_t bytes = x.element_size();
    extents.push_back({x.storage().unsafeGetStorageImpl(), x.storage_offset() * bytes, (last + 1) * bytes});
  }
  const std::less<const c10::StorageImpl*> before;
  std::sort(extents.begin(), extents.end(), [&](const Extent& a, const Extent& b) {
    return a.storage == b.storage ? a.first < b.first : before(a.storage, b.storage);
  });
  // Sorted by their beginnings, the first two extents that meet are neighbours.
  return std::adjacent_find(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
           return a.storage == b.storage && b.first < a.end;
         }) != extents.end();
}

}  // namespace

void bind_memory(py::module_& m) {
  using Unlocked = py::call_guard<py::gil_scoped_release>;
  m.def("any_overlap", &any_overlap, py::arg("values"));
  m.def("memory_stats", &memory_stats, py::arg("index"));
  m.def("free_memory", [](int index) { return runtime::free_memory(aten::device_at(index)); }, py::arg("index"));
  m.def("reset_peak_memory_stats", [](int index) { aten::device_at(index).allocator().reset_peaks(); }, py::arg("index"));
  m.def("empty_cache", [](int index) { aten::device_at(index).allocator().empty_cache(); }, py::arg("index"), Unlocked());
  m.def(
      "set_memory_fraction", [](int index, double fraction) { aten::device_at(index).allocator().set_fraction(fraction); },
      py::arg("index"), py::arg("fraction"));
  m.def("memory_fraction", [](int index) { return aten::device_at(index).allocator().fraction(); }, py::arg("index"));
  m.def("memory_snapshot", &memory_snapshot);
  m.def("record_memory_history", &record_memory_history, py::arg("sites"), py::arg("most_events"));
  m.def("clear_memory_history", [] {
    for (int device = 0; aten::devices_ready() && device < aten::device_count(); ++device)
      aten::device_at(device).allocator().clear_history();
  });
  m.def("host_memory_stats", &host_memory_stats);
  m.def(
      "reset_host_memory_stats",
      [](bool peaks) {
        peaks ? aten::host_allocator()->reset_peak_stats() : aten::host_allocator()->reset_accumulated_stats();
      },
      py::arg("peaks"));
}

}  // namespace ocl::python
