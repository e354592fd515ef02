// csrc/distributed/collectives.cpp: turns each collective of a group into pieces and calls of gloo.
#include <algorithm>

#include "csrc/distributed/group.h"
#include "csrc/distributed/pieces.h"
#include "csrc/torch/errors.h"

namespace ocl::distributed {
namespace {

using c10d::OpType;
using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;

Tensors concat(const TensorLists& lists, const Tensors& more) {
  Tensors all = more;
  for (const Tensors& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

void refuse(const char* title, const std::string& what) {
  aten::at_boundary([&] { fail(ErrorKind::kConfig, std::string(title) + ": " + what); });
}

void check_one(const char* title, size_t count) {
  if (count != 1) refuse(title, "takes one tensor of each rank, not " + std::to_string(count));
}

std::vector<Span> spans_of(const Tensors& tensors) {
  std::vector<Span> spans;
  for (const at::Tensor& tensor : tensors) spans.push_back(span_of(tensor).seen_as(at::kByte));
  return spans;
}

std::vector<Span> slices(const std::vector<Span>& spans, int64_t start, int64_t most) {
  std::vector<Span> result;
  for (const Span& span : spans) result.push_back(span.slice(start, most));
  return result;
}

/// Cuts a span into `ranks` equal parts.
std::vector<Span> parts_of(const Span& span, int ranks) {
  std::vector<Span> parts;
  for (int rank = 0; rank < ranks; ++rank) parts.push_back(span.slice(span.count / ranks * rank, span.count / ranks));
  return parts;
}

/// Lists the pieces of several tensors, one tensor after the other. Each entry is (tensor, number of the piece in it).
struct PieceTable {
  std::vector<std::pair<int, int>> pieces;
  void add(int tensor, int count) {
    for (int i = 0; i < count; ++i) pieces.emplace_back(tensor, i);
  }
};

template <class Options>
Options with_timeout(std::chrono::milliseconds timeout) {
  Options options;
  options.timeout = timeout;
  return options;
}

/// Cuts a tensor along its first dimension into parts of the given sizes, or into `ranks` equal parts if `sizes` is empty.
std::vector<Span> split_rows(const char* title, const at::Tensor& tensor, const std::vector<int64_t>& sizes, int ranks) {
  const Span span = span_of(tensor).seen_as(at::kByte);
  if (sizes.empty()) {
    if (tensor.numel() > 0 && tensor.size(0) % ranks != 0)
      refuse(title, "dimension 0 has " + std::to_string(tensor.size(0)) + " rows, which " + std::to_string(ranks) +
                        " ranks cannot share; give split sizes");
    return parts_of(span, ranks);
  }
  const int64_t rows = tensor.dim() > 0 ? tensor.size(0) : 1;
  int64_t total = 0;
  for (const int64_t size : sizes) total += size;
  if (static_cast<int>(sizes.size()) != ranks || total != rows)
    refuse(title, "the split sizes must be one per rank and add up to dimension 0, " + std::to_string(rows));
  std::vector<Span> parts;
  const int64_t row_bytes = rows > 0 ? span.count / rows : 0;
  int64_t start = 0;
  for (const int64_t size : sizes) {
    parts.push_back(span.slice(start * row_bytes, size * row_bytes));
    start += size;
  }
  return parts;
}

bool has_factor(const Reduction& reduction) { return reduction.factor.has_value(); }

/// The span of the first rank in each list.
std::vector<Span> firsts(const std::vector<std::vector<Span>>& of_ranks) {
  std::vector<Span> spans;
  for (const std::vector<Span>& list : of_ranks) spans.push_back(list.front());
  return spans;
}

}  // namespace

Group::WorkPtr Group::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  check_one("broadcast", tensors.size());
  check("broadcast", tensors);
  const Span span = span_of(tensors[0]).seen_as(at::kByte);
  const int64_t step = piece_elements(1);
  const bool sends = opts.rootRank == rank_;
  auto make = [=](int k) {
    return in_place_piece(span.slice(k * step, step), sends ? Use::kRead : Use::kWrite,
                          [opts](c10d::Backend& gloo, Tensors& list) { return gloo.broadcast(list, opts); });
  };
  Call call{OpType::BROADCAST, "broadcast", tensors, tensors, piece_count(span.count, step), make};
  if (nccl_) call.nccl = nccl_broadcast(span, static_cast<int>(opts.rootRank), sends);
  call.alone = Copies();
  return submit(std::move(call));
}

Group::WorkPtr Group::reduce_all(const char* title, OpType type, Tensors& tensors, const c10d::ReduceOp& op,
                                 std::chrono::milliseconds timeout) {
  check(title, tensors);
  std::vector<Span> spans;
  std::vector<Reduction> reductions;
  PieceTable table;
  for (size_t i = 0; i < tensors.size(); ++i) {
    reductions.push_back(aten::at_boundary([&] { return reduction_for(tensors[i].scalar_type(), op, size_, title); }));
    spans.push_back(span_of(tensors[i]).seen_as(reductions[i].seen));
    table.add(static_cast<int>(i), piece_count(spans[i].count, piece_elements(spans[i].element_bytes())));
  }
  const int count = static_cast<int>(table.pieces.size());
  auto make = [=](int k) {
    const auto [i, part] = table.pieces[k];
    const int64_t step = piece_elements(spans[i].element_bytes());
    auto options = with_timeout<c10d::AllreduceOptions>(timeout);
    options.reduceOp = reductions[i].op;
    return reduce_piece(spans[i].slice(part * step, step), reductions[i], true,
                        [options](c10d::Backend& gloo, Tensors& list) { return gloo.allreduce(list, options); });
  };
  Call call{type, title, tensors, tensors, count, make};
  if (nccl_) call.nccl = nccl_all_reduce(spans, reductions);
  if (std::none_of(reductions.begin(), reductions.end(), &has_factor)) call.alone = Copies();
  return submit(std::move(call));
}

Group::WorkPtr Group::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  check_one("all_reduce", tensors.size());
  return reduce_all("all_reduce", OpType::ALLREDUCE, tensors, opts.reduceOp, opts.timeout);
}

Group::WorkPtr Group::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  return reduce_all("all_reduce_coalesced", OpType::ALLREDUCE_COALESCED, tensors, opts.reduceOp, opts.timeout);
}

