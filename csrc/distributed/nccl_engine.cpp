// csrc/distributed/nccl_engine.cpp: runs collectives with NCCL; see nccl_engine.h.
#include "csrc/distributed/nccl_engine.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <set>
#include <thread>
#include <utility>

#include "csrc/distributed/failure.h"
#include "csrc/runtime/memory/allocator.h"
#include "csrc/runtime/queues/queue.h"
#include "csrc/torch/device_state.h"

namespace ocl::distributed {
namespace {

constexpr std::chrono::seconds kLookAtPeers{1};
constexpr const char* kFailedKey = "failed";
constexpr size_t kMostStarted = 64;
// A batch starts even if nobody waits for it when its inputs have been ready for this time: other ranks may wait.
constexpr std::chrono::milliseconds kLongestHold{200};
// The thread looks for the next step without a pause at first, because most collectives are short.
constexpr int kLooksWithoutPause = 2000;
constexpr std::chrono::microseconds kBetweenLooks{30};

/// The engines of this process, which Queue's observer notifies of waits.
struct Engines {
  std::mutex mutex;
  std::set<NcclEngine*> all;
};
Engines& engines() {
  static auto* instance = new Engines;
  return *instance;
}

/// Batches are dropped without a lock: their tensors may belong to Python, and a thread that has Python's lock may want ours.
void notify_engines(runtime::Queue& queue) {
  std::vector<NcclEngine::Batches> batches;
  const std::lock_guard lock(engines().mutex);
  for (NcclEngine* engine : engines().all) batches.push_back(engine->expect_wait(queue));
}

size_t span_bytes(const Span& span) { return static_cast<size_t>(span.count) * span.element_bytes(); }
size_t buffer_bytes(const NcclBuffer& buffer) {
  size_t bytes = 0;
  for (const Span& span : buffer.spans) bytes += span_bytes(span);
  return bytes;
}

/// Returns CUDA's address of a buffer that is one piece of memory of both, and otherwise 0.
uint64_t cuda_address(const NcclBuffer& buffer, const runtime::Allocator& allocator) {
  if (buffer.spans.size() != 1 || buffer.spans.front().address == nullptr) return 0;
  return allocator.cuda_address(buffer.spans.front().address);
}

/// Removes complete events. Returns true if none is left.
bool all_done(std::vector<runtime::EventHandle>& events) {
  while (!events.empty() && runtime::is_done(events.back().get())) events.pop_back();
  return events.empty();
}

}  // namespace

/// A copy on the device.
struct NcclEngine::Copy {
  runtime::Location from, to;
  size_t bytes;
};

/// Jobs of one group of NCCL calls. A batch is held, then copied in (if needed), then under way, then copied back (if needed).
struct NcclEngine::Batch {
  std::vector<JobPtr> jobs;
  std::exception_ptr error = nullptr;            // Why it cannot start.
  std::vector<std::vector<uint64_t>> addresses;  // CUDA's addresses of what NCCL gets, for each job and buffer.
  std::vector<void*> blocks;                     // Copies of buffers, which NCCL gets instead of the tensors.
  std::vector<Copy> in, back;                    // To these blocks, and from them.
  bool held = true;                              // False for sends and receives: a pipeline's next stage waits for them.
  runtime::EventHandle ready;                    // Complete when the inputs are there.
  std::chrono::steady_clock::time_point ready_at{};
  Events before;                                // Work that is to be done before the batch starts.
  bool is_wanted = false;                       // True if something waits for a result. `before` does not change any more.
  runtime::EventHandle copied_in, copied_back;  // Null until the copies are enqueued.
  std::unique_ptr<runtime::CudaEvent> done;
};

NcclEngine::NcclEngine(std::unique_ptr<NcclCommunicator> communicator, runtime::Device& device,
                       c10::intrusive_ptr<c10d::Store> store, RankNames names, std::chrono::milliseconds timeout)
    : EngineThread(std::move(names)),
      communicator_(std::move(communicator)),
      device_(device),
      store_(std::move(store)),
      results_(device.take_apart()),
      copies_(device.take_apart()),
      timeout_(timeout) {
  device_.allocator().prefer_cuda();
  runtime::Queue::observe_waits(&notify_engines);
  const std::lock_guard lock(engines().mutex);
  engines().all.insert(this);
}

NcclEngine::~NcclEngine() {
  {
    const std::lock_guard lock(engines().mutex);
    engines().all.erase(this);
  }
  device_.give_back(results_);
  device_.give_back(copies_);
}

void NcclEngine::submit(const std::vector<JobPtr>& jobs) {
  if (jobs.empty()) return;
  const std::lock_guard submitting(submitting_);
  const auto batch = std::make_shared<Batch>();
  batch->jobs = jobs;
  batch->held = std::all_of(jobs.begin(), jobs.end(),
                            [](const JobPtr& job) { return std::get<LaneKind>(job->lane) == LaneKind::kCollective; });
  {
    const std::lock_guard lock(mutex_);
    check_open();
  }
  try {
    // Memory is found here and not in the thread, which may not wait: work that the device does may wait for the thread.
    for (const JobPtr& job : jobs) {
      batch->addresses.emplace_back();
      for (const NcclBuffer& buffer : job->nccl->buffers) batch->addresses.back().push_back(place(buffer, *batch));
    }
    batch->ready = aten::current_queue(device_.index()).last_work();
    for (const JobPtr& job : jobs) {
      for (const at::Tensor& tensor : job->work->result())
        if (tensor.numel() > 0) device_.allocator().wrote(tensor.storage().data(), results_);
      job->work->enqueue(results_);
    }
  } catch (...) {
    batch->error = std::current_exception();  // The group fails, so that other ranks do not wait for this one.
  }
  {
    const std::lock_guard lock(mutex_);
    inbox_.push_back(batch);
  }
  wake();
  if (batch->error) std::rethrow_exception(batch->error);
}

NcclEngine::Batches NcclEngine::expect_wait(runtime::Queue& queue) {
  if (&queue.device() != &device_.info()) return {};
  Batches unfinished;
  bool is_news = false;
  {
    const std::lock_guard lock(mutex_);
    unfinished = started_;
    unfinished.insert(unfinished.end(), inbox_.begin(), inbox_.end());
    is_news = std::any_of(inbox_.begin(), inbox_.end(), [](const BatchPtr& batch) { return !batch->is_wanted; });
  }
  for (const BatchPtr& batch : unfinished)
    for (const JobPtr& job : batch->jobs) job->work->add_waiting(queue);
  if (!is_news) return unfinished;
  // The events are those before the wait, which is enqueued after this call.
  const std::lock_guard lock(mutex_);
  for (const BatchPtr& batch : inbox_) {
    if (batch->is_wanted) continue;
    batch->before = device_.work_so_far();
    batch->is_wanted = true;
  }
  return unfinished;
}

void NcclEngine::set_timeout(std::chrono::milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  timeout_ = timeout;
}

void NcclEngine::run() {
  const at::AutoDispatchBelowADInplaceOrView no_gradients;
  const runtime::CudaContextGuard context(runtime::CudaDevice::of(device_.info()));
  uint64_t seen = 0;
  int looks = 0;  // Without a step, one after the other.
  while (true) {
    std::string abort_reason;
    {
      std::unique_lock lock(mutex_);
      const auto news = [&] { return wakes_ != seen; };
      if (started_.empty() && inbox_.empty())
        woken_.wait(lock, [&] { return news() || stopping_; });
      else if (looks > kLooksWithoutPause)
        woken_.wait_for(lock, kBetweenLooks, news);
      seen = wakes_;
      abort_reason = std::exchange(abort_reason_, {});
      if (abort_reason.empty() && stopping_ && inbox_.empty() && started_.empty()) break;
    }
    try {
      if (!abort_reason.empty()) TORCH_CHECK_WITH(DistBackendError, false, abort_reason);
      if (advance())
        looks = 0;
      else if (++looks < kLooksWithoutPause)
        std::this_thread::yield();
    } catch (...) {
      fail(std::current_exception());
    }
  }
  communicator_.reset();
}

/// Does the next step of a batch. Returns false if there is none yet.
bool NcclEngine::advance() { return end_first() || start_next(); }

bool NcclEngine::end_first() {
  if (started_.empty()) return false;
  const BatchPtr held = started_.front();  // Dropped without the mutex, see notify_engines().
  Batch& first = *held;
  if (!first.done->complete()) {
    communicator_->check_running();
    give_up_if_hopeless();
    return false;
  }
  if (!first.back.empty() && !first.copied_back) first.copied_back = enqueue(first.back);
  if (first.copied_back && !runtime::is_done(first.copied_back.get())) return false;
  complete(first);
  {
    const std::lock_guard lock(mutex_);
    started_.pop_front();
  }
  restart_clock();
  return true;
}

bool NcclEngine::start_next() {
  BatchPtr next;
  {
    const std::lock_guard lock(mutex_);
    if (!inbox_.empty() && started_.size() < kMostStarted) next = inbox_.front();
  }
  if (!next) return false;
  if (next->error) std::rethrow_exception(next->error);
  if (!may_start(*next)) return false;
  if (!next->in.empty() && !next->copied_in) next->copied_in = enqueue(next->in);
  if (next->copied_in && !runtime::is_done(next->copied_in.get())) return false;
  if (started_.empty()) restart_clock();
  launch(*next);
  const std::lock_guard lock(mutex_);
  started_.push_back(next);
  inbox_.pop_front();
  return true;
}

/// True if the inputs of a batch are there, and the GPU has nothing else to do or a result is needed.
bool NcclEngine::may_start(Batch& batch) {
  if (!runtime::is_done(batch.ready.get())) return false;
  const auto now = std::chrono::steady_clock::now();
  if (batch.ready_at == std::chrono::steady_clock::time_point{}) batch.ready_at = now;
  if (!batch.held || batch.copied_in || now - batch.ready_at > kLongestHold) return true;
  const std::lock_guard lock(mutex_);
  if (!all_done(batch.before)) return false;
  if (batch.is_wanted) return true;
  batch.before = device_.work_so_far();
  return batch.before.empty();
}

/// The timeout of the oldest batch begins now.
void NcclEngine::restart_clock() {
  const std::lock_guard lock(mutex_);
  deadline_ = std::chrono::steady_clock::now() + timeout_;
}

/// Throws if the group was aborted, if the work takes too long, or if another rank has failed.
void NcclEngine::give_up_if_hopeless() {
  const auto now = std::chrono::steady_clock::now();
  {
    const std::lock_guard lock(mutex_);
    if (!abort_reason_.empty()) TORCH_CHECK_WITH(DistBackendError, false, std::exchange(abort_reason_, {}));
    TORCH_CHECK_WITH(DistBackendError, now < deadline_, "it took longer than the timeout of ", timeout_.count(), " ms");
  }
  if (now < next_look_) return;
  next_look_ = now + kLookAtPeers;
  TORCH_CHECK_WITH(DistBackendError, !store_->check({kFailedKey}), "another rank failed");
}

/// Returns CUDA's address of what NCCL gets for a buffer: the tensor's own memory or a copy, whose copies it adds to the batch.
uint64_t NcclEngine::place(const NcclBuffer& buffer, Batch& batch) {
  runtime::Allocator& allocator = device_.allocator();
  const size_t bytes = buffer_bytes(buffer);
  if (bytes == 0) return 0;
  if (const uint64_t address = cuda_address(buffer, allocator)) return address;
  batch.blocks.push_back(allocator.allocate(bytes, copies_, runtime::Sharing::kCuda));
  runtime::Location block = allocator.resolve(batch.blocks.back());
  for (const Span& span : buffer.spans) {
    const size_t part = span_bytes(span);
    if (part == 0 || span.address == nullptr) continue;
    const runtime::Location tensor = allocator.use(span.address, copies_);
    if (buffer.use != Use::kWrite) batch.in.push_back({tensor, block, part});
    if (buffer.use != Use::kRead) batch.back.push_back({block, tensor, part});
    block.offset_bytes += part;
  }
  return allocator.cuda_address(batch.blocks.back());
}

/// Enqueues copies. Returns an event that is complete after them.
runtime::EventHandle NcclEngine::enqueue(const std::vector<Copy>& copies) {
  runtime::Queue& queue = device_.queue(copies_);
  for (const auto& [from, to, bytes] : copies) queue.copy(from.mem, from.offset_bytes, to.mem, to.offset_bytes, bytes);
  return queue.last_work();
}

/// Gives a batch to NCCL.
void NcclEngine::launch(Batch& batch) {
  const auto calls = [&] {
    for (size_t i = 0; i < batch.jobs.size(); ++i) batch.jobs[i]->nccl->enqueue(*communicator_, batch.addresses[i]);
  };
  communicator_->enqueue(calls, [this] { give_up_if_hopeless(); });
  batch.done = std::make_unique<runtime::CudaEvent>(communicator_->stream());
}

/// Lets the waiting streams go on. Calls the allocator only afterwards: a thread that holds it may wait for these streams.
void NcclEngine::complete(Batch& batch) {
  for (const JobPtr& job : batch.jobs) job->work->complete_enqueued();
  free_resources(batch);
  for (const JobPtr& job : batch.jobs)
    for (const at::Tensor& tensor : job->work->result())
      if (tensor.numel() > 0) device_.allocator().wrote(tensor.storage().data(), results_);
}

/// Frees what needs the thread's CUDA context, since another thread may drop the batch last, and the copies.
void NcclEngine::free_resources(Batch& batch) noexcept {
  batch.done.reset();
  for (void* block : std::exchange(batch.blocks, {})) device_.allocator().free(block);
}

/// Fails every job of the group. Errors in this function are ignored: every job learns of the failure, but perhaps
/// without the full text.
void NcclEngine::fail(const std::exception_ptr& error) noexcept {
  communicator_->abort();  // Afterwards CUDA does not use the memory any more.
  std::deque<BatchPtr> failed;
  {
    const std::lock_guard lock(mutex_);
    failed.swap(started_);
    failed.insert(failed.end(), inbox_.begin(), inbox_.end());
    inbox_.clear();
  }
  std::string message;
  std::exception_ptr thrown = error;
  attempt([&] {
    message = message_of(error);
    if (!failed.empty()) {
      store_->set(kFailedKey, names_.of(names_.rank));
      message = describe_failure(*failed.front()->jobs.front()->work, message, *store_, names_);
    }
    thrown = torch_error(message, is_out_of_memory(error));
  });
  {
    const std::lock_guard lock(mutex_);
    refuse(message);
    failed.insert(failed.end(), inbox_.begin(), inbox_.end());
    inbox_.clear();
  }
  for (const BatchPtr& batch : failed)
    for (const JobPtr& job : batch->jobs) attempt([&] { job->work->fail(thrown, message); });
  for (const BatchPtr& batch : failed) free_resources(*batch);
}

}  // namespace ocl::distributed
