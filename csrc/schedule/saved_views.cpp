// csrc/schedule/saved_views.cpp: see saved_views.h.
#include "csrc/schedule/saved_views.h"

#include <algorithm>
#include <map>
#include <optional>

#include "csrc/schedule/body.h"

namespace ocl::schedule {

using ir::Shape;
using ir::Strided;

namespace {

bool all_const(const Shape& list) {
  return std::all_of(list.begin(), list.end(), [](const IndexExpr& e) { return e.is_const(); });
}

int64_t count(const Shape& sizes) {
  int64_t n = 1;
  for (const IndexExpr& size : sizes) n *= size.constant();
  return n;
}

/// An output as a window on another buffer.
struct Window {
  size_t output;
  std::vector<std::pair<int64_t, int64_t>> dims;  // (stride, size) of the dimensions with several elements, ascending.
  Strided at;
};

/// True if two windows provably share no element. They have the same dimensions, and between the steps of some dimension, each
/// window has its own range.
bool disjoint(const Window& a, const Window& b) {
  if (a.dims != b.dims) return false;
  const int64_t distance = std::abs(a.at.offset.constant() - b.at.offset.constant());
  int64_t extent = 1;  // Elements from the first to the last of the inner dimensions.
  for (size_t k = 0; k <= a.dims.size(); ++k) {
    if (distance >= extent && (k == a.dims.size() || distance + extent <= a.dims[k].first)) return true;
    if (k < a.dims.size()) extent += (a.dims[k].second - 1) * a.dims[k].first;
  }
  return false;
}

/// True if no two elements of the window are at one address.
bool injective(const Window& window) {
  int64_t extent = 1;
  for (const auto& [stride, size] : window.dims) {
    if (stride < extent) return false;
    extent += (size - 1) * stride;
  }
  return true;
}

class SavedWindows {
 public:
  explicit SavedWindows(Schedule& schedule)
      : schedule_(schedule), graph_(schedule.graph), visible_(visible_buffers(graph_)), writers_(graph_.buffers.size()) {
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      for (const BufferId b : ir::writes(graph_.nodes[i])) writers_[b].push_back(static_cast<NodeId>(i));
  }

  void run() {
    std::map<BufferId, std::vector<Window>> windows_on;
    for (size_t i = 0; i < graph_.outputs.size(); ++i)
      if (const auto source = source_of(graph_.outputs[i]))
        if (auto window = window_on(*source, i)) windows_on[source->buffer].push_back(std::move(*window));
    bool changed = false;
    for (const auto& [buffer, windows] : windows_on) {
      if (!cover(buffer, windows)) continue;
      for (const Window& window : windows) {
        ir::Output& output = graph_.outputs[window.output];
        output.buffer = buffer;
        output.strides = window.at.strides;
        output.offset = window.at.offset;
      }
      changed = true;
    }
    if (changed) drop_dead_nodes(schedule_);
  }

 private:
  /// Returns the view that is copied into the output's buffer. The view has the buffer's sizes.
  std::optional<ir::View> source_of(const ir::Output& output) const {
    const std::vector<NodeId>& writers = writers_[output.buffer];
    if (!output.strides.empty() || output.sizes.empty() || !(output.sizes == graph_.buffers[output.buffer].sizes) ||
        writers.size() != 1)
      return std::nullopt;
    const Node& node = graph_.nodes[writers[0]];
    if (node.kind != ir::NodeKind::kMap || node.body.ops.size() != 1 || node.stores.size() != 1 ||
        !(node.sizes == output.sizes))
      return std::nullopt;
    const ir::Op& load = node.body.ops[0];
    const ir::Store& store = node.stores[0];
    if (load.code != ir::OpCode::kLoad || !load.args.empty() || is_partial(store) ||
        graph_.buffers[load.buffer].dtype != graph_.buffers[store.buffer].dtype)
      return std::nullopt;
    for (size_t d = 0; d < store.index.size(); ++d)
      if (!(store.index[d] == IndexExpr::loop(static_cast<int>(d)))) return std::nullopt;
    // What is written after the copy must not change the output.
    const std::vector<NodeId>& before = writers_[load.buffer];
    if (visible_[load.buffer] || std::any_of(before.begin(), before.end(), [&](NodeId w) { return w >= writers[0]; }))
      return std::nullopt;
    return ir::View{load.buffer, node.sizes, load.index};
  }

  std::optional<Window> window_on(const ir::View& source, size_t output) const {
    if (!all_const(source.sizes) || !all_const(graph_.buffers[source.buffer].sizes)) return std::nullopt;
    auto at = ir::strided(graph_, source);
    if (!at || !at->offset.is_const() || !all_const(at->strides)) return std::nullopt;
    Window window{output, {}, std::move(*at)};
    for (size_t d = 0; d < source.sizes.size(); ++d)
      if (source.sizes[d].constant() > 1) window.dims.emplace_back(window.at.strides[d].constant(), source.sizes[d].constant());
    std::sort(window.dims.begin(), window.dims.end());
    return injective(window) ? std::optional(window) : std::nullopt;
  }

  /// True if the windows are disjoint and hold all elements of the buffer.
  bool cover(BufferId buffer, const std::vector<Window>& windows) const {
    int64_t elements = 0;
    for (size_t a = 0; a < windows.size(); ++a) {
      elements += count(graph_.outputs[windows[a].output].sizes);
      for (size_t b = 0; b < a; ++b)
        if (!disjoint(windows[a], windows[b])) return false;
    }
    return elements == count(graph_.buffers[buffer].sizes);
  }

  Schedule& schedule_;
  Graph& graph_;
  const std::vector<bool> visible_;
  std::vector<std::vector<NodeId>> writers_;
};

}  // namespace

void return_saved_windows(Schedule& schedule) { SavedWindows(schedule).run(); }

}  // namespace ocl::schedule