Group::WorkPtr Group::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  check_one("reduce", tensors.size());
  check("reduce", tensors);
  const Reduction reduction =
      aten::at_boundary([&] { return reduction_for(tensors[0].scalar_type(), opts.reduceOp, size_, "reduce"); });
  const Span span = span_of(tensors[0]).seen_as(reduction.seen);
  const int64_t step = piece_elements(span.element_bytes());
  auto make = [=, root = opts.rootRank == rank_](int k) {
    c10d::ReduceOptions options = opts;
    options.reduceOp = reduction.op;
    return reduce_piece(span.slice(k * step, step), reduction, root,
                        [options](c10d::Backend& gloo, Tensors& list) { return gloo.reduce(list, options); });
  };
  Call call{OpType::REDUCE, "reduce", tensors, tensors, piece_count(span.count, step), make};
  if (nccl_) call.nccl = nccl_reduce(span, reduction, static_cast<int>(opts.rootRank), opts.rootRank == rank_);
  if (!has_factor(reduction)) call.alone = Copies();
  return submit(std::move(call));
}

Group::WorkPtr Group::gather_all(const char* title, OpType type, const Tensors& inputs, const TensorLists& outputs,
                                 std::chrono::milliseconds timeout) {
  const Tensors written = concat(outputs, {});
  const Tensors all = concat(outputs, inputs);
  check(title, all);
  std::vector<Span> from = spans_of(inputs);
  std::vector<std::vector<Span>> to;
  PieceTable table;
  const int64_t step = piece_elements(1, size_);
  for (size_t i = 0; i < inputs.size(); ++i) {
    to.push_back(outputs[i].size() == 1 ? parts_of(span_of(outputs[i][0]).seen_as(at::kByte), size_) : spans_of(outputs[i]));
    for (const at::Tensor& output : outputs[i])
      if (output.scalar_type() != inputs[i].scalar_type()) refuse(title, "inputs and outputs must have the same type");
    for (const Span& span : to[i])
      if (static_cast<int>(to[i].size()) != size_ || span.count != from[i].count)
        refuse(title,
               "every rank needs an output of the size of its input, " + std::to_string(inputs[i].numel()) + " elements");
    table.add(static_cast<int>(i), piece_count(from[i].count, step));
  }
  const int count = static_cast<int>(table.pieces.size());
  auto make = [=](int k) {
    const auto [i, part] = table.pieces[k];
    return exchange_piece({from[i].slice(part * step, step)}, slices(to[i], part * step, step),
                          [timeout](c10d::Backend& gloo, Tensors& list) {
                            return gloo._allgather_base(list[1], list[0], with_timeout<c10d::AllgatherOptions>(timeout));
                          });
  };
  Call call{type, title, all, written, count, make};
  if (nccl_) call.nccl = nccl_all_gather(from, to);
  if (size_ == 1) call.alone = copies_between(from, firsts(to));
  return submit(std::move(call));
}

