// csrc/distributed/pieces.h: what each collective does with one piece of its tensors.
#pragma once

#include <ATen/ATen.h>

#include <chrono>
#include <functional>
#include <vector>

#include "csrc/distributed/engine.h"
#include "csrc/distributed/reduction.h"
#include "csrc/distributed/span.h"

namespace ocl::distributed {

/// Returns the number of elements in a piece. It depends only on what all ranks know, so that all ranks cut alike. `ranks` is
/// the number of ranks whose elements one rank holds in host memory at the same time.
int64_t piece_elements(size_t element_bytes, int ranks = 1);
int piece_count(int64_t elements, int64_t per_piece);

using Start = std::function<c10::intrusive_ptr<c10d::Work>(c10d::Backend&, std::vector<at::Tensor>&)>;

/// Makes a piece that calls gloo with the elements of `span`, in place.
PiecePtr in_place_piece(const Span& span, Use use, Start start);
/// Makes a piece of an allreduce or reduce. `writes` says whether this rank gets the result.
PiecePtr reduce_piece(const Span& span, const Reduction& reduction, bool writes, Start start);
/// Makes a piece that calls gloo with [in, out]: `in` has the elements of all `inputs` one after the other, and `out` receives
/// the elements of all `outputs`.
PiecePtr exchange_piece(const std::vector<Span>& inputs, const std::vector<Span>& outputs, Start start);
/// Makes a piece that exchanges inputs[r] with rank r, and combines the elements that arrive into `output`.
PiecePtr reduce_scatter_piece(const std::vector<Span>& inputs, const Span& output, const Reduction& reduction,
                              std::chrono::milliseconds timeout);

/// If off, host memory of CPU devices is copied like memory of other devices. Only tests use it.
void set_host_mapping(bool on);

}  // namespace ocl::distributed
