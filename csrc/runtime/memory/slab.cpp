// csrc/runtime/memory/slab.cpp: best-fit allocation with splitting and coalescing.
#include "csrc/runtime/memory/slab.h"

namespace ocl::runtime {

Slab::Slab(size_t bytes_, Pool pool_, int stream_) : bytes(bytes_), pool(pool_), stream(stream_) {
  auto* block = new Block;
  block->slab = this;
  block->bytes = bytes;
  block->stream = stream;
  blocks.emplace(0, block);
}

Slab::~Slab() {
  for (const auto& [offset, block] : blocks) delete block;
}

Block* Slab::block_at(uintptr_t value) const noexcept {
  const auto above = blocks.upper_bound(value - address);
  return above == blocks.begin() ? nullptr : std::prev(above)->second;
}

bool FreeBlocks::BySize::operator()(const Block* a, const Block* b) const {
  if (a->bytes != b->bytes) return a->bytes < b->bytes;
  return a->address() < b->address();
}

void FreeBlocks::count(const Block* block, bool listed) {
  if (block->bytes == block->slab->bytes) return;
  const bool small = block->slab->pool == kSmall;
  const auto bytes = static_cast<int64_t>(block->bytes);
  if (listed) {
    stats_.inactive_split_blocks.increase(small, 1);
    stats_.inactive_split_bytes.increase(small, bytes);
  } else {
    stats_.inactive_split_blocks.decrease(small, 1);
    stats_.inactive_split_bytes.decrease(small, bytes);
  }
}

void FreeBlocks::insert(Block* block) {
  const auto stream = static_cast<size_t>(block->stream);
  if (of_stream_.size() <= stream) of_stream_.resize(stream + 1);
  of_stream_[stream][block->slab->pool].insert(block);
  count(block, true);
}

void FreeBlocks::erase(Block* block) {
  of_stream_[block->stream][block->slab->pool].erase(block);
  count(block, false);
}

Block* FreeBlocks::best_fit(int stream, Pool pool, size_t bytes) const {
  if (of_stream_.size() <= static_cast<size_t>(stream)) return nullptr;
  const List& list = of_stream_[stream][pool];
  const auto row = list.lower_bound(bytes);
  return row == list.end() ? nullptr : *row;
}

Block* FreeBlocks::best_fit_anywhere(size_t bytes) const {
  Block* best = nullptr;
  for (const auto& pools : of_stream_)
    for (const List& list : pools)
      if (const auto row = list.lower_bound(bytes); row != list.end() && (!best || (*row)->bytes < best->bytes)) best = *row;
  return best;
}

void FreeBlocks::take(Block* block, size_t bytes, size_t least_rest) {
  erase(block);
  const size_t rest = block->bytes - bytes;
  if (rest >= least_rest) {
    auto* tail = new Block;
    tail->slab = block->slab;
    tail->offset = block->offset + bytes;
    tail->bytes = rest;
    tail->stream = block->stream;
    tail->previous = block;
    tail->next = block->next;
    if (tail->next) tail->next->previous = tail;
    block->next = tail;
    block->bytes = bytes;
    block->slab->blocks.emplace(tail->offset, tail);
    insert(tail);
  }
  block->free = false;
}

void FreeBlocks::give_back(Block* block) {
  block->free = true;
  const auto joins = [&](const Block* other) { return other && other->free && other->stream == block->stream; };
  const auto absorb = [](Block* left, Block* right) {
    left->bytes += right->bytes;
    left->next = right->next;
    if (right->next) right->next->previous = left;
    left->slab->blocks.erase(right->offset);
    delete right;
  };
  if (Block* next = block->next; joins(next)) {
    erase(next);
    absorb(block, next);
  }
  if (Block* previous = block->previous; joins(previous)) {
    erase(previous);
    absorb(previous, block);
    block = previous;
  }
  insert(block);
}

void FreeBlocks::rejoin(Slab* slab) {
  std::vector<Block*> moved;
  for (const auto& [offset, block] : slab->blocks)
    if (block->free && block->stream != slab->stream) moved.push_back(block);
  // Each block joins its free neighbours. Only the blocks in `moved` change their stream.
  for (Block* block : moved) {
    erase(block);
    block->stream = slab->stream;
    give_back(block);
  }
}

void FreeBlocks::retire(Slab* slab) {
  std::vector<Block*> free;
  for (const auto& [offset, block] : slab->blocks)
    if (block->free) free.push_back(block);
  for (Block* block : free) erase(block);
  slab->pool = kRetired;
  for (Block* block : free) insert(block);
}

std::vector<Slab*> FreeBlocks::unused_slabs() const {
  std::vector<Slab*> unused;
  for (const auto& pools : of_stream_)
    for (const List& list : pools)
      for (Block* block : list)
        if (block->bytes == block->slab->bytes) unused.push_back(block->slab);
  return unused;
}

}  // namespace ocl::runtime