Group::WorkPtr Group::allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  check_one("all_gather", inputs.size());
  check_one("all_gather", outputs.size());
  if (static_cast<int>(outputs[0].size()) != size_) refuse("all_gather", "needs one output for each rank");
  check("all_gather", concat(outputs, inputs));
  const Span input = span_of(inputs[0]).seen_as(at::kByte);
  const std::vector<Span> to = spans_of(outputs[0]);
  // Ranks with different sizes exchange their inputs. All ranks know all sizes, so all of them come here.
  if (std::any_of(to.begin(), to.end(), [&](const Span& span) { return span.count != to[0].count; })) {
    for (const at::Tensor& output : outputs[0])
      if (output.scalar_type() != inputs[0].scalar_type()) refuse("all_gather", "inputs and outputs must have the same type");
    if (to[rank_].count != input.count)
      refuse("all_gather",
             "this rank's output must have the size of its input, " + std::to_string(inputs[0].numel()) + " elements");
    return exchange("all_gather", OpType::ALLGATHER, concat(outputs, inputs), outputs[0], std::vector<Span>(size_, input), to,
                    opts.timeout);
  }
  return gather_all("all_gather", OpType::ALLGATHER, inputs, outputs, opts.timeout);
}

Group::WorkPtr Group::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) {
  return gather_all("all_gather_into_tensor", OpType::_ALLGATHER_BASE, {input}, {{output}}, opts.timeout);
}

Group::WorkPtr Group::allgather_coalesced(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  // outputs[rank][i] gets that rank's inputs[i].
  TensorLists by_input(inputs.size());
  for (const Tensors& of_rank : outputs)
    for (size_t i = 0; i < inputs.size(); ++i) by_input[i].push_back(of_rank.at(i));
  return gather_all("all_gather_coalesced", OpType::ALLGATHER_COALESCED, inputs, by_input, opts.timeout);
}

Group::WorkPtr Group::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  TensorLists lists;
  for (const at::Tensor& output : outputs) lists.push_back({output});
  return gather_all("all_gather_into_tensor_coalesced", OpType::COALESCED, inputs, lists, opts.timeout);
}

Group::WorkPtr Group::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) {
  check_one("gather", inputs.size());
  const bool root = opts.rootRank == rank_;
  if (root && (outputs.size() != 1 || static_cast<int>(outputs[0].size()) != size_))
    refuse("gather", "the destination needs one output for each rank");
  const Tensors written = root ? outputs[0] : Tensors{}, all = concat(root ? outputs : TensorLists{}, inputs);
  check("gather", all);
  const Span from = span_of(inputs[0]).seen_as(at::kByte);
  const std::vector<Span> to = spans_of(written);
  for (const Span& span : to)
    if (span.count != from.count) refuse("gather", "every output must have the size of the input");
  const int64_t step = piece_elements(1, size_);
  auto make = [=, this](int k) {
    const auto start = [=, this](c10d::Backend& gloo, Tensors& list) {
      TensorLists lists;
      if (root) lists.push_back(list[1].chunk(size_));
      Tensors input{list[0]};
      return gloo.gather(lists, input, opts);
    };
    return exchange_piece({from.slice(k * step, step)}, slices(to, k * step, step), start);
  };
  Call call{OpType::GATHER, "gather", all, written, piece_count(from.count, step), make};
  if (size_ == 1) call.alone = copies_between({from}, to);
  return submit(std::move(call));
}

