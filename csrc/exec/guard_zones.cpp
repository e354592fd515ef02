// csrc/exec/guard_zones.cpp: see guard_zones.h.
#include "csrc/exec/guard_zones.h"

#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "csrc/runtime/memory/allocator.h"
#include "csrc/runtime/queues/queue.h"

namespace ocl::exec {
namespace {

constexpr uint8_t kFresh = 0xFF;
// 0xFFA5 in each 16 bits. It is NaN for every floating-point type, and differs from the pattern of fresh memory.
constexpr uint8_t kZone[2] = {0xA5, 0xFF};

const std::array<uint8_t, kGuardBytes>& zone_pattern() {
  static const auto pattern = [] {
    std::array<uint8_t, kGuardBytes> bytes{};
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = kZone[i % 2];
    return bytes;
  }();
  return pattern;
}

/// A buffer with a guard zone on each side, and the steps at which it is live.
struct Guarded {
  std::string name;
  char* address = nullptr;
  int64_t bytes = 0, element_bytes = 1;
  int first = 0, last = 0;
};

class GuardZones final : public Observer {
 public:
  explicit GuardZones(const RunState& state) : state_(state), plan_(state.plan) {}

  void begin(const RunMemory& memory) override {
    stream_ = memory.stream;
    guarded_.clear();
    const int end = std::numeric_limits<int>::max();
    for (size_t i = 0; i < memory.outputs.size(); ++i)
      if (memory.outputs[i])
        add(plan_.schedule.allocations[i], {BufferSource::Kind::kOutput, static_cast<int>(i), 1, {}, 0}, memory, 0, end);
    std::vector<bool> named(plan_.intervals.size(), false);
    for (size_t b = 0; b < plan_.interval_of.size(); ++b) {
      const int interval = plan_.interval_of[b];
      if (interval == ir::kNone) continue;
      named[interval] = true;
      add_interval(static_cast<ir::BufferId>(b), interval, memory);
    }
    for (size_t i = 0; i < named.size(); ++i)
      if (!named[i]) add_interval(ir::kNone, static_cast<int>(i), memory);
  }

  void before(int step) override {
    for (const Guarded& guarded : guarded_)
      if (guarded.first == step) fill(guarded);
  }

  void after(int step) override {
    std::vector<const Guarded*> live;
    for (const Guarded& guarded : guarded_)
      if (guarded.first <= step && step <= guarded.last) live.push_back(&guarded);
    std::vector<uint8_t> found(live.size() * 2 * kGuardBytes);
    runtime::Queue& queue = plan_.device->queue(stream_);
    for (size_t i = 0; i < live.size(); ++i) {
      uint8_t* target = found.data() + i * 2 * kGuardBytes;
      const auto read = [&](const char* address, uint8_t* host) {
        const runtime::Location at = plan_.device->allocator().resolve(address);
        queue.read(at.mem, at.offset_bytes, host, kGuardBytes, /*blocking=*/false);
      };
      read(live[i]->address - kGuardBytes, target);
      read(live[i]->address + live[i]->bytes, target + kGuardBytes);
    }
    queue.finish();
    for (size_t i = 0; i < live.size(); ++i)
      for (const bool behind : {false, true}) {
        const uint8_t* zone = found.data() + (2 * i + behind) * kGuardBytes;
        if (std::memcmp(zone, zone_pattern().data(), kGuardBytes) != 0) report(step, *live[i], behind, zone);
      }
  }

  void end() override {}

 private:
  void add_interval(ir::BufferId buffer, int interval, const RunMemory& memory) {
    const schedule::Interval& life = plan_.intervals[interval];
    add(buffer, {BufferSource::Kind::kArena, interval, 1, {}, 0}, memory, life.first, life.last);
  }

