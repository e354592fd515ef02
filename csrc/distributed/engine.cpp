// csrc/distributed/engine.cpp: the stages of pieces, and what happens when one fails; see engine.h.
#include "csrc/distributed/engine.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "csrc/distributed/failure.h"
#include "csrc/distributed/threads.h"
#include "csrc/runtime/device/device.h"
#include "csrc/runtime/memory/allocator.h"
#include "csrc/torch/device_state.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/host_allocator.h"

namespace ocl::distributed {

Engine::Engine(c10::intrusive_ptr<c10d::Backend> gloo, c10::intrusive_ptr<c10d::Store> store, RankNames names)
    : EngineThread(std::move(names)), gloo_(std::move(gloo)), store_(std::move(store)) {}

void Engine::submit(const std::vector<JobPtr>& jobs) {
  for (const JobPtr& job : jobs) {
    check_usable(job->work->title());
    {
      const std::lock_guard lock(mutex_);
      check_open();
      inbox_.push_back(job);
      ++unfinished_;
    }
    watch_stream(job, [self = shared_from_this()] { self->wake(); });
  }
}

void Engine::set_timeout(std::chrono::milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  if (gloo_) gloo_->setTimeout(timeout);
}

void Engine::run() {
  const at::AutoDispatchBelowADInplaceOrView no_gradients;
  uint64_t seen = 0;
  while (true) {
    std::string abort_reason;
    {
      std::unique_lock lock(mutex_);
      woken_.wait(lock, [&] { return wakes_ != seen; });
      seen = wakes_;
      for (JobPtr& job : std::exchange(inbox_, {})) {
        LaneState& lane = lanes_[job->lane];
        lane.jobs.push_back(std::move(job));
      }
      abort_reason = std::exchange(abort_reason_, {});
      if (stopping_ && unfinished_ == 0) break;
    }
    if (!abort_reason.empty()) fail(nullptr, torch_error(abort_reason, false));
    for (auto lane = lanes_.begin(); lane != lanes_.end();) {
      while (advance(lane->second)) {
      }
      lane = lane->second.jobs.empty() && lane->second.active.empty() ? lanes_.erase(lane) : std::next(lane);
    }
  }
  release_gloo();
  closed_late_.reset();
}

/// Closes the connections. A thread of its own does it, because gloo's destructor waits even for aborted works.
void Engine::release_gloo() noexcept {
  std::shared_ptr<c10::intrusive_ptr<c10d::Backend>> held;
  try {
    held = std::make_shared<c10::intrusive_ptr<c10d::Backend>>();
    {
      const std::lock_guard lock(mutex_);
      *held = std::move(gloo_);
    }
    if (*held) start_thread("to close connections", [held] { held->reset(); }).detach();
  } catch (const std::exception&) {
    if (held) closed_late_ = std::move(*held);  // Peers then learn of the failure when they time out.
  }
}

/// Does the next step for the pieces of a lane. Returns false if no step is possible yet.
bool Engine::advance(LaneState& lane) {
  JobPtr culprit;
  try {
    if (!lane.active.empty() && lane.active.front().piece->done) {
      Active first = std::move(lane.active.front());
      lane.active.pop_front();
      culprit = first.job;
      end(std::move(first));
      return true;
    }
    for (Active& active : lane.active) {
      if (active.piece->posted) continue;
      if (!active.piece->downloaded) break;
      if (active.piece->after_previous && &active != &lane.active.front()) break;
      culprit = active.job;
      post(active);
      return true;
    }
    if (!lane.jobs.empty() && lane.jobs.front()->ready && lane.active.size() < kWindow) {
      culprit = lane.jobs.front();
      begin(lane);
      return true;
    }
  } catch (...) {
    fail(culprit, std::current_exception());
  }
  return false;
}

void Engine::begin(LaneState& lane) {
  const JobPtr job = lane.jobs.front();
  if (job->error) std::rethrow_exception(job->error);
  const PiecePtr piece = job->make(job->started);
  ++job->started;
  const bool last = job->started == job->pieces;
  if (last) lane.jobs.pop_front();
  lane.active.push_back({job, piece, last});
  if (!download(*job->device, *piece)) {
    piece->downloaded = true;
    return;
  }
  runtime::Queue& queue = job->device->queue(streams(*job->device).down);
  try {
    runtime::when_done(job->device->info(), queue.marker().get(), [self = shared_from_this(), piece] {
      piece->downloaded = true;
      self->wake();
    });
  } catch (...) {
    queue.finish();  // The copies write to memory of the piece, which is dropped now.
    throw;
  }
}

/// Starts the copies to the host. Returns false if all of them are done already.
bool Engine::download(runtime::Device& device, const Piece& piece) {
  bool enqueued = false;
  for (const Copy& copy : piece.downloads) {
    runtime::Allocator& allocator = device.allocator();
    if (std::byte* host = allocator.resolve(copy.device).host) {
      std::memcpy(copy.host, host, copy.bytes);
      continue;
    }
    const int stream = streams(device).down;
    runtime::Queue& queue = device.queue(stream);
    try {
      const runtime::Location from = allocator.use(copy.device, stream);
      queue.read(from.mem, from.offset_bytes, copy.host, copy.bytes, false);
    } catch (...) {
      if (enqueued) queue.finish();  // Earlier copies write to memory of the piece, which is dropped now.
      throw;
    }
    enqueued = true;
  }
  return enqueued;
}

void Engine::post(Active& active) {
  active.piece->posted = true;
  active.piece->work = active.piece->post(*gloo_);
  watch(active.piece);
}

/// Makes sure that `done` is set when gloo is done with the piece.
void Engine::watch(const PiecePtr& piece) {
  const auto self = shared_from_this();
  if (!piece->work) {
    piece->done = true;
    return;
  }
  if (!piece->needs_waiter) {
    piece->work->getFuture()->addCallback([self, piece](c10::ivalue::Future& future) {
      if (future.hasError()) piece->error = future.exception_ptr();
      piece->done = true;
      self->wake();
    });
    return;
  }
  const auto wait = [self, piece] {
    try {
      piece->work->wait();
    } catch (...) {
      piece->error = std::current_exception();
    }
    piece->done = true;
    self->wake();
  };
  start_thread("to wait for a send or receive", wait).detach();
}

void Engine::end(Active active) {
  Piece& piece = *active.piece;
  if (piece.error) std::rethrow_exception(piece.error);
  if (piece.finish) piece.finish();
  runtime::Device* device = active.job->device;
  for (const Copy& copy : piece.uploads) {
    const int stream = streams(*device).up;
    runtime::Allocator& allocator = device->allocator();
    const runtime::Location to = allocator.use(copy.device, stream);
    if (to.host != nullptr) {
      std::memcpy(to.host, copy.host, copy.bytes);
    } else {
      runtime::Queue& queue = device->queue(stream);
      queue.write(to.mem, to.offset_bytes, copy.host, copy.bytes, false);
      aten::hold_until_done(copy.host, queue);
      queue.flush();
    }
  }
  if (!active.last) return;
  if (device != nullptr)
    for (const at::Tensor& tensor : active.job->work->result())
      if (tensor.numel() > 0) device->allocator().wrote(tensor.storage().data(), streams(*device).up);
  const int source = active.job->has_source && piece.work ? piece.work->sourceRank() : -1;
  // This comes before complete(), because a callback of the future may destroy the group.
  {
    const std::lock_guard lock(mutex_);
    --unfinished_;
    ++wakes_;
  }
  active.job->work->complete(device != nullptr ? streams(*device).up : 0, source);
}

Engine::Streams Engine::streams(runtime::Device& device) {
  const auto found = streams_.find(device.index());
  if (found != streams_.end()) return found->second;
  return streams_.emplace(device.index(), Streams{device.next_stream(), device.next_stream()}).first->second;
}

/// Returns the text of an error of `culprit`. Tells the other ranks, and asks them whether they failed too.
std::string Engine::describe(const JobPtr& culprit, const std::string& reason) {
  // Closing the connections tells peers that wait for this rank that it gave up.
  for (auto& [key, lane] : lanes_)
    for (const Active& active : lane.active)
      if (active.piece->work && active.piece->needs_waiter) active.piece->work->abort();
  release_gloo();
  return describe_failure(*culprit->work, reason, *store_, names_);
}

/// Fails every job of the group. `culprit` is the job that failed; null if the group was aborted. Errors in this
/// function are ignored, because memory may be short: every job learns of the failure, but perhaps without the full
/// text.
void Engine::fail(const JobPtr& culprit, const std::exception_ptr& error) noexcept {
  std::string message;
  std::exception_ptr thrown = error;
  attempt([&] {
    message = message_of(error);
    if (culprit) message = describe(culprit, message);
    thrown = torch_error(message, culprit && is_out_of_memory(error));
  });
  std::vector<JobPtr> refused;
  {
    const std::lock_guard lock(mutex_);
    refuse(message);
    refused.swap(inbox_);
    unfinished_ = 0;
    ++wakes_;
  }
  const auto give_up = [&](const JobPtr& job) { attempt([&] { job->work->fail(thrown, message); }); };
  if (culprit) give_up(culprit);
  for (auto& [key, lane] : lanes_) {
    for (const Active& active : lane.active) give_up(active.job);
    for (const JobPtr& job : lane.jobs) give_up(job);
    lane.active.clear();
    lane.jobs.clear();
  }
  for (const JobPtr& job : refused) give_up(job);
}

}  // namespace ocl::distributed