Group::WorkPtr Group::scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) {
  check_one("scatter", outputs.size());
  const bool root = opts.rootRank == rank_;
  if (root && (inputs.size() != 1 || static_cast<int>(inputs[0].size()) != size_))
    refuse("scatter", "the source needs one input for each rank");
  const Tensors read = root ? inputs[0] : Tensors{}, all = concat({read}, outputs);
  check("scatter", all);
  const Span to = span_of(outputs[0]).seen_as(at::kByte);
  const std::vector<Span> from = spans_of(read);
  for (const Span& span : from)
    if (span.count != to.count) refuse("scatter", "every input must have the size of the output");
  const int64_t step = piece_elements(1, size_);
  auto make = [=, this](int k) {
    const auto start = [=, this](c10d::Backend& gloo, Tensors& list) {
      TensorLists lists;
      if (root) lists.push_back(list[0].chunk(size_));
      Tensors output{list[1]};
      return gloo.scatter(output, lists, opts);
    };
    return exchange_piece(slices(from, k * step, step), {to.slice(k * step, step)}, start);
  };
  Call call{OpType::SCATTER, "scatter", all, outputs, piece_count(to.count, step), make};
  if (size_ == 1) call.alone = copies_between(from, {to});
  return submit(std::move(call));
}

Group::WorkPtr Group::scatter_reduced(const char* title, OpType type, const TensorLists& inputs, const Tensors& outputs,
                                      const c10d::ReduceScatterOptions& opts) {
  const Tensors all = concat(inputs, outputs);
  check(title, all);
  std::vector<Reduction> reductions;
  std::vector<std::vector<Span>> from;
  std::vector<Span> to;
  PieceTable table;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Reduction reduction =
        aten::at_boundary([&] { return reduction_for(outputs[i].scalar_type(), opts.reduceOp, size_, title); });
    to.push_back(span_of(outputs[i]).seen_as(reduction.seen));
    from.emplace_back();
    for (const at::Tensor& input : inputs[i]) {
      if (input.scalar_type() != outputs[i].scalar_type()) refuse(title, "inputs and outputs must have the same type");
      from[i].push_back(span_of(input).seen_as(reduction.seen));
    }
    if (from[i].size() == 1) from[i] = parts_of(from[i][0], size_);
    for (const Span& span : from[i])
      if (static_cast<int>(from[i].size()) != size_ || span.count != to[i].count)
        refuse(title, "the input must have one part of the output's size for each rank");
    table.add(static_cast<int>(i), piece_count(to[i].count, piece_elements(to[i].element_bytes(), size_)));
    reductions.push_back(reduction);
  }
  const int count = static_cast<int>(table.pieces.size());
  auto make = [=, this](int k) {
    const auto [i, part] = table.pieces[k];
    const int64_t step = piece_elements(to[i].element_bytes(), size_);
    return reduce_scatter_piece(slices(from[i], part * step, step), to[i].slice(part * step, step), reductions[i],
                                opts.timeout);
  };
  Call call{type, title, all, outputs, count, make};
  if (nccl_) call.nccl = nccl_reduce_scatter(from, to, reductions);
  if (size_ == 1 && std::none_of(reductions.begin(), reductions.end(), &has_factor))
    call.alone = copies_between(firsts(from), to);
  return submit(std::move(call));
}

Group::WorkPtr Group::reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& opts) {
  check_one("reduce_scatter", outputs.size());
  if (inputs.size() != 1 || static_cast<int>(inputs[0].size()) != size_)
    refuse("reduce_scatter", "needs one input for each rank");
  return scatter_reduced("reduce_scatter", OpType::REDUCE_SCATTER, inputs, outputs, opts);
}

Group::WorkPtr Group::_reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) {
  return scatter_reduced("reduce_scatter_tensor", OpType::_REDUCE_SCATTER_BASE, {{input}}, {output}, opts);
}

Group::WorkPtr Group::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                      const c10d::ReduceScatterOptions& opts) {
  TensorLists lists;
  for (const at::Tensor& input : inputs) lists.push_back({input});
  return scatter_reduced("reduce_scatter_tensor_coalesced", OpType::COALESCED, lists, outputs, opts);
}

/// Sends from[r] to rank r, and receives to[r] from it. The exchange is not cut into pieces: all ranks would have to
/// cut it in the same way, but a rank knows only its own sizes.
Group::WorkPtr Group::exchange(const char* title, OpType type, const Tensors& all, const Tensors& outputs,
                               std::vector<Span> from, std::vector<Span> to, std::chrono::milliseconds timeout) {
  auto make = [=](int) {
    const auto start = [=](c10d::Backend& gloo, Tensors& list) {
      std::vector<int64_t> sent, received;
      for (const Span& span : from) sent.push_back(span.count);
      for (const Span& span : to) received.push_back(span.count);
      return gloo.alltoall_base(list[1], list[0], received, sent, with_timeout<c10d::AllToAllOptions>(timeout));
    };
    return exchange_piece(from, to, start);
  };
  Call call{type, title, all, outputs, 1, make};
  if (nccl_) call.nccl = nccl_exchange(from, to);
  if (size_ == 1 && from[0].count == to[0].count) call.alone = copies_between(from, to);
  return submit(std::move(call));
}

