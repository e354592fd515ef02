// tests/cpp/test_schedule_fuzz.cpp: random graphs compute the same before and after scheduling, in the planned memory.
#include <doctest/doctest.h>

#include <iostream>
#include <random>

#include "csrc/ir/builder.h"
#include "csrc/schedule/describe.h"
#include "csrc/schedule/pipeline.h"
#include "tests/cpp/schedule_simulator.h"

using namespace ocl;
using namespace ocl::ir;

namespace {

class RandomGraph {
 public:
  explicit RandomGraph(unsigned seed) : random_(seed) {
    symbolic_ = pick(4) == 0;
    if (symbolic_) n_ = b_.size_symbol({1, 100, 1});
    const int inputs = 2 + pick(3);
    for (int i = 0; i < inputs; ++i) {
      const Shape sizes = pick(3) ? full() : pick(2) ? Shape{6} : Shape{4, 6};
      Shape strides = contiguous_strides(sizes);
      if (sizes.size() == 4 && pick(2)) strides = {n_ * 0 + 6 * 20, 1, 5 * 6, 6};
      values_.push_back(b_.input(DType::kF32, sizes, strides, false, pick(4) == 0));
    }
    const int count = 3 + pick(14);
    for (int i = 0; i < count; ++i) grow();
    const int outputs = 1 + pick(3);
    for (int i = 0; i < outputs; ++i)
      b_.output(values_[values_.size() - 1 - pick(static_cast<int>(std::min<size_t>(values_.size(), 5)))], {});
  }
  Graph finish() { return b_.finish(); }
  std::vector<int64_t> symbols() const { return symbolic_ ? std::vector<int64_t>{3} : std::vector<int64_t>{}; }

 private:
  int pick(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  Shape full() { return {n_, 6, 4, 5}; }
  const Value& any() { return values_[values_.size() - 1 - pick(static_cast<int>(std::min<size_t>(values_.size(), 6)))]; }

  /// Returns an existing value that broadcasts against x.
  Value partner(const Value& x) {
    for (int tries = 0; tries < 8; ++tries) {
      const Value& y = any();
      if (y.sizes == x.sizes) return y;
      if (y.sizes.size() == 1 && x.sizes.size() == 4 && x.sizes[1] == y.sizes[0]) return b_.reshape(y, {y.sizes[0], 1, 1});
      bool fits = y.sizes.size() <= x.sizes.size();
      for (size_t d = 0; d < y.sizes.size() && fits; ++d) {
        const IndexExpr& size = x.sizes[x.sizes.size() - y.sizes.size() + d];
        fits = size == y.sizes[d] || y.sizes[d].is_const(1);
      }
      if (fits) return y;
    }
    return b_.constant({true, 0.5, 0}, DType::kF32);
  }

  void grow() {
    const Value x = any();
    const int rank = static_cast<int>(x.sizes.size());
    const char* unary[] = {"neg", "abs", "relu", "exp"};
    const char* binary[] = {"add", "sub", "mul", "maximum"};
    switch (pick(12)) {
      case 0:
      case 1: {
        const std::string op = unary[pick(4)];
        values_.push_back(b_.op(op, {op == "exp" ? b_.op("minimum", {x, b_.constant({true, 1, 0}, DType::kF32)}) : x}));
        return;
      }
      case 2:
      case 3:
      case 4:
      case 5:
        values_.push_back(b_.op(binary[pick(4)], {x, partner(x)}));
        return;
      case 6:
      case 7: {
        if (rank == 0) return;
        std::vector<int> dims;
        for (int d = 0; d < rank; ++d)
          if (pick(2)) dims.push_back(d);
        if (rank == 4 && pick(2)) dims = {0, 2, 3};
        if (dims.empty()) dims = {rank - 1};
        const char* reduction[] = {"sum", "max", "welford"};
        for (const Value& v : b_.reduce(reduction[pick(3)], x, dims, pick(3) > 0)) values_.push_back(v);
        return;
      }
      case 8: {
        if (rank < 2) return;
        std::vector<int> dims(static_cast<size_t>(rank));
        for (int d = 0; d < rank; ++d) dims[d] = d;
        std::shuffle(dims.begin(), dims.end(), random_);
        values_.push_back(b_.permute(x, dims));
        return;
      }
      case 9: {
        if (rank < 2) return;
        Shape sizes = x.sizes;
        const size_t d = static_cast<size_t>(pick(rank - 1));
        sizes[d] = simplify(sizes[d] * sizes[d + 1], {});
        sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(d) + 1);
        values_.push_back(b_.reshape(x, sizes));
        return;
      }
      case 10: {
        if (rank == 0 || !x.sizes.back().is_const()) return;
        const int64_t n = x.sizes.back().constant();
        if (n < 2 || pick(3) == 0) {
          values_.push_back(b_.concat({x, b_.op("neg", {x})}, -1));
        } else {
          values_.push_back(b_.slice(x, rank - 1, n / 2, n, 1));
        }
        return;
      }
      // A write to an input. Later steps may read views of the input again.
      default: {
        const Value& target = values_[pick(2)];
        const Value p = partner(target);
        b_.copy_into(target, b_.op("add", {target, p}));
        values_.push_back(b_.op("mul", {target, p}));
        return;
      }
    }
  }

  Builder b_;
  std::mt19937 random_;
  bool symbolic_ = false;
  IndexExpr n_ = 3;
  std::vector<Value> values_;
};

void check_same(const simulator::Results& a, const simulator::Results& b, const std::string& text) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    REQUIRE(a[i].size() == b[i].size());
    for (size_t j = 0; j < a[i].size(); ++j) {
      const bool same = a[i][j] == b[i][j] || std::abs(a[i][j] - b[i][j]) <= 1e-9 * (1 + std::abs(a[i][j])) ||
                        (std::isnan(a[i][j]) && std::isnan(b[i][j]));
      if (!same) FAIL("result ", i, " element ", j, ": ", a[i][j], " became ", b[i][j], "\n", text);
    }
  }
}

}  // namespace

TEST_CASE("random graphs mean the same after scheduling") {
  int nodes = 0, groups = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    RandomGraph random(seed);
    const std::vector<int64_t> symbols = random.symbols();
    const Graph graph = random.finish();
    const simulator::Results expected = simulator::run_graph(graph, symbols);
    for (const bool is_cpu : {true, false})
      for (const bool fuse : {true, false}) {
        Caps caps;
        caps.is_cpu = is_cpu;
        if (!is_cpu) caps.units = 132;
        ocl::schedule::Options options;
        options.verify = true;
        options.fuse = fuse;
        ocl::schedule::Schedule schedule;
        std::string text =
            "seed " + std::to_string(seed) + (is_cpu ? " cpu" : " gpu") + (fuse ? " fused\n" : "\n") + graph.str();
        try {
          schedule = make_schedule(graph, caps, options);
          text += "\n" + str(schedule);
          check_same(expected, simulator::run_schedule(schedule, symbols), text);
        } catch (const std::exception& error) {
          FAIL(error.what(), "\n", text);
        }
        if (!fuse) nodes += static_cast<int>(schedule.groups.size());
        if (fuse) groups += static_cast<int>(schedule.groups.size());
      }
  }
  MESSAGE(nodes, " launches unfused, ", groups, " fused");
}