  void add(ir::BufferId buffer, const BufferSource& source, const RunMemory& memory, int first, int last) {
    Guarded guarded;
    guarded.address = address_of(state_, memory, source);
    guarded.bytes = extent_bytes(state_, source);
    guarded.first = first;
    guarded.last = last;
    if (buffer == ir::kNone) {
      guarded.name = "the workspace of a kernel";
    } else {
      guarded.name = describe(buffer);
      guarded.element_bytes = ir::size_bytes(plan_.schedule.graph.buffers[buffer].dtype);
    }
    guarded_.push_back(guarded);
  }

  /// Returns "buf3, f32 [4, 8], of aten.relu.default (model.py:61)".
  std::string describe(ir::BufferId id) const {
    const ir::Graph& graph = plan_.schedule.graph;
    const ir::Buffer& buffer = graph.buffers[id];
    std::string text =
        (buffer.name.empty() ? "buffer " + std::to_string(id) : buffer.name) + ", " + ir::name(buffer.dtype) + " [";
    for (size_t d = 0; d < buffer.sizes.size(); ++d)
      text += (d ? ", " : "") + std::to_string(value_of(state_, buffer.sizes[d]));
    text += "]";
    for (const ir::Node& node : graph.nodes)
      for (const ir::BufferId written : ir::writes(node))
        if (written == id)
          return text + ", of " + node.origin.op + (node.origin.source.empty() ? "" : " (" + node.origin.source + ")");
    return text;
  }

  void fill(const Guarded& guarded) {
    runtime::Queue& queue = plan_.device->queue(stream_);
    const runtime::Location data = plan_.device->allocator().resolve(guarded.address);
    queue.fill(data.mem, data.offset_bytes, static_cast<size_t>(guarded.bytes), &kFresh, 1);
    for (const char* zone : {guarded.address - kGuardBytes, guarded.address + guarded.bytes}) {
      const runtime::Location at = plan_.device->allocator().resolve(zone);
      queue.write(at.mem, at.offset_bytes, zone_pattern().data(), kGuardBytes, /*blocking=*/false);
    }
  }

  [[noreturn]] void report(int step, const Guarded& guarded, bool behind, const uint8_t* zone) const {
    int64_t first = kGuardBytes, count = 0, last = 0;
    for (int64_t i = 0; i < kGuardBytes; ++i) {
      if (zone[i] == kZone[i % 2]) continue;
      if (count++ == 0) first = i;
      last = i;
    }
    const Step& at = plan_.steps[step];
    std::string who, origin;
    if (at.launch == ir::kNone) {
      const ir::Origin& node = plan_.schedule.graph.nodes[at.call].origin;
      who = "the op " + node.op + ", which ran eagerly,";
      origin = node.op + (node.source.empty() ? "" : " (" + node.source + ")");
    } else {
      const Launch& launch = plan_.launches[at.launch];
      who = "kernel " + launch.source.name;
      origin = launch.origin;
    }
    // `from` is the distance of the changed byte that is nearest to the buffer, in bytes from the nearer edge.
    const int64_t from = behind ? guarded.bytes + first : last - kGuardBytes;
    const int64_t element =
        from >= 0 ? from / guarded.element_bytes : -((-from + guarded.element_bytes - 1) / guarded.element_bytes);
    fail(ErrorKind::kOutOfBounds,
         who + " stored outside of its buffers on " + plan_.device->describe() + "\n  where: group " + std::to_string(step) +
             " of " + plan_.label + ": " + origin + "\n  what:  " + std::to_string(count) + " bytes changed " +
             (behind ? "behind" : "in front of") + " the buffer " + guarded.name + ", which has " +
             std::to_string(guarded.bytes) + " bytes; the nearest is at byte " + std::to_string(from) + " (element " +
             std::to_string(element) + ")\n  do:    report it with the folder that TORCH_OCL_DUMP=folder writes");
  }

  const RunState& state_;
  const Plan& plan_;
  int stream_ = 0;
  std::vector<Guarded> guarded_;
};

}  // namespace

std::shared_ptr<Observer> guard_zones(const RunState& state) { return std::make_shared<GuardZones>(state); }

}  // namespace ocl::exec