Group::WorkPtr Group::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                                    std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& opts) {
  constexpr const char* kTitle = "all_to_all_single";
  check(kTitle, {output, input});
  return exchange(kTitle, OpType::ALLTOALL_BASE, {output, input}, {output}, split_rows(kTitle, input, input_splits, size_),
                  split_rows(kTitle, output, output_splits, size_), opts.timeout);
}

Group::WorkPtr Group::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
  const Tensors all = concat({inputs}, outputs);
  check("all_to_all", all);
  if (static_cast<int>(inputs.size()) != size_ || static_cast<int>(outputs.size()) != size_)
    refuse("all_to_all", "needs one input and one output for each rank");
  return exchange("all_to_all", OpType::ALLTOALL, all, outputs, spans_of(inputs), spans_of(outputs), opts.timeout);
}

Group::WorkPtr Group::transfer(Transfer how, Tensors& tensors) {
  check_one(how.title, tensors.size());
  check(how.title, tensors);
  const Span span = span_of(tensors[0]).seen_as(at::kByte);
  const int64_t step = piece_elements(1);
  auto make = [=](int k) {
    PiecePtr piece = in_place_piece(span.slice(k * step, step), how.use,
                                    [=](c10d::Backend& gloo, Tensors& list) { return how.start(gloo, list, k); });
    piece->needs_waiter = true;
    piece->after_previous = how.in_order;
    return piece;
  };
  Call call{how.type, how.title, tensors, tensors, piece_count(span.count, step), make, how.lane, how.host_waits};
  const auto [kind, peer, tag] = how.lane;
  // NCCL has no tags, so a transfer with a tag uses gloo. The sender and the receiver have the same tag.
  if (nccl_ && tag == 0) call.nccl = kind == LaneKind::kSend ? nccl_send(span, peer) : nccl_receive(span, peer);
  return submit(std::move(call));
}

Group::WorkPtr Group::send(Tensors& tensors, int peer, int tag) {
  const auto start = [=](c10d::Backend& gloo, Tensors& list, int) { return gloo.send(list, peer, tag); };
  return transfer({OpType::SEND, "send", Use::kRead, {LaneKind::kSend, peer, tag}, start}, tensors);
}

Group::WorkPtr Group::recv(Tensors& tensors, int peer, int tag) {
  const auto start = [=](c10d::Backend& gloo, Tensors& list, int) { return gloo.recv(list, peer, tag); };
  return transfer({OpType::RECV, "recv", Use::kWrite, {LaneKind::kReceive, peer, tag}, start}, tensors);
}

/// Receives the first piece from any rank, and the next pieces from the same rank, one after the other.
Group::WorkPtr Group::recvAnysource(Tensors& tensors, int tag) {
  if (nccl_ && tag == 0)
    refuse("recv from any rank",
           "NCCL must know the source.\n  do: name the source, or give this and the send a tag other than 0; gloo then carries "
           "them");
  const auto start = [tag, first = std::make_shared<WorkPtr>()](c10d::Backend& gloo, Tensors& list, int k) {
    if (k > 0) return gloo.recv(list, (*first)->sourceRank(), tag);
    *first = gloo.recvAnysource(list, tag);
    return *first;
  };
  Transfer how{OpType::RECVANYSOURCE, "recv from any rank", Use::kWrite, {LaneKind::kReceive, -1, tag}, start};
  how.in_order = how.host_waits = true;
  return transfer(std::move(how), tensors);
}

Group::WorkPtr Group::barrier(const c10d::BarrierOptions& opts) {
  auto make = [timeout = opts.timeout](int) {
    auto piece = std::make_shared<Piece>();
    piece->downloaded = true;
    piece->post = [timeout](c10d::Backend& gloo) { return gloo.barrier(with_timeout<c10d::BarrierOptions>(timeout)); };
    return piece;
  };
  Call call{OpType::BARRIER, "barrier", {}, {}, 1, make};
  call.host_waits = true;
  if (nccl_) call.nccl = nccl_barrier(nccl_->device());
  call.alone = Copies();
  return submit(std::move(call));
}

}  // namespace ocl::distributed
